"""Rows side by side as arrays, so that a check looks at thousands of texts in one step.

Shapes: n rows, c characters of all texts of a side with a line feed after each.
"""

from collections.abc import Iterator

import numpy as np

from dragoman.data.lines import Row

ROWS = 8192
CHARACTERS = 1 << 20  # of a batch, about
LOOKED_AT = 20_000  # characters of a text; what comes after them is not looked at


class Side:
    """The source texts or the target texts of a batch."""

    def __init__(self, texts: list[str]):
        self.texts = texts
        self.lengths = np.fromiter(map(len, texts), np.int64, len(texts))  # (n,)
        if self.lengths.max(initial=0) > LOOKED_AT:
            texts = [text[:LOOKED_AT] for text in texts]
        self.joined = "\n".join(texts) + "\n"
        self.codes = np.frombuffer(self.joined.encode("utf-32-le"), "<u4")  # (c,)
        ends = np.cumsum(np.minimum(self.lengths, LOOKED_AT) + 1)
        self.starts = np.concatenate(([0], ends[:-1]))  # (n,) of each text in `codes`
        stripped = np.fromiter(map(len, map(str.strip, self.texts)), np.int64, len(texts))
        self.has_text = stripped > 0  # (n,)
        self.outer_space = stripped < self.lengths  # (n,)
        self.hashes = np.fromiter(map(hash, self.texts), np.int64, len(texts))  # (n,)

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """(n,) which rows have one of these positions of `codes`."""
        found = np.zeros(len(self.texts), bool)
        found[np.searchsorted(self.starts, positions, side="right") - 1] = True
        return found

    def total(self, values: np.ndarray) -> np.ndarray:
        """(n, ...) sums over the characters of each text, of values (c, ...)."""
        return np.add.reduceat(values, self.starts, axis=0)

    def trigrams(self, buckets: int) -> np.ndarray:
        """(c,) a number below `buckets`, a power of two, for each character with its two neighbours."""
        codes = self.codes.astype(np.uint32)
        mixed = codes * np.uint32(0x85EBCA6B)
        mixed[1:] ^= codes[:-1] * np.uint32(0x9E3779B1)
        mixed[:-1] ^= codes[1:] * np.uint32(0xC2B2AE35)
        mixed *= np.uint32(0x27D4EB2F)
        return mixed >> np.uint32(33 - buckets.bit_length())


class Batch:
    """Some rows of one corpus, in their order."""

    def __init__(self, rows: list[Row]):
        self.numbers, sources, targets = (list(column) for column in zip(*rows, strict=True))
        self.sides = (Side(sources), Side(targets))
        self.has_text = self.sides[0].has_text & self.sides[1].has_text  # (n,)
        # Python's hash is keyed anew in each process: nobody can write texts that collide.
        self.pairs = self.sides[0].hashes * np.int64(0x5851F42D4C957F2D) ^ self.sides[1].hashes  # (n,)

    def __len__(self) -> int:
        return len(self.numbers)


def batches(rows: Iterator[Row]) -> Iterator[Batch]:
    block: list[Row] = []
    size = 0
    for row in rows:
        block.append(row)
        size += len(row.source) + len(row.target)
        if size > CHARACTERS or len(block) == ROWS:
            yield Batch(block)
            block, size = [], 0
    if block:
        yield Batch(block)
