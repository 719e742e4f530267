"""The models, and the contract that search, training and inspection rely on."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dragoman.config import ModelConfig, RecurrentConfig, TransformerConfig
from dragoman.model.recurrent import Recurrent
from dragoman.model.transformer import Transformer


class State(Protocol):
    """Describe what a model keeps of its hypotheses; row i belongs to hypothesis i."""

    def select(self, rows: Tensor) -> None:
        """Keep the hypotheses `rows` (n,), in that order; one may be chosen several times or not at all."""


class Seq2Seq(Protocol):
    """The part of a model that a search uses."""

    def start(self, source: Tensor) -> State:
        """Encode the source ids (B, S); return the state before the first target token."""

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Return logits or log-probabilities (B, T, V) after each token (B, T); the tokens are then part of `state`."""
        ...


class Chooser(Seq2Seq, Protocol):
    """A model that finds the likeliest words itself, in less time than a search takes for it."""

    def log_p(self, tokens: Tensor, state: Any) -> Tensor:
        """Return log-probabilities (R, V) after the tokens (R, 1), which are then part of `state`."""
        ...

    def likeliest(self, tokens: Tensor, state: Any, k: int) -> tuple[Tensor, Tensor]:
        """Return the k largest of what `log_p` returns, fewer if V is less, and their words, both (R, k), sorted."""
        ...


Model = Transformer | Recurrent
BUILDERS: dict[type, Callable[..., Model]] = {TransformerConfig: Transformer, RecurrentConfig: Recurrent}


def build(config: ModelConfig, vocabulary: int, target_vocabulary: int | None = None, pad: int = 0) -> Model:
    """Return a new model of the kind that `config` describes, with random weights, in training mode.

    vocabulary: subwords of the source, special tokens included; target_vocabulary: those of the target, by default the
    same; pad: the id of padding. Draws from PyTorch's global random state.
    """
    return BUILDERS[type(config)](config, vocabulary, target_vocabulary, pad)


def build_empty(config: ModelConfig, vocabulary: int, target_vocabulary: int | None = None, pad: int = 0) -> Model:
    """Return the model that `build` returns, with any values in its weights: they are to be loaded.

    Drawing random weights first would take most of the time that loading a large model takes.
    """
    with _SkipInit():
        return build(config, vocabulary, target_vocabulary, pad)


def outline(config: ModelConfig, vocabulary: int, target_vocabulary: int | None = None) -> Model:
    """Return the model that `build` returns, on PyTorch's meta device: with shapes, without memory for weights."""
    with torch.device("meta"):
        return build_empty(config, vocabulary, target_vocabulary)


def parameter_count(model: nn.Module) -> int:
    """Return the number of trained parameters of a model; a shared matrix counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


class _SkipInit(TorchFunctionMode):
    """Let the functions of `torch.nn.init` return their tensor as it is.

    On the meta device, the first one called would make PyTorch import its reference implementations: 6 s.
    `torch.nn.utils.skip_init` would have to be called for each layer inside of the models.
    """

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run one function of PyTorch, or, if it fills a tensor with initial values, return the tensor as it is."""
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init" or func in (Tensor.normal_, Tensor.uniform_):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
