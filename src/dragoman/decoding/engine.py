"""What the translator asks of whatever searches: ids in, hypotheses out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.decoding.search import Hypothesis

Term = tuple[tuple[int, ...], ...]
"""What has to stand in an output: one of several sequences of tokens."""


@dataclass(frozen=True)
class Constraints:
    """What the output for one source must and must not be."""

    prefix: tuple[int, ...] = ()  # it begins with these tokens
    terms: tuple[Term, ...] = ()  # it has all of these
    forbidden: tuple[tuple[int, ...], ...] = ()  # it has none of these sequences of tokens


UNCONSTRAINED = Constraints()


class Engine(Protocol):
    max_positions: int | None
    "the most source tokens that it takes, the end included; None: any number"

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        """For each source (ids without an end) the best `config.n_best` hypotheses, the best first.

        `constraints`: one for each source. What one source gets does not depend on the others. Raises UsageError naming
        a setting or constraint that this engine does not know.
        """
        ...


def batches(rows: Iterable[int], sources: Sequence[Ids], places: int) -> Iterator[list[int]]:
    """Those of `rows` that are searched for together: of similar length, at most `places` tokens with ends and padding.

    A source that is longer than that goes alone.
    """
    batch: list[int] = []
    for row in sorted(rows, key=lambda row: len(sources[row])):
        if batch and (len(batch) + 1) * (len(sources[row]) + 1) > places:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
