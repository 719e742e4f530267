"""Convert each model once: the copy lies beside the model folder, or in the user's cache where that is read-only."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from dragoman.data.batches import Ids
from dragoman.errors import DragomanError, UsageError
from dragoman.files import MANIFEST, fingerprint, new_folder
from dragoman.interop.ctranslate2.conversion import convert, import_ctranslate2
from dragoman.interop.ctranslate2.engine import VOCABULARY, CTranslate2Engine
from dragoman.interop.ctranslate2.verification import verify_copy
from dragoman.model_folder import find_model, read_model, verify_files

FORMAT = 1  # with another number, all models are converted again
FILES = ("config.json", "model.bin", VOCABULARY)
CACHE = ".ctranslate2"


def open_ctranslate2(
    path: str | Path, compute_type: str = "float32", threads: int = 1, sample: Sequence[Ids] = ()
) -> CTranslate2Engine:
    """Return the engine for a model folder or run folder, which is converted the first time.

    compute_type: data type of the matmuls, such as float32 or int8; sample: sources with which `verify_copy` compares a
    new copy with the model. Raise UsageError where this processor cannot compute in that type, DragomanError where the
    folder is damaged or CTranslate2 cannot represent the model.
    """
    supported = sorted(import_ctranslate2().get_supported_compute_types("cpu"))
    if compute_type not in supported:
        raise UsageError(f"CTranslate2 cannot compute in '{compute_type}' here, only in {', '.join(supported)}")
    folder = converted_model(find_model(Path(path)).resolve(), compute_type, sample)
    return CTranslate2Engine(folder, compute_type, threads)


def converted_model(folder: Path, compute_type: str, sample: Sequence[Ids]) -> Path:
    """Return the folder of a model's copy for CTranslate2; convert and verify the model if there is no copy yet.

    folder: the model's; sample: as for `open_ctranslate2`. Raise DragomanError where the model is damaged, cannot be
    converted, or there is no place to write a copy.
    """
    try:
        manifest = (folder / MANIFEST).read_bytes()
    except OSError:
        verify_files(folder)  # says what is missing
        raise
    version = import_ctranslate2().__version__
    key = hashlib.sha256(f"{FORMAT} {version} {compute_type} ".encode() + manifest).hexdigest()
    paths = [home / f"{compute_type}-{key}" for home in cache_folders(folder)]
    for path in paths:
        if is_intact(path):
            return path
    for path in paths:
        try:
            return make_copy(path, folder, compute_type, sample)
        except OSError as error:
            reason = error.strerror
    raise DragomanError(f"{paths[-1].parent}: the model could not be converted for CTranslate2: {reason}")


def cache_folders(folder: Path) -> list[Path]:
    """Return the folders that may hold copies of a model, the preferred one first."""
    folders = [folder.parent / CACHE / folder.name]
    with contextlib.suppress(RuntimeError):  # a user without a home
        users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dragoman" / "ctranslate2"
        folders.append(users / hashlib.sha256(os.fsencode(folder.parent)).hexdigest() / folder.name)
    return folders


def is_intact(folder: Path) -> bool:
    """Return whether a cached copy is there and undamaged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return manifest == {name: fingerprint(folder / name) for name in FILES}
    except (OSError, ValueError, RecursionError):
        return False


def make_copy(path: Path, folder: Path, compute_type: str, sample: Sequence[Ids]) -> Path:
    """Convert the model in `folder` into the new folder `path`, verify it, and return `path`.

    sample: as for `open_ctranslate2`. Copies in the same `compute_type` beside it, damaged or of an earlier model, are
    deleted. Raise DragomanError where the model is damaged or cannot be converted, OSError where `path` cannot be
    written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_intact(path):  # another process was faster
            return path
        model, tokenizer = read_model(folder)
        for old in path.parent.glob(f"{compute_type}-*"):  # damaged, or of a model that was here before
            shutil.rmtree(old)
        with new_folder(path) as draft:
            convert(model, tokenizer.pieces, draft)
            verify_copy(model, CTranslate2Engine(draft), sample, folder)
            if compute_type != "float32":
                convert(model, tokenizer.pieces, draft, compute_type)
    return path
