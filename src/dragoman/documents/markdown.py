"""Parse Markdown: a text for each heading, paragraph, list item and table cell."""

import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from markdown_it.token import Token

from dragoman.documents.document import (
    Content,
    Document,
    DocumentConfig,
    Passage,
    Skipped,
    Span,
    has_letter,
    line_number,
)
from dragoman.documents.encoding import decode
from dragoman.documents.front_matter import body_start, field_passages
from dragoman.documents.html import ATTRIBUTES, TAG, VOID, is_translated
from dragoman.documents.inline import Fragment, Inline, as_one_line, core_words, flow_text, split_translation, trim
from dragoman.documents.markdown_dialects import FORMULA, SPECIAL, reason_left
from dragoman.documents.markdown_parser import parser
from dragoman.errors import plural

References = dict[str, dict[str, Any]]  # targets of links by label, as markdown-it keeps them
LINE = re.compile(r"([^\r\n]*)(?:\r\n?|\n|\Z)")
PIPE = re.compile(r"(?<!\\)\|")
SPACE = re.compile(r"[ \t\n]+")
EMPHASIS = {"strong": "strong", "em": "em", "s": "s"}
PARAGRAPH = ["paragraph_open", "inline", "paragraph_close"]
ELEMENT = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*)")
NO_TEXT = frozenset('"\\`<>{}[]|*_$&')  # may be markup in the title of a component, an abbreviation and the like
SINGLE = {"br", "hr", "img", "input", "wbr"}
# What would be markup at the beginning of a line.
BEGINNING = re.compile(r"\A(?=[-+>=~#:])|\A\d{1,9}(?=[.)](?:\s|\Z))")


def parse_markdown(data: bytes, config: DocumentConfig) -> Document:
    """Return the document whose texts are the paragraphs, headings, table cells and other blocks of text.

    The values in the front matter that are under the keys of `config` are texts, too.
    """
    original, encoding = decode(data)
    lost: list[int] = []  # offsets of blocks that were not found in the source
    front = body_start(original)
    skipped: list[Skipped] = []
    passages = field_passages(original, front, config, skipped)
    lines = [(match.start(1), match[1]) for match in LINE.finditer(original, front)]
    environment: dict[str, References] = {"references": {}}
    tokens = parser().parse(original[front:], environment)
    for block, row in blocks(tokens):
        first, stop = block[0].map or (0, 0)
        contents = [token.content for token in block]
        if "column" in block[0].meta:  # a text in a line of markup
            start = lines[first][0] + block[0].meta["column"]
            if block[0].type == "raw":
                passages.extend(raw_passages(original, start, start + len(contents[0])))
                continue
            offsets: list[Sequence[int] | None] = [range(start, start + len(contents[0]))]
        else:
            offsets = row_offsets(contents, *lines[first]) if row else [block_offsets(contents[0], lines[first:stop])]
        for token, of_content in zip(block, offsets, strict=True):
            if of_content:
                passages.extend(block_passages(original, token, of_content, row, environment["references"]))
            elif has_letter(token.content):
                lost.append(lines[first][0])
    skipped += [
        Skipped(line_number(original, lines[token.map[0]][0]), reason)
        for token in tokens
        if token.map and (reason := reason_left(token))
    ]
    if lost:
        reason = f"{plural(len(lost), 'block')} from here on could not be found again in the source: left untranslated"
        skipped.append(Skipped(line_number(original, lost[0]), reason))
    return Document(original, encoding, passages, skipped)


def blocks(tokens: Sequence[Token]) -> Iterator[tuple[list[Token], bool]]:
    """Yield the blocks of text: one inline token and False, or the inline tokens of a table row and True."""
    row: list[Token] | None = None
    for before, token in pairwise([None, *tokens]):
        assert token
        if token.type == "tr_open":
            row = []
        elif token.type == "tr_close":
            if row:
                yield row, True
            row = None
        elif token.type in ("inline", "raw"):
            if row is None:
                if before and before.type == "heading_open":
                    token.meta["heading"] = before.markup
                    if before.markup == "-":
                        token.meta["pipe"] = "&#124;"  # even "\\|" would be that of a table, with the dashes below it
                yield [token], False
            else:
                row.append(token)


def block_offsets(content: str, lines: Sequence[tuple[int, str]]) -> list[int] | None:
    """Return the offset of each character of a block, given its lines and where they begin; None if not found."""
    offsets: list[int] = []
    written = content.split("\n")
    if len(written) > len(lines):
        return None
    for text, (start, line) in zip(written, lines, strict=False):
        core = text.strip()
        line = line.rstrip()
        if not line.endswith(core):  # the end of a heading: # Title #
            line = line.rstrip("#").rstrip()
        if not line.endswith(core):
            return None
        at = start + len(line) - len(core) - (len(text) - len(text.lstrip()))
        offsets.extend(range(at, at + len(text) + 1))
    return offsets


def row_offsets(contents: Sequence[str], start: int, line: str) -> list[Sequence[int] | None]:
    """Return, for each cell of a table row, the offsets of its characters as `block_offsets` does, or None.

    contents: the cells as parsed; line: the row as written, which begins at the offset `start`.
    """
    bounds = [-1, *(pipe.start() for pipe in PIPE.finditer(line)), len(line)]
    spans = [(left + 1, right) for left, right in pairwise(bounds)]
    for first in (0, 1):  # a pipe at the beginning is optional, and after marks of quotations and lists
        cells = spans[first : first + len(contents)]
        texts = [line[left:right].replace("\\|", "|").strip() for left, right in cells]
        texts += [""] * (len(contents) - len(texts))
        known = [content.strip() for content in contents]
        if texts[1:] == known[1:] and (texts[0].endswith(known[0]) if not first else texts[0] == known[0]):
            offsets: list[Sequence[int] | None] = [
                cell_offsets(content, start + left, line[left:right])
                for content, (left, right) in zip(known, cells, strict=False)
            ]
            return offsets + [None] * (len(contents) - len(offsets))
    return [None] * len(contents)


def cell_offsets(content: str, start: int, cell: str) -> list[int]:
    """Return the offsets, as `block_offsets` does, of the characters of a table cell, whose pipes are escaped.

    content: the cell as parsed; cell: as written, which begins at the offset `start`.
    """
    offsets = [start + match.start() for match in re.finditer(r"\\\||.", cell, re.DOTALL)]
    end = len(cell.replace("\\|", "|").rstrip())
    return offsets[end - len(content) : end]


def block_passages(
    original: str, block: Token, offsets: Sequence[int], row: bool, references: References
) -> Iterator[Passage]:
    """Yield a passage for each part of a block between hard line breaks, none for parts without words.

    block: its inline token; offsets: of each character of its content; row: whether it is a cell of a table;
    references: targets of the page's links.
    """
    for flow in flows(block.content, block.children or [], "lines" in block.meta):
        first, stop, words = core_words(as_one_line([word for word, _, _ in flow]))
        if words:
            start, end = flow[first][1], flow[stop - 1][2]
            source = block.content[start:end]
            end -= len(source) - len(source.rstrip())
            start += len(source) - len(source.lstrip())
            tail = ""
            if stop < len(flow) and isinstance(closing := flow[stop][0], Inline) and end == flow[stop][1]:
                if (tail := str(closing.original)) == block.content[end : flow[stop][2]]:
                    tail = ""
                else:  # the target of a link whose text was its label
                    end = flow[stop][2]
            span = Span(offsets[start], offsets[end - 1] + 1)
            if original[span.start - 1 : span.start + 1] == "\\|":
                span = Span(span.start - 1, span.end)
            text = SPACE.sub(" ", flow_text(words)).strip()
            first, stop = block.content.rfind("\n", 0, start) + 1, block.content.find("\n", end)
            around = block.content[first:start], block.content[end : stop if stop >= 0 else None]
            before, after = block.meta.get("around", ("", ""))
            around = before + around[0], around[1] + after
            in_cell = row and "|" in original[original.rfind("\n", 0, span.start) + 1 : span.start]
            if in_cell or block.meta.get("heading", "").startswith("#"):
                around = f"# {around[0]}", around[1]  # so it does not begin its line
            pipe = block.meta.get("pipe", r"\|")
            source = block.content[start:end]
            yield Passage(*span, (text,), renderer(span, source, around, words, tail, row, pipe, references))


def raw_passages(original: str, start: int, end: int) -> Iterator[Passage]:
    """Yield the passage of a text that is not Markdown; it stays if its translation has other special characters."""
    start, end = trim(original, start, end)
    text = original[start:end]
    if has_letter(text):
        span = Span(start, end)
        yield Passage(*span, (text,), lambda new: [span if NO_TEXT & set(new[0]) - set(text) else new[0]])


def flows(content: str, tokens: Sequence[Token], lines: bool) -> Iterator[list[tuple[Fragment, int, int]]]:
    """Yield, for each part of a block between hard line breaks, its words and inlines with their spans in `content`.

    lines: whether each line is a part, such as a term that is defined.
    """
    flow: list[tuple[Fragment, int, int]] = []
    at = 0
    closing = untranslated_elements(tokens)
    for index, token in enumerate(tokens):
        if token.type == "text" or "span" not in token.meta or token.meta["span"][1] <= at:
            continue
        start, end = markup_span(token)
        if at < start:
            flow.append((content[at:start], at, start))
        if token.type == "hardbreak" or (lines and token.type == "softbreak"):
            yield flow
            flow = []
        elif index in closing:
            end = tokens[closing[index]].meta["span"][1]
            flow.append((Inline("", content[start:end].replace("\n", " ")), start, end))
        elif token.type == "image" and all(child.type in ("text", "softbreak") for child in token.children or []):
            label = token.meta["label"]
            flow.append((Inline("<img>", "![", "img"), start, start + 2))
            flow.append((content[start + 2 : label], start + 2, label))
            flow.append((Inline("</img>", link_end(content, start + 2, label, end), "", "img"), label, end))
        else:
            flow.append((fragment_of(content, token, start, end), start, end))
        at = end
    if at < len(content):
        flow.append((content[at:], at, len(content)))
    yield flow


def untranslated_elements(tokens: Sequence[Token]) -> dict[int, int]:
    """Return, by its index, the index of the end tag for each HTML tag that begins what is not translated: <kbd>.

    Which elements these are is decided as in pages; those inside another one are left out, as are those without an end.
    """
    closing: dict[int, int] = {}
    first, outer, depth = 0, "", 0
    for index, token in enumerate(tokens):
        tag = TAG.match(token.content) if token.type == "html_inline" else None
        name = tag["name"].lower() if tag else ""
        if not tag or (depth and name != outer):
            continue
        if depth:
            depth += -1 if tag["closing"] else 1
            if not depth:
                closing[first] = index
        elif not (tag["closing"] or name in VOID):
            attributes = list(ATTRIBUTES.finditer(token.content, *tag.span("attributes")))
            if not is_translated(name, attributes, inherited=True):
                first, outer, depth = index, name, 1
    return closing


def markup_span(token: Token) -> tuple[int, int]:
    """Return the span of a token's own markup, without what it opens or closes; offsets in the block's content."""
    start, end = token.meta["span"]
    match token.type:
        case "strong_open":  # only its second asterisk is in the token
            return start - 1, end
        case "strong_close":
            return start, end + 1
        case "link_open" if token.markup != "autolink":
            return start, start + 1
        case "link_close" if token.markup != "autolink":
            return token.meta["label"], end
    return start, end


def fragment_of(content: str, token: Token, start: int, end: int) -> Fragment:
    """Return a token, which is content[start:end], as text, or as the inline that stands for its markup."""
    source = content[start:end].replace("\n", " ")
    shown = SPACE.sub(" ", source)
    kind, _, side = token.type.rpartition("_")
    if token.type == "softbreak":
        return "\n"
    if token.type == "text_special":
        return token.content
    if token.markup == "autolink" or token.type == "brackets":
        return Inline("", source)
    if kind == "pair":
        name = token.markup
        return Inline(f"<{name}>", source, opens=name) if side == "open" else Inline(f"</{name}>", source, closes=name)
    if kind in EMPHASIS:
        name = EMPHASIS[kind]
        return Inline(f"<{name}>", source, opens=name) if side == "open" else Inline(f"</{name}>", source, closes=name)
    if kind == "link":
        if side == "open":
            return Inline("<a>", source, opens="a")
        return Inline("</a>", link_end(content, token.meta["span"][0] + 1, start, end), closes="a")
    element = ELEMENT.match(source) if token.type == "html_inline" else None
    name = element[2].lower() if element else ""
    if not element or name in SINGLE:
        return Inline(shown, source)
    return Inline(shown, source, closes=name) if element[1] else Inline(shown, source, opens=name)


def link_end(content: str, start: int, label: int, end: int) -> str:
    """Return the end of a link, content[label:end], on one line; without a label, that is content[start:label]."""
    source = content[label:end]
    return (f"][{content[start:label]}]" if source in ("]", "][]") else source).replace("\n", " ")


def renderer(
    span: Span,
    source: str,
    around: tuple[str, str],
    words: Sequence[Fragment],
    tail: str,
    row: bool,
    pipe: str,
    references: References,
) -> Callable[[Sequence[str]], Content]:
    """Return a function that writes a translation as Markdown.

    span: the text in the original; source: the same without marks of quotations; around: the source before and after it
    on its lines; words: its fragments; tail: the end of the link they are in; row: whether it is a cell of a table;
    pipe: how a pipe is written in words; references: the targets of links. If the translation between `around` would be
    parsed as other words or other markup, the function leaves the original.
    """
    inlines = [word for word in words if isinstance(word, Inline)]

    def render(translations: Sequence[str]) -> Content:
        fragments, is_complete = split_translation(translations[0], inlines)
        spoken = SPACE.sub(" ", "".join(word for word in fragments if isinstance(word, str))).strip()
        blocks, before = parse_block(source.join(around), references)
        in_front = around[0] if isinstance(next(filter(None, fragments), ""), str) else "markup"
        for spell in (as_written, as_html):
            parts = [escape_words(word, pipe) if isinstance(word, str) else spell(word) for word in fragments]
            new = escape_beginning("".join([*parts, tail]), in_front)
            after = parse_block(new.join(around), references)
            if (
                is_complete
                and (after[0] == blocks or (after[0] == PARAGRAPH and blocks[0] != "markup"))
                and markup(after[1]) == markup(before)
                and spoken in plain_words(after[1])
            ):
                # In a row, pipes are escaped in code, too; those of words are already.
                cell = [
                    part if isinstance(word, str) else part.replace("|", "\\|")
                    for part, word in zip(parts, fragments, strict=True)
                ]
                return [escape_beginning("".join([*cell, tail]), in_front) if row else new]
        return [span]

    return render


def escape_words(words: str, pipe: str) -> str:
    """Return words as Markdown, a backslash in front of what would be markup, and `pipe` for a pipe."""
    escaped = SPECIAL.sub(lambda match: pipe if match[0] == "|" else f"\\{match[0]}", words)
    return FORMULA.sub(lambda match: match[0].replace("$", r"\$"), escaped)


def escape_beginning(words: str, before: str) -> str:
    """Return words with a backslash in front of what would be markup at the beginning of a line.

    before: what stands before them on the line; unless it is blank, they are returned as they are.
    """
    return words if before.strip() else BEGINNING.sub(r"\g<0>\\", words)


def parse_block(content: str, references: References) -> tuple[list[str], list[Token]]:
    """Return the kinds of blocks in a block's content, and their inline tokens; references: those of the page."""
    tokens = parser().parse(content, {"references": ChainMap({}, references)})
    return [token.type for token in tokens], [child for token in tokens for child in token.children or []]


def as_written(inline: Inline) -> str:
    """Return the source of an inline."""
    return str(inline.original)


def as_html(inline: Inline) -> str:
    """Return emphasis as an HTML tag, which also works between letters and punctuation; other inlines as written."""
    if inline.original in ("*", "_", "**", "__", "~~"):
        return f"<{inline.opens}>" if inline.opens else f"</{inline.closes}>"
    return str(inline.original)


def markup(tokens: Sequence[Token]) -> list[str]:
    """Return all markup among inline tokens, sorted, to compare texts; emphasis is the same by asterisks and HTML."""
    elements = []
    for token in tokens:
        kind, _, side = token.type.rpartition("_")
        if kind in EMPHASIS:
            elements.append(f"<{'/' if side == 'close' else ''}{EMPHASIS[kind]}>")
        elif token.type in ("html_inline", "brackets") or kind == "pair":
            elements.append(SPACE.sub(" ", token.content))
        elif token.type == "code_inline":
            elements.append(f"<code>{token.content}")
        elif kind == "link" or token.type == "image":
            attributes = sorted((name, value) for name, value in token.attrs.items() if name != "alt")
            elements.append(f"<{token.type} {attributes}>")
    return sorted(elements)


def plain_words(tokens: Sequence[Token]) -> str:
    """Return the words of the tokens, without code, addresses and elements that are not translated."""
    words: list[str] = []
    before = None
    closing = untranslated_elements(tokens)
    end = -1  # the last token of such an element
    for index, token in enumerate(tokens):
        end = closing.get(index, end)
        if index <= end:
            before = token
        elif token.type == "softbreak":
            words.append(" ")
        elif token.type == "image":
            words.append(plain_words(token.children or []))
        elif token.type in ("text", "text_special") and not (
            before and before.markup == "autolink" and before.nesting > 0
        ):
            words.append(token.content)
        before = token
    return SPACE.sub(" ", "".join(words))
