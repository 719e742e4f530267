"""Batches: every pair once, never too large, the same each time."""

import itertools
import random
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.data.batches import (
    Batch,
    Plan,
    Repeat,
    batches_by_length,
    plan_batches,
    source_batch,
    split_batch,
    weighted_indices,
)
from dragoman.data.tokenizer import BOS, EOS, PAD

LONGEST = 40

corpora = st.lists(st.tuples(st.integers(1, LONGEST), st.integers(1, LONGEST)), max_size=80).map(
    lambda rows: np.array(rows, dtype=np.int64).reshape(-1, 2)
)
sizes = st.integers(LONGEST, 200)
seeds = st.integers(0, 3)
ids = st.lists(st.integers(EOS + 1, 99), max_size=7)


def corpus(pairs: int = 300) -> np.ndarray:
    return np.random.default_rng(0).integers(1, LONGEST, (pairs, 2))


def tokens(lengths: np.ndarray, batch: np.ndarray) -> int:
    """Of the larger side, padding included."""
    return int((lengths[batch].max(axis=0) * len(batch)).max())


def as_lists(batches: Plan) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@settings(max_examples=300)
@given(corpora, sizes, seeds, seeds)
def test_pairs_are_in_one_batch_each_and_batches_within_the_limit(
    lengths: np.ndarray, size: int, seed: int, epoch: int
):
    batches = plan_batches(lengths, size, seed, epoch)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(0 < tokens(lengths, batch) <= size for batch in batches)
    # A resumed run asks a later epoch how often to validate, and must get the same answer.
    assert len(batches) == len(plan_batches(lengths, size, 0, 0))
    if len(lengths):
        heaviest = batches.largest_batch(lengths)
        assert heaviest.tolist() in as_lists(batches)
        assert lengths[heaviest].sum() == max(lengths[batch].sum() for batch in batches)
        weighted = plan_batches(lengths, size, seed, epoch, [Repeat(0, len(lengths), 2.5)])
        assert all(0 < tokens(lengths, batch) <= size for batch in weighted)


@given(corpora, sizes, seeds, seeds)
def test_plan_depends_on_its_arguments_alone(lengths: np.ndarray, size: int, seed: int, epoch: int):
    first = as_lists(plan_batches(lengths, size, seed, epoch))
    np.random.seed(7)
    random.seed(7)
    torch.manual_seed(7)
    assert as_lists(plan_batches(lengths.copy(), size, seed, epoch)) == first


@pytest.mark.parametrize("other", [(1, 1), (2, 0)], ids=["epoch", "seed"])
def test_another_epoch_or_seed_puts_other_pairs_together(other: tuple[int, int]):
    lengths = corpus()
    one, two, again = (
        {frozenset(batch.tolist()) for batch in plan_batches(lengths, 200, *which)} for which in [(1, 0), other, (1, 0)]
    )
    assert len(one & two) < len(one) / 2
    assert one == again


def test_batches_come_in_a_random_order_of_length_that_differs_by_epoch():
    """Short sentences must not always come first, nor the heaviest batch."""
    lengths = corpus()
    plans = [plan_batches(lengths, 200, 1, epoch) for epoch in (0, 1)]
    widths = [[lengths[batch].max() for batch in batches] for batches in plans]
    assert widths[0] != widths[1]
    assert widths[0] != sorted(widths[0])
    assert lengths[plans[0].largest_batch(lengths)].sum() > lengths[plans[0][0]].sum()


def overlaps(lengths: np.ndarray, batches: Plan | list[np.ndarray]) -> int:
    """Count the batches with a sentence that is longer than the shortest one of the next longer batch."""
    widths = sorted((lengths[batch].max(axis=1).min(), lengths[batch].max(axis=1).max()) for batch in batches)
    return sum(below > least for (_, below), (least, _) in itertools.pairwise(widths))


@given(corpora, sizes, seeds, seeds)
def test_pairs_of_similar_length_go_together(lengths: np.ndarray, size: int, seed: int, epoch: int):
    assert overlaps(lengths, plan_batches(lengths, size, seed, epoch)) == 0


def test_random_batches_would_mix_lengths_and_break_the_limit():
    """The control for the tests above; to fill batches by their real tokens, without padding, would break it, too."""
    lengths, size = corpus(), 100
    order = np.random.default_rng(0).permutation(len(lengths))
    assert overlaps(lengths, np.array_split(order, 50)) > 10
    batch = order[: np.searchsorted(np.cumsum(lengths[order].max(axis=1)), size)]
    assert lengths[batch].sum(axis=0).max() <= size < tokens(lengths, batch)


def test_pair_longer_than_a_batch_is_alone_and_enlarges_no_other():
    lengths = np.array([(20, 3), (5, 41), (100, 1), (20, 20), (7, 15)])
    for epoch in range(5):
        batches = as_lists(plan_batches(lengths, 40, 0, epoch))
        assert [1] in batches
        assert [2] in batches
        assert max(tokens(lengths, batch) for batch in batches if batch not in ([1], [2])) == 40


def test_planning_a_million_pairs_takes_no_time():
    lengths = np.random.default_rng(0).integers(1, 100, (1_000_000, 2), dtype=np.int32)
    began = time.process_time()
    assert sum(map(len, plan_batches(lengths, 4096, 1, 0))) == len(lengths)
    assert time.process_time() - began < 2


# Weights.


def counts(lengths: np.ndarray, seed: int, epochs: range, repeats: list[Repeat]) -> np.ndarray:
    """How often each pair comes in those epochs together."""
    batches = (batch for epoch in epochs for batch in plan_batches(lengths, 200, seed, epoch, repeats))
    return np.bincount(np.concatenate(list(batches)), minlength=len(lengths))


def test_weight_one_is_every_pair_once():
    lengths = corpus()
    for repeats in ([Repeat(0, 300, 1.0)], [Repeat(0, 100, 1.0), Repeat(100, 300, 1.0)]):
        assert as_lists(plan_batches(lengths, 200, 1, 2, repeats)) == as_lists(plan_batches(lengths, 200, 1, 2))


@given(st.sampled_from([2.0, 3.0, 0.5, 0.25, 1.5, 0.1, 2.3]), st.integers(2, 40), seeds, st.integers(0, 30))
def test_over_any_epochs_each_pair_comes_equally_often(weight: float, pairs: int, seed: int, first: int):
    found = counts(corpus(pairs), seed, range(first, first + 7), [Repeat(0, pairs, weight)])
    assert found.max() - found.min() <= 1
    assert abs(found.sum() - 7 * weight * pairs) <= 1


def test_half_weight_corpus_is_split_between_two_epochs():
    lengths, halves = corpus(), [Repeat(0, 300, 0.5)]
    first, second = (counts(lengths, 1, range(epoch, epoch + 1), halves) for epoch in (0, 1))
    assert first.sum() == second.sum() == 150
    assert (first + second == 1).all()
    # Which half it is, the seed decides; the next two epochs bring the same halves.
    assert (counts(lengths, 1, range(2, 3), halves) == first).all()
    assert (counts(lengths, 2, range(0, 1), halves) != first).any()


def test_weight_of_each_corpus_is_its_own():
    repeats = [Repeat(0, 100, 2.0), Repeat(100, 200, 0.5), Repeat(200, 300, 1.0)]
    found = counts(corpus(), 1, range(2), repeats)
    assert [set(found[start:stop].tolist()) for start, stop, _ in repeats] == [{4}, {1}, {2}]


@given(st.lists(st.floats(0.01, 3), min_size=2, max_size=40), st.sampled_from([1.0, 0.5, 2.3]), seeds)
def test_pair_comes_as_often_as_its_weight_says(weights: list[float], of_corpus: float, seed: int):
    drawn = np.zeros(len(weights))
    for epoch in range(20):
        drawn += np.bincount(
            weighted_indices([Repeat(0, len(weights), of_corpus)], seed, epoch, np.float32(weights)),
            minlength=len(weights),
        )
        assert (abs(drawn - (epoch + 1) * of_corpus * np.float32(weights)) < 1).all()


def test_pairs_of_one_weight_do_not_all_come_in_the_same_epoch():
    weights = np.full(100, 0.25, np.float32)
    epochs = [weighted_indices([Repeat(0, 100, 1.0)], 1, epoch, weights).tolist() for epoch in range(4)]
    assert [len(epoch) for epoch in epochs] == [25] * 4
    assert sorted(itertools.chain(*epochs)) == list(range(100))
    assert epochs != [weighted_indices([Repeat(0, 100, 1.0)], 2, epoch, weights).tolist() for epoch in range(4)]


@given(st.integers(1, 50), st.integers(1, 9))
def test_batch_is_split_into_consecutive_parts_of_like_size(pairs: int, parts: int):
    found = split_batch(np.arange(pairs), parts)
    assert np.concatenate(found).tolist() == list(range(pairs))
    assert len(found) == parts
    assert max(map(len, found)) - min(map(len, found)) <= 1


# Batches.


def test_batch_is_the_same_from_lists_and_from_arrays():
    rows = [[5, 6, 7], [], [8]]
    lists, arrays = (Batch.from_pairs(some, some[::-1]) for some in (rows, [np.array(row, np.uint16) for row in rows]))
    for name in ("source", "target", "labels", "real"):
        assert torch.equal(getattr(lists, name), getattr(arrays, name))
    assert lists.source.dtype == lists.target.dtype == lists.labels.dtype == torch.int64


def test_batch_goes_to_a_device_as_a_whole():
    moved = Batch.from_pairs([[5]], [[6, 7]]).to(torch.device("meta"))
    assert {t.device.type for t in (moved.source, moved.target, moved.labels, moved.real)} == {"meta"}


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=6))
def test_targets_are_labels_shifted_right_and_all_else_is_padding(
    rows: list[tuple[list[int], list[int]]],
):
    batch = Batch.from_pairs([source for source, _ in rows], [target for _, target in rows])
    assert batch.tokens == sum(len(target) + 1 for _, target in rows)
    assert batch.target.shape == batch.labels.shape == batch.real.shape
    for row, (_, target) in enumerate(rows):
        real = batch.real[row]
        assert batch.target[row][real].tolist() == [BOS, *target]
        assert batch.labels[row][real].tolist() == [*target, EOS]
    assert not batch.target[~batch.real].any()
    assert not batch.labels[~batch.real].any()
    assert (batch.labels[batch.real] != PAD).all()


@given(st.lists(ids, min_size=1, max_size=6))
def test_sources_end_with_eos_and_padding(rows: list[list[int]]):
    batch = source_batch(rows)
    longest = max(len(row) for row in rows)
    assert batch.tolist() == [[*row, EOS, *[PAD] * (longest - len(row))] for row in rows]


def test_search_batches_are_as_full_as_eos_allows():
    sources = [[7] * length for length in (3, 3, 3, 3, 9)]
    assert list(batches_by_length(range(5), sources, 9)) == [[0, 1], [2, 3], [4]]  # 2 * (3 + 1) <= 9 < 3 * (3 + 1)
    assert list(batches_by_length(range(5), sources, 12)) == [[0, 1, 2], [3], [4]]
