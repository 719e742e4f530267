"""Report what a check found: for each rule how often and where, for each corpus how many pairs are left."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dragoman.check.rules import RULES
from dragoman.data.spec import CorpusSpec

Numbers = set[int]  # the field `set` of CheckedCorpus hides the type
MAX_LOCATIONS = 5  # that a report names for each rule
MAX_EXAMPLES = 20
LONGEST_EXAMPLE = 400  # characters of a side


class Example(NamedTuple):
    """A row that a rule applies to: its location, its texts, cut where they are long, and what was measured."""

    location: str
    source: str
    target: str
    score: float | None = None


@dataclass
class Occurrences:
    """Count the pairs, lines or files that a rule applies to; `locations` has the first few, `example` a message."""

    count: int = 0
    locations: list[str] = field(default_factory=list)
    example: str = ""
    examples: list[Example] = field(default_factory=list)


@dataclass
class CheckedCorpus:
    """Count the rows of one corpus, those with text on both sides, the pairs that no rule drops, and those dropped.

    A row that several rules drop counts for each of them in `dropped`.
    """

    set: str
    spec: CorpusSpec
    read: int = 0
    unread: Numbers = field(default_factory=Numbers)  # of the rows that are left out: not UTF-8, fuzzy, ...
    pairs: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)  # by rule

    @property
    def rows(self) -> int:
        """The number of lines, rows, units or messages in the files, also of those that cannot be read."""
        return self.read + len(self.unread)


@dataclass
class CheckReport:
    """The occurrences of each rule, by its name, and the counts of each corpus.

    `dropped_later` counts, by rule, the pairs dropped when those left by the first cleaning were checked again.
    """

    corpora: list[CheckedCorpus] = field(default_factory=list)
    findings: dict[str, Occurrences] = field(default_factory=dict)
    dropped_later: Counter[str] = field(default_factory=Counter)
    max_locations: int | None = MAX_LOCATIONS
    slips: list[str] = field(default_factory=list)  # where one side has slipped, and by how many lines
    extremes: dict[str, list[Example]] = field(default_factory=dict)  # by name, the rows with most or least of it
    distributions: dict[str, Counter[int]] = field(default_factory=dict)  # by name, pairs by what was measured

    def add(self, rule: str, locations: list[str], count: int = 0, example: str = "") -> None:
        """Add occurrences of a rule: `count` of them, by default one for each location.

        The first few locations are kept, each once. example: a message; that of the first call for a rule is kept.
        """
        finding = self.findings.setdefault(rule, Occurrences(example=example))
        finding.example = finding.example or example
        finding.count += count or len(locations)
        if self.max_locations is None or len(finding.locations) < self.max_locations:
            some = dict.fromkeys([*finding.locations, *locations[: self.max_locations]])
            finding.locations = list(some)[: self.max_locations]

    def measure(self, **values: np.ndarray) -> None:
        """Count pairs by what was measured of them, rounded down to whole numbers."""
        for name, measured in values.items():
            numbers, times = np.unique(np.floor(measured).astype(int), return_counts=True)
            self.distributions.setdefault(name, Counter()).update(
                dict(zip(numbers.tolist(), times.tolist(), strict=True))
            )

    def rank(self, examples: Iterable[Example]) -> None:
        """Keep those that are among the MAX_EXAMPLES least plausible rows so far, or the most plausible ones."""
        some = list(examples)
        for name, sign in (("least plausible pairs", 1), ("most plausible pairs", -1)):
            ranked = sorted([*self.extremes.get(name, []), *some], key=lambda each: sign * (each.score or 0.0))
            self.extremes[name] = ranked[:MAX_EXAMPLES]

    def count(self, level: str) -> int:
        """Return the number of occurrences of all rules of a level: error, warning or note."""
        return sum(finding.count for rule, finding in self.findings.items() if RULES[rule].level == level)

    def kept(self, name: str = "train") -> int:
        """Return the number of pairs of a set that no rule drops."""
        return sum(corpus.kept for corpus in self.corpora if corpus.set == name)
