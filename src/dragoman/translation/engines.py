"""Open the engine that searches: our own, with one model or an ensemble, or CTranslate2."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import torch

from dragoman.config import ComputeType, Device, EngineName, SearchConfig
from dragoman.config.fields import Threads, check_argument
from dragoman.data.tokenizers import SideTokenizer, Tokenizers
from dragoman.decoding.engine import Engine
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError, UsageError
from dragoman.memory import Memory
from dragoman.model import Model
from dragoman.model_folder import read_model
from dragoman.runtime.device import device_of
from dragoman.runtime.threads import granted_cores
from dragoman.runtime.waiting import use_threads


def read_models(
    folder: Path, ensemble: Sequence[str | Path], device: Device | torch.device
) -> tuple[list[Model], Tokenizers]:
    """Return the model in a folder and the other ones of an ensemble, with weights on `device`, and their tokenizers.

    Raise DragomanError naming the file where a model folder is missing or damaged, and the folder where a model has
    other tokenizers than the first; UsageError for a device that is not there, and for a single folder as ensemble.
    """
    if isinstance(ensemble, str | Path) or not isinstance(ensemble, Sequence):
        given = str(ensemble) if isinstance(ensemble, Path) else ensemble
        raise UsageError(f"ensemble must be a list of folders, not {given!r}")
    for index, other in enumerate(ensemble):
        check_argument(f"ensemble[{index}]", other, str | Path)
    device = device if isinstance(device, torch.device) else device_of(device)
    model, tokenizers = read_model(folder)
    models = [model.to(device)]
    for other in ensemble:
        model, of_other = read_model(Path(other))
        if of_other.as_files() != tokenizers.as_files():
            raise DragomanError(f"{other}: its tokenizer is not that of {folder}, so the two cannot form an ensemble")
        models.append(model.to(device))
    return models, tokenizers


def torch_engine(
    models: Sequence[Model],
    tokenizer: SideTokenizer,
    compute_type: ComputeType = "float32",
    memory: Memory | None = None,
) -> TorchEngine:
    """Return our own engine for a model or an ensemble, which computes where their weights are; see `TorchEngine`.

    tokenizer: that of the target.
    """
    return TorchEngine(*models, suppressed=tokenizer.suppressed, compute_type=compute_type, memory=memory)


def open_engine(
    name: EngineName,
    folder: Path,
    models: Sequence[Model],
    tokenizer: SideTokenizer,
    search: SearchConfig = SearchConfig(),
    *,
    compute_type: ComputeType = "float32",
    threads: int | None = None,
    replicas: int = 1,
    memory: Memory | None = None,
) -> Engine:
    """Return the engine of this name.

    'native' searches with `models` in `threads` threads, which PyTorch uses from then on, too. 'ctranslate2' searches
    with its own copy of the model in `folder`, with `threads` threads for each of `replicas` searches at the same time;
    the model is converted once. Both multiply in `compute_type`, where 'auto' is as for `Translator.load`.
    tokenizer: that of the target; memory: what the model remembers, of which CTranslate2 sees nothing (its exact
    matches are the translator's); threads: None for as many as PyTorch has; there is never more than one for each core.
    Raise UsageError for an ensemble and for settings of `search` that CTranslate2 does not have, for other names,
    numbers, and types that are not for this processor, and what `open_ctranslate2` raises.
    """
    if name not in get_args(EngineName):
        raise UsageError(f"engine must be {' or '.join(get_args(EngineName))}, not {name!r}")
    check_argument("threads", threads, Threads | None)
    check_argument("replicas", replicas, Threads)
    if name == "native":
        use_threads(threads)
        return torch_engine(models, tokenizer, compute_type, memory)
    if len(models) > 1:
        raise UsageError("an ensemble needs the native engine")
    from dragoman.interop.ctranslate2.cache import open_ctranslate2
    from dragoman.interop.ctranslate2.conversion import check_model

    check_model(models[0].config)  # before a package is asked for that would not help
    threads = min(threads or torch.get_num_threads(), granted_cores())
    engine = open_ctranslate2(folder, compute_type, threads, replicas=replicas, suppressed=tokenizer.suppressed)
    engine.check([], search, [])
    return engine
