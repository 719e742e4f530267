"""Keep what outlives a request in files, each under a random name, each with an owner."""

import json
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dragoman.files import read_json, replace_file
from dragoman.server.reading import Refusal

NAME = re.compile(r"[0-9a-f]{32}")
MAX_RECORD = 16 << 20  # bytes
MAX_RECORDS = 1000  # of one owner


class Store:
    """Records in a folder, as JSON. Several servers may share it."""

    def __init__(self, folder: Path | None, kind: str):
        """Take the folder of all that outlives requests (None: there is none), and what is kept in this store."""
        self.folder, self.kind = folder / kind if folder else None, kind

    def write(self, name: str, owner: str, content: dict[str, Any]) -> None:
        """Write a record, whole or not at all."""
        record = {"owner": owner, "written": time.time(), **content}
        replace_file(self._path(name), json.dumps(record, ensure_ascii=False), shared=True)

    def new_name(self, owner: str) -> str:
        """Return the name of a new record. Raise Refusal where its owner has too many, or the server has no folder."""
        if not self.folder:
            raise Refusal(403, f"this server keeps no {self.kind}; its operator can give it a folder with --state")
        self.folder.mkdir(parents=True, exist_ok=True)
        if sum(1 for _ in self.all(owner)) >= MAX_RECORDS:
            raise Refusal(403, f"there are {MAX_RECORDS} {self.kind} already: delete some")
        return secrets.token_hex(16)

    def read(self, name: str, owner: str | None) -> dict[str, Any]:
        """Return a record; owner: who asks, None for whoever knows the name. Raise Refusal where it is not theirs."""
        if self.folder and NAME.fullmatch(name):
            try:
                record = read_json(self._path(name), MAX_RECORD)
                if owner is None or record["owner"] == owner:
                    return dict(record)
            except (OSError, ValueError, TypeError, KeyError):
                pass
        raise Refusal(404, f"there is nothing with this name among the {self.kind}")

    def all(self, owner: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the names and records of an owner, the oldest first."""
        files = sorted(self.folder.glob("*.json"), key=lambda file: file.name) if self.folder else []
        found = []
        for file in files:
            try:
                found.append((file.stem, self.read(file.stem, owner)))
            except Refusal:
                continue
        yield from sorted(found, key=lambda item: (item[1]["written"], item[0]))

    def delete(self, name: str, owner: str) -> None:
        """Delete a record. Raise Refusal where it is not the owner's."""
        self.read(name, owner)
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        """Return the file of a record."""
        assert self.folder
        return self.folder / f"{name}.json"
