"""dragoman lab"""

import difflib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dragoman.commands import parse
from dragoman.errors import DragomanError, UsageError
from dragoman.lab import EXPERIMENTS
from dragoman.lab.experiment import FULL, QUICK, Effort

ALL = "all"


@dataclass(frozen=True)
class Options:
    """The claims of the notes and of the paper as experiments: numbers, figures, and a page that says what was seen.

    $ dragoman lab
    $ dragoman lab scaling masks
    $ dragoman lab all --quick
    """

    experiments: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[NAME ...|all]")] = ()
    "which ones to run; without a name they are listed"
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "a quarter of the steps and one seed: all of them in minutes"
    out: Path = Path("lab")
    "folder for report.html, figures and tables; a report that is there is replaced"
    seeds: tuple[int, ...] = ()
    "repeat each experiment with these; default: 1 2 3, with --quick: 1"


def main(arguments: list[str]) -> None:
    options = parse(Options, "lab", arguments)
    if not options.experiments:
        for name, purpose in EXPERIMENTS.items():
            print(f"{name:<18} {purpose}")
        return
    names = chosen(options.experiments)
    if any(seed < 0 for seed in options.seeds):
        raise UsageError("seeds must be at least 0")
    usual = QUICK if options.quick else FULL
    effort = Effort(options.seeds or usual.seeds, usual.part)
    from dragoman.inspection.figures import pyplot
    from dragoman.lab.report import duration, perform, write_report

    pyplot()  # where it is missing, that is told at once, and once
    options.out.mkdir(parents=True, exist_ok=True)
    results = []
    for number, name in enumerate(names, start=1):
        print(f"{number}/{len(names)} {name}: {EXPERIMENTS[name]}", file=sys.stderr, flush=True)
        results.append(perform(name, effort, options.out))
        print(" ".join(str(results[-1]).split()), flush=True)
        print(f"{number}/{len(names)} {name}: {duration(results[-1].seconds)}", file=sys.stderr, flush=True)
        page = write_report(options.out, results, effort, options.quick)  # whoever stops here keeps what there is
    print(f"report: {page}", file=sys.stderr)
    failed = [result.name for result in results if result.error]
    if failed:
        raise DragomanError(f"{len(failed)} of {len(names)} experiments failed: {', '.join(failed)}; see {page}")


def chosen(wanted: tuple[str, ...]) -> list[str]:
    """The names to run, each once. Raises UsageError, with the nearest name, for one that does not exist."""
    for name in wanted:
        if name not in (*EXPERIMENTS, ALL):
            near = difflib.get_close_matches(name, [*EXPERIMENTS, ALL], n=1)
            hint = f"did you mean '{near[0]}'?" if near else "'dragoman lab' lists them"
            raise UsageError(f"no experiment '{name}'; {hint}")
    return list(EXPERIMENTS) if ALL in wanted else list(dict.fromkeys(wanted))
