"""What an experiment is: a claim, what was set up, numbers and pictures, and verdicts that follow from the numbers."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Cell = str | int | float | bool


@dataclass(frozen=True)
class Effort:
    """How much an experiment does: which seeds it repeats, and which part of the full steps, draws or sentences."""

    seeds: tuple[int, ...]
    part: float

    def of(self, full: int) -> int:
        return max(1, round(full * self.part))


QUICK, FULL = Effort((1,), 0.25), Effort((1, 2, 3), 1.0)


@dataclass(frozen=True)
class Sentences:
    """Files of sentence pairs that comparisons train on, and the folder for their runs."""

    train: tuple[str, ...]
    dev: tuple[str, ...]
    test: tuple[str, ...]
    runs: Path

    def flags(self) -> str:
        """As on the command line."""
        return shlex.join(
            ["--train", *self.train, "--dev", *self.dev, "--test", *self.test, "--out", str(self.runs.parent)]
        )


@dataclass(frozen=True)
class Table:
    """Numbers, not text, wherever something was measured: the page rounds them, the CSV file does not."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Figure:
    """A picture. `draw` is given an empty matplotlib figure with constrained layout."""

    name: str  # of its file, without a suffix: letters, digits and hyphens
    caption: str
    draw: Callable[[Any], None]
    size: tuple[float, float] = (8.0, 4.0)  # inches


@dataclass(frozen=True)
class Verdict:
    """What was seen of one claim. `seen` is computed from the numbers that the sentence tells."""

    seen: bool
    sentence: str


@dataclass(frozen=True)
class Findings:
    setting: str  # what was set up: sizes, seeds, steps
    verdicts: tuple[Verdict, ...]
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Experiment:
    title: str
    source: str  # where the claim stands: a note, a section of the paper
    claim: str  # as the source makes it
    run: Callable[[Effort], Findings]
