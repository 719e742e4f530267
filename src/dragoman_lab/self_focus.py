"""Without query and key matrices every word looks at itself."""

from collections.abc import Callable

import torch
from torch import Tensor

from dragoman.model.attention import explicit_attention
from dragoman_lab.drawing import HeatMap, heat_maps
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment

SENTENCE = ("I", "go", "home")
SIZES = (4, 64, 512)
LENGTHS = (3, 10, 30)
SHOWN = 64  # the size of the vectors in the heat maps and in the claims

Scores = Callable[[Tensor, torch.Generator], Tensor]  # words (B, S, M) -> weights (B, S, S)


def attention_weights(query: Tensor, key: Tensor) -> Tensor:
    """Return the attention weights (..., T, S) of queries (..., T, K) and keys (..., S, K): the model's kernel, which
    divides scores by sqrt(K), with the identity as values.
    """
    return explicit_attention(query, key, torch.eye(key.size(-2)).expand(*key.shape[:-2], -1, -1))


def random_matrices(x: Tensor, random: torch.Generator) -> Tensor:
    """Return a random matrix for each sentence of x (B, S, M), (B, M, M), that keeps the size of vectors."""
    return torch.randn(len(x), x.size(-1), x.size(-1), generator=random) * x.size(-1) ** -0.5


def raw_weights(x: Tensor, random: torch.Generator) -> Tensor:
    """Return the weights of words for one another without any matrix or division. `random` is not used."""
    return attention_weights(x * x.size(-1) ** 0.5, x)  # undoes the kernel's division


def scaled_weights(x: Tensor, random: torch.Generator) -> Tensor:
    """Return the weights of words for one another without any matrix. `random` is not used."""
    return attention_weights(x, x)


def projected_weights(x: Tensor, random: torch.Generator) -> Tensor:
    """Return the weights after random matrices, one for queries and another one for keys."""
    return attention_weights(x @ random_matrices(x, random), x @ random_matrices(x, random))


def alike_projected_weights(x: Tensor, random: torch.Generator) -> Tensor:
    """Return the weights after one random matrix for queries and keys: a word's own score is then the square of a
    length, and stays the largest.
    """
    both = x @ random_matrices(x, random)
    return attention_weights(both, both)


RAW, SCALED, PROJECTED, ALIKE = "raw", "divided by sqrt(d)", "with W^Q and W^K", "with one matrix, W^Q = W^K"
WAYS: dict[str, Scores] = {
    RAW: raw_weights,
    SCALED: scaled_weights,
    PROJECTED: projected_weights,
    ALIKE: alike_projected_weights,
}


def mean_own_weight(way: Scores, words: int, size: int, sentences: int, seed: int) -> float:
    """Return the mean weight of a word for itself, over sentences of random words (normally distributed numbers).
    words: in a sentence; size: numbers in a word.
    """
    random, total, chunk = torch.Generator().manual_seed(seed), 0.0, max(1, 2**21 // size**2)
    for start in range(0, sentences, chunk):
        count = min(chunk, sentences - start)
        shares = way(torch.randn(count, words, size, generator=random), random)
        total += float(shares.diagonal(dim1=-2, dim2=-1).mean()) * count
    return total / sentences


def claims(to_itself: dict[str, float], even: float) -> Claims:
    """Return each claim and whether it holds. to_itself: mean weight of a word for itself, by the way scores are made;
    even: what it is with equal shares.
    """
    return {
        f"Without matrices a word of 64 numbers gives itself {to_itself[RAW]:.3f} of its attention on average "
        f"({to_itself[SCALED]:.3f} when scores are divided by the root of the size): [its output holds only its own "
        "information|the other words contribute as well].": to_itself[RAW] > 0.99,
        f"With two different random matrices W^Q and W^K it gives itself {to_itself[PROJECTED]:.3f}, [about as much as "
        "each|not as much as each] of the other two words: [what to attend to can then be learned|the matrices do not "
        "cure it].": abs(to_itself[PROJECTED] - even) < 0.05,
        f"With the same matrix for queries and keys it gives itself {to_itself[ALIKE]:.3f}: [the cure is that the two "
        "differ|one matrix would be enough].": to_itself[ALIKE] > 2 * even,
    }


@experiment(
    "Words that attend to themselves",
    "common teaching",
    "When words are compared as they are, x_i . x_i is usually much larger than x_i . x_j, so each word attends to "
    "itself, and the output keeps only its own information. Separate matrices for query, key and value cure this.",
)
def run(effort: Effort) -> Findings:
    """Measure how much of its attention a word of random sentences gives itself, with and without matrices."""
    sentences, seed = effort.scale(2000) * len(effort.seeds), effort.seeds[0]
    fewer = max(1, sentences // 10)  # of the largest vectors, whose matrices are large
    to_itself = {
        (name, words, size): mean_own_weight(way, words, size, fewer if size == max(SIZES) else sentences, seed)
        for words in LENGTHS
        for size in SIZES
        for name, way in WAYS.items()
    }
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(1, len(SENTENCE), SHOWN, generator=random)
    maps = [
        HeatMap(way(x, random)[0], name, SENTENCE, SENTENCE, ".2f", "key", "query", 1) for name, way in WAYS.items()
    ]
    return Findings(
        f"{sentences} sentences of random words ({fewer} with vectors of {max(SIZES)} numbers). Vectors are normally "
        f"distributed, and matrices too, with a standard deviation of 1/sqrt(d); first seed {seed}.",
        claims({name: to_itself[name, len(SENTENCE), SHOWN] for name in WAYS}, 1 / len(SENTENCE)),
        {
            "A word's mean weight for itself": Table(
                "scores | words | size of a vector (d) | weight for itself | equal shares",
                [(*key, weight, 1 / key[1]) for key, weight in to_itself.items()],
            )
        },
        {
            "self-focus": Figure(
                f"Attention weights of one sentence of random vectors of {SHOWN} numbers; each row sums to 1.",
                heat_maps(*maps, colorbar="weight"),
            )
        },
    )
