"""Parse e-books: the texts of their chapters, which are web pages, of their contents, and their title."""

import posixpath
from collections.abc import Iterator
from functools import partial
from urllib.parse import unquote

from dragoman.config.languages import base_language
from dragoman.documents.archive import Members, Parse, parse_archive
from dragoman.documents.document import Document, Label, Passage
from dragoman.documents.elements import ATTRIBUTE, MARKUP, Element, parse_tree
from dragoman.documents.html import html_passages
from dragoman.documents.office import OTHER_PARTS, paragraph_passages

NCX = "application/x-dtbncx+xml"  # contents of e-books before EPUB 3
ENCRYPTION = "META-INF/encryption.xml"  # names the members that are encrypted, if only fonts


def parse_epub(data: bytes) -> Document:
    """Return the document of an e-book."""
    return parse_archive(data, "EPUB", epub_parts, OTHER_PARTS)


def epub_parts(members: Members) -> Iterator[tuple[str, Parse]]:
    """Yield the package document, which says what else is in the book, its contents and its chapters in their order."""
    container = parse_tree(members.read("META-INF/container.xml").decode("utf-8-sig"))
    package = next((each.attributes.get("full-path", "") for each in elements(container, "rootfile")), "")
    root = parse_tree(members.read(package).decode("utf-8-sig"))
    items = {item.attributes.get("id"): item.attributes for item in elements(root, "item")}
    chapters = [items.get(each.attributes.get("idref"), {}) for each in elements(root, "itemref")]
    contents = [item for item in items.values() if "nav" in item.get("properties", "").split()]
    encrypted = members.read(ENCRYPTION).decode("utf-8", "replace") if ENCRYPTION in members else ""
    yield package, package_passages
    for item in [*(item for item in items.values() if item.get("media-type") == NCX), *contents, *chapters]:
        name = posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(item.get("href", ""))))
        if name in members and name in unquote(encrypted):
            yield name, refuse
        elif name in members:
            yield name, paragraph_passages if item.get("media-type") == NCX else partial(html_passages, xhtml=True)


def refuse(original: str) -> Iterator[Passage]:
    """Raise ValueError: what is encrypted has no texts."""
    raise ValueError("encrypted")


def elements(root: Element, name: str) -> Iterator[Element]:
    """Yield the elements with a name, in no deeper than MAX_DEPTH."""
    todo = [root]
    while todo:
        element = todo.pop()
        if element.name == name:
            yield element
        todo += reversed(element.children)


def package_passages(original: str) -> Iterator[Passage | Label]:
    """Yield the title and description of a book, and labels for its languages."""
    yield from paragraph_passages(original)
    for element in elements(parse_tree(original), "language"):
        language = base_language(original[element.inner : element.inner_end].strip())
        if language:
            yield Label(element.inner, element.inner_end, partial(new_language, language))
    for tag in MARKUP.finditer(original):
        for attribute in ATTRIBUTE.finditer(original, *tag.span("attributes")) if tag["name"] else ():
            if attribute[1] == "xml:lang":
                language = base_language(attribute[2][1:-1])
                yield Label(attribute.start(2) + 1, attribute.end(2) - 1, partial(new_language, language))


def new_language(language: str, source: str, target: str) -> str | None:
    """Return what becomes of the language that a book names: another one if it is that of the texts."""
    return target if not source or base_language(source) == language else None
