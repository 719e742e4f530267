"""Keep tokenised sentence pairs on disk: an Arrow file that is mapped, not read, so a corpus may be larger than memory.

The same corpora and the same tokenizer give the same bytes, however many threads wrote them.
"""

import hashlib
import json
import mmap
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa

from dragoman.data.batches import Batch, Ids, Repeat
from dragoman.data.corpus import WEIGHTLESS, LeftOut, drop_empty, stream_rows
from dragoman.data.lines import MAX_WEIGHT, MIN_WEIGHT, Row
from dragoman.data.spec import CorpusSpec
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError
from dragoman.storage import formats
from dragoman.storage.records import open_regular
from dragoman.storage.writing import atomic_file, name_errors

CHUNK = 4096  # pairs that are tokenised, written and looked up together
READS_BEFORE_RELEASE = 1000  # sentences
COMPARED = 10_000  # pairs of a corpus, to see in which order its languages are
OPPOSITE = 0.05  # similarity by which the sides of two corpora match better crosswise, on both sides
SOURCE, TARGET = 0, 1
Change = Callable[[int, np.ndarray, np.ndarray], tuple[Ids | np.ndarray, Ids | np.ndarray]]
Columns = tuple[tuple[np.ndarray, np.ndarray], ...]  # of source and target: offsets of sentences in the ids, the ids


class Pairs:
    """Pairs of ids in a memory-mapped file; only their lengths are in memory."""

    def __init__(self, mapped: mmap.mmap, path: Path, checked: bool = False):
        """Raise ValueError where this is not, to the bit, what `tokenise` wrote, NewerFormatError for a newer format.

        path: the mapped file, for messages. checked: whether this process has compared it with its checksum.
        """
        reader = pa.ipc.open_file(pa.py_buffer(mapped))
        metadata = {name.decode(): json.loads(value) for name, value in reader.schema.metadata.items()}
        record = formats.unstamp(metadata, formats.CORPUS, str(path))
        corpora = record["corpora"]
        self.max_length: int | None = record["longest"]
        "tokens that a sentence may have, EOS included; None: any number"
        if not isinstance(self.max_length, int | None):
            raise ValueError("a limit that is no number")
        digest = start_fingerprint(corpora, self.max_length)
        # For each chunk: the offsets of its source and target ids, the ids themselves, its corpus and its lines.
        self._sides: list[Columns] = []
        self._lines: list[tuple[str, np.ndarray]] = []
        lengths, weights, owners = [], [], []
        for number in range(reader.num_record_batches):
            chunk, extra = reader.get_batch_with_custom_metadata(number)
            chunk.validate()
            owner, sides = int(extra[b"corpus"]), columns_of(chunk)
            lengths.append(count_ids(sides) + 1)
            weights.append(weights_in(chunk))
            owners.append(owner)
            self.fingerprint: str = extra[b"sha256"].decode()
            "SHA-256 over ids, tags, weights, shares and `max_length`"
            if not checked:
                add_to_fingerprint(digest, owner, chunk)
                if self.fingerprint != digest.hexdigest():
                    raise ValueError("SHA-256 differs")
            self._sides.append(sides)
            self._lines.append((corpora[owner]["name"], chunk.column("line").to_numpy()))
        self._starts = np.cumsum([0, *map(len, lengths)])
        self.lengths: np.ndarray = np.concatenate(lengths)
        "int32 (n, 2): tokens of source and target, a tag and EOS included"
        bounds = self._starts[np.searchsorted(owners, range(len(corpora) + 1))].tolist()
        self.weights: np.ndarray | None = np.concatenate(weights) if any(map(len, weights)) else None
        "float32 (n,): how often each pair comes in an epoch, beside others of its corpus; None: once"
        of_pairs = np.ones(len(self.lengths)) if self.weights is None else self.weights
        tokens = [float(self.lengths[a:b, TARGET] @ of_pairs[a:b].astype(float)) for a, b in pairwise(bounds)]
        self.repeats = tuple(map(Repeat, bounds, bounds[1:], weights_of(corpora, tokens)))
        "which pairs belong to which corpus, and the weight of that corpus"
        self._mapped, self._reads = mapped, 0
        self._release_memory()  # all of it was read for the checksum

    @classmethod
    def open(cls, path: Path, checked: bool = False) -> "Pairs":
        """Map a file that `tokenise` wrote. Raise DragomanError where it is missing, damaged or of a newer format.

        checked: whether this process has opened it before, so that its checksum need not be computed again. Raise
        OSError where the system cannot read it.
        """
        damaged = DragomanError(f"{path}: damaged; delete it and rerun the same command")
        try:
            with name_errors(path), open_regular(path) as file:
                return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), path, checked)
        except FileNotFoundError:
            raise DragomanError(f"{path}: no such file") from None
        except OSError as error:  # Arrow's own have no number
            raise (error if error.errno else damaged) from None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, pa.ArrowException):
            raise damaged from None

    def __len__(self) -> int:
        return len(self.lengths)

    def rows(self, indices: Sequence[int] | np.ndarray, side: int) -> list[np.ndarray]:
        """Return the ids, without EOS, of a side (0: source, 1: target) of pairs, by index, as views of the file."""
        self._reads += len(indices)
        if self._reads > READS_BEFORE_RELEASE:
            self._release_memory()
        chunks = np.searchsorted(self._starts, indices, side="right") - 1
        rows = []
        for chunk, row in zip(chunks.tolist(), (indices - self._starts[chunks]).tolist(), strict=True):
            offsets, ids = self._sides[chunk][side]
            rows.append(ids[offsets[row] : offsets[row + 1]])
        return rows

    def _release_memory(self) -> None:
        """Release the memory of the pages that were read; the system reads them again when they are needed.

        It maps 64 kB around each sentence, so without this the whole file would soon count as memory of this process.
        """
        self._mapped.madvise(mmap.MADV_DONTNEED)
        self._reads = 0

    def ids(self, index: int) -> tuple[Ids, Ids]:
        """Return source and target of the pair at `index` as ids without EOS."""
        return self.rows([index], SOURCE)[0].tolist(), self.rows([index], TARGET)[0].tolist()

    def keys(self) -> np.ndarray:
        """Return a hash of each pair, int64 (n,), for comparisons within this process; it reads the whole file."""
        hashes = (
            hash((source[a:b].tobytes(), target[c:d].tobytes()))
            for (source_starts, source), (target_starts, target) in self._sides
            for (a, b), (c, d) in zip(pairwise(source_starts.tolist()), pairwise(target_starts.tolist()), strict=True)
        )
        keys = np.fromiter(hashes, np.int64, len(self))
        self._release_memory()
        return keys

    def batch(self, indices: np.ndarray, change: Change | None = None) -> Batch:
        """Return the pairs at `indices` as a batch.

        change: returns the ids of a pair, given its index and its ids, as the batch has them.
        """
        sides: Sequence[Sequence[Ids | np.ndarray]] = [self.rows(indices, side) for side in (SOURCE, TARGET)]
        if change:
            pairs = [change(index, *pair) for index, *pair in zip(indices.tolist(), *sides, strict=True)]
            sides = [[pair[side] for pair in pairs] for side in (SOURCE, TARGET)]
        return Batch.from_pairs(*sides)

    def location(self, index: int) -> str:
        """Return where a pair was read: 'news.tsv:1,234'."""
        chunk = int(np.searchsorted(self._starts, index, side="right")) - 1
        name, lines = self._lines[chunk]
        return f"{name}:{lines[index - self._starts[chunk]]:,}"


def tokenise(
    specs: Sequence[CorpusSpec],
    tokenizers: Tokenizers,
    max_length: int | None,
    path: Path,
    concatenate: float = 0.0,
    expected: str = "",
) -> tuple[Pairs, list[str]]:
    """Write the pairs of all corpora to `path`. Return them, and a sentence for each reason why pairs were left out.

    Left out are pairs with an empty side, and those with a side of more than `max_length` tokens, EOS included.
    concatenate: see `TrainingConfig`; two pairs that are longer than `max_length` together are not concatenated.
    expected: the fingerprint that the pairs must have, '' for any. Raise DragomanError where they have another one,
    where nothing is left of a corpus, and where the file cannot be written; then what was in `path` stays.
    """
    kind = pa.uint16() if max(map(len, tokenizers)) <= 2**16 else pa.int32()
    corpora = [{"name": spec.name, "tag": spec.tag, "weight": spec.weight, "share": spec.share} for spec in specs]
    for corpus, spec in zip(corpora, specs, strict=True):
        corpus |= {"target_tag": spec.target_tag} if spec.target_tag else {}
    record = {**formats.stamp(formats.CORPUS), "corpora": corpora, "longest": max_length}
    fields = {"source": pa.list_(kind), "target": pa.list_(kind), "line": pa.uint32()}
    schema = pa.schema(
        fields | {"weight": pa.float32()} if any(spec.weight_column for spec in specs) else fields,
        {name: json.dumps(value, ensure_ascii=False) for name, value in record.items()},
    )
    digest, notes = start_fingerprint(corpora, max_length), []
    try:
        # Python's file: the errors of Arrow's own do not always say the cause.
        with atomic_file(path) as draft, draft.open("wb") as file, pa.ipc.new_file(file, schema) as writer:
            for number, spec in enumerate(specs):
                left_out, kept = LeftOut(spec), 0
                for chunk in tokenised_chunks(spec, tokenizers, max_length, schema, left_out, concatenate):
                    add_to_fingerprint(digest, number, chunk)
                    extra = {"corpus": str(number), "sha256": digest.hexdigest()}
                    writer.write_batch(chunk, custom_metadata=extra)
                    kept += len(chunk)
                if not kept:
                    raise DragomanError(no_pairs_message(left_out, max_length))
                notes += left_out.notes()
            if expected and digest.hexdigest() != expected:
                names = " ".join(spec.name for spec in specs)
                raise DragomanError(
                    f"{names}: not the texts, weights and tags that {path} was made from; choose another --out"
                )
    except OSError as error:
        raise DragomanError(f"{path}: could not be written: {error.strerror or error}") from None
    return Pairs.open(path), notes


def repetition_notes(train: Pairs, dev: Pairs) -> list[str]:
    """Return warnings for the user of repeated training pairs, and of dev pairs that are also training pairs."""
    learned = train.keys()
    repeated, shared = len(learned) - len(np.unique(learned)), int(np.isin(dev.keys(), learned).sum())
    notes = []
    if repeated:
        notes.append(f"{repeated:,} of {len(train):,} pairs are duplicates; 'dragoman check' lists them")
    if shared:
        notes.append(
            f"{shared:,} of {len(dev):,} dev pairs are in the training corpus, too: their scores will be too high; "
            "'dragoman check' lists them"
        )
    return notes


def direction_notes(train: Pairs, dev: Pairs) -> list[str]:
    """Return a warning for the user where the sides of the dev pairs look like the other sides of the training pairs.

    Sides are compared by the Bhattacharyya coefficient of their tokens, as `dragoman check` does with trigrams.
    """
    sides = [token_shares(pairs) for pairs in (dev, train)]
    size = max(shares.shape[1] for shares in sides)
    of_dev, of_train = (np.pad(shares, ((0, 0), (0, size - shares.shape[1]))) ** 0.5 for shares in sides)
    straight, crosswise = of_dev @ of_train.T, of_dev @ of_train[::-1].T  # (2, 2)
    if (crosswise - straight).diagonal().min() <= OPPOSITE:
        return []
    return [
        "the dev pairs and the training pairs have their languages in opposite order: the sources of one look like "
        "the targets of the other; swap the columns of one, or name its two files in the other order"
    ]


def token_shares(pairs: Pairs) -> np.ndarray:
    """Return the share of each token among those of the sources, and of the targets, of up to COMPARED pairs: (2, V).

    The pairs are evenly spread. V is one more than the largest id that occurs; a side without tokens is a row of zeros.
    """
    rows = np.unique(np.linspace(0, len(pairs) - 1, min(len(pairs), COMPARED)).astype(int))
    sides = [np.concatenate([*pairs.rows(rows, side), np.zeros(0, int)]) for side in (0, 1)]
    size = 1 + max(int(side.max(initial=0)) for side in sides)
    counts = np.stack([np.bincount(side.astype(int), minlength=size) for side in sides])
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def tokenised_chunks(
    spec: CorpusSpec,
    tokenizers: Tokenizers,
    max_length: int | None,
    schema: pa.Schema,
    left_out: LeftOut,
    concatenate: float,
) -> Iterator[pa.RecordBatch]:
    """Yield the pairs of a corpus as ids, chunk by chunk, each chunk followed by concatenations of its pairs.

    max_length: the most tokens of a side, EOS included, None for any number; schema: of the chunks; concatenate: the
    share of pairs. Pairs that are left out are counted in `left_out`.
    """
    # Only this much of a text is kept, which is too long in any case: up to four characters become one in a piece.
    longest = max(len(piece) for tokenizer in set(tokenizers) for piece in tokenizer.pieces)
    limit = 4 * max_length * longest if max_length else None
    whole, random = drop_empty(stream_rows(spec, left_out), left_out), Random(0)
    rows = (row._replace(source=row.source[:limit], target=row.target[:limit]) for row in whole)

    def encode(rows: Sequence[Row]) -> Iterator[tuple[Row, Ids, Ids]]:
        texts = [row.source for row in rows], [row.target for row in rows]
        sides = tokenizers.encode_sides(*texts, spec.tag, spec.target_tag)
        return zip(rows, *sides, strict=True)

    while block := list(islice(rows, CHUNK)):
        kept = []
        for row, source, target in encode(block):
            if max_length and max(len(source), len(target)) >= max_length:
                left_out.add(too_long_reason(max_length), row.number)
            else:
                kept.append((row, source, target))
        for row, source, target in encode(concatenate_some(block, concatenate, random)):
            if not max_length or max(len(source), len(target)) < max_length:
                kept.append((row, source, target))
        if kept:
            origins, *sides = zip(*kept, strict=True)
            kind = schema.field("source").type
            columns = [
                *(as_lists(side, kind) for side in sides),
                pa.array([row.number for row in origins], pa.uint32()),
            ]
            if "weight" in schema.names:
                columns.append(pa.array([row.weight for row in origins], pa.float32()))
            yield pa.record_batch(columns, schema=schema)


def concatenate_some(rows: Sequence[Row], share: float, random: Random) -> list[Row]:
    """Return a random share of the rows, each with another row appended.

    A model that has seen only short texts omits the end of a long one (docs/benchmarks.md).
    """
    if not share:  # the default
        return []
    order = random.sample(rows, len(rows))
    return [
        row._replace(source=f"{row.source} {other.source}", target=f"{row.target} {other.target}")
        for row, other in islice(pairwise([*order, *order[:1]]), round(share * len(rows)))
        if row is not other
    ]


def too_long_reason(max_length: int | None) -> str:
    """Return the reason, in words for the user, for which long pairs are left out."""
    return f"pairs longer than {max_length} tokens"


def as_lists(rows: Sequence[Ids], kind: pa.DataType) -> pa.ListArray:
    """Return lists of ids as an Arrow array of lists of the type `kind`."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    # With pandas missing, older versions of pyarrow cannot name the type of numpy themselves.
    ids = np.fromiter(chain.from_iterable(rows), str(kind.value_type), offsets[-1])
    return pa.ListArray.from_arrays(offsets, ids, type=kind)


def weights_of(corpora: Sequence[dict], tokens: Sequence[float]) -> list[float]:
    """Return the weight of each corpus: as given, or that with which it makes up its share of the tokens in an epoch.

    tokens: the target tokens of each corpus, each pair counted as often as its own weight says. Raise ValueError where
    the shares leave nothing for the others, or there are no others, and where a weight is out of range: `parse_corpora`
    refuses that. Raise DragomanError where a share needs a weight that is out of range.
    """
    shares = [corpus.get("share") for corpus in corpora]  # files of version 0.1 have none
    if not all(MIN_WEIGHT <= corpus["weight"] <= MAX_WEIGHT for corpus in corpora) or not all(tokens):
        raise ValueError("a corpus without pairs, or with a weight that it cannot have")
    weighted_tokens = sum(
        corpus["weight"] * count for corpus, share, count in zip(corpora, shares, tokens, strict=True) if not share
    )
    left = 1 - sum(share or 0.0 for share in shares)
    if not 0 < left <= 1 or not weighted_tokens:
        raise ValueError("the shares of the corpora leave nothing for others")
    weights = [
        share * weighted_tokens / (left * count) if share else corpus["weight"]
        for corpus, share, count in zip(corpora, shares, tokens, strict=True)
    ]
    for corpus, share, weight in zip(corpora, shares, weights, strict=True):
        if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
            raise DragomanError(
                f"{corpus['name']}: share={share:g} takes each of its pairs {weight:,.6g} times in an epoch, and that "
                f"must be from {MIN_WEIGHT:g} to {MAX_WEIGHT:,.0f} times: choose a share nearer to that of its text"
            )
    return weights


def start_fingerprint(corpora: list[dict], max_length: int | None) -> "hashlib._Hash":
    """Return the fingerprint before the first pair. Names of files do not count, so that files may be moved."""
    use = [
        (corpus["tag"], corpus["weight"], *filter(None, [corpus.get("share"), corpus.get("target_tag")]))
        for corpus in corpora
    ]
    return hashlib.sha256(json.dumps([max_length, *use]).encode())


def columns_of(chunk: pa.RecordBatch) -> Columns:
    """Return, for source and target, the offsets of sentences in the ids, and the ids, without copying them."""
    return tuple((column.offsets.to_numpy(), column.values.to_numpy()) for column in chunk.columns[:2])


def weights_in(chunk: pa.RecordBatch) -> np.ndarray:
    """Return the weights of the pairs of a chunk (n,), an empty array where the file has none.

    Raise ValueError for weights that `tokenise` does not write.
    """
    if "weight" not in chunk.schema.names:
        return np.zeros(0, np.float32)
    weights = chunk.column("weight").to_numpy()
    if weights.dtype != np.float32 or not ((weights > 0) & (weights <= MAX_WEIGHT)).all():
        raise ValueError("a weight that a pair cannot have")
    return weights


def count_ids(sides: Columns) -> np.ndarray:
    """Return the lengths in ids of the sentences of a chunk, int32 (pairs, 2)."""
    return np.stack([np.diff(offsets) for offsets, _ in sides], axis=1)


def add_to_fingerprint(digest: "hashlib._Hash", owner: int, chunk: pa.RecordBatch) -> None:
    """Add a chunk of corpus `owner` to the fingerprint."""
    sides = columns_of(chunk)
    counts = count_ids(sides)
    for data in (np.array([owner, len(counts)]), counts, *(ids for _, ids in sides), weights_in(chunk)):
        digest.update(data.data)


def no_pairs_message(left_out: LeftOut, max_length: int | None) -> str:
    """Return the error message for a corpus of which no pair is left."""
    if too_long_reason(max_length) in left_out.counts:
        return (
            f"{left_out.name}: every pair is longer than {max_length} tokens; "
            "raise training.max_tokens, training.batch_tokens or model.max_length"
        )
    if WEIGHTLESS in left_out.counts:
        return f"{left_out.name}: every pair has weight 0"
    return f"{left_out.name}: no sentence pairs in it"
