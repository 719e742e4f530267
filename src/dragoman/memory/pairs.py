"""Keep approved pairs in a file that only grows: a line of JSON for each pair, and one whenever pairs are forgotten.

One process writes at a time, and any number read. A line counts once its line feed is there, so a writer that is killed
leaves nothing behind that anybody would read.
"""

import json
import os
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from dragoman.errors import DragomanError
from dragoman.storage.locks import lock_file
from dragoman.storage.writing import name_errors

LONGEST = 1 << 20  # bytes of a line: a pair has hundreds
FORGOTTEN = b'{"forgotten": true}'  # what is written over a pair, so that nobody can read it any more


@dataclass(frozen=True)
class ApprovedPair:
    """A source and the translation that somebody has approved, and where they come from."""

    source: str
    target: str
    origin: str = ""  # 'manual.tmx:31', or the name of a page
    date: str = ""  # when it was remembered: '2026-11-30 14:02'
    by: str = ""  # who has approved it
    tag: str = ""  # of the source, as a model reads it
    target_tag: str = ""

    def as_line(self) -> bytes:
        """Return the line of the file, without what is empty."""
        return json.dumps({name: text for name, text in asdict(self).items() if text}, ensure_ascii=False).encode()

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "ApprovedPair":
        """Return the pair in a line of JSON. Raise ValueError where it is none."""
        texts = {each.name: record.pop(each.name, "") for each in fields(cls)}
        if record or not all(isinstance(text, str) for text in texts.values()) or not texts["source"]:
            raise ValueError
        return cls(**texts)


class PairLog:
    """The file of a memory's pairs, which are numbered from 0 in the order of their lines."""

    def __init__(self, path: Path):
        """Take the path of the file; nothing is read yet."""
        self.path = path
        self.pairs: list[ApprovedPair | None] = []  # None: forgotten
        self.end = 0  # bytes that were read
        self._starts: list[int] = []  # of the line of each pair

    def refresh(self) -> bool:
        """Read what was written since; return whether there was anything.

        Raise DragomanError where a line is damaged, and OSError as `open` does.
        """
        if self.path.stat().st_size <= self.end:
            return False
        with name_errors(self.path), self.path.open("rb") as file:
            file.seek(self.end)
            lines = file.read().split(b"\n")[:-1]  # the last part has no line feed yet
        for line in lines:
            self._take(line)
            self.end += len(line) + 1
        return bool(lines)

    def _take(self, line: bytes) -> None:
        try:
            if len(line) > LONGEST:
                raise ValueError
            record = json.loads(line.decode())
            if "forget" in record:
                for number in record["forget"]:
                    if 0 <= number < len(self.pairs):
                        self.pairs[number] = None
                return
            pair = None if record.get("forgotten") is True else ApprovedPair.from_record(record)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            where = f"line {len(self.pairs) + 1:,} or later"
            raise DragomanError(f"{self.path}: {where} is damaged: no approved pair, at byte {self.end:,}") from None
        self._starts.append(self.end)
        self.pairs.append(pair)

    def append(self, pairs: Iterable[ApprovedPair]) -> int:
        """Write pairs to the end; return at which byte. They are on the disk then; where it raises OSError, none is.

        Raise DragomanError for a pair that is too long.
        """
        lines = [pair.as_line() for pair in pairs]
        if any(len(line) > LONGEST for line in lines):
            raise DragomanError(f"a pair has more than {LONGEST:,} bytes, which a memory does not take")
        with lock_file(self.path, wait=True) as descriptor:
            return self._write(descriptor, lines)

    def number_at(self, byte: int) -> int:
        """Return the number of the pair whose line begins at a byte that was read, or of the first one behind it."""
        return bisect_left(self._starts, byte)

    def forget(self, numbers: Sequence[int]) -> None:
        """Forget pairs: their text is overwritten, and readers that go on are told. Numbers must be of this file."""
        self.refresh()
        with lock_file(self.path, wait=True) as descriptor:
            self._write(descriptor, [json.dumps({"forget": list(numbers)}).encode()])
            with self.path.open("r+b") as file:
                for number in numbers:
                    file.seek(self._starts[number])
                    length = len(file.readline()) - 1
                    file.seek(self._starts[number])
                    file.write(FORGOTTEN.ljust(length))
                file.flush()
                os.fsync(file.fileno())
        self.refresh()

    def _write(self, descriptor: int, lines: Sequence[bytes]) -> int:
        """Write lines behind the last whole one; return where they begin.

        A part of a line, which a killed process has left, is cut off.
        """
        end = size = os.fstat(descriptor).st_size
        with self.path.open("rb") as file:
            while end:
                block = min(end, 1 << 16)
                file.seek(end - block)
                if (last := file.read(block).rfind(b"\n")) >= 0:
                    end += last + 1 - block
                    break
                end -= block
        content = b"".join(line + b"\n" for line in lines)
        try:
            with name_errors(self.path):
                if end < size:
                    os.ftruncate(descriptor, end)
                written = 0
                while written < len(content):
                    written += os.pwrite(descriptor, content[written:], end + written)
                os.fsync(descriptor)
        except BaseException:
            os.ftruncate(descriptor, end)
            raise
        return end
