"""Text in, text out: one translation for each text, in order, the same alone or in a crowd."""

import copy
import dataclasses
import itertools
import json
import random
import re
import shutil
import unicodedata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY, TINY_RECURRENT, signed_again
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.alignment.heads import AlignmentHead
from dragoman.config import SearchConfig, TransformerConfig
from dragoman.config.search import Split
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import BYTES, EOS, SPECIAL, Tokenizer
from dragoman.decoding import torch_engine
from dragoman.decoding.forced import score
from dragoman.decoding.torch_engine import SEARCH_TOKENS, TorchEngine
from dragoman.errors import DragomanError, UsageError
from dragoman.model import build
from dragoman.model_folder import read_model
from dragoman.storage.writing import replace_link
from dragoman.text.extent import SourceExtent
from dragoman.text.glossary import Entry, Glossary
from dragoman.translation import engines
from dragoman.translation.prefixes import divide_prefix
from dragoman.translation.safeguards import NO_SAFEGUARDS, Safeguards
from dragoman.translation.segments import Segment, space_after, spaced_outputs
from dragoman.translation.translation import Translation
from dragoman.translation.translator import MAX_SOURCE_TOKENS, Translator

SHORT = SearchConfig(beam=2, extra_length=3)
PROBE = "The dog sees 5 red horses."
BLANK = ["", " ", "   ", "\t", "\u3000", "\u2028", "\r", "\u00a0", "\n", "\n\n", " \n ", "\r\n"]
ODD = [
    "\0", "a\0b", "a\u2028b", "a\rb", "\ufeff", "\u200d", "\u202eabc", "😀", "e\u0301", " a ", "\ud800", "�", "</s>",
    ".",
]  # fmt: skip


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained, SHORT)


def with_favourite(tokenizer: Tokenizer, favourite: int, config: TransformerConfig = TINY) -> Translator:
    """Return a translator whose model predicts little else but one token."""
    torch.manual_seed(0)
    model = build(dataclasses.replace(config, output_bias=True), len(tokenizer)).eval()
    with torch.no_grad():
        model.output.bias[favourite] = 9.0  # type: ignore[index]
        model.output.bias[EOS] += 3.0  # type: ignore[index]
    return Translator(model, tokenizer, SHORT, NO_SAFEGUARDS)


texts = st.lists(st.sampled_from(BLANK + ODD) | st.text(st.characters(codec="utf-8"), max_size=12), max_size=8)


def test_white_space_around_a_text_changes_nothing(translator: Translator, pairs: list[Pair]):
    """Such as the line feed of a line of a file, which no training source has."""
    texts = [source for source, _ in pairs[:20]]
    plain = [(one.text, one.score) for one in translator.translate(texts)]
    for before, after in (("", "\n"), ("", "\r\n"), ("  ", " \t"), ("\u00a0", "\u00a0")):
        found = translator.translate([f"{before}{text}{after}" for text in texts])
        assert [one.text for one in found] == [text for text, _ in plain]
        assert [one.score for one in found] == pytest.approx([score for _, score in plain], abs=1e-5)
    assert [one.text for one in translator.translate(["\n", " \t\r\n", ""])] == ["", " \t", ""]


@pytest.mark.parametrize("space", ["\t", "\n", "\u00a0", "\u2009", "\u2028"])
def test_white_space_that_no_model_has_learned_is_read_as_a_space(
    translator: Translator, pairs: list[Pair], space: str
):
    texts = [source for source, _ in pairs[:20]]
    plain = translator.translate(texts)
    found = translator.translate([text.replace(" ", space) for text in texts], alignments=True)
    assert [(one.text, one.score) for one in found] == [(one.text, one.score) for one in plain]
    scores = translator.annotator.word_scores([one.segments for one in found])
    assert scores == translator.annotator.word_scores([one.segments for one in plain])
    learned = Tokenizer.train([f"a{space}b"])  # the control
    assert learned.encode_sources([f"a{space}b"]) == learned.encode_all([f"a{space}b"])


def test_runs_of_white_space_are_read_as_one_space(translator: Translator, pairs: list[Pair]):
    checked = translator.replace(safeguards=Safeguards(glossary=Glossary([Entry("red horses", ("개가",))])))
    texts = ["The {name} dog sees %s {name} now.", PROBE, *(source for source, _ in pairs[:20])]
    plain = checked.translate(texts, alignments=True)
    for space in ("  ", "\t\t", " \u00a0\t "):
        found = checked.translate([text.replace(" ", space) for text in texts], alignments=True)
        assert [(one.text, one.score, one.alignment) for one in found] == [
            (one.text, one.score, one.alignment) for one in plain
        ]
    assert plain[0].retried
    assert "개가" in plain[1].text
    assert '<a  b="c">' in checked.translate('The  dog sees <a  b="c">now</a>.').text  # placeholders keep theirs


@settings(max_examples=20)
@given(many=texts)
def test_translate_gives_each_text_one_line_and_leaves_blank_ones(translator: Translator, many: list[str]):
    translations = translator.translate(many)
    assert len(translations) == len(many)
    for text, translation in zip(many, translations, strict=True):
        assert "\n" not in translation.text
        if not text.strip():
            assert not translation.text.strip()
            assert translation == Translation(text, 0.0) or "\n" in text


def same(one: list[Translation], other: list[Translation]) -> bool:
    """Whether they are the same, their scores nearly."""
    words = [[(t.text, t.segments, t.finished) for t in translations] for translations in (one, other)]
    return words[0] == words[1] and [t.score for t in one] == pytest.approx([t.score for t in other], abs=1e-5)


@pytest.mark.parametrize("beam", [1, 3])
def test_texts_are_translated_in_a_crowd_and_in_a_stream_as_alone(translator: Translator, pairs: list[Pair], beam: int):
    """Texts of all lengths, some odd or blank."""
    translator, chance = translator.replace(search=SearchConfig(beam, extra_length=3)), random.Random(0)
    parts = [source for source, _ in pairs] + ODD + BLANK
    many = [" ".join(chance.choices(parts, k=chance.choice([1, 1, 2, 5]))) for _ in range(14)] + BLANK
    chance.shuffle(many)
    alone = [translator.translate([text])[0] for text in many]
    assert same(alone, translator.translate(many))
    for chunk in (3, 1000):
        assert same(alone, list(translator.stream(iter(many), chunk)))
    assert len({translation.text for translation in alone}) > 3  # the control: so it matters which is which
    careless = copy.deepcopy(translator.model)
    careless.pad = -1  # the control: a model that looks at padding
    blind = Translator(careless, translator.tokenizers, translator.search)
    assert not same([blind.translate([text])[0] for text in many[:12]], blind.translate(many[:12]))
    assert list(translator.stream(iter(()))) == []


def test_stream_reads_no_more_than_it_needs(translator: Translator):
    read = []
    stream = translator.stream((read.append(number) or "The dog" for number in range(100)), 4)  # type: ignore[func-returns-value]
    next(stream)
    assert len(read) == 4


def test_line_break_in_a_translation_becomes_a_space(tokenizer: Tokenizer):
    newline = len(SPECIAL) + BYTES.index("<0x0A>")
    translator = with_favourite(tokenizer, newline)
    text = translator.translate(["The dog"])[0].text
    assert "\n" not in text
    assert " " in text
    # The control: the model did predict line breaks.
    assert newline in translator.search_ids([tokenizer.encode("The dog")])[0].tokens


def test_line_ends_between_sentences_become_spaces(tokenizer: Tokenizer):
    translator = with_favourite(tokenizer, EOS)
    found = [translator.translate(f"The dog.{end}The cat.").text for end in (" ", "\n", "\r\n")]
    assert found == [found[0]] * 3
    assert " " in found[0]
    assert "\r" in translator.translate("The dog.\rThe cat.").text  # the control: by itself it ends no line


# Long texts.


def test_texts_are_cut_only_where_they_are_longer_than_the_limit(tokenizer: Tokenizer):
    translator, unit = with_favourite(tokenizer, EOS), "x"
    while len(tokenizer.encode(unit * 2)) <= MAX_SOURCE_TOKENS:
        unit *= 2
    texts = [unit, unit + unit, "x" * 20_000, "The dog"]
    for text, translation in zip(texts, translator.translate(texts), strict=True):
        assert len(translation.segments) == -(-len(tokenizer.encode(text)) // MAX_SOURCE_TOKENS)
        assert translator.cuts_sentence(translation) == (len(translation.segments) > 1)
        assert translation.finished


@pytest.mark.parametrize(
    ("split", "extent", "segments"),
    [
        ("sentences", SourceExtent(1, 512), 200),
        ("sentences", SourceExtent(3, 512), 67),
        ("sentences", SourceExtent(512, 512), 4),
        ("long", SourceExtent(1, 512), 4),
        ("long", SourceExtent(1, 20), 135),
        ("none", SourceExtent(1, 20), 4),
    ],
)
def test_segment_has_as_many_sentences_as_a_training_source(
    translator: Translator, pairs: list[Pair], split: Split, extent: SourceExtent, segments: int
):
    """They are translated as texts by themselves, and joined again as they stood."""
    search = dataclasses.replace(translator.search, split=split)
    translator = Translator(translator.model, translator.tokenizers, search, NO_SAFEGUARDS, extent=extent)
    text = "  ".join([source for source, _ in pairs[:40]] * 5)
    (whole,) = translator.translate([text])
    assert "".join(source for source, _ in whole.segments) == text
    assert "".join(output for _, output in whole.segments) == whole.text
    assert len(whole.segments) == segments
    assert not translator.cuts_sentence(whole)
    translations = translator.translate([source.rstrip() for source, _ in whole.segments])
    assert whole.text == "  ".join(one.text for one in translations)
    assert whole.score == pytest.approx(sum(one.score for one in translations), abs=1e-4)
    assert whole.finished == all(one.finished for one in translations)


@pytest.mark.parametrize(
    "text", ["42", "---", "!?", "...", "1234-5678", "😀 👍", "12:30", "5 + 7 = 12", "{name}", "<b>%d</b>"]
)
def test_text_without_words_stays_as_it_is(translator: Translator, text: str):
    (translation,) = translator.replace(safeguards=Safeguards()).translate([text])
    assert (translation.text, translation.flags, translation.finished) == (text, (), True)
    hypotheses = translator.search_ids([translator.tokenizers.source.encode(text)])
    assert (
        translator.tokenizers.source.decode(hypotheses[0].tokens) != text
    )  # the control: the model makes something up


@pytest.mark.parametrize("text", ["The dog.", "The dog sees 2 red cats.", "The cat likes 3 dogs."])
def test_space_behind_a_prefix_ends_its_last_word(translator: Translator, text: str):
    whole = translator.translate(text).text
    words = whole.split(" ")
    for count in range(1, len(words) + 1):
        prefix = " ".join(words[:count])
        found = translator.translate(text, prefixes=f"{prefix} ").text
        assert found == prefix or found.startswith(f"{prefix} ")
        assert "  " not in found
        assert translator.translate(text, prefixes=f"{prefix}   ").text == found
    cut = words[0][:1]
    assert translator.translate(text, prefixes=f"{cut} ").text.startswith((f"{cut} ", cut + "\n"))
    assert translator.translate(text, prefixes="\t ").text == whole
    assert translator.translate("42", prefixes="개: ").text == "개: 42"


@pytest.mark.parametrize("text", ["The dog likes 4 cats.", "The man sees 7 dogs."])
def test_forbidden_words_do_not_follow_a_prefix_with_a_space_either(translator: Translator, text: str):
    words = translator.translate(text).text.split()
    for count in range(1, len(words)):
        begun, following = " ".join(words[:count]) + " ", words[count].rstrip(".")
        if following in begun:
            continue
        strict = translator.replace(safeguards=Safeguards(placeholders=False, forbidden_exact=(following,)))
        assert translator.translate(text, prefixes=begun).text.startswith(begun + following)  # the control
        assert not strict.translate(text, prefixes=begun).text.removeprefix(begun).startswith(f"{following} ")
        assert following not in {one.word for one in strict.alternatives(text, begun)}


def test_term_may_replace_the_word_after_a_prefix_with_a_space(translator: Translator):
    text = "The dog likes 4 cats."
    begun = translator.translate(text).text.split()[0] + " "
    ids = translator.tokenizers.source.encode(text)
    (plain,) = translator._segments(text, ids, "", begun)
    bound = translator.replace(safeguards=Safeguards(glossary=Glossary([Entry("likes", ("말",))])))
    (free,) = bound._segments(text, ids, "", begun)
    assert free.prefix_ids == translator.tokenizers.target.encode(begun.rstrip())
    assert len(plain.prefix_ids) > len(free.prefix_ids)  # the control: one word is chosen


def test_prefix_is_divided_among_the_sentences_of_a_text(translator: Translator):
    text, first = "The dog. The cat likes 3 dogs. The man.", "개가 봐요."
    second = translator.translate("The cat likes 3 dogs.", prefixes="말")
    third = translator.translate("The man.")
    found = translator.translate(text, prefixes=f"{first} 말")
    assert found.text == f"{first} {second.text} {third.text}"
    assert [output.strip() for _, output in found.segments] == [first, second.text, third.text]
    assert found.score == pytest.approx(second.score + third.score, abs=1e-4)
    many = translator.translate(text, prefixes=f"{first} 말", n_best=2)
    assert many.alternatives[0].text.startswith(f"{first} 말")
    all_of_it = translator.translate("The cat likes 3 dogs.", prefixes=f"{first} 말")
    assert all_of_it.text.startswith(f"{first} 말")  # where there is one sentence

    decomposed = unicodedata.normalize("NFD", "개 [9].")  # as it was given, whatever its tokens say
    assert translator.tokenizers.target.decode(translator.tokenizers.target.encode(decomposed)) != decomposed
    assert translator.translate(text, prefixes=f"{decomposed} ").text.startswith(f"{decomposed} ")
    patient = translator.replace(search=SearchConfig(2))  # which cuts no sentence off
    whole = patient.translate(text)
    begun = "".join(output for _, output in whole.segments[:1])
    assert patient.translate(text, prefixes=begun).text == whole.text


def test_other_words_are_those_where_the_prefix_ends(translator: Translator):
    text, first = "The dog. The cat likes 3 dogs. The man.", "개가 봐요."
    for begun in ("말", "말 ", ""):
        words = translator.alternatives(text, f"{first} {begun}", count=3)
        expected = translator.alternatives("The cat likes 3 dogs.", begun, count=3)
        assert words
        assert [(one.word, one.probability) for one in words] == [(one.word, one.probability) for one in expected]
        assert all(one.translation.text.startswith(f"{first} {begun}") for one in words)
    control = translator.alternatives(text, first, count=3)
    assert [one.word for one in control] != [one.word for one in words]


@given(st.lists(st.sampled_from(["개가", "Mr.", "z. B.", "봐요.", "a?", "5.", "…", "。"]), min_size=1, max_size=9))
@settings(max_examples=200)
def test_divided_prefix_loses_nothing(words: list[str]):
    prefix = " ".join(words)
    texts = ["The dog.", "A cat. A man.", "The end."]
    for whole in (prefix, f"{prefix} "):
        parts = divide_prefix(whole, texts)
        assert "".join(parts) == whole
        assert 1 <= len(parts) <= len(texts)
        assert all(part.strip() for part in parts[:-1])
        assert divide_prefix(whole, texts[:1]) == [whole]


def test_model_of_numbers_translates_numbers(translator: Translator):
    model, tokenizer = translator.model, translator.tokenizers.source
    numbers = Translator(model, tokenizer, SHORT, NO_SAFEGUARDS, extent=SourceExtent(1, 512, wordless=True))
    assert numbers.translate(["42"])[0].text != "42" == translator.translate(["42"])[0].text


@pytest.mark.parametrize(
    "marker",
    [
        "- ", "– ", "-- ", "• ", "→ ", "😀 ", "2) ", "(3) ", "[4] ", "5. ", "6.7. ", "-", "–", "—", "•",
        "- ♪ ", "- 😀 ", "→ ♪ ", "[2] • ", "- 2) ", "• –", "- 5. ",
    ],
)  # fmt: skip
def test_bullets_numbers_and_dashes_of_dialogue_stay(translator: Translator, marker: str):
    dog, man = (one.text for one in translator.translate(["The dog.", "The man."]))
    assert translator.translate([f"{marker}The dog. {marker}The man."])[0].text == f"{marker}{dog} {marker}{man}"
    assert translator.translate([f"{marker}The dog."], prefixes=["개가"])[0].text.startswith(f"{marker}개가")
    parts = translator.model, translator.tokenizers.source, SHORT, NO_SAFEGUARDS
    paragraphs = Translator(*parts, extent=SourceExtent(2, 512))
    assert paragraphs.translate([f"{marker}The dog. {marker}The man."])[0].text == f"{marker}{dog} {marker}{man}"
    assert translator.translate([f"{marker}The dog.  ♪"])[0].text == f"{marker}{dog}  ♪"


@pytest.mark.parametrize(
    "markup",
    [
        "<b>{}</b> {}", "<b>{}</b><i>{}</i>", "<b>{} {}</b>", "<p><i>{} <b>{}</b></i></p>", "{}<br>{}", "{}<br/> {}",
        "{} <br> {}", "<br>{}<br><br>{}<br>", "<li>{}</li> <li>{}", "{}<sup>1</sup> {}", "{}[1] {}", "{}😀 {}",
        '{}<x id="1"/> {}', "<p>- {}<br>- {}</p>",
    ],
)  # fmt: skip
def test_marks_around_sentences_stay_around_them(translator: Translator, markup: str):
    """Tags, notes and emoji, also those that open in one sentence and close in another."""
    translator = translator.replace(safeguards=Safeguards(faults=False))
    dog, man = (one.text for one in translator.translate(["The dog.", "The man."]))
    whole = translator.translate(markup.format("The dog.", "The man."))
    assert (whole.text, whole.flags, whole.retried) == (markup.format(dog, man), (), False)
    without = translator.replace(safeguards=NO_SAFEGUARDS)  # the control: tags are words like any others
    assert "<" not in markup or without.translate(markup.format("The dog.", "The man.")).text != whole.text
    prefixed = translator.translate(markup.format("The dog.", "The man."), prefixes="개가")
    assert prefixed.text.startswith(markup[: markup.index("{")] + "개가")


@pytest.mark.parametrize(
    ("source", "outputs", "expected"),
    [
        ("<b>One.</b> Two.", ["<b>", "一。", "</b>", "二。"], "<b>一。</b>二。"),
        ("一。<b>二。</b>", ["One.", "<b>", "Two.", "</b>"], "One. <b>Two.</b>"),
        ("<b>一。</b>二。", ["<b>", "One.", "</b>", "Two."], "<b>One.</b> Two."),
    ],
)
def test_between_tags_there_is_a_space_where_the_language_writes_one(
    translator: Translator, source: str, outputs: list[str], expected: str
):
    segments = translator.replace(safeguards=Safeguards()).segmenter.cut(
        source, translator.tokenizers.source.encode(source), 99
    )
    assert "".join(spaced_outputs(segments, outputs)) == expected


@pytest.mark.parametrize("text", ["-5 dogs", "2.5 dogs", "3. dogs", "♪dogs", "I ♥ dogs", "(dogs)"])
def test_marks_that_belong_to_words_are_no_bullets(translator: Translator, text: str):
    """The control for the test above."""
    assert translator.translate([text])[0].segments[0][0] == text


@pytest.mark.parametrize("space", [" ", "\n", "\u3000"])
def test_wide_space_in_a_long_text_is_no_text(translator: Translator, space: str):
    """Nothing is made up for it, and it stays a space between the segments."""
    translator = translator.replace(safeguards=NO_SAFEGUARDS)
    seen: list[list[int]] = []

    class Recording:
        max_positions = translator.engine.max_positions

        def search(self, sources: list[list[int]], *others: Any) -> Any:
            seen.extend(sources)
            return translator.engine.search(sources, *others)

    text = f"The dog sees 5 cats.{space * 1500}The man sees it.{space * 700}"
    (translation,) = translator.replace(engine=Recording()).translate([text])
    texts = [translator.tokenizers.source.decode(ids) for ids in seen]
    assert " ".join(" ".join(texts).split()) == "The dog sees 5 cats. The man sees it."
    assert max(len(text) - len(text.strip()) for text in texts) <= 2
    assert len(translation.segments) == len(seen)


def test_translation_that_was_cut_off_is_not_finished(tokenizer: Tokenizer):
    word = tokenizer.encode("dog")[0]
    assert not with_favourite(tokenizer, word).translate(["The dog"])[0].finished
    assert with_favourite(tokenizer, EOS).translate(["The dog"])[0].finished


@pytest.mark.parametrize("max_length", [20, 60, 64])
@pytest.mark.parametrize("beam", [1, 2])
def test_learned_positions_are_never_too_few(tokenizer: Tokenizer, max_length: int, beam: int):
    """Also where the longest output that the search allows has more tokens than the model has positions."""
    config = dataclasses.replace(TINY, positions="learned", max_length=max_length)
    translator = with_favourite(tokenizer, tokenizer.encode("dog")[0], config)
    translator = translator.replace(search=SearchConfig(beam), safeguards=Safeguards())
    _, long, _ = translator.translate([PROBE, "The dog " * 40, ""])
    assert len(long.segments) > 1


def test_prefix_longer_than_the_source_may_be_is_kept(translator: Translator):
    prefix = "개가 봐요 " * 30
    brief = translator.replace(search=SearchConfig(2, extra_length=1))
    translation = brief.translate("The dog.", prefixes=prefix)
    assert translation.text.startswith(prefix.rstrip())
    assert len(translation.text) > len(prefix.rstrip())


def test_prefix_longer_than_outputs_of_the_model_is_refused(tokenizer: Tokenizer):
    """The control is one that leaves room for a token."""
    config = dataclasses.replace(TINY, positions="learned", max_length=20)
    translator = with_favourite(tokenizer, tokenizer.encode("dog")[0], config)
    count = len(tokenizer.encode("dog dog")) - len(tokenizer.encode("dog"))
    fitting, too_long = ("dog " * (number // count) for number in (19, 20 + count))
    assert translator.translate("The dog", prefixes=fitting.rstrip()).text.startswith(fitting.rstrip())
    with pytest.raises(UsageError, match="may begin with at most 19 subwords, not with 2"):
        translator.translate("The dog", prefixes=too_long.rstrip())


def test_prefix_far_longer_than_any_translation_is_refused(translator: Translator):
    """A server would search for minutes otherwise. The control is a long one."""
    assert translator.translate("A dog", prefixes="dog " * 100).text.startswith("dog dog")
    with pytest.raises(UsageError, match=r"may begin with at most 5\d\d subwords, not with 2,000"):
        translator.translate("A dog", prefixes="dog " * 2000)


def test_translator_says_that_the_weights_are_damaged(tokenizer: Tokenizer):
    """They are finite, but what is computed with them is not."""
    torch.manual_seed(0)
    model = build(TINY, len(tokenizer)).eval()
    searches = (SearchConfig(1), SHORT, SearchConfig(temperature=1.0))
    assert [Translator(model, tokenizer, search).translate(PROBE).text is not None for search in searches] == [True] * 3
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1e37)
    for search in searches:
        with pytest.raises(DragomanError, match="its weights are damaged"):
            Translator(model, tokenizer, search).translate(PROBE)


def test_output_at_the_last_position_is_scored_without_eos(tokenizer: Tokenizer):
    """By what looks for the terms of a glossary in it, and by a coverage penalty."""
    longest, dog = 20, tokenizer.encode("dog")
    config = dataclasses.replace(TINY, positions="learned", max_length=longest)
    plain = with_favourite(tokenizer, dog[0], config).replace(search=SearchConfig(2, min_length=longest))
    found = plain.translate(PROBE)
    assert (found.finished, len(found.tokens[0])) == (False, longest)
    with pytest.raises(ValueError, match="positions end at"):  # the control
        score(plain.model, [tokenizer.encode(PROBE)], [found.tokens[0]])
    safeguards = Safeguards(faults=False, glossary=Glossary([Entry("dog", ("cat",))]))
    for search in (SearchConfig(2, min_length=longest), SearchConfig(2, min_length=longest, coverage_penalty=0.5)):
        one = plain.replace(search=search, safeguards=safeguards).translate("The dog")
        assert (one.finished, len(one.tokens[0])) == (False, longest)
    for words in range(longest - 1):
        plain.alternatives("The dog", " ".join(["dog"] * words) + " ")


def test_samples_come_best_first(translator: Translator):
    drawn = translator.engine.search(
        [translator.tokenizers.source.encode(PROBE)], SearchConfig(1, n_best=6, temperature=3.0)
    )
    scores = [hypothesis.score for hypothesis in drawn[0]]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) > 1


def test_recurrent_model_translates_too(tokenizer: Tokenizer):
    torch.manual_seed(0)
    translator = Translator(build(TINY_RECURRENT, len(tokenizer)).eval(), tokenizer, SHORT)
    many = ["The dog", "", PROBE]
    assert same(translator.translate(many), [translator.translate([text])[0] for text in many])
    # Without attention it aligns nothing.
    model = build(dataclasses.replace(TINY_RECURRENT, attention="none"), len(tokenizer)).eval()
    assert Translator(model, tokenizer, SHORT).annotator.alignments([[("The dog", "x y")]]) == [""]


def test_batches_of_a_search_are_bounded_and_lose_nothing(translator: Translator):
    """The longest sentences first, last and in the middle."""
    lengths = [500, 1, 30, 2, 400, 3, 500] * 3
    sources = [[300 + n % 50] * length for n, length in enumerate(lengths)]
    sizes: list[int] = []

    class Recording:
        config, parameters, step = translator.model.config, translator.model.parameters, translator.model.step

        def start(self, source: torch.Tensor) -> object:
            sizes.append(source.numel())
            return translator.model.start(source)

    hypotheses = Translator(Recording(), translator.tokenizers.source, SHORT).search_ids(sources)  # type: ignore[arg-type]
    alone = [translator.search_ids([source])[0] for source in sources]
    assert [hypothesis.tokens for hypothesis in hypotheses] == [hypothesis.tokens for hypothesis in alone]
    assert max(sizes) <= SEARCH_TOKENS // SHORT.beam
    assert 1 < len(sizes) < len(sources)


@pytest.mark.parametrize(
    ("search", "hypotheses"),
    [
        (SearchConfig(beam=1), 1),
        (SearchConfig(beam=7), 7),
        (SearchConfig(beam=1, temperature=1.0, n_best=4), 1),
    ],
)
def test_batches_are_as_large_as_their_hypotheses_allow(translator: Translator, search: SearchConfig, hypotheses: int):
    """Samples are drawn one after the other."""

    class Enough(Exception):
        pass

    class Recording:
        config, parameters = translator.model.config, translator.model.parameters

        def start(self, source: torch.Tensor) -> object:
            raise Enough(len(source))

    length = 100
    sources = [[300] * (length - 1)] * (2 * SEARCH_TOKENS // length)
    with pytest.raises(Enough) as rows:
        TorchEngine(Recording()).search(sources, search)  # type: ignore[arg-type]
    assert rows.value.args == (SEARCH_TOKENS // hypotheses // length,)


# How a translator is made.


def test_replacement_shares_the_model_and_leaves_the_translator_as_it_is(translator: Translator, pairs: list[Pair]):
    measured, engine = AlignmentHead(1, 2, 0.5, 10), TorchEngine(translator.model)
    first = Translator(translator.model, translator.tokenizers, SHORT, alignment=measured, scripts=("HANGUL",))
    sources = [source for source, _ in pairs[:10]]
    before = first.translate(sources)
    second = first.replace(search=SearchConfig(beam=1), safeguards=Safeguards(forbidden=("개",)), engine=engine)
    assert (second.model, second.tokenizers, second.engine) == (first.model, first.tokenizers, engine)
    assert (second.alignment, second.scripts) == (measured, ("HANGUL",))
    assert (second.search.beam, second.safeguards.forbidden) == (1, ("개",))
    assert second.translate(sources) != before
    assert (first.translate(sources), first.search, first.safeguards) == (before, SHORT, Safeguards())
    assert first.replace().translate(sources) == before


@pytest.mark.parametrize("device", ["auto", torch.device("cpu")], ids=str)
def test_engine_computes_where_the_model_is(trained: Path, device: Any, monkeypatch: pytest.MonkeyPatch):
    """A machine where "auto" is not the CPU. The meta device stands in for a GPU, which is not there."""
    monkeypatch.setattr(engines, "device_of", lambda wanted: torch.device("meta"))
    translator = Translator.load(trained, SHORT, device=device)
    expected = torch.device("meta" if device == "auto" else "cpu")
    assert isinstance(translator.engine, TorchEngine)
    places = {next(translator.model.parameters()).device, translator.engine.device}
    assert places == {expected}
    if device != "auto":
        assert translator.translate([PROBE])[0].text


@pytest.mark.skipif(not find_spec("ctranslate2"), reason="the CTranslate2 engine needs the extra `fast`")
def test_weights_are_packed_by_our_own_engine_alone(trained: Path, monkeypatch: pytest.MonkeyPatch):
    Translator.load(trained, SHORT, engine="ctranslate2")  # converts the model, and compares it with our own engine
    packed: list[object] = []
    monkeypatch.setattr(torch_engine, "prepare", lambda model, _: packed.append(model) or model)
    converted = Translator.load(trained, SHORT, engine="ctranslate2")
    converted.replace(search=SearchConfig()).translate([PROBE])
    assert not packed
    Translator.load(trained, SHORT, ensemble=[trained])
    assert len(packed) == 2  # the control
    with pytest.raises(UsageError, match="does not support the setting 'beam_groups'"):
        Translator.load(trained, SearchConfig(beam=2, beam_groups=2), engine="ctranslate2")
    with pytest.raises(UsageError, match="an ensemble needs the native engine"):
        Translator.load(trained, SHORT, ensemble=[trained], engine="ctranslate2")


# Annotations.


@pytest.fixture(scope="module")
def annotated(translator: Translator, pairs: list[Pair]) -> tuple[Translator, list[str], list[Translation]]:
    """A translator, sources of which the last two have nothing to annotate, and their translations."""
    sources = [source for source, _ in pairs[:10]] + ["", "x" * 5000]
    translator = translator.replace(search=SearchConfig(beam=2, length_penalty=0.0), safeguards=NO_SAFEGUARDS)
    return translator, sources, translator.translate(sources)


def test_scores_of_words_add_up_to_that_of_the_translation(annotated):
    translator, sources, outputs = annotated
    words = translator.annotator.word_scores([output.segments for output in outputs])
    for output, scores in zip(outputs[:10], words, strict=False):
        assert " ".join(word for word, _ in scores).strip() == " ".join(output.text.split())
        assert sum(log_p for _, log_p in scores) == pytest.approx(output.score, abs=1e-3)
    assert words[10] == []
    assert len(outputs[11].segments) > 1
    assert sum(log_p for _, log_p in words[11]) == pytest.approx(outputs[11].score, rel=1e-4)
    others = translator.annotator.word_scores([[(source, outputs[0].text)] for source in sources])
    assert others != words  # the control


def test_output_words_are_aligned_with_words_of_their_source(annotated):
    translator, sources, outputs = annotated
    rows = translator.annotator.alignments([output.segments for output in outputs])
    assert rows[10] == ""
    for source, output, row in zip(sources[:10], outputs, rows, strict=False):
        links = [tuple(map(int, link.split("-"))) for link in row.split()]
        assert sorted(word for _, word in links) == list(range(len(output.text.split())))
        assert all(0 <= word < len(source.split()) for word, _ in links)


def test_annotations_of_segments_are_mapped_to_the_whole_text(translator: Translator):
    """With and without space in between; where there is none, a word goes on in the next segment."""
    annotator = translator.annotator
    one, two = [("The dog sees 5 cats.", "개가 고양이"), ("The man sees it.", "남자가 봐요")]
    scores = [annotator.word_scores([[pair]])[0] for pair in (one, two)]
    links = [annotator.alignments([[pair]])[0] for pair in (one, two)]
    spaced = [(one[0] + " ", one[1] + "  "), two]
    (words,) = annotator.word_scores([spaced])
    assert [word for word, _ in words] == ["개가", "고양이", "남자가", "봐요", ""]
    one_by_one = [log_p for row in scores for _, log_p in row[:-1]]
    assert [log_p for _, log_p in words[:-1]] == pytest.approx(one_by_one, abs=1e-5)
    total = sum(log_p for row in scores for _, log_p in row)
    assert sum(log_p for _, log_p in words) == pytest.approx(total)
    moved = [f"{int(a) + 5}-{int(b) + 2}" for a, b in (link.split("-") for link in links[1].split())]
    assert annotator.alignments([spaced])[0].split() == annotator.alignments([spaced[:1]])[0].split() + moved
    glued = [("天気。", "개가 고양이"), ("本。", "남자가 봐요")]
    (words,) = annotator.word_scores([glued])
    assert [word for word, _ in words] == ["개가", "고양이남자가", "봐요", ""]
    assert {link.split("-")[0] for link in annotator.alignments([glued])[0].split()} == {"0"}
    assert annotator.word_scores([[one, ("", "")]]) == [[]]  # the control: nothing is shifted in silence


@pytest.mark.parametrize(
    ("source", "space", "output", "expected"),
    [
        ("One.", "  ", "Eins.", "  "),
        ("One.", " ", "一。", ""),
        ("一。", "", "One.", " "),
        ("一。", "", "一。", ""),
        ("wo", "", "Wo", ""),
        ("One.", "\n\n ", "Eins.", "\n\n "),
    ],
)
def test_space_between_translations_is_that_of_the_source(source: str, space: str, output: str, expected: str):
    """Unless only one of the two languages writes spaces."""
    assert space_after(Segment(source, [], space=space), output) == expected


def test_words_are_scored_and_aligned_with_the_source_tag(pairs: list[Pair]):
    torch.manual_seed(0)
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), tags=["med"])
    translator = Translator(build(TINY, len(tokenizer)).eval(), tokenizer, SHORT)
    sources, outputs = (list(side) for side in zip(*pairs[:5], strict=True))
    tags = ["med"] * len(sources)
    texts = [[pair] for pair in zip(sources, outputs, strict=True)]
    scores = translator.annotator.word_scores(texts, tags)
    tagged = [tokenizer.encode(source, "med") for source in sources]
    likelihoods = score(translator.model, tagged, tokenizer.encode_all(outputs))
    untagged = translator.annotator.word_scores(texts)
    for words, likelihood, others in zip(scores, likelihoods, untagged, strict=True):
        assert sum(log_p for _, log_p in words) == pytest.approx(likelihood.total, abs=1e-4)
        assert sum(log_p for _, log_p in others) != pytest.approx(likelihood.total, abs=1e-2)  # the control
    for source, row in zip(sources, translator.annotator.alignments(texts, tags), strict=True):
        assert all(0 <= int(link.split("-")[0]) < len(source.split()) for link in row.split())


def test_word_scores_are_those_of_the_tokens_of_the_search(tokenizer: Tokenizer, pairs: list[Pair]):
    """A model may spell a word in other subwords than the tokenizer would; also in texts of several segments."""
    torch.manual_seed(1)
    model = build(dataclasses.replace(TINY, output_bias=True), len(tokenizer)).eval()
    with torch.no_grad():
        model.output.bias[EOS] += 3.0  # type: ignore[index]
    translator = Translator(model, tokenizer, SearchConfig(beam=2, length_penalty=0.0, extra_length=5), NO_SAFEGUARDS)
    sources = [source for source, _ in pairs[:40]]
    sources += [f"{one} {other}" for one, other in itertools.pairwise(sources[:30])]
    outputs = translator.translate(sources)
    segments, tokens = [one.segments for one in outputs], [one.tokens for one in outputs]
    finished = [index for index, one in enumerate(outputs) if one.finished and all(one.tokens)]
    assert sum(len(segments[index]) > 1 for index in finished) >= 3
    own, anew = translator.annotator.word_scores(segments, None, tokens), translator.annotator.word_scores(segments)
    gaps = [[abs(sum(p for _, p in rows[index]) - outputs[index].score) for index in finished] for rows in (own, anew)]
    assert len(finished) > 20
    assert max(gaps[0]) < 1e-3
    assert max(gaps[1]) > 1  # the control: the texts alone do not tell
    copied = translator.translate(["42", f"7. {sources[finished[0]]}"])
    for one in copied:
        (scores,) = translator.annotator.word_scores([one.segments], None, [one.tokens])
        assert sum(p for _, p in scores) == pytest.approx(one.score, abs=1e-3)
        assert [word for word, _ in scores] == [*one.text.split(), ""]


def test_placeholders_that_were_put_back_score_nothing(translator: Translator, pairs: list[Pair]):
    """The other words have what the search gave them; of a placeholder, also the most for other words is 0."""
    translator = translator.replace(search=SearchConfig(beam=2, length_penalty=0.0))
    sources = [re.sub(r"\d+ ", "", source) + " {x} http://a.org/b" for source, _ in pairs[:10]]
    outputs = [one for one in translator.translate(sources) if one.finished and "{x}" in one.text.split()]
    assert len(outputs) > 3
    segments, tokens = [one.segments for one in outputs], [one.tokens for one in outputs]
    scores = translator.annotator.word_scores(segments, None, tokens)
    others = translator.annotator.others(segments, None, tokens)
    for output, of_words, most in zip(outputs, scores, others, strict=True):
        assert [word for word, _ in of_words] == [*output.text.split(), ""]
        assert sum(log_p for _, log_p in of_words) == pytest.approx(output.score, abs=1e-3)
        assert dict(of_words)["{x}"] == most[output.text.split().index("{x}")] == 0.0
        assert len(most) == len(of_words) - 1
    anew = translator.annotator.word_scores(segments)
    assert max(dict(of_words)["{x}"] for of_words in anew) < -1  # the control: what the model says of them


def test_model_is_read_from_a_single_checkpoint_while_training_moves_best(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dragoman, corpus: tuple[str, str]
):
    run = tmp_path / "run"
    for step in (1, 2):
        folder = shutil.copytree((trained / "best").resolve(), run / "checkpoints" / f"step-0000000{step}")
        (folder / "scripts.json").write_text(json.dumps([f"SCRIPT {step}"]))
        (folder / SourceExtent.RECORD).write_text(SourceExtent(step, 100 + step).as_json())
        AlignmentHead(1, step).save(folder)
        signed_again(folder)
    folders: list[Path] = []
    plain = read_model

    def moving(path: Path) -> Any:
        found = plain(path)
        replace_link(run / "best", run / "checkpoints" / "step-00000002")
        return found

    def opened(name: str, folder: Path, *given: Any, **more: Any) -> Any:
        folders.append(folder)
        return engines.open_engine("native", folder, *given, **more)

    monkeypatch.setattr(engines, "read_model", moving)
    monkeypatch.setattr("dragoman.model_folder.read_model", moving)
    monkeypatch.setattr("dragoman.translation.translator.open_engine", opened)
    for path in (run, run / "best"):
        replace_link(run / "best", run / "checkpoints" / "step-00000001")
        for step in (1, 2):  # the second is the control
            translator = Translator.load(path, engine="ctranslate2")
            assert translator.alignment == AlignmentHead(1, step)
            assert (translator.scripts, translator.extent.sentences) == ((f"SCRIPT {step}",), step)
            assert folders.pop().name == f"step-0000000{step}"
        replace_link(run / "best", run / "checkpoints" / "step-00000001")
        first, second = (dragoman("align", "-m", path, corpus[1], "--soft").out for _ in range(2))
        assert first == dragoman("align", "-m", run / "checkpoints" / "step-00000001", corpus[1], "--soft").out
        assert first != second
