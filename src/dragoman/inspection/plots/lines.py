"""Draw attention as lines between two columns of words, in a colour for each head."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from dragoman.inspection.figure import MAX_INCHES, Figure, shorten_label
from dragoman.inspection.plots.training import COLOURS, LINES

FAINT = 0.05  # weights below it have no line


def line_figure(
    weights: Tensor, heads: Sequence[int], rows: Sequence[str], columns: Sequence[str], title: str, caption: str
) -> Figure:
    """Return a line from each query to each key, as thick and as dark as its weight; heads differ in colour and style.

    weights (H, T, S); heads: the numbers of the H heads, for the legend; rows, columns: the labels of queries, on the
    left, and of keys.
    """
    rows, columns = ([shorten_label(label) for label in side] for side in (rows, columns))
    places = [[-(index + 0.5) / len(side) for index in range(len(side))] for side in (rows, columns)]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, (head, table) in enumerate(zip(heads, weights.tolist(), strict=True)):
            style = {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number % len(LINES)]}
            axes.plot([], [], label=f"head {head}", linewidth=2, **style)
            # Several heads lie beside each other, not on top of each other.
            aside = (number - (len(heads) - 1) / 2) * 0.4 / (len(heads) * max(len(rows), len(columns)))
            for start, row in zip(places[0], table, strict=True):
                for end, weight in zip(places[1], row, strict=True):
                    if weight >= FAINT:
                        ends = [start + aside, end + aside]
                        axes.plot([0, 1], ends, alpha=min(weight, 1.0), linewidth=0.5 + 3 * weight, **style)
        for x, labels, at, side in ((-0.02, rows, places[0], "right"), (1.02, columns, places[1], "left")):
            for label, y in zip(labels, at, strict=True):
                axes.text(x, y, label, ha=side, va="center", fontsize=10)
        axes.set_xlim(-0.5, 1.5)
        axes.set_ylim(-1, 0)
        axes.axis("off")
        axes.set_title(title, fontsize=11)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)

    height = min(max(3.5, 1.5 + 0.4 * max(len(rows), len(columns))), MAX_INCHES)
    return Figure(f"{caption}; weights below {FAINT:g} are left out", draw, (8.0, height))
