"""Parse XML of strangers: no entities, nothing fetched, no endless nesting, and control characters in spite of XML."""

import codecs
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Protocol, TypeVar

from defusedxml import DefusedXmlException, DTDForbidden
from defusedxml.ElementTree import DefusedXMLParser, ParseError

from dragoman.data.lines import LONGEST_LINE, display_path, read_blocks
from dragoman.errors import DragomanError

MAX_DEPTH = 100  # of elements, for parsers' targets to check; TMX needs seven
STEP = 1 << 16  # bytes that are parsed before the size of the open unit is checked again
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# What XML forbids, as a byte or a reference; some programs write it all the same. A reference may be cut off by the
# end of a block if it is no longer than this.
CHARACTER = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f]|&#(?:x0*([0-9A-Fa-f]{1,8})|0*([0-9]{1,8}));")
LONGEST_REFERENCE = 16
NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML cannot hold
# Characters that are allowed in XML and nowhere used: they stand for control characters while it is parsed.
STAND_INS = range(0xFDD0, 0xFDF0)
CONTROLS = dict(zip(STAND_INS, range(32), strict=True))

Unit = TypeVar("Unit")


class XmlParser(DefusedXMLParser):
    """An XML parser that refuses entities and external files, but no plain DOCTYPE: many memories name tmx14.dtd.

    target: the object whose methods `start`, `data` and `end` it calls; encoding: of what it is fed, whatever that
    declares.
    """

    def __init__(self, target: Any, encoding: str | None = None):
        super().__init__(target=target, encoding=encoding, forbid_dtd=True)

    def defused_start_doctype_decl(self, name: str, sysid: str, pubid: str, has_internal_subset: bool) -> None:
        """Raise DTDForbidden for a DOCTYPE with declarations inside it; accept any other."""
        if has_internal_subset:
            raise DTDForbidden(name, sysid, pubid)


class DepthCheck:
    """The parser's target object: it ignores all, but for too deep a nesting."""

    depth = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Enter an element; raise ValueError where elements are nested too deeply."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError(f"elements nested more than {MAX_DEPTH} deep")

    def end(self, tag: str) -> None:
        """Leave an element."""
        self.depth -= 1


def check_xml(text: str) -> None:
    """Raise ParseError, DefusedXmlException or ValueError for what is not plain XML."""
    parser = XmlParser(target=DepthCheck(), encoding="utf-8")
    parser.feed(text.encode())
    parser.close()


class Target(Protocol[Unit]):
    """A parser's target that adds each unit to `complete`, a list, at its end."""

    complete: list[Unit]


def read_units(path: str, form: str, target: Target[Unit]) -> Iterator[Unit]:
    """Yield the units of a file as the target makes them, one at a time. form: what the file is, for messages.

    In their texts, `with_controls` brings back the control characters that XML does not allow. Raise DragomanError
    where the file is damaged, declares XML entities, has a unit of more than LONGEST_LINE bytes, or where the target
    raises ValueError.
    """
    blocks = read_blocks(path)
    first = next(blocks, b"")
    is_utf16 = first.startswith(UTF_16)
    parser = XmlParser(target, "utf-8" if is_utf16 else None)
    blocks = chain([first], blocks)
    if is_utf16:
        blocks = as_utf8(blocks)
    if is_utf16 or b"\0" not in first[:4]:  # others are left to the parser
        blocks = allowed(blocks)
    since = 0
    try:
        for block in blocks:
            for start in range(0, len(block), STEP):
                parser.feed(block[start : start + STEP])
                since = 0 if target.complete else since + STEP
                if since > LONGEST_LINE:
                    raise ValueError(f"a unit of more than {LONGEST_LINE >> 20} MiB")
                yield from target.complete
                target.complete.clear()
        parser.close()
    except DefusedXmlException:
        raise DragomanError(f"{display_path(path)}: declares XML entities, which {form} does not need") from None
    except (ParseError, ValueError, LookupError) as error:
        raise DragomanError(f"{display_path(path)}: not a readable {form} file: {error}") from None


def as_utf8(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield blocks of UTF-16 as UTF-8. Raise UnicodeDecodeError where they are not UTF-16."""
    decoder = codecs.getincrementaldecoder("utf-16")()
    for block in blocks:
        yield decoder.decode(block).encode()


def allowed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield blocks of XML in a superset of ASCII, with STAND_INS for control characters that XML does not allow."""
    begun = b""  # of a reference
    for block in blocks:
        data = begun + block
        cut = data.rfind(b"&", max(0, len(data) - LONGEST_REFERENCE))
        cut = len(data) if cut < 0 or b";" in data[cut:] else cut
        begun = data[cut:]
        yield CHARACTER.sub(allowed_character, data[:cut])
    yield CHARACTER.sub(allowed_character, begun)


def allowed_character(match: re.Match[bytes]) -> bytes:
    """Return a character as XML may have it, given a control character, or a reference to any character."""
    hexadecimal, decimal = match.groups()
    code = int(hexadecimal, 16) if hexadecimal else int(decimal) if decimal else match[0][0]
    if code < 32 and code not in b"\t\n\r":
        return b"&#%d;" % STAND_INS[code]
    is_allowed = code < 0xD800 or 0xE000 <= code < 0xFFFE or 0x10000 <= code < 0x110000
    return match[0] if is_allowed else b"&#xFFFD;"


def with_controls(text: str) -> str:
    """Return a text with the control characters that STAND_INS stand for."""
    return text.translate(CONTROLS)
