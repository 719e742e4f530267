"""Make batches of about equal work. Which sentences go together is a pure function: a run can be repeated and resumed.

Shapes: B pairs, S source tokens, T target tokens.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dragoman.data.tokenizer import BOS, EOS, PAD

Ids = list[int]


class Repeat(NamedTuple):
    """The pairs from `start` to before `stop`, which come `weight` times in each epoch."""

    start: int
    stop: int
    weight: float


@dataclass(frozen=True)
class Plan:
    """The batches of an epoch, in order, as indices of pairs: three arrays, however many batches there are."""

    order: np.ndarray  # of all pairs, the widest first
    starts: np.ndarray  # of each batch in `order`, and the end of the last
    turns: np.ndarray  # which batch comes at which turn

    def __len__(self) -> int:
        return len(self.turns)

    def __getitem__(self, number: int) -> np.ndarray:
        """Return the indices of the pairs in the batch that comes at turn `number`."""
        batch = self.turns[number]
        return self.order[self.starts[batch] : self.starts[batch + 1]]

    def largest_batch(self, lengths: np.ndarray) -> np.ndarray:
        """Return the indices of the pairs in the batch with the most tokens; lengths (n, 2): as for `plan_batches`."""
        tokens = np.add.reduceat(lengths.sum(axis=1)[self.order], self.starts[:-1])
        batch = int(tokens.argmax())
        return self.order[self.starts[batch] : self.starts[batch + 1]]


def plan_batches(
    lengths: np.ndarray,
    batch_tokens: int,
    seed: int,
    epoch: int,
    repeats: Sequence[Repeat] = (),
    weights: np.ndarray | None = None,
) -> Plan:
    """Return the batches of one epoch, in random order, which `seed` and `epoch` decide.

    lengths (n, 2): tokens of each source and target, EOS included. Every pair comes once, or as `repeats` says, times
    its own weight in `weights` (n,) where there are any. No batch has more than `batch_tokens` tokens on either side,
    padding included; a pair with more is a batch of its own. Pairs of similar length go together; which of them, and in
    what order, differs by epoch.
    """
    width = np.maximum(lengths[:, 0], lengths[:, 1])
    max_width = int(width.max(initial=1))
    random = np.random.default_rng((seed, epoch))
    order = weighted_indices(repeats, seed, epoch, weights) if repeats else np.arange(len(width), dtype=np.int32)
    random.shuffle(order)
    # 16 bits are sorted in linear time.
    slack = (max_width - width).astype(np.uint16 if max_width < 2**16 else np.int64)
    order = order[np.argsort(slack[order], kind="stable")]
    starts = [0]
    while starts[-1] < len(order):
        widest = max_width - int(slack[order[starts[-1]]])
        starts.append(starts[-1] + max(batch_tokens // max(widest, 1), 1))
    return Plan(order, np.array(starts), random.permutation(len(starts) - 1))


def weighted_indices(repeats: Sequence[Repeat], seed: int, epoch: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the indices of the pairs of an epoch, corpus by corpus, each as often as its weight says.

    With a fractional weight, the pairs of a corpus form an endless sequence in one random order, of which each epoch
    takes the next part: with weight 0.5 one half of the pairs, and in the next epoch the other half. With weights of
    pairs, in `weights` (n,), each pair comes at regular intervals, which begin at random.
    """
    by_corpus = []
    for number, (start, stop, weight) in enumerate(repeats):
        indices, count = np.arange(start, stop, dtype=np.int32), stop - start
        if weights is not None:
            begin = (np.random.default_rng((seed, number)).permutation(count) + 0.5) / count
            now, after = (np.floor(turn * weight * weights[start:stop] + begin) for turn in (epoch, epoch + 1))
            by_corpus.append(np.repeat(indices, (after - now).astype(int)))
            continue
        if weight.is_integer():
            by_corpus.append(np.tile(indices, int(weight)))
            continue
        first, last = (int(turn * weight * count) for turn in (epoch, epoch + 1))
        np.random.default_rng((seed, number)).shuffle(indices)
        by_corpus.append(indices[np.arange(first, last) % count])
    return np.concatenate(by_corpus)


def split_batch(indices: np.ndarray, parts: int) -> list[np.ndarray]:
    """Split the indices of a batch into `parts` of about the same size; some are empty if there are fewer pairs."""
    return np.array_split(indices, parts)


@dataclass(frozen=True)
class Batch:
    """The padded ids of B pairs. For teacher forcing, `target` is `labels` shifted right by one."""

    source: Tensor  # B S, each sentence ends with EOS
    target: Tensor  # B T, begins with BOS
    labels: Tensor  # B T, ends with EOS
    real: Tensor  # B T, bool: which labels are not padding

    @classmethod
    def from_pairs(cls, sources: Sequence[Ids | np.ndarray], targets: Sequence[Ids | np.ndarray]) -> "Batch":
        """Return a batch of pairs, which are given as ids without BOS and EOS."""
        labels = pad_rows(targets)
        target = np.where(labels == EOS, PAD, labels)
        target = np.concatenate([np.full((len(labels), 1), BOS), target[:, :-1]], axis=1)
        source, real = source_batch(sources), labels != PAD
        return cls(source, *map(torch.from_numpy, (target, labels, real)))

    @property
    def tokens(self) -> int:
        """Return the number of target tokens, EOS included."""
        return int(self.real.sum())

    def pin_memory(self) -> "Batch":
        """Return the batch in memory from which a GPU can copy while the CPU goes on."""
        return Batch(*(t.pin_memory() for t in (self.source, self.target, self.labels, self.real)))

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device; a copy to a GPU may still be under way."""
        return Batch(*(t.to(device, non_blocking=True) for t in (self.source, self.target, self.labels, self.real)))


def source_batch(sources: Sequence[Ids | np.ndarray]) -> Tensor:
    """Return ids of sentences as one padded tensor, int64 (B, S), each with EOS at its end."""
    return torch.from_numpy(pad_rows(sources))


def pad_rows(rows: Sequence[Ids | np.ndarray]) -> np.ndarray:
    """Return ids as int64 (B, longest row + 1), each row with EOS at its end and padding after it."""
    table = np.full((len(rows), max(map(len, rows), default=0) + 1), PAD)
    for row, ids in zip(table, rows, strict=True):
        row[: len(ids)] = ids
        row[len(ids)] = EOS
    return table


def batches_by_length(rows: Iterable[int], sources: Sequence[Ids], max_tokens: int) -> Iterator[list[int]]:
    """Yield groups of `rows`, indices of `sources`, of similar length: at most `max_tokens`, EOS and padding included.

    A source that is longer than `max_tokens` is a group of its own.
    """
    batch: list[int] = []
    for row in sorted(rows, key=lambda row: len(sources[row])):
        if batch and (len(batch) + 1) * (len(sources[row]) + 1) > max_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
