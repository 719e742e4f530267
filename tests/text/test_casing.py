"""Texts in capitals and in Title Case are read as sentences."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.text.casing import as_sentence, casing_of, in_capitals
from dragoman.text.known_words import KnownWords, known_words
from dragoman.text.verbatim import find

TEXTS = [
    "Ask the PDF of the street for Anna and I say to you", "Go to the street; the file of the e-mail", "to the a in of",
    "In the Straße of Firefox the file is sent to Anna", "You know that I am",
]  # fmt: skip
KNOWN = known_words([*TEXTS, *(text.lower() for text in TEXTS[:1])])


@pytest.mark.parametrize(
    ("text", "casing"),
    [
        ("THE FILE", "capitals"), ("THE %s FILE {name}", "capitals"), ("GNU GPL", None), ("A", None),
        ("The file", None),
        ("Go To The Street", "title"), ("Go to the Street", None), ("Page Setup", None), ("Save File Street", None),
        ("go to the street", None), ("한국어", None), ("한국어 PDF", "capitals"), ("12 %", None), ("", None),
        ("tHe fIlE {name} iS sEnT", "mixed"), ("The openFile of toDo", None), ("openFile toDo", None),
        ("tHe file is sent", None),
    ],
)  # fmt: skip
def test_capitals_and_title_case_are_told_from_sentences(text: str, casing: str | None):
    assert casing_of(text, KNOWN) == casing


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ASK ANNA FOR THE PDF.", "Ask Anna for the PDF."), ("SO I SAY: GO!", "So I say: Go!"),
        ("SHE SAYS, “GO TO THE STREET.” THE FILE IS SENT", "She says, “Go to the street.” The file is sent"),
        ("THE {name} FILE <b>IS</b> IN %s report_83.odt", "The {name} file <b>is</b> in %s report_83.odt"),
        ("THE STRASSE OF FIREFOX", "The Straße of Firefox"), ("THE E-MAIL-FILE", "The e-mail-file"),
        ("ANNA’S FILE", "Anna’s file"), ("ASK KOWALCZYK", "Ask Kowalczyk"),
        ("Ask Kowalczyk For The File", "Ask Kowalczyk for the file"), ("Ask the file", "Ask the file"),
        ("tHe fIlE oF aNnA iS openFile. i sAy", "The file of Anna is openFile. I say"),
    ],
)  # fmt: skip
def test_words_are_written_as_in_training(text: str, sentence: str):
    assert as_sentence(text, KNOWN) == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("LES ELEVES DE L'ECOLE ET ELISE", "Les élèves de l'école et Elise"), ("LES ÉLÈVES", "Les élèves"),
        ("BİR IŞIK VE BIR İŞ", "Bir ışık ve bir iş"), ("ΤΟ ΑΡΧΕΙΟ", "Το αρχείο"),
    ],
)  # fmt: skip
def test_capitals_without_accents_are_known(text: str, sentence: str):
    words = known_words(["Tous les élèves de l'école, les élèves et Élise", "Bu bir ışık ve iş", "Εδώ το αρχείο"])
    assert as_sentence(text, words) == sentence
    assert as_sentence(text, KnownWords({*words.words} - {*words.unmarked.values()})) != sentence  # the control


def test_without_a_record_all_letters_are_small_but_the_first():
    assert as_sentence("ASK ANNA FOR %s.") == "Ask anna for %s."
    assert as_sentence("Go To The Street In A Hurry") == "Go to the street in a hurry"


@pytest.mark.parametrize("text", TEXTS)
def test_sentence_in_capitals_is_read_as_it_was(text: str):
    assert as_sentence(in_capitals(text), KNOWN).casefold() == text.casefold()
    assert as_sentence(text, KNOWN) == text


@given(st.text() | st.text("Aa ß“{}%sİ.'-"))
def test_placeholders_and_words_stay(text: str):
    for changed in (as_sentence(text), as_sentence(text, KNOWN), in_capitals(text)):
        assert len(changed.split()) == len(text.split())
        assert Counter(each.text for each in find(text)) <= Counter(each.text for each in find(changed))
    assert in_capitals(as_sentence(text)) == in_capitals(text)


def test_placeholders_keep_their_letters():
    assert in_capitals("klick <b>auf</b> {name}, %s") == "KLICK <b>AUF</b> {name}, %s"
