"""Translate lines: one record out for each line in, in the same order, whatever is in them."""

import contextlib
import io
import json
import math
import os
import queue
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from dragoman.commands.translate.options import InputFormat, Options, OutputFormat
from dragoman.commands.translate.report import TranslationReport
from dragoman.console import LineProgress
from dragoman.data.jsonl import text_keys, value_at
from dragoman.data.lines import LONGEST_LINE, codec_of, foreign_beginning, read_blocks
from dragoman.data.tokenizer import SURROGATE
from dragoman.errors import DragomanError, plural
from dragoman.memory.pairs import ApprovedPair
from dragoman.memory.provenance import Shares
from dragoman.storage.output import is_replaceable, open_output
from dragoman.storage.writing import name_errors
from dragoman.translation.segments import one_line
from dragoman.translation.translation import TERM_REPORTS, Translation
from dragoman.translation.translator import Translator

PROMPT = "> "
BLOCK = 1024  # lines translated together
READ_AHEAD = 2048  # lines that are read ahead of a slow translation
BLOCK_SIZE = LONGEST_LINE  # characters of long lines that are translated together, and that are read ahead
READ = 1 << 16  # bytes read at once; a pipe holds no more
SHOWN = 5  # damaged lines that are named
SURE = 1.0  # the confidence in what is copied
MAX_DEPTH = 100  # of objects and arrays in a line of JSONL; Python writes fewer levels than it reads
# The fields that the output adds to an object. Those of the input, which may be from an earlier translation, are left
# out, so that none is taken for one of this translation.
OUTPUT_FIELDS = frozenset(
    (
        "translation",
        "score",
        "finished",
        "flags",
        "retried",
        "confidence",
        *TERM_REPORTS,
        "segments",
        "alternatives",
        "words",
        "alignment",
        "memory",
        "origins",
    )
)
Log = Callable[[str], None]


@dataclass(frozen=True)
class Line:
    """An input line: the text to translate, and the other columns or fields, which are copied to the output."""

    number: int
    text: str
    columns: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()  # names of fields that are not copied
    error: str = ""  # why there is no text
    size: int = 0  # characters of the whole line


def translate_lines(translator: Translator, options: Options, progress: LineProgress, interactive: bool) -> None:
    """Translate the texts of the command line or the lines of the input, and write them block by block.

    They go to --output, or standard output. Raise DragomanError at the end where lines could not be read.
    """
    report = TranslationReport(progress, translator, ranked=options.confidence)
    errors, left_out = 0, frozenset[str]()
    with (
        options.input.open("rb")
        if options.input
        else contextlib.nullcontext(io.BytesIO() if options.text else sys.stdin.buffer) as source,
        open_blocks(options.output) as (target, end_block),
    ):
        if options.text:
            blocks = iter([[Line(number, text) for number, text in enumerate(options.text, start=1)]])
            hint_at_files(options.text, progress.log)
        else:
            compressed = options.input and codec_of(options.input)
            if interactive:
                raw = typed_lines("" if options.quiet else PROMPT)
            elif compressed:
                raw = read_blocks(str(options.input))
            else:
                raw = arriving_blocks(source, options.input)
            text = as_utf8(capped_lines(raw), options.input)
            lines = parse_lines(text, options.line_format, options.text_key, progress.log)
            blocks = line_blocks(lines, source, interactive, BLOCK)
        for block in blocks:
            progress.begin(len(block))
            tags = [options.tag] * len(block)
            translations = translator.translate([line.text for line in block], tags, [options.prefix] * len(block))
            annotations = annotate(translator, options, translations, tags)
            for line, translation, annotation in zip(block, translations, annotations, strict=True):
                fields = {**translation_fields(translation), **annotation} if options.row_format == "jsonl" else {}
                if options.confidence:
                    sure = SURE if translation.confidence is None else round(translation.confidence, 4)
                    fields = {**fields, "confidence": sure} if fields else {}
                    line = replace(line, columns=(f"{sure:.4f}", *line.columns))
                for row in output_rows(line, translation, options.row_format, options.text_key, fields):
                    target.write(row.encode("utf-8", "replace") + b"\n")
                if fields and (more := (line.left_out | line.fields.keys() & fields.keys()) - left_out):
                    left_out |= more
                    progress.log(
                        f"line {line.number}: fields left out from here on, as the output uses their names: "
                        f"{', '.join(sorted(more))}; rename them to keep them"
                    )
                if line.error:
                    errors += 1
                    progress.log(f"line {line.number}: {line.error}")
                report.add(f"line {line.number}", translation)
            end_block()
            progress.advance(sum(len(line.text) for line in block))
    report.summarise()
    if errors:
        others = "; all others were translated" if errors < progress.lines else ""
        raise DragomanError(f"{plural(errors, 'line')} could not be read, listed above{others}")


@contextlib.contextmanager
def open_blocks(path: Path | None) -> Iterator[tuple[BinaryIO, Callable[[], None]]]:
    """Yield a file as `open_output` does, and what to call at the end of each block.

    After an exception, the part has nothing behind the last of these ends, where a full disk may have cut a line. A
    compressed one stays as it is.
    """
    replaceable = path is not None and is_replaceable(path)
    whole = 0

    def end_block() -> None:
        nonlocal whole
        target.flush()
        whole = target.tell() if replaceable else 0

    with open_output(path, keep=lambda: whole) as target:
        yield target, end_block


def annotate(
    translator: Translator, options: Options, translations: Sequence[Translation], tags: Sequence[str]
) -> list[dict[str, Any]]:
    """Return, for each translation, the word scores and alignments that the flags ask for, as fields of the output.

    They are 'words', 'alignment' and 'origins'; {} where none were asked for. tags: of each text.
    """
    annotations: list[dict[str, Any]] = [{} for _ in translations]
    segments = [translation.segments for translation in translations]
    tokens = [translation.tokens for translation in translations]
    if options.word_scores:
        scores = translator.annotator.word_scores(segments, tags, tokens)
        for annotation, words in zip(annotations, scores, strict=True):
            annotation["words"] = [[word, round(log_p, 4)] for word, log_p in words]
    if options.alignment:
        for annotation, links in zip(annotations, translator.annotator.alignments(segments, tags, tokens), strict=True):
            annotation["alignment"] = links
    if options.origins and translator.memory:
        pairs = translator.memory.pairs
        for annotation, of_words in zip(annotations, translator.origins(translations, tags), strict=True):
            annotation["origins"] = [origin_fields(shares, pairs) for shares in of_words]
    return annotations


def origin_fields(shares: Shares, pairs: Sequence[ApprovedPair | None]) -> list[dict[str, Any]]:
    """Return the first SHOWN pairs that speak for a word, with their shares; pairs: those of the memory."""
    return [
        {
            "share": round(share.probability, 4),
            "neighbours": round(share.neighbours, 4),
            **pair_fields(number, pair),
        }
        for number, share in list(shares.items())[:SHOWN]
        if (pair := pairs[number])
    ]


def pair_fields(number: int, pair: ApprovedPair) -> dict[str, Any]:
    """Return what tells an approved pair: its number in the memory, its two sides and its origin."""
    return {"number": number, "source": pair.source, "target": pair.target, "origin": pair.origin}


# Reading.


def arriving_blocks(source: BinaryIO, path: Path | None) -> Iterator[bytes]:
    """Yield the bytes of a file as they arrive; an OSError names `path`, or for None standard input."""
    with name_errors(path or "standard input"):
        while block := os.read(source.fileno(), READ):
            yield block


def capped_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines in blocks of bytes, with their ends.

    Of a line longer than LONGEST_LINE only the beginning is kept, which is longer, too.
    """
    line, skipping = bytearray(), False
    for block in blocks:
        for piece in io.BytesIO(block):
            ends = piece.endswith(b"\n")
            if skipping:
                skipping = not ends
                continue
            line += piece
            if ends or len(line) > LONGEST_LINE:
                yield bytes(line)
                line.clear()
                skipping = not ends
    if line:
        yield bytes(line)


def as_utf8(lines: Iterator[bytes], path: Path | None) -> Iterator[bytes]:
    """Yield the lines. Raise DragomanError where they begin as UTF-16 or a compressed file does, not as UTF-8.

    path: of the file that the message names, None for standard input.
    """
    first = next(lines, b"")
    if what := foreign_beginning(first[:4]):
        raise DragomanError(f"{path or 'standard input'}: {what}")
    yield from (line for line in (first,) if line)
    yield from lines


def typed_lines(prompt: str) -> Iterator[bytes]:
    """Yield the lines that are typed at a terminal, with their ends, after a prompt for each.

    The standard readline edits them and recalls earlier ones; the prompt is part of what it draws, on standard output.
    Where translations go elsewhere, the terminal itself reads the lines, and the prompt is on standard error.
    """
    if not sys.stdout.isatty():
        print(prompt, end="", file=sys.stderr, flush=True)
        for line in sys.stdin.buffer:
            yield line
            print(prompt, end="", file=sys.stderr, flush=True)
        return
    with contextlib.suppress(ImportError):  # a Python without it
        import readline  # noqa: F401
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    with contextlib.suppress(EOFError):
        while True:
            yield f"{input(prompt)}\n".encode(errors="surrogateescape")


def hint_at_files(texts: Sequence[str], log: Log) -> None:
    """Log how to translate a file for each text that is the name of one."""
    for text in texts:
        with contextlib.suppress(OSError, ValueError):  # too long for a name, or NUL in it
            if Path(text).is_file():
                log(f"{text} is also a file here; to translate what is in it: --input {text}")


def parse_lines(source: Iterable[bytes], form: InputFormat, text_key: str, log: Log) -> Iterator[Line]:
    """Yield the lines of an input. Of TSV the first column is the text, of JSONL the string under `text_key`.

    A line that cannot be read has an `error` instead of a text; `log` gets a message for bytes that are not UTF-8.
    """
    for number, text in decode_lines(source, log):
        if text is None:
            yield Line(number, "", error=f"longer than {LONGEST_LINE >> 20} MiB", size=LONGEST_LINE)
        elif form == "text":
            yield Line(number, text, size=len(text))
        elif form == "tsv":
            first, *others = text.split("\t")
            yield Line(number, first, tuple(others), size=len(text))
        else:
            yield replace(parse_object(number, text, text_key), size=len(text))


def decode_lines(source: Iterable[bytes], log: Log) -> Iterator[tuple[int, str | None]]:
    """Yield the number and the text of each line of UTF-8; None for one that is longer than LONGEST_LINE.

    Only LF, or CR LF, ends a line. Bytes that are not UTF-8 become U+FFFD, which `log` gets a message of, for the first
    few lines; a byte order mark is dropped.
    """
    damaged = 0
    for number, line in enumerate(source, start=1):
        if len(line) > LONGEST_LINE:
            yield number, None
            continue
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        text = line.decode("utf-8", "replace")
        if "\ufffd" in text and text.encode() != line:
            damaged += 1
            if damaged <= SHOWN:
                log(f"line {number}: not UTF-8; undecodable bytes are replaced")
        yield number, text.removeprefix("\ufeff") if number == 1 else text
    if damaged:
        log(f"{plural(damaged, 'line')} not in UTF-8; a file in Latin-1 is converted by: iconv -f latin1 -t utf-8")


def parse_object(number: int, text: str, text_key: str) -> Line:
    """Return the line of a JSON object, with its other fields but for those that the output will have (OUTPUT_FIELDS).

    number: of the line; text: the JSON; text_key: of the string to translate, dotted where that lies in an object of
    the object. The line has an `error` instead of a text if this is not JSON, nested more than MAX_DEPTH deep, not an
    object, or if it has no such string. A text in an object that the output does not have stands under `text_key`.
    """
    try:
        fields = json.loads(text, parse_float=parse_finite, parse_constant=refuse_constant)
    except (json.JSONDecodeError, RecursionError):
        return Line(number, "", error="not JSON")
    except ValueError:  # Python reads no whole number of thousands of digits
        return Line(number, "", error="a number is too large")
    if text.count("[") + text.count("{") > MAX_DEPTH and nesting_depth(fields) > MAX_DEPTH:
        return Line(number, "", error=f"objects and arrays nested more than {MAX_DEPTH} deep")
    if not isinstance(fields, dict):
        return Line(number, "", error="not a JSON object")
    try:
        text = value_at(fields, text_key)
    except KeyError:
        others = ", ".join(text_keys(fields)[:SHOWN])
        hint = f"; --text-key names one with a text: {others}" if others else ""
        return Line(number, "", error=f"no field '{text_key}'{hint}")
    if not isinstance(text, str):
        return Line(number, "", error=f"the field '{text_key}' is not a string")
    kept = {name: value for name, value in fields.items() if name == text_key or name not in OUTPUT_FIELDS}
    left_out = frozenset(fields.keys() - kept.keys())
    if text_key.split(".")[0] in left_out:
        kept[text_key] = text
    return Line(number, text, fields=kept, left_out=left_out)


def parse_finite(text: str) -> float:
    """Return a number of JSON. Raise ValueError where it is beyond the range of a float."""
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


def refuse_constant(text: str) -> None:
    """Raise JSONDecodeError: NaN and infinities are no JSON."""
    raise json.JSONDecodeError("no JSON", text, 0)


def nesting_depth(value: Any) -> int:
    """Return how deep objects and arrays of JSON are nested; 0 for a number or a string."""
    levels, level = 0, [value]
    while level := [inner for inner in level if isinstance(inner, dict | list)]:
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
        levels += 1
    return levels


def line_blocks(lines: Iterator[Line], source: BinaryIO, interactive: bool, size: int) -> Iterator[list[Line]]:
    """Yield lines in the blocks that are translated together.

    source: the file that `lines` are read from. At a prompt a block is one line, of a file `size` lines, of a pipe the
    lines that have arrived by now: a pipe is read in a thread of its own, so that a program that writes line by line
    gets each translation at once. With long lines a block ends early.
    """
    is_file = stat.S_ISREG(os.fstat(source.fileno()).st_mode)
    arriving = ((line, interactive) for line in lines) if interactive or is_file else read_ahead(lines)
    block: list[Line] = []
    characters, failed = 0, None
    try:
        for line, is_last in arriving:
            block.append(line)
            characters += line.size
            if is_last or len(block) == size or characters >= BLOCK_SIZE:
                yield block
                block, characters = [], 0
    except Exception as error:  # raised when what was read before is translated
        failed = error
    if block:
        yield block
    if failed:
        raise failed


def read_ahead(lines: Iterator[Line]) -> Iterator[tuple[Line, bool]]:
    """Yield lines that a thread of its own reads, and whether each is the last one that has arrived by now.

    The thread is READ_AHEAD lines ahead at most, or BLOCK_SIZE characters.
    """
    arrived: queue.Queue[Line | BaseException | None] = queue.Queue()
    room = threading.Semaphore(READ_AHEAD)

    def places(line: Line) -> int:
        return 1 + line.size * (READ_AHEAD - 1) // BLOCK_SIZE

    def read() -> None:
        try:
            for line in lines:
                for _ in range(places(line)):
                    room.acquire()
                arrived.put(line)
            arrived.put(None)
        except BaseException as error:  # raised below, where the lines are used
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    while line := arrived.get():
        if isinstance(line, BaseException):
            raise line
        room.release(places(line))
        yield line, arrived.empty()


# Writing.


def output_rows(
    line: Line,
    translation: Translation,
    form: OutputFormat,
    text_key: str,
    fields: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[str]:
    """Yield the output of one input line: one row, or for `nbest` one for each translation, in the format of Moses.

    That is: index ||| translation ||| F0= score ||| score, the index counted from 0. An object has the fields of the
    input, or the text under `text_key` where it had none, and `fields`, those of the translation; for a line that could
    not be read it has 'line' and 'error'.
    """
    if form == "text":
        yield keep_margins(line.text, translation.text)
    elif form == "tsv":
        yield "\t".join([as_column(line.text), as_column(translation.text), f"{translation.score:.4f}", *line.columns])
    elif form == "nbest":
        for ranked in (translation, *translation.alternatives):
            yield f"{line.number - 1} ||| {ranked.text} ||| F0= {ranked.score:.4f} ||| {ranked.score:.4f}"
    elif line.error:
        yield as_json({"line": line.number, "error": line.error})
    else:
        yield as_json({**(line.fields or {text_key: line.text}), **fields})


def keep_margins(source: str, translation: str) -> str:
    """Return a translation with the white space that is around its source, such as an indentation, on one line."""
    text = source.strip()
    if not text or not translation:
        return translation
    before, after = map(one_line, source.split(text, 1))
    return f"{before}{translation}{after}"


def translation_fields(translation: Translation) -> dict[str, Any]:
    """Return the fields of a translation in the output: 'translation', 'score' and 'finished'.

    Unless they are empty, there are also 'flags', 'retried', TERM_REPORTS, 'alternatives', 'memory', the approved pair
    whose source is like the text, and 'segments', the number of segments if there are several.
    """
    fields: dict[str, Any] = {
        "translation": translation.text,
        "score": round(translation.score, 4),
        "finished": translation.finished,
    }
    for name in ("flags", "retried", *TERM_REPORTS):
        if value := getattr(translation, name):
            fields[name] = value
    if len(translation.segments) > 1:
        fields["segments"] = len(translation.segments)
    if match := translation.memory:
        fields["memory"] = {"similarity": round(match.similarity, 4), **pair_fields(match.number, match.pair)}
    if translation.alternatives:
        fields["alternatives"] = [
            {"translation": alternative.text, "score": round(alternative.score, 4)}
            for alternative in translation.alternatives
        ]
    return fields


def as_json(record: dict[str, Any]) -> str:
    """Return an object as a line of JSON."""
    text = json.dumps(record, ensure_ascii=False)
    return json.dumps(record) if SURROGATE.search(text) else text  # half a surrogate pair is not UTF-8


def as_column(text: str) -> str:
    """Return a text as a column of TSV: with spaces for tabs and line feeds."""
    return text.replace("\t", " ").replace("\n", " ")
