"""Make the model that a run begins with: random, or from the weights of another."""

from pathlib import Path

import torch

from dragoman.config import RunConfig
from dragoman.data.tokenizer import PAD
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError
from dragoman.model import Model, build
from dragoman.model_folder import fetch_model, read_model
from dragoman.training.checkpoint import run_of
from dragoman.training.resume import read_run_config


def initial_model(config: RunConfig, tokenizers: Tokenizers, resumed: bool) -> Model:
    """Return the model before the first step: random, or that of `init_from`, with random vectors for new subwords.

    With `resumed` it is random, as the checkpoint's weights replace it. Seeds PyTorch with the run's seed. Raise
    DragomanError where the model to start from is damaged or has other shapes.
    """
    torch.manual_seed(config.training.seed)
    model = build(config.model, len(tokenizers.source), tokenizers.target_vocabulary, PAD)
    if config.init_from and not resumed:
        copy_weights(read_model(Path(config.init_from))[0], model)
    return model


def untrained_model(folder: Path, tokenizers: Tokenizers) -> Model | None:
    """Return the model of a run as it was before its first step, built again from the seed of the run.

    folder: a run folder, or one of its checkpoints. None for other model folders, and for a run that started from
    another model. PyTorch's random numbers stay as they are. Raise DragomanError where the run's settings are damaged.
    """
    run = run_of(fetch_model(folder))
    if run is None or not (run / "config.toml").is_file():
        return None
    config = read_run_config(run)
    if config.init_from:
        return None
    with torch.random.fork_rng(devices=[]):
        return initial_model(config, tokenizers, resumed=False)


@torch.no_grad()
def copy_weights(old: Model, new: Model) -> None:
    """Copy the weights of `old` into `new`, where further subwords stay. Raise DragomanError for other shapes."""
    values = dict(old.named_parameters())
    for name, parameter in new.named_parameters():
        value = values[name]
        if parameter.shape[1:] != value.shape[1:] or len(parameter) < len(value):
            raise DragomanError(
                f"'{name}' is {tuple(value.shape)} in the model to start from, but {tuple(parameter.shape)} here"
            )
        parameter[: len(value)].copy_(value)
