"""Which share of the work a process does."""

import re
from dataclasses import dataclass

from dragoman.config import SearchConfig
from dragoman.errors import UsageError

MOST_SHARDS, LARGEST_BLOCK = 100_000, 1_000_000


@dataclass(frozen=True)
class Shard:
    """One of `count` equal shares of the blocks; `number` counts from 1."""

    number: int = 1
    count: int = 1


def shard_of(text: str | None, ray: bool) -> Shard:
    """'2/4' is the second of four; None is all. Raises UsageError."""
    if text is None:
        return Shard()
    if ray:
        raise UsageError("choose --shard or --ray: Ray shares out the blocks itself")
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    number, count = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= count <= MOST_SHARDS:
        raise UsageError(f"a shard is written 1/4, 2/4, 3/4 or 4/4 where there are four, not '{text}'")
    return Shard(number, count)


def check_shares(block: int, search: SearchConfig) -> None:
    """Raises UsageError where blocks or a search of this kind make no sense here."""
    if not 1 <= block <= LARGEST_BLOCK:
        raise UsageError(f"block must be from 1 to {LARGEST_BLOCK:,}, not {block}")
    if search.n_best > 1:
        raise UsageError(f"n_best {search.n_best}: of every text one translation is written")
