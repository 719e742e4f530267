"""Read JSON lines: a record on each line, with the source and the target under two keys."""

import json
from collections.abc import Iterator
from typing import Any

from dragoman.data.lines import (
    OnProblem,
    Problem,
    Row,
    join_lines,
    quote_line,
    read_lines,
    suggest_columns,
    weighted_row,
)
from dragoman.data.spec import DEFAULT_COLUMNS

MAX_KEY = 100  # characters of a key that a message names


def read_jsonl(
    path: str, columns: tuple[str, str] | None, on_problem: OnProblem, weight_column: str = ""
) -> Iterator[Row]:
    """Yield a row for each line, an empty one for a blank line.

    columns: the keys of source and target, None for DEFAULT_COLUMNS; weight_column: that of the weight, '' for none. A
    line that is not a record with all of them is left out, and `on_problem` called for it.
    """
    for number, line in enumerate(read_lines(path, on_problem), start=1):
        if line is None:
            continue
        if not line.strip():
            yield Row(number, "", "")
            continue
        try:
            record = json.loads(line)
            source, target = (look_up(record, column) for column in columns or DEFAULT_COLUMNS)
            weight = value_at(record, weight_column) if weight_column else 1.0
        except KeyError:
            on_problem(Problem("record", path, number, f"no '{weight_column}', found: {quote_line(line)}"))
            continue
        except (ValueError, RecursionError) as error:
            reason = f"not JSON ({error.msg})" if isinstance(error, json.JSONDecodeError) else str(error)
            on_problem(Problem("record", path, number, f"{reason}, found: {quote_line(line)}"))
            continue
        source, target = (join_lines(text, path, number, on_problem) for text in (source, target))
        row = Row(number, source, target)
        yield from weighted_row(row, weight, path, on_problem) if weight_column else (row,)


def look_up(record: Any, column: str) -> str:
    """Return the text in a parsed record under a key such as 'translation.en'; '' for null.

    column: the key; where the record does not have it, its parts between dots are the keys of nested objects. Raise
    ValueError where there is no text.
    """
    if not isinstance(record, dict):
        raise ValueError("not a JSON object with a source and a target")
    try:
        value = value_at(record, column)
    except KeyError:
        columns = suggest_columns(text_keys(record), "en,de")
        raise ValueError(f"no '{column}' (name the keys of source and target, such as columns={columns})") from None
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"'{column}' is not a string")
    try:
        value.encode()  # JSON can write half of a character: "\ud800"
    except UnicodeEncodeError:
        raise ValueError(f"'{column}' contains a lone surrogate") from None
    return value


def value_at(record: dict[str, Any], key: str) -> Any:
    """Return the value in a parsed record under a key such as 'translation.en'.

    Where the record does not have the key, its parts between dots are the keys of nested objects. Raise KeyError where
    there is nothing.
    """
    value: Any = record
    for part in [key] if key in record else key.split("."):
        if not isinstance(value, dict):
            raise KeyError(key)
        value = value[part]
    return value


def text_keys(record: dict[str, Any]) -> list[str]:
    """Return the keys of the texts in a parsed record, in order; those in nested objects dotted.

    Keys of more than MAX_KEY characters in all are left out: millions of texts may lie below one.
    """
    keys: list[str] = []
    waiting: list[tuple[str, Any]] = [*record.items()][::-1]
    while waiting:
        key, value = waiting.pop()
        if len(key) > MAX_KEY:
            continue
        if isinstance(value, str):
            keys.append(key)
        elif isinstance(value, dict):
            waiting += [(f"{key}.{inner}", inner_value) for inner, inner_value in value.items()][::-1]
    return keys
