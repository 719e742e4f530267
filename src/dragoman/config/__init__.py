"""What a run can be told: small frozen dataclasses, and their way in from TOML and JSON and out again.

Every flag of `dragoman train` is a field of `RunConfig` or of one of its sections. This file needs no torch, so that
`--help` answers at once.
"""

import dataclasses
import difflib
import json
import math
import tomllib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tomli_w

from dragoman.errors import UsageError

# Bounds for numbers from flags and from strangers' files, far above what makes sense.
MOST_LAYERS, MOST_THREADS, MOST_BEAMS = 1000, 1024, 1000
LARGEST_SIZE, MOST_PLACES, LARGEST_NUMBER = 1_000_000, 10_000_000, 2**31 - 1
MOST_RATE = 0.5
LEAST_TEMPERATURE, MOST_TEMPERATURE = 0.001, 100.0
MOST_PENALTY = 10.0  # of alpha, either way; the paper has 0.6


def _at_least(config: Any, least: float, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and not value >= least:
            raise UsageError(f"{name} must be at least {least}, not {value}")


def _at_most(config: Any, most: int, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and value > most:
            raise UsageError(f"{name} must be at most {most:,}, not {value}")


def _rate(config: Any, name: str) -> None:
    value = getattr(config, name)
    if not 0 <= value < 1:
        raise UsageError(f"{name} must be from 0 to below 1, not {value}")


Share = Literal["all", "embeddings", "output", "none"]


@dataclass(frozen=True)
class AttentionConfig:
    """Multi-head attention, section 3.2.2."""

    heads: int = 8
    "number of attention heads"
    d_k: int | None = None
    "size of each query and key; default: d_model / heads"
    d_v: int | None = None
    "size of each value; default: d_model / heads"
    bias: bool = False
    "add a bias in the query, key, value and output projections"
    dropout: float = 0.0
    "dropout on the attention weights (the paper uses none)"
    score: Literal["dot", "unscaled", "additive"] = "dot"
    "how queries are compared with keys: dot product divided by sqrt(d_k), not divided, or additive attention"

    def __post_init__(self) -> None:
        _at_least(self, 1, "heads", "d_k", "d_v")
        _at_most(self, LARGEST_SIZE, "heads", "d_k", "d_v")
        _rate(self, "dropout")

    def head_sizes(self, d_model: int) -> tuple[int, int]:
        """(d_k, d_v). Raises UsageError where d_model does not split into equal heads and no size is given."""
        if (self.d_k is None or self.d_v is None) and d_model % self.heads:
            raise UsageError(
                f"d_model {d_model} does not split into {self.heads} heads: choose a divisor, or give d_k and d_v"
            )
        return self.d_k or d_model // self.heads, self.d_v or d_model // self.heads


@dataclass(frozen=True)
class FeedForwardConfig:
    """The position-wise network, section 3.3."""

    d_ff: int = 2048
    "size of the hidden layer"
    activation: Literal["relu", "gelu", "silu"] = "relu"
    "the non-linearity between the two matrices"
    dropout: float = 0.0
    "dropout on the hidden layer (the paper uses none)"

    def __post_init__(self) -> None:
        _at_least(self, 1, "d_ff")
        _at_most(self, LARGEST_SIZE, "d_ff")
        _rate(self, "dropout")


@dataclass(frozen=True)
class TransformerConfig:
    """A Transformer without its vocabulary. The defaults are the base model of the paper (section 3, Table 3)."""

    d_model: int = 512
    "size of the vector of a token between layers"
    encoder_layers: int = 6
    "encoder layers"
    decoder_layers: int = 6
    "decoder layers"
    attention: AttentionConfig = AttentionConfig()
    feed_forward: FeedForwardConfig = FeedForwardConfig()
    dropout: float = 0.1
    "dropout on the output of each sub-layer and on the embeddings"
    positions: Literal["none", "sinusoidal", "sinusoidal-halves", "learned", "rotary", "rotary-across", "relative"] = (
        "sinusoidal"
    )
    "how the model knows word order"
    norm_first: bool = False
    "normalise before each sub-layer rather than after it (the paper: after)"
    scale_embedding: bool = True
    "multiply embeddings by sqrt(d_model)"
    share: Share = "all"
    "one matrix for both embeddings and the output; both embeddings; the target embedding and the output; none"
    output_bias: bool = False
    "add a bias to the logits"
    max_length: int = 1024
    "size of the table of positions; only learned positions refuse longer sentences"

    def __post_init__(self) -> None:
        _at_least(self, 1, "d_model")
        _at_most(self, LARGEST_SIZE, "d_model")
        _at_least(self, 2, "max_length")
        _at_most(self, MOST_PLACES, "max_length")
        _at_least(self, 0, "encoder_layers", "decoder_layers")
        _at_most(self, MOST_LAYERS, "encoder_layers", "decoder_layers")
        _rate(self, "dropout")
        d_k, _ = self.attention.head_sizes(self.d_model)
        if self.positions.startswith("rotary") and d_k % 2:
            raise UsageError(f"rotary positions turn pairs of numbers: d_k must be even, not {d_k}")

    @property
    def max_positions(self) -> int | None:
        """The most tokens that source or target may have, start and end included; None: any number."""
        return self.max_length if self.positions == "learned" else None


@dataclass(frozen=True)
class RecurrentConfig:
    """The baseline the paper beat: a recurrent encoder and decoder, with or without attention."""

    cell: Literal["rnn", "lstm", "gru"] = "lstm"
    "kind of recurrent cell"
    d_model: int = 512
    "size of embeddings and hidden states"
    layers: int = 1
    "encoder layers, and as many decoder layers"
    bidirectional: bool = True
    "encode in both directions, each with half of d_model"
    attention: Literal["none", "dot", "additive"] = "dot"
    "how the decoder attends to the source; none: it only sees the encoder's last state"
    activation: Literal["tanh", "relu", "gelu"] = "tanh"
    "the non-linearity of the plain rnn cell"
    dropout: float = 0.1
    "dropout on embeddings, between layers and before the output"
    share: Share = "all"
    "one matrix for both embeddings and the output; both embeddings; the target embedding and the output; none"

    max_positions: typing.ClassVar[int | None] = None  # any number of tokens will do, as TransformerConfig says it

    def __post_init__(self) -> None:
        _at_least(self, 1, "d_model", "layers")
        _at_most(self, LARGEST_SIZE, "d_model")
        _at_most(self, MOST_LAYERS, "layers")
        _rate(self, "dropout")
        if self.bidirectional and self.d_model % 2:
            raise UsageError(f"d_model {self.d_model} does not split into two directions: choose an even number")


ModelConfig = TransformerConfig | RecurrentConfig
Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class SearchConfig:
    """How translations are searched for, section 6.1."""

    beam: int = 4
    "hypotheses kept per sentence; 1 is greedy search"
    length_penalty: float = 0.6
    "alpha: divide log-probabilities by ((5 + length) / 6) ^ alpha; 0 favours short output"
    coverage_penalty: float = 0.0
    "beta: prefer finished hypotheses that attended to every source token; try 0.2"
    extra_length: int = 50
    "maximum length of the output, in tokens beyond that of the source"
    min_length: int = 0
    "minimum length of the output, in tokens"
    n_best: int = 1
    "number of translations per text, at most as many as beams"
    patience: float | None = None
    "stop at this many finished hypotheses per beam; default: when none can still overtake the best"
    no_repeat_ngram: int = 0
    "do not repeat any sequence of this many tokens; 0: no limit"
    beam_groups: int = 1
    "diverse beam search: split the beams into groups that avoid each other's tokens"
    diversity_penalty: float = 0.5
    "with beam_groups: penalty in nats for each hypothesis of an earlier group that chose the same token"
    temperature: float | None = None
    "sample each token, from its probability to the power of 1 / temperature, instead of searching"
    top_k: int | None = None
    "with a temperature: sample from this many of the most probable tokens"
    top_p: float = 1.0
    "with a temperature: sample from the fewest tokens that together have this probability"
    seed: int = 1
    "with a temperature: the same seed gives the same sample for the same text"

    def __post_init__(self) -> None:
        _at_least(self, 1, "beam", "extra_length", "n_best", "beam_groups")
        _at_least(self, 0, "min_length", "no_repeat_ngram", "seed", "diversity_penalty", "coverage_penalty")
        _at_most(self, MOST_BEAMS, "beam", "n_best")
        _at_most(self, LARGEST_SIZE, "extra_length", "min_length", "no_repeat_ngram")
        if not abs(self.length_penalty) <= MOST_PENALTY:  # NaN is not either
            raise UsageError(
                f"length_penalty must be from -{MOST_PENALTY} to {MOST_PENALTY}, not {self.length_penalty}"
            )
        if self.coverage_penalty and (self.beam == 1 or self.temperature is not None):
            raise UsageError("coverage_penalty chooses among the hypotheses of a beam search: give it several beams")
        if self.patience is not None and not 0 < self.patience <= MOST_BEAMS:
            raise UsageError(f"patience must be above 0 and at most {MOST_BEAMS}, not {self.patience}")
        if self.temperature is None:
            if self.n_best > self.beam:
                raise UsageError(f"n_best {self.n_best} needs as many beams, not {self.beam}")
            if self.top_k is not None or self.top_p != 1:
                raise UsageError("top_k and top_p are for drawing at random: choose a temperature, 1 for instance")
        elif not LEAST_TEMPERATURE <= self.temperature <= MOST_TEMPERATURE:
            raise UsageError(
                f"temperature must be from {LEAST_TEMPERATURE} to {MOST_TEMPERATURE}, not {self.temperature}"
            )
        if self.top_k is not None:
            _at_least(self, 1, "top_k")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.beam % self.beam_groups:
            raise UsageError(f"beam {self.beam} cannot be shared out evenly among beam_groups {self.beam_groups}")


@dataclass(frozen=True)
class TrainingConfig:
    """Training, section 5."""

    batch_tokens: int | Literal["auto"] = 4096
    "tokens in a batch, per side, padding included; a batch is one update; auto: as many as fit and pay off"
    micro_batches: int | None = None
    "parts in which a batch is processed, divided among processes; default: one per process"
    max_tokens: int = 256
    "maximum sentence length in tokens; pairs with a longer side are skipped and counted"
    concatenate: float = 0.0
    "share of pairs repeated in each epoch with another pair concatenated; for small corpora of short texts"
    bpe_dropout: float = 0.0
    "share of merges skipped at random, so that words are split differently each time; for small corpora"
    epochs: int = 100
    "maximum number of passes over the corpus"
    max_steps: int | None = None
    "maximum number of steps"
    minutes: float | None = None
    "maximum minutes of training"
    schedule: Literal["paper", "inverse-sqrt", "cosine", "linear", "constant"] = "paper"
    "how the learning rate changes after the warm-up; cosine and linear fall to zero at max_steps"
    learning_rate: float = 1.0
    "with schedule paper: a factor on d_model^-0.5 * min(step^-0.5, step * warmup^-1.5); others: the peak rate"
    warmup: int = 4000
    "steps over which the learning rate rises"
    beta2: float = 0.98
    "decay of Adam's running mean of squared gradients"
    weight_decay: float = 0.0
    "decay of the matrices, times the learning rate, as in AdamW"
    ema: float = 0.0
    "decay of a moving average of the weights, such as 0.999, which is validated and saved; 0: none"
    label_smoothing: float = 0.1
    "share of the target probability that is spread over all words"
    clip: float = 1.0
    "maximum gradient norm; larger gradients are scaled down; 0: no limit"
    validate_every: int | None = None
    "steps between validations; default: an epoch, but between 100 and 1,000 steps"
    save_every: int | None = None
    "steps between checkpoints; default: at validations"
    keep: int = 5
    "newest checkpoints to keep, besides the best one"
    stop_on: Literal["bleu", "chrf", "loss"] = "bleu"
    "which dev score makes a checkpoint the best and resets patience"
    patience: int = 10
    "stop after this many validations without improvement; 0: never"
    samples: int = 3
    "dev sentences to show with their translations at each validation"
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    "data type of matmuls; auto: bfloat16 where it is faster"
    checkpoint_activations: bool = False
    "recompute activations in the backward pass: less memory, about a third slower"
    shard: bool = False
    "under torchrun: shard weights, gradients and moments (FSDP), for models too large for one process"
    deterministic: bool = False
    "get the same bits on any number of processes: add gradients in a fixed order, one thread each"
    device: Device = "auto"
    "where to compute"
    rank_timeout: float = 10.0
    "minutes until a process that does not respond is an error"
    tensorboard: bool = False
    "also write curves for TensorBoard"
    seed: int = 1
    "seed for the initial weights, the order of the data and dropout"
    threads: int | None = None
    "CPU threads; default: PyTorch's choice, one per core"

    def __post_init__(self) -> None:
        counts = "max_tokens", "epochs", "max_steps", "warmup", "validate_every", "save_every", "keep"
        _at_least(self, 1, *counts, "micro_batches", "threads")
        _at_least(self, 0, "patience", "samples", "clip", "seed", "weight_decay")
        _at_most(self, LARGEST_NUMBER, *counts, "patience", "samples", "seed")
        _at_most(self, MOST_THREADS, "threads", "micro_batches")
        if self.batch_tokens != "auto":
            _at_least(self, 1, "batch_tokens")
            _at_most(self, LARGEST_NUMBER, "batch_tokens")
        for name in ("label_smoothing", "bpe_dropout", "beta2", "ema"):
            _rate(self, name)
        if not 0 <= self.concatenate <= 1:
            raise UsageError(f"concatenate is a share, from 0 to 1, not {self.concatenate}")
        for name in ("learning_rate", "minutes", "rank_timeout"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{name} must be above 0, not {value}")
        if self.schedule in ("cosine", "linear") and not self.max_steps:
            raise UsageError(f"schedule = '{self.schedule}' falls to zero at training.max_steps: how many are those?")
        if self.schedule != "paper" and self.learning_rate > MOST_RATE:
            raise UsageError(
                f"learning_rate {self.learning_rate:g} is too high for schedule = '{self.schedule}', "
                "where it is the highest rate itself: 0.001 is a good start"
            )
        if self.shard and self.deterministic:
            raise UsageError("shard and deterministic exclude each other: sharded gradients have no fixed order")


PresetName = Literal["tiny", "small", "base", "big", "lstm"]


@dataclass(frozen=True)
class RunConfig:
    """A whole training run: from sentence pairs to a model."""

    preset: PresetName = "small"
    "where the settings start from"
    train: tuple[str, ...] = ()
    "sentence pairs to learn from: TSV, JSONL, Parquet, TMX, PO, or a source file and a target file (docs/corpora.md)"
    dev: tuple[str, ...] = ()
    "sentence pairs to validate on, in the same form"
    init_from: str = ""
    "model or run folder to start from, with its weights and subwords: fine-tuning"
    out: str = ""
    "folder for the run: checkpoints, metrics, samples"
    vocabulary: int | None = None
    "number of subwords to learn; default: what the preset suggests, if the text is large enough"
    model: ModelConfig = field(default_factory=TransformerConfig)
    training: TrainingConfig = TrainingConfig()

    def __post_init__(self) -> None:
        _at_least(self, 300, "vocabulary")
        _at_most(self, LARGEST_SIZE, "vocabulary")


# From files. A model is told apart by its `kind`, the one key that is not a field.

T = typing.TypeVar("T")
KINDS: dict[str, type] = {"transformer": TransformerConfig, "recurrent": RecurrentConfig}


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None


def write_toml(config: Any) -> str:
    return tomli_w.dumps(as_dict(config))


def as_dict(config: Any) -> dict[str, Any]:
    """The fields that are set, nested, as TOML and JSON have them."""
    found: dict[str, Any] = {}
    for kind, cls in KINDS.items():
        if isinstance(config, cls):
            found["kind"] = kind
    for spec in dataclasses.fields(config):
        value = getattr(config, spec.name)
        if dataclasses.is_dataclass(value):
            value = as_dict(value)
        if value is not None:
            found[spec.name] = list(value) if isinstance(value, tuple) else value
    return found


def update(config: T, data: dict[str, Any], where: str) -> T:
    """`config` with the values of `data`. Raises UsageError for unknown keys and for values of the wrong type."""
    if not isinstance(data, dict):
        raise UsageError(f"{where}: expected a table of settings, found {json.dumps(data)}")
    hints = typing.get_type_hints(type(config))
    names = [spec.name for spec in dataclasses.fields(config)]  # type: ignore[arg-type]
    changes: dict[str, Any] = {}
    for key, value in data.items():
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            raise UsageError(f"{where}: unknown setting '{key}'" + (f", did you mean '{near[0]}'?" if near else ""))
        current = getattr(config, key)
        if dataclasses.is_dataclass(current):
            inner = dict(value) if isinstance(value, dict) else value
            changes[key] = update(_of_kind(current, inner, f"{where}: {key}"), inner, f"{where}: {key}")
        else:
            changes[key] = _checked(value, hints[key], f"{where}: {key}")
    try:
        return dataclasses.replace(config, **changes)  # type: ignore[type-var]
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def model_config(data: dict[str, Any], where: str) -> ModelConfig:
    """The model that `data`, as `as_dict` writes it, describes."""
    config = _of_kind(None, data, where)
    if config is None:
        raise UsageError(f"{where}: it names no kind of model, expected one of {', '.join(KINDS)}")
    return update(config, data, where)


def _of_kind(current: Any, data: Any, where: str) -> Any:
    """The config that `data` changes: the current one, or a fresh one of the kind that it names."""
    if not isinstance(data, dict) or "kind" not in data:
        return current
    kind = data.pop("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UsageError(f"{where}: unknown kind '{kind}', expected one of {', '.join(KINDS)}")
    return current if type(current) is KINDS[kind] else KINDS[kind]()


def _checked(value: Any, hint: Any, where: str) -> Any:
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    options = typing.get_args(hint) if union else (hint,)
    for option in options:
        if typing.get_origin(option) is Literal:
            if value in typing.get_args(option):
                return value
            if not union:
                expected = ", ".join(str(name) for name in typing.get_args(option))
                raise UsageError(f"{where}: '{value}' is not one of {expected}")
        if typing.get_origin(option) is tuple and isinstance(value, list | tuple | str):
            items = (value,) if isinstance(value, str) else tuple(value)
            if all(isinstance(item, str) for item in items):
                return items
        if _fits(value, option):
            return float(value) if option is float else value
    expected = " or ".join(
        ", ".join(map(repr, typing.get_args(option))) if typing.get_origin(option) is Literal else option.__name__
        for option in options
        if option is not type(None)
    )
    raise UsageError(f"{where}: expected {expected}, found {json.dumps(value, default=str)}")


def _fits(value: Any, kind: Any) -> bool:
    """Whether a TOML or JSON value is of that type; an integer will do for a float, true and false for neither."""
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(kind, type) and isinstance(value, kind)
