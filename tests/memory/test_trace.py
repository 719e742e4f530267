"""Tracing a word to the pairs that taught it, and repairing what they did."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dragoman import Translator
from dragoman.errors import DragomanError, UsageError
from dragoman.inspection.influence import (
    agreements,
    bare,
    find_word,
    has_word,
    nearest_pairs,
    pair_ids,
    trace,
    word_gradients,
)
from dragoman.inspection.inspect import inspect
from dragoman.memory import ApprovedPair, Memory, create_memory
from dragoman.training.repair import read_corrections, sample_others, write_corpora, write_suspects

pytest.importorskip("faiss")

TEXT, TRANSLATION = "one two three", "eins zwei, drei"
OTHERS = [("one two three", "eins zwei drei"), ("two four", "zwei vier"), ("three", "drei"), ("nine one", "neun eins")]


@pytest.fixture(scope="module")
def folder(trained: Path) -> Path:
    return (trained / "best").resolve()


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return Translator.load(folder, threads=1)


@pytest.fixture
def memory(folder: Path, translator: Translator, tmp_path: Path) -> Memory:
    create_memory(tmp_path / "memory", folder)
    opened = Memory(tmp_path / "memory", folder, translator.model, translator.tokenizers)
    pairs = [*OTHERS, (TEXT, TRANSLATION)]
    opened.add(ApprovedPair(source, target, f"made:{n}") for n, (source, target) in enumerate(pairs, start=1))
    return opened


def traced_places(translator: Translator, wanted: str) -> tuple[list[int], list[int], list[int]]:
    inspection = inspect(translator, TEXT, TRANSLATION)
    return inspection.source.ids, inspection.target.ids, list(find_word(inspection, wanted).tokens)


def test_word_is_found_with_and_without_its_marks(translator: Translator):
    inspection = inspect(translator, TEXT, TRANSLATION)
    assert {find_word(inspection, wanted).label for wanted in ("zwei,", "zwei", "ZWEI", "“Zwei”")} == {"zwei,"}
    assert has_word(TRANSLATION, "Zwei")
    assert not has_word(TRANSLATION, "zwe")
    with pytest.raises(UsageError, match="'vier' is no word"):
        find_word(inspection, "vier")
    assert (bare("(a-b)."), bare("..."), bare("")) == ("a-b", "...", "")


@pytest.mark.parametrize("tidy", [True, False])
def test_pair_itself_is_nearest(translator: Translator, memory: Memory, tidy: bool):
    if tidy:
        memory.tidy()
    near = nearest_pairs(memory, *traced_places(translator, "zwei"))
    assert near[0].number == len(OTHERS)
    assert near[0].distance < 0.01 < near[1].distance
    assert [each.distance for each in near] == sorted(each.distance for each in near)


def test_agreement_is_the_product_of_gradients(translator: Translator, memory: Memory):
    source, target, places = traced_places(translator, "zwei")
    near = nearest_pairs(memory, source, target, places)
    model = memory.model
    gradients = word_gradients(model, source, target, places)
    length = torch.stack([gradient.norm() for gradient in gradients]).norm()
    for each, agreement in zip(near, agreements(memory, source, target, places, near), strict=True):
        of_pair, tokens = pair_ids(memory, each.number), [*pair_ids(memory, each.number)[1]]
        at = [place for place, token in enumerate(tokens) if token in each.tokens]
        others = word_gradients(model, *of_pair, at)
        product = sum(float((a * b).sum()) for a, b in zip(gradients, others, strict=True)) / float(length)
        assert agreement == pytest.approx(product, rel=1e-3, abs=1e-3)


def test_tracing_changes_no_weight(translator: Translator, memory: Memory):
    before = [weight.clone() for weight in memory.model.parameters()]
    trace(memory, inspect(translator, TEXT, TRANSLATION), find_word(inspect(translator, TEXT, TRANSLATION), "drei"))
    assert all(torch.equal(a, b) for a, b in zip(before, memory.model.parameters(), strict=True))


def test_forgotten_pair_is_not_traced(translator: Translator, memory: Memory):
    inspection = inspect(translator, TEXT, TRANSLATION)
    word = find_word(inspection, "zwei")
    assert len(OTHERS) in [each.number for each in trace(memory, inspection, word)]
    memory.forget([len(OTHERS)])
    assert len(OTHERS) not in [each.number for each in trace(memory, inspection, word)]
    memory.forget(range(len(OTHERS)))
    with pytest.raises(DragomanError, match="no pair"):
        trace(memory, inspection, word)


def test_corrections_are_what_a_person_has_changed(memory: Memory, tmp_path: Path):
    file = tmp_path / "suspects.tsv"
    write_suspects(file, [(number, pair) for number, pair in enumerate(memory.pairs) if pair])
    with pytest.raises(UsageError, match="nothing to repair"):
        read_corrections(file, memory)
    lines = file.read_text().splitlines()
    assert lines[2] == "1\ttwo four\tzwei vier\tmade:2"
    lines[2], lines[3] = lines[2].replace("vier", "fünf"), lines[3].replace("drei", "")
    file.write_text("\n".join(lines))
    corrections = read_corrections(file, memory)
    assert corrections == {1: "zwei fünf", 2: ""}
    assert {pair.origin for pair in sample_others(memory, corrections)} == {"made:1", "made:4", "made:5"}
    for wrong in ("99\tone\tx", "1\tother source\tx", "x"):
        file.write_text(wrong)
        with pytest.raises(DragomanError, match="line 1"):
            read_corrections(file, memory)


def test_corrected_pairs_weigh_a_quarter_and_keep_their_tags(tmp_path: Path):
    others = [ApprovedPair(f"n {n}", "x\ty", tag="a" if n % 2 else "") for n in range(30)]
    words = write_corpora(tmp_path, [ApprovedPair("one", "eins")], others)
    assert [word for word in words if "=" in word] == ["weight=10", "tag=a"]
    files = [Path(word) for word in words if "=" not in word]
    rows = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    assert [len(each) for each in rows] == [1, 15, 15]
    assert rows[1][0] == {"source": others[int(rows[1][0]["source"][2:])].source, "target": "x\ty"}


def test_wrong_word_is_traced_corrected_and_gone(dragoman: Callable[..., Any], trained: Path, monkeypatch: Any):
    """The command from a word to the repaired model, on a model that has learned hardly anything."""
    assert dragoman("remember", "-m", trained, "--training", "--out", "memory", "--quiet").code == 0
    (line,) = dragoman("translate", "-m", trained, TEXT, "--quiet").out.splitlines()
    word = line.split()[0]
    asked = ("trace", "-m", trained, "--memory", "memory", TEXT, word)
    ran = dragoman(*asked, "--out", "suspects.tsv", "--count", "3", "--json")
    record = json.loads(ran.out)
    assert (record["translation"], len(record["pairs"])) == (line, 3)
    assert all(has_word(each["pair"]["target"], word) for each in record["pairs"])
    printed = dragoman(*asked, "--count", "3").out.splitlines()
    assert [each.split("\t")[2] for each in printed] == [each["pair"]["origin"] for each in record["pairs"]]

    assert dragoman(*asked, "--repair", "suspects.tsv").code == 2  # without --run
    assert "nothing to repair" in dragoman(*asked, "--repair", "suspects.tsv", "--run", "mended").err
    rows = [each.split("\t") for each in Path("suspects.tsv").read_text().splitlines()]
    Path("suspects.tsv").write_text(
        "\n".join("\t".join([a, b, "" if n else c, d]) for n, (a, b, c, d) in enumerate(rows))
    )
    ran = dragoman(*asked, "--repair", "suspects.tsv", "--run", "mended", "--minutes", "0.05", "--json", "--quiet")
    record = json.loads(ran.out)
    assert (record["corrected"], record["dropped"], record["before"]) == (0, 3, line)
    assert ran.code == (1 if has_word(record["after"], word) or record["bleu"] < record["bleu_before"] - 0.2 else 0)
    assert Path(record["model"]).is_dir()
    learned = Path("mended/corpus/others-1.jsonl").read_text()
    assert not any(json.dumps(row[1]) in learned for row in rows[1:])
