"""Look up what a memory knows of the next token, and mix it with what the model says.

Shapes: R hypotheses, M numbers of the decoder's output, k neighbours, W words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragoman.memory.index import Index
from dragoman.memory.states import Floats, Ints, Reduction
from dragoman.memory.weighting import NEIGHBOURS, Weighting, token_shares

LEAST_SHARE = 1e-30  # its logarithm changes nothing


@dataclass(frozen=True)
class States:
    """States of a memory: an index of their keys, and the token and the pair (N,) of each."""

    index: Index
    tokens: Ints
    pairs: Ints

    @classmethod
    def from_keys(cls, keys: Floats, tokens: Ints, pairs: Ints) -> "States":
        """Return the states with these keys (N, r)."""
        index, order = Index.from_keys(keys)
        return cls(index, tokens[order], pairs[order])


@dataclass(frozen=True)
class Neighbours:
    """The states nearest to each of some vectors, all (R, k), the nearest first."""

    distances: Floats  # squared; infinite for none
    tokens: Ints
    pairs: Ints
    shares: NDArray[np.float64]  # of the memory's probability
    token_shares: NDArray[np.float64]  # the shares of all neighbours with the same token
    weight: NDArray[np.float64]  # (R,): of the memory beside the model


@dataclass(frozen=True)
class Recollection:
    """What a memory knows at one time."""

    reduction: Reduction
    weighting: Weighting
    parts: Sequence[States]  # at least one
    forgotten: NDArray[np.bool_]  # by pair

    def neighbours(self, vectors: Floats, count: int = NEIGHBOURS) -> Neighbours:
        """Return the states nearest to each of the vectors (R, M), with what they count."""
        keys = self.reduction(vectors)
        columns: list[tuple[Floats, Ints, Ints]] = []
        for part in self.parts:
            distances, numbers = part.index.search(keys, count)
            pairs = part.pairs[numbers]
            columns.append((np.where(self.forgotten[pairs], np.inf, distances), part.tokens[numbers], pairs))
        distances, tokens, pairs = (np.concatenate(column, 1) for column in zip(*columns, strict=True))
        order = np.argsort(distances, 1, kind="stable")[:, :count]
        distances, tokens, pairs = (np.take_along_axis(each, order, 1) for each in (distances, tokens, pairs))
        shares = self.weighting.neighbours(distances)
        same = token_shares(tokens, shares)
        weight = self.weighting.memory(distances[:, 0], same.max(1))
        return Neighbours(distances, tokens, pairs, shares, same, weight)

    def mix(self, log_p: Tensor, vectors: Tensor) -> Tensor:
        """Return the log-probabilities (R, W) of words, mixed with those of the memory. See `Recall.mix`.

        Where the memory has no weight, they keep their bits.
        """
        if not self.parts:
            return log_p
        near = self.neighbours(vectors.float().cpu().numpy())
        rows = near.weight.nonzero()[0]
        if not len(rows):
            return log_p
        weight = near.weight[rows]
        shares = np.log(np.maximum(weight[:, None] * near.token_shares[rows], LEAST_SHARE))
        row, token, share, of_model = (
            torch.from_numpy(each).to(log_p.device) for each in (rows, near.tokens[rows], shares, np.log1p(-weight))
        )
        log_p[row] += of_model[:, None].to(log_p.dtype)
        row = row[:, None].expand(token.shape)
        log_p[row, token] = torch.logaddexp(log_p[row, token], share.to(log_p.dtype))
        return log_p
