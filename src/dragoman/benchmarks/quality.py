"""Measure how good a translator is after the same minutes of training, beside a recurrent model and MarianMT."""

import importlib.util
import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import torch

from dragoman.benchmarks.peers.task import TrainingTask
from dragoman.benchmarks.peers.train_marianmt import BEAM
from dragoman.benchmarks.peers.trainers import environment_of, exit_on_signals, plain_command
from dragoman.benchmarks.training import MAX_TOKENS
from dragoman.config import PresetName, RunConfig, TransformerConfig, as_dict, read_toml, update
from dragoman.config.presets import LSTM, preset_run
from dragoman.data.corpus import Pair, read_corpus
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError, UsageError
from dragoman.evaluation.metrics import Scores, evaluate
from dragoman.evaluation.timing import describe_machine, markdown_table
from dragoman.training.loop import train as train_run
from dragoman.training.setup import DATA
from dragoman.translation.translator import Translator


class Trained(NamedTuple):
    """What a model did in its minutes, and how good its translations of the test set are."""

    steps: int
    tokens: int
    scores: Scores


def benchmark(
    train: str,
    dev: str,
    test: str,
    minutes: float,
    preset: PresetName,
    recipe: str,
    out: str,
    threads: int,
    models: Sequence[str] = ("dragoman", "lstm", "marianmt"),
    seeds: Sequence[int] = (1,),
) -> str:
    """Return a table in Markdown: steps, target tokens, BLEU and chrF of each model after `minutes` of training.

    train, dev, test: files of pairs; recipe: a TOML file instead of the preset, '' for none; out: folder for the runs;
    seeds: of weights, batches and dropout; every model is trained once for each. Raise DragomanError for a missing
    file, UsageError for a recurrent model, and where 'marianmt' would find no run of ours to take its settings from.
    """
    settings = read_toml(Path(recipe)) if recipe else {}
    ours = preset_run(settings.get("preset", preset), settings, recipe)
    if not isinstance(ours.model, TransformerConfig):
        raise UsageError(f"{recipe or preset} must be a Transformer, because the others are compared with it")
    name = Path(recipe).stem or preset
    torch.set_num_threads(threads)
    pairs = read_corpus([train]).pairs
    read_corpus([dev])  # a missing file is reported before, not after, the first hour
    sources, references = zip(*read_corpus([test]).pairs, strict=True)
    training = replace(ours.training, minutes=minutes, epochs=10_000, patience=0, threads=threads)
    ours = replace(ours, train=(train,), dev=(dev,), training=training)
    lstm = replace(ours, preset="lstm", model=replace(LSTM.model, dropout=ours.model.dropout))
    runs = {"dragoman": (name, ours), "lstm": ("lstm", lstm)}
    left_out = "marianmt" in models and not importlib.util.find_spec("transformers")
    models = [model for model in models if model != "marianmt" or not left_out]
    trained: dict[str, list[Trained]] = {}
    for seed in seeds:
        for model in models:
            folder = Path(out) / f"seed-{seed}"
            if model == "marianmt":
                row = "HF MarianMT, same shape"
                steps, tokens, translations = train_marianmt(folder / name, ours, pairs, sources)
            else:
                row = f"dragoman, {runs[model][0]}"
                run = replace(runs[model][1], out=str(folder / runs[model][0]), training=replace(training, seed=seed))
                steps, tokens, translations = train_ours(run, sources)
            trained.setdefault(row, []).append(Trained(steps, tokens, evaluate(translations, references)))
    scores = next(iter(trained.values()))[0].scores
    return "\n".join(
        [
            f"{Path(train).name}, {len(pairs):,} pairs; {minutes:g} minutes of training each, "
            f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}; "
            f"scores on {len(references):,} pairs of {Path(test).name}, beam {BEAM}; "
            f"{scores.bleu.signature} and {scores.chrf.signature}.",
            describe_machine() + ".",
            "",
            markdown_table(
                ["model", "steps", "target tokens", "BLEU", "chrF2"],
                [
                    [
                        row,
                        f"{mean(each.steps for each in every):,.0f}",
                        f"{mean(each.tokens for each in every) / 1e6:.2f} M",
                        with_each([each.scores.bleu.value for each in every]),
                        with_each([each.scores.chrf.value for each in every]),
                    ]
                    for row, every in trained.items()
                ],
            ),
            *(["HF MarianMT is left out: pip install 'dragoman[benchmark]' installs it."] if left_out else []),
        ]
    )


def with_each(scores: Sequence[float]) -> str:
    """Return the mean of the scores and, of more than one, each of them in parentheses."""
    each = ", ".join(f"{score:.1f}" for score in scores)
    return f"{mean(scores):.1f} ({each})" if len(scores) > 1 else each


def train_ours(run: RunConfig, texts: Sequence[str]) -> tuple[int, int, list[str]]:
    """Train a model, or resume its run.

    Return its steps, its target tokens, and what its best checkpoint translates.
    """
    progress = train_run(run)
    translator = Translator.load(Path(run.out) / "best")
    return progress.step, progress.target_tokens, [translation.text for translation in translator.translate(texts)]


def train_marianmt(
    folder: Path, run: RunConfig, pairs: Sequence[Pair], texts: Sequence[str]
) -> tuple[int, int, list[str]]:
    """Train MarianMT, in a process of its own, with the settings of a run of ours, on the same subwords.

    That is: shape, dropout, minutes, batch size, rate, schedule, average of weights, precision and seed. folder: the
    run, which settles what `run` leaves open; it must have begun, no more. Return its steps, target tokens, and
    translations of the texts. Raise UsageError without such a run, DragomanError where training fails.
    """
    if not (folder / "config.toml").exists():
        raise UsageError(
            f"MarianMT takes its subwords and settings from dragoman's run in {folder}, which is not there: "
            "add dragoman to --models, or start that run first"
        )
    run = update(run, read_toml(folder / "config.toml"), str(folder / "config.toml"))
    tokenizer = Tokenizers.load(folder / DATA).source
    assert isinstance(run.model, TransformerConfig)
    sides = zip(*(tokenizer.encode_all(texts) for texts in zip(*pairs, strict=True)), strict=True)
    sources, targets = zip(*(pair for pair in sides if max(map(len, pair)) < MAX_TOKENS), strict=True)
    settings, threads = run.training, torch.get_num_threads()
    task = TrainingTask(run.model, len(tokenizer), int(settings.batch_tokens), threads, settings.precision)
    task = replace(task, sources=list(sources), targets=list(targets))
    with tempfile.TemporaryDirectory() as opened, exit_on_signals():
        folder = Path(opened)
        task.write(folder)
        (folder / "settings.json").write_text(json.dumps(as_dict(settings)), encoding="ascii")
        ids = [sentence[: MAX_TOKENS - 1] for sentence in tokenizer.encode_all(list(texts))]
        (folder / "texts.json").write_text(json.dumps(ids), encoding="ascii")
        command = plain_command("train_marianmt", str(folder))
        ran = subprocess.run(command, env=environment_of("marianmt", threads), stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        raise DragomanError("training MarianMT failed; see its message above")
    steps, tokens, translations = json.loads(ran.stdout)
    return steps, tokens, [tokenizer.decode(output) for output in translations]
