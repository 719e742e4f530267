"""Translate documents for the clients of DeepL: upload, ask, fetch."""

import secrets
from dataclasses import replace

from msgspec import UNSET, Struct, UnsetType
from starlette.responses import Response

from dragoman.server.deepl.dialect import DEEPL, find
from dragoman.server.deepl.memories import check_memory
from dragoman.server.deepl.texts import Wishes, glossary_of, refuse_unsupported, sources_of
from dragoman.server.files import attachment, begin, file_route, find_result, open_document, results_of, safe_name
from dragoman.server.reading import Refusal
from dragoman.server.routes import Call, Route
from dragoman.server.texts import Task
from dragoman.translation.safeguards import Safeguards


class UploadRequest(Wishes, kw_only=True):
    """A document, which is a file of the form, and what is to be done with it."""

    filename: str = ""
    output_format: str = ""


class Handle(Struct):
    """What a client needs to ask for its document."""

    document_id: str
    document_key: str


class KeyRequest(Struct):
    """The key of a document."""

    document_key: str


class DocumentStatus(Struct):
    """How far a document is: queued, translating, done, error."""

    document_id: str
    status: str
    seconds_remaining: int | UnsetType = UNSET
    billed_characters: int | UnsetType = UNSET
    error_message: str | UnsetType = UNSET


def upload(call: Call) -> Handle:
    """Begin to translate a document."""
    request: UploadRequest = call.request
    target = find(call.service, "target_lang", request.target_lang, call.service.models.languages)
    source = sources_of(call, [""], request.source_lang, target)[0] if request.source_lang else None
    document, suffix = open_document(call.file, source, target, request.filename)
    if request.output_format and f".{request.output_format.lower()}" != suffix:
        raise Refusal(400, "Parameter 'output_format' is not supported: a document keeps its format.")
    refuse_unsupported(request)
    check_memory(call, request.translation_memory_id, source, target)
    glossary = glossary_of(call, request, source or target, target)
    name = safe_name(request.filename or (call.file.name if call.file else ""))
    key, task = secrets.token_hex(32), Task(target, safeguards=Safeguards(glossary=glossary))
    return Handle(begin(call, document, name, source, task, key), key)


def status(call: Call) -> DocumentStatus:
    """Say how far a document is."""
    record = find_result(call, call.path["id"], call.request.document_key)
    answer = DocumentStatus(call.path["id"], record["status"])
    if answer.status == "done":
        answer.billed_characters = record["characters"]
    elif answer.status == "error":
        answer.error_message = record["message"]
    else:
        answer.seconds_remaining = max(1, round(call.service.models.wait()))
    return answer


def result(call: Call) -> Response:
    """Return a translated document, once."""
    record = find_result(call, call.path["id"], call.request.document_key)
    if record["status"] == "error":
        raise Refusal(400, record["message"])
    if record["status"] != "done":
        raise Refusal(503, "the document is not translated yet", {"Retry-After": "1"})
    return attachment(results_of(call).take(call.path["id"], record["owner"]), record["name"])


TABLE = (
    Route("POST", "/v2/document/{id}", status, DEEPL, KeyRequest, DocumentStatus),
    Route("POST", "/v2/document/{id}/result", result, DEEPL, KeyRequest),
)
ROUTES = (
    file_route("/v2/document", upload, DEEPL, UploadRequest, Handle),
    *(replace(route, files=True) for route in TABLE),
)
