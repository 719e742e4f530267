"""Compare the numbers of a text and of its translation by value, however the two languages write them.

>>> compare_numbers("It has 47,228 pages, 1.5 MB.", "Es hat 47.228 Seiten, 1,5 MB.")
([], [])
>>> compare_numbers("It has 47228 pages.", "Es hat 4728 Seiten.")
(['47228'], ['4728'])

A number that can be read in two ways, such as 1.234, is equal to another one if they share a reading. Dates and times
are several numbers. Numbers in what must come through letter by letter, such as "report_83.odt", are not looked at.
"""

import re
import unicodedata
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import pairwise

from dragoman.text.verbatim.detect import find
from dragoman.text.verbatim.kinds import EXACT, LETTER, UNIT
from dragoman.text.verbatim.restore import Removed

# Digits of any script. After a Latin letter they belong to a name; the letters behind them may be a unit.
NUMBER = re.compile(r"(?:(?<![A-Za-z_\d])|(?<=\dx))\d++(?:[.,:'’\u00a0\u202f\u2009\u066b\u066c]\d++)*+")
SEPARATOR = re.compile(r"\D")
POINTS = ".,:\u066b"  # what may stand before a fraction, or the minutes of 10:30, which are 10.30 elsewhere
# Signs that belong to a number, and the words that people write for them.
SIGNS = {
    "%": r"%|percent|per cent|Prozent|pour cent|por ?ciento|퍼센트|\d ?프로|パーセント|百分",
    "$": r"\$|dollar|dólar|USD|달러|ドル|美元",
    "€": "€|euro|EUR|유로|ユーロ|欧元",
    "£": "£|pound|Pfund|libra|livre|GBP|파운드|ポンド|英镑",
    "¥": "¥|yen|yuan|JPY|CNY|엔|위안|円|元",
    "₩": r"₩|\bwon\b|KRW|원|ウォン",
    "₹": "₹|rupee|Rupie|rupia|INR|루피|ルピー",
    "-": r"(?<![\w)\]])[-−–](?=\s?[\d$€£])|minus|menos|moins|마이너스|マイナス|负",
    "+": r"\+|plus|más|über|mehr|이상|以上",
}
SIGN = "".join(SIGNS).translate(str.maketrans("", "", "%-+"))
SIGN_BEFORE = re.compile(rf"(?:(?:(?<![^\s(=])[-−])?[{SIGN}][ \u00a0]?|(?<![^\s(=])[-−+])$")
SIGN_AFTER = re.compile(rf"[ \u00a0\u202f]?[{SIGN}%]|\+(?![\w+])")
UNIT_AFTER = re.compile(rf"[\ \u00a0\u202f]?{UNIT}", re.VERBOSE)
# Units that other languages write otherwise: "5 min" is 5 Minuten; and those that may be words or names.
TRANSLATED = frozenset("h min s t oz lb lbs mi ft yd mph B bit bits A J L V W EUR USD GBP CHF JPY KRW CNY".split())
# The names of the months in 35 languages, a line for each month: a number, where it stands beside digits.
MONTHS = [set(line.split()) for line in (files(__package__) / "months.txt").read_text(encoding="utf-8").splitlines()]
MONTH = re.compile(rf"(?<!\w)(?:{'|'.join(sorted(set().union(*MONTHS), key=len, reverse=True))})(?!\w)")
DAY_BEFORE, DAY_AFTER = re.compile(r"\d(?:\.|st|nd|rd|th)?\s(?:[a-z]{2}\s)?$"), re.compile(r"[.,]?\s(?:[a-z]{2}\s)?\d")
RANGE = re.compile(r"[ \u00a0]?(?:[-–—~〜～x×/]|\.{2,3}|…)[ \u00a0]?")
BETWEEN = re.compile(rf"\.?(?:{RANGE.pattern}|[^.,;:!?\d]{{1,9}})")  # what a range has there in any language
TIME = re.compile(r"[^.,;!?\d]{0,12}")  # between the numbers of one time of day or date: "10 Uhr 30"
MYRIADS = {"만": 4, "万": 4, "萬": 4, "억": 8, "亿": 8, "億": 8}  # 4만 7228 is 47228
STAND_INS = ("20", "10", "30", "12", "40", "15", "50", "11", "25", "18")  # which most models have seen often, and copy
SMALL = 12  # up to here, people write numbers in words in one language and in digits in the other

Reading = tuple[str, str]  # the digits before and after the decimal point


@dataclass(frozen=True)
class Number:
    """A number of a text, and in which ways it may be read."""

    text: str  # with its sign, as in "$20" and "5 %"
    readings: frozenset[Reading]
    start: int
    end: int
    sign: str = ""

    @property
    def is_small(self) -> bool:
        """Return whether it is a whole number that people may as well write in words."""
        return any(not fraction and whole.isdecimal() and int(whole) <= SMALL for whole, fraction in self.readings)


def find_numbers(text: str, source: str | None = None) -> list[Number]:
    """Return the numbers of a text in order, without those in what must come through letter by letter.

    source: what the text translates. Only its names and codes are such: "TLS-1.2-Zugang" may have the number 1.2.
    """
    hidden = [False] * len(text)
    names = None if source is None else {placeholder.text for placeholder in find(source)}
    for placeholder in find(text):
        if names is None or placeholder.kind in EXACT or placeholder.text in names:
            hidden[placeholder.start : placeholder.end] = [True] * (placeholder.end - placeholder.start)
    numbers: list[Number] = []
    for match in NUMBER.finditer(text):
        if not hidden[match.start()]:
            numbers += _read(match[0], match.start())
    dated = [_with_sign(number, text) for number in _join_myriads(numbers, text)]
    dated += [month for month in _months(text) if not hidden[month.start]]
    return sorted(dated, key=lambda number: number.start)


def compare_numbers(source: str, output: str, prefix: str = "") -> tuple[list[str], list[str]]:
    """Return the numbers that the output lost and those that it invented, as their texts have them.

    A small number that the source does not have is not invented where none is lost: it may stand for a word, unless it
    follows another one without a space. Nor are those that the prefix of the output was asked to have; each of them
    stands for a number that is lost.
    """
    if not any(map(str.isdecimal, source + output)):  # most texts
        return [], []
    in_source = _join_ranges(find_numbers(source), source)
    ranges = [number for number in in_source if any("–" in whole for whole, _ in number.readings)]
    in_output = find_numbers(output, source)
    if ranges:
        in_output = _join_ranges(in_output, output, frozenset().union(*(number.readings for number in ranges)))
    asked = {reading for number in find_numbers(prefix) for reading in number.readings}
    by_reading: dict[Reading, deque[int]] = {}
    for index, number in enumerate(in_output):
        for reading in number.readings:
            by_reading.setdefault(reading, deque()).append(index)
    free = set(range(len(in_output)))
    names = {
        sign: len(re.findall(SIGNS.get(sign) or _unit_pattern(sign), output, re.IGNORECASE))
        for sign in {number.sign for number in in_source if number.sign}
    }
    missing: list[Number] = []
    for number in in_source:
        names[number.sign] = names.get(number.sign, 0) - 1
        if (number.sign and names[number.sign] < 0) or not _take(number, by_reading, free):
            missing.append(number)
    extra = [number for index, number in enumerate(in_output) if index in free]
    invented = [number for number in extra if not number.readings & asked]
    missing, extra = missing[len(extra) - len(invented) :], invented
    ends = {number.end for index, number in enumerate(in_output) if index not in free}
    if not missing and all(number.is_small and not _follows(number, ends, output) for number in extra):
        return [], []
    if (
        sorted(_digits(missing)) == sorted(_digits(extra))
        and _are_one(extra, output)
        and not any(number.sign for number in missing)
    ):
        return [], []
    return [number.text for number in missing], [number.text for number in extra]


def _take(number: Number, by_reading: dict[Reading, deque[int]], free: set[int]) -> bool:
    """Take the first free number that shares a reading with this one, and return whether there was one."""
    for reading in number.readings:
        while places := by_reading.get(reading):
            index = places.popleft()
            if index in free:
                free.remove(index)
                return True
    return False


@dataclass(frozen=True)
class StandIn:
    """What stands in a text in the place of a number."""

    text: str
    number: str


def with_stand_ins(text: str, numbers: Sequence[str]) -> tuple[str, list[StandIn]]:
    """Return the text with others in the place of some of its numbers, each a number that the text does not have.

    numbers: as the text has them. Those with letters behind them ("3rd") stay, and all that there is no other one for.
    """
    present = _join_ranges(find_numbers(text), text)
    free = [digits for digits in STAND_INS if not any((digits, "") in number.readings for number in present)]
    wanted = Counter(numbers)
    stand_ins: list[StandIn] = []
    parts: list[str] = []
    position = 0
    for number in present:
        if wanted[number.text] and free and not text[number.end : number.end + 1].isalpha():
            wanted[number.text] -= 1
            stand_ins.append(StandIn(free.pop(0), number.text))
            parts += [text[position : number.start], stand_ins[-1].text]
            position = number.end
    return "".join([*parts, text[position:]]), stand_ins


def replace_stand_ins(text: str, stand_ins: Sequence[StandIn]) -> str:
    """Return a text with the numbers in the place of their stand-ins.

    A stand-in that the model has repeated is replaced once, and dropped where it stands again; "" drops the last one.
    """
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number in find_numbers(text):
        for name in {number.text, *(whole for whole, fraction in number.readings if not fraction)}:
            spans[name].append((number.start, number.end))
    for placeholder in find(text):
        spans[placeholder.text].append((placeholder.start, placeholder.end))
    changes: list[tuple[int, int, str]] = []
    for each in stand_ins:
        places = spans[each.text]
        if not each.number:
            changes += [(*place, "") for place in places[-1:]]
        else:
            changes += [(*place, "" if index else each.number) for index, place in enumerate(places)]
    for start, end, restored in sorted(set(changes), reverse=True):
        before = text[:start] if restored else text[:start].removesuffix(" ")
        text = before + restored + text[end:]
    return text


def mend_numbers(plain: str, output: str, prefix: str = "") -> tuple[list[Removed], list[StandIn]]:
    """Return what to restore in an output, and what to replace then, so that it has all numbers of `plain`.

    A number that it invented is replaced by one that it lost, and a second copy of one is dropped. For what it still
    lacks a placeholder is restored before the word that the number stood before. prefix: as in `compare_numbers`.
    """
    lost, invented = compare_numbers(plain, f"{prefix} {output}", prefix)
    times = Counter(number.text for number in find_numbers(output))
    stand_ins = [StandIn(wrong, number) for wrong, number in zip(invented, lost, strict=False) if times[wrong] == 1]
    lacking = Counter(lost[len(invented) :])
    copies = {number.text for number in find_numbers(plain)}
    stand_ins += [StandIn(number, "") for number in invented[len(lost) :] if number in copies]
    removed: list[Removed] = []
    for index, number in enumerate(_join_ranges(find_numbers(plain), plain)):
        if lacking[number.text]:
            lacking[number.text] -= 1
            stand_ins.append(StandIn(f"{{number_{index}}}", number.text))
            removed.append(Removed(stand_ins[-1].text, "number", number.start, " ", plain[number.end : number.end + 1]))
    return removed, stand_ins


def _read(text: str, start: int) -> Iterator[Number]:
    """Yield the number that digits with separators are, or each of several: a date, a list."""
    plain = "".join(str(unicodedata.decimal(character)) if character.isdecimal() else character for character in text)
    parts, separators = SEPARATOR.split(plain), SEPARATOR.findall(plain)
    grouped = len(parts[0]) <= 3 and all(len(part) == 3 for part in parts[1:])
    groups_of_two = len(parts[0]) <= 2 and len(parts[-1]) == 3 and all(len(part) == 2 for part in parts[1:-1])
    readings: set[Reading] = set()
    if not separators:
        readings.add((_whole(plain), ""))
    elif len(set(separators)) == 1 and (grouped or groups_of_two) and parts[0] != "0":
        readings.add(("".join(parts), ""))
    point = separators[-1] if separators else ""
    if point in POINTS and point and point not in separators[:-1]:
        before = parts[1:-1]
        if not before or (len(set(separators[:-1])) == 1 and all(len(part) in (2, 3) for part in before)):
            readings.add((_whole("".join(parts[:-1])), parts[-1]))
    if readings:
        yield Number(text, frozenset(readings), start, start + len(text))
        return
    for match in re.finditer(r"\d+", text):
        digits = "".join(str(unicodedata.decimal(character)) for character in match[0])
        yield Number(match[0], frozenset({(_whole(digits), "")}), start + match.start(), start + match.end())


def _months(text: str) -> Iterator[Number]:
    """Yield the names of months that stand beside a day or a year; "May" alone may be a verb."""
    for match in MONTH.finditer(text):
        start, end = match.span()
        if DAY_BEFORE.search(text, max(0, start - 8), start) or DAY_AFTER.match(text, end):
            readings = frozenset((str(index), "") for index, names in enumerate(MONTHS, 1) if match[0] in names)
            yield Number(match[0], readings, start, end)


def _digits(numbers: list[Number]) -> list[str]:
    """Return the runs of digits of several numbers, which are the same in 10:30 and 10.30; a month has one."""
    runs = [re.findall(r"\d+", number.text) or [min(number.readings)[0]] for number in numbers]
    return [_whole(run) for of_number in runs for run in of_number]


def _are_one(numbers: list[Number], text: str) -> bool:
    """Return whether numbers stand together, as those of a time or a date."""
    return all(TIME.fullmatch(text, first.end, second.start) for first, second in pairwise(numbers))


def _whole(digits: str) -> str:
    """Return digits without the zero that dates and times have in front: 05 is 5; but 00 is no 0, and 007 no 7."""
    return digits[1:] if len(digits) == 2 and digits[0] == "0" and digits[1] != "0" else digits


def _with_sign(number: Number, text: str) -> Number:
    """Return a number with the sign of a currency, per cent or a unit beside it, if there is one."""
    before, after = SIGN_BEFORE.search(text, max(0, number.start - 3), number.start), SIGN_AFTER.match(text, number.end)
    if not before and not after:
        unit = UNIT_AFTER.match(text, number.end)
        if not unit or unit[0].strip() in TRANSLATED:
            return number
        return replace(number, text=text[number.start : unit.end()], end=unit.end(), sign=unit[0].strip())
    start, end = before.start() if before else number.start, after.end() if after and not before else number.end
    sign = before[0].strip()[-1] if before else text[end - 1]
    return replace(number, text=text[start:end], start=start, end=end, sign="-" if sign == "−" else sign)


def _unit_pattern(unit: str) -> str:
    return rf"(?-i:\d[ \u00a0\u202f-]?{re.escape(unit)})(?!{LETTER})"


def _follows(number: Number, ends: set[int], text: str) -> bool:
    """Return whether a number follows one that ends there, with at most a mark between them: the "07" of "40-07"."""
    return number.start in ends or (number.start - 1 in ends and text[number.start - 1] in "-–/.,:")


def _join_ranges(numbers: list[Number], text: str, known: frozenset[Reading] | None = None) -> list[Number]:
    """Return the numbers with those of a range put together, which are no range in another order: 2.25–3.75, 555-0199.

    known: join only what is such a range, also where it has a word between its numbers, as in "5 bis 10".
    """
    gap = RANGE if known is None else BETWEEN
    follows = [bool(gap.fullmatch(text, first.end, second.start)) for first, second in pairwise(numbers)]
    joined: list[Number] = []
    for index, number in enumerate(numbers):
        last = joined[-1] if joined and index and joined[-1] is numbers[index - 1] else None
        # Three in a row are a date or a code: their numbers may change places.
        alone = known is not None or (
            not any(follows[max(0, index - 2) : index - 1]) and not any(follows[index : index + 1])
        )
        if last and follows[index - 1] and alone and not (last.text.isalpha() or number.text.isalpha()):
            readings = {(f"{a}–{b}", f"{c}–{d}") for a, c in last.readings for b, d in number.readings}
            if known is None or readings & known:
                both = text[last.start : number.end]
                number = Number(both, frozenset(readings), last.start, number.end, last.sign or number.sign)
                joined.pop()
        joined.append(number)
    return joined


def _join_myriads(numbers: list[Number], text: str) -> Iterator[Number]:
    """Yield the numbers, with what Chinese, Japanese and Korean write as ten thousands put together."""
    pending: Number | None = None
    for number in numbers:
        if pending and text[pending.end : number.start].strip() == "" and pending.text[-1] in MYRIADS:
            zeros = MYRIADS[pending.text[-1]]
            sums = {
                (str(int(high) + int(low)), fraction)
                for high, _ in pending.readings
                for low, fraction in number.readings
                if len(low) <= zeros
            }
            if sums:
                number = Number(text[pending.start : number.end], frozenset(sums), pending.start, number.end)
                pending = None
        if pending:
            yield pending
            pending = None
        sign = text[number.end : number.end + 1]
        if sign in MYRIADS and sign:
            scaled = {(_scaled(whole, fraction, MYRIADS[sign]), "") for whole, fraction in number.readings}
            end = number.end + 1
            pending = Number(text[number.start : end], frozenset(scaled), number.start, end)
        else:
            yield number
    if pending:
        yield pending


def _scaled(whole: str, fraction: str, zeros: int) -> str:
    """Return a number times a power of ten, which leaves no fraction."""
    return str(int(whole + fraction[:zeros].ljust(zeros, "0")))
