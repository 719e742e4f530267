"""Pairs that a model makes: the same bytes however often the work is killed and however it is shared out; students."""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY, TINY_RECURRENT, state, write_tsv
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import KILLED, Command, Fault, signal_before, wait_for

from dragoman.cli import main
from dragoman.config import ModelConfig, RunConfig, SearchConfig, read_toml
from dragoman.data.corpus import Pair, read_corpus
from dragoman.data.spec import CorpusSpec, parse_corpora
from dragoman.errors import DragomanError
from dragoman.evaluation.compare import compare_models
from dragoman.evaluation.metrics import evaluate
from dragoman.files import fingerprint
from dragoman.model_folder import load_model, verify
from dragoman.synthesis import jobs
from dragoman.synthesis.jobs import Job, synthesise, words
from dragoman.synthesis.noise import BLANK, FARTHEST, disturbed
from dragoman.synthesis.progress import TextProgress
from dragoman.synthesis.shard import Shard
from dragoman.synthesis.student import prepare
from dragoman.text.faults import find_faults
from dragoman.translation.safeguards import NO_SAFEGUARDS
from dragoman.translation.translator import Translator

CPU, QUIET, FAST = torch.device("cpu"), TextProgress(quiet=True), SearchConfig(beam=1, extra_length=5)
BLOCK = 7
HARD = ["", "  ", "\t", "x" * 9000, "a\rb", "\u2028", "e\u0301", "\ufeff", "a\u00a0", "<tag:bt>", "\0"]


@pytest.fixture(scope="session")
def mono(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]) -> str:
    """60 lines of text, some that cannot be translated among them."""
    chance = random.Random(1)
    lines = [source for source, _ in pairs[:49]] + HARD
    chance.shuffle(lines)
    file = tmp_path_factory.mktemp("mono") / "mono.txt"
    file.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return str(file)


@pytest.fixture
def task(trained: Path, mono: str, tmp_path: Path) -> Job:
    return Job(trained, (mono,), tmp_path / "out.tsv", FAST, noise=1, block=BLOCK)


@pytest.fixture(scope="session")
def expected(trained: Path, mono: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the task makes where nothing interrupts it."""
    out = tmp_path_factory.mktemp("expected") / "out.tsv"
    assert synthesise(Job(trained, (mono,), out, FAST, noise=1, block=BLOCK), Shard(), CPU, QUIET)
    assert out.read_bytes().count(b"\n") > 40
    return out.read_bytes()


def make(task: Job, shard: Shard = Shard()) -> dict[str, Any] | None:
    return synthesise(task, shard, CPU, QUIET)


def command(task: Job, *more: str) -> list[str]:
    (mono,) = task.files
    given = ["-m", task.model, "--text", mono, "--out", task.out, "--block", BLOCK, "--threads", 1, *more]
    return ["backtranslate", *map(str, given), "--noise", "--beam", "1", "--extra-length", "5"]


# What the pairs are.


def test_a_pair_is_a_source_and_what_the_teacher_makes_of_it(trained: Path, corpus: tuple[str, str], tmp_path: Path):
    task = Job(trained, CorpusSpec((corpus[1],)), tmp_path / "out.tsv", FAST, block=3)
    record = make(task)
    sources = [source for source, _ in read_corpus([corpus[1]]).pairs]
    translations = Translator.load(trained, FAST, NO_SAFEGUARDS).translate(sources)
    found = [
        (text, one.text)
        for text, one in zip(sources, translations, strict=True)
        if not find_faults(text, one.text, finished=one.finished)
    ]
    assert read_corpus([str(task.out)]).pairs == found
    assert record
    assert record["pairs"] == len(found) > 5
    # The control: another beam says other things, so it matters what translates.
    other = replace(task, out=tmp_path / "other.tsv", search=SearchConfig(4))
    make(other)
    assert other.out.read_bytes() != task.out.read_bytes()


def test_back_translation_keeps_the_text_as_the_target(task: Job):
    task = replace(task, noise=None)
    make(task)
    translator = Translator.load(task.model, FAST, NO_SAFEGUARDS)
    found = read_corpus([str(task.out)]).pairs
    assert found == [(translator.translate([text])[0].text.strip(), text) for _, text in found]


def test_the_device_that_was_asked_for_is_the_only_one(task: Job, expected: bytes, monkeypatch: pytest.MonkeyPatch):
    """On a machine with a GPU, `--device cpu` searches on the CPU. The meta device stands in for the GPU."""
    monkeypatch.setattr("dragoman.translation.translator.device_of", lambda wanted: torch.device("meta"))
    make(task)
    assert task.out.read_bytes() == expected
    with pytest.raises(RuntimeError, match="meta"):  # the control
        synthesise(replace(task, out=task.out.with_name("other.tsv")), Shard(), torch.device("meta"), QUIET)


@settings(max_examples=10)
@given(
    lines=st.lists(st.sampled_from(HARD) | st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=9)),
    block=st.integers(1, 5),
)
def test_no_text_is_lost_or_invented(
    trained: Path, expected: bytes, tmp_path_factory: pytest.TempPathFactory, lines: list[str], block: int
):
    folder = tmp_path_factory.mktemp("lines")
    lines = [expected.decode().split("\n")[0].split("\t")[1], *lines]  # the first one can be translated
    (folder / "mono").write_bytes("".join(f"{line}\n" for line in lines).encode())
    task = Job(trained, (str(folder / "mono"),), folder / "out.tsv", FAST, block=block, max_tokens=60)
    record = make(task)
    assert record
    assert record["texts"] == len(lines) == record["pairs"] + sum(record["left_out"].values())
    rows = task.out.read_bytes().decode().removesuffix("\n").split("\n")
    assert len(rows) == record["pairs"]
    # In order, and of each only what TSV cannot hold is changed.
    rest = iter([line.replace("\t", " ").strip() for line in lines])
    for row in rows:
        translation, text = row.split("\t")
        assert translation.strip()
        assert text in rest


@pytest.mark.parametrize("every", [1, 2, 10])
def test_a_teacher_that_mostly_fails_is_told(task: Job, every: int, monkeypatch: pytest.MonkeyPatch):
    """Every translation but each tenth, each second or none has a fault; blank lines are not the teacher's."""
    asked = itertools.count()

    def some(*_: object, **__: object) -> tuple[str, ...]:
        return () if next(asked) % every == 0 else ("loop",)

    monkeypatch.setattr("dragoman.synthesis.jobs.find_faults", some)
    record = make(task)
    assert record
    told = [note for note in record["notes"] if "trained well enough" in note]
    assert len(told) == (every == 10)


def test_what_is_left_out_is_counted_and_named(task: Job, mono: str, capfd: pytest.CaptureFixture[str]):
    assert main(command(task)) == 0
    out, err = capfd.readouterr()
    record = json.loads(task.record.read_text())
    lines = Path(mono).read_bytes().decode().split("\n")
    blank = [number for number, line in enumerate(lines[:-1], start=1) if not line.strip()]
    long = lines.index("x" * 9000) + 1
    assert record["left_out"]["blank lines"] == len(blank) == 4
    assert f"left out 4 blank lines ({', '.join(f'{mono}:{number}' for number in blank[:3])}, ...)" in err
    assert f"left out 1 texts longer than 256 tokens ({mono}:{long})" in err
    assert f"{record['pairs']:,} pairs from 60 texts" in err
    assert out == f"{task.out} tag=bt\n"


def test_targets_of_a_corpus_are_not_looked_at(trained: Path, pairs: list[Pair], tmp_path: Path):
    with_target = write_tsv(tmp_path / "with.tsv", pairs[:5])
    without = write_tsv(tmp_path / "without.tsv", [(source, "") for source, _ in pairs[:5]])
    for name in (with_target, without):
        make(Job(trained, CorpusSpec((name,)), Path(f"{name}.out.tsv"), FAST))
    assert Path(f"{with_target}.out.tsv").read_bytes() == Path(f"{without}.out.tsv").read_bytes() != b""


def test_sampled_text_is_the_same_each_time_and_other_text_with_another_seed(task: Job, tmp_path: Path):
    drawn = [
        replace(task, noise=None, out=tmp_path / f"{n}.tsv", search=SearchConfig(temperature=0.7, seed=seed))
        for n, seed in enumerate((1, 1, 2))
    ]
    for one in drawn:
        make(one)
    first, again, other = (one.out.read_bytes() for one in drawn)
    assert first == again != other


# Killed, and going on.


def killed_before(name: str, call: int) -> Fault:
    return partial(signal_before, "dragoman.synthesis.jobs", name, call, signal.SIGKILL)


@pytest.mark.parametrize(("name", "call"), [("as_block", 4), ("join", 1), ("replace_file", 1)])
def test_killed_work_goes_on_to_the_same_bytes(task: Job, expected: bytes, tmp_path: Path, name: str, call: int):
    killed = Command(command(task), tmp_path / "log", {"RANK": "0"}, [killed_before(name, call)])
    assert killed.code() == KILLED, killed.said
    blocks = {file: (file.stat().st_ino, file.read_bytes()) for file in task.parts.glob("[0-9]*")}
    assert len(blocks) == (3 if name == "as_block" else 9)
    assert task.out.exists() == (name == "replace_file")
    assert not task.record.exists()
    again = Command(command(task), tmp_path / "log", faults=[partial(keep_blocks, blocks)])
    assert again.code() == 0, again.said
    assert task.out.read_bytes() == expected
    assert fingerprint(task.out)["sha256"] == json.loads(task.record.read_text())["sha256"]
    assert sorted(file.name for file in tmp_path.iterdir() if file.name != "log") == ["out.tsv", "out.tsv.json"]


def keep_blocks(blocks: dict[Path, tuple[int, bytes]]) -> None:
    """What is done is not done again: fails in the process where a block is replaced."""
    put = jobs.put

    def watched(file: Path, data: bytes) -> None:
        assert file not in blocks
        put(file, data)

    jobs.put = watched  # type: ignore[assignment]


def test_work_killed_at_random_times_goes_on_to_the_same_bytes(task: Job, expected: bytes, tmp_path: Path):
    chance, kills = random.Random(3), 0
    for attempt in count():
        blocks = len(list(task.parts.glob("[0-9]*")))
        running = Command(command(task), tmp_path / "log")
        wanted = blocks + chance.randint(2, 4)
        wait_for(lambda: len(list(task.parts.glob("[0-9]*"))) >= wanted or not running.process.is_alive())  # noqa: B023
        running.send(signal.SIGKILL)
        if running.code() == 0:
            break
        kills += 1
        assert attempt < 10, running.said
    assert kills > 1
    assert task.out.read_bytes() == expected


def in_place(file: Path, data: bytes) -> None:
    """What a naive writer does: the control. It is killed in the middle of its third block."""
    if file.name == "00000001":
        file.write_bytes(data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    file.write_bytes(data)


def careless() -> None:
    jobs.put = in_place  # type: ignore[assignment]


def test_a_block_that_is_not_whole_is_seen_and_made_anew(task: Job, expected: bytes, tmp_path: Path):
    """The control for the tests above: blocks that were written in place are torn, and that does not stay unseen."""
    killed = Command(command(task), tmp_path / "log", faults=[careless])
    assert killed.code() == KILLED
    with pytest.raises(DragomanError, match="00000001: damaged, and deleted; the same command makes it anew"):
        make(task)
    assert not task.out.exists()
    assert make(task)
    assert task.out.read_bytes() == expected


def test_a_resumed_file_would_differ_without_its_blocks(task: Job, expected: bytes, monkeypatch: pytest.MonkeyPatch):
    """The control for the comparison of bytes: a resume that forgets where it was has other noise in its lines."""
    numbered = jobs.as_block
    monkeypatch.setattr(
        jobs, "as_block", lambda task, made, number, *more: numbered(task, made, max(number - 1, 0), *more)
    )
    assert make(task)
    assert task.out.read_bytes() != expected


# Shared out.


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_two_shards_make_what_one_makes(task: Job, expected: bytes, order: tuple[int, int]):
    first, last = order
    assert make(task, Shard(first, 2)) is None
    assert not task.out.exists()
    assert make(task, Shard(first, 2)) is None
    assert make(task, Shard(last, 2))
    assert task.out.read_bytes() == expected


def test_shards_at_the_same_time_make_what_one_makes(task: Job, expected: bytes, tmp_path: Path):
    running = [Command(command(task, "--shard", f"{n}/3"), tmp_path / f"log{n}") for n in (1, 2, 3)]
    for one in running:
        assert one.code() == 0, one.said
    assert task.out.read_bytes() == expected
    assert not task.parts.exists()
    told = ["tag=bt\n" in one.said for one in running]
    assert any(told)


def test_more_shards_than_blocks_are_no_harm(task: Job, expected: bytes):
    made = [make(task, Shard(number, 20)) for number in range(1, 21)]
    assert [record is not None for record in made].index(True) == 8  # nine blocks
    assert task.out.read_bytes() == expected


def test_a_block_of_another_task_is_not_joined(task: Job, expected: bytes, tmp_path: Path):
    """The control for the tests above: blocks say what they were made of."""
    other = replace(task, out=tmp_path / "other.tsv", search=SearchConfig(beam=1, extra_length=6))
    for one in (task, other):
        assert make(one, Shard(1, 2)) is None
    shutil.copy(other.part(2), task.part(2))
    with pytest.raises(DragomanError, match="00000002: damaged"):
        make(task)
    assert make(task)
    assert task.out.read_bytes() == expected


def test_another_engine_makes_as_many_pairs_and_is_another_task(task: Job, expected: bytes):
    pytest.importorskip("ctranslate2")
    make(task, Shard(1, 2))
    fast = replace(task, engine="ctranslate2", compute_type="int8")
    with pytest.raises(DragomanError, match="was made with another engine"):
        make(fast)
    fast = replace(fast, out=task.out.with_name("fast.tsv"))
    record = make(fast)
    assert record
    assert record["pairs"] + sum(record["left_out"].values()) == 60
    mine, theirs = (each.decode().split("\n")[:-1] for each in (fast.out.read_bytes(), expected))
    assert {line.split("\t")[1] for line in mine} & {line.split("\t")[1] for line in theirs}


@pytest.mark.slow
def test_ray_makes_what_one_process_makes(task: Job, expected: bytes):
    pytest.importorskip("ray")
    program = [sys.executable, "-m", "dragoman", *command(task, "--ray")]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{task.out} tag=bt\n"), done.stderr
    assert "shares on 1 machines" in done.stderr
    assert task.out.read_bytes() == expected


# Nothing is mixed.


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"search": SearchConfig(beam=2, extra_length=5)}, "beam"),
        ({"noise": 2}, "noise"),
        ({"max_tokens": 100}, "longest"),
        ({"block": 8}, "block"),
        ({"model": "another"}, "model"),
        ({"text": "another"}, "text"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_task_does_not_go_on_here(
    task: Job, brief_model: Path, tmp_path: Path, whole: bool, change: dict[str, Any], word: str
):
    make(task, Shard() if whole else Shard(1, 2))
    if change.get("model"):
        change = {"model": brief_model}
    if change.get("text"):
        (tmp_path / "other.txt").write_text(Path(task.files[0]).read_text() + "The dog\n")
        change = {"text": (str(tmp_path / "other.txt"),)}
    with pytest.raises(DragomanError, match=f"was made with another {word}: choose another name, or delete"):
        make(replace(task, **change))
    assert make(task)


@pytest.fixture(scope="session")
def brief_model(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with another card: another manifest."""
    folder = tmp_path_factory.mktemp("model") / "same"
    shutil.copytree((trained / "best").resolve(), folder)
    (folder / "card.md").write_text("# another\n")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["card.md"] = fingerprint(folder / "card.md")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    verify(folder)
    return folder


def test_a_task_that_has_made_nothing_yet_may_change(task: Job, expected: bytes, capfd: pytest.CaptureFixture[str]):
    assert main([*command(task), "--model-tag", "med"]) == 1
    assert "unknown tag 'med'" in capfd.readouterr().err
    make(task)
    assert task.out.read_bytes() == expected


def test_a_file_of_someone_else_is_not_overwritten(task: Job):
    task.out.write_text("mine\tmine\n")
    with pytest.raises(DragomanError, match="there already, and not made by this command"):
        make(task)
    assert task.out.read_text() == "mine\tmine\n"


def test_a_finished_file_is_made_once_and_a_changed_one_is_told(task: Job):
    make(task)
    before = task.out.stat()
    assert make(task)
    assert task.out.stat().st_ino == before.st_ino
    task.out.write_bytes(task.out.read_bytes()[:-2])
    with pytest.raises(DragomanError, match="changed since it was made"):
        make(task)
    task.out.unlink()
    assert make(task)
    assert task.out.stat().st_size == before.st_size


def test_a_corpus_that_cannot_be_read_is_told_before_anything_is_translated(trained: Path, tmp_path: Path):
    (tmp_path / "bad.txt").write_bytes(b"The dog\n" * 20 + b"\xff\n")
    with pytest.raises(DragomanError, match=r"bad.txt:21: not UTF-8"):
        make(Job(trained, (str(tmp_path / "bad.txt"),), tmp_path / "out.tsv", FAST, block=2))
    assert not list(tmp_path.glob("out.tsv*"))


def test_text_that_changes_during_the_translation_is_not_joined(
    task: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = Path(task.files[0]).read_bytes()
    task = replace(task, text=(str(tmp_path / "mono.txt"),))
    Path(task.files[0]).write_bytes(text)
    translate = jobs.translate

    def slowly(*arguments: Any) -> None:
        translate(*arguments)
        Path(task.files[0]).write_bytes(text.replace(b"dog", b"cat"))

    monkeypatch.setattr(jobs, "translate", slowly)
    with pytest.raises(DragomanError, match="changed during the translation"):
        make(task)
    assert not task.out.exists()
    Path(task.files[0]).write_bytes(text)
    assert make(task)  # the control


WRONG = [
    ("backtranslate -m {model} --out a.tsv", 2, "--text"),
    ("backtranslate -m {model} --text {mono} --out a.txt", 2, "a.txt: the pairs are TSV"),
    (
        "backtranslate -m {model} --text {mono} --out a.tsv --noise --temperature 1",
        2,
        "choose --noise or --temperature",
    ),
    ("backtranslate -m {model} --text {mono} --out a.tsv --shard 3/2", 2, "a shard is written 1/4"),
    ("backtranslate -m {model} --text {mono} --out a.tsv --shard 1/2 --ray", 2, "choose --shard or --ray"),
    ("backtranslate -m {model} --text {mono} --out a.tsv --block 0", 2, "block must be from 1"),
    ("backtranslate -m {model} --text {mono} --out a.tsv --n-best 2", 2, "one translation is written"),
    ("backtranslate -m {model} --text {mono} --out a.tsv --compute-type int8", 2, "int8 needs --engine ctranslate2"),
    ("distill --teacher {model} --train {train} --dev {train} --out run --compute-type int8", 2, "int8 needs --engine"),
    ("backtranslate -m {model} --text {mono} --out a.tsv --tag :", 2, "a tag is 1 to 40 letters"),
    ("backtranslate -m {model} --text {train} --out a.tsv", 2, "pairs, by its name"),
    ("backtranslate -m {model} --text missing --out a.tsv", 1, "missing: no such file"),
    ("backtranslate -m missing --text {mono} --out a.tsv", 1, "missing: no such model folder"),
    ("distill --train {train} --dev {train} --out run", 2, "--teacher is missing"),
    ("distill --teacher {model} --dev {train} --out run", 2, "--train is missing"),
    ("distill --teacher missing --train {train} --dev {train} --out run", 1, "missing: no such model folder"),
    ("distill --teacher {model} --train {train} --dev {train} --out run --preset huge", 2, "no preset 'huge'"),
    (
        "distill --teacher {model} --train {train} --dev {train} --out run --originals -1",
        2,
        "originals must be a weight",
    ),
    ("distill --teacher {model} --train {train} --dev missing --out run", 1, "missing: no such file"),
    ("distill --teacher {model} --train {train} --dev {train} --test missing --out run", 1, "missing: no such file"),
    ("distill --teacher {model} --train missing --dev {train} --out run", 1, "missing: no such file"),
]


@pytest.mark.parametrize(("words", "code", "says"), WRONG, ids=[words[:70] for words, _, _ in WRONG])
def test_a_wrong_request_is_one_sentence(
    trained: Path, mono: str, corpus: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str], words: str, code: int, says: str,
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    arguments = [word.format(model=trained, mono=mono, train=corpus[0]) for word in words.split()]
    try:
        found = main(arguments)
    except SystemExit as end:
        found = end.code  # type: ignore[assignment]
    err = capfd.readouterr().err
    assert (found, "Traceback" in err) == (code, False)
    assert says in err
    assert not list(tmp_path.iterdir())


# Noise.

WORDS = " ".join(f"w{number}" for number in range(400))
texts = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(
    ["a b c", "我喜欢猫。", "ab 猫犬 cd", " ", "ก า"]
)


@given(text=texts, seed=st.integers(0, 9))
def test_noise_leaves_words_that_were_there_and_at_least_one(text: str, seed: int):
    found = disturbed(text, random.Random(seed))
    assert Counter("".join(found.split()).replace(BLANK, "")) <= Counter(text)
    assert bool(found) == bool(text.strip())
    assert found == disturbed(text, random.Random(seed)) == found.strip()


def test_noise_drops_and_replaces_a_tenth_and_moves_words_three_places():
    dropped, blanks, moved = [], [], set()
    for seed in range(40):
        found = disturbed(WORDS, random.Random(seed)).split()
        blanks.append(found.count(BLANK) / len(found))
        dropped.append(1 - len(found) / 400)
        numbers = [int(word[1:]) for word in found if word != BLANK]
        # Nothing is behind a word that was more than FARTHEST behind it, dropped ones not counted.
        for place, number in enumerate(numbers):
            moved.add(sum(later < number for later in numbers[place + 1 :]))
    assert 0.09 < sum(dropped) / 40 < 0.11
    assert 0.09 < sum(blanks) / 40 < 0.11
    assert max(moved) == FARTHEST
    assert disturbed(WORDS, random.Random(1)) != disturbed(WORDS, random.Random(2)) != WORDS  # the control


def test_noise_on_many_spaces_takes_no_time():
    assert disturbed("a" + " " * 1_000_000 + "b" + "\t" * 1_000_000, random.Random(1))


# Used for training.


@pytest.mark.parametrize(
    "line",
    [
        "a.tsv",
        "a.tsv tag=bt",
        "a.tsv weight=0.5 tag=bt",
        "a.en a.de weight=1.25",
        "a.tmx columns=en,de",
        "a.txt weight=1 b.txt weight=1",
    ],
)
def test_a_corpus_is_named_as_training_reads_it(line: str):
    origins = parse_corpora(line.split())
    named = tuple(word for origin in origins for word in words(origin))
    assert parse_corpora(named) == origins
    assert " ".join(named) == line


def test_what_is_printed_can_be_trained_on(
    task: Job, corpus: tuple[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    assert main(command(task)) == 0
    synthetic = capfd.readouterr().out.split()
    given = ["--train", corpus[0], *synthetic, "--dev", corpus[1], "--out", str(tmp_path / "run")]
    flags = "--preset tiny --vocabulary 400 --training.max-steps 1 --training.threads 1 --training.device cpu --quiet"
    assert main(["train", *given, *flags.split()]) == 0
    assert load_model(tmp_path / "run" / "best")[1].tags.keys() == {"bt"}


# Students.


def distill(teacher: Path, corpus: tuple[str, str], out: Path, *more: object) -> list[str]:
    settings = "--preset tiny --training.max-steps 6 --training.validate-every 3 --training.save-every 1 "
    settings += "--training.threads 1 --training.batch-tokens 1500 --training.device cpu --training.precision float32 "
    settings += "--model.encoder-layers 2 --beam 1 --extra-length 5 --block 50"
    given = ["--teacher", teacher, "--train", corpus[0], "--dev", corpus[1], "--out", out, *more]
    return ["distill", *map(str, given), *settings.split()]


@pytest.fixture(scope="module")
def student(trained: Path, corpus: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a student, never interrupted."""
    out = tmp_path_factory.mktemp("student") / "run"
    running = Command(distill(trained, corpus, out), out.with_suffix(".log"))
    assert running.code() == 0, running.said
    return out


def test_a_student_has_the_subwords_of_its_teacher_and_its_own_layers(student: Path, trained: Path):
    (teacher, subwords), (model, same) = load_model(trained / "best"), load_model(student / "best")
    assert same.pieces == subwords.pieces
    assert model.config == replace(teacher.config, encoder_layers=2, decoder_layers=1)
    assert read_toml(student / "config.toml")["train"] == [str(student / "synthetic" / "1.tsv")]
    assert read_corpus([str(student / "synthetic" / "1.tsv")]).pairs


def test_teacher_and_student_stand_side_by_side(
    student: Path, trained: Path, corpus: tuple[str, str], capfd: pytest.CaptureFixture[str]
):
    capfd.readouterr()
    assert main(distill(trained, corpus, student, "--json", "--quiet")) == 0  # all is there: it only measures
    found = json.loads(capfd.readouterr().out)
    assert {row["beam"] for row in found["rows"]} == {1}
    rows = {(row["model"], row["engine"]): row for row in found["rows"]}
    for name, folder in (("teacher", trained), ("student", student)):
        row = rows[name, "native"]
        model, _ = load_model(folder / "best")
        assert row["parameters"] == sum(p.numel() for p in model.parameters())
        assert row["bytes"] > 4 * row["parameters"]
        assert row["tokens_per_second"] > 0
        scores = capfd.readouterr() and main(
            ["evaluate", "-m", str(folder), corpus[1], "--beam", "1", "--extra-length", "5", "--json"]
        )
        assert scores == 0
        assert json.loads(capfd.readouterr().out)["bleu"] == row["scores"]["bleu"]
    assert found == json.loads((student / "students.json").read_text())
    assert found["synthetic"][0]["pairs"] > 100


def test_with_beams_two_and_one_are_measured_too(student: Path, trained: Path, corpus: tuple[str, str]):
    few = SearchConfig(beam=3, extra_length=5)
    report = compare_models({"teacher": trained, "student": student}, [corpus[1]], few)
    natives = [row for row in report.rows if row.engine == "native"]
    assert [(row.model, row.beam) for row in natives] == [
        (name, beam) for name in ("teacher", "student") for beam in (3, 2, 1)
    ]
    for row, folder in zip(natives, (*[trained] * 3, *[student] * 3), strict=True):
        translator = Translator.load(folder, SearchConfig(beam=row.beam, extra_length=5))
        sources, references = zip(*read_corpus([corpus[1]]).pairs, strict=True)
        translations = [found.text for found in translator.translate(sources)]
        assert evaluate(translations, references).bleu.value == row.scores.bleu.value
    lines = [line.split(" | ")[0] for line in str(report).splitlines() if line.startswith("| student, native")]
    assert lines == ["| student, native", "| student, native, beam 2", "| student, native, greedy"]


@pytest.mark.parametrize(
    "fault",
    [
        partial(signal_before, "dragoman.synthesis.jobs", "put", 3, signal.SIGKILL),
        partial(signal_before, "dragoman.model_folder", "write_model", 1, signal.SIGKILL),
        partial(signal_before, "dragoman.training.learner:Learner", "update", 4, signal.SIGKILL),
    ],
    ids=["translating", "the first model", "training"],
)
def test_a_killed_distillation_ends_as_one_that_was_not(
    student: Path, trained: Path, corpus: tuple[str, str], tmp_path: Path, fault: Fault
):
    out = tmp_path / "run"
    killed = Command(distill(trained, corpus, out), tmp_path / "log", {"RANK": "0"}, [fault])
    assert killed.code() == KILLED, killed.said
    again = Command(distill(trained, corpus, out), tmp_path / "log")
    assert again.code() == 0, again.said
    assert (out / "synthetic" / "1.tsv").read_bytes() == (student / "synthetic" / "1.tsv").read_bytes()
    assert state(out) == state(student)


def test_shards_of_a_distillation_only_translate(student: Path, trained: Path, corpus: tuple[str, str], tmp_path: Path):
    out = tmp_path / "run"
    for number in (1, 2):
        assert main(distill(trained, corpus, out, "--quiet", "--shard", f"{number}/2")) == 0
    assert [path.name for path in out.iterdir()] == ["synthetic"]
    assert (out / "synthetic" / "1.tsv").read_bytes() == (student / "synthetic" / "1.tsv").read_bytes()


def test_original_pairs_are_mixed_in_if_wanted(student: Path, trained: Path, corpus: tuple[str, str], tmp_path: Path):
    out = tmp_path / "run"
    assert main(distill(trained, corpus, out, "--quiet", "--originals", "0.5")) == 0
    assert read_toml(out / "config.toml")["train"] == [str(out / "synthetic" / "1.tsv"), corpus[0], "weight=0.5"]
    assert state(out) != state(student)  # the control for the equalities above


# What a student starts from.


@pytest.mark.parametrize(
    ("model", "layers"),
    [
        (replace(TINY, encoder_layers=3), {"encoder.0", "decoder.0"}),
        (replace(TINY, decoder_layers=0), {"encoder.0"}),
        (replace(TINY, d_model=24), set()),
        (TINY_RECURRENT, set()),
    ],
    ids=["deeper", "shallower", "wider", "recurrent"],
)
def test_a_student_starts_with_what_fits_of_its_teacher(
    trained: Path, tmp_path: Path, model: ModelConfig, layers: set[str]
):
    start = tmp_path / "start"
    said = prepare(RunConfig("tiny", ("a.tsv",), ("b.tsv",), model=model, init_from=str(start)), trained / "best")
    (student, tokenizer), (teacher, other) = load_model(start), load_model(trained / "best")
    own, its = (sum(parameter.numel() for parameter in one.parameters()) for one in (student, teacher))
    assert said.startswith(f"the student has {own:,} weights, its teacher {its:,}") if own >= its else not said
    assert (tokenizer.pieces, student.config) == (other.pieces, model)
    theirs = dict(teacher.named_parameters())
    matrices = {name: own for name, own in student.named_parameters() if own.dim() > 1}
    same = {name for name, own in matrices.items() if name in theirs and torch.equal(own, theirs[name])}
    found = {name for name in matrices if ".".join(name.split(".")[:2]) in layers}
    assert same == (found | {"source_embedding.weight"} if layers else set())
    inherited = sum(p.numel() for name, p in student.named_parameters() if layers and name in theirs)
    assert f"weights {inherited:,} are the teacher's" in (start / "card.md").read_text()
