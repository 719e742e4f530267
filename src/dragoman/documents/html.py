"""Parse web pages: a text for the content of each block, with its inline tags in it, and for some attributes."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from html import escape
from typing import NamedTuple

from dragoman.config.languages import base_language
from dragoman.documents.document import Content, Document, Label, Passage, Span, has_letter
from dragoman.documents.encoding import decode, resolve_references
from dragoman.documents.inline import (
    SPACE,
    Fragment,
    Inline,
    Tags,
    as_one_line,
    core_words,
    flow_text,
    render_markup,
    trim,
)
from dragoman.text.verbatim.detect import TEMPLATE
from dragoman.text.verbatim.kinds import PATTERNS

ATTRIBUTE = r"""[ \t\n\r\f/]*
    ([^ \t\n\r\f/>][^ \t\n\r\f/>=]*)
    (?:[ \t\n\r\f]*=[ \t\n\r\f]*("[^"]*"?|'[^']*'?|[^ \t\n\r\f>"'][^ \t\n\r\f>]*))?"""
ATTRIBUTES = re.compile(ATTRIBUTE, re.VERBOSE)
TAG = re.compile(
    rf"""<(?P<closing>/?)(?P<name>[a-zA-Z][^ \t\n\r\f/>]*)
    (?P<attributes>(?:[ \t\n\r\f/]*(?:{PATTERNS["template"]}) | {ATTRIBUTE})*)[ \t\n\r\f/]*(?:>|\Z)""",
    re.VERBOSE,
)
COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))|<\?(?:php|=).*?(?:\?>|\Z)|<[!?/][^>]*(?:>|\Z)", re.DOTALL)
SECTION = re.compile(r"<!\[CDATA\[.*?(?:\]\]>|\Z)", re.DOTALL)  # of XHTML
START = re.compile(r"<|\{[{%#]")
EXPRESSION = re.compile(r"\{\{[^{}<>&]*+[<>&][^{}]*+\}\}")  # of a template, with characters that would be escaped
LINE = re.compile(r"[^\n]+\n?|\n")
CHARSET = re.compile(rb"""<meta\s[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
HEAD = 4096  # bytes in which a page declares its encoding
WESTERN = {"ascii", "us-ascii", "latin1", "latin-1", "iso-8859-1", "iso8859-1"}  # windows-1252 to all browsers

# Elements that end a sentence. All others stand inside sentences.
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
TEXT_ATTRIBUTES = set(
    """alt aria-description aria-label aria-placeholder aria-roledescription aria-valuetext placeholder title""".split()
)
LABELLED = {"optgroup", "option", "track"}  # by the attribute `label`
BUTTONS = {"button", "reset", "submit"}  # types of <input> whose value is shown
DESCRIPTIONS = set("description og:description og:image:alt og:title twitter:description twitter:title".split())
# Their content is left alone, but readers see what their attributes say.
ATTRIBUTES_ONLY = set("audio canvas embed iframe object svg textarea video".split())
LANGUAGES = ("lang", "xml:lang")
RIGHT_TO_LEFT = set("ar arc ckb dv fa he iw ks lrc mzn nqo pnb ps sd syr ug ur yi".split())


class Token(NamedTuple):
    """A tag, which has a name; a comment or a template statement, whose name is '!'; or text, which has no name."""

    start: int
    end: int
    name: str = ""
    closing: bool = False
    attributes: tuple[int, int] = (0, 0)  # their span
    empty: bool = False  # a tag that opens nothing


class Element(NamedTuple):
    """An open element, and whether its text is translated."""

    name: str
    translated: bool


def parse_html(data: bytes) -> Document:
    """Return the document of a web page, whose texts are the blocks of text and the attributes that readers see.

    The page's declaration of an encoding counts; pages of any other kind of bytes are read as well.
    """
    declared = CHARSET.search(data, 0, HEAD)
    charset = declared[1].decode("ascii", "replace").lower() if declared else ""
    original, encoding = decode(data, "cp1252" if charset in WESTERN else charset, "xmlcharrefreplace")
    return Document(original, encoding, html_passages(original))


def tokens(original: str, xhtml: bool = False) -> Iterator[Token]:
    """Yield the tokens of the page, in order and without gaps. xhtml: whether <a/> opens nothing, and CDATA counts."""
    at = start = 0  # what is read next, and where the text before it begins
    while begin := START.search(original, at):
        at = begin.start()
        tag = TAG.match(original, at)
        match = tag or TEMPLATE.match(original, at) or EXPRESSION.match(original, at)
        match = match or (SECTION.match(original, at) if xhtml else None) or COMMENT.match(original, at)
        if not match:
            at += 1
            continue
        if start < at:
            yield Token(start, at)
        start = match.end()
        if tag:
            name, closing = tag["name"].lower(), bool(tag["closing"])
            empty = name in VOID or (xhtml and original.endswith("/>", at, start))
            yield Token(at, start, name, closing, tag.span("attributes"), empty)
            if name in RAW and not closing and not empty:
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


def html_passages(
    original: str, tags: Tags = Tags(), lines: bool = False, xhtml: bool = False
) -> Iterator[Passage | Label]:
    """Yield a passage for the text of each block of a page and for each attribute that is text, and labels of language.

    tags: elements that are handled in another way than HTML says; lines: whether a line break ends a block, too;
    xhtml: whether the page is XML.
    """
    blocks = BLOCKS - tags.non_splitting | tags.splitting
    path = [Element("", True)]
    opened: Counter[str] = Counter()
    page = ""  # its language
    flow: list[tuple[Token, bool]] = []  # of the current block, each with whether it is translated
    for token in tokens(original, xhtml):
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
            translated = token.name not in tags.ignored and is_translated(token.name, attributes, inside)
            if original[token.end - 1] == ">" and (
                translated or (token.name in ATTRIBUTES_ONLY - tags.ignored and is_translated("", attributes, inside))
            ):
                yield from text_attributes(token.name, attributes)
                yield from labels(token, attributes, page)
                page = page or (attribute_values(attributes).get("lang", "") if token.name == "html" else "")
            if not token.empty:
                path.append(Element(token.name, translated))
                opened[token.name] += 1
            translated = translated and inside
        flow.append((token, translated))
    for block in split_flow(original, flow, blocks, lines):
        yield from block_passages(original, block)


def split_flow(
    original: str, flow: Sequence[tuple[Token, bool]], blocks: Set[str], lines: bool
) -> Iterator[list[tuple[Token, bool]]]:
    """Yield the tokens of each block, an empty list where it has none, without the tags of blocks between them.

    flow: tokens, each with whether it is translated; lines: whether the end of a line in a translated text ends a
    block, too.
    """
    block: list[tuple[Token, bool]] = []
    for token, translated in flow:
        if token.name in blocks:
            yield block
            block = []
        elif lines and translated and not token.name:
            first, *others = LINE.finditer(original, token.start, token.end)
            block.append((Token(*first.span()), translated))
            for line in others:
                yield block
                block = [(Token(*line.span()), translated)]
        else:
            block.append((token, translated))
    yield block


def is_translated(name: str, attributes: Sequence[re.Match[str]], inherited: bool) -> bool:
    """Return whether the text of an element is translated, by its name, its attributes or its parent.

    attributes: matches of ATTRIBUTES; inherited: whether the parent is translated. The attribute `translate` is HTML's
    own; the class `notranslate` is what other translators read.
    """
    if name in LEFT_ALONE:
        return False
    values = attribute_values(attributes)
    if "translate" in values:
        return {"no": False, "yes": True, "": True}.get(values["translate"], inherited)
    return inherited and "notranslate" not in values.get("class", "").split()


def attribute_values(attributes: Sequence[re.Match[str]]) -> dict[str, str]:
    """Return the values of attributes by name, all in lower case. Of those with one name the first counts."""
    return {match[1].lower(): (match[2] or "").strip("\"'").lower() for match in reversed(attributes)}


def value_span(attribute: re.Match[str]) -> Span | None:
    """Return where the value of an attribute is, without quotation marks; None for none, and for one without an end."""
    value = attribute[2] or ""
    quote = 1 if value[:1] in ('"', "'") else 0
    if not value or (quote and not value[1:].endswith(value[0])):
        return None
    return Span(attribute.start(2) + quote, attribute.end(2) - quote)


def text_attributes(element: str, attributes: Sequence[re.Match[str]]) -> Iterator[Passage]:
    """Yield a passage for each attribute of an element whose value is text for readers, such as `alt` and `title`."""
    values = attribute_values(attributes)
    names = TEXT_ATTRIBUTES | ({"label"} if element in LABELLED else set())
    if element == "input" and values.get("type") in BUTTONS:
        names = names | {"value"}
    if element == "meta" and {values.get("name"), values.get("property")} & DESCRIPTIONS:
        names = names | {"content"}
    for attribute in attributes:
        span = value_span(attribute)
        if span and attribute[1].lower() in names:
            original = attribute.string
            text = flow_text(as_one_line([resolve_references(original[span.start : span.end])])).strip()
            if has_letter(text):
                quote = original[attribute.start(2) : span.start]
                yield Passage(*trim(original, *span), (text,), attribute_renderer(quote))


def labels(token: Token, attributes: Sequence[re.Match[str]], page: str) -> Iterator[Label]:
    """Yield what a tag says of the language of its text and of its direction.

    It changes for a page, and for an element that is in the language of the texts; page: that of the page, if the
    language of the texts is unknown.
    """
    values = attribute_values(attributes)
    language = next((values[name] for name in LANGUAGES if values.get(name)), "")
    is_page = token.name == "html"
    if not is_page and not language:
        return

    def is_theirs(source: str) -> bool:
        return is_page or base_language(language) == base_language(source or page)

    for attribute in attributes:
        span, name = value_span(attribute), attribute[1].lower()
        if span and name in LANGUAGES:
            yield Label(*span, lambda source, target: target if is_theirs(source) else None)
        elif span and name == "dir" and values["dir"] in ("ltr", "rtl"):
            yield Label(*span, lambda source, target: direction(target) if is_theirs(source) else None)
    if is_page and "dir" not in values:
        end = token.start + len("<html")
        yield Label(end, end, lambda source, target: ' dir="rtl"' if direction(target) == "rtl" else None)


def direction(language: str) -> str:
    """Return how a language is written, 'rtl' or 'ltr'."""
    return "rtl" if base_language(language) in RIGHT_TO_LEFT else "ltr"


def attribute_renderer(quote: str) -> Callable[[Sequence[str]], Content]:
    """Return a function that writes a translation as the value of an attribute, escaped.

    quote: the quotation mark around the value in the original, which stays; '' for none: then double ones are added.
    """

    def render(translations: Sequence[str]) -> Content:
        value = escape(translations[0], quote=False)
        if quote == "'":
            return [value.replace("'", "&#39;")]
        value = value.replace('"', "&quot;")
        return [value if quote else f'"{value}"']

    return render


def block_passages(original: str, flow: Sequence[tuple[Token, bool]]) -> Iterator[Passage]:
    """Yield one passage for a block, none if it has no text. flow: its tokens, and whether each is translated."""
    fragments: list[Fragment] = []
    spans: list[Span] = []
    for token, translated in flow:
        span = Span(token.start, token.end)
        source = original[token.start : token.end]
        if not token.name and translated:
            fragments.append(resolve_references(source))
        elif translated:
            opens = "" if token.closing or token.empty else token.name
            fragments.append(Inline(SPACE.sub(" ", source), span, opens, token.name if token.closing else ""))
        else:
            if fragments and isinstance(fragments[-1], Inline) and not fragments[-1].shown:
                fragments.pop()
                span = Span(spans.pop().start, span.end)
            fragments.append(Inline("", span))
        spans.append(span)
    first, stop, fragments = core_words(as_one_line(fragments))
    if fragments:
        start, end = spans[first].start, spans[stop - 1].end
        if isinstance(fragments[0], str):
            start = trim(original, *spans[first])[0]
        if isinstance(fragments[-1], str):
            end = trim(original, *spans[stop - 1])[1]
        inlines = [fragment for fragment in fragments if isinstance(fragment, Inline)]
        yield Passage(start, end, (flow_text(fragments).strip(),), partial(render_block, inlines))


def render_block(inlines: Sequence[Inline], translations: Sequence[str]) -> Content:
    """Return the translation of a block with its tags, see `render_markup`."""
    return render_markup(translations[0], inlines)
