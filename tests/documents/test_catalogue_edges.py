"""What catalogues have seldom: forms that are apart, drafts, more forms than any language, half of the forms."""

import json

import pytest

from dragoman.documents import read_document
from dragoman.documents.qt import MAX_FORMS, names_of_forms

NUMERUS = "<numerusform></numerusform>"
QT = (
    '<TS language="de"><context><message numerus="yes"><source>%n files</source>'
    "<translation>{}</translation></message></context></TS>"
)
RUSSIAN = (
    'msgid ""\nmsgstr "Plural-Forms: nplurals=3; plural=n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2;"\n\n'
    'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "{}"\nmsgstr[1] ""\nmsgstr[2] ""\n'
)


def test_forms_that_are_apart_are_texts_of_their_own():
    """What stands between them stays there."""
    catalogue = "cats:\n  one: a cat\n  description: of cats\n  other: cats\n"
    document = read_document(catalogue.encode(), ".yml", source="en", target="ru")
    assert document.fill([text.upper() for text in document.texts]).decode() == (
        "cats:\n  one: A CAT\n  description: OF CATS\n  other: CATS\n"
    )


@pytest.mark.parametrize("state", ["new", "needs_review", "translated"])
def test_drafts_of_a_string_catalog_are_unfinished(state: str):
    unit = {"stringUnit": {"state": state, "value": "Hallo"}}
    strings = {"Hello": {"localizations": {"de": unit}}}
    catalogue = json.dumps({"sourceLanguage": "en", "strings": strings})
    (message,) = read_document(catalogue.encode(), ".xcstrings", source="en", target="de").messages
    assert message.state == (None if state == "translated" else "unfinished")


@pytest.mark.parametrize("count", [MAX_FORMS, MAX_FORMS + 1])
def test_more_forms_than_any_language_has_are_left_alone(count: int):
    document = read_document(QT.format(NUMERUS * count).encode(), ".ts", source="en", target="de")
    assert (bool(document.texts), len(document.skipped)) == ((True, 0) if count == MAX_FORMS else (False, 1))


def test_single_form_of_qt_is_for_all_numbers():
    assert [names_of_forms("de", count) for count in (0, 1, 2)] == [["one", "other"], ["other"], ["one", "other"]]


def test_forms_with_a_translation_stay():
    document = read_document(RUSSIAN.format("%d a").encode(), ".po", source="en", target="ru")
    filled = document.fill([text.upper() for text in document.texts]).decode()
    assert filled == RUSSIAN.format("%d a").replace('[1] ""', '[1] "%d FILES"').replace('[2] ""', '[2] "%d FILES"')
    document = read_document(RUSSIAN.format("").encode(), ".po", source="en", target="ru")  # the control
    assert b'msgstr[0] ""' not in document.fill([text.upper() for text in document.texts])


@pytest.mark.parametrize("count", [8, 20])  # of choices: 256 sentences, and a million
def test_choices_beside_each_other_make_no_more_than_200_sentences(count: int):
    message = "".join(f"{{a{index}, select, x {{one}} other {{two}}}} " for index in range(count))
    document = read_document(json.dumps({"m": message}).encode(), ".json", source="en", target="de")
    assert document.texts == []
    assert "it has more than 200 sentences" in document.skipped[0].reason
