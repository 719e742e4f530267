"""dragoman average"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dragoman.commands import folders_first, parse
from dragoman.errors import DragomanError, UsageError, plural

# In nats per token of dev loss; docs/notes/quality.md has what worse checkpoints do to a mean.
MAX_WORSE = 0.05
SHOWN = (("loss", "loss", 2), ("bleu", "BLEU", 1), ("chrf", "chrF2", 1))  # of a validation, with digits


@dataclass(frozen=True)
class Options:
    """Average the weights of several checkpoints into one model, and print its folder.

    Of the last checkpoints of a run, those that are much worse than the best of them are left out. The dev scores of
    each are shown.

    $ dragoman average runs/en-ko --out runs/en-ko-average
    $ dragoman average runs/en-ko/checkpoints/step-00004000 runs/en-ko/best --out runs/en-ko-average
    """

    models: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN|CHECKPOINT ...")]
    "run folders (averages their last checkpoints), checkpoints or other model folders; -m FOLDER is the same"
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    "new model folder"
    last: int = 5
    "number of checkpoints from each run"
    all: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "average the last checkpoints however much worse some are, which is the paper's rule"


def main(arguments: list[str]) -> None:
    """Run `dragoman average`: write the mean of checkpoints as a model folder, and print its name.

    Raise DragomanError where a run has no checkpoints yet.
    """
    options = parse(Options, "average", folders_first(arguments))
    if not options.models:
        raise UsageError("give a run folder: dragoman average runs/mine --out runs/mine-average")
    if options.last < 1:
        raise UsageError(f"--last must be at least 1, not {options.last}")
    from dragoman.training.average import average, refuse_existing
    from dragoman.training.checkpoint import lasting_checkpoints

    refuse_existing(options.out)
    folders: list[Path] = []
    for path in options.models:
        if not (path / "checkpoints").is_dir():
            folders.append(path)
            continue
        newest = lasting_checkpoints(path)
        if not newest:
            raise DragomanError(f"{path}: no checkpoints yet")
        if len(newest) < options.last:
            print(f"{path}: {plural(len(newest), 'checkpoint')} kept, not {options.last}", file=sys.stderr)
        folders += newest[: options.last] if options.all else choose(path, newest, options.last)
    average(folders, options.out)
    if len(folders) == 1:
        print(f"{options.out}: a copy of {folders[0]}: nothing to average it with", file=sys.stderr)
    print(options.out)


def choose(run: Path, newest: Sequence[Path], last: int) -> list[Path]:
    """Return those of the `last` newest checkpoints of a run that are not much worse than the best of them.

    newest: all checkpoints of the run, the newest first. Print on standard error for each whether it is averaged, with
    its scores, or why not.
    """
    from dragoman.training.checkpoint import step_of

    scores = dev_scores(run, newest)
    best = min(scores[folder].get("loss", math.inf) for folder in newest[:last])
    chosen = []
    for number, folder in enumerate(newest):
        loss = scores[folder].get("loss", math.inf)
        description = ", ".join(
            f"dev {name} {scores[folder][key]:.{digits}f}" for key, name, digits in SHOWN if key in scores[folder]
        )
        if "step" in scores[folder] and scores[folder]["step"] != step_of(folder):
            description += f" (validation at step {scores[folder]['step']:.0f})"
        if number >= last:
            verdict = f"left out: not among the last {last}"
        elif loss == math.inf > best:
            verdict = "left out: later checkpoints have a dev loss"
        elif loss > best + MAX_WORSE:
            verdict = f"left out: the lowest dev loss is {best:.2f}"
        else:
            verdict = "averaged"
            chosen.append(folder)
        print(f"{folder}: {description or 'not validated'}: {verdict}", file=sys.stderr)
    return chosen


def dev_scores(run: Path, folders: Sequence[Path]) -> dict[Path, dict[str, float]]:
    """Return what the dev set gave for each checkpoint of a run: 'loss', in nats per token, 'bleu', 'chrf', and 'step'.

    Of a checkpoint between two validations, such as that of an interruption, it is what the first of them gave; nothing
    before the first validation.
    """
    from dragoman.inspection.plots.training import read_metrics
    from dragoman.training.checkpoint import step_of

    rows = read_metrics(run).rows if (run / "metrics.jsonl").exists() else {}
    validations = {step: row for (event, step), row in rows.items() if event == "validation"}
    return {
        folder: next((row for step, row in reversed(validations.items()) if step <= step_of(folder)), {})
        for folder in folders
    }
