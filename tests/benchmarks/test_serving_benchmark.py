"""The benchmark of serving: clients that count right, texts of one length, and, slowly, all of it on a small scale."""

import http.server
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import write_tsv

from benchmarks import clients
from benchmarks.clients import REFUSED, UNANSWERED, Plan, Request, ask
from benchmarks.options import SERVING_PARTS
from benchmarks.serving import PARTS, benchmark
from benchmarks.serving_tasks import LENGTH, percentile, texts_of_length
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import Tokenizer
from dragoman.errors import UsageError


class Stub(http.server.ThreadingHTTPServer):
    """A server that answers after a while with the status that a request asks for; 'cut': it closes the connection."""

    request_queue_size = 256
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seconds, self.got, self.most, self.now, self.lock = 0.0, list[str](), 0, 0, threading.Lock()

    def handle_error(self, *_: object) -> None:
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with self.server.lock:
            self.server.got.append(body)
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
        time.sleep(self.server.seconds)
        with self.server.lock:
            self.server.now -= 1
        if body == "cut":
            self.close_connection = True
            return
        self.send_response(int(body.split()[0]))
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_requests_are_sent_once_each_by_the_planned_clients(stub: Stub):
    stub.seconds = 0.05
    requests = [Request("/", f"{200 if number % 3 else 503} {number}") for number in range(30)]
    answers = ask(Plan(stub.server_port, requests, 6))
    assert sorted(stub.got) == sorted(request.body for request in requests)
    assert stub.most == 6
    assert {one.request: one.status for one in answers} == {n: 200 if n % 3 else 503 for n in range(30)}
    assert all(0.05 <= one.seconds < 5 for one in answers)
    assert answers == sorted(answers, key=lambda one: one.due)


@pytest.mark.slow
def test_requests_at_a_rate_do_not_wait_for_answers(stub: Stub):
    """The control: clients that wait send far fewer."""
    stub.seconds = 0.5
    requests = [Request("/", "200")] * 3
    answers = ask(Plan(stub.server_port, requests, 64, 2.0, rate=50.0))
    assert 60 < len(answers) == len(stub.got) < 150
    assert {one.status for one in answers} == {200}
    stub.got.clear()
    assert len(ask(Plan(stub.server_port, requests, 2, 2.0))) == len(stub.got) <= 10


def test_clients_know_what_was_not_answered(stub: Stub):
    assert [one.status for one in ask(Plan(stub.server_port, [Request("/", "cut")], 1))] == [UNANSWERED]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert [one.status for one in ask(Plan(port, [Request("/", "200")], 3, 5.0))] == [REFUSED] * 2


def test_clients_are_programs_without_dragoman():
    assert not re.search(r"^\s*(from|import) dragoman", Path(clients.__file__).read_text("utf-8"), re.MULTILINE)


def test_percentiles():
    values = list(range(100, 0, -1))
    assert [percentile(values, share) for share in (0.01, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert percentile([7.0], 0.99) == 7


def test_texts_of_one_length_have_it(tokenizer: Tokenizer, pairs: list[Pair]):
    sentences = [source for source, _ in pairs]
    texts = texts_of_length(LENGTH, sentences, tokenizer)
    assert len(texts) == len(set(texts)) > 20
    assert {len(ids) + 1 for ids in tokenizer.encode_all(texts)} == {LENGTH}
    with pytest.raises(UsageError, match="too small"):
        texts_of_length(LENGTH, sentences[:2], tokenizer)


@pytest.mark.slow
def test_benchmark_of_serving_runs_and_loses_nothing(trained: Path, pairs: list[Pair], tmp_path: Path):
    """All parts, as briefly as possible: figures mean nothing here, but no request may fail."""
    test = write_tsv(tmp_path / "test.tsv", pairs)
    assert tuple(PARTS) == SERVING_PARTS
    report = benchmark(str(trained), test, SERVING_PARTS, threads=1, rounds=1, seconds=1.0, minutes=0.1, requests=500)
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", report, re.MULTILINE))
    for title in ("one length", "mixed lengths"):
        assert rows[f"{title}: refused, otherwise failed"] == "0, 0", report
    nothing = ("other answers", "sent and not answered", "exit code")
    assert [rows[name] for name in nothing] == ["0"] * len(nothing), report
    assert rows["answered, refused, neither"].endswith(", 0")
    assert [rows["accepted"]] == re.findall(r"accepted \| \S+ \| (\S+):", report)
    assert report.count("\n### ") == len(SERVING_PARTS) + 1  # throughput has two
