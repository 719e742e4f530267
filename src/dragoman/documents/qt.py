"""Parse the .ts files of Qt Linguist: missing translations are filled in, one for each form of a number.

https://doc.qt.io/qt-6/linguist-ts-file-format.html describes them.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from html import escape

from dragoman.config.languages import base_language
from dragoman.data.lines import Kind
from dragoman.data.xml import NOT_XML
from dragoman.documents.document import (
    Content,
    Document,
    DocumentConfig,
    Label,
    Message,
    Passage,
    Skipped,
    line_number,
    skipped_lines,
)
from dragoman.documents.elements import ATTRIBUTE, CDATA, Element, decode_xml, read_tree, with_attributes
from dragoman.documents.encoding import resolve_references
from dragoman.documents.icu import Argument, Choice, Sentence
from dragoman.documents.messages import Phrase, find_accelerators, worded
from dragoman.text.plurals import whole_numbers

MAX_INDENT = 1000
MAX_FORMS = 6  # of a number, of which no language has more
PACKET = 188  # bytes of MPEG, each packet of which begins with G
BYTE = re.compile(r'<x id="(x?)([0-9A-Fa-f]{1,6})"/>')
COUNT = re.compile(r"(%L?n)(?![A-Za-z])")
ENDING = re.compile(r"(?<=[a-z])\((e?s)\)")  # "file(s)"
WITHOUT_FORMS = {"bi", "bo", "dz", "fa", "fj", "gn", "hu", "id", "ja", "jv", "ko", "ms", "my", "na", "om", "su", "th",
                 "tr", "vi", "yo", "za", "zh"}  # fmt: skip
# The forms of a number, in their order, where they are not those that CLDR has for whole numbers.
FORMS = {"cy": "zero one two many other", "ga": "one two other", "he": "one other", "iw": "one other",
         "lv": "one other zero", "mk": "one other other", "mt": "one few many other"}  # fmt: skip


def parse_ts(data: bytes, config: DocumentConfig) -> Document:
    """Return the document whose texts are the sources without a translation.

    A file that is not XML of Qt, such as TypeScript or a film, has no texts; `skipped` of the document says so.
    """
    original, encoding = decode_xml(data)
    root = read_tree(original, "TS", "a translation of Qt")
    if data[:1] == data[PACKET : PACKET + 1] == b"G":
        root = Skipped(0, "a film (MPEG), not a translation of Qt")
    elif not original.lstrip().startswith("<"):
        root = Skipped(0, "a program in TypeScript or the like, not a translation of Qt, which is XML")
    if isinstance(root, Skipped):
        return Document(original, encoding, [], [root], readable=False)
    language = root.attributes.get("language", "")
    skipped: list[Skipped] = []
    if (
        language
        and config.target
        and base_language(language) not in (base_language(config.target), base_language(config.source))
    ):
        reason = f"the file is for translations into '{language}', which remains in it, not '{config.target}'"
        skipped.append(Skipped(line_number(original, root.start), reason))
    left = Counter({"translated before": 0, "unfinished": 0})
    passages: list[Passage] = []
    reasons: list[tuple[int, str]] = []
    for message in messages(root):
        try:
            passages += message_passages(original, message, config, language, left)
        except ValueError as error:
            reasons.append((message.start, f"{error}: left untranslated"))
    skipped += skipped_lines(original, reasons)
    texts: list[Passage | Label] = [language_label(original, root), *find_accelerators(passages)]
    pairs = translated_messages(original, root)
    return Document(original, encoding, texts, skipped, left=left, mark="unfinished", messages=pairs)


def language_label(original: str, root: Element) -> Label:
    """Return the language of the translations, which is set if it is missing or that of the sources."""
    tag = original[root.start : root.inner]
    present = attribute(tag, "language")

    def written(source: str, target: str) -> str | None:
        value = present[2][1:-1] if present else ""
        code = f'"{target.replace("-", "_")}"'
        return (
            None
            if value and base_language(value) != base_language(source)
            else code
            if present
            else f" language={code}"
        )

    start, end = present.span(2) if present else (len("<TS"), len("<TS"))
    return Label(root.start + start, root.start + end, written)


def translated_messages(original: str, root: Element) -> Iterator[Message]:
    """Yield what messages and their translations say; neither has forms where a message is not understood."""
    language = root.attributes.get("language", "")
    for message in messages(root):
        source, translation = message.child("source"), message.child("translation")
        if source is None or translation is None:
            continue
        forms: dict[str, str] = {}
        translations: dict[str, str] = {}
        kind = translation.attributes.get("type")
        with suppress(ValueError):
            texts = [as_text(words_of(original, child)) for child in translation.named("numerusform")]
            branches: Mapping[str, Sentence] = {"other": words_of(original, source)}
            if message.attributes.get("numerus") == "yes":
                branches = number_branches(branches["other"])
                names = names_of_forms(language, len(texts)) if language or len(texts) == 1 else []
            else:
                texts, names = [as_text(words_of(original, translation))], ["other"]
            translations = dict(zip(names, texts, strict=False))
            forms = {name: as_text(branch) for name, branch in branches.items()}
        is_draft = kind == "unfinished" and any(map(str.strip, translations.values()))
        state: Kind | None = "obsolete" if kind in ("obsolete", "vanished") else "unfinished" if is_draft else None
        yield Message("", message.start, forms, translations, state)


def as_text(sentence: Sentence) -> str:
    """Return a sentence with the characters that <byte/> stands for."""
    return "".join(part if isinstance(part, str) else byte(part.shown) or part.original for part in sentence)


def byte(shown: str) -> str:
    """Return the character that an argument shown as <x id="x1b"/> stands for, '' for none."""
    match = BYTE.fullmatch(shown)
    return chr(int(match[2], 16 if match[1] else 10) % 0x110000) if match else ""


def messages(root: Element) -> Iterator[Element]:
    """Yield the messages of all contexts."""
    todo = [root]
    while todo:
        element = todo.pop()
        if element.name == "message":
            yield element
        else:
            todo += reversed(element.children)


def message_passages(
    original: str, message: Element, config: DocumentConfig, language: str, left: Counter[str]
) -> Iterator[Passage]:
    """Yield the passage of a message that has no translation, and else count its state.

    language: that of the file. Raise ValueError for what is not understood.
    """
    source, translation = message.child("source"), message.child("translation")
    kind = translation.attributes.get("type") if translation else None
    if source is None or kind in ("obsolete", "vanished"):
        return
    sentence = words_of(original, source)
    if not any(isinstance(part, str) and any(map(str.isalpha, part)) for part in sentence):
        return
    if translation is None:
        raise ValueError("a message without <translation>")
    forms = [child for child in translation.children if child.name == "numerusform"]
    if len(forms) > MAX_FORMS:
        raise ValueError(f"a message with more than {MAX_FORMS} plural forms")
    if any(child.name == "lengthvariant" for child in translation.children):
        raise ValueError("a message with variants by length")
    if not config.all and any(
        isinstance(part, Argument) or part.strip()
        for element in forms or [translation]
        for part in words_of(original, element)
    ):
        left["unfinished" if kind == "unfinished" else "translated before"] += 1
        return
    tree: Choice | Sentence = sentence
    numbers: list[Sequence[float]] = []
    if message.attributes.get("numerus") == "yes":
        numbers = numbers_of_forms(config.target or language, len(forms) if is_known(language, config) else 0)
        tree = Choice("n", "plural", number_branches(sentence))
    by_form = {str(index): form for index, form in enumerate(numbers)}
    phrase = Phrase(worded(tree, config, by_category=by_form), quote)

    def render(translations: Sequence[str], unsure: bool = False) -> Content:
        """Yield the element with the translations of its forms."""
        tag = original[translation.start : translation.inner].removesuffix("/>").removesuffix(">").rstrip() + ">"
        yield with_attributes(tag, {"type": "unfinished"}) if unsure else without_type(tag)
        translated = phrase.translated(translations)
        if isinstance(translated, Choice):
            end = space_before(original, translation)
            between = original[translation.inner : forms[0].start] if forms else ""
            for text in translated.branches.values():
                yield f"{between or f'{end}    '}<numerusform>{text}</numerusform>"
            yield original[forms[-1].end : translation.inner_end] if forms else end
        else:
            yield translated
        yield "</translation>"

    passage = Passage(translation.start, translation.end, phrase.texts, render)
    yield replace(passage, marked=replace(passage, render=partial(render, unsure=True)))


def words_of(original: str, element: Element) -> list[str | Argument]:
    """Return what is in an element as a sentence: <byte/> stands for a character that XML cannot hold."""
    parts: list[str | Argument] = []
    at = element.inner
    for child in element.children:
        parts.append(resolve_references(original[at : child.start]))
        at = child.end
        if section := CDATA.fullmatch(original, child.start, child.end):
            parts.append(section[1])
        elif child.name == "byte":
            parts.append(
                Argument(original[child.start : child.end], shown=f'<x id="{child.attributes.get("value")}"/>')
            )
        elif child.name:
            raise ValueError(f"<{child.name}> inside of <{element.name}>")
    return [*parts, resolve_references(original[at : element.inner_end])]


def number_branches(sentence: Sentence) -> dict[str, Sentence]:
    """Return a source as plural forms, in which %n is the number: 'file(s)' of English is 'file' and 'files'."""
    counted: list[str | Argument] = []
    for part in sentence:
        if isinstance(part, Argument):
            counted.append(part)
        else:
            counted += [Argument(piece, "n") if index % 2 else piece for index, piece in enumerate(COUNT.split(part))]
    if not any(isinstance(part, str) and ENDING.search(part) for part in counted):
        return {"other": counted}
    return {
        form: [ENDING.sub(ending, part) if isinstance(part, str) else part for part in counted]
        for form, ending in (("one", ""), ("other", r"\1"))
    }


def is_known(language: str, config: DocumentConfig) -> bool:
    """Return whether the forms that a file has are those of the target: Qt's tools have made them for its language."""
    return not config.target or base_language(language) == base_language(config.target)


def numbers_of_forms(language: str, count: int) -> list[Sequence[float]]:
    """Return numbers that each plural form is used for in a language; count: how many forms there are, if known."""
    by_category = whole_numbers(language)
    last = by_category.get("other", [*by_category.values()][-1])
    return [by_category.get(name, last) for name in names_of_forms(language, count)]


def names_of_forms(language: str, count: int) -> list[str]:
    """Return the plural category of each form in a language; see `numbers_of_forms`."""
    language = base_language(language)
    names = FORMS[language].split() if language in FORMS else [*whole_numbers(language)]
    if language in WITHOUT_FORMS or count == 1:
        names = ["other"]
    return (names + ["other"] * count)[:count] if count else names


def without_type(tag: str) -> str:
    """Return the tag of a translation that is finished."""
    kind = attribute(tag, "type")
    return tag[: kind.start()].rstrip() + tag[kind.end() :] if kind else tag


def attribute(tag: str, name: str) -> re.Match[str] | None:
    """Return where an attribute of a tag is."""
    return next((match for match in ATTRIBUTE.finditer(tag) if match[1] == name), None)


def space_before(original: str, element: Element) -> str:
    """Return the line end and the indentation in front of an element."""
    before = original[max(0, element.start - MAX_INDENT) : element.start]
    return before[len(before.rstrip()) :]


def quote(words: str) -> str:
    """Return words as Qt's tools write them."""
    return escape(NOT_XML.sub("\ufffd", words)).replace("&#x27;", "&apos;")
