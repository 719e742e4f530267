"""Linear maps, and attention, for searches alone: each multiplies copies of its weights in one type and order.

A translation must not depend on its batch. In float32, the batch changes only the last digits of a sum, which hardly
ever matter. In bfloat16 and int8, where sums are rounded to few bits, they would: one in some hundred sentences would
change. So on a CPU, products and attention in these types are the same to the last bit whatever the other rows are.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.model.attention import explicit_attention
from dragoman.runtime.device import has_narrow_products, instructions

PACKED_ROWS = 32  # oneDNN's layout is chosen for so many rows; it serves any number
SMALL, FEW_ROWS = 2**19, 8  # numbers of a matrix, and rows, for which calling oneDNN takes longer than a plain product
TINY = 2**16  # numbers of a matrix, the same where plain products have narrower instructions
BLOCK_OUTPUTS = 32  # of a block of `PackedLinear`
INPUTS = 32  # PyTorch multiplies weights in int8 by so many inputs at a time, and reads past the end of a shorter row
FEWEST_QUERIES, FEWEST_KEYS = 4, 16  # for `steady_attention`
SCORES = 2**22  # at a time, in memory


class PackedLinear(nn.Module):
    """An nn.Linear with copies of its matrix: in oneDNN's own order, for one row, and for few. For inference alone.

    activation: what follows it, "relu" or "none", in the same pass.
    """

    def __init__(self, linear: nn.Linear, activation: str = "none"):
        super().__init__()
        self.activation, weight = activation, linear.weight.detach()
        self.bias = None if linear.bias is None else linear.bias.detach()
        self.few, has = plain_rows(weight.numel()), instructions()
        with torch.no_grad():
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_ROWS)
            self.plain: Tensor | None = None  # inputs, outputs
            if self.few:
                # One row is bound by memory, and mostly reads the matrix fastest along its longer side.
                along_outputs = linear.out_features > linear.in_features or has_narrow_products()
                self.plain = weight.T.contiguous() if along_outputs else weight.clone().T
            self.blocks: Tensor | None = None  # n, inputs, BLOCK_OUTPUTS
            # Threads share the blocks, each of which is one piece of memory. They pay with AVX2 alone.
            few_rows, whole = self.few == FEW_ROWS, linear.out_features % BLOCK_OUTPUTS == 0
            if few_rows and whole and has.get("avx2") and not has.get("avx512_f"):
                self.blocks = weight.unflatten(0, (-1, BLOCK_OUTPUTS)).transpose(1, 2).contiguous()

    def forward(self, x: Tensor) -> Tensor:
        """Return x (..., inputs) times the matrix plus the bias: (..., outputs)."""
        if self.plain is not None and x.size(0) <= self.few and x.dim() == 2:
            y = self.multiply_few(x, self.plain)
            return y if self.activation == "none" else y.relu_()
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, self.activation, [], "")

    def multiply_few(self, x: Tensor, plain: Tensor) -> Tensor:
        """Return x (rows, inputs) times the matrix `plain` plus the bias: (rows, outputs)."""
        if self.blocks is None or x.size(0) == 1:
            return torch.mm(x, plain) if self.bias is None else torch.addmm(self.bias, x, plain)
        y = torch.bmm(x.expand(len(self.blocks), -1, -1), self.blocks).transpose(0, 1).flatten(1)
        return y if self.bias is None else y.add_(self.bias)


class BFloat16Linear(nn.Module):
    """An nn.Linear that multiplies in bfloat16; what goes in and comes out is float32. For inference alone.

    activation: what follows it, "relu" or "none", in the same pass. After "relu" the output stays in bfloat16, in which
    the next matrix needs it.
    """

    def __init__(self, linear: nn.Linear, activation: str = "none"):
        super().__init__()
        self.activation = activation
        self.bias = None if linear.bias is None else linear.bias.detach().bfloat16()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().bfloat16(), PACKED_ROWS)

    def forward(self, x: Tensor) -> Tensor:
        """Return x (..., inputs) times the matrix plus the bias: (..., outputs)."""
        y = torch.ops.mkldnn._linear_pointwise(x.bfloat16(), self.packed, self.bias, self.activation, [], "")
        return y.float() if self.activation == "none" else y


class GPUBFloat16Linear(nn.Module):
    """An nn.Linear on a GPU that multiplies in bfloat16; what goes in and comes out is float32. For inference alone."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.weight = linear.weight.detach().bfloat16()
        self.bias = None if linear.bias is None else linear.bias.detach().bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        """Return x (..., inputs) times the matrix plus the bias: (..., outputs)."""
        return F.linear(x.bfloat16(), self.weight, self.bias).float()


class Int8Linear(nn.Module):
    """An nn.Linear that multiplies in int8; what goes in and comes out is float32. For inference alone.

    Each row of the matrix, and each row of the input, has the scale that takes its largest number to 127. A sum of
    products of whole numbers has no rounding, so it does not matter in which order it is computed.
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        weight = linear.weight.detach()
        self.scale = (weight.abs().amax(1) / 127).clamp(min=torch.finfo(weight.dtype).tiny)
        self.quantised = (weight / self.scale[:, None]).round().to(torch.int8).T
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """Return x (..., inputs) times the matrix plus the bias: (..., outputs)."""
        rows = x.flatten(0, -2)
        scale = rows.abs().amax(-1, keepdim=True) / 127
        # A row of zeros becomes 0/0, which is some whole number, and zeros again when it is scaled.
        products = torch._int_mm((rows / scale).round_().to(torch.int8), self.quantised)
        y = products.float().mul_(self.scale)  # in place: new memory costs more than the arithmetic
        y = y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale, out=y)
        return y.view(*x.shape[:-1], -1)


class Int8WeightLinear(nn.Module):
    """An nn.Linear with weights in int8 that multiplies in bfloat16; what goes in and comes out is float32.

    For processors that cannot add products of int8, and for inference alone. A few rows take less time than in float32,
    because a quarter of the memory is read; many rows take more. Each row of the matrix has a scale as in `Int8Linear`.
    A sum is float32, and its order does not depend on the rows beside it.
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        weight = F.pad(linear.weight.detach(), (0, -linear.in_features % INPUTS))
        self.padding = weight.size(1) - linear.in_features
        self.scale = (weight.abs().amax(1) / 127).clamp(min=torch.finfo(weight.dtype).tiny).bfloat16()
        self.quantised = (weight / self.scale.float()[:, None]).round().clamp(-127, 127).to(torch.int8)
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """Return x (..., inputs) times the matrix plus the bias: (..., outputs)."""
        rows = (F.pad(x, (0, self.padding)) if self.padding else x).bfloat16()
        y = torch._weight_int8pack_mm(rows.flatten(0, -2), self.quantised, self.scale)
        y = y.float() if self.bias is None else y + self.bias  # float32, as the bias is
        return y if x.dim() == 2 else y.view(*x.shape[:-1], -1)


def steady_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """Compute what `explicit_attention` does, the same to the last bit whatever padding and rows there are.

    That takes at least FEWEST_KEYS keys, padding included. With fewer keys or queries, matmuls have other kernels,
    which sum in an order that depends on the number of keys.
    """
    rows, heads, queries = query.shape[:3]
    together = max(SCORES // (heads * queries * key.size(2)), 1)
    if rows > together:
        of_rows = mask is not None and mask.dim() == 4 and len(mask) == rows
        masks = mask.split(together) if mask is not None and of_rows else [mask] * rows
        parts = zip(query.split(together), key.split(together), value.split(together), masks, strict=False)
        return torch.cat([steady_attention(*part) for part in parts])
    if queries < FEWEST_QUERIES:
        query = torch.cat([query] * -(-FEWEST_QUERIES // queries), 2)
    return explicit_attention(query, key, value, mask, dropout)[:, :, :queries]


def merge(*linears: nn.Linear) -> nn.Linear:
    """Return one linear map whose outputs are those of several, one after the other."""
    weight, bias = torch.cat([linear.weight.detach() for linear in linears]), linears[0].bias is not None
    # Without memory, no random numbers are drawn; nn.utils.skip_init would import sympy, for half a second.
    merged = nn.Linear(weight.size(1), len(weight), bias, device="meta")
    merged.weight = nn.Parameter(weight, requires_grad=False)
    if bias:
        merged.bias = nn.Parameter(torch.cat([linear.bias.detach() for linear in linears]), requires_grad=False)
    return merged


def plain_rows(numbers: int) -> int:
    """Return for how many rows a plain product with a matrix of so many numbers takes less time than oneDNN's."""
    if has_narrow_products():
        return FEW_ROWS if numbers <= TINY else int(numbers <= SMALL)
    return FEW_ROWS if numbers <= SMALL else 1
