"""The models, and what the rest of dragoman asks of one."""

from typing import Any, Protocol

from torch import Tensor

from dragoman.config import ModelConfig, RecurrentConfig
from dragoman.model.recurrent import Recurrent
from dragoman.model.transformer import Transformer


class State(Protocol):
    """What a model remembers of its hypotheses; row i belongs to hypothesis i."""

    def select(self, rows: Tensor) -> None:
        """Go on with hypotheses `rows`, in that order; a row may be chosen several times or not at all."""


class Seq2Seq(Protocol):
    """All that search knows of a model."""

    def start(self, source: Tensor) -> Any: ...

    def step(self, tokens: Tensor, state: Any) -> Tensor: ...


Model = Transformer | Recurrent


def build(config: ModelConfig, vocabulary: int, target_vocabulary: int | None = None, pad: int = 0) -> Model:
    """A fresh model of the kind that `config` describes."""
    if isinstance(config, RecurrentConfig):
        return Recurrent(config, vocabulary, target_vocabulary, pad)
    return Transformer(config, vocabulary, target_vocabulary, pad)
