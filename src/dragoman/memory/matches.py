"""Find the approved pair whose source is a text, or nearly."""

import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial

import numpy as np

from dragoman.memory.pairs import ApprovedPair
from dragoman.text import verbatim

# What may differ where texts are compared but for it: all that stays as it is in a translation, and plain numbers.
CHANGING = verbatim.WITH_NUMBERS | {verbatim.find_matches(r"\d+(?:[.,:]\d+)*")}
WORD = re.compile(r"\w+")
LEAST_ALIKE = 0.5  # of a match that is worth a word
COMPARED = 8  # sources with the most words in common


@dataclass(frozen=True)
class Match:
    """An approved pair whose source is like a text."""

    number: int  # of the pair in its memory
    pair: ApprovedPair
    similarity: float  # from 0 to 1, of the words; 1.0: the same text


def normal(text: str) -> str:
    """Return a text as exact matches compare it: in NFC, with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def words_of(text: str) -> list[str]:
    """Return the words of a text in small letters, without marks."""
    return WORD.findall(unicodedata.normalize("NFC", text).casefold())


def without_changing(text: str) -> str:
    """Return a text with a mark for each number and placeholder."""
    parts, end = [], 0
    for each in verbatim.find(text, CHANGING):
        parts.append(text[end : each.start])
        end = each.end
    return "\0".join([*parts, text[end:]])


def swap(pair: ApprovedPair, text: str) -> str | None:
    """Return the target of a pair with the numbers and placeholders of a text in the place of its source's.

    text: the source, but for these. None where one of them is twice in the pair, or is written in another way in its
    target: then nobody knows where it belongs.
    """
    before, after = ([each.text for each in verbatim.find(side, CHANGING)] for side in (normal(pair.source), text))
    places = verbatim.find(pair.target, CHANGING)
    if sorted(before) != sorted(each.text for each in places) or len(set(before)) < len(before):
        return None
    values, parts, end = dict(zip(before, after, strict=True)), list[str](), 0
    for each in places:
        parts += [pair.target[end : each.start], values[each.text]]
        end = each.end
    return "".join([*parts, pair.target[end:]])


Key = tuple[str, str, str]  # a text, the tag in front of it, and that of its translation


class Matches:
    """The sources of approved pairs by their text and by their words."""

    def __init__(self, pairs: Sequence[ApprovedPair | None]):
        """Take the pairs by number, of which there may be more later; None for those that were forgotten."""
        self.pairs, self.count = pairs, 0  # how many have been read
        self.by_text: defaultdict[Key, list[int]] = defaultdict(list)
        # Without numbers and placeholders, which take time to find: filled in when somebody asks.
        self.by_rest: defaultdict[Key, list[int]] = defaultdict(list)
        self.rest_count = 0
        self.by_word: defaultdict[str, array[int]] = defaultdict(partial(array, "q"))

    def refresh(self) -> None:
        """Take the pairs that are there since."""
        for number in range(self.count, len(self.pairs)):
            if pair := self.pairs[number]:
                source = normal(pair.source)
                self.by_text[source, pair.tag, pair.target_tag].append(number)
                for word in set(words_of(source)):
                    self.by_word[word].append(number)
        self.count = len(self.pairs)

    def exact(self, text: str, tag: str = "", target_tag: str = "") -> Match | None:
        """Return the pair whose source is a text, the last one of several; None for none."""
        return self._last(self.by_text.get((normal(text), tag, target_tag), []))

    def swapped(self, text: str, tag: str = "", target_tag: str = "") -> str | None:
        """Return what was approved for a text with other numbers and placeholders, with those of the text.

        None where there is no such pair, or nobody knows where they belong.
        """
        for number in range(self.rest_count, len(self.pairs)):
            if pair := self.pairs[number]:
                self.by_rest[without_changing(normal(pair.source)), pair.tag, pair.target_tag].append(number)
        self.rest_count = len(self.pairs)
        match = self._last(self.by_rest.get((without_changing(normal(text)), tag, target_tag), []))
        return swap(match.pair, normal(text)) if match else None

    def nearest(self, text: str, tag: str = "", target_tag: str = "") -> Match | None:
        """Return the pair whose source is a text, else the one that is most like it, if it is alike enough."""
        if match := self.exact(text, tag, target_tag):
            return match
        words = words_of(text)
        common = np.zeros(len(self.pairs))
        for word in dict.fromkeys(words):
            numbers = np.array(self.by_word.get(word, ()), np.int64)
            numbers = numbers[numbers < len(common)]  # others may have come meanwhile
            common[numbers] += 1 / (1 + len(numbers))  # rare words say more
        likely = np.argpartition(-common, COMPARED)[:COMPARED] if len(common) > COMPARED else np.arange(len(common))
        best: Match | None = None
        for number in sorted(likely[common[likely] > 0].tolist(), key=lambda number: (-common[number], number)):
            pair = self.pairs[number]
            if pair is None or (pair.tag, pair.target_tag) != (tag, target_tag):
                continue
            # Below 1: marks or capitals may differ.
            similarity = min(SequenceMatcher(None, words, words_of(pair.source), autojunk=False).ratio(), 0.99)
            if similarity > (best.similarity if best else LEAST_ALIKE):
                best = Match(number, pair, similarity)
        return best

    def _last(self, numbers: Sequence[int]) -> Match | None:
        return next((Match(number, pair, 1.0) for number in reversed(numbers) if (pair := self.pairs[number])), None)
