"""Write files, folders and links whole or not at all, and fingerprint files.

Whatever interrupts a write (an exception, a full disk, kill -9, a power cut), a reader finds the old state or the new
one, never something in between: everything is written under a draft's name, synced to the disk, then renamed.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

from safetensors import SafetensorError

from dragoman.errors import DragomanError

MANIFEST = "manifest.json"
# What fsync says where a file system, such as VirtualBox's shared folders, has no such thing for folders.
NOT_FOR_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
CARD = "card.md"  # text for people, who may edit it: no manifest vouches for it


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; it becomes `path`, with a manifest of its files but the card, when the block ends.

    `path` must not exist. Several processes may try at the same time: the first one to finish wins. Raise DragomanError
    in the others, and where the disk is full; after that or any other exception, `path` is as it was. kill -9 leaves
    the draft behind, which `draft_of` names.
    """
    draft = draft_of(path, uuid4().hex)
    try:
        with name_errors(path, draft):
            draft.mkdir(parents=True)
            yield draft
            files = {str(file.relative_to(draft)): file for file in sorted(draft.rglob("*")) if file.is_file()}
            manifest = {name: fingerprint(file) for name, file in files.items() if name != CARD}
            (draft / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
            for file in draft.rglob("*"):
                if file.is_file():
                    file.chmod((draft / MANIFEST).stat().st_mode)  # as the umask says; that of safetensors is narrower
                sync(file)
            sync(draft)
            try:
                draft.rename(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
                raise DragomanError(f"{path}: exists already; another process has made it") from None
            sync(path.parent)
    except SafetensorError as error:  # how the library reports a full disk
        raise DragomanError(f"{path}: could not be written: {error}") from None
    finally:
        delete_folder(draft)


@contextlib.contextmanager
def drafted(path: Path, unique: str = "") -> Iterator[Path]:
    """Yield the path of a draft of `path`, where nothing is; what the block leaves there is deleted at its end.

    unique: as for `draft_of`. The folder of `path` is made if it is missing. An OSError about the draft names `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_of(path, unique)
    try:
        with name_errors(path, draft):
            draft.unlink(missing_ok=True)  # a link would lead the write to another file
            yield draft
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_file(path: Path, *, shared: bool = False, new: bool = False) -> Iterator[Path]:
    """Yield the path of a draft to write; it becomes `path` when the block ends, and is deleted on an exception.

    With `shared` or `new`, several processes may write `path` at the same time, each in a draft that no other has. The
    last one to finish wins if `shared`; the first one if `new`, and FileExistsError is raised where `path` exists by
    then. kill -9 leaves the draft behind, which the next write overwrites if neither is true. See also `drafted`.
    """
    with drafted(path, uuid4().hex if shared or new else "") as draft:
        yield draft
        if not new:
            copy_permissions(path, draft)
        sync(draft)
        if new:
            rename_new(draft, path)
        else:
            draft.replace(path)
        sync(path.parent)


def rename_new(draft: Path, path: Path) -> None:
    """Give a draft its name. Raise FileExistsError where a file has it already."""
    try:
        os.link(draft, path)
    except OSError as error:  # also a file system without hard links, such as exFAT
        if isinstance(error, FileExistsError) or path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        draft.rename(path)


@contextlib.contextmanager
def name_errors(name: Path | str, draft: Path | None = None) -> Iterator[None]:
    """Let an OSError of the block name what is written or read, if it names no file, as a failed write, or the draft.

    The draft is a file, or a folder with files.
    """
    try:
        yield
    except OSError as error:
        names = [str(file) for file in (error.filename, error.filename2) if file is not None]
        if error.errno and (not names or (draft and any(file.startswith(str(draft)) for file in names))):
            error.filename = str(name)
            if error.filename2 is not None:
                del error.filename2  # None would be shown: 'name' -> None
        raise


def copy_permissions(path: Path, draft: Path) -> None:
    """Give a draft the permissions of the file that it will replace; if there is none, the umask has decided them."""
    with contextlib.suppress(OSError):
        before = path.lstat()
        if stat.S_ISREG(before.st_mode):
            with contextlib.suppress(PermissionError):  # only root may give files away
                os.chown(draft, before.st_uid, before.st_gid)
            draft.chmod(stat.S_IMODE(before.st_mode))


def replace_file(path: Path, content: str | bytes, *, shared: bool = False) -> None:
    """Replace or create a file, whole or not at all; text is written in UTF-8. `shared`: see `atomic_file`."""
    with atomic_file(path, shared=shared) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


def replace_link(link: Path, target: Path) -> None:
    """Let the symbolic link `link` point to `target`, relative to where the link is, in one step."""
    with drafted(link) as draft:
        draft.symlink_to(os.path.relpath(target, link.parent))
        draft.replace(link)
        sync(link.parent)


def open_append(path: Path) -> TextIO:
    """Open a text file to append to it. Raise DragomanError where it is a link, which may lead to any file."""
    return os.fdopen(open_no_link(path, os.O_APPEND), "a", encoding="utf-8")


def open_no_link(path: Path, flags: int) -> int:
    """Return the descriptor of a file, which is created, open for writing. Raise DragomanError where it is a link."""
    try:
        # Without blocking: a stranger may have put a pipe there, which is opened once somebody reads it.
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DragomanError(f"{path}: a symbolic link; nothing is written through links") from None
        raise


def require_links(folder: Path) -> None:
    """Raise DragomanError where the file system of a folder has no symbolic links, as exFAT and some cloud drives."""
    link = folder / ".link"
    try:
        link.unlink(missing_ok=True)
        link.symlink_to(".")
        link.unlink()
    except OSError as error:
        raise DragomanError(
            f"{folder}: this file system has no symbolic links ({error.strerror}), and a run needs them for 'best' and "
            "'last'; choose another --out"
        ) from None


def delete_folder(path: Path) -> None:
    """Delete as much of a folder as can be deleted: nothing depends on it any more."""
    with contextlib.suppress(OSError):  # Python closes a folder again where closing it failed
        shutil.rmtree(path, ignore_errors=True)


def draft_of(path: Path, unique: str = "") -> Path:
    """Return the hidden name beside `path` under which it is written: '.model.draft' for 'model'.

    unique: put into the name, '.model.UNIQUE.draft', so that several processes may write at the same time.
    """
    return path.with_name(f".{path.name}{unique and '.'}{unique}.draft")


def sync(path: Path) -> None:
    """Wait until a file or folder has reached the disk, or a file alone where the file system syncs no folders."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NOT_FOR_FOLDERS or not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise
    finally:
        os.close(descriptor)


def fingerprint(file: Path) -> dict[str, Any]:
    """Return the size and the SHA-256 of a file, as a manifest lists them: {'bytes': 1234, 'sha256': '9f86d0...'}."""
    with name_errors(file), file.open("rb") as opened:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(opened, "sha256").hexdigest()}
