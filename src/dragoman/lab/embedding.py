"""Words as one-hot vectors times a matrix, or as rows that are looked up in it; and the factor sqrt(d_model).

Shapes: N tokens, V words, M d_model.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.config import TransformerConfig
from dragoman.data.tokenizer import PAD
from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.model.embedding import embedding
from dragoman.model.positions import sinusoids
from dragoman.model.transformer import Transformer

WORDS, D_MODEL, PUPPY = 10_000, 512, 7_000  # note 004: "강아지" (puppy) is number 7,000 of 10,000 words
VOCABULARIES = (64, 1_000, WORDS)
TOKENS = 64


def one_hot(ids: Tensor, words: int) -> Tensor:
    """ids (...) -> (..., V): a 1 at the place of the word, zeros elsewhere."""
    return F.one_hot(ids, words).to(torch.get_default_dtype())


def stored(words: int, d_model: int) -> tuple[int, int]:
    """How many numbers stand for all words: as one-hot vectors, and as rows of an embedding."""
    return words * words, words * d_model


def differences(words: int, tokens: int, seed: int) -> tuple[float, float]:
    """The largest difference between one-hot vectors times a matrix and its rows: of results, and of its gradients."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(words, (tokens,), generator=random)
    slope = torch.randn(tokens, D_MODEL, generator=random)
    matrix = embedding(words, D_MODEL, PAD).weight.detach()
    found = []
    for work in (lambda matrix: one_hot(ids, words) @ matrix, lambda matrix: F.embedding(ids, matrix)):
        leaf = matrix.clone().requires_grad_()
        result = work(leaf)
        (gradient,) = torch.autograd.grad(result, leaf, slope)
        found.append((result.detach(), gradient))
    product, look_up = found
    return float((product[0] - look_up[0]).abs().max()), float((product[1] - look_up[1]).abs().max())


def milliseconds(work: Callable[[], object], times: int = 5) -> float:
    """The shortest of some runs."""

    def once() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return 1000 * min(once() for _ in range(times))


def times(words: int, tokens: int) -> tuple[float, float]:
    """Milliseconds for the vectors of some tokens: by a product with one-hot vectors, and by looking up."""
    ids, matrix = torch.arange(tokens) % words, embedding(words, D_MODEL, PAD).weight.detach()
    return milliseconds(lambda: one_hot(ids, words) @ matrix), milliseconds(lambda: F.embedding(ids, matrix))


@dataclass(frozen=True)
class Scaling:
    """What a Transformer multiplies its embeddings by, and mean norms."""

    factor: float
    row: float  # of the embedding
    word: float  # a row times the factor
    place: float  # what is added for the position


def scaling(d_model: int, seed: int) -> Scaling:
    """Seen from outside: an encoder without layers puts out what it takes in, W[id] sqrt(M) + PE."""
    torch.manual_seed(seed)
    config = TransformerConfig(d_model=d_model, encoder_layers=0, decoder_layers=0, dropout=0.0)
    model, ids = Transformer(config, vocabulary=200), torch.arange(3, 103)[None]
    with torch.no_grad():
        rows, places, entering = (
            model.source_embedding(ids)[0],
            sinusoids(ids.size(1), d_model),
            model.start(ids).memory,
        )
        assert entering is not None
        words = entering - places
    row, word, place = (float(x.norm(dim=-1).mean()) for x in (rows, words, places))
    return Scaling(float((words * rows).sum() / rows.square().sum()), row, word, place)


def judge_product(gaps: list[tuple[float, float]]) -> Verdict:
    results, gradients = (max(side) for side in zip(*gaps, strict=True))
    seen = results == 0 and gradients < 1e-5
    return Verdict(
        seen,
        f"One-hot vectors times a matrix and a look-up of its rows {'are the same' if seen else 'differ'}, for as many "
        f"words as tokens and for more: results differ by at most {results:.1g}, gradients by at most {gradients:.1g}.",
    )


def judge_similarity(one_hot_distances: Tensor, embedded_distances: Tensor) -> Verdict:
    spread, embedded = (float(x.max() - x.min()) for x in (one_hot_distances, embedded_distances))
    seen = spread < 1e-6 < embedded
    return Verdict(
        seen,
        f"One-hot vectors of different words are {'all equally far apart' if seen else 'not all equally far apart'}: "
        f"{float(one_hot_distances.min()):.4f} to {float(one_hot_distances.max()):.4f}. Rows of an embedding, here as "
        f"drawn at the start, lie {float(embedded_distances.min()):.4f} to {float(embedded_distances.max()):.4f} apart "
        "and can move.",
    )


def judge_scaling(found: Scaling, d_model: int) -> Verdict:
    seen = math.isclose(found.factor, math.sqrt(d_model), rel_tol=1e-4)
    return Verdict(
        seen,
        f"The Transformer multiplies its embeddings by {found.factor:.3f}, which is {'' if seen else 'not '}the root "
        f"of {d_model}, before it adds positions: a word has norm {found.word:.1f}, its position {found.place:.1f}.",
    )


def draw_product(figure: Any, ids: list[int], matrix: Tensor) -> None:
    hot = one_hot(torch.tensor(ids), len(matrix))
    limit = float(matrix.abs().max())
    panels = [
        ("one-hot vectors", hot, {"cmap": "Blues", "vmin": 0, "vmax": 1.5}, "word", "token", ids),
        ("the matrix", matrix, {"cmap": "PuOr", "vmin": -limit, "vmax": limit}, "number", "word", range(len(matrix))),
        ("their product", hot @ matrix, {"cmap": "PuOr", "vmin": -limit, "vmax": limit}, "number", "token", ids),
    ]
    for axes, (title, values, colours, across, down, labels) in zip(figure.subplots(1, 3), panels, strict=True):
        axes.imshow(values.numpy(), **colours)
        for y, row in enumerate(values.tolist()):
            for x, value in enumerate(row):
                text = f"{value:.0f}" if values is hot else f"{value:.1f}"
                axes.text(x, y, text, ha="center", va="center", fontsize=7,
                          color="white" if values is not hot and abs(value) > 0.7 * limit else "black")  # fmt: skip
        axes.set_title(title, fontsize=10)
        axes.set_xticks(range(values.size(1)))
        axes.set_yticks(range(len(values)), [f"word {id}" for id in labels] if down == "token" else list(labels))
        axes.set_xlabel(across, fontsize=9)
        axes.set_ylabel(down, fontsize=9)
        axes.tick_params(length=0, labelsize=8)


def draw_stored(figure: Any) -> None:
    axes = figure.subplots()
    vocabularies = [100, D_MODEL, 1_000, 3_000, WORDS, 37_000, 100_000]
    for index, (name, numbers) in enumerate(
        zip(["one-hot", f"embedding of size {D_MODEL}"], zip(*(stored(v, D_MODEL) for v in vocabularies), strict=True),
            strict=True)
    ):  # fmt: skip
        axes.loglog(vocabularies, numbers, label=name, **style(index))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("words in the dictionary")
    axes.set_ylabel("numbers for all words")
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(frameon=False)


def run(effort: Effort) -> Findings:
    seed = effort.seeds[0]
    torch.manual_seed(seed)
    puppy = one_hot(torch.tensor(PUPPY), WORDS)
    gaps = [differences(words, TOKENS, seed) for words in VOCABULARIES]
    measured = [times(words, TOKENS) for words in VOCABULARIES]
    apart = torch.pdist(one_hot(torch.arange(100), 100)), torch.pdist(embedding(101, D_MODEL, PAD).weight[1:].detach())
    scaled = scaling(D_MODEL, seed)
    hot, dense = stored(WORDS, D_MODEL)
    small = torch.randn(7, 4, generator=torch.Generator().manual_seed(seed))
    zeros, ones = int((puppy == 0).sum()), int((puppy == 1).sum())
    return Findings(
        setting=f"{WORDS:,} words, d_model {D_MODEL}; {TOKENS} tokens are turned into vectors with the matrix that a "
        f"Transformer begins with; seed {seed}. Times are the shortest of five on one machine.",
        verdicts=(
            judge_product(gaps),
            Verdict(
                dense < hot,
                f"{WORDS:,} one-hot vectors are {hot:,} numbers (word {PUPPY:,} is {zeros:,} zeros and "
                f"{ones} one), an embedding of size {D_MODEL} has {dense:,}: {hot / dense:.1f} times "
                f"{'fewer' if dense < hot else 'as many'}.",
            ),
            judge_similarity(*apart),
            judge_scaling(scaled, D_MODEL),
        ),
        tables=(
            Table(
                "The same vectors in two ways",
                ("words", "tokens", "largest difference", "of gradients", "product (ms)", "look-up (ms)"),
                tuple(
                    (words, TOKENS, *gap, *both) for words, gap, both in zip(VOCABULARIES, gaps, measured, strict=True)
                ),
            ),
            Table(
                "Numbers that stand for all words",
                ("words", "as one-hot vectors", f"as rows of {D_MODEL}"),
                tuple((words, *stored(words, D_MODEL)) for words in (D_MODEL, 1_000, WORDS, 37_000)),
            ),
            Table(
                "The factor in front of an embedding",
                ("d_model", "sqrt(d_model)", "measured", "norm of a row", "times the factor", "of a position"),
                ((D_MODEL, math.sqrt(D_MODEL), scaled.factor, scaled.row, scaled.word, scaled.place),),
            ),
        ),
        figures=(
            Figure(
                "one-hot-product",
                "Four tokens as one-hot vectors (left) times a matrix with a row for each of seven words (middle) are "
                "four rows of that matrix (right).",
                lambda figure: draw_product(figure, [2, 5, 0, 2], small),
                (9.0, 3.4),
            ),
            Figure(
                "numbers-stored",
                f"How many numbers stand for all words of a dictionary, by its size. Below {D_MODEL} words one-hot "
                "vectors would be the shorter ones.",
                draw_stored,
                (6.0, 4.0),
            ),
        ),
    )


EXPERIMENT = Experiment(
    title="One-hot vectors or a look-up",
    source="notes 001 (input embedding) and 004 (word embedding); section 3.4",
    claim="A one-hot vector per word wastes space and says nothing of similarity. An embedding gives the same result "
    "as a linear layer on one-hot vectors, without them; it is multiplied by the root of d_model. (Note 001 allows the "
    "linear layer only where there are as many words as tokens.)",
    run=run,
)
