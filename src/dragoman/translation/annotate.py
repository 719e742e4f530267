"""Annotate finished translations with what a model says of them: each word's probability, and the source word it comes
from.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from dragoman.alignment.heads import AlignmentHead, alignment_weights
from dragoman.alignment.links import character_links, strongest_links
from dragoman.alignment.words import merge_tokens, words
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import Tokenizer
from dragoman.decoding.forced import max_positions, score
from dragoman.model import Model


@dataclass(frozen=True)
class Encoded:
    """Pairs of texts as token ids, without EOS."""

    sources: list[Ids]
    targets: list[Ids]
    tags: list[Ids]  # of the tag in front of each source
    fitting: list[int]  # indices of the pairs that are not blank and fit the model


@dataclass(frozen=True)
class Annotator:
    """Scores and aligns the words of translations, whichever model they are from.

    `tags`: the training's tag of each source; '' for none.
    """

    model: Model
    tokenizer: Tokenizer
    alignment: AlignmentHead | None
    "layer and head that alignments are taken from; None for a model without attention over its source"

    def word_scores(
        self, sources: Sequence[str], outputs: Sequence[str], tags: Sequence[str] | None = None
    ) -> list[list[tuple[str, float]]]:
        """Return the words of each output with their log-probabilities in nats, and '' for EOS at the end.

        The list is empty where a side of a pair is blank or longer than the model takes. `tags`: the training's tag of
        each source, '' for none.
        """
        pairs = self._encode_pairs(sources, outputs, tags)
        tagged = [pairs.tags[index] + pairs.sources[index] for index in pairs.fitting]
        likelihoods = score(self.model, tagged, [pairs.targets[index] for index in pairs.fitting])
        scores: list[list[tuple[str, float]]] = [[] for _ in outputs]
        for index, likelihood in zip(pairs.fitting, likelihoods, strict=True):
            target_words = words(self.tokenizer, pairs.targets[index])
            owners = {position: n for n, word in enumerate(target_words) for position in word.tokens}
            sums = [0.0] * len(target_words)
            for position, log_p in enumerate(likelihood.log_p[:-1]):
                if sums:  # what belongs to no word, white space, counts for the first one: the sums give the total
                    sums[owners.get(position, 0)] += log_p
            labels = [word.label for word in target_words]
            scores[index] = [*zip(labels, sums, strict=True), ("", likelihood.log_p[-1])]
        return scores

    def alignments(
        self, sources: Sequence[str], outputs: Sequence[str], tags: Sequence[str] | None = None
    ) -> list[str]:
        """Return '0-0 1-2' for each output: pairs of a source word and the output word aligned with it, by index.

        '' where a side is blank or longer than the model takes, and for a model without attention over its source.
        `tags`: the training's tag of each source, '' for none.
        """
        links = [""] * len(outputs)
        if self.alignment is None:
            return links
        pairs = self._encode_pairs(sources, outputs, tags)
        maps = self._attention(
            self.alignment, *([side[n] for n in pairs.fitting] for side in (pairs.sources, pairs.targets, pairs.tags))
        )
        for index, weights in zip(pairs.fitting, maps, strict=True):
            target_words = words(self.tokenizer, pairs.targets[index])
            source_words = words(self.tokenizer, pairs.sources[index])
            word_links = strongest_links(merge_tokens(weights, target_words, source_words))
            links[index] = " ".join(f"{source}-{target}" for source, target in word_links)
        return links

    def character_links(self, source: Ids, target: Ids, tag: Ids) -> list[tuple[int, int]] | None:
        """Return pairs of a character of the source and the character of the output that translates it, by index.

        They are the first characters of words. source, target, tag: token ids without EOS; `tag` are those of the tag
        in front of the source. None where the model cannot tell: it has no attention over its source, or the output is
        too long for it.
        """
        if self.alignment is None or len(target) >= max_positions(self.model):
            return None
        (weights,) = self._attention(self.alignment, [source], [target], [tag])
        target_words, source_words = words(self.tokenizer, target), words(self.tokenizer, source)
        links = character_links(merge_tokens(weights, target_words, source_words), target_words, source_words)
        return [(source_start, target_start) for (source_start, _), (target_start, _) in links]

    def _attention(
        self, head: AlignmentHead, sources: Sequence[Ids], targets: Sequence[Ids], tags: Sequence[Ids]
    ) -> Iterator[Tensor]:
        """Yield for each pair the attention (T+1, S+1) of `head` without the columns of the tag; EOS comes last."""
        tagged = [tag + source for tag, source in zip(tags, sources, strict=True)]
        for tag, weights in zip(tags, alignment_weights(self.model, tagged, targets, head), strict=True):
            yield weights[:, len(tag) :]

    def _encode_pairs(self, sources: Sequence[str], outputs: Sequence[str], tags: Sequence[str] | None) -> Encoded:
        """Return the token ids of all pairs and of their tags, and in `fitting` which pairs can be given to the model.

        Those are the pairs that are not blank on either side and short enough for the model. Raise DragomanError for an
        unknown tag.
        """
        source_ids, target_ids = (self.tokenizer.encode_all(list(texts)) for texts in (sources, outputs))
        tag_ids = [self.tokenizer.tag_ids(tag) for tag in tags or [""] * len(source_ids)]
        max_length = max_positions(self.model)
        fitting = [
            index
            for index, (source, target, tag) in enumerate(zip(source_ids, target_ids, tag_ids, strict=True))
            if source and target and max(len(tag) + len(source), len(target)) < max_length
        ]
        return Encoded(source_ids, target_ids, tag_ids, fitting)
