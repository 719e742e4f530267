"""Being asked to stop: Ctrl-C and SIGTERM. A step is never torn in two; what was learned is saved first."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """Raised where waiting for the end would take too long: while validating."""


class Stop:
    """Whether this process was asked to stop, and by which signal. A second request ends it at once."""

    def __init__(self) -> None:
        self.number = 0
        self.interruptible = False

    def __bool__(self) -> bool:
        return self.number != 0

    def handle(self, number: int, _: FrameType | None) -> None:
        if self:
            raise self.end(number)
        self.number = number
        if self.interruptible:
            raise Interrupted

    @staticmethod
    def end(number: int) -> BaseException:
        """What ends the program: as Ctrl-C does, or with exit code 143 (128 + SIGTERM), so that a script can tell."""
        return SystemExit(128 + number) if number == signal.SIGTERM else KeyboardInterrupt()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside, a request raises Interrupted."""
        if self:
            raise Interrupted
        self.interruptible = True
        try:
            yield
        finally:
            self.interruptible = False


@contextmanager
def asked_to_stop() -> Iterator[Stop]:
    stop = Stop()
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
