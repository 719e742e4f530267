"""Forced decoding: how probable a model finds translations that are given to it, token by token.

Shapes: B pairs, T target tokens with EOS, N real target tokens of a batch.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragoman.data.batches import Batch, Ids, pad_rows, plan_batches, source_batch
from dragoman.data.tokenizer import BOS
from dragoman.decoding.engine import require_numbers
from dragoman.decoding.mixture import Rememberer
from dragoman.model import Model

TOKENS = 4096  # of a batch on either side, padding included; a longer pair is alone in one
LOGITS = 2**22  # at a time
MAX_TOKENS = 1024  # of a side, EOS included, that a command takes: the memory of attention grows with the square


@dataclass(frozen=True)
class Likelihood:
    """The log-probability of each token of a target, EOS included, given the source and the tokens before it."""

    tokens: Ids
    log_p: list[float]  # nats

    def after(self, tag: int) -> "Likelihood":
        """Return the likelihood without the first `tag` tokens, which are given and not part of the translation."""
        return Likelihood(self.tokens[tag:], self.log_p[tag:])

    @property
    def total(self) -> float:
        """The log-probability of the target in nats."""
        return math.fsum(self.log_p)

    @property
    def mean(self) -> float:
        """The mean log-probability of its tokens in nats."""
        return self.total / len(self.tokens)


def max_positions(model: Model) -> int:
    """Return how many tokens, EOS included, the model accepts at most on each side of a pair: MAX_TOKENS or fewer."""
    return min(MAX_TOKENS, model.config.max_positions or MAX_TOKENS)


def leave_room_for_eos(model: Model, outputs: Sequence[Ids]) -> list[Ids]:
    """Return the outputs of a search, cut to what the model can read with EOS behind it.

    A search may end at the model's last position, which leaves none for EOS.
    """
    return [tokens[: max_positions(model) - 1] for tokens in outputs]


def score(
    model: Model, sources: Sequence[Ids], targets: Sequence[Ids], *, memory: Rememberer | None = None
) -> list[Likelihood]:
    """Return how probable `model` finds each target, with its memory if it has one, in the order of the pairs.

    sources, targets: ids without BOS and EOS. The model must be in eval mode. The result for one pair does not depend
    on the others. Raise ValueError where a side is longer than its position scheme allows, and DragomanError where the
    probabilities are not numbers.
    """
    likelihoods: dict[int, Likelihood] = {}
    for rows, batch in forced_batches(model, sources, targets):
        all_log_p = token_log_p(model, batch, memory)
        require_numbers(all_log_p)
        log_p = all_log_p.split(batch.real.sum(1).tolist())
        labels = batch.labels[batch.real].split([len(row_log_p) for row_log_p in log_p])
        for row, tokens, row_log_p in zip(rows, labels, log_p, strict=True):
            likelihoods[row] = Likelihood(tokens.tolist(), row_log_p.tolist())
    return [likelihoods[row] for row in range(len(sources))]


@torch.inference_mode()
def token_log_p(model: Model, batch: Batch, memory: Rememberer | None = None) -> Tensor:
    """Return the log-probabilities (N,), in nats, of the N labels of a batch that are not padding, in order."""
    state: Any = model.start(batch.source)
    vectors, labels = model.vectors(batch.target, state, batch.real), batch.labels[batch.real]
    recall = memory.recall(batch.source) if memory else None
    size, sources = max(1, LOGITS // model.output.out_features), batch.real.nonzero()[:, 0]
    log_p = []
    for x, right, rows in zip(vectors.split(size), labels.split(size), sources.split(size), strict=True):
        of_words = model.output(x).log_softmax(-1)
        log_p.append((recall.mix(of_words, x, rows) if recall else of_words).gather(1, right[:, None])[:, 0])
    return torch.cat(log_p)


def forced_batches(model: Model, sources: Sequence[Ids], targets: Sequence[Ids]) -> Iterator[tuple[list[int], Batch]]:
    """Yield batches of pairs of similar length, on the model's device, each with the indices of its pairs."""
    lengths = np.array([[len(s) + 1, len(t) + 1] for s, t in zip(sources, targets, strict=True)]).reshape(-1, 2)
    batches, device = plan_batches(lengths, TOKENS, 0, 0), next(model.parameters()).device
    for number in range(len(batches)):
        rows = batches[number].tolist()
        labels = pad_rows([targets[row] for row in rows])
        # By length, not by value: a hypothesis may contain the id of padding, as a model can produce any id.
        real = np.arange(labels.shape[1]) < lengths[rows, 1:]
        target = np.concatenate([np.full((len(rows), 1), BOS), labels[:, :-1]], axis=1)
        source = source_batch([sources[row] for row in rows])
        yield rows, Batch(source, *map(torch.from_numpy, (target, labels, real))).to(device)


def perplexity(loss: float) -> float:
    """Return e^loss for a mean loss in nats per token, infinity from 700 nats on.

    It is the number of equally likely tokens with this loss.
    """
    return math.exp(loss) if loss < 700 else math.inf
