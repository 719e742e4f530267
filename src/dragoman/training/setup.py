"""Open a run: the first process prepares its folder, then every process opens it in the same way."""

from pathlib import Path

from dragoman.config import RunConfig
from dragoman.data.corpus import read_corpus
from dragoman.data.dataset import Pairs
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError
from dragoman.evaluation.metrics import describe_tokenization
from dragoman.interop.ctranslate2.conversion import describe_engines
from dragoman.model import parameter_count
from dragoman.model_folder.manifest import refuse_links_out
from dragoman.storage.records import read_listed
from dragoman.storage.writing import replace_link
from dragoman.text.origin import Origin
from dragoman.text.tags import DefaultTags, LanguageTags
from dragoman.training.card import describe_pairs
from dragoman.training.checkpoint import TrainingProgress, newest_checkpoint, restore_best
from dragoman.training.distributed import ProcessGroup
from dragoman.training.journal import Journal
from dragoman.training.learner import Learner
from dragoman.training.limits import Saved
from dragoman.training.precision import configure_torch, describe_hardware
from dragoman.training.prepare import DATA, DEV, TRAIN, prepare
from dragoman.training.resume import describe_computation, read_run_config, restore_run
from dragoman.training.run import Run
from dragoman.training.settings import start_folder
from dragoman.training.weights import initial_model

INHERITED = (DefaultTags.RECORD, LanguageTags.RECORD, Origin.RECORD)  # of the model that a run starts from


def open_run(config: RunConfig, group: ProcessGroup, journal: Journal) -> Run:
    """Prepare the run folder in the first process; open it in all of them; return the run, resumed where it was.

    All processes need to see the folder. Raise UsageError or DragomanError for settings, texts and folders that cannot
    be used, or are not those of the run.
    """
    folder = Path(config.out)
    for part in (folder, folder / DATA):
        if part.is_dir():
            refuse_links_out(part)
    checkpoint, notes = newest_checkpoint(folder)
    if group.first:
        with group.preparing():
            prepare(config, group, journal, checkpoint)
    else:
        group.wait_for_first()
    config = read_run_config(folder)
    for note in (configure_torch(config.training, group), *notes):
        if note:
            journal.log(note)
    # The first process has just written or checked them.
    pairs, dev = (Pairs.open(folder / DATA / name, checked=group.first) for name in (TRAIN, DEV))
    dev_corpus = read_corpus(config.dev)
    tokenizers = Tokenizers.load(folder / DATA)
    learner = Learner(initial_model(config, tokenizers, resumed=bool(checkpoint)), config.training, group)
    progress = TrainingProgress(data=pairs.fingerprint, dev_data=dev.fingerprint, machine=describe_computation())
    if checkpoint:
        progress = restore_run(checkpoint, learner, config, journal)
    if len(set(group.gather((progress.step, pairs.fingerprint)))) > 1:
        raise DragomanError(f"{folder}: the processes do not see the same files; they need a shared file system")
    start = start_folder(config, checkpoint)
    records = {name: read_listed(start / name) for name in INHERITED} if start else {}
    inherited = {name: record for name, record in records.items() if record is not None}
    run = Run(config, group, pairs, dev, dev_corpus, tokenizers, learner, progress, journal, inherited)
    if checkpoint:
        run.saved = Saved(progress.step, progress.validated, progress.seconds)
        if group.first:
            restore_best(folder, progress)
            replace_link(folder / "last", checkpoint.folder)
    else:
        journal.log(
            f"{describe_pairs(config, pairs)}, {tokenizers}, {parameter_count(learner.model):,} "
            f"parameters, {config.training.precision}, {describe_hardware(group)}"
        )
        journal.log(f"engines for this model: {describe_engines(config.model)}")
        if note := describe_tokenization([reference for _, reference in dev_corpus.pairs]):
            journal.log(f"{' '.join(config.dev)}: {note}")
    return run
