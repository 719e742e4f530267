"""Bring texts into the normal forms of Unicode, in linear time."""

import unicodedata
from itertools import pairwise
from typing import Literal

import regex

MARKS = 1000
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
