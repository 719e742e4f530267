"""What is left of the score of a model where sources are varied."""

import json
from pathlib import Path

import pytest
from conftest import Pair, write_tsv

from dragoman.data.corpus import read_corpus
from dragoman.evaluation.metrics import evaluate
from dragoman.evaluation.robustness import as_table, measure_robustness, vary_corpus
from dragoman.text.variations import VARIATIONS
from dragoman.translation.safeguards import NO_SAFEGUARDS
from dragoman.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained)


@pytest.fixture(scope="module")
def test_set(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]) -> str:
    return write_tsv(tmp_path_factory.mktemp("robustness") / "test.tsv", pairs[:24])


def test_first_row_is_the_score_of_the_test_set(translator: Translator, test_set: str, pairs: list[Pair]):
    first, *others = measure_robustness(translator, read_corpus([test_set]), ["lower case"])
    outputs = [each.text for each in translator.translate([source for source, _ in pairs[:24]])]
    assert first.bleu == pytest.approx(evaluate(outputs, [target for _, target in pairs[:24]]).bleu.value)
    assert (first.variation, first.lines, first.kept, first.p, first.once) == ("as it is", 24, 1.0, None, None)
    assert [row.variation for row in others] == ["lower case"]


def test_inserted_things_are_counted_and_not_scored(translator: Translator, test_set: str):
    corpus = read_corpus([test_set])
    rows = {row.variation: row for row in measure_robustness(translator, corpus, ["URL", "bullet", "label NOTE"])}
    assert rows["URL"].once == rows["bullet"].once == 1.0
    assert rows["bullet"].bleu == pytest.approx(rows["as it is"].bleu)
    assert rows["label NOTE"].once is None
    (_, reckless) = measure_robustness(translator.replace(safeguards=NO_SAFEGUARDS), corpus, ["URL"])  # the control
    assert reckless.once is not None
    assert reckless.once < 1.0


def test_joined_lines_are_compared_with_the_same_sentences(translator: Translator, test_set: str, pairs: list[Pair]):
    corpus = read_corpus([test_set])
    lines = vary_corpus("two sentences", corpus.pairs, 1)
    assert lines.starts == list(range(0, 24, 2))
    assert [each.source for each in lines.varied] == [
        f"{first} {second}" for (first, _), (second, _) in zip(pairs[:24:2], pairs[1:24:2], strict=True)
    ]
    _, joined = measure_robustness(translator, corpus, ["two sentences"])
    assert joined.lines == 12
    assert joined.clean_bleu > 0
    assert joined.kept == joined.bleu / joined.clean_bleu


@pytest.mark.slow
def test_table_has_a_row_for_each_variation_that_changes_something(dragoman, trained: Path, test_set: str):
    words = ["evaluate", "-m", trained, test_set, "--robustness", "--beam", "1"]
    table = dragoman(*words).out.splitlines()
    names = [line.split("  ")[0].strip() for line in table[1:]]
    assert names[0] == "as it is"
    assert {"capitals", "typos", "URL", "two without marks"} <= set(names) <= {"as it is", *VARIATIONS}
    assert "letters and marks apart" not in names  # there are no marks
    printed = dragoman(*words, "--variation", "typos", "--json").out
    rows = json.loads(printed)["variations"]
    assert [row["variation"] for row in rows] == ["as it is", "typos"]
    assert f"{rows[1]['bleu']:.1f}" in next(line for line in table if line.startswith("typos"))
    assert dragoman(*words, "--variation", "typos", "--json").out == printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--robustness", "--variation", "tpyos"], "unknown variation 'tpyos': choose from capitals, "),
        (["--robustness", "--details"], "leave out the flags for other output"),
        (["--variation", "typos"], "--variation is a part of --robustness"),
    ],
)
def test_wrong_request_is_refused_in_a_sentence(dragoman, trained: Path, test_set: str, words: list[str], message: str):
    ran = dragoman("evaluate", "-m", trained, test_set, *words)
    assert ran.code == 2
    assert message in ran.err


def test_columns_of_the_table_are_aligned(translator: Translator, test_set: str):
    rows = list(measure_robustness(translator, read_corpus([test_set]), ["typos"]))
    heading, *lines = as_table(rows).splitlines()
    assert all(
        line.index(f"{row.bleu:.1f}") + len(f"{row.bleu:.1f}") == heading.index("BLEU") + 4
        for line, row in zip(lines, rows, strict=True)
    )
