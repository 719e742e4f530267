import gettext
import io
import json
import re

import polib
import pytest
from babel.messages.plurals import get_plural

from dragoman.documents import read_document
from dragoman.text.plurals import form_for, numbers_of, rule

LANGUAGES = ["de", "ru", "pl", "ar", "ko", "fr", "cs"]
CATALOGUE = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: {}\\n"

msgid "%d file of {{user}}"
msgid_plural "%d files of {{user}}"
{}
msgid "A dog"
msgid_plural "%d dogs"
{}"""
ITEMS = {
    "item_one": "{{count}} item",
    "item_other": "{{count}} items",
    "bye": "Bye",
    "left_zero": "No item",
    "left_one": "An item",
    "left_other": "{{count}} items",
}


def said(text: str) -> str:
    """A translation that tells which number was said."""
    return f"[{text}]"


@pytest.mark.parametrize("target", LANGUAGES)
def test_gettext_finds_a_form_with_the_number_for_each_number(target: str):
    """The control is the form for one dog in languages where it is for nothing but one."""
    plural = get_plural(target)
    empty = "".join(f'msgstr[{number}] ""\n' for number in range(plural.num_plurals))
    data = CATALOGUE.format(plural.plural_forms, empty, empty).encode()
    document = read_document(data, ".po", source="en", target=target)
    filled = polib.pofile(document.fill(list(map(said, document.texts))).decode())
    translations = gettext.GNUTranslations(io.BytesIO(filled.to_binary()))
    for number in range(200):
        text = translations.ngettext("%d file of {user}", "%d files of {user}", number)
        assert text in ("[%d file of {user}]", "[%d files of {user}]")
        if number != 1 and target != "fr":  # in French, of 0 as of 1
            assert "%d" in translations.ngettext("A dog", "%d dogs", number)
    assert ("A dog" in translations.ngettext("A dog", "%d dogs", 1)) == (target in ("de", "pl", "ar", "cs", "fr"))


@pytest.mark.parametrize("target", LANGUAGES)
def test_keys_of_i18next_are_those_of_the_language(target: str):
    """'zero' is for 0 in any language."""
    data = json.dumps(ITEMS, indent=1).encode()
    document = read_document(data, ".json", source="en", target=target)
    translated = json.loads(document.fill(list(map(said, document.texts)), "en", target))
    categories = [*numbers_of(target)]
    left = ["left_zero", *(f"left_{category}" for category in categories if category != "zero")]
    assert [*translated] == [*(f"item_{category}" for category in categories), "bye", *left]
    assert all("{{count}}" in translated[f"item_{category}"] for category in categories)
    assert translated["left_zero"] == "[No item]"
    assert ("An item" in translated.get("left_one", "")) == (target in ("de", "pl", "ar", "cs", "fr"))
    assert document.fill(document.texts, "en", target) == data


def test_number_that_a_form_is_said_of_is_one_of_its_own():
    category_of = rule("ru")
    assert category_of
    document = read_document(json.dumps(ITEMS).encode(), ".json", source="en", target="ru")
    numbers = {"1 item": 1, "2 items": 2, "5 items": 5, "1.5 items": 1.5}
    assert numbers.keys() <= {*document.texts}
    assert [category_of(number) for number in numbers.values()] == ["one", "few", "many", "other"]


def test_forms_of_an_unknown_language_stay():
    data = json.dumps(ITEMS).encode()
    document = read_document(data, ".json")
    assert [*json.loads(document.fill(list(map(said, document.texts))))] == [*ITEMS]


def test_form_of_a_category_that_is_not_there_is_other():
    assert [form_for(category, ["one", "other"]) for category in ("one", "few")] == ["one", "other"]
    assert form_for("few", ["one"]) == "one"


@pytest.mark.parametrize(("target", "count"), [("ko", 1), ("de", 2), ("ru", 3), ("ar", 6)])
@pytest.mark.parametrize("written", [2, 3])
def test_forms_of_a_catalogue_are_those_of_its_header(target: str, count: int, written: int):
    """The control is a template, whose header has no formula."""
    empty = "".join(f'msgstr[{number}] ""\n' for number in range(written))
    for formula, expected in (
        (get_plural(target).plural_forms, count),
        ("nplurals=INTEGER; plural=EXPRESSION;", written),
    ):
        document = read_document(CATALOGUE.format(formula, empty, empty).encode(), ".po", source="en", target=target)
        filled = polib.pofile(document.fill(list(map(said, document.texts))).decode())
        assert [len(message.msgstr_plural) for message in filled] == [expected] * 2
        assert all(text for message in filled for text in message.msgstr_plural.values())


def test_keys_of_i18next_that_stand_apart_are_strings_of_their_own():
    data = b'{"a_one":"{{count}} file","x":"y z","a_other":"{{count}} files","b":{"a_one":"One","a_other":"More"}}'
    document = read_document(data, ".json", source="en", target="ru")
    filled = document.fill(list(map(said, document.texts)))
    keys = re.findall(r'"(\w+)":', filled.decode())
    assert keys == ["a_one", "x", "a_other", "b", "a_one", "a_few", "a_many", "a_other"]


@pytest.mark.parametrize(
    "other", ["# files", "{n, number} files", "# of {n} files", "{n, number, ::compact-short} files", "{n} of # files"]
)
def test_singular_without_a_number_is_of_no_other_number(other: str):
    data = json.dumps({"a": f"{{n, plural, one {{One file}} other {{{other}}}}}"}).encode()
    document = read_document(data, ".json", source="en", target="ru")
    branches = re.findall(r"(\w+) \{\[", json.loads(document.fill(list(map(said, document.texts))))["a"])
    assert branches == ["one", "few", "many", "other"]
    assert b"One file" not in document.fill(list(map(said, document.texts)))
    german = read_document(data, ".json", source="en", target="de")  # the control: 1 and nothing else
    assert b"[One file]" in german.fill(list(map(said, german.texts)))


def test_message_with_too_many_forms_is_left():
    plurals = " ".join(f"{{n{number}, plural, one {{# a}} other {{# b}}}}" for number in range(4))
    for target, readable in (("ar", False), ("ko", True)):
        document = read_document(json.dumps({"a": plurals}).encode(), ".json", source="en", target=target)
        assert bool(document.texts) == readable
        assert [skipped.reason[:40] for skipped in document.skipped] == ["'a' is no message in ICU MessageFormat: "][
            readable:
        ]
