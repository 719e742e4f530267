"""Read which tags a model's texts have when none are given, where its folder records them."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from dragoman.errors import DragomanError
from dragoman.files import read_listed


@dataclass(frozen=True)
class DefaultTags:
    """The tag of each source, and the one of each target, where none is given; '' for none."""

    RECORD: ClassVar = "tags.json"  # in a model folder

    source: str = ""
    target: str = ""

    def as_json(self) -> str:
        """Return the record as a line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def load(cls, folder: Path) -> "DefaultTags":
        """Read the record of a model folder; no tags where there is none.

        Raise DragomanError where the file is not such a record.
        """
        file = folder / cls.RECORD
        if (text := read_listed(file)) is None:
            return cls()
        try:
            tags = cls(**json.loads(text))
            if not isinstance(tags.source, str) or not isinstance(tags.target, str):
                raise ValueError
            return tags
        except (ValueError, TypeError, RecursionError):
            raise DragomanError(f"{file}: not a record of two tags") from None
