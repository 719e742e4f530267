"""YAML: the values of catalogues are translated in the style that they are written in, and nothing else changes."""

from itertools import pairwise
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dragoman.documents import read_document
from dragoman.documents.document import Document
from dragoman.errors import UsageError


def read(data: str, target: str = "ru", keys: tuple[str, ...] = ()) -> Document:
    return read_document(data.encode(), ".yml", keys, source="en", target=target)


def filled(data: str, *translations: str, target: str = "ru") -> str:
    document = read(data, target)
    return document.fill(translations or [text.upper() for text in document.texts], "en", target).decode()


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        ("a: b c\n", ["b c"]), ("- b\n- c: d\n", ["b", "d"]), ("a: 'it''s'\n", ["it's"]), ('a: "b\\nc"\n', ["b", "c"]),
        ("a: |\n  b\n   c\n\n  d\n", ["b", "c", "d"]), ("a: >\n  b\n  c\n\n  d\n", ["b c", "d"]),
        ("a: b\n  c\n", ["b c"]),
        ("a: {b: c, d: [e, f]}\n", ["c", "e", "f"]), ("a: &b c\nd: *b\n", ["c"]), ("a: !!str 1 b\n", ["1 b"]),
        ("a: !ruby/x b\n", []), ("a: true\nb: ~\nc: 2020-01-02\nd: 1.5\ne: 0x1f\n", []), ("? [a, b]\n: c\n", ["c"]),
        ("a: :day\n", []), ("a: '%Y-%m-%d'\n", []), ("a: b # c\n", ["b"]), ("---\na: b\n---\nc: d\n", ["b", "d"]),
        ("- id: x y\n  translation: b\n", ["b"]), ("g:\n  male: a\n  other: b\n", ["a", "b"]), ("", []),
    ],
)  # fmt: skip
def test_yaml_texts_of_a_file(data: str, texts: list[str]):
    assert read(data).texts == texts
    assert read(data).fill(texts) == data.encode()


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        ("b c", "b c"), ("yes", '"yes"'), ("No", '"No"'), ("y", '"y"'), ("b: c", '"b: c"'), ("b #c", '"b #c"'),
        ("- b", '"- b"'),
        ("*b", '"*b"'), ("&b", '"&b"'), ("!b", '"!b"'), ("%b c", '"%b c"'),
        ("@b", '"@b"'), ("`b", '"`b"'), ("{b} c", '"{b} c"'),
        ("[b] c", '"[b] c"'), ('"b" c', '"\\"b\\" c"'), ("b:", '"b:"'), ("null", '"null"'),
        ("1e3 b", "1e3 b"), ("b, c", "b, c"),
    ],
)  # fmt: skip
def test_yaml_plain_text_is_quoted_where_it_would_be_another_value(answer: str, written: str):
    assert filled("a: text # c\n", answer) == f"a: {written} # c\n"


@pytest.mark.parametrize(
    ("data", "answer", "written"),
    [
        ("a: 'b'\n", "it's", "a: 'it''s'\n"), ('a: "b"\n', 'c"\\d', 'a: "c\\"\\\\d"\n'),
        ("a: [b, c]\n", "x, y", 'a: ["x, y", "x, y"]\n'),
        ("a: >-\n   b\n   c\n\n   d\n# e\n", "x", "a: >-\n   x\n\n   x\n# e\n"),
        ("a: |+\n  b\n\n\nc: d\n", "x", "a: |+\n  x\n\n\nc: x\n"),
        ("a: >\n  b\n\n  c\n    d\n\n  e\n", "x", "a: >\n  x\n\n  x\n    x\n\n  x\n"),
        ('a: "\\u00e9"\n', "ü", 'a: "\\u00fc"\n'), ("a: |\r\n  b\r\n  c\r\n", "x", "a: |\r\n  x\r\n  x\r\n"),
        ("a: &x 'b'\n", "c", "a: &x 'c'\n"), ("a: |  # note\n  b\n", "x", "a: |  # note\n  x\n"),
    ],
)  # fmt: skip
def test_yaml_text_is_written_in_its_style(data: str, answer: str, written: str):
    assert filled(data, *[answer] * len(read(data).texts)) == written


STYLES = [
    "a: b{}\n",
    "a: 'b'\n",
    'a: "b"\n',
    "a: |\n  b\n",
    "a: >\n  b\n",
    "a: [b]\n",
    "a: {{x: b}}\n",
    "a: |2\n  b\n",
    "- - b\n",
]


@settings(max_examples=200, deadline=None)
@given(style=st.sampled_from(STYLES), answer=st.text(st.characters(codec="utf-8"), min_size=1))
@example("a: b{}\n", "\x85a")
@example("a: >\n  b\n", "# a")
def test_yaml_text_reads_as_it_was_given(style: str, answer: str):
    data = style.format("")
    document = read(data)
    written = document.fill([answer])
    again = list(leaves(yaml.safe_load(written)))
    expected = [answer] if written != data.encode() else ["b"]
    assert [" ".join(text.split()) for text in again] == [" ".join(text.split()) for text in expected]


def leaves(value: Any) -> list[str]:
    """The strings in YAML."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if children is None else [leaf for child in children for leaf in leaves(child)]


RAILS = """en:
  items:
    one: One item
    other: "%{count} items"
  no: 'No'
"""


@pytest.mark.parametrize(
    ("target", "categories"),
    [("ru", ["one", "few", "many", "other"]), ("ko", ["other"]), ("de", ["one", "other"]), ("no", ["one", "other"])],
)
def test_yaml_of_rails_gets_the_forms_and_the_key_of_the_target(target: str, categories: list[str]):
    translated = yaml.safe_load(filled(RAILS, target=target))
    assert [*translated] == [target]
    assert [*translated[target]["items"]] == categories
    assert all("ITEM" in text for text in translated[target]["items"].values())


@pytest.mark.parametrize(
    "data",
    ["files:\n  description: d\n  other: '{{.n}} files'\n",
     "- id: files\n  translation:\n    one: a file\n    other: '{{.n}} files'\n",
     "files: {one: a file, other: '{{.n}} files'}\n"],
)  # fmt: skip
def test_yaml_of_hugo_gets_the_forms_of_the_target(data: str):
    translated = yaml.safe_load(filled(data, target="pl"))
    (forms,) = [forms for forms in mappings(translated) if "other" in forms]
    assert [key for key in forms if key not in ("description", "id")] == ["one", "few", "many", "other"]
    assert "d" in forms.values() or "description" not in forms


def mappings(value: Any) -> list[dict[str, Any]]:
    """The mappings in YAML."""
    children = [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value] * isinstance(value, dict) + [mapping for child in children for mapping in mappings(child)]


@pytest.mark.parametrize(
    "data",
    [
        "on: push\njobs:\n  a:\n    steps: [b]\n", "services:\n  web:\n    image: x\n", "apiVersion: v1\nkind: Pod\n",
        "openapi: 3.0.0\ninfo:\n  title: A\n", "repos:\n- hooks:\n  - id: a\n", "- hosts: all\n  tasks: []\n",
    ],
)  # fmt: skip
def test_yaml_configuration_is_refused_but_for_chosen_keys(data: str):
    document = read(data + "description: A text\n" * (not data.startswith("- ")))
    assert (document.readable, document.texts) == (False, [])
    assert "configuration" in document.skipped[0].reason
    if not data.startswith("- "):
        assert read(data + "description: A text\n", keys=("description",)).texts == ["A text"]


@pytest.mark.parametrize(
    "data", ["services: Our services\n", "kind: A kind\njobs: Jobs\n", "en:\n  on: 'On'\n  jobs: Jobs\n"]
)
def test_yaml_catalogue_with_a_key_of_configuration_is_none(data: str):
    assert read(data).readable


def test_yaml_keys_that_do_not_occur_are_wrong_usage():
    with pytest.raises(UsageError, match="no text under the key 'x'; texts are under a"):
        read("a: b\n", keys=("x",))


def test_yaml_root_of_the_texts_becomes_the_target():
    assert filled("it:\n  a: b\n") == "it:\n  a: B\n"
    assert filled("app:\n  a: b\n") == "app:\n  a: B\n"
    assert filled("en-GB:\n  a: b\n") == "ru:\n  a: B\n"
    assert filled("en: English\n", "x") == "en: x\n"
    document = read("en:\n  a: b\nde:\n  a: c\n")
    assert (document.readable, document.texts) == (False, [])


def test_yaml_switches_of_the_older_version_are_left_and_reported():
    document = read("a: b\nyes: x\nc: Yes\nd: 'No'\ne: off\n")
    assert (document.texts, document.skipped[0].line) == (["b", "x", "No"], 3)
    assert document.skipped[0].reason.startswith("2 values")


@pytest.mark.parametrize(
    ("data", "line"),
    [("a: b\n: : c\n  - d", 2), ("a: [b\n", 2), ("a:\n\t- b\n", 2), ("a: *b\n", 0), ("[" * 200, 1), ("a: \x01", 0)],
)
def test_yaml_of_another_kind_is_refused(data: str, line: int):
    document = read(data)
    if data == "a: *b\n":  # an alias of nothing, which is never looked at
        assert document.readable
        return
    assert (document.readable, document.texts, document.skipped[0].line) == (False, [], line)


def test_yaml_aliases_are_not_expanded():
    laughs = "a: &a [b, b]\n" + "".join(
        f"{name}: &{name} [*{before}, *{before}]\n" for before, name in pairwise("abcdefghijklmnopqrstuvwxyz")
    )
    assert read(laughs).texts == ["b", "b"]


def test_yaml_block_that_says_its_indentation_is_left():
    data = "a: |2\n   b\n"
    assert filled(data, "x") == data
