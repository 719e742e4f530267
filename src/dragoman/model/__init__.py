"""The models, and what the rest of dragoman asks of one."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

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


def outline(config: ModelConfig, vocabulary: int) -> Model:
    """The same with shapes and without numbers, of any size: nothing is allocated."""
    with torch.device("meta"), _Undrawn():
        return build(config, vocabulary)


def parameter_count(model: nn.Module) -> int:
    """Count the trained numbers of a model; a shared matrix counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


class _Undrawn(TorchFunctionMode):
    """Tensors keep what they have where `torch.nn.init` would draw numbers: that, of no numbers, takes seconds."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
