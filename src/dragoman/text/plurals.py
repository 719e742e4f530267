"""Which plural forms a language has, by the rules of Unicode's CLDR: 'one' and 'other' in English, four in Polish."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache

from dragoman.errors import UsageError

CATEGORIES = ("zero", "one", "two", "few", "many", "other")
MILLION = 1_000_000
NUMBERS = (*range(2, 31), 1, 0, *range(31, 131), MILLION)  # that samples are looked for among, the most usual first
FRACTION = 1.5
NUMBER = re.compile(r"\d{1,300}+(?:[.,\u066b]\d{1,300}+)?")
Numbers = Mapping[str, Sequence[float]]  # by category, the most usual first
SEPARATOR = re.compile("[,\u066b]")


@cache
def rule(language: str, ordinal: bool = False) -> Callable[[float], str] | None:
    """Return the function from a number to its category in a language, by its code; None for one that CLDR lacks.

    ordinal: that of 1st, 2nd, 3rd. Raise UsageError where Babel, which knows all rules but that of English, is not
    installed.
    """
    if language == "en" and not ordinal:
        return lambda number: "one" if number == 1 else "other"
    if not language:
        return None
    try:
        from babel import Locale, UnknownLocaleError
    except ImportError:
        raise UsageError("plural forms need Babel: pip install 'dragoman[documents]'") from None
    try:
        locale = Locale.parse(language.replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        return None
    form: Callable[[float], str] = locale.ordinal_form if ordinal else locale.plural_form
    return form


def numbers_by_category(category_of: Callable[[float], str], numbers: Iterable[float] = NUMBERS) -> Numbers:
    """Return the categories with some of the numbers that each is used for, the most usual first.

    1 comes first in a category without 2: that is the one for one thing.
    """
    by_category: dict[str, list[float]] = {}
    for number in numbers:
        by_category.setdefault(category_of(number), []).append(number)
    return {
        category: sorted(numbers, key=lambda number: number != 1) if 2 not in numbers else numbers
        for category, numbers in by_category.items()
    }


def numbers_of(language: str, ordinal: bool = False) -> Numbers:
    """Return the categories of a language with numbers that each is used for; those of English for an unknown one."""
    category_of = rule(language, ordinal) or rule("en", ordinal)
    assert category_of
    by_category = numbers_by_category(category_of, NUMBERS if ordinal else (*NUMBERS, FRACTION))
    return {category: by_category[category] for category in CATEGORIES if category in by_category}


def whole_numbers(language: str) -> Numbers:
    """Return the plural categories of a language with whole numbers that each is used for."""
    return {
        category: whole
        for category, numbers in numbers_of(language).items()
        if (whole := [number for number in numbers if number != MILLION and number == int(number)])
    }


def sources_of(
    forms: Collection[str], source: str, by_category: Numbers, fits: Callable[[str, float], int], ordinal: bool = False
) -> dict[str, tuple[str, float]]:
    """Return for each category of a translation the form of the source that says the same, and a number to say it of.

    forms: the categories that the source has; source: the code of its language; by_category: numbers of each category;
    fits: how well a form can be said of a number, 0 for one without a place for it. "One file" has none, so it is no
    source of a category that other numbers have besides, as 21 has 'one' in Russian.
    """
    category_in_source = rule(source, ordinal) or rule("en", ordinal)
    assert category_in_source
    sources: dict[str, tuple[str, float]] = {}
    for category, numbers in by_category.items():
        if numbers == [MILLION]:  # of which 'other' is right, or nearly so
            numbers = by_category["other"]
        pairs = [(form_for(category_in_source(number), forms), number) for number in numbers]
        if category == "zero" and category in forms:  # which a language without it may have for nothing at all
            pairs = [(category, 0)]
        alone = {0, 1, FRACTION}.issuperset(numbers)  # "one file" is nearly right of them
        sources[category] = pairs[0] if alone else max(pairs, key=lambda pair: fits(*pair))
    return sources


def form_for(category: str, forms: Collection[str]) -> str:
    """Return which of the forms that there are is used for a category."""
    return category if category in forms else "other" if "other" in forms else next(iter(forms))


def as_number(text: str, number: float, sign: str) -> str | None:
    """Return a text with a sign in the place of a number in it; None where it is not in it exactly once."""
    places = [match for match in NUMBER.finditer(text) if float(SEPARATOR.sub(".", match[0])) == number]
    return text[: places[0].start()] + sign + text[places[0].end() :] if len(places) == 1 else None
