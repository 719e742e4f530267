"""Query, key and value as a soft lookup: in a dictionary, in a search engine, in a regression."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.model.attention import explicit_attention
from dragoman_lab.drawing import Panel, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment

ENTRIES, SIZE, QUERIES = 10, 8, 500
SHARPNESS = (0.0, 0.25, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)

POSTS, TOPICS, FEATURES = 100, 8, 16  # of a search; what a post is about; of a title and of search words
STEPS, RATE, SEARCHES = 600, 0.01, 100

POINTS, NOISE = 40, 0.3  # of the regression
KERNELS = (0.0, 1.0, 4.0, 16.0, 64.0, 256.0, 4096.0)
DRAWN = (1.0, 64.0, 4096.0)

Row = tuple[float, float, float, float]  # sharpness; means of the largest weight, entropy, distance from the lookup


def attend(query: Tensor, key: Tensor, value: Tensor, sharpness: float) -> Tensor:
    """Return softmax(sharpness * Q K^T) V, (T, V), of query (T, K), key (S, K) and value (S, V)."""
    return explicit_attention(query * sharpness * math.sqrt(query.size(-1)), key, value)


def look_up(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return for each query (T, K) the value, of values (S, V), whose key (S, K) has the largest inner product with it:
    (T, V).
    """
    return value[(query @ key.T).argmax(-1)]


def measure_sharpness(seed: int) -> list[Row]:
    """Return a row for each of SHARPNESS: that, and means over random queries of the largest weight, the entropy (nats)
    and the absolute distance from the lookup.
    """
    random = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(n, SIZE, dtype=torch.float64, generator=random) for n in (QUERIES, ENTRIES))
    value = torch.randn(ENTRIES, 1, dtype=torch.float64, generator=random)
    rows: list[Row] = []
    for sharpness in SHARPNESS:
        weights = attend(query, key, torch.eye(ENTRIES, dtype=torch.float64), sharpness)
        away = (attend(query, key, value, sharpness) - look_up(query, key, value)).abs()
        largest, spread, distance = (float(x.mean()) for x in (weights.amax(-1), entropy(weights), away))
        rows.append((sharpness, largest, spread, distance))
    return rows


def entropy(weights: Tensor) -> Tensor:
    """Return the entropy in nats of weights (..., N) that sum to 1: (...)."""
    return torch.special.entr(weights).sum(-1)


class Search(nn.Module):
    """Find posts: search words and titles come from the same topics, each in its own way and with noise, and `query`
    and `key` are the matrices to learn.

    The wanted title should have the largest inner product with the search words.
    """

    def __init__(self, seed: int):
        super().__init__()
        self.random = torch.Generator().manual_seed(seed)
        self.asking, self.telling = (torch.randn(TOPICS, FEATURES, generator=self.random) for _ in range(2))
        self.query, self.key = (nn.Parameter(torch.eye(FEATURES)) for _ in range(2))

    def scores(self) -> Tensor:
        """Draw POSTS new posts and a search for each; return the scores of all posts (columns) in each search (rows),
        wanted ones on the diagonal.
        """
        topics = torch.randn(POSTS, TOPICS, generator=self.random)
        words, titles = (
            topics @ way + torch.randn(POSTS, FEATURES, generator=self.random) for way in (self.asking, self.telling)
        )
        return (words @ self.query) @ (titles @ self.key).T / math.sqrt(FEATURES)

    def learn(self, matrices: Sequence[nn.Parameter], steps: int) -> None:
        """Take so many steps of Adam on some of the matrices, in place, so that the weight of the wanted post grows."""
        optimizer = torch.optim.Adam(matrices, RATE)
        for _ in range(steps):
            loss = F.cross_entropy(self.scores(), torch.arange(POSTS))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    @torch.no_grad()
    def rank(self) -> float:
        """Return the mean rank of the wanted post, over SEARCHES new sets of posts; 1 is the top."""
        scores = [self.scores() for _ in range(SEARCHES)]
        return float(torch.stack([(s >= s.diagonal()[:, None]).sum(-1).float().mean() for s in scores]).mean())


UNTRAINED, QUERY = "words and titles as they are", "W_Q learned"
LONGER, BOTH = "W_Q learned for twice as long", "W_Q learned, then W_Q and W_K"


def ranks_by_learning(seed: int, steps: int) -> dict[str, float]:
    """Return the mean rank of the wanted post, by what has been learned, each stage after so many further steps."""
    ranks = {}
    for name in (LONGER, BOTH):
        search = Search(seed)
        ranks[UNTRAINED] = search.rank()
        search.learn([search.query], steps)
        ranks[QUERY] = search.rank()
        search.learn([search.query] if name == LONGER else [search.query, search.key], steps)
        ranks[name] = search.rank()
    return ranks


def on_circle(angles: Tensor) -> Tensor:
    """Return the points (..., 2) of the unit circle at these angles (...)."""
    return torch.stack([angles.cos(), angles.sin()], -1)


def truth(angles: Tensor) -> Tensor:
    """Return the values (N, 1) of the function to be found by regression, at angles (N,)."""
    return (angles.sin() + 0.5 * (3 * angles).cos())[:, None]


def kernel_regression(query: Tensor, key: Tensor, value: Tensor, sharpness: float) -> Tensor:
    """Return Nadaraya and Watson's mean (T, V) of values (S, V) near each query (T, K), under a bell curve of width
    1/sqrt(sharpness) around it. key: (S, K).
    """
    near = (-sharpness * torch.cdist(query, key).square() / 2).softmax(-1)
    return near @ value


@dataclass(frozen=True)
class Regression:
    """Describe attention used as a regression: keys are points on a circle, values were measured there with noise."""

    known: Tensor  # (N,) angles of the keys
    noisy: Tensor  # (N, 1)
    angles: Tensor  # (T,) of the queries
    answers: dict[float, Tensor]  # (T, 1), by sharpness

    @classmethod
    def from_seed(cls, seed: int) -> "Regression":
        """Draw POINTS known angles and noisy values; return what attention answers at 400 angles, for each sharpness of
        KERNELS.
        """
        random = torch.Generator().manual_seed(seed)
        known = 2 * math.pi * torch.rand(POINTS, dtype=torch.float64, generator=random)
        noisy = truth(known) + NOISE * torch.randn(POINTS, 1, dtype=torch.float64, generator=random)
        angles = torch.linspace(0, 2 * math.pi, 400, dtype=torch.float64)
        query, key = on_circle(angles), on_circle(known)
        return cls(known, noisy, angles, {sharpness: attend(query, key, noisy, sharpness) for sharpness in KERNELS})

    def draw_truth(self, axes: Any) -> None:
        """Draw the known points and the function behind them on matplotlib axes."""
        axes.scatter(self.known, self.noisy, marker="x", color="0.4", s=18, label="known keys and values")
        axes.plot(self.angles, truth(self.angles), color="0.7", linewidth=4, label="what they were made from", zorder=1)

    @property
    def errors(self) -> dict[float, float]:
        """Return the mean absolute distance of the answers from the truth, by sharpness."""
        return {sharpness: float((y - truth(self.angles)).abs().mean()) for sharpness, y in self.answers.items()}

    @property
    def gap(self) -> float:
        """Return the largest absolute difference between attention and kernel regression."""
        query, key = on_circle(self.angles), on_circle(self.known)
        return max(
            float((y - kernel_regression(query, key, self.noisy, sharpness)).abs().max())
            for sharpness, y in self.answers.items()
        )


def claims(rows: Sequence[Row], ranks: dict[str, float], gap: float, errors: dict[float, float]) -> Claims:
    """Return each claim and whether it holds. rows: of `measure_sharpness`; ranks: of `ranks_by_learning`; gap: between
    attention and kernel regression; errors: of the regression, by sharpness.
    """
    best = min(errors, key=errors.__getitem__)
    even, sharpest = min(errors), max(errors)
    return {
        f"With the norm of queries times {rows[-1][0]:g}, attention is [a lookup|not yet a lookup]: on average the "
        f"best key has {rows[-1][1]:.3f} of the weight, and the answer is {rows[-1][3]:.1e} away from that of the "
        f"lookup ({rows[0][3]:.2f} with equal weights).": rows[-1][1] > 0.98 and rows[-1][3] < 0.05 * rows[0][3],
        "With keys of equal norm, attention and kernel regression with a bell curve [are the same|are not the same]: "
        f"they differ by at most {gap:.0e}.": gap < 1e-9,
        "[Weights that are too even or too sharp are both worse than something in between|The best sharpness is at an "
        f"end of the range tried]: the error is smallest, {errors[best]:.3f}, at sharpness {best:g}; it is "
        f"{errors[even]:.3f} "
        f"with equal weights and {errors[sharpest]:.3f} at sharpness {sharpest:g}.": best not in (even, sharpest),
        "Better queries [find a post sooner|alone do not find a post much sooner]: among 100 posts, the wanted one has "
        f"rank {ranks[UNTRAINED]:.1f} on average when search words and titles are compared as they are, and "
        f"{ranks[QUERY]:.1f} once W_Q is trained.": ranks[QUERY] < 0.5 * ranks[UNTRAINED],
        "Better titles [help further|add little here, because only the product of W_Q and W_K^T counts, and W_Q alone "
        f"can turn it into any matrix]: with W_K trained as well, the rank is {ranks[BOTH]:.1f}; with W_Q alone, "
        f"trained for as long, {ranks[LONGER]:.1f}.": ranks[BOTH] < 0.9 * ranks[LONGER],
    }


@experiment(
    "A soft dictionary",
    "common teaching",
    "Attention finds the value for a new query among known keys and values, as a search engine finds a post: better "
    "queries (W_Q) and better titles (W_K) both shorten the search. It is a soft lookup in a dictionary, or a kernel "
    "regression.",
)
def run(effort: Effort) -> Findings:
    """Compare attention with a lookup, train the matrices of a search, and compare attention with kernel
    regression.
    """
    seed = effort.seeds[0]
    rows, regression = measure_sharpness(seed), Regression.from_seed(seed)
    each = [ranks_by_learning(seed, effort.scale(STEPS)) for seed in effort.seeds]
    by_seed = {name: [ranks[name] for ranks in each] for name in (UNTRAINED, QUERY, LONGER, BOTH)}
    ranks = {name: mean(of_name) for name, of_name in by_seed.items()}
    sharpness, largest, entropies, distances = zip(*rows, strict=True)
    positions, ticks = range(len(rows)), {i: f"{times:g}" for i, times in enumerate(sharpness)}
    weights = {"largest weight": (positions, largest), "entropy (nats)": (positions, entropies)}
    label = "norm of the query (times)"
    drawn = {f"attention, sharpness {s:g}": (regression.angles, regression.answers[s][:, 0]) for s in DRAWN}
    return Findings(
        f"A dictionary of {ENTRIES} random entries with keys of {SIZE} numbers, asked {QUERIES} times. A search among "
        f"{POSTS} posts, each a mixture of {TOPICS} topics: titles and search words are vectors of {FEATURES} numbers "
        f"that encode the mixture, each in its own way and with noise; {effort.scale(STEPS)} steps of training, and as "
        f"many again. A regression of {POINTS} noisy points on a circle; {effort}.",
        claims(rows, ranks, regression.gap, regression.errors),
        {
            "From equal weights to a lookup": Table(
                "sharpness | largest weight | entropy (nats) | distance from the lookup", rows
            ),
            f"Mean place of the wanted post among {POSTS}": Table(
                "learned | mean | lowest seed | highest seed",
                [(name, ranks[name], min(of_name), max(of_name)) for name, of_name in by_seed.items()],
            ),
            "Error of the regression": Table("sharpness | mean error", [*regression.errors.items()]),
        },
        {
            "soft-lookup": Figure(
                "As the norm of the query grows: weights (left), distance of the answer from the best key's value "
                "(right).",
                lines(
                    Panel(weights, label, "mean of all queries", ticks=ticks),
                    Panel({"": (positions, distances)}, label, "mean distance from the lookup", ticks=ticks),
                ),
            ),
            "kernel-regression": Figure(
                "Attention as a regression: keys are points on a circle, values were measured there with noise.",
                lines(Panel(drawn, "angle of the key or query (radians)", "value", also=regression.draw_truth)),
            ),
        },
    )
