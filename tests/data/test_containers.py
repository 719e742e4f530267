"""Corpora in ZIP archives, as OPUS packs them, and in folders of Hugging Face's datasets."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from growth import grows_too_fast, processor_seconds
from hostile import CLEAN, WRITERS
from pyarrow import parquet

from dragoman.cli import main
from dragoman.data.containers import advise
from dragoman.data.corpus import read_corpus, stream_rows
from dragoman.data.lines import BLOCK, checksum_of
from dragoman.data.spec import CorpusSpec, parse_corpora
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError, UsageError
from dragoman.training.datasets import prepare_dataset
from dragoman.training.journal import Journal, RunConsole

SOURCES, TARGETS = ("".join(f"{pair[side]}\n" for pair in CLEAN) for side in (0, 1))
NOTICES = {"README": "Books", "LICENSE": "CC0", "Books.de-en.xml": "<cesAlign/>"}
Packs = Callable[[dict[str, str]], str]


@pytest.fixture
def pack(tmp_path: Path) -> Packs:
    def pack(files: dict[str, str]) -> str:
        with zipfile.ZipFile(tmp_path / "de-en.txt.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.mkdir("folder")
            for name, text in files.items():
                archive.writestr(name, text)
        return str(tmp_path / "de-en.txt.zip")

    return pack


def test_texts_of_an_archive_are_told_by_their_languages(pack: Packs):
    file = pack(NOTICES | {"Books.de-en.de": TARGETS, "Books.de-en.en": SOURCES})
    assert read_corpus([file, "columns=en,de"]).pairs == CLEAN
    assert read_corpus([file, "columns=de,en"]).pairs == [pair[::-1] for pair in CLEAN]
    with pytest.raises(UsageError, match="say which is the source: columns=de,en or columns=en,de"):
        parse_corpora([file])
    (spec,) = parse_corpora([file, "columns=en,de", "weight=2"])
    assert parse_corpora(spec.words()) == (spec,)
    assert read_corpus([f"{file}/Books.de-en.en", f"{file}/Books.de-en.de"]).pairs == CLEAN


@pytest.mark.parametrize("kind", ["tmx", "tsv", "po", "jsonl"])
def test_archive_with_one_file_of_pairs_is_that_file(pack: Packs, kind: str):
    file = pack(NOTICES | {f"folder/memory.{kind}": WRITERS[kind](CLEAN).decode()})
    assert read_corpus([file]).pairs == CLEAN
    (spec,) = parse_corpora([file])
    assert spec.name.endswith(f"de-en.txt.zip/folder/memory.{kind}")


def test_archive_without_a_clear_corpus_names_what_is_in_it(pack: Packs):
    file = pack({"a.tmx": "", "b.tsv": ""})
    with pytest.raises(UsageError, match=rf"several corpora in it; name those .* {file}/a.tmx {file}/b.tsv"):
        parse_corpora([file])
    with pytest.raises(UsageError, match=r"name a file in it, or two: .*zip/README"):
        parse_corpora([pack(NOTICES)])
    with pytest.raises(UsageError, match="packed twice"):
        parse_corpora([f"{file}/a.tsv.gz"])


def test_archive_that_cannot_be_read_is_named(pack: Packs, tmp_path: Path):
    with pytest.raises(DragomanError, match=r"gone.zip: no such file"):
        parse_corpora(["gone.zip"])
    (tmp_path / "a.zip").write_text("no archive")
    with pytest.raises(DragomanError, match=r"a.zip: not a readable ZIP archive"):
        parse_corpora([str(tmp_path / "a.zip")])
    file = pack({"a.tsv": "a\tb\n" * 9_000})
    with pytest.raises(DragomanError, match=r"txt.zip/b.tsv: no such file in the archive"):
        read_corpus([f"{file}/b.tsv"])
    data = bytearray(Path(file).read_bytes())
    data[60:80] = bytes(20)
    Path(file).write_bytes(data)
    with pytest.raises(DragomanError, match=r"a.tsv: damaged or truncated"):
        read_corpus([file])


def test_archive_of_a_newer_kind_is_named(pack: Packs):
    file = pack({"a.tsv": "a\tb\n"})
    data = bytearray(Path(file).read_bytes())
    data[data.rindex(b"PK\x01\x02") + 6] = 200
    Path(file).write_bytes(data)
    with pytest.raises(DragomanError, match=r"not a readable ZIP archive: zip file version 20"):
        parse_corpora([file])


def test_damage_in_lzma_is_named(tmp_path: Path):
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.tsv", "a\tb\n" * 9_000)
    data = bytearray(file.read_bytes())
    data[50:70] = b"\xff" * 20
    file.write_bytes(data)
    with pytest.raises(DragomanError, match=r"a.tsv: damaged or truncated"):
        read_corpus([str(file)])


def test_files_of_macos_in_an_archive_are_no_corpus(pack: Packs):
    text = "".join(f"{source}\t{target}\n" for source, target in CLEAN)
    assert read_corpus([pack({"x/a.tsv": text, "__MACOSX/x/._a.tsv": "?", "x/._b.tsv": "?"})]).pairs == CLEAN
    with pytest.raises(UsageError, match="no file in it"):
        parse_corpora([pack({})])


def test_archive_of_many_files_is_explained_in_linear_time():
    def seconds(count: int) -> float:
        return processor_seconds(lambda: advise("a.zip", [f"{n}.txt" for n in range(count)], []))

    assert not grows_too_fast(seconds, 3_000)


def test_archive_trains_and_is_told_by_its_bytes(pack: Packs, tokenizer: Tokenizer, tmp_path: Path):
    text = "".join(f"{source}\t{target}\n" for source, target in CLEAN)
    file = pack({"a.tsv": text, "b.tsv": "a\tb\n"})
    assert checksum_of(f"{file}/a.tsv") != checksum_of(f"{file}/b.tsv")
    journal = Journal(tmp_path / "run", RunConsole(), active=False)
    out = tmp_path / "a.arrow"
    for _ in range(2):
        pairs = prepare_dataset(
            parse_corpora([f"{file}/a.tsv"]), Tokenizers.from_tokenizer(tokenizer), None, out, journal, ""
        )
        assert len(pairs) == len(CLEAN)


def test_bomb_in_an_archive_stops_at_a_cap(pack: Packs):
    file = pack({"a.tsv": "a" * 10 + "\tb\n" + "\0" * (30 * BLOCK)})
    with pytest.raises(DragomanError, match=r"a.tsv: expands to more than 200 times its size"):
        list(stream_rows(CorpusSpec((f"{file}/a.tsv",))))


def test_check_names_the_file_in_the_archive(pack: Packs, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pairs = [(f"the {n} house of {n * n}", f"das {n} Haus von {n * n}") for n in range(40)]
    file = pack(
        {"a.en": "".join(f"{s}\n" for s, _ in pairs), "a.de": "".join(f"{t}\n" for _, t in [*pairs[:-1], ("", "")])}
    )
    main(["check", file, "columns=en,de", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["corpora"][0]["pairs"] == 39
    (finding,) = (each for each in report["findings"] if each["id"] == "empty")
    assert finding["locations"] == [f"{file}/a.en:40"]


def write_arrow(file: Path, rows: list[dict[str, object]]) -> None:
    table = pa.Table.from_pylist(rows)
    with file.open("wb") as opened, pa.ipc.new_stream(opened, table.schema) as stream:
        stream.write_table(table, max_chunksize=2)


ROWS: list[dict[str, object]] = [{"id": str(n), "translation": {"en": s, "de": t}} for n, (s, t) in enumerate(CLEAN)]


def test_shards_of_a_dataset_come_in_their_order(tmp_path: Path):
    half = len(ROWS) // 2
    for number, rows in enumerate((ROWS[:half], ROWS[half:])):
        write_arrow(tmp_path / f"data-0000{number}-of-00002.arrow", rows)
    (tmp_path / "state.json").write_text("{}")
    words = [str(tmp_path), "columns=translation.en,translation.de", "tag=wmt"]
    assert read_corpus(words).pairs == CLEAN
    assert [spec.tag for spec in parse_corpora(words)] == ["wmt", "wmt"]
    with pytest.raises(DragomanError, match=r"no column 'source'; name .* columns=translation.en,translation.de"):
        read_corpus([str(tmp_path)])
    with pytest.raises(UsageError, match="share= is for one file, and this has 2"):
        parse_corpora(["a.tsv", *words, "share=0.5"])


def test_tables_of_several_splits_are_not_mixed(tmp_path: Path):
    folder = tmp_path / "data"
    folder.mkdir()
    for split in ("train", "test"):
        parquet.write_table(pa.Table.from_pylist(ROWS), folder / f"{split}-00000-of-00001.parquet")
    with pytest.raises(UsageError, match=r"several splits in it \(test, train\); name the files"):
        parse_corpora([str(tmp_path)])
    words = [str(folder / "train-00000-of-00001.parquet"), "columns=translation.en,translation.de"]
    assert read_corpus(words).pairs == CLEAN
    (folder / "test-00000-of-00001.parquet").unlink()
    assert read_corpus([str(tmp_path), words[1]]).pairs == CLEAN
    write_arrow(tmp_path / "train.arrow", ROWS)
    with pytest.raises(UsageError, match=r"tables of several kinds; .*: .*train\.arrow or .*\.parquet"):
        parse_corpora([str(tmp_path)])
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["data"]}')
    with pytest.raises(UsageError, match=rf"several splits in it; name one of them: {folder}"):
        parse_corpora([str(tmp_path)])


def test_damaged_stream_is_refused(tmp_path: Path):
    """Arrow trusts its files; offsets beyond the text would read memory of the process."""
    file = tmp_path / "a.arrow"
    write_arrow(file, ROWS)
    words = [str(file), "columns=translation.en,translation.de"]
    assert read_corpus(words).pairs == CLEAN
    whole = file.read_bytes()
    table = pa.ipc.open_stream(whole).read_all()
    text = table.column("translation").chunk(0).field("en")
    offsets = text.buffers()[1].to_pybytes()[:12]
    assert whole.count(offsets) >= 1
    file.write_bytes(whole.replace(offsets, offsets[:4] + b"\xff\xff\xff\x7f" + offsets[8:], 1))
    with pytest.raises(DragomanError, match=r"a.arrow: not a readable stream of Arrow"):
        read_corpus(words)
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DragomanError, match=r"a.arrow: not a readable stream of Arrow"):
        read_corpus(words)
    write_arrow(file, [{"source": 1, "target": "a"}])
    with pytest.raises(DragomanError, match=r"column 'source' is int64, not text"):
        read_corpus([str(file)])
