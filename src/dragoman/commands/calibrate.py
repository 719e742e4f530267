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
    """Measure what a model can do with names and alignment, and how sure it may be of its translations.

    Training measures this for the models that it makes; a model of others, or of an earlier version, has not been
    measured. Give it the pairs that it was trained on, or ones like them, and with --dev some that it was not trained
    on. The result is a copy of the model.

    $ dragoman calibrate -m imported/en-de pairs.tsv --dev dev.tsv --out models/en-de
    $ dragoman calibrate -m runs/mine --dev dev.tsv --threshold 70 --out models/strict
    """

    model: Model
    "model folder, run folder or hub:USER/NAME"
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    "new model folder"
    pairs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[CORPUS ...]")] = ()
    "sentence pairs in any format that training reads (docs/corpora.md)"
    dev: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CORPUS")] = ()
    "pairs that took no part in training: measure the confidence in translations (docs/confidence.md)"
    threshold: Annotated[float, tyro.conf.arg(metavar="CHRF")] = 50.0
    "with --dev: the chrF that a translation is good enough with"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"


def main(arguments: list[str]) -> None:
    """Run `dragoman calibrate`: write a copy of a model with its records, and print its folder."""
    options = parse(Options, "calibrate", arguments)
    if not options.pairs and not options.dev:
        raise UsageError("give sentence pairs: a file of pairs, or a source file and a target file; or --dev")
    if not 0 < options.threshold < 100:
        raise UsageError(f"--threshold is a chrF between 0 and 100, not {options.threshold:g}")
    set_threads(options.threads)
    from dragoman.confidence.estimate import Confidence
    from dragoman.data.corpus import read_corpus, stream_rows
    from dragoman.data.spec import parse_corpora
    from dragoman.model_folder import add_record, fetch_model, read_parts
    from dragoman.text.tags import DefaultTags
    from dragoman.text.word_forms import WordForms
    from dragoman.training.average import refuse_existing
    from dragoman.translation.calibration import FEWEST_JUDGED, calibrate, measure_confidence
    from dragoman.translation.translator import Translator

    refuse_existing(options.out)
    corpora = parse_corpora(options.pairs) if options.pairs else []
    dev = read_corpus(options.dev) if options.dev else None
    folder = fetch_model(Path(options.model))
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
    if measured := calibrate(folder, texts, ids, options.out):
        copied = ", ".join(measured.words.copied) or "none"
        print(f"{len(measured.words.words):,} words; names that it copies: {copied}", file=sys.stderr)
        print(measured.alignment or "no attention over the source", file=sys.stderr)
    if dev:
        before = Confidence.load(folder)
        words = (
            WordForms.from_texts(target for _, target in texts).packed() if texts else before.words if before else ""
        )
        both_tags = list(zip(dev.tags, dev.target_tags, strict=True))
        confidence = measure_confidence(
            Translator.load(options.out), dev.pairs, both_tags, words, threshold=options.threshold
        )
        if confidence is None:
            print(f"no confidence: fewer than {FEWEST_JUDGED} pairs of --dev can be judged", file=sys.stderr)
        else:
            add_record(options.out, Confidence.RECORD, confidence.as_json())
            print(f"confidence: {confidence.reliability}", file=sys.stderr)
    print(options.out)
