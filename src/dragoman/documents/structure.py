"""Tell files with a structure that is not read from lines of text, which may be translated line by line."""

import re
from itertools import islice

from dragoman.data.spec import STRUCTURED

HEAD = 1 << 16  # bytes at the beginning of a file that are looked at
COMMENTS = ("#", "!", ";", "//", "/*", "*")  # what lines begin with that are looked past
SHAPES = [  # of the first three lines with anything in them
    (re.compile(pattern), shape, suffixes)
    for pattern, shape, suffixes in (
        (
            r"<\?xml|<!DOCTYPE|<[\w:.-]{1,60}(?:\s[^<>]{0,999})?>\s{0,99}<",
            "XML or HTML",
            ".html, .xlf, .xml (Android) or .resx",
        ),
        (r'[{\[]\s{0,99}(?:"[^"\n]{0,99}"\s{0,9}[:,]|[{\[]|[}\]])', "JSON", ".json, .arb or .jsonl"),
        (r'(?:msgid|msgctxt) "', "a catalogue of gettext", ".po"),
        (r"WEBVTT|(?:\d{1,9}\n)?\d\d:\d\d(?::\d\d)?[.,]\d{3} --> ", "subtitles", ".srt or .vtt"),
        (r"\[Script Info\]", "subtitles", ".ass"),
        (r'"[^"\n]{0,999}" ?= ?"', "keys and values", ".strings"),
        (r"[\w.-]{1,99} ?= ?\S[^\n]*\n[\w.-]{1,99} ?= ?\S", "keys and values", ".properties"),
        (r"---\n[\w.-]{1,99}:", "YAML", ".yml"),
    )
]


def structure_of(head: bytes, suffix: str) -> str:
    """Return what is wrong with translating a file line by line, in words, or '' where nothing is.

    head: the beginning of its bytes; suffix: of its name, which is none of a format that is read.
    """
    if suffix in STRUCTURED:
        return STRUCTURED[suffix]
    text = head.decode("utf-8", "replace")
    lines = (line.strip() for line in text.removeprefix("\ufeff").splitlines())
    begin = "\n".join(islice((line for line in lines if line and not line.startswith(COMMENTS)), 3))
    for pattern, shape, suffixes in SHAPES:
        if pattern.match(begin):
            return f"it looks like {shape}, which is read from files named {suffixes}"
    return ""
