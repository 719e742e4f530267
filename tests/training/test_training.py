"""Training: a run that was stopped, however it was stopped, is resumed as if nothing had happened."""

import contextlib
import dataclasses
import gc
import io
import itertools
import json
import math
import multiprocessing
import os
import re
import shutil
import signal
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import (
    TINY,
    TINY_RECURRENT,
    Notebook,
    events,
    progress,
    run_config,
    run_training,
    signed_again,
    state,
    tiny_transformer,
    toy_pairs,
    with_training,
    write_tsv,
)
from rich.console import Console
from safetensors.torch import load_file, save_file

from dragoman.confidence.estimate import Confidence
from dragoman.config import AttentionConfig, ModelConfig, RunConfig, SearchConfig, read_toml
from dragoman.config.presets import PRESETS
from dragoman.data.batches import Batch
from dragoman.data.corpus import Pair
from dragoman.data.dataset import Pairs
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError, UsageError
from dragoman.evaluation.metrics import evaluate
from dragoman.model import build
from dragoman.model_folder import read_model, verify_files
from dragoman.text.word_forms import WordForms
from dragoman.training import batch_loader, batch_size, limits, loop, run, validation
from dragoman.training.checkpoint import TrainingProgress, checkpoints, lasting_checkpoints, save_checkpoint, step_of
from dragoman.training.distributed import ProcessGroup
from dragoman.training.journal import Journal, StepMetrics
from dragoman.training.learner import Learner
from dragoman.training.loop import train
from dragoman.training.resume import check_same_settings
from dragoman.training.signals import GracefulStop
from dragoman.training.validation import Validation, is_better
from dragoman.translation.safeguards import NO_SAFEGUARDS
from dragoman.translation.translator import Translator

Corpus = tuple[str, str]

STEPS = 12  # of a whole run here; an epoch has 3


# With so few positions, an output ends after 20 tokens, also where nothing has been learned yet.
BRIEF = tiny_transformer(positions="learned", max_length=20)


def brief_run(corpus: Corpus, out: Path, **training: Any) -> RunConfig:
    """A run of a few steps whose validations take little time."""
    return dataclasses.replace(run_config(corpus, out, **training), model=BRIEF)


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files, except the lock, which says nothing."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@dataclasses.dataclass(frozen=True)
class Whole:
    """A run that nothing interrupted."""

    out: Path
    losses: list[float]
    state: str


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, corpus: Corpus) -> Whole:
    out = tmp_path_factory.mktemp("whole") / "run"
    return Whole(out, run_training(brief_run(corpus, out)).losses, state(out))


# Going on.


def test_run_stopped_and_resumed_is_the_run_uninterrupted(corpus: Corpus, tmp_path: Path, whole: Whole):
    """Stopped inside an epoch, at its end, and just before the end of the run."""
    losses: list[float] = []
    for last in (2, 3, 11, STEPS):
        losses += run_training(brief_run(corpus, tmp_path / "run", max_steps=last)).losses
    assert losses == whole.losses
    assert state(tmp_path / "run") == whole.state
    found, expected = (events(out, "validation") for out in (tmp_path / "run", whole.out))
    for event in expected:
        assert event["target_tokens"] in {e["target_tokens"] for e in found if e["step"] == event["step"]}
    assert [event["seconds"] for event in found] == sorted(event["seconds"] for event in found)


def test_workers_that_make_the_batches_change_nothing(corpus: Corpus, tmp_path: Path, whole: Whole):
    """Nor does stopping with them: batches that were made ahead are made again."""
    before = threading.active_count()
    losses = [
        loss
        for last in (3, STEPS)
        for loss in run_training(brief_run(corpus, tmp_path / "run", max_steps=last, workers=2)).losses
    ]
    assert losses == whole.losses
    assert state(tmp_path / "run") == whole.state
    assert not multiprocessing.active_children()
    deadline = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < deadline:  # PyTorch ends its own, and does not wait
        time.sleep(0.01)
    assert threading.active_count() <= before


@pytest.mark.parametrize("workers", [0, 2])
def test_finished_run_holds_no_memory_and_restores_the_threads(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
):
    """At once, not when Python happens to look for cycles."""
    learners, open_run = [], loop.open_run

    def opened(*arguments: Any) -> Any:
        found = open_run(*arguments)
        learners.append(weakref.ref(found.learner))
        return found

    monkeypatch.setattr(loop, "open_run", opened)
    before, threads = torch.get_num_threads(), []
    monkeypatch.setattr(Notebook, "step", lambda *_: threads.append(torch.get_num_threads()))
    torch.optim.Adam([torch.zeros(1)])  # the first one of a process holds the frames that it is called from
    torch.set_num_threads(2)
    gc.disable()
    try:
        run_training(brief_run(corpus, tmp_path / "run", max_steps=2, workers=workers))
        assert [one() for one in learners] == [None]
        assert torch.get_num_threads() == 2
        assert set(threads) == {1}
    finally:
        gc.enable()
        torch.set_num_threads(before)


def test_workers_are_for_gpus_and_share_the_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batch_loader, "granted_cores", lambda: 16)
    for processes, expected in ((None, 8), ("1", 8), ("4", 3), ("16", 0), ("32", 0)):
        monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
        if processes:
            monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        assert batch_loader.default_workers(torch.device("cuda")) == expected
        assert batch_loader.default_workers(torch.device("cpu")) == 0


def test_killed_worker_is_an_error_that_says_what_to_do(
    corpus: Corpus, tmp_path: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch
):
    def kill_workers(notebook: Notebook, metrics: StepMetrics) -> None:
        for child in multiprocessing.active_children():
            os.kill(child.pid or 0, signal.SIGKILL)
        time.sleep(0.1)

    with monkeypatch.context() as patched:
        patched.setattr(Notebook, "step", kill_workers)
        with pytest.raises(DragomanError, match="a process that makes batches has died"):
            run_training(brief_run(corpus, tmp_path / "run", save_every=1, workers=2))
    run_training(brief_run(corpus, tmp_path / "run"))
    assert state(tmp_path / "run") == whole.state


@pytest.mark.parametrize(
    ("cause", "raised"), [(ConnectionResetError, DragomanError), (EOFError, DragomanError), (OSError, OSError)]
)
def test_worker_killed_while_handing_over_a_batch_is_the_same_error(
    monkeypatch: pytest.MonkeyPatch, cause: type[Exception], raised: type[Exception]
):
    """The last case is the control: another error stays what it is."""

    class Loader:
        def __init__(self, *_: Any, **__: Any):
            pass

        def __iter__(self) -> Any:
            raise cause

    monkeypatch.setattr(batch_loader, "DataLoader", Loader)
    with pytest.raises(raised) as found:
        list(batch_loader.load_batches(lambda turn: [], [], 1, False))
    assert ("a process that makes batches has died" in str(found.value)) == (raised is DragomanError)


@pytest.mark.parametrize(
    ("model", "settings"),
    [(TINY_RECURRENT, {}), pytest.param(TINY, {"bpe_dropout": 0.1}, marks=pytest.mark.slow)],
    ids=["recurrent", "BPE-dropout"],
)
def test_runs_of_other_kinds_are_resumed_the_same_way(
    corpus: Corpus, tmp_path: Path, whole: Whole, model: ModelConfig, settings: dict[str, Any]
):
    losses: dict[str, list[float]] = {}
    for name, stops in (("whole", [STEPS]), ("parts", [5, STEPS])):
        config = dataclasses.replace(run_config(corpus, tmp_path / name, **settings), model=model)
        losses[name] = [loss for last in stops for loss in run_training(with_training(config, max_steps=last)).losses]
        assert read_model(tmp_path / name)[0].config == model
    assert losses["parts"] == losses["whole"]
    assert state(tmp_path / "parts") == state(tmp_path / "whole")
    plain = whole.losses
    if settings:
        config = dataclasses.replace(run_config(corpus, tmp_path / "plain"), model=model)
        plain = run_training(config).losses
    assert not set(losses["whole"]) & set(plain)  # the control: another model, or other pieces


def test_run_of_version_0_1_is_resumed(corpus: Corpus, tmp_path: Path):
    """The weight of additive attention had another name in both files of tensors, and so had a setting."""
    attention = AttentionConfig(heads=2, score="additive")
    model = dataclasses.replace(BRIEF, attention=attention)
    config = dataclasses.replace(run_config(corpus, tmp_path / "whole", max_steps=6), model=model)
    run_training(config)
    broken = dataclasses.replace(config, out=str(tmp_path / "broken"))
    run_training(with_training(broken, max_steps=3))
    folder = (tmp_path / "broken" / "last").resolve()
    for file in (folder / "model.safetensors", folder / "state.safetensors"):
        tensors = load_file(file)
        old = {name.replace(".score.", ".kernel."): tensor for name, tensor in tensors.items()}
        assert old.keys() != tensors.keys()
        save_file(old, file)
    signed_again(folder)
    settings = tmp_path / "broken" / "config.toml"
    settings.write_text(settings.read_text().replace("concatenate = ", "joined = "))
    run_training(broken)
    assert state(tmp_path / "broken") == state(tmp_path / "whole")


@pytest.mark.parametrize("lost", [pytest.param("exp_avg", marks=pytest.mark.slow), "batch", "epoch"])
def test_run_resumed_without_all_of_its_state_is_another(corpus: Corpus, tmp_path: Path, whole: Whole, lost: str):
    """The control for the test above."""
    run_training(brief_run(corpus, tmp_path / "run", max_steps=5))
    folder = (tmp_path / "run" / "last").resolve()
    if lost == "exp_avg":
        tensors = load_file(folder / "state.safetensors")
        save_file(
            {name: torch.zeros_like(tensor) if name.endswith(lost) else tensor for name, tensor in tensors.items()},
            folder / "state.safetensors",
        )
    else:
        saved = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        assert saved[lost] > 0
        (folder / "state.json").write_text(json.dumps({**saved, lost: 0}), encoding="utf-8")
    signed_again(folder)
    losses = run_training(brief_run(corpus, tmp_path / "run")).losses
    assert losses != whole.losses[5:]
    assert state(tmp_path / "run") != whole.state


@contextmanager
def ctrl_c_at(call: int, times: int = 1) -> Iterator[None]:
    """Press Ctrl-C in the middle of a forward pass: before the layer norm that is number `call`."""
    calls = 0

    def hook(module: torch.nn.Module, _: object) -> None:
        nonlocal calls
        if isinstance(module, torch.nn.LayerNorm):
            calls += 1
            if call <= calls < call + times:
                signal.raise_signal(signal.SIGINT)

    handle = torch.nn.modules.module.register_module_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(1, id="first step", marks=pytest.mark.slow),
        pytest.param(3, id="inside the first step"),
        pytest.param(13, id="third step"),
    ],
)
def test_run_stopped_by_ctrl_c_and_resumed_is_the_run_uninterrupted(
    corpus: Corpus, tmp_path: Path, whole: Whole, call: int
):
    config, handler = brief_run(corpus, tmp_path / "run"), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), ctrl_c_at(call):
        run_training(config)
    assert signal.getsignal(signal.SIGINT) is handler
    run_training(config)
    assert state(tmp_path / "run") == whole.state


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_second_request_to_stop_ends_at_once_unless_it_repeats_the_first(number: int, error: type[BaseException]):
    stop = GracefulStop(same_request=60.0)
    for _ in range(2):
        stop.handle(number, None)
        assert stop
    stop.same_request = 0.0
    stop.handle(signal.SIGINT + signal.SIGTERM - number, None)  # Ctrl-C and later SIGTERM, or the other way round
    assert stop.number == number
    with pytest.raises(error):
        stop.handle(number, None)


@pytest.mark.parametrize(("number", "ends"), [(signal.SIGTERM, [128 + signal.SIGTERM]), (signal.SIGCHLD, [])])
def test_process_ends_at_a_second_request_and_not_with_its_children(
    number: int, ends: list[int], monkeypatch: pytest.MonkeyPatch
):
    exits: list[int] = []
    monkeypatch.setattr("dragoman.training.signals.os._exit", exits.append)
    monkeypatch.setattr("dragoman.training.signals.GRACE", 0.0)
    reader, writer = socket.socketpair()
    with writer:
        writer.send(bytes([number, number]))
    GracefulStop(same_request=0.0).watch(reader, [signal.SIGINT, signal.SIGTERM])
    assert exits == ends


@pytest.mark.parametrize("seed", [1, 2])
def test_seed_decides_the_run(corpus: Corpus, tmp_path: Path, whole: Whole, seed: int):
    torch.manual_seed(12345)  # what was drawn before must not matter
    losses = run_training(brief_run(corpus, tmp_path / "run", seed=seed)).losses
    assert (losses == whole.losses) == (seed == 1)
    assert (state(tmp_path / "run") == whole.state) == (seed == 1)


def test_interrupt_while_reading_a_run_says_what_to_do(corpus: Corpus, whole: Whole, monkeypatch: pytest.MonkeyPatch):
    def press(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(loop, "open_run", press)
    before, said = tree(whole.out), io.StringIO()
    with pytest.raises(KeyboardInterrupt), Journal(whole.out, Console(file=said)) as journal:
        train(brief_run(corpus, whole.out), journal)
    assert said.getvalue() == "stopped while loading; rerun the same command\n"
    assert tree(whole.out) == before


def test_finished_run_says_so_and_changes_nothing(corpus: Corpus, whole: Whole):
    before, links = tree(whole.out / "checkpoints"), [(whole.out / name).readlink() for name in ("best", "last")]
    notebook = run_training(brief_run(corpus, whole.out))
    assert notebook.returned is not None
    assert notebook.returned.step == STEPS
    assert notebook.losses == []
    assert notebook.logged[-1].startswith("finished: all 12 steps done, after 12 steps and ")
    assert tree(whole.out / "checkpoints") == before
    assert [(whole.out / name).readlink() for name in ("best", "last")] == links


# What a run refuses to be resumed with.


@pytest.fixture
def started(corpus: Corpus, tmp_path: Path, whole: Whole) -> RunConfig:
    """The settings of a run that has begun, in a folder of its own."""
    out = tmp_path / "run"
    shutil.copytree(whole.out, out, symlinks=True)
    config = brief_run(corpus, out, max_steps=STEPS + 2)
    settings = (out / "config.toml").read_text(encoding="utf-8")
    (out / "config.toml").write_text(settings.replace(str(whole.out), str(out)), encoding="utf-8")
    return config


@pytest.mark.parametrize("name", ["train", "dev", "out"])
def test_run_without_what_it_needs_is_refused(corpus: Corpus, tmp_path: Path, name: str):
    config = brief_run(corpus, tmp_path / "run")
    with pytest.raises(UsageError, match=f"^{name} must name "):
        train(dataclasses.replace(config, **{name: () if name != "out" else ""}))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("training.seed", lambda c: with_training(c, seed=2)),
        ("training.batch_tokens", lambda c: with_training(c, batch_tokens=1501)),
        ("training.label_smoothing", lambda c: with_training(c, label_smoothing=0.2)),
        ("model.d_model", lambda c: dataclasses.replace(c, model=dataclasses.replace(BRIEF, d_model=18))),
        ("model.positions", lambda c: dataclasses.replace(c, model=dataclasses.replace(BRIEF, positions="rotary"))),
        ("model", lambda c: dataclasses.replace(c, model=TINY_RECURRENT)),
        ("vocabulary", lambda c: dataclasses.replace(c, vocabulary=401)),
    ],
)
def test_changed_setting_makes_another_run_and_is_named(started: RunConfig, name: str, changed: Any):
    before = tree(Path(started.out))
    with pytest.raises(UsageError, match=f"was started with {name}"):
        run_training(changed(started))
    assert tree(Path(started.out)) == before


@pytest.mark.parametrize(
    "changes", [{"max_steps": 13}, {"epochs": 50, "minutes": 5.0, "validate_every": 7, "patience": 3}], ids=str
)
def test_limit_may_change_when_a_run_is_resumed(started: RunConfig, changes: dict[str, Any]):
    notebook = run_training(with_training(started, **changes))
    assert f"resuming {started.out} from step 12" in notebook.logged
    assert len(notebook.losses) == changes.get("max_steps", 14) - STEPS


@pytest.mark.parametrize(("schedule", "may_change"), [("cosine", False), ("linear", False), ("inverse-sqrt", True)])
def test_end_of_a_schedule_stays_when_a_run_is_resumed(corpus: Corpus, tmp_path: Path, schedule: Any, may_change: bool):
    before = brief_run(corpus, tmp_path, schedule=schedule, learning_rate=0.001, max_steps=12)
    refused = pytest.raises(UsageError, match=r"was started with training\.max_steps = 12, not 13")
    with contextlib.nullcontext() if may_change else refused:
        assert check_same_settings(with_training(before, max_steps=13), before) == []


def test_settings_against_divergence_may_change_and_are_logged(started: RunConfig):
    changes = {"learning_rate": (1.0, 0.5), "warmup": (20, 30), "clip": (1.0, 0.5), "micro_batches": (1, 2)}
    notebook = run_training(with_training(started, **{name: new for name, (_, new) in changes.items()}))
    for name, (old, new) in changes.items():
        assert f"from now on, training.{name} is {new} instead of {old}" in notebook.logged
    assert len(notebook.losses) == 2


def test_refused_change_logs_no_other_one(started: RunConfig):
    config = with_training(started, learning_rate=0.5)
    before = (Path(started.out) / "train.log").read_text(encoding="utf-8")
    for refused in (with_training(config, seed=2), dataclasses.replace(config, dev=started.train)):
        with pytest.raises(DragomanError):
            run_training(refused)
        assert (Path(started.out) / "train.log").read_text(encoding="utf-8") == before
    assert any("from now on" in text for text in run_training(config).logged)  # the control


def test_changed_corpus_is_refused(corpus: Corpus, tmp_path: Path, pairs: list[Pair]):
    """Where a word is another, where the order is, and where a pair is missing."""
    path = write_tsv(tmp_path / "train.tsv", pairs[:190])
    config = brief_run((path, corpus[1]), tmp_path / "run", max_steps=1)
    run_training(config)
    word = ("The dog sees 2 red dogs.", pairs[0][1])
    for changed in ([word, *pairs[1:190]], [pairs[1], pairs[0], *pairs[2:190]], pairs[:189]):
        write_tsv(Path(path), changed)
        before = (tmp_path / "run/data/train.arrow").read_bytes()
        with pytest.raises(
            DragomanError, match=f"{path}: not the texts, weights and tags that .*train.arrow was made from"
        ):
            run_training(with_training(config, max_steps=2))
        assert (tmp_path / "run/data/train.arrow").read_bytes() == before
    write_tsv(Path(path), pairs[:190])
    with pytest.raises(DragomanError, match="weights"):
        run_training(dataclasses.replace(config, train=(path, "weight=3")))
    # The control: with the text back, it is resumed.
    assert len(run_training(with_training(config, max_steps=2)).losses) == 1


def test_changed_dev_pairs_are_refused(started: RunConfig):
    """Scores on them could not be compared."""
    before = (Path(started.out) / "data/dev.arrow").read_bytes()
    with pytest.raises(DragomanError, match=r"not the texts, weights and tags that .*dev.arrow was made from"):
        run_training(dataclasses.replace(started, dev=started.train))
    assert (Path(started.out) / "data/dev.arrow").read_bytes() == before
    settings = read_toml(Path(started.out) / "config.toml")
    assert (settings["train"], settings["dev"]) == ([*started.train], [*started.dev])  # who was refused changed nothing
    assert len(run_training(started).losses) == 2


def test_checkpoint_of_another_model_does_not_fit(started: RunConfig, tmp_path: Path):
    """As where somebody has copied folders about."""
    other = brief_run((*started.train, *started.dev), tmp_path / "other", max_steps=1)
    other = dataclasses.replace(other, model=dataclasses.replace(BRIEF, d_model=24))
    run_training(other)
    folder = (Path(started.out) / "last").resolve()
    shutil.rmtree(folder)
    shutil.copytree((tmp_path / "other" / "last").resolve(), folder)
    with pytest.raises(DragomanError, match="does not fit the run"):
        run_training(started)


# What a run leaves behind.


def test_validation_is_in_the_metrics_and_leaves_its_samples(whole: Whole):
    validations = events(whole.out, "validation")
    assert [event["step"] for event in validations] == [6, 12]
    assert all(0 <= event["bleu"] <= 100 and event["loss"] > 0 for event in validations)
    assert all("version:" in event["signature"] for event in validations)
    texts = [path.read_text(encoding="utf-8") for path in sorted((whole.out / "samples").iterdir())]
    source, reference = toy_pairs()[190]
    assert all(source in text and reference in text for text in texts)
    assert ["before" in text for text in texts] == [False, True]


def test_samples_that_a_resumed_run_adds_are_all_shown(corpus: Corpus, tmp_path: Path):
    config = brief_run(corpus, tmp_path / "run", max_steps=2, validate_every=2, samples=1)
    run_training(config)
    run_training(with_training(config, max_steps=4, samples=3))
    first, second = (path.read_text(encoding="utf-8") for path in sorted((tmp_path / "run" / "samples").iterdir()))
    assert (first.count("  source "), second.count("  source "), second.count("  before ")) == (1, 3, 1)


def test_bleu_of_a_validation_is_that_of_its_translations(corpus: Corpus, trained: Path, pairs: list[Pair]):
    translator = Translator.load(trained / "last", SearchConfig(beam=1), NO_SAFEGUARDS)
    sources, references = zip(*pairs[190:], strict=True)
    translations = [translation.text for translation in translator.translate(sources)]
    recorded = events(trained, "validation")[-1]["bleu"]
    assert evaluate(translations, references).bleu.value == recorded > 0
    card = (trained / "last" / "card.md").read_text(encoding="utf-8")
    assert f"BLEU {recorded:.1f}" in card
    assert "dev.tsv, greedy search:" in card
    # The control: the translations of other sentences have another score.
    others = [translation.text for translation in translator.translate([source for source, _ in pairs[:10]])]
    assert evaluate(others, references).bleu.value != recorded


def test_loss_of_a_validation_is_the_mean_over_target_tokens(trained: Path, pairs: list[Pair]):
    model, (tokenizer, _) = read_model(trained / "last")
    total, tokens = 0.0, 0
    for source, target in pairs[190:]:
        batch = Batch.from_pairs([tokenizer.encode(source)], [tokenizer.encode(target)])
        with torch.inference_mode():
            total += F.cross_entropy(model(batch.source, batch.target)[0], batch.labels[0], reduction="sum").item()
        tokens += batch.labels.numel()
    assert events(trained, "validation")[-1]["loss"] == pytest.approx(total / tokens, rel=1e-5)


def test_start_tells_what_makes_scores_too_good(corpus: Corpus, tmp_path: Path, pairs: list[Pair]):
    train = write_tsv(tmp_path / "train.tsv", [*pairs[:180], pairs[190], pairs[190]])
    said = run_training(brief_run((train, corpus[1]), tmp_path / "run", max_steps=1)).logged
    assert any(text.startswith("1 of 10 dev pairs are in the training corpus, too") for text in said)
    assert any("of 182 pairs are duplicates" in text for text in said)
    again = run_training(brief_run((train, corpus[1]), tmp_path / "run", max_steps=2)).logged
    assert not any("duplicates" in text or "too high" in text for text in again)  # it was logged before


def test_pairs_that_are_too_long_are_left_out_and_counted(corpus: Corpus, tmp_path: Path, pairs: list[Pair]):
    long = "The dog sees 2 red cats. " * 40
    some = [*pairs[:100], (long, "개"), *pairs[100:180], ("dog", long), *pairs[180:190]]
    path = write_tsv(tmp_path / "train.tsv", some)
    notebook = run_training(run_config((path, corpus[1]), tmp_path / "run", max_steps=1, max_tokens=100))
    assert f"{path}: skipped pairs longer than 100 tokens: 2 (lines 101, 182)" in notebook.logged
    assert any(text.startswith("190 pairs, ") for text in notebook.logged)
    with pytest.raises(DragomanError, match="every pair is longer than 3 tokens"):
        run_training(run_config((path, corpus[1]), tmp_path / "other", max_tokens=3))


def test_pairs_are_joined_for_training_and_not_for_validating(corpus: Corpus, tmp_path: Path):
    notebook = run_training(run_config(corpus, tmp_path / "run", max_steps=1, concatenate=1.0))
    assert "380 pairs, concatenated ones included" in "\n".join(notebook.logged)
    assert len(Pairs.open(tmp_path / "run" / "data" / "train.arrow")) == 380
    assert len(Pairs.open(tmp_path / "run" / "data" / "dev.arrow")) == 10


def test_links_lead_to_whole_models_wherever_the_run_is_moved(trained: Path, tmp_path: Path):
    moved = shutil.copytree(trained, tmp_path / "moved", symlinks=True)
    for link in ("best", "last"):
        assert not (moved / link).readlink().is_absolute()
        verify_files(moved / link)
        read_model(moved / link)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_newest_checkpoints_and_the_best_are_kept(tmp_path: Path, tokenizer: Tokenizer, keep: int):
    model, saved = build(TINY, len(tokenizer)), []
    for step, best in ((1, 1), (2, 1), (3, 1), (4, 4), (5, 4), (6, 4), (7, 4), (8, 4)):
        save_checkpoint(
            tmp_path,
            model,
            Tokenizers.from_tokenizer(tokenizer),
            {},
            TrainingProgress(step=step, best_step=best, best_loss=1.0),
            "",
            keep,
        )
        saved.append(step)
        kept = {f"step-{number:08d}" for number in {best, *saved[-keep:]}}
        assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == kept
        links = [(tmp_path / link).resolve().name for link in ("best", "last")]
        assert links == [f"step-{best:08d}", f"step-{step:08d}"]


USERS = ("step-mine", "step-00000003-backup", "step-1abc", "step-", "other")


def test_user_folders_stay_and_undeletable_ones_end_no_run(tmp_path: Path, tokenizer: Tokenizer):
    (elsewhere := tmp_path / "elsewhere").mkdir()
    for name in USERS:
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-00000001").symlink_to(elsewhere)  # a link cannot be deleted as a folder is
    model = build(TINY, len(tokenizer))
    for step in (2, 3):
        save_checkpoint(
            tmp_path,
            model,
            Tokenizers.from_tokenizer(tokenizer),
            {},
            TrainingProgress(step=step, best_step=step),
            "",
            keep=1,
        )
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {*USERS, "step-00000001", "step-00000003"}
    assert elsewhere.is_dir()


def test_damaged_newer_checkpoint_does_not_displace_a_good_one(tmp_path: Path, tokenizer: Tokenizer):
    """A run that is resumed from before the damage comes past it again."""
    model = build(TINY, len(tokenizer))
    for step in (1, 2, 4, 3):
        save_checkpoint(
            tmp_path,
            model,
            Tokenizers.from_tokenizer(tokenizer),
            {},
            TrainingProgress(step=step, best_step=1, best_loss=1.0),
            "",
            keep=2,
        )
        if step == 4:
            (tmp_path / "checkpoints" / "step-00000004" / "state.json").unlink()
    assert [step_of(path) for path in checkpoints(tmp_path)] == [3, 2, 1]
    assert (tmp_path / "last").resolve().name == "step-00000003"
    verify_files(tmp_path / "last")


def test_checkpoints_are_saved_between_validations_if_asked(corpus: Corpus, tmp_path: Path, whole: Whole):
    run_training(brief_run(corpus, tmp_path / "run", save_every=5, keep=100))
    names = [path.name for path in sorted((tmp_path / "run" / "checkpoints").iterdir())]
    assert names == [f"step-{step:08d}" for step in (5, 6, 10, 12)]
    assert sorted(path.name for path in (whole.out / "checkpoints").iterdir()) == [names[1], names[3]]
    assert state(tmp_path / "run") == whole.state


@pytest.mark.parametrize(("minutes", "saved"), [(1e-9, list(range(1, STEPS + 1))), (0, [6, 12])])
def test_checkpoint_by_the_clock_is_replaced_by_the_next(
    corpus: Corpus, tmp_path: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch, minutes: float, saved: list[int]
):
    """So those that are kept are the same, whatever the speed. The control: no such checkpoints."""
    out = tmp_path / "run"
    had: dict[int, list[str]] = {}

    def noted(folder: Path, *given: Any) -> None:
        save_checkpoint(folder, *given)
        had[given[3].step] = [path.name for path in checkpoints(folder)]

    monkeypatch.setattr(run, "save_checkpoint", noted)
    run_training(brief_run(corpus, out, save_minutes=minutes, keep=100))
    assert list(had) == saved
    validated = [f"step-{step:08d}" for step in (12, 6)]
    assert had[12] == validated
    if minutes:
        assert (had[1], had[2], had[8]) == (["step-00000001"], ["step-00000002"], ["step-00000008", "step-00000006"])
    assert state(out) == whole.state


def test_checkpoint_by_the_clock_takes_no_place_of_another(tmp_path: Path, tokenizer: Tokenizer):
    """Nor is one left that a killed run had. A damaged one is none, and neither is it deleted as such."""
    model = build(TINY, len(tokenizer))
    for step, passing, kept in (
        (1, False, [1]),
        (2, False, [2, 1]),
        (3, False, [3, 2]),
        (4, True, [4, 3, 2]),
        (5, True, [5, 3, 2]),
        (6, False, [6, 3]),
        (7, True, [7, 6, 3]),
    ):
        progress = TrainingProgress(step=step, best_step=step, passing=passing)
        save_checkpoint(tmp_path, model, Tokenizers.from_tokenizer(tokenizer), {}, progress, "", keep=2)
        assert [step_of(path) for path in checkpoints(tmp_path)] == kept
    assert [step_of(path) for path in lasting_checkpoints(tmp_path)] == [6, 3]
    (checkpoints(tmp_path)[0] / "state.json").write_text("{")
    assert [step_of(path) for path in lasting_checkpoints(tmp_path)] == [7, 6, 3]


@pytest.mark.parametrize(
    ("times", "training", "validated"),
    [
        (0, {}, [1, 2, 3]),
        (1e9, {}, [1, 3]),  # one, and the time that it took will not pass again so often
        (0, {"minutes": None}, [3]),
        (0, {"validate_every": 2}, [2, 3]),
    ],
)
def test_run_of_some_minutes_validates_by_the_clock_unless_told_when(
    corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    times: float,
    training: dict[str, Any],
    validated: list[int],
):
    monkeypatch.setattr(limits, "SHARE_OF_TIME", 1e-12)
    monkeypatch.setattr(limits, "TIMES_A_VALIDATION", times)
    short = {"minutes": 10.0, "validate_every": None, "max_steps": 3, **training}
    run_training(brief_run(corpus, tmp_path / "run", **short))
    assert [event["step"] for event in events(tmp_path / "run", "validation")] == validated


def test_resumed_run_knows_when_it_validated_and_how_long_that_took(corpus: Corpus, tmp_path: Path):
    run_training(brief_run(corpus, tmp_path / "run", max_steps=2, validate_every=2))
    found = json.loads((tmp_path / "run/last/state.json").read_text())
    assert 0 < found["validation_seconds"] < found["validated_seconds"] <= found["seconds"]
    run_training(brief_run(corpus, tmp_path / "run", max_steps=3, validate_every=100, save_every=1, minutes=1e-9))
    resumed = json.loads((tmp_path / "run/last/state.json").read_text())
    assert resumed["validated_seconds"] == found["validated_seconds"]  # over before it began: no step, no validation


def test_clock_starts_after_the_trial_of_the_largest_batch(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Else the time that is left would be underestimated, as the share that is done has it, and the time spent not."""
    starts: list[tuple[float, ...]] = []
    start_clock = Journal.start_clock

    def noted(journal: Journal, *given: float) -> None:
        starts.append(given)
        start_clock(journal, *given)

    monkeypatch.setattr(loop.Loop, "try_largest_batch", lambda _: time.sleep(1.0))
    monkeypatch.setattr(Journal, "start_clock", noted)
    run_training(brief_run(corpus, tmp_path / "run", max_steps=1, minutes=0.5))
    share, seconds, _ = starts[-1]
    assert seconds >= 1.0
    assert share == pytest.approx(seconds / 30)


@pytest.mark.parametrize(
    ("settings", "steps", "why"),
    [
        ({"max_steps": None, "minutes": 1e-9}, 1, "the time limit of 1e-09 min is reached"),
        ({"max_steps": None, "epochs": 1}, 2, "1 epoch done"),
        ({"learning_rate": 1e-30, "validate_every": 1, "patience": 2}, 3, "no improvement in 2 validations"),
    ],
    ids=["minutes", "epochs", "patience"],
)
def test_run_ends_at_its_limit_and_says_which(
    corpus: Corpus, tmp_path: Path, settings: dict[str, Any], steps: int, why: str
):
    notebook = run_training(brief_run(corpus, tmp_path / "run", **settings))
    assert len(notebook.losses) == steps
    assert why in notebook.logged[-1]


def test_run_that_diverges_stops_and_says_so(corpus: Corpus, tmp_path: Path):
    """And no checkpoint of it is called the best."""
    with pytest.raises(DragomanError, match=r"loss|gradient"):
        run_training(brief_run(corpus, tmp_path / "run", learning_rate=1e30))
    if (tmp_path / "run" / "best").exists():
        assert all(weights.isfinite().all() for weights in read_model(tmp_path / "run")[0].parameters())


# What is the best.


@pytest.mark.parametrize(("references", "tokenize"), [(["今日は良い天気です。", "猫が好き。"], "char"), (None, "13a")])
def test_validation_compares_characters_where_there_are_no_spaces(
    corpus: Corpus, tmp_path: Path, references: list[str] | None, tokenize: str
):
    """And the log says so once, also of a run that is resumed."""
    dev = corpus[1]
    if references:
        dev = write_tsv(tmp_path / "dev.tsv", [(f"The dog sees {n}.", text) for n, text in enumerate(references)])
    for steps in (6, 12):
        run_training(brief_run((corpus[0], dev), tmp_path / "run", max_steps=steps))
    validations = events(tmp_path / "run", "validation")
    assert len(validations) > 1
    assert all(f"|tok:{tokenize}|" in row["signature"] for row in validations)
    log = (tmp_path / "run" / "train.log").read_text("utf-8")
    assert log.count("BLEU compares characters instead") == (tokenize == "char")


def measured(loss: float, bleu: float, chrf: float) -> Validation:
    scores = evaluate(["a"], ["b"])
    values = {"bleu": bleu, "chrf": chrf}
    changed = {name: dataclasses.replace(getattr(scores, name), value=value) for name, value in values.items()}
    return Validation(loss, dataclasses.replace(scores, **changed), [])


@pytest.mark.parametrize("stop_on", ["loss", "bleu", "chrf"])
@pytest.mark.parametrize("improved", [{"loss": 1.9}, {"bleu": 11.0}, {"chrf": 31.0}], ids=str)
def test_best_is_what_the_run_stops_on(stop_on: str, improved: dict[str, float]):
    _, best = is_better(measured(loss=2.0, bleu=10.0, chrf=30.0), stop_on, -1e9, 1e9)
    found = {"loss": 2.1, "bleu": 9.0, "chrf": 29.0, **improved}
    gain, score = is_better(measured(**found), stop_on, best, 2.0)
    assert gain == (stop_on in improved)
    assert abs(score) == found[stop_on]


def read_strictly(file: Path) -> list[dict[str, Any]]:
    """The objects in a file, read as JSON alone, which has no NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{file}: {word} is not JSON")

    text = file.read_text(encoding="utf-8")
    return [
        json.loads(part, parse_constant=refuse) for part in (text.splitlines() if file.suffix == ".jsonl" else [text])
    ]


@pytest.mark.parametrize(("step", "settings"), [(12, {}), (7, {"save_every": 7})], ids=["validation", "checkpoint"])
def test_weights_that_are_not_finite_end_the_run_and_are_not_saved(
    corpus: Corpus, tmp_path: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch, step: int, settings: dict[str, Any]
):
    """The run goes on from the checkpoint before: the control is what it then becomes."""
    config, apply = brief_run(corpus, tmp_path / "run", **settings), Learner.apply_gradient

    def spoil(learner: Learner, *given: Any) -> None:
        apply(learner, *given)
        if learner.steps == step:
            with torch.no_grad():
                next(learner.model.parameters())[5, 0] = math.inf

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "apply_gradient", spoil)
        advice = f"at step {step}, weights are infinite or not numbers: training has diverged; a lower"
        with pytest.raises(DragomanError, match=advice):
            run_training(config)
    assert [step_of(path) for path in checkpoints(tmp_path / "run")] == [6]
    assert Translator.load(tmp_path / "run").translate("The dog.").finished is not None
    assert f"resuming {config.out} from step 6" in run_training(config).logged
    assert state(tmp_path / "run") == whole.state


def test_weights_that_are_not_finite_in_one_process_end_all_of_them(tmp_path: Path, corpus: Corpus):
    learner = SimpleNamespace(full_model=lambda: build(BRIEF, 300))
    session: Any = SimpleNamespace(
        learner=learner, config=brief_run(corpus, tmp_path), journal=Notebook(tmp_path), progress=TrainingProgress()
    )
    for others, ends in ((True, False), (False, True)):
        session.group = SimpleNamespace(gather=lambda value, others=others: [value, others])
        with pytest.raises(DragomanError, match="diverged") if ends else contextlib.nullcontext():
            run.Run.full_model(session)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_validation_whose_loss_is_not_finite_is_never_the_best(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
):
    out, losses, measure = tmp_path / "run", [value], validation.mean_loss
    monkeypatch.setattr(validation, "mean_loss", lambda *given: losses.pop() if losses else measure(*given))
    notebook = run_training(brief_run(corpus, out))
    assert any("its loss is not a finite number" in line for line in notebook.logged)
    rows = [row for row in read_strictly(out / "metrics.jsonl") if row["event"] == "validation"]
    assert [row["loss"] is None for row in rows] == [True, False]
    (record,) = read_strictly(out / "last" / "state.json")
    assert (record["best_step"], (out / "best").resolve().name) == (12, "step-00000012")


def test_run_without_a_finite_validation_fails_and_advises(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(validation, "mean_loss", lambda *_: math.nan)
    for _ in range(2):  # it is finished, and fails again
        with pytest.raises(DragomanError, match="no validation had a finite loss: training has diverged; a lower"):
            run_training(brief_run(corpus, tmp_path / "run"))
    (record,) = read_strictly(tmp_path / "run" / "last" / "state.json")
    assert record["worse"] == 2


@pytest.mark.parametrize("stop_on", ["loss", "bleu", "chrf"])
@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_loss_that_is_not_finite_is_worse_than_all(stop_on: str, loss: float):
    assert not is_better(measured(loss, 50.0, 50.0), stop_on, -1e9, 1e9)[0]
    assert is_better(measured(9.0, 0.0, 0.0), stop_on, -1e9, 1e9)[0]  # the control


def test_progress_of_old_runs_forgets_a_best_loss_that_is_no_number():
    before = TrainingProgress(step=5, best_step=5, best_score=0.0, best_loss=math.nan)
    assert not before.is_validated
    assert is_better(measured(9.0, 0.0, 0.0), "bleu", before.best_score, before.best_loss)[0]


@pytest.mark.parametrize("stop_on", ["bleu", "chrf"])
@pytest.mark.parametrize("loss", [1.9, 2.0, 2.1])
def test_best_is_decided_by_the_loss_where_scores_are_equal(stop_on: str, loss: float):
    _, best = is_better(measured(2.0, 0.0, 0.0), stop_on, -1e9, 1e9)
    assert is_better(measured(loss, 0.0, 0.0), stop_on, best, 2.0)[0] == (loss < 2.0)


@pytest.mark.parametrize("stop_on", ["loss", pytest.param("bleu", marks=pytest.mark.slow), "chrf"])
def test_link_to_the_best_is_that_of_the_metrics(corpus: Corpus, tmp_path: Path, stop_on: Any):
    run_training(brief_run(corpus, tmp_path / "run", stop_on=stop_on, max_steps=30, validate_every=5, keep=100))
    found = events(tmp_path / "run", "validation")
    best = min(found, key=lambda event: (event["loss"] if stop_on == "loss" else -event[stop_on], event["loss"]))
    assert (tmp_path / "run" / "best").resolve().name == f"step-{best['step']:08d}"
    assert progress(tmp_path / "run")["best_step"] == best["step"]
    name = {"loss": "dev loss", "bleu": "BLEU", "chrf": "chrF2"}[stop_on]
    assert f"best {name} " in (tmp_path / "run" / "train.log").read_text(encoding="utf-8").splitlines()[-1]


# Where a run starts from.

# The shape of a model that learns at once, which no preset has.
SMALL = [
    *("--model.d-model", 16, "--model.attention.heads", 2, "--model.feed-forward.d-ff", 32),
    *("--model.encoder-layers", 1, "--model.decoder-layers", 1),
]


def started_from(corpus: Corpus, model: Path, out: Path, vocabulary: int | None = None, **training: Any) -> Path:
    config = run_config(corpus, out, **{"max_steps": 1, "learning_rate": 1e-30, **training})
    run_training(dataclasses.replace(config, init_from=str(model), vocabulary=vocabulary))
    return out


def test_fine_tuning_starts_where_the_model_is(corpus: Corpus, tmp_path: Path, trained: Path):
    """Its first step is so small here that it changes nothing."""
    out = started_from(corpus, trained, tmp_path / "tuned")
    assert [event["step"] for event in events(out, "validation")] == [0, 1]
    assert {event["loss"] for event in events(out, "validation")} == {events(out, "validation")[0]["loss"]}
    assert "validation at step 0: " in (out / "train.log").read_text(encoding="utf-8")
    run_training(run_config(corpus, tmp_path / "fresh", max_steps=1, learning_rate=1e-30))
    tuned, fresh = (events(run, "validation")[-1]["loss"] for run in (out, tmp_path / "fresh"))
    assert (
        tuned == next(e for e in events(trained, "validation") if e["step"] == progress(trained)["best_step"])["loss"]
    )
    assert fresh > tuned + 0.5
    assert read_toml(out / "config.toml")["model"] == read_toml(trained / "config.toml")["model"]


def test_epoch_time_counts_repeated_pairs_each_time(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A clock that is five seconds later each time it is asked, so long does the largest batch take."""
    clock = itertools.count(step=5)
    monkeypatch.setattr("dragoman.training.loop.time", SimpleNamespace(monotonic=lambda: next(clock)))
    seconds = []
    for weight in (1, 5):
        config = brief_run(corpus, tmp_path / str(weight), max_steps=1)
        run_training(dataclasses.replace(config, train=(corpus[0], f"weight={weight}")))
        log = (tmp_path / str(weight) / "train.log").read_text(encoding="utf-8")
        seconds.append(int(re.search(r"takes about (\d+) s", log)[1]))
    assert seconds[1] > 2 * seconds[0]  # not five times: the largest batch is another


@pytest.mark.slow
def test_best_of_a_fine_tuning_can_be_its_start(corpus: Corpus, tmp_path: Path, trained: Path):
    out = started_from(corpus, trained, tmp_path / "spoilt", max_steps=3, learning_rate=100.0, warmup=1, clip=0.0)
    assert (out / "best").resolve().name == "step-00000000"
    assert progress(out)["best_step"] == 0 < progress(out)["step"]
    best, start = read_model(out)[0].state_dict(), read_model(trained)[0].state_dict()
    assert all(torch.equal(best[name], value) for name, value in start.items())
    log = (out / "train.log").read_text(encoding="utf-8")
    assert "at step 0; the model is" in log.splitlines()[-1]
    started_from(corpus, trained, out, max_steps=4, learning_rate=100.0, warmup=1, clip=0.0)  # resumed
    assert (out / "best").resolve().name == "step-00000000"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--model.positions rotary", "model.positions = rotary is not possible"),
        ("--model.d-model 32", "model.d_model = 32 is not possible"),
        ("--model.attention.heads 1", "model.attention.heads = 1 is not possible"),
        ("--vocabulary 399", "has 400 subwords, which stay"),
        ("--model.dropout 0.25 --model.attention.dropout 0.125", ""),
    ],
)
def test_fine_tuning_refuses_what_the_model_cannot_become(
    flags: str, says: str, corpus: Corpus, trained: Path, dragoman: Any, tmp_path: Path
):
    files = ["--init-from", trained, "--train", corpus[0], "--dev", corpus[1], "--out", tmp_path / "run"]
    ran = dragoman("train", *files, "--training.max-steps", 1, "--quiet", *flags.split())
    assert (ran.code, says in ran.err) == ((2, True) if says else (0, True)), ran.err
    if not says:
        old, new = (read_toml(run / "config.toml")["model"] for run in (trained, tmp_path / "run"))
        assert (new.pop("dropout"), new["attention"].pop("dropout")) == (0.25, 0.125)
        del old["dropout"], old["attention"]["dropout"]
        assert new == old


@pytest.mark.slow
def test_fine_tuning_takes_the_training_settings_of_the_model_preset(corpus: Corpus, tmp_path: Path, dragoman: Any):
    files = ["--train", corpus[0], "--dev", corpus[1], "--training.max-steps", 1, "--quiet"]
    assert dragoman("train", *files, "--preset", "tiny", "--out", tmp_path / "old").code == 0
    files += ["--init-from", tmp_path / "old", "--out", tmp_path / "new"]
    assert dragoman("train", *files, "--preset", "base").err.count("preset 'base' has another model than") == 1
    assert dragoman("train", *files).code == 0
    assert read_toml(tmp_path / "new" / "config.toml")["preset"] == "tiny"


@pytest.mark.parametrize(
    "form", [pytest.param("run", marks=pytest.mark.slow), pytest.param("link", marks=pytest.mark.slow), "checkpoint"]
)
def test_fine_tuning_takes_the_preset_that_the_run_recorded_whatever_the_shape(
    form: str, corpus: Corpus, tmp_path: Path, dragoman: Any
):
    files = ["--train", corpus[0], "--dev", corpus[1], "--training.max-steps", 1, "--quiet"]
    run = tmp_path / "old"
    made = dragoman("train", *files, "--preset", "tiny", *SMALL, "--out", run)
    assert made.code == 0
    start = {"run": run, "link": run / "best", "checkpoint": (run / "best").resolve()}[form]
    files += ["--init-from", start, "--out", tmp_path / "new"]
    assert "preset 'lstm' has another model than" in dragoman("train", *files, "--preset", "lstm").err
    assert dragoman("train", *files).code == 0
    assert read_toml(tmp_path / "new" / "config.toml")["preset"] == "tiny"
    assert read_toml(tmp_path / "new" / "config.toml")["training"]["warmup"] == PRESETS["tiny"].training.warmup
    # The control: a folder without a run, whose shape no preset has.
    shutil.copytree((run / "best").resolve(), tmp_path / "model")
    files += ["--init-from", tmp_path / "model", "--out", tmp_path / "newer"]
    assert dragoman("train", *files).code == 0
    assert read_toml(tmp_path / "newer" / "config.toml")["preset"] == "small"


def test_init_from_of_a_run_stays_and_may_be_left_out(corpus: Corpus, tmp_path: Path, dragoman: Any):
    files = ["--train", corpus[0], "--dev", corpus[1], "--quiet"]
    make = ["--preset", "tiny", *SMALL, "--out", tmp_path / "old"]
    assert dragoman("train", *files, *make, "--training.max-steps", 1).code == 0
    tuned = ["train", *files, "--out", tmp_path / "new"]
    assert dragoman(*tuned, "--init-from", tmp_path / "old", "--training.max-steps", 1).code == 0
    other = dragoman(*tuned, "--init-from", tmp_path / "nothing", "--training.max-steps", 2)
    assert (other.code, f"was started with init_from = {tmp_path / 'old'}, not " in other.err) == (2, True)
    other = dragoman("train", *files, *make, "--init-from", tmp_path / "new", "--training.max-steps", 2)
    assert (other.code, "was started with init_from = nothing, not " in other.err) == (2, True)
    assert dragoman(*tuned, "--training.max-steps", 2).code == 0
    assert progress(tmp_path / "new")["step"] == 2
    assert "Started from the weights of old." in (tmp_path / "new/best/card.md").read_text("utf-8")
    # Neither is given for a run that did not start from a model: the preset explains the sizes.
    forgotten = dragoman("train", *files, "--out", tmp_path / "old", "--training.max-steps", 2)
    assert "was started with preset = tiny, not small" in forgotten.err


def test_fine_tuning_is_resumed_without_the_model_it_started_from(corpus: Corpus, tmp_path: Path, trained: Path):
    model = tmp_path / "model"
    shutil.copytree((trained / "best").resolve(), model)
    settings = {"learning_rate": 1.0}
    whole = started_from(corpus, model, tmp_path / "whole", max_steps=6, **settings)
    for last in (4, 6):
        started_from(corpus, model, tmp_path / "parts", max_steps=last, **settings)
    assert state(tmp_path / "parts") == state(whole)


def test_extended_vocabulary_keeps_what_the_old_words_have_learned(
    corpus: Corpus, tmp_path: Path, trained: Path, pairs: list[Pair]
):
    others = write_tsv(tmp_path / "others.tsv", [(f"Zebras {s} quickly", f"얼룩말 {t} 빨리") for s, t in pairs[:150]])
    out = started_from((others, corpus[1]), trained, tmp_path / "tuned", vocabulary=450)
    (old, (old_words, _)), (new, (new_words, _)) = read_model(trained), read_model(out)
    assert len(old_words) == 400 < len(new_words) <= 450
    assert new_words.pieces[:400] == old_words.pieces
    values = dict(old.named_parameters())
    for name, parameter in new.named_parameters():
        assert torch.equal(parameter[: len(values[name])], values[name]), name
    assert new.output.weight[400:].abs().amax(1).min() > 0
    # The same ids have almost the same loss: new words take only their share of the probability.
    source, target = old_words.encode(pairs[195][0]), old_words.encode(pairs[195][1])
    batch = Batch.from_pairs([source], [target])
    with torch.inference_mode():
        losses = [
            float(F.cross_entropy(model(batch.source, batch.target)[0], batch.labels[0]))
            for model in (old, new, build(new.config, len(new_words)))
        ]
    assert losses[0] < losses[1] < losses[0] + 0.3 < losses[2]


# As many tokens as fit.


def test_batch_size_is_found_and_stays(corpus: Corpus, tmp_path: Path):
    """Also where the model has fewer positions than the sentences of the trial would have tokens."""
    config = brief_run(corpus, tmp_path / "run", batch_tokens="auto", max_steps=1)
    notebook = run_training(config)
    found = read_toml(tmp_path / "run" / "config.toml")["training"]["batch_tokens"]
    assert found in [2**power for power in range(10, 18)]
    assert any(f"batches of {found:,} tokens" in text for text in notebook.logged)
    again = run_training(with_training(config, max_steps=2))
    assert len(again.losses) == 1
    assert not any("first trial" in text for text in again.logged)
    assert read_toml(tmp_path / "run" / "config.toml")["training"]["batch_tokens"] == found


def test_batch_size_that_is_found_is_for_all_processes(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(batch_size, "double_while_faster", lambda _: (2048, 1.0))
    config = dataclasses.replace(run_config(("a", "b"), tmp_path, batch_tokens="auto"), model=BRIEF)
    tokenizers, device = Tokenizers.from_tokenizer(tokenizer), torch.device("cpu")
    for size in (1, 3):
        group = ProcessGroup(device, size=size)
        assert batch_size.batch_tokens_that_fit(config, tokenizers, group, Notebook(tmp_path)) == size * 2048


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        ([100, 200, 204, 900], 2048),  # 2 % faster is not worth it
        ([100, 200, 300, 0.0], 4096),  # what is larger does not fit
        ([100, 90], 1024),
        ([0.0], 1024),
        ([2.0**power for power in range(20)], 2**17),
    ],
)
def test_batch_size_is_doubled_while_that_pays(speeds: list[float], expected: int):
    tried: list[int] = []

    def measure(tokens: int) -> float:
        tried.append(tokens)
        return speeds[len(tried) - 1]

    assert batch_size.double_while_faster(measure)[0] == expected
    assert tried == [1024 * 2**power for power in range(len(tried))]
    assert max(tried) <= 2**17


def test_checkpoints_are_folders_that_name_a_step(tmp_path: Path):
    for name in ("step-00000012", "step-00000003-again", *USERS):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert [folder.name for folder in checkpoints(tmp_path)] == ["step-00000012", "step-00000003-again"]


def test_run_is_not_resumed_with_other_subwords(trained: Path, corpus: Corpus, tmp_path: Path):
    out = shutil.copytree(trained, tmp_path / "run", symlinks=True)
    file = out / "data" / "tokenizer.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    *_, one, other = vocabulary = data["model"]["vocab"]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    file.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(DragomanError, match=r"tokenizer\.json: not the subwords that the run was trained with"):
        run_training(run_config(corpus, out, max_steps=81, validate_every=40))
    shutil.copy((out / "last").resolve() / "tokenizer.json", file)  # as the message says
    run_training(run_config(corpus, out, max_steps=81, validate_every=40))


def test_training_ends_with_a_record_of_confidence(corpus: tuple[str, str], pairs, tmp_path: Path):
    dev = write_tsv(tmp_path / "dev.tsv", pairs[:60])
    whole = run_config((corpus[0], dev), tmp_path / "whole")
    notebook = run_training(whole)
    assert any("confidence: AUC" in line for line in notebook.logged)
    best = tmp_path / "whole" / "best"
    verify_files(best)
    record = (best / Confidence.RECORD).read_bytes()
    assert Confidence.load(best).reliability.pairs == 60
    assert WordForms.unpack(Confidence.load(best).words).words
    run_training(whole)  # it is finished already
    assert (best / Confidence.RECORD).read_bytes() == record
    parts = run_config((corpus[0], dev), tmp_path / "parts")
    run_training(with_training(parts, max_steps=6))
    first = (tmp_path / "parts" / "best" / Confidence.RECORD).read_bytes()
    run_training(parts)
    assert (tmp_path / "parts" / "best" / Confidence.RECORD).read_bytes() == record
    assert first != record
    few = run_config(corpus, tmp_path / "few")
    run_training(few)
    assert Confidence.load(tmp_path / "few" / "best") is None
