"""What a memory adds to the model's probabilities, and which of its pairs are near a text."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from dragoman.memory import ApprovedPair
from dragoman.memory.matches import COMPARED, Matches
from dragoman.memory.phrases import Likeness
from dragoman.memory.recall import Neighbours, SourceRecall

TOKENS, SHARES, WEIGHT = [[3, 1]], [[0.75, 0.25]], 0.4


def near(vectors: Any, rows: Any, likeness: Likeness) -> Neighbours:
    """Stand in for the search: one vector, two neighbours."""
    assert vectors.tolist() == [[2.0, 2.0]]
    assert rows.tolist() == [1]
    nothing = np.zeros((1, 2), np.float32)
    shares = np.array(SHARES)
    return Neighbours(nothing, np.array(TOKENS), np.zeros((1, 2), np.int64), shares, shares, np.array([WEIGHT]))


def test_rows_of_other_sources_keep_their_bits():
    recollection = SimpleNamespace(
        parts=["some"], weighting=SimpleNamespace(trust=lambda known: known), neighbours=near
    )
    recall = SourceRecall(cast(Any, recollection), Likeness(np.array([0.0, 1.0]), np.zeros((2, 1), np.float32)))
    before = torch.log_softmax(torch.linspace(-3, 3, 15).reshape(3, 5), 1)
    vectors = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    mixed = recall.mix(before.clone(), vectors, torch.tensor([0, 1, 0]))
    assert torch.equal(mixed[[0, 2]], before[[0, 2]])
    expected = (1 - WEIGHT) * before[1].exp()
    expected[TOKENS[0]] += WEIGHT * torch.tensor(SHARES[0])
    assert mixed[1].exp().tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_pairs_with_rare_words_are_compared_first():
    common = [ApprovedPair(f"the of and a{n} b{n} c{n}", "x") for n in range(2 * COMPARED)]
    matches = Matches([*common, ApprovedPair("zebra quagga", "y")])
    matches.refresh()
    match = matches.nearest("the of and zebra quagga")
    assert match is not None
    assert match.pair.target == "y"
    assert matches.nearest("nothing alike") is None


def test_pairs_that_come_during_a_search_wait_for_the_next():
    matches = Matches([ApprovedPair("one old dog", "x")])
    matches.refresh()
    matches.by_word["dog"].append(7)
    match = matches.nearest("an old dog")
    assert match is not None
    assert match.number == 0
