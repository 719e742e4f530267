"""Annotate finished translations with what a model says of them: each word's probability, and the source word it comes
from.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import NamedTuple

from torch import Tensor

from dragoman.alignment.heads import AlignmentHead, alignment_weights
from dragoman.alignment.links import character_links, strongest_links
from dragoman.alignment.words import merge_tokens, words
from dragoman.confidence.estimate import Confidence
from dragoman.data.batches import Ids
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.forced import max_positions, score
from dragoman.memory.memory import Memory
from dragoman.memory.provenance import Shares, join_shares, mean_shares
from dragoman.model import Model
from dragoman.translation.alternatives import most_for_others
from dragoman.translation.bare import BarePair, Value, find_bare_pair
from dragoman.translation.translation import Translation

Segments = Sequence[tuple[str, str]]

MIN_LOSS = 1.0  # nats that a word of an output loses without the word of the source that it translates
BLIND = 0.1  # what the loss of a word counts that does not attend to that of the source at all


class FlatPairs(NamedTuple):
    """The segments of all texts, one after the other, without the white space between them, which is not translated."""

    sources: list[str]
    outputs: list[str]
    tags: list[str]
    target_tags: list[str]
    tokens: list[Sequence[int]] | None  # for each output those that a search found, see `Annotator.word_scores`


@dataclass(frozen=True)
class Encoded:
    """Pairs of texts as token ids, without EOS."""

    sources: list[Ids]
    targets: list[Ids]  # with the target tag in front
    tags: list[Ids]  # of the tag in front of each source
    target_tags: list[Ids]  # of the tag in front of each target
    fitting: list[int]  # indices of the pairs that are not blank and fit the model


@dataclass(frozen=True)
class Annotator:
    """Scores and aligns the words of translations, whichever model they are from.

    `texts`: for each text its segments, a source and its translation each, of which the text and its translation
    consist; one pair for what was translated at once. `tags`, `target_tags`: those of each text, '' for the annotator's
    own. A tag that was not learned raises DragomanError, unless the model has no attention and there is nothing to
    align.
    """

    model: Model
    tokenizers: Tokenizers
    alignment: AlignmentHead | None
    "layer and head that alignments are taken from; None for a model without attention over its source"
    tag: str = ""
    "that of sources for which no tag is given"
    target_tag: str = ""
    "what translations begin with for which no target tag is given; it is no part of them"
    reading: Callable[[str], str] = str
    "returns what a search reads of a source: as many words"

    def word_scores(
        self,
        texts: Sequence[Segments],
        tags: Sequence[str] | None = None,
        tokens: Sequence[Sequence[Sequence[int]]] | None = None,
        target_tags: Sequence[str] | None = None,
    ) -> list[list[tuple[str, float]]]:
        """Return the words of each translation with their log-probabilities in nats, and '' for EOS at the end.

        tokens: for each text those of its segments' translations, as a search found them (`Translation.tokens`). They
        are what is scored, and the sum is the score of the search; the text may also be cut into other subwords. A
        translation that they do not spell, and each one without them, is cut anew. Where a search found none, the
        segment was copied, and its words have 0.0. So have placeholders that were put back; the other words are scored
        as the model wrote them, without placeholders.

        The list is empty where a segment is blank or longer than the model takes.
        """
        scores = iter(self._segment_scores(flatten(texts, tags, tokens, target_tags)))
        return [join_scores(segments, [next(scores) for _ in segments]) for segments in texts]

    def alignments(
        self,
        texts: Sequence[Segments],
        tags: Sequence[str] | None = None,
        tokens: Sequence[Sequence[Sequence[int]]] | None = None,
        target_tags: Sequence[str] | None = None,
    ) -> list[str]:
        """Return the links of each text as '0-0 1-2', see `links`."""
        return [
            " ".join(f"{source}-{target}" for source, target in links)
            for links in self.links(texts, tags, tokens, target_tags)
        ]

    def links(
        self,
        texts: Sequence[Segments],
        tags: Sequence[str] | None = None,
        tokens: Sequence[Sequence[Sequence[int]]] | None = None,
        target_tags: Sequence[str] | None = None,
    ) -> list[list[tuple[int, int]]]:
        """Return for each text the pairs of a source word and the translated word aligned with it, by index.

        tokens: as for `word_scores`; they are what is aligned. They tell where placeholders were put back: these are
        linked with themselves, and the other words as the model aligns them without placeholders.

        Without links of segments that are longer than the model takes, and of a model without attention over its
        source.
        """
        links = iter(self._segment_links(flatten(texts, tags, tokens, target_tags)))
        return [join_links(segments, [next(links) for _ in segments]) for segments in texts]

    def align(
        self, translations: Sequence[Translation], tags: Sequence[str], target_tags: Sequence[str]
    ) -> list[Translation]:
        """Return the translations, and their alternatives, with their word alignments. tags: those of the sources."""
        tagged = [
            (each, tag, target_tag)
            for translation, tag, target_tag in zip(translations, tags, target_tags, strict=True)
            for each in (translation, *translation.alternatives)
        ]
        ranked, *both_tags = zip(*tagged, strict=True) if tagged else ((), (), ())
        texts, tokens = [each.segments for each in ranked], [each.tokens for each in ranked]
        links = self.links(texts, both_tags[0], tokens, both_tags[1])
        aligned = iter([replace(each, alignment=tuple(pairs)) for each, pairs in zip(ranked, links, strict=True)])
        return [
            replace(next(aligned), alternatives=tuple(next(aligned) for _ in translation.alternatives))
            for translation in translations
        ]

    def others(
        self,
        texts: Sequence[Segments],
        tags: Sequence[str] | None = None,
        tokens: Sequence[Sequence[Sequence[int]]] | None = None,
        target_tags: Sequence[str] | None = None,
    ) -> list[list[float]]:
        """Return for each word of each translation the most that another word in its place may have as its probability.

        tokens, and where the list is empty: as for `word_scores`. Words that were copied have 0.0. See
        `most_for_others`.
        """
        flat = flatten(texts, tags, tokens, target_tags)
        bare, pairs = self._encode_pairs(flat)
        most: list[list[float]] = [[] for _ in flat.outputs]
        for index in pairs.fitting:
            source = pairs.tags[index] + pairs.sources[index]
            most[index] = most_for_others(self.model, self.tokenizers.target, source, pairs.targets[index])
            if pair := bare[index]:
                most[index] = pair.whole_values(most[index], flat.outputs[index], max, 0.0)
        for index, ids in enumerate(flat.tokens or ()):
            if not ids:
                most[index] = [0.0] * len(flat.outputs[index].split())
        of_segments = iter(most)
        return [join_words(segments, [next(of_segments) for _ in segments], max, 0.0) for segments in texts]

    def origins(
        self,
        texts: Sequence[Segments],
        memory: Memory,
        tags: Sequence[str] | None = None,
        tokens: Sequence[Sequence[Sequence[int]]] | None = None,
        target_tags: Sequence[str] | None = None,
    ) -> list[list[Shares]]:
        """Return for each word of each translation the pairs of a memory that speak for it, with their shares.

        The shares of a word are the means of those of its tokens. tokens: as for `word_scores`. Words that were copied
        have none, and the list is empty where that of `word_scores` is.
        """
        flat = flatten(texts, tags, tokens, target_tags)
        bare, pairs = self._encode_pairs(flat)
        sources = [pairs.tags[index] + pairs.sources[index] for index in pairs.fitting]
        of_pairs = memory.origins(sources, [pairs.targets[index] for index in pairs.fitting])
        origins: list[list[Shares]] = [[] for _ in flat.outputs]
        for index, of_tokens in zip(pairs.fitting, of_pairs, strict=True):
            target_words = words(self.tokenizers.target, pairs.targets[index])
            of_words = [mean_shares([of_tokens[n] for n in word.tokens]) for word in target_words]
            if pair := bare[index]:
                of_words = pair.whole_values(of_words, flat.outputs[index], join_shares, {})
            origins[index] = of_words
        of_segments = iter(origins)
        return [join_words(segments, [next(of_segments) for _ in segments], join_shares, {}) for segments in texts]

    def _segment_scores(self, flat: FlatPairs) -> list[list[tuple[str, float]]]:
        bare, pairs = self._encode_pairs(flat)
        tagged = [pairs.tags[index] + pairs.sources[index] for index in pairs.fitting]
        likelihoods = score(self.model, tagged, [pairs.targets[index] for index in pairs.fitting])
        scores: list[list[tuple[str, float]]] = [[] for _ in flat.outputs]
        for index, likelihood in zip(pairs.fitting, likelihoods, strict=True):
            target_words = words(self.tokenizers.target, pairs.targets[index])
            owners = {position: n for n, word in enumerate(target_words) for position in word.tokens}
            sums = [0.0] * len(target_words)
            for position, log_p in enumerate(likelihood.log_p[:-1]):
                # What belongs to no word, white space, counts for the first one: the sums give the total.
                if sums and position >= len(pairs.target_tags[index]):
                    sums[owners.get(position, 0)] += log_p
            labels = [word.label for word in target_words]
            if pair := bare[index]:
                labels, sums = flat.outputs[index].split(), pair.whole_values(sums, flat.outputs[index], add, 0.0)
            scores[index] = [*zip(labels, sums, strict=True), ("", likelihood.log_p[-1])]
        for index, (output, ids) in enumerate(zip(flat.outputs, flat.tokens or (), strict=False)):
            if not ids and output:  # a copy, which the model did not write
                scores[index] = [(word, 0.0) for word in (*output.split(), "")]
        return scores

    def _segment_links(self, flat: FlatPairs) -> list[list[tuple[int, int]]]:
        """Return the word links of each segment: indices of a source word and of the translated word."""
        links: list[list[tuple[int, int]]] = [[] for _ in flat.outputs]
        if self.alignment is None:
            return links
        bare, pairs = self._encode_pairs(flat)
        maps = self._attention(
            self.alignment, *([side[n] for n in pairs.fitting] for side in (pairs.sources, pairs.targets, pairs.tags))
        )
        for index, weights in zip(pairs.fitting, maps, strict=True):
            target_words = words(self.tokenizers.target, pairs.targets[index])
            source_words = words(self.tokenizers.source, pairs.sources[index])
            links[index] = strongest_links(merge_tokens(weights, target_words, source_words))
        return [
            pair.whole_links(of_segment) if pair else of_segment for pair, of_segment in zip(bare, links, strict=True)
        ]

    def character_links(
        self, sources: Sequence[Ids], targets: Sequence[Ids], tags: Sequence[Ids]
    ) -> list[list[tuple[int, int]] | None]:
        """Return for each pair the characters of the source with those of the output that translate them, by index.

        They are the first characters of words. sources, targets, tags: token ids without EOS; `tags` are those of the
        tag in front of each source. None where the model cannot tell: it has no attention over its source, or the
        output is too long for it.
        """
        links: list[list[tuple[int, int]] | None] = [None] * len(sources)
        rows = [row for row, target in enumerate(targets) if self.alignment and len(target) < max_positions(self.model)]
        if not rows or self.alignment is None:
            return links
        chosen = ([side[row] for row in rows] for side in (sources, targets, tags))
        for row, weights in zip(rows, self._attention(self.alignment, *chosen), strict=True):
            target_words = words(self.tokenizers.target, targets[row])
            source_words = words(self.tokenizers.source, sources[row])
            merged = merge_tokens(weights, target_words, source_words)
            links[row] = [(s[0], t[0]) for s, t in character_links(merged, target_words, source_words)]
        return links

    def links_by_loss(self, source: Ids, target: Ids, tag: Ids, starts: Sequence[int]) -> list[tuple[int, int]]:
        """Return links as `character_links` does, for some words of the source: those that begin at `starts`.

        Each is linked with the word of the output that attends to it and is less probable without it, for attention
        alone often stands on a word of grammar beside that one. A word that none needs has no link; none has one where
        `character_links` returns None.
        """
        if self.alignment is None or len(target) >= max_positions(self.model):
            return []
        source_words, target_words = words(self.tokenizers.source, source), words(self.tokenizers.target, target)
        wanted = [word for word in source_words if word.span[0] in starts]
        without = [[id for n, id in enumerate(source) if n not in word.tokens] for word in wanted]
        complete, *others = score(self.model, [tag + ids for ids in (source, *without)], [target] * (1 + len(wanted)))
        (weights,) = self._attention(self.alignment, [source], [target], [tag])
        attention = merge_tokens(weights, target_words, source_words)
        links: list[tuple[int, int]] = []
        for word, other in zip(wanted, others, strict=True):
            column = source_words.index(word)
            needs = [
                sum(complete.log_p[n] - other.log_p[n] for n in said.tokens) * (BLIND + float(attention[row, column]))
                for row, said in enumerate(target_words)
            ]
            if max(needs) >= MIN_LOSS * BLIND:
                links.append((word.span[0], target_words[needs.index(max(needs))].span[0]))
        return links

    def _attention(
        self, head: AlignmentHead, sources: Sequence[Ids], targets: Sequence[Ids], tags: Sequence[Ids]
    ) -> Iterator[Tensor]:
        """Yield for each pair the attention (T+1, S+1) of `head` without the columns of the tag; EOS comes last."""
        tagged = [tag + source for tag, source in zip(tags, sources, strict=True)]
        for tag, weights in zip(tags, alignment_weights(self.model, tagged, targets, head), strict=True):
            yield weights[:, len(tag) :]

    def _encode_pairs(self, flat: FlatPairs) -> tuple[list[BarePair | None], Encoded]:
        """Return for each segment its pair without placeholders, and the token ids of what the model reads and writes.

        The pair is None where the tokens that a search found spell the output, or there are none. Where they spell what
        the model wrote, they are its ids. Raise DragomanError where a tag was not learned.
        """
        source_side, target_side = self.tokenizers.source, self.tokenizers.target
        tokens = flat.tokens or [()] * len(flat.outputs)
        sources = [self.reading(source) if ids else source for source, ids in zip(flat.sources, tokens, strict=True)]
        spelled = [target_side.decode(ids).rstrip() for ids in tokens]
        bare = [
            find_bare_pair(source, output, text) if ids and text != output else None
            for source, output, ids, text in zip(sources, flat.outputs, tokens, spelled, strict=True)
        ]
        written = [pair.output if pair else output for pair, output in zip(bare, flat.outputs, strict=True)]
        source_ids = source_side.encode_sources(
            [pair.source if pair else source for pair, source in zip(bare, sources, strict=True)]
        )
        tag_ids = [source_side.tag_ids(tag or self.tag) for tag in flat.tags]
        target_tag_ids = [target_side.tag_ids(tag or self.target_tag) for tag in flat.target_tags]
        target_ids = [
            list(ids) if flat.tokens and text == output else tag + anew
            for ids, text, output, tag, anew in zip(
                tokens, spelled, written, target_tag_ids, target_side.encode_all(written), strict=True
            )
        ]
        max_length = max_positions(self.model)
        fitting = [
            index
            for index, (source, target, tag, target_tag) in enumerate(
                zip(source_ids, target_ids, tag_ids, target_tag_ids, strict=True)
            )
            if source and len(target) > len(target_tag) and max(len(tag) + len(source), len(target)) < max_length
        ]
        return bare, Encoded(source_ids, target_ids, tag_ids, target_tag_ids, fitting)


def flatten(
    texts: Sequence[Segments],
    tags: Sequence[str] | None,
    tokens: Sequence[Sequence[Sequence[int]]] | None,
    target_tags: Sequence[str] | None,
) -> FlatPairs:
    """Return the segments of texts one after the other; the arguments are those of `Annotator.word_scores`."""
    blank = [""] * len(texts)
    segments = [
        (source.rstrip(), output.rstrip(), tag, target_tag)
        for of_text, tag, target_tag in zip(texts, tags or blank, target_tags or blank, strict=True)
        for source, output in of_text
    ]
    flat_tokens = [ids for of_text in tokens for ids in of_text] if tokens else None
    sources, outputs, flat_tags, flat_target_tags = ([segment[side] for segment in segments] for side in range(4))
    return FlatPairs(sources, outputs, flat_tags, flat_target_tags, flat_tokens)


def join_scores(segments: Segments, scores: Sequence[list[tuple[str, float]]]) -> list[tuple[str, float]]:
    """Return the word scores of a text from those of its segments; EOS has the sum of all.

    Return [] where a segment has none.
    """
    if not all(scores):
        return []
    joined: dict[int, tuple[str, float]] = {}
    for offset, of_segment in zip(word_offsets([output for _, output in segments]), scores, strict=True):
        for index, (word, log_p) in enumerate(of_segment[:-1], start=offset):
            before, sum_before = joined.get(index, ("", 0.0))
            joined[index] = before + word, sum_before + log_p
    return [*joined.values(), ("", sum(of_segment[-1][1] for of_segment in scores))] if scores else []


def join_words(
    segments: Segments, values: Sequence[list[Value]], join: Callable[[Value, Value], Value], blank: Value
) -> list[Value]:
    """Return a value for each word of a text from those of its segments' words; [] where a segment has none.

    join: what the pieces of a word that stand in two segments have together; blank: what none has.
    """
    if not all(values):
        return []
    joined: dict[int, Value] = {}
    for offset, of_segment in zip(word_offsets([output for _, output in segments]), values, strict=True):
        for index, value in enumerate(of_segment, start=offset):
            joined[index] = join(joined.get(index, blank), value)
    return list(joined.values())


def join_links(segments: Segments, links: Sequence[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Return the word links of a text from those of its segments."""
    sources, outputs = (word_offsets([segment[side] for segment in segments]) for side in (0, 1))
    joined = {
        (source + first, target + second)
        for first, second, of_segment in zip(sources, outputs, links, strict=True)
        for source, target in of_segment
    }
    return sorted(joined)


def judge_words(
    confidence: Confidence,
    outputs: Sequence[str],
    sure: Sequence[float | None],
    scores: Sequence[tuple[str, float]],
) -> list[float]:
    """Return for each word of a text the probability that it stands in a good place, see `Confidence.judge_word`.

    outputs, sure: the segments of its translation and the confidence in each; scores: see `Annotator.word_scores`.
    """
    starts = word_offsets(outputs)
    return [
        confidence.judge_word(log_p, sure[bisect_right(starts, number) - 1])
        for number, (_, log_p) in enumerate(scores[:-1])
    ]


def word_offsets(pieces: Sequence[str]) -> list[int]:
    """Return the index of each piece's first word in the text that they make up.

    Without white space in between, the last word of one piece and the first of the next are one.
    """
    offsets, offset = [], 0
    for piece, following in zip(pieces, [*pieces[1:], ""], strict=False):
        offsets.append(offset)
        offset += len(piece.split()) - (not piece[-1:].isspace() and not following[:1].isspace())
    return offsets
