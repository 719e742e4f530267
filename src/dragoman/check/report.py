"""Report what a check found: for each rule how often and where, for each corpus how many pairs are left."""

from collections import Counter
from dataclasses import dataclass, field

from dragoman.check.rules import RULES
from dragoman.data.spec import CorpusSpec

Numbers = set[int]  # the field `set` of CheckedCorpus hides the type
MAX_LOCATIONS = 5  # that a report names for each rule


@dataclass
class Occurrences:
    """Count the pairs, lines or files that a rule applies to; `locations` has the first few, `example` a message."""

    count: int = 0
    locations: list[str] = field(default_factory=list)
    example: str = ""


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

    def add(self, rule: str, locations: list[str], count: int = 0, example: str = "") -> None:
        """Add occurrences of a rule: `count` of them, by default one for each location.

        The first few locations are kept, each once. example: a message; that of the first call for a rule is kept.
        """
        finding = self.findings.setdefault(rule, Occurrences(example=example))
        finding.count += count or len(locations)
        finding.locations = list(dict.fromkeys([*finding.locations, *locations[:MAX_LOCATIONS]]))[:MAX_LOCATIONS]

    def count(self, level: str) -> int:
        """Return the number of occurrences of all rules of a level: error, warning or note."""
        return sum(finding.count for rule, finding in self.findings.items() if RULES[rule].level == level)

    def kept(self, name: str = "train") -> int:
        """Return the number of pairs of a set that no rule drops."""
        return sum(corpus.kept for corpus in self.corpora if corpus.set == name)
