"""A server that is asked to stop while it starts, or while it stops: it always ends."""

import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from processes import Command, signal_before
from serving import CONFIG, until

from dragoman.server.app import App
from dragoman.server.listening import NOTICE, bind
from dragoman.server.models import Models
from dragoman.server.run import Server
from dragoman.server.service import Service
from dragoman.server.table import DIALECTS, ROUTES

SERVER, PROCESS = "dragoman.server.run:Server", {"RANK": "0"}
AT_ONCE = 1  # the exit code after a second signal


def arguments_of(model: Path) -> list[str]:
    return ["serve", "-m", f"en-ko={model}", "--port", "0", "--threads", "1", "--grace", "1"]


def test_signal_before_the_server_has_a_loop_stops_it(models: Models):
    """The control is one that gets no signal: it goes on."""
    for stops in (True, False):
        listener = bind(CONFIG)
        server = Server(service := Service(CONFIG, models), App(service, ROUTES, DIALECTS))
        if stops:
            server.handle_exit(signal.SIGTERM, None)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        thread.join(NOTICE + 3)
        assert thread.is_alive() != stops
        server.should_exit = True
        thread.join()
        torch.set_num_threads(1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["startup", "_serve"])
def test_signal_between_catching_signals_and_listening_is_not_lost(trained: Path, tmp_path: Path, name: str):
    """It comes when nothing listens yet, after which nobody sends a second one."""
    fault = partial(signal_before, SERVER, name, 1, signal.SIGTERM)
    command = Command(arguments_of(trained), tmp_path / "log", PROCESS, [fault])
    assert command.code() == 0
    assert "ready" in command.said  # the control: it had begun, and was not ended by the signal itself


@pytest.mark.slow
def test_signal_at_any_moment_of_starting_and_stopping_ends_the_server(trained: Path, tmp_path: Path):
    command = [sys.executable, "-m", "dragoman", *arguments_of(trained)]

    def start(name: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = tmp_path / name
        with log.open("wb") as file:
            return subprocess.Popen(command, stderr=file), log

    def code_of(process: subprocess.Popen[bytes]) -> int:
        with process:
            try:
                return process.wait(NOTICE + 20)
            finally:
                process.kill()

    process, log = start("whole")
    began = time.monotonic()
    until(lambda: "health/ready" in log.read_text(), 60)
    starting = time.monotonic() - began
    process.send_signal(signal.SIGTERM)
    assert code_of(process) == 0
    stopping = time.monotonic() - began - starting
    codes = list[int]()
    for number in range(20):
        process, log = start(f"start {number}")
        time.sleep(starting * (number + 0.5) / 13)
        process.send_signal(signal.SIGTERM)
        codes.append(code_of(process))
    assert {*codes} <= {-signal.SIGTERM, 0}
    assert len({*codes}) == 2  # before the server catches signals, and after it does
    second = list[int]()
    for number in range(10):
        process, log = start(f"stop {number}")
        until(lambda log=log: "health/ready" in log.read_text(), 60)
        process.send_signal(signal.SIGTERM)
        time.sleep(stopping * (number + 0.5) / 10)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        second.append(code_of(process))
        assert second[-1] == 0 or time.monotonic() - began < 2
    assert {*second} <= {AT_ONCE, 0, -signal.SIGTERM}
    assert AT_ONCE in second
    print(f"starting takes {starting:.1f} s, stopping {stopping:.1f} s; exit codes {codes}, after a second {second}")
