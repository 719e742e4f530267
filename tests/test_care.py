"""What translations are held to: whatever the model says, placeholders come back, and nonsense is seen."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import TINY
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import EOS, Tokenizer
from dragoman.decoding.engine import Constraints
from dragoman.decoding.search import Hypothesis
from dragoman.errors import UsageError
from dragoman.model import build
from dragoman.text import faults, placeholders
from dragoman.text.glossary import Entry, Glossary
from dragoman.translation.translator import NO_SAFEGUARDS, Safeguards, Translator

HELD = ["{name}", "%s", "%(count)d", "${x}", "https://example.org/a?b=1", "me@example.org", "`code()`", "{0}", "&amp;"]
TAGS = ["<b>", "</b>", "<br/>", '<a href="x">', "</a>"]
WORDS = ["The", "dog", "sees", "5", "red", "horses", ".", ",", "ok", "!"]


class Saying:
    """An engine that makes of each source whatever a function makes of its text."""

    max_positions: int | None = None

    def __init__(self, tokenizer: Tokenizer, say: Callable[[str, SearchConfig], str]):
        self.tokenizer, self.say, self.searches = tokenizer, say, 0

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        self.searches += len(sources)
        said = [self.say(self.tokenizer.decode(ids), config) for ids in sources]
        return [[Hypothesis(self.tokenizer.encode(text), -1.0)] for text in said]


def saying(
    tokenizer: Tokenizer, say: Callable[[str, SearchConfig], str], safeguards: Safeguards = Safeguards()
) -> Translator:
    model = build(TINY, len(tokenizer)).eval()
    return Translator(model, tokenizer, SearchConfig(beam=1), safeguards, Saying(tokenizer, say))


SPEAKERS: dict[str, Callable[[str, SearchConfig], str]] = {
    "the source": lambda text, _: text,
    "nothing": lambda text, _: "",
    "everything twice": lambda text, _: f"{text} {text}",
    "the words without what has to come back": lambda text, _: placeholders.remove(text)[0],
    "something made up": lambda text, _: "%s <i>lorem {x} ipsum</i> https://other.example",
    "less at first, and then without an end": lambda text, config: (
        "Der Hund " * 60 if config.no_repeat_ngram else "Der Hund"
    ),
    "the words backwards": lambda text, _: " ".join(reversed(text.split())),
}

held = st.lists(st.sampled_from(HELD + TAGS + WORDS), min_size=1, max_size=10).map(" ".join)


@pytest.mark.parametrize("speaker", SPEAKERS)
@settings(max_examples=40)
@given(texts=st.lists(held, min_size=1, max_size=4))
def test_what_has_to_come_back_comes_back_once_each_whatever_the_model_says(
    tokenizer: Tokenizer, speaker: str, texts: list[str]
):
    for text, found in zip(texts, saying(tokenizer, SPEAKERS[speaker]).translate(texts), strict=True):
        assert placeholders.compare(text, found.text) == ([], [])
        assert not any(flag.startswith(("lost", "invented")) for flag in found.flags)


def test_without_care_they_are_lost(tokenizer: Tokenizer):
    """The control for the test above."""
    text = "The {name} sees %s"
    for speaker in ("nothing", "something made up"):
        (found,) = saying(tokenizer, SPEAKERS[speaker], NO_SAFEGUARDS).translate([text])
        assert placeholders.compare(text, found.text) != ([], [])


def test_a_translation_with_all_that_it_needs_is_not_searched_for_again(tokenizer: Tokenizer):
    translator = saying(tokenizer, lambda text, _: text.replace("The dog", "Der Hund"))
    (found,) = translator.translate(["The dog {name}"])
    assert (found.text, found.retried, translator.engine.searches) == ("Der Hund {name}", False, 1)  # type: ignore[attr-defined]


def test_numbers_come_back_on_request(tokenizer: Tokenizer):
    def say(text: str, config: SearchConfig) -> str:
        return text.replace("3.5 km", "4 km")

    text = "The dog sees 3.5 km of horses"
    assert "4 km" in saying(tokenizer, say).translate([text])[0].text
    assert "3.5 km" in saying(tokenizer, say, Safeguards(numbers=True)).translate([text])[0].text


def stuttering(text: str, config: SearchConfig) -> str:
    return "Der Hund " + "sieht " * (3 if config.no_repeat_ngram else 60)


def test_nonsense_is_searched_for_again_and_the_better_one_is_kept(tokenizer: Tokenizer):
    (found,) = saying(tokenizer, stuttering).translate(["The dog sees 5 red horses."])
    assert (found.retried, found.flags) == (True, ())
    assert found.text.count("sieht") == 3
    (careless,) = saying(tokenizer, stuttering, NO_SAFEGUARDS).translate(["The dog sees 5 red horses."])
    assert careless.text.count("sieht") == 60  # the control


def test_what_is_still_wrong_is_flagged(tokenizer: Tokenizer):
    (found,) = saying(tokenizer, lambda text, _: "sieht " * 60).translate(["The dog sees 5 red horses."])
    assert found.retried
    assert "loop" in found.flags


@pytest.mark.parametrize("text", ["!!!", "ok", "😀", "-", "1", "A", "?", "...", "OK.", "…"])
def test_a_short_text_that_comes_back_as_it_is_has_no_fault(tokenizer: Tokenizer, text: str):
    (found,) = saying(tokenizer, lambda said, _: said).translate([text])
    assert (found.text, found.flags, found.retried) == (text, (), False)


def test_no_translation_has_a_forbidden_word(trained: Path, pairs: list[Pair]):
    sources = [source for source, _ in pairs[:40]]
    free = Translator.load(trained, SearchConfig(beam=2)).translate(sources)
    words = [word for found in free for word in found.text.split() if word.isalpha()]
    word = max(set(words), key=words.count)
    found = Translator.load(trained, SearchConfig(beam=2), Safeguards(forbidden=(word,))).translate(sources)
    assert sum(word in one.text for one in free) > 3  # the control
    for one in found:
        assert word not in one.text or f"has {word}" in one.flags
    assert sum(word in one.text for one in found) <= 1


def test_terms_of_a_glossary_stand_in_the_output(trained: Path, pairs: list[Pair]):
    sources = [source for source, _ in pairs[:60]]
    glossary = Glossary([Entry("dog", ("개",), "any"), Entry("horses", ("zebras", "zebra"), "any")])
    free, bound = (
        Translator.load(trained, SearchConfig(beam=2), Safeguards(glossary=terms)).translate(sources)
        for terms in (None, glossary)
    )
    with_terms = [number for number, text in enumerate(sources) if glossary.find(text)]
    assert 5 < len(with_terms) < len(sources)
    for number in range(len(sources)):
        if number in with_terms:
            assert bound[number].terms_met
            assert not any(flag.startswith("no ") for flag in bound[number].flags)
        else:
            assert bound[number] == free[number]
    assert any("zebra" in bound[number].text for number in with_terms)


def test_a_guard_sees_no_fault_in_a_real_pair(pairs: list[Pair]):
    assert not [faults.faults(*pair) for pair in pairs if faults.faults(*pair)]


def test_the_text_of_a_prefix_is_kept(trained: Path, pairs: list[Pair]):
    sources = [source for source, _ in pairs[:10]]
    prefixes = [" ".join(target.split()[:1]) for _, target in pairs[1:11]]
    translator = Translator.load(trained, SearchConfig(beam=2), NO_SAFEGUARDS)
    free, bound = translator.translate(sources), translator.translate(sources, prefixes=prefixes)
    assert all(found.text.startswith(prefix) for found, prefix in zip(bound, prefixes, strict=True))
    assert [found.text for found in free] != [found.text for found in bound]


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 3])
def test_a_needle_is_translated_alike_in_a_thousand_haystacks(trained: Path, pairs: list[Pair], beam: int):
    translator, needle = (
        Translator.load(trained, SearchConfig(beam=beam, extra_length=20)),
        "The dog sees 5 red horses.",
    )
    (alone,) = translator.translate([needle])
    sources = [source for source, _ in pairs]
    for trial in range(1000):
        chance = random.Random(trial)
        many = chance.choices(sources, k=chance.randrange(1, 24))
        place = chance.randrange(len(many))
        many[place] = needle
        assert translator.translate(many)[place].text == alone.text


class Beginning(Saying):
    """One that begins as it is asked to."""

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        found = super().search(sources, config, constraints)
        return [
            [Hypothesis([*demand.prefix, *hypothesis.tokens], -1.0)]
            for demand, (hypothesis,) in zip(constraints or [], found, strict=True)
        ]


@pytest.mark.parametrize("speaker", SPEAKERS)
@pytest.mark.parametrize("prefix", ["Hallo {name},", "Hallo", "{name}", "<b>%s</b>:"])
@pytest.mark.parametrize("text", ["The dog sees {name}", "The dog", "{name} %s", "<b>The dog</b> sees %s"])
def test_a_translation_begins_as_it_was_asked_to_also_after_a_second_search(
    tokenizer: Tokenizer, speaker: str, prefix: str, text: str
):
    translator = saying(tokenizer, SPEAKERS[speaker])
    translator.engine = Beginning(tokenizer, SPEAKERS[speaker])
    (found,) = translator.translate([text], prefixes=[prefix])
    assert found.text.startswith(prefix)
    lost, invented = placeholders.compare(text, found.text, prefix=prefix)
    assert (lost, invented) == ([], [])
    assert not any("prefix" in flag or flag.startswith(("lost", "invented")) for flag in found.flags)


def test_a_lost_prefix_is_told(tokenizer: Tokenizer):
    (found,) = saying(tokenizer, SPEAKERS["the words backwards"]).translate(["The dog sees"], prefixes=["Hallo"])
    assert "lost prefix" in found.flags


def test_a_prefix_that_repeats_itself_stays_where_repetitions_are_forbidden(trained: Path):
    prefix = "한 한 한 한 한 한"
    for safeguards in (NO_SAFEGUARDS, Safeguards()):
        translator = Translator.load(trained, SearchConfig(beam=2, no_repeat_ngram=2), safeguards)
        (found,) = translator.translate(["The dog sees {name}"], prefixes=[prefix])
        assert found.text.startswith(prefix)


def test_terms_inside_of_what_comes_back_as_it_is_are_none(tokenizer: Tokenizer):
    glossary = Glossary([Entry("dog", ("Hund",))])
    text = "Open {dog} at https://example.org/dog with `dog` <dog> and a dog"

    def met(safeguards: Safeguards) -> int:
        translator = saying(tokenizer, lambda text, _: text, safeguards)
        return len(translator._terms(text))

    assert met(Safeguards(glossary=glossary)) == 1
    assert met(Safeguards(glossary=glossary, placeholders=False)) == 5  # the control


def test_a_forbidden_word_is_a_word():
    with pytest.raises(UsageError, match="a forbidden word must not be blank"):
        Safeguards(forbidden=("dog", " "))


@pytest.mark.parametrize("search", [SearchConfig(beam=1), SearchConfig(beam=4, coverage_penalty=0.2)])
def test_an_output_that_goes_on_to_the_last_position_breaks_nothing(tokenizer: Tokenizer, search: SearchConfig):
    """Its alignment would need one more."""
    config = replace(TINY, positions="learned", max_length=24, output_bias=True)
    torch.manual_seed(0)
    model = build(config, len(tokenizer)).eval()
    with torch.no_grad():
        model.output.bias[EOS] = -1e3  # type: ignore[index]
    translator = Translator(model, tokenizer, search, Safeguards(faults=False))
    (found,) = translator.translate(["The {name} sees."])
    assert not found.finished
    assert "{name}" in found.text
