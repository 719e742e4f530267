"""Table 1: operations, steps in a row and the longest path of one layer, counted, and the time that it takes."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from dragoman.model.attention import explicit_attention
from dragoman.model.recurrent import PlainRNN
from dragoman_lab.drawing import Panel, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.long_range import SelfAttention
from dragoman_lab.parallel import longest_chain
from dragoman_lab.restricted import attend_to_neighbours, layers_by_formula

Run = Callable[[Tensor], Tensor]  # (1, n, d) -> (1, n, d)

WIDTH, RADIUS = 3, 8  # k of the convolution; positions to each side: the r of Table 1 is then 17
WINDOW = 2 * RADIUS + 1
TIMED_SIZE, TIMED = 64, (16, 32, 64, 128, 256, 512, 1024)  # d and n of what is timed
CHAINED = (16, 32, 64)  # n of which the steps in a row are counted


@dataclass(frozen=True)
class Kind:
    """A row of Table 1, and a layer that is one."""

    name: str
    formula: str
    operations: Callable[[int, int], int]  # of n and d, without a constant
    path: Callable[[int], int]  # the longest from a position to a later one, of n
    build: Callable[[int], Run]  # of d


def make_attention(size: int) -> Run:
    """Return self-attention without matrices: each position is its own query, key and value. `size` is not used."""
    return lambda x: explicit_attention(x, x, x)


def make_attention_with_matrices(size: int) -> SelfAttention:
    """Return multi-head attention of a sentence to itself with one head and its four projections, (size, size) each."""
    layer = SelfAttention(size, heads=1)
    layer.attention.kernel = explicit_attention
    return layer


def make_recurrence(size: int) -> Run:
    """Return a plain RNN with inputs and states of `size` numbers, which starts from zeros."""
    layer = PlainRNN(size, size, "tanh")
    return lambda x: layer(x, torch.ones_like(x[..., 0], dtype=torch.bool), x.new_zeros(1, size))[0]


def make_convolution(size: int) -> Run:
    """Return a convolution over positions of width WIDTH, from `size` to `size` channels, padded to keep the length."""
    layer = nn.Conv1d(size, size, WIDTH, padding=WIDTH // 2)
    return lambda x: layer(x.transpose(1, 2)).transpose(1, 2)


def make_separable_convolution(size: int) -> Run:
    """Return a convolution of each channel by itself, of width WIDTH, and then one over channels, of width 1."""
    each = nn.Conv1d(size, size, WIDTH, padding=WIDTH // 2, groups=size)
    across = nn.Conv1d(size, size, 1)
    return lambda x: across(each(x.transpose(1, 2))).transpose(1, 2)


def make_nearby_attention(size: int) -> Run:
    """Return self-attention without matrices over the RADIUS positions on each side. `size` is not used."""
    return lambda x: attend_to_neighbours(x, x, x, RADIUS)


def count_dilated_convolutions(length: int) -> int:
    """Count the layers of width WIDTH until the last position depends on the first, if each layer's gaps are WIDTH
    times as wide as those of the layer below; at least one.
    """
    layers, reach = 0, 1
    while reach < length:
        layers, reach = layers + 1, reach * WIDTH
    return max(1, layers)


SELF = Kind("self-attention", "n² d", lambda n, d: n * n * d, lambda n: 1, make_attention)
RECURRENT = Kind("recurrent", "n d²", lambda n, d: n * d * d, lambda n: n, make_recurrence)
CONVOLUTION = Kind(
    "convolution", "k n d²", lambda n, d: WIDTH * n * d * d, count_dilated_convolutions, make_convolution
)
SEPARABLE = Kind(
    "separable convolution",
    "(k n d + n d²)",
    lambda n, d: WIDTH * n * d + n * d * d,
    count_dilated_convolutions,
    make_separable_convolution,
)
RESTRICTED = Kind(
    "restricted self-attention",
    "r n d",
    lambda n, d: WINDOW * n * d,
    lambda n: layers_by_formula(n, RADIUS),
    make_nearby_attention,
)
WHOLE = Kind(
    "self-attention and its four matrices",
    "(n² d + 2 n d²)",
    lambda n, d: n * n * d + 2 * n * d * d,
    lambda n: 1,
    make_attention_with_matrices,
)
KINDS = (SELF, RECURRENT, CONVOLUTION, SEPARABLE, RESTRICTED, WHOLE)


def crossing_length(size: int) -> int:
    """Return the smallest length n at which n² d operations of self-attention are at least the n d² of recurrence; d is
    `size`.
    """
    return next(n for n in range(1, 2 * size + 1) if SELF.operations(n, size) >= RECURRENT.operations(n, size))


@torch.no_grad()
def count_operations(kind: Kind, length: int, size: int) -> int:
    """Run one layer on a random sentence and return the floating-point operations of its matrix products: a
    multiplication and an addition count as two.
    """
    run, x = kind.build(size), torch.randn(1, length, size)
    with FlopCounterMode(display=False) as counter:
        run(x)
    return counter.get_total_flops()


def count_steps_in_a_row(kind: Kind, length: int, size: int = 8) -> int:
    """Return the length of the longest chain of operations of one layer, each of which waits for the one before: what
    no parallel machine can shorten.
    """
    return longest_chain(kind.build(size)(torch.randn(1, length, size, requires_grad=True)), lambda node: 1)


def steps_per_position(kind: Kind) -> float:
    """Return by how many operations the longest chain of a layer grows with each further position, from the first to
    the last of CHAINED.
    """
    short, *_, long = CHAINED
    return (count_steps_in_a_row(kind, long) - count_steps_in_a_row(kind, short)) / (long - short)


@torch.no_grad()
def measure_times(rounds: int) -> dict[str, list[float]]:
    """Return the seconds of a forward pass by the name of the kind, one for each length of TIMED: the fastest of
    `rounds` in which all kinds take turns, after a first round that is not counted.
    """
    fastest = {kind.name: [math.inf] * len(TIMED) for kind in KINDS}
    runs = {kind.name: kind.build(TIMED_SIZE) for kind in KINDS}
    for turn in range(rounds + 1):
        for index, length in enumerate(TIMED):
            x = torch.randn(1, length, TIMED_SIZE)
            for name, run in runs.items():
                began = time.perf_counter()
                run(x)
                if turn:  # the first round warms up
                    fastest[name][index] = min(fastest[name][index], time.perf_counter() - began)
    return fastest


def claims(
    ratios: dict[Kind, list[float]],  # counted operations by the formulas' ones, at several sizes
    steps: dict[Kind, float],  # in a row, for each further word
    crossings: dict[int, int],  # by d, the n from which self-attention has more operations than recurrence
    seconds: dict[str, list[float]],  # by the name of the kind, at each length of TIMED
) -> Claims:
    """Return each claim and whether it holds."""
    factor = {name: row[-1] / row[-2] for name, row in seconds.items()}  # over the last doubling of the length
    pairs = zip(TIMED, seconds[SELF.name], seconds[RECURRENT.name], strict=True)
    slower_from = min((n for n, attention, recurrence in pairs if attention > recurrence), default=None)
    constant = all(max(row) == min(row) for row in ratios.values())
    multiples = ", ".join(f"{row[0]:g} × {kind.formula}" for kind, row in ratios.items())
    waits = steps[RECURRENT]
    others = max(by for kind, by in steps.items() if kind is not RECURRENT)
    equal = all(size == n for size, n in crossings.items())
    crossing_points = ", ".join(f"{n} for d = {size}" for size, n in crossings.items())
    later = f"longer than the recurrent layer from n = {slower_from} on"
    return {
        "At several sizes n and d, the counted operations are [always|not always] the same multiple of the formula: "
        f"{multiples}.": constant,
        "[Only the recurrent layer has|Not only the recurrent layer has] to wait for each word: one more word adds "
        f"{waits:g} steps in a row to it, and {others:g} to any other layer.": waits > 0 == others,
        "By the formulas, self-attention has as many operations as recurrence [at n = d|not at n = d]: at n = "
        f"{crossing_points}.": equal,
        f"From n = 512 to 1024 the time of self-attention grows by a factor of {factor['self-attention']:.1f}, that of "
        f"the recurrent layer by {factor['recurrent']:.1f}, convolution by {factor['convolution']:.1f}, restricted "
        f"self-attention by {factor['restricted self-attention']:.1f}: the n² [shows|does not stand out at these "
        "lengths].": factor[SELF.name] > 1.25 * max(factor[kind.name] for kind in (RECURRENT, CONVOLUTION, RESTRICTED)),
        "At d = 64 the times [cross where the operations do|do not cross where the operations do]: self-attention "
        f"takes {later if slower_from else 'less time everywhere'}; the operations cross at n = "
        f"{crossing_length(TIMED_SIZE)}.": slower_from is not None and TIMED_SIZE / 2 <= slower_from <= TIMED_SIZE * 2,
    }


@experiment(
    "Table 1: what a layer of each kind costs",
    "section 4 and Table 1",
    "A self-attention layer takes O(n² d) operations, O(1) steps in a row and a path of O(1) between any two "
    "words; a recurrent one O(n d²), O(n), O(n); a convolution O(k n d²), O(1), O(log_k n), or O(k n d + n d²) if it "
    "is separable. Self-attention has fewer operations than recurrence when n is smaller than d.",
)
def run(effort: Effort) -> Findings:
    """Count operations and steps in a row of each kind of layer, and time them."""
    torch.manual_seed(effort.seeds[0])
    sizes = [(n, d) for n in (16, 64, 100) for d in (32, 64)]
    ratios = {kind: [count_operations(kind, n, d) / kind.operations(n, d) for n, d in sizes] for kind in KINDS}
    grown = {kind: steps_per_position(kind) for kind in KINDS}
    crossings = {size: crossing_length(size) for size in (64, 128, 256, 512, 1024)}
    seconds = measure_times(effort.scale(20))
    lengths = [2**power for power in range(3, 13)]
    operations = {
        f"{kind.name}: {kind.formula}": (lengths, [kind.operations(n, 512) for n in lengths]) for kind in KINDS
    }
    paths = {kind.name: (lengths, [kind.path(n) for n in lengths]) for kind in KINDS[:-1]}
    timed = {name: (TIMED, [1000 * value for value in row]) for name, row in seconds.items()}
    return Findings(
        f"One layer of each kind, forward, for one sentence; convolution of width k = {WIDTH}, restricted attention to "
        f"{RADIUS} positions on each side (r = {WINDOW}). Operations are counted in the layers while they run; steps "
        f"in a row are the longest chain in their graphs; times are the fastest of {effort.scale(20)} rounds at d = "
        f"{TIMED_SIZE}.",
        claims(ratios, grown, crossings, seconds),
        {
            "Table 1, formulas and counts": Table(
                "layer | operations | counted, as a multiple | steps in a row per word | path, n = 64 | n = 1024",
                [(k.name, k.formula, ratios[k][0], grown[k], k.path(64), k.path(1024)) for k in KINDS],
            ),
            f"Milliseconds of one layer, d = {TIMED_SIZE}": Table(
                " | ".join(["n", *timed]), [*zip(TIMED, *(ms for _, ms in timed.values()), strict=True)]
            ),
        },
        {
            "operations": Figure(
                "Operations of one layer by the formulas, d = 512. The dotted line is n = d.",
                lines(length_panel(operations, "operations (without a constant)", 512)),
            ),
            "path": Figure(
                "The longest path from a word to a later one, by length; convolutions look back, with growing gaps.",
                lines(length_panel(paths, "longest path (layers or steps)")),
            ),
            "times": Figure(
                f"Measured milliseconds of one layer by length, d = {TIMED_SIZE} (dotted line: n = d).",
                lines(length_panel(timed, "time (ms)", TIMED_SIZE)),
            ),
        },
    )


def length_panel(curves: Any, label: str, size: int | None = None) -> Panel:
    """Return a panel of curves by length, both axes logarithmic. label: of the y axis; size: a length to mark with a
    dotted line.
    """
    return Panel(curves, "length n (positions)", label, log="xy", ticks=next(iter(curves.values()))[0], at=size)
