"""Decide when a run ends: steps, epochs, minutes, patience."""

from dragoman.config import TrainingConfig
from dragoman.errors import plural
from dragoman.training.checkpoint import TrainingProgress


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
