"""Open a run: settle its settings, learn its tokenizer, tokenise its corpora, build or restore its model."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import torch

from dragoman.config import RunConfig, TrainingConfig, read_toml, to_toml, update
from dragoman.config.presets import PRESETS
from dragoman.data.corpus import read_corpus, stream_rows
from dragoman.data.dataset import Pairs, direction_notes, repetition_notes, tokenise
from dragoman.data.spec import CorpusSpec, check_present, parse_corpora
from dragoman.data.tokenizer import PAD, SAMPLE_LENGTH, TERM_MARKS, Tokenizer
from dragoman.data.tokenizers import JOINT, SIDES, Tokenizers
from dragoman.errors import DragomanError, UsageError, plural
from dragoman.files import fingerprint, read_json, read_listed, refuse_links_out, replace_file, replace_link
from dragoman.interop.ctranslate2.conversion import describe_engines
from dragoman.model import Model, build, outline, parameter_count
from dragoman.model_folder import find_model, read_model, read_parts
from dragoman.text.origin import Origin
from dragoman.text.tags import DefaultTags, LanguageTags
from dragoman.training.batch_size import batch_tokens_that_fit
from dragoman.training.card import describe_pairs
from dragoman.training.checkpoint import Checkpoint, TrainingProgress, newest_checkpoint, restore_best, run_of
from dragoman.training.distributed import ProcessGroup
from dragoman.training.fine_tuning import check_shape, start_config
from dragoman.training.journal import Journal
from dragoman.training.learner import Learner
from dragoman.training.memory import check_size, keep_freed_memory, remember_few_shapes
from dragoman.training.precision import best_precision
from dragoman.training.resume import (
    check_same_settings,
    check_same_tokenizers,
    describe_computation,
    languages_of_run,
    previous_config,
    read_run_config,
    restore_run,
)
from dragoman.training.run import Run
from dragoman.training.terms import FILE, SourceTerms, mine_terms
from dragoman.training.validation import MAX_TOKENS
from dragoman.waiting import compute_with, use_threads

INHERITED = (DefaultTags.RECORD, LanguageTags.RECORD, Origin.RECORD)  # of the model that a run starts from
DATA = "data"  # in a run folder: its corpora, and the tokenizers, of which each checkpoint has a copy
ENTRIES = frozenset(  # what a run folder has
    ("best", "checkpoints", "config.toml", DATA, "last", "metrics.jsonl", "samples", "tensorboard", "train.log")
)


def open_run(config: RunConfig, group: ProcessGroup, journal: Journal) -> Run:
    """Prepare the data; build the model, or load the newest checkpoint of the run; return the run.

    The first process prepares everything in the run folder, and the others read it from there, so all need to see it.
    Raise UsageError or DragomanError for settings, texts and folders that cannot be used, or are not those of the run.
    """
    folder = Path(config.out)
    refuse_links(folder)
    checkpoint, notes = newest_checkpoint(folder)
    if group.first:
        with group.preparing():
            if checkpoint:
                check_same_tokenizers(checkpoint, folder / DATA)
            else:
                refuse_other_settings(folder)
                if (folder / DATA).is_dir():
                    journal.log(f"{folder} has no checkpoint yet: the run starts again from the beginning")
            config, pairs, dev = prepare_data(config, group, journal, checkpoint)
            replace_file(folder / "config.toml", to_toml(config))
    else:
        group.wait_for_first()
        config = update(config, read_toml(folder / "config.toml"), "config.toml")
        pairs, dev = (Pairs.open(folder / DATA / name) for name in ("train.arrow", "dev.arrow"))
    if note := configure_torch(config.training, group):
        journal.log(note)
    for note in notes:
        journal.log(note)
    dev_corpus = read_corpus(config.dev)
    tokenizers = Tokenizers.load(folder / DATA)
    learner = Learner(initial_model(config, tokenizers, resumed=bool(checkpoint)), config.training, group)
    progress = TrainingProgress(data=pairs.fingerprint, dev_data=dev.fingerprint, machine=describe_computation())
    if checkpoint:
        progress = restore_run(checkpoint, learner, config, journal)
    if len(set(group.gather((progress.step, pairs.fingerprint)))) > 1:
        raise DragomanError(f"{folder}: the processes do not see the same files; they need a shared file system")
    terms = SourceTerms.load(folder / DATA, tokenizers, config.training.terms)
    start = start_folder(config, checkpoint)
    kept = {name: read_listed(start / name) for name in INHERITED} if start else {}
    inherited = {name: record for name, record in kept.items() if record is not None}
    run = Run(config, group, pairs, dev, dev_corpus, tokenizers, learner, progress, journal, terms, inherited)
    if checkpoint:
        run.saved = progress.step, progress.validated
        if group.first:
            restore_best(folder, progress)
            replace_link(folder / "last", checkpoint.folder)
    else:
        journal.log(
            f"{describe_pairs(config, pairs)}, {tokenizers}, {parameter_count(learner.model):,} "
            f"parameters, {config.training.precision}, {describe_hardware(group)}"
        )
        journal.log(f"engines for this model: {describe_engines(config.model)}")
    return run


def start_folder(config: RunConfig, checkpoint: Checkpoint | None) -> Path | None:
    """Return the model folder that a run goes on from: a checkpoint, or that of `init_from`; None for a new model."""
    if checkpoint:
        return checkpoint.folder
    return find_model(Path(config.init_from)) if config.init_from else None


def with_default_tags(words: tuple[str, ...], tags: DefaultTags) -> tuple[str, ...]:
    """Return the words that name corpora, with the tags that a model has by default for those without any."""
    specs = (
        replace(spec, tag=spec.tag or tags.source, target_tag=spec.target_tag or tags.target)
        for spec in parse_corpora(words)
    )
    return tuple(word for spec in specs for word in spec.words())


def tag_notes(train: tuple[CorpusSpec, ...], dev: tuple[CorpusSpec, ...]) -> list[str]:
    """Return a warning for the user for each tag of a dev corpus that no training corpus has on that side."""
    learned = {(side, tag) for spec in train for side, tag in zip(("source", "target"), spec.tags, strict=True)}
    return [
        f"no training pair has the tag {tag!r} on its {side}, as those of {spec.name} have: the model learns nothing "
        "about it"
        for spec in dev
        for side, tag in zip(("source", "target"), spec.tags, strict=True)
        if tag and (side, tag) not in learned
    ]


def refuse_links(folder: Path) -> None:
    """Raise DragomanError where a file of a run folder is a link to a file outside of its folder."""
    for part in (folder, folder / DATA):
        if part.is_dir():
            refuse_links_out(part)


def refuse_other_settings(folder: Path) -> None:
    """Raise DragomanError where a new run would overwrite a config.toml that no run has written, as it has no data."""
    if (folder / "config.toml").exists() and not (folder / DATA).is_dir():
        raise DragomanError(f"{folder / 'config.toml'}: training would overwrite it; choose another --out")


def other_entries(folder: Path) -> list[str]:
    """Return the names of what a folder has beside a run, in order, without hidden files."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return sorted(name for name in names - ENTRIES if not name.startswith("."))


def prepare_data(
    config: RunConfig, group: ProcessGroup, journal: Journal, checkpoint: Checkpoint | None
) -> tuple[RunConfig, Pairs, Pairs]:
    """Return the config with all open settings decided, and the tokenised training and dev pairs.

    checkpoint: the newest one, None where there is none yet. What earlier sessions of the run decided and
    tokenised is reused. Raise UsageError or DragomanError where they had settings that must not change, or other pairs.
    """
    folder = Path(config.out)
    previous = previous_config(folder)
    config = replace(config, training=resolve_settings(config.training, previous, group))
    if previous and not config.init_from:  # it may be left out
        config = replace(config, init_from=previous.init_from)
    if config.init_from:
        its_model = start_config(config.init_from, previous)
        config = replace(config, model=check_shape(config.model, its_model, config.init_from))
    changes = check_same_settings(config, previous) if previous else []
    if (start := start_folder(config, checkpoint)) and (default := DefaultTags.load(start)) != DefaultTags():
        config = replace(
            config, train=with_default_tags(config.train, default), dev=with_default_tags(config.dev, default)
        )
    settings, data = config.training, folder / DATA
    train, dev = parse_corpora(config.train), parse_corpora(config.dev)
    check_present(file for spec in (*train, *dev) for file in spec.files)
    if any(spec.weight != 1 or spec.share for spec in dev):
        raise UsageError("weight= and share= are for --train; every dev pair is translated once")
    tokenizers = tokenizers_of_run(config, train, dev, data, journal, resumed=previous is not None)
    if settings.bpe_dropout:
        tokenizers.bpe()  # raises where that cannot be done
    if not settings.shard:
        size = parameter_count(outline(config.model, len(tokenizers.source), tokenizers.target_vocabulary))
        check_size(size, group.device)
    if settings.batch_tokens == "auto":
        configure_torch(settings, group)  # for the trial, which is to be like the training
        settings = replace(settings, batch_tokens=batch_tokens_that_fit(config, tokenizers, group, journal))
        config = replace(config, training=settings)
    limit = config.model.max_positions
    max_tokens = min(settings.max_tokens, int(settings.batch_tokens), limit or settings.max_tokens)
    before, dev_before = (checkpoint.progress.data, checkpoint.progress.dev_data) if checkpoint else ("", "")
    pairs = cached_dataset(train, tokenizers, max_tokens, data / "train.arrow", journal, before, settings.concatenate)
    longest = min(MAX_TOKENS, limit or MAX_TOKENS)
    dev_pairs = cached_dataset(dev, tokenizers, longest, data / "dev.arrow", journal, dev_before)
    if settings.terms:
        journal.log(f"{plural(mine_terms(pairs, tokenizers, data), 'term')} for the sources, listed in {data / FILE}")
    if previous is None:
        same_ids = tokenizers.source.pieces == tokenizers.target.pieces  # else sides cannot be compared by their ids
        directions = direction_notes(pairs, dev_pairs) if same_ids else []
        tags = [] if config.init_from else tag_notes(train, dev)  # the model to start from may know them
        for note in (*tags, *directions, *repetition_notes(pairs, dev_pairs)):
            journal.log(note)
    for change in changes:  # once nothing can refuse the run any more
        journal.log(change)
    return replace(config, languages=languages_of_run(config, checkpoint, journal)), pairs, dev_pairs


def resolve_settings(settings: TrainingConfig, previous: RunConfig | None, group: ProcessGroup) -> TrainingConfig:
    """Return the settings with those decided that are open: precision, micro-batches and batch_tokens.

    previous: the config of the earlier session, whose values they get. If it is None, they suit this machine, but
    `batch_tokens` stays 'auto', because trying sizes needs the vocabulary. Open threads are 1 if deterministic.
    """
    before = previous.training if previous else None
    precision = settings.precision
    if precision == "auto":
        precision = before.precision if before else best_precision(group.device)
    batch_tokens = settings.batch_tokens
    if batch_tokens == "auto" and before:
        batch_tokens = before.batch_tokens
    default_parts = before.micro_batches if before else default_micro_batches(settings, group)
    return replace(
        settings,
        precision=precision,
        batch_tokens=batch_tokens,
        micro_batches=settings.micro_batches or default_parts,
        threads=settings.threads or (1 if settings.deterministic else None),
    )


def default_micro_batches(settings: TrainingConfig, group: ProcessGroup) -> int:
    """Return how many micro-batches a batch is split into by default: one for each process.

    If deterministic, at least four, so that 1, 2 or 4 processes give the same bits.
    """
    return max(4, group.size) if settings.deterministic else group.size


def configure_torch(settings: TrainingConfig, group: ProcessGroup) -> str:
    """Set PyTorch's memory for this process, and what `settings_of_torch_kept` restores.

    Return what `use_threads` returns: a sentence for the user, or ''.
    """
    keep_freed_memory()
    remember_few_shapes(os.environ)
    note = use_threads(settings.threads)
    if group.device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # several times as fast; sums stay in float32
        if settings.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)  # with warnings alone, fused attention would not be deterministic
    return note


@contextlib.contextmanager
def settings_of_torch_kept() -> Iterator[None]:
    """Restore, after the block, PyTorch's number of threads and what is for training on a GPU: TF32 and determinism."""
    threads = torch.get_num_threads()
    precision, deterministic = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        yield
    finally:
        if torch.get_num_threads() != threads:
            compute_with(threads)
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(deterministic, warn_only=warns)


def tokenizers_of_run(
    config: RunConfig,
    train: tuple[CorpusSpec, ...],
    dev: tuple[CorpusSpec, ...],
    folder: Path,
    journal: Journal,
    resumed: bool,
) -> Tokenizers:
    """Return the tokenizers in `folder` if resumed; else those of `init_from`, or one learned from the training texts.

    New tokenizers, with the tags of all corpora and, for training.terms, the marks for terms, are written to `folder`;
    if they were learned from the beginnings of some texts, that is logged. dev: only its tags are used. Raise
    UsageError where the vocabulary is too small, or smaller than that of `init_from`.
    """
    if resumed and any((folder / name).exists() for name in (JOINT, *SIDES)):
        return Tokenizers.load(folder)
    cut = 0

    def training_texts() -> Iterator[str]:
        nonlocal cut
        for row in chain.from_iterable(map(stream_rows, train)):
            cut += max(len(row.source), len(row.target)) > SAMPLE_LENGTH
            yield from (row.source, row.target)

    texts = training_texts()
    every = (tag for spec in (*train, *dev) for tag in (spec.tag, spec.target_tag) if tag)
    tags, terms = tuple(dict.fromkeys(every)), bool(config.training.terms)
    if config.init_from:
        _, tokenizers = read_parts(find_model(Path(config.init_from)))
        reader = tokenizers.source
        with_tags = len(reader) + sum(tag not in reader.tags for tag in tags)
        with_tags += len(TERM_MARKS) if terms and not reader.term_marks else 0
        if config.vocabulary and config.vocabulary < len(reader):
            raise UsageError(
                f"vocabulary {config.vocabulary:,} is not possible: {config.init_from} has {len(reader):,} "
                "subwords, which stay; leave it out, or choose more to learn new ones"
            )
        size = max(config.vocabulary or 0, with_tags)
        if size > len(reader):
            if not tokenizers.is_one or not isinstance(reader, Tokenizer):
                raise UsageError(
                    f"the tokenizers of {config.init_from} cannot learn new subwords, tags or marks: leave out "
                    "--vocabulary, training.terms and new tags"
                )
            tokenizers = Tokenizers.of(reader.extend(texts, size, tags, terms))
    else:
        journal.log(f"learning subwords from {' '.join(spec.name for spec in train)}")
        new = Tokenizer.train(texts, config.vocabulary, PRESETS[config.preset].vocabulary, tags, terms)
        tokenizers = Tokenizers.of(new)
    if cut:
        journal.log(
            f"subwords are learned from the first {SAMPLE_LENGTH:,} characters of a text; longer: {plural(cut, 'pair')}"
        )
    for name, content in tokenizers.as_files().items():
        replace_file(folder / name, content)
    return tokenizers


def cached_dataset(
    specs: tuple[CorpusSpec, ...],
    tokenizers: Tokenizers,
    max_tokens: int | None,
    file: Path,
    journal: Journal,
    expected: str,
    concatenate: float = 0.0,
) -> Pairs:
    """Return the pairs of the corpora, tokenised into `file`; log what was left out and why.

    max_tokens, expected, concatenate: as for `tokenise`, which also says what is raised. `file` is reused if it was
    made from the same texts with the same settings.
    """
    made_of = {
        "files": [[fingerprint(Path(name))["sha256"] for name in spec.files] for spec in specs],
        "settings": [
            [*spec.files, spec.weight, spec.share, spec.tag, spec.columns, *filter(None, [spec.target_tag])]
            for spec in specs
        ],
        "tokenizer": hashlib.sha256("".join(tokenizers.as_files().values()).encode()).hexdigest(),
        "longest": max_tokens,
        "joined": concatenate,
    }
    record = file.with_suffix(".json")
    key = json.loads(json.dumps(made_of))
    # What is missing or damaged is made anew.
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError, DragomanError):
        known = read_json(record)
        if {name: known.get(name) for name in key} == key:
            pairs = Pairs.open(file)
            if expected in ("", pairs.fingerprint):
                for note in known["notes"]:
                    journal.log(note)
                return pairs
    record.unlink(missing_ok=True)
    if not expected:  # a resumed run may be refused below, and then logs nothing
        journal.log(f"tokenising {' '.join(spec.name for spec in specs)}")
    pairs, notes = tokenise(specs, tokenizers, max_tokens, file, concatenate, expected)
    for note in notes:
        journal.log(note)
    replace_file(record, json.dumps({**key, "notes": notes}, indent=1, ensure_ascii=False) + "\n")
    return pairs


def initial_model(config: RunConfig, tokenizers: Tokenizers, resumed: bool) -> Model:
    """Return the model before the first step: random, or that of `init_from`, with random vectors for new subwords.

    With `resumed` it is random, as the checkpoint's weights replace it. Seeds PyTorch with the run's seed. Raise
    DragomanError where the model to start from is damaged or has other shapes.
    """
    torch.manual_seed(config.training.seed)
    model = build(config.model, len(tokenizers.source), tokenizers.target_vocabulary, PAD)
    if config.init_from and not resumed:
        copy_weights(read_model(Path(config.init_from))[0], model)
    return model


def untrained_model(folder: Path, tokenizers: Tokenizers) -> Model | None:
    """Return the model of a run as it was before its first step, built again from the seed of the run.

    folder: a run folder, or one of its checkpoints. None for other model folders, and for a run that started from
    another model. PyTorch's random numbers stay as they are. Raise DragomanError where the run's settings are damaged.
    """
    run = run_of(find_model(folder))
    if run is None or not (run / "config.toml").is_file():
        return None
    config = read_run_config(run)
    if config.init_from:
        return None
    with torch.random.fork_rng(devices=[]):
        return initial_model(config, tokenizers, resumed=False)


@torch.no_grad()
def copy_weights(old: Model, new: Model) -> None:
    """Copy all weights of `old` to `new`, in place; `new` may have more subwords, whose vectors stay.

    Raise DragomanError where shapes do not fit.
    """
    values = dict(old.named_parameters())
    for name, parameter in new.named_parameters():
        value = values[name]
        if parameter.shape[1:] != value.shape[1:] or len(parameter) < len(value):
            raise DragomanError(
                f"'{name}' is {tuple(value.shape)} in the model to start from, but {tuple(parameter.shape)} here"
            )
        parameter[: len(value)].copy_(value)


def describe_hardware(group: ProcessGroup) -> str:
    """Return '2 threads', the name of the GPU, or '4 processes, each 2 threads'."""
    hardware = plural(torch.get_num_threads(), "thread")
    if group.device.type == "cuda":
        hardware = torch.cuda.get_device_name(group.device)
    return hardware if group.size == 1 else f"{group.size} processes, each {hardware}"
