"""`dragoman` in processes of its own, to be killed, halted and asked to stop, alone or several that train together.

They are forked from a process that has imported PyTorch and done nothing else: that takes milliseconds where a start of
Python takes seconds. What differs from `python -m dragoman` ends there; test_reliability.py has one run of each kind.
"""

import gc
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch

from dragoman.cli import main

KILLED, ASKED = 128 + signal.SIGKILL, 128 + signal.SIGTERM  # exit codes
SOON = 10.0  # seconds: so long may it take to stop when asked
PATIENCE = 60.0  # seconds: whatever is waited for comes sooner, or the test fails

Fault = Callable[[], None]  # a function of a module, or a partial of one: it is run inside, before the command

FORKS = multiprocessing.get_context("forkserver")
# The last ones are what training imports on its way: the optimizer PyTorch's compiler, validation the metrics.
TRAINING = ["dragoman.commands.train", "dragoman.training.loop", "torch._dynamo", "sacrebleu"]
FORKS.set_forkserver_preload([*TRAINING, "pytest", "hypothesis"])


def inside(arguments: Sequence[str], log: Path, environment: dict[str, str], faults: Sequence[Fault]) -> None:
    gc.freeze()  # so that the end of the process does not copy what it shares with the others
    os.environ.update(environment)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(out, stream)
    torch.set_num_threads(1)
    for fault in faults:
        fault()
    sys.exit(main(list(arguments)))


class Command:
    """A command under way, and what it has said so far on either stream."""

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: dict[str, str] | None = None,
        faults: Sequence[Fault] = (),
    ):
        self.log = log
        self.process = FORKS.Process(target=inside, args=(arguments, log, environment or {}, faults))
        self.process.start()

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    def send(self, number: int) -> None:
        if self.process.exitcode is None:
            assert self.process.pid
            os.kill(self.process.pid, number)

    def code(self, within: float = PATIENCE) -> int:
        """The exit code as a shell gives it, 137 after SIGKILL. Fails where it takes longer than `within` seconds."""
        self.process.join(within)
        code = self.process.exitcode
        if code is None:
            self.send(signal.SIGKILL)
            raise AssertionError(f"still under way after {within} s: {self.said}")
        return code if code >= 0 else 128 - code


def rank() -> int:
    """Of this process; for faults."""
    return int(os.environ["RANK"])


# Where a fault can be put.
LEARNER, LOOP = "dragoman.training.learner:Learner", "dragoman.training.loop:Loop"
RUN, SETUP, DATASETS = "dragoman.training.run", "dragoman.training.setup", "dragoman.training.datasets"
VALIDATION = "dragoman.training.validation"


def signal_before(owner: str, name: str, call: int, number: int, ranks: Sequence[int] = (0, 1, 2, 3)) -> None:
    """A fault: these ranks get a signal when `name` of that module or class is about to be called for the time `call`,
    counted from 1.
    """
    there, so_far = resolve_name(owner), count(1)
    work = getattr(there, name)

    def wrapped(*arguments: Any, **more: Any) -> Any:
        if next(so_far) == call and rank() in ranks:
            os.kill(os.getpid(), number)
        return work(*arguments, **more)

    setattr(there, name, wrapped)


def killed_before_operation(number: int, names: tuple[str, ...]) -> None:
    """A fault: the process is killed before that operation on files, counted from 1 and from now."""
    so_far = count(1)

    def watch(event: str, _: object) -> None:
        if event in names and next(so_far) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def train(config: str, log: Path, ranks: int = 1, faults: Sequence[Fault] = ()) -> list[Command]:
    """`dragoman train config`, in one process or in several, as torchrun would start them."""
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        Command(["train", config], log.with_suffix(f".{rank}.log"), {**common, "RANK": str(rank)}, faults)
        for rank in range(ranks)
    ]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what: Callable[[], object], within: float = PATIENCE) -> None:
    end = time.monotonic() + within
    while not what():
        assert time.monotonic() < end, "what was waited for did not come"
        time.sleep(0.005)


def signal_before_a_draft_appears(number: int) -> None:
    """A fault: the process gets a signal when a draft, of a file or a folder, is about to get its name."""

    def watch(event: str, given: tuple[object, ...]) -> None:
        if event in ("os.rename", "os.link") and ".draft" in str(given[0]):
            os.kill(os.getpid(), number)

    sys.addaudithook(watch)
