"""Read files of lines: bytes become lines, and those of TSV and of two plain files become rows. Nothing is dropped
silently.

Only a line feed ends a line; a carriage return before it belongs to the line end too. Everything else is a character of
the sentence: a reader that splits at U+2028 or at a lone carriage return shifts one language against the other.
"""

import contextlib
import itertools
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dragoman.data.encoding import is_supported
from dragoman.data.unspaced import drop_needless_line_ends
from dragoman.errors import DragomanError, plural
from dragoman.storage.output import CODECS
from dragoman.storage.writing import fingerprint

BLOCK = 1 << 20  # bytes
MIN_WEIGHT, MAX_WEIGHT = 0.001, 1000.0  # of a corpus, and of a pair that ever comes
LONGEST_LINE = 16 << 20  # bytes; a sentence has hundreds
# A file that unpacks to more than SPARE bytes and to more than RATIO times its size is a bomb: text unpacks to 3 to 20
# times its size, a file of zeros to 1,000 times.
SPARE = 4 << 20
RATIO = 200
BOMB = f"expands to more than {RATIO} times its size, which text never does; decompress it yourself if you trust it"
ZSTANDARD = "compressed with Zstandard: give it a name that ends in .zst"
# How files begin that are not text in UTF-8.
BEGINNINGS = {
    # A skippable frame, with which some programs that compress in parts begin.
    **dict.fromkeys((bytes([0x50 + n, 0x2A, 0x4D, 0x18]) for n in range(16)), ZSTANDARD),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "text in UTF-16: convert it to UTF-8 (iconv -f utf-16 -t utf-8)"),
    b"\x1f\x8b": "compressed with gzip: give it a name that ends in .gz",
    b"\x28\xb5\x2f\xfd": ZSTANDARD,
    b"PK\x03\x04": "an archive or a word processor's file: save the text in it as UTF-8",
}
FOLDER = "a folder; name the files in it: pairs (.tsv, .tmx, ...), or a source file and a target file"
Kind = Literal[
    # what stops training
    "utf-8", "columns", "record", "line-counts",
    # what is left out, and counted
    "empty", "fuzzy", "obsolete", "unfinished", "plural", "variant", "language", "unmatched",
    # what is repaired without any loss
    "byte-order-mark", "cr-line-end", "line-break",
]  # fmt: skip
UNREADABLE = {"utf-8", "columns", "record", "line-counts"}
# By code: the English name of a language, and its own.
LANGUAGES = Path(__file__).with_name("languages.txt").read_text(encoding="utf-8")
LANGUAGE = frozenset(LANGUAGES.casefold().replace(",", " ").split())
REGION = re.compile(r"[-_]\w{2,4}$")  # en-US, zh_Hans
LONGEST_NAME = 3  # words
NUMBERS = ("id", "no")  # as names of columns more often than Indonesian and Norwegian
ROLE = re.compile(r"(source|src|target|tgt|trg|original|translation)([ _](text|sentence|segment|language|lang))?")


class Row(NamedTuple):
    """The two sides of a line, a record or a translation unit, and its number in the file, from 1."""

    number: int
    source: str
    target: str
    weight: float = 1.0  # how often the pair comes in an epoch, beside others of its corpus


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


def display_path(file: str) -> str:
    """Return a file's name as text for messages, with backslashes where it is not UTF-8."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


def no_such_file(file: str) -> str:
    """Return what is wrong with a corpus that does not exist, with a hint where it is two files with a comma."""
    parts = file.split(",")
    hint = f"; two files are separated by a space: {' '.join(parts)}" if all(map(os.path.isfile, parts)) else ""
    return f"no such file{hint}"


def codec_of(path: str | Path) -> str:
    """Return how a file is compressed, by its name, in small letters or capitals: 'gzip', 'zstd', or '' for not."""
    return CODECS.get(Path(path).suffix.lower(), "")


def place_of(path: str | Path) -> tuple[Path, str]:
    """Return the file on the disk in which a file is, and its name there: '' where it is in no ZIP archive."""
    for folder in Path(path).parents:
        if folder.suffix.lower() == ".zip" and folder.is_file():
            return folder, Path(path).relative_to(folder).as_posix()
    return Path(path), ""


def checksum_of(path: str) -> str:
    """Return the SHA-256 of a file; of one in a ZIP archive that of the archive, and its name there."""
    place, member = place_of(path)
    return "/".join(filter(None, [fingerprint(place)["sha256"], member]))


def read_blocks(path: str) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed.

    Raise DragomanError where it cannot be read, is damaged, or expands so much that it may be a decompression bomb.
    """
    codec = codec_of(path)
    place, member = place_of(path)
    try:
        if member:
            yield from read_member(place, member)
            return
        with place.open("rb") as file:
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
                    raise DragomanError(f"{display_path(path)}: {BOMB}")
                yield bytes(buffer[:length])
    except FileNotFoundError:
        raise DragomanError(f"{display_path(path)}: {no_such_file(str(path))}") from None
    except IsADirectoryError:
        raise DragomanError(f"{display_path(path)}: {FOLDER}") from None
    except OSError as error:
        reason = error.strerror or f"damaged or truncated ({error}); download or compress it again"
        raise DragomanError(f"{display_path(path)}: {reason}") from None


def read_member(archive: Path, name: str) -> Iterator[bytes]:
    """Yield the bytes of a file in a ZIP archive. Raise DragomanError as `read_blocks` does."""
    path = display_path(f"{archive}/{name}")
    try:
        with zipfile.ZipFile(archive) as opened, opened.open(name) as file:
            most, size = SPARE + RATIO * opened.getinfo(name).compress_size, 0
            while block := file.read(BLOCK):
                size += len(block)
                if size > most:
                    raise DragomanError(f"{path}: {BOMB}")
                yield block
    except KeyError:
        raise DragomanError(f"{path}: no such file in the archive") from None
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError) as error:
        raise DragomanError(f"{path}: damaged or truncated ({error}); download the archive again") from None
    except (NotImplementedError, RuntimeError):  # another compression; a password
        raise DragomanError(f"{path}: packed in a way that is not read; unpack the archive first") from None


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
    partial = b""  # of a line
    for block in read_blocks(path):
        end = block.rfind(b"\n") + 1
        if end:
            yield partial + block[:end]
            partial = block[end:]
        else:
            partial += block
        if len(partial) > LONGEST_LINE:
            raise DragomanError(
                f"{display_path(path)}: a line of more than {LONGEST_LINE >> 20} MiB; "
                "each sentence must end in a line feed"
            )
    if partial:
        yield partial


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


def read_tsv(path: str, on_problem: OnProblem, weight_column: str = "") -> Iterator[Row]:
    """Yield the rows of a TSV file, blank lines as empty rows; report lines that do not have two columns.

    weight_column: the number of the column with the weight of each pair, which a line must then have, '' for none.
    """
    place = int(weight_column or 0)
    for number, line in enumerate(read_lines(path, on_problem), start=1):
        if line is None:
            continue
        columns = line.split("\t")
        if len(columns) == 1 and not line.strip():
            yield Row(number, "", "")
        elif len(columns) == 2 and not place:
            yield Row(number, columns[0], columns[1])
        elif 0 < place <= len(columns):
            yield from weighted_row(Row(number, columns[0], columns[1]), columns[place - 1], path, on_problem)
        elif place:
            text = f"{plural(len(columns), 'column')}, so no weight in column {place}, found: {quote_line(line)}"
            on_problem(Problem("columns", path, number, text))
        else:
            wrong = f"{len(columns)} columns" if len(columns) > 2 else "no tab"
            text = f"{wrong}, expected source TAB target, found: {quote_line(line)}; {advise_columns(line)}"
            on_problem(Problem("columns", path, number, text))


def weighted_row(row: Row, weight: object, path: str, on_problem: OnProblem) -> Iterator[Row]:
    """Yield a row with its weight, a number or a text that is one; nothing where it is neither, which is reported.

    Less than MIN_WEIGHT is 0: of such pairs, an epoch has none in thousands, and a run would wait for one for hours.
    """
    try:
        value = float(weight)  # type: ignore[arg-type]
        if not 0 <= value <= MAX_WEIGHT:
            raise ValueError
    except (ValueError, TypeError):
        text = f"a weight is a number from 0 to {MAX_WEIGHT:,.0f}, found: {quote_line(str(weight))}"
        on_problem(Problem("record", path, row.number, text))
    else:
        yield row._replace(weight=value if value >= MIN_WEIGHT else 0.0)


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


def read_two_files(source: str, target: str, on_problem: OnProblem) -> Iterator[Row]:
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
    """Return a text with spaces for its line breaks, which are reported for this path and line number.

    There is no space between characters of scripts without spaces between words.
    """
    if "\n" in text:
        on_problem(Problem("line-break", path, number))
        text = drop_needless_line_ends(text).replace("\r\n", " ").replace("\n", " ")
    return text


def quote_line(line: str, length: int = 60) -> str:
    """Return a line in quotes, shortened to about `length` characters, for a message."""
    return repr(line if len(line) <= length else line[: length - 1] + "…")


# The names of columns, in a first row: `source TAB target`, `en TAB es`, `English TAB Español`.


def is_header(source: str, target: str) -> bool:
    """Return whether a pair is surely the names of two columns: two languages, or words such as source and target."""
    sides = {source.strip().casefold(), target.strip().casefold()}
    return len(sides) == 2 and (all(map(is_language, sides)) or all(map(ROLE.fullmatch, sides)))


def is_language(name: str) -> bool:
    """Return whether a text is the name or the code of a language, with or without a region."""
    return REGION.sub("", name.strip().casefold()) in LANGUAGE


def suggest_columns(columns: Sequence[str], otherwise: str) -> str:
    """Return two of the columns as `columns=` names them: languages if two of them are, else the first two.

    Of a dotted name such as 'translation.en', the last part is the language. A column with numbers, such as 'id', is
    taken only if there are no two others. otherwise: what to return where there are no two, or names have commas or are
    sentences.
    """
    last = {name: name.rpartition(".")[2] for name in columns}
    others = [name for name in columns if last[name].casefold() not in NUMBERS]
    languages = [name for name in others if is_language(last[name])]
    two = next((some for some in (languages, others) if len(some) > 1), columns)[:2]
    are_names = len(two) == 2 and "," not in "".join(two) and all(len(name.split()) <= LONGEST_NAME for name in two)
    return ",".join(two) if are_names else otherwise
