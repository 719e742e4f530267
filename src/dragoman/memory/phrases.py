"""Say how much of a source a memory knows, and which of its pairs are like it: by phrases of two tokens.

Rare phrases say more: each counts as much as its smooth inverse document frequency, 1 + ln((1 + n) / (1 + n_phrase)),
for a memory of n pairs. Shapes: D phrases, E places of them, P pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragoman.data.batches import Ids
from dragoman.data.tokenizer import EOS
from dragoman.memory.states import Floats, Ints


def phrases_of(source: Ids) -> Ints:
    """Return numbers of the different phrases of a source (ids without EOS), its beginning and its end among them."""
    ids = np.array([EOS, *source, EOS], np.int64)
    return np.unique(ids[:-1] << 32 | ids[1:])


@dataclass(frozen=True)
class Phrases:
    """The phrases of the sources of some pairs, and which pairs have each."""

    numbers: Ints  # (D,), sorted
    starts: Ints  # (D + 1,): where the pairs of each begin
    pairs: Ints  # (E,)
    count: int  # of all pairs

    @classmethod
    def from_sources(cls, sources: Sequence[Ids], pairs: Sequence[int]) -> "Phrases":
        """Return the phrases of sources, which are those of the pairs of these numbers."""
        each = [phrases_of(source) for source in sources]
        everything = np.concatenate(each) if each else np.zeros(0, np.int64)
        order = np.argsort(everything, kind="stable")
        numbers, starts = np.unique(everything[order], return_index=True)
        of_pairs = np.repeat(np.array(pairs, np.int64), [len(some) for some in each])
        return cls(numbers, np.append(starts, len(everything)), of_pairs[order].astype(np.int32), len(each))

    def are_whole(self, pairs: int) -> bool:
        """Return whether a search can rely on these, which are of pairs with numbers below `pairs`."""
        starts = self.starts
        return bool(
            self.numbers.dtype == starts.dtype == np.int64
            and self.pairs.dtype == np.int32
            and starts.shape == (len(self.numbers) + 1,)
            and starts[0] == 0
            and starts[-1] == len(self.pairs)
            and (np.diff(starts) >= 0).all()
            and (np.diff(self.numbers) > 0).all()
            and (self.pairs >= 0).all()
            and (self.pairs < pairs).all()
        )

    def find(self, wanted: Ints) -> tuple[Ints, Ints]:
        """Return where the pairs of each wanted phrase begin and end; the same place for a phrase that is not there."""
        places = np.searchsorted(self.numbers, wanted)
        there = self.numbers[np.minimum(places, len(self.numbers) - 1)] == wanted if len(self.numbers) else places < 0
        begin = self.starts[np.where(there, places, 0)]
        return begin, np.where(there, self.starts[np.where(there, places + 1, 0)], begin)


@dataclass(frozen=True)
class Likeness:
    """How like the pairs of a memory some sources (B,) are, from 0 to 1."""

    known: NDArray[np.float64]  # (B,): the share of each source that any pair has
    shared: Floats  # (B, P): the share that each pair has

    @classmethod
    def measure(cls, sources: Sequence[Ids], parts: Sequence[Phrases], pairs: int) -> "Likeness":
        """Compare sources (ids without EOS) with all parts of a memory, whose pairs have numbers below `pairs`."""
        known, shared = np.zeros(len(sources)), np.zeros((len(sources), pairs), np.float32)
        everything = sum(part.count for part in parts)
        for row, source in enumerate(sources):
            wanted = phrases_of(source)
            places = [part.find(wanted) for part in parts]
            frequency = sum((end - begin for begin, end in places), np.zeros(len(wanted), np.int64))
            weight = 1 + np.log((1 + everything) / (1 + frequency))
            weight /= weight.sum()
            known[row] = weight[frequency > 0].sum()
            for part, (begin, end) in zip(parts, places, strict=True):
                for share, first, last in zip(weight.tolist(), begin.tolist(), end.tolist(), strict=True):
                    shared[row, part.pairs[first:last]] += share  # a pair has a phrase once
        return cls(known, shared)
