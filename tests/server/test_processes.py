"""Servers of several processes, real ones: what they share, and that they go on when some of them do not."""

import contextlib
import http.client
import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from conftest import TINY, Ran, save_random
from serving import CONFIG, Answer, Running, until

from dragoman.data.tokenizer import Tokenizer
from dragoman.server import processes

TEXT = "The dog sees 4 red cats."
UPLOAD = (
    '--x\r\nContent-Disposition: form-data; name="target_lang"\r\n\r\nKO\r\n'
    f'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n{TEXT}\r\n--x--\r\n'
)


@contextlib.contextmanager
def served(log: Path, *arguments: object) -> Iterator[tuple[Running, subprocess.Popen[str]]]:
    """A server as it is started by hand, which writes to a file."""
    command = [sys.executable, "-m", "dragoman", "serve", "--port", "0", *map(str, arguments)]
    with log.open("w") as file, subprocess.Popen(command, stderr=file, text=True) as process:
        try:
            until(lambda: "/health/ready" in log.read_text() or process.poll() is not None, 60)
            found = re.findall(r"127\.0\.0\.1:(\d+)/health/ready", log.read_text())
            assert found, log.read_text()
            yield Running(int(found[0]), cast(Any, None), cast(Any, None)), process
        finally:
            for worker in workers(process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            process.kill()


def command_of(process: int) -> bytes:
    """The command line of a process; nothing where it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def workers(process: subprocess.Popen[str]) -> list[int]:
    """The processes that serve; beside them Python has one of its own."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return [child for child in map(int, children) if b"spawn_main" in command_of(child)]
    return []


def owner(connection: http.client.HTTPConnection, of: Sequence[int]) -> int | None:
    """Which of these processes has taken a connection; None while it waits."""
    port = connection.sock.getsockname()[1]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, _, _, _, _, _, _, inode, *_ = line.split()
        if int(remote.split(":")[1], 16) == port:
            for process in of:
                for file in Path("/proc").glob(f"{process}/fd/*"):  # none where it has ended
                    with contextlib.suppress(OSError):
                        if str(file.readlink()) == f"socket:[{inode}]":
                            return process
    return None


def connections(server: Running, process: subprocess.Popen[str]) -> dict[int, http.client.HTTPConnection]:
    """New connections, one to each of two processes, as soon as both of them take some."""
    found: dict[int, http.client.HTTPConnection] = {}

    def connect() -> bool:
        found.clear()  # the server cuts connections without requests
        both = workers(process)
        for _ in range(12):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            connection.connect()
            if (taken := owner(connection, both)) or (taken := owner(connection, both)):
                found.setdefault(taken, connection)
        return len(found) == len(both) == 2

    until(connect, 60)
    return found


def ask(connection: http.client.HTTPConnection, path: str, body: str, kind: str = "application/json") -> Any:
    """What a process answers on a connection to it."""
    connection.request("POST", path, body, {"Content-Type": kind})
    return json.loads(connection.getresponse().read())


class Load:
    """Threads that ask until a server is gone, or the block ends: what they got, and what failed.

    pause: seconds between two requests of one of them, in which others have the processor.
    """

    def __init__(self, server: Running, pause: float = 0.0):
        self.server, self.pause, self.over = server, pause, threading.Event()
        self.answers: list[Answer] = []
        self.readiness: list[int] = []
        self.failed: list[Exception] = []
        self.threads = [threading.Thread(target=self.ask, args=(1000 * number,)) for number in range(4)]

    def ask(self, number: int) -> None:
        while not self.over.wait(self.pause):
            try:
                self.answers.append(self.server.translate(f"A dog likes {number + len(self.answers)} red cats."))
                self.readiness.append(self.server.ask("GET", "/health/ready").status)
            except ConnectionRefusedError:
                return
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(error)

    def __enter__(self) -> "Load":
        for thread in self.threads:
            thread.start()
        self.more(5)
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()

    def more(self, answers: int) -> None:
        """Wait for so many further answers."""
        known = len(self.answers)
        until(lambda: len(self.answers) >= known + answers, 60)

    def join(self) -> None:
        for thread in self.threads:
            thread.join(60)


@pytest.mark.slow
def test_start_that_fails_is_one_error(dragoman: Any):
    ran: Ran = dragoman("serve", "-m", "nowhere", "--port", "0", "--processes", "2")
    assert (ran.code, ran.err) == (2, "dragoman: nowhere: no such model folder\n")


def test_processes_share_the_cores(monkeypatch: pytest.MonkeyPatch):
    threads: list[int] = []

    class Seen(Exception): ...

    def see(config: Any, *_: object, **__: object) -> None:
        threads.append(config.threads)
        raise Seen

    monkeypatch.setattr(processes, "Worker", see)
    monkeypatch.setattr(processes, "granted_cores", lambda: 13)
    for given, count in ((None, 4), (None, 20), (5, 4)):
        with pytest.raises(Seen):
            processes.supervise(replace(CONFIG, threads=given, processes=count))
    assert threads == [3, 1, 5]


@pytest.mark.slow
def test_processes_that_die_or_are_halted_are_replaced_and_documents_stay(trained: Path, tmp_path: Path):
    state = tmp_path / "state"
    arguments = ("-m", f"en-ko={trained}", "--threads", 1, "--processes", 2, "--state", state)
    with served(tmp_path / "log", *arguments) as (server, process):
        documents = [
            ask(connection, "/v2/document", UPLOAD, "multipart/form-data; boundary=x")
            for connection in connections(server, process).values()
        ]
        before = workers(process)

        with Load(server) as load:  # one of two is killed: the other one answers all but what was in flight
            os.kill(before[0], signal.SIGKILL)
            until(lambda: len({*workers(process)} - {before[0]}) == 2)
            load.more(20)
        assert len(load.failed) <= 4
        assert {answer.status for answer in load.answers} == {200}
        for connection, document in zip(connections(server, process).values(), documents[::-1], strict=True):
            body = json.dumps({"document_key": document["document_key"]})
            assert ask(connection, f"/v2/document/{document['document_id']}", body)["status"] == "done"

        before = workers(process)
        began = time.monotonic()  # both at once: new clients wait
        os.kill(before[0], signal.SIGKILL)
        os.kill(before[1], signal.SIGSTOP)
        assert server.translate(TEXT).status == 200
        seconds = time.monotonic() - began
        print(f"served again after {seconds:.1f} s")
        assert seconds < 10
        until(lambda: not {*workers(process)} & {*before})
        connections(server, process)

        numbers = [server.metric("dragoman_accepted_total"), server.metric("dragoman_in_flight")]
        numbers += [server.metric(f'dragoman_finished_total{{outcome="{one}"}}') for one in ("ok", "failed")]
        assert numbers[0] > len(load.answers)  # those of the dead count, too
        assert 0 <= numbers[0] - sum(numbers[1:]) <= 4  # what was in flight in them

        with Load(server) as load:
            process.send_signal(signal.SIGTERM)
            load.join()
        assert process.wait(10) == 0
        assert {answer.status for answer in load.answers} == {200}
        assert set(load.readiness) == {200, 503}
        assert load.failed == []


@pytest.mark.slow
def test_model_that_is_replaced_is_not_served_beside_the_old_one(trained: Path, tokenizer: Tokenizer, tmp_path: Path):
    """When none is left that serves the old one, it is: the control."""
    shutil.copytree(trained, folder := tmp_path / "model")
    with served(tmp_path / "log", "-m", f"en-ko={folder}", "--threads", 1, "--processes", 2) as (server, process):
        before = [*connections(server, process)]
        old = server.translate(TEXT).json["translatedText"]
        shutil.rmtree(folder)
        save_random(TINY, tokenizer, folder)
        os.kill(before[0], signal.SIGKILL)
        until(lambda: "the others continue without it" in (tmp_path / "log").read_text(), 60)
        assert "model: replaced while it was served; restart the server" in (tmp_path / "log").read_text()
        until(lambda: workers(process) == [before[1]])
        assert [server.translate(TEXT).json["translatedText"] for _ in range(8)] == [old] * 8
        os.kill(before[1], signal.SIGKILL)
        connections(server, process)
        assert server.translate(TEXT).json["translatedText"] != old
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_worker_that_hangs_while_it_starts_is_ended(monkeypatch: pytest.MonkeyPatch):
    """After its patience, or when all shall stop and it does not; the first one has all the time that it needs."""

    class Hanging:
        def __init__(self, **_: Any):
            self.killed = self.told = False
            self.kill, self.terminate = lambda: setattr(self, "killed", True), lambda: setattr(self, "told", True)

        def start(self) -> None: ...

    clock = [100.0]
    monkeypatch.setattr(processes, "SPAWN", SimpleNamespace(Pipe=multiprocessing.Pipe, Process=Hanging))
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    with socket.socket() as listener:
        first, later, told = (processes.Worker(CONFIG, listener, "", *own) for own in ((), (60.0,), (60.0,)))
    told.check(stopping=True)
    assert (told.process.told, told.process.killed) == (True, False)
    for clock[0], killed in (
        (130.0, [False] * 3),
        (100.1 + told.last_word, [False, False, True]),
        (160.1, [False, True, True]),
    ):
        for worker in (first, later):
            worker.check(stopping=False)
        told.check(stopping=True)
        assert [worker.process.killed for worker in (first, later, told)] == killed


@pytest.mark.slow
def test_process_hanging_at_start_does_not_keep_others_from_stopping(trained: Path, tmp_path: Path):
    arguments = ("-m", f"en-ko={trained}", "--threads", 1, "--processes", 2, "--grace", 1)
    with served(tmp_path / "log", *arguments) as (server, process):
        both = [*connections(server, process)]
        os.kill(both[0], signal.SIGKILL)
        until(lambda: len({*workers(process)} - {both[0]}) == 2)
        (new,) = {*workers(process)} - {*both}
        os.kill(new, signal.SIGSTOP)
        assert server.translate(TEXT).status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 1
        assert not command_of(new)


@pytest.mark.slow
def test_workers_end_when_their_supervisor_is_killed(trained: Path, tmp_path: Path):
    """Where the process that watches is killed, the others end; a second signal ends all of them at once."""
    arguments = ("-m", f"en-ko={trained}", "--threads", 1, "--processes", 2)
    with served(tmp_path / "one", *arguments) as (server, process):
        both = [*connections(server, process)]
        process.kill()
        until(lambda: not any(map(command_of, both)), 15)
    with served(tmp_path / "two", *arguments) as (server, process):
        both = [*connections(server, process)]
        os.kill(both[0], signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 1
        assert not any(map(command_of, both))
