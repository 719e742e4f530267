"""Report on a run: figures that change in place on a terminal, plain lines in a log, JSON objects in metrics.jsonl."""

import contextlib
import json
import math
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from dragoman.console import ProgressDisplay, format_duration, time_left
from dragoman.storage.writing import name_errors, open_append, replace_file
from dragoman.training.memory import peak_memory
from dragoman.training.tensorboard import TensorBoardWriter

STOPPED = "stopped"  # how the last line in the log of a run begins that was told to stop
CURVE_EVERY = 50  # steps between two entries in metrics.jsonl
ENOUGH = 25  # updates for an entry: the mean of fewer would be an outlier of the curve
ALWAYS = ("source", "reference", "now")  # what a sample shows even where it is empty


def ends_mid_line(file: Path) -> bool:
    """Return whether the last line of a file lacks its end, as a full disk or a kill leaves it."""
    with file.open("rb") as opened:
        return opened.seek(0, 2) > 0 and opened.seek(-1, 2) >= 0 and opened.read() != b"\n"


@dataclass(frozen=True)
class StepMetrics:
    """Report what an update measured, and how far the run is."""

    step: int
    epoch: int  # from 0
    loss: float  # in nats, summed over `tokens`
    tokens: int  # of the target
    rate: float
    gradient_norm: float
    share_done: float  # of the run, 0 to 1
    total_steps: int | None = None  # of the run; None: unknown
    steps_to_validation: int | None = None
    seconds_to_validation: float = math.inf  # whichever comes first


class RunConsole(Console):
    """Show a run on standard error. Where nobody reads that any more, the run stops as where a terminal is closed."""

    def __init__(self) -> None:
        super().__init__(stderr=True)

    def on_broken_pipe(self) -> None:
        """Stay silent from now on, and ask for the stop: a method of rich's consoles, which would exit at once."""
        self.quiet = True
        signal.raise_signal(signal.SIGHUP)


class Journal:
    """Write to the console (standard error), to `train.log`, `metrics.jsonl` and `samples/` of a run folder.

    With `tensorboard`, numbers also go to `tensorboard/`; raise UsageError where the package is missing. A journal
    that is not `active`, as on all ranks but the first, writes nothing anywhere.
    """

    def __init__(
        self, run: Path, console: Console, quiet: bool = False, *, tensorboard: bool = False, active: bool = True
    ):
        self.run, self.console, self.quiet, self.active = run, console, quiet or not active, active
        self.files: dict[str, TextIO] = {}  # opened by the first line, so that a run that cannot start leaves no files
        self.board = TensorBoardWriter(run / "tensorboard") if tensorboard and active else None
        self.display = ProgressDisplay(console, quiet=self.quiet)
        self.best_so_far = ""  # in words; shown with the figures
        self.start_clock(0.0)

    def __enter__(self) -> "Journal":
        self.display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()
        for file in self.files.values():
            with contextlib.suppress(OSError):  # `write` has raised it
                file.close()
        if self.board:
            self.board.close()

    def write(self, name: str, line: str) -> None:
        """Append a line to the file `name` of the run folder; a journal that is not active writes nothing."""
        if not self.active:
            return
        with name_errors(self.run / name):
            if name not in self.files:
                self.run.mkdir(parents=True, exist_ok=True)
                self.files[name] = open_append(self.run / name)
                if ends_mid_line(self.run / name):
                    self.files[name].write("\n")
            self.files[name].write(line + "\n")
            self.files[name].flush()

    def log(self, text: str) -> None:
        """Write a line to `train.log` and, unless quiet, to the console."""
        self.write("train.log", text)
        self.display.log(text)

    def record(self, event: str, **values: Any) -> None:
        """Write an object to `metrics.jsonl`, and its numbers for TensorBoard if that is on; it then needs a `step`.

        JSON has no values that are infinite or not numbers: in their place stands null.
        """
        values = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }
        self.write("metrics.jsonl", json.dumps({"event": event, **values}, ensure_ascii=False, allow_nan=False))
        if self.board:
            self.board.record(event, **values)

    def start_clock(self, done: float, seconds: float = 0.0, target_tokens: int = 0) -> None:
        """Start the clock of a session: `done` of the run, from 0 to 1, `seconds` and `target_tokens` are behind it."""
        self.done_at_start, self.target_tokens = done, target_tokens
        self.began = time.monotonic()
        self.zero = self.began - seconds  # when the run would have begun, had it never been interrupted
        self.reset()

    def reset(self) -> None:
        """Forget the updates since the last entry, of which `flush` records the means."""
        self.loss = self.tokens = self.steps = 0.0
        self.since = time.monotonic()
        self.latest: dict[str, float] = {}

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave the time of a block, such as a validation, out of the speed."""
        stopped = time.monotonic()
        yield
        self.since = time.monotonic() - max(stopped - self.since, 0.0)

    def step(self, metrics: StepMetrics) -> None:
        """Report an update: always on the bar, from time to time in the log and in `metrics.jsonl`."""
        now = time.monotonic()
        self.loss, self.tokens, self.steps = self.loss + metrics.loss, self.tokens + metrics.tokens, self.steps + 1
        self.target_tokens += metrics.tokens
        spent = max(now - self.since, 1e-9)
        mean, speed = self.loss / self.tokens, self.tokens / spent
        until_end = time_left(now - self.began, self.done_at_start, metrics.share_done)
        until_next = max(metrics.seconds_to_validation, 0.0)
        if metrics.steps_to_validation is not None:
            until_next = min(until_next, metrics.steps_to_validation * spent / self.steps)
        until_validation = min(until_next, until_end)  # a run ends with one
        total = f" of {metrics.total_steps:,}" if metrics.total_steps else ""
        location = f"epoch {metrics.epoch + 1}, step {metrics.step:,}{total}"
        share = f"{100 * metrics.share_done:.0f} %"
        left = f"{share}, validation in {format_duration(until_validation)}, end in {format_duration(until_end)}"
        figures = (
            f"loss {mean:.3f}, rate {metrics.rate:.2e}, gradient {metrics.gradient_norm:.2f}, "
            f"{speed:,.0f} target tokens/s, {peak_memory() / 1e6:,.0f} MB"
        )
        self.display.show(location, left, metrics.share_done, below=(figures, self.best_so_far))
        if self.display.line_due():
            line = "; ".join(part for part in (f"{location}: {figures}", left, self.best_so_far) if part)
            if self.display.is_live:
                self.write("train.log", line)
            else:
                self.log(line)
        self.latest = {
            "step": metrics.step,
            "epoch": metrics.epoch,
            "rate": metrics.rate,
            "gradient_norm": metrics.gradient_norm,
            "tokens_per_second": round(speed, 1),
            "seconds": round(now - self.zero, 1),
            "target_tokens": self.target_tokens,
        }
        if metrics.step % CURVE_EVERY == 0:
            self.flush()

    def flush(self) -> None:
        """Record the means of the updates since the last entry in `metrics.jsonl`, if they are enough.

        That is ENOUGH of them, or half of all. Fewer are kept for the next entry.
        """
        if self.tokens and self.steps >= min(ENOUGH, self.latest["step"] / 2):
            self.record("step", **self.latest, loss=self.loss / self.tokens, memory=peak_memory())
            self.reset()

    def show_work(self, what: str, figures: str = "", share: float | None = None) -> None:
        """Show, in the place of the figures of an update, what takes a while beside updates, and how much is done."""
        self.display.show(what, figures, share, below=(self.best_so_far,))

    def write_samples(self, step: int, samples: Sequence[Mapping[str, str]]) -> None:
        """Log the samples of a validation, names and texts, and write them to a file of `samples/`."""
        if not self.active:
            return
        lines = []
        for sample in samples:
            lines += [*(f"  {name:<11}{text}" for name, text in sample.items() if text or name in ALWAYS), ""]
        text = "\n".join(lines)
        replace_file(self.run / "samples" / f"step-{step:08d}.txt", text + "\n")
        if samples:
            self.log(text)
