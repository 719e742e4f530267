"""Settle the settings of a run: what it was started with, what its earlier session decided, what suits this machine."""

from dataclasses import replace
from pathlib import Path

from dragoman.config import RunConfig, TrainingConfig
from dragoman.data.spec import parse_corpora
from dragoman.model_folder import fetch_model
from dragoman.text.tags import DefaultTags
from dragoman.training.checkpoint import Checkpoint
from dragoman.training.distributed import ProcessGroup
from dragoman.training.fine_tuning import check_shape, start_config
from dragoman.training.precision import best_precision
from dragoman.training.resume import check_same_settings


def settle(
    config: RunConfig, previous: RunConfig | None, checkpoint: Checkpoint | None, group: ProcessGroup
) -> tuple[RunConfig, list[str]]:
    """Return the settings of a run with those decided that do not depend on its texts, and what has changed.

    previous: of the earlier session, whose decisions stay; None where there was none. Raise UsageError where a setting
    must not change, or does not fit the model to start from.
    """
    config = replace(config, training=resolve_settings(config.training, previous, group))
    if previous and not config.init_from:  # it may be left out
        config = replace(config, init_from=previous.init_from)
    if config.init_from:
        model = start_config(config.init_from, previous)
        config = replace(config, model=check_shape(config.model, model, config.init_from))
    changes = check_same_settings(config, previous) if previous else []
    if (start := start_folder(config, checkpoint)) and (tags := DefaultTags.load(start)) != DefaultTags():
        config = replace(config, train=with_default_tags(config.train, tags), dev=with_default_tags(config.dev, tags))
    return config, changes


def resolve_settings(settings: TrainingConfig, previous: RunConfig | None, group: ProcessGroup) -> TrainingConfig:
    """Return the settings with those decided that are open: precision, micro-batches, threads.

    previous: the config of the earlier session, whose values they get, and so does `batch_tokens`, which is otherwise
    decided once the vocabulary is known. A batch has a micro-batch for each process. If deterministic, it has at least
    four, so that 1, 2 or 4 processes give the same bits, and there is one thread.
    """
    before = previous.training if previous else None
    precision, batch_tokens = settings.precision, settings.batch_tokens
    if precision == "auto":
        precision = before.precision if before else best_precision(group.device)
    if batch_tokens == "auto" and before:
        batch_tokens = before.batch_tokens
    default_parts = max(4, group.size) if settings.deterministic else group.size
    return replace(
        settings,
        precision=precision,
        batch_tokens=batch_tokens,
        micro_batches=settings.micro_batches or (before.micro_batches if before else default_parts),
        threads=settings.threads or (1 if settings.deterministic else None),
    )


def start_folder(config: RunConfig, checkpoint: Checkpoint | None) -> Path | None:
    """Return the model folder that a run goes on from: a checkpoint, or that of `init_from`; None for a new model."""
    if checkpoint:
        return checkpoint.folder
    return fetch_model(Path(config.init_from)) if config.init_from else None


def with_default_tags(words: tuple[str, ...], tags: DefaultTags) -> tuple[str, ...]:
    """Return the words that name corpora, with the tags that a model has by default for those without any."""
    specs = (
        replace(spec, tag=spec.tag or tags.source, target_tag=spec.target_tag or tags.target)
        for spec in parse_corpora(words)
    )
    return tuple(word for spec in specs for word in spec.words())
