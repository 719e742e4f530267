"""What a model says of translations that are there: how probable each word is, and which source word it comes from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dragoman import alignment
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import Tokenizer
from dragoman.decoding.forced import max_positions, score
from dragoman.model import Model


@dataclass(frozen=True)
class Annotator:
    """The outputs may be anybody's. `tags`, one for each source, are those of the training; '' for none."""

    model: Model
    tokenizer: Tokenizer
    aligned_by: alignment.Alignment | None
    "layer and head that alignments are taken from; None for a model without attention over its source"

    def word_scores(
        self, sources: Sequence[str], outputs: Sequence[str], tags: Sequence[str] | None = None
    ) -> list[list[tuple[str, float]]]:
        """The words of each output with their log-probabilities in nats; the end is the last, as ''.

        An output that is longer than the model takes has none.
        """
        source, target, fronts, fitting = self.encoded(sources, outputs, tags)
        found: list[list[tuple[str, float]]] = [[] for _ in outputs]
        likelihoods = score(self.model, [fronts[n] + source[n] for n in fitting], [target[n] for n in fitting])
        for number, likelihood in zip(fitting, likelihoods, strict=True):
            words = alignment.words(self.tokenizer, target[number])
            sums = [0.0] * len(words)
            for place, log_p in zip(words.numbers, likelihood.log_p, strict=False):
                if words:
                    sums[max(place, 0)] += log_p
            found[number] = [*zip(words.labels, sums, strict=True), ("", likelihood.log_p[-1])]
        return found

    def alignments(
        self, sources: Sequence[str], outputs: Sequence[str], tags: Sequence[str] | None = None
    ) -> list[str]:
        """'0-0 1-2': numbers of a word of the source and of the word of the output that looked at it most.

        Empty where one side is longer than the model takes, and for a model without attention over its source.
        """
        found = [""] * len(outputs)
        if self.aligned_by is None:
            return found
        source, target, fronts, fitting = self.encoded(sources, outputs, tags)
        asked = self.attention(self.aligned_by, *([side[n] for n in fitting] for side in (source, target, fronts)))
        for number, weights in zip(fitting, asked, strict=True):
            words, of_source = (alignment.words(self.tokenizer, ids[number]) for ids in (target, source))
            links = alignment.strongest(alignment.by_word(weights, words, of_source))
            found[number] = " ".join(f"{u}-{w}" for u, w in links)
        return found

    def links(self, source: Ids, target: Ids, front: Ids) -> list[tuple[int, int]] | None:
        """Pairs of a character of the source and the character of the output that translates it; None: not known."""
        if self.aligned_by is None or len(target) >= max_positions(self.model):
            return None
        (weights,) = self.attention(self.aligned_by, [source], [target], [front])
        sides = [alignment.words(self.tokenizer, ids) for ids in (target, source)]
        links = alignment.character_links(alignment.by_word(weights, *sides), *sides)
        return [(of_source, of_target) for (of_source, _), (of_target, _) in links]

    def attention(
        self, which: alignment.Alignment, sources: Sequence[Ids], targets: Sequence[Ids], fronts: Sequence[Ids]
    ) -> Iterator[np.ndarray]:
        """See `alignment.attention`. The model reads the tag in front of each source, too; its columns are left out."""
        with_tags = [front + source for front, source in zip(fronts, sources, strict=True)]
        for front, weights in zip(fronts, alignment.attention(self.model, with_tags, targets, which), strict=True):
            yield weights.numpy()[:, len(front) :]

    def encoded(
        self, sources: Sequence[str], outputs: Sequence[str], tags: Sequence[str] | None
    ) -> tuple[list[Ids], list[Ids], list[Ids], list[int]]:
        """The ids of both sides and of the tags, and the numbers of those that are not blank and fit the model."""
        source, target = (self.tokenizer.encode_all(list(texts)) for texts in (sources, outputs))
        fronts = [self.tokenizer.tag_ids(tag) for tag in tags or [""] * len(source)]
        most, sizes = max_positions(self.model), [map(len, side) for side in (source, target, fronts)]
        fitting = [
            n for n, (s, t, front) in enumerate(zip(*sizes, strict=True)) if s and t and max(front + s, t) < most
        ]
        return source, target, fronts, fitting
