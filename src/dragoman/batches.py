"""Batches of about equal work. Which sentences go together is a pure function: a run can be repeated and resumed.

Shapes: B pairs, S source tokens, T target tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from dragoman.tokenizer import BOS, EOS, PAD

Ids = list[int]


def plan(lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Which pairs go into which batch in one epoch: every pair once, the batches in random order.

    lengths (n, 2): tokens of each source and target. No batch has more than `batch_tokens` tokens on either side,
    padding included. Pairs of similar length go together; which of them, and in what order, differs by epoch.
    Raises ValueError where a single sentence is longer than a batch may be.
    """
    width = lengths.max(axis=1)
    if len(width) and width.max() > batch_tokens:
        raise ValueError(f"a sentence has {width.max()} tokens, a batch at most {batch_tokens}")
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(width))
    order = order[np.argsort(width[order], kind="stable")]
    width = width[order]
    batches, start = [], 0
    while start < len(order):
        end = min(start + batch_tokens // max(width[start], 1), len(order))
        # The widest sentence of a batch is its last one; where that is too wide, fewer fit.
        while width[end - 1] * (end - start) > batch_tokens:
            end = start + batch_tokens // width[end - 1] if width[end - 1] > width[start] else end - 1
            end = max(end, start + 1)
        batches.append(order[start:end])
        start = end
    return [batches[i] for i in random.permutation(len(batches))]


@dataclass(frozen=True)
class Batch:
    """Padded ids of B pairs. Teacher forcing: `target` is shifted right by one against `labels`."""

    source: Tensor  # B S, each sentence ends with EOS
    target: Tensor  # B T, begins with BOS
    labels: Tensor  # B T, ends with EOS
    real: Tensor  # B T, bool: which labels are not padding

    @classmethod
    def of(cls, sources: Sequence[Ids], targets: Sequence[Ids]) -> "Batch":
        labels = padded([[*ids, EOS] for ids in targets])
        return cls(source_batch(sources), padded([[BOS, *ids] for ids in targets]), labels, labels != PAD)


def source_batch(sources: Sequence[Ids]) -> Tensor:
    """Ids of sentences -> (B, S), each with EOS at its end."""
    return padded([[*ids, EOS] for ids in sources])


def padded(rows: Sequence[Ids]) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)
