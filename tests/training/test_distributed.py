"""Several processes that train together: the same run as one, and none of them waits forever."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import events, progress, run_config, settings_file, state
from processes import (
    ASKED,
    KILLED,
    LEARNER,
    PATIENCE,
    SETUP,
    SOON,
    VALIDATION,
    Command,
    Fault,
    free_port,
    rank,
    signal_before,
    train,
    wait_for,
)
from safetensors.torch import load_file
from torch.distributed import DistStoreError, HashStore, Store

from dragoman.config import RunConfig, TrainingConfig, read_toml
from dragoman.data.batches import Batch, plan_batches
from dragoman.data.dataset import Pairs
from dragoman.data.tokenizers import Tokenizers
from dragoman.training import datasets, loop
from dragoman.training.augmentation import Augmentation
from dragoman.training.checkpoint import checkpoints
from dragoman.training.learner import Learner
from dragoman.training.rendezvous import meet

Corpus = tuple[str, str]
Spoil = Callable[[torch.Tensor], torch.Tensor]

TIMEOUT = 3.0  # seconds after which a rank that does not answer is an error


def config_of(corpus: Corpus, out: Path, **training: Any) -> RunConfig:
    """Four parts to a batch, varied pairs; an average of the weights, which has to be the same as well."""
    common = {"batch_tokens": 400, "micro_batches": 4, "max_steps": 8, "validate_every": 4, "ema": 0.5, "robust": 0.2}
    return run_config(corpus, out, **{**common, **training})


def trained(config: RunConfig, ranks: int, *faults: Fault, code: int = 0) -> str:
    """Train to the end; what was said."""
    commands = train(settings_file(config), Path(config.out), ranks, faults)
    codes = [command.code() for command in commands]
    said = "".join(command.said for command in commands)
    assert codes == [code] * ranks, said
    assert "Traceback" not in said
    return said


def weights(out: Path) -> torch.Tensor:
    return torch.cat([tensor.flatten() for _, tensor in sorted(load_file(out / "last" / "model.safetensors").items())])


# Faults, called in each process before the command.


def record_batches(file: Path) -> None:
    """The pairs of each batch, as each process sees them."""
    work = loop.Loop.micro_batches

    def parts(self: loop.Loop, indices: Any, epoch: int, seeds: tuple[int, ...]) -> Any:
        if len(seeds) == 3:  # not the trial before the first step
            with file.with_suffix(f".{rank()}").open("a") as opened:
                opened.write(json.dumps(indices.tolist()) + "\n")
        return work(self, indices, epoch, seeds)

    loop.Loop.micro_batches = parts  # type: ignore[method-assign]


def spoil(with_: Spoil, on_rank: int, losses: set[int]) -> None:
    """The losses of that rank that have those numbers, counted from 0, the trial first."""
    work, so_far = Learner.loss, count()

    def loss(self: Learner, batch: Batch) -> torch.Tensor:
        found = work(self, batch)
        return with_(found) if next(so_far) in losses and rank() == on_rank else found

    Learner.loss = loss  # type: ignore[method-assign]


def nan(loss: torch.Tensor) -> torch.Tensor:
    return loss * float("nan")


def no_memory(loss: torch.Tensor) -> torch.Tensor:
    raise torch.OutOfMemoryError("out of memory")


def without_batch(number: int) -> None:
    """The first epoch lacks that batch; the others keep their numbers."""
    work = loop.Loop.train_on_next_batch

    def advance(self: loop.Loop, stop: Any) -> Any:
        if (self.progress.epoch, self.progress.batch) == (0, number):
            self.progress.batch += 1
            next(self.loader)
        return work(self, stop)

    loop.Loop.train_on_next_batch = advance  # type: ignore[method-assign]


# One, two, four.


Ordered = Callable[[int], Path]


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory, corpus: Corpus) -> Ordered:
    """Return a function that gives the same run on so many ranks, with gradients added up in a fixed order."""

    @cache
    def run(ranks: int) -> Path:
        out = tmp_path_factory.mktemp("ordered") / "run"
        trained(config_of(corpus, out, deterministic=True), ranks, partial(record_batches, out))
        return out

    return run


MANY = pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.slow), 4])


@MANY
def test_ranks_of_any_number_give_the_same_bits(ordered: Ordered, ranks: int):
    assert state(ordered(ranks)) == state(ordered(1))
    ours, theirs = (events(ordered(number), "validation") for number in (ranks, 1))
    assert [event["loss"] for event in ours] == [event["loss"] for event in theirs]
    assert progress(ordered(ranks)) == progress(ordered(1))


@MANY
def test_ranks_of_any_number_see_the_same_batches(ordered: Ordered, ranks: int):
    seen = {
        (number, rank): ordered(number).with_suffix(f".{rank}").read_text()
        for number in (1, ranks)
        for rank in range(number)
    }
    assert len(set(seen.values())) == 1
    data = ordered(1) / "data"
    varied = Augmentation(Pairs.open(data / "train.arrow"), Tokenizers.load(data), TrainingConfig(seed=1, robust=0.2))
    planned = [batch.tolist() for epoch in range(2) for batch in plan_batches(varied.lengths(epoch), 400, 1, epoch)]
    assert [json.loads(line) for line in seen[1, 0].splitlines()] == planned[:8]


@pytest.fixture(scope="module")
def unordered(tmp_path_factory: pytest.TempPathFactory, corpus: Corpus) -> dict[int, Path]:
    found = {}
    for ranks in (1, 2):
        found[ranks] = tmp_path_factory.mktemp("unordered") / "run"
        trained(config_of(corpus, found[ranks]), ranks, partial(record_batches, found[ranks]))
    return found


def test_ranks_without_fixed_order_differ_in_the_last_bits_alone(ordered: Ordered, unordered: dict[int, Path]):
    """The control: sums in another order, over the same batches, end elsewhere in their last bits."""
    assert state(unordered[2]) != state(unordered[1])
    torch.testing.assert_close(weights(unordered[2]), weights(unordered[1]), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(weights(unordered[2]), weights(ordered(1)), rtol=1e-3, atol=1e-4)
    batches = {run.with_suffix(".0").read_text() for run in (ordered(1), *unordered.values())}
    assert len(batches) == 1


def test_run_goes_on_with_any_number_of_ranks(corpus: Corpus, tmp_path: Path, ordered: Ordered):
    out = tmp_path / "run"
    for ranks, steps in ((2, 3), (1, 6), (2, 8)):
        trained(config_of(corpus, out, deterministic=True, max_steps=steps), ranks)
    assert state(out) == state(ordered(1))


@pytest.mark.parametrize(("ranks", "deterministic", "parts"), [((2, 1), False, 2), ((1,), True, 4)])
def test_run_keeps_the_parts_it_began_with(
    corpus: Corpus, tmp_path: Path, ranks: tuple[int, ...], deterministic: bool, parts: int
):
    """Left open, there is one for each process, in a fixed order at least four; they decide dropout, so they stay."""
    open_ = {"micro_batches": None, "validate_every": 100}
    for steps, number in enumerate(ranks, start=1):
        trained(config_of(corpus, tmp_path / "run", deterministic=deterministic, max_steps=steps, **open_), number)
        assert read_toml(tmp_path / "run" / "config.toml")["training"]["micro_batches"] == parts


def test_first_rank_alone_writes_and_speaks(unordered: dict[int, Path]):
    out = unordered[2]
    first, second = (out.with_suffix(f".{rank}.log").read_text() for rank in (0, 1))
    assert "finished: all 8 steps done" in first
    assert second == ""
    assert [event["step"] for event in events(out, "validation")] == [4, 8]
    lines = (out / "train.log").read_text().splitlines()
    assert sum(line.startswith("finished") for line in lines) == 1


# Pieces of the model on each rank.


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("first", "then"),
    [pytest.param(True, True, marks=SLOW), pytest.param(True, False, marks=SLOW), (False, True)],
    ids=["sharded", "whole again", "sharded later"],
)
def test_sharded_run_is_the_run_up_to_rounding(
    corpus: Corpus, tmp_path: Path, unordered: dict[int, Path], first: bool, then: bool
):
    """From its start, or before or after a checkpoint: it serves whole and sharded runs."""
    whole, sharded = unordered[2], tmp_path / "run"
    for shard, steps in ((first, 3), (then, 8)):
        trained(config_of(corpus, sharded, shard=shard, max_steps=steps), 2 if shard else 1)
    torch.testing.assert_close(weights(sharded), weights(whole), rtol=1e-3, atol=1e-4)
    moments = [load_file(run / "last" / "state.safetensors") for run in (whole, sharded)]
    assert moments[0].keys() == moments[1].keys()
    for name, tensor in moments[0].items():
        torch.testing.assert_close(moments[1][name], tensor, rtol=1e-2, atol=1e-4, msg=name)
    losses = [[event["loss"] for event in events(run, "validation")][-2:] for run in (whole, sharded)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    # The control: one validation earlier is further away.
    assert losses[1][0] != pytest.approx(losses[0][1], rel=1e-3)


def hours_ahead(on_rank: int) -> None:
    """A fault: the clock of that rank says that the run began hours ago."""
    work = Learner.compute_gradient

    def compute(self: Learner, *given: Any) -> Any:
        *others, began = given
        ahead = rank() == on_rank and len(given) == 5  # not the trial before the first step
        return work(self, *others, began - 10_000 if ahead else began)

    Learner.compute_gradient = compute  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", [{}, {"shard": True}, {"deterministic": True}], ids=["", "sharded", "ordered"])
@pytest.mark.parametrize(
    ("ahead", "clock", "saved"),
    [
        (1, {"minutes": 100.0, "save_minutes": 100.0}, 3),
        (0, {"minutes": 100.0, "max_steps": 100}, 1),
        pytest.param(1, {"save_minutes": 1e-9}, 3, marks=SLOW),
    ],
    ids=["time is not over", "time is over", "save at each step"],
)
def test_clock_of_the_first_rank_decides_for_all(
    corpus: Corpus, tmp_path: Path, kind: dict[str, Any], ahead: int, clock: dict[str, Any], saved: int
):
    few = {"max_steps": 3, "validate_every": 100, **clock, **kind}
    trained(config_of(corpus, tmp_path / "run", **few), 2, partial(hours_ahead, ahead))
    assert [path.name for path in checkpoints(tmp_path / "run")] == [f"step-{saved:08d}"]


# What is skipped, on all ranks together.


def test_fault_of_a_rank_skips_the_batch_and_names_its_pairs(
    corpus: Corpus, tmp_path: Path, unordered: dict[int, Path]
):
    """As if that batch had not been there: one whose loss is no number, and one that does not fit."""
    out, seen, spared = tmp_path / "run", tmp_path / "seen", tmp_path / "spared"
    faulty = {1: (nan, "the loss is nan"), 4: (no_memory, "not enough memory")}  # batches, counted from 0
    # Each rank has two losses in the trial, and two in a batch.
    faults = [partial(spoil, with_, 1, {2 + 2 * batch}) for batch, (with_, _) in faulty.items()]
    said = trained(config_of(corpus, out), 2, *faults, partial(record_batches, seen))
    trained(config_of(corpus, spared), 2, *(partial(without_batch, batch) for batch in faulty))
    assert said.count("skipped batch") == len(faulty)
    batches = [json.loads(line) for line in seen.with_suffix(".0").read_text().splitlines()]
    skipped = events(out, "skipped")
    for event, (batch, (_, why)) in zip(skipped, faulty.items(), strict=True):
        assert said.count(f"skipped batch {batch + 1} of epoch 1: {why}") == 1
        named = [location.split(":") for location in event["places"].split(", ")]
        assert {name for name, _ in named} == {corpus[0]}
        assert {int(line) - 1 for _, line in named} < set(batches[batch])  # line 1 is pair 0
    assert [event["step"] for event in skipped] == [1, 3]
    assert state(out) == state(spared)
    assert progress(out) == progress(spared)
    assert state(out) != state(unordered[2])  # the control: no batch is missing


@pytest.mark.parametrize(
    ("with_", "advice"),
    [
        pytest.param(nan, "lower training.learning_rate", id="nan", marks=pytest.mark.slow),
        pytest.param(no_memory, "raise training.micro_batches above 4", id="memory"),
    ],
)
def test_faults_in_a_row_end_the_run_with_advice_and_checkpoint(
    corpus: Corpus, tmp_path: Path, with_: Spoil, advice: str
):
    out = tmp_path / "run"
    # Out of memory ends the batch on that rank: from then on it has one loss for each batch, not two.
    config = config_of(corpus, out, max_steps=40, validate_every=1)
    said = trained(config, 2, partial(spoil, with_, 1, set(range(4, 200))), code=1)
    assert said.count("skipped batch") == 10
    sentences = [line for line in said.splitlines() if line.startswith("dragoman: ")]
    assert len(sentences) == 2
    for sentence in sentences:
        assert "10 batches in a row were skipped" in sentence
        assert advice in sentence
        assert "the last checkpoint is kept" in sentence
    assert [folder.name for folder in checkpoints(out)] == ["step-00000001"]
    trained(config_of(corpus, out, max_steps=2), 1)


def test_faults_fewer_than_ten_do_not_end_the_run(corpus: Corpus, tmp_path: Path):
    fault = partial(spoil, nan, 1, set(range(4, 4 + 2 * 9)))
    said = trained(config_of(corpus, tmp_path / "run", max_steps=2, validate_every=2), 2, fault)
    assert said.count("skipped batch") == 9
    assert progress(tmp_path / "run")["skipped"] == 0


def test_batch_that_never_fits_is_reported_before_the_first_step(corpus: Corpus, tmp_path: Path):
    said = trained(config_of(corpus, tmp_path / "run"), 2, partial(spoil, no_memory, 1, {0}), code=1)
    assert said.count("a batch of 400 tokens does not fit in memory") == 2
    assert said.count("choose a smaller training.batch_tokens, or raise training.micro_batches above 4") == 2
    assert "skipped" not in said
    assert not (tmp_path / "run" / "checkpoints").exists()


# Asked to stop.


@pytest.mark.parametrize(
    ("owner", "name", "call", "asked"),
    [
        (VALIDATION, "translate_all", 2, (0, 1)),
        pytest.param(LEARNER, "update", 3, (0,), marks=pytest.mark.slow),
        (LEARNER, "update", 3, (1,)),
    ],
)
def test_sigterm_to_any_rank_saves_and_the_same_command_resumes(
    corpus: Corpus, tmp_path: Path, unordered: dict[int, Path], owner: str, name: str, call: int, asked: tuple[int, ...]
):
    config = config_of(corpus, tmp_path / "run")
    said = trained(config, 2, partial(signal_before, owner, name, call, signal.SIGTERM, asked), code=ASKED)
    assert said.count("the same command resumes the run") == 1
    trained(config, 2)
    assert state(tmp_path / "run") == state(unordered[2])
    assert progress(tmp_path / "run") == progress(unordered[2])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 20))
def test_sigterm_at_any_time_stops_all_ranks_and_the_same_command_resumes(
    corpus: Corpus, tmp_path: Path, unordered: dict[int, Path], seed: int
):
    """As torchrun sends it: to one after the other."""
    out, chance = tmp_path / "run", random.Random(seed)
    file = settings_file(config_of(corpus, out))
    commands = train(file, out, ranks=2)
    time.sleep(chance.uniform(0.3, 2.0))
    asked = time.monotonic()
    for command in chance.sample(commands, 2):
        command.send(signal.SIGTERM)
        time.sleep(chance.uniform(0, 0.005))
    stops_as_asked(commands)
    assert time.monotonic() - asked < SOON
    trained(config_of(corpus, out), 2)
    assert state(out) == state(unordered[2])


def stops_as_asked(commands: list[Command]) -> None:
    """Fail unless each rank saved and stopped, or was done.

    A run that only prepares has nothing to save, so the signal ends its ranks at once; then one that lives a little
    longer loses the other, and says so.
    """
    codes = [command.code(within=SOON) for command in commands]
    if 1 in codes:
        lost = codes.index(1)
        assert commands[1 - lost].process.exitcode == -signal.SIGTERM
        assert not any("the largest batch fits" in command.said for command in commands)  # said when both are ready
        reports_a_lost_process(commands[lost].said)
    else:
        assert set(codes) <= {0, ASKED}, [command.said for command in commands]


def reports_a_lost_process(said: str) -> None:
    (sentence,) = [line for line in said.splitlines() if line.startswith("dragoman: ")]
    assert "another process of this run has ended or does not answer; the last checkpoint is kept" in sentence
    assert "Traceback" not in said


@pytest.mark.parametrize("asked", [0, 1])
def test_sigterm_to_a_rank_that_prepares_ends_both(corpus: Corpus, tmp_path: Path, asked: int):
    """It has nothing to save yet, and the other is not left waiting."""
    fault = partial(signal_before, SETUP, "read_corpus", 1, signal.SIGTERM, (asked,))
    commands = train(settings_file(config_of(corpus, tmp_path / "run")), tmp_path / "log", ranks=2, faults=[fault])
    stops_as_asked(commands)
    assert commands[1 - asked].process.exitcode == 1


# Gone, or silent.


@pytest.mark.parametrize(
    ("owner", "name", "call", "lost"),
    [
        (LEARNER, "update", 3, 0),
        (VALIDATION, "translate_all", 1, 1),
        (SETUP, "newest_checkpoint", 1, 0),
        pytest.param(LEARNER, "update", 3, 1, marks=pytest.mark.slow),
        pytest.param(VALIDATION, "translate_all", 1, 0, marks=pytest.mark.slow),
        pytest.param(SETUP, "newest_checkpoint", 1, 1, marks=pytest.mark.slow),
    ],
)
def test_rank_that_is_killed_ends_the_others_at_once(
    corpus: Corpus, tmp_path: Path, owner: str, name: str, call: int, lost: int
):
    file = settings_file(config_of(corpus, tmp_path / "run"))
    fault = partial(signal_before, owner, name, call, signal.SIGKILL, (lost,))
    commands = train(file, tmp_path / "log", ranks=2, faults=[fault])
    assert commands[lost].code() == KILLED
    killed = time.monotonic()
    other = commands[1 - lost]
    assert other.code(within=SOON) == 1
    assert time.monotonic() - killed < SOON
    reports_a_lost_process(other.said)


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [pytest.param(LEARNER, "update", 3, marks=pytest.mark.slow), (VALIDATION, "translate_all", 1)],
)
def test_rank_that_hangs_is_an_error_and_not_a_wait(corpus: Corpus, tmp_path: Path, owner: str, name: str, call: int):
    out = tmp_path / "run"
    fault = partial(signal_before, owner, name, call, signal.SIGSTOP, (1,))
    few = {"save_every": 1, "validate_every": 2, "max_steps": 3}
    config = config_of(corpus, out, **few, rank_timeout=TIMEOUT / 60)
    first, silent = train(settings_file(config), out, ranks=2, faults=[fault])
    try:
        wait_for(lambda: "T" in Path(f"/proc/{silent.process.pid}/stat").read_text().split()[2])
        halted = time.monotonic()
        assert first.code(within=TIMEOUT + SOON) == 1
        assert time.monotonic() - halted > TIMEOUT / 2
        reports_a_lost_process(first.said)
    finally:
        for command in (first, silent):
            command.send(signal.SIGKILL)
    trained(config_of(corpus, out, **few), 2)  # resumed from what was saved before


def waits(_: float) -> None:
    """For a disk that does not answer, say."""
    time.sleep(PATIENCE)


def works(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def is_stopped(_: float) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def first_while_preparing(does: Callable[[float], None], seconds: float) -> None:
    """A fault: before the first rank tokenises, it does that."""
    tokenise = datasets.tokenise

    def wrapped(*arguments: Any) -> Any:
        does(seconds)
        return tokenise(*arguments)

    datasets.tokenise = wrapped


@pytest.mark.parametrize("does", [is_stopped, pytest.param(waits, marks=pytest.mark.slow)])
def test_first_rank_that_hangs_while_it_prepares_is_an_error(
    corpus: Corpus, tmp_path: Path, does: Callable[[float], None]
):
    config = config_of(corpus, tmp_path / "run", rank_timeout=TIMEOUT / 60)
    fault = partial(first_while_preparing, does, 0)
    hanging, waiting = train(settings_file(config), tmp_path / "log", ranks=2, faults=[fault])
    try:
        assert waiting.code(within=2 * TIMEOUT + SOON) == 1
        reports_a_lost_process(waiting.said)
    finally:
        hanging.send(signal.SIGKILL)


@pytest.mark.slow
def test_first_rank_that_prepares_for_long_is_waited_for(corpus: Corpus, tmp_path: Path):
    config = config_of(corpus, tmp_path / "run", max_steps=2, rank_timeout=TIMEOUT / 60)
    trained(config, 2, partial(first_while_preparing, works, 1.5 * TIMEOUT))


def test_second_run_into_the_same_folder_ends_all_its_ranks(corpus: Corpus, tmp_path: Path):
    out = tmp_path / "run"
    file = settings_file(config_of(corpus, out))
    halted = partial(signal_before, LEARNER, "update", 3, signal.SIGSTOP)
    (first,) = train(file, tmp_path / "first", faults=[halted])
    try:
        wait_for((out / "config.toml").exists)
        others = train(file, tmp_path / "others", ranks=2)
        assert [command.code() for command in others] == [1, 1]
        assert "another process is using this folder" in others[0].said
        reports_a_lost_process(others[1].said)
    finally:
        first.send(signal.SIGKILL)


# torchrun.


def workers_of(torchrun: int) -> dict[int, int]:
    """Process ids by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            variables = dict(pair.split("=", 1) for pair in (folder / "environ").read_text().split("\0") if "=" in pair)
        except (OSError, UnicodeDecodeError):  # it has ended meanwhile, or is not ours
            continue
        if parent == torchrun and "RANK" in variables:
            found[int(variables["RANK"])] = int(folder.name)
    return found


def count_restarts_alone() -> None:
    os.environ["TORCHELASTIC_RESTART_COUNT"] = str(rank())


def test_ranks_meet_whatever_their_agents_count(corpus: Corpus, tmp_path: Path):
    """Each machine's agent counts restarts for itself."""
    trained(config_of(corpus, tmp_path / "run", max_steps=1, rank_timeout=TIMEOUT / 60), 2, count_restarts_alone)


def test_meeting_is_one_of_those_who_are_there(tmp_path: Path):
    """Not of those who were there before and left their names in the store."""
    store = HashStore()

    def meetings(size: int) -> list[Store]:
        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(lambda rank: meet(store, rank, size, timedelta(seconds=5)), range(size)))

    def words(stores: list[Store]) -> list[bytes]:
        stores[0].set("word", uuid.uuid4().hex)
        return [store.get("word") for store in stores]

    first, second = meetings(3), meetings(3)
    before, after = words(first), words(second)
    assert len(set(before)) == len(set(after)) == 1
    assert before != after
    assert {store.get("word") for store in first} == set(before)
    with pytest.raises(DistStoreError, match="process 1 did not arrive"):  # its old name is no sign of life
        meet(store, 0, 2, timedelta(seconds=0.2))


@pytest.mark.slow
@pytest.mark.parametrize("kills", [[4], [6, 14]], ids=str)
def test_torchrun_starts_again_after_a_kill_and_the_result_is_the_same(
    corpus: Corpus, tmp_path: Path, kills: list[int]
):
    out, often = tmp_path / "run", {"max_steps": 24, "save_every": 2, "validate_every": 24, "keep": 100}
    trained(config_of(corpus, tmp_path / "whole", **often), 2)
    file = settings_file(config_of(corpus, out, **often))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--max_restarts=3"]
    command = [*torchrun, "-m", "dragoman", "train", file]
    under_way = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        for step in kills:
            wait_for((out / "checkpoints" / f"step-{step:08d}").exists)
            os.kill(workers_of(under_way.pid)[1], signal.SIGKILL)
        _, said = under_way.communicate(timeout=2 * PATIENCE)
    finally:
        for process in (*workers_of(under_way.pid).values(), under_way.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    assert under_way.returncode == 0, said
    assert said.count("resuming ") == len(kills)
    assert state(out) == state(tmp_path / "whole")
    assert progress(out) == progress(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lost", ["worker", "agent"])
def test_agents_go_on_after_a_loss_with_the_same_result(corpus: Corpus, tmp_path: Path, lost: str, seed: int):
    """As on two machines: a worker is killed, or an agent with its worker, which a new agent replaces."""
    out, often = tmp_path / "run", {"max_steps": 24, "save_every": 1, "validate_every": 24, "keep": 100}
    trained(config_of(corpus, tmp_path / "whole", **often), 2)
    file = settings_file(config_of(corpus, out, **often, rank_timeout=0.3))
    where = ["--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{free_port()}", f"--rdzv_id={tmp_path.name}"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1", "--max_restarts=3"]

    def agent() -> subprocess.Popen[bytes]:
        environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # docs/clusters.md says why
        return subprocess.Popen([*torchrun, *where, "-m", "dragoman", "train", file], env=environment)

    agents = [agent()]
    try:
        time.sleep(2)  # the first one hosts the store, whose loss ends the run
        agents.append(agent())
        step = random.Random(seed).randint(1, 20)
        wait_for((out / "checkpoints" / f"step-{step:08d}").exists)
        (worker,) = workers_of(agents[1].pid).values()
        if lost == "agent":
            agents[1].kill()
            agents[1].wait()
        os.kill(worker, signal.SIGKILL)
        if lost == "agent":
            agents[1] = agent()
        assert [one.wait(2 * PATIENCE) for one in agents] == [0, 0]
    finally:
        for one in agents:
            for process in (*workers_of(one.pid).values(), one.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
    assert state(out) == state(tmp_path / "whole")
    assert progress(out) == progress(tmp_path / "whole")


@pytest.mark.slow
def test_second_sigterm_ends_a_process_that_waits_for_another_one(corpus: Corpus, tmp_path: Path):
    config = config_of(corpus, tmp_path / "run", rank_timeout=1.0)
    halted = partial(signal_before, LEARNER, "update", 3, signal.SIGSTOP, (1,))
    first, other = train(settings_file(config), tmp_path / "log", 2, [halted])
    try:
        status = Path(f"/proc/{other.process.pid}/stat")
        wait_for(lambda: status.read_text().rsplit(")", 1)[1].split()[0] == "T")
        time.sleep(0.5)  # now the first one waits for the sums of the other one
        for _ in range(2):
            assert first.process.exitcode is None
            first.send(signal.SIGTERM)
            time.sleep(1.2)
        assert first.code(within=SOON) == ASKED, first.said
        assert "Traceback" not in first.said
    finally:
        for each in (first, other):
            each.send(signal.SIGKILL)
