"""Say from which plausibility on a pair is believed: where pairs are as implausible as wrong ones are.

The plausibility of a pair, from 0 to 1, is what models say of it (`synthesis/plausibility.py`). The same models judge
wrong pairs, sources with the targets of others. Pairs are dropped below the plausibility where most must be like these.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dragoman.check.cleaning import Origin
from dragoman.check.detectors import Hits

LEAST_WEIGHT = 0.01  # of a pair, since no model is sure
BINS = 100  # of wrong pairs, by their plausibility
FEWEST = 0.005  # share of wrong pairs from which it pays to look for them
APART = 0.95  # share of the wrong pairs that must be less plausible than half of the pairs
HARM = 8  # good pairs that training rather misses than it has a wrong one: docs/notes/checking.md
MOST_LOST = 0.015  # share of the pairs that may be lost though they are good, by an estimate that may be half of it


@dataclass(frozen=True)
class Plausibility:
    """The plausibility of the pairs that were judged, by where they stand, and the least that is believed."""

    scores: Mapping[Origin, float]
    least: float
    weights: tuple[np.ndarray, np.ndarray] | None = None
    "what a pair counts instead of being dropped: edges of plausibility (n,), and the weights between them (n + 1,)"

    def scores_of(self, origins: Iterable[Origin]) -> np.ndarray:
        """Return the plausibility (n,) of the rows that stand there; NaN for those that were not judged."""
        return np.array([self.scores.get(origin, np.nan) for origin in origins])

    def hits(self, scores: np.ndarray) -> Hits:
        """Return the hits of the rule 'implausible' among rows of this plausibility (n,)."""
        return Hits("implausible", scores < self.least, scores=scores)

    def weight_of(self, origin: Origin) -> float:
        """Return the weight of the pair that stands there; 1 for those that were not judged."""
        if not self.weights or origin not in self.scores:
            return 1.0
        edges, weights = self.weights
        return float(weights[np.searchsorted(edges, self.scores[origin], side="right")])


def wrong_pairs_below(scores: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return quantiles of wrong pairs (BINS + 1,), and how many pairs (n,), and wrong ones among them, are below each.

    There cannot be more wrong ones below any quantile than pairs, which bounds their share.
    """
    parts = np.linspace(0, 1, BINS + 1)
    edges = np.quantile(wrong, parts)
    below = np.searchsorted(np.sort(scores), edges)
    most = float(np.min((below / np.maximum(parts, 1e-9))[BINS // 10 :]))  # of fewer, chance says too much
    return edges, below, most * parts


def tells_apart(scores: np.ndarray, wrong: np.ndarray) -> bool:
    """Return whether the models that judged pairs (n,) and wrong ones (m,) know enough to tell the two apart."""
    return bool(np.median(scores) > np.quantile(wrong, APART))


def least_believed(scores: np.ndarray, wrong: np.ndarray) -> float:
    """Return the plausibility below which it pays to drop pairs; 0 where it never does.

    scores (n,): of the pairs; wrong (m,): of pairs that are wrong for certain. Models that know little put many good
    pairs beside wrong ones: then little is dropped, since it counts how many good ones would be lost.
    """
    edges, below, wrong_below = wrong_pairs_below(scores, wrong)
    if wrong_below[-1] < FEWEST * len(scores) or not tells_apart(scores, wrong):
        return 0.0
    lost = below - wrong_below
    gain = np.where(lost <= MOST_LOST * len(scores), wrong_below - lost / HARM, 0)
    return float(edges[np.argmax(gain)])


def shares_right(scores: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return edges of plausibility (BINS + 1,), and how many of the pairs between them are right (BINS + 2,).

    That is their share, at least, from LEAST_WEIGHT to 1, and never less for more plausible pairs. scores (n,): of the
    pairs; wrong (m,): of pairs that are wrong for certain. All are 1 for models that cannot tell the two apart.
    """
    edges, below, wrong_below = wrong_pairs_below(scores, wrong)
    if not tells_apart(scores, wrong):
        return edges, np.ones(len(edges) + 1)
    right_below = below - wrong_below

    def share(first: int, last: int) -> float:
        """Return the share of right pairs between two edges."""
        return float((right_below[last] - right_below[first]) / max(below[last] - below[first], 1))

    # Isotonic regression by its max-min formula.
    rising = [
        max(min(share(first, last) for last in range(bin + 1, BINS + 1)) for first in range(bin + 1))
        for bin in range(BINS)
    ]
    return edges, np.clip([rising[0], *rising, 1.0], LEAST_WEIGHT, 1)


def least_kept(scores: np.ndarray, keep: float) -> float:
    """Return the plausibility of which a share `keep` of the pairs (n,) has as much or more."""
    return float(np.quantile(scores, 1 - keep, method="lower"))
