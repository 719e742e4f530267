"""Use several models as one: the mean of their probabilities."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dragoman.model import Seq2Seq


class States:
    """The state of each model; row i belongs to hypothesis i."""

    def __init__(self, states: Sequence[Any]):
        self.states = states

    def select(self, rows: Tensor) -> None:
        """Keep the hypotheses `rows` (n,), in that order, in the state of each model."""
        for state in self.states:
            state.select(rows)


class Ensemble:
    """Several models with the same vocabulary, which a search uses like one model."""

    def __init__(self, models: Sequence[Seq2Seq]):
        self.models = models

    def start(self, source: Tensor) -> States:
        """Encode the source ids (B, S) with every model; return their states before the first target token."""
        return States([model.start(source) for model in self.models])

    def step(self, tokens: Tensor, state: States) -> Tensor:
        """Return the logarithms (B, T, V) of the models' mean probabilities after tokens (B, T).

        Add the tokens to the states.
        """
        logits = [model.step(tokens, member) for model, member in zip(self.models, state.states, strict=True)]
        return torch.stack([member.log_softmax(-1) for member in logits]).logsumexp(0) - math.log(len(logits))
