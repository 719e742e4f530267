"""Adam and the learning rate of section 5.3, and the schedules that came after it."""

import math
from typing import Any

import torch
from torch import nn

from dragoman.config import TrainingConfig


def paper_rate(step: int, d_model: int, warmup: int) -> float:
    """Return the learning rate of equation 3: linear warm-up, then inverse square root of the step, counted from 1."""
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def learning_rate(step: int, d_model: int, settings: TrainingConfig) -> float:
    """Return the learning rate of a step, counted from 1, on the schedule of the settings.

    All schedules but the paper's share the linear warm-up: their branches only see the steps after it. `d_model` only
    matters to the paper's. Raise ValueError for a schedule without a branch here.
    """
    highest, warmup = settings.learning_rate, settings.warmup
    if settings.schedule == "paper":
        return highest * paper_rate(step, d_model, warmup)
    if step <= warmup:
        return highest * step / warmup
    if settings.schedule == "inverse-sqrt":
        return highest * math.sqrt(warmup / step)
    if settings.schedule == "constant":
        return highest
    if settings.schedule == "linear":
        return highest * (1 - decay_progress(step, settings))
    if settings.schedule == "cosine":
        return highest * ((1 + math.cos(math.pi * decay_progress(step, settings))) / 2)
    raise ValueError(f"learning_rate has no branch for schedule = '{settings.schedule}'")


def decay_progress(step: int, settings: TrainingConfig) -> float:
    """Return the share of the decay that is done: 0 at the end of the warm-up, 1 at max_steps and after.

    The step must not lie before the end of the warm-up. A schedule that uses this belongs in ENDING_SCHEDULES.
    """
    assert settings.max_steps is not None  # TrainingConfig requires it of schedules that end
    return min(1.0, (step - settings.warmup) / max(1, settings.max_steps - settings.warmup))


def adam(model: nn.Module, beta2: float = 0.98, weight_decay: float = 0.0) -> torch.optim.AdamW:
    """Return AdamW with the constants of the paper, and `weight_decay` for matrices, not for vectors (norms, biases).

    Its learning rate is 0: the caller sets it before each step.
    """
    parameters = list(model.parameters())
    groups: list[dict[str, Any]] = [
        {"params": [parameter for parameter in parameters if parameter.dim() > 1]},
        {"params": [parameter for parameter in parameters if parameter.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, beta2), eps=1e-9, weight_decay=weight_decay, fused=True)
