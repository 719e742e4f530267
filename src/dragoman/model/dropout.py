"""Dropout (section 5.4)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = 2**16


class Dropout(nn.Module):
    """Drop elements as nn.Dropout does. On a CPU, where drawing the mask costs more than applying it, each element
    draws 16 bits instead of a float; the rate is then a multiple of 1/65,536.
    """

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Return x with elements dropped and the rest scaled up in training, x itself otherwise."""
        if not self.training or not self.rate:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        dropped = round(self.rate * STEPS)
        drawn = torch.empty(x.numel() // 4 + 1, dtype=torch.int64).random_(-(2**63), None)
        keep = drawn.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - STEPS // 2
        return x * (keep * torch.tensor(STEPS / (STEPS - dropped), dtype=x.dtype))

    def extra_repr(self) -> str:
        return f"rate={self.rate}"
