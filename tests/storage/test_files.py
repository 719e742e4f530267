"""Files, folders and links that are whole at every instant, also when the process that writes them is killed."""

import errno
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from processes import KILLED, Command, killed_before_operation

from dragoman.data.lines import read_lines
from dragoman.errors import DragomanError, UsageError
from dragoman.storage.locks import lock_file
from dragoman.storage.output import open_output, part_of
from dragoman.storage.records import read_json
from dragoman.storage.writing import (
    MANIFEST,
    atomic_file,
    delete_folder,
    new_folder,
    open_append,
    replace_file,
    replace_link,
    require_links,
)

OLD, NEW = "old", "new" * 10_000


def write_file(folder: Path, content: str, shared: bool = False) -> None:
    replace_file(folder / "file", content, shared=shared)


def write_in_pieces(folder: Path, content: str) -> None:
    with atomic_file(folder / "file") as draft, draft.open("w") as opened:
        for letter in content:
            opened.write(letter)


def write_output(folder: Path, content: str) -> None:
    with open_output(folder / "file", keep=lambda: 1) as opened:
        opened.write(content.encode())


def write_link(folder: Path, content: str) -> None:
    (folder / content[:3]).mkdir(exist_ok=True)
    (folder / content[:3] / "file").write_text(content)
    replace_link(folder / "link", folder / content[:3])


def killed_while_writing(write: Callable[[Path, str], None], folder: Path, operation: int) -> None:
    killed_before_operation(operation, ("open", "os.rename", "os.remove", "os.symlink"))
    write(folder, NEW)
    os._exit(0)


def contents_after_kills(write: Callable[[Path, str], None], file: str, folder: Path) -> list[str]:
    """Return what a reader finds after a kill before the first operation on files, the second, and so on to the end."""
    contents: list[str] = []
    code = KILLED
    while code == KILLED:
        own = folder / str(len(contents))
        own.mkdir()
        write(own, OLD)
        fault = partial(killed_while_writing, write, own, len(contents) + 1)
        code = Command([], folder / "log", faults=[fault]).code()
        contents.append((own / file).read_text())
    assert code == 0
    return contents


@pytest.mark.parametrize(
    ("write", "file"),
    [
        (write_file, "file"),
        (partial(write_file, shared=True), "file"),
        (write_in_pieces, "file"),
        (write_output, "file"),
        (write_link, "link/file"),
    ],
    ids=["file", "shared file", "file in pieces", "output", "link"],
)
def test_reader_after_a_kill_finds_the_old_content_or_the_new(
    tmp_path: Path, write: Callable[[Path, str], None], file: str
):
    contents = contents_after_kills(write, file, tmp_path)
    assert set(contents) == {OLD, NEW}
    assert contents == sorted(contents, key=len)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What reaches the disk, by inode, and the names that drafts get, in order."""
    done: list[tuple[str, Any]] = []

    def noted(name: str, note: Callable[..., tuple[str, Any]]) -> None:
        call = getattr(os, name)

        def noting(*given: Any, **others: Any) -> None:
            done.append(note(*given))
            call(*given, **others)

        monkeypatch.setattr(os, name, noting)

    noted("fsync", lambda descriptor: ("on disk", os.fstat(descriptor).st_ino))
    for name in ("replace", "rename", "link"):
        noted(name, lambda _, path: ("named", str(path)))
    return done


@pytest.mark.parametrize("new", [False, True])
def test_file_is_on_disk_before_its_name_and_its_folder_after(tmp_path: Path, done: list[Any], new: bool):
    with atomic_file(tmp_path / "file", new=new) as draft:
        draft.write_text(NEW)
    file, folder = (path.stat().st_ino for path in (tmp_path / "file", tmp_path))
    assert done == [("on disk", file), ("named", str(tmp_path / "file")), ("on disk", folder)]


def test_files_in_a_folder_are_on_disk_before_its_name(tmp_path: Path, done: list[Any]):
    with new_folder(tmp_path / "model") as draft:
        (draft / "inner").mkdir()
        (draft / "inner" / "file").write_text(NEW)
    *synced, named, last = done
    inside = [path.stat().st_ino for path in (tmp_path / "model", *(tmp_path / "model").rglob("*"))]
    assert sorted(synced) == sorted(("on disk", inode) for inode in inside)
    assert (named, last) == (("named", str(tmp_path / "model")), ("on disk", tmp_path.stat().st_ino))


@pytest.mark.parametrize("write", [write_file, write_link, lambda folder, text: write_file(folder / "new", text)])
@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EIO])
def test_file_system_that_syncs_no_folders_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, str], None], code: int
):
    """The controls: an error of the disk, and a file that cannot be synced."""
    fsync, refusing = os.fsync, stat.S_ISDIR

    def refuse(descriptor: int) -> None:
        if refusing(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match=os.strerror(code)) if code == errno.EIO else nullcontext():
        write(tmp_path, NEW)
    refusing = stat.S_ISREG
    with pytest.raises(OSError, match=os.strerror(code)):
        write_file(tmp_path, OLD)


def write_in_place_until_killed(folder: Path) -> None:
    with (folder / "file").open("w") as opened:
        for letter in NEW:
            opened.write(letter)
        os.kill(os.getpid(), signal.SIGKILL)


def test_writer_in_place_that_is_killed_leaves_half_a_file_control(tmp_path: Path):
    """The control for the test above."""
    (tmp_path / "file").write_text(OLD)
    assert Command([], tmp_path / "log", faults=[partial(write_in_place_until_killed, tmp_path)]).code() == KILLED
    assert (tmp_path / "file").read_text() not in (OLD, NEW)


@pytest.mark.parametrize("shared", [False, True])
def test_exception_leaves_the_old_file_and_no_draft(tmp_path: Path, shared: bool):
    write_file(tmp_path, OLD)
    with pytest.raises(OSError, match="disk full"), atomic_file(tmp_path / "file", shared=shared) as draft:  # noqa: PT012
        draft.write_text("half")
        raise OSError("disk full")
    assert (tmp_path / "file").read_text() == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["out", "out.gz", "out.zst"])
@pytest.mark.parametrize("keep", [0, 4])
def test_output_that_is_not_whole_has_another_name(tmp_path: Path, name: str, keep: int):
    """As much of it is kept as is asked for; if it is compressed, all or nothing. Whole, it replaces the file."""
    path = tmp_path / name
    path.write_text(OLD)
    part_of(path).write_text("of another time")
    with pytest.raises(KeyboardInterrupt), open_output(path, keep=lambda: keep) as file:  # noqa: PT012
        file.write(b"half of it")
        assert path.read_text() == OLD
        raise KeyboardInterrupt
    assert path.read_text() == OLD
    assert part_of(path).exists() == bool(keep)
    if keep:
        shutil.copy(part_of(path), copy := tmp_path / f"copy{path.suffix}")
        assert [*read_lines(str(copy))] == ["half of it" if path.suffix else "half"]
        copy.unlink()
    with open_output(path) as file:
        file.write(b"whole")
    assert list(read_lines(str(path))) == ["whole"]
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["out", "out.gz"])
def test_second_writer_of_an_output_stops_and_says_so(tmp_path: Path, name: str):
    """The control: afterwards, the other may."""
    path = tmp_path / name
    with open_output(path, keep=lambda: 1) as file:
        file.write(b"all ")
        with pytest.raises(DragomanError, match=f"{name}: another process is writing it"), open_output(path):
            pass
        file.write(b"of it")
    assert [*read_lines(str(path))] == ["all of it"]
    with open_output(path) as file:
        file.write(b"of another")
    assert [*read_lines(str(path))] == ["of another"]
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_output_without_locks_reports_that_its_part_was_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As on some network file systems. The control is the other one, whose output is whole."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", refuse)
    path = tmp_path / "out"
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(DragomanError, match=r"out: .*out\.part was moved or replaced while"))
        stack.enter_context(open_output(path)).write(b"all of it")
        with open_output(path) as file:
            file.write(b"of another")
    assert path.read_text() == "of another"
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_racing_writers_write_an_output_whole_or_not_at_all(tmp_path: Path):
    """Twenty times, four processes start at once; those that are refused have written nothing."""
    path = tmp_path / "out"
    for _ in range(20):
        with ProcessPoolExecutor(4, get_context("fork")) as pool:
            ends = [*pool.map(partial(race, path), "abcd")]
        assert path.read_text() in ("a" * 9000, "b" * 9000, "c" * 9000, "d" * 9000)
        assert True in ends
        assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_file_that_appears_while_it_is_opened_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another process has just put it there. The control: it is replaced, not continued."""
    path, asked = tmp_path / "out", Path.stat

    def stat(self: Path, **options: Any) -> os.stat_result:
        try:
            return asked(self, **options)
        finally:
            if self == path and not os.path.lexists(path):
                path.write_text("of another")

    monkeypatch.setattr(Path, "stat", stat)
    with open_output(path) as file:
        file.write(b"ours")
    assert path.read_text() == "ours"


def test_part_that_is_in_the_way_is_named(tmp_path: Path):
    """Except for a link, which is deleted, and what it leads to is not."""
    part_of(path := tmp_path / "out").mkdir()
    with (
        pytest.raises(UsageError, match=r"out\.part: a folder; the output is written under this name"),
        open_output(path),
    ):
        pass
    part_of(path).rmdir()
    (precious := tmp_path / "precious").mkdir()
    part_of(path).symlink_to(precious)
    with open_output(path) as file:
        file.write(b"ours")
    assert (path.read_text(), precious.is_dir()) == ("ours", True)


def test_output_may_be_a_link_that_leads_to_itself(tmp_path: Path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with open_output(tmp_path / "a") as file:
        file.write(b"ours")
    assert "ours" in {(tmp_path / name).read_text() for name in "ab"}


def race(path: Path, letter: str) -> bool:
    try:
        with open_output(path) as file:
            for _ in range(9000):
                file.write(letter.encode())
                file.flush()
    except DragomanError:
        return False
    return True


def test_output_keeps_permissions_and_links_and_respects_write_protection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, link, new = tmp_path / "out", tmp_path / "link", tmp_path / "new"
    path.write_text(OLD)
    path.chmod(0o640)
    link.symlink_to(path)
    for file in (link, new):
        with open_output(file) as opened:
            opened.write(b"new")
    assert link.is_symlink()
    assert path.read_text() == new.read_text() == "new"
    umask = os.umask(0)
    os.umask(umask)
    assert [file.stat().st_mode & 0o777 for file in (path, new)] == [0o640, 0o666 & ~umask]
    replace_file(path, OLD)
    assert path.stat().st_mode & 0o777 == 0o640
    monkeypatch.setattr("os.access", lambda *_: False)  # as for whoever is not root
    with pytest.raises(PermissionError), open_output(path):
        pass
    assert path.read_text() == OLD


def test_pipes_and_devices_are_written_directly(tmp_path: Path):
    os.mkfifo(pipe := tmp_path / "pipe")
    ear = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with open_output(pipe) as file:
        file.write(b"a")
        file.flush()
        assert os.read(ear, 9) == b"a"
    os.close(ear)
    with open_output(Path(os.devnull)) as file:
        file.write(b"a")
    (log := tmp_path / "log").write_text(OLD)
    with log.open("ab") as opened, open_output(Path(f"/dev/fd/{opened.fileno()}")) as file:
        file.write(b"a")
    assert log.read_text() == OLD + "a"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log", "pipe"]


def test_writers_of_a_shared_file_have_separate_drafts(tmp_path: Path):
    with atomic_file(tmp_path / "file", shared=True) as one, atomic_file(tmp_path / "file", shared=True) as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "file").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("links", [True, False])
def test_new_file_takes_the_place_of_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool):
    """Of two that write it, the first one to finish wins, also on a file system without hard links."""
    if not links:
        monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(PermissionError(errno.EPERM, "no links")))
    path = tmp_path / "folder" / "file"
    new = partial(atomic_file, path, new=True)
    with pytest.raises(FileExistsError, match="file"), new() as one, new() as other:  # noqa: PT012
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "other"
    with pytest.raises(KeyboardInterrupt), atomic_file(tmp_path / "new", new=True) as draft:  # noqa: PT012
        draft.write_text("half")
        raise KeyboardInterrupt
    assert [file.name for file in path.parent.iterdir()] == ["file"]
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("read", [read_json, open_append], ids=["read", "append"])
def test_pipe_in_a_strange_folder_is_not_waited_for(tmp_path: Path, read: Callable[[Path], Any]):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe"):
        read(tmp_path / "pipe")


def test_folder_that_cannot_be_filled_leaves_what_was_there(tmp_path: Path):
    for folder in (tmp_path / "new", tmp_path / "old"):
        with pytest.raises(OSError, match="disk full"), new_folder(folder) as draft:  # noqa: PT012
            (draft / "half").write_text("")
            raise OSError("disk full")
        assert not folder.exists()
    with new_folder(tmp_path / "old") as draft:
        (draft / "whole").write_text("")
    with pytest.raises(OSError, match="disk full"), new_folder(tmp_path / "old"):
        raise OSError("disk full")
    assert sorted(path.name for path in (tmp_path / "old").iterdir()) == [MANIFEST, "whole"]
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def appended(path: Path) -> None:
    with open_append(path) as opened:
        opened.write(NEW)


def locked(path: Path) -> None:
    with lock_file(path, wait=False):
        pass


@pytest.mark.parametrize(
    ("write", "link", "refused"),
    [
        (partial(replace_file, content=NEW), ".file.draft", False),
        (appended, "file", True),
        (locked, "file", True),
    ],
    ids=["replace", "append", "lock"],
)
def test_links_are_never_written_through(tmp_path: Path, write: Callable[[Path], None], link: str, refused: bool):
    """A folder of a stranger may have links to the user's files. The control: the link leads there."""
    (precious := tmp_path / "precious").write_text(OLD)
    (tmp_path / link).symlink_to(precious)
    assert (tmp_path / link).read_text() == OLD
    with pytest.raises(DragomanError, match="file: a symbolic link") if refused else nullcontext():
        write(tmp_path / "file")
    assert precious.read_text() == OLD
    assert refused or (tmp_path / "file").read_text() == NEW


def test_lock_keeps_others_out_until_it_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with lock_file(tmp_path / "lock", wait=False), pytest.raises(BlockingIOError):
        locked(tmp_path / "lock")
    locked(tmp_path / "lock")
    with lock_file(tmp_path / "lock", wait=False):
        started, starts = os.pipe()
        child = os.fork()
        if not child:  # as a worker that outlives a training that was killed
            os.write(starts, b".")
            time.sleep(60)
            os._exit(0)
        assert os.read(started, 1) == b"."  # a process that has just been forked has the lock for a moment
        os.close(started)
        os.close(starts)
        with pytest.raises(BlockingIOError):
            locked(tmp_path / "lock")
    locked(tmp_path / "lock")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.flock", unsupported)  # as on some network file systems
    locked(tmp_path / "lock")


def test_file_system_without_links_is_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    require_links(tmp_path)
    assert not list(tmp_path.iterdir())

    def unsupported(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.symlink", unsupported)
    with pytest.raises(DragomanError, match="this file system has no symbolic links"):
        require_links(tmp_path)


def test_first_writer_of_a_folder_wins_and_the_other_says_so(tmp_path: Path):
    with pytest.raises(DragomanError, match="model: exists already"), new_folder(tmp_path / "model") as one:  # noqa: PT012
        (one / "file").write_text("one")
        with new_folder(tmp_path / "model") as other:
            (other / "file").write_text("other")
        assert (one / "file").read_text() == "one"
    assert (tmp_path / "model" / "file").read_text() == "other"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_folder_that_cannot_be_closed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    close = os.close

    def closed_but_failed(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", closed_but_failed)
        delete_folder(tmp_path / "folder")
    delete_folder(tmp_path / "folder")  # the control: what is left can be deleted
    assert not list(tmp_path.iterdir())
