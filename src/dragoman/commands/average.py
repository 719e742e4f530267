"""dragoman average"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dragoman.commands import parse
from dragoman.errors import DragomanError, UsageError, plural

# In nats per token of dev loss; docs/notes/quality.md has what worse checkpoints do to a mean.
MAX_WORSE = 0.05


@dataclass(frozen=True)
class Options:
    """Average the weights of several checkpoints into one model, and print its folder.

    Checkpoints of a run that are much worse than the best of them are left out.

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
    """Run `dragoman average`: write the mean of checkpoints as a model folder, and print its name.

    Raise DragomanError where a run has no checkpoints yet.
    """
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
            print(f"{path}: {plural(len(newest), 'checkpoint')} kept, not {options.last}", file=sys.stderr)
        losses = dev_losses(path, newest)
        best = min(losses.values())
        for folder, loss in losses.items():
            if loss > best + MAX_WORSE:
                found = "not validated" if math.isinf(loss) else f"dev loss {loss:.2f}, the lowest is {best:.2f}"
                print(f"{folder}: left out: {found}", file=sys.stderr)
            else:
                folders.append(folder)
    average(folders, options.out)
    print(options.out)


def dev_losses(run: Path, folders: Sequence[Path]) -> dict[Path, float]:
    """Return the dev loss of each checkpoint of a run, in nats per token.

    Of a checkpoint between two validations, such as that of an interruption, it is the loss at the first of them;
    infinity before the first validation.
    """
    from dragoman.inspection.plots.training import read_metrics

    rows = read_metrics(run).points("validation", "step", "loss") if (run / "metrics.jsonl").exists() else []
    steps = {folder: int(folder.name.split("-")[1]) for folder in folders}
    return {
        folder: next((loss for step, loss in reversed(rows) if step <= steps[folder]), math.inf) for folder in folders
    }
