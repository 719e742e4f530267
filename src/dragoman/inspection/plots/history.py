"""Draw the history of a run in one figure: gradients, updates, entropies, and the cross-attention of one sentence."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dragoman.inspection.figure import MAX_INCHES, NUMBERS_UP_TO, WEIGHTS, Figure, draw_image, shorten_label
from dragoman.inspection.history import History, Snapshot
from dragoman.inspection.inspection import KINDS
from dragoman.text.speech import Say, say_english

SHOWN = 10  # snapshots in a figure; the page has them all

Rows = dict[str, list[float]]  # numbers by layer or head, at each snapshot


def history_figure(history: History, say: Say = say_english) -> Figure:
    """Return a figure of gradients, updates, entropies, and cross-attention at SHOWN snapshots at most."""
    snapshots = history.snapshots
    shown = select_snapshots(snapshots)
    steps = [f"{snapshot.step:,}" for snapshot in snapshots]
    gradients, updates = (
        {say(layer): row for layer, row in rows.items()} for rows in (history.gradients, history.updates)
    )
    heads = {kind: rows for kind in KINDS if (rows := history.entropies(kind))}
    across = min(len(shown), 5)
    down, columns = math.ceil(len(shown) / across), len(history.source)
    heights = (
        1.2 + 0.24 * len(gradients),
        1.2 + 0.17 * max(map(len, heads.values())),
        0.9 + down * (0.7 + 0.2 * len(history.target)),
    )
    width = max(12.0, 1.5 + across * (0.4 + 0.2 * columns))

    def draw(figure: Any) -> None:
        layers, attention, sentence = figure.subfigures(3, 1, height_ratios=heights)
        left, right = layers.subplots(1, 2)
        draw_table(left, gradients, log_shades(gradients), steps, say("Norm of the gradient"), say("step"))
        title = say("Relative change of the parameters since the checkpoint before")
        draw_table(right, updates, log_shades(updates), steps[1:], title, say("step"))
        for axes, (kind, entropies) in zip(np.ravel(attention.subplots(1, len(heads))), heads.items(), strict=True):
            draw_table(axes, entropies, entropies, steps, say(f"Normalised entropy, {KINDS[kind]}"), say("step"))
            axes.set_ylabel(say("layer.head"), fontsize=8)
        panels = sentence.subplots(down, across, sharex=True, sharey=True, squeeze=False)
        for axes in panels.flat[len(shown) :]:
            axes.set_visible(False)
        for axes, snapshot in zip(panels.flat, shown, strict=False):
            draw_image(axes, history.map(snapshot), WEIGHTS)
            axes.set_title(say(f"step {snapshot.step:,}"), fontsize=9)
            axes.set_xticks(range(columns), map(shorten_label, history.source), rotation=90, fontsize=7)
            axes.set_yticks(range(len(history.target)), map(shorten_label, history.target), fontsize=7)
            axes.tick_params(length=0)

    caption = (
        f"{history.run}: gradients and entropies over {history.pairs:,} pairs. Norms: shades are logarithmic. "
        "Normalised entropy (divided by ln n): 0 if a head attends to one token, 1 if to all equally. Below: "
        f"cross-attention, {history.head_name}, from 0 (white) to 1 (dark); each row is a word of the target and sums "
        "to 1"
    )
    return Figure(say(caption), draw, (min(width, MAX_INCHES), min(sum(heights) + 0.5, MAX_INCHES)))


def select_snapshots(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """Return SHOWN of the snapshots, evenly spaced, the first and the last among them; all where there are fewer."""
    indices = np.linspace(0, len(snapshots) - 1, min(len(snapshots), SHOWN)).round().astype(int)
    return [snapshots[index] for index in indices]


def log_shades(rows: Rows) -> Rows:
    """Return the logarithm of each number, scaled from 0, the lowest, to 1, the highest; 0 stays 0."""
    logarithms = [math.log(value) for row in rows.values() for value in row if value > 0]
    low, high = min(logarithms, default=0.0), max(logarithms, default=0.0)
    width = (high - low) or 1.0
    return {
        name: [(math.log(value) - low) / width if value > 0 else 0.0 for value in row] for name, row in rows.items()
    }


def draw_table(axes: Any, rows: Rows, shades: Rows, steps: list[str], title: str, step: str) -> None:
    """Draw a map on `axes` with a row for each layer or head and a column for each snapshot.

    `shades`, from 0 to 1, are the colours; the numbers of `rows` are written into the cells where they fit. steps: the
    labels of the columns, which stand for `step`.
    """
    draw_image(axes, torch.tensor(list(shades.values())), WEIGHTS)
    spacing = math.ceil(len(steps) / SHOWN)
    axes.set_xticks(range(0, len(steps), spacing), steps[::spacing], fontsize=8)
    axes.set_yticks(range(len(rows)), [name.replace(" = ", " =\n") for name in rows], fontsize=7)
    axes.tick_params(length=0)
    axes.set_xlabel(step, fontsize=8)
    axes.set_title(title, fontsize=9)
    if len(steps) <= NUMBERS_UP_TO:
        for y, name in enumerate(rows):
            for x, (value, shade) in enumerate(zip(rows[name], shades[name], strict=True)):
                colour = "white" if shade > 0.55 else "black"
                axes.text(x, y, f"{value:.2g}", ha="center", va="center", fontsize=6.5, color=colour)
