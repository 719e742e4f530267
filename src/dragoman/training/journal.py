"""What a run tells: figures in place on a terminal, plain lines in a log, JSON objects in metrics.jsonl."""

import json
import math
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import torch
from rich.console import Console

from dragoman.console import ProgressDisplay, duration, time_left
from dragoman.decoding.forced import perplexity
from dragoman.training.tensorboard import Board

CURVE_EVERY = 50  # steps between two entries in metrics.jsonl
MOST_SHOWN = 20.0  # nats: a loss above it is shown as its perplexity here


def torn(file: Path) -> bool:
    """Whether its last line has no end: what a full disk or a kill leaves."""
    with file.open("rb") as opened:
        return opened.seek(0, 2) > 0 and opened.seek(-1, 2) >= 0 and opened.read() != b"\n"


class Journal:
    """Writes to the console (standard error), to `train.log`, `metrics.jsonl` and `samples/` of a run folder.

    With `tensorboard`, numbers also go to `tensorboard/`; raises UsageError where the package is missing. A journal
    that is not `active`, as on all ranks but the main one, counts and computes but writes nothing anywhere.
    """

    def __init__(
        self, run: Path, console: Console, quiet: bool = False, *, tensorboard: bool = False, active: bool = True
    ):
        self.run, self.console, self.quiet, self.active = run, console, quiet or not active, active
        self.files: dict[str, TextIO] = {}  # opened by the first line, so that a run that cannot start leaves no trace
        self.board = Board(run / "tensorboard") if tensorboard and active else None
        self.display = ProgressDisplay(console, quiet=self.quiet)
        self.best_so_far = ""
        self.start_clock(0.0)

    def __enter__(self) -> "Journal":
        self.display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()
        for file in self.files.values():
            file.close()
        if self.board:
            self.board.close()

    def write(self, name: str, line: str) -> None:
        if not self.active:
            return
        if name not in self.files:
            self.run.mkdir(parents=True, exist_ok=True)
            self.files[name] = (self.run / name).open("a", encoding="utf-8")
            if torn(self.run / name):
                self.files[name].write("\n")
        self.files[name].write(line + "\n")
        self.files[name].flush()

    def say(self, text: str) -> None:
        self.write("train.log", text)
        self.display.log(text)

    def record(self, event: str, **values: Any) -> None:
        """One object in `metrics.jsonl`; `values` has the step, which is also where TensorBoard draws the numbers."""
        self.write("metrics.jsonl", json.dumps({"event": event, **values}, ensure_ascii=False))
        if self.board:
            self.board.record(event, **values)

    def best(self, text: str) -> None:
        """What is best so far, and how much patience is left, in words; shown with the figures from now on."""
        self.best_so_far = text

    def start_clock(self, done: float, seconds: float = 0.0, target_tokens: int = 0) -> None:
        """Remember where this sitting starts: its share of the run, and what the sittings before it took."""
        self.done_at_start, self.target_tokens = done, target_tokens
        self.began = time.monotonic()
        self.zero = self.began - seconds  # when the run would have begun without a pause
        self.reset()

    def reset(self) -> None:
        self.loss = self.tokens = self.steps = 0.0
        self.since = time.monotonic()
        self.latest: dict[str, float] = {}

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is done in here is no step: it does not count in the speed that is told."""
        stopped = time.monotonic()
        yield
        self.since = time.monotonic() - max(stopped - self.since, 0.0)

    def step(
        self,
        step: int,
        epoch: int,
        *,
        loss: float,
        tokens: int,
        rate: float,
        norm: float,
        done: float,
        total: int | None = None,
        next_validation: int | None = None,
    ) -> None:
        """One step: `loss` in nats summed over `tokens` of the target; `done` is the share of the run behind us.

        `total` is the number of steps in the run, `next_validation` how many steps are left until one; None: unknown.
        """
        now = time.monotonic()
        self.loss, self.tokens, self.steps = self.loss + loss, self.tokens + tokens, self.steps + 1
        self.target_tokens += tokens
        spent = max(now - self.since, 1e-9)
        mean, speed = self.loss / self.tokens, self.tokens / spent
        until_end = time_left(now - self.began, self.done_at_start, done)
        until_next = math.inf if next_validation is None else next_validation * spent / self.steps
        until_validation = min(until_next, until_end)  # a run ends with one
        place = f"epoch {epoch + 1}, step {step:,}" + (f" of {total:,}" if total else "")
        left = f"{100 * done:.0f} %, validation in {duration(until_validation)}, end in {duration(until_end)}"
        figures = (
            f"loss {mean:.3f}, perplexity {perplexity(min(mean, MOST_SHOWN)):,.1f}, rate {rate:.2e}, "
            f"gradient {norm:.2f}, {speed:,.0f} target tokens/s, {memory() / 1e6:,.0f} MB"
        )
        self.display.show(place, left, done, below=(figures, self.best_so_far))
        if self.display.line_due():
            line = "; ".join(part for part in (f"{place}: {figures}", left, self.best_so_far) if part)
            if self.display.is_live:
                self.write("train.log", line)
            else:
                self.say(line)
        self.latest = {
            "rate": rate,
            "gradient_norm": norm,
            "tokens_per_second": round(speed, 1),
            "seconds": round(now - self.zero, 1),
            "target_tokens": self.target_tokens,
        }
        if self.steps >= CURVE_EVERY:
            self.flush(step, epoch)

    def flush(self, step: int, epoch: int) -> None:
        """Record what was gathered since the last entry, and start anew."""
        if self.tokens:
            values = {"loss": self.loss / self.tokens, **self.latest, "memory": memory()}
            self.record("step", step=step, epoch=epoch, **values)
        self.reset()

    def samples(self, step: int, rows: Sequence[tuple[str, str, str, str]]) -> None:
        """The same dev sentences at each validation: source, reference, translation now and before."""
        if not self.active:
            return
        lines = []
        for source, reference, now, before in rows:
            lines += [f"  source     {source}", f"  reference  {reference}", f"  now        {now}"]
            lines += [f"  before     {before}", ""] if before else [""]
        text = "\n".join(lines)
        folder = self.run / "samples"
        folder.mkdir(exist_ok=True)
        (folder / f"step-{step:08d}.txt").write_text(text + "\n", encoding="utf-8")
        if rows:
            self.say(text)


def memory() -> int:
    """The most bytes that this process has held at once: on the GPU if it uses one, otherwise in main memory."""
    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # macOS counts bytes, Linux KiB
