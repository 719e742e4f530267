"""Read the elements of an XML file with their places in it, so that the rest of the file stays as it is.

defusedxml checks that a file is plain XML, without entities; after that, a pattern finds every tag at its place.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import ParseError

from dragoman.data.xml import NOT_XML, check_xml
from dragoman.documents.document import Skipped
from dragoman.documents.encoding import Encoding, decode, resolve_references
from dragoman.documents.messages import Entry

QUOTED = r""""[^"]*"|'[^']*'"""
MARKUP = re.compile(
    rf"""<!--.*?--> | <!\[CDATA\[.*?\]\]> | <\?.*?\?> | <!DOCTYPE(?:[^>"']|{QUOTED})*+>
    | <(?P<closes>/?)(?P<name>[^\s/>]+)(?P<attributes>(?:[^>"'/]|{QUOTED})*+)(?P<empty>/?)>""",
    re.VERBOSE | re.DOTALL,
)
CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
ATTRIBUTE = re.compile(rf"(?<=\s)([^\s=]++)\s*=\s*({QUOTED})")
ENCODING = re.compile(rb"""<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([\w.:-]{1,40})""")


@dataclass
class Element:
    """An element, or with the name '' a comment or the like: where it begins and ends, and what is between its tags."""

    name: str  # without prefix
    start: int
    inner: int
    inner_end: int
    end: int
    attributes: dict[str, str] = field(default_factory=dict)
    children: list["Element"] = field(default_factory=list)

    def named(self, *names: str) -> "Iterator[Element]":
        """Yield the children with one of these names."""
        return (child for child in self.children if child.name in names)

    def child(self, *names: str) -> "Element | None":
        """Return the first child of the first of these names that there is; None without any."""
        return next((child for name in names for child in self.children if child.name == name), None)


def decode_xml(data: bytes) -> tuple[str, Encoding]:
    """Return the text of XML and the encoding that it declares, in which other characters become references."""
    declared = ENCODING.match(data)
    return decode(data, declared[1].decode() if declared else "", "xmlcharrefreplace")


def read_tree(original: str, root: str, form: str) -> Element | Skipped:
    """Return the root element, or with its line why this is not plain XML with a root of that name.

    form: what the file is, for the reason.
    """
    try:
        element = parse_tree(original)
    except DefusedXmlException:
        return Skipped(0, f"declares XML entities, which {form} does not need")
    except ParseError as error:
        return Skipped(error.position[0] if original.strip() else 0, f"not {form} ({error})")
    except ValueError as error:
        return Skipped(0, f"not {form} ({error})")
    if element.name != root:
        return Skipped(0, f"not {form} (its root is '{element.name}')")
    return element


def parse_tree(original: str) -> Element:
    """Return the root element. Raise ParseError, DefusedXmlException or ValueError for what is not plain XML."""
    check_xml(original)
    path = [Element("", 0, 0, len(original), len(original))]
    for tag in MARKUP.finditer(original):
        if tag["closes"]:
            closed = path.pop()
            closed.inner_end, closed.end = tag.span()
            continue
        name = (tag["name"] or "").rpartition(":")[2]
        attributes = {name: value[1:-1] for name, value in ATTRIBUTE.findall(tag["attributes"] or "")}
        element = Element(name, tag.start(), tag.end(), tag.end(), tag.end(), attributes)
        path[-1].children.append(element)
        if name and not tag["empty"]:
            path.append(element)
    return next(element for element in path[0].children if element.name)


def plain_text(original: str, element: Element) -> str | None:
    """Return the text of an element without comments; None where other elements are in it."""
    if any(child.name for child in element.children):
        return None
    pieces = []
    at = element.inner
    for child in element.children:
        pieces.append(resolve_references(original[at : child.start]))
        if section := CDATA.fullmatch(original, child.start, child.end):
            pieces.append(section[1])
        at = child.end
    return "".join([*pieces, resolve_references(original[at : element.inner_end])])


def write_text(text: str) -> str:
    """Return a text as it stands in an element."""
    return escape(NOT_XML.sub("\ufffd", text), quote=False)


def text_entry(original: str, key: str, element: Element) -> Entry | None:
    """Return the entry of an element with text and no elements in it, None for others.

    A single CDATA section stays one.
    """
    text = plain_text(original, element)
    if text is None or element.inner == element.end:
        return None
    start, end = element.inner, element.inner_end
    section = sole_section(original, element)
    return Entry(key, section or text, start, end, write_text if section is None else write_cdata)


def sole_section(original: str, element: Element) -> str | None:
    """Return what the CDATA section says that is all that is in an element but white space; None for others."""
    if len(element.children) != 1:
        return None
    start, end = element.children[0].start, element.children[0].end
    section = CDATA.fullmatch(original, start, end)
    around = original[element.inner : start] + original[end : element.inner_end]
    return section[1] if section and not around.strip() else None


def write_cdata(text: str) -> str:
    """Return a text as a CDATA section."""
    return f"<![CDATA[{NOT_XML.sub(chr(0xFFFD), text).replace(']]>', ']]]]><![CDATA[>')}]]>"


def prefixed(name: str, original: str, source: Element) -> str:
    """Return the name of an element with the prefix that the source has."""
    tag = original[source.start + 1 : source.inner].split(maxsplit=1)[0].rstrip("/>")
    return tag[: len(tag) - len(source.name)] + name


def with_attributes(tag: str, attributes: dict[str, str]) -> str:
    """Return a tag that opens an element with these values of attributes; others stay."""
    for name, value in attributes.items():
        present = next((match for match in ATTRIBUTE.finditer(tag) if match[1] == name), None)
        head, tail = (tag[: present.start()], tag[present.end() :]) if present else (f"{tag[:-1]} ", ">")
        tag = f'{head}{name}="{value}"{tail}'
    return tag
