"""The training loop: next batch, update, tell, validate, save."""

import contextlib
import time
from pathlib import Path

import numpy as np

from dragoman.config import RunConfig, TrainingConfig
from dragoman.console import duration
from dragoman.data.batches import Batch, plan, split
from dragoman.decoding.forced import perplexity
from dragoman.errors import DragomanError
from dragoman.model import parameter_count
from dragoman.training.checkpoint import TrainingProgress, only_one
from dragoman.training.distributed import init_distributed
from dragoman.training.journal import MOST_SHOWN, Journal
from dragoman.training.optimizer import learning_rate
from dragoman.training.run import Run, open_run
from dragoman.training.signals import GracefulStop, asked_to_stop, ended_by
from dragoman.training.step import StepResult, out_of_memory
from dragoman.training.validation import better, validate

MOST_SKIPPED = 10  # batches in a row that change nothing
NAMED = 3  # pairs of a batch that a message names


def train(config: RunConfig, journal: Journal) -> TrainingProgress:
    """Train as `config` says, into the folder `config.out`; go on where an earlier run into that folder stopped.

    Ctrl-C and SIGTERM stop after the step in progress and save; then KeyboardInterrupt, or SystemExit with code 143,
    is raised. Started by torchrun, all processes do this together, and the first one writes. Raises DragomanError for
    corpora and folders that cannot be used, where training diverges, and where another process is gone.
    """
    with init_distributed(config.training) as ranks, contextlib.ExitStack() as stack:
        if ranks.first:
            stack.enter_context(only_one(Path(config.out)))
        loop = Loop(open_run(config, ranks, journal))
        with asked_to_stop() as stop:
            loop.go(stop)
        return loop.progress


class Loop:
    """One sitting of a run: from where it stands to its end, or to where it is asked to stop."""

    def __init__(self, run: Run):
        self.run, self.progress, self.journal = run, run.progress, run.journal
        self.settings: TrainingConfig = run.config.training
        self.plan_epoch()
        # Not from this epoch's batches: with weights, epochs differ, and a resumed run validates where it would have.
        usual = int(run.pairs.lengths.max(axis=1).sum()) // int(self.settings.batch_tokens)
        self.validate_every = self.settings.validate_every or min(max(usual, 100), 1000)
        self.earlier, self.began = self.progress.seconds, time.monotonic()

    def go(self, stop: GracefulStop) -> None:
        progress, journal = self.progress, self.journal
        progress.finished = self.limit_reached()
        if not progress.finished:
            self.estimate()
        journal.start_clock(self.share_done(), progress.seconds, progress.target_tokens)
        if progress.best_step:
            journal.best(f"{self.best()}; {self.verdict()}")
        stopping = False
        while True:
            validated = False
            if self.validation_is_due() and not stopping:
                with journal.aside():
                    validated = self.validate(stop)
                stopping = not validated  # it is made up for when the run goes on
            new = self.run.saved != progress.step
            if validated or (new and (stopping or self.is_due(self.settings.save_every))):
                with journal.aside():
                    self.run.save()
            if progress.finished and not self.validation_is_due():
                break
            if stopping:
                journal.say(f"stopped at step {progress.step:,}; the same command goes on from there")
                raise ended_by(max(self.run.ranks.gather(stop.number)))
            stopping = self.advance(stop).stop
        if not progress.step:
            raise DragomanError(
                f"{self.run.folder}: no batch changed the weights, there is no model ({progress.finished})"
            )
        journal.say(
            f"finished: {progress.finished}, after {progress.step:,} steps and {duration(progress.seconds)}; "
            f"{self.best()}; the model is {self.run.folder / 'best'}"
        )

    def advance(self, stop: GracefulStop) -> StepResult:
        """One batch: an update, or a batch skipped and told."""
        progress, settings, learner = self.progress, self.settings, self.run.learner
        indices = self.batches[progress.batch]
        tokens = int(self.run.pairs.lengths[indices, 1].sum())  # before BPE-dropout
        rate = learning_rate(progress.step + 1, self.run.config.model.d_model, settings)
        seeds = (settings.seed, progress.epoch, progress.batch)
        outcome = learner.update(self.parts(indices, seeds), tokens, rate, seeds, bool(stop))
        progress.batch += 1
        epoch = progress.epoch
        if outcome.skipped:
            progress.skipped += 1
            self.tell_skipped(indices, outcome)
        else:
            progress.step, progress.skipped = progress.step + 1, 0
            progress.target_tokens += outcome.tokens
        if progress.batch == len(self.batches):
            progress.epoch, progress.batch = progress.epoch + 1, 0
            self.plan_epoch()
        progress.seconds = self.earlier + time.monotonic() - self.began
        if not outcome.skipped:
            self.journal.step(
                progress.step,
                epoch,
                loss=outcome.loss,
                tokens=outcome.tokens,
                rate=rate,
                norm=outcome.norm,
                done=self.share_done(),
                total=self.steps_in_all(),
                next_validation=self.validate_every - progress.step % self.validate_every,
            )
        progress.finished = self.limit_reached()
        return outcome

    def parts(self, indices: np.ndarray, seeds: tuple[int, ...]) -> list[Batch | None]:
        """The micro-batches of a batch; those that other processes work off are None, as are empty ones."""
        ranks, slices = self.run.ranks, split(indices, self.settings.micro_batches or 1)
        rate = self.settings.bpe_dropout
        dropout = (self.run.tokenizer, rate, seeds) if rate else None
        found: list[Batch | None] = [None] * len(slices)
        for number, part in enumerate(slices):
            own = number % ranks.size == ranks.rank or (number == 0 and self.run.learner.layout.every_part)
            if own and len(part):
                found[number] = self.run.pairs.batch(part, dropout)
        return found

    def plan_epoch(self) -> None:
        pairs, settings, progress = self.run.pairs, self.settings, self.progress
        tokens = int(settings.batch_tokens)
        while not len(batches := plan(pairs.lengths, tokens, settings.seed, progress.epoch, pairs.repeats)):
            progress.epoch += 1  # the weights are so small that no pair has its turn
        self.batches = batches

    def estimate(self) -> None:
        """Go through the largest batch once, without an update: what fits here fits later. Then tell what to expect."""
        run, settings = self.run, self.settings
        indices = self.batches.heaviest(run.pairs.lengths)
        tokens = int(run.pairs.lengths[indices, 1].sum())
        began = time.monotonic()
        outcome = run.learner.gradients(self.parts(indices, (0,)), tokens, (0,))
        run.learner.layout.clear()
        if outcome.out_of_memory:
            smaller = "" if self.progress.step else "choose a smaller training.batch_tokens, or "
            raise DragomanError(
                f"a batch of {settings.batch_tokens:,} tokens does not fit in memory: {smaller}"
                f"choose more training.micro_batches than {settings.micro_batches}"
            )
        seconds = (time.monotonic() - began) * int(run.pairs.lengths[:, 1].sum()) / tokens
        weights = 16 * parameter_count(run.learner.model) / 1e6  # weights, gradients, two moments
        self.journal.say(
            f"{weights:,.0f} MB of weights, gradients and moments; the largest batch fits; "
            f"{len(self.batches):,} batches in an epoch, about {duration(seconds)}"
        )

    def tell_skipped(self, indices: np.ndarray, outcome: StepResult) -> None:
        progress, pairs = self.progress, self.run.pairs
        longest = sorted(indices, key=lambda index: -int(pairs.lengths[index].max()))[:NAMED]
        places = ", ".join(pairs.location(int(index)) for index in longest)
        self.journal.say(
            f"skipped batch {progress.batch:,} of epoch {progress.epoch + 1}: {outcome.skipped}; "
            f"{len(indices):,} pairs, the longest at {places}"
        )
        self.journal.record("skipped", step=progress.step, epoch=progress.epoch, why=outcome.skipped, places=places)
        if progress.skipped < MOST_SKIPPED:
            return
        if outcome.out_of_memory:
            advice = f"choose more training.micro_batches than {self.settings.micro_batches}"
        else:
            advice = (
                f"training has diverged; a lower training.learning_rate than {self.settings.learning_rate:g}, a longer "
                "training.warmup or training.precision float32 may help"
            )
        raise DragomanError(
            f"{MOST_SKIPPED} batches in a row changed nothing ({outcome.skipped}): {advice}; "
            "the last checkpoint is kept"
        )

    def is_due(self, every: int | None) -> bool:
        return bool(every) and self.progress.step > 0 and self.progress.step % (every or 1) == 0

    def validation_is_due(self) -> bool:
        progress = self.progress
        due = bool(progress.finished) or self.is_due(self.validate_every)
        return due and 0 < progress.step != progress.validated

    def validate(self, stop: GracefulStop) -> bool:
        """Loss and scores on the dev pairs, told and recorded; whether they are the best, and patience.

        False where a process was asked to stop meanwhile: then nothing has changed.
        """
        run, progress, settings, began = self.run, self.progress, self.settings, time.monotonic()
        try:
            found = validate(run.learner.whole(), run.tokenizer, run.dev, run.dev_corpus, run.ranks, stop)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error) or run.ranks.size > 1:
                raise
            run.save()
            raise DragomanError(f"not enough memory to validate; saved at step {progress.step:,}") from None
        if found is None:
            return False
        bleu, chrf = found.scores.bleu, found.scores.chrf
        gain, score = better(found, settings.stop_on, progress.best_score, progress.best_loss)
        progress.worse = 0 if gain else progress.worse + 1
        if gain:
            progress.best_score, progress.best_loss, progress.best_step = score, found.loss, progress.step
        before, progress.shown = progress.shown, found.translations[: settings.samples]
        progress.scores, progress.validated = str(found.scores).split("\n"), progress.step
        progress.seconds = self.earlier + time.monotonic() - self.began
        progress.finished = progress.finished or self.patience_spent()
        self.journal.flush(progress.step, progress.epoch)
        self.journal.record(
            "validation",
            step=progress.step,
            epoch=progress.epoch,
            loss=found.loss,
            bleu=bleu.value,
            chrf=chrf.value,
            exact=found.scores.exact,
            signature=bleu.signature,
            seconds=round(progress.seconds, 1),
            target_tokens=progress.target_tokens,
        )
        self.journal.say(
            f"validation at step {progress.step:,}: loss {found.loss:.3f}, "
            f"perplexity {perplexity(min(found.loss, MOST_SHOWN)):,.1f}, "
            f"BLEU {bleu.value:.1f}, chrF2 {chrf.value:.1f}, "
            f"exact {100 * found.scores.exact:.1f} %, in {duration(time.monotonic() - began)}; {self.verdict()}"
        )
        self.journal.best(f"{self.best()}; {self.verdict()}")
        shown = zip(run.dev_corpus.pairs, progress.shown, before or [""] * settings.samples, strict=False)
        self.journal.samples(progress.step, [(*pair, now, then) for pair, now, then in shown])
        return True

    def verdict(self) -> str:
        if not self.progress.worse:
            return "the best so far"
        return f"no better for {self.progress.worse} of {self.settings.patience or 'unlimited'} validations"

    def best(self) -> str:
        """'best BLEU 23.1 at step 1,200', in the terms of what the run stops on."""
        progress, name = self.progress, {"bleu": "BLEU", "chrf": "chrF2", "loss": "dev loss"}[self.settings.stop_on]
        if not progress.best_step:
            return "not validated yet"
        value = f"{-progress.best_score:.3f}" if self.settings.stop_on == "loss" else f"{progress.best_score:.1f}"
        return f"best {name} {value} at step {progress.best_step:,}"

    def share_done(self) -> float:
        """How much of the run is behind us, from 0 to 1, by the limit that will be reached first."""
        progress, settings = self.progress, self.settings
        shares = [(progress.epoch + progress.batch / len(self.batches)) / settings.epochs]
        if settings.max_steps:
            shares.append(progress.step / settings.max_steps)
        if settings.minutes:
            shares.append(progress.seconds / (60 * settings.minutes))
        return min(max(shares), 1.0)

    def steps_in_all(self) -> int | None:
        """None where the clock may end the run: then nobody knows."""
        if self.settings.minutes:
            return None
        in_epochs = self.settings.epochs * len(self.batches)
        return min(self.settings.max_steps or in_epochs, in_epochs)

    def limit_reached(self) -> str:
        """Why the run is over, in words, or nothing."""
        progress, settings = self.progress, self.settings
        over = bool(settings.minutes) and progress.seconds >= 60 * (settings.minutes or 0)
        if self.run.ranks.size > 1 and settings.minutes:  # clocks differ; all must stop at the same step
            over = self.run.ranks.gather(over)[0]
        if settings.max_steps and progress.step >= settings.max_steps:
            return f"all {settings.max_steps:,} steps done"
        if progress.epoch >= settings.epochs:
            return f"all {settings.epochs:,} epochs done"
        if over:
            return f"the {settings.minutes:g} minutes are over"
        return self.patience_spent()

    def patience_spent(self) -> str:
        if self.settings.patience and self.progress.worse >= self.settings.patience:
            return f"validation has not improved for {self.progress.worse} checks"
        return ""
