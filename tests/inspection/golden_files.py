"""Golden files: what was drawn or shown, as JSON. `GOLDEN=write pytest tests/inspection` writes them anew."""

import difflib
import json
import math
import os
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator

from dragoman.inspection.figure import Figure, drawing_settings

GOLDEN = Path(__file__).parent / "golden"
LINE = 150  # characters that a value of a golden file has in one line


def check_golden(name: str, shown: object) -> None:
    """Compare with the golden file of this name, or write it."""
    file, text = GOLDEN / f"{name}.json", in_lines(rounded(shown)) + "\n"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(text, encoding="utf-8")
    golden = file.read_text(encoding="utf-8") if file.exists() else ""
    if text != golden:
        lines = (part.splitlines() for part in (golden, text))
        diff = list(difflib.unified_diff(*lines, f"golden/{name}.json", "now", lineterm="", n=1))
        pytest.fail("\n".join([*diff[:60], f"({len(diff)} lines differ; GOLDEN=write accepts them)"]), pytrace=False)


def rounded(value: Any) -> Any:
    """Return JSON types, with numbers in three digits: the last ones differ between processors."""
    if isinstance(value, dict):
        return {str(key): rounded(each) for key, each in value.items() if each not in ("", [], {}, None)}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    if isinstance(value, str | bool | int | None):
        return value
    number = float(value)
    if not math.isfinite(number):
        return str(number)
    number = float(f"{round(number, 5):.3g}") + 0.0  # not -0.0
    return int(number) if number.is_integer() else number


def in_lines(value: Any, indent: str = "") -> str:
    """Return JSON in which each value that is short stands in one line."""
    short = json.dumps(value, ensure_ascii=False)
    if len(short) <= LINE or not isinstance(value, dict | list):
        return short
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key, ensure_ascii=False)}: {in_lines(each, indent + ' ')}" for key, each in value.items()
        ]
    else:
        parts = [in_lines(each, indent + " ") for each in value]
    ends = "{}" if isinstance(value, dict) else "[]"
    return ends[0] + "\n" + ",\n".join(f"{indent} {part}" for part in parts) + f"\n{indent}{ends[1]}"


def describe(figure: Figure) -> dict[str, Any]:
    """Draw a figure and return what it shows."""
    with matplotlib.rc_context(drawing_settings()):
        canvas = Canvas(figsize=figure.size, layout="constrained")
        figure.draw(canvas)
    return {"caption": figure.caption, "size": figure.size, **describe_canvas(canvas)}


def describe_canvas(canvas: Canvas) -> dict[str, Any]:
    """Return what a figure of matplotlib shows, without what depends on typefaces."""
    legends = [text.get_text() for legend in canvas.legends for text in legend.get_texts()]
    return {"legend": legends, "panels": [describe_axes(axes) for axes in canvas.axes if axes.get_visible()]}


def describe_axes(axes: Any) -> dict[str, Any]:
    """Return what one panel shows: its words, its numbers, and what tells them apart."""
    legend = axes.get_legend()
    return {
        "title": "".join(getattr(axes, name).get_text() for name in ("title", "_left_title") if hasattr(axes, name)),
        "labels": [label for label in (axes.get_xlabel(), axes.get_ylabel()) if label],
        "limits": [axes.get_xlim(), axes.get_ylim()],
        "hidden": None if axes.axison else True,
        "x": ticks(axes.xaxis),
        "y": ticks(axes.yaxis),
        "also": [describe_axes(other) for other in axes.child_axes],
        "images": [[image.get_cmap().name, image.get_clim(), rows(image.get_array())] for image in axes.images],
        "lines": [describe_line(line) for line in axes.lines],
        "texts": [describe_text(text) for text in axes.texts],
        "shapes": [[to_hex(patch.get_facecolor(), True), patch.get_linestyle(), patch.get_hatch(), corners(patch)]
                   for patch in axes.patches],
        "points": [rows(points.get_offsets()) for points in axes.collections],
        "legend": [text.get_text() for text in legend.get_texts()] if legend else [],
        "tables": [
            [[*place, cell.get_text().get_text(), to_hex(cell.get_facecolor())] for place, cell in cells.items()]
            for cells in (table.get_celld() for table in axes.tables)
        ],
    }  # fmt: skip


def describe_line(line: Any) -> list[Any]:
    """Return the name of a line in the legend, its look, and the x and y of its points."""
    look = [line.get_linestyle(), line.get_marker(), line.get_linewidth(), line.get_alpha(), line.get_markevery()]
    name = line.get_label().removeprefix("_").partition("child")[0]
    return [name, to_hex(line.get_color()), *look, [*line.get_xdata()], [*line.get_ydata()]]


def ticks(axis: Any) -> list[Any]:
    """Return the ticks of an axis and their labels, where the figure says which they are."""
    if not isinstance(axis.get_major_locator(), FixedLocator):
        return []
    values = [float(value) for value in axis.get_ticklocs()]
    labels = axis.get_major_formatter().format_ticks(values)
    return [[value, label] for value, label in zip(values, labels, strict=True)]


def describe_text(text: Any) -> list[Any]:
    """Return where a text stands, what it says, and its look; of an arrow, its ends."""
    box = text.get_bbox_patch()
    look = [to_hex(text.get_color()), text.get_ha()]
    if box:
        look += [
            type(box.get_boxstyle()).__name__,
            box.get_linestyle(),
            box.get_linewidth(),
            to_hex(box.get_facecolor()),
        ]
    return [*(text.xy if hasattr(text, "xy") else ()), *text.get_position(), text.get_text(), *look]


def corners(patch: Any) -> list[Any]:
    """Return the corners of a polygon, or of a rectangle the two opposite ones."""
    points = patch.get_xy()
    return rows(points) if len(points) > 2 else [*points, points[0] + patch.get_width(), points[1] + patch.get_height()]


def rows(array: Any) -> list[Any]:
    """Return the rows of a masked array."""
    return array.filled(math.nan).tolist() if hasattr(array, "filled") else array.tolist()
