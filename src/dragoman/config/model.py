"""Describe what a model consists of: the Transformer of the paper, and the recurrent baseline."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from dragoman.config.fields import (
    MAX_LAYERS,
    MAX_POSITIONS,
    Fraction,
    Layers,
    Size,
    above,
    at_least,
    at_most,
    below,
    check_fields,
)
from dragoman.errors import UsageError

Positions = Literal["none", "sinusoidal", "sinusoidal-halves", "learned", "rotary", "rotary-across", "relative"]
SharedMatrices = Literal["all", "embeddings", "output", "none"]
MAX_FIRST_POSITION = 1000


@dataclass(frozen=True)
class AttentionConfig:
    """Multi-head attention, section 3.2.2."""

    heads: Size = 8
    "number of attention heads"
    d_k: Size | None = None
    "size of each query and key; default: d_model / heads"
    d_v: Size | None = None
    "size of each value; default: d_model / heads"
    bias: bool = False
    "add a bias in the query, key, value and output projections"
    dropout: Fraction = 0.0
    "dropout on the attention weights (the paper uses none)"
    score: Literal["dot", "unscaled", "additive"] = "dot"
    "how queries are compared with keys: dot product divided by sqrt(d_k), not divided, or additive attention"

    def __post_init__(self) -> None:
        check_fields(self)

    def head_sizes(self, d_model: int) -> tuple[int, int]:
        """Return (d_k, d_v). Raise UsageError where one is not given and d_model is no multiple of the heads."""
        if (self.d_k is None or self.d_v is None) and d_model % self.heads:
            raise UsageError(
                f"d_model {d_model} is not divisible by {self.heads} heads: choose a divisor, or give d_k and d_v"
            )
        return self.d_k or d_model // self.heads, self.d_v or d_model // self.heads


@dataclass(frozen=True)
class FeedForwardConfig:
    """The position-wise feed-forward network, section 3.3."""

    d_ff: Size = 2048
    "size of the hidden layer"
    activation: Literal["relu", "gelu", "silu"] = "relu"
    "the non-linearity between the two matrices"
    dropout: Fraction = 0.0
    "dropout on the hidden layer (the paper uses none)"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class TransformerConfig:
    """The architecture of a Transformer. In Python, the default is the base model of the paper: section 3, Table 3."""

    d_model: Size = 512
    "size of the vector that represents a token between layers"
    encoder_layers: Layers = 6
    "number of encoder layers"
    decoder_layers: Layers = 6
    "number of decoder layers"
    attention: AttentionConfig = AttentionConfig()
    "Multi-head attention, section 3.2.2."
    feed_forward: FeedForwardConfig = FeedForwardConfig()
    "The position-wise feed-forward network, section 3.3."
    dropout: Fraction = 0.1
    "dropout on the output of each sublayer and on the embeddings"
    positions: Positions = "sinusoidal"
    "how positions are encoded"
    first_position: Annotated[int, at_least(0), at_most(MAX_FIRST_POSITION)] = 0
    "position of the first token with sinusoidal positions (the paper: 0; fairseq, M2M100 and NLLB: 2)"
    norm_first: bool = False
    "normalise before each sublayer rather than after it (the paper: after)"
    norm_epsilon: Annotated[float, above(0), below(1)] = 1e-5
    "added to the variance in each layer normalisation (PyTorch: 1e-5, Marian: 1e-6)"
    scale_embedding: bool = True
    "multiply embeddings by sqrt(d_model)"
    share: SharedMatrices = "all"
    "shared matrices: all (both embeddings and output), embeddings, output (target embedding and output), none"
    output_bias: bool = False
    "add a bias to the logits"
    max_length: Annotated[int, at_least(2), at_most(MAX_POSITIONS)] = 1024
    "maximum sentence length in tokens with learned positions; other positions have no limit"

    def __post_init__(self) -> None:
        check_fields(self)
        d_k, _ = self.attention.head_sizes(self.d_model)
        if self.positions.startswith("rotary") and d_k % 2:
            raise UsageError(f"rotary positions rotate pairs of numbers: d_k must be even, not {d_k}")
        if self.first_position and not self.positions.startswith("sinusoidal"):
            raise UsageError(f"first_position is for sinusoidal positions; positions = '{self.positions}' have none")

    def __str__(self) -> str:
        return (
            f"Transformer, layers {self.encoder_layers} + {self.decoder_layers}, d_model {self.d_model}, "
            f"heads {self.attention.heads}, d_ff {self.feed_forward.d_ff}, positions {self.positions}"
        )

    @property
    def max_positions(self) -> int | None:
        """The most tokens that source or target may have, BOS and EOS included; None: any number."""
        return self.max_length if self.positions == "learned" else None

    @property
    def departure(self) -> str:
        """What a variant has that the Transformer of the paper has not, for those that support nothing else."""
        return ""


@dataclass(frozen=True)
class RecurrentConfig:
    """The baseline that the paper beat: a recurrent encoder and decoder, with or without attention."""

    cell: Literal["rnn", "lstm", "gru"] = "lstm"
    "kind of recurrent cell"
    d_model: Size = 512
    "size of embeddings and hidden states"
    layers: Annotated[int, at_least(1), at_most(MAX_LAYERS)] = 1
    "number of layers of the encoder, and of the decoder"
    bidirectional: bool = True
    "encode in both directions, each with half of d_model"
    attention: Literal["none", "dot", "additive"] = "dot"
    "how the decoder attends to the source; none: it only sees the encoder's last state"
    activation: Literal["tanh", "relu", "gelu"] = "tanh"
    "the non-linearity of the plain rnn cell"
    dropout: Fraction = 0.1
    "dropout on embeddings, between layers and before the output"
    share: SharedMatrices = "all"
    "shared matrices: all (both embeddings and output), embeddings, output (target embedding and output), none"

    max_positions: ClassVar[int | None] = None  # no limit; TransformerConfig may have one
    departure: ClassVar[str] = "recurrent layers"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.bidirectional and self.d_model % 2:
            raise UsageError(f"d_model {self.d_model} must be even, to be split between two directions")

    def __str__(self) -> str:
        layers = f"{self.layers} + {self.layers}"
        return f"{self.cell.upper()}, layers {layers}, d_model {self.d_model}, attention {self.attention}"


ModelConfig = TransformerConfig | RecurrentConfig
