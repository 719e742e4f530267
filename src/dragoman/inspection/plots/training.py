"""Draw the curves of training runs in one figure. Needs the extra `plot`."""

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dragoman.errors import DragomanError
from dragoman.inspection.figure import check_format, pyplot, say_words
from dragoman.model_folder.manifest import refuse_links_out
from dragoman.text.speech import Say, say_english

Against = Literal["steps", "time", "tokens"]

# The field of a row of metrics.jsonl that it is drawn against.
AXES: dict[Against, str] = {"steps": "step", "time": "seconds", "tokens": "target_tokens"}
MAX_LOSS = 20.0  # nats: above it, perplexities have no marks

# Okabe and Ito's colours, which people with any kind of colour vision tell apart, without the yellow. Colours, lines
# and marks change together, in cycles of 7, 4 and 5: the first 4 runs differ in black and white, too, 140 in colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9")
LINES = ("-", "--", "-.", ":")
MARKS = ("o", "s", "^", "D", "v")


@dataclass(frozen=True)
class Panel:
    """A panel with one curve per run: a value of the rows of one event."""

    title: str
    event: str
    value: str
    from_zero: bool = False  # whether its axis begins at 0


DEV_LOSS = Panel("Dev loss (nats per token); on the right: perplexity", "validation", "loss")
PANELS = (
    Panel("Training loss (nats per token, with label smoothing)", "step", "loss"),
    DEV_LOSS,
    Panel("Dev BLEU", "validation", "bleu", True),
    Panel("Dev chrF2", "validation", "chrf", True),
    Panel("Learning rate", "step", "rate"),
    Panel("Target tokens per second", "step", "tokens_per_second", True),
)


@dataclass(frozen=True)
class Metrics:
    """Index what a run recorded: its rows by (event, step), in the order of steps; numbers only."""

    rows: dict[tuple[str, int], dict[str, float]]
    damaged: list[int]  # lines that could not be read, counted from 1

    def points(self, event: str, x: str, y: str) -> list[tuple[float, float]]:
        """Return (x, y) of all rows of that event that have both fields, in the order of steps."""
        return [(row[x], row[y]) for (kind, _), row in self.rows.items() if kind == event and x in row and y in row]


def read_metrics(run: Path) -> Metrics:
    """Read the metrics of a run folder. Of a step that was repeated after an interruption, the last row counts.

    Raise DragomanError where there is no such run or where it has not recorded anything yet.
    """
    file = run / "metrics.jsonl"
    if not run.is_dir():
        raise DragomanError(f"{run}: no such run folder")
    refuse_links_out(run)
    if not (file.exists() or (run / "config.toml").exists()):
        hint = f"; for the runs in it: {shlex.quote(str(run))}/*" if any(run.glob("*/config.toml")) else ""
        raise DragomanError(f"{run}: not a run folder of dragoman train{hint}")
    rows: dict[tuple[str, int], dict[str, float]] = {}
    damaged: list[int] = []
    if file.exists():
        with file.open(encoding="utf-8", errors="replace", newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                if row := parse_row(line):
                    rows[row[0], row[1]] = row[2]
                else:
                    damaged.append(number)
    if not rows:
        raise DragomanError(f"{file}: no metrics yet; a run records them every 50 steps and at each validation")
    return Metrics(dict(sorted(rows.items())), damaged)


def parse_row(line: str | bytes) -> tuple[str, int, dict[str, float]] | None:
    """Return the event, the step and the finite numbers of a line of metrics.jsonl; None where it is damaged."""
    try:
        row = json.loads(line)
        numbers = {
            name: float(value) for name, value in row.items() if isinstance(value, int | float) and math.isfinite(value)
        }
        return str(row["event"]), int(row["step"]), numbers
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, AttributeError):
        return None


def names_of(runs: Sequence[Path]) -> list[str]:
    """Return the name of each folder; where any two have the same one, the paths of all as they were given."""
    names = [run.resolve().name for run in runs]
    return names if len(set(names)) == len(names) else [str(run) for run in runs]


def draw_curves(runs: dict[str, Metrics], path: Path, against: Against = "steps", say: Say = say_english) -> None:
    """Draw the curves of `runs`, by name, to a file whose format is its suffix. say: says the titles in a language.

    Raise UsageError for another format, DragomanError for a run that recorded nothing against that axis.
    """
    check_format(path)
    curves = {
        panel: {name: run.points(panel.event, AXES[against], panel.value) for name, run in runs.items()}
        for panel in PANELS
    }
    for name in runs:
        if not any(points[name] for points in curves.values()):
            raise DragomanError(f"{name}: its metrics have no curve to draw against {against}")
    shown = {panel: points for panel, points in curves.items() if any(points.values())}
    furthest = max(x for points in shown.values() for curve in points.values() for x, _ in curve)
    label, unit = axis_unit(against, furthest)
    plt = pyplot()
    height = math.ceil(len(shown) / 2)
    size = {"figsize": (11, 0.7 + 2.8 * height), "layout": "constrained"}
    figure, grid = plt.subplots(height, 2, squeeze=False, sharex=True, **size)
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, (panel, points) in zip(grid.flat, shown.items(), strict=False):
        for index, curve in enumerate(points.values()):
            # A mark at each validation. Other curves have some to tell runs apart, not all at the same steps.
            spacing = 1 if panel.event == "validation" else len(curve) // 8 + 1
            marks = (index * spacing // len(points), spacing)
            look = style(index) if panel.event == "validation" or len(points) > 1 else style(index) | {"marker": ""}
            axes.plot([x / unit for x, _ in curve], [y for _, y in curve], markevery=marks, **look)
        axes.set_title(panel.title, fontsize=10, loc="left")
        axes.set_xlabel(label, fontsize=9)
        axes.xaxis.set_major_formatter("{x:,.10g}")
        axes.tick_params(labelsize=8, labelbottom=True)
        axes.grid(color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if panel.from_zero:
            axes.set_ylim(bottom=0)
        if panel == DEV_LOSS:
            right = axes.secondary_yaxis("right")
            right.set_yticks([math.log(value) for value in round_values(*axes.get_ylim())])
            right.yaxis.set_major_formatter(lambda loss, _: f"{math.exp(loss):,.10g}")
            right.tick_params(labelsize=8)
    handles = [plt.Line2D([], [], label=name, **style(index)) for index, name in enumerate(runs)]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=9)
    say_words(figure, say)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def round_values(low: float, high: float) -> list[float]:
    """Return about four round perplexities, such as 20, 50, 100, for losses from `low` to `high` in nats."""
    high = min(high, MAX_LOSS)
    inside: list[float] = []
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)):
        values = [step * 10.0**power for power in range(9) for step in steps]
        if len(inside := [value for value in values if low <= math.log(value) <= high]) >= 3:
            break
    return inside or [float(f"{math.exp((low + high) / 2):.2g}")]


def style(index: int) -> dict[str, Any]:
    """Return how the curve with this index is drawn, for matplotlib: colour, line and mark."""
    cycles = {"color": COLOURS, "linestyle": LINES, "marker": MARKS}
    return {"linewidth": 1.5, "markersize": 4, **{name: cycle[index % len(cycle)] for name, cycle in cycles.items()}}


def axis_unit(against: Against, furthest: float) -> tuple[str, float]:
    """Return the label of the horizontal axis, and its unit in what was recorded: 60.0 for minutes in seconds.

    furthest: the largest value, which decides between minutes and hours.
    """
    if against == "steps":
        return "step", 1.0
    if against == "tokens":
        return "target tokens, in millions", 1e6
    return ("hours of training", 3600.0) if furthest >= 2 * 3600 else ("minutes of training", 60.0)
