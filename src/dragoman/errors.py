"""Errors that a user can mend. The command line prints them as one sentence, without a traceback."""

import re
from collections.abc import Iterable

SHOWN = 20  # names that a message lists


class DragomanError(Exception):
    """The work failed for a reason that the message names: a file, a line, a field. Exit code 1."""


class UsageError(DragomanError):
    """The request itself is wrong: a flag, a setting, a combination. Exit code 2."""


def plural(count: int, noun: str) -> str:
    """Return '1 pair' or '1,200 pairs', for messages: a count and the singular `noun`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names: Iterable[str]) -> str:
    """Return names with commas between them, for messages; of more than SHOWN, the first ones and dots."""
    items = list(names)
    return ", ".join(items[:SHOWN]) + ", …" * (len(items) > SHOWN)


# What libraries say where the system gives them no memory, for its threads too; few of them raise a MemoryError.
NO_MEMORY = re.compile("out of memory|allocate memory|bad_alloc|create a primitive|thread pool has|start new thread")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means a lack of memory: PyTorch on a CPU raises a plain RuntimeError for it."""
    return isinstance(error, MemoryError) or bool(NO_MEMORY.search(str(error)))
