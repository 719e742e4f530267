"""Draw the five stages of one attention head with all their numbers.

Shapes: T queries, S keys, V = d_v.
"""

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
    signed_scale,
    two_digits,
)
from dragoman.inspection.stages import Stages

CELL = (0.46, 0.3)  # inches that a number needs
LETTERS = 6.5  # points


def stage_figure(stages: Stages, about: str) -> Figure:
    """Return a figure of the stages, all numbers written: four tables (T, S), and the output (T, V) below."""
    divide = f"2. scale: divided by √d_k = {stages.divisor:.4g}" if stages.divisor != 1 else "2. scale: none here"
    seen = stages.masked.isfinite()
    added = "; what relative positions add" if (stages.masked != stages.scaled)[seen].any() else ""
    tables = {
        "1. product: Q Kᵀ": stages.product,
        divide: stages.scaled,
        f"3. mask: −∞ where no attention is allowed{added}": stages.masked,
        "4. softmax: each row sums to 1": stages.weights,
        "5. weighted sum of the values: the output of the head": stages.output,
    }
    columns = [shorten_label(label, 12) for label in stages.columns]
    rows = [shorten_label(label, 12) for label in stages.rows]
    widest = max(2 * (len(columns) + 3), stages.output.size(1) + 3)
    natural = (CELL[0] * widest, 3 * (CELL[1] * len(rows) + 1.3))
    letters = LETTERS * min(1.0, MAX_INCHES / max(natural))

    def draw(figure: Any) -> None:
        panels = figure.subplot_mosaic([[0, 1], [2, 3], [4, 4]])
        for number, (title, values) in enumerate(tables.items()):
            axes, of_keys = panels[number], number < 4
            scale = WEIGHTS if number == 3 else signed_scale("", largest(values))
            draw_numbers(axes, values, scale, letters)
            labels = columns if of_keys else [str(index + 1) for index in range(values.size(1))]
            axes.set_xticks(range(len(labels)), labels, rotation=90 if of_keys else 0)
            axes.set_yticks(range(len(rows)), rows)
            axes.tick_params(length=0, labelsize=letters + 1)
            axes.set_title(title, fontsize=10)

    caption = f"{stages.which}: what the model computed, token by token; rows: queries, columns: keys; {about}"
    width, height = (min(max(side, 6.0), MAX_INCHES) for side in natural)
    return Figure(caption, draw, (width, height))


def largest(values: Tensor) -> float:
    """Return the largest finite absolute value, or a small number where all are 0."""
    finite = values[values.isfinite()]
    return max(float(finite.abs().max()) if len(finite) else 0.0, 1e-6)


def draw_numbers(axes: Any, values: Tensor, scale: Scale, letters: float) -> None:
    """Draw values as colours with each number in its cell, −∞ on grey."""
    axes.set_facecolor("0.85")
    image = draw_image(axes, values.masked_fill(~values.isfinite(), torch.nan), scale)
    for y, row in enumerate(values.tolist()):
        for x, value in enumerate(row):
            infinite = value == -torch.inf
            red, green, blue, _ = (1, 1, 1, 1) if infinite else image.to_rgba(value)
            light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
            text, colour = "−∞" if infinite else two_digits(value), "black" if light else "white"
            axes.text(x, y, text, ha="center", va="center", fontsize=letters, color=colour)
