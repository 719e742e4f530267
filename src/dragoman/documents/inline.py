"""Texts with things in them that are not words: tags, code, addresses. They come back as they were, each once.

A text is a sequence of fragments: strings, and inlines such as a tag. For translation the inlines are shown as tags
inside the text, since translators keep tags; afterwards the translation is split at them again.
"""

import re
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import compress

from dragoman.data.unspaced import needless_line_ends
from dragoman.documents.document import Content, Span, has_letter
from dragoman.documents.encoding import resolve_references

LABEL = re.compile(r"[^\w]*|[(\[]?\d{1,3}[.)\]]")
SPACE = re.compile(r"[ \t\n\r\f]+")
# For a set of characters: white space, and what is not seen, such as marks of the writing direction.
UNSEEN = r"\s\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"
OUTER = re.compile(rf"\A[{UNSEEN}]++|(?<![{UNSEEN}])[{UNSEEN}]++\Z")
REFERENCE = re.compile(r"&#?\w{1,10};")
# What an inline looks like in a text: a tag, or code. Translators keep these; all others are shown as a tag.
SHOWN = re.compile(r"</?[A-Za-z][\w:.-]*(?:\s[^<>]*)?/?>|`[^`]+`")


@dataclass(frozen=True)
class Inline:
    """A tag, code or address inside a text. Of a pair, one `opens` and the other one `closes` the same name."""

    shown: str  # in the text
    original: str | Span
    opens: str = ""
    closes: str = ""


Fragment = str | Inline


def flow_text(fragments: Sequence[Fragment]) -> str:
    """Return the text to translate, with inlines as they are shown."""
    return "".join(fragment if isinstance(fragment, str) else fragment.shown for fragment in fragments)


def as_one_line(fragments: Sequence[Fragment]) -> list[Fragment]:
    """Return the fragments with one space for white space in their words, nothing for a line end that is no space.

    Whether it is one depends on the characters before and after it, which may be those of other fragments.
    """
    words = "".join(fragment for fragment in fragments if isinstance(fragment, str))
    kept = bytearray(b"\1" * len(words))
    for start, end in needless_line_ends(words):
        kept[start:end] = bytes(end - start)
    lines: list[Fragment] = []
    at = 0
    for fragment in fragments:
        if isinstance(fragment, str):
            at += len(fragment)
            fragment = SPACE.sub(" ", "".join(compress(fragment, kept[at - len(fragment) : at])))
        lines.append(fragment)
    return lines


def core_words(fragments: Sequence[Fragment]) -> tuple[int, int, list[Fragment]]:
    """Return start and stop of `core_range`, and the fragments between, see `disambiguate`; none without words."""
    start, stop = core_range(fragments)
    core = disambiguate(fragments[start:stop])
    return start, stop, core if any(isinstance(word, str) and has_letter(word) for word in core) else []


def core_range(fragments: Sequence[Fragment]) -> tuple[int, int]:
    """Return start and stop of the fragments without what need not be translated around them.

    That is outer space and marks of the writing direction, inlines without words in them, pairs of inlines that enclose
    all the rest, and a label such as <b>2.</b> in front.
    """
    partner = find_partners(fragments)
    start, stop = 0, len(fragments)

    def is_idle(index: int) -> bool:
        fragment = fragments[index]
        return not OUTER.sub("", fragment) if isinstance(fragment, str) else index not in partner

    while start < stop:
        if is_idle(start):
            start += 1
        elif is_idle(stop - 1):
            stop -= 1
        elif partner.get(start) == stop - 1:
            start, stop = start + 1, stop - 1
        elif partner.get(stop - 1) == stop - 2:
            stop -= 2
        elif (end := partner.get(start, 0)) > start and is_label(fragments[start + 1 : end]):
            start = end + 1
        else:  # so a pair that is no label is looked at once
            break
    return start, stop


def is_label(fragments: Sequence[Fragment]) -> bool:
    """Return whether the words of the fragments, if any, are a bullet or the number of a list."""
    return bool(LABEL.fullmatch("".join(fragment for fragment in fragments if isinstance(fragment, str)).strip()))


def find_partners(fragments: Sequence[Fragment]) -> dict[int, int]:
    """Return, by its index, the index of the partner of each inline that opens or closes a pair; others have none."""
    partner: dict[int, int] = {}
    opened: list[int] = []
    for index, fragment in enumerate(fragments):
        if isinstance(fragment, str):
            continue
        if fragment.opens:
            opened.append(index)
        elif fragment.closes and opened:
            before = fragments[opened[-1]]
            if isinstance(before, Inline) and before.opens == fragment.closes:
                first = opened.pop()
                partner[first], partner[index] = index, first
    return partner


def split_translation(translation: str, inlines: Sequence[Inline]) -> tuple[list[Fragment], bool]:
    """Return a translation as fragments, and whether it has all inlines, nested as in the original.

    Text that looks like an inline counts as words if it is none of `inlines`, or repeats one.
    """
    waiting: defaultdict[str, deque[Inline]] = defaultdict(deque)
    for inline in inlines:
        waiting[inline.shown].append(inline)
    fragments: list[Fragment] = []
    words_start = position = 0
    while match := SHOWN.search(translation, position):
        if waiting.get(match[0]):
            fragments += [translation[words_start : match.start()], waiting[match[0]].popleft()]
            words_start = position = match.end()
        else:
            position = match.start() + 1
    fragments.append(translation[words_start:])
    kept = [fragment for fragment in fragments if isinstance(fragment, Inline)]
    return fragments, len(kept) == len(inlines) and unpaired_tags(kept) == unpaired_tags(inlines)


def unpaired_tags(inlines: Sequence[Inline]) -> list[str]:
    """Return the names of inlines without a partner, in order: 'b' opens, '/b' closes."""
    left: list[str] = []
    for inline in inlines:
        if inline.closes and left and left[-1] == inline.closes:
            left.pop()
        elif inline.opens or inline.closes:
            left.append(inline.opens or f"/{inline.closes}")
    return left


def disambiguate(fragments: Sequence[Fragment]) -> list[Fragment]:
    """Return the fragments with a numbered tag, such as <x id="1"/>, for each inline that could not be told from words.

    These are the inlines that do not look like a tag or like code (SHOWN), and those that also occur among the words.
    """
    lookalikes = {match for fragment in fragments if isinstance(fragment, str) for match in SHOWN.findall(fragment)}
    result: list[Fragment] = []
    number = 0
    for fragment in fragments:
        if isinstance(fragment, Inline) and (not SHOWN.fullmatch(fragment.shown) or fragment.shown in lookalikes):
            number += not fragment.closes
            fragment = replace(fragment, shown=numbered_tag(fragment, number))
        result.append(fragment)
    return result


def numbered_tag(inline: Inline, number: int) -> str:
    """Return the tag that stands for an inline in a text: '<b id="2">', '</b>' or '<x id="2"/>'."""
    if inline.closes:
        return f"</{inline.closes}>"
    return f'<{inline.opens} id="{number}">' if inline.opens else f'<x id="{number}"/>'


# Markup: what pages, XML and XLIFF have in common.


@dataclass(frozen=True)
class Tags:
    """What a request says of elements, by their names."""

    ignored: frozenset[str] = frozenset()  # what is in them stays as it is
    splitting: frozenset[str] = frozenset()  # they end a sentence
    non_splitting: frozenset[str] = frozenset()  # they stand inside sentences
    outline: bool = True  # of XML: whether those in neither list end a sentence where no text stands beside them


def arrange(translation: str, inlines: Sequence[Inline]) -> list[Fragment]:
    """Return a translation as fragments with the same tags as the original, which are `inlines`.

    Where it lacks one of them, or they do not nest as before, all of them follow its words.
    """
    fragments, is_complete = split_translation(translation, inlines)
    if not is_complete:
        words = flow_text([fragment for fragment in fragments if isinstance(fragment, str)])
        fragments = [SPACE.sub(" ", words).strip(), *inlines]
    return fragments


def render_markup(translation: str, inlines: Sequence[Inline]) -> Content:
    """Return a translation as markup with the same tags as the original, see `arrange`."""
    fragments = arrange(translation, inlines)
    return [escape(fragment, quote=False) if isinstance(fragment, str) else fragment.original for fragment in fragments]


def trim(original: str, start: int, end: int) -> tuple[int, int]:
    """Return start and end of a span without the space around it, which may be written as a reference (&nbsp;)."""
    while start < end:
        reference = REFERENCE.match(original, start, end)
        if original[start].isspace():
            start += 1
        elif reference and resolve_references(reference[0]).isspace():
            start = reference.end()
        else:
            break
    while start < end:
        if original[end - 1].isspace():
            end -= 1
        elif (at := original.rfind("&", max(start, end - 13), end)) >= 0 and is_space_reference(original[at:end]):
            end = at
        else:
            break
    return start, end


def is_space_reference(text: str) -> bool:
    """Return whether a text is a reference to white space, such as &nbsp;."""
    return bool(REFERENCE.fullmatch(text)) and resolve_references(text).isspace()
