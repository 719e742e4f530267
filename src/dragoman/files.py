"""Write files and folders whole or not at all, and fingerprint them."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from dragoman.errors import DragomanError

MANIFEST = "manifest.json"


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A new folder that is there whole or not at all: filled under another name, synced, then renamed to `path`."""
    draft = path.with_name(f".{path.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        manifest = {file.name: fingerprint(file) for file in sorted(draft.iterdir())}
        (draft / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        for file in draft.iterdir():
            sync(file)
        sync(draft)
        draft.rename(path)
        sync(path.parent)
    except SafetensorError as error:  # how the library reports a full disk
        raise DragomanError(f"{path}: could not be written: {error}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file so that at every instant the old or the new one is there, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        sync(draft)
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fingerprint(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(opened, "sha256").hexdigest()}
