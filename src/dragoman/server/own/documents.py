"""Translate documents for dragoman's own API: send, ask, fetch, cancel."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from starlette.responses import Response

from dragoman.server.files import attachment, begin, file_route, find_result, open_document, results_of, safe_name
from dragoman.server.own.texts import Wishes, languages_of, task_of
from dragoman.server.reading import Refusal
from dragoman.server.routes import OWN, Call, Route

NO_KEY = ""  # of a document: whoever sent it asks by its name


class DocumentRequest(Wishes, kw_only=True):
    """How a document is to be translated, which is a file of the form."""


class DocumentFault(Struct):
    """What is wrong with a text of a document, and the line that it is in, from 1; 0 for the whole document."""

    line: int
    flag: str


class DocumentAnswer(Struct):
    """How far a document is: queued, translating, done or error."""

    id: str
    name: str
    status: str
    characters: int
    texts: int
    translated: int
    faults: list[DocumentFault]
    error: str | UnsetType = UNSET


class DocumentsAnswer(Struct):
    """The documents, the oldest first."""

    documents: list[DocumentAnswer]


def describe(identity: str, record: dict[str, Any]) -> DocumentAnswer:
    """Return what is known of a document."""
    return DocumentAnswer(
        identity,
        record["name"],
        record["status"],
        record["characters"],
        record["texts"],
        record["translated"],
        [DocumentFault(line, flag) for line, flag in record.get("faults", ())],
        record.get("message", UNSET),
    )


def send(call: Call) -> DocumentAnswer:
    """Begin to translate a document, which stays for an hour."""
    target, source = languages_of(call, call.request)
    document, _ = open_document(call.file, source, target)
    assert call.file
    task = task_of(call, call.request, source, target)
    identity = begin(call, document, safe_name(call.file.name, f"_{target}"), source, task, NO_KEY)
    return describe(identity, find_result(call, identity, NO_KEY))


def documents_of(call: Call) -> Iterator[DocumentAnswer]:
    """Yield the documents of whoever asks that came by this API; none where callers have no keys, see `find_result`."""
    if not call.service.keys:
        return
    for identity, _ in results_of(call).store.all(call.caller):
        try:
            yield describe(identity, find_result(call, identity, NO_KEY))
        except Refusal:  # of another API, or deleted meanwhile
            continue


def list_all(call: Call) -> DocumentsAnswer:
    """List the documents of a key, and how far each is; without keys, the list is empty."""
    return DocumentsAnswer(list(documents_of(call)))


def show(call: Call) -> DocumentAnswer:
    """Say how far a document is: how many of its texts are translated."""
    return describe(call.path["id"], find_result(call, call.path["id"], NO_KEY))


def fetch(call: Call) -> Response:
    """Return a translated document."""
    record = find_result(call, call.path["id"], NO_KEY)
    if record["status"] == "error":
        raise Refusal(409, record["message"])
    if record["status"] != "done":
        raise Refusal(409, "the document is not translated yet", {"Retry-After": "1"})
    return attachment(results_of(call).open(call.path["id"]), record["name"])


def delete(call: Call) -> Response:
    """Delete a document; if it is being translated, that ends."""
    record = find_result(call, call.path["id"], NO_KEY)
    results_of(call).delete(call.path["id"], record["owner"])
    return Response(status_code=204)


PATH = "/api/v1/documents"
TABLE = (
    Route("GET", PATH, list_all, OWN, answer=DocumentsAnswer),
    Route("GET", f"{PATH}/{{id}}", show, OWN, answer=DocumentAnswer),
    Route("GET", f"{PATH}/{{id}}/content", fetch, OWN),
    Route("DELETE", f"{PATH}/{{id}}", delete, OWN, status=204),
)
ROUTES = (
    file_route(PATH, send, OWN, DocumentRequest, DocumentAnswer, status=201),
    *(replace(route, files=True) for route in TABLE),
)
