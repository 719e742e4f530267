"""dragoman translate: its flags, what goes together, and the choice between a document and lines of text."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from dragoman.commands import Model, Search, check_compute, parse
from dragoman.config import Device, SearchConfig
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.translation.translator import Translator

InputFormat = Literal["text", "tsv", "jsonl"]
OutputFormat = Literal["text", "tsv", "jsonl", "nbest"]


@dataclass(frozen=True)
class Options:
    """Translate text: exactly one output line for each input line, in the same order.

    $ dragoman translate -m runs/demo-en-ko "We need 27 seats next to each other, if possible."
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
    input_format: InputFormat | None = None
    "text; tsv: the first column is translated; jsonl: the field --text-key is translated; default: by suffix"
    output_format: OutputFormat = "text"
    "text: only translations; tsv: also source, score, other columns; jsonl: objects; nbest: --n-best, as in Moses"
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
    "text that every translation begins with"
    glossary: Annotated[Path | None, tyro.conf.arg(metavar="TSV")] = None
    "file of source terms and the target terms to use for them (docs/glossary.md)"
    forbid: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="WORD")] = ()
    "word that no translation may contain"
    placeholders: bool = True
    "keep placeholders, tags, addresses and code unchanged, each exactly once (docs/placeholders.md)"
    keep_numbers: bool = False
    "also keep numbers with units and times of day unchanged"
    detect_faults: bool = True
    "if a translation is empty, a copy, a loop, or far too long or short, retry with a wider beam and no repetitions"
    engine: Literal["native", "ctranslate2"] = "native"
    "decoder; ctranslate2 is the fastest on CPUs: it converts and verifies the model once and keeps the copy"
    compute_type: Literal["float32", "int8"] = "float32"
    "data type that ctranslate2 computes in"
    device: Device = "auto"
    "where the native engine computes"
    threads: int | None = None
    "CPU threads"
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print nothing on standard error, not even progress"
    search: Search = SearchConfig()

    @property
    def suffix(self) -> str:
        """Return the suffix of the input file in lower case; '' without one."""
        return self.input.suffix.lower() if self.input else ""

    @property
    def line_format(self) -> InputFormat:
        """Return how the lines of the input are read: as --input-format says, else by the suffix of the input file."""
        by_suffix: dict[str, InputFormat] = {".tsv": "tsv", ".jsonl": "jsonl"}
        return self.input_format or by_suffix.get(self.suffix, "text")

    @property
    def is_document(self) -> bool:
        """Return whether the input is translated as a whole, not line by line, by its suffix and the flags about lines.

        It is for the suffix of a document other than .txt, without --as-lines and with both formats 'text'.
        """
        lines = (self.line_format, self.output_format) != ("text", "text")
        if self.as_lines or lines or self.suffix in ("", ".txt"):
            return False
        from dragoman.documents import SUFFIXES

        return self.suffix in SUFFIXES


def main(arguments: list[str]) -> None:
    """Run `dragoman translate`: translate a document as a whole, or lines of text one by one."""
    options = parse(Options, "translate", arguments)
    if options.text == ("-",):
        options = replace(options, text=())
    check_options(options)
    from dragoman.console import LineProgress

    translator = open_translator(options)
    interactive = not options.text and options.input is None and sys.stdin.isatty()
    with LineProgress(options.quiet, interactive) as progress:
        if options.is_document:
            from dragoman.commands.translate.document import translate_document

            translate_document(translator, options, progress)
        else:
            from dragoman.commands.translate.lines import translate_lines

            translate_lines(translator, options, progress, interactive)


def check_options(options: Options) -> None:
    """Raise UsageError for flags that do not go together."""
    if options.text and options.input:
        raise UsageError("give text or --input, not both")
    if not options.text and options.input is None and sys.stdin is None:
        raise UsageError("there is no standard input: give text or --input")
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
        raise UsageError("--word-scores needs a single model: leave out --ensemble")
    if options.glossary and (options.search.temperature is not None or options.search.beam_groups > 1):
        raise UsageError("--glossary needs a plain beam search: no --temperature, no --beam-groups")
    if options.translate_key and not (options.suffix == ".json" and options.is_document):
        raise UsageError("--translate-key needs --input FILE.json, translated as a document")


def open_translator(options: Options) -> "Translator":
    """Return the translator that the flags describe; set PyTorch's threads.

    Raise DragomanError where the model or the glossary is faulty.
    """
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
