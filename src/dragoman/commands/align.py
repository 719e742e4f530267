"""dragoman align"""

import sys
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dragoman.commands import Model, parse, set_threads
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from dragoman.alignment.heads import AlignmentHead
    from dragoman.alignment.words import Word
    from dragoman.data.spec import CorpusSpec
    from dragoman.data.tokenizers import Tokenizers
    from dragoman.model import Model as Loaded
    from dragoman.text.tags import DefaultTags

MEASURED = 10_000  # pairs of a corpus that --measure reads at most
MIN_WEIGHT = 0.0005  # weights that --soft would show as 0.000 are left out


@dataclass(frozen=True)
class Options:
    """Align source words with target words, one line per pair, in the same order.

    A line holds pairs of word numbers in the format of Moses, source first, counted from 0: 0-0 1-2 2-1.

    $ dragoman align -m runs/en-ko pairs.tsv
    $ dragoman align -m runs/en-ko pairs.tsv --measure --text
    """

    model: Model
    "model folder, run folder or hub:USER/NAME"
    pairs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="CORPUS ...")]
    "sentence pairs in any format that training reads (docs/corpora.md)"
    layer: int | None = None
    "decoder layer, from 1; default: the best one measured for this model; with --head alone: the last"
    head: int | None = None
    "attention head, from 1; with --layer alone: the mean of all"
    measure: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "find the best layer and head on these pairs first, for this command only; give it a thousand pairs or more"
    threshold: float | None = None
    "print all pairs of words with at least this weight, above 0; default: the strongest for each target word"
    soft: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print all pairs of words with their weights: 0-0:0.912"
    text: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print words instead of their numbers"
    subwords: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "align subwords, for languages written without spaces"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"


def main(arguments: list[str]) -> None:
    """Run `dragoman align`: print a line of word alignments for each pair, an empty one where a side is too long."""
    options = parse(Options, "align", arguments)
    check_options(options)
    set_threads(options.threads)
    from dragoman.alignment.heads import alignment_weights
    from dragoman.alignment.words import merge_tokens, subwords, words
    from dragoman.commands.pairs import compute_by_pair
    from dragoman.data.spec import parse_corpora
    from dragoman.model_folder import fetch_model, read_model

    corpora, folder = parse_corpora(options.pairs), fetch_model(Path(options.model))
    model, tokenizers = read_model(folder)
    head = choose_head(options, folder, model, tokenizers, corpora)
    split, compute = subwords if options.subwords else words, partial(alignment_weights, model, head=head)
    for pair, weights in compute_by_pair(corpora, folder, model, tokenizers, compute, "not aligned"):
        if weights is None:
            print()
        else:
            source, target = split(tokenizers.source, pair.source), split(tokenizers.target, pair.target[pair.tag :])
            print(links_as_text(options, merge_tokens(weights[pair.tag :].double(), target, source), target, source))


def check_options(options: Options) -> None:
    """Raise UsageError for missing pairs, and for flags that do not go together."""
    if not options.pairs:
        raise UsageError("give sentence pairs: a file of pairs, or a source file and a target file")
    if options.threshold is not None and not 0 < options.threshold <= 1:
        raise UsageError(f"--threshold must be above 0 and at most 1, not {options.threshold}")
    if options.soft and options.threshold is not None:
        raise UsageError("give --soft or --threshold, not both: --soft prints all weights")
    if options.measure and (options.layer is not None or options.head is not None):
        raise UsageError("--measure chooses the layer and head: leave out --layer and --head")


def choose_head(
    options: Options, folder: Path, model: "Loaded", tokenizers: "Tokenizers", corpora: "tuple[CorpusSpec, ...]"
) -> "AlignmentHead":
    """Return the head to align with: measured now, chosen by flags, measured by training, or else the default one.

    folder: that of the model. Print the head on standard error where it was measured now, and where it never was. Raise
    DragomanError for a model without attention over the source, but not where --layer is given: `alignment_weights`
    raises it then.
    """
    from dragoman.alignment.heads import AlignmentHead, default_head, measure_heads
    from dragoman.text.tags import DefaultTags

    if options.measure:
        head = measure_heads(model, *read_pairs(corpora, tokenizers, DefaultTags.load(folder)))
    elif options.layer is not None or options.head is not None:
        layer = default_head(model).layer if options.layer is None else options.layer
        return AlignmentHead(layer, options.head)
    else:
        head = AlignmentHead.load(folder) or default_head(model)
    if options.measure:
        print(f"{head}; for these pairs only: the model folder is not changed", file=sys.stderr)
    elif head.agreement is None:
        print(head, file=sys.stderr)
    return head


def read_pairs(
    corpora: "tuple[CorpusSpec, ...]", tokenizers: "Tokenizers", default: "DefaultTags"
) -> tuple[list[list[int]], list[list[int]]]:
    """Return sources, each with its tag in front, and targets of the first MEASURED pairs of each corpus, as token ids.

    Raise UsageError for a file that can be read only once.
    """
    from dragoman.data.corpus import stream_rows

    sources: list[list[int]] = []
    targets: list[list[int]] = []
    for corpus in corpora:
        for file in corpus.files:
            if Path(file).exists() and not Path(file).is_file():
                raise UsageError(f"{file}: with --measure it is read twice, so it must be a regular file")
        rows = list(islice(stream_rows(corpus), MEASURED))
        texts = [row.source for row in rows], [row.target for row in rows]
        tags = corpus.tag or default.source, corpus.target_tag or default.target
        sides = tokenizers.encode_sides(*texts, *tags)
        sources += sides[0]
        targets += sides[1]
    return sources, targets


def links_as_text(options: Options, weights: "Tensor", target: "list[Word]", source: "list[Word]") -> str:
    """Return the links of a pair as a line: '0-0 1-2', or words with `--text`, and weights with `--soft`.

    weights (W, U): of W target words and U source words.
    """
    from dragoman.alignment.links import links_above, strongest_links

    threshold = MIN_WEIGHT if options.soft else options.threshold
    entries = []
    for u, w in strongest_links(weights) if threshold is None else links_above(weights, threshold):
        entry = f"{source[u].label}→{target[w].label}" if options.text else f"{u}-{w}"
        entries.append(f"{entry}:{weights[w, u]:.3f}" if options.soft else entry)
    return " ".join(entries)
