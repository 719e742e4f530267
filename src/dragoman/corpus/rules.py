"""What a check looks for. Each finding has a name that programs can rely on."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Rule:
    """error: training stops; warning: such pairs do harm, and `--write-clean` drops them; note: good to know."""

    level: Level
    what: str
    advice: str


NEWLINE_TRAP = "many programs take it for the end of a line: make it a space"
RULES = {
    # The file.
    "unreadable": Rule("error", "the file cannot be read to its end", "see the message below the table"),
    "line-counts": Rule("error", "the two files differ in their number of lines", "find the line that one side lacks"),
    "utf-8": Rule("error", "not UTF-8", "convert the file, or mend the line"),
    "columns": Rule("error", "not two columns", "write source TAB target, with no other tab"),
    "record": Rule("error", "not a record with both texts", "mend the line, or name the keys with columns="),
    "no-pairs": Rule("error", "no pair with text on both sides", "check that this is the right file"),
    # The pair.
    "empty": Rule("warning", "a side is empty", "training leaves the pair out; find out why"),
    "duplicate": Rule(
        "warning", "the pair stands further up already", "keep it once; weight= makes a corpus count more"
    ),
    "overlap": Rule("warning", "the source is also in a later set", "drop it here, or scores measure memory"),
    "copy": Rule("warning", "source and target are the same text", "drop it: it teaches the model to copy"),
    "length-ratio": Rule("warning", "one side is far too long for the other", "look whether these are translations"),
    "over-long": Rule("warning", "a side is too long for one sentence", "split it, or see --max-length"),
    "slipped": Rule("warning", "the sides fit better one line further", "find the line above that one side lacks"),
    "swapped": Rule("warning", "the sides look swapped", "exchange source and target"),
    "one-language": Rule("warning", "both sides look like one language", "drop it, or translate it"),
    "script": Rule("warning", "written in a script that is rare on this side", "look whether it is the right language"),
    # Characters.
    "nul": Rule("warning", "NUL in the text", "the text was damaged, or is UTF-16: make it anew"),
    "carriage-return": Rule("warning", "a carriage return inside a line", NEWLINE_TRAP),
    "line-separator": Rule("warning", "a Unicode line separator (VT FF FS GS RS NEL LS PS)", NEWLINE_TRAP),
    "byte-order-mark": Rule("warning", "a byte order mark inside the text", "delete it: files were joined"),
    "replacement-character": Rule(
        "warning", "U+FFFD, what is put for unreadable text", "make it anew from the original"
    ),
    "bidi-control": Rule(
        "warning", "a control that turns the direction of writing", "delete it: it hides what is written"
    ),
    "control-character": Rule("warning", "a control character", "delete it"),
    # Good to know.
    "unassigned-character": Rule("note", "a character that Unicode leaves undefined, or to private use", "look at it"),
    "short-copy": Rule("note", "source and target are the same word or two", "right for names"),
    "several-targets": Rule("note", "the source has another target further up", "fine where both are right"),
    "placeholders": Rule("note", "placeholders differ (%s, {0}, ${name})", "mend it where a program fills them in"),
    "markup": Rule("note", "HTML entities or tags", "decode or strip them, unless you translate markup"),
    "not-nfc": Rule("note", "not in Unicode NFC", "nothing: the tokenizer does it"),
    "outer-space": Rule("note", "white space around a text", "nothing, or strip it"),
    "cr-line-end": Rule("note", "lines end in CR LF", "nothing: it is read as a line end"),
    "line-break": Rule("note", "a line break inside a text", "nothing: it is read as a space"),
    "byte-order-mark-first": Rule("note", "the file begins with a byte order mark", "nothing: it is skipped"),
    "fuzzy": Rule("note", "a message is fuzzy", "left out; review it in the catalogue"),
    "obsolete": Rule("note", "a message is obsolete", "left out"),
    "plural": Rule("note", "a message has three or more plural forms", "left out"),
    "variant": Rule("note", "a unit has several texts in one language", "the first is taken"),
}
DROPS = {name for name, rule in RULES.items() if rule.level != "note"}
