"""Serve dragoman's own API below /api/v1, which says all that is known of a translation."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from dragoman.documents import FORMS
from dragoman.documents.document import as_line
from dragoman.errors import UsageError
from dragoman.server.languages import name_of
from dragoman.server.libretranslate import find_target
from dragoman.server.reading import Refusal, Upload
from dragoman.server.routes import OWN, Call, Route
from dragoman.server.texts import Task, Translated, check_size, detect_sources, translate_texts
from dragoman.text.glossary import Glossary, parse_entry
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.translation import Translation

Words = list[Annotated[str, Meta(min_length=1)]]
Span = tuple[int, int]


class TranslateRequest(Struct):
    """What is to be translated, and how."""

    texts: Annotated[list[str], Meta(min_length=1)]
    target: str
    source: str = "auto"
    format: Literal["text", "html"] = "text"
    tag: str = ""
    prefix: str = ""
    alternatives: Annotated[int, Meta(ge=0)] = 0
    beam: Annotated[int, Meta(ge=1)] | None = None
    split: Literal["sentences", "long", "none"] = "sentences"
    glossary: Words = []  # lines as a glossary file has them
    forbid: Words = []


class Segment(Struct):
    """What was translated at once: where it is in the text, and where its translation is, in characters."""

    source: Span
    target: Span


class TranslatedText(Struct):
    """A translation, and what is known of it."""

    text: str
    source: str
    score: float
    flags: list[str]
    terms_met: list[str]
    alternatives: list[str]
    confidence: float | UnsetType = UNSET
    segments: list[Segment] | UnsetType = UNSET


class TranslateAnswer(Struct):
    """The translations, one for each text, in order."""

    translations: list[TranslatedText]
    target: str


class DetectRequest(Struct):
    """Texts whose languages are asked for."""

    texts: Annotated[list[str], Meta(min_length=1)]


class DetectedLanguage(Struct):
    """A language, and how sure it is, from 0 to 100."""

    language: str
    confidence: float


class DetectAnswer(Struct):
    """For each text, in order, the languages that it may be in, the most probable first."""

    texts: list[list[DetectedLanguage]]


class ServedPair(Struct):
    """A pair of languages that is translated."""

    source: str
    target: str
    source_name: str
    target_name: str
    through: list[str]
    glossary: bool
    tags: list[str]


class ModelsAnswer(Struct):
    """What is served."""

    pairs: list[ServedPair]
    engine: str
    detects: bool
    max_alternatives: int
    max_texts: int
    max_characters: int


def characters_of(request: TranslateRequest | DetectRequest, file: Upload | None) -> int:
    """Return how many characters a request has."""
    return sum(map(len, request.texts))


def translate(call: Call) -> TranslateAnswer:
    """Translate texts; say where each segment is in both, what is wrong with a translation, and what else it may be."""
    request: TranslateRequest = call.request
    check_size(call.service, request.texts, request.alternatives)
    if request.beam and request.beam > call.service.config.max_beam:
        raise Refusal(400, f"beam must be at most {call.service.config.max_beam}")
    target = find_target(call.service, request.target)
    if request.source.lower() == "auto":
        sources, sure = map(list, zip(*detect_sources(call.service, request.texts, target), strict=True))
    else:
        source = find_target(call.service, request.source)
        if source != target and not call.service.models.path(source, target):
            raise Refusal(400, f"{source} cannot be translated into {target}")
        sources, sure = [source] * len(request.texts), None
    task = Task(
        target,
        FORMS[request.format],
        request.alternatives,
        request.beam,
        request.split,
        request.tag,
        request.prefix,
        Safeguards(glossary=read_glossary(request.glossary), forbidden=tuple(request.forbid)),
    )
    found = translate_texts(call, request.texts, sources, task)
    return TranslateAnswer(
        [
            TranslatedText(
                one.text,
                source,
                sum(passage.score for passage in one.found),
                list(dict.fromkeys(flag for passage in one.found for flag in passage.flags)),
                [term for passage in one.found for term in passage.terms_met],
                list(one.alternatives),
                sure[index] if sure else UNSET,
                list(segments(one)) if request.format == "text" else UNSET,
            )
            for index, (one, source) in enumerate(zip(found, sources, strict=True))
        ],
        target,
    )


def read_glossary(lines: Sequence[str]) -> Glossary | None:
    """Return the glossary of a request, whose lines are those of a file; None without lines. Raise UsageError."""
    if not lines:
        return None
    try:
        return Glossary([parse_entry(line, number) for number, line in enumerate(lines, start=1)])
    except ValueError as error:
        raise UsageError(f"glossary: {error}") from None


def segments(translated: Translated) -> Iterator[Segment]:
    """Yield where each segment of a text without markup is, in the text and in its translation."""
    document, shift = translated.document, 0  # how much longer the translation is so far
    passages = zip(document.passages, translated.found, strict=True)
    changed = {
        change.passage.start: change.translations[0]
        for change in document.changes([one.text for one in translated.found])
    }
    for passage, one in passages:
        new = changed.get(passage.start, passage.texts[0])
        begin = passage.start + shift
        whole = Segment((passage.start, passage.end), (begin, begin + len(new)))
        yield from segments_of_line(passage.texts[0], new, one, whole)
        shift += len(new) - (passage.end - passage.start)


def segments_of_line(text: str, new: str, translation: Translation, whole: Segment) -> Iterator[Segment]:
    """Yield where each segment of a line is, in the line and in its translation, both of which `whole` says.

    The whole line is one segment where the translation was changed after it was put together.
    """
    source, target = (list(column) for column in zip(*translation.segments, strict=True))
    if "".join(source).strip() != text or as_line("".join(target)) != new or new != "".join(target):
        yield whole
        return
    at, there = whole.source[0], whole.target[0]
    for part, output in zip(source, target, strict=True):
        yield Segment((at, at + len(part.rstrip())), (there, there + len(output.rstrip())))
        at, there = at + len(part), there + len(output)


def detect(call: Call) -> DetectAnswer:
    """Say which languages texts are in, among those that are served."""
    detector = call.service.need_detector()
    return DetectAnswer([[DetectedLanguage(*one) for one in detector.rank(text)] for text in call.request.texts])


def models(call: Call) -> ModelsAnswer:
    """List the pairs of languages that are served, and what the server can do."""
    service, served = call.service, call.service.models
    pairs = [(source, target) for source in served.sources for target in served.targets(source)]
    return ModelsAnswer(
        [
            ServedPair(
                source,
                target,
                name_of(source),
                name_of(target),
                [one.pair.target for one in served.path(source, target)[:-1]],
                len(served.path(source, target)) == 1,
                sorted(served.path(source, target)[0].translator.tokenizer.tags),
            )
            for source, target in pairs
        ],
        service.config.engine,
        service.detector is not None,
        service.config.max_beam - 1,
        service.config.texts,
        service.config.characters,
    )


ROUTES = (
    Route("POST", "/api/v1/translate", translate, OWN, TranslateRequest, TranslateAnswer, characters_of),
    Route("POST", "/api/v1/detect", detect, OWN, DetectRequest, DetectAnswer, characters_of),
    Route("GET", "/api/v1/models", models, OWN, answer=ModelsAnswer),
)
