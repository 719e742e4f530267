"""dragoman translate"""

import sys
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from dragoman.commands import Model, Search, check_compute, parse
from dragoman.config import Device, SearchConfig
from dragoman.errors import DragomanError, UsageError

if TYPE_CHECKING:
    from dragoman.console import LineProgress
    from dragoman.translation.result import Translation
    from dragoman.translation.translator import Translator

BLOCK = 1024  # lines translated together
SHOWN = 60  # characters of a text in a remark


@dataclass(frozen=True)
class Options:
    """Translate text: one line out for each line in, in the same order, whatever is in them.

    $ dragoman translate -m runs/en-ko "See you on Monday."
    $ dragoman translate -m runs/en-ko < source.txt > translation.txt
    $ dragoman translate -m runs/en-ko --input-format jsonl --output-format jsonl < posts.jsonl
    $ dragoman translate -m runs/en-ko -i page.html -o page.ko.html
    """

    model: Model
    "model folder or run folder"
    ensemble: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FOLDER")] = ()
    "another model with the same tokenizer; probabilities are averaged"
    text: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[TEXT ...]")] = ()
    "text to translate; without it, or with -, read lines from the input"
    input: Annotated[Path | None, tyro.conf.arg(aliases=["-i"], metavar="FILE")] = None
    "file to read; default: standard input"
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    "file to write; default: standard output"
    input_format: Literal["text", "tsv", "jsonl"] | None = None
    "how to read a line: text, columns (the first is translated) or object (--text-key); default: by suffix"
    output_format: Literal["text", "tsv", "jsonl", "nbest"] = "text"
    "translations only; with source, score and other columns; as objects; or all --n-best, as in Moses"
    word_scores: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "with --output-format jsonl: add the log-probability of each word"
    alignment: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "with --output-format jsonl: add word alignments, source first, as 0-0 1-2"
    text_key: str = "text"
    "field of the input objects that holds the text"
    translate_key: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    "in a JSON document, translate the values of this key; default: all strings"
    as_lines: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "read --input line by line, even if its suffix is that of a document (docs/documents.md)"
    tag: str = ""
    "tag to put in front of every text, for models trained with tags"
    prefix: str = ""
    "text with which every translation begins"
    glossary: Annotated[Path | None, tyro.conf.arg(metavar="TSV")] = None
    "file of source terms and the target terms to use for them (docs/glossary.md)"
    forbid: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="WORD")] = ()
    "word that no translation may contain"
    placeholders: bool = True
    "placeholders, tags, addresses and code come back unchanged, once each (docs/placeholders.md)"
    keep_numbers: bool = False
    "numbers with units and times of day come back unchanged, too"
    detect_faults: bool = True
    "decode again, more carefully, if a translation is empty, a copy, a loop, or far too long or short"
    engine: Literal["native", "ctranslate2"] = "native"
    "decoder; ctranslate2 is the fastest on CPUs: it converts and verifies the model once and keeps the copy"
    compute_type: Literal["float32", "int8"] = "float32"
    "data type in which ctranslate2 computes"
    device: Device = "auto"
    "where the native engine computes"
    threads: int | None = None
    "CPU threads"
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print nothing on standard error, not even progress"
    search: Search = SearchConfig()


def main(arguments: list[str]) -> None:
    options = parse(Options, "translate", arguments)
    if options.text == ("-",):
        options = replace(options, text=())
    check(options)
    from dragoman.console import LineProgress

    translator = opened(options)
    interactive = not options.text and options.input is None and sys.stdin.isatty()
    with LineProgress(options.quiet, interactive) as progress:
        if options.input and is_document(options):
            translate_document(translator, options, progress)
        else:
            translate_lines(translator, options, progress, interactive)


def check(options: Options) -> None:
    """Raises UsageError for what does not go together."""
    if options.text and options.input:
        raise UsageError("give text or --input, not both")
    if options.input and options.output and options.output.exists() and options.output.samefile(options.input):
        raise UsageError(f"{options.output}: input and output are the same file")
    if options.search.n_best > 1 and options.output_format in ("text", "tsv"):
        raise UsageError(f"--n-best {options.search.n_best} needs --output-format nbest or jsonl")
    if (options.word_scores or options.alignment) and options.output_format != "jsonl":
        raise UsageError("--word-scores and --alignment need --output-format jsonl")
    if options.threads is not None and options.threads < 1:
        raise UsageError(f"--threads must be at least 1, not {options.threads}")
    check_compute(options.engine, options.compute_type)
    for flag, given in (("--ensemble", options.ensemble), ("--glossary", options.glossary)):
        if given and options.engine != "native":
            raise UsageError(f"{flag} needs --engine native")
    if options.ensemble and options.word_scores:
        raise UsageError("--word-scores tells the log-probabilities of one model: leave out --ensemble")
    if options.glossary and (options.search.temperature is not None or options.search.beam_groups > 1):
        raise UsageError("--glossary needs a plain beam search: no --temperature, no --beam-groups")
    if options.translate_key and not (
        options.input and options.input.suffix.lower() == ".json" and is_document(options)
    ):
        raise UsageError("--translate-key is for --input FILE.json as a document")
    if not options.text and options.input is None and sys.stdin is None:
        raise UsageError("there is no standard input: give text or --input")


def opened(options: Options) -> "Translator":
    import torch

    from dragoman.text.glossary import Glossary
    from dragoman.translation.safeguards import Safeguards
    from dragoman.translation.translator import Translator

    if options.threads:
        torch.set_num_threads(options.threads)
    safeguards = Safeguards(
        placeholders=options.placeholders,
        numbers=options.keep_numbers,
        faults=options.detect_faults,
        glossary=Glossary.read(options.glossary) if options.glossary else None,
        forbidden=options.forbid,
    )
    return Translator.load(
        options.model,
        options.search,
        safeguards,
        options.ensemble,
        device=options.device,
        engine=options.engine,
        compute_type=options.compute_type,
        threads=options.threads,
    )


def form(options: Options) -> Literal["text", "tsv", "jsonl"]:
    """What a line of the input is."""
    if options.input_format:
        return options.input_format
    by_name: dict[str, Literal["tsv", "jsonl"]] = {".tsv": "tsv", ".jsonl": "jsonl"}
    return by_name.get(suffix(options), "text")


def suffix(options: Options) -> str:
    """How the name of the input ends; '' without one."""
    return options.input.suffix.lower() if options.input else ""


def is_document(options: Options) -> bool:
    from dragoman.documents import SUFFIXES

    plain = suffix(options) == ".txt" or options.as_lines or (form(options), options.output_format) != ("text", "text")
    return suffix(options) in SUFFIXES and not plain


def translate_document(translator: "Translator", options: Options, progress: "LineProgress") -> None:
    from dragoman.documents import read_document

    assert options.input is not None
    document = read_document(options.input.read_bytes(), options.input.suffix, options.translate_key)
    if options.output:
        options.output.open("ab").close()  # where nothing can be written, that is told before the work
    for line, reason in document.skipped:
        progress.log(f"{options.input}:{line}: {reason}" if line else f"{options.input}: {reason}")
    texts, translations, marks = document.texts, [], Counter[str]()
    for start in range(0, len(texts), BLOCK):
        block = texts[start : start + BLOCK]
        count = len(block)
        found = translator.translate(block, [options.tag] * count, [options.prefix] * count)
        for text, translation in zip(block, found, strict=True):
            count_marks(marks, translation)
            tell(f"'{text[:SHOWN]}'", translation, translator.max_source_tokens, progress)
        translations += [translation.text for translation in found]
        progress.done(count, sum(map(len, block)))
    data = document.fill(translations)
    with options.output.open("wb") if options.output else nullcontext(sys.stdout.buffer) as target:
        target.write(data)
        target.flush()
    tell_marks(marks, progress)


def translate_lines(translator: "Translator", options: Options, progress: "LineProgress", interactive: bool) -> None:
    from dragoman.commands.translate.lines import Line, blocks, read, written

    faults, marks = 0, Counter[str]()
    with (
        options.input.open("rb")
        if options.input
        else nullcontext(BytesIO() if options.text else sys.stdin.buffer) as source,
        options.output.open("wb") if options.output else nullcontext(sys.stdout.buffer) as target,
    ):
        if options.text:
            groups = iter([[Line(number, text) for number, text in enumerate(options.text, start=1)]])
        else:
            lines = read(source, form(options), options.text_key, progress.log)
            groups = blocks(lines, source, interactive, BLOCK)
        for block in groups:
            texts, tags, count = [line.text for line in block], [options.tag] * len(block), len(block)
            found = translator.translate(texts, tags, [options.prefix] * count)
            outputs = [translation.text for translation in found]
            more: list[dict] = [{} for _ in block]
            if options.word_scores:
                for record, scores in zip(more, translator.annotator.word_scores(texts, outputs, tags), strict=True):
                    record["words"] = [[word, round(log_p, 4)] for word, log_p in scores]
            if options.alignment:
                for record, links in zip(more, translator.annotator.alignments(texts, outputs, tags), strict=True):
                    record["alignment"] = links
            for line, translation, record in zip(block, found, more, strict=True):
                for row in written(line, translation, options.output_format, options.text_key, record):
                    target.write(row.encode("utf-8", "replace") + b"\n")
                count_marks(marks, translation)
                if line.fault:
                    faults += 1
                    progress.log(f"line {line.number}: {line.fault}")
                tell(f"line {line.number}", translation, translator.max_source_tokens, progress)
            target.flush()
            progress.done(count, sum(map(len, texts)))
    tell_marks(marks, progress)
    if faults:
        raise DragomanError(f"{faults:,} lines could not be read; they were told above, the others are translated")


def tell(place: str, translation: "Translation", longest: int, progress: "LineProgress") -> None:
    if translation.flags:
        progress.log(f"{place}: {', '.join(translation.flags)}")
    if translation.segments > 1:
        progress.log(f"{place}: longer than {longest} tokens, translated in {translation.segments} parts")


def count_marks(marks: "Counter[str]", translation: "Translation") -> None:
    marks["translated again, more carefully"] += translation.retried
    marks["still flagged"] += bool(translation.flags)
    marks["terms met"] += len(translation.terms_met)


def tell_marks(marks: "Counter[str]", progress: "LineProgress") -> None:
    if told := [f"{count:,} {name}" for name, count in marks.items() if count]:
        progress.log(", ".join(told))
