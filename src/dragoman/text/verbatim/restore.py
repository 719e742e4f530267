"""Take placeholders out of a source, and put them back into its translation, each exactly once.

>>> plain, removed = remove("Press <b>Save</b> to keep {name}.")
>>> plain
'Press Save to keep.'
>>> [(item.text, item.offset, item.before, item.after) for item in removed]
[('<b>', 5, ' ', 'Save'), ('</b>', 10, 'Save', ' '), ('{name}', 18, ' ', '.')]
>>> alignment = [(0, 0), (6, 7), (11, 17), (14, 23)]  # Press-Drücke, Save-Speichern, to-um, keep-behalten
>>> restore("Drücke Speichern um zu behalten.", plain, removed, alignment)
'Drücke <b>Speichern</b> um zu behalten {name}.'

How it works: the translation is split into tokens (words, marks and placeholders of its own), with a gap before each
token and one at the end. Each removed placeholder gets a gap by the word that it stood beside and the alignment of that
word; a pair of tags gets two gaps, around the translation of all words that it covered. Then nesting is enforced, and
the placeholders are inserted gap by gap, with spaces as they had in the source.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import regex

from dragoman.data.unspaced import UNSPACED
from dragoman.text.verbatim.detect import KINDS, Placeholder, find, is_positional
from dragoman.text.verbatim.kinds import Kind, Kinds
from dragoman.text.verbatim.tags import Tag, tag_pairs, tags_of

# What a placeholder may stand beside, but not inside: words, and amounts with their currency. Chinese and Japanese are
# written without spaces.
LETTERS = r"[[\p{L}\p{N}\p{M}_\u200c\u200d\u00ad]--[\p{Han}\p{Hiragana}]]++"
TOKEN = regex.compile(
    rf"(?xV1) (?:\p{{Sc}}(?=\p{{N}}))?+ {LETTERS} (?:['’.,:\-‑·/@&+=\\]{LETTERS})*+ | \p{{RI}}{{2}}\p{{M}}*+ | (?!\s)\X"
)
SHORT, MOST_SHORT = 4, 3  # letters of an article or a preposition; how many words may be such until one is none
SEPARATING = {"br", "hr", "p", "div", "li", "td", "th", "tr"}  # tags that end a word
UNSPACED_LETTER = regex.compile(f"[{UNSPACED}]")
SPACE_AFTER = regex.compile(r"[\p{L}\p{N}\p{M}_.,;:!?…%)\]}»”’]")
SPACE_BEFORE = regex.compile(r"[\p{L}\p{N}\p{M}_(\[{«“‘¿¡&$<]")
CLOSING_MARK = regex.compile(r"[\p{Pe}\p{Pf}.,;:!?…。，、！？：；]")
OPENING_MARK = regex.compile(r"[\p{Ps}\p{Pi}¿¡]")


@dataclass(frozen=True)
class Removed:
    """A placeholder that was removed: it belongs between plain[:offset] and plain[offset:].

    `before` and `after` are the words, marks or placeholders beside it: ' ' for a space, '' at the edge of the text.
    """

    text: str
    kind: Kind
    offset: int
    before: str = ""
    after: str = ""
    tag: Tag | None = None
    "the name of a tag that encloses text, and whether it opens; None for '<br/>' and for other placeholders"

    @property
    def opens_at_word(self) -> bool:
        """Whether it is an opening tag with no space behind it."""
        return bool(self.tag and self.tag[1] and self.after.strip())

    @property
    def closes_at_word(self) -> bool:
        """Return whether it is a closing tag with no space in front of it."""
        return bool(self.tag and not self.tag[1] and self.before.strip())

    @property
    def goes_with_next_word(self) -> bool:
        """Return whether it moves with the word after it, not with the one before.

        An opening tag does, a count ("%d files", a number), and what touches the next word alone ("{x}s").
        """
        if self.tag:
            return self.tag[1]
        counts = self.kind == "number" or (self.kind == "printf" and self.text[-1] in "diu")
        return counts or (self.after[:1].isalnum() and not self.before[-1:].isalnum())


# Removing.


def remove(text: str, kinds: Kinds = KINDS) -> tuple[str, list[Removed]]:
    """Return the text without its placeholders of these kinds, spaced as it needs, and these in order."""
    placeholders = find(text, kinds)
    if not placeholders:
        return text, []
    edges = [0, *(edge for placeholder in placeholders for edge in (placeholder.start, placeholder.end)), len(text)]
    between = [text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
    outer_tokens = [_outer_tokens(part) for part in between]
    tags = tags_of(placeholders)
    removed: list[Removed] = []
    plain: list[str] = []
    length = 0
    # Since the last words: the spaces, and whether nothing but tags inside a line was taken out.
    spaces, only_inline = [""], True
    for index, part in enumerate(between):
        words = part.strip()
        spaces.append(part[: len(part) - len(part.lstrip())])
        if words:
            joint = _joining_space(plain[-1][-1], spaces, words[0], only_inline) if plain else ""
            plain += [joint, words]
            length += len(joint) + len(words)
            spaces, only_inline = [part[len(part.rstrip()) :]], True
        if index < len(placeholders):
            here = placeholders[index]
            before = outer_tokens[index][1] or (placeholders[index - 1].text if index else "")
            after = outer_tokens[index + 1][0] or (
                placeholders[index + 1].text if index + 1 < len(placeholders) else ""
            )
            removed.append(Removed(here.text, here.kind, length, before, after, tag := tags[index]))
            only_inline = only_inline and tag is not None and tag[0] not in SEPARATING
    return "".join(plain), removed


def _outer_tokens(part: str) -> tuple[str, str]:
    """Return the first and the last token of a text; ' ' for a space, '' where there is none."""
    tokens = [match[0] for match in TOKEN.finditer(part)]
    return (
        " " if part[:1].isspace() else tokens[0] if tokens else "",
        " " if part[-1:].isspace() else tokens[-1] if tokens else "",
    )


def _joining_space(left: str, spaces: Sequence[str], right: str, only_inline: bool) -> str:
    """Return the space between two words after the placeholders between them were removed.

    left, right: the characters on both sides; spaces: those between the placeholders; only_inline: whether all of these
    were tags inside a line.
    """
    if not any(spaces):
        return " " if left.isalnum() and right.isalnum() and not only_inline else ""
    if (not spaces[0] and OPENING_MARK.match(left)) or (not spaces[-1] and CLOSING_MARK.match(right)):
        return ""
    return next(filter(None, spaces))


# Restoring.


def restore(
    translation: str,
    plain: str,
    removed: Sequence[Removed],
    alignment: Sequence[tuple[int, int]] | None = None,
    kinds: Kinds = KINDS,
) -> str:
    """Return the translation of `plain` with each removed placeholder in it, once.

    alignment: pairs of a character of `plain` and the character of the translation that translates it, by index;
    without it, a placeholder is placed in proportion to where it was in the text. No placeholder is placed inside a
    word, and tags that were well nested stay so. Placeholders that the translation has already stay where they are.
    kinds: those that the translation may have already.
    """
    if not removed:
        return translation
    kept = find(translation, kinds)
    tokens = _token_spans(translation, kept)
    order = _arrange(removed, _GapFinder(plain, translation, tokens, alignment))
    expected = Counter([*(item.text for item in removed), *(placeholder.text for placeholder in kept)])
    words = "".join(remove(translation, kinds)[0].split())

    def is_intact(text: str) -> bool:
        """Return whether a text has all placeholders that it should have, and the words of the translation."""
        present = Counter(placeholder.text for placeholder in find(text, kinds))
        return present == expected and "".join(remove(text, kinds)[0].split()) == words

    # A placeholder may form another one with the text beside it, such as "$" with "{x}". Then all get spaces around
    # them, and if that does not help either, they go in front of the text, where no quotation is open.
    for spaced in (False, True):
        text = _insert(translation, tokens, order, spaced)
        if is_intact(text):
            return text
    return " ".join([*(item.text for item in removed), translation])


def _token_spans(text: str, placeholders: Sequence[Placeholder] = ()) -> list[tuple[int, int]]:
    """Return the spans of all words, punctuation marks and placeholders of a text, in order."""
    spans: list[tuple[int, int]] = []
    position = 0
    for placeholder in placeholders:
        spans += [match.span() for match in TOKEN.finditer(text, position, placeholder.start)]
        spans.append((placeholder.start, placeholder.end))
        position = placeholder.end
    return spans + [match.span() for match in TOKEN.finditer(text, position)]


class _GapFinder:
    """Finds the gap that an offset of the plain text corresponds to: gap k is before token k of the translation."""

    def __init__(
        self,
        plain: str,
        translation: str,
        tokens: Sequence[tuple[int, int]],
        alignment: Sequence[tuple[int, int]] | None,
    ):
        self.plain, self.words = plain, [translation[start:end] for start, end in tokens]
        self.token_ends = [end for _, end in tokens]
        self.last_gap = len(tokens)
        self.aligned = bool(alignment)
        self.plain_length, self.length = len(plain), len(translation)
        self.words_start, self.words_end = _word_range(plain)
        self.common_start = _common_prefix(plain, translation)
        self.common_end = _common_prefix(plain[::-1], translation[::-1])
        words_start, words_end = _word_range(translation)
        self.gap_before_words = bisect_right(self.token_ends, words_start)
        self.gap_after_words = bisect_left(self.token_ends, words_end) + 1 if words_end else self.last_gap
        pairs = sorted(alignment or self._proportional(plain))
        self.aligned_offsets = [source for source, _ in pairs]
        self.aligned_tokens = [
            min(bisect_right(self.token_ends, target), max(self.last_gap - 1, 0)) for _, target in pairs
        ]

    def _proportional(self, plain: str) -> list[tuple[int, int]]:
        """Return an alignment that maps each word of the plain text in proportion to its place."""
        return [(start, (start + end) * self.length // (2 * self.plain_length)) for start, end in _token_spans(plain)]

    def gap(self, offset: int, goes_with_next_word: bool) -> int:
        """Return the gap for an offset of the plain text, the place of a placeholder that was removed.

        It is before the translation of the next word if the placeholder goes with that, else after that of the word
        before. At the edges of the text, unless there is an aligned word, it is `outer_gap`.
        """
        index = bisect_left(self.aligned_offsets, offset)
        has_word = index < len(self.aligned_offsets) if goes_with_next_word else index > 0
        if not (self.aligned and has_word) and (outer := self.outer_gap(offset)) is not None:
            return outer
        if goes_with_next_word:
            return self.aligned_tokens[index] if has_word else self.last_gap
        return self.aligned_tokens[index - 1] + 1 if has_word else 0

    def past_articles(self, start: int, end: int, first: int, last: int) -> int:
        """Return the gap where a pair of tags around the translation of plain[first:last] ends: `end`, or a later one.

        A longer word has often no translation of its own but an article or the like, beside the word that was meant.
        """
        enclosed, source = self.words[start:end], self.plain[first:last].split()
        if not all(map(_is_short, enclosed)) or max(map(len, source), default=0) < SHORT or {*enclosed} & {*source}:
            return end
        following = self.words[end : end + MOST_SHORT]
        reached = next((index for index, word in enumerate(following) if word[0].isalpha() and not _is_short(word)), -1)
        return end + reached + 1

    def outer_gap(self, offset: int) -> int | None:
        """Return the gap for an offset before the first word or after the last one; None for offsets between words.

        It is at the same punctuation marks as in the plain text, or else at the words.
        """
        if offset <= self.words_start:
            return bisect_right(self.token_ends, offset) if offset <= self.common_start else self.gap_before_words
        if offset >= self.words_end:
            remaining = self.plain_length - offset
            if remaining <= self.common_end:
                return bisect_right(self.token_ends, self.length - remaining)
            return self.gap_after_words
        return None


def _is_short(word: str) -> bool:
    """Return whether a word may be an article or a preposition, short and in letters with capitals, or is a mark."""
    return len(word) <= SHORT and (word.lower() != word.upper() or not any(map(str.isalnum, word)))


def _common_prefix(first: str, second: str) -> int:
    differ = (index for index, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(differ, min(len(first), len(second)))


def _word_range(text: str) -> tuple[int, int]:
    """Return start and end of a text without what is not a letter or digit around it; (len(text), 0) for no letter."""
    first = next((index for index, character in enumerate(text) if character.isalnum()), len(text))
    last = next((index for index in range(len(text), 0, -1) if text[index - 1].isalnum()), 0)
    return first, last


@dataclass
class _Placement:
    """The gap of a placeholder, or the two gaps of a pair of tags and the placements inside it."""

    index: int  # of the removed placeholder, or of the opening tag
    closing: int | None = None  # that of the closing tag
    start: int = 0
    end: int = 0
    children: list["_Placement"] = field(default_factory=list)


def _arrange(removed: Sequence[Removed], gaps: _GapFinder) -> list[tuple[int, Removed]]:
    """Return gap and placeholder for each removed placeholder, in the order in which they come in the translation."""
    order: list[tuple[int, Removed]] = []
    # With a stack, not by recursion, because tags may be nested to any depth.
    todo: list[_Placement | tuple[int, Removed]] = [*reversed(_disjoint(_placements(removed, gaps), 0, gaps.last_gap))]
    while todo:
        item = todo.pop()
        if isinstance(item, tuple):
            order.append(item)
            continue
        order.append((item.start, removed[item.index]))
        if item.closing is not None:
            todo.append((item.end, removed[item.closing]))
            todo += reversed(_disjoint(item.children, item.start, item.end))
    # Positional ones get their arguments in the order of the source, whatever the words around them do.
    positional = iter([item for item in removed if is_positional(item.text)])
    return [(gap, next(positional) if is_positional(item.text) else item) for gap, item in order]


def _placements(removed: Sequence[Removed], gaps: _GapFinder) -> list[_Placement]:
    """Return the placements of all placeholders as a forest, pairs of tags around what they enclose.

    A pair encloses the translations of all words that it enclosed.
    """
    closing = tag_pairs([item.tag for item in removed])
    closed = set(closing.values())
    root = _Placement(-1)
    stack, words_read = [root], 0
    nothing = gaps.last_gap, 0
    covered = [nothing]  # for each of the stack: the gaps before and after the translation of its words
    for index, item in enumerate(removed):
        until = bisect_left(gaps.aligned_offsets, item.offset)
        if tokens := gaps.aligned_tokens[words_read:until]:
            covered[-1] = min(covered[-1][0], *tokens), max(covered[-1][1], *(token + 1 for token in tokens))
        words_read = max(words_read, until)
        if index in closing:
            stack.append(_Placement(index, closing[index]))
            covered.append(nothing)
        elif index in closed:
            pair, (start, end) = stack.pop(), covered.pop()
            covered[-1] = min(covered[-1][0], start), max(covered[-1][1], end)
            opening_offset = removed[pair.index].offset
            outer_start, outer_end = gaps.outer_gap(opening_offset), gaps.outer_gap(item.offset)
            if start >= end:  # they enclose no word, or a part of one
                end = gaps.gap(item.offset, goes_with_next_word=False)
                start = max(0, end - (opening_offset < item.offset))
                if opening_offset < item.offset and start == end:  # there is no word before it
                    end = min(1, gaps.last_gap)
                end = gaps.past_articles(start, end, opening_offset, item.offset)
            elif outer_start is not None and outer_end is not None:  # all words are inside
                start, end = outer_start, outer_end
            else:
                end = gaps.past_articles(start, end, opening_offset, item.offset)
            pair.start, pair.end = start, max(start, end)
            stack[-1].children.append(pair)
        else:
            gap = gaps.gap(item.offset, item.goes_with_next_word)
            stack[-1].children.append(_Placement(index, None, gap, gap))
    return root.children


def _disjoint(placements: Sequence[_Placement], first_gap: int, last_gap: int) -> list[_Placement]:
    """Move placements so that they lie between two gaps and do not overlap; return them from left to right."""
    placements = sorted(placements, key=lambda placement: placement.start)
    for index, placement in enumerate(placements):
        placement.start = min(max(placement.start, first_gap), last_gap)
        placement.end = min(max(placement.end, placement.start), last_gap)
        following = placements[index + 1] if index + 1 < len(placements) else None
        if following and following.closing is not None and following.start > placement.start:
            placement.end = min(placement.end, following.start)
        first_gap = placement.end
    return placements


def _insert(
    translation: str, tokens: Sequence[tuple[int, int]], order: Sequence[tuple[int, Removed]], spaced: bool
) -> str:
    """Return the translation with placeholders in its gaps.

    tokens: the spans between the gaps; order: gap and placeholder; spaced: put spaces around every placeholder.
    """
    parts: list[str] = []
    position = 0
    for gap, group in groupby(order, key=itemgetter(0)):
        start = tokens[gap - 1][1] if gap else 0
        end = tokens[gap][0] if gap < len(tokens) else len(translation)
        left = translation[slice(*tokens[gap - 1])] if gap else ""
        right = translation[slice(*tokens[gap])] if gap < len(tokens) else ""
        parts.append(translation[position:start])
        items = [item for _, item in group]
        if spaced:
            parts.append(f" {' '.join(item.text for item in items)} ")
        else:
            parts += _with_spaces(left, translation[start:end], items, right)
        position = end
    parts.append(translation[position:])
    return "".join(parts) if not spaced else "".join(parts).strip()


def _with_spaces(left: str, space: str, items: Sequence[Removed], right: str) -> Iterator[str]:
    """Yield placeholders and spaces between two tokens with `space` between them; tags stay at their words."""
    last: Removed | None = None
    opening = ""  # opening tags, until the word or placeholder after them comes
    for item in items:
        if item.opens_at_word or (item.closes_at_word and opening):
            opening += item.text
        elif item.closes_at_word:
            yield item.text
        else:
            yield (_space_after(left, space, item) if last is None else _space_between(last, item)) + opening
            yield item.text
            last, opening = item, ""
    yield (space if last is None else _space_before(last, space, right)) + opening


def _space_between(last: Removed, item: Removed) -> str:
    return "" if item.offset == last.offset and last.after.strip() and item.before.strip() else " "


def _space_after(left: str, space: str, item: Removed) -> str:
    """Return the space between a token and the placeholder after it.

    It is as in the source if the same token was before the placeholder there, else as is usual for the two. A tag that
    touched a word there touches any token here.
    """
    if not left or item.before == left:
        return space if not left else ""
    if item.kind == "tag" and item.before.strip() and not OPENING_MARK.match(item.before):
        return ""
    usual = SPACE_AFTER.match(left[-1]) or (item.before == " " and not OPENING_MARK.match(left[-1]))
    return space or (" " if usual and not UNSPACED_LETTER.match(left[-1]) else "")


def _space_before(item: Removed, space: str, right: str) -> str:
    """Return the space between a placeholder and the token after it; the rules are those of `_space_after`."""
    if not right or item.after == right:
        return space if not right else ""
    if item.kind == "tag" and item.after.strip() and not CLOSING_MARK.match(item.after):
        return ""
    usual = SPACE_BEFORE.match(right[0]) or (item.after == " " and not CLOSING_MARK.match(right[0]))
    return space or (" " if usual and not UNSPACED_LETTER.match(right[0]) else "")
