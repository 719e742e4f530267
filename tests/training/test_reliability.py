"""Never losing work: processes are killed, asked to stop, and find damage and full disks where they resume."""

import errno
import fcntl
import hashlib
import json
import os
import pty
import random
import resource
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import (
    TINY,
    events,
    progress,
    run_config,
    run_training,
    settings_file,
    signed_again,
    state,
    tiny_transformer,
    toy_pairs,
)
from processes import (
    ASKED,
    DATASETS,
    KILLED,
    LEARNER,
    LOOP,
    PATIENCE,
    RUN,
    SOON,
    VALIDATION,
    Command,
    Fault,
    killed_before_operation,
    signal_before,
    signal_before_a_draft_appears,
    train,
    wait_for,
)
from safetensors.torch import save_file

from dragoman.config import RunConfig, SearchConfig
from dragoman.data import tokenizer as subwords
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.engine import Constraints
from dragoman.decoding.parts import EngineInParts
from dragoman.decoding.search import Hypothesis
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError
from dragoman.model import build
from dragoman.model_folder import read_model, verify_files, write_model
from dragoman.storage.writing import MANIFEST
from dragoman.training import run, signals
from dragoman.training.checkpoint import (
    TrainingProgress,
    checkpoints,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from dragoman.training.journal import Journal, StepMetrics
from dragoman.training.learner import Learner
from dragoman.training.validation import SEARCH_TOKENS, Stopped, end_if

Corpus = tuple[str, str]

STEPS, EPOCH = 15, 13  # of a whole run here; batches in an epoch


def config_of(corpus: Corpus, out: Path, **training: Any) -> RunConfig:
    """Saved every other step, validated every fifth.

    The model has so few positions that an output ends after 20 tokens, where one that has learned nothing goes on.
    """
    often = {"batch_tokens": 160, "max_steps": STEPS, "save_every": 2, "validate_every": 5, "keep": 2}
    model = tiny_transformer(positions="learned", max_length=20)
    return replace(run_config(corpus, out, **{**often, **training}), model=model)


# Faults: what happens inside a process. Each is called before the command.


def record_losses(file: Path) -> None:
    """Each step and its loss, to the bit, also those that a kill undoes."""
    report = Journal.step

    def step(self: Journal, metrics: StepMetrics) -> None:
        with file.open("a") as opened:
            opened.write(f"{metrics.step} {metrics.loss.hex()}\n")
        report(self, metrics)

    Journal.step = step  # type: ignore[method-assign]


def killed_before_update(update: int) -> Fault:
    return partial(signal_before, LEARNER, "update", update, signal.SIGKILL)


def ended(file: str, log: Path, code: int, *faults: Fault) -> str:
    """Run `dragoman train` to its end, which must be this exit code; return what it printed."""
    (command,) = train(file, log, faults=faults)
    assert command.code(within=PATIENCE) == code, command.said
    return command.said


# A whole run, and the same run in pieces.


@dataclass(frozen=True)
class Whole:
    """A run that nothing interrupted."""

    out: Path
    losses: dict[int, str]
    seconds: float


def losses_of(file: Path) -> dict[int, str]:
    """Fails where a step that was done again had another loss than before."""
    found: dict[int, str] = {}
    for line in file.read_text().splitlines():
        step, loss = line.split()
        assert found.setdefault(int(step), loss) == loss
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, corpus: Corpus) -> Whole:
    out = tmp_path_factory.mktemp("whole") / "run"
    Command(["--version"], out.parent / "log").code()  # the first fork waits for the import of PyTorch
    began = time.monotonic()
    ended(settings_file(config_of(corpus, out)), out, 0, partial(record_losses, out.parent / "losses"))
    return Whole(out, losses_of(out.parent / "losses"), time.monotonic() - began)


def same_run(out: Path, whole: Whole) -> None:
    assert state(out) == state(whole.out)
    assert progress(out) == progress(whole.out)
    ours, theirs = ((each / "best").resolve().name.removesuffix("-again") for each in (out, whole.out))
    assert ours == theirs
    for name in ("loss", "bleu", "chrf", "target_tokens"):
        found, expected = ({e["step"]: e[name] for e in events(each, "validation")} for each in (out, whole.out))
        assert found == expected


def test_run_killed_several_times_in_an_epoch_is_the_run_unbroken(corpus: Corpus, tmp_path: Path, whole: Whole):
    found = progress(whole.out)
    assert (found["epoch"], found["batch"], found["step"]) == (1, STEPS - EPOCH, STEPS)
    assert sorted(whole.losses) == list(range(1, STEPS + 1))
    assert len(set(whole.losses.values())) == STEPS
    out = tmp_path / "run"
    file, record = settings_file(config_of(corpus, out)), partial(record_losses, tmp_path / "losses")
    for update in (1, 6, 2, 6):
        ended(file, tmp_path / "log", KILLED, record, killed_before_update(update))
        assert not (out / "last").exists() or progress(out)["epoch"] == 0
    ended(file, tmp_path / "log", 0, record)
    assert losses_of(tmp_path / "losses") == whole.losses
    same_run(out, whole)


@pytest.mark.parametrize("minutes", [1e-9, 0])
def test_run_killed_before_validation_goes_on_from_the_timed_save(
    corpus: Corpus, tmp_path: Path, whole: Whole, minutes: float
):
    """The control: without the clock it starts again, and says so."""
    out = tmp_path / "run"
    rare = {"save_every": None, "validate_every": STEPS, "save_minutes": minutes}
    file = settings_file(config_of(corpus, out, **rare))
    ended(file, tmp_path / "log", KILLED, killed_before_update(6))
    assert [path.name for path in checkpoints(out)] == ["step-00000005"] * bool(minutes)
    if minutes:
        read_model(out)
    else:
        with pytest.raises(DragomanError, match=r"run: this run has no checkpoint yet, so there is no model"):
            read_model(out)
    said = ended(file, tmp_path / "log", 0, partial(record_losses, tmp_path / "losses"))
    start = f"resuming {out} from step 5" if minutes else f"{out} has no checkpoint yet: the run starts again"
    assert start in " ".join(said.split())
    first = 6 if minutes else 1
    assert losses_of(tmp_path / "losses") == {step: whole.losses[step] for step in range(first, STEPS + 1)}
    assert state(out) == state(whole.out)
    assert [path.name for path in checkpoints(out)] == [f"step-{STEPS:08d}"]  # that by the clock was replaced


def killed_at_random(corpus: Corpus, out: Path, whole: Whole, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    file = settings_file(config_of(corpus, out))
    for _ in range(kills):
        (command,) = train(file, out)
        time.sleep(chance.uniform(0.1, 0.9) * whole.seconds)
        command.send(signal.SIGKILL)
        assert command.code() in (0, KILLED), command.said
    ended(file, out, 0)
    same_run(out, whole)


@pytest.mark.slow
def test_run_killed_at_random_times_is_the_run_unbroken(corpus: Corpus, tmp_path: Path, whole: Whole):
    killed_at_random(corpus, tmp_path / "run", whole, kills=2, seed=1)


@pytest.mark.slow
def test_run_killed_at_any_step_or_moment_is_the_run_unbroken(corpus: Corpus, tmp_path: Path, whole: Whole):
    for update in range(1, STEPS + 1):
        out = tmp_path / f"step-{update}"
        file = settings_file(config_of(corpus, out))
        ended(file, out, KILLED, killed_before_update(update))
        ended(file, out, 0)
        same_run(out, whole)


KILLS = 300


@pytest.mark.slow
def test_kills_of_runs_with_random_data_change_no_bit(corpus: Corpus, tmp_path: Path, whole: Whole):
    """BPE-dropout, concatenated pairs and weights of corpora: each run is killed again and again until it gets done."""

    def config(out: Path) -> RunConfig:
        usual = config_of(corpus, out, bpe_dropout=0.2, concatenate=0.3)
        return replace(usual, train=(corpus[0], "weight=0.7", corpus[1], "weight=2.5"))

    plain, chance, kills, runs = state(whole.out), random.Random(1), 0, 0
    out = tmp_path / "whole"
    began = time.monotonic()
    ended(settings_file(config(out)), out, 0)
    unbroken = Whole(out, {}, time.monotonic() - began)
    assert state(out) != plain  # the control: other data, other bits
    while kills < KILLS:
        out = tmp_path / f"run-{runs}"
        file = settings_file(config(out))
        attempts = count(1)
        while not progress_if_any(out).get("finished"):
            (command,) = train(file, out)
            # Longer each time: a machine that has become slower must still reach the next checkpoint.
            time.sleep(chance.uniform(0.1, 0.2 + 0.2 * next(attempts)) * unbroken.seconds)
            command.send(signal.SIGKILL)
            code = command.code()
            assert code in (0, KILLED), command.said
            kills += code == KILLED
        ended(file, out, 0)  # a kill may have come after the last save
        same_run(out, unbroken)
        runs += 1
        shutil.rmtree(out)
    print(f"{kills} kills in {runs} runs")


def progress_if_any(out: Path) -> dict[str, Any]:
    return progress(out) if (out / "last").exists() else {}


def test_command_itself_is_killed_and_resumed(corpus: Corpus, tmp_path: Path, whole: Whole):
    """Not forked, but started by Python. And a second process beside the first is refused."""
    out = tmp_path / "run"
    file = settings_file(config_of(corpus, out))
    command = [sys.executable, "-m", "dragoman", "train", file]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as first:
        wait_for(lambda: checkpoints(out))
        first.send_signal(signal.SIGSTOP)  # so that it does not finish before the other is there
        assert f"{out}: another process is using this folder" in ended(file, tmp_path / "second", 1)
        first.kill()
        assert first.wait() == -signal.SIGKILL
    assert "resuming " in ended(file, tmp_path / "again", 0)
    same_run(out, whole)


# A kill inside a save.


@cache
def parts_of_a_checkpoint() -> tuple[Any, Tokenizer, dict[str, torch.Tensor]]:
    model = build(TINY, 300)
    moments = {f"{name}.{key}": torch.zeros_like(p) for name, p in model.named_parameters() for key in ("m", "v")}
    few = [text for pair in toy_pairs(20) for text in pair]  # each process that is killed learns them anew
    return model, Tokenizer.train(few, 300), moments


def filled_checkpoint(step: int) -> tuple[Any, Tokenizer, dict[str, torch.Tensor]]:
    """Every weight and moment is the number of the step, so that a mixture shows."""
    model, tokenizer, moments = parts_of_a_checkpoint()
    for tensor in (*model.parameters(), *moments.values()):
        tensor.detach().fill_(step)
    return model, tokenizer, moments


def save(out: Path, step: int) -> None:
    model, tokenizer, moments = filled_checkpoint(step)
    save_checkpoint(
        out,
        model,
        Tokenizers.from_tokenizer(tokenizer),
        moments,
        TrainingProgress(step=step, best_step=step, best_loss=1.0),
        "",
        keep=2,
    )


def save_in_place(out: Path, step: int) -> None:
    """What a naive writer does: the control."""
    model, tokenizer, moments = filled_checkpoint(step)
    folder = out / "checkpoints" / "step-00000001"
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder, model, Tokenizers.from_tokenizer(tokenizer), "")
    save_file(moments, folder / "state.safetensors")
    (folder / "state.json").write_text(json.dumps({"step": step}))
    signed_again(folder)
    for link in ("best", "last"):
        if not (out / link).exists():
            (out / link).symlink_to(folder)


def whole_after_a_kill(out: Path) -> bool:
    """Whether the newest checkpoint, and what both links lead to, is whole and of one step."""
    try:
        checkpoint, notes = newest_checkpoint(out)
        for link in ("best", "last"):
            verify_files(out / link)
    except DragomanError:
        return False
    assert checkpoint
    tensors = [*checkpoint.model.parameters(), *checkpoint.state.values()]
    numbers = {float(value.detach()) for tensor in tensors for value in (tensor.min(), tensor.max())}
    return numbers == {float(checkpoint.progress.step)} and not notes


WRITES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.symlink", "shutil.rmtree")


def save_killed_before(number: int, save: Callable[[Path, int], None], out: Path, step: int) -> None:
    parts_of_a_checkpoint()
    killed_before_operation(number, WRITES)
    save(out, step)
    os._exit(0)


def kills_that_lose(folder: Path, save: Callable[[Path, int], None], step: int, every: int) -> Iterator[bool]:
    """Kill a save of that step before its first operation on files, the one `every` later, and so on to the end.

    Yield whether that left a run which cannot be resumed.
    """
    for earlier in (1, 2):
        save(folder / "before", earlier)
    codes: list[int] = []
    while 0 not in codes:
        out = folder / str(len(codes))
        shutil.copytree(folder / "before", out, symlinks=True)
        fault = partial(save_killed_before, 1 + every * len(codes), save, out, step)
        codes.append(Command([], folder / "log", faults=[fault]).code())
        yield not whole_after_a_kill(out)
    assert len(codes) > 10 / every
    assert set(codes) == {0, KILLED}


@pytest.mark.parametrize(
    ("step", "every"),
    [
        pytest.param(3, 1, id="next step", marks=pytest.mark.slow),
        pytest.param(3, 5, id="next step, every fifth"),
        pytest.param(2, 5, id="same step"),
    ],
)
def test_kill_before_any_operation_on_files_loses_nothing(tmp_path: Path, step: int, every: int):
    """The same step is saved a second time where a validation was interrupted. What is left half done is swept away."""
    for number, loses in enumerate(kills_that_lose(tmp_path, save, step, every)):
        assert not loses
        if number % 4 == 0:
            out = tmp_path / str(number)
            save(out, 1000)
            first, second = sorted(path.name for path in (out / "checkpoints").iterdir())
            assert second == "step-00001000" != first
            assert whole_after_a_kill(out)


def test_kill_inside_a_save_in_place_loses_it_control(tmp_path: Path):
    """The control for the test above."""
    assert any(kills_that_lose(tmp_path, save_in_place, 3, 1))


def saves_for_ever(out: Path, save: Callable[[Path, int], None]) -> None:
    for step in count(3):
        save(out, step)
        (out / "saved").touch()


def kills_inside_saves(folder: Path, save: Callable[[Path, int], None], kills: int) -> int:
    """Kill a process that does nothing but save, at random moments; return how often nothing whole was left."""
    parts_of_a_checkpoint()
    chance, lost, inside = random.Random(1), 0, 0
    while inside < kills:
        out = folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        save(out, 2)
        saving = Command([], folder / "log", faults=[partial(saves_for_ever, out, save)])
        wait_for((out / "saved").exists)
        time.sleep(chance.uniform(0, 0.1))
        saving.send(signal.SIGKILL)
        assert saving.code() == KILLED
        inside += save is save_in_place or any((out / "checkpoints").glob(".*"))
        lost += not whole_after_a_kill(out)
    return lost


@pytest.mark.slow
def test_kills_inside_saves_lose_nothing(tmp_path: Path):
    assert kills_inside_saves(tmp_path, save, 200) == 0
    assert kills_inside_saves(tmp_path, save_in_place, 20) > 0  # the control


def killed_in_the_save_of(step: int, operation: int) -> None:
    """Before the rename or link that is number `operation` of that save."""
    work = run.save_checkpoint

    def wrapped(folder: Path, *given: Any) -> None:
        if given[3].step == step:
            killed_before_operation(operation, ("os.rename", "os.symlink"))
        work(folder, *given)

    run.save_checkpoint = wrapped  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "operation", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(4, marks=pytest.mark.slow)]
)
def test_best_link_agrees_with_the_run_after_a_kill_inside_a_save(corpus: Corpus, tmp_path: Path, operation: int):
    """The last save is of the best model. Of its five renames and links, the first is that of the folder."""
    out = tmp_path / "run"
    file = settings_file(config_of(corpus, out, max_steps=10, validate_every=5, save_every=None, stop_on="loss"))
    ended(file, tmp_path / "log", KILLED, partial(killed_in_the_save_of, 10, operation))
    ended(file, tmp_path / "log", 0)
    assert progress(out)["best_step"] == progress(out)["step"] == 10
    assert (out / "best").resolve().name == (out / "last").resolve().name == "step-00000010"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(
    "command", ["check pairs.tsv --write-clean out.tsv", "split pairs.tsv --out .", "export MODEL out --to onnx"]
)
def test_command_that_is_asked_to_end_leaves_no_drafts(
    trained: Path, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, number: int
):
    """The control is killed, and cannot delete what it has begun."""
    if "onnx" in command:
        pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    shutil.copy(corpus[1], "pairs.tsv")
    words = [str(trained) if word == "MODEL" else word for word in command.split()]
    asked = Command(words, tmp_path / "log", faults=[partial(signal_before_a_draft_appears, number)])
    assert asked.code(within=PATIENCE) == 128 + number, asked.said
    left = {path.name for path in tmp_path.iterdir()} - {"pairs.tsv", "log"}
    assert bool(left) == (number == signal.SIGKILL)


# Damage.


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, corpus: Corpus) -> Path:
    """A run of four steps with two checkpoints, to be copied."""
    out = tmp_path_factory.mktemp("saved") / "run"
    run_training(config_of(corpus, out, max_steps=4))
    assert [path.name for path in checkpoints(out)] == ["step-00000004", "step-00000002"]
    return out


def flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size * 2 // 3)


DAMAGE: list[Callable[[Path], None]] = [flipped, cut, Path.unlink]
FILES = (
    *("config.json", "model.safetensors", "tokenizer.json"),
    *("state.safetensors", "state.json", MANIFEST),
)


def copy_of(saved: Path, corpus: Corpus, out: Path, **training: Any) -> RunConfig:
    """Return the settings of a run that resumes a copy of `saved`."""
    shutil.copytree(saved, out, symlinks=True)
    return config_of(corpus, out, **{"max_steps": 8, "validate_every": 10, **training})


@pytest.fixture(scope="module")
def sound(saved: Path, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The state of `saved` when it is resumed, without any damage."""
    out = tmp_path_factory.mktemp("sound") / "run"
    run_training(copy_of(saved, corpus, out))
    return state(out)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGE, ids=["flipped", "cut", "deleted"])
def test_damaged_checkpoint_is_named_and_the_one_before_it_is_taken(
    saved: Path, tmp_path: Path, file: str, damage: Callable[[Path], None]
):
    out = shutil.copytree(saved, tmp_path / "run", symlinks=True)
    sound, no_notes = newest_checkpoint(out)
    damage((out / "last").resolve() / file)
    before, (note,) = newest_checkpoint(out)
    assert sound
    assert before
    assert (sound.progress.step, no_notes, before.progress.step) == (4, [], 2)
    assert "step-00000004" in note
    assert file in note or file == MANIFEST  # whose damage may look like that of another
    assert "\n" not in note


@pytest.mark.parametrize(
    "wrong", [{"step": "4"}, {"best_loss": None}, {"scores": [4]}, {"machine": 4}, {"x": 1}, "deep"]
)
def test_training_state_of_other_types_is_refused_though_it_is_signed(
    saved: Path, tmp_path: Path, wrong: dict[str, Any] | str
):
    folder = shutil.copytree((saved / "last").resolve(), tmp_path / "model")
    content = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text("[" * 100_000 if isinstance(wrong, str) else json.dumps({**content, **wrong}))
    signed_again(folder)
    with pytest.raises(DragomanError, match=f"{folder}.*: this checkpoint cannot be resumed"):
        load_checkpoint(folder)
    (folder / "state.json").write_text(json.dumps(content))
    signed_again(folder)
    assert load_checkpoint(folder).progress.step == 4


def test_checkpoint_that_the_system_cannot_read_is_not_given_up(saved: Path, monkeypatch: pytest.MonkeyPatch):
    """A disk or a network that fails for a moment costs no work: the command ends, and the next one resumes."""

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("dragoman.training.checkpoint.read_json", fail)
    with pytest.raises(OSError, match="Input/output error") as error:
        newest_checkpoint(saved)
    assert "step-00000004" in error.value.filename


def test_run_goes_on_from_before_the_damage_as_if_nothing_were(saved: Path, corpus: Corpus, tmp_path: Path, sound: str):
    config = copy_of(saved, corpus, tmp_path / "run")
    flipped((tmp_path / "run" / "last").resolve() / "state.json")
    notebook = run_training(config)
    assert len(notebook.losses) == 6
    assert any("state.json: damaged" in text and "checkpoint before it" in text for text in notebook.logged)
    assert any(text.endswith(" from step 2") for text in notebook.logged)
    assert state(tmp_path / "run") == sound
    for link in ("best", "last"):
        verify_files(tmp_path / "run" / link)


def test_best_link_is_whole_once_a_damaged_run_goes_on(saved: Path, corpus: Corpus, tmp_path: Path):
    """Not only once a better one is found: somebody may want to translate meanwhile."""
    config = copy_of(saved, corpus, tmp_path / "run", save_every=None)
    flipped((tmp_path / "run" / "best").resolve() / "model.safetensors")
    ended(settings_file(config), tmp_path / "log", KILLED, killed_before_update(2))
    for link in ("best", "last"):
        verify_files(tmp_path / "run" / link)


def test_checkpoints_all_damaged_are_reported_in_one_sentence(saved: Path, corpus: Corpus, tmp_path: Path):
    config = copy_of(saved, corpus, tmp_path / "run")
    for folder in checkpoints(tmp_path / "run"):
        cut(folder / "state.safetensors")
    (sentence,) = ended(settings_file(config), tmp_path / "log", 1).splitlines()
    assert "none of its 2 checkpoints is intact" in sentence
    assert "state.safetensors" in sentence


@pytest.mark.parametrize("file", ["train.arrow", "tokenizer.json"])
def test_damage_to_what_was_prepared_is_never_trained_on(
    saved: Path, corpus: Corpus, tmp_path: Path, sound: str, file: str
):
    config = copy_of(saved, corpus, tmp_path / "run")
    flipped(tmp_path / "run" / "data" / file)
    try:
        run_training(config)
    except DragomanError as error:
        assert file in str(error)  # noqa: PT017
    else:  # it was made anew
        assert state(tmp_path / "run") == sound


# A full disk.


def disk_full(at_save: int, bytes_: int) -> None:
    """No file may become larger than that from the save on that is number `at_save`; Python ignores the signal."""
    work, saves = run.save_checkpoint, count(1)

    def wrapped(*given: Any) -> None:
        if next(saves) == at_save:
            resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        work(*given)

    run.save_checkpoint = wrapped  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "file",
    [
        "model.safetensors",
        pytest.param("state.safetensors", marks=pytest.mark.slow),
        pytest.param("tokenizer.json", marks=pytest.mark.slow),
    ],
)
def test_full_disk_leaves_the_checkpoint_before(saved: Path, corpus: Corpus, tmp_path: Path, sound: str, file: str):
    """The disk is full half-way through a file."""
    out = tmp_path / "run"
    config = copy_of(saved, corpus, out)
    room = (saved / "last" / file).stat().st_size // 2
    said = ended(settings_file(config), tmp_path / "log", 1, partial(disk_full, 2, room))
    (sentence,) = [line for line in said.splitlines() if line.startswith("dragoman: ")]
    assert "Traceback" not in said
    assert "step-00000008" in sentence
    assert [folder.name for folder in checkpoints(out)] == ["step-00000006", "step-00000004"]
    for link, step in (("best", 4), ("last", 6)):
        verify_files(out / link)
        assert (out / link).resolve().name == f"step-{step:08d}"
    run_training(config)  # with room again, it is resumed as if nothing had been
    assert state(out) == sound


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_disk_full_while_preparing_is_reported_in_one_sentence(corpus: Corpus, tmp_path: Path):
    said = ended(settings_file(config_of(corpus, tmp_path / "run")), tmp_path / "log", 1, small_files).splitlines()
    assert [line.split()[0] for line in said] == ["learning", "dragoman:"]
    assert not (tmp_path / "run" / "checkpoints").exists()


# SIGTERM.


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (DATASETS, "tokenise", 1),
        pytest.param(LOOP, "try_largest_batch", 1, marks=pytest.mark.slow),
        (LEARNER, "update", 7),
        pytest.param(VALIDATION, "mean_loss", 1, marks=pytest.mark.slow),
        (VALIDATION, "evaluate", 2),
        (RUN, "save_checkpoint", 3),
        # When a validation is done, its entry into the progress and its report must not be torn apart.
        pytest.param("dragoman.evaluation.metrics:Scores", "__str__", 3, marks=pytest.mark.slow),
        ("dragoman.training.journal:Journal", "record", 2),
    ],
)
def test_sigterm_saves_and_the_same_command_resumes(
    corpus: Corpus, tmp_path: Path, whole: Whole, owner: str, name: str, call: int
):
    out = tmp_path / "run"
    file = settings_file(config_of(corpus, out))
    began = time.monotonic()
    (command,) = train(file, tmp_path / "log", faults=[partial(signal_before, owner, name, call, signal.SIGTERM)])
    at_the_end = name == "__str__"  # of the last validation: the run may end before it stops
    assert command.code(within=SOON + whole.seconds) in ({0, ASKED} if at_the_end else {ASKED}), command.said
    assert time.monotonic() - began < SOON + whole.seconds
    assert "Traceback" not in command.said
    if name != "tokenise" and not at_the_end:
        assert "the same command resumes the run" in command.said
    ended(file, tmp_path / "log", 0)
    same_run(out, whole)


def group_asked_in(step: int) -> None:
    """A fault: in that step, SIGTERM comes to all processes of the group, as from systemd or Slurm."""
    work, so_far = Learner.update, count(1)

    def wrapped(*arguments: Any) -> Any:
        if next(so_far) == step:
            # Not from this process, whose workers would end without a complaint.
            other = f"import os, signal; os.killpg({os.getpgrp()}, signal.SIGTERM)"
            subprocess.run([sys.executable, "-c", other], start_new_session=True, check=True)
            time.sleep(0.5)  # a worker that ends is noticed
        return work(*arguments)

    os.setpgrp()
    Learner.update = wrapped  # type: ignore[method-assign]


@pytest.mark.parametrize("workers", [0, 2])
def test_sigterm_to_the_whole_group_saves_after_the_step_in_progress(
    corpus: Corpus, tmp_path: Path, whole: Whole, workers: int
):
    file = settings_file(config_of(corpus, tmp_path / "run", workers=workers))
    said = ended(file, tmp_path / "log", ASKED, partial(group_asked_in, 3))
    assert "stopped at step 3;" in said
    ended(file, tmp_path / "log", 0)
    same_run(tmp_path / "run", whole)


def test_sigterm_at_any_time_saves_and_the_same_command_resumes(corpus: Corpus, tmp_path: Path, whole: Whole):
    out, chance = tmp_path / "run", random.Random(1)
    file = settings_file(config_of(corpus, out))
    for _ in range(2):
        (command,) = train(file, out)
        time.sleep(chance.uniform(0.1, 0.9) * whole.seconds)
        asked = time.monotonic()
        command.send(signal.SIGTERM)
        assert command.code(within=SOON) in (0, ASKED), command.said
        assert time.monotonic() - asked < SOON
    ended(file, out, 0)
    same_run(out, whole)


def learns_subwords_for_minutes(asked: Path) -> None:
    """A fault: a library computes, and returns to Python only when it is done."""

    def train_bpe(*_: Any) -> Any:
        asked.touch()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)

    subwords.train_bpe = train_bpe


def test_sigterm_while_a_library_computes_is_seen_at_once(corpus: Corpus, tmp_path: Path):
    asked, out = tmp_path / "asked", tmp_path / "run"
    fault = partial(learns_subwords_for_minutes, asked)
    (command,) = train(settings_file(config_of(corpus, out)), tmp_path / "log", faults=[fault])
    wait_for(asked.exists)
    command.send(signal.SIGTERM)
    assert command.code(within=SOON) == ASKED


def asked_twice(first: int) -> None:
    """A fault: two requests in a step, SIGTERM the second; after the first one alone, it would be finished."""
    work, requests = Learner.loss, [first, signal.SIGTERM]

    def wrapped(self: Learner, batch: Any) -> Any:
        while requests:
            os.kill(os.getpid(), requests.pop(0))
            time.sleep(0.1)
        return work(self, batch)

    Learner.loss = wrapped  # type: ignore[method-assign]
    signals.GracefulStop = partial(signals.GracefulStop, same_request=0.05)  # type: ignore[assignment, misc]


def test_closed_terminal_saves_but_not_under_nohup(corpus: Corpus, tmp_path: Path):
    file = settings_file(config_of(corpus, tmp_path / "run", max_steps=4))
    fault = partial(signal_before, LEARNER, "update", 3, signal.SIGHUP)
    (command,) = train(file, tmp_path / "log", faults=[fault])
    assert command.code() == 128 + signal.SIGHUP
    assert "the same command resumes the run" in command.said
    ended(file, tmp_path / "nohup", 0, partial(signal.signal, signal.SIGHUP, signal.SIG_IGN), fault)


@pytest.mark.slow
def test_reader_of_the_log_that_goes_away_leaves_a_saved_run(corpus: Corpus, tmp_path: Path):
    """As with `2>&1 | head`."""
    file = settings_file(config_of(corpus, tmp_path / "run", max_steps=100_000))
    process = subprocess.Popen([sys.executable, "-m", "dragoman", "train", file], stderr=subprocess.PIPE)
    assert process.stderr
    while b"tokens/s" not in process.stderr.readline():
        pass
    process.stderr.close()
    assert process.wait(60) == 128 + signal.SIGHUP
    assert "the same command resumes the run" in (tmp_path / "run/train.log").read_text()
    assert (tmp_path / "run/last/model.safetensors").exists()


@pytest.mark.slow
def test_terminal_that_closes_saves_and_says_so_in_the_log(corpus: Corpus, tmp_path: Path):
    """The kernel sends SIGHUP, and writing to the terminal fails from then on."""
    file = settings_file(config_of(corpus, tmp_path / "run", max_steps=100_000))
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "dragoman", "train", file]
    process = subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    shown = b""
    while b"tokens/s" not in shown:
        shown += os.read(master, 4096)
    os.close(master)
    assert process.wait(60) == 128 + signal.SIGHUP
    assert "the same command resumes the run" in (tmp_path / "run/train.log").read_text()
    assert (tmp_path / "run/last/model.safetensors").exists()


@pytest.mark.usefixtures("seeded_double_precision")
def test_book_among_the_dev_pairs_does_not_delay_the_end(tokenizer: Tokenizer):
    stop, plain = signals.GracefulStop(), TorchEngine(build(TINY, len(tokenizer)).eval())
    shares: list[float] = []

    def before(share: float, number: int) -> None:
        assert number == 1000
        shares.append(share)
        end_if(stop)

    engine, greedy = EngineInParts(plain, before, SEARCH_TOKENS), SearchConfig(beam=1, extra_length=1)
    sources = [[5 + number % 7] * (1 + number * 37 % 20) for number in range(1000)]
    constraints = [Constraints(prefix=(5 + number % 3,)) for number in range(1000)]
    for own in (None, constraints):
        found, expected = (each.search(sources, greedy, own) for each in (engine, plain))
        assert [[one.tokens for one in each] for each in found] == [[one.tokens for one in each] for each in expected]
    assert engine.search([], greedy) == []
    assert shares == pytest.approx([0, 0.18, 0.48, 0.81] * 2, abs=0.01)
    searched: list[int] = []

    def search(some: Sequence[Ids], *rest: Any) -> list[list[Hypothesis]]:
        searched.append(sum(map(len, some)))
        if len(searched) == 2:
            stop.handle(signal.SIGTERM, None)
        return plain.search(some, *rest)

    engine.engine = SimpleNamespace(search=search)
    with pytest.raises(Stopped):
        engine.search(sources, greedy)
    assert len(searched) == 2
    assert max(searched) <= SEARCH_TOKENS < sum(map(len, sources))


@pytest.mark.parametrize(("first", "code"), [(signal.SIGTERM, ASKED), (signal.SIGINT, 130)])
def test_second_sigterm_ends_at_once_but_not_after_ctrl_c(
    saved: Path, corpus: Corpus, tmp_path: Path, first: int, code: int
):
    config, before = copy_of(saved, corpus, tmp_path / "run"), state(saved)
    (command,) = train(settings_file(config), tmp_path / "log", faults=[partial(asked_twice, first)])
    assert command.code(within=SOON) == code
    assert ("resumes the run" in command.said) == (first == signal.SIGINT)
    assert (state(tmp_path / "run") == before) == (first == signal.SIGTERM)
