"""What DeepL's published contract (OpenAPI 3.11) says of answers, as JSON Schemas; and a server that is held to it."""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from jsonschema import Draft202012Validator

Schema = dict[str, Any]


def record(optional: Schema | None = None, /, **required: Schema) -> Schema:
    """An object with these fields, and no others."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def one_of(*values: str) -> Schema:
    return {"enum": list(values)}


TEXT, BOOLEAN, COUNT = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 0}
NAME = {"type": "string", "minLength": 1}
UPPER = {"type": "string", "pattern": "^[A-Z]{2,3}(-[A-Z]{2}|-[A-Z]{4}|-[0-9]{3})?$"}  # of /v2: EN-GB, ZH-HANS
LOWER = {"type": "string", "pattern": "^[a-z]{2,3}$"}  # of glossaries
MIXED = {"type": "string", "pattern": "^[a-z]{2,3}(-[A-Z]{2}|-[A-Z][a-z]{3}|-[0-9]{3})?$"}  # of /v3: en-GB, zh-Hans
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"}
STATUS = one_of("stable", "beta", "early_access")
PAIR = {"source_lang": LOWER, "target_lang": LOWER}
DICTIONARY = record(**PAIR, entry_count=COUNT)
GLOSSARY = record(glossary_id=NAME, name=NAME, ready=BOOLEAN, **PAIR, creation_time=TIME, entry_count=COUNT)
MULTILINGUAL = record(glossary_id=NAME, name=NAME, dictionaries=array(DICTIONARY), creation_time=TIME)
DOCUMENT = {
    **record(
        {"seconds_remaining": COUNT, "billed_characters": COUNT, "error_message": NAME},
        document_id={"type": "string", "pattern": "^[0-9A-Fa-f]{32}$"},
        status=one_of("queued", "translating", "done", "error"),
    ),
    "allOf": [
        {"if": {"properties": {"status": {"const": status}}}, "then": {"required": [field]}}
        for status, field in (("done", "billed_characters"), ("error", "error_message"))
    ],
}
TRANSLATION = record(
    {
        "billed_characters": COUNT,
        "model_type_used": one_of("quality_optimized", "latency_optimized"),
        "tag_handling_version": one_of("v1", "v2"),
    },
    detected_source_language={"type": "string", "pattern": "^[A-Z]{2,3}$"},
    text=TEXT,
)
LANGUAGES = array(record({"supports_formality": BOOLEAN}, language=UPPER, name=NAME))
FEATURE = record({"needs_source_support": BOOLEAN, "needs_target_support": BOOLEAN}, name=NAME)
ERROR = record({"code": {"type": ["string", "integer"]}, "detail": TEXT}, message=NAME)

IDENTITY = {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
MEMORY = record(
    translation_memory_id=IDENTITY,
    name=NAME,
    source_language=MIXED,
    target_languages=array(MIXED),
    segment_count=COUNT,
    creation_time=TIME,
    updated_time=TIME,
)
TARGET = record({"creation_time": TIME}, target_segment_id=IDENTITY, target_language=MIXED, target_text=TEXT)
SEGMENT = record({"creation_time": TIME}, source_segment_id=IDENTITY, source_text=TEXT, targets=array(TARGET))
RESULT = record(
    {
        "status_metadata": record(required_action=NAME),
        "error": record(message=NAME),
        "translation_memory_id": IDENTITY,
        "skipped_segment_count": COUNT,
        "download_url": NAME,
        "expires_at": TIME,
    },
    status=one_of("awaiting_input", "processing", "completed", "downloaded", "failed", "expired"),
)
SOURCE_FILE = record(file_name=NAME, content_length=COUNT, content_type=NAME)
JOB = record(
    {"source_file": SOURCE_FILE},
    job_id=IDENTITY,
    operation=one_of("import", "export"),
    product=one_of("translation_memory"),
    creation_time=TIME,
    updated_time=TIME,
    parameters=record({"translation_memory_id": IDENTITY, "display_name": NAME}),
    results={**array(RESULT), "minItems": 1, "maxItems": 1},
)

# Method, path, status, and what the body is: a schema of JSON, or None for what is no JSON.
ANSWERS: dict[tuple[str, str], tuple[int, Schema | None]] = {
    ("POST", "/v2/translate"): (200, record(translations={**array(TRANSLATION), "minItems": 1})),
    ("GET", "/v2/languages"): (200, LANGUAGES),
    ("POST", "/v2/languages"): (200, LANGUAGES),
    ("GET", "/v2/usage"): (200, record(
        {"document_count": COUNT, "document_limit": COUNT}, character_count=COUNT, character_limit=COUNT)),
    ("POST", "/v2/document"): (200, record(
        document_id={"type": "string", "pattern": "^[0-9A-Fa-f]{32}$"},
        document_key={"type": "string", "pattern": "^[0-9A-Fa-f]{64}$"})),
    ("POST", "/v2/document/{id}"): (200, DOCUMENT),
    ("POST", "/v2/document/{id}/result"): (200, None),
    ("GET", "/v2/glossary-language-pairs"): (200, record(supported_languages=array(record(**PAIR)))),
    ("POST", "/v2/glossaries"): (201, GLOSSARY),
    ("GET", "/v2/glossaries"): (200, record(glossaries=array(GLOSSARY))),
    ("GET", "/v2/glossaries/{id}"): (200, GLOSSARY),
    ("DELETE", "/v2/glossaries/{id}"): (204, None),
    ("GET", "/v2/glossaries/{id}/entries"): (200, None),
    ("POST", "/v3/glossaries"): (201, MULTILINGUAL),
    ("GET", "/v3/glossaries"): (200, record(glossaries=array(MULTILINGUAL))),
    ("GET", "/v3/glossaries/{id}"): (200, MULTILINGUAL),
    ("PATCH", "/v3/glossaries/{id}"): (200, MULTILINGUAL),
    ("DELETE", "/v3/glossaries/{id}"): (204, None),
    ("GET", "/v3/glossaries/{id}/entries"): (200, record(
        dictionaries=array(record(**PAIR, entries=TEXT, entries_format=one_of("tsv"))))),
    ("PUT", "/v3/glossaries/{id}/dictionaries"): (200, DICTIONARY),
    ("DELETE", "/v3/glossaries/{id}/dictionaries"): (204, None),
    ("GET", "/v3/languages"): (200, array(record(
        lang=MIXED, name=NAME, usable_as_source=BOOLEAN, usable_as_target=BOOLEAN, status=STATUS,
        features={"type": "object", "additionalProperties": record(status=STATUS)}))),
    ("GET", "/v3/languages/resources"): (200, array(record(name=NAME, features=array(FEATURE)))),
    ("GET", "/v3/translation_memories"): (200, record(translation_memories=array(MEMORY))),
    ("GET", "/v3/translation_memories/{id}"): (200, MEMORY),
    ("DELETE", "/v3/translation_memories/{id}"): (204, None),
    ("GET", "/v3/translation_memories/{id}/segments"): (200, record(
        {"next_page_cursor": NAME}, segments=array(SEGMENT), segment_count=COUNT)),
    ("POST", "/v3/translation_memories/{id}/export"): (202, record(
        job_id=IDENTITY, parameters=record(translation_memory_id=IDENTITY))),
    ("POST", "/v3/translation_memories/import"): (202, record(job_id=IDENTITY, upload_url=NAME, expires_at=TIME)),
    ("GET", "/v3/translation_memories/jobs/{id}"): (200, JOB),
}  # fmt: skip
ERRORS = {400, 401, 403, 404, 405, 408, 413, 415, 429, 456, 500, 503, 504, 529}
PATHS = [(method, re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), (method, path)) for method, path in ANSWERS]


def check(method: str, path: str, status: int, headers: dict[str, str], body: bytes) -> tuple[str, str] | None:
    """Raise AssertionError or ValidationError for an answer outside the contract. Return the row of a success."""
    assert headers.get("x-trace-id"), "no X-Trace-ID"
    if status >= 400:
        assert status in ERRORS, f"no status of theirs: {status}"
        Draft202012Validator(ERROR).validate(json.loads(body))
        return None
    (found,) = (row for known, pattern, row in PATHS if known == method and pattern.fullmatch(path))
    expected, schema = ANSWERS[found]
    assert status == expected, f"status {status}, not {expected}"
    if schema:
        assert headers["content-type"] == "application/json"
        Draft202012Validator(schema).validate(json.loads(body))
    else:
        assert (status == 204) == (not body), "204 is for answers without a body"
    return found


class Contract:
    """An application whose answers below /v2 and /v3 are checked. It notes what is broken, and what was seen."""

    def __init__(self, app: Any):
        self.app, self.broken = app, list[str]()
        self.seen = dict[tuple[str, str], bytes]()  # an answer of each row

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        if not scope["path"].startswith(("/v2/", "/v3/")) or scope["method"] in ("HEAD", "OPTIONS"):
            await self.app(scope, receive, send)
            return
        start: dict[str, Any] = {}
        parts: list[bytes] = []

        async def note(message: Any) -> None:
            start.update(message if message["type"] == "http.response.start" else {})
            parts.append(message.get("body", b""))
            await send(message)

        await self.app(scope, receive, note)
        if not start:  # the client has left
            return
        headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        try:
            found = check(scope["method"], scope["path"], start["status"], headers, b"".join(parts))
            self.seen |= {found: b"".join(parts)} if found else {}
        except Exception as error:
            self.broken.append(f"{scope['method']} {scope['path']}: {error}")
