"""Tokenised corpora on disk: what went in comes out, the same bytes each time, and damage is seen."""

import math
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
import torch
from conftest import toy_pairs, write_tsv
from processes import Command

from dragoman.data import dataset
from dragoman.data.batches import Batch, Repeat, plan_batches
from dragoman.data.corpus import Pair
from dragoman.data.dataset import CHUNK, Pairs, direction_notes, repetition_notes, tokenise, weights_of
from dragoman.data.spec import CorpusSpec
from dragoman.data.tokenizer import Tokenizer, normalise
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError
from dragoman.training.datasets import prepare_dataset
from dragoman.training.journal import Journal, RunConsole

LONG = "dog " * 300


@pytest.fixture(scope="module")
def tagged(pairs: list[Pair]) -> Tokenizer:
    return Tokenizer.train([text for pair in pairs for text in pair], tags=("news", "med"))


@pytest.fixture
def origin(tmp_path: Path, pairs: list[Pair]) -> CorpusSpec:
    return CorpusSpec((write_tsv(tmp_path / "toy.tsv", pairs),))


@pytest.fixture
def stored(origin: CorpusSpec, tokenizer: Tokenizer, tmp_path: Path) -> Pairs:
    return tokenise((origin,), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "toy.arrow")[0]


def same(one: Batch, other: Batch) -> bool:
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in ("source", "target", "labels", "real"))


def texts_of(stored: Pairs, tokenizer: Tokenizer) -> list[Pair]:
    return [tuple(map(tokenizer.decode, stored.ids(index))) for index in range(len(stored))]  # type: ignore[misc]


def test_pairs_come_back_with_their_places(
    stored: Pairs, origin: CorpusSpec, tokenizer: Tokenizer, pairs: list[Pair], tmp_path: Path
):
    for found in (stored, Pairs.open(tmp_path / "toy.arrow")):
        assert len(found) == len(pairs)
        for index, (source, target) in enumerate(pairs):
            ids = tokenizer.encode(source), tokenizer.encode(target)
            assert found.ids(index) == ids
            assert found.lengths[index].tolist() == [len(ids[0]) + 1, len(ids[1]) + 1]
            assert found.location(index) == f"{origin.files[0]}:{index + 1}"


def test_batch_is_that_of_the_same_lists(stored: Pairs):
    indices = np.array([7, 3, 150, 3])
    lists = [stored.ids(index) for index in indices]
    assert same(
        stored.batch(indices), Batch.from_pairs([source for source, _ in lists], [target for _, target in lists])
    )
    assert not same(stored.batch(indices), stored.batch(indices[::-1]))


def test_pairs_are_found_across_chunks(tokenizer: Tokenizer, tmp_path: Path):
    """Chunks of different sizes: one corpus ends in the middle of one, and one row is left out."""
    words = [str(number) for number in range(CHUNK + 20)]
    one = [(word, word[::-1]) for word in words]
    one[5] = ("", "empty")
    origins = tuple(
        CorpusSpec((write_tsv(tmp_path / name, rows),)) for name, rows in (("a.tsv", one), ("b.tsv", one[:30]))
    )
    stored, _ = tokenise(origins, Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "all.arrow")
    assert texts_of(stored, tokenizer) == [pair for pair in (*one, *one[:30]) if pair[0]]
    assert stored.location(CHUNK + 18) == f"{tmp_path / 'a.tsv'}:{CHUNK + 20:,}"
    assert stored.location(CHUNK + 19) == f"{tmp_path / 'b.tsv'}:1"
    assert stored.repeats == (Repeat(0, CHUNK + 19, 1.0), Repeat(CHUNK + 19, CHUNK + 48, 1.0))


def test_ids_take_two_bytes_where_the_vocabulary_allows(origin: CorpusSpec, tokenizer: Tokenizer, tmp_path: Path):
    many = Tokenizer(
        {piece: id for id, piece in enumerate([*tokenizer.pieces, *(f"piece {n}" for n in range(2**16))])},
        tokenizer.merges,
    )
    narrow, _ = tokenise((origin,), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "narrow.arrow")
    wide, _ = tokenise((origin,), Tokenizers.from_tokenizer(many), None, tmp_path / "wide.arrow")
    assert [pairs.rows([0], 0)[0].dtype for pairs in (narrow, wide)] == [np.uint16, np.int32]
    assert narrow.ids(0) == wide.ids(0)


# The same bytes.


def tokenise_file(file: str, tokenizer: Path, out: Path) -> None:
    tokenise((CorpusSpec((file,)),), Tokenizers.from_tokenizer(Tokenizer.load(tokenizer)), 60, out)


def test_workers_of_any_number_write_the_same_bytes(tokenizer: Tokenizer, tmp_path: Path):
    file = write_tsv(tmp_path / "toy.tsv", 2 * toy_pairs(2500))  # more than a chunk
    other = write_tsv(tmp_path / "other.tsv", 2 * toy_pairs(2500)[::-1])
    tokenizer.save(tmp_path / "tokenizer.json")
    found = []
    for corpus, workers in ((file, 2), (file, 1), (other, 1)):
        out = tmp_path / f"{len(found)}.arrow"
        work = partial(tokenise_file, corpus, tmp_path / "tokenizer.json", out)
        assert Command(["--version"], tmp_path / "log", {"RAYON_NUM_THREADS": str(workers)}, [work]).code() == 0
        found.append(out.read_bytes())
    assert found[0] == found[1] != found[2]


def test_fingerprint_is_of_ids_tags_and_weights_and_not_of_names(
    origin: CorpusSpec, pairs: list[Pair], tagged: Tokenizer, tmp_path: Path
):
    def fingerprint(*origins: CorpusSpec, longest: int | None = None) -> str:
        return tokenise(origins, Tokenizers.from_tokenizer(tagged), longest, tmp_path / "x.arrow")[0].fingerprint

    elsewhere = CorpusSpec((write_tsv(tmp_path / "elsewhere.tsv", pairs),))
    swapped = CorpusSpec((write_tsv(tmp_path / "swapped.tsv", [pairs[1], pairs[0], *pairs[2:]]),))
    head = CorpusSpec((write_tsv(tmp_path / "head.tsv", pairs[:50]),))
    tail = CorpusSpec((write_tsv(tmp_path / "tail.tsv", pairs[50:]),))
    assert fingerprint(origin) == fingerprint(elsewhere)
    others = [
        (swapped,),
        (replace(origin, tag="med"),),
        (replace(origin, tag="news"),),
        (replace(origin, weight=2.0),),
        (origin, origin),
        (origin, replace(origin, share=0.25)),
        (head, tail),
        (replace(head, weight=2.0), tail),
    ]
    assert len({fingerprint(origin), *(fingerprint(*other) for other in others)}) == 1 + len(others)
    assert fingerprint(origin) != fingerprint(origin, longest=1000)  # dropout goes up to there


# Weights and tags.


def test_corpus_of_weight_two_comes_twice_in_an_epoch(origin: CorpusSpec, tokenizer: Tokenizer, tmp_path: Path):
    stored, _ = tokenise(
        (origin, replace(origin, weight=2.0)), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "x.arrow"
    )
    half = len(stored) // 2
    batches = plan_batches(stored.lengths, 500, 1, 0, stored.repeats)
    counts = np.bincount(np.concatenate(list(batches)), minlength=len(stored))
    assert counts.tolist() == [1] * half + [2] * half


def test_weights_of_pairs_are_kept_and_count_in_the_fingerprint(
    origin: CorpusSpec, pairs: list[Pair], tokenizer: Tokenizer, tmp_path: Path
):
    def stored(weights: list[float]) -> Pairs:
        rows = [f"{source}\t{target}\t{weight}" for (source, target), weight in zip(pairs, weights, strict=True)]
        (tmp_path / "weighted.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        spec = CorpusSpec((str(tmp_path / "weighted.tsv"),), weight_column="3")
        return tokenise((origin, spec), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "x.arrow")[0]

    weights = [0.5, *[1.0] * (len(pairs) - 2), 2.0]
    first = stored(weights)
    assert first.weights is not None
    assert first.weights.tolist() == [1.0] * len(pairs) + weights
    drawn = np.concatenate(
        [np.concatenate(list(plan_batches(first.lengths, 500, 1, e, first.repeats, first.weights))) for e in range(2)]
    )
    assert np.bincount(drawn).tolist() == [2] * len(pairs) + [2 * weight for weight in weights]
    assert stored(weights[::-1]).fingerprint != first.fingerprint == stored(weights).fingerprint


def test_pair_of_weight_0_is_left_out_and_told(tokenizer: Tokenizer, pairs: list[Pair], tmp_path: Path):
    def store(weights: list[float]) -> tuple[Pairs, list[str]]:
        rows = [f"{source}\t{target}\t{weight}\n" for (source, target), weight in zip(pairs, weights, strict=False)]
        (tmp_path / "some.tsv").write_text("".join(rows), encoding="utf-8")
        spec = CorpusSpec((str(tmp_path / "some.tsv"),), weight_column="3")
        return tokenise((spec,), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "x.arrow")

    stored, notes = store([1, 0, 1])
    assert len(stored) == 2
    assert [note.partition("some.tsv: ")[2] for note in notes] == ["skipped pairs of weight 0: 1 (line 2)"]
    with pytest.raises(DragomanError, match="every pair has weight 0"):
        store([0, 0, 0])
    with pytest.raises(DragomanError, match="every pair has weight 0"):
        store([1e-9, 1e-50, 0.0009])  # it would take a million epochs until one of them comes
    assert len(store([0.001, 1e-9])[0]) == 1


def test_another_column_of_weights_is_read_anew(tokenizer: Tokenizer, pairs: list[Pair], tmp_path: Path):
    (tmp_path / "some.tsv").write_text("".join(f"{s}\t{t}\t0.5\t2\n" for s, t in pairs), encoding="utf-8")
    journal = Journal(tmp_path / "run", RunConsole(), active=False)
    for column, weight in (("3", 0.5), ("4", 2.0)):
        spec = CorpusSpec((str(tmp_path / "some.tsv"),), weight_column=column)
        stored = prepare_dataset((spec,), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "x.arrow", journal, "")
        assert stored.weights is not None
        assert set(stored.weights.tolist()) == {weight}


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_corpus_makes_up_its_share_of_the_tokens_of_an_epoch(
    share: float, pairs: list[Pair], tokenizer: Tokenizer, tmp_path: Path
):
    new = CorpusSpec((write_tsv(tmp_path / "new.tsv", pairs[:60]),), weight=2.0)
    old = CorpusSpec((write_tsv(tmp_path / "old.tsv", [*pairs, *toy_pairs(600)]),))
    for spec, expected in ((replace(old, share=share), share), (old, 0.9)):
        stored, _ = tokenise((new, spec), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "x.arrow")
        begin = stored.repeats[1].start
        drawn = np.concatenate(
            [np.concatenate(list(plan_batches(stored.lengths, 500, 1, epoch, stored.repeats))) for epoch in range(4)]
        )
        tokens = stored.lengths[drawn, 1]
        found = tokens[drawn >= begin].sum() / tokens.sum()
        assert found == pytest.approx(expected, abs=0.03) if spec.share else found > expected - 0.1


def test_tag_stands_in_front_of_the_source_alone(origin: CorpusSpec, tagged: Tokenizer, tmp_path: Path):
    tokenizers = Tokenizers.from_tokenizer(tagged)
    plain, _ = tokenise((origin,), tokenizers, None, tmp_path / "plain.arrow")
    stored, _ = tokenise((replace(origin, tag="med"),), tokenizers, None, tmp_path / "tagged.arrow")
    assert stored.ids(3) == ([tagged.tags["med"], *plain.ids(3)[0]], plain.ids(3)[1])
    assert (stored.lengths - plain.lengths).tolist() == [[1, 0]] * len(plain)


# What is left out.


def test_left_out_pairs_are_reported_and_move_no_line(tokenizer: Tokenizer, pairs: list[Pair], tmp_path: Path):
    rows = list(pairs[:20])
    rows[2], rows[4], rows[6], rows[9] = ("", "x"), (LONG, "x"), ("x", LONG), ("x", " \u3000 ")
    rows[11] = ("x", "dog" * 1_000_000)  # so long that it is cut before it is tokenised
    file = write_tsv(tmp_path / "some.tsv", rows)
    stored, notes = tokenise((CorpusSpec((file,)),), Tokenizers.from_tokenizer(tokenizer), 100, tmp_path / "x.arrow")
    assert sorted(notes) == [
        f"{file}: skipped pairs longer than 100 tokens: 3 (lines 5, 7, 12)",
        f"{file}: skipped pairs with an empty side: 2 (lines 3, 10)",
    ]
    kept = [number for number in range(20) if number not in (2, 4, 6, 9, 11)]
    assert [stored.location(index) for index in range(len(stored))] == [f"{file}:{number + 1}" for number in kept]
    assert texts_of(stored, tokenizer) == [rows[number] for number in kept]


def test_longest_allowed_is_kept_with_its_end(tokenizer: Tokenizer, tmp_path: Path):
    text = "The dog sees 2 cats."
    tokens = len(tokenizer.encode(text))
    origins = (CorpusSpec((write_tsv(tmp_path / "one.tsv", [("x", text)]),)),)
    assert len(tokenise(origins, Tokenizers.from_tokenizer(tokenizer), tokens + 1, tmp_path / "x.arrow")[0]) == 1
    with pytest.raises(DragomanError, match=rf"one.tsv: every pair is longer than {tokens} tokens; raise"):
        tokenise(origins, Tokenizers.from_tokenizer(tokenizer), tokens, tmp_path / "x.arrow")
    blank = CorpusSpec((write_tsv(tmp_path / "blank.tsv", [("", "x"), ("x", "")]),))
    with pytest.raises(DragomanError, match=r"blank.tsv: no sentence pairs in it"):
        tokenise((*origins, blank), Tokenizers.from_tokenizer(tokenizer), 100, tmp_path / "x.arrow")


def test_texts_that_fit_are_not_cut(tokenizer: Tokenizer, tmp_path: Path):
    """Three letters of old Hangul spelling are one syllable: many characters, few tokens."""
    syllables = "\u1100\u1161\u11a8" * 30
    assert len(normalise(syllables)) == 30
    tokens = len(tokenizer.encode(syllables))
    origins = (CorpusSpec((write_tsv(tmp_path / "one.tsv", [(syllables, "x")]),)),)
    assert len(tokenise(origins, Tokenizers.from_tokenizer(tokenizer), tokens + 1, tmp_path / "x.arrow")[0]) == 1


# Pairs that are joined.


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_share_of_the_pairs_comes_once_more_with_another_behind(
    origin: CorpusSpec, tokenizer: Tokenizer, pairs: list[Pair], tmp_path: Path, share: float
):
    stored, notes = tokenise((origin,), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "joined.arrow", share)
    found = texts_of(stored, tokenizer)
    alone, joined = found[: len(pairs)], found[len(pairs) :]
    assert alone == pairs
    assert len(joined) == round(share * len(pairs))
    assert not notes
    together = {(f"{a[0]} {b[0]}", f"{a[1]} {b[1]}") for a in pairs for b in pairs if a is not b}
    assert set(joined) <= together  # both sides with the same partner
    assert not set(alone) & together  # the control
    again, _ = tokenise((origin,), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "again.arrow", share)
    assert (tmp_path / "again.arrow").read_bytes() == (tmp_path / "joined.arrow").read_bytes()
    plain, _ = tokenise((origin,), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "plain.arrow")
    assert (again.fingerprint == plain.fingerprint) == (share == 0)
    alone_in_its_corpus = CorpusSpec((write_tsv(tmp_path / "one.tsv", [("A cat.", "Eine Katze.")]),))
    assert (
        len(
            tokenise((alone_in_its_corpus,), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "one.arrow", 1.0)[0]
        )
        == 1
    )


def test_concatenated_pairs_are_never_too_long(tokenizer: Tokenizer, tmp_path: Path):
    texts = [" ".join(["dog"] * words) for words in range(1, 21)]
    origin = CorpusSpec((write_tsv(tmp_path / "growing.tsv", [(text, text) for text in texts]),))
    longest = len(tokenizer.encode(texts[-1])) + 1
    stored, notes = tokenise((origin,), Tokenizers.from_tokenizer(tokenizer), longest, tmp_path / "joined.arrow", 1.0)
    assert not notes  # nothing was left out
    assert [source for source, _ in texts_of(stored, tokenizer)[: len(texts)]] == texts
    assert len(texts) < len(stored) < 2 * len(texts)
    assert stored.lengths.max() <= longest


# Writing and damage.


def test_repetitions_and_dev_pairs_that_are_learned_from_are_told(
    tokenizer: Tokenizer, pairs: list[Pair], tmp_path: Path
):
    distinct = list(dict.fromkeys(pairs))[:40]
    swapped = [(target, source) for source, target in distinct[:5]]  # the same texts, but other pairs
    train = [*distinct[:30], *distinct[:3], *swapped]
    dev = [*distinct[27:], (distinct[0][0], distinct[1][1])]  # three of them, and a pair of two known sides
    for name, some in (("train", train), ("dev", dev), ("clean", distinct[:30]), ("unseen", distinct[30:])):
        corpus = CorpusSpec((write_tsv(tmp_path / f"{name}.tsv", some),))
        tokenise([corpus], Tokenizers.from_tokenizer(tokenizer), None, tmp_path / f"{name}.arrow")
    opened = {name: Pairs.open(tmp_path / f"{name}.arrow") for name in ("train", "dev", "clean", "unseen")}
    twice, both = repetition_notes(opened["train"], opened["dev"])
    assert twice.startswith("3 of 38 pairs are duplicates")
    assert both.startswith("3 of 14 dev pairs are in the training corpus")
    assert repetition_notes(opened["clean"], opened["unseen"]) == []  # the control


def test_dev_pairs_whose_languages_are_in_opposite_order_are_told(
    tokenizer: Tokenizer, pairs: list[Pair], tmp_path: Path
):
    distinct = list(dict.fromkeys(pairs))
    train, dev = distinct[:100], distinct[100:120]
    for name, some in (("train", train), ("dev", dev), ("swapped", [(target, source) for source, target in dev])):
        spec = CorpusSpec((write_tsv(tmp_path / f"{name}.tsv", some),))
        tokenise([spec], Tokenizers.from_tokenizer(tokenizer), None, tmp_path / name)
    opened = {name: Pairs.open(tmp_path / name) for name in ("train", "dev", "swapped")}
    assert len(direction_notes(opened["train"], opened["swapped"])) == 1
    assert direction_notes(opened["train"], opened["dev"]) == []  # the control


def test_failed_writing_leaves_the_old_file(stored: Pairs, origin: CorpusSpec, tokenizer: Tokenizer, tmp_path: Path):
    before = (tmp_path / "toy.arrow").read_bytes()
    Path(origin.files[0]).write_bytes(Path(origin.files[0]).read_bytes() + b"no tab\n")
    with pytest.raises(DragomanError, match=r"toy.tsv:201"):
        tokenise((origin,), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "toy.arrow")
    assert (tmp_path / "toy.arrow").read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["toy.arrow", "toy.tsv"]


def test_file_that_cannot_be_written_is_named(origin: CorpusSpec, tokenizer: Tokenizer, tmp_path: Path):
    with pytest.raises(DragomanError, match=r"toy.tsv/x.arrow: could not be written"):
        tokenise((origin,), Tokenizers.from_tokenizer(tokenizer), None, Path(origin.files[0]) / "x.arrow")


def cut_short(data: bytes) -> bytes:
    return data[: len(data) // 2]


def other_columns(_: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema({"source": pa.int32()}, {"corpora": "[]"})) as writer:
        writer.write_batch(pa.record_batch([pa.array([1], pa.int32())], ["source"]))
    return sink.getvalue().to_pybytes()


def with_another_id(data: bytes) -> bytes:
    middle = len(data) // 4
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [cut_short, other_columns, with_another_id, lambda data: b"", lambda data: b"ARROW1\0\0", lambda data: data[8:]],
)
def test_damage_is_seen(stored: Pairs, tmp_path: Path, damage: Callable[[bytes], bytes]):
    file = tmp_path / "toy.arrow"
    assert Pairs.open(file).fingerprint == stored.fingerprint  # so it is the damage that is refused
    data = file.read_bytes()
    file.unlink()  # not under the feet of the one that is mapped
    file.write_bytes(damage(data))
    with pytest.raises(DragomanError, match=r"toy.arrow: damaged; delete it"):
        Pairs.open(file)
    file.unlink()
    with pytest.raises(DragomanError, match=r"toy.arrow: no such file"):
        Pairs.open(file)


@pytest.mark.parametrize(
    ("field", "value"), [("weight", math.nan), ("weight", 1e300), ("weight", -1.0), ("share", math.nan)]
)
def test_impossible_weight_is_refused_despite_a_right_checksum(
    origin: CorpusSpec, tokenizer: Tokenizer, tmp_path: Path, field: str, value: float
):
    other = CorpusSpec(origin.files)
    assert len(tokenise((origin, other), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "x.arrow")[0])
    object.__setattr__(other, field, value)  # its own checks would refuse it
    with pytest.raises(DragomanError, match=r"x.arrow: damaged"):
        tokenise((origin, other), Tokenizers.from_tokenizer(tokenizer), None, tmp_path / "x.arrow")


def test_share_of_an_epoch_without_any_pair_is_refused():
    corpora = [{"weight": 1.0}, {"weight": 1.0, "share": 0.5}]
    assert weights_of(corpora, [6, 3]) == [1.0, 2.0]
    with pytest.raises(ValueError, match="a corpus without pairs"):
        weights_of(corpora, [6, 0])


def test_share_that_needs_an_impossible_weight_is_refused_by_name():
    for share, possible in ((0.99, True), (0.99999, False), (1e-7, False)):
        corpora = [{"name": "large.tsv", "weight": 1.0}, {"name": "few.tsv", "weight": 1.0, "share": share}]
        refused = pytest.raises(
            DragomanError, match=rf"^few.tsv: share={share:g} takes each of its pairs .* 0.001 to 1,000"
        )
        with nullcontext() if possible else refused:
            assert weights_of(corpora, [1000, 100])[1] == pytest.approx(990)


def test_changed_byte_anywhere_is_seen_or_changes_nothing_that_is_learned(
    pairs: list[Pair], tokenizer: Tokenizer, tmp_path: Path
):
    """Not checked, a length in the description of a chunk lets the library read beyond the file: it crashes."""
    names = ("a.tsv", 1.0, pairs[:20]), ("b.tsv", 2.0, pairs[20:40])
    origins = [CorpusSpec((write_tsv(tmp_path / name, rows),), weight) for name, weight, rows in names]
    stored, _ = tokenise(origins, Tokenizers.from_tokenizer(tokenizer), 100, tmp_path / "x.arrow")
    data, file, seen = (tmp_path / "x.arrow").read_bytes(), tmp_path / "changed.arrow", 0
    random = Random(1)
    anywhere = [(random.randrange(len(data)), random.randrange(1, 256)) for _ in range(200)]
    descriptions = [(place, 0x80) for place in range(2000)]
    digits = [(place, 1) for place, byte in enumerate(data) if byte == ord("1")]  # the number of a corpus, among others
    for place, change in anywhere + descriptions + digits:
        file.unlink(missing_ok=True)  # not under the feet of the one that is mapped
        file.write_bytes(data[:place] + bytes([data[place] ^ change]) + data[place + 1 :])
        try:
            found = Pairs.open(file)
        except DragomanError:
            seen += 1
            continue
        assert (found.fingerprint, found.repeats, found.max_length) == (
            stored.fingerprint,
            stored.repeats,
            stored.max_length,
        )
        assert same(found.batch(np.arange(len(found))), stored.batch(np.arange(len(stored))))
    assert seen > 1000


def memory(work: Callable[[], object]) -> int:
    """The most bytes that Python, NumPy and Arrow hold at once because of some work; what is mapped does not count."""
    tracemalloc.start()
    arrow = pa.total_allocated_bytes()
    try:
        result = work()
        return tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - arrow
    finally:
        tracemalloc.stop()
        del result


@pytest.fixture(scope="module")
def megabytes(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenised corpus of 6 MB."""
    folder, text = tmp_path_factory.mktemp("megabytes"), "a" * 250
    file = write_tsv(folder / "long.tsv", [(text, text)] * 6000)
    tokenise((CorpusSpec((file,)),), Tokenizers.from_tokenizer(tokenizer), None, folder / "x.arrow")
    return folder / "x.arrow"


def test_reading_keeps_only_lengths_in_memory(megabytes: Path):
    def read() -> Pairs:
        stored = Pairs.open(megabytes)
        for start in range(0, len(stored), 50):
            stored.batch(np.arange(start, start + 50))
        return stored

    size = megabytes.stat().st_size
    assert memory(read) < size / 8
    assert memory(megabytes.read_bytes) > size  # the control
    assert memory(lambda: pa.ipc.open_file(pa.OSFile(str(megabytes))).read_all()) > size / 2


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_file_does_not_stay_in_memory_either(megabytes: Path, monkeypatch: pytest.MonkeyPatch):
    size = megabytes.stat().st_size

    def mapped() -> int:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.split("RssFile:")[1].split()[0])

    def growth(rows: int) -> int:
        monkeypatch.setattr(dataset, "READS_BEFORE_RELEASE", rows)
        stored = Pairs.open(megabytes)
        before = mapped()
        for index in range(len(stored)):
            stored.ids(index)
        return mapped() - before

    assert growth(rows=100) < size / 3
    assert growth(rows=1_000_000) > size / 2  # the control
