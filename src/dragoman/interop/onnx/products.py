"""Store the matrices of a graph and multiply with them, in float32 or in int8."""

from typing import Protocol

import numpy as np
from torch import Tensor, nn

from dragoman.interop.onnx.graph import FLOAT, UINT8, Graph, float_array

ZERO = np.array(128, np.uint8)  # stands for 0: whole numbers from -127 to 127 are stored as 1 to 255


class Products(Protocol):
    """A way to store matrices and to multiply with them."""

    def linear(self, graph: Graph, x: str, layer: nn.Linear) -> str:
        """Return rows x (N, inputs) times the matrix of a layer plus its bias: (N, outputs)."""
        ...

    def rows(self, graph: Graph, matrix: Tensor, ids: str) -> str:
        """Return the rows of a matrix (V, M) that the ids (B, T) name: (B, T, M)."""
        ...


class Float32:
    """The matrices as they are."""

    def linear(self, graph: Graph, x: str, layer: nn.Linear) -> str:
        bias = [] if layer.bias is None else [graph.weight(layer.bias)]
        return graph.node("Gemm", x, graph.weight(layer.weight), *bias, transB=1)

    def rows(self, graph: Graph, matrix: Tensor, ids: str) -> str:
        return graph.node("Gather", graph.weight(matrix), ids)


class Int8:
    """Whole numbers of 8 bits, as `inference.products.Int8Linear` has them.

    Each row of a matrix, and each row that is multiplied with it, has the scale that takes its largest number to 127.
    So what a row gives does not depend on the rows beside it. Both are stored without signs: with signs, the
    instructions that older processors have would overflow.
    """

    def quantised(self, graph: Graph, matrix: Tensor) -> tuple[str, str]:
        """Return a matrix (outputs, inputs) as whole numbers, and the scale of each row (outputs, 1)."""
        name, array = graph.names[id(matrix)], float_array(matrix)
        scale = np.maximum(np.abs(array).max(1, keepdims=True) / 127, np.finfo(np.float32).tiny).astype(np.float32)
        numbers = (np.rint(array / scale) + ZERO).astype(np.uint8)
        return graph.keep(f"{name}.int8", numbers), graph.keep(f"{name}.scale", scale)

    def linear(self, graph: Graph, x: str, layer: nn.Linear) -> str:
        matrix, of_output = self.quantised(graph, layer.weight)
        largest = graph.node("ReduceMax", graph.node("Abs", x), [-1])
        scale = graph.node("Max", graph.node("Div", largest, 127.0), float(np.finfo(np.float32).tiny))
        whole = graph.node("Round", graph.node("Div", x, scale))
        numbers = graph.node("Cast", graph.node("Add", whole, float(ZERO)), to=UINT8)
        sums = graph.node("MatMulInteger", numbers, graph.node("Transpose", matrix), ZERO, ZERO)
        y = graph.node("Mul", graph.node("Cast", sums, to=FLOAT), scale)
        y = graph.node("Mul", y, graph.node("Transpose", of_output))
        return y if layer.bias is None else graph.node("Add", y, graph.weight(layer.bias))

    def rows(self, graph: Graph, matrix: Tensor, ids: str) -> str:
        numbers, scale = (graph.node("Gather", values, ids) for values in self.quantised(graph, matrix))
        whole = graph.node("Sub", graph.node("Cast", numbers, to=FLOAT), float(ZERO))
        return graph.node("Mul", whole, scale)


PRODUCTS: dict[str, Products] = {"float32": Float32(), "int8": Int8()}
