"""Read where a model's weights come from and under which licence, where its folder records it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from dragoman.storage.records import read_record

MAX_TEXT = 1000  # characters


@dataclass(frozen=True)
class Origin:
    """The name or address of the model that was imported, and its licence, such as 'apache-2.0'; '' if unknown."""

    RECORD: ClassVar = "origin.json"  # in a model folder

    origin: str
    licence: str = ""

    def as_json(self) -> str:
        """Return the record as a line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, folder: Path) -> "Origin | None":
        """Read the record of a folder, None without one. Raise DragomanError where the file is no such record."""

        def make(fields: Any) -> Origin:
            origin = cls(**fields)
            if not all(isinstance(value, str) and len(value) <= MAX_TEXT for value in (origin.origin, origin.licence)):
                raise ValueError
            return origin

        return read_record(folder / cls.RECORD, "a record of an origin and a licence", make)
