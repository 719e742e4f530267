"""Read texts in capitals, Title Case and mIxEd cAsE as sentences, as training sources are; and write capitals again.

How a word is written inside a sentence is what the record of a model says (`KnownWords`).
"""

import re
from typing import Literal

import regex

from dragoman.text.known_words import SENTENCE_END, WORD, KnownWords, without_possessive
from dragoman.text.verbatim.detect import KINDS, find
from dragoman.text.verbatim.kinds import Kinds

Casing = Literal["capitals", "title", "mixed"]
CAPITALS = 0.9  # of the letters with a case
TITLE, FEWEST_IN_TITLE = 0.8, 3  # of the words begin with a capital, and how many words there are at least
SHORT = 4  # letters that a longer word has, which is none of grammar
MIXED = regex.compile(r"\p{Ll}\p{Lu}")  # letters in such a word
IDENTIFIER: Kinds = frozenset(["identifier"])  # "openFile", and any word of mixed case
SPEECH = re.compile(r"[,，]\s?[\"'“‘«„「]$")  # a sentence begins after it


def outside(text: str, kinds: Kinds = KINDS) -> list[tuple[str, bool]]:
    """Return a text in pieces, each with whether it is a placeholder, which must not change."""
    pieces, end = list[tuple[str, bool]](), 0
    for placeholder in find(text, kinds):
        pieces += [(text[end : placeholder.start], False), (placeholder.text, True)]
        end = placeholder.end
    return [*pieces, (text[end:], False)]


def casing_of(text: str, words: KnownWords | None = None, kinds: Kinds = KINDS) -> Casing | None:
    """Return how the letters of a text are cased, if that is not as in a sentence; placeholders do not count.

    words: of the sources of a training. Headings where a common word has a small letter, and those without one, such as
    "Page Setup", are in many corpora, and so they are as in a sentence here. So are identifiers, unless one of them is
    a common word, and most words look as they do.
    """
    if not any(map(str.isupper, text)):
        return None
    if words and MIXED.search(text):
        all_words = _words(text, kinds - IDENTIFIER)
        small = [usual for word in all_words if MIXED.search(word) and (usual := words.usual(word) or "").islower()]
        if len(small) > len(all_words) / 2 and not words.common.isdisjoint(small):
            return "mixed"
    all_words = _words(text, kinds)
    letters = [letter for word in all_words for letter in word if letter.lower() != letter.upper()]
    if len(letters) > 1 and sum(map(str.isupper, letters)) >= CAPITALS * len(letters):
        is_known = not words or any(words.usual(word) for word in all_words)  # else they are names and codes
        return "capitals" if is_known else None
    cased = [word for word in all_words if word[0].lower() != word[0].upper()]
    if len(cased) < FEWEST_IN_TITLE or sum(word[0].isupper() for word in cased) < TITLE * len(cased):
        return None
    short = [word.lower() for word in cased[1:] if word[0].isupper() and len(word) < SHORT]
    return "title" if any(word in words.common if words else True for word in short) else None


def _words(text: str, kinds: Kinds) -> list[str]:
    """Return the words of a text outside of placeholders."""
    return [match[0] for piece, fixed in outside(text, kinds) if not fixed for match in WORD.finditer(piece)]


def sentence_case(text: str, casing: Casing, words: KnownWords | None, kinds: Kinds = KINDS) -> str:
    """Return a text that is cased so as a sentence: each word as the sources of a training have it.

    words: of these sources. Unknown words stay, for they may be names or identifiers; only those in capitals get
    one capital if they may be names, and small letters if not. Without `words`, all get small letters.
    """
    result, begins = list[str](), True
    for piece, fixed in outside(text, kinds - IDENTIFIER if casing == "mixed" else kinds):
        if fixed:
            result.append(piece)
            begins = False
            continue
        end = 0
        for match in WORD.finditer(piece):
            between = piece[end : match.start()]
            begins = begins or bool(SENTENCE_END.search(between) or SPEECH.search(between))
            word = _usual(match[0], casing, words)
            result += [between, word[:1].upper() + word[1:] if begins and word != match[0] else word]
            begins, end = False, match.end()
        result.append(piece[end:])
    return "".join(result)


def _usual(word: str, casing: Casing, words: KnownWords | None) -> str:
    """Return a word as it is usually written; if it is unknown, its parts; an unknown part as `sentence_case` says."""
    small = word.lower() if len(word.lower()) == len(word) else word  # "İ" would become two letters
    if not words:
        return small
    stem = without_possessive(word)
    if usual := words.usual(stem):
        return usual + small[len(stem) :]
    name = word[0] + small[1:]
    if casing == "capitals" and words.may_be_name(name[: len(stem)]):
        return name
    parts = zip(word.split("-"), (small if casing == "capitals" else word).split("-"), strict=True)
    return "-".join(words.usual(part) or unknown for part, unknown in parts)


def as_sentence(text: str, words: KnownWords | None = None, kinds: Kinds = KINDS) -> str:
    """Return a text as a model reads it: as a sentence, if it is in capitals, Title Case or mixed case."""
    casing = casing_of(text, words, kinds)
    return sentence_case(text, casing, words, kinds) if casing else text


def in_capitals(text: str, kinds: Kinds = KINDS) -> str:
    """Return a text in capitals, but for its placeholders."""
    return "".join(piece if fixed else piece.upper() for piece, fixed in outside(text, kinds))
