"""Choose the device to compute on."""

import os
from typing import Any, get_args

import torch

from dragoman.config import Device
from dragoman.errors import UsageError

# How many times as much as on a CPU is computed at once: with less, a GPU waits for its next operation.
TIMES_AT_ONCE = {"cuda": 8}


def instructions() -> dict[str, Any]:
    """Return what PyTorch knows of the processor's instructions, by name; {} where it cannot say."""
    return getattr(torch.cpu, "get_capabilities", dict)()


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
