"""Parse Java's .properties: the values, as Java reads them, with the apostrophes of MessageFormat."""

import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from dragoman.documents.document import SURROGATES, Document, DocumentConfig, Skipped, line_number
from dragoman.documents.encoding import as_pairs, decode
from dragoman.documents.icu import COMPLEX
from dragoman.documents.messages import Entry, catalogue
from dragoman.errors import plural

END = r"\r\n|\r|\n|\Z"
BLANK = rf"(?:[ \t\f]|\\(?:{END}))"
LINE = re.compile(
    rf"""[ \t\f]*+(?: [#!][^\r\n]*+ | (?P<key>(?:[^\\:=\ \t\f\r\n]|\\(?:{END}|.))*+)
    {BLANK}*+(?:[:=]{BLANK}*+)?+ (?P<value>(?:[^\\\r\n]|\\(?:{END}|.))*+) )(?:{END})""",
    re.VERBOSE | re.DOTALL,
)
ESCAPE = re.compile(rf"\\(?:u+(?P<hex>[0-9A-Fa-f]{{4}})|(?P<end>{END})[ \t\f]*|(?P<one>.))", re.DOTALL)
BAD_ESCAPE = re.compile(r"(?:[^\\]|\\[^u]|\\u++[0-9A-Fa-f]{4})*+\\u", re.DOTALL)
LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
CONTINUED = re.compile(r"\\n(\\(?:\r\n|\r|\n)[ \t\f]*)")  # a line of the text that is one of the file, too
SPECIAL = re.compile(r"[\\\t\n\r\f]|\A ")
ARGUMENT = re.compile(r"\{\d{1,3}(?:,[^{}]{0,100})?\}")
CHOICE = re.compile(r"\{\s*\w+\s*,\s*choice\s*,")


class Value(NamedTuple):
    """A value with its key: as Java reads both, and where it is written."""

    key: str
    text: str
    start: int
    end: int


def parse_properties(data: bytes, config: DocumentConfig) -> Document:
    """Return the document whose texts are the values under the keys of `config`, or all values.

    It is in UTF-8 where it can be, as Java reads it since version 9, else in Latin-1. Translations are in ASCII with
    \\u escapes where the file is in ASCII, which every version of Java reads.
    """
    original, encoding = decode(data)
    if SURROGATES.search(original) and not encoding.mark:
        original, encoding = decode(data, "latin-1")
    reasons: list[tuple[int, str]] = []
    values: list[Value] = []
    for line in LINE.finditer(original):
        if line["key"] or line["value"]:
            if bad := BAD_ESCAPE.match(line[0]):
                place = line_number(original, line.start() + bad.end())
                damage = Skipped(place, "not .properties (a \\u without four digits)")
                return Document(original, encoding, [], [damage], readable=False)
            values.append(Value(unescape(line["key"]), unescape(line["value"]), *line.span("value")))
    limit = 0x80 if original.isascii() else 0x100 if encoding.name == "latin-1" else 0x110000
    return catalogue(original, encoding, entries(original, values, limit, reasons), config, reasons)


def entries(original: str, values: list[Value], limit: int, reasons: list[tuple[int, str]]) -> Iterator[Entry]:
    """Yield the values as entries, and add to `reasons` those that are left alone.

    An apostrophe is written twice where Java's MessageFormat reads the value: in those with arguments, {0}, if the file
    does it anywhere, or has no single one in them. limit: the first character that is written as an escape.
    """
    with_arguments = [value.text for value in values if ARGUMENT.search(value.text)]
    is_icu = any(COMPLEX.search(value.text) for value in values)  # which `entry_passages` reads
    lone = any("'" in text.replace("''", "") for text in with_arguments)
    doubled = not is_icu and (not lone or any("''" in text for text in with_arguments))
    choices: list[int] = []
    quoting: list[int] = []
    for value in values:
        is_format = doubled and bool(ARGUMENT.search(value.text))
        if CHOICE.search(value.text):
            choices.append(value.start)
        elif is_format and "'" in value.text.replace("''", ""):
            quoting.append(value.start)
        else:
            continued = CONTINUED.search(original, value.start, value.end)
            newline = f"\\n{continued[1]}" if continued else "\\n"
            write = partial(write_value, newline, limit, is_format)
            text = value.text.replace("''", "'") if is_format else value.text
            yield Entry(value.key, text, value.start, value.end, write)
    for places, what in ((choices, "choice formats"), (quoting, "quotes of MessageFormat")):
        if places:
            count = plural(len(places), "value")
            reasons.append((places[0], f"{count} from here on with {what}: left untranslated"))


def unescape(text: str) -> str:
    """Return a key or a value without escapes and without the ends of lines that it goes on after."""

    def character(match: re.Match[str]) -> str:
        if match["hex"]:
            return chr(int(match["hex"], 16))
        return "" if match["one"] is None else LETTERS.get(match["one"], match["one"])

    return as_pairs(ESCAPE.sub(character, text))


def write_value(newline: str, limit: int, is_format: bool, text: str) -> str:
    """Return a text as a value; see `entries`. newline: how the end of a line in it is written."""
    written = {"\\": "\\\\", "\t": "\\t", "\r": "\\r", "\f": "\\f", " ": "\\ ", "\n": newline}
    text = text.replace("'", "''") if is_format else text
    text = SPECIAL.sub(lambda match: written[match[0]], text)
    return "".join(character if ord(character) < limit else escaped(character) for character in text)


def escaped(character: str) -> str:
    """Return a character as \\u escapes of UTF-16."""
    return re.sub("....", lambda match: f"\\u{match[0]}", character.encode("utf-16-be", "surrogatepass").hex())
