"""Pairs as people type them."""

import unicodedata
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.data.normal_form import visible_characters
from dragoman.text.variations import TRAINED, VARIATIONS, vary, with_typos, words_of
from dragoman.text.verbatim import find

PAIRS = [
    ("If the file is too big, open the “other” one at 12.", "Ist die Datei zu groß, öffnen Sie die „andere“ um 12."),
    ("Click the button to see all of its many settings.", "Klicken Sie auf die Schaltfläche."),
    ("The résumé is in your folder.", "Der Lebenslauf ist in Ihrem Ordner."),
    ("Write your name into the first field; press Enter.", "Schreiben Sie Ihren Namen; drücken Sie die Eingabetaste."),
] * 12  # fmt: skip


@pytest.mark.parametrize("name", VARIATIONS)
def test_variation_depends_on_its_seed_alone(name: str):
    changed = [(start, vary(name, PAIRS[start:], (1, start))) for start in range(4)]
    assert any(varied for _, varied in changed)
    for start, varied in changed:
        assert vary(name, PAIRS[start:], (1, start)) == varied
        if varied and varied.parts == 1:
            assert varied.source != PAIRS[start][0]
        if varied and varied.inserted:
            assert all(varied.source.count(piece) == n for piece, n in Counter(varied.inserted).items())
            assert varied.target == PAIRS[start][1]


def test_chance_needs_another_seed():
    assert len({vary("typos", PAIRS, seed) for seed in range(20)}) > 5


def test_pairs_with_nothing_to_change_are_left_out():
    assert vary("lower case", [("the file", "x")], 1) is None
    assert vary("two sentences", PAIRS[:1], 1) is None
    assert vary("URL", [("file", "x")], 1) is None
    assert vary("sentence of 120 words", PAIRS[:3], 1) is None


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("capitals", "THE RÉSUMÉ IS IN YOUR FOLDER.", "DER LEBENSLAUF IST IN IHREM ORDNER."),
        ("title case", "The Résumé Is In Your Folder.", "Der Lebenslauf Ist In Ihrem Ordner."),
        ("lower case", "the résumé is in your folder.", "Der Lebenslauf ist in Ihrem Ordner."),
        ("no final mark", "The résumé is in your folder", "Der Lebenslauf ist in Ihrem Ordner"),
        ("in quotes „“", "„The résumé is in your folder.“", "„Der Lebenslauf ist in Ihrem Ordner.“"),
        (
            "two without marks",
            "The résumé is in your folder Write your name into the first field; press Enter.",
            "Der Lebenslauf ist in Ihrem Ordner. Schreiben Sie Ihren Namen; drücken Sie die Eingabetaste.",
        ),
    ],
)  # fmt: skip
def test_variations_change_one_side_or_both(name: str, source: str, target: str):
    assert vary(name, PAIRS[2:], 1)[:2] == (source, target)  # type: ignore[index]


def test_invisible_characters_and_wide_letters_are_read_as_the_text_without():
    for name in ("invisible characters", "full-width letters"):
        for pair in PAIRS[:4]:
            varied = vary(name, [pair], 3)
            assert varied
            assert varied.source != pair[0]
            assert visible_characters(varied.source) == pair[0]


@pytest.mark.parametrize(
    "text", ["می\u200cخواهم", "👩\u200d👧", "ภาษา\u200bไทย", "हि\u200dन्दी", "한국어, 日本語", "🏴\U000e0067\U000e007f"]
)
def test_characters_that_mean_something_stay(text: str):
    assert visible_characters(text) == unicodedata.normalize("NFC", text)
    assert visible_characters(f"a\u200b{text}\u00ad") == f"a{text}"


def test_wide_letters_stay_where_they_are_usual():
    assert visible_characters("Ｗｅｂ", narrow=False) == "Ｗｅｂ"


@given(
    st.integers(),
    st.sampled_from(["Click <b>here</b> for {name}, %s and a_b.odt", "문서를 저장할 수 없습니다 {name}"]),
)
def test_typos_touch_no_placeholder(seed: int, text: str):
    typed = with_typos(text, Random(seed))
    assert {each.text for each in find(text)} <= {each.text for each in find(typed)}
    assert unicodedata.is_normalized("NFC", typed)


def test_korean_typos_are_those_of_a_korean_keyboard():
    typed = {with_typos("문서를 저장합니다", Random(seed)) for seed in range(60)}
    assert any("ㅁ" <= letter <= "ㅣ" or len(text) != len("문서를 저장합니다") for text in typed for letter in text)
    assert all(all("가" <= c <= "힣" or c == " " or "ㄱ" <= c <= "ㅣ" for c in text) for text in typed)
    assert len(typed) > 10


def test_words_are_changed_outside_of_placeholders():
    assert words_of("see {name} now", str.upper) == "SEE {name} NOW"


def test_training_shows_variations_that_a_model_can_learn():
    assert {"typos", "lower case", "two without marks"} <= set(TRAINED) < set(VARIATIONS)
    assert not {"capitals", "mIxEd CaSe"} & set(TRAINED)
