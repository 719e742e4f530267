"""Lines in, lines out: formats, and that a pipe is answered line by line."""

import errno
import gzip
import io
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.commands.translate import lines as module
from dragoman.commands.translate.lines import (
    MAX_DEPTH,
    Line,
    capped_lines,
    decode_lines,
    line_blocks,
    output_rows,
    parse_lines,
    read_ahead,
    translation_fields,
)
from dragoman.translation.translation import Translation

anything = st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=20)


def parse(data: bytes, form: str = "text", text_key: str = "text") -> list[Line]:
    return list(parse_lines(io.BytesIO(data), form, text_key, lambda message: None))  # type: ignore[arg-type]


def output(line: Line, translation: Translation, form: str, text_key: str = "text", **annotations: object) -> str:
    """Return the only row."""
    fields = {**translation_fields(translation), **annotations}
    (row,) = output_rows(line, translation, form, text_key, fields)  # type: ignore[arg-type]
    return row


@given(anything, st.sampled_from(["text", "tsv", "jsonl"]))
def test_lines_get_a_record_each_whatever_they_are(lines: list[bytes], form: str):
    parsed = parse(b"".join(line + b"\n" for line in lines), form)
    assert [line.number for line in parsed] == list(range(1, len(lines) + 1))
    for line in parsed:
        for output_form in ("text", "tsv", "jsonl", "nbest"):
            row = output(line, Translation("x", 0.0), output_form)
            assert "\n" not in row
            row.encode("utf-8", "replace")


@pytest.mark.parametrize(
    ("source", "row"),
    [
        ("  A dog. ", "  x "),
        ("\tA dog.", "\tx"),
        ("A dog.", "x"),
        ("\u3000A dog.", "\u3000x"),
        ("", "x"),
        ("  ", "x"),
        ("A dog.\n", "x "),  # a line break makes no second row
        ("\r\n A dog.\n\n", "  x  "),
    ],
)
def test_line_of_text_keeps_the_white_space_around_it(source: str, row: str):
    assert output(Line(1, source), Translation("x", 0.0), "text") == row
    assert output(Line(1, source), Translation("", 0.0), "text") == ""


def test_first_column_of_a_table_is_translated_and_others_come_back():
    (line,) = parse(b"The dog\t17\tnews\n", "tsv")
    assert line.text == "The dog"
    assert output(line, Translation("Der Hund", -1.5), "tsv") == "The dog\tDer Hund\t-1.5000\t17\tnews"
    (line,) = parse(b'{"text": "a\\nb\\tc"}\n', "jsonl")
    assert output(line, Translation("x", 0.0), "tsv") == "a b c\tx\t0.0000"  # a line break makes no second row


def test_unknown_fields_pass_through():
    record = {"id": 7, "text": "The dog", "deep": {"a": [1, None, "ü"]}, "half": "\ud800"}
    (line,) = parse(json.dumps(record).encode() + b"\n", "jsonl")
    fields = json.loads(output(line, Translation("Der Hund", -1.5), "jsonl").encode())  # in UTF-8
    assert fields == record | {"translation": "Der Hund", "score": -1.5, "finished": True}


def test_flags_and_terms_of_a_record_do_not_survive_a_second_translation():
    first = Translation(
        "x",
        -1.0,
        flags=("loop",),
        segments=(("a", "x"), ("b", "")),
        retried=True,
        terms_met=("dog",),
        alternatives=(Translation("y", -2.0),),
    )
    row = output(Line(1, "The dog", fields={"text": "The dog", "id": 7}), first, "jsonl", words=[])
    fields = json.loads(row)
    assert (fields["flags"], fields["retried"], fields["terms_met"], fields["segments"]) == (["loop"], True, ["dog"], 2)
    assert fields["alternatives"] == [{"translation": "y", "score": -2.0}]
    (line,) = parse(row.encode() + b"\n", "jsonl")
    fields = json.loads(output(line, Translation("Der Hund", -0.5), "jsonl"))
    assert fields == {"text": "The dog", "id": 7, "translation": "Der Hund", "score": -0.5, "finished": True}


@pytest.mark.parametrize("levels", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 200])
def test_lines_as_deep_as_they_may_be_are_written_again(levels: int):
    """In a thread, as from a pipe, Python reads deeper ones than it can write."""
    (line,) = parse(b'{"text": "a", "x": ' + b"[" * levels + b"]" * levels + b"}\n", "jsonl")
    assert bool(line.error) == (levels >= MAX_DEPTH)
    assert ("error" in json.loads(output(line, Translation("b", 0.0), "jsonl"))) == bool(line.error)
    flat = b'{"text": "a", "x": [' + b"[]," * levels + b"[]]}\n"
    assert not parse(flat, "jsonl")[0].error  # the control: as many, but not inside each other


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b'{"body": "a", "x": NaN}', "not JSON"),
        (b'{"body": "a", "x": 1e400}', "a number is too large"),
        (b'{"body": "a", "x": 1' + b"0" * 5000 + b"}", "a number is too large"),
        (b"[1]", "not a JSON object"),
        (b"{}", "no field 'body'"),
        (b'{"n": 1, "text": "a", "doc": {"x": "b"}}', "no field 'body'; --text-key names one with a text: text, doc.x"),
        (b'{"body": 3}', "the field 'body' is not a string"),
        (b"[" * 100_000, "not JSON"),
    ],
    ids=[
        "cut off",
        "empty",
        "no number",
        "no finite number",
        "digits",
        "a list",
        "no key",
        "other keys",
        "a number",
        "deep",
    ],
)
def test_line_that_is_no_record_gets_an_error_in_its_position(data: bytes, error: str):
    good = b'{"body": "The dog"}'
    lines = parse(b"\n".join([good, data, good]) + b"\n", "jsonl", "body")
    assert [line.error for line in lines] == ["", error, ""]
    assert json.loads(output(lines[1], Translation("", 0.0), "jsonl", "body")) == {"line": 2, "error": error}


def test_text_in_an_object_of_the_object_is_named_with_dots():
    record = {"doc": {"text": "The dog", "n": 1}, "id": 7}
    (line,) = parse(json.dumps(record).encode() + b"\n", "jsonl", "doc.text")
    assert (line.text, line.fields) == ("The dog", record)
    # The object that it lies in may have the name of a field of the output; a name with a dot goes before the objects.
    record = {"translation": {"en": "The dog"}, "id": 7}
    (line,) = parse(json.dumps(record).encode() + b"\n", "jsonl", "translation.en")
    written = json.loads(output(line, Translation("Der Hund", 0.0), "jsonl", "translation.en"))
    assert (written["translation"], written["translation.en"], written["id"]) == ("Der Hund", "The dog", 7)
    (line,) = parse(b'{"a.b": "flat", "a": {"b": "nested"}}\n', "jsonl", "a.b")
    assert line.text == "flat"


def test_nbest_lists_are_written_as_moses_writes_them():
    translation = Translation("one", -1.0, alternatives=(Translation("two", -2.0),))
    assert list(output_rows(Line(3, "x"), translation, "nbest", "text")) == [
        "2 ||| one ||| F0= -1.0000 ||| -1.0000",
        "2 ||| two ||| F0= -2.0000 ||| -2.0000",
    ]


def test_slow_writer_is_answered_line_by_line():
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as source:
        blocks = line_blocks(parse_lines(source, "text", "text", print), source, False, 1000)
        for text in ("one", "two", "three"):
            os.write(write_end, f"{text}\n".encode())
            assert [line.text for line in next(blocks)] == [text]
        os.close(write_end)
        assert list(blocks) == []


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_pipes_lose_no_line(size: int):
    read_end, write_end = os.pipe()
    blocks: list[list[Line]] = []
    with os.fdopen(read_end, "rb") as source:
        lines = parse_lines(source, "text", "text", print)
        reader = threading.Thread(target=lambda: blocks.extend(line_blocks(lines, source, False, size)))
        reader.start()
        with os.fdopen(write_end, "wb") as target:
            target.write(b"".join(b"%d\n" % number for number in range(5000)))
        reader.join(20)
    assert [line.text for block in blocks for line in block] == list(map(str, range(5000)))
    assert max(map(len, blocks)) <= size
    assert len(blocks) < 5000 or size == 1


@pytest.mark.parametrize(("interactive", "sizes"), [(False, [10, 10, 5]), (True, [1] * 25)])
def test_file_is_read_in_blocks_and_a_person_line_by_line(tmp_path: Path, interactive: bool, sizes: list[int]):
    (tmp_path / "in").write_bytes(b"x\n" * 25)
    with (tmp_path / "in").open("rb") as source:
        blocks = line_blocks(parse_lines(source, "text", "text", print), source, interactive, 10)
        assert [len(block) for block in blocks] == sizes


def test_file_in_another_encoding_does_not_flood_the_screen():
    """The lines beyond the first few are counted; in a file with few of them each is named."""
    for count, said in ((1, 2), (2, 3), (300, 6)):
        log: list[str] = []
        lines = list(decode_lines(["é\n".encode("latin-1")] * count + [b"whole\n"], log.append))
        assert [text for _, text in lines] == ["\ufffd"] * count + ["whole"]
        assert len(log) == said
    assert log[-1] == "300 lines not in UTF-8; a file in Latin-1 is converted by: iconv -f latin1 -t utf-8"


@given(st.lists(st.integers(0, 60), max_size=9), st.integers(1, 50))
def test_line_without_end_keeps_its_place_and_takes_no_memory(lengths: list[int], size: int):
    """Whatever blocks the lines arrive in. One that is too long has an error, and the rest of it is gone."""
    data = b"".join(b"x" * length + b"\n" for length in lengths) + b"x" * 1000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONGEST_LINE", 30)
        raw = list(capped_lines(data[start : start + size] for start in range(0, len(data), size)))
        lines = list(parse_lines(raw, "text", "text", print))
    assert [line.text if not line.error else None for line in lines] == [
        "x" * length if length < 30 else None for length in [*lengths, 1000]
    ]
    assert max(map(len, raw)) <= 30 + size


def test_file_of_zeros_is_one_line_with_an_error(dragoman, trained: Path, tmp_path: Path):
    with (tmp_path / "in.txt").open("wb") as file:
        file.write(b"The dog sees 5 cats.\n")
        file.truncate(40 << 20)
        file.seek(0, os.SEEK_END)
        file.write(b"\nThe dog sees 6 cats.\n")
    ran = dragoman("translate", "-m", trained, "-i", "in.txt", "-o", "out.txt")
    assert ran.code == 1
    assert "line 2: longer than 16 MiB" in ran.err
    plain = [dragoman("translate", "-m", trained, f"The dog sees {n} cats.").out for n in (5, 6)]
    assert (tmp_path / "out.txt").read_text() == "\n".join(plain)


def test_long_lines_are_translated_and_read_ahead_by_the_few(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "BLOCK_SIZE", 1000)
    for length, most in ((400, 3), (1, 1000)):  # the second is the control
        taken = itertools.count()

        def endless(length: int = length, taken: Iterator[int] = taken) -> Iterator[Line]:
            while True:
                yield Line(next(taken), "", size=length)

        with Path(__file__).open("rb") as source:
            assert len(next(line_blocks(endless(), source, False, 1000))) == most
        before = next(taken)
        next(read_ahead(endless()))
        time.sleep(0.2)
        assert (next(taken) - before <= 6) == (length == 400)


@pytest.mark.parametrize(
    ("name", "blocks", "left"), [("a.txt", 2, b"1\n2\n"), ("a.txt", 0, None), ("a.txt.gz", 2, b"1\n2\nha")]
)
def test_part_has_whole_blocks_alone_after_a_failure(tmp_path: Path, name: str, blocks: int, left: bytes | None):
    """As where a full disk has cut a line in the middle of a block. A compressed part, the control, stays as it is."""

    def fail() -> None:
        with module.open_blocks(tmp_path / name) as (target, end_block):
            for number in range(blocks):
                target.write(f"{number + 1}\n".encode())
                end_block()
            target.write(b"ha")
            raise OSError(errno.ENOSPC, "no space left on device")

    with pytest.raises(OSError, match="no space left"):
        fail()
    part = tmp_path / f"{name}.part"
    found = part.read_bytes() if part.exists() else None
    assert (gzip.decompress(found) if found and name.endswith("gz") else found) == left
    assert not (tmp_path / name).exists()
