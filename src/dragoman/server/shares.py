"""Share out what a server has little of, so that nobody takes what others need: memory, connections, places, turns."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dragoman.decoding.rows import Ticket

LOOK = 0.5  # seconds between two looks at whether a document that waits for its turn was deleted


class Shares:
    """So much of something, of which each holder gets a share.

    A holder with nothing gets some as long as there is any. A holder with some gets more only up to a third of what is
    left then. So one alone gets a quarter, the next ones less and less, and something stays for those to come.
    """

    def __init__(self, size: int):
        self.left = size
        self.held: dict[str, int] = {}
        self.lock = threading.Lock()

    def has_room(self, holder: str, amount: int) -> bool:
        """Return whether a holder may have so much more."""
        held, left = self.held.get(holder, 0), self.left - amount
        return left >= 0 and (not held or 3 * (held + amount) <= left)

    def take(self, holder: str, amount: int) -> bool:
        """Let a holder have so much more; return whether it may."""
        with self.lock:
            if amount and not self.has_room(holder, amount):
                return False
            self._change(holder, amount)
            return True

    def give_back(self, holder: str, amount: int) -> None:
        """Take so much from a holder again."""
        with self.lock:
            self._change(holder, -amount)

    def _change(self, holder: str, amount: int) -> None:
        self.left -= amount
        held = self.held.pop(holder, 0) + amount
        if held:
            self.held[holder] = held


class Turns:
    """Let so many threads work at a time. Callers take turns; of one caller, the oldest ticket goes first."""

    def __init__(self, places: int):
        self.free = places
        self.waiting: dict[str, list[Ticket]] = {}  # by caller, whose turn is next first
        self.changed = threading.Condition()

    @contextmanager
    def turn(self, caller: str, ticket: Ticket) -> Iterator[None]:
        """Wait for a turn, and have it for the length of a block. Raise Gone if the ticket is cancelled before."""
        with self.changed:
            self.waiting.setdefault(caller, []).append(ticket)
            try:
                while not (self.free and self._is_next(caller, ticket)):
                    ticket.check()
                    self.changed.wait(LOOK)
                self.free -= 1
            finally:
                tickets = self.waiting.pop(caller)
                tickets.remove(ticket)
                if tickets:
                    self.waiting[caller] = tickets  # behind the others
                self.changed.notify_all()
        try:
            yield
        finally:
            with self.changed:
                self.free += 1
                self.changed.notify_all()

    def _is_next(self, caller: str, ticket: Ticket) -> bool:
        oldest = min(self.waiting[caller], key=lambda waiting: waiting.began)
        return caller == next(iter(self.waiting)) and ticket is oldest
