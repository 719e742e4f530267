"""Serve on a Ray cluster: replicas of one server, behind Ray's proxies. It needs the extra ray-serve.

Ray shares the requests among the replicas, adds some when there are many requests, replaces those that fail, and brings
in a new version without a pause. Each replica has models and batches of its own, as a server alone has; they share
nothing but the folder `state`.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.config import read_toml, update
from dragoman.config.serve import ServeConfig
from dragoman.errors import UsageError
from dragoman.server.app import App
from dragoman.server.run import open_app

if TYPE_CHECKING:
    from ray.serve import Application

# Of the requests that a replica takes at the same time, how many it should have on average: enough for full batches.
TARGET = 1 / 4
HEALTH_PERIOD = 5.0  # seconds; Ray replaces a replica after three failures


class Replica:
    """What Ray asks of a replica, beside answers to requests."""

    app: App  # is set by serve.ingress

    def check_health(self) -> None:
        """Raise RuntimeError where a model has work but makes no progress."""
        if not self.app.service.ready:
            raise RuntimeError("a model has work but makes no progress")


def deploy(config: ServeConfig, replicas: tuple[int, int] = (1, 1)) -> "Application":
    """Return what `serve.run` runs: from so many to so many replicas, each with `config.threads` threads (default: 1).

    Ray listens, so `config.host` and `config.port` do not count. The folders and files of the settings must be there on
    all machines. Raise UsageError without keys, unless `config.open` says that none are needed.
    """
    from ray import serve

    threads = cores = config.threads or 1
    config = replace(config, threads=threads, host="0.0.0.0")  # others may reach Ray's proxies
    config.check_access()
    if config.engine == "ctranslate2":  # which would search on all cores of the machine
        config = replace(config, replicas=config.replicas or 1)
        cores = threads * (config.replicas or 1)

    def build() -> App:
        return open_app(config)

    deployment = serve.deployment(
        name="dragoman",
        max_ongoing_requests=config.requests,
        max_queued_requests=config.requests,
        autoscaling_config={
            "min_replicas": replicas[0],
            "max_replicas": replicas[1],
            "target_ongoing_requests": TARGET * config.requests,
        },
        max_surge_percent=100,  # a new version is ready before the old one ends
        health_check_period_s=HEALTH_PERIOD,
        graceful_shutdown_timeout_s=config.grace,
        ray_actor_options={"num_cpus": cores, "num_gpus": int(config.device == "cuda")},
    )
    return deployment(serve.ingress(build)(Replica)).bind()


def application(arguments: Mapping[str, str]) -> "Application":
    """Return what `serve run dragoman.server.ray:application config=serve.toml min_replicas=2 max_replicas=8` runs.

    Raise UsageError for other arguments.
    """
    given = {"min_replicas": "1", **arguments}
    least = given.pop("min_replicas")
    most = given.pop("max_replicas", least)
    file = Path(given.pop("config", ""))
    if given or file.suffix != ".toml" or not (least + most).isdigit():
        raise UsageError("give config=FILE.toml, and optionally min_replicas=2 and max_replicas=8")
    return deploy(update(ServeConfig(), read_toml(file), str(file)), (int(least), int(most)))
