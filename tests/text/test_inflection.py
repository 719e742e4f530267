"""Forms of words, compounds, and the form of a term that fits in the place of a word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.text.inflection import before_head, fitting_form, is_compound, is_form

LETTERS = "aeinrstäöü"


@pytest.mark.parametrize(
    ("word", "base", "form", "compound", "before"),
    [
        ("Datei", "Datei", True, False, ""), ("datei", "Datei", True, False, ""), ("Dateien", "Datei", True, False, ""),
        ("Namen", "Name", True, False, ""), ("rusa", "ruso", True, False, ""), ("casas", "casa", True, False, ""),
        ("Dateiname", "Datei", False, True, ""), ("Dateityp", "Datei", False, True, ""),
        ("Textdatei", "Datei", False, True, "Text"), ("Textdateien", "Datei", False, True, "Text"),
        ("Seitenrand", "Seite", False, True, ""), ("Datenbankbereich", "Datenbankdatei", False, True, ""),
        ("Wort", "Datei", False, False, ""), ("die", "Datei", False, False, ""), ("Daten", "Datei", True, False, ""),
        ("개는", "개", True, False, ""), ("개들에게는", "개", True, False, ""), ("개구리", "개", False, True, ""),
        ("무지개가", "개", False, True, "무지"), ("파일", "파일", True, False, ""), ("파이", "파일", False, False, ""),
    ],
)  # fmt: skip
def test_forms_and_compounds(word: str, base: str, form: bool, compound: bool, before: str):
    assert (is_form(word, base), is_compound(word, base), before_head(word, base)) == (form, compound, before)


@pytest.mark.parametrize(
    ("word", "base", "forms", "fitting"),
    [
        ("Datei", "Datei", ("Akte", "Akten"), "Akte"), ("Dateien", "Datei", ("Akte", "Akten"), "Akten"),
        ("Namen", "Name", ("Bezeichnung", "Bezeichnungen"), "Bezeichnung"),
        ("rusa", "ruso", ("polaco", "polaca"), "polaca"), ("ruso", "ruso", ("polaco", "polaca"), "polaco"),
        ("Bilder", "Bild", ("Grafik", "Grafiken"), "Grafik"), ("Dateien", "Datei", ("Muster",), "Muster"),
        ("개는", "개", ("말", "말들"), "말은"), ("말을", "말", ("개",), "개를"), ("개에게", "개", ("말",), "말에게"),
        ("무대로", "무대", ("말",), "말로"), ("무대로", "무대", ("산",), "산으로"),
    ],
)  # fmt: skip
def test_term_has_the_form_of_the_word_that_it_replaces(word: str, base: str, forms: tuple[str, ...], fitting: str):
    assert fitting_form(word, base, forms) == fitting


@given(st.text(LETTERS, min_size=1, max_size=9), st.text(LETTERS, min_size=1, max_size=9))
def test_compounds_are_no_forms_of_their_parts(word: str, base: str):
    assert not (is_form(word, base) and is_compound(word, base))
    assert is_form(word, word)
    if before := before_head(word, base):
        assert word.startswith(before)
        assert is_form(word[len(before) :], base)
    assert fitting_form(word, base, ("first", "second")) in ("first", "second")
