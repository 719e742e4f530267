"""Read the bodies of requests within limits: JSON, forms, forms with files, parameters in the address."""

import asyncio
import codecs
import difflib
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect
from msgspec.inspect import ListType, Metadata, StrType, Type, UnionType
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.types import Receive

from dragoman.config.fields import quote_value
from dragoman.server.shares import Shares

MAX_BODY = 1 << 20  # bytes
MAX_DOCUMENT = 10 << 20
SMALL = 64 << 10  # bytes of a body that come out of another room than the rest
MAX_DEPTH = 50  # of lists and objects in JSON
MAX_FIELDS = 20  # names of fields in a form
MAX_VALUES = 1100  # values in a form, where one field may have many
BODY_SECONDS = 30.0  # for a whole request

Fields = dict[str, Any]
JSON_LIST = {"in forms": "also a list, written as JSON"}  # what `Meta(extra=...)` says of such a field
FORM = "application/x-www-form-urlencoded"
ERROR = re.compile(r"(?P<what>.*?)(?: - at `(?P<key>key in )?\$\.?(?P<where>.*)`)?", re.DOTALL)
NESTED = re.compile(r"(\w+)\[(\d{1,4})\]\.(\w+)")  # a field of an object in a list, in a form
MISSING = re.compile(r"Object missing required field `(\w+)`")
UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.(\w+)\[\d+\]`)?", re.DOTALL)


class Refusal(Exception):
    """A request is not answered, for a reason that the client is told."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None):
        """Take the status of the answer, a sentence, and further headers of the answer."""
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})


class ClientGone(Exception):
    """The client has closed the connection."""


@dataclass(frozen=True)
class Upload:
    """A file of a form."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Received:
    """What a request has brought."""

    fields: Fields
    file: Upload | None = None
    typed: bool = False  # whether all fields have types, as those of JSON; else they may be text


class Room:
    """Memory for the bodies that are being received, however many there are; senders share it.

    The first bytes of each body have a room of their own: small requests are read whatever large ones others send.
    """

    def __init__(self, small: int, large: int):
        """Take the bytes for the first SMALL bytes of all bodies, and for the rest of them."""
        self.small, self.large = Shares(small), Shares(large)

    @contextmanager
    def place(self, sender: str) -> Iterator[Callable[[int], None]]:
        """Yield what makes room for a body of so many bytes, or raises Refusal; at last, give the room back."""
        held = [0, 0]

        def grow(size: int) -> None:
            first = min(size, SMALL)
            for index, (shares, needed) in enumerate(((self.small, first), (self.large, size - first))):
                if not shares.take(sender, needed - held[index]):
                    what = "large requests" if shares is self.large else "requests"
                    raise Refusal(503, f"too many {what} are being sent at once", {"Retry-After": "1"})
                held[index] = needed

        try:
            yield grow
        finally:
            for shares, size in zip((self.small, self.large), held, strict=True):
                shares.give_back(sender, size)


async def read_body(receive: Receive, headers: Headers, limit: int, seconds: float, room: Room, sender: str) -> bytes:
    """Return the body of a request; sender: who shares the room with others.

    Raise Refusal where it has two lengths or more than `limit` bytes, is compressed, finds no room, or is not there
    after so many seconds; ClientGone where the client has left.
    """
    if "transfer-encoding" in headers and "content-length" in headers:  # a proxy may believe the other one
        raise Refusal(400, "a request has Content-Length or Transfer-Encoding, not both", {"Connection": "close"})
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "compressed request bodies are not supported")
    length = headers.get("content-length", "0")
    too_large = Refusal(413, f"the request is larger than {limit:,} bytes")
    if not length.isdigit() or int(length[:20]) > limit:
        raise too_large
    body = bytearray()
    try:
        with room.place(sender) as grow:
            async with asyncio.timeout(seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    body += message.get("body", b"")
                    if len(body) > limit:
                        raise too_large
                    grow(len(body))
                    if not message.get("more_body", False):
                        return bytes(body)
    except TimeoutError:
        raise Refusal(408, f"the request was not complete after {seconds:g} seconds") from None


async def read_fields(method: str, query: bytes, headers: Headers, body: bytes) -> Received:
    """Return the parameters in the address of a request, and the fields of its body, which win. Raise Refusal."""
    fields = form_fields(query)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not body:
        return Received(fields)
    # Programs such as curl say that a body is a form where they are not told otherwise; no form begins like this.
    if kind == "application/json" or (kind in ("", FORM) and body.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{"):
        return Received({**fields, **json_fields(body)}, typed=not fields)
    if kind == FORM:
        return Received({**fields, **form_fields(body)})
    if kind == "multipart/form-data":
        body_fields, file = await multipart_fields(headers, body)
        return Received({**fields, **body_fields}, file)
    if method == "GET":
        return Received(fields)
    raise Refusal(415, "the body must be application/json, application/x-www-form-urlencoded or multipart/form-data")


def json_fields(body: bytes) -> Fields:
    """Return the object in a body of JSON. Raise Refusal where it is none."""
    try:
        fields = msgspec.json.decode(body.removeprefix(codecs.BOM_UTF8))  # with which some editors begin a file
    except UnicodeDecodeError:
        raise Refusal(400, "Invalid JSON format: it is not in UTF-8") from None
    except (msgspec.DecodeError, ValueError, RecursionError, OverflowError) as error:
        _, _, reason = str(error).partition("JSON is malformed")  # of other errors the reason may be wrong
        raise Refusal(400, f"Invalid JSON format{reason}") from None
    if not isinstance(fields, dict):
        raise Refusal(400, "Invalid JSON format: it must be an object")
    level: list[Any] = [fields]
    for _ in range(MAX_DEPTH):
        for value in level:
            check_text(value)
        level = [inner for value in level for inner in members(value)]
        if not level:
            return fields
    raise Refusal(400, f"Invalid JSON format: more than {MAX_DEPTH} levels")


def members(value: Any) -> Iterator[Any]:
    """Yield the members of a list or an object, with the keys of an object."""
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def check_text(value: Any) -> None:
    """Raise Refusal for a string with half a surrogate pair, which is no text."""
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Refusal(400, "a string contains an unpaired surrogate") from None


def form_fields(data: bytes) -> Fields:
    """Return the fields of an address or of a form. Raise Refusal for too many, and where they are not UTF-8."""
    try:
        pairs = parse_qsl(data.decode(), True, max_num_fields=MAX_VALUES, errors="strict")
    except UnicodeDecodeError:
        raise Refusal(400, "the form is not in UTF-8") from None
    except ValueError:
        raise Refusal(400, "the form has too many fields") from None
    return gather(pairs)


async def multipart_fields(headers: Headers, body: bytes) -> tuple[Fields, Upload | None]:
    """Return the fields of a form with files, and its file if it has one. Raise Refusal where it is damaged."""
    if "charset" in headers["content-type"].lower() and "utf-8" not in headers["content-type"].lower():
        raise Refusal(415, "the form must be in UTF-8")

    async def stream() -> AsyncIterator[bytes]:
        yield body

    parser = MemoryParser(headers, stream(), max_files=1, max_fields=MAX_VALUES, max_part_size=MAX_BODY)  # type: ignore[arg-type]
    try:
        form = await parser.parse()
    except (MultiPartException, ValueError, KeyError, IndexError) as error:
        reason = error.message if isinstance(error, MultiPartException) else "it is damaged"
        raise Refusal(400, f"the form cannot be read: {reason}") from None
    uploads = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
    files = [Upload(upload.filename or "", await upload.read()) for upload in uploads]
    await form.close()
    pairs = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    return gather(pairs), files[0] if files else None


class MemoryParser(MultiPartParser):
    """A parser that writes no file: the limit of a body is one of memory, too."""

    spool_max_size = 2 * MAX_DOCUMENT


def gather(pairs: list[tuple[str, str]]) -> Fields:
    """Return the fields of a form by name: a string, or a list where a name is there several times.

    `text[]`, as PHP writes a list, is `text`, and `terms[0].name`, as DeepL's Node client writes a list of objects, the
    field `name` of the first of `terms`. Lines end in a line feed. Raise Refusal for too many names.
    """
    fields: Fields = {}
    objects: dict[str, dict[int, Fields]] = {}
    for name, value in pairs:
        check_text(name)
        check_text(value)
        name, value = name.removesuffix("[]"), value.replace("\r\n", "\n")
        if nested := NESTED.fullmatch(name):
            objects.setdefault(nested[1], {}).setdefault(int(nested[2]), {})[nested[3]] = value
            continue
        before = fields.get(name)
        if before is None:
            fields[name] = value
        else:
            fields[name] = [*before, value] if isinstance(before, list) else [before, value]
    fields |= {name: [items[number] for number in sorted(items)] for name, items in objects.items()}
    if len(fields) > MAX_FIELDS:
        raise Refusal(400, f"the form has more than {MAX_FIELDS} fields")
    return fields


def convert_fields(received: Received, kind: Any, missing: str, more: tuple[str, ...] = ()) -> Any:
    """Return the fields of a request as an instance of a Struct. Raise Refusal where they do not fit.

    missing: the message where a required field is missing, with {} for its name; more: other fields of the request.
    """
    fields = received.fields
    if not received.typed:
        lists, as_json = list_fields(kind), json_list_fields(kind)
        for name, value in fields.items():
            if isinstance(value, str) and name in lists:  # a form cannot tell a value from a list of one
                fields = {**fields, name: [value]}
            elif isinstance(value, str) and name in as_json:
                fields = {**fields, name: json_list(value) or value}
    try:
        return msgspec.convert(fields, kind, strict=received.typed)
    except msgspec.ValidationError as error:
        message = str(error)
    except (ValueError, OverflowError):
        message = "a number is too large"
    if lacking := MISSING.match(message):
        raise Refusal(400, missing.format(lacking[1]))
    if unknown := UNKNOWN.fullmatch(message):
        known = known_fields(kind, unknown[2])
        if unknown[2] is None:  # of the request itself, not of an object in a list
            known += more
        near = difflib.get_close_matches(unknown[1], known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
        raise Refusal(400, f"there is no field {quote_value(unknown[1])}; {hint}")
    match = ERROR.fullmatch(message)
    where = match["where"].partition("[")[0] if match and match["where"] else ""
    what = (match["what"] if match else message).replace("`", "")
    raise Refusal(400, f"Invalid request: {f'{where}: ' if where else ''}{what[:1].lower()}{what[1:]}")


def known_fields(kind: Any, inside: str | None) -> tuple[str, ...]:
    """Return the names of the fields of a Struct, or of the Structs in its list `inside`."""
    if inside is None:
        return tuple(kind.__struct_encode_fields__)
    (field,) = (field for field in inspect.type_info(kind).fields if field.encode_name == inside)  # type: ignore[attr-defined]
    return tuple(field.type.item_type.cls.__struct_encode_fields__)


@lru_cache
def list_fields(kind: Any) -> frozenset[str]:
    """Return the names of the fields of a Struct that take a list, but no string."""
    fields = inspect.type_info(kind).fields  # type: ignore[attr-defined]
    return frozenset(
        field.encode_name for field in fields if takes(field.type, ListType) and not takes(field.type, StrType)
    )


@lru_cache
def json_list_fields(kind: Any) -> frozenset[str]:
    """Return the names of the fields of a Struct that forms may have a list of texts in, written as JSON."""
    fields = inspect.type_info(kind).fields  # type: ignore[attr-defined]
    return frozenset(
        field.encode_name for field in fields if isinstance(field.type, Metadata) and field.type.extra == JSON_LIST
    )


def json_list(text: str) -> list[str]:
    """Return the texts in a list that is written as JSON; [] for every other text."""
    if not (text.startswith("[") and text.endswith("]")):
        return []
    try:
        return msgspec.json.decode(text.encode(), type=list[str])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return []


def takes(kind: Type, wanted: type[Type]) -> bool:
    """Return whether values of a type may be of another one."""
    if isinstance(kind, Metadata):
        return takes(kind.type, wanted)
    if isinstance(kind, UnionType):
        return any(takes(member, wanted) for member in kind.types)
    return isinstance(kind, wanted)
