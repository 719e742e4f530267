"""Run the demonstration: `dragoman demo`."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dragoman.commands import parse, set_threads
from dragoman.config.presets import DEMO
from dragoman.errors import DragomanError, UsageError


@dataclass(frozen=True)
class Options:
    """Make a phrasebook corpus, train on it, score held-out sentences, translate a few, and draw the attention.

    With --task, learn what to do with letters instead: copy, reverse or sort them, or recall the numbers after them.
    A picture shows the attention head that has found the trick, and a page how it found it.

    $ dragoman demo
    $ dragoman demo --to de
    $ dragoman demo --task reverse
    """

    to: Literal["ko", "de", "es"] = "ko"
    "language to translate into from English"
    task: Literal["copy", "reverse", "sort", "recall"] | None = None
    "task to learn instead of a phrasebook"
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    "folder for corpus, model and figures; default: runs/demo-en-ko, with --to de runs/demo-en-de, or runs/demo-reverse"
    minutes: float | None = None
    "minutes of training; default: 2.25 for a phrasebook, 1 for a task, 2 for the task recall"
    language: Literal["en", "ko"] = "en"
    "language of what the demo says and of its pictures; the progress of the training stays English"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"


def main(arguments: list[str]) -> None:
    """Run `dragoman demo`: train on the phrasebook, score, translate and draw.

    Raise DragomanError without its extra.
    """
    options = parse(Options, "demo", arguments)
    for module, name in (("babel", "Babel"), ("matplotlib", "matplotlib")):
        if importlib.util.find_spec(module) is None:
            raise DragomanError(f"the demo needs {name}: pip install 'dragoman[demo]'")
    if options.minutes is not None and options.minutes <= 0:
        raise UsageError(f"--minutes must be above 0, not {options.minutes}")
    set_threads(options.threads)
    if options.task:
        from dragoman.demo.toy import run_task

        return run_task(
            options.task, options.out or Path(f"runs/demo-{options.task}"), options.minutes, options.language
        )
    from dragoman.demo.run import run_demo

    minutes = options.minutes or DEMO.training.minutes or 2.0
    run_demo(options.to, options.out or Path(f"runs/demo-en-{options.to}"), minutes, options.language)
