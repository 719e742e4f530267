"""Fast paths of decoding on a CPU: the largest k of many, and matrices in the layout that oneDNN multiplies fastest.

Both give what the plain operations give; a search works without them, more slowly.
"""

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

BLOCK = 64  # words of a block of `topk`
ROWS = 32  # oneDNN's layout is chosen for so many rows; it serves any number
Model = TypeVar("Model")


def topk(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values of the last dimension and their indices, as `Tensor.topk` does.

    Several times as fast on a CPU where k is small: the k largest are among the k blocks with the largest maxima, and
    what is left over at the end.
    """
    size = x.size(-1)
    whole = size // BLOCK * BLOCK
    if whole <= k * BLOCK:
        return x.topk(k)
    blocks = x[..., :whole].unflatten(-1, (-1, BLOCK))
    chosen = blocks.amax(-1).topk(k)[1]
    candidates = (chosen.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=x.device)).flatten(-2)
    rest = torch.arange(whole, size, device=x.device).expand(*x.shape[:-1], -1)
    candidates = torch.cat([candidates, rest], -1)
    largest, index = x.gather(-1, candidates).topk(k)
    return largest, candidates.gather(-1, index)


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
    """Return a model with the same weights and packed matrices; the same model where it cannot be packed.

    The packed matrices are copies of the weights as they are now: pack again after changing them.
    """
    if not isinstance(model, nn.Module) or not can_pack(model):
        return model
    shared: dict[int, Any] = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    packed = copy.deepcopy(model, shared)
    for module in list(packed.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, PackedLinear(child))
    return packed


def can_pack(model: nn.Module) -> bool:
    """Return whether this PyTorch has the operations, and all weights are float32 on the CPU."""
    ops = all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    fitting = all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in model.parameters())
    return ops and fitting and torch.backends.mkldnn.is_available()
