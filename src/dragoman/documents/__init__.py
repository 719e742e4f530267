"""Translate whole documents: plain text, Markdown, web pages, subtitles, PO catalogues, JSON."""

from collections.abc import Callable, Sequence

from dragoman.documents.document import Document, Skipped
from dragoman.documents.html import parse_html
from dragoman.documents.json import parse_json
from dragoman.documents.markdown import parse_markdown
from dragoman.documents.plain import parse_plain
from dragoman.documents.po import parse_po
from dragoman.documents.subtitles import parse_srt, parse_vtt
from dragoman.errors import UsageError

__all__ = ["SUFFIXES", "Document", "Skipped", "read_document"]

PARSERS: dict[str, Callable[[bytes], Document]] = {
    ".txt": parse_plain, ".md": parse_markdown, ".html": parse_html, ".htm": parse_html, ".srt": parse_srt,
    ".vtt": parse_vtt, ".po": parse_po,
}  # fmt: skip
SUFFIXES = (*PARSERS, ".json")


def read_document(data: bytes, suffix: str, keys: Sequence[str] = ()) -> Document:
    """Return the document in these bytes, whatever they are. The suffix, such as '.html', decides the format.

    `keys`, for JSON alone, are those whose values are translated; without them, all strings are. Raise UsageError for
    an unknown suffix, and for keys in another format.
    """
    suffix = suffix.lower()
    if suffix == ".json":
        return parse_json(data, keys)
    if suffix not in PARSERS:
        raise UsageError(f"unknown document suffix '{suffix}': expected one of {', '.join(SUFFIXES)}")
    if keys:
        raise UsageError(f"keys are for .json documents only, not for {suffix}")
    return PARSERS[suffix](data)
