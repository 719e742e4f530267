"""Bring texts into the normal forms of Unicode, in linear time, and take out of them what nobody sees."""

import unicodedata
from itertools import pairwise
from typing import Literal

import regex

MARKS = 1000
MANY = 64  # texts
# Nobody sees these. But two of them join or part the letters of Persian or Hindi and the parts of an emoji, and one
# parts the words of Thai or Khmer: these stay behind other characters than those of the scripts named here.
INVISIBLE = regex.compile(
    r"""[\u00ad\u061c\u180e\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]
    | (?<! [\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}] ) \u200b
    | (?<= \A | [\s\p{ASCII}\p{Latin}\p{Greek}\p{Cyrillic}\p{Hangul}\p{Han}\p{Hiragana}\p{Katakana}] )
      [\u200c\u200d]++""",
    regex.VERBOSE,
)
WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}  # full-width Latin
RUN_OF_MARKS = regex.compile(rf"[\p{{M}}\uff9e\uff9f]{{{MARKS}}}")  # two letters are marks in NFKC


def normal_form(text: str, form: Literal["NFC", "NFKC"] = "NFC") -> str:
    """Return a text in a normal form of Unicode.

    Of marks without a letter between them, MARKS at a time are put in order: that takes quadratic time, and no script
    has a tenth as many.
    """
    if len(text) < MARKS or text.isascii():
        return unicodedata.normalize(form, text)
    bounds = [0, *(run.end() for run in RUN_OF_MARKS.finditer(text)), len(text)]
    return "".join(unicodedata.normalize(form, text[start:end]) for start, end in pairwise(bounds))


def normal_forms(texts: list[str]) -> list[str]:
    """Return texts in NFC. Most are so already, which is seen fastest of many at a time."""
    normal: list[str] = []
    for start in range(0, len(texts), MANY):
        some = texts[start : start + MANY]
        joined = "\n".join(some)
        short = max(map(len, some)) < MARKS
        if joined.isascii() or (short and unicodedata.is_normalized("NFC", joined)):
            normal += some
        else:
            normal += map(normal_form, some)
    return normal


def visible_characters(text: str, *, narrow: bool = True) -> str:
    """Return a text without what nobody sees in it, such as soft hyphens; narrow: with full-width Latin as ASCII."""
    if text.isascii():
        return text
    text = INVISIBLE.sub("", text)
    return text.translate(WIDE) if narrow else text
