"""Search over a Transformer in C++: `transformer.cpp` behind start, step and select.

The library is compiled when the package is installed, once for each level of instructions, and loaded through ctypes;
without it, PyTorch computes the same (`incremental.py`). DRAGOMAN_NATIVE=0 in the environment does without it, too.
"""

import ctypes
import functools
import hashlib
import math
import os
import platform
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int32, c_int64, c_long, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.inference.linears import merge
from dragoman.model.positions import Learned, Positions, Relative, Rotary, RotaryAcross, Sinusoidal
from dragoman.model.transformer import ACTIVATIONS, DecoderLayer, Transformer
from dragoman.runtime.device import instructions

SWITCH = "DRAGOMAN_NATIVE"
FOLDER = Path(__file__).parent  # of the libraries and their sources
SOURCES = ("kernels.h", "transformer.cpp")
FIRST_POSITIONS = 128  # target tokens whose positions are computed at first
ACTIVATION_NUMBERS = {"relu": 1, "gelu": 2, "silu": 3}  # `Activation` in kernels.h
# Levels of instructions, the best first: the name of a library, and what the processor must have for it.
LEVELS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "x86-64-v4": ("avx512_f", "avx512_bw", "avx512_vl", "avx512_vnni"),
        "x86-64-v3": ("avx2", "fma3"),
        "x86-64": (),
    },
    "aarch64": {"armv8.2": ("neon_dotprod",), "armv8": ()},
}
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # other names of these


class Norm(ctypes.Structure):
    """`Norm` in kernels.h."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("epsilon", c_float))


class Layer(ctypes.Structure):
    """`Layer` in transformer.cpp."""

    _fields_ = (
        *((name, c_void_p) for name in ("query_key_value", "out", "query_across", "key_value_across", "out_across")),
        *((name, c_void_p) for name in ("hidden", "out_feed_forward")),
        *((name, Norm) for name in ("norm", "norm_across", "norm_feed_forward")),
    )


class Weights(ctypes.Structure):
    """`Model` in transformer.cpp."""

    _fields_ = (
        *((name, c_int32) for name in ("d_model", "heads", "d_k", "d_v", "d_ff", "encoder_layers", "decoder_layers")),
        *((name, c_int32) for name in ("source_words", "target_words", "norm_first", "activation")),
        ("embedding_scale", c_float),
        *((name, c_void_p) for name in ("source_embedding", "target_embedding")),
        *((name, POINTER(Layer)) for name in ("encoder", "decoder")),
        *((name, Norm) for name in ("encoder_norm", "decoder_norm")),
        ("output", c_void_p),
    )


class Place(ctypes.Structure):
    """`Positions` in transformer.cpp."""

    _fields_ = tuple((name, c_void_p) for name in ("added", "turn", "turn_across", "bias"))


FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "lanes": (c_int, []),
    "multiplies_int8": (c_int, []),
    "new_linear": (c_void_p, [c_void_p, c_void_p, c_int, c_int, c_int]),
    "free_linear": (None, [c_void_p]),
    "start": (c_int, [c_void_p, c_void_p, c_long, c_long, c_int64, c_void_p, c_void_p]),
    "step": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "log_softmax": (None, [c_void_p, c_long, c_long]),
    "likeliest": (None, [c_void_p, c_long, c_long, c_long, c_void_p, c_void_p]),
    "select": (c_int, [c_void_p, c_void_p, c_long]),
    "free_state": (None, [c_void_p, c_void_p]),
}


class Library:
    """The functions of transformer.cpp in one of its libraries."""

    lanes: Any
    multiplies_int8: Any
    new_linear: Any
    free_linear: Any
    start: Any
    step: Any
    log_softmax: Any
    likeliest: Any
    select: Any
    free_state: Any

    def __init__(self, path: Path):
        """Load a library. Raise OSError where that fails, or where it was compiled from other sources than these."""
        loaded = ctypes.CDLL(str(path))
        sources = b"".join(path.with_name(name).read_bytes() for name in SOURCES)
        stamp = loaded.dragoman_stamp
        stamp.restype = c_char_p
        if stamp().decode() != hashlib.sha256(sources).hexdigest()[:16]:
            raise OSError("it was compiled from other sources: install dragoman again")
        self.level = path.stem.removeprefix("transformer-")
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(loaded, f"dragoman_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)


def levels() -> list[str]:
    """Return the levels of instructions that this processor has, the best first."""
    machine, has = platform.machine().lower(), instructions()
    names = LEVELS.get(MACHINES.get(machine, machine), {})
    return [level for level, needed in names.items() if all(has.get(name) for name in needed)]


@functools.cache
def find_library() -> Library | str:
    """Return the best library for this processor, or why there is none."""
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0 is set"
    for level in levels():
        path = FOLDER / f"transformer-{level}.so"
        if path.exists():
            try:
                return Library(path)
            except (OSError, AttributeError) as error:
                return f"{path.name} cannot be used: {error}"
    return "it was installed without a C++ compiler"


def multiplies_int8() -> bool:
    """Return whether there is a library that multiplies int8 on this processor."""
    library = find_library()
    return not isinstance(library, str) and bool(library.multiplies_int8())


def find_obstacle(model: Any, compute_type: str, library: Library) -> str | None:
    """Return why a library does not search with a model; None if it does."""
    if type(model) is not Transformer:
        return "the model is no Transformer"
    if next(model.parameters()).device.type != "cpu":
        return "the model is on a GPU"
    if compute_type not in ("float32", *["int8"] * library.multiplies_int8()):
        return f"the processor does not multiply {compute_type} there"
    for positions in (model.encoder_positions, model.decoder_positions):
        kind = type(positions)
        if kind.embed not in (Positions.embed, Sinusoidal.embed, Learned.embed) or kind.bias not in (
            Positions.bias,
            Relative.bias,
        ):
            return f"it has no positions like {kind.__name__}"
    name, layers = model.config.feed_forward.activation, [*model.encoder, *model.decoder]
    activations: set[Any] = {layer.feed_forward.activation for layer in layers}
    if name not in ACTIVATION_NUMBERS or not activations <= {ACTIVATIONS[name]}:
        return "it has not that activation"
    return None


class NativeLinear:
    """Linear maps of one input in the library's memory, as one."""

    def __init__(self, library: Library, linears: Sequence[nn.Linear], compute_type: str):
        linear = merge(*linears)
        weight = linear.weight.detach().contiguous()
        bias = None if linear.bias is None else linear.bias.detach().contiguous()
        int8, self.free = compute_type == "int8", library.free_linear
        self.pointer = library.new_linear(address(weight), address(bias), *weight.shape, int8)

    def __del__(self) -> None:
        self.free(self.pointer)


def address(tensor: Tensor | None) -> int | None:
    """Return where the numbers of a contiguous tensor are; None for None."""
    return None if tensor is None else tensor.data_ptr()


@dataclass(frozen=True)
class PositionRows:
    """What a position scheme adds to the first `length` tokens, and how it turns their queries and keys."""

    length: int
    added: Tensor | None  # length, M
    turn: Tensor | None  # length, 2 * K, K padded: see `split_heads` in kernels.h
    across: bool  # whether attention over the source is turned, too

    @classmethod
    def from_scheme(cls, positions: Positions, first: int, length: int, d_model: int, lanes: int) -> "PositionRows":
        """Return the rows of the tokens from 0 on, the first of which has the embedding of position `first`.

        lanes: the numbers of a head are padded to a multiple of it. Raise ValueError for more than the scheme has.
        """
        added, turn = None, None
        if type(positions).embed is not Positions.embed:
            added = positions.embed(torch.zeros(1, length, d_model), first)[0].detach().contiguous()
        if isinstance(positions, Rotary):
            sin, cos = (
                part.repeat_interleave(2, -1) for part in positions.rows(0, length).unflatten(-1, (-1, 2)).unbind(-1)
            )
            sin[:, ::2].neg_()
            padding = (0, -sin.size(1) % lanes)
            turn = torch.cat([F.pad(cos, padding), F.pad(sin, padding)], 1).contiguous()
        return cls(length, added, turn, isinstance(positions, RotaryAcross))

    def at(self, position: int, bias: Tensor | None) -> Place:
        """Return the rows from `position` on for the library, with scores that are added; they must outlive it."""
        added, turn = (
            None if rows is None else rows.data_ptr() + position * rows.stride(0) * rows.element_size()
            for rows in (self.added, self.turn)
        )
        return Place(added, turn, turn if self.across else None, address(bias))


class NativeState:
    """All that the next step needs, in the library's memory."""

    def __init__(self, transformer: "NativeTransformer", pointer: c_void_p, rows: int):
        self.transformer, self.pointer, self.rows, self.length = transformer, pointer, rows, 0

    def select(self, rows: Tensor) -> None:
        """Keep the hypotheses `rows` (n,), in that order, in place; one may be chosen several times or not at all."""
        rows = rows.contiguous()  # named, so that it outlives the call
        check(self.transformer.library.select(self.pointer, address(rows), len(rows)))
        self.rows = len(rows)

    def __del__(self) -> None:
        self.transformer.library.free_state(byref(self.transformer.weights), self.pointer)


def check(status: int) -> None:
    """Raise ValueError for what the library refuses: `Status` in transformer.cpp."""
    if status:
        refused = ("a token that is not in the vocabulary", "padding between tokens", "a hypothesis that is not there")
        raise ValueError(f"the search met {refused[status - 1]}")


class NativeTransformer:
    """A Transformer for searches, like `IncrementalTransformer`. Its weights are packed copies."""

    def __init__(self, model: Transformer, compute_type: str, library: Library):
        """Take a model for which `find_obstacle` returns None; compute_type: 'float32' or 'int8'."""
        self.library, self.config, self.pad = library, model.config, model.pad
        self.compute_type = compute_type
        self.encoder_positions, self.positions = model.encoder_positions, model.decoder_positions
        self.kept: list[Any] = []  # what the library reads, or holds memory for
        d_k, d_v = model.config.attention.head_sizes(model.config.d_model)
        words = [
            embedding.weight.detach().contiguous() for embedding in (model.source_embedding, model.target_embedding)
        ]
        self.kept += words
        encoder, decoder = ([self.layer(layer) for layer in layers] for layers in (model.encoder, model.decoder))
        self.weights = Weights(
            d_model=model.config.d_model,
            heads=model.config.attention.heads,
            d_k=d_k,
            d_v=d_v,
            d_ff=model.config.feed_forward.d_ff,
            encoder_layers=len(encoder),
            decoder_layers=len(decoder),
            source_words=len(words[0]),
            target_words=len(words[1]),
            norm_first=model.config.norm_first,
            activation=ACTIVATION_NUMBERS[model.config.feed_forward.activation],
            embedding_scale=math.sqrt(model.config.d_model) if model.config.scale_embedding else 1.0,
            source_embedding=address(words[0]),
            target_embedding=address(words[1]),
            encoder=(Layer * len(encoder))(*encoder),
            decoder=(Layer * len(decoder))(*decoder),
            encoder_norm=self.norm(model.encoder_norm),
            decoder_norm=self.norm(model.decoder_norm),
            output=self.linear(model.output),
        )
        self.target_words = model.output.out_features
        self.rows = self.position_rows(self.positions, 0)

    def linear(self, *linears: nn.Linear) -> int:
        """Return linear maps of one input, as one, in the library's memory."""
        self.kept.append(NativeLinear(self.library, linears, self.compute_type))
        pointer: int = self.kept[-1].pointer
        return pointer

    def norm(self, norm: nn.Module) -> Norm:
        """Return a LayerNorm for the library; without weights for an identity."""
        if not isinstance(norm, nn.LayerNorm):
            return Norm()
        weights = [norm.weight.detach().contiguous(), norm.bias.detach().contiguous()]
        self.kept += weights
        return Norm(*map(address, weights), norm.eps)

    def layer(self, layer: Any) -> Layer:
        """Return a layer of the encoder or of the decoder for the library."""
        attention, network = layer.attention, layer.feed_forward
        across: list[int | None] = [None] * 3
        norm_across = Norm()
        if isinstance(layer, DecoderLayer):
            over_source = layer.cross_attention
            across = [
                self.linear(over_source.query),
                self.linear(over_source.key, over_source.value),
                self.linear(over_source.out),
            ]
            norm_across = self.norm(layer.around_cross_attention.norm)
        return Layer(
            self.linear(attention.query, attention.key, attention.value),
            self.linear(attention.out),
            *across,
            self.linear(network.hidden),
            self.linear(network.out),
            self.norm(layer.around_attention.norm),
            norm_across,
            self.norm(layer.around_feed_forward.norm),
        )

    def position_rows(self, positions: Positions, length: int) -> PositionRows:
        """Return the rows of a stack's positions for at least `length` tokens. Raise ValueError for too many."""
        first, most = self.config.first_position, self.config.max_positions
        longer = max(2 * length, FIRST_POSITIONS)
        if most:
            longer = max(length, min(longer, most))
        return PositionRows.from_scheme(positions, first, longer, self.config.d_model, self.library.lanes())

    def start(self, source: Tensor) -> NativeState:
        """Encode the source ids (B, S); return the state before the first target token."""
        source = source.contiguous()
        sentences, length = source.shape
        positions = self.encoder_positions
        rows = PositionRows.from_scheme(
            positions, self.config.first_position, length, self.config.d_model, self.library.lanes()
        )
        bias = positions.bias(0, length, length)
        bias = None if bias is None else bias.detach().contiguous()
        state = c_void_p()
        check(
            self.library.start(
                byref(self.weights), address(source), sentences, length, self.pad, byref(rows.at(0, bias)), byref(state)
            )
        )
        return NativeState(self, state, sentences)

    def step(self, tokens: Tensor, state: NativeState, vectors: Tensor | None = None) -> Tensor:
        """Return logits (R, 1, W) after the tokens (R, 1), which are then part of the state.

        vectors (R, M): is filled with what the logits are computed from. Raise ValueError for more than one token for
        each hypothesis.
        """
        if tokens.shape != (state.rows, 1):
            raise ValueError(f"a step takes one token for each of {state.rows} hypotheses, not {tuple(tokens.shape)}")
        rows, position = self.rows, state.length
        if position >= rows.length:
            rows = self.rows = self.position_rows(self.positions, position + 1)
        bias = self.positions.bias(position, 1, position + 1)
        bias = None if bias is None else bias.detach().contiguous()
        tokens, logits = tokens.contiguous(), torch.empty(state.rows, 1, self.target_words)
        place = byref(rows.at(position, bias))
        check(
            self.library.step(
                byref(self.weights), state.pointer, address(tokens), place, address(logits), address(vectors)
            )
        )
        state.length += 1
        return logits

    def log_p(self, tokens: Tensor, state: NativeState, vectors: Tensor | None = None) -> Tensor:
        """Return log-probabilities (R, W) after the tokens (R, 1), which are then part of the state.

        vectors: as for `step`.
        """
        logits = self.step(tokens, state, vectors).squeeze(1)
        self.library.log_softmax(address(logits), *logits.shape)
        return logits

    def log_p_with_vectors(self, tokens: Tensor, state: NativeState) -> tuple[Tensor, Tensor]:
        """Return what `log_p` does, and the decoder's output (R, M) that it is computed from."""
        vectors = torch.empty(state.rows, self.config.d_model)
        return self.log_p(tokens, state, vectors), vectors

    def likeliest(self, tokens: Tensor, state: NativeState, k: int) -> tuple[Tensor, Tensor]:
        """Return the k largest of what `log_p` returns, and which words they are, both (R, k), the largest first.

        Fewer if there are not so many words.
        """
        logits, k = self.step(tokens, state), min(k, self.target_words)
        values, words = torch.empty(state.rows, k), torch.empty(state.rows, k, dtype=torch.long)
        self.library.likeliest(address(logits), state.rows, self.target_words, k, address(values), address(words))
        return values, words
