"""What is plainly wrong with a translation, told from the two texts alone."""

import contextlib
import json
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Literal

from dragoman.data.check.characters import script_of
from dragoman.errors import DragomanError

Fault = Literal["empty", "loop", "too long", "too short", "copied", "wrong script", "unfinished"]

# How often in a row a unit may come, by its weight from 1, 2, 3, 5, ... on: "Nooooo", "hahaha", "very very".
UNITS = [1, 2, 3, 5, 10, 16]
IN_A_ROW = [15, 8, 5, 4, 3, 2.5]
MARKS = 40  # so long a rule or row of dots without a letter may be
MORE_THAN_SOURCE = 2  # times as often as in the source, at most
GRAM = 8  # characters by which a repetition is seen
CANDIDATES = 4

# How much a letter says, against one of an alphabet. Where the two texts differ far in this, one has lost its thread.
WEIGHTS = {"HANGUL": 2.0, "CJK": 3.0, "HIRAGANA": 1.8, "KATAKANA": 1.8, "ETHIOPIC": 1.5, "YI": 2.5}
ALLOWANCE = 25.0  # both sides get it: short texts differ most
LONGEST = 2.5
SHORTEST = 0.4

WORD = re.compile(r"[^\W_]+(?:['’_.:/@\\=+-]+[^\W_]+)*")  # "don't" is one word, and so is "etc/passwd"
UNSPACED = {"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"}
PLAIN = 4  # so many words that are no names, numbers or code make a sentence; a single letter counts half
COPIED = 0.9  # share of them

RECORD = "scripts.json"
SHARE = 0.005
FEW_LETTERS = 3  # of another script: a symbol, a unit
FOREIGN = 0.2  # share of letters

script = lru_cache(1 << 17)(script_of)


def scripts_of(text: str) -> Counter[str]:
    """How many letters of each script: LATIN, HANGUL, CJK, ..."""
    scripts: Counter[str] = Counter()
    for character, times in Counter(text).items():
        if name := script(character):
            scripts[name] += times
    return scripts


def usual_scripts(texts: Iterable[str]) -> list[str]:
    """The scripts that at least SHARE of the letters of a language's texts are in, those of foreign names included."""
    scripts: Counter[str] = Counter()
    for text in texts:
        scripts += scripts_of(text)
    return sorted(script for script, letters in scripts.items() if letters >= SHARE * scripts.total())


def read_scripts(folder: Path) -> tuple[str, ...]:
    """What training has noted in a model folder; nothing where it has not. Raises DragomanError for another record."""
    file = folder / RECORD
    if not file.is_file():
        return ()
    with contextlib.suppress(ValueError, RecursionError):
        scripts = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(scripts, list) and all(isinstance(script, str) for script in scripts):
            return tuple(scripts)
    raise DragomanError(f"{file}: not a list of scripts")


def faults(source: str, output: str, *, finished: bool = True, scripts: Collection[str] = ()) -> tuple[Fault, ...]:
    """All faults of an output; () is the rule.

    `finished`: whether the model came to an end of its own. `scripts`: in which the target language is written, with
    those of the foreign names in it, as `scripts_of` names them; without any, none is wrong.
    """
    end: tuple[Fault, ...] = () if finished else ("unfinished",)
    if _is_empty(source, output):
        return ("empty", *end)
    ratio = (_weight(output) + ALLOWANCE) / (_weight(source) + ALLOWANCE)
    tests: dict[Fault, bool] = {
        "loop": _loops(source, output),
        "too long": ratio > LONGEST,
        "too short": ratio < SHORTEST,
        "copied": _is_copied(source, output),
        "wrong script": bool(scripts) and _is_foreign(source, output, scripts),
    }
    return (*(fault for fault, is_there in tests.items() if is_there), *end)


def _is_empty(source: str, output: str) -> bool:
    if not output.strip():
        return bool(source.strip())
    return any(map(str.isalpha, source)) and not any(map(_says_something, output))


def _says_something(character: str) -> bool:
    """Letters, digits, and symbols: "©" for "(c)"."""
    return character.isalnum() or unicodedata.category(character)[0] == "S"


def _weight(text: str) -> float:
    return len(text) + sum((WEIGHTS.get(name, 1.0) - 1.0) * times for name, times in scripts_of(text).items())


def _loops(source: str, output: str) -> bool:
    """Whether something comes in a row far more often than in writing, and than in the source."""
    found = [(unit, times) for unit, times in _repetitions(output) if times > _usual(unit)]
    if not found:
        return False
    in_source = max((times for _, times in _repetitions(source)), default=1.0)
    return any(times > MORE_THAN_SOURCE * in_source for _, times in found)


def _usual(unit: str) -> float:
    """How often in a row it may come."""
    if not any(map(str.isalnum, unit)):
        return MARKS / len(unit)
    return IN_A_ROW[bisect_right(UNITS, _weight(unit)) - 1]


def _repetitions(text: str) -> list[tuple[str, float]]:
    """Units that are repeated, and how often in a row.

    In linear time: by the distance from a few characters back to the same characters, which stays the same in a loop.
    """
    text = " ".join(text.casefold().split())
    last: dict[str, int] = {}
    distances: Counter[int] = Counter()
    for index in range(len(text) - GRAM + 1):
        gram = text[index : index + GRAM]
        if gram in last:
            distances[index - last[gram]] += 1
        last[gram] = index
    return [_longest_row(text, distance) for distance, _ in distances.most_common(CANDIDATES)]


def _longest_row(text: str, length: int) -> tuple[str, float]:
    """The unit of that length which comes most often in a row, and how often."""
    best = end = run = 0
    for index in range(length, len(text)):
        run = run + 1 if text[index] == text[index - length] else 0
        if run > best:
            best, end = run, index + 1
    return text[end - length : end], best / length + 1


def _units(text: str) -> list[str]:
    """Words; letters where words are not separated."""
    units: list[str] = []
    for word in WORD.findall(text):
        units += word if script(word[0]) in UNSPACED else [word]
    return units


def _is_copied(source: str, output: str) -> bool:
    words = _units(source)
    plain = [word for word in words if word.isalpha() and not word[0].isupper()]
    if sum(min(len(word) / 2, 1.0) for word in plain) < PLAIN:
        return False
    there = Counter(map(str.casefold, _units(output)))
    same = Counter(map(str.casefold, plain)) & there
    return same.total() >= COPIED * len(plain) and there.total() * COPIED <= len(words)


def _is_foreign(source: str, output: str, scripts: Collection[str]) -> bool:
    """Whether too much of what was not copied is in other scripts."""
    names = set(WORD.findall(source))
    letters = scripts_of(" ".join(word for word in WORD.findall(output) if word not in names))
    foreign = sum(times for name, times in letters.items() if name not in scripts)
    return foreign >= FEW_LETTERS and foreign > FOREIGN * letters.total()
