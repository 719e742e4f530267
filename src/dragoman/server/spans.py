"""Say of a text without markup where its segments are in both languages, and what the model says of its words."""

from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import NamedTuple

from dragoman.documents.document import as_line
from dragoman.memory.provenance import Shares
from dragoman.server.texts import Translated
from dragoman.translation.annotate import judge_words
from dragoman.translation.translation import Translation
from dragoman.translation.translator import Translator

Span = tuple[int, int]


class Piece(NamedTuple):
    """A part of a text that was translated at once, or copied."""

    source: Span  # where it is in the text, in characters
    target: Span  # where its translation is in that of the text
    tokens: tuple[int, ...] = ()  # of its translation, as the search found them; () for a copy
    confidence: float | None = None  # in its translation; None for a copy, and where nobody knows


class Words(NamedTuple):
    """What the model says of the words of a translation."""

    scores: list[tuple[str, float]]  # the words with their log-probabilities in nats, and '' for the ends of sentences
    others: list[float]  # of each word: the most that another word in its place may have as its probability
    confidences: list[float] | None  # of each word: that it stands in a good place; None for a model that cannot tell
    links: list[tuple[int, int]]  # pairs of a word of the text and the word that translates it, counted from 0
    origins: list[Shares]  # of each word: the pairs of the memory that speak for it


def find_segments(translated: Translated) -> Iterator[Piece]:
    """Yield the segments of a text, in order: what was translated at once; none of one that stayed or was left out."""
    if not (translated.translations and translated.text):
        return
    document, shift = translated.document, 0  # how much longer the translation is so far
    changed = {
        change.passage.start: change.translations[0]
        for change in document.changes([translation.text for translation in translated.translations])
    }
    for passage, translation in zip(document.passages, translated.translations, strict=True):
        new = changed.get(passage.start, passage.texts[0])
        yield from segments_of_line(passage.texts[0], new, translation, passage.start, passage.start + shift)
        shift += len(new) - (passage.end - passage.start)


def segments_of_line(text: str, new: str, translation: Translation, at: int, there: int) -> Iterator[Piece]:
    """Yield the segments of a line and its translation, which begin at these characters.

    The whole line is one segment where the translation was changed after it was put together, or made through another
    language.
    """
    source, target = (list(column) for column in zip(*translation.segments, strict=True))
    confidences = translation.confidences or (None,) * len(source)
    changed = "".join(source).strip() != text or as_line("".join(target)) != new or new != "".join(target)
    if changed or len(confidences) != len(source):
        tokens = tuple(chain.from_iterable(translation.tokens)) if new != text else ()
        yield Piece((at, at + len(text)), (there, there + len(new)), tokens, translation.confidence)
        return
    for part, output, tokens, sure in zip(source, target, translation.tokens, confidences, strict=True):
        yield Piece((at, at + len(part.rstrip())), (there, there + len(output.rstrip())), tokens, sure)
        at, there = at + len(part), there + len(output)


def with_copies(text: str, segments: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the segments of a text and what was copied between them, in order; at last an empty piece at the end."""
    at = there = 0
    for segment in segments:
        yield from copies(text[at : segment.source[0]], at, there)
        yield segment
        at, there = segment.source[1], segment.target[1]
    yield from copies(text[at:], at, there)
    yield Piece((len(text), len(text)), (there + len(text) - at,) * 2)


def copies(gap: str, at: int, there: int) -> Iterator[Piece]:
    """Yield what stands between two segments as a piece if it has words; at, there: where it begins."""
    if gap.strip():
        first, last = len(gap) - len(gap.lstrip()), len(gap.rstrip())
        yield Piece((at + first, at + last), (there + first, there + last))


def annotate(
    translated: Translated, translator: Translator, tag: str, scores: bool, others: bool, links: bool, origins: bool
) -> Words:
    """Return what a model says of the words of a text, which are counted over all of its lines.

    tag: what stood in front of each segment; scores, others, links, origins: which of them to compute. Words that were
    copied have the log-probability 0. Their confidences come with the scores.
    """
    text, new = translated.document.original, translated.text
    pieces = list(with_copies(text, find_segments(translated)))
    whole = [
        (text[piece.source[0] : following.source[0]], new[piece.target[0] : following.target[0]])
        for piece, following in pairwise(pieces)
    ]
    tokens = [piece.tokens for piece in pieces[:-1]]
    annotator, confidence = translator.annotator, translator.confidence
    words = annotator.word_scores([whole], [tag], [tokens])[0] if scores else []
    outputs, sure = [output for _, output in whole], [piece.confidence for piece in pieces[:-1]]
    return Words(
        words,
        annotator.others([whole], [tag], [tokens])[0] if others else [],
        judge_words(confidence, outputs, sure, words) if confidence else None,
        annotator.links([whole], [tag], [tokens])[0] if links else [],
        annotator.origins([whole], translator.memory, [tag], [tokens])[0] if origins and translator.memory else [],
    )
