from pathlib import Path

import pytest

from dragoman.commands.translate.options import Options, check_files
from dragoman.data.spec import STRUCTURED
from dragoman.documents import SUFFIXES
from dragoman.documents.structure import structure_of
from dragoman.errors import UsageError

FILES = {
    "XML or HTML": ["<?xml version='1.0'?>\n<a/>", "\ufeff<!DOCTYPE html>", "<a b='c'>\n  <d>"],
    "JSON": ['{"a": "b"}', '[\n  {"a": 1}]', "{}", "[]", '["a",\n"b"]'],
    "a catalogue of gettext": ['# A comment\n\nmsgid ""\nmsgstr ""\n', 'msgctxt "x"\nmsgid "y"'],
    "subtitles": ["1\n00:00:01,000 --> 00:00:02,000\nHi", "WEBVTT\n\n00:01.000 --> 00:02.000\nHi", "[Script Info]\nx"],
    "keys and values": ["# A comment\na.b = Hello\nc=d\n", '/* A comment */\n"a" = "b";', "! x\nkey=value\nother = 1"],
    "YAML": ["---\nen:\n  a: b"],
}
LINES = [
    "Hello world.\nAnother line: fine\n", "x = 5 is an equation.\nAnd so on.", "[1] A reference.", "Ann: Hi!\nBob: Hi!",
    "{name} is here", "<b>bold</b> text", "", "# A heading", '"Hi," she said.', "12:30 is the time", "---", "a\0b",
]  # fmt: skip


@pytest.mark.parametrize(("shape", "content"), [(shape, content) for shape in FILES for content in FILES[shape]])
def test_structure_is_told_by_the_first_lines(shape: str, content: str):
    assert shape in structure_of(content.encode(), ".x")


@pytest.mark.parametrize("content", LINES)
def test_lines_of_text_have_no_structure(content: str):
    assert structure_of(content.encode(), ".x") == ""


def test_suffixes_that_are_refused_are_none_that_is_read():
    assert not {*STRUCTURED} & {*SUFFIXES}
    assert all(structure_of(b"Hello.", suffix) for suffix in STRUCTURED)


@pytest.mark.parametrize(
    ("name", "content", "advice"),
    [
        ("a.rst", "Hello.\n", "convert it to Markdown"), ("a.xyz", '{"a": "b"}', r"it looks like JSON, .*\.json"),
        ("messages", 'msgid ""\nmsgstr ""\n', r"a catalogue of gettext, .*\.po"),
    ],
)  # fmt: skip
def test_file_with_a_structure_is_refused_unless_as_lines(tmp_path: Path, name: str, content: str, advice: str):
    """The control is the same content, said to be text."""
    (file := tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=f"{advice}.*; to translate its lines all the same: --as-lines"):
        check_files(Options("model", input=file))
    check_files(Options("model", input=file, as_lines=True))
    check_files(Options("model", input=file, input_format="text"))
    (text := tmp_path / "a.txt").write_text(content)
    check_files(Options("model", input=text))
