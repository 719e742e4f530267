"""Safeguards: whatever the model predicts, placeholders come back, nonsense is flagged, and terms are met."""

from pathlib import Path

import pytest
from dictated import SPEECHES, dictated

from dragoman.config import SearchConfig
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import Tokenizer
from dragoman.errors import UsageError
from dragoman.text import placeholders
from dragoman.text.faults import find_faults
from dragoman.text.glossary import Entry, Glossary
from dragoman.translation.safeguards import NO_SAFEGUARDS, Safeguards
from dragoman.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained, SearchConfig(beam=2))


def test_without_safeguards_placeholders_are_lost(tokenizer: Tokenizer):
    """The control for the tests of the second search."""
    text = "The {name} sees %s"
    for speech in ("nothing", "something made up"):
        (translation,) = dictated(tokenizer, SPEECHES[speech], NO_SAFEGUARDS).translate([text])
        assert placeholders.compare(text, translation.text) != ([], [])


def test_numbers_come_back_on_request(tokenizer: Tokenizer):
    def speech(text: str, search: SearchConfig) -> str:
        return text.replace("3.5 km", "4 km")

    text = "The dog sees 3.5 km of horses"
    assert "4 km" in dictated(tokenizer, speech).translate([text])[0].text
    assert "3.5 km" in dictated(tokenizer, speech, Safeguards(numbers=True)).translate([text])[0].text


@pytest.mark.parametrize("text", ["!!!", "ok", "😀", "-", "1", "A", "?", "...", "OK.", "…"])
def test_a_short_text_that_comes_back_as_it_is_has_no_fault(tokenizer: Tokenizer, text: str):
    (translation,) = dictated(tokenizer, SPEECHES["the source"]).translate([text])
    assert (translation.text, translation.flags, translation.retried) == (text, (), False)


def test_a_real_pair_has_no_fault(pairs: list[Pair]):
    assert not [pair for pair in pairs if find_faults(*pair)]


def test_no_translation_has_a_forbidden_word(translator: Translator, pairs: list[Pair]):
    sources = [source for source, _ in pairs[:40]]
    free = translator.translate(sources)
    words = [word for translation in free for word in translation.text.split() if word.isalpha()]
    word = max(set(words), key=words.count)
    bound = translator.replace(safeguards=Safeguards(forbidden=(word,))).translate(sources)
    assert sum(word in one.text for one in free) > 3  # the control
    assert sum(word in one.text for one in bound) <= 1
    assert all(word not in one.text or f"has {word}" in one.flags for one in bound)


def test_a_forbidden_word_is_not_blank():
    with pytest.raises(UsageError, match="a forbidden word must not be blank"):
        Safeguards(forbidden=("dog", " "))


def test_terms_of_a_glossary_stand_in_the_output(translator: Translator, pairs: list[Pair]):
    sources = [source for source, _ in pairs[:60]]
    glossary = Glossary([Entry("dog", ("개",), "any"), Entry("horses", ("zebras", "zebra"), "any")])
    free, bound = (
        translator.replace(safeguards=Safeguards(glossary=terms)).translate(sources) for terms in (None, glossary)
    )
    with_terms = [index for index, text in enumerate(sources) if glossary.find(text)]
    assert 5 < len(with_terms) < len(sources)
    for index in range(len(sources)):
        if index in with_terms:
            assert bound[index].terms_met
            assert not any(flag.startswith("no ") for flag in bound[index].flags)
        else:
            assert bound[index] == free[index]
    assert any("zebra" in bound[index].text for index in with_terms)


def test_a_term_inside_a_placeholder_is_not_translated():
    glossary = Glossary([Entry("dog", ("Hund",))])
    text = "Open {dog} at https://example.org/dog with `dog` <dog> and a dog"
    assert len(Safeguards(glossary=glossary).find_terms(text)) == 1
    assert len(Safeguards(glossary=glossary, placeholders=False).find_terms(text)) == 5  # the control


def test_a_missed_term_is_flagged_and_a_met_one_reported(tokenizer: Tokenizer):
    safeguards = Safeguards(glossary=Glossary([Entry("dog", ("Hund",)), Entry("cat", ("Katze",))]))
    (translation,) = dictated(tokenizer, lambda *_: "Der Hund sieht sie", safeguards).translate(["The dog, a cat"])
    assert (translation.flags, translation.terms_met) == (("no cat",), ("dog",))


def test_the_text_of_a_prefix_is_kept(translator: Translator, pairs: list[Pair]):
    sources = [source for source, _ in pairs[:10]]
    prefixes = [" ".join(target.split()[:1]) for _, target in pairs[1:11]]
    translator = translator.replace(safeguards=NO_SAFEGUARDS)
    free, bound = translator.translate(sources), translator.translate(sources, prefixes=prefixes)
    assert all(one.text.startswith(prefix) for one, prefix in zip(bound, prefixes, strict=True))
    assert [one.text for one in free] != [one.text for one in bound]


def test_a_lost_prefix_is_flagged(tokenizer: Tokenizer):
    translator = dictated(tokenizer, SPEECHES["the words backwards"])
    (translation,) = translator.translate(["The dog sees"], prefixes=["Hallo"])
    assert "lost prefix" in translation.flags


@pytest.mark.parametrize("safeguards", [NO_SAFEGUARDS, Safeguards()])
def test_a_prefix_that_repeats_itself_stays_where_repetitions_are_forbidden(trained: Path, safeguards: Safeguards):
    prefix = "한 한 한 한 한 한"
    translator = Translator.load(trained, SearchConfig(beam=2, no_repeat_ngram=2), safeguards)
    (translation,) = translator.translate(["The dog sees {name}"], prefixes=[prefix])
    assert translation.text.startswith(prefix)
