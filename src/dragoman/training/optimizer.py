"""Adam and the learning rate of section 5.3, and the schedules that came after it."""

import math
from typing import Any

import torch
from torch import nn

from dragoman.config import TrainingConfig


def paper_rate(step: int, d_model: int, warmup: int) -> float:
    """Return equation 3: it rises for `warmup` steps, then falls with the square root of the step, counted from 1."""
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def learning_rate(step: int, d_model: int, settings: TrainingConfig) -> float:
    """Return the learning rate of a step, counted from 1, on the schedule of the settings.

    All schedules but the paper's share the linear warm-up: their branches only see the steps after it.
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
    if settings.schedule not in ("linear", "cosine"):
        raise ValueError(f"learning_rate has no branch for schedule = '{settings.schedule}'")
    assert settings.max_steps is not None  # TrainingConfig requires it of these two
    done = min(1.0, (step - warmup) / max(1, settings.max_steps - warmup))
    return highest * (1 - done if settings.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2)


def adam(model: nn.Module, beta2: float = 0.98, weight_decay: float = 0.0) -> torch.optim.AdamW:
    """Return Adam with the constants of the paper, and weight decay for matrices, not for vectors (norms, biases).

    Its learning rate is 0: the caller sets it before each step.
    """
    parameters = list(model.parameters())
    groups: list[dict[str, Any]] = [
        {"params": [parameter for parameter in parameters if parameter.dim() > 1]},
        {"params": [parameter for parameter in parameters if parameter.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, beta2), eps=1e-9, weight_decay=weight_decay, fused=True)
