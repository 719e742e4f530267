"""Sentence pairs from files.

Only a line feed ends a line; a carriage return before it belongs to the line end too. Everything else is a character of
the sentence: a reader that splits at U+2028 or at a lone carriage return shifts one language against the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dragoman.errors import DragomanError

Pair = tuple[str, str]

SHOWN = 3  # examples of a problem that a message names


@dataclass
class Corpus:
    """Sentence pairs, and what was left out on the way."""

    name: str
    pairs: list[Pair] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)  # of each pair in its file, counted from 1
    empty: list[int] = field(default_factory=list)  # lines with an empty side

    def notes(self) -> list[str]:
        """What a reader should know, a sentence each; nothing where all is well."""
        if not self.empty:
            return []
        return [f"{self.name}: left out {len(self.empty):,} pairs with an empty side ({some_lines(self.empty)})"]


def read_corpus(paths: tuple[str, ...] | list[str]) -> Corpus:
    """The pairs of one TSV file (source TAB target), or of a source file and a target file, line by line.

    A pair with an empty side is left out whole and noted. Raises DragomanError where a file is missing, empty, not
    UTF-8, has a line without both columns, or where the two files differ in their number of lines.
    """
    if len(paths) == 1:
        rows = tab_separated(Path(paths[0]))
    elif len(paths) == 2:
        rows = line_aligned(Path(paths[0]), Path(paths[1]))
    else:
        raise DragomanError(
            f"a corpus is one TSV file, or a source file and a target file, not {len(paths)} files: {' '.join(paths)}"
        )
    corpus = Corpus(" and ".join(paths))
    for number, (source, target) in enumerate(rows, start=1):
        if source.strip() and target.strip():
            corpus.pairs.append((source, target))
            corpus.lines.append(number)
        else:
            corpus.empty.append(number)
    if not corpus.pairs:
        raise DragomanError(f"{corpus.name}: no sentence pairs in it")
    return corpus


def tab_separated(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) < 2:
            if not line.strip():
                yield "", ""
                continue
            raise DragomanError(f"{path}:{number}: no tab, expected source TAB target, found: {shortened(line)}")
        if len(columns) > 2:
            raise DragomanError(
                f"{path}:{number}: {len(columns)} columns, expected source TAB target, found: {shortened(line)}"
            )
        yield columns[0], columns[1]


def line_aligned(source: Path, target: Path) -> Iterator[Pair]:
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise DragomanError(
            f"{source} has {len(sources):,} lines, {target} has {len(targets):,}: "
            "line n of the one must be the translation of line n of the other"
        )
    yield from zip(sources, targets, strict=True)


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file. Raises DragomanError naming file, line and byte where it is not UTF-8."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DragomanError(f"{path}: no such file") from None
    except OSError as error:
        raise DragomanError(f"{path}: {error.strerror}") from None
    lines = split_lines(data.removeprefix(b"\xef\xbb\xbf"))
    try:
        return [line.decode("utf-8") for line in lines]
    except UnicodeDecodeError:
        raise DragomanError(f"{path}:{first_undecodable(lines)}: convert the file to UTF-8") from None


def split_lines(data: bytes) -> list[bytes]:
    """Lines without their ends. The last line may lack its line feed; an end of file after one starts no new line."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def first_undecodable(lines: list[bytes]) -> str:
    """Where the first line is that is not UTF-8, and why, in words."""
    for number, line in enumerate(lines, start=1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            return f"{number}: not UTF-8 at byte {error.start + 1} of the line (0x{line[error.start]:02x})"
    raise ValueError("all lines are UTF-8")


def some_lines(numbers: list[int]) -> str:
    """'line 4', 'lines 4, 7', 'lines 4, 7, 9, ...': enough to go and look."""
    shown = ", ".join(f"{number:,}" for number in numbers[:SHOWN])
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{', ...' if len(numbers) > SHOWN else ''}"


def shortened(line: str, length: int = 60) -> str:
    return repr(line if len(line) <= length else line[: length - 1] + "…")
