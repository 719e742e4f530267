"""The demonstration, with almost no training: every stage does its part; and, slowly, that it learns."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from dragoman.data.corpus import read_corpus
from dragoman.demo.phrasebook import Phrasebook, phrasebook
from dragoman.demo.run import slow_machine, write_pairs
from dragoman.training.checkpoint import lock_folder


def test_the_demo_scores_translates_and_draws(dragoman, monkeypatch: pytest.MonkeyPatch):
    """Train for real, but on a small phrasebook, and validate and test on ten sentences."""
    whole = phrasebook

    def short(*arguments: Any, **changes: Any) -> Phrasebook:
        book = whole(*arguments, **changes)
        return dataclasses.replace(book, dev=book.dev[:10], test=book.test[:10])

    monkeypatch.setattr("dragoman.demo.run.phrasebook", short)
    monkeypatch.setattr("dragoman.demo.run.PER_TEMPLATE", 4)
    ran = dragoman("demo", "--to", "es", "--minutes", "0.01", "--out", "demo")
    assert ran.code == 0, ran.err
    assert re.search(r"^BLEU \d+\.\d .*version:", ran.out, re.MULTILINE)
    assert re.search(r"^exact match \d+\.\d %$", ran.out, re.MULTILINE)
    for name, start in (("demo/attention.svg", b"<?xml"), ("demo/attention.png", b"\x89PNG")):
        assert name in ran.out
        assert Path(name).read_bytes().startswith(start)


def test_the_corpus_of_the_demo_is_one_that_train_reads(tmp_path: Path):
    book = phrasebook("en", "ko", per_template=2, seed=1)
    write_pairs(tmp_path / "pairs.tsv", book.train)
    assert read_corpus([str(tmp_path / "pairs.tsv")]).pairs == book.train


@pytest.mark.slow
@pytest.mark.parametrize("to", ["ko", "de", "es"])
def test_the_demo_translates_nine_of_ten_held_out_sentences_exactly(dragoman, to: str):
    ran = dragoman("demo", "--to", to, "--out", "demo")
    exact = re.search(r"^exact match (\d+\.\d) %$", ran.out, re.MULTILINE)
    assert exact is not None
    assert float(exact[1]) >= 90


def test_a_second_demo_leaves_the_corpora_of_the_one_that_is_running(dragoman, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dragoman.demo.run.PER_TEMPLATE", 1)
    train = Path("demo/corpus/train.tsv")
    with lock_folder(Path("demo")):
        train.parent.mkdir()
        train.write_text("one\teins\n")
        ran = dragoman("demo", "--to", "de", "--minutes", "0.01", "--out", "demo")
    assert ran.code == 1
    assert "another process is using this folder" in ran.err
    assert train.read_text() == "one\teins\n"


def test_a_slow_machine_is_told_that_more_time_helps():
    assert slow_machine(0.6, 310, 2.0) == (
        "Only 310 steps in 2 minutes: more time gives better translations, --minutes 4."
    )
    assert slow_machine(0.96, 310, 2.0) == ""
