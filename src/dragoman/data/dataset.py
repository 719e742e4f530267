"""Tokenised sentence pairs on disk: an Arrow file that is mapped, not read, so that a corpus may be larger than memory.

The same corpora and the same tokenizer give the same bytes, however many threads wrote them.
"""

import contextlib
import hashlib
import json
import mmap
from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa

from dragoman.data.batches import Batch, Ids, Repeat
from dragoman.data.corpus import LeftOut, filled, stream
from dragoman.data.lines import Row
from dragoman.data.spec import CorpusSpec
from dragoman.data.tokenizer import Tokenizer
from dragoman.errors import DragomanError
from dragoman.files import sync

CHUNK = 4096  # pairs that are tokenised, written and found together
ROWS = 1000  # sentences read before the memory behind them is given up
SOURCE, TARGET = 0, 1


class Pairs:
    """Pairs of ids, n of them. Only their lengths are in memory."""

    def __init__(self, mapped: mmap.mmap):
        """Raises ValueError where this is not, to the bit, what `tokenise` wrote."""
        reader = pa.ipc.open_file(pa.py_buffer(mapped))
        corpora = json.loads(reader.schema.metadata[b"corpora"])
        self.longest: int | None = json.loads(reader.schema.metadata[b"longest"])
        "the most tokens that a sentence may have, its end included; None: any number"
        digest = begun(corpora, self.longest)
        # For each chunk: where its source and target ids begin, the ids themselves, its corpus and its lines.
        self._sides: list[tuple[tuple[np.ndarray, np.ndarray], ...]] = []
        self._lines: list[tuple[str, np.ndarray]] = []
        lengths, owners = [], []
        for number in range(reader.num_record_batches):
            chunk, extra = reader.get_batch_with_custom_metadata(number)
            chunk.validate()
            owner, sides = int(extra[b"corpus"]), sides_of(chunk)
            lengths.append(add(digest, owner, sides) + 1)
            owners.append(owner)
            if extra[b"sha256"].decode() != digest.hexdigest():
                raise ValueError("SHA-256 differs")
            self._sides.append(sides)
            self._lines.append((corpora[owner]["name"], chunk.column("line").to_numpy()))
        self._starts = np.cumsum([0, *map(len, lengths)])
        self.lengths: np.ndarray = np.concatenate(lengths)
        "int32 (n, 2): tokens of source and target, a tag and the end that both get included"
        bounds = self._starts[np.searchsorted(owners, range(len(corpora) + 1))].tolist()
        weights = [corpus["weight"] for corpus in corpora]
        self.repeats = tuple(map(Repeat, bounds, bounds[1:], weights))
        "which pairs belong to which corpus, and its weight"
        self._mapped, self._read = mapped, 0
        self._let_go()  # all of it was read for the checksum
        self.fingerprint: str = digest.hexdigest()
        "SHA-256 over ids, tags, weights and `longest`"

    @classmethod
    def open(cls, path: Path) -> "Pairs":
        """Raises DragomanError where the file is missing or damaged."""
        try:
            with path.open("rb") as file:
                return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError:
            raise DragomanError(f"{path}: no such file") from None
        except (OSError, ValueError, LookupError, TypeError, AttributeError, pa.ArrowException):
            raise DragomanError(f"{path}: damaged; delete it, and the same command makes it anew") from None

    def __len__(self) -> int:
        return len(self.lengths)

    def rows(self, indices: Sequence[int] | np.ndarray, side: int) -> list[np.ndarray]:
        """The ids of one side of pairs, as they lie in the file."""
        self._read += len(indices)
        if self._read > ROWS:
            self._let_go()
        chunks = np.searchsorted(self._starts, indices, side="right") - 1
        found = []
        for chunk, row in zip(chunks.tolist(), (indices - self._starts[chunks]).tolist(), strict=True):
            offsets, ids = self._sides[chunk][side]
            found.append(ids[offsets[row] : offsets[row + 1]])
        return found

    def _let_go(self) -> None:
        """Give up the memory of what was read; the system fetches what is asked for again.

        It maps 64 kB around each sentence: without this, soon the whole file would count as memory of this process.
        """
        self._mapped.madvise(mmap.MADV_DONTNEED)
        self._read = 0

    def ids(self, index: int) -> tuple[Ids, Ids]:
        """Source and target without their ends."""
        return self.rows([index], SOURCE)[0].tolist(), self.rows([index], TARGET)[0].tolist()

    def keys(self) -> np.ndarray:
        """int64 (n,): equal for equal pairs, and, but for a chance of 2^-64, for no others."""
        keys = (
            hash((source[a:b].tobytes(), target[c:d].tobytes()))
            for (starts, source), (others, target) in self._sides
            for (a, b), (c, d) in zip(pairwise(starts.tolist()), pairwise(others.tolist()), strict=True)
        )
        found = np.fromiter(keys, np.int64, len(self))
        self._let_go()
        return found

    def batch(self, indices: np.ndarray, dropout: tuple[Tokenizer, float, tuple[int, ...]] | None = None) -> Batch:
        """dropout: cut the texts anew with BPE-dropout of that rate; the numbers and the pair decide how."""
        sides = [self.rows(indices, side) for side in (SOURCE, TARGET)]
        if not dropout:
            return Batch.of(*sides)
        tokenizer, rate, seeds = dropout
        anew: list[list[Ids]] = [[], []]
        for index, *pair in zip(indices.tolist(), *sides, strict=True):
            random = Random(f"{seeds} {index}")
            for side, ids in enumerate(pair):
                other = tokenizer.resegmented(ids.tolist(), rate, random)
                too_long = self.longest and len(other) >= self.longest
                anew[side].append(ids.tolist() if too_long else other)
        return Batch.of(*anew)

    def place(self, index: int) -> str:
        """'news.tsv:1,234': where the pair was read."""
        chunk = int(np.searchsorted(self._starts, index, side="right")) - 1
        name, lines = self._lines[chunk]
        return f"{name}:{lines[index - self._starts[chunk]]:,}"


def tokenise(
    origins: Sequence[CorpusSpec], tokenizer: Tokenizer, longest: int | None, path: Path, joined: float = 0.0
) -> tuple[Pairs, list[str]]:
    """Write the pairs of all corpora to `path`; return them, and what was left out and why, a sentence each.

    Left out are pairs with an empty side, and those with a side longer than `longest` tokens, its end included.
    joined: see `TrainingConfig`; two pairs that are longer than `longest` together are not joined. Raises
    DragomanError where nothing is left of a corpus, and where the file cannot be written.
    """
    kind = pa.uint16() if len(tokenizer) <= 2**16 else pa.int32()
    corpora = [{"name": origin.name, "tag": origin.tag, "weight": origin.weight} for origin in origins]
    schema = pa.schema(
        {"source": pa.list_(kind), "target": pa.list_(kind), "line": pa.uint32()},
        {"corpora": json.dumps(corpora, ensure_ascii=False), "longest": json.dumps(longest)},
    )
    digest, notes = begun(corpora, longest), []
    draft = path.with_name(f".{path.name}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(draft), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for number, origin in enumerate(origins):
                left_out, kept = LeftOut(origin), 0
                for chunk in chunks(origin, tokenizer, longest, schema, left_out, joined):
                    add(digest, number, sides_of(chunk))
                    extra = {"corpus": str(number), "sha256": digest.hexdigest()}
                    writer.write_batch(chunk, custom_metadata=extra)
                    kept += len(chunk)
                if not kept:
                    raise DragomanError(nothing_left(left_out, longest))
                notes += left_out.notes()
        sync(draft)
        draft.replace(path)
        sync(path.parent)
    except OSError as error:
        raise DragomanError(f"{path}: could not be written: {error}") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
    return Pairs.open(path), notes


def repeated(train: Pairs, dev: Pairs) -> list[str]:
    """What makes scores better than the model is: a sentence for pairs that stand there twice, and for dev pairs that
    are learned from.
    """
    learned = train.keys()
    twice, both = len(learned) - len(np.unique(learned)), int(np.isin(dev.keys(), learned).sum())
    notes = []
    if twice:
        notes.append(f"{twice:,} of {len(train):,} pairs are repetitions; 'dragoman check' names them")
    if both:
        notes.append(
            f"{both:,} of {len(dev):,} dev pairs are in the training corpus, too: their scores will be too good; "
            "'dragoman check' names them"
        )
    return notes


def chunks(
    origin: CorpusSpec, tokenizer: Tokenizer, longest: int | None, schema: pa.Schema, left_out: LeftOut, joined: float
) -> Iterator[pa.RecordBatch]:
    """The pairs of a corpus as ids, in their order; behind those of each chunk, those of them that are joined."""
    rows, random = filled(stream(origin, left_out), left_out), Random(0)
    # Of a text too long in any case only this much is tokenised; four characters may become one of a piece.
    most = 4 * longest * max(map(len, tokenizer.pieces)) if longest else None

    def encoded(rows: Sequence[Row]) -> Iterator[tuple[Row, Ids, Ids]]:
        sources = tokenizer.encode_all([row.source[:most] for row in rows], origin.tag)
        return zip(rows, sources, tokenizer.encode_all([row.target[:most] for row in rows]), strict=True)

    while block := list(islice(rows, CHUNK)):
        kept = []
        for row, source, target in encoded(block):
            if longest and max(len(source), len(target)) >= longest:
                left_out.add(longer_than(longest), row.number)
            else:
                kept.append((row.number, source, target))
        for row, source, target in encoded(pairs_of_two(block, joined, random)):
            if not longest or max(len(source), len(target)) < longest:
                kept.append((row.number, source, target))
        if kept:
            numbers, *sides = zip(*kept, strict=True)
            kind = schema.field("source").type
            columns = [*(as_lists(side, kind) for side in sides), pa.array(numbers, pa.uint32())]
            yield pa.record_batch(columns, schema=schema)


def pairs_of_two(rows: Sequence[Row], share: float, random: Random) -> list[Row]:
    """A share of the rows, drawn at random, each with another one behind it. A model that has seen nothing but short
    texts leaves out the end of a long one (docs/benchmarks.md).
    """
    if not share:  # most corpora, of any size: nothing is drawn
        return []
    order = random.sample(rows, len(rows))
    return [
        Row(row.number, f"{row.source} {other.source}", f"{row.target} {other.target}")
        for row, other in islice(pairwise([*order, *order[:1]]), round(share * len(rows)))
        if row is not other
    ]


def longer_than(longest: int | None) -> str:
    return f"pairs longer than {longest} tokens"


def as_lists(rows: Sequence[Ids], kind: pa.DataType) -> pa.ListArray:
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    ids = np.fromiter(chain.from_iterable(rows), kind.value_type.to_pandas_dtype(), offsets[-1])
    return pa.ListArray.from_arrays(offsets, ids, type=kind)


def begun(corpora: list[dict], longest: int | None) -> "hashlib._Hash":
    """A fingerprint of no pairs yet. Names of files are no part of it: the same text may lie elsewhere."""
    return hashlib.sha256(json.dumps([longest, *((corpus["tag"], corpus["weight"]) for corpus in corpora)]).encode())


def sides_of(chunk: pa.RecordBatch) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """For source and target: where the ids of each sentence begin and the last end, and all ids; nothing is copied."""
    return tuple((column.offsets.to_numpy(), column.values.to_numpy()) for column in chunk.columns[:2])


def add(digest: "hashlib._Hash", owner: int, sides: tuple[tuple[np.ndarray, np.ndarray], ...]) -> np.ndarray:
    """Let the fingerprint grow by a chunk of a corpus. Returns int32 (pairs, 2): the ids of each sentence, counted."""
    counts = np.stack([np.diff(offsets) for offsets, _ in sides], axis=1)
    for data in (np.array([owner, len(counts)]), counts, *(ids for _, ids in sides)):
        digest.update(data.data)
    return counts


def nothing_left(left_out: LeftOut, longest: int | None) -> str:
    if longer_than(longest) in left_out.counts:
        return (
            f"{left_out.name}: every pair is longer than {longest} tokens; "
            "raise training.max_tokens, training.batch_tokens or model.max_length"
        )
    return f"{left_out.name}: no sentence pairs in it"
