"""Save and load checkpoints: a model folder plus what training needs to resume exactly where it was.

A run folder has `checkpoints/step-00001000/`, and the links `best` and `last` into it. A checkpoint appears whole or
not at all; a link is replaced in one rename, so at every instant both lead to a complete checkpoint.
"""

import contextlib
import dataclasses
import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from dragoman.config.fields import CountOrZero, NotNegative, check_fields
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError, UsageError
from dragoman.model import Model
from dragoman.model_folder import load_model, verify_files, write_model
from dragoman.model_folder.manifest import FILES, TRAINING_STATE, find_damage, read_manifest
from dragoman.model_folder.weights import read_tensors
from dragoman.storage import formats
from dragoman.storage.locks import lock_file
from dragoman.storage.records import read_json
from dragoman.storage.writing import delete_folder, draft_of, name_errors, new_folder, replace_link

NAME = re.compile(r"step-\d{8,10}(-again)*")
STEP = len("step-00000000")  # as a folder is called; one that is saved again has more after it
PROGRESS = "state.json"
MAX_PROGRESS_SIZE = 64 << 20  # bytes; it has the sample translations
UNKNOWN_LOSS = 1e9  # nats per token; JSON has no infinity


@dataclass
class TrainingProgress:
    """Record how far a run has come. With weights and Adam's moments, it is all that the rest of the run depends on."""

    step: CountOrZero = 0  # updates of the weights
    epoch: CountOrZero = 0
    batch: CountOrZero = 0  # batches done in this epoch
    seconds: NotNegative = 0.0  # of training, validation and saving, by the clock of the first process
    target_tokens: int = 0
    skipped: CountOrZero = 0  # batches in a row that changed nothing: the loss was not finite, or memory ran out
    validated: int = -1  # the step of the last validation; -1: none, or 0 in runs of version 0.1
    validated_seconds: NotNegative = 0.0  # when the last validation ended, as `seconds`
    validation_seconds: NotNegative = 0.0  # how long it took
    best_score: float = -UNKNOWN_LOSS  # of the metric `stop_on`; higher is better
    best_loss: float = UNKNOWN_LOSS  # the dev loss of that validation
    best_step: CountOrZero = 0
    worse: CountOrZero = 0  # validations in a row that were no better
    passing: bool = False  # the next checkpoint replaces this one, which is there in case the run is killed
    finished: str = ""  # why, in words; empty while there is more to do
    data: str = ""  # fingerprint of the training pairs
    dev_data: str = ""  # and of the dev pairs
    scores: list[str] = field(default_factory=list)  # of the last validation, for the card
    shown: list[str] = field(default_factory=list)  # the sample translations of the last validation
    machine: dict[str, Any] = field(default_factory=dict)  # what decides the last bits: threads, versions

    def __post_init__(self) -> None:
        check_fields(self)
        # Up to version 0.2 a validation whose loss is no number could be the best.
        if not (math.isfinite(self.best_loss) and math.isfinite(self.best_score)):
            self.best_score, self.best_loss = -UNKNOWN_LOSS, UNKNOWN_LOSS

    @property
    def is_validated(self) -> bool:
        """Return whether a validation has found a finite loss, so that there is a best checkpoint."""
        return self.best_loss < UNKNOWN_LOSS


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make a folder and lock it for the block. Raise DragomanError where another process has locked it.

    Where the block raises DragomanError before anything is trained, what it has left in the folder is deleted, and so
    is the folder if it was made here.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    before = {*folder.iterdir()}
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_file(folder / ".lock", wait=False))
        except BlockingIOError:
            raise DragomanError(f"{folder}: another process is using this folder; choose another --out") from None
        try:
            yield
        except DragomanError:
            if not any((folder / name).exists() for name in ("checkpoints", "metrics.jsonl")):
                for path in {*folder.iterdir()} - before:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                with contextlib.suppress(OSError):  # somebody else has put something there
                    for path in made:
                        path.rmdir()
            raise


def save_checkpoint(
    run: Path,
    model: Model,
    tokenizers: Tokenizers,
    state: dict[str, Tensor],
    progress: TrainingProgress,
    card: str,
    keep: int,
    records: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a checkpoint into the run folder, link `last` and, if it is the best, `best` to it; delete old ones.

    state: what `Learner.state` returned; card: the model card; keep: how many of the newest checkpoints stay, besides
    the best and this one, of those that are not passing; records: further files of the model folder, by name.
    """
    folder = run / "checkpoints" / f"step-{progress.step:08d}"
    while folder.exists():  # a step that is saved again gets a folder of its own: what is there stays until then
        folder = folder.with_name(folder.name + "-again")
    folder.parent.mkdir(parents=True, exist_ok=True)
    for draft in folder.parent.glob(".step-*.draft"):  # a kill has left it there; it takes room that may be needed now
        delete_folder(draft)
    with new_folder(folder) as draft:
        write_model(draft, model, tokenizers, card)
        for name, record in records.items():
            (draft / name).write_text(record, encoding="utf-8")
        save_file(state, draft / TRAINING_STATE)
        fields = {**formats.stamp(formats.CHECKPOINT), **dataclasses.asdict(progress)}
        text = json.dumps(fields, indent=1, ensure_ascii=False, allow_nan=False)
        (draft / PROGRESS).write_text(text + "\n", encoding="utf-8")
    # `best` first: a run resumed from `last` relies on `best` being what its state says.
    # Before the first validation, the newest is the best.
    if not progress.is_validated or progress.best_step == progress.step:
        replace_link(run / "best", folder)
    replace_link(run / "last", folder)
    # The newest of each step. What is newer than this one is damaged, or the run would have been resumed from it.
    newest = {path.name[:STEP]: path for path in reversed(lasting_checkpoints(run)) if path.name <= folder.name}
    kept = {(run / "best").resolve(), folder.resolve(), *(path.resolve() for path in list(newest.values())[-keep:])}
    for old in checkpoints(run):
        if old.resolve() not in kept and not old.is_symlink():
            with contextlib.suppress(OSError):
                old.rename(draft_of(old))  # half deleted, it must not look like a checkpoint
    for draft in folder.parent.glob(".step-*.draft"):
        delete_folder(draft)  # what somebody reads now goes with the next save


def checkpoints(run: Path) -> list[Path]:
    """Return the checkpoint folders of a run, the newest first; folders of other names are the user's."""
    folders = (run / "checkpoints").glob("step-[0-9]*")
    return sorted((path for path in folders if NAME.fullmatch(path.name)), reverse=True)


def lasting_checkpoints(run: Path) -> list[Path]:
    """Return the checkpoint folders of a run, the newest first, without those that the next one replaces."""
    return [folder for folder in checkpoints(run) if not is_passing(folder)]


def is_passing(checkpoint: Path) -> bool:
    """Return whether the next checkpoint replaces this one; False for a damaged one."""
    try:
        return read_progress(checkpoint).passing
    except (DragomanError, OSError):
        return False


def step_of(checkpoint: Path) -> int:
    """Return the step in the name of a checkpoint's folder."""
    return int(checkpoint.name.split("-")[1])


def by_step(folders: Sequence[Path]) -> dict[int, Path]:
    """Return checkpoint folders, the newest first, by their steps in order; of a step saved twice, the newer one."""
    return {step_of(folder): folder for folder in reversed(folders)}


def run_of(checkpoint: Path) -> Path | None:
    """Return the run folder that a checkpoint folder is in; None for a model folder elsewhere."""
    parent = checkpoint.resolve().parent
    return parent.parent if parent.name == "checkpoints" else None


def restore_best(run: Path, progress: TrainingProgress) -> None:
    """Link `best` to the best checkpoint that `progress` knows; a kill while saving may have left it elsewhere.

    Before the first validation that is the checkpoint of its step. The link stays as it is where the checkpoint is gone
    or damaged.
    """
    for folder in checkpoints(run):
        if folder.name.startswith(f"step-{progress.best_step if progress.is_validated else progress.step:08d}"):
            with contextlib.suppress(DragomanError):
                verify_files(folder)
                replace_link(run / "best", folder)
                return


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint folder."""

    folder: Path
    model: Model
    tokenizers: Tokenizers
    state: dict[str, Tensor]
    progress: TrainingProgress


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint folder. Raise DragomanError naming the file that is missing, damaged or of another kind.

    Raise OSError where the system cannot read a file: what it holds may be sound.
    """
    if damage := next(find_damage(folder, read_manifest(folder, [*FILES, TRAINING_STATE, PROGRESS])), None):
        raise DragomanError(str(damage))
    model, tokenizers = load_model(folder)
    progress = read_progress(folder)
    return Checkpoint(folder, model, tokenizers, read_tensors(folder / TRAINING_STATE), progress)


def read_progress(folder: Path) -> TrainingProgress:
    """Return how far the run was at a checkpoint. Raise DragomanError where the file is damaged."""
    file = folder / PROGRESS
    try:
        with name_errors(file):
            fields = read_json(file, MAX_PROGRESS_SIZE)
        return TrainingProgress(**formats.unstamp(fields, formats.CHECKPOINT, str(file)))
    except (ValueError, TypeError, UsageError) as error:
        raise DragomanError(f"{file}: damaged: this checkpoint cannot be resumed: {error}") from None


def newest_checkpoint(run: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest undamaged checkpoint of a run, if any, and a sentence for each newer one that is damaged.

    Raise DragomanError where there are checkpoints, all of them damaged, and NewerFormatError where the newest of those
    that are not damaged is of a newer format: the run would lose what was trained since the one before it.
    """
    notes: list[str] = []
    folders = checkpoints(run)
    for folder in folders:
        try:
            return load_checkpoint(folder), notes
        except formats.NewerFormatError:
            raise
        except DragomanError as error:
            notes.append(f"{error}; going back to the checkpoint before it")
    if folders:
        raise DragomanError(f"{run}: none of its {len(folders)} checkpoints is intact: {notes[0].rsplit(';', 1)[0]}")
    return None, notes
