"""Errors that a user can mend. The command line prints them as one sentence, without a traceback."""


class DragomanError(Exception):
    """The work failed for a reason that the message names: a file, a line, a field. Exit code 1."""


class UsageError(DragomanError):
    """The request itself is wrong: a flag, a setting, a combination. Exit code 2."""


def plural(count: int, noun: str) -> str:
    """Return '1 pair' or '1,200 pairs', for messages: a count and the singular `noun`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
