"""Write the history of a run as one HTML file with everything in it: cross-attention with a slider, and all numbers."""

import base64
import json
from dataclasses import dataclass

import torch

from dragoman.inspection import CATALOGUE
from dragoman.inspection.history import History
from dragoman.inspection.inspection import KINDS
from dragoman.inspection.page import read_web_file, render_page
from dragoman.inspection.plots.history import Rows, log_shades
from dragoman.text.speech import speaker
from dragoman.version import __version__

LEVELS = 2**16 - 1  # the page holds weights as 16-bit integers; this one stands for 1


@dataclass(frozen=True)
class Cell:
    """A number of the page, and how dark its cell is, from 0 to 1."""

    text: str
    shade: float


def history_page(history: History) -> str:
    """Return the HTML page of a history."""
    snapshots = history.snapshots
    entropies = {kind: rows for kind in KINDS if (rows := history.entropies(kind))}
    maps = torch.stack([snapshot.cross_attention for snapshot in snapshots])  # snapshots L H W U
    levels = (maps.double() * LEVELS).round().numpy().astype("<u2")
    return render_page(
        "history",
        ("theme.css", "history.css"),
        strings=json.loads(read_web_file("history.json")),
        history=history,
        korean=speaker("ko", CATALOGUE),
        version=__version__,
        gradients=shade_cells(history.gradients, log_shades(history.gradients), ".3g"),
        updates=shade_cells(history.updates, log_shades(history.updates), ".3g"),
        heads={kind: shade_cells(rows, rows, ".2f") for kind, rows in entropies.items()},
        data={
            "steps": [snapshot.step for snapshot in snapshots],
            "losses": [round(snapshot.loss, 3) for snapshot in snapshots],
            "shape": list(maps.shape),
            "scale": LEVELS,
            "weights": base64.b64encode(levels.tobytes()).decode(),
            "layer": history.head.layer,
            "head": history.head.head or 0,
        },
    )


def shade_cells(rows: Rows, shades: Rows, digits: str) -> dict[str, list[Cell]]:
    """Return the cells of each row: its numbers, in a format such as '.2f' (`digits`), and their shades, 0 to 1."""
    return {
        name: [Cell(format(value, digits), shade) for value, shade in zip(row, shades[name], strict=True)]
        for name, row in rows.items()
    }
