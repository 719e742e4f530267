"""Parse Fluent, the messages of Firefox and others: patterns are translated whole, with a variant for each plural form.

https://projectfluent.org/fluent/guide/ describes it. A pattern is `Hello, { $name }!` behind a message's name.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dragoman.documents.document import (
    Content,
    Document,
    DocumentConfig,
    Message,
    Passage,
    Skipped,
    Span,
    has_letter,
    skipped_lines,
)
from dragoman.documents.encoding import decode
from dragoman.documents.icu import MAX_DEPTH, Argument, Choice, hoist
from dragoman.documents.messages import Phrase, sentences, worded
from dragoman.errors import UsageError, plural
from dragoman.text.plurals import CATEGORIES

NAMES = re.compile(r"(?:^|-)(?:brand|vendor|product|trademark|name)(?:-|$)")  # terms that are names, not words
KEYS = ("accesskey", "commandkey", "key", "keycode", "style")  # attributes that are no text
ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{6})|(.))", re.DOTALL)
VARIABLE = re.compile(r"\$[A-Za-z][\w-]*|-?[A-Za-z][\w.-]*")
PLACEABLE = re.compile(r"\{[^{}]*\}")  # as a text has it
BRACES = re.compile("[{}]")
SPECIAL = re.compile(r"(?m)^(?:[\[*.]| +)")  # what would not be text at the start of a line
# A line end that is but a space: the sentence goes on, and no list or paragraph begins.
WRAP = re.compile(r"(?<![.!?:;\n\u3002])\n(?=[^\W_]|[(\"'\u201c\u2018<&]|\Z)")
LINE_END = re.compile(r"[ \r]*+\n[ \r\n]*+")
FILLED = re.compile(r"\n(?!\n)")  # in front of a line that is not empty
INDENT = "    "


@dataclass
class Pattern:
    """A pattern as a message, and what must be known to write it again."""

    original: str
    signs: dict[str, str] = field(default_factory=dict)  # what stands for a placeable in a text, and the placeable
    selectors: dict[tuple[str, str], str] = field(default_factory=dict)  # as written, by name and kind of a choice
    defaults: dict[tuple[str, str], str] = field(default_factory=dict)  # the keys of default variants

    def message(self, pattern: Any, depth: int = 0) -> list[str | Argument | Choice]:
        """Return the elements of a pattern of fluent.syntax. Raise ValueError for what cannot be made whole."""
        if depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} selections inside each other")
        parts: list[str | Argument | Choice] = []
        words: list[str] = []  # elements that are neighbours
        for element in pattern.elements:
            if type(element).__name__ != "Placeable":
                words.append(element.value)
                continue
            parts.append(WRAP.sub(" ", "".join(words)))
            words = []
            expression = element.expression
            while type(expression).__name__ == "Placeable":
                expression = expression.expression
            match type(expression).__name__:
                case "StringLiteral":
                    parts.append(ESCAPE.sub(unescape, expression.value))
                case "SelectExpression":
                    parts.append(self.choice(expression, depth))
                case _:
                    name, _ = self.value_of(expression)
                    placeable = self.source(element)
                    parts.append(Argument(placeable, name, self.sign(placeable)))
        return [*parts, WRAP.sub(" ", "".join(words).rstrip(" \n\r"))]

    def choice(self, expression: Any, depth: int) -> Choice:
        """Return a selection as a choice in which the default variant is 'other'."""
        name, ordinal = self.value_of(expression.selector)
        keys = [self.source(variant.key) for variant in expression.variants]
        default = next(key for key, variant in zip(keys, expression.variants, strict=True) if variant.default)
        is_number = {"VariableReference": True, "FunctionReference": name.startswith("$")}
        is_plural = is_number.get(type(expression.selector).__name__, False) and all(
            key in CATEGORIES or key[0] in "-0123456789" for key in keys
        )
        kind = ("selectordinal" if ordinal else "plural") if is_plural else "select"
        branches: dict[str, Any] = {}
        for key, variant in zip(keys, expression.variants, strict=True):
            selector = f"={key}" if is_plural and key not in CATEGORIES else key
            branches.setdefault(selector, self.message(variant.value, depth + 1))
            if variant.default and "other" not in keys:
                branches["other"] = branches[selector]
        if not is_plural and "other" in keys and default != "other":
            raise ValueError("its variant [other] is not the default")
        name = name or self.source(expression.selector)
        self.selectors.setdefault((name, kind), self.source(expression.selector))
        self.defaults.setdefault((name, kind), default)
        return Choice(name, kind, branches)

    def value_of(self, expression: Any) -> tuple[str, bool]:
        """Return the variable that is shown or selected by as it is, '' for none, and whether it is an ordinal."""
        kind = type(expression).__name__
        if kind == "VariableReference":
            return f"${expression.id.name}", False
        if kind != "FunctionReference" or expression.id.name != "NUMBER":
            return "", False
        arguments, named = expression.arguments.positional, expression.arguments.named
        types = [argument.value.value for argument in named if argument.name.name == "type"]
        if len(arguments) == 1 and type(arguments[0]).__name__ == "VariableReference" and len(types) == len(named):
            return f"${arguments[0].id.name}", types == ["ordinal"]
        return "", False

    def sign(self, placeable: str) -> str:
        """Return what stands for a placeable in a text: '{$name}', another one for each."""
        name = VARIABLE.search(placeable[1:] if "$" not in placeable else placeable[placeable.index("$") :])
        sign = shown = f"{{{name[0] if name else 'number'}}}"
        number = 1
        while self.signs.setdefault(sign, placeable) != placeable:
            number += 1
            sign = f"{shown[:-1]}-{number}}}"
        return sign

    def source(self, node: Any) -> str:
        """Return how a part is written, in one line."""
        return LINE_END.sub(" ", self.original[node.span.start : node.span.end].strip())

    def written(self, tree: Choice | str, indent: str, end: str) -> str:
        """Return a translation as a pattern, without the indentation of its first line; end: that of a line."""
        if isinstance(tree, str):
            return FILLED.sub("\n" + (indent or INDENT), escape_lines(tree)).replace("\n", end)
        key = tree.name, tree.kind
        branches = {name: self.written(branch, f"{indent}{INDENT * 2}", end) for name, branch in tree.branches.items()}
        default, other = self.defaults[key], branches["other"]
        if branches.get(default) == other:
            if default != "other":
                del branches["other"]
        else:
            default = "other"
        lines = [f"{{ {self.selectors[key]} ->"]
        for name, text in branches.items():
            mark = "   *" if name == default else INDENT
            lines.append(f"{indent}{mark}[{name.removeprefix('=')}] {text}")
        return end.join([*lines, f"{indent}}}"])


def parse_fluent(data: bytes, config: DocumentConfig) -> Document:
    """Return the document whose texts are the sentences of its messages. `skipped` says which lines are not Fluent."""
    try:
        from fluent.syntax import FluentParser
    except ImportError:
        raise UsageError("Fluent needs fluent.syntax: pip install 'dragoman[documents]'") from None

    class Parser(FluentParser):
        """Leaves lines apart: to join them one by one takes time that grows with the square of their number."""

        def dedent(self, elements: list[Any], common_indent: int) -> list[Any]:
            """Take the indentation that all lines have from each."""
            for element in elements:
                if isinstance(element, self.Indent):
                    element.value = element.value[: len(element.value) - common_indent]
            return elements

    original, encoding = decode(data)
    try:
        entries: Sequence[Any] = Parser().parse(original).body
    except RecursionError:
        reason = "placeables inside each other, too deep"
        return Document(original, encoding, [], [Skipped(0, reason)], readable=False)
    messages = [entry for entry in entries if type(entry).__name__ in ("Message", "Term")]
    junk = [entry for entry in entries if type(entry).__name__ == "Junk"]
    reasons = [(entry.span.start, f"not Fluent ({entry.annotations[0].message}): left as it is") for entry in junk]
    passages = [passage for entry in messages for passage in message_passages(original, entry, config, reasons)]
    if names := [entry for entry in messages if is_name(entry)]:
        terms = f"{plural(len(names), 'term')} from here on with names, such as -{names[0].id.name}"
        reasons.append((names[0].id.span.start, f"{terms}: left as they are"))
    skipped = [*skipped_lines(original, sorted(reasons))]
    texts = fluent_messages(original, messages)
    return Document(original, encoding, passages, skipped, readable=bool(messages or not junk), messages=texts)


def fluent_messages(original: str, entries: Sequence[Any]) -> Iterator[Message]:
    """Yield what the patterns of messages and terms say."""
    for entry in entries:
        for name, value in patterns(entry):
            forms: dict[str, str] = {}
            with suppress(ValueError):
                if not isinstance(tree := hoist(Pattern(original).message(value)), Choice):
                    forms = {"other": "".join(part if isinstance(part, str) else part.sign for part in tree)}
            yield Message(name, value.span.start, forms)


def patterns(entry: Any) -> list[tuple[str, Any]]:
    """Return the patterns of a message or term under their names; the attributes of a term are grammar."""
    texts = [] if is_name(entry) or not entry.value else [(entry.id.name, entry.value)]
    attributes = entry.attributes if type(entry).__name__ == "Message" else []
    texts += [(f"{entry.id.name}.{each.id.name}", each.value) for each in attributes if each.id.name not in KEYS]
    return texts


def is_name(entry: Any) -> bool:
    """Return whether an entry is a term for a name, such as -brand-short-name."""
    return type(entry).__name__ == "Term" and bool(NAMES.search(entry.id.name))


def message_passages(
    original: str, entry: Any, config: DocumentConfig, reasons: list[tuple[int, str]]
) -> Iterator[Passage]:
    """Yield the passages of a message or term; see `patterns`."""
    keys = [attribute for attribute in entry.attributes if attribute.id.name == "accesskey"]
    for name, value in patterns(entry):
        pattern = Pattern(original)
        try:
            tree = hoist(pattern.message(value))
        except ValueError as error:
            reasons.append((value.span.start, f"'{name}': {error}; left untranslated"))
            continue
        if not any(isinstance(part, str) and has_letter(part) for sentence in sentences(tree) for part in sentence):
            continue
        phrase = Phrase(worded(tree, config), partial(BRACES.sub, r'{ "\g<0>" }'))
        if phrase.texts:
            start, end = value.span.start, value.span.end
            passage = Passage(start, end, phrase.texts, partial(render, pattern, Span(start, end), phrase))
            is_label = keys and name.endswith(".label") and len(phrase.texts) == 1
            yield with_key(original, passage, keys[0].value.span) if is_label else passage


def with_key(original: str, label: Passage, key: Any) -> Passage:
    """Return the passage of a label with that of its access key, whose letter is underlined in the label."""

    def render(translations: Sequence[str]) -> Content:
        """Yield both, in the order of the file, and what is between them."""
        letter = key_in(PLACEABLE.sub("", translations[0]), original[key.start : key.end])
        if key.start < label.start:
            return [letter, Span(key.end, label.start), *label.render(translations)]
        return [*label.render(translations), Span(label.end, key.start), letter]

    return replace(label, start=min(label.start, key.start), end=max(label.end, key.end), render=render)


def key_in(label: str, key: str) -> str:
    """Return the access key of a label: the same one if it is in it, else the first letter with a capital, if any."""
    if key.lower() in label.lower() or len(key) > 1:
        return key
    return next((letter for letter in label if letter.lower() != letter.upper()), key)


def render(pattern: Pattern, span: Span, phrase: Phrase, translations: Sequence[str]) -> Content:
    """Yield a pattern with the translations of its phrase."""
    old = pattern.original[slice(*span)]
    before = old[: len(old) - len(old.lstrip(" "))]  # of a pattern that begins on a line of its own
    text = pattern.written(phrase.translated(translations), before, "\r\n" if "\r\n" in old else "\n")
    yield before + (f'{{ "{text[0]}" }}{text[1:]}' if before and text[:1] in ("[", "*", ".") else text)


def escape_lines(text: str) -> str:
    """Return the lines of a pattern with a placeable for space and for special characters that would be lost."""
    head, line_end, lines = text.partition("\n")
    text = ('{ "" }' if head[:1] == " " else "") + head + line_end + SPECIAL.sub(escape_start, lines)
    return f'{text}{{ "" }}' if text[-1:] in (" ", "\n") else text


def escape_start(match: re.Match[str]) -> str:
    """Return the start of a line as text: '{ "[" }', or space that is kept."""
    return f'{{ "" }}{match[0]}' if match[0][0] == " " else f'{{ "{match[0]}" }}'


def unescape(match: re.Match[str]) -> str:
    """Return the character that an escape of a string literal stands for."""
    number = int(match[1] or match[2] or "0", 16)
    return match[3] or (chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd")
