"""Markdown: a text for each heading, paragraph, list item and table cell.

markdown-it says what is what, and its rules are made to note where in the source it stands. In a text, emphasis, links
and images are tags, since translators keep tags; code, HTML and addresses stand as they are.
"""

import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from markdown_it import MarkdownIt, rules_inline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from dragoman.documents.document import Document, Fault, Found, Kept, Parts, Slot, has_letter, line_of
from dragoman.documents.encoding import decoded
from dragoman.documents.pieces import Piece, Words, core, distinct, speaks, split, text_of

Rule = Callable[[StateInline, bool], bool]
References = dict[str, dict[str, Any]]  # targets of links by label, as markdown-it keeps them
RULES: dict[str, Rule] = {
    "newline": rules_inline.newline,
    "escape": rules_inline.escape,
    "backticks": rules_inline.backtick,
    "strikethrough": rules_inline.strikethrough.tokenize,
    "emphasis": rules_inline.emphasis.tokenize,
    "link": rules_inline.link,
    "image": rules_inline.image,
    "autolink": rules_inline.autolink,
    "html_inline": rules_inline.html_inline,
    "entity": rules_inline.entity,
}
FRONT = re.compile(r"(---|\+\+\+)[ \t]*\r?\n")
LINE = re.compile(r"([^\r\n]*)(?:\r\n?|\n|\Z)")
PIPE = re.compile(r"(?<!\\)\|")
# Footnotes, boxes of task lists and kinds of alerts: they are not CommonMark, but no words either.
BRACKETS = re.compile(r"\[(?:\^[^\]\[\s]+\]:?|[ xX]\](?=\s)|![A-Z]+\])")
SPACE = re.compile(r"[ \t\n]+")
EMPHASIS = {"strong": "strong", "em": "em", "s": "s"}
PARAGRAPH = ["paragraph_open", "inline", "paragraph_close"]
ELEMENT = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*)")
SINGLE = {"br", "hr", "img", "input", "wbr"}
# What would be markup inside a line, and what would be so at its beginning.
SPECIAL = re.compile(r"[\\`*\[\]<|]|(?<![^\W_])_|_(?![^\W_])|~(?=~)|&(?=#?\w+;)|!(?=\[)")
BEGINNING = re.compile(r"\A(?=[-+>=~#:])|\A\d{1,9}(?=[.)](?:\s|\Z))")


def markdown(data: bytes) -> Document:
    original, encoding = decoded(data)
    return Document(original, encoding, found(original))


def found(original: str) -> Found:
    result = Found()
    lost: list[int] = []
    front = body(original)
    lines = [(match.start(1), match[1]) for match in LINE.finditer(original, front)]
    environment: dict[str, References] = {"references": {}}
    for block, row in blocks(parser().parse(original[front:], environment)):
        first, stop = block[0].map or (0, 0)
        contents = [token.content for token in block]
        places = in_row(contents, *lines[first]) if row else [in_lines(contents[0], lines[first:stop])]
        for token, place in zip(block, places, strict=True):
            if place:
                result.slots.extend(slots(original, token, place, row, environment["references"]))
            elif has_letter(token.content):
                lost.append(lines[first][0])
    if lost:
        text = f"{len(lost):,} block(s) from here on could not be found again in the source: left as they are"
        result.faults.append(Fault(line_of(original, lost[0]), text))
    return result


def body(original: str) -> int:
    """Where it begins: after the front matter."""
    front = FRONT.match(original)
    if not front:
        return 0
    end = re.compile(rf"^{re.escape(front[1])}[ \t]*\r?$", re.MULTILINE).search(original, front.end())
    return end.end() if end else 0


@cache
def parser() -> MarkdownIt:
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    for name, rule in RULES.items():
        markdown.inline.ruler.at(name, noting(rule))
    markdown.inline.ruler.before("link", "brackets", noting(brackets))
    return markdown


def brackets(state: StateInline, silent: bool) -> bool:
    match = BRACKETS.match(state.src, state.pos, state.posMax)
    if match:
        if not silent:
            state.push("brackets", "", 0).content = match[0]
        state.pos = match.end()
    return bool(match)


def noting(rule: Rule) -> Rule:
    """The rule, with the span of what it reads noted in its tokens, and where the label of a link ends."""

    def noted(state: StateInline, silent: bool) -> bool:
        start, count = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        if not silent:
            end = state.pos
            for token in reversed(state.tokens[count:]):
                if token.type != "text":
                    token.meta.setdefault("span", (start, state.pos))
                elif end > start:  # each delimiter has a token, which later may become that of emphasis
                    end -= len(token.content)
                    token.meta.setdefault("span", (end, end + len(token.content)))
            if rule in (rules_inline.link, rules_inline.image):
                image = rule is rules_inline.image
                state.tokens[-1].meta["label"] = state.md.helpers.parseLinkLabel(state, start + image, not image)
        return True

    return noted


def blocks(tokens: Sequence[Token]) -> Iterator[tuple[list[Token], bool]]:
    """The inline tokens, and those of each row of a table together; True: a row."""
    row: list[Token] | None = None
    for token in tokens:
        if token.type == "tr_open":
            row = []
        elif token.type == "tr_close":
            if row:
                yield row, True
            row = None
        elif token.type == "inline":
            if row is None:
                yield [token], False
            else:
                row.append(token)


def in_lines(content: str, lines: Sequence[tuple[int, str]]) -> list[int] | None:
    """Where each character of a block's content stands, given the lines and where they begin; None: not found."""
    places: list[int] = []
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
        places.extend(range(at, at + len(text) + 1))
    return places


def in_row(contents: Sequence[str], start: int, line: str) -> list[list[int] | None]:
    """The same for the cells of a row of a table."""
    bounds = [-1, *(pipe.start() for pipe in PIPE.finditer(line)), len(line)]
    spans = [(left + 1, right) for left, right in pairwise(bounds)]
    for first in (0, 1):  # a pipe at the beginning is optional, and after marks of quotations and lists
        cells = spans[first : first + len(contents)]
        texts = [line[left:right].replace("\\|", "|").strip() for left, right in cells]
        texts += [""] * (len(contents) - len(texts))
        known = [content.strip() for content in contents]
        if texts[1:] == known[1:] and (texts[0].endswith(known[0]) if not first else texts[0] == known[0]):
            found: list[list[int] | None] = [
                in_cell(content, start + left, line[left:right])
                for content, (left, right) in zip(known, cells, strict=False)
            ]
            return found + [None] * (len(contents) - len(found))
    return [None] * len(contents)


def in_cell(content: str, start: int, cell: str) -> list[int]:
    places = [start + match.start() for match in re.finditer(r"\\\||.", cell, re.DOTALL)]
    end = len(cell.replace("\\|", "|").rstrip())
    return places[end - len(content) : end]


def slots(original: str, block: Token, places: Sequence[int], row: bool, references: References) -> Iterator[Slot]:
    for flow in flows(block.content, block.children or []):
        first, stop = core([word for word, _, _ in flow])
        words = distinct([word for word, _, _ in flow[first:stop]])
        if speaks(words):
            start, end = flow[first][1], flow[stop - 1][2]
            source = block.content[start:end]
            end -= len(source) - len(source.rstrip())
            start += len(source) - len(source.lstrip())
            span = Kept(places[start], places[end - 1] + 1)
            if original[span.start - 1 : span.start + 1] == "\\|":
                span = Kept(span.start - 1, span.end)
            text = SPACE.sub(" ", text_of(words)).strip()
            first, stop = block.content.rfind("\n", 0, start) + 1, block.content.find("\n", end)
            around = block.content[first:start], block.content[end : stop if stop >= 0 else None]
            yield Slot(*span, (text,), writer(span, block.content[start:end], around, words, row, references))


def flows(content: str, tokens: Sequence[Token]) -> Iterator[list[tuple[Words, int, int]]]:
    """Words and pieces with their spans in the content of a block, up to each hard line break."""
    flow: list[tuple[Words, int, int]] = []
    at = 0
    for token in tokens:
        if token.type == "text" or "span" not in token.meta or token.meta["span"][1] <= at:
            continue
        start, end = extent(token)
        if at < start:
            flow.append((SPACE.sub(" ", content[at:start]), at, start))
        if token.type == "hardbreak":
            yield flow
            flow = []
        elif token.type == "image" and all(child.type == "text" for child in token.children or []):
            label = token.meta["label"]
            flow.append((Piece("<img>", "![", "img"), start, start + 2))
            flow.append((SPACE.sub(" ", content[start + 2 : label]), start + 2, label))
            flow.append((Piece("</img>", tail(content, start + 2, label, end), "", "img"), label, end))
        else:
            flow.append((word_of(content, token, start, end), start, end))
        at = end
    if at < len(content):
        flow.append((SPACE.sub(" ", content[at:]), at, len(content)))
    yield flow


def extent(token: Token) -> tuple[int, int]:
    """The span of a token alone, not of all that it begins or ends."""
    start, end = token.meta["span"]
    match token.type:
        case "strong_open":  # its second asterisk became the token
            return start - 1, end
        case "strong_close":
            return start, end + 1
        case "link_open" if token.markup != "autolink":
            return start, start + 1
        case "link_close" if token.markup != "autolink":
            return token.meta["label"], end
    return start, end


def word_of(content: str, token: Token, start: int, end: int) -> Words:
    source = content[start:end].replace("\n", " ")
    shown = SPACE.sub(" ", source)
    kind, _, side = token.type.rpartition("_")
    if token.type == "softbreak":
        return " "
    if token.type == "text_special":
        return token.content
    if token.markup == "autolink" or token.type == "brackets":
        return Piece("", source)
    if kind in EMPHASIS:
        name = EMPHASIS[kind]
        return Piece(f"<{name}>", source, opens=name) if side == "open" else Piece(f"</{name}>", source, closes=name)
    if kind == "link":
        if side == "open":
            return Piece("<a>", source, opens="a")
        return Piece("</a>", tail(content, token.meta["span"][0] + 1, start, end), closes="a")
    element = ELEMENT.match(source) if token.type == "html_inline" else None
    name = element[2].lower() if element else ""
    if not element or name in SINGLE:
        return Piece(shown, source)
    return Piece(shown, source, closes=name) if element[1] else Piece(shown, source, opens=name)


def tail(content: str, start: int, label: int, end: int) -> str:
    """What ends a link. One that is found by its label keeps it when the label is translated."""
    source = content[label:end]
    return (f"][{content[start:label]}]" if source in ("]", "][]") else source).replace("\n", " ")


def writer(
    span: Kept, source: str, around: tuple[str, str], words: Sequence[Words], row: bool, references: References
) -> Callable[[Sequence[str]], Parts]:
    """Writes a translation as Markdown.

    The text stays as it was where, between what is around it on its lines, it would not be read with the same markup,
    and the words as they are.
    """
    pieces = [word for word in words if isinstance(word, Piece)]

    def written(translations: Sequence[str]) -> Parts:
        back, whole = split(translations[0], pieces)
        said = SPACE.sub(" ", "".join(word for word in back if isinstance(word, str))).strip()
        blocks, before = reading(source.join(around), references)
        for spell in (as_it_was, as_html):
            parts = [SPECIAL.sub(r"\\\g<0>", word) if isinstance(word, str) else spell(word) for word in back]
            new = BEGINNING.sub(r"\g<0>\\", "".join(parts))
            after = reading(new.join(around), references)
            if (
                whole
                and after[0] in (blocks, PARAGRAPH)
                and markup(after[1]) == markup(before)
                and said in plain(after[1])
            ):
                # In a row, pipes are escaped in code too; those of words are by now.
                cell = [
                    part if isinstance(word, str) else part.replace("|", "\\|")
                    for part, word in zip(parts, back, strict=True)
                ]
                return [BEGINNING.sub(r"\g<0>\\", "".join(cell)) if row else new]
        return [span]

    return written


def reading(content: str, references: References) -> tuple[list[str], list[Token]]:
    """What the content of a block is read as: the kinds of blocks, and the inline tokens in them."""
    tokens = parser().parse(content, {"references": ChainMap({}, references)})
    return [token.type for token in tokens], [child for token in tokens for child in token.children or []]


def as_it_was(piece: Piece) -> str:
    return str(piece.original)


def as_html(piece: Piece) -> str:
    """Emphasis as HTML, for places where asterisks would not be read as emphasis: between letters and punctuation."""
    if piece.original in ("*", "_", "**", "__", "~~"):
        return f"<{piece.opens}>" if piece.opens else f"</{piece.closes}>"
    return str(piece.original)


def markup(tokens: Sequence[Token]) -> list[str]:
    """What there is besides words, in any order; the same for emphasis by asterisks and by HTML."""
    found = []
    for token in tokens:
        kind, _, side = token.type.rpartition("_")
        if kind in EMPHASIS:
            found.append(f"<{'/' if side == 'close' else ''}{EMPHASIS[kind]}>")
        elif token.type in ("html_inline", "brackets"):
            found.append(SPACE.sub(" ", token.content))
        elif token.type == "code_inline":
            found.append(f"<code>{token.content}")
        elif kind == "link" or token.type == "image":
            attributes = sorted((name, value) for name, value in token.attrs.items() if name != "alt")
            found.append(f"<{token.type} {attributes}>")
    return sorted(found)


def plain(tokens: Sequence[Token]) -> str:
    """The words alone, without code and addresses."""
    words: list[str] = []
    before = None
    for token in tokens:
        if token.type == "softbreak":
            words.append(" ")
        elif token.type == "image":
            words.append(plain(token.children or []))
        elif token.type in ("text", "text_special") and not (
            before and before.markup == "autolink" and before.nesting > 0
        ):
            words.append(token.content)
        before = token
    return SPACE.sub(" ", "".join(words))
