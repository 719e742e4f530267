"""Every format gives the same pairs, packed or not; the words that name corpora; and bombs that do not go off."""

import csv
import json
import os
import random
import re
import subprocess
import sys
import time
from codecs import BOM_UTF8
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hostile import CLEAN, CODECS, WRITERS, packed, po, text, tmx, tsv
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from dragoman.cli import main
from dragoman.data.corpus import LeftOut, Pair, drop_empty, read_corpus, stream_rows
from dragoman.data.lines import read_blocks
from dragoman.data.spec import MAPPED, OF_PAIRS, WITH_COLUMNS, CorpusSpec, parse_corpora
from dragoman.errors import DragomanError, UsageError

every_file_anew = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)

# All that str.splitlines splits at, other controls, marks, quotes and brackets of the formats, and plain letters.
ODD = "\v\f\r\x1c\x1d\x1e\x85\u2028\u2029\0\x1b\ufeff\u200d\u202e\U0001f600\U0010ffff\u0301\"'\\&<>{}[]%,;:# a가é\t\n"
IN_LINES = ("po", "csv", "ts", "xcstrings")  # formats whose rows are numbered by lines
NOT_IN = {"tsv": "\t\n"}  # characters that a format cannot hold, for those that cannot hold all


def expected(kind: str, pairs: list[Pair]) -> list[Pair]:
    if kind == "tsv":
        return [(source, target.removesuffix("\r")) for source, target in pairs]
    return [tuple(side.replace("\r\n", " ").replace("\n", " ") for side in pair) for pair in pairs]  # type: ignore[misc]


def test_formats_all_have_a_writer():
    """Others of these tests, and of `check`, write each format that has one."""
    assert [f".{kind}" for kind in WRITERS] == list(OF_PAIRS)


def test_lists_of_formats_are_complete():
    """In the help of commands, and in the documents."""
    root = Path(__file__).parents[2]
    for file in [root / "README.md", *root.glob("docs/*.md"), *root.glob("src/**/*.py")]:
        for found in re.findall(r"TSV,[^.;:]*TMX[^.;:]*", file.read_text(encoding="utf-8")):
            for suffix in OF_PAIRS:
                name = {".xlf": "xliff"}.get(suffix, suffix[1:])
                assert name in found.lower(), f"{file}: no {suffix} in '{found}'"


PLAIN, *PACKED = CODECS  # Parquet packs by itself


def packed_somehow() -> Iterator[Any]:
    """Each format as it is and packed in one way, all ways in turn; the other combinations are slow tests."""
    for number, kind in enumerate(WRITERS):
        yield kind, PLAIN
        for turn, pack in enumerate(PACKED if f".{kind}" not in MAPPED else []):
            own = number % len(PACKED) == turn
            yield (kind, pack) if own else pytest.param(kind, pack, marks=pytest.mark.slow)


@pytest.mark.parametrize(("kind", "pack"), packed_somehow())
@every_file_anew
@given(data=st.data())
def test_pairs_come_back_in_their_order_from_every_format(tmp_path: Path, kind: str, pack: str, data: st.DataObject):
    letters = st.sampled_from([odd for odd in ODD if odd not in NOT_IN.get(kind, "")])
    side = st.lists(letters, max_size=6).map("".join)
    pairs = [("first", "zuerst"), *data.draw(st.lists(st.tuples(side, side), max_size=8))]
    if kind == "po":  # an empty msgid is the header
        pairs = [(f"x{source}", target) for source, target in pairs]
    path = tmp_path / f"a.{kind}{pack}"
    path.write_bytes(packed(WRITERS[kind](pairs), CODECS[pack]))
    (origin,) = parse_corpora([str(path)])
    rows = list(stream_rows(origin))
    assert [(row.source, row.target) for row in rows] == expected(kind, pairs)
    numbers = [row.number for row in rows]
    assert numbers == sorted(set(numbers)) if kind in IN_LINES else numbers == list(range(1, len(rows) + 1))


@pytest.mark.parametrize("pack", CODECS)
def test_packed_files_of_two_kinds_make_one_corpus(tmp_path: Path, pack: str):
    sources, targets = zip(*CLEAN, strict=True)
    (tmp_path / f"a.en{pack}").write_bytes(packed(text(sources), CODECS[pack]))
    (tmp_path / "a.ko").write_bytes(text(targets))
    assert read_corpus([str(tmp_path / f"a.en{pack}"), str(tmp_path / "a.ko")]).pairs == CLEAN
    # Several packed members are one file.
    data = b"".join(packed(tsv(part), CODECS[pack]) for part in (CLEAN[:7], CLEAN[7:]))
    (tmp_path / f"a.tsv{pack}").write_bytes(data)
    assert read_corpus([str(tmp_path / f"a.tsv{pack}")]).pairs == CLEAN


@pytest.mark.parametrize("kind", WRITERS)
def test_name_in_capitals_is_of_the_same_format(tmp_path: Path, kind: str):
    pairs = [("first", "zuerst"), ("second", "danach")]
    for pack in CODECS if f".{kind}" not in MAPPED else [""]:
        path = tmp_path / f"DATA.{kind}{pack}".upper()
        path.write_bytes(packed(WRITERS[kind](pairs), CODECS[pack]))
        assert read_corpus([str(path)]).pairs == pairs


def test_row_that_lies_across_two_blocks_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.tsv").write_bytes(tsv(CLEAN))
    for size in (1, 2, 7, 100):
        monkeypatch.setattr("dragoman.data.lines.BLOCK", size)
        assert read_corpus([str(tmp_path / "a.tsv")]).pairs == CLEAN


# The formats' own ways.


@pytest.mark.parametrize(
    "line",
    [" " * 500_000 + '"' + "a" * 500_000, '"a"\n' * 200_000, f'"{"a" * 2_000_000}"', "# a\n" * 200_000],
)
def test_catalogue_that_would_take_hours_is_refused(tmp_path: Path, line: str):
    """polib needs quadratic time for the lines of a string or a comment."""
    (tmp_path / "a.po").write_text(f'msgid "a"\nmsgstr "b"\n{line}\n')
    began = time.process_time()
    with pytest.raises(DragomanError, match=r"a\.po:\d+: (a message of more than|not a readable PO file: a quote)"):
        read_corpus([str(tmp_path / "a.po")])
    assert time.process_time() - began < 10
    (tmp_path / "a.po").write_text('msgid "a"\nmsgstr ""\n' + '"b"\n' * 9_000)
    assert read_corpus([str(tmp_path / "a.po")]).pairs == [("a", "b" * 9_000)]


@pytest.mark.parametrize(
    ("charset", "codec", "target"),
    [
        ("cp1250", "cp1250", "Žluťoučký kůň"),
        ("ISO-8859-2", "iso8859-2", "Žluťoučký kůň"),
        ("EUC-KR", "euc-kr", "고양이가 앉았다"),
        ("cp932", "cp932", "猫が表に座った"),  # one of its bytes is a backslash
        ("ASCII", "utf-8", "고양이"),
        ("CHARSET", "utf-8", "고양이"),
        ("EUC-KR", "utf-8-sig", "고양이"),
    ],
)
def test_catalogue_is_in_the_encoding_that_its_header_declares(tmp_path: Path, charset: str, codec: str, target: str):
    path, pairs = tmp_path / "a.po", [("A cat sat.", target), ("Another cat.", "x")]
    path.write_bytes(po(pairs).decode().replace("UTF-8", charset).encode(codec))
    assert read_corpus([str(path)]).pairs == pairs


@pytest.mark.parametrize(("charset", "advice"), [("EUC-KR", "what the file declares"), ("UTF-8", "iconv -f latin1")])
def test_line_outside_the_encoding_of_its_catalogue_is_named(tmp_path: Path, charset: str, advice: str):
    data = po([("A cat sat.", "고양이")]).decode().replace("UTF-8", charset).encode(charset)
    (tmp_path / "a.po").write_bytes(data + b'\nmsgid "a"\nmsgstr "\xff"\n')
    with pytest.raises(DragomanError, match=rf"a\.po:8: not {charset} at byte 9 of the line \(0xff\): .*{advice}"):
        read_corpus([str(tmp_path / "a.po")])


def test_catalogue_that_cannot_be_read_gets_a_reason(tmp_path: Path):
    path = tmp_path / "a.po"
    for wrong, reason in (("msgstr2 x", "no line of a message, or"), ('msgstr "a"b"', "unescaped double quote found")):
        path.write_text(f'msgid "a"\nmsgstr "b"\n\nmsgid "c"\n{wrong}\n')
        with pytest.raises(DragomanError, match=rf"a\.po:5: not a readable PO file: {reason}.*{wrong}"):
            read_corpus([str(path)])


def test_columns_may_lie_inside_others(tmp_path: Path):
    columns, records = "columns=translation.en,translation.ko", [{"en": s, "ko": t} for s, t in CLEAN]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": 1, "translation": each}) + "\n" for each in records))
    pa.parquet.write_table(pa.table({"translation": records}), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.parquet"):
        assert read_corpus([str(tmp_path / name), columns]).pairs == CLEAN
        with pytest.raises(DragomanError, match=rf"no .*'source'.* source and target, such as {columns}\b"):
            read_corpus([str(tmp_path / name)])
    # In a process of its own, because something that is imported here may have imported more of pyarrow.
    code = f"from dragoman.data.corpus import read_corpus; read_corpus(['a.parquet', {columns!r}])"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)

    (tmp_path / "a.jsonl").write_text('{"a.b": "x", "a": {"b": "y"}, "t": "z"}\n')  # a key with a dot comes first
    assert read_corpus([str(tmp_path / "a.jsonl"), "columns=a.b,t"]).pairs == [("x", "z")]


@pytest.mark.parametrize(
    ("record", "columns"),
    [
        ({"id": "7", "translation": {"en": "a", "ko": "b"}}, "translation.en,translation.ko"),
        ({"id": "7", "text": "a", "other": "b"}, "text,other"),
        ({"meta": {"id": "7", "by": "x"}, "pair": {"ko": "b", "en": "a"}}, "pair.ko,pair.en"),
        ({"id": "7", "text": "a"}, "id,text"),
        ({"a" * 101: {"x": "a", "y": "b"}}, "en,de"),
        ({"a,b": "a", "c": "b"}, "en,de"),
        ({"translation": ["a", "b"]}, "en,de"),
    ],
)
def test_keys_that_a_message_suggests(tmp_path: Path, record: dict[str, object], columns: str):
    """They can be read, where the record has two; else they are an example."""
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(record)}\n")
    with pytest.raises(DragomanError, match=rf"such as columns={columns}\)"):
        read_corpus([str(tmp_path / "a.jsonl")])
    if columns != "en,de":
        assert read_corpus([str(tmp_path / "a.jsonl"), f"columns={columns}"]).pairs


def test_column_that_is_there_twice_is_not_guessed(tmp_path: Path):
    (tmp_path / "a.csv").write_text("en,ko,en\na,b,c\n")
    with pytest.raises(DragomanError, match=r"several columns are called 'en': give each its own name"):
        read_corpus([str(tmp_path / "a.csv"), "columns=en,ko"])
    (tmp_path / "a.csv").write_text("en,ko,other,other\na,b,c,d\n")  # others do not matter
    assert read_corpus([str(tmp_path / "a.csv"), "columns=en,ko"]).pairs == [("a", "b")]


@pytest.mark.parametrize("delimiter", ",;\t|")
def test_columns_of_a_spreadsheet_are_named_or_numbered(tmp_path: Path, delimiter: str):
    path = tmp_path / "a.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=delimiter).writerows(
            [("id", "en", "ko"), *((n, *pair) for n, pair in enumerate(CLEAN))]
        )
    assert read_corpus([str(path), "columns=en,ko"]).pairs == CLEAN
    assert read_corpus([str(path), "columns=ko,en"]).pairs == [(t, s) for s, t in CLEAN]
    assert read_corpus([str(path), "columns=EN,Ko"]).pairs == CLEAN
    assert read_corpus([str(path), "columns=2,3"]).pairs == [("en", "ko"), *CLEAN]  # then no row names them
    for other in ",;\t|@":  # what Excel is told in a line above them
        told = path.with_name("told.csv")
        told.write_bytes(f"sep={other}\r\n".encode() + path.read_bytes().removeprefix(BOM_UTF8))
        if other == delimiter:
            assert read_corpus([str(told), "columns=en,ko"]).pairs == CLEAN
        else:  # the control
            with pytest.raises(DragomanError, match="no column 'en'"):
                read_corpus([str(told), "columns=en,ko"])
    for wrong in ([], ["columns=en,de"], ["columns=2,4"], ["columns=0,1"]):
        with pytest.raises(
            DragomanError,
            match=r"no column '.*'; the first row has id, en, ko; name source and target, such as columns=en,ko",
        ):
            read_corpus([str(path), *wrong])


@pytest.mark.parametrize(
    ("heading", "columns"),
    [
        ("Original,Translation,Note", "Original,Translation"),
        ("No,English (UK),German,pt-BR", "German,pt-BR"),
        ('"a, b",c', "1,2"),
        ("It may be a sentence.,Puede ser una frase.", "1,2"),
        ("text", "1,2"),
    ],
)
def test_columns_that_a_message_suggests_can_be_read(tmp_path: Path, heading: str, columns: str):
    (tmp_path / "a.csv").write_text(f"{heading}\n{','.join('abcd'[: heading.count(',') + 1])}\n")
    with pytest.raises(DragomanError, match=rf"such as columns={columns} "):
        read_corpus([str(tmp_path / "a.csv")])
    if heading != "text":
        assert read_corpus([str(tmp_path / "a.csv"), f"columns={columns}"]).pairs


@pytest.mark.parametrize(
    ("columns", "swapped"), [("", False), ("en,ko", False), ("EN_us,KO", False), ("ko,en", True), ("ko,en-US", True)]
)
def test_languages_of_a_memory_are_found_by_their_codes(tmp_path: Path, columns: str, swapped: bool):
    doctype = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    (tmp_path / "a.tmx").write_bytes(tmx(CLEAN, doctype))
    words = [str(tmp_path / "a.tmx"), *([f"columns={columns}"] if columns else [])]
    assert read_corpus(words).pairs == ([(t, s) for s, t in CLEAN] if swapped else CLEAN)


def test_memory_declares_its_encoding_its_source_language_and_its_markup(tmp_path: Path):
    path = tmp_path / "a.tmx"
    inline = "a <bpt i='1'>&lt;b&gt;</bpt>bold<ept i='1'>&lt;/b&gt;</ept> <hi>word</hi><ph>{1}</ph>."
    path.write_bytes(tmx([(t, s) for s, t in CLEAN], languages=("ko", "en-GB")))
    assert read_corpus([str(path)]).pairs == CLEAN
    path.write_bytes(tmx(CLEAN).decode().replace('"1.0"?', '"1.0" encoding="utf-16"?').encode("utf-16"))
    assert read_corpus([str(path)]).pairs == CLEAN
    path.write_bytes(tmx([("SLOT", "b")]).replace(b"SLOT", inline.encode()))
    assert read_corpus([str(path)]).pairs == [("a bold word.", "b")]


def test_units_of_a_memory_may_be_of_other_regions(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "a.tmx"
    data = tmx(CLEAN, languages=("en-US", "es-ES")).decode()
    path.write_text(data.replace('"es-ES"', '"es_MX"', 2).replace('"en-US"', '"en"', 1), encoding="utf-8")
    assert read_corpus([str(path)]).pairs == CLEAN
    british = tmx(CLEAN, languages=("en-US", "en-GB")).decode()  # here the region tells them apart
    other = british.replace("</body>", '<tu><tuv xml:lang="en"><seg>x</seg></tuv></tu></body>')
    path.write_text(other, encoding="utf-8")
    assert read_corpus([str(path)]).pairs == CLEAN
    assert main(["check", str(path)]) == 1
    assert "a unit has neither language" in capsys.readouterr().out


def test_memory_may_have_many_languages(tmp_path: Path):
    sides = "".join(f'<tuv xml:lang="x{n}"><seg>{n}</seg></tuv>' for n in range(60))
    (tmp_path / "a.tmx").write_text(f"<tmx><body><tu>{sides}</tu></body></tmx>")
    assert read_corpus([str(tmp_path / "a.tmx"), "columns=x1,x59"]).pairs == [("1", "59")]
    with pytest.raises(DragomanError, match="name two languages with columns=en,de") as error:
        read_corpus([str(tmp_path / "a.tmx")])
    assert len(str(error.value)) < 300 + len(str(tmp_path))


def test_memory_whose_first_unit_is_empty_says_so(tmp_path: Path):
    (tmp_path / "a.tmx").write_bytes(tmx(CLEAN).replace(b"<body>", b"<body><tu></tu>", 1))
    with pytest.raises(DragomanError, match="its first unit has no text"):
        read_corpus([str(tmp_path / "a.tmx")])
    assert read_corpus([str(tmp_path / "a.tmx"), "columns=en,ko"]).pairs == CLEAN


def test_first_message_of_a_headerless_catalogue_is_in_line_1(tmp_path: Path):
    path = tmp_path / "a.po"
    path.write_text('#, fuzzy\nmsgid "a"\nmsgstr "b"\n\n#, fuzzy\nmsgid "c"\nmsgstr "d"\n')
    (origin,) = parse_corpora([str(path)])
    left_out = LeftOut(origin)
    assert list(stream_rows(origin, left_out)) == []
    assert left_out.notes() == [f"{path}: skipped fuzzy messages: 2 (lines 1, 5)"]


@pytest.mark.parametrize(
    ("forms", "pairs"),
    [(1, [("files", "0")]), (2, [("file", "0"), ("files", "1")]), (3, []), (6, [])],
)
def test_plural_forms_correspond_where_there_are_two_at_most(tmp_path: Path, forms: int, pairs: list[Pair]):
    written = "".join(f'msgstr[{form}] "{form}"\n' for form in range(forms))
    data = po(CLEAN).decode() + f'\nmsgid "file"\nmsgid_plural "files"\n{written}'
    (tmp_path / "a.po").write_text(data)
    corpus = read_corpus([str(tmp_path / "a.po")])
    assert corpus.pairs == [*CLEAN, *pairs]
    left_out = "skipped messages with plural forms or branches that have no sure counterpart: 1 (line 184)"
    assert corpus.notes() == ([] if pairs else [f"{tmp_path}/a.po: {left_out}"])


def test_training_is_told_of_everything_that_has_no_row(tmp_path: Path):
    extra = '\n#, fuzzy\nmsgid "a"\nmsgstr "b"\n\nmsgid "c"\nmsgstr ""\n\n#~ msgid "o"\n#~ msgstr "p"\n'
    path = tmp_path / "a.po"
    path.write_text(po(CLEAN).decode() + extra)
    (origin,) = parse_corpora([str(path)])
    left_out = LeftOut(origin)
    assert [row[1:3] for row in drop_empty(stream_rows(origin, left_out), left_out)] == CLEAN
    said = [note.removeprefix(f"{path}: skipped ") for note in left_out.notes()]
    assert said == [
        "fuzzy messages: 1 (line 184)",
        "pairs with an empty side: 1 (line 188)",
        "obsolete messages: 1 (line 191)",
    ]


# Words.


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", ()),
        ("a.tsv", (CorpusSpec(("a.tsv",)),)),
        ("a.txt", (CorpusSpec(("a.txt",)),)),
        ("a.en a.ko", (CorpusSpec(("a.en", "a.ko")),)),
        ("a.en.gz a.ko.zst", (CorpusSpec(("a.en.gz", "a.ko.zst")),)),
        ("a b c d", (CorpusSpec(("a", "b")), CorpusSpec(("c", "d")))),
        ("a b c d weight=2", (CorpusSpec(("a", "b")), CorpusSpec(("c", "d"), 2))),
        ("a tag=x b c", (CorpusSpec(("a",), tag="x"), CorpusSpec(("b", "c")))),
        ("a x.tsv b c", (CorpusSpec(("a",)), CorpusSpec(("x.tsv",)), CorpusSpec(("b", "c")))),
        ("a.po b.tmx.gz", (CorpusSpec(("a.po",)), CorpusSpec(("b.tmx.gz",)))),
        ("./weight=2", (CorpusSpec(("./weight=2",)),)),
        (
            "news.tsv weight=2.5 tag=news med.en.gz med.de.gz tag=med memory.tmx columns=en,de",
            (
                CorpusSpec(("news.tsv",), 2.5, "news"),
                CorpusSpec(("med.en.gz", "med.de.gz"), tag="med"),
                CorpusSpec(("memory.tmx",), columns=("en", "de")),
            ),
        ),
        ("a.csv weight-column=how.sure", (CorpusSpec(("a.csv",), weight_column="how.sure"),)),
        ("a.txt weight=1 b.txt weight=1", (CorpusSpec(("a.txt",)), CorpusSpec(("b.txt",)))),
    ],
)
def test_words_name_corpora(words: str, found: tuple[CorpusSpec, ...]):
    assert parse_corpora(words.split()) == found
    assert parse_corpora([word for spec in found for word in spec.words()]) == found


@pytest.mark.parametrize(
    "line",
    [
        "a.tsv",
        "a.tsv weight=0.5 tag=bt",
        "a.tsv b share=0.25",
        "a.en a.de weight=1.25",
        "a.tmx columns=en,de",
        "a weight=1 b weight=1",
    ],
)
def test_corpus_is_named_with_as_few_words_as_training_needs(line: str):
    assert " ".join(word for spec in parse_corpora(line.split()) for word in spec.words()) == line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("weight=2 a.tsv", "weight=2: an option must come after its corpus"),
        *(
            (f"a.tsv weight={wrong}", "weight must be from 0.001 to 1,000")
            for wrong in ("0", "-1", "1e-12", "1e12", "nan")
        ),
        ("a.tsv weight=two", "weight=two: weight must be"),
        *((f"a.tsv b.tsv share={wrong}", "share must be a number above 0 and below 1") for wrong in ("0", "1", "nan")),
        ("a.tsv b.tsv weight=2 share=0.5", "give weight= or share=, not both"),
        ("a.tsv share=0.5", "must leave something for a corpus without one"),
        ("a.tsv b.tsv share=0.5 c.tsv share=0.5", "must leave something for a corpus without one"),
        ("a.tsv weight=1 weight=2", "weight=2: a.tsv already has a weight"),
        ("a.tsv wieght=2", "wieght=2: unknown option, did you mean weight=?"),
        ("a.tsv tag=", "tag=: the tag is missing"),
        ("a.tsv weight-column=", "weight-column=: the column is missing"),
        *((f"a.tsv weight-column={n}", "weight-column=3 is the one behind") for n in ("2", "0", "sure")),
        ("a.po weight-column=3", "weight-column= is for .tsv, .csv, .jsonl, .parquet"),
        ("a.tsv tag=<x>", "a tag is 1 to 40 letters"),
        ("a.jsonl columns=en", "columns=en: name two"),
        ("a.jsonl columns=en,", "name two"),
        ("a.jsonl columns=en,de,fr", "name two"),
        ("a.tsv columns=1,2", f"columns= is for {', '.join(WITH_COLUMNS)};"),
        ("a b columns=1,2", "columns= is for"),
        ("a b c", "not 3 files: a b c"),
        ("a.json b.txt", "a.json has texts under keys, but the other file has none"),
        ("a.pot", "a.pot: a template, which has no translations"),
        ("a.tar", "a.tar: an archive: unpack it first (corpora are read from .gz, .zst and .zip as they are)"),
        ("a.en b.ODT.gz", "b.ODT.gz: a word processor's file: dragoman translate --input"),
        ("a.srt.gz", "a.srt.gz: subtitles, in one language"),
        ("a.json b.tsv", "a.json: messages in one language: name the file with their translations after it"),
    ],
)
def test_wrong_word_is_named(words: str, says: str):
    with pytest.raises(UsageError) as error:
        parse_corpora(words.split())
    assert says in str(error.value)


def test_weights_of_pairs_are_read_from_every_format_that_has_columns(tmp_path: Path):
    rows = [{"source": "a", "target": "b", "sure": 0.5}, {"source": "c", "target": "d", "sure": 1.0}]
    (tmp_path / "a.tsv").write_text("a\tb\tnote\t0.5\nc\td\t\t1\n")
    (tmp_path / "a.csv").write_text("sure,source,target\n0.5,a,b\n1,c,d\n")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name, column in (("a.tsv", "4"), ("a.csv", "sure"), ("a.jsonl", "sure"), ("a.parquet", "sure")):
        spec = CorpusSpec((str(tmp_path / name),), weight_column=column)
        assert [row[1:] for row in stream_rows(spec)] == [("a", "b", 0.5), ("c", "d", 1.0)], name


@pytest.mark.parametrize("weight", ["-1", "1001", "nan", "much", ""])
def test_weight_that_is_none_is_named_with_its_line(tmp_path: Path, weight: str):
    for name, lines, column in (("a.tsv", f"a\tb\t{weight}", "3"), ("a.csv", f"source,target,w\na,b,{weight}", "w")):
        (tmp_path / name).write_text(f"{lines}\n")
        with pytest.raises(DragomanError, match=rf"{name}:{lines.count(chr(10)) + 1}: a weight is a number from 0"):
            list(stream_rows(CorpusSpec((str(tmp_path / name),), weight_column=column)))
    (tmp_path / "b.tsv").write_text("a\tb\n")
    with pytest.raises(DragomanError, match="2 columns, so no weight in column 3"):
        list(stream_rows(CorpusSpec((str(tmp_path / "b.tsv"),), weight_column="3")))


def test_corpora_follow_one_another_and_keep_their_tags(tmp_path: Path):
    (tmp_path / "a.tsv").write_bytes(tsv(CLEAN[:3]) + b"\tx\n")
    (tmp_path / "b.po").write_bytes(po(CLEAN[3:5]))
    corpus = read_corpus([str(tmp_path / "a.tsv"), "tag=x", str(tmp_path / "b.po")])
    assert corpus.pairs == CLEAN[:5]
    assert corpus.tags == ["x"] * 3 + [""] * 2
    assert corpus.lines == [1, 2, 3, 4, 7]
    assert corpus.notes() == [f"{tmp_path}/a.tsv: skipped pairs with an empty side: 1 (line 4)"]


# Bombs, each in a process of its own, with its memory and time measured.

MEASURE = """
import re, sys, time
from pathlib import Path
from dragoman.data.corpus import stream_rows
from dragoman.data.spec import parse_corpora
from dragoman.errors import DragomanError
# Not ru_maxrss: that of the parent counts, too.
def memory(): return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
list(stream_rows(parse_corpora([sys.argv[1]])[0]))  # what has to be loaded is loaded
before, start = memory(), time.process_time()
try:
    rows = sum(1 for row in stream_rows(parse_corpora([sys.argv[2]])[0]))
except DragomanError as error:
    rows = str(error)
print([rows, memory() - before, time.process_time() - start])
"""


def measured(small: Path, large: Path) -> tuple[int | str, int, float]:
    """Rows, or what the error says; MiB; seconds."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-c", MEASURE, str(small), str(large)]
    return json.loads(
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.replace("'", '"')
    )


ZEROS = b"\0" * (100 << 20)


@cache
def zeros_in_gzip() -> bytes:
    """They are packed once for all bombs of them."""
    return packed(ZEROS, "gzip")


def parquet_bomb() -> bytes:
    """A column that says 20,000 times: the text of 1 MiB again."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000), pa.array(["x" * (1 << 20)]))
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(pa.table({"source": column, "target": column}), sink)
    return sink.getvalue().to_pybytes()


def page_of_256_mib() -> bytes:
    """A column whose first page says that it has 256 MiB in the file."""
    data = WRITERS["parquet"](CLEAN)
    header = re.match(rb"PAR1(\x15.\x15[\x80-\xff]*[\0-\x7f]\x15)[\x80-\xff]*[\0-\x7f]", data, re.DOTALL)
    assert header  # its kind, its size when unpacked, and its size in the file
    return data[: header.end(1)] + b"\x80\x80\x80\x80\x02" + data[header.end() :]


BOMBS = {
    "a.tsv": lambda: ZEROS[: 40 << 20],
    "a.tsv.gz": zeros_in_gzip,
    "a.csv.gz": lambda: packed(b'source,target\n"', "gzip") + zeros_in_gzip(),
    "a.jsonl.zst": lambda: packed(ZEROS, "zstd"),
    "a.po.gz": zeros_in_gzip,
    "a.tmx": lambda: b"<tmx><body><tu>" + b" " * (40 << 20),
    "a.tmx.gz": lambda: packed(b"<tmx><body>" + b" " * (100 << 20), "gzip"),
    "a.parquet": parquet_bomb,
    "b.parquet": page_of_256_mib,
}


@pytest.mark.parametrize("name", BOMBS)
def test_bomb_stops_at_a_cap(tmp_path: Path, name: str):
    kind, _, pack = name[len("a.") :].partition(".")
    small = tmp_path / f"small{name[1:]}"
    small.write_bytes(packed(WRITERS[kind](CLEAN), CODECS[pack and f".{pack}"]))
    (tmp_path / name).write_bytes(BOMBS[name]())
    rows, memory, seconds = measured(small, tmp_path / name)
    assert isinstance(rows, str)
    assert str(tmp_path / name) in rows
    assert memory < 64
    assert seconds < 10


def test_damaged_files_leave_no_memory_behind(tmp_path: Path):
    damaged = bytearray(packed(b"hello\tworld\n" * 1000, "gzip"))
    damaged[60:64] = bytes(4)
    file = tmp_path / "a.tsv.gz"
    file.write_bytes(damaged)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    sizes = []
    for _ in range(2):
        for _ in range(500):
            with pytest.raises(DragomanError, match="damaged"):
                list(read_blocks(str(file)))
        sizes.append(resident())
    assert sizes[1] - sizes[0] < 1 << 20  # with read() instead of readinto(), 8 kB a file


def test_honest_corpus_is_streamed_in_constant_memory(tmp_path: Path):
    """The control: text is no bomb."""
    small, large = tmp_path / "small.tsv.gz", tmp_path / "large.tsv.gz"
    chance = random.Random(1)
    rows_in = [b"%b\t%b\n" % (half, half) for half in (chance.randbytes(60).hex().encode() for _ in range(80_000))]
    small.write_bytes(packed(b"".join(rows_in[:1000]), "gzip"))
    large.write_bytes(packed(b"".join(rows_in), "gzip"))
    rows, memory, _ = measured(small, large)
    assert rows == len(rows_in)
    assert sum(map(len, rows_in)) > 16 << 20
    assert memory < 12
