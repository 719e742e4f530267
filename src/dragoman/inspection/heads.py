"""Describe attention heads in numbers.

For a head, the query at position i gives the key at position j the weight a_ij; the weights of a query sum to 1. A key
that a query may not see (later tokens in the decoder) counts as absent. Every statistic is a mean over queries: of one
sentence, or of all sentences of a sample. Positions are those of tokens, not of words.

Shapes: L layers, H heads, T queries, S keys.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.data.batches import Batch
from dragoman.inspection.inspection import KINDS, Inspection
from dragoman.model import Model
from dragoman.model.capture import AttentionCapture, AttentionKind

MOST_OF_IT = 0.5  # a head has a pattern where more than this share of its weight goes there


@dataclass(frozen=True)
class HeadStatistics:
    """The statistics of one head; None for a statistic that no query has."""

    kind: AttentionKind
    layer: int  # from 1
    head: int  # from 1
    queries: int  # how many the statistics are the mean of
    sentences: int  # how many they are from
    entropy: float  # -sum_j a_ij ln a_ij, in nats; 0 for a query that sees one key only
    # The same divided by ln n, where n is the number of keys that the query sees, over queries with n > 1: 0 to 1.
    normalised_entropy: float | None
    distance: float  # sum_j a_ij |i - j|, in tokens; in cross-attention |i/T - j/S|, in sentence lengths
    offset: float  # sum_j a_ij (j - i), or (j/S - i/T): above 0, the head looks at later positions
    max_weight: float  # max_j a_ij
    previous: float | None  # weight of the position before, j = i - 1; of queries that have one
    same: float | None  # of the same position, j = i
    next: float | None  # of the position after, j = i + 1
    special: float  # of BOS, EOS and tags
    punctuation: float  # of tokens of nothing but punctuation, signs and space
    diversity: float | None  # half of sum_j |a_ij - b_ij|, mean over the layer's other heads b: 0 to 1; None: one head

    @property
    def pattern(self) -> str:
        """Where most of the weight goes: 'previous', 'same', 'next', 'special' or 'punctuation'; '' for none of these.

        In cross-attention only the last two count: the same position in two languages means little.
        """
        nearby = {} if self.kind == "cross" else {"previous": self.previous, "same": self.same, "next": self.next}
        shares = {**nearby, "special": self.special, "punctuation": self.punctuation}
        largest = max(shares, key=lambda name: shares[name] or 0.0)
        return largest if (shares[largest] or 0.0) > MOST_OF_IT else ""


def head_statistics(inspections: Iterable[Inspection]) -> list[HeadStatistics]:
    """Return the statistics of every head, by kind, layer and head: means over all queries of all inspected sentences.

    The inspections are used one after the other, so a generator needs memory for one of them alone.
    """
    queries: dict[AttentionKind, list[dict[str, Tensor]]] = {kind: [] for kind in KINDS}
    for inspection in inspections:
        for kind in KINDS:
            if len(inspection.maps(kind)):
                queries[kind].append(query_statistics(inspection, kind))
    return [head for kind, sentences in queries.items() if sentences for head in average_statistics(kind, sentences)]


def average_statistics(kind: AttentionKind, sentences: list[dict[str, Tensor]]) -> list[HeadStatistics]:
    """Return the statistics of each head: means over all queries of what `query_statistics` returns, without NaN."""
    values = {name: torch.cat([statistics[name] for statistics in sentences], -1) for name in sentences[0]}
    layers, heads, queries = values["entropy"].shape
    means = {name: value.nanmean(-1) for name, value in values.items()}
    return [
        HeadStatistics(
            kind,
            layer + 1,
            head + 1,
            queries,
            len(sentences),
            **{name: none_for_nan(mean[layer, head]) for name, mean in means.items()},  # type: ignore[arg-type]
        )
        for layer in range(layers)
        for head in range(heads)
    ]


def none_for_nan(value: Tensor) -> float | None:
    """Return the number, or None for NaN."""
    return None if math.isnan(value) else float(value)


def query_statistics(inspection: Inspection, kind: AttentionKind) -> dict[str, Tensor]:
    """Return (L, H, T) for each field of `HeadStatistics` that is a mean: a value for each query, NaN for none."""
    weights, (_, keys) = inspection.maps(kind).double(), inspection.queries_and_keys(kind)
    queries, columns = weights.shape[-2:]
    visible = torch.ones(queries, columns, dtype=torch.bool)
    if kind == "decoder":
        visible = visible.tril()
    i, j = torch.arange(queries).double()[:, None], torch.arange(columns).double()
    offset = j / columns - i / queries if kind == "cross" else j - i
    entropy = torch.special.entr(weights).sum(-1)
    choices = visible.sum(-1)
    return {
        "entropy": entropy,
        "normalised_entropy": torch.where(choices > 1, entropy / choices.log(), math.nan),
        "distance": (weights * offset.abs()).sum(-1),
        "offset": (weights * offset).sum(-1),
        "max_weight": weights.amax(-1),
        "previous": weight_at_offset(weights, visible, -1),
        "same": weight_at_offset(weights, visible, 0),
        "next": weight_at_offset(weights, visible, 1),
        "special": weights[..., sorted(keys.positions_of(["special"]))].sum(-1),
        "punctuation": weights[..., sorted(keys.positions_of(["punctuation"]))].sum(-1),
        "diversity": diversity(weights),
    }


def weight_at_offset(weights: Tensor, visible: Tensor, offset: int) -> Tensor:
    """Return the weights (L, H, T) of keys i + offset for queries i, NaN where not `visible` (T, S)."""
    result = weights.new_full(weights.shape[:-1], math.nan)
    diagonal, allowed = weights.diagonal(offset, -2, -1), visible.diagonal(offset)
    start = max(0, -offset)
    result[..., start : start + diagonal.size(-1)] = torch.where(allowed, diagonal, math.nan)
    return result


def diversity(weights: Tensor) -> Tensor:
    """Return (L, H, T): the mean total variation distance of each head's weights to those of its layer's others.

    weights (L, H, T, S). NaN where a layer has one head.
    """
    heads = weights.size(1)
    if heads == 1:
        return weights.new_full(weights.shape[:-1], math.nan)
    distances = [(weights - weights[:, [head]]).abs().sum((1, -1)) / 2 for head in range(heads)]  # L T
    return torch.stack(distances, 1) / (heads - 1)


@torch.no_grad()
def normalised_entropies(model: Model, batches: Sequence[Batch]) -> dict[AttentionKind, list[list[float]]]:
    """Return the normalised entropy of each head, by kind and layer: the mean over all real tokens of the batches.

    It is `HeadStatistics.normalised_entropy`, computed in batches: 0, if a token attends to one of the tokens that it
    sees, to 1, if to all of them alike. Leaves the model in eval mode.
    """
    capture = AttentionCapture(model.eval())
    sums = {kind: [torch.zeros(()) for _ in layers] for kind, layers in capture.weights.items()}
    counts = dict.fromkeys(sums, 0)
    for batch in batches:
        capture.run(batch.source, batch.target, batch.real)
        source = batch.source.ne(model.pad)
        for kind, layers in capture.weights.items():
            queries = source if kind == "encoder" else batch.real
            keys = source.sum(1, keepdim=True).expand_as(queries)
            if kind == "decoder":
                keys = torch.arange(1, queries.size(1) + 1).expand_as(queries)
            queries = queries & (keys > 1)
            counts[kind] += int(queries.sum())
            for index, weights in enumerate(layers):
                entropy = torch.special.entr(weights.double()).sum(-1) / keys.log().clamp(min=1e-9)[:, None]  # B H T
                sums[kind][index] = sums[kind][index] + (entropy * queries[:, None]).sum((0, 2))
    return {kind: [(total / max(counts[kind], 1)).tolist() for total in layers] for kind, layers in sums.items()}
