"""Set how PyTorch computes in training: threads, memory, dtype of matmuls, the loss scale that float16 needs."""

import contextlib
import os
from collections.abc import Iterator
from typing import Literal

import torch

from dragoman.config import TrainingConfig
from dragoman.errors import plural
from dragoman.runtime.device import instructions
from dragoman.runtime.waiting import compute_with, use_threads
from dragoman.training.distributed import ProcessGroup
from dragoman.training.memory import keep_freed_memory, remember_few_shapes

# Of autocast; weights, gradients and moments stay float32.
DTYPES = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def best_precision(device: torch.device) -> Literal["float32", "bfloat16"]:
    """Return 'bfloat16' where the hardware multiplies it faster than float32, else 'float32'."""
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    capabilities = instructions()
    return "bfloat16" if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") else "float32"


def configure_torch(settings: TrainingConfig, group: ProcessGroup) -> str:
    """Set PyTorch's memory for this process, and what `settings_of_torch_kept` restores.

    Return what `use_threads` returns: a sentence for the user, or ''.
    """
    keep_freed_memory()
    remember_few_shapes(os.environ)
    note = use_threads(settings.threads)
    if group.device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # several times as fast; sums stay in float32
        if settings.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)  # with warnings alone, fused attention would not be deterministic
    return note


@contextlib.contextmanager
def settings_of_torch_kept() -> Iterator[None]:
    """Restore, after the block, PyTorch's number of threads and what is for training on a GPU: TF32 and determinism."""
    threads = torch.get_num_threads()
    precision, deterministic = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        yield
    finally:
        if torch.get_num_threads() != threads:
            compute_with(threads)
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(deterministic, warn_only=warns)


def describe_hardware(group: ProcessGroup) -> str:
    """Return '2 threads', the name of the GPU, or '4 processes, each 2 threads'."""
    hardware = plural(torch.get_num_threads(), "thread")
    if group.device.type == "cuda":
        hardware = torch.cuda.get_device_name(group.device)
    return hardware if group.size == 1 else f"{group.size} processes, each {hardware}"


class LossScale:
    """A factor on the loss that keeps small float16 gradients from becoming zero; always 1 where `active` is False.

    It is halved when a gradient overflows, and doubled, up to `largest`, after `double_after` steps without that.
    """

    def __init__(self, active: bool, *, largest: float = 2.0**20, double_after: int = 1000) -> None:
        self.active, self.largest, self.double_after = active, largest, double_after
        self.value = 2.0**14 if active else 1.0
        self.steps = 0  # since the value last changed

    def resume(self, value: float, steps: int) -> None:
        """Go on with the value and the steps of an earlier session, unless one of the two sessions has no scale.

        The precision may have changed meanwhile. A session without a scale has saved 1.
        """
        if self.active == (value != 1):
            self.value, self.steps = value, steps

    def after_overflow(self) -> None:
        """Halve the scale; do nothing where it is not active."""
        if self.active:
            self.value, self.steps = self.value / 2, 0

    def after_step(self) -> None:
        """Count a step without overflow; where the scale is active, double it after `double_after` of them."""
        self.steps += 1
        if self.active and self.steps >= self.double_after:
            self.value, self.steps = min(2 * self.value, self.largest), 0
