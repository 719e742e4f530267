"""Tables as pictures: statistics of heads, and what was probable at each place."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dragoman.inspection.figure import LARGEST, Picture, shortened, two_digits

MOST_ROWS = 64
PALEST = 0.5  # of the colour map, so that black letters can be read on it


def table(
    names: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]], title: str, caption: str
) -> Picture:
    """Rows of numbers with their names; in each column the greatest is darkest. NaN is an empty cell.

    Of more than 64 rows the first ones are drawn, and the caption says so.
    """
    shown = values[:MOST_ROWS]
    if len(values) > len(shown):
        caption = f"{caption}; the first {len(shown)} of {len(values)} rows"
    shades = [shaded(column) for column in zip(*shown, strict=True)]

    def draw(figure: Any) -> None:
        import matplotlib

        axes = figure.subplots()
        axes.axis("off")
        axes.set_title(title, fontsize=11)
        blues = matplotlib.colormaps["Blues"]
        drawn = axes.table(
            cellText=[["" if math.isnan(value) else two_digits(value) for value in row] for row in shown],
            cellColours=[[blues(PALEST * shade) for shade in row] for row in zip(*shades, strict=True)],
            rowLabels=[f"{name}  " for name in names[:MOST_ROWS]],
            colLabels=list(columns),
            cellLoc="right",
            bbox=(0, 0, 1, 1),
        )
        drawn.auto_set_font_size(False)
        drawn.set_fontsize(8)
        for cell in drawn.get_celld().values():
            cell.set_linewidth(0.3)

    return Picture(caption, draw, (2.5 + 1.15 * len(columns), min(1.6 + 0.24 * (len(shown) + 1), LARGEST)))


def shaded(column: Sequence[float]) -> list[float]:
    """0 for the least of a column to 1 for the greatest."""
    numbers = [value for value in column if not math.isnan(value)]
    least, width = (min(numbers), (max(numbers) - min(numbers)) or 1.0) if numbers else (0.0, 1.0)
    return [0.0 if math.isnan(value) else (value - least) / width for value in column]


@dataclass(frozen=True)
class Chances:
    """What was probable at one place of the translation."""

    chosen: str
    probability: float
    entropy: float  # nats
    others: Sequence[tuple[str, float]]  # the most probable tokens, the best first; the chosen one may be among them


MOST_PLACES = 48


def probabilities(places: Sequence[Chances], vocabulary: int, caption: str) -> Picture:
    """The probability of each token, the most probable ones at its place, and the entropy of the whole distribution.

    Of more than 48 places the first ones are drawn, and the caption says so.
    """
    shown = places[:MOST_PLACES]
    if len(places) > len(shown):
        caption = f"{caption}; the first {len(shown)} of {len(places)} places"
    rows = range(len(shown))
    ranks = max((len(place.others) for place in shown), default=0)
    caption = f"{caption}; the model's probability, which is not correctness; ▶ marks the chosen token"

    def draw(figure: Any) -> None:
        chosen, others, entropy = figure.subplots(1, 3, sharey=True, width_ratios=(2, 1.3 * max(ranks, 1), 1.5))
        labels = [f"{number + 1}  {shortened(place.chosen)}" for number, place in enumerate(shown)]
        bars = chosen.barh(rows, [place.probability for place in shown], color="0.6", edgecolor="black", linewidth=0.6)
        chosen.bar_label(bars, [f"{place.probability:.2f}" for place in shown], padding=2, fontsize=8)
        chosen.set_yticks(rows, labels, fontsize=9)
        chosen.set_xlim(0, 1.18)
        chosen.set_xticks([0, 0.5, 1])
        chosen.set_xlabel("probability")
        chosen.set_title("the chosen token", fontsize=10)
        write_alternatives(others, shown, ranks)
        bars = entropy.barh(rows, [place.entropy for place in shown], color="white", edgecolor="black", hatch="////")
        entropy.bar_label(bars, [f"{place.entropy:.2f}" for place in shown], padding=2, fontsize=8)
        entropy.set_xlim(0, 1.25 * max([place.entropy for place in shown], default=1.0) or 1.0)
        entropy.set_xlabel(f"nats, at most {math.log(vocabulary):.2f}")
        entropy.set_title("entropy", fontsize=10)
        for axes in (chosen, entropy):
            axes.spines[["top", "right"]].set_visible(False)
        chosen.invert_yaxis()

    return Picture(caption, draw, (5.5 + 1.3 * ranks, min(1.8 + 0.32 * max(len(shown), 2), LARGEST)))


def write_alternatives(axes: Any, places: Sequence[Chances], ranks: int) -> None:
    """One row for each place, the most probable tokens from left to right, darker where more probable."""
    import matplotlib

    blues = matplotlib.colormaps["Blues"]
    for row, place in enumerate(places):
        for rank, (piece, probability) in enumerate(place.others):
            mark = "▶" if piece == place.chosen else ""
            box = {"boxstyle": "square,pad=0.15", "facecolor": blues(PALEST * probability), "edgecolor": "none"}
            text = f"{mark}{shortened(piece, 12)} {probability:.2f}"
            axes.text(rank, row, text, fontsize=8, ha="left", va="center", bbox=box)
    axes.set_xlim(-0.1, max(ranks, 1))
    axes.set_xticks([])
    axes.tick_params(length=0, labelleft=False)
    axes.spines[:].set_visible(False)
    axes.set_title("the most probable tokens", fontsize=10)
