"""Find texts that are damaged, or in a language that is not usual on their side."""

import re

import ftfy
import numpy as np

from dragoman.check.columns import CHECKED, TextColumn
from dragoman.check.profile import Profile
from dragoman.text.identification import log_likelihoods

# Characters that the first and the later bytes of a letter in UTF-8 become where they are read as Latin-1 or cp1252.
FIRST_BYTES = frozenset(map(chr, range(0xC2, 0xF5)))
LATER_BYTES = frozenset(map(chr, range(0x80, 0xC0))) | frozenset(
    bytes([byte]).decode("cp1252", "ignore") for byte in range(0x80, 0xC0)
) - {""}
HIGHEST = 0x2200  # above all of them
FIRST, LATER = (np.array([chr(code) in some for code in range(HIGHEST)]) for some in (FIRST_BYTES, LATER_BYTES))
# A word with a question mark inside, or at its beginning.
LETTER = r"[^\W\d_]"
LOST = re.compile(rf"""(?<![^\s"'(\[„“‘-]){LETTER}*+(?:\?++{LETTER}++)++(?![^\s.,;:!?"')\]“”’-])""")
ACCENTED = 0.05  # share of the texts of a side that have a Latin letter beyond ASCII, where some may be lost
LOST_SHARE, FEWEST_LOST = 0.3, 4  # of the characters of a text, where whole words are lost
STRANGE, GARBAGE = 1.35, 3.0  # nats per character by which a text is less likely than half of the texts of its side
FEW_SIGNS = 8  # that may well be no words
LONG_ENOUGH = 25  # characters, for its language
SURE = 20.0  # nats by which another language is likelier than the usual one
CAPITALS = 0.4  # share of words with a capital, above which a text may be a list of names


def mojibake(column: TextColumn) -> np.ndarray:
    """Return (n,), bool: which texts have letters in UTF-8 that were read in an encoding of single bytes."""
    codes = np.minimum(column.codes, HIGHEST - 1)
    rows = column.rows_at(np.flatnonzero(FIRST[codes[:-1]] & LATER[codes[1:]]))
    for row in np.flatnonzero(rows):
        text = column.texts[row][:CHECKED]
        rows[row] = ftfy.fix_encoding(text) != text
    return rows


def lost_letters(column: TextColumn, other: TextColumn, share: float) -> np.ndarray:
    """Return (n,), bool: which texts have question marks for letters that an encoding does not have.

    share: of the texts of this side that have letters beyond ASCII.
    """
    rows = np.zeros(len(column.texts), bool)
    if "?" not in column.joined:
        return rows
    for row in np.flatnonzero(column.rows_at(np.flatnonzero(column.codes == ord("?")))):
        text, beside = column.texts[row][:CHECKED], other.texts[row]
        marks = text.count("?")
        many = FEWEST_LOST <= marks > LOST_SHARE * len(text.replace(" ", "")) and marks > 2 * beside.count("?")
        rows[row] = many or (share > ACCENTED and bool(LOST.search(text)) and not LOST.search(beside))
    return rows


def wrong_language(column: TextColumn, profile: Profile, number: int, strange: np.ndarray) -> np.ndarray:
    """Return (n,), bool: which texts are surely in another language than most of side `number`.

    Only long texts with unusual letters are looked at. Without py3langid there are none.
    """
    rows = (strange > STRANGE) & (column.lengths >= LONG_ENOUGH)
    if not rows.any() or not (usual := profile.usual_language(number)):
        return np.zeros(len(rows), bool)
    for row in np.flatnonzero(rows):
        words = column.texts[row].split()
        rows[row] = sum(word != word.lower() for word in words) <= CAPITALS * len(words)
        if rows[row]:
            scores = log_likelihoods(column.texts[row])
            rows[row] = max(scores.values()) - scores[usual] > SURE
    return rows


def garbage(
    column: TextColumn, other: TextColumn, profile: Profile, unknown: np.ndarray, strange: np.ndarray
) -> np.ndarray:
    """Return (n,), bool: which texts are no language: hardly any letters beside a text of letters, or no known word.

    unknown: which texts have no word of another text.
    """
    letters = [
        each.sum_by_text((profile.alphabet.word_letters[each.codes] > 0).astype(np.int32)) for each in (column, other)
    ]
    signs = (letters[0] < 0.1 * column.lengths) & (letters[1] > 0.5 * other.lengths)
    return (signs | (unknown & (strange > GARBAGE))) & (column.lengths >= FEW_SIGNS)
