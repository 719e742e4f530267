"""Resume a run: refuse other settings and other texts, and restore the newest checkpoint."""

import platform
from pathlib import Path
from typing import Any

import torch

from dragoman.config import RunConfig, as_dict, read_settings, update
from dragoman.config.training import ENDING_SCHEDULES
from dragoman.data.tokenizers import load_tokenizer
from dragoman.errors import DragomanError, UsageError
from dragoman.model_folder import fetch_model
from dragoman.text.languages import read_languages
from dragoman.training.checkpoint import Checkpoint, TrainingProgress, checkpoints
from dragoman.training.journal import Journal
from dragoman.training.learner import Learner

# Settings that may change when a run is resumed; with others changed it would be another run.
MAY_CHANGE = set(
    "train dev out epochs max_steps minutes patience samples threads device validate_every save_every save_minutes "
    "keep workers checkpoint_activations shard rank_timeout tensorboard languages".split()
)

# These change what is learned from then on. They may change, because the advice against divergence recommends it, and
# the change is logged.
MAY_CHANGE_LOGGED = {"learning_rate", "warmup", "clip", "precision", "micro_batches"}


def previous_config(folder: Path) -> RunConfig | None:
    """Return the settings of a folder's run; None without a checkpoint. Raise UsageError for a damaged config.toml."""
    if not checkpoints(folder) or not (folder / "config.toml").exists():
        return None
    return read_run_config(folder)


def read_run_config(folder: Path) -> RunConfig:
    """Return the settings that a run recorded. Raise UsageError where its config.toml is missing or damaged."""
    file = folder / "config.toml"
    return update(RunConfig(), read_settings(file), str(file))


def check_same_settings(config: RunConfig, previous: RunConfig) -> list[str]:
    """Raise UsageError where a setting of the run may not differ from `previous`; return the changes to log."""
    old, new = flatten(as_dict(previous)), flatten(as_dict(config))
    fixed = {"max_steps"} if config.training.schedule in ENDING_SCHEDULES else set()
    changes: list[str] = []
    for name in sorted({*old, *new}, key=lambda name: ("." in name, name)):  # preset and init_from explain the others
        setting = name.rsplit(".", 1)[-1]
        if old.get(name) == new.get(name):
            continue
        if setting in MAY_CHANGE_LOGGED:
            changes.append(f"from now on, {name} is {new.get(name)} instead of {old.get(name)}")
        elif setting not in MAY_CHANGE - fixed:
            before, wanted = show_setting(old.get(name)), show_setting(new.get(name))
            raise UsageError(
                f"{config.out} was started with {name} = {before}, not {wanted}: "
                "choose another --out, or the same settings to resume it"
            )
    return changes


def show_setting(value: Any) -> str:
    """Return the value of a setting, None where it was left out, as a message shows it."""
    return "default" if value is None else str(value) or "nothing"


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested dicts as one with dotted keys, all after `prefix`: {'a.b': 1} for {'a': {'b': 1}}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def languages_of_run(config: RunConfig, checkpoint: Checkpoint | None, journal: Journal) -> str | None:
    """Return the languages that checkpoints will record, such as 'en-de'; None for unknown ones.

    They are those of the settings, else those of the checkpoint that is resumed, or of the model that a new run starts
    from. Log a change. Raise DragomanError where a record is damaged.
    """
    if checkpoint:
        recorded = read_languages(checkpoint.folder)
    else:
        recorded = read_languages(fetch_model(Path(config.init_from))) if config.init_from else None
    if config.languages and recorded and config.languages != str(recorded):
        journal.log(f"checkpoints record the languages {config.languages} from now on, instead of {recorded}")
    return config.languages or (str(recorded) if recorded else None)


def check_same_tokenizers(checkpoint: Checkpoint, folder: Path) -> None:
    """Raise DragomanError where a tokenizer in a folder, which reads the texts of the run, is not the checkpoint's."""
    for name, content in checkpoint.tokenizers.as_files().items():
        if (folder / name).exists() and load_tokenizer(folder / name).to_json() != content:
            raise DragomanError(
                f"{folder / name}: not the subwords that the run was trained with: replace it by a copy of "
                f"{checkpoint.folder / name}"
            )


def restore_run(checkpoint: Checkpoint, learner: Learner, config: RunConfig, journal: Journal) -> TrainingProgress:
    """Load a checkpoint into the learner; return its progress. Raise DragomanError where it is of another model."""
    progress = checkpoint.progress
    try:
        learner.load(checkpoint.model, checkpoint.state)
    except (KeyError, RuntimeError) as error:
        raise DragomanError(f"{checkpoint.folder}: this checkpoint does not fit the run: {error}") from None
    journal.log(f"resuming {config.out} from step {progress.step:,}")
    before, now = progress.machine, describe_computation()
    changes = [f"{name} {before.get(name)} -> {now[name]}" for name in now if before.get(name) != now[name]]
    if changes:
        journal.log(f"the last bits of the results may differ from an uninterrupted run: {', '.join(changes)}")
    progress.machine = now
    return progress


def describe_computation() -> dict[str, Any]:
    """Return what else the last bits of results depend on: 'torch' and 'python' (versions), 'threads', 'cpu', 'gpu'."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        "python": platform.python_version(),
    }
