"""The Transformer of "Attention Is All You Need": Figure 1, top to bottom.

Shapes: B sentences, S source tokens, T target tokens, M d_model, V target vocabulary, N real tokens of a batch. Between
layers a batch is packed (N, M): see packing.py.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.config import FeedForwardConfig, TransformerConfig
from dragoman.config.fields import Count, check_argument
from dragoman.model.attention import KeyValues, MultiHeadAttention, Rotate, causal_mask, no_rotation
from dragoman.model.embedding import word_matrices
from dragoman.model.packing import Packing
from dragoman.model.positions import Positions, build_positions

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}
DROPOUT_STEPS = 2**16


class FeedForward(nn.Module):
    """The position-wise feed-forward network, section 3.3, equation 2."""

    def __init__(self, d_model: int, config: FeedForwardConfig):
        super().__init__()
        self.hidden = nn.Linear(d_model, config.d_ff)
        self.out = nn.Linear(config.d_ff, d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., M) for x (..., M)."""
        return self.out(self.dropout(self.activation(self.hidden(x))))


class Residual(nn.Module):
    """x + sublayer(x), section 3.1, with normalisation of the sum, as in the paper, or of the sublayer's input."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, config.norm_epsilon)
        self.dropout = Dropout(config.dropout)
        self.norm_first = config.norm_first

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return x (N, M) plus `sublayer` of it, with dropout and normalisation in the order of the settings."""
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


@dataclass(frozen=True)
class TokenContext:
    """Tell the layers of a stack what they need to know of the tokens of one call besides their vectors."""

    packing: Packing
    mask: Tensor | None = None  # broadcastable to (B, H, queries, tokens): which of them each query may attend to
    rotate: Rotate = no_rotation  # for queries and keys of self-attention
    rotate_across: Rotate = no_rotation  # for queries (target) or keys (source) of attention over the source

    @classmethod
    def at(cls, packing: Packing, mask: Tensor | None, positions: Positions, start: int = 0) -> "TokenContext":
        """Return the context of packed tokens, the first of which is at position `start`."""
        rotate, rotate_across = partial(positions.rotate, start=start), partial(positions.rotate_across, start=start)
        return cls(packing, mask, rotate, rotate_across)


class EncoderLayer(nn.Module):
    """A layer of the encoder: Figure 1, left."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.attention = MultiHeadAttention(config.d_model, config.attention)
        self.feed_forward = FeedForward(config.d_model, config.feed_forward)
        self.around_attention = Residual(config)
        self.around_feed_forward = Residual(config)

    def forward(self, x: Tensor, context: TokenContext) -> Tensor:
        """Return the layer's output (N, M) for the source tokens x (N, M)."""

        def attend_to_source(y: Tensor) -> Tensor:
            keys = self.attention.project(y, context.packing, context.rotate)
            return self.attention(y, context.packing, keys, context.mask, context.rotate)

        x = self.around_attention(x, attend_to_source)
        return self.around_feed_forward(x, self.feed_forward)


@dataclass
class Cache:
    """The keys and values that one decoder layer keeps: of the target so far, and of the encoder's output."""

    target: KeyValues | None = None
    memory: KeyValues | None = None

    def extend(self, new: KeyValues) -> KeyValues:
        """Add the keys and values of new target tokens; return those of all target tokens."""
        self.target = self.target.extend(new) if self.target else new
        return self.target

    def select(self, rows: Tensor) -> None:
        """Keep the hypotheses `rows` (n,), in that order; one may be chosen several times or not at all."""
        self.target = self.target and self.target.select(rows)
        self.memory = self.memory and self.memory.select(rows)


class DecoderLayer(nn.Module):
    """A layer of the decoder: Figure 1, right."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.attention = MultiHeadAttention(config.d_model, config.attention)
        self.cross_attention = MultiHeadAttention(config.d_model, config.attention)
        self.feed_forward = FeedForward(config.d_model, config.feed_forward)
        self.around_attention = Residual(config)
        self.around_cross_attention = Residual(config)
        self.around_feed_forward = Residual(config)

    def forward(self, x: Tensor, target: TokenContext, memory: Tensor, source: TokenContext, cache: Cache) -> Tensor:
        """Return the layer's output (N, M) for new target tokens x (N, M); add their keys and values to the cache.

        memory (N', M): the encoder's output, of which the cache keeps the keys and values from the first call on.
        """

        def attend_to_target(y: Tensor) -> Tensor:
            keys = cache.extend(self.attention.project(y, target.packing, target.rotate))
            return self.attention(y, target.packing, keys, target.mask, target.rotate)

        def attend_to_source(y: Tensor) -> Tensor:
            if cache.memory is None:  # here and not before all steps: FSDP2 gathers a layer only in its forward
                cache.memory = self.cross_attention.project(memory, source.packing, source.rotate_across)
            return self.cross_attention(y, target.packing, cache.memory, source.mask, target.rotate_across)

        x = self.around_attention(x, attend_to_target)
        x = self.around_cross_attention(x, attend_to_source)
        return self.around_feed_forward(x, self.feed_forward)


@dataclass
class State:
    """All that decoding one more token needs, for n hypotheses."""

    memory: Tensor  # N M, the encoder's output for the first step; later ones need the keys and values in the caches
    source: Packing
    caches: list[Cache]
    length: int = 0  # target tokens so far

    def select(self, rows: Tensor) -> None:
        """Keep the hypotheses `rows` (n,), in that order, in place; one may be chosen several times or not at all."""
        before, self.source = self.source, self.source.select(rows)
        if not self.length:
            self.memory = self.source.pack(before.unpack(self.memory)[rows])
        for cache in self.caches:
            cache.select(rows)


class Transformer(nn.Module):
    """A Transformer from token ids to logits. `forward(source, target)` is `step(target, start(source))`.

    vocabulary: size of the source vocabulary; target_vocabulary: of the target's, by default the same; pad: the id that
    fills up shorter sentences.
    """

    def __init__(self, config: TransformerConfig, vocabulary: int, target_vocabulary: int | None = None, pad: int = 0):
        super().__init__()
        check_argument("config", config, TransformerConfig)
        check_argument("vocabulary", vocabulary, Count)
        self.config, self.pad, d_model = config, pad, config.d_model
        self.source_embedding, self.target_embedding, self.output = word_matrices(
            vocabulary, target_vocabulary, d_model, config.share, pad, config.output_bias
        )
        self.dropout: nn.Module = Dropout(config.dropout)
        self.encoder_positions, self.decoder_positions = (build_positions(config) for _ in range(2))
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        # With pre-norm nothing has normalised the last sum yet; with post-norm (the paper) it is already done.
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(d_model, config.norm_epsilon) if config.norm_first else nn.Identity() for _ in range(2)
        )
        for linear in [*self.encoder.modules(), *self.decoder.modules()]:
            if isinstance(linear, nn.Linear):
                nn.init.xavier_uniform_(linear.weight)
                if linear.bias is not None:
                    nn.init.zeros_(linear.bias)

    def extra_repr(self) -> str:
        """Return what `print` shows of the model above its modules: its settings."""
        return str(self.config)

    def embed(self, tokens: Tensor, packing: Packing, words: nn.Embedding, positions: Positions, start: int) -> Tensor:
        """Return the vectors (N, M) of the ids (B, T), positions included (sections 3.4 and 3.5).

        words: the embedding; start: how many tokens come before the first of them.
        """
        x = words(tokens)
        if self.config.scale_embedding:
            x = x * math.sqrt(self.config.d_model)
        return self.dropout(packing.pack(positions.embed(x, self.config.first_position + start)))

    def start(self, source: Tensor) -> State:
        """Encode the source ids (B, S), padded with `pad`; return the state before the first target token."""
        packing, positions = Packing(source != self.pad), self.encoder_positions
        mask = add_bias(packing.mask, positions.bias(0, source.size(1), source.size(1)))
        context = TokenContext.at(packing, mask, positions)
        x = self.embed(source, packing, self.source_embedding, positions, 0)
        return State(self.encoder_norm(self.encode(x, context)), packing, [Cache() for _ in self.decoder])

    def encode(self, x: Tensor, context: TokenContext) -> Tensor:
        """Return the output (N, M) of the encoder's layers for the vectors x (N, M) of the source tokens."""
        for layer in self.encoder:
            x = layer(x, context)
        return x

    def step(self, tokens: Tensor, state: State, real: Tensor | None = None) -> Tensor:
        """Return logits (B, T, V) after each of the tokens (B, T), which are then part of the state.

        With `real` (B, T), bool, the tokens are a whole target, padded: the positions that are not real are neither
        computed nor attended to, and the logits are those of the real positions alone, in order: (N, V).
        """
        logits = self.output(self.vectors(tokens, state, real))
        return logits if real is not None else logits.unflatten(0, tokens.shape)

    def vectors(self, tokens: Tensor, state: State, real: Tensor | None = None) -> Tensor:
        """Return what `step` multiplies with the output matrix: the decoder's output (N, M) for the real tokens.

        The tokens (B, T) are then part of `state`. Raise ValueError for `real` (B, T) if the state has target tokens
        already.
        """
        start, new, positions = state.length, tokens.size(1), self.decoder_positions
        if real is not None and start:
            raise ValueError(f"real positions are for a whole target, not for what follows {start} tokens")
        packing = Packing.full(tokens) if real is None else Packing(real)
        mask = None if new == 1 else causal_mask(new, start + new, tokens.device)
        if packing.mask is not None:
            mask = packing.mask if mask is None else mask & packing.mask
        mask = add_bias(mask, positions.bias(start, new, start + new))
        target = TokenContext.at(packing, mask, positions, start)
        source = TokenContext.at(state.source, state.source.mask, positions)
        x = self.embed(tokens, packing, self.target_embedding, positions, start)
        for layer, cache in zip(self.decoder, state.caches, strict=True):
            x = layer(x, target, state.memory, source, cache)
        state.length = start + new
        return self.decoder_norm(x[: packing.tokens])

    def forward(self, source: Tensor, target: Tensor, real: Tensor | None = None) -> Tensor:
        """Return the logits, as `step` does, for source (B, S) and target (B, T), which begins with BOS."""
        return self.step(target, self.start(source), real)


def add_bias(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """Return one mask for a bool mask and the scores that a position scheme adds: floats if there are scores.

    mask and bias must broadcast to (B, H, T, S). Return the other one where one of them is None.
    """
    if bias is None or mask is None:
        return mask if bias is None else bias
    return torch.where(mask, bias, -math.inf)


class Dropout(nn.Module):
    """Dropout, section 5.4, as nn.Dropout does it, but faster on a CPU.

    There, drawing the mask costs more than applying it: 16 bits are drawn for each element instead of a float, so the
    rate is rounded to a multiple of 1/65,536.
    """

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Return x with elements dropped and the rest scaled up in training, x itself otherwise."""
        if not self.training or not self.rate:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        dropped = min(round(self.rate * DROPOUT_STEPS), DROPOUT_STEPS - 1)
        drawn = torch.empty(x.numel() // 4 + 1, dtype=torch.int64).random_(-(2**63), None)
        kept = drawn.view(torch.int16)[: x.numel()].view(x.shape)
        kept.ge_(dropped - DROPOUT_STEPS // 2)  # in place it is 1 or 0: bools take longer to convert
        return x * kept.to(x.dtype).mul_(DROPOUT_STEPS / (DROPOUT_STEPS - dropped))

    def extra_repr(self) -> str:
        """Return what `print` shows of the module in brackets: its rate."""
        return f"rate={self.rate}"
