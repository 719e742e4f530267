"""Read records that a stranger may have written: JSON of a bounded size, and files that a manifest lists."""

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from dragoman.errors import DragomanError
from dragoman.storage.writing import MANIFEST, name_errors

Record = TypeVar("Record")
MAX_RECORD_SIZE = 1 << 20  # bytes
MAX_TABLE_SIZE = 64 << 20  # bytes; of files that grow with the vocabulary or the sample translations


def open_regular(file: Path) -> BinaryIO:
    """Open a file to read it. Raise OSError where it is a pipe or a device, which might be read for ever."""
    if file.exists() and not (file.is_file() or file.is_dir()):  # that of a folder is a clear error
        raise OSError(errno.EINVAL, "not a regular file", str(file))
    return file.open("rb")


def read_json(file: Path, max_size: int = MAX_RECORD_SIZE, max_values: int | None = None) -> Any:
    """Return the content of a JSON file.

    max_values: lists, objects and their members, which cost much more memory than their bytes in the file.

    Raise ValueError where it has more than `max_size` bytes or `max_values` values, is nested too deeply or is not JSON
    in UTF-8, and OSError where it cannot be read.
    """
    with open_regular(file) as opened:
        data = opened.read(max_size + 1)
    if len(data) > max_size:
        raise ValueError(f"it has more than {max_size:,} bytes")
    # Marks inside strings are counted, too: that is much faster than telling them apart.
    if max_values is not None and sum(map(data.count, (b",", b"[", b"{"))) > max_values:
        raise ValueError(f"it has more than {max_values:,} values")
    try:
        return json.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_listed(file: Path) -> str | None:
    """Return the text of a file if it exists and the manifest of its folder lists it, else None.

    Whoever adds a file to a model folder without listing it has not vouched for it. The text is not compared with its
    fingerprint: `verify_files` does that. Raise DragomanError where the file is too large for a record or not UTF-8.
    """
    try:
        listed = file.name in read_json(file.parent / MANIFEST)
    except (OSError, ValueError, TypeError):
        return None  # `verify_files` says what is wrong with the manifest
    if not listed or not file.is_file():
        return None
    if file.stat().st_size > MAX_RECORD_SIZE:
        raise DragomanError(f"{file}: too large for a record")
    try:
        with name_errors(file):
            return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DragomanError(f"{file}: not UTF-8") from None


def read_record(file: Path, what: str, make: Callable[[Any], Record]) -> Record | None:
    """Return what `make` makes of the JSON in a listed file; None where there is no such file (see `read_listed`).

    Raise DragomanError, "not" and `what` it is, where it is no JSON or `make` raises ValueError, TypeError or
    AttributeError.
    """
    if (text := read_listed(file)) is None:
        return None
    try:
        return make(json.loads(text))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise DragomanError(f"{file}: not {what}") from None
