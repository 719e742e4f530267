"""The lab's experiments on attention: what their numbers are made from."""

import dataclasses
import math

import pytest
import torch
from lab_findings import HARDLY_ANY, experiment, findings
from torch import Tensor

from dragoman.config import AttentionConfig
from dragoman.model.attention import Additive, MultiHeadAttention, fused_attention, unscaled_attention
from dragoman.model.transformer import Transformer
from dragoman_lab import (
    additive,
    drawing,
    heads,
    masks,
    order,
    reversal_setup,
    scaling,
    unscaled_training,
)
from dragoman_lab.experiment import Effort
from dragoman_lab.tasks import small
from dragoman_lab.worked_examples import examples, shapes_table

EXAMPLES = {example.name: example for example in examples()}


def near(found, expected, within: float) -> None:
    torch.testing.assert_close(
        torch.as_tensor(found, dtype=torch.float64), torch.as_tensor(expected, dtype=torch.float64), atol=within, rtol=0
    )


def test_same_seed_finds_the_same():
    """But for what is a time."""
    again = experiment("order").run(Effort((1,), HARDLY_ANY))
    assert again.tables == findings("order").tables
    assert findings("order", seed=2).tables != again.tables


# The worked examples.


@pytest.mark.parametrize("name", EXAMPLES)
def test_stages_follow_each_from_the_one_before(name: str):
    """Recomputed number by number."""
    e, trace = EXAMPLES[name], EXAMPLES[name].trace
    scale = e.scale or 1 / math.sqrt(e.query.size(1))
    for i, query in enumerate(e.query.tolist()):
        for j, key in enumerate(e.key.tolist()):
            near(trace.scores[i, j], sum(a * b for a, b in zip(query, key, strict=True)), 1e-9)
            near(trace.scaled[i, j], float(trace.scores[i, j]) * scale, 1e-9)
            allowed = e.mask is None or bool(e.mask[i, j])
            assert float(trace.masked[i, j]) == (float(trace.scaled[i, j]) if allowed else -math.inf)
        shares = [math.exp(score) for score in trace.masked[i].tolist()]
        near(trace.weights[i], [share / sum(shares) for share in shares], 1e-12)
        for column in range(e.value.size(1)):
            mixed = sum(w * v for w, v in zip(trace.weights[i].tolist(), e.value[:, column].tolist(), strict=True))
            near(trace.output[i, column], mixed, 1e-9)


def test_i_am_dog_has_its_numbers_and_what_follows_from_them():
    trace = EXAMPLES["i-am-dog"].trace
    near(trace.scores, [[56.8, 12.1, 43.5], [30.4, 100.8, 24.2], [11.11, 7.34, 20.23]], 1e-9)
    near(trace.scaled, trace.scores / 8, 1e-12)
    near(trace.scores.var(-1, correction=0)[:2], [351.2, 1206.9], 0.05)
    near(trace.scores.var(-1, correction=0)[2], 29.28, 0.005)
    near(trace.scaled.var(-1, correction=0)[:2], [5.488, 18.858], 0.0005)
    near(trace.scaled.var(-1, correction=0)[2], 0.4575, 0.00005)
    near(trace.weights, [[0.8379, 0.0031, 0.1589], [0.0002, 0.9998, 0.0001], [0.2105, 0.1314, 0.6581]], 0.00005)


@pytest.mark.parametrize("d_v", [3, 5])
def test_thinking_machines_has_its_shapes(d_v: int):
    shapes = {row[1]: row[2:] for row in shapes_table().rows if row[0] == f"4 x {d_v}"}
    matrices = {"X": (2, 4), "W^Q": (4, 3), "W^K": (4, 3), "W^V": (4, d_v)}
    words = {"Q": (2, 3), "K": (2, 3), "V": (2, d_v), "Q Kᵀ": (2, 2), "weights": (2, 2), "output": (2, d_v)}
    assert shapes == matrices | words
    example = EXAMPLES[f"thinking-machines-{d_v}"]
    assert [t.shape for t in (example.query, example.value, example.trace.output)] == [(2, 3), (2, d_v), (2, d_v)]


# Scaling.


def test_true_softmax_of_the_triples():
    rows = [row[3:] for row in scaling.triples_table().rows]
    near(rows[0], (0.7311, 0, 0.2689), 5e-5)
    near(rows[2], (0.8808, 0, 0.1192), 5e-5)
    near(rows[4:], [(0.8262, 0.1236, 0.0502), (0.7148, 0.1865, 0.0987)], 5e-5)


def test_jacobian_of_a_softmax_is_its_derivative():
    x, step = torch.tensor([0.3, -1.2, 0.9, 2.0], dtype=torch.float64), 1e-6
    found = scaling.jacobian(x.softmax(-1))
    for j, direction in enumerate(torch.eye(4, dtype=torch.float64)):
        slope = ((x + step * direction).softmax(-1) - (x - step * direction).softmax(-1)) / (2 * step)
        near(found[:, j], slope, 1e-9)
    near(found.sum(-1), torch.zeros(4), 1e-12)
    assert float(found.abs().max()) > 0.1


def test_peak_of_known_weights():
    even, sure = (
        scaling.Peak.from_scores(torch.zeros(5, 3).double()),
        scaling.Peak.from_scores(torch.tensor([[100.0, 0, 0]]).double()),
    )
    near(dataclasses.astuple(even), (1 / 3, 0, math.log(3), math.sqrt(2) / 3), 1e-12)  # (I - 1/3)/3 has norm sqrt(2)/3
    near(dataclasses.astuple(sure), (1, 1, 0, 0), 1e-12)


# With and without the division.


def test_models_differ_in_the_kernel_alone():
    one, other = (
        reversal_setup.transformer(AttentionConfig(heads=1, d_k=32, d_v=64, score=score), 1)
        for score in unscaled_training.SCORES.values()
    )
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    kernels = [[m.kernel for m in model.modules() if isinstance(m, MultiHeadAttention)] for model in (one, other)]
    assert kernels == [[fused_attention] * 3, [unscaled_attention] * 3]


def test_measuring_the_start_leaves_the_model_as_it_was():
    model = reversal_setup.transformer(AttentionConfig(heads=1), 1)
    before = [p.clone() for p in model.parameters()]
    unscaled_training.measure_start(model)
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, model.parameters(), strict=True))


def test_curves_are_means_over_steps_and_runs():
    steps, means, spread = drawing.mean_curve([[1.0, 3.0, 5.0, 7.0, 9.0], [3.0, 5.0, 7.0, 9.0, 9.0]], width=2)
    assert steps == [1, 3]
    assert means == [3, 7]
    assert spread == [math.sqrt(2)] * 2
    assert drawing.mean_curve([[4.0, 2.0]])[1] == [3]
    assert reversal_setup.last([5.0] * 18 + [1.0, 2.0]) == 1.5


# Additive attention.


@pytest.mark.parametrize(("length", "d_k"), [(8, 16), (16, 16), (16, 64)])
def test_kept_bytes_for_the_backward_pass_follow_the_formula(length: int, d_k: int):
    kernels = additive.make_kernels(d_k)
    for name, formula in additive.KEPT.items():
        assert additive.kept_bytes(kernels[name], length, d_k) == formula(length, d_k)
    assert additive.kept_bytes(kernels[additive.FUSED], length, d_k) < additive.KEPT[additive.DOT](length, d_k)
    hidden = 4 * 2 * 4 * length * length * d_k  # a float for each sentence, head, query, key and unit
    assert additive.KEPT[additive.ADDITIVE](length, d_k) == hidden + additive.KEPT[additive.DOT](length, d_k)


def test_scores_have_their_kernels():
    for name, kind in {additive.SCALED: fused_attention, additive.UNSCALED: unscaled_attention}.items():
        model = additive.SCORES[name](16, 1)
        assert all(m.kernel is kind for m in model.modules() if isinstance(m, MultiHeadAttention))
    model = additive.SCORES[additive.ADDITIVE](16, 1)
    assert sum(isinstance(module, Additive) for module in model.modules()) == 3


# Masks.


def test_mask_of_the_decoder_hides_padding_and_later_words():
    found = masks.example_masks()["decoder: both"].int().tolist()
    rows = ["10000000", "11000000", "11100000", *["11110000"] * 5]
    assert ["".join(map(str, row)) for row in found] == rows


@pytest.mark.parametrize("name", masks.example_masks())
def test_influence_passes_exactly_where_the_mask_allows(name: str):
    mask = masks.example_masks()[name]
    assert torch.equal(masks.influence_norms(mask) > 0, mask)


# Order.


@pytest.mark.parametrize("positions", order.SCHEMES)
def test_permuted_words_are_permuted_vectors_only_without_positions(positions: order.Scheme):
    model = order.make_transformer(positions, 1).double()
    ids, permutation = torch.tensor([3, 9, 4, 7, 5, 30]), torch.tensor([4, 2, 0, 5, 1, 3])
    gap = order.largest_change(model, ids, permutation)
    assert gap < 1e-12 if positions == "none" else gap > 1e-2
    assert order.largest_change(model, ids, torch.arange(6)) == 0
    assert order.largest_change(model, ids, permutation, looking_back=True) > 1e-2


# Heads.


def test_word_has_one_embedding_and_a_vector_for_each_context():
    torch.manual_seed(1)
    model = Transformer(small(16, 1), 20).eval()
    sentences = torch.tensor([[5, 7, 9, 2], [6, 7, 9, 2]])  # the first word is the clue to 7
    embeddings, vectors = model.source_embedding(sentences), model.start(sentences).memory.unflatten(0, (2, 4))
    assert torch.equal(embeddings[0, 1], embeddings[1, 1])
    assert (vectors[0, 1] - vectors[1, 1]).abs().max() > 1e-3


@pytest.mark.parametrize("count", heads.HEADS)
def test_heads_cost_the_same_in_any_number(count: int):
    assert heads.count_layer_parameters(512, AttentionConfig(heads=count)) == 1_048_576
    assert heads.count_layer_parameters(512, AttentionConfig(heads=count, bias=True)) == 1_050_624
    assert heads.count_base_parameters(count) == 63_045_632


@pytest.mark.parametrize("n", [1, 2, 9, 30])
def test_statistics_of_known_weights(n: int):
    itself, even = torch.eye(n).double(), torch.full((n, n), 1 / n, dtype=torch.float64)
    near(heads.mean_distance(itself), 0, 0)
    near(heads.mean_entropy(itself), 0, 0)
    near(heads.mean_distance(even), (n * n - 1) / (3 * n), 1e-12)
    near(heads.mean_entropy(even), math.log(n), 1e-12)


def test_encoder_of_a_model_is_seen_layer_by_layer():
    model = reversal_setup.transformer(AttentionConfig(heads=4), 1, layers=2)
    layers = heads.inspect_layers(model)
    assert len(layers) == 2
    assert all(len(layer.entropy) == len(layer.distance) == 4 for layer in layers)

    def itself(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        return value

    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.kernel = itself
    for layer in heads.inspect_layers(model):
        assert layer.distance == layer.entropy == [0.0] * 4
        assert layer.diversity == 0
