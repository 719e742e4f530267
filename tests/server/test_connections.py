"""How many connections a server has, of whom, and which requests on them it reads."""

import contextlib
import errno
import socket
import subprocess
import sys
from dataclasses import replace

import pytest
from serving import CONFIG, running, until

from dragoman.server import run
from dragoman.server.models import Models
from dragoman.server.protocol import Connections


def test_connections_beyond_what_the_system_grants_are_cut_at_once(models: Models, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run, "allow_connections", lambda: 3)
    proxied = replace(CONFIG, proxy=("127.0.0.0/8",))  # which has no share but all
    with running(models, proxied) as server, contextlib.ExitStack() as opened:
        idle = [opened.enter_context(server.connect()) for _ in range(3)]
        until(lambda: len(server.server.server_state.connections) == 3)
        for _ in range(5):
            with pytest.raises(ConnectionError):
                server.translate("A dog.")
        idle.pop().close()
        until(lambda: len(server.server.server_state.connections) == 2)
        assert server.translate("A dog.").status == 200


def test_connections_are_shared_by_addresses(models: Models, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run, "allow_connections", lambda: 16)
    with running(models, CONFIG) as server, contextlib.ExitStack() as opened:

        def connect() -> socket.socket:
            place = ("127.0.0.1", server.port)
            return opened.enter_context(socket.create_connection(place, timeout=20, source_address=("127.0.0.2", 0)))

        for _ in range(10):
            connect()
        until(lambda: len(server.server.server_state.connections) == 4)
        with pytest.raises(ConnectionResetError):
            connect().recv(1)
        assert server.translate("A dog.").status == 200  # from 127.0.0.1


@pytest.mark.parametrize(
    ("proxies", "client", "holder"),
    [
        ((), "10.0.0.1", "10.0.0.1"),
        (("10.0.0.1",), "10.0.0.1", "10.0.0.1 7"),
        (("10.0.0.0/8",), "::ffff:10.1.2.3", "10.1.2.3 7"),
        (("10.0.0.0/8",), "11.1.2.3", "11.1.2.3"),
        (("*",), "2001:db8::1", "2001:db8::/64 7"),
        (("10.0.0.0/8",), "2001:db8::1", "2001:db8::/64"),
        (("*",), "nobody", "-"),
    ],
)
def test_connection_counts_for_its_address_but_that_of_a_proxy(proxies: tuple[str, ...], client: str, holder: str):
    assert Connections(5, proxies).holder((client, 7)) == holder
    assert Connections(5, proxies).holder(None) == "-"


@pytest.mark.parametrize(("granted", "connections"), [(64, 32), (1024, 768), (4096, 2048)])
def test_server_opens_as_many_files_as_the_system_grants(granted: int, connections: int):
    code = (
        "import resource; from dragoman.server.listening import allow_connections as allow; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (32, {granted})); "
        "print(allow(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{connections} {granted} {granted}\n"


def test_lack_of_file_handles_is_logged_once_and_other_errors_each_time(
    models: Models, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    with running(models, CONFIG) as server:
        loop = server.server.loop
        assert loop
        for error in (OSError(errno.EMFILE, "x"), OSError(errno.ENFILE, "x"), ValueError("mine"), ValueError("mine")):
            loop.call_soon_threadsafe(loop.call_exception_handler, {"message": "socket.accept()", "exception": error})
        assert server.translate("A dog.").status == 200
        assert capfd.readouterr().err.count("too many open files") == 1
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ValueError, ValueError]


def test_request_with_two_lengths_is_refused_and_the_rest_unread(models: Models):
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    behind = b"0\r\n\r\nGET /languages HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running(models, CONFIG) as server, server.connect(head + behind) as connection:
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    ("host", "other", "status"),
    [("localhost", "evil.example", 200), ("evil.example", "localhost", 403), ("LOCALHOST:80", "localhost", 200)],
)
def test_target_may_name_the_host_which_then_counts(models: Models, host: str, other: str, status: int):
    with running(models, CONFIG) as server:
        head = f"GET http://{host}/languages?x=http://y HTTP/1.1\r\nHost: {other}\r\nConnection: close\r\n\r\n"
        with server.connect(head.encode()) as connection:
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
