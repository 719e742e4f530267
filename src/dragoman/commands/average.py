"""dragoman average"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dragoman.commands import parse
from dragoman.errors import DragomanError, UsageError


@dataclass(frozen=True)
class Options:
    """Average the weights of several checkpoints into one model, which is often better, and print its folder.

    $ dragoman average runs/en-ko --out runs/en-ko-average
    $ dragoman average runs/en-ko/checkpoints/step-00004000 runs/en-ko/best --out runs/en-ko-average
    """

    models: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN|CHECKPOINT ...")]
    "run folders (their last checkpoints are averaged), single checkpoints or other model folders"
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    "new model folder"
    last: int = 5
    "number of checkpoints from each run"


def main(arguments: list[str]) -> None:
    """Run `dragoman average`: write the mean of checkpoints as a model folder, and print its name."""
    options = parse(Options, "average", arguments)
    if not options.models:
        raise UsageError("give a run folder: dragoman average runs/mine --out runs/mine-average")
    if options.last < 1:
        raise UsageError(f"last must be at least 1, not {options.last}")
    from dragoman.training.average import average
    from dragoman.training.checkpoint import checkpoints

    folders: list[Path] = []
    for path in options.models:
        if not (path / "checkpoints").is_dir():
            folders.append(path)
            continue
        newest = checkpoints(path)[: options.last]
        if not newest:
            raise DragomanError(f"{path}: no checkpoints yet")
        if len(newest) < options.last:
            print(f"{path}: only {len(newest)} checkpoints were kept, not {options.last}", file=sys.stderr)
        folders += newest
    average(folders, options.out)
    print(options.out)
