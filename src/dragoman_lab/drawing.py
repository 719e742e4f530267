"""Draw figures from data: curves with their spread over seeds, bars, and heat maps. Axes are matplotlib's."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np
from torch import Tensor

from dragoman.inspection.plots.training import COLOURS, style
from dragoman_lab.experiment import Figure
from dragoman_lab.tasks import Learned

Draw = Callable[[Any], None]  # on a matplotlib figure
Curve = tuple[Any, ...]  # (x, y), or (x, y, lowest, highest), each a sequence of numbers
LOSS = "loss (nats per token)"


def mean_and_range(x: Any, runs: Any) -> Curve:
    """Return the curve of the mean of several runs (runs, points), with their lowest and highest value at each point of
    x.
    """
    values = np.asarray(runs, dtype=float)
    return x, values.mean(0), values.min(0), values.max(0)


@dataclass(frozen=True)
class Panel:
    """Describe one pair of axes and the curves on it."""

    curves: Mapping[str, Curve]  # by their names in the legend
    x: str  # what the axes show
    y: str = ""
    title: str = ""
    log: str = ""  # the axes that are logarithmic: "x", "y" or "xy"
    ticks: Sequence[float] | Mapping[int, str] = ()  # of the x axis, with labels where numbers are not the labels
    ylim: tuple[float | None, float | None] | None = None
    band: bool = False  # shade between lowest and highest, instead of bars
    level: float | None = None  # the height of a dotted line from left to right
    at: float | None = None  # where on the x axis a dotted line goes from top to bottom
    grey: tuple[float, float] | None = None  # the part of the x axis that is shaded
    also: Callable[[Any], object] = lambda axes: None  # what else is to be drawn on the axes

    def draw(self, axes: Any) -> None:
        """Draw the curves on matplotlib axes, with error bars or, if `band`, a shaded band where they have low and high
        ends. Does not apply `ylim`: `lines` does.
        """
        for index, (name, (x, y, *ends)) in enumerate(self.curves.items()):
            look, step = style(index), max(1, len(x) // 8 if len(x) > 16 else 1)
            marks = (index % step, step)
            if ends and not self.band:
                low, high = (abs(np.asarray(end) - np.asarray(y)) for end in ends)
                axes.errorbar(x, y, [low, high], errorevery=marks, markevery=marks, capsize=2, label=name, **look)
                continue
            axes.plot(x, y, label=name, markevery=marks, **look)
            if ends:
                axes.fill_between(x, *ends, color=look["color"], alpha=0.15, linewidth=0)
        if "x" in self.log:
            axes.set_xscale("log")
        if "y" in self.log:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:,g}")
        if self.ticks:
            labels = self.ticks if isinstance(self.ticks, Mapping) else {tick: f"{tick:,g}" for tick in self.ticks}
            axes.set_xticks(list(labels), list(labels.values()))
            axes.xaxis.minorticks_off()
        axes.set(xlabel=self.x, ylabel=self.y)
        axes.set_title(self.title, fontsize=10)
        axes.grid(color="0.9", linewidth=0.6)
        dotted = {"color": "0.4", "linestyle": ":", "linewidth": 1}
        if self.level is not None:
            axes.axhline(self.level, **dotted)
        if self.at is not None:
            axes.axvline(self.at, **dotted)
        if self.grey:
            axes.axvspan(*self.grey, color="0.92", zorder=0)
        self.also(axes)


def lines(*panels: Panel, rows: int = 1, sharex: bool = False, sharey: bool | str = False, legend: str = "in") -> Draw:
    """Return a function that draws panels on a figure, in `rows` rows of equal length. legend: "in" the first panel, in
    "each", or "above" them all with the names of the first panel.
    """

    def draw(figure: Any) -> None:
        grid = figure.subplots(rows, len(panels) // rows, squeeze=False, sharex=sharex, sharey=sharey)
        for axes, panel in zip(grid.flat, panels, strict=True):
            panel.draw(axes)
        for axes, panel in zip(grid.flat, panels, strict=True):
            if panel.ylim:
                axes.set_ylim(*panel.ylim)  # last, since it stops axes that are shared from growing with their curves
        if legend == "above":
            handles = grid[0, 0].get_legend_handles_labels()
            figure.legend(*handles, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
            return
        for axes in grid.flat if legend == "each" else grid.flat[:1]:
            if len(axes.get_legend_handles_labels()[1]) > 1:
                axes.legend(frameon=False, fontsize=8)

    return draw


def mean_curve(runs: Sequence[Sequence[float]], width: int = 20) -> tuple[list[float], list[float], list[float]]:
    """Return, for each window of `width` steps, the step in its middle, the mean of all runs, and the standard
    deviation between runs (0 for one run). runs: a value for each step, all of one length; a shorter `width` is used
    where they have fewer steps. Steps that do not fill a last window are left out.
    """
    width = min(width, len(runs[0]))
    starts = range(0, len(runs[0]) - width + 1, width)
    means = [[fmean(run[start : start + width]) for run in runs] for start in starts]
    deviations = [stdev(values) if len(values) > 1 else 0.0 for values in means]
    return [start + width / 2 for start in starts], [fmean(values) for values in means], deviations


def learning_panel(runs: Mapping[str, Sequence[Learned]], title: str = "") -> Panel:
    """Return a panel of training losses: for each name the mean of its runs, over windows of 20 steps, with bars of a
    standard deviation where several runs differ.
    """
    curves: dict[str, Curve] = {}
    for name, learned in runs.items():
        steps, means, deviations = mean_curve([run.losses for run in learned])
        bars = [np.subtract(means, deviations), np.add(means, deviations)] if any(deviations) else []
        curves[name] = (steps, means, *bars)
    return Panel(curves, "step", f"training {LOSS}", title, ylim=(0, None))


def losses_figure(runs: Mapping[str, Sequence[Learned]]) -> Figure:
    """Return the figure of training losses by step. runs: by the name of the model, one for each seed."""
    return Figure(
        "Training loss by step: the mean over seeds; if there are several, bars show a standard deviation.",
        lines(learning_panel(runs)),
    )


def layer_panel(quantity: str, curves: Mapping[str, Sequence[float]], log: str = "y") -> Panel:
    """Return a panel of `quantity` by layer. curves: by name, a value for each layer from the bottom; log: the
    logarithmic axes.
    """
    numbered = {name: (range(1, len(values) + 1), values) for name, values in curves.items()}
    layers = range(1, 1 + max(len(values) for values in curves.values()))
    return Panel(numbered, "layer, from the bottom", quantity, log=log, ticks=layers[:: 1 + len(layers) // 8])


def draw_bars(axes: Any, labels: Sequence[str], series: Mapping[str, Sequence[float]], numbers: str = "") -> None:
    """Draw a group of bars for each label on matplotlib axes, one bar for each series. numbers: the format of the
    values above the bars; empty: none.
    """
    width = 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        positions = [group + width * index for group in range(len(labels))]
        look = {"color": COLOURS[index], "edgecolor": "black", "hatch": ("", "//")[index % 2]}
        drawn = axes.bar(positions, values, 0.9 * width, label=name, **look)
        if numbers:
            axes.bar_label(drawn, fmt=numbers, fontsize=7)
    axes.set_xticks([group + width * (len(series) - 1) / 2 for group in range(len(labels))], labels)
    axes.legend(frameon=False, fontsize=8)


@dataclass(frozen=True)
class HeatMap:
    """Describe a matrix drawn as cells, which are the darker the further their numbers are from 0."""

    values: Tensor
    title: str = ""
    rows: Sequence[Any] = ()  # labels
    columns: Sequence[Any] = ()
    numbers: str = ""  # the format of the numbers in the cells; empty: none
    x: str = ""  # what the axes show
    y: str = ""
    most: float = 0.0  # the number that is darkest; 0: the largest
    signed: bool = False  # two colours, for numbers below and above 0

    def draw(self, axes: Any) -> Any:
        """Draw the matrix on matplotlib axes, grey where a number is not finite; return the image, which a colour bar
        needs.
        """
        values = np.ma.masked_invalid(self.values.detach().numpy())
        most = self.most or float(abs(values).max()) or 1.0
        axes.set_facecolor("0.85")  # of cells without a finite number
        colours, lowest = ("PuOr", -most) if self.signed else ("Blues", 0)
        image = axes.imshow(values, cmap=colours, vmin=lowest, vmax=most, aspect="auto", interpolation="nearest")
        if self.columns or self.rows:
            axes.set_xticks(range(len(self.columns)), self.columns, fontsize=8)
            axes.set_yticks(range(len(self.rows)), self.rows, fontsize=8)
            axes.tick_params(length=0)
        axes.set(xlabel=self.x, ylabel=self.y)
        axes.set_title(self.title, fontsize=9)
        for y, row in enumerate(self.values.tolist() if self.numbers else ()):
            for x, number in enumerate(row):
                dark = math.isfinite(number) and abs(number) > 0.65 * most
                text = "−∞" if number == -math.inf else format(number, self.numbers)
                axes.text(x, y, text, ha="center", va="center", fontsize=7, color="white" if dark else "black")
        return image


def heat_maps(*maps: HeatMap, colorbar: str = "", widths: Sequence[float] | None = None) -> Draw:
    """Return a function that draws matrices side by side on a figure. colorbar: the label of one colour bar, that of
    the last map, or none; widths: of the maps, relative to one another.
    """

    def draw(figure: Any) -> None:
        grid = figure.subplots(1, len(maps), squeeze=False, width_ratios=widths)[0]
        images = [heat_map.draw(axes) for axes, heat_map in zip(grid, maps, strict=True)]
        if colorbar:
            figure.colorbar(images[-1], ax=grid, shrink=0.8, label=colorbar)

    return draw
