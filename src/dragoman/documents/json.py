"""Parse JSON: the string values of chosen keys, or all strings."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from dragoman.documents.document import (
    SURROGATES,
    Document,
    DocumentConfig,
    Label,
    Skipped,
    Span,
)
from dragoman.documents.encoding import decode
from dragoman.documents.messages import Entry, Form, Plural, catalogue
from dragoman.documents.structure import PATH_LENGTH, below, is_language, no_messages
from dragoman.errors import plural
from dragoman.text.plurals import CATEGORIES, whole_numbers

SPACE = re.compile(r"[ \t\n\r]*")
ATOM = re.compile(r"true|false|null|NaN|-?Infinity|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")
STRING = json.JSONDecoder()
LOCALE = re.compile(r'"@@locale"\s*:\s*("[\w-]{0,40}")')
PLURAL_KEY = re.compile(rf"(?P<ordinal>_ordinal)?_(?P<category>{'|'.join(CATEGORIES)})$")  # of i18next
OLD_PLURAL = "_plural"  # of i18next 3, behind the key of the singular
PIPE = " | "
SIDES = re.compile(r"\{(?:n|count)\}[^|\n]{0,200} \| | \| [^|\n]{0,200}\{(?:n|count)\}")  # which only Vue I18n has
MAX_INDENT = 1000


class String(NamedTuple):
    """A string of JSON with the quotes where it begins and ends, the key that it stands under, and where that is."""

    key: str
    text: str
    start: int
    end: int
    key_span: Span
    place: int  # where the object that it stands in begins
    is_note: bool  # whether it is below a key with an @, as what ARB files say of their messages
    path: int  # a number for the keys around it


def parse_json(data: bytes, config: DocumentConfig, arb: bool = False) -> Document:
    """Return the document whose texts are the strings under the keys of `config`, or all strings.

    arb: whether it is ARB, the messages of Flutter: keys with an @ are notes, and strings are in ICU MessageFormat. A
    file that is not JSON has no texts. That, and keys that do not occur while others do, is in `skipped` of the
    document. Raise UsageError where none of the keys occurs, naming those that there are.
    """
    original, encoding = decode(data)
    write = partial(write_string, original.isascii() and "\\u" in original)
    paths: set[tuple[str, ...]] = set()
    line = 0
    try:
        strings = [string for string in find_strings(original, paths) if not (arb and string.is_note)]
        reason = "" if arb else no_messages(paths, config) or in_languages(strings, config)
    except json.JSONDecodeError as error:
        line, reason = error.lineno, f"not JSON ({error.msg})"
    if reason:
        return Document(original, encoding, [], [Skipped(line, reason)], readable=False)
    locales = (Label(*match.span(1), write_locale) for match in LOCALE.finditer(original) if arb)
    messages = list(entries(original, strings, write))
    if any(SIDES.search(string.text) for string in strings):
        messages = [with_sides(entry) if isinstance(entry, Entry) else entry for entry in messages]
    return catalogue(original, encoding, messages, config, old_plurals(strings, config), locales, arb)


def with_sides(entry: Entry) -> Entry:
    """Return a string of Vue I18n, which has its plural forms between pipes, with each as a line."""
    if "\n" in entry.text or entry.text.count(PIPE) not in (1, 2):
        return entry
    return replace(entry, text=entry.text.replace(PIPE, "\n"), write=lambda text: entry.write(text.replace("\n", PIPE)))


def old_plurals(strings: Sequence[String], config: DocumentConfig) -> list[tuple[int, str]]:
    """Return what to say of plurals such as "item" and "item_plural", of which a language may need more or fewer."""
    keys = {(string.place, string.key) for string in strings}
    plurals = [
        string
        for string in strings
        if string.key.endswith(OLD_PLURAL) and (string.place, string.key.removesuffix(OLD_PLURAL)) in keys
    ]
    if not plurals or not config.target or whole_numbers(config.target).keys() == {"one", "other"}:
        return []
    reason = f"{plural(len(plurals), 'key')} such as '{plurals[0].key}', of i18next 3, lack forms of '{config.target}'"
    return [(plurals[0].start, f"{reason}: keys with _one and _other get them")]


def in_languages(strings: Sequence[String], config: DocumentConfig) -> str:
    """Return why strings are not in one language if each stands under the code of its language, else ''."""
    languages = {string.key for string in strings}
    if config.keys or not len(strings) > len(languages) > 1 or not all(map(is_language, languages)):
        return ""
    return f"texts in {plural(len(languages), 'language')}: --translate-key chooses the one to translate"


def parse_arb(data: bytes, config: DocumentConfig) -> Document:
    """Return the document whose texts are the messages of an ARB file; see `parse_json`."""
    return parse_json(data, config, arb=True)


def write_locale(source: str, target: str) -> str:
    """Return the language of translations as ARB says it."""
    return f'"{target.replace("-", "_")}"'


def write_string(ascii_only: bool, text: str) -> str:
    """Return a text as a JSON string. Half a surrogate pair is escaped in any case."""
    return json.dumps(text, ensure_ascii=ascii_only or bool(SURROGATES.search(text)))


def entries(original: str, strings: Sequence[String], write: Callable[[str], str]) -> Iterator[Entry | Plural]:
    """Yield the strings as entries; neighbours such as "item_one" and "item_other" are one in plural forms.

    They are strings of their own where another one stands between them, which would have to move.
    """
    keys = [PLURAL_KEY.search(string.key) for string in strings]
    stems = [
        (string.place, match.string[: match.start("category")]) if match else None
        for string, match in zip(strings, keys, strict=True)
    ]
    together = Counter(stems)
    at = 0
    while at < len(strings):
        end, plural = at + 1, keys[at]
        while plural and end < len(strings) and stems[end] == stems[at]:
            if not is_sibling(original, strings[end - 1], strings[end]):
                break
            end += 1
        made = [Entry(key, text, start, end, write, path) for key, text, start, end, *_, path in strings[at:end]]
        is_whole = together[stems[at]] == end - at and any(string.key.endswith("other") for string in strings[at:end])
        if plural and is_whole:
            forms = tuple(
                Form(string.key_span.start, string.end, category_span(string), entry)
                for string, entry in zip(strings[at:end], made, strict=True)
            )
            kind = "selectordinal" if plural["ordinal"] else "plural"
            start = forms[0].start
            before = original[max(0, start - MAX_INDENT) : start]
            between = f",{before[len(before.rstrip()) :] or ' '}"
            yield Plural(plural.string[: plural.start()], forms, kind, between)
        else:
            yield from made
        at = end


def is_sibling(original: str, first: String, second: String) -> bool:
    """Return whether a string stands right behind another one, in the same object."""
    return original[first.end : second.key_span.start].strip() == "," and first.key_span.end > 0


def category_span(string: String) -> Span:
    """Return where the plural category at the end of a key stands, which has no escapes."""
    end = string.key_span.end - 1
    return Span(end - len(string.key.rpartition("_")[2]), end)


def find_strings(original: str, paths: set[tuple[str, ...]]) -> Iterator[String]:
    """Yield every string value, and note the paths of keys. The strings of a list have the key of the list.

    It does not recurse, so they may be nested to any depth. Raise JSONDecodeError for what is not JSON.
    """
    # What closes each object or list that is open, the key it stands under, whether that is below a note, where the
    # object around it begins, and the keys around it, as a number and as far as they are noted.
    unclosed: list[tuple[str, str, bool, int, int, tuple[str, ...]]] = []
    key, key_span, is_note, place, path = "", Span(0, 0), False, 0, 0
    names: tuple[str, ...] = ()
    at = after_space(original, 0)
    while True:
        is_noted = unclosed and len(names) < PATH_LENGTH
        value_names = (*names, key if unclosed[-1][0] == "}" else "-") if is_noted else names
        paths.add(value_names)
        match original[at : at + 1]:
            case "{" | "[" as bracket:
                close = "}" if bracket == "{" else "]"
                unclosed.append((close, key, is_note, place, path, names))
                place, path, names = at, below(path, key, len(unclosed) == 2), value_names
                is_note = is_note or key.startswith("@")
                at = after_space(original, at + 1)
                if not original.startswith(close, at):
                    if close == "}":
                        key, key_span, at = read_key(original, at)
                    continue
            case '"':
                text, end = STRING.raw_decode(original, at)
                yield String(key, text, at, end, key_span, place, is_note or key.startswith("@"), path)
                at = end
            case _:
                atom = ATOM.match(original, at)
                if not atom:
                    raise json.JSONDecodeError("a value is missing", original, at)
                at = atom.end()
        at = after_space(original, at)
        while unclosed and original.startswith(unclosed[-1][0], at):
            _, key, is_note, place, path, names = unclosed.pop()
            key_span = Span(0, 0)
            at = after_space(original, at + 1)
        if not unclosed:
            if at < len(original):
                hint = "; JSON lines are in files called .jsonl" * original.startswith("{", at)
                raise json.JSONDecodeError(f"text after its end{hint}", original, at)
            return
        if not original.startswith(",", at):
            raise json.JSONDecodeError(f"a comma or '{unclosed[-1][0]}' is missing", original, at)
        at = after_space(original, at + 1)
        key_span = Span(0, 0)
        if unclosed[-1][0] == "}":
            key, key_span, at = read_key(original, at)


def read_key(original: str, at: int) -> tuple[str, Span, int]:
    """Return the key at `at` in an object, its span, and the offset of its value.

    Raise JSONDecodeError for no key or colon.
    """
    if not original.startswith('"', at):
        raise json.JSONDecodeError("a key in quotes is missing", original, at)
    start = at
    key, end = STRING.raw_decode(original, start)
    at = after_space(original, end)
    if not original.startswith(":", at):
        raise json.JSONDecodeError("a colon is missing", original, at)
    return key, Span(start, end), after_space(original, at + 1)


def after_space(original: str, at: int) -> int:
    """Return the offset of what follows the white space at offset `at`, or `at` if there is none."""
    space = SPACE.match(original, at)
    return space.end() if space else at
