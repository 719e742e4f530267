"""Write output as it comes, compressed by its name; it gets its name when it is whole."""

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from dragoman.errors import DragomanError, UsageError
from dragoman.storage.locks import lock_file
from dragoman.storage.writing import copy_permissions, name_errors, sync

CODECS = {".gz": "gzip", ".zst": "zstd"}  # by suffix


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
    """Delete a part left by a killed process. Raise BlockingIOError while one writes it, UsageError for a folder."""
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
