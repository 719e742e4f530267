"""Join the processes that train together. `torchrun` starts them; without it there is one, and nothing is exchanged."""

import datetime
import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from dragoman.config import TrainingConfig
from dragoman.errors import DragomanError, UsageError
from dragoman.runtime.device import device_of
from dragoman.training.rendezvous import meet

# While the first process prepares, it tells the others so many times within `rank_timeout` that it gets on, if it has
# computed for this share of the time. One that is stopped, or waits for a disk, has not: PyTorch's threads need 0.3 %.
SIGNS_OF_LIFE = 10
LEAST_WORK = 0.01


@dataclass(frozen=True)
class ProcessGroup:
    """This process among `size` of them: its rank, from 0, and the device it computes on."""

    device: torch.device
    rank: int = 0
    size: int = 1
    object_group: Any = None  # the gloo group for what is in main memory
    timeout: float = 0.0  # seconds to wait for a process

    @property
    def first(self) -> bool:
        """Whether this is the process that reads and writes."""
        return self.rank == 0

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Let the other processes, which call `wait_for_first`, wait while the first one works on the block."""
        if self.size == 1:
            yield
            return
        end = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            signs = pool.submit(self._give_signs_of_life, end)
            try:
                yield
            finally:
                end.set()
            signs.result()
        self._tell_whether_ready(True)

    def _give_signs_of_life(self, end: threading.Event) -> None:
        """Tell the others, at intervals and until `end` is set, to go on waiting, if other threads have computed since.

        If these hang, nothing is told, and the others end after `timeout`.
        """
        interval, before = self.timeout / SIGNS_OF_LIFE, 0.0
        while not end.wait(interval):
            worked = time.process_time() - time.thread_time()  # by the other threads
            if worked - before > LEAST_WORK * interval:
                self._tell_whether_ready(False)
            before = worked

    def _tell_whether_ready(self, ready: bool) -> None:
        dist.broadcast(torch.tensor(ready), src=0, group=self.object_group)

    def wait_for_first(self) -> None:
        """Return when the first process has left its block of `preparing`."""
        ready = torch.tensor(False)
        while not ready:
            dist.broadcast(ready, src=0, group=self.object_group)

    def sum(self, tensor: Tensor) -> None:
        """Replace `tensor` by its sum over all processes, in place. All of them must call this."""
        if self.size > 1:
            dist.all_reduce(tensor)

    def gather_tensors(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all processes, which have one shape, in the order of ranks; all must call this."""
        if self.size == 1:
            return [tensor]
        tensors = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(tensors, tensor)
        return tensors

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes (numbers, text, lists) in the order of ranks; all must call this."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        dist.all_gather_object(values, value, group=self.object_group)
        return values


@contextmanager
def init_distributed(settings: TrainingConfig) -> Iterator[ProcessGroup]:
    """Join the processes that torchrun has started; without torchrun, yield a group of one.

    Raise DragomanError where one of the processes is gone or does not answer, UsageError where the environment is not
    that of torchrun.
    """
    device = device_of(settings.device)
    size = world_size()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if size == 1:
        yield ProcessGroup(device)
        return
    timeout = datetime.timedelta(minutes=settings.rank_timeout)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        try:
            store, rank, size = next(rendezvous("env://", timeout=timeout))
        except ValueError as error:
            raise UsageError(f"WORLD_SIZE is set, so torchrun must start all processes: {error}") from None
        store = meet(store, rank, size, timeout)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
        object_group = dist.new_group(backend="gloo", timeout=timeout)
        yield ProcessGroup(device, rank, size, object_group, timeout.total_seconds())
    except RuntimeError as error:  # gloo reports a lost connection as a plain one
        reason = " ".join(str(error).split())
        if not isinstance(error, dist.DistError) and not re.search("gloo|connection", reason, re.IGNORECASE):
            raise
        raise DragomanError(
            f"another process of this run has ended or does not answer; the last checkpoint is kept ({reason[:300]})"
        ) from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def world_size() -> int:
    """Return how many processes train together, as torchrun says. Raise UsageError where that is not a number."""
    size = os.environ.get("WORLD_SIZE", "1")
    if not size.isascii() or not size.isdigit() or int(size) < 1:
        raise UsageError(f"WORLD_SIZE must be a number of processes, not '{size}'")
    return int(size)
