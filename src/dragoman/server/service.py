"""Hold what the handlers of all routes share."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dragoman.config.serve import ServeConfig
from dragoman.server.keys import Key, Rates
from dragoman.server.metrics import Metrics
from dragoman.server.models import Models
from dragoman.server.reading import Refusal

if TYPE_CHECKING:
    from dragoman.server.detection import Detector

SLOW, DEAD = 5.0, 60.0  # seconds without a step, with work waiting, after which it is not ready, not alive


@dataclass
class Service:
    """A server: its models, its settings, who may use it, and what was counted."""

    config: ServeConfig
    models: Models
    keys: Sequence[Key] = ()
    metrics: Metrics = field(default_factory=Metrics)
    rates: Rates = field(default_factory=Rates)
    detector: "Detector | None" = None  # None: its package is not installed
    translated: int = 0  # characters, since the start
    stopping: bool = False

    def need_detector(self) -> "Detector":
        """Return the detector. Raise Refusal without one."""
        if self.detector is None:
            raise Refusal(400, "this server detects no languages: name the source language")
        return self.detector

    @property
    def alive(self) -> bool:
        """Return whether no model has been stuck for a minute."""
        return self.models.stalled() < DEAD

    @property
    def ready(self) -> bool:
        """Return whether requests should be sent here: it goes on, and is not about to end."""
        return not self.stopping and self.models.stalled() < SLOW
