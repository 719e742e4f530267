"""Count requests, for Prometheus: no key, no address and no text is in a label."""

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

disable_created_metrics()  # which say when each was made
BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """What is counted, by all processes of a server together. accepted = ok + failed + cancelled + in flight, always.

    What was in flight in a process that was killed is missing from then on.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        # Each status of each route would be a series: some 400 for whoever tries them all.
        self.answers = Counter(
            "dragoman_answers", "answers, by route and kind of status: 2xx, 4xx, 5xx", ["route", "status"], registry=own
        )
        self.refusals = Counter("dragoman_refusals", "answers that are errors, by status", ["status"], registry=own)
        self.accepted = Counter("dragoman_accepted", "requests whose translation was begun", registry=own)
        self.finished = Counter(
            "dragoman_finished",
            "translation requests that ended, by outcome: ok, failed, cancelled",
            ["outcome"],
            registry=own,
        )
        self.in_flight = Gauge(
            "dragoman_in_flight",
            "translation requests in progress",
            registry=own,
            multiprocess_mode="livesum",
        )
        self.characters = Counter(
            "dragoman_characters", "characters of accepted requests; of documents, bytes", registry=own
        )
        self.seconds = Histogram("dragoman_seconds", "time from a request to its answer", buckets=BUCKETS, registry=own)
        self.wait = Gauge(
            "dragoman_wait_seconds",
            "how long a request would wait; of several processes, in the busiest",
            registry=own,
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
