"""Pairs that a model makes: the same bytes however often the work is killed and however it is shared out."""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import write_tsv
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import KILLED, Command, signal_before

from dragoman.cli import main
from dragoman.config import SearchConfig
from dragoman.data.corpus import Pair, read_corpus
from dragoman.data.spec import CorpusSpec
from dragoman.errors import DragomanError
from dragoman.model_folder import load_model, verify_files
from dragoman.storage.writing import fingerprint
from dragoman.synthesis import blocks, synthesise
from dragoman.synthesis.job import Job, LocatedText, start_record
from dragoman.synthesis.noise import BLANK, FARTHEST, add_noise
from dragoman.synthesis.progress import TextProgress
from dragoman.synthesis.shard import Shard
from dragoman.translation.translation import Translation
from dragoman.translation.translator import Translator

FAST = SearchConfig(beam=1, extra_length=5)
BLOCK = 7
HARD = ["", "  ", "\t", "x" * 9000, "a\rb", "\u2028", "e\u0301", "\ufeff", "a\u00a0", "<tag:bt>", "\0"]


@pytest.fixture(scope="session")
def mono(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]) -> str:
    """60 lines of text, some that cannot be translated among them."""
    lines = [source for source, _ in pairs[:49]] + HARD
    random.Random(1).shuffle(lines)
    file = tmp_path_factory.mktemp("mono") / "mono.txt"
    file.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return str(file)


@pytest.fixture
def job(trained: Path, mono: str, tmp_path: Path) -> Job:
    return Job(trained, (mono,), tmp_path / "out.tsv", FAST, noise=1, block=BLOCK)


@pytest.fixture(scope="session")
def expected(trained: Path, mono: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the job makes where nothing interrupts it."""
    out = tmp_path_factory.mktemp("expected") / "out.tsv"
    make(Job(trained, (mono,), out, FAST, noise=1, block=BLOCK))
    assert out.read_bytes().count(b"\n") > 40
    return out.read_bytes()


def make(job: Job, shard: Shard = Shard(), device: str = "cpu") -> dict[str, Any] | None:
    return synthesise.synthesise(job, shard, torch.device(device), TextProgress(quiet=True))


def command(job: Job, *more: str) -> list[str]:
    (mono,) = job.files
    given = ["-m", job.model, "--text", mono, "--out", job.out, "--block", BLOCK, "--threads", 1, *more]
    return ["backtranslate", *map(str, given), "--noise", "--beam", "1", "--extra-length", "5"]


# What the pairs are.


def test_pair_is_a_source_and_what_the_teacher_makes_of_it(trained: Path, corpus: tuple[str, str], tmp_path: Path):
    job = Job(trained, CorpusSpec((corpus[1],)), tmp_path / "out.tsv", FAST, block=3)
    record = make(job)
    sources = [source for source, _ in read_corpus([corpus[1]]).pairs]
    translations = Translator.load(trained, FAST).translate(sources)
    expected_pairs = [(text, one.text) for text, one in zip(sources, translations, strict=True) if not one.flags]
    assert read_corpus([str(job.out)]).pairs == expected_pairs
    assert record
    assert record["pairs"] == len(expected_pairs) > 5
    # The targets of the corpus play no part; noise does (the control).
    without = CorpusSpec((write_tsv(tmp_path / "without.tsv", [(source, "") for source in sources]),))
    for out, same, change in (
        ("a", True, {"text": without}),
        ("b", False, {"noise": 1}),
    ):
        other = replace(job, out=tmp_path / f"{out}.out.tsv", **change)
        make(other)
        assert (other.out.read_bytes() == job.out.read_bytes()) == same


def test_back_translation_keeps_the_text_as_the_target(job: Job):
    job = replace(job, noise=None)
    make(job)
    translator = Translator.load(job.model, FAST)
    made = read_corpus([str(job.out)]).pairs
    assert made == [(translator.translate([text])[0].text.strip(), text) for _, text in made]


def test_device_that_was_asked_for_is_the_only_one(job: Job, expected: bytes, monkeypatch: pytest.MonkeyPatch):
    """On a machine with a GPU, `--device cpu` searches on the CPU. The meta device stands in for the GPU."""
    monkeypatch.setattr("dragoman.translation.engines.device_of", lambda wanted: torch.device("meta"))
    make(job)
    assert job.out.read_bytes() == expected
    with pytest.raises(RuntimeError, match="meta"):  # the control
        make(replace(job, out=job.out.with_name("other.tsv")), device="meta")


@settings(max_examples=10)
@given(
    lines=st.lists(st.sampled_from(HARD) | st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=9)),
    block=st.integers(1, 5),
)
def test_synthesis_loses_and_invents_no_text(
    trained: Path, expected: bytes, tmp_path_factory: pytest.TempPathFactory, lines: list[str], block: int
):
    folder = tmp_path_factory.mktemp("lines")
    lines = [expected.decode().split("\n")[0].split("\t")[1], *lines]  # the first one can be translated
    (folder / "mono").write_bytes("".join(f"{line}\n" for line in lines).encode())
    job = Job(trained, (str(folder / "mono"),), folder / "out.tsv", FAST, block=block, max_tokens=60)
    record = make(job)
    assert record
    assert record["texts"] == len(lines) == record["pairs"] + sum(record["left_out"].values())
    rows = job.out.read_bytes().decode().removesuffix("\n").split("\n")
    assert len(rows) == record["pairs"]
    # In order, and of each only what TSV cannot hold is changed.
    rest = iter([line.replace("\t", " ").strip() for line in lines])
    for row in rows:
        translation, text = row.split("\t")
        assert translation.strip()
        assert text in rest


@pytest.mark.parametrize("every", [1, 2, 10])
def test_teacher_that_mostly_fails_is_reported(job: Job, every: int, monkeypatch: pytest.MonkeyPatch):
    """Every translation but each tenth, each second or none has a fault; blank lines are not the teacher's."""
    calls, translate = itertools.count(), Translator.translate

    def translate_badly(*arguments: Any) -> list[Translation]:
        flags = (() if next(calls) % every == 0 else ("lost %s",) for _ in itertools.repeat(None))
        return [replace(each, flags=next(flags)) for each in translate(*arguments)]

    monkeypatch.setattr(Translator, "translate", translate_badly)
    record = make(job)
    assert record
    assert any("trained well enough" in note for note in record["notes"]) == (every == 10)
    assert (record["left_out"].get("translations with a fault (lost)", 0) > 0) == (every > 1)


def test_omitted_lines_are_counted_and_printed_pairs_can_be_trained_on(
    job: Job, mono: str, corpus: tuple[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    assert main(command(job)) == 0
    out, err = capfd.readouterr()
    record = json.loads(job.record_file.read_text())
    lines = Path(mono).read_bytes().decode().split("\n")
    blank = [number for number, line in enumerate(lines[:-1], start=1) if not line.strip()]
    assert record["left_out"]["blank lines"] == len(blank) == 4
    assert f"skipped blank lines: 4 ({', '.join(f'{mono}:{number}' for number in blank[:3])}, ...)" in err
    assert f"skipped texts longer than 256 tokens: 1 ({mono}:{lines.index('x' * 9000) + 1})" in err
    assert f"{record['pairs']:,} pairs from 60 texts" in err
    assert out == f"{job.out} tag=bt\n"
    given = ["--train", corpus[0], *out.split(), "--dev", corpus[1], "--out", str(tmp_path / "run")]
    flags = "--preset tiny --vocabulary 400 --training.max-steps 1 --training.threads 1 --training.device cpu --quiet "
    flags += "--model.d-model 16 --model.attention.heads 2 --model.encoder-layers 1 --model.decoder-layers 1"
    assert main(["train", *given, *flags.split()]) == 0
    assert load_model(tmp_path / "run" / "best")[1].source.tags.keys() == {"bt"}


def test_sampled_text_depends_on_the_seed_alone(job: Job, tmp_path: Path):
    drawn = [
        replace(
            job, noise=None, out=tmp_path / f"{n}.tsv", search=SearchConfig(temperature=0.7, extra_length=5, seed=seed)
        )
        for n, seed in enumerate((1, 1, 2))
    ]
    for one in drawn:
        make(one)
    first, again, other = (one.out.read_bytes() for one in drawn)
    assert first == again != other


# Killed and resumed.


def keep_blocks(made: set[Path]) -> None:
    """A fault: fail where a block that is there is made again."""
    replace_file = blocks.replace_file

    def watched(file: Path, data: bytes, **flags: bool) -> None:
        assert file not in made
        replace_file(file, data, **flags)

    blocks.replace_file = watched  # type: ignore[assignment]


def test_work_killed_again_and_again_resumes_to_the_same_bytes(job: Job, expected: bytes, tmp_path: Path):
    """In the fourth block, in the sixth, before the blocks are joined, and before the result is recorded."""
    made: set[Path] = set()
    for place, name, call, count in (
        *(("blocks", "build_block", 4, 3), ("blocks", "build_block", 3, 5)),
        *(("synthesise", "join_blocks", 1, 9), ("blocks", "replace_file", 1, 9)),
    ):
        fault = partial(signal_before, f"dragoman.synthesis.{place}", name, call, signal.SIGKILL)
        killed = Command(command(job), tmp_path / "log", {"RANK": "0"}, [partial(keep_blocks, made), fault])
        assert killed.code() == KILLED, killed.said
        made = set(job.blocks_folder.glob("[0-9]*"))
        assert len(made) == count
        assert job.out.exists() == (name == "replace_file")
        assert not job.record_file.exists()
    again = Command(command(job), tmp_path / "log", faults=[partial(keep_blocks, made)])
    assert again.code() == 0, again.said
    assert job.out.read_bytes() == expected
    assert fingerprint(job.out)["sha256"] == json.loads(job.record_file.read_text())["sha256"]
    assert sorted(file.name for file in tmp_path.iterdir() if file.name != "log") == ["out.tsv", "out.tsv.json"]


def write_in_place() -> None:
    """What a naive writer does, killed in the middle of its second block."""

    def write(file: Path, data: bytes, **_: bool) -> None:
        if file.name == "00000001":
            file.write_bytes(data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        file.write_bytes(data)

    blocks.replace_file = write  # type: ignore[assignment]


def test_block_that_is_not_whole_is_seen_and_made_anew(job: Job, expected: bytes, tmp_path: Path):
    """The control for the tests above: blocks that were written in place are torn, and that does not stay unseen."""
    killed = Command(command(job), tmp_path / "log", faults=[write_in_place])
    assert killed.code() == KILLED
    with pytest.raises(DragomanError, match="00000001: damaged and deleted; rerun the same command to make it again"):
        make(job)
    assert not job.out.exists()
    assert make(job)
    assert job.out.read_bytes() == expected


def test_resumed_file_would_differ_without_its_blocks(job: Job, expected: bytes, monkeypatch: pytest.MonkeyPatch):
    """The control for the comparison of bytes: a resume that forgets where it was has other noise in its lines."""
    encode = blocks.build_block
    monkeypatch.setattr(
        blocks, "build_block", lambda job, made, number, *more: encode(job, made, max(number - 1, 0), *more)
    )
    assert make(job)
    assert job.out.read_bytes() != expected


# Shared out.


@pytest.mark.parametrize(
    ("order", "count"), [((1, 1, 2), 2), ((2, 2, 1), 2), ((*range(10, 21), *range(1, 10)), 20)], ids=str
)
def test_shards_in_any_order_make_what_one_makes(job: Job, expected: bytes, order: tuple[int, ...], count: int):
    """Also one that is repeated, and more shards than blocks, which are nine."""
    *others, last = order
    for number in others:
        assert make(job, Shard(number, count)) is None
        assert not job.out.exists()
    assert make(job, Shard(last, count))
    assert job.out.read_bytes() == expected


def test_shards_at_the_same_time_make_what_one_makes(job: Job, expected: bytes, tmp_path: Path):
    running = [Command(command(job, "--shard", f"{n}/3"), tmp_path / f"log{n}") for n in (1, 2, 3)]
    for one in running:
        assert one.code() == 0, one.said
    assert job.out.read_bytes() == expected
    assert not job.blocks_folder.exists()
    assert any("tag=bt\n" in one.said for one in running)


def test_blocks_may_be_joined_by_two_processes_at_the_same_time(
    job: Job, expected: bytes, monkeypatch: pytest.MonkeyPatch
):
    """One has moved its file to its place, but not yet recorded it, when the other is about to move its own."""

    def stop(path: Path) -> None:
        raise InterruptedError("moved, not recorded")

    def let_the_other_join(path: Path) -> None:
        if path == job.blocks_folder and list(path.glob("joined*")):
            monkeypatch.setattr("dragoman.storage.writing.sync", lambda path: None)
            with monkeypatch.context() as other:
                other.setattr(blocks, "sync", stop)
                with pytest.raises(InterruptedError):
                    make(job)

    monkeypatch.setattr("dragoman.storage.writing.sync", let_the_other_join)
    assert make(job)
    assert job.out.read_bytes() == expected
    assert not job.blocks_folder.exists()


def test_file_that_is_just_being_recorded_is_not_refused(job: Job, monkeypatch: pytest.MonkeyPatch):
    """Another process records it, and deletes the blocks, while this one looks whether they are there."""
    record = make(job)
    recorded, exists = job.record_file.read_bytes(), Path.exists
    job.record_file.unlink()
    job.blocks_folder.mkdir()

    def exists_until_asked(path: Path) -> bool:
        found = exists(path)
        if path in (job.record_file, job.blocks_folder) and exists(job.blocks_folder):
            job.record_file.write_bytes(recorded)
            job.blocks_folder.rmdir()
        return found

    monkeypatch.setattr(Path, "exists", exists_until_asked)
    assert make(job) == record


def test_block_of_another_job_is_not_joined(job: Job, expected: bytes, tmp_path: Path):
    """The control for the tests above: blocks know what they were made from."""
    other = replace(job, out=tmp_path / "other.tsv", search=SearchConfig(beam=1, extra_length=6))
    for one in (job, other):
        assert make(one, Shard(1, 2)) is None
    shutil.copy(other.block_file(2), job.block_file(2))
    with pytest.raises(DragomanError, match="00000002: damaged"):
        make(job)
    assert make(job)
    assert job.out.read_bytes() == expected


def test_another_engine_makes_as_many_pairs_and_is_another_job(job: Job, expected: bytes):
    pytest.importorskip("ctranslate2")
    make(job, Shard(1, 2))
    fast = replace(job, engine="ctranslate2", compute_type="int8")
    with pytest.raises(DragomanError, match="was made with another engine"):
        make(fast)
    fast = replace(fast, out=job.out.with_name("fast.tsv"))
    record = make(fast)
    assert record
    assert record["pairs"] + sum(record["left_out"].values()) == 60
    mine, theirs = (each.decode().split("\n")[:-1] for each in (fast.out.read_bytes(), expected))
    assert {line.split("\t")[1] for line in mine} & {line.split("\t")[1] for line in theirs}


@pytest.mark.slow
def test_ray_makes_what_one_process_makes(job: Job, expected: bytes):
    pytest.importorskip("ray")
    program = [sys.executable, "-m", "dragoman", *command(job, "--ray")]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{job.out} tag=bt\n"), done.stderr
    assert "shards on 1 machines" in done.stderr
    assert job.out.read_bytes() == expected


# Nothing is mixed.


CHANGES = [
    ({"search": SearchConfig(beam=2, extra_length=5)}, "beam"),
    ({"noise": 2}, "noise"),
    ({"max_tokens": 100}, "longest"),
    ({"block": 8}, "block"),
    ({"model": "another"}, "model"),
    ({"text": "another"}, "text"),
]


@pytest.mark.parametrize(
    ("change", "word", "whole"),
    [
        *((change, word, number % 2 == 0) for number, (change, word) in enumerate(CHANGES)),
        *(pytest.param(*row, number % 2 == 1, marks=pytest.mark.slow) for number, row in enumerate(CHANGES)),
    ],
    ids=lambda value: "" if isinstance(value, dict) else str(value),
)
def test_another_job_does_not_resume_this_one(
    job: Job, same_weights: Path, tmp_path: Path, change: dict[str, Any], word: str, whole: bool
):
    make(job, Shard() if whole else Shard(1, 2))
    if change.get("model"):
        change = {"model": same_weights}
    if change.get("text"):
        (tmp_path / "other.txt").write_text(Path(job.files[0]).read_text() + "The dog\n")
        change = {"text": (str(tmp_path / "other.txt"),)}
    with pytest.raises(DragomanError, match=f"was made with another {word}: choose another name, or delete"):
        make(replace(job, **change))
    assert make(job)


@pytest.fixture(scope="session")
def same_weights(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with one more file, and so another manifest."""
    folder = tmp_path_factory.mktemp("model") / "same"
    shutil.copytree((trained / "best").resolve(), folder)
    (folder / "notes.json").write_text("{}\n")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["notes.json"] = fingerprint(folder / "notes.json")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    verify_files(folder)
    return folder


def test_jobs_that_begin_at_the_same_time_refuse_one(job: Job, expected: bytes, monkeypatch: pytest.MonkeyPatch):
    """Before the first one has made a block, and before it has written its record. The control: it makes all."""
    other, begun = replace(job, search=SearchConfig(beam=1, extra_length=6)), start_record(job, job.provenance())
    with pytest.raises(DragomanError, match="was made with another extra_length"):
        make(other)
    shutil.rmtree(job.blocks_folder)
    counted = Job.texts

    def texts(self: Job, notes: list[str] | None = None) -> Iterator[Any]:
        if self == other and notes is not None:
            monkeypatch.undo()
            assert start_record(job, job.provenance()) == begun
        return counted(self, notes)

    monkeypatch.setattr(Job, "texts", texts)
    with pytest.raises(DragomanError, match="was made with another extra_length"):
        make(other)
    assert make(job)
    assert job.out.read_bytes() == expected


def test_job_that_has_made_nothing_yet_may_change(job: Job, expected: bytes, capfd: pytest.CaptureFixture[str]):
    assert main([*command(job), "--model-tag", "med"]) == 1
    assert "unknown tag 'med'" in capfd.readouterr().err
    make(job)
    assert job.out.read_bytes() == expected


def test_finished_file_is_made_once_and_no_other_is_overwritten(job: Job):
    job.out.write_text("mine\tmine\n")
    with pytest.raises(DragomanError, match="exists already and was not made by this command"):
        make(job)
    assert job.out.read_text() == "mine\tmine\n"
    job.out.unlink()
    make(job)
    before = job.out.stat()
    assert make(job)
    assert job.out.stat().st_ino == before.st_ino
    job.out.write_bytes(job.out.read_bytes()[:-2])
    with pytest.raises(DragomanError, match="changed since it was made"):
        make(job)
    job.out.unlink()
    assert make(job)
    assert job.out.stat().st_size == before.st_size


def test_corpus_that_cannot_be_read_is_reported_before_anything_is_translated(trained: Path, tmp_path: Path):
    (tmp_path / "bad.txt").write_bytes(b"The dog\n" * 20 + b"\xff\n")
    with pytest.raises(DragomanError, match=r"bad.txt:21: not UTF-8"):
        make(Job(trained, (str(tmp_path / "bad.txt"),), tmp_path / "out.tsv", FAST, block=2))
    assert not list(tmp_path.glob("out.tsv*"))


@pytest.mark.parametrize(("shard", "total"), [(Shard(), 60), (Shard(1, 2), 4 * BLOCK + 4), (Shard(2, 2), 4 * BLOCK)])
def test_progress_counts_the_texts_of_the_shard(job: Job, shard: Shard, total: int):
    """Also those of the last block, which are fewer."""
    progress = TextProgress(quiet=True)
    synthesise.synthesise(job, shard, torch.device("cpu"), progress)
    assert progress.total == total


def test_text_that_changes_during_the_translation_is_not_joined(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = Path(job.files[0]).read_bytes()
    job = replace(job, text=(str(tmp_path / "mono.txt"),))
    Path(job.files[0]).write_bytes(text)
    make_blocks = synthesise.make_blocks

    def meanwhile(*arguments: Any) -> None:
        make_blocks(*arguments)
        Path(job.files[0]).write_bytes(text.replace(b"dog", b"cat"))

    monkeypatch.setattr(synthesise, "make_blocks", meanwhile)
    with pytest.raises(DragomanError, match="changed during the translation"):
        make(job)
    assert not job.out.exists()
    Path(job.files[0]).write_bytes(text)
    assert make(job)  # the control


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("--out a.tsv", 2, "--text"),
        ("--text {mono} --out a.txt", 2, "a.txt: the pairs are TSV"),
        ("--text {mono} --out a.tsv --noise --reverse", 2, "leave out --reverse"),
        ("--text {mono} --out a.tsv --noise --temperature 1", 2, "choose --noise or --temperature"),
        ("--text {mono} --out a.tsv --shard 3/2", 2, "write a shard as 1/4"),
        ("--text {mono} --out a.tsv --shard 1/2 --ray", 2, "choose --shard or --ray"),
        ("--text {mono} --out a.tsv --block 0", 2, "block must be from 1"),
        ("--text {mono} --out a.tsv --n-best 2", 2, "no flag --n-best"),
        ("--text {mono} --out a.tsv --tag :", 2, "a tag is 1 to 40 letters"),
        ("--text {pairs} --out a.tsv", 2, "looks like a file of pairs"),
        ("--text missing --out a.tsv", 1, "missing: no such file"),
        ("-m missing --text {mono} --out a.tsv", 1, "missing: no such model folder"),
    ],
)
def test_wrong_request_is_one_sentence(
    trained: Path, mono: str, corpus: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str], words: str, code: int, says: str,
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    try:
        returned = main(["backtranslate", "-m", str(trained), *words.format(mono=mono, pairs=corpus[0]).split()])
    except SystemExit as end:
        returned = end.code  # type: ignore[assignment]
    err = capfd.readouterr().err
    assert (returned, "Traceback" in err) == (code, False)
    assert says in err
    assert not list(tmp_path.iterdir())


def test_reverse_swaps_columns_and_a_wrong_script_is_reported(
    trained: Path, tmp_path: Path, pairs: list[Pair], capfd: pytest.CaptureFixture[str]
):
    """The model translates English into Korean; one from before 0.2 has no record of what it reads."""
    for name, side in (("en.txt", 0), ("ko.txt", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs[:12]))
    older = shutil.copytree((trained / "best").resolve(), tmp_path / "older")
    (older / "extent.json").unlink()
    manifest = json.loads((older / "manifest.json").read_text())
    (older / "manifest.json").write_text(json.dumps({k: v for k, v in manifest.items() if k != "extent.json"}))
    found: dict[str, list[Pair]] = {}
    cases = (
        ("back", trained, "en.txt", ""),
        ("forth", trained, "en.txt", ""),
        ("wrong", trained, "ko.txt", "ko.txt: written in Hangul script, but the model reads Latin"),
        ("old", older, "ko.txt", "ko.txt: written in Hangul script, but the model writes Hangul"),
    )
    for name, model, text, said in cases:
        job = Job(model, (str(tmp_path / text),), tmp_path / f"{name}.tsv", FAST)
        more = ["--reverse"] * (name == "forth")
        code = main([word for word in command(job, *more) if word != "--noise"])
        err = capfd.readouterr().err
        assert said in err
        assert ("script" in err) == bool(said)
        if code == 0:  # nonsense may be left out
            found[name] = read_corpus([str(job.out)]).pairs
    assert found["forth"] == [(text, translation) for translation, text in found["back"]]
    assert {text for _, text in found["back"]} <= {source for source, _ in pairs[:12]}


@pytest.mark.parametrize("name", ["translate", "evaluate", "score", "align"])
def test_sources_in_the_wrong_script_get_a_word_from_every_command(
    trained: Path, tmp_path: Path, pairs: list[Pair], capfd: pytest.CaptureFixture[str], name: str
):
    """Once in a run. Texts that have some letters of the right script do not."""
    sources = {
        "wrong": [f"{target}\t{source}\n" for source, target in pairs[:12]],
        "right": [f"{source}\t{target}\n" for source, target in pairs[:12]],
        "mixed": [f"dog {target}\t{source}\n" for source, target in pairs[:12]],
        "none": ["12\t12\n"],
    }
    flags = ["--beam", "1"] * (name in ("translate", "evaluate"))
    for kind, lines in sources.items():
        file = tmp_path / f"{kind}.tsv"
        file.write_text("".join(lines), encoding="utf-8")
        assert main([name, "-m", str(trained), *(["-i"] * (name == "translate")), str(file), *flags]) == 0
        said = capfd.readouterr().err.count("written in Hangul script, but the model reads Latin")
        assert said == (kind == "wrong")


# Noise.

WORDS = " ".join(f"w{number}" for number in range(400))
texts = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(
    ["a b c", "我喜欢猫。", "ab 猫犬 cd", " ", "ก า"]
)


@given(text=texts, seed=st.integers(0, 9))
def test_noise_leaves_words_that_were_there_and_at_least_one(text: str, seed: int):
    noisy = add_noise(text, random.Random(seed))
    assert Counter("".join(noisy.split()).replace(BLANK, "")) <= Counter(text)
    assert bool(noisy) == bool(text.strip())
    assert noisy == add_noise(text, random.Random(seed)) == noisy.strip()


def test_noise_drops_and_replaces_a_tenth_and_moves_words_three_positions():
    dropped, blanks, moved = [], [], set()
    for seed in range(40):
        noisy = add_noise(WORDS, random.Random(seed)).split()
        blanks.append(noisy.count(BLANK) / len(noisy))
        dropped.append(1 - len(noisy) / 400)
        numbers = [int(word[1:]) for word in noisy if word != BLANK]
        # Nothing is behind a word that was more than FARTHEST behind it, dropped ones not counted.
        for position, number in enumerate(numbers):
            moved.add(sum(later < number for later in numbers[position + 1 :]))
    assert 0.09 < sum(dropped) / 40 < 0.11
    assert 0.09 < sum(blanks) / 40 < 0.11
    assert max(moved) == FARTHEST
    assert add_noise(WORDS, random.Random(1)) != add_noise(WORDS, random.Random(2)) != WORDS  # the control


def test_noise_on_many_spaces_takes_no_time():
    assert add_noise("a" + " " * 1_000_000 + "b" + "\t" * 1_000_000, random.Random(1))


def test_texts_that_are_too_long_take_no_memory(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file, build_block, seen = tmp_path / "long.txt", blocks.build_block, []

    def watched(job: Job, made: Any, number: int, block: list[LocatedText], translator: Translator) -> bytes:
        seen.extend(len(text) for _, text in block)
        return build_block(job, made, number, block, translator)

    monkeypatch.setattr(blocks, "build_block", watched)
    file.write_text("The dog sees 5 cats.\n" + "x" * 1_000_000 + "\n")
    record = make(replace(job, text=(str(file),), out=tmp_path / "long.tsv"))
    assert record
    assert (record["pairs"], record["left_out"]) == (1, {"texts longer than 256 tokens": 1})
    assert len(seen) == 2
    assert max(seen) < 50_000
