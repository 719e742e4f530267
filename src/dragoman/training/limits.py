"""Decide when a run ends (steps, epochs, minutes, patience), and what is due by the clock on the way."""

import math

from dragoman.config import TrainingConfig
from dragoman.errors import plural
from dragoman.training.checkpoint import TrainingProgress

SHARE_OF_TIME = 0.1  # of the minutes of a run: after so long without one there is a validation, or a checkpoint
TIMES_A_VALIDATION = 20  # as long as a validation took, there is at least to the next one by the clock
SAVE_MINUTES = (0.5, 5.0)  # without a checkpoint, in very short and in long runs: a save takes a part of a second


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


def share_done(progress: TrainingProgress, settings: TrainingConfig, batches: int) -> float:
    """Return the share of the run that is done, from 0 to 1, by the limit that comes first.

    batches: how many an epoch has.
    """
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
