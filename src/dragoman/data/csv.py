"""Read CSV as spreadsheets write it: the first row names the columns, and a cell in quotes may have line breaks."""

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import chain

from dragoman.data.lines import (
    OnProblem,
    Problem,
    Row,
    display_path,
    join_lines,
    quote_line,
    read_lines,
    suggest_columns,
    weighted_row,
)
from dragoman.data.spec import DEFAULT_COLUMNS
from dragoman.errors import DragomanError, plural

DELIMITERS = ",;\t|"
SEPARATOR_LINE = re.compile(
    r'"?sep=(.)"?\s*', re.IGNORECASE
)  # a first line that tells Excel what separates the columns
LONE_CR = (
    "a carriage return outside quotes; if that is how lines end here, as in files of old Macs, convert them first: "
    r"tr '\r' '\n' < old.csv > new.csv"
)


def read_csv(
    path: str, columns: tuple[str, str] | None, on_problem: OnProblem, weight_column: str = ""
) -> Iterator[Row]:
    """Yield a row for each row below the first one, with the number of the line that it begins in.

    A line such as 'sep=;' may stand above the first row. columns: those of source and target, None for DEFAULT_COLUMNS;
    two numbers if no row names them, see `find_columns`. weight_column: that of the weights, '' for none. A row without
    all of them is a problem. Raise DragomanError where a column is missing.
    """
    number = 0  # of the last line that was read

    def lines() -> Iterator[str]:
        nonlocal number
        for number, line in enumerate(read_lines(path, on_problem), start=1):  # noqa: B007
            if line is not None:
                yield f"{line}\n"

    unread = lines()
    heading = next(unread, "")
    if declared := declared_delimiter(heading):
        heading = next(unread, "")
    rows = csv.reader(chain([heading], unread), delimiter=declared or delimiter_of(heading), strict=True)
    indices: list[int] = []
    while True:
        begin = number + 1 if indices else max(number, 1)  # the heading was read before
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            text = LONE_CR if "new-line character" in str(error) else f"not CSV: {error}"
            on_problem(Problem("record", path, begin, text))
            continue
        if not indices:
            try:
                wanted = [*(columns or DEFAULT_COLUMNS), *filter(None, [weight_column])]
                indices, named = find_columns(cells, wanted)
            except ValueError as error:
                hint = f"name source and target, such as columns={suggest_columns(cells, '1,2')}"
                numbers = "or numbers if that row has no names: columns=1,2"
                raise DragomanError(f"{display_path(path)}: {error}; {hint} ({numbers})") from None
            if named:
                continue
        if not cells:
            yield Row(begin, "", "")
        elif len(cells) <= max(indices):
            text = f"{plural(len(cells), 'column')}, expected {max(indices) + 1} or more, found: {quote_line(cells[0])}"
            on_problem(Problem("columns", path, begin, text))
        else:
            source, target = (join_lines(cells[index], path, begin, on_problem) for index in indices[:2])
            row = Row(begin, source, target)
            yield from weighted_row(row, cells[indices[2]], path, on_problem) if weight_column else (row,)


def declared_delimiter(line: str) -> str:
    """Return what a line says that separates the columns: ';' for 'sep=;'. '' where it says nothing of that."""
    match = SEPARATOR_LINE.fullmatch(line)
    return match[1] if match else ""


def delimiter_of(heading: str) -> str:
    """Return what separates the columns: the one of DELIMITERS that the first row has most of, or a comma."""
    return max(DELIMITERS, key=heading.count)


def find_columns(heading: Sequence[str], columns: Sequence[str]) -> tuple[list[int], bool]:
    """Return the index of each column, and whether they are named by the first row, `heading`.

    Capitals may differ where a name has one column. Columns that it does not name may all be numbers, counted from 1.
    Raise ValueError for any other.
    """
    if twice := next((column for column in columns if heading.count(column) > 1), None):
        raise ValueError(f"several columns are called '{twice}': give each its own name")
    if all(column in heading for column in columns):
        return [heading.index(column) for column in columns], True
    folded = [name.strip().casefold() for name in heading]
    if all(folded.count(column.casefold()) == 1 for column in columns):
        return [folded.index(column.casefold()) for column in columns], True
    if all(column.isdecimal() and 0 < int(column) <= len(heading) for column in columns):
        return [int(column) - 1 for column in columns], False
    missing = next(column for column in columns if column not in heading)
    names = ", ".join(f"'{name}'" if "," in name else name for name in heading)
    raise ValueError(f"no column '{missing}'; the first row has {names[:100]}")
