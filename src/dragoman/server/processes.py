"""Serve with several processes, which share the socket that they listen on, the folder --state, and nothing else.

This process only watches them, so it does not load PyTorch. uvicorn has a supervisor, too, but its processes do not
stop as ours do (see `Server`). While stopping, it would wait forever for one that is halted, it notices neither
an event loop nor a model that is stuck, and if it is killed its processes go on.
"""

import math
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from types import FrameType

from dragoman.config.serve import ServeConfig
from dragoman.errors import DragomanError, listed
from dragoman.runtime.signals import handle_signals
from dragoman.runtime.threads import granted_cores
from dragoman.server.listening import NOTICE, SILENCE, bind

SPAWN = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
LOOK = 0.25  # seconds
PAUSE = 5.0  # seconds before another process is started where one has not become ready
START, STARTS = 60.0, 10  # seconds that a process may take to start, and how many times as long as the first one took
Manifests = dict[str, dict[str, tuple[int, str]]]
"""The manifests of the models that are served, by what --model says, as `read_manifests` returns them."""


class ReplacedError(DragomanError):
    """A model is not the one that the other processes serve."""


class Worker:
    """A process that serves, and what it has said of itself."""

    def __init__(
        self,
        config: ServeConfig,
        listener: socket.socket,
        counts: str,
        patience: float = math.inf,
        beside: Manifests | None = None,
    ):
        """Start it; counts: the folder for what all of them count.

        patience: seconds that it may take to start. The first one has as many as it needs, and says what is served.
        beside: the models that the others serve; it ends if those that it finds are others.
        """
        self.pipe, other_end = SPAWN.Pipe(duplex=False)
        arguments = (config, listener, other_end, counts, patience == math.inf, beside)
        self.process = SPAWN.Process(target=work, args=arguments)
        self.process.start()
        self.began = time.monotonic()
        other_end.close()
        self.ready = self.stop_sent = False  # that it serves; that it shall stop
        self.models: Manifests | None = None  # that it serves
        self.error: DragomanError | None = None  # why it could not start
        self.expires = self.began + patience  # when it counts as stuck, unless it is heard of before
        self.last_word = NOTICE + config.grace + SILENCE  # seconds that it has when it shall stop

    def hear(self) -> None:
        """Take in what it says: its models, for how many seconds it may be silent, or why it could not start."""
        try:
            said = self.pipe.recv()
        except (EOFError, OSError):  # it has ended
            self.process.join()
            return
        if isinstance(said, DragomanError):
            self.error = said
        elif isinstance(said, dict):
            self.models = said
        else:
            self.ready, self.expires = True, time.monotonic() + said

    def check(self, stopping: bool) -> None:
        """End it if it is stuck, and ask it to stop if all shall."""
        if time.monotonic() > self.expires:
            self.process.kill()
        elif stopping and not self.stop_sent:
            self.process.terminate()
            self.stop_sent, self.expires = True, min(self.expires, time.monotonic() + self.last_word)

    def end(self) -> str:
        """Return how it has ended: 'signal 9' or 'exit code 1'."""
        code = self.process.exitcode or 0
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def supervise(config: ServeConfig) -> None:
    """Serve with `config.processes` processes until SIGTERM or Ctrl-C; a second signal ends all at once.

    A process that dies or is stuck is replaced. The first one starts alone, to show whether the settings are right; its
    error is raised here. End the program with exit code 1 where a process did not end by itself.
    """
    from prometheus_client.multiprocess import mark_process_dead  # not above: `work` first says where the counts are

    config.check_access()
    if config.engine == "native":  # CTranslate2 has replicas instead, see `open_models`
        config = replace(config, threads=config.threads or max(1, granted_cores() // config.processes))
    stopping, failed, patience = threading.Event(), False, math.inf
    replaced = False  # whether there is another model than the workers have
    workers: list[Worker] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if stopping.is_set():
            for worker in workers:
                worker.process.kill()
        stopping.set()

    with (
        handle_signals((signal.SIGINT, signal.SIGTERM), stop),
        bind(config) as listener,
        tempfile.TemporaryDirectory(prefix="dragoman-") as counts,
    ):
        workers.append(Worker(config, listener, counts))
        while workers:
            by_pipe = {worker.pipe: worker for worker in workers}
            for pipe in wait(list(by_pipe), LOOK):
                assert isinstance(pipe, Connection)
                by_pipe[pipe].hear()
            if patience == math.inf and workers[0].ready:
                patience = max(START, STARTS * (time.monotonic() - workers[0].began))
            proven = patience < math.inf
            if stopping.is_set():
                listener.close()  # else clients could connect when nobody answers any more
            for worker in workers:
                worker.check(stopping.is_set())
            for worker in [worker for worker in workers if worker.process.exitcode is not None]:
                workers.remove(worker)
                assert worker.process.pid
                mark_process_dead(worker.process.pid, counts)
                if stopping.is_set():  # SIGTERM is not caught while one starts
                    failed = failed or worker.process.exitcode not in (0, -signal.SIGTERM)
                elif not proven:
                    raise worker.error or DragomanError(f"the server exited during startup ({worker.end()})")
                else:
                    replaced = bool(workers) and (replaced or isinstance(worker.error, ReplacedError))
                    then = "the others continue without it" if replaced else "another one starts"
                    say(f"process {worker.process.pid} has ended ({worker.error or worker.end()}); {then}")
                    if not (worker.ready or replaced):
                        stopping.wait(PAUSE)
            while proven and not (stopping.is_set() or replaced) and len(workers) < config.processes:
                beside = next((worker.models for worker in workers if worker.ready), None)
                workers.append(Worker(config, listener, counts, patience, beside))
    if failed:
        sys.exit(1)


def say(message: str) -> None:
    """Write a line of the log."""
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {message}", file=sys.stderr, flush=True)


def work(
    config: ServeConfig, listener: socket.socket, pipe: Connection, counts: str, first: bool, beside: Manifests | None
) -> None:
    """Serve in this process; report through the pipe that it is alive, or why it could not start.

    beside: the models that other processes serve, None where there are none. One text must not get two translations, so
    those that were replaced since then are not served.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all, and the one that watches says when
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = counts  # prometheus_client looks for it when it is loaded
    from dragoman.server.models import read_manifests
    from dragoman.server.run import serve_on

    def beat(seconds: float) -> None:
        try:
            pipe.send(seconds)
        except BlockingIOError:
            pass
        except BrokenPipeError:  # nobody watches any more: this server ends, so that another one can listen
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        models = read_manifests(config.model)
        if beside and (changed := listed(text for text in models if models[text] != beside[text])):
            raise ReplacedError(f"{changed}: replaced while it was served; restart the server to serve the new model")
        pipe.send(models)
        os.set_blocking(pipe.fileno(), False)  # nobody may be reading: then the message is lost
        serve_on(listener, config, first, beat)
    except DragomanError as error:
        pipe.send(error)
