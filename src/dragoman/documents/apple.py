"""Parse the strings of apps for Apple's systems: .strings, and .stringsdict with their plural forms."""

import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from dragoman.documents.document import Document, DocumentConfig, Skipped, Span, has_letter, line_number
from dragoman.documents.elements import Element, decode_xml, plain_text, read_tree, text_entry
from dragoman.documents.encoding import as_pairs, decode
from dragoman.documents.messages import Entry, Form, Plural, catalogue
from dragoman.text.plurals import CATEGORIES

SPACE = re.compile(r"(?:\s|/\*(?:[^*]|\*(?!/))*+\*/|//[^\n\r\u2028\u2029]*+)*+")
STRING = re.compile(r""""(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|[\w.$/:+-]++""", re.DOTALL)
ESCAPE = re.compile(r"\\(?:U(?P<hex>[0-9A-Fa-f]{1,4})|(?P<octal>[0-7]{1,3})|(?P<one>.))", re.DOTALL)
LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
VARIABLE = re.compile(r"%(?:\d{1,2}\$)?#@[^@]{1,64}@")
FORMAT = "NSStringLocalizedFormatKey"


def parse_strings(data: bytes, config: DocumentConfig) -> Document:
    """Return the document whose texts are the values of a .strings file under the keys of `config`, or all values."""
    original, encoding = decode(data)
    if original.startswith(("<?xml", "<!DOCTYPE", "<plist")):
        return parse_plist(data, config)
    reasons: list[tuple[int, str]] = []
    try:
        if data.startswith(b"bplist"):
            raise ValueError("it is compiled: plutil -convert xml1 makes it text")
        if not encoding.mark and b"\0" in data[:2]:
            raise ValueError("it is in UTF-16 without a byte order mark")
        strings = list(string_entries(original, reasons))
    except ValueError as error:
        at = error.args[1] if len(error.args) > 1 else None
        line = 0 if at is None else line_number(original, at)
        return Document(original, encoding, [], [Skipped(line, f"not .strings ({error.args[0]})")], readable=False)
    return catalogue(original, encoding, strings, config, reasons)


def string_entries(original: str, reasons: list[tuple[int, str]]) -> Iterator[Entry]:
    """Yield the values. Raise ValueError with a reason and an offset where the file is not .strings.

    Add to `reasons` the values with escapes that Apple's programs do not read as Unicode.
    """

    def after_space(at: int) -> int:
        space = SPACE.match(original, at)
        return space.end() if space else at

    def string(at: int, expected: str) -> re.Match[str]:
        match = STRING.match(original, at)
        if not match:
            unclosed = {'"': "a quote is not closed", "'": "a quote is not closed"}
            comment = "a comment is not closed" if original.startswith("/*", at) else f"{expected} is missing"
            raise ValueError(unclosed.get(original[at : at + 1], comment), at)
        return match

    at = after_space(0)
    while at < len(original):
        name = string(at, "a key in quotes")
        key, _ = unescape(name[0])
        at = after_space(name.end())
        if original.startswith("=", at):
            value = string(after_space(at + 1), "a value in quotes")
            text, is_clear = unescape(value[0])
            if is_clear:
                newline = "\n" if "\n" in value[0] else "\\n"
                yield Entry(key, text, *value.span(), partial(write_string, newline))
            else:
                reasons.append((value.start(), f"'{key}' has an unclear escape: left untranslated"))
            at = after_space(value.end())
        if not original.startswith(";", at):
            raise ValueError(f"a semicolon is missing after '{key[:40]}'", at)
        at = after_space(at + 1)


def unescape(string: str) -> tuple[str, bool]:
    """Return what a string says, in quotes or without, and whether that is clear."""
    if string[:1] not in ("'", '"'):
        return string, True
    is_clear = True

    def character(match: re.Match[str]) -> str:
        nonlocal is_clear
        if match["hex"]:
            return chr(int(match["hex"], 16))
        if match["octal"]:
            is_clear = is_clear and int(match["octal"], 8) < 128  # others are in the encoding of NeXTSTEP
            return chr(int(match["octal"], 8))
        is_clear = is_clear and match["one"] not in "uUx"
        return LETTERS.get(match["one"], match["one"])

    text = as_pairs(ESCAPE.sub(character, string[1:-1]))
    return text, is_clear


def write_string(newline: str, text: str) -> str:
    """Return a text as a value; newline: how the end of a line is written."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", newline)
    return f'"{text}"' if newline == "\n" else '"' + text.replace("\r", "\\r").replace("\t", "\\t") + '"'


def parse_plist(data: bytes, config: DocumentConfig) -> Document:
    """Return the document whose texts are the strings of a property list, with the plural forms of .stringsdict."""
    original, encoding = decode_xml(data)
    root = read_tree(original, "plist", "a property list")
    if isinstance(root, Skipped):
        return Document(original, encoding, [], [root], readable=False)
    reasons: list[tuple[int, str]] = []
    return catalogue(original, encoding, plist_entries(original, root, reasons), config, reasons)


def plist_entries(original: str, root: Element, reasons: list[tuple[int, str]]) -> Iterator[Entry | Plural]:
    """Yield the strings of a property list under the outermost key that each is below; see `parse_plist`."""
    todo = [("", child) for child in root.named("dict")]
    while todo:
        key, element = todo.pop()
        members = list(pairs(original, element))
        names = {name: value for name, _, value in members}
        forms = [member for member in members if member[0] in CATEGORIES and member[2].name == "string"]
        if "NSStringFormatSpecTypeKey" in names:
            if made := plural_forms(original, key, forms):
                yield Plural(key, made)
            elif any(has_letter(plain_text(original, value) or "") for _, _, value in forms):
                reasons.append((element.start, f"'{key}' has other things between its forms: left untranslated"))
            continue
        for name, _, value in members:
            entry = text_entry(original, key or name, value) if value.name == "string" else None
            if entry and not (name == FORMAT and not has_letter(VARIABLE.sub("", entry.text))):
                yield entry
        todo += [(key or name, value) for name, _, value in reversed(members) if value.name == "dict"]


def pairs(original: str, element: Element) -> Iterator[tuple[str, Element, Element]]:
    """Yield each key of a dict, its element, and the element of its value."""
    children = [child for child in element.children if child.name]
    for name, value in pairwise(children):
        if name.name == "key" and value.name != "key":
            yield plain_text(original, name) or "", name, value


def plural_forms(original: str, key: str, forms: list[tuple[str, Element, Element]]) -> tuple[Form, ...]:
    """Return the plural forms of a variable; none if something else than comments is between them."""
    made: list[Form] = []
    for category, name, value in forms:
        entry = text_entry(original, key, value)
        if not entry or original[name.inner : name.inner_end] != category:
            return ()
        start = name.start
        if made:
            between = original[made[-1].end : start]
            if "<" in re.sub("<!--.*?-->", "", between, flags=re.DOTALL):
                return ()
            start -= len(between.lstrip())
        made.append(Form(start, value.end, Span(name.inner, name.inner_end), entry))
    return tuple(made)
