"""Handle signals inside a block."""

import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextmanager
def handle_signals(numbers: Collection[int], handler: Handler) -> Iterator[None]:
    """Let `handler` handle the signals inside the block, and what handled them before, after it.

    Only the main thread may handle signals: in others, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit in the block, with code 128 + number, so that it can clean up.

    SIGHUP comes when a terminal is closed; under nohup it stays ignored.
    """

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    with handle_signals(numbers, leave):
        yield
