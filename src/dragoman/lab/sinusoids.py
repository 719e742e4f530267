"""The positional encoding of section 3.5 and what is said of it: rows, norms, distances, shifts, wavelengths.

Shapes: T places, M d_model.
"""

import math
from typing import Any

import torch
from torch import Tensor

from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.model.positions import sinusoids

LENGTH, SIZE = 512, 512
SHIFTS = (1, 2, 5, 10, 100)


def encoding(length: int, size: int) -> Tensor:
    """The table (T, M) that the model adds, in double precision from here on."""
    return sinusoids(length, size).double()


def closest(table: Tensor) -> float:
    """The smallest distance of two rows."""
    return float(torch.pdist(table).min())


def distances(table: Tensor, apart: int) -> Tensor:
    """(T - apart,): from each place to the one that many places later."""
    return (table[apart:] - table[:-apart]).norm(dim=-1)


def products(table: Tensor) -> list[tuple[float, float]]:
    """The lowest and the highest product of two rows, for each offset from 0 to T - 1."""
    every = table @ table.T
    return [(float(d.min()), float(d.max())) for d in (every.diagonal(apart) for apart in range(len(table)))]


def rotation(steps: int, size: int) -> Tensor:
    """The matrix R (M, M) with PE(t + steps) = R PE(t): it turns each pair (sin, cos) by an angle of its own."""
    angles = [steps / 10000 ** (2 * pair / size) for pair in range(size // 2)]
    blocks = [[[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]] for a in angles]
    return torch.block_diag(*torch.tensor(blocks, dtype=torch.float64))


def shift_error(table: Tensor, steps: int) -> float:
    """The largest difference between the rows `steps` later and the rows turned."""
    return float((table[:-steps] @ rotation(steps, table.size(1)).T - table[steps:]).abs().max())


def wavelengths(table: Tensor) -> Tensor:
    """(M / 2,): places until a pair (sin, cos) has come round, from how far it turns between places 0 and 1."""
    sin, cos = table[1].unflatten(-1, (-1, 2)).unbind(-1)
    return 2 * math.pi / torch.atan2(sin, cos)


def judge_rows(rows: float, column: float) -> Verdict:
    seen = rows > 100 * column
    return Verdict(
        seen,
        f"The two nearest of 50 rows of 256 numbers are {rows:.4f} apart, while two places share a single number up to "
        f"{column:.1g}: rows are {'unique although numbers are not' if seen else 'no more unique than numbers'}.",
    )


def judge_norms(norms: Tensor, largest: float) -> Verdict:
    lowest, highest = float(norms.min()), float(norms.max())
    seen = highest - lowest < 1e-4 and largest <= 1
    return Verdict(
        seen,
        f"Of {len(norms)} rows of {SIZE} numbers {'all' if seen else 'not all'} are equally long and within "
        f"[-1, 1]: norms {lowest:.4f} to {highest:.4f} (root of {SIZE}/2: {math.sqrt(SIZE / 2):.4f}), largest number "
        f"{largest:.4f}.",
    )


def judge_distances(by_offset: dict[int, tuple[float, float]]) -> Verdict:
    """by_offset: the smallest and the largest distance of two places so far apart."""
    seen = all(highest - lowest < 1e-4 for lowest, highest in by_offset.values())
    told = ", ".join(f"{apart} apart: {low:.4f} to {high:.4f}" for apart, (low, high) in by_offset.items())
    return Verdict(
        seen,
        f"The distance of two places depends on {'their offset alone' if seen else 'where they are, too'} ({told}).",
    )


def judge_order(by_offset: list[float]) -> Verdict:
    """by_offset: the product of two places, from offset 0 on."""
    rise = next((apart for apart in range(1, len(by_offset)) if by_offset[apart] > by_offset[apart - 1]), None)
    return Verdict(
        rise is None,
        "The product of two places falls with every further step between them."
        if rise is None
        else f"The product of two places falls as they move apart, but not steadily: at offset {rise} it is "
        f"{by_offset[rise]:.2f}, one step before {by_offset[rise - 1]:.2f}.",
    )


def judge_shifts(errors: dict[int, float]) -> Verdict:
    seen = max(errors.values()) < 1e-5
    return Verdict(
        seen,
        f"One matrix, the same for all places, {'moves' if seen else 'does not move'} a row by "
        f"{', '.join(map(str, errors))} places: it turns pairs of numbers, and misses by at most "
        f"{max(errors.values()):.1g}.",
    )


def judge_wavelengths(waves: Tensor) -> Verdict:
    ratios = waves[1:] / waves[:-1]
    seen = bool((ratios > 1).all()) and float(ratios.max() - ratios.min()) < 1e-2
    return Verdict(
        seen,
        f"Wavelengths {'grow' if seen else 'do not grow'} by the same factor ({float(ratios.mean()):.4f}) from one "
        f"pair of dimensions to the next, not along the places: from {float(waves[0]):.4f} (2 pi) to "
        f"{float(waves[-1]):,.0f}; 10000 times 2 pi, {20000 * math.pi:,.0f}, would be the next.",
    )


def draw_heat_map(figure: Any, table: Tensor) -> None:
    axes = figure.subplots()
    image = axes.imshow(table.numpy(), cmap="PuOr", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_xlabel("dimension (even: sine, odd: cosine)")
    axes.set_ylabel("place")
    figure.colorbar(image, ax=axes, label="value")


def draw_curves(figure: Any, table: Tensor) -> None:
    pairs = [0, table.size(1) // 8, table.size(1) // 4]
    for axes, first in zip(figure.subplots(len(pairs), 1, sharex=True), pairs, strict=True):
        for index, name in enumerate(("sine", "cosine")):
            axes.plot(table[:, first + index], label=f"{name}, dimension {first + index}", markevery=5, **style(index))
        axes.set_ylim(-1.1, 1.1)
        axes.set_ylabel("value")
        axes.legend(loc="upper right", fontsize=8)
    axes.set_xlabel("place")


def draw_offsets(figure: Any, by_offset: list[float], table: Tensor) -> None:
    left, right = figure.subplots(1, 2)
    left.plot(by_offset, **(style(0) | {"marker": ""}))
    left.set_ylabel("product of two rows")
    right.plot((table - table[0]).norm(dim=-1), **(style(1) | {"marker": ""}))
    right.set_ylabel("distance of two rows")
    for axes in (left, right):
        axes.set_xlabel("places between them")
        axes.grid(color="0.9", linewidth=0.6)


def draw_wavelengths(figure: Any, waves: Tensor) -> None:
    axes = figure.subplots()
    axes.semilogy(range(0, 2 * len(waves), 2), waves, markevery=16, **style(0))
    for times, label in ((1, "2 pi"), (10000, "10000 times 2 pi")):
        axes.axhline(2 * math.pi * times, color="0.5", linewidth=0.8, linestyle=":")
        axes.annotate(label, (0, 2 * math.pi * times), xytext=(60, -9), textcoords="offset points", fontsize=8)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(4, 100_000)
    axes.set_xlabel("dimension")
    axes.set_ylabel("wavelength (places)")


def run(effort: Effort) -> Findings:
    little, picture, table = encoding(4, 4), encoding(50, 256), encoding(LENGTH, SIZE)
    by_offset, waves = products(table), wavelengths(table)
    apart = {shift: (float(distances(table, shift).min()), float(distances(table, shift).max())) for shift in SHIFTS}
    errors = {shift: shift_error(table, shift) for shift in SHIFTS}
    column = closest(picture[:, 1:2])
    return Findings(
        setting=f"The table that the model adds to its embeddings, as the model computes it: {LENGTH} places of {SIZE} "
        "numbers, and 50 of 256 for the picture. Nothing is random here.",
        verdicts=(
            judge_rows(closest(picture), column),
            judge_norms(table.norm(dim=-1), float(table.abs().max())),
            judge_distances(apart),
            judge_order([low for low, _ in by_offset]),
            judge_shifts(errors),
            judge_wavelengths(waves),
        ),
        tables=(
            Table(
                "Four places of four numbers",
                ("place", "sin(p)", "cos(p)", "sin(p/100)", "cos(p/100)"),
                tuple((place, *row.tolist()) for place, row in enumerate(little)),
            ),
            Table(
                "Place 1 of 256 numbers, its first six",
                ("dimension", "value"),
                tuple((i, float(value)) for i, value in enumerate(picture[1, :6])),
            ),
            Table(
                "Nearest rows, and norms",
                ("places", "numbers", "nearest two rows", "shortest row", "longest row"),
                tuple(
                    (*t.shape, closest(t), float(t.norm(dim=-1).min()), float(t.norm(dim=-1).max()))
                    for t in (picture, table)
                ),
            ),
            Table(
                "By offset: distances, products, and what the turned row misses",
                ("offset", "distance from", "to", "product from", "to", "error of the rotation"),
                tuple((shift, *apart[shift], *by_offset[shift], errors[shift]) for shift in SHIFTS),
            ),
            Table(
                "Products of the first offsets",
                ("offset", "lowest", "highest"),
                tuple((offset, *both) for offset, both in enumerate(by_offset[:8])),
            ),
            Table(
                "Wavelengths",
                ("dimensions", "measured", "2 pi 10000^(2i/d)"),
                tuple(
                    (f"{2 * i}, {2 * i + 1}", float(waves[i]), 2 * math.pi * 10000 ** (2 * i / SIZE))
                    for i in (0, 1, 2, 64, 128, 192, 254, 255)
                ),
            ),
        ),
        figures=(
            Figure(
                "heat-map",
                "50 places of 256 dimensions. Each row is the vector of a place; on the left it changes from place to "
                "place, on the right hardly at all.",
                lambda figure: draw_heat_map(figure, picture),
            ),
            Figure(
                "curves",
                "Single dimensions along the places: a sine and a cosine of the same wavelength, longer for later "
                "dimensions.",
                lambda figure: draw_curves(figure, picture),
                (8.0, 5.0),
            ),
            Figure(
                "offsets",
                f"Product (left) and distance (right) of two of {LENGTH} rows of {SIZE} numbers, by the places between "
                "them; where the two stand makes no difference.",
                lambda figure: draw_offsets(figure, [low for low, _ in by_offset], table),
                (9.0, 3.6),
            ),
            Figure(
                "wavelengths",
                f"How many places a dimension needs to come round, for {SIZE} dimensions (logarithmic).",
                lambda figure: draw_wavelengths(figure, waves),
                (6.0, 3.6),
            ),
        ),
    )


EXPERIMENT = Experiment(
    title="The positional encoding",
    source="notes 001 (sinusoidal encoding) and 004 (positional encoding); section 3.5",
    claim="Sines at even dimensions, cosines at odd ones: every row is unique, all are within [-1, 1], places equally "
    "far apart are at the same distance, a shift is a linear map, and wavelengths run from 2 pi to 10000 times 2 pi. "
    "(Note 001 lets the period grow along the picture's x axis, which is the dimension.)",
    run=run,
)
