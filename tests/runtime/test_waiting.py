"""Threads that wait spin while cores are free and sleep while other programs want them: as OpenMP really does."""

import os
import subprocess
import sys
import threading
import time

import pytest
import torch

from dragoman.runtime.threads import FEW_SPINS, SPINS, granted_cores, scheduled_cores
from dragoman.runtime.waiting import CALM, FREE, INTERVAL, Crowd, Reading, WaitingThreads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what programs compute is read in /proc")

PAUSE = 0.003  # seconds
SPINNING = """
import time
import dragoman
import torch
from dragoman.runtime.waiting import WIDE, Crowd

numbers = torch.ones(WIDE)

def processor_time():
    time.sleep(0.05)
    began = time.process_time()
    for _ in range(100):
        numbers.neg_()
        time.sleep({pause})
    return (time.process_time() - began) / 100

torch.set_num_threads(2)
spinning = processor_time()
crowd = Crowd(cores={cores}, threads=2)
sleeping = processor_time()
crowd.leave()
print(spinning, sleeping, processor_time())
"""


def processor_times(**environment: str) -> list[float]:
    """Return the processor time of a short task of two threads and the pause after it.

    The first without a crowd, the second with one, the third after it has left. It says whether a thread spins, however
    busy the machine is.
    """
    clean = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    command = [sys.executable, "-c", SPINNING.format(cores=scheduled_cores(), pause=PAUSE)]
    ran = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=True)
    return [float(word) for word in ran.stdout.split()]


@pytest.mark.slow
@pytest.mark.skipif(scheduled_cores() < 2, reason="threads need cores to wait on")
def test_crowd_makes_threads_sleep_and_leaves_them_spinning():
    before, during, after = processor_times()
    assert during < PAUSE / 4 < PAUSE / 2 < min(before, after)


@pytest.mark.slow
def test_threads_that_sleep_anyway_control():
    assert max(processor_times(GOMP_SPINCOUNT=FEW_SPINS, OMP_WAIT_POLICY="PASSIVE")) < PAUSE / 4


class Machine:
    """A machine with two cores, and what programs have computed on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.reading, self.threads, self.teams = Reading(0.0, 0.0, 0.0), 2, 0
        self.thread = threading.get_ident()
        monkeypatch.setattr("dragoman.runtime.waiting.Crowd", self.crowd)
        monkeypatch.setattr("dragoman.runtime.waiting.scheduled_cores", lambda: 2)
        monkeypatch.setattr(torch, "get_num_threads", lambda: self.threads)
        monkeypatch.setattr(torch, "set_num_threads", lambda threads: setattr(self, "threads", threads))
        monkeypatch.setattr(WaitingThreads, "read", lambda _: self.reading)

    def crowd(self, cores: int, threads: int) -> "Machine | Crowd":
        if threading.get_ident() != self.thread:  # of a real watcher, which an earlier test started
            return Crowd(cores, threads)
        assert (cores, threads) == (2, 2)
        self.teams += 1
        return self

    def leave(self) -> None:
        self.teams -= 1

    def passes(self, waiting: WaitingThreads, seconds: float, own: float, others: float) -> bool:
        """Return whether threads sleep after so many seconds, in which this and other programs used so many cores."""
        while seconds > 0:
            spent = min(seconds, INTERVAL)
            time, everyone, ours = self.reading
            self.reading = Reading(time + spent, everyone + spent * (own + others), ours + spent * own)
            waiting.look()
            seconds -= spent
        return bool(self.teams)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_threads_sleep_while_others_want_cores(machine: Machine):
    waiting = WaitingThreads()
    assert machine.teams, "at the start"
    assert not machine.passes(waiting, INTERVAL, own=2.0, others=0.0)
    assert not machine.passes(waiting, 10, own=2.0, others=0.0)
    assert not machine.passes(waiting, 10, own=1.5, others=FREE - 0.1)
    assert machine.passes(waiting, INTERVAL, own=1.0, others=1.0)
    assert machine.passes(waiting, 60, own=1.0, others=1.0)
    assert machine.passes(waiting, CALM - INTERVAL, own=2.0, others=0.0)
    assert machine.passes(waiting, INTERVAL, own=1.0, others=FREE + 0.1)
    assert machine.passes(waiting, CALM - INTERVAL, own=2.0, others=0.0)
    assert not machine.passes(waiting, INTERVAL, own=2.0, others=0.0)


def test_number_of_threads_may_change(machine: Machine):
    """The control: as long as there is one, it has nobody to wait for."""
    machine.threads = 1
    waiting = WaitingThreads()
    assert not machine.passes(waiting, INTERVAL, own=1.0, others=2.0)
    waiting.count(2)
    assert machine.passes(waiting, INTERVAL, own=1.0, others=2.0)
    waiting.count(2)
    assert machine.teams == 1
    waiting.count(1)
    assert not machine.passes(waiting, INTERVAL, own=1.0, others=2.0)


CROWDS = """
import os
import threading
import dragoman
import torch
from dragoman.runtime.waiting import Crowd

def more_threads():
    before = len(os.listdir("/proc/self/task"))
    Crowd(cores=4, threads=2)
    return len(os.listdir("/proc/self/task")) - before

torch.set_num_threads(2)
torch.ones(1 << 18).neg_()
print(more_threads())
torch.set_num_threads(1)
print(more_threads(), torch.get_num_threads())
later = threading.Thread(target=lambda: print(torch.get_num_threads()))
later.start()
later.join()
"""


@pytest.mark.slow
def test_crowd_forms_its_teams_whatever_number_of_threads_the_process_has():
    """Three teams of two threads each, also in a server, which has set the number of its requests to one."""
    ran = subprocess.run([sys.executable, "-c", CROWDS], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["6", "6", "1", "1"]


def test_cores_that_this_program_leaves_are_for_others(machine: Machine):
    machine.threads = 1
    waiting = WaitingThreads()
    assert not machine.passes(waiting, 60, own=1.0, others=1.0)


def test_threads_sleep_where_the_system_does_not_count(machine: Machine):
    assert machine.passes(WaitingThreads(), INTERVAL, own=1.0, others=-1.0)


def test_suspended_time_of_this_program_does_not_count(machine: Machine):
    waiting = WaitingThreads()
    assert not machine.passes(waiting, INTERVAL, own=2.0, others=0.0)
    time, everyone, own = machine.reading
    machine.reading = Reading(time + 100, everyone + 200, own)
    waiting.look()
    assert not machine.teams


def test_look_that_fails_is_not_the_last(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dragoman.runtime.waiting.INTERVAL", 0.0)
    waiting, failures = WaitingThreads(), [OSError("no file left"), RuntimeError("no thread left"), KeyboardInterrupt()]

    def look() -> None:
        raise failures.pop(0)

    monkeypatch.setattr(waiting, "look", look)
    with pytest.raises(KeyboardInterrupt):
        waiting.keep_looking()
    assert not failures


def test_computing_of_others_is_read_from_the_system():
    """This program computes on one core all the time, and one more for each core beside it."""
    waiting = WaitingThreads()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(scheduled_cores())]
    try:
        before, ended = waiting.read(), time.monotonic() + 1.0
        while time.monotonic() < ended:
            pass
        after = waiting.read()
    finally:
        if waiting.crowd:
            waiting.crowd.leave()
        for process in busy:
            process.kill()
            process.wait()
    spent, everyone, own = (now - then for now, then in zip(after, before, strict=True))
    assert before.time < ended <= after.time <= time.monotonic()
    assert 0.05 < own / spent < 1.1
    assert 0.4 < (everyone - own) / spent < scheduled_cores() + 0.1


@pytest.mark.parametrize(
    ("environment", "watched"),
    [
        ({}, True),
        ({"GOMP_SPINCOUNT": SPINS}, False),
        pytest.param({"OMP_WAIT_POLICY": "ACTIVE"}, False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_threads_are_watched_once_unless_the_user_chose_how_to_wait(environment: dict[str, str], watched: bool):
    clean = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    program = "import threading; from dragoman.runtime.waiting import use_threads; use_threads(1); use_threads(2); "
    program += "print([thread.name for thread in threading.enumerate() if thread.daemon])"
    ran = subprocess.run([sys.executable, "-c", program], env=clean | environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout.strip()) == (
        0,
        str(["waiting"] * (watched and granted_cores() == scheduled_cores())),
    )


ENDING = """
import sys
import dragoman
from dragoman.runtime.waiting import use_threads

use_threads(2)
sys.exit(3)
"""


@pytest.mark.skipif(granted_cores() < 2, reason="needs two cores")
@pytest.mark.slow
def test_process_that_ends_at_once_does_not_abort():
    """As where the model is missing: threads that are still inside PyTorch would abort it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP", "GOMP"))}
    for _ in range(3):
        ran = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, env=environment)
        assert (ran.returncode, ran.stderr) == (3, "")
