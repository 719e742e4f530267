"""Learn from a corpus which words translate which, so that pairs can be judged: IBM model 1 (Brown et al. 1993).

Here it is made for speed: words are cut to their first letters and hashed, so that the table is an array, and all is
done in steps over arrays. `alignment/ibm1.py` is the exact model, which links single words.

Shapes: n rows, w words of all texts of a side, k cells: a target word with a source word of its pair, for each two.
"""

from dataclasses import dataclass

import numpy as np

from dragoman.check.characters import MOST_LETTERS, Alphabet
from dragoman.check.columns import TextColumn

MAX_WORDS = 24  # of a text; the rest is not looked at
ENTRIES = 1 << 23  # of the table p(target word | source word), a power of two
LEARNED = 60_000  # pairs, of a larger corpus those with the lowest hashes
ITERATIONS = 3
FEW_WORDS = 4  # that may well be unknown: names
MANY_PAIRS = 20_000  # from which it is told which words are unknown
CHUNK = 4096  # rows whose cells are made at a time
TRUST = 0.9  # in the table, for a word that is frequent
RARE = 2.0  # occurrences of a word of which the table is trusted half as much


@dataclass
class Words:
    """The words of the texts of a side, as hashes (w,), uint16; and where those of each text begin, (n + 1,)."""

    hashes: np.ndarray
    starts: np.ndarray

    @classmethod
    def from_column(cls, column: TextColumn, alphabet: Alphabet) -> "Words":
        """Return the words of the texts of a block, without regard to case."""
        codes = column.codes
        alphabet.kinds_of(codes)
        letters = alphabet.word_letters[codes]  # of a word that are looked at; 0 where there is none
        in_word, alone = letters > 0, letters == 1
        begins = in_word.copy()
        begins[1:] &= ~in_word[:-1] | alone[1:] | alone[:-1]
        firsts = np.flatnonzero(begins)
        if not len(firsts):
            return cls(np.zeros(0, np.uint16), np.zeros(len(column.texts) + 1, np.int64))
        word = np.cumsum(begins) - 1
        place = np.arange(len(codes)) - firsts[word]
        values = alphabet.small[codes] * POWERS[place.clip(0, MOST_LETTERS)]
        values[~in_word | (place >= letters)] = 0
        hashes = np.add.reduceat(values, firsts)
        hashes = ((hashes * np.uint32(0x9E3779B1)) >> np.uint32(16)).astype(np.uint16)
        row = np.searchsorted(column.starts, firsts, side="right") - 1
        first_of_row = np.searchsorted(row, np.arange(len(column.texts) + 1))
        few = np.arange(len(firsts)) - first_of_row[row] < MAX_WORDS
        return cls(hashes[few], np.concatenate([[0], np.cumsum(few)])[first_of_row])

    @classmethod
    def joined(cls, parts: "list[Words]") -> "Words":
        """Return the words of several blocks as those of one."""
        counts = [part.counts for part in parts]
        return cls(
            np.concatenate([np.zeros(0, np.uint16), *(part.hashes for part in parts)]),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate([np.zeros(0, np.int64), *counts]))]),
        )

    @property
    def counts(self) -> np.ndarray:
        """How many words each text has, (n,)."""
        return np.diff(self.starts)

    def words_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the words of some texts, one after the other, and how many each has."""
        counts = self.starts[rows + 1] - self.starts[rows]
        return self.hashes[ranges(self.starts[rows], counts)], counts

    def of_rows(self, rows: np.ndarray, has_text: np.ndarray) -> "Words":
        """Return the words of some rows (n,) as those of a block; those without text (n,), bool, have none."""
        hashes, counts = self.words_of(rows[has_text])
        starts = np.zeros(len(rows) + 1, np.int64)
        starts[1:][has_text] = counts
        return Words(hashes, np.cumsum(starts))


POWERS = np.array([1, 0x01000193, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F, 0], np.uint32)


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return range(start, start + count) of each, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)


@dataclass
class Cells:
    """The cells of some pairs: the entry of the table of each (k,), the source word of each, and those of targets."""

    entries: np.ndarray
    places: np.ndarray  # (k,) of the source words, in `sources`
    sources: np.ndarray  # (s,)
    source_rows: np.ndarray  # (s,) which of the pairs
    targets: np.ndarray  # (t,) those of pairs that have a source word
    rows: np.ndarray  # (t,) which of the pairs
    widths: np.ndarray  # (t,) cells of each target word

    @classmethod
    def from_rows(cls, sources: Words, targets: Words, source_rows: np.ndarray, target_rows: np.ndarray) -> "Cells":
        """Return the cells of pairs, each the source of a row and the target of the same or another one."""
        source, source_counts = sources.words_of(source_rows)
        target, target_counts = targets.words_of(target_rows)
        row = np.repeat(np.arange(len(source_rows)), target_counts)
        widths = source_counts[row]
        target, row, widths = target[widths > 0], row[widths > 0], widths[widths > 0]
        places = ranges((np.cumsum(source_counts) - source_counts)[row], widths)
        mixed = (source * np.uint32(0x85EBCA6B))[places] ^ np.repeat(target * np.uint32(0x9E3779B1), widths)
        mixed ^= mixed >> np.uint32(15)
        mixed *= np.uint32(0x27D4EB2F)
        entries = (mixed >> np.uint32(33 - ENTRIES.bit_length())).astype(np.int32)
        source_row = np.repeat(np.arange(len(source_rows)), source_counts)
        return cls(entries, places, source, source_row, target, row, widths)

    @property
    def starts(self) -> np.ndarray:
        """Where the cells of each target word begin."""
        return np.cumsum(self.widths) - self.widths

    def copied(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the words that a pair has on both sides, each once: which of the pairs (c,), and the word (c,)."""
        same = self.places[self.sources[self.places] == np.repeat(self.targets, self.widths)]
        both = np.unique(self.source_rows[same] << 16 | self.sources[same])
        return both >> 16, both & 0xFFFF


class Lexicon:
    """The table p(target word | source word) of a corpus, as it was counted at last, and before that."""

    def __init__(self, sources: Words, targets: Words, rows: np.ndarray, hashes: np.ndarray):
        """Learn it from the pairs of some rows by expectation maximisation.

        hashes (n,): of all rows. By them, nearly the same pairs are chosen again when some others are gone.
        """
        if len(rows) > LEARNED:
            rows = np.sort(rows[np.argpartition(hashes[rows], LEARNED)[:LEARNED]])
        self.learned = np.zeros(len(sources.counts), bool)
        self.learned[rows] = True
        chunks = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
        parts = [Cells.from_rows(sources, targets, chunk, chunk) for chunk in chunks]
        self.frequency, self.copies = np.zeros((2, 1 << 16))  # times of a target word; pairs that copy a word
        self.occurrences = np.bincount(sources.words_of(rows)[0], minlength=1 << 16)  # times of a source word
        for part in parts:
            self.frequency += np.bincount(part.targets, minlength=1 << 16)
            self.copies += np.bincount(part.copied()[1], minlength=1 << 16)
        self.counts = np.ones(ENTRIES, np.float32)
        self.totals = np.ones(1 << 16, np.float32)
        entries = np.concatenate([part.entries for part in parts])
        origins = np.concatenate([part.sources[part.places] for part in parts])
        for _ in range(ITERATIONS):
            self.before = self.counts, self.totals
            shares = np.concatenate([self.shares(part, *self.before) for part in parts])
            self.counts = np.bincount(entries, shares, ENTRIES).astype(np.float32)
            self.totals = np.bincount(origins, shares, 1 << 16).astype(np.float32)

    @staticmethod
    def shares(cells: Cells, counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """Return how much of its target word each cell explains, by a table."""
        p = counts[cells.entries] / (totals[cells.sources] + 1e-9)[cells.places]
        return p / np.repeat(np.add.reduceat(p, cells.starts) + 1e-12, cells.widths)

    def scores(
        self,
        sources: Words,
        targets: Words,
        source_rows: np.ndarray,
        target_rows: np.ndarray,
        learned_from: int | None = None,
    ) -> np.ndarray:
        """Return how much likelier each target is as a translation of its source than by chance, in nats.

        learned_from: the number of the first row among those that were learned from, or None. A pair is no evidence
        for itself: what it has added to the table is taken away again.
        """
        parts = [
            self._scores(sources, targets, source_rows[i : i + CHUNK], target_rows[i : i + CHUNK], learned_from)
            for i in range(0, len(source_rows), CHUNK)
        ]
        return np.concatenate([np.zeros(0), *parts])

    def surprise(self, sources: Words, targets: Words, rows: np.ndarray, learned_from: int | None) -> np.ndarray:
        """Return how surprising it is that words of a side stand on the other one as they are, in nats, of rows (n,).

        Names hardly count, as they are nearly always copied; words that are translated elsewhere count most.
        """
        sums: list[np.ndarray] = [np.zeros(0)]
        for chunk in (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)):
            row, word = Cells.from_rows(sources, targets, chunk, chunk).copied()
            itself = self.itself(chunk, learned_from)[row]
            times = np.maximum(self.occurrences[word], self.frequency[word])
            rate = np.maximum(self.copies[word] - itself, 0.5) / np.maximum(times - itself, 1)
            sums.append(np.bincount(row, -np.log(rate.clip(max=1)), len(chunk)))
        return np.concatenate(sums)

    def itself(self, rows: np.ndarray, learned_from: int | None) -> np.ndarray:
        """Return 1 for each row that was learned from, else 0."""
        if learned_from is None:
            return np.zeros(len(rows), np.float32)
        return self.learned[rows + learned_from].astype(np.float32)

    def unknown(self, sources: Words, targets: Words, rows: np.ndarray, learned_from: int | None) -> np.ndarray:
        """Return (n, 2), bool: which sides of rows have several words, but none that another row has."""
        itself = self.itself(rows, learned_from)
        sides = []
        few = self.learned.sum() < MANY_PAIRS
        for side, frequency in ((sources, self.totals), (targets, self.frequency)):
            words, counts = side.words_of(rows)
            # A source word that no target word needs counts for less than a time.
            known = frequency[words] - np.repeat(itself, counts) > 0.5
            row = np.repeat(np.arange(len(rows)), counts)
            sides.append((np.bincount(row, known, len(rows)) == 0) & (counts > FEW_WORDS) & ~few)
        return np.stack(sides, axis=1)

    def _scores(
        self,
        sources: Words,
        targets: Words,
        source_rows: np.ndarray,
        target_rows: np.ndarray,
        learned_from: int | None,
    ) -> np.ndarray:
        cells = Cells.from_rows(sources, targets, source_rows, target_rows)
        if not len(cells.entries):
            return np.zeros(len(source_rows))
        itself = self.itself(source_rows, learned_from)
        pairs = self.frequency.sum()
        of_itself = self.shares(cells, *self.before) * np.repeat(itself[cells.rows], cells.widths)
        counts = np.maximum(self.counts[cells.entries] - of_itself, 0)
        frequency = np.maximum(self.frequency[cells.targets] - itself[cells.rows], 0)
        total = np.maximum(self.totals[cells.sources] - itself[cells.source_rows], 0)
        # Of each target word by those of the source, and the other way round, by the same counts.
        p = np.add.reduceat(counts / (total + 1)[cells.places], cells.starts) / cells.widths
        scores = evidence(p, frequency, cells.rows, pairs, len(source_rows))
        backward = counts / np.repeat(frequency + 1, cells.widths)
        heights = np.bincount(cells.rows, minlength=len(source_rows))[cells.source_rows]
        p = np.bincount(cells.places, backward, len(cells.sources)) / np.maximum(heights, 1)
        there = heights > 0
        return scores + evidence(p[there], total[there], cells.source_rows[there], pairs, len(source_rows))


def evidence(p: np.ndarray, frequency: np.ndarray, rows: np.ndarray, words: float, size: int) -> np.ndarray:
    """Return for each of `size` rows how much likelier its words are by the table than by chance.

    p, frequency, rows: of each word; words: how many there are in all. The table is not trusted for rare words.
    """
    trust = TRUST * frequency / (frequency + RARE)
    return np.bincount(rows, np.log1p(trust * (p * words / (frequency + 0.5) - 1)), size)
