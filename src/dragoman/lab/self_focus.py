"""Without query and key matrices every word looks at itself.

Shapes: B sentences, S words, M size of a vector.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.model.attention import explicit

SENTENCE = ("I", "go", "home")
SIZES = (4, 64, 512)
LENGTHS = (3, 10, 30)
SHOWN = 64  # the size of the vectors in the heat maps and in the verdicts

Scores = Callable[[Tensor, torch.Generator], Tensor]  # words (B, S, M) -> weights (B, S, S)


def weights(query: Tensor, key: Tensor) -> Tensor:
    """What each query gives to each key: the kernel of the model, asked with the identity as values."""
    return explicit(query, key, torch.eye(key.size(-2)).expand(*key.shape[:-2], -1, -1))


def matrices(x: Tensor, random: torch.Generator) -> Tensor:
    """A random matrix for each sentence, (B, M, M), that keeps the size of vectors."""
    return torch.randn(len(x), x.size(-1), x.size(-1), generator=random) * x.size(-1) ** -0.5


def raw(x: Tensor, random: torch.Generator) -> Tensor:
    return weights(x * x.size(-1) ** 0.5, x)  # undoes the kernel's division


def scaled(x: Tensor, random: torch.Generator) -> Tensor:
    return weights(x, x)


def projected(x: Tensor, random: torch.Generator) -> Tensor:
    return weights(x @ matrices(x, random), x @ matrices(x, random))


def projected_alike(x: Tensor, random: torch.Generator) -> Tensor:
    """One matrix for queries and keys: a word's own score is then the square of a length, and stays the largest."""
    both = x @ matrices(x, random)
    return weights(both, both)


RAW, SCALED, PROJECTED, ALIKE = "raw", "divided by sqrt(d)", "with W^Q and W^K", "with one matrix, W^Q = W^K"
WAYS: dict[str, Scores] = {RAW: raw, SCALED: scaled, PROJECTED: projected, ALIKE: projected_alike}


def own_weight(way: Scores, words: int, size: int, sentences: int, seed: int) -> float:
    """The mean weight of a word for itself, over sentences of random words (normally distributed numbers)."""
    random, total, chunk = torch.Generator().manual_seed(seed), 0.0, max(1, 2**21 // size**2)
    for start in range(0, sentences, chunk):
        count = min(chunk, sentences - start)
        found = way(torch.randn(count, words, size, generator=random), random)
        total += float(found.diagonal(dim1=-2, dim2=-1).mean()) * count
    return total / sentences


def judge(own: dict[str, float], words: int) -> tuple[Verdict, ...]:
    """own: a word's mean weight for itself, by way, with vectors of SHOWN numbers."""
    itself, even = own[RAW] > 0.99, abs(own[PROJECTED] - 1 / words) < 0.05
    undivided = own[SCALED] > 0.9
    stays = own[ALIKE] > 2 / words
    return (
        Verdict(
            itself,
            f"Without matrices a word of {SHOWN} numbers gives itself {own[RAW]:.3f} of its attention on average, "
            f"{own[SCALED]:.3f} when scores are divided by the root of the size: "
            + ("it keeps its own information only" if itself else "the others have a say")
            + (", and scaling is no cure." if undivided else ", and scaling changes that."),
        ),
        Verdict(
            even,
            f"With a random W^Q and another random W^K it is {own[PROJECTED]:.3f}, "
            + ("as for any other" if even else "not as for any other")
            + f" of the {words} words (1/{words} = {1 / words:.3f}): "
            + ("what to look at is then free to be learned." if even else "the matrices do not cure it."),
        ),
        Verdict(
            stays,
            f"With one and the same matrix for queries and keys it is {own[ALIKE]:.3f}: "
            + ("the cure is that the two differ." if stays else "one matrix would do."),
        ),
    )


def run(effort: Effort) -> Findings:
    sentences = effort.of(2000) * len(effort.seeds)
    seed = effort.seeds[0]
    rows: list[tuple[str, int, int, float, float]] = []
    for words in LENGTHS:
        for size in SIZES:
            fewer = max(1, sentences // 10) if size == max(SIZES) else sentences  # its matrices are large
            rows += [(name, words, size, own_weight(way, words, size, fewer, seed), 1 / words)
                     for name, way in WAYS.items()]  # fmt: skip
    found = {(name, words, size): own for name, words, size, own, _ in rows}
    return Findings(
        f"Sentences of random words, {sentences} of them ({max(1, sentences // 10)} with vectors of {max(SIZES)} "
        f"numbers), vectors of normally distributed numbers, matrices with a spread of 1/sqrt(d); first seed {seed}.",
        judge({name: found[name, len(SENTENCE), SHOWN] for name in WAYS}, len(SENTENCE)),
        (
            Table(
                "A word's mean weight for itself",
                ("scores", "words", "size of a vector (d)", "weight for itself", "equal shares"),
                tuple(rows),
            ),
        ),
        (
            Figure(
                "self-focus",
                f"Attention weights of one sentence of random vectors of {SHOWN} numbers; each row sums to 1.",
                partial(draw, seed=seed),
                (10.0, 3.0),
            ),
        ),
    )


def draw(figure: Any, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(1, len(SENTENCE), SHOWN, generator=random)
    for index, (axes, (name, way)) in enumerate(zip(figure.subplots(1, len(WAYS)), WAYS.items(), strict=True)):
        picture = way(x, random)[0]
        image = axes.imshow(picture, cmap="Blues", vmin=0, vmax=1)
        for row, line in enumerate(picture.tolist()):
            for column, weight in enumerate(line):
                colour = "white" if weight > 0.55 else "black"
                axes.text(column, row, f"{weight:.2f}", ha="center", va="center", fontsize=8, color=colour)
        axes.set_xticks(range(len(SENTENCE)), SENTENCE)
        axes.set_yticks(range(len(SENTENCE)), SENTENCE if index == 0 else [])
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("key", fontsize=8)
    figure.axes[0].set_ylabel("query", fontsize=8)
    figure.colorbar(image, ax=figure.axes, shrink=0.7, label="weight")


EXPERIMENT = Experiment(
    title="Looking at oneself",
    source="notes 000 and 002",
    claim="When words are compared as they are, x_i . x_i is usually much larger than x_i . x_j: each word attends to "
    "itself, and the output keeps only its own information. Separate matrices for query, key and value cure it.",
    run=run,
)
