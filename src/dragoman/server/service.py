"""Share among the handlers of all routes: models, settings, keys, counts, and locks."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dragoman.config.serve import ServeConfig
from dragoman.decoding.rows import Ticket
from dragoman.inspection.history import Film
from dragoman.inspection.inspection import Inspection
from dragoman.server.keys import Key, Rates, Usage
from dragoman.server.metrics import Metrics
from dragoman.server.models import Models
from dragoman.server.reading import Refusal

if TYPE_CHECKING:
    from dragoman.server.detection import Detector

SLOW, DEAD = 5.0, 60.0  # seconds without a step, with work waiting, after which it is not ready, not alive
LOOK = 0.05  # seconds between two looks at whether a client that waits for its turn has left


@dataclass(eq=False)
class Service:
    """A server: its models, its settings, who may use it, and what was counted."""

    config: ServeConfig
    models: Models
    keys: Sequence[Key] = ()
    metrics: Metrics = field(default_factory=Metrics)
    rates: Rates = field(default_factory=Rates)
    detector: "Detector | None" = None  # None: its package is not installed
    usage: Usage = field(default_factory=Usage)
    stopping: bool = False
    beside: threading.Lock = field(default_factory=threading.Lock)  # held by what computes beside the search
    inspecting: threading.Lock = field(default_factory=threading.Lock)  # held by an inspection, which may take seconds
    # The latest, the oldest first:
    inspected: dict[Any, Inspection] = field(default_factory=dict)  # for holders of `inspecting`
    films: dict[Any, Film] = field(default_factory=dict)  # for holders of `beside`

    def need_detector(self) -> "Detector":
        """Return the detector. Raise Refusal without one."""
        if self.detector is None:
            raise Refusal(400, "this server detects no languages: name the source language")
        return self.detector

    @contextmanager
    def turn(self, ticket: Ticket, lock: "threading.Lock | None" = None) -> Iterator[None]:
        """Take the lock of what is computed besides searches, such as word scores, for the length of a block.

        lock: in the place of that one. While waiting for it, raise Late or Gone if the ticket is late or cancelled.
        """
        lock = lock or self.beside
        ticket.check()
        while not lock.acquire(timeout=LOOK):
            ticket.check()
        try:
            yield
        finally:
            lock.release()

    @property
    def alive(self) -> bool:
        """Return whether no model has been stuck for a minute."""
        return self.models.stalled() < DEAD

    @property
    def ready(self) -> bool:
        """Return whether requests should be sent here: it goes on, and is not about to end."""
        return not self.stopping and self.models.stalled() < SLOW
