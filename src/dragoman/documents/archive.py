"""Parse archives of XML: their parts are one text, and every member of the ZIP that does not change stays as it is.

The original of such a document is the text of its parts, in order. `Archive` is its encoding: what the text becomes.
"""

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import ParseError

from dragoman.data.xml import NOT_XML
from dragoman.documents.document import UNREADABLE, Content, Document, Label, Passage, Skipped, Span
from dragoman.documents.elements import ENCODING
from dragoman.documents.encoding import Encoding, decode

SEPARATOR = "\ud800"  # between parts; neither a part nor a translation can have it
MAX_UNPACKED = 64 << 20  # bytes of all parts together; their XML takes more memory than that
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # how files of Word begin that are old, or encrypted
SIGNATURE = re.compile(r"_xmlsignatures/.+|META-INF/(?:document|macro)?signatures\.xml")
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
HEADER, END = b"PK\x03\x04", b"PK\x05\x06"  # how each of them begins
HEADER_SIZE, RECORD_SIZE = 30, 46  # bytes before the name
ENCRYPTED, WITH_DESCRIPTOR = 1, 8  # flags of a member
WIDE = 0xFFFFFFFF  # in place of a number that ZIP64 writes elsewhere

Parse = Callable[[str], Iterable[Passage | Label]]


class Member(NamedTuple):
    """A member of a ZIP: what its record says, where that is, and where its header, its data and its end are."""

    info: zipfile.ZipInfo
    record: int
    start: int
    inner: int
    end: int


class Members(Mapping[str, Member]):
    """The members of a ZIP by name."""

    def __init__(self, data: bytes):
        """Read where the members of a ZIP are. Raise ValueError, and what zipfile raises, where it is damaged."""
        self.data, self.left = data, MAX_UNPACKED
        self.archive = zipfile.ZipFile(io.BytesIO(data))
        self.directory = record = self.archive.start_dir
        self.members: dict[str, Member] = {}
        for info in self.archive.infolist():
            *sizes, name, extra, comment = struct.unpack_from("<2L3H", data, record + 20)
            (offset,) = struct.unpack_from("<L", data, record + 42)
            if WIDE in (*sizes, offset):
                raise ValueError("ZIP64 is not supported")
            if info.filename in self.members:
                raise ValueError(f"two members are called {info.filename!r}")
            self.members[info.filename] = member_at(data, info, record)
            record += RECORD_SIZE + name + extra + comment
        self.last = record  # the record of the end
        if not data.startswith(END, record):
            raise ValueError("its directory is damaged")
        end = 0
        for member in self.in_order():
            if member.start < end:
                raise ValueError("members overlap")
            end = member.end
        if end > self.directory:
            raise ValueError("members overlap")

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def in_order(self) -> list[Member]:
        """Return the members in the order in which they lie in the file."""
        return sorted(self.values(), key=lambda member: member.start)

    def read(self, name: str) -> bytes:
        """Return the content of a member. Raise ValueError for none or too much, and what zipfile raises."""
        if name not in self:
            raise ValueError(f"it has no {name}")
        info = self[name].info
        if info.flag_bits & ENCRYPTED:
            raise ValueError(f"{name} is encrypted")
        if info.compress_type not in (STORED, DEFLATED):
            raise ValueError(f"{name} is compressed in an unusual way")
        self.left -= info.file_size
        if self.left < 0:
            raise ValueError(f"its texts are more than {MAX_UNPACKED >> 20} MiB")
        return self.archive.read(info)

    def with_contents(self, changed: Mapping[str, bytes]) -> bytes:
        """Return the ZIP with other contents of some members; all the others are copied as they are."""
        directory, pieces, at, shift = bytearray(self.data[self.directory :]), list[bytes](), 0, 0

        def add(place: int, value: int) -> None:
            (number,) = struct.unpack_from("<L", directory, place)
            struct.pack_into("<L", directory, place, number + value)

        for member in self.in_order():
            record = member.record - self.directory
            add(record + 42, shift)
            content = changed.get(member.info.filename)
            if content is None:
                continue
            packed = content if member.info.compress_type == STORED else deflate(content)
            header = bytearray(self.data[member.start : member.inner])
            sizes = struct.pack("<3L", zlib.crc32(content), len(packed), len(content))
            header[6] &= ~WITH_DESCRIPTOR
            header[14:26] = directory[record + 16 : record + 28] = sizes
            directory[record + 8] = header[6]
            pieces += [self.data[at : member.start], bytes(header), packed]
            shift += len(packed) - (member.end - member.inner)
            at = member.end
        add(self.last - self.directory + 16, shift)
        return b"".join([*pieces, self.data[at : self.directory], directory])


def member_at(data: bytes, info: zipfile.ZipInfo, record: int) -> Member:
    """Return a member, with its end after a repetition of its sizes. Raise ValueError where its header is damaged."""
    start = info.header_offset
    if not data.startswith(HEADER, start) or start + HEADER_SIZE > len(data):
        raise ValueError("a header is damaged")
    inner = start + HEADER_SIZE + sum(struct.unpack_from("<2H", data, start + 26))
    end = inner + info.compress_size
    if info.flag_bits & WITH_DESCRIPTOR:
        for form in ("<3L", "<L2Q"):
            sizes = struct.pack(form, info.CRC, info.compress_size, info.file_size)
            for descriptor in (b"PK\x07\x08" + sizes, sizes):
                if data.startswith(descriptor, end):
                    return Member(info, record, start, inner, end + len(descriptor))
    return Member(info, record, start, inner, end)


def deflate(content: bytes) -> bytes:
    """Return the content compressed as in a ZIP."""
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(content) + compressor.flush()


class Part(NamedTuple):
    """A member with texts: its name, its content, and how its text becomes bytes."""

    name: str
    content: bytes
    encoding: Encoding


@dataclass(frozen=True)
class Archive(Encoding):
    """Describe how the text of the parts of an archive, with SEPARATOR between them, is written as bytes."""

    has_lines: ClassVar[bool] = False
    data: bytes = b""
    members: Members | None = None
    parts: Sequence[Part] = ()

    def encode(self, text: str) -> bytes:
        """Return the archive with the text of its parts. Raise DragomanError for what cannot be written."""
        pieces = zip(self.parts, text.split(SEPARATOR), strict=False)
        contents = [(part, part.encoding.encode(piece)) for part, piece in pieces]
        changed = {part.name: content for part, content in contents if content != part.content}
        return self.members.with_contents(changed) if self.members and changed else self.data


def parse_archive(
    data: bytes, kind: str, find_parts: Callable[[Members], Iterable[tuple[str, Parse]]], others: re.Pattern[str]
) -> Document:
    """Return the document of an archive.

    kind: what it is called; find_parts: yields the names of the members with texts, and how each is parsed; others:
    matches the names of members that have texts, too, and are left alone.
    """
    skipped: list[Skipped] = []
    parts: list[Part] = []
    texts: list[str] = []
    passages: list[Passage | Label] = []
    position = 0
    members: Members | None = None
    try:
        if data.startswith(OLE):
            raise ValueError("it is encrypted, or an old .doc: save it without a password, as .docx")
        members = Members(data)
        for name, parse in dict(find_parts(members)).items():
            content = members.read(name)
            declared = ENCODING.match(content)
            text, encoding = decode(content, declared[1].decode() if declared else "", "xmlcharrefreplace")
            try:
                if UNREADABLE.search(text):
                    raise ValueError(f"with bytes that are not {encoding}, or with NUL")
                of_part = [shifted(passage, position) for passage in parse(text)]
            except (DefusedXmlException, ParseError, ValueError) as error:
                skipped.append(Skipped(0, f"{name}: {reason_of(error)}: left untranslated"))
                continue
            parts.append(Part(name, content, encoding))
            texts.append(text)
            passages += of_part
            position += len(text) + len(SEPARATOR)
        if not parts:
            raise ValueError("there is no text in it")
    except (
        DefusedXmlException, ParseError, ValueError, zipfile.BadZipFile, zlib.error, struct.error, EOFError,
        NotImplementedError, OSError, RuntimeError,
    ) as error:  # fmt: skip
        reason = skipped[0].reason if skipped else f"not {kind} ({reason_of(error)})"
        return Document("", Archive(data=data), [], [Skipped(0, reason)], readable=False)
    if any(map(SIGNATURE.fullmatch, members)):
        skipped.append(Skipped(0, "it is signed: the signature will not be that of the translation"))
    if left := sum(map(bool, map(others.fullmatch, members))):
        skipped.append(Skipped(0, f"{left} of its parts (charts, diagrams or objects): left untranslated"))
    archive = Archive(data=data, members=members, parts=parts)
    return Document(SEPARATOR.join(texts), archive, passages, skipped, decoded=True)


def reason_of(error: Exception) -> str:
    """Return what is wrong, in words."""
    return "declares XML entities" if isinstance(error, DefusedXmlException) else str(error)


def shifted(passage: Passage | Label, by: int) -> Passage | Label:
    """Return a passage or label of a part at its place in the text of all parts; what it writes can stand in XML."""
    start, end = passage.start + by, passage.end + by
    if isinstance(passage, Label):
        return replace(passage, start=start, end=end)
    render = passage.render

    def render_shifted(translations: Sequence[str]) -> Content:
        for part in render([NOT_XML.sub("\ufffd", translation) for translation in translations]):
            yield part if isinstance(part, str) else Span(part.start + by, part.end + by)

    return replace(passage, start=start, end=end, render=render_shifted)
