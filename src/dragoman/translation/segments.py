"""Cut texts into segments: what is translated at once, as long as the sources that a model has learned from."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import regex

from dragoman.config.search import Split
from dragoman.data.batches import Ids
from dragoman.data.tokenizers import SideTokenizer
from dragoman.text import placeholders
from dragoman.text.extent import SourceExtent
from dragoman.text.glossary import TermMatch
from dragoman.text.segmentation import group_sentences, split_sentences, split_to_fit

WIDE_SPACE = re.compile(r"\s{3,}")  # longer runs of white space than training texts have
# What stands before a text and has no words: dashes of dialogue, bullets, numbers of a list, notes, emoji.
MARKER = regex.compile(
    r"""\s*(?:(?:[\p{Pd}\p{So}\p{Sm}#*•◦‣·][\p{Pd}\p{So}\p{Sm}\p{M}\p{Cf}#*•◦‣·]*+
    | \(?\d{1,3}\) | \[\d{1,3}\] | (?:\d{1,3}\.)++(?=\s+[\p{Lu}\p{Lo}¿¡"“«]) )\s+
    | [-–—―−•](?=[^\W\d]|[¿¡"“«]))++(?=\S)""",
    regex.VERBOSE,
)
LINE_END = re.compile(r"<br(?=[\s/>])[^<>]*>\s*\Z", re.IGNORECASE)
# What stands behind it: "♪", an emoji, the number of a note: "[1]".
NOTE = regex.compile(r"(?<=[\s.!?…。！？])(?:\p{So}[\p{So}\p{M}\p{Cf}\p{Sk}\s]*+|\[\^?\d{1,3}\]\s*+)\Z")


@dataclass(frozen=True)
class Segment:
    """A part of a text that is translated at once, and what its translation must have."""

    text: str
    ids: Ids  # the tokens of the text
    tag_ids: Ids = field(default_factory=list)  # those of the tag in front of it
    prefix: str = ""  # how its translation has to begin
    prefix_ids: Ids = field(default_factory=list)
    given: bool = False  # whether the prefix is all of its translation
    terms: tuple[TermMatch, ...] = ()  # what the glossary demands
    space: str = ""  # between it and the next segment
    markup: bool = False  # whether it is nothing but tags, which are not translated

    @property
    def has_words(self) -> bool:
        """Return whether there is anything to translate: not only tags, digits, punctuation or emoji."""
        return bool(self.prefix) or (not self.markup and any(map(str.isalpha, self.text)))


@dataclass(frozen=True)
class Segmenter:
    """Cuts texts into segments that hold as many sentences as training sources did."""

    tokenizer: SideTokenizer
    extent: SourceExtent
    split: Split  # see `SearchConfig.split`
    keep_tags: bool = True  # whether tags come through a translation as they are

    def cut(self, text: str, ids: Ids, max_tokens: int) -> list[Segment]:
        """Return the segments of a text, whose tokens are `ids`; none where it is blank.

        A sentence of more than `max_tokens` tokens becomes several segments. A bullet, a number or the dash of a
        dialogue at the beginning of a segment is a segment of its own, and so are the tags around one. All texts and
        spaces, joined, are the text, but for runs of white space that no model has learned to read.
        """
        if not text.strip():
            return []
        groups = self._group_sentences(text, len(ids))
        if len(groups) == 1 and len(ids) <= max_tokens and len(self._split_edges(text)) == 1:
            return [Segment(text, ids)]
        pieces = self._cut_long(groups, max_tokens)
        parts = attach_blanks(part for piece in pieces for part in self._split_edges(piece))
        texts = [part.rstrip() for part in parts]  # no sentence of a training ends in a space
        return [
            Segment(text, ids, space=part[len(text) :], markup=self.keep_tags and is_markup(text))
            for part, text, ids in zip(parts, texts, self.tokenizer.encode_sources(texts), strict=True)
        ]

    def _split_edges(self, text: str) -> list[str]:
        """Return a text in parts: its words, and what stands before and behind them and is not translated."""
        start, end = placeholders.inside_tags(text) if self.keep_tags and "<" in text else (0, len(text))
        start += len(text[start:end]) - len(text[start:end].lstrip())
        return [part for part in (text[:start], *split_marker(text[start:end]), text[end:]) if part]

    def _group_sentences(self, text: str, tokens: int) -> list[str]:
        """Return a text of so many tokens in groups of as many sentences as training sources had; see `split`.

        With "long" only their tokens count, with "none" the text is one group. A sentence is a group of its own where
        it is longer than training sources were, and no group has a bullet, a number or a dash of dialogue inside.
        """
        sentences = split_sentences(text)
        if self.split != "none" and len(turns := split_turns(sentences)) > 1:
            return [group for turn in turns for group in self._group_sentences(turn, len(self.tokenizer.encode(turn)))]
        if self.split == "none" or len(sentences) == 1 or self._as_in_training(len(sentences), tokens):
            return [text]
        return group_sentences(
            text, lambda part: self._as_in_training(len(split_sentences(part)), len(self.tokenizer.encode(part)))
        )

    def _as_in_training(self, sentences: int, tokens: int) -> bool:
        """Return whether training sources had as many tokens and, but with the split "long", as many sentences."""
        return (self.split == "long" or sentences <= self.extent.sentences) and tokens <= self.extent.tokens

    def _cut_long(self, texts: Iterable[str], max_tokens: int) -> list[str]:
        """Return the texts in order, those of more than `max_tokens` tokens narrowed and in pieces that fit."""

        def fits(text: str) -> bool:
            return len(self.tokenizer.encode(text)) <= max_tokens

        return [piece for text in texts for piece in ([text] if fits(text) else split_to_fit(narrow(text), fits))]


def divide_prefix(prefix: str, texts: Sequence[str]) -> list[str]:
    """Return the parts of a prefix that begin the translations of the first texts: as many sentences as each text has.

    The last part is all that is left, or '' where a sentence is complete. Joined, the parts are the prefix.
    """
    *complete, last = split_sentences(f"{prefix}X")  # a sentence ends where another one begins
    sentences = [*complete, last[:-1]]
    parts = []
    for text in texts[:-1]:
        count = len(split_sentences(text))
        if len(sentences) <= count:
            break
        parts.append("".join(sentences[:count]))
        sentences = sentences[count:]
    return [*parts, "".join(sentences)]


def attach_blanks(pieces: Iterable[str]) -> list[str]:
    """Append each piece of white space to the piece before, so that it is not translated; drop leading ones."""
    attached: list[str] = []
    for piece in pieces:
        if piece.strip():
            attached.append(piece)
        elif attached:
            attached[-1] += piece
    return attached


def split_turns(sentences: Iterable[str]) -> list[str]:
    """Return the sentences joined to the turns of a dialogue: texts that each, after the first, begin with a marker.

    Lines that the tag <br> ends are not joined either.
    """
    turns: list[str] = []
    for sentence in sentences:
        if turns and not MARKER.match(sentence) and not LINE_END.search(turns[-1]):
            turns[-1] += sentence
        else:
            turns.append(sentence)
    return turns


def split_marker(text: str) -> list[str]:
    """Return a text in parts: a bullet, number, dash or note that it begins with, its words, a note that it ends in."""
    marker = MARKER.match(text)
    start = marker.end() if marker else 0
    note = NOTE.search(text, start)
    end = note.start() if note else len(text)
    return [part for part in (text[:start], text[start:end], text[end:]) if part]


def is_markup(text: str) -> bool:
    """Return whether a text is nothing but tags, with or without a number in them: "<sup>1</sup>"."""
    return text.startswith("<") and not any(map(str.isalpha, placeholders.remove(text)[0]))


def narrow(text: str) -> str:
    """Return the text with each run of three or more white-space characters as two line feeds, or as one space.

    It is two line feeds where there is one in the run.
    """
    return WIDE_SPACE.sub(lambda match: "\n\n" if "\n" in match[0] else " ", text)
