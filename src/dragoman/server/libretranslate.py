"""Speak to the clients of LibreTranslate, at the root of the server."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.datastructures import Headers

from dragoman.server.languages import name_of
from dragoman.server.reading import Fields, Refusal, Upload
from dragoman.server.routes import Call, Dialect, Route, bearer
from dragoman.server.service import Service
from dragoman.server.texts import Form, Task, translate_texts

Texts = Annotated[str, Meta(min_length=1)] | Annotated[list[str], Meta(min_length=1)]


class TranslateRequest(Struct):
    """What is to be translated, and how."""

    q: Texts
    source: str
    target: str
    format: Form = "text"
    alternatives: Annotated[int, Meta(ge=0)] = 0


class DetectedLanguage(Struct):
    """A language, and how sure it is, from 0 to 100."""

    confidence: float
    language: str


class TranslateAnswer(Struct):
    """Translations: text for text, a list for a list."""

    translatedText: str | list[str]
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | UnsetType = UNSET
    alternatives: list[str] | list[list[str]] | UnsetType = UNSET


class Language(Struct):
    """A language, and what it can be translated into."""

    code: str
    name: str
    targets: list[str]


class Health(Struct):
    """How the server is."""

    status: str


def read_key(headers: Headers, fields: Fields) -> str:
    """Return the key of a request: the field api_key, else the header Authorization; '' for none."""
    key = fields.get("api_key", "")
    return key if isinstance(key, str) and key else bearer(headers, fields)


def without_empty(fields: Fields) -> Fields:
    """Return the fields that are not empty: clients send empty ones for those that they have nothing for."""
    return {name: value for name, value in fields.items() if value not in ("", [])}


def error(refusal: Refusal) -> dict[str, Any]:
    """Return the body of an error."""
    return {"error": refusal.message}


LIBRETRANSLATE = Dialect(
    prefix="",
    error=error,
    read_key=read_key,
    key_in_fields=True,
    no_key=(400, "Please contact the server operator to get an API key"),
    wrong_key=(403, "Invalid API key"),
    missing="Invalid request: missing {} parameter",
    tidy=without_empty,
)


def characters_of(request: TranslateRequest, file: Upload | None) -> int:
    """Return how many characters a request translates."""
    return sum(map(len, as_list(request.q)))


def as_list(q: str | list[str]) -> list[str]:
    """Return the texts of a request."""
    return [q] if isinstance(q, str) else q


def find_pair(service: Service, source: str, target: str) -> tuple[str, str]:
    """Return the languages that two codes mean. Raise Refusal where they are not served, or not together."""
    models = service.models
    found = [models.find_language(code) for code in (source, target)]
    for code, language in zip((source, target), found, strict=True):
        if language is None:
            raise Refusal(400, f"{code} is not supported")
    into, out_of = str(found[1]), str(found[0])
    if into != out_of and not models.path(out_of, into):
        raise Refusal(
            400,
            f"{name_of(into)} ({into}) is not available as a target language from {name_of(out_of)} ({out_of})",
        )
    return out_of, into


def check_size(service: Service, request: TranslateRequest) -> None:
    """Raise Refusal for more texts or alternatives than the server gives."""
    if len(as_list(request.q)) > service.config.texts:
        count = len(as_list(request.q))
        raise Refusal(400, f"Invalid request: request ({count}) exceeds text limit ({service.config.texts})")
    if request.alternatives >= service.config.max_beam:
        most = service.config.max_beam - 1
        raise Refusal(400, f"Invalid request: alternatives parameter must be <= {most}")


def translate(call: Call) -> TranslateAnswer:
    """Translate a text, or a list of texts, from one language into another."""
    request: TranslateRequest = call.request
    check_size(call.service, request)
    source, target = find_pair(call.service, request.source, request.target)
    task = Task(source, target, request.format, request.alternatives)
    found = translate_texts(call, as_list(request.q), task)
    texts, others = [one.text for one in found], [list(one.alternatives) for one in found]
    single = isinstance(request.q, str)
    return TranslateAnswer(
        texts[0] if single else texts,
        alternatives=UNSET if not request.alternatives else others[0] if single else others,
    )


def languages(call: Call) -> list[Language]:
    """List the languages, each with those that it can be translated into, itself included."""
    models = call.service.models
    return [Language(code, name_of(code), sorted({code, *models.targets(code)})) for code in models.languages]


def health(call: Call) -> Health:
    """Say whether the server lives."""
    if not call.service.alive:
        raise Refusal(503, "a model has not moved for a minute")
    return Health("ok")


def frontend_settings(call: Call) -> dict[str, Any]:
    """Describe the server to web pages and other clients."""
    service = call.service
    pair = next(iter(service.models.by_pair))
    return {
        "charLimit": service.config.characters,
        "frontendTimeout": 500,
        "apiKeys": bool(service.keys),
        "keyRequired": bool(service.keys),
        "suggestions": False,
        "filesTranslation": False,
        "supportedFilesFormat": [],
        "language": {
            "source": {"code": pair.source, "name": name_of(pair.source)},
            "target": {"code": pair.target, "name": name_of(pair.target)},
        },
    }


ROUTES = (
    Route("POST", "/translate", translate, LIBRETRANSLATE, TranslateRequest, TranslateAnswer, characters_of),
    Route("GET", "/languages", languages, LIBRETRANSLATE, answer=list[Language], access="anyone"),
    Route("GET", "/health", health, LIBRETRANSLATE, answer=Health, access="anyone"),
    Route("GET", "/frontend/settings", frontend_settings, LIBRETRANSLATE, answer=dict[str, Any], access="anyone"),
)
