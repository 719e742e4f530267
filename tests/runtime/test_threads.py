"""Threads: how they wait for each other, never more than there are cores, and a word where others use these."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dragoman.runtime.device import instructions
from dragoman.runtime.threads import (
    FEW_SPINS,
    SHAPES,
    SPINS,
    configure_onednn,
    configure_openmp,
    granted_cores,
    scheduled_cores,
    waits_as_others_want,
)
from dragoman.runtime.waiting import use_threads
from dragoman.training.core_watch import CoreWatch
from dragoman.training.memory import shares_of_groups

SPIN = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": SPINS}
V1, V2 = "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup"


@pytest.mark.parametrize("own", [{}, {"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}])
def test_threads_that_wait_spin_unless_the_user_wants_otherwise(own: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dragoman.runtime.threads.granted_cores", scheduled_cores)
    environment = {**own, "OMP_NUM_THREADS": "3", "HOME": "/"}
    before = dict(environment)
    configure_openmp(environment)
    assert environment == (before if own else before | SPIN)
    assert waits_as_others_want(environment) == (not own)


def test_threads_with_a_quota_sleep(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dragoman.runtime.threads.scheduled_cores", lambda: 3)
    monkeypatch.setattr("dragoman.runtime.threads.granted_cores", lambda: 2)
    environment: dict[str, str] = {}
    configure_openmp(environment)
    assert environment == {**SPIN, "GOMP_SPINCOUNT": FEW_SPINS, "OMP_NUM_THREADS": "2"}
    assert not waits_as_others_want(environment)


OPENMP = """
import os, sys
from dragoman.runtime import threads
if sys.argv[1:]:  # a quota of one core
    del os.environ["OMP_WAIT_POLICY"], os.environ["GOMP_SPINCOUNT"]
    threads.granted_cores, threads.scheduled_cores = lambda: 1, lambda: 2
    threads.configure_openmp(os.environ)
os.environ["OMP_DISPLAY_ENV"] = "VERBOSE"
import torch
"""


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "spins"), [([], SPINS), (["-"], FEW_SPINS)])
def test_openmp_reads_the_setting_when_pytorch_is_imported(flags: list[str], spins: str):
    """GNU OpenMP prints what it has read, from this process's environment and not from that of its parent."""
    clean = {name: value for name, value in os.environ.items() if name not in SPIN}
    shown = subprocess.run([sys.executable, "-c", OPENMP, *flags], env=clean, capture_output=True, text=True).stderr
    assert f"GOMP_SPINCOUNT = '{spins}'" in shown


@pytest.mark.parametrize("own", [{}, {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "7"}])
def test_onednn_settings_of_the_user_stay(own: dict[str, str]):
    environment = dict(own)
    configure_onednn(environment)
    assert environment == {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": SHAPES, "LRU_CACHE_CAPACITY": SHAPES} | own


MULTIPLY = """
import os, sys, torch
from dragoman.runtime.threads import leave_out_amx
if sys.argv[1:]:
    leave_out_amx(os.environ)
torch._int_mm(torch.ones(1, 64, dtype=torch.int8), torch.ones(64, 64, dtype=torch.int8))
"""


@pytest.mark.skipif(not instructions().get("amx_int8"), reason="this processor has no AMX")
@pytest.mark.parametrize(
    ("flags", "own", "found"), [([], {}, True), (["-"], {}, False), (["-"], {"ONEDNN_MAX_CPU_ISA": "ALL"}, True)]
)
def test_amx_is_left_out_unless_the_user_wants_it(flags: list[str], own: dict[str, str], found: bool):
    clean = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    command = [sys.executable, "-c", MULTIPLY, *flags]
    shown = subprocess.run(command, env=clean | own | {"ONEDNN_VERBOSE": "1"}, capture_output=True, text=True).stdout
    (said,) = [line for line in shown.splitlines() if "cpu,isa:" in line]
    assert ("AMX" in said) == found


MANY_SHAPES = """
import resource, torch
from pathlib import Path
from dragoman.inference.linears import PackedLinear

def grow(fewest, most):
    before = int(Path("/proc/self/statm").read_text().split()[1])
    for rows in range(fewest, most):
        layer(torch.zeros(rows, 256))
    return (int(Path("/proc/self/statm").read_text().split()[1]) - before) * resource.getpagesize() >> 20

with torch.inference_mode():
    layer = PackedLinear(torch.nn.Linear(256, 256))
    grow(2, 60)
    print(grow(60, 180))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read in /proc")
def test_memory_does_not_grow_with_each_number_of_rows():
    """In megabytes. The control: with the capacity that oneDNN and PyTorch have by default."""
    names = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    grown = []
    for more in ({}, dict.fromkeys(names, "1024")):
        command = [sys.executable, "-c", MANY_SHAPES]
        grown.append(int(subprocess.run(command, env=clean | more, capture_output=True, text=True, check=True).stdout))
    assert grown[0] < 10 < 30 < grown[1]


def write_files(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/", {}, None),
        ("0::/", {f"{V2}/cpu.max": "max 100000"}, None),
        ("0::/", {f"{V2}/cpu.max": "100000 100000"}, 1),
        ("0::/", {f"{V2}/cpu.max": "50000 100000"}, 1),  # half a core
        ("0::/a/b", {f"{V2}/a/b/cpu.max": "max 100000", f"{V2}/a/cpu.max": "199000 100000"}, 1),
        ("3:cpu,cpuacct:/a", {f"{V1}/a/cpu.cfs_quota_us": "100000", f"{V1}/a/cpu.cfs_period_us": "100000"}, 1),
        ("3:cpu,cpuacct:/on/the/host", {f"{V1}/cpu.cfs_quota_us": "9", f"{V1}/cpu.cfs_period_us": "9"}, 1),
        ("3:cpu,cpuacct:/a", {f"{V1}/a/cpu.cfs_quota_us": "-1", f"{V1}/a/cpu.cfs_period_us": "100000"}, None),
        ("3:memory:/a", {"sys/fs/cgroup/memory/a/cpu.cfs_quota_us": "1"}, None),
    ],
)
def test_cores_are_those_that_a_container_grants(
    groups: str, files: dict[str, str], cores: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dragoman.runtime.threads.scheduled_cores", lambda: 8)
    write_files(tmp_path, {"proc/self/cgroup": groups, **files})
    assert granted_cores(str(tmp_path)) == (cores or 8)


@pytest.mark.parametrize(
    ("groups", "files", "shares"),
    [
        ("0::/a", {f"{V2}/a/memory.max": "max", f"{V2}/a/memory.current": "5"}, []),
        (
            "0::/a",
            {f"{V2}/memory.max": "8", f"{V2}/memory.current": "6", f"{V2}/memory.stat": "x 1\ninactive_file 2"},
            [0.5],
        ),
        ("3:memory:/", {f"{V2}/memory/memory.limit_in_bytes": "8", f"{V2}/memory/memory.usage_in_bytes": "4"}, [0.5]),
        ("3:cpu:/", {f"{V2}/cpu/memory.limit_in_bytes": "8", f"{V2}/cpu/memory.usage_in_bytes": "4"}, []),
    ],
)
def test_memory_limit_is_that_of_the_container(groups: str, files: dict[str, str], shares: list[float], tmp_path: Path):
    """So that an automatic batch size does not end in the kernel's OOM killer."""
    write_files(tmp_path, {"proc/self/cgroup": groups, **files})
    assert list(shares_of_groups(str(tmp_path))) == shares


def test_threads_are_never_more_than_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dragoman.runtime.waiting.granted_cores", lambda: 2)
    before = torch.get_num_threads()
    try:
        found = [(use_threads(wanted), torch.get_num_threads()) for wanted in (1, None, 2, 64)]
    finally:
        torch.set_num_threads(before)
    many = "64 threads are wanted, but this process may use 2 cores: using 2"
    assert found == [("", 1), ("", 1), ("", 2), (many, 2)]


@pytest.mark.parametrize(
    "command",
    [
        *("translate -m x y", "evaluate -m x a.tsv", "score -m x a.tsv", "align -m x a.tsv", "inspect -m x y"),
        *("train --train a.tsv --dev a.tsv", "backtranslate -m x --text a.txt --out b.tsv", "insight .", "demo"),
        *("lab scaling", "distill --teacher {model} --train {pairs} --dev {pairs} --out b"),
    ],
)
def test_commands_that_compute_get_their_number_of_threads(
    command: str, dragoman: Callable[..., Any], trained: Path, corpus: tuple[str, str]
):
    arguments = command.format(model=trained, pairs=corpus[1]).split()
    assert "threads must be at least 1, not 0" in dragoman(*arguments, "--threads", 0).err
    assert "threads must be at most 1,024, not 2000000" in dragoman(*arguments, "--threads", 2_000_000).err
    assert "threads must be" not in dragoman(*arguments, "--threads", 1, "--help").err


def test_threads_of_a_command_are_those_of_its_flag(
    dragoman: Callable[..., Any], trained: Path, corpus: tuple[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dragoman.runtime.waiting.granted_cores", lambda: 2)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (2, 1, 3):
            ran = dragoman("score", "-m", trained, corpus[1], "--threads", threads)
            found.append((ran.code, torch.get_num_threads(), "using 2" in ran.err))
    finally:
        torch.set_num_threads(before)
    assert found == [(0, 2, False), (0, 1, False), (0, 2, True)]


@pytest.mark.parametrize(("waited", "said"), [(0, ""), (1, ""), (5, "for 50 % of the last 10 s"), (30, "for 100 % of")])
def test_share_of_the_time_that_threads_waited_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited: int, said: str
):
    """Of one thread, in ten seconds."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "schedstat").write_text("7 2000000000 9")
    monkeypatch.setattr("dragoman.training.core_watch.torch.get_num_threads", lambda: 1)
    watch = CoreWatch(tmp_path, interval=9.0)
    watch.since -= 10
    (tmp_path / "1" / "schedstat").write_text(f"7 {(2 + waited) * 10**9} 9")
    assert said in (note := watch.note())
    assert bool(said) == bool(note)


@pytest.mark.slow
def test_training_says_once_that_others_use_the_cores(tmp_path: Path):
    watch, quiet = (
        CoreWatch(interval=1.0),
        CoreWatch(tmp_path, interval=1.0),
    )  # the control sees threads that never wait
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * scheduled_cores())]
    try:
        found = [computing(watch.note), computing(watch.note)]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert "other programs keep the cores busy" in found[0]
    assert not found[1]
    assert not computing(quiet.note)


def computing(note: Callable[[], str], seconds: float = 2.0) -> str:
    """What `note` says first in so many seconds of computing."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if said := note():
            return said
    return ""
