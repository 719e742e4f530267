"""Train small models on pairs that are in memory."""

from collections.abc import Sequence
from pathlib import Path

from dragoman.config import RunConfig, TrainingConfig
from dragoman.config.presets import TINY
from dragoman.data.corpus import Pair
from dragoman.training.loop import open_journal, train

FEWEST = 1_000  # pairs that a small model can learn from


def train_small(pairs: Sequence[Pair], dev: Sequence[Pair], run: Path, settings: TrainingConfig) -> Path:
    """Train a `tiny` model on pairs, in a folder that must not exist; return the folder of its best weights."""
    run.mkdir(parents=True)
    for name, some in (("train", pairs), ("dev", dev)):
        lines = ("\t".join(text.replace("\t", " ") for text in pair) + "\n" for pair in some)
        (run / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    config = RunConfig(
        preset="tiny",
        train=(str(run / "train.tsv"),),
        dev=(str(run / "dev.tsv"),),
        out=str(run),
        model=TINY.model,
        training=settings,
    )
    with open_journal(config, quiet=True) as journal:
        train(config, journal)
    return (run / "best").resolve()
