"""Look up what a memory knows of the next token, and mix it with what the model says.

Shapes: B sources, R hypotheses, M numbers of the decoder's output, k neighbours, W words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragoman.data.batches import Ids
from dragoman.memory.index import FAR, Index
from dragoman.memory.phrases import Likeness, Phrases
from dragoman.memory.states import Floats, Ints, Reduction
from dragoman.memory.weighting import LEAST, NEIGHBOURS, Weighting, token_shares

NOTHING = 1e-300  # a probability that changes none


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

    def nearest(self, keys: Floats, count: int) -> tuple[Floats, Ints, Ints]:
        """Return the distances, tokens and pairs (R, count) of the states nearest to keys (R, r); see `Index`."""
        distances, numbers = self.index.search(keys, count)
        return distances, self.tokens[numbers], self.pairs[numbers]


@dataclass(frozen=True)
class Neighbours:
    """The states nearest to each of some vectors, all (R, k), the nearest first."""

    distances: Floats  # squared; FAR for none
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
    parts: Sequence[States]  # those on the disk and later ones; none for an empty memory
    phrases: Sequence[Phrases]  # of the sources of both
    forgotten: NDArray[np.bool_]  # by pair

    def recall(self, sources: Sequence[Ids]) -> "SourceRecall":
        """Return what the memory knows of some sources (ids without EOS)."""
        return SourceRecall(self, Likeness.measure(sources, self.phrases, len(self.forgotten)))

    def neighbours(self, vectors: Floats, rows: Ints, likeness: Likeness, count: int = NEIGHBOURS) -> Neighbours:
        """Return the states nearest to each of the vectors (R, M), with what they count.

        rows (R,): which of the sources each is of.
        """
        keys = self.reduction(vectors)
        near = [part.nearest(keys, count) for part in self.parts]
        distances, tokens, pairs = near[0] if len(near) == 1 else map(np.hstack, zip(*near, strict=True))
        in_order = len(near) == 1
        if self.has_forgotten and (hidden := self.forgotten[pairs]).any():
            distances, in_order = np.where(hidden, FAR, distances), False
        if not in_order:
            order = np.argsort(distances, 1, kind="stable")[:, :count]
            distances, tokens, pairs = (np.take_along_axis(each, order, 1) for each in (distances, tokens, pairs))
        shares = self.weighting.neighbours(distances, likeness.shared[rows[:, None], pairs])
        same = token_shares(tokens, shares)
        weight = self.weighting.memory(distances[:, 0], same.max(1), likeness.known[rows])
        return Neighbours(distances, tokens, pairs, shares, same, weight)

    @cached_property
    def has_forgotten(self) -> bool:
        """Whether a pair was forgotten."""
        return bool(self.forgotten.any())


@dataclass(frozen=True)
class SourceRecall:
    """What a memory knows at one time of some sources."""

    recollection: Recollection
    likeness: Likeness

    @cached_property
    def trusted(self) -> NDArray[np.bool_]:
        """For which sources (B,) the memory has any weight."""
        return self.recollection.weighting.trust(self.likeness.known) >= LEAST

    def mix(self, log_p: Tensor, vectors: Tensor, rows: Tensor) -> Tensor:
        """Return the log-probabilities (R, W) of words, mixed with those of the memory. See `Recall.mix`.

        Where the memory has no weight, they keep their bits.
        """
        if not self.recollection.parts:
            return log_p
        source = rows.cpu().numpy()
        there = np.flatnonzero(self.trusted[source])
        if not len(there):
            return log_p
        near = self.recollection.neighbours(vectors.float().cpu().numpy()[there], source[there], self.likeness)
        if not near.weight.any():
            return log_p
        # Rows without weight keep their bits: x + 0 and log(e^x + e^-inf) are x.
        shape = len(source), near.tokens.shape[1]
        tokens, of_memory = np.zeros(shape, np.int64), np.full(shape, -np.inf, np.float32)
        of_model = np.zeros((len(source), 1), np.float32)
        tokens[there] = near.tokens
        of_memory[there] = np.log(np.maximum(near.weight[:, None] * near.token_shares, NOTHING))
        of_model[there, 0] = np.log1p(-near.weight)
        words, kept = (torch.from_numpy(each).to(log_p.device) for each in (tokens, of_model))
        log_p += kept.to(log_p.dtype)
        # NumPy adds each number by itself. PyTorch takes 32 at once on some processors and the rest one by one, with
        # other last bits, which would then depend on the batch.
        gained = np.logaddexp(log_p.detach().gather(1, words).float().cpu().numpy(), of_memory)
        # Neighbours with the same token write the same number.
        log_p.scatter_(1, words, torch.from_numpy(gained).to(log_p))
        return log_p
