"""Parse .resx and .resw, the resources of .NET: the values that are strings."""

import re
from collections.abc import Iterator

from dragoman.documents.document import Document, DocumentConfig, Skipped
from dragoman.documents.elements import Element, decode_xml, read_tree, text_entry
from dragoman.documents.messages import Entry, catalogue

DESIGNED = re.compile(r"(?:>>)?\$?\w+(?:\.\w+)+")  # a name that the designer of WinForms gives: a control's property
SHOWN = re.compile(  # such properties that users see
    r"\.(?:\w*Text|Title|Caption|ToolTip|Items\d*|Accessible(?:Name|Description)|Filter|Description)\Z"
)


def parse_resx(data: bytes, config: DocumentConfig) -> Document:
    """Return the document whose texts are the strings with the names in `config.keys`, or all strings."""
    original, encoding = decode_xml(data)
    root = read_tree(original, "root", ".resx")
    if isinstance(root, Skipped):
        return Document(original, encoding, [], [root], readable=False)
    return catalogue(original, encoding, entries(original, root), config, [])


def entries(original: str, root: Element) -> Iterator[Entry]:
    """Yield the strings. Where a form's designer has written the file, those that are no words of it are left out."""
    items = list(root.named("data"))
    is_designed = any(item.attributes.get("name", "").startswith(("&gt;&gt;", ">>")) for item in items)
    for item in items:
        key, value = item.attributes.get("name", ""), item.child("value")
        if not value or item.attributes.keys() & {"type", "mimetype"}:
            continue
        if is_designed and (key.startswith("&gt;&gt;") or (DESIGNED.fullmatch(key) and not SHOWN.search(key))):
            continue
        if entry := text_entry(original, key, value):
            yield entry
