"""Learn from a corpus what is usual in it: the ratio of lengths, the scripts and the letters of each side."""

import numpy as np

from dragoman.check.characters import Alphabet
from dragoman.check.columns import CHECKED, RowBlock, TextColumn
from dragoman.text.identification import most_probable

BUCKETS = 1 << 18  # that character trigrams are counted in
BINS = 1001
WIDEST = 5.0  # logarithm of the greatest length ratio that has a bin of its own
SHORT = 10  # characters added to each length, because lengths of short texts differ more
LINE_FEED = 10
FEW_TEXTS = 500  # too few to say which texts are strange
SAMPLE = 30_000  # characters of a side, by which its language is told
STOPS = np.array([ord(stop) for stop in ".!?。"])
REVERSED = 0.05  # similarity by which the sides of two corpora match better crosswise, on both sides


class Profile:
    """Describe what is usual in a corpus, or in several: character trigrams, scripts and length ratios.

    Those that are merged or compared have the same alphabet.
    """

    def __init__(self, alphabet: Alphabet) -> None:
        self.alphabet = alphabet
        self.trigrams = np.zeros((2, BUCKETS))  # source, target
        self.scripts = np.zeros((2, 256))  # rows by the script that most of their letters are in
        self.ratios = np.zeros(BINS)
        self.accented = np.zeros(2)  # texts with Latin letters beyond ASCII
        self.ends = np.zeros(2)  # rows whose source ends in a full stop or the like, those whose target then has none
        self.samples = ["", ""]
        self.evidence: tuple[np.ndarray, np.ndarray] | None = None
        self.rarities: np.ndarray | None = None

    def learn(self, block: RowBlock) -> None:
        """Count trigrams, the scripts of most letters of a text, and length ratios, of rows with text on both sides."""
        for number, column in enumerate(block.columns):
            self.alphabet.kinds_of(column.codes)
            self.trigrams[number] += np.bincount(column.trigrams(BUCKETS)[column.codes != LINE_FEED], minlength=BUCKETS)
            script, share, _ = self.main_script(column)
            self.scripts[number] += np.bincount(script[share > 0.5], minlength=256)
            beyond = (column.codes > 127) & (column.codes < 0x250) & (self.alphabet.word_letters[column.codes] > 0)
            self.accented[number] += column.rows_at(np.flatnonzero(beyond)).sum()
            if len(self.samples[number]) < SAMPLE:
                self.samples[number] += "\n".join(column.texts[::20])[:SAMPLE]
        stops = ends_in_a_stop(block)
        self.ends += stops.sum(), (stops & ends_in_a_letter(block, self.alphabet)).sum()
        ratios = log_ratios(block)[block.has_text]
        self.ratios += np.histogram(ratios.clip(-WIDEST, WIDEST), BINS, (-WIDEST, WIDEST))[0]
        self.evidence = None

    def add(self, other: "Profile", times: int = 1) -> None:
        """Count what the other profile has counted, too; times: -1 to take it away."""
        for mine, others in zip(self.counts, other.counts, strict=True):
            mine += times * others
        self.samples = [mine or others for mine, others in zip(self.samples, other.samples, strict=True)]
        self.evidence = None

    @property
    def counts(self) -> tuple[np.ndarray, ...]:
        """All that is counted."""
        return self.trigrams, self.scripts, self.ratios, self.accented, self.ends

    def reversed(self) -> "Profile":
        """Return the profile of the same corpora with their sides swapped: a view, so do not add to either later."""
        other = Profile(self.alphabet)
        other.trigrams, other.scripts, other.ratios = self.trigrams[::-1], self.scripts[::-1], self.ratios[::-1]
        other.accented, other.samples = self.accented[::-1], self.samples[::-1]
        return other

    def is_reverse_of(self, other: "Profile") -> bool:
        """Return whether the sides of the two corpora match when one is swapped: sources look like targets, and back.

        Sides are compared by the Bhattacharyya coefficient of their trigrams: 0, nothing in common, to 1.
        """
        mine, others = (
            np.sqrt(profile.trigrams / np.maximum(profile.trigrams.sum(axis=1, keepdims=True), 1))
            for profile in (self, other)
        )
        straight, crosswise = mine @ others.T, mine @ others[::-1].T  # (2, 2): the sides of one by those of the other
        return bool((crosswise - straight).diagonal().min() > REVERSED)

    def usual_log_ratio(self) -> float:
        """Return the median, to the width of a bin, of `log_ratios` over all rows; 0 where there are none."""
        if not self.ratios.any():
            return 0.0
        middle = np.searchsorted(self.ratios.cumsum(), self.ratios.sum() / 2)
        return (middle + 0.5) / BINS * 2 * WIDEST - WIDEST

    def main_script(self, column: TextColumn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (n,) of each text: the script of most of its letters, the share of these, the number of letters.

        The script is an index in `alphabet.names`; of a text without letters it means nothing, and its share is 0.
        Characters that `alphabet.kinds_of` has not seen count as no letters.
        """
        scripts = self.alphabet.scripts[column.codes]
        present = np.flatnonzero(np.bincount(scripts, minlength=256)[1:]) + 1
        if not len(present):
            nothing = np.zeros(len(column.texts))
            return nothing.astype(int), nothing, nothing
        counts = np.stack([column.sum_by_text((scripts == script).astype(np.int32)) for script in present], axis=1)
        letters = counts.sum(axis=1)
        return present[counts.argmax(axis=1)], counts.max(axis=1) / np.maximum(letters, 1), letters

    def accented_share(self, number: int) -> float:
        """Return the share of the texts of a side that have Latin letters beyond ASCII."""
        return float(self.accented[number] / max(self.ratios.sum(), 1))

    def usual_language(self, number: int) -> str:
        """Return the language of a side, '' without a way to tell it."""
        return most_probable(self.samples[number])

    def strangeness(self, column: TextColumn, number: int) -> np.ndarray:
        """Return by how many nats per character each text is less likely on its side than the block's median, (n,).

        A text is no evidence for itself. 0 where the corpus is small.
        """
        if self.trigrams[number].sum() < FEW_TEXTS * 20:
            return np.zeros(len(column.texts))
        if self.rarities is None:
            self.rarities = -np.log(np.maximum(self.trigrams - 1, 0) + 0.1).astype(np.float32)
        values = self.rarities[number][column.trigrams(BUCKETS)]
        values[column.codes == LINE_FEED] = 0
        each = column.sum_by_text(values) / np.maximum(np.minimum(column.lengths, CHECKED), 1)
        return each - np.median(each[column.has_text]) if column.has_text.any() else each

    def side_evidence(self, column: TextColumn, number: int) -> np.ndarray:
        """Return how strongly the trigrams of each text speak for its side: (n,), in nats.

        It is the log-likelihood ratio of this side against the other: above 0 it speaks for this side; 0 for an empty
        text. column: side `number` (0: source, 1: target) of a block that this profile has learned. A text is no
        evidence for itself: on its own side, each of its trigrams counts once less.
        """
        if self.evidence is None:
            logs = [np.log(self.trigrams + 0.5), np.log(np.maximum(self.trigrams - 1, 0) + 0.5)]
            sizes = np.log(self.trigrams.sum(axis=1) + 0.5 * BUCKETS)
            difference = sizes[1] - sizes[0]
            self.evidence = (
                (logs[1][0] - logs[0][1] + difference).astype(np.float32),
                (logs[1][1] - logs[0][0] - difference).astype(np.float32),
            )
        values = self.evidence[number][column.trigrams(BUCKETS)]
        values[column.codes == LINE_FEED] = 0
        return column.sum_by_text(values.astype(float))


def ends_in_a_stop(block: RowBlock) -> np.ndarray:
    """Return (n,), bool: which sources end in a full stop or the like."""
    return np.isin(last_codes(block.columns[0]), STOPS) & block.has_text


def ends_in_a_letter(block: RowBlock, alphabet: Alphabet) -> np.ndarray:
    """Return (n,), bool: which targets do."""
    return alphabet.word_letters[last_codes(block.columns[1])] > 0


def last_codes(column: TextColumn) -> np.ndarray:
    """Return the last character of each text, (n,); of an empty one what stands before it."""
    return column.codes[column.starts + np.minimum(column.lengths, CHECKED) - 1]


def log_ratios(block: RowBlock) -> np.ndarray:
    """Return log (target length / source length) of each row, (n,); SHORT characters are added to each length."""
    source, target = (np.log(column.lengths + SHORT) for column in block.columns)
    return target - source
