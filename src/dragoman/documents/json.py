"""Parse JSON: the string values of chosen keys, or all strings."""

import difflib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial

from dragoman.documents.document import (
    SURROGATES,
    Content,
    Document,
    Passage,
    Skipped,
    replace_lines,
    translatable_lines,
)
from dragoman.documents.encoding import decode
from dragoman.errors import UsageError

SPACE = re.compile(r"[ \t\n\r]*")
ATOM = re.compile(r"true|false|null|NaN|-?Infinity|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")
STRING = json.JSONDecoder()
SHOWN = 20  # keys that a message names


def parse_json(data: bytes, keys: Collection[str]) -> Document:
    """Return the document whose texts are the strings under `keys`, or all strings if there are no keys.

    A file that is not JSON has no texts. That, and keys that do not occur while others do, is in `skipped` of the
    document. Raise UsageError where none of the keys occurs, naming those that there are.
    """
    original, encoding = decode(data)
    ascii_only = original.isascii() and "\\u" in original
    passages: list[Passage] = []
    known: dict[str, None] = {}  # the keys of all strings, in order
    try:
        for key, text, start, end in strings(original):
            known[key] = None
            if (not keys or key in keys) and (lines := translatable_lines(text)):
                passages.append(Passage(start, end, lines, partial(render, text, ascii_only)))
    except json.JSONDecodeError as error:
        return Document(original, encoding, [], [Skipped(error.lineno, f"not JSON ({error.msg})")], readable=False)
    missing = [key for key in keys if key not in known]
    if missing and len(missing) == len(keys):
        raise UsageError(f"no text under the key '{missing[0]}'; {describe_keys(missing[0], [*filter(None, known)])}")
    skipped = [Skipped(0, f"no text under the key '{key}'") for key in missing]
    return Document(original, encoding, passages, skipped)


def describe_keys(key: str, known: Sequence[str]) -> str:
    """Return which of the known keys is most like `key`, and which ones there are, for a message."""
    if not known:
        return "no key in the document has a text"
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return f"{hint}texts are under {', '.join(known[:SHOWN])}{', ...' if len(known) > SHOWN else ''}"


def strings(original: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield (key, string, start, end) for every string value; start and end are those of its quotes.

    The strings of a list have the key of the list. It does not recurse, so they may be nested to any depth. Raise
    JSONDecodeError for what is not JSON.
    """
    unclosed: list[tuple[str, str]] = []  # what closes each object or list that is open, and the key it stands under
    key = ""
    at = after_space(original, 0)
    while True:
        match original[at : at + 1]:
            case "{" | "[" as bracket:
                close = "}" if bracket == "{" else "]"
                unclosed.append((close, key))
                at = after_space(original, at + 1)
                if not original.startswith(close, at):
                    if close == "}":
                        key, at = read_key(original, at)
                    continue
            case '"':
                text, end = STRING.raw_decode(original, at)
                yield key, text, at, end
                at = end
            case _:
                atom = ATOM.match(original, at)
                if not atom:
                    raise json.JSONDecodeError("a value is missing", original, at)
                at = atom.end()
        at = after_space(original, at)
        while unclosed and original.startswith(unclosed[-1][0], at):
            key = unclosed.pop()[1]
            at = after_space(original, at + 1)
        if not unclosed:
            if at < len(original):
                hint = "; JSON lines are in files called .jsonl" * original.startswith("{", at)
                raise json.JSONDecodeError(f"text after its end{hint}", original, at)
            return
        if not original.startswith(",", at):
            raise json.JSONDecodeError(f"a comma or '{unclosed[-1][0]}' is missing", original, at)
        at = after_space(original, at + 1)
        if unclosed[-1][0] == "}":
            key, at = read_key(original, at)


def read_key(original: str, at: int) -> tuple[str, int]:
    """Return the key at `at` in an object, and the offset of its value. Raise JSONDecodeError for no key or colon."""
    if not original.startswith('"', at):
        raise json.JSONDecodeError("a key in quotes is missing", original, at)
    key, at = STRING.raw_decode(original, at)
    at = after_space(original, at)
    if not original.startswith(":", at):
        raise json.JSONDecodeError("a colon is missing", original, at)
    return key, after_space(original, at + 1)


def after_space(original: str, at: int) -> int:
    """Return the offset of what follows the white space at offset `at`, or `at` if there is none."""
    space = SPACE.match(original, at)
    return space.end() if space else at


def render(text: str, ascii_only: bool, translations: Sequence[str]) -> Content:
    """Return `text` with its lines translated, as a JSON string.

    ascii_only: escape all other characters. Half a surrogate pair can only be escaped.
    """
    value = replace_lines(text, translations)
    return [json.dumps(value, ensure_ascii=ascii_only or bool(SURROGATES.search(value)))]
