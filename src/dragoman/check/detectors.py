"""Detect the rows of a block that break a rule."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dragoman.check.characters import KIND, KINDS
from dragoman.check.columns import CHECKED, RowBlock, TextColumn
from dragoman.check.profile import Profile, log_ratios
from dragoman.errors import UsageError
from dragoman.text import verbatim

SOURCE, TARGET = 0, 1
MARKUP = re.compile(r"&(?:[a-z]{2,8}|#\d{1,7}|#x[0-9a-f]{1,6});|</?[a-z][a-z0-9]{0,9}(?:\s[^<>\n]{0,200})?/?>", re.I)
COPIED_WORDS = 3  # shorter copies are often names
COPIED_CHARACTERS = 20
# In nats, of texts that are likelier on the other side. A pair is swapped if both sides say so; it takes more to
# doubt one side alone. Among 390,000 human translations the first raises one false alarm, the second seven.
SWAPPED = -10.0
ONE_LANGUAGE = -40.0
PER_CHARACTER = -0.3
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
    """The rows that one rule applies to, as a mask (n,), and the side that is wrong: None for the whole pair."""

    rule: str
    rows: np.ndarray
    side: int | None = None

    def within(self, rows: slice) -> "Hits":
        """Return the hits of the rows in a slice, such as one block, from the hits of a whole corpus."""
        return self._replace(rows=self.rows[rows])


def detect(block: RowBlock, profile: Profile, limits: CheckLimits) -> Iterator[Hits]:
    """Yield the hits of all rules that look at one block alone.

    A pair with an empty side is a hit of the rule 'empty', a row without any text one of 'blank'. Neither is a hit of
    another rule, but a pair with an empty side may be 'over-long', too.
    """
    yield Hits("empty", ~block.has_text & ~block.is_blank)
    yield Hits("blank", block.is_blank)
    for number, column in enumerate(block.columns):
        for hits in (*character_hits(column, profile), *form_hits(column)):
            yield hits._replace(rows=hits.rows & block.has_text, side=number)
        yield Hits("over-long", (column.lengths > limits.length) & ~block.is_blank, number)
    for hits in (
        *copy_hits(block),
        length_hits(block, profile, limits),
        *language_hits(block, profile),
        placeholder_hits(block),
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


def length_hits(block: RowBlock, profile: Profile, limits: CheckLimits) -> Hits:
    """Return the hits of the rule 'length-ratio': rows whose ratio of lengths is far from the usual one."""
    beyond = np.abs(log_ratios(block) - profile.usual_log_ratio())
    return Hits("length-ratio", beyond > np.log(limits.ratio))


def language_hits(block: RowBlock, profile: Profile) -> Iterator[Hits]:
    """Yield hits of the rules 'swapped', 'one-language' and 'script': a side is in the wrong language or script."""
    (source, source_each), (target, target_each) = (
        profile.side_evidence(column, n) for n, column in enumerate(block.columns)
    )
    copied = block.columns[SOURCE].hashes == block.columns[TARGET].hashes
    doubted = (source_each < PER_CHARACTER) & (target_each < PER_CHARACTER) & ~copied
    swapped = doubted & (source < SWAPPED) & (target < SWAPPED)
    yield Hits("swapped", swapped)
    doubtful = [
        (source < ONE_LANGUAGE) & (source_each < PER_CHARACTER) & (target > 0),
        (target < ONE_LANGUAGE) & (target_each < PER_CHARACTER) & (source > 0),
    ]
    for number, rows in enumerate(doubtful):
        yield Hits("one-language", rows & ~copied, number)
    for number, column in enumerate(block.columns):
        script, share, letters = profile.main_script(column)
        texts = profile.scripts[number]
        rare = (texts[script] <= max(RARE * texts.sum(), 1)) & (share == 1) & (letters >= FEW_LETTERS)
        rare &= texts.sum() >= FEW_TEXTS
        yield Hits("script", rare & ~swapped & ~doubtful[number], number)


def placeholder_hits(block: RowBlock) -> Hits:
    """Return the hits of the rule 'placeholders': rows whose two sides have different ones that a program fills in."""
    differ = np.zeros(len(block), bool)
    for row, texts in enumerate(zip(*(column.texts for column in block.columns), strict=True)):
        source, target = (sorted(verbatim.find_filled_in(text[:CHECKED])) for text in texts)
        differ[row] = source != target
    return Hits("placeholders", differ)
