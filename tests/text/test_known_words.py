"""Words of a training, and the names that are none of them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.storage.records import MAX_RECORD_SIZE
from dragoman.storage.writing import MANIFEST
from dragoman.text import verbatim
from dragoman.text.known_words import KnownWords, known_words, often_copied, replace_copies

TEXTS = ["The file was sent by Anna.", "Save the File in Firefox; the file is big", "Anna's password"]
KNOWN = known_words([*TEXTS, "Ask for it related to you in the end", "open this folder and thanks"])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Ask Li Wei for the file", ["Li Wei"]), ("Ask Kim Min-jun for it.", ["Kim Min-jun"]),
        ("Ask for O’Hara’s file", ["O’Hara"]),
        ("This is Ottoline's file", ["Ottoline"]), ("Ask Anna in Firefox", []), ("Ask FIREFOX for Files", []),
        ("Kowalczyk sent the file", []), ("Li Wei sent the file", ["Li Wei"]), ("McNeil sent the file", ["McNeil"]),
        ("The file. Kowalczyk sent it", []), ("the Quixo-related file", []),
        ("Ask Anna, Björk and Åsa for it", ["Björk", "Åsa"]),
        ("Ask Li Wei For The Big File", []),
        ("Ask Li Wei For The KeePassXC File", ["KeePassXC"]), ("ASK KOWALCZYK", []), ("the file ask kowalczyk", []),
        ("Ask Nguyễn Văn Hùng?", ["Nguyễn Văn Hùng"]), ("Ask Tariq al-Masri for it", ["Tariq al-Masri"]),
        ("Ask Ludwig van Veen and Ottoline", ["Ludwig van Veen", "Ottoline"]),
        ("Ask 田中花子 or Anna for the file", ["田中花子"]), ("田中花子 김민수 Anna 田中", []),
        ("Kowalczyk's file", ["Kowalczyk"]), ("Ask Dr. Kowalczyk for the file", ["Kowalczyk"]),
        ("open the file QX 9001-4, and USD 20", ["QX 9001-4"]), ("Ask Kowalczyk Anna for it", ["Kowalczyk Anna"]),
        ("in B and in A1", []), ("QX sent the file", ["QX"]), ("", []),
    ],
)  # fmt: skip
def test_names_are_unknown_words_with_capitals(text: str, names: list[str]):
    assert [text[start:end] for start, end in KNOWN.find_names(text)] == names


@pytest.mark.parametrize(
    ("source", "output", "lost"),
    [
        ("Ask Zibeon for it", "Frag Sibeón", []), ("Ask Kowalczyk for it", "Frag Kowalczyks Hund", []),
        ("Ask Oyelaran for it", "Frag Oyalarante", ["Oyelaran"]), ("Ask Quadrivo for it", "Frag Quado", ["Quadrivo"]),
        ("Ask Snaplet for it", "Snapletiert", ["Snaplet"]), ("Ask Kowalczyk for it", "Frag Kowal", ["Kowalczyk"]),
        ("Ask KeePassXC for it", "Frag EinPassXC", ["KeePassXC"]), ("Ask KeePassXC for it", "Frag KeePassXCs", []),
        ("Ask HTTP_PROXY for it", "Frag HTTP_GOXY", ["HTTP_PROXY"]),  # no name: what a program reads goes before
    ],
)  # fmt: skip
def test_name_may_be_written_a_little_otherwise(source: str, output: str, lost: list[str]):
    kinds = verbatim.KINDS | {verbatim.Finder("name", KNOWN.find_names)}
    assert verbatim.compare(source, output, kinds) == (lost, [])


@pytest.mark.parametrize(
    ("text", "doubtful"),
    [
        ("Kowalczyk sent the file", ["Kowalczyk"]), ("The file. Kowalczyk's and the file", []),
        ("The file of Dr. Kowalczyk and the file", []),
        ("Li Wei sent the file", []), ("Anna sent Kowalczyk the file", []), ("ASK KOWALCZYK", []),
        ("kowalczyk sent it", []),
    ],
)  # fmt: skip
def test_unknown_word_at_the_beginning_of_a_sentence_may_be_a_name(text: str, doubtful: list[str]):
    assert KNOWN.find_doubtful(text) == doubtful


def test_names_that_most_pairs_have_on_both_sides_are_copied():
    pairs = [("ask Firefox, Rome or Anna", "frag Firefox, Rom oder Anna")] * 5 + [("In Berlin", "In Berlin")] * 5
    assert often_copied([*pairs, ("tell Firefox", "sag Firefox")]) == ["Firefox", "Anna", "Berlin"]
    assert often_copied(pairs[:4]) == []  # too few to say so


@pytest.mark.parametrize(
    ("text", "name", "other", "replaced"),
    [
        ("Annas Hund und Anna.", "Anna", "Kim", "Kims Hund und Kim."), ("Annamaria", "Anna", "Kim", "Annamaria"),
        ("Anna는 개를", "Anna", "김", "김은 개를"), ("(Anna)", "Anna", r"\1", r"(\1)"),
    ],
)  # fmt: skip
def test_name_is_replaced_with_its_ending(text: str, name: str, other: str, replaced: str):
    assert replace_copies(text, name, other) == replaced


def test_language_that_writes_nouns_with_capitals_has_no_names():
    german = known_words(["Die Datei im Ordner hat der Drucker", "Ein Wort, der Satz, die Seite und das Blatt"])
    assert german.nouns_have_capitals
    assert german.find_names("Frag Kowalczyk nach dem Wort") == []
    assert not KNOWN.nouns_have_capitals  # the control


def test_words_are_written_as_inside_sentences_and_the_frequent_come_first():
    assert KNOWN.words[:2] == ("the", "file")
    assert {"Anna", "Firefox", "save", "password"} <= {*KNOWN.words}
    assert KNOWN.folded.keys() >= {word.lower() for word in "The file was sent by Anna".split()}


def test_record_comes_back_and_has_its_bound(tmp_path: Path):
    (tmp_path / KnownWords.RECORD).write_text(KNOWN.as_text(), encoding="utf-8")
    assert KnownWords.load(tmp_path) is None  # nobody has listed it
    (tmp_path / MANIFEST).write_text(f'{{"{KnownWords.RECORD}": {{}}}}', encoding="utf-8")
    loaded = KnownWords.load(tmp_path)
    assert loaded
    assert loaded.words == KNOWN.words
    (tmp_path / KnownWords.RECORD).write_text(KnownWords(KNOWN.words, ["Firefox"]).as_text(), encoding="utf-8")
    assert (again := KnownWords.load(tmp_path))
    assert (again.copied, sorted(again.words)) == (("Firefox",), sorted(KNOWN.words))
    many = KnownWords([f"wörd{number}" for number in range(MAX_RECORD_SIZE // 8)])
    text = many.as_text()
    assert MAX_RECORD_SIZE / 2 < len(text.encode()) <= MAX_RECORD_SIZE
    assert text.startswith("wörd0\nwörd1\n")


@given(st.text("aAbB .-'’1ÄßL", max_size=40))
def test_names_are_in_order_and_apart(text: str):
    position = 0
    for start, end in KNOWN.find_names(text):
        assert position <= start < end <= len(text)
        assert text[start].isupper()
        position = end + 1
