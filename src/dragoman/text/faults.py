"""Find what is plainly wrong with a translation, from the two texts alone: a loop, a copy, far too long, ..."""

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection
from typing import Literal

import regex

from dragoman.data.unspaced import UNSPACED
from dragoman.text.scripts import scripts_of
from dragoman.text.verbatim.detect import find

Fault = Literal["empty", "loop", "too long", "too short", "copied", "wrong script", "unfinished"]

# How often in a row a unit may be repeated, by its weight from 1, 2, 3, 5, ... on: "Nooooo", "hahaha", "very very".
UNIT_WEIGHTS = [1, 2, 3, 5, 10, 16]
MAX_REPEATS = [15, 8, 5, 4, 3, 2.5]
MAX_RULE = 40  # characters of a rule or row of dots, which have no letter
MAX_REPEATS_OF_SOURCE = 2  # times as often as in the source, at most
GRAM = 8  # characters by which a repetition is noticed
DISTANCES_TRIED = 4

# A letter five times in a row, or, inside a word, two letters four times, as in "confesesesesas", or more letters three
# times; or a word four times.
WORD_LOOP = re.compile(
    r"""([^\W\d_])\1{4} | (?!(.)\2)([^\W\d_]{2})\3{3} | (?!(.)\4\4)([^\W\d_]{3,12})\5{2}
    | \b([^\W\d_]{1,30})(?:\W{1,3}\6\b){3}""",
    re.VERBOSE,
)
# In a source that says such a thing: "hahaha", "하하하", "ha, ha", "Nooo".
REPETITIVE = re.compile(r"([^\W\d_]{1,12}?)(?:\W{0,2}\1){2} | \b([^\W\d_]+)\W{1,2}\2\b", re.VERBOSE)

# How much a letter says, compared with one of an alphabet: texts that differ far in this do not say the same.
LETTER_WEIGHTS = {"HANGUL": 2.0, "CJK": 3.0, "HIRAGANA": 1.8, "KATAKANA": 1.8, "ETHIOPIC": 1.5, "YI": 2.5}
ALLOWANCE = 25.0  # added to the weight of both sides, for short texts differ most
MAX_RATIO = 2.5
MIN_RATIO = 0.4

WORD = re.compile(r"[^\W_]+(?:['’_.:/@\\=+-]+[^\W_]+)*")  # "don't" is one word, and so is "etc/passwd"
UNSPACED_LETTER = regex.compile(f"[{UNSPACED}]")
MIN_PLAIN_WORDS = 4  # without names, numbers and code; a single letter counts half
COPIED_SHARE = 0.9

FEW_LETTERS = 3  # of another script: a symbol, a unit
FOREIGN_SHARE = 0.2


def find_faults(source: str, output: str, *, finished: bool = True, scripts: Collection[str] = ()) -> tuple[Fault, ...]:
    """Return all faults of an output, in the order of `Fault`; () for a good one.

    An empty output has no other fault than that and perhaps "unfinished". finished: whether the search reached EOS;
    scripts: in which the target language is written, as `scripts_of` names them, including those of foreign names; if
    none are given, no script is wrong.
    """
    unfinished: tuple[Fault, ...] = () if finished else ("unfinished",)
    if is_empty(source, output):
        return ("empty", *unfinished)
    ratio = (_weight(output) + ALLOWANCE) / (_weight(source) + ALLOWANCE)
    checks: dict[Fault, bool] = {
        "loop": _loops(source, output),
        "too long": ratio > MAX_RATIO,
        "too short": ratio < MIN_RATIO,
        "copied": _is_copied(source, output),
        "wrong script": bool(scripts) and _is_foreign(source, output, scripts),
    }
    return (*(fault for fault, present in checks.items() if present), *unfinished)


def is_empty(source: str, output: str) -> bool:
    """Return whether a source that says something has an output that says nothing."""
    if not output.strip():
        return bool(source.strip())
    return any(map(str.isalpha, source)) and not any(map(_has_meaning, output))


def _has_meaning(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character)[0] == "S"


def _weight(text: str) -> float:
    """Return roughly how long a text would be in the letters of an alphabet; a Chinese character counts as several."""
    return len(text) + sum((LETTER_WEIGHTS.get(name, 1.0) - 1.0) * times for name, times in scripts_of(text).items())


def _loops(source: str, output: str) -> bool:
    """Return whether the output repeats something in a row more often than `_max_repeats` allows, or has a WORD_LOOP.

    What the source repeats, the output may repeat MAX_REPEATS_OF_SOURCE times as often.
    """
    if WORD_LOOP.search(output.casefold()) and not REPETITIVE.search(source.casefold()):
        return True
    loops = [(unit, times) for unit, times in _repetitions(output) if times > _max_repeats(unit)]
    if not loops:
        return False
    in_source = max((times for _, times in _repetitions(source)), default=1.0)
    return any(times > MAX_REPEATS_OF_SOURCE * in_source for _, times in loops)


def _max_repeats(unit: str) -> float:
    """Return how many times in a row `unit` may stand before that is a loop: the longer it is, the fewer.

    For a unit without letters and digits, such as "-", it is the number that fits into MAX_RULE characters. It may be a
    fraction, as the counts of `_repetitions` are.
    """
    if not any(map(str.isalnum, unit)):
        return MAX_RULE / len(unit)
    return MAX_REPEATS[bisect_right(UNIT_WEIGHTS, _weight(unit)) - 1]


def _repetitions(text: str) -> list[tuple[str, float]]:
    """Return (unit, times) for the longest runs of a repeated unit: ("ha", 5.0) for "Hahahahaha".

    A run may end inside a unit, so `times` may be a fraction. Units are in folded case, and white space counts as one
    space. A run is noticed if GRAM characters come twice in it, and one run is returned for each of the DISTANCES_TRIED
    likeliest lengths of a unit. It takes linear time: in a loop, the distance from an n-gram of characters back to the
    same n-gram is constant.
    """
    text = " ".join(text.casefold().split())
    last: dict[str, int] = {}
    distances: Counter[int] = Counter()
    for index in range(len(text) - GRAM + 1):
        gram = text[index : index + GRAM]
        if gram in last:
            distances[index - last[gram]] += 1
        last[gram] = index
    return [_longest_run(text, distance) for distance, _ in distances.most_common(DISTANCES_TRIED)]


def _longest_run(text: str, length: int) -> tuple[str, float]:
    """Return the unit of `length` characters most often repeated in a row, and how often: ("ba", 2.5) for "ababa"."""
    best = end = run = 0
    for index in range(length, len(text)):
        run = run + 1 if text[index] == text[index - length] else 0
        if run > best:
            best, end = run, index + 1
    return text[end - length : end], best / length + 1


def _words(text: str) -> list[str]:
    """Return the words of a text; in scripts without spaces between words, single letters."""
    words: list[str] = []
    for word in WORD.findall(text):
        words += word if UNSPACED_LETTER.match(word) else [word]
    return words


def _is_copied(source: str, output: str) -> bool:
    """Return whether nearly all plain words of the source stand in the output, and little else does.

    Plain words are those without a capital, digit or mark; a source with few of them is never copied.
    """
    words = _words(source)
    plain = [word for word in words if word.isalpha() and not word[0].isupper()]
    if sum(min(len(word) / 2, 1.0) for word in plain) < MIN_PLAIN_WORDS:
        return False
    output_words = Counter(map(str.casefold, _words(output)))
    common = Counter(map(str.casefold, plain)) & output_words
    return common.total() >= COPIED_SHARE * len(plain) and output_words.total() * COPIED_SHARE <= len(words)


def _without_copies(source: str, output: str) -> str:
    """Return the output without the placeholders of the source, which may touch a word: "7.https://example.org"."""
    copied = {placeholder.text for placeholder in find(source)}
    pieces, at = [], 0
    for placeholder in find(output) if copied else []:
        if placeholder.text in copied:
            pieces.append(output[at : placeholder.start])
            at = placeholder.end
    return " ".join([*pieces, output[at:]])


def _is_foreign(source: str, output: str, scripts: Collection[str]) -> bool:
    """Return whether a share of more than FOREIGN_SHARE of the output's letters is in scripts other than these.

    Words and addresses copied from the source do not count, nor do fewer than FEW_LETTERS such letters.
    """
    copied = set(WORD.findall(source))
    words = WORD.findall(_without_copies(source, output))
    letters = scripts_of(" ".join(word for word in words if word not in copied))
    foreign = sum(times for name, times in letters.items() if name not in scripts)
    return foreign >= FEW_LETTERS and foreign > FOREIGN_SHARE * letters.total()
