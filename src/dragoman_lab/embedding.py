"""Words as one-hot vectors times a matrix, or as rows that are looked up in it; and the factor sqrt(d_model)."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.config import TransformerConfig
from dragoman.data.tokenizer import PAD
from dragoman.model.embedding import word_embedding
from dragoman.model.positions import sinusoids
from dragoman.model.transformer import Transformer
from dragoman_lab.drawing import HeatMap, Panel, heat_maps, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment

WORDS, D_MODEL = 10_000, 512
VOCABULARIES = (64, 1_000, WORDS)
TOKENS = 64


def one_hot(ids: Tensor, words: int) -> Tensor:
    """Return one-hot vectors (..., words) of ids (...): a 1 at the index of the word, zeros elsewhere."""
    return F.one_hot(ids, words).to(torch.get_default_dtype())


def stored_numbers(words: int, d_model: int) -> tuple[int, int]:
    """Return how many numbers a vocabulary of so many words takes: as one-hot vectors, and as rows of size d_model."""
    return words * words, words * d_model


def one_hot_gaps(words: int, tokens: int, seed: int) -> tuple[float, float]:
    """Return the largest absolute differences between one-hot vectors times a matrix and a lookup of its rows: of the
    vectors, and of the gradients of the matrix. words: of the vocabulary; tokens: random ids to look up.
    """
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(words, (tokens,), generator=random)
    slope = torch.randn(tokens, D_MODEL, generator=random)
    matrix = word_embedding(words, D_MODEL, PAD).weight.detach()
    both = []
    for work in (lambda matrix: one_hot(ids, words) @ matrix, lambda matrix: F.embedding(ids, matrix)):
        leaf = matrix.clone().requires_grad_()
        result = work(leaf)
        (gradient,) = torch.autograd.grad(result, leaf, slope)
        both.append((result.detach(), gradient))
    product, look_up = both
    return float((product[0] - look_up[0]).abs().max()), float((product[1] - look_up[1]).abs().max())


def fastest_milliseconds(work: Callable[[], object], times: int = 5) -> float:
    """Call `work` so many times; return the milliseconds of the fastest call."""

    def once() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return 1000 * min(once() for _ in range(times))


def measure_times(words: int, tokens: int) -> tuple[float, float]:
    """Return the milliseconds it takes to turn so many ids into vectors, fastest of five: by a product with one-hot
    vectors, and by lookup. words: of the vocabulary.
    """
    ids, matrix = torch.arange(tokens) % words, word_embedding(words, D_MODEL, PAD).weight.detach()
    return fastest_milliseconds(lambda: one_hot(ids, words) @ matrix), fastest_milliseconds(
        lambda: F.embedding(ids, matrix)
    )


@dataclass(frozen=True)
class Scaling:
    """Give the factor by which a Transformer multiplies its embeddings, and mean norms of vectors."""

    factor: float
    row: float  # of the embedding
    word: float  # a row times the factor
    position: float  # what is added for it


def measure_scaling(d_model: int, seed: int) -> Scaling:
    """Measure the factor from outside: an encoder without layers returns its input, the row of the embedding times the
    factor plus the sinusoid.
    """
    torch.manual_seed(seed)
    config = TransformerConfig(d_model=d_model, encoder_layers=0, decoder_layers=0, dropout=0.0)
    model, ids = Transformer(config, vocabulary=200), torch.arange(3, 103)[None]
    with torch.no_grad():
        rows, positions = model.source_embedding(ids)[0], sinusoids(ids.size(1), d_model)
        entering = model.start(ids).memory
        assert entering is not None
        words = entering - positions
    norms = (float(x.norm(dim=-1).mean()) for x in (rows, words, positions))
    return Scaling(float((words * rows).sum() / rows.square().sum()), *norms)


def claims(
    gaps: list[tuple[float, float]],  # of results and gradients
    hot: int,  # how many numbers stand for all words, as one-hot vectors
    dense: int,  # and as an embedding
    one_hot_distances: Tensor,  # between pairs of words, as one-hot vectors
    embedded_distances: Tensor,  # and as rows of an embedding
    scaling: Scaling,
) -> Claims:
    """Return each claim and whether it holds."""
    forward, gradients = (max(side) for side in zip(*gaps, strict=True))
    hot_range, row_range = ((float(x.min()), float(x.max())) for x in (one_hot_distances, embedded_distances))
    return {
        "One-hot vectors times a matrix and a lookup of its rows [are the same|differ], whether there are as many "
        f"words as tokens or more: results differ by at most {forward:.1g}, gradients by at most "
        f"{gradients:.1g}.": forward == 0 and gradients < 1e-5,
        "An embedding of size 512 [takes less space|does not take less space] than one-hot vectors: 10,000 words take "
        f"{hot:,} numbers as one-hot vectors and {dense:,} as rows, {hot / dense:.1f} times fewer.": dense < hot,
        f"One-hot vectors of different words are [all|not all] equally far apart: {hot_range[0]:.4f} to "
        f"{hot_range[1]:.4f}. Rows of an embedding, here as drawn at the start, are {row_range[0]:.4f} to "
        f"{row_range[1]:.4f} apart, and training can move "
        "them.": hot_range[1] - hot_range[0] < 1e-6 < row_range[1] - row_range[0],
        f"The Transformer multiplies its embeddings by {scaling.factor:.3f}, which is [the root|not the root] of 512, "
        f"before it adds positions: a word has norm {scaling.word:.1f}, its position "
        f"{scaling.position:.1f}.": math.isclose(scaling.factor, math.sqrt(D_MODEL), rel_tol=1e-4),
    }


@experiment(
    "One-hot vectors or a lookup",
    "section 3.4",
    "A one-hot vector per word wastes space and says nothing about similarity. An embedding gives the same result as a "
    "linear layer on one-hot vectors, but does not need them; it is multiplied by the root of d_model.",
)
def run(effort: Effort) -> Findings:
    """Compare one-hot products with lookups, and measure the factor in front of embeddings."""
    seed = effort.seeds[0]
    torch.manual_seed(seed)
    gaps = [one_hot_gaps(words, TOKENS, seed) for words in VOCABULARIES]
    measured = [measure_times(words, TOKENS) for words in VOCABULARIES]
    apart = (
        torch.pdist(one_hot(torch.arange(100), 100)),
        torch.pdist(word_embedding(101, D_MODEL, PAD).weight[1:].detach()),
    )
    scaled = measure_scaling(D_MODEL, seed)
    matrix = torch.randn(7, 4, generator=torch.Generator().manual_seed(seed))
    sizes = [100, D_MODEL, 1_000, 3_000, WORDS, 37_000, 100_000]
    curves = {"one-hot": (sizes, [stored_numbers(v, D_MODEL)[0] for v in sizes]),
              f"embedding of size {D_MODEL}": (sizes, [stored_numbers(v, D_MODEL)[1] for v in sizes])}  # fmt: skip
    return Findings(
        f"{WORDS:,} words, d_model {D_MODEL}; {TOKENS} tokens are turned into vectors with the matrix that a "
        f"Transformer starts with; seed {seed}. Times are the shortest of five on one machine.",
        claims(gaps, *stored_numbers(WORDS, D_MODEL), *apart, scaled),
        {
            "The same vectors in two ways": Table(
                "words | tokens | largest difference | of gradients | product (ms) | lookup (ms)",
                [(words, TOKENS, *gap, *both) for words, gap, both in zip(VOCABULARIES, gaps, measured, strict=True)],
            ),
            "Numbers that stand for all words": Table(
                f"words | as one-hot vectors | as rows of {D_MODEL}",
                [(words, *stored_numbers(words, D_MODEL)) for words in (D_MODEL, 1_000, WORDS, 37_000)],
            ),
            "The factor in front of an embedding": Table(
                "d_model | sqrt(d_model) | measured | norm of a row | times the factor | of a position",
                [(D_MODEL, math.sqrt(D_MODEL), *vars(scaled).values())],
            ),
        },
        {
            "one-hot-product": Figure(
                "Four one-hot vectors (left) times a matrix (middle) are four rows of that matrix (right).",
                heat_maps(*product_maps([2, 5, 0, 2], matrix)),
            ),
            "numbers-stored": Figure(
                f"Numbers needed for all words of a dictionary. Below {D_MODEL} words, one-hot vectors would be "
                "shorter.",
                lines(Panel(curves, "words in the dictionary", "numbers for all words", log="xy")),
            ),
        },
    )


def product_maps(ids: list[int], matrix: Tensor) -> list[HeatMap]:
    """Return heat maps of the one-hot vectors of some ids, of a matrix, and of their product, the rows of the matrix at
    these ids.
    """
    hot, most = one_hot(torch.tensor(ids), len(matrix)), float(matrix.abs().max())
    words, numbers, tokens = range(len(matrix)), range(matrix.size(1)), [f"word {id}" for id in ids]
    return [
        HeatMap(hot, "one-hot vectors", tokens, words, ".0f", "word", "token", 1.6),
        HeatMap(matrix, "the matrix", words, numbers, ".1f", "number", "word", most, signed=True),
        HeatMap(hot @ matrix, "their product", tokens, numbers, ".1f", "number", "token", most, signed=True),
    ]
