"""Write our Transformer as two graphs of ONNX: an encoder, and a decoder with a cache.

Their inputs and outputs have the names that transformers.js looks for. The graphs are built from the weights, and not
recorded from PyTorch: packed rows, growing buffers and complex numbers make the model fast, and have no place in a
graph for any sizes.

Shapes: B sentences, S source tokens, P target tokens before, T new ones, H heads, K and V the sizes of a key and of a
value, M d_model, N = B * T rows.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from dragoman.config import ModelConfig, TransformerConfig
from dragoman.errors import DragomanError
from dragoman.interop.onnx.graph import DOUBLE, FLOAT, INT64, Graph, Shape
from dragoman.interop.onnx.products import PRODUCTS
from dragoman.model import Model
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.positions import (
    POSITIONS,
    Learned,
    Positions,
    Relative,
    Rotary,
    RotaryAcross,
    Sinusoidal,
    SinusoidalHalves,
)
from dragoman.model.transformer import DecoderLayer, EncoderLayer, FeedForward, Residual, Transformer

HIDDEN = -1e9  # is added to the score of a key that a query must not attend to
# The position schemes that the graphs compute. A subclass may compute anything, so it needs a line of its own.
SCHEMES = (Positions, Sinusoidal, SinusoidalHalves, Learned, Rotary, RotaryAcross, Relative)
SCORES = ("dot", "unscaled", "additive")  # of attention

SOURCE: Shape = ("batch_size", "encoder_sequence_length")
TARGET: Shape = ("batch_size", "decoder_sequence_length")


def check_model(config: ModelConfig) -> None:
    """Raise DragomanError for a model that an export to ONNX does not support, naming its settings and what to do."""
    if unknown := unknown_settings(config):
        raise DragomanError(
            f"an export to ONNX does not support models with {' and '.join(unknown)}: "
            f"train or distill with {' '.join(unknown.values())}"
        )


def unknown_settings(config: ModelConfig) -> dict[str, str]:
    """Return the settings of a model that the graphs do not have, each with the flags of one that they have.

    A recurrent state does not fit the inputs that programs give a decoder: keys and values of each layer.
    """
    if type(config) is not TransformerConfig:
        return {config.departure: "--preset small"}
    settings = [
        (POSITIONS[config.positions] not in SCHEMES, f"positions = '{config.positions}'", "--model.positions rotary"),
        (
            config.attention.score not in SCORES,
            f"attention.score = '{config.attention.score}'",
            "--model.attention.score dot",
        ),
        (config.decoder_layers == 0, "decoder_layers = 0", "--model.decoder-layers 1"),
    ]
    return {setting: remedy for applies, setting, remedy in settings if applies}


def convert(model: Model, compute_type: str = "float32") -> tuple[Any, Any]:
    """Return the encoder and the decoder of a model, each an onnx.ModelProto.

    compute_type: how matrices are stored and multiplied, 'float32' or 'int8'. Raise DragomanError naming the settings
    of the model that the graphs do not have.
    """
    check_model(model.config)
    assert isinstance(model, Transformer)  # it refuses all others
    return Half(model, compute_type).encoder(), Half(model, compute_type).decoder()


class Half:
    """One of the two graphs of a model, as it is built."""

    def __init__(self, model: Transformer, compute_type: str):
        self.model, self.config = model, model.config
        self.graph, self.products = Graph(model), PRODUCTS[compute_type]

    def encoder(self) -> Any:
        """Return the encoder: from input_ids (B, S) and attention_mask (B, S) to last_hidden_state (B, S, M)."""
        model, node = self.model, self.graph.node
        tokens, positions = self.graph.sizes("input_ids", 0, 2), model.encoder_positions
        places = self.graph.numbers([0], self.graph.sizes("input_ids", 1, 2))
        mask = self.add_bias(self.padding_mask("attention_mask"), positions, places, places)

        def layer_output(x: str, layer: EncoderLayer) -> str:
            def attend_to_source(y: str) -> str:
                attention = layer.attention
                query, key = (
                    self.rotate(self.heads(y, tokens, linear, attention), positions, places)
                    for linear in (attention.query, attention.key)
                )
                value = self.heads(y, tokens, attention.value, attention)
                return self.attend(query, key, value, mask, attention)

            x = self.residual(x, layer.around_attention, attend_to_source)
            return self.residual(x, layer.around_feed_forward, lambda y: self.feed_forward(y, layer.feed_forward))

        x = self.embed("input_ids", model.source_embedding, positions, places)
        for layer in model.encoder:
            assert isinstance(layer, EncoderLayer)
            x = layer_output(x, layer)
        x = node("Reshape", self.norm(x, model.encoder_norm), node("Concat", tokens, [self.config.d_model], axis=0))
        return self.graph.model(
            {"input_ids": (INT64, SOURCE), "attention_mask": (INT64, SOURCE)},
            {"last_hidden_state": (x, (*SOURCE, self.config.d_model))},
        )

    def decoder(self) -> Any:
        """Return the decoder: from input_ids (B, T), what the encoder found and the cache to logits (B, T, words).

        The cache is the keys (B, H, P, K) and values (B, H, P, V) of the target so far, in each layer, and those of the
        source (B, H, S, K), (B, H, S, V). All are empty at first; those of the source are computed where they are.
        """
        model, config, graph, node = self.model, self.config, self.graph, self.graph.node
        tokens, positions = graph.sizes("input_ids", 0, 2), model.decoder_positions
        before = graph.sizes("past_key_values.0.decoder.key", 2, 3)
        end = node("Add", before, graph.sizes("input_ids", 1, 2))
        places, seen = graph.numbers(before, end), graph.numbers([0], end)
        earlier = node("LessOrEqual", node("Unsqueeze", seen, [0]), node("Unsqueeze", places, [1]))
        causal_mask = self.add_bias(node("Where", earlier, 0.0, HIDDEN), positions, places, seen)
        source_mask = self.padding_mask("encoder_attention_mask")

        # Of the encoder's output as many tokens as there are at the first call, and none later.
        first = node("Cast", node("Equal", graph.sizes("past_key_values.0.encoder.key", 2, 3), [0]), to=INT64)
        new = node("Mul", first, graph.sizes("encoder_hidden_states", 1, 2))
        memory = node("Slice", "encoder_hidden_states", [0], new, [1])
        memory_tokens, memory_places = graph.sizes(memory, 0, 2), graph.numbers([0], new)
        memory = node("Reshape", memory, [-1, config.d_model])

        inputs: dict[str, tuple[int, Shape]] = {
            "encoder_attention_mask": (INT64, SOURCE),
            "input_ids": (INT64, TARGET),
            "encoder_hidden_states": (FLOAT, (*SOURCE, config.d_model)),
        }
        outputs: dict[str, tuple[str, Shape]] = {}
        sizes = dict(zip(("key", "value"), config.attention.head_sizes(config.d_model), strict=True))

        def keep(name: str, value: str) -> str:
            """Return the cached value of this name with the new one behind it; the decoder also returns that."""
            side, kind = name.split(".")[1:]
            length = ("past_" if side == "decoder" else "") + f"{side}_sequence_length"
            inputs[f"past_key_values.{name}"] = FLOAT, ("batch_size", config.attention.heads, length, sizes[kind])
            both = node("Concat", f"past_key_values.{name}", value, axis=2)
            outputs[f"present.{name}"] = both, ("batch_size", config.attention.heads, f"all_{length}", sizes[kind])
            return both

        def layer_output(x: str, number: int, layer: DecoderLayer) -> str:
            def attend_to_target(y: str) -> str:
                attention = layer.attention
                query, key = (
                    self.rotate(self.heads(y, tokens, linear, attention), positions, places)
                    for linear in (attention.query, attention.key)
                )
                key = keep(f"{number}.decoder.key", key)
                value = keep(f"{number}.decoder.value", self.heads(y, tokens, attention.value, attention))
                return self.attend(query, key, value, causal_mask, attention)

            def attend_to_source(y: str) -> str:
                attention = layer.cross_attention
                query = self.rotate_across(self.heads(y, tokens, attention.query, attention), positions, places)
                key = self.heads(memory, memory_tokens, attention.key, attention)
                key = keep(f"{number}.encoder.key", self.rotate_across(key, positions, memory_places))
                value = self.heads(memory, memory_tokens, attention.value, attention)
                value = keep(f"{number}.encoder.value", value)
                return self.attend(query, key, value, source_mask, attention)

            x = self.residual(x, layer.around_attention, attend_to_target)
            x = self.residual(x, layer.around_cross_attention, attend_to_source)
            return self.residual(x, layer.around_feed_forward, lambda y: self.feed_forward(y, layer.feed_forward))

        x = self.embed("input_ids", model.target_embedding, positions, places)
        for number, layer in enumerate(model.decoder):
            assert isinstance(layer, DecoderLayer)
            x = layer_output(x, number, layer)
        logits = self.products.linear(graph, self.norm(x, model.decoder_norm), model.output)
        words = model.output.out_features
        logits = node("Reshape", logits, node("Concat", tokens, [words], axis=0))
        return graph.model(inputs, {"logits": (logits, (*TARGET, words)), **outputs})

    # The parts of a layer.

    def embed(self, ids: str, words: nn.Embedding, positions: Positions, places: str) -> str:
        """Return the vectors (N, M) of ids (B, T) at `places` (T,), with what the position scheme adds."""
        x = self.products.rows(self.graph, words.weight, ids)
        if self.config.scale_embedding:
            x = self.graph.node("Mul", x, math.sqrt(self.config.d_model))
        if self.config.first_position:
            places = self.graph.node("Add", places, np.array(self.config.first_position))
        if (table := self.position_table(positions, places)) is not None:
            x = self.graph.node("Add", x, table)
        return self.graph.node("Reshape", x, [-1, self.config.d_model])

    def residual(self, x: str, around: Residual, sublayer: Callable[[str], str]) -> str:
        """Return x (N, M) plus a sublayer of it, normalised in the order of the settings."""
        if around.norm_first:
            return self.graph.node("Add", x, sublayer(self.norm(x, around.norm)))
        return self.norm(self.graph.node("Add", x, sublayer(x)), around.norm)

    def norm(self, x: str, norm: nn.Module) -> str:
        """Return x (N, M) normalised; as it is for the model's places where nothing is normalised."""
        if not isinstance(norm, nn.LayerNorm):
            return x
        weight, bias = self.graph.weight(norm.weight), self.graph.weight(norm.bias)
        return self.graph.node("LayerNormalization", x, weight, bias, axis=-1, epsilon=norm.eps)

    def feed_forward(self, x: str, layer: FeedForward) -> str:
        """Return what the feed-forward network makes of x (N, M)."""
        hidden, name = self.products.linear(self.graph, x, layer.hidden), self.config.feed_forward.activation
        if name == "silu":
            active = self.graph.node("Mul", hidden, self.graph.node("Sigmoid", hidden))
        else:
            active = self.graph.node({"relu": "Relu", "gelu": "Gelu"}[name], hidden)
        return self.products.linear(self.graph, active, layer.out)

    def heads(self, x: str, tokens: str, linear: nn.Linear, attention: MultiHeadAttention) -> str:
        """Return the heads (B, H, T, D) that a projection makes of x (N, M); tokens: B and T."""
        size = linear.out_features // attention.heads
        shape = self.graph.node("Concat", tokens, [attention.heads, size], axis=0)
        y = self.graph.node("Reshape", self.products.linear(self.graph, x, linear), shape, allowzero=1)
        return self.graph.node("Transpose", y, perm=[0, 2, 1, 3])

    def attend(self, query: str, key: str, value: str, mask: str, attention: MultiHeadAttention) -> str:
        """Return what queries (B, H, T, K) get from keys (B, H, S, K) and values (B, H, S, V): vectors (N, M).

        mask: is added to the scores (B, H, T, S).
        """
        node, score = self.graph.node, self.config.attention.score
        if score == "additive":
            pairs = node("Add", node("Unsqueeze", query, [-2]), node("Unsqueeze", key, [-3]))
            hidden = node("Mul", node("Tanh", pairs), self.graph.weight(attention.score.weight))
            scores = node("ReduceSum", hidden, [-1], keepdims=0)
        else:
            scores = node("MatMul", query, node("Transpose", key, perm=[0, 1, 3, 2]))
            if score == "dot":
                scores = node("Mul", scores, 1 / math.sqrt(attention.key.out_features // attention.heads))
        y = node("MatMul", node("Softmax", node("Add", scores, mask), axis=-1), value)
        y = node("Reshape", node("Transpose", y, perm=[0, 2, 1, 3]), [-1, attention.out.in_features])
        return self.products.linear(self.graph, y, attention.out)

    def padding_mask(self, real: str) -> str:
        """Return (B, 1, 1, S) to add to scores, for `real` (B, S), which is 0 in the padding."""
        padding = self.graph.node("Equal", real, [0])
        return self.graph.node("Unsqueeze", self.graph.node("Where", padding, HIDDEN, 0.0), [1, 2])

    # Positions.

    def position_table(self, positions: Positions, places: str) -> str | None:
        """Return what a scheme adds to the embeddings at `places` (T,): (T, M); None for nothing."""
        size = self.config.d_model
        if isinstance(positions, Learned):
            return self.graph.node("Gather", self.graph.weight(positions.table.weight), places)
        if isinstance(positions, SinusoidalHalves):
            half = (size + 1) // 2
            rates = np.exp(np.arange(half) * -(math.log(10000) / max(half - 1, 1)))
            return self.waves(places, np.tile(rates, 2)[:size], np.repeat([0, math.pi / 2], half)[:size])
        if isinstance(positions, Sinusoidal):
            return self.waves(places, rates_in_pairs(size), np.resize([0, math.pi / 2], size))
        return None

    def add_bias(self, mask: str, positions: Positions, places: str, keys: str) -> str:
        """Return a mask plus the scores (H, T, S) that a scheme has for queries at `places` and for keys."""
        if not isinstance(positions, Relative):
            return mask
        node, reach = self.graph.node, np.array(positions.reach)
        distance = node("Sub", node("Unsqueeze", keys, [0]), node("Unsqueeze", places, [1]))
        index = node("Add", node("Clip", distance, -reach, reach), reach)
        scores = node("Gather", self.graph.weight(positions.scores.weight), index)
        return node("Add", mask, node("Transpose", scores, perm=[2, 0, 1]))

    def rotate_across(self, x: str, positions: Positions, places: str) -> str:
        """Return x (B, H, T, D) rotated for attention over the source, where a scheme does that."""
        return self.rotate(x, positions, places) if isinstance(positions, RotaryAcross) else x

    def rotate(self, x: str, positions: Positions, places: str) -> str:
        """Return queries or keys x (B, H, T, D) of tokens at `places` (T,) rotated, where a scheme does that.

        A pair (a, b) becomes (a cos - b sin, b cos + a sin).
        """
        if not isinstance(positions, Rotary):
            return x
        node, size = self.graph.node, positions.table.size(1)
        swap = np.zeros((size, size), np.float32)  # x times it has (-b, a) in place of each pair
        for first in range(0, size, 2):
            swap[first + 1, first], swap[first, first + 1] = -1, 1
        cosine, sine = (self.waves(places, rates_in_pairs(size), np.full(size, phase)) for phase in (math.pi / 2, 0.0))
        return node("Add", node("Mul", x, cosine), node("Mul", node("MatMul", x, swap), sine))

    def waves(self, places: str, rates: np.ndarray, phases: np.ndarray) -> str:
        """Return sin(place * rate + phase), (T, D), for `places` (T,), and rates and phases (D,) in radians.

        The angle is computed in double precision: that of place 1000 would be wrong by 1e-4 in float32.
        """
        node = self.graph.node
        angle = node("Mul", node("Unsqueeze", node("Cast", places, to=DOUBLE), [1]), rates)
        angle = node("Mod", node("Add", angle, phases), np.array(2 * math.pi), fmod=1)
        return node("Sin", node("Cast", angle, to=FLOAT))


def rates_in_pairs(size: int) -> np.ndarray:
    """Return the angle from one position to the next of each of `size` numbers, two of which have the same."""
    return np.exp(np.arange(size) // 2 * 2 * -(math.log(10000) / size))
