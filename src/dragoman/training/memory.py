"""Measure memory, and train with less of it."""

import ctypes
import math
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dragoman.errors import DragomanError
from dragoman.model import Model
from dragoman.model.transformer import Cache, Transformer
from dragoman.runtime.device import has_narrow_products
from dragoman.runtime.threads import CACHES, SHAPES, control_groups, read

# Of glibc's mallopt.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4

FEW_SHAPES = "12"  # that oneDNN remembers where each takes several megabytes; measured as fast as SHAPES


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next tensors; do nothing without glibc, or where the user set that.

    Each step of training needs the same memory again. By default glibc gives blocks above 32 MB back to the system at
    once, which must fill every page with zeros before the next step can use it: a fifth of the time of a `base` model
    (docs/notes/speed.md).
    """
    mallopt = of_c_library("mallopt")
    if mallopt and not any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in os.environ):
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def remember_few_shapes(environment: MutableMapping[str, str]) -> None:
    """Let oneDNN remember fewer shapes in this process, in place, where it multiplies float32 in training.

    There it plans quickly. It reads the number when it computes for the first time. Numbers other than SHAPES stay:
    they are the user's.
    """
    if has_narrow_products():
        for name in CACHES:
            if environment.get(name) == SHAPES:
                environment[name] = FEW_SHAPES


def free_cache(device: torch.device) -> None:
    """Release the GPU memory that PyTorch keeps for later use; do nothing for a CPU."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def forget_peak(device: torch.device) -> None:
    """Let `peak_memory` and `share_in_use` of a GPU count from now on, without what is free; do nothing for a CPU."""
    if device.type == "cuda":
        free_cache(device)
        torch.cuda.reset_peak_memory_stats(device)


def return_freed_memory() -> None:
    """Return to the system what the C library has kept since `keep_freed_memory`; do nothing without glibc."""
    if trim := of_c_library("malloc_trim"):
        trim(0)


def of_c_library(name: str) -> Callable[..., int] | None:
    """Return a function of Linux's C library by its name; None where there is none, as for what glibc alone has."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def peak_memory() -> int:
    """Return the most bytes that this process has held at once: on the GPU if it uses one, otherwise in main memory."""
    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # macOS counts bytes, Linux KiB


def share_in_use(device: torch.device) -> float:
    """Return the share of memory in use, from 0 to 1; 0 where it is unknown.

    On a GPU it is this process's peak, else what all processes of the machine, or of the container, hold now.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / torch.cuda.get_device_properties(device).total_memory
    sizes = machine_memory()
    of_machine = 1 - sizes["MemAvailable"] / sizes["MemTotal"] if sizes else 0.0
    return max([of_machine, *shares_of_groups("/")])


def machine_memory() -> dict[str, int]:
    """Return the sizes that Linux reports of the machine's memory, in KiB, by name; {} where it does not."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").split("\n") if Path("/proc/meminfo").exists() else []
    return {line.split(":")[0]: int(line.split()[1]) for line in lines if line}


def check_size(weights: int, device: torch.device) -> None:
    """Raise DragomanError where a model of so many weights cannot be trained in the memory that there is.

    Linux promises memory that it does not have, and kills the process that then uses it.
    """
    if device.type == "cuda":
        sizes = [float(torch.cuda.get_device_properties(device).total_memory)]
    else:
        machine = machine_memory()
        of_machine = 1024 * (machine["MemTotal"] + machine["SwapTotal"]) if machine else math.inf
        sizes = [of_machine, *(float(limit) for limit, _ in limits_of_groups("/"))]
    needed = 16 * weights  # weights, gradients, two moments
    if needed > min(sizes):
        raise DragomanError(
            f"a model of {weights:,} weights is too large: training needs {needed / 1e9:,.0f} GB, and there are "
            f"{min(sizes) / 1e9:,.0f} GB; a smaller model.d_model or fewer layers help"
        )


def shares_of_groups(root: str) -> Iterator[float]:
    """Yield how much of its memory limit each control group of this process uses, from 0 to 1; files are not counted.

    root: the folder with `proc` and `sys`.
    """
    for limit, usage in limits_of_groups(root):
        yield usage / limit


def limits_of_groups(root: str) -> Iterator[tuple[int, int]]:
    """Yield the memory limit of each control group of this process that has one, and what it uses, files not counted.

    Both are in bytes. root: the folder with `proc` and `sys`.
    """
    for folder in control_groups(root, "memory"):
        for limit, usage, files in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            sizes = [read(root, f"{folder}/{name}").strip() for name in (limit, usage)]
            if all(size.isdigit() for size in sizes) and int(sizes[0]):  # not 'max'
                cached = re.search(rf"^{files} (\d+)$", read(root, f"{folder}/memory.stat"), re.MULTILINE)
                yield int(sizes[0]), int(sizes[1]) - int(cached[1] if cached else 0)


def checkpoint_activations(model: Model) -> None:
    """Let each layer of `model` keep nothing but its input, and compute the rest again in the backward pass.

    The layers are changed in place. Raise DragomanError for a model that is no Transformer.
    """
    if not isinstance(model, Transformer):
        raise DragomanError("training.checkpoint_activations works with Transformers only")

    def forward_twice(forward: Callable[..., Tensor], *arguments: Any) -> Tensor:
        if not torch.is_grad_enabled():
            return forward(*arguments)

        def with_new_cache(*inputs: Any) -> Tensor:  # a layer fills its cache: the second time it must be empty again
            return forward(*(Cache() if isinstance(value, Cache) else value for value in inputs))

        return checkpoint(with_new_cache, *arguments, use_reentrant=False)

    for layer in (*model.encoder, *model.decoder):
        layer.forward = partial(forward_twice, layer.forward)
