"""A training run: what it works on, and how it is opened anew or where it stopped."""

import contextlib
import datetime
import hashlib
import json
import os
import platform
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dragoman.alignment import Alignment, measure
from dragoman.config import RunConfig, TrainingConfig, as_dict, read_toml, update, write_toml
from dragoman.config.presets import PRESETS
from dragoman.console import duration
from dragoman.data.corpus import Corpus, read_corpus, stream
from dragoman.data.dataset import SOURCE, TARGET, Pairs, repetition_notes, tokenise
from dragoman.data.spec import CorpusSpec, check_present, parse_corpora
from dragoman.data.tokenizer import PAD, Tokenizer
from dragoman.errors import DragomanError, UsageError
from dragoman.files import fingerprint, replace_file, replace_link
from dragoman.model import Model, build, parameter_count
from dragoman.model_folder import find_model, read_model
from dragoman.text import faults
from dragoman.training.batch_size import batch_tokens_that_fit
from dragoman.training.checkpoint import (
    Checkpoint,
    TrainingProgress,
    newest_checkpoint,
    point_to_best,
    save_checkpoint,
)
from dragoman.training.distributed import ProcessGroup
from dragoman.training.journal import Journal
from dragoman.training.step import Learner, best_precision
from dragoman.training.validation import LOSS_TOKENS

# Settings that a run may change when it goes on; all others make it another run.
MAY_CHANGE = {
    *("train", "dev", "out", "init_from", "epochs", "max_steps", "minutes", "patience", "samples", "threads", "device"),
    *("validate_every", "save_every", "keep", "checkpoint_activations", "shard", "rank_timeout", "tensorboard"),
}


# And these, which make it another run from there on, but a sensible one: what advice against divergence names.
MAY_CHANGE_ALOUD = {"learning_rate", "warmup", "clip", "precision", "micro_batches"}


@dataclass
class Run:
    """Everything a training run works on."""

    config: RunConfig
    ranks: ProcessGroup
    pairs: Pairs
    dev: Pairs
    dev_corpus: Corpus
    tokenizer: Tokenizer
    learner: Learner
    progress: TrainingProgress
    journal: Journal
    saved: int = -1  # the step of the last checkpoint

    @property
    def folder(self) -> Path:
        return Path(self.config.out)

    @cached_property
    def scripts(self) -> list[str]:
        return faults.usual_scripts(target for _, target in self.dev_corpus.pairs)

    def save(self) -> None:
        """Called on all processes; the first one writes."""
        model, state = self.learner.whole(), self.learner.state()
        if self.ranks.first:
            # The best model so far is the one that will be used.
            alignment = aligned(model.eval(), self.dev) if self.progress.best_step == self.progress.step else None
            text = card(self.config, self.pairs, self.progress, alignment)
            keep = self.config.training.keep
            records = {faults.RECORD: json.dumps(self.scripts)}
            if alignment:
                records[alignment.RECORD] = alignment.as_json()
            save_checkpoint(self.folder, model, self.tokenizer, state, self.progress, text, keep, records)
        self.saved = self.progress.step


def open_run(config: RunConfig, ranks: ProcessGroup, journal: Journal) -> Run:
    """Read and tokenise the corpora; build the model, or load the newest checkpoint of the folder.

    The first process reads and writes; then the others find everything in the run folder, which all must see.
    """
    folder = Path(config.out)
    checkpoint, notes = newest_checkpoint(folder)
    if ranks.first:
        config, pairs, dev = prepare(config, ranks, journal)
        if checkpoint:
            check_same_text(checkpoint.progress, pairs, dev, config)
        replace_file(folder / "config.toml", write_toml(config))
    ranks.wait()
    if not ranks.first:
        config = update(config, read_toml(folder / "config.toml"), "config.toml")
        pairs, dev = (Pairs.open(folder / "data" / name) for name in ("train.arrow", "dev.arrow"))
    settings = config.training
    torch.set_num_threads(settings.threads or torch.get_num_threads())
    if settings.deterministic and ranks.device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
    for note in notes:
        journal.say(note)
    dev_corpus = read_corpus(config.dev)
    tokenizer = Tokenizer.load(folder / "data" / "tokenizer.json")
    learner = Learner(first_model(config, tokenizer, "" if checkpoint else config.init_from), settings, ranks)
    progress = TrainingProgress(data=pairs.fingerprint, dev_data=dev.fingerprint, machine=machine())
    if checkpoint:
        progress = resume(checkpoint, learner, config, journal)
    if len(set(ranks.gather((progress.step, pairs.fingerprint)))) > 1:
        raise DragomanError(f"{folder}: the processes do not see the same files; they need a shared file system")
    if checkpoint:
        if ranks.first:
            point_to_best(folder, progress)
            replace_link(folder / "last", checkpoint.folder)
    else:
        journal.say(
            f"{counted(pairs, settings)}, {len(tokenizer):,} subwords, {parameter_count(learner.model):,} parameters, "
            f"{settings.precision}, {place(ranks)}"
        )
    return Run(
        config,
        ranks,
        pairs,
        dev,
        dev_corpus,
        tokenizer,
        learner,
        progress,
        journal,
        progress.step if checkpoint else -1,
    )


def prepare(config: RunConfig, ranks: ProcessGroup, journal: Journal) -> tuple[RunConfig, Pairs, Pairs]:
    """Check the settings against an earlier part of the run, and tokenise what is not yet. Returns the settings with
    nothing left open, and the tokenised corpora.
    """
    folder = Path(config.out)
    earlier = earlier_config(folder)
    config = replace(config, training=settled(config.training, earlier, ranks))
    if earlier and config.init_from:
        config = replace(config, model=replace(earlier.model, dropout=config.model.dropout))
    elif config.init_from:
        start = read_model(Path(config.init_from))[0].config
        config = replace(config, model=replace(start, dropout=config.model.dropout))
    if earlier:
        check_same_run(config, earlier, journal)
    settings, data = config.training, folder / "data"
    train, dev = parse_corpora(config.train), parse_corpora(config.dev)
    check_present(file for origin in (*train, *dev) for file in origin.files)
    if any(origin.weight != 1 for origin in dev):
        raise UsageError("weight= is for --train; every dev pair is translated once")
    tokenizer = subwords(config, train, dev, data / "tokenizer.json", fresh=earlier is None)
    if settings.batch_tokens == "auto":
        settings = replace(settings, batch_tokens=batch_tokens_that_fit(config, len(tokenizer), ranks, journal))
        config = replace(config, training=settings)
    longest = config.model.max_positions
    most = min(settings.max_tokens, int(settings.batch_tokens), longest or settings.max_tokens)
    pairs = once(train, tokenizer, most, data / "train.arrow", journal, settings.concatenate)
    dev_pairs = once(dev, tokenizer, min(LOSS_TOKENS, longest or LOSS_TOKENS), data / "dev.arrow", journal)
    if earlier is None:
        for note in repetition_notes(pairs, dev_pairs):
            journal.say(note)
    return config, pairs, dev_pairs


def earlier_config(folder: Path) -> RunConfig | None:
    """The settings of a run that has a checkpoint."""
    file = folder / "config.toml"
    if not any((folder / "checkpoints").glob("step-*")) or not file.exists():
        return None
    return update(RunConfig(), read_toml(file), str(file))


def settled(settings: TrainingConfig, earlier: RunConfig | None, ranks: ProcessGroup) -> TrainingConfig:
    """What was left to us: as the earlier part of the run had it, or what suits this machine."""
    before = earlier.training if earlier else None
    precision = settings.precision
    if precision == "auto":
        precision = before.precision if before else best_precision(ranks.device)  # type: ignore[assignment]
    batch_tokens = settings.batch_tokens
    if batch_tokens == "auto" and before:
        batch_tokens = before.batch_tokens
    return replace(
        settings,
        precision=precision,
        batch_tokens=batch_tokens,
        micro_batches=settings.micro_batches or (before.micro_batches if before else parts(settings, ranks)),
        threads=settings.threads or (1 if settings.deterministic else None),
    )


def parts(settings: TrainingConfig, ranks: ProcessGroup) -> int:
    """How many parts a batch is cut into, where nobody says: for the same bits on 1, 2 or 4 processes, always four."""
    return max(4, ranks.size) if settings.deterministic else ranks.size


def subwords(
    config: RunConfig, train: tuple[CorpusSpec, ...], dev: tuple[CorpusSpec, ...], file: Path, fresh: bool
) -> Tokenizer:
    """The tokenizer of the run: an earlier part's, that of the model to start from, or one learned from the corpora."""
    if not fresh and file.exists():
        return Tokenizer.load(file)
    texts = (text for origin in train for row in stream(origin) for text in (row.source, row.target))
    tags = tuple(dict.fromkeys(origin.tag for origin in (*train, *dev) if origin.tag))
    if config.init_from:
        tokenizer = Tokenizer.load(find_model(Path(config.init_from)) / "tokenizer.json")
        room = len(tokenizer) + sum(tag not in tokenizer.tags for tag in tags)
        if max(config.vocabulary or 0, room) > len(tokenizer):
            tokenizer = tokenizer.extend(texts, max(config.vocabulary or 0, room), tags)
    else:
        tokenizer = Tokenizer.train(texts, config.vocabulary, PRESETS[config.preset].vocabulary, tags)
    replace_file(file, tokenizer.inner.to_str(pretty=True))
    return tokenizer


def once(
    origins: tuple[CorpusSpec, ...],
    tokenizer: Tokenizer,
    longest: int | None,
    file: Path,
    journal: Journal,
    joined: float = 0.0,
) -> Pairs:
    """Tokenise corpora into `file`, unless it holds them already; the notes about what was left out are told."""
    made_of = {
        "files": [[fingerprint(Path(name))["sha256"] for name in origin.files] for origin in origins],
        "settings": [[*origin.files, origin.weight, origin.tag, origin.columns] for origin in origins],
        "tokenizer": hashlib.sha256("\n".join(tokenizer.pieces).encode()).hexdigest(),
        "longest": longest,
        "joined": joined,
    }
    record = file.with_suffix(".json")
    key = json.loads(json.dumps(made_of))
    with contextlib.suppress(OSError, ValueError, DragomanError):  # missing or damaged: it is made anew
        known = json.loads(record.read_text(encoding="utf-8"))
        if {name: known.get(name) for name in key} == key:
            pairs = Pairs.open(file)
            for note in known["notes"]:
                journal.say(note)
            return pairs
    record.unlink(missing_ok=True)
    pairs, notes = tokenise(origins, tokenizer, longest, file, joined)
    for note in notes:
        journal.say(note)
    replace_file(record, json.dumps({**key, "notes": notes}, indent=1, ensure_ascii=False) + "\n")
    return pairs


def first_model(config: RunConfig, tokenizer: Tokenizer, start: str) -> Model:
    """The model before the first step: random, or the one in the folder `start`, with more words where there are."""
    torch.manual_seed(config.training.seed)
    model = build(config.model, len(tokenizer), pad=PAD)
    if start:
        start_from(model, read_model(Path(start))[0])
    return model


@torch.no_grad()
def start_from(model: Model, old: Model) -> None:
    """Copy the weights of `old`. Words that are new keep their random vectors."""
    values = dict(old.named_parameters())
    for name, parameter in model.named_parameters():
        value = values[name]
        if parameter.shape[1:] != value.shape[1:] or len(parameter) < len(value):
            raise DragomanError(f"'{name}' is {tuple(value.shape)} there and {tuple(parameter.shape)} here")
        parameter[: len(value)].copy_(value)


def resume(checkpoint: Checkpoint, learner: Learner, config: RunConfig, journal: Journal) -> TrainingProgress:
    progress = checkpoint.progress
    try:
        learner.load(checkpoint.model, checkpoint.state)
    except (KeyError, RuntimeError) as error:
        raise DragomanError(f"{checkpoint.folder}: this checkpoint does not fit the run: {error}") from None
    journal.say(f"going on from step {progress.step:,} of {config.out}")
    here = machine()
    changed = [
        f"{name} {progress.machine.get(name)} -> {here[name]}"
        for name in here
        if progress.machine.get(name) != here[name]
    ]
    if changed:
        journal.say(f"the last bits of the results may differ from an uninterrupted run: {', '.join(changed)}")
    progress.machine = here
    return progress


def machine() -> dict[str, Any]:
    """What decides the last bits of results, beside the settings."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        "python": platform.python_version(),
    }


def place(ranks: ProcessGroup) -> str:
    where = f"{torch.get_num_threads()} threads"
    if ranks.device.type == "cuda":
        where = torch.cuda.get_device_name(ranks.device)
    return where if ranks.size == 1 else f"{ranks.size} processes, each {where}"


def counted(pairs: Pairs, settings: TrainingConfig) -> str:
    return f"{len(pairs):,} pairs" + ", concatenated ones included" * bool(settings.concatenate)


def check_same_text(progress: TrainingProgress, pairs: Pairs, dev: Pairs, config: RunConfig) -> None:
    """Raises DragomanError where the run in that folder works on other texts than these."""
    for words, known, found, use in (
        (config.train, progress.data, pairs.fingerprint, "trained"),
        (config.dev, progress.dev_data, dev.fingerprint, "validated"),
    ):
        if known != found:
            raise DragomanError(f"{' '.join(words)}: not the text that {config.out} was {use} on; choose another --out")


def check_same_run(config: RunConfig, earlier: RunConfig, journal: Journal) -> None:
    """Raises UsageError where the run in that folder was started with other settings than these."""
    old, new = flat(as_dict(earlier)), flat(as_dict(config))
    fixed = {"max_steps"} if config.training.schedule in ("cosine", "linear") else set()  # the schedule ends there
    for name in sorted({*old, *new}):
        setting = name.rsplit(".", 1)[-1]
        if old.get(name) == new.get(name):
            continue
        if setting in MAY_CHANGE_ALOUD:
            journal.say(f"from here on, {name} is {new.get(name)} instead of {old.get(name)}")
        elif setting not in MAY_CHANGE - fixed:
            raise UsageError(
                f"{config.out} was started with {name} = {old.get(name, 'default')}, not {new.get(name, 'default')}: "
                "choose another --out, or the same settings to go on"
            )


def flat(tree: dict, prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def aligned(model: Model, dev: Pairs) -> Alignment | None:
    """Which layer and head align words best; None for a model without attention over the source."""
    numbers = np.arange(len(dev))
    try:
        return measure(model, *([ids.tolist() for ids in dev.rows(numbers, side)] for side in (SOURCE, TARGET)))
    except DragomanError:
        return None


def card(config: RunConfig, pairs: Pairs, progress: TrainingProgress, alignment: Alignment | None) -> str:
    """The model card: what this is, learned from what, and how good."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    lines = [
        f"# {Path(config.out).name or 'model'}",
        "",
        f"Trained on {' '.join(config.train)}, {counted(pairs, config.training)}; {progress.step:,} steps, "
        f"{progress.target_tokens:,} target tokens, {duration(progress.seconds)}. Written on {today}.",
    ]
    if config.init_from:
        lines += ["", f"Started from the weights of {config.init_from}."]
    if progress.scores:
        lines += ["", f"On {' '.join(config.dev)}, greedy search:", "", *(f"- {row}" for row in progress.scores)]
    if alignment:
        lines += ["", f"Words are aligned by attention: {alignment}."]
    return "\n".join(lines) + "\n"
