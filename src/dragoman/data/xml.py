"""Parse XML of strangers: no entities, nothing fetched, no endless nesting."""

from typing import Any

from defusedxml import DTDForbidden
from defusedxml.ElementTree import DefusedXMLParser

MAX_DEPTH = 100  # of elements, for parsers' targets to check; TMX needs seven


class XmlParser(DefusedXMLParser):
    """An XML parser that refuses entities and external files, but no plain DOCTYPE: many memories name tmx14.dtd.

    target: the object whose methods `start`, `data` and `end` it calls; encoding: of what it is fed, whatever that
    declares.
    """

    def __init__(self, target: Any, encoding: str | None = None):
        super().__init__(target=target, encoding=encoding, forbid_dtd=True)

    def defused_start_doctype_decl(self, name: str, sysid: str, pubid: str, has_internal_subset: bool) -> None:
        """Raise DTDForbidden for a DOCTYPE with declarations inside it; accept any other."""
        if has_internal_subset:
            raise DTDForbidden(name, sysid, pubid)
