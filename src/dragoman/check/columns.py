"""Turn rows into columns of arrays, so that a check looks at thousands of texts in one step.

Shapes: n rows, c characters of all texts of a column with a line feed after each.
"""

from collections.abc import Iterator
from operator import eq

import numpy as np

from dragoman.data.lines import Row
from dragoman.data.normal_form import normal_forms

ROWS = 8192
CHARACTERS = 1 << 20  # of a block, about
CHECKED = 20_000  # characters of a text; the rest of a longer one is not checked
POWERS = np.cumprod(np.full(CHECKED + 1, 0x27D4EB2F165667C5, np.uint64))


class TextColumn:
    """The source texts or the target texts of a block, and arrays with a value per text or per character.

    A tab inside a text counts as a space, which `--write-clean` writes in its place.
    """

    def __init__(self, texts: list[str]):
        self.has_tab = np.zeros(len(texts), bool)  # (n,)
        if "\t" in "".join(texts):
            self.has_tab[:] = ["\t" in text for text in texts]
            texts = [text.replace("\t", " ") for text in texts]
        self.texts = texts
        self.lengths = np.fromiter(map(len, texts), np.int64, len(texts))  # (n,)
        if self.lengths.max(initial=0) > CHECKED:
            texts = [text[:CHECKED] for text in texts]
        self.joined = "\n".join(texts) + "\n"
        self.codes = np.frombuffer(self.joined.encode("utf-32-le"), "<u4")  # (c,)
        ends = np.cumsum(np.minimum(self.lengths, CHECKED) + 1)
        self.starts = np.concatenate(([0], ends[:-1]))  # (n,) of each text in `codes`
        stripped = np.fromiter(map(len, map(str.strip, self.texts)), np.int64, len(texts))
        self.has_text = stripped > 0  # (n,)
        self.outer_space = stripped < self.lengths  # (n,)
        normal = normal_forms(self.texts)  # as the tokenizer sees them
        self.is_normal = np.fromiter(map(eq, self.texts, normal), bool, len(texts))  # (n,)
        self.hashes = np.fromiter(map(hash, normal), np.int64, len(texts))  # (n,)

    def rows_at(self, positions: np.ndarray) -> np.ndarray:
        """Return (n,), bool: which rows have a character at one of these positions in `codes`."""
        hit = np.zeros(len(self.texts), bool)
        hit[np.searchsorted(self.starts, positions, side="right") - 1] = True
        return hit

    def sum_by_text(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of values (c, ...) over each text and the line feed after it: (n, ...). n must not be 0."""
        return np.add.reduceat(values, self.starts, axis=0)

    def letter_sums(self, small: np.ndarray, is_letter: np.ndarray) -> np.ndarray:
        """Return (n,), int64: a hash of the letters and digits of each text, whatever their case.

        small, is_letter: of each code point, the small letter, and whether it counts.
        """
        letters = is_letter[self.codes] > 0
        places = np.cumsum(letters)
        places -= np.repeat(places[self.starts] - letters[self.starts], np.diff(self.starts, append=len(self.codes)))
        values = np.where(letters, small[self.codes] * POWERS[places], np.uint64(0))
        return self.sum_by_text(values).view(np.int64)

    def rows_with(self, signs: str) -> np.ndarray:
        """Return (n,), bool: which texts have one of some characters."""
        return self.rows_at(np.flatnonzero(np.isin(self.codes, [ord(sign) for sign in signs])))

    def trigrams(self, buckets: int) -> np.ndarray:
        """Return (c,): a hash below `buckets`, a power of two, of each character and its two neighbours.

        A text has line feeds as outer neighbours; the value of a line feed mixes two texts and means nothing.
        """
        codes = self.codes.astype(np.uint32)
        mixed = codes * np.uint32(0x85EBCA6B)
        mixed ^= np.concatenate([codes[-1:], codes[:-1]]) * np.uint32(0x9E3779B1)  # the last one is a line feed
        mixed[:-1] ^= codes[1:] * np.uint32(0xC2B2AE35)
        mixed *= np.uint32(0x27D4EB2F)
        return mixed >> np.uint32(33 - buckets.bit_length())


class RowBlock:
    """Some consecutive rows of one corpus, at least one."""

    def __init__(self, rows: list[Row]):
        self.numbers, sources, targets, _ = (list(column) for column in zip(*rows, strict=True))
        self.columns = (TextColumn(sources), TextColumn(targets))
        self.has_text = self.columns[0].has_text & self.columns[1].has_text  # (n,)
        self.is_blank = ~(self.columns[0].has_text | self.columns[1].has_text)  # (n,)
        # Python's hash has a new key in each process: nobody can write texts that collide.
        self.pair_hashes = self.columns[0].hashes * np.int64(0x5851F42D4C957F2D) ^ self.columns[1].hashes  # (n,)

    def __len__(self) -> int:
        return len(self.numbers)


def row_blocks(rows: Iterator[Row]) -> Iterator[RowBlock]:
    """Yield the rows in blocks that fit into memory."""
    block: list[Row] = []
    size = 0
    for row in rows:
        block.append(row)
        size += len(row.source) + len(row.target)
        if size > CHARACTERS or len(block) == ROWS:
            yield RowBlock(block)
            block, size = [], 0
    if block:
        yield RowBlock(block)
