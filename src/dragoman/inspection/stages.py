"""Take one attention head apart into the five stages of equation 1: product, scale, mask, softmax, weighted sum.

Shapes: T queries, S keys, V = d_v. There are no words here, only tokens: a product of merged tokens would mean nothing.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dragoman.alignment.words import token_label
from dragoman.data.tokenizer import BOS, EOS
from dragoman.errors import UsageError
from dragoman.inspection.inspection import KINDS, Inspection
from dragoman.model import Model
from dragoman.model.attention import Additive, Kernel, MultiHeadAttention, masked_softmax, unscaled_attention
from dragoman.model.capture import AttentionKind, attention_layers, share_weights
from dragoman.translation.translator import Translator


@dataclass(frozen=True)
class Stages:
    """Record what one head computed for a sentence, float32 and on the CPU."""

    which: str  # kind, layer and head, for a caption
    rows: list[str]  # the labels of T queries
    columns: list[str]  # the labels of S keys
    product: Tensor  # (T, S): Q K^T
    divisor: float  # the square root of d_k, or 1 for a model that does not scale
    scaled: Tensor  # (T, S): the product divided by that
    masked: Tensor  # (T, S): with -inf where no attention is allowed; with relative positions, their scores are added
    weights: Tensor  # (T, S): the softmax of each row
    output: Tensor  # (T, V): the weighted sums of the values


def head_stages(
    translator: Translator, inspection: Inspection, kind: AttentionKind, layer: int | None = None, head: int = 1
) -> Stages:
    """Return the stages of one head, computed from the queries, keys and values that the model itself gave it.

    translator: the one that was inspected; layer and head count from 1, None for the last layer. Raise UsageError for
    those that the model does not have, and for attention that is no product of queries and keys.
    """
    layer = len(inspection.maps(kind)) or None if layer is None else layer
    inspection.select(kind, layer, head, "mean")
    assert layer  # a model without attention was refused
    if not has_stages(translator.model):
        raise UsageError("the stages are those of a product of queries and keys, which this model does not compute")
    return layer_stages(translator, inspection, kind, [layer])[0][head - 1]


def has_stages(model: Model) -> bool:
    """Return whether the attention of a model is a product of queries and keys."""
    layers = [layer for of_kind in attention_layers(model).values() for layer in of_kind]
    return bool(layers) and all(
        isinstance(layer, MultiHeadAttention) and not isinstance(getattr(layer, "score", None), Additive)
        for layer in layers
    )


@torch.no_grad()
def layer_stages(
    translator: Translator, inspection: Inspection, kind: AttentionKind, layers: Iterable[int]
) -> list[list[Stages]]:
    """Return the stages of all heads of each of these layers, which count from 1, from one run of the model.

    translator: the one that was inspected, whose model `has_stages`.
    """
    copy, device = share_weights(translator.model), next(translator.model.parameters()).device
    chosen = {layer: attention_layers(copy)[kind][layer - 1] for layer in layers}
    kernels = {layer: attention.kernel for layer, attention in chosen.items()}
    given: dict[int, tuple[Tensor, Tensor, Tensor, Tensor | None]] = {}

    def recorded(layer: int) -> Kernel:
        def record(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
            given[layer] = query, key, value, mask
            return kernels[layer](query, key, value, mask, dropout)

        return record

    for layer, attention in chosen.items():
        attention.kernel = recorded(layer)
    tag, target = inspection.target_tag, inspection.target.ids
    source, read = [*inspection.source.ids, EOS], [BOS, *tag, *target]
    state: Any = copy.start(torch.tensor([source], device=device))
    copy.vectors(torch.tensor([read], device=device), state)
    queries, keys = inspection.queries_and_keys(kind)
    rows, columns = ([token.label for token in side.tokens] for side in (queries, keys))
    start = 0 if kind == "encoder" else len(tag)  # what is predicted before the target is not shown
    if kind == "decoder":
        columns[1:1] = [token_label(translator.tokenizers.target, number) for number in tag]

    def stages(layer: int, head: int) -> Stages:
        query, key, value, mask = given[layer]
        q, k, v = (heads[0, head - 1].float().cpu() for heads in (query, key, value))
        divisor = 1.0 if kernels[layer] is unscaled_attention else math.sqrt(q.size(-1))
        product = q @ k.T
        scaled = product / divisor
        masked, head_mask = scaled, None
        if mask is not None:
            head_mask = mask.expand(*query.shape[:-1], key.size(-2))[0, head - 1].cpu()
            masked = scaled.masked_fill(~head_mask, -math.inf) if head_mask.dtype == torch.bool else scaled + head_mask
        weights = masked_softmax(scaled, head_mask)
        which = f"{KINDS[kind]}, {inspection.describe(kind, layer, head, 'mean')}"
        tables = (product[start:], divisor, scaled[start:], masked[start:], weights[start:], (weights @ v)[start:])
        return Stages(which, rows, columns, *tables)

    return [[stages(layer, head) for head in range(1, given[layer][0].size(1) + 1)] for layer in chosen]
