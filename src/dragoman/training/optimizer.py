"""Adam and the learning rate of section 5.3."""

import torch
from torch import nn


def paper_rate(step: int, d_model: int, warmup: int) -> float:
    """Equation 3: rises for `warmup` steps, then falls with the square root of the step (counted from 1)."""
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def adam(model: nn.Module) -> torch.optim.Adam:
    """With the constants of the paper; the rate is set before every step."""
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
