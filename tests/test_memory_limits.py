"""Where the system refuses memory, one sentence says so, and what was saved stays. The limits are real: `ulimit -v`.

Libraries in Rust abort where they get none, without a way to catch it; what was saved stays then, too.
"""

import resource
from functools import partial
from itertools import count
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from conftest import run_config, run_training, settings_file, state
from processes import VALIDATION, Command

from dragoman.model_folder import verify_files

Corpus = tuple[str, str]
MB = 1 << 20

pytestmark = pytest.mark.slow  # how libraries in Rust end depends on the few bytes that are left: not on every commit


def limit_memory(room: int) -> None:
    """Let this process have so many bytes more than now, and no more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, resource.RLIM_INFINITY))


def limited_before(owner: str, name: str, call: int, room: int) -> None:
    """A fault: memory is limited when `name` of that module or class is about to be called for the time `call`."""
    there, so_far = resolve_name(owner), count(1)
    work = getattr(there, name)

    def wrapped(*arguments: Any, **more: Any) -> Any:
        if next(so_far) == call:
            limit_memory(room)
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


@pytest.mark.parametrize(("owner", "name", "room"), [(VALIDATION, "translate_all", 2)])
def test_a_run_without_memory_ends_in_a_sentence_and_goes_on_later(
    corpus: Corpus, tmp_path: Path, owner: str, name: str, room: int
):
    often = {"max_steps": 4, "save_every": 1, "validate_every": 3, "batch_tokens": 400}
    config = run_config(corpus, tmp_path / "run", **often)
    run_training(run_config(corpus, tmp_path / "whole", **often))
    run_training(run_config(corpus, tmp_path / "run", **{**often, "max_steps": 2, "validate_every": 100}))
    fault = partial(limited_before, owner, name, 1, room * MB)
    said = one_sentence(Command(["train", settings_file(config)], tmp_path / "log", {"RANK": "0"}, [fault]))
    assert "not enough memory" in said
    verify_files(tmp_path / "run" / "last")
    run_training(config)
    assert state(tmp_path / "run") == state(tmp_path / "whole")


@pytest.mark.parametrize(
    ("owner", "name", "room"),
    [("dragoman.model_folder", "load_model", 0), ("dragoman.translation.translator:Translator", "translate", 2)],
)
def test_a_translation_without_memory_ends_in_a_sentence(
    trained: Path, tmp_path: Path, owner: str, name: str, room: int
):
    arguments = ["translate", "-m", str(trained), "The dog sees 2 red cats.", "--threads", "1"]
    fault = partial(limited_before, owner, name, 1, room * MB)
    assert "not enough memory" in one_sentence(Command(arguments, tmp_path / "log", {}, [fault]))
