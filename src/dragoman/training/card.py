"""Write model cards: what a model is, what it was trained on, and how good it is, in Markdown."""

import datetime
import re
from collections.abc import Sequence
from pathlib import Path

from dragoman.alignment.heads import AlignmentHead
from dragoman.config import RunConfig
from dragoman.console import format_duration
from dragoman.data.dataset import Pairs
from dragoman.data.spec import without_folders
from dragoman.errors import plural
from dragoman.storage.hub import is_on_hub
from dragoman.storage.records import MAX_RECORD_SIZE
from dragoman.storage.writing import CARD
from dragoman.training.checkpoint import TrainingProgress

FOLDERS = re.compile(r"(?<!\S)(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\]+[/\\])+(?=[^\s/\\])")  # of an absolute path


def model_card(name: str, *blocks: str) -> str:
    """Return the card of the model `name` in Markdown: a heading, then the blocks of text that are not empty."""
    return "\n\n".join([f"# {name}", *filter(None, blocks)]) + "\n"


def card_of_run(config: RunConfig, pairs: Pairs, progress: TrainingProgress, alignment: AlignmentHead | None) -> str:
    """Return the card of a checkpoint of a training run in Markdown; `alignment`: its measured head, None for none."""
    done = f"{plural(progress.step, 'step')}, {progress.target_tokens:,} target tokens"
    training = (
        f"Trained on {without_folders(config.train)}, {describe_pairs(config, pairs)}; {done}, "
        f"{format_duration(progress.seconds)}. Written on {today()}."
    )
    start = f"Started from the weights of {name_of(config.init_from)}." if config.init_from else ""
    scores = f"On {without_folders(config.dev)}, greedy search:" if progress.scores else ""
    rows = "\n".join(f"- {row}" for row in progress.scores)
    words = f"Words are aligned by attention: {alignment}." if alignment else ""
    return model_card(Path(config.out).name or "model", training, start, scores, rows, words)


def card_of_average(name: str, folders: Sequence[Path]) -> str:
    """Return the card of a mean of models: which `folders` they are, and the card of the last of them."""
    last = read_card(folders[-1]).splitlines()
    return model_card(
        name,
        f"The mean of the weights of {plural(len(folders), 'checkpoint')}. It has not been scored. "
        f"Written on {today()}.",
        "\n".join(f"- {name_of(folder)}" for folder in folders),
        f"The card of {folders[-1].name}:",
        "\n".join(f"> {line}".rstrip() for line in last),
    )


def card_of_student(weights: int, inherited: int) -> str:
    """Return the card of a student before its training: how many of its weights are the teacher's."""
    return model_card("start", f"Of {weights:,} weights, {inherited:,} come from the teacher; the others are random.")


def name_of(model: str | Path) -> str:
    """Return the name of a model folder, after that of its run where it is a part of one, but not where these lie."""
    if is_on_hub(model):
        return str(model)
    path = Path(model).resolve()
    parts = 3 if path.parent.name == "checkpoints" else 2 if path.name in ("best", "last") else 1
    return str(Path(*path.parts[-parts:]))


def card_for_others(folder: Path) -> str:
    """Return the card in a model folder, with the names of files instead of their absolute paths.

    Cards of earlier versions have such paths, which say how disks and users are called.
    """
    return FOLDERS.sub("", read_card(folder))


def read_card(folder: Path) -> str:
    """Return the card in a model folder, in Markdown; '' where it was deleted.

    No manifest vouches for it: a card longer than a record may be is cut off, with a sentence that says so.
    """
    file = folder / CARD
    if not file.is_file():
        return ""
    with file.open("rb") as opened:
        text = opened.read(MAX_RECORD_SIZE).decode("utf-8", errors="replace")
        return text + (f"\n\n({file} goes on.)\n" if opened.read(1) else "")


def describe_pairs(config: RunConfig, pairs: Pairs) -> str:
    """Return '1,234 pairs', with ', concatenated ones included' where the settings concatenate."""
    return f"{plural(len(pairs), 'pair')}" + ", concatenated ones included" * bool(config.training.concatenate)


def today() -> str:
    """Return the date in UTC as 2026-01-31."""
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()
