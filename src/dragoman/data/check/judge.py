"""Which rows of a batch are wrong, and how."""

import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dragoman.data.check.batch import LOOKED_AT, Batch, Side
from dragoman.data.check.characters import KIND, KINDS
from dragoman.data.check.profile import Profile, log_ratios
from dragoman.errors import UsageError

SOURCE, TARGET = 0, 1
PLACEHOLDER = re.compile(r"%(?:\d+\$)?[@cdfgisux](?![A-Za-z])|%\(\w+\)[dfs]|%\d(?!\d)|\$?\{\w*\}")
MARKUP = re.compile(r"&(?:[a-z]{2,8}|#\d{1,7}|#x[0-9a-f]{1,6});|</?[a-z][a-z0-9]{0,9}(?:\s[^<>\n]{0,200})?/?>", re.I)
COPIED_WORDS = 3  # shorter copies are names as often as not
COPIED_CHARACTERS = 20
# In nats, of texts that are likelier on the other side. A pair is swapped if both sides say so; it takes more to
# doubt one side alone. Among 390,000 human translations the first raises one false alarm, the second seven.
SWAPPED = -10.0
ONE_LANGUAGE = -40.0
PER_CHARACTER = -0.3
FEW_LETTERS = 10  # too few to judge a script by
FEW_TEXTS = 20  # too few to say what is rare
RARE = 0.01  # share of a side's texts in a script
WINDOW = 256  # rows over which the lengths of both sides are compared
SLIPPED = 0.3  # by how much the correlation of lengths is higher one row further


@dataclass(frozen=True)
class Limits:
    ratio: float = 3.0
    "how many times as long as usual one side may be for the other"
    length: int = 2000
    "characters of a side"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ratio) and self.ratio > 1):
            raise UsageError(f"--max-ratio must be a number above 1, not {self.ratio}")
        if not 1 <= self.length <= LOOKED_AT:
            raise UsageError(f"--max-length must be from 1 to {LOOKED_AT:,}, not {self.length}")


class Found(NamedTuple):
    """Rows (n,) with one finding; `side` is where it is, None for the pair."""

    name: str
    rows: np.ndarray
    side: int | None = None

    def within(self, rows: slice) -> "Found":
        return self._replace(rows=self.rows[rows])


def judge(batch: Batch, profile: Profile, limits: Limits) -> Iterator[Found]:
    """All that one batch shows. Empty pairs are only that."""
    yield Found("empty", ~batch.has_text)
    for number, side in enumerate(batch.sides):
        for found in (*characters(side, profile), *forms(side)):
            yield found._replace(rows=found.rows & batch.has_text, side=number)
        yield Found("over-long", side.lengths > limits.length, number)
    for found in (*copies(batch), *lengths(batch, profile, limits), *languages(batch, profile), placeholders(batch)):
        yield found._replace(rows=found.rows & batch.has_text)


def characters(side: Side, profile: Profile) -> Iterator[Found]:
    kinds = profile.alphabet.see(side.codes)
    for kind in np.flatnonzero(np.bincount(kinds, minlength=len(KINDS))):
        if kind > KIND["plain"]:
            yield Found(KINDS[kind], side.rows(np.flatnonzero(kinds == kind)))


def forms(side: Side) -> Iterator[Found]:
    texts = side.texts
    if not unicodedata.is_normalized("NFC", side.joined):
        yield Found("not-nfc", np.array([not unicodedata.is_normalized("NFC", text) for text in texts]))
    yield Found("outer-space", side.outer_space)
    if "&" in side.joined or "<" in side.joined:
        places = [match.start() for match in MARKUP.finditer(side.joined)]
        yield Found("markup", side.rows(np.array(places, int)))


def copies(batch: Batch) -> Iterator[Found]:
    sources, targets = (side.texts for side in batch.sides)
    same = np.flatnonzero(batch.sides[SOURCE].hashes == batch.sides[TARGET].hashes)
    long, short = np.zeros((2, len(batch)), bool)
    for row in same:
        text = sources[row]
        if text == targets[row] and any(map(str.isalpha, text)):
            much = len(text.split()) >= COPIED_WORDS or len(text) >= COPIED_CHARACTERS
            (long if much else short)[row] = True
    yield Found("copy", long)
    yield Found("short-copy", short)


def lengths(batch: Batch, profile: Profile, limits: Limits) -> Iterator[Found]:
    beyond = np.abs(log_ratios(batch) - profile.usual_ratio())
    yield Found("length-ratio", beyond > np.log(limits.ratio))
    slipped = np.zeros(len(batch), bool)
    source, target = (np.log(side.lengths + 1.0) for side in batch.sides)
    for start in range(0, len(batch) - WINDOW + 1, WINDOW):
        s, t = source[start : start + WINDOW], target[start : start + WINDOW]
        further = max(correlation(s[1:], t[:-1]), correlation(s[:-1], t[1:]))
        slipped[start : start + WINDOW] = further > correlation(s, t) + SLIPPED
    yield Found("slipped", slipped)


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size > 1e-9 else 0.0


def languages(batch: Batch, profile: Profile) -> Iterator[Found]:
    (source, source_each), (target, target_each) = (profile.fits(side, n) for n, side in enumerate(batch.sides))
    doubted = (source_each < PER_CHARACTER) & (target_each < PER_CHARACTER)
    swapped = doubted & (source < SWAPPED) & (target < SWAPPED)
    yield Found("swapped", swapped)
    copied = batch.sides[SOURCE].hashes == batch.sides[TARGET].hashes
    doubtful = [
        (source < ONE_LANGUAGE) & (source_each < PER_CHARACTER) & (target > 0),
        (target < ONE_LANGUAGE) & (target_each < PER_CHARACTER) & (source > 0),
    ]
    for number, rows in enumerate(doubtful):
        yield Found("one-language", rows & ~copied, number)
    for number, side in enumerate(batch.sides):
        script, share, letters = profile.main_script(side)
        texts = profile.scripts[number]
        rare = (texts[script] <= max(RARE * texts.sum(), 1)) & (share == 1) & (letters >= FEW_LETTERS)
        rare &= texts.sum() >= FEW_TEXTS
        yield Found("script", rare & ~swapped & ~doubtful[number], number)


def placeholders(batch: Batch) -> Found:
    differ = np.zeros(len(batch), bool)
    for row, texts in enumerate(zip(*(side.texts for side in batch.sides), strict=True)):
        if any("%" in text or "{" in text for text in texts):
            source, target = (sorted(PLACEHOLDER.findall(text[:LOOKED_AT])) for text in texts)
            differ[row] = source != target
    return Found("placeholders", differ)
