"""Fine-tuning: the settings of a run that starts from a trained model, whose shape cannot change."""

from pathlib import Path
from typing import Any

from dragoman.config import ModelConfig, RunConfig, TransformerConfig, as_dict, read_toml
from dragoman.config.presets import PRESETS
from dragoman.errors import UsageError
from dragoman.model_folder import fetch_model, read_config
from dragoman.training.checkpoint import run_of
from dragoman.training.resume import flatten


def start_config(init_from: str, previous: RunConfig | None) -> ModelConfig:
    """Return the settings of the model that a run starts from: those that its earlier session recorded, if any.

    A run is resumed without the model that it started from. Raise DragomanError where that model cannot be read.
    """
    return previous.model if previous else read_config(Path(init_from))


def preset_of(model: ModelConfig, wanted: Any, init_from: str) -> Any:
    """Return the preset whose training settings are the defaults: `wanted`, or that of the model that a run starts
    from, or 'small' where this is not known.

    The preset of a model is the one that its run recorded, or the one that has its shape. Raise UsageError where
    another one is wanted, DragomanError where the record cannot be read.
    """
    fitting = [recorded_preset(init_from), *(name for name in PRESETS if not differences(PRESETS[name].model, model))]
    known = [name for name in fitting if name in PRESETS]
    if wanted in PRESETS and known and wanted not in known:
        raise UsageError(
            f"preset '{wanted}' has another model than {init_from}, which keeps its shape: leave it out, or give "
            f"{known[0]}"
        )
    return wanted or (known or ["small"])[0]


def recorded_preset(init_from: str) -> Any:
    """Return the preset that the run of a model recorded; None for a model folder that is not in a run folder."""
    run = run_of(fetch_model(Path(init_from)))
    if run is None or not (run / "config.toml").exists():
        return None
    return read_toml(run / "config.toml").get("preset")


def check_shape(wanted: ModelConfig, model: ModelConfig, init_from: str) -> ModelConfig:
    """Return the settings of the model to train: `wanted`, or those of `model`, which a run starts from, by default.

    Raise UsageError where the two differ in more than dropout, since the weights would not fit.
    """
    if wanted == TransformerConfig():  # nothing was chosen: a RunConfig made in Python
        return model
    for name, value in differences(wanted, model).items():
        there = flatten(as_dict(model)).get(name, "the default")
        raise UsageError(
            f"model.{name} = {value} is not possible: {init_from} has {there}, and a model that is fine-tuned keeps "
            "its shape; only dropout may change"
        )
    return wanted


def differences(wanted: ModelConfig, model: ModelConfig) -> dict[str, Any]:
    """Return the settings of `wanted`, by name, that differ from those of `model`, dropout left out."""
    new, old = flatten(as_dict(wanted)), flatten(as_dict(model))
    return {
        name: new.get(name, "default")
        for name in {**new, **old}
        if new.get(name) != old.get(name) and name.rsplit(".", 1)[-1] != "dropout"
    }
