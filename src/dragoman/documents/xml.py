"""Parse XML of any kind, whole or a part: a text for the content of each element, with the tags inside sentences in it.

What is not well-formed is text. Names are case-sensitive, and no element has a meaning of its own.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from dragoman.documents.document import Passage
from dragoman.documents.encoding import resolve_references
from dragoman.documents.html import Token, block_passages, split_flow
from dragoman.documents.inline import Tags
from dragoman.text.verbatim.kinds import PATTERNS

QUOTED = r""""[^"]*"|'[^']*'"""
DECLARATION = rf"""<!(?:[^<>"']|{QUOTED})*+>"""
SUBSET = rf"""\[(?:[^<\]]|<!--(?:(?!-->).)*+-->|<\?(?:(?!\?>).)*+\?>|{DECLARATION})*+\]"""  # of a DOCTYPE
MARKUP = re.compile(
    rf"""<!--.*?(?:-->|\Z) | <!\[CDATA\[.*?(?:\]\]>|\Z) | <\?.*?(?:\?>|\Z) | {DECLARATION}
    | <!DOCTYPE(?:[^<>"'\[]|{QUOTED})*+{SUBSET}\s*>
    | <(?P<closing>/?)(?P<name>[^\W\d][\w.:-]*)(?:\s(?:[^<>"'/]|/(?!>)|{QUOTED})*+)?(?P<empty>/?)>
    | (?P<reference>&[^\W\d][\w.:-]{{0,60}};) | {PATTERNS["template"]}""",
    re.VERBOSE | re.DOTALL,
)


@dataclass
class Element:
    """An open element: whether its text is translated, whether it has text of its own, and what stands in it."""

    name: str = ""
    translated: bool = True
    has_text: bool = False
    children: set[str] = field(default_factory=set)


def xml_passages(original: str, tags: Tags = Tags(), lines: bool = False) -> Iterator[Passage]:
    """Yield a passage for each text between the tags that end sentences; lines: line breaks end them, too."""
    path, opened = [Element()], Counter[str]()
    names: set[str] = set()
    inside: set[str] = set()  # names of elements that stand inside sentences
    flow: list[tuple[Token, bool]] = []

    def close() -> None:
        element = path.pop()
        opened[element.name] -= 1
        if element.has_text:
            inside.update(element.children)

    for token in tokens(original):
        parent = path[-1]
        translated = parent.translated and token.name != "!"
        if token.closing:
            while opened[token.name]:
                element = path[-1].name
                close()
                if element == token.name:
                    break
        elif token.name not in ("", "!"):
            translated = translated and token.name not in tags.ignored
            names.add(token.name)
            parent.children.add(token.name)
            if not token.empty:
                path.append(Element(token.name, translated))
                opened[token.name] += 1
        elif not token.name and not original[token.start : token.end].isspace():
            parent.has_text = True
        flow.append((token, translated))
    while path:
        close()
    splitting = (names - inside if tags.outline else set()) - tags.non_splitting | tags.splitting
    for block in split_flow(original, flow, splitting, lines):
        yield from block_passages(original, block)


def tokens(original: str) -> Iterator[Token]:
    """Yield the tokens of XML, in order and without gaps. References that only a DTD explains count as comments."""
    start = 0
    for match in MARKUP.finditer(original):
        reference = match["reference"]
        if reference and resolve_references(reference) != reference:
            continue
        if start < match.start():
            yield Token(start, match.start())
        start = match.end()
        yield Token(*match.span(), match["name"] or "!", bool(match["closing"]), empty=bool(match["empty"]))
    if start < len(original):
        yield Token(start, len(original))
