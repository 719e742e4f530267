"""Watch attention weights without touching the model: a copy that shares its weights records what its layers do.

Shapes: B sentences, H heads, T queries, S keys, N real target tokens of a batch, M d_model.
"""

import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from dragoman.model import Model
from dragoman.model.attention import Kernel, MultiHeadAttention
from dragoman.model.recurrent import GlobalAttention, Recurrent

AttentionKind = Literal["encoder", "decoder", "cross"]  # self-attention of the encoder, of the decoder, cross-attention
AttentionLayer = MultiHeadAttention | GlobalAttention


def attention_layers(model: Model) -> dict[AttentionKind, list[AttentionLayer]]:
    """Return the attention layers of each kind, from the first to the last. A recurrent model has no self-attention."""
    if isinstance(model, Recurrent):
        return {"encoder": [], "decoder": [], "cross": [model.attention] if model.attention is not None else []}
    return {
        "encoder": [layer.attention for layer in model.encoder],  # type: ignore[misc]
        "decoder": [layer.attention for layer in model.decoder],  # type: ignore[misc]
        "cross": [layer.cross_attention for layer in model.decoder],  # type: ignore[misc]
    }


def attention_weights(kernel: Kernel, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Return the attention weights (B, H, T, S) of a kernel for query (B, H, T, K) and key (B, H, S, K).

    A kernel is linear in its values: with the identity matrix for values, it returns its weights. Of `value` only dtype
    and device matter. There is no dropout.
    """
    identity = torch.eye(key.size(-2), dtype=value.dtype, device=value.device)
    return kernel(query, key, identity.expand(*key.shape[:-2], -1, -1), mask, 0.0)


def share_weights(model: Model) -> Model:
    """Return a copy of a model that uses the same weights in memory.

    Changes of the copy's kernels leave the model as it is; changes of weights are seen by both. Only the modules are
    copied, which takes a millisecond: every sentence with something to put back asks for one.
    """
    copies = {module: copy.copy(module) for module in model.modules()}
    for module in copies.values():
        module._modules = {name: child and copies[child] for name, child in module._modules.items()}
    return copies[model]  # type: ignore[return-value]


class AttentionCapture:
    """Record the attention weights of `model`, a copy that shares the weights of the given one.

    `weights[kind][layer]`, (B, H, T, S), are the weights of the latest call of that layer, whoever runs the copy. Only
    `kinds` are recorded, because recording costs as much as attention itself. Outputs, gradients and random numbers are
    those of the model without recording.
    """

    def __init__(self, model: Model, kinds: Sequence[AttentionKind] = ("encoder", "decoder", "cross")):
        self.model = share_weights(model)
        self.weights: dict[AttentionKind, list[Tensor]] = {}
        layers_of = attention_layers(self.model)
        for kind in kinds:
            layers = layers_of[kind]
            self.weights[kind] = [torch.empty(0) for _ in layers]
            for index, layer in enumerate(layers):
                layer.kernel = self._recorded_kernel(layer.kernel, kind, index)

    def run(self, source: Tensor, target: Tensor, real: Tensor | None = None) -> Tensor:
        """Run the copy once over whole targets.

        Return its last vectors (N, M), which its `output` turns into logits. The weights are then in `weights`. source
        (B, S); target (B, T), which begins with BOS; real (B, T), bool: which target tokens are not padding, None for
        all. Gradients are computed unless the caller turns them off.
        """
        state: Any = self.model.start(source)
        return self.model.vectors(target, state, real)

    def _recorded_kernel(self, kernel: Kernel, kind: AttentionKind, index: int) -> Kernel:
        """Return a kernel that does what `kernel` does, and stores its weights in `weights[kind][index]`."""

        weights = self.weights[kind]  # not `self`, which has the model: a cycle would keep both

        def record(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
            with torch.no_grad():
                weights[index] = attention_weights(kernel, query, key, value, mask)
            return kernel(query, key, value, mask, dropout)

        return record
