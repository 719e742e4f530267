"""Define the contract between the translator and the engines that search for it: ids in, hypotheses out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.decoding.processors import Dropped
from dragoman.decoding.search import Hypothesis, Observer, Steps

Term = tuple[tuple[int, ...], ...]
"""What an output must contain: one of several sequences of tokens."""


@dataclass(frozen=True)
class Constraints:
    """Say what the output for one source must contain and must not contain."""

    prefix: tuple[int, ...] = ()  # it begins with these tokens
    terms: tuple[Term, ...] = ()  # it has all of these
    forbidden: tuple[tuple[int, ...], ...] = ()  # it has none of these sequences of tokens
    tag: tuple[int, ...] = ()  # it begins with these, before the prefix; given, they do not count for scores


UNCONSTRAINED = Constraints()


class Engine(Protocol):
    """Search for the translations of sources, all of them as token ids."""

    max_positions: int | None
    "the most source tokens that it takes, EOS included; None: any number"
    forces_terms: bool
    "whether it honours the constraint `terms`"

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        """Return the best `config.n_best` hypotheses for each source (ids without EOS), the best first.

        `constraints`: one for each source. The result for one source does not depend on the others. Raise UsageError
        naming a setting or constraint that this engine does not support.
        """
        ...


@runtime_checkable
class SteppedEngine(Engine, Protocol):
    """An engine that takes its searches step by step, so that several of them can take turns."""

    def search_batch(
        self,
        sources: Sequence[Ids],
        config: SearchConfig,
        constraints: Sequence[Constraints],
        observe: Observer | None = None,
        dropped: Dropped | None = None,
    ) -> Steps:
        """Find the best hypotheses for each source, in one batch whose sources all have terms, or none of them.

        A sentence that `dropped` names between two steps ends, and its result means nothing.
        """
        ...
