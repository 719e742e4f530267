"""Jobs in processes side by side: results, threads, and what happens where one fails or is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from processes import wait_for

from dragoman.errors import DragomanError, UsageError
from dragoman.runtime.device import device_of
from dragoman.synthesis.side_by_side import processes_for, side_by_side

WAIT = """
import time
from dragoman.runtime.signals import exit_on_signals
from dragoman.synthesis.side_by_side import side_by_side
if __name__ == "__main__":
    with exit_on_signals():
        side_by_side(time.sleep, [(600,), (600,)], 2, lambda number: print(number, flush=True))
"""


def test_results_are_those_of_one_process_in_the_order_of_jobs():
    began: list[int] = []
    jobs = [(7, 2), (9, 4), (30, 8)]
    assert side_by_side(divmod, jobs, 2, began.append) == side_by_side(divmod, jobs, 1) == [(3, 1), (2, 1), (3, 6)]
    assert began == [0, 1, 2]


def test_processes_divide_the_threads():
    numbers = side_by_side(os.getpid, [(), ()], 2)
    assert len({*numbers, os.getpid()}) == 3
    assert side_by_side(os.getpid, [(), ()], 1) == [os.getpid()] * 2
    assert side_by_side(torch.get_num_threads, [(), ()], 2) == [1, 1]


def test_gpu_does_one_job_after_the_other(monkeypatch: pytest.MonkeyPatch):
    assert [processes_for(4, threads) for threads in (1, 3, 64)] == [1, 3, 4]
    monkeypatch.setattr("dragoman.synthesis.side_by_side.device_of", lambda wanted: torch.device("cuda"))
    assert processes_for(4, 64) == 1


def test_error_of_a_job_is_raised_and_the_others_are_ended():
    began = time.monotonic()
    with pytest.raises(UsageError, match="device must be"):
        side_by_side(device_of, [("tpu",), ("cpu",)], 2)
    with pytest.raises(DragomanError, match="exit code 3"):
        side_by_side(getattr(os, "_exit"), [(3,), (3,)], 2)  # noqa: B009
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_jobs_end_with_the_process_that_waits_for_them(tmp_path: Path, number: int):
    script = tmp_path / "wait.py"
    script.write_text(WAIT, "utf-8")
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert [process.stdout.readline() for _ in range(2)] == ["0\n", "1\n"]
    wait_for(lambda: len(children_of(process.pid)) == 2)
    children = children_of(process.pid)
    os.kill(process.pid, number)
    process.wait(20)
    process.stdout.close()
    wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def children_of(parent: int) -> list[str]:
    """Return the processes that Python has spawned from another one to compute."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
