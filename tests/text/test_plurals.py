import sys

import pytest

from dragoman.errors import UsageError
from dragoman.text.plurals import as_number, numbers_of, rule, sources_of

LANGUAGES = ["en", "de", "ko", "fr", "ru", "pl", "ar", "cs", "lv", "pt-BR", "cy"]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("ordinal", [False, True])
def test_numbers_of_a_category_are_in_it(language: str, ordinal: bool):
    category_of, numbers = rule(language, ordinal), numbers_of(language, ordinal)
    assert category_of
    assert all({*map(category_of, samples)} == {category} for category, samples in numbers.items())
    assert {*map(category_of, range(2000))} <= {*numbers}


def test_unknown_language_has_the_forms_of_english():
    assert numbers_of("xx") == numbers_of("en") != numbers_of("ru")
    assert rule("xx") is None


def test_babel_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(UsageError, match="plural forms need Babel"):
        rule.__wrapped__("de")
    assert [rule.__wrapped__("en")(number) for number in (1, 2)] == ["one", "other"]  # which all files need


@pytest.mark.parametrize("target", LANGUAGES)
def test_form_of_the_source_is_that_of_the_number(target: str):
    category_of = rule(target)
    assert category_of
    sources = sources_of(["one", "other"], "en", numbers_of(target), lambda form, number: True)
    for category, (form, number) in sources.items():
        assert category_of(number) in (category, "other"), (category, number)  # a million is said as others
        assert form == ("one" if number == 1 else "other")


def test_form_without_the_number_is_no_source_of_others():
    """In Russian, 21 has the form 'one', too; in German only 1 has it."""
    chosen = {
        target: sources_of(["one", "other"], "en", numbers_of(target), lambda form, number: form == "other")["one"]
        for target in ("ru", "de", "fr")
    }
    assert chosen == {"ru": ("other", 21), "de": ("one", 1), "fr": ("one", 1)}


@pytest.mark.parametrize(
    ("text", "number", "result"),
    [
        ("5 файлов", 5, "# файлов"), ("1,5 файла", 1.5, "# файла"), ("٣ ملفات", 3, "# ملفات"), ("15 Dateien", 5, None),
        ("5 von 5", 5, None), ("fünf", 5, None), ("v5.0", 5, "v#"), ("file²", 2, None),
    ],
)  # fmt: skip
def test_number_is_found_once(text: str, number: float, result: str | None):
    assert as_number(text, number, "#") == result
