"""Parse Android's strings.xml: strings, arrays of them and plurals, as aapt reads them and their escapes.

https://developer.android.com/guide/topics/resources/string-resource describes it.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from html import escape
from string import ascii_lowercase as LETTERS

from dragoman.data.xml import NOT_XML
from dragoman.documents.document import Document, DocumentConfig, Skipped, Span, has_letter
from dragoman.documents.elements import Element, decode_xml, read_tree, sole_section, write_cdata
from dragoman.documents.encoding import as_pairs, resolve_references
from dragoman.documents.inline import Fragment, Inline, disambiguate, flow_text, split_translation
from dragoman.documents.messages import Entry, Form, Plural, catalogue
from dragoman.errors import plural

FORM = "Android's strings.xml"
SPACE = " \t\n\r"
PART = re.compile(
    r"""\\(?:u(?P<hex>[0-9A-Fa-f]{4})|(?P<one>.))|(?P<quote>")|(?P<space>[ \t\n\r]++)|[^\\"\s]++|.""", re.DOTALL
)
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t"} | {character: character for character in "\\'\"@?#"}
SPECIAL = re.compile(r"""[\\'"\n\t\r]|\A[@?]|\A | \Z| (?= )""")
SPECIAL_IN_QUOTES = re.compile(r"""[\\"\n\t\r]|\A[@?]""")
WRITTEN = {"\n": "\\n", "\t": "\\t", "\r": "\\u000d", " ": "\\u0020"}
REFERENCE = re.compile(r"@(?:null|empty)|[@?][\w+*.-]++[/:][\w.:/-]++|\?\w++")
QUANTITY = re.compile(r"""\squantity\s*=\s*["'](\w+)["']""")
PLACEHOLDER = re.compile(r"%(?:\d{1,2}\$)?[-+0',#]{0,3}\d{0,3}(?:\.\d{1,3})?[a-zA-Z]")
UNTRANSLATED = "MissingTranslation"  # what a linter ignores in a string that is meant to have no translation


def parse_android(data: bytes, config: DocumentConfig) -> Document:
    """Return the document whose texts are the strings with the names in `config.keys`, or all strings.

    Those for which `translatable` is false, and references such as @string/ok, are left alone.
    """
    original, encoding = decode_xml(data)
    root = read_tree(original, "resources", FORM)
    if isinstance(root, Skipped):
        if "root" in root.reason:
            advice = f"{root.reason}; of XML, .xlf, .resx, .stringsdict and .html are translated, too"
            root = Skipped(root.line, advice)
        return Document(original, encoding, [], [root], readable=False)
    reasons: list[tuple[int, str]] = []
    if not is_translated(root):
        reasons.append((root.start, "marked as not for translation: left untranslated"))
        root.children = []
    return catalogue(original, encoding, entries(original, root, reasons), config, reasons)


def entries(original: str, root: Element, reasons: list[tuple[int, str]]) -> Iterator[Entry | Plural]:
    """Yield the strings; add to `reasons` those that are left alone although they may be texts."""
    arrays: list[int] = []
    for element in root.children:
        if not is_translated(element):
            continue
        key = element.attributes.get("name", "")
        items = [item for item in element.named("item") if is_translated(item)]
        if element.name == "string" or (element.name == "item" and element.attributes.get("type") == "string"):
            items = [element]
        elif element.name == "array":
            arrays += [element.start for item in items if has_letter(original[item.inner : item.inner_end])]
            continue
        elif element.name not in ("string-array", "plurals"):
            continue
        made: list[tuple[Element, Entry]] = []
        for item in items:
            try:
                if entry := string_entry(original, key, item):
                    made.append((item, entry))
            except ValueError as error:
                reasons.append((item.start, f"'{key}' has {error}: left untranslated"))
        if element.name == "plurals":
            if len(made) == len(items) and made:
                yield from plural_entry(original, key, made)
        else:
            yield from (entry for _, entry in made)
    if arrays:
        count = plural(len(arrays), "item")
        reasons.append((arrays[0], f"{count} from here on in an <array>, which may be no texts: left untranslated"))


def is_translated(element: Element) -> bool:
    """Return whether the attributes of an element leave its texts to translators."""
    ignored = element.attributes.get("tools:ignore", "").replace(" ", "").split(",")
    return element.attributes.get("translatable") != "false" and UNTRANSLATED not in ignored


def plural_entry(original: str, key: str, made: Sequence[tuple[Element, Entry]]) -> Iterator[Plural]:
    """Yield the items of a plural as its forms. A comment above an item is part of its form."""
    forms: list[Form] = []
    for item, entry in made:
        quantity = QUANTITY.search(original, item.start, item.inner)
        if not quantity:
            return
        start = item.start
        if forms:
            start -= len(original[forms[-1].end : start].lstrip())
        forms.append(Form(start, item.end, Span(*quantity.span(1)), entry))
    yield Plural(key, tuple(forms))


def string_entry(original: str, key: str, item: Element) -> Entry | None:
    """Return the entry of a string; None for an empty one and for a reference. Raise ValueError where it is unclear."""
    raw = original[item.inner : item.inner_end]
    start = item.inner + len(raw) - len(raw.lstrip(SPACE))
    end = item.inner + len(raw.rstrip(SPACE))
    if start >= end:
        return None
    if section := sole_section(original, item):
        text = unescape([section], keep=True)[0]
        assert isinstance(text, str)
        kept = {" ", "\t", "\r"} | {character for character in '\n"' if character in section.replace('\\"', "")}
        return Entry(key, text, start, end, lambda text: write_cdata(escape_text(text, SPECIAL, kept)))
    pieces = list(fragments(original, item))
    pieces[0] = str(pieces[0]).lstrip(SPACE)
    pieces[-1] = str(pieces[-1]).rstrip(SPACE)
    only = str(pieces[0]) if len(pieces) == 1 else ""
    if REFERENCE.fullmatch(only):
        return None
    is_quoted = bool(QUOTED.fullmatch(only))
    words = disambiguate(unescape(pieces))
    inlines = [word for word in words if isinstance(word, Inline)]
    return Entry(key, flow_text(words), start, end, partial(write_string, inlines, is_quoted))


def fragments(original: str, element: Element) -> Iterator[Fragment]:
    """Yield what is in a string, a string first and last: text, and tags.

    Of <xliff:g>, a placeholder is shown between tags, any other content is hidden. Raise ValueError for CDATA beside
    text.
    """
    at = element.inner
    placeholders = 0
    for child in element.children:
        yield resolve_references(original[at : child.start])
        at = child.end
        opening, closing = original[child.start : child.inner], original[child.inner_end : child.end]
        if original.startswith("<![CDATA[", child.start):
            raise ValueError("a CDATA section beside text")
        if original.startswith("<xliff:", child.start) and PLACEHOLDER.fullmatch(
            original, child.inner, child.inner_end
        ):
            yield Inline("<g>" if not placeholders else f'<g id="{LETTERS[placeholders % 26]}">', opening, opens="g")
            yield original[child.inner : child.inner_end]
            yield Inline("</g>", closing, closes="g")
            placeholders += 1
        elif original.startswith("<xliff:", child.start) or not child.name or child.inner == child.end:
            yield Inline("", original[child.start : child.end])
        else:
            yield Inline(opening, opening, opens=child.name)
            yield from fragments(original, child)
            yield Inline(closing, closing, closes=child.name)
    yield resolve_references(original[at : element.inner_end])


def unescape(pieces: Sequence[Fragment], keep: bool = False) -> list[Fragment]:
    """Return fragments with their text as aapt reads it; keep: all white space and quotes, as in CDATA.

    Raise ValueError for an escape that there is not, and for a quote that is not closed.
    """
    result: list[Fragment] = []
    in_quotes = keep
    for piece in pieces:
        if not isinstance(piece, str):
            result.append(piece)
            continue
        words = []
        for part in PART.finditer(piece):
            if part["quote"] and not keep:
                in_quotes = not in_quotes
            elif part["space"] and not in_quotes:
                words.append(" ")
            elif part["hex"]:
                words.append(chr(int(part["hex"], 16)))
            elif part["one"] is not None:
                if part["one"] not in ESCAPES:
                    raise ValueError(f"the unknown escape '{part[0]}'")
                words.append(ESCAPES[part["one"]])
            else:
                words.append(part[0])
        result.append(as_pairs("".join(words)))
    if in_quotes and not keep:
        raise ValueError("a quote that is not closed")
    return result


def escape_text(text: str, special: re.Pattern[str], kept: Collection[str] = ()) -> str:
    """Return a text with escapes for what aapt would read as something else; kept: characters that stay."""

    def written(match: re.Match[str]) -> str:
        return match[0] if match[0] in kept else WRITTEN.get(match[0], f"\\{match[0]}")

    return special.sub(written, text)


def write_string(inlines: Sequence[Inline], is_quoted: bool, text: str) -> str:
    """Return a text as a string's content. Raise ValueError where it lacks tags or they do not nest as before."""
    words, is_complete = split_translation(NOT_XML.sub("\ufffd", text), inlines)
    if not is_complete:
        raise ValueError(f"its tags are not all in '{text}'")
    pieces: list[Fragment] = []
    for word in words:
        before = pieces[-2] if len(pieces) > 1 else ""
        if isinstance(before, Inline) and before.opens and str(before.original).startswith("<xliff:"):
            # What slipped into <xliff:g> goes beside it.
            placeholder = PLACEHOLDER.search(str(pieces[-1]))
            if not placeholder:
                raise ValueError(f"its placeholders are not all in '{text}'")
            around = str(pieces[-1])[: placeholder.start()], str(pieces[-1])[placeholder.end() :]
            pieces[-2:] = [around[0], before, placeholder[0], word, around[1]]
        else:
            pieces.append(word)
    words = pieces
    originals = iter([str(word.original) for word in words if isinstance(word, Inline)])
    marked = "".join(word if isinstance(word, str) else "\0" for word in words)
    escaped = escape(escape_text(marked, SPECIAL_IN_QUOTES if is_quoted else SPECIAL), quote=False)
    escaped = re.sub("\0", lambda _: next(originals), escaped)
    return f'"{escaped}"' if is_quoted else escaped
