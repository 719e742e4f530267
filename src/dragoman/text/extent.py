"""Record what the sources of a training were like: how much of what its model has learned to read at once.

A model that was trained on single sentences translates two of them badly, one that was trained on paragraphs does not.
"""

import json
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any, ClassVar

from dragoman.storage.records import read_record
from dragoman.text.scripts import read_scripts


@dataclass(frozen=True)
class SourceExtent:
    """Say how many sentences and how many tokens, EOS not included, 95 of 100 training sources had at most."""

    RECORD: ClassVar = "extent.json"  # in a model folder

    sentences: int
    tokens: int
    wordless: bool = False  # whether most sources had no letters, as in a corpus of numbers
    scripts: tuple[str, ...] = ()  # in which the sources were written, as `text.scripts` names them
    tagged: bool = False  # whether all sources had a tag in front
    markup: bool = False  # whether at least one of 100 sources had tags, as HTML has them
    pairs: int = 0  # of the training; 0 if that was not recorded
    subwords: float = 0.0  # for each letter of a word, at most, in 99 of 100 sources; 0.0 if that was not measured

    def as_json(self) -> str:
        """Return the record as a line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def load(cls, folder: Path) -> "SourceExtent | None":
        """Read the record of a folder, None without one. Raise DragomanError where the file is no such record."""

        def make(record: Any) -> SourceExtent:
            record.pop("terms", None)  # a removed experiment: such a model translates like any other
            extent = cls(**{**record, "scripts": tuple(record.get("scripts", ()))})
            if any(type(number) is not int or number < 1 for number in (extent.sentences, extent.tokens)):
                raise ValueError
            if type(extent.pairs) is not int or extent.pairs < 0:
                raise ValueError
            if not (isinstance(extent.subwords, float) and 0 <= extent.subwords < inf):
                raise ValueError
            if any(type(flag) is not bool for flag in (extent.wordless, extent.tagged, extent.markup)) or any(
                type(script) is not str for script in extent.scripts
            ):
                raise ValueError
            return extent

        return read_record(folder / cls.RECORD, "a record of sentences and tokens", make)


def model_scripts(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the scripts that a model reads and those that it writes; () where training did not record them."""
    extent = SourceExtent.load(folder)
    return extent.scripts if extent else (), read_scripts(folder)
