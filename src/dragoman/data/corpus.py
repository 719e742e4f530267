"""Read sentence pairs from files: bytes become lines, lines become rows, rows become a corpus. Nothing is dropped
silently.

Only a line feed ends a line; a carriage return before it belongs to the line end too. Everything else is a character of
the sentence: a reader that splits at U+2028 or at a lone carriage return shifts one language against the other. TSV and
pairs of plain files are read here, the other formats by the module that has their name.
"""

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dragoman.data.encoding import is_supported
from dragoman.data.header import is_header
from dragoman.data.spec import FOLDER, WITH_HEADER, CorpusSpec, codec_of, display_path, no_such_file, parse_corpora
from dragoman.errors import DragomanError, plural

Pair = tuple[str, str]

BLOCK = 1 << 20  # bytes
LONGEST_LINE = 16 << 20  # bytes; a sentence has hundreds
# A file that unpacks to more than SPARE bytes and to more than RATIO times its size is a bomb: text unpacks to 3 to 20
# times its size, a file of zeros to 1,000 times.
SPARE = 4 << 20
RATIO = 200
# How files begin that are not text in UTF-8.
BEGINNINGS = {
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "text in UTF-16: convert it to UTF-8 (iconv -f utf-16 -t utf-8)"),
    b"\x1f\x8b": "compressed with gzip: give it a name that ends in .gz",
    b"\x28\xb5\x2f\xfd": "compressed with Zstandard: give it a name that ends in .zst",
    b"PK\x03\x04": "an archive or a word processor's file: save the text in it as UTF-8",
}
SHOWN = 3  # examples of a problem that a message names

Kind = Literal[
    # what stops training
    "utf-8", "columns", "record", "line-counts",
    # what is left out, and counted
    "empty", "fuzzy", "obsolete", "plural", "variant", "language",
    # what is repaired without any loss
    "byte-order-mark", "cr-line-end", "line-break",
]  # fmt: skip
UNREADABLE = {"utf-8", "columns", "record", "line-counts"}
REASONS: dict[Kind, str] = {
    "empty": "pairs with an empty side",
    "fuzzy": "fuzzy messages",
    "obsolete": "obsolete messages",
    "plural": "messages with three or more plural forms",
    "variant": "further translations into the same language",
    "language": "units in neither of the two languages",
}


class Row(NamedTuple):
    """The two sides of a line, a record or a translation unit, and its number in the file, from 1."""

    number: int
    source: str
    target: str


@dataclass(frozen=True)
class Problem:
    """Describe a fault in line `number` of a file, at `byte` of that line; both count from 1, and 0 is unknown."""

    kind: Kind
    file: str
    number: int = 0
    text: str = ""
    byte: int = 0

    @property
    def location(self) -> str:
        """Where it is: 'news.tsv:12:3', with line and byte if they are known."""
        return ":".join(str(part) for part in (display_path(self.file), self.number, self.byte) if part)

    def __str__(self) -> str:
        return f"{display_path(self.file)}:{self.number}: {self.text}" if self.number else self.text


OnProblem = Callable[[Problem], None]  # what a reader calls for each problem; it may raise


def raise_unreadable(problem: Problem) -> None:
    """Raise DragomanError for a problem that stops training, such as text that is not UTF-8; ignore others."""
    if problem.kind in UNREADABLE:
        raise DragomanError(str(problem))


# Bytes and lines.


def read_blocks(path: str) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed.

    Raise DragomanError where it cannot be read, is damaged, or expands so much that it may be a decompression bomb.
    """
    codec = codec_of(path)
    try:
        with Path(path).open("rb") as file:
            if not codec:
                while block := file.read(BLOCK):
                    yield block
                return
            first = file.peek(4)[:4]
            if first and not foreign_beginning(first):
                suffix = Path(path).suffix
                raise DragomanError(
                    f"{display_path(path)}: not compressed, in spite of its name: give it one without {suffix}"
                )
            import pyarrow

            unpacked = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), codec)
            buffer, size = bytearray(BLOCK), 0
            while length := unpacked.readinto(buffer):  # where data is damaged, read() would never free its block
                size += length
                if size > SPARE + RATIO * file.tell():
                    raise DragomanError(
                        f"{display_path(path)}: expands to more than {RATIO} times its size, which text never does; "
                        "decompress it yourself if you trust it"
                    )
                yield bytes(buffer[:length])
    except FileNotFoundError:
        raise DragomanError(f"{display_path(path)}: {no_such_file(str(path))}") from None
    except IsADirectoryError:
        raise DragomanError(f"{display_path(path)}: {FOLDER}") from None
    except OSError as error:
        reason = error.strerror or f"damaged or truncated ({error}); download or compress it again"
        raise DragomanError(f"{display_path(path)}: {reason}") from None


def foreign_beginning(first: bytes) -> str:
    """Return what a file is that begins with these bytes, if it is not text in UTF-8; '' for anything else."""
    return next((what for beginning, what in BEGINNINGS.items() if first.startswith(beginning)), "")


def read_lines(
    path: str, on_problem: OnProblem = raise_unreadable, charset: re.Pattern[bytes] | None = None
) -> Iterator[str | None]:
    """Yield every line without its end, in constant memory; None for a line that cannot be decoded, after `on_problem`.

    Text is UTF-8, or in the encoding whose name `charset` finds in the first block, if that has no byte order
    mark. A block that does not fit this encoding may still be UTF-8. The last line may lack its line feed; an end of
    file after a line feed starts no new line. By default `on_problem` raises DragomanError. So does a file that cannot
    be read, is not text, or has a line longer than LONGEST_LINE.
    """
    number = 1
    encoding = "utf-8"
    for chunk in whole_lines(path):
        if number == 1 and (what := foreign_beginning(chunk[:4])):
            raise DragomanError(f"{display_path(path)}: {what}")
        if number == 1 and chunk.startswith(b"\xef\xbb\xbf"):
            on_problem(Problem("byte-order-mark", path, 1))
            chunk = chunk[3:]
            if not chunk:
                return
        elif number == 1 and charset and (declared := charset.search(chunk)):
            name = declared[1].decode("ascii", "replace")
            encoding = name if is_supported(name) else encoding
        texts: list[str | None]
        try:
            texts = list(_decode_block(chunk, encoding).split("\n"))
        except UnicodeDecodeError:
            lines = enumerate(chunk.split(b"\n"), start=number)
            texts = [_decode(line, path, n, on_problem, encoding) for n, line in lines]
        if chunk.endswith(b"\n"):
            texts.pop()
        if b"\r" in chunk:
            for n, text in enumerate(texts):
                if text is not None and text.endswith("\r"):
                    on_problem(Problem("cr-line-end", path, number + n))
                    texts[n] = text[:-1]
        yield from texts
        number += len(texts)


def whole_lines(path: str) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed, in blocks that end at the end of a line.

    Raise DragomanError for a line longer than LONGEST_LINE, and as `read_blocks` does.
    """
    rest = b""
    for block in read_blocks(path):
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
        if len(rest) > LONGEST_LINE:
            raise DragomanError(
                f"{display_path(path)}: a line of more than {LONGEST_LINE >> 20} MiB; "
                "each sentence must end in a line feed"
            )
    if rest:
        yield rest


def _decode_block(block: bytes, encoding: str) -> str:
    """Return the text of a block in this encoding, or else in UTF-8. Raise UnicodeDecodeError if it is neither."""
    try:
        return block.decode(encoding)
    except UnicodeDecodeError:
        with contextlib.suppress(UnicodeDecodeError):
            return block.decode()
        raise


def _decode(line: bytes, path: str, number: int, on_problem: OnProblem, encoding: str) -> str | None:
    """Return the text of a line; None where it cannot be decoded, after `on_problem`. number: of the line, from 1."""
    try:
        return _decode_block(line, encoding)
    except UnicodeDecodeError as error:
        at = error.start
        advice = "convert the file, from Latin-1 for example with iconv -f latin1 -t utf-8"
        if encoding != "utf-8":
            advice = "that is what the file declares: fix the line, or what it declares"
        text = f"not {encoding.upper()} at byte {at + 1} of the line (0x{line[at]:02x}): {advice}"
        on_problem(Problem("utf-8", path, number, text, at + 1))
        return None


# Rows.


def read_rows(spec: CorpusSpec, on_problem: OnProblem) -> Iterator[Row]:
    """Yield the rows of a corpus in their order, those with an empty side included, in constant memory.

    `on_problem` is called for what cannot be a row; if it does not raise, that row is missing.
    Raise DragomanError where a file as a whole cannot be read.
    """
    file = spec.files[0]
    # The readers of other formats are built on the lines above, so they are imported only here.
    match spec.format:
        case ".tsv":
            return _read_tsv(file, on_problem)
        case ".csv":
            from dragoman.data.csv import read_csv

            return read_csv(file, spec.columns, on_problem)
        case ".jsonl":
            from dragoman.data.jsonl import read_jsonl

            return read_jsonl(file, spec.columns, on_problem)
        case ".parquet":
            from dragoman.data.parquet import read_parquet

            if codec_of(file):
                raise DragomanError(
                    f"{display_path(file)}: a Parquet file must not be compressed as a whole; decompress it"
                )
            return read_parquet(file, spec.columns, on_problem)
        case ".tmx":
            from dragoman.data.tmx import read_tmx

            return read_tmx(file, spec.columns, on_problem)
        case ".po":
            from dragoman.data.po import read_po

            return read_po(file, on_problem)
        case "":
            return _read_two_files(file, spec.files[1], on_problem)
    raise ValueError(f"read_rows has no case for '{spec.format}'")


def _read_tsv(path: str, on_problem: OnProblem) -> Iterator[Row]:
    """Yield the rows of a TSV file, blank lines as empty rows; report lines that do not have two columns."""
    for number, line in enumerate(read_lines(path, on_problem), start=1):
        if line is None:
            continue
        columns = line.split("\t")
        if len(columns) == 2:
            yield Row(number, columns[0], columns[1])
        elif len(columns) == 1 and not line.strip():
            yield Row(number, "", "")
        else:
            wrong = f"{len(columns)} columns" if len(columns) > 2 else "no tab"
            text = f"{wrong}, expected source TAB target, found: {quote_line(line)}; {advise_columns(line)}"
            on_problem(Problem("columns", path, number, text))


def advise_columns(line: str) -> str:
    """Return what to do about a file that has lines such as this one, without two columns of TSV.

    A first column without letters is taken for a number of the pair.
    """
    if "\t" in line:
        numbered = re.search(r"[^\W\d_]", line.split("\t")[0]) is None
        return "cut -f 2,3 keeps the second and the third" if numbered else "cut -f 1,2 keeps the first two"
    if "|||" in line:
        return r"sed 's/ *||| */\t/' makes ||| a tab"
    if re.search(r'";"|","|[^\s\d][;,][^\s\d]', line):
        return "if these are columns of CSV, the name must end in .csv"
    if re.search(r"\S {2,}\S", line):
        return "if these are columns, put a tab between them"
    return "if the targets are in another file, name it after this one"


def _read_two_files(source: str, target: str, on_problem: OnProblem) -> Iterator[Row]:
    """Yield each line of the source file with the same line of the target file.

    A line that cannot be read is left out with its partner. Files of unequal length are a problem, reported at the end.
    """
    end: Any = object()
    counts = [0, 0]
    sides = itertools.zip_longest(read_lines(source, on_problem), read_lines(target, on_problem), fillvalue=end)
    for number, (s, t) in enumerate(sides, start=1):
        counts[0] += s is not end
        counts[1] += t is not end
        if isinstance(s, str) and isinstance(t, str):
            yield Row(number, s, t)
    if counts[0] != counts[1]:
        text = (
            f"{display_path(source)} has {plural(counts[0], 'line')}, {display_path(target)} has {counts[1]:,}: "
            "line n of one must be the translation of line n of the other"
        )
        on_problem(Problem("line-counts", source, 0, text))


def join_lines(text: str, path: str, number: int, on_problem: OnProblem) -> str:
    """Return a text with spaces for its line breaks, which are reported as a problem.

    path, number: where the text was read, for the report.
    """
    if "\n" in text:
        on_problem(Problem("line-break", path, number))
        text = text.replace("\r\n", " ").replace("\n", " ")
    return text


def quote_line(line: str, length: int = 60) -> str:
    """Return a line in quotes, shortened to about `length` characters, for a message."""
    return repr(line if len(line) <= length else line[: length - 1] + "…")


# What training and evaluation read.


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
        """Count a row that a problem leaves out; ignore a problem that was repaired.

        Raise DragomanError for a problem that stops training.
        """
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
    """Yield the rows that have text on both sides; count in `left_out` those that have text on one side only.

    A row without any text ends a document. It is no pair, so it is not counted.
    """
    for row in rows:
        has_text = bool(row.source.strip()), bool(row.target.strip())
        if all(has_text):
            yield row
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
    """Return the pairs of one or more corpora in order; see `parse_corpora` for the words. Weights are ignored.

    Raise DragomanError where a file is missing, holds no pair, or holds what `stream_rows` refuses.
    """
    specs = parse_corpora(words)
    if not specs:
        raise DragomanError("a corpus is one file of pairs, or a source file and a target file, not 0 files")
    corpus = Corpus(" and ".join(spec.name for spec in specs))
    for spec in specs:
        left_out = LeftOut(spec)
        before = len(corpus.pairs)
        for number, source, target in drop_empty(stream_rows(spec, left_out), left_out):
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
