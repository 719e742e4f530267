"""Bytes as characters and back: whatever the bytes are, they come back."""

import codecs
import re
from dataclasses import dataclass

from dragoman.errors import DragomanError

MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
# Those that a document may declare: supersets of ASCII in which a character's bytes do not depend on its place.
DECLARED = re.compile(
    r"ascii|iso8859-\d+|cp(125\d|874|932|949|950)|koi8-[rut]|shift_jis|euc_(jp|kr)|gb(2312|k|18030)|big5"
)


@dataclass(frozen=True)
class Encoding:
    name: str = "utf-8"
    errors: str = "surrogateescape"  # what becomes of a character that cannot be written, as in str.encode
    mark: bytes = b""  # a byte order mark

    def __str__(self) -> str:
        return self.name.upper()

    def encoded(self, text: str) -> bytes:
        """Raises DragomanError where a character cannot be written."""
        try:
            return self.mark + text.encode(self.name, self.errors)
        except UnicodeEncodeError as error:
            character = error.object[error.start]
            raise DragomanError(
                f"the document is in {self}, which cannot write {character!r} (U+{ord(character):04X}): "
                "convert it, and its note of the encoding, to UTF-8"
            ) from None


def decoded(data: bytes, declared: str = "", errors: str = "strict") -> tuple[str, Encoding]:
    """The characters of any bytes, and how to write them again.

    A byte order mark decides, then what the document declares; else it is UTF-8. What the bytes are not is not
    believed: they are then UTF-8 in which a surrogate stands for each byte that is no character. `errors` is for
    characters that the declared encoding cannot write.
    """
    mark = next((mark for mark in MARKS if data.startswith(mark)), b"")
    if mark:
        how = Encoding(MARKS[mark], "surrogateescape" if mark == codecs.BOM_UTF8 else "surrogatepass", mark)
    else:
        how = Encoding(declared, errors) if known(declared) else Encoding()
    try:
        text = data[len(mark) :].decode(how.name, how.errors if how.errors.startswith("surrogate") else "strict")
        if mark + text.encode(how.name, how.errors) == data:
            return text, how
    except UnicodeError:
        pass
    return data.decode("utf-8", "surrogateescape"), Encoding()


def known(declared: str) -> bool:
    try:
        return bool(DECLARED.fullmatch(codecs.lookup(declared).name))
    except (LookupError, ValueError):
        return False
