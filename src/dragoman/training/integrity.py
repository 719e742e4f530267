"""Compare what lies in a folder with its checksums: model folders, checkpoints, tokenised corpora, synthetic pairs."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dragoman.data.dataset import Pairs
from dragoman.data.tokenizers import JOINT, SIDES, load_tokenizer
from dragoman.errors import DragomanError, plural
from dragoman.model_folder import read_parts
from dragoman.model_folder.manifest import (
    FILES,
    exported_for,
    find_damage,
    missing_state,
    read_checksums,
    read_manifest,
)
from dragoman.storage.formats import NewerFormatError
from dragoman.storage.records import read_json
from dragoman.storage.writing import CARD, MANIFEST, fingerprint
from dragoman.training.checkpoint import NAME, PROGRESS, read_progress, run_of


@dataclass(frozen=True)
class Finding:
    """Say of a file or folder whether it is what was written.

    'newer': intact, but of a format that this version does not know; 'unlisted': no manifest lists it, so that no
    reader uses it.
    """

    state: Literal["ok", "damaged", "newer", "unlisted"]
    path: Path
    what: str = ""  # in words
    expected: str = ""  # of a damaged file: its size or SHA-256 in the manifest
    found: str = ""  # and what it has now

    def __str__(self) -> str:
        what = self.what or f"expected {self.expected}, found {self.found}"
        return f"{self.state:<8}  {self.path}: {what}"


def verify(path: Path) -> Iterator[Finding]:
    """Yield what is found out about everything in `path`, a file or a folder, that dragoman has written checksums of.

    That includes folders in it, but not those whose names begin with a dot, nor those that links lead to, unless it is
    a part of a run, which may be on another disk.
    """
    if not path.is_dir():
        yield from verify_file(path)
        return
    for name, folders, files in os.walk(path, followlinks=True):
        folder = Path(name)
        folders[:] = sorted(
            inner
            for inner in folders
            if inner in ("checkpoints", "data") or not (inner.startswith(".") or (folder / inner).is_symlink())
        )
        if {MANIFEST, *FILES[:2]} & {*files} or NAME.fullmatch(folder.name):
            folders.clear()
            yield from verify_model(folder)
        else:
            for file in sorted(files):
                yield from verify_file(folder / file)
            for link in (folder / "best", folder / "last"):
                if link.is_symlink() and not link.exists():
                    yield Finding("damaged", link, expected="a checkpoint", found=f"no {link.readlink()}")


def verify_model(folder: Path) -> Iterator[Finding]:
    """Yield a finding for each damaged file of a model folder, or one for the folder if all of its files are intact.

    Then yield one for each file that its manifest does not list. A folder that cannot be read, or that is of a newer
    format, is a single finding. Of a checkpoint that its run has deleted meanwhile, there is none. Outside of its run,
    a checkpoint may lack the state of training.
    """
    try:
        manifest = read_checksums(folder)
        exported = exported_for(folder, manifest)
        if not exported:
            manifest = read_manifest(folder)
        missing = [] if exported or run_of(folder) else missing_state(folder, manifest)
        present = {name: entry for name, entry in manifest.items() if name not in missing}
        damaged = list(find_damage(folder, present))
        if not folder.exists():
            return
        if damaged:
            yield from (Finding("damaged", file, "", expected, actual) for file, expected, actual in damaged)
        else:
            if not exported:
                read_parts(folder)
            if PROGRESS in present:
                read_progress(folder)
            size = sum(size for size, _ in present.values())
            note = "; no training state: it translates, and cannot be resumed" if missing else ""
            yield Finding("ok", folder, f"{plural(len(present), 'file')}, {size:,} bytes{note}")
        files = sorted(folder.iterdir())
    except (DragomanError, FileNotFoundError) as error:
        if folder.exists():
            yield failed(error, folder)
        return
    for file in files:
        if file.name not in {*(name.split("/")[0] for name in manifest), MANIFEST, CARD}:
            yield Finding("unlisted", file, f"not in the manifest{'' if exported else '; nothing reads it'}")


def verify_file(file: Path) -> Iterator[Finding]:
    """Yield what is found out about a tokenised corpus, its tokenizer, or synthetic pairs; nothing of other files."""
    record = file.with_name(f"{file.name}.json")
    try:
        if file.suffix == ".arrow":
            yield verify_corpus(file)
        elif file.name in (JOINT, *SIDES):
            yield verify_tokenizer(file)
        elif record.exists():
            yield from verify_synthetic(file, record)
    except DragomanError as error:
        yield failed(error, file)


def verify_corpus(file: Path) -> Finding:
    """Return whether a tokenised corpus is that of the run around it. Raise DragomanError where it is damaged."""
    pairs = Pairs.open(file)
    run = file.parents[1]
    if is_intact(run / "last", PROGRESS):
        progress = read_progress(run / "last")
        expected = {"train.arrow": progress.data, "dev.arrow": progress.dev_data}.get(file.name, pairs.fingerprint)
        if expected != pairs.fingerprint:
            what = "pairs with SHA-256"
            return Finding("damaged", file, "", f"{what} {expected}", f"{what} {pairs.fingerprint}")
    return Finding("ok", file, plural(len(pairs), "pair"))


def verify_tokenizer(file: Path) -> Finding:
    """Return whether a tokenizer is that of the last checkpoint around it. Raise DragomanError for a damaged one."""
    tokenizer, checkpoint = load_tokenizer(file), file.parents[1] / "last"
    expected = load_tokenizer(checkpoint / file.name) if is_intact(checkpoint, file.name) else tokenizer
    if tokenizer.to_json() != expected.to_json():
        return Finding("damaged", file, "", f"the subwords of {checkpoint}", "others")
    return Finding("ok", file, plural(len(tokenizer), "subword"))


def is_intact(folder: Path, name: str) -> bool:
    """Return whether a model folder has this file, and it is what the manifest says."""
    try:
        return not any(find_damage(folder, {name: read_manifest(folder)[name]}))
    except (DragomanError, LookupError):
        return False


def verify_synthetic(file: Path, record: Path) -> Iterator[Finding]:
    """Yield whether a file is what its record describes; nothing where that is not a record of `backtranslate`."""
    try:
        content = read_json(record)
        expected, pairs = {name: content[name] for name in ("bytes", "sha256")}, plural(int(content["pairs"]), "pair")
        described = describe(expected)
    except (OSError, ValueError, TypeError, LookupError):
        return
    if (actual := fingerprint(file)) == expected:
        yield Finding("ok", file, pairs)
    else:
        yield Finding("damaged", file, "", described, describe(actual))


def describe(checksum: dict[str, Any]) -> str:
    """Return a fingerprint in words: '1,234 bytes with SHA-256 9f86d0...'."""
    return f"{checksum['bytes']:,} bytes with SHA-256 {checksum['sha256']}"


def failed(error: Exception, path: Path) -> Finding:
    """Return the finding for a file or folder that a reader refuses with this error."""
    return Finding(
        "newer" if isinstance(error, NewerFormatError) else "damaged", path, str(error).removeprefix(f"{path}: ")
    )
