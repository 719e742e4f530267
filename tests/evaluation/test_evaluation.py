"""Scores, how far chance moves them, and whether one system is better than another."""

import itertools
import json
import random
import sys
import unicodedata
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import write_tsv
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from dragoman.data.corpus import Pair
from dragoman.errors import UsageError
from dragoman.evaluation import significance
from dragoman.evaluation.metrics import (
    choose_tokenization,
    closer_to_sources,
    evaluate,
    normalise_texts,
    scores_by_length,
    scores_by_sentence,
)
from dragoman.evaluation.significance import LONGEST_FOR_TER, describe_difference, estimate_scores
from dragoman.translation.translation import Translation

WORDS = "the dog sees two red cats and a bear near some old house".split()


def sentences(count: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(6, 15))) for _ in range(count)]


def damaged(texts: list[str], share: float, seed: int = 0) -> list[str]:
    """With so many of the words exchanged for others."""
    chance = random.Random(seed)
    return [" ".join("wrong" if chance.random() < share else word for word in text.split()) for text in texts]


REFERENCES = sentences(100)


# Estimates.


def test_estimated_scores_are_the_scores_of_the_library_with_their_signatures():
    texts = damaged(REFERENCES, 0.3)
    (estimates,) = estimate_scores([texts], REFERENCES)
    scores = evaluate(texts, REFERENCES)
    ter = TER().corpus_score(texts, [REFERENCES]).score
    assert [estimate.name for estimate in estimates] == ["BLEU", "chrF2", "TER"]
    assert [estimate.value for estimate in estimates] == pytest.approx([scores.bleu.value, scores.chrf.value, ter])
    for estimate in estimates:
        assert estimate.low < estimate.value < estimate.high
        assert "bs:1000|seed:12345" in estimate.signature
        assert estimate.p is None
    assert "tok:char" in estimate_scores([texts], REFERENCES, "char")[0][0].signature


def test_more_sentences_make_the_interval_narrower():
    def width(count: int) -> float:
        references = sentences(count)
        bleu = estimate_scores([damaged(references, 0.3)], references)[0][0]
        return bleu.high - bleu.low

    assert width(400) < 0.7 * width(100)


def test_intervals_end_where_the_scores_do():
    """Of two wrong translations in a hundred, and of 99. TER has no highest score: a control is above 100."""
    bleu, chrf, ter = estimate_scores([[*REFERENCES[:98], "wrong", "wrong"]], REFERENCES)[0]
    assert (bleu.high, chrf.high, ter.low) == (100, 100, 0)
    assert str(bleu).endswith(" to 100.0)")
    bleu, chrf, ter = estimate_scores([[REFERENCES[0], *["wrong"] * 99]], REFERENCES)[0]
    assert (bleu.low, chrf.low > 0, ter.high > 100) == (0, True, True)


@pytest.mark.parametrize(("text", "rate"), [("a b d c", 25), ("a b x y", 50)])  # a shift; two exchanged words
def test_translation_edit_rate_counts_a_shift_once(text: str, rate: float):
    """Snover et al. 2006: one word that stands elsewhere is one edit, of four words here."""
    ((*_, ter),) = estimate_scores([[text]], ["a b c d"])
    assert ter.value == rate


def test_sentence_too_long_for_ter_drops_ter_alone():
    long = " ".join(["word"] * (LONGEST_FOR_TER + 1))

    def scores(systems: list[list[str]], reference: str) -> list[str]:
        return [estimate.name for estimate in estimate_scores(systems, ["a", reference])[-1]]

    assert scores([["a", "b"]], long) == scores([["a", long], ["a", "b"]], "b") == ["BLEU", "chrF2"]
    assert scores([["a", "b"]], long.removesuffix(" word")) == ["BLEU", "chrF2", "TER"]


# Comparison.


def compared(ours: list[str], theirs: list[str], references: list[str] = REFERENCES) -> list[tuple[float | None, str]]:
    first, second = estimate_scores([ours, theirs], references)
    return [(two.p, describe_difference(one, two, len(references))) for one, two in zip(first, second, strict=True)]


def test_comparison_names_the_better_system_or_chance_for_each_score():
    good, bad, few = damaged(REFERENCES, 0.1), damaged(REFERENCES, 0.4), REFERENCES[:5]
    assert all(p and p < 0.01 and " better, significant (p = 0.0" in said for p, said in compared(good, bad))
    assert all(" worse, significant (p = 0.0" in said for _, said in compared(bad, good))
    # The library gives p = 0.001 for a system and itself.
    assert all(p is None and said.endswith(": no difference") for p, said in compared(bad, bad))
    for _, said in compared(damaged(few, 0.0), damaged(few, 0.5), few):
        assert said.endswith("better; 5 sentences are too few for a significance test")


@pytest.mark.slow
def test_systems_with_errors_of_the_same_rate_do_not_differ():
    """At the level of 5 % one comparison of twenty would be mistaken."""
    found = [compared(damaged(REFERENCES, 0.3, seed), damaged(REFERENCES, 0.3, seed + 50))[0] for seed in range(1, 9)]
    assert sum("not significant" in said for _, said in found) >= 6
    assert all(("not significant" in said) == (p is not None and p >= 0.05) for p, said in found)


@pytest.mark.parametrize("systems", [[["a"], ["a", "b"]], [["a", "b"], ["a"]], [[]]])
def test_systems_with_another_number_of_sentences_are_refused(systems: list[list[str]]):
    with pytest.raises(UsageError, match="each translation needs a reference: "):
        estimate_scores(systems, ["a", "b"])


@pytest.mark.parametrize(
    ("translations", "references", "words"),
    [
        ("a b", "a b", "translations must be a list of strings, not 'a b'"),
        (["a b"], "a b", "references must be a list of strings, not 'a b'"),
        ([Translation("a b", 0.0)], ["a b"], r"translations\[0\] must be a string, not .*: pass its \.text"),
        (["a b"], [None], r"references\[0\] must be a string, not None"),
        (["a b"], ["a b", "c"], "each translation needs a reference: 1 translation, 2 references"),
    ],
)
def test_evaluate_refuses_what_is_no_list_of_strings(translations: Any, references: Any, words: str):
    with pytest.raises(UsageError, match=f"^{words}$"):
        evaluate(translations, references)


def test_references_are_compared_in_the_form_of_translations():
    ((bleu, *_),) = estimate_scores([["caf\u00e9 am See mit dir"]], ["cafe\u0301 am See mit dir"])
    assert bleu.value == pytest.approx(100)
    assert scores_by_sentence(["caf\u00e9"], ["cafe\u0301"])[0][1] == pytest.approx(100)


def test_texts_in_another_form_of_unicode_are_the_same_texts():
    """As macOS writes them: letters and accents apart. The control: another text."""
    composed = ["한국어로 된 문장이에요.", "Das ist ein schöner Café-Besuch."]
    apart = [unicodedata.normalize("NFD", text) for text in composed]
    assert apart != composed
    for translations, references in itertools.product((composed, apart), repeat=2):
        scores = evaluate(translations, references)
        assert (scores.bleu.value, scores.chrf.value, scores.exact) == (100, 100, 1)
        assert [bleu for bleu, _ in scores_by_sentence(translations, references)] == [100, 100]
        assert estimate_scores([translations, translations], references)[1][0].value == pytest.approx(100)
        sources = ["A sentence in Korean.", "This is a nice visit to a café."]
        assert not closer_to_sources(translations, sources, references)
        assert closer_to_sources(translations, references, sources)  # the control


# How BLEU splits text into words.

UNSPACED = {
    "char": ["今日はとても良い天気ですね。", "これはペンです。", "駅までどのくらいかかりますか。"],
    "zh": ["今天的天气非常好。", "我们明天去北京的Apple商店。", "请问火车站怎么走？"],
}
THAI = ["วันนี้อากาศดีมาก", "สถานีรถไฟอยู่ที่ไหน", "ผมชอบกินข้าวผัด"]
TIBETAN = ["དེ་རིང་གནམ་གཤིས་ཡག་པོ་འདུག", "འདི་སྨྱུ་གུ་ཞིག་རེད།", "མེ་འཁོར་འབབ་ཚུགས་ག་པར་ཡོད་རེད།"]
SPACED = {
    "Korean": ["오늘은 날씨가 아주 좋네요.", "역까지 얼마나 걸려요?"],
    "Latin": ["The weather is very nice today, 今天.", "A short one."],
    "Arabic": ["الطقس جميل جدا اليوم"],
    "nothing": ["", "12 + 3"],
}


@pytest.mark.parametrize(("tokenize", "references"), [*UNSPACED.items(), ("char", THAI), ("char", TIBETAN)])
def test_references_without_spaces_are_split_into_characters(tokenize: str, references: list[str], run):
    """The control: BLEU of whole sentences is that of texts that have nothing in common."""
    translations = [text[:-2] + text[-1] for text in references]
    scores = evaluate(translations, references)
    assert scores.bleu.signature == str(evaluate(translations, references, tokenize).bleu.signature)
    assert f"|tok:{tokenize}|" in scores.bleu.signature
    assert scores.bleu.value > 70 > 5 > evaluate(translations, references, "13a").bleu.value
    assert f"|tok:{tokenize}|" in estimate_scores([translations], references)[0][0].signature
    assert scores_by_sentence(translations, references) == scores_by_sentence(translations, references, tokenize)
    test = write_tsv(Path("test.tsv"), [(str(number), text) for number, text in enumerate(references)])
    Path("ours.txt").write_text("".join(text + "\n" for text in translations), encoding="utf-8")
    ran = run("--translations", "ours.txt", test, "--details")
    assert f"BLEU {scores.bleu.value:.1f}   {scores.bleu.signature}\n" in ran.out
    assert (
        f"BLEU compares characters instead: compare it only with BLEU of the same signature (tok:{tokenize})" in ran.err
    )
    assert "no TER: it counts words, and the references have no spaces between them" in ran.err
    asked = run("--translations", "ours.txt", test, "--tokenize", tokenize)
    assert (asked.out, asked.err) == (ran.out[: len(asked.out)], "")


@pytest.mark.parametrize("name", SPACED)
def test_references_with_spaces_have_the_bleu_of_others(name: str):
    references = SPACED[name]
    assert choose_tokenization(references) == "13a"
    assert evaluate(references, references).bleu == evaluate(references, references, "13a").bleu


def test_tokenization_is_that_of_all_groups():
    """Also of one whose references are in another script."""
    references = [*UNSPACED["char"], "One is in English only here."]
    groups = scores_by_length(["a", "bb", "ccc", "dddd"], references, references)
    assert [group.bleu for group in groups][:3] == pytest.approx([100] * 3)
    assert scores_by_length(["a", "bb", "ccc", "dddd"], references, references, "char") == groups


def test_tokenization_that_needs_a_package_names_it(run, monkeypatch: pytest.MonkeyPatch):
    test = write_tsv(Path("test.tsv"), [("a", UNSPACED["char"][0])])
    Path("ours.txt").write_text(UNSPACED["char"][0] + "\n", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "MeCab", None)
    ran = run("--translations", "ours.txt", test, "--tokenize", "ja-mecab")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "dragoman: the tokenization ja-mecab needs a package: pip install 'sacrebleu[ja]'\n"


# By sentence and by length.

texts = st.lists(st.text(st.characters(codec="utf-8"), max_size=12), min_size=1, max_size=6)


@given(texts)
def test_scores_by_sentence_are_those_of_the_library(references: list[str]):
    translations = references[::-1]
    bleu, chrf = BLEU(tokenize=choose_tokenization(references), effective_order=True), CHRF()
    for text, reference, found in zip(
        translations, references, scores_by_sentence(translations, references), strict=True
    ):
        (text,), (reference,) = normalise_texts([text], [reference])
        assert found == tuple(round(metric.sentence_score(text, [reference]).score, 9) for metric in (bleu, chrf))


@settings(max_examples=200)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=40))
def test_scores_by_length_put_each_sentence_in_one_group(lengths: list[int]):
    sources = ["x" * length for length in lengths]
    texts = [f"text {number} of some words" for number in range(len(lengths))]
    groups = scores_by_length(sources, texts, texts)
    assert sum(group.sentences for group in groups) == len(lengths)
    assert 1 <= len(groups) <= 4
    reached = -1
    for group in groups:
        assert reached < group.shortest <= group.longest
        reached = group.longest
        assert group.sentences == sum(group.shortest <= length <= group.longest for length in lengths)
        assert group.chrf == pytest.approx(100)
    if len(set(lengths)) == len(lengths) >= 4:
        assert max(group.sentences for group in groups) - min(group.sentences for group in groups) <= 1


def test_group_has_the_scores_of_its_sentences_alone():
    sources = [str(number) * (1 + number) for number in range(8)]
    references = REFERENCES[:8]
    translations = [*damaged(references[:4], 0.0), *damaged(references[4:], 0.5)]
    short, long = scores_by_length(sources, translations, references, groups=2)
    assert short.bleu == pytest.approx(100)
    assert long.bleu == evaluate(translations[4:], references[4:]).bleu.value < 90


# The command.


@pytest.fixture
def run(dragoman):
    return partial(dragoman, "evaluate")


@pytest.fixture
def test_set(tmp_path: Path, pairs: list[Pair]) -> str:
    return write_tsv(tmp_path / "test.tsv", [*pairs[:11], ("The\u2028dog", "개")])


def test_details_come_after_what_there_was_before(run, trained: Path, test_set: str):
    _, plain, notes = run("-m", trained, test_set)
    code, out, err = run("-m", trained, test_set, "--details")
    assert (code, err) == (0, notes)
    assert out.startswith(plain)
    rows = out.removeprefix(plain).splitlines()
    assert [row.split()[0] for row in rows[2:5]] == ["BLEU", "chrF2", "TER"]
    assert all("|bs:1000|seed:12345" in row for row in rows[2:5])
    assert rows[6].split() == ["source", "characters", "sentences", "BLEU", "chrF2"]
    assert sum(int(row.split()[3]) for row in rows[7:]) == 12


def test_swapped_sides_are_noticed(run, trained: Path, test_set: str, pairs: list[Pair]):
    swapped = write_tsv(Path("swapped.tsv"), [(target, source) for source, target in pairs[:11]])
    for test, notices in ((swapped, True), (test_set, False)):
        code, _, err = run("-m", trained, test)
        assert (code, "are the sides of the test set swapped" in err) == (0, notices)


def test_table_has_a_row_for_each_sentence_in_its_order(run, trained: Path, pairs: list[Pair]):
    rows = [("The dog\tsees", "개\t가"), *pairs[:3]]
    sources, references = zip(*rows, strict=True)
    for name, lines in (("test.en", sources), ("test.ko", references), ("other.txt", references)):
        Path(name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    flags = ("--sentences", "table.tsv", "-o", "out.txt", "--against-file", "other.txt")
    assert run("-m", trained, "test.en", "test.ko", *flags).code == 0
    lines = Path("table.tsv").read_bytes().decode().removesuffix("\n").split("\n")
    head, *table = [line.split("\t") for line in lines]
    assert head == [
        *("source", "reference", "translation", "BLEU", "chrF2", "translation against", "BLEU against", "chrF2 against")
    ]
    columns = list(zip(*table, strict=True))
    translations = Path("out.txt").read_text(encoding="utf-8").splitlines()
    spaced = ([text.replace("\t", " ") for text in side] for side in (sources, references))
    assert list(map(list, columns[:3])) == [*spaced, translations]
    scores = [(round(bleu, 1), round(chrf, 1)) for bleu, chrf in scores_by_sentence(translations, references)]
    assert [(float(row[3]), float(row[4])) for row in table] == scores
    assert [float(score) for score in columns[7]] == [100] * 4  # the control: the columns are not mixed up


def test_model_is_compared_with_itself_and_with_the_right_answers(run, trained: Path, test_set: str):
    ran = run("-m", trained, test_set, "--against", trained)
    assert ran.code == 0
    assert all(row.endswith(": no difference") for row in ran.out.splitlines()[-3:])
    targets = [line.split("\t")[1] for line in Path(test_set).read_text(encoding="utf-8").split("\n")[:-1]]
    Path("best.txt").write_text("".join(text + "\n" for text in targets), encoding="utf-8")
    found = json.loads(run("-m", trained, test_set, "--against-file", "best.txt", "--json").out)
    bleu, chrf, ter = found["against"]["intervals"]
    assert (found["against"]["name"], bleu["name"], found["sentences"]) == ("best.txt", "BLEU", 12)
    assert chrf["value"] == pytest.approx(100)
    assert ter["value"] == 0 < found["intervals"][2]["value"]


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        ("--against {model} --against-file x.txt", 2, "not both"),
        ("--against missing", 1, "missing: no such model folder"),
        ("--against-file missing.txt", 1, "missing.txt: no such file"),
        ("--against-file short.txt", 1, "short.txt: 1 line, but the test set has 12 pairs with text"),
        ("--against-file latin1.txt", 1, "latin1.txt:1: not UTF-8"),
        ("--against-file short.txt --output short.txt", 2, "short.txt: is read as the test set or for comparison"),
        ("--sentences .", 2, ".: a folder; give the name of a file"),
        ("--sentences no/such/table.tsv", 2, "the folder no/such does not exist"),
        ("--sentences test.tsv", 2, "test.tsv: is read as the test set"),
        ("--sentences new.tsv --output ./new.tsv.gz", 2, "--output writes plain text, one translation per line"),
        ("--sentences new.csv", 2, "new.csv: --sentences writes a table as .tsv"),
        ("--sentences new --output ./new", 2, "the same file"),
    ],
)
def test_plot_answers_a_wrong_request_in_one_clear_line(
    run, trained: Path, test_set: str, flags: str, code: int, says: str
):
    Path("short.txt").write_text("one\n", encoding="utf-8")
    Path("latin1.txt").write_bytes(b"\xe9t\xe9\n")
    before = Path(test_set).read_bytes()
    found, out, err = run("-m", trained, test_set, *flags.format(model=trained).split())
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert says in err
    assert Path(test_set).read_bytes() == before
    assert Path("short.txt").read_text(encoding="utf-8") == "one\n"


def test_test_set_too_large_to_draw_from_is_refused(run, trained: Path, test_set: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(significance, "MAX_RESAMPLED", 11)
    assert run("-m", trained, test_set)[0] == 0
    code, _, err = run("-m", trained, test_set, "--details")
    assert (code, err) == (2, "dragoman: confidence intervals are limited to 11 sentences; the test set has 12\n")
