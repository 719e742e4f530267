"""Stop on Ctrl-C and SIGTERM after the step in progress, with everything saved."""

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
        """Handle the signal `number`: remember it; if it asks a second time, raise what `exit_for` returns."""
        self.number = self.number or number
        if time.monotonic() - self.received.setdefault(number, time.monotonic()) > self.same_request:
            raise exit_for(number)


def exit_for(number: int) -> BaseException:
    """Return the exception to raise after a signal: KeyboardInterrupt, or SystemExit with code 143 for SIGTERM."""
    return SystemExit(128 + number) if number == signal.SIGTERM else KeyboardInterrupt()


@contextmanager
def graceful_stop() -> Iterator[GracefulStop]:
    """Yield a GracefulStop that Ctrl-C and SIGTERM set inside the block instead of ending the process."""
    stop = GracefulStop()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield stop
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, stop.handle) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
