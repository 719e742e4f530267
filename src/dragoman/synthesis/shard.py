"""The shard of the work that a process does."""

import re
from dataclasses import dataclass

from dragoman.config import SearchConfig
from dragoman.errors import UsageError

MAX_SHARDS, MAX_BLOCK = 100_000, 1_000_000


@dataclass(frozen=True)
class Shard:
    """One of `count` equal parts of the blocks; `number` counts from 1."""

    number: int = 1
    count: int = 1


def parse_shard(text: str | None, ray: bool) -> Shard:
    """Return the shard of the flag --shard: '2/4' is the second of four, None the whole work as one shard.

    Raise UsageError for any other text, and, with `ray`, for every text: Ray distributes the blocks itself.
    """
    if text is None:
        return Shard()
    if ray:
        raise UsageError("choose --shard or --ray: Ray distributes the blocks itself")
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    number, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= count <= MAX_SHARDS:
        raise UsageError(f"write a shard as 1/4, 2/4, 3/4 or 4/4 if there are four, not '{text}'")
    return Shard(number, count)


def check_synthesis(block: int, search: SearchConfig) -> None:
    """Raise UsageError for a block size that is not from 1 to MAX_BLOCK, and for a search with `n_best` above 1.

    block: texts that are translated and saved together.
    """
    if not 1 <= block <= MAX_BLOCK:
        raise UsageError(f"block must be from 1 to {MAX_BLOCK:,}, not {block}")
    if search.n_best > 1:
        raise UsageError(f"n_best {search.n_best}: only one translation per text is written")
