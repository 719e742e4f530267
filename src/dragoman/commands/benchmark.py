"""Find the fastest engine and data type for a model: `dragoman benchmark`."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dragoman.commands import FlagSearchConfig, Model, parse, print_json, set_threads
from dragoman.config import SearchConfig
from dragoman.errors import DragomanError, UsageError

if TYPE_CHECKING:
    from dragoman.data.corpus import Corpus

# For a model whose dev set is gone: what they mean does not matter, but their lengths do.
LINES = (
    "The train to Seoul leaves at half past nine.",
    "Please send us your answer before the end of the month.",
    "She had read the book twice, but she did not remember how it ended.",
    "Where can I buy a ticket?",
    "The city council has decided to build three new schools, two of them in the north.",
    "We could not open the file because it is used by another program.",
    "It rained all day.",
    "If the device does not start, remove the battery, wait for ten seconds and insert it again.",
)


@dataclass(frozen=True)
class Options:
    """Say which engine and data type translate fastest with a model on this machine: one sentence at a time, as in a
    chat, and many in batches, as in a file. With a test set, also show how BLEU changes.

    They take turns on the same sentences, those of the test set, of the run's dev set, or built-in ones. Run nothing
    else at the same time.

    $ dragoman benchmark -m runs/mine
    $ dragoman benchmark -m runs/mine test.tsv --threads 1
    """

    model: Model
    "model folder, run folder or hub:USER/NAME"
    test: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[CORPUS ...]")] = ()
    "sentence pairs to time and to score, in any format that training reads (docs/corpora.md)"
    beam: int = SearchConfig.beam
    "beam size; 1 is greedy search"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"
    rounds: int = 3
    "number of turns of each engine and type; the medians are shown, with half the range"
    sentences: int = 64
    "number of sentences in a turn, evenly drawn; one at a time, an eighth of them"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print one JSON object"


def main(arguments: list[str]) -> None:
    """Run `dragoman benchmark`: print a table of speeds, and the commands that use the fastest."""
    options = parse(Options, "benchmark", arguments)
    for flag, value in (("--rounds", options.rounds), ("--sentences", options.sentences)):
        if value < 1:
            raise UsageError(f"{flag} must be at least 1, not {value}")
    search = FlagSearchConfig(beam=options.beam)
    set_threads(options.threads)
    from dragoman.data.corpus import read_corpus
    from dragoman.evaluation.engine_speed import compare_engines

    corpus = read_corpus(options.test) if options.test else sentences_to_time(Path(options.model))
    for note in corpus.notes():
        print(note, file=sys.stderr)
    compared = compare_engines(
        options.model, corpus, search, sentences=options.sentences, rounds=options.rounds, score=bool(options.test)
    )
    timed = min(options.sentences, len(corpus.pairs))
    if options.json:
        print_json({"model": options.model, "test": corpus.name, "beam": options.beam, **compared.as_dict()})
        return
    print(f"Sentences per second, up to {timed} of {corpus.name}, beam {options.beam}; {compared.machine}.\n")
    print(compared)
    for how, row in compared.by_way().items():
        command = f"dragoman translate -m {shlex.quote(options.model)}"
        command += f" --engine {row.engine} --compute-type {row.compute_type}"
        command += f" --beam {options.beam}" * (options.beam != SearchConfig.beam)
        command += f" --threads {options.threads}" * bool(options.threads)
        print(f"\nfastest {how}: {command}", end="")
    print()


def sentences_to_time(model: Path) -> "Corpus":
    """Return the dev set that a run folder names, if it can still be read, or else LINES, as pairs."""
    from dragoman.data.corpus import Corpus, read_corpus
    from dragoman.training.resume import read_run_config

    try:
        return read_corpus(read_run_config(model).dev)
    except DragomanError:  # no run folder, or its corpus has been moved
        places = range(len(LINES))
        blank = ["" for _ in places]
        return Corpus("built-in sentences", [(line, "") for line in LINES], [*places], blank, blank)
