"""What experiments on attention scores and heads share: a small Transformer that learns to reverse a few words."""

from collections.abc import Sequence
from statistics import fmean

import torch
from torch import nn

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.lab.tasks import reversing
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.transformer import Transformer

LONGEST = 6  # words
TASK = reversing(vocabulary=20, shortest=2, longest=LONGEST)
PAIRS = 32  # of a batch
RATE, WARMUP = 2e-3, 50  # a rate at which the scaled model learns with small and with large queries
CLEARLY = 0.1  # nats per token by which a loss is lower than another


def rate(step: int) -> float:
    return RATE * min(1.0, step / WARMUP)


def transformer(attention: AttentionConfig, seed: int, layers: int = 1) -> Transformer:
    """A small model with as many layers on each side.

    Queries and keys begin with variance 1 for any d_k, as the argument for the division has it. (Xavier's start makes
    them smaller for a larger d_k.)
    """
    torch.manual_seed(seed)
    config = TransformerConfig(
        d_model=64,
        encoder_layers=layers,
        decoder_layers=layers,
        attention=attention,
        feed_forward=FeedForwardConfig(d_ff=128),
        dropout=0.0,
    )
    model = Transformer(config, TASK.vocabulary)
    for layer in model.modules():
        if isinstance(layer, MultiHeadAttention):
            for matrix in (layer.query, layer.key):
                nn.init.normal_(matrix.weight, std=config.d_model**-0.5)
    return model


def last(losses: Sequence[float]) -> float:
    """The mean of the last tenth of the steps."""
    return fmean(losses[-max(1, len(losses) // 10) :])
