"""Sentence pairs from files: line n of the one side stays with line n of the other, whatever is in the lines.

Files that are refused are in hostile.py, formats in test_corpus_formats.py.
"""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.data.corpus import LeftOut, drop_empty, read_corpus, stream_rows
from dragoman.data.lines import read_lines
from dragoman.data.spec import parse_corpora
from dragoman.errors import DragomanError

BOM = "\ufeff"
# All that str.splitlines splits at, except the line feed itself.
SEPARATORS = ["\v", "\f", "\r", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
ODD = [*SEPARATORS, BOM, "e\u0301", *"\0\u200d\u202e\u2066\U0001f600\U0010ffff \u3000a가"]

sentences = st.lists(st.sampled_from(ODD), max_size=6).map("".join)
untabbed = st.text(st.characters(codec="utf-8", exclude_characters="\n\t"), max_size=8)
every_file_anew = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)


def lines_of(path: Path) -> list[str | None]:
    return list(read_lines(str(path), lambda problem: None))


def write(path: Path, data: str | bytes) -> str:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


@every_file_anew
@given(st.lists(sentences | untabbed), st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", BOM]))
def test_lines_come_back_as_they_were_written(tmp_path: Path, texts: list[str], end: str, mark: str):
    path = write(tmp_path / "text", mark + "".join(line + end for line in texts))
    if not mark and texts:
        texts[0] = texts[0].removeprefix(BOM)
    assert lines_of(Path(path)) == [line if end == "\r\n" else line.removesuffix("\r") for line in texts]


@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
def test_line_feeds_alone_end_a_line(tmp_path: Path, separator: str):
    path = Path(write(tmp_path / "text", f"one{separator}two\nthree\n"))
    assert lines_of(path) == [f"one{separator}two", "three"]
    # The control: the reader that everybody writes first makes three lines of it.
    assert path.read_bytes().decode().splitlines() == ["one", "two", "three"]


@every_file_anew
@given(st.lists(st.tuples(sentences, sentences), min_size=1))
def test_pair_with_an_empty_side_is_dropped_whole_and_shifts_nothing(tmp_path: Path, pairs: list[tuple[str, str]]):
    pairs = [("first", "zuerst"), *pairs]
    source = write(tmp_path / "source", "".join(s + "\r\n" for s, _ in pairs))
    target = write(tmp_path / "target", "".join(t + "\r\n" for _, t in pairs))
    full = [number for number, (s, t) in enumerate(pairs, start=1) if s.strip() and t.strip()]
    corpus = read_corpus([source, target])
    assert corpus.pairs == [pairs[number - 1] for number in full]
    assert corpus.lines == full
    (origin,) = parse_corpora([source, target])
    rows = list(stream_rows(origin))
    assert [row.number for row in rows] == list(range(1, len(pairs) + 1))
    left_out = LeftOut(origin)
    assert [row.number for row in drop_empty(iter(rows), left_out)] == full
    assert sum(left_out.counts.values()) == sum(bool(s.strip()) != bool(t.strip()) for s, t in pairs)


def test_dropping_empty_lines_on_each_side_alone_would_shift(tmp_path: Path):
    source, target = write(tmp_path / "s", "one\n\nthree\n"), write(tmp_path / "t", "eins\nzwei\ndrei\n")
    assert read_corpus([source, target]).pairs == [("one", "eins"), ("three", "drei")]
    # The control: filtered one side at a time, "three" meets "zwei".
    each = [[line for line in lines_of(Path(path)) if line] for path in (source, target)]
    assert ("three", "zwei") in list(zip(*each, strict=False))


def test_left_out_rows_are_reported_with_their_lines(tmp_path: Path):
    path = write(tmp_path / "pairs.tsv", "a\tb\n\tb\na\t\n\na\tb\n \t \na\tb")
    corpus = read_corpus([path])
    assert corpus.lines == [1, 5, 7]
    assert corpus.notes() == [f"{path}: skipped pairs with an empty side: 2 (lines 2, 3)"]
    assert read_corpus([write(tmp_path / "full.tsv", "a\tb\n")]).notes() == []


HEADERS = ["source\ttarget", "SRC\ttgt", "source_text\ttranslation", "en\tes", "en-US\tzh_Hans", "English\tEspañol"]
NO_HEADERS = ["source\tsource", "no\tnein", "Spanish\tespañola", "The source\tLa fuente", "the target\ten"]


@pytest.mark.parametrize("line", HEADERS + NO_HEADERS)
def test_header_is_told_and_read_as_a_pair(tmp_path: Path, line: str):
    pair = tuple(line.split("\t"))
    first = read_corpus([write(tmp_path / "first.tsv", f"{line}\na\tb\n")])
    assert first.pairs == [pair, ("a", "b")]
    assert [note for note in first.notes() if "line 1 looks like a header" in note] == first.notes()
    assert len(first.notes()) == (line in HEADERS)
    assert read_corpus([write(tmp_path / "later.tsv", f"a\tb\n{line}\n")]).notes() == []
    sides = [write(tmp_path / f"{number}.txt", f"{side}\na\n") for number, side in enumerate(pair)]
    assert len(read_corpus(sides).notes()) == (line in HEADERS)
    table = write(tmp_path / "a.csv", f"id,{','.join(pair)}\n1,a,b\n")
    assert len(read_corpus([table, "columns=2,3"]).notes()) == (line in HEADERS)
    named = write(tmp_path / "a.jsonl", json.dumps(dict(zip(("source", "target"), pair, strict=True))))
    assert read_corpus([named]).notes() == []


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("a cat", "if the targets are in another file"),
        ("A cat, a dog; 1,000 mice.", "if the targets are in another file"),
        ("a\tb\tCC-BY", "cut -f 1,2"),
        ("17\ta\tb", "cut -f 2,3"),
        ("a ||| b", "makes ||| a tab"),
        ("a cat;un gato", ".csv"),
        ('"a cat","un gato"', ".csv"),
        ("a cat   un gato", "put a tab between them"),
    ],
)
def test_line_without_two_columns_gets_advice_on_what_it_has(tmp_path: Path, line: str, advice: str):
    with pytest.raises(DragomanError, match=re.escape(advice)):
        read_corpus([write(tmp_path / "a.tsv", f"{line}\n")])


def test_missing_files_and_folders_are_named(tmp_path: Path):
    here, missing = write(tmp_path / "here", "a\n"), str(tmp_path / "missing")
    for files in ([missing], [here, missing], [missing, here]):
        with pytest.raises(DragomanError, match=f"^{missing}: no such file$"):
            read_corpus(files)
    with pytest.raises(DragomanError, match=f"^{tmp_path}: "):
        read_corpus([str(tmp_path)])


@pytest.mark.parametrize("count", [0, 3])
def test_corpus_is_one_file_or_two(count: int):
    with pytest.raises(DragomanError, match=f"not {count} files"):
        read_corpus(["file"] * count)
