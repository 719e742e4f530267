"""Lines of UTF-8 from files, plain or compressed, in constant memory.

Only a line feed ends a line; a carriage return before it belongs to the line end too. Everything else is a character of
the sentence: a reader that splits at U+2028 or at a lone carriage return shifts one language against the other.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from dragoman.data.spec import display_path
from dragoman.errors import DragomanError

BLOCK = 1 << 20  # bytes
LONGEST_LINE = 16 << 20  # bytes; a sentence has hundreds
# A file that unpacks to more than SPARE bytes and to more than RATIO times its size is a bomb: text unpacks to 3 to 20
# times its size, a file of zeros to 1,000 times.
SPARE = 4 << 20
RATIO = 200

Kind = Literal[
    # what stops training
    "utf-8", "columns", "record", "line-counts",
    # what is left out, and counted
    "empty", "fuzzy", "obsolete", "plural", "variant",
    # what is mended, and no loss
    "byte-order-mark", "cr-line-end", "line-break",
]  # fmt: skip
STOPS = {"utf-8", "columns", "record", "line-counts"}


class Row(NamedTuple):
    """The two sides of a line, a record or a translation unit, and its number in the file, from 1."""

    number: int
    source: str
    target: str


@dataclass(frozen=True)
class Problem:
    """What a reader met at one place. `byte` of the line counts from 1."""

    kind: Kind
    file: str
    number: int = 0
    text: str = ""
    byte: int = 0

    @property
    def place(self) -> str:
        return ":".join(str(part) for part in (display_path(self.file), self.number, self.byte) if part)

    def __str__(self) -> str:
        return f"{display_path(self.file)}:{self.number}: {self.text}" if self.number else self.text


Tell = Callable[[Problem], None]  # what a reader calls for each fault; it may raise


def blocks(path: str) -> Iterator[bytes]:
    """The bytes of a file, unpacked. Raises DragomanError where it cannot be read, is damaged, or is a bomb."""
    suffix = Path(path).suffix
    try:
        with Path(path).open("rb") as file:
            if suffix not in CODECS:
                while block := file.read(BLOCK):
                    yield block
                return
            import pyarrow

            stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), CODECS[suffix])
            size = 0
            while block := stream.read(BLOCK):
                size += len(block)
                if size > SPARE + RATIO * file.tell():
                    raise DragomanError(
                        f"{display_path(path)}: unpacks to more than {RATIO} times its size, which text does not; "
                        "unpack it yourself if you trust it"
                    )
                yield block
    except FileNotFoundError:
        raise DragomanError(f"{display_path(path)}: no such file") from None
    except OSError as error:
        reason = error.strerror or f"damaged or cut off ({error}); fetch or pack it again"
        raise DragomanError(f"{display_path(path)}: {reason}") from None


CODECS = {".gz": "gzip", ".zst": "zstd"}


def lines(path: str, tell: Tell) -> Iterator[str | None]:
    """Every line without its end; None for one that is not UTF-8, which `tell` has been told of.

    The last line may lack its line feed; an end of file after one starts no new line.
    """
    number = 1
    for chunk in whole_lines(path):
        if number == 1 and chunk.startswith(b"\xef\xbb\xbf"):
            tell(Problem("byte-order-mark", path, 1))
            chunk = chunk[3:]
            if not chunk:
                return
        try:
            texts: list[str | None] = list(chunk.decode().split("\n"))
        except UnicodeDecodeError:
            texts = [decoded(line, path, n, tell) for n, line in enumerate(chunk.split(b"\n"), start=number)]
        if chunk.endswith(b"\n"):
            texts.pop()
        if b"\r" in chunk:
            for n, text in enumerate(texts):
                if text is not None and text.endswith("\r"):
                    tell(Problem("cr-line-end", path, number + n))
                    texts[n] = text[:-1]
        yield from texts
        number += len(texts)


def whole_lines(path: str) -> Iterator[bytes]:
    """The bytes of a file in blocks that end where a line ends."""
    rest = b""
    for block in blocks(path):
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
        if len(rest) > LONGEST_LINE:
            raise DragomanError(
                f"{display_path(path)}: a line of more than {LONGEST_LINE >> 20} MiB; "
                "a line is one sentence, ended by a line feed"
            )
    if rest:
        yield rest


def decoded(line: bytes, path: str, number: int, tell: Tell) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        at = error.start
        utf16 = number == 1 and line[:2] in (b"\xff\xfe", b"\xfe\xff")
        text = (
            f"not UTF-8 at byte {at + 1} of the line (0x{line[at]:02x}): "
            f"convert the file {'from UTF-16 ' if utf16 else ''}to UTF-8"
        )
        tell(Problem("utf-8", path, number, text, at + 1))
        return None


def unbroken(text: str, path: str, number: int, tell: Tell) -> str:
    """A text of JSON, TMX or another format whose texts may have line breaks, as one line: each becomes a space."""
    if "\n" in text:
        tell(Problem("line-break", path, number))
        text = text.replace("\r\n", " ").replace("\n", " ")
    return text


def shortened(line: str, length: int = 60) -> str:
    return repr(line if len(line) <= length else line[: length - 1] + "…")
