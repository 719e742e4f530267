"""Draw tables: statistics of heads, and what was probable at each position."""

import math
from collections.abc import Sequence
from typing import Any

from dragoman.inspection.figure import HEADING, MAX_INCHES, Figure, shorten_label, two_digits
from dragoman.inspection.inspection import Position

MAX_ROWS, MAX_POSITIONS = 64, 48
PALEST = 0.5  # of the colour map, so that black letters can be read on it


def number_table(
    names: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]], title: str, caption: str
) -> Figure:
    """Return a table of numbers with names of its rows; in each column the greatest is darkest.

    NaN is an empty cell. Of more than MAX_ROWS rows the first ones are drawn, and the caption says so.
    """
    shown = values[:MAX_ROWS]
    if len(values) > len(shown):
        caption = f"{caption}; the first {len(shown)} of {len(values)} rows"
    shades = [shades_of(column) for column in zip(*shown, strict=True)]

    def draw(figure: Any) -> None:
        import matplotlib

        axes = figure.subplots()
        axes.axis("off")
        axes.set_title(title, fontsize=11)
        blues = matplotlib.colormaps["Blues"]
        drawn = axes.table(
            cellText=[["" if math.isnan(value) else two_digits(value) for value in row] for row in shown],
            cellColours=[[blues(PALEST * shade) for shade in row] for row in zip(*shades, strict=True)],
            rowLabels=names[:MAX_ROWS],
            colLabels=list(columns),
            cellLoc="right",
            bbox=(0, 0, 1, 1),
        )
        drawn.auto_set_font_size(False)
        drawn.set_fontsize(8)
        for (row, column), cell in drawn.get_celld().items():
            cell.set_linewidth(0.3)
            if row == 0 or column < 0:
                cell.set_gid(HEADING)

    return Figure(caption, draw, (2.5 + 1.15 * len(columns), min(1.6 + 0.24 * (len(shown) + 1), MAX_INCHES)))


def shades_of(column: Sequence[float]) -> list[float]:
    """Return, for each number of a column, 0 for the smallest to 1 for the greatest; 0 for NaN."""
    numbers = [value for value in column if not math.isnan(value)]
    low, width = (min(numbers), (max(numbers) - min(numbers)) or 1.0) if numbers else (0.0, 1.0)
    return [0.0 if math.isnan(value) else (value - low) / width for value in column]


def probability_table(positions: Sequence[Position], vocabulary: int, caption: str) -> Figure:
    """Return a figure of the probability of each token, the most probable ones there, and the entropy of all.

    vocabulary: the number of tokens, which bounds the entropy. Of more than MAX_POSITIONS positions the first ones are
    drawn, and the caption says so.
    """
    shown = positions[:MAX_POSITIONS]
    if len(positions) > len(shown):
        caption = f"{caption}; the first {len(shown)} of {len(positions)} positions"
    rows = range(len(shown))
    ranks = max((len(position.alternatives) for position in shown), default=0)
    caption = f"{caption}; the model's probability, not the chance that it is right; ▶ marks the chosen token"

    def draw(figure: Any) -> None:
        chosen, others, entropy = figure.subplots(1, 3, sharey=True, width_ratios=(2, 1.3 * max(ranks, 1), 1.5))
        labels = [f"{number + 1}  {shorten_label(position.token)}" for number, position in enumerate(shown)]
        bars = chosen.barh(
            rows, [position.probability for position in shown], color="0.6", edgecolor="black", linewidth=0.6
        )
        chosen.bar_label(bars, [f"{position.probability:.2f}" for position in shown], padding=2, fontsize=8)
        chosen.set_yticks(rows, labels, fontsize=9)
        chosen.set_xlim(0, 1.18)
        chosen.set_xticks([0, 0.5, 1])
        chosen.set_xlabel("probability")
        chosen.set_title("the chosen token", fontsize=10)
        write_alternatives(others, shown, ranks)
        bars = entropy.barh(
            rows, [position.entropy for position in shown], color="white", edgecolor="black", hatch="////"
        )
        entropy.bar_label(bars, [f"{position.entropy:.2f}" for position in shown], padding=2, fontsize=8)
        entropy.set_xlim(0, 1.25 * max([position.entropy for position in shown], default=1.0) or 1.0)
        entropy.set_xlabel(f"nats, at most {math.log(vocabulary):.2f}")
        entropy.set_title("entropy", fontsize=10)
        for axes in (chosen, entropy):
            axes.spines[["top", "right"]].set_visible(False)
        chosen.invert_yaxis()

    return Figure(caption, draw, (5.5 + 1.3 * ranks, min(1.8 + 0.32 * max(len(shown), 2), MAX_INCHES)))


def write_alternatives(axes: Any, positions: Sequence[Position], ranks: int) -> None:
    """Write each position's most probable tokens, at most `ranks`, in a row, darker where more probable."""
    import matplotlib

    blues = matplotlib.colormaps["Blues"]
    for row, position in enumerate(positions):
        for rank, other in enumerate(position.alternatives):
            mark = "▶" if other.token == position.token else ""
            box = {"boxstyle": "square,pad=0.15", "facecolor": blues(PALEST * other.probability), "edgecolor": "none"}
            text = f"{mark}{shorten_label(other.token, 12)} {other.probability:.2f}"
            axes.text(rank, row, text, fontsize=8, ha="left", va="center", bbox=box)
    axes.set_xlim(-0.1, max(ranks, 1))
    axes.set_xticks([])
    axes.tick_params(length=0, labelleft=False)
    axes.spines[:].set_visible(False)
    axes.set_title("the most probable tokens", fontsize=10)
