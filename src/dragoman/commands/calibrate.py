"""dragoman calibrate"""

import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import tyro

from dragoman.commands import Model, parse, set_threads
from dragoman.errors import UsageError

READ = 200_000  # pairs of each corpus


@dataclass(frozen=True)
class Options:
    """Measure what a model can do with names and alignment, and write a copy of it that knows, as training does.

    Training measures this for the models that it makes; a model of others, or of an earlier version, has not been
    measured. Give it the pairs that it was trained on, or ones like them.

    $ dragoman calibrate -m imported/en-de pairs.tsv --out models/en-de
    """

    model: Model
    "model folder, run folder or hub:USER/NAME"
    pairs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="CORPUS ...")]
    "sentence pairs in any format that training reads (docs/corpora.md)"
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    "new model folder"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"


def main(arguments: list[str]) -> None:
    """Run `dragoman calibrate`: write a copy of a model with its records, and print its folder."""
    options = parse(Options, "calibrate", arguments)
    if not options.pairs:
        raise UsageError("give sentence pairs: a file of pairs, or a source file and a target file")
    set_threads(options.threads)
    from dragoman.data.corpus import stream_rows
    from dragoman.data.spec import parse_corpora
    from dragoman.model_folder import fetch_model, read_parts
    from dragoman.text.tags import DefaultTags
    from dragoman.training.average import refuse_existing
    from dragoman.translation.calibration import calibrate

    refuse_existing(options.out)
    corpora, folder = parse_corpora(options.pairs), fetch_model(Path(options.model))
    _, tokenizers = read_parts(folder)
    default = DefaultTags.load(folder)
    texts: list[tuple[str, str]] = []
    ids: list[tuple[list[int], list[int]]] = []
    for corpus in corpora:
        rows = [(row.source, row.target) for row in islice(stream_rows(corpus), READ)]
        tags = corpus.tag or default.source, corpus.target_tag or default.target
        sides = tokenizers.encode_sides([source for source, _ in rows], [target for _, target in rows], *tags)
        texts += rows
        ids += zip(*sides, strict=True)
    measured = calibrate(folder, texts, ids, options.out)
    copied = ", ".join(measured.words.copied) or "none"
    print(f"{len(measured.words.words):,} words; names that it copies: {copied}", file=sys.stderr)
    print(measured.alignment or "no attention over the source", file=sys.stderr)
    print(options.out)
