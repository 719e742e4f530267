"""Lines in, lines out: formats, and that a pipe is answered line by line."""

import io
import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.commands.translate.lines import DEEPEST, Line, blocks, read, written
from dragoman.translation.result import Translation

anything = st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=20)


def lines_of(data: bytes, kind: str = "text", key: str = "text") -> list[Line]:
    return list(read(io.BytesIO(data), kind, key, lambda remark: None))  # type: ignore[arg-type]


@given(anything, st.sampled_from(["text", "tsv", "jsonl"]))
def test_there_is_a_record_for_each_line_whatever_it_is(lines: list[bytes], kind: str):
    data = b"".join(line + b"\n" for line in lines)
    found = lines_of(data, kind)
    assert [line.number for line in found] == list(range(1, len(lines) + 1))
    for line in found:
        for form in ("text", "tsv", "jsonl", "nbest"):
            (row,) = written(line, Translation("x", 0.0), form, "text")  # type: ignore[arg-type]
            assert "\n" not in row
            row.encode("utf-8", "replace")


def test_of_a_table_the_first_column_is_translated_and_the_others_come_back():
    (line,) = lines_of(b"The dog\t17\tnews\n", "tsv")
    assert line.text == "The dog"
    assert list(written(line, Translation("Der Hund", -1.5), "tsv", "text")) == ["The dog\tDer Hund\t-1.5000\t17\tnews"]


def test_fields_that_are_not_known_pass_through():
    record = {"id": 7, "text": "The dog", "deep": {"a": [1, None, "ü"]}}
    (line,) = lines_of(json.dumps(record).encode() + b"\n", "jsonl")
    (row,) = written(line, Translation("Der Hund", -1.5), "jsonl", "text")
    found = json.loads(row)
    assert {name: found[name] for name in record} == record
    assert (found["translation"], found["score"]) == ("Der Hund", -1.5)


def test_a_line_break_in_a_text_makes_no_second_row():
    (line,) = lines_of(b'{"text": "a\\nb\\tc"}\n', "jsonl")
    assert list(written(line, Translation("x", 0.0), "tsv", "text")) == ["a b c\tx\t0.0000"]


def test_what_was_said_of_another_translation_does_not_pass_through():
    """Our own output, translated again."""
    before = Translation("x", -1.0, flags=("loop",), segments=2, retried=True, alternatives=(Translation("y", -2.0),))
    (row,) = written(Line(1, "The dog", fields={"text": "The dog", "id": 7}), before, "jsonl", "text", {"words": []})
    (line,) = lines_of(row.encode() + b"\n", "jsonl")
    (row,) = written(line, Translation("Der Hund", -0.5), "jsonl", "text")
    assert json.loads(row) == {"text": "The dog", "id": 7, "translation": "Der Hund", "score": -0.5, "finished": True}


@pytest.mark.parametrize("levels", [DEEPEST - 1, DEEPEST, DEEPEST + 200])
def test_lines_as_deep_as_they_may_be_are_written_again(levels: int):
    """In a thread, as from a pipe, Python reads deeper ones than it can write."""
    data = b'{"text": "a", "x": ' + b"[" * levels + b"]" * levels + b"}\n"
    (line,) = lines_of(data, "jsonl")
    assert bool(line.fault) == (levels >= DEEPEST)
    (row,) = written(line, Translation("b", 0.0), "jsonl", "text")
    assert ("error" in json.loads(row)) == bool(line.fault)
    flat = b'{"text": "a", "x": [' + b"[]," * levels + b"[]]}\n"
    assert not lines_of(flat, "jsonl")[0].fault  # the control: as many, but not inside each other


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b'{"body": "a", "x": NaN}', "not JSON"),
        (b'{"body": "a", "x": 1e400}', "not JSON"),
        (b"[1]", "no text under 'body'"),
        (b'{"text": "a"}', "no text under 'body'"),
        (b'{"body": 3}', "what is under 'body' is no text"),
        (b"[" * 100_000, "not JSON"),
    ],
    ids=["cut off", "empty", "no number", "no finite number", "a list", "another key", "a number", "deep"],
)
def test_a_line_that_is_no_record_is_told_in_its_place(data: bytes, fault: str):
    good = b'{"body": "The dog"}'
    first, bad, last = lines_of(b"\n".join([good, data, good]) + b"\n", "jsonl", "body")
    assert (first.fault, bad.fault, last.fault) == ("", fault, "")
    (row,) = written(bad, Translation("", 0.0), "jsonl", "body")
    assert json.loads(row) == {"line": 2, "error": fault}


def test_half_a_character_in_a_field_is_still_json_in_utf_8():
    (line,) = lines_of(b'{"text": "a", "half": "\\ud800"}\n', "jsonl")
    (row,) = written(line, Translation("b", 0.0), "jsonl", "text")
    assert json.loads(row.encode())["half"] == "\ud800"


def test_all_translations_are_written_as_moses_writes_them():
    found = Translation("one", -1.0, alternatives=(Translation("two", -2.0),))
    assert list(written(Line(3, "x"), found, "nbest", "text")) == [
        "2 ||| one ||| F0= -1.0000 ||| -1.0000",
        "2 ||| two ||| F0= -2.0000 ||| -2.0000",
    ]


def test_what_is_wrong_stands_in_the_record():
    (row,) = written(
        Line(1, "x"), Translation("y", 0.0, flags=("loop",), retried=True, terms_met=("dog",)), "jsonl", "text"
    )
    found = json.loads(row)
    assert (found["flags"], found["retried"], found["terms_met"]) == (["loop"], True, ["dog"])


def piped(most: int) -> tuple[int, "list[list[Line]]", threading.Thread]:
    """A pipe, the blocks that are read from it, and who reads."""
    ear, mouth = os.pipe()
    source = os.fdopen(ear, "rb")
    found: list[list[Line]] = []

    def reading() -> None:
        found.extend(blocks(read(source, "text", "text", print), source, False, most))

    reader = threading.Thread(target=reading)
    reader.start()
    return mouth, found, reader


def test_whoever_writes_slowly_is_answered_line_by_line():
    ear, mouth = os.pipe()
    source = os.fdopen(ear, "rb")
    groups = blocks(read(source, "text", "text", print), source, False, 1000)
    for text in ("one", "two", "three"):
        os.write(mouth, f"{text}\n".encode())
        assert [line.text for line in next(groups)] == [text]
    os.close(mouth)
    assert list(groups) == []
    source.close()


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_no_line_of_a_pipe_is_lost(most: int):
    mouth, found, reader = piped(most)
    with os.fdopen(mouth, "wb") as target:
        target.write(b"".join(b"%d\n" % number for number in range(5000)))
    reader.join(20)
    assert [line.text for block in found for line in block] == list(map(str, range(5000)))
    assert max(map(len, found)) <= most
    assert len(found) < 5000 or most == 1


def test_a_file_is_read_in_whole_blocks(tmp_path: Path):
    (tmp_path / "in").write_bytes(b"x\n" * 25)
    with (tmp_path / "in").open("rb") as source:
        assert [len(block) for block in blocks(read(source, "text", "text", print), source, False, 10)] == [10, 10, 5]
    with (tmp_path / "in").open("rb") as source:
        assert [len(block) for block in blocks(read(source, "text", "text", print), source, True, 10)] == [1] * 25
