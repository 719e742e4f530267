"""Leaving the padding out of the work.

A batch is a rectangle, sentences are not: the shorter ones are filled up with padding. Everything in a
Transformer except attention treats tokens one by one, so the layers work on the packed form, the real tokens in one row
after another, and only attention sees the rectangle.

Shapes: B sentences, T places each, N real tokens among the B * T places.
"""

from typing import Any

import torch
from torch import Tensor


class Packing:
    """Moves tensors between the padded form (B, T, ...) and the packed form (N, ...)."""

    def __init__(self, real: Tensor):
        """`real` (B, T), bool: which places hold a token."""
        self.real = real
        self.places = None if bool(real.all()) else real.flatten().nonzero().squeeze(1)

    @classmethod
    def full(cls, tokens: Tensor) -> "Packing":
        """Every place of `tokens` (B, T) counts; packing is then a change of view."""
        packing = cls.__new__(cls)
        packing.real, packing.places = torch.ones_like(tokens, dtype=torch.bool), None
        return packing

    def pack(self, x: Tensor) -> Tensor:
        """(B, T, ...) -> (N, ...)."""
        x = x.flatten(0, 1)
        return x if self.places is None else _Pick.apply(x, self.places)

    def unpack(self, x: Tensor) -> Tensor:
        """(N, ...) -> (B, T, ...), zeros in the padding."""
        if self.places is not None:
            x = _Place.apply(x, self.places, self.real.numel())
        return x.unflatten(0, self.real.shape)

    @property
    def mask(self) -> Tensor | None:
        """(B, 1, 1, T), True where attention may look; None where it may look everywhere."""
        return None if self.places is None else self.real[:, None, None, :]

    def select(self, rows: Tensor) -> "Packing":
        return Packing(self.real[rows])


# The two moves are each other's derivative. Written out, both directions are plain copies; autograd's own derivative of
# indexing has to assume repeated indices and adds row by row, several times slower.


class _Pick(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.rows = x.size(0)
        return x.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        return _Place.apply(grad, places, ctx.rows), None


class _Place(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor, rows: int) -> Tensor:
        ctx.save_for_backward(places)
        return x.new_zeros(rows, *x.shape[1:]).index_copy_(0, places, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return _Pick.apply(grad, places), None, None
