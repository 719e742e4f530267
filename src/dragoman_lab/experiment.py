"""Describe an experiment: what is claimed, what a run measures, tables, figures, and verdicts that follow."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from dragoman.text.speech import Say

ALTERNATIVES = re.compile(r"\[([^][|]*)\|([^][|]*)\]")
# A clause ends with a full stop, colon or semicolon, but not within brackets.
CLAUSE = re.compile(r"(?:[^][().:;]|\([^()]*\)|\[[^][]*\]|(?<=\s)[.:;]|[.:;](?!\s|$))+[.:;]?")
MEASURED = re.compile(r"\s?\([^()]*\d(?:%|\.\d)[^()]*\)")  # numbers of a run, in brackets
Cell = str | int | float | bool  # neither a tensor nor a number of NumPy


@dataclass(frozen=True)
class Effort:
    """Say how much an experiment does: which seeds it repeats, which part of the full steps, draws or sentences."""

    seeds: tuple[int, ...]
    part: float

    def scale(self, full: int) -> int:
        """Return this part of a full number of steps, draws or sentences, rounded, at least 1."""
        return max(1, round(full * self.part))

    def __str__(self) -> str:
        """Name the seeds, as settings do: "seeds 1, 2, 3"."""
        return f"seed{'s' * (len(self.seeds) > 1)} {', '.join(map(str, self.seeds))}"


QUICK, FULL = Effort((1,), 0.25), Effort((1, 2, 3), 1.0)


@dataclass(frozen=True)
class Sentences:
    """Name the files of sentence pairs that comparisons train, validate and test on, and the folder for their runs."""

    train: tuple[str, ...]
    dev: tuple[str, ...]
    test: tuple[str, ...]
    runs: Path

    def flags(self) -> str:
        """Return them as flags of the command line, quoted for a shell: "--train ... --dev ... --test ...
        --out ...".
        """
        return shlex.join(
            ["--train", *self.train, "--dev", *self.dev, "--test", *self.test, "--out", str(self.runs.parent)]
        )


@dataclass(frozen=True)
class Table:
    """Keep numbers, not text, wherever something was measured: the page rounds them, the CSV file does not."""

    header: str  # the names of the columns, with " | " between them
    rows: Sequence[Sequence[Cell]]

    def __post_init__(self) -> None:
        """Raise ValueError if a row has more or fewer cells than there are columns."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table '{self.header}': {len(row)} cells under {len(self.columns)} columns: {row}")

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return self.header.split(" | ")

    def said(self, say: Say) -> "Table":
        """Return the table with its texts as `say` says them."""
        header = " | ".join(map(say, self.columns))
        return Table(header, [[say(cell) if isinstance(cell, str) else cell for cell in row] for row in self.rows])

    def column(self, name: str) -> list[Any]:
        """Return the cells of a column, from top to bottom; ValueError if there is none of that name."""
        index = self.columns.index(name)
        return [row[index] for row in self.rows]

    def curves(self, by: str, x: str, *y: str) -> dict[str, tuple[list[Any], ...]]:
        """Split the rows by the text of the column `by`; return for each of its values the cells of the columns x and
        y, as drawing.py draws them.
        """
        names = list(map(str, self.column(by)))
        return {
            name: tuple(
                [cell for label, cell in zip(names, self.column(c), strict=True) if label == name] for c in (x, *y)
            )
            for name in dict.fromkeys(names)
        }


@dataclass(frozen=True)
class Figure:
    """Describe a figure. `draw` is given an empty matplotlib figure with constrained layout; drawing.py has the usual
    kinds.
    """

    caption: str
    draw: Callable[[Any], None]
    size: tuple[float, float] = (8.0, 4.0)  # inches


# Sentences, and whether they hold: "Post-norm [learns|does not learn] less without warm-up: 3.1 BLEU, 9.8 with it."
Claims = Mapping[str, bool]


@dataclass(frozen=True)
class Verdict:
    """Tell whether a claim holds, what is claimed, and a sentence that says with the numbers what was found."""

    holds: bool
    claim: str
    sentence: str

    @classmethod
    def from_claim(cls, sentence: str, holds: bool) -> "Verdict":
        """Return the verdict on a sentence with alternatives. The claim is the part that has these, without numbers."""
        clauses = [clause for clause in CLAUSE.findall(sentence) if ALTERNATIVES.search(clause)]
        claim = MEASURED.sub("", ALTERNATIVES.sub(r"\1", "".join(clauses))).strip().rstrip(".:;") + "."
        if re.match("[a-z]{2}", claim) and not re.search("[가-힣]", claim):
            claim = claim[0].upper() + claim[1:]
        return cls(bool(holds), tidy(claim), tidy(ALTERNATIVES.sub(r"\1" if holds else r"\2", sentence)))


def tidy(text: str) -> str:
    """Return the text with a space before percent signs, and no digits behind a zero."""
    return re.sub(r"\b0(?:\.0+)?e\+00\b", "0", re.sub(r"(?<=\d)%", " %", text))


@dataclass(frozen=True)
class Findings:
    """Describe what a run of an experiment found."""

    setting: str  # what was set up, in sentences: sizes, seeds, steps
    claims: Claims
    tables: Mapping[str, Table] = field(default_factory=dict)  # by their titles, from which CSV files get their names
    figures: Mapping[str, Figure] = field(default_factory=dict)  # by the names of their files, without a suffix

    def __post_init__(self) -> None:
        """Raise ValueError if the name of a figure is not made of lower-case letters, digits and hyphens."""
        for name in self.figures:
            if not re.fullmatch("[a-z0-9-]+", name):
                raise ValueError(f"figure '{name}': a name has lower-case letters, digits and hyphens only")

    def said(self, say: Say) -> "Findings":
        """Return the findings with their texts as `say` says them, but for the words that figures draw."""
        return Findings(
            say(self.setting),
            {say(sentence): holds for sentence, holds in self.claims.items()},
            {say(title): table.said(say) for title, table in self.tables.items()},
            {name: replace(figure, caption=say(figure.caption)) for name, figure in self.figures.items()},
        )

    @property
    def verdicts(self) -> list[Verdict]:
        """Return for each claim whether it holds, and what was found instead if it does not."""
        return [Verdict.from_claim(sentence, holds) for sentence, holds in self.claims.items()]


@dataclass(frozen=True)
class Experiment:
    """Join a thesis and the function that tests it."""

    title: str
    source: str  # where the thesis stands: "section 3.2.1", or "common teaching"
    thesis: str  # what is said there, or often heard, in sentences
    run: Callable[[Effort], Findings]

    def said(self, say: Say) -> "Experiment":
        """Return the experiment with its texts as `say` says them; what it finds is not among these."""
        return Experiment(say(self.title), say(self.source), say(self.thesis), self.run)


def experiment(title: str, source: str, thesis: str) -> Callable[[Callable[[Effort], Findings]], Experiment]:
    """Return a decorator that turns a function from Effort to Findings into an Experiment."""
    return partial(Experiment, title, source, thesis)
