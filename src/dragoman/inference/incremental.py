"""Take the steps of a search over a Transformer in as few tensor operations as possible.

`Transformer.step` serves training, forced decoding and inspection alike. Where it computes one token for each
hypothesis, calling its many small operations takes longer than their arithmetic. Here the equations of the decoder are
written out once more for this case:

- query, key and value of a layer are one matmul, and one multiplication in place rotates queries and keys;
- views of the keys and values are made when their memory is, and not at each step;
- what the steps have in common is computed once: the keys and values of the source, and its mask.

Shapes: B sources with n hypotheses each, R = B * n, H heads, K = d_k, V = d_v, M = d_model, S source tokens, T target
tokens with the new one, W words of the target vocabulary.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.inference.linears import FEWEST_QUERIES, merge
from dragoman.inference.products import is_steady, pack_hidden, pack_linear, pack_weights
from dragoman.model import Model
from dragoman.model.attention import fused_attention
from dragoman.model.capture import share_weights
from dragoman.model.packing import Packing
from dragoman.model.positions import Positions, Rotary, RotaryAcross
from dragoman.model.transformer import DecoderLayer, Residual, Transformer
from dragoman.runtime.device import instructions

FIRST_CAPACITY = 32  # target tokens that there is room for at first
COPY_SOME = 3  # how many times as long the copy of a token takes where not all are copied

Linear = Callable[[Tensor], Tensor]


def can_step(model: Model) -> TypeGuard[Transformer]:
    """Return whether `IncrementalTransformer` computes what a model does.

    It does for Transformers, except where attention is not the scaled dot product, positions rotate in another way than
    `Rotary` does, or there is a change that no preset has.
    """
    if type(model) is not Transformer:
        return False
    layers: list[Any] = [attention for layer in model.decoder for attention in (layer.attention, layer.cross_attention)]
    positions = type(model.decoder_positions)
    return (
        all(layer.kernel is fused_attention for layer in layers)
        and all(layer.value.out_features % 2 == 0 for layer in layers)  # pairs are read beside the values
        and positions.rotate in (Positions.rotate, Rotary.rotate)
        and positions.rotate_across in (Positions.rotate_across, RotaryAcross.rotate_across)
    )


def layer_norm(norm: nn.LayerNorm) -> Linear:
    """Return what a LayerNorm computes, as a function: looking its weights up in the module would take longer."""
    shape, epsilon = norm.normalized_shape, norm.eps
    weight, bias = norm.weight.detach(), norm.bias.detach()
    return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)


def around(residual: Residual) -> Callable[..., Tensor]:
    """Return a function of x (R, M), a sublayer and its other arguments that computes what `residual` does."""
    norm = layer_norm(residual.norm)

    def norm_first(x: Tensor, sublayer: Callable[..., Tensor], *arguments: object) -> Tensor:
        return sublayer(norm(x), *arguments).add_(x)

    def norm_last(x: Tensor, sublayer: Callable[..., Tensor], *arguments: object) -> Tensor:
        return norm(sublayer(x, *arguments).add_(x))

    return norm_first if residual.norm_first else norm_last


def rotate(x: Tensor, turn: Tensor | None) -> None:
    """Multiply each pair of numbers in x (R, n) by its complex number in turn (n / 2,), in place; None: do nothing."""
    if turn is not None:
        x.view(torch.complex64).mul_(turn)


@dataclass(frozen=True)
class Place:
    """What the position of the new token means to all layers."""

    turn: Tensor | None  # (H * K,), complex: rotates the queries and keys of self-attention, which are neighbours
    turn_across: Tensor | None  # (H * K / 2,), complex: rotates the queries of attention over the source
    bias: Tensor | None  # (H, 1, T): scores that are added in self-attention


@dataclass
class SourceKeyValues:
    """What the cross-attention of one layer reads of the sources; heads are rows of their own."""

    key: Tensor  # B*H K S
    value: Tensor  # B*H S V

    def select(self, sources: Tensor, heads: int) -> None:
        """Keep the sources (n,), in that order, in place; one may be chosen several times."""
        self.key = self.key.unflatten(0, (-1, heads))[sources].flatten(0, 1)
        self.value = self.value.unflatten(0, (-1, heads))[sources].flatten(0, 1)


class TargetKeyValues:
    """The keys and values of one layer for the target tokens so far, in memory with room for more.

    There are two such memories, which hypotheses move between when they are reordered: new memory costs more than the
    copy.
    """

    def __init__(self, heads: int, d_k: int, d_v: int, dtype: torch.dtype):
        self.heads, self.sizes, self.length = heads, [heads * d_k, heads * d_v], 0
        self.memory, self.spare = (torch.empty(0, 0, sum(self.sizes), dtype=dtype) for _ in range(2))
        self.key = self.value = self.memory

    def use(self, memory: Tensor) -> None:
        """Keep tokens in memory (R, capacity, H * (K + V)) from now on, and make the views of it."""
        self.memory = memory
        self.key, self.value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in memory.split(self.sizes, -1)
        )  # R H capacity K, R H capacity V

    def append(self, new: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values (R, H * (K + V)) of a new token; return those of all: (R, H, T, K), (R, H, T, V)."""
        capacity = self.memory.size(1)
        if self.length == capacity:
            size = len(new), max(2 * capacity, FIRST_CAPACITY), new.size(1)
            longer = self.memory.new_empty(size, device=new.device)
            if self.length:
                longer[:, : self.length] = self.memory
            self.use(longer)
            self.spare = longer.new_empty(0, 0, new.size(1))
        self.memory.select(1, self.length).copy_(new)
        self.length += 1
        return self.key.narrow(2, 0, self.length), self.value.narrow(2, 0, self.length)

    def move(self, origin: Tensor, place: Tensor) -> None:
        """Copy the keys and values of tokens to other places; origin, place (n,): row * capacity + position."""
        tokens = self.memory.flatten(0, 1)
        tokens.index_copy_(0, place, tokens.index_select(0, origin))

    def select(self, rows: Tensor) -> None:
        """Keep the hypotheses `rows` (n,), in that order, in place; one may be chosen several times or not at all."""
        before = self.memory
        if len(self.spare) < len(rows):
            self.spare = before.new_empty(len(rows), *before.shape[1:])
        chosen = self.spare.narrow(0, 0, len(rows))
        torch.index_select(before.narrow(1, 0, self.length), 0, rows, out=chosen.narrow(1, 0, self.length))
        self.use(chosen)
        self.spare = before


class IncrementalLayer:
    """A decoder layer that computes one token for each hypothesis."""

    def __init__(self, layer: DecoderLayer, compute_type: str):
        attention, across = layer.attention, layer.cross_attention
        self.around_attention, self.around_cross_attention, self.around_feed_forward = (
            around(part) for part in (layer.around_attention, layer.around_cross_attention, layer.around_feed_forward)
        )
        self.across, self.steady = across, is_steady(layer, compute_type)
        self.heads, self.keys = attention.heads, attention.key.out_features
        self.scale = 1 / math.sqrt(attention.key.out_features // attention.heads)

        def pack(*linears: nn.Linear) -> Linear:
            return pack_linear(merge(*linears) if len(linears) > 1 else linears[0], compute_type).forward

        self.query_key_value, self.out = pack(attention.query, attention.key, attention.value), pack(attention.out)
        self.query_across, self.key_value_across = pack(across.query), pack(across.key, across.value)
        self.out_across = pack(across.out)
        hidden, self.activation = pack_hidden(layer.feed_forward, compute_type)
        self.hidden: Linear = hidden.forward
        self.out_feed_forward = pack(layer.feed_forward.out)

    def read_source(self, memory: Tensor, source: Packing, positions: Positions) -> SourceKeyValues:
        """Return the keys and values for the encoder's output `memory` (N, M) of packed sources."""
        sizes = [self.across.key.out_features, self.across.value.out_features]
        key, value = (
            self.across.split_heads(part, source) for part in self.key_value_across(memory).split(sizes, -1)
        )  # B H S K, B H S V
        key = positions.rotate_across(key, 0)
        return SourceKeyValues(key.transpose(2, 3).flatten(0, 1).contiguous(), value.flatten(0, 1).contiguous())

    def step(self, x: Tensor, target: TargetKeyValues, source: SourceKeyValues, mask: Tensor, place: Place) -> Tensor:
        """Return the layer's output (R, M) for the new tokens x (R, M); add their keys and values to `target`.

        mask (B*H, 1, S): what is added to the scores of the source, -inf for padding.
        """
        x = self.around_attention(x, self.attend_to_target, target, place)
        x = self.around_cross_attention(x, self.attend_to_source, source, mask, place)
        return self.around_feed_forward(x, self.feed_forward)

    def attend_to_target(self, x: Tensor, target: TargetKeyValues, place: Place) -> Tensor:
        """Return self-attention's output (R, M) for the new tokens x (R, M), which are then part of `target`."""
        projected = self.query_key_value(x)  # R H*(2K + V)
        rotate(projected.narrow(1, 0, 2 * self.keys), place.turn)
        key, value = target.append(projected.narrow(1, self.keys, projected.size(1) - self.keys))
        query = projected.narrow(1, 0, self.keys).view(x.size(0), self.heads, 1, -1)  # R H 1 K
        y = F.scaled_dot_product_attention(query.to(key.dtype), key, value, attn_mask=place.bias, scale=self.scale)
        return self.out(y.flatten(1))

    def attend_to_source(self, x: Tensor, source: SourceKeyValues, mask: Tensor, place: Place) -> Tensor:
        """Return the output (R, M) of attention over the source for the new tokens x (R, M)."""
        query = self.query_across(x)
        rotate(query, place.turn_across)
        heads, sources = self.heads, mask.size(0) // self.heads
        n = x.size(0) // sources
        query = query.view(sources, n, heads, -1).transpose(1, 2).reshape(sources * heads, n, -1)
        if self.steady and n < FEWEST_QUERIES:  # see `steady_attention`
            query = torch.cat([query] * -(-FEWEST_QUERIES // n), 1)
        weights = torch.baddbmm(mask, query, source.key, alpha=self.scale).softmax(-1)
        y = weights.bmm(source.value).narrow(1, 0, n)  # B*H n V
        return self.out_across(y.view(sources, heads, n, -1).transpose(1, 2).reshape(x.size(0), -1))

    def feed_forward(self, x: Tensor) -> Tensor:
        """Return the feed-forward network's output (R, M) for x (R, M)."""
        return self.out_feed_forward(self.activation(self.hidden(x)))


class IncrementalState:
    """All that the next step needs for R hypotheses; those of one source are neighbours and share keys and values."""

    def __init__(self, sources: list[SourceKeyValues], targets: list[TargetKeyValues], mask: Tensor, heads: int):
        self.sources, self.targets, self.mask, self.heads = sources, targets, mask, heads
        self.length = 0  # target tokens so far
        self.turns: list[Tensor] = []  # of the positions so far, and some more, where positions rotate; see `Place`
        self.source_of_row = torch.arange(len(mask) // heads, device=mask.device)  # (R,): the source of each hypothesis
        # R T: the row that each target token was computed in, for those before the latest selection
        self.computed = self.source_of_row.new_empty(len(self.source_of_row), 0)

    def select(self, rows: Tensor) -> None:
        """Keep the hypotheses `rows` (n,), in that order, in place; one may be chosen several times or not at all."""
        self.select_targets(rows)
        source_of_row = self.source_of_row[rows]
        if torch.equal(source_of_row, self.source_of_row):
            return
        kept, counts = source_of_row.unique_consecutive(return_counts=True)
        if not len(rows) or not bool((counts == counts[0]).all()):
            kept, counts = source_of_row, torch.ones_like(source_of_row)
        self.source_of_row = torch.arange(len(kept), device=rows.device).repeat_interleave(counts)
        if not torch.equal(kept, torch.arange(len(self.mask) // self.heads, device=rows.device)):
            self.mask = self.mask.unflatten(0, (-1, self.heads))[kept].flatten(0, 1)
            for source in self.sources:
                source.select(kept, self.heads)

    def select_targets(self, rows: Tensor) -> None:
        """Select the keys and values of the target tokens as `select` says.

        Hypotheses of one source have most of their tokens in common, which are the same in each row. So, where no
        source leaves, only those are copied that differ, unless they are so many that copying all takes less time.
        """
        unmoved = torch.arange(len(self.computed), device=rows.device).unsqueeze(1)
        before = torch.cat([self.computed, unmoved.expand(-1, self.length - self.computed.size(1))], 1)
        self.computed = before[rows]
        if not self.length or not self.targets:
            return
        if len(rows) == len(before):
            row, position = (self.computed != before).nonzero(as_tuple=True)
            if COPY_SOME * len(row) < before.numel():
                capacity = self.targets[0].memory.size(1)
                origin, place = rows[row] * capacity + position, row * capacity + position
                for target in self.targets:
                    target.move(origin, place)
                return
        for target in self.targets:
            target.select(rows)


class IncrementalTransformer:
    """A Transformer for searches: it takes one token for each hypothesis at a time. Its weights are packed copies."""

    def __init__(self, model: Transformer, compute_type: str):
        """Take a model for which `can_pack` and `can_step` are true; compute_type: as for `pack_weights`."""
        encoder: Any = share_weights(model)
        encoder.decoder, encoder.output = nn.ModuleList(), nn.Identity()  # which nobody needs packed
        self.encoder: Any = pack_weights(encoder, compute_type)
        self.config, self.heads = model.config, model.config.attention.heads
        self.words, self.positions = model.target_embedding.weight.detach(), model.decoder_positions
        self.sizes = model.config.attention.head_sizes(model.config.d_model)
        self.layers = [IncrementalLayer(layer, compute_type) for layer in model.decoder]  # type: ignore[arg-type]
        # Of self-attention over the target. With AMX it is faster in bfloat16; elsewhere that was not measured.
        short = compute_type == "bfloat16" and is_steady(model, compute_type) and instructions().get("amx_bf16")
        self.dtype = torch.bfloat16 if short else torch.float32
        norm = model.decoder_norm
        self.norm: Linear = layer_norm(norm) if isinstance(norm, nn.LayerNorm) else norm.forward
        self.output: Linear = pack_linear(model.output, compute_type).forward

    def start(self, source: Tensor) -> IncrementalState:
        """Encode the source ids (B, S); return the state before the first target token."""
        encoded = self.encoder.start(source)
        sources = [layer.read_source(encoded.memory, encoded.source, self.positions) for layer in self.layers]
        targets = [TargetKeyValues(self.heads, *self.sizes, self.dtype) for _ in self.layers]
        hidden = encoded.source.real.logical_not()[:, None, None]  # B 1 1 S
        mask = torch.zeros_like(hidden, dtype=encoded.memory.dtype).masked_fill_(hidden, -math.inf)
        return IncrementalState(sources, targets, mask.expand(-1, self.heads, -1, -1).flatten(0, 1), self.heads)

    def step(self, tokens: Tensor, state: IncrementalState) -> Tensor:
        """Return logits (R, 1, W) after the tokens (R, 1), which are then part of the state.

        Raise ValueError for more than one token for each hypothesis.
        """
        return self.output(self.vectors(tokens, state)).unsqueeze(1)

    def vectors(self, tokens: Tensor, state: IncrementalState) -> Tensor:
        """Return the vectors (R, M) that `step` computes its logits from. Raise ValueError as it does."""
        if tokens.size(1) != 1:
            raise ValueError(f"a step takes one token for each hypothesis, not {tokens.size(1)}")
        place = self.place(state)
        x = torch.embedding(self.words, tokens)
        if self.config.scale_embedding:
            x.mul_(math.sqrt(self.config.d_model))
        x = self.positions.embed(x, self.config.first_position + state.length).flatten(0, 1)
        for layer, target, source in zip(self.layers, state.targets, state.sources, strict=True):
            x = layer.step(x, target, source, state.mask, place)
        state.length += 1
        return self.norm(x)

    def place(self, state: IncrementalState) -> Place:
        """Return what the next token needs to know of its position."""
        positions, position, turn, across = self.positions, state.length, None, None
        if isinstance(positions, Rotary):
            if position == len(state.turns):
                sin, cos = positions.rows(position, 2 * position + FIRST_CAPACITY).unflatten(-1, (-1, 2)).unbind(-1)
                state.turns += torch.complex(cos, sin).repeat(1, 2 * self.heads).unbind()
            turn = state.turns[position]
            across = turn.narrow(0, 0, turn.size(0) // 2) if isinstance(positions, RotaryAcross) else None
        bias = positions.bias(position, 1, position + 1)
        return Place(turn, across, None if bias is None else bias.to(self.dtype))
