"""Why scores are divided by sqrt(d_k) (section 3.2.1): variance of scores, saturation of the softmax, its gradient."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from dragoman.inspection.plots.training import COLOURS, style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict

SIZES = (1, 2, 4, 8, 16, 32, 64, 100, 128, 256, 512, 1024)
KEYS = 3  # of each query, as in the notes
AT_ONCE = 2**22  # random numbers

# Three scores of one query, the size d_k that the notes give them for, and where they stand.
TRIPLES = (
    ((8.0, -11.0, 7.0), 100, "note 000"),
    ((9.0, -11.0, 7.0), 100, "note 002"),
    ((1.1, -0.8, -1.7), 2, "notes 000 and 002"),
)


@dataclass(frozen=True)
class Peak:
    """How peaked the softmax of some rows of scores is: means over the rows."""

    largest: float  # weight
    nearly_one: float  # share of the rows whose largest weight is above 0.99
    entropy: float  # nats
    jacobian: float  # Frobenius norm of the derivative of weights by scores

    @classmethod
    def of(cls, scores: Tensor) -> "Peak":
        weights = scores.softmax(-1)
        largest = weights.max(-1).values
        norms = torch.linalg.matrix_norm(jacobian(weights))
        entropy = torch.special.entr(weights).sum(-1)
        return cls(*(float(x.double().mean()) for x in (largest, largest > 0.99, entropy, norms)))


def jacobian(weights: Tensor) -> Tensor:
    """The derivative of a softmax by its input, diag(p) - p p^T: (..., S) -> (..., S, S)."""
    return torch.diag_embed(weights) - weights[..., :, None] * weights[..., None, :]


def random_scores(d_k: int, queries: int, seed: int) -> Tensor:
    """The products (queries, KEYS) of normal random queries and keys: mean 0, variance 1 in each of d_k places."""
    random, found = torch.Generator().manual_seed(seed), []
    rows = max(1, AT_ONCE // (d_k * (KEYS + 1)))
    for start in range(0, queries, rows):
        count = min(rows, queries - start)
        query, key = (torch.randn(count, n, d_k, generator=random) for n in (1, KEYS))
        found.append((query * key).sum(-1))
    return torch.cat(found)


@dataclass(frozen=True)
class Measured:
    variance: float
    peak: Peak


def measure(scores: Sequence[Tensor]) -> Measured:
    """Means over draws, one for each seed."""
    peaks = [Peak.of(draw) for draw in scores]
    return Measured(
        fmean(float(draw.double().var()) for draw in scores),
        Peak(*(fmean(values) for values in zip(*(vars(peak).values() for peak in peaks), strict=True))),
    )


def run(effort: Effort) -> Findings:
    queries = max(100, effort.of(40_000))
    raw: dict[int, Measured] = {}
    scaled: dict[int, Measured] = {}
    for d_k in SIZES:
        draws = [random_scores(d_k, queries, seed) for seed in effort.seeds]
        raw[d_k] = measure(draws)
        scaled[d_k] = measure([draw / math.sqrt(d_k) for draw in draws])
    few, many = (random_scores(d_k, queries, effort.seeds[0]).softmax(-1).max(-1).values for d_k in (2, 100))
    true = [torch.tensor(triple, dtype=torch.float64).softmax(-1).tolist() for triple, _, _ in TRIPLES]
    return Findings(
        f"Random queries, each with {KEYS} random keys, all numbers normal with mean 0 and variance 1; d_k from "
        f"{SIZES[0]} to {SIZES[-1]}; {queries:,} queries for each d_k and each seed of {effort.seeds}.",
        (
            judge_variance({d: m.variance for d, m in raw.items()}, {d: m.variance for d, m in scaled.items()}),
            judge_saturation(raw[100].peak, scaled[100].peak, 100),
            judge_triples(true[0], true[2]),
            judge_averages(raw[100].peak.largest, raw[2].peak.largest, float((few > many).double().mean())),
        ),
        (measured_table(raw, scaled), triples_table()),
        (
            Figure(
                "variance-of-scores",
                "Variance of q . k by d_k, both axes logarithmic: as it is, and after the division by sqrt(d_k).",
                partial(draw_variance, raw=raw, scaled=scaled),
                (6.0, 3.6),
            ),
            Figure(
                "saturation",
                f"The softmax over {KEYS} random scores by d_k: the mean of its largest weight, how often that is "
                "above 0.99, the mean entropy, and the mean norm of its derivative, through which every gradient of "
                "queries and keys passes.",
                partial(draw_saturation, raw=raw, scaled=scaled),
                (9.0, 6.0),
            ),
            Figure(
                "triples",
                "The true softmax of the scores that the notes give as examples, before and after the division by "
                "sqrt(d_k).",
                draw_triples,
                (9.0, 3.2),
            ),
        ),
    )


# What follows from the numbers.


def judge_variance(raw: Mapping[int, float], scaled: Mapping[int, float]) -> Verdict:
    off = max(max(abs(raw[d] / d - 1), abs(scaled[d] - 1)) for d in raw)
    seen = off < 0.1
    return Verdict(
        seen,
        f"The variance of q . k {'is' if seen else 'is not'} d_k, and 1 after the division by sqrt(d_k): at d_k = 100 "
        f"it is {raw[100]:.1f} and {scaled[100]:.3f}; the furthest from it of all sizes is {off:.1%}. The division by "
        "10 divides the variance by 100.",
    )


def judge_saturation(raw: Peak, scaled: Peak, d_k: int) -> Verdict:
    seen = raw.nearly_one > 0.5 and raw.jacobian < 0.15 and scaled.nearly_one < 0.01 and scaled.jacobian > 0.35
    return Verdict(
        seen,
        f"Without the division the softmax {'saturates' if seen else 'does not clearly saturate'} at d_k = {d_k}: "
        f"{raw.nearly_one:.0%} of the queries give more than 0.99 to one key (with it {scaled.nearly_one:.0%}), and "
        f"the mean derivative is {raw.jacobian:.2f} (with it {scaled.jacobian:.2f}).",
    )


def judge_triples(many: Sequence[float], few: Sequence[float]) -> Verdict:
    """The weights of one draw at a large d_k and of one at a small one."""
    seen = max(many) > 0.95 and max(few) < 0.5
    return Verdict(
        seen,
        f"The single draws in the notes {'show' if seen else 'do not show'} it: the softmax of (8, -11, 7), said to "
        f"give all to one key, gives it {max(many):.3f}; that of (1.1, -0.8, -1.7), said to be spread over 30 to 50 % "
        f"for each, gives one key {max(few):.3f}.",
    )


def judge_averages(many: float, few: float, reversed_share: float) -> Verdict:
    seen = many > few + 0.1
    return Verdict(
        seen,
        f"On average over draws the largest weight {'is' if seen else 'is not'} much larger at a large d_k: {many:.2f} "
        f"at 100 against {few:.2f} at 2, unscaled; of single pairs of draws {reversed_share:.0%} show the reverse.",
    )


# Tables and figures.


def measured_table(raw: Mapping[int, Measured], scaled: Mapping[int, Measured]) -> Table:
    columns = ("variance", "largest weight", "share above 0.99", "entropy (nats)", "norm of the Jacobian")
    return Table(
        "Scores and their softmax by d_k",
        ("d_k", "scores", *columns),
        tuple(
            (d_k, name, found[d_k].variance, *vars(found[d_k].peak).values())
            for d_k in raw
            for name, found in (("raw", raw), ("divided by sqrt(d_k)", scaled))
        ),
    )


def triples_table() -> Table:
    rows = []
    for triple, d_k, source in TRIPLES:
        scores = torch.tensor(triple, dtype=torch.float64)
        for name, x in (("raw", scores), (f"divided by sqrt({d_k})", scores / math.sqrt(d_k))):
            rows.append((source, str(triple), name, *x.softmax(-1).tolist()))
    return Table("The true softmax of the notes' scores", ("source", "scores", "form", "1", "2", "3"), tuple(rows))


def draw_variance(figure: Any, raw: Mapping[int, Measured], scaled: Mapping[int, Measured]) -> None:
    axes = figure.subplots()
    for number, (name, found) in enumerate({"q . k": raw, "q . k / sqrt(d_k)": scaled}.items()):
        axes.plot(list(found), [m.variance for m in found.values()], label=name, **style(number))
    axes.set(xscale="log", yscale="log", xlabel="d_k", ylabel="variance of scores")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(frameon=False)


def draw_saturation(figure: Any, raw: Mapping[int, Measured], scaled: Mapping[int, Measured]) -> None:
    titles = {
        "largest": "largest weight (mean)",
        "nearly_one": "share with a weight above 0.99",
        "entropy": "entropy (nats, mean)",
        "jacobian": "norm of diag(p) - p pᵀ (mean)",
    }
    grid = figure.subplots(2, 2, sharex=True)
    for axes, (field, title) in zip(grid.flat, titles.items(), strict=True):
        for number, (name, found) in enumerate({"raw": raw, "divided by sqrt(d_k)": scaled}.items()):
            axes.plot(list(found), [getattr(m.peak, field) for m in found.values()], label=name, **style(number))
        axes.set(xscale="log", xlabel="d_k", ylabel=title, ylim=(0, None))
        axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
        axes.grid(color="0.9", linewidth=0.6)
    grid[0, 0].legend(frameon=False)


def draw_triples(figure: Any) -> None:
    grid = figure.subplots(1, len(TRIPLES), sharey=True)
    for axes, (triple, d_k, source) in zip(grid, TRIPLES, strict=True):
        scores = torch.tensor(triple)
        for side, (name, x) in enumerate((("raw", scores), (f"/ sqrt({d_k})", scores / math.sqrt(d_k)))):
            places = [key + 0.4 * side for key in range(KEYS)]
            bars = axes.bar(places, x.softmax(-1).tolist(), 0.36, label=name, color=COLOURS[side], edgecolor="black",
                            hatch=("", "//")[side])  # fmt: skip
            axes.bar_label(bars, fmt="%.3f", fontsize=7)
        axes.set_xticks([key + 0.2 for key in range(KEYS)], [f"{score:g}" for score in triple])
        axes.set(xlabel="score of the key", ylim=(0, 1), title=f"{source}, d_k = {d_k}")
        axes.legend(frameon=False, fontsize=8)
    grid[0].set_ylabel("weight")


EXPERIMENT = Experiment(
    title="Why scores are divided by the root of d_k",
    source="notes 000, 002, 003; section 3.2.1",
    claim="The variance of a product of query and key grows with d_k; large scores make the softmax nearly one-hot, "
    "and its gradient vanishes. Divided by sqrt(d_k) they have variance 1 whatever the size. For d_k = 100 the scores "
    "(8, -11, 7) are said to give about 100 % to one key, for d_k = 2 the scores (1.1, -0.8, -1.7) 30 to 50 % to each.",
    run=run,
)
