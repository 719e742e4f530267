"""Say how much neighbours count: the temperature of their distances, and the weight of all of them beside the model.

The memory has weight where its nearest state is very near and its neighbours agree, and so leaves text alone that it
knows nothing of.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dragoman.memory.index import FAR
from dragoman.memory.states import Floats, Ints

NEIGHBOURS = 16  # of each state
LEAST = 0.01  # a smaller weight is none: then the model's own bits stay
STEPS = 300  # of the fit
# Percentiles of the distances of held-out states: up to the first one the memory has its whole weight, and from the
# second one on none. Farther neighbours help texts of the same kind, and harm all others (docs/notes/memory.md).
NEAR_PERCENTILE, FAR_PERCENTILE = 8, 35


@dataclass(frozen=True)
class Weighting:
    """Turn distances into weights. Shapes: R states, k neighbours."""

    scale: float = 1.0
    "the squared distance that counts as 1: the median of the nearest ones in the fit, else the variance of the states"
    sharpness: float = 5.5
    "how much less a neighbour counts that is one unit farther away, in nats"
    most: float = 0.9
    "the weight of the memory where it is near and all neighbours agree"
    near: float = 0.05
    "up to this distance of the nearest one, the memory has its whole weight ..."
    far: float = 0.18
    "... and from this one on none"

    @classmethod
    def guess(cls, vectors: Floats) -> "Weighting":
        """Return a weighting for states (N, M) that are too few to fit one: what fits to others, by their variance."""
        return cls(scale=max(float(vectors.var(0).sum()), 1e-6))

    def neighbours(self, distances: Floats) -> NDArray[np.float64]:
        """Return the share (R, k) of each neighbour, from its squared distance, the nearest first."""
        shares = np.exp(self.sharpness / self.scale * (distances[:, :1].astype(np.float64) - distances))
        shares /= shares.sum(1, keepdims=True)
        return shares

    def memory(self, nearest: Floats, agreement: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weight (R,) of the memory.

        nearest (R,): the distance of the nearest state; agreement (R,): the share of the token that most of the
        neighbours have.
        """
        closeness = (self.far - nearest.astype(np.float64) / self.scale) / (self.far - self.near)
        weight = self.most * agreement * np.minimum(np.maximum(closeness, 0), 1)
        return weight * (weight >= LEAST)


def token_shares(tokens: Ints, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each neighbour (R, k) the share of all those of its row that have its token."""
    return ((tokens[:, :, None] == tokens[:, None, :]) * shares[:, None, :]).sum(2)


def fit_weighting(log_p: Floats, right: Ints, tokens: Ints, distances: Floats) -> Weighting:
    """Return the weighting under which right tokens (R,) are most probable.

    log_p (R,): of the right tokens, by the model alone; tokens, distances (R, k): of the neighbours, of which a state
    has none at the distance FAR. The states must be of pairs that no neighbour is of.
    """
    known = distances[:, 0] < FAR
    log_p, right, tokens, distances = log_p[known], right[known], tokens[known], distances[known]
    if not len(log_p):
        return Weighting()
    scale = max(float(np.median(distances[:, 0])), 1e-6)
    near, far = np.percentile(distances[:, 0], (NEAR_PERCENTILE, FAR_PERCENTILE)) / scale
    far = max(far, near + 1e-3)
    start = Weighting(scale, near=float(near), far=float(far), most=1.0)
    closeness = torch.from_numpy(start.memory(distances[:, 0], np.ones(len(distances))))
    distance, probability = (torch.from_numpy(each.astype(np.float64)) for each in (distances / scale, np.exp(log_p)))
    hit = torch.from_numpy(tokens == right[:, None])
    same = torch.from_numpy(tokens[:, :, None] == tokens[:, None, :])
    values = torch.tensor([np.log(start.sharpness), 2.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([values], lr=0.05)
    for _ in range(STEPS):
        sharpness, most = values[0].exp(), values[1].sigmoid()
        shares = (-sharpness * (distance - distance[:, :1])).softmax(1)
        weight = most * closeness * (same * shares[:, None, :]).sum(2).amax(1)
        loss = -((1 - weight) * probability + weight * (shares * hit).sum(1) + 1e-9).log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return Weighting(scale, float(sharpness.detach()), float(most.detach()), float(near), float(far))
