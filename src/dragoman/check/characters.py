"""Classify single characters: those that text should not have, and the script that a letter belongs to."""

import unicodedata

import numpy as np

from dragoman.text.scripts import script_of

FIRST_SEEN, PLAIN = 0, 1
KINDS = (
    "", "plain", "nul", "carriage-return", "line-separator", "byte-order-mark", "replacement-character",
    "bidi-control", "control-character", "unassigned-character", "invisible-character",
)  # fmt: skip
KIND = {name: number for number, name in enumerate(KINDS)}
NAMED = {
    "\0": "nul",
    "\r": "carriage-return",
    "\ufeff": "byte-order-mark",
    "\ufffd": "replacement-character",
    **dict.fromkeys("\v\f\x1c\x1d\x1e\x85\u2028\u2029", "line-separator"),
    **dict.fromkeys("\u00ad\u200b\u2060", "invisible-character"),
    **dict.fromkeys("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", "bidi-control"),
}


MOST_LETTERS = 5  # of a word, which leaves most of its ending out
LETTERS = {"HANGUL": 2, **dict.fromkeys("CJK HIRAGANA KATAKANA THAI LAO KHMER MYANMAR".split(), 1)}


class Alphabet:
    """Map code points to kinds and to scripts; the tables are filled in as characters are first seen."""

    def __init__(self) -> None:
        self.kinds = np.zeros(0x110000, np.uint8)
        self.scripts = np.zeros(0x110000, np.uint8)  # 0: no letter
        self.names = [""]  # of the scripts
        self.word_letters = np.zeros(0x110000, np.uint8)  # how many letters of a word with this one tell it; 0: none
        self.small = np.arange(0x110000, dtype=np.uint32)  # the small letter of a capital

    def kinds_of(self, codes: np.ndarray) -> np.ndarray:
        """Return the kinds of code points (c,), as indices of KINDS. Afterwards `scripts` covers them as well."""
        kinds = self.kinds[codes]
        if not kinds.all():
            for code in np.unique(codes[kinds == FIRST_SEEN]):
                self.kinds[code] = KIND[kind_of(chr(code))]
                self.scripts[code] = self.script_number(script_of(chr(code)))
                if chr(code).isalnum():
                    self.word_letters[code] = LETTERS.get(script_of(chr(code)), MOST_LETTERS)
                    self.small[code] = ord(chr(code).lower()[0])
            kinds = self.kinds[codes]
        return kinds

    def script_number(self, script: str) -> int:
        """Return the index of a script in `names`, adding a new one; 0 for '', no letter, and where `names` is full."""
        if script not in self.names and len(self.names) < 256:  # Unicode has about 170
            self.names.append(script)
        return self.names.index(script) if script in self.names else 0


def kind_of(character: str) -> str:
    """Return the kind of a character, one of the names in KINDS."""
    if character in NAMED:
        return NAMED[character]
    category = unicodedata.category(character)
    if category == "Cc" and character not in "\t\n":
        return "control-character"
    return "unassigned-character" if category in ("Cn", "Co") else "plain"
