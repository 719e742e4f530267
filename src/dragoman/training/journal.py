"""What a run tells: a progress bar on a terminal, plain lines in a log, one JSON object per event in metrics.jsonl."""

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

PLAIN_EVERY = 10.0  # seconds between two lines where there is no terminal
CURVE_EVERY = 50  # steps between two entries in metrics.jsonl


class Journal:
    """Writes to the console (standard error), to `train.log`, `metrics.jsonl` and `samples/` of a run folder."""

    def __init__(self, run: Path, console: Console, quiet: bool = False):
        self.run, self.console, self.quiet = run, console, quiet
        self.files: dict[str, TextIO] = {}  # opened by the first line, so that a run that cannot start leaves no trace
        self.bar = Progress(
            TextColumn("{task.fields[place]}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[state]}"),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self.task = self.bar.add_task("", total=1.0, place="", state="")
        self.spoken = self.began = time.monotonic()
        self.done_at_start = 0.0
        self.reset()

    def __enter__(self) -> "Journal":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
        for file in self.files.values():
            file.close()

    def write(self, name: str, line: str) -> None:
        if name not in self.files:
            self.run.mkdir(parents=True, exist_ok=True)
            self.files[name] = (self.run / name).open("a", encoding="utf-8")
        self.files[name].write(line + "\n")
        self.files[name].flush()

    def reset(self) -> None:
        self.loss = self.tokens = self.steps = 0.0
        self.since = time.monotonic()
        self.latest: dict[str, float] = {}

    def say(self, text: str) -> None:
        self.write("train.log", text)
        if not self.quiet:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def record(self, event: str, **values: Any) -> None:
        self.write("metrics.jsonl", json.dumps({"event": event, **values}, ensure_ascii=False))

    def step(self, step: int, epoch: int, *, loss: float, tokens: int, rate: float, norm: float, done: float) -> None:
        """One step: `loss` in nats summed over `tokens`; `done` is the share of the run that is behind us."""
        self.loss, self.tokens, self.steps = self.loss + loss, self.tokens + tokens, self.steps + 1
        spent = time.monotonic() - self.since
        mean, speed = self.loss / self.tokens, self.tokens / max(spent, 1e-9)
        left = time_left(time.monotonic() - self.began, self.done_at_start, done)
        place = f"epoch {epoch + 1}, step {step:,}"
        state = f"loss {mean:.3f}, rate {rate:.2e}, gradient {norm:.2f}, {speed:,.0f} tokens/s, {duration(left)} left"
        self.bar.update(self.task, completed=done, place=place, state=state)
        if not self.bar.live.is_started and time.monotonic() - self.spoken > PLAIN_EVERY:
            self.spoken = time.monotonic()
            self.say(f"{place}: {100 * done:.0f} %, {state}")
        self.latest = {"rate": rate, "gradient_norm": norm, "tokens_per_second": round(speed, 1)}
        if self.steps >= CURVE_EVERY:
            self.flush(step, epoch)

    def flush(self, step: int, epoch: int) -> None:
        """Record what was gathered since the last entry, and start anew."""
        if self.tokens:
            self.record("step", step=step, epoch=epoch, loss=self.loss / self.tokens, **self.latest)
        self.reset()

    def start_clock(self, done: float) -> None:
        """Remember where this sitting starts, so that the time left is judged by its own speed."""
        self.began, self.done_at_start = time.monotonic(), done
        self.reset()

    def samples(self, step: int, rows: Sequence[tuple[str, str, str, str]]) -> None:
        """The same dev sentences at each validation: source, reference, translation now and before."""
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


def time_left(spent: float, start: float, done: float) -> float:
    """Seconds to the end, where `spent` seconds have brought the run from the share `start` to the share `done`."""
    return spent * (1 - done) / (done - start) if done > start else math.inf


def duration(seconds: float) -> str:
    """'45 s', '3 min 20 s', '2 h 05 min'; '?' where it is not known."""
    if not math.isfinite(seconds):
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
