"""Define the table of routes: what is served where, to whom, in which form, and how errors are written."""

import http
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta
from starlette.datastructures import Headers

from dragoman.decoding.rows import Ticket
from dragoman.server.reading import MAX_BODY, Fields, Refusal, Upload

if TYPE_CHECKING:
    from dragoman.server.service import Service

BEARER = {"bearer": {"type": "http", "scheme": "bearer"}}
KeyField = Annotated[str, Meta(description="the key, if the server asks for keys")] | None


@dataclass(frozen=True)
class Dialect:
    """How an API reads keys and writes errors."""

    prefix: str
    "of the paths whose errors are written in this way where there is no route"
    error: Callable[[Refusal], Any]
    "returns the body of an error"
    read_key: Callable[[Headers, Fields], str]
    "returns the key of a request, '' for none"
    schemes: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: BEARER)
    "where a key may be, as OpenAPI says it"
    key_in_fields: bool = False
    "whether a field may have the key, so that the body has to be read first"
    no_key: tuple[int, str] = (401, "this server needs a key")
    wrong_key: tuple[int, str] = (403, "this key is not valid")
    missing: str = "the field '{}' is missing"
    "the message where a required field is missing"
    empty: tuple[str, ...] = ()
    "what a field has that counts as missing"
    trace: str = "X-Request-ID"
    "the header of an answer that has the number of the request"


@dataclass(frozen=True)
class Call:
    """One request, read and checked."""

    service: "Service"
    route: "Route"
    request: Any  # of the type that the route says; None without one
    ticket: Ticket
    path: Mapping[str, str]  # what stands in the path for its {names}
    caller: str  # the name of its key, else its address
    base_url: str  # of this server, as the client reaches it: 'http://localhost:5000'
    file: Upload | None = None


@dataclass(frozen=True)
class Route:
    """A row of the table."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handler: Callable[[Call], Any]
    "returns the answer: what becomes JSON, or a Response; its docstring describes the route"
    dialect: Dialect
    request: Any = None
    "the type of its fields, a Struct; None: it has none"
    answer: Any = None
    "the type of what the handler returns; None: the handler returns a Response"
    cost: Callable[[Any, Upload | None], int] | None = None
    "returns how many characters a request translates or keeps; None: the answer is there at once, without a thread"
    access: Literal["anyone", "key"] = "key"
    "who may ask, where there are keys"
    status: int = 200
    takes_file: bool = False
    max_body: int = MAX_BODY
    files: bool = False
    "whether the handler reads or writes files, so that it needs a thread although it translates nothing"
    raw: bool = False
    "whether the body is a file as it is, without a form"
    bulk: bool = False
    "whether other requests go first"


def key_after(scheme: str) -> Callable[[Headers, Fields], str]:
    """Return a `Dialect.read_key` for the header `Authorization: SCHEME KEY`; scheme: in lower case."""

    def read_key(headers: Headers, fields: Fields) -> str:
        name, _, key = headers.get("authorization", "").partition(" ")
        return key.strip() if name.lower() == scheme else ""

    return read_key


def characters_in(*fields: str) -> Callable[[Any, Upload | None], int]:
    """Return a `Route.cost` that counts the characters of these fields: each has a text, a list of texts, or None."""

    def count(request: Any, file: Upload | None) -> int:
        values = [getattr(request, field) or "" for field in fields]
        return sum(len(value) if isinstance(value, str) else sum(map(len, value)) for value in values)

    return count


bearer = key_after("bearer")
OWN = Dialect(
    prefix="/api/",
    error=lambda refusal: {"error": {"code": http.HTTPStatus(refusal.status).phrase, "message": refusal.message}},
    read_key=bearer,
)
