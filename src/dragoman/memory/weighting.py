"""Say how much neighbours count: the temperature of their distances, and the weight of all of them beside the model.

The weight falls with the distance of the nearest one to nothing, so that a memory leaves text alone that it knows
nothing of.
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
FAR_PERCENTILE = 75  # of the distances in the fit, from which on the memory has no weight
MOST = 0.99  # of the weight


@dataclass(frozen=True)
class Weighting:
    """Turn distances into weights. Shapes: R states, k neighbours."""

    scale: float = 1.0
    "the squared distance that counts as 1: the median of the nearest ones in the fit, else the variance of the states"
    sharpness: float = 20.0
    "how much less a neighbour counts that is one unit farther away, in nats"
    offset: float = -1.5
    slope: float = 5.0
    agreement: float = 2.5
    "what the share of the most frequent token among the neighbours adds"
    usual: float = 0.2
    "up to this distance of the nearest one, the memory has its whole weight ..."
    far: float = 0.4
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
        """Return the weight (R,) of the memory from the distances (R,) of the nearest state; see `agreement`."""
        logit = self.offset - self.slope / self.scale * nearest.astype(np.float64) + self.agreement * agreement
        weight = MOST / 2 * (1 + np.tanh(logit / 2))  # the logistic function, without overflows
        weight *= np.clip((self.far - nearest / self.scale) / (self.far - self.usual), 0, 1)
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
    # Unrelated texts are not there to fit to, but they are farther away than most of these.
    usual, limit = 1.0, max(float(np.percentile(distances[:, 0], FAR_PERCENTILE)) / scale, 1.01)
    gate = torch.from_numpy(np.clip((limit - distances[:, 0].astype(np.float64) / scale) / (limit - usual), 0, 1))
    far, probability = (
        torch.from_numpy(np.minimum(each, 1e9).astype(np.float64)) for each in (distances / scale, np.exp(log_p))
    )
    hit = torch.from_numpy(tokens == right[:, None])
    same = torch.from_numpy(tokens[:, :, None] == tokens[:, None, :])
    values = torch.tensor([2.3, 0.0, 1.0, 0.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([values], lr=0.05)
    for _ in range(STEPS):
        sharpness, offset, slope, agreement = values[0].exp(), values[1], values[2].exp(), values[3]
        shares = (-sharpness * (far - far[:, :1])).softmax(1)
        agreed = (same * shares[:, None, :]).sum(2).amax(1)
        weight = (offset - slope * far[:, 0] + agreement * agreed).sigmoid() * MOST * gate
        loss = -((1 - weight) * probability + weight * (shares * hit).sum(1) + 1e-9).log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    fitted = {"sharpness": sharpness, "offset": offset, "slope": slope, "agreement": agreement}
    numbers = {name: float(each.detach()) for name, each in fitted.items()}
    return Weighting(scale=scale, usual=usual, far=limit, **numbers)
