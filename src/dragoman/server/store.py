"""Keep what outlives a request in files, each under a random name, each with an owner."""

import contextlib
import json
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from dragoman.server.keys import digest
from dragoman.server.reading import Refusal
from dragoman.storage.locks import lock_file
from dragoman.storage.records import read_json
from dragoman.storage.writing import replace_file

NAME = re.compile(r"[0-9a-f]{32}")
PRIVATE = 0o700  # permissions of folders with what strangers have sent
MAX_RECORD = 16 << 20  # bytes
MAX_RECORDS, MAX_BYTES = 1000, 64 << 20  # of one owner


class Store:
    """Records in a folder, as JSON. Several servers may share it.

    The name of a file tells its owner, so finding the records of one owner reads no others.
    """

    def __init__(self, folder: Path | None, kind: str):
        """Take the folder of all that outlives requests (None: there is none), and what is kept in this store."""
        self.folder, self.kind = folder / kind if folder else None, kind

    def write(self, name: str, owner: str, content: dict[str, Any]) -> None:
        """Write a record, whole or not at all. Raise Refusal where its owner would have too many bytes."""
        record = json.dumps({"owner": owner, "written": time.time(), **content}, ensure_ascii=False)
        path = self._path(name, owner)
        if len(record) + sum(size_of(file) for file in self._files(owner) if file != path) > MAX_BYTES:
            raise Refusal(403, f"more than {MAX_BYTES:,} bytes of {self.kind}: delete some")
        replace_file(path, record, shared=True)

    def new_name(self, owner: str) -> str:
        """Return the name of a new record. Raise Refusal where its owner has too many, or the server has no folder."""
        if not self.folder:
            raise Refusal(403, f"this server keeps no {self.kind}; its operator can give it a folder with --state")
        self.folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        if len(self._files(owner)) >= MAX_RECORDS:
            raise Refusal(403, f"there are {MAX_RECORDS} {self.kind} already: delete some")
        return secrets.token_hex(16)

    def read(self, name: str, owner: str | None) -> dict[str, Any]:
        """Return a record; owner: who asks, None for whoever knows the name. Raise Refusal where it is not theirs."""
        if self.folder and NAME.fullmatch(name):
            path = self._path(name, owner) if owner is not None else next(self.folder.glob(f"*-{name}.json"), None)
            try:
                if path and ((record := read_json(path, MAX_RECORD))["owner"] == owner or owner is None):
                    return dict(record)
            except (OSError, ValueError, TypeError, KeyError):
                pass
        raise Refusal(404, f"no such item among the {self.kind}")

    def all(self, owner: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the names and records of an owner, the oldest first."""
        records = []
        for file in self._files(owner):
            name = file.stem.rpartition("-")[2]
            with contextlib.suppress(Refusal):  # deleted meanwhile
                records.append((name, self.read(name, owner)))
        yield from sorted(records, key=lambda item: (item[1]["written"], item[0]))

    def has(self, name: str, owner: str) -> bool:
        """Return whether an owner has a record with this name."""
        return self._path(name, owner).exists()

    def delete(self, name: str, owner: str) -> None:
        """Delete a record. Raise Refusal where it is not the owner's."""
        self.read(name, owner)
        self._path(name, owner).unlink(missing_ok=True)

    def locked(self) -> AbstractContextManager[int | None]:
        """Return a context in which no other thread or server changes a record, if it asks for this context, too."""
        if not self.folder or not self.folder.exists():
            return contextlib.nullcontext()
        return lock_file(self.folder.with_suffix(".lock"), wait=True)

    def _path(self, name: str, owner: str) -> Path:
        assert self.folder
        return self.folder / f"{digest(owner)[:16]}-{name}.json"

    def _files(self, owner: str) -> list[Path]:
        return list(self.folder.glob(f"{digest(owner)[:16]}-*.json")) if self.folder else []


def size_of(file: Path) -> int:
    """Return how many bytes a file has; 0 where it was deleted meanwhile."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
