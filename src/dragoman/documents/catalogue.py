"""Catalogues of gettext (PO): the translations that are missing are filled in."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from gettext import c2py
from itertools import chain, islice

import polib

from dragoman.documents.document import Document, Fault, Found, Kept, Parts, Slot, lines_of, with_lines
from dragoman.documents.encoding import decoded

LINE = re.compile(
    r"""[ \t]*(?:
    (?P<comment>\#.*|\r?)
    |(?:(?P<key>msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,3}\])?)[ \t]*)?(?P<string>"(?:[^"\\]|\\.)*")[ \t\r]*
    )""",
    re.VERBOSE,
)
CHARSET = re.compile(rb'"Content-Type:[^"\n]{0,80}charset=([\w.:-]{1,40})', re.IGNORECASE)
PLURAL = re.compile(r"^Plural-Forms:[^\n]{0,80}?\bplural\s*=([^;\n]{1,500})", re.MULTILINE | re.IGNORECASE)


@dataclass
class Message:
    """Its strings by keyword, as they are written, and where the quotes of each begin and end."""

    strings: dict[str, str] = field(default_factory=dict)
    spans: dict[str, Kept] = field(default_factory=dict)
    left_alone: bool = False  # fuzzy, or not to be read

    def add(self, key: str, span: Kept, string: str) -> None:
        start = self.spans[key].start if key in self.spans else span.start
        self.spans[key] = Kept(start, span.end)
        self.strings[key] = self.strings.get(key, "") + string[1:-1]

    @property
    def complete(self) -> bool:
        return any(key.startswith("msgstr") for key in self.strings)


def po(data: bytes) -> Document:
    declared = CHARSET.search(data)
    original, encoding = decoded(data, declared[1].decode("ascii", "replace") if declared else "")
    result = Found()
    bad: list[int] = []
    singular = 0  # the plural form that is for one thing
    for message in messages(original, bad):
        header = message.strings.get("msgstr", "")
        if not message.strings.get("msgid"):
            singular = form_for_one(polib.unescape(header)) if header else singular
        elif not message.left_alone:
            result.slots.extend(missing(original, message, f"msgstr[{singular}]"))
    if bad:
        text = f"{len(bad):,} line(s) from here on are not PO: their messages are left as they are"
        result.faults.append(Fault(bad[0], text))
    return Document(original, encoding, result)


def messages(original: str, bad: list[int]) -> Iterator[Message]:
    """Those that are not obsolete; the numbers of lines that cannot be read are added to `bad`."""
    message = Message()
    key = ""
    at = 0
    for number, line in enumerate(original.split("\n"), start=1):
        match = LINE.fullmatch(line)
        comment = match["comment"] if match else None
        begins = match and (comment or match["key"] in ("msgctxt", "msgid"))
        if begins and (message.complete or (comment or "").startswith("#~")):
            if message.complete:
                yield message
            message, key = Message(), ""
        if not match or (comment is None and match["key"] in message.strings):
            bad.append(number)
            message.left_alone = True
        elif comment is None:
            key = match["key"] or key
            if key:
                start, end = match.span("string")
                message.add(key, Kept(at + start, at + end), match["string"])
            else:
                bad.append(number)
        elif comment.startswith("#,") and "fuzzy" in re.split(r"[,\s]+", comment):
            message.left_alone = True
        at += len(line) + 1
    if message.complete:
        yield message


def form_for_one(header: str) -> int:
    """The number of the plural form of one thing, by the formula of the header."""
    formula = PLURAL.search(header)
    try:
        return int(c2py(formula[1])(1)) if formula else 0
    except (ValueError, ArithmeticError):
        return 0


def missing(original: str, message: Message, singular: str) -> Iterator[Slot]:
    """One slot for all translations that a message lacks: they are filled together or not at all."""
    keys = [key for key in message.strings if key.startswith("msgstr")]
    empty = sorted((key for key in keys if not message.strings[key]), key=lambda key: message.spans[key])
    texts = []
    for key in empty:
        one = "msgid_plural" not in message.strings or (key == singular and len(keys) > 1)
        texts.append(polib.unescape(message.strings["msgid" if one else "msgid_plural"]))
    lines = [lines_of(text) for text in texts]
    if any(lines):
        spans = [message.spans[key] for key in empty]
        end = "\r\n" if original[spans[0].end : spans[0].end + 1] == "\r" else "\n"
        forms = list(zip(spans, texts, map(len, lines), strict=True))
        yield Slot(spans[0].start, spans[-1].end, tuple(chain.from_iterable(lines)), partial(written, forms, end))


def written(forms: Sequence[tuple[Kept, str, int]], end: str, translations: Sequence[str]) -> Parts:
    """Each form: where it stands, its source, and of how many translated lines it is made."""
    at = forms[0][0].start
    given = iter(translations)
    for span, text, count in forms:
        yield Kept(at, span.start)
        yield quoted(with_lines(text, list(islice(given, count))), end)
        at = span.end


def quoted(text: str, end: str) -> str:
    """As gettext writes it: a text of several lines begins with an empty string."""
    parts = [f'"{polib.escape(line)}"' for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
    return parts[0] if len(parts) == 1 else end.join(['""', *parts])
