import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.documents import read_document
from dragoman.documents.document import DocumentConfig
from dragoman.documents.icu import MAX_DEPTH, Argument, Choice, hoist, parse, quote, write
from dragoman.documents.messages import phrase_of
from dragoman.text.plurals import numbers_of, rule

FILES = "You have {n, plural, offset:1 =0 {none} one {# file} other {# files}} in {folder}."
words = st.text(st.sampled_from("ab '#|<.0é"), max_size=6)
VALUES = {"n": 5, "m": 1, "who": "she", "name": "Ann"}


def plain(text: str) -> str:
    """Words as they stand in a message."""
    return text.replace("'", "''")


def choices(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Messages with a choice between messages."""
    select = st.tuples(inner, inner).map(lambda pair: f"{{who, select, she {{{pair[0]}}} other {{{pair[1]}}}}}")
    plural = st.tuples(st.sampled_from("nm"), inner, inner).map(
        lambda parts: f"{{{parts[0]}, plural, =1 {{{parts[1]} #}} other {{# {parts[2]}}}}}"
    )
    return st.tuples(words.map(plain), select | plural | st.just("{name}"), inner).map("".join)


messages = st.recursive(words.map(plain), choices, max_leaves=6)


def evaluated(message: Any, values: Mapping[str, Any], number: str = "") -> str:
    """What a program shows of a message, in English, with # of an offset of 0."""
    parts = []
    for part in [message] if isinstance(message, Choice) else message:
        if isinstance(part, Choice):
            value = values[part.name]
            names = [f"={value}", "one" if value == 1 else "other"] if part.is_plural else [value]
            branch = next(part.branches[name] for name in [*names, "other"] if name in part.branches)
            parts.append(evaluated(branch, values, part.name if part.is_plural else ""))
        elif isinstance(part, Argument):
            name = number if part.original == "#" else part.original.strip("{}").split(",")[0]
            parts.append(str(values[name]))
        else:
            parts.append(part)
    return "".join(parts)


@settings(max_examples=200, deadline=None)
@given(messages, st.integers(0, 2), st.integers(0, 2), st.sampled_from(["she", "he"]))
def test_hoisted_message_says_the_same(message: str, n: int, m: int, who: str):
    values = {"n": n, "m": m, "who": who, "name": "Ann"}
    parsed = parse(message)
    assert evaluated(hoist(parsed), values) == evaluated(parsed, values)


@settings(max_examples=200, deadline=None)
@given(messages, st.integers(0, 2), st.integers(0, 2), st.sampled_from(["she", "he"]))
def test_message_with_its_texts_as_translations_says_the_same(message: str, n: int, m: int, who: str):
    values = {"n": n, "m": m, "who": who, "name": "Ann"}
    phrase = phrase_of(message, DocumentConfig(source="en", target="en"), icu=True)
    again = parse(write(phrase.translated(phrase.texts)))
    assert evaluated(again, values) == evaluated(parse(message), values)


@pytest.mark.parametrize("target", ["de", "ru", "ar", "ko", "pl"])
@pytest.mark.parametrize("message", [FILES, "{n, selectordinal, one {#st place} two {#nd place} other {#th place}}"])
def test_plural_has_the_categories_of_the_target(message: str, target: str):
    phrase = phrase_of(message, DocumentConfig(source="en", target=target), icu=True)
    translated = phrase.translated([f"<{text}>" for text in phrase.texts])
    assert isinstance(translated, Choice)
    categories = [*numbers_of(target, translated.kind == "selectordinal")]
    assert [name for name in translated.branches if not name.startswith("=")] == categories
    assert all(branch.count("#") == 1 for name, branch in translated.branches.items() if not name.startswith("="))
    assert parse(write(translated))


def test_number_in_a_sentence_is_one_of_its_category():
    phrase = phrase_of("{n, plural, one {# file} other {# files}}", DocumentConfig(source="en", target="ru"), icu=True)
    category_of = rule("ru")
    assert category_of
    assert phrase.texts == (
        "1 file", "{#} file", "2 files", "{#} files", "5 files", "1.5 files",
    )  # fmt: skip
    assert [category_of(number) for number in (1, 2, 5, 1.5)] == ["one", "few", "many", "other"]


def test_sign_is_used_where_the_number_is_lost():
    phrase = phrase_of("{n, plural, one {# file} other {# files}}", DocumentConfig(source="en", target="de"), icu=True)
    assert phrase.texts == ("1 file", "{#} file", "2 files", "{#} files")
    translated = write(phrase.translated(["eine Datei", "{#} Datei", "2 Dateien", "gar nichts"]))
    assert translated == "{n, plural, one {# Datei} other {# Dateien}}"
    with pytest.raises(ValueError, match=r"its arguments, \{#\}, are not all in 'eine Datei'"):
        phrase.translated(["eine Datei", "eine Datei", "2 Dateien", "{#} Dateien"])


def test_message_whose_translation_lost_an_argument_stays():
    data = json.dumps({"a": FILES, "b": "Good bye"}).encode()
    document = read_document(data, ".json", source="en", target="de")
    given = ["WEG" if "folder" in text else "Tschüs" for text in document.texts]
    refused: list[Any] = []
    document.changes(given, refused=refused)
    assert [skipped.line for skipped in refused] == [1]
    assert json.loads(document.fill(given)) == {"a": FILES, "b": "Tschüs"}
    kept = [text.upper().replace("FOLDER", "folder") for text in document.texts]  # the control
    assert "YOU HAVE # FILES IN {folder}." in json.loads(document.fill(kept))["a"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("{n, plural, one {a}}", "'n' has no branch 'other'"), ("{n, plural, other {a}", "a branch is missing"),
        ("a } b", "a } too many at character 3"), ("{", "the name of an argument is missing"),
        ("{a b}", "a comma or } is missing"), ("{n, plural, other {a} other {b}}", "the branch 'other' is there twice"),
        ("{n,plural,other{" * (MAX_DEPTH + 2), f"more than {MAX_DEPTH} choices"), ("{n, number", "} is missing"),
    ],
)  # fmt: skip
def test_text_that_is_no_message_says_why(message: str, reason: str):
    with pytest.raises(ValueError, match=reason.replace("{", r"\{")):
        parse(message)
    document = read_document(json.dumps({"x": FILES, "bad": message}).encode(), ".json", source="en", target="de")
    assert [reason in skipped.reason for skipped in document.skipped] == [True]
    assert message not in document.texts


@pytest.mark.parametrize(
    "message",
    ["{n, plural, one {a} other {b}}" * 9, "".join(f"{{a{i}, select, x {{1}} other {{2}}}}" for i in range(30))],
)
def test_message_of_too_many_sentences_is_refused(message: str):
    """The first is a choice by one argument, which is one choice however often it stands there."""
    count = message.count("a0")
    if not count:
        assert isinstance(hoist(parse(message)), Choice)
        return
    with pytest.raises(ValueError, match="more than"):
        hoist(parse(message))


def test_words_that_look_like_a_message_are_quoted():
    words, quoted = "l'{x} # d'or '", "l'''{x}' '#' d'or ''"
    assert quote(words, in_plural=True) == quoted
    assert parse(f"{{n, plural, other {{{quoted}}}}}")[0].branches["other"] == [words]
    assert quote(words) == quoted.replace("'#'", "#")
    assert parse(quote(words)) == [words]


def test_number_sign_in_a_select_is_a_sign():
    """As in ICU and in formatjs: only right inside a plural it is a number."""
    message = "{n, plural, other {# {who, select, she {her # '#' file} other {file}}}}"
    (choice,) = parse(message)
    inner = choice.branches["other"]
    assert [part.original for part in inner if isinstance(part, Argument)] == ["#"]
    assert inner[2].branches["she"] == ["her # '#' file"]
    hoisted = hoist(parse(message)).branches["other"]
    assert hoisted.branches["she"] == [Argument("{n, number}", "n"), " ", "her # '#' file"]


def test_number_of_another_plural_is_written_out():
    phrase = phrase_of(
        "{n, plural, other {# of {m, plural, other {#}}}}", DocumentConfig(source="en", target="ko"), icu=True
    )
    assert write(phrase.translated(phrase.texts)) == "{n, plural, other {{m, plural, other {{n, number} of #}}}}"
    with pytest.raises(ValueError, match="the # of n-1 is inside another choice"):
        hoist(parse("{n, plural, offset:1 other {# of {m, plural, other {#}}}}"))
