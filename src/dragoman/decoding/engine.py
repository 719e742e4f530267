"""Define the contract between the translator and the engines that search for it: ids in, hypotheses out."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.decoding.processors import Dropped
from dragoman.decoding.search import Hypothesis, Observer, Steps
from dragoman.errors import DragomanError


@dataclass(frozen=True)
class Constraints:
    """Say what the output for one source must contain and must not contain."""

    prefix: tuple[int, ...] = ()  # it begins with these tokens
    forbidden: tuple[tuple[int, ...], ...] = ()  # it has none of these sequences of tokens
    tag: tuple[int, ...] = ()  # it begins with these, before the prefix; given, they do not count for scores


UNCONSTRAINED = Constraints()

NO_PROBABILITIES = "the probabilities of the model are not numbers: its weights are damaged"


def most_tokens(source: Ids, config: SearchConfig, given: Constraints, max_positions: int | None) -> int:
    """Return how many tokens the output for a source may have, EOS and what it has to begin with included.

    max_positions: the most that the model takes; None: any number.
    """
    length = len(given.tag) + len(given.prefix) + len(source) + config.extra_length
    return min(length, max_positions or length)


def require_numbers(values: Tensor) -> None:
    """Raise DragomanError where a value that a model has computed is not a number, as from damaged weights."""
    if values.isnan().any():
        raise DragomanError(NO_PROBABILITIES)


def require_probabilities(results: Sequence[Sequence[Hypothesis]], dropped: Collection[int] = ()) -> None:
    """Raise DragomanError where a sentence has no hypothesis, or one without a finite score, as from damaged weights.

    results: the hypotheses of each sentence; dropped: the sentences whose results mean nothing.
    """
    for sentence, hypotheses in enumerate(results):
        if sentence not in dropped and not (hypotheses and all(math.isfinite(each.score) for each in hypotheses)):
            raise DragomanError(NO_PROBABILITIES)


class Engine(Protocol):
    """Search for the translations of sources, all of them as token ids."""

    max_positions: int | None
    "the most source tokens that it takes, EOS included; None: any number"

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
        """Find the best hypotheses for each source, in one batch.

        A sentence that `dropped` names between two steps ends, and its result means nothing.
        """
        ...
