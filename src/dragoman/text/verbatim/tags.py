"""Pair the tags of a text, and find those around its words."""

import re
from collections import Counter
from collections.abc import Sequence

from dragoman.text.verbatim.detect import EMPHASES, Placeholder, find

TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)")
LINK = ("[", "![")

Tag = tuple[str, bool]  # the name of a tag that encloses text, and whether it opens


def parse_tag(text: str) -> Tag | None:
    """Return the name of a tag that encloses text, and whether it opens; None for '<br/>' and for comments.

    A link of Markdown opens with a bracket and closes with another one and its address.
    """
    if text in LINK or text.startswith("]("):
        return "link", text in LINK
    match = TAG.match(text)
    return (match[2].lower(), not match[1]) if match and not text.endswith("/>") else None


def tags_of(placeholders: Sequence[Placeholder]) -> list[Tag | None]:
    """Return for each placeholder of a text what `parse_tag` says; marks of Markdown open and close in turn."""
    tags: list[Tag | None] = []
    open_marks = set[str]()
    for each in placeholders:
        if each.text in EMPHASES:
            open_marks ^= {each.text}
            tags.append((each.text, each.text in open_marks))
        else:
            tags.append(parse_tag(each.text) if each.kind == "tag" else None)
    return tags


def tag_pairs(tags: Sequence[Tag | None]) -> dict[int, int]:
    """Return the index of the closing tag for that of each opening tag, of pairs that are well nested."""
    pairs: dict[int, int] = {}
    stack: list[tuple[int, str]] = []
    open_names: Counter[str] = Counter()
    for index, tag in enumerate(tags):
        if tag is None:
            continue
        name, opens = tag
        if opens:
            stack.append((index, name))
            open_names[name] += 1
        elif open_names[name]:
            other = ""
            while other != name:
                opening, other = stack.pop()
                open_names[other] -= 1
            pairs[opening] = index
    return pairs


def inside_tags(text: str) -> tuple[int, int]:
    """Return start and end of a text without the tags at its edges that need not move with any of its words.

    These are pairs of tags around the whole text, tags without a partner in it, and at its end pairs without letters
    between them. If nothing would be left, return the whole text.
    """
    tags = [placeholder for placeholder in find(text) if placeholder.kind == "tag"]
    closing = tag_pairs(tags_of(tags))
    opening = {last: first for first, last in closing.items()}
    first, last = 0, len(tags) - 1  # the tags that may still be inside
    start, end = 0, len(text)
    while first <= last:
        at_start, at_end = not text[start : tags[first].start].strip(), not text[tags[last].end : end].strip()
        if at_start and first not in closing:
            start, first = tags[first].end, first + 1
        elif at_end and last not in opening:
            end, last = tags[last].start, last - 1
        elif at_start and at_end and closing.get(first) == last:
            start, end, first, last = tags[first].end, tags[last].start, first + 1, last - 1
        elif at_end and last in opening and not _has_letter(text, tags[opening[last]].end, tags[last].start):
            end, last = tags[opening[last]].start, opening[last] - 1
        else:
            break
    return (start, end) if text[start:end].strip() else (0, len(text))


def _has_letter(text: str, start: int, end: int) -> bool:
    """Return whether text[start:end] has letters outside its placeholders."""
    covered = [(placeholder.start, placeholder.end) for placeholder in find(text[start:end])]
    edges = [0, *(edge for span in covered for edge in span), end - start]
    parts = [text[start:end][a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return any(map(str.isalpha, "".join(parts)))
