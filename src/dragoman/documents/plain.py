"""Plain text: each line is a text."""

import re
from collections.abc import Sequence

from dragoman.documents.document import Document, Found, Parts, Slot, has_letter
from dragoman.documents.encoding import decoded

LINE = re.compile(r"[^\n]+")


def plain(data: bytes) -> Document:
    original, encoding = decoded(data)
    slots = []
    for line in LINE.finditer(original):
        text = line[0].strip()
        if has_letter(text):
            start = line.start() + len(line[0]) - len(line[0].lstrip())
            slots.append(Slot(start, start + len(text), (text,), as_they_are))
    return Document(original, encoding, Found(slots))


def as_they_are(translations: Sequence[str]) -> Parts:
    return translations
