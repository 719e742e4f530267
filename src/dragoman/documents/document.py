"""A document as its texts and what stands between them. Nothing is written anew but the texts that change."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from dragoman.documents.encoding import Encoding

UNREADABLE = re.compile("[\0\ud800-\udfff]")  # NUL, and what stands for bytes that are no characters
SURROGATES = re.compile("[\ud800-\udfff]")
BREAKS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


class Fault(NamedTuple):
    """What was left as it is although it may be text, and why. `line` counts from 1; 0: the document as a whole."""

    line: int
    text: str


class Kept(NamedTuple):
    """A span of the original that stays inside a translation, such as a tag."""

    start: int
    end: int


Parts = Iterable[str | Kept]  # what stands in a slot's place: new text, and spans of the original


@dataclass(frozen=True)
class Slot:
    """A span of the original, the texts that it holds, and how translations of all of them are written in its place.

    Each translation is one line without space around it. A slot may lie inside a span that another one keeps.
    """

    start: int
    end: int
    texts: tuple[str, ...]
    written: Callable[[Sequence[str]], Parts]


@dataclass(frozen=True)
class Found:
    """What the reader of a format found."""

    slots: list[Slot] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


class Document:
    """The texts of a document, and the document with other texts in their places."""

    def __init__(self, original: str, encoding: Encoding, found: Found):
        slots = sorted(found.slots, key=lambda slot: (slot.start, -slot.end))
        bad = [slot for slot in slots if any(map(UNREADABLE.search, slot.texts))]
        self.original, self.encoding = original, encoding
        self.slots = [slot for slot in slots if not any(map(UNREADABLE.search, slot.texts))] if bad else slots
        self.faults = list(found.faults)
        if bad:
            text = f"{len(bad):,} text(s) from here on have bytes that are not {encoding}, or NUL: left as they are"
            self.faults.append(Fault(line_of(original, bad[0].start), text))

    @property
    def texts(self) -> list[str]:
        """What is to be translated, in order: no text is without a letter, and none has space around it."""
        return [text for slot in self.slots for text in slot.texts]

    def filled(self, translations: Sequence[str]) -> bytes:
        """The document with the translations of its texts, in order.

        A text stays as it was, byte for byte, where its translation is the same or blank. Raises ValueError where there
        are not as many translations as texts, DragomanError where the document's encoding cannot write one.
        """
        if len(translations) != sum(len(slot.texts) for slot in self.slots):
            raise ValueError("expected one translation for each text")
        given = iter(translations)
        changes: list[Change] = []
        for slot in self.slots:
            new = [
                old if text == old else one_line(text) or old
                for old, text in zip(slot.texts, islice(given, len(slot.texts)), strict=True)
            ]
            if new != list(slot.texts):
                changes.append(Change(slot, new))
        return self.encoding.encoded(self._patched(Kept(0, len(self.original)), changes))

    def _patched(self, span: Kept, changes: Sequence["Change"]) -> str:
        """A span of the original with the changes that lie in it."""
        pieces: list[str] = []
        at = span.start
        index = 0
        while index < len(changes):
            slot, new = changes[index]
            inside = changes[index + 1 : bisect_left(changes, slot.end, index + 1, key=start_of)]
            pieces.append(self.original[at : slot.start])
            for part in slot.written(new):
                if isinstance(part, str):
                    pieces.append(part)
                else:
                    first, last = (bisect_left(inside, end, key=start_of) for end in part)
                    pieces.append(self._patched(part, inside[first:last]))
            at = slot.end
            index += 1 + len(inside)
        return "".join([*pieces, self.original[at : span.end]])


class Change(NamedTuple):
    slot: Slot
    translations: list[str]


def start_of(change: Change) -> int:
    return change.slot.start


def one_line(text: str) -> str:
    return SURROGATES.sub("\ufffd", BREAKS.sub(" ", text)).strip()


def has_letter(text: str) -> bool:
    """Whether there is something to translate: figures, rules and signs are the same in every language."""
    return any(map(str.isalpha, text))


def lines_of(text: str) -> tuple[str, ...]:
    """The lines of a text in which there is something to translate, without the space around them."""
    return tuple(line.strip() for line in text.split("\n") if has_letter(line))


def with_lines(text: str, translations: Sequence[str]) -> str:
    """The text with other lines in the place of those."""
    given = iter(translations)
    return "\n".join(line.replace(line.strip(), next(given)) if has_letter(line) else line for line in text.split("\n"))


def line_of(original: str, at: int) -> int:
    return original.count("\n", 0, at) + 1
