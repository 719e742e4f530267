"""How many tokens a batch should have on this machine: as many as fit in memory, and no more than make it faster."""

import time
from dataclasses import replace
from pathlib import Path

import torch

from dragoman.config import RunConfig
from dragoman.data.batches import Batch
from dragoman.data.tokenizer import PAD
from dragoman.model import build
from dragoman.training.distributed import ProcessGroup
from dragoman.training.journal import Journal
from dragoman.training.step import Learner

SMALLEST, LARGEST = 1024, 2**17  # tokens
ROOM = 0.8  # of the memory may be used: real batches differ
GAIN = 1.05  # a batch of twice the size must be that much faster
SENTENCE = 32  # tokens


def batch_tokens_that_fit(config: RunConfig, vocabulary: int, ranks: ProcessGroup, journal: Journal) -> int:
    """Doubles the batch while it fits and while that makes training faster; each size is tried on random sentences."""
    settings = replace(config.training, batch_tokens=SMALLEST, micro_batches=1, deterministic=False, shard=False)
    alone = ProcessGroup(ranks.device)
    learner = Learner(build(config.model, vocabulary, pad=PAD), settings, alone)
    best, rate, tokens = SMALLEST, 0.0, SMALLEST
    while tokens <= LARGEST:
        found = tokens_per_second(learner, tokens, vocabulary)
        if not found or found < GAIN * rate:
            break
        best, rate, tokens = tokens, found, 2 * tokens
    journal.say(f"batches of {best:,} tokens for each process: {rate:,.0f} target tokens/s in a first trial")
    return best * ranks.size


def tokens_per_second(learner: Learner, tokens: int, vocabulary: int) -> float:
    """0 where so large a batch does not fit."""
    device = learner.ranks.device
    random = torch.Generator().manual_seed(tokens)
    ids = torch.randint(PAD + 3, vocabulary, (2, tokens // SENTENCE, SENTENCE - 1), generator=random).tolist()
    batch = Batch.of(*ids)
    for turn in range(2):
        began = time.monotonic()
        outcome = learner.gradients([batch], tokens, (turn,))
        learner.layout.clear()
        if outcome.out_of_memory or used(device) > ROOM:
            return 0.0
    return tokens / (time.monotonic() - began)


def used(device: torch.device) -> float:
    """The share of the memory that is or was in use."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / torch.cuda.get_device_properties(device).total_memory
    lines = Path("/proc/meminfo").read_text(encoding="ascii").split("\n") if Path("/proc/meminfo").exists() else []
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line}
    return 1 - sizes["MemAvailable"] / sizes["MemTotal"] if sizes else 0.0
