"""Parse XLIFF 1.2 and 2.x, the format of translators: missing targets are filled in, and their state is set."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from itertools import islice
from typing import NamedTuple

from dragoman.data.xml import NOT_XML
from dragoman.documents.document import (
    Content,
    Document,
    DocumentConfig,
    Passage,
    Skipped,
    Span,
    has_letter,
    line_number,
    skipped_lines,
)
from dragoman.documents.elements import CDATA, Element, decode_xml, prefixed, read_tree, with_attributes
from dragoman.documents.encoding import resolve_references
from dragoman.documents.icu import COMPLEX, Choice, write
from dragoman.documents.inline import (
    SPACE,
    Fragment,
    Inline,
    as_one_line,
    core_words,
    flow_text,
    render_markup,
    trim,
    unpaired_tags,
)
from dragoman.documents.messages import find_accelerators, phrase_of
from dragoman.errors import plural
from dragoman.text import verbatim

LINE_END_REFERENCE = re.compile(r"(&#(?:0*1[03]|x0*[aAdD]);)")
LINE_END = re.compile(rf"(\r\n?|\n|{LINE_END_REFERENCE.pattern[1:-1]})")
SPANNING = {"g", "pc", "mrk"}  # elements with text in them; what others hold is code of the original document
CLOSED_BY = {"bpt": "ept", "bx": "ex", "sc": "ec", "sm": "em"}  # codes that begin and end without being one element
CLOSES = {last: first for first, last in CLOSED_BY.items()}
# States in which a target may be a copy of its source.
UNTRANSLATED = {"new", "needs-translation", "needs-l10n", "initial"}
# What a new translation is: in 1.2 an attribute of the target, in 2.x one of the segment.
REVIEW = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}
TRANSLATED = {"state": "translated"}
# What tells besides that it is unsure: in 1.2 a note after the target, in 2.x this attribute.
UNSURE = {"subState": "dragoman:unsure"}


class Setting(NamedTuple):
    """What holds in an element: whether it is translated, and whether its line breaks are part of its text."""

    translated: bool = True
    lines_kept: bool = False


class Flow(NamedTuple):
    """A line of a source that is a text: where it begins and ends, and the tags in it."""

    text: str
    start: int
    end: int
    inlines: list[Inline]


def within(element: Element, around: Setting) -> Setting:
    """Return what holds inside an element, by its attributes or else as `around` it."""
    translate, space = (element.attributes.get(name) for name in ("translate", "xml:space"))
    return Setting(
        translate == "yes" if translate in ("yes", "no") else around.translated,
        space == "preserve" if space in ("preserve", "default") else around.lines_kept,
    )


def parse_xliff(data: bytes, config: DocumentConfig) -> Document:
    """Return the document whose texts are the lines of each source without a translation.

    A target is missing if it is absent, has no words, or is a copy of its source in a state such as 'new'. With
    `config.all`, units with a translation get a new one, too, unless they are approved. A file that
    is not XLIFF, or declares entities, has no texts; `skipped` of the document says so.
    """
    original, encoding = decode_xml(data)
    root = read_tree(original, "xliff", "XLIFF")
    if isinstance(root, Skipped):
        return Document(original, encoding, [], [root], readable=False)
    sections: list[int] = []
    left = Counter({"translated before": 0, "approved": 0})
    reasons: list[tuple[int, str]] = []
    texts = find_accelerators(passages(original, root, config, sections, left, reasons))
    skipped = [*skipped_lines(original, reasons)]
    if sections:
        reason = f"{plural(len(sections), 'CDATA section')} with text from here on: left untranslated"
        skipped.append(Skipped(line_number(original, sections[0]), reason))
    return Document(original, encoding, texts, skipped, left=left, entry="unit", mark="unsure")


def passages(
    original: str,
    root: Element,
    config: DocumentConfig,
    sections: list[int],
    left: Counter[str],
    reasons: list[tuple[int, str]],
) -> Iterator[Passage]:
    """Yield a passage for each untranslated unit (1.2) or segment (2.x).

    Add places of CDATA with text to `sections`, units that are left alone because of their state to `left`, and those
    that are no ICU messages to `reasons`, with their offsets.
    """
    todo = [(root, Setting())]
    while todo:
        element, around = todo.pop()
        setting = within(element, around)
        if element.name not in ("trans-unit", "segment"):
            todo += [(child, setting) for child in reversed(element.children)]
        elif not setting.translated:
            continue
        elif element.attributes.get("approved") == "yes":
            left["approved"] += 1
        elif not config.all and is_translated(original, element):
            left["translated before"] += 1
        else:
            try:
                yield from unit_passages(original, element, setting, config, sections)
            except ValueError as error:
                reason = f"no message in ICU MessageFormat: {error}; left untranslated"
                reasons.append((element.start, reason))


def is_translated(original: str, unit: Element) -> bool:
    """Return whether a unit or segment has a target with words that is not just a copy of its source."""
    target = unit.child("target")
    if target is None or not any(is_words and text.strip() for is_words, text in contents(original, target)):
        return False
    state = (target if unit.name == "trans-unit" else unit).attributes.get("state")
    sources = filter(None, (unit.child("source"), unit.child("seg-source")))
    return state not in UNTRANSLATED or all(
        spelling(original, source) != spelling(original, target) for source in sources
    )


def spelling(original: str, element: Element) -> str:
    """Return what is in an element, to compare it with another one, in which white space and references may differ."""
    parts = (text if is_words else f"\0{text}\0" for is_words, text in contents(original, element))
    return SPACE.sub(" ", "".join(parts)).strip()


def contents(original: str, element: Element, is_words: bool = True) -> Iterator[tuple[bool, str]]:
    """Yield what is in an element, but for comments and the markers of segments: text, and whether it is words.

    Tags are none, nor is code of the original document, in which `is_words` is False.
    """
    at = element.inner
    for child in element.children:
        yield is_words, resolve_references(original[at : child.start])
        at = child.end
        if section := CDATA.fullmatch(original, child.start, child.end):
            yield is_words, section[1]
        elif child.attributes.get("mtype") == "seg":
            yield from contents(original, child, is_words)
        elif child.name:
            yield False, f"{child.name} {sorted(child.attributes.items())}"
            yield from contents(original, child, is_words and child.name in SPANNING)
            yield False, "/"
    yield is_words, resolve_references(original[at : element.inner_end])


def cdata_sections(original: str, element: Element) -> Iterator[re.Match[str]]:
    """Yield the CDATA sections in an element."""
    for child in element.children:
        if section := CDATA.fullmatch(original, child.start, child.end):
            yield section
        yield from cdata_sections(original, child)


def unit_passages(
    original: str, unit: Element, setting: Setting, config: DocumentConfig, sections: list[int]
) -> Iterator[Passage]:
    """Yield one passage for a unit or segment, none if it has no text; sections: see `passages`.

    Raise ValueError for a text that is no ICU message and cannot be anything else.
    """
    source, target = unit.child("seg-source", "source"), unit.child("target")
    if source is None:
        return
    of_source = cdata_sections(original, source)
    sections += [section.start() for section in of_source if has_letter(verbatim.remove(section[1])[0])]
    flows = list(text_flows(original, source, within(source, setting).lines_kept))
    if not flows:
        return
    phrases = [
        phrase_of(flow.text, config, COMPLEX.search(flow.text) is not None, [inline.shown for inline in flow.inlines])
        for flow in flows
    ]

    def render(translations: Sequence[str], unsure: bool = False) -> Content:
        """Yield the unit from its tag to its target, or in 1.2 the target alone, with the translations in it."""
        if unit.name == "segment":
            yield with_attributes(original[unit.start : unit.inner], TRANSLATED | UNSURE if unsure else TRANSLATED)
            yield Span(unit.inner, target.start if target else source.end)
        yield from target_tag(original, unit, source, target)
        position = source.inner
        given = iter(translations)
        for flow, phrase in zip(flows, phrases, strict=True):
            translation = write(phrase.translated(list(islice(given, len(phrase.texts)))))
            yield Span(position, flow.start)
            if isinstance(phrase.tree, Choice):
                yield from render_branches(translation, flow.inlines)
            else:
                yield from render_markup(NOT_XML.sub("\ufffd", translation), flow.inlines)
            position = flow.end
        yield Span(position, source.inner_end)
        yield f"</{prefixed('target', original, source)}>"
        if unsure and unit.name == "trans-unit":
            note = prefixed("note", original, source)
            yield f'{space_before(original, unit, source)}<{note} from="dragoman">unsure</{note}>'

    start, end = (target.start, target.end) if target else (source.end, source.end)
    texts = tuple(text for phrase in phrases for text in phrase.texts)
    limit = unit.attributes.get("maxwidth", "") if unit.attributes.get("size-unit") == "char" else ""
    passage = Passage(
        unit.start if unit.name == "segment" else start,
        end,
        texts,
        render,
        limit=int(limit) if limit.isdecimal() else 0,
    )
    yield replace(passage, marked=replace(passage, render=partial(render, unsure=True)))


def render_branches(message: str, inlines: Sequence[Inline]) -> Content:
    """Yield an ICU message with its tags, of which each branch has its own. Raise ValueError where they do not nest."""
    by_tag = {inline.shown: inline for inline in inlines}
    pieces = re.split(f"({'|'.join(map(re.escape, by_tag))})", message) if by_tag else [message]
    if unpaired_tags([by_tag[tag] for tag in pieces[1::2]]) != unpaired_tags(inlines):
        raise ValueError("its tags do not nest as before")
    for index, piece in enumerate(pieces):
        yield by_tag[piece].original if index % 2 else escape(NOT_XML.sub("\ufffd", piece), quote=False)


def space_before(original: str, unit: Element, source: Element) -> str:
    """Return the white space that is in front of the source, for an element that is added to its unit."""
    before = original[unit.inner : source.start]
    return before[len(before.rstrip()) :]


def target_tag(original: str, unit: Element, source: Element, target: Element | None) -> Iterator[str]:
    """Yield the opening tag of a target, with the attributes that say in 1.2 that it needs a review.

    Before the tag of a new target, yield the white space that is in front of the source.
    """
    if target:
        tag = original[target.start : target.inner]
        tag = f"{tag[:-2].rstrip()}>" if tag.endswith("/>") else tag
    else:
        yield space_before(original, unit, source)
        tag = f"<{prefixed('target', original, source)}>"
    yield with_attributes(tag, REVIEW if unit.name == "trans-unit" else {})


def text_flows(original: str, source: Element, lines_kept: bool) -> Iterator[Flow]:
    """Yield the texts of a source that have words: its segments, which are markers of type 'seg', or the whole source.

    With `lines_kept`, each of its lines is a text of its own.
    """
    flow: list[tuple[Fragment, Span]] = []
    end_of_text = (None, Span(source.inner_end, source.inner_end))
    for fragment, span in [*fragments(original, source, lines_kept), end_of_text]:
        if fragment is not None:
            flow.append((fragment, span))
            continue
        first, stop, words = core_words(as_one_line([fragment for fragment, _ in flow]))
        if words:
            start, end = flow[first][1].start, flow[stop - 1][1].end
            if isinstance(words[0], str):
                start = trim(original, *flow[first][1])[0]
            if isinstance(words[-1], str):
                end = trim(original, *flow[stop - 1][1])[1]
            inlines = [word for word in words if isinstance(word, Inline)]
            yield Flow(flow_text(words).strip(), start, end, inlines)
        flow = []


def fragments(original: str, element: Element, lines_kept: bool) -> Iterator[tuple[Fragment | None, Span]]:
    """Yield what is in an element, with its place: text, tags, and None where a text ends; see `text_flows`."""
    line_end = LINE_END if lines_kept else LINE_END_REFERENCE
    at = element.inner
    for child in [*element.children, None]:
        end = child.start if child else element.inner_end
        for part in line_end.split(original[at:end]):
            span = Span(at, at + len(part))
            at = span.end
            if part:
                yield None if line_end.fullmatch(part) else resolve_references(part), span
        if child is None:
            return
        at = child.end
        opening, closing = Span(child.start, child.inner), Span(child.inner_end, child.end)
        protected = child.attributes.get("mtype") == "protected" or not within(child, Setting()).translated
        if child.name not in SPANNING or protected or child.inner == child.end:
            span = Span(child.start, child.end)
            opens = child.name if child.name in CLOSED_BY else ""
            yield Inline("", span, opens, CLOSES.get(child.name, "")), span
        elif child.attributes.get("mtype") == "seg":
            yield None, opening
            yield from fragments(original, child, lines_kept)
            yield None, closing
        else:
            yield Inline("", opening, opens=child.name), opening
            yield from fragments(original, child, lines_kept)
            yield Inline("", closing, closes=child.name), closing
