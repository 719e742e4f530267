"""Say from which plausibility on a pair is believed: where pairs are as implausible as wrong ones are.

The plausibility of a pair, from 0 to 1, is what models say of it (`synthesis/plausibility.py`). The same models judge
wrong pairs, sources with the targets of others. Where such pairs are in the majority, they are dropped.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dragoman.check.cleaning import Origin
from dragoman.check.detectors import Hits

BINS = 20  # of wrong pairs, by their plausibility
FEWEST = 0.01  # share of wrong pairs from which it pays to look for them


@dataclass(frozen=True)
class Plausibility:
    """The plausibility of the pairs that were judged, by where they stand, and the least that is believed."""

    scores: Mapping[Origin, float]
    least: float

    def scores_of(self, origins: Iterable[Origin]) -> np.ndarray:
        """Return the plausibility (n,) of the rows that stand there; NaN for those that were not judged."""
        return np.array([self.scores.get(origin, np.nan) for origin in origins])

    def hits(self, scores: np.ndarray) -> Hits:
        """Return the hits of the rule 'implausible' among rows of this plausibility (n,)."""
        return Hits("implausible", scores < self.least, scores=scores)


def share_of_wrong_pairs(scores: np.ndarray, wrong: np.ndarray) -> float:
    """Return which share of pairs (n,) may be wrong at most, if these are like the wrong ones (m,)."""
    return min(1.0, 2 * float((scores <= np.median(wrong)).mean()))


def least_believed(scores: np.ndarray, wrong: np.ndarray) -> float:
    """Return the plausibility below which wrong pairs outnumber good ones by most; 0 for none.

    scores (n,): of the pairs; wrong (m,): of pairs that are wrong for certain.
    """
    share = share_of_wrong_pairs(scores, wrong)
    if share < FEWEST:
        return 0.0
    edges = np.quantile(wrong, np.linspace(0, 1, BINS + 1))
    below = np.searchsorted(np.sort(scores), edges)
    wrong_below = share * len(scores) * np.arange(BINS + 1) / BINS  # as many as there must be
    return float(edges[np.argmax(2 * wrong_below - below)])


def least_kept(scores: np.ndarray, keep: float) -> float:
    """Return the plausibility of which a share `keep` of the pairs (n,) has as much or more."""
    return float(np.quantile(scores, 1 - keep, method="lower"))
