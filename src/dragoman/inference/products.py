"""Choose how a model multiplies in a search: a twin of it holds its matrices in the type and order that are fastest.

A text must not depend on its batch. In float32, a batch changes the last digits of a sum, which hardly ever matter.
Where numbers are rounded to a few bits in between, they do: one in some hundred sentences would become another. So in
bfloat16 and int8, products and attention are the same to the last bit on a CPU whatever is beside a row.
"""

from collections.abc import Callable
from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.config import ComputeType
from dragoman.device import has_narrow_products, instructions
from dragoman.errors import UsageError
from dragoman.model import Model
from dragoman.model.attention import explicit_attention, fused_attention
from dragoman.model.capture import attention_layers, share_weights
from dragoman.model.transformer import FeedForward

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


PRODUCTS: dict[str, Callable[..., nn.Module]] = {
    "float32": PackedLinear,
    "bfloat16": BFloat16Linear,
    "int8": lambda linear: Int8Linear(linear) if adds_int8() else Int8WeightLinear(linear),
}
GPU_PRODUCTS: dict[str, Callable[..., nn.Module]] = {"float32": lambda linear: linear, "bfloat16": GPUBFloat16Linear}
PLAIN_PRODUCTS: dict[str, Callable[..., nn.Module]] = {"float32": lambda linear: linear}  # on a CPU without oneDNN


def plain_rows(numbers: int) -> int:
    """Return for how many rows a plain product with a matrix of so many numbers takes less time than oneDNN's."""
    if has_narrow_products():
        return FEW_ROWS if numbers <= TINY else int(numbers <= SMALL)
    return FEW_ROWS if numbers <= SMALL else 1


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

    With AMX that is bfloat16: its matmuls take less time than rounding to int8 does (docs/notes/speed.md). Raise
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
        fast = [name for name in types if name != "int8" or adds_int8()]
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
