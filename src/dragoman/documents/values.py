"""JSON: the values of chosen keys, or all that are strings."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial

from dragoman.documents.document import Document, Fault, Found, Parts, Slot, lines_of, with_lines
from dragoman.documents.encoding import decoded

SPACE = re.compile(r"[ \t\n\r]*")
ATOM = re.compile(r"true|false|null|NaN|-?Infinity|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")
STRING = json.JSONDecoder()


def json_values(data: bytes, keys: Collection[str]) -> Document:
    original, encoding = decoded(data)
    ascii_only = original.isascii() and "\\u" in original
    result = Found()
    met = set()
    try:
        for key, text, start, end in strings(original):
            if not keys or key in keys:
                met.add(key)
                if lines := lines_of(text):
                    result.slots.append(Slot(start, end, lines, partial(quoted, text, ascii_only)))
    except json.JSONDecodeError as error:
        result = Found(faults=[Fault(error.lineno, f"not JSON ({error.msg}): the document is left as it is")])
    else:
        result.faults.extend(Fault(0, f"no text under the key '{key}'") for key in keys if key not in met)
    return Document(original, encoding, result)


def strings(original: str) -> Iterator[tuple[str, str, int, int]]:
    """Each string value with its key, which is that of the list where it is in one, and its span with the quotes.

    However deep they lie, there is no recursion. Raises JSONDecodeError.
    """
    open_: list[tuple[str, str]] = []  # what closes each object or list that is open, and the key that it stands under
    key = ""
    at = after_space(original, 0)
    while True:
        match original[at : at + 1]:
            case "{" | "[" as bracket:
                close = "}" if bracket == "{" else "]"
                open_.append((close, key))
                at = after_space(original, at + 1)
                if not original.startswith(close, at):
                    if close == "}":
                        key, at = member(original, at)
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
        while open_ and original.startswith(open_[-1][0], at):
            key = open_.pop()[1]
            at = after_space(original, at + 1)
        if not open_:
            if at < len(original):
                raise json.JSONDecodeError("more after its end", original, at)
            return
        if not original.startswith(",", at):
            raise json.JSONDecodeError(f"a comma or '{open_[-1][0]}' is missing", original, at)
        at = after_space(original, at + 1)
        if open_[-1][0] == "}":
            key, at = member(original, at)


def member(original: str, at: int) -> tuple[str, int]:
    """The key that begins there, and where its value begins."""
    if not original.startswith('"', at):
        raise json.JSONDecodeError("a key in quotes is missing", original, at)
    key, at = STRING.raw_decode(original, at)
    at = after_space(original, at)
    if not original.startswith(":", at):
        raise json.JSONDecodeError("a colon is missing", original, at)
    return key, after_space(original, at + 1)


def after_space(original: str, at: int) -> int:
    space = SPACE.match(original, at)
    return space.end() if space else at


def quoted(text: str, ascii_only: bool, translations: Sequence[str]) -> Parts:
    return [json.dumps(with_lines(text, translations), ensure_ascii=ascii_only)]
