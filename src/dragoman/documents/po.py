"""Parse PO catalogues, the message files of gettext: missing translations are filled in."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from gettext import c2py

import polib

from dragoman.data.po import CHARSET
from dragoman.documents.document import (
    Content,
    Document,
    DocumentConfig,
    Passage,
    Skipped,
    Span,
    skipped_lines,
)
from dragoman.documents.encoding import decode
from dragoman.documents.icu import COMPLEX, Choice, write
from dragoman.documents.messages import Phrase, find_accelerators, phrase_of, with_signs, worded
from dragoman.text.plurals import Numbers, numbers_by_category

LINE = re.compile(
    r"""[ \t]*(?:
    (?P<comment>\#.*|\r?)
    |(?:(?P<key>msgctxt|msgid_plural|msgid|msgstr(?:\[\d\])?)[ \t]*)?(?P<string>"(?:[^"\\]|\\.)*")[ \t\r]*
    )""",
    re.VERBOSE,
)
LIMIT = re.compile(r"\bmax[\w .-]{0,9}(?:length|width|chars|characters)\b\W{0,3}(\d{1,5})\b", re.IGNORECASE)
PRINTF = (
    r"%(?:\d+\$|\(\w+\)|<(?!PRI)\w+>)?[-+ #0'I]*+(?:\*|\d+)?(?:\.(?:\*|\d+))?"
    r"(?:(?:hh|ll|[hlqjztL])?[diouxXeEfFgGaAcCsSpnrmjq@]|<PRI\w+>)|%%"
)
# What a program puts a value in place of, by the flag of its messages. A message that says no-c-format has none.
DIRECTIVES = {
    f"{flag}-format": re.compile(pattern)
    for pattern, flags in {
        PRINTF: "c objc php perl python lua javascript",
        rf"%\{{\w+\}}|{PRINTF}": "ruby",
        rf"%\|[^|]*\||%\d+%|{PRINTF}": "boost",
        r"%(?:\d+\$|<)?[-+ #0,(]*+\d*(?:\.\d+)?(?:[tT]?[A-Za-z]|%)": "java-printf",
        r"%\d\d?": "kde kde-kuit",
        r"%L?(?:\d\d?|n)": "qt qt-plural",
        r"\{[^{}]*\}": "python-brace csharp perl-brace",
        r"'[^']*(?:'|\Z)|(\{[^{}]*\})": "java",  # which shows what is in apostrophes as it is
    }.items()
    for flag in flags.split()
}
# A value by its number or its name, or none.
NAMED = re.compile(r"%\|?\d+[$%]|%L?\d+\Z|%[({]|%<(?!PRI)\w+>|\{|%%")
PLURAL = re.compile(r"^Plural-Forms:[^\n]{0,80}?\bplural\s*=([^;\n]{1,500})", re.MULTILINE | re.IGNORECASE)


@dataclass
class Message:
    """An entry of the catalogue: its strings by keyword, as they are written, and where the quotes begin and end."""

    lines: dict[str, list[str]] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    fuzzy: bool = False
    limit: int = 0  # how many characters its translations may have, as a comment says
    stale: bool = False  # whether it is a guess of msgmerge: the message has changed since it was translated
    flags: frozenset[str] = frozenset()
    mark: tuple[int, str] | None = None  # where a mark is inserted that makes it fuzzy, and the mark

    def add(self, key: str, span: Span, string: str) -> None:
        """Append what is inside `string`, a quoted string at `span`, to the string of a keyword."""
        start = self.spans[key].start if key in self.spans else span.start
        self.spans[key] = Span(start, span.end)
        self.lines.setdefault(key, []).append(string[1:-1])

    @cached_property
    def strings(self) -> dict[str, str]:
        """Return the whole strings by keyword, escapes as written; to be called when the entry has all its lines."""
        return {key: "".join(lines) for key, lines in self.lines.items()}

    @property
    def choice(self) -> Choice:
        """Return a message with a plural as a choice by its number; to be called when the entry has all its lines."""
        sources = {"one": self.strings["msgid"], "other": self.strings["msgid_plural"]}
        return Choice("n", "plural", {name: with_signs(polib.unescape(text)) for name, text in sources.items()})

    @property
    def complete(self) -> bool:
        """Return whether the entry has a translation, though it may be empty."""
        return any(key.startswith("msgstr") for key in self.lines)

    @property
    def translated(self) -> bool:
        """Return whether none of its forms is empty; to be called when the entry has all its lines."""
        return all(string for key, string in self.strings.items() if key.startswith("msgstr"))


def parse_po(data: bytes, config: DocumentConfig) -> Document:
    """Return the document whose texts are the untranslated messages; none where a line is not PO, as `skipped` says."""
    declared = CHARSET.search(data)
    original, encoding = decode(data, declared[1].decode("ascii", "replace") if declared else "")
    passages: list[Passage] = []
    reasons: list[tuple[int, str]] = []
    by_form = numbers_by_form("")
    left = Counter({"translated before": 0, "fuzzy": 0})
    try:
        entries = [*messages(original)]
    except BadLine as error:
        damage = Skipped(error.args[0], "not PO (no line of a message, or not in its place)")
        return Document(original, encoding, [], [damage], readable=False)
    if not entries:
        return Document(original, encoding, [], [Skipped(0, "not PO (there is no message in it)")], readable=False)
    for message in entries:
        header = message.strings.get("msgstr", "")
        if not message.strings.get("msgid"):
            by_form = numbers_by_form(polib.unescape(header)) if header else by_form
        elif message.fuzzy and not (message.stale or config.all):
            left["fuzzy"] += 1
        elif message.translated and not (message.stale or config.all):
            left["translated before"] += 1
        else:
            try:
                passages.extend(missing_translations(original, message, by_form, config))
            except ValueError as error:
                reason = f"no message in ICU MessageFormat: {error}; left untranslated"
                reasons.append((message.spans["msgid"].start, reason))
    skipped = [*skipped_lines(original, reasons)]
    return Document(original, encoding, find_accelerators(passages), skipped, left=left, mark="fuzzy")


class BadLine(Exception):
    """A line is not PO; the argument is its number."""


def messages(original: str) -> Iterator[Message]:
    """Yield the messages that are not obsolete. Raise BadLine."""
    message = Message()
    key, offset = "", 0
    for number, line in enumerate(original.split("\n"), start=1):
        match = LINE.fullmatch(line)
        comment = match["comment"] if match else None
        begins = match and (comment or match["key"] in ("msgctxt", "msgid"))
        if begins and (message.complete or (comment or "").startswith("#~")):
            if message.complete:
                yield message
            message, key = Message(), ""
        if match and not message.lines:
            message.mark = fuzzy_mark(match, offset, message.mark)
        if not match or (comment is None and (match["key"] in message.lines or not (match["key"] or key))):
            raise BadLine(number)
        if comment is None:
            key = match["key"] or key
            start, end = match.span("string")
            message.add(key, Span(offset + start, offset + end), match["string"])
        elif comment.startswith("#."):
            message.limit = int(limit[1]) if (limit := LIMIT.search(comment)) else message.limit
        elif comment.startswith("#|"):
            message.stale = True
        elif comment.startswith("#,"):
            flags = re.split(r"[,\s]+", comment)
            message.fuzzy = message.fuzzy or "fuzzy" in flags
            message.flags |= {*flags}
        offset += len(line) + 1
    if message.complete:
        yield message


def fuzzy_mark(line: re.Match[str], offset: int, before: tuple[int, str] | None) -> tuple[int, str] | None:
    """Return where a mark is inserted that makes a message fuzzy, and the mark; None if that is after this line.

    It joins the last line of flags, which is all that msgfmt reads of them, or stands in front of the first keyword, or
    of an older msgid, after which msgfmt takes no flags. offset: where the line begins; before: by the lines before it.
    """
    comment = line["comment"] or ""
    if comment.startswith("#,") and comment[2:].strip():
        return offset + line.start("comment") + len("#,"), " fuzzy,"
    if not before and (line["key"] or comment.startswith("#|")):
        return offset, "#, fuzzy\r\n" if line[0].endswith("\r") else "#, fuzzy\n"
    return before


def numbers_by_form(header: str) -> Numbers:
    """Return the plural forms by the formula in the header, '0' and so on, with numbers of each; none without one."""
    formula = PLURAL.search(header)
    try:
        function = c2py(formula[1]) if formula else None
        return numbers_by_category(lambda number: str(int(function(int(number))))) if function else {}
    except (ValueError, ArithmeticError, RecursionError):
        return {}


def missing_translations(
    original: str, message: Message, by_form: Numbers, config: DocumentConfig
) -> Iterator[Passage]:
    """Yield one passage for all translations that a message needs. Raise ValueError where it is no ICU message.

    These are the empty ones, those of a stale message, which stays fuzzy, and with `config.all` all of any message.

    by_form: numbers that each plural form is used for.
    """
    keys = [key for key in message.strings if key.startswith("msgstr")]
    anew = message.stale or config.all
    empty = sorted((key for key in keys if anew or not message.strings[key]), key=lambda key: message.spans[key])
    is_plural = "msgid_plural" in message.strings
    singular = polib.unescape(message.strings["msgid"])
    if is_plural:
        forms = [key[len("msgstr[") : -1] or "0" for key in empty]
        if by_form and len(empty) == len(keys):  # xgettext writes two forms, whatever the language
            forms = sorted(by_form, key=int)
        numbers = {form: by_form.get(form) or ([1] if form == "0" and len(keys) > 1 else [2]) for form in forms}
        phrase = Phrase(worded(message.choice, config, by_category=numbers), str)
    else:
        phrase = phrase_of(singular, config, "icu-message-format" in message.flags or bool(COMPLEX.search(singular)))
    if not phrase.texts:
        return
    spans = [message.spans[key] for key in empty]
    end = "\r\n" if original[spans[0].end : spans[0].end + 1] == "\r" else "\n"

    def render(translations: Sequence[str]) -> Content:
        """Yield the translations as PO, with what is between them."""
        translated = phrase.translated(translations)
        if not (isinstance(translated, Choice) and is_plural):
            yield quote(write(translated), end)
            return
        position = spans[0].start
        for form, text in translated.branches.items():
            span = message.spans.get(f"msgstr[{form}]") or message.spans.get("msgstr" if form == "0" else "")
            yield Span(position, span.start) if span else f"{end}msgstr[{form}] "
            yield quote(text, end)
            position = span.end if span else position

    def render_sure(translations: Sequence[str]) -> Content:
        """Return what `render` does, unless the flags of the message forbid it."""
        if not is_plural:
            check_directives(message.flags, singular, write(phrase.translated(translations)))
        return render(translations)

    context = polib.unescape(message.strings.get("msgctxt", ""))
    passage = Passage(spans[0].start, spans[-1].end, phrase.texts, render, limit=message.limit, context=context)
    assert message.mark  # for it has a keyword
    start, mark = message.mark
    if message.fuzzy:
        yield replace(passage, marked=passage)
        return
    marked = replace(passage, start=start, render=partial(render_marked, mark, Span(start, passage.start), passage))
    yield replace(passage, render=render_sure, marked=marked)


def check_directives(flags: frozenset[str], source: str, translation: str) -> None:
    """Raise ValueError where a translation has other directives than the message, by the flags of the message."""
    for flag in flags & DIRECTIVES.keys():
        if ordered(DIRECTIVES[flag].findall(source)) != ordered(DIRECTIVES[flag].findall(translation)):
            raise ValueError(f"its translation has other directives, which {flag} forbids")


def ordered(directives: list[str]) -> list[str]:
    """Return directives in an order in which the same ones are equal: those with a number or a name may change places.

    A program gives its values to the others in their order: where %s and %d have changed places, it may crash.
    """
    placed = [each for each in directives if NAMED.match(each)]
    return sorted(placed) + [each for each in directives if each and not NAMED.match(each)]


def render_marked(mark: str, before: Span, passage: Passage, translations: Sequence[str]) -> Content:
    """Yield a mark, what is between it and the passage of a message, and what the passage writes."""
    yield mark
    yield before
    yield from passage.render(translations)


def quote(text: str, end: str) -> str:
    """Return the text as it stands in a PO file after its keyword: in quotes and escaped.

    A text of several lines is an empty string and then a string for each line, joined by the line end `end`.
    """
    strings = [f'"{polib.escape(line)}"' for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
    return strings[0] if len(strings) == 1 else end.join(['""', *strings])
