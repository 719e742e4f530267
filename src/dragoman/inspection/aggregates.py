"""Combine many attention maps into one.

Shapes: L layers, H heads, T target tokens, S source tokens.
"""

import torch
from torch import Tensor


def mean(weights: Tensor) -> Tensor:
    """Return the mean (T, S) of weights (L, H, T, S) over all layers and heads. Rows still sum to 1."""
    return weights.mean((0, 1))


def largest(weights: Tensor) -> Tensor:
    """Return the largest (T, S) of weights (L, H, T, S) over all layers and heads. Rows sum to 1 or more."""
    return weights.amax((0, 1))


def rollout(weights: Tensor) -> Tensor:
    """Return how much of each input token is in each output, (S, S), from self-attention (L, H, S, S).

    Attention rollout (Abnar and Zuidema 2020): a layer passes on half of what it gets, its residual connection, and
    mixes the other half as its heads do on average: the product of (I + A) / 2 over layers. Rows still sum to 1.
    """
    size = weights.size(-1)
    share = torch.eye(size, dtype=weights.dtype)
    for layer in weights:
        share = (share + layer.mean(0) @ share) / 2
    return share


def cross_rollout(encoder: Tensor, decoder: Tensor, cross: Tensor) -> Tensor:
    """Return how much of each source token is in what each target token was predicted from, (T, S).

    encoder (K, H, S, S), decoder (L, H, T, T), cross (L, H, T, S). As in `rollout`, each of a decoder layer's two
    attentions adds one half to the half that it passes on; what cross-attention adds is the rollout of the encoder.
    After L layers, 1 - 2^-L of each row is the source's and the rest the target's; the source's part is taken for the
    whole, so rows sum to 1.
    """
    memory = rollout(encoder)
    share = torch.zeros_like(cross[0, 0])
    for within, across in zip(decoder.mean(1), cross.mean(1), strict=True):
        share = (share + within @ share) / 2
        share = (share + across @ memory) / 2
    return share / (1 - 2.0 ** -len(cross))
