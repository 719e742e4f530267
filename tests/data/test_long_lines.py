"""Lines of 10 MB cost a bounded amount of memory, and what is cut is told."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import run_config, run_training, toy_pairs, write_tsv
from processes import FORKS, PATIENCE

from dragoman.check.corpora import check
from dragoman.check.detectors import CheckLimits
from dragoman.data.corpus import stream_rows
from dragoman.data.spec import CorpusSpec, parse_corpora
from dragoman.data.tokenizer import Tokenizer

LONG = 10_000_000  # bytes of a line
MOST = 30  # times the longest line: some copies of it


def write_long(path: Path) -> CorpusSpec:
    """Write pairs, every other one with a side of so many bytes; in memory a character takes four."""
    text = "ein Häuschen 😀 "
    long = text * (LONG // len(text.encode()))
    with path.open("w", encoding="utf-8") as file:
        for source, target in toy_pairs(20):
            file.write(f"{source}\t{target}\n{long}\t{target}\n")
    (spec,) = parse_corpora([str(path)])
    return spec


def learn_subwords(spec: CorpusSpec) -> None:
    assert len(Tokenizer.train(text for row in stream_rows(spec) for text in (row.source, row.target))) > 270


def check_pairs(spec: CorpusSpec) -> None:
    assert check({"train": (spec,)}, CheckLimits()).corpora[0].pairs == 40


def keep_all(spec: CorpusSpec) -> None:
    """The control."""
    assert len(list(stream_rows(spec))) == 40


def measured(work: Callable[[CorpusSpec], None], spec: CorpusSpec, file: Path) -> None:
    """Write how many bytes of memory the work takes at its peak."""
    status = Path("/proc/self/status")

    def memory(name: str) -> int:
        return 1024 * int(re.search(rf"^{name}:\s+(\d+)", status.read_text(), re.MULTILINE)[1])  # type: ignore[index]

    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now
    before = memory("VmRSS")
    work(spec)
    file.write_text(str(memory("VmHWM") - before))


def peak(work: Callable[[CorpusSpec], None], spec: CorpusSpec, file: Path) -> int:
    process = FORKS.Process(target=measured, args=(work, spec, file))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0
    return int(file.read_text())


@pytest.fixture(scope="module")
def long_lines(tmp_path_factory: pytest.TempPathFactory) -> CorpusSpec:
    return write_long(tmp_path_factory.mktemp("long") / "long.tsv")


@pytest.mark.slow
@pytest.mark.parametrize(("work", "bounded"), [(learn_subwords, True), (check_pairs, True), (keep_all, False)])
def test_memory_for_long_lines_is_that_for_a_few_of_them(
    long_lines: CorpusSpec, tmp_path: Path, work: Callable[[CorpusSpec], None], bounded: bool
):
    assert (peak(work, long_lines, tmp_path / "peak") < MOST * LONG) == bounded


@pytest.mark.slow
def test_texts_cut_for_learning_subwords_are_reported(tmp_path: Path):
    pairs = toy_pairs()
    corpus = [
        write_tsv(tmp_path / "train.tsv", [("a" * 1001, "b"), *pairs]),
        write_tsv(tmp_path / "dev.tsv", pairs),
    ]
    for train, told in ((corpus[0], ["1 pair"]), (corpus[1], [])):
        notebook = run_training(run_config((train, corpus[1]), tmp_path / f"run{len(told)}", max_steps=1))
        notes = [text for text in notebook.logged if "first 1,000 characters" in text]
        assert [note.split(": ")[1] for note in notes] == told
