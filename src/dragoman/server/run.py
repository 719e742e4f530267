"""Start the server, and stop it without losing a request."""

import asyncio
import importlib.util
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import torch
import uvicorn

from dragoman.config.serve import ServeConfig
from dragoman.errors import DragomanError, UsageError
from dragoman.server.app import App
from dragoman.server.files import Results
from dragoman.server.keys import read_keys
from dragoman.server.models import Models, open_models, parse_models
from dragoman.server.protocol import TimedProtocol
from dragoman.server.service import Service
from dragoman.server.table import DIALECTS, ROUTES

if TYPE_CHECKING:
    from dragoman.server.detection import Detector

NOTICE = 2.0  # seconds between SIGTERM and the end of listening, in which others learn not to send requests here
MAX_HEAD = 16 << 10  # bytes
# Seconds after which a thread lets another one run: the search takes many short steps, between which requests are read.
# With Python's 5 ms, 8 clients got 31 answers a second instead of 38, and the slowest 5 % took 0.38 s, not 0.26 s.
SWITCH = 0.0005
SWEEP_SECONDS = 300.0  # between two looks for documents that are old enough to be deleted
KEEP_ALIVE = 5  # seconds without a request


def serve(config: ServeConfig) -> None:
    """Serve until SIGTERM or Ctrl-C; return when all accepted requests are answered, or after `config.grace`.

    Raise UsageError for settings that make no sense, and DragomanError where a model is damaged or the port is taken.
    """
    server, listener = prepare(config)
    sys.setswitchinterval(SWITCH)
    with listener:
        server.greeting = describe(config, server.service.models, address_of(listener))
        server.run([listener])
        server.service.models.close(0.0)


def prepare(config: ServeConfig) -> tuple["Server", socket.socket]:
    """Return a server with its models, warmed up, and what it is to listen on. Raise as `serve` does."""
    config.check_access()
    keys = read_keys(Path(config.api_keys)) if config.api_keys else []
    if config.api_keys and not keys:
        raise UsageError(f"{config.api_keys}: has no keys")
    sources = parse_models(config.model, config.pivot)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # requests have threads enough
    listener = bind(config)
    try:
        models = open_models(config, sources)
    except BaseException:
        listener.close()
        raise
    torch.set_num_threads(1)  # of requests, for what they compute beside the search; the search keeps its own
    service = Service(config, models, keys, detector=open_detector(models))
    return Server(service, App(service, ROUTES, DIALECTS)), listener


def open_detector(models: Models) -> "Detector | None":
    """Return a detector for the languages of the models; None where its package is not installed."""
    if importlib.util.find_spec("py3langid") is None:
        return None
    from dragoman.server.detection import Detector

    return Detector(models.languages)


def bind(config: ServeConfig) -> socket.socket:
    """Return a socket that is bound to the address of the settings. Raise DragomanError where that is not possible."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise DragomanError(f"cannot listen on {config.host}:{config.port}: {error.strerror or error}") from None
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the address of a server for clients on this machine: 'http://127.0.0.1:5000'."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def describe(config: ServeConfig, models: Models, address: str) -> str:
    """Return what is served and how to try it."""
    lines = [
        f"{one.pair}: {one.source.folder}, {one.rate:.1f} sentences/s one after the other"
        for one in models.by_pair.values()
    ]
    name = config.engine if config.engine == "native" else f"{config.engine} {config.compute_type}"
    pair = next(iter(models.by_pair))
    fields = f"-d q='A sentence.' -d source={pair.source} -d target={pair.target}"
    key = " -d api_key=KEY" if config.api_keys else ""
    return "\n".join(
        [
            *lines,
            f"engine {name}, beam {config.beam}; ready at {address}",
            f"  curl {address}/translate {fields}{key}",
            f"  curl {address}/languages{'?api_key=KEY' if key else ''}",
            f"  curl {address}/health/ready",
        ]
    )


class Server(uvicorn.Server):
    """uvicorn, which stops as a server behind others has to: first it says so, then it stops listening."""

    def __init__(self, service: Service, app: App):
        """Take the application and what it serves."""
        config = service.config
        super().__init__(
            uvicorn.Config(
                app,
                http=TimedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=bool(config.proxy),
                forwarded_allow_ips=list(config.proxy),
                h11_max_incomplete_event_size=MAX_HEAD,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=max(1, round(config.grace)),
            )
        )
        self.service, self.greeting = service, ""
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.greeting:
            print(self.greeting, file=sys.stderr, flush=True)
        if self.service.config.state:
            self._sweep()

    def _sweep(self) -> None:
        """Delete old documents, now and from time to time."""
        assert self.loop
        self.loop.run_in_executor(None, Results(self.service.config.state_folder).sweep)
        self.loop.call_later(SWEEP_SECONDS, self._sweep)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals within the block; unlike uvicorn's own, this lets the program end with exit code 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after a notice at the first signal, at once at the second."""
        if self.service.stopping:
            os._exit(1)
        self.service.stopping = True
        if self.loop:
            self.loop.call_soon_threadsafe(self.loop.call_later, NOTICE, self._stop_listening)

    def _stop_listening(self) -> None:
        """End the main loop: uvicorn then closes the listener and waits for what was accepted."""
        self.should_exit = True
