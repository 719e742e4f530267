"""Measure how good a translator is after the same minutes of training, beside a recurrent model and MarianMT."""

import importlib.util
import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from dragoman.benchmarks.peers.task import TrainingTask
from dragoman.benchmarks.peers.train_marianmt import BEAM
from dragoman.benchmarks.peers.trainers import environment_of, exit_on_signals, plain_command
from dragoman.benchmarks.training import MAX_TOKENS
from dragoman.config import PresetName, RunConfig, TransformerConfig, as_dict, read_toml, update
from dragoman.config.presets import LSTM, preset_run
from dragoman.data.corpus import Pair, read_corpus
from dragoman.data.tokenizers import SideTokenizer
from dragoman.errors import DragomanError, UsageError
from dragoman.evaluation.metrics import evaluate
from dragoman.evaluation.timing import describe_machine, markdown_table
from dragoman.training.loop import train as train_run
from dragoman.translation.translator import Translator


def benchmark(
    train: str, dev: str, test: str, minutes: float, preset: PresetName, recipe: str, out: str, threads: int
) -> str:
    """Return a table in Markdown: steps, target tokens, BLEU and chrF of each model after `minutes` of training.

    train, dev, test: files of pairs; recipe: a TOML file instead of the preset, '' for none; out: folder for the runs.
    Raise DragomanError for a missing file, UsageError for a recurrent model.
    """
    settings = read_toml(Path(recipe)) if recipe else {}
    ours = preset_run(settings.get("preset", preset), settings, recipe)
    if not isinstance(ours.model, TransformerConfig):
        raise UsageError(f"{recipe or preset} must be a Transformer, because the others are compared with it")
    torch.set_num_threads(threads)
    pairs = read_corpus([train]).pairs
    read_corpus([dev])  # a missing file is reported before, not after, the first hour
    sources, references = zip(*read_corpus([test]).pairs, strict=True)
    rows, notes, translators = [], [], []
    training = replace(ours.training, minutes=minutes, epochs=10_000, patience=0, threads=threads)
    lstm = replace(ours, preset="lstm", model=replace(LSTM.model, dropout=ours.model.dropout))
    for name, run in {Path(recipe).stem or preset: ours, "lstm": lstm}.items():
        run = replace(run, train=(train,), dev=(dev,), out=f"{out}/{name}", training=training)
        steps, tokens, translator = train_and_load(run)
        translations = [translation.text for translation in translator.translate(sources)]
        rows.append((f"dragoman, {name}", steps, tokens, evaluate(translations, references)))
        translators.append(translator)
    if importlib.util.find_spec("transformers"):
        settled = Path(out) / (Path(recipe).stem or preset) / "config.toml"
        ours = update(ours, read_toml(settled), str(settled))  # nothing is open or 'auto' there
        steps, tokens, translations = train_marianmt(ours, translators[0].tokenizers.source, pairs, sources)
        rows.append(("HF MarianMT, same shape", steps, tokens, evaluate(translations, references)))
    else:
        notes.append("HF MarianMT is left out: pip install 'dragoman[benchmark]' installs it.")
    signatures = [score.signature for score in (rows[0][3].bleu, rows[0][3].chrf)]
    return "\n".join(
        [
            f"{Path(train).name}, {len(pairs):,} pairs; {minutes:g} minutes of training each; scores on "
            f"{len(references):,} pairs of {Path(test).name}, beam {BEAM}; {' and '.join(signatures)}.",
            describe_machine() + ".",
            "",
            markdown_table(
                ["model", "steps", "target tokens", "BLEU", "chrF2"],
                [
                    [name, f"{steps:,}", f"{tokens / 1e6:.2f} M", f"{s.bleu.value:.1f}", f"{s.chrf.value:.1f}"]
                    for name, steps, tokens, s in rows
                ],
            ),
            *notes,
        ]
    )


def train_and_load(run: RunConfig) -> tuple[int, int, Translator]:
    """Train a model, or resume its run.

    Return its steps and target tokens, and a translator with its best checkpoint.
    """
    progress = train_run(run)
    return progress.step, progress.target_tokens, Translator.load(Path(run.out) / "best")


def train_marianmt(
    run: RunConfig, tokenizer: SideTokenizer, pairs: Sequence[Pair], texts: Sequence[str]
) -> tuple[int, int, list[str]]:
    """Train MarianMT, in a process of its own, with the settings of a run of ours, on the same subwords.

    That is: shape, dropout, minutes, batch size, rate, schedule, average of weights and precision. Return its steps,
    target tokens, and translations of the texts. Raise DragomanError where it fails.
    """
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
