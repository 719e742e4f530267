"""Prepare a run: the first process writes into the run folder what all processes then open it from."""

from dataclasses import replace
from pathlib import Path

from dragoman.config import RunConfig, to_toml
from dragoman.data.dataset import direction_notes, repetition_notes
from dragoman.data.spec import check_present, parse_corpora
from dragoman.data.tokenizers import JOINT, SIDES, Tokenizers
from dragoman.errors import DragomanError, UsageError
from dragoman.model import outline, parameter_count
from dragoman.storage.writing import replace_file
from dragoman.training.batch_size import batch_tokens_that_fit
from dragoman.training.checkpoint import Checkpoint
from dragoman.training.datasets import prepare_dataset, tag_notes
from dragoman.training.distributed import ProcessGroup
from dragoman.training.extent import language_notes
from dragoman.training.journal import Journal
from dragoman.training.memory import check_size
from dragoman.training.precision import configure_torch
from dragoman.training.resume import check_same_tokenizers, languages_of_run, previous_config
from dragoman.training.settings import settle
from dragoman.training.tokenizers import prepare_tokenizers
from dragoman.training.validation import MAX_TOKENS

DATA = "data"  # in a run folder: its corpora, and the tokenizers, of which each checkpoint has a copy
TRAIN, DEV = "train.arrow", "dev.arrow"  # in that folder
ENTRIES = frozenset(  # what a run folder has
    ("best", "checkpoints", "config.toml", DATA, "last", "metrics.jsonl", "samples", "tensorboard", "train.log")
)


def prepare(config: RunConfig, group: ProcessGroup, journal: Journal, checkpoint: Checkpoint | None) -> None:
    """Write into the run folder what a run is opened from: its settings, all decided, tokenizers, tokenised corpora.

    checkpoint: the newest one, None where there is none yet. What earlier sessions of the run decided and tokenised is
    reused. Raise UsageError or DragomanError where they had settings that must not change, or other pairs, and where
    settings or texts cannot be used.
    """
    folder = Path(config.out)
    data = folder / DATA
    if checkpoint:
        check_same_tokenizers(checkpoint, data)
    elif data.is_dir():
        journal.log(f"{folder} has no checkpoint yet: the run starts again from the beginning")
    elif (folder / "config.toml").exists():  # no run has written it
        raise DragomanError(f"{folder / 'config.toml'}: training would overwrite it; choose another --out")
    previous = previous_config(folder)
    config, changes = settle(config, previous, checkpoint, group)
    train, dev = parse_corpora(config.train), parse_corpora(config.dev)
    check_present(file for spec in (*train, *dev) for file in spec.files)
    if any(spec.weight != 1 or spec.share for spec in dev):
        raise UsageError("weight= and share= are for --train; every dev pair is translated once")
    if previous and any((data / name).exists() for name in (JOINT, *SIDES)):
        tokenizers = Tokenizers.load(data)
    else:
        tokenizers = prepare_tokenizers(config, train, dev, data, journal)
    if config.training.bpe_dropout:
        tokenizers.bpe()  # raises where that cannot be done
    if not config.training.shard:
        size = parameter_count(outline(config.model, len(tokenizers.source), tokenizers.target_vocabulary))
        check_size(size, group.device)
    if config.training.batch_tokens == "auto":
        configure_torch(config.training, group)  # for the trial, which is to be like the training
        batch_tokens = batch_tokens_that_fit(config, tokenizers, group, journal)
        config = replace(config, training=replace(config.training, batch_tokens=batch_tokens))
    settings, limit = config.training, config.model.max_positions
    max_tokens = min(settings.max_tokens, int(settings.batch_tokens), limit or settings.max_tokens)
    dev_tokens = min(MAX_TOKENS, limit or MAX_TOKENS)
    before, dev_before = (checkpoint.progress.data, checkpoint.progress.dev_data) if checkpoint else ("", "")
    pairs = prepare_dataset(train, tokenizers, max_tokens, data / TRAIN, journal, before, settings.concatenate)
    dev_pairs = prepare_dataset(dev, tokenizers, dev_tokens, data / DEV, journal, dev_before)
    if previous is None:
        same_ids = tokenizers.source.pieces == tokenizers.target.pieces  # else sides cannot be compared by their ids
        directions = direction_notes(pairs, dev_pairs) if same_ids else []
        tags = [] if config.init_from else tag_notes(train, dev)  # the model to start from may know them
        languages = language_notes(config.languages, dev_pairs, tokenizers)
        for note in (*tags, *languages, *directions, *repetition_notes(pairs, dev_pairs)):
            journal.log(note)
    for change in changes:  # once nothing can refuse the run any more
        journal.log(change)
    config = replace(config, languages=languages_of_run(config, checkpoint, journal))
    replace_file(folder / "config.toml", to_toml(config))


def other_entries(folder: Path) -> list[str]:
    """Return the names of what a folder has beside a run, in order, without hidden files."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return sorted(name for name in names - ENTRIES if not name.startswith("."))
