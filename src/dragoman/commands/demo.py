"""Run the demonstration: `dragoman demo`."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dragoman.commands import parse, set_threads
from dragoman.errors import DragomanError, UsageError


@dataclass(frozen=True)
class Options:
    """Make a phrasebook corpus, train on it, score held-out sentences, translate a few, and draw the attention.

    With --quick, take a minute and need no extra: learn only sentences without dates, prices and names. It shows the
    way from corpus to translation; a model trained for so short a time is poor.

    With --corpus messages, learn real sentences in ten minutes: the messages of the programs on this machine, in
    English and in the other language. What to expect: on a Debian with 79 Korean catalogues, 28,197 pairs, and BLEU 18
    on messages unlike these after ten minutes of two busy cores. "The file could not be opened." is right then, and
    most longer sentences are not.

    With --task, learn what to do with letters instead: copy, reverse or sort them, or recall the numbers after them; or
    parse sentences of a small grammar.
    A picture shows the attention head that has found the trick, and a page how it found it.

    $ dragoman demo
    $ dragoman demo --quick
    $ dragoman demo --to de
    $ dragoman demo --corpus messages
    $ dragoman demo --task reverse
    """

    to: Literal["ko", "de", "es"] = "ko"
    "language to translate into from English"
    corpus: Literal["phrasebook", "messages"] = "phrasebook"
    "what to learn: 370 patterns of sentences, or the messages of the programs on this machine"
    task: Literal["copy", "reverse", "sort", "recall", "parse"] | None = None
    "task to learn instead of a phrasebook"
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "learn a seventh of the phrasebook, in a minute, without any extra; the model is poor"
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    "folder for corpus, model and figures; default: runs/demo-en-ko, quick-en-ko, messages-en-ko or demo-reverse"
    minutes: float | None = None
    """minutes of training; default: 2.25 for a phrasebook, 0.6 with --quick, 10 for messages, 1 for a task, 2 for
    recall, 3 for parse"""
    language: Literal["en", "ko"] = "en"
    "language of what the demo says and of its pictures; the progress of the training stays English"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"


def main(arguments: list[str]) -> None:
    """Run `dragoman demo`: train on the phrasebook, score, translate and draw.

    Raise DragomanError if it needs Babel, which is not installed.
    """
    options = parse(Options, "demo", arguments)
    if options.task and options.quick:
        raise UsageError("--quick is for the phrasebook; a task takes a minute")
    if options.corpus == "messages" and (options.task or options.quick):
        raise UsageError("--corpus messages is neither for --quick nor for --task")
    phrases = options.corpus == "phrasebook"
    if phrases and not options.task and not options.quick and importlib.util.find_spec("babel") is None:
        raise DragomanError(
            "the demo needs Babel: pip install 'dragoman[demo]'; without it, dragoman demo --quick learns less"
        )
    if options.minutes is not None and options.minutes <= 0:
        raise UsageError(f"--minutes must be above 0, not {options.minutes}")
    set_threads(options.threads)
    if options.task:
        from dragoman.demo.toy import run_task

        return run_task(
            options.task, options.out or Path(f"runs/demo-{options.task}"), options.minutes, options.language
        )
    if not phrases:
        from dragoman.demo.messages import run_messages

        out = options.out or Path(f"runs/messages-en-{options.to}")
        return run_messages(options.to, out, options.minutes, options.language)
    from dragoman.demo.run import FULL, QUICK, run_demo

    out = options.out or Path(f"runs/{'quick' if options.quick else 'demo'}-en-{options.to}")
    run_demo(options.to, out, options.minutes, QUICK if options.quick else FULL, options.language)
