"""Keep padding out of the computation.

A batch is a rectangle, sentences are not: the shorter ones are filled up with padding. Everything in a
Transformer except attention treats tokens one by one, so the layers work on the packed form, the real tokens in one row
after another, and only attention sees the rectangle.

Shapes: B sentences, T positions each, N real tokens among the B * T positions, R rows of the packed form: N or more.
"""

from typing import Any

import torch
from torch import Tensor

# On CPUs, oneDNN plans a matmul anew for each number of rows, which may take several times as long as the matmul itself
# (docs/notes/speed.md). So the packed form gets rows of zeros where it multiplies, up to a multiple of this.
MULTIPLE = 64


def is_wide() -> bool:
    """Return whether oneDNN multiplies float32 on CPUs now: `dragoman.runtime.device.wide_products` allows it."""
    return bool(torch.backends.mkldnn.matmul.fp32_precision == "bf16")  # type: ignore[attr-defined]


def packed_rows(tokens: int, device: torch.device) -> int:
    """Return R, how many rows the packed form of so many tokens has."""
    planned = device.type == "cpu" and (torch.is_autocast_enabled("cpu") or is_wide())
    return -(-tokens // MULTIPLE) * MULTIPLE if planned else tokens


class Packing:
    """Convert tensors of one batch between the padded form (B, T, ...) and the packed form (R, ...)."""

    def __init__(self, real: Tensor):
        """Take `real` (B, T), bool: which positions hold a token. On a GPU this waits until `real` is computed."""
        self.real = real
        index = real.flatten().nonzero().squeeze(1)
        self.tokens = len(index)
        self.rows = packed_rows(self.tokens, real.device)
        self.index = None if self.tokens == self.rows == real.numel() else index

    @classmethod
    def full(cls, tokens: Tensor) -> "Packing":
        """Return the packing of a batch (B, T) without padding, for which packing is only a change of view.

        Of `tokens` (B, T) only shape and device matter.
        """
        packing = cls.__new__(cls)  # spares `real.all()`, for which each step of a search would wait for the GPU
        packing.real, packing.index = torch.ones_like(tokens, dtype=torch.bool), None
        packing.tokens = packing.rows = tokens.numel()
        return packing

    def pack(self, x: Tensor) -> Tensor:
        """Return the real tokens of x (B, T, ...) as (R, ...): N rows, and zeros behind them."""
        x = x.flatten(0, 1)
        return x if self.index is None else _Pick.apply(x, self.index, self.rows)

    def unpack(self, x: Tensor) -> Tensor:
        """Return x (R, ...) as (B, T, ...), with zeros in the padding."""
        if self.index is not None:
            x = _Place.apply(x, self.index, self.real.numel())
        return x.unflatten(0, self.real.shape)

    @property
    def mask(self) -> Tensor | None:
        """Return (B, 1, 1, T), True where attention may look; None for a batch without padding."""
        return None if self.tokens == self.real.numel() else self.real[:, None, None, :]

    def select(self, rows: Tensor) -> "Packing":
        """Return the packing of the sentences `rows` (n,) of the batch, in that order."""
        return Packing(self.real[rows])


# The two moves are each other's derivative. Written out, both directions are plain copies; autograd's own derivative of
# indexing has to assume repeated indices and adds row by row, several times slower.


class _Pick(torch.autograd.Function):
    """x[index], for an index without repetitions, with rows of zeros behind it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, rows: int) -> Tensor:
        """Return x[index] (N, ...) of x (positions, ...), and zeros up to `rows`."""
        ctx.save_for_backward(index)
        ctx.positions = x.size(0)
        if rows == len(index):
            return x.index_select(0, index)
        picked = x.new_empty(rows, *x.shape[1:])
        picked[len(index) :] = 0
        torch.index_select(x, 0, index, out=picked[: len(index)])
        return picked

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of x: N rows of `grad` (rows, ...) at the index, zeros elsewhere; none for the others."""
        (index,) = ctx.saved_tensors
        return _Place.apply(grad, index, ctx.positions), None, None


class _Place(torch.autograd.Function):
    """Zeros with x at `index`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, positions: int) -> Tensor:
        """Return zeros (positions, ...) with the first N rows of x (rows, ...) at `index` (N,)."""
        ctx.save_for_backward(index)
        ctx.rows = x.size(0)
        return x.new_zeros(positions, *x.shape[1:]).index_copy_(0, index, x[: len(index)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of x: rows of `grad` (positions, ...) at the index, then zeros; none for the others."""
        (index,) = ctx.saved_tensors
        return _Pick.apply(grad, index, ctx.rows), None, None
