"""Show a training pairs as people type them (`training.robust`), and words in other subwords (`training.bpe_dropout`).

Chance depends on the seed, the epoch and the index of a pair, or on that of its batch, so that a run can be resumed and
shared.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from random import Random

import numpy as np

from dragoman.config import TrainingConfig
from dragoman.data.batches import Batch, Ids
from dragoman.data.dataset import SOURCE, TARGET, Pairs
from dragoman.data.tokenizers import Tokenizers, tag_of
from dragoman.text.variations import TRAINED, VARIATIONS, Varied, vary

JOINING = [number for number, name in enumerate(TRAINED) if VARIATIONS[name].joins]
NONE = -1


class Augmentation:
    """Makes batches of the pairs of a corpus as a training shows them."""

    def __init__(self, pairs: Pairs, tokenizers: Tokenizers, settings: TrainingConfig):
        self.pairs, self.tokenizers, self.settings = pairs, tokenizers, settings
        # Of two epochs, because workers begin the next one early.
        self._kinds = lru_cache(maxsize=2)(partial(choose_variations, pairs, settings))

    def lengths(self, epoch: int) -> np.ndarray:
        """Return the tokens of source and target of each pair in an epoch, int32 (n, 2): two that are joined have both.

        Typos and quotes, which add a token or two, do not count, nor does BPE-dropout.
        """
        lengths = self.pairs.lengths
        if not self.settings.robust:
            return lengths
        joined = np.isin(self._kinds(epoch), JOINING)
        lengths = lengths.copy()
        lengths[joined] = joined_lengths(self.pairs)[joined]
        return lengths

    def batch(self, indices: np.ndarray, epoch: int, seeds: tuple[int, ...]) -> Batch:
        """Return the pairs at `indices` as a batch of an epoch; seeds: of BPE-dropout."""
        rate, robust = self.settings.bpe_dropout, self.settings.robust
        if not rate and not robust:
            return self.pairs.batch(indices)

        def change(index: int, *pair: np.ndarray) -> tuple[Ids | np.ndarray, Ids | np.ndarray]:
            source, target = self._vary(index, pair, epoch) if robust else pair
            return self._resegment(index, (source, target), rate, seeds) if rate else (source, target)

        return self.pairs.batch(indices, change)

    def _vary(self, index: int, pair: Sequence[np.ndarray], epoch: int) -> tuple[Ids | np.ndarray, Ids | np.ndarray]:
        """Return the ids of a pair with the variation of an epoch; as they are where it has none, or is too long."""
        kind = int(self._kinds(epoch)[index])
        if kind == NONE:
            return pair[SOURCE], pair[TARGET]
        rows: list[Sequence[np.ndarray | Ids]] = [pair, *([self.pairs.ids(index + 1)] if kind in JOINING else [])]
        texts = [self._texts(row) for row in rows]
        if any(text is None for text in texts):
            return pair[SOURCE], pair[TARGET]
        varied = vary(TRAINED[kind], [text for text in texts if text], (self.settings.seed, epoch, index))
        return self._encode(varied, pair) if varied else (pair[SOURCE], pair[TARGET])

    def _texts(self, pair: Sequence[np.ndarray | Ids]) -> tuple[str, str] | None:
        """Return the texts of ids; None where these do not spell them."""
        texts = [tokenizer.decode(list(ids)) for tokenizer, ids in zip(self.tokenizers, pair, strict=True)]
        lossy = any(tokenizer.unknown in ids for tokenizer, ids in zip(self.tokenizers, pair, strict=True))
        return None if lossy else (texts[SOURCE], texts[TARGET])

    def _encode(self, varied: Varied, pair: Sequence[np.ndarray]) -> tuple[Ids | np.ndarray, Ids | np.ndarray]:
        """Return the ids of a varied pair with the tags of `pair`, whose own they are if it is too long."""
        source, target = (
            tag_of(tokenizer, ids) + tokenizer.encode(text)
            for tokenizer, ids, text in zip(self.tokenizers, pair, (varied.source, varied.target), strict=True)
        )
        most = self.pairs.max_length
        return (pair[SOURCE], pair[TARGET]) if most and max(len(source), len(target)) >= most else (source, target)

    def _resegment(
        self, index: int, pair: tuple[Ids | np.ndarray, Ids | np.ndarray], rate: float, seeds: tuple[int, ...]
    ) -> tuple[Ids | np.ndarray, Ids | np.ndarray]:
        """Return the ids of a pair with BPE-dropout; a sentence that would become too long stays as it was."""
        random, most, sides = Random(f"{seeds} {index}"), self.pairs.max_length, list(pair)
        for side, tokenizer in enumerate(self.tokenizers.bpe()):
            cut = tokenizer.resegment([int(id) for id in pair[side]], rate, random)
            sides[side] = pair[side] if most and len(cut) >= most else cut
        return sides[SOURCE], sides[TARGET]


def choose_variations(pairs: Pairs, settings: TrainingConfig, epoch: int) -> np.ndarray:
    """Return for each pair which of TRAINED an epoch shows it with, int8 (n,), or NONE."""
    random = np.random.default_rng((settings.seed, epoch, len(TRAINED)))
    bounds = np.cumsum([VARIATIONS[name].weight for name in TRAINED])
    chance = random.random(len(pairs), dtype=np.float32) / settings.robust
    kinds = np.searchsorted(bounds / bounds[-1], chance, side="right").astype(np.int8)
    kinds[(chance >= 1) | (np.isin(kinds, JOINING) & ~may_join(pairs))] = NONE
    return kinds


def joined_lengths(pairs: Pairs) -> np.ndarray:
    """Return the tokens of each pair and the next one together, int32 (n, 2)."""
    return pairs.lengths + np.roll(pairs.lengths, -1, axis=0) - 1


def may_join(pairs: Pairs) -> np.ndarray:
    """Return for each pair whether the next one is of the same corpus, and both are short enough: bool (n,)."""
    fits = joined_lengths(pairs).max(axis=1) <= (pairs.max_length or np.inf)
    fits[[repeat.stop - 1 for repeat in pairs.repeats]] = False
    return fits
