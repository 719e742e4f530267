"""Clients that send slowly, do not take their answers, or send without end: they are cut, and others do not notice."""

import asyncio
import contextlib
import random
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from serving import CONFIG, Process, Running, running, started, until
from starlette.datastructures import Headers

from dragoman.server import protocol
from dragoman.server.models import Models
from dragoman.server.protocol import SENT_AHEAD
from dragoman.server.reading import MAX_BODY, Refusal, Room, read_body

PAGE = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKS = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
SENDING = ("01", "04", "08", "09", "0B")  # states of a connection on which something may still be sent


def narrow(port: int) -> socket.socket:
    """A connection that takes next to nothing unless it is read from."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", port))
    return connection


def read_to_end(connection: socket.socket) -> bytes:
    """All that comes until the connection is closed or cut."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 20):
            found += part
    return found


def connected_to(port: int) -> dict[int, int]:
    """To which clients of a server the system still sends, even if the server has closed, by their ports; see proc(5).

    With each, how many bytes.
    """
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    own = [row for row in rows if row[1].endswith(f":{port:04X}") and row[3] in SENDING]
    return {int(row[2].rpartition(":")[2], 16): int(row[4].partition(":")[0], 16) for row in own}


def open_connections(server: Running) -> int:
    return len(server.server.server_state.connections)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 20.0])
def test_client_that_does_not_take_its_answer_is_cut(models: Models, monkeypatch: pytest.MonkeyPatch, seconds: float):
    """The control: with more time, all answers are there when the client begins to read."""
    monkeypatch.setattr(protocol, "ANSWER_SECONDS", seconds)
    with running(models, CONFIG) as server, narrow(server.port) as idle:
        count = (7 << 20) // len(server.ask("GET", "/openapi.json").body)  # more than a system takes in
        idle.sendall(PAGE * count)
        assert server.ask("GET", "/health").status == 200
        if seconds > 1:
            until(lambda: sum(connected_to(server.port).values()) > SENT_AHEAD // 2)
        with contextlib.suppress(AssertionError):
            until(lambda: not open_connections(server), 3)
        assert sum(connected_to(server.port).values()) < 4 * SENT_AHEAD
        cut = not open_connections(server)
        assert server.ask("GET", "/health").status == 200
        if not cut:
            idle.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        if cut:  # nor does the system keep what was not taken
            until(lambda: not connected_to(server.port))
        answers = read_to_end(idle).count(b"HTTP/1.1 200")
        assert cut == (seconds < 1) == (answers < count)


def test_client_that_takes_its_answers_is_not_cut(models: Models, monkeypatch: pytest.MonkeyPatch):
    """A slow reader that asks again and again has as long for each answer."""
    monkeypatch.setattr(protocol, "ANSWER_SECONDS", 0.2)
    with running(models, CONFIG) as server, narrow(server.port) as reader:
        for _ in range(12):
            reader.sendall(PAGE)
            answer = reader.recv(65536)
            length = int(re.findall(rb"content-length: (\d+)", answer)[0]) + answer.index(b"\r\n\r\n") + 4
            while len(answer) < length:
                answer += reader.recv(65536)
            time.sleep(0.05)
        assert open_connections(server) == 1


def test_body_in_chunks_is_read_no_further_than_to_the_limit():
    taken = 0

    async def receive() -> Any:
        nonlocal taken
        taken += 1 << 16
        return {"type": "http.request", "body": b"a" * (1 << 16), "more_body": True}

    headers, room = Headers({"transfer-encoding": "chunked"}), Room(MAX_BODY, 9 * MAX_BODY)
    reading = read_body(receive, headers, MAX_BODY, 5, room, "me")
    # In a thread of its own, because a browser of another test may have an event loop in this one.
    with ThreadPoolExecutor(1) as thread, pytest.raises(Refusal) as refused:
        thread.submit(asyncio.run, reading).result()
    assert refused.value.status == 413
    assert taken == MAX_BODY + (1 << 16)


# --- As many as there may be, against a server in a process of its own, with the times that it has


@pytest.fixture(scope="module")
def alone(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("server")
    with started(trained, folder / "log", "--state", str(folder / "state"), "--rate", "0") as process:
        yield process


def latencies(server: Running, goes_on: Callable[[int], bool], **fields: str) -> list[float]:
    """The seconds that a client waits for each of its answers, one after the other, to texts that are all different."""
    found: list[float] = []
    while goes_on(len(found)):
        began = time.perf_counter()
        assert server.translate(f"A dog sees {random.randrange(10**9)} cats.", **fields).status == 200
        found.append(time.perf_counter() - began)
        time.sleep(0.02)
    return found


def p95(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int(0.95 * len(seconds))]


async def trickle(port: int, head: bytes, byte: bytes) -> float:
    """Send a head, then a byte a second. Return after how many seconds the connection was cut."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.monotonic()
    writer.write(head)
    with contextlib.suppress(ConnectionError):
        while time.monotonic() - began < 60:
            with contextlib.suppress(TimeoutError):
                if not await asyncio.wait_for(reader.read(1000), 1):
                    break
            writer.write(byte)
    writer.close()
    return time.monotonic() - began


async def not_read(port: int, head: bytes, after: float, connected: set[int]) -> float:
    """Ask, and read a byte a second. Return how many seconds after the first byte there was no connection any more.

    connected: see `watch`. The client itself would not notice, since its system still has something to read.
    """
    await asyncio.sleep(after)
    connection, loop = narrow(port), asyncio.get_running_loop()
    connection.setblocking(False)
    own = connection.getsockname()[1]
    connected.add(own)
    with connection, contextlib.suppress(ConnectionError):
        await loop.sock_sendall(connection, head)
        await loop.sock_recv(connection, 1)
        began = time.monotonic()
        while own in connected and time.monotonic() - began < 60 and await loop.sock_recv(connection, 1):
            await asyncio.sleep(1)
    return time.monotonic() - began


async def watch(port: int, connected: set[int]) -> None:
    """Keep in a set which clients the system has connections to."""
    while True:
        connected.intersection_update(connected_to(port))
        await asyncio.sleep(0.2)


def file_of(server: Running, size: int) -> str:
    """The path of a translated document of so many bytes."""
    body = (
        '--x\r\nContent-Disposition: form-data; name="file"; filename="a.html"\r\n\r\n'
        f"A dog.<!--{'a' * size}-->\r\n"
        '--x\r\nContent-Disposition: form-data; name="source"\r\n\r\nen\r\n'
        '--x\r\nContent-Disposition: form-data; name="target"\r\n\r\nko\r\n--x--\r\n'
    )
    answer = server.ask("POST", "/translate_file", body, Content_Type="multipart/form-data; boundary=x")
    return answer.json["translatedFileUrl"].removeprefix(server.url)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "limit"), [("heads", 10), ("bodies", 30), ("answers", 30)])
def test_slow_clients_by_the_hundred_are_cut_and_others_do_not_notice(alone: Process, kind: str, limit: float):
    server, requests = alone.server, 200
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
    if kind == "bodies":
        head += b"x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
    path = file_of(server, 9 << 20) if kind == "answers" else ""

    async def attack() -> list[float]:
        if kind == "answers":
            ask, connected = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), set[int]()
            watching = asyncio.create_task(watch(server.port, connected))
            each = [not_read(server.port, ask, number / 100, connected) for number in range(requests)]
            try:
                return await asyncio.gather(*each)
            finally:
                watching.cancel()
        return await asyncio.gather(*(trickle(server.port, head, b"a") for _ in range(requests)))

    latencies(server, lambda count: count < 50)  # the first requests of a process take longer
    idle, memory = latencies(server, lambda count: count < 300), alone.memory()
    with ThreadPoolExecutor(1) as threads:
        attacked = threads.submit(lambda: asyncio.run(attack()))
        busy = latencies(server, lambda count: not attacked.done())
    cut = attacked.result()
    grown = (alone.memory() - memory) / 2**20
    print(
        f"{kind}: cut after {min(cut):.1f} to {max(cut):.1f} s; p95 {1000 * p95(idle):.0f} ms alone, "
        f"{1000 * p95(busy):.0f} ms beside them ({p95(busy) / p95(idle):.2f}x); memory {grown:+.1f} MiB"
    )
    assert max(cut) < 1.5 * limit + 5  # on a busy machine it takes a while until the system takes no more of an answer
    assert p95(busy) < 2 * p95(idle)
    assert grown < 100


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["-H -i 2", "-B -i 2", "-X -w 10 -y 20 -n 5 -z 32 -k 3", "-R -a 10 -b 3000"])
def test_slowhttptest_finds_the_server_available(alone: Process, mode: str):
    """Debian's package: slow headers, slow bodies, slow reading, many ranges."""
    if not shutil.which("slowhttptest"):
        pytest.skip("slowhttptest is not installed")
    url = f"{alone.server.url}/openapi.json" if "-X" in mode else f"{alone.server.url}/translate"
    command = f"slowhttptest {mode} -c 200 -r 100 -l 25 -x 24 -p 3 -u {url}"
    printed = subprocess.run(command.split(), capture_output=True, text=True, timeout=120).stdout
    found = re.findall(r"service available:\S*\s+\S*?(YES|NO)", printed)
    print(mode, len(found), "looks")
    assert set(found) == {"YES"}


@pytest.mark.slow
def test_thousand_endless_bodies_cost_no_memory(alone: Process):
    def send(size: int) -> int:
        """Send a body in chunks; return how many bytes of it the system took before the connection was closed."""
        with alone.server.connect(CHUNKS) as connection:
            sent = 0
            with contextlib.suppress(OSError):
                while sent < size:
                    connection.sendall(b"10000\r\n" + b"a" * 0x10000 + b"\r\n")
                    sent += 0x10000
            return sent

    warm = [send(200 << 20) for _ in range(300)]  # buffers, which are used again
    before = alone.memory()
    sent = [send(200 << 20) for _ in range(1000)]
    grown = (alone.memory() - before) / 2**20
    print(f"taken in: at most {max(sent + warm) / 2**20:.1f} MiB of 200; memory {grown:+.2f} MiB in 1,000 requests")
    assert max(sent) < 16 << 20  # the limit, and what was on its way
    assert grown < 16  # a chunk for each would be 62
