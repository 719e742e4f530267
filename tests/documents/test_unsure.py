"""Unsure translations: catalogues have them with a mark, and other documents have the text instead."""

import math
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree.ElementTree import Element

import defusedxml.ElementTree
import polib
import pytest
from conftest import Ran, toy_pairs
from serving import CONFIG, detector_of
from test_documents import FIXTURES, fixture

from dragoman.confidence.estimate import Confidence
from dragoman.confidence.features import SIGNS, Features
from dragoman.confidence.fit import unfitted
from dragoman.decoding.rows import Ticket
from dragoman.documents import read_document
from dragoman.model_folder import add_record, fetch_model
from dragoman.server.files import translate_document
from dragoman.server.models import Models
from dragoman.server.routes import Call
from dragoman.server.service import Service
from dragoman.server.texts import Task
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.translator import Translator

CATALOGUES = (".po", ".xlf", ".xliff", ".ts", ".xcstrings")
# Without a header: whatever a message may begin with.
PO = r"""msgid "First"
msgstr ""
msgid "No blank line"
msgstr ""

# A comment, and flags in two lines
#, python-format
#: a.py:1
#, no-wrap
#| msgid "Old"
msgctxt "menu"
msgid "Context"
msgstr ""

#. Of the program
#| msgid "Old"
msgid "Older message"
msgstr ""

#,
msgid "No flags"
msgstr ""

#, fuzzy
msgid "A guess"
msgstr "Eine"

#, c-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] "Dateien"
msgstr[2] ""

 msgid ""
"Several\n"
"lines\n"
 msgstr ""

#~ msgid "Obsolete"
#~ msgstr ""

msgid "Copy"
msgstr ""
"""
STALE_WHEN_MARKED = {"Context", "Older message"}  # which are translated again: they have a previous source
NOTES = """<q:xliff version="1.2" xmlns:q="urn:oasis:names:tc:xliff:document:1.2"><q:file><q:body>
  <q:trans-unit id="1">
    <q:source>A dog</q:source>
    <q:target/>
    <q:note from="me">Old</q:note>
  </q:trans-unit>
  <q:trans-unit id="2"><q:source>A cat</q:source><q:alt-trans><q:target>x</q:target></q:alt-trans></q:trans-unit>
</q:body></q:file></q:xliff>
"""
SUB_STATE = """<xliff version="2.1" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f">
<unit id="1"><notes><note>Old</note></notes>
  <segment id="s" subState='my:own' state="initial"><source>A dog</source><target></target></segment>
  <segment><source>A cat</source></segment>
</unit></file></xliff>
"""


def subsets(count: int) -> Iterator[frozenset[int]]:
    """Yield the sets of up to two numbers below `count`, and that of all."""
    for size in range(3):
        yield from map(frozenset, combinations(range(count), size))
    yield frozenset(range(count))


def upper(text: str) -> str:
    """Return another text, or the same if it is 'Copy'."""
    return text if text == "Copy" else re.sub(r"(?<![\w%<&/])\w+(?![^<]*>)", lambda word: word[0].upper(), text)


def owners(data: bytes, suffix: str) -> list[int]:
    """Return for each text of a document the number of the passage that it is in."""
    return [number for number, each in enumerate(read_document(data, suffix).passages) for _ in each.texts]


def without_marks(data: bytes) -> bytes:
    """Return a catalogue without marks."""
    text = re.sub(r"(?m)^#, fuzzy\r?\n", "", data.decode())
    text = re.sub(r"(?m)^#, fuzzy,", "#,", text)
    return re.sub(r"\s*<(q:)?note from=.dragoman.>unsure</(q:)?note>| subState=.[\w:]+.", "", text).encode()


def marked_messages(data: bytes) -> list[bool]:
    """Return of each message, but for 'A guess', whether it is fuzzy."""
    return [entry.fuzzy for entry in polib.pofile(data.decode()) if not entry.obsolete and entry.msgid != "A guess"]


def marked_units(data: bytes) -> list[bool]:
    """Return of each unit or segment whether it is marked. Their children are in the order of the schemas."""

    def name(element: Element) -> str:
        namespace, _, name = element.tag.rpartition("}")
        assert namespace.startswith("{urn:oasis:names:tc:xliff:document:")
        return name

    marks = []
    for unit in defusedxml.ElementTree.fromstring(data).iter():
        if name(unit) == "trans-unit":
            notes = [each for each in unit if name(each) == "note" and each.get("from") == "dragoman"]
            first = [name(each) for each in unit if name(each) in ("source", "target") or each in notes]
            assert not notes or first == ["source", "target", "note"]
            marks.append(bool(notes))
        if name(unit) == "segment":
            assert "subState" not in unit.attrib or "state" in unit.attrib
            marks.append(unit.get("subState") == "dragoman:unsure")
    return marks


@pytest.mark.parametrize(
    ("suffix", "text"), [(".po", PO), (".po", PO.replace("\n", "\r\n")), (".xlf", NOTES), (".xliff", SUB_STATE)]
)
def test_exactly_the_unsure_are_marked_and_nothing_else_changes(suffix: str, text: str):
    data, marks = text.encode(), marked_messages if suffix == ".po" else marked_units
    document, owner = read_document(data, suffix), owners(data, suffix)
    outputs = list(map(upper, document.texts))
    changed = [number for number, each in enumerate(document.passages) if "Copy" not in each.texts]
    sure = document.fill(outputs)
    for unsure in subsets(len(outputs)):
        filled = document.fill(outputs, unsure=unsure)
        to_review = {owner[number] for number in unsure}
        assert marks(filled) == [n in to_review and n in changed for n in range(len(document.passages))]
        assert without_marks(filled) == without_marks(sure)
        assert sum(change.marked for change in document.changes(outputs, unsure)) == len(
            to_review.intersection(changed)
        )
        again = read_document(filled, suffix)
        assert {*again.texts} - STALE_WHEN_MARKED == ({"Copy"} if suffix == ".po" else set())
        assert again.fill(again.texts) == filled


def test_fuzzy_line_ends_as_its_message_or_joins_its_flags():
    data = PO.replace("\n", "\r\n").encode()
    document = read_document(data, ".po")
    lines = document.fill(list(map(upper, document.texts)), unsure=range(99)).decode().split("\n")
    assert all(line.endswith("\r") for line in lines[:-1])
    new = [line.rstrip() for line in lines if "fuzzy" in line]
    assert new == [
        "#, fuzzy", "#, fuzzy", "#, fuzzy, no-wrap", "#, fuzzy", "#, fuzzy", "#, fuzzy", "#, fuzzy, c-format",
        "#, fuzzy",
    ]  # fmt: skip


@pytest.mark.skipif(not shutil.which("msgfmt"), reason="gettext is not installed")
def test_gettext_reads_the_marks():
    document = read_document(PO.encode(), ".po")
    for unsure, counts in (
        (frozenset(), "7 translated messages, 1 fuzzy"),
        (range(99), "0 translated messages, 8 fuzzy"),
    ):
        filled = document.fill(list(map(upper, document.texts)), unsure=unsure)
        command = ["msgfmt", "--statistics", "-o", "/dev/null", "-"]
        ran = subprocess.run(command, input=filled, capture_output=True, check=True, env={"LC_ALL": "C"})
        assert ran.stderr.decode().startswith(counts)


@pytest.mark.parametrize("suffix", [suffix for suffix in FIXTURES if suffix not in CATALOGUES])
def test_unsure_text_stays_in_documents_without_marks(suffix: str):
    document = read_document(fixture(suffix), suffix)
    outputs = list(map(upper, document.texts))
    for unsure in subsets(min(6, len(outputs))):
        kept = [text if number in unsure else outputs[number] for number, text in enumerate(document.texts)]
        assert document.fill(outputs, unsure=unsure) == document.fill(kept)
        assert not any(change.marked for change in document.changes(outputs, unsure))
    filled = document.fill(outputs)
    assert any(filled != document.fill(outputs, unsure={number}) for number in range(len(outputs)))
    assert not document.mark


@pytest.mark.parametrize("suffix", FIXTURES)
def test_documents_that_say_so_have_marks_and_no_others(suffix: str):
    document = read_document(fixture(suffix), suffix)
    assert {each.marked is not None for each in document.passages} == {bool(document.mark)}
    assert bool(document.mark) == (suffix in CATALOGUES)


# A model that is unsure of some translations.

CONFIDENCE = replace(
    unfitted(),
    weights=Features(1, 0, 0, 0, 0, 0, 0, 0),  # that of the first one: the log-probability for each character
    limits=Features(*(math.copysign(9, sign) for sign in SIGNS)),
    expected=(-9.0, 0.0),
    confidence=(0.0, 1.0),
    lowest=-99.0,
)
SENTENCES = [source for source, _ in toy_pairs(9)]
CATALOGUE = "".join(f'msgid "{sentence}"\nmsgstr ""\n\n' for sentence in SENTENCES)
PAGE = "".join(f"<p>{sentence}</p>\n" for sentence in SENTENCES)


@pytest.fixture(scope="module")
def judging(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows how sure it may be."""
    folder = tmp_path_factory.mktemp("judging") / "model"
    shutil.copytree(fetch_model(trained), folder)
    add_record(folder, Confidence.RECORD, CONFIDENCE.as_json())
    return folder


@pytest.fixture(scope="module")
def judged(judging: Path) -> tuple[list[str], float, set[int]]:
    """What it makes of SENTENCES, a confidence that half of them lack, and the numbers of these."""
    translations = Translator.load(judging, threads=1).translate(SENTENCES)
    sure = [translation.confidence or 1.0 for translation in translations]
    return [each.text for each in translations], median(sure), {n for n, c in enumerate(sure) if c < median(sure)}


def test_translation_that_is_left_out_still_has_its_output(judging: Path, judged: tuple[list[str], float, set[int]]):
    outputs, least, unsure = judged
    translator = Translator.load(judging, safeguards=Safeguards(min_confidence=least), threads=1)
    translations = translator.translate([*SENTENCES, " "])
    assert [each.output for each in translations] == [*outputs, " "]
    assert {n for n, each in enumerate(translations) if each.left_out} == unsure
    assert [each.text for each in translations] == [*("" if n in unsure else t for n, t in enumerate(outputs)), " "]
    assert 0 < len(unsure) < len(outputs)


def test_translate_marks_or_keeps_what_is_unsure(
    dragoman: Callable[..., Ran], judging: Path, judged: tuple[list[str], float, set[int]]
):
    outputs, least, unsure = judged
    for name, text in (("m.po", CATALOGUE), ("p.html", PAGE)):
        Path(name).write_text(text)
        command = ("translate", "-m", judging, "--threads", 1, "-i", name)
        assert dragoman(*command, "-o", f"plain.{name}").code == 0
        assert dragoman(*command, "-o", f"marked.{name}", "--min-confidence", least).code == 0
    catalogue = Path("marked.m.po").read_bytes()
    assert marked_messages(catalogue) == [number in unsure for number in range(len(outputs))]
    assert without_marks(catalogue) == Path("plain.m.po").read_bytes() != catalogue
    assert re.findall("<p>(.*)</p>", Path("marked.p.html").read_text()) == [
        sentence if number in unsure else output
        for number, (sentence, output) in enumerate(zip(SENTENCES, outputs, strict=True))
    ]


def test_summary_counts_what_is_marked(
    dragoman: Callable[..., Ran], judging: Path, judged: tuple[list[str], float, set[int]]
):
    _, least, unsure = judged
    Path("m.po").write_text(CATALOGUE)
    flags = ("--threads", 1, "--min-confidence", least)
    ran = dragoman("translate", "-m", judging, "-i", "m.po", "-o", "n.po", *flags)
    assert ran.err.splitlines()[-1] == f"m.po: 9 messages translated, {len(unsure)} marked fuzzy"
    again = dragoman("translate", "-m", judging, "-i", "n.po", "-o", "o.po", *flags)
    assert again.err.splitlines()[-1] == (
        f"n.po: 0 messages translated, {9 - len(unsure)} translated before, {len(unsure)} fuzzy"
    )
    assert Path("o.po").read_bytes() == Path("n.po").read_bytes()


def test_server_does_what_the_command_does(models: Any, judged: tuple[list[str], float, set[int]]):
    outputs, least, unsure = judged
    (served,) = models.by_pair.values()
    judging = Models([replace(served, translator=served.translator.replace(confidence=CONFIDENCE))])
    service = Service(CONFIG, judging, (), detector=detector_of(models))
    call = Call(service, Any, None, Ticket(bulk=True), {}, "caller", "")  # type: ignore[arg-type]
    task = Task("ko", beam=served.translator.search.beam, min_confidence=least)
    for suffix, text in ((".po", CATALOGUE), (".html", PAGE)):
        document = read_document(text.encode(), suffix)
        expected = document.fill(outputs, "en", "ko", unsure)
        assert translate_document(call, document, "en", task) == expected != document.fill(outputs, "en", "ko")


STALE = """msgid ""
msgstr ""

#, fuzzy
#| msgid "Open a file"
msgid "Open a folder"
msgstr "Datei"

#, fuzzy
msgid "Close"
msgstr "Zu"

msgid "Save"
msgstr "Sichern"
"""


def test_stale_message_gets_a_translation_and_stays_fuzzy():
    document = read_document(STALE.encode(), ".po")
    assert (document.texts, document.left) == (["Open a folder"], {"translated before": 1, "fuzzy": 1})
    for unsure in ((), (0,)):
        assert document.fill(["Ordner"], unsure=unsure).decode() == STALE.replace("Datei", "Ordner")


def test_translated_messages_are_translated_anew_where_wanted():
    document = read_document(STALE.encode(), ".po", all=True)
    assert (document.texts, document.left) == (["Open a folder", "Close", "Save"], {"translated before": 0, "fuzzy": 0})
    filled = document.fill(["A", "B", "C"], unsure=[2]).decode()
    assert re.findall('msgstr "(.+)"', filled) == ["A", "B", "C"]
    assert filled.count("#, fuzzy") == 3
    units = "<trans-unit><source>{}</source><target>Da</target></trans-unit>"
    xliff = f"<xliff version='1.2'><file><body>{units.format('Here')}</body></file></xliff>".encode()
    assert [read_document(xliff, ".xlf", all=everything).texts for everything in (False, True)] == [[], ["Here"]]
