"""Parse CSV: the cells of chosen columns, or the translations that a table of sources and targets lacks."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from dragoman.data.csv import declared_delimiter, delimiter_of, find_columns
from dragoman.documents.document import (
    Document,
    DocumentConfig,
    Skipped,
    line_number,
)
from dragoman.documents.encoding import decode
from dragoman.documents.messages import Entry, entry_passages
from dragoman.errors import UsageError, plural

SHOWN = 40  # characters of a cell in a message
ROW_END = re.compile(r"\r\n|\r|\n|\Z")


class Cell(NamedTuple):
    """A cell: its text, where it begins and ends in the file, and whether it is in quotes."""

    text: str
    start: int
    end: int
    quoted: bool


def parse_csv(data: bytes, config: DocumentConfig) -> Document:
    """Return the document whose texts are the cells of the columns `config.keys`: their names, or their numbers from 1.

    Without keys it is the column 'text'; or, where there are 'source' and 'target', the sources whose target is empty,
    which is then filled in. Formulas, and rows without a cell to fill, are left alone. A file with a quote that is not
    closed has no texts. Raise UsageError where the table lacks a column.
    """
    original, encoding = decode(data)
    heading = original.partition("\n")[0]
    declared = declared_delimiter(heading)
    delimiter = declared or delimiter_of(heading)
    try:
        rows = list(read_rows(original, delimiter)) if original.strip() else []
    except UnclosedQuote as error:
        damage = Skipped(line_number(original, error.args[0]), "not CSV (a quote is not closed, or text follows it)")
        return Document(original, encoding, [], [damage], readable=False)
    if declared:  # the row that tells it
        del rows[:1]
    entries: list[Entry] = []
    unfillable: list[int] = []  # where sources begin whose rows have no cell for a translation
    if rows:
        columns, named = choose_columns([cell.text.strip() for cell in rows[0]], config.keys)
        for row in rows[named:]:
            for read, written in columns:
                if read < len(row) <= written and row[read].text.strip():
                    unfillable.append(row[read].start)
                if max(read, written) >= len(row) or row[read].text.startswith("="):
                    continue
                cell, place = row[read], row[written]
                if place is cell or not place.text.strip():
                    write = partial(write_cell, cell.quoted, delimiter)
                    entries.append(Entry(cell.text.strip()[:SHOWN], cell.text, place.start, place.end, write))
    skipped = describe_unfillable(original, unfillable)
    passages = list(entry_passages(original, entries, replace(config, keys=()), skipped))
    return Document(original, encoding, passages, skipped)


def describe_unfillable(original: str, offsets: Sequence[int]) -> list[Skipped]:
    """Return what to say of the sources at these offsets, whose rows have no cell for a translation; [] for none."""
    if not offsets:
        return []
    reason = f"{plural(len(offsets), 'row')} from here on without a target column: left untranslated"
    return [Skipped(line_number(original, offsets[0]), reason)]


class UnclosedQuote(Exception):
    """A quote is not closed, or text follows one that is; the argument is the offset."""


def read_rows(original: str, delimiter: str) -> Iterator[list[Cell]]:
    """Yield the cells of each row. Raise UnclosedQuote with the offset where it is not CSV."""
    pattern = re.compile(rf'"([^"]*+(?:""[^"]*+)*+)"|(?!")[^{re.escape(delimiter)}\r\n]*+')
    row: list[Cell] = []
    at = 0
    while True:
        match = pattern.match(original, at)
        end = ROW_END.match(original, match.end()) if match else None
        if not match or not (end or original.startswith(delimiter, match.end())):
            raise UnclosedQuote(at)
        quoted = match[1] is not None
        row.append(Cell(match[1].replace('""', '"') if quoted else match[0], *match.span(), quoted))
        at = end.end() if end else match.end() + 1
        if end:
            yield row
            row = []
            if at == len(original):
                return


def choose_columns(heading: Sequence[str], keys: Sequence[str]) -> tuple[list[tuple[int, int]], bool]:
    """Return the columns (read, written), by index, and if `heading` names them. Raise UsageError if one is missing."""
    names = [name.casefold() for name in heading]
    if not keys and "source" in names and "target" in names:
        return [(names.index("source"), names.index("target"))], True
    try:
        indices, named = find_columns(heading, keys or ("text",))
    except ValueError as error:
        advice = "" if keys else "; name the column 'text', or use columns 'source' and 'target'"
        raise UsageError(f"{error}{advice}") from None
    return [(index, index) for index in indices], named


def write_cell(quoted: bool, delimiter: str, text: str) -> str:
    """Return a text as a cell, in quotes where the source has them or the text needs them."""
    needed = any(character in text for character in (delimiter, '"', "\r", "\n"))
    return '"' + text.replace('"', '""') + '"' if quoted or needed else text
