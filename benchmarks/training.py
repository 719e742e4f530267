"""Measure how fast training is, beside others: each a process of its own that trains on a whole corpus.

All train the same architecture on the same sentences, each in batches of its own and with the settings that are fastest
for it. They take turns; who waits is suspended. Target tokens include EOS and no padding.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.peers.task import TrainingTask
from benchmarks.peers.trainers import KINDS, PROGRAMS, PYTORCH, environment_of, start_trainer
from dragoman.config import Device, TransformerConfig
from dragoman.config.presets import BASE, BIG, SMALL, TINY
from dragoman.data.batches import Ids
from dragoman.data.corpus import read_corpus
from dragoman.data.tokenizer import Tokenizer
from dragoman.errors import DragomanError
from dragoman.evaluation.timing import Contender, describe_machine, markdown_table
from dragoman.runtime.device import device_of
from dragoman.runtime.signals import exit_on_signals
from dragoman.training.precision import best_precision

BATCH_TOKENS = {"cpu": 2048, "cuda": 25_000}  # padding included
MAX_TOKENS = 128  # of a sentence, EOS included
RANDOM_PAIRS = 20_000
TRIAL = 5.0  # seconds that each kind of attention gets
OURS = "dragoman"
NAMES = {
    OURS: OURS,
    "marianmt": "HF MarianMT",
    "torch": "nn.Transformer",
    "marian": "Marian",
    "joeynmt": "JoeyNMT",
    "eole": "Eole",
}


@dataclass(frozen=True)
class Shape:
    """An architecture that all contenders have."""

    model: TransformerConfig
    vocabulary: int


SHAPES = {
    name: Shape(replace(preset.model, positions="sinusoidal", norm_first=False), preset.vocabulary)
    for name, preset in (("tiny", TINY), ("small", SMALL), ("base", BASE), ("big", BIG))
}


Key = tuple[str, str]  # a shape and a precision


@dataclass(frozen=True)
class Speed:
    """Describe what was measured of one contender: target tokens per second, and memory."""

    first: float  # in its first turn, when nothing is cached
    later: Contender  # in the turns after it
    memory: int  # peak, in bytes


def benchmark(
    threads: int,
    rounds: int,
    seconds: float,
    shapes: Sequence[str],
    corpus: str | None,
    peers: Sequence[str],
    device: Device = "cpu",
) -> str:
    """Return tables in Markdown: target tokens per second, share of the machine's speed, and where our time goes.

    rounds: turns of each contender after its first; seconds: of a turn; shapes: names in SHAPES; corpus: a file of
    pairs, None for random ones; peers: keys of NAMES; device: 'cuda' for a GPU, where only toolkits in PyTorch take
    part. Sets PyTorch's threads and prints progress on standard error. Raise DragomanError where our own process fails,
    UsageError where there is no GPU.
    """
    torch.set_num_threads(threads)
    notes: list[str] = []
    precisions = ["float32", "bfloat16"]
    where = device_of(device)
    device = "cuda" if where.type == "cuda" else "cpu"
    if device == "cuda":
        peers = [name for name in peers if name in PYTORCH]
        precisions = [best_precision(where)]
    elif best_precision(where) == "float32":
        precisions.remove("bfloat16")
        notes.append("bfloat16 is left out: this processor has no instructions for it.")
    speeds, profiles = {}, {}
    for shape in shapes:
        task = make_task(SHAPES[shape], corpus, threads, device)
        for precision in precisions:
            print(f"{shape}, {precision} ...", file=sys.stderr)
            measured = measure(replace(task, precision=precision), [OURS, *peers], rounds, seconds, notes)
            speeds[shape, precision], profiles[shape, precision] = measured
    texts = f"sentences of {Path(corpus).name}" if corpus else "random sentences of realistic length"
    return "\n".join(
        [
            f"Training on {texts}, {BATCH_TOKENS[device]:,} tokens per batch, each toolkit in a process of its own; "
            f"target tokens per second of the first {seconds:g} seconds, and median and spread of {rounds} later turns "
            "of as long, interleaved.",
            describe_machine(device) + ".",
            "",
            *speed_tables(speeds),
            "",
            *(f"- {note}" for note in dict.fromkeys(notes)),
            "",
            *profile_tables(speeds, profiles),
        ]
    )


def speed_tables(speeds: dict[Key, dict[str, Speed]]) -> list[str]:
    """Return the lines of two tables: the speed of each contender, and the best of ours to the best of the others'."""
    by_shape = {shape: {key: row for key, row in speeds.items() if key[0] == shape} for shape, _ in speeds}
    return [
        markdown_table(
            ["model", "precision", "toolkit", "first turn", "later turns", "dragoman / it", "memory, MB"],
            [[*key, *cells] for key, row in speeds.items() for cells in cells_of(row)],
        ),
        "",
        "dragoman / the fastest of the others, each in its best precision.",
        "",
        markdown_table(
            ["model", "first turn", "later turns"], [[shape, *ratios(rows)] for shape, rows in by_shape.items()]
        ),
    ]


def profile_tables(speeds: dict[Key, dict[str, Speed]], profiles: dict[Key, dict[str, Any]]) -> list[str]:
    """Return the lines of two tables: our matmuls beside those of the machine, and the parts of our time.

    profiles: what `profile_task` returns.
    """
    return [
        "Matmuls of our own batches, real tokens only, and what the machine reaches in matmuls alone.",
        "",
        markdown_table(
            ["model", "precision", "GFLOP/s in training", "GFLOP/s alone", "share"],
            [[*key, *matmul_cells(speeds[key][OURS], profile)] for key, profile in profiles.items()],
        ),
        "",
        "Where our time goes.",
        "",
        markdown_table(
            ["model", "precision", *next(iter(profiles.values()))["parts"]],
            [[*key, *map(as_percent, profile["parts"].values())] for key, profile in profiles.items()],
        ),
    ]


def cells_of(row: dict[str, Speed]) -> list[list[str]]:
    """Return a line of the table for each contender: its name, speeds, our later speed as a multiple of its, memory."""
    return [
        [
            NAMES[name],
            f"{speed.first:,.0f}",
            str(speed.later),
            "–" if name == OURS else f"{row[OURS].later.median / speed.later.median:.2f}",
            f"{speed.memory / 1e6:,.0f}" if speed.memory else "–",
        ]
        for name, speed in row.items()
    ]


def ratios(rows: dict[Key, dict[str, Speed]]) -> list[str]:
    """Return our best speed as a multiple of the best of all others, in first turns and in later ones.

    rows: the contenders of one shape in each precision. '–' where there are no others.
    """
    all_rows = [(name, speed) for row in rows.values() for name, speed in row.items()]
    cells = []
    for turns in (lambda speed: speed.first, lambda speed: speed.later.median):
        ours = max(turns(speed) for name, speed in all_rows if name == OURS)
        best = max((turns(speed) for name, speed in all_rows if name != OURS), default=0.0)
        cells.append(f"{ours / best:.2f}" if best else "–")
    return cells


def matmul_cells(ours: Speed, profile: dict[str, Any]) -> list[str]:
    """Return the rate of matmuls in training and alone, and the first as a share of the second.

    profile: as `profile_task` returns it.
    """
    rate = profile["operations"] * ours.later.median
    return [f"{rate / 1e9:,.0f}", f"{profile['rate'] / 1e9:,.0f}", as_percent(rate / profile["rate"])]


def as_percent(value: float) -> str:
    """Return '12 %' for 0.12."""
    return f"{100 * value:.0f} %"


def make_task(shape: Shape, corpus: str | None, threads: int, device: Device = "cpu") -> TrainingTask:
    """Return the task to train a shape on a corpus, or on random pairs where it is None."""
    sources, targets = read_ids(corpus, shape.vocabulary) if corpus else random_pairs(shape.vocabulary)
    tokens = BATCH_TOKENS[device]
    task = TrainingTask(shape.model, shape.vocabulary, tokens, threads, device=device, sources=sources, targets=targets)
    return task.in_groups()


def read_ids(corpus: str, vocabulary: int) -> tuple[list[Ids], list[Ids]]:
    """Return sources and targets of a corpus as ids, without pairs of more than MAX_TOKENS tokens, EOS included.

    corpus: a file of pairs; vocabulary: subwords to learn from it, special tokens included; fewer if it is small. Raise
    DragomanError where the file cannot be read.
    """
    pairs = read_corpus([corpus]).pairs
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), suggested=vocabulary)
    sides = zip(*(tokenizer.encode_all(texts) for texts in zip(*pairs, strict=True)), strict=True)
    kept = [(source, target) for source, target in sides if max(len(source), len(target)) < MAX_TOKENS]
    return [source for source, _ in kept], [target for _, target in kept]


def random_pairs(vocabulary: int) -> tuple[list[Ids], list[Ids]]:
    """Return RANDOM_PAIRS random sources and targets as ids, with lengths like those of news and books.

    vocabulary: ids, special tokens included, which are not drawn. Lengths are log-normal, those of targets around those
    of their sources. The pairs are the same each time.
    """
    random = np.random.default_rng(1)
    source = random.lognormal(np.log(25), 0.5, RANDOM_PAIRS)
    lengths = (
        np.stack([source, source * random.lognormal(0, 0.15, RANDOM_PAIRS)], 1).clip(1, MAX_TOKENS - 1).astype(int)
    )
    sources, targets = ([random.integers(3, vocabulary, n).tolist() for n in side] for side in lengths.T)
    return sources, targets


def measure(
    task: TrainingTask, names: Sequence[str], rounds: int, seconds: float, notes: list[str]
) -> tuple[dict[str, Speed], dict[str, Any]]:
    """Let all contenders train on `task` in turn; return their speeds, and what ours consists of.

    names: keys of NAMES, ours the first; rounds, seconds: as for `benchmark`. Add to `notes` which attention is used,
    and who is left out, and why. Raise DragomanError where it is ours.
    """
    with tempfile.TemporaryDirectory() as opened, exit_on_signals(), contextlib.ExitStack() as stack:
        folder = Path(opened)
        task.write(folder)
        running, trainers = {}, {}
        for name in names:
            if name in PROGRAMS and task.precision == "bfloat16" and not PROGRAMS[name].bfloat16:
                continue
            try:
                kind = fastest_kind(name, task, folder)
                trainers[name] = stack.enter_context(start_trainer(name, kind, task, folder))
            except DragomanError as error:
                leave_out(name, error, notes)
                continue
            running[name] = Contender(name, partial(trainers[name].advance, seconds))
            if kind:
                notes.append(f"{NAMES[name]}, d_model {task.model.d_model}, {task.precision}: attention '{kind}'.")
        for _ in range(rounds + 1):
            for name, contender in list(running.items()):
                try:
                    contender.rates.append(contender.time())
                except DragomanError as error:
                    leave_out(name, error, notes)
                    del running[name]
        speeds = {name: Speed(c.rates.pop(0), c, trainers[name].peak_memory()) for name, c in running.items()}
        stack.close()
        return speeds, profile_ours(task, folder)


def leave_out(name: str, error: DragomanError, notes: list[str]) -> None:
    """Add to `notes` why a contender is left out. Raise the error where it is ours."""
    if name == OURS:
        raise error
    notes.append(f"{NAMES[name]} is left out: {error}.")


def fastest_kind(name: str, task: TrainingTask, folder: Path) -> str:
    """Return the kind of attention with which a contender trains fastest on `task`, '' where it has no choice.

    Raise DragomanError where one does not train.
    """
    choices = KINDS[task.device].get(name, ("",))
    kinds = [kind for kind in choices if task.precision == "bfloat16" or "float32" not in kind]
    rates = {}
    for kind in kinds if len(kinds) > 1 else ():
        with start_trainer(name, kind, task, folder) as trainer:
            rates[kind] = Contender(kind, partial(trainer.advance, TRIAL)).time()
    return max(rates, key=rates.__getitem__, default=kinds[0])


def profile_ours(task: TrainingTask, folder: Path) -> dict[str, Any]:
    """Return what `profile_task` finds, in a process of its own, for the task in `folder`."""
    command = [sys.executable, "-m", "benchmarks.training_profile", str(folder)]
    ran = subprocess.run(command, env=environment_of(OURS, task.threads), capture_output=True, text=True)
    if ran.returncode:
        raise DragomanError(f"profiling failed: {''.join(ran.stderr.strip().splitlines()[-1:])}")
    return json.loads(ran.stdout)
