"""Speak to browser extensions and desktop tools whose address can be set: Immersive Translate, KISS, DeepLX."""

import random
from dataclasses import replace

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.datastructures import Headers

from dragoman.server.libretranslate import check_pair, find_target
from dragoman.server.reading import Fields, Refusal, Upload
from dragoman.server.routes import BEARER, OWN, Call, Dialect, KeyField, Route, bearer
from dragoman.server.texts import Task, Translated, check_size, detect_sources, translate_texts


class ImmersiveRequest(Struct):
    """What Immersive Translate sends to a custom API."""

    text_list: list[str]
    target_lang: str
    source_lang: str = "auto"


class ImmersiveText(Struct):
    """A translation."""

    detected_source_lang: str
    text: str


class ImmersiveAnswer(Struct):
    """What Immersive Translate expects."""

    translations: list[ImmersiveText]


class KissRequest(Struct):
    """What KISS Translator sends to a custom API: one text or several."""

    to: str
    source: str = msgspec.field(default="auto", name="from")
    text: str | UnsetType = UNSET
    texts: list[str] | UnsetType = UNSET


class KissText(Struct):
    """A translation, and the language that it is from."""

    text: str
    src: str


class KissAnswer(Struct):
    """What KISS Translator expects: a text for a text, a list for a list."""

    text: str | UnsetType = UNSET
    src: str | UnsetType = UNSET
    translations: list[KissText] | UnsetType = UNSET


class DeepLXRequest(Struct):
    """What the clients of DeepLX send."""

    text: str
    target_lang: str
    source_lang: str = "auto"
    token: KeyField = None


class DeepLXAnswer(Struct):
    """What the clients of DeepLX expect."""

    code: int
    id: int
    data: str
    alternatives: list[str]
    source_lang: str
    target_lang: str
    method: str


def deeplx_key(headers: Headers, fields: Fields) -> str:
    """Return the key of a request: the header Authorization, else the field token; '' for none."""
    token = fields.get("token", "")
    return bearer(headers, fields) or (token if isinstance(token, str) else "")


DEEPLX = Dialect(
    prefix="/deeplx",
    error=lambda refusal: {"code": refusal.status, "message": refusal.message},
    read_key=deeplx_key,
    schemes={**BEARER, "token": {"type": "apiKey", "in": "query", "name": "token"}},
    key_in_fields=True,
)
EXTENSION = replace(OWN, prefix="/extensions/")


def texts_of(request: ImmersiveRequest | KissRequest | DeepLXRequest) -> list[str]:
    """Return the texts of a request."""
    if isinstance(request, ImmersiveRequest):
        return request.text_list
    if isinstance(request, KissRequest) and request.texts is not UNSET:
        return request.texts
    return [] if request.text is UNSET else [request.text]


def characters_of(request: ImmersiveRequest | KissRequest | DeepLXRequest, file: Upload | None) -> int:
    """Return how many characters a request translates."""
    return sum(map(len, texts_of(request)))


def translate(call: Call, source: str, target: str, alternatives: int = 0) -> list[tuple[str, Translated]]:
    """Return the language and the translation of each text of a request."""
    texts = texts_of(call.request)
    check_size(call.service, texts, alternatives)
    into = find_target(call.service, target)
    if source.lower() in ("", "auto"):
        sources = [language for language, _ in detect_sources(call.service, texts, into)]
    else:
        sources = [find_target(call.service, source)] * len(texts)
        if texts:
            check_pair(call.service, sources[0], into)
    results = translate_texts(call, texts, sources, Task(into, alternatives=alternatives))
    return list(zip(sources, results, strict=True))


def immersive(call: Call) -> ImmersiveAnswer:
    """Translate the texts of a page for Immersive Translate."""
    pairs = translate(call, call.request.source_lang, call.request.target_lang)
    return ImmersiveAnswer([ImmersiveText(source, result.text) for source, result in pairs])


def kiss(call: Call) -> KissAnswer:
    """Translate a text, or the texts of a page, for KISS Translator."""
    if (call.request.text is UNSET) == (call.request.texts is UNSET):
        raise Refusal(400, "give text or texts")
    pairs = translate(call, call.request.source, call.request.to)
    texts = [KissText(result.text, source) for source, result in pairs]
    if call.request.texts is UNSET:
        return KissAnswer(texts[0].text, texts[0].src)
    return KissAnswer(translations=texts)


def deeplx(call: Call) -> DeepLXAnswer:
    """Translate a text for the clients of DeepLX."""
    alternatives = min(3, call.service.config.max_beam - 1)
    ((source, best),) = translate(call, call.request.source_lang, call.request.target_lang, alternatives)
    target = find_target(call.service, call.request.target_lang)
    number = random.randrange(10**9)
    return DeepLXAnswer(200, number, best.text, list(best.alternatives), source.upper(), target.upper(), "Free")


ROUTES = (
    Route("POST", "/extensions/immersive", immersive, EXTENSION, ImmersiveRequest, ImmersiveAnswer, characters_of),
    Route("POST", "/extensions/kiss", kiss, EXTENSION, KissRequest, KissAnswer, characters_of),
    Route("POST", "/deeplx", deeplx, DEEPLX, DeepLXRequest, DeepLXAnswer, characters_of),
)
