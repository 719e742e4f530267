"""Translate texts as people send them: with line breaks, blank lines, markup, in any number and any language."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dragoman.config.search import Split
from dragoman.documents import FORMS, Document, Parse, read_text
from dragoman.server.reading import Refusal
from dragoman.server.routes import Call
from dragoman.server.service import Service
from dragoman.text import verbatim
from dragoman.text.glossary import MAX_TERM_LENGTH
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.translation import Translation
from dragoman.translation.translator import CALIBRATE, Translator, left_out

MAX_FORBIDDEN, MAX_TERMS, MAX_TARGETS = 100, 50_000, 10  # words of a request; terms; translations of a term


@dataclass(frozen=True)
class Task:
    """What a request wants of all of its texts."""

    target: str
    parse: Parse = FORMS["text"]
    alternatives: int = 0
    beam: int | None = None  # None: that of the server
    split: Split = "sentences"
    tag: str = ""  # '' for that of the model
    prefixes: str | Sequence[str] = ""  # one for each text, or one for all
    safeguards: Safeguards = field(default_factory=Safeguards)
    min_confidence: float | None = None  # None: that of the server


@dataclass(frozen=True)
class Translated:
    """A text, translated: its document, the translation of each passage, the whole, and others, none of them twice."""

    document: Document
    translations: tuple[Translation, ...]
    text: str
    alternatives: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()  # of the alternatives
    parts: int = 0  # segments of the lines with a sentence that was too long for the model; 0: there was none


def translate_texts(call: Call, texts: Sequence[str], sources: Sequence[str], task: Task) -> list[Translated]:
    """Return the translation of each text, whose language is given. Those of one language are translated together.

    What has no letter stays as it is; so does all that is in the target language. Raise Late and Gone as the ticket of
    the request says, and Refusal for a glossary with two models. Their characters count as used by who asks.
    """
    documents = [read_text(text, task.parse) for text in texts]
    prefixes = [task.prefixes] * len(texts) if isinstance(task.prefixes, str) else task.prefixes
    results = [Translated(document, (), text) for document, text in zip(documents, texts, strict=True)]
    for source in dict.fromkeys(sources):
        if source == task.target:
            continue
        translator = call.service.models.path(source, task.target)[-1].translator
        same = [index for index, language in enumerate(sources) if language == source]
        lines = [line for index in same for line in documents[index].texts]
        # A translation begins with its prefix, so only its first line does.
        begins = [prefixes[index] * (line == 0) for index in same for line in range(len(documents[index].texts))]
        translated = iter(translate_lines(call, lines, begins, source, task))
        for index in same:
            passages = tuple(next(translated) for _ in documents[index].texts)
            parts = sum(len(line.segments) for line in passages if translator.cuts_sentence(line))
            results[index] = replace(put_together(documents[index], passages, source, task), parts=parts)
    call.service.usage.add(call.caller, sum(map(len, texts)))
    return results


def translate_lines(
    call: Call, lines: Sequence[str], prefixes: Sequence[str], source: str, task: Task
) -> list[Translation]:
    """Return the translations of texts of one line, by one model or by two, one after the other.

    The tag is for the first model. What was wrong with its translations is wrong with those of the second one, and the
    confidence is that of the less sure one, if both have one.
    """
    *before, last = translators_of(call, source, task)
    if before:
        (first,) = before
        through = first.translate(lines, task.tag)
        results = last.translate([pivot.text for pivot in through], "", prefixes)
        both = first.confidence and last.confidence
        results = [
            left_out(
                replace(
                    result,
                    finished=pivot.finished and result.finished,
                    flags=tuple(dict.fromkeys((*pivot.flags, *result.flags))),
                    retried=pivot.retried or result.retried,
                    confidences=(*pivot.confidences, *result.confidences) if both else (),
                ),
                last.safeguards.min_confidence,
            )
            for pivot, result in zip(through, results, strict=True)
        ]
    else:
        results = last.translate(lines, task.tag, prefixes)
    for sure in [result.confidence for result in results if result.confidence is not None]:
        call.service.metrics.confidence.labels(f"{source}-{task.target}").observe(sure)
    return results


def translators_of(call: Call, source: str, task: Task) -> list[Translator]:
    """Return the translators of a request: one, or two that work one after the other.

    The last one finds the alternatives, and has the safeguards. Raise Refusal where they cannot do what is asked for.
    """
    check_words(task.safeguards)
    beam = max(task.beam or call.service.config.beam, task.alternatives + 1)
    least = call.service.config.min_confidence if task.min_confidence is None else task.min_confidence
    path = call.service.models.path(source, task.target)
    if len(path) > 1 and task.safeguards.glossary:
        pivot = path[0].pair.target
        raise Refusal(400, f"{source} is translated through {pivot}, so a glossary from {source} is not possible")
    if least and not all(served.translator.confidence for served in path):
        raise Refusal(400, f"min_confidence {CALIBRATE}")
    legs = []
    for served in path:
        last = served is path[-1]
        search = replace(
            served.translator.search, beam=beam, n_best=task.alternatives + 1 if last else 1, split=task.split
        )
        safeguards = replace(task.safeguards, min_confidence=least) if last else served.translator.safeguards
        legs.append(served.translator_for(call.ticket, search, safeguards))
    return legs


def put_together(document: Document, translations: Sequence[Translation], source: str, task: Task) -> Translated:
    """Return a document with its texts translated, and its alternatives: the second best of all texts, and so on.

    A text with fewer alternatives than others keeps its last one. Where a translation was left out, so is the whole.
    source: the language of the texts.
    """
    if any(line.left_out for line in translations):
        return Translated(document, tuple(translations), "")
    ranked = [(line, *line.alternatives) for line in translations]
    count = max((len(choices) for choices in ranked), default=1)
    scores: dict[str, float] = {}
    for rank in range(count):
        chosen = [choices[min(rank, len(choices) - 1)] for choices in ranked]
        text = document.fill_text([line.text for line in chosen], source, task.target)
        scores.setdefault(text, sum(line.score for line in chosen))
    best, *others = scores
    others = others[: task.alternatives]
    return Translated(document, tuple(translations), best, tuple(others), tuple(scores[other] for other in others))


def detect_sources(
    service: Service, texts: Sequence[str], target: str, parse: Parse = FORMS["text"]
) -> list[tuple[str, float]]:
    """Return the language of each text, among those that can be translated into the target, and the target itself.

    With each, how sure it is, from 0 to 100. parse: how the texts are read; markup has no language.
    """
    if parse is not FORMS["text"]:
        inside = [read_text(text, parse).texts for text in texts]
        texts = ["\n".join(verbatim.remove(line)[0] for line in lines) for lines in inside]
    models = service.models
    among = {target, *(source for source in models.sources if models.path(source, target))}
    detector = service.need_detector()
    return [(best.language, best.confidence) for best in (detector.rank(text, among)[0] for text in texts)]


def check_words(safeguards: Safeguards) -> None:
    """Raise Refusal for so many words that each step of the search would take long, also for other requests."""
    if len(safeguards.forbidden) > MAX_FORBIDDEN:
        raise Refusal(400, f"at most {MAX_FORBIDDEN} words can be forbidden")
    if any(len(word) > MAX_TERM_LENGTH for word in safeguards.forbidden):
        raise Refusal(400, f"a forbidden word has at most {MAX_TERM_LENGTH} characters")
    entries = safeguards.glossary.entries if safeguards.glossary else ()
    if len(entries) > MAX_TERMS:
        raise Refusal(400, f"at most {MAX_TERMS:,} terms at once")
    if any(len(entry.targets) > MAX_TARGETS for entry in entries):
        raise Refusal(400, f"a term can have at most {MAX_TARGETS} translations here")


def as_list(texts: str | list[str]) -> list[str]:
    """Return the texts of a request."""
    return [texts] if isinstance(texts, str) else texts


def check_size(service: Service, texts: Sequence[str], alternatives: int) -> None:
    """Raise Refusal for more texts or alternatives than the server gives."""
    if len(texts) > service.config.texts:
        raise Refusal(400, f"Invalid request: request ({len(texts)}) exceeds text limit ({service.config.texts})")
    if alternatives >= service.config.max_beam:
        most = service.config.max_beam - 1
        raise Refusal(400, f"Invalid request: alternatives parameter must be <= {most}")
