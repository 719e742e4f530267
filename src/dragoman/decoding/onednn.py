"""Matrices laid out as oneDNN multiplies them fastest: on a CPU, a search multiplies the same ones again and again."""

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

ROWS = 32  # for so many the layout is chosen; it serves any number
Model = TypeVar("Model")


class PackedLinear(nn.Module):
    """An nn.Linear with two more copies of its matrix, in oneDNN's own order and transposed. For inference alone."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        with torch.no_grad():
            self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), ROWS)
            self.transposed = linear.weight.detach().T.contiguous()

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 2 and len(x) == 1:  # one row is bound by memory, and reads this order fastest
            return x @ self.transposed if self.bias is None else torch.addmm(self.bias, x, self.transposed)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def pack_weights(model: Model) -> Model:
    """A model with the same weights and packed matrices; the same model where that is no gain or cannot be had.

    What is packed are the weights as they are now: whoever changes them packs again.
    """
    if not isinstance(model, nn.Module) or not can_pack(model):
        return model
    shared: dict[int, Any] = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    twin = copy.deepcopy(model, shared)
    for module in list(twin.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, PackedLinear(child))
    return twin


def can_pack(model: nn.Module) -> bool:
    ops = all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    fitting = all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in model.parameters())
    return ops and fitting and torch.backends.mkldnn.is_available()
