"""dragoman plot"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dragoman.commands import folders_first, parse
from dragoman.errors import DragomanError, UsageError
from dragoman.text.speech import Language, speaker


@dataclass(frozen=True)
class Options:
    """Draw the curves of training runs in one figure (losses, BLEU, chrF, learning rate, speed) and print its name.

    $ dragoman plot runs/first
    $ dragoman plot runs/first runs/second --against time --out curves.png
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ...")]
    "run folders, which may still be training; -m RUN is the same"
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("curves.svg")
    "figure to draw: .svg, .png or .pdf"
    against: Literal["steps", "time", "tokens"] = "steps"
    "draw against steps, time spent in training, or target tokens seen"
    language: Language = "en"
    "language of the titles"


def main(arguments: list[str]) -> None:
    """Run `dragoman plot`: draw the curves of runs into one figure, and print its name.

    Among several folders, those without metrics are left out. Raise DragomanError where none is left or one is missing.
    """
    options = parse(Options, "plot", folders_first(arguments))
    if not options.runs:
        raise UsageError("give a run folder: dragoman plot runs/mine")
    from dragoman.data.corpus import name_lines
    from dragoman.inspection import CATALOGUE
    from dragoman.inspection.figure import check_format
    from dragoman.inspection.plots.training import Metrics, draw_curves, names_of, read_metrics

    check_format(options.out)
    folders = list(dict.fromkeys(options.runs))
    runs: dict[str, Metrics] = {}
    for name, folder in zip(names_of(folders), folders, strict=True):
        try:
            runs[name] = read_metrics(folder)
        except DragomanError as error:
            if len(folders) == 1 or not folder.exists():
                raise
            print(f"{error}; left out", file=sys.stderr)
            continue
        if damaged := runs[name].damaged:
            print(f"{folder / 'metrics.jsonl'}: skipped {name_lines(damaged)}: damaged", file=sys.stderr)
    if not runs:
        raise DragomanError("no run to draw")
    draw_curves(runs, options.out, options.against, speaker(options.language, CATALOGUE))
    print(options.out)
