"""Handle signals inside a block."""

import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextmanager
def handle_signals(numbers: Collection[int], handler: Handler) -> Iterator[None]:
    """Let `handler` handle the signals inside the block, and what handled them before, after it.

    Only the main thread may handle signals: in others, nothing changes. A program in C that runs Python keeps the
    signals that it handles itself, because Python could not give them back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with ExitStack() as stack:  # which gives back all of them, even if one more signal comes meanwhile
        for number in numbers:
            previous = signal.getsignal(number)
            if previous is not None:
                stack.callback(signal.signal, number, previous)
                signal.signal(number, handler)
        yield


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
