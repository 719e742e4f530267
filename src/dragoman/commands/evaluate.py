"""Measure a model on a test set: `dragoman evaluate`."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from dragoman.commands import (
    OneBestSearch,
    OneBestSearchConfig,
    check_seed,
    no_tag_warning,
    parse,
    print_json,
    set_threads,
)
from dragoman.config import Device, SearchConfig
from dragoman.errors import DragomanError, UsageError, plural

if TYPE_CHECKING:
    from dragoman.data.corpus import Corpus
    from dragoman.translation.translator import Translator


@dataclass(frozen=True)
class Options:
    """Measure BLEU and chrF of a model's translations of a test set, or of those in a file, with the sacreBLEU
    signatures; optionally also TER, confidence intervals, and a comparison with other translations.

    $ dragoman evaluate -m runs/en-ko test.tsv
    $ dragoman evaluate -m runs/en-ko test.en test.ko --details --sentences table.tsv
    $ dragoman evaluate -m runs/en-ko test.tsv --against runs/en-ko-big
    $ dragoman evaluate --translations ours.txt test.tsv --against-file theirs.txt
    $ dragoman evaluate -m runs/en-ko test.tsv --robustness
    $ dragoman evaluate -m runs/en-ko test.tsv --confidence
    """

    test: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="CORPUS ...")]
    "sentence pairs in any format that training reads (docs/corpora.md)"
    model: Annotated[str | None, tyro.conf.arg(aliases=["-m"], metavar="FOLDER")] = None
    "model folder, run folder or hub:USER/NAME"
    translations: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    "measure these translations, one per line, instead of those of a model"
    ensemble: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FOLDER")] = ()
    "another model with the same tokenizer; probabilities are averaged"
    memory: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    "approved pairs that the model remembers, made by dragoman remember (docs/memory.md)"
    search: OneBestSearch = OneBestSearchConfig()
    device: Device = "auto"
    "where to compute"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"
    tokenize: Literal["13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none"] | None = None
    "how BLEU splits text into words; default: 13a; zh for Chinese, char for other scripts without spaces"
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    "also write the translations, one per line, to this file"
    sentences: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    "also write a table to this file (TSV): source, reference, translation and scores of each sentence"
    details: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "also print TER, 95 % confidence intervals, and scores by the length of the source"
    against: Annotated[str | None, tyro.conf.arg(metavar="FOLDER")] = None
    "compare with this model"
    against_file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    "compare with these translations, one per line"
    robustness: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "instead, what is left of the score where sources are in capitals, have typos and the like (docs/robustness.md)"
    variation: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME")] = ()
    "with --robustness: only this variation, such as 'typos'; may be given several times"
    confidence: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "instead, how far the confidence in translations is to be trusted, and what dropping the least sure gains"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print one JSON object"


def main(arguments: list[str]) -> None:
    """Run `dragoman evaluate`: translate a test set, write the files asked for, and print the scores."""
    options = parse(Options, "evaluate", arguments)
    check_options(options)
    set_threads(options.threads)
    from dragoman.data.corpus import read_corpus
    from dragoman.evaluation.metrics import closer_to_sources, describe_tokenization, evaluate
    from dragoman.evaluation.significance import MAX_RESAMPLED
    from dragoman.storage.output import open_output
    from dragoman.text.scripts import direction_warning
    from dragoman.translation.translator import Translator

    check_outputs(options)
    corpus = read_corpus(options.test)
    for note in corpus.notes():
        print(note, file=sys.stderr)
    sources, references = zip(*corpus.pairs, strict=True)
    if options.tokenize is None and (note := describe_tokenization(references)):
        print(note, file=sys.stderr)
    if (options.details or options.against or options.against_file) and len(sources) > MAX_RESAMPLED:
        raise UsageError(
            f"confidence intervals are limited to {MAX_RESAMPLED:,} sentences; the test set has {len(sources):,}"
        )

    ours, theirs = (
        read_translations(file, len(sources)) if file else None for file in (options.translations, options.against_file)
    )
    other = Translator.load(options.against, options.search, device=options.device) if options.against else None
    if ours is not None:
        translations = ours
    else:
        assert options.model is not None
        translator = Translator.load(
            options.model, options.search, ensemble=options.ensemble, device=options.device, memory=options.memory
        )
        if warning := direction_warning(" ".join(options.test), sources, translator.extent.scripts, translator.scripts):
            print(warning, file=sys.stderr)
        if warning := no_tag_warning(options.model, translator, corpus.tags, "write tag=TAG after the file"):
            print(warning, file=sys.stderr)
        if options.robustness:
            return print_robustness(options, translator, corpus)
        if options.confidence:
            return print_confidence(options, translator, corpus)
        translations = translate_corpus(translator, corpus, options.model)
    if other:
        theirs = translate_corpus(other, corpus, str(options.against))
    if options.output:
        with open_output(options.output) as file:
            file.write("".join(text + "\n" for text in translations).encode())
    if options.sentences:
        table = sentence_table(corpus, translations, theirs, options.tokenize)
        with open_output(options.sentences) as file:
            file.write(table.encode())

    names = (str(options.model or options.translations), str(options.against or options.against_file))
    for name, outputs in zip(names, (translations, theirs), strict=True):
        if outputs and closer_to_sources(outputs, sources, references):
            print(
                f"{name}: the translations are closer to the sources than to the references: are the sides of the test "
                "set swapped, or are they in another language?",
                file=sys.stderr,
            )
    scores = evaluate(translations, references, options.tokenize)
    record, text = scores.as_dict(), list[str]()
    if not options.json:
        print(scores, flush=True)  # the rest may take a while
    if options.details or theirs:
        add_details(options, corpus, translations, theirs, record, text)
    if options.json:
        print_json(record)
    elif text:
        print("\n".join(text))


def check_options(options: Options) -> None:
    """Raise UsageError where flags are missing, or do not go together."""
    check_seed(options.search)
    if not options.test:
        raise UsageError("give a test set: a file of sentence pairs, or a source file and a target file")
    if (options.model is None) == (options.translations is None):
        raise UsageError("give what to measure: a model (-m FOLDER), or a file of translations (--translations FILE)")
    alone = (options.translations, options.output, options.sentences, options.against, options.against_file)
    for name, given in (("robustness", options.robustness), ("confidence", options.confidence)):
        if given and (options.details or any(alone)):
            raise UsageError(f"--{name} prints a table of its own, of one model: leave out the flags for other output")
    if options.confidence and options.ensemble:
        raise UsageError("confidence is measured for a single model: leave out --ensemble")
    if options.robustness and options.confidence:
        raise UsageError("--robustness and --confidence print a table each: give one of them")
    if options.variation and not options.robustness:
        raise UsageError("--variation is a part of --robustness: add that")
    if options.against and options.against_file:
        raise UsageError("give --against or --against-file, not both")
    if options.translations and (options.ensemble or options.output):
        raise UsageError("--ensemble and --output need a model: with --translations, nothing is translated")
    if options.translations and not options.against and options.search != SearchConfig():
        raise UsageError("the flags of a search need a model: with --translations, nothing is translated")


def print_robustness(options: Options, translator: "Translator", corpus: "Corpus") -> None:
    """Print what is left of the score in each variation; a terminal shows how far this is."""
    from dragoman.console import ProgressDisplay
    from dragoman.evaluation.robustness import as_table, measure_robustness

    rows = []
    with ProgressDisplay() as progress:
        for row in measure_robustness(translator, corpus, options.variation, options.search.seed, options.tokenize):
            rows.append(row)
            progress.show(
                "translating", f"{row.variation}: BLEU {row.bleu:.1f}, {100 * row.kept:.0f} % of the clean one"
            )
    if options.json:
        print_json({"variations": [{**asdict(row), "kept": row.kept} for row in rows]})
    else:
        print(as_table(rows))


def print_confidence(options: Options, translator: "Translator", corpus: "Corpus") -> None:
    """Print what the references say of the confidence in translations."""
    from dragoman.evaluation.confidence import judge_confidence
    from dragoman.translation.translator import CALIBRATE

    if translator.confidence is None:
        raise UsageError(f"{options.model}: --confidence {CALIBRATE}")
    sources, references = zip(*corpus.pairs, strict=True)
    translations = translator.translate(sources, corpus.tags, target_tags=corpus.target_tags)
    judgement = judge_confidence(translations, references, translator.confidence)
    if options.json:
        print_json(asdict(judgement))
    else:
        print(judgement)


def translate_corpus(translator: "Translator", corpus: "Corpus", name: str) -> list[str]:
    """Return the translations of the sources; a terminal shows how far this is. name: of the model, for the user."""
    sources = [source for source, _ in corpus.pairs]

    def translate(translator: "Translator") -> list[str]:
        translations = translator.translate(sources, corpus.tags, target_tags=corpus.target_tags)
        if retried := sum(translation.retried for translation in translations):
            flagged = sum(bool(translation.flags) for translation in translations)
            note = f"{name}: {retried:,} translated a second time because of faults, {flagged:,} still flagged"
            print(note, file=sys.stderr)
        return [translation.text for translation in translations]

    if not sys.stderr.isatty():
        return translate(translator)
    from dragoman.console import ProgressDisplay
    from dragoman.decoding.parts import EngineInParts

    with ProgressDisplay() as progress:

        def show(share: float, number: int) -> None:
            progress.show(f"translating with {name}", f"{100 * share:.0f} % of {plural(number, 'sentence')}", share)

        return translate(translator.replace(engine=EngineInParts(translator.engine, show)))


def check_outputs(options: Options) -> None:
    """Raise UsageError for a file of another format, or one to write that is a folder, in none, read or named twice."""
    from dragoman.data.spec import NOT_TEXT, OF_PAIRS, parse_corpora, suffix_of
    from dragoman.storage.output import require_place

    formats = (
        (options.translations, OF_PAIRS, "--translations reads plain text, one translation per line"),
        (options.against_file, OF_PAIRS, "--against-file reads plain text, one translation per line"),
        (options.output, OF_PAIRS, "--output writes plain text, one translation per line"),
        (options.sentences, set(OF_PAIRS) - {".tsv"}, "--sentences writes a table as .tsv"),
    )
    for file, others, what in formats:
        if file and suffix_of(str(file)) in {*others, *NOT_TEXT}:
            raise UsageError(f"{file}: {what}")

    read = [Path(file) for spec in parse_corpora(options.test) for file in spec.files]
    read += [file for file in (options.translations, options.against_file) if file]
    outputs = [file for file in (options.output, options.sentences) if file]
    for output in outputs:
        require_place(output)
        if any(output.exists() and file.exists() and output.samefile(file) for file in read):
            raise UsageError(f"{output}: is read as the test set or for comparison; write to another file")
    if len(outputs) == 2 and outputs[0].resolve() == outputs[1].resolve():
        raise UsageError(f"{outputs[0]}: --output and --sentences are the same file")


def read_translations(path: Path, expected: int) -> list[str]:
    """Return the translations in a file, one a line, in Unicode NFC.

    Raise DragomanError where there are not `expected` lines.
    """
    from dragoman.data.lines import read_lines
    from dragoman.data.tokenizer import normalise

    lines = [normalise(line or "") for line in read_lines(str(path))]
    if len(lines) != expected:
        raise DragomanError(
            f"{path}: {plural(len(lines), 'line')}, but the test set has {plural(expected, 'pair')} with text"
        )
    return lines


def sentence_table(corpus: "Corpus", translations: list[str], theirs: list[str] | None, tokenize: str | None) -> str:
    """Return TSV with a heading: source, reference, translation, BLEU and chrF2 of each sentence.

    theirs: other translations, which get the same columns; None for none. A tab inside a text becomes a space.
    """
    from dragoman.evaluation.metrics import scores_by_sentence

    sources, references = (list(side) for side in zip(*corpus.pairs, strict=True))
    columns = [["source", *sources], ["reference", *references]]
    for suffix, texts in (("", translations), (" against", theirs)):
        if texts is not None:
            bleu, chrf = zip(*scores_by_sentence(texts, references, tokenize), strict=True)
            columns.append([f"translation{suffix}", *texts])
            columns.append([f"BLEU{suffix}", *(f"{score:.1f}" for score in bleu)])
            columns.append([f"chrF2{suffix}", *(f"{score:.1f}" for score in chrf)])
    rows = zip(*columns, strict=True)
    return "".join("\t".join(cell.replace("\t", " ") for cell in row) + "\n" for row in rows)


def add_details(
    options: Options,
    corpus: "Corpus",
    translations: list[str],
    theirs: list[str] | None,
    record: dict[str, Any],
    text: list[str],
) -> None:
    """Add intervals and, if there are any, the comparison to `record` (JSON) and to the lines `text`, in place.

    With --details also add scores by length to both; without, `text` gets no intervals. translations: those of the
    model; theirs: others to compare them with, or None. Print on standard error if TER is left out.
    """
    from dragoman.evaluation.metrics import scores_by_length
    from dragoman.evaluation.significance import RESAMPLES, describe_difference, estimate_scores, reason_against_ter

    sources, references = zip(*corpus.pairs, strict=True)
    systems = [translations, theirs] if theirs else [translations]
    first, *others = estimate_scores(systems, references, options.tokenize)
    if reason := reason_against_ter(systems, references):
        print(f"no TER: {reason}", file=sys.stderr)
    record["intervals"] = [asdict(estimate) for estimate in first]
    interval = f"95 % confidence interval, from {RESAMPLES:,} resampled test sets"
    if options.details:
        text += ["", f"In brackets: {interval}."]
        text += [f"{estimate.name} {estimate}   {estimate.signature}" for estimate in first]
        groups = scores_by_length(sources, translations, references, options.tokenize)
        record["by_length"] = [asdict(group) for group in groups]
        text += ["", "source characters   sentences    BLEU   chrF2"]
        for group in groups:
            span = f"{group.shortest:,} to {group.longest:,}"
            text.append(f"{span:<17}   {group.sentences:>9,}   {group.bleu:>5.1f}   {group.chrf:>5.1f}")
    for second in others:
        name = str(options.against or options.against_file)
        record["against"] = {"name": name, "intervals": [asdict(estimate) for estimate in second]}
        text += ["", f"Against {name} (in brackets: {interval}; p: paired bootstrap):"]
        text += [
            describe_difference(first_score, two, len(sources)) for first_score, two in zip(first, second, strict=True)
        ]
