"""Attention maps of any model of ours, for a sentence and its translation.

Shapes: L layers, H heads, T target tokens, S source tokens.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from dragoman.data.batches import Ids
from dragoman.data.tokenizer import BOS, EOS, SPECIAL, Tokenizer
from dragoman.model.attention import Kernel
from dragoman.model.capture import attention_weights


@contextmanager
def attention_maps(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Collect {module name: [weights of every call]}, each (B, H, T, S), from all attention layers of `model`.

    Each layer's kernel is borrowed and given back; the layer itself gets what it always gets.
    """
    layers: dict[str, Any] = {name: module for name, module in model.named_modules() if hasattr(module, "kernel")}
    kernels: dict[str, Kernel] = {name: module.kernel for name, module in layers.items()}
    maps: dict[str, list[Tensor]] = {name: [] for name in layers}

    def watching(name: str) -> Kernel:
        kernel = kernels[name]

        def watched(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
            with torch.no_grad():
                maps[name].append(attention_weights(kernel, query, key, value, mask))
            return kernel(query, key, value, mask, dropout)

        return watched

    try:
        for name, layer in layers.items():
            layer.kernel = watching(name)
        yield maps
    finally:
        for name, layer in layers.items():
            layer.kernel = kernels[name]


@torch.inference_mode()
def cross_attention(model: nn.Module, source: Ids, target: Ids) -> Tensor:
    """How much each target token, as it was predicted, looked at each source token: (L, H, T, S).

    The last row and the last column stand for the end of the sentence; every row sums to 1. Raises ValueError for a
    model without cross-attention.
    """
    with attention_maps(model) as maps:
        model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]]))
    found = [calls[0][0] for name, calls in maps.items() if name.endswith("cross_attention") or name == "attention"]
    if not found:
        raise ValueError("this model has no attention over the source")
    return torch.stack(found)


@dataclass(frozen=True)
class Word:
    """A label and the tokens it stands for."""

    label: str
    tokens: range


def words(tokenizer: Tokenizer, ids: Ids) -> list[Word]:
    """The words of ids, split at spaces, and the end of the sentence."""
    starts = [i for i, id in enumerate(ids) if i == 0 or tokenizer.pieces[id].startswith(" ")]
    spans = [range(start, end) for start, end in pairwise([*starts, len(ids)])]
    return [*(Word(spelled(tokenizer, ids[span.start : span.stop]), span) for span in spans), end(ids)]


def subwords(tokenizer: Tokenizer, ids: Ids) -> list[Word]:
    """One label per token, and the end of the sentence."""
    return [*(Word(piece(tokenizer, id), range(i, i + 1)) for i, id in enumerate(ids)), end(ids)]


def end(ids: Ids) -> Word:
    return Word(SPECIAL[EOS], range(len(ids), len(ids) + 1))


def spelled(tokenizer: Tokenizer, ids: Ids) -> str:
    """The text of a word; that of its pieces where there is nothing to read: a tag, white space."""
    return tokenizer.decode(ids).strip() or "".join(piece(tokenizer, id) for id in ids)


def piece(tokenizer: Tokenizer, id: int) -> str:
    """A token as it is shown, a space as ␣."""
    return tokenizer.pieces[id].replace(" ", "␣")


def by_word(weights: Tensor, rows: Sequence[Word], columns: Sequence[Word]) -> Tensor:
    """(..., T, S) of tokens -> of words: the sum over a word's source tokens, the mean over its target tokens.

    Rows that sum to 1 still do.
    """
    weights = torch.stack([weights[..., list(word.tokens)].sum(-1) for word in columns], -1)
    return torch.stack([weights[..., list(word.tokens), :].mean(-2) for word in rows], -2)
