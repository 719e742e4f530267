"""Presets: named settings of a whole run, each of which can be overridden."""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from dragoman.config import (
    AttentionConfig,
    FeedForwardConfig,
    ModelConfig,
    PresetName,
    RecurrentConfig,
    RunConfig,
    TrainingConfig,
    TransformerConfig,
    update,
)
from dragoman.errors import UsageError

Kind = TypeVar("Kind", TransformerConfig, RecurrentConfig)


@dataclass(frozen=True)
class Preset(Generic[Kind]):
    """A model, its training settings, and a size of vocabulary that suits it."""

    model: Kind
    training: TrainingConfig
    vocabulary: int


# The two for small corpora and no GPU: pre-norm, small batches and rotary positions in all attention, also over the
# source, learn fastest there (docs/notes/quality.md).
TINY = Preset(
    TransformerConfig(
        d_model=128,
        encoder_layers=2,
        decoder_layers=2,
        attention=AttentionConfig(heads=4),
        feed_forward=FeedForwardConfig(d_ff=512),
        positions="rotary-across",
        norm_first=True,
    ),
    TrainingConfig(batch_tokens=1024, warmup=400),
    vocabulary=2000,
)

SMALL = Preset(
    TransformerConfig(
        d_model=256,
        encoder_layers=3,
        decoder_layers=3,
        attention=AttentionConfig(heads=4),
        feed_forward=FeedForwardConfig(d_ff=1024),
        positions="rotary-across",
        norm_first=True,
    ),
    TrainingConfig(batch_tokens=1024, warmup=800, ema=0.998),
    vocabulary=8000,
)

# Section 3 and the first row of Table 3.
BASE = Preset(TransformerConfig(), TrainingConfig(batch_tokens=25_000), vocabulary=37_000)

# The last row of Table 3.
BIG = Preset(
    replace(
        BASE.model,
        d_model=1024,
        attention=AttentionConfig(heads=16),
        feed_forward=FeedForwardConfig(d_ff=4096),
        dropout=0.3,
    ),
    BASE.training,
    vocabulary=37_000,
)

# A recurrent model with as many parameters as SMALL, at the same vocabulary.
LSTM = Preset(RecurrentConfig(d_model=384, layers=2), SMALL.training, vocabulary=8000)

# The built-in phrasebook in about two minutes on two cores. Its sentences are short: attention over the source does as
# well without positions, and its maps then show which words belong together.
DEMO = Preset(
    replace(TINY.model, positions="rotary"),
    TrainingConfig(batch_tokens=1024, warmup=400, epochs=1000, minutes=2.25, validate_every=250, patience=0, samples=2),
    vocabulary=2500,
)

PRESETS: dict[PresetName, Preset[TransformerConfig] | Preset[RecurrentConfig]] = {
    "tiny": TINY,
    "small": SMALL,
    "base": BASE,
    "big": BIG,
    "lstm": LSTM,
}


def preset_run(name: Any, settings: dict[str, Any], where: str, model: ModelConfig | None = None) -> RunConfig:
    """Return the run of a preset, with its model or the one given, changed by settings from TOML.

    where: the file, for messages. Raise UsageError for an unknown preset and for wrong settings.
    """
    if not isinstance(name, str) or name not in PRESETS:
        raise UsageError(f"no preset '{name}'; choose from {', '.join(PRESETS)}")
    preset = PRESETS[name]
    return update(RunConfig(preset=name, model=model or preset.model, training=preset.training), settings, where)
