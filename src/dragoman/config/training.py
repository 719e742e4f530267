"""Describe how a model is trained, and what a whole run is."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from dragoman.config.fields import (
    MAX_SIZE,
    MAX_THREADS,
    Count,
    CountOrZero,
    Fraction,
    NotNegative,
    Positive,
    Threads,
    Wait,
    at_least,
    at_most,
    check_fields,
)
from dragoman.config.languages import parse_pair
from dragoman.config.model import ModelConfig, TransformerConfig
from dragoman.errors import UsageError

Device = Literal["auto", "cpu", "cuda"]
PresetName = Literal["tiny", "small", "base", "big", "lstm"]
# Their rates depend on max_steps, which a resumed run must not change.
ENDING_SCHEDULES = ("cosine", "linear")

MAX_RATE = 0.5  # where learning_rate is the rate itself


@dataclass(frozen=True)
class TrainingConfig:
    """Training, section 5."""

    # How long to train
    epochs: Count = 100
    "maximum number of passes over the corpus"
    max_steps: Count | None = None
    "maximum number of updates"
    minutes: Positive | None = None
    "maximum training time in minutes"
    stop_on: Literal["bleu", "chrf", "loss"] = "bleu"
    "metric on the dev pairs that decides which checkpoint is the best, and when patience runs out"
    patience: CountOrZero = 10
    "stop after this many validations without improvement; 0: never"

    # Batches
    batch_tokens: Count | Literal["auto"] = 4096
    "maximum tokens in a batch, per side, padding included; one batch is one update; auto: the fastest size that fits"
    micro_batches: Annotated[int, at_least(1), at_most(MAX_THREADS)] | None = None
    "split each batch into this many parts: the same update in less memory; default: one per process"
    max_tokens: Count = 256
    "maximum sentence length in tokens; pairs with a longer side are skipped and counted"
    concatenate: Annotated[float, at_least(0), at_most(1)] = 0.0
    "share of pairs repeated in each epoch with another pair appended; 1 for small corpora of short texts"

    # Learning rate
    schedule: Literal["paper", "inverse-sqrt", "cosine", "linear", "constant"] = "paper"
    "learning rate schedule, after a linear warm-up; cosine and linear decay to zero at max_steps"
    learning_rate: Positive = 1.0
    "schedule paper: factor on d_model^-0.5 * min(step^-0.5, step * warmup^-1.5); others: peak rate, such as 0.001"
    warmup: Count = 4000
    "steps over which the learning rate rises"

    # Adam
    beta2: Fraction = 0.98
    "decay of Adam's running mean of squared gradients"
    weight_decay: NotNegative = 0.0
    "decoupled weight decay (AdamW), for matrices only"
    clip: NotNegative = 1.0
    "clip the gradient to this Euclidean norm; 0: no clipping, as in the paper"

    # Regularisation
    label_smoothing: Fraction = 0.1
    "share of the target probability that is spread over the vocabulary"
    bpe_dropout: Fraction = 0.0
    "share of BPE merges skipped at random, so that words are split in different ways; 0.1 for small corpora"
    robust: Fraction = 0.0
    "share of the pairs of an epoch that have typos, quotes, another pair behind them or the like (docs/robustness.md)"
    ema: Fraction = 0.0
    "validate and save an exponential moving average of the weights with this decay, such as 0.999; 0: no average"

    # Validating and saving
    validate_every: Count | None = None
    "steps between validations; default: one epoch, but at least 100 and at most 1,000; if minutes are few, more often"
    save_every: Count | None = None
    "steps between checkpoints; default: at validations"
    save_minutes: NotNegative | None = None
    "minutes without a checkpoint until one is saved, replaced by the next; default: 5 or a tenth of minutes; 0: never"
    keep: Count = 5
    "newest checkpoints to keep, besides the best one"
    samples: CountOrZero = 3
    "dev sentences to show with their translations at each validation"
    tensorboard: bool = False
    "also write curves for TensorBoard"

    # The machine
    device: Device = "auto"
    "device to train on"
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    "data type of matmuls; auto: bfloat16 where it is faster"
    threads: Threads | None = None
    "CPU threads; default: one for each core that this process may use"
    workers: Annotated[int, at_least(0), at_most(MAX_THREADS)] | None = None
    "processes that make batches ahead of the training; default: up to 8 for a GPU, none for a CPU"
    checkpoint_activations: bool = False
    "recompute activations in the backward pass: less memory, about a third slower"
    shard: bool = False
    "under torchrun: shard weights, gradients and moments (FSDP), for models too large for one process"
    rank_timeout: Wait = 10.0
    "minutes to wait for a process that does not answer"

    # Reproducibility
    seed: CountOrZero = 1
    "seed for the initial weights, the order of the data and dropout"
    deterministic: bool = False
    "bit-identical results on any number of processes: sum gradients in a fixed order, one thread per process"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.schedule in ENDING_SCHEDULES and not self.max_steps:
            raise UsageError(f"schedule = '{self.schedule}' ends at training.max_steps, which is not set")
        if self.schedule != "paper" and self.learning_rate > MAX_RATE:
            raise UsageError(
                f"learning_rate {self.learning_rate:g} is too high for schedule = '{self.schedule}', "
                "where it is the peak rate itself: 0.001 is a good start"
            )
        if self.shard and self.deterministic:
            raise UsageError("shard and deterministic exclude each other: sharded gradients have no fixed order")


@dataclass(frozen=True)
class RunConfig:
    """A whole training run: from sentence pairs to a model."""

    preset: PresetName = "small"
    "named set of defaults for all other settings"
    train: tuple[str, ...] = ()
    "pairs to learn from: TSV, CSV, JSONL, Parquet, Arrow, TMX, PO, XLIFF, TS, XCSTRINGS, two texts (docs/corpora.md)"
    dev: tuple[str, ...] = ()
    "sentence pairs to validate on, in the same form"
    languages: str | None = None
    "languages of the pairs, such as en-de: the model records them, for dragoman serve"
    init_from: str = ""
    "model folder, run folder or hub:USER/NAME to start from, with its weights and subwords: fine-tuning"
    out: str = ""
    "folder for the run: checkpoints, metrics, samples; default: runs/CORPUS-PRESET, such as runs/train-small"
    vocabulary: Annotated[int, at_least(300), at_most(MAX_SIZE)] | None = None
    "number of subwords to learn; default: what the preset suggests, if the text is large enough"
    model: ModelConfig = field(default_factory=TransformerConfig)
    "The architecture."
    training: TrainingConfig = TrainingConfig()
    "Training, section 5."

    def __post_init__(self) -> None:
        check_fields(self)
        if self.languages is not None:
            parse_pair(self.languages)
        for name in (*self.train, *self.dev, self.init_from, self.out):
            if "\0" in name or name != name.encode(errors="replace").decode():
                raise UsageError(f"{name!r} is not a name in UTF-8, so config.toml cannot record it: rename the file")
