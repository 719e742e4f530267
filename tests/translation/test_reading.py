"""What people type is read as in training: letters of any case, what nobody sees, very long sentences."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Pair

from dragoman.config import SearchConfig
from dragoman.data.corpus import read_corpus
from dragoman.text.casing import as_sentence, casing_of, in_capitals
from dragoman.text.glossary import Entry, Glossary
from dragoman.text.known_words import KnownWords
from dragoman.text.variations import LOOKALIKES, mixed_case, title_case
from dragoman.translation.safeguards import NO_SAFEGUARDS, Safeguards
from dragoman.translation.segment_search import STRANGE
from dragoman.translation.segments import LONGER, Segmenter
from dragoman.translation.translator import Translator


def with_lookalikes(text: str) -> str:
    return text.translate(LOOKALIKES)


AS_GIVEN = Safeguards(sentence_case=False, visible_characters=False)


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained, SearchConfig(beam=2))


@pytest.fixture(scope="module")
def sources(pairs: list[Pair]) -> list[str]:
    return [source for source, _ in pairs[:30]]


@pytest.mark.parametrize("change", [str.upper, title_case, mixed_case])
def test_cased_text_is_translated_as_the_sentence(translator: Translator, sources: list[str], change):
    cased = [change(source) for source in sources]
    words = translator.known_words
    assert any(as_sentence(text, words) == source for text, source in zip(cased, sources, strict=True))
    read = translator.translate([as_sentence(text, words) for text in cased])
    shown = in_capitals if change is str.upper else str
    results = translator.translate(cased)
    assert [result.text for result in results] == [shown(result.text) for result in read]
    assert [result.score for result in results] == [result.score for result in read]
    assert ["".join(source for source, _ in result.segments) for result in results] == cased
    as_given = translator.replace(safeguards=AS_GIVEN).translate(cased)  # the control
    assert [result.score for result in as_given] != [result.score for result in read]


def test_words_of_capitals_have_the_scores_and_links_of_the_sentence(translator: Translator, sources: list[str]):
    cased = [source.upper() for source in sources]
    read = translator.translate([as_sentence(text, translator.known_words) for text in cased], alignments=True)
    results = translator.translate(cased, alignments=True)
    assert [result.alignment for result in results] == [result.alignment for result in read]
    assert any(result.alignment for result in results)
    scores = [translator.annotator.word_scores([each.segments], tokens=[each.tokens])[0] for each in (*results, *read)]
    for of_result, of_read in zip(scores[: len(results)], scores[len(results) :], strict=True):
        assert [score for _, score in of_result] == [score for _, score in of_read]
        assert [word for word, _ in of_result] == [in_capitals(word) for word, _ in of_read]


def test_names_stay_in_capitals(translator: Translator):
    text = "THE DOG SEES KOWALCZYK AND THE CAT"
    result = translator.translate(text)
    assert result.text.count("KOWALCZYK") == 1
    assert result.retried
    known = KnownWords([*translator.known_words.words, "kowalczyk"])
    without = translator.replace(safeguards=Safeguards(known_words=known)).translate(text)  # the control
    assert "KOWALCZYK" not in without.text


def test_placeholders_and_terms_stay_in_capitals(translator: Translator, sources: list[str]):
    glossary = Glossary([Entry("dog", ("Hund",))])
    careful = translator.replace(safeguards=Safeguards(glossary=glossary))
    result = careful.translate("THE {name} DOG <b>SEES</b> %s")
    assert all(result.text.count(each) == 1 for each in ("{name}", "<b>", "</b>", "%s"))
    assert "dog" in (*result.terms_met, *result.terms_missed, *result.terms_refused, *result.terms_in_compounds)


def test_given_beginning_is_kept_as_it_is(translator: Translator, sources: list[str]):
    cased = sources[0].upper()
    read = as_sentence(cased, translator.known_words)
    result = translator.translate(cased, prefixes="Abc")
    assert result.text.startswith("Abc")
    assert result.score == translator.translate(read, prefixes="Abc").score
    words, others = translator.alternatives(cased), translator.alternatives(read)
    assert [(each.word, each.probability) for each in words] == [(each.word, each.probability) for each in others]
    as_given = translator.replace(safeguards=AS_GIVEN).alternatives(cased)  # the control
    assert [each.probability for each in as_given] != [each.probability for each in words]


def test_texts_as_in_training_are_not_changed(translator: Translator, sources: list[str]):
    assert translator.translate(sources) == translator.replace(safeguards=AS_GIVEN).translate(sources)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["en-de-mpl", "en-ko-mpl", "en-es-bible", "en-de", "en-ko"])
def test_test_sets_are_read_as_they_are(name: str):
    """All of them, but for lines that are in capitals."""
    file = Path(__file__).parents[3] / "shared" / "data" / f"{name}.test.tsv"
    if not file.exists():
        pytest.skip(f"{file} is not here")
    sources = [source for source, _ in read_corpus([str(file)]).pairs]
    cased = [source for source in sources if casing_of(source)]
    assert len(cased) < len(sources) / 100


@pytest.mark.parametrize("piece", ["\u00ad", "\u200b", "\ufeff", "\u200e", "\u2060"])
def test_invisible_characters_are_not_read(translator: Translator, sources: list[str], piece: str):
    hidden = [source[:2] + piece + source[2:] for source in sources]
    assert translator.translate(hidden) == translator.translate(sources)
    as_given = translator.replace(safeguards=AS_GIVEN).translate(hidden)  # the control
    assert [each.text for each in as_given] != [each.text for each in translator.translate(sources)]


@pytest.mark.parametrize(("change", "strange"), [(str, False), (with_lookalikes, True), (str.upper, False)])
def test_words_spelled_as_in_no_training_are_flagged(trained: Path, sources: list[str], change, strange: bool):
    translator = Translator.load(trained, SearchConfig(beam=1))
    assert translator.extent.subwords > 0
    results = translator.translate([change(source) for source in sources])
    flagged = [STRANGE in result.flags for result in results]
    assert (sum(flagged) > 0.8 * len(flagged)) if strange else (sum(flagged) < 0.1 * len(flagged))
    assert not any(STRANGE in each.flags for each in translator.replace(safeguards=NO_SAFEGUARDS).translate(sources))


def test_names_and_code_are_not_strange(translator: Translator):
    text = "The dog sees https://example.org/xQzWvKjP?q=ZxYwV and report_QxZ.odt"
    assert STRANGE not in translator.translate(text).flags
    assert STRANGE in translator.translate("The dog sees xQzWvKjP qxzwvkjpxz").flags  # the control


def test_blank_text_stays(translator: Translator):
    assert translator.translate("\u200b").text == "\u200b"
    assert [translation.text for translation in translator.translate(["", " ", "\ufeff\n"])] == ["", " ", "\ufeff"]


@pytest.mark.parametrize(("text", "stays"), [("A", True), ("(b)", True), ("É.", True), ("水", False), ("a dog", False)])
def test_single_letter_stays(translator: Translator, text: str, stays: bool):
    assert (translator.translate(text).text == text) == stays


def test_very_long_sentence_is_cut_where_clauses_end(translator: Translator):
    extent = replace(translator.extent, tokens=10, sentences=1)
    segmenter = Segmenter(translator.tokenizers.source, extent, "sentences")
    clause = "the dog sees a cat"
    short, long = f"{clause}, yes.", "; ".join([f"{clause}, {clause}"] * 6) + "."
    for text, cut in ((short, False), (long, True)):
        ids = translator.tokenizers.source.encode(text)
        assert (len(ids) > LONGER * extent.tokens) == cut
        segments = segmenter.cut(text, ids, 512)
        assert "".join(segment.text + segment.space for segment in segments) == text
        assert (len(segments) > 1) == cut
        assert all(segment.text[-1] in ",;." for segment in segments)
        assert len(replace(segmenter, split="long").cut(text, ids, 512)) == 1
