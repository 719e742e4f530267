"""Lock a file for a block."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from dragoman.storage.writing import open_no_link

NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL}  # what file systems without locks answer
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
    descriptor = open_no_link(path, os.O_EXCL if new else 0)
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
