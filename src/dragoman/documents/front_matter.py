"""Find the texts in the front matter of a Markdown document, which is YAML or TOML: values of chosen fields."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from dragoman.documents.document import Passage, Skipped, Span, has_letter, line_number

FRONT = re.compile(r"(---|\+\+\+)[ \t]*\r?\n")
FIELD = {
    "---": re.compile(r"^(?P<name>[\w-]+|\"[^\"\r\n]*\"|'[^'\r\n]*'):(?:[ \t]+(?P<value>[^\r\n]*))?", re.MULTILINE),
    "+++": re.compile(r"^(?P<name>[\w-]+|\"[^\"\r\n]*\"|\[)[ \t]*=?[ \t]*(?P<value>[^\r\n]*)", re.MULTILINE),
}
REST = r"(?:[ \t]+#.*)?[ \t]*\Z"  # of a line, after a value
DOUBLE = re.compile(r'("(?:[^"\\]|\\.)*+")' + REST)
SINGLE = re.compile(r"('(?:[^']|'')*+')" + REST)
LITERAL = re.compile(r"('[^']*+')" + REST)  # of TOML
PLAIN = re.compile(r"(?![-?:][ \t]|[,\[\]{}#&*!|>'\"%@`])((?:[^ \t#:]|(?<=\S)#|:(?=\S)|[ \t]++(?!#|\Z))++)" + REST)
BLOCK = re.compile(r"[>|][-+]?" + REST)
INDENTED = re.compile(r"(?:[ \t]+[^\r\n]*|[ \t]*)(?:\r?\n|\Z)")
# What YAML would not read as these words.
NO_WORDS = re.compile(r"(?i:true|false|yes|no|on|off|null|~|y|n|[-+.\d][\d_.,:eE+-]*|\d.*)\Z|.*:\Z")
Form = tuple[re.Pattern[str], Callable[[str], str], Callable[[str], str]]  # how a value is written, read and written


def body_start(original: str) -> int:
    """Return the offset at which the text begins: after the front matter, 0 without any."""
    front = FRONT.match(original)
    if not front:
        return 0
    end = re.compile(rf"^{re.escape(front[1])}[ \t]*\r?$", re.MULTILINE).search(original, front.end())
    return end.end() if end else 0


def field_passages(original: str, end: int, fields: Collection[str]) -> Iterator[Passage | Skipped]:
    """Yield a passage for each text in the values of top-level fields of the front matter, original[:end].

    Values that are no string, or written in a way that is not understood, are skipped.
    """
    front = FRONT.match(original, 0, end)
    if not front or not fields:
        return
    is_yaml = front[1] == "---"
    end = original.rindex("\n", 0, end) + 1  # of the last line before the closing marks
    for match in FIELD[front[1]].finditer(original, front.end(), end):
        name = match["name"].strip("\"'")
        if name == "[" and not is_yaml:
            return  # a table: its fields are not at the top level
        if name not in fields:
            continue
        passages = list((yaml_passages if is_yaml else toml_passages)(original, match, end))
        yield from passages
        if not passages and (not match["value"] or has_letter(match["value"])):
            reason = f"the value of '{name}' is not a text on its own: left untranslated"
            yield Skipped(line_number(original, match.start()), reason)


def toml_passages(original: str, match: re.Match[str], _: int) -> Iterator[Passage]:
    """Yield the passage of a string of TOML on one line."""
    yield from value_passages(match, ((DOUBLE, read_double, write_double), (LITERAL, read_literal, write_double)))


def yaml_passages(original: str, match: re.Match[str], end: int) -> Iterator[Passage]:
    """Yield the passages of a scalar of YAML: quoted, plain, or a block, with one for each paragraph or line."""
    at = original.find("\n", match.end(), end) + 1 or end
    lines: list[Span] = []  # of the value, below its first one
    while at < end and (line := INDENTED.match(original, at, end)) and line[0]:
        lines.append(Span(at, line.end()))
        at = line.end()
    while lines and not original[slice(*lines[-1])].strip():
        lines.pop()
    value = match["value"] or ""
    if BLOCK.match(value):
        yield from block_passages(original, lines, value[0] == ">")
    elif not lines:
        yield from value_passages(match, YAML_VALUES)
    else:
        texts = [value.rstrip(), *(original[slice(*line)].strip() for line in lines)]
        if all(PLAIN.fullmatch(text) and " #" not in text for text in texts):
            last = lines[-1].start + len(original[slice(*lines[-1])].rstrip())
            yield Passage(match.start("value"), last, (" ".join(texts),), lambda new: [write_plain(new[0])])


def block_passages(original: str, lines: Sequence[Span], folded: bool) -> Iterator[Passage]:
    """Yield a passage for each line of a block of YAML, or each paragraph of a folded one; none if they are uneven."""
    texts = [original[slice(*line)] for line in lines]
    indents = {len(text) - len(text.lstrip()) for text in texts if text.strip()}
    if len(indents) != 1 or any(text.strip() and "\t" in text[: min(indents)] for text in texts):
        return
    paragraph: list[int] = []
    for number, text in enumerate([*texts, ""]):
        if text.strip():
            paragraph.append(number)
        if paragraph and (not text.strip() or not folded):
            start = lines[paragraph[0]].start + min(indents)
            last = lines[paragraph[-1]].start + len(texts[paragraph[-1]].rstrip())
            words = " ".join(texts[index].strip() for index in paragraph)
            if has_letter(words):
                yield Passage(start, last, (words,), list)
            paragraph = []


def value_passages(match: re.Match[str], forms: Sequence[Form]) -> Iterator[Passage]:
    """Yield the passage of a value on one line, if it has words and one of these forms."""
    for pattern, read, write in forms:
        value = pattern.match(match["value"] or "")
        text = read(value[1]) if value else ""
        if value and text == text.strip() and "\n" not in text and has_letter(text):
            start = match.start("value")
            yield Passage(start, start + value.end(1), (text,), partial(write_value, write))


def write_value(write: Callable[[str], str], translations: Sequence[str]) -> list[str]:
    """Return the source of a value's only translation."""
    return [write(translations[0])]


def read_double(source: str) -> str:
    """Return the text of a string in double quotes; '' where it has an escape that JSON does not know."""
    try:
        return str(json.loads(source))
    except ValueError:
        return ""


def read_single(source: str) -> str:
    """Return the text of a string of YAML in single quotes."""
    return source[1:-1].replace("''", "'")


def read_literal(source: str) -> str:
    """Return the text of a string of TOML in single quotes."""
    return source[1:-1]


def read_plain(source: str) -> str:
    """Return the text of a scalar of YAML without quotes; '' where it is no string."""
    return "" if NO_WORDS.match(source) else source


def write_double(text: str) -> str:
    """Return a text in double quotes, for YAML and TOML."""
    return json.dumps(text, ensure_ascii=False)


def write_single(text: str) -> str:
    """Return a text in single quotes, for YAML."""
    return "'" + text.replace("'", "''") + "'"


def write_plain(text: str) -> str:
    """Return a text as a scalar of YAML without quotes, or with them where it would be read as something else."""
    return text if PLAIN.fullmatch(text) and " #" not in text and not NO_WORDS.match(text) else write_double(text)


YAML_VALUES: tuple[Form, ...] = (
    (DOUBLE, read_double, write_double),
    (SINGLE, read_single, write_single),
    (PLAIN, read_plain, write_plain),
)
