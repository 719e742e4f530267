"""All settings: frozen dataclasses whose fields are the flags of the commands; the string below each is its help."""

from dragoman.config.model import (
    AttentionConfig,
    FeedForwardConfig,
    ModelConfig,
    RecurrentConfig,
    SharedMatrices,
    TransformerConfig,
)
from dragoman.config.search import ComputeType, EngineName, SearchConfig
from dragoman.config.toml import as_dict, model_config, read_settings, read_toml, to_toml, update
from dragoman.config.training import Device, PresetName, RunConfig, TrainingConfig

__all__ = [
    "AttentionConfig",
    "ComputeType",
    "Device",
    "EngineName",
    "FeedForwardConfig",
    "ModelConfig",
    "PresetName",
    "RecurrentConfig",
    "RunConfig",
    "SearchConfig",
    "SharedMatrices",
    "TrainingConfig",
    "TransformerConfig",
    "as_dict",
    "model_config",
    "read_settings",
    "read_toml",
    "to_toml",
    "update",
]
