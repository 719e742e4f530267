"""Rows from every format: a generator each, chosen by the file's suffix, that holds a line or a block in memory."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.data.lines import BLOCK, RATIO, SPARE, Problem, Row, Tell, lines, shortened, unbroken
from dragoman.data.po import catalogue
from dragoman.data.spec import COMPRESSED, CorpusSpec, display_path
from dragoman.data.tmx import translation_memory
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile

COLUMNS = ("source", "target")  # where `columns=` is not given
ROWS = 1024  # of Parquet in memory
BOMB = f"it unpacks to more than {RATIO} times its size, which text does not"


def read(origin: CorpusSpec, tell: Tell) -> Iterator[Row]:
    """The rows of a corpus in their order, those with an empty side among them.

    `tell` is told of everything else that is met. Where it does not raise, a row that cannot be read is missing.
    Raises DragomanError where the file as a whole cannot be read.
    """
    file = origin.files[0]
    if origin.format == ".parquet" and file.endswith(COMPRESSED):
        raise DragomanError(
            f"{display_path(file)}: Parquet cannot be read while packed, and is packed inside; unpack it"
        )
    match origin.format:
        case ".tsv":
            return tab_separated(file, tell)
        case ".jsonl":
            return json_lines(file, origin.columns or COLUMNS, tell)
        case ".parquet":
            return parquet(file, origin.columns or COLUMNS, tell)
        case ".tmx":
            return translation_memory(file, origin.columns, tell)
        case ".po":
            return catalogue(file, tell)
    return line_aligned(file, origin.files[1], tell)


def tab_separated(path: str, tell: Tell) -> Iterator[Row]:
    for number, line in enumerate(lines(path, tell), start=1):
        if line is None:
            continue
        columns = line.split("\t")
        if len(columns) == 2:
            yield Row(number, columns[0], columns[1])
        elif len(columns) == 1 and not line.strip():
            yield Row(number, "", "")
        else:
            wrong = f"{len(columns)} columns" if len(columns) > 2 else "no tab"
            tell(Problem("columns", path, number, f"{wrong}, expected source TAB target, found: {shortened(line)}"))


def line_aligned(source: str, target: str, tell: Tell) -> Iterator[Row]:
    """Line n of the one with line n of the other. A line that cannot be read takes its partner with it."""
    end: Any = object()
    counts = [0, 0]
    for number, (s, t) in enumerate(
        itertools.zip_longest(lines(source, tell), lines(target, tell), fillvalue=end), start=1
    ):
        counts[0] += s is not end
        counts[1] += t is not end
        if isinstance(s, str) and isinstance(t, str):
            yield Row(number, s, t)
    if counts[0] != counts[1]:
        text = (
            f"{display_path(source)} has {counts[0]:,} lines, {display_path(target)} has {counts[1]:,}: "
            "line n of the one must be the translation of line n of the other"
        )
        tell(Problem("line-counts", source, 0, text))


def json_lines(path: str, columns: tuple[str, str], tell: Tell) -> Iterator[Row]:
    for number, line in enumerate(lines(path, tell), start=1):
        if line is None:
            continue
        if not line.strip():
            yield Row(number, "", "")
            continue
        try:
            record = json.loads(line)
            source, target = (looked_up(record, column) for column in columns)
        except (ValueError, RecursionError) as error:
            reason = f"not JSON ({error.msg})" if isinstance(error, json.JSONDecodeError) else str(error)
            tell(Problem("record", path, number, f"{reason}, found: {shortened(line)}"))
            continue
        yield Row(number, unbroken(source, path, number, tell), unbroken(target, path, number, tell))


def looked_up(record: Any, column: str) -> str:
    """The text under a key, dotted for one inside another; '' for null. Raises ValueError, in words."""
    if not isinstance(record, dict):
        raise ValueError("not a JSON object with a source and a target")
    value = record
    for key in [column] if column in record else column.split("."):
        if not isinstance(value, dict) or key not in value:
            raise ValueError(f"no '{column}' (say which keys hold source and target: columns=en,de)")
        value = value[key]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"'{column}' is not a text")
    try:
        value.encode()  # JSON can write half of a character: "\ud800"
    except UnicodeEncodeError:
        raise ValueError(f"'{column}' has half a character in it (a lone surrogate)") from None
    return value


def parquet(path: str, columns: tuple[str, str], tell: Tell) -> Iterator[Row]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with Path(path).open("rb") as file:
            most = SPARE + RATIO * Path(path).stat().st_size
            refuse_unfit(ParquetFile(file), columns, most)
            # As dictionaries, a text that stands in a million rows is in memory once.
            table = ParquetFile(file, read_dictionary=list(columns), pre_buffer=False, buffer_size=BLOCK)
            number = size = 0
            for batch in table.iter_batches(ROWS, columns=list(columns)):
                sides = [texts(batch, column) for column in columns]
                for source, target in zip(*sides, strict=True):
                    number += 1
                    size += len(source or "") + len(target or "")
                    if size > most:
                        raise ValueError(BOMB)
                    if source is None or target is None:
                        tell(Problem("utf-8", path, number, "not UTF-8: write the column anew as text"))
                    else:
                        yield Row(number, unbroken(source, path, number, tell), unbroken(target, path, number, tell))
    except FileNotFoundError:
        raise DragomanError(f"{display_path(path)}: no such file") from None
    except (OSError, ValueError, LookupError, ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
        raise DragomanError(f"{display_path(path)}: not a Parquet file that can be read: {reason}") from None


def refuse_unfit(table: "ParquetFile", columns: tuple[str, str], most: int) -> None:
    """Raises ValueError where a column is missing or no text, or rows that are packed together have too many bytes."""
    schema = table.schema
    kinds = {schema.column(i).path: schema.column(i).physical_type for i in range(len(schema))}
    for column in columns:
        if column not in kinds:
            raise ValueError(f"no column '{column}' in it, say which: columns={','.join(list(kinds)[:2])}")
        if kinds[column] != "BYTE_ARRAY":
            raise ValueError(f"column '{column}' is {kinds[column]}, not text")
    # Not column by column: pyarrow ends the process over some damaged statistics that it would raise for when reading.
    groups = (table.metadata.row_group(group) for group in range(table.metadata.num_row_groups))
    if any(group.total_byte_size > most for group in groups):
        raise ValueError(BOMB)


def texts(batch: "RecordBatch", column: str) -> Iterator[str | None]:
    """The texts of a column, dotted for one inside another: '' for null, None for what is not UTF-8."""
    import pyarrow

    name, *inner = [column] if column in batch.schema.names else column.split(".")
    array = batch.column(name)
    for field in inner:
        array = pyarrow.compute.struct_field(array, field)
    known = dict(enumerate(map(as_text, array.dictionary.cast(pyarrow.binary()).to_pylist())))
    return ("" if index is None else known[index] for index in array.indices.to_pylist())


def as_text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
