"""List the rules of `dragoman check`, by names that programs can rely on."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class CheckRule:
    """A rule: an error stops training; a warning does harm, and `--write-clean` drops it; a note does not.

    The advice is empty where the message of each finding says what to do.
    """

    level: Level
    what: str
    advice: str


NEWLINE_TRAP = "replace it with a space: many programs end a line there"
RULES = {
    # The file.
    "unreadable": CheckRule("error", "the file cannot be read, or not to its end", ""),
    "line-counts": CheckRule(
        "error", "the two files have different numbers of lines", "find the line that one side lacks"
    ),
    "utf-8": CheckRule("error", "not UTF-8", "convert the file, or fix the line"),
    "columns": CheckRule(
        "error",
        "not two columns",
        "write source TAB target, without any other tab; in CSV, as many columns as the first row has",
    ),
    "record": CheckRule("error", "not a record with both texts", "fix the line, or name the keys with columns="),
    "no-pairs": CheckRule("error", "no pair with text on both sides", "check that this is the right file"),
    "direction": CheckRule(
        "warning",
        "two corpora have their languages in opposite order",
        "sources are in the language to translate from: swap the columns of the corpus where they are not",
    ),
    # The pair.
    "header": CheckRule("warning", "the first row looks like a header", "delete it, or it is learned as a pair"),
    "language": CheckRule("warning", "a unit has neither language", "skipped; columns= names other languages"),
    "empty": CheckRule("warning", "one side is empty", "find out why; training skips the pair"),
    "duplicate": CheckRule(
        "warning", "the same pair occurs earlier", "keep it once; to count it more often, use weight="
    ),
    "overlap": CheckRule(
        "warning", "the source is also in a later set", "drop it here, or scores will measure memorisation"
    ),
    "copy": CheckRule("warning", "source and target are the same text", "drop it: it teaches the model to copy"),
    "length-ratio": CheckRule("warning", "one side is far too long for the other", "check that these are translations"),
    "over-long": CheckRule("warning", "a side is too long for one sentence", "split it, or see --max-length"),
    "slipped": CheckRule(
        "warning", "the sides match better if one is shifted by a line", "look for the missing line above"
    ),
    "near-slip": CheckRule(
        "warning",
        "near a slip: where it begins and ends is uncertain",
        "find the missing line, or drop these pairs, too",
    ),
    "swapped": CheckRule("warning", "the sides look swapped", "swap source and target"),
    "one-language": CheckRule("warning", "both sides look like the same language", "drop it, or translate it"),
    "script": CheckRule(
        "warning", "written in a script that is rare on this side", "check that it is the right language"
    ),
    # Characters.
    "nul": CheckRule(
        "warning", "a NUL character", "the text is damaged: create it again; or UTF-16: iconv -f utf-16le -t utf-8"
    ),
    "carriage-return": CheckRule(
        "warning",
        "a carriage return inside a line",
        rf"{NEWLINE_TRAP}; if lines end so here, as in files of old Macs: tr '\r' '\n' < old.txt > new.txt",
    ),
    "line-separator": CheckRule("warning", "a Unicode line separator (VT FF FS GS RS NEL LS PS)", NEWLINE_TRAP),
    "byte-order-mark": CheckRule("warning", "a byte order mark inside the text", "delete it: files were concatenated"),
    "replacement-character": CheckRule(
        "warning", "U+FFFD: text was lost in a conversion", "create it again from the original"
    ),
    "bidi-control": CheckRule(
        "warning", "a control character for the writing direction", "delete it: the text is not what it looks like"
    ),
    "control-character": CheckRule("warning", "a control character", "delete it"),
    # Good to know.
    "blank": CheckRule("note", "both sides are empty", "fine: 'split --by document' ends a document here"),
    "unassigned-character": CheckRule("note", "a character that is unassigned, or for private use", "look at it"),
    "short-copy": CheckRule("note", "source and target are the same one or two words", "fine for names"),
    "several-targets": CheckRule("note", "the source occurs earlier with another target", "fine if both are right"),
    "placeholders": CheckRule("note", "placeholders differ (%s, {0}, ${name})", "fix it if a program fills them in"),
    "markup": CheckRule("note", "HTML entities or tags", "decode or strip them, unless you translate markup"),
    "not-nfc": CheckRule("note", "not in Unicode NFC", "nothing: the tokenizer normalises it"),
    "tab": CheckRule("note", "a tab inside a text", "nothing: --write-clean writes a space"),
    "outer-space": CheckRule("note", "white space around a text", "nothing, or strip it"),
    "cr-line-end": CheckRule("note", "lines end in CR LF", "nothing: it is read as a line end"),
    "line-break": CheckRule("note", "a line break inside a text", "nothing: it is read as a space"),
    "byte-order-mark-first": CheckRule("note", "the file begins with a byte order mark", "nothing: it is skipped"),
    "fuzzy": CheckRule("note", "a message is fuzzy", "skipped; review it in the catalogue"),
    "obsolete": CheckRule("note", "a message is obsolete", "skipped"),
    "plural": CheckRule("note", "a message has three or more plural forms", "skipped"),
    "variant": CheckRule("note", "a unit has several texts in one language", "the first is taken"),
}
