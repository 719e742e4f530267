"""Notice in training that other work keeps the cores busy: a step then takes many times as long."""

import time
from pathlib import Path

import torch

EVERY = 20.0  # seconds
MOST = 0.2  # of the time of all threads
TASKS = Path("/proc/self/task")


class CoreWatch:
    """Watch how long the threads of this process are ready to compute but have no core."""

    def __init__(self, tasks: Path = TASKS, interval: float = EVERY):
        self.tasks, self.interval, self.noted = tasks, interval, False
        self.since, self.waited = time.monotonic(), seconds_waited(tasks)

    def note(self) -> str:
        """Return a sentence the first time that threads waited too long, else ''; it looks every `interval` seconds."""
        spent = time.monotonic() - self.since
        if self.noted or spent < self.interval:
            return ""
        waited, threads = seconds_waited(self.tasks), torch.get_num_threads()
        share = (waited - self.waited) / (spent * threads)
        self.since, self.waited, self.noted = time.monotonic(), waited, share > MOST
        if not self.noted:
            return ""
        fewer = f", or choose fewer threads than {threads} (training.threads)" if threads > 1 else ""
        return (
            f"other programs keep the cores busy, and for {100 * min(share, 1):.0f} % of the last {spent:.0f} s the "
            f"threads of this training waited for a core: stop those programs{fewer}"
        )


def seconds_waited(tasks: Path = TASKS) -> float:
    """Return how long the threads of a process, whose folder `task` in /proc this is, were ready but had no core.

    It is the sum over the threads; 0 where the system does not tell.
    """
    total = 0
    for file in tasks.glob("*/schedstat"):
        try:
            total += int(file.read_text().split()[1])
        except (OSError, ValueError, IndexError):  # the thread has ended, or the system does not count
            continue
    return total / 1e9
