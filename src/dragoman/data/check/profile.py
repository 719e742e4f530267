"""What is usual in a corpus, learned from itself: how long the sides are, which scripts and which letters they have."""

import numpy as np

from dragoman.data.check.batch import Batch, Side
from dragoman.data.check.characters import Alphabet

BUCKETS = 1 << 18  # that character trigrams are counted in
BINS = 1001
WIDEST = 5.0  # logarithm of the greatest length ratio that is told apart
SHORT = 10  # characters that are added to each length, so that short texts may differ more
LINE_FEED = 10


class Profile:
    def __init__(self) -> None:
        self.alphabet = Alphabet()
        self.trigrams = np.zeros((2, BUCKETS))  # source, target
        self.scripts = np.zeros((2, 256))  # rows by the script that most of their letters are in
        self.ratios = np.zeros(BINS)
        self.evidence: tuple[np.ndarray, np.ndarray] | None = None

    def learn(self, batch: Batch) -> None:
        for number, side in enumerate(batch.sides):
            self.alphabet.see(side.codes)
            self.trigrams[number] += np.bincount(side.trigrams(BUCKETS)[side.codes != LINE_FEED], minlength=BUCKETS)
            script, share, _ = self.main_script(side)
            self.scripts[number] += np.bincount(script[share > 0.5], minlength=256)
        ratios = log_ratios(batch)[batch.has_text]
        self.ratios += np.histogram(ratios.clip(-WIDEST, WIDEST), BINS, (-WIDEST, WIDEST))[0]
        self.evidence = None

    def usual_ratio(self) -> float:
        """The median of log (target length / source length)."""
        if not self.ratios.any():
            return 0.0
        middle = np.searchsorted(self.ratios.cumsum(), self.ratios.sum() / 2)
        return (middle + 0.5) / BINS * 2 * WIDEST - WIDEST

    def main_script(self, side: Side) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each text (n,): the script of most of its letters, their share, and how many letters there are."""
        scripts = self.alphabet.scripts[side.codes]
        found = np.flatnonzero(np.bincount(scripts, minlength=256)[1:]) + 1
        if not len(found):
            nothing = np.zeros(len(side.texts))
            return nothing.astype(int), nothing, nothing
        counts = np.stack([side.total((scripts == script).astype(np.int32)) for script in found], axis=1)
        letters = counts.sum(axis=1)
        return found[counts.argmax(axis=1)], counts.max(axis=1) / np.maximum(letters, 1), letters

    def fits(self, side: Side, number: int) -> tuple[np.ndarray, np.ndarray]:
        """For each text (n,): how much likelier it is on its side than on the other, in nats, and per character.

        A text is no witness for itself: its trigrams are counted once less on the side that it stands on.
        """
        if self.evidence is None:
            logs = [np.log(self.trigrams + 0.5), np.log(np.maximum(self.trigrams - 1, 0) + 0.5)]
            sizes = np.log(self.trigrams.sum(axis=1) + 0.5 * BUCKETS)
            difference = sizes[1] - sizes[0]
            self.evidence = (
                (logs[1][0] - logs[0][1] + difference).astype(np.float32),
                (logs[1][1] - logs[0][0] - difference).astype(np.float32),
            )
        values = self.evidence[number][side.trigrams(BUCKETS)]
        values[side.codes == LINE_FEED] = 0
        total = side.total(values)
        return total, total / np.maximum(side.lengths, 1)


def log_ratios(batch: Batch) -> np.ndarray:
    """(n,) log (target length / source length)."""
    source, target = (np.log(side.lengths + SHORT) for side in batch.sides)
    return target - source
