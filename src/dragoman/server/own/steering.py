"""Let people steer a translation: other words for a place, and what a model says of a translation that they wrote."""

from dataclasses import replace
from typing import Annotated

from msgspec import Meta, Struct

from dragoman.server.libretranslate import find_target
from dragoman.server.own.texts import Wishes, check_one_model, check_prefixes, languages_of, task_of
from dragoman.server.reading import Refusal
from dragoman.server.routes import OWN, Call, Route, characters_in
from dragoman.server.texts import detect_sources, translators_of
from dragoman.translation.translation import TERM_REPORTS

MOST = 8  # words that are returned for a place
BEAM = 2  # of the search behind each word: somebody waits for all of them


class AlternativesRequest(Wishes, kw_only=True):
    """A text, and how its translation begins."""

    text: Annotated[str, Meta(min_length=1)]
    prefix: str = ""
    count: Annotated[int, Meta(ge=1, le=MOST)] = MOST


class AlternativeWord(Struct):
    """A word that may come next, and the translation that follows from it."""

    word: str
    probability: float
    text: str
    score: float
    flags: list[str]
    terms_met: list[str]
    terms_in_compounds: list[str]
    terms_refused: list[str]
    terms_missed: list[str]


class AlternativesAnswer(Struct):
    """The words, the most probable first."""

    words: list[AlternativeWord]
    source: str
    target: str


class WordsRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """Texts with their translations, whoever wrote them."""

    texts: Annotated[list[str], Meta(min_length=1)]
    translations: Annotated[list[str], Meta(min_length=1)]
    source: str
    target: str
    tag: str = ""


class TranslationWords(Struct):
    """What a model says of the words of a translation."""

    words: list[tuple[str, float]]
    others: list[float]
    alignment: list[tuple[int, int]]


class WordsAnswer(Struct):
    """The words of the translations, in order."""

    translations: list[TranslationWords]


def alternatives(call: Call) -> AlternativesAnswer:
    """List the words that may come next where the translation of a text begins in a certain way."""
    request: AlternativesRequest = call.request
    if "\n" in request.text.strip():
        raise Refusal(400, "text has line breaks; ask for the words of one line at a time")
    check_prefixes([request.prefix])
    target, source = languages_of(call, request)
    source = source or detect_sources(call.service, [request.text], target)[0][0]
    task = task_of(call, request, source, target)
    if source == target:
        return AlternativesAnswer([], source, target)
    text, tag = request.text, task.tag
    task = replace(task, beam=task.beam or min(BEAM, call.service.config.beam))
    *before, translator = translators_of(call, source, task)
    for first in before:
        text, tag = first.translate(text, tag).text, ""  # the tag is for the first model
    candidates = translator.alternatives(text, request.prefix, tag, count=request.count)
    call.service.usage.add(call.caller, len(request.text))
    words = [
        AlternativeWord(
            candidate.word,
            round(candidate.probability, 4),
            candidate.translation.text,
            candidate.translation.score,
            list(candidate.translation.flags),
            *(list(getattr(candidate.translation, name)) for name in TERM_REPORTS),
        )
        for candidate in candidates
    ]
    return AlternativesAnswer(words, source, target)


def words(call: Call) -> WordsAnswer:
    """Score and align the words of given translations."""
    request: WordsRequest = call.request
    if len(request.texts) != len(request.translations):
        raise Refusal(400, "there must be one translation for each text")
    if len(request.texts) > call.service.config.texts:
        raise Refusal(400, f"at most {call.service.config.texts} texts at once")
    source, target = find_target(call.service, request.source), find_target(call.service, request.target)
    if not (path := call.service.models.path(source, target)):
        raise Refusal(400, f"{source} cannot be translated into {target}")
    check_one_model(call, source, target)
    (served,) = path
    annotator, tags = served.translator.annotator, [request.tag]
    answer = WordsAnswer([])
    for pair in zip(request.texts, request.translations, strict=True):
        with call.service.turn(call.ticket):
            (scores,), (others,) = annotator.word_scores([[pair]], tags), annotator.others([[pair]], tags)
            (links,) = annotator.links([[pair]], tags)
        rounded = [(word, round(log_p, 4)) for word, log_p in scores]
        answer.translations.append(TranslationWords(rounded, [round(most, 4) for most in others], links))
    call.service.usage.add(call.caller, sum(map(len, request.texts)))
    return answer


COST = characters_in("text", "prefix")
ROUTES = (
    Route("POST", "/api/v1/alternatives", alternatives, OWN, AlternativesRequest, AlternativesAnswer, COST),
    Route("POST", "/api/v1/words", words, OWN, WordsRequest, WordsAnswer, characters_in("texts", "translations")),
)
