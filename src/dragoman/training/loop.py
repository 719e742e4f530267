"""The training loop: next batch, forward, backward, step, tell, validate, save."""

import datetime
import hashlib
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

from dragoman.batches import Batch, Ids, plan
from dragoman.config import RunConfig, SearchConfig, TrainingConfig, as_dict, read_toml, write_toml
from dragoman.corpus import Corpus, read_corpus, some_lines
from dragoman.errors import DragomanError, UsageError
from dragoman.evaluation import Scores, evaluate
from dragoman.folder import replace_file
from dragoman.model import Model, build
from dragoman.presets import PRESETS
from dragoman.tokenizer import EOS, PAD, Tokenizer
from dragoman.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from dragoman.training.journal import Journal, duration
from dragoman.training.loss import smoothed_cross_entropy
from dragoman.training.optimizer import adam, paper_rate
from dragoman.translator import Translator

# Settings that a run may change when it goes on; all others make it another run.
MAY_CHANGE = {"train", "out", "epochs", "max_steps", "minutes", "validate_every", "patience", "samples", "threads"}


@dataclass(frozen=True)
class Pairs:
    """Tokenised sentence pairs."""

    sources: list[Ids]
    targets: list[Ids]

    @property
    def lengths(self) -> np.ndarray:
        """(n, 2): tokens of source and target, with the end that both get."""
        return np.array([(len(s) + 1, len(t) + 1) for s, t in zip(self.sources, self.targets, strict=True)])

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for ids in (*self.sources, *self.targets):
            digest.update(np.array([*ids, EOS], dtype=np.int64).tobytes())
        return digest.hexdigest()

    def batch(self, indices: np.ndarray) -> Batch:
        return Batch.of([self.sources[i] for i in indices], [self.targets[i] for i in indices])


@dataclass
class Run:
    """Everything a training run works on."""

    config: RunConfig
    folder: Path
    corpus: Corpus
    pairs: Pairs
    dev_corpus: Corpus
    dev: Pairs
    tokenizer: Tokenizer
    model: Model
    optimizer: torch.optim.Adam
    progress: Progress
    journal: Journal
    scores: Scores | None = None  # of the last validation
    shown: list[str] = field(default_factory=list)  # the sample translations of the last validation

    def save(self) -> None:
        text = card(self.config, self.corpus, self.scores, self.progress)
        save_checkpoint(self.folder, self.model, self.tokenizer, self.optimizer, self.progress, text)


def train(config: RunConfig, journal: Journal) -> Scores | None:
    """Train as `config` says, into the folder `config.out`; go on where an earlier run into that folder stopped.

    Ctrl-C stops after the step in progress and saves; KeyboardInterrupt is then raised. Returns the scores of the last
    validation, or None if the run had been finished before. Raises DragomanError for corpora and folders that cannot be
    used.
    """
    torch.set_num_threads(config.training.threads or torch.get_num_threads())
    run = open_run(config, journal)
    settings, progress, lengths = config.training, run.progress, run.pairs.lengths
    batches = plan(lengths, settings.batch_tokens, settings.seed, progress.epoch)
    validate_every = settings.validate_every or min(max(len(batches), 100), 1000)
    earlier, began = progress.seconds, time.monotonic()
    journal.start_clock(share_done(progress, settings, len(batches)))
    with ctrl_c() as stop:
        while not progress.finished:
            batch = run.pairs.batch(batches[progress.batch])
            rate = settings.learning_rate * paper_rate(progress.step + 1, config.model.d_model, settings.warmup)
            loss, tokens, norm = update_weights(run.model, run.optimizer, batch, rate, settings)
            progress.step, progress.batch = progress.step + 1, progress.batch + 1
            progress.target_tokens += tokens
            if progress.batch == len(batches):
                progress.epoch, progress.batch = progress.epoch + 1, 0
                batches = plan(lengths, settings.batch_tokens, settings.seed, progress.epoch)
            progress.seconds = earlier + time.monotonic() - began
            done = share_done(progress, settings, len(batches))
            journal.step(progress.step, progress.epoch, loss=loss, tokens=tokens, rate=rate, norm=norm, done=done)
            progress.finished = limit_reached(progress, settings)
            if progress.finished or progress.step % validate_every == 0:
                validate(run)
                progress.finished = progress.finished or patience_spent(progress, settings)
                progress.seconds = earlier + time.monotonic() - began
                run.save()
                journal.flush(progress.step, progress.epoch)
            elif stop.is_set():
                run.save()
            if stop.is_set() and not progress.finished:
                journal.say(f"stopped at step {progress.step:,}; the same command goes on from there")
                raise KeyboardInterrupt
    journal.say(
        f"finished: {progress.finished}, after {progress.step:,} steps and {duration(progress.seconds)}; "
        f"best BLEU {progress.best_bleu:.1f} at step {progress.best_step:,}; the model is {run.folder / 'best'}"
    )
    return run.scores


def open_run(config: RunConfig, journal: Journal) -> Run:
    """Read and tokenise the corpora; build the model, or load the last checkpoint of the folder."""
    settings, folder = config.training, Path(config.out)
    resuming = (folder / "last").exists()
    if resuming:
        check_same_run(config, folder)
    corpus, dev_corpus = read_corpus(config.train), read_corpus(config.dev)
    for note in (*corpus.notes(), *dev_corpus.notes()):
        journal.say(note)
    if resuming:
        tokenizer = Tokenizer.load(folder / "last" / "tokenizer.json")
    else:
        texts = (text for pair in corpus.pairs for text in pair)
        tokenizer = Tokenizer.train(texts, config.vocabulary, PRESETS[config.preset].vocabulary)
    longest = config.model.longest
    pairs = tokenised(
        corpus, tokenizer, min(settings.max_tokens, settings.batch_tokens, longest or settings.max_tokens), journal
    )
    dev = tokenised(dev_corpus, tokenizer, longest, journal)

    torch.manual_seed(settings.seed)
    model = build(config.model, len(tokenizer), pad=PAD)
    optimizer = adam(model)
    progress = Progress(data=pairs.fingerprint)
    if resuming:
        progress = load_checkpoint(folder / "last", model, optimizer)
        if progress.data != pairs.fingerprint:
            raise DragomanError(f"{corpus.name}: not the text that {folder} was trained on; choose another --out")
        progress.finished = limit_reached(progress, settings)
        journal.say(f"going on from step {progress.step:,} of {folder}")
    else:
        journal.say(
            f"{len(pairs.sources):,} pairs, {len(tokenizer):,} subwords, "
            f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters, "
            f"{torch.get_num_threads()} threads"
        )
    replace_file(folder / "config.toml", write_toml(config))
    return Run(config, folder, corpus, pairs, dev_corpus, dev, tokenizer, model, optimizer, progress, journal)


@contextmanager
def ctrl_c() -> Iterator[threading.Event]:
    """Ctrl-C sets the event, so that a step is never torn in two; a second Ctrl-C interrupts at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield asked
        return

    def handle(*_: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def update_weights(
    model: nn.Module, optimizer: torch.optim.Adam, batch: Batch, rate: float, settings: TrainingConfig
) -> tuple[float, int, float]:
    """One step on one batch. Returns the loss summed over tokens, the tokens, and the norm of the gradient."""
    model.train()
    tokens = int(batch.real.sum())
    logits = model(batch.source, batch.target, batch.real)
    loss = smoothed_cross_entropy(logits, batch.labels[batch.real], settings.label_smoothing)
    (loss / tokens).backward()
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), settings.clip or float("inf")))
    if not math.isfinite(norm):
        raise DragomanError(
            f"the gradient is {norm}: training has diverged, and the last checkpoint is kept; "
            f"a lower training.learning_rate than {settings.learning_rate:g} may help"
        )
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad()
    return loss.item(), tokens, norm


def validate(run: Run) -> None:
    """Loss on the dev pairs (without label smoothing) and scores of their greedy translations, told and recorded."""
    progress, settings, began = run.progress, run.config.training, time.monotonic()
    run.model.eval()
    loss = mean_loss(run.model, run.dev, settings.batch_tokens)
    if not math.isfinite(loss):
        raise DragomanError(
            f"the loss on the dev pairs is {loss}: training has diverged, and the last checkpoint is kept; "
            f"a lower training.learning_rate than {settings.learning_rate:g} may help"
        )
    translator = Translator(run.model, run.tokenizer, SearchConfig(beam=1))
    sources, references = zip(*run.dev_corpus.pairs, strict=True)
    translations = [translation.text for translation in translator.translate(sources)]
    run.scores = scores = evaluate(translations, references)
    # Where BLEU says nothing, as in the first epochs or for scripts without spaces, the loss decides.
    better = (scores.bleu.value, -loss) > (progress.best_bleu, -progress.loss_of_best)
    progress.worse = 0 if better or loss < progress.best_loss else progress.worse + 1
    progress.best_loss = min(loss, progress.best_loss)
    if better:
        progress.best_bleu, progress.loss_of_best, progress.best_step = scores.bleu.value, loss, progress.step
    run.journal.record(
        "validation",
        step=progress.step,
        epoch=progress.epoch,
        loss=loss,
        bleu=scores.bleu.value,
        chrf=scores.chrf.value,
        exact=scores.exact,
        signature=scores.bleu.signature,
        seconds=round(progress.seconds, 1),
        target_tokens=progress.target_tokens,
    )
    if better:
        verdict = "the best so far"
    elif progress.worse:
        verdict = f"no better for {progress.worse} of {settings.patience or 'unlimited'} validations"
    else:
        verdict = "the loss still falls"
    run.journal.say(
        f"validation at step {progress.step:,}: loss {loss:.3f}, perplexity {math.exp(min(loss, 20)):.1f}, "
        f"BLEU {scores.bleu.value:.1f}, chrF2 {scores.chrf.value:.1f}, exact {100 * scores.exact:.1f} %, "
        f"in {duration(time.monotonic() - began)}; {verdict}"
    )
    before = run.shown or [""] * settings.samples
    run.shown = translations[: settings.samples]
    run.journal.samples(progress.step, list(zip(sources, references, run.shown, before, strict=False)))


@torch.inference_mode()
def mean_loss(model: nn.Module, pairs: Pairs, batch_tokens: int) -> float:
    """Cross-entropy in nats per target token, end included."""
    total, tokens = 0.0, 0
    lengths = pairs.lengths
    for indices in plan(lengths, max(batch_tokens, int(lengths.max())), 0, 0):
        batch = pairs.batch(indices)
        logits = model(batch.source, batch.target, batch.real)
        total += smoothed_cross_entropy(logits, batch.labels[batch.real], 0.0).item()
        tokens += int(batch.real.sum())
    return total / tokens


def tokenised(corpus: Corpus, tokenizer: Tokenizer, longest: int | None, journal: Journal) -> Pairs:
    """The pairs as ids; those with a side longer than `longest` tokens, its end included, are left out and told."""
    sources = tokenizer.encode_all([source for source, _ in corpus.pairs])
    targets = tokenizer.encode_all([target for _, target in corpus.pairs])
    keep = range(len(sources))
    if longest is not None:
        keep = [i for i in keep if len(sources[i]) < longest and len(targets[i]) < longest]  # type: ignore[assignment]
        kept = set(keep)
        dropped = [line for i, line in enumerate(corpus.lines) if i not in kept]
        if dropped:
            journal.say(
                f"{corpus.name}: left out {len(dropped):,} pairs longer than {longest} tokens ({some_lines(dropped)})"
            )
        if not keep:
            raise DragomanError(
                f"{corpus.name}: every pair is longer than {longest} tokens; "
                "raise training.max_tokens, training.batch_tokens or model.max_length"
            )
    return Pairs([sources[i] for i in keep], [targets[i] for i in keep])


def check_same_run(config: RunConfig, run: Path) -> None:
    """Raises UsageError where the run in that folder was started with other settings than these."""
    old, new = flat(read_toml(run / "config.toml")), flat(as_dict(config))
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name) and name.rsplit(".", 1)[-1] not in MAY_CHANGE:
            raise UsageError(
                f"{run} was started with {name} = {old.get(name, 'default')}, not {new.get(name, 'default')}: "
                "choose another --out, or the same settings to go on"
            )


def flat(tree: dict, prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def share_done(progress: Progress, settings: TrainingConfig, batches: int) -> float:
    """How much of the run is behind us, from 0 to 1, by the limit that will be reached first."""
    shares = [(progress.epoch + progress.batch / batches) / settings.epochs]
    if settings.max_steps:
        shares.append(progress.step / settings.max_steps)
    if settings.minutes:
        shares.append(progress.seconds / (60 * settings.minutes))
    return min(max(shares), 1.0)


def limit_reached(progress: Progress, settings: TrainingConfig) -> str:
    """Why the run is over, in words, or nothing."""
    if settings.max_steps and progress.step >= settings.max_steps:
        return f"all {settings.max_steps:,} steps done"
    if progress.epoch >= settings.epochs:
        return f"all {settings.epochs:,} epochs done"
    if settings.minutes and progress.seconds >= 60 * settings.minutes:
        return f"the {settings.minutes:g} minutes are over"
    return patience_spent(progress, settings)


def patience_spent(progress: Progress, settings: TrainingConfig) -> str:
    if settings.patience and progress.worse >= settings.patience:
        return f"validation has not improved for {progress.worse} checks"
    return ""


def card(config: RunConfig, corpus: Corpus, scores: Scores | None, progress: Progress) -> str:
    """The model card: what this is, learned from what, and how good."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    lines = [
        f"# {Path(config.out).name or 'model'}",
        "",
        f"Trained on {len(corpus.pairs):,} sentence pairs of {corpus.name}; {progress.step:,} steps, "
        f"{progress.target_tokens:,} target tokens, {duration(progress.seconds)}. Written on {today}.",
    ]
    if scores:
        lines += [
            "",
            f"On {' and '.join(config.dev)}, greedy search:",
            "",
            *(f"- {row}" for row in str(scores).split("\n")),
        ]
    return "\n".join(lines) + "\n"
