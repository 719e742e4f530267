"""Words that a training never had: none that it explains, but those that nobody ever wrote."""

import base64
import gzip
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.storage.records import MAX_RECORD_SIZE
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


def packed(text: bytes) -> str:
    return base64.b64encode(gzip.compress(text, mtime=0)).decode()


def test_record_comes_back_as_it_was():
    unpacked = WordForms.unpack(KOREAN.packed())
    assert (unpacked.words, unpacked.packed()) == (KOREAN.words, KOREAN.packed())
    assert unpacked.words != GERMAN.words


def test_record_does_not_depend_on_the_order_of_texts():
    backwards = WordForms.from_texts(SOURCES[::-1])
    assert (backwards.by_frequency, backwards.packed()) == (ENGLISH.by_frequency, ENGLISH.packed())
    assert WordForms.from_texts(SOURCES[1:]).packed() != ENGLISH.packed()


def test_record_of_too_many_words_leaves_out_the_rarest():
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(30_000)]
    record = WordForms(words).packed()
    kept = WordForms.unpack(record).by_frequency
    assert MAX_SIZE / 2 < len(record) <= MAX_SIZE
    assert kept == tuple(sorted(words[: len(kept)]))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (packed(b"a\n" * MAX_RECORD_SIZE), "more than"),
        (packed(b"caf\xe9\n"), "decode"),
        ("words", "base64"),
        ("wörter", "ASCII"),
        (packed(b"words")[4:], "gzip"),
        (GERMAN.packed()[:-12], "end"),
        (GERMAN.packed()[:20] + "A" * 20, "CRC"),
    ],
)
def test_record_of_a_stranger_is_refused(record: str, message: str):
    with pytest.raises(ValueError, match=message):
        WordForms.unpack(record)


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
