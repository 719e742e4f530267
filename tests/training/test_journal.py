"""What a run tells: the same figures on a terminal, in a log, in metrics.jsonl and for TensorBoard."""

import contextlib
import io
import json
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from dragoman import console as console_module
from dragoman.console import SECONDS_BETWEEN_LINES
from dragoman.errors import UsageError
from dragoman.training import journal as journal_module
from dragoman.training.journal import CURVE_EVERY, Journal, StepMetrics
from dragoman.training.memory import peak_memory

SAMPLES = [{"source": "A dog.", "reference": "개.", "now": "고양이.", "before": "말.", "tag": ""}]
STATEMENT = Path("/proc/self/statm")


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (journal_module, console_module):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=found))
    return found


def console(terminal: bool = False) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=150), text


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def take_steps(journal: Journal, clock: Clock, count: int, seconds: float, first: int = 1, **more: Any) -> None:
    """Steps of `seconds` each with 1,000 tokens and a loss of 2 nats per token; 1 % of a run each."""
    for step in range(first, first + count):
        clock.now += seconds
        journal.step(StepMetrics(step, 2, 2000.0, 1000, 5e-4, 0.25, share_done=step / 100, **more))


# The log.


def line_of(run: Path, clock: Clock, start: float = 0.0, first: int = 1, **more: Any) -> str:
    """Return the line that two steps of 10 s, each 1 % of a run, leave where `start` of the run was done before."""
    target, text = console()
    with Journal(run, target) as journal:
        journal.start_clock(start, seconds=1e6, target_tokens=10**9)
        journal.best_so_far = "best BLEU 23.1 at step 1,200"
        take_steps(journal, clock, 2, SECONDS_BETWEEN_LINES, first, **more)
    assert (run / "train.log").read_text() == text.getvalue()
    return text.getvalue()


def test_journal_line_has_all_figures(tmp_path: Path, clock: Clock):
    line = line_of(tmp_path / "run", clock, total_steps=100, steps_to_validation=30)
    for figure in (
        *("epoch 3, step 2 of 100", "loss 2.000", "rate 5.00e-04", "gradient 0.25"),
        *("100 target tokens/s", " MB;", "2 %, validation in 5 min 00 s, end in 16 min 20 s", "best BLEU 23.1"),
    ):
        assert figure in line


@pytest.mark.parametrize(
    ("start", "first", "validation", "left"),
    [
        (0.0, 1, None, "2 %, validation in 16 min 20 s, end in 16 min 20 s"),  # the next validation is not known
        (0.5, 49, None, "50 %, validation in ?, end in ?"),  # nothing of this session is done yet
        (0.96, 97, 30, "98 %, validation in 20 s, end in 20 s"),  # a run ends with a validation
        (0.5, 51, None, "end in 8 min 00 s"),  # judged by the speed of this session: 2 % took 20 s
    ],
)
def test_time_left(tmp_path: Path, clock: Clock, start: float, first: int, validation: int | None, left: str):
    assert left in line_of(tmp_path / "run", clock, start, first, steps_to_validation=validation)


def test_journal_tells_the_next_validation_by_steps_or_by_the_clock(tmp_path: Path, clock: Clock):
    for seconds, left in ((45.0, "validation in 45 s"), (-1.0, "validation in 0 s"), (1e3, "validation in 5 min 00 s")):
        assert left in line_of(tmp_path / f"{seconds}", clock, steps_to_validation=30, seconds_to_validation=seconds)


def test_journal_logs_one_line_per_interval(tmp_path: Path, clock: Clock):
    target, text = console()
    with Journal(tmp_path / "run", target) as journal:
        take_steps(journal, clock, 80, SECONDS_BETWEEN_LINES / 4)
    assert text.getvalue().count("\n") == 16  # every fifth step is the first one after an interval


# A terminal.


def test_terminal_shows_the_same_figures_in_place(tmp_path: Path, clock: Clock):
    target, text = console(terminal=True)
    with Journal(tmp_path / "run", target) as journal:
        journal.best_so_far = "best BLEU 23.1 at step 1,200"
        take_steps(journal, clock, 3, SECONDS_BETWEEN_LINES, total_steps=100, steps_to_validation=6)
        journal.display.bar.refresh()
    shown = text.getvalue()
    assert "epoch 3, step 3 of 100" in shown
    assert "3 %, validation in 1 min 00 s, end in 16 min 10 s" in shown
    assert "loss 2.000, rate 5.00e-04, gradient 0.25, 100 target tokens/s" in shown
    assert "best BLEU 23.1 at step 1,200" in shown
    assert "epoch 3, step 2 of 100: loss 2.000" in (tmp_path / "run" / "train.log").read_text()
    assert "step 2 of 100: loss" not in shown  # the line of the log


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize(("quiet", "active"), [(False, True), (True, True), (False, False)])
def test_quiet_journal_prints_nothing_and_an_inactive_one_leaves_no_trace(
    tmp_path: Path, clock: Clock, terminal: bool, quiet: bool, active: bool
):
    """All ranks but the first have an inactive journal."""
    (target, text), run = console(terminal), tmp_path / "run"
    with Journal(run, target, quiet, tensorboard=True, active=active) as journal:
        take_steps(journal, clock, CURVE_EVERY, SECONDS_BETWEEN_LINES)
        journal.log("a word")
        journal.record("validation", step=CURVE_EVERY, bleu=1.0)
        journal.write_samples(CURVE_EVERY, SAMPLES)
    assert bool(text.getvalue()) == (active and not quiet)
    files = {"metrics.jsonl", "samples", "tensorboard", "train.log"} if active else set()
    assert {file.name for file in run.glob("*")} == files
    if active:
        log = (run / "train.log").read_text()
        assert "a word\n" in log
        assert "step 2: loss" in log


# metrics.jsonl.


def test_metrics_row_has_the_means_since_the_last_one(tmp_path: Path, clock: Clock):
    with Journal(tmp_path / "run", console()[0], quiet=True) as journal:
        take_steps(journal, clock, CURVE_EVERY, 2.0)
        with journal.pause():
            clock.now += 500.0  # a validation
        take_steps(journal, clock, CURVE_EVERY, 4.0, first=CURVE_EVERY + 1)
    first, second = metrics(tmp_path / "run")
    assert (first["event"], first["step"], first["epoch"], first["loss"]) == ("step", CURVE_EVERY, 2, 2.0)
    assert (first["rate"], first["gradient_norm"]) == (5e-4, 0.25)
    assert (first["tokens_per_second"], second["tokens_per_second"]) == (500.0, 250.0)
    assert (first["seconds"], second["seconds"]) == (2.0 * CURVE_EVERY, 6.0 * CURVE_EVERY + 500.0)
    assert (first["target_tokens"], second["target_tokens"]) == (1000 * CURVE_EVERY, 2000 * CURVE_EVERY)
    assert first["memory"] > 0


def test_metrics_row_is_not_the_mean_of_a_few_steps(tmp_path: Path, clock: Clock):
    """Where a validation, a stop or the end comes soon after a row, its steps are in the next one."""
    with Journal(tmp_path / "run", console()[0], quiet=True) as journal:
        for first, last in ((1, 3), (4, 5), (6, 12), (13, 53), (54, 76), (77, 98), (99, 130)):
            take_steps(journal, clock, last - first + 1, 2.0, first)
            journal.flush()
    assert [row["step"] for row in metrics(tmp_path / "run")] == [3, 12, 50, 76, 130]


@pytest.mark.parametrize(
    ("stopped", "rows"), [(48, [48, 100]), (74, [50, 100]), (75, [50, 75, 100]), (60, [50, 100]), (3, [3, 50, 100])]
)
def test_metrics_rows_of_a_stopped_run(tmp_path: Path, clock: Clock, stopped: int, rows: list[int]):
    for first, last in ((1, stopped), (stopped + 1, 120)):
        with Journal(tmp_path / "run", console()[0], quiet=True) as journal:
            take_steps(journal, clock, last - first + 1, 2.0, first)
            journal.flush()
    assert [row["step"] for row in metrics(tmp_path / "run")] == rows


@pytest.mark.parametrize(("paused", "speed"), [(True, 100.0), (False, 25.0)])
@pytest.mark.parametrize("flushed", [False, True])
def test_journal_pause_takes_no_time(tmp_path: Path, clock: Clock, flushed: bool, paused: bool, speed: float):
    """A step of 10 s, a minute of validating and saving, a step of 10 s. The control counts that minute."""
    with Journal(tmp_path / "run", console()[0], quiet=True) as journal:
        journal.start_clock(0.0)
        take_steps(journal, clock, 1, 10.0)
        with journal.pause() if paused else contextlib.nullcontext():
            if flushed:
                journal.flush()
            clock.now += 30.0 if flushed else 60.0
        take_steps(journal, clock, 1, 10.0, first=2)
        for _ in range(2):  # the second time there is no step to make a row of
            journal.flush()
    rows = metrics(tmp_path / "run")
    assert [row["step"] for row in rows] == ([1, 2] if flushed else [2])
    assert rows[-1]["tokens_per_second"] == speed


def test_metrics_time_and_tokens_add_up_over_sessions(tmp_path: Path, clock: Clock):
    """A pause of a day between them counts for nothing."""
    with Journal(tmp_path / "run", console()[0], quiet=True) as journal:
        journal.start_clock(0.0)
        take_steps(journal, clock, CURVE_EVERY, 2.0)
    clock.now += 86400.0
    with Journal(tmp_path / "run", console()[0], quiet=True) as journal:
        journal.start_clock(0.5, seconds=2.0 * CURVE_EVERY, target_tokens=1000 * CURVE_EVERY)
        take_steps(journal, clock, CURVE_EVERY, 2.0, first=CURVE_EVERY + 1)
    last = metrics(tmp_path / "run")[-1]
    assert (last["seconds"], last["target_tokens"]) == (4.0 * CURVE_EVERY, 2000 * CURVE_EVERY)


def test_resumed_run_has_rows_at_the_same_steps(tmp_path: Path, clock: Clock):
    """Interrupted after 23 steps that no row has: the first row covers those since, as its speed shows."""
    with Journal(tmp_path / "run", console()[0], quiet=True) as journal:
        take_steps(journal, clock, CURVE_EVERY + 23, 2.0)
    with Journal(tmp_path / "run", console()[0], quiet=True) as journal:
        take_steps(journal, clock, 2 * CURVE_EVERY - 23, 4.0, first=CURVE_EVERY + 24)
    rows = metrics(tmp_path / "run")
    assert [row["step"] for row in rows] == [CURVE_EVERY, 2 * CURVE_EVERY, 3 * CURVE_EVERY]
    assert [row["tokens_per_second"] for row in rows] == [500.0, 250.0, 250.0]


def test_journal_that_says_nothing_leaves_no_folder(tmp_path: Path):
    with Journal(tmp_path / "run", console()[0], tensorboard=True):
        pass
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("before", "after"), [('a\n{"eve', 'a\n{"eve\nb\n'), ("a\n", "a\nb\n"), ("", "b\n")])
def test_journal_begins_a_new_line_after_a_torn_one(tmp_path: Path, before: str, after: str):
    (tmp_path / "metrics.jsonl").write_text(before)
    with Journal(tmp_path, console()[0]) as journal:
        journal.write("metrics.jsonl", "b")
    assert (tmp_path / "metrics.jsonl").read_text() == after


# TensorBoard.


def events(run: Path) -> Iterator[Any]:
    """What TensorBoard reads: length, checksum, event, checksum; again and again."""
    from tensorboardX.proto.event_pb2 import Event

    for file in sorted((run / "tensorboard").iterdir()):
        data = file.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            yield Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]


def test_tensorboard_gets_the_numbers_of_the_metrics(tmp_path: Path, clock: Clock):
    with Journal(tmp_path / "run", console()[0], quiet=True, tensorboard=True) as journal:
        take_steps(journal, clock, 2 * CURVE_EVERY, 2.0)
        journal.record("validation", step=100, epoch=2, loss=3.5, bleu=12.25, exact=0.0, signature="nrefs:1")
    found = {(v.tag, event.step): v.simple_value for event in events(tmp_path / "run") for v in event.summary.value}
    expected = {
        (f"{row['event']}/{name}", row["step"]): value
        for row in metrics(tmp_path / "run")
        for name, value in row.items()
        if name not in ("event", "step", "signature")
    }
    assert found == pytest.approx(expected, rel=1e-6)
    assert found["validation/bleu", 100] == 12.25


def test_tensorboard_hides_what_is_done_again(tmp_path: Path):
    """Killed after step 300, gone on from 100."""
    for steps in ([100, 200, 300], [200, 300]):
        with Journal(tmp_path / "run", console()[0], quiet=True, tensorboard=True) as journal:
            for step in steps:
                journal.record("step", step=step, loss=1.0)
    begins = [event.step for event in events(tmp_path / "run") if event.HasField("session_log")]
    assert begins == [100, 200]


def test_tensorboard_without_its_package_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    Journal(tmp_path / "run", console()[0])
    with pytest.raises(UsageError, match=re.escape("pip install 'dragoman[tensorboard]'")):
        Journal(tmp_path / "run", console()[0], tensorboard=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not STATEMENT.exists(), reason="needs a system that says how much memory a process holds")
def test_peak_memory_is_in_bytes():
    """At least what is held now; the system counts pages of 4 KiB, and loosely."""
    assert 0.9 * 4096 * int(STATEMENT.read_text().split()[1]) < peak_memory() < 1e12
