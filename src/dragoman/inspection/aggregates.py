"""Many maps as one.

Shapes: L layers, H heads, T target tokens, S source tokens.
"""

import torch
from torch import Tensor


def mean(weights: Tensor) -> Tensor:
    """(L, H, T, S) -> (T, S): of all heads of all layers. Rows still sum to 1."""
    return weights.mean((0, 1))


def largest(weights: Tensor) -> Tensor:
    """(L, H, T, S) -> (T, S): what any head of any layer gave. Rows sum to 1 or more."""
    return weights.amax((0, 1))


def rollout(weights: Tensor) -> Tensor:
    """Self-attention (L, H, S, S) -> (S, S): how much of each input token is in each output (Abnar and Zuidema 2020).

    A layer passes on half of what it gets, its residual connection, and mixes the other half as its heads do on
    average: the product of (I + A) / 2 over layers. Rows still sum to 1.
    """
    size = weights.size(-1)
    found = torch.eye(size, dtype=weights.dtype)
    for layer in weights:
        found = (found + layer.mean(0) @ found) / 2
    return found


def cross_rollout(encoder: Tensor, decoder: Tensor, cross: Tensor) -> Tensor:
    """Encoder (K, H, S, S), decoder (L, H, T, T), cross (L, H, T, S) -> (T, S): how much of each source token is in
    what each target token was predicted from.

    As in `rollout`, each of a decoder layer's two attentions adds one half to the half that it passes on; what
    cross-attention adds is the rollout of the encoder. After L layers, 1 - 2^-L of each row is the source's and the
    rest the target's; the source's part is taken for the whole, so rows sum to 1.
    """
    memory = rollout(encoder)
    found = torch.zeros_like(cross[0, 0])
    for around, across in zip(decoder.mean(1), cross.mean(1), strict=True):
        found = (found + around @ found) / 2
        found = (found + across @ memory) / 2
    return found / (1 - 2.0 ** -len(cross))
