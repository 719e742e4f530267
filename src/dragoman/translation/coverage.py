"""The coverage penalty: a translation that left out part of its source loses against one that did not.

Shapes: T target tokens, S source tokens.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from dragoman.alignment import Alignment, attention
from dragoman.data.batches import Ids
from dragoman.decoding.forced import max_positions
from dragoman.decoding.search import Hypothesis
from dragoman.model import Model

LEAST = 1e-9  # of the attention on a source token, so that one that nothing looked at costs much and not everything


def rerank_by_coverage(
    model: Model, sources: Sequence[Ids], found: Sequence[Sequence[Hypothesis]], beta: float, which: Alignment
) -> list[list[Hypothesis]]:
    """The hypotheses of each source by their score plus the coverage penalty, which then is part of it, best first."""
    flat = [(source, hypothesis) for source, some in zip(sources, found, strict=True) for hypothesis in some]
    most = max_positions(model) - 1  # a search may end at the last place that the model has, and no end fits behind it
    maps = iter(attention(model, [source for source, _ in flat], [h.tokens[:most] for _, h in flat], which))
    scored = [
        [replace(h, score=h.score + coverage_penalty(next(maps), beta, h.finished)) for h in some] for some in found
    ]
    return [sorted(some, key=lambda h: -h.score) for some in scored]


def coverage_penalty(weights: torch.Tensor, beta: float, finished: bool = True) -> float:
    """beta * sum over source tokens of log(min(1, sum over target tokens of attention)) (Wu et al. 2016, equation 14).

    weights (T+1, S+1), the ends last; the end of the source is none of its tokens, the end of the target looks at them
    where there is one.
    """
    seen = weights[: None if finished else -1, :-1].double().sum(0)
    return beta * float(seen.clamp(LEAST, 1.0).log().sum())
