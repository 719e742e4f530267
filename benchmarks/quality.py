"""Measure how good a translator is after the same minutes of training, beside a recurrent model and other toolkits."""

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

from benchmarks.peers.task import TrainingTask
from benchmarks.peers.train_marianmt import Trained
from benchmarks.peers.train_programs import peak_rate, train_program
from benchmarks.peers.trainers import (
    BEAM,
    PROGRAMS,
    environment_of,
    find_command,
    plain_command,
)
from benchmarks.training import MAX_TOKENS, NAMES
from dragoman.config import PresetName, RunConfig, TrainingConfig, TransformerConfig, as_dict, read_settings, update
from dragoman.config.presets import LSTM, preset_run
from dragoman.config.recipes import settings_file
from dragoman.data.batches import Ids
from dragoman.data.corpus import Pair, read_corpus
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError, UsageError
from dragoman.evaluation.metrics import Scores, evaluate
from dragoman.evaluation.timing import describe_machine, markdown_table
from dragoman.runtime.signals import exit_on_signals
from dragoman.training.loop import train as train_run
from dragoman.training.prepare import DATA
from dragoman.translation.translator import Translator

VALIDATE_EVERY = 1000  # steps: by the clock, too, ours would spend more of its minutes on validations


class Outcome(NamedTuple):
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
    peer_rates: Sequence[float] = (1.0,),
) -> str:
    """Return a table in Markdown: steps, target tokens, BLEU and chrF of each model after `minutes` of training.

    train, dev, test: files of pairs; recipe: its name or a TOML file, instead of the preset, '' for none; out: folder
    for the runs; seeds: of weights, batches and dropout; every model is trained once for each; peer_rates: by what our
    learning rate is multiplied for other toolkits, which are trained once for each. Raise DragomanError for a missing
    file or where no model is installed, UsageError for a recurrent model, for a rate that is not positive, for a
    schedule that a toolkit does not have, and where a toolkit would find no run of ours to take its settings from.
    """
    if not peer_rates or min(peer_rates) <= 0:
        raise UsageError("peer rates must be above 0")
    settings = read_settings(settings_file(recipe)) if recipe else {}
    ours = preset_run(settings.get("preset", preset), settings, recipe)
    if not isinstance(ours.model, TransformerConfig):
        raise UsageError(f"{recipe or preset} must be a Transformer, because the others are compared with it")
    if any(model in PROGRAMS for model in models):
        peak_rate(ours.model.d_model, ours.training)  # what is wrong is reported before, not after, the first hour
    name = Path(recipe).stem or preset
    torch.set_num_threads(threads)
    pairs = read_corpus([train]).pairs
    read_corpus([dev])  # as above
    sources, references = zip(*read_corpus([test]).pairs, strict=True)
    often = ours.training.validate_every or VALIDATE_EVERY
    training = replace(ours.training, minutes=minutes, epochs=10_000, patience=0, validate_every=often)
    training = replace(training, threads=threads, device="cpu")
    ours = replace(ours, train=(train,), dev=(dev,), training=training)
    lstm = replace(ours, preset="lstm", model=replace(LSTM.model, dropout=ours.model.dropout))
    runs = {"dragoman": (name, ours), "lstm": ("lstm", lstm)}
    left_out = {model: how for model in models if (how := how_to_install(model))}
    models = [model for model in models if model not in left_out]
    notes = [f"{NAMES[model]} is left out: {how}." for model, how in left_out.items()]
    if not models:
        raise DragomanError(" ".join(notes))
    outcomes: dict[str, list[Outcome]] = {}
    for seed in seeds:
        for model in models:
            folder = Path(out) / f"seed-{seed}"
            for times in (1.0,) if model in runs else peer_rates:
                if model in runs:
                    row, run = f"dragoman, {runs[model][0]}", runs[model][1]
                    run = replace(run, out=str(folder / runs[model][0]), training=replace(training, seed=seed))
                    steps, tokens, translations = train_ours(run, sources)
                else:
                    row = f"{NAMES[model]}, same shape" + (f", {times:g} times the rate" if times != 1 else "")
                    steps, tokens, translations = train_peer(model, folder / name, ours, pairs, sources, times)
                outcomes.setdefault(row, []).append(Outcome(steps, tokens, evaluate(translations, references)))
    scores = next(iter(outcomes.values()))[0].scores
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
                        f"{mean(each.steps for each in each_seed):,.0f}",
                        f"{mean(each.tokens for each in each_seed) / 1e6:.2f} M",
                        with_each([each.scores.bleu.value for each in each_seed]),
                        with_each([each.scores.chrf.value for each in each_seed]),
                    ]
                    for row, each_seed in outcomes.items()
                ],
            ),
            *notes,
        ]
    )


def how_to_install(model: str) -> str:
    """Return how to install the toolkit that a model needs, '' where it is installed."""
    try:
        if model in PROGRAMS:
            find_command(model, "python")
    except DragomanError as error:
        return str(error)
    if model == "marianmt" and not importlib.util.find_spec("transformers"):
        return "pip install 'dragoman[benchmark]' installs it"
    return ""


def with_each(scores: Sequence[float]) -> str:
    """Return the mean of the scores and, of more than one, each of them in parentheses."""
    each = ", ".join(f"{score:.1f}" for score in scores)
    return f"{mean(scores):.1f} ({each})" if len(scores) > 1 else each


def train_ours(run: RunConfig, texts: Sequence[str]) -> tuple[int, int, list[str]]:
    """Train a model, or resume its run.

    Return its steps, its target tokens, and what its best checkpoint translates.
    """
    progress = train_run(run)
    translator = Translator.load(Path(run.out) / "best", device="cpu")
    return progress.step, progress.target_tokens, [translation.text for translation in translator.translate(texts)]


def train_peer(
    model: str, folder: Path, run: RunConfig, pairs: Sequence[Pair], texts: Sequence[str], times: float
) -> tuple[int, int, list[str]]:
    """Train another toolkit, in a process of its own, with the settings of a run of ours, on the same subwords.

    That is: shape, dropout, minutes, batch size, rate, schedule, average of weights, precision and seed. model:
    'marianmt' or a key of PROGRAMS; folder: our run, which has begun at least; its settings complete those of `run`;
    times: by what its learning rate is multiplied. Return its steps, target tokens, and translations of the texts.
    Raise UsageError without such a run or for a schedule that the toolkit does not have, DragomanError where training
    fails.
    """
    if not (folder / "config.toml").exists():
        raise UsageError(
            f"{NAMES[model]} takes its subwords and settings from dragoman's run in {folder}, which is not there: "
            "add dragoman to --models, or start that run first"
        )
    minutes = run.training.minutes  # our run may have trained for longer since
    run = update(run, read_settings(folder / "config.toml"), str(folder / "config.toml"))
    tokenizer = Tokenizers.load(folder / DATA).source
    assert isinstance(run.model, TransformerConfig)
    sides = zip(*(tokenizer.encode_all(texts) for texts in zip(*pairs, strict=True)), strict=True)
    sources, targets = zip(*(pair for pair in sides if max(map(len, pair)) < MAX_TOKENS), strict=True)
    settings = replace(run.training, minutes=minutes, learning_rate=times * run.training.learning_rate)
    threads = torch.get_num_threads()
    task = TrainingTask(run.model, len(tokenizer), int(settings.batch_tokens), threads, settings.precision)
    task = replace(task, sources=list(sources), targets=list(targets))
    ids = [sentence[: MAX_TOKENS - 1] for sentence in tokenizer.encode_all(list(texts))]
    with tempfile.TemporaryDirectory() as opened, exit_on_signals():
        if model in PROGRAMS:
            trained = train_program(model, task, settings, ids, Path(opened))
        else:
            trained = train_marianmt(task, settings, ids, Path(opened))
    return trained.steps, trained.tokens, [tokenizer.decode(output) for output in trained.translations]


def train_marianmt(task: TrainingTask, settings: TrainingConfig, texts: Sequence[Ids], folder: Path) -> Trained:
    """Train MarianMT and translate the texts with it, in a process of its own. folder: an empty one.

    Raise DragomanError where that fails.
    """
    task.write(folder)
    (folder / "settings.json").write_text(json.dumps(as_dict(settings)), encoding="ascii")
    (folder / "texts.json").write_text(json.dumps(texts), encoding="ascii")
    command = plain_command("train_marianmt", str(folder))
    ran = subprocess.run(command, env=environment_of("marianmt", task.threads), stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        raise DragomanError("training MarianMT failed; see its message above")
    return Trained(*json.loads(ran.stdout))
