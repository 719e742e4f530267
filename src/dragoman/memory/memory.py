"""A memory: approved pairs, and the states of a model over them.

A folder has `memory.json`, which names the model; `pairs.jsonl`, which grows (`pairs.py`); and `states-N`, which was
made of the pairs up to some place in it. The states of later pairs are computed by each process that reads them.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from dragoman.data.batches import Ids
from dragoman.data.tokenizer import PAD
from dragoman.data.tokenizers import JOINT, SIDES, Tokenizers
from dragoman.decoding.forced import max_positions
from dragoman.errors import DragomanError
from dragoman.memory.base import Base, fit_held_out, read_base, write_base
from dragoman.memory.index import KEY
from dragoman.memory.matches import Match, Matches
from dragoman.memory.pairs import ApprovedPair, PairLog
from dragoman.memory.phrases import Phrases
from dragoman.memory.provenance import Shares, token_origins
from dragoman.memory.recall import Recollection, SourceRecall, States
from dragoman.memory.states import Ints, Reduction, Vectors, read_pairs
from dragoman.memory.weighting import Weighting
from dragoman.model import Model
from dragoman.model_folder.manifest import read_checksums
from dragoman.model_folder.weights import WEIGHTS
from dragoman.storage import formats
from dragoman.storage.locks import lock_file
from dragoman.storage.records import read_json
from dragoman.storage.writing import delete_folder, new_folder, replace_file

RECORD, PAIRS, LOCK = "memory.json", "pairs.jsonl", ".lock"
KEY_SIZE = 64  # numbers of a key, of many states
REDUCED_FROM = 4_000  # states; for fewer, a key is the whole vector
BLOCK = 2_048  # pairs whose vectors are in memory
TAIL = 500  # pairs without states on the disk, from which on it pays to `tidy`

Progress = Callable[[int, int], None]
"""Called with the number of pairs that were read, and of all."""


def identity(model_folder: Path) -> str:
    """Return what tells a model from others: a digest of its weights and its tokenizers."""
    checksums = read_checksums(model_folder)
    return sha256(
        "".join(checksums[name][1] for name in (WEIGHTS, JOINT, *SIDES) if name in checksums).encode()
    ).hexdigest()


def create_memory(folder: Path, model_folder: Path) -> None:
    """Make an empty memory for a model. Raise DragomanError where a folder of that name holds something else."""
    if (folder / RECORD).exists():
        raise DragomanError(f"{folder}: a memory already; --add adds pairs to it")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DragomanError(f"{folder}: exists already, and is no memory")
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / PAIRS, "")
    record = {**formats.stamp(formats.MEMORY), "model": identity(model_folder)}
    replace_file(folder / RECORD, json.dumps(record, indent=1) + "\n")


def is_memory(folder: Path) -> bool:
    """Return whether a folder holds a memory, of whatever model."""
    return (folder / RECORD).is_file() and (folder / PAIRS).is_file()


def check_record(folder: Path, model_folder: Path) -> None:
    """Raise DragomanError where a folder is no memory, or that of another model."""
    if not is_memory(folder):
        raise DragomanError(f"{folder}: no memory; dragoman remember makes one")
    try:
        record = formats.unstamp(read_json(folder / RECORD), formats.MEMORY, str(folder / RECORD))
        model = record["model"]
    except (OSError, ValueError, LookupError):
        raise DragomanError(f"{folder / RECORD}: damaged") from None
    if model != identity(model_folder):
        raise DragomanError(
            f"{folder}: the memory of another model than {model_folder}; its pairs can be used again: "
            f"dragoman remember -m {model_folder} {folder} --out NEW"
        )


class Sides(NamedTuple):
    """A pair in ids without BOS and EOS, tags in front."""

    number: int
    source: Ids
    target: Ids


class Memory:
    """Approved pairs that a model remembers: what is added counts from the next search on, in all processes.

    Several threads may use one at the same time.
    """

    def __init__(self, folder: Path, model_folder: Path, model: Model, tokenizers: Tokenizers):
        """Open the memory in `folder` for the model in `model_folder`, which was read from there.

        Raise DragomanError where it is none, is damaged, or is that of another model.
        """
        self.folder, self.model, self.tokenizers = folder, model, tokenizers
        check_record(folder, model_folder)
        self.log = PairLog(folder / PAIRS)
        self.matches = Matches(self.log.pairs)
        self._lock = threading.RLock()
        self._base, self._tail, self._tail_sources = self._read_base(), list[Vectors](), dict[int, Ids]()
        self._read = self._base.pairs  # pairs whose states are in the base or the tail
        self._recollection: Recollection | None = None
        self.refresh()

    @property
    def pairs(self) -> Sequence[ApprovedPair | None]:
        """The pairs by number; None for those that were forgotten."""
        return self.log.pairs

    @property
    def pair_count(self) -> int:
        """How many pairs it has, without those that were forgotten."""
        return sum(pair is not None for pair in self.log.pairs)

    @property
    def weighting(self) -> Weighting | None:
        """How much the memory counts, as it was fitted; None where it has too few pairs for that."""
        return self._base.weighting

    @property
    def state_count(self) -> int:
        """How many states it has, of which those on the disk are searched in cells."""
        return sum(len(part.tokens) for part in self.recollection().parts)

    @property
    def index_recall(self) -> float:
        """The share of the nearest states that a search finds."""
        return self._base.recall

    # Reading.

    def refresh(self) -> None:
        """Read what was written since: by this process or others."""
        with self._lock:
            if self.log.refresh():
                self.matches.refresh()
                self._recollection = None

    def recall(self, source: Tensor) -> SourceRecall:
        """Return what the memory knows now of source ids (B, S); see `decoding.mixture`."""
        lengths = (source != PAD).sum(1) - 1  # without EOS
        return self.recollection().recall(
            [ids[:length] for ids, length in zip(source.tolist(), lengths.tolist(), strict=True)]
        )

    def recollection(self) -> Recollection:
        """Return what the memory knows now."""
        self.refresh()
        with self._lock:
            if self._recollection is None:
                self._recollection = self._recollect()
            return self._recollection

    def exact(self, text: str, tag: str = "", target_tag: str = "") -> ApprovedPair | None:
        """Return the pair whose source is a text, the last one of several; None for none."""
        self.refresh()
        match = self.matches.exact(text, tag, target_tag)
        return match.pair if match else None

    def swapped(self, text: str, tag: str = "", target_tag: str = "") -> str | None:
        """Return what was approved for a text with other numbers and placeholders; see `Matches.swapped`."""
        with self._lock:
            self.refresh()
            return self.matches.swapped(text, tag, target_tag)

    def match(self, text: str, tag: str = "", target_tag: str = "") -> Match | None:
        """Return the pair whose source is a text, else the one that is most like it, if one is alike enough."""
        self.refresh()
        return self.matches.nearest(text, tag, target_tag)

    def origins(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[Shares]]:
        """Return for each token of each target, EOS last, the pairs that speak for it.

        sources, targets: ids without BOS and EOS, tags in front.
        """
        recall = self.recollection().recall(sources)
        origins: list[list[Shares]] = [[] for _ in sources]
        for read in read_pairs(self.model, sources, targets):
            for number, shares in zip(read.pairs.tolist(), token_origins(recall, read), strict=True):
                origins[number].append(shares)
        return origins

    def _recollect(self) -> Recollection:
        sides = self._sides(range(self._read, len(self.log.pairs)))
        self._tail += self._vectors(sides)
        self._tail_sources |= {each.number: each.source for each in sides}
        self._read = len(self.log.pairs)
        base, parts, phrases = self._base, list[States](), list[Phrases]()
        if base.states and base.phrases:
            parts.append(base.states)
            phrases.append(base.phrases)
        weighting = base.weighting
        if self._tail:
            vectors, tokens, pairs = (np.concatenate(column) for column in list(zip(*self._tail, strict=True))[:3])
            weighting = weighting or Weighting.guess(vectors)
            parts.append(States.from_keys(base.reduction(vectors), tokens, pairs))
            phrases.append(Phrases.from_sources([*self._tail_sources.values()], [*self._tail_sources]))
        forgotten = np.array([pair is None for pair in self.log.pairs], bool)
        return Recollection(base.reduction, weighting or Weighting(), parts, phrases, forgotten)

    def _sides(self, numbers: Sequence[int]) -> list[Sides]:
        """Return the ids of the pairs of these numbers, but for those that were forgotten or are too long."""
        pairs = [(number, pair) for number in numbers if (pair := self.log.pairs[number])]
        sources = [self.tokenizers.source.encode_sources([pair.source])[0] for _, pair in pairs]
        tags = [
            (self.tokenizers.source.tag_ids(pair.tag), self.tokenizers.target.tag_ids(pair.target_tag))
            for _, pair in pairs
        ]
        targets = self.tokenizers.target.encode_all([pair.target for _, pair in pairs])
        sides = [
            Sides(number, tag + source, target_tag + target)
            for (number, _), (tag, target_tag), source, target in zip(pairs, tags, sources, targets, strict=True)
        ]
        most = max_positions(self.model)
        return [each for each in sides if max(len(each.source), len(each.target)) < most]

    def _vectors(self, sides: Sequence[Sides]) -> Iterator[Vectors]:
        """Yield the vectors of pairs."""
        if sides:
            numbers, sources, targets = zip(*sides, strict=True)
            for batch in read_pairs(self.model, sources, targets):
                yield batch._replace(pairs=np.array(numbers)[batch.pairs])

    # Writing.

    def add(self, pairs: Iterable[ApprovedPair]) -> range:
        """Remember pairs, and return their numbers. They are on the disk when this returns.

        Raise DragomanError where a pair has a tag that the model does not know or lacks a side, and OSError where they
        could not be written: then none was.
        """
        added = list(pairs)
        for pair in added:
            self.tokenizers.source.tag_ids(pair.tag), self.tokenizers.target.tag_ids(pair.target_tag)
            if not (pair.source.strip() and pair.target.strip()):
                raise DragomanError("an approved pair has a source and a target")
        with self._lock:
            start = self.log.append(added)
            self.refresh()
            first = self.log.number_at(start)  # another process may have added some since
            return range(first, first + len(added))

    def forget(self, numbers: Iterable[int]) -> int:
        """Forget the pairs of these numbers; return how many there were of them. Their text is overwritten."""
        with self._lock:
            self.refresh()
            known = [number for number in numbers if 0 <= number < len(self.pairs) and self.pairs[number]]
            if known:
                self.log.forget(known)
                self._recollection = None
            return len(known)

    # States on the disk.

    def _states_folders(self) -> list[Path]:
        return sorted(self.folder.glob("states-*"))

    def _read_base(self) -> Base:
        while folders := self._states_folders():
            try:
                return read_base(folders[-1], self.model)
            except DragomanError:
                if folders[-1].exists():  # else another process has written new ones
                    raise
        return Base(Reduction.whole(self.model.output.in_features))

    def tidy(self, progress: Progress = lambda done, total: None, least: int = 1) -> bool:
        """Write the states of all pairs to the disk, if `least` pairs or more have none there; return whether it did.

        Those of pairs that were forgotten are left out. That gives searches one index, and the weighting more pairs to
        be fitted to. Searches go on meanwhile.
        """
        with lock_file(self.folder / LOCK, wait=True):
            self.refresh()
            if len(self.log.pairs) - self._base.pairs < least:
                return False
            base = self._make_base(progress)
            before = self._states_folders()
            number = int(before[-1].name.removeprefix("states-")) + 1 if before else 1
            with new_folder(self.folder / f"states-{number:06}") as draft:
                write_base(draft, base)
            for folder in before:
                delete_folder(folder)
        with self._lock:
            self._base, self._tail, self._tail_sources, self._recollection = self._read_base(), [], {}, None
            self._read = self._base.pairs
        return True

    def _make_base(self, progress: Progress) -> Base:
        """Return the states of all pairs; those on the disk are used again until there are twice as many pairs."""
        base, count = self._base, len(self.log.pairs)
        extends = base.states is not None and base.weighting is not None and count < 2 * base.pairs
        columns: list[tuple[Any, Ints, Ints]] = []
        reduction = base.reduction
        if extends and base.states:
            kept = [self.log.pairs[number] is not None for number in base.states.pairs.tolist()]
            columns.append((base.states.index.keys[kept], base.states.tokens[kept], base.states.pairs[kept]))
        numbers = [n for n in range(base.pairs if extends else 0, count) if self.log.pairs[n]]
        blocks = -(-len(numbers) // BLOCK)
        first: list[Vectors] = []
        kept_sources = list(range(base.pairs)) if extends else []
        sources = {each.number: each.source for each in self._sides(kept_sources)}
        done = 0
        for block in range(blocks):
            chosen = numbers[block::blocks]  # pairs from everywhere, so that those of the first block stand for all
            sides = self._sides(chosen)
            sources |= {each.number: each.source for each in sides}
            batches = list(self._vectors(sides))
            if not extends and not first and batches:
                first = batches
                vectors = np.concatenate([batch.vectors for batch in batches])
                few = len(vectors) < REDUCED_FROM
                reduction = Reduction.whole(vectors.shape[1]) if few else Reduction.from_vectors(vectors, KEY_SIZE)
            columns += [(reduction(batch.vectors).astype(KEY), batch.tokens, batch.pairs) for batch in batches]
            progress(done := done + len(chosen), len(numbers))
        if not columns:
            return Base(reduction, pairs=count)
        keys, tokens, pairs = (np.concatenate(column) for column in zip(*columns, strict=True))
        states = States.from_keys(keys.astype(np.float32), tokens, pairs)
        weighting = base.weighting if extends else fit_held_out(first, reduction, states, sources)
        phrases = Phrases.from_sources([*sources.values()], [*sources])
        return Base(reduction, weighting, states, phrases, count, states.index.measure_recall())
