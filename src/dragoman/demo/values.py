"""Draw values and write them in each language's way, with the data that Babel has: the Unicode CLDR."""

import datetime
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from babel import Locale
from babel.dates import format_date, format_skeleton, format_time
from babel.numbers import format_currency
from babel.units import format_unit

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
    "price": _price,
    "duration": _duration,
    "country": _name(COUNTRIES, lambda locale: locale.territories),
    "language": _name(SPOKEN, lambda locale: locale.languages),
}
