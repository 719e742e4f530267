"""Cut texts into segments, and join their translations.

A segment is what is translated at once, as long as the sources that a model has learned from.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import regex

from dragoman.confidence.estimate import Estimate
from dragoman.confidence.features import Features
from dragoman.config.search import Split
from dragoman.data.batches import Ids
from dragoman.data.tokenizers import SideTokenizer
from dragoman.decoding.search import Hypothesis
from dragoman.text import verbatim
from dragoman.text.extent import SourceExtent
from dragoman.text.glossary import TermMatch
from dragoman.text.segmentation import group_clauses, group_sentences, split_sentences, split_to_fit
from dragoman.translation.translation import TERM_REPORTS, Translation

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
FEWEST = 12  # letters, for fewer say little of how words are spelled
LONGER = 2  # times the tokens of training sources that a sentence may have; longer ones are cut where clauses end
PARTING_TAG = re.compile(r"</|<br\b", re.IGNORECASE)
WIDE_ENDS = frozenset("。．！？｡」』”）")  # of sentences that no space follows


@dataclass(frozen=True)
class Segment:
    """A part of a text that is translated at once, and what its translation must have."""

    text: str
    ids: Ids  # the tokens of the text
    tag_ids: Ids = field(default_factory=list)  # those of the tag in front of it
    target_tag_ids: Ids = field(default_factory=list)  # those of the tag in front of its translation
    prefix: str = ""  # how its translation has to begin
    prefix_ids: Ids = field(default_factory=list)
    given: bool = False  # whether the prefix is all of its translation
    approved: str = ""  # the flag of a translation that somebody has approved for this text
    terms: tuple[TermMatch, ...] = ()  # what the glossary demands
    space: str = ""  # between it and the next segment
    markup: bool = False  # whether it is nothing but tags, which are not translated

    @property
    def source_ids(self) -> Ids:
        """The tokens that the model reads: the tag and the text, without EOS."""
        return self.tag_ids + self.ids

    @property
    def subwords_per_letter(self) -> float:
        """Return how many of its subwords each of its letters takes; 0.0 with fewer than FEWEST letters.

        Marks and digits count as a subword each, and do not count. It is high where words are spelled as in no source
        of the training, as in "mIxEd CaSe".
        """
        letters = sum(map(str.isalpha, self.text))
        others = len("".join(self.text.split())) - letters
        return (len(self.ids) - others) / letters if letters >= FEWEST else 0.0

    @property
    def has_words(self) -> bool:
        """Return whether there is anything to translate: not only tags, digits, punctuation or emoji."""
        return bool(self.prefix) or (not self.markup and any(map(str.isalpha, self.text)))


@dataclass(frozen=True)
class Wording:
    """Which of the demanded words a translation has."""

    terms_met: tuple[str, ...] = ()  # source terms of the glossary whose target terms it has
    terms_in_compounds: tuple[str, ...] = ()  # those whose it has as the last part of a longer word
    terms_refused: tuple[str, ...] = ()  # those that would have taken the place of half a compound
    terms_missed: tuple[str, ...] = ()  # those whose it has not, for another reason
    flags: tuple[str, ...] = ()  # 'no brake pad': a term that it has not; 'has rey': forbidden; 'unknown Kowalczyk'


@dataclass(frozen=True)
class Candidate:
    """A translation of a segment, and what is wrong with it."""

    text: str
    hypothesis: Hypothesis
    faults: tuple[str, ...] = ()  # in words: 'loop', 'lost {name}'
    wrong_placeholders: int = 0  # how many it lost or invented
    wording: Wording = Wording()
    features: Features | None = None  # that tell how good it is; None where nobody asks, or nothing was searched for
    estimate: Estimate | None = None  # made of these

    @property
    def flags(self) -> tuple[str, ...]:
        return self.faults + self.wording.flags

    @property
    def badness(self) -> tuple[int, int, bool, float]:
        """A key to sort by, smaller for better candidates.

        Wrong placeholders count most: a text without them breaks the program that fills them in. Of two candidates with
        as many flags, one with words is better than an empty one, and then the one of which more is to be expected.
        """
        expected = self.estimate.chrf if self.estimate else 0.0
        return self.wrong_placeholders, len(self.flags), "empty" in self.faults, -expected


@dataclass(frozen=True)
class SegmentResult:
    """The candidates for a segment, from one search or two."""

    segment: Segment
    candidates: list[Candidate]  # best first
    retried: bool  # whether there was a second search


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
        short = len(ids) <= min(max_tokens, LONGER * self.extent.tokens)
        if len(groups) == 1 and short and len(self._split_edges(text)) == 1:
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
        has_tags = self.keep_tags and verbatim.TAG_SIGN.search(text)
        start, end = verbatim.inside_tags(text) if has_tags else (0, len(text))
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
        """Return the texts in order; those of more than `max_tokens` tokens narrowed and in pieces that fit.

        With the split "sentences", one that is much longer than training sources were is cut at the ends of clauses.
        """

        def size(text: str) -> int:
            return len(self.tokenizer.encode(self.tokenizer.plain_spaces(text)))

        def cut(text: str) -> list[str]:
            if self.split != "sentences" or size(text) <= LONGER * self.extent.tokens:
                return [text]
            return group_clauses(text, lambda part: size(part) <= self.extent.tokens)

        def fit(text: str) -> list[str]:
            fits = size(text) <= max_tokens
            return [text] if fits else split_to_fit(narrow(text), lambda part: size(part) <= max_tokens)

        return [piece for text in texts for clause in cut(text) for piece in fit(clause)]


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
    return bool(verbatim.TAG_SIGN.match(text)) and not any(map(str.isalpha, verbatim.remove(text)[0]))


def narrow(text: str) -> str:
    """Return the text with each run of three or more white-space characters as two line feeds, or as one space.

    It is two line feeds where there is one in the run.
    """
    return WIDE_SPACE.sub(lambda match: "\n\n" if "\n" in match[0] else " ", text)


def join_segments(results: Sequence[SegmentResult]) -> Translation:
    """Return the translation of a text from its segments, one or more: their best candidates, joined.

    Its alternatives are the second best candidates, joined, and so on, to the last one of the segment with the most.
    A segment that has fewer gives its last one again.
    """
    segments = [result.segment for result in results]
    best, *alternatives = (
        join_candidates(segments, [result.candidates[min(rank, len(result.candidates) - 1)] for result in results])
        for rank in range(max(len(result.candidates) for result in results))
    )
    return replace(best, retried=any(result.retried for result in results), alternatives=tuple(alternatives))


def join_candidates(segments: Sequence[Segment], candidates: Sequence[Candidate]) -> Translation:
    """Return the translation of a text: one candidate for each of its segments, joined with the space between them.

    Scores, flags (each once) and TERM_REPORTS are those of all. `retried`, `alternatives`: see `join_segments`.
    """
    outputs = spaced_outputs(segments, [candidate.text for candidate in candidates])
    terms: dict[str, Any] = {
        name: tuple(term for candidate in candidates for term in getattr(candidate.wording, name))
        for name in TERM_REPORTS
    }
    estimates = [candidate.estimate for candidate in candidates]
    return Translation(
        one_line("".join(outputs)),
        sum(candidate.hypothesis.score for candidate in candidates),
        tuple(zip((segment.text + segment.space for segment in segments), outputs, strict=True)),
        all(candidate.hypothesis.finished for candidate in candidates),
        tuple(dict.fromkeys(flag for candidate in candidates for flag in candidate.flags)),
        **terms,
        tokens=tuple(tuple(candidate.hypothesis.tokens) for candidate in candidates),
        confidences=tuple(each.confidence if each else None for each in estimates) if any(estimates) else (),
    )


def spaced_outputs(segments: Sequence[Segment], outputs: Sequence[str]) -> list[str]:
    """Return the output of each segment with the space after it, between the tags that close one and open the next."""
    spaced = list(outputs)
    words: tuple[Segment, str] | None = None  # the last segment that is not markup, until a space follows it
    for index, (segment, following) in enumerate(pairwise(segments)):
        if not segment.markup:
            words = segment, outputs[index]
        if words is None or (following.markup and PARTING_TAG.match(following.text)):
            spaced[index] += segment.space
        else:
            spaced[index] += space_after(replace(words[0], space=segment.space), words[1])
            words = None
    return spaced


def space_after(segment: Segment, output: str) -> str:
    """Return the space after the output of a segment: that of the source, unless only one language writes spaces."""
    if output[-1:] in WIDE_ENDS:
        return ""
    return segment.space or " " * (segment.text[-1:] in WIDE_ENDS)


def one_line(text: str) -> str:
    """Return the text with a space for each line feed and the carriage return before it."""
    return text.replace("\r\n", " ").replace("\n", " ")
