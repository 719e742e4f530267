"""The second search: placeholders come back once each, whatever the model predicts, and the better result is kept."""

import dataclasses

import pytest
import torch
from conftest import TINY
from dictated import SPEECHES, DictatedEngine, dictated
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import SearchConfig
from dragoman.data.tokenizer import EOS, Tokenizer
from dragoman.model import build
from dragoman.text import placeholders
from dragoman.translation.safeguards import NO_SAFEGUARDS, Safeguards
from dragoman.translation.translator import Translator

HELD = ["{name}", "%s", "%(count)d", "${x}", "https://example.org/a?b=1", "me@example.org", "`code()`", "{0}", "&amp;"]
TAGS = ["<b>", "</b>", "<br/>", '<a href="x">', "</a>"]
WORDS = ["The", "dog", "sees", "5", "red", "horses", ".", ",", "ok", "!"]
SOURCE = "The dog sees 5 red horses."

mixed = st.lists(st.sampled_from(HELD + TAGS + WORDS), min_size=1, max_size=10).map(" ".join)


@pytest.mark.parametrize("speech", SPEECHES)
@settings(max_examples=40)
@given(texts=st.lists(mixed, min_size=1, max_size=4))
def test_placeholders_come_back_once_each_whatever_the_model_predicts(
    tokenizer: Tokenizer, speech: str, texts: list[str]
):
    translations = dictated(tokenizer, SPEECHES[speech]).translate(texts)
    for text, translation in zip(texts, translations, strict=True):
        assert placeholders.compare(text, translation.text) == ([], [])
        assert not any(flag.startswith(("lost", "invented")) for flag in translation.flags)


@pytest.mark.parametrize("speech", SPEECHES)
@pytest.mark.parametrize("prefix", ["Hallo {name},", "Hallo", "{name}", "<b>%s</b>:"])
@pytest.mark.parametrize("text", ["The dog sees {name}", "The dog", "{name} %s", "<b>The dog</b> sees %s"])
def test_a_translation_begins_with_its_prefix_also_after_a_second_search(
    tokenizer: Tokenizer, speech: str, prefix: str, text: str
):
    translator = dictated(tokenizer, SPEECHES[speech], honour_prefix=True)
    (translation,) = translator.translate([text], prefixes=[prefix])
    assert translation.text.startswith(prefix)
    assert placeholders.compare(text, translation.text, prefix=prefix) == ([], [])
    assert not any("prefix" in flag or flag.startswith(("lost", "invented")) for flag in translation.flags)


def test_a_translation_without_a_fault_is_not_searched_for_again(tokenizer: Tokenizer):
    translator = dictated(tokenizer, lambda text, _: text.replace("The dog", "Der Hund"))
    (translation,) = translator.translate(["The dog {name}"])
    assert (translation.text, translation.retried) == ("Der Hund {name}", False)
    assert isinstance(translator.engine, DictatedEngine)
    assert translator.engine.searches == 1


def test_nonsense_is_searched_for_again_and_the_better_one_is_kept(tokenizer: Tokenizer):
    def stutter(text: str, search: SearchConfig) -> str:
        return "Der Hund " + "sieht " * (3 if search.no_repeat_ngram else 60)

    (translation,) = dictated(tokenizer, stutter).translate([SOURCE])
    assert (translation.retried, translation.flags) == (True, ())
    assert translation.text.count("sieht") == 3
    (careless,) = dictated(tokenizer, stutter, NO_SAFEGUARDS).translate([SOURCE])
    assert careless.text.count("sieht") == 60  # the control


def test_what_is_still_wrong_is_flagged(tokenizer: Tokenizer):
    (translation,) = dictated(tokenizer, lambda text, _: "sieht " * 60).translate([SOURCE])
    assert translation.retried
    assert "loop" in translation.flags


@pytest.mark.parametrize("search", [SearchConfig(beam=1), SearchConfig(beam=4, coverage_penalty=0.2)])
def test_an_output_that_reaches_the_last_position_breaks_nothing(tokenizer: Tokenizer, search: SearchConfig):
    """Its alignment would need one more position."""
    config = dataclasses.replace(TINY, positions="learned", max_length=24, output_bias=True)
    torch.manual_seed(0)
    model = build(config, len(tokenizer)).eval()
    with torch.no_grad():
        model.output.bias[EOS] = -1e3  # type: ignore[index]
    (translation,) = Translator(model, tokenizer, search, Safeguards(faults=False)).translate(["The {name} sees."])
    assert not translation.finished
    assert "{name}" in translation.text
