"""Whole documents: plain text, Markdown, web pages, subtitles, catalogues of gettext, JSON.

Only their texts change; everything else comes back byte for byte.
"""

from collections.abc import Callable, Sequence

from dragoman.documents.catalogue import po
from dragoman.documents.document import Document, Fault
from dragoman.documents.html import html
from dragoman.documents.markdown import markdown
from dragoman.documents.plain import plain
from dragoman.documents.subtitles import srt, vtt
from dragoman.documents.values import json_values
from dragoman.errors import UsageError

__all__ = ["SUFFIXES", "Document", "Fault", "read_document"]

READERS: dict[str, Callable[[bytes], Document]] = {
    ".txt": plain, ".md": markdown, ".html": html, ".htm": html, ".srt": srt, ".vtt": vtt, ".po": po,
}  # fmt: skip
SUFFIXES = (*READERS, ".json")


def read_document(data: bytes, suffix: str, keys: Sequence[str] = ()) -> Document:
    """The document in these bytes, whatever they are. Its format is told by the suffix, such as '.html'.

    `keys`, for JSON alone, are those whose values are translated; without them, all values that are strings. Raises
    UsageError for another suffix, and for keys where there are none.
    """
    suffix = suffix.lower()
    if suffix == ".json":
        return json_values(data, keys)
    if suffix not in READERS:
        raise UsageError(f"no documents end in '{suffix}': expected one of {', '.join(SUFFIXES)}")
    if keys:
        raise UsageError(f"keys are for .json alone, and this is a document in {suffix}")
    return READERS[suffix](data)
