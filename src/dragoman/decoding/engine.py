"""Define the contract between the translator and the engines that search for it: ids in, hypotheses out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.decoding.search import Hypothesis

Term = tuple[tuple[int, ...], ...]
"""What an output must contain: one of several sequences of tokens."""


@dataclass(frozen=True)
class Constraints:
    """Say what the output for one source must contain and must not contain."""

    prefix: tuple[int, ...] = ()  # it begins with these tokens
    terms: tuple[Term, ...] = ()  # it has all of these
    forbidden: tuple[tuple[int, ...], ...] = ()  # it has none of these sequences of tokens


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
