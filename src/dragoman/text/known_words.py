"""Record which words the sources of a training had, and find names in a text: words that its model has never read."""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from dragoman.storage.records import MAX_RECORD_SIZE, read_listed

WORD = re.compile(r"[^\W\d_](?:[\w'’.-]*[^\W_])?")
POSSESSIVE = re.compile(r"['’](?:s|S)?$")
SENTENCE_END = re.compile(r"[.!?:…。！？]['\"”’»)\]]*\s*$")
SHOUTED = 0.6  # of the words of a text begin with capitals: a title, which says nothing of names
NOUNS = 0.4  # of all words have capitals where a language writes all nouns so


class KnownWords:
    """The words of the sources that a model was trained on, as they are usually written inside a sentence."""

    RECORD: ClassVar = "words.txt"  # in a model folder: a word on each line

    def __init__(self, words: Iterable[str]):
        self.words = tuple(words)

    def as_text(self) -> str:
        """Return the record, or as many of its words as one may have."""
        lines = [f"{word}\n" for word in self.words]
        while sum(len(line.encode()) for line in lines) > MAX_RECORD_SIZE:
            lines = lines[: len(lines) * 9 // 10]  # the rarest come last
        return "".join(lines)

    @classmethod
    def load(cls, folder: Path) -> "KnownWords | None":
        """Read the record of a folder, None without one. Raise DragomanError where it is too large, or not UTF-8."""
        text = read_listed(folder / cls.RECORD)
        return None if text is None else cls(text.splitlines())

    @cached_property
    def folded(self) -> frozenset[str]:
        """The words without regard to case."""
        return frozenset(word.casefold() for word in self.words)

    @cached_property
    def nouns_have_capitals(self) -> bool:
        """Whether capitals say nothing of names, as in German."""
        return sum(word[:1].isupper() for word in self.words) > NOUNS * len(self.words)

    def find_names(self, text: str) -> list[tuple[int, int]]:
        """Return where names begin and end: words with a capital inside a sentence that are not known.

        At the beginning of a sentence it is one if another one follows, or if it has a capital inside, as "McNeil".
        """
        if self.nouns_have_capitals:
            return []
        words = [(match.start(), match.start() + len(POSSESSIVE.sub("", match[0]))) for match in WORD.finditer(text)]
        if sum(text[start].isupper() for start, _ in words) > SHOUTED * len(words):
            return []
        unknown = [self._may_be_name(text[start:end]) for start, end in words]
        names: list[tuple[int, int]] = []
        for index, (start, end) in enumerate(words):
            begins = index == 0 or bool(SENTENCE_END.search(text[words[index - 1][0] : start]))
            if names and unknown[index] and text[names[-1][1] : start] == " ":
                names[-1] = names[-1][0], end
            elif unknown[index] and (
                not begins
                or text[start + 1 : end] != text[start + 1 : end].lower()
                or (index + 1 < len(words) and unknown[index + 1])
            ):
                names.append((start, end))
        return names

    def _may_be_name(self, word: str) -> bool:
        """Return whether a word has a capital, is not known, and is no compound with a known part, as "Ubuntu-like"."""
        return (
            len(word) > 1
            and word[0].isupper()
            and not any(part.islower() and part in self.folded for part in word.split("-"))
            and not any(map(str.isdigit, word))
            and word.casefold() not in self.folded
            and word.rstrip("s").casefold() not in self.folded
        )


def known_words(texts: Sequence[str]) -> KnownWords:
    """Return the words of texts, the most frequent first, each as it is written most often inside a sentence."""
    forms: dict[str, dict[str, int]] = {}
    for text in texts:
        for index, match in enumerate(WORD.finditer(text)):
            word = POSSESSIVE.sub("", match[0])
            counts = forms.setdefault(word.casefold(), {})
            shown = word if index else word.casefold()
            counts[shown] = counts.get(shown, 0) + 1
    ordered = sorted(forms.values(), key=lambda counts: -sum(counts.values()))
    return KnownWords(max(counts, key=lambda form: counts[form]) for counts in ordered)
