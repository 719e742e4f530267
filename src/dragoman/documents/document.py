"""Divide a document into its texts and what stands between them: only the texts that change are written anew."""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from dragoman.data.lines import Kind
from dragoman.documents.encoding import Encoding
from dragoman.errors import UsageError, plural
from dragoman.text import verbatim
from dragoman.text.accelerators import Accelerator, place_in_menus
from dragoman.text.faults import is_empty

UNREADABLE = re.compile("[\0\ud800-\udfff]")  # NUL, and what stands for bytes that are not characters
SURROGATES = re.compile("[\ud800-\udfff]")
BREAKS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


class Skipped(NamedTuple):
    """A part that is left untranslated although it may be text. `line` counts from 1; 0 is the whole document."""

    line: int
    reason: str


class Span(NamedTuple):
    """original[start:end]"""

    start: int
    end: int


Content = Iterable[str | Span]  # new text, and spans of the original that stay inside it, such as tags


@dataclass(frozen=True)
class Passage:
    """A span of the original with one or more texts, and a function that writes their translations in its place.

    The function gets a translation for each text, one line without space around it. It raises ValueError, with the
    reason, for translations that the format cannot hold there. A passage may lie inside a span that another one keeps.
    `marked`: what takes its place where a translation is unsure, with the same texts and a mark for whoever reviews
    them, which may need a longer span; None where the format has no such mark. `accelerator`: what the only text had
    that stands in a menu; the function gets a translation that has it, too. `limit`: how many characters the
    translation of the only text may have; 0 for any number. `context`: what the file says of where its texts are shown.
    """

    start: int
    end: int
    texts: tuple[str, ...]
    render: Callable[[Sequence[str]], Content]
    marked: "Passage | None" = None
    accelerator: Accelerator | None = None
    limit: int = 0
    context: str = ""


class Message(NamedTuple):
    """What a file of a program's strings says under a key: its text by plural category, 'other' where it has but one.

    It begins at `start`. There are no forms where they depend on more than a number. Where the file has both languages,
    `translations` are the forms in the other one. `state`: why these are not finished, a reason of data/corpus.py.
    """

    key: Hashable
    start: int
    forms: Mapping[str, str]
    translations: Mapping[str, str] = {}
    state: Kind | None = None


@dataclass(frozen=True)
class Label:
    """A span of the original that says which language the texts are in, such as the value of `lang` in a page.

    The function gets the languages of the texts and of the translations, and writes what stands there instead; None
    leaves it.
    """

    start: int
    end: int
    render: Callable[[str, str], str | None]


@dataclass(frozen=True)
class DocumentConfig:
    """What must be known of a document, besides its bytes, to read it."""

    keys: tuple[str, ...] = ()
    "keys of JSON and the like whose values are translated, columns of CSV; none for all"
    source: str = ""
    "the language of the texts, by its code: it says what each of their plural forms is for"
    target: str = ""
    "the language of the translations, which says what plural forms they have; '' for those of the texts"
    all: bool = False
    "whether what has a translation gets a new one"


class Document:
    """A document as its original text and the passages in it that are translated.

    `skipped`: what is left alone although it may be text. `readable`: False for a document that is not in its format,
    which has no texts; the first of `skipped` says why. `left`: of a catalogue, how many messages are not translated
    because of their state, which is the key: {'translated before': 30, 'fuzzy': 2}; None for other documents. `entry`:
    what such a message is called. `refused`: what `fill` last left as it was because its format cannot hold the
    translations. `mark`: as what it is marked if its translation is unsure; '' where nothing can be. `messages`: what
    a file of a program's strings says; none for other documents.
    """

    def __init__(
        self,
        original: str,
        encoding: Encoding,
        passages: Iterable[Passage | Label],
        skipped: Sequence[Skipped] = (),
        *,
        readable: bool = True,
        decoded: bool = False,
        left: Mapping[str, int] | None = None,
        entry: str = "message",
        mark: str = "",
        messages: Iterable[Message] = (),
    ):
        """Take the original, how to encode it, its passages, and among them its labels.

        decoded: whether it was given as characters. Then none of them stands for bytes that could not be decoded.
        """
        self.left, self.entry, self.mark, self.messages = left, entry, mark, messages
        self.original, self.encoding, self.skipped, self.readable = original, encoding, list(skipped), readable
        self.refused: list[Skipped] = []
        self.passages: list[Passage] = []
        self.labels: list[Label] = []
        unreadable: list[Passage] = []
        for passage in sorted(passages, key=lambda passage: (passage.start, -passage.end)):
            if isinstance(passage, Label):
                self.labels.append(passage)
                continue
            damaged = not decoded and any(map(UNREADABLE.search, passage.texts))
            (unreadable if damaged else self.passages).append(passage)
        if unreadable:
            texts, line = plural(len(unreadable), "text"), line_number(original, unreadable[0].start)
            reason = f"{texts} from here on with bytes that are not {encoding}, or with NUL: left untranslated"
            self.skipped.append(Skipped(line, reason))

    @property
    def texts(self) -> list[str]:
        """Return the texts to translate, in order. Each has a letter and no space around it."""
        return [text for passage in self.passages for text in passage.texts]

    @property
    def limits(self) -> list[int]:
        """Return for each of the texts how many characters its translation may have, 0 for any number."""
        return [passage.limit if len(passage.texts) == 1 else 0 for passage in self.passages for _ in passage.texts]

    @property
    def contexts(self) -> list[str]:
        """Return for each of the texts what the file says of where it is shown, '' for nothing."""
        return [passage.context for passage in self.passages for _ in passage.texts]

    @property
    def lines(self) -> list[int]:
        """Return for each of the texts the line of the original that its passage begins in, from 1.

        Where nobody sees these lines, as in archives, the passages are counted instead.
        """
        lines, line, position = [], int(self.encoding.has_lines), 0
        for passage in self.passages:
            line += self.original.count("\n", position, passage.start) if self.encoding.has_lines else 1
            position = passage.start
            lines += [line] * len(passage.texts)
        return lines

    def fill(
        self, translations: Sequence[str], source: str = "", target: str = "", unsure: Collection[int] = ()
    ) -> bytes:
        """Return the bytes of the document with `translations`, one for each of its texts, in their places.

        A text stays as it was, byte for byte, where its translation is the same or has lost all words. source, target:
        the codes of the languages, such as 'en' and 'pt-BR', for a page to say which one it is in; '' for an unknown
        one. unsure: the numbers, from 0, of translations that somebody must review: a catalogue gets them with a mark,
        other documents keep these texts. Raise UsageError where there are not as many translations as texts,
        DragomanError where the document's encoding cannot write one.
        """
        return self.encoding.encode(self.fill_text(translations, source, target, unsure))

    def fill_text(
        self, translations: Sequence[str], source: str = "", target: str = "", unsure: Collection[int] = ()
    ) -> str:
        """Return what `fill` does as characters. Raise UsageError where it does."""
        if len(translations) != len(self.texts):
            given, texts = plural(len(translations), "translation"), plural(len(self.texts), "text")
            raise UsageError(f"{given} for a document with {texts}: give one for each")
        self.refused = []
        changes = self.changes(translations, unsure, self.refused)
        if changes:
            changes += self._label_changes(source, target)
        changes.sort(key=lambda change: (change.passage.start, -change.passage.end))
        return self._rewrite(Span(0, len(self.original)), changes)

    def _label_changes(self, source: str, target: str) -> Iterator["Change"]:
        """Yield the labels that another language needs; see `fill`."""
        for label in self.labels:
            new = label.render(source, target) if target and source != target else None
            if new is not None:
                yield Change(Passage(label.start, label.end, (), lambda _: ()), [], [new])

    def changes(
        self, translations: Sequence[str], unsure: Collection[int] = (), refused: list[Skipped] | None = None
    ) -> list["Change"]:
        """Return the passages whose translations have words and are not the same, one translation for each text.

        unsure: see `fill`. A passage is marked if one of its translations is unsure. refused: is given the passages
        that stay as they were because their format cannot hold the translations, as a message without its arguments.
        """
        given = enumerate(translations)
        changes: list[Change] = []
        pending: list[tuple[Passage, list[str], bool]] = []
        reasons: list[tuple[int, str]] = []
        for passage in self.passages:
            numbered = list(islice(given, len(passage.texts)))
            is_marked = passage.marked is not None and any(number in unsure for number, _ in numbered)
            kept = () if is_marked else unsure
            new = [
                old if text == old or number in kept or loses_words(old, line := as_line(text)) else line
                for old, (number, text) in zip(passage.texts, numbered, strict=True)
            ]
            pending.append((passage, new, is_marked))
        accelerated = [(passage.accelerator, new[0]) for passage, new, _ in pending if passage.accelerator]
        placed = iter(place_in_menus(*zip(*accelerated, strict=True)) if accelerated else ())
        for passage, new, is_marked in pending:
            new = [next(placed)] if passage.accelerator else new
            if new != list(passage.texts):
                changed = passage.marked if is_marked and passage.marked else passage
                try:
                    changes.append(Change(changed, new, list(changed.render(new)), is_marked))
                except ValueError as error:
                    reasons.append((passage.start, f"left untranslated: {error}"))
        if refused is not None:
            refused += skipped_lines(self.original, reasons)
        return changes

    def _rewrite(self, span: Span, changes: Sequence["Change"]) -> str:
        """Return the text of a span of the original with the changes made that lie inside it; they are in order."""
        pieces: list[str] = []
        position = span.start
        index = 0
        while index < len(changes):
            passage, _, content, _ = changes[index]
            inside = changes[index + 1 : bisect_left(changes, passage.end, index + 1, key=change_start)]
            pieces.append(self.original[position : passage.start])
            for part in content:
                if isinstance(part, str):
                    pieces.append(part)
                else:
                    first, last = (bisect_left(inside, end, key=change_start) for end in part)
                    pieces.append(self._rewrite(part, inside[first:last]))
            position = passage.end
            index += 1 + len(inside)
        return "".join([*pieces, self.original[position : span.end]])


class Change(NamedTuple):
    """A passage, what replaces its texts, what stands in its place, and whether it is marked for a review."""

    passage: Passage
    translations: list[str]
    content: Content
    marked: bool = False


def change_start(change: Change) -> int:
    """Return where the passage of a change begins; the key to search changes by."""
    return change.passage.start


def as_line(text: str) -> str:
    """Return a translation as one line of characters that UTF-8 and UTF-16 can write, without space around it."""
    return SURROGATES.sub("\ufffd", BREAKS.sub(" ", text)).strip()


def loses_words(text: str, translation: str) -> bool:
    """Return whether a translation is empty besides its placeholders and tags, although the text is not."""
    if not translation:
        return True
    return is_empty(verbatim.remove(text)[0], verbatim.remove(translation)[0])


def has_letter(text: str) -> bool:
    """Return whether a text has a letter, without which there is nothing to translate."""
    return any(map(str.isalpha, text))


def translatable_lines(text: str) -> tuple[str, ...]:
    """Return the lines of a text that have a letter, without the space around them."""
    return tuple(line.strip() for line in text.split("\n") if has_letter(line))


def replace_lines(text: str, translations: Sequence[str]) -> str:
    """Return the text with its translatable lines replaced by their translations, one for each; other lines stay."""
    given = iter(translations)
    return "\n".join(line.replace(line.strip(), next(given)) if has_letter(line) else line for line in text.split("\n"))


def skipped_lines(original: str, reasons: Iterable[tuple[int, str]]) -> Iterator[Skipped]:
    """Yield what is left alone with its lines, from offsets in ascending order and reasons."""
    line, position = 1, 0
    for offset, reason in reasons:
        line, position = line + original.count("\n", position, offset), offset
        yield Skipped(line, reason)


def line_number(original: str, offset: int) -> int:
    """Return the number of the line, from 1, that an offset is in."""
    return original.count("\n", 0, offset) + 1
