"""The positional encoding of section 3.5 and what is said of it: rows, norms, distances, shifts, wavelengths.

Shapes: T positions, M d_model.
"""

import math
from typing import Any

import torch
from torch import Tensor

from dragoman.lab.drawing import HeatMap, Panel, heat_maps, lines
from dragoman.lab.experiment import Claim, Effort, Experiment, Figure, Findings, Results, Table
from dragoman.model.positions import sinusoids

LENGTH, SIZE = 512, 512
SHIFTS = (1, 2, 5, 10, 100)


def encoding(length: int, size: int) -> Tensor:
    """Return the table (T, M) that the model adds, in double precision from here on."""
    return sinusoids(length, size).double()


def closest(table: Tensor) -> float:
    """Return the smallest distance of two rows."""
    return float(torch.pdist(table).min())


def distances(table: Tensor, apart: int) -> Tensor:
    """Return the distances (T - apart,) from each position to the one that many later."""
    return (table[apart:] - table[:-apart]).norm(dim=-1)


def products(table: Tensor) -> list[tuple[float, float]]:
    """Return the lowest and the highest product of two rows, for each offset from 0 to T - 1."""
    every = table @ table.T
    return [(float(d.min()), float(d.max())) for d in (every.diagonal(apart) for apart in range(len(table)))]


def rotation(steps: int, size: int) -> Tensor:
    """Return R (M, M) with PE(t + steps) = R PE(t): it turns each pair (sin, cos) by an angle of its own."""
    angles = [steps / 10000 ** (2 * pair / size) for pair in range(size // 2)]
    blocks = [[[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]] for a in angles]
    return torch.block_diag(*torch.tensor(blocks, dtype=torch.float64))


def shift_error(table: Tensor, steps: int) -> float:
    """Return the largest difference between the rows `steps` later and the rows turned."""
    return float((table[:-steps] @ rotation(steps, table.size(1)).T - table[steps:]).abs().max())


def wavelengths(table: Tensor) -> Tensor:
    """Return the period (M / 2,) of each pair (sin, cos), from how far it turns between positions 0 and 1."""
    sin, cos = table[1].unflatten(-1, (-1, 2)).unbind(-1)
    return 2 * math.pi / torch.atan2(sin, cos)


def results(
    rows: float,
    column: float,
    norms: Tensor,
    largest: float,
    apart: dict[int, tuple[float, float]],
    by_offset: list[float],
    errors: dict[int, float],
    waves: Tensor,
) -> Results:
    """Return the numbers that the claims are about.

    rows, column: nearest two of 50 positions, by all numbers and by one; apart: lowest and highest distance by
    offset; by_offset: products from offset 0 on; errors: of the rotation, by offset.
    """
    rise = next((i for i in range(1, len(by_offset)) if by_offset[i] > by_offset[i - 1]), None)
    ratios = waves[1:] / waves[:-1]
    return Results(
        rows=rows,
        column=column,
        norms=(float(norms.min()), float(norms.max())),
        largest=largest,
        widest=max(high - low for low, high in apart.values()),
        apart=", ".join(f"{offset} apart: {low:.4f} to {high:.4f}" for offset, (low, high) in apart.items()),
        rise=rise,
        risen=by_offset[rise or 0],
        before=by_offset[(rise or 1) - 1],
        error=max(errors.values()),
        ratios=(float(ratios.min()), float(ratios.max())),
        ratio=float(ratios.mean()),
        waves=(float(waves[0]), float(waves[-1])),
    )


CLAIMS = (
    Claim(
        "The two nearest of 50 rows of 256 numbers are {rows:.4f} apart, while two positions share a single number up "
        "to {column:.1g}: rows are [unique although numbers are not|no more unique than numbers].",
        holds=lambda r: r.rows > 100 * r.column,
    ),
    Claim(
        "Of 512 rows of 512 numbers [all|not all] are equally long and within [-1, 1]: norms {norms[0]:.4f} to "
        "{norms[1]:.4f} (the root of 256 is 16), largest number {largest:.4f}.",
        holds=lambda r: r.norms[1] - r.norms[0] < 1e-4 and r.largest <= 1,
    ),
    Claim(
        "The distance of two positions depends on [their offset alone|where they are, too] ({apart}).",
        holds=lambda r: r.widest < 1e-4,
    ),
    Claim(
        "The product of two positions falls [with every further step between them|as they move apart, but not "
        "steadily: at offset {rise} it is {risen:.2f}, one step before {before:.2f}].",
        holds=lambda r: r.rise is None,
    ),
    Claim(
        "One matrix, the same for all positions, [moves|does not move] a row by 1, 2, 5, 10, 100 positions: it turns "
        "pairs of numbers, and misses by at most {error:.1g}.",
        holds=lambda r: r.error < 1e-5,
    ),
    Claim(
        "Wavelengths [grow|do not grow] by the same factor ({ratio:.4f}) from one pair of dimensions to the next, not "
        "along the positions: from {waves[0]:.4f} (2 pi) to {waves[1]:,.0f}; 10000 times 2 pi, 62,832, would be next.",
        holds=lambda r: r.ratios[0] > 1 and r.ratios[1] - r.ratios[0] < 1e-2,
    ),
)


def run(effort: Effort) -> Findings:
    little, picture, table = encoding(4, 4), encoding(50, 256), encoding(LENGTH, SIZE)
    by_offset, waves = products(table), wavelengths(table)
    apart = {shift: (float(distances(table, shift).min()), float(distances(table, shift).max())) for shift in SHIFTS}
    errors = {shift: shift_error(table, shift) for shift in SHIFTS}
    low, norms = [low for low, _ in by_offset], table.norm(dim=-1)
    offsets, gap = range(LENGTH), "positions between them"
    return Findings(
        f"The table that the model adds to its embeddings, as the model computes it: {LENGTH} positions of {SIZE} "
        "numbers, and 50 of 256 for the picture. Nothing is random here.",
        results(closest(picture), closest(picture[:, 1:2]), norms, float(table.abs().max()), apart, low, errors, waves),
        [
            Table(
                "Four places of four numbers",
                "place | sin(p) | cos(p) | sin(p/100) | cos(p/100)",
                [(position, *row.tolist()) for position, row in enumerate(little)],
            ),
            Table(
                "Place 1 of 256 numbers, its first six",
                "dimension | value",
                [(i, float(value)) for i, value in enumerate(picture[1, :6])],
            ),
            Table(
                "Nearest rows, and norms",
                "places | numbers | nearest two rows | shortest row | longest row",
                [
                    (*t.shape, closest(t), float(t.norm(dim=-1).min()), float(t.norm(dim=-1).max()))
                    for t in (picture, table)
                ],
            ),
            Table(
                "By offset: distances, products, and what the turned row misses",
                "offset | distance from | to | product from | to | error of the rotation",
                [(shift, *apart[shift], *by_offset[shift], errors[shift]) for shift in SHIFTS],
            ),
            Table(
                "Products of the first offsets",
                "offset | lowest | highest",
                [(offset, *both) for offset, both in enumerate(by_offset[:8])],
            ),
            Table(
                "Wavelengths",
                "dimensions | measured | 2 pi 10000^(2i/d)",
                [
                    (f"{2 * i}, {2 * i + 1}", float(waves[i]), 2 * math.pi * 10000 ** (2 * i / SIZE))
                    for i in (0, 1, 2, 64, 128, 192, 254, 255)
                ],
            ),
        ],
        [
            Figure(
                "heat-map",
                "50 positions of 256 dimensions. Each row is the vector of a position; on the left it changes from one "
                "to the next, on the right hardly at all.",
                heat_maps(
                    HeatMap(picture, x="dimension (even: sine, odd: cosine)", y="position", most=1, signed=True),
                    colorbar="value",
                ),
            ),
            Figure(
                "curves",
                "Single dimensions along the positions: a sine and a cosine of the same wavelength, longer for later "
                "dimensions.",
                lines(*(wave_panel(picture, first) for first in (0, 32, 64)), rows=3, sharex=True, legend="each"),
                (8.0, 5.0),
            ),
            Figure(
                "offsets",
                f"Product (left) and distance (right) of two of {LENGTH} rows of {SIZE} numbers, by the positions "
                "between them; where the two stand makes no difference.",
                lines(
                    Panel({"": (offsets, low)}, gap, "product of two rows"),
                    Panel({"": (offsets, (table - table[0]).norm(dim=-1))}, gap, "distance of two rows"),
                ),
                (9.0, 3.6),
            ),
            Figure(
                "wavelengths",
                f"How many positions a dimension needs to come round, for {SIZE} dimensions (logarithmic).",
                lines(
                    Panel(
                        {"": (range(0, SIZE, 2), waves)},
                        "dimension",
                        "wavelength (positions)",
                        log="y",
                        ylim=(4, 100_000),
                        also=draw_bounds,
                    )
                ),
                (6.0, 3.6),
            ),
        ],
    )


def wave_panel(table: Tensor, first: int) -> Panel:
    curves = {
        f"{name}, dimension {first + i}": (range(len(table)), table[:, first + i])
        for i, name in enumerate(("sine", "cosine"))
    }
    return Panel(curves, "position" if first == 64 else "", "value", ylim=(-1.1, 1.1))


def draw_bounds(axes: Any) -> None:
    for times, label in ((1, "2 pi"), (10000, "10000 times 2 pi")):
        axes.axhline(2 * math.pi * times, color="0.5", linewidth=0.8, linestyle=":")
        axes.annotate(label, (0, 2 * math.pi * times), xytext=(60, -9), textcoords="offset points", fontsize=8)


EXPERIMENT = Experiment(
    title="The positional encoding",
    source="section 3.5",
    thesis="Sines at even dimensions, cosines at odd ones: every row is unique, all are within [-1, 1], positions "
    "equally far apart are at the same distance, a shift is a linear map, and wavelengths run from 2 pi to 10000 times "
    "2 pi.",
    claims=CLAIMS,
    run=run,
)
