"""dragoman remember"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dragoman.commands import Model, parse, set_threads
from dragoman.errors import DragomanError, UsageError, plural

if TYPE_CHECKING:
    from dragoman.memory import ApprovedPair, Memory

COLUMNS = ("number", "source", "target", "origin", "date", "by")


@dataclass(frozen=True)
class Options:
    """Make a memory of approved pairs, which a model uses from the next sentence on, without any training.

    A text that is in it has the translation that was approved; others are translated with a look at what is similar.
    The memory is that of one model. `dragoman translate --memory` uses it (docs/memory.md).

    $ dragoman remember -m runs/mine approved.tmx --out memories/mine
    $ dragoman remember -m runs/mine today.po --out memories/mine --add
    $ dragoman remember -m runs/mine --training --out memories/training
    $ dragoman remember -m runs/mine --out memories/mine --list
    $ dragoman remember -m runs/mine --out memories/mine --forget 17 --forget today.po
    """

    model: Model
    "model folder, run folder or hub:USER/NAME"
    out: Annotated[Path, tyro.conf.arg(metavar="MEMORY")]
    "folder of the memory"
    pairs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[CORPUS ...]")] = ()
    "approved pairs in any format that training reads (docs/corpora.md), or the memory of another model"
    training: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "remember the pairs that the run was trained on: then each word can name those that taught it"
    add: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "add to a memory that exists; of several pairs with one source, the last one counts"
    forget: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="WHAT")] = ()
    "forget the pair of this number, or all of this origin: a file, or file:line; may be given several times"
    list: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print the pairs, one per line: number, source, target, origin, date, by whom"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "with --list: a JSON object for each"
    by: str = ""
    "who has approved the pairs"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print nothing on standard error, not even progress"


def main(arguments: list[str]) -> None:
    """Run `dragoman remember`: make, extend, list or shorten a memory."""
    options = parse(Options, "remember", arguments)
    adding = bool(options.pairs or options.training)
    if adding and (options.list or options.forget):
        raise UsageError("give pairs, or --list or --forget, not both")
    if options.json and not options.list:
        raise UsageError("--json is for --list")
    if options.add and not adding:
        raise UsageError("--add needs pairs, or --training")
    set_threads(options.threads, options.quiet)
    from dragoman.console import ProgressDisplay
    from dragoman.memory import Memory, create_memory
    from dragoman.model_folder import fetch_model, read_model

    folder = fetch_model(Path(options.model))
    pairs = list(read_approved(options, folder)) if adding else []
    model, tokenizers = read_model(folder)
    if not options.add and (adding or not options.out.exists()):
        create_memory(options.out, folder)
    memory = Memory(options.out, folder, model, tokenizers)
    with ProgressDisplay(quiet=options.quiet) as display:

        def show(done: int, total: int) -> None:
            display.show(f"{done:,} of {plural(total, 'pair')}", "", done / total)

        if options.forget:
            display.log(f"forgotten: {plural(memory.forget(numbers_of(memory, options.forget)), 'pair')}")
        memory.add(pairs)
        memory.tidy(show, least=0 if options.forget else 1)
        if not options.list:
            display.log(describe(memory))
    if options.list:
        for number, pair in enumerate(memory.pairs):
            if pair:
                fields = {"number": number, **asdict(pair)}
                print(
                    json.dumps(fields, ensure_ascii=False)
                    if options.json
                    else "\t".join(" ".join(str(fields[name]).split()) for name in COLUMNS)
                )
    else:
        print(options.out)


def read_approved(options: Options, model_folder: Path) -> "Iterator[ApprovedPair]":
    """Yield the pairs in the corpora and memories of a command, or in the corpora of a run.

    Raise DragomanError where there is none.
    """
    from dragoman.data.corpus import LeftOut, drop_empty, stream_rows
    from dragoman.data.spec import parse_corpora
    from dragoman.memory import ApprovedPair
    from dragoman.memory.memory import PAIRS, is_memory
    from dragoman.memory.pairs import PairLog
    from dragoman.text.tags import DefaultTags

    folders = [Path(word) for word in options.pairs if is_memory(Path(word))]
    for folder in folders:
        log = PairLog(folder / PAIRS)
        log.refresh()
        yield from filter(None, log.pairs)
    words = [word for word in options.pairs if Path(word) not in folders]
    if options.training:
        words += training_corpora(model_folder)
    date, default = f"{datetime.now():%Y-%m-%d %H:%M}", DefaultTags.load(model_folder)
    for corpus in parse_corpora(words):
        left_out, row = LeftOut(corpus), None
        for row in drop_empty(stream_rows(corpus, left_out), left_out):
            yield ApprovedPair(
                row.source,
                row.target,
                f"{corpus.name}:{row.number}",
                date,
                options.by,
                corpus.tag or default.source,
                corpus.target_tag or default.target,
            )
        if row is None:
            raise DragomanError(f"{corpus.name}: no sentence pairs in it")
        for note in left_out.notes() if not options.quiet else []:
            print(note, file=sys.stderr)


def training_corpora(model_folder: Path) -> tuple[str, ...]:
    """Return the corpora that a model was trained on. Raise UsageError for a model that is not in its run."""
    from dragoman.training.checkpoint import run_of
    from dragoman.training.resume import read_run_config

    run = run_of(model_folder)
    if run is None:
        raise UsageError(f"{model_folder}: --training needs a run folder; name the corpora for a model without one")
    return read_run_config(run).train


def numbers_of(memory: "Memory", wanted: tuple[str, ...]) -> list[int]:
    """Return the numbers of the pairs that are to be forgotten. Raise UsageError for what names none."""
    numbers: list[int] = []
    for what in wanted:
        named = [
            number
            for number, pair in enumerate(memory.pairs)
            if pair and (what == str(number) or pair.origin == what or pair.origin.rpartition(":")[0] == what)
        ]
        if not named:
            raise UsageError(f"--forget {what}: no pair of that number or origin; --list shows them")
        numbers += named
    return numbers


def describe(memory: "Memory") -> str:
    """Return a sentence about a memory: its pairs and states, and how it was fitted."""
    parts = [plural(memory.pair_count, "pair"), plural(memory.state_count, "state")]
    if memory.index_recall < 1:
        parts.append(f"{memory.index_recall:.0%} of the nearest states are found")
    if not memory.weighting:
        parts.append("too few pairs to fit the weight of the memory, which is a guess")
    return ", ".join(parts)
