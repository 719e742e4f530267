"""Seeing the weights of attention without the model knowing of it: its kernels are asked a second time.

Shapes: B batch, H heads, T queries, S keys.
"""

import copy

import torch
from torch import Tensor

from dragoman.model import Model
from dragoman.model.attention import Kernel


def attention_weights(kernel: Kernel, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """(B, H, T, S): what the kernel gives to each value.

    A kernel is linear in its values: asked with the identity matrix, it answers with its weights, whatever it is.
    """
    identity = torch.eye(key.size(-2), dtype=value.dtype, device=value.device)
    return kernel(query, key, identity.expand(*key.shape[:-2], -1, -1), mask, 0.0)


def share_weights(model: Model) -> Model:
    """A model with the same weights in memory, whose kernels can be replaced while others use the model itself."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]})
