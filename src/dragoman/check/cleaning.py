"""Write the pairs that a check keeps to a file, and those that it drops to another one, each with its reasons."""

from array import array
from dataclasses import dataclass, field
from typing import Protocol, TextIO

import numpy as np

from dragoman.check.characters import Alphabet
from dragoman.check.columns import RowBlock
from dragoman.check.detectors import Hits
from dragoman.check.profile import Profile
from dragoman.check.rules import RULES
from dragoman.data.lines import Row, display_path
from dragoman.data.spec import CorpusSpec

COLUMNS = ("source", "target", "corpus", "line", "reasons", "score", "same as")  # of the file of rejected pairs
NOWHERE = ("", 0)
Origin = tuple[str, int]  # the name of a corpus, and the number of a row


class Above(Protocol):
    """Say where the rows of a set stood, by their number in it."""

    def __getitem__(self, row: int) -> Origin: ...


@dataclass
class Origins:
    """Know for each line of a draft which row of which corpus it was."""

    names: list[str] = field(default_factory=lambda: [""])
    name_of: array = field(default_factory=lambda: array("i"))
    numbers: array = field(default_factory=lambda: array("q"))

    def append(self, origin: Origin) -> None:
        """Add the origin of the next line."""
        if self.names[-1] != origin[0]:
            self.names.append(origin[0])
        self.name_of.append(len(self.names) - 1)
        self.numbers.append(origin[1])

    def origin_of(self, number: int) -> Origin:
        """Return the origin of a line, counted from 1."""
        return self.names[self.name_of[number - 1]], self.numbers[number - 1]


@dataclass
class Cleaning:
    """Write the rows of a pass over corpora, or over the draft that the last pass has written."""

    clean: TextIO
    rejected: TextIO | None = None
    realign: bool = False  # undo slips
    draft: Origins | None = None  # of the rows that are read; None: they are those of the corpora
    written: Origins = field(default_factory=Origins)
    rows: list[np.ndarray] = field(default_factory=list)  # that are written, among all; -1: a blank line
    read: int = 0
    lost: Profile = field(default_factory=lambda: Profile(Alphabet()))  # of rows that are not written, or blank

    def origin(self, spec: CorpusSpec, number: int) -> Origin:
        """Return where a row of a corpus, or of the draft, stood at first."""
        return self.draft.origin_of(number) if self.draft else (display_path(spec.files[0]), number)

    def write_break(self) -> None:
        """Write a blank line between two corpora: as the end of a file, it ends a document."""
        self.clean.write("\n")
        self.written.append(NOWHERE)
        self.rows.append(np.array([-1]))

    def write(self, spec: CorpusSpec, block: RowBlock, keep: np.ndarray, hits: list[Hits], above: Above) -> None:
        """Write the rows with True in `keep` (n,) as clean pairs, those without text as the blank lines they are.

        The others are rejected for the hits. above: the origins of the rows of the set that rows may repeat.
        """
        sources, targets = (column.texts for column in block.columns)
        self.rows.append(self.read + np.flatnonzero(keep))
        self.read += len(block)
        if lost := [Row(0, sources[row], targets[row]) for row in np.flatnonzero(~(keep & block.has_text))]:
            self.lost.learn(RowBlock(lost))
        for row in range(len(block)):
            origin = self.origin(spec, block.numbers[row])
            if keep[row]:
                self.clean.write(f"{sources[row]}\t{targets[row]}\n" if block.has_text[row] else "\n")
                self.written.append(origin)
            elif self.rejected:
                reasons = [hit for hit in hits if hit.rows[row] and RULES[hit.rule].level != "note"]
                scores = [f"{hit.rule}={hit.scores[row]:.2f}" for hit in reasons if hit.scores is not None]
                repeats = [above[hit.repeats[row]] for hit in reasons if hit.repeats is not None]
                self.reject((sources[row], targets[row]), origin, [hit.rule for hit in reasons], scores, repeats)

    def reject(
        self,
        pair: tuple[str, str],
        origin: Origin,
        reasons: list[str],
        scores: list[str] | None = None,
        repeats: list[Origin] | None = None,
    ) -> None:
        """Write a pair that is dropped, with where it stood and why: one of the columns COLUMNS each."""
        if self.rejected:
            same = [f"{name}:{number}" for name, number in repeats or []]
            lists = (" ".join(dict.fromkeys(values)) for values in (reasons, scores or [], same))
            self.rejected.write("\t".join((*pair, origin[0], str(origin[1]), *lists)) + "\n")
