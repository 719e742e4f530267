"""Table 1: operations, steps in a row and the longest path of one layer, counted, and the time that it takes.

Shapes: n places, d numbers each.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from dragoman.config import AttentionConfig
from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.restricted import layers_for, neighbours
from dragoman.model.attention import MultiHeadAttention, explicit
from dragoman.model.packing import Packing
from dragoman.model.recurrent import PlainRNN

Run = Callable[[Tensor], Tensor]  # (1, n, d) -> (1, n, d)

WIDTH, RADIUS = 3, 8  # k of the convolution; places to each side: the r of Table 1 is then 17
WINDOW = 2 * RADIUS + 1
TIMED_SIZE, TIMED = 64, (16, 32, 64, 128, 256, 512, 1024)  # d and n of what is timed
CHAINED = (16, 32, 64)  # n of which the steps in a row are counted


@dataclass(frozen=True)
class Kind:
    """A row of Table 1, and a layer that is one."""

    name: str
    formula: str
    operations: Callable[[int, int], int]  # of n and d, without a constant
    path: Callable[[int], int]  # the longest from a place to a later one, of n
    build: Callable[[int], Run]  # of d


def attend(size: int) -> Run:
    return lambda x: explicit(x, x, x)


def attend_with_matrices(size: int) -> Run:
    layer = MultiHeadAttention(size, AttentionConfig(heads=1))
    layer.kernel = explicit

    def run(x: Tensor) -> Tensor:
        packing, rows = Packing.full(x[..., 0]), x.flatten(0, 1)
        return packing.unpack(layer(rows, packing, layer.project(rows, packing), None))

    return run


def recur(size: int) -> Run:
    layer = PlainRNN(size, size, "tanh")
    return lambda x: layer(x, torch.ones_like(x[..., 0], dtype=torch.bool), x.new_zeros(1, size))[0]


def convolve(size: int) -> Run:
    layer = nn.Conv1d(size, size, WIDTH, padding=WIDTH // 2)
    return lambda x: layer(x.transpose(1, 2)).transpose(1, 2)


def attend_nearby(size: int) -> Run:
    return lambda x: neighbours(x, x, x, RADIUS)


def dilated(places: int) -> int:
    """How many convolutions reach from the first place to the last, where each sees a place and those before it, with
    gaps WIDTH times as wide as the convolution below.
    """
    layers, reach = 0, 1
    while reach < places:
        layers, reach = layers + 1, reach * WIDTH
    return max(1, layers)


SELF = Kind("self-attention", "n² d", lambda n, d: n * n * d, lambda n: 1, attend)
RECURRENT = Kind("recurrent", "n d²", lambda n, d: n * d * d, lambda n: n, recur)
CONVOLUTION = Kind("convolution", "k n d²", lambda n, d: WIDTH * n * d * d, dilated, convolve)
RESTRICTED = Kind(
    "restricted self-attention", "r n d", lambda n, d: WINDOW * n * d, lambda n: layers_for(n, RADIUS), attend_nearby
)
WHOLE = Kind(
    "self-attention and its four matrices",
    "(n² d + 2 n d²)",
    lambda n, d: n * n * d + 2 * n * d * d,
    lambda n: 1,
    attend_with_matrices,
)
KINDS = (SELF, RECURRENT, CONVOLUTION, RESTRICTED, WHOLE)


def crossing(size: int) -> int:
    """The length from which self-attention has at least the operations of recurrence."""
    return next(n for n in range(1, 2 * size + 1) if SELF.operations(n, size) >= RECURRENT.operations(n, size))


@torch.no_grad()
def counted(kind: Kind, places: int, size: int) -> int:
    """The multiplications and additions in the matrix products of one layer."""
    run, x = kind.build(size), torch.randn(1, places, size)
    with FlopCounterMode(display=False) as counter:
        run(x)
    return counter.get_total_flops()


def chain(kind: Kind, places: int, size: int = 8) -> int:
    """The most operations of one layer that wait for each other: what no parallel machine can shorten."""
    start = kind.build(size)(torch.randn(1, places, size, requires_grad=True)).grad_fn
    longest: dict[Any, int] = {}
    waiting: list[Any] = [start]
    while waiting:
        node = waiting[-1]
        before = [other for other, _ in node.next_functions if other is not None]
        missing = [other for other in before if other not in longest]
        waiting += missing
        if not missing:
            longest[waiting.pop()] = 1 + max((longest[other] for other in before), default=0)
    return longest[start]


def growth(kind: Kind) -> float:
    """By how many operations the chain gets longer with each place."""
    short, *_, long = CHAINED
    return (chain(kind, long) - chain(kind, short)) / (long - short)


@torch.no_grad()
def times(rounds: int) -> dict[str, list[float]]:
    """Seconds of one layer, by kind and length: the fastest of so many rounds, in which all take turns."""
    found = {kind.name: [math.inf] * len(TIMED) for kind in KINDS}
    runs = {kind.name: kind.build(TIMED_SIZE) for kind in KINDS}
    for turn in range(rounds + 1):
        for index, places in enumerate(TIMED):
            x = torch.randn(1, places, TIMED_SIZE)
            for name, run in runs.items():
                began = time.perf_counter()
                run(x)
                if turn:  # the first round warms up
                    found[name][index] = min(found[name][index], time.perf_counter() - began)
    return found


def judge_growth(seconds: dict[str, list[float]]) -> Verdict:
    """Over the last doubling of the length: attention's time by about 4, the others' by about 2."""
    by = {name: row[-1] / row[-2] for name, row in seconds.items()}
    others = {kind.name: by[kind.name] for kind in (RECURRENT, CONVOLUTION, RESTRICTED)}
    seen = by[SELF.name] > 1.25 * max(others.values())
    return Verdict(
        seen,
        f"From n = {TIMED[-2]} to {TIMED[-1]} the time of self-attention grows by a factor of {by[SELF.name]:.1f}, "
        + ", ".join(f"{name} by {factor:.1f}" for name, factor in others.items())
        + (": its square shows." if seen else ": its square does not stand out at these lengths."),
    )


def judge_crossing(seconds: dict[str, list[float]]) -> Verdict:
    """Whether the times cross where the operations do."""
    pairs = zip(TIMED, seconds[SELF.name], seconds[RECURRENT.name], strict=True)
    slower = [n for n, attention, recurrence in pairs if attention > recurrence]
    first = min(slower, default=None)
    seen = first is not None and TIMED_SIZE / 2 <= first <= TIMED_SIZE * 2
    late = first is None or first > TIMED_SIZE
    where = (
        f"more time than the recurrent layer from n = {first} on"
        if first
        else f"less time at every n up to {TIMED[-1]}"
    )
    return Verdict(
        seen,
        f"At d = {TIMED_SIZE} self-attention takes {where}; the operations cross at n = {crossing(TIMED_SIZE)}"
        + (": steps in a row cost more than operations side by side." if late and not seen else "."),
    )


def run(effort: Effort) -> Findings:
    torch.manual_seed(effort.seeds[0])
    sizes = [(n, d) for n in (16, 64, 100) for d in (32, 64)]
    ratios = {kind: [counted(kind, n, d) / kind.operations(n, d) for n, d in sizes] for kind in KINDS}
    constant = all(max(row) == min(row) for row in ratios.values())
    grown = {kind: growth(kind) for kind in KINDS}
    in_a_row = grown[RECURRENT] > 0 and all(by == 0 for kind, by in grown.items() if kind is not RECURRENT)
    crossings = {size: crossing(size) for size in (64, 128, 256, 512, 1024)}
    equal = all(size == n for size, n in crossings.items())
    seconds = times(effort.of(20))
    return Findings(
        setting=f"One layer of each kind, forward, for one sentence; convolution of width k = {WIDTH}, restricted "
        f"attention to {RADIUS} places on each side (r = {WINDOW}). Operations are counted in the layers while they "
        "run; steps in a row are the longest chain in their graphs; times are the fastest of "
        f"{effort.of(20)} rounds at d = {TIMED_SIZE}.",
        verdicts=(
            Verdict(
                constant,
                f"At {len(sizes)} sizes n and d the counted operations are "
                + ("always the same multiple of" if constant else "not always the same multiple of")
                + " the formulas: "
                + ", ".join(f"{row[0]:g} × {kind.formula}" for kind, row in ratios.items())
                + ".",
            ),
            Verdict(
                in_a_row,
                f"Each further word adds {grown[RECURRENT]:g} steps in a row to the recurrent layer and "
                f"{max(by for kind, by in grown.items() if kind is not RECURRENT):g} to any other.",
            ),
            Verdict(
                equal,
                "By the formulas self-attention has as many operations as recurrence at n = "
                + ", ".join(f"{n} for d = {size}" for size, n in crossings.items())
                + ("." if equal else ": not at n = d."),
            ),
            judge_growth(seconds),
            judge_crossing(seconds),
        ),
        tables=(
            Table(
                "Table 1, formulas and counts",
                (
                    "layer",
                    "operations",
                    "counted, as a multiple",
                    "steps in a row per word",
                    "path, n = 64",
                    "n = 1024",
                ),
                tuple((k.name, k.formula, ratios[k][0], grown[k], k.path(64), k.path(1024)) for k in KINDS),
            ),
            Table(
                f"Milliseconds of one layer, d = {TIMED_SIZE}",
                ("n", *(kind.name for kind in KINDS)),
                tuple((n, *(1000 * seconds[kind.name][i] for kind in KINDS)) for i, n in enumerate(TIMED)),
            ),
        ),
        figures=(
            Figure(
                "operations",
                "Operations of one layer by the formulas, d = 512: self-attention has fewer than recurrence up to "
                "n = d, the dotted line.",
                draw_operations,
            ),
            Figure(
                "path",
                "The longest path from a word to a later one, by length; convolutions look back, with growing gaps.",
                draw_paths,
            ),
            Figure(
                "times",
                f"Measured milliseconds of one layer by length, d = {TIMED_SIZE} (dotted line: n = d).",
                lambda figure: draw_times(figure, seconds),
            ),
        ),
    )


def axes_of(figure: Any, label: str) -> Any:
    axes = figure.subplots()
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("length n (places)")
    axes.set_ylabel(label)
    axes.grid(color="0.9", linewidth=0.6)
    return axes


def draw_operations(figure: Any) -> None:
    axes, size = axes_of(figure, "operations (without a constant)"), 512
    lengths = [2**power for power in range(3, 13)]
    for index, kind in enumerate(KINDS):
        axes.plot(
            lengths, [kind.operations(n, size) for n in lengths], label=f"{kind.name}: {kind.formula}", **style(index)
        )
    axes.axvline(size, color="0.4", linestyle=":", linewidth=1)
    axes.legend(frameon=False, fontsize=8)


def draw_paths(figure: Any) -> None:
    axes = axes_of(figure, "longest path (layers or steps)")
    lengths = [2**power for power in range(3, 13)]
    for index, kind in enumerate((SELF, RECURRENT, CONVOLUTION, RESTRICTED)):
        axes.plot(lengths, [kind.path(n) for n in lengths], label=kind.name, **style(index))
    axes.legend(frameon=False, fontsize=8)


def draw_times(figure: Any, seconds: dict[str, list[float]]) -> None:
    axes = axes_of(figure, "time (ms)")
    for index, kind in enumerate(KINDS):
        axes.plot(TIMED, [1000 * value for value in seconds[kind.name]], label=kind.name, **style(index))
    axes.axvline(TIMED_SIZE, color="0.4", linestyle=":", linewidth=1)
    axes.legend(frameon=False, fontsize=8)


EXPERIMENT = Experiment(
    title="Table 1: what a layer of each kind costs",
    source="the paper, section 4 and Table 1; notes 000 and 001 (the path between two words)",
    claim="A self-attention layer takes O(n² d) operations, O(1) steps in a row and a path of O(1) between any two "
    "words; a recurrent one O(n d²), O(n), O(n); a convolution O(k n d²), O(1), O(log_k n). Self-attention has fewer "
    "operations than recurrence when n is smaller than d.",
    run=run,
)
