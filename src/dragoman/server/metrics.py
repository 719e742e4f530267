"""Count requests, for Prometheus: no key, no address and no text is in a label."""

import os
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

disable_created_metrics()  # which say when each was made
BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TENTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class Metrics:
    """What is counted, by all processes of a server together. accepted = ok + failed + cancelled + in flight, always.

    What was in flight in a process that was killed is missing from then on.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        # Each status of each route would be a series: some 400 for whoever tries them all.
        self.answers = counter(
            "dragoman_answers", "answers, by route and kind of status: 2xx, 4xx, 5xx", ["route", "status"]
        )
        self.refusals = counter("dragoman_refusals", "answers that are errors, by status", ["status"])
        self.accepted = counter("dragoman_accepted", "requests whose translation was begun")
        self.finished = counter(
            "dragoman_finished", "translation requests that ended, by outcome: ok, failed, cancelled", ["outcome"]
        )
        self.in_flight = gauge("dragoman_in_flight", "translation requests in progress", multiprocess_mode="livesum")
        self.characters = counter("dragoman_characters", "characters of accepted requests; of documents, bytes")
        self.seconds = Histogram(
            "dragoman_seconds", "time from a request to its answer", buckets=BUCKETS, registry=self.registry
        )
        # A pair without it, whose models know nothing of their confidence, has no series.
        self.confidence = Histogram(
            "dragoman_confidence",
            "confidence in the translation of a line, or of a text of a document, by pair of languages",
            ["pair"],
            buckets=TENTHS,
            registry=self.registry,
        )
        self.wait = gauge(
            "dragoman_wait_seconds",
            "how long a request would wait; of several processes, in the busiest",
            multiprocess_mode="livemax",
        )
        for outcome in ("ok", "failed", "cancelled"):
            self.finished.labels(outcome)
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:  # then the numbers of all processes are in files there
            self.registry = CollectorRegistry()
            MultiProcessCollector(self.registry)

    def text(self) -> bytes:
        """Return all that was counted, in the text format of Prometheus."""
        return generate_latest(self.registry)
