"""Words that a training never had: none that it explains, but those that nobody ever wrote."""

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DragomanError
from dragoman.storage.records import MAX_RECORD_SIZE
from dragoman.storage.writing import MANIFEST
from dragoman.text.known_words import known_words
from dragoman.text.word_forms import LONGEST, MAX_SIZE, WordForms, invented_words, unseen_words

GERMAN = WordForms.from_texts(
    ["Die Farbe, die Farben, die Seite, die Seiten, die Zahl, die Zahlen, der Dialog, die Dialoge, Überschrift"]
)
KOREAN = WordForms.from_texts(
    ["파일을 문서를 열고 파일에서 문서에서 문서의 그림을 그림에서 그림의 표시합니다 저장합니다 저장하고"]
)
SOURCES = ["Open the file and the files", "Save a folder or all folders", "the color of a page, the colors of pages"]
ENGLISH, USUAL = WordForms.from_texts(SOURCES), known_words(SOURCES)


def listed(folder: Path, record: bytes) -> Path:
    """A model folder with a record that its manifest vouches for."""
    (folder / WordForms.RECORD).write_bytes(record)
    (folder / MANIFEST).write_text(json.dumps({WordForms.RECORD: "sha256"}), encoding="utf-8")
    return folder


def test_record_comes_back_as_it_was(tmp_path: Path):
    loaded = WordForms.load(listed(tmp_path, KOREAN.as_bytes()))
    assert loaded is not None
    assert (loaded.words, loaded.as_bytes()) == (KOREAN.words, KOREAN.as_bytes())
    assert loaded.words != GERMAN.words
    (tmp_path / MANIFEST).write_text("{}", encoding="utf-8")
    assert WordForms.load(tmp_path) is None  # nobody vouches for it


def test_record_does_not_depend_on_the_order_of_texts():
    backwards = WordForms.from_texts(SOURCES[::-1])
    assert (backwards.by_frequency, backwards.as_bytes()) == (ENGLISH.by_frequency, ENGLISH.as_bytes())
    assert WordForms.from_texts(SOURCES[1:]).as_bytes() != ENGLISH.as_bytes()


def test_record_of_too_many_words_leaves_out_the_rarest():
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(30_000)]
    record = WordForms(words).as_bytes()
    kept = gzip.decompress(record).decode().split()
    assert MAX_SIZE / 2 < len(record) <= MAX_SIZE
    assert kept == sorted(words[: len(kept)])


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (gzip.compress(b"a\n" * MAX_RECORD_SIZE), "too large for a record"),
        (gzip.compress(b"caf\xe9\n"), "not UTF-8"),
        (b"words\n", "not compressed with gzip, or damaged"),
        (GERMAN.as_bytes()[:-9], "not compressed with gzip, or damaged"),
        (GERMAN.as_bytes()[:10] + b"\xff" * 20, "not compressed with gzip, or damaged"),
    ],
)
def test_record_of_a_stranger_is_refused(record: bytes, message: str, tmp_path: Path):
    with pytest.raises(DragomanError, match=rf"{WordForms.RECORD}: {message}$"):
        WordForms.load(listed(tmp_path, record))


@pytest.mark.parametrize(
    ("known", "explained", "unknown"),
    [
        (GERMAN, "Seitenzahlen", "Seitzenlahn"),  # a compound, and its letters in another order
        (GERMAN, "Zahlseitendialoge", "Zahlseitendiatoge"),
        (GERMAN, "ÜBERSCHRIFTEN", "ÜBERSCHIRFTEN"),
        (GERMAN, "uberschrift", "uperschrift"),
        (GERMAN, "Farbendialog", "Farbqdialog"),
        (GERMAN, "Dialogsseite", "Dialogxseite"),  # with a link that German has
        (KOREAN, "표시하고", "표시허고"),
        (KOREAN, "그림의", "그람의"),
        (ENGLISH, "FOLDER", "FOLDRE"),
    ],
)
def test_words_are_explained_by_their_parts(known: WordForms, explained: str, unknown: str):
    assert (known.explains(explained), known.explains(unknown)) == (True, False)


def test_words_are_in_it_exactly():
    assert "FARBEN" in GERMAN
    assert "Farbendialog" not in GERMAN


@given(st.lists(st.text("aeiklmnrstäöü-' 1_的한글नी", max_size=12), max_size=8))
def test_known_words_are_never_flagged(texts: list[str]):
    forms, usual = WordForms.from_texts(texts), known_words(texts)
    for text in texts:
        assert unseen_words(text.upper(), forms, usual) == unseen_words(text, forms, usual) == []
        assert invented_words("", text, forms) == []


@pytest.mark.parametrize(
    ("source", "unseen"),
    [
        ("Open the crucible and the file", ["crucible"]), ("the flie, the folders", []),  # four letters say too little
        ("wedges, foldres and scapegoat", ["wedges", "foldres", "scapegoat"]),
        ("Save the colorless page", ["colorless"]), ("Save the file-folders and pagefiles", []),
        ("OPEN THE CRUCIBLE", ["CRUCIBLE"]), ("Ask Kowalczyk for the file", []), ("Crucible", []),
        ("the file of QUIXOTE and 김민수가", []), ("open `crucible` or https://crucible.example/scapegoat", []),
        ("open {crucible} %(scapegoat)s crucible_file crucible9 9crucible", []), ("坩埚文件和文件夹", []), ("", []),
    ],
)  # fmt: skip
def test_unseen_words_are_no_names_and_no_code(source: str, unseen: list[str]):
    assert unseen_words(source, ENGLISH, USUAL) == unseen


def test_nouns_with_capitals_may_be_unseen():
    texts = ["Die Farbe und die Seite und der Dialog, die Zahl, das Haus, das Tor, der Hund"]
    assert unseen_words("Die Farbe der Quitte", WordForms.from_texts(texts), known_words(texts)) == ["Quitte"]
    assert unseen_words("Die Farbe der QUITTE", WordForms.from_texts(texts), known_words(texts)) == []
    assert unseen_words("The color of a Quince", ENGLISH, USUAL) == []


@pytest.mark.parametrize(
    ("source", "translation", "known", "invented"),
    [
        ("the page", "Die JESRAAADIAA und die Seitzenlahn", GERMAN, ["JESRAAADIAA", "Seitzenlahn"]),
        ("the page", "Die Seitenzahlen und Seitendialoge", GERMAN, []),
        ("the page of Kowalczyk", "Die Seite Kowalczyks", GERMAN, []),
        ("the page", "Die Seite Kowalczyks", GERMAN, ["Kowalczyks"]),
        ("the page of Giddalti", "Die Seite Gidalthis", GERMAN, []),
        ("the page", "Die Seite `Xqrzzt` https://xqrzzt.example {xqrzzt}", GERMAN, []),
        ("of Jan", "Jan에서", KOREAN, []), ("of it", "Jan에서", KOREAN, ["Jan에서"]),
        ("the InputBox", "InputBox에서", KOREAN, []), ("the box", "InputBox에서", KOREAN, ["InputBox에서"]),
        ("a picture", "그림에서 문서의 쭶픓뷁을", KOREAN, ["쭶픓뷁을"]),
        ("the page", "", GERMAN, []), ("", "的页面文件夹", GERMAN, []),
    ],
)  # fmt: skip
def test_invented_words_are_explained_by_nothing(source: str, translation: str, known: WordForms, invented: list[str]):
    assert invented_words(source, translation, known) == invented


def test_word_of_known_letters_in_a_row_is_no_invention():
    known = WordForms(["rabatz", "schabatt", "tarabas"])
    assert not known.explains("Rabatt")
    assert invented_words("", "Rabatt Rábatt", known) == []
    assert invented_words("", "Rabstt", known) == ["Rabstt"]


def test_word_without_end_is_none():
    known = WordForms(["a" * length for length in range(4, 30)])
    assert known.explains("a" * LONGEST)
    assert not known.explains("a" * (LONGEST + 1))
