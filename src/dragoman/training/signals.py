"""Stop on Ctrl-C, SIGTERM and SIGHUP after the step in progress, with everything saved."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class GracefulStop:
    """True once a signal has asked this process to stop; `number` is the first one.

    The same signal again ends the process at once, but not within `same_request` seconds, because torchrun may pass on
    the one we got. Another signal does not: supervisors send SIGINT and, if a step takes its time, SIGTERM.
    """

    def __init__(self, same_request: float = 1.0) -> None:
        self.number, self.same_request = 0, same_request
        self.received: dict[int, float] = {}  # when each signal came first

    def __bool__(self) -> bool:
        """Return whether a signal has asked this process to stop."""
        return self.number != 0

    def handle(self, number: int, _: FrameType | None) -> None:
        """Remember that the signal `number` came.

        If the same one has come before, more than `same_request` seconds ago, raise what `exit_for` returns.
        """
        self.number = self.number or number
        if time.monotonic() - self.received.setdefault(number, time.monotonic()) > self.same_request:
            raise exit_for(number)


def exit_for(number: int) -> BaseException:
    """Return the exception to raise after a signal: KeyboardInterrupt for Ctrl-C, else SystemExit with 128 + number."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


@contextmanager
def end_at_once() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the process at once inside the block, where there is nothing to save.

    A handler of Python runs only between two of its own operations, and a library may compute for minutes.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield
        return
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


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
    before = [signal.signal(number, stop.handle) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
