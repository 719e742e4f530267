"""Clients without a key, as many as there may be: they are refused or wait, and those with a key do not notice."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Process, multipart, started, until
from test_slow_clients import latencies, p95

from dragoman.server.keys import add_key

ROOT = Path(__file__).parents[1]
SECONDS = 20.0  # of an attack: longer than heads may take, so the clients come again


@pytest.fixture(scope="module")
def locked(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, str]]:
    """A server with keys, in a process of its own; and a key."""
    folder = tmp_path_factory.mktemp("locked")
    key = add_key(folder / "keys.json", "polite")
    flags = ("--api-keys", str(folder / "keys.json"), "--state", str(folder / "state"), "--rate", "0")
    with started(trained, folder / "log", *flags) as process:
        yield process, key


@contextlib.contextmanager
def attacked(port: int, *kinds: str) -> Iterator[None]:
    with subprocess.Popen([sys.executable, ROOT / "attack.py", str(port), *kinds]) as attack:
        try:
            yield
        finally:
            attack.kill()


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [("large=24", "medium=75", "heads=1"), ("small=100",), ("heads=50", "asks=50")])
def test_client_with_a_key_is_as_fast_beside_a_hundred_without(locked: tuple[Process, str], kinds: tuple[str, ...]):
    """And its documents get through."""
    (alone, key), sent = locked, list[int]()
    form, form_type = multipart([("source", "en"), ("target", "ko")], {"a.html": f"A dog.<!--{'x' * 400_000}-->"})
    headers = {"Authorization": f"Bearer {key}", "Content_Type": form_type}
    latencies(alone.server, lambda count: count < 50, api_key=key)  # the first requests of a process take longer
    before = latencies(alone.server, lambda count: count < 200, api_key=key)
    with attacked(alone.server.port, *kinds):
        time.sleep(3)
        end = time.monotonic() + SECONDS
        busy = latencies(alone.server, lambda count: time.monotonic() < end, api_key=key)
        for path in ("/api/v1/documents", "/translate_file"):
            sent += [alone.server.ask("POST", path, form, **headers).status for _ in range(10)]
    after = latencies(alone.server, lambda count: count < 200, api_key=key)
    idle = max(p95(before), p95(after))
    alone_ms, busy_ms = f"{1000 * p95(before):.0f} and {1000 * p95(after):.0f} ms", f"{1000 * p95(busy):.0f} ms"
    print(f"{' '.join(kinds)}: p95 {alone_ms} alone, {busy_ms} beside them ({p95(busy) / idle:.2f}x); documents {sent}")
    assert sent == [201] * 10 + [200] * 10
    assert p95(busy) < 1.5 * idle


@pytest.mark.slow
def test_memory_of_two_thousand_connections_without_a_key_is_bounded(locked: tuple[Process, str]):
    alone, _ = locked
    with attacked(alone.server.port, "small=500"):
        time.sleep(5)  # buffers, which are used again
    until(lambda: alone.server.ask("GET", "/health").status == 200)
    time.sleep(1)
    memory, most = alone.memory(), 0
    with attacked(alone.server.port, "small=2000"):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            most = max(most, alone.memory())
            time.sleep(0.2)
    grown = (most - memory) / 2**20
    print(f"memory {grown:+.0f} MiB beside 2,000 connections, each with 65,000 bytes of a request")
    assert grown < 64
