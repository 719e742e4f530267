"""What must come through a translation letter by letter: taking it out, and putting it back where it belongs."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import regex

from dragoman.text.placeholders.detect import Kind, Placeholder, find

TAG_NAME = re.compile(r"<(/?)([A-Za-z][\w:.-]*)")

# What a placeholder may stand beside, but not inside. Chinese and Japanese are written without spaces.
TOKEN = regex.compile(
    r"""(?xV1)
    (?P<word>[[\p{L}\p{N}\p{M}_\u200c\u200d\u00ad]--[\p{Han}\p{Hiragana}]]++) (?:['’.,:\-‑·/@&+=\\](?P>word))*+
    | \p{RI}{2}\p{M}*+ | (?!\s)\X"""
)
SEPARATING = {"br", "hr", "p", "div", "li", "td", "th", "tr"}  # tags that end a word
UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
SPACE_AFTER = regex.compile(r"[\p{L}\p{N}\p{M}_.,;:!?…%)\]}»”’]")
SPACE_BEFORE = regex.compile(r"[\p{L}\p{N}\p{M}_(\[{«“‘¿¡&$<]")
CLOSES = regex.compile(r"[\p{Pe}\p{Pf}.,;:!?…。，、！？：；]")
OPENS = regex.compile(r"[\p{Ps}\p{Pi}¿¡]")


@dataclass(frozen=True)
class Removed:
    """A placeholder that was taken out: it belongs between plain[:at] and plain[at:].

    `before` and `after` are the words or marks that it touched: ' ' for a space, '' for the edge of the text.
    """

    text: str
    kind: Kind
    at: int
    before: str = ""
    after: str = ""

    @property
    def tag(self) -> tuple[str, bool] | None:
        """The name of a tag that stands around text, and whether it opens; None for '<br/>' and all else."""
        match = TAG_NAME.match(self.text) if self.kind == "tag" else None
        return (match[2].lower(), not match[1]) if match and not self.text.endswith("/>") else None

    @property
    def clings_to_next(self) -> bool:
        return bool(self.tag and self.tag[1] and self.after.strip())

    @property
    def clings_to_last(self) -> bool:
        return bool(self.tag and not self.tag[1] and self.before.strip())

    @property
    def leads(self) -> bool:
        """Whether it goes with the word after it: a tag that opens, a count ("%d files"), what a word is joined to."""
        if self.tag:
            return self.tag[1]
        return (self.kind == "printf" and self.text[-1] in "diu") or (
            self.after[:1].isalnum() and not self.before[-1:].isalnum()
        )


def remove(text: str, numbers: bool = False) -> tuple[str, list[Removed]]:
    """The text as it reads with no placeholder in it, and these in their order."""
    found = find(text, numbers)
    if not found:
        return text, []
    edges = [0, *(edge for placeholder in found for edge in (placeholder.start, placeholder.end)), len(text)]
    parts = [text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
    touching = [_outer_tokens(part) for part in parts]
    taken: list[Removed] = []
    plain: list[str] = []
    length = 0
    spaces, inline = [""], True  # since the last words: the spaces, and whether only tags inside a line were taken out
    for index, part in enumerate(parts):
        words = part.strip()
        spaces.append(part[: len(part) - len(part.lstrip())])
        if words:
            joint = _joint(plain[-1][-1], spaces, words[0], inline) if plain else ""
            plain += [joint, words]
            length += len(joint) + len(words)
            spaces, inline = [part[len(part.rstrip()) :]], True
        if index < len(found):
            here = found[index]
            before = touching[index][1] or (found[index - 1].text if index else "")
            after = touching[index + 1][0] or (found[index + 1].text if index + 1 < len(found) else "")
            taken.append(Removed(here.text, here.kind, length, before, after))
            tag = taken[-1].tag
            inline = inline and tag is not None and tag[0] not in SEPARATING
    return "".join(plain), taken


def _outer_tokens(part: str) -> tuple[str, str]:
    """The first and the last; ' ' for a space."""
    tokens = [match[0] for match in TOKEN.finditer(part)]
    return (
        " " if part[:1].isspace() else tokens[0] if tokens else "",
        " " if part[-1:].isspace() else tokens[-1] if tokens else "",
    )


def _joint(left: str, spaces: Sequence[str], right: str, inline: bool) -> str:
    """What stands between two characters after all between them but the spaces was taken out."""
    if not any(spaces):
        return " " if left.isalnum() and right.isalnum() and not inline else ""
    if (not spaces[0] and OPENS.match(left)) or (not spaces[-1] and CLOSES.match(right)):
        return ""
    return next(filter(None, spaces))


def restore(
    translation: str,
    plain: str,
    taken: Sequence[Removed],
    alignment: Sequence[tuple[int, int]] | None = None,
    numbers: bool = False,
) -> str:
    """The translation of `plain` with each placeholder in it, once.

    `alignment` has pairs of a character of `plain` and the character of the translation that translates it; without, a
    placeholder comes as far into the one as into the other. None comes inside a word, and tags that were well nested
    are so again. Placeholders that the translation itself has stay where they are. `numbers` as in `without`.
    """
    if not taken:
        return translation
    found = find(translation, numbers)
    spans = _tokens(translation, found)
    order = _in_order(taken, _Places(plain, translation, spans, alignment))
    expected = Counter([*(item.text for item in taken), *(placeholder.text for placeholder in found)])
    words = "".join(remove(translation, numbers)[0].split())

    def comes_back(text: str) -> bool:
        there = Counter(placeholder.text for placeholder in find(text, numbers))
        return there == expected and "".join(remove(text, numbers)[0].split()) == words

    # A placeholder may make another one with what stands beside it ("$" and "{x}"): then all stand by themselves, and
    # if even that does not help, before the text, where no mark is open.
    for apart in (False, True):
        text = _joined(translation, spans, order, apart)
        if comes_back(text):
            return text
    return " ".join([*(item.text for item in taken), translation])


def _tokens(text: str, found: Sequence[Placeholder] = ()) -> list[tuple[int, int]]:
    """Start and end of each word, mark and placeholder."""
    spans: list[tuple[int, int]] = []
    position = 0
    for placeholder in found:
        spans += [match.span() for match in TOKEN.finditer(text, position, placeholder.start)]
        spans.append((placeholder.start, placeholder.end))
        position = placeholder.end
    return spans + [match.span() for match in TOKEN.finditer(text, position)]


class _Places:
    """From positions of the plain text to gaps of the translation. Gap k is before token k, the last at the end."""

    def __init__(
        self,
        plain: str,
        translation: str,
        spans: Sequence[tuple[int, int]],
        alignment: Sequence[tuple[int, int]] | None,
    ):
        self.ends = [end for _, end in spans]
        self.count = len(spans)
        self.aligned = bool(alignment)
        self.plain_length, self.length = len(plain), len(translation)
        self.first_word, self.last_word = _words_between(plain)
        self.same_start = _same(plain, translation)
        self.same_end = _same(plain[::-1], translation[::-1])
        first, last = _words_between(translation)
        self.first_gap = bisect_right(self.ends, first)
        self.last_gap = bisect_left(self.ends, last) + 1 if last else self.count
        pairs = sorted(alignment or self._proportional(plain))
        self.sources = [source for source, _ in pairs]
        self.tokens = [min(bisect_right(self.ends, target), max(self.count - 1, 0)) for _, target in pairs]

    def _proportional(self, plain: str) -> list[tuple[int, int]]:
        return [(start, (start + end) * self.length // (2 * self.plain_length)) for start, end in _tokens(plain)]

    def single(self, at: int, leads: bool) -> int:
        """After the translation of the word before, or, if it leads, before that of the word after."""
        index = bisect_left(self.sources, at)
        anchored = index < len(self.sources) if leads else index > 0
        if not (self.aligned and anchored) and (edge := self.edge(at)) is not None:
            return edge
        if leads:
            return self.tokens[index] if anchored else self.count
        return self.tokens[index - 1] + 1 if anchored else 0

    def edge(self, at: int) -> int | None:
        """Where no word is before or after: beside the same marks as in the plain text, or else beside the words."""
        if at <= self.first_word:
            return bisect_right(self.ends, at) if at <= self.same_start else self.first_gap
        if at >= self.last_word:
            rest = self.plain_length - at
            return bisect_right(self.ends, self.length - rest) if rest <= self.same_end else self.last_gap
        return None


def _same(one: str, other: str) -> int:
    """How many characters are the same from the beginning on."""
    differ = (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))


def _words_between(text: str) -> tuple[int, int]:
    """Where the first letter or digit is, and where the last one ends; the other way round where there is none."""
    first = next((index for index, character in enumerate(text) if character.isalnum()), len(text))
    last = next((index for index in range(len(text), 0, -1) if text[index - 1].isalnum()), 0)
    return first, last


@dataclass
class _Span:
    """A placeholder, or two tags and what is between them, from gap `low` to gap `high`."""

    first: int
    last: int | None = None
    low: int = 0
    high: int = 0
    inner: list["_Span"] = field(default_factory=list)


def _in_order(taken: Sequence[Removed], places: _Places) -> list[tuple[int, Removed]]:
    """The gap of each placeholder, in the order in which they are to stand."""
    order: list[tuple[int, Removed]] = []
    todo: list[_Span | tuple[int, Removed]] = [*reversed(_apart(_spans(taken, places), 0, places.count))]
    while todo:
        step = todo.pop()
        if isinstance(step, tuple):
            order.append(step)
            continue
        order.append((step.low, taken[step.first]))
        if step.last is not None:
            todo.append((step.high, taken[step.last]))
            todo += reversed(_apart(step.inner, step.low, step.high))
    return order


def _spans(taken: Sequence[Removed], places: _Places) -> list[_Span]:
    """Placeholders as a tree of tags. A tag covers the translation of all words that it covered."""
    closing = _partners(taken)
    closed = set(closing.values())
    outer = _Span(-1)
    stack, read = [outer], 0
    covered: list[tuple[int, int]] = [(places.count, 0)]  # for each of the stack: its words' first gap and last gap
    for index, item in enumerate(taken):
        until = bisect_left(places.sources, item.at)
        if tokens := places.tokens[read:until]:
            covered[-1] = min(covered[-1][0], *tokens), max(covered[-1][1], *(token + 1 for token in tokens))
        read = max(read, until)
        if index in closing:
            stack.append(_Span(index, closing[index]))
            covered.append((places.count, 0))
        elif index in closed:
            span, (low, high) = stack.pop(), covered.pop()
            covered[-1] = min(covered[-1][0], low), max(covered[-1][1], high)
            opening, ending = places.edge(taken[span.first].at), places.edge(item.at)
            if low >= high:  # no word in it, or a part of one
                high = places.single(item.at, leads=False)
                low = max(0, high - (taken[span.first].at < item.at))
            elif opening is not None and ending is not None:  # all words in it
                low, high = opening, ending
            span.low, span.high = low, max(low, high)
            stack[-1].inner.append(span)
        else:
            gap = places.single(item.at, item.leads)
            stack[-1].inner.append(_Span(index, None, gap, gap))
    return outer.inner


def _partners(taken: Sequence[Removed]) -> dict[int, int]:
    """Opening tag -> closing tag, by index, of those that are well nested."""
    partners: dict[int, int] = {}
    stack: list[tuple[int, str]] = []
    waiting: Counter[str] = Counter()
    for index, item in enumerate(taken):
        if item.tag is None:
            continue
        name, opens = item.tag
        if opens:
            stack.append((index, name))
            waiting[name] += 1
        elif waiting[name]:
            other = ""
            while other != name:
                opening, other = stack.pop()
                waiting[other] -= 1
            partners[opening] = index
    return partners


def _apart(spans: Sequence[_Span], low: int, high: int) -> list[_Span]:
    """From left to right, within the limits, none beginning before the last one has ended."""
    spans = sorted(spans, key=lambda span: span.low)
    for index, span in enumerate(spans):
        span.low = min(max(span.low, low), high)
        span.high = min(max(span.high, span.low), high)
        if index + 1 < len(spans) and spans[index + 1].last is not None and spans[index + 1].low > span.low:
            span.high = min(span.high, spans[index + 1].low)
        low = span.high
    return spans


def _joined(
    translation: str, spans: Sequence[tuple[int, int]], order: Sequence[tuple[int, Removed]], apart: bool
) -> str:
    """The translation with placeholders in its gaps; with `apart`, with spaces around each of them."""
    parts: list[str] = []
    position = 0
    for gap, group in groupby(order, key=itemgetter(0)):
        start = spans[gap - 1][1] if gap else 0
        end = spans[gap][0] if gap < len(spans) else len(translation)
        left = translation[slice(*spans[gap - 1])] if gap else ""
        right = translation[slice(*spans[gap])] if gap < len(spans) else ""
        parts.append(translation[position:start])
        items = [item for _, item in group]
        if apart:
            parts.append(f" {' '.join(item.text for item in items)} ")
        else:
            parts += _with_spaces(left, translation[start:end], items, right)
        position = end
    parts.append(translation[position:])
    return "".join(parts) if not apart else "".join(parts).strip()


def _with_spaces(left: str, space: str, items: Sequence[Removed], right: str) -> Iterator[str]:
    """Placeholders between two tokens that had this space between them. Tags cling to what they are around."""
    last: Removed | None = None
    opening = ""  # tags that wait for what they cling to
    for item in items:
        if item.clings_to_next or (item.clings_to_last and opening):
            opening += item.text
        elif item.clings_to_last:
            yield item.text
        else:
            yield (_space_after(left, space, item) if last is None else _space_between(last, item)) + opening
            yield item.text
            last, opening = item, ""
    yield (space if last is None else _space_before(last, space, right)) + opening


def _space_between(last: Removed, item: Removed) -> str:
    return "" if item.at == last.at and last.after.strip() and item.before.strip() else " "


def _space_after(left: str, space: str, item: Removed) -> str:
    """Between a token and a placeholder: as in the source where the same token stood there, or as is usual."""
    if not left or item.before == left:
        return space if not left else ""
    if item.kind == "tag" and item.before.strip():
        return ""
    usual = SPACE_AFTER.match(left[-1]) or (item.before == " " and not OPENS.match(left[-1]))
    return space or (" " if usual and not UNSPACED.match(left[-1]) else "")


def _space_before(item: Removed, space: str, right: str) -> str:
    if not right or item.after == right:
        return space if not right else ""
    if item.kind == "tag" and item.after.strip():
        return ""
    usual = SPACE_BEFORE.match(right[0]) or (item.after == " " and not CLOSES.match(right[0]))
    return space or (" " if usual and not UNSPACED.match(right[0]) else "")
