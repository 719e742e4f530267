"""Find how many tokens a batch should have on this machine: what fits in memory, but no more than makes it faster."""

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from dragoman.config import RunConfig
from dragoman.data.batches import Batch
from dragoman.data.tokenizer import PAD
from dragoman.data.tokenizers import Tokenizers
from dragoman.model import build
from dragoman.training.distributed import ProcessGroup
from dragoman.training.journal import Journal
from dragoman.training.learner import Learner
from dragoman.training.memory import forget_peak, share_in_use

SMALLEST, LARGEST = 1024, 2**17  # tokens
ROOM = 0.8  # share of the memory that may be used: real batches differ
GAIN = 1.05  # a batch of twice the size must be this much faster
SENTENCE = 32  # tokens, where the model's positions are enough


def batch_tokens_that_fit(config: RunConfig, tokenizers: Tokenizers, group: ProcessGroup, journal: Journal) -> int:
    """Return, and log, the fastest batch that fits in memory, in tokens of all processes: a trial on random text."""
    forget_peak(group.device)  # of an earlier run in this process
    settings = replace(config.training, batch_tokens=SMALLEST, micro_batches=1, deterministic=False, shard=False)
    model = build(config.model, len(tokenizers.source), tokenizers.target_vocabulary, PAD)
    learner, vocabulary = Learner(model, settings, ProcessGroup(group.device)), min(map(len, tokenizers))
    length = min(SENTENCE, config.model.max_positions or SENTENCE)
    tokens, speed = double_while_faster(lambda tokens: tokens_per_second(learner, tokens, length, vocabulary))
    journal.log(f"batches of {tokens:,} tokens for each process: {speed:,.0f} target tokens/s in a first trial")
    return tokens * group.size


def double_while_faster(measure: Callable[[int], float]) -> tuple[int, float]:
    """Double the size of a batch from SMALLEST to LARGEST while that is clearly faster.

    Return the best and its speed. measure: from a size in tokens to its speed; 0 where it does not fit in memory.
    """
    best, speed, tokens = SMALLEST, 0.0, SMALLEST
    while tokens <= LARGEST:
        measured = measure(tokens)
        if not measured or measured < GAIN * speed:
            break
        best, speed, tokens = tokens, measured, 2 * tokens
    return best, speed


def tokens_per_second(learner: Learner, tokens: int, length: int, vocabulary: int) -> float:
    """Return the speed of forward and backward pass on a random batch of `tokens` tokens, in tokens per second.

    Return 0 where the batch does not fit: memory ran out, or more than ROOM of it is in use. length: tokens of a
    sentence; vocabulary: how many ids they are drawn from. The weights stay as they are.
    """
    device = learner.group.device
    random = torch.Generator().manual_seed(tokens)
    ids = torch.randint(PAD + 3, vocabulary, (2, tokens // length, length - 1), generator=random).tolist()
    batch = Batch.from_pairs(*ids)
    for turn in range(2):  # the first one warms up
        began = time.monotonic()
        result = learner.compute_gradient([batch], tokens, (turn,))
        learner.sync.clear()
        if result.out_of_memory or share_in_use(device) > ROOM:
            return 0.0
    return tokens / (time.monotonic() - began)
