"""Normal forms of Unicode: those of the library, in time that grows in proportion to the text."""

import unicodedata
from collections.abc import Callable
from typing import Literal

import pytest
from growth import grows_too_fast, processor_seconds
from hypothesis import given
from hypothesis import strategies as st

from dragoman.check.columns import TextColumn
from dragoman.check.detectors import form_hits
from dragoman.data.normal_form import MANY, MARKS, normal_form, normal_forms
from dragoman.data.split import words_of
from dragoman.data.tokenizer import normalise
from dragoman.evaluation.metrics import normalise_texts

SHUFFLED = ["\u0301\u0327", "\uff9e\u0327\uff9f\u0301"]  # marks that change places, in NFC and in NFKC


@given(
    st.text(st.sampled_from("ae\u0301\u0327\uff9eｶ각가\u11a8\ufb01 "), max_size=40), st.sampled_from(["NFC", "NFKC"])
)
def test_normal_form_is_that_of_the_library(text: str, form: Literal["NFC", "NFKC"]):
    """Also of long texts whose marks are not all in one run."""
    assert normal_form(text, form) == unicodedata.normalize(form, text)
    long = f"{text}x" * MARKS
    assert normal_form(long, form) == unicodedata.normalize(form, long)


@given(st.lists(st.text(st.sampled_from("ae\u0301\u0327ｶ각가\u11a8 \n"), max_size=5), max_size=3 * MANY))
def test_texts_have_the_same_normal_form_together_as_alone(texts: list[str]):
    assert normal_forms(texts) == [normal_form(text) for text in texts]


READERS: dict[str, Callable[[str], object]] = {
    "NFC": normal_form,
    "NFKC": lambda text: normal_form(text, "NFKC"),
    "tokenizer": normalise,
    "check": lambda text: list(form_hits(TextColumn([text]))),
    "split": words_of,
    "evaluate": lambda text: normalise_texts(["a"], [text]),
}


@pytest.mark.parametrize("marks", SHUFFLED, ids=ascii)
@pytest.mark.parametrize("reader", READERS)
def test_time_for_marks_without_letters_grows_with_their_number(reader: str, marks: str):
    assert not grows_too_fast(lambda size: processor_seconds(lambda: READERS[reader](marks * size)), 20_000)


@pytest.mark.slow
@pytest.mark.parametrize(("form", "marks"), zip(["NFC", "NFKC"], SHUFFLED, strict=True))
def test_time_of_the_library_grows_with_the_square_control(form: Literal["NFC", "NFKC"], marks: str):
    """The control for the test above."""
    normalize = unicodedata.normalize
    assert grows_too_fast(lambda size: processor_seconds(lambda: normalize(form, marks * size)), 3000)


def test_check_finds_texts_that_are_not_normal_and_no_others():
    texts = ["é", "e\u0301", "plain", "", "\u1112\u1161\u11ab", "a" * 30_000 + "e\u0301"]
    (hits,) = (hits for hits in form_hits(TextColumn(texts)) if hits.rule == "not-nfc")
    assert hits.rows.tolist() == [text != unicodedata.normalize("NFC", text) for text in texts]
