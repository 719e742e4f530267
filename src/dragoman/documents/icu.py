"""ICU MessageFormat: messages such as '{n, plural, one {# file} other {# files}}', whose branches are whole sentences.

https://unicode-org.github.io/icu/userguide/format_parse/messages/ describes it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

MAX_DEPTH = 20  # choices inside each other
MAX_SENTENCES = 200  # of one message
CHOICES = ("plural", "selectordinal", "select")
COMPLEX = re.compile(rf"\{{\s*[\w.-]+\s*,\s*(?:{'|'.join(CHOICES)})\s*,")  # only a message has this in it
NAME = re.compile(r"\s*([^\s{},#'<>|]+)\s*")
SELECTOR = re.compile(r"\s*(=\d+|[^\s{},#'=]+)\s*\{")
OFFSET = re.compile(r"\s*offset\s*:\s*(\d+)")
FORMAT = re.compile(r"[^{}']+")
CLOSING = re.compile(r"\s*\}")
NUMBER = re.compile(r"\{\s*[^\s{},]+\s*,\s*number\s*\}")
PLAIN = re.compile(r"[^{}#']+")
QUOTING = re.compile("'(?=[{}#|<']|$)|(?<=[{}#|<'])'")  # an apostrophe that would not be one
# What is quoted in words; '{0}' at once, as those write it who have it shown to users with its braces.
SPECIAL, SPECIAL_IN_PLURAL = re.compile(r"\{\w{0,60}\}|[{}]+"), re.compile(r"\{\w{0,60}\}|[{}#]+")


@dataclass(frozen=True)
class Argument:
    """What is filled in: '{name}', '{when, date, short}', and in a plural '#', its number.

    `name`: of which argument. `shown`: what stands for it in a text to translate, if not itself. `is_plain`: whether
    the value is shown without a format of its own.
    """

    original: str
    name: str = ""
    shown: str = ""
    is_plain: bool = True

    @property
    def sign(self) -> str:
        """What stands for it in a text to translate: itself, or what looks like an argument."""
        return self.shown or self.original


@dataclass(frozen=True)
class Choice:
    """One of several messages by the value of an argument: its branches by their selectors, 'one', '=0', 'female'."""

    name: str
    kind: str
    branches: Mapping[str, Any]  # a message, once hoisted a choice or a sentence, once translated one that is written
    offset: int = 0  # what is taken from the number before a category is chosen, and '#' shown

    @property
    def is_plural(self) -> bool:
        """Whether the selectors are plural categories, and numbers such as =0."""
        return self.kind != "select"

    @property
    def number(self) -> str:
        """What its # says, as a name."""
        return f"{self.name}-{self.offset}" if self.offset else self.name


Sentence = Sequence[str | Argument]
Message = Sequence["str | Argument | Choice"]


@dataclass
class Parser:
    """Reads a message from its start."""

    text: str
    at: int = 0
    around: list[Choice] = field(default_factory=list)  # the choices around

    @property
    def in_plural(self) -> bool:
        """Whether # is a number here: right inside a plural, but not in a choice of another kind in it."""
        return bool(self.around) and self.around[-1].is_plural

    def fail(self, reason: str) -> ValueError:
        """Return the error that says what is wrong, and where."""
        return ValueError(f"{reason} at character {self.at + 1}")

    def match(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        """Take what a pattern matches. Raise ValueError where it does not."""
        match = pattern.match(self.text, self.at)
        if not match:
            raise self.fail(f"{expected} is missing")
        self.at = match.end()
        return match

    def take(self, mark: str) -> bool:
        """Return whether the text goes on with a mark, and take it."""
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        return True

    def message(self, depth: int = 0) -> list[str | Argument | Choice]:
        """Take a message up to the brace that closes it, or to the end of the text."""
        if depth > MAX_DEPTH:
            raise self.fail(f"more than {MAX_DEPTH} choices inside each other")
        parts: list[str | Argument | Choice] = []
        words: list[str] = []
        while self.at < len(self.text) and (character := self.text[self.at]) != "}":
            if plain := PLAIN.match(self.text, self.at):
                words.append(plain[0])
                self.at = plain.end()
            elif character == "'":
                words.append(self.quoted())
            elif character == "#" and not self.in_plural:
                words.append("#")
                self.at += 1
            else:
                parts += ["".join(words)] if words else []
                words = []
                parts.append(self.argument(depth) if character == "{" else self.number())
        return [*parts, "".join(words)] if words else parts

    def quoted(self) -> str:
        """Take an apostrophe, and what it quotes if a brace or # follows; return the words."""
        self.at += 1
        if self.take("'"):
            return "'"
        if self.text[self.at : self.at + 1] not in ("{", "}", "|", "<", *("#" * self.in_plural)):
            return "'"
        words = []
        while self.at < len(self.text):
            end = self.text.find("'", self.at)
            end = len(self.text) if end < 0 else end
            words.append(self.text[self.at : end])
            self.at = end + 1
            if not self.take("'"):
                break
            words.append("'")
        self.at = min(self.at, len(self.text))
        return "".join(words)

    def number(self) -> Argument:
        """Take the # of a plural."""
        self.at += 1
        return Argument("#", self.around[-1].number, "{#}")

    def argument(self, depth: int) -> Argument | Choice:
        """Take what stands in braces."""
        start = self.at
        self.at += 1
        name = self.match(NAME, "the name of an argument")[1]
        if self.take("}"):
            return Argument(self.text[start : self.at], name)
        if not self.take(","):
            raise self.fail("a comma or } is missing")
        kind = self.match(NAME, "the kind of an argument")[1]
        if kind in CHOICES:
            return self.choice(name, kind, depth)
        while self.at < len(self.text) and not self.take("}"):
            if self.take("{"):
                raise self.fail(f"the format of '{name}' has a brace")
            if self.text[self.at] == "'":
                self.quoted()
            else:
                self.match(FORMAT, "}")
        if self.text[self.at - 1] != "}":
            raise self.fail("} is missing")
        original = self.text[start : self.at]
        return Argument(original, name, is_plain=NUMBER.fullmatch(original) is not None)

    def choice(self, name: str, kind: str, depth: int) -> Choice:
        """Take the branches of a choice."""
        if not self.take(","):
            raise self.fail("a comma is missing")
        choice = Choice(name, kind, {})
        if choice.is_plural and (offset := OFFSET.match(self.text, self.at)):
            choice = replace(choice, offset=int(offset[1][:9]))
            self.at = offset.end()
        branches: dict[str, Message] = {}
        self.around.append(choice)
        while not (end := CLOSING.match(self.text, self.at)):
            selector = self.match(SELECTOR, "a branch")[1]
            if selector in branches:
                raise self.fail(f"the branch '{selector}' is there twice")
            branches[selector] = self.message(depth + 1)
            if not self.take("}"):
                raise self.fail("} is missing")
        self.at = end.end()
        self.around.pop()
        if "other" not in branches:
            raise self.fail(f"'{name}' has no branch 'other'")
        return replace(choice, branches=branches)


def parse(text: str) -> Message:
    """Return the message in a text. Raise ValueError, with the place, for what is none."""
    parser = Parser(text)
    message = parser.message()
    if parser.at < len(text):
        raise parser.fail("a } too many")
    return message


def hoist(message: Message) -> Choice | Sentence:
    """Return a message with no words beside a choice: each branch of a choice is a whole sentence, or a choice.

    Raise ValueError where there would be more than MAX_SENTENCES, or where the number of a plural with an offset would
    stand in another one, where nothing says it.
    """
    selectors: dict[tuple[str, str], dict[str, None]] = {}  # of all choices by one argument
    remaining = [message]
    while remaining:
        for part in remaining.pop():
            if isinstance(part, Choice):
                selectors.setdefault((part.name, part.kind), {}).update(dict.fromkeys(part.branches))
                remaining += part.branches.values()
    left = [MAX_SENTENCES]  # how many there may still be

    def hoisted(message: Message, chosen: Mapping[tuple[str, str], str], inner: str) -> Choice | Sentence:
        """Return what the message is under the selectors chosen; inner: the number of the innermost, if a plural."""
        at = next((index for index, part in enumerate(message) if isinstance(part, Choice)), None)
        if at is None:
            left[0] -= 1
            if left[0] < 0:
                raise ValueError(f"it has more than {MAX_SENTENCES} sentences")
            return [in_plural(part, inner) for part in message if not isinstance(part, Choice)]
        choice = message[at]
        assert isinstance(choice, Choice)
        key = choice.name, choice.kind
        if len(chosen) == MAX_DEPTH and key not in chosen:
            raise ValueError(f"it has choices by more than {MAX_DEPTH} arguments")

        def chosen_branch(selector: str) -> Message:
            return [*message[:at], *choice.branches.get(selector, choice.branches["other"]), *message[at + 1 :]]

        if key in chosen:
            return hoisted(chosen_branch(chosen[key]), chosen, inner)
        number = choice.number if choice.is_plural else ""
        branches = {
            selector: hoisted(chosen_branch(selector), {**chosen, key: selector}, number) for selector in selectors[key]
        }
        return replace(choice, branches=branches)

    return hoisted(message, {}, "")


def in_plural(part: str | Argument, inner: str) -> str | Argument:
    """Return a part as it stands in a choice with the number `inner`: the # of another plural becomes {n, number}."""
    if isinstance(part, str) or part.original != "#" or part.name == inner:
        return part
    if "-" in part.name:
        raise ValueError(f"the # of {part.name} is inside another choice")
    return Argument(f"{{{part.name}, number}}", part.name)


def write(tree: Choice | str) -> str:
    """Return a message of which each branch is a choice again, or a sentence as it is written."""
    if isinstance(tree, str):
        return tree
    offset = f" offset:{tree.offset}" if tree.offset else ""
    branches = "".join(f" {selector} {{{write(branch)}}}" for selector, branch in tree.branches.items())
    return f"{{{tree.name}, {tree.kind},{offset}{branches}}}"


def quote(words: str, in_plural: bool = False) -> str:
    """Return words as they stand in a message, beside arguments: braces are quoted, and right inside a plural #.

    An apostrophe that would quote what follows is written twice, as one that does not.
    """
    words = QUOTING.sub("''", words)
    return (SPECIAL_IN_PLURAL if in_plural else SPECIAL).sub(r"'\g<0>'", words)
