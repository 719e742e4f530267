"""Number the formats of what dragoman writes, and refuse a number that is not known yet.

A number rises when an older version could not read the new files, or would misread them. What has no number was written
by version 0.1.0, in format 1; all formats up to today's can be read. The manifest has none: its form stays.
"""

from typing import Any

from dragoman.errors import DragomanError
from dragoman.version import __version__

MODEL = 3  # model folders: config.json. In format 1 the weight of additive attention had another name; up to format 2
# there was one tokenizer, the first token was at position 0, and norms had the epsilon of PyTorch
CHECKPOINT = 2  # what resuming needs: state.json. In format 1 the same weight and its moments had another name
CORPUS = 2  # tokenised corpora: the metadata of the Arrow file. In format 1 corpora had no share
MEMORY = 1  # of approved pairs: memory.json
OUTPUT = 2  # the objects that commands print as JSON. In format 1 fields had other names (CHANGELOG.md)


class NewerFormatError(DragomanError):
    """A file is not damaged, but of a newer format than this version of dragoman can read."""


def stamp(number: int) -> dict[str, Any]:
    """Return the fields that files begin with: the number of their format, and the version of dragoman."""
    return {"format": number, "version": __version__}


def unstamp(record: Any, known: int, where: str) -> dict[str, Any]:
    """Return the fields of a record but its stamp. Raise NewerFormatError where its format is a number above `known`.

    where: the file, for messages. A record without a format has format 1. Raise ValueError where the record is not a
    dict, or its format not a whole number from 1.
    """
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    number = record.get("format", 1)
    if type(number) is not int or number < 1:
        raise ValueError("its format is not a number")
    if number > known:
        writer = f"dragoman {str(record.get('version', 'of a later version'))[:20]}"
        raise NewerFormatError(
            f"{where}: written by {writer} in format {number}, but this is dragoman {__version__}, which reads formats "
            f"up to {known}: update dragoman"
        )
    return {name: value for name, value in record.items() if name not in stamp(known)}
