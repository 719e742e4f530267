"""Convert each model once. The copy lies in the user's cache, and never beside the model: a model folder comes from
strangers, and no one could tell whether a copy in it is one of its model.
"""

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from dragoman.config import ComputeType
from dragoman.errors import DragomanError, UsageError
from dragoman.interop.ctranslate2.conversion import convert, import_ctranslate2, largest_weight
from dragoman.interop.ctranslate2.engine import SHARED, SIDES, CTranslate2Engine
from dragoman.interop.verification import Mismatch, made_up, verify
from dragoman.model import Model
from dragoman.model_folder import fetch_model, read_model, verify_files
from dragoman.storage.locks import lock_file
from dragoman.storage.records import read_json
from dragoman.storage.writing import MANIFEST, delete_folder, fingerprint, new_folder

FORMAT = 2  # with another number, all models are converted again
FILES = ("config.json", "model.bin")
SAMPLES = 16  # made-up sources that a new copy has to translate as the model does
MAX_AGE = 30 * 86_400  # seconds since a copy was last used


def open_ctranslate2(
    path: str | Path, compute_type: str = "float32", threads: int = 1, replicas: int = 1, suppressed: Sequence[int] = ()
) -> CTranslate2Engine:
    """Return the engine for a model folder or run folder, which is converted the first time.

    compute_type: data type of the matmuls, such as float32 or int8, or 'auto' for the fastest here; replicas: how many
    searches may go on at the same time, each with `threads` threads; suppressed: tokens that no output has. Raise
    UsageError where this processor cannot compute in that type, DragomanError where the folder is damaged or
    CTranslate2 cannot represent the model.
    """
    if compute_type == "auto":
        compute_type = fastest_type()
    supported = sorted(import_ctranslate2().get_supported_compute_types("cpu"))
    if compute_type not in supported:
        raise UsageError(f"CTranslate2 cannot compute in '{compute_type}' here, only in {', '.join(supported)}")
    folder = converted_model(fetch_model(Path(path)).resolve(), compute_type)
    return CTranslate2Engine(folder, compute_type, threads, replicas, suppressed)


def fastest_type() -> ComputeType:
    """Return the type in which CTranslate2 is the fastest here: int8, where it is built for it."""
    supported = import_ctranslate2().get_supported_compute_types("cpu")
    return next(name for name in reversed(get_args(ComputeType)) if name in supported)


def converted_model(folder: Path, compute_type: str) -> Path:
    """Return the folder of a model's copy for CTranslate2; convert and verify the model if there is no copy yet.

    folder: the model's. Raise DragomanError where the model is damaged, cannot be converted, or there is no place to
    write a copy.
    """
    try:
        manifest = (folder / MANIFEST).read_bytes()
    except OSError:
        verify_files(folder)  # says what is missing
        raise
    version = import_ctranslate2().__version__
    key = hashlib.sha256(f"{FORMAT} {version} {compute_type} {largest_weight()} ".encode() + manifest).hexdigest()
    path = cache_folder() / key
    try:
        if is_intact(path):
            os.utime(path)  # so that it is not the first to be deleted
            return path
        return make_copy(path, folder, compute_type)
    except OSError as error:
        raise DragomanError(f"{path}: the model could not be converted for CTranslate2: {error.strerror}") from None


def cache_folder() -> Path:
    """Return the folder of the user's copies. Raise DragomanError where the user has no home."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        raise DragomanError("no folder for copies for CTranslate2: set XDG_CACHE_HOME to one") from None
    return home / "dragoman" / "ctranslate2"


def is_intact(folder: Path) -> bool:
    """Return whether a cached copy is there and undamaged."""
    try:
        manifest = read_json(folder / MANIFEST)
        vocabularies = [SHARED] if SHARED in manifest else SIDES
        return manifest == {name: fingerprint(folder / name) for name in (*FILES, *vocabularies)}
    except (OSError, ValueError):
        return False


def make_copy(path: Path, folder: Path, compute_type: str) -> Path:
    """Convert the model in `folder` into the new folder `path`, verify it, and return `path`.

    Copies that were not used for MAX_AGE are deleted. Raise DragomanError where the model is damaged or cannot be
    converted, OSError where `path` cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock_file(path.parent / ".lock", wait=True):
        if is_intact(path):  # another process was faster
            return path
        model, tokenizers = read_model(folder)
        pieces = tokenizers.source.pieces, tokenizers.target.pieces
        for old in path.parent.iterdir():
            if old.is_dir() and (old == path or time.time() - old.stat().st_mtime > MAX_AGE):
                delete_folder(old)
        with new_folder(path) as draft:
            convert(model, pieces, draft)
            check(model, CTranslate2Engine(draft), folder)
            if compute_type != "float32":
                convert(model, pieces, draft, compute_type)
    return path


def check(model: Model, engine: CTranslate2Engine, folder: Path) -> None:
    """Raise DragomanError, naming the model's folder, where an engine in float32 does not translate as `model` does.

    Both translate SAMPLES made-up sources.
    """
    try:
        verify(model, engine, made_up(len(engine.source_pieces), SAMPLES, engine.max_positions))
    except Mismatch as error:
        raise DragomanError(
            f"{folder}: CTranslate2 {import_ctranslate2().__version__} does not translate as the model itself does: "
            f"{error}: use the native engine"
        ) from None
