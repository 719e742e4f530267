"""The positional encoding of section 3.5 and what is said of it: rows, norms, distances, shifts, wavelengths."""

import math
from typing import Any

import torch
from torch import Tensor

from dragoman.model.positions import sinusoids
from dragoman_lab.drawing import HeatMap, Panel, heat_maps, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment

LENGTH, SIZE = 512, 512
SHIFTS = (1, 2, 5, 10, 100)


def sinusoid_table(length: int, size: int) -> Tensor:
    """Return the sinusoids (length, size) that the model adds to embeddings, turned into double precision."""
    return sinusoids(length, size).double()


def smallest_and_largest(x: Tensor) -> tuple[float, float]:
    """Return the smallest and the largest number of x."""
    return float(x.min()), float(x.max())


def smallest_distance(table: Tensor) -> float:
    """Return the smallest distance of two rows of the table (T, M)."""
    return float(torch.pdist(table).min())


def distances(table: Tensor, apart: int) -> Tensor:
    """Return the distances (T - apart,) from each row of the table (T, M) to the one that many later."""
    return (table[apart:] - table[:-apart]).norm(dim=-1)


def products(table: Tensor) -> list[tuple[float, float]]:
    """Return the lowest and the highest inner product of two rows of the table (T, M), for each offset between them
    from 0 to T - 1.
    """
    by_rows = table @ table.T
    return [smallest_and_largest(by_rows.diagonal(apart)) for apart in range(len(table))]


def rotation(steps: int, size: int) -> Tensor:
    """Return the matrix R (size, size) with PE(t + steps) = R PE(t): it turns each pair (sin, cos) by an angle of its
    own.
    """
    angles = [steps / 10000 ** (2 * pair / size) for pair in range(size // 2)]
    blocks = [[[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]] for a in angles]
    return torch.block_diag(*torch.tensor(blocks, dtype=torch.float64))


def shift_error(table: Tensor, steps: int) -> float:
    """Return the largest absolute difference between the rows of the table (T, M) turned by `rotation` and the rows
    `steps` later.
    """
    return float((table[:-steps] @ rotation(steps, table.size(1)).T - table[steps:]).abs().max())


def wavelengths(table: Tensor) -> Tensor:
    """Return the period (M / 2,), in positions, of each pair (sin, cos) of the table (T, M), from how far it turns
    between positions 0 and 1.
    """
    sin, cos = table[1].unflatten(-1, (-1, 2)).unbind(-1)
    return 2 * math.pi / torch.atan2(sin, cos)


def claims(
    nearest: tuple[float, float],  # distances of two of 50 positions, by all numbers and by one
    norms: Tensor,  # of the rows
    largest: float,  # absolute number of the table
    apart: dict[int, tuple[float, float]],  # lowest and highest distance by offset
    products: list[float],  # from offset 0 on
    error: float,  # of the rotation
    waves: Tensor,  # of `wavelengths`
) -> Claims:
    """Return each claim and whether it holds."""
    rise = next((i for i in range(1, len(products)) if products[i] > products[i - 1]), 0)
    rows, column = nearest
    shortest, longest = smallest_and_largest(norms)
    ratios = waves[1:] / waves[:-1]
    least, most = smallest_and_largest(ratios)
    widest = max(high - low for low, high in apart.values())
    distances = ", ".join(f"{offset} apart: {low:.4f} to {high:.4f}" for offset, (low, high) in apart.items())
    return {
        f"The two nearest of 50 rows of 256 numbers are {rows:.4f} apart, while single numbers of two positions differ "
        f"by as little as {column:.1g}: [rows are unique although single numbers are not|rows are no more unique than "
        "single numbers].": rows > 100 * column,
        f"Of 512 rows of 512 numbers, [all|not all] have the same norm and lie within [-1, 1]: norms {shortest:.4f} to "
        f"{longest:.4f} (the root of 256 is 16), largest number "
        f"{largest:.4f}.": longest - shortest < 1e-4 and largest <= 1,
        "The distance between two positions depends [only on their offset|on where they are, too] "
        f"({distances}).": widest < 1e-4,
        "The product of two positions falls [with every step between them|as they move apart, but not steadily: it is "
        f"{products[rise - 1]:.2f} one step before offset {rise} and {products[rise]:.2f} there].": not rise,
        "For each shift by 1, 2, 5, 10 and 100 positions, there [is|is not] one matrix that moves every row by that "
        f"shift: it rotates pairs of numbers, and the result is off by at most {error:.1g}.": error < 1e-5,
        f"Wavelengths grow [by the same factor|not by the same factor] ({float(ratios.mean()):.4f}) from one pair of "
        f"dimensions to the next, and do not change along the positions: they go from {float(waves[0]):.4f} (2 pi) to "
        f"{float(waves[-1]):,.0f}; the next would be 10000 times 2 pi, 62,832.": least > 1 and most - least < 1e-2,
    }


@experiment(
    "The positional encoding",
    "section 3.5",
    "Sines at even dimensions, cosines at odd ones: every row is unique, all numbers are within [-1, 1], the distance "
    "between two positions depends only on their offset, a shift is a linear map, and wavelengths run from 2 pi to "
    "10000 times 2 pi.",
)
def run(effort: Effort) -> Findings:
    """Measure rows, distances, products, shifts and wavelengths of the table. `effort` is not used: nothing
    is random.
    """
    little, picture, table = sinusoid_table(4, 4), sinusoid_table(50, 256), sinusoid_table(LENGTH, SIZE)
    by_offset, waves = products(table), wavelengths(table)
    apart = {shift: smallest_and_largest(distances(table, shift)) for shift in SHIFTS}
    errors = {shift: shift_error(table, shift) for shift in SHIFTS}
    nearest, low = (smallest_distance(picture), smallest_distance(picture[:, 1:2])), [low for low, _ in by_offset]
    offsets, gap = range(LENGTH), "positions between them"
    heat_map = HeatMap(picture, x="dimension (even: sine, odd: cosine)", y="position", most=1, signed=True)
    lengths = {"": (range(0, SIZE, 2), waves)}
    return Findings(
        f"The table that the model adds to its embeddings, as the model computes it: {LENGTH} positions of {SIZE} "
        "numbers, and 50 of 256 for the picture. Nothing is random here.",
        claims(nearest, table.norm(dim=-1), float(table.abs().max()), apart, low, max(errors.values()), waves),
        {
            "Four places of four numbers": Table(
                "place | sin(p) | cos(p) | sin(p/100) | cos(p/100)",
                [(position, *row.tolist()) for position, row in enumerate(little)],
            ),
            "Place 1 of 256 numbers, its first six": Table(
                "dimension | value", [(i, float(value)) for i, value in enumerate(picture[1, :6])]
            ),
            "Nearest rows, and norms": Table(
                "places | numbers | nearest two rows | shortest row | longest row",
                [(*t.shape, smallest_distance(t), *smallest_and_largest(t.norm(dim=-1))) for t in (picture, table)],
            ),
            "By offset: distances, products, and the error of the rotation": Table(
                "offset | distance from | to | product from | to | error of the rotation",
                [(shift, *apart[shift], *by_offset[shift], errors[shift]) for shift in SHIFTS],
            ),
            "Products of the first offsets": Table(
                "offset | lowest | highest", [(offset, *both) for offset, both in enumerate(by_offset[:8])]
            ),
            "Wavelengths": Table(
                "dimensions | measured | 2 pi 10000^(2i/d)",
                [
                    (f"{2 * i}, {2 * i + 1}", float(waves[i]), 2 * math.pi * 10000 ** (2 * i / SIZE))
                    for i in (0, 1, 2, 64, 128, 192, 254, 255)
                ],
            ),
        },
        {
            "heat-map": Figure(
                "50 positions (rows) of 256 dimensions: fast waves on the left, slow ones on the right.",
                heat_maps(heat_map, colorbar="value"),
            ),
            "curves": Figure(
                "Single dimensions along the positions: sines and cosines, whose waves are longer in later dimensions.",
                lines(*(wave_panel(picture, first) for first in (0, 32, 64)), rows=3, sharex=True, legend="each"),
                (8.0, 5.0),
            ),
            "offsets": Figure(
                f"Product (left) and distance (right) of two of {LENGTH} rows of {SIZE} numbers, by their offset.",
                lines(
                    Panel({"": (offsets, low)}, gap, "product of two rows"),
                    Panel({"": (offsets, (table - table[0]).norm(dim=-1))}, gap, "distance of two rows"),
                ),
            ),
            "wavelengths": Figure(
                f"How many positions a full wave takes, by dimension, for {SIZE} dimensions (logarithmic).",
                lines(
                    Panel(lengths, "dimension", "wavelength (positions)", log="y", ylim=(4, 100_000), also=draw_bounds)
                ),
            ),
        },
    )


def wave_panel(table: Tensor, first: int) -> Panel:
    """Return the panel of two neighbouring columns of the table (T, M) by position: the sine in column `first`, and the
    cosine after it.
    """
    curves = {
        f"{name}, dimension {first + i}": (range(len(table)), table[:, first + i])
        for i, name in enumerate(("sine", "cosine"))
    }
    return Panel(curves, "position" if first == 64 else "", "value", ylim=(-1.1, 1.1))


def draw_bounds(axes: Any) -> None:
    """Draw dotted lines at 2 pi and at 10000 times 2 pi on matplotlib axes, with labels."""
    for times, label in ((1, "2 pi"), (10000, "10000 times 2 pi")):
        axes.axhline(2 * math.pi * times, color="0.5", linewidth=0.8, linestyle=":")
        axes.annotate(label, (0, 2 * math.pi * times), xytext=(60, -9), textcoords="offset points", fontsize=8)
