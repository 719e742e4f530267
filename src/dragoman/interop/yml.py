"""Read the little YAML that Marian writes: settings with scalars and lists of scalars, and lists of words with ids.

It is not a reader of YAML: no anchors, no tags, no nesting. Anything else is an error.
"""

import re
import sys
from pathlib import Path
from typing import Any

from dragoman.errors import DragomanError
from dragoman.files import name_errors

MAX_LINES = 2_000_000

SETTING = re.compile(r"([\w.:-]+):(?: +(.*))?")
ITEM = re.compile(r" *- (.*)")
DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"')
SINGLE = re.compile(r"'((?:[^']|'')*)'")
ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"} | {
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}
# A word and its id: the word in quotes or not; a long one may have a '?' in front, and its id on the next line.
WORD = re.compile(rf"(?:{DOUBLE.pattern}|{SINGLE.pattern}|(\S.*?)) *: *(-?\d+) *")
LONG_WORD, LONG_ID = re.compile(r"\? +(.*\S) *"), re.compile(r": *(-?\d+) *")


def read_text(file: Path, max_size: int) -> str:
    """Return the text of a file. Raise DragomanError where it has more than `max_size` bytes or is not UTF-8."""
    with name_errors(file), file.open("rb") as opened:
        data = opened.read(max_size + 1)
    if len(data) > max_size:
        raise DragomanError(f"{file}: it has more than {max_size:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DragomanError(f"{file}: not UTF-8") from None


def parse_settings(text: str) -> dict[str, Any]:
    """Return Marian's settings by name: scalars, and lists of scalars. Raise ValueError, with the line, for others."""
    found: dict[str, Any] = {}
    name = ""  # of the setting whose list is being read
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.rstrip("\r \0")
        if not line or line.lstrip().startswith("#") or line in ("---", "..."):
            continue
        if setting := SETTING.fullmatch(line):
            name, value = setting[1], setting[2] or ""
            if name in found:
                raise ValueError(f"line {number}: '{name:.100}' is there twice")
            found[name] = read_flow_list(value) if value.startswith("[") else scalar(value) if value else None
        elif name and found[name] in (None, []) and line.strip() == "[]":
            found[name] = []
        elif name and (item := ITEM.fullmatch(line)) and (found[name] is None or isinstance(found[name], list)):
            found[name] = found[name] or []
            found[name].append(scalar(item[1]))
        else:
            raise ValueError(f"line {number}: {line[:100]!r} is neither a setting nor an item of a list")
    return found


def read_flow_list(text: str) -> list[Any]:
    """Return a list in brackets, on one line. Raise ValueError where it does not end."""
    if not text.endswith("]"):
        raise ValueError(f"the list {text[:100]!r} does not end")
    inner = text[1:-1].strip()
    return [scalar(part.strip()) for part in inner.split(",")] if inner else []


def scalar(text: str) -> Any:
    """Return what a scalar means: a string in quotes, true or false, a number, nothing, or a string."""
    if quoted := DOUBLE.fullmatch(text):
        return unescape(quoted[1])
    if quoted := SINGLE.fullmatch(text):
        return quoted[1].replace("''", "'")
    if text in ("true", "false"):
        return text == "true"
    if text in ("", "~", "null"):
        return None
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?\d{1,18}\.\d{0,18}(e[+-]?\d{1,2})?|-?\d{1,18}e[+-]?\d{1,2}", text):
        return float(text)
    if text[0] in "&*!|>%@`{[\"'":
        raise ValueError(f"{text[:100]!r} is YAML that Marian does not write")
    return text


def unescape(text: str) -> str:
    """Return a string in double quotes without its escapes. Raise ValueError where one stands for no character."""

    def character(found: re.Match[str]) -> str:
        escape = found[1]
        if len(escape) == 1:
            return ESCAPES.get(escape, escape)
        if (code := int(escape[1:], 16)) > sys.maxunicode:
            raise ValueError(f"'\\{escape}' is no character")
        return chr(code)

    return ESCAPE.sub(character, text)


def parse_words(text: str) -> dict[str, int]:
    """Return the ids of the words in a list of Marian. Raise ValueError, with the line, where one is there twice."""
    found: dict[str, int] = {}
    long = None
    for number, line in enumerate(text.split("\n"), start=1):
        if number > MAX_LINES:
            raise ValueError(f"it has more than {MAX_LINES:,} lines")
        line = line.rstrip("\r")
        if not line.strip() or line == "---":
            continue
        if long is None and (start := LONG_WORD.fullmatch(line)) and not WORD.fullmatch(line):
            long = scalar_word(start[1])
            continue
        if long is not None:
            entry, word = LONG_ID.fullmatch(line), long
            id = entry[1] if entry else ""
        else:
            entry = WORD.fullmatch(line)
            double, single, plain, id = entry.groups() if entry else (None,) * 4
            word = next(
                (text for text in (double and unescape(double), single and single.replace("''", "'"), plain) if text),
                "",
            )
        if not entry or not word or word in found:
            raise ValueError(
                f"line {number}: {line[:100]!r} is {'there twice' if word in found else 'no word with an id'}"
            )
        found[word], long = int(id), None
    if long is not None:
        raise ValueError(f"the word {long[:100]!r} has no id")
    return found


def scalar_word(text: str) -> str:
    """Return a word that may be in quotes."""
    if quoted := DOUBLE.fullmatch(text):
        return unescape(quoted[1])
    if quoted := SINGLE.fullmatch(text):
        return quoted[1].replace("''", "'")
    return text
