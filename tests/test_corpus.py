"""Sentence pairs from files: line n of the one side stays with line n of the other, whatever is in the lines."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.data.corpus import LeftOut, drop_empty, read_corpus, read_lines, stream_rows
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
def test_only_a_line_feed_ends_a_line(tmp_path: Path, separator: str):
    path = Path(write(tmp_path / "text", f"one{separator}two\nthree\n"))
    assert lines_of(path) == [f"one{separator}two", "three"]
    # The control: the reader that everybody writes first makes three lines of it.
    assert path.read_bytes().decode().splitlines() == ["one", "two", "three"]


@every_file_anew
@given(st.lists(st.tuples(sentences, sentences), min_size=1))
def test_a_pair_with_an_empty_side_is_dropped_whole_and_shifts_nothing(tmp_path: Path, pairs: list[tuple[str, str]]):
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
    assert sum(left_out.counts.values()) == len(pairs) - len(full)


def test_dropping_empty_lines_on_each_side_alone_would_shift(tmp_path: Path):
    source, target = write(tmp_path / "s", "one\n\nthree\n"), write(tmp_path / "t", "eins\nzwei\ndrei\n")
    assert read_corpus([source, target]).pairs == [("one", "eins"), ("three", "drei")]
    # The control: filtered one side at a time, "three" meets "zwei".
    each = [[line for line in lines_of(Path(path)) if line] for path in (source, target)]
    assert ("three", "zwei") in list(zip(*each, strict=False))


@every_file_anew
@given(st.lists(st.tuples(untabbed, untabbed), min_size=1))
def test_pairs_of_a_tsv_come_back_as_they_were_written(tmp_path: Path, pairs: list[tuple[str, str]]):
    pairs = [("first", "zuerst"), *((f"a{s}", f"b{t}e") for s, t in pairs)]
    path = write(tmp_path / "pairs.tsv", "".join(f"{s}\t{t}\n" for s, t in pairs))
    assert read_corpus([path]).pairs == pairs


def test_what_was_left_out_is_told_with_its_lines(tmp_path: Path):
    path = write(tmp_path / "pairs.tsv", "a\tb\n\tb\na\t\n\na\tb\n \t \na\tb")
    corpus = read_corpus([path])
    assert corpus.lines == [1, 5, 7]
    assert corpus.notes() == [f"{path}: skipped pairs with an empty side: 4 (lines 2, 3, 4, ...)"]
    assert read_corpus([write(tmp_path / "full.tsv", "a\tb\n")]).notes() == []


@pytest.mark.parametrize(
    ("data", "pairs"),
    [
        ("one\teins\ntwo\tzwei", [("one", "eins"), ("two", "zwei")]),  # the last line without its line feed
        (f"{BOM}one\teins\r\ntwo\tzwei\r\n", [("one", "eins"), ("two", "zwei")]),  # Windows
        (f"one\teins\n{BOM}two\tzwei\n", [("one", "eins"), (f"{BOM}two", "zwei")]),  # inside, a mark is text
    ],
)
def test_line_ends_and_a_mark_at_the_start_are_no_text(tmp_path: Path, data: str, pairs: list[tuple[str, str]]):
    assert read_corpus([write(tmp_path / "pairs.tsv", data)]).pairs == pairs


@pytest.mark.parametrize(
    ("lines", "counts"), [(("a\n" * 1000, "b\n" * 999), ("1,000", "999")), (("one\n\n", "eins\n"), ("2", "1"))]
)
def test_unequal_files_are_refused_with_both_names_and_counts(
    tmp_path: Path, lines: tuple[str, str], counts: tuple[str, str]
):
    source, target = write(tmp_path / "s", lines[0]), write(tmp_path / "t", lines[1])
    with pytest.raises(DragomanError) as error:
        read_corpus([source, target])
    assert f"{source} has {counts[0]} lines, {target} has {counts[1]}:" in str(error.value)


@pytest.mark.parametrize(
    ("line", "columns"), [("only one column", "no tab"), ("a\tb\tc", "3 columns"), ("\ta\tb\t", "4 columns")]
)
def test_a_line_without_two_columns_is_refused_by_number(tmp_path: Path, line: str, columns: str):
    path = write(tmp_path / "pairs.tsv", f"a\tb\n{line}\na\tb\n")
    with pytest.raises(DragomanError) as error:
        read_corpus([path])
    assert str(error.value).startswith(f"{path}:2: {columns}")


def test_a_refused_line_is_shown_shortened(tmp_path: Path):
    with pytest.raises(DragomanError) as error:
        read_corpus([write(tmp_path / "pairs.tsv", "x" * 1_000_000)])
    assert len(str(error.value)) < 300 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("data", "line", "byte", "shown"),
    [
        (b"a\tb\nc\xff\td\n", 2, 2, "0xff"),
        (b"a\tb\nc\td\nabc\xc3", 3, 4, "0xc3"),  # a character cut off
        (b"\xed\xa0\x80\tb\n", 1, 1, "0xed"),  # a lone surrogate
        ("one\teins\n".encode("utf-16"), 1, 1, "0xff"),
        (b"\xef\xbb\xbfab\x80\n", 1, 3, "0x80"),  # counted without the byte order mark
    ],
)
def test_what_is_not_utf8_is_refused_by_line_and_byte(tmp_path: Path, data: bytes, line: int, byte: int, shown: str):
    path = write(tmp_path / "pairs.tsv", data)
    with pytest.raises(DragomanError) as error:
        read_corpus([path])
    assert str(error.value).startswith(f"{path}:{line}: not UTF-8 at byte {byte} of the line ({shown})")


@pytest.mark.parametrize("data", ["", "\n", "\n\n", "a\t\n", BOM, " \t \n"])
def test_a_file_without_pairs_is_refused_by_name(tmp_path: Path, data: str):
    path = write(tmp_path / "pairs.tsv", data)
    with pytest.raises(DragomanError, match="no sentence pairs") as error:
        read_corpus([path])
    assert path in str(error.value)


def test_what_is_no_file_is_named(tmp_path: Path):
    here, missing = write(tmp_path / "here", "a\n"), str(tmp_path / "missing")
    for files in ([missing], [here, missing], [missing, here]):
        with pytest.raises(DragomanError, match=f"^{missing}: no such file$"):
            read_corpus(files)
    with pytest.raises(DragomanError, match=f"^{tmp_path}: "):
        read_corpus([str(tmp_path)])


@pytest.mark.parametrize("count", [0, 3])
def test_a_corpus_is_one_file_or_two(count: int):
    with pytest.raises(DragomanError, match=f"not {count} files"):
        read_corpus(["file"] * count)
