"""Batches of about equal work. Which sentences go together is a pure function: a run can be repeated and resumed.

Shapes: B pairs, S source tokens, T target tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dragoman.data.tokenizer import BOS, EOS, PAD

Ids = list[int]


class Repeat(NamedTuple):
    """Pairs `start` to `stop` come `weight` times in an epoch."""

    start: int
    stop: int
    weight: float


@dataclass(frozen=True)
class Plan:
    """The batches of an epoch, in order: indices of pairs. Two arrays, however many batches there are."""

    order: np.ndarray  # of all pairs, the widest first
    starts: np.ndarray  # of each batch in `order`; the last one is behind all
    turns: np.ndarray  # which batch comes when

    def __len__(self) -> int:
        return len(self.turns)

    def __getitem__(self, number: int) -> np.ndarray:
        batch = self.turns[number]
        return self.order[self.starts[batch] : self.starts[batch + 1]]

    def heaviest(self, lengths: np.ndarray) -> np.ndarray:
        """The batch with the most tokens on both sides; lengths (n, 2) as for `plan`."""
        tokens = np.add.reduceat(lengths.sum(axis=1)[self.order], self.starts[:-1])
        batch = int(tokens.argmax())
        return self.order[self.starts[batch] : self.starts[batch + 1]]


def plan(lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int, repeats: Sequence[Repeat] = ()) -> Plan:
    """Which pairs go into which batch in one epoch, the batches in random order.

    lengths (n, 2): tokens of each source and target. Every pair comes once, or as `repeats` says. No batch has more
    than `batch_tokens` tokens on either side, padding included. Pairs of similar length go together; which of them, and
    in what order, differs by epoch. Raises ValueError where a single sentence is longer than a batch may be.
    """
    width = np.maximum(lengths[:, 0], lengths[:, 1])
    most = int(width.max(initial=1))
    if most > batch_tokens:
        raise ValueError(f"a sentence has {most} tokens, a batch at most {batch_tokens}")
    random = np.random.default_rng((seed, epoch))
    order = chosen(repeats, seed, epoch) if repeats else np.arange(len(width), dtype=np.int32)
    random.shuffle(order)
    slack = (most - width).astype(np.uint16 if most < 2**16 else np.int64)  # 16 bits are sorted in linear time
    order = order[np.argsort(slack[order], kind="stable")]
    starts = [0]
    while starts[-1] < len(order):
        widest = most - int(slack[order[starts[-1]]])
        starts.append(starts[-1] + batch_tokens // max(widest, 1))
    return Plan(order, np.array(starts), random.permutation(len(starts) - 1))


def chosen(repeats: Sequence[Repeat], seed: int, epoch: int) -> np.ndarray:
    """The pairs of an epoch, as often as their weight says.

    The epochs take turns with a row in which the pairs of a corpus stand again and again, always in the same random
    order: weight 0.5 takes half of them, and the next epoch the other half.
    """
    parts = []
    for number, (start, stop, weight) in enumerate(repeats):
        row, count = np.arange(start, stop, dtype=np.int32), stop - start
        if weight.is_integer():
            parts.append(np.tile(row, int(weight)))
            continue
        first, last = (int(turn * weight * count) for turn in (epoch, epoch + 1))
        np.random.default_rng((seed, number)).shuffle(row)
        parts.append(row[np.arange(first, last) % count])
    return np.concatenate(parts)


def split(indices: np.ndarray, parts: int) -> list[np.ndarray]:
    """A batch in so many parts of about the same size, some empty where there are fewer pairs."""
    return np.array_split(indices, parts)


@dataclass(frozen=True)
class Batch:
    """Padded ids of B pairs. Teacher forcing: `target` is shifted right by one against `labels`."""

    source: Tensor  # B S, each sentence ends with EOS
    target: Tensor  # B T, begins with BOS
    labels: Tensor  # B T, ends with EOS
    real: Tensor  # B T, bool: which labels are not padding

    @classmethod
    def of(cls, sources: Sequence[Ids | np.ndarray], targets: Sequence[Ids | np.ndarray]) -> "Batch":
        labels = padded(targets)
        target = np.where(labels == EOS, PAD, labels)
        target = np.concatenate([np.full((len(labels), 1), BOS), target[:, :-1]], axis=1)
        source, real = source_batch(sources), labels != PAD
        return cls(source, *map(torch.from_numpy, (target, labels, real)))

    @property
    def tokens(self) -> int:
        """Target tokens, ends included."""
        return int(self.real.sum())

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(t.to(device, non_blocking=True) for t in (self.source, self.target, self.labels, self.real)))


def source_batch(sources: Sequence[Ids | np.ndarray]) -> Tensor:
    """Ids of sentences -> (B, S), each with EOS at its end."""
    return torch.from_numpy(padded(sources))


def padded(rows: Sequence[Ids | np.ndarray]) -> np.ndarray:
    """int64 (B, longest row + 1), each row with EOS at its end."""
    table = np.full((len(rows), max(map(len, rows), default=0) + 1), PAD)
    for row, ids in zip(table, rows, strict=True):
        row[: len(ids)] = ids
        row[len(ids)] = EOS
    return table
