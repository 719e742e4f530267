"""Speak to the clients of LibreTranslate, at the root of the server."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.datastructures import Headers
from starlette.responses import Response

from dragoman.documents import FORMS, SUFFIXES
from dragoman.server.files import attachment, file_route, open_document, results_of, safe_name, translate_document
from dragoman.server.health import Health, live
from dragoman.server.languages import name_of
from dragoman.server.memories import MAX_ORIGIN, find_memory, remember
from dragoman.server.reading import JSON_LIST, Fields, Refusal
from dragoman.server.routes import BEARER, Call, Dialect, KeyField, Route, bearer, characters_in
from dragoman.server.service import Service
from dragoman.server.store import PRIVATE
from dragoman.server.texts import Task, as_list, check_size, detect_sources, translate_texts
from dragoman.storage.locks import lock_file
from dragoman.storage.writing import open_append

# Older clients, such as those for PHP, send a form, with a list of texts as JSON in its field.
Texts = Annotated[Annotated[str, Meta(min_length=1)] | Annotated[list[str], Meta(min_length=1)], Meta(extra=JSON_LIST)]


class TranslateRequest(Struct):
    """What is to be translated, and how."""

    q: Texts
    source: str
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Meta(ge=0)] = 0
    api_key: KeyField = None


class DetectedLanguage(Struct):
    """A language, and how sure it is, from 0 to 100."""

    confidence: float
    language: str


class TranslateAnswer(Struct):
    """Translations: text for text, a list for a list."""

    translatedText: str | list[str]
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | UnsetType = UNSET
    alternatives: list[str | list[str]] | UnsetType = UNSET


class Language(Struct):
    """A language, and what it can be translated into."""

    code: str
    name: str
    targets: list[str]


def read_key(headers: Headers, fields: Fields) -> str:
    """Return the key of a request: the field api_key (of clients for Node: apiKey), else a bearer; '' for none."""
    given = [fields.get("api_key"), fields.get("apiKey"), bearer(headers, fields)]
    return next((key for key in given if isinstance(key, str) and key), "")


LIBRETRANSLATE = Dialect(
    prefix="",
    error=lambda refusal: {"error": refusal.message},
    read_key=read_key,
    schemes={**BEARER, "api_key": {"type": "apiKey", "in": "query", "name": "api_key"}},
    key_in_fields=True,
    no_key=(400, "Please contact the server operator to get an API key"),
    wrong_key=(403, "Invalid API key"),
    missing="Invalid request: missing {} parameter",
    empty=("",),  # clients send it for fields that they have nothing for
)


class DetectRequest(Struct):
    """A text whose language is asked for."""

    q: Texts
    api_key: KeyField = None


def find_target(service: Service, code: str) -> str:
    """Return the language that a code means. Raise Refusal where it is not served."""
    if (language := service.models.find_language(code)) is None:
        raise Refusal(400, f"{code} is not supported")
    return language


def check_pair(service: Service, source: str, target: str) -> None:
    """Raise Refusal where a language cannot be translated into another one."""
    if source != target and not service.models.path(source, target):
        into, out_of = f"{name_of(target)} ({target})", f"{name_of(source)} ({source})"
        raise Refusal(400, f"{into} is not available as a target language from {out_of}")


def translate(call: Call) -> TranslateAnswer:
    """Translate a text, or a list of texts, from one language into another; source "auto" detects it for each text."""
    request: TranslateRequest = call.request
    texts, single = as_list(request.q), isinstance(request.q, str)
    check_size(call.service, texts, request.alternatives)
    target, parse, detected = find_target(call.service, request.target), FORMS[request.format], []
    if request.source.lower() == "auto":
        detected = [DetectedLanguage(sure, code) for code, sure in detect_sources(call.service, texts, target, parse)]
        sources = [guess.language for guess in detected]
    else:
        sources = [find_target(call.service, request.source)] * len(texts)
        check_pair(call.service, sources[0], target)
    task = Task(target, parse, request.alternatives)
    results = translate_texts(call, texts, sources, task)
    answer = TranslateAnswer(results[0].text if single else [result.text for result in results])
    if detected:
        answer.detectedLanguage = detected[0] if single else detected
    if request.alternatives:
        answer.alternatives = (
            list(results[0].alternatives) if single else [list(result.alternatives) for result in results]
        )
    return answer


def detect(call: Call) -> list[DetectedLanguage]:
    """Say which language a text is in, among those that are served, the most probable first."""
    texts = as_list(call.request.q)
    check_size(call.service, texts, 0)
    ranked = call.service.need_detector().rank("\n".join(texts))
    likely = [guess for guess in ranked if guess.confidence] or ranked[:1]
    return [DetectedLanguage(guess.confidence, guess.language) for guess in likely]


def languages(call: Call) -> list[Language]:
    """List the languages, each with those that it can be translated into, itself included."""
    models = call.service.models
    return [Language(code, name_of(code), sorted({code, *models.targets(code)})) for code in models.languages]


def frontend_settings(call: Call) -> dict[str, Any]:
    """Describe the server to web pages and other clients."""
    service = call.service
    pair = next(iter(service.models.by_pair), None)
    return {
        "charLimit": service.config.characters,
        "frontendTimeout": 500,
        "apiKeys": bool(service.keys),
        "keyRequired": bool(service.keys),
        "suggestions": bool(service.config.suggestions or service.config.memory),
        "filesTranslation": bool(service.config.state),
        "supportedFilesFormat": list(SUFFIXES) if service.config.state else [],
        "language": {
            side: {"code": code, "name": name_of(code)} for side, code in (pair._asdict() if pair else {}).items()
        },
    }


class SuggestRequest(Struct):
    """A text, and how it should be translated."""

    q: Annotated[str, Meta(min_length=1)]
    s: Annotated[str, Meta(min_length=1)]
    source: str
    target: str
    original: Annotated[str, Meta(description="the translation before it was corrected")] = ""
    origin: Annotated[str, Meta(max_length=MAX_ORIGIN, description="where it comes from, for a memory")] = "suggest"
    api_key: KeyField = None


class SuggestAnswer(Struct):
    """Whether a suggestion was kept."""

    success: bool


def suggest(call: Call) -> SuggestAnswer:
    """Keep a better translation of a text: in the memory, so that it counts at once, and in the file for a training.

    It is kept line by line where both have as many lines. Of lines that are as in the original translation, if that is
    given, nothing is kept.
    """
    request: SuggestRequest = call.request
    if not (call.service.config.suggestions or call.service.config.memory):
        raise Refusal(403, "Suggestions are disabled on this server.")
    target = find_target(call.service, request.target)
    if request.source.lower() == "auto":
        source = detect_sources(call.service, [request.q], target)[0][0]
    else:
        source = find_target(call.service, request.source)
    check_pair(call.service, source, target)
    if source == target:
        raise Refusal(400, "Invalid request: source and target are the same language")
    for name, text in (("q", request.q), ("s", request.s)):
        if not text.strip():
            raise Refusal(400, f"Invalid request: missing {name} parameter")
    if not (pairs := corrected_lines(request)):
        return SuggestAnswer(False)
    remembered = find_memory(call, source, target)
    if remembered:
        remember(call, remembered, [(*pair, request.origin) for pair in pairs])
    if call.service.config.suggestions:
        write_suggestion(Path(call.service.config.suggestions), f"{source}-{target}", pairs)
    elif not remembered:
        raise Refusal(403, f"Suggestions are disabled on this server for {source}-{target}.")
    return SuggestAnswer(True)


def write_suggestion(folder: Path, name: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Write pairs to the end of a file of a corpus, all of them or none."""
    folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    path = folder / f"{name}.tsv"
    with lock_file(path.with_suffix(".lock"), wait=True), open_append(path) as file:
        content, size = "".join(f"{text}\t{translation}\n" for text, translation in pairs).encode(), path.stat().st_size
        if os.write(file.fileno(), content) < len(content):  # the next suggestion must not go on with half a line
            os.truncate(path, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file.fileno())


def corrected_lines(request: SuggestRequest) -> list[tuple[str, str]]:
    """Return the pairs in a suggestion: texts and their translations, without those nobody corrected."""
    texts, translations, originals = (text.splitlines() for text in (request.q, request.s, request.original))
    if len(texts) != len(translations):
        texts, translations, originals = [request.q], [request.s], [request.original]
    elif len(originals) != len(texts):  # nobody knows which line was which
        originals = [""] * len(texts)
    columns = [[" ".join(line.split()) for line in lines] for lines in (texts, translations, originals)]
    return [
        (text, translation)
        for text, translation, original in zip(*columns, strict=True)
        if text and translation and translation != original
    ]


class FileRequest(Struct):
    """Which languages a file is in and is to be in; the file is a part of the form."""

    source: str
    target: str
    api_key: KeyField = None


class FileAnswer(Struct):
    """Where the translated file can be fetched."""

    translatedFileUrl: str


def translate_file(call: Call) -> FileAnswer:
    """Translate a document, and keep the result for an hour."""
    if not call.service.config.state:
        raise Refusal(403, "this server does not translate documents; its operator can enable that with --state")
    target, source = find_target(call.service, call.request.target), None
    if call.request.source.lower() != "auto":
        source = find_target(call.service, call.request.source)
        check_pair(call.service, source, target)
    document, _ = open_document(call.file, source, target)
    assert call.file
    content = translate_document(call, document, source, Task(target))
    results, name = results_of(call), safe_name(call.file.name, f"_{target}")
    identity = results.new(call.caller)
    results.put(identity, call.caller, content, {"name": name, "public": True})
    return FileAnswer(f"{call.base_url}/download_file/{identity}.{quote(name)}")


def download_file(call: Call) -> Response:
    """Return a translated file."""
    identity, _, _ = call.path["name"].partition(".")
    results = results_of(call)
    record = results.find(identity, None)
    if not record.get("public"):  # a document of another API, which needs its key
        raise Refusal(404, "no such document")
    return attachment(results.open(identity), record["name"])


ROUTES = (
    file_route("/translate_file", translate_file, LIBRETRANSLATE, FileRequest, FileAnswer, bulk=True),
    Route("POST", "/suggest", suggest, LIBRETRANSLATE, SuggestRequest, SuggestAnswer, characters_in("q", "s")),
    Route("GET", "/download_file/{name}", download_file, LIBRETRANSLATE, access="anyone", files=True),
    Route("POST", "/translate", translate, LIBRETRANSLATE, TranslateRequest, TranslateAnswer, characters_in("q")),
    Route("POST", "/detect", detect, LIBRETRANSLATE, DetectRequest, list[DetectedLanguage], characters_in("q")),
    Route("GET", "/languages", languages, LIBRETRANSLATE, answer=list[Language], access="anyone"),
    # What libretranslatepy 2.1.1 sends, which other packages ask for.
    Route("POST", "/languages", languages, LIBRETRANSLATE, answer=list[Language], access="anyone"),
    Route("GET", "/health", live, LIBRETRANSLATE, answer=Health, access="anyone"),
    Route("GET", "/frontend/settings", frontend_settings, LIBRETRANSLATE, answer=dict[str, Any], access="anyone"),
)
