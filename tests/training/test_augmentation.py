"""Pairs as a training shows them: varied as people type, and in other subwords."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import run_config, run_training, state, write_tsv

from dragoman.config import TrainingConfig
from dragoman.data.batches import Batch
from dragoman.data.corpus import Pair
from dragoman.data.dataset import Pairs, tokenise
from dragoman.data.spec import CorpusSpec
from dragoman.data.tokenizer import PAD, Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError
from dragoman.text.variations import TRAINED, VARIATIONS
from dragoman.training.augmentation import JOINING, NONE, Augmentation, choose_variations

Store = Callable[..., Pairs]


@pytest.fixture
def origin(tmp_path: Path, pairs: list[Pair]) -> CorpusSpec:
    return CorpusSpec((write_tsv(tmp_path / "toy.tsv", pairs),))


@pytest.fixture
def store(origin: CorpusSpec, tmp_path: Path) -> Store:
    def make(tokenizer: Tokenizer, max_length: int | None = None, **of_corpus: Any) -> Pairs:
        spec = replace(origin, **of_corpus)
        return tokenise((spec,), Tokenizers.from_tokenizer(tokenizer), max_length, tmp_path / "x.arrow")[0]

    return make


def augmentation(stored: Pairs, tokenizer: Tokenizer, **settings: Any) -> Augmentation:
    return Augmentation(stored, Tokenizers.from_tokenizer(tokenizer), TrainingConfig(**settings))


def same(one: Batch, other: Batch) -> bool:
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in ("source", "target", "labels", "real"))


# BPE-dropout.


def test_dropout_changes_pieces_and_no_text(store: Store, tokenizer: Tokenizer):
    stored, indices = store(tokenizer), np.arange(20)
    plain, dropped = (augmentation(stored, tokenizer, bpe_dropout=rate).batch(indices, 0, (1, 0)) for rate in (0, 0.3))
    for ours, theirs in ((dropped.source, plain.source), (dropped.labels, plain.labels)):
        assert [*map(tokenizer.decode, ours.tolist())] == [*map(tokenizer.decode, theirs.tolist())]
    assert dropped.tokens > plain.tokens
    assert same(stored.batch(indices), plain)


def test_dropout_depends_on_the_numbers_and_on_the_pair_alone(store: Store, tokenizer: Tokenizer):
    dropping = augmentation(store(tokenizer), tokenizer, bpe_dropout=0.3)

    def pieces(indices: list[int], pair: int, seeds: tuple[int, ...]) -> list[int]:
        row = dropping.batch(np.array(indices), 0, seeds).source[indices.index(pair)]
        return row[row != PAD].tolist()

    assert pieces([4, 5, 6], 5, (1, 2)) == pieces([9, 5], 5, (1, 2))
    assert len({tuple(pieces([5], 5, (1, step))) for step in range(10)}) > 5


def test_dropout_cuts_the_same_sentence_in_each_pair_in_its_own_way(tokenizer: Tokenizer, store: Store, tmp_path: Path):
    same_pairs = write_tsv(tmp_path / "same.tsv", [("The dog sees 2 cats.", "x")] * 20)
    stored = store(tokenizer, files=(same_pairs,))
    batch = augmentation(stored, tokenizer, bpe_dropout=0.3).batch(np.arange(20), 0, (1,))
    assert len({tuple(row) for row in batch.source.tolist()}) > 10


def test_tag_stays_in_front_of_the_source(store: Store, pairs: list[Pair]):
    tagged = Tokenizer.train([text for pair in pairs for text in pair], tags=("news", "med"))
    stored = store(tagged, tag="med")
    for settings in ({"bpe_dropout": 0.5}, {"robust": 0.9}):
        batch = augmentation(stored, tagged, **settings).batch(np.arange(len(stored)), 0, (1,))
        assert set(batch.source[:, 0].tolist()) == {tagged.tags["med"]}
        assert not (batch.source[:, 1:] == tagged.tags["med"]).any()


@pytest.mark.parametrize("settings", [{"bpe_dropout": 0.9}, {"robust": 0.99}])
def test_sentences_do_not_become_too_long(store: Store, tokenizer: Tokenizer, settings: dict[str, float]):
    """A model with learned positions would refuse it."""
    widest = []
    for longest in (12, None):
        stored = store(tokenizer, longest)
        batch = augmentation(stored, tokenizer, **settings).batch(np.arange(len(stored)), 0, (1,))
        widest.append(max(batch.source.shape[1], batch.labels.shape[1]))
    assert widest[0] <= 12 < widest[1]


# Variations.


def test_share_of_the_pairs_is_varied_in_each_epoch_anew(store: Store, tokenizer: Tokenizer):
    stored = store(tokenizer)
    settings = TrainingConfig(robust=0.3)
    epochs = [choose_variations(stored, settings, epoch) for epoch in range(20)]
    chosen = np.concatenate(epochs)
    assert abs((chosen != NONE).mean() - 0.3) < 0.03
    assert len({tuple(kinds) for kinds in epochs}) == 20
    counts = Counter(chosen[chosen != NONE].tolist())
    total = sum(VARIATIONS[name].weight for name in TRAINED)
    for number, name in enumerate(TRAINED):
        assert abs(counts[number] / counts.total() - VARIATIONS[name].weight / total) < 0.05
    assert all(kinds[-1] not in JOINING for kinds in epochs)  # no pair follows it


def test_varied_batch_depends_on_seed_epoch_and_pair_alone(store: Store, tokenizer: Tokenizer):
    stored = store(tokenizer)
    varying = augmentation(stored, tokenizer, robust=0.5)

    def rows(indices: list[int], epoch: int) -> list[str]:
        return [*map(tokenizer.decode, varying.batch(np.array(indices), epoch, (1, epoch)).source.tolist())]

    whole = rows([*range(60)], 3)
    assert rows([*range(59, -1, -1)], 3)[::-1] == whole == rows([*range(30)], 3) + rows([*range(30, 60)], 3)
    assert rows([*range(60)], 4) != whole
    plain = [tokenizer.decode(stored.ids(index)[0]) for index in range(60)]
    assert 0.2 < sum(ours != theirs for ours, theirs in zip(whole, plain, strict=True)) / 60 < 0.8


def test_planned_lengths_are_those_of_joined_pairs(store: Store, tokenizer: Tokenizer):
    stored = store(tokenizer)
    varying = augmentation(stored, tokenizer, robust=0.9)
    kinds, lengths = choose_variations(stored, varying.settings, 0), varying.lengths(0)
    joined = [index for index, kind in enumerate(kinds) if kind in JOINING]
    assert joined
    for index in range(len(stored)):
        source, target = stored.ids(index)
        expected = len(source) + 1, len(target) + 1
        if index in joined:
            following = stored.ids(index + 1)
            expected = len(source) + len(following[0]) + 1, len(target) + len(following[1]) + 1
            text = tokenizer.decode(varying.batch(np.array([index]), 0, (1,)).source[0].tolist())
            assert text.endswith(tokenizer.decode(following[0]))
        assert tuple(lengths[index]) == expected
    assert augmentation(stored, tokenizer).lengths(0) is stored.lengths


def test_varied_training_goes_on_to_the_same_bits(corpus: tuple[str, str], tmp_path: Path):
    settings = {"robust": 0.4, "max_steps": 12, "validate_every": 6}
    run_training(run_config(corpus, tmp_path / "whole", **settings))
    for last in (5, 12):
        run_training(run_config(corpus, tmp_path / "parts", **{**settings, "max_steps": last}))
    run_training(run_config(corpus, tmp_path / "workers", workers=2, **settings))
    run_training(run_config(corpus, tmp_path / "without", **{**settings, "robust": 0.0}))
    whole = state(tmp_path / "whole")
    assert state(tmp_path / "parts") == state(tmp_path / "workers") == whole
    assert state(tmp_path / "without") != whole


def test_share_is_a_fraction():
    with pytest.raises(DragomanError, match="robust"):
        TrainingConfig(robust=1.5)
