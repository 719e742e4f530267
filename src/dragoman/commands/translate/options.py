"""The flags of `dragoman translate`, and what goes together."""

import contextlib
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dragoman.commands import FlagSearchConfig, Model, Search, check_seed
from dragoman.config import ComputeType, Device, EngineName
from dragoman.data.spec import NOT_TEXT, refuse_unreadable, suffix_of
from dragoman.errors import UsageError
from dragoman.storage.output import part_of, require_place

InputFormat = Literal["text", "tsv", "jsonl"]
OutputFormat = Literal["text", "tsv", "jsonl", "nbest"]
BY_SUFFIX: dict[str, InputFormat] = {".tsv": "tsv", ".jsonl": "jsonl"}  # what a line is; in other files it is text
OF_PAIRS = (".parquet", ".tmx")  # which have translations already
ALL_IS_FOR = "--all is for documents whose messages have translations, such as PO and XLIFF"
STDIN, STDOUT = Path("/dev/stdin"), Path("/dev/stdout")


@dataclass(frozen=True)
class Options:
    """Translate text: exactly one output line for each input line, in the same order.

    $ dragoman translate -m runs/demo-en-ko "We need 27 seats next to each other, if possible."
    $ dragoman translate -m runs/en-ko < source.txt > translation.txt
    $ dragoman translate -m runs/en-ko --input-format jsonl --output-format jsonl < posts.jsonl
    $ dragoman translate -m runs/en-ko -i page.html -o page.ko.html
    """

    model: Model
    "model folder, run folder or hub:USER/NAME"
    ensemble: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FOLDER")] = ()
    "another model with the same tokenizer; probabilities are averaged"
    text: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[TEXT ...]")] = ()
    "text to translate; without it, or with -, read lines from the input"
    input: Annotated[Path | None, tyro.conf.arg(aliases=["-i"], metavar="FILE")] = None
    "file to read, also .gz or .zst; its suffix decides the format; without it, or with -: standard input"
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    "file to write; its suffix decides the format, and .gz and .zst compress; without it, or with -: standard output"
    input_format: InputFormat | None = None
    "text; tsv: the first column is translated; jsonl: the field --text-key is translated; default: by suffix"
    output_format: OutputFormat | None = None
    "text: translations; tsv: source, translation, score; jsonl: objects; nbest: as in Moses; default: by suffix"
    word_scores: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "with --output-format jsonl: add the log-probability of each word"
    alignment: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "with --output-format jsonl: add word alignments, source first, such as 0-0 1-2"
    confidence: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "say how sure the model may be: a column of tsv, a field of jsonl, and what to read first (docs/confidence.md)"
    min_confidence: float = 0.0
    "from 0 to 1: leave out translations that the model is less sure of: blank lines; documents mark or keep them"
    text_key: str = "text"
    "field of the input objects that holds the text"
    translate_key: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    "in JSON and the like, translate the values of this key; default: all; in CSV, this column, by name or number"
    all: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "in PO, XLIFF and the like, also translate messages that have a translation; default: those without, and stale ones"
    as_lines: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "read --input line by line, even if its suffix is that of a document (docs/documents.md)"
    tag: str = ""
    "tag to put in front of every text, for models trained with tags"
    target_tag: str = ""
    "tag that every translation begins with, such as its language, for models trained with such tags; it is not printed"
    prefix: str = ""
    "text that every translation begins with; its last word may be extended, unless a space follows it"
    glossary: Annotated[Path | None, tyro.conf.arg(metavar="TSV")] = None
    "file of source terms and the target terms to use for them (docs/glossary.md)"
    memory: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    "approved pairs that the model remembers, made by dragoman remember (docs/memory.md)"
    swap_numbers: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "with --memory: what was approved counts, too, where numbers and placeholders differ; they are swapped"
    origins: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "with --memory and --output-format jsonl: name the approved pairs behind each word"
    forbid: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="WORD")] = ()
    "word that no translation may contain: a whole word, in any case (a word in capitals: only in capitals)"
    forbid_exact: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="WORD")] = ()
    "the same, but only in exactly this spelling"
    placeholders: bool = True
    "keep placeholders, tags, URLs, code, names of files and the like unchanged, and numbers equal (docs/verbatim.md)"
    keep_numbers: bool = False
    "also keep the units and signs of numbers as they are"
    keep: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="REGEX")] = ()
    "also keep unchanged what this regular expression matches; may be given several times"
    keep_file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    "the same, with a regular expression on each line of a file"
    detect_faults: bool = True
    "if a translation is empty, a copy, a loop, or far too long or short, retry with a wider beam and no repetitions"
    sentence_case: bool = True
    "read texts in capitals, Title Case or mIxEd cAsE as sentences, and write the capitals again (docs/robustness.md)"
    visible_characters: bool = True
    "leave soft hyphens and other characters that nobody sees out of texts, and read full-width Latin as ASCII"
    engine: EngineName = "native"
    "search engine; ctranslate2, usually the fastest on CPUs, converts the model once and checks the copy on a sample"
    compute_type: ComputeType = "float32"
    "data type of matmuls, on a GPU float32 or bfloat16; auto: the fastest in batches here"
    device: Device = "auto"
    "where the native engine computes"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print nothing on standard error, not even progress"
    search: Search = FlagSearchConfig()

    @property
    def suffix(self) -> str:
        """Return the suffix of the input file, see `format_of`."""
        return format_of(self.input)

    @property
    def line_format(self) -> InputFormat:
        """Return how the lines of the input are read: as --input-format says, else by the suffix of the input file."""
        return self.input_format or BY_SUFFIX.get(self.suffix, "text")

    @property
    def row_format(self) -> OutputFormat:
        """Return how lines are written: as --output-format says, else by the suffix of --output, else as text."""
        return self.output_format or BY_SUFFIX.get(format_of(self.output), "text")

    @property
    def is_document(self) -> bool:
        """Return whether the input is translated as a whole, not line by line."""
        as_text = self.line_format == "text" and self.output_format in (None, "text")
        return as_text and not self.as_lines and is_document(self.suffix)


def format_of(file: Path | None) -> str:
    """Return the suffix of a file in lower case, without that of a compression; '' for no file or no suffix."""
    return suffix_of(str(file)) if file else ""


def is_document(suffix: str) -> bool:
    """Return whether files with this suffix are documents, which are translated as a whole."""
    if suffix in ("", ".txt", *BY_SUFFIX):  # lines need none of what documents load
        return False
    from dragoman.documents import SUFFIXES

    return suffix in SUFFIXES


def check_files(options: Options) -> None:
    """Raise UsageError for a format that translate cannot read or write, and an output that does not suit the input.

    Formats are told from the names: whether the files can be opened shows later.
    """
    read, written = options.suffix, format_of(options.output)
    if options.input:
        if not options.is_document:
            refuse_unreadable(str(options.input))
        if read in OF_PAIRS:
            raise UsageError(f"{options.input}: has translations already; translate reads text and documents")
    if is_document(read) and not options.is_document and not options.as_lines:
        raise UsageError(f"{options.input}: a document keeps its format; to translate its lines: --as-lines")
    if not options.is_document:
        check_lines(options)
    check_output(options)
    if written in (".mo", ".gmo"):
        raise UsageError(f"{options.output}: MO files are compiled: write a .po, then compile it with msgfmt")
    if written in OF_PAIRS or (written in NOT_TEXT and not is_document(written)):
        raise UsageError(f"{options.output}: cannot be written; lines become .txt, .tsv or .jsonl, documents stay")
    if options.output_format or written == read:
        return
    if options.is_document and written in (".txt", *BY_SUFFIX):
        raise UsageError(f"{options.output}: a document keeps its format, {read}; to translate its lines: --as-lines")
    if is_document(written):
        from dragoman.documents import CONFIGURED, PARSERS

        parsers = {**PARSERS, **CONFIGURED}
        if not options.is_document or parsers.get(read, read) is not parsers.get(written, written):
            must = f"--output must end in {read}" if options.is_document else f"--input must be {written}, too"
            raise UsageError(f"{options.output}: a document keeps its format, so {must}")


def check_lines(options: Options) -> None:
    """Raise UsageError for an input that is to be translated line by line, but whose lines are no sentences."""
    if options.as_lines or options.input_format or options.suffix in (".txt", *BY_SUFFIX):
        return
    if not options.input or not options.input.is_file():  # a pipe can be read but once
        return
    from dragoman.data.lines import read_blocks
    from dragoman.documents.structure import HEAD, structure_of

    head = next(read_blocks(str(options.input)), b"")[:HEAD]
    if reason := structure_of(head, options.suffix):
        raise UsageError(f"{options.input}: {reason}; to translate its lines all the same: --as-lines")


def check_output(options: Options) -> None:
    """Raise UsageError where --output has no place, and where a file that is read would be written, or is its part."""
    if options.output:
        require_place(options.output)
    read = [options.glossary] if options.glossary else []
    read += [] if options.text else [options.input or STDIN]
    written = [options.output, part_of(options.output)] if options.output else [STDOUT]
    for source, target in product(read, written):
        with contextlib.suppress(OSError):  # it does not exist, or is closed
            if source.samefile(target) and target.is_file() and (options.output or target.stat().st_size):
                raise UsageError(f"{options.output or 'standard output'}: input and output are the same file")


def check_options(options: Options) -> None:
    """Raise UsageError for flags that do not go together."""
    if not options.text and options.input is None and sys.stdin is None:
        raise UsageError("there is no standard input: give text or --input")
    if options.search.n_best > 1 and options.is_document:
        raise UsageError(f"--n-best {options.search.n_best} is for lines; a document has one translation of each text")
    if options.search.n_best > 1 and options.row_format in ("text", "tsv"):
        raise UsageError(f"--n-best {options.search.n_best} needs --output-format nbest or jsonl")
    if (options.word_scores or options.alignment) and options.row_format != "jsonl":
        raise UsageError("--word-scores and --alignment need --output-format jsonl")
    if (options.swap_numbers or options.origins) and options.memory is None:
        raise UsageError("--swap-numbers and --origins need a --memory")
    if options.origins and options.row_format != "jsonl":
        raise UsageError("--origins needs --output-format jsonl")
    if options.ensemble and options.memory:
        raise UsageError("a memory is that of one model: leave out --ensemble")
    check_seed(options.search)
    if options.ensemble and (options.confidence or options.min_confidence):
        raise UsageError("confidence is measured for a single model: leave out --ensemble")
    if options.ensemble and options.engine != "native":
        raise UsageError("--ensemble needs --engine native")
    if options.ensemble and options.word_scores:
        raise UsageError("--word-scores needs a single model: leave out --ensemble")
    if options.glossary and (options.search.temperature is not None or options.search.beam_groups > 1):
        raise UsageError("--glossary needs a plain beam search: no --temperature, no --beam-groups")
    if options.all and not options.is_document:
        raise UsageError(ALL_IS_FOR)
    if options.translate_key:
        from dragoman.documents import KEYED

        if not (options.suffix in KEYED and options.is_document):
            raise UsageError(f"--translate-key needs an --input in {', '.join(KEYED)}, translated as a document")
