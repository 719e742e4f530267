"""The scripts that have no spaces between words: there, each character counts as a word, and a line end is no space."""

from functools import cache
from typing import Any

# For a set of characters of the library `regex`, [...], or a part of one.
SCRIPTS = ("Han", "Hiragana", "Katakana", "Bopomofo", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan")
UNSPACED = "".join(rf"\p{{{script}}}" for script in SCRIPTS)
# These and what is as wide, such as their punctuation; but not Korean, which has spaces, emoji, and the marks at the
# end of a Tibetan clause, which a space follows.
WIDE = rf"[{UNSPACED}\p{{EA=W}}\p{{EA=F}}\p{{EA=H}}--\p{{Hangul}}--\p{{Emoji_Presentation}}--[།-༔]--\s]"
QUOTE_OR_DASH = r"[\p{P}&&\p{EA=A}]"  # punctuation of many scripts, such as “—”
LINE_END = r"[ \t\f\v]*+[\r\n][ \t\f\v\r\n]*+"


@cache
def needless_line_end() -> Any:
    """Return the pattern of a line end, with the white space around it, that no space stands for.

    Both sides are wide, or one is, and the other one is punctuation.
    """
    import regex  # only here: most commands join no lines

    pattern = rf"(?<={WIDE}){LINE_END}(?={WIDE}|{QUOTE_OR_DASH})|(?<={QUOTE_OR_DASH}){LINE_END}(?={WIDE})"
    return regex.compile(pattern, regex.VERSION1)


def needless_line_ends(text: str) -> list[tuple[int, int]]:
    """Return start and end of each line end of a text that no space stands for, see `needless_line_end`."""
    if "\n" not in text and "\r" not in text:
        return []
    return [match.span() for match in needless_line_end().finditer(text)]


def drop_needless_line_ends(text: str) -> str:
    """Return a text without its `needless_line_ends`; all others are still in it."""
    return needless_line_end().sub("", text) if "\n" in text or "\r" in text else text
