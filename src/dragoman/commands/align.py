"""dragoman align"""

import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dragoman.commands import Model, parse
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from numpy import ndarray

    from dragoman.alignment import Alignment, Words
    from dragoman.data.spec import CorpusSpec
    from dragoman.data.tokenizer import Tokenizer
    from dragoman.model import Model as Loaded

BLOCK = 1024  # pairs in memory
MEASURED = 10_000  # pairs of a corpus that --measure reads at most
LEAST = 0.0005  # weights that --soft would show as 0.000 are left out


@dataclass(frozen=True)
class Options:
    """Align source words with target words, one line per pair, in the same order.

    A line holds pairs of word numbers in the format of Moses, source first, counted from 0: 0-0 1-2 2-1.

    $ dragoman align -m runs/en-ko pairs.tsv
    $ dragoman align -m runs/en-ko pairs.tsv --measure --text
    """

    model: Model
    "model folder or run folder"
    pairs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FILE ...")]
    "sentence pairs in any format that training reads (docs/corpora.md)"
    layer: int | None = None
    "decoder layer, from 1; with --head alone: the last; without both: the best one, as measured for the model"
    head: int | None = None
    "attention head, from 1; with --layer alone: the mean of all"
    measure: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "find the best layer and head on these pairs first; give it a thousand pairs or more"
    threshold: float | None = None
    "print all pairs of words with at least this weight, above 0; default: the strongest for each target word"
    soft: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print all pairs of words with their weights: 0-0:0.912"
    text: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print words instead of their numbers"
    pieces: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "align subwords, for languages written without spaces"


def main(arguments: list[str]) -> None:
    options = parse(Options, "align", arguments)
    refuse_contradictions(options)
    from dragoman.alignment import attention, by_word, subwords, words
    from dragoman.data.corpus import LeftOut, stream
    from dragoman.data.spec import parse_corpora
    from dragoman.decoding.forced import max_positions
    from dragoman.model_folder import read_model

    origins = parse_corpora(options.pairs)
    model, tokenizer = read_model(Path(options.model))
    which = chosen(options, model, tokenizer, origins)
    most, split = max_positions(model), subwords if options.pieces else words
    for origin in origins:
        left_out, front = LeftOut(origin), tokenizer.tag_ids(origin.tag)
        rows = stream(origin, left_out)
        while block := list(islice(rows, BLOCK)):
            sources = [front + ids for ids in tokenizer.encode_all([row.source for row in block])]
            targets = tokenizer.encode_all([row.target for row in block])
            fitting = [i for i in range(len(block)) if max(len(sources[i]), len(targets[i])) < most]
            maps = attention(model, [sources[i] for i in fitting], [targets[i] for i in fitting], which)
            found = dict(zip(fitting, maps, strict=True))
            for number, row in enumerate(block):
                if number in found:
                    source, target = split(tokenizer, sources[number]), split(tokenizer, targets[number])
                    print(line(options, by_word(found[number].numpy(), target, source), target, source))
                else:
                    place = f"{origin.name}:{row.number}"
                    print(f"{place}: a side has more than {most - 1:,} tokens: not aligned", file=sys.stderr)
                    print()
        for note in left_out.notes():
            print(note, file=sys.stderr)


def refuse_contradictions(options: Options) -> None:
    if not options.pairs:
        raise UsageError("name sentence pairs: a file with pairs, or a source file and a target file")
    if options.threshold is not None and not 0 < options.threshold <= 1:
        raise UsageError(f"--threshold must be above 0 and at most 1, not {options.threshold}")
    if options.soft and options.threshold is not None:
        raise UsageError("--soft shows all weights: give it or --threshold, not both")
    if options.measure and (options.layer is not None or options.head is not None):
        raise UsageError("--measure finds the layer and head: give it or --layer and --head, not both")


def chosen(options: Options, model: "Loaded", tokenizer: "Tokenizer", origins: "tuple[CorpusSpec, ...]") -> "Alignment":
    """The layer and head to align with. Where nobody chose and nothing was measured, that is told."""
    from dragoman.alignment import Alignment, measure, unmeasured

    if options.measure:
        which = measure(model, *some_ids(origins, tokenizer))
    elif options.layer is not None or options.head is not None:
        layer = unmeasured(model).layer if options.layer is None else options.layer
        return Alignment(layer, options.head)
    else:
        which = Alignment.load(Path(options.model)) or unmeasured(model)
    if options.measure or which.agreement is None:
        print(which, file=sys.stderr)
    return which


def some_ids(origins: "tuple[CorpusSpec, ...]", tokenizer: "Tokenizer") -> tuple[list[list[int]], list[list[int]]]:
    """The first pairs of each corpus."""
    from dragoman.data.corpus import stream

    sources: list[list[int]] = []
    targets: list[list[int]] = []
    for origin in origins:
        for file in origin.files:
            if Path(file).exists() and not Path(file).is_file():
                raise UsageError(f"{file}: with --measure it is read twice, so it must be a regular file")
        rows = list(islice(stream(origin), MEASURED))
        front = tokenizer.tag_ids(origin.tag)
        sources += [front + ids for ids in tokenizer.encode_all([row.source for row in rows])]
        targets += tokenizer.encode_all([row.target for row in rows])
    return sources, targets


def line(options: Options, weights: "ndarray", target: "Words", source: "Words") -> str:
    from dragoman.alignment import above, strongest

    threshold = LEAST if options.soft else options.threshold
    links = strongest(weights) if threshold is None else above(weights, threshold)
    parts = []
    for u, w in links:
        part = f"{source.labels[u]}→{target.labels[w]}" if options.text else f"{u}-{w}"
        parts.append(f"{part}:{weights[w, u]:.3f}" if options.soft else part)
    return " ".join(parts)
