"""Serve what operators ask for: whether the server lives, whether it is ready, what it has done."""

import msgspec
from starlette.responses import Response

from dragoman.server.reading import Refusal
from dragoman.server.routes import OWN, Call, Route


class Health(msgspec.Struct):
    """How the server is."""

    status: str


def live(call: Call) -> Health:
    """Check that the server is alive; 503 means: restart it."""
    if not call.service.alive:
        raise Refusal(503, "a model has work but has made no progress for a minute")
    return Health("ok")


def ready(call: Call) -> Health:
    """Check that the server is ready for requests; 503 means: it is stopping or stuck."""
    if not call.service.ready:
        stuck = "a model has work but makes no progress"
        raise Refusal(503, "the server is stopping" if call.service.stopping else stuck)
    return Health("ok")


def metrics(call: Call) -> Response:
    """Return what was counted, in the text format of Prometheus."""
    return Response(call.service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


ROUTES = (
    Route("GET", "/health/live", live, OWN, answer=Health, access="anyone"),
    Route("GET", "/health/ready", ready, OWN, answer=Health, access="anyone"),
    Route("GET", "/metrics", metrics, OWN),
)
