"""Join the processes that train together. `torchrun` starts them; without it there is one, and nothing is exchanged."""

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from dragoman.config import TrainingConfig
from dragoman.device import device_of
from dragoman.errors import DragomanError
from dragoman.training.rendezvous import meet

# For bfloat16 on CPUs, oneDNN keeps a program for each shape that it has met, and PyTorch around it another 1,024 with
# their memory: gigabytes. Batches have many shapes, but the layers of a model share one, so a few are enough.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
os.environ.setdefault("LRU_CACHE_CAPACITY", "16")

PREPARATION = datetime.timedelta(days=1)  # how long the other processes wait while the first one reads the corpora


@dataclass(frozen=True)
class ProcessGroup:
    """This process among `size` of them: its rank, from 0, and the device it computes on."""

    device: torch.device
    rank: int = 0
    size: int = 1
    object_group: Any = None  # the gloo group for `gather`, which waits for `rank_timeout`
    barrier_group: Any = None  # the gloo group for `wait`, which waits as long as the preparation may take

    @property
    def first(self) -> bool:
        """Whether this is the process that reads and writes."""
        return self.rank == 0

    def wait(self) -> None:
        """Return when all processes have called this."""
        if self.size > 1:
            dist.barrier(group=self.barrier_group)

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

    Raise DragomanError where one of the processes is gone or does not answer.
    """
    device = device_of(settings.device)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if size == 1:
        yield ProcessGroup(device)
        return
    timeout = datetime.timedelta(minutes=settings.rank_timeout)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        store, rank, size = next(rendezvous("env://", timeout=timeout))
        store = meet(store, rank, size, timeout)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
        object_group, barrier_group = (
            dist.new_group(backend="gloo", timeout=limit) for limit in (timeout, PREPARATION)
        )
        yield ProcessGroup(device, rank, size, object_group, barrier_group)
    except dist.DistError as error:
        raise process_lost_error(error) from None
    except RuntimeError as error:  # gloo reports a lost connection as a plain one
        if "gloo" not in str(error).lower() and "connection" not in str(error).lower():
            raise
        raise process_lost_error(error) from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def process_lost_error(error: Exception) -> DragomanError:
    """Return the error that a user sees for an error of PyTorch that means a lost process."""
    reason = " ".join(str(error).split())
    return DragomanError(
        f"another process of this run has ended or does not answer; the last checkpoint is kept ({reason[:300]})"
    )
