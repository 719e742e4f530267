"""Read what a model folder records of tags: those of texts for which none are given, and those that name languages."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from dragoman.storage.records import read_record


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
        """Read the record of a folder, no tags without one. Raise DragomanError where the file is no such record."""

        def make(fields: Any) -> DefaultTags:
            tags = cls(**fields)
            if not isinstance(tags.source, str) or not isinstance(tags.target, str):
                raise ValueError
            return tags

        return read_record(folder / cls.RECORD, "a record of two tags", make) or cls()


@dataclass(frozen=True)
class LanguageTags:
    """The tags that name the languages of a model of several.

    tags: their names, such as 'deu' or 'kor_Hang'; of: 'text' where each side begins with the tag of its own language,
    as in M2M100 and NLLB, 'target' where sources begin with that of the language to translate into, as in OPUS-MT.
    """

    RECORD: ClassVar = "language-tags.json"  # in a model folder

    tags: tuple[str, ...]
    of: Literal["text", "target"]

    def as_json(self) -> str:
        """Return the record as a line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def load(cls, folder: Path) -> "LanguageTags | None":
        """Read the record of a folder, None without one. Raise DragomanError where the file is no such record."""

        def make(fields: Any) -> LanguageTags:
            record = cls(**fields)
            if record.of not in ("text", "target") or not all(isinstance(tag, str) for tag in record.tags):
                raise ValueError
            return cls(tuple(record.tags), record.of)

        return read_record(folder / cls.RECORD, "a record of the tags of languages", make)
