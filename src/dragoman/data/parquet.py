"""Read Parquet: the source and the target are two columns of text."""

import mmap
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pyarrow
from pyarrow.compute import struct_field
from pyarrow.parquet import ParquetFile

from dragoman.data.lines import (
    RATIO,
    SPARE,
    OnProblem,
    Problem,
    Row,
    display_path,
    join_lines,
    suggest_columns,
    weighted_row,
)
from dragoman.data.spec import DEFAULT_COLUMNS
from dragoman.errors import DragomanError

ROWS_IN_MEMORY = 1024
BOMB = f"it unpacks to more than {RATIO} times its size, which text does not"


def read_parquet(
    path: str, columns: tuple[str, str] | None, on_problem: OnProblem, weight_column: str = ""
) -> Iterator[Row]:
    """Yield a row for each row of the table; null is an empty side.

    columns: those of source and target, None for DEFAULT_COLUMNS; weight_column: that of the weights, a column of
    numbers, '' for none. A text that is not UTF-8 is a problem. Raise
    DragomanError where the file is damaged, lacks a column or unpacks to far more than text does.
    """
    names = list(columns or DEFAULT_COLUMNS)
    try:
        with Path(path).open("rb") as file:
            # Mapped, because from a file pyarrow reads a page into memory of the size that a damaged header names.
            content = pyarrow.BufferReader(pyarrow.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
            max_size = SPARE + RATIO * Path(path).stat().st_size
            weights = [weight_column] if weight_column else []
            check_columns(path, ParquetFile(content), names, weights, max_size)
            # As dictionaries, a text that stands in a million rows is in memory once.
            table = ParquetFile(content, read_dictionary=names, pre_buffer=False)
            number = size = 0
            for batch in table.iter_batches(ROWS_IN_MEMORY, columns=[*names, *weights]):
                for row in rows_of(path, batch, names, weight_column, number, on_problem):
                    size += len(row.source) + len(row.target)
                    if size > max_size:
                        raise ValueError(BOMB)
                    yield row
                number += len(batch)
    except FileNotFoundError:
        raise DragomanError(f"{display_path(path)}: no such file") from None
    except (OSError, ValueError, LookupError, pyarrow.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
        raise DragomanError(f"{display_path(path)}: not a readable Parquet file: {reason}") from None


def rows_of(
    path: str, batch: pyarrow.RecordBatch, names: list[str], weight_column: str, before: int, on_problem: OnProblem
) -> Iterator[Row]:
    """Yield the rows of a batch with text in UTF-8.

    names: the columns of source and target; weight_column: '' for none; before: how many rows come before it.
    """
    sides = [texts_of(batch, name) for name in names]
    weights = field_of(batch, weight_column).to_pylist() if weight_column else repeat(1.0, len(batch))
    for number, (source, target, weight) in enumerate(zip(*sides, weights, strict=True), start=before + 1):
        if source is None or target is None:
            on_problem(Problem("utf-8", path, number, "not UTF-8: write the column as text"))
            continue
        source, target = (join_lines(text, path, number, on_problem) for text in (source, target))
        row = Row(number, source, target)
        yield from weighted_row(row, weight, path, on_problem) if weight_column else (row,)


def check_columns(path: str, table: ParquetFile, columns: list[str], weights: list[str], max_size: int) -> None:
    """Raise DragomanError where a column is missing or no text, ValueError where a row group has > `max_size` bytes.

    weights: the column of the weights, which is no text, if there is one.
    """
    schema = table.schema
    kinds = {schema.column(i).path: schema.column(i).physical_type for i in range(len(schema))}
    texts = [column for column, kind in kinds.items() if kind == "BYTE_ARRAY"]
    for column in [*columns, *weights]:
        if column not in kinds:
            example = suggest_columns(texts, "en,de")
            way = f"name those of source and target, such as columns={example}"
            raise DragomanError(f"{display_path(path)}: no column '{column}'; {way}")
        if column in columns and kinds[column] != "BYTE_ARRAY":
            raise DragomanError(f"{display_path(path)}: column '{column}' is {kinds[column]}, not text")
    # Not column by column: pyarrow ends the process over some damaged statistics that it would raise for when reading.
    groups = (table.metadata.row_group(group) for group in range(table.metadata.num_row_groups))
    if any(group.total_byte_size > max_size for group in groups):
        raise ValueError(BOMB)


def texts_of(batch: pyarrow.RecordBatch, column: str) -> Iterator[str | None]:
    """Yield the texts of a column: '' for null, None for bytes that are not UTF-8."""
    array = field_of(batch, column)
    if not pyarrow.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    distinct = dict(enumerate(map(decode, array.dictionary.cast(pyarrow.binary()).to_pylist())))
    return ("" if index is None else distinct[index] for index in array.indices.to_pylist())


def field_of(batch: pyarrow.RecordBatch, column: str) -> pyarrow.Array:
    """Return a column, or where there is none of this name, the field that its parts between dots lead to."""
    name, *inner = [column] if column in batch.schema.names else column.split(".")
    array = batch.column(name)
    for field in inner:
        array = struct_field(array, field)
    return array


def decode(value: bytes) -> str | None:
    """Return UTF-8 as text, or None for bytes that are not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
