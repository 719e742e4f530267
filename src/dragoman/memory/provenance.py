"""Name the approved pairs that speak for each token of a translation."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dragoman.memory.recall import SourceRecall
from dragoman.memory.states import Vectors


class Share(NamedTuple):
    """What a pair has of a token, from 0 to 1."""

    probability: float  # of that of model and memory together; the rest is the model's own, and that of other pairs
    neighbours: float  # of all that is near, whatever the weight of the memory


NONE = Share(0.0, 0.0)
Shares = dict[int, Share]
"""By the number of the pair, the largest first."""


def token_origins(recall: SourceRecall, read: Vectors) -> list[Shares]:
    """Return for each token of translations of some sources the pairs that speak for it."""
    if not recall.recollection.parts:
        return [{} for _ in read.tokens]
    near = recall.recollection.neighbours(read.vectors, read.pairs, recall.likeness)
    shares = np.where(near.tokens == read.tokens[:, None], near.shares, 0.0)
    of_memory = near.weight[:, None] * shares
    total = (1 - near.weight) * np.exp(read.log_p.astype(np.float64)) + of_memory.sum(1)
    origins: list[Shares] = []
    columns = (each.tolist() for each in (near.pairs, of_memory / total[:, None], shares))
    for of_token in zip(*columns, strict=True):
        sums: Shares = {}
        for pair, probability, neighbours in zip(*of_token, strict=True):
            if neighbours:
                before = sums.get(pair, NONE)
                sums[pair] = Share(before.probability + probability, before.neighbours + neighbours)
        origins.append(sums)
    return origins


def mean_shares(of_tokens: Sequence[Shares]) -> Shares:
    """Return the shares of a word from those of its tokens, the largest first."""
    means: Shares = {}
    for number in {number for shares in of_tokens for number in shares}:
        probabilities, neighbours = zip(*(shares.get(number, NONE) for shares in of_tokens), strict=True)
        means[number] = Share(sum(probabilities) / len(of_tokens), sum(neighbours) / len(of_tokens))
    return dict(sorted(means.items(), key=lambda item: (-item[1].neighbours, item[0])))


def join_shares(first: Shares, second: Shares) -> Shares:
    """Return the shares of a word of which two parts have shares of their own."""
    return mean_shares([first, second]) if first and second else first or second
