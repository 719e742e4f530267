"""Read which languages a model translates from and into, where its folder records them."""

import contextlib
import json
from pathlib import Path

from dragoman.config.languages import LanguagePair, parse_pair
from dragoman.errors import DragomanError, UsageError
from dragoman.storage.records import read_listed

RECORD = "languages.json"  # in a model folder


def languages_json(pair: LanguagePair) -> str:
    """Return the record of a pair, as a model folder has it."""
    return json.dumps({"source": pair.source, "target": pair.target})


def read_languages(folder: Path) -> LanguagePair | None:
    """Read the pair in a model folder, None without a record. Raise DragomanError where it names no two languages."""
    file = folder / RECORD
    if (text := read_listed(file)) is None:
        return None
    with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError, UsageError):
        record = json.loads(text)
        return parse_pair(f"{record['source']}-{record['target']}")
    raise DragomanError(f"{file}: does not name two languages")
