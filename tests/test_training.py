"""Training: a run that was stopped, however it was stopped, goes on as if nothing had happened."""

import dataclasses
import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import TINY, TINY_RECURRENT, run_config, run_training, toy_pairs, write_tsv
from safetensors.torch import load_file, save_file

from dragoman.batches import Batch
from dragoman.config import RecurrentConfig, RunConfig, SearchConfig
from dragoman.corpus import Pair
from dragoman.errors import DragomanError, UsageError
from dragoman.evaluation import evaluate
from dragoman.folder import MANIFEST, fingerprint, read_model, verify
from dragoman.model import build
from dragoman.tokenizer import Tokenizer
from dragoman.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from dragoman.training.journal import time_left
from dragoman.training.loop import update_weights
from dragoman.training.loss import smoothed_cross_entropy
from dragoman.training.optimizer import adam, paper_rate
from dragoman.translator import Translator

Corpus = tuple[str, str]

STEPS = 12  # of a whole run here; an epoch has 3


def state(out: Path) -> str:
    """A fingerprint of all that the next step depends on: weights, moments, random state."""
    digest = hashlib.sha256()
    for name in ("model.safetensors", "state.safetensors"):
        for key, tensor in sorted(load_file(out / "last" / name).items()):
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def signed_again(folder: Path) -> None:
    files = [file for file in sorted(folder.iterdir()) if file.name != MANIFEST]
    (folder / MANIFEST).write_text(json.dumps({file.name: fingerprint(file) for file in files}))


def events(out: Path, event: str) -> list[dict[str, Any]]:
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [found for found in map(json.loads, lines) if found["event"] == event]


@dataclasses.dataclass(frozen=True)
class Whole:
    """A run that nothing interrupted."""

    out: Path
    losses: list[float]
    state: str


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, corpus: Corpus) -> Whole:
    out = tmp_path_factory.mktemp("whole") / "run"
    return Whole(out, run_training(run_config(corpus, out)).losses, state(out))


# Going on.


@pytest.mark.parametrize("stops", [[5], [4], [2, 3, 11]], ids=str)
def test_a_run_stopped_and_resumed_is_the_run_uninterrupted(
    corpus: Corpus, tmp_path: Path, whole: Whole, stops: list[int]
):
    losses: list[float] = []
    for stop in [*stops, STEPS]:
        losses += run_training(run_config(corpus, tmp_path / "run", max_steps=stop)).losses
    assert losses == whole.losses
    assert state(tmp_path / "run") == whole.state


@pytest.mark.parametrize("lost", ["random", "exp_avg"])
def test_a_run_resumed_without_all_of_its_state_is_another(corpus: Corpus, tmp_path: Path, whole: Whole, lost: str):
    """The control for the test above."""
    run_training(run_config(corpus, tmp_path / "run", max_steps=5))
    folder = (tmp_path / "run" / "last").resolve()
    tensors = load_file(folder / "state.safetensors")
    torch.manual_seed(99)
    for name in tensors:
        if name.endswith(lost):
            tensors[name] = torch.get_rng_state() if name == "random" else torch.zeros_like(tensors[name])
    save_file(tensors, folder / "state.safetensors")
    signed_again(folder)
    losses = run_training(run_config(corpus, tmp_path / "run")).losses
    assert losses != whole.losses[5:]
    assert state(tmp_path / "run") != whole.state


@contextmanager
def ctrl_c_at(call: int, times: int = 1) -> Iterator[None]:
    """Press Ctrl-C in the middle of a forward pass: before the layer norm that is number `call`."""
    calls = 0

    def hook(module: torch.nn.Module, _: object) -> None:
        nonlocal calls
        if isinstance(module, torch.nn.LayerNorm):
            calls += 1
            if call <= calls < call + times:
                signal.raise_signal(signal.SIGINT)

    handle = torch.nn.modules.module.register_module_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize("call", [1, 3, 13], ids=["first step", "inside the first step", "third step"])
def test_a_run_stopped_by_ctrl_c_and_resumed_is_the_run_uninterrupted(
    corpus: Corpus, tmp_path: Path, whole: Whole, call: int
):
    config = run_config(corpus, tmp_path / "run")
    with pytest.raises(KeyboardInterrupt), ctrl_c_at(call):
        run_training(config)
    run_training(config)
    assert state(tmp_path / "run") == whole.state


def test_a_second_ctrl_c_stops_at_once_and_leaves_the_checkpoint_before(corpus: Corpus, tmp_path: Path, whole: Whole):
    run_training(run_config(corpus, tmp_path / "run", max_steps=5))
    before = state(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt), ctrl_c_at(3, times=2):
        run_training(run_config(corpus, tmp_path / "run"))
    assert state(tmp_path / "run") == before
    run_training(run_config(corpus, tmp_path / "run"))
    assert state(tmp_path / "run") == whole.state


def test_ctrl_c_is_as_it_was_after_a_run(corpus: Corpus, tmp_path: Path):
    before = signal.getsignal(signal.SIGINT)
    run_training(run_config(corpus, tmp_path / "run", max_steps=1))
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_gives_the_same_run_and_another_seed_another(
    corpus: Corpus, tmp_path: Path, whole: Whole, seed: int
):
    torch.manual_seed(12345)  # what was drawn before must not matter
    losses = run_training(run_config(corpus, tmp_path / "run", seed=seed)).losses
    assert (losses == whole.losses) == (seed == 1)
    assert (state(tmp_path / "run") == whole.state) == (seed == 1)


def test_a_finished_run_says_so_and_changes_nothing(corpus: Corpus, whole: Whole):
    before, links = tree(whole.out / "checkpoints"), [(whole.out / name).readlink() for name in ("best", "last")]
    notebook = run_training(run_config(corpus, whole.out))
    assert notebook.returned is None
    assert notebook.losses == []
    assert notebook.said[-1].startswith("finished: all 12 steps done")
    assert tree(whole.out / "checkpoints") == before
    assert [(whole.out / name).readlink() for name in ("best", "last")] == links


# What a run refuses to go on with.


@pytest.fixture
def started(corpus: Corpus, tmp_path: Path, whole: Whole) -> RunConfig:
    """The settings of a run that has begun, in a folder of its own."""
    out = tmp_path / "run"
    shutil.copytree(whole.out, out, symlinks=True)
    config = run_config(corpus, out, max_steps=STEPS + 2)
    settings = (out / "config.toml").read_text(encoding="utf-8")
    (out / "config.toml").write_text(settings.replace(str(whole.out), str(out)), encoding="utf-8")
    return config


def with_training(config: RunConfig, **changes: Any) -> RunConfig:
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **changes))


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("training.seed", lambda c: with_training(c, seed=2)),
        ("training.batch_tokens", lambda c: with_training(c, batch_tokens=1501)),
        ("training.label_smoothing", lambda c: with_training(c, label_smoothing=0.2)),
        ("model.d_model", lambda c: dataclasses.replace(c, model=dataclasses.replace(TINY, d_model=18))),
        ("model.positions", lambda c: dataclasses.replace(c, model=dataclasses.replace(TINY, positions="rotary"))),
        ("model", lambda c: dataclasses.replace(c, model=TINY_RECURRENT)),
        ("vocabulary", lambda c: dataclasses.replace(c, vocabulary=401)),
        ("dev", lambda c: dataclasses.replace(c, dev=c.train)),
    ],
)
def test_another_setting_makes_it_another_run_and_is_named(started: RunConfig, name: str, changed: Any):
    before = tree(Path(started.out))
    with pytest.raises(UsageError, match=f"was started with {name}"):
        run_training(changed(started))
    assert tree(Path(started.out)) == before


@pytest.mark.parametrize(
    "changes", [{"epochs": 50}, {"max_steps": 13}, {"minutes": 5.0}, {"validate_every": 7}, {"patience": 3}], ids=str
)
def test_a_limit_may_change_when_a_run_goes_on(started: RunConfig, changes: dict[str, Any]):
    notebook = run_training(with_training(started, **changes))
    assert any(text.startswith("going on from step 12") for text in notebook.said)
    assert len(notebook.losses) == changes.get("max_steps", 14) - STEPS


@pytest.mark.parametrize("change", ["a word", "the order", "a pair less"])
def test_a_changed_corpus_is_refused(corpus: Corpus, tmp_path: Path, pairs: list[Pair], change: str):
    path = write_tsv(tmp_path / "train.tsv", pairs[:190])
    config = run_config((path, corpus[1]), tmp_path / "run", max_steps=1)
    run_training(config)
    other = {
        "a word": [("The dog sees 2 red dogs.", pairs[0][1]), *pairs[1:190]],
        "the order": [pairs[1], pairs[0], *pairs[2:190]],
        "a pair less": pairs[:189],
    }
    write_tsv(Path(path), other[change])
    with pytest.raises(DragomanError, match="not the text that") as error:
        run_training(with_training(config, max_steps=2))
    assert path in str(error.value)
    write_tsv(Path(path), pairs[:190])  # the control: with the text back, it goes on
    assert len(run_training(with_training(config, max_steps=2)).losses) == 1


def test_a_checkpoint_of_another_model_does_not_fit(whole: Whole, tokenizer: Tokenizer):
    model = build(dataclasses.replace(TINY, d_model=18), 400)
    with pytest.raises(DragomanError, match="does not fit the run"):
        load_checkpoint(whole.out / "last", model, adam(model))


@pytest.mark.parametrize("file", ["state.json", "state.safetensors", "model.safetensors"])
def test_a_damaged_checkpoint_is_refused_by_name(started: RunConfig, file: str):
    path = Path(started.out) / "last" / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DragomanError, match="damaged") as error:
        run_training(started)
    assert file in str(error.value)


# What a run leaves behind.


def test_each_validation_is_in_the_metrics(whole: Whole):
    found = events(whole.out, "validation")
    assert [event["step"] for event in found] == [6, 12]
    assert all(0 <= event["bleu"] <= 100 and event["loss"] > 0 for event in found)
    assert all("version:" in event["signature"] for event in found)


def test_each_validation_leaves_its_samples(whole: Whole):
    texts = [path.read_text(encoding="utf-8") for path in sorted((whole.out / "samples").iterdir())]
    assert len(texts) == 2
    source, reference = toy_pairs()[190]
    assert all(source in text and reference in text for text in texts)
    assert ["before" in text for text in texts] == [False, True]


def test_the_bleu_of_a_validation_is_that_of_its_translations(corpus: Corpus, trained: Path, pairs: list[Pair]):
    translator = Translator.load(trained / "last", SearchConfig(beam=1))
    sources, references = zip(*pairs[190:], strict=True)
    translations = [translation.text for translation in translator.translate(sources)]
    recorded = events(trained, "validation")[-1]["bleu"]
    assert evaluate(translations, references).bleu.value == recorded > 0
    assert f"BLEU {recorded:.1f}" in (trained / "last" / "card.md").read_text(encoding="utf-8")
    # The control: the translations of other sentences have another score.
    assert evaluate(translations[::-1], references).bleu.value != recorded


def test_the_loss_of_a_validation_is_the_mean_over_target_tokens(trained: Path, pairs: list[Pair]):
    model, tokenizer = read_model(trained / "last")
    total, tokens = 0.0, 0
    for source, target in pairs[190:]:
        batch = Batch.of([tokenizer.encode(source)], [tokenizer.encode(target)])
        with torch.inference_mode():
            total += F.cross_entropy(model(batch.source, batch.target)[0], batch.labels[0], reduction="sum").item()
        tokens += batch.labels.numel()
    assert events(trained, "validation")[-1]["loss"] == pytest.approx(total / tokens, rel=1e-5)


def test_pairs_that_are_too_long_are_left_out_and_told(corpus: Corpus, tmp_path: Path, pairs: list[Pair]):
    long = "The dog sees 2 red cats. " * 40
    some = [*pairs[:100], (long, "개"), *pairs[100:180], ("dog", long), *pairs[180:190]]
    path = write_tsv(tmp_path / "train.tsv", some)
    notebook = run_training(run_config((path, corpus[1]), tmp_path / "run", max_steps=1, max_tokens=100))
    assert f"{path}: left out 2 pairs longer than 100 tokens (lines 101, 182)" in notebook.said
    assert any(text.startswith("190 pairs, ") for text in notebook.said)


def test_a_corpus_of_pairs_that_are_all_too_long_is_refused(corpus: Corpus, tmp_path: Path):
    with pytest.raises(DragomanError, match="every pair is longer than 3 tokens"):
        run_training(run_config(corpus, tmp_path / "run", max_tokens=3))


def test_a_run_that_cannot_start_leaves_no_folder(corpus: Corpus, tmp_path: Path):
    with pytest.raises(DragomanError):
        run_training(run_config(("missing.tsv", corpus[1]), tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_the_links_lead_to_whole_models_wherever_the_run_is_moved(trained: Path, tmp_path: Path):
    moved = shutil.copytree(trained, tmp_path / "moved", symlinks=True)
    for link in ("best", "last"):
        assert not (moved / link).readlink().is_absolute()
        verify(moved / link)
        read_model(moved / link)


def test_only_the_best_and_the_last_checkpoint_are_kept(tmp_path: Path, tokenizer: Tokenizer):
    model = build(TINY, len(tokenizer))
    for step, best in ((1, 1), (2, 1), (3, 1), (4, 4), (5, 4)):
        save_checkpoint(tmp_path, model, tokenizer, adam(model), Progress(step=step, best_step=best), "")
        kept = {f"step-{number:08d}" for number in (best, step)}
        assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == kept
        assert [(tmp_path / link).resolve().name for link in ("best", "last")] == sorted(kept)[:1] + sorted(kept)[-1:]


def test_a_run_ends_after_its_minutes(corpus: Corpus, tmp_path: Path):
    notebook = run_training(run_config(corpus, tmp_path / "run", max_steps=None, minutes=1e-9))
    assert len(notebook.losses) == 1
    assert "minutes are over" in notebook.said[-1]


def test_a_run_ends_after_its_epochs(corpus: Corpus, tmp_path: Path):
    notebook = run_training(run_config(corpus, tmp_path / "run", max_steps=None, epochs=1))
    assert "all 1 epochs done" in notebook.said[-1]
    assert 2 <= len(notebook.losses) <= 5


def test_a_run_that_learns_nothing_ends_when_patience_does(corpus: Corpus, tmp_path: Path):
    still = {"learning_rate": 1e-30, "validate_every": 1, "patience": 2}
    notebook = run_training(run_config(corpus, tmp_path / "run", **still))
    assert len(notebook.losses) == 3
    assert "validation has not improved for 2 checks" in notebook.said[-1]


def test_a_run_that_leaves_the_numbers_stops_and_says_so(corpus: Corpus, tmp_path: Path):
    """And no checkpoint of it is called the best."""
    with pytest.raises(DragomanError, match=r"loss|gradient"):
        run_training(run_config(corpus, tmp_path / "run", learning_rate=1e30))
    if (tmp_path / "run" / "best").exists():
        assert all(weights.isfinite().all() for weights in read_model(tmp_path / "run")[0].parameters())


def test_a_recurrent_model_is_trained_and_resumed_the_same_way(corpus: Corpus, tmp_path: Path):
    losses, states = [], []
    for name, stops in (("whole", [8]), ("parts", [3, 8])):
        config = dataclasses.replace(run_config(corpus, tmp_path / name), model=TINY_RECURRENT)
        losses.append([loss for stop in stops for loss in run_training(with_training(config, max_steps=stop)).losses])
        states.append(state(tmp_path / name))
        assert isinstance(read_model(tmp_path / name)[0].config, RecurrentConfig)
    assert losses[0] == losses[1]
    assert states[0] == states[1]


# A step.


def pairs_as_batch(tokenizer: Tokenizer, pairs: list[Pair]) -> Batch:
    return Batch.of(
        tokenizer.encode_all([source for source, _ in pairs]), tokenizer.encode_all([target for _, target in pairs])
    )


@pytest.mark.parametrize("config", [TINY, TINY_RECURRENT], ids=["transformer", "recurrent"])
def test_one_batch_of_all_has_the_gradient_of_its_parts_together(tokenizer: Tokenizer, pairs: list[Pair], config: Any):
    torch.manual_seed(0)
    model = build(config, len(tokenizer)).double().eval()
    some = sorted(pairs[:20], key=lambda pair: len(pair[1]))

    def gradient(parts: list[list[Pair]], tokens: list[int]) -> torch.Tensor:
        model.zero_grad()
        for part, count in zip(parts, tokens, strict=True):
            batch = pairs_as_batch(tokenizer, part)
            logits = model(batch.source, batch.target, batch.real)
            (smoothed_cross_entropy(logits, batch.labels[batch.real], 0.1) / count).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    parts = [some[:5], some[5:]]
    tokens = [int(pairs_as_batch(tokenizer, part).real.sum()) for part in parts]
    together = gradient([some], [sum(tokens)])
    torch.testing.assert_close(gradient(parts, [sum(tokens)] * 2), together, rtol=1e-10, atol=1e-12)
    # The control: a mean of the means of batches of different size is something else.
    means = gradient(parts, [2 * count for count in tokens])
    assert not torch.allclose(means, together, rtol=1e-3, atol=1e-5)


def test_a_step_lowers_the_loss_of_its_batch(tokenizer: Tokenizer, pairs: list[Pair], corpus: Corpus, tmp_path: Path):
    torch.manual_seed(0)
    model = build(dataclasses.replace(TINY, dropout=0.0), len(tokenizer))
    optimizer, settings = adam(model), run_config(corpus, tmp_path).training
    batch = pairs_as_batch(tokenizer, pairs[:20])
    losses = [update_weights(model, optimizer, batch, 1e-3, settings)[0] for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 5


def test_a_gradient_longer_than_the_limit_is_shortened_to_it(tokenizer: Tokenizer, pairs: list[Pair], corpus: Corpus):
    seen = []
    for clip in (0.0, 0.01):
        torch.manual_seed(0)
        model = build(dataclasses.replace(TINY, dropout=0.0), len(tokenizer))
        settings = run_config(corpus, Path(), clip=clip).training
        plain = torch.optim.SGD(model.parameters(), lr=0.0)  # moves by the gradient itself
        before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
        norm = update_weights(model, plain, pairs_as_batch(tokenizer, pairs[:9]), 1.0, settings)[2]  # type: ignore[arg-type]
        moved = (torch.cat([p.detach().flatten() for p in model.parameters()]) - before).norm().item()
        seen.append((norm, moved))
    assert seen[0][0] == seen[1][0] > 0.01
    assert seen[0][1] == pytest.approx(seen[0][0], rel=1e-3)
    assert seen[1][1] == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("step", [1, 100, 4000, 4001, 100_000])
def test_the_learning_rate_is_that_of_the_paper(step: int):
    """Equation 3, in two pieces: a line up to the warm-up, then one over the square root."""
    expected = step / 4000**1.5 if step <= 4000 else 1 / math.sqrt(step)
    assert paper_rate(step, 512, 4000) == pytest.approx(expected / math.sqrt(512), rel=1e-12)


# Kills. One process is started; it forks children that save, and kills them.

KILLS = """
import json, os, random, shutil, signal, sys, time
from pathlib import Path

import torch

torch.set_num_threads(1)

from conftest import TINY, toy_pairs
from dragoman.errors import DragomanError
from dragoman.folder import fingerprint, verify, write_model
from dragoman.model import build
from dragoman.tokenizer import Tokenizer
from dragoman.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from dragoman.training.optimizer import adam

tokenizer = Tokenizer.train([text for pair in toy_pairs() for text in pair], 400)
model = build(TINY, 400)
optimizer = adam(model)
model(torch.tensor([[3, 2]]), torch.tensor([[1, 3]])).sum().backward()
optimizer.step()


def save(run, step):
    with torch.no_grad():
        model.output.weight.fill_(step)
    save_checkpoint(run, model, tokenizer, optimizer, Progress(step=step, best_step=step), "")


def save_in_place(run, step):
    with torch.no_grad():
        model.output.weight.fill_(step)
    (run / "last").mkdir(parents=True, exist_ok=True)
    write_model(run / "last", model, tokenizer, "")
    manifest = {f.name: fingerprint(f) for f in (run / "last").iterdir() if f.name != "manifest.json"}
    (run / "last" / "manifest.json").write_text(json.dumps(manifest))


def whole(run, links):
    try:
        for link in links:
            verify(run / link)
            if links != ["last"]:
                progress = load_checkpoint(run / link, model, optimizer)
                assert (model.output.weight == progress.step).all(), "weights of another step"
        return True
    except DragomanError as error:
        print(error, file=sys.stderr)
        return False


def forked(work):
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    return child


def killed_at_random(run, save):
    def work():
        step = 2
        while True:
            save(run, step)
            step += 1

    child = forked(work)
    time.sleep(random.uniform(0.02, 0.15))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def killed_before(run, step, at):
    # Before the operation on the file system that is number `at`. False: there are not as many.
    count = 0

    def watch(event, arguments):
        nonlocal count
        if event in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.symlink", "shutil.rmtree"):
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)

    def work():
        sys.addaudithook(watch)
        save(run, step)

    return os.waitstatus_to_exitcode(os.waitpid(forked(work), 0)[1]) != 0


random.seed(1)
for how, save_it, links in [
    ("random", save, ["last", "best"]),
    ("next step", save, ["last", "best"]),
    ("same step", save, ["last", "best"]),
    ("in place", save_in_place, ["last"]),
]:
    counts = {True: 0, False: 0}
    first = Path(sys.argv[1]) / how
    save_it(first, 1)
    for at in range(1, 1000):
        run = Path(sys.argv[1]) / "run"
        shutil.copytree(first, run, symlinks=True)
        if how in ("random", "in place"):
            more = at <= 10 and killed_at_random(run, save_it)
        else:
            more = killed_before(run, 2 if how == "next step" else 1, at)
        if not more:
            shutil.rmtree(run)
            break
        counts[whole(run, links)] += 1
        if save_it is save and at % 4 == 0:  # and what was left half done is swept away by the next save
            save(run, 1000)
            assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00001000"]
            assert whole(run, links)
        shutil.rmtree(run)
    print(how, counts[True], counts[False], sep=":")
"""


@pytest.fixture(scope="module")
def kills(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, int]]:
    """For each way to save and to kill: how often whole checkpoints were left, and how often not."""
    path = os.pathsep.join([str(Path(__file__).parents[1] / "src"), str(Path(__file__).parent)])
    ran = subprocess.run(
        [sys.executable, "-c", KILLS, str(tmp_path_factory.mktemp("kills"))],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    rows = [line.split(":") for line in ran.stdout.splitlines()]
    return {how: (int(good), int(bad)) for how, good, bad in rows}


def test_a_kill_at_any_moment_leaves_whole_checkpoints(kills: dict[str, tuple[int, int]]):
    assert kills["random"] == (10, 0)


@pytest.mark.parametrize("step", ["next step", "same step"])
def test_a_kill_before_any_operation_on_files_leaves_whole_checkpoints(kills: dict[str, tuple[int, int]], step: str):
    """The same step is saved a second time where Ctrl-C was pressed during a validation."""
    good, bad = kills[step]
    assert good > 20
    assert bad == 0


def test_a_kill_leaves_damage_where_files_are_written_in_place(kills: dict[str, tuple[int, int]]):
    """The control for the tests above."""
    assert kills["in place"][1] > 0


def test_the_time_left_is_judged_by_the_speed_of_this_sitting():
    assert time_left(spent=60, start=0.5, done=0.6) == pytest.approx(240)  # a tenth took a minute, four are left
    assert time_left(spent=60, start=0.0, done=0.6) == pytest.approx(40)
    assert time_left(spent=60, start=0.5, done=0.5) == math.inf
