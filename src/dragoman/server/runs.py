"""Read the run folders of `dragoman train`, also while they are written, for the page that follows them.

What runs record may be from strangers, and so may be their names and links: nothing outside of the folder is read.
"""

import contextlib
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from dragoman.config import TrainingConfig
from dragoman.errors import DragomanError, UsageError
from dragoman.inspection.plots.training import parse_row
from dragoman.training.checkpoint import PROGRESS, TrainingProgress, by_step, checkpoints, is_passing, read_progress
from dragoman.training.journal import STOPPED
from dragoman.training.limits import share_done, total_steps
from dragoman.training.resume import read_run_config

MOST_POINTS = 2_000  # of a curve in an answer
READ = 16 << 20  # bytes of metrics in an answer
TAIL = 64 << 10  # bytes at the end of the metrics or the log, where the latest step is, or how it ended
MOST_SAMPLES = 1 << 20  # bytes
SILENT = 90.0  # seconds without a line in the log, which gets one every 10 s, after which a run counts as silent
SAMPLES = re.compile(r"step-(\d{8,10})\.txt")
# The event and the field of metrics.jsonl for each curve.
CURVES = {
    "training_loss": ("step", "loss"),
    "dev_loss": ("validation", "loss"),
    "bleu": ("validation", "bleu"),
    "chrf": ("validation", "chrf"),
    "rate": ("step", "rate"),
    "gradient_norm": ("step", "gradient_norm"),
    "tokens_per_second": ("step", "tokens_per_second"),
}


class Point(NamedTuple):
    """A value that was measured at a step, so many seconds of training after the start."""

    step: int
    seconds: float | None
    value: float


@dataclass(frozen=True)
class Piece:
    """What metrics.jsonl says between two places in it."""

    curves: dict[str, list[Point]]
    start: int  # in bytes
    end: int  # the end of its last whole line, from which to read on
    more: bool  # whether whole lines may follow
    damaged: int  # lines that could not be read


class Standing(Struct):
    """How far a run is."""

    name: str
    state: str  # running, finished, stopped (so it says), or silent (killed, perhaps)
    step: int
    steps: int | None  # of the whole run, unless it ends sooner; None: unknown
    seconds: float  # of training so far
    seconds_left: float | None  # at most; None: unknown
    best: float | None  # score of the best validation; None: there was none
    best_step: int
    metric: str  # bleu, chrf or loss, which decides which is the best
    finished: str  # why it has ended, in words; '' while there is more to do
    silent: float  # seconds since it has written something
    checkpoints: list[int]  # their steps


class RunFolders:
    """A folder with run folders in it."""

    def __init__(self, folder: Path):
        self.folder = folder

    def names(self) -> list[str]:
        """Return the names of the runs, sorted. Raise OSError where the folder cannot be read."""
        return sorted(filter(self._is_run, (entry.name for entry in self.folder.iterdir())))

    def find(self, name: str) -> Path | None:
        """Return the folder of a run; None where there is none of this name."""
        entries = {entry.name: entry for entry in self.folder.iterdir()}
        return entries[name] if name in entries and self._is_run(name) else None

    def _is_run(self, name: str) -> bool:
        """Return whether an entry of the folder is a run; names that are not UTF-8 could not be shown."""
        writable = not any("\ud800" <= letter <= "\udfff" for letter in name)
        run = self.folder / name
        files = (run / "config.toml", run / "metrics.jsonl")
        return writable and name[0] != "." and any(map(self.holds, files))

    def holds(self, file: Path) -> bool:
        """Return whether there is such a file, and not elsewhere at the end of a link."""
        try:
            inside = Path(os.path.realpath(file)).is_relative_to(os.path.realpath(self.folder))
            return inside and file.is_file()
        except (OSError, ValueError):  # such as a name with a NUL
            return False

    def standing(self, run: Path) -> Standing:
        """Return how far a run is."""
        progress, settings = TrainingProgress(), self._settings(run)
        if self.holds(run / "last" / PROGRESS):
            with contextlib.suppress(DragomanError, OSError):  # damaged, or replaced just now
                progress = read_progress(run / "last")
        step, seconds = max(self._latest(run), (progress.step, progress.seconds))
        written = [file.stat().st_mtime for file in (run / "train.log", run / "metrics.jsonl") if self.holds(file)]
        silent = max(0.0, time.time() - max(written, default=0.0))
        ended = bool(progress.finished) and step <= progress.step
        stopped = self._last_logged(run).startswith(STOPPED)
        state = "finished" if ended else "stopped" if stopped else "running" if silent < SILENT else "silent"
        steps, share = forecast(progress, settings, step, seconds)
        best = -progress.best_score if settings.stop_on == "loss" else progress.best_score
        kept = self.checkpoints(run)
        return Standing(
            run.name,
            state,
            step,
            step if ended else steps,
            seconds,
            seconds * (1 - share) / share if share and state == "running" else None,
            best if progress.is_validated else None,
            progress.best_step,
            settings.stop_on,
            progress.finished if ended else "",
            silent,
            sorted(kept),
        )

    def checkpoints(self, run: Path) -> dict[int, Path]:
        """Return the checkpoints of a run by their steps; of a step that was saved twice, the newer one."""
        return by_step([path for path in checkpoints(run) if self.holds(path / PROGRESS) and not is_passing(path)])

    def _settings(self, run: Path) -> TrainingConfig:
        """Return the settings of a run; the defaults where they cannot be read."""
        try:
            return read_run_config(run).training if self.holds(run / "config.toml") else TrainingConfig()
        except (DragomanError, UsageError):
            return TrainingConfig()

    def _latest(self, run: Path) -> tuple[int, float]:
        """Return the step and the seconds of the last row that its metrics have."""
        for line in reversed(self._last_lines(run / "metrics.jsonl")):
            if (row := parse_row(line)) and "seconds" in row[2]:
                return row[1], row[2]["seconds"]
        return 0, 0.0

    def _last_logged(self, run: Path) -> str:
        """Return the last line of a run's log, '' where it has none."""
        lines = self._last_lines(run / "train.log")
        return lines[-1].decode(errors="replace") if lines else ""

    def _last_lines(self, file: Path) -> list[bytes]:
        """Return the whole lines among the last TAIL bytes of a file, [] where there is none."""
        return read_lines(file, max(0, file.stat().st_size - TAIL), TAIL)[0] if self.holds(file) else []

    def read(self, run: Path, start: int) -> Piece:
        """Return what the metrics of a run say from a byte on; from the first one if they are shorter than that."""
        file = run / "metrics.jsonl"
        if not self.holds(file):
            return Piece({name: [] for name in CURVES}, 0, 0, more=False, damaged=0)
        if start > file.stat().st_size:
            start = 0
        lines, end, more = read_lines(file, start, READ)
        by_name: dict[str, dict[int, Point]] = {name: {} for name in CURVES}
        damaged = 0
        for line in lines:
            if not (row := parse_row(line)):
                damaged += 1
                continue
            kind, step, numbers = row
            for name, (event, field) in CURVES.items():
                if kind == event and field in numbers:  # of a step that was repeated, the last row counts
                    by_name[name][step] = Point(step, numbers.get("seconds"), numbers[field])
        curves = {name: thin([points[step] for step in sorted(points)]) for name, points in by_name.items()}
        return Piece(curves, start, end, more, damaged)

    def sampled(self, run: Path) -> list[int]:
        """Return the steps of which there are sample translations, in order."""
        folder = run / "samples"
        try:
            matches = [match for file in folder.iterdir() if (match := SAMPLES.fullmatch(file.name))]
        except OSError:
            return []
        return sorted(int(match[1]) for match in matches if self.holds(folder / match[0]))

    def samples(self, run: Path, step: int) -> list[dict[str, str]]:
        """Return the sample translations of a step, [] for none: the texts of each by 'source', 'reference', 'now'.

        Where there was a validation before, also by 'before'; where its corpus has tags, by 'tag' and 'target tag'.
        """
        file = run / "samples" / f"step-{step:08d}.txt"
        if not self.holds(file):
            return []
        with file.open("rb") as opened:
            text = opened.read(MOST_SAMPLES).decode(errors="replace")
        samples: list[dict[str, str]] = []
        for line in text.split("\n"):
            name, value = line[:13].strip(), line[13:]
            if name == "source":
                samples.append({})
            if samples and name in ("source", "reference", "now", "before", "tag", "target tag"):
                samples[-1][name] = value
        return samples


def read_lines(file: Path, start: int, most: int) -> tuple[list[bytes], int, bool]:
    """Return the whole lines among so many bytes of a file, the place after the last, and whether more may follow.

    A line that is longer than that is left out.
    """
    with file.open("rb") as opened:
        opened.seek(start)
        data = opened.read(most)
        more = bool(opened.read(1))
    end = data.rfind(b"\n") + 1
    lines = data[: end - 1].split(b"\n") if end else []
    return lines, start + (end if end or not more else len(data)), more


def thin(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """Return at most so many of the points, in their order: the first, the last, and the extremes of each stretch."""
    if len(points) <= most:
        return list(points)
    inner, stretches = points[1:-1], most // 2 - 1
    kept = [points[0]]
    for number in range(stretches):
        part = inner[number * len(inner) // stretches : (number + 1) * len(inner) // stretches]
        low, high = (find(part, key=lambda point: point.value) for find in (min, max))
        kept += sorted({low, high}, key=lambda point: point.step)
    return [*kept, points[-1]]


def forecast(
    progress: TrainingProgress, settings: TrainingConfig, step: int, seconds: float
) -> tuple[int | None, float]:
    """Return how many steps a run has at most, None if unknown, and which share of them is done, 0 if unknown.

    progress: at the last checkpoint, from which follows how many batches an epoch has, once one is over; step, seconds:
    of now.
    """
    if progress.epoch:
        batches = max(1, round((progress.step - progress.batch) / progress.epoch))
        epoch, batch = divmod(step, batches)
        now = replace(progress, step=step, seconds=seconds, epoch=epoch, batch=batch)
        return total_steps(settings, batches), share_done(now, settings, batches)
    shares = [step / settings.max_steps] if settings.max_steps else []
    shares += [seconds / (60 * settings.minutes)] if settings.minutes else []
    return None if settings.minutes else settings.max_steps, min(1.0, max(shares, default=0.0))
