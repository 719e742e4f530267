"""Report in words on a run: skipped batches, validations, the best score so far."""

import math

import numpy as np

from dragoman.config import TrainingConfig
from dragoman.console import format_duration
from dragoman.decoding.forced import perplexity
from dragoman.errors import plural
from dragoman.training.checkpoint import TrainingProgress
from dragoman.training.learner import StepResult
from dragoman.training.run import Run
from dragoman.training.validation import Validation

PAIRS_NAMED = 3  # of a skipped batch
MOST_SHOWN = 20.0  # nats; for a higher loss, the perplexity of this one is shown


def report_skipped(run: Run, indices: np.ndarray, result: StepResult) -> None:
    """Log and record the batch, pairs `indices`, that was just skipped: why, and where its longest pairs are."""
    progress, pairs = run.progress, run.pairs
    longest = sorted(indices, key=lambda index: -int(pairs.lengths[index].max()))[:PAIRS_NAMED]
    locations = ", ".join(pairs.location(int(index)) for index in longest)
    run.journal.log(
        f"skipped batch {progress.batch:,} of epoch {progress.epoch + 1}: {result.skipped}; "
        f"{len(indices):,} pairs, the longest at {locations}"
    )
    run.journal.record("skipped", step=progress.step, epoch=progress.epoch, why=result.skipped, places=locations)


def report_validation(run: Run, validation: Validation, before: list[str], seconds: float) -> None:
    """Log and record a validation, with the samples and the best score so far, after `Loop.update_progress`.

    before: the sample translations of the previous validation, [] at the first; seconds: how long this one took. The
    updates since the last entry are recorded first if they are enough, and the samples go to a file of `samples/`.
    """
    progress, journal, settings = run.progress, run.journal, run.config.training
    bleu, chrf, exact = validation.scores.bleu, validation.scores.chrf, validation.scores.exact
    journal.flush()
    journal.record(
        "validation",
        step=progress.step,
        epoch=progress.epoch,
        loss=validation.loss,
        bleu=bleu.value,
        chrf=chrf.value,
        exact=exact,
        signature=bleu.signature,
        seconds=round(progress.seconds, 1),
        target_tokens=progress.target_tokens,
    )
    journal.log(
        f"validation at step {progress.step:,}: loss {validation.loss:.3f}, "
        f"perplexity {format_perplexity(validation.loss)}, BLEU {bleu.value:.1f}, chrF2 {chrf.value:.1f}, "
        f"exact {100 * exact:.1f} %, in {format_duration(seconds)}; {describe_patience(progress, settings)}"
    )
    if not math.isfinite(validation.loss):
        journal.log("its loss is not a finite number, so nothing was translated, and it is never the best")
    journal.best_so_far = describe_best(progress, settings)
    earlier = [*(before or ()), *[""] * len(progress.shown)]  # none of those that were not shown before
    corpus = run.dev_corpus
    columns = zip(corpus.pairs, progress.shown, earlier, corpus.tags, corpus.target_tags, strict=False)
    samples = [
        {"source": source, "reference": reference, "now": now, "before": then, "tag": tag, "target tag": target_tag}
        for (source, reference), now, then, tag, target_tag in columns
    ]
    journal.write_samples(progress.step, samples)


def describe_best(progress: TrainingProgress, settings: TrainingConfig) -> str:
    """Return 'best BLEU 23.1 at step 1,200; no better for 2 of 10 validations', by the metric that the run stops on."""
    best = describe_best_score(progress, settings)
    return f"{best}; {describe_patience(progress, settings)}" if progress.worse else best


def describe_best_score(progress: TrainingProgress, settings: TrainingConfig) -> str:
    """Return 'best BLEU 23.1 at step 1,200', for the metric that the run stops on; 'not validated yet' before that."""
    if not progress.is_validated:
        return "not validated yet"
    name = {"bleu": "BLEU", "chrf": "chrF2", "loss": "dev loss"}[settings.stop_on]
    value = f"{-progress.best_score:.3f}" if settings.stop_on == "loss" else f"{progress.best_score:.1f}"
    return f"best {name} {value} at step {progress.best_step:,}"


def describe_patience(progress: TrainingProgress, settings: TrainingConfig) -> str:
    """Return 'the best so far', 'no better for 2 of 10 validations', or, without a limit, '... for 2 validations'."""
    if not progress.worse:
        return "the best so far"
    if not settings.patience:
        return f"no better for {plural(progress.worse, 'validation')}"
    return f"no better for {progress.worse} of {settings.patience} validations"


def format_perplexity(loss: float) -> str:
    """Return the perplexity of a loss in nats per token, as '12.3'; a loss above MOST_SHOWN counts as that."""
    return f"{perplexity(min(loss, MOST_SHOWN)):,.1f}"
