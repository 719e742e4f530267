"""Turn approved pairs into states: the decoder's output before each target token, and that token.

Shapes: N states, M numbers of the decoder's output, r of a key, C cells.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dragoman.data.batches import Ids
from dragoman.decoding.forced import forced_batches
from dragoman.model import Model

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
SAMPLE = 20_000  # vectors that say which directions matter


class Vectors(NamedTuple):
    """The decoder's output (N, M) before tokens (N,), of the pairs (N,), and their log-probabilities (N,) in nats."""

    vectors: Floats
    tokens: Ints
    pairs: Ints
    log_p: Floats


@torch.inference_mode()
def read_pairs(model: Model, sources: Sequence[Ids], targets: Sequence[Ids]) -> Iterator[Vectors]:
    """Yield what the decoder says while it reads targets (ids without BOS and EOS), in batches of pairs.

    The pairs are numbered in the order given.
    """
    for rows, batch in forced_batches(model, sources, targets):
        state: Any = model.start(batch.source)
        vectors, labels = model.vectors(batch.target, state, batch.real), batch.labels[batch.real]
        log_p = model.output(vectors).log_softmax(-1).gather(1, labels[:, None])[:, 0]
        pairs = np.repeat(np.array(rows), batch.real.sum(1).cpu().numpy())
        yield Vectors(vectors.float().cpu().numpy(), labels.cpu().numpy(), pairs, log_p.float().cpu().numpy())


@dataclass(frozen=True)
class Reduction:
    """The directions in which a decoder's outputs differ most: principal components."""

    mean: Floats  # M
    components: Floats  # r M

    @classmethod
    def whole(cls, size: int) -> "Reduction":
        """Return the one that changes nothing."""
        return cls(np.zeros(size, np.float32), np.eye(size, dtype=np.float32))

    @classmethod
    def from_vectors(cls, vectors: Floats, size: int) -> "Reduction":
        """Return the first `size` principal components of vectors (N, M), fewer where there are not so many."""
        chosen = vectors[:: -(-len(vectors) // SAMPLE)].astype(np.float64)
        mean = chosen.mean(0)
        _, components = np.linalg.eigh(np.cov(chosen.T) if len(chosen) > 1 else np.eye(vectors.shape[1]))
        return cls(mean.astype(np.float32), np.ascontiguousarray(components[:, ::-1].T[:size], np.float32))

    def __call__(self, vectors: Floats) -> Floats:
        """Return the keys (N, r) of vectors (N, M). A key does not depend on the other vectors."""
        # One product of a matrix and a vector for each: in a product of matrices, a row's bits depend on how many
        # there are.
        return np.matmul(self.components, (vectors - self.mean)[:, :, None])[:, :, 0]
