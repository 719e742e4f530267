"""Find the texts in the front matter of a Markdown document, which is YAML or TOML: values of chosen fields."""

import json
import re
from collections.abc import Iterator

from dragoman.documents.document import DocumentConfig, Passage, Skipped, skipped_lines
from dragoman.documents.messages import Entry, Plural, entry_passages
from dragoman.documents.yaml import Reader

FRONT = re.compile(r"(---|\+\+\+)[ \t]*\r?\n")
# A field of TOML with a string on one line, or the head of a table, below which fields are not at the top.
TOML_FIELD = re.compile(
    r"""^(?P<name>[\w-]+|"[^"\r\n]*"|\[)[ \t]*=?[ \t]*
    (?P<value>"(?:[^"\\\r\n]|\\.)*+"|'[^'\r\n]*+'|(?P<other>[^\r\n]*))""",
    re.MULTILINE | re.VERBOSE,
)


def body_start(original: str) -> int:
    """Return the offset at which the text begins: after the front matter, 0 without any."""
    front = FRONT.match(original)
    if not front:
        return 0
    end = re.compile(rf"^{re.escape(front[1])}[ \t]*\r?$", re.MULTILINE).search(original, front.end())
    return end.end() if end else 0


def field_passages(original: str, end: int, config: DocumentConfig, skipped: list[Skipped]) -> list[Passage]:
    """Return a passage for each text in the front matter, original[:end], that is under a key of `config`.

    What cannot be read is added to `skipped`.
    """
    front = FRONT.match(original, 0, end)
    if not front or not config.keys:
        skipped += [Skipped(0, f"no front matter, so no key '{key}'") for key in config.keys]
        return []
    start, end = front.end(), original.rindex("\n", 0, end) + 1  # of the last line before the closing marks
    entries: list[Entry | Plural] = []
    reasons: list[tuple[int, str]] = []
    if front[1] == "+++":
        entries += toml_entries(original, start, end, reasons)
    else:
        reader = Reader(" " * (start - 1) + "\n" + original[start:end], reasons)
        try:
            entries += reader.entries()
        except ValueError as error:
            skipped.append(Skipped(reader.line, f"the front matter is not YAML ({error}): left untranslated"))
    skipped += skipped_lines(original, reasons)
    known = {entry.key for entry in entries}
    skipped += [Skipped(0, f"no text under the key '{key}'") for key in config.keys if key not in known]
    return entry_passages(original, entries, config, skipped)


def toml_entries(original: str, start: int, end: int, reasons: list[tuple[int, str]]) -> Iterator[Entry]:
    """Yield the strings of TOML on one line that stand at its top; others that are chosen are added to `reasons`."""
    for field in TOML_FIELD.finditer(original, start, end):
        name, value = field["name"].strip('"'), field["value"]
        if name == "[":
            return
        if field["other"] is None and not value.startswith(('"""', "'''")):
            try:
                text = json.loads(value) if value.startswith('"') else value[1:-1]
            except ValueError:  # an escape that JSON lacks
                text = ""
            yield Entry(name, text, *field.span("value"), json.dumps)
        elif re.match("\"\"\"|'''", value):
            reasons.append((field.start(), f"'{name}' is a string of several lines: left untranslated"))
