"""Benchmarks compare what can be compared: the same model, the same sentences, counted in the same way."""

import itertools
import json
import os
import re
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from conftest import TINY, write_tsv
from torch.nn.attention import SDPBackend
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import training
from benchmarks.dragoman_trainer import planned_batches
from benchmarks.peers import train_marianmt, train_programs, trainers
from benchmarks.peers.pytorch import MarianMT, TorchTransformer, padded_step, smoothed_loss
from benchmarks.peers.task import RATE, TrainingTask, group_by_length, grouped_batches
from benchmarks.peers.train_marianmt import Trained
from benchmarks.peers.trainers import PROGRAMS, TrainerProcess, start_trainer
from benchmarks.training import BATCH_TOKENS, NAMES, OURS, Shape, Speed
from benchmarks.training_profile import matmul_rate, operations_per_update, profile_task, time_shares
from dragoman.config import TrainingConfig, read_toml
from dragoman.data.batches import Batch, Ids
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import Tokenizer
from dragoman.errors import DragomanError, UsageError
from dragoman.evaluation.timing import Contender, describe_machine, time_in_turn
from dragoman.model import parameter_count
from dragoman.model.attention import MultiHeadAttention, explicit_attention
from dragoman.model.transformer import Transformer
from dragoman.runtime.threads import SPINS
from dragoman.training.optimizer import learning_rate

VOCABULARY = 300
CPU_TOKENS = BATCH_TOKENS["cpu"]
MODEL = replace(TINY, encoder_layers=2, decoder_layers=3)
SHORT, LONG = [[5, 6, 7]], [[5, 6, 7], [8, 9, 10, 11, 12]]


def seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def test_contenders_take_turns_and_the_first_round_does_not_count():
    turns: list[str] = []
    contenders = [Contender(name, lambda name=name: turns.append(name) or 7) for name in "ab"]  # type: ignore[misc]
    time_in_turn(contenders, rounds=3)
    assert "".join(turns) == "abababab"
    assert all(len(contender.rates) == 3 and min(contender.rates) > 0 for contender in contenders)


@pytest.mark.parametrize("beyond", [False, True])
def test_groups_hold_every_pair_once_and_little_padding(beyond: bool):
    widths = np.random.default_rng(1).integers(1, 100, 3000)
    groups = group_by_length(widths, CPU_TOKENS, beyond)
    assert sorted(np.concatenate(groups).tolist()) == list(range(3000))
    for group, after in itertools.pairwise(groups):
        # What the last pair of a group, or the first of the next one, makes of the limit.
        inside, more = (group[:-1], group) if beyond else (group, [*group, after[0]])
        assert max(widths[inside], default=0) * len(inside) <= CPU_TOKENS - beyond < widths[more].max() * len(more)
    widest = [widths[group].max() for group in groups if len(group)]
    assert widest == sorted(widest)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> TrainingTask:
    """A task of a few hundred random pairs."""
    monkeypatch.setattr(training, "RANDOM_PAIRS", 400)
    return training.make_task(Shape(MODEL, VOCABULARY), None, 1)


@pytest.mark.parametrize("batches_of", [grouped_batches, planned_batches])
def test_epoch_has_every_pair_once_in_batches_of_many_shapes(batches_of, task: TrainingTask):
    batches = batches_of(task)
    for epoch in range(2):
        tokens, shapes = 0, []
        while tokens < task.lengths[:, 1].sum():
            batch = next(batches)
            tokens += batch.tokens
            shapes.append((*batch.source.shape, batch.target.size(1)))
            assert max(batch.source.numel(), batch.target.numel()) <= CPU_TOKENS
        assert tokens == task.lengths[:, 1].sum()
        assert len(set(shapes)) > 5
        assert shapes != sorted(shapes, key=lambda shape: shape[1]), epoch


def test_corpus_gives_its_own_sentences(tmp_path: Path, pairs: list[Pair]):
    task = training.make_task(Shape(MODEL, 400), write_tsv(tmp_path / "pairs.tsv", pairs), 1)
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), suggested=400)
    sides = [[tokenizer.decode(ids) for ids in side] for side in (task.sources, task.targets)]
    assert sorted(zip(*sides, strict=True)) == sorted(pairs)


@pytest.mark.parametrize("targets", [1, 4])
def test_operations_are_those_that_pytorch_counts(targets: int):
    """On a batch without padding; PyTorch counts the scores that the mask hides, too."""
    torch.manual_seed(1)
    model = Transformer(MODEL, VOCABULARY)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.kernel = explicit_attention
    batch = Batch.from_pairs([[5, 6, 7, 8]] * 3, [[9] * (targets - 1)] * 3)
    with FlopCounterMode(display=False) as counter:
        model(batch.source, batch.target, batch.real).sum().backward()
    hidden = 3 * 3 * MODEL.decoder_layers * 4 * MODEL.d_model * targets * (targets - 1) / 2
    assert operations_per_update(model, batch) == counter.get_total_flops() - hidden
    # Padding does not count.
    assert operations_per_update(model, Batch.from_pairs(LONG, LONG)) == sum(
        operations_per_update(model, Batch.from_pairs([ids], [ids])) for ids in LONG
    )


def test_products_run_at_a_rate_that_arithmetic_confirms():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.Linear(200, 300))
    rate = matmul_rate(model, 500, torch.float32)
    x, weight = torch.randn(500, 300), torch.randn(300, 200)
    best = min(seconds_of(lambda: torch.mm(x, weight)) for _ in range(200))
    assert 0.2 < rate / (2 * 500 * 300 * 200 / best) < 5


def test_time_is_shared_out_among_parts():
    x = torch.randn(400, 400)
    found = time_shares(lambda: torch.mm(x, x))
    assert sum(found.values()) == pytest.approx(1)
    assert found["matmuls"] > 0.9
    assert time_shares(lambda: x.log_softmax(-1))["rest of the loss"] > 0.9


# The others


@pytest.fixture(params=["torch", "sdpa", "eager", "sdpa in float32"])
def peer(request: pytest.FixtureRequest) -> torch.nn.Module:
    torch.manual_seed(1)
    if request.param == "torch":
        return TorchTransformer(MODEL, VOCABULARY)
    pytest.importorskip("transformers")
    return MarianMT(MODEL, VOCABULARY, request.param)


def test_peers_have_our_model_and_biases_in_attention(peer: torch.nn.Module):
    attentions = MODEL.encoder_layers + 2 * MODEL.decoder_layers
    norms = 4 * isinstance(peer, TorchTransformer)  # one more after each stack
    learned = sum(parameter.numel() for parameter in peer.parameters() if parameter.requires_grad)
    assert learned == parameter_count(Transformer(MODEL, VOCABULARY)) + (4 * attentions + norms) * MODEL.d_model


def test_peer_sees_no_padding(peer: torch.nn.Module):
    peer.eval()
    batch = Batch.from_pairs(LONG, LONG)
    together = peer(batch.source, batch.target)[0, :4]
    alone = peer(*(t[:1, :4] for t in (batch.source, batch.target)))[0]
    assert torch.allclose(together, alone, atol=1e-5)
    assert not torch.allclose(alone, peer(batch.source[:1, :3], batch.target[:1, :4])[0], atol=1e-5)


def test_loss_of_a_peer_is_the_mean_over_real_tokens():
    batch = Batch.from_pairs(LONG, LONG)
    logits = torch.randn(*batch.labels.shape, VOCABULARY)
    log_p, labels = logits[batch.real].log_softmax(-1), batch.labels[batch.real]
    expected = -(0.9 * log_p.gather(1, labels[:, None])[:, 0] + 0.1 * log_p.mean(-1)).mean()
    assert smoothed_loss(logits, batch.labels) == pytest.approx(float(expected))


@pytest.mark.parametrize(
    ("peer", "dtype"),
    [
        ("torch", torch.float32),
        ("sdpa", torch.bfloat16),
        ("eager", torch.float32),
        ("sdpa in float32", torch.bfloat16),
        pytest.param("torch", torch.bfloat16, marks=pytest.mark.slow),
        pytest.param("sdpa", torch.float32, marks=pytest.mark.slow),
        pytest.param("eager", torch.bfloat16, marks=pytest.mark.slow),
        pytest.param("sdpa in float32", torch.float32, marks=pytest.mark.slow),
    ],
    indirect=["peer"],
)
def test_peer_learns(peer: torch.nn.Module, dtype: torch.dtype):
    batch = Batch.from_pairs(LONG, LONG)

    def loss() -> float:
        peer.eval()
        value = smoothed_loss(peer(batch.source, batch.target), batch.labels).item()
        peer.train()
        return value

    before = loss()
    step = padded_step(peer, dtype, rate=lambda: 100 * RATE)
    assert {step(batch) for _ in range(20)} == {sum(len(ids) + 1 for ids in LONG)}
    assert loss() < before - 1


def test_peer_stands_still_at_rate_zero(peer: torch.nn.Module):
    weights = [parameter.clone() for parameter in peer.parameters()]
    padded_step(peer, kernel=SDPBackend.MATH, rate=lambda: 0.0)(Batch.from_pairs(LONG, LONG))
    assert all(torch.equal(old, new) for old, new in zip(weights, peer.parameters(), strict=True))


# Processes

TASK = TrainingTask(MODEL, VOCABULARY, CPU_TOKENS, threads=1, sources=LONG, targets=LONG)
LOGS = {
    "marian": ("Ep. 1 : Up. 3 : Sen. 142 : Cost 9.316 * 2,143 @ 2,143 after 6,596 : Time 2.51s : 853.46 words/s", 2143),
    "joeynmt": ("tokens 1680", 1680),
    "eole": ("Step 20/   20; ppl: 5958.30; sents:      62; bsz: 1511/1581/62; 1028/1075 tok/s;     29 sec;", 1581),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_target_tokens_are_found_in_a_line_of_a_log(name: str):
    line, tokens = LOGS[name]
    found = re.search(PROGRAMS[name].tokens, line)
    assert found
    assert int(found[1].replace(",", "")) == tokens
    for other in LOGS.keys() - {name}:
        assert not re.search(PROGRAMS[name].tokens, LOGS[other][0])


def test_eole_is_ready_when_its_model_is():
    """What it says first, "in cpu mode", is seconds too early: they would count as training."""
    lines = ["INFO] Starting training in cpu mode", "INFO] Starting training on CPU, could be very slow"]
    assert [bool(re.search(PROGRAMS["eole"].ready, line)) for line in lines] == [False, True]


def test_programs_get_all_sentences_as_words_of_one_vocabulary(tmp_path: Path):
    TASK.write(tmp_path)
    words = (tmp_path / "words").read_text().split()
    for side in ("source", "target"):
        rows = [line.split() for line in (tmp_path / f"text.{side}").read_text().splitlines()]
        assert [[int(word[1:]) for word in row] for row in rows] == LONG
        assert {word for row in rows for word in row} <= set(words)
    assert TrainingTask.read(tmp_path) == TASK
    assert len(words) == len(set(words)) == VOCABULARY - 3


@pytest.mark.parametrize("name", PROGRAMS)
def test_settings_have_the_shape_of_the_model(name: str, tmp_path: Path):
    command = PROGRAMS[name].settings(replace(TASK, model=replace(MODEL, d_model=48)), tmp_path)
    files = [json.loads(file.read_text()) for file in tmp_path.glob("*.yaml")]
    said = json.dumps(files or command)
    for number in (48, MODEL.feed_forward.d_ff, MODEL.encoder_layers, MODEL.attention.heads, CPU_TOKENS):
        assert re.search(rf"\b{number}\b", said), number


COUNTER = """
import os, time
for number in range(10**6):
    with open("draft", "w") as draft:
        draft.write(str(number))
    os.replace("draft", "count")  # a stop may come at any time
    print("tokens", 10, flush=True)
    time.sleep(0.002)
"""


def run_python(script: str, folder: Path) -> TrainerProcess:
    return TrainerProcess("brief", [sys.executable, "-c", script], dict(os.environ), folder)


def test_process_works_in_its_turn_and_not_between(tmp_path: Path):
    trainer = run_python(COUNTER, tmp_path)
    try:
        tokens = trainer.advance(0.2)
        assert tokens >= 100
        time.sleep(0.05)  # a stop takes a moment to arrive
        before = (tmp_path / "count").read_text()
        time.sleep(0.2)
        assert (tmp_path / "count").read_text() == before
        assert 10 * int(before) <= tokens + 100  # all work was counted
        assert trainer.advance(0.0) == 10  # an update is never cut
        assert int((tmp_path / "count").read_text()) > int(before)
        assert 5e6 < trainer.peak_memory() < 1e9
    finally:
        trainer.process.kill()
        trainer.process.communicate()


@pytest.mark.parametrize(
    ("script", "limit", "says"),
    [
        ("print('no such flag')", 60.0, r"^brief ended: no such flag$"),
        ("import time; time.sleep(60)", 0.3, r"^brief was killed"),
    ],
    ids=["ends", "hangs"],
)
def test_process_that_ends_or_hangs_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, limit: float, says: str
):
    monkeypatch.setattr(trainers, "LIMIT", limit)
    trainer = run_python(script, tmp_path)
    with pytest.raises(DragomanError, match=says):
        trainer.advance(0.0)
    assert (trainer.process.wait() == 0) == (limit == 60.0)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], Path]:
    """What writes a program of a toolkit that runs a script and leaves its process id in the file that is returned."""
    monkeypatch.setattr(trainers, "PEERS", tmp_path / "peers")

    def write(toolkit: str, command: str, script: str) -> Path:
        file, pid = tmp_path / "peers" / toolkit / "bin" / command, tmp_path / f"{toolkit}.pid"
        file.parent.mkdir(parents=True)
        file.write_text(
            f"#!{sys.executable}\nimport os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\n{script}\n"
        )
        file.chmod(0o755)
        return pid

    return write


def talk(toolkit: str, ready: str, times: str = "10**9") -> str:
    line = LOGS[toolkit][0]
    return f"print({ready!r}, flush=True)\nfor _ in range({times}): print({line!r}, flush=True); time.sleep(0.01)"


@pytest.mark.parametrize(("number", "raises"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_suspended_processes_are_ended_with_the_benchmark(number: int, raises: type, install, tmp_path: Path):
    before = signal.getsignal(signal.SIGTERM)
    files = [install("marian", "pymarian", talk("marian", "Training started"))]
    files += [install("joeynmt", "python", talk("joeynmt", "INFO - EPOCH 1"))]
    suspended = threading.Event()

    def end() -> None:
        for _ in range(300):
            states = [
                (Path("/proc") / file.read_text() / "status").read_text()
                for file in files
                if file.exists() and file.read_text()
            ]
            if len(states) == len(files) and any("\nState:\tT" in state for state in states):
                suspended.set()
                break
            time.sleep(0.1)
        os.kill(os.getpid(), number)

    threading.Thread(target=end).start()
    with pytest.raises(raises):
        training.measure(TASK, ["marian", "joeynmt"], 10**6, 0.05, [])
    assert suspended.is_set()  # the control
    assert not any((Path("/proc") / file.read_text()).exists() for file in files)
    assert signal.getsignal(signal.SIGTERM) == before


def test_missing_program_is_an_error_that_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trainers, "PEERS", tmp_path / "peers")
    with pytest.raises(DragomanError, match="make peers"), start_trainer("marian", "", TASK, tmp_path):
        pass


@pytest.mark.parametrize("fast", ["flash", "math"])
def test_fastest_kind_is_chosen(fast: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def plain(module: str, name: str, kind: str, folder: str) -> list[str]:
        pause = 0.001 if kind == fast else 0.05
        script = f"import time\nprint('ready', flush=True)\nwhile 1: print('tokens 1', flush=True); time.sleep({pause})"
        return [sys.executable, "-c", script]

    monkeypatch.setattr(trainers, "plain_command", plain)
    monkeypatch.setattr(training, "TRIAL", 0.2)
    assert training.fastest_kind("torch", TASK, tmp_path) == fast


# The tables


def test_ratios_are_those_of_the_best_to_the_best():
    def row(**rates: float) -> dict[str, Speed]:
        return {name: Speed(rate / 2, Contender(name, int, [rate]), 10**6) for name, rate in rates.items()}

    rows = {("tiny", "float32"): row(dragoman=30, marian=20), ("tiny", "bfloat16"): row(dragoman=20, eole=10)}
    assert training.ratios(rows) == ["1.50", "1.50"]
    assert [cells[-2] for cells in training.cells_of(rows["tiny", "bfloat16"])] == ["–", "2.00"]
    assert training.ratios({("tiny", "float32"): row(dragoman=30)}) == ["–", "–"]


@pytest.mark.slow
def test_trainers_have_separate_processes_and_peers_lack_our_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, install
):
    """OpenMP prints which settings it has read, and Python what it imports.

    Marian fails in its first turn, and the others go on.
    """
    printed, environments = defaultdict(list), {}
    original = TrainerProcess.run_until

    def listen(self: TrainerProcess, is_over, seconds: float) -> None:
        environments[self.name] = (Path("/proc") / str(self.process.pid) / "environ").read_text()
        original(self, lambda line: printed[self.name, self.process.pid].append(line) or is_over(line), seconds)

    install("marian", "pymarian", talk("marian", "Training started", times="3") + "\nprint('out of luck')")
    monkeypatch.setattr(TrainerProcess, "run_until", listen)
    monkeypatch.setattr(training, "RANDOM_PAIRS", 300)
    monkeypatch.setitem(training.SHAPES, "tiny", Shape(MODEL, VOCABULARY))
    monkeypatch.setitem(trainers.KINDS["cpu"], "torch", ("math",))
    monkeypatch.setattr(training, "profile_ours", lambda task, folder: profile_task(task))
    monkeypatch.setattr(training, "best_precision", lambda device: "float32")  # one is enough here
    monkeypatch.setenv("OMP_DISPLAY_ENV", "VERBOSE")
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "16")
    text = training.benchmark(1, 2, 0.2, ["tiny"], None, ["marian", "torch"], "auto")

    logs = {name: "\n".join(lines) for (name, _), lines in printed.items()}
    assert re.findall(r"GOMP_SPINCOUNT = '(\d+)'", logs[OURS] + logs["torch"]) == [str(SPINS), "300000"]
    # The modules that set what dragoman needs, and the control that what is imported is seen.
    for module in ("dragoman.training.distributed", "dragoman.training.memory"):
        assert [name for name, log in logs.items() if f" {module}\n" in log] == [OURS]
    assert all(" dragoman.model.transformer\n" in logs[name] for name in (OURS, "torch"))
    assert len({pid for _, pid in printed} | {os.getpid()}) == 1 + 3
    assert [name for name, text in environments.items() if "LRU_CACHE_CAPACITY" in text] == [OURS]
    assert "- Marian is left out: marian ended: out of luck." in text
    tables = [[line.split(" | ") for line in part.splitlines() if line[:1] == "|"] for part in text.split("\n\n")]
    speeds, best, products, parts = [table for table in tables if table]
    assert [len(table) - 2 for table in (speeds, best, products, parts)] == [2, 1, 1, 1]
    assert {row[2] for row in speeds[2:]} == {NAMES[OURS], NAMES["torch"]}
    for row in speeds[2:]:
        assert all(float(row[i].split()[0].replace(",", "")) > 0 for i in (3, 4))
    assert all(len(row) == len(table[0]) for table in (speeds, best, products, parts) for row in table)


def test_machine_is_named_by_what_matters_to_matmuls(monkeypatch: pytest.MonkeyPatch):
    for has, named in (({"avx2": True, "amx_bf16": False}, " with AVX2, "), ({"avx512_vnni": True}, " with VNNI, ")):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda has=has: has)
        assert named in describe_machine()
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    assert " with " not in describe_machine().split(" cores")[0]


def test_translations_come_in_the_order_of_their_texts(tokenizer: Tokenizer, pairs, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("transformers")
    torch.manual_seed(1)
    model = MarianMT(TINY, len(tokenizer)).eval()
    monkeypatch.setattr(train_marianmt, "SENTENCES", 1)
    monkeypatch.setattr(train_marianmt, "MAX_OUTPUT", 70)
    texts = tokenizer.encode_all([pairs[0][0], pairs[1][0][:8], pairs[2][0] + pairs[3][0]])
    found = train_marianmt.translate(model, texts)
    assert found == [train_marianmt.translate(model, [text])[0] for text in texts]
    assert len(set(map(tuple, found))) == 3


@pytest.mark.parametrize("ema", [0.0, 0.5])
def test_marianmt_has_the_schedule_and_the_average_of_the_recipe(ema: float, monkeypatch: pytest.MonkeyPatch):
    """Each step adds 1 to all weights here, and takes a second."""
    pytest.importorskip("transformers")
    rates, clock = [], itertools.count()

    def adding_step(model: torch.nn.Module, dtype: torch.dtype, rate: Callable[[], float]):
        def step(batch: Batch) -> int:
            rates.append(rate())
            torch._foreach_add_(list(model.parameters()), 1.0)
            return batch.tokens

        with torch.no_grad():
            torch._foreach_zero_(list(model.parameters()))
        return torch.no_grad()(step)

    monkeypatch.setattr(train_marianmt, "padded_step", adding_step)
    monkeypatch.setattr(train_marianmt, "translate", lambda model, texts: next(model.parameters())[5, 0].item())
    monkeypatch.setattr(train_marianmt, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    settings = TrainingConfig(schedule="inverse-sqrt", learning_rate=0.01, warmup=4, ema=ema, minutes=0.2)
    steps, tokens, weight = train_marianmt.train_marianmt(TASK, settings, [])
    assert steps == len(rates) == 11
    assert tokens == 11 * Batch.from_pairs(LONG, LONG).tokens
    assert rates == [learning_rate(number, MODEL.d_model, settings) for number in range(1, 12)]
    average = 0.0
    for number in range(1, 12):
        kept = min(ema, number / (10 + number))
        average = kept * average + (1 - kept) * number
    assert weight == pytest.approx(average)


@pytest.mark.slow
def test_quality_compares_three_models(tmp_path: Path, pairs, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("transformers")
    from benchmarks import quality

    train, test = write_tsv(tmp_path / "train.tsv", pairs[:180]), write_tsv(tmp_path / "test.tsv", pairs[180:])
    recipe = tmp_path / "mine.toml"
    recipe.write_text('preset = "tiny"\nvocabulary = 400\n[model]\ndropout = 0.0\n')

    def table(out: str, dev: str = test, minutes: float = 0.05, **chosen: tuple[object, ...]) -> list[list[str]]:
        text = quality.benchmark(train, dev, test, minutes, "base", str(recipe), str(tmp_path / out), 1, **chosen)
        return [line[2:-2].split(" | ") for line in text.splitlines() if line[:1] == "|"][2:]

    assert [row[0] for row in table("runs")] == ["dragoman, mine", "dragoman, lstm", "HF MarianMT, same shape"]
    runs = [read_toml(tmp_path / "runs/seed-1" / name / "config.toml") for name in ("mine", "lstm")]
    assert [run["preset"] for run in runs] == ["tiny", "lstm"]
    assert all(run["training"]["device"] == "cpu" for run in runs)  # where other toolkits train
    assert all(run["vocabulary"] == 400 and run["model"]["dropout"] == 0 for run in runs)
    with pytest.raises(DragomanError, match=r"nothing\.tsv"):
        table("other", dev=str(tmp_path / "nothing.tsv"))
    with pytest.raises(UsageError, match=r"other.*not there: add dragoman to --models, or start that run first"):
        table("other", models=("marianmt",))
    assert not (tmp_path / "other").exists()
    # Seeds 1 and 2: both runs are there, seed 1 from before; each score stands beside the mean.
    (row,) = table("runs", models=("dragoman",), seeds=(1, 2))
    assert read_toml(tmp_path / "runs/seed-2/mine/config.toml")["training"]["seed"] == 2
    for cell in row[3:]:
        average, first, second = map(float, re.findall(r"[\d.]+", cell))
        assert average == pytest.approx((first + second) / 2, abs=0.11)
    # MarianMT needs no more than the run that has begun, and trains with its seed.
    assert [row[0] for row in table("runs", models=("marianmt",), seeds=(2,))] == ["HF MarianMT, same shape"]
    # For as long as it is asked for, with each multiple of the run's rate, which has a row of its own.
    trained: list[TrainingConfig] = []

    def never_trains(task: TrainingTask, settings: TrainingConfig, texts: Sequence[Ids], folder: Path) -> Trained:
        trained.append(settings)
        return Trained(1, 1, list(texts))

    monkeypatch.setattr(quality, "train_marianmt", never_trains)
    rows = table("runs", models=("marianmt",), seeds=(2,), minutes=0.1, peer_rates=(1.0, 0.25))
    assert [row[0] for row in rows] == ["HF MarianMT, same shape", "HF MarianMT, same shape, 0.25 times the rate"]
    assert [settings.learning_rate for settings in trained] == [1.0, 0.25]
    assert [settings.minutes for settings in trained] == [0.1, 0.1]
    with pytest.raises(UsageError, match="peer rates must be above 0"):
        table("runs", models=("marianmt",), peer_rates=(1.0, 0.0))


def test_marianmt_takes_the_seed_of_the_run(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr(train_marianmt, "translate", lambda model, texts: next(model.parameters()).clone())
    first, again, other = (
        train_marianmt.train_marianmt(TASK, TrainingConfig(minutes=None, seed=seed), []).translations
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    many = replace(TASK, sources=[[5]] * 500, targets=[[5] * (n % 20 + 1) for n in range(500)])
    first, again, other = (next(grouped_batches(many, seed)).target for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert first.shape != other.shape or not torch.equal(first, other)


# Other toolkits, with our settings

SETTINGS = TrainingConfig(
    schedule="inverse-sqrt",
    learning_rate=0.003,
    warmup=64,
    label_smoothing=0.25,
    clip=0.75,
    ema=0.875,
    seed=4321,
)
ELSEWHERE = {  # the names of warm-up, label smoothing, clipping, the average and the seed
    "marian": ("lr-warmup", "label-smoothing", "clip-norm", "exponential-smoothing", "seed"),
    "joeynmt": ("learning_rate_warmup", "label_smoothing", "clip_grad_norm", "", "random_seed"),
    "eole": ("warmup_steps", "label_smoothing", "max_grad_norm", "average_decay", "seed"),
}


def settings_of(name: str, task: TrainingTask, folder: Path) -> dict[str, Any]:
    """Return what a toolkit is told on its command line, or in its file at the top and under 'training'."""
    words = PROGRAMS[name].settings(task, folder)
    if name == "marian":
        flags = [[value_of(word) for word in flag.split()] for flag in " ".join(words).split("--")[1:]]
        return {str(flag): values[0] if len(values) == 1 else values for flag, *values in flags}
    settings = json.loads((folder / f"{name}.yaml").read_text())
    return settings | settings["training"]


def value_of(word: str) -> Any:
    return json.loads(word) if re.fullmatch(r"[\d.e-]*\d", word) else word


def rate_at(name: str, step: int, told: dict[str, Any]) -> float:
    """Return the learning rate at a step as the toolkit computes it from its settings."""
    if name == "marian":
        assert told["lr-decay-inv-sqrt"] == told["lr-warmup"]
        return told["learn-rate"] * min(1.0, step / told["lr-warmup"], (told["lr-warmup"] / step) ** 0.5)
    if name == "joeynmt":
        assert told["scheduling"] == "warmupinversesquareroot"
        warmup = told["learning_rate_warmup"]
        return told["learning_rate"] * (step / warmup if step < warmup else (warmup / step) ** 0.5)
    assert told["decay_method"] == "noam"
    return told["learning_rate"] * MODEL.d_model**-0.5 * min(step**-0.5, step * told["warmup_steps"] ** -1.5)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("schedule", train_programs.SCHEDULES)
def test_programs_get_the_settings_of_the_run(schedule: Literal["paper", "inverse-sqrt"], name: str, tmp_path: Path):
    settings = replace(SETTINGS, schedule=schedule)
    told = settings_of(name, train_programs.with_settings(TASK, settings), tmp_path)
    values = [told.get(key) for key in ELSEWHERE[name]]
    assert values == [64, 0.25, 0.75, None if name == "joeynmt" else 0.125, 4321]
    for step in (1, 30, 64, 65, 1000):
        assert rate_at(name, step, told) == pytest.approx(learning_rate(step, MODEL.d_model, settings))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_get_none_of_them_where_speed_is_measured(name: str, tmp_path: Path):
    told = settings_of(name, TASK, tmp_path)
    assert told["learn-rate" if name == "marian" else "learning_rate"] == RATE
    values = [told.get(key) for key in ELSEWHERE[name]]
    assert values == [100 if name == "joeynmt" else None, 0.1, 1.0, None, None]
    assert not {"lr-decay-inv-sqrt", "decay_method", "normalize-gradient"} & told.keys()


def test_schedule_that_toolkits_lack_is_refused_by_name():
    with pytest.raises(UsageError, match=r"cosine.*paper or inverse-sqrt"):
        train_programs.with_settings(TASK, replace(SETTINGS, schedule="cosine", max_steps=100))


def test_toolkit_that_is_not_there_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install):
    from benchmarks.quality import how_to_install

    install("eole", "python", "")
    found = [how_to_install(name) for name in ("marian", "joeynmt", "eole", "dragoman", "lstm")]
    assert found == ["`make peers` installs it"] * 2 + [""] * 3


SAVER = """
import signal, time
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
while not ended:
    print("tokens", 10, flush=True)
    time.sleep(0.002)
open("saved", "w").close()
"""


def test_suspended_process_saves_and_ends(tmp_path: Path):
    trainer = run_python(SAVER, tmp_path)
    try:
        assert trainer.advance(0.1) == 10 * trainer.updates > 0
        assert not (tmp_path / "saved").exists()
        trainer.save_and_end()
        assert (tmp_path / "saved").exists()
        assert trainer.process.returncode == 0
    finally:
        trainer.process.kill()
        trainer.process.communicate()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (SAVER.replace("not ended", "True"), "brief does not end"),
        (SAVER + "print('disk full')\nraise SystemExit(1)", "brief does not save its weights: disk full"),
    ],
    ids=["does not end", "fails"],
)
def test_process_that_does_not_save_is_an_error(
    script: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    trainer = run_python(script, tmp_path)
    try:
        trainer.advance(0.1)
        monkeypatch.setattr(trainers, "LIMIT", 0.3 if "end" in says else 60.0)
        with pytest.raises(DragomanError, match=f"^{says}$"):
            trainer.save_and_end()
    finally:
        trainer.process.kill()
        trainer.process.communicate()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("open('translations', 'w').write('w5\\n')", "marian has translated 2 texts to 1"),
        ("print('no'); print('such model'); raise SystemExit(3)", "marian does not translate: such model"),
        ("open('translations', 'w').write('w5 </s> w17\\n\\n')", None),
    ],
    ids=["too few", "fails", "as many"],
)
def test_toolkit_must_translate_each_text(script: str, says: str | None, install, tmp_path: Path):
    install("marian", "pymarian", script)
    if says:
        with pytest.raises(DragomanError, match=says):
            train_programs.translate("marian", TASK, [[5], [6]], tmp_path)
    else:
        assert train_programs.translate("marian", TASK, [[5], [6]], tmp_path) == [[5, 17], []]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_toolkit_learns_to_copy(name: str, tmp_path: Path):
    """Twelve words; the control is a toolkit that has had a single update."""
    if not (trainers.PEERS / name).exists():
        pytest.skip(f"{NAMES[name]} is not installed: make peers")
    random = np.random.default_rng(1)
    sentences = [random.integers(3, 15, random.integers(2, 7)).tolist() for _ in range(2050)]
    texts, sentences = sentences[:50], sentences[50:]
    model = replace(TINY, dropout=0.0)
    task = TrainingTask(model, 15, 512, threads=1, sources=sentences, targets=sentences)
    shares = []
    for minutes in (1e-6, 0.5):
        folder = tmp_path / str(minutes)
        folder.mkdir()
        steps, tokens, found = train_programs.train_program(
            name, task, replace(SETTINGS, minutes=minutes), texts, folder
        )
        assert len(found) == len(texts)
        assert 256 * steps < tokens < 600 * steps  # each fills its batches in its own way
        words = [both for pair in zip(texts, found, strict=True) for both in itertools.zip_longest(*pair)]
        shares.append(sum(word == copy for word, copy in words) / len(words))
    assert shares[0] < 0.3
    assert shares[1] > 0.6
