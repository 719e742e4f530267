"""Stop on Ctrl-C, SIGTERM and SIGHUP after the step in progress, with everything saved."""

import os
import signal
import socket
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from dragoman.runtime.signals import handle_signals

GRACE = 1.0  # seconds that a process gets to end by itself


class GracefulStop:
    """True once a signal has asked this process to stop; `number` is the first one.

    The same signal again ends the process at once, but not within `same_request` seconds, because torchrun may pass on
    the one we got. Another signal does not: supervisors send SIGINT and, if a step takes its time, SIGTERM.
    """

    def __init__(self, same_request: float = 1.0) -> None:
        self.number, self.same_request = 0, same_request
        self.handled: dict[int, float] = {}  # when each signal was handled first
        self.terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def __bool__(self) -> bool:
        """Return whether a signal has asked this process to stop."""
        return self.number != 0

    def handle(self, number: int, _: FrameType | None) -> None:
        """Remember that the signal `number` came. Raise what `exit_for` returns where it is a second request."""
        self.number = self.number or number
        if number == signal.SIGHUP:
            self.leave_terminals()
        if self.is_second(number, self.handled):
            raise exit_for(number)

    def leave_terminals(self) -> None:
        """Let what would be written to a terminal go nowhere: it is closed, and writing to it fails."""
        with Path(os.devnull).open("wb") as nowhere:
            for descriptor in self.terminals:
                os.dup2(nowhere.fileno(), descriptor)

    def is_second(self, number: int, first: dict[int, float]) -> bool:
        """Return whether a signal first came over `same_request` seconds ago, by `first`, which is filled in here."""
        return time.monotonic() - first.setdefault(number, time.monotonic()) > self.same_request

    def watch(self, signals: socket.socket, requests: Collection[int]) -> None:
        """End the process GRACE seconds after a second request, whatever it is doing.

        Python runs `handle` between two of its own instructions only, and a process that waits for another one, which
        may be gone, runs none. signals: where Python writes the number of each signal as it comes, until it is closed;
        requests: which of them ask to stop.
        """
        arrived: dict[int, float] = {}
        with signals:
            while numbers := signals.recv(1):
                if numbers[0] in requests and self.is_second(numbers[0], arrived):
                    time.sleep(GRACE)
                    os._exit(128 + numbers[0])


def exit_for(number: int) -> BaseException:
    """Return the exception to raise after a signal: KeyboardInterrupt for Ctrl-C, else SystemExit with 128 + number."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


@contextmanager
def end_at_once() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the process at once inside the block, where there is nothing to save.

    A handler of Python runs only between two of its own operations, and a library may compute for minutes.
    """
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    with handle_signals(numbers, signal.SIG_DFL):
        yield


@contextmanager
def graceful_stop() -> Iterator[GracefulStop]:
    """Yield a GracefulStop that Ctrl-C, SIGTERM and SIGHUP set inside the block instead of ending the process.

    SIGHUP comes when a terminal or an ssh connection is closed; under nohup it stays ignored.
    """
    stop = GracefulStop()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield stop
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    threading.Thread(target=stop.watch, args=[reader, numbers], daemon=True).start()
    with writer, handle_signals(numbers, stop.handle):
        descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield stop
        finally:
            signal.set_wakeup_fd(descriptor)
