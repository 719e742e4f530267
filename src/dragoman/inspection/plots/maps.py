"""Maps: all heads at once, masks, and what is lost with a source word.

Shapes: L layers, H heads, T queries, S keys.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dragoman.inspection.figure import LARGEST, WEIGHTS, Picture, Scale, labelled_map, shortened, show, signed

GAP = 0.06  # between the thumbnails, as a share of their side
SMALLEST = 4.5  # points; letters that can just be read


def grid(weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str, caption: str) -> Picture:
    """All maps (L, H, T, S) as thumbnails on one scale, from 0 to the largest weight of all. The words of the rows and
    columns stand once for each layer and head, where they can be read.
    """
    layers, heads = weights.shape[:2]
    most = float(weights.max()) if weights.numel() else 1.0
    mosaic, (high, wide) = tiled(weights)
    scale = Scale(f"{WEIGHTS.name}; the largest is {most:.2f}", WEIGHTS.colours, 0.0, most or 1.0)
    # Inches of a map, and points of a word in it.
    side = max(min(8 / max(layers, heads), 2.0), min(16 / max(layers, heads), 1.3))
    tall = min(max(len(rows) / max(len(columns), 1), 0.5), 2.0)
    letters = 0.75 * 72 * min(side / max(len(columns), 1), side * tall / max(len(rows), 1))

    def places(labels: Sequence[str], tiles: int, distance: int) -> tuple[list[int], list[str]]:
        """Where to write what; nothing where it would be too small."""
        if letters < SMALLEST:
            return [], []
        return (
            [distance * tile + place for tile in range(tiles) for place in range(len(labels))],
            [shortened(label, 12) for label in labels] * tiles,
        )

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        image = show(axes, mosaic, scale)
        axes.set_xticks(*places(columns, heads, wide), rotation=90)
        axes.set_yticks(*places(rows, layers, high))
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
                axes.add_patch(frame(corner, len(columns), len(rows)))
        axes.set_title(title, fontsize=11)
        figure.colorbar(image, ax=axes, shrink=0.8, label=scale.name)

    return Picture(caption, draw, (max(5.0, 2.5 + side * heads), min(max(3.5, 2 + side * tall * layers), LARGEST)))


def frame(corner: tuple[float, float], width: float, height: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(corner, width, height, fill=False, edgecolor="0.5", linewidth=0.6, clip_on=False)


def tiled(weights: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """(L, H, T, S) -> one image with NaN between the maps, and how many rows and columns lie from one to the next."""
    layers, heads, rows, columns = weights.shape
    down, right = (max(1, math.ceil(GAP * side)) for side in (rows, columns))
    room = torch.full((layers, heads, rows + down, columns + right), math.nan)
    room[..., :rows, :columns] = weights
    image = room.transpose(1, 2).flatten(2).flatten(0, 1)  # L H T S -> L T H S -> L*T H*S
    return image[: image.size(0) - down, : image.size(1) - right], (rows + down, columns + right)


@dataclass(frozen=True)
class Mask:
    """What may look at what."""

    title: str
    allowed: Tensor  # (T, S) of bool
    rows: Sequence[str]
    columns: Sequence[str]


def masks(shown: Sequence[Mask], caption: str) -> Picture:
    """Masks beside each other: white where attention is allowed, dark and crossed out where it is not."""
    widths = [1.6 + 0.34 * len(mask.columns) for mask in shown]
    height = 2.2 + 0.3 * max(len(mask.rows) for mask in shown)
    total = sum(widths)
    letters = 9 * min(1.0, LARGEST / max(total, height))

    def draw(figure: Any) -> None:
        row = figure.subplots(1, len(shown), squeeze=False, gridspec_kw={"width_ratios": widths})[0]
        for axes, mask in zip(row, shown, strict=True):
            show(axes, mask.allowed.float(), Scale("", "gray", -1.0, 1.0))  # 0 is grey, 1 is white
            y, x = (~mask.allowed).nonzero().unbind(1)
            axes.scatter(x, y, s=2 * letters, c="black", marker="x", linewidths=0.6)
            axes.set_xticks(range(len(mask.columns)), [shortened(label, 12) for label in mask.columns], rotation=90)
            axes.set_yticks(range(len(mask.rows)), [shortened(label, 12) for label in mask.rows])
            axes.tick_params(length=0, labelsize=letters)
            axes.set_title(mask.title, fontsize=10)

    return Picture(caption, draw, (min(max(total, 6.0), LARGEST), min(height, LARGEST)))


def occlusion(drops: Tensor, rows: Sequence[str], columns: Sequence[str], caption: str) -> Picture:
    """What the probability of each target word (rows) loses without each source word (columns)."""
    most = max(float(drops.abs().max()) if drops.numel() else 0.0, 1e-3)
    title = "What each word of the translation loses without a source word"
    return labelled_map(drops, rows, columns, title, caption, signed("probability lost; below 0: won", most))
