"""Ways to number the words of a sentence, and which of the conditions of note 004 each of them meets.

Shapes: T places, M numbers for each.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.model.positions import Learned, sinusoids

SIZE = 16  # of the schemes that have a vector for a place
LEARNED_PLACES = 64
LENGTHS, LONG = (7, 20, 50), 2_000  # places of the sentences that a scheme is tested on
EXACT = 1e-5  # two distances, or two codes, that differ by no more are the same
STEP = 0.33  # of the line of note 004: 0, 0.33, 0.66, 0.99

Code = Callable[[int], Tensor]  # the places of a sentence -> (T, M); ValueError where it is too long


def integers(length: int) -> Tensor:
    """1, 2, 3, ..."""
    return torch.arange(1.0, length + 1)[:, None]


def fractions(length: int) -> Tensor:
    """From 0 at the first word to 1 at the last one, whatever the length."""
    return torch.linspace(0, 1, length)[:, None]


def line(length: int) -> Tensor:
    """0, 0.33, 0.66, 0.99, ..."""
    return STEP * torch.arange(length)[:, None]


def binary(length: int, bits: int = SIZE) -> Tensor:
    """Places from 0 as binary numbers, the highest bit first."""
    return (torch.arange(length)[:, None] >> torch.arange(bits).flip(0) & 1).float()


def gray(length: int, bits: int = SIZE) -> Tensor:
    """The binary numbers in Gray's order, in which neighbours differ in one bit."""
    place = torch.arange(length)
    return ((place ^ place >> 1)[:, None] >> torch.arange(bits).flip(0) & 1).float()


def one_wave(length: int) -> Tensor:
    """A single sine and cosine that come round after eight places: a hand of a clock."""
    angle = torch.arange(length, dtype=torch.float64)[:, None] * (2 * math.pi / 8)
    return torch.cat([angle.sin(), angle.cos()], 1)


def drawn_anew() -> Code:
    """Random vectors, drawn for each sentence: what "deterministic" is there to exclude."""
    random = torch.Generator().manual_seed(0)
    return lambda length: 2 * torch.rand(length, SIZE, generator=random) - 1


def learned_table() -> Code:
    """The model's learned positions, as they are drawn at the start."""
    torch.manual_seed(0)
    positions = Learned(SIZE, 1, SIZE, LEARNED_PLACES)
    return lambda length: positions.embed(torch.zeros(1, length, SIZE), 0)[0].detach()


def waves(length: int, size: int = SIZE) -> Tensor:
    """The sinusoids of the paper."""
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
    """The distances of places so far apart, along the sentence."""
    return [float(gap) for gap in (code[apart:].double() - code[:-apart].double()).norm(dim=-1)]


def all_differ(code: Tensor) -> bool:
    return bool(code.isfinite().all()) and float(torch.pdist(code.double()).min()) > EXACT


def unique(code: Code) -> bool:
    """Every place of a sentence has a code of its own."""
    return all(all_differ(code(length)) for length in LENGTHS)


def same_gaps(code: Code) -> bool:
    """Two places are as far apart as any other two with as many steps between them, in sentences of all lengths."""
    for apart in range(1, min(LENGTHS)):
        found = [gap for length in LENGTHS for gap in gaps(code(length), apart)]
        if max(found) - min(found) > EXACT:
            return False
    return True


def any_length(code: Code) -> bool:
    """A long sentence is not refused, and its places still differ."""
    try:
        return all_differ(code(LONG))
    except ValueError:
        return False


def deterministic(code: Code) -> bool:
    """Asked twice, it gives the same."""
    return all(torch.equal(code(length), code(length)) for length in LENGTHS)


def bounded(code: Code) -> bool:
    """All numbers are within [-1, 1], as long as the sentence may be."""
    try:
        longest = code(LONG)
    except ValueError:
        longest = code(max(LENGTHS))
    return float(longest.abs().max()) <= 1


@dataclass(frozen=True)
class Condition:
    name: str
    met: Callable[[Code], bool]


CONDITIONS = (
    Condition("unique", unique),
    Condition("same distance for the same offset", same_gaps),
    Condition("any length", any_length),
    Condition("deterministic", deterministic),
    Condition("bounded", bounded),
)


def conditions_met() -> dict[str, tuple[bool, ...]]:
    """For each scheme, whether it meets each of CONDITIONS."""
    return {name: tuple(c.met(make()) for c in CONDITIONS) for name, make in SCHEMES.items()}


def judge_conditions(met: dict[str, tuple[bool, ...]]) -> Verdict:
    winners = [name for name, cells in met.items() if all(cells)]
    missed = {
        name: ", ".join(condition.name for condition, cell in zip(CONDITIONS, cells, strict=True) if not cell)
        for name, cells in met.items()
    }
    return Verdict(
        winners == [SINUSOIDS],
        f"Of {len(met)} schemes, all {len(CONDITIONS)} conditions are met by {', '.join(winners) or 'none'}. "
        "The others miss, "
        + ("; ".join(f"{name}: {names}" for name, names in missed.items() if names) or "all: none")
        + ".",
    )


def judge_corners(counting: list[float], gray_order: list[float], on_line: list[float], apart: float) -> Verdict:
    """Gaps of the four codes of two bits in both orders, gaps of the line, and how far codes 0 and 3 of Gray are."""

    def told(gaps: list[float]) -> str:
        return ", ".join(f"{gap:.4g}" for gap in gaps)

    def uneven(gaps: list[float]) -> bool:
        return max(gaps) - min(gaps) > EXACT

    seen = uneven(gray_order) and not uneven(on_line)
    return Verdict(
        seen,
        f"In the order of the note's figure, (0,0) (0,1) (1,1) (1,0), which is Gray's, the gaps are "
        f"{told(gray_order)}: {'uneven, as the note says' if seen else 'not 1 and root 2'}. In counting order they "
        f"are {told(counting)}. The line has {told(on_line)}. In Gray's order the first and the last of the four are "
        f"{apart:.4g} apart.",
    )


def judge_neighbours(by_scheme: dict[str, list[float]]) -> Verdict:
    """by_scheme: the gaps between neighbours; of binary numbers and of sinusoids."""
    (code, of_code), (wave, of_wave) = by_scheme.items()
    seen = max(of_wave) - min(of_wave) <= EXACT < max(of_code) - min(of_code)
    return Verdict(
        seen,
        f"From one place to the next the {code} moves by {min(of_code):.4f} to {max(of_code):.4f}, the {wave} by "
        f"{min(of_wave):.4f} to {max(of_wave):.4f}: waves "
        f"{'take the jumps out' if seen else 'do not take the jumps out'} of binary digits.",
    )


def draw_codes(figure: Any) -> None:
    pictures = {"binary numbers": binary(7, 3), "Gray code": gray(7, 3), "sinusoids": waves(7, 6)}
    for axes, (title, code) in zip(figure.subplots(1, 3), pictures.items(), strict=True):
        axes.imshow(code, cmap="PuOr", vmin=-1.6, vmax=1.6, aspect="auto")
        for (y, row), x in itertools.product(enumerate(code.tolist()), range(code.size(1))):
            axes.text(x, y, f"{row[x]:.2g}", ha="center", va="center", fontsize=8)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("number")
        axes.set_ylabel("place")
        axes.set_xticks(range(code.size(1)))
        axes.tick_params(length=0, labelsize=8)


def draw_plane(figure: Any) -> None:
    axes = figure.subplots()
    for index, (name, code) in enumerate({"counting": binary(4, 2), "Gray's order": gray(4, 2)}.items()):
        x, y = (code + 0.06 * index).T
        axes.plot(x, y, label=f"two bits, {name}", **style(index))
        for place in range(4):
            axes.annotate(str(place), (x[place], y[place]), xytext=(5, 4 - 14 * (1 - index)), fontsize=9,
                          textcoords="offset points")  # fmt: skip
    points = line(4)[:, 0]
    axes.plot(points, torch.full_like(points, -0.4), label=f"line, steps of {STEP}", **style(2))
    for place, point in enumerate(points.tolist()):
        axes.annotate(str(place), (point, -0.4), xytext=(5, 4), textcoords="offset points", fontsize=9)
    axes.set_xlim(-0.2, 1.9)
    axes.set_ylim(-0.6, 1.3)
    axes.set_xlabel("first number")
    axes.set_ylabel("second number (the line has none)")
    axes.legend(frameon=False, fontsize=8, loc="center right")


def draw_gaps(figure: Any) -> None:
    codes = {"binary code": binary(33), "Gray code": gray(33), "sinusoids": waves(33)}
    for axes, apart in zip(figure.subplots(1, 2, sharey=True), (1, 3), strict=True):
        for index, (name, code) in enumerate(codes.items()):
            axes.plot(gaps(code, apart), label=name, markevery=4, **style(index))
        axes.set_title(f"to the place {apart} later", fontsize=10)
        axes.set_xlabel("place")
        axes.grid(color="0.9", linewidth=0.6)
    figure.axes[0].set_ylabel("distance")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)


def run(effort: Effort) -> Findings:
    met = conditions_met()
    corners = {"counting": binary(4, 2), "Gray": gray(4, 2), "line": line(4)}
    wide = waves(512, 512)
    return Findings(
        setting=f"Codes for places of sentences, vectors of {SIZE} numbers where a scheme has vectors; each "
        f"condition is tested on sentences of {', '.join(map(str, LENGTHS))} places, any length on {LONG:,}. A "
        f"learned table has {LEARNED_PLACES} places here.",
        verdicts=(
            judge_conditions(met),
            judge_corners(
                gaps(corners["counting"]), gaps(corners["Gray"]), gaps(corners["line"]), gaps(corners["Gray"], 3)[0]
            ),
            judge_neighbours({"binary code": gaps(binary(50)), SINUSOIDS: gaps(waves(50))}),
        ),
        tables=(
            Table(
                "Which scheme meets which condition, found by testing it",
                ("scheme", *(condition.name for condition in CONDITIONS)),
                tuple((name, *cells) for name, cells in met.items()),
            ),
            Table(
                "Seven places as binary numbers, and how far the next one is",
                ("place", "bit 2", "bit 1", "bit 0", "to the next"),
                tuple(
                    (place, *map(int, row.tolist()), gap)
                    for place, (row, gap) in enumerate(zip(binary(7, 3), gaps(binary(8, 3)), strict=True))
                ),
            ),
            Table(
                "The four codes of two bits, and the line",
                ("order", "0 to 1", "1 to 2", "2 to 3", "0 to 3"),
                tuple((name, *gaps(code), gaps(code, 3)[0]) for name, code in corners.items()),
            ),
            Table(
                "Sinusoids of 512 numbers",
                ("offset", "smallest distance", "largest distance"),
                tuple((apart, min(gaps(wide, apart)), max(gaps(wide, apart))) for apart in (1, 5)),
            ),
        ),
        figures=(
            Figure(
                "codes",
                "Seven places in three schemes. Binary digits switch at once, waves turn over slowly: the left columns "
                "of binary numbers and the right ones of sinusoids have the longest periods.",
                draw_codes,
                (9.0, 3.6),
            ),
            Figure(
                "plane",
                "Four places as two bits, in counting order and in Gray's order (shifted a little), and on a line with "
                "equal steps. The numbers are the places.",
                draw_plane,
                (6.5, 4.0),
            ),
            Figure(
                "gaps",
                "The distance from each place to the next one (left) and to the one three later (right). Gray's order "
                "has even steps of one place only, sinusoids of any number.",
                draw_gaps,
                (9.0, 3.8),
            ),
        ),
    )


EXPERIMENT = Experiment(
    title="Ways to number places",
    source="note 004 (positional encoding)",
    claim="A code for places should be unique, keep the distance of two places over all lengths, work for any length, "
    "always be the same, and be bounded. Integers, fractions and binary codes fail somewhere (the four corners of two "
    "bits are said to be 1 or root 2 apart), sines and cosines meet all of it.",
    run=run,
)
