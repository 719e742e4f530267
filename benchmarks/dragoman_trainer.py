"""Train as `dragoman train` does, in a process of its own: `python -m benchmarks.dragoman_trainer FOLDER`."""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.peers.task import CLIP, RATE, SMOOTHING, Step, TrainingTask, train_on
from dragoman.config import TrainingConfig
from dragoman.data.batches import Batch, plan_batches
from dragoman.data.tokenizer import PAD
from dragoman.model.transformer import Transformer
from dragoman.runtime.device import device_of
from dragoman.training.distributed import ProcessGroup
from dragoman.training.learner import Learner
from dragoman.training.precision import configure_torch


def our_step(task: TrainingTask) -> tuple[Transformer, Step]:
    """Configure this process as `dragoman train` does; return a new model, and what trains it on a batch."""
    settings = TrainingConfig(label_smoothing=SMOOTHING, clip=CLIP, precision=task.precision, threads=task.threads)  # type: ignore[arg-type]
    group = ProcessGroup(device_of(task.device))
    configure_torch(settings, group)
    torch.manual_seed(1)
    model = Transformer(task.model, task.vocabulary, pad=PAD)
    learner = Learner(model, settings, group)
    seeds = itertools.count()

    def step(batch: Batch) -> int:
        learner.update([batch], batch.tokens, RATE, (1, next(seeds)))
        return batch.tokens

    return model, step


def planned_batches(task: TrainingTask) -> Iterator[Batch]:
    """Yield the batches of one epoch after the other, without end."""
    lengths = task.lengths
    for epoch in itertools.count():
        plan = plan_batches(lengths, task.batch_tokens, seed=1, epoch=epoch)
        for number in range(len(plan)):
            yield task.batch(plan[number])


if __name__ == "__main__":
    task = TrainingTask.read(Path(sys.argv[1]))
    train_on(planned_batches(task), our_step(task)[1])
