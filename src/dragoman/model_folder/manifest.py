"""Verify the files of a model folder against its manifest."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dragoman.data.tokenizers import JOINT, SIDES
from dragoman.errors import DragomanError
from dragoman.model_folder.weights import WEIGHTS, check_weights
from dragoman.storage.records import MAX_RECORD_SIZE, MAX_TABLE_SIZE, read_json
from dragoman.storage.writing import CARD, MANIFEST, fingerprint

TRAINING_STATE = "state.safetensors"
OF_TRAINING = (TRAINING_STATE, "state.json")  # files of a checkpoint that only its run reads
FILES = ("config.json", WEIGHTS)
MAX_NAME_LENGTH = 100  # characters

# Bytes: training writes nothing larger.
MAX_SIZES = dict.fromkeys((JOINT, *SIDES, "state.json"), MAX_TABLE_SIZE)  # others: MAX_RECORD_SIZE
WORTH_READING = 4 << 30  # of a file that cannot be right, to say whether it was changed: some seconds
MAX_TRAINING_STATE = 8  # times the size of the weights: two moments of each, and the weights beside their average


def verify_files(folder: Path) -> None:
    """Raise DragomanError, naming the file, where the manifest or one of its files is missing or was changed.

    The card, which older manifests list, may be missing or changed, and the state of training may be missing: a model
    translates without it.
    """
    manifest = read_manifest(folder)
    for name in missing_state(folder, manifest):
        del manifest[name]
    if damage := next(find_damage(folder, manifest), None):
        raise DragomanError(f"{damage}; copy or download the folder again")


def read_manifest(folder: Path, required: Sequence[str] = FILES) -> dict[str, tuple[int, str]]:
    """Return the size in bytes and the SHA-256 of each file of a model folder, by name, but not of the card.

    Raise DragomanError where there is no manifest, it is damaged or does not list the files `required` and those of
    tokenizers, where the model was exported for another program, and where a file is a link that leads out of the
    folder.
    """
    manifest = read_checksums(folder)
    if program := exported_for(folder, manifest):
        raise DragomanError(f"{folder}: a model that was exported for {program}, not a model folder of dragoman")
    if nested := next((name for name in manifest if "/" in name), None):
        raise DragomanError(f"{folder / MANIFEST}: damaged: {nested!r} is not a file name")
    for name in (*required, *(SIDES if SIDES[0] in manifest else (JOINT,))):
        if name not in manifest:
            raise DragomanError(f"{folder / MANIFEST}: damaged: it does not list {name}")
    return manifest


def missing_state(folder: Path, manifest: Iterable[str]) -> list[str]:
    """Return the files of training that the manifest of a model folder lists and the folder lacks."""
    return [name for name in manifest if name in OF_TRAINING and not (folder / name).exists()]


def exported_for(folder: Path, names: Iterable[str]) -> str | None:
    """Return the program that a folder with files of these names was exported for; None for a model folder."""
    if "model.bin" in names:
        return "CTranslate2"
    if any(name.endswith(".onnx") for name in names):
        return "onnxruntime"
    with contextlib.suppress(OSError, ValueError, TypeError):
        if "model_type" in read_json(folder / "config.json"):
            return "transformers"
    return None


def read_checksums(folder: Path) -> dict[str, tuple[int, str]]:
    """Return the size in bytes and the SHA-256 of each file that a folder's manifest lists, but not of the card.

    Raise DragomanError where there is no manifest or it is damaged, and where a file is a link that leads out of the
    folder.
    """
    if not folder.is_dir():
        kind = "a file; name the model folder that it is in" if folder.is_file() else "no such model folder"
        raise DragomanError(f"{folder}: {kind}")
    if not (folder / MANIFEST).is_file():
        runs, others = (sorted(folder.glob(f"{part}/{MANIFEST}")) for part in ("*/best", "*"))
        near = [*runs, *folder.parent.glob(f"best/{MANIFEST}"), *others]  # the second: where these are its checkpoints
        hint = f"; did you mean {near[0].parent}?" if near else ""
        raise DragomanError(f"{folder}: not a model folder: it has no {MANIFEST}{hint}")
    refuse_links_out(folder)
    try:
        manifest = {
            str(name): (entry["bytes"], str(entry["sha256"])) for name, entry in read_json(folder / MANIFEST).items()
        }
        if any(type(size) is not int for size, _ in manifest.values()):
            raise ValueError
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise DragomanError(f"{folder / MANIFEST}: damaged") from None
    for name in manifest:
        parts = name.split("/")  # an export has files in folders
        unsafe = any(part in ("", ".", "..") or Path(part).name != part for part in parts)
        if unsafe or len(name) > MAX_NAME_LENGTH:
            raise DragomanError(f"{folder / MANIFEST}: damaged: {name[:MAX_NAME_LENGTH]!r} is not a file name")
    manifest.pop(CARD, None)
    return manifest


def refuse_links_out(folder: Path) -> None:
    """Raise DragomanError where a file in a folder is a link to a file outside of it: a stranger may have made it.

    Folders in it may be links: parts of a run may be on another disk.
    """
    for file in folder.iterdir():
        if not file.is_dir():
            refuse_link_out(file)


def refuse_link_out(file: Path) -> None:
    """Raise DragomanError where a file is a link that leads out of its folder.

    In the cache of the Hugging Face Hub, a folder `models--USER--NAME/snapshots/COMMIT` has links into `blobs` in the
    first of these, and links there may lead into `blobs` beside it.
    """
    if not file.is_symlink():
        return
    folder = Path(os.path.realpath(file.parent))
    inside, snapshots, repository = [folder], folder.parent, folder.parent.parent
    if snapshots.name == "snapshots" and repository.name.startswith("models--"):
        inside += [repository / "blobs", repository.parent / "blobs"]
    if not any(Path(os.path.realpath(file)).is_relative_to(place) for place in inside):
        raise DragomanError(f"{file}: a symbolic link that leads out of the folder; put the file itself there")


class Damage(NamedTuple):
    """A file that is not what its manifest says: what was expected, and what it is, in words."""

    file: Path
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"{self.file}: damaged: expected {self.expected}, found {self.actual}"


def find_damage(folder: Path, manifest: dict[str, tuple[int, str]]) -> Iterator[Damage]:
    """Yield the files of a model folder, or of a folder that a model was exported to, that are missing or were changed.

    Raise DragomanError as `check_size` does where a file of a model folder is what the manifest says, or is too large
    to find out.
    """
    sound, exported = True, exported_for(folder, manifest)
    # The weights come last: the other files tell how large they may be.
    for name in sorted(manifest, key=lambda name: (name in (WEIGHTS, TRAINING_STATE), name)):
        size, digest = manifest[name]
        file, expected = folder / name, f"{size:,} bytes"
        if sound and not exported and file.is_file() and file.stat().st_size == size:
            try:
                check_size(file)
            except DragomanError:
                if size > WORTH_READING or fingerprint(file)["sha256"] == digest:
                    raise
        if not file.is_file():
            sound = False
            yield Damage(file, expected, "nothing: it is missing from the folder")
        elif (actual := file.stat().st_size) != size:
            sound = False
            yield Damage(file, expected, f"{actual:,}")
        elif (sha256 := fingerprint(file)["sha256"]) != digest:
            sound = False
            yield Damage(file, f"SHA-256 {digest}", sha256)


def check_size(file: Path) -> None:
    """Raise DragomanError where a file is larger than its model needs, or has other weights: it is not worth reading.

    file: in a model folder whose config.json was verified before.
    """
    if file.name == WEIGHTS:
        check_weights(file)
        return
    limit = MAX_SIZES.get(file.name, MAX_RECORD_SIZE)
    if file.name == TRAINING_STATE:
        limit += MAX_TRAINING_STATE * file.with_name(WEIGHTS).stat().st_size
    if file.stat().st_size > limit:
        raise DragomanError(f"{file}: larger than its model needs")
