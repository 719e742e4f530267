"""Say how much neighbours count: the weight of each among them, and that of all of them beside the model.

A neighbour counts by its distance, and more if its pair's source is like the source that is translated. The memory
counts where its nearest state is near and its neighbours agree, and only for sources of which it knows as much as of
those held out, which leaves other texts alone. How much it counts there is fitted to held-out pairs.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dragoman.memory.index import FAR
from dragoman.memory.states import Floats, Ints

NEIGHBOURS = 16  # of each state
LEAST = 0.01  # a smaller weight is none: then the model's own bits stay
# What the fit tries. A memory never has all the weight: the model keeps a say.
SHARPNESSES = tuple(2 ** (power / 2) for power in range(-2, 9))
WEIGHTS = (*(step / 10 for step in range(1, 10)), 0.95, 0.99)
# Percentiles of what the memory knows of held-out sources: up to the first it has no weight, from the second on its
# whole weight (docs/notes/memory.md).
FOREIGN_PERCENTILE, FAMILIAR_PERCENTILE = 5, 20
# How much more a neighbour counts whose source has all phrases of this one, in nats: of 0, 7, 14 and 20 the best. The
# likelihood of held-out pairs would be higher with 14, and their translations worse.
LIKENESS = 7.0

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Weighting:
    """Turn distances and likeness into weights. Shapes: R states, k neighbours.

    The numbers that are given here are for memories too small to fit any: what fits to others.
    """

    scale: float = 1.0
    "the squared distance that counts as 1: the median of the nearest ones in the fit, else a fifth of the variance"
    sharpness: float = 3.0
    "how much less a neighbour counts that is one unit farther away, in nats"
    most: float = 0.9
    "the weight of the memory where a state is the same and all neighbours agree"
    foreign: float = 0.1
    "a source of which the memory knows this share or less is left alone ..."
    familiar: float = 0.3
    "... and one of which it knows this share or more has the whole weight"

    @classmethod
    def guess(cls, vectors: Floats) -> "Weighting":
        """Return a weighting for states (N, M) that are too few to fit one, by their variance."""
        return cls(scale=max(float(vectors.var(0).sum()) / 5, 1e-6))

    def neighbours(self, distances: Floats, shared: Floats) -> Doubles:
        """Return the weight (R, k) of each neighbour among them, from its squared distance, the nearest first.

        shared (R, k): the share of the source's phrases that its pair has.
        """
        nearer = (distances[:, :1].astype(np.float64) - distances) / self.scale
        weights = np.exp(self.sharpness * nearer + LIKENESS * (shared - 1))
        weights /= np.maximum(weights.sum(1, keepdims=True), 1e-300)
        return weights

    def trust(self, known: Doubles) -> Doubles:
        """Return the share of its weight that the memory has for sources of which it knows so much (R,)."""
        return np.clip((known - self.foreign) / (self.familiar - self.foreign), 0, 1)

    def memory(self, nearest: Floats, agreement: Doubles, known: Doubles) -> Doubles:
        """Return the weight (R,) of the memory.

        nearest (R,): the distance of the nearest state; agreement (R,): the share of the token that most of the
        neighbours have; known (R,): the share of the source that the memory knows.
        """
        weight = self.most * self.trust(known) * agreement * np.exp(-nearest.astype(np.float64) / self.scale)
        return weight * (weight >= LEAST)


def token_shares(tokens: Ints, shares: Doubles) -> Doubles:
    """Return for each neighbour (R, k) the share of all those of its row that have its token."""
    return ((tokens[:, :, None] == tokens[:, None, :]) * shares[:, None, :]).sum(2)


def fit_weighting(
    log_p: Floats, right: Ints, tokens: Ints, distances: Floats, shared: Floats, known: Doubles
) -> Weighting:
    """Return the weighting under which right tokens (R,) are most probable.

    log_p (R,): of the right tokens, by the model alone; tokens, distances, shared (R, k): of the neighbours, of which
    a state has none at the distance FAR; known (R,): the share of the source that the memory knows. The states must be
    of pairs that no neighbour is of.
    """
    near = distances[:, 0] < FAR
    log_p, right, tokens = log_p[near], right[near], tokens[near]
    distances, shared, known = distances[near], shared[near], known[near]
    if not len(log_p):
        return Weighting()
    scale = max(float(np.median(distances[:, 0])), 1e-6)
    foreign, familiar = np.percentile(known, (FOREIGN_PERCENTILE, FAMILIAR_PERCENTILE)).tolist()
    start = Weighting(scale, foreign=min(foreign, familiar - 1e-3), familiar=familiar)
    hit = (tokens == right[:, None]).astype(np.float64)
    probability = np.exp(log_p.astype(np.float64))

    def loss(weighting: Weighting) -> float:
        shares = weighting.neighbours(distances, shared)
        weight = weighting.memory(distances[:, 0], token_shares(tokens, shares).max(1), known)
        return -float(np.log((1 - weight) * probability + weight * (shares * hit).sum(1) + 1e-9).mean())

    sharper = min((replace(start, sharpness=value) for value in SHARPNESSES), key=loss)
    return min((replace(sharper, most=value) for value in WEIGHTS), key=loss)
