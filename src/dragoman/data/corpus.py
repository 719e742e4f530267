"""Read sentence pairs from files: the rows of a corpus, those that were left out, and the pairs in memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dragoman.data.formats import read_rows
from dragoman.data.lines import Kind, Problem, Row, is_header, raise_unreadable
from dragoman.data.spec import WITH_HEADER, CorpusSpec, parse_corpora
from dragoman.errors import DragomanError

Pair = tuple[str, str]
WEIGHTLESS = "pairs of weight 0"
SHOWN = 3  # examples of a problem that a message names
REASONS: dict[Kind, str] = {
    "empty": "pairs with an empty side",
    "fuzzy": "fuzzy messages",
    "obsolete": "obsolete messages",
    "unfinished": "units whose translation is not finished",
    "plural": "messages with plural forms or branches that have no sure counterpart",
    "variant": "further translations into the same language",
    "language": "units in other languages",
    "unmatched": "messages that only one of the two files has",
}


class LeftOut:
    """The rows of a corpus that were left out, counted by reason, with the numbers of the first few lines."""

    def __init__(self, spec: CorpusSpec):
        self.name = spec.name
        self.counts: dict[str, int] = {}
        self.first: dict[str, list[int]] = {}  # line numbers, SHOWN + 1 of them
        self.header: Row | None = None  # the first row, if it looks like one; it is not left out

    def add(self, reason: str, number: int) -> None:
        """Count a row, in line `number`, that is left out for `reason`."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        if self.counts[reason] <= SHOWN + 1:
            self.first.setdefault(reason, []).append(number)

    def add_problem(self, problem: Problem) -> None:
        """Count a row that a problem leaves out, no repaired one. Raise DragomanError for what stops training."""
        raise_unreadable(problem)
        if problem.kind in REASONS:
            self.add(REASONS[problem.kind], problem.number)

    def notes(self) -> list[str]:
        """Return a sentence for each reason, and one for a header, for the user."""
        notes = [
            f"{self.name}: skipped {reason}: {count:,} ({name_lines(self.first[reason])})"
            for reason, count in self.counts.items()
        ]
        if self.header:
            notes.append(
                f"{self.name}: line 1 looks like a header ('{self.header.source}', '{self.header.target}'), but is "
                "read as a pair: delete it, as 'dragoman check --write-clean' does"
            )
        return notes


def stream_rows(spec: CorpusSpec, left_out: LeftOut | None = None) -> Iterator[Row]:
    """Yield the rows of a corpus as `read_rows` does; count in `left_out` what has no row, and note a header there.

    Raise DragomanError at the first problem that stops training.
    """
    left_out = left_out or LeftOut(spec)
    rows = read_rows(spec, left_out.add_problem)
    for first in rows:
        if begins_with_header(spec, first):
            left_out.header = first
        yield first
        break
    yield from rows


def begins_with_header(spec: CorpusSpec, first: Row) -> bool:
    """Return whether the first row of a corpus surely is a header, in a format that may have one."""
    return spec.format in WITH_HEADER and first.number == 1 and is_header(first.source, first.target)


def drop_empty(rows: Iterator[Row], left_out: LeftOut) -> Iterator[Row]:
    """Yield the rows that have text on both sides, and a weight; count the others in `left_out`.

    A row without any text ends a document. It is no pair, so it is not counted.
    """
    for row in rows:
        has_text = bool(row.source.strip()), bool(row.target.strip())
        if all(has_text) and row.weight:
            yield row
        elif all(has_text):
            left_out.add(WEIGHTLESS, row.number)
        elif any(has_text):
            left_out.add(REASONS["empty"], row.number)


@dataclass
class Corpus:
    """Sentence pairs in memory, and what was left out of their files."""

    name: str
    pairs: list[Pair] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)  # of each pair in its file, counted from 1
    tags: list[str] = field(default_factory=list)  # of each pair's source, '' for none
    target_tags: list[str] = field(default_factory=list)  # of each pair's target, '' for none
    left_out: list[LeftOut] = field(default_factory=list)  # of each spec

    def notes(self) -> list[str]:
        """Return a sentence for each reason why rows were left out, for the user."""
        return [note for left_out in self.left_out for note in left_out.notes()]


def read_corpus(words: Sequence[str]) -> Corpus:
    """Return the pairs of one or more corpora in order; see `parse_corpora` for the words. Of weights, only 0 counts.

    Raise DragomanError where a file is missing, holds no pair, or holds what `stream_rows` refuses.
    """
    specs = parse_corpora(words)
    if not specs:
        raise DragomanError("a corpus is one file of pairs, or a source file and a target file, not 0 files")
    corpus = Corpus(" and ".join(spec.name for spec in specs))
    for spec in specs:
        left_out = LeftOut(spec)
        before = len(corpus.pairs)
        for number, source, target, _ in drop_empty(stream_rows(spec, left_out), left_out):
            corpus.pairs.append((source, target))
            corpus.lines.append(number)
            corpus.tags.append(spec.tag)
            corpus.target_tags.append(spec.target_tag)
        if len(corpus.pairs) == before:
            raise DragomanError(f"{spec.name}: no sentence pairs in it")
        corpus.left_out.append(left_out)
    return corpus


def name_lines(numbers: list[int]) -> str:
    """Return 'line 4', 'lines 4, 7', or 'lines 4, 7, 1,009, ...' for more than SHOWN numbers; [] is not allowed."""
    return f"line{'s' if len(numbers) > 1 else ''} {first_few([f'{number:,}' for number in numbers])}"


def first_few(examples: Sequence[str]) -> str:
    """Return the first SHOWN of the examples with commas between them, and ', ...' after them where there are more."""
    return ", ".join(examples[:SHOWN]) + (", ..." if len(examples) > SHOWN else "")
