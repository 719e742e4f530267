"""The training loop: take the next batch, update the weights, log, validate, save."""

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from dragoman.config import RunConfig
from dragoman.console import format_duration
from dragoman.data.batches import Plan, plan_batches, split_batch
from dragoman.errors import DragomanError, UsageError, is_out_of_memory, plural
from dragoman.model import parameter_count
from dragoman.storage.writing import require_links
from dragoman.training.augmentation import Augmentation
from dragoman.training.batch_loader import MicroBatches, Turn, dead_workers_explained, default_workers, load_batches
from dragoman.training.checkpoint import TrainingProgress, lock_folder
from dragoman.training.core_watch import CoreWatch
from dragoman.training.distributed import init_distributed
from dragoman.training.journal import STOPPED, Journal, RunConsole, StepMetrics
from dragoman.training.learner import StepResult
from dragoman.training.limits import (
    divergence,
    patience_reason,
    reason_to_end,
    save_is_due,
    save_is_planned,
    share_done,
    total_steps,
    validation_interval,
    validation_is_due,
    validation_time,
)
from dragoman.training.optimizer import learning_rate
from dragoman.training.precision import settings_of_torch_kept
from dragoman.training.reports import describe_best, describe_best_score, report_skipped, report_validation
from dragoman.training.run import Run
from dragoman.training.setup import open_run
from dragoman.training.signals import GracefulStop, end_at_once, exit_for, graceful_stop
from dragoman.training.validation import Validation, is_better, validate

MAX_SKIPPED = 10  # batches in a row


def train(config: RunConfig, journal: Journal | None = None) -> TrainingProgress:
    """Train into the folder `config.out`, resuming the run that is already there; return the progress at its end.

    journal: what reports on the run; by default one that shows it on standard error or, in a notebook, below the cell.
    Ctrl-C and SIGTERM stop after the step in progress and save; then KeyboardInterrupt, or SystemExit with code 143, is
    raised. Started by torchrun, all processes do this together, and the first one writes. Raise DragomanError for
    corpora and folders that cannot be used, where training diverges, and where another process is gone; UsageError for
    a config without a folder or pairs.
    """
    if not isinstance(config, RunConfig):
        raise UsageError(f"train takes a RunConfig, not {config!r}")
    if not config.out:
        raise UsageError("out must name the folder of the run, such as out='runs/mine'")
    for name in ("train", "dev"):
        if not getattr(config, name):
            raise UsageError(f"{name} must name a file with sentence pairs, such as {name}=('{name}.tsv',)")
    if journal is None:
        with open_journal(config) as journal:
            return train(config, journal)
    with init_distributed(config.training) as group, settings_of_torch_kept(), contextlib.ExitStack() as stack:
        if group.first:
            stack.enter_context(lock_folder(Path(config.out)))
            require_links(Path(config.out))
        try:
            with end_at_once():
                run = open_run(config, group, journal)
        except KeyboardInterrupt:
            journal.display.log(f"{STOPPED} while loading; rerun the same command")
            raise
        loop = Loop(run)
        stack.callback(loop.loader.close)
        with graceful_stop() as stop, dead_workers_explained():
            loop.run_to_end(stop)
        return loop.progress


def open_journal(config: RunConfig, quiet: bool = False) -> Journal:
    """Return the journal of a run that reports on standard error, on the first process alone. quiet: only in files."""
    first = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun has started
    board = config.training.tensorboard
    return Journal(Path(config.out), RunConsole(), quiet, tensorboard=board, active=first)


class Loop:
    """A session of a run, from its present state to its end, or until a signal stops it."""

    def __init__(self, run: Run):
        self.run, self.progress, self.journal, self.settings = run, run.progress, run.journal, run.config.training
        self.augmentation = augmentation = Augmentation(run.pairs, run.tokenizers, self.settings)
        device = run.group.device
        workers = default_workers(device) if self.settings.workers is None else self.settings.workers

        @lru_cache(maxsize=2 if workers else 1)  # workers begin the next epoch early
        def plan(epoch: int) -> Plan:
            settings, lengths = run.config.training, augmentation.lengths(epoch)
            return plan_batches(
                lengths, int(settings.batch_tokens), settings.seed, epoch, run.pairs.repeats, run.pairs.weights
            )

        self.plan = plan
        self.begin_epoch()
        self.loader = load_batches(self.make_batch, self.turns(), workers, pin=device.type == "cuda")
        self.validate_every = validation_interval(self.settings, int(run.pairs.lengths.max(axis=1).sum()))
        self.core_watch = CoreWatch()
        self.began = time.monotonic() - self.progress.seconds  # when the run would have begun without any pause

    def run_to_end(self, stop: GracefulStop) -> None:
        """Train until a limit of the settings is reached, with validations and checkpoints on the way.

        Where a signal has set `stop` in any process, finish the step in progress, save, and raise KeyboardInterrupt
        (Ctrl-C) or SystemExit with code 143 (SIGTERM). Raise DragomanError where no batch could be trained on, memory
        does not suffice, or the training diverges.
        """
        run, progress, journal = self.run, self.progress, self.journal
        progress.finished = reason_to_end(progress, self.settings)
        if progress.finished:
            journal.log(f"{run.folder} is finished already: to train for longer, raise the limit")
        else:
            self.try_largest_batch()
        self.read_clock()
        journal.start_clock(self.share_done(), progress.seconds, progress.target_tokens)
        if progress.is_validated:
            journal.best_so_far = describe_best(progress, self.settings)
        stopping = False
        while True:
            if self.validation_is_due() and not stopping:
                with journal.pause():
                    stopping = not self.validate(stop)  # interrupted: the resumed run makes up for it
            if save_is_due(progress, self.settings, run.saved, stopping):
                with journal.pause():
                    self.save(stopping)
            if progress.finished and not self.validation_is_due():
                break
            if stopping:
                journal.flush()
                journal.log(f"{STOPPED} at step {progress.step:,}; the same command resumes the run")
                raise exit_for(max(run.group.gather(stop.number)))
            stopping = self.train_on_next_batch(stop).stop
        if not progress.step:
            raise DragomanError(f"{run.folder}: every batch was skipped, so there is no model ({progress.finished})")
        if not progress.is_validated:
            raise DragomanError(f"{run.folder}: no validation had a finite loss: {divergence(self.settings)}")
        with journal.pause():
            run.add_confidence()
        journal.flush()
        journal.log(
            f"finished: {progress.finished}, after {plural(progress.step, 'step')} and "
            f"{format_duration(progress.seconds)}; "
            f"{describe_best_score(progress, self.settings)}; the model is {run.folder / 'best'}"
        )

    def train_on_next_batch(self, stop: GracefulStop) -> StepResult:
        """Update the weights on the next batch, or skip it where that is impossible; then move on.

        Return what was measured. Raise DragomanError where too many batches in a row were skipped.
        """
        progress, settings, run = self.progress, self.settings, self.run
        indices, epoch = self.batches[progress.batch], progress.epoch
        tokens = self.target_tokens(indices)
        rate = learning_rate(progress.step + 1, run.config.model.d_model, settings)
        seeds = (settings.seed, epoch, progress.batch)
        result = run.learner.update(next(self.loader), tokens, rate, seeds, stop, self.began)
        progress.batch += 1
        if result.skipped:
            progress.skipped += 1
            report_skipped(run, indices, result)
            self.check_skipped(result)
        else:
            progress.step, progress.skipped = progress.step + 1, 0
            progress.target_tokens += result.tokens
        if progress.batch == len(self.batches):
            progress.epoch, progress.batch = epoch + 1, 0
            self.begin_epoch()
        progress.seconds = result.seconds
        if not result.skipped:
            self.journal.step(
                StepMetrics(
                    step=progress.step,
                    epoch=epoch,
                    loss=result.loss,
                    tokens=result.tokens,
                    rate=rate,
                    gradient_norm=result.norm,
                    share_done=self.share_done(),
                    total_steps=total_steps(settings, len(self.batches)),
                    steps_to_validation=self.validate_every - progress.step % self.validate_every,
                    seconds_to_validation=validation_time(progress, settings) - progress.seconds,
                )
            )
        if note := self.core_watch.note():
            self.journal.log(note)
        progress.finished = reason_to_end(progress, settings)
        return result

    def begin_epoch(self) -> None:
        """Set `batches` to those of the epoch that the run is in; go on to the next epoch while one has none."""
        while not len(self.plan(self.progress.epoch)):
            self.progress.epoch += 1  # weights of corpora are so small that it is no pair's turn
        self.batches = self.plan(self.progress.epoch)

    def turns(self) -> Iterator[Turn]:
        """Yield all batches from where the run is, without end."""
        first = self.progress.batch
        for epoch in itertools.count(self.progress.epoch):
            plan = self.plan(epoch)
            yield from ((epoch, batch, plan[batch]) for batch in range(first, len(plan)))
            first = 0

    def make_batch(self, turn: Turn) -> MicroBatches:
        """Return the micro-batches of a batch, perhaps in another process."""
        epoch, batch, indices = turn
        return self.micro_batches(indices, epoch, (self.settings.seed, epoch, batch))

    def micro_batches(self, indices: np.ndarray, epoch: int, seeds: tuple[int, ...]) -> MicroBatches:
        """Return the micro-batches of the pairs at `indices`; None for those of other processes, and for empty ones.

        In lockstep every process gets the first one as well. seeds: of BPE-dropout.
        """
        group, slices = self.run.group, split_batch(indices, self.settings.micro_batches or 1)
        batches: MicroBatches = [None] * len(slices)
        for number, part in enumerate(slices):
            # In lockstep, a process that has none itself works through the first one.
            is_local = number % group.size == group.rank or (number == 0 and self.run.learner.sync.lockstep)
            if is_local and len(part):
                batches[number] = self.augmentation.batch(part, epoch, seeds)
        return batches

    def target_tokens(self, indices: np.ndarray) -> int:
        """Return the target tokens, EOS included, of the pairs at `indices`, as they are in the corpus."""
        return int(self.run.pairs.lengths[indices, 1].sum())

    def share_done(self) -> float:
        """Return the share of the run that is done, from 0 to 1."""
        return share_done(self.progress, self.settings, len(self.batches))

    def try_largest_batch(self) -> None:
        """Compute the gradient of the largest batch, without an update: if it fits in memory, the others will.

        Log how long an epoch will take. Raise DragomanError where the batch does not fit.
        """
        run, settings = self.run, self.settings
        indices = self.batches.largest_batch(self.augmentation.lengths(self.progress.epoch))
        tokens = self.target_tokens(indices)
        for _ in range(1 if run.group.device.type == "cpu" else 2):  # the first time, a GPU loads its kernels
            began = time.monotonic()
            result = run.learner.compute_gradient(self.micro_batches(indices, self.progress.epoch, (0,)), tokens, (0,))
            run.learner.sync.clear()
        if result.out_of_memory:
            smaller = "" if self.progress.step else "choose a smaller training.batch_tokens, or "
            raise DragomanError(
                f"a batch of {settings.batch_tokens:,} tokens does not fit in memory: {smaller}raise "
                f"training.micro_batches above {settings.micro_batches}"
            )
        seconds = (time.monotonic() - began) * self.target_tokens(self.batches.order) / tokens
        megabytes = 16 * parameter_count(run.learner.model) / 1e6  # weights, gradients, two moments
        self.journal.log(
            f"{megabytes:,.0f} MB of weights, gradients and moments; the largest batch fits; "
            f"an epoch (batches: {len(self.batches):,}) takes about {format_duration(seconds)}"
        )

    def check_skipped(self, result: StepResult) -> None:
        """Raise DragomanError at MAX_SKIPPED skipped batches in a row, with advice for the last one's `result`."""
        if self.progress.skipped < MAX_SKIPPED:
            return
        if result.out_of_memory:
            advice = f"raise training.micro_batches above {self.settings.micro_batches}"
        else:
            advice = divergence(self.settings)
        raise DragomanError(
            f"{MAX_SKIPPED} batches in a row were skipped ({result.skipped}): {advice}; the last checkpoint is kept"
        )

    def read_clock(self) -> None:
        """Set the seconds of the run to what the clock of the first process shows; all processes must call this."""
        self.progress.seconds = self.run.group.gather(time.monotonic() - self.began)[0]

    def save(self, stopping: bool) -> None:
        """Save. What only the clock made due is a checkpoint that the next one replaces."""
        self.journal.show_work(f"saving step {self.progress.step:,}")
        self.run.save(passing=not stopping and not save_is_planned(self.progress, self.settings, self.run.saved))

    def validation_is_due(self) -> bool:
        """Return whether to validate now."""
        return validation_is_due(self.progress, self.settings, self.validate_every, bool(self.run.config.init_from))

    def validate(self, stop: GracefulStop) -> bool:
        """Validate the model, update the progress of the run, and log the result; return True.

        Return False where a process was asked to stop meanwhile: then nothing has changed. Where memory runs out, save
        and raise DragomanError. Raise it, too, where the training has diverged.
        """
        run, began = self.run, time.monotonic()
        try:
            model = run.full_model()
            validation = validate(model, run.tokenizers, run.dev, run.dev_corpus, run.group, stop, self.show_validation)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or run.group.size > 1:
                raise
            run.save()
            raise DragomanError(f"not enough memory to validate; saved at step {self.progress.step:,}") from None
        if validation is None:
            return False
        before, trained = self.progress.shown, self.progress.seconds
        self.read_clock()
        self.progress.validated_seconds = self.progress.seconds
        self.progress.validation_seconds = self.progress.seconds - trained
        self.update_progress(validation)
        report_validation(run, validation, before, time.monotonic() - began)
        return True

    def show_validation(self, share: float) -> None:
        """Show how much of a validation is done, from 0 to 1."""
        number = plural(len(self.run.dev_corpus.pairs), "dev sentence")
        self.journal.show_work(f"validating at step {self.progress.step:,}", f"{100 * share:.0f} % of {number}", share)

    def update_progress(self, validation: Validation) -> None:
        """Record in the progress of the run whether a validation is the best so far, and whether the run ends."""
        progress, settings = self.progress, self.settings
        better, score = is_better(validation, settings.stop_on, progress.best_score, progress.best_loss)
        progress.worse = 0 if better else progress.worse + 1
        if better:
            progress.best_score, progress.best_loss, progress.best_step = score, validation.loss, progress.step
        progress.shown = validation.translations[: settings.samples]
        progress.scores, progress.validated = str(validation.scores).split("\n"), progress.step
        progress.finished = progress.finished or patience_reason(progress, settings)
