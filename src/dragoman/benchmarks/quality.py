"""Measure how good a translator is after the same minutes of training, beside a recurrent model and MarianMT."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from dragoman.benchmarks.peers.pytorch import MarianMT, padded_step
from dragoman.benchmarks.training import MAX_TOKENS, PRECISIONS, group_by_length
from dragoman.config import PresetName, RunConfig, TransformerConfig, read_toml
from dragoman.config.presets import LSTM, preset_run
from dragoman.data.batches import Batch, Ids, source_batch
from dragoman.data.corpus import Pair, read_corpus
from dragoman.data.tokenizer import PAD, Tokenizer
from dragoman.errors import UsageError
from dragoman.evaluation.metrics import evaluate
from dragoman.evaluation.timing import describe_machine, markdown_table
from dragoman.training.journal import Journal
from dragoman.training.loop import train as train_run
from dragoman.training.precision import best_precision
from dragoman.translation.translator import Translator

HIGHEST_RATE, WARMUP = 1e-3, 800
BEAM, SENTENCES = 4, 32
LOG_EVERY = 200  # steps


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
    rows, notes, tokenizers = [], [], []
    training = replace(ours.training, minutes=minutes, epochs=10_000, patience=0, threads=threads)
    lstm = replace(ours, preset="lstm", model=replace(LSTM.model, dropout=ours.model.dropout))
    for name, run in {Path(recipe).stem or preset: ours, "lstm": lstm}.items():
        run = replace(run, train=(train,), dev=(dev,), out=f"{out}/{name}", training=training)
        steps, tokens, translator = train_and_load(run)
        translations = [translation.text for translation in translator.translate(sources)]
        rows.append((f"dragoman, {name}", steps, tokens, evaluate(translations, references)))
        tokenizers.append(translator.tokenizer)
    try:
        steps, tokens, translations = train_marianmt(ours.model, tokenizers[0], pairs, sources, minutes)
        rows.append(("HF MarianMT, same shape", steps, tokens, evaluate(translations, references)))
    except ImportError:
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
    with Journal(Path(run.out), Console(stderr=True)) as journal:
        progress = train_run(run, journal)
    return progress.step, progress.target_tokens, Translator.load(Path(run.out) / "best")


def train_marianmt(
    config: TransformerConfig, tokenizer: Tokenizer, pairs: Sequence[Pair], sources: Sequence[str], minutes: float
) -> tuple[int, int, list[str]]:
    """Train MarianMT as is common for it, on the same subwords; return its steps, target tokens and translations.

    Batches are grouped by length; AdamW, inverse square root schedule, label smoothing. Raise ImportError where the
    transformers library is not installed.
    """
    sides = zip(*(tokenizer.encode_all(texts) for texts in zip(*pairs, strict=True)), strict=True)
    ids = [pair for pair in sides if max(map(len, pair)) < MAX_TOKENS]
    lengths = np.array([[len(side) + 1 for side in pair] for pair in ids])
    precision = best_precision(torch.device("cpu"))
    torch.manual_seed(1)
    model = MarianMT(config, len(tokenizer), "sdpa" if precision == "float32" else "eager")
    steps = tokens = 0

    def rate() -> float:
        return HIGHEST_RATE * min((steps + 1) / WARMUP, math.sqrt(WARMUP / (steps + 1)))

    step = padded_step(model, PRECISIONS[precision], rate=rate)
    random, console = np.random.default_rng(1), Console(stderr=True)
    began = time.monotonic()
    while True:
        order = random.permutation(len(ids))
        groups = [order[group] for group in group_by_length(lengths[order])]
        for number in random.permutation(len(groups)):
            tokens += step(Batch.of(*zip(*(ids[i] for i in groups[number]), strict=True)))
            steps += 1
            seconds = time.monotonic() - began
            if steps % LOG_EVERY == 0:
                console.print(f"MarianMT: step {steps:,}, {tokens / seconds:,.0f} target tokens/s", highlight=False)
            if seconds >= 60 * minutes:
                return steps, tokens, translate_with_marianmt(model.eval(), tokenizer, sources)


@torch.inference_mode()
def translate_with_marianmt(model: MarianMT, tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    """Return the translations of the texts by beam search, in batches of similar length, in the order of the texts."""
    ids: list[Ids] = [sentence[: MAX_TOKENS - 1] for sentence in tokenizer.encode_all(list(texts))]
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    translations: dict[int, str] = {}
    for start in range(0, len(order), SENTENCES):
        batch = order[start : start + SENTENCES]
        source = source_batch([ids[i] for i in batch])
        outputs = model.inner.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            num_beams=BEAM,
            max_new_tokens=MAX_TOKENS + 50,
            length_penalty=1.0,
        )
        translations |= zip(batch, map(tokenizer.decode, outputs.tolist()), strict=True)
    return [translations[i] for i in range(len(ids))]
