"""A real server in a thread, and what asks it: for the tests of serving."""

import contextlib
import copy
import http.client
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from deepl_contract import Contract

from dragoman.confidence.estimate import Confidence, Reliability
from dragoman.confidence.features import Features
from dragoman.config.serve import ServeConfig
from dragoman.decoding.pool import Pool
from dragoman.decoding.search import Hypothesis
from dragoman.model_folder import add_record, fetch_model
from dragoman.server.app import App
from dragoman.server.keys import Key
from dragoman.server.listening import bind
from dragoman.server.models import Models, open_models, parse_models
from dragoman.server.run import Server, open_detector
from dragoman.server.service import Service
from dragoman.server.table import DIALECTS, ROUTES


class Answer(NamedTuple):
    """The status of an answer, its headers and its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def multipart(fields: Iterable[tuple[str, str]], files: Mapping[str, str] = MappingProxyType({})) -> tuple[bytes, str]:
    """A form as browsers send it, and its content type; files: their texts, by their names."""
    parts = [f'--x\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields]
    for name, text in files.items():
        parts.append(f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n{text}\r\n')
    return ("".join(parts) + "--x--\r\n").encode(), "multipart/form-data; boundary=x"


class Running(NamedTuple):
    """A server that listens on a port of this machine."""

    port: int
    service: Service
    server: Server
    contract: Any = None  # of DeepL, which all answers below /v2 and /v3 are held to

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request: a dict as JSON, bytes and text as they are; headers by names with _ for -."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, dict):
            body, sent = json.dumps(body), {"Content-Type": "application/json", **sent}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def translate(self, q: Any, **fields: Any) -> Answer:
        """Ask for a translation, as the clients of LibreTranslate do."""
        return self.ask("POST", "/translate", {"q": q, "source": "en", "target": "ko", **fields})

    def connect(self, sent: bytes = b"") -> socket.socket:
        """Open a connection and send some bytes."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection.sendall(sent)
        return connection

    def metric(self, name: str) -> float:
        """One of the numbers of /metrics."""
        lines = self.ask("GET", "/metrics").body.decode().splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(name + " ")), 0.0)


CONFIG = ServeConfig(port=0, threads=1)
NOTHING = Features(0, 0, 0, 0, 0, 0, 0, 0)
# Of a model that is as sure of a translation as its tokens are probable, about.
CONFIDENCE = Confidence(
    threshold=50.0,
    offset=100.0,
    weights=NOTHING._replace(log_p_per_token=100.0),
    limits=NOTHING,
    expected=(0.0, 100.0),
    confidence=(0.0, 1.0),
    lowest=-1e6,
    reliability=Reliability(100, 0.75, 0.05, 0.03, ()),
    word=(1.0, 1.0, 2.0),
)
PATIENCE = 300  # seconds that a test waits for an answer, on a machine however busy


DETECTORS: dict[tuple[str, ...], Any] = {}  # by their languages; opening one takes most of the start of a server


def detector_of(models: Models) -> Any:
    """Return the detector that a server with these models has, opened once in a process."""
    languages = tuple(models.languages)
    if languages not in DETECTORS:
        DETECTORS[languages] = open_detector(models)
    return DETECTORS[languages]


def with_confidence(model: Path, out: Path, confidence: Confidence = CONFIDENCE) -> Path:
    """Copy a model to a folder, and write there how sure it may be. Return the folder."""
    shutil.copytree(fetch_model(model), out)
    add_record(out, Confidence.RECORD, confidence.as_json())
    return out


def open_remembering(model: Path, memory: Path, **settings: Any) -> Models:
    """Open a model that translates English into Korean, with a memory."""
    return open_models(replace(CONFIG, memory=(str(memory),), **settings), parse_models([f"en-ko={model}"], None))


@contextlib.contextmanager
def running(models: Models, config: ServeConfig, keys: Sequence[Key] = ()) -> Iterator[Running]:
    """Serve on a free port until the block ends."""
    listener = bind(config)
    service = Service(config, models, keys, detector=detector_of(models))
    contract = Contract(App(service, ROUTES, DIALECTS))
    server = Server(service, contract)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        until(lambda: server.started)
        yield Running(listener.getsockname()[1], service, server, contract)
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
        torch.set_num_threads(1)
    assert contract.broken == []


@contextlib.contextmanager
def running_copying(models: Models, config: ServeConfig, name: str) -> Iterator[Running]:
    """A server whose model copies, tags too, and has this name."""
    (one,) = models.by_pair.values()
    engine: Any = Copying(one.translator.engine)
    with Pool(engine) as pool:
        source, reads_tags = one.source._replace(name=name), copy.copy(one.translator)
        reads_tags.extent = replace(reads_tags.extent, markup=True)
        translator = reads_tags.replace(engine=engine)
        with running(Models([replace(one, source=source, translator=translator, pool=pool)]), config) as started:
            yield started


@contextlib.contextmanager
def running_with_runs(models: Models, folder: Path) -> Iterator[Running]:
    """A server that shows the runs of a folder, and translates with the best checkpoint of one of them, "toy"."""
    (one,) = models.by_pair.values()
    served = replace(one, source=one.source._replace(folder=folder / "toy" / "best"))
    with running(Models([served]), replace(CONFIG, runs=str(folder))) as started:
        yield started


class Process(NamedTuple):
    """A server in a process of its own."""

    server: Running
    number: int

    def memory(self) -> int:
        """Return the bytes of its memory that are in use."""
        return int(Path(f"/proc/{self.number}/statm").read_text().split()[1]) * resource.getpagesize()

    def computed(self) -> float:
        """Return the seconds that it has computed so far, in all of its threads."""
        user, system = Path(f"/proc/{self.number}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def started(model: Path, log: Path, *flags: str) -> Iterator[Process]:
    """Serve a model in a process of its own, which writes what it prints into a file, until the block ends."""
    command = [sys.executable, "-m", "dragoman", "serve", "-m", f"en-ko={model}", "--port", "0", "--threads", "1"]
    with log.open("w") as file, subprocess.Popen([*command, *flags], stderr=file) as process:
        try:
            until(lambda: process.poll() is not None or "health/ready" in log.read_text(), 60)
            port = int(re.findall(r"127\.0\.0\.1:(\d+)", log.read_text())[0])
            yield Process(Running(port, None, None), process.pid)  # type: ignore[arg-type]
        finally:
            process.kill()


def until(condition: Callable[[], Any], seconds: float = 20) -> None:
    """Wait until something has happened."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"nothing has happened for {seconds} seconds"
        time.sleep(0.002)


class Gate:
    """An engine whose steps wait until it is opened, and that may fail in a way that ends its thread."""

    def __init__(self, engine: Any):
        self.engine, self.open, self.steps, self.fails = engine, threading.Event(), 0, False
        self.max_positions = engine.max_positions

    def search(self, *task: Any) -> Any:
        return self.engine.search(*task)

    def search_batch(self, *task: Any, **more: Any) -> Any:
        steps = self.engine.search_batch(*task, **more)
        while True:
            self.open.wait()
            self.steps += 1
            if self.fails:
                raise SystemExit
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            yield


class Copying:
    """An engine whose translations are the texts themselves, once, twice and so on."""

    def __init__(self, engine: Any):
        self.max_positions = engine.max_positions

    def search(self, sources: Any, config: Any, constraints: Any = None) -> Any:
        return [[Hypothesis(list(source) * n, -float(n)) for n in range(1, config.n_best + 1)] for source in sources]

    def search_batch(self, sources: Any, config: Any, constraints: Any, **_: Any) -> Any:
        yield
        return self.search(sources, config)


class Slow:
    """An engine that needs so many seconds for each search, in so many steps, and remembers what it searched for."""

    def __init__(self, engine: Any, seconds: float, steps: int = 48):
        self.engine, self.steps, self.pause = engine, steps, seconds / steps
        self.max_positions = engine.max_positions
        self.searched: list[tuple[int, ...]] = []
        self.taken = 0  # steps

    def search(self, *task: Any) -> Any:
        return self.engine.search(*task)

    def search_batch(self, sources: Any, config: Any, constraints: Any, **_: Any) -> Any:
        self.searched += [tuple(source) for source in sources]
        found = self.engine.search(sources, config, constraints)
        for _step in range(self.steps):
            time.sleep(self.pause)
            self.taken += 1
            yield
        return found
