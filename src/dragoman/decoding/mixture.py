"""Use a model and a memory of approved pairs as one: a mixture of their probabilities (Khandelwal et al. 2021)."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from dragoman.decoding.search import argmax, topk


class Recall(Protocol):
    """What a memory knows at one time of some sources (B,)."""

    def mix(self, log_p: Tensor, vectors: Tensor, rows: Tensor) -> Tensor:
        """Return log-probabilities (R, W) of words, from the model's own ones and the vectors (R, M) behind them.

        rows (R,): which of the sources each is of. It may write into `log_p`. A row does not depend on the others.
        """
        ...


class Rememberer(Protocol):
    """A memory, which may learn while searches go on."""

    def recall(self, source: Tensor) -> Recall:
        """Return what it knows now of source ids (B, S)."""
        ...


@dataclass
class MixedState:
    """The state of a model, and what the memory knew when the search began."""

    of_model: Any
    recall: Recall
    rows: Tensor  # (R,): the source of each hypothesis

    def select(self, rows: Tensor) -> None:
        """Keep the hypotheses `rows` (n,), in that order."""
        self.of_model.select(rows)
        self.rows = self.rows[rows]


class Mixture:
    """A model with a memory, which a search uses like one model. See `Chooser`."""

    def __init__(self, model: Any, memory: Rememberer):
        """Take a model that has `log_p_with_vectors`, or `vectors` and `output`."""
        self.model, self.memory = model, memory

    def start(self, source: Tensor) -> MixedState:
        """Encode the source ids (B, S); return the state before the first target token."""
        rows = torch.arange(len(source), device=source.device)
        return MixedState(self.model.start(source), self.memory.recall(source), rows)

    def step(self, tokens: Tensor, state: MixedState) -> Tensor:
        """Return log-probabilities (R, 1, W) after the tokens (R, 1), which are then part of the state."""
        return self.log_p(tokens, state).unsqueeze(1)

    def log_p(self, tokens: Tensor, state: MixedState) -> Tensor:
        """Return log-probabilities (R, W) after the tokens (R, 1), which are then part of the state."""
        return state.recall.mix(*log_p_with_vectors(self.model, tokens, state.of_model), state.rows)

    def likeliest(self, tokens: Tensor, state: MixedState, k: int) -> tuple[Tensor, Tensor]:
        """Return the k largest of what `log_p` returns, fewer if W is less, and their words, both (R, k), sorted."""
        log_p = self.log_p(tokens, state)
        if k > 1:
            return topk(log_p, min(k, log_p.size(1)))
        word = argmax(log_p).unsqueeze(1)
        return log_p.gather(1, word), word


def log_p_with_vectors(model: Any, tokens: Tensor, state: Any) -> tuple[Tensor, Tensor]:
    """Return a model's log-probabilities (R, W) after tokens (R, 1), and the vectors (R, M) they are computed from."""
    if hasattr(model, "log_p_with_vectors"):
        log_p, vectors = model.log_p_with_vectors(tokens, state)
        return log_p, vectors
    vectors = model.vectors(tokens, state)
    return model.output(vectors).log_softmax(-1), vectors
