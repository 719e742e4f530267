"""Serve dragoman's own API below /api/v1: translations with all that is known of them, and detection."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from dragoman.config.search import Split
from dragoman.documents import FORMS
from dragoman.errors import UsageError
from dragoman.memory.provenance import Shares
from dragoman.server.glossaries import stored_entries
from dragoman.server.libretranslate import find_target
from dragoman.server.memories import Remembered, find_memory
from dragoman.server.own.memories import RememberedPair, fields_of
from dragoman.server.reading import Refusal, Upload
from dragoman.server.routes import OWN, Call, Route, characters_in
from dragoman.server.spans import Span, Words, annotate, find_segments
from dragoman.server.texts import Task, Translated, check_size, detect_sources, translate_texts
from dragoman.text.glossary import Entry, Glossary, parse_entry
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.translation import TERM_REPORTS

AUTO = "auto"
MAX_ORIGINS = 3  # pairs of a word
MAX_PREFIX = 10_000  # characters of a prefix
Strings = list[Annotated[str, Meta(min_length=1)]]


class Direction(Struct, kw_only=True, forbid_unknown_fields=True):
    """The languages to translate into and from."""

    target: str
    source: str = AUTO


class Wishes(Direction, kw_only=True):
    """What may be asked for with texts and with documents."""

    tag: str = ""
    beam: Annotated[int, Meta(ge=1)] | None = None
    split: Split = "sentences"
    glossary: Strings = []  # lines as a glossary file has them, one or several in a string
    glossary_ids: Strings = []  # of /api/v1/glossaries; the first one counts most, and lines count more
    forbid: Strings = []
    min_confidence: Annotated[float, Meta(ge=0, le=1)] | None = None  # None: that of the server


class TranslateRequest(Wishes, kw_only=True):
    """What is to be translated, and how."""

    texts: Annotated[list[str], Meta(min_length=1)]
    format: Literal["text", "html"] = "text"
    prefix: str | list[str] = ""  # of each translation, or of all
    alternatives: Annotated[int, Meta(ge=0)] = 0
    alignment: bool = False
    word_scores: bool = False
    others: bool = False
    origins: bool = False


Sure = Annotated[
    float | None,
    Meta(
        description="the probability, from 0 to 1, that a reader would find it good enough; null where nothing was "
        "translated, and for a model that was not measured: its card has null, too"
    ),
]


class LikePair(RememberedPair, kw_only=True):
    """The approved pair whose text is most like a line of the text, and how much, from 0 to 1; 1: it is the same."""

    line: int
    similarity: float


class WordOrigin(RememberedPair, kw_only=True):
    """A pair that speaks for a word: its share of the word's probability, and of all that is near in the memory."""

    share: float
    neighbours: float


class Segment(Struct):
    """What was translated at once: where it is in the text and in the translation, in characters."""

    source: Span
    target: Span
    confidence: Sure = None


class TranslatedText(Struct, kw_only=True):
    """A translation, and what is known of it."""

    text: str
    source: str
    score: float
    confidence: Sure  # that of the least sure segment
    finished: bool
    retried: bool
    flags: list[str]
    terms_met: list[str]
    terms_in_compounds: list[str]
    terms_refused: list[str]
    terms_missed: list[str]
    alternatives: list[str]
    alternative_scores: list[float]
    parts: int | UnsetType = UNSET  # segments of the lines with a sentence that was too long for the model
    source_confidence: float | UnsetType = UNSET  # of the detection, from 0 to 100
    segments: list[Segment] | UnsetType = UNSET  # of text; HTML has none
    words: list[tuple[str, float]] | UnsetType = UNSET
    word_confidences: (
        Annotated[
            list[float],
            Meta(
                description="with word_scores: of each word, the probability that it stands in a good place; absent "
                "for a model that was not measured"
            ),
        ]
        | UnsetType
    ) = UNSET
    others: list[float] | UnsetType = UNSET
    alignment: list[tuple[int, int]] | UnsetType = UNSET
    memory: list[LikePair] | UnsetType = UNSET  # without a memory there is none
    origins: list[list[WordOrigin]] | UnsetType = UNSET  # of each word of the translation, the largest share first


class TranslateAnswer(Struct):
    """The translations, one for each text, in order."""

    translations: list[TranslatedText]
    target: str


class DetectRequest(Struct, forbid_unknown_fields=True):
    """Texts whose languages are asked for."""

    texts: Annotated[list[str], Meta(min_length=1)]


class DetectedLanguage(Struct):
    """A language, and how sure it is, from 0 to 100."""

    language: str
    confidence: float


class DetectAnswer(Struct):
    """For each text, in order, the languages that it may be in, the most probable first."""

    texts: list[list[DetectedLanguage]]


def characters_of(request: TranslateRequest, file: Upload | None) -> int:
    """Return how many characters a request has. The prefix of all texts counts for each of them."""
    prefixes = [request.prefix] * len(request.texts) if isinstance(request.prefix, str) else request.prefix
    return sum(map(len, (*request.texts, *prefixes)))


def translate(call: Call) -> TranslateAnswer:
    """Translate texts; say where each segment is in both, what is wrong with a translation, and what else it may be."""
    request: TranslateRequest = call.request
    check_size(call.service, request.texts, request.alternatives)
    if not isinstance(request.prefix, str) and len(request.prefix) != len(request.texts):
        raise Refusal(400, "a list of prefixes must have one for each text")
    check_prefixes([request.prefix] if isinstance(request.prefix, str) else request.prefix)
    target, source = languages_of(call, request)
    parse = FORMS[request.format]
    if source is None:
        sources, sure = map(list, zip(*detect_sources(call.service, request.texts, target, parse), strict=True))
    else:
        sources, sure = [source] * len(request.texts), None
    if annotated := request.alignment or request.word_scores or request.others or request.origins:
        check_annotations(call, request, sources, target)
    task = replace(
        task_of(call, request, source, target), parse=parse, alternatives=request.alternatives, prefixes=request.prefix
    )
    results = translate_texts(call, request.texts, sources, task)
    translations = [
        describe(result, source, request.format, sure[index] if sure else None)
        for index, (result, source) in enumerate(zip(results, sources, strict=True))
    ]
    for result, answer in zip(results, translations, strict=True):
        answer.memory = like_pairs(call, result, answer.source, target)
    if annotated:
        for result, answer in zip(results, translations, strict=True):
            add_words(call, request, result, answer, target)
    return TranslateAnswer(translations, target)


def languages_of(call: Call, request: Direction) -> tuple[str, str | None]:
    """Return the language to translate into, and the one to translate from, None to detect it. Raise Refusal."""
    target = find_target(call.service, request.target)
    if request.source.lower() == AUTO:
        return target, None
    source = find_target(call.service, request.source)
    if source != target and not call.service.models.path(source, target):
        raise Refusal(400, f"{source} cannot be translated into {target}")
    return target, source


def task_of(call: Call, request: Wishes, source: str | None, target: str) -> Task:
    """Return what a request wants; source: None where it is detected. Raise Refusal and UsageError."""
    check_beam(call, request.beam)
    safeguards = Safeguards(glossary=glossary_of(call, request, source, target), forbidden=tuple(request.forbid))
    wishes = {name: getattr(request, name) for name in ("beam", "split", "tag", "min_confidence")}
    return Task(target, safeguards=safeguards, **wishes)


def check_prefixes(prefixes: Sequence[str]) -> None:
    """Raise Refusal for a prefix that is too long, or of several lines: only the first line of a text could have it."""
    if any(len(prefix) > MAX_PREFIX for prefix in prefixes):
        raise Refusal(400, f"a prefix has at most {MAX_PREFIX:,} characters")
    if any("\n" in prefix.strip() for prefix in prefixes):
        raise Refusal(400, "a prefix has line breaks; send each line as a text of its own, with its own prefix")


def check_beam(call: Call, beam: int | None) -> None:
    """Raise Refusal for more beams than the server has; None: as many as it has by itself."""
    if beam and beam > call.service.config.max_beam:
        raise Refusal(400, f"beam must be at most {call.service.config.max_beam}")


def glossary_of(call: Call, request: Wishes, source: str | None, target: str) -> Glossary | None:
    """Return the terms of a request, its own and stored ones; None for none. Raise Refusal and UsageError."""
    entries = read_lines(request.glossary)
    if request.glossary_ids:
        if source is None:
            raise Refusal(400, "glossary_ids needs the source language")
        in_lines = {entry.source for entry in entries}
        stored = stored_entries(call, request.glossary_ids, source, target)
        entries += [Entry(term, (meaning,)) for term, meaning in stored.items() if term not in in_lines]
    return Glossary(entries) if entries else None


def read_lines(lines: Sequence[str]) -> list[Entry]:
    """Return the entries in lines of a glossary file; a string may have several lines. Raise UsageError."""
    nonblank = [line for some in lines for line in some.split("\n") if line.strip()]
    try:
        return [parse_entry(line, number) for number, line in enumerate(nonblank, start=1)]
    except ValueError as error:
        raise UsageError(f"glossary: {error}") from None


def describe(result: Translated, source: str, form: str, sure: float | None) -> TranslatedText:
    """Return what is known of a translation; sure: of the detection, None where the language was given."""
    return TranslatedText(
        text=result.text,
        source=source,
        score=sum(line.score for line in result.translations),
        confidence=least(line.confidence for line in result.translations),
        finished=all(line.finished for line in result.translations),
        retried=any(line.retried for line in result.translations),
        flags=list(dict.fromkeys(flag for line in result.translations for flag in line.flags)),
        **{name: [term for line in result.translations for term in getattr(line, name)] for name in TERM_REPORTS},
        alternatives=list(result.alternatives),
        alternative_scores=list(result.scores),
        parts=result.parts or UNSET,
        source_confidence=UNSET if sure is None else sure,
        segments=[Segment(piece.source, piece.target, least([piece.confidence])) for piece in find_segments(result)]
        if form == "text"
        else UNSET,
    )


def least(confidences: Iterable[float | None]) -> float | None:
    """Return the least of several confidences, rounded; None where there is none."""
    return min((round(sure, 4) for sure in confidences if sure is not None), default=None)


def check_annotations(call: Call, request: TranslateRequest, sources: Sequence[str], target: str) -> None:
    """Raise Refusal where the words of translations cannot be scored or aligned: of markup, and through a pivot."""
    if request.format != "text":
        raise Refusal(400, "alignment, word_scores, others and origins are for text, not for html")
    for source in dict.fromkeys(sources):
        check_one_model(call, source, target)
        path = call.service.models.path(source, target)
        if request.origins and path and path[0].remembers != "all":
            why = "exact matches are all that ctranslate2 uses of it" if path[0].remembers else "there is none"
            raise Refusal(400, f"origins are those of a memory for {source}-{target}: {why}")


def check_one_model(call: Call, source: str, target: str) -> None:
    """Raise Refusal where there is a pivot between two languages, so that no model has seen both."""
    if len(path := call.service.models.path(source, target)) > 1:
        pivot = path[0].pair.target
        raise Refusal(400, f"{source} is translated through {pivot}: alignment, word_scores and others need one model")


def add_words(call: Call, request: TranslateRequest, result: Translated, answer: TranslatedText, target: str) -> None:
    """Write into an answer what the model says of its words: nothing where the text stayed as it was."""
    words = Words([], [], None, [], [])
    asked = request.word_scores, request.others, request.alignment, request.origins
    if path := call.service.models.path(answer.source, target):  # else it is in the target language already
        (served,) = path
        with call.service.turn(call.ticket):
            words = annotate(result, served.translator, request.tag, *asked)
    answer.words = [(word, round(log_p, 4)) for word, log_p in words.scores] if request.word_scores else UNSET
    if request.word_scores and words.confidences is not None:
        answer.word_confidences = [round(sure, 4) for sure in words.confidences]
    answer.others = [round(most, 4) for most in words.others] if request.others else UNSET
    answer.alignment = words.links if request.alignment else UNSET
    if request.origins and (remembered := find_memory(call, answer.source, target)):
        answer.origins = [origins_of(call, remembered, shares) for shares in words.origins]


def like_pairs(call: Call, result: Translated, source: str, target: str) -> list[LikePair] | UnsetType:
    """Return for the lines of a text the approved pairs that are like them; UNSET without a memory."""
    if find_memory(call, source, target) is None:
        return UNSET
    matches = [(line, each.memory) for line, each in enumerate(result.translations) if each.memory]
    return [
        LikePair(line=line, similarity=round(match.similarity, 4), **fields_of(call, match.number, match.pair))
        for line, match in matches
    ]


def origins_of(call: Call, remembered: Remembered, shares: Shares) -> list[WordOrigin]:
    """Return the first pairs that speak for a word."""
    pairs = remembered.memory.pairs
    return [
        WordOrigin(
            share=round(share.probability, 4), neighbours=round(share.neighbours, 4), **fields_of(call, number, pair)
        )
        for number, share in list(shares.items())[:MAX_ORIGINS]
        if (pair := pairs[number])
    ]


def detect(call: Call) -> DetectAnswer:
    """Say which languages texts are in, among those that are served."""
    check_size(call.service, call.request.texts, 0)
    detector = call.service.need_detector()
    return DetectAnswer([[DetectedLanguage(*guess) for guess in detector.rank(text)] for text in call.request.texts])


ROUTES = (
    Route("POST", "/api/v1/translate", translate, OWN, TranslateRequest, TranslateAnswer, characters_of),
    Route("POST", "/api/v1/detect", detect, OWN, DetectRequest, DetectAnswer, characters_in("texts")),
)
