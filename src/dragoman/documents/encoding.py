"""Decode any bytes to characters, and encode these to the same bytes again."""

import codecs
import re
from dataclasses import dataclass
from html import unescape
from typing import ClassVar

from dragoman.data.encoding import is_supported
from dragoman.errors import DragomanError

MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
ENDLESS = re.compile(r"&#\d{1000,};?")  # no character has such a number, and int() refuses to read it


@dataclass(frozen=True)
class Encoding:
    """Describe how characters are written as bytes."""

    name: str = "utf-8"
    errors: str = "surrogateescape"  # what becomes of a character that cannot be written, as in str.encode
    mark: bytes = b""  # a byte order mark
    has_lines: ClassVar[bool] = True  # that a reader of the document sees

    def __str__(self) -> str:
        return self.name.upper()

    def encode(self, text: str) -> bytes:
        """Return the bytes of a text after any byte order mark. Raise DragomanError for what cannot be written."""
        try:
            return self.mark + text.encode(self.name, self.errors)
        except UnicodeEncodeError as error:
            character = error.object[error.start]
            raise DragomanError(
                f"the document is in {self}, which cannot represent {character!r} (U+{ord(character):04X}): "
                "convert it, and its declaration of the encoding, to UTF-8"
            ) from None


def decode(data: bytes, declared: str = "", errors: str = "strict") -> tuple[str, Encoding]:
    """Return the text of any bytes, and the encoding that turns it into the same bytes again.

    The encoding is that of a byte order mark, else the declared one, else UTF-8. Bytes that do not fit it are decoded
    as UTF-8, with a surrogate for each byte that is not part of a character. errors: how the declared encoding writes
    characters that it does not have, as in str.encode.
    """
    mark = next((mark for mark in MARKS if data.startswith(mark)), b"")
    if mark:
        encoding = Encoding(MARKS[mark], "surrogateescape" if mark == codecs.BOM_UTF8 else "surrogatepass", mark)
    else:
        encoding = Encoding(declared, errors) if is_supported(declared) else Encoding()
    try:
        tolerant = encoding.errors.startswith("surrogate")
        text = data[len(mark) :].decode(encoding.name, encoding.errors if tolerant else "strict")
        if mark + text.encode(encoding.name, encoding.errors) == data:
            return text, encoding
    except UnicodeError:
        pass
    return data.decode("utf-8", "surrogateescape"), Encoding()


def resolve_references(text: str) -> str:
    """Return the text with the characters that references stand for, such as & for &amp;."""
    return unescape(ENDLESS.sub("\ufffd", text))


def as_pairs(text: str) -> str:
    """Return a text with one character for each two surrogates that are one in UTF-16."""
    if not HALVES.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
