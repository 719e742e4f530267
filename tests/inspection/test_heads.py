"""The statistics of hand-made heads are known; those of a sample are means over all its queries."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from test_inspection import TEXT, TRANSLATION, inspected, make
from torch import Tensor

from dragoman.inspection.heads import HeadStatistics, head_statistics
from dragoman.inspection.inspect import inspect
from dragoman.inspection.inspection import KINDS

N, T = inspected().encoder.size(-1), inspected().decoder.size(-1)


def statistics_of(kind: str, *heads: Tensor) -> list[HeadStatistics]:
    """Of hand-made heads of one layer, (queries, keys) each."""
    maps: Any = dict.fromkeys(KINDS, torch.empty(0, 0, 0, 0)) | {kind: torch.stack(heads)[None]}
    return head_statistics([dataclasses.replace(inspected(), **maps)])


def test_head_statistics_where_a_head_looks_at_its_own_position():
    (head,) = statistics_of("encoder", torch.eye(N))
    assert (head.distance, head.offset, head.entropy, head.normalised_entropy, head.max_weight) == (0, 0, 0, 0, 1)
    assert (head.same, head.previous, head.next) == (1, 0, 0)
    assert head.pattern == "same"


def test_head_statistics_where_a_head_looks_everywhere_alike():
    (head,) = statistics_of("encoder", torch.full((N, N), 1 / N))
    assert head.distance == pytest.approx((N**2 - 1) / (3 * N), rel=1e-6)
    assert head.offset == pytest.approx(0, abs=1e-6)
    assert head.entropy == pytest.approx(math.log(N), rel=1e-6)
    assert head.normalised_entropy == pytest.approx(1, rel=1e-6)
    shares = [head.max_weight, head.same, head.previous, head.next, head.special]
    assert shares == pytest.approx([1 / N] * 5, rel=1e-6)
    signs = sum(label in {".", "␣"} for label in inspected().encoder_tokens)
    assert head.punctuation == pytest.approx(signs / N, rel=1e-6)
    assert 2 <= signs < N
    assert head.diversity is None
    assert head.pattern == ""


def test_tokens_that_the_decoder_may_not_see_count_as_absent():
    uniform = torch.ones(T, T).tril()
    (head,) = statistics_of("decoder", uniform / uniform.sum(-1, keepdim=True))
    assert head.entropy == pytest.approx(math.log(math.factorial(T)) / T, rel=1e-6)  # ln 1, ln 2, ... ln n
    assert head.normalised_entropy == pytest.approx(1, rel=1e-6)  # of those that have a choice
    assert head.next is None
    assert head.offset == pytest.approx(-head.distance)
    assert head.distance == pytest.approx((T - 1) / 4, rel=1e-6)  # query i has i keys before it: i/2 on average
    harmonic = sum(1 / i for i in range(1, T + 1)) / T
    assert (head.special, head.same) == pytest.approx((harmonic, harmonic), rel=1e-6)
    assert head.previous == pytest.approx((harmonic * T - 1) / (T - 1), rel=1e-6)  # the first has none before it


def test_cross_attention_distances_are_in_sentence_lengths_without_a_pattern_by_position():
    first = torch.zeros(T, N)
    first[:, 0] = 1
    (head,) = statistics_of("cross", first)
    assert head.distance == -head.offset == pytest.approx((T - 1) / (2 * T), rel=1e-6)
    # In cross-attention, the token at the same position is hardly ever the same word.
    diagonal = torch.eye(T, N)
    diagonal[min(T, N) :, 0] = 1
    (head,) = statistics_of("cross", diagonal)
    assert head.same is not None
    assert head.same > 0.5
    assert head.pattern == ""


def test_head_diversity_is_how_far_apart_heads_are():
    eye, first = torch.eye(N), torch.zeros(N, N)
    first[:, 0] = 1

    def diversity(*heads: Tensor) -> list[float | None]:
        return [head.diversity for head in statistics_of("encoder", *heads)]

    assert diversity(eye, eye, eye) == [0, 0, 0]
    distance = (N - 1) / N  # only the first query agrees
    assert diversity(eye, first) == pytest.approx([distance, distance])
    assert diversity(eye, eye, first) == pytest.approx([distance / 2, distance / 2, distance])


def test_head_patterns_planted_in_a_model_are_found():
    """The key that each query looks at, where there is one, else the query's own."""
    targets = {"previous": lambda i: max(i - 1, 0), "next": lambda i: min(i + 1, N - 1), "same": lambda i: i}
    targets["special"] = lambda i: N - 1  # EOS
    patterns = torch.stack([torch.eye(N)[[target(i) for i in range(N)]] for target in targets.values()])
    translator = make()

    def kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        return patterns @ value

    translator.model.encoder[1].attention.kernel = kernel
    inspection = inspect(translator, TEXT, TRANSLATION)
    heads = {(head.kind, head.layer, head.head): head for head in head_statistics([inspection])}
    planted = [heads["encoder", 2, head] for head in range(1, 5)]
    assert [head.pattern for head in planted] == list(targets)
    assert [heads["encoder", 1, head].pattern for head in range(1, 5)] == [""] * 4  # the control: heads as they came
    assert planted[0].previous == planted[1].next == planted[3].special == 1
    assert planted[0].offset < 0 < planted[1].offset
    # The labels of a map agree: the token before, the token after, the token itself, EOS.
    for head, target in enumerate(targets.values(), start=1):
        shown = inspection.map("encoder", 2, head, subwords=True)
        for i in range(N):
            assert shown.columns[int(shown.weights[i].argmax())] == inspection.source.tokens[target(i)].label


def test_head_statistics_of_a_sample_are_means_over_all_queries():
    translator = make()
    pairs = [(TEXT, TRANSLATION), ("The dog", "개"), ("The bear likes 2 red cats.", "곰이")]
    pooled = head_statistics(inspect(translator, source, target) for source, target in pairs)
    single = [head_statistics([inspect(translator, source, target)]) for source, target in pairs]
    assert {head.sentences for head in pooled} == {3}
    for index, head in enumerate(pooled):
        parts = [heads[index] for heads in single]
        assert (head.kind, head.layer, head.head) == (parts[0].kind, parts[0].layer, parts[0].head)
        assert head.queries == sum(part.queries for part in parts)
        for name in ("entropy", "distance", "offset", "max_weight", "same", "special", "punctuation", "diversity"):
            mean = sum(getattr(part, name) * part.queries for part in parts) / head.queries
            assert getattr(head, name) == pytest.approx(mean, abs=1e-9)
    assert len(pooled) == sum(len(inspected().maps(kind)) * 4 for kind in KINDS)
