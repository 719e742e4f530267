"""Judge by the words of two texts whether they belong together, and find where one side of a corpus has slipped.

Both rest on what is usual: how the pairs of a corpus score, and how sources do with the targets of other rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dragoman.check.detectors import Hits
from dragoman.check.lexicon import Lexicon, Words
from dragoman.errors import plural

FEWEST = 3000  # pairs from which a lexicon is learned
FEW_PAIRS = 100  # of a length: too few to say what is usual
# A pair is judged with those that have as many words on their shorter side: from each of these numbers to the next.
SIZES = np.array([0, 1, 2, 3, 4, 5, 6, 8, 10, 14])
JUDGED = 3  # words that a pair must have on each side to be judged alone
SPREADS = 3.0  # below the median of its size, in distances from there to the 16th percentile
BY_CHANCE = 0.96  # share of wrong pairs of its size that score less than a pair may
# Share of the pairs that score less, from which they are mismatches. Of human translations at most 0.2 % do, half of
# them because they are loose: where there are so few, they are only doubtful.
MANY = 0.01
APART = 3.0  # nats between that and the 16th percentile of pairs, where words tell much
DOUBTED = 0.95  # the same for a single row of a slip
SAMPLE = 10_000  # wrong pairs

WINDOW = 10  # rows of which DOUBTFUL score as wrong pairs do, where a slip may be
DOUBTFUL = 0.4
MARGIN = 12  # rows around such windows
FARTHEST = 12  # rows that a side may have slipped
LOST = FARTHEST + 1  # as an offset: the partner is nowhere near
LEAST, MOST = -10.0, 20.0  # nats that a row counts for and against an offset
LOST_SCORE = 2.0  # nats of a row with an offset of LOST
CHANGE = 40.0  # nats that a change of offset must gain
SHORTEST = 8  # rows of a slip


@dataclass
class Judgement:
    """Say of the n rows of a corpus what their words tell."""

    scores: np.ndarray  # (n,) in nats: above 0 speaks for a pair
    doubtful: np.ndarray  # (n,), bool
    many: bool  # whether they are so many that they are mismatches
    unknown: np.ndarray  # (n, 2), bool: a side has words, and none that another row has
    copied: np.ndarray  # (n,) in nats: how surprising it is which words both sides have
    offsets: np.ndarray  # (n,): the target of a source is as many rows further down; LOST: nowhere near
    telling: bool  # whether there was enough to learn from

    @property
    def moved(self) -> np.ndarray:
        """Which rows can get their targets back, (n,), bool."""
        return (self.offsets != 0) & (self.offsets != LOST)

    def hits(self, realigned: np.ndarray) -> list[Hits]:
        """Return the hits of 'mismatch' or 'doubtful', 'slipped' and 'realigned'; the last are given, (n,), bool."""
        return [
            Hits("mismatch" if self.many else "doubtful", self.doubtful, scores=self.scores),
            Hits("slipped", (self.offsets != 0) & ~realigned),
            Hits("realigned", realigned),
        ]

    def slips(self, numbers: np.ndarray) -> list[str]:
        """Describe where a side has slipped, by the numbers (n,) of rows."""
        return [
            f"lines {numbers[first]:,} to {numbers[last - 1]:,}: {describe_offset(self.offsets[first:last])}"
            for first, last in runs(self.offsets != 0)
        ]


class PairJudge:
    """Know from training corpora which words go together, and how pairs of each size score."""

    def __init__(self, sides: tuple[Words, Words], has_text: np.ndarray, hashes: np.ndarray):
        """Learn it from rows, those with text on both sides. hashes (n,): of all rows, the same in each process."""
        self.sides, rows = sides, np.flatnonzero(has_text)
        self.lexicon = Lexicon(*sides, rows, hashes) if len(rows) >= FEWEST else None
        self.limits = np.full(len(SIZES), -np.inf)  # below it a pair is doubtful, by size
        self.doubts = np.full(len(SIZES), -np.inf)
        self.many = False  # whether so many are that they are mismatches
        self.telling = False
        self.scores = np.zeros(len(has_text))
        if self.lexicon:
            scores, sizes = self.lexicon.scores(*sides, rows, rows, 0), self.sizes(sides, rows, rows)
            self.scores[rows] = scores
            some = rows[:: -(-len(rows) // SAMPLE)]
            others = np.roll(some, len(some) // 2)
            chance, of_chance = self.lexicon.scores(*sides, some, others), self.sizes(sides, some, others)
            for size in range(1, len(SIZES)):
                here, wrong = scores[sizes == size], chance[of_chance == size]
                if len(here) >= FEW_PAIRS <= len(wrong):
                    median, low = np.quantile(here, [0.5, 0.16])
                    doubted, by_chance = np.quantile(wrong, [DOUBTED, BY_CHANCE])
                    if by_chance < low - APART:
                        self.limits[size] = min(median - SPREADS * (median - low), by_chance)
                        self.doubts[size] = doubted
            self.telling = bool(np.isfinite(self.limits[sizes]).mean() > 0.5)
            judged = SIZES[sizes] >= JUDGED
            self.many = bool((scores < self.limits[sizes])[judged].mean() > MANY) if judged.any() else False

    @staticmethod
    def sizes(sides: tuple[Words, Words], source_rows: np.ndarray, target_rows: np.ndarray) -> np.ndarray:
        """Return which of SIZES each pair has."""
        words = np.minimum(sides[0].counts[source_rows], sides[1].counts[target_rows])
        return np.searchsorted(SIZES, words, side="right") - 1

    def judge(self, sides: tuple[Words, Words], has_text: np.ndarray, learned_from: int | None) -> Judgement:
        """Judge a corpus. learned_from: the number of its first row among those that were learned from, or None."""
        size = len(has_text)
        unknown = np.zeros((size, 2), bool)
        doubted = np.zeros(size, bool)
        offsets = np.zeros(size, np.int8)
        judgement = Judgement(np.zeros(size), doubted, self.many, unknown, np.zeros(size), offsets, self.telling)
        if not self.lexicon or not self.telling:
            return judgement
        rows = np.flatnonzero(has_text)
        sizes = self.sizes(sides, rows, rows)
        scores = self.lexicon.scores(*sides, rows, rows) if learned_from is None else self.scores[rows + learned_from]
        judgement.scores[rows] = scores
        doubted[rows] = (scores < self.limits[sizes]) & (SIZES[sizes] >= JUDGED)
        judgement.unknown[rows] = self.lexicon.unknown(*sides, rows, learned_from)
        judgement.copied[rows] = self.lexicon.surprise(*sides, rows, learned_from)
        doubtful = np.zeros(size, bool)
        doubtful[rows] = scores < self.doubts[sizes]
        for first, last in zones(doubtful):
            judgement.offsets[first:last] = self.find_offsets(sides, first, last)
        judgement.offsets[~has_text] = 0
        doubted &= judgement.offsets == 0
        return judgement

    def find_offsets(self, sides: tuple[Words, Words], first: int, last: int) -> np.ndarray:
        """Return the most probable offsets of the rows from `first` to before `last`, by the Viterbi algorithm.

        A slip that is short, or by which little is gained, is none; and a target belongs to one source.
        """
        assert self.lexicon
        size, count = len(sides[0].counts), last - first
        rows = np.arange(first, last)
        offsets = np.arange(-FARTHEST, LOST + 1)
        gains = np.full((len(offsets), count), LOST_SCORE)
        for number, offset in enumerate(offsets[:-1]):
            inside = (rows + offset >= 0) & (rows + offset < size)
            gains[number] = LEAST
            gains[number, inside] = self.lexicon.scores(*sides, rows[inside], rows[inside] + offset).clip(LEAST, MOST)
        straight = FARTHEST
        best = np.where(offsets == 0, 0.0, -CHANGE) + gains[:, 0]
        came_from = np.zeros((count, len(offsets)), np.int8)
        for row in range(1, count):
            change = best.argmax()
            stays = best >= best[change] - CHANGE
            came_from[row] = np.where(stays, np.arange(len(offsets)), change)
            best = np.where(stays, best, best[change] - CHANGE) + gains[:, row]
        if last < size:
            best -= np.where(offsets == 0, 0.0, CHANGE)
        path = np.zeros(count, int)
        path[-1] = best.argmax()
        for row in range(count - 1, 0, -1):
            path[row - 1] = came_from[row, path[row]]
        for start, end in runs(path != straight):
            gain = (gains[path[start:end], np.arange(start, end)] - gains[straight, start:end]).sum()
            if end - start < SHORTEST or gain < 2 * CHANGE:
                path[start:end] = straight
        chosen = offsets[path]
        partners = rows + chosen
        times = np.bincount(np.clip(partners[chosen != LOST] - first + FARTHEST, 0, None), minlength=count + 2 * LOST)
        taken = times[np.clip(partners - first + FARTHEST, 0, len(times) - 1)] > 1
        outside = (partners < first) | (partners >= last)  # there, each target has its source
        chosen[(chosen != 0) & (taken | outside)] = LOST
        return chosen


def describe_offset(offsets: np.ndarray) -> str:
    """Say where the targets of some rows are, by the offset that most of them have."""
    values, times = np.unique(offsets, return_counts=True)
    offset = int(values[times.argmax()])
    if offset == LOST:
        return "the targets are nowhere near"
    return f"the targets stand {plural(abs(offset), 'line')} {'below' if offset > 0 else 'above'} their sources"


def zones(doubtful: np.ndarray) -> list[tuple[int, int]]:
    """Return where slips may be, as ranges of rows: those around windows with many doubtful rows (n,), bool."""
    if len(doubtful) < WINDOW:
        return []
    sums = np.concatenate([[0], np.cumsum(doubtful)])
    near = np.zeros(len(doubtful) + 1, int)
    starts = np.flatnonzero(sums[WINDOW:] - sums[:-WINDOW] >= DOUBTFUL * WINDOW)
    np.add.at(near, np.maximum(starts - MARGIN, 0), 1)
    np.add.at(near, np.minimum(starts + WINDOW + MARGIN, len(doubtful)), -1)
    return runs(np.cumsum(near[:-1]) > 0)


def runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """Return start and end of each run of True in a mask (n,)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return [(int(start), int(end)) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def all_words(parts: Sequence[tuple[Words, Words]]) -> tuple[Words, Words]:
    """Return the words of both sides of several blocks or corpora as those of one."""
    return Words.joined([part[0] for part in parts]), Words.joined([part[1] for part in parts])
