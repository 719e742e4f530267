"""dragoman lab"""

import difflib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dragoman.commands import parse, set_threads
from dragoman.errors import DragomanError, UsageError
from dragoman_lab import COMPARISONS, EXPERIMENTS, SECTIONS, speaker
from dragoman_lab.experiment import FULL, QUICK, Effort, Sentences

OWN_PAIRS = "On your own sentence pairs (--train, --dev, --test)"
GROUPS = {"all": EXPERIMENTS, "comparisons": COMPARISONS}


@dataclass(frozen=True)
class Options:
    """Run experiments on claims about Transformers: numbers, figures, and a page with the verdicts.

    $ dragoman lab
    $ dragoman lab scaling masks
    $ dragoman lab all --quick
    $ dragoman lab comparisons --train train.tsv --dev dev.tsv --test test.tsv
    """

    experiments: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[NAME ...|all|comparisons]")
    ] = ()
    "experiments to run; without a name they are listed; comparisons: all that train on your own sentence pairs"
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "use a quarter of the steps and one seed: all experiments in a few minutes"
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("lab")
    "folder for report.html, figures and tables; replaces an earlier report"
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT ...")] = ()
    "seeds to repeat each experiment with; default: 1 2 3, with --quick: 1"
    language: Literal["en", "ko"] = "en"
    "language of the list, the verdicts and the report; names, commands and error messages stay English"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"
    train: tuple[str, ...] = ()
    "sentence pairs on which the comparisons train, as for dragoman train"
    dev: tuple[str, ...] = ()
    "sentence pairs for the dev loss of the comparisons"
    test: tuple[str, ...] = ()
    "sentence pairs on which the comparisons are scored"


def main(arguments: list[str]) -> None:
    """Run `dragoman lab`: list the experiments, or run those named and write a report after each.

    Raise DragomanError at the end where an experiment failed.
    """
    options = parse(Options, "lab", arguments)
    say = speaker(options.language)
    if not options.experiments:
        listing = SECTIONS | {OWN_PAIRS: COMPARISONS}
        blocks = (
            "\n".join([say(title), *(f"  {name:<19} {say(purpose)}" for name, purpose in section.items())])
            for title, section in listing.items()
        )
        print("\n\n".join(blocks))
        return
    names, purposes = select(options.experiments), EXPERIMENTS | COMPARISONS
    sentences = sentence_pairs(options, names)
    if any(seed < 0 for seed in options.seeds):
        raise UsageError("--seeds must be at least 0")
    usual = QUICK if options.quick else FULL
    effort = Effort(tuple(dict.fromkeys(options.seeds)) or usual.seeds, usual.part)
    set_threads(options.threads)
    from dragoman.console import format_duration
    from dragoman.inspection.figure import pyplot
    from dragoman.training.checkpoint import lock_folder
    from dragoman_lab.report import perform, write_report

    pyplot()  # if matplotlib is missing, say so now, and once
    with lock_folder(options.out):
        results = []
        for number, name in enumerate(names, start=1):
            print(f"{number}/{len(names)} {name}: {say(purposes[name])}", file=sys.stderr, flush=True)
            results.append(perform(name, effort, options.out, sentences, options.language))
            print(" ".join(str(results[-1]).split()), flush=True)
            took = say(format_duration(results[-1].seconds))
            print(f"{number}/{len(names)} {name}: {took}", file=sys.stderr, flush=True)
            # After each experiment, so that a run that is interrupted leaves a report.
            page = write_report(options.out, results, effort, options.quick, sentences, options.language)
    print(f"{say('report')}: {page}", file=sys.stderr)
    failed = [result.name for result in results if result.error]
    if failed:
        raise DragomanError(f"{len(failed)} of {len(names)} experiments failed: {', '.join(failed)}; see {page}")


def select(wanted: tuple[str, ...]) -> list[str]:
    """Return the names of the experiments to run, each once, with groups such as 'all' spelled out.

    Raise UsageError, with the nearest name, for one that does not exist.
    """
    known = [*EXPERIMENTS, *COMPARISONS, *GROUPS]
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else "'dragoman lab' lists them"
            raise UsageError(f"no experiment '{name}'; {hint}")
    return list(dict.fromkeys(name for group in wanted for name in GROUPS.get(group, (group,))))


def sentence_pairs(options: Options, names: list[str]) -> Sentences | None:
    """Return the corpora for the comparisons among `names`, None if there are none of these.

    Raise UsageError where corpora are missing, or given without need.
    """
    given = {"--train": options.train, "--dev": options.dev, "--test": options.test}
    compared = [name for name in names if name in COMPARISONS]
    missing = [flag for flag, paths in given.items() if not paths]
    if compared and missing:
        raise UsageError(f"{compared[0]} trains on your own sentence pairs: give them with {', '.join(missing)}")
    if not compared and len(missing) < len(given):
        raise UsageError("only comparisons train on your own sentence pairs; 'dragoman lab' lists them")
    if not compared:
        return None
    from dragoman.data.corpus import read_corpus
    from dragoman.data.spec import check_present, parse_corpora

    check_present(file for origin in parse_corpora(options.train) for file in origin.files)
    for paths in (options.dev, options.test):
        read_corpus(paths)  # so that errors in them are reported before the first training
    return Sentences(options.train, options.dev, options.test, options.out / "runs")
