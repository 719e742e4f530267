"""What heads do, in numbers.

For a head, the query at place i gives the key at place j the weight a_ij; the weights of a query sum to 1. A key that a
query may not see (later tokens in the decoder) counts as absent. Every statistic is a mean over queries: of one
sentence, or of all sentences of a sample. Places are those of tokens, not of words.

Shapes: L layers, H heads, T queries, S keys.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.inspection.inspection import KINDS, Inspection, Kind

HABIT = 0.5  # a head has one where more than this share of its weight goes there


@dataclass(frozen=True)
class HeadStatistics:
    """Of one head. A statistic that no query has is None."""

    kind: Kind
    layer: int  # from 1
    head: int  # from 1
    queries: int  # of so many it is the mean
    sentences: int  # in so many sentences
    entropy: float  # -sum_j a_ij ln a_ij, in nats; 0 for a query that sees one key only
    spread: float | None  # the same divided by ln n, n the keys that the query sees: 0 to 1; of queries with n > 1
    distance: float  # sum_j a_ij |i - j|, in tokens; in cross-attention |i/T - j/S|, in sentence lengths
    shift: float  # sum_j a_ij (j - i), or (j/S - i/T): above 0, the head looks at later places
    peak: float  # max_j a_ij
    previous: float | None  # weight of the place before, j = i - 1; of queries that have one
    same: float | None  # of the same place, j = i
    next: float | None  # of the place after, j = i + 1
    ends: float  # of start, end and tags
    punctuation: float  # of tokens of nothing but punctuation, signs and space
    diversity: float | None  # half of sum_j |a_ij - b_ij|, mean over the layer's other heads b: 0 to 1; None: one head

    @property
    def habit(self) -> str:
        """Where more than half of the weight goes: 'previous', 'same', 'next', 'ends', 'punctuation'; '' for none.

        In cross-attention only the last two: there the same number of a place in two languages means little.
        """
        beside = {} if self.kind == "cross" else {"previous": self.previous, "same": self.same, "next": self.next}
        shares = {**beside, "ends": self.ends, "punctuation": self.punctuation}
        most = max(shares, key=lambda name: shares[name] or 0.0)
        return most if (shares[most] or 0.0) > HABIT else ""


def head_statistics(inspections: Iterable[Inspection]) -> list[HeadStatistics]:
    """Of every head of every kind, over all queries of all sentences: `[inspection]` for one sentence.

    The sentences are taken one after the other, so a generator needs no memory for all of them.
    """
    found: dict[Kind, list[dict[str, Tensor]]] = {kind: [] for kind in KINDS}
    for inspection in inspections:
        for kind in KINDS:
            if len(inspection.maps(kind)):
                found[kind].append(of_queries(inspection, kind))
    return [one for kind, sentences in found.items() if sentences for one in pooled(kind, sentences)]


def pooled(kind: Kind, sentences: list[dict[str, Tensor]]) -> list[HeadStatistics]:
    """The means of each statistic's (L, H, T) of all sentences, without what is not a number."""
    together = {name: torch.cat([values[name] for values in sentences], -1) for name in sentences[0]}
    layers, heads, queries = together["entropy"].shape
    means = {name: values.nanmean(-1) for name, values in together.items()}
    return [
        HeadStatistics(
            kind,
            layer + 1,
            head + 1,
            queries,
            len(sentences),
            **{name: number(values[layer, head]) for name, values in means.items()},  # type: ignore[arg-type]
        )
        for layer in range(layers)
        for head in range(heads)
    ]


def number(value: Tensor) -> float | None:
    return None if math.isnan(value) else float(value)


def of_queries(inspection: Inspection, kind: Kind) -> dict[str, Tensor]:
    """Each statistic of each query, (L, H, T); not a number where a query has none."""
    weights, keys = inspection.maps(kind).double(), inspection.sides(kind)[1]
    queries, columns = weights.shape[-2:]
    seen = torch.ones(queries, columns, dtype=torch.bool)
    if kind == "decoder":
        seen = seen.tril()
    i, j = torch.arange(queries).double()[:, None], torch.arange(columns).double()
    way = j / columns - i / queries if kind == "cross" else j - i
    entropy = torch.special.entr(weights).sum(-1)
    choices = seen.sum(-1)
    return {
        "entropy": entropy,
        "spread": torch.where(choices > 1, entropy / choices.log(), math.nan),
        "distance": (weights * way.abs()).sum(-1),
        "shift": (weights * way).sum(-1),
        "peak": weights.amax(-1),
        "previous": beside(weights, seen, -1),
        "same": beside(weights, seen, 0),
        "next": beside(weights, seen, 1),
        "ends": weights[..., sorted(keys.hidden(["ends"]))].sum(-1),
        "punctuation": weights[..., sorted(keys.hidden(["punctuation"]))].sum(-1),
        "diversity": diversity(weights),
    }


def beside(weights: Tensor, seen: Tensor, offset: int) -> Tensor:
    """(L, H, T): the weight that query i gives to key i + offset; not a number where it may not look there."""
    found = weights.new_full(weights.shape[:-1], math.nan)
    line, visible = weights.diagonal(offset, -2, -1), seen.diagonal(offset)
    start = max(0, -offset)
    found[..., start : start + line.size(-1)] = torch.where(visible, line, math.nan)
    return found


def diversity(weights: Tensor) -> Tensor:
    """(L, H, T): how far a head's weights are from those of the other heads of its layer, in total variation."""
    heads = weights.size(1)
    if heads == 1:
        return weights.new_full(weights.shape[:-1], math.nan)
    apart = [(weights - weights[:, [head]]).abs().sum((1, -1)) / 2 for head in range(heads)]  # L T
    return torch.stack(apart, 1) / (heads - 1)
