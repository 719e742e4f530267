"""The positional encoding as a map, as curves, and as products.

Shapes: P positions, D dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dragoman.errors import UsageError
from dragoman.inspection.figure import Picture, show, signed
from dragoman.inspection.plots.training import style
from dragoman.model import Model
from dragoman.model.positions import Learned, Relative, Rotary, Sinusoidal, sinusoids
from dragoman.model.transformer import Transformer

PLACES = 4  # whose products with all others are drawn


@dataclass(frozen=True)
class Encoding:
    """What is added to the word at each position."""

    scheme: str  # as the model's settings name it
    table: Tensor  # P D


def added(model: Model, positions: int) -> Encoding | None:
    """What the encoder adds to words, at most `positions` of them; None where positions are told in another way."""
    if not isinstance(model, Transformer) or not isinstance(model.encoder_positions, Sinusoidal | Learned):
        return None
    config = model.config
    if isinstance(model.encoder_positions, Learned):
        positions = min(positions, config.max_length)
    nothing = next(model.parameters()).new_zeros(1, positions, config.d_model)
    with torch.no_grad():
        return Encoding(config.positions, model.encoder_positions.embed(nothing, 0)[0].float().cpu())


def of_model(model: Model, positions: int, about: str) -> Picture:
    """How the encoder of a model tells positions apart. Raises UsageError for one that does not."""
    if found := added(model, positions):
        caption = f"{found.scheme} positions of the encoder, added to the embeddings of words; {about}"
        return encoding(found.table, "What is added to the word at each position", caption)
    scheme = model.encoder_positions if isinstance(model, Transformer) else None
    if isinstance(scheme, Rotary):
        table = sinusoids(positions, scheme.table.size(1))
        caption = f"rotary positions: sines (even) and cosines (odd) of the angles; {about}"
        return encoding(table, "How queries and keys are turned at each position", caption)
    if isinstance(scheme, Relative):
        caption = f"relative positions of the encoder, learned, the same in all layers; {about}"
        return by_distance(scheme.scores.weight.T, scheme.reach, "What is added to scores, by distance", caption)
    raise UsageError("this model is told nothing about positions, so there is nothing to draw")


def encoding(table: Tensor, title: str, caption: str) -> Picture:
    """A table (P, D) of one vector per position: all of it, some dimensions by position, and products of rows."""
    positions, dimensions = table.shape
    table = table.detach().float().cpu()
    chosen = sorted({0, dimensions // 8, dimensions // 4, dimensions // 2})  # short waves and long ones
    most = max(float(table.abs().max()), 1e-6)
    products = table @ table.T

    def draw(figure: Any) -> None:
        whole, curves, near = figure.subplots(3, 1, gridspec_kw={"height_ratios": (3, 2, 2)})
        image = show(whole, table, signed("value", most))
        whole.set_xlabel("dimension, from 0")
        whole.set_ylabel("position, from 0")
        whole.set_title(title, fontsize=11)
        figure.colorbar(image, ax=whole, label="value")
        for number, dimension in enumerate(chosen):
            curves.plot(
                table[:, dimension], label=f"dimension {dimension}", markevery=every(positions), **style(number)
            )
        curves.set_xlabel("position, from 0")
        curves.set_ylabel("value")
        for number, position in enumerate(spread(positions)):
            near.plot(products[position], label=f"position {position}", markevery=every(positions), **style(number))
        near.set_xlabel("the other position, from 0")
        near.set_ylabel("dot product")
        for axes in (curves, near):
            axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
            axes.grid(color="0.9", linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)

    return Picture(caption, draw, (9.0, 9.0))


def by_distance(scores: Tensor, reach: int, title: str, caption: str) -> Picture:
    """What is added to the scores of each head, (H, 2 * reach + 1), by distance: key minus query, from -reach."""
    scores = scores.detach().float().cpu()

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        distances = range(-reach, reach + 1)
        for head, row in enumerate(scores):
            axes.plot(distances, row, label=f"head {head + 1}", markevery=every(len(distances)), **style(head))
        axes.set_xlabel("distance: place of the key minus place of the query; what is further counts as the last")
        axes.set_ylabel("added to the score")
        axes.set_title(title, fontsize=11)
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        axes.grid(color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)

    return Picture(caption, draw, (9.0, 4.0))


def spread(count: int) -> Sequence[int]:
    """A few of 0, 1, ..., count - 1 that lie apart."""
    return sorted({int(place) for place in torch.linspace(0, count - 1, min(PLACES, count))})


def every(points: int) -> int:
    return points // 8 + 1  # a mark at a few points
