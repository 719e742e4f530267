"""Describe an experiment: what is claimed, what a run measures, tables, figures, and verdicts that follow."""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ALTERNATIVES = re.compile(r"\[((?:[^][|]|\[[^][|]*\])*)\|((?:[^][|]|\[[^][|]*\])*)\]")  # which may hold [0], too
Cell = str | int | float | bool


@dataclass(frozen=True)
class Effort:
    """How much an experiment does: which seeds it repeats, and which part of the full steps, draws or sentences."""

    seeds: tuple[int, ...]
    part: float

    def of(self, full: int) -> int:
        return max(1, round(full * self.part))

    def __str__(self) -> str:
        """Name the seeds, as settings do: "seeds 1, 2, 3"."""
        return f"seed{'s' * (len(self.seeds) > 1)} {', '.join(map(str, self.seeds))}"


QUICK, FULL = Effort((1,), 0.25), Effort((1, 2, 3), 1.0)


@dataclass(frozen=True)
class Sentences:
    """Files of sentence pairs that comparisons train on, and the folder for their runs."""

    train: tuple[str, ...]
    dev: tuple[str, ...]
    test: tuple[str, ...]
    runs: Path

    def flags(self) -> str:
        """Return them as on the command line."""
        return shlex.join(
            ["--train", *self.train, "--dev", *self.dev, "--test", *self.test, "--out", str(self.runs.parent)]
        )


@dataclass(frozen=True)
class Table:
    """Hold numbers, not text, wherever something was measured: the page rounds them, the CSV file does not."""

    title: str  # the name of the CSV file is made from it
    header: str  # the names of the columns, with " | " between them
    rows: Sequence[Sequence[Cell]]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table '{self.title}': {len(row)} cells under {len(self.columns)} columns: {row}")

    @property
    def columns(self) -> list[str]:
        return self.header.split(" | ")

    def column(self, name: str) -> list[Any]:
        index = self.columns.index(name)
        return [row[index] for row in self.rows]

    def curves(self, by: str, x: str, *y: str) -> dict[str, tuple[list[Any], ...]]:
        """Return the columns x and y once for each value of the column `by`, as drawing.py draws them."""
        names = list(map(str, self.column(by)))
        return {
            name: tuple([cell for own, cell in zip(names, self.column(c), strict=True) if own == name] for c in (x, *y))
            for name in dict.fromkeys(names)
        }


@dataclass(frozen=True)
class Figure:
    """A picture. `draw` is given an empty matplotlib figure with constrained layout; drawing.py has the usual kinds."""

    name: str  # of its file, without a suffix: letters, digits and hyphens
    caption: str
    draw: Callable[[Any], None]
    size: tuple[float, float] = (8.0, 4.0)  # inches


class Results(SimpleNamespace):
    """What a run measured, by name: what its claims are decided by, and the numbers that their sentences tell."""


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds, and a sentence that says so with the numbers."""

    holds: bool
    sentence: str


@dataclass(frozen=True)
class Claim:
    """A sentence that a run confirms or contradicts, and the condition that decides which.

    "Post-norm [needs|does not need] the warm-up: {lost:.1f} BLEU." has what is said when the claim holds before the bar
    and what is said when it does not behind it; numbers come from the results, as str.format writes them.
    """

    sentence: str
    holds: Callable[[Any], bool]

    def text(self, holds: bool) -> str:
        return ALTERNATIVES.sub(lambda match: match[1 if holds else 2], self.sentence)

    def verdict(self, results: Results) -> Verdict:
        """Decide the claim. Raise ValueError where it needs a result that the run did not give."""
        try:
            holds = bool(self.holds(results))
            return Verdict(holds, self.text(holds).format_map(vars(results)))
        except (AttributeError, LookupError) as missing:
            given = ", ".join(vars(results))
            raise ValueError(f"{missing}: the claim '{self.sentence}' needs it, the results are {given}") from missing


@dataclass(frozen=True)
class Findings:
    """What a run of an experiment found."""

    setting: str  # what was set up, in sentences: sizes, seeds, steps
    results: Results
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()


@dataclass(frozen=True)
class Experiment:
    title: str
    source: str  # where the thesis stands: "section 3.2.1", or "common teaching"
    thesis: str  # what is said there, or often heard, in sentences
    claims: tuple[Claim, ...]  # what of it can be measured
    run: Callable[[Effort], Findings]

    def verdicts(self, findings: Findings) -> list[Verdict]:
        """Decide each claim by what a run found."""
        return [claim.verdict(findings.results) for claim in self.claims]
