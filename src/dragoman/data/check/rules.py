"""List the rules of `dragoman check`, by names that programs can rely on."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class CheckRule:
    """Describe a rule: an error stops training; a warning does harm, and `--write-clean` drops it; a note does not."""

    level: Level
    what: str
    advice: str


NEWLINE_TRAP = "many programs take it for the end of a line: make it a space"
RULES = {
    # The file.
    "unreadable": CheckRule("error", "the file cannot be read to its end", "see the message below the table"),
    "line-counts": CheckRule(
        "error", "the two files differ in their number of lines", "find the line that one side lacks"
    ),
    "utf-8": CheckRule("error", "not UTF-8", "convert the file, or mend the line"),
    "columns": CheckRule("error", "not two columns", "write source TAB target, with no other tab"),
    "record": CheckRule("error", "not a record with both texts", "mend the line, or name the keys with columns="),
    "no-pairs": CheckRule("error", "no pair with text on both sides", "check that this is the right file"),
    # The pair.
    "empty": CheckRule("warning", "a side is empty", "training leaves the pair out; find out why"),
    "duplicate": CheckRule(
        "warning", "the pair stands further up already", "keep it once; weight= makes a corpus count more"
    ),
    "overlap": CheckRule("warning", "the source is also in a later set", "drop it here, or scores measure memory"),
    "copy": CheckRule("warning", "source and target are the same text", "drop it: it teaches the model to copy"),
    "length-ratio": CheckRule(
        "warning", "one side is far too long for the other", "look whether these are translations"
    ),
    "over-long": CheckRule("warning", "a side is too long for one sentence", "split it, or see --max-length"),
    "slipped": CheckRule("warning", "the sides fit better one line further", "find the line above that one side lacks"),
    "swapped": CheckRule("warning", "the sides look swapped", "exchange source and target"),
    "one-language": CheckRule("warning", "both sides look like one language", "drop it, or translate it"),
    "script": CheckRule(
        "warning", "written in a script that is rare on this side", "look whether it is the right language"
    ),
    # Characters.
    "nul": CheckRule("warning", "NUL in the text", "the text was damaged, or is UTF-16: make it anew"),
    "carriage-return": CheckRule("warning", "a carriage return inside a line", NEWLINE_TRAP),
    "line-separator": CheckRule("warning", "a Unicode line separator (VT FF FS GS RS NEL LS PS)", NEWLINE_TRAP),
    "byte-order-mark": CheckRule("warning", "a byte order mark inside the text", "delete it: files were joined"),
    "replacement-character": CheckRule(
        "warning", "U+FFFD, what is put for unreadable text", "make it anew from the original"
    ),
    "bidi-control": CheckRule(
        "warning", "a control that turns the direction of writing", "delete it: it hides what is written"
    ),
    "control-character": CheckRule("warning", "a control character", "delete it"),
    # Good to know.
    "unassigned-character": CheckRule(
        "note", "a character that Unicode leaves undefined, or to private use", "look at it"
    ),
    "short-copy": CheckRule("note", "source and target are the same word or two", "right for names"),
    "several-targets": CheckRule("note", "the source has another target further up", "fine where both are right"),
    "placeholders": CheckRule(
        "note", "placeholders differ (%s, {0}, ${name})", "mend it where a program fills them in"
    ),
    "markup": CheckRule("note", "HTML entities or tags", "decode or strip them, unless you translate markup"),
    "not-nfc": CheckRule("note", "not in Unicode NFC", "nothing: the tokenizer does it"),
    "outer-space": CheckRule("note", "white space around a text", "nothing, or strip it"),
    "cr-line-end": CheckRule("note", "lines end in CR LF", "nothing: it is read as a line end"),
    "line-break": CheckRule("note", "a line break inside a text", "nothing: it is read as a space"),
    "byte-order-mark-first": CheckRule("note", "the file begins with a byte order mark", "nothing: it is skipped"),
    "fuzzy": CheckRule("note", "a message is fuzzy", "left out; review it in the catalogue"),
    "obsolete": CheckRule("note", "a message is obsolete", "left out"),
    "plural": CheckRule("note", "a message has three or more plural forms", "left out"),
    "variant": CheckRule("note", "a unit has several texts in one language", "the first is taken"),
}
DROPS = {name for name, rule in RULES.items() if rule.level != "note"}
