"""Figures that several experiments share. Axes are matplotlib's."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
from torch import Tensor

from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Figure
from dragoman.lab.tasks import Learned


def losses_figure(runs: Mapping[str, Sequence[Learned]]) -> Figure:
    """runs: for each name one for each seed."""
    return Figure(
        "losses",
        "Training loss by step: the mean of the seeds, and bars of a standard deviation where there are several.",
        lambda figure: draw_losses(figure, runs),
        (7.0, 4.0),
    )


def draw_losses(figure: Any, runs: Mapping[str, Sequence[Learned]]) -> None:
    axes = figure.subplots()
    draw_learning(axes, {name: [learned.losses for learned in seeds] for name, seeds in runs.items()})
    axes.legend(frameon=False, fontsize=8)


def smoothed(runs: Sequence[Sequence[float]], width: int = 20) -> tuple[list[float], list[float], list[float]]:
    """Steps, means over `width` steps and all runs, and the standard deviation between runs."""
    width = min(width, len(runs[0]))
    starts = range(0, len(runs[0]) - width + 1, width)
    means = [[fmean(run[start : start + width]) for run in runs] for start in starts]
    spread = [stdev(values) if len(values) > 1 else 0.0 for values in means]
    return [start + width / 2 for start in starts], [fmean(values) for values in means], spread


def draw_learning(axes: Any, losses: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """One curve for each name: the mean over its runs, and bars of a standard deviation where there are several."""
    for number, (name, runs) in enumerate(losses.items()):
        steps, means, spread = smoothed(runs)
        every = max(1, len(steps) // 8)
        axes.errorbar(steps, means, spread if any(spread) else None, errorevery=every, markevery=every, capsize=2,
                      label=name, **style(number))  # fmt: skip
    axes.set(xlabel="step", ylabel="training loss (nats per token)", ylim=(0, None))
    axes.grid(color="0.9", linewidth=0.6)


def draw_layers(figure: Any, panels: Mapping[str, Mapping[str, Sequence[float]]], logarithmic: bool = False) -> None:
    """One panel for each quantity, one curve for each kind: the quantity by layer, counted from 1."""
    from matplotlib.ticker import LogFormatter

    for axes, (quantity, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for index, (name, values) in enumerate(curves.items()):
            axes.plot(range(1, len(values) + 1), values, label=name, **style(index))
        if logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(LogFormatter())  # without markup, which our figures do not read
            axes.yaxis.set_minor_formatter(LogFormatter())
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("layer, from the bottom")
        axes.set_ylabel(quantity)
        axes.grid(color="0.9", linewidth=0.6)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)


def draw_matrix(axes: Any, matrix: Tensor, rows: Sequence[str], columns: Sequence[str], share: bool) -> None:
    """Numbers in their cells, which are the darker the further they are from 0. share: they are from 0 to 1."""
    shown = np.ma.masked_invalid(matrix.detach().numpy())
    most = 1.0 if share else float(abs(shown).max()) or 1.0
    axes.set_facecolor("0.85")  # of cells without a finite number
    axes.imshow(shown, cmap="Blues" if share else "PuOr", vmin=0 if share else -most, vmax=most, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for y, row in enumerate(matrix.tolist()):
        for x, number in enumerate(row):
            dark = math.isfinite(number) and abs(number) > 0.65 * most
            text = "−∞" if number == -math.inf else f"{number:.4f}" if share else f"{number:.4g}"
            axes.text(x, y, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
