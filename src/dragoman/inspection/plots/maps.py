"""Draw maps: all heads at once, and masks.

Shapes: L layers, H heads, T queries, S keys.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dragoman.inspection.figure import (
    MAX_INCHES,
    WEIGHTS,
    Figure,
    Scale,
    draw_image,
    shorten_label,
)

GAP = 0.06  # between the thumbnails, as a share of their side
MIN_POINTS = 4.5  # letters that can just be read


def map_grid(weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str, caption: str) -> Figure:
    """Return all maps (L, H, T, S) as thumbnails on one scale, from 0 to the largest weight of all.

    rows, columns: the labels of queries and keys, which are written beside the maps if large enough to read.
    """
    layers, heads = weights.shape[:2]
    largest = float(weights.max()) if weights.numel() else 1.0
    mosaic, (high, wide) = tile(weights)
    scale = Scale(f"{WEIGHTS.name}; the largest is {largest:.2f}", WEIGHTS.colours, 0.0, largest or 1.0)
    # The side of a map in inches, its height by its width, and the size of a label in points.
    side = max(min(8 / max(layers, heads), 2.0), min(16 / max(layers, heads), 1.3))
    tall = min(max(len(rows) / max(len(columns), 1), 0.5), 2.0)
    letters = 0.75 * 72 * min(side / max(len(columns), 1), side * tall / max(len(rows), 1))

    def ticks(labels: Sequence[str], tiles: int, distance: int) -> tuple[list[int], list[str]]:
        """Return where to write which label along one side: two empty lists if letters were too small to read.

        tiles: maps along that side; distance: rows or columns from the start of one map to that of the next.
        """
        if letters < MIN_POINTS:
            return [], []
        return (
            [distance * tile + index for tile in range(tiles) for index in range(len(labels))],
            [shorten_label(label, 12) for label in labels] * tiles,
        )

    def draw(figure: Any) -> None:
        from matplotlib.patches import Rectangle

        axes = figure.subplots()
        image = draw_image(axes, mosaic, scale)
        axes.set_xticks(*ticks(columns, heads, wide), rotation=90)
        axes.set_yticks(*ticks(rows, layers, high))
        axes.tick_params(length=0, labelsize=min(letters, 8.0))
        axes.spines[:].set_visible(False)
        above, beside = axes.secondary_xaxis("top"), axes.secondary_yaxis("right")
        above.set_xticks([wide * head + (len(columns) - 1) / 2 for head in range(heads)], range(1, heads + 1))
        beside.set_yticks([high * layer + (len(rows) - 1) / 2 for layer in range(layers)], range(1, layers + 1))
        above.set_xlabel("head")
        beside.set_ylabel("layer")
        for other in (above, beside):
            other.tick_params(length=0)
            other.spines[:].set_visible(False)
        axes.set_xlabel(f"in each map {len(columns)} {'key' if len(columns) == 1 else 'keys'} from left to right")
        axes.set_ylabel(f"{len(rows)} {'query' if len(rows) == 1 else 'queries'} from top to bottom")
        for layer in range(layers):
            for head in range(heads):
                corner = (wide * head - 0.5, high * layer - 0.5)
                axes.add_patch(
                    Rectangle(
                        corner, len(columns), len(rows), fill=False, edgecolor="0.5", linewidth=0.6, clip_on=False
                    )
                )
        axes.set_title(title, fontsize=11)
        figure.colorbar(image, ax=axes, shrink=0.8, label=scale.name)

    return Figure(caption, draw, (max(5.0, 2.5 + side * heads), min(max(3.5, 2 + side * tall * layers), MAX_INCHES)))


def tile(weights: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """Return maps (L, H, T, S) as one image, a row of maps for each layer, with NaN between them.

    Also return the distances in rows and in columns from the start of one map to that of the next.
    """
    layers, heads, rows, columns = weights.shape
    down, right = (max(1, math.ceil(GAP * side)) for side in (rows, columns))
    room = torch.full((layers, heads, rows + down, columns + right), math.nan)
    room[..., :rows, :columns] = weights
    image = room.transpose(1, 2).flatten(2).flatten(0, 1)  # L H T S -> L T H S -> L*T H*S
    return image[: image.size(0) - down, : image.size(1) - right], (rows + down, columns + right)


@dataclass(frozen=True)
class Mask:
    """Describe which queries may attend to which keys."""

    title: str
    allowed: Tensor  # (T, S) of bool
    rows: Sequence[str]
    columns: Sequence[str]


def mask_figure(shown: Sequence[Mask], caption: str) -> Figure:
    """Return masks beside each other: white where attention is allowed, grey and crossed out where it is not."""
    widths = [1.6 + 0.34 * len(mask.columns) for mask in shown]
    height = 2.2 + 0.3 * max(len(mask.rows) for mask in shown)
    total = sum(widths)
    letters = 9 * min(1.0, MAX_INCHES / max(total, height))

    def draw(figure: Any) -> None:
        row = figure.subplots(1, len(shown), squeeze=False, gridspec_kw={"width_ratios": widths})[0]
        for axes, mask in zip(row, shown, strict=True):
            draw_image(axes, mask.allowed.float(), Scale("", "gray", -1.0, 1.0))  # 0 is grey, 1 is white
            y, x = (~mask.allowed).nonzero().unbind(1)
            axes.scatter(x, y, s=2 * letters, c="black", marker="x", linewidths=0.6)
            axes.set_xticks(range(len(mask.columns)), [shorten_label(label, 12) for label in mask.columns], rotation=90)
            axes.set_yticks(range(len(mask.rows)), [shorten_label(label, 12) for label in mask.rows])
            axes.tick_params(length=0, labelsize=letters)
            axes.set_title(mask.title, fontsize=10)

    return Figure(caption, draw, (min(max(total, 6.0), MAX_INCHES), min(height, MAX_INCHES)))
