"""The states of a memory on the disk: made of all its pairs, written whole, read without running anything."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dragoman.data.batches import Ids
from dragoman.errors import DragomanError
from dragoman.memory.index import FAR, KEY, Index
from dragoman.memory.phrases import Likeness, Phrases
from dragoman.memory.recall import States
from dragoman.memory.states import Reduction, Vectors
from dragoman.memory.weighting import NEIGHBOURS, Weighting, fit_weighting
from dragoman.model import Model
from dragoman.storage.records import read_json
from dragoman.storage.writing import MANIFEST, fingerprint

HELD_OUT = 5  # one pair in so many fits the weighting
FEWEST_FITTED = 500  # states; fewer say too little
PHRASES = ("numbers", "starts", "pairs")
SPARE = 4  # times the neighbours that the fit looks for: those of held-out pairs do not count


@dataclass(frozen=True)
class Base:
    """The states on the disk, and how they are used."""

    reduction: Reduction
    weighting: Weighting | None = None  # None: not fitted
    states: States | None = None
    phrases: Phrases | None = None
    pairs: int = 0  # the number of pairs that were there
    recall: float = 1.0  # the share of the nearest states that a search finds


def fit_held_out(
    batches: Sequence[Vectors], reduction: Reduction, states: States, sources: Mapping[int, Ids]
) -> Weighting | None:
    """Return the weighting that suits the pairs held out among those of some vectors; None for too few.

    sources: of all pairs by their numbers. The neighbours are states of pairs that are not held out.
    """
    vectors, right, pairs, log_p = (np.concatenate(column) for column in zip(*batches, strict=True))
    held_out = pairs % HELD_OUT == 0
    if held_out.sum() < FEWEST_FITTED:
        return None
    distances, numbers = states.index.search(reduction(vectors[held_out]), SPARE * NEIGHBOURS)
    distances = np.where(states.pairs[numbers] % HELD_OUT == 0, FAR, distances)
    order = np.argsort(distances, 1, kind="stable")[:, :NEIGHBOURS]
    distances = np.take_along_axis(distances, order, 1)
    numbers = np.take_along_axis(numbers, order, 1)
    tokens, neighbours = states.tokens[numbers], states.pairs[numbers]
    asked, rows = np.unique(pairs[held_out], return_inverse=True)
    others = [number for number in sources if number % HELD_OUT]
    phrases = Phrases.from_sources([sources[number] for number in others], others)
    likeness = Likeness.measure([sources[number] for number in asked.tolist()], [phrases], max(sources) + 1)
    shared, known = likeness.shared[rows[:, None], neighbours], likeness.known[rows]
    return fit_weighting(log_p[held_out], right[held_out], tokens, distances, shared, known)


def write_base(folder: Path, base: Base) -> None:
    """Write states into a draft of their folder."""
    arrays: dict[str, Any] = {"mean": base.reduction.mean, "components": base.reduction.components}
    if base.states:
        index = base.states.index
        arrays |= {"keys": index.keys, "centres": index.centres, "starts": index.starts}
        arrays |= {"tokens": base.states.tokens.astype(np.int32), "pairs": base.states.pairs.astype(np.int32)}
    if base.phrases:
        arrays |= {f"phrase_{name}": getattr(base.phrases, name) for name in PHRASES}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    weighting = asdict(base.weighting) if base.weighting else None
    sources = base.phrases.count if base.phrases else 0
    record = {"pairs": base.pairs, "sources": sources, "recall": base.recall, "weighting": weighting}
    (folder / "states.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def read_base(folder: Path, model: Model) -> Base:
    """Read the states in a folder. Raise DragomanError where they are damaged or do not fit the model."""
    try:
        for name, listed in read_json(folder / MANIFEST).items():
            if Path(name).name != name or fingerprint(folder / name) != listed:
                raise ValueError
        record = read_json(folder / "states.json")
        arrays = {file.stem: np.load(file, mmap_mode="r", allow_pickle=False) for file in folder.glob("*.npy")}
        reduction = Reduction(*(np.array(arrays[name], np.float32) for name in ("mean", "components")))
        weighting = record["weighting"] and Weighting(
            **{name: float(value) for name, value in record["weighting"].items()}
        )
        count, size = reduction.components.shape
        if reduction.mean.shape != (size,) or size != model.output.in_features:
            raise ValueError
        states = phrases = None
        if "keys" in arrays:
            keys, centres, starts = (arrays[name] for name in ("keys", "centres", "starts"))
            tokens, pairs = (np.array(arrays[name], np.int64) for name in ("tokens", "pairs"))
            rows = len(keys)
            fits = (
                keys.shape == (rows, count) and keys.dtype == KEY and centres.shape == (len(starts) - 1, count)
                and tokens.shape == pairs.shape == (rows,) and starts[0] == 0 and starts[-1] == rows
                and (np.diff(starts) >= 0).all() and tokens.min() >= 0 and tokens.max() < model.output.out_features
                and pairs.min() >= 0 and pairs.max() < int(record["pairs"])
            )  # fmt: skip
            columns = [np.array(arrays[f"phrase_{name}"]) for name in PHRASES]
            phrases = Phrases(columns[0], columns[1], columns[2], int(record["sources"]))
            if not fits or not phrases.are_whole(int(record["pairs"])):
                raise ValueError
            states = States(Index(keys, np.array(centres, np.float32), np.array(starts, np.int64)), tokens, pairs)
        return Base(reduction, weighting, states, phrases, int(record["pairs"]), float(record["recall"]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError):
        raise DragomanError(
            f"{folder}: damaged; delete this folder, and dragoman remember --add makes it anew from the pairs"
        ) from None
