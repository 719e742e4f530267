"""Start the server, and stop it without losing a request."""

import asyncio
import contextlib
import errno
import importlib.util
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import uvicorn

from dragoman.config import ComputeType
from dragoman.config.serve import ServeConfig
from dragoman.errors import UsageError, plural
from dragoman.inference.products import resolve_type
from dragoman.runtime.device import device_of
from dragoman.runtime.signals import handle_signals
from dragoman.runtime.threads import leave_out_amx
from dragoman.runtime.waiting import CHANGING
from dragoman.server.app import App
from dragoman.server.files import Results
from dragoman.server.keys import Key, read_keys
from dragoman.server.listening import NOTICE, SILENCE, address_of, allow_connections, bind
from dragoman.server.models import Models, ModelSource, Served, open_models, parse_memories, parse_models
from dragoman.server.protocol import Connections, TimedProtocol
from dragoman.server.service import Service
from dragoman.server.store import PRIVATE
from dragoman.server.table import DIALECTS, ROUTES

if TYPE_CHECKING:
    from dragoman.server.detection import Detector

LAST_STEP = 5.0  # seconds for abandoned searches to end: Python aborts if it exits during one
MAX_HEAD = 16 << 10  # bytes
# Seconds after which a thread lets another one run: the search takes many short steps, between which requests are read.
# With Python's 5 ms, 8 clients got 31 answers a second instead of 38, and the slowest 5 % took 0.38 s, not 0.26 s.
SWITCH = 0.0005
SWEEP_SECONDS = 300.0  # between two looks for documents that are old enough to be deleted
REPORT_SECONDS = 60.0  # between two reports of one error
KEEP_ALIVE = 5  # seconds without a request
SHOWN = 4  # pairs of a model in the greeting


def serve(config: ServeConfig) -> None:
    """Serve until SIGTERM or Ctrl-C; return when all accepted requests are answered, or after `config.grace`.

    Raise UsageError for settings that make no sense, and DragomanError where a model is damaged or the port is taken.
    """
    read_settings(config)
    with bind(config) as listener:
        serve_on(listener, config)


def serve_on(
    listener: socket.socket, config: ServeConfig, greets: bool = True, beat: Callable[[float], None] | None = None
) -> None:
    """Serve on a bound socket, as `serve` does; greets: whether it says what is served. See `Server` for the beat."""
    app = open_app(config)
    sys.setswitchinterval(SWITCH)
    for library in ("uvicorn.error", "python_multipart.multipart"):  # whose warnings advise developers, or quote bytes
        logging.getLogger(library).setLevel(logging.ERROR)
    server = Server(app.service, app, beat)
    if greets:
        server.greeting = describe(config, app.service.models, address_of(listener))
    server.run([listener])
    app.service.models.close(LAST_STEP)


def open_app(config: ServeConfig) -> App:
    """Return the application with its models, warmed up. Raise UsageError and DragomanError as `serve` does."""
    keys, sources = read_settings(config)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # requests have threads enough
    config = replace(config, compute_type=resolved_type(config))
    if config.engine == "native" and config.compute_type == "int8":
        leave_out_amx(os.environ)  # most requests are a few sentences
    models = open_models(config, sources)
    with CHANGING:
        torch.set_num_threads(1)  # for the threads of requests; the search keeps its own number
    return App(Service(config, models, keys, detector=open_detector(models)), ROUTES, DIALECTS)


def resolved_type(config: ServeConfig) -> ComputeType:
    """Return the type that the engine multiplies in, which the setting 'auto' leaves open."""
    if config.compute_type != "auto":
        return config.compute_type
    if config.engine == "native":
        return resolve_type("auto", device_of(config.device))
    from dragoman.interop.ctranslate2.cache import fastest_type

    return fastest_type()


def read_settings(config: ServeConfig) -> tuple[Sequence[Key], Sequence[ModelSource]]:
    """Return the keys and where the models are. Raise UsageError for settings that make no sense."""
    config.check_access()
    keys = read_keys(Path(config.api_keys)) if config.api_keys else []
    if config.api_keys and not keys:
        raise UsageError(f"{config.api_keys}: has no keys")
    if config.runs:
        check_runs(Path(config.runs))
    nothing_yet = config.runs and not config.model
    sources = [] if nothing_yet else parse_models(config.model, config.pivot)
    memories = [("--memory", folder) for folder in parse_memories(config.memory, sources).values()]
    for flag, folder in (("--state", config.state), ("--suggestions", config.suggestions), *memories):
        if folder:
            require_writable(flag, Path(folder))
    return keys, sources


def require_writable(flag: str, folder: Path) -> None:
    """Make a folder if it is missing. Raise UsageError, naming the flag, where it cannot be made or written to."""
    try:
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{flag} {folder}: not a folder") from None
    except OSError as error:
        raise UsageError(f"{flag} {folder}: cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{flag} {folder}: cannot be written to")


def check_runs(folder: Path) -> None:
    """Raise UsageError where a folder cannot have runs in it."""
    if not folder.is_dir():
        raise UsageError(f"--runs {folder}: no such folder")
    if (folder / "config.toml").exists():
        raise UsageError(f"--runs {folder}: this is a run; give the folder that it is in")


def open_detector(models: Models) -> "Detector | None":
    """Return a detector for the languages of the models; None without any, or where its package is not installed."""
    if not models.languages or importlib.util.find_spec("py3langid") is None:
        return None
    from dragoman.server.detection import Detector

    return Detector(models.languages)


def describe(config: ServeConfig, models: Models, address: str) -> str:
    """Return what is served and how to try it."""
    if not models.by_pair:
        ready = f"the runs in {config.runs}; ready: open {address}/runs in a browser"
        return f"{ready}\nto translate, too, name a model: -m FOLDER"
    by_folder: dict[Path, list[Served]] = {}
    for model in models.by_pair.values():
        by_folder.setdefault(model.source.folder, []).append(model)
    lines = [
        f"{name_pairs(group)}: {folder}, {group[0].rate:.1f} sentences/s one after the other"
        for folder, group in by_folder.items()
    ]
    lines += [describe_memory(group) for group in by_folder.values() if group[0].translator.memory]
    pair, engine = next((pair, served.translator.engine) for pair, served in models.by_pair.items())
    fields = f"-d q='A sentence.' -d source={pair.source} -d target={pair.target}"
    key = " -d api_key=KEY" if config.api_keys else ""
    return "\n".join(
        [
            *lines,
            f"{engine!r}, beam {config.beam}; ready: open {address} in a browser, or ask from a program:",
            f"  curl {address}/translate {fields}{key}",
            f"  curl {address}/languages",
            f"  curl {address}/health/ready",
            *([] if config.state else ["documents and glossaries are off; --state FOLDER turns them on"]),
        ]
    )


def describe_memory(served: Sequence[Served]) -> str:
    """Return what a model remembers, and for what that counts."""
    memory = served[0].translator.memory
    assert memory
    only = "" if served[0].remembers == "all" else "; ctranslate2 uses exact matches only, --engine native all of it"
    return f"{name_pairs(served)} remembers {plural(memory.pair_count, 'pair')}: {memory.folder}{only}"


def name_pairs(served: Sequence[Served]) -> str:
    """Return the pairs of a model: 'en-de, de-en', and how many more there are."""
    more = len(served) - SHOWN
    return ", ".join(str(model.pair) for model in served[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def accept_all(listener: socket.socket) -> Iterator[socket.socket]:
    """Yield the connections that wait to be accepted, as many as this process can have."""
    with contextlib.suppress(OSError):  # there is none any more, or no more files can be open
        while True:
            yield listener.accept()[0]


class Server(uvicorn.Server):
    """Run uvicorn, but stop as a server behind a proxy must: announce it first, then stop listening."""

    def __init__(self, service: Service, app: App, beat: Callable[[float], None] | None = None):
        """Take the application and what it serves.

        beat: is called each second with the seconds that may pass until the next call, unless the server is stuck. With
        a beat, the process that hears it decides when this one ends at once, so further signals do nothing here.
        """
        config = service.config
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(TimedProtocol, among=Connections(allow_connections(), config.proxy)),  # type: ignore[arg-type]
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
                callback_notify=self._beat,
                timeout_notify=0,
            )
        )
        self.service, self.greeting, self.beat = service, "", beat
        self.next_report = 0.0  # of an error that comes often, by the loop's clock
        self.loop: asyncio.AbstractEventLoop | None = None

    async def _beat(self) -> None:
        """Measure the wait, and say that the server goes on; uvicorn calls it each second until it stops listening."""
        self.service.metrics.wait.set(self.service.models.wait())
        if self.beat and self.service.stopping:
            self.beat(NOTICE + self.service.config.grace + SILENCE)
        elif self.beat and self.service.alive:
            self.beat(SILENCE)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(self._report)
        if self.service.stopping:  # a signal came before there was a loop
            self.loop.call_later(NOTICE, self._stop_listening)
        await super().startup(sockets)
        if self.greeting:
            print(self.greeting, file=sys.stderr, flush=True)
        if self.service.config.state:
            self._sweep()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening; clients that have connected by now are served, as closing the socket would cut them."""
        loop, listeners = asyncio.get_running_loop(), sockets or []
        for listener in listeners:
            loop.remove_reader(listener)
        await asyncio.sleep(0)  # asyncio drops those that it has accepted, but not yet taken, when its server is closed
        waiting = [connection for listener in listeners for connection in accept_all(listener)]
        for server in self.servers:  # at once: whoever connects between these two lines is cut
            server.close()
        protocol: Any = self.config.http_protocol_class
        take = partial(protocol, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        await asyncio.gather(*(loop.connect_accepted_socket(take, connection) for connection in waiting))
        await super().shutdown(listeners)

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report an error of the event loop; at most once a minute that no more files can be opened.

        asyncio does so some two thousand times a second, each time with a traceback.
        """
        if getattr(context.get("exception"), "errno", None) not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif loop.time() >= self.next_report:
            self.next_report = loop.time() + REPORT_SECONDS
            print("error: too many open files: new connections have to wait", file=sys.stderr, flush=True)

    def _sweep(self) -> None:
        """Delete old documents, now and from time to time."""
        assert self.loop
        self.loop.run_in_executor(None, Results(self.service.config.state_folder).sweep)
        self.loop.call_later(SWEEP_SECONDS, self._sweep)

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Handle signals within a block; unlike uvicorn's own, this lets the program end with exit code 0."""
        return handle_signals((signal.SIGINT, signal.SIGTERM), self.handle_exit)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after a notice at the first signal, at once at the second."""
        if self.service.stopping:
            if not self.beat:
                os._exit(1)
            return
        self.service.stopping = True
        if self.loop:
            self.loop.call_soon_threadsafe(self.loop.call_later, NOTICE, self._stop_listening)

    def _stop_listening(self) -> None:
        """End the main loop: uvicorn then closes the listener and waits for what was accepted."""
        self.should_exit = True
