"""Do a shard of a job, and join the blocks when all are there. The finished file has the same bytes however the work
was interrupted or shared.
"""

import torch

from dragoman.errors import plural
from dragoman.synthesis.blocks import join_blocks, make_blocks
from dragoman.synthesis.job import (
    Job,
    Record,
    block_count,
    count_texts,
    finished_record,
    forget_start,
    inputs_changed_error,
    start_record,
)
from dragoman.synthesis.progress import TextProgress
from dragoman.synthesis.shard import Shard


def synthesise(job: Job, shard: Shard, device: torch.device, progress: TextProgress) -> Record | None:
    """Translate the blocks of a shard that are missing; join all blocks if no shard lacks any.

    Return the record of the finished file, None where blocks of other shards are missing; log which it is. Raise
    DragomanError where `job.out` was begun or made by another job, and where a text cannot be read.
    """
    provenance = job.provenance()
    record = finished_record(job, provenance)
    if not record:
        try:
            started = start_record(job, provenance)
            count = block_count(job, started)
            ours = range(shard.number - 1, count, shard.count)
            if to_make := [number for number in ours if not job.block_file(number).exists()]:
                try:
                    make_blocks(job, to_make, count_texts(job, started, to_make), provenance, device, progress)
                except BaseException:
                    forget_start(job)
                    raise
            missing = sum(not job.block_file(number).exists() for number in range(count))
            if missing and not job.out.exists():
                progress.log(f"{job.out}: {missing:,} of {count:,} blocks are left for other shards")
                return None
            if job.provenance() != provenance:
                raise inputs_changed_error(job)
            record = join_blocks(job, started, count)
        except (FileNotFoundError, FileExistsError):  # another process joined the blocks and is deleting them
            record = finished_record(job, provenance)
            if not record:
                raise
    for note in record["notes"]:
        progress.log(note)
    progress.log(f"{job.out}: {plural(record['pairs'], 'pair')} from {plural(record['texts'], 'text')}")
    return record
