"""Time several ways to do the same work, in turn, so that a machine whose speed drifts is fair to all."""

import contextlib
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from dragoman.runtime.device import instructions


@dataclass
class Contender:
    """One way to do the work, and its speed: `run` does the work once and returns how many units it did."""

    name: str
    run: Callable[[], int]
    rates: list[float] = field(default_factory=list)  # units per second, one per round

    @property
    def median(self) -> float:
        """Return the speed of the round in the middle, in units per second."""
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """Return half the distance from the slowest to the fastest round, as a share of the median."""
        return (max(self.rates) - min(self.rates)) / 2 / self.median

    def time(self) -> float:
        """Do the work once; return its speed in units per second."""
        began = time.perf_counter()
        done = self.run()
        return done / (time.perf_counter() - began)

    def __str__(self) -> str:
        return f"{self.median:,.0f} ± {100 * self.spread:.0f} %"


def time_in_turn(contenders: list[Contender], rounds: int) -> None:
    """Time every contender once per round, in turn, after one round that does not count; add to their `rates`."""
    for turn in range(rounds + 1):
        for contender in contenders:
            rate = contender.time()
            if turn:
                contender.rates.append(rate)


# What decides how fast a processor multiplies matrices, by PyTorch's names for it.
INSTRUCTIONS = {
    "AMX": ("amx_bf16", "amx_int8"),
    "AVX-512": ("avx512_f",),
    "AVX-512 bfloat16": ("avx512_bf16",),
    "AVX2": ("avx2",),
    "VNNI": ("avx512_vnni", "avx_vnni"),
}


def describe_machine(device: str = "cpu") -> str:
    """Return what figures were measured with: 'AMD EPYC with AVX2, 2 cores, torch 2.13.0, 1 thread'.

    The threads are those that PyTorch uses now. Of the instructions, those are named that matter to matmuls. device:
    for 'cuda', the GPU comes first.
    """
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration), Path("/proc/cpuinfo").open(encoding="utf-8") as opened:
        name = next(line.split(":", 1)[1].strip() for line in opened if line.startswith("model name"))
    threads = torch.get_num_threads()
    has = instructions()
    labels = [label for label, flags in INSTRUCTIONS.items() if any(has.get(flag) for flag in flags)]
    name += f" with {', '.join(labels)}" * bool(labels)
    if device == "cuda":
        name = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, beside {name}"
    return f"{name}, {os.cpu_count()} cores, torch {torch.__version__}, {threads} thread{'s' * (threads != 1)}"


def markdown_table(columns: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown; the columns after the first hold numbers."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
