"""What training and evaluation read: rows as a stream, or a small corpus in memory. Nothing is dropped in silence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dragoman.data.formats import read
from dragoman.data.lines import STOPS, Kind, Problem, Row
from dragoman.data.spec import CorpusSpec, parse_corpora
from dragoman.errors import DragomanError

Pair = tuple[str, str]

SHOWN = 3  # examples of a problem that a message names
REASONS: dict[Kind, str] = {
    "empty": "pairs with an empty side",
    "fuzzy": "fuzzy messages",
    "obsolete": "obsolete messages",
    "plural": "messages with three or more plural forms",
    "variant": "further translations into the same language",
}


class LeftOut:
    """What is left out of a corpus while it is read, and why: counts, and the first few places."""

    def __init__(self, origin: CorpusSpec):
        self.name = origin.name
        self.counts: dict[str, int] = {}
        self.first: dict[str, list[int]] = {}  # line numbers, SHOWN + 1 of them

    def add(self, reason: str, number: int) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1
        if self.counts[reason] <= SHOWN + 1:
            self.first.setdefault(reason, []).append(number)

    def tell(self, fault: Problem) -> None:
        """Raises DragomanError for what nothing may be learned from: half a corpus, or text that cannot be read."""
        if fault.kind in STOPS:
            raise DragomanError(str(fault))
        if fault.kind in REASONS:
            self.add(REASONS[fault.kind], fault.number)

    def notes(self) -> list[str]:
        """A sentence for each reason."""
        return [
            f"{self.name}: left out {count:,} {reason} ({some_lines(self.first[reason])})"
            for reason, count in self.counts.items()
        ]


def stream(origin: CorpusSpec, left_out: LeftOut | None = None) -> Iterator[Row]:
    """The rows of a corpus in their order, those with an empty side among them, in constant memory.

    `left_out` notes what has no row. Raises DragomanError at the first thing that cannot be read.
    """
    return read(origin, (left_out or LeftOut(origin)).tell)


def filled(rows: Iterator[Row], left_out: LeftOut) -> Iterator[Row]:
    """The rows that have text on both sides; the others are noted."""
    for row in rows:
        if row.source.strip() and row.target.strip():
            yield row
        else:
            left_out.add(REASONS["empty"], row.number)


@dataclass
class Corpus:
    """Sentence pairs in memory, and what was left out on the way."""

    name: str
    pairs: list[Pair] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)  # of each pair in its file, counted from 1
    tags: list[str] = field(default_factory=list)  # of each pair, '' for none
    left_out: list[LeftOut] = field(default_factory=list)  # of each origin

    def notes(self) -> list[str]:
        """What a reader should know, a sentence each; nothing where all is well."""
        return [note for left_out in self.left_out for note in left_out.notes()]


def read_corpus(words: Sequence[str]) -> Corpus:
    """The pairs of one or more corpora, one after the other; see `corpora` for the words. Weights play no part.

    Raises DragomanError where a file is missing, holds no pair, or holds what `stream` refuses.
    """
    origins = parse_corpora(words)
    if not origins:
        raise DragomanError("a corpus is one file of pairs, or a source file and a target file, not 0 files")
    corpus = Corpus(" and ".join(origin.name for origin in origins))
    for origin in origins:
        left_out = LeftOut(origin)
        before = len(corpus.pairs)
        for number, source, target in filled(stream(origin, left_out), left_out):
            corpus.pairs.append((source, target))
            corpus.lines.append(number)
            corpus.tags.append(origin.tag)
        if len(corpus.pairs) == before:
            raise DragomanError(f"{origin.name}: no sentence pairs in it")
        corpus.left_out.append(left_out)
    return corpus


def some_lines(numbers: list[int]) -> str:
    """'line 4', 'lines 4, 7', 'lines 4, 7, 9, ...': enough to go and look."""
    shown = ", ".join(f"{number:,}" for number in numbers[:SHOWN])
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{', ...' if len(numbers) > SHOWN else ''}"
