"""Files of messages are corpora: two with the same keys, or one with both languages."""

import json
from pathlib import Path

import pytest
from hostile import CLEAN

from dragoman.data.corpus import Pair, read_corpus
from dragoman.errors import DragomanError

PAIRS = [("Hello", "Hallo"), ("one file", "eine Datei"), ("many files", "viele Dateien")]
# Two files with the same keys in another order, one text and one plural, and each a key that the other lacks.
KEYED = {
    ".json": (
        '{"a": {"x": "Hello"}, "n_one": "one file", "n_other": "many files", "mine": "Only"}',
        '{"n_one": "eine Datei", "n_other": "viele Dateien", "a": {"x": "Hallo"}, "yours": "Nur"}',
    ),
    ".yml": (
        "en:\n  x: Hello\n  n:\n    one: one file\n    other: many files\n  mine: Only\n",
        "de:\n  n:\n    one: eine Datei\n    other: viele Dateien\n  x: Hallo\n  yours: Nur\n",
    ),
    ".xml": (
        '<resources><string name="x">Hello</string>\n<plurals name="n"><item quantity="one">one file</item>'
        '<item quantity="other">many files</item></plurals>\n<string name="mine">Only</string></resources>',
        '<resources><plurals name="n"><item quantity="one">eine Datei</item><item quantity="other">viele Dateien</item>'
        '</plurals>\n<string name="x">Hallo</string><string name="yours">Nur</string></resources>',
    ),
    ".stringsdict": (
        "<plist><dict><key>x</key><string>Hello</string><key>n</key><dict><key>NSStringFormatSpecTypeKey</key>"
        "<string>NSStringPluralRuleType</string><key>one</key><string>one file</string><key>other</key>"
        "<string>many files</string></dict><key>mine</key><string>Only</string></dict></plist>",
        "<plist><dict><key>n</key><dict><key>NSStringFormatSpecTypeKey</key><string>NSStringPluralRuleType</string>"
        "<key>one</key><string>eine Datei</string><key>other</key><string>viele Dateien</string></dict>"
        "<key>x</key><string>Hallo</string><key>yours</key><string>Nur</string></dict></plist>",
    ),
}
FLAT = [("x", *PAIRS[0]), ("n1", *PAIRS[1]), ("n2", *PAIRS[2])]
LINES = {".properties": "{} = {}", ".strings": '"{}" = "{}";', ".ftl": "{} = {}"}
KEYED |= {
    suffix: (
        "\n".join([*(line.format(key, source) for key, source, _ in FLAT), line.format("mine", "Only"), ""]),
        "\n".join([*(line.format(key, target) for key, _, target in FLAT[::-1]), line.format("yours", "Nur"), ""]),
    )
    for suffix, line in LINES.items()
}
DATA = '<data name="{}"><value>{}</value></data>'
KEYED[".resx"] = tuple(  # type: ignore[assignment]
    "<root>" + "\n".join(DATA.format(key, text) for key, text in [*texts, extra]) + "</root>"
    for texts, extra in (
        ([(key, source) for key, source, _ in FLAT], ("mine", "Only")),
        ([(key, target) for key, _, target in FLAT[::-1]], ("yours", "Nur")),
    )
)


def written(folder: Path, *texts: str, suffix: str) -> list[str]:
    files = [folder / f"{number}{suffix}" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return [*map(str, files)]


def read(folder: Path, *texts: str, suffix: str) -> tuple[list[Pair], list[str]]:
    """Return the pairs, and the notes without the names of files."""
    corpus = read_corpus(written(folder, *texts, suffix=suffix))
    return corpus.pairs, [note.split(": ", 1)[1] for note in corpus.notes()]


@pytest.mark.parametrize("suffix", KEYED)
def test_messages_of_two_files_are_joined_by_their_keys(tmp_path: Path, suffix: str):
    pairs, notes = read(tmp_path, *KEYED[suffix], suffix=suffix)
    assert pairs == PAIRS
    assert [note.split(" (")[0] for note in notes] == ["skipped messages that only one of the two files has: 2"]
    turned, _ = read(tmp_path, *KEYED[suffix][::-1], suffix=suffix)
    assert sorted((target, source) for source, target in turned) == sorted(PAIRS)


def test_message_with_branches_or_other_forms_is_left_out(tmp_path: Path):
    source = {"a": "{n, plural, one {#} other {# files}}", "b": "It''s {x}", "n_one": "a", "n_other": "b"}
    target = {"a": "{n, plural, other {# Dateien}}", "b": "Das ist {x}", "n_other": "c", "n_few": "d"}
    pairs, notes = read(tmp_path, json.dumps(source), json.dumps(target), suffix=".json")
    assert pairs == [("It's {x}", "Das ist {x}"), ("b", "c")]
    assert notes == ["skipped messages with plural forms or branches that have no sure counterpart: 1 (line 1)"]


def test_list_is_joined_only_with_as_many_items(tmp_path: Path):
    source, target = {"a": ["x", "y"], "b": ["z", "w"], "c": "one"}, {"a": ["s", "t"], "b": ["r"], "c": "eins"}
    pairs, notes = read(tmp_path, json.dumps(source), json.dumps(target), suffix=".json")
    assert pairs == [("x", "s"), ("y", "t"), ("one", "eins")]
    assert notes == ["skipped messages that only one of the two files has: 3 (lines 1, 1, 1)"]


def test_same_key_in_another_place_is_another_message(tmp_path: Path):
    source, target = {"a": {"x": "A"}, "b": {"x": "B"}, "c": "C"}, {"b": {"x": "b"}, "d": {"x": "d"}, "c": "c"}
    assert read(tmp_path, json.dumps(source), json.dumps(target), suffix=".json")[0] == [("B", "b"), ("C", "c")]


def test_lines_of_a_text_are_pairs_where_both_have_as_many(tmp_path: Path):
    source, target = {"a": "One.\n\nTwo.", "b": "One.\nTwo."}, {"a": "Eins.\nZwei.", "b": "Beide."}
    pairs, _ = read(tmp_path, json.dumps(source), json.dumps(target), suffix=".json")
    assert pairs == [("One.", "Eins."), ("Two.", "Zwei."), ("One. Two.", "Beide.")]


MESSAGE = "<message{}><source>{}</source><translation{}>{}</translation></message>\n"


def test_qt_gives_its_finished_translations(tmp_path: Path):
    forms = "<numerusform>%n Datei</numerusform><numerusform>%n Dateien</numerusform>"
    messages = [
        MESSAGE.format("", "&amp;Open<byte value='x7'/>", "", "&amp;Öffnen"),
        MESSAGE.format("", "Draft", ' type="unfinished"', "Entwurf"),
        MESSAGE.format("", "Empty", ' type="unfinished"', ""),
        MESSAGE.format("", "Old", ' type="vanished"', "Alt"),
        MESSAGE.format(' numerus="yes"', "%n file(s)", "", forms),
        MESSAGE.format("", "Long", ' variants="yes"', "<lengthvariant>Lang</lengthvariant>"),
    ]
    text = '<TS language="de"><context>\n' + "".join(messages) + "</context></TS>"
    pairs, notes = read(tmp_path, text, suffix=".ts")
    assert pairs == [("&Open\a", "&Öffnen"), ("%n file", "%n Datei"), ("%n files", "%n Dateien")]
    assert sorted(note.removeprefix("skipped ").split(":")[0] for note in notes) == [
        "messages with plural forms or branches that have no sure counterpart",
        "obsolete messages",
        "pairs with an empty side",
        "units whose translation is not finished",
    ]


@pytest.mark.parametrize(
    ("language", "forms", "pairs"),
    [
        ("ja", ["ファイル"], [("%n files", "ファイル")]),
        ("ru", ["файл", "файла", "файлов"], [("%n file", "файл")]),
        ("lv", ["a", "b", "c"], [("%n file", "a"), ("%n files", "b")]),
    ],
)
def test_qt_forms_are_paired_by_their_category(tmp_path: Path, language: str, forms: list[str], pairs: list[Pair]):
    translation = "".join(f"<numerusform>{form}</numerusform>" for form in forms)
    message = MESSAGE.format(' numerus="yes"', "%n file(s)", "", translation)
    assert read(tmp_path, f'<TS language="{language}">{message}</TS>', suffix=".ts")[0] == pairs


def unit(text: str, state: str = "translated") -> dict[str, object]:
    return {"stringUnit": {"state": state, "value": text}}


CATALOG = {
    "Hello": {"localizations": {"de": unit("Hallo"), "fr": unit("Salut")}},
    "Old": {"extractionState": "stale", "localizations": {"de": unit("Alt")}},
    "Unsure": {"localizations": {"de": unit("Unsicher", "needs_review")}},
    "Nothing": {},
    "Fixed": {"shouldTranslate": False},
    "n": {
        "localizations": {
            "en": {"variations": {"plural": {"one": unit("a file"), "other": unit("%lld files")}}},
            "de": {"variations": {"plural": {"one": unit("eine Datei"), "other": unit("%lld Dateien")}}},
            "fr": {"variations": {"device": {"mac": unit("x")}}},
        }
    },
}


def test_string_catalog_gives_two_of_its_languages(tmp_path: Path):
    text = json.dumps({"sourceLanguage": "en", "strings": CATALOG, "version": "1.0"}, indent=1)
    (file,) = written(tmp_path, text, suffix=".xcstrings")
    german = [("Hello", "Hallo"), ("a file", "eine Datei"), ("%lld files", "%lld Dateien")]
    assert read_corpus([file, "columns=en,de"]).pairs == german
    assert read_corpus([file, "columns=de,en"]).pairs == [(target, source) for source, target in german]
    assert read_corpus([file, "columns=fr,de"]).pairs == [("Salut", "Hallo")]
    with pytest.raises(DragomanError, match=r"translations in de, fr.*columns="):
        read_corpus([file])


@pytest.mark.parametrize(
    ("suffix", "text", "says"),
    [
        (".json", '{"a": }', "0.json:1: not JSON"),
        (".xml", "<root/>", "not Android's strings.xml"),
        (".ts", "let a = 1;", "a program in TypeScript"),
        (".yml", "a: [", "not YAML"),
        (".json", '{"en": {"a": "x"}, "de": {"a": "y"}}', "texts in 2 languages"),
        (".properties", "a = \\u12", "not .properties"),
    ],
)
def test_file_that_is_no_corpus_is_refused_in_a_sentence(tmp_path: Path, suffix: str, text: str, says: str):
    with pytest.raises(DragomanError, match=says):
        read(tmp_path, *[text] * (1 if suffix == ".ts" else 2), suffix=suffix)


def test_bytes_that_are_no_characters_stop_training(tmp_path: Path):
    files = written(tmp_path, '{"a": "x"}', '{\n"a": "%"}', suffix=".json")
    Path(files[1]).write_bytes(b'{\n"a": "\xff"}')
    with pytest.raises(DragomanError, match=r"1\.json:2: a text with bytes that are not UTF-8"):
        read_corpus(files)


@pytest.mark.slow
def test_large_files_are_joined_in_linear_time(tmp_path: Path):
    texts = [json.dumps({f"k{n}": {"x": f"{side} {n}"} for n in range(20_000)}) for side in ("a", "b")]
    pairs, notes = read(tmp_path, *texts, suffix=".json")
    assert (len(pairs), notes) == (20_000, [])


def test_json_pairs_are_checked_as_others_are(tmp_path: Path):
    texts = [json.dumps({str(n): pair[side] for n, pair in enumerate(CLEAN)}) for side in (0, 1)]
    assert read(tmp_path, *texts, suffix=".json") == (CLEAN, [])
