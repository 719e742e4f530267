"""Where the system refuses memory, one sentence says so, and what was saved stays. The limits are real ones.

What a library gets that asks for more than there is, it reports in its own way. Libraries in Rust abort instead, and
some in C++ crash if there is no room for a few bytes: only what was saved stays then, as after any kill.
"""

import os
import resource
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from conftest import run_config, run_training, settings_file, state
from processes import KILLED, VALIDATION, Command

from dragoman.model_folder import verify_files

Corpus = tuple[str, str]
ROOM = 64 << 20  # bytes: enough for an error message
TOO_MUCH = 8 << 30  # libraries may have reserved some addresses before

pytestmark = pytest.mark.slow

ASK: dict[str, Callable[[int], object]] = {
    "Python": bytearray,
    "PyTorch": lambda size: torch.empty(size, dtype=torch.uint8),
    "NumPy": lambda size: np.empty(size, np.uint8),
    "Arrow": pa.allocate_buffer,
}


def asks_for_too_much(library: str) -> None:
    """Let this process have ROOM more than now (`ulimit -v`), and ask for more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, resource.RLIM_INFINITY))
    ASK[library](TOO_MUCH)


def fill_group(group: Path) -> None:
    """Join a control group and take more memory than it may have."""
    (group / "cgroup.procs").write_text("0")
    b"x" * (4 * ROOM)


def before(owner: str, name: str, does: Callable[[], object]) -> None:
    """A fault: that happens when `name` of that module or class is about to be called for the first time."""
    there, so_far = resolve_name(owner), count(1)
    work = getattr(there, name)

    def wrapped(*arguments: Any, **more: Any) -> Any:
        if next(so_far) == 1:
            does()
        return work(*arguments, **more)

    setattr(there, name, wrapped)


def one_sentence(command: Command) -> str:
    """Return the error message. Fail where there is more than one line of it."""
    assert command.code() == 1, command.said
    sentence = command.said.splitlines()[-1]
    assert command.said.count("dragoman: ") == 1, command.said
    assert sentence.startswith("dragoman: "), command.said
    assert "Traceback" not in command.said
    return sentence


OFTEN = {"max_steps": 4, "save_every": 1, "validate_every": 3, "batch_tokens": 400}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, corpus: Corpus) -> str:
    """The state of a run that has all the memory it wants."""
    out = tmp_path_factory.mktemp("whole") / "run"
    run_training(run_config(corpus, out, **OFTEN))
    return state(out)


def interrupted(corpus: Corpus, folder: Path, does: Callable[[], object]) -> Command:
    """Begin that run, and let this happen in its first validation."""
    file = settings_file(run_config(corpus, folder / "run", **OFTEN))
    return Command(["train", file], folder / "log", {"RANK": "0"}, [partial(before, VALIDATION, "translate_all", does)])


def goes_on(corpus: Corpus, folder: Path, whole: str) -> None:
    verify_files(folder / "run" / "last")
    run_training(run_config(corpus, folder / "run", **OFTEN))
    assert state(folder / "run") == whole


@pytest.mark.parametrize("library", ASK)
def test_run_without_memory_ends_in_a_sentence_and_goes_on_later(
    corpus: Corpus, tmp_path: Path, whole: str, library: str
):
    assert "not enough memory" in one_sentence(interrupted(corpus, tmp_path, partial(asks_for_too_much, library)))
    goes_on(corpus, tmp_path, whole)


@pytest.mark.parametrize(
    ("owner", "name"),
    [("dragoman.model_folder.folder", "load_model"), ("dragoman.translation.translator:Translator", "translate")],
)
@pytest.mark.parametrize("library", ASK)
def test_translation_without_memory_ends_in_a_sentence(
    trained: Path, tmp_path: Path, library: str, owner: str, name: str
):
    arguments = ["translate", "-m", str(trained), "The dog sees 2 red cats.", "--threads", "1"]
    fault = partial(before, owner, name, partial(asks_for_too_much, library))
    assert "not enough memory" in one_sentence(Command(arguments, tmp_path / "log", {}, [fault]))


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group that may have ROOM of memory, inside of ours."""
    listed = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    places = [
        (Path(f"/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes") for _, kind, path in listed if kind == "memory"
    ]
    places += [(Path(f"/sys/fs/cgroup{path}"), "memory.max") for number, _, path in listed if number == "0"]
    for place, limit in places:
        new = place / f"dragoman-{os.getpid()}"
        try:
            new.mkdir()
        except OSError:
            continue
        try:
            if (new / limit).exists():
                (new / limit).write_text(str(ROOM))
                yield new
                return
        finally:
            new.rmdir()
    pytest.skip("no control group for memory can be made here: that needs root, or a group that was handed over")


def test_run_that_the_system_kills_for_its_memory_goes_on_later(
    corpus: Corpus, tmp_path: Path, whole: str, group: Path
):
    """As in a container, where nothing is refused, and who has too much is killed."""
    killed = interrupted(corpus, tmp_path, partial(fill_group, group))
    assert killed.code() == KILLED, killed.said
    goes_on(corpus, tmp_path, whole)
