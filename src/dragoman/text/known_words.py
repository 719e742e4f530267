"""Record which words the sources of a training had, and find names in a text: words that its model has never read.

Of the names that it has read, the record says which ones it copies: such a name can stand in for another one.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from dragoman.storage.records import MAX_RECORD_SIZE, read_listed
from dragoman.text.particles import swap_noun

WORD = re.compile(r"[^\W\d_](?:[\w'’.-]*[^\W_])?")
POSSESSIVE = re.compile(r"['’](?:s|S)?(?!\w)")
SENTENCE_END = re.compile(r"[.!?:…。！？]['\"”’»)\]]*\s*$")
TITLES = ("Dr", "Mr", "Mrs", "Ms", "Prof", "St", "Jr", "Sr")
TITLE_END = re.compile(rf"(?<![\w.])(?:[A-Z]|{'|'.join(TITLES)})\.\s*$")  # no end of a sentence
NUMBER_AFTER = re.compile(r"\s(?=\d)[\d.,:/-]*\d[A-Za-z]?(?!\w)")  # of "ISO 9001", which is one name
CURRENCIES = frozenset("EUR USD GBP CHF JPY KRW CNY INR".split())
PARTICLE = re.compile(r"\s(?:(?:al|bin|da|de|del|den|der|di|du|el|la|le|van|von|y)[\s-])?")  # inside a name
ARTICLE = re.compile("^(?:al|el|ul)-(?=.)")  # of an Arabic name
SHOUTED = 0.6  # of the known words of a text begin with capitals: a title, which says nothing of names
NOUNS = 0.4  # of all words have capitals where a language writes all nouns so
COMMON = 50  # words
COPIED = "\tcopied"  # what follows such a name in the record
OFTEN, KEPT_SHARE, CANDIDATES = 5, 0.9, 12  # how often a name is read, and in what share of its pairs it is copied


class KnownWords:
    """The words of the sources that a model was trained on, as they are usually written inside a sentence."""

    RECORD: ClassVar = "words.txt"  # in a model folder: a word on each line

    def __init__(self, words: Iterable[str], copied: Iterable[str] = ()):
        """Take the words, the most frequent first; copied: names of them that the model copies, the surest first."""
        self.words, self.copied = tuple(words), tuple(copied)

    def as_text(self) -> str:
        """Return the record, or as many of its words as one may have."""
        others = [word for word in self.words if word not in self.copied]
        lines = [*(f"{word}{COPIED}\n" for word in self.copied), *(f"{word}\n" for word in others)]
        while sum(len(line.encode()) for line in lines) > MAX_RECORD_SIZE:
            lines = lines[: len(lines) * 9 // 10]  # the rarest come last
        return "".join(lines)

    @classmethod
    def load(cls, folder: Path) -> "KnownWords | None":
        """Read the record of a folder, None without one. Raise DragomanError where it is too large, or not UTF-8."""
        text = read_listed(folder / cls.RECORD)
        if text is None:
            return None
        lines = text.splitlines()
        copied = [line.removesuffix(COPIED) for line in lines if line.endswith(COPIED)]
        return cls([line.removesuffix(COPIED) for line in lines], copied)

    @cached_property
    def folded(self) -> dict[str, str]:
        """The words by what they are without regard to case."""
        return {word.casefold(): word for word in self.words}

    @cached_property
    def common(self) -> frozenset[str]:
        """The most frequent words that have small letters."""
        return frozenset(word for word in self.words[:COMMON] if word.islower())

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The rank of each word in small letters by frequency, from 1 on."""
        return {word: rank for rank, word in reversed(list(enumerate(map(str.casefold, self.words), start=1)))}

    def rank(self, word: str) -> int:
        """Return the rank of a word by its frequency, the most frequent first; behind all others if it is not known."""
        return self.ranks.get(word.casefold(), len(self.words) + 1)

    @cached_property
    def unmarked(self) -> dict[str, str]:
        """The words in small letters by what they are without their marks, of several the most frequent."""
        return {without_marks(word): word for word in reversed(self.words) if word.islower()}

    def usual(self, word: str) -> str | None:
        """Return a word as it is usually written inside a sentence; None for one that is not known.

        Words in capitals may lack the marks that small letters have: "ELEVE" is "élève".
        """
        usual = self.folded.get(word.casefold())
        return self.unmarked.get(without_marks(word)) if usual is None and word.isupper() else usual

    @cached_property
    def nouns_have_capitals(self) -> bool:
        """Whether capitals say nothing of names, as in German."""
        return sum(word[:1].isupper() for word in self.words) > NOUNS * len(self.words)

    def find_names(self, text: str) -> list[tuple[int, int]]:
        """Return where names begin and end: words with a capital inside a sentence that are not known.

        At the beginning of a sentence it is one if another one follows, or "'s", or if it has a capital inside, as
        "McNeil"; in a title, in the latter case alone. Words of a script without capitals are names among those of
        one that has them, and an abbreviation in capitals with its number is one: "ISO 9001".
        """
        return self._find_unknown(text)[0]

    def find_doubtful(self, text: str) -> list[str]:
        """Return the unknown words at the beginning of sentences that may be names, or may be none."""
        return [text[start:end] for start, end in self._find_unknown(text)[1]]

    def _find_unknown(self, text: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return where names stand, and the unknown words that may be none."""
        names: list[tuple[int, int]] = []
        doubtful: list[tuple[int, int]] = []
        words = [(match.start(), match.start() + len(without_possessive(match[0]))) for match in WORD.finditer(text)]
        foreign = [] if text.isascii() else [(start, end) for start, end in words if is_uncased(text[start:end])]
        if 2 * len(foreign) >= len(words):
            foreign = []
        if not foreign and (self.nouns_have_capitals or not any(text[start].isupper() for start, _ in words)):
            return names, doubtful
        unknown = [
            ((start, end) in foreign and text[start:end] not in self.folded) or self.may_be_name(text[start:end])
            for start, end in words
        ]
        known = [text[start] for (start, _), is_unknown in zip(words[1:], unknown[1:], strict=True) if not is_unknown]
        if sum(text[start:end].isupper() for start, end in words) > SHOUTED * len(words):
            return names, doubtful
        if sum(map(str.isupper, known)) > SHOUTED * len(known):
            return [
                word for word, new in zip(words, unknown, strict=True) if new and has_capital_inside(text, *word)
            ], []
        for index, (start, end) in enumerate(words):
            before = text[words[index - 1][0] : start] if index else ""
            begins = index == 0 or bool(SENTENCE_END.search(before) and not TITLE_END.search(before))
            number = NUMBER_AFTER.match(text, end) if self._is_abbreviation(text[start:end]) else None
            if (
                names
                and (unknown[index] or self._is_surname(text[start:end]))
                and PARTICLE.fullmatch(text, names[-1][1], start)
            ):
                names[-1] = names[-1][0], end
            elif unknown[index] and (
                not begins
                or has_capital_inside(text, start, end)
                or (start, end) in foreign
                or POSSESSIVE.match(text, end)
                or (index + 1 < len(words) and unknown[index + 1])
            ):
                names.append((start, number.end() if number else end))
            elif number:
                names.append((start, number.end()))
            elif unknown[index]:
                doubtful.append((start, end))
        return names, doubtful

    def _is_surname(self, word: str) -> bool:
        """Return whether a word is usually written with a capital, so that it belongs to a name in front of it."""
        return word[0].isupper() and self.usual(word) == word

    def _is_abbreviation(self, word: str) -> bool:
        """Return whether a word in capitals is one that is not known, or only so."""
        return len(word) > 1 and word.isupper() and self.usual(word) in (None, word) and word not in CURRENCIES

    def may_be_name(self, word: str) -> bool:
        """Return whether a word has a capital, is not known, and is no compound with a known part, as "Ubuntu-like"."""
        word = ARTICLE.sub("", word)
        return (
            len(word) > 1
            and word[0].isupper()
            and not any(part.islower() and part in self.folded for part in word.split("-"))
            and not any(map(str.isdigit, word))
            and word not in TITLES
            and word not in CURRENCIES
            and word.casefold() not in self.folded
            and word.rstrip("s").casefold() not in self.folded
        )


def without_marks(word: str) -> str:
    """Return a word in small letters without their marks; the dotless i of Turkish gets a dot, as in "I"."""
    letters = unicodedata.normalize("NFD", word.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).replace("ı", "i")


def without_possessive(word: str) -> str:
    """Return a word without the "'s" at its end."""
    return re.sub(rf"{POSSESSIVE.pattern}$", "", word)


def is_uncased(word: str) -> bool:
    """Return whether a word is of a script that has no capitals."""
    return word.lower() == word.upper()


def has_capital_inside(text: str, start: int, end: int) -> bool:
    """Return whether the word text[start:end] has a capital after its first letter."""
    return any(map(str.isupper, text[start + 1 : end]))


def copy_pattern(name: str) -> str:
    """Return a pattern for a name in a translation, and the ending that it may have there."""
    return rf"(?<![A-Za-z0-9]){re.escape(name)}(?:s|[가-힣]+)?(?![A-Za-z0-9])"


def has_copy(text: str, name: str) -> bool:
    """Return whether a translation has a name exactly once."""
    return len(re.findall(copy_pattern(name), text)) == 1


def replace_copies(text: str, name: str, other: str) -> str:
    """Return a translation with another name in the place of a name, and the Korean particle that fits it."""
    return re.sub(copy_pattern(name), lambda match: swap_noun(match[0], name, other), text)


def known_words(texts: Sequence[str]) -> KnownWords:
    """Return the words of texts, the most frequent first, each as it is written most often inside a sentence."""
    forms: dict[str, dict[str, int]] = {}
    for text in texts:
        for index, match in enumerate(WORD.finditer(text)):
            word = without_possessive(match[0])
            counts = forms.setdefault(word.casefold(), {})
            shown = word if index else word.casefold()
            counts[shown] = counts.get(shown, 0) + 1
    ordered = sorted(forms.values(), key=lambda counts: -sum(counts.values()))
    return KnownWords(max(counts, key=lambda form: counts[form]) for counts in ordered)


def often_copied(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return names that stand inside many sources, and nearly always in their targets, too; the most frequent first."""
    read: Counter[str] = Counter()
    copied: Counter[str] = Counter()
    for source, target in pairs:
        words = [match[0] for match in WORD.finditer(source)][1:]
        names = {word for word in words if len(word) > 2 and word[0].isupper() and word.isalnum()}
        read.update(names)
        if names:
            copied.update(names.intersection(match[0] for match in WORD.finditer(target)))
    often = [name for name, count in read.most_common() if count >= OFTEN and copied[name] >= KEPT_SHARE * count]
    return often[:CANDIDATES]
