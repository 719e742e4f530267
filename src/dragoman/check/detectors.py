"""Detect the rows of a block that break a rule."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from dragoman.check import damage
from dragoman.check.characters import KIND, KINDS
from dragoman.check.columns import CHECKED, RowBlock, TextColumn
from dragoman.check.profile import Profile, ends_in_a_letter, ends_in_a_stop, log_ratios
from dragoman.errors import UsageError
from dragoman.text import verbatim
from dragoman.text.verbatim.numbers import compare_numbers

SOURCE, TARGET = 0, 1
MARKUP = re.compile(r"&(?:[a-z]{2,8}|#\d{1,7}|#x[0-9a-f]{1,6});|</?[a-z][a-z0-9]{0,9}(?:\s[^<>\n]{0,200})?/?>", re.I)
COPIED_WORDS = 3  # shorter copies are often names
COPIED_CHARACTERS = 20
# In nats, of texts that are likelier on the other side. A pair is swapped if both sides say so; it takes more to
# doubt one side alone. Among 390,000 human translations the first raises one false alarm, the second seven.
SWAPPED = -10.0
ONE_LANGUAGE = -40.0
PER_CHARACTER = -0.3
HALF_TRANSLATED = 10.0  # nats by which it is surprising which words both sides have
FEWEST_COPIED, HALF = 3, 0.35  # words in a row that are not translated; their share of a text that is so by half
LOOKED_AT = 2000  # characters of a text in which such words are looked for
CUT_OFF = 0.45  # of the usual length of a target
LONG_SOURCE = 30  # characters of a source whose target may be cut off
UNUSUAL_END = 0.03  # share of the sources with a full stop whose target has none
DOUBLED = 1.4  # times the usual ratio of lengths
LONG_DOUBLE, DISTINCT = 9, 5  # characters, and different ones, of a text that may be another one twice
FILLED_IN = re.compile(r"\{%[^%{}]*|\{[^{}\s]*\}?|%\(\w*\)\w|(?:[%$]|<\?)[-+.#\d]*\w*")  # roughly, but fast
DIGITS = re.compile("[0-9]+")
# Where it stands, 4:20 may be 16:20 in another language.
HALF_DAY = re.compile(r"[0-9] ?[ap]\.? ?m\b|o[’']clock|오전|오후|午[前後后]|上午|下午", re.IGNORECASE)
TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9]{0,9}")
FEW_LETTERS = 10  # too few to judge a script by
FEW_TEXTS = 20  # too few to say what is rare
RARE = 0.01  # share of the texts of a side in a script


@dataclass(frozen=True)
class CheckLimits:
    """Set how far a pair may be from what is usual."""

    ratio: float = 3.0
    "maximum ratio of the lengths of the two sides, as a multiple of the corpus's median"
    length: int = 2000
    "maximum number of characters on a side"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ratio) and self.ratio > 1):
            raise UsageError(f"--max-ratio must be a number above 1, not {self.ratio}")
        if not 1 <= self.length <= CHECKED:
            raise UsageError(f"--max-length must be from 1 to {CHECKED:,}, not {self.length}")


class Hits(NamedTuple):
    """The rows that one rule applies to, as a mask (n,), and the side that is wrong: None for the whole pair.

    scores: what was measured of each row, (n,). repeats: the row that each row repeats, among those of its set, (n,).
    """

    rule: str
    rows: np.ndarray
    side: int | None = None
    scores: np.ndarray | None = None
    repeats: np.ndarray | None = None

    def within(self, rows: slice) -> "Hits":
        """Return the hits of the rows in a slice, such as one block, from the hits of a whole corpus."""
        scores, repeats = (None if values is None else values[rows] for values in (self.scores, self.repeats))
        return self._replace(rows=self.rows[rows], scores=scores, repeats=repeats)


def detect(
    block: RowBlock, profile: Profile, limits: CheckLimits, unknown: np.ndarray, copied: np.ndarray
) -> Iterator[Hits]:
    """Yield the hits of all rules that look at one block alone.

    unknown (n, 2), bool: which texts have words, but none that another text of their side has. copied (n,): how
    surprising it is which words both sides have, in nats.

    A pair with an empty side is a hit of the rule 'empty', a row without any text one of 'blank'. Neither is a hit of
    another rule, but a pair with an empty side may be 'over-long', too.
    """
    yield Hits("empty", ~block.has_text & ~block.is_blank)
    yield Hits("blank", block.is_blank)
    for number, column in enumerate(block.columns):
        other = block.columns[1 - number]
        for hits in (
            *character_hits(column, profile),
            *form_hits(column),
            *damage_hits(column, other, profile, number, unknown[:, number] & ~unknown[:, 1 - number]),
        ):
            yield hits._replace(rows=hits.rows & block.has_text, side=number)
        yield Hits("over-long", (column.lengths > limits.length) & ~block.is_blank, number)
    for hits in (
        *copy_hits(block),
        *length_hits(block, profile, limits),
        *language_hits(block, profile, copied),
        *verbatim_hits(block),
    ):
        yield hits._replace(rows=hits.rows & block.has_text)


def character_hits(column: TextColumn, profile: Profile) -> Iterator[Hits]:
    """Yield hits of the rules for characters that text should not have, one rule per kind of character."""
    kinds = profile.alphabet.kinds_of(column.codes)
    for kind in np.flatnonzero(np.bincount(kinds, minlength=len(KINDS))):
        if kind > KIND["plain"]:
            yield Hits(KINDS[kind], column.rows_at(np.flatnonzero(kinds == kind)))


def form_hits(column: TextColumn) -> Iterator[Hits]:
    """Yield hits of the rules 'not-nfc', 'tab', 'outer-space' and 'markup'."""
    yield Hits("tab", column.has_tab)
    yield Hits("not-nfc", ~column.is_normal)
    yield Hits("outer-space", column.outer_space)
    if "&" in column.joined or "<" in column.joined:
        starts = [match.start() for match in MARKUP.finditer(column.joined)]
        yield Hits("markup", column.rows_at(np.array(starts, int)))


def copy_hits(block: RowBlock) -> Iterator[Hits]:
    """Yield hits of the rules 'copy' and 'short-copy': the target is the same text as the source."""
    sources, targets = (column.texts for column in block.columns)
    same = np.flatnonzero(block.columns[SOURCE].hashes == block.columns[TARGET].hashes)
    long, short = np.zeros((2, len(block)), bool)
    for row in same:
        text = sources[row]
        if text == targets[row] and any(map(str.isalpha, text)):
            is_long = len(text.split()) >= COPIED_WORDS or len(text) >= COPIED_CHARACTERS
            (long if is_long else short)[row] = True
    yield Hits("copy", long)
    yield Hits("short-copy", short)


def damage_hits(
    column: TextColumn, other: TextColumn, profile: Profile, number: int, unknown: np.ndarray
) -> Iterator[Hits]:
    """Yield hits of the rules 'mojibake', 'lost-letters', 'wrong-language' and 'garbage'.

    unknown (n,), bool: which texts have words that no other text has, beside one that has.
    """
    strange = profile.strangeness(column, number)
    yield Hits("mojibake", damage.mojibake(column))
    yield Hits("lost-letters", damage.lost_letters(column, other, profile.accented_share(number)))
    yield Hits("wrong-language", damage.wrong_language(column, profile, number, strange), scores=strange)
    yield Hits("garbage", damage.garbage(column, other, profile, unknown, strange), scores=strange)


def length_hits(block: RowBlock, profile: Profile, limits: CheckLimits) -> Iterator[Hits]:
    """Yield hits of the rules 'length-ratio', 'cut-off' and 'doubled'."""
    beyond = log_ratios(block) - profile.usual_log_ratio()
    ratios = np.exp(beyond)
    yield Hits("length-ratio", np.abs(beyond) > np.log(limits.ratio), scores=ratios)
    stops, unusual = profile.ends
    cut = ends_in_a_stop(block) & ends_in_a_letter(block, profile.alphabet) & (ratios < CUT_OFF)
    cut &= (block.columns[SOURCE].lengths >= LONG_SOURCE) & (unusual < UNUSUAL_END * stops)
    yield Hits("cut-off", cut, TARGET, ratios)
    for number, column in enumerate(block.columns):
        long = (ratios if number == TARGET else 1 / ratios) > DOUBLED
        rows = long & (column.lengths >= LONG_DOUBLE)
        for row in np.flatnonzero(rows):
            text = column.texts[row].strip()
            half = len(text) // 2
            rows[row] = (
                text[:half].rstrip() == text[-half:].lstrip()
                and not text[half : len(text) - half].strip()
                and len(set(text)) > DISTINCT
            )
        yield Hits("doubled", rows, number, ratios)


def language_hits(block: RowBlock, profile: Profile, copied: np.ndarray) -> Iterator[Hits]:
    """Yield hits of the rules 'swapped', 'one-language', 'half-translated' and 'script'. copied: as in `detect`."""
    source, target = (profile.side_evidence(column, n) for n, column in enumerate(block.columns))
    source_each, target_each = (
        evidence / np.maximum(column.lengths, 1)
        for evidence, column in zip((source, target), block.columns, strict=True)
    )
    same = block.columns[SOURCE].hashes == block.columns[TARGET].hashes
    doubted = (source_each < PER_CHARACTER) & (target_each < PER_CHARACTER) & ~same
    swapped = doubted & (source < SWAPPED) & (target < SWAPPED)
    yield Hits("swapped", swapped)
    doubtful = [
        (source < ONE_LANGUAGE) & (source_each < PER_CHARACTER) & (target > 0),
        (target < ONE_LANGUAGE) & (target_each < PER_CHARACTER) & (source > 0),
    ]
    half = (copied > HALF_TRANSLATED) & ~same & ~swapped
    for number, rows in enumerate(doubtful):
        yield Hits("one-language", rows & ~same, number)
        half &= ~rows
    for row in np.flatnonzero(half):
        half[row] = is_half_copied(*(column.texts[row][:LOOKED_AT] for column in block.columns))
    yield Hits("half-translated", half, scores=copied)
    for number, column in enumerate(block.columns):
        script, share, letters = profile.main_script(column)
        texts = profile.scripts[number]
        rare = (texts[script] <= max(RARE * texts.sum(), 1)) & (share == 1) & (letters >= FEW_LETTERS)
        rare &= texts.sum() >= FEW_TEXTS
        yield Hits("script", rare & ~swapped & ~doubtful[number], number)


def is_half_copied(source: str, target: str) -> bool:
    """Return whether a good part of a target, its beginning or its end, are words that stand in its source in a row.

    Words with a capital do not count, nor does what begins with one inside a sentence, a title, or has a sign for a
    word, which is code: both are often left.
    """
    words = source.split(), target.split()
    run = SequenceMatcher(None, *words, autojunk=False).find_longest_match()
    if run.size < HALF * len(words[TARGET]) or 0 < run.b < len(words[TARGET]) - run.size:
        return False
    copied = words[TARGET][run.b : run.b + run.size]
    if (run.b and copied[0] != copied[0].lower()) or not all(any(map(str.isalnum, word)) for word in copied):
        return False
    return len({word for word in copied if word.isalpha() and word == word.lower()}) >= FEWEST_COPIED


def verbatim_hits(block: RowBlock) -> Iterator[Hits]:
    """Yield hits of the rules 'placeholders', 'tags' and 'numbers': what must come through is not the same."""
    placeholders, tags, numbers = np.zeros((3, len(block)), bool)
    sources, targets = (column.texts for column in block.columns)
    for rows, signs, differ in ((placeholders, "%{$<", differing_placeholders), (tags, "<", differing_tags)):
        for row in np.flatnonzero(np.logical_or(*(column.rows_with(signs) for column in block.columns))):
            rows[row] = differ(sources[row][:CHECKED], targets[row][:CHECKED])
    for row in np.flatnonzero(np.logical_and(*(column.rows_with("0123456789") for column in block.columns))):
        numbers[row] = differing_numbers(sources[row][:CHECKED], targets[row][:CHECKED])
    yield from (Hits("placeholders", placeholders), Hits("tags", tags), Hits("numbers", numbers))


def differing_placeholders(source: str, target: str) -> bool:
    """Return whether two texts have different placeholders that a program fills in."""
    if sorted(FILLED_IN.findall(source)) == sorted(FILLED_IN.findall(target)):  # as in most texts
        return False
    return sorted(verbatim.find_filled_in(source)) != sorted(verbatim.find_filled_in(target))


def differing_tags(source: str, target: str) -> bool:
    """Return whether two texts have tags of different names, or not as often."""
    return sorted(TAG.findall(source)) != sorted(TAG.findall(target))


def differing_numbers(source: str, target: str) -> bool:
    """Return whether each of two texts has a number that the other one lacks."""
    digits = DIGITS.findall(source), DIGITS.findall(target)
    if sorted(digits[0]) == sorted(digits[1]) or HALF_DAY.search(source) or HALF_DAY.search(target):
        return False
    counts = Counter(digits[0]), Counter(digits[1])
    return bool(counts[0] - counts[1] and counts[1] - counts[0]) and all(compare_numbers(source, target))
