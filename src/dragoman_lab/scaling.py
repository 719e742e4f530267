"""Why scores are divided by sqrt(d_k) (section 3.2.1): variance of scores, saturation of the softmax, its gradient."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from dragoman_lab.drawing import Panel, draw_bars, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment

SIZES = (1, 2, 4, 8, 16, 32, 64, 100, 128, 256, 512, 1024)
KEYS = 3  # of each query
AT_ONCE = 2**22  # random numbers
RAW, SCALED = "not divided", "divided by sqrt(d_k)"

# Three scores of one query that are given as examples, and the size d_k that they are given for.
TRIPLES = (((8.0, -11.0, 7.0), 100), ((9.0, -11.0, 7.0), 100), ((1.1, -0.8, -1.7), 2))


@dataclass(frozen=True)
class Peak:
    """Describe how peaked the softmax of some rows of scores is: means over the rows."""

    largest: float  # weight
    nearly_one: float  # share of the rows whose largest weight is above 0.99
    entropy: float  # nats
    jacobian: float  # Frobenius norm of the derivative of weights by scores

    @classmethod
    def from_scores(cls, scores: Tensor) -> "Peak":
        """Measure the softmax of rows of scores (N, S)."""
        weights = scores.softmax(-1)
        largest = weights.max(-1).values
        norms = torch.linalg.matrix_norm(jacobian(weights))
        entropy = torch.special.entr(weights).sum(-1)
        return cls(*(float(x.double().mean()) for x in (largest, largest > 0.99, entropy, norms)))


def jacobian(weights: Tensor) -> Tensor:
    """Return the derivative of a softmax by its input, diag(p) - p p^T: (..., S) -> (..., S, S). weights: the softmax
    p.
    """
    return torch.diag_embed(weights) - weights[..., :, None] * weights[..., None, :]


def random_scores(d_k: int, queries: int, seed: int) -> Tensor:
    """Return inner products (queries, KEYS) of random queries with KEYS keys each, of d_k normal numbers with mean 0
    and variance 1. Drawn in chunks to save memory.
    """
    random, scores = torch.Generator().manual_seed(seed), []
    rows = max(1, AT_ONCE // (d_k * (KEYS + 1)))
    for start in range(0, queries, rows):
        count = min(rows, queries - start)
        query, key = (torch.randn(count, n, d_k, generator=random) for n in (1, KEYS))
        scores.append((query * key).sum(-1))
    return torch.cat(scores)


@dataclass(frozen=True)
class Measured:
    """Give the variance of scores, and how peaked their softmax is."""

    variance: float
    peak: Peak


def measure_scores(scores: Sequence[Tensor]) -> Measured:
    """Measure rows of scores (N, S), one tensor for each seed; return means over the seeds."""
    peaks = [Peak.from_scores(draw) for draw in scores]
    return Measured(
        fmean(float(draw.double().var()) for draw in scores),
        Peak(*(fmean(values) for values in zip(*(vars(peak).values() for peak in peaks), strict=True))),
    )


def softmax(triple: Sequence[float], divisor: float = 1) -> list[float]:
    """Return the softmax of some scores, divided by `divisor` first."""
    return (torch.tensor(triple, dtype=torch.float64) / divisor).softmax(-1).tolist()


def claims(raw: dict[int, Measured], scaled: dict[int, Measured], many: float, few: float, reverse: float) -> Claims:
    """Return each claim and whether it holds. raw, scaled: by d_k; many, few: the largest weight of the triples given
    for d_k = 100 and 2; reverse: share of draws whose largest weight is higher at d_k = 2 than at 100.
    """
    off = max(max(abs(raw[d].variance / d - 1), abs(scaled[d].variance - 1)) for d in raw)
    peak, calm = raw[100].peak, scaled[100].peak
    nearly_one = peak.nearly_one > 0.5 > 0.01 > calm.nearly_one
    return {
        "The variance of q . k [is|is not] d_k before the division by sqrt(d_k) and 1 after it: at d_k = 100 it is "
        f"{raw[100].variance:.1f} and {scaled[100].variance:.3f}, and no size is off by more than {off:.1%}. Dividing "
        "scores by 10 divides their variance by 100.": off < 0.1,
        f"Without the division the softmax [saturates|does not clearly saturate] at d_k = 100: {peak.nearly_one:.0%} "
        f"of the queries give more than 0.99 to one key (with it {calm.nearly_one:.0%}), and the norm of the "
        f"derivative is {peak.jacobian:.2f} on average (with it {calm.jacobian:.2f}).": nearly_one
        and peak.jacobian < 0.15 < 0.35 < calm.jacobian,
        "Two triples of scores that are given as examples [show|do not show] this: the softmax of (8, -11, 7), said to "
        f"give all the weight to one key, gives it {many:.3f}; that of (1.1, -0.8, -1.7), said to give each key 30 to "
        f"50 %, gives one of them {few:.3f}.": many > 0.95 and few < 0.5,
        "On average over random scores, without the division, the largest weight [is|is not] much larger at a large "
        f"d_k: {peak.largest:.2f} at 100 against {raw[2].peak.largest:.2f} at 2. In {reverse:.0%} of the "
        "comparisons of single draws it is the other way round.": peak.largest > raw[2].peak.largest + 0.1,
        "Dividing makes scores that are too even [less even|even more even]: at d_k = 2 the largest weight goes from "
        f"{raw[2].peak.largest:.3f} to {scaled[2].peak.largest:.3f}.": scaled[2].peak.largest > raw[2].peak.largest,
    }


@experiment(
    "Why scores are divided by the root of d_k",
    "section 3.2.1",
    "The variance of the product of a query and a key grows with d_k; large scores make the softmax nearly one-hot, "
    "and its gradient vanishes. Divided by sqrt(d_k), they have variance 1 whatever the size. It is said that for d_k "
    "= 100 the scores (8, -11, 7) give about 100 % to one key, and that for d_k = 2 the scores (1.1, -0.8, -1.7) give "
    "30 to 50 % to each, which is too even; the division is said to cure both.",
)
def run(effort: Effort) -> Findings:
    """Measure random scores and their softmax by d_k, with and without the division."""
    queries = max(100, effort.scale(40_000))
    raw: dict[int, Measured] = {}
    scaled: dict[int, Measured] = {}
    for d_k in SIZES:
        draws = [random_scores(d_k, queries, seed) for seed in effort.seeds]
        raw[d_k] = measure_scores(draws)
        scaled[d_k] = measure_scores([draw / math.sqrt(d_k) for draw in draws])
    few, many = (random_scores(d_k, queries, effort.seeds[0]).softmax(-1).max(-1).values for d_k in (2, 100))
    table = Table(
        "d_k | scores | variance | largest weight | share above 0.99 | entropy (nats) | norm of the derivative",
        [
            (d_k, name, form[d_k].variance, *vars(form[d_k].peak).values())
            for d_k in SIZES
            for name, form in ((RAW, raw), (SCALED, scaled))
        ],
    )

    def panel(column: str, label: str, title: str = "", log: str = "x", ylim: Any = (0, None)) -> Panel:
        curves = table.curves("scores", "d_k", column)
        return Panel(curves, "d_k", label, title, log, ticks=(1, 10, 100, 1000), ylim=ylim)

    return Findings(
        f"Random queries, each with {KEYS} random keys; all numbers are normally distributed with mean 0 and variance "
        f"1; d_k from {SIZES[0]} to {SIZES[-1]}; {queries:,} queries for each d_k; {effort}.",
        claims(
            raw, scaled, max(softmax(TRIPLES[0][0])), max(softmax(TRIPLES[2][0])), float((few > many).double().mean())
        ),
        {"Scores and their softmax by d_k": table, "The true softmax of scores given as examples": triples_table()},
        {
            "variance-of-scores": Figure(
                "Variance of q . k by d_k, both axes logarithmic: before and after the division by sqrt(d_k).",
                lines(panel("variance", "variance of scores", log="xy", ylim=None)),
            ),
            "saturation": Figure(
                f"The softmax over {KEYS} random scores by d_k, before and after the division by sqrt(d_k).",
                lines(
                    panel(
                        "share above 0.99", "share of queries", f"One of {KEYS} keys takes more than 0.99 of the weight"
                    ),
                    panel("norm of the derivative", "mean norm", "The derivative of the softmax fades"),
                ),
                (9.0, 4.0),
            ),
            "triples": Figure(
                "The true softmax of three triples of scores, before and after the division by sqrt(d_k).", draw_triples
            ),
        },
    )


def triples_table() -> Table:
    """Return the table of the softmax of each triple of scores, as it is and divided by sqrt(d_k)."""
    return Table(
        "d_k | scores | form | 1 | 2 | 3",
        [
            (d_k, str(triple), name, *softmax(triple, divisor))
            for triple, d_k in TRIPLES
            for name, divisor in ((RAW, 1.0), (f"divided by sqrt({d_k})", math.sqrt(d_k)))
        ],
    )


def draw_triples(figure: Any) -> None:
    """Draw the softmax of each triple of scores, as it is and divided by sqrt(d_k), as bars on a matplotlib figure."""
    for axes, (triple, d_k) in zip(figure.subplots(1, len(TRIPLES), sharey=True), TRIPLES, strict=True):
        weights = {RAW: softmax(triple), f"/ sqrt({d_k})": softmax(triple, math.sqrt(d_k))}
        draw_bars(axes, [f"{score:g}" for score in triple], weights, "%.3f")
        axes.set(xlabel="score of the key", ylabel="weight", ylim=(0, 1), title=f"d_k = {d_k}")
