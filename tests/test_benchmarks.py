"""Benchmarks compare what can be compared: the same model, the same sentences, counted in the same way."""

import itertools
import json
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import TINY, write_tsv
from torch.nn.attention import SDPBackend
from torch.utils.flop_counter import FlopCounterMode

from dragoman.benchmarks import training
from dragoman.benchmarks.peers import trainers
from dragoman.benchmarks.peers.pytorch import RATE, MarianMT, TorchTransformer, padded_step, smoothed_loss
from dragoman.benchmarks.peers.trainers import PROGRAMS, TrainerProcess, TrainingTask
from dragoman.benchmarks.profile import matmul_rate, operations_per_update, time_shares
from dragoman.benchmarks.training import (
    BATCH_TOKENS,
    NAMES,
    OURS,
    OURS_PLANNED,
    Shape,
    TimedBatches,
    fastest_step,
    group_by_length,
)
from dragoman.config import read_toml
from dragoman.data.batches import Batch
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import Tokenizer
from dragoman.errors import DragomanError
from dragoman.evaluation.timing import Contender, time_in_turn
from dragoman.model import parameter_count
from dragoman.model.attention import MultiHeadAttention, explicit_attention
from dragoman.model.transformer import Transformer

VOCABULARY = 300
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


@pytest.mark.parametrize("fast", ["first", "second"])
def test_the_fastest_way_is_chosen(fast: str):
    def step(name: str):
        return lambda batch: time.sleep(0.001 if name == fast else 0.05) or batch.tokens

    assert fastest_step({name: step(name) for name in ("first", "second")}, Batch.of(SHORT, SHORT))[0] == fast


def test_groups_hold_every_pair_once_and_little_padding():
    lengths = np.random.default_rng(1).integers(1, 100, (3000, 2))
    groups = group_by_length(lengths)
    assert sorted(np.concatenate(groups).tolist()) == list(range(3000))
    assert all(lengths[group, 1].max() * len(group) <= BATCH_TOKENS for group in groups)
    # None could have taken the first pair of the next one, too.
    for group, after in itertools.pairwise(groups):
        assert lengths[[*group, after[0]], 1].max() * (len(group) + 1) > BATCH_TOKENS
    widest = [lengths[group].max() for group in groups]
    assert widest == sorted(widest)


def test_chosen_batches_are_spread_over_the_lengths():
    work = TimedBatches(Shape(MODEL, VOCABULARY, batches=5), None)
    everything = np.mean([len(ids) for ids in work.targets])
    means = [np.mean([len(work.targets[i]) for i in group]) for group in work.shared]
    assert len(work.shared) == len(work.planned) == 5
    assert means == sorted(set(means))
    assert means[0] < everything < means[-1]
    tokens = work.task(1, "float32").tokens
    assert tokens == sum(work.batch(group).tokens for group in work.shared)
    assert 0.7 * 5 * BATCH_TOKENS < tokens <= 5 * BATCH_TOKENS


def test_a_corpus_gives_its_own_sentences(tmp_path: Path, pairs: list[Pair]):
    work = TimedBatches(Shape(MODEL, 400, batches=1), write_tsv(tmp_path / "pairs.tsv", pairs))
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), suggested=400)
    sides = [[tokenizer.decode(ids) for ids in side] for side in (work.sources, work.targets)]
    assert list(zip(*sides, strict=True)) == pairs


@pytest.mark.parametrize("targets", [1, 4])
def test_operations_are_those_that_pytorch_counts(targets: int):
    """On a batch without padding; PyTorch counts the scores that the mask hides, too."""
    torch.manual_seed(1)
    model = Transformer(MODEL, VOCABULARY)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.kernel = explicit_attention
    batch = Batch.of([[5, 6, 7, 8]] * 3, [[9] * (targets - 1)] * 3)
    with FlopCounterMode(display=False) as counter:
        model(batch.source, batch.target, batch.real).sum().backward()
    hidden = 3 * 3 * MODEL.decoder_layers * 4 * MODEL.d_model * targets * (targets - 1) / 2
    assert operations_per_update(model, batch) == counter.get_total_flops() - hidden
    # Padding does not count.
    assert operations_per_update(model, Batch.of(LONG, LONG)) == sum(
        operations_per_update(model, Batch.of([ids], [ids])) for ids in LONG
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
    assert time_shares(lambda: x.log_softmax(-1))["softmax, loss"] > 0.9


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


def test_a_peer_sees_no_padding(peer: torch.nn.Module):
    peer.eval()
    batch = Batch.of(LONG, LONG)
    together = peer(batch.source, batch.target)[0, :4]
    alone = peer(*(t[:1, :4] for t in (batch.source, batch.target)))[0]
    assert torch.allclose(together, alone, atol=1e-5)
    assert not torch.allclose(alone, peer(batch.source[:1, :3], batch.target[:1, :4])[0], atol=1e-5)


def test_the_loss_of_a_peer_is_the_mean_over_real_tokens():
    batch = Batch.of(LONG, LONG)
    logits = torch.randn(*batch.labels.shape, VOCABULARY)
    log_p, labels = logits[batch.real].log_softmax(-1), batch.labels[batch.real]
    expected = -(0.9 * log_p.gather(1, labels[:, None])[:, 0] + 0.1 * log_p.mean(-1)).mean()
    assert smoothed_loss(logits, batch.labels) == pytest.approx(float(expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_peer_learns(peer: torch.nn.Module, dtype: torch.dtype):
    batch = Batch.of(LONG, LONG)

    def loss() -> float:
        peer.eval()
        value = smoothed_loss(peer(batch.source, batch.target), batch.labels).item()
        peer.train()
        return value

    before = loss()
    step = padded_step(peer, dtype, rate=lambda: 100 * RATE)
    assert {step(batch) for _ in range(20)} == {sum(len(ids) + 1 for ids in LONG)}
    assert loss() < before - 1


def test_a_peer_stands_still_at_rate_zero(peer: torch.nn.Module):
    weights = [parameter.clone() for parameter in peer.parameters()]
    padded_step(peer, kernel=SDPBackend.MATH, rate=lambda: 0.0)(Batch.of(LONG, LONG))
    assert all(torch.equal(old, new) for old, new in zip(weights, peer.parameters(), strict=True))


# Programs

TASK = TrainingTask(MODEL, VOCABULARY, LONG, LONG, BATCH_TOKENS, threads=1)
LOGS = {
    "marian": ("Ep. 1 : Up. 3 : Sen. 142 : Cost 9.316 * 2,143 @ 2,143 after 6,596 : Time 2.51s : 853.46 words/s", 2143),
    "joeynmt": ("Epoch   2, total training loss: 61.67, num. of seqs: 400, num. of tokens: 11680, 13.8638[sec]", 11680),
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


def test_programs_get_all_sentences_as_words_of_one_vocabulary(tmp_path: Path):
    TASK.write(tmp_path)
    words = (tmp_path / "words").read_text().split()
    for side in ("source", "target"):
        rows = [line.split() for line in (tmp_path / f"text.{side}").read_text().splitlines()]
        assert [[int(word[1:]) for word in row] for row in rows] == LONG
        assert {word for row in rows for word in row} <= set(words)
    assert TASK.tokens == Batch.of(LONG, LONG).tokens
    assert len(words) == len(set(words)) == VOCABULARY - 3


@pytest.mark.parametrize("name", PROGRAMS)
def test_settings_have_the_shape_of_the_model(name: str, tmp_path: Path):
    command = PROGRAMS[name].settings(replace(TASK, model=replace(MODEL, d_model=48)), tmp_path)
    files = [json.loads(file.read_text()) for file in tmp_path.glob("*.yaml")]
    said = json.dumps(files or command)
    for number in (48, MODEL.feed_forward.d_ff, MODEL.encoder_layers, MODEL.attention.heads, BATCH_TOKENS):
        assert re.search(rf"\b{number}\b", said), number


COUNTER = """
import os, time
for number in range(10**6):
    with open("draft", "w") as draft:
        draft.write(str(number))
    os.replace("draft", "count")  # a stop may come at any time
    print("done", 10, "tokens", flush=True)
    time.sleep(0.002)
"""


def test_a_program_works_in_its_turn_and_not_between(tmp_path: Path):
    trainer = TrainerProcess("counter", [sys.executable, "-c", COUNTER], tmp_path, r"done (\d+) tokens", 1)
    try:
        assert trainer.advance(95) == 100
        time.sleep(0.05)  # a stop takes a moment to arrive
        before = (tmp_path / "count").read_text()
        time.sleep(0.2)
        assert (tmp_path / "count").read_text() == before
        assert trainer.advance(30) == 30
        assert int((tmp_path / "count").read_text()) > int(before)
    finally:
        trainer.process.kill()
        trainer.process.communicate()


@pytest.mark.parametrize(
    ("script", "limit", "says"),
    [
        ("print('no such flag')", 60.0, r"^brief failed.*no such flag$"),
        ("import time; time.sleep(60)", 0.3, r"^brief failed, or was stopped"),
    ],
    ids=["ends", "hangs"],
)
def test_a_program_that_ends_or_hangs_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, limit: float, says: str
):
    monkeypatch.setattr(trainers, "LIMIT", limit)
    trainer = TrainerProcess("brief", [sys.executable, "-c", script], tmp_path, r"done (\d+)", 1)
    with pytest.raises(DragomanError, match=says):
        trainer.advance(1)
    assert (trainer.process.wait() == 0) == (limit == 60.0)


@pytest.fixture
def marian_that_only_talks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it leaves its process id."""
    monkeypatch.setattr(trainers, "PEERS", tmp_path / "peers")
    bin = tmp_path / "peers" / "marian" / "bin"
    bin.mkdir(parents=True)
    talk = f"while True: print({LOGS['marian'][0]!r}, flush=True)\n"
    (bin / "pymarian").write_text(f"#!{sys.executable}\nimport os\nopen('pid', 'w').write(str(os.getpid()))\n{talk}")
    (bin / "pymarian").chmod(0o755)
    return tmp_path / "pid"


def test_a_program_is_gone_afterwards_also_where_the_benchmark_is_ended(tmp_path: Path, marian_that_only_talks: Path):
    before = signal.getsignal(signal.SIGTERM)
    with trainers.train_in_turns("marian", TASK, tmp_path) as advance:
        assert advance() >= TASK.tokens
        process = Path("/proc") / marian_that_only_talks.read_text()
        assert process.exists()
    assert not process.exists()
    with pytest.raises(SystemExit) as end, trainers.train_in_turns("marian", TASK, tmp_path):
        signal.raise_signal(signal.SIGTERM)
    assert end.value.code == 143
    assert not (Path("/proc") / marian_that_only_talks.read_text()).exists()
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_missing_program_is_an_error_that_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trainers, "PEERS", tmp_path / "peers")
    with pytest.raises(DragomanError, match="make peers"), trainers.train_in_turns("marian", TASK, tmp_path):
        pass


# The tables


def test_ratios_are_ours_to_the_fastest_of_the_others():
    rates = {OURS: 30.0, OURS_PLANNED: 40.0, NAMES["marianmt"]: 10.0, NAMES["torch"]: 15.0, NAMES["eole"]: 20.0}
    row = {name: Contender(name, int, [rate]) for name, rate in rates.items()}
    columns = [*rates, NAMES["marian"]]
    assert training.cells_of(row, columns)[-3:] == ["–", "2.00", "2.00"]
    row.pop(NAMES["eole"])
    assert training.cells_of(row, columns)[-2:] == ["2.00", "2.67"]
    assert training.cells_of({name: row[name] for name in (OURS, OURS_PLANNED)}, [OURS])[-2:] == ["–", "–"]


def test_the_benchmark_gives_three_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(trainers, "PEERS", tmp_path)
    monkeypatch.setattr(training, "RANDOM_PAIRS", 300)
    monkeypatch.setitem(training.SHAPES, "tiny", Shape(MODEL, VOCABULARY, batches=1))
    text = training.benchmark(1, 1, ["tiny"], None, ["torch", "marian"])
    tables = [[line.split(" | ") for line in part.splitlines() if line[:1] == "|"] for part in text.split("\n\n")]
    speeds, products, parts = [table for table in tables if table]
    assert [row[1] for row in speeds[2:]] == ["float32", "bfloat16", training.BEST]
    assert len(products) == len(parts) == 2 + 2
    assert all(len(row) == len(table[0]) for table in (speeds, products, parts) for row in table)
    column = speeds[0].index(OURS)
    found = [float(row[column].split()[0].replace(",", "")) for row in speeds[2:]]
    assert found[2] == max(found[:2]) > 0
    assert "- Marian is left out: `make peers` installs it." in text


def test_translations_come_in_the_order_of_their_texts(tokenizer: Tokenizer, pairs, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("transformers")
    from dragoman.benchmarks import quality

    torch.manual_seed(1)
    model = MarianMT(TINY, len(tokenizer)).eval()
    monkeypatch.setattr(quality, "SENTENCES", 1)
    monkeypatch.setattr(quality, "MAX_TOKENS", 20)
    texts = [pairs[0][0], pairs[1][0][:8], pairs[2][0] + pairs[3][0]]
    found = quality.translate_with_marianmt(model, tokenizer, texts)
    assert found == [quality.translate_with_marianmt(model, tokenizer, [text])[0] for text in texts]
    assert len(set(found)) == 3


@pytest.mark.slow
def test_quality_compares_three_models(tmp_path: Path, pairs):
    pytest.importorskip("transformers")
    from dragoman.benchmarks import quality

    train, test = write_tsv(tmp_path / "train.tsv", pairs[:180]), write_tsv(tmp_path / "test.tsv", pairs[180:])
    recipe = tmp_path / "mine.toml"
    recipe.write_text('preset = "tiny"\nvocabulary = 400\n[model]\ndropout = 0.0\n')
    text = quality.benchmark(train, test, test, 0.05, "base", str(recipe), str(tmp_path / "runs"), 1)
    rows = [line.split(" | ")[0] for line in text.splitlines() if line[:1] == "|"][2:]
    assert rows == ["| dragoman, mine", "| dragoman, lstm", "| HF MarianMT, same shape"]
    runs = [read_toml(tmp_path / "runs" / name / "config.toml") for name in ("mine", "lstm")]
    assert [run["preset"] for run in runs] == ["tiny", "lstm"]
    assert all(run["vocabulary"] == 400 and run["model"]["dropout"] == 0 for run in runs)
    with pytest.raises(DragomanError, match=r"nothing\.tsv"):
        quality.benchmark(train, str(tmp_path / "nothing.tsv"), test, 0.05, "tiny", "", str(tmp_path / "other"), 1)
    assert not (tmp_path / "other").exists()
