"""Checkpoints: a model folder plus what training needs to go on exactly where it was.

A run folder has `checkpoints/step-00001000/`, and the links `best` and `last` into it. A checkpoint appears whole or
not at all; a link is replaced in one rename, so at every instant both lead to a complete checkpoint.
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dragoman.errors import DragomanError
from dragoman.folder import load_weights, new_folder, sync, verify, write_model
from dragoman.model import Model
from dragoman.tokenizer import Tokenizer

UNKNOWN_LOSS = 1e9  # nats per token; JSON has no infinity


@dataclass
class Progress:
    """How far a run has come; with the weights, the moments and the random state, all that a run is."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # batches done in this epoch
    seconds: float = 0.0
    target_tokens: int = 0
    best_bleu: float = -1.0
    best_loss: float = UNKNOWN_LOSS
    loss_of_best: float = UNKNOWN_LOSS  # the dev loss where BLEU was best
    best_step: int = 0
    worse: int = 0  # validations in a row without a better BLEU or loss
    finished: str = ""  # why, in words; empty while there is more to do
    data: str = ""  # fingerprint of the training pairs


def save_checkpoint(
    run: Path, model: Model, tokenizer: Tokenizer, optimizer: torch.optim.Adam, progress: Progress, card: str
) -> None:
    """Write a checkpoint, point `last` to it, and `best` too if it is; then remove those that no link leads to."""
    folder = run / "checkpoints" / f"step-{progress.step:08d}"
    while folder.exists():  # a step that is saved again gets a folder of its own: what is there stays until then
        folder = folder.with_name(folder.name + "-again")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(folder) as draft:
        write_model(draft, model, tokenizer, card)
        tensors = {"random": torch.get_rng_state(), **dict(moments(model, optimizer))}
        save_file(tensors, draft / "state.safetensors")
        state = json.dumps(dataclasses.asdict(progress), indent=1)
        (draft / "state.json").write_text(state + "\n", encoding="utf-8")
    # `best` first: a run that goes on from `last` believes that `best` is what its state says.
    if progress.best_step == progress.step or not (run / "best").exists():
        point(run / "best", folder)
    point(run / "last", folder)
    kept = {os.path.realpath(run / "last"), os.path.realpath(run / "best")}
    for old in [*folder.parent.glob("step-*"), *folder.parent.glob(".step-*.draft")]:
        if old.is_dir() and os.path.realpath(old) not in kept:
            shutil.rmtree(old)


def point(link: Path, folder: Path) -> None:
    draft = link.with_name(f".{link.name}.draft")
    draft.unlink(missing_ok=True)
    draft.symlink_to(os.path.relpath(folder, link.parent))
    draft.replace(link)
    sync(link.parent)


def moments(model: nn.Module, optimizer: torch.optim.Adam) -> Iterator[tuple[str, Tensor]]:
    """Adam's state, named after the parameters."""
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            yield f"{name}.{key}", value


def load_checkpoint(folder: Path, model: Model, optimizer: torch.optim.Adam) -> Progress:
    """Fill model, optimizer and the random state from a checkpoint, and return how far it had come."""
    verify(folder)
    try:
        progress = Progress(**json.loads((folder / "state.json").read_text(encoding="utf-8")))
        load_weights(model, folder / "model.safetensors")
        tensors = load_file(folder / "state.safetensors")
        torch.set_rng_state(tensors.pop("random"))
        for name, parameter in model.named_parameters():
            if f"{name}.step" in tensors:  # a parameter that never had a gradient has no moments
                keys = ("step", "exp_avg", "exp_avg_sq")
                optimizer.state[parameter] = {key: tensors[f"{name}.{key}"] for key in keys}
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise DragomanError(f"{folder}: this checkpoint does not fit the run: {error}") from None
    return progress
