"""The demonstration, with almost no training: every stage does its part; and, slowly, that it learns."""

import re
from pathlib import Path

import pytest

from dragoman.cli import main
from dragoman.data.corpus import read_corpus


def test_the_demo_scores_translates_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["demo", "--to", "es", "--minutes", "0.01", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^BLEU \d+\.\d .*version:", told, re.MULTILINE)
    assert re.search(r"^exact match \d+\.\d %$", told, re.MULTILINE)
    for name, start in (("attention.svg", b"<?xml"), ("attention.png", b"\x89PNG")):
        assert str(tmp_path / name) in told
        assert (tmp_path / name).read_bytes().startswith(start)


def test_the_corpus_of_the_demo_is_one_that_train_reads(tmp_path: Path):
    from dragoman.demo.phrasebook import phrasebook
    from dragoman.demo.run import write_pairs

    book = phrasebook("en", "ko", per_template=2, seed=1)
    write_pairs(tmp_path / "pairs.tsv", book.train)
    assert read_corpus([str(tmp_path / "pairs.tsv")]).pairs == book.train


@pytest.mark.slow
@pytest.mark.parametrize("to", ["ko", "de", "es"])
def test_the_demo_translates_nine_of_ten_held_out_sentences_exactly(tmp_path: Path, capsys, to: str):
    assert main(["demo", "--to", to, "--out", str(tmp_path)]) == 0
    exact = re.search(r"^exact match (\d+\.\d) %$", capsys.readouterr().out, re.MULTILINE)
    assert exact is not None
    assert float(exact[1]) >= 90
