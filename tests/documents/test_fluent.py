"""Fluent: messages are translated whole, in all forms of the target language, and format without an error."""

from datetime import date

import pytest
from fluent.runtime import FluentBundle, FluentResource
from fluent.syntax import FluentParser
from fluent.syntax.ast import Junk
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.documents import read_document

KINDS = """emails = { NUMBER($n) ->
    [0] No emails
    [one] One email from { $who }
   *[other] { $n } emails
} in { -brand-name }
nested = { $gender ->
    [male] He has { $n ->
        [one] one file
       *[other] { $n } files
    }
   *[female] She has { $n ->
        [one] one file
       *[other] { $n } files
    }
} on { DATETIME($day, month: "long") }
-brand-name = Acme
    .gender = neuter
-word = Account
button = Open { -word }
    .label = Save all
    .accesskey = S
    .style = width: 5em
place = { NUMBER($n, type: "ordinal") ->
    [one] { $n }st
   *[other] { $n }th
} place
use = Press { PLATFORM() ->
    [macos] Command
   *[other] Control
}
"""


def texts(data: str, target: str = "ru") -> list[str]:
    return read_document(data.encode(), ".ftl", source="en", target=target).texts


def filled(data: str, *translations: str, target: str = "ru") -> str:
    document = read_document(data.encode(), ".ftl", source="en", target=target)
    return document.fill(translations or [f"x {text}" for text in document.texts]).decode()


def formatted(data: str, name: str, language: str, **arguments: object) -> str:
    """What a program shows."""
    functions = {"PLATFORM": lambda: "linux", "NUMBER": lambda number, type="": number}
    bundle = FluentBundle([language], use_isolating=False, functions=functions)
    bundle.add_resource(FluentResource(data))
    message = bundle.get_message(name)
    assert message.value
    text, errors = bundle.format_pattern(message.value, arguments)
    assert not errors
    return str(text)


@pytest.mark.parametrize("target", ["ru", "ko", "ar"])
@pytest.mark.parametrize("name", ["emails", "nested", "button", "place", "use"])
def test_fluent_messages_format_in_any_language(name: str, target: str):
    translated = filled(KINDS, target=target)
    for number in (0, 1, 2, 3, 5, 11, 21, 100):
        arguments = {"n": number, "who": "Ann", "gender": "male", "day": date(2000, 5, 7)}
        shown = formatted(translated, name, target, **arguments)
        assert shown.startswith("x")
        assert number < 2 or name not in ("emails", "nested", "place") or str(number) in shown


def test_fluent_terms_with_names_and_attributes_that_are_no_text_are_left():
    document = read_document(KINDS.encode(), ".ftl", source="en", target="ru")
    assert [(skipped.line, "1 term" in skipped.reason) for skipped in document.skipped] == [(16, True)]
    assert not {"Acme", "neuter", "width: 5em", "S"} & {*document.texts}
    assert {"Account", "Save all", "Press Command"} <= {*document.texts}


@pytest.mark.parametrize(
    ("label", "key"), [("Sichern", "S"), ("Alles sichern", "S"), ("Все", "В"), ("{$n} alle", "a"), ("모두", "S")]
)
def test_fluent_access_key_is_a_letter_of_the_label(label: str, key: str):
    for data in ("a =\n    .label = Save\n    .accesskey = S\n", "a =\n    .accesskey = S\n    .label = Save\n"):
        assert f".accesskey = {key}\n" in filled(data, label)
    if "$" not in label:
        between = "a =\n    .label = Save\n    .title = Title\n    .accesskey = S\n"
        assert (
            filled(between, label, "Titel")
            == f"a =\n    .label = {label}\n    .title = Titel\n    .accesskey = {key}\n"
        )


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("a = b { $c }", ["b {$c}"]), ("a = { DATETIME($c) } b { $c }", ["{$c} b {$c-2}"]),
        ("a = { \"{\" }b{ \"\\u0041\" }", ["{bA"]),
        ("a =\n    a b\n    c.\n    d\n\n    - e\n    - f", ["a b c.", "d", "- e", "- f"]),
        ("a = { 5 } b", ["{number} b"]), ("a = { b.c } d", ["{b.c} d"]), ("a = { -b(c: \"d\") } e", ["{-b} e"]),
        ("a = { { $b } } c", ["{$b} c"]), ("# a b\n", []), ("a = { $b }", []),
    ],
)  # fmt: skip
def test_fluent_texts_of_a_message(message: str, expected: list[str]):
    assert texts(message) == expected


@pytest.mark.parametrize(
    ("message", "answer", "written"),
    [
        ("a = b", "{c} d", 'a = { "{" }c{ "}" } d'),
        ("a =\n    b", "[c]", 'a =\n    { "[" }c]'), ("a = b", "[c]", "a = [c]"),
        ("a =\n  b.\n  c", ".d", 'a =\n  { "." }d\n  { "." }d'), ('a = { "  " }b', "c", 'a = { "" }  c'),
        ('a = b{ " " }', "c", 'a = c { "" }'), ("a = b {\n  $c\n}", "{$c} d", "a = { $c } d"),
    ],
)  # fmt: skip
def test_fluent_pattern_is_written_as_text(message: str, answer: str, written: str):
    assert filled(f"{message}\n", *[answer] * len(texts(message))) == f"{written}\n"


@settings(max_examples=100, deadline=None)
@given(answer=st.text('{}[]*.a "\\$-=#', min_size=1).map(lambda text: f"{text} and more"))
def test_fluent_pattern_says_what_a_translation_says(answer: str):
    for message in ("a = b", "a =\n    b", "a =\n    1\n    b", "a = { PLATFORM() ->\n    [c] b\n   *[d] b\n}\n"):
        shown = formatted(filled(f"{message}\n", answer), "a", "ru")
        assert shown.split("\n")[-1].strip() == answer.strip()


def test_fluent_translation_without_a_placeable_is_refused():
    data = "a = b { $c }\nd = e\n"
    assert filled(data, "B", "E") == "a = b { $c }\nd = E\n"


def test_fluent_default_variant_keeps_its_name():
    data = "a = { $b ->\n    [x] One\n   *[y] Two\n}\n"
    assert filled(data, "1a", "2a") == "a = { $b ->\n    [x] 1a\n   *[y] 2a\n}\n"


def test_fluent_line_ends_stay():
    data = "a = { $n ->\r\n    [one] One\r\n   *[other] { $n } b\r\n}\r\nb = c\r\n"
    assert filled(data, target="pl").count("\n") == filled(data, target="pl").count("\r\n") == 7


def test_fluent_junk_is_left_and_reported():
    data = "a = b\n junk\nno message\nc = { d\ne = f\n"
    document = read_document(data.encode(), ".ftl")
    assert ([skipped.line for skipped in document.skipped], document.readable) == ([3, 4], True)
    assert [type(entry) for entry in FluentParser().parse(filled(data)).body].count(Junk) == 2


@pytest.mark.parametrize(("data", "readable"), [("no message\n", False), ("a = " + "{" * 2000, False), ("# a\n", True)])
def test_fluent_of_another_kind_is_refused(data: str, readable: bool):
    document = read_document(data.encode(), ".ftl")
    assert (document.texts, document.readable, bool(document.skipped)) == ([], readable, not readable)


def test_fluent_key_of_a_variant_that_would_change_its_meaning_is_left():
    document = read_document(b"a = { $b ->\n    [other] c\n   *[d] e\n}\n", ".ftl")
    assert (document.texts, [skipped.line for skipped in document.skipped]) == ([], [1])
