"""Ways to number the words of a sentence, and which conditions each of them meets."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dragoman.config import TransformerConfig
from dragoman.inspection.plots.training import style
from dragoman.model.positions import Learned, sinusoids
from dragoman_lab.drawing import HeatMap, Panel, heat_maps, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment

SIZE = 16  # of the schemes that have a vector for a position
TABLE_SIZE = 64  # positions of the learned table
LENGTHS, LONG = (7, 20, 50), 2_000  # of the sentences that a scheme is tested on
EXACT = 1e-5  # two distances, or two codes, that differ by no more are the same
STEP = 0.33  # of a line: 0, 0.33, 0.66, 0.99

Code = Callable[[int], Tensor]  # length of a sentence -> (T, M); ValueError if it is too long


def integers(length: int) -> Tensor:
    """Return the numbers 1, 2, 3, ... (T, 1)."""
    return torch.arange(1.0, length + 1)[:, None]


def fractions(length: int) -> Tensor:
    """Return numbers (T, 1) from 0 at the first word to 1 at the last one, whatever the length."""
    return torch.linspace(0, 1, length)[:, None]


def line(length: int) -> Tensor:
    """Return the numbers 0, 0.33, 0.66, 0.99, ... (T, 1)."""
    return STEP * torch.arange(length)[:, None]


def binary(length: int, bits: int = SIZE) -> Tensor:
    """Return positions from 0 as binary numbers (T, bits), the highest bit first. Higher bits than these
    are cut off.
    """
    return (torch.arange(length)[:, None] >> torch.arange(bits).flip(0) & 1).float()


def gray(length: int, bits: int = SIZE) -> Tensor:
    """Return positions from 0 in Gray's code (T, bits), the highest bit first: neighbours differ in one bit."""
    position = torch.arange(length)
    return ((position ^ position >> 1)[:, None] >> torch.arange(bits).flip(0) & 1).float()


def one_wave(length: int) -> Tensor:
    """Return a sine and a cosine (T, 2) with a period of eight positions: a hand of a clock."""
    angle = torch.arange(length, dtype=torch.float64)[:, None] * (2 * math.pi / 8)
    return torch.cat([angle.sin(), angle.cos()], 1)


def drawn_anew() -> Code:
    """Return a code that draws random vectors (T, SIZE) at each call, which the condition "deterministic" is there to
    exclude.
    """
    random = torch.Generator().manual_seed(0)
    return lambda length: 2 * torch.rand(length, SIZE, generator=random) - 1


def learned_table() -> Code:
    """Return a code of the model's learned positions (T, SIZE) as they are initialised, for up to TABLE_SIZE words.
    Sets the global seed of PyTorch to 0.
    """
    torch.manual_seed(0)
    positions = Learned(TransformerConfig(SIZE, max_length=TABLE_SIZE))
    return lambda length: positions.embed(torch.zeros(1, length, SIZE), 0)[0].detach()


def waves(length: int, size: int = SIZE) -> Tensor:
    """Return the sinusoids of the paper (T, size), in double precision."""
    return sinusoids(length, size).double()


SINUSOIDS = "sinusoids"
SCHEMES: dict[str, Callable[[], Code]] = {
    "integers": lambda: integers,
    "fractions of the length": lambda: fractions,
    f"line with steps of {STEP}": lambda: line,
    "binary code": lambda: binary,
    "Gray code": lambda: gray,
    "one sine and cosine": lambda: one_wave,
    "random vectors": drawn_anew,
    "learned table, as drawn": learned_table,
    SINUSOIDS: lambda: waves,
}


def gaps(code: Tensor, apart: int = 1) -> list[float]:
    """Return the distance from each position of the code (T, M) to the one `apart` later, along the sentence."""
    return [float(gap) for gap in (code[apart:].double() - code[:-apart].double()).norm(dim=-1)]


def all_differ(code: Tensor) -> bool:
    """Return whether all codes (T, M) are finite, and any two of them more than EXACT apart."""
    return bool(code.isfinite().all()) and float(torch.pdist(code.double()).min()) > EXACT


def unique(code: Code) -> bool:
    """Return whether every position of a sentence has a code of its own, at all LENGTHS."""
    return all(all_differ(code(length)) for length in LENGTHS)


def same_gaps(code: Code) -> bool:
    """Return whether any two positions that are equally many steps apart have the same distance, within and across all
    LENGTHS. Tested up to 6 steps.
    """
    for apart in range(1, min(LENGTHS)):
        sizes = [gap for length in LENGTHS for gap in gaps(code(length), apart)]
        if max(sizes) - min(sizes) > EXACT:
            return False
    return True


def any_length(code: Code) -> bool:
    """Return whether a sentence of LONG words is accepted, and its positions still differ."""
    try:
        return all_differ(code(LONG))
    except ValueError:
        return False


def deterministic(code: Code) -> bool:
    """Return whether two calls give exactly the same codes, at all LENGTHS."""
    return all(torch.equal(code(length), code(length)) for length in LENGTHS)


def is_bounded(code: Code) -> bool:
    """Return whether all numbers are within [-1, 1], at LONG words or, if the scheme refuses these, at the longest of
    LENGTHS.
    """
    try:
        longest = code(LONG)
    except ValueError:
        longest = code(max(LENGTHS))
    return float(longest.abs().max()) <= 1


CONDITIONS: dict[str, Callable[[Code], bool]] = {
    "unique": unique,
    "same distance for the same offset": same_gaps,
    "any length": any_length,
    "deterministic": deterministic,
    "bounded": is_bounded,
}


def conditions_met() -> dict[str, tuple[bool, ...]]:
    """Return by scheme whether it meets each of CONDITIONS, in their order."""
    return {name: tuple(met(make()) for met in CONDITIONS.values()) for name, make in SCHEMES.items()}


def claims(
    met: dict[str, tuple[bool, ...]], corners: dict[str, Tensor], code: list[float], wave: list[float]
) -> Claims:
    """Return each claim and whether it holds. met: which of CONDITIONS each scheme meets; corners: two bits in two
    orders, and the line; code, wave: distances of neighbours, in binary code and of sinusoids.
    """
    missed = {name: [c for c, cell in zip(CONDITIONS, cells, strict=True) if not cell] for name, cells in met.items()}
    misses = "; ".join(f"{name}: {', '.join(conditions)}" for name, conditions in missed.items() if conditions)
    winners = [name for name, conditions in missed.items() if not conditions]
    steps = {name: ", ".join(f"{gap:.4g}" for gap in gaps(corner)) for name, corner in corners.items()}
    uneven = {name: max(gaps(corner)) - min(gaps(corner)) > EXACT for name, corner in corners.items()}
    (code_least, code_most), (wave_least, wave_most) = ((min(each), max(each)) for each in (code, wave))
    return {
        "[Only sinusoids meet all five conditions|It is not true that only sinusoids meet all five conditions]. They "
        f"are met by: {', '.join(winners) or 'none'}. Missed by the others: "
        f"{misses or 'nothing'}.": winners == [SINUSOIDS],
        f"In the order (0,0) (0,1) (1,1) (1,0), a Gray code, the gaps are {steps['Gray']}: [uneven, as claimed|not 1 "
        f"and root 2]. In counting order they are {steps['counting']}, on the line {steps['line']}. In the Gray code "
        f"the first and the last of the four are {gaps(corners['Gray'], 3)[0]:.4g} "
        "apart.": uneven["Gray"] and not uneven["line"],
        f"From one position to the next, the binary code moves by {code_least:.4f} to {code_most:.4f}, the sinusoids "
        f"by {wave_least:.4f} to {wave_most:.4f}: waves [smooth out|do not smooth out] the jumps of binary "
        "digits.": wave_most - wave_least <= EXACT < code_most - code_least,
    }


@experiment(
    "Ways to number positions",
    "common teaching; section 3.5",
    "A code for positions should be unique, keep the same distance between two positions at all lengths, work for any "
    "length, always be the same, and be bounded. Integers, fractions and binary codes each fail in some respect (the "
    "four corners of two bits are said to be 1 or root 2 apart); sines and cosines meet all conditions.",
)
def run(effort: Effort) -> Findings:
    """Test each scheme for each condition, and draw the codes. `effort` is not used: nothing is trained or repeated."""
    met, wide = conditions_met(), waves(512, 512)
    corners = {"counting": binary(4, 2), "Gray": gray(4, 2), "line": line(4)}
    pictured = {"binary numbers": binary(7, 3), "Gray code": gray(7, 3), SINUSOIDS: waves(7, 6)}
    return Findings(
        f"Codes for positions, with vectors of {SIZE} numbers if a scheme has vectors. Each condition is tested on "
        f"sentences of {', '.join(map(str, LENGTHS))} words, the one about any length on {LONG:,}. A learned table has "
        f"{TABLE_SIZE} positions here.",
        claims(met, corners, gaps(binary(50)), gaps(waves(50))),
        {
            "Which scheme meets which condition, found by testing it": Table(
                " | ".join(["scheme", *CONDITIONS]), [(name, *cells) for name, cells in met.items()]
            ),
            "Seven places as binary numbers, and how far the next one is": Table(
                "place | bit 2 | bit 1 | bit 0 | to the next",
                [
                    (position, *map(int, row.tolist()), gap)
                    for position, (row, gap) in enumerate(zip(binary(7, 3), gaps(binary(8, 3)), strict=True))
                ],
            ),
            "The four codes of two bits, and the line": Table(
                "order | 0 to 1 | 1 to 2 | 2 to 3 | 0 to 3",
                [(name, *gaps(code), gaps(code, 3)[0]) for name, code in corners.items()],
            ),
            "Sinusoids of 512 numbers": Table(
                "offset | smallest distance | largest distance",
                [(apart, min(gaps(wide, apart)), max(gaps(wide, apart))) for apart in (1, 5)],
            ),
        },
        {
            "codes": Figure(
                "Seven positions in three schemes. Binary digits switch abruptly, waves change gradually.",
                heat_maps(*(code_map(name, code) for name, code in pictured.items())),
            ),
            "plane": Figure(
                "Four positions as two bits, in counting order and as a Gray code (shifted a little), and on a line.",
                draw_plane,
            ),
            "gaps": Figure(
                "Distance from each position to the next one (left) and to the one three positions later (right).",
                lines(gap_panel(1), gap_panel(3), sharey=True, legend="above"),
            ),
        },
    )


def code_map(name: str, code: Tensor) -> HeatMap:
    """Return the heat map of the codes (T, M) of a scheme, a row for each position."""
    positions, numbers = map(range, code.shape)
    return HeatMap(code, name, positions, numbers, ".2g", "number", "position", 1.6, signed=True)


def gap_panel(apart: int) -> Panel:
    """Return the panel of the distances of positions that are `apart`, by position, for binary code, Gray code and
    sinusoids.
    """
    codes = {"binary code": binary(33), "Gray code": gray(33), SINUSOIDS: waves(33)}
    curves = {name: (range(33 - apart), gaps(code, apart)) for name, code in codes.items()}
    return Panel(curves, "position", "distance", f"to the position {apart} later")


def draw_plane(figure: Any) -> None:
    """Draw four positions as points of a plane on a matplotlib figure, in three schemes: binary code, Gray code, and
    the line.
    """
    axes = figure.subplots()
    level = torch.stack([line(4)[:, 0], torch.full((4,), -0.4)], 1)
    shapes = {"two bits, counting": binary(4, 2), "two bits, Gray's order": gray(4, 2) + 0.06}
    for index, (name, points) in enumerate((shapes | {f"line, steps of {STEP}": level}).items()):
        axes.plot(*points.T, label=name, **style(index))
        for position, point in enumerate(points.tolist()):
            axes.annotate(
                str(position), point, xytext=(5, -10 if index == 0 else 4), textcoords="offset points", fontsize=9
            )
    axes.set(xlim=(-0.2, 1.9), ylim=(-0.6, 1.3), xlabel="first number", ylabel="second number (the line has none)")
    axes.legend(frameon=False, fontsize=8, loc="center right")
