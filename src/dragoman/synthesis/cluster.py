"""The same shards on a Ray cluster. All its machines see the same files and have dragoman installed."""

import contextlib
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dragoman.console import SECONDS_BETWEEN_LINES
from dragoman.data.spec import CorpusSpec
from dragoman.errors import DragomanError
from dragoman.synthesis.jobs import Job, begin, blocks_of, finished, synthesise
from dragoman.synthesis.progress import TextProgress
from dragoman.synthesis.shard import Shard

RETRIES = 10  # of a share whose machine has gone away; what it had saved stays


def share(task: Job, shard: Shard, device: str) -> None:
    synthesise(task, shard, torch.device(device), TextProgress(quiet=True))


def synthesise_on_ray(task: Job, progress: TextProgress) -> dict[str, Any] | None:
    """As `synthesise`, a share for each GPU of the cluster, or for each core where it has none.

    The cluster is the one of RAY_ADDRESS, or else the cores of this machine. Raises DragomanError where a share fails.
    """
    try:
        import ray
        from ray.exceptions import RayError, RayTaskError
    except ImportError:
        raise DragomanError("--ray needs a package: pip install 'dragoman[ray]'") from None
    made_of = task.made_of()
    if not finished(task, made_of):
        blocks = blocks_of(task, begin(task, made_of))
        try:
            # Ray prints remarks of its own; standard output is for results.
            with contextlib.redirect_stdout(sys.stderr):
                ray.init(logging_level=logging.ERROR, log_to_driver=False, include_dashboard=False)
                found = ray.cluster_resources()
                gpus = int(found.get("GPU", 0))
                count = min(gpus or int(found.get("CPU", 1)), blocks)
                progress.log(f"Ray: {count} shares on {len(ray.nodes())} machines")
                work = ray.remote(share).options(num_cpus=1, num_gpus=1 if gpus else 0, max_retries=RETRIES)
                everywhere, device = anywhere(task), "cuda" if gpus else "cpu"
                left = [work.remote(everywhere, Shard(number, count), device) for number in range(1, count + 1)]
                progress.begin(task.out.name, blocks * task.block)
                while left:
                    done, left = ray.wait(left, timeout=SECONDS_BETWEEN_LINES)
                    ray.get(done)
                    if left:  # the last one sweeps up
                        there = sum(task.part(number).exists() for number in range(blocks))
                        progress.reached(there * task.block)
        except RayTaskError as error:
            raise DragomanError(str(error.cause)) from None
        except (RayError, ConnectionError) as error:
            raise DragomanError(f"Ray: {error}") from None
        finally:
            progress.stop()
            ray.shutdown()
    return synthesise(task, Shard(), torch.device("cpu"), progress)


def anywhere(task: Job) -> Job:
    """The task with the names of its files as they are from every folder."""
    files = tuple(str(Path(file).absolute()) for file in task.files)
    text = replace(task.text, files=files) if isinstance(task.text, CorpusSpec) else files
    return replace(task, model=task.model.absolute(), text=text, out=task.out.absolute())
