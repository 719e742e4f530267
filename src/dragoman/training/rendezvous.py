"""Bring together the processes that run now, where a store still holds what earlier ones wrote into it.

torchrun keeps its store when it starts processes again, and counts restarts for each machine by itself, so neither the
store nor the count tells which processes belong together.
"""

import time
import uuid
from datetime import timedelta

from torch.distributed import DistStoreError
from torch.distributed.distributed_c10d import PrefixStore, Store

INTERVAL = 0.05  # seconds between two looks


def meet(store: Store, rank: int, size: int, timeout: timedelta) -> Store:
    """Return a part of the store that only the processes which run now know, after all `size` of them have called this.

    Each process posts a name of its own that no process had before. The first one answers to each name with the name
    of the meeting, again where a process is replaced before it has read its answer. Raise DistStoreError where a
    process does not come in time.
    """
    me = uuid.uuid4().hex
    if rank == 0:
        for other in range(1, size):
            _welcome(store, other, me, timeout)
        meeting = me
    else:
        store.set(f"present/{rank}", me)
        store.wait([f"meeting/{me}"], timeout)
        meeting = store.get(f"meeting/{me}").decode()
        store.set(f"joined/{meeting}/{rank}", "")
    return PrefixStore(meeting, store)


def _welcome(store: Store, rank: int, meeting: str, timeout: timedelta) -> None:
    """Tell a process the name of the meeting, and return when it has joined. Raise DistStoreError if it does not."""
    deadline = time.monotonic() + timeout.total_seconds()
    while not store.check([f"joined/{meeting}/{rank}"]):
        if store.check([f"present/{rank}"]):
            store.set(f"meeting/{store.get(f'present/{rank}').decode()}", meeting)
        if time.monotonic() > deadline:
            raise DistStoreError(f"process {rank} did not arrive within {timeout.total_seconds():.0f} s")
        time.sleep(INTERVAL)
