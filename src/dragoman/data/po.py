"""Read catalogues of gettext (PO): messages and their translations."""

import io
import re
from collections.abc import Iterator

import polib

from dragoman.data.lines import OnProblem, Problem, Row, display_path, join_lines, quote_line, read_lines
from dragoman.errors import DragomanError

LARGEST = 64 << 20  # characters: polib holds a whole catalogue, and the largest known ones have a tenth of this
# Of one message. polib needs quadratic time for the lines of a string or a comment.
MAX_LINES, MAX_CHARACTERS = 10_000, 1 << 20
CHARSET = re.compile(rb'"Content-Type:[^"\n]{0,80}charset=([\w.:-]{1,40})', re.IGNORECASE)
WRONG = re.compile(r"Syntax error in po file \(line (\d+)\)(?:: (.+))?")  # what polib says
PART = re.compile(r'\s*(?:#[|~]\s*)?(msg|"|#(?![:,]))')


class CatalogueText(str):
    """The text of a catalogue. polib calls `splitlines`, which would split at more than line feeds."""

    def splitlines(self, keepends: bool = False) -> list[str]:
        """Return the lines between line feeds, whatever `keepends`; no other character ends a line."""
        return self.split("\n")


def read_po(path: str, on_problem: OnProblem) -> Iterator[Row]:
    """Yield a row for each message, with the line that it begins at; an untranslated one has an empty target.

    The text is in the encoding that the header declares. Obsolete and fuzzy (not reviewed) messages are left out and
    reported. A message in singular and plural gives two rows in languages with two forms, and one, of the plural, in
    languages with one form; in others it is left out and reported, because their forms have no certain counterpart.
    Raise DragomanError where the file is not a PO file or is too large.
    """
    whole = io.StringIO()
    lines = characters = 0  # of the message so far
    for number, line in enumerate(read_lines(path, on_problem, CHARSET), start=1):
        if line and not closes_quote(line):  # polib would cut off the last character
            raise DragomanError(f"{display_path(path)}:{number}: not a readable PO file: a quote is not closed")
        if part := PART.match(line or ""):
            lines, characters = (1, 0) if part[1] == "msg" else (lines + 1, characters + len(line or ""))
        if lines > MAX_LINES or characters > MAX_CHARACTERS:
            limits = f"{MAX_LINES:,} lines or {MAX_CHARACTERS:,} characters"
            raise DragomanError(f"{display_path(path)}:{number}: a message of more than {limits}")
        whole.write(f"{line or ''}\n")
        if whole.tell() > LARGEST:
            raise DragomanError(f"{display_path(path)}: a catalogue of more than {LARGEST >> 20} MiB; split it")
    # Text without a line feed might be taken for the name of a file.
    text = CatalogueText(whole.getvalue() or "\n")
    try:
        messages = polib.pofile(text)
    except (OSError, ValueError, LookupError) as error:
        place, reason = display_path(path), str(error)
        if wrong := WRONG.fullmatch(reason):
            line = text.split("\n")[int(wrong[1]) - 1]
            place = f"{place}:{wrong[1]}"
            reason = f"{wrong[2] or 'no line of a message, or not in its place'}: {quote_line(line)}"
        raise DragomanError(f"{place}: not a readable PO file: {reason}") from None
    for message in messages:
        number = message.linenum or 1  # polib gives the first message of a catalogue without a header 0
        if message.obsolete:
            on_problem(Problem("obsolete", path, number))
        elif message.fuzzy:
            on_problem(Problem("fuzzy", path, number))
        else:
            forms = [form for _, form in sorted(message.msgstr_plural.items())]
            match forms:
                case []:
                    pairs = [(message.msgid, message.msgstr)]
                case [form]:
                    pairs = [(message.msgid_plural, form)]
                case [singular, plural]:
                    pairs = [(message.msgid, singular), (message.msgid_plural, plural)]
                case _:
                    pairs = []
                    on_problem(Problem("plural", path, number))
            for source, target in pairs:
                source, target = (join_lines(text, path, number, on_problem) for text in (source, target))
                yield Row(number, source, target)


def closes_quote(line: str) -> bool:
    """Return whether a line ends with the end of its quote, has no quote, or is a comment."""
    line = line.strip()
    return line.startswith("#") or '"' not in line or (line.count('"') > 1 and line.endswith('"'))
