"""Set up what experiments on scores and heads share: a small Transformer that learns to reverse a few words."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import torch
from torch import nn

from dragoman.config import AttentionConfig
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.transformer import Transformer
from dragoman_lab.tasks import reversing, small, warm_up

MAX_WORDS = 6
TASK = reversing(vocabulary=20, shortest=2, longest=MAX_WORDS)
PAIRS = 32  # in a batch
RATE, WARMUP = 2e-3, 50  # a rate at which the scaled model learns with small and with large queries
rate = warm_up(RATE, WARMUP)
CLEARLY = 0.1  # nats per token from which on one loss is clearly lower than another


def transformer(attention: AttentionConfig, seed: int, layers: int = 1) -> Transformer:
    """Return a fresh model for TASK with so many layers on each side.

    Queries and keys begin with variance 1 for any d_k, as the argument for the division assumes. (Xavier's
    initialisation makes them smaller for a larger d_k.)
    """
    torch.manual_seed(seed)
    model = Transformer(replace(small(64, layers), attention=attention), TASK.vocabulary)
    for layer in model.modules():
        if isinstance(layer, MultiHeadAttention):
            for matrix in (layer.query, layer.key):
                nn.init.normal_(matrix.weight, std=model.config.d_model**-0.5)
    return model


def last(losses: Sequence[float]) -> float:
    """Return the mean of the last tenth of the losses."""
    return fmean(losses[-max(1, len(losses) // 10) :])
