"""Text in, text out: one translation for each text, in order, the same alone or in a crowd."""

import copy
import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY, TINY_RECURRENT
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import SearchConfig, TransformerConfig
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import BYTES, EOS, SPECIAL, Tokenizer
from dragoman.decoding.forced import score
from dragoman.decoding.torch_engine import SEARCH_TOKENS
from dragoman.model import build
from dragoman.text.segmentation import pieces
from dragoman.translation.translator import LONGEST, NO_SAFEGUARDS, Translation, Translator

SHORT = SearchConfig(beam=2, extra_length=3)

BLANK = ["", " ", "   ", "\t", "\u3000", "\u2028", "\r", "\u00a0"]
ODD = [
    "\0",
    "a\0b",
    "a\u2028b",
    "a\rb",
    "\ufeff",
    "\u200d",
    "\u202eabc",
    "😀",
    "e\u0301",
    " a ",
    "\ud800",
    "�",
    "</s>",
    ".",
]


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained, SHORT)


def with_favourite(tokenizer: Tokenizer, favourite: int, config: TransformerConfig = TINY) -> Translator:
    """A model that says little else but one token."""
    torch.manual_seed(0)
    model = build(dataclasses.replace(config, output_bias=True), len(tokenizer)).eval()
    with torch.no_grad():
        model.output.bias[favourite] = 9.0  # type: ignore[index]
        model.output.bias[EOS] += 3.0  # type: ignore[index]
    return Translator(model, tokenizer, SHORT, NO_SAFEGUARDS)


texts = st.lists(st.sampled_from(BLANK + ODD) | st.text(st.characters(codec="utf-8"), max_size=12), max_size=8)


@settings(max_examples=60)
@given(many=texts)
def test_there_is_one_line_for_each_text_and_blank_ones_stay(translator: Translator, many: list[str]):
    found = translator.translate(many)
    assert len(found) == len(many)
    assert all("\n" not in translation.text for translation in found)
    for text, translation in zip(many, found, strict=True):
        if not text.strip() and "\n" not in text:
            assert translation == Translation(text, 0.0)


@pytest.mark.parametrize("text", ["\n", "\n\n", " \n ", "\r\n"])
def test_a_blank_text_with_line_breaks_is_one_line_too(translator: Translator, text: str):
    (found,) = translator.translate([text])
    assert "\n" not in found.text
    assert not found.text.strip()


def test_nothing_is_translated_into_nothing(translator: Translator):
    assert translator.translate([]) == []
    assert list(translator.stream(iter(()))) == []


def test_translations_are_in_the_order_of_their_texts(translator: Translator, pairs: list[Pair]):
    many = [source for source, _ in pairs[:30]] + BLANK
    random.Random(0).shuffle(many)
    alone = {text: translator.translate([text])[0].text for text in many}
    assert [translation.text for translation in translator.translate(many)] == [alone[text] for text in many]
    assert len(set(alone.values())) > 3  # the control: so it matters which is which


def crowd(chance: random.Random, pairs: list[Pair]) -> list[str]:
    """Texts of all lengths, some odd or blank."""
    sources = [source for source, _ in pairs]
    return [" ".join(chance.choices([*sources, *ODD, *BLANK], k=chance.choice([1, 1, 2, 5]))) for _ in range(12)]


def in_crowds(translator: Translator, pairs: list[Pair]) -> Iterator[tuple[Translation, Translation]]:
    """A text translated alone, and at some place in ten crowds."""
    probe = "The dog sees 5 red horses."
    (alone,) = translator.translate([probe])
    for trial in range(10):
        chance = random.Random(trial)
        many = crowd(chance, pairs)
        place = chance.randrange(len(many))
        yield alone, translator.translate([*many[:place], probe, *many[place:]])[place]


@pytest.mark.parametrize("beam", [1, 3])
def test_a_text_is_translated_in_a_crowd_as_alone(translator: Translator, pairs: list[Pair], beam: int):
    for alone, together in in_crowds(Translator(translator.model, translator.tokenizer, SearchConfig(beam)), pairs):
        assert together.text == alone.text
        assert together.score == pytest.approx(alone.score, abs=1e-5)
        assert (together.segments, together.finished) == (alone.segments, alone.finished)


def test_a_model_that_looks_at_padding_translates_differently_in_a_crowd(translator: Translator, pairs: list[Pair]):
    """The control for the test above."""
    model = copy.deepcopy(translator.model)
    model.pad = -1
    scores = list(in_crowds(Translator(model, translator.tokenizer, SearchConfig(1)), pairs))
    assert any(abs(together.score - alone.score) > 1e-3 for alone, together in scores)


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_a_stream_is_translated_as_the_whole(translator: Translator, pairs: list[Pair], chunk: int):
    many = crowd(random.Random(0), pairs)
    whole, parts = translator.translate(many), list(translator.stream(iter(many), chunk))
    assert [translation.text for translation in parts] == [translation.text for translation in whole]


def test_a_stream_reads_no_more_than_it_needs(translator: Translator):
    read = []

    def lines() -> Iterator[str]:
        for number in range(100):
            read.append(number)
            yield "The dog"

    stream = translator.stream(lines(), 4)
    next(stream)
    assert len(read) == 4


def test_a_line_break_in_a_translation_becomes_a_space(tokenizer: Tokenizer):
    newline = len(SPECIAL) + BYTES.index("<0x0A>")
    translator = with_favourite(tokenizer, newline)
    (found,) = translator.translate(["The dog"])
    assert "\n" not in found.text
    assert " " in found.text
    # The control: the model did say line breaks.
    assert newline in translator.search_ids([tokenizer.encode("The dog")])[0].tokens


def test_a_word_of_100_kilobytes_is_translated_in_parts(tokenizer: Tokenizer):
    translator = with_favourite(tokenizer, EOS)
    word = "x" * 100_000
    short, long, after = translator.translate(["The dog", word, "The cat"])
    assert (short.segments, after.segments) == (1, 1)
    assert long.segments == -(-len(tokenizer.encode(word)) // LONGEST) > 1
    assert long.finished


def test_sentences_of_a_long_text_are_translated_as_texts_and_joined(translator: Translator, pairs: list[Pair]):
    sentences = [source for source, _ in pairs[:40]] * 5
    translator = Translator(translator.model, translator.tokenizer, SHORT, NO_SAFEGUARDS)
    text = " ".join(sentences)
    (whole,) = translator.translate([text])
    found = translator.translate(list(pieces(text, lambda piece: len(translator.tokenizer.encode(piece)) <= LONGEST)))
    assert whole.segments == len(found) > 1
    assert whole.text == " ".join(one.text for one in found)
    assert whole.score == pytest.approx(sum(one.score for one in found), abs=1e-4)
    assert whole.finished == all(one.finished for one in found)


def test_a_text_is_one_part_up_to_the_longest(tokenizer: Tokenizer):
    translator = with_favourite(tokenizer, EOS)
    unit = "x"
    while len(tokenizer.encode(unit * 2)) <= LONGEST:
        unit *= 2
    for text in (unit, unit + unit):
        ids = tokenizer.encode(text)
        assert translator.translate([text])[0].segments == (1 if len(ids) <= LONGEST else -(-len(ids) // LONGEST))


def test_a_translation_that_was_cut_off_is_not_finished(tokenizer: Tokenizer):
    word = tokenizer.encode("dog")[0]
    assert not with_favourite(tokenizer, word).translate(["The dog"])[0].finished
    assert with_favourite(tokenizer, EOS).translate(["The dog"])[0].finished


@pytest.mark.parametrize("max_length", [20, 60, 64])
@pytest.mark.parametrize("beam", [1, 2])
def test_learned_positions_are_never_too_few(tokenizer: Tokenizer, max_length: int, beam: int):
    """Also where the longest output that the search allows has no place among them."""
    config = dataclasses.replace(TINY, positions="learned", max_length=max_length)
    translator = with_favourite(tokenizer, tokenizer.encode("dog")[0], config)
    translator = Translator(translator.model, tokenizer, SearchConfig(beam=beam))
    found = translator.translate(["The dog sees 5 red horses.", "The dog " * 40, ""])
    assert len(found) == 3
    assert found[1].segments > 1


def test_a_recurrent_model_translates_too(tokenizer: Tokenizer):
    torch.manual_seed(0)
    translator = Translator(build(TINY_RECURRENT, len(tokenizer)).eval(), tokenizer, SHORT)
    many = ["The dog", "", "The dog sees 5 red horses."]
    assert [found.text for found in translator.translate(many)] == [translator.translate([t])[0].text for t in many]


def test_batches_of_a_search_are_bounded_and_lose_nothing(translator: Translator):
    """The longest sentences first, last and in the middle."""
    lengths = [500, 1, 30, 2, 400, 3, 500] * 4
    sources = [[300 + n % 50] * length for n, length in enumerate(lengths)]
    seen: list[int] = []

    class Watched:
        config, parameters, step = translator.model.config, translator.model.parameters, translator.model.step

        def start(self, source: torch.Tensor) -> object:
            seen.append(source.numel())
            return translator.model.start(source)

    watching = Translator(Watched(), translator.tokenizer, SHORT)  # type: ignore[arg-type]
    found = watching.search_ids(sources)
    assert [hypothesis.tokens for hypothesis in found] == [
        translator.search_ids([source])[0].tokens for source in sources
    ]
    assert max(seen) <= SEARCH_TOKENS // SHORT.beam
    assert 1 < len(seen) < len(sources)


def test_the_scores_of_words_add_up_to_that_of_the_translation(trained: Path, pairs: list[Pair]):
    sources = [source for source, _ in pairs[:10]] + ["", "x" * 5000]
    translator = Translator.load(trained, SearchConfig(beam=2, length_penalty=0.0), NO_SAFEGUARDS)
    outputs = translator.translate(sources)
    words = translator.annotator.word_scores(sources, [found.text for found in outputs])
    for found, scores in zip(outputs[:10], words, strict=False):
        assert " ".join(word for word, _ in scores).strip() == " ".join(found.text.split())
        assert sum(log_p for _, log_p in scores) == pytest.approx(found.score, abs=1e-3)
    assert words[10:] == [[], []]
    others = translator.annotator.word_scores(sources, [found.text for found in outputs[::-1]])
    assert others != words  # the control


def test_every_word_that_was_said_is_aligned_with_a_word_of_its_source(trained: Path, pairs: list[Pair]):
    sources = [source for source, _ in pairs[:10]] + [""]
    translator = Translator.load(trained, SearchConfig(beam=2), NO_SAFEGUARDS)
    outputs = [found.text for found in translator.translate(sources)]
    *links, blank = translator.annotator.alignments(sources, outputs)
    assert blank == ""
    for source, output, row in zip(sources, outputs, links, strict=False):
        found = [tuple(map(int, link.split("-"))) for link in row.split()]
        assert sorted(word for _, word in found) == list(range(len(output.split())))
        assert all(0 <= place < len(source.split()) for place, _ in found)


def test_a_model_without_attention_aligns_nothing(tokenizer: Tokenizer):
    config = dataclasses.replace(TINY_RECURRENT, attention="none")
    translator = Translator(build(config, len(tokenizer)).eval(), tokenizer, SHORT)
    assert translator.annotator.alignments(["The dog"], ["x y"]) == [""]


def test_words_are_scored_and_aligned_as_the_model_read_their_source_with_its_tag(pairs: list[Pair]):
    torch.manual_seed(0)
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), tags=["med"])
    translator = Translator(build(TINY, len(tokenizer)).eval(), tokenizer, SHORT)
    sources = [source for source, _ in pairs[:5]]
    outputs, tags = [target for _, target in pairs[:5]], ["med"] * len(sources)
    scores = translator.annotator.word_scores(sources, outputs, tags)
    likelihoods = score(translator.model, [tokenizer.encode(source, "med") for source in sources],
                        tokenizer.encode_all(outputs))  # fmt: skip
    without = translator.annotator.word_scores(sources, outputs)
    for words, likelihood, others in zip(scores, likelihoods, without, strict=True):
        assert sum(log_p for _, log_p in words) == pytest.approx(likelihood.total, abs=1e-4)
        assert sum(log_p for _, log_p in others) != pytest.approx(likelihood.total, abs=1e-2)  # the control
    for source, row in zip(sources, translator.annotator.alignments(sources, outputs, tags), strict=True):
        assert all(0 <= int(link.split("-")[0]) < len(source.split()) for link in row.split())


@pytest.mark.parametrize("space", [" ", "\n", "\u3000"])
def test_wide_space_in_a_long_text_is_no_text(trained: Path, space: str):
    """Nothing is made up for it, and it stays a space between the parts."""
    translator = Translator.load(trained, SHORT, NO_SAFEGUARDS)
    engine, seen = translator.engine, list[list[int]]()

    class Watched:
        max_positions = engine.max_positions

        def search(self, sources: list[list[int]], *others: Any) -> Any:
            seen.extend(sources)
            return engine.search(sources, *others)

    translator.engine = Watched()
    (found,) = translator.translate([f"The dog sees 5 cats.{space * 1500}The man sees it.{space * 700}"])
    texts = [translator.tokenizer.decode(ids) for ids in seen]
    assert " ".join(" ".join(texts).split()) == "The dog sees 5 cats. The man sees it."
    assert max(len(text) - len(text.strip()) for text in texts) <= 2
    assert found.segments == len(seen)
