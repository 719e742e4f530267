"""Make the batches of a run: when they are needed, or ahead of the training in worker processes, which PyTorch's
DataLoader starts. Which batches there are, and in what order, does not depend on that.
"""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from ctypes import c_bool
from functools import partial
from multiprocessing.sharedctypes import RawValue
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from dragoman.data.batches import Batch
from dragoman.errors import DragomanError
from dragoman.runtime.threads import granted_cores

MAX_WORKERS = 8  # by default
AHEAD = 4  # batches that each worker makes in advance

Turn = tuple[int, int, np.ndarray]  # an epoch, which of its batches, and the indices of its pairs
MicroBatches = list[Batch | None]  # None: empty, or another process's

WORKER_DIED = (
    "a process that makes batches has died, perhaps for lack of memory: the same command resumes the run, with fewer "
    "training.workers if it happens again"
)


def default_workers(device: torch.device) -> int:
    """Return how many processes should make batches: none for a CPU, which they would share with the training.

    The processes that torchrun has started on this machine share its cores.
    """
    if device.type == "cpu" or "fork" not in multiprocessing.get_all_start_methods():
        return 0
    cores = granted_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(0, min(MAX_WORKERS, cores - 1))


class _Turns(Dataset[MicroBatches]):
    """The batches by turn."""

    def __init__(self, make: Callable[[Turn], MicroBatches]):
        self.make = make

    def __getitem__(self, turn: Turn) -> MicroBatches:
        return self.make(turn)


def load_batches(
    make: Callable[[Turn], MicroBatches], turns: Iterable[Turn], workers: int, pin: bool
) -> Generator[MicroBatches, None, None]:
    """Yield the micro-batches of each turn in order, as `make` makes them; with workers, in forks of this process.

    pin: put them into memory from which a GPU can copy while the CPU goes on. Raise DragomanError where a worker dies
    while it hands over a batch.
    """
    options: dict[str, Any] = {}
    closing = None
    if workers:
        closing = RawValue(c_bool)
        # Forked processes may not use the threads of `tokenizers`; set here, it does not warn of them.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        begin = partial(begin_worker, closing)
        options = {"multiprocessing_context": "fork", "worker_init_fn": begin, "prefetch_factor": AHEAD}
    loader: DataLoader[Any] = DataLoader(
        _Turns(make),
        batch_size=None,
        sampler=turns,
        num_workers=workers,
        collate_fn=lambda batch: batch,
        pin_memory=pin,
        generator=torch.Generator(),  # not the one that dropout is drawn from
        **options,
    )
    try:
        batches = iter(loader)  # has a name, so that it ends the workers after `finally`
        yield from batches
    except (ConnectionError, EOFError) as error:  # it died while it handed over a batch
        raise DragomanError(WORKER_DIED) from error
    finally:
        if closing:
            closing.value = True


@contextlib.contextmanager
def dead_workers_explained() -> Iterator[None]:
    """Raise DragomanError where a worker dies during the block: PyTorch then raises RuntimeError at any place of it."""
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise DragomanError(WORKER_DIED) from error


def begin_worker(closing: Any, number: int) -> None:
    """Leave to the training what asks all processes to stop, because it finishes its step, and `tokenizers`' threads.

    closing: a value that all processes share, true once the training needs no more batches: then SIGTERM, which Python
    sends at its end to workers that are still there, ends this one.
    """

    def end_if_closing(*_: Any) -> None:
        if closing.value:
            os._exit(0)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end_if_closing)
    signal.set_wakeup_fd(-1)  # where the training learns of its own signals
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
