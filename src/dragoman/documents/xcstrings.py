"""Parse .xcstrings, the String Catalogs of Xcode: one file with all languages, of which one is filled in."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from dragoman.data.lines import Kind
from dragoman.documents.document import Content, Document, DocumentConfig, Message, Passage, Skipped, Span
from dragoman.documents.encoding import decode
from dragoman.documents.json import ATOM, STRING, after_space, read_key, write_string
from dragoman.documents.messages import Entry, Form, Plural, entry_passages, missing_keys

LANGUAGE_DEPTH = 4  # of the key of a language, in objects
WRITE = partial(write_string, False)
STATE = re.compile(r'("state"\s*:\s*)"\w*"')  # within a string its quotes would have backslashes
TRANSLATED, UNSURE = "translated", "needs_review"


@dataclass
class Node:
    """A value of JSON: where it begins and ends, its text if it is a string, and the members of an object."""

    start: int
    end: int = 0
    text: str | None = None
    members: dict[str, "Node"] = field(default_factory=dict)
    key: Span = Span(0, 0)  # where its key is, with the quotes

    def at(self, *path: str) -> "Node | None":
        """Return what these keys lead to; None where there is nothing."""
        node: Node | None = self
        for key in path:
            node = node.members.get(key) if node else None
        return node

    def text_at(self, *path: str) -> str:
        """Return the string that these keys lead to; '' where there is none."""
        node = self.at(*path)
        return (node and node.text) or ""


def parse_xcstrings(data: bytes, config: DocumentConfig) -> Document:
    """Return the document whose texts are those of the source language that another language lacks.

    That is `config.target`, or the only one that the catalogue has besides.
    """
    original, encoding = decode(data)
    try:
        root = read_tree(original)
        strings = root.at("strings")
        if not strings or not root.text_at("sourceLanguage"):
            raise json.JSONDecodeError("no strings and sourceLanguage in it", original, 0)
    except json.JSONDecodeError as error:
        damage = Skipped(error.lineno, f"not a String Catalog ({error.msg})")
        return Document(original, encoding, [], [damage], readable=False)
    source = root.text_at("sourceLanguage")
    languages = {code for node in strings.members.values() if (sub := node.at("localizations")) for code in sub.members}
    languages -= {source}
    target = config.target or (min(languages) if len(languages) == 1 else "")
    target = next((code for code in languages if as_code(code) == as_code(target)), target)
    if not target or as_code(target) == as_code(source):
        reason = f"it has texts in '{source}' and translations in {', '.join(sorted(languages)) or 'no language'}"
        reason = f"{reason}: left as it is, since nothing says which language to fill in"
        is_swapped = bool(target) and as_code(config.source) not in ("", as_code(source))
        pairs = translated_messages(original, strings, (config.source, source), source) if is_swapped else ()
        return Document(original, encoding, [], [Skipped(0, reason)], left={}, entry="string", messages=pairs)
    skipped = missing_keys(strings.members, config)
    left = Counter({"translated before": 0, "partly translated": 0, "to be reviewed": 0, "stale": 0})
    passages: list[Passage] = []
    settings = replace(config, keys=(), source=source, target=target)
    layout = layout_of(original, root)
    for key, node in strings.members.items():
        if config.keys and key not in config.keys:
            continue
        localizations = node.at("localizations")
        before = localizations and localizations.at(target)
        state = state_of(node, before)
        if state:
            left[state] += 1
        elif not is_fixed(original, node):
            passages += missing_localization(original, key, node, layout, settings, skipped)
    pairs = translated_messages(original, strings, (config.source or source, target), source)
    return Document(original, encoding, passages, skipped, left=left, entry="string", mark="for review", messages=pairs)


def translated_messages(original: str, strings: Node, languages: tuple[str, str], source: str) -> Iterator[Message]:
    """Yield what the strings say in two languages; source: the one in which a key without a text is its text."""
    for key, node in strings.members.items():
        if is_fixed(original, node):
            continue
        sides = {language: node.at("localizations", language) for language in languages}
        forms, translations = (
            spoken_forms(side) if side else {"other": key if language == source else ""}
            for language, side in sides.items()
        )
        given = [unit for language, side in sides.items() if language != source for unit in units(side)]
        states = {unit.text_at("state") for unit in given if unit.text_at("value")}
        is_stale, is_draft = node.text_at("extractionState") == "stale", states & {UNSURE, "new"}
        state: Kind | None = "obsolete" if is_stale else "unfinished" if is_draft else None
        yield Message(key, node.start, forms, translations, state)


def spoken_forms(localization: Node) -> dict[str, str]:
    """Return the text of a localization by plural category, none where it depends on more."""
    if plural := localization.at("variations", "plural"):
        return {category: form.text_at("stringUnit", "value") for category, form in plural.members.items()}
    return (
        {"other": localization.text_at("stringUnit", "value")} if localization.members.keys() == {"stringUnit"} else {}
    )


def is_fixed(original: str, string: Node) -> bool:
    """Return whether a string is not to be translated."""
    flag = string.at("shouldTranslate")
    return flag is not None and original[flag.start : flag.end] == "false"


def as_code(language: str) -> str:
    """Return the code of a language in one spelling."""
    return language.replace("_", "-").lower()


def state_of(string: Node, localization: Node | None) -> str:
    """Return as what a string is left alone; '' where it needs a translation. localization: the one that it has."""
    if string.text_at("extractionState") == "stale":
        return "stale"
    states = {unit.text_at("state") or TRANSLATED for unit in units(localization) if unit.at("value")}
    if UNSURE in states:
        return "to be reviewed"
    if "new" in states:
        return "partly translated" if len(states) > 1 else ""
    return "translated before" if states else ""


def units(node: Node | None) -> Iterator[Node]:
    """Yield what has a value and a state in a localization."""
    todo = [node] if node else []
    while todo:
        node = todo.pop()
        for key, child in node.members.items():
            if key == "stringUnit":
                yield child
            else:
                todo.append(child)


@dataclass(frozen=True)
class Layout:
    """How a catalogue is written: the end of a line, the indentation of one level, and what is after a key."""

    newline: str
    unit: str
    colon: str

    def line(self, depth: int) -> str:
        """Return the end of a line, and the indentation of the next."""
        return self.newline + self.unit * depth

    def member(self, key: str) -> str:
        """Return a key of an object, before its value."""
        return json.dumps(key, ensure_ascii=False) + self.colon

    def localization(self, text: str) -> str:
        """Return a text as a localization."""
        value = {"stringUnit": {"state": TRANSLATED, "value": text}}
        indent = self.unit if self.newline else None
        written = json.dumps(value, indent=indent, separators=(",", self.colon), ensure_ascii=False)
        return written.replace("\n", self.line(LANGUAGE_DEPTH))


def layout_of(original: str, root: Node) -> Layout:
    """Return how a catalogue is written, by its first member."""
    first = next(iter(root.members.values()))
    before = original[root.start + 1 : first.key.start]
    unit = before.lstrip("\r\n")
    return Layout(before[: len(before) - len(unit)], unit, original[first.key.end : first.start])


def missing_localization(
    original: str, key: str, string: Node, layout: Layout, config: DocumentConfig, skipped: list[Skipped]
) -> Iterator[Passage]:
    """Yield the passage that adds a localization to a string, if it has words.

    It is made as the source's, with all its variations, or of the key where the source has none.
    """
    source, span = string.at("localizations", config.source), Span(0, 0)
    entries: list[Entry | Plural] = [Entry(key, key, 0, 0, layout.localization)]
    if source and any(unit.at("value") for unit in units(source)):
        entries, span = list(source_entries(original, key, source, layout)), Span(source.start, source.end)
    inner = list(entry_passages(original, entries, config, skipped))
    texts = tuple(text for passage in inner for text in passage.texts)
    if not texts:
        return
    start, end, before, after = place(string, config.target, layout)

    def render(translations: Sequence[str], state: str = TRANSLATED) -> Content:
        """Yield the localization, with its key where that is new."""
        given = iter(translations)
        pieces: list[str | Span] = []
        at = span.start
        for passage in inner:
            pieces.append(original[at : passage.start])
            pieces += passage.render([next(given) for _ in passage.texts])
            at = passage.end
        pieces.append(original[at : span.end])
        yield before + STATE.sub(rf'\1"{state}"', "".join(map(str, pieces))) + after

    passage = Passage(start, end, texts, render)
    yield replace(passage, marked=replace(passage, render=partial(render, state=UNSURE)))


def source_entries(original: str, key: str, source: Node, layout: Layout) -> Iterator[Entry | Plural]:
    """Yield the values of a localization in their order, those of a plural as one."""
    todo = [source]
    while todo:
        node = todo.pop()
        if (value := node.at("stringUnit", "value")) and value.text is not None:
            yield Entry(key, value.text, value.start, value.end, WRITE)
        forms = node.at("variations", "plural")
        made = plural_forms(key, forms) if forms else ()
        if forms and made:
            yield Plural(key, made, between="," + original[forms.start + 1 : made[0].start])
        children = [child for name, child in node.members.items() if name != "stringUnit"]
        todo += reversed([child for child in children if not (made and forms in child.members.values())])


def plural_forms(key: str, node: Node) -> tuple[Form, ...]:
    """Return the members of a plural as its forms; none where one of them is no text."""
    forms = []
    for form in node.members.values():
        value = form.at("stringUnit", "value")
        if not value or value.text is None:
            return ()
        entry = Entry(key, value.text, value.start, value.end, WRITE)
        forms.append(Form(form.key.start, form.end, Span(form.key.start + 1, form.key.end - 1), entry))
    return tuple(forms)


def place(string: Node, target: str, layout: Layout) -> tuple[int, int, str, str]:
    """Return where the localization of a language is written, and what is before and after it."""
    localizations = string.at("localizations")
    if not localizations:
        start, end, before, after = place_of_member(string, "localizations", layout, LANGUAGE_DEPTH - 1)
        before += "{" + layout.line(LANGUAGE_DEPTH) + layout.member(target)
        return start, end, before, layout.line(LANGUAGE_DEPTH - 1) + "}" + after
    if present := localizations.at(target):
        return present.start, present.end, "", ""
    return place_of_member(localizations, target, layout, LANGUAGE_DEPTH)


def place_of_member(node: Node, key: str, layout: Layout, depth: int) -> tuple[int, int, str, str]:
    """Return where a new member of an object is written, in the order of the keys, and what is around its value."""
    member, line = layout.member(key), layout.line(depth)
    later = [other for name, other in node.members.items() if name > key]
    if later:
        return later[0].key.start, later[0].key.start, member, f",{line}"
    if node.members:
        end = max(other.end for other in node.members.values())
        return end, end, f",{line}{member}", ""
    return node.start + 1, node.end - 1, line + member, layout.line(depth - 1)


def read_tree(original: str) -> Node:
    """Return the value that JSON holds. It does not recurse. Raise JSONDecodeError for what is not JSON."""
    find = partial(after_space, original)
    top = Node(0)
    path: list[tuple[Node, str]] = []  # objects and lists that are open, and what closes them
    key, node = "", Node(find(0))
    while True:
        (path[-1][0] if path else top).members[key] = node
        match original[node.start : node.start + 1]:
            case "{" | "[" as bracket:
                path.append((node, "}" if bracket == "{" else "]"))
                at = find(node.start + 1)
                if not original.startswith(path[-1][1], at):
                    key, node = read_member(original, at, path[-1])
                    continue
            case '"':
                node.text, at = STRING.raw_decode(original, node.start)
                node.end = at
            case _:
                atom = ATOM.match(original, node.start)
                if not atom:
                    raise json.JSONDecodeError("a value is missing", original, node.start)
                at = node.end = atom.end()
        at = find(at)
        while path and original.startswith(path[-1][1], at):
            closed, _ = path.pop()
            closed.end = at + 1
            at = find(at + 1)
        if not path:
            if at < len(original):
                raise json.JSONDecodeError("text after its end", original, at)
            return top.members[""]
        if not original.startswith(",", at):
            raise json.JSONDecodeError(f"a comma or '{path[-1][1]}' is missing", original, at)
        key, node = read_member(original, find(at + 1), path[-1])


def read_member(original: str, at: int, around: tuple[Node, str]) -> tuple[str, Node]:
    """Return the key of the next member and its value, of which only the start is known; in a list, a number."""
    if around[1] == "]":
        return str(len(around[0].members)), Node(at)
    key, span, at = read_key(original, at)
    return key, Node(at, key=span)
