"""Choose how many threads compute; they spin while cores are free and sleep while other programs want them.

Threads wait for each other after each part of a step. Spinning is faster, but beside a busy program it takes time from
the very thread that is waited for (docs/notes/speed.md). GNU OpenMP reads only at its start how long to spin. As long
as it has more threads than cores, however, it hardly spins (GOMP_SPINCOUNT in its manual), and threads that compute
nothing count as well.
"""

import atexit
import contextlib
import functools
import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

import torch

from dragoman.runtime.threads import granted_cores, scheduled_cores, waits_as_others_want

INTERVAL = 0.5  # seconds between two looks
CALM = 5.0  # seconds without other programs, after which threads spin again
FREE = 0.2  # of a core, which other programs may use before threads sleep
STAT = Path("/proc/stat")
WIDE = 1 << 18  # numbers that PyTorch divides among all its threads
# Held while a crowd forms or leaves; PyTorch's number of threads for the process is then another one for a moment.
CHANGING = threading.RLock()


class Reading(NamedTuple):
    """A time, and how long all programs and this one have computed until then, in seconds."""

    time: float
    all_programs: float
    this_program: float


class Crowd:
    """Keep more threads of OpenMP than there are cores, until `leave`. They sleep, and so do all others that wait."""

    def __init__(self, cores: int, threads: int):
        self.over, formed = threading.Event(), threading.Semaphore(0)
        for _ in range((cores - threads) // (threads - 1) + 1):  # teams, each without its first thread
            threading.Thread(target=self.attend, args=[threads, formed], daemon=True).start()
            formed.acquire()  # one after the other: for a moment, their number of threads is that of the process

    def attend(self, threads: int, formed: threading.Semaphore) -> None:
        """Form a team of threads, which ends with the thread that has formed it."""
        before = torch.get_num_threads()  # of threads that begin now, as this one does
        try:
            torch.set_num_threads(threads)
            torch.ones(WIDE).neg_()
        finally:
            torch.set_num_threads(before)
            formed.release()
        self.over.wait()

    def leave(self) -> None:
        """Let the threads end, if not at once."""
        self.over.set()


class WaitingThreads:
    """Look at what other programs compute on the cores of this one, and let threads spin or sleep while they wait.

    `threads` is how many compute. PyTorch cannot be asked: each thread has a number of its own, which a program may set
    anew, as a server does for its requests.
    """

    def __init__(self, stat: Path = STAT):
        self.stat = stat
        self.crowd: Crowd | None = None
        self.threads = torch.get_num_threads()
        self.calm = CALM - INTERVAL  # seconds since others wanted the cores: threads sleep until the first look
        self.last = self.read()
        self.let_sleep()

    def let_sleep(self) -> None:
        """Let threads sleep while they wait, if there are several."""
        with CHANGING:
            if self.threads > 1 and not self.crowd:
                self.crowd = Crowd(scheduled_cores(), self.threads)

    def let_spin(self) -> None:
        """Let threads spin while they wait."""
        with CHANGING:
            if self.crowd:
                self.crowd.leave()
                self.crowd = None

    def count(self, threads: int) -> None:
        """Let PyTorch compute with so many threads from now on; if those until now sleep, these do so, too."""
        with CHANGING:
            torch.set_num_threads(threads)  # which a crowd that was forming may have changed
            slept, changes = self.crowd is not None, threads != self.threads
            self.threads = threads
            if slept and changes:
                self.let_spin()
                with contextlib.suppress(RuntimeError):  # no more threads for the moment
                    self.let_sleep()

    def read(self) -> Reading:
        """Return what has been computed until now. Raise OSError where the system has no such file."""
        ours = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        cores = [line.split() for line in self.stat.read_text(encoding="ascii").splitlines()]
        # user, nice, system, (idle, iowait,) irq, softirq
        ticks = sum(int(number) for core in cores if core[0] in ours for number in core[1:4] + core[6:8])
        return Reading(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), time.process_time())

    def look(self) -> None:
        """Compare the system with that of the last look, and let threads sleep, or spin once it was calm for a while.

        A look that comes late judges nothing: this process was suspended.
        """
        last, self.last = self.last, self.read()
        spent, in_all, by_this = (now - before for now, before in zip(self.last, last, strict=True))
        if spent > 3 * INTERVAL:
            return
        unknown = in_all < by_this / 2  # some containers do not count
        busy = unknown or (in_all - by_this) / spent + self.threads > scheduled_cores() + FREE
        self.calm = 0.0 if busy else self.calm + spent
        if busy:
            self.let_sleep()
        elif self.calm >= CALM:
            self.let_spin()

    def keep_looking(self) -> None:
        """Look again and again, as long as this process lives."""
        while True:
            time.sleep(INTERVAL)
            with contextlib.suppress(OSError, RuntimeError):  # no more files or threads for the moment
                self.look()


def use_threads(wanted: int | None) -> str:
    """Set how many threads PyTorch computes with: `wanted`, by default as many as it has; but one per core at most.

    From then on they wait for each other as other programs allow it, if the user has not said how. Return a sentence
    for the user where there are fewer than `wanted`; else ''.
    """
    cores = granted_cores()
    compute_with(min(wanted or torch.get_num_threads(), cores))
    if wanted and wanted > cores:
        return f"{wanted} threads are wanted, but this process may use {cores} core{'s' * (cores != 1)}: using {cores}"
    return ""


def compute_with(threads: int) -> None:
    """Let PyTorch compute with so many threads, which wait for each other as `use_threads` says."""
    torch.set_num_threads(threads)
    if waiting := watch_cores():
        waiting.count(threads)


@functools.cache  # once for this process
def watch_cores() -> WaitingThreads | None:
    """Let threads wait as other programs allow it; return what does so. None: the user has said how, or it fails."""
    if not waits_as_others_want(os.environ) or not os.access(STAT, os.R_OK):
        return None
    with contextlib.suppress(OSError, RuntimeError):  # without more files or threads, they wait as they did
        waiting = WaitingThreads()
        atexit.register(CHANGING.acquire)  # Python aborts if it ends while one of its threads is inside PyTorch
        threading.Thread(target=waiting.keep_looking, name="waiting", daemon=True).start()
        return waiting
    return None
