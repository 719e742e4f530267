"""Parse plain text: each line is a text."""

import re
from collections.abc import Iterator, Sequence

from dragoman.data.unspaced import drop_needless_line_ends
from dragoman.documents.document import Content, Document, Passage, has_letter
from dragoman.documents.encoding import decode

LINE = re.compile(r"[^\r\n]+")
PARAGRAPH = re.compile(r"[^\n]+(?:\n[^\n]*\S[^\n]*)*")


def parse_plain(data: bytes) -> Document:
    """Return the document whose texts are the lines that have a letter, without the space around them."""
    original, encoding = decode(data)
    return Document(original, encoding, plain_passages(original))


def plain_passages(original: str) -> Iterator[Passage]:
    """Yield a passage for each line that has a letter."""
    for line in LINE.finditer(original):
        text = line[0].strip()
        if has_letter(text):
            start = line.start() + len(line[0]) - len(line[0].lstrip())
            yield Passage(start, start + len(text), (text,), render)


def paragraph_passages(original: str) -> Iterator[Passage]:
    """Yield a passage for each paragraph, whose lines become one: blank lines are between paragraphs."""
    for paragraph in PARAGRAPH.finditer(original):
        text = " ".join(drop_needless_line_ends(paragraph[0]).split())
        if has_letter(text):
            start = paragraph.start() + len(paragraph[0]) - len(paragraph[0].lstrip())
            yield Passage(start, start + len(paragraph[0].strip()), (text,), render)


def render(translations: Sequence[str]) -> Content:
    """Return the translation of a line as it is."""
    return translations
