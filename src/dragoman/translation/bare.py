"""Find what a model read and wrote of a translation into which placeholders were put back, to align its words."""

import re
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TypeVar

from dragoman.text import verbatim
from dragoman.text.casing import in_capitals
from dragoman.text.verbatim import Placeholder
from dragoman.text.verbatim.kinds import Kinds

Value = TypeVar("Value")
Link = tuple[int, int]  # source word, target word; both count from 0
WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class BarePair:
    """A source and its translation without placeholders.

    source_words, output_words: for each of their words, the index of the word of the whole text that it begins in.
    restored: the links between the placeholders of the whole texts.
    """

    source: str
    output: str
    source_words: Sequence[int]
    output_words: Sequence[int]
    restored: Sequence[Link]

    def whole_links(self, links: Iterable[Link]) -> list[Link]:
        """Return the links of the whole texts, from those of the bare ones."""
        moved = {(self.source_words[source], self.output_words[target]) for source, target in links}
        return sorted(moved | set(self.restored))

    def whole_values(
        self, values: Iterable[Value], output: str, join: Callable[[Value, Value], Value], blank: Value
    ) -> list[Value]:
        """Return a value for each word of the whole output, from those of the words of the bare one.

        join: what the words of the bare output that are a single word in the whole one have together; blank: what
        placeholders have.
        """
        whole = [blank] * len(output.split())
        for word, value in zip(self.output_words, values, strict=True):
            whole[word] = join(whole[word], value)
        return whole


def find_bare_pair(source: str, output: str, written: str) -> BarePair | None:
    """Return the bare pair of a source and its translation, of which the model wrote only `written`.

    None where they differ in more than placeholders, capitals of the whole output, and marks that both texts have in
    front.
    """
    ways = product((written, in_capitals(written)), (verbatim.TAGS, verbatim.KINDS, verbatim.WITH_NUMBERS))
    for shown, kinds in ways:
        source_visible, output_visible = visible(source, kinds), visible(output, kinds)
        front = len(output_visible) - len("".join(shown.split()))
        fronts = [
            [text[index] for index in indices[: max(front, 0)]]
            for text, indices in ((source, source_visible), (output, output_visible))
        ]
        output_letters = "".join(output[index] for index in output_visible[max(front, 0) :])
        if output_letters == "".join(shown.split()) and fronts[0] == fronts[1]:
            bare = drop_visible(verbatim.remove(source, kinds)[0], front)
            words = (
                whole_words(bare, source, source_visible[front:]),
                whole_words(shown, output, output_visible[front:]),
            )
            return BarePair(bare, written, *words, restored_links(source, output, kinds, *words))
    return None


def visible(text: str, kinds: Kinds) -> list[int]:
    """Return the indices of all characters but white space and placeholders."""
    spans = [range(placeholder.start, placeholder.end) for placeholder in verbatim.find(text, kinds)]
    hidden = {index for span in spans for index in span}
    return [index for index, character in enumerate(text) if not character.isspace() and index not in hidden]


def drop_visible(text: str, count: int) -> str:
    """Return the text without so many characters in front, not counting white space."""
    start = next(islice((n for n, character in enumerate(text) if not character.isspace()), count, None), len(text))
    return text[start:]


def whole_words(bare: str, whole: str, indices: Sequence[int]) -> list[int]:
    """Return, for each word of a bare text, the index of the word of the whole text that it begins in.

    indices: where each visible character of the bare text stands in the whole one.
    """
    starts = word_starts(whole)
    first, words = 0, []
    for word in bare.split():
        words.append(bisect_right(starts, indices[first]) - 1)
        first += len(word)
    return words


def word_starts(text: str) -> list[int]:
    return [match.start() for match in WORD.finditer(text)]


def restored_links(
    source: str, output: str, kinds: Kinds, source_words: Iterable[int], output_words: Iterable[int]
) -> list[Link]:
    """Return the links between the words of each placeholder of the source and of its copy in the output.

    A tag links no words that have text of their own (source_words, output_words), for it encloses what it stands at.
    """
    starts = word_starts(source), word_starts(output)
    with_text = set(source_words), set(output_words)
    copies: dict[str, deque[Placeholder]] = defaultdict(deque)
    for placeholder in verbatim.find(output, kinds):
        copies[placeholder.text].append(placeholder)
    return [
        (first, second)
        for placeholder in verbatim.find(source, kinds)
        if copies[placeholder.text]
        for first, second in zip(
            word_range(placeholder, starts[0]), word_range(copies[placeholder.text].popleft(), starts[1]), strict=False
        )
        if placeholder.kind != "tag" or (first not in with_text[0] and second not in with_text[1])
    ]


def word_range(placeholder: Placeholder, starts: Sequence[int]) -> range:
    """Return the indices of the words that a placeholder is in; starts: where the words of the text begin."""
    return range(bisect_right(starts, placeholder.start) - 1, bisect_right(starts, placeholder.end - 1))
