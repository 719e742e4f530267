"""Decide when a run ends (steps, epochs, minutes, patience), and when it validates and saves on the way."""

import math
from typing import NamedTuple

from dragoman.config import TrainingConfig
from dragoman.errors import plural
from dragoman.training.checkpoint import TrainingProgress

SHARE_OF_TIME = 0.1  # of the minutes of a run: after so long without one there is a validation, or a checkpoint
TIMES_A_VALIDATION = 20  # as long as a validation took, there is at least to the next one by the clock
SAVE_MINUTES = (0.5, 5.0)  # without a checkpoint, in very short and in long runs: a save takes a part of a second
VALIDATION_STEPS = (100, 1000)  # least and most steps between validations where their number is left to us


class Saved(NamedTuple):
    """The last checkpoint of a run: its step, the step that was validated last, and the seconds of the run."""

    step: int = -1
    validated: int = -1
    seconds: float = 0.0


def reason_to_end(progress: TrainingProgress, settings: TrainingConfig) -> str:
    """Return why the run is over, such as 'all 5 epochs done'; '' while there is more to do."""
    if settings.max_steps and progress.step >= settings.max_steps:
        if progress.step > settings.max_steps:  # it was lowered since
            return f"the limit of {plural(settings.max_steps, 'step')} is exceeded"
        return "1 step done" if settings.max_steps == 1 else f"all {settings.max_steps:,} steps done"
    if progress.epoch >= settings.epochs:
        return "1 epoch done" if settings.epochs == 1 else f"all {settings.epochs:,} epochs done"
    if settings.minutes and progress.seconds >= 60 * settings.minutes:
        return f"the time limit of {settings.minutes:g} min is reached"
    return patience_reason(progress, settings)


def patience_reason(progress: TrainingProgress, settings: TrainingConfig) -> str:
    """Return 'no improvement in 10 validations' where the last `settings.patience` ones were no better; else ''."""
    if settings.patience and progress.worse >= settings.patience:
        return f"no improvement in {plural(progress.worse, 'validation')}"
    return ""


def divergence(settings: TrainingConfig) -> str:
    """Return, for the error message of a run that ends so, that the training has diverged, and what may help."""
    return (
        f"training has diverged; a lower training.learning_rate than {settings.learning_rate:g}, a longer "
        "training.warmup or training.precision float32 may help"
    )


def share_done(progress: TrainingProgress, settings: TrainingConfig, batches: int) -> float:
    """Return the share of the run that is done, 0 to 1, by the limit that comes first; an epoch has `batches`."""
    shares = [(progress.epoch + progress.batch / batches) / settings.epochs]
    if settings.max_steps:
        shares.append(progress.step / settings.max_steps)
    if settings.minutes:
        shares.append(progress.seconds / (60 * settings.minutes))
    return min(max(shares), 1.0)


def total_steps(settings: TrainingConfig, batches: int) -> int | None:
    """Return the steps of the whole run if an epoch has `batches` batches; None where `minutes` may end it."""
    if settings.minutes:
        return None
    in_epochs = settings.epochs * batches
    return min(settings.max_steps or in_epochs, in_epochs)


def validation_interval(settings: TrainingConfig, tokens: int) -> int:
    """Return how many steps lie between validations: by default about an epoch.

    tokens: of all pairs, each counted once. Not of the batches of an epoch: with weights, epochs differ, and a resumed
    run validates where it would have.
    """
    least, most = VALIDATION_STEPS
    return settings.validate_every or min(max(tokens // int(settings.batch_tokens), least), most)


def validation_is_due(progress: TrainingProgress, settings: TrainingConfig, interval: int, fine_tuning: bool) -> bool:
    """Return whether to validate now: every `interval` steps, and at the end, but no model twice.

    If their number is left to us, a run of some minutes validates by the clock, too, as it may have few steps.
    Fine-tuning also begins with a validation, which shows where it starts.
    """
    if not progress.step:
        return fine_tuning and progress.validated < 0
    by_clock = progress.seconds >= validation_time(progress, settings)
    due = bool(progress.finished) or is_multiple(progress.step, interval) or by_clock
    return due and progress.step != progress.validated


def save_is_due(progress: TrainingProgress, settings: TrainingConfig, saved: Saved, stopping: bool) -> bool:
    """Return whether to save now: where that is planned, before stopping, `save_minutes` after the last time."""
    if save_is_planned(progress, settings, saved):
        return True
    by_clock = bool(progress.step) and progress.seconds >= saved.seconds + save_interval(settings)
    return progress.step != saved.step and (stopping or by_clock)


def save_is_planned(progress: TrainingProgress, settings: TrainingConfig, saved: Saved) -> bool:
    """Return whether this step has a checkpoint that stays: after each validation, and every `save_every` steps."""
    if progress.validated > saved.validated:
        return True
    return progress.step != saved.step and is_multiple(progress.step, settings.save_every)


def is_multiple(step: int, interval: int | None) -> bool:
    """Return whether a step, not the zeroth, is a multiple of the interval; False for None."""
    return bool(interval) and step > 0 and step % (interval or 1) == 0


def validation_time(progress: TrainingProgress, settings: TrainingConfig) -> float:
    """Return the `seconds` of a run at which the next validation is due by the clock.

    That is infinity where steps alone count, and so shortly before the end that the last validation does.
    """
    limit = 60 * (settings.minutes or 0)
    if settings.validate_every or not limit:
        return math.inf
    interval = max(SHARE_OF_TIME * limit, TIMES_A_VALIDATION * progress.validation_seconds)
    time = progress.validated_seconds + interval
    return time if time <= (1 - SHARE_OF_TIME) * limit else math.inf


def save_interval(settings: TrainingConfig) -> float:
    """Return after how many seconds without a checkpoint one is due by the clock; infinity for never."""
    minutes = settings.save_minutes
    if minutes is None:
        least, most = SAVE_MINUTES
        minutes = min(max(SHARE_OF_TIME * (settings.minutes or math.inf), least), most)
    return 60 * minutes or math.inf
