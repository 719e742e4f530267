"""Query, key and value as a soft look-up: in a dictionary, in a search engine, in a regression.

Shapes: T queries, N entries, M size of a query and of a key.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.model.attention import explicit

ENTRIES, SIZE, QUERIES = 10, 8, 500
SHARPNESS = (0.0, 0.25, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)

POSTS, TOPICS, FEATURES = 100, 8, 16  # of a search; what a post is about; of a title and of search words
STEPS, RATE, SEARCHES = 600, 0.01, 100

POINTS, NOISE = 40, 0.3  # of the regression
KERNELS = (0.0, 1.0, 4.0, 16.0, 64.0, 256.0, 4096.0)
DRAWN = (1.0, 64.0, 4096.0)

Row = tuple[float, float, float, float]  # sharpness; means of the largest weight, entropy, distance from the look-up


def attend(query: Tensor, key: Tensor, value: Tensor, sharpness: float) -> Tensor:
    """softmax(sharpness * Q K^T) V."""
    return explicit(query * sharpness * math.sqrt(query.size(-1)), key, value)


def look_up(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The value of the key that is most like the query."""
    return value[(query @ key.T).argmax(-1)]


def sharpened(seed: int) -> list[Row]:
    """By sharpness: the mean of the largest weight, of the entropy (nats), and of the distance from the look-up."""
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
    """In nats, of rows that sum to 1: (..., N) -> (...)."""
    return torch.special.entr(weights).sum(-1)


class Search(nn.Module):
    """Search words and titles that tell of the same topics, each in its own way and with noise.

    The title that is wanted should have the largest inner product with the search words.
    """

    def __init__(self, seed: int):
        super().__init__()
        self.random = torch.Generator().manual_seed(seed)
        self.asking, self.telling = (torch.randn(TOPICS, FEATURES, generator=self.random) for _ in range(2))
        self.query, self.key = (nn.Parameter(torch.eye(FEATURES)) for _ in range(2))

    def scores(self) -> Tensor:
        """(POSTS, POSTS): of one search for each of some new posts, with all of them to choose from."""
        topics = torch.randn(POSTS, TOPICS, generator=self.random)
        words, titles = (
            topics @ way + torch.randn(POSTS, FEATURES, generator=self.random) for way in (self.asking, self.telling)
        )
        return (words @ self.query) @ (titles @ self.key).T / math.sqrt(FEATURES)

    def learn(self, matrices: Sequence[nn.Parameter], steps: int) -> None:
        """Adjust some of the matrices so that the weight of the wanted post grows."""
        optimizer = torch.optim.Adam(matrices, RATE)
        for _ in range(steps):
            loss = F.cross_entropy(self.scores(), torch.arange(POSTS))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    @torch.no_grad()
    def place(self) -> float:
        """How far down the wanted post stands, on average; 1 is the top."""
        found = [self.scores() for _ in range(SEARCHES)]
        return float(torch.stack([(s >= s.diagonal()[:, None]).sum(-1).float().mean() for s in found]).mean())


UNTRAINED, QUERY = "words and titles as they are", "W_Q learned"
LONGER, BOTH = "W_Q learned for twice as long", "W_Q learned, then W_Q and W_K"


def searches(seed: int, steps: int) -> dict[str, float]:
    """The mean place of the wanted post, by what has been learned."""
    found = {}
    for name in (LONGER, BOTH):
        search = Search(seed)
        found[UNTRAINED] = search.place()
        search.learn([search.query], steps)
        found[QUERY] = search.place()
        search.learn([search.query] if name == LONGER else [search.query, search.key], steps)
        found[name] = search.place()
    return found


def on_circle(angles: Tensor) -> Tensor:
    return torch.stack([angles.cos(), angles.sin()], -1)


def truth(angles: Tensor) -> Tensor:
    return (angles.sin() + 0.5 * (3 * angles).cos())[:, None]


def kernel_regression(query: Tensor, key: Tensor, value: Tensor, sharpness: float) -> Tensor:
    """Nadaraya and Watson's mean of the values near the query, weighted by a bell curve of width 1/sqrt(sharpness)."""
    near = (-sharpness * torch.cdist(query, key).square() / 2).softmax(-1)
    return near @ value


@dataclass(frozen=True)
class Regression:
    """Attention as a regression: keys are places on a circle, values were measured there with noise."""

    known: Tensor  # (N,) angles of the keys
    noisy: Tensor  # (N, 1)
    asked: Tensor  # (T,) angles of the queries
    answers: dict[float, Tensor]  # (T, 1), by sharpness

    @classmethod
    def of(cls, seed: int) -> "Regression":
        random = torch.Generator().manual_seed(seed)
        known = 2 * math.pi * torch.rand(POINTS, dtype=torch.float64, generator=random)
        noisy = truth(known) + NOISE * torch.randn(POINTS, 1, dtype=torch.float64, generator=random)
        asked = torch.linspace(0, 2 * math.pi, 400, dtype=torch.float64)
        query, key = on_circle(asked), on_circle(known)
        return cls(known, noisy, asked, {sharpness: attend(query, key, noisy, sharpness) for sharpness in KERNELS})

    @property
    def errors(self) -> dict[float, float]:
        """Mean distances from the truth, by sharpness."""
        return {sharpness: float((y - truth(self.asked)).abs().mean()) for sharpness, y in self.answers.items()}

    @property
    def gap(self) -> float:
        """The largest difference between attention and kernel regression."""
        query, key = on_circle(self.asked), on_circle(self.known)
        return max(
            float((y - kernel_regression(query, key, self.noisy, sharpness)).abs().max())
            for sharpness, y in self.answers.items()
        )


def judge(rows: Sequence[Row], places: dict[str, float], gap: float, errors: dict[float, float]) -> tuple[Verdict, ...]:
    """rows: as of `sharpened`; gap: between attention and kernel regression; errors: of the regression."""
    even, sharp = rows[0], rows[-1]
    becomes = sharp[1] > 0.98 and sharp[3] < 0.05 * even[3]
    same = gap < 1e-9
    best = min(errors, key=errors.__getitem__)
    between = best not in (min(errors), max(errors))
    asks, titles = places[QUERY] < 0.5 * places[UNTRAINED], places[BOTH] < 0.9 * places[LONGER]
    return (
        Verdict(
            becomes,
            f"With queries {sharp[0]:g} times as long the best key has {sharp[1]:.3f} of the weight and the answer is "
            f"{sharp[3]:.1e} away from the look-up's, on average ({even[3]:.2f} with equal weights): "
            + ("sharper and sharper, attention becomes a look-up." if becomes else "not yet a look-up."),
        ),
        Verdict(
            same,
            f"With keys of equal length, attention and kernel regression with a bell curve differ by {gap:.0e} at most"
            + (": they are the same." if same else "."),
        ),
        Verdict(
            between,
            f"Its error is least, {errors[best]:.3f}, at sharpness {best:g}"
            + (
                f"; it is {errors[min(errors)]:.3f} with equal weights and {errors[max(errors)]:.3f} at sharpness "
                f"{max(errors):g}: too even and too sharp are both worse."
                if between
                else ", at an end of what was tried."
            ),
        ),
        Verdict(
            asks,
            f"Of {POSTS} posts, the wanted one stands at place {places[UNTRAINED]:.1f} on average when search words "
            f"and titles are compared as they are, at {places[QUERY]:.1f} when W_Q has learned: "
            + ("a better query finds sooner." if asks else "the query alone does not find much sooner."),
        ),
        Verdict(
            titles,
            f"With W_K learned, too, it stands at {places[BOTH]:.1f}; with W_Q alone, learned for as long, at "
            f"{places[LONGER]:.1f}: "
            + (
                "better titles add to better queries."
                if titles
                else "better titles add little here, since only the product of W_Q and W_K^T counts, which W_Q "
                "alone can make any matrix."
            ),
        ),
    )


def run(effort: Effort) -> Findings:
    seed = effort.seeds[0]
    rows, regression = sharpened(seed), Regression.of(seed)
    each = [searches(seed, effort.of(STEPS)) for seed in effort.seeds]
    places = {name: mean(found[name] for found in each) for name in (UNTRAINED, QUERY, LONGER, BOTH)}
    return Findings(
        f"A dictionary of {ENTRIES} random entries with keys of {SIZE} numbers, asked {QUERIES} times. A search among "
        f"{POSTS} posts whose titles and search words have {FEATURES} numbers each and tell of {TOPICS} topics, each "
        f"in its own way and with noise; {effort.of(STEPS)} steps of learning, and as many again. A regression of "
        f"{POINTS} noisy points on a circle. Seeds: {', '.join(map(str, effort.seeds))}.",
        judge(rows, places, regression.gap, regression.errors),
        (
            Table(
                "From equal weights to a look-up",
                ("sharpness", "largest weight", "entropy (nats)", "distance from the look-up"),
                tuple(rows),
            ),
            Table(
                f"Mean place of the wanted post among {POSTS}",
                ("learned", "mean", "lowest seed", "highest seed"),
                tuple(
                    (name, place, min(found[name] for found in each), max(found[name] for found in each))
                    for name, place in places.items()
                ),
            ),
            Table("Error of the regression", ("sharpness", "mean error"), tuple(regression.errors.items())),
        ),
        (
            Figure(
                "soft-look-up",
                "What attention answers as its query gets longer. Left: its weights. Right: how far the answer is from "
                "the value of the best key.",
                partial(draw_look_up, rows=rows),
            ),
            Figure(
                "kernel-regression",
                "Attention as a regression: keys are places on a circle, values were measured there with noise.",
                partial(draw_regression, found=regression),
            ),
        ),
    )


def draw_look_up(figure: Any, rows: Sequence[Row]) -> None:
    weights, distance = figure.subplots(1, 2)
    places = range(len(rows))
    for index, (name, column) in enumerate((("largest weight", 1), ("entropy (nats)", 2))):
        weights.plot(places, [row[column] for row in rows], label=name, **style(index))
    weights.legend(fontsize=8)
    weights.set_ylabel("mean of all queries")
    distance.plot(places, [row[3] for row in rows], **style(0))
    distance.set_ylabel("mean distance from the look-up")
    for axes in (weights, distance):
        axes.set_xticks(places, [f"{row[0]:g}" for row in rows], fontsize=8)
        axes.set_xlabel("length of the query (times)")
        axes.grid(color="0.9", linewidth=0.6)


def draw_regression(figure: Any, found: Regression) -> None:
    axes = figure.add_subplot()
    axes.scatter(found.known, found.noisy, marker="x", color="0.4", s=18, label="known keys and values")
    axes.plot(found.asked, truth(found.asked), color="0.7", linewidth=4, label="what they were made from")
    for index, sharpness in enumerate(DRAWN):
        label, marks = f"attention, sharpness {sharpness:g}", (20 * index, 80)
        axes.plot(found.asked, found.answers[sharpness], label=label, markevery=marks, **style(index))
    axes.set_xlabel("angle of the key or query (radians)")
    axes.set_ylabel("value")
    axes.legend(fontsize=8)


EXPERIMENT = Experiment(
    title="A soft dictionary",
    source="notes 001 and 003",
    claim="Attention finds the value for a new query among known keys and values, as a search engine finds a post: "
    "better queries (W_Q) and better titles (W_K) both shorten the search. It is a soft look-up in a dictionary, or a "
    "kernel regression.",
    run=run,
)
