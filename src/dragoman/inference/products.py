"""Choose how a model multiplies in a search: a twin of it has its matrices in the type and order that are fastest.

linears.py has what each choice does.
"""

from collections.abc import Callable
from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.config import ComputeType
from dragoman.errors import UsageError
from dragoman.inference.linears import (
    BFloat16Linear,
    GPUBFloat16Linear,
    Int8Linear,
    Int8WeightLinear,
    PackedLinear,
    steady_attention,
)
from dragoman.inference.native import multiplies_int8
from dragoman.model import Model
from dragoman.model.attention import fused_attention
from dragoman.model.capture import attention_layers, share_weights
from dragoman.model.transformer import FeedForward
from dragoman.runtime.device import instructions

PRODUCTS: dict[str, Callable[..., nn.Module]] = {
    "float32": PackedLinear,
    "bfloat16": BFloat16Linear,
    "int8": lambda linear: Int8Linear(linear) if adds_int8() else Int8WeightLinear(linear),
}
GPU_PRODUCTS: dict[str, Callable[..., nn.Module]] = {"float32": lambda linear: linear, "bfloat16": GPUBFloat16Linear}
PLAIN_PRODUCTS: dict[str, Callable[..., nn.Module]] = {"float32": lambda linear: linear}  # on a CPU without oneDNN


def has_onednn() -> bool:
    """Return whether this PyTorch has oneDNN and the calls of it that are used here; not all builds have."""
    names = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in names)


def adds_int8() -> bool:
    """Return whether the processor adds products of int8 in 32 bits: in 16 bits, sums overflow."""
    has = instructions()
    return bool(has.get("avx512_vnni") or has.get("amx_int8"))


def supported_types(device: torch.device = torch.device("cpu")) -> list[ComputeType]:
    """Return the types that a device has instructions for, in the order of ComputeType."""
    if device.type == "cuda":
        return ["float32", "bfloat16"] if torch.cuda.is_bf16_supported(including_emulation=False) else ["float32"]
    has = instructions()
    types: list[ComputeType] = ["float32"]
    if not has_onednn():
        return types
    if has.get("avx512_bf16") or has.get("amx_bf16"):
        types.append("bfloat16")
    if adds_int8() or (has.get("avx2") and hasattr(torch, "_weight_int8pack_mm")):
        types.append("int8")
    return types


def resolve_type(wanted: ComputeType, device: torch.device) -> ComputeType:
    """Return the data type to multiply in: 'auto' is the fastest for batches on a CPU, and float32 on a GPU.

    With AMX that is bfloat16: its matmuls take less time than rounding to int8 does (docs/notes/speed.md). Without
    VNNI, int8 is faster in C++ alone. Raise
    UsageError for one that the device has no instructions for, and for int8 on a GPU.
    """
    if wanted not in get_args(ComputeType):
        raise UsageError(f"compute_type must be {', '.join(get_args(ComputeType))}, not {wanted!r}")
    if device.type != "cpu":
        if wanted == "int8":
            raise UsageError("compute_type 'int8' is for CPUs: on a GPU there are float32 and bfloat16")
        if wanted in ("auto", "float32"):
            return "float32"
    types = supported_types(device)
    if wanted == "auto":
        fast = [name for name in types if name != "int8" or adds_int8() or multiplies_int8()]
        return "bfloat16" if "bfloat16" in fast and instructions().get("amx_bf16") else fast[-1]
    if wanted not in types:
        here = "processor" if device.type == "cpu" else "GPU"
        raise UsageError(
            f"compute_type {wanted!r}: this {here} has no instructions for it, only for {' and '.join(types)}"
        )
    return wanted


def pack_weights(model: Model, compute_type: str = "float32") -> Model:
    """Return a model with the same weights that multiplies in `compute_type`; the same model where it cannot be packed.

    The packed matrices are copies of the weights as they are now: pack again after changing them. Raise UsageError
    where it cannot be packed and another type than float32 is asked for.
    """
    if not isinstance(model, nn.Module) or not can_pack(model):
        if compute_type != "float32":
            raise UsageError(f"compute_type {compute_type!r} needs a model with weights in float32")
        return model
    packed = share_weights(model)
    of_linear: dict[nn.Linear, nn.Module] = {}
    for module in list(packed.modules()):
        if isinstance(module, FeedForward):
            module.hidden, module.activation = pack_hidden(module, compute_type)
        for name, child in list(module._modules.items()):  # `named_children` leaves out the other names of a matrix
            if type(child) is nn.Linear:
                if child not in of_linear:
                    of_linear[child] = pack_linear(child, compute_type)
                setattr(module, name, of_linear[child])
    if is_steady(model, compute_type):
        layers = attention_layers(packed)
        for layer in [*layers["encoder"], *layers["cross"]]:  # whose keys may be padding
            if layer.kernel is fused_attention:
                layer.kernel = steady_attention
    return packed


def pack_linear(linear: nn.Linear, compute_type: str) -> nn.Module:
    """Return a linear map with the same weights that multiplies in `compute_type`."""
    if linear.weight.device.type != "cpu":
        return GPU_PRODUCTS[compute_type](linear)
    return (PRODUCTS if has_onednn() else PLAIN_PRODUCTS)[compute_type](linear)


def pack_hidden(network: FeedForward, compute_type: str) -> tuple[Any, Callable[[Tensor], Tensor]]:
    """Return the packed hidden layer of a feed-forward network, and what is left of its activation to compute.

    oneDNN computes ReLU in the pass that writes the product.
    """
    linear: nn.Linear = network.hidden
    by_onednn = linear.weight.device.type == "cpu" and has_onednn() and compute_type != "int8"
    if network.activation is F.relu and type(linear) is nn.Linear and by_onednn:
        return PRODUCTS[compute_type](linear, "relu"), nn.Identity().forward
    return pack_linear(linear, compute_type), network.activation


def is_steady(model: nn.Module, compute_type: str) -> bool:
    """Return whether a row must have the same bits whatever is beside it: where numbers are rounded, on a CPU."""
    return compute_type != "float32" and next(model.parameters()).device.type == "cpu"


def can_pack(model: nn.Module) -> bool:
    """Return whether all weights of the model are float32, and on a CPU or on a GPU."""
    devices = {tensor.device.type for tensor in model.parameters()}
    return devices in ({"cpu"}, {"cuda"}) and all(tensor.dtype == torch.float32 for tensor in model.parameters())
