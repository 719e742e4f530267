"""How sure a translator is of what it translates."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dragoman import SearchConfig
from dragoman.commands.translate.report import TranslationReport
from dragoman.confidence.estimate import Confidence, Estimate
from dragoman.console import LineProgress
from dragoman.decoding.search import Hypothesis, length_penalty
from dragoman.errors import UsageError
from dragoman.model_folder import fetch_model, verify_files
from dragoman.text.extent import SourceExtent
from dragoman.text.known_words import KnownWords
from dragoman.text.word_forms import WordForms, forms_of
from dragoman.translation.safeguards import Safeguards, replace_worse
from dragoman.translation.segment_search import UNSURE
from dragoman.translation.segments import Candidate
from dragoman.translation.translator import Translator


@pytest.fixture(scope="module")
def measured(make_once: Callable[..., Path], trained: Path, corpus: tuple[str, str]) -> Path:
    """The toy model, which knows how sure it may be."""

    def fill(folder: Path) -> None:
        from dragoman.commands.calibrate import main

        main(["-m", str(trained), "--dev", corpus[0], "--threshold", "30", "--out", str(folder / "model")])

    return make_once("measured", fill) / "model"


@pytest.fixture
def translator(measured: Path) -> Translator:
    return Translator.load(measured)


def test_calibrate_adds_the_record_and_changes_no_translation(measured: Path, trained: Path, pairs):
    verify_files(measured)
    confidence = Confidence.load(measured)
    assert confidence
    assert (confidence.threshold, confidence.reliability.pairs) == (30.0, 190)
    texts = [source for source, _ in pairs[:30]] + ["", "12:30", "WHAT IS THIS?"]
    before, after = Translator.load(trained).translate(texts), Translator.load(measured).translate(texts)
    assert all(each.confidence is None for each in before)
    assert [each.text for each in before] == [each.text for each in after]
    assert all(0 < each.confidence < 1 for each in after[:30])
    assert [each.confidence for each in after[30:32]] == [None, None]  # nothing was translated


def test_confidence_is_that_of_the_record(translator: Translator, pairs):
    (source, _), search = pairs[0], translator.search
    (result,) = translator.segment_results([source], [""], [""], [""], search)[0]
    best = result.candidates[0]
    tokens = len(best.hypothesis.tokens)
    assert best.features.log_p_per_token == pytest.approx(
        best.hypothesis.score * length_penalty(tokens + 1, search.length_penalty) / (tokens + 1)
    )
    assert best.estimate.chrf == translator.confidence.expect(best.features)
    assert translator.translate(source).confidence == translator.confidence.judge(best.estimate.chrf)


def test_confidence_does_not_depend_on_the_others(translator: Translator, pairs):
    sources = [source for source, _ in pairs[:12]]
    together = [each.confidence for each in translator.translate(sources)]
    assert together == [translator.translate(source).confidence for source in sources]
    greedy = translator.replace(search=SearchConfig(beam=1))
    penalised = translator.replace(search=SearchConfig(beam=1, length_penalty=2.0))
    for source in sources:
        assert greedy.translate(source).confidence == pytest.approx(penalised.translate(source).confidence)


def test_text_is_as_sure_as_its_least_sure_sentence(translator: Translator, pairs):
    sources = [source for source, _ in pairs[:6]]
    alone = [translator.translate(source).confidence for source in sources]
    assert translator.translate(" ".join(sources)).confidence == min(alone)
    assert min(alone) < max(alone)


def test_unsure_translation_is_left_out_and_flagged(translator: Translator, pairs):
    sources = [source for source, _ in pairs[:30]]
    all_of_them = translator.translate(sources)
    middle = sorted(each.confidence for each in all_of_them)[15]
    careful = translator.replace(safeguards=Safeguards(min_confidence=middle))
    for before, after in zip(all_of_them, careful.translate(sources), strict=True):
        if before.confidence < middle:
            assert (after.text, after.flags[-1]) == ("", "unsure")
            assert after.segments == before.segments
        else:
            assert after == before
    assert len({each.confidence < middle for each in all_of_them}) == 2
    with pytest.raises(UsageError, match="between 0 and 1"):
        Safeguards(min_confidence=1.5)


def test_translation_below_nearly_all_others_is_flagged(translator: Translator, pairs):
    strict = replace(translator.confidence, lowest=1000.0)
    source = pairs[0][0]
    assert "unsure" in translator.replace(confidence=strict).translate(source).flags
    lenient = replace(translator.confidence, lowest=-1000.0)
    assert "unsure" not in translator.replace(confidence=lenient).translate(source).flags


def test_words_have_confidences(translator: Translator, pairs):
    translations = translator.translate([source for source, _ in pairs[:10]])
    for translation, words in zip(translations, translator.word_confidences(translations), strict=True):
        assert " ".join(word for word, _ in words) == translation.text
        assert all(0 < sure < 1 for _, sure in words)


def test_model_that_was_not_measured_says_so(trained: Path, dragoman: Callable):
    with pytest.raises(UsageError, match="calibrate --dev"):
        Translator.load(trained, safeguards=Safeguards(min_confidence=0.5))
    plain = Translator.load(trained)
    with pytest.raises(UsageError, match="calibrate --dev"):
        plain.word_confidences([plain.translate("The cat sees.")])
    for flags in (["--confidence"], ["--min-confidence", "0.5"]):
        ran = dragoman("translate", "-m", trained, *flags, "The cat sees.")
        assert (ran.code, ran.out) == (2, "")
        assert "calibrate --dev" in ran.err


def test_ensemble_has_no_confidence(measured: Path, trained: Path, dragoman: Callable):
    both = Translator.load(measured, ensemble=[fetch_model(trained)])
    assert both.translate("The cat sees.").confidence is None
    ran = dragoman("translate", "-m", measured, "--ensemble", trained, "--confidence", "The cat sees.")
    assert ran.code == 2


def test_other_engines_are_as_sure(translator: Translator, measured: Path, pairs):
    """Scores of CTranslate2 are the same sums, so that confidence needs no more of an engine."""
    sources = [source for source, _ in pairs[:12]]
    other = Translator.load(measured, engine="ctranslate2").translate(sources)
    for here, there in zip(translator.translate(sources), other, strict=True):
        if here.text == there.text:
            assert here.confidence == pytest.approx(there.confidence, abs=1e-3)
    assert sum(here.text == there.text for here, there in zip(translator.translate(sources), other, strict=True)) > 8


# Commands.


def test_translate_prints_the_confidence(measured: Path, dragoman: Callable, pairs, tmp_path: Path):
    sources = [source for source, _ in pairs[:20]]
    sure = [each.confidence for each in Translator.load(measured).translate(sources)]
    (tmp_path / "in.txt").write_text("".join(f"{source}\n" for source in sources))
    flags = ["-m", measured, "-i", tmp_path / "in.txt", "--confidence"]
    rows = [row.split("\t") for row in dragoman("translate", *flags, "--output-format", "tsv").out.splitlines()]
    assert [float(row[3]) for row in rows] == [round(each, 4) for each in sure]
    ran = dragoman("translate", *flags, "--output-format", "jsonl")
    assert [json.loads(row)["confidence"] for row in ran.out.splitlines()] == [round(each, 4) for each in sure]
    shown = [line.split() for line in ran.err.split("to read first")[1].splitlines()[1:11]]
    assert [float(line[0]) for line in shown] == [float(f"{each:.2f}") for each in sorted(sure)[:10]]
    plain = dragoman("translate", *flags[:-1], "--output-format", "jsonl")
    assert "confidence" not in plain.out
    assert "to read first" not in plain.err


@pytest.mark.parametrize(("unsure", "is_told"), [(2, True), (1, False)])
def test_summary_tells_of_texts_unlike_the_training(translator: Translator, capsys, unsure: int, is_told: bool):
    translator.extent = SourceExtent(1, 20, pairs=10_313)
    report, translation = TranslationReport(LineProgress(False, False), translator), translator.translate("a b")
    for number in range(3):
        report.add(f"line {number}", replace(translation, flags=(UNSURE,) if number < unsure else ()))
    report.summarise()
    told = "unlike the 10,313 pairs that this model has learned from: 2 of 3 texts; these translations are guesses"
    printed = capsys.readouterr().err
    assert (told in printed) == is_told
    assert ("these translations are guesses" in printed) == is_told


def test_translate_leaves_blank_lines_for_unsure_ones(measured: Path, dragoman: Callable, pairs):
    sources = [source for source, _ in pairs[:6]]
    ran = dragoman("translate", "-m", measured, "--min-confidence", "1", *sources)
    assert ran.out == "\n" * 6
    assert ran.err.count("unsure") == 6


def test_calibrate_measures_for_another_threshold(measured: Path, dragoman: Callable, corpus, tmp_path: Path):
    ran = dragoman("calibrate", "-m", measured, "--dev", corpus[0], "--threshold", "60", "--out", tmp_path / "strict")
    assert (ran.code, ran.out) == (0, f"{tmp_path / 'strict'}\n")
    before, after = Confidence.load(measured), Confidence.load(tmp_path / "strict")
    assert after.weights == before.weights
    assert after.confidence[-1] <= before.confidence[-1]
    few = dragoman("calibrate", "-m", measured, "--dev", corpus[1], "--out", tmp_path / "few")
    assert "fewer than 50 pairs" in few.err
    assert Confidence.load(tmp_path / "few") is None
    assert dragoman("calibrate", "-m", measured, "--dev", corpus[0], "--threshold", "0", "--out", "x").code == 2


def test_info_shows_the_reliability(measured: Path, trained: Path, dragoman: Callable):
    assert "that chrF is at least 30: AUC" in dragoman("info", measured).out
    described = json.loads(dragoman("info", measured, "--json").out)["confidence"]
    assert described["pairs"] == sum(count for _, _, count in described["bins"]) == 190
    assert json.loads(dragoman("info", trained, "--json").out)["confidence"] is None


def test_record_has_the_words_of_the_targets(measured: Path, trained: Path, dragoman: Callable, corpus, tmp_path: Path):
    dragoman("calibrate", "-m", trained, corpus[0], "--dev", corpus[0], "--out", tmp_path / "both")
    words = WordForms.unpack(Confidence.load(tmp_path / "both").words)
    assert words.explains("고양이가") or words.explains("개가")
    assert not words.explains("비행기")
    assert Confidence.load(measured).words == ""


def test_evaluate_judges_the_confidence(measured: Path, trained: Path, dragoman: Callable, corpus, tmp_path: Path):
    ran = dragoman("evaluate", "-m", measured, corpus[0], "--confidence", "--json")
    judged = json.loads(ran.out)
    curve = judged["curve"]
    assert judged["threshold"] == 30.0
    assert [each["chrf"] for each in curve[:1]] == pytest.approx([curve[0]["oracle"]])  # nothing is dropped
    assert all(each["chrf"] <= each["oracle"] + 1e-9 for each in curve)
    assert [each["confidence"] for each in curve] == sorted(each["confidence"] for each in curve)
    assert sum(count for _, _, count in judged["reliability"]["bins"]) == 190
    assert "dropping the worst" in dragoman("evaluate", "-m", measured, corpus[0], "--confidence").out
    for flags in (["--details"], ["--robustness"], ["--against", trained], ["--ensemble", trained]):
        assert dragoman("evaluate", "-m", measured, corpus[0], "--confidence", *flags).code == 2
    assert dragoman("evaluate", "-m", trained, corpus[0], "--confidence").code == 2


def test_better_of_two_searches_is_the_one_to_expect_more_of():
    def candidate(chrf: float | None, *faults: str) -> Candidate:
        estimate = None if chrf is None else Estimate(chrf, 0.5)
        return Candidate("text", Hypothesis([1], -1.0), faults, estimate=estimate)

    low, high, faulty = candidate(20.0), candidate(60.0), candidate(90.0, "loop")
    assert replace_worse([low], [high]) == [high]
    assert replace_worse([high], [low]) == [high]
    assert replace_worse([faulty], [low]) == [low]  # what is certain counts more
    assert replace_worse([candidate(None)], [candidate(None, "loop")]) == [candidate(None)]


def test_words_are_unpacked_once_for_all_translators_of_a_model(translator: Translator):
    known = KnownWords(["cat"])
    with_words = translator.replace(confidence=replace(translator.confidence, words=WordForms(["katze"]).packed()))
    other = with_words.replace(safeguards=Safeguards(known_words=known))
    assert other.confidence.forms is with_words.confidence.forms
    assert forms_of(known) is forms_of(known)
    assert forms_of(known) is not forms_of(KnownWords(["cat"]))
