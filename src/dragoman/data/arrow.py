"""Read Arrow as Hugging Face's datasets keep it: a stream of batches, with the source and the target in two columns."""

import mmap
from collections.abc import Iterator
from pathlib import Path

import pyarrow

from dragoman.data.lines import OnProblem, Row, display_path, suggest_columns
from dragoman.data.parquet import ROWS_IN_MEMORY, field_of, rows_of
from dragoman.data.spec import DEFAULT_COLUMNS
from dragoman.errors import DragomanError


def read_arrow(
    path: str, columns: tuple[str, str] | None, on_problem: OnProblem, weight_column: str = ""
) -> Iterator[Row]:
    """Yield a row for each row of the table; null is an empty side. The arguments are those of `read_parquet`.

    Raise DragomanError where the file is damaged or lacks a column.
    """
    names = list(columns or DEFAULT_COLUMNS)
    number = 0
    try:
        with Path(path).open("rb") as file:
            content = pyarrow.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            with pyarrow.ipc.open_stream(content) as batches:
                check_fields(path, batches.schema, names, weight_column)
                for whole in batches:
                    whole.validate(full=True)
                    for start in range(0, len(whole), ROWS_IN_MEMORY):
                        batch = whole.slice(start, ROWS_IN_MEMORY)
                        yield from rows_of(path, batch, names, weight_column, number, on_problem)
                        number += len(batch)
    except FileNotFoundError:
        raise DragomanError(f"{display_path(path)}: no such file") from None
    except (OSError, ValueError, LookupError, pyarrow.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
        raise DragomanError(f"{display_path(path)}: not a readable stream of Arrow: {reason}") from None


def check_fields(path: str, schema: pyarrow.Schema, columns: list[str], weight_column: str) -> None:
    """Raise DragomanError where a column is missing, or one of `columns` is no text."""
    empty = pyarrow.RecordBatch.from_pylist([], schema=schema)
    texts = [name for name in leaves(schema) if is_text(field_of(empty, name).type)]
    for column in filter(None, [*columns, weight_column]):
        if column not in leaves(schema):
            example = suggest_columns(texts, "translation.en,translation.de")
            way = f"name those of source and target, such as columns={example}"
            raise DragomanError(f"{display_path(path)}: no column '{column}'; {way}")
        if column != weight_column and column not in texts:
            raise DragomanError(f"{display_path(path)}: column '{column}' is {field_of(empty, column).type}, not text")


def is_text(kind: pyarrow.DataType) -> bool:
    """Return whether a column has texts."""
    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def leaves(schema: pyarrow.Schema) -> list[str]:
    """Return the names of the columns; those of the fields in a column of records are dotted: translation.en."""
    names = []
    for field in schema:
        inner = field.type.fields if pyarrow.types.is_struct(field.type) else []
        names += [f"{field.name}.{part.name}" for part in inner] or [field.name]
    return names
