"""Write files, folders and links whole or not at all, and fingerprint files; compress output by its name.

Whatever interrupts a write (an exception, a full disk, kill -9, a power cut), a reader finds the old state or the new
one, never something in between: everything is written under a draft's name, synced to the disk, then renamed.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar
from uuid import uuid4

from safetensors import SafetensorError

from dragoman.errors import DragomanError, UsageError

Record = TypeVar("Record")

MANIFEST = "manifest.json"
CARD = "card.md"  # text for people, who may edit it: no manifest vouches for it
MAX_RECORD_SIZE = 1 << 20  # bytes
MAX_TABLE_SIZE = 64 << 20  # bytes; of files that grow with the vocabulary or the sample translations
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL}  # what file systems without locks answer
CODECS = {".gz": "gzip", ".zst": "zstd"}  # by suffix


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
def atomic_file(path: Path, *, shared: bool = False) -> Iterator[Path]:
    """Yield the path of a draft to write; it replaces `path` when the block ends, and is deleted on an exception.

    With `shared`, several processes may write `path` at the same time: each has a draft of its own, and the last one to
    finish wins. A draft that is left behind by kill -9 is overwritten by the next write, but not if `shared`. For the
    rest, see `drafted`.
    """
    with drafted(path, uuid4().hex if shared else "") as draft:
        yield draft
        copy_permissions(path, draft)
        sync(draft)
        draft.replace(path)
        sync(path.parent)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield the path of a draft to write; it becomes `path` when the block ends, and is deleted on an exception.

    Raise FileExistsError where `path` exists by then: of several processes, the first one to finish wins. For the rest,
    see `drafted`.
    """
    with drafted(path, uuid4().hex) as draft:
        yield draft
        sync(draft)
        try:
            os.link(draft, path)
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        except OSError:  # a file system without hard links, such as exFAT
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
            draft.rename(path)
        sync(path.parent)


@contextlib.contextmanager
def name_errors(name: Path | str, draft: Path | None = None) -> Iterator[None]:
    """Let an OSError of the block name what is written or read, if it names no file, as a failed write, or the draft.

    The draft is a file, or a folder with files.
    """
    try:
        yield
    except OSError as error:
        names = [str(one) for one in (error.filename, error.filename2) if one is not None]
        if error.errno and (not names or (draft and any(one.startswith(str(draft)) for one in names))):
            error.filename = str(name)
            if error.filename2 is not None:
                del error.filename2  # None would be told: 'name' -> None
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
    """Replace the content of a file, or create it, whole or not at all; text is written in UTF-8.

    `shared`: see `atomic_file`.
    """
    with atomic_file(path, shared=shared) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def open_output(path: Path | None, *, keep: Callable[[], int] = lambda: 0) -> Iterator[BinaryIO]:
    """Yield a file to write to as it comes, compressed if its name ends in .gz or .zst; for None, standard output.

    It is written as `part_of(path)` and becomes `path` when the block ends. After an exception `path` is as it was; of
    what was written, the part keeps the first `keep()` bytes, or all if it is compressed and these are not 0. Pipes and
    devices are written directly. Raise UsageError where its folder does not exist, and DragomanError where another
    process is writing `path`; an OSError about the file names `path`.
    """
    if path in (None, Path("/dev/stdout")):
        with name_errors("standard output"):
            yield sys.stdout.buffer
        return
    assert path
    if not is_replaceable(path):
        with name_errors(path), path.open("ab") as file, compressed(file, path) as stream:
            yield stream
        return
    require_place(path)
    target, part = real_path(path), part_of(path)
    with name_errors(path, part):
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        with new_part(path, part) as descriptor:
            try:
                with os.fdopen(os.dup(descriptor), "wb") as file:
                    copy_permissions(target, part)
                    with compressed(file, path) as stream:
                        yield stream
                os.fsync(descriptor)
                if not has_descriptor(part, descriptor):  # by hand, or by a writer on a file system without locks
                    raise DragomanError(f"{path}: {part} was moved or replaced while it was written")
                part.replace(target)
                sync(target.parent)
            except BaseException:
                if not (kept := keep()):
                    if has_descriptor(part, descriptor):
                        part.unlink()
                elif path.suffix.lower() not in CODECS:
                    os.truncate(descriptor, kept)
                raise


@contextlib.contextmanager
def new_part(path: Path, part: Path) -> Iterator[int]:
    """Create `part`, locked for the block, and yield its descriptor, open for writing.

    What a process that was killed has left is deleted. Raise DragomanError, naming `path`, where another process is
    writing it.
    """
    with contextlib.ExitStack() as stack:
        try:
            while True:
                delete_left(part)
                with contextlib.suppress(FileExistsError):
                    descriptor = stack.enter_context(lock_file(part, wait=False, new=True))
                    if has_descriptor(part, descriptor):  # not if another process has deleted it before it was locked
                        break
        except BlockingIOError:
            raise DragomanError(f"{path}: another process is writing it") from None
        yield descriptor


def delete_left(part: Path) -> None:
    """Delete a part that a process that was killed has left. Raise BlockingIOError where a process is writing it.

    Raise UsageError where it is a folder.
    """
    if part.is_dir() and not part.is_symlink():
        raise UsageError(f"{part}: a folder; the output is written under this name until it is whole")
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(part.lstat().st_mode):
            part.unlink()  # a link would lead the write to another file
            return
        try:
            with lock_file(part, wait=False) as descriptor:
                if has_descriptor(part, descriptor):  # not if it was renamed before it was locked
                    part.unlink()
        except PermissionError:  # another user's, which who may write to the folder may delete
            part.unlink()


def has_descriptor(path: Path, descriptor: int) -> bool:
    """Return whether a path leads to the open file of a descriptor."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def require_no_folder(path: Path) -> None:
    """Raise UsageError where a file is to be written, and there is a folder of its name."""
    if path.is_dir():
        raise UsageError(f"{path}: a folder; give the name of a file")


def require_place(path: Path) -> None:
    """Raise UsageError where nothing can be written as `path`: it is a folder, or to be in one that does not exist."""
    require_no_folder(path)
    folder = real_path(path).parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        wrong = "is not a folder" if folder.exists() else "does not exist"
        raise UsageError(f"{path}: {'' if folder.exists() else 'the folder '}{folder} {wrong}")


def is_replaceable(path: Path) -> bool:
    """Return whether a file may be replaced by another one of its name.

    That is a regular file or none yet, but not a pipe or a device, nor a name for a file that is open already, such as
    /dev/fd/3.
    """
    if str(path.absolute()).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        return False
    try:
        return stat.S_ISREG(path.stat().st_mode)  # asked once: another process may put the file there meanwhile
    except OSError:
        return True


def real_path(path: Path) -> Path:
    """Return where the links of a path lead, an absolute path. Of links that lead to each other, it is one of them."""
    return Path(os.path.realpath(path))


def part_of(path: Path) -> Path:
    """Return the name under which `open_output` writes a file until it is whole: 'out.txt.part', where links lead."""
    target = real_path(path) if path.is_symlink() else path
    return target.with_name(f"{target.name}.part")


def compressed(file: BinaryIO, path: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    """Return a stream that writes to `file`, compressed if `path` says so; a context manager that ends it."""
    if not (codec := CODECS.get(path.suffix.lower())):
        return contextlib.nullcontext(file)
    import pyarrow

    return pyarrow.CompressedOutputStream(pyarrow.PythonFile(file, "w"), codec)


def replace_link(link: Path, target: Path) -> None:
    """Let the symbolic link `link` point to `target`, relative to where the link is, in one step."""
    with drafted(link) as draft:
        draft.symlink_to(os.path.relpath(target, link.parent))
        draft.replace(link)
        sync(link.parent)


def open_append(path: Path) -> TextIO:
    """Open a text file to append to it. Raise DragomanError where it is a link, which may lead to any file."""
    return os.fdopen(_open_no_link(path, os.O_APPEND), "a", encoding="utf-8")


_locks: set[int] = set()  # descriptors of files that this process has locked


def _leave_locks() -> None:
    """Close the descriptors of locks in a forked process: while it has them, the files stay locked."""
    for descriptor in _locks:
        os.close(descriptor)
    _locks.clear()


os.register_at_fork(after_in_child=_leave_locks)


@contextlib.contextmanager
def lock_file(path: Path, *, wait: bool, new: bool = False) -> Iterator[int]:
    """Lock a file, which is created, for the block, and yield its descriptor, open for writing.

    Processes that are forked meanwhile do not hold the lock. A file system without locks locks nothing.

    wait: until another process gives it back; else raise BlockingIOError where one has it. new: raise FileExistsError
    where the file exists. Raise DragomanError where it is a link.
    """
    descriptor = _open_no_link(path, os.O_EXCL if new else 0)
    _locks.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        yield descriptor
    finally:
        if descriptor in _locks:  # not in a forked process
            _locks.remove(descriptor)
            with contextlib.suppress(OSError):  # nothing was written, and the error of the block counts
                os.close(descriptor)


def _open_no_link(path: Path, flags: int) -> int:
    """Return the descriptor of a file, which is created, open for writing. Raise DragomanError where it is a link."""
    try:
        # Without blocking: a stranger may have put a pipe there, which is opened once somebody reads it.
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DragomanError(f"{path}: a symbolic link; nothing is written through links") from None
        raise


def open_regular(file: Path) -> BinaryIO:
    """Open a file to read it. Raise OSError where it is a pipe or a device, which might be read for ever."""
    if file.exists() and not (file.is_file() or file.is_dir()):  # that of a folder is a clear error
        raise OSError(errno.EINVAL, "not a regular file", str(file))
    return file.open("rb")


def read_json(file: Path, max_size: int = MAX_RECORD_SIZE, max_values: int | None = None) -> Any:
    """Return the content of a JSON file.

    max_values: lists, objects and their members, which cost much more memory than their bytes in the file.

    Raise ValueError where it has more than `max_size` bytes or `max_values` values, is nested too deeply or is not JSON
    in UTF-8, and OSError where it cannot be read.
    """
    with open_regular(file) as opened:
        data = opened.read(max_size + 1)
    if len(data) > max_size:
        raise ValueError(f"it has more than {max_size:,} bytes")
    # Marks inside strings are counted, too: that is much faster than telling them apart.
    if max_values is not None and sum(map(data.count, (b",", b"[", b"{"))) > max_values:
        raise ValueError(f"it has more than {max_values:,} values")
    try:
        return json.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_listed(file: Path) -> str | None:
    """Return the text of a file if it exists and the manifest of its folder lists it, else None.

    Whoever adds a file to a model folder without listing it has not vouched for it. The text is not compared with its
    fingerprint: `verify_files` does that. Raise DragomanError where the file is too large for a record or not UTF-8.
    """
    try:
        listed = file.name in read_json(file.parent / MANIFEST)
    except (OSError, ValueError, TypeError):
        return None  # `verify_files` says what is wrong with the manifest
    if not listed or not file.is_file():
        return None
    if file.stat().st_size > MAX_RECORD_SIZE:
        raise DragomanError(f"{file}: too large for a record")
    try:
        with name_errors(file):
            return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DragomanError(f"{file}: not UTF-8") from None


def read_record(file: Path, what: str, make: Callable[[Any], Record]) -> Record | None:
    """Return what `make` makes of the JSON in a listed file; None where there is no such file (see `read_listed`).

    Raise DragomanError, "not" and `what` it is, where it is no JSON or `make` raises ValueError, TypeError or
    AttributeError.
    """
    if (text := read_listed(file)) is None:
        return None
    try:
        return make(json.loads(text))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise DragomanError(f"{file}: not {what}") from None


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
    """Wait until a file or folder has reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fingerprint(file: Path) -> dict[str, Any]:
    """Return the size and the SHA-256 of a file, as a manifest lists them: {'bytes': 1234, 'sha256': '9f86d0...'}."""
    with name_errors(file), file.open("rb") as opened:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(opened, "sha256").hexdigest()}
