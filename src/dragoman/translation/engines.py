"""Open the engine that searches: our own, with one model or an ensemble, or CTranslate2."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

from dragoman.config import SearchConfig
from dragoman.data.tokenizer import Tokenizer
from dragoman.decoding.engine import Engine
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import UsageError
from dragoman.model import Model
from dragoman.translation.terms import token_boundaries

EngineName = Literal["native", "ctranslate2"]


def torch_engine(models: Sequence[Model], tokenizer: Tokenizer) -> TorchEngine:
    """Return our own engine for a model or an ensemble, which computes where their weights are; see `TorchEngine`."""
    return TorchEngine(*models, boundaries=token_boundaries(tokenizer))


def open_engine(
    name: EngineName,
    folder: Path,
    models: Sequence[Model],
    tokenizer: Tokenizer,
    search: SearchConfig = SearchConfig(),
    *,
    compute_type: str = "float32",
    threads: int | None = None,
) -> Engine:
    """Return the engine of this name.

    'native' searches with `models`, in PyTorch. 'ctranslate2' searches with its own copy of the model in `folder`, in
    `compute_type` and with `threads` threads, by default as many as PyTorch has; the model is converted the first time.
    Raise UsageError for an ensemble and for settings of `search` that CTranslate2 does not have, and what
    `open_ctranslate2` raises.
    """
    if name == "native":
        return torch_engine(models, tokenizer)
    if len(models) > 1:
        raise UsageError("an ensemble needs the native engine")
    from dragoman.interop.ctranslate2.cache import open_ctranslate2
    from dragoman.interop.ctranslate2.conversion import check_model

    check_model(models[0].config)  # before a package is asked for that would not help
    engine = open_ctranslate2(folder, compute_type, threads or torch.get_num_threads())
    engine.check([], search, [])
    return engine
