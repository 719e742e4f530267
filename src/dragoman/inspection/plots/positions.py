"""Draw the positional encoding as a map, as curves, and as dot products.

Shapes: P positions, D dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dragoman.errors import UsageError
from dragoman.inspection.figure import Figure, draw_image, signed_scale
from dragoman.inspection.plots.training import style
from dragoman.model import Model
from dragoman.model.positions import Positions, Relative, Rotary, RotaryAcross, sinusoids
from dragoman.model.transformer import Transformer

SHOWN = 4  # positions whose dot products with all others are drawn


@dataclass(frozen=True)
class PositionalEncoding:
    """The vectors that a scheme adds to the words at each position."""

    scheme: str  # as the model's settings name it
    table: Tensor  # P D


def added_positions(model: Model, positions: int) -> PositionalEncoding | None:
    """Return what the encoder adds to its first `positions` words, or to as many as it can; None for nothing."""
    if not isinstance(model, Transformer) or type(model.encoder_positions).embed is Positions.embed:
        return None
    config = model.config
    positions = min(positions, config.max_positions or positions)
    zeros = next(model.parameters()).new_zeros(1, positions, config.d_model)
    with torch.no_grad():
        table = model.encoder_positions.embed(zeros, config.first_position)[0].float().cpu()
    return PositionalEncoding(config.positions, table)


def position_figure(model: Model, positions: int, about: str) -> Figure:
    """Return a figure of the position scheme of the encoder at `positions` positions, or fewer if it has no more.

    about: the end of its caption. Raise UsageError for a scheme without a figure, and for a model without positions.
    """
    if table := added_positions(model, positions):
        caption = f"{table.scheme} positions of the encoder, added to the embeddings of words; {about}"
        return encoding_figure(table.table, "What is added to the word at each position", caption)
    scheme = model.encoder_positions if isinstance(model, Transformer) else None
    if isinstance(scheme, Rotary) and type(scheme) in (Rotary, RotaryAcross):
        angles = sinusoids(positions, scheme.table.size(1))
        caption = f"rotary positions: sines (even) and cosines (odd) of the angles; {about}"
        return encoding_figure(angles, "How queries and keys are rotated at each position", caption)
    if isinstance(scheme, Relative) and type(scheme) is Relative:
        caption = f"relative positions of the encoder, learned, the same in all layers; {about}"
        return distance_figure(scheme.scores.weight.T, scheme.reach, "What is added to scores, by distance", caption)
    if isinstance(model, Transformer) and model.config.positions != "none":
        raise UsageError(f"there is no figure for positions = '{model.config.positions}'")
    raise UsageError("this model has no positional encoding, so there is nothing to draw")


def encoding_figure(table: Tensor, title: str, caption: str) -> Figure:
    """Return a figure of vectors (P, D) by position: a map, some columns as curves, some rows' dot products."""
    positions, dimensions = table.shape
    table = table.detach().float().cpu()
    chosen = sorted({0, dimensions // 8, dimensions // 4, dimensions // 2})  # short waves and long ones
    limit = max(float(table.abs().max()), 1e-6)
    products = table @ table.T

    def draw(figure: Any) -> None:
        whole, curves, near = figure.subplots(3, 1, gridspec_kw={"height_ratios": (3, 2, 2)})
        image = draw_image(whole, table, signed_scale("value", limit))
        whole.set_xlabel("dimension, from 0")
        whole.set_ylabel("position, from 0")
        whole.set_title(title, fontsize=11)
        figure.colorbar(image, ax=whole, label="value")
        for axes, lines, indices, name, across, value in (
            (curves, table.T, chosen, "dimension", "position, from 0", "value"),
            (near, products, select_positions(positions), "position", "the other position, from 0", "dot product"),
        ):
            for number, index in enumerate(indices):
                axes.plot(lines[index], label=f"{name} {index}", markevery=tick_distance(positions), **style(number))
            axes.set_xlabel(across)
            axes.set_ylabel(value)
            axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
            axes.grid(color="0.9", linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)

    return Figure(caption, draw, (9.0, 9.0))


def distance_figure(scores: Tensor, reach: int, title: str, caption: str) -> Figure:
    """Return a figure of the scores (H, 2 * reach + 1) that each head adds by distance: a curve for each head.

    The distance, from -reach to reach, is the position of the key minus that of the query.
    """
    scores = scores.detach().float().cpu()

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        distances = range(-reach, reach + 1)
        for head, row in enumerate(scores):
            axes.plot(distances, row, label=f"head {head + 1}", markevery=tick_distance(len(distances)), **style(head))
        axes.set_xlabel("distance: position of the key minus that of the query; larger distances count as the last one")
        axes.set_ylabel("added to the score")
        axes.set_title(title, fontsize=11)
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        axes.grid(color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)

    return Figure(caption, draw, (9.0, 4.0))


def select_positions(count: int) -> Sequence[int]:
    """Return SHOWN evenly spaced numbers from 0 to count - 1, or all of them where there are fewer."""
    return sorted({int(position) for position in torch.linspace(0, count - 1, min(SHOWN, count))})


def tick_distance(points: int) -> int:
    """Return the distance, in points, between two marks of a curve of so many points: it gets eight at most."""
    return points // 8 + 1
