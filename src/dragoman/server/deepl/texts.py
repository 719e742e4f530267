"""Translate texts for the clients of DeepL."""

from functools import partial
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from dragoman.documents import FORMS, Parse, Tags
from dragoman.documents.html import html_passages
from dragoman.documents.plain import paragraph_passages, plain_passages
from dragoman.documents.xml import xml_passages
from dragoman.server.deepl.dialect import DEEPL, find
from dragoman.server.deepl.memories import check_memory
from dragoman.server.glossaries import open_glossary
from dragoman.server.reading import Refusal
from dragoman.server.routes import Call, Route, characters_in
from dragoman.server.texts import Task, as_list, check_size, detect_sources, translate_texts
from dragoman.text.glossary import Glossary
from dragoman.translation.safeguards import Safeguards

GREEDY = "latency_optimized"


class Wishes(Struct, kw_only=True):
    """What may be asked for with texts and with documents."""

    target_lang: str
    source_lang: str | None = None
    formality: Literal["default", "more", "less", "prefer_more", "prefer_less"] = "default"
    glossary_id: str = ""
    glossary_ids: str | list[str] = ""
    style_id: str | None = None
    custom_instructions: str | list[str] | None = None
    translation_memory_id: str | None = None
    translation_memory_threshold: Annotated[int, Meta(ge=0, le=100)] | None = None


class TranslateRequest(Wishes, kw_only=True):
    """What is to be translated, and how. The context, and whether to preserve the formatting, change nothing here."""

    text: str | list[str]
    split_sentences: Literal["0", "1", "nonewlines"] | bool | None = None
    preserve_formatting: bool = False
    context: str = ""
    tag_handling: Literal["xml", "html", ""] = ""
    tag_handling_version: Literal["v1", "v2"] = "v1"
    ignore_tags: str | list[str] = ""
    splitting_tags: str | list[str] = ""
    non_splitting_tags: str | list[str] = ""
    outline_detection: bool = True
    model_type: Literal["quality_optimized", "prefer_quality_optimized", "latency_optimized"] | UnsetType = UNSET
    show_billed_characters: bool = False


class TranslatedText(Struct):
    """A translation."""

    detected_source_language: str
    text: str
    billed_characters: int | UnsetType = UNSET
    model_type_used: str | UnsetType = UNSET
    tag_handling_version: str | UnsetType = UNSET


class TranslateAnswer(Struct):
    """The translations, one for each text, in order."""

    translations: list[TranslatedText]


def as_names(given: str | list[str]) -> list[str]:
    """Return several names: those of a list, or of a string with commas between them."""
    return [name.strip() for part in as_list(given) for name in part.split(",") if name.strip()]


def names(given: str | list[str], *, html: bool) -> frozenset[str]:
    """Return the names of elements; those of HTML have no case."""
    return frozenset(name.lower() if html else name for name in as_names(given))


def refuse_unsupported(request: Wishes) -> None:
    """Raise Refusal for what would change the meaning of a translation, and is not done here."""
    for name in ("style_id", "custom_instructions"):
        if getattr(request, name):
            raise Refusal(400, f"Parameter '{name}' is not supported by this server.")
    if request.formality in ("more", "less"):
        raise Refusal(400, "Parameter 'formality' is not supported for this target language.")


def sources_of(call: Call, texts: list[str], given: str | None, target: str, parse: Parse = FORMS["text"]) -> list[str]:
    """Return the language of each text: the one that is given, else the one that is detected. Raise Refusal."""
    models = call.service.models
    if not given:
        return [language for language, _ in detect_sources(call.service, texts, target, parse)]
    source = find(call.service, "source_lang", given, models.languages)
    if source != target and not models.path(source, target):
        raise Refusal(400, f"Value for 'target_lang' not supported: {source} cannot be translated into {target}.")
    return [source] * len(texts)


def parse_of(request: TranslateRequest) -> Parse:
    """Return how the texts of a request are read: as lines, paragraphs, HTML or XML."""
    split, html = request.split_sentences, request.tag_handling == "html"
    lines = split in ("1", True) or (split is None and not html)
    tags = Tags(
        names(request.ignore_tags, html=html),
        names(request.splitting_tags, html=html),
        names(request.non_splitting_tags, html=html),
        request.outline_detection,
    )
    if html:
        return partial(html_passages, tags=tags, lines=lines)
    if request.tag_handling == "xml":
        return partial(xml_passages, tags=tags, lines=lines)
    return plain_passages if lines else paragraph_passages


def glossary_of(call: Call, request: Wishes, source: str, target: str) -> Glossary | None:
    """Return the terms that a request names; None for none. Raise Refusal where they make no sense."""
    identities = as_names(request.glossary_ids) or as_names(request.glossary_id)
    if not identities:
        return None
    if request.glossary_id and request.glossary_ids:
        raise Refusal(400, "Parameters 'glossary_id' and 'glossary_ids' exclude each other.")
    if not request.source_lang:
        raise Refusal(400, "A glossary needs the parameter 'source_lang'.")
    return open_glossary(call, identities, source, target)


def translate(call: Call) -> TranslateAnswer:
    """Translate texts."""
    request: TranslateRequest = call.request
    texts = as_list(request.text)
    if not texts:
        raise Refusal(400, "Parameter 'text' not specified")
    check_size(call.service, texts, 0)
    refuse_unsupported(request)
    target = find(call.service, "target_lang", request.target_lang, call.service.models.languages)
    parse = parse_of(request)
    sources = sources_of(call, texts, request.source_lang, target, parse)
    check_memory(call, request.translation_memory_id, request.source_lang and sources[0], target)
    task = Task(
        target,
        parse,
        beam=1 if request.model_type == GREEDY else None,
        split="none" if request.split_sentences in ("0", False) else "sentences",
        safeguards=Safeguards(glossary=glossary_of(call, request, sources[0], target)),
    )
    results = translate_texts(call, texts, sources, task)
    used = UNSET if request.model_type is UNSET else GREEDY if request.model_type == GREEDY else "quality_optimized"
    version = request.tag_handling_version if request.tag_handling else UNSET
    billed = request.show_billed_characters
    translations = [
        TranslatedText(source.partition("-")[0].upper(), result.text, len(text) if billed else UNSET, used, version)
        for text, source, result in zip(texts, sources, results, strict=True)
    ]
    return TranslateAnswer(translations)


ROUTES = (Route("POST", "/v2/translate", translate, DEEPL, TranslateRequest, TranslateAnswer, characters_in("text")),)
