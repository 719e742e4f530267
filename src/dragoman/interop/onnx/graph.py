"""Build a graph of ONNX node by node."""

import hashlib
import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.errors import DragomanError

OPSET, IR_VERSION = 20, 10  # 20 has LayerNormalization and Gelu

FLOAT, UINT8, INT64, DOUBLE = 1, 2, 7, 11  # the numbers that ONNX gives to types

Shape = tuple[str | int, ...]  # a name stands for a size that differs between calls


def import_onnx(package: Literal["onnx", "onnxruntime"] = "onnx") -> ModuleType:
    """Import a package now, not before, and return it. Raise DragomanError where it is not installed."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise DragomanError("ONNX needs two packages: pip install 'dragoman[onnx]'") from None


class Graph:
    """A graph that grows by `node`. Every value in it is known by its name, a string.

    Equal nodes are one: whoever needs a shape or a mask asks for it, whether or not it is there already.
    """

    def __init__(self, model: nn.Module):
        self.onnx = import_onnx()
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.nodes: list[Any] = []
        self.made: dict[tuple, str] = {}
        self.constants: dict[str, np.ndarray] = {}

    def node(self, operator: str, *inputs: str | np.ndarray | list[int] | float, **attributes: Any) -> str:
        """Return the name of the output of a node, an operator of ONNX applied to values.

        A number among the inputs is a constant in float32, a list of whole numbers one in int64.
        """
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        key = (operator, *names, str(sorted(attributes.items())))
        if key not in self.made:
            self.made[key] = f"{operator}_{len(self.nodes)}"
            self.nodes.append(self.onnx.helper.make_node(operator, names, [self.made[key]], **attributes))
        return self.made[key]

    def constant(self, value: np.ndarray | list[int] | float) -> str:
        """Return the name of a constant, as `node` takes it; equal ones are one."""
        array = np.asarray(value, np.float32 if isinstance(value, float) else None)
        content = f"{array.dtype} {array.shape} ".encode() + array.tobytes()
        return self.keep(f"constant.{hashlib.sha256(content).hexdigest()[:16]}", array)

    def weight(self, tensor: Tensor) -> str:
        """Return the name of a weight of the model, in float32; a shared one is there once."""
        return self.keep(self.names[id(tensor)], float_array(tensor))

    def keep(self, name: str, array: np.ndarray) -> str:
        """Return `name`, under which the graph keeps an array from then on."""
        self.constants[name] = array
        return name

    def sizes(self, value: str, start: int, end: int) -> str:
        """Return the sizes of a value in the dimensions from start to end - 1: a vector in int64."""
        return self.node("Shape", value, start=start, end=end)

    def numbers(self, start: str | list[int], end: str) -> str:
        """Return the whole numbers from start to end - 1, both vectors of one number."""
        first, last = (self.node("Squeeze", bound, [0]) for bound in (start, end))
        return self.node("Range", first, last, np.array(1))

    def model(self, inputs: Mapping[str, tuple[int, Shape]], outputs: Mapping[str, tuple[str, Shape]]) -> Any:
        """Return the whole graph as an onnx.ModelProto, checked.

        inputs: the type and the shape of each; outputs: the name of the value that each one is, in float32, and its
        shape.
        """
        helper = self.onnx.helper
        named = [helper.make_node("Identity", [value], [name]) for name, (value, _) in outputs.items()]
        graph = helper.make_graph(
            [*self.nodes, *named],
            "dragoman",
            [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
            [helper.make_tensor_value_info(name, FLOAT, shape) for name, (_, shape) in outputs.items()],
            [self.onnx.numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opset = helper.make_opsetid("", OPSET)
        made = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="dragoman")
        self.onnx.checker.check_model(made)
        return made


def float_array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to("cpu", torch.float32).numpy()
