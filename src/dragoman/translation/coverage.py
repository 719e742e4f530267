"""Apply the coverage penalty: a translation that leaves out part of its source loses against one that does not.

Shapes: T target tokens, S source tokens.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from dragoman.alignment.heads import AlignmentHead, alignment_weights
from dragoman.data.batches import Ids
from dragoman.decoding.forced import leave_room_for_eos
from dragoman.decoding.search import Hypothesis
from dragoman.model import Model

MIN_ATTENTION = 1e-9  # on a source token, so that one that is not attended to at all costs much, but not infinitely


def rerank_by_coverage(
    model: Model, sources: Sequence[Ids], hypotheses: Sequence[Sequence[Hypothesis]], beta: float, head: AlignmentHead
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each source with `coverage_penalty` added to their scores, best first.

    sources: token ids with their tags; beta: the weight of the penalty; head: whose attention counts.
    """
    flat = [(source, hypothesis) for source, ranked in zip(sources, hypotheses, strict=True) for hypothesis in ranked]
    outputs = leave_room_for_eos(model, [hypothesis.tokens for _, hypothesis in flat])
    maps = iter(alignment_weights(model, [source for source, _ in flat], outputs, head))
    scored = [
        [
            replace(hypothesis, score=hypothesis.score + coverage_penalty(next(maps), beta, hypothesis.finished))
            for hypothesis in ranked
        ]
        for ranked in hypotheses
    ]
    return [sorted(ranked, key=lambda hypothesis: -hypothesis.score) for ranked in scored]


def coverage_penalty(weights: torch.Tensor, beta: float, finished: bool = True) -> float:
    """Return what is added to a score: beta * sum over source tokens of log(min(1, their attention)), 0 or less.

    That is Wu et al. 2016, equation 14; the attention of a source token is its sum over target tokens. weights: (T+1,
    S+1), EOS last on both sides. The EOS of the source does not count as a source token; that of the target attends
    like the others, where the hypothesis is finished.
    """
    attention_sums = weights[: None if finished else -1, :-1].double().sum(0)
    return beta * float(attention_sums.clamp(MIN_ATTENTION, 1.0).log().sum())
