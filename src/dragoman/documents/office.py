"""Parse word processors' files, DOCX and ODT: each paragraph is a text, with its formatting as tags in it.

One scanner reads the XML of both, and what e-books say of themselves; the table ELEMENTS says what its elements are.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cache
from html import escape

from dragoman.data.xml import check_xml
from dragoman.documents.archive import Members, Parse, parse_archive
from dragoman.documents.document import Content, Document, Passage, Span
from dragoman.documents.elements import ATTRIBUTE, CDATA, MARKUP, parse_tree
from dragoman.documents.encoding import resolve_references
from dragoman.documents.inline import Fragment, Inline, arrange, as_one_line, core_words, flow_text, trim

STYLED = "g"  # what a pair is called that is around words with other properties, as in XLIFF
INSERTED = (STYLED, "ins", "moveTo")  # pairs that say of words how they look, or that somebody inserted them
NOWHERE = Span(0, 0)
MAX_NAMESPACES = 500  # that are declared around an element
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OPEN_DOCUMENT = "urn:oasis:names:tc:opendocument:xmlns"
NAMESPACES = {
    WORD: "w", "http://purl.oclc.org/ooxml/wordprocessingml/main": "w",
    f"{OPEN_DOCUMENT}:text:1.0": "text", f"{OPEN_DOCUMENT}:office:1.0": "office",
    f"{OPEN_DOCUMENT}:svg-compatible:1.0": "svg",
    "http://purl.org/dc/elements/1.1/": "dc", "http://www.daisy.org/z3986/2005/ncx/": "ncx",
}  # fmt: skip


class Kind(Enum):
    """What an element is."""

    OUTSIDE = auto()  # not in a paragraph; any other element there, and in what is KEPT
    PARAGRAPH = auto()  # its characters are a text
    RUNS = auto()  # a paragraph whose characters are in runs
    RUN = auto()  # characters with the same properties
    TEXT = auto()  # the characters of a run
    PROPERTIES = auto()  # of the element around them, which begins with them
    PAIR = auto()  # its tags are around words
    CONTENT = auto()  # what a pair has beside its properties
    KEPT = auto()  # one tag in the text; any other element in a paragraph. Paragraphs in it are texts of their own
    LEFT = auto()  # as KEPT, with all that is in it left alone
    DROPPED = auto()  # what is out of date when the text changes


ELEMENTS = {
    name: kind
    for kind, names in {
        Kind.PARAGRAPH: "text:p text:h svg:title svg:desc dc:title dc:description ncx:text",
        Kind.RUNS: "w:p",
        Kind.RUN: "w:r",
        Kind.TEXT: "w:t",
        Kind.PROPERTIES: "w:pPr w:rPr w:sdtPr w:sdtEndPr w:smartTagPr w:customXmlPr",
        Kind.PAIR: """w:hyperlink w:ins w:moveTo w:sdt w:smartTag w:customXml w:dir w:bdo text:span text:a text:meta""",
        Kind.CONTENT: "w:sdtContent",
        Kind.LEFT: """w:del w:moveFrom w:comment office:annotation text:tracked-changes text:ruby ncx:docAuthor""",
        Kind.DROPPED: "w:proofErr w:lastRenderedPageBreak text:soft-page-break",
    }.items()
    for name in names.split()
}
PARAGRAPHS = {Kind.PARAGRAPH, Kind.RUNS}
INSIDE = {*PARAGRAPHS, Kind.RUN, Kind.TEXT, Kind.PAIR, Kind.CONTENT}  # kinds around what belongs to a paragraph
LEFT = {Kind.LEFT, Kind.PROPERTIES, Kind.DROPPED}
# Properties that do not show: the language of a run, and that it is not checked.
UNSEEN_PROPERTY = re.compile(r"</?(?:\w+:)?(?:rPr|lang|noProof)(?=[\s/>])[^>]*>|\s+")
FIELD = re.compile(r"fldCharType\s*=\s*[\"'](\w+)")
FIELD_CODE = re.compile(r">\s*(\w+)")
MAIN_PARTS = re.compile(
    r"application/vnd\.(?:openxmlformats-officedocument\.wordprocessingml|ms-word)"
    r"\.(?:(?:document|template)(?:\.macroEnabled(?:Template)?)?\.main|header|footer|footnotes|endnotes)\+xml"
)
OTHER_PARTS = re.compile(r"word/(?:charts/chart|diagrams/data)\d*\.xml|Object[^/]*/content\.xml")


@dataclass(slots=True)
class Open:
    """An open element: its name as it is written, its kind, where it and what is in it begin, a run's properties."""

    name: str
    kind: Kind
    start: int
    inner: int
    prefixes: dict[str, str]
    properties: Span | None = None


@dataclass(slots=True)
class Piece:
    """What is in a paragraph at a place: words, a tag of a pair, or anything else, whose text is None."""

    span: Span
    text: str | None = None
    in_run: bool = False
    properties: Span | None = None  # of that run
    opens: str = ""
    closes: str = ""
    name: str = ""


@dataclass(slots=True)
class Flow:
    """A paragraph that is being read."""

    in_runs: bool  # whether its characters are
    pieces: list[Piece] = field(default_factory=list)
    run: Open | None = None
    content_end: int | None = None  # where the tag that closes the content of a pair begins

    def piece(self, span: Span, text: str | None = None, name: str = "") -> Piece:
        """Return what stands in the open run, if there is one."""
        return Piece(span, text, self.run is not None, self.run.properties if self.run else None, name=name)


@dataclass(frozen=True)
class Markup(Inline):
    """An inline that is made of pieces; if it opens a pair, with the properties of the runs in that."""

    pieces: tuple[Piece, ...] = ()
    properties: Span | None = None


def parse_docx(data: bytes) -> Document:
    """Return the document of a DOCX file, whose texts are the paragraphs of its pages, margins and notes."""
    return parse_archive(data, "DOCX", docx_parts, OTHER_PARTS)


def parse_odt(data: bytes) -> Document:
    """Return the document of an ODT file, as `parse_docx` does."""
    return parse_archive(data, "ODT", odt_parts, OTHER_PARTS)


def docx_parts(members: Members) -> Iterator[tuple[str, Parse]]:
    """Yield the parts with text, by the table of contents."""
    for override in parse_tree(members.read("[Content_Types].xml").decode("utf-8-sig")).children:
        name = override.attributes.get("PartName", "").lstrip("/")
        if MAIN_PARTS.fullmatch(override.attributes.get("ContentType", "")) and name in members:
            yield name, paragraph_passages


def odt_parts(members: Members) -> Iterator[tuple[str, Parse]]:
    """Yield the parts with text: the document, and the styles of its pages, which have headers and footers."""
    if b"encryption-data" in members.read("META-INF/manifest.xml"):
        raise ValueError("it is encrypted: save it without a password")
    if b"opendocument.text" not in members.read("mimetype"):
        raise ValueError("its type is another one")
    yield "content.xml", paragraph_passages
    if "styles.xml" in members:
        yield "styles.xml", paragraph_passages


def paragraph_passages(original: str) -> Iterator[Passage]:
    """Yield a passage for each paragraph of a part. Raise ValueError, and what `check_xml` does, where it is no XML."""
    check_xml(original)
    path = [Open("", Kind.OUTSIDE, 0, 0, {})]
    flows: list[Flow] = []
    at = 0
    for tag in MARKUP.finditer(original):
        add_words(flows, path[-1], original, Span(at, tag.start()))
        at = tag.end()
        name = tag["name"]
        if not name:
            add_words(flows, path[-1], original, Span(*tag.span()))
            continue
        if not tag["closes"]:
            element = opened(path[-1], name, tag)
            path.append(element)
            if element.kind in PARAGRAPHS:
                flows.append(Flow(element.kind is Kind.RUNS))
            elif element.kind is Kind.RUN:
                flows[-1].run = element
            elif element.kind is Kind.PAIR and not tag["empty"]:
                flows[-1].pieces.append(Piece(Span(*tag.span()), opens=local(name)))
            elif element.kind is Kind.CONTENT:
                extend(flows[-1].pieces[-1], tag.end())
        if tag["closes"] or tag["empty"]:
            element = path.pop()
            if element.kind in PARAGRAPHS:
                yield from flow_passages(original, element, flows.pop(), tag.start())
            if path[-1].kind in INSIDE:
                close(flows[-1], path[-1], element, tag)


def local(name: str) -> str:
    """Return the name of an element without its prefix."""
    return name.rpartition(":")[2]


def opened(parent: Open, name: str, tag: re.Match[str]) -> Open:
    """Return the element that a tag opens inside another one."""
    prefixes = parent.prefixes
    if "xmlns" in tag["attributes"]:
        prefixes = dict(prefixes)
        for attribute, value in ATTRIBUTE.findall(tag["attributes"]):
            declared, _, prefix = attribute.partition(":")
            if declared == "xmlns":
                prefixes[prefix] = NAMESPACES.get(value[1:-1], "")
        if len(prefixes) > MAX_NAMESPACES:
            raise ValueError(f"more than {MAX_NAMESPACES} namespaces")
    kind = ELEMENTS.get(f"{prefixes.get(name.rpartition(':')[0], '')}:{local(name)}", Kind.KEPT)
    if parent.kind in LEFT:
        kind = Kind.LEFT
    elif parent.kind not in INSIDE and kind not in PARAGRAPHS and kind is not Kind.LEFT:
        kind = Kind.OUTSIDE
    elif kind is Kind.CONTENT and parent.kind is not Kind.PAIR:
        kind = Kind.KEPT
    return Open(name, kind, *tag.span(), prefixes)


def add_words(flows: Sequence[Flow], parent: Open, original: str, span: Span) -> None:
    """Add what is between two tags to the paragraph, if it is text, and a comment where that has no runs."""
    if span.start == span.end or not flows:
        return
    flow = flows[-1]
    if parent.kind is not Kind.TEXT if flow.in_runs else parent.kind not in (Kind.PARAGRAPH, Kind.PAIR):
        return
    section = CDATA.fullmatch(original, *span)
    if section or original[span.start] != "<":
        text = section[1] if section else resolve_references(original[span.start : span.end])
        flow.pieces.append(flow.piece(span, text))
    elif not flow.in_runs:
        flow.pieces.append(Piece(span))


def extend(piece: Piece, end: int) -> None:
    """Let a piece end later."""
    piece.span = Span(piece.span.start, end)


def close(flow: Flow, parent: Open, element: Open, tag: re.Match[str]) -> None:
    """Add an element that ends to the paragraph, or the tag that closes it."""
    kind, span = element.kind, Span(element.start, tag.end())
    if kind is Kind.RUN:
        flow.run = None
    elif kind is Kind.CONTENT:
        flow.content_end = tag.start()
    elif kind is Kind.PROPERTIES and parent.kind is Kind.RUN:
        parent.properties = span
    elif kind is Kind.PROPERTIES and parent.kind is Kind.PAIR and flow.pieces[-1].opens:
        extend(flow.pieces[-1], span.end)
    elif kind is Kind.PAIR and not tag["empty"]:
        start = tag.start() if flow.content_end is None else flow.content_end
        flow.pieces.append(Piece(Span(start, span.end), closes=local(element.name)))
        flow.content_end = None
    elif kind not in (Kind.TEXT, Kind.DROPPED):
        flow.pieces.append(flow.piece(span, name=local(element.name)))


def with_fields(original: str, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, ...]]:
    """Yield the pieces, those of a field together: its code and its result. A link is a pair around its text."""
    waiting: list[Piece] = []
    depth = links = 0
    for piece in pieces:
        mark = FIELD.search(original, *piece.span) if piece.name == "fldChar" else None
        state = mark[1] if mark else ""
        depth += state == "begin"
        if not depth and not (state == "end" and links):
            yield (piece,)
            continue
        waiting.append(piece)
        if state == "end" and not depth:
            links -= 1
            yield (replace(piece, closes="link"),)
            waiting = []
        elif state == "separate" and depth == 1:
            code = next((FIELD_CODE.search(original, *part.span) for part in waiting if part.name == "instrText"), None)
            what = code[1].upper() if code else ""
            if what in ("HYPERLINK", "TOC"):
                links += what == "HYPERLINK"
                yield tuple(replace(part, opens="link" if what == "HYPERLINK" else "") for part in waiting)
                waiting, depth = [], 0
        elif state == "end":
            depth -= 1
            if not depth:
                yield tuple(waiting)
                waiting = []
    if waiting:
        yield tuple(waiting)


def flow_passages(original: str, element: Open, flow: Flow, end: int) -> Iterator[Passage]:
    """Yield one passage for a paragraph, none if it has no words. end: where its closing tag begins."""
    if not any(piece.text and not piece.text.isspace() for piece in flow.pieces):
        return
    usual, items = with_looks(original, list(with_fields(original, flow.pieces)))
    first, stop, words = core_words(as_one_line([fragment for fragment, _ in items]))
    if not words:
        return
    before, after = (
        [fragment if isinstance(fragment, Markup) else span for fragment, span in part]
        for part in (items[:first], items[stop:])
    )
    if isinstance(words[0], str):
        before.append(Span(items[first][1].start, trim(original, *items[first][1])[0]))
    if isinstance(words[-1], str):
        after.insert(0, Span(trim(original, *items[stop - 1][1])[1], items[stop - 1][1].end))
    inlines = [word for word in words if isinstance(word, Inline)]
    prefix = element.name[: -len("p")] if flow.in_runs else None

    def render(translations: Sequence[str]) -> Content:
        return written([*before, *arrange(translations[0], inlines), *after], usual, prefix)

    yield Passage(element.inner, end, (flow_text(words).strip(),), render)


def is_words(group: Sequence[Piece]) -> bool:
    """Return whether a group of `with_fields` is words, not only space."""
    return len(group) == 1 and not (group[0].text or " ").isspace()


def with_looks(original: str, groups: Sequence[tuple[Piece, ...]]) -> tuple[Span | None, list[tuple[Fragment, Span]]]:
    """Return the usual properties of the runs of a paragraph, and what is in it with its places.

    Words that look in another way than those around them are in a pair of inlines. groups: see `with_fields`.
    """
    places: list[Span | None] = []  # for each group, the properties of the next words
    for group in reversed(groups):
        places.append(group[0].properties if is_words(group) else places[-1] if places else None)
    places.reverse()

    @cache
    def look(properties: Span | None) -> str:
        return UNSEEN_PROPERTY.sub("", original[slice(*properties)]) if properties else ""

    lengths: Counter[str] = Counter()
    examples: dict[str, Span | None] = {}
    depth = 0
    for group, properties in zip(groups, places, strict=True):
        depth += bool(group[0].opens) - bool(group[0].closes)
        lengths[look(properties)] += len("".join((group[0].text or "").split())) if depth == 0 else 0
        examples.setdefault(look(properties), properties)
    usual = examples[max(lengths, key=lengths.__getitem__)]
    around, styled = [usual], ""  # the properties of the words in each pair that is open, the last one of a look
    items: list[tuple[Fragment, Span]] = []

    def unstyle() -> None:
        nonlocal styled
        if styled:
            items.append((Markup("", "", closes=styled), NOWHERE))
            around.pop()
            styled = ""

    for group, properties in zip(groups, places, strict=True):
        piece = group[0]
        span = Span(piece.span.start, group[-1].span.end)
        if piece.text is not None and len(group) == 1:
            if is_words(group) and look(properties) != look(around[-1]):
                unstyle()
                if look(properties) != look(around[-1]):
                    styled = STYLED
                    around.append(properties)
                    items.append((Markup("", "", styled, properties=properties), NOWHERE))
            items.append((piece.text, span))
            continue
        if piece.opens or piece.closes:
            unstyle()
        if piece.opens:
            around.append(properties)
        elif piece.closes and len(around) > 1:
            around.pop()
        items.append((Markup("", span, piece.opens, piece.closes, group, properties), span))
    unstyle()
    return usual, items


def written(fragments: Sequence[Fragment | Span], usual: Span | None, prefix: str | None) -> Content:
    """Yield a paragraph: its new words, spans of words that stay, and markup.

    usual: the properties of runs outside pairs; prefix: of the names of runs, None where words are in none.
    """
    around = [usual]
    for fragment in without_empty(fragments):
        if isinstance(fragment, Markup):
            for piece in fragment.pieces:
                if prefix is None or not piece.in_run:
                    yield piece.span
                else:
                    yield from run(prefix, piece.properties, piece.span, piece.text is not None)
            if fragment.opens:
                around.append(fragment.properties)
            elif fragment.closes and len(around) > 1:
                around.pop()
        elif isinstance(fragment, str | Span) and (words := new_words(fragment)):
            yield from [words] if prefix is None else run(prefix, around[-1], words, is_text=True)


def without_empty(fragments: Sequence[Fragment | Span]) -> list[Fragment | Span]:
    """Return a paragraph without insertions of which no word is left."""
    kept: list[Fragment | Span] = []
    for fragment in fragments:
        before = kept[-1] if kept else ""
        if isinstance(fragment, Markup) and isinstance(before, Markup) and fragment.closes == before.opens in INSERTED:
            kept.pop()
        elif fragment:
            kept.append(fragment)
    return kept


def new_words(words: str | Span) -> str | Span | None:
    """Return words as markup; None for none."""
    if isinstance(words, str):
        return escape(words, quote=False)
    return words if words.start < words.end else None


def run(prefix: str, properties: Span | None, content: str | Span, is_text: bool) -> Content:
    """Yield a run with these properties around words or something else."""
    yield f"<{prefix}r>"
    yield from [properties] if properties else []
    yield from [f'<{prefix}t xml:space="preserve">', content, f"</{prefix}t>"] if is_text else [content]
    yield f"</{prefix}r>"
