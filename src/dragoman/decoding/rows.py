"""Keep track of the rows of a pool: who asks for them, which are searched together, and what was found.

A row is what an engine searches for: one source with its settings and constraints. Equal rows have equal results.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Condition
from typing import NamedTuple

from dragoman.config import SearchConfig
from dragoman.decoding.engine import Constraints
from dragoman.decoding.processors import Dropped
from dragoman.decoding.search import Hypothesis, Steps
from dragoman.errors import DragomanError

# Bytes that Python takes, rounded up: for a row with its settings, for a hypothesis or a sequence, for a token.
ROW_BYTES, SEQUENCE_BYTES, TOKEN_BYTES = 2048, 320, 40


class Late(DragomanError):
    """A request was not answered by its deadline."""


class Gone(DragomanError):
    """A request was cancelled, or the pool was closed."""


class Ticket:
    """One request: how long it may take, and whether it was cancelled."""

    def __init__(self, deadline: float = math.inf, *, bulk: bool = False, clock: Callable[[], float] = time.monotonic):
        """Take the seconds that the request may take from now on; bulk: it lets those that are not bulk go first."""
        self.deadline, self.bulk, self.clock, self.began = deadline, bulk, clock, clock()
        self.cancelled = False

    def cancel(self) -> None:
        """Leave. The next search, or one in progress as soon as a step is over, raises Gone."""
        self.cancelled = True

    @property
    def left(self) -> float:
        """The seconds until its deadline; negative after it."""
        return self.began + self.deadline - self.clock()

    @property
    def over(self) -> bool:
        """Whether it was cancelled or is late."""
        return self.cancelled or self.left <= 0

    def check(self) -> None:
        """Raise Gone if it was cancelled, Late after its deadline."""
        if self.cancelled:
            raise Gone("the request was cancelled")
        if self.left <= 0:
            raise Late(f"the translation took longer than {self.deadline:g} seconds")


class Row(NamedTuple):
    """The ids of a source without EOS, and what the engine is told about them."""

    ids: tuple[int, ...]
    config: SearchConfig
    constraints: Constraints
    version: int = 0  # of what the engine remembers

    @property
    def tokens(self) -> int:
        """The tokens of the source, EOS included."""
        return len(self.ids) + 1

    @property
    def size(self) -> int:
        """About how many bytes it takes, rather too many."""
        sequences = [self.ids, self.constraints.prefix, *self.constraints.forbidden]
        return ROW_BYTES + sum(SEQUENCE_BYTES + TOKEN_BYTES * len(sequence) for sequence in sequences)


@dataclass(eq=False)
class Asked:
    """A row that was asked for, by one search or by several, until its result is there."""

    row: Row
    searches: set["Search"] = field(default_factory=set)  # who waits for it
    left: float = 0.0  # when the last of them left
    started: bool = False  # whether it is in a batch
    alone: bool = False  # whether it must be searched alone, since a batch with it failed
    hypotheses: list[Hypothesis] | None = None

    def may_join(self, other: "Asked") -> bool:
        return not (self is other or self.alone or other.alone or self.row.config != other.row.config)


class Size(NamedTuple):
    """How much a request asks for at once."""

    rows: int
    tokens: int  # of the longest row

    def like(self, other: "Size") -> bool:
        """Return whether neither has more than twice as many rows as the other, or rows more than twice as long."""
        return all(max(pair) <= 2 * min(pair) for pair in zip(self, other, strict=True))

    def near(self, other: "Size") -> bool:
        """Return whether each takes less than eight times as many tokens, with padding, as the other."""
        size, other_size = self.rows * self.tokens, other.rows * other.tokens
        return max(size, other_size) < 8 * min(size, other_size)


@dataclass(eq=False)
class Search:
    """One call of `Engine.search`: the rows that it asks for."""

    ticket: Ticket
    since: float  # when it came
    changed: Condition  # is told when the search is over
    rows: list[Asked] = field(default_factory=list)
    open: set[Asked] = field(default_factory=set)  # those without a result
    waiting: dict[Asked, None] = field(default_factory=dict)  # those that are in no batch, in order
    tokens: int = 0  # of all rows that had no result when they were asked for
    error: Exception | None = None

    def size(self, max_tokens: int) -> Size:
        """Return the size of its next batch, which has at most so many tokens with padding; some row must wait."""
        longest = max(asked.row.tokens for asked in self.waiting)
        return Size(min(len(self.waiting), max(1, max_tokens // longest)), longest)

    def waited(self, now: float) -> float:
        """Return the seconds since it came for each token that it asks for; some row must have no result."""
        return (now - self.since) / self.tokens

    def add(self, asked: Asked) -> None:
        self.rows.append(asked)
        if asked.hypotheses is None:
            asked.searches.add(self)
            self.open.add(asked)
            self.tokens += asked.row.tokens
            if not asked.started:
                self.waiting[asked] = None


@dataclass(eq=False)
class Batch:
    """Rows that are searched together."""

    rows: list[Asked]
    steps: Steps
    dropped: Dropped
    search: Search  # whose turn it was
    size: Size  # of that search
    start: float  # how long each batch beside it had been stepped when it began, see `due`
    seconds: float = 0.0  # that its steps took so far
    step: float = 0.0  # and the latest one

    @property
    def tokens(self) -> int:
        """The tokens of its sources, without padding."""
        return sum(asked.row.tokens for asked in self.rows)

    @property
    def due(self) -> float:
        """When its next step ends, on a clock that goes on by as much as each of the batches is stepped."""
        return self.start + self.seconds + self.step

    @property
    def bulk(self) -> bool:
        """Whether it lets other batches go first: no request waits for it that is not bulk."""
        return all(search.ticket.bulk for asked in self.rows for search in asked.searches)


def nearest_in_length(first: Asked, others: Iterable[Asked], max_tokens: int, max_rows: int) -> list[Asked]:
    """Return a row, and those of the others nearest in length that may join it.

    They have at most `max_tokens` with padding, and there are at most `max_rows`. No row is twice among the others.
    """
    chosen, longest = [first], first.row.tokens
    alike = [asked for asked in others if first.may_join(asked)]
    for asked in sorted(alike, key=lambda asked: abs(asked.row.tokens - first.row.tokens)):
        longest = max(longest, asked.row.tokens)
        if len(chosen) == max_rows or (len(chosen) + 1) * longest > max_tokens:
            break
        chosen.append(asked)
    return chosen


class Cache:
    """The latest results, as many as fit into `limit` bytes; those that were asked for longest ago go first."""

    def __init__(self, limit: int):
        self.limit, self.size = limit, 0
        self.results: dict[Row, list[Hypothesis]] = {}  # the latest last

    def get(self, row: Row) -> list[Hypothesis] | None:
        """Return the result for a row; None where it is not there."""
        hypotheses = self.results.pop(row, None)
        if hypotheses is not None:
            self.results[row] = hypotheses
        return hypotheses

    def put(self, row: Row, hypotheses: list[Hypothesis]) -> None:
        """Keep the result for a row that is not there yet, unless it is larger than the cache."""
        if bytes_of(row, hypotheses) > self.limit:
            return
        self.results[row] = hypotheses
        self.size += bytes_of(row, hypotheses)
        while self.size > self.limit:
            oldest = next(iter(self.results))
            self.size -= bytes_of(oldest, self.results.pop(oldest))


def bytes_of(row: Row, hypotheses: Sequence[Hypothesis]) -> int:
    """Return about how many bytes a result takes with its row, rather too many."""
    return row.size + sum(SEQUENCE_BYTES + TOKEN_BYTES * len(hypothesis.tokens) for hypothesis in hypotheses)
