"""Choose the dtype of matmuls in training, and the loss scale that float16 needs."""

from typing import Literal

import torch

from dragoman.device import instructions

# Of autocast; weights, gradients and moments stay float32.
DTYPES = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def best_precision(device: torch.device) -> Literal["float32", "bfloat16"]:
    """Return 'bfloat16' where the hardware multiplies it faster than float32, else 'float32'."""
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    capabilities = instructions()
    return "bfloat16" if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") else "float32"


class LossScale:
    """A factor on the loss that keeps small float16 gradients from becoming zero; always 1 where `active` is False.

    It is halved when a gradient overflows, and doubled, up to `largest`, after `double_after` steps without that.
    """

    def __init__(self, active: bool, *, largest: float = 2.0**20, double_after: int = 1000) -> None:
        self.active, self.largest, self.double_after = active, largest, double_after
        self.value = 2.0**14 if active else 1.0
        self.steps = 0  # since the value last changed

    def after_overflow(self) -> None:
        """Halve the scale; do nothing where it is not active."""
        if self.active:
            self.value, self.steps = self.value / 2, 0

    def after_step(self) -> None:
        """Count a step without overflow; where the scale is active, double it after `double_after` of them."""
        self.steps += 1
        if self.active and self.steps >= self.double_after:
            self.value, self.steps = min(2 * self.value, self.largest), 0
