"""Tell words that a training never had: those of a source, and those that a translation invents.

Inflections and compounds of known words count as known. The endings of a language are read from its words: they tell
neighbours in the sorted list apart, as in "Datei", "Dateien" and "Dateiname". Letters are compared without their marks,
and those of Korean syllables each by itself, so that "Häuser" is a form of "Haus", and "합니다" one of "하다".
"""

import base64
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterable
from functools import cached_property, lru_cache
from itertools import pairwise

import regex

from dragoman.data.unspaced import UNSPACED
from dragoman.storage.records import MAX_RECORD_SIZE
from dragoman.text import verbatim
from dragoman.text.inflection import shared_stem
from dragoman.text.known_words import KnownWords, without_marks

TOKEN = regex.compile(r"\w++")  # with the marks of Indic scripts, which `re` takes for no part of a word
# No number, no identifier, and nothing of a script without spaces, where nothing tells words apart.
WORD = regex.compile(rf"(?V1)(?!.*[{UNSPACED}])\p{{L}}[\p{{L}}\p{{M}}]*+")
MAX_SIZE = 150_000  # characters of a record
STEM, MAX_ENDING = 4, 6  # letters that forms of a word share at least, and that an ending has at most
FREQUENT = 0.0015  # of the words have an ending that counts
MEMBER, MAX_MEMBERS = 4, 4  # letters of each part of a compound, and how many parts it has
LINKS = ("", "s", "n", "e", "es", "en", "er")  # between the parts of a German compound
SHORTEST, LONGEST = 5, 60  # letters of a word that is looked at; a syllable of Korean has two or three
GRAM = 4  # letters in a row: a word all of whose rows are known may well be a true one
HEAD = 4  # letters that a name or a loan-word shares with the word of the source, in any spelling:
SOUNDS, DOUBLED = str.maketrans("ckqzxwyj", "cccssvii", "h"), re.compile(r"(.)\1")  # "Gidalthi" is Giddalti
CACHED = 1 << 14  # words


class WordForms:
    """The words of one side of a training corpus, without regard to case, and what can be formed of them."""

    def __init__(self, words: Iterable[str]):
        """Take the words, the most frequent first."""
        self.by_frequency = tuple(dict.fromkeys(map(str.casefold, words)))
        self.words = frozenset(self.by_frequency)
        self._is_formed = lru_cache(CACHED)(self._find_parts)

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> "WordForms":
        """Return the words of texts, in any order."""
        counts = Counter(token for text in texts for token in TOKEN.findall(text.casefold()))
        return cls(sorted(filter(WORD.fullmatch, counts), key=lambda word: (-counts[word], word)))

    def packed(self) -> str:
        """Return the words for a record: the same ones make the same text. Of too many, the rarest are left out."""
        words = self.by_frequency
        while True:
            text = "".join(f"{word}\n" for word in sorted(words)).encode()
            packed = base64.b64encode(gzip.compress(text, mtime=0)).decode()
            if len(packed) <= MAX_SIZE and len(text) <= MAX_RECORD_SIZE:
                return packed
            words = words[: len(words) * 9 // 10]

    @classmethod
    def unpack(cls, packed: str) -> "WordForms":
        """Return packed words, which a stranger may have written. Raise ValueError where they are no such text."""
        try:
            with gzip.open(io.BytesIO(base64.b64decode(packed, validate=True))) as file:
                text = file.read(MAX_RECORD_SIZE + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(str(error)) from None
        if len(text) > MAX_RECORD_SIZE:
            raise ValueError(f"it has more than {MAX_RECORD_SIZE:,} bytes")
        return cls(text.decode().splitlines())

    @cached_property
    def keys(self) -> frozenset[str]:
        """The words without their marks."""
        return frozenset(map(without_marks, self.words))

    @cached_property
    def endings(self) -> frozenset[str]:
        """What tells enough of the keys from their neighbours in the sorted list, and ''."""
        counts: Counter[str] = Counter()
        for pair in pairwise(sorted(self.keys)):
            stem = shared_stem(*pair)
            if stem >= STEM and max(map(len, pair)) <= stem + MAX_ENDING:
                counts.update(key[stem:] for key in pair)
        return frozenset(["", *(ending for ending, count in counts.items() if count >= FREQUENT * len(self.keys))])

    @cached_property
    def stems(self) -> frozenset[str]:
        """What may stand before an ending: a key, or one without its ending."""
        return frozenset(key[:end] for key in self.keys for end in stem_ends(key) if key[end:] in self.endings)

    @cached_property
    def grams(self) -> frozenset[str]:
        """All GRAM letters in a row of the keys."""
        return frozenset(gram for key in self.keys for gram in grams(key))

    def __contains__(self, word: str) -> bool:
        return word.casefold() in self.words

    def explains(self, word: str) -> bool:
        """Return whether a word is known, but for case and accents, or an inflection or compound of known ones."""
        return word in self or self._is_formed(word)

    def _find_parts(self, word: str) -> bool:
        return len(word) <= LONGEST and self._is_compound(without_marks(word), MAX_MEMBERS)

    def _is_compound(self, key: str, most: int) -> bool:
        """Return whether a key is a form of a known one, perhaps with other known ones in front of it."""
        if key in self.keys or any(key[end:] in self.endings and key[:end] in self.stems for end in stem_ends(key)):
            return True
        return most > 1 and any(
            self._is_linked(key[:end]) and self._is_compound(key[end:], most - 1)
            for end in range(MEMBER, len(key) - MEMBER + 1)
        )

    def _is_linked(self, key: str) -> bool:
        """Return whether a key is a known one with what links it to the next part of a compound."""
        return any(
            key.endswith(link) and len(key) >= MEMBER + len(link) and key.removesuffix(link) in self.keys
            for link in LINKS
        )


@lru_cache(maxsize=8)  # models of a process: many translators share the words of one
def forms_of(known: KnownWords) -> WordForms:
    """Return the words of the sources that a model has read, with what can be formed of them."""
    return WordForms.from_texts(known.words)


def unseen_words(text: str, known: WordForms, usual: KnownWords) -> list[str]:
    """Return the words of a source that the sources of the training neither had nor explain, in their order.

    usual: the same words as they are usually written, which tells what may be a name. Names are left out, and so is
    what must not change. Where nouns have capitals, as in German, names are taken for nouns.
    """
    words = unexplained(text, known)
    if not words:
        return words
    names = {word for start, end in usual.find_names(text) for word in TOKEN.findall(text[start:end])}
    if not text.isupper():
        names.update(word for word in words if word.isupper() or (word[0].isupper() and not usual.nouns_have_capitals))
    return [word for word in words if word not in names]


def invented_words(source: str, translation: str, known: WordForms) -> list[str]:
    """Return the words of a translation that neither the targets of the training explain nor its source.

    The source explains its own words, also with an ending, and what begins so in another spelling: names, loan-words.
    A word without unknown GRAM letters in a row is left out.
    """
    words = unexplained(translation, known)
    if not words:
        return words
    keys = {without_marks(word) for word in TOKEN.findall(source)}
    heads = {head(key) for key in keys}
    return [
        word
        for word in words
        if not known.grams.issuperset(grams(key := without_marks(word)))
        and head(key) not in heads
        and not any(key[:end] in keys and key[end:] in known.endings for end in range(1, len(key) + 1))
    ]


def unexplained(text: str, known: WordForms) -> list[str]:
    """Return the words of a text that known ones do not explain, without short ones and what must not change."""
    if all(map(known.explains, {*TOKEN.findall(text.casefold())} - known.words)):
        return []  # as of nearly all texts
    words = [match for match in TOKEN.finditer(text) if WORD.fullmatch(match[0]) and not known.explains(match[0])]
    fixed = verbatim.find(text) if words else []
    return [
        match[0]
        for match in words
        if len(without_marks(match[0])) >= SHORTEST
        and not any(each.start < match.end() and match.start() < each.end for each in fixed)
    ]


def stem_ends(key: str) -> range:
    """Return where the stem of a word may end."""
    return range(max(STEM, len(key) - MAX_ENDING), len(key) + 1)


def grams(key: str) -> set[str]:
    """Return the GRAM letters in a row of a word, whose edges count as letters."""
    return {f" {key} "[start : start + GRAM] for start in range(len(key) + 3 - GRAM)}


def head(key: str) -> str:
    """Return the beginning of a word, with the same letter for those that stand for the same in other languages."""
    return DOUBLED.sub(r"\1", key.translate(SOUNDS))[:HEAD]
