"""Qt's .ts: what has no translation gets one for each form of the target language, and the rest stays."""

import re
import shutil
import subprocess
from pathlib import Path

import defusedxml.ElementTree
import pytest

from dragoman.documents import read_document
from dragoman.documents.document import Document


def ts(*messages: str, language: str = "") -> bytes:
    """A file with these messages."""
    return f'<TS version="2.1"{language}><context>{"".join(messages)}</context></TS>'.encode()


def message(source: str, translation: str = '<translation type="unfinished"></translation>', numerus: str = "") -> str:
    return f"<message{numerus}><source>{source}</source>{translation}</message>"


def read(data: bytes, target: str = "ru") -> Document:
    return read_document(data, ".ts", source="en", target=target)


def filled(data: bytes, target: str = "ru", unsure: tuple[int, ...] = ()) -> str:
    document = read(data, target)
    texts = [re.sub(r"(%\w|<[^>]*>)|.", lambda match: match[1] or match[0].upper(), text) for text in document.texts]
    return document.fill(texts, "en", target, unsure).decode()


def forms(data: bytes, target: str) -> list[str | None]:
    """The forms that a translation is written with."""
    return [form.text for form in defusedxml.ElementTree.fromstring(filled(data, target)).iter("numerusform")]


FILES = message("%n file(s)", '<translation type="unfinished"/>', ' numerus="yes"')


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("ko", ["%n FILES"]), ("tr", ["%n FILES"]), ("de", ["%n FILE", "%n FILES"]), ("fr", ["%n FILE", "%n FILES"]),
        ("ru", ["%n FILE", "%n FILES", "%n FILES"]), ("pl", ["%n FILE", "%n FILES", "%n FILES"]),
        ("ar", ["%n FILES", "%n FILE", *["%n FILES"] * 4]), ("lv", ["%n FILE", "%n FILES", "%n FILES"]),
        ("cy", ["%n FILES", "%n FILE", *["%n FILES"] * 3]), ("mk", ["%n FILE", "%n FILES", "%n FILES"]),
    ],
)  # fmt: skip
def test_ts_forms_are_those_of_the_target(target: str, expected: list[str]):
    assert forms(ts(FILES), target) == expected


def test_ts_forms_of_a_file_for_the_target_are_counted():
    two = message("%n a", "<translation><numerusform/><numerusform/></translation>", ' numerus="yes"')
    assert forms(ts(two, language=' language="mk_MK"'), "mk") == ["%n A"] * 2
    assert forms(ts(two), "mk") == ["%n A"] * 3


def test_ts_forms_are_laid_out_as_those_before():
    old = '<translation type="unfinished">\n  <numerusform></numerusform>\n </translation>'
    new = "<translation>\n  <numerusform>%n A</numerusform>\n  <numerusform>%n A</numerusform>\n </translation>"
    assert new in filled(ts(message("%n a", old, ' numerus="yes"')), "de")


@pytest.mark.parametrize(
    ("translation", "left"),
    [
        ("<translation>Fertig</translation>", {"translated before": 1, "unfinished": 0}),
        ('<translation type="unfinished">Roh</translation>', {"translated before": 0, "unfinished": 1}),
        ('<translation><byte value="x1b"/></translation>', {"translated before": 1, "unfinished": 0}),
        ('<translation type="vanished"/>', {"translated before": 0, "unfinished": 0}),
        ('<translation type="obsolete"></translation>', {"translated before": 0, "unfinished": 0}),
    ],
)
def test_ts_translations_are_left_and_counted(translation: str, left: dict[str, int]):
    data = ts(message("a", translation))
    document = read(data)
    assert (document.texts, document.left, document.fill([])) == ([], left, data)


@pytest.mark.parametrize(
    "empty", ['<translation type="unfinished"/>', "<translation></translation>", "<translation />"]
)
def test_ts_missing_translation_is_finished_and_an_unsure_one_is_not(empty: str):
    data = ts(message("a &amp; b", empty))
    assert filled(data) == ts(
        message("a &amp; b", "<translation>A &amp; B</translation>"), language=' language="ru"'
    ).decode().replace('<TS version="2.1" language="ru">', '<TS language="ru" version="2.1">')
    assert '<translation type="unfinished">A &amp; B</translation>' in filled(data, unsure=(0,))
    assert read(data).mark == "unfinished"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (' language=""', ' language="pt_BR"'),
        (' language="en"', ' language="pt_BR"'),
        (' language="pt"', ' language="pt"'),
    ],
)
def test_ts_language_is_set_where_it_is_missing(before: str, after: str):
    assert f'<TS version="2.1"{after}>' in filled(ts(message("a"), language=before), "pt-BR")


def test_ts_file_for_another_language_is_reported():
    assert [skipped.line for skipped in read(ts(message("a"), language=' language="de"')).skipped] == [1]
    assert not read(ts(message("a"), language=' language="ru_RU"')).skipped


def test_ts_bytes_placeholders_and_lines_stay():
    written = filled(ts(message('Esc<byte value="x1b"/> %1\n %L2 &lt;b&gt; "')))
    assert '<translation>ESC<byte value="x1b"/> %1\n %L2 &lt;b&gt; &quot;</translation>' in written


def test_ts_translation_without_its_byte_is_refused():
    document = read(ts(message('Esc<byte value="x1b"/> key')))
    assert document.fill(["Taste"]) == document.original.encode()


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ("<message><source>a</source></message>", "without <translation>"),
        (message("a", '<translation variants="yes"><lengthvariant/></translation>'), "variants by length"),
        (message("a<b>c</b>"), "<b> inside of <source>"),
    ],
)
def test_ts_message_that_is_not_understood_is_left(odd: str, reason: str):
    document = read(ts("\n", odd, message("b")))
    assert (document.texts, [skipped.line for skipped in document.skipped]) == (["b"], [2])
    assert reason in document.skipped[0].reason


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"import { a } from 'b';\n", 0, "TypeScript"), (b"G" + b"\xff" * 187 + b"G", 0, "film"),
        (b"", 0, "TypeScript"),
        (b"<TS>\n<a>", 2, "not a translation of Qt"), (b"<tmx/>", 0, "its root is 'tmx'"),
        (b'<!DOCTYPE TS [<!ENTITY a "b">]><TS>&a;</TS>', 0, "entities"),
    ],
)  # fmt: skip
def test_ts_of_another_kind_is_refused(data: bytes, line: int, reason: str):
    document = read(data)
    assert (document.readable, document.texts, document.skipped[0].line) == (False, [], line)
    assert reason in document.skipped[0].reason


def test_ts_is_compiled_by_lrelease(tmp_path: Path):
    lrelease = next(filter(None, map(shutil.which, ("lrelease", "lrelease6", "/usr/lib/qt6/bin/lrelease"))), None)
    if not lrelease:
        pytest.skip("no lrelease")
    path = tmp_path / "a.ts"
    path.write_text(filled(ts("<name>A</name>", message("a %1"), FILES)))
    ran = subprocess.run([lrelease, path, "-qm", tmp_path / "a.qm"], capture_output=True, text=True, check=True)
    assert re.search(r"2 translation\(s\) \(2 finished", ran.stdout)
