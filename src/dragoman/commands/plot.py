"""dragoman plot"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dragoman.commands import parse
from dragoman.errors import UsageError


@dataclass(frozen=True)
class Options:
    """Draw the curves of training runs in one figure (losses, BLEU, chrF, learning rate, speed) and print its name.

    $ dragoman plot runs/first
    $ dragoman plot runs/first runs/second --against time --out curves.png
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN [RUN ...]")]
    "run folders; they may still be training"
    out: Path = Path("curves.svg")
    "figure to draw: .svg, .png or .pdf"
    against: Literal["steps", "time", "tokens"] = "steps"
    "draw against steps, time spent in training, or target tokens seen"


def main(arguments: list[str]) -> None:
    """Run `dragoman plot`: draw the curves of runs into one figure, and print its name."""
    options = parse(Options, "plot", arguments)
    if not options.runs:
        raise UsageError("give a run folder: dragoman plot runs/mine")
    from dragoman.data.corpus import name_lines
    from dragoman.inspection.plots.training import draw_curves, names_of, read_metrics

    folders = list(dict.fromkeys(options.runs))
    runs = {name: read_metrics(folder) for name, folder in zip(names_of(folders), folders, strict=True)}
    for folder, metrics in zip(folders, runs.values(), strict=True):
        if metrics.damaged:
            print(f"{folder / 'metrics.jsonl'}: skipped {name_lines(metrics.damaged)}: damaged", file=sys.stderr)
    draw_curves(runs, options.out, options.against)
    print(options.out)
