"""Being asked to stop: Ctrl-C and SIGTERM. A step is never torn in two; what was learned is saved first."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SAME = 1.0  # seconds: torchrun and whoever stopped it may both pass a signal on, and that is one request


class GracefulStop:
    """Whether this process was asked to stop, and by which signal. A second request ends it at once."""

    def __init__(self) -> None:
        self.number, self.since = 0, 0.0

    def __bool__(self) -> bool:
        return self.number != 0

    def handle(self, number: int, _: FrameType | None) -> None:
        if not self:
            self.number, self.since = number, time.monotonic()
        elif time.monotonic() - self.since > SAME:
            raise ended_by(number)


def ended_by(number: int) -> BaseException:
    """What ends the program: as Ctrl-C does, or with exit code 143 (128 + SIGTERM), so that a script can tell."""
    return SystemExit(128 + number) if number == signal.SIGTERM else KeyboardInterrupt()


@contextmanager
def asked_to_stop() -> Iterator[GracefulStop]:
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
