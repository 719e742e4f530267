import json

import pytest

from dragoman.documents import read_document

MENU = ["&File", "&Edit", "Print Pre&view", "Save && &Quit\tCtrl+Q", "Questions & answers", "R&D", "&Find"]
GERMAN = {
    "File": "Datei", "Edit": "Bearbeiten", "Print Preview": "Druckvorschau", "Save & Quit": "Speichern & Beenden",
    "Questions & answers": "Fragen & Antworten", "R&D": "F&E", "Find": "Finden",
}  # fmt: skip


def po(sources: list[str], targets: list[str]) -> bytes:
    messages = zip(map(json.dumps, sources), map(json.dumps, targets), strict=True)
    return "".join(f"msgid {source}\nmsgstr {target}\n\n" for source, target in messages).encode()


def xliff(sources: list[str], targets: list[str]) -> bytes:
    units = "".join(
        f"<trans-unit id='{number}'><source>{source}</source><target>{target}</target></trans-unit>"
        for number, (source, target) in enumerate(zip(sources, targets, strict=True))
    )
    return f"<xliff version='1.2'><file><body>{units}</body></file></xliff>".replace("&", "&amp;").encode()


def test_accelerators_of_json_stand_on_letters_that_differ():
    document = read_document(json.dumps(MENU).encode(), ".json", target="de")
    assert document.texts == list(GERMAN)
    translated = json.loads(document.fill([GERMAN[text] for text in document.texts]))
    assert translated == [
        "&Datei", "&Bearbeiten", "Druck&vorschau", "&Speichern && Beenden\tCtrl+Q", "Fragen & Antworten", "F&E",
        "&Finden",
    ]  # fmt: skip


def test_accelerator_that_stays_is_none_of_its_siblings():
    """The control is one whose sibling is translated."""
    document = read_document(b'["&File", "&Edit"]', ".json", target="de")
    assert json.loads(document.fill(["Enden", "Edit"])) == ["E&nden", "&Edit"]
    assert json.loads(document.fill(["Enden", "Bearbeiten"])) == ["&Enden", "&Bearbeiten"]
    assert json.loads(document.fill(["File", "Edit"])) == ["&File", "&Edit"]


@pytest.mark.parametrize(("suffix", "write"), [(".po", po), (".xlf", xliff)])
def test_accelerators_of_catalogues_are_placed(suffix: str, write):
    sources = ["_Open", "Save _as...", "my_file"]
    document = read_document(write(sources, ["", "", ""]), suffix, target="ko")
    assert document.texts == ["Open", "Save as...", "my_file"]
    filled = document.fill(["열기", "다른 이름으로 저장...", "my_file"]).decode()
    assert "열기(_O)<" in filled or '"열기(_O)"' in filled
    assert "다른 이름으로 저장(_A)..." in filled
    without = read_document(write(["Open"], [""]), suffix, target="ko")  # the control
    assert "열기(" not in without.fill(["열기"]).decode()


def test_unsure_accelerator_is_marked_with_its_translation():
    document = read_document(po(["_Open"], [""]), ".po", target="de")
    assert document.fill(["Auf"], unsure={0}).decode() == '#, fuzzy\nmsgid "_Open"\nmsgstr "_Auf"\n\n'
