"""Make a corpus: sentence templates in four languages, with slots that the Unicode CLDR fills in each language's way.

`templates/*.tsv` has the templates; Babel has the data: how a date, a price or a country is written in each locale.
"""

import datetime
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from babel import Locale
from babel.dates import format_date, format_skeleton, format_time
from babel.numbers import format_currency, format_decimal
from babel.units import format_unit

from dragoman.data.corpus import Pair
from dragoman.text.particles import fit_particles

LANGUAGES = {"en": "English", "ko": "Korean", "de": "German", "es": "Spanish"}

# Countries that German and Spanish use without an article, so that a template's grammar fits all of them.
COUNTRIES = (
    "AR AT AU BE BG BR CA CL CN CO CU CZ DE DK EE EG ES ET FI FR GE GH GR HU ID IE IL IN IS IT JO JP KE KZ LT LV MA MX "
    "MY NO NP NZ PE PL PT RO RS SE SG SI TH TN VN"
).split()
SPOKEN = "ar bn cs da de el en es fi fr he hi hu id it ja ko nl no pl pt ru sv th tr uk vi zh".split()
CURRENCIES = ["EUR", "EUR", "EUR", "USD", "GBP", "KRW"]

Writer = Callable[[str], str]  # from a language to a value written in it

# Each of these draws a value for a slot, and returns it as a function of the language.


def _date(rng: random.Random) -> Writer:
    """Draw a day from 2024 to 2028; return the writer of its date: 'March 5, 2024'."""
    day = datetime.date(2024, 1, 1) + datetime.timedelta(days=rng.randrange(5 * 365))
    return lambda language: format_date(day, "long", language)


def _day(rng: random.Random) -> Writer:
    """Draw a day of the year; return the writer of its date without a year: 'March 5'."""
    day = datetime.date(2024, 1, 1) + datetime.timedelta(days=rng.randrange(366))
    return lambda language: format_skeleton("MMMMd", day, locale=language)


def _time(rng: random.Random) -> Writer:
    """Draw a time from 7:00 to 21:55, in steps of five minutes; return its writer: '4:20 PM'."""
    time = datetime.time(rng.randrange(7, 22), rng.randrange(0, 60, 5))
    # Korean's short day periods are AM and PM in the data that Babel has; the wide ones are what people write.
    return lambda language: format_time(time, "aaaa h:mm" if language == "ko" else "short", locale=language)


def _number(rng: random.Random) -> Writer:
    """Draw a number from 2 to 99; return its writer."""
    number = rng.randrange(2, 100)
    return lambda language: format_decimal(number, locale=language)


def _price(rng: random.Random) -> Writer:
    """Draw thousands of won, or up to 200 euros, dollars or pounds in steps of a half: '€64.50'."""
    currency = rng.choice(CURRENCIES)
    amount = rng.randrange(1, 100) * 1000 if currency == "KRW" else rng.randrange(2, 400) * 0.5
    return lambda language: format_currency(amount, currency, locale=language)


def _duration(rng: random.Random) -> Writer:
    """Draw a number of minutes, hours or weeks, at least two; return its writer: '3 hours'."""
    unit, most = rng.choice([("minute", 60), ("hour", 24), ("week", 12)])
    count = rng.randrange(2, most)
    # Korean's long form is inherited from the short one, which Babel does not follow.
    return lambda language: format_unit(
        count, f"duration-{unit}", "short" if language == "ko" else "long", locale=language
    )


def _name(names: Sequence[Any], by_name: Callable[[Locale], Mapping[Any, str]]) -> Callable[[random.Random], Writer]:
    """Return what draws one of `names`; its writer looks it up in Babel's data: 'Thursday', 'Vietnam'."""

    def draw(rng: random.Random) -> Writer:
        name = rng.choice(names)
        return lambda language: by_name(Locale(language))[name]

    return draw


SLOTS: dict[str, Callable[[random.Random], Writer]] = {
    "date": _date,
    "day": _day,
    "time": _time,
    "weekday": _name(range(7), lambda locale: locale.days["format"]["wide"]),
    "month": _name(range(1, 13), lambda locale: locale.months["format"]["wide"]),
    "number": _number,
    "price": _price,
    "duration": _duration,
    "country": _name(COUNTRIES, lambda locale: locale.territories),
    "language": _name(SPOKEN, lambda locale: locale.languages),
}

SLOT = re.compile(r"\{([a-z]+)(\d?)\}")


@dataclass(frozen=True)
class Phrasebook:
    """Training pairs, and held-out pairs of the same templates with other values."""

    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]


def phrasebook(source: str, target: str, *, per_template: int, seed: int) -> Phrasebook:
    """Return a phrasebook: up to `per_template` training pairs from each template, and up to two each for dev and test.

    source and target: languages, as in LANGUAGES. Slots with few values, such as days of the week, give fewer. A
    template without slots gives one training pair.
    """
    rng = random.Random(seed)
    book = Phrasebook([], [], [])
    for template in templates():
        fills = list(dict.fromkeys(fill(template, source, target, rng) for _ in range(4 * per_template)))
        if len(fills) == 1:
            book.train.append(fills[0])
            continue
        held_out = min(4, max(2, len(fills) // 4))
        book.dev.extend(fills[: held_out // 2])
        book.test.extend(fills[held_out // 2 : held_out])
        book.train.extend(fills[held_out : held_out + per_template])
    rng.shuffle(book.train)
    return book


def templates() -> list[dict[str, str]]:
    """Return the templates of the phrasebook, each as a dict from language to text."""
    lines_by_language = []
    for file in sorted(resources.files("dragoman.demo").joinpath("templates").iterdir(), key=lambda f: f.name):
        header, *lines = file.read_text(encoding="utf-8").rstrip("\n").split("\n")
        languages = header.split("\t")
        lines_by_language += [dict(zip(languages, line.split("\t"), strict=True)) for line in lines]
    return lines_by_language


def fill(template: dict[str, str], source: str, target: str, rng: random.Random) -> Pair:
    """Return a sentence and its translation, with random values; slots of one kind get different values.

    template: its text by language, English among them; source and target: languages, as in LANGUAGES.
    """
    values: dict[str, Writer] = {}
    written: set[str] = set()
    for kind, number in SLOT.findall(template["en"]):
        while True:
            value = SLOTS[kind](rng)
            if value("en") not in written:
                break
        written.add(value("en"))
        values[kind + number] = value
    return render(template[source], values, source), render(template[target], values, target)


def render(template: str, values: dict[str, Writer], language: str) -> str:
    """Return a template with `values` in its slots, written in `language`, and with the Korean particles that fit."""
    text = SLOT.sub(lambda slot: values[slot[1] + slot[2]](language), template)
    text = text.replace("\u00a0", " ").replace("\u202f", " ")  # CLDR's unbreakable spaces are not what people type
    text = fit_particles(text)
    return text[:1].upper() + text[1:]
