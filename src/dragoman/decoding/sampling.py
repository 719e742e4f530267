"""Draw translations at random, token by token."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.decoding.noise import gumbel_noise
from dragoman.decoding.search import OutputSpec, Steps, argmax, generate, topk
from dragoman.model import Seq2Seq

MOST_LIKELY = 256  # tokens, which nearly always have the share `top_p` together; sorting all takes most of a step


@dataclass(frozen=True)
class Sampling:
    """Describe how a token is drawn: with its probability to the power of 1 / temperature, normalised again.

    Only the most probable tokens are drawn from: at most `top_k`, and as few as together have probability `top_p`.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0


def sample(model: Seq2Seq, source: Tensor, output: OutputSpec, sampling: Sampling, keys: Tensor) -> Steps:
    """Find one hypothesis for each sentence of source (B, S), drawn token by token; scores are those of the model.

    They are computed as `generate` does, without temperature, `top_k` and `top_p`. keys (B, largest of max_lengths),
    int64: random numbers that decide the tokens. Each sentence has its own, so that its output does not depend on the
    other sentences.
    """

    def choose(log_p: Tensor, row: Tensor, step: int) -> Tensor:
        log_p, token = drawn_from(log_p / sampling.temperature, sampling)
        # Gumbel-max: argmax of log p + Gumbel noise is a sample from p. Inverse-CDF sampling is not used: near a bin
        # edge the last digits decide, and they depend on the batch; two nearly equal maxima are far rarer.
        best = argmax(log_p + gumbel_noise(keys[row, step - 1], token))
        return token.gather(1, best[:, None])[:, 0]

    return generate(model, source, output, choose)


def drawn_from(log_p: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Return the tokens that are drawn from, (R, N), and their scores: -inf for those beyond `top_k` and `top_p`.

    log_p (R, V): log-probabilities after the temperature. Without `top_k` and `top_p`, all tokens in their order.
    """
    size = log_p.size(-1)
    most = min(sampling.top_k or size, size)
    if sampling.top_p == 1:
        return topk(log_p, most) if most < size else (log_p, torch.arange(size, device=log_p.device).expand_as(log_p))
    chance = log_p.softmax(-1)
    likely, token = topk(chance, min(MOST_LIKELY, most))
    if most > MOST_LIKELY and (likely.sum(-1) < sampling.top_p).any():
        likely, token = topk(chance, most)
    kept = likely.cumsum(-1) - likely < sampling.top_p  # the sum of all that are more probable
    return log_p.gather(1, token).masked_fill(~kept, -math.inf), token
