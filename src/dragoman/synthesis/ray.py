"""Translate the shards on a Ray cluster, whose machines all see the same files and have dragoman installed."""

import contextlib
import logging
import sys
from dataclasses import replace
from pathlib import Path

import torch

from dragoman.console import SECONDS_BETWEEN_LINES
from dragoman.data.spec import CorpusSpec
from dragoman.errors import DragomanError
from dragoman.synthesis.job import Job, Record, block_count, count_texts, finished_record, start_record
from dragoman.synthesis.progress import TextProgress
from dragoman.synthesis.shard import Shard
from dragoman.synthesis.synthesise import synthesise

RETRIES = 10  # of a shard whose machine is lost; the blocks that it has saved are kept


def synthesise_shard(job: Job, shard: Shard, device: str) -> None:
    """Translate a shard in a worker of the cluster, on `device` as PyTorch names it, without any output."""
    synthesise(job, shard, torch.device(device), TextProgress(quiet=True))


def synthesise_on_ray(job: Job, progress: TextProgress) -> Record | None:
    """Do what `synthesise` does for the whole job on a Ray cluster, and return what it returns.

    There is a shard for each GPU of the cluster, or for each core where it has none. The cluster is the one of
    RAY_ADDRESS, or else the cores of this machine. Raise DragomanError where Ray is not installed or a shard fails, and
    as `synthesise` does.
    """
    try:
        import ray
        from ray.exceptions import RayError, RayTaskError
    except ImportError:
        raise DragomanError("--ray needs a package: pip install 'dragoman[ray]'") from None
    provenance = job.provenance()
    if not finished_record(job, provenance):
        started = start_record(job, provenance)
        blocks = block_count(job, started)
        try:
            # Ray prints remarks of its own; standard output is for results.
            with contextlib.redirect_stdout(sys.stderr):
                ray.init(logging_level=logging.ERROR, log_to_driver=False, include_dashboard=False)
                resources = ray.cluster_resources()
                gpus = int(resources.get("GPU", 0))
                count = min(gpus or int(resources.get("CPU", 1)), blocks)
                progress.log(f"Ray: {count} shards on {len(ray.nodes())} machines")
                work = ray.remote(synthesise_shard).options(num_cpus=1, num_gpus=1 if gpus else 0, max_retries=RETRIES)
                absolute, device = with_absolute_paths(job), "cuda" if gpus else "cpu"
                running = [work.remote(absolute, Shard(number, count), device) for number in range(1, count + 1)]
                progress.begin(job.out.name, started["texts"])
                while running:
                    done, running = ray.wait(running, timeout=SECONDS_BETWEEN_LINES)
                    ray.get(done)
                    if running:  # the last one deletes the blocks
                        made = [number for number in range(blocks) if job.block_file(number).exists()]
                        progress.show_done(count_texts(job, started, made))
        except RayTaskError as error:
            raise DragomanError(str(error.cause)) from None
        except (RayError, ConnectionError) as error:
            raise DragomanError(f"Ray: {error}") from None
        finally:
            progress.stop()
            ray.shutdown()
    return synthesise(job, Shard(), torch.device("cpu"), progress)


def with_absolute_paths(job: Job) -> Job:
    """Return the job with absolute paths, for workers in other folders."""
    files = tuple(str(Path(file).absolute()) for file in job.files)
    text = replace(job.text, files=files) if isinstance(job.text, CorpusSpec) else files
    return replace(job, model=job.model.absolute(), text=text, out=job.out.absolute())
