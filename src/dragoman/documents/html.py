"""Web pages: a text for the content of each block, with its inline tags in it, and for some attributes.

Tags are found by the rules of the HTML standard, which read whatever comes to its end and never go back. The parser of
Python's library does go back, for quadratic time, in some of the versions that are supported here.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from html import escape, unescape
from typing import NamedTuple

from dragoman.documents.document import Document, Found, Kept, Parts, Slot, has_letter
from dragoman.documents.encoding import decoded
from dragoman.documents.pieces import Piece, Words, core, distinct, speaks, split, text_of

ATTRIBUTE = r"""[ \t\n\r\f/]*
    ([^ \t\n\r\f/>][^ \t\n\r\f/>=]*)
    (?:[ \t\n\r\f]*=[ \t\n\r\f]*("[^"]*"?|'[^']*'?|[^ \t\n\r\f>"'][^ \t\n\r\f>]*))?"""
ATTRIBUTES = re.compile(ATTRIBUTE, re.VERBOSE)
TAG = re.compile(
    rf"<(?P<closing>/?)(?P<name>[a-zA-Z][^ \t\n\r\f/>]*)(?P<attributes>(?:{ATTRIBUTE})*)[ \t\n\r\f/]*(?:>|\Z)",
    re.VERBOSE,
)
COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))|<\?(?:php|=).*?(?:\?>|\Z)|<[!?/][^>]*(?:>|\Z)", re.DOTALL)
SPACE = re.compile(r"[ \t\n\r\f]+")
REFERENCE = re.compile(r"&#?\w{1,10};")
CHARSET = re.compile(rb"""<meta\s[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
HEAD = 4096  # bytes in which a page declares its encoding
WESTERN = {"ascii", "us-ascii", "latin1", "latin-1", "iso-8859-1", "iso8859-1"}  # windows-1252 to all browsers

# What a sentence does not go beyond. All other elements stand inside sentences.
BLOCKS = set(
    """address article aside base blockquote body button caption center col colgroup dd details dialog dir div dl dt
    fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li link
    main menu meta nav noscript ol optgroup option p search section select summary table tbody td template tfoot th
    thead title tr ul""".split()
)
LEFT_ALONE = set(
    """audio canvas code embed iframe kbd listing math noembed noframes object plaintext pre samp script style svg
    textarea var video xmp""".split()
)
VOID = set("area base br col embed frame hr img input link meta param source track wbr".split())
RAW = set("iframe noembed noframes plaintext script style textarea title xmp".split())  # no tags in them
ENDS = {name: re.compile(rf"</{name}(?=[ \t\n\r\f/>])", re.IGNORECASE) for name in RAW}
# An element that is not closed ends where one of these begins.
ENDED_BY = {
    "p": BLOCKS - set("base button col colgroup link meta noscript optgroup option template".split()),
    "li": {"li"}, "dt": {"dt", "dd"}, "dd": {"dt", "dd"}, "option": {"option", "optgroup"}, "optgroup": {"optgroup"},
    "td": {"td", "th", "tr"}, "th": {"td", "th", "tr"}, "tr": {"tr"},
}  # fmt: skip
SPOKEN = {"alt", "placeholder", "title"}  # attributes that are texts


class Token(NamedTuple):
    """A tag, which has a name; a comment, whose name is '!'; or text, which has none."""

    start: int
    end: int
    name: str = ""
    closing: bool = False
    attributes: tuple[int, int] = (0, 0)  # their span


class Element(NamedTuple):
    name: str
    translated: bool


def html(data: bytes) -> Document:
    declared = CHARSET.search(data, 0, HEAD)
    charset = declared[1].decode("ascii", "replace").lower() if declared else ""
    original, encoding = decoded(data, "cp1252" if charset in WESTERN else charset, "xmlcharrefreplace")
    return Document(original, encoding, Found(list(slots(original))))


def tokens(original: str) -> Iterator[Token]:
    """All of the page, in order and without gaps."""
    at = start = 0  # of what is read, and of the text before it
    while (at := original.find("<", at)) >= 0:
        tag = TAG.match(original, at)
        match = tag or COMMENT.match(original, at)
        if not match:
            at += 1
            continue
        if start < at:
            yield Token(start, at)
        start = match.end()
        if tag:
            name, closing = tag["name"].lower(), bool(tag["closing"])
            yield Token(at, start, name, closing, tag.span("attributes"))
            if name in RAW and not closing:
                end = ENDS[name].search(original, start)
                at = end.start() if end else len(original)
                if start < at:
                    yield Token(start, at)
                start = at
        else:
            yield Token(at, start, "!")
        at = start
    if start < len(original):
        yield Token(start, len(original))


def slots(original: str) -> Iterator[Slot]:
    path = [Element("", True)]
    opened: Counter[str] = Counter()
    flow: list[tuple[Token, bool]] = []  # of the block that is being read; False: left alone
    for token in tokens(original):
        translated = path[-1].translated and token.name != "!"
        if token.closing:
            while opened[token.name]:
                opened[path[-1].name] -= 1
                if path.pop().name == token.name:
                    break
        elif token.name not in ("", "!"):
            while token.name in ENDED_BY.get(path[-1].name, ()):
                opened[path.pop().name] -= 1
            attributes = list(ATTRIBUTES.finditer(original, *token.attributes))
            inside = path[-1].translated
            translated = is_translated(token.name, attributes, inside)
            if translated and original[token.end - 1] == ">":
                yield from spoken(attributes)
            if token.name not in VOID:
                path.append(Element(token.name, translated))
                opened[token.name] += 1
            translated = translated and inside
        if token.name in BLOCKS:
            yield from block(original, flow)
            flow = []
        else:
            flow.append((token, translated))
    yield from block(original, flow)


def is_translated(name: str, attributes: Sequence[re.Match[str]], inherited: bool) -> bool:
    if name in LEFT_ALONE:
        return False
    for attribute in attributes:
        if attribute[1].lower() == "translate":
            return {"no": False, "yes": True, "": True}.get((attribute[2] or "").strip("\"'").lower(), inherited)
    return inherited


def spoken(attributes: Sequence[re.Match[str]]) -> Iterator[Slot]:
    for attribute in attributes:
        value = attribute[2] or ""
        quote = 1 if value[:1] in ('"', "'") else 0
        if attribute[1].lower() in SPOKEN and (not quote or value[1:].endswith(value[0])):
            text = SPACE.sub(" ", unescape(value[quote : len(value) - quote])).strip()
            if has_letter(text):
                span = trimmed(attribute.string, attribute.start(2) + quote, attribute.end(2) - quote)
                yield Slot(*span, (text,), in_quotes(value[:quote]))


def in_quotes(quote: str) -> Callable[[Sequence[str]], Parts]:
    def written(translations: Sequence[str]) -> Parts:
        value = escape(translations[0], quote=False)
        if quote == "'":
            return [value.replace("'", "&#39;")]
        value = value.replace('"', "&quot;")
        return [value if quote else f'"{value}"']

    return written


def block(original: str, flow: Sequence[tuple[Token, bool]]) -> Iterator[Slot]:
    """The text of a block, where there is one."""
    words: list[Words] = []
    spans: list[Kept] = []
    for token, translated in flow:
        span = Kept(token.start, token.end)
        shown = SPACE.sub(" ", original[token.start : token.end])
        if not token.name and translated:
            words.append(SPACE.sub(" ", unescape(shown)))
        elif translated:
            opens = token.name if not token.closing and token.name not in VOID else ""
            words.append(Piece(shown, span, opens, token.name if token.closing else ""))
        else:
            if words and isinstance(words[-1], Piece) and not words[-1].shown:
                words.pop()
                span = Kept(spans.pop().start, span.end)
            words.append(Piece("", span))
        spans.append(span)
    first, stop = core(words)
    words = distinct(words[first:stop])
    if speaks(words):
        start, end = spans[first].start, spans[stop - 1].end
        if isinstance(words[0], str):
            start = trimmed(original, *spans[first])[0]
        if isinstance(words[-1], str):
            end = trimmed(original, *spans[stop - 1])[1]
        pieces = [word for word in words if isinstance(word, Piece)]
        yield Slot(start, end, (text_of(words).strip(),), with_tags(pieces))


def with_tags(pieces: Sequence[Piece]) -> Callable[[Sequence[str]], Parts]:
    """Writes a translation so that the page has the same tags as before, whatever it is.

    Where the translation has not all of the pieces, or they do not nest, they follow its words.
    """

    def written(translations: Sequence[str]) -> Parts:
        words, whole = split(translations[0], pieces)
        if not whole:
            words = [SPACE.sub(" ", text_of([word for word in words if isinstance(word, str)])).strip(), *pieces]
        return [escape(word, quote=False) if isinstance(word, str) else word.original for word in words]

    return written


def trimmed(original: str, start: int, end: int) -> tuple[int, int]:
    """The span without the space around it, written as it is or as a reference such as &nbsp;."""
    while start < end:
        reference = REFERENCE.match(original, start, end)
        if original[start].isspace():
            start += 1
        elif reference and unescape(reference[0]).isspace():
            start = reference.end()
        else:
            break
    while start < end:
        if original[end - 1].isspace():
            end -= 1
        elif (at := original.rfind("&", max(start, end - 13), end)) >= 0 and is_space(original[at:end]):
            end = at
        else:
            break
    return start, end


def is_space(text: str) -> bool:
    return bool(REFERENCE.fullmatch(text)) and unescape(text).isspace()
