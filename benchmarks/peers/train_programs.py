"""Train Marian, JoeyNMT or Eole for some minutes and translate with it, with its own commands."""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.peers.task import TrainingTask, as_ids, as_words
from benchmarks.peers.train_marianmt import Trained
from benchmarks.peers.trainers import (
    PROGRAMS,
    TEXTS,
    TRANSLATIONS,
    TrainerProcess,
    environment_of,
    find_command,
    last_line,
    start_trainer,
)
from dragoman.config import TrainingConfig
from dragoman.data.batches import Ids
from dragoman.errors import DragomanError, UsageError
from dragoman.training.optimizer import learning_rate

SCHEDULES = ("paper", "inverse-sqrt")  # all toolkits have them
REPORT_EVERY = 20.0  # seconds


def peak_rate(d_model: int, settings: TrainingConfig) -> float:
    """Return the learning rate at the end of the warm-up. Raise UsageError for a schedule that is not in SCHEDULES."""
    if settings.schedule not in SCHEDULES:
        raise UsageError(
            f"schedule {settings.schedule} is not one that Marian, JoeyNMT and Eole have: use {' or '.join(SCHEDULES)}"
        )
    return learning_rate(settings.warmup, d_model, settings)


def with_settings(task: TrainingTask, settings: TrainingConfig) -> TrainingTask:
    """Return the task with our rate, warm-up, label smoothing, clipping, moving average and seed.

    Raise UsageError for a schedule that is not in SCHEDULES.
    """
    return replace(
        task,
        rate=peak_rate(task.model.d_model, settings),
        warmup=settings.warmup,
        smoothing=settings.label_smoothing,
        clip=settings.clip,
        ema=settings.ema,
        seed=settings.seed,
    )


def train_program(
    name: str, task: TrainingTask, settings: TrainingConfig, texts: Sequence[Ids], folder: Path
) -> Trained:
    """Train a toolkit, a key of PROGRAMS, on `task`, then translate the texts with it. folder: an empty one.

    Of the settings, those of `with_settings` count, and the minutes, which begin with the first update. JoeyNMT has no
    moving average of its weights, sees its batches in the same order in each epoch, and is at the peak rate in its
    first update, after which its schedule begins. Raise DragomanError where the toolkit is not installed, or fails;
    UsageError for a schedule that is not in SCHEDULES.
    """
    task = with_settings(task, settings).in_groups(settings.seed)
    task.write(folder)
    with start_trainer(name, "", task, folder) as trainer:
        tokens = train_for(60 * (settings.minutes or 0), trainer)
        trainer.save_and_end()
    return Trained(trainer.updates, tokens, translate(name, task, texts, folder))


def train_for(seconds: float, trainer: TrainerProcess) -> int:
    """Let a trainer train for so long; return the target tokens. Print its speed on standard error now and then."""
    tokens, began = 0, time.monotonic()
    while (trained := time.monotonic() - began) < seconds:
        tokens += trainer.advance(min(REPORT_EVERY, seconds - trained))
        speed = tokens / (time.monotonic() - began)
        print(f"{trainer.name}: step {trainer.updates:,}, {speed:,.0f} target tokens/s", file=sys.stderr)
    return tokens


def translate(name: str, task: TrainingTask, texts: Sequence[Ids], folder: Path) -> list[Ids]:
    """Return the translations of the texts by the model that a toolkit, a key of PROGRAMS, has saved in `folder`.

    Raise DragomanError where it fails, or does not print as many translations.
    """
    (folder / TEXTS).write_text("".join(f"{as_words(ids)}\n" for ids in texts), encoding="ascii")
    command, *arguments = PROGRAMS[name].translation(task, folder)
    with (folder / TEXTS).open() as given:
        ran = subprocess.run(
            [find_command(name, command), *arguments],
            cwd=folder,
            env=environment_of(name, task.threads),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    if ran.returncode:
        raise DragomanError(f"{name} does not translate: {last_line(ran.stdout)}")
    lines = (folder / TRANSLATIONS).read_text(encoding="utf-8").splitlines()
    if len(lines) != len(texts):
        raise DragomanError(f"{name} has translated {len(texts):,} texts to {len(lines):,}")
    return [as_ids(line) for line in lines]
