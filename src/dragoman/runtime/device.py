"""Choose the device to compute on, and what multiplies float32 on a CPU."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import torch

from dragoman.config import Device
from dragoman.errors import UsageError

# How many times as much as on a CPU is computed at once: with less, a GPU waits for its next operation.
TIMES_AT_ONCE = {"cuda": 8}
FEW = 32  # rows and columns for which PyTorch already calls oneDNN, if it may
MATMUL: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # settings of PyTorch for products on CPUs


def instructions() -> dict[str, Any]:
    """Return what PyTorch knows of the processor's instructions, by name; {} where it cannot say."""
    return getattr(torch.cpu, "get_capabilities", dict)()


def has_narrow_products() -> bool:
    """Return whether PyTorch multiplies float32 with narrower instructions than oneDNN would.

    It multiplies with MKL, if it has it, and MKL leaves out AVX-512 on AMD's processors.
    """
    has = instructions()
    amd = str(has.get("cpu_name", "")).startswith("AMD")
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return bool(amd and has.get("avx512_f") and both)


class WideBlocks:
    """Count the blocks of `wide_products` that are open, in all threads: they share PyTorch's setting."""

    def __init__(self) -> None:
        self.lock, self.open, self.before = threading.Lock(), 0, ""

    def enter(self) -> None:
        """Begin a block; the first one changes the setting."""
        with self.lock:
            if not self.open:
                self.before = MATMUL.fp32_precision
                MATMUL.fp32_precision = widest_precision(self.before)
            self.open += 1

    def leave(self) -> None:
        """End a block; the last one restores the setting."""
        with self.lock:
            self.open -= 1
            if not self.open:
                MATMUL.fp32_precision = self.before


WIDE_BLOCKS = WideBlocks()


@contextmanager
def wide_products() -> Iterator[None]:
    """Let oneDNN multiply float32 in the block, on a CPU where PyTorch's own products are narrow.

    Meanwhile other threads multiply in the same way.
    """
    WIDE_BLOCKS.enter()
    try:
        yield
    finally:
        WIDE_BLOCKS.leave()


def widest_precision(before: str) -> str:
    """Return the setting with which products are exact and as wide as possible; `before` is what it is now.

    PyTorch hands products to oneDNN where they may round to bfloat16. Without AMX oneDNN never rounds; on a processor
    where it does, nothing changes.
    """
    if not has_narrow_products():
        return before
    try:
        MATMUL.fp32_precision = "bf16"
        return before if rounds() else "bf16"
    finally:
        MATMUL.fp32_precision = before


def rounds() -> bool:
    """Return whether products of float32 on a CPU round their factors."""
    x = torch.full((FEW, FEW), 1 + 2.0**-20)
    return not torch.equal(x @ torch.eye(FEW), x)


def device_of(wanted: Device) -> torch.device:
    """Return the device for a setting: 'auto' is a GPU where there is one; torchrun gives each process its own.

    That is the one whose number is in the environment variable LOCAL_RANK. On a GPU, attention by cuDNN is switched off
    for this process. Raise UsageError where a GPU is asked for and there is none.
    """
    if wanted not in get_args(Device):
        raise UsageError(f"device must be {', '.join(get_args(Device))}, not {wanted!r}")
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UsageError("device 'cuda' was requested, but PyTorch finds no GPU")
    # It plans anew for each shape of a batch, and with masks some versions have gradients that are not numbers
    # (pytorch#196678). PyTorch's other kernels do neither.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
