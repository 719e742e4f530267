"""Repair a model: fine-tune a copy of it on corrected pairs and others, without those that taught an error.

The pairs are those of a memory over the training corpus, which `inspection/influence.py` ranks.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from dragoman.config import RunConfig
from dragoman.data.corpus import read_corpus
from dragoman.data.lines import MAX_WEIGHT
from dragoman.data.spec import CorpusSpec
from dragoman.errors import DragomanError, UsageError
from dragoman.evaluation.metrics import evaluate
from dragoman.memory import ApprovedPair, Memory
from dragoman.storage.writing import replace_file
from dragoman.training.checkpoint import run_of
from dragoman.training.journal import Journal
from dragoman.training.loop import train
from dragoman.training.resume import read_run_config
from dragoman.translation.translator import Translator

COLUMNS = ("number", "source", "target", "origin")
CORRECTED = 0.25  # share of an epoch that corrected pairs have, as far as MAX_WEIGHT lets them
OTHERS = 20_000  # pairs that are sampled
JUDGED = 500  # dev pairs
# Few and gentle steps; the loss of the dev pairs is measured before and after.
SETTINGS: dict[str, Any] = {
    "schedule": "constant", "learning_rate": 1e-3, "warmup": 20, "ema": 0.99, "batch_tokens": 1024,
    "epochs": 1_000_000, "max_steps": None, "patience": 0, "stop_on": "loss", "validate_every": 1_000_000,
}  # fmt: skip

Corrections = Mapping[int, str]
"""The right target of each wrong pair, by its number in the memory; '' for a pair that is dropped."""


@dataclass(frozen=True)
class Repair:
    """What a repair has made, and what it cost."""

    model: Path
    corrected: int
    dropped: int
    bleu_before: float  # of the dev pairs
    bleu: float


def write_suspects(path: Path, pairs: Iterable[tuple[int, ApprovedPair]]) -> None:
    """Write pairs of a memory as a file of tab-separated values, whose targets a person corrects or deletes."""
    rows = ((number, pair.source, pair.target, pair.origin) for number, pair in pairs)
    lines = ("\t".join(" ".join(str(field).split()) for field in row) for row in (COLUMNS, *rows))
    replace_file(path, "".join(f"{line}\n" for line in lines), shared=True)


def read_corrections(path: Path, memory: Memory) -> dict[int, str]:
    """Read what a person has made of a file of `write_suspects`: the pairs whose targets differ from the memory's.

    Raise DragomanError where a line is no such pair of the memory, UsageError where nothing was changed.
    """
    corrections: dict[int, str] = {}
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    for line_number, row in enumerate((line.split("\t") for line in lines), start=1):
        if row[0] == COLUMNS[0] or not "".join(row).strip():
            continue
        number = int(row[0]) if row[0].isascii() and row[0].isdigit() else -1
        pair = memory.pairs[number] if 0 <= number < len(memory.pairs) else None
        if pair is None or len(row) < 2 or row[1].split() != pair.source.split():
            raise DragomanError(f"{path}, line {line_number}: no pair of {memory.folder} has this number and source")
        target = " ".join(row[2].split()) if len(row) > 2 else ""
        if target != " ".join(pair.target.split()):
            corrections[number] = target
    if not corrections:
        raise UsageError(f"{path}: no target was corrected or deleted, so there is nothing to repair")
    return corrections


def repair(
    model_folder: Path,
    memory: Memory,
    corrections: Corrections,
    out: Path,
    minutes: float = 1.0,
    *,
    threads: int | None = None,
    journal: Journal | None = None,
) -> Repair:
    """Fine-tune a copy of a model, which is in its run folder, into the run folder `out`, for so many minutes.

    It sees the corrected pairs, a sample of the others, and no pair that was dropped. Raise UsageError for a model that
    is not in its run, and what `train` raises.
    """
    run = run_of(model_folder)
    if run is None:
        raise UsageError(f"{model_folder}: a repair needs the run folder of the model, with its dev pairs")
    before = read_run_config(run)
    if (out / "config.toml").exists():
        raise UsageError(f"{out}: a run already; a repair needs a new folder")
    right = [
        replace(pair, target=target)
        for number, target in corrections.items()
        if target and (pair := memory.pairs[number])
    ]
    config = replace(
        before,
        train=write_corpora(out / "corpus", right, sample_others(memory, corrections)),
        init_from=str(model_folder),
        out=str(out),
        training=replace(before.training, **SETTINGS, minutes=minutes, threads=threads),
    )
    train(config, journal)
    model = (out / "last").resolve()
    old, new = (dev_bleu(folder, before, threads) for folder in (model_folder, model))
    return Repair(model, len(right), len(corrections) - len(right), old, new)


def sample_others(memory: Memory, corrections: Corrections) -> list[ApprovedPair]:
    """Return a sample of the pairs of a memory that are neither corrected nor dropped."""
    others = [pair for number, pair in enumerate(memory.pairs) if pair and number not in corrections]
    return Random(1).sample(others, min(OTHERS, len(others)))


def write_corpora(folder: Path, corrected: Sequence[ApprovedPair], others: Sequence[ApprovedPair]) -> tuple[str, ...]:
    """Write pairs as corpora, one for each tag, and return the words that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    weight = CORRECTED / (1 - CORRECTED) * len(others) / max(len(corrected), 1)
    words: list[str] = []
    for name, pairs, factor in (("corrected", corrected, min(max(weight, 1.0), MAX_WEIGHT)), ("others", others, 1.0)):
        by_tags: defaultdict[tuple[str, str], list[ApprovedPair]] = defaultdict(list)
        for pair in pairs:
            by_tags[pair.tag, pair.target_tag].append(pair)
        for number, ((tag, target_tag), some) in enumerate(sorted(by_tags.items()), start=1):
            file = folder / f"{name}-{number}.jsonl"
            lines = [json.dumps({"source": pair.source, "target": pair.target}, ensure_ascii=False) for pair in some]
            replace_file(file, "".join(f"{line}\n" for line in lines))
            words += CorpusSpec((str(file),), weight=factor, tag=tag, target_tag=target_tag).words()
    return tuple(words)


def dev_bleu(model: Path, run: RunConfig, threads: int | None) -> float:
    """Return the BLEU of a model on the first JUDGED dev pairs of a run."""
    corpus = read_corpus(run.dev)
    sources, references = (list(side) for side in zip(*corpus.pairs[:JUDGED], strict=True))
    translator = Translator.load(model, threads=threads)
    translations = translator.translate(sources, corpus.tags[:JUDGED], target_tags=corpus.target_tags[:JUDGED])
    return evaluate([each.text for each in translations], references).bleu.value
