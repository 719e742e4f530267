"""Parse YAML: the values of catalogues, such as those of Rails, Symfony and Hugo, or those under chosen keys.

PyYAML finds every scalar at its place, and makes no objects. What is written is read again before it is taken.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dragoman.config.languages import base_language
from dragoman.documents.document import (
    UNREADABLE,
    Document,
    DocumentConfig,
    Label,
    Skipped,
    Span,
    has_letter,
)
from dragoman.documents.encoding import decode
from dragoman.documents.messages import Entry, Form, Plural, catalogue
from dragoman.documents.structure import PATH_LENGTH, below, is_language, no_messages
from dragoman.errors import UsageError, plural
from dragoman.text import verbatim
from dragoman.text.plurals import CATEGORIES

MAX_DEPTH = 100
MAX_INDENT = 1000
PROPERTIES = re.compile(r"(?:[&!]\S*[ \t]+)*")  # in front of a scalar: its anchor and its tag
STRING = "tag:yaml.org,2002:str"
SYMBOL = re.compile(r":\w+")  # of Ruby
HEADER = re.compile(r"[|>][-+\d]*")
# What plain words must not look like, in YAML 1.1 or 1.2: a value of another type, or marks of YAML.
NOT_PLAIN = re.compile(
    r"""[-+.]?[\d.][\d_,.:eExXoO+-]*|(?:y|n|yes|no|on|off|true|false|null|~)
    |[-?:,\[\]{}#&*!|>'"%@`=<].* | .*(?::\ |\ \#).* | .*: | .*[\n\r\t\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff].*""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
FLOW = re.compile(r"[\[\]{},]")
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]")
ESCAPED = re.compile(rf'["\\]|{CONTROLS.pattern}')
ESCAPED_TO_ASCII = re.compile(rf"{ESCAPED.pattern}|[^\x00-\x7f]")
ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t", '"': r"\"", "\\": r"\\"}
SWITCHES = ("yes", "no", "on", "off", "y", "n")  # that YAML 1.1 reads as true and false, 1.2 as words
OF_MESSAGE = frozenset({"id", "description", "hash", "leftdelim", "rightdelim"})  # beside what go-i18n translates


@dataclass(frozen=True)
class Scalar:
    """A scalar, where it is written without anchor and tag, its style, and whether it stands in brackets."""

    value: str
    start: int
    end: int
    style: str
    in_flow: bool
    is_text: bool


@dataclass
class Node:
    """A mapping or list that is open: the key that it stands under, its path, and the scalars in it by their keys."""

    key: str
    path: tuple[str, ...]
    is_mapping: bool
    is_key: bool  # whether it is in a key
    in_flow: bool  # whether it stands in brackets
    place: int  # a number for its whole path
    waiting: Scalar | None = None
    expects_key: bool = True
    items: list[tuple[Scalar | None, Scalar | None]] = field(default_factory=list)  # None is no scalar

    def child_key(self) -> str:
        """Return the key of what comes next; the items of a list have that of the list."""
        return (self.waiting.value if self.waiting else "") if self.is_mapping else self.key

    def add(self, value: Scalar | None) -> None:
        """Take a scalar or, as None, anything else."""
        if self.is_mapping and self.expects_key:
            self.waiting = value
        else:
            self.items.append((self.waiting, value))
        self.expects_key = not self.expects_key


def parse_yaml(data: bytes, config: DocumentConfig) -> Document:
    """Return the document whose texts are the string values, or those under the keys of `config`.

    A file that is not YAML, or clearly configuration, has no texts, unless keys are given; `skipped` says so. Raise
    UsageError where none of the keys occurs, naming those that there are.
    """
    original, encoding = decode(data)
    reasons: list[tuple[int, str]] = []
    reader = Reader(original, reasons)
    entries: list[Entry | Plural] = []
    reason, line = "", 0
    try:
        entries += reader.entries()
    except ValueError as error:
        line, reason = reader.line, f"not YAML ({error})"
    if reason := reason or no_messages(reader.paths, config):
        return Document(original, encoding, [], [Skipped(line, reason)], readable=False)
    languages = [key for key, is_open in reader.roots.items() if is_open and is_language(key.value)]
    roots = [Label(key.start, key.end, partial(write_root, key)) for key in languages if len(reader.roots) == 1]
    return catalogue(original, encoding, entries, config, reasons, roots)


class Reader:
    """Reads the entries of YAML, and notes the paths of keys, and the keys at the root, on the way."""

    def __init__(self, original: str, reasons: list[tuple[int, str]]):
        """Take the text, and where to say what is left alone."""
        self.original, self.reasons = original, reasons
        self.line = 0
        self.resolvers: Mapping[str, Any] = {}  # by its first character, what makes a plain scalar another value
        self.paths: set[tuple[str, ...]] = set()
        self.roots: dict[Scalar, bool] = {}  # keys of the mapping at the root, and whether a mapping or list is below
        self.switches: list[int] = []

    def events(self, text: str) -> Iterator[Any]:
        """Yield the events of PyYAML. Raise ValueError, and note the line, for what is not YAML."""
        try:
            import yaml
        except ImportError:
            raise UsageError("YAML needs PyYAML: pip install 'dragoman[documents]'") from None
        self.resolvers = yaml.SafeLoader.yaml_implicit_resolvers
        try:
            yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # in C: 7 times as fast
        except yaml.MarkedYAMLError as error:
            self.line = error.problem_mark.line + 1 if error.problem_mark else 0
            raise ValueError(error.problem) from None
        except (yaml.YAMLError, OverflowError) as error:  # a character that is none
            raise ValueError(getattr(error, "reason", str(error))) from None

    def entries(self) -> Iterator[Entry | Plural]:
        """Yield the entries of all mappings and lists."""
        nodes = [Node("", (), is_mapping=False, is_key=False, in_flow=False, place=0)]
        for event in self.events(UNREADABLE.sub("\ufffd", self.original)):
            node, kind = nodes[-1], type(event).__name__
            if kind in ("MappingStartEvent", "SequenceStartEvent"):
                if len(nodes) > MAX_DEPTH:
                    self.line = event.start_mark.line + 1
                    raise ValueError(f"nested more than {MAX_DEPTH} deep")
                is_key = node.is_key or (node.is_mapping and node.expects_key)
                path, in_flow = self.note(node, is_open=True), node.in_flow or bool(event.flow_style)
                place = below(node.place, node.child_key(), len(nodes) == 2)
                nodes.append(Node(node.child_key(), path, kind == "MappingStartEvent", is_key, in_flow, place))
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                if not node.is_key:
                    yield from self.entries_of(node)
                nodes.pop()
                nodes[-1].add(None)
            elif kind == "ScalarEvent":
                is_value = not (node.is_mapping and node.expects_key)
                if is_value:
                    self.note(node)
                node.add(self.scalar(event, node.in_flow, is_value))
            elif kind == "AliasEvent":
                node.add(None)
        yield from self.entries_of(nodes[0])
        if self.switches:
            values = plural(len(self.switches), "value")
            reason = f"{values} from here on that YAML 1.1 reads as true or false, such as 'yes': left untranslated"
            self.reasons.append((self.switches[0], reason))

    def note(self, node: Node, is_open: bool = False) -> tuple[str, ...]:
        """Return the path of what comes next in a node, a mapping or list if it `is_open`."""
        if len(node.path) == PATH_LENGTH:
            return node.path
        path = (*node.path, node.child_key() if node.is_mapping else "-")
        self.paths.add(path[1:])
        if node.is_mapping and len(node.path) == 1 and node.waiting:
            self.roots[node.waiting] = is_open
        return path

    def scalar(self, event: Any, in_flow: bool, is_value: bool) -> Scalar:
        """Return the scalar of an event."""
        start, end, style = event.start_mark.index, event.end_mark.index, event.style or ""
        if event.anchor or event.tag:
            properties = PROPERTIES.match(self.original, start)
            start = properties.end() if properties else start
        if style in ("|", ">"):
            end = start + len(self.original[start:end].rstrip())
        value = event.value
        is_text = event.tag in (None, "!", STRING) and self.original[start : start + 1] not in ("\n", "\r", "#")
        if not style and event.tag is None:
            is_text = not SYMBOL.fullmatch(value) and not any(
                pattern.match(value) for _, pattern in self.resolvers.get(value[:1], ())
            )
            if is_value and value.lower() in SWITCHES:
                self.switches.append(start)
        if UNREADABLE.search(self.original, start, end):
            value = self.original[start:end]  # of which a document says that it is left alone
        return Scalar(value, start, end, style, in_flow, is_text)

    def entries_of(self, node: Node) -> Iterator[Entry | Plural]:
        """Yield the entries of a mapping or list: its strings, of which those of plural forms are one."""
        names = [key.value if key else "" for key, _ in node.items]
        is_form = [
            name in CATEGORIES and value is not None and value.is_text
            for name, (_, value) in zip(names, node.items, strict=True)
        ]
        forms = [index for index, form in enumerate(is_form) if form]
        others = [name for name, form in zip(names, is_form, strict=True) if not form]
        of_message = OF_MESSAGE.issuperset(map(str.lower, others))
        is_plural = node.is_mapping and "other" in names and of_message and len(names) > 1
        if is_plural and forms and forms == [*range(forms[0], forms[-1] + 1)]:
            yield self.plural(node, forms)
            return
        left = OF_MESSAGE if "translation" in names else ()
        for name, (key, value) in zip(names, node.items, strict=True):
            if value and value.is_text and name not in left:
                yield self.entry(value, key.value if key else node.key, node.place)

    def plural(self, node: Node, indexes: Sequence[int]) -> Plural:
        """Return the items of a mapping as the plural forms of one message."""
        forms = []
        for index in indexes:
            key, value = node.items[index]
            assert key
            assert value
            at = key.start + bool(key.style)
            category = Span(at, at + len(key.value))
            forms.append(Form(key.start, value.end, category, self.entry(value, node.key, node.place)))
        start = forms[0].start
        line = self.original.rfind("\n", max(0, start - MAX_INDENT), start) + 1
        between = ", " if node.in_flow else "\n" + re.sub(r"[^ ]", " ", self.original[line:start])
        return Plural(node.key, tuple(forms), between=between)

    def entry(self, scalar: Scalar, key: str, place: int) -> Entry:
        """Return a scalar as an entry."""
        text = scalar.value if has_letter(verbatim.remove(scalar.value)[0]) else ""
        return Entry(key, text, scalar.start, scalar.end, partial(self.write, scalar), place)

    def write(self, scalar: Scalar, text: str) -> str:
        """Return a text as it stands in the place of a scalar. Raise ValueError where that would say another thing."""
        old = self.original[scalar.start : scalar.end]
        if scalar.style in ("|", ">"):
            text = text.rstrip()
            written = block(old, text, scalar.style)
        else:
            written = flat(text, scalar.style, self.original.isascii() and "\\u" in self.original, scalar.in_flow)
        document = f"[{written}]" if scalar.in_flow else f"a: {written}\n"
        values = [event.value for event in self.events(document) if type(event).__name__ == "ScalarEvent"]
        if values[-1].rstrip() != text.rstrip() or len(values) != (1 if scalar.in_flow else 2):
            raise ValueError("YAML cannot hold the translation as the text is written")
        return written


def flat(text: str, style: str, ascii_only: bool, in_flow: bool) -> str:
    """Return a text in the style of a scalar, in quotes where it would be another value without."""
    is_plain = not style and text == text.strip() and not NOT_PLAIN.fullmatch(text)
    if is_plain and not (in_flow and FLOW.search(text)):
        return text
    if style == "'" and not CONTROLS.search(text):
        return "'" + text.replace("'", "''") + "'"
    return f'"{(ESCAPED_TO_ASCII if ascii_only else ESCAPED).sub(escape, text)}"'


def escape(match: re.Match[str]) -> str:
    """Return a character as double quotes have it."""
    code = ord(match[0])
    return ESCAPES.get(match[0]) or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def block(old: str, text: str, style: str) -> str:
    """Return a text as lines below a header such as '|' or '>-', indented as they were in `old`."""
    header, _, lines = old.partition("\n")
    if any(map(str.isdigit, HEADER.match(header)[0])):  # type: ignore[index]
        raise ValueError("a block that says how far it is indented")
    indent = next((line[: len(line) - len(line.lstrip(" "))] for line in lines.split("\n") if line.strip()), "")
    if style == ">":
        text = unfolded(text)
    body = "\n".join(indent + line if line else line for line in text.split("\n"))
    end = "\r\n" if header.endswith("\r") else "\n"
    return header + "\n" + body.replace("\n", end)


def unfolded(text: str) -> str:
    """Return a text with an empty line more between lines that would be folded into one, which are not indented."""
    lines: list[str] = []
    before = " "
    for line in text.split("\n"):
        if line and not line[0].isspace() and not before[0].isspace():
            lines.append("")
        lines.append(line)
        before = line or before
    return "\n".join(lines)


def write_root(key: Scalar, source: str, target: str) -> str | None:
    """Return the key at the root of a catalogue, which is its language; None where it was not that of the texts."""
    if source and base_language(key.value) != base_language(source):
        return None
    return flat(target.replace("-", "_") if "_" in key.value else target, key.style, False, key.in_flow)
