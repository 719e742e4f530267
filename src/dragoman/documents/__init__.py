"""Translate whole documents: pages, Markdown, word processors' files, subtitles, strings of programs, tables."""

from collections.abc import Callable, Iterable, Sequence

from dragoman.data.spec import NOT_TEXT
from dragoman.documents.android import parse_android
from dragoman.documents.apple import parse_plist, parse_strings
from dragoman.documents.csv import parse_csv
from dragoman.documents.document import Document, DocumentConfig, Label, Passage, Skipped
from dragoman.documents.encoding import Encoding
from dragoman.documents.epub import parse_epub
from dragoman.documents.fluent import parse_fluent
from dragoman.documents.html import html_passages, parse_html
from dragoman.documents.inline import Tags
from dragoman.documents.json import parse_arb, parse_json
from dragoman.documents.markdown import parse_markdown
from dragoman.documents.office import parse_docx, parse_odt
from dragoman.documents.plain import parse_plain, plain_passages
from dragoman.documents.po import parse_po
from dragoman.documents.properties import parse_properties
from dragoman.documents.qt import parse_ts
from dragoman.documents.resx import parse_resx
from dragoman.documents.subtitles import parse_ass, parse_srt, parse_vtt
from dragoman.documents.xcstrings import parse_xcstrings
from dragoman.documents.xliff import parse_xliff
from dragoman.documents.yaml import parse_yaml
from dragoman.errors import UsageError

__all__ = ["FORMS", "PARSERS", "SUFFIXES", "Document", "Parse", "Skipped", "Tags", "read_document", "read_text"]

PARSERS: dict[str, Callable[[bytes], Document]] = {
    ".txt": parse_plain, ".html": parse_html, ".htm": parse_html, ".srt": parse_srt, ".vtt": parse_vtt,
    ".ass": parse_ass, ".ssa": parse_ass, ".docx": parse_docx, ".odt": parse_odt, ".epub": parse_epub,
}  # fmt: skip
# Those with keys that choose what is translated.
KEYED: dict[str, Callable[[bytes, DocumentConfig], Document]] = {
    ".md": parse_markdown, ".mdx": parse_markdown, ".markdown": parse_markdown, ".json": parse_json, ".arb": parse_arb,
    ".csv": parse_csv, ".xml": parse_android, ".properties": parse_properties, ".strings": parse_strings,
    ".stringsdict": parse_plist, ".resx": parse_resx, ".resw": parse_resx, ".xcstrings": parse_xcstrings,
    ".yml": parse_yaml, ".yaml": parse_yaml,
}  # fmt: skip
CONFIGURED: dict[str, Callable[[bytes, DocumentConfig], Document]] = KEYED | {
    ".po": parse_po, ".pot": parse_po, ".xlf": parse_xliff, ".xliff": parse_xliff, ".ts": parse_ts,
    ".ftl": parse_fluent,
}  # fmt: skip
SUFFIXES = (*PARSERS, *CONFIGURED)


Parse = Callable[[str], Iterable[Passage | Label]]
FORMS: dict[str, Parse] = {"text": plain_passages, "html": html_passages}


def read_text(text: str, parse: Parse) -> Document:
    """Return the document that a string holds, in a form such as those of FORMS: a whole page or a part of one."""
    return Document(text, Encoding(), parse(text), decoded=True)


def read_document(
    data: bytes, suffix: str, keys: Sequence[str] = (), *, source: str = "", target: str = "", all: bool = False
) -> Document:
    """Return the document in these bytes, whatever they are. The suffix, such as '.html', decides the format.

    `keys` are those whose values are translated, without them all, or columns of CSV, see `parse_csv`. source, target:
    the codes of the languages, such as 'en' and 'pt-BR'; messages get the plural forms of the target. all: whether
    messages that have a translation get a new one. Raise UsageError for an unknown suffix, for keys in a format
    without, for columns that CSV lacks, where JSON has none of the keys, and for what is no bytes, such as a string.
    """
    if not isinstance(data, bytes):
        raise UsageError(f"read_document takes bytes, such as Path(name).read_bytes(), not {type(data).__name__}")
    suffix = suffix.lower()
    if suffix not in SUFFIXES:
        advice = NOT_TEXT.get(suffix, f"expected one of {', '.join(SUFFIXES)}")
        raise UsageError(f"unknown document suffix '{suffix}': {advice}")
    if keys and suffix not in KEYED:
        raise UsageError(f"keys are for {', '.join(KEYED)} only, not for {suffix}")
    if suffix in CONFIGURED:
        return CONFIGURED[suffix](data, DocumentConfig(tuple(keys), source, target, all))
    return PARSERS[suffix](data)
