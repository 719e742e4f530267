"""The lab's experiments on recurrence and on queries, keys and values: what their numbers are made from."""

import math
from dataclasses import replace

import pytest
import torch
from conftest import gap
from torch import nn

from dragoman.data.tokenizer import SPECIAL
from dragoman.model.attention import MultiHeadAttention, explicit_attention
from dragoman.model.transformer import Transformer
from dragoman_lab import (
    long_range,
    parallel,
    recall,
    retrieval,
    shared_projections,
)
from dragoman_lab.activations import slope
from dragoman_lab.experiment import Effort
from dragoman_lab.long_range import LAST, LAYERS, LENGTH, LSTM, OPEN, PLAIN, SIZE
from dragoman_lab.parallel import growth_exponent, matmuls_in_a_row
from dragoman_lab.retrieval import attend, kernel_regression, look_up, on_circle
from dragoman_lab.self_focus import RAW, SCALED, WAYS
from dragoman_lab.shared_projections import ONE, PAIR, SEPARATE, SHARED, TASKS, share_projections

# The gradient of a far word.


def gradients_of(name: str, seeds: range, place: int = LAST) -> torch.Tensor:
    """One draw of weights and one sentence per seed: (seeds, S)."""
    found = []
    for seed in seeds:
        torch.manual_seed(seed)
        layer = LAYERS[name]()
        found.append(long_range.gradient_norms(layer, torch.randn(1, LENGTH, SIZE), place)[0])
    return torch.stack(found)


def test_gradient_is_the_one_of_finite_differences():
    torch.manual_seed(0)
    layer, x, step = LAYERS[PLAIN](), torch.randn(1, LENGTH, SIZE), 1e-2
    found = long_range.gradient_norms(layer, x, LAST)[0, LAST - 3]
    outputs = []
    for way in (step, -step):
        moved = x.repeat(SIZE, 1, 1)
        moved[:, LAST - 3] += way * torch.eye(SIZE)
        with torch.no_grad():
            outputs.append(layer(moved)[:, LAST].sum(-1))
    assert float(found) == pytest.approx(float(((outputs[0] - outputs[1]) / (2 * step)).norm()), rel=1e-2)


def test_bias_of_the_forget_gate_is_where_the_gate_is():
    """An open forget gate keeps the cell. The same bias at another gate would not."""
    keeping, forgetting = (gradients_of(name, range(4))[:, 0] for name in (OPEN, LSTM))
    assert (keeping > 1e3 * forgetting).all()


# Activations.


def test_slopes_are_those_of_the_formulas():
    x = torch.linspace(-3, 3, 13, dtype=torch.float64)[[0, 3, 5, 7, 12]]
    normal = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1.0)
    torch.testing.assert_close(slope("tanh", x), 1 - x.tanh().square())
    torch.testing.assert_close(slope("relu", x), (x > 0).double())
    torch.testing.assert_close(slope("gelu", x), normal.cdf(x) + x * normal.log_prob(x).exp())


# Recall.


@pytest.mark.parametrize("distance", recall.DISTANCES)
def test_task_asks_for_the_first_word(distance: int):
    pairs = recall.recalling_over(distance).pairs(300, seed=0)
    assert all(len(source) == distance + 1 and target == source[:1] for source, target in pairs)
    assert len({target[0] for _, target in pairs}) == recall.WORDS == 1 / recall.CHANCE


def test_models_of_recall_differ_in_what_their_names_say():
    for name, config in recall.CELLS.items():
        with_attention = recall.KINDS[recall.attending_name(name)]
        assert config.attention == "none"
        assert with_attention == replace(config, attention="dot")
    assert len(set(recall.KINDS.values())) == len(recall.KINDS) == 9


def test_lstm_recall_is_learned_during_training():
    """The control: one step is not enough."""
    config = recall.KINDS[recall.LSTM]
    before, after = (recall.train_and_recall(config, 2, 1, Effort((1,), part)) for part in (0.001, 0.2))
    assert before < 0.5 < 0.9 < after


# Parallel.


def test_matmuls_in_a_row_are_counted_in_the_graph():
    a, b = torch.randn(2, 2, requires_grad=True), torch.randn(2, 2, requires_grad=True)
    assert matmuls_in_a_row(a + b) == 0
    assert matmuls_in_a_row(a @ b) == 1
    assert matmuls_in_a_row((a @ b) + (b @ a)) == 1  # beside each other
    assert matmuls_in_a_row((a @ b) @ (b @ a)) == 2
    assert matmuls_in_a_row(nn.Linear(2, 2)(a @ b)) == 2


def test_rnn_waits_for_each_word_and_attention_for_none():
    for length in (3, 40, 1500):
        x = torch.randn(1, length, parallel.SIZE)
        assert matmuls_in_a_row(parallel.LAYERS[parallel.ATTENTION]()(x)) == 4  # projection, scores, values, output
        if length < 1500:
            assert matmuls_in_a_row(parallel.LAYERS[parallel.PLAIN]()(x)) == length


def test_fused_kernel_counts_as_the_two_products_it_makes():
    layer, x = parallel.LAYERS[parallel.ATTENTION](), torch.randn(1, 5, parallel.SIZE)
    fused_count = matmuls_in_a_row(layer(x))
    layer.attention.kernel = explicit_attention
    assert matmuls_in_a_row(layer(x)) == fused_count


def test_growth_is_the_power_of_the_length():
    assert growth_exponent({8: 1.0, 16: 3.0, 64: 64.0}) == pytest.approx(2.0)
    assert growth_exponent({8: 5.0, 64: 5.0}) == 0


# Looking at oneself.


def test_raw_attention_is_the_softmax_of_the_inner_products():
    x = torch.randn(2, 4, 6)
    random = torch.Generator()
    torch.testing.assert_close(WAYS[RAW](x, random), (x @ x.mT).softmax(-1))
    torch.testing.assert_close(WAYS[SCALED](x, random), (x @ x.mT / math.sqrt(6)).softmax(-1))


# The soft dictionary.


def dictionary() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(20, 5).double(), torch.randn(7, 5).double(), torch.randn(7, 3).double()


def test_endless_query_looks_up_the_best_key():
    query, key, value = dictionary()
    torch.testing.assert_close(attend(query, key, value, 1e6), look_up(query, key, value))
    assert gap(attend(query, key, value, 1.0), look_up(query, key, value)) > 0.1


def test_distance_from_the_look_up_has_its_bound():
    """Each other weight is at most exp(-sharpness * gap): the answer is that close to the best value."""
    query, key, value = dictionary()
    best = (query @ key.T).topk(2).values
    ahead = best[:, 0] - best[:, 1]
    reach = 2 * float(value.norm(dim=-1).max())
    for sharpness in (0.5, 2.0, 8.0, 32.0):
        away = (attend(query, key, value, sharpness) - look_up(query, key, value)).norm(dim=-1)
        assert (away <= reach * (len(key) - 1) * (-sharpness * ahead).exp() + 1e-12).all()


def test_sharper_queries_have_less_entropy_and_a_larger_best_weight():
    rows = retrieval.measure_sharpness(seed=1)
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)
    assert [row[2] for row in rows] == sorted((row[2] for row in rows), reverse=True)
    assert rows[0][1:3] == pytest.approx((1 / retrieval.ENTRIES, math.log(retrieval.ENTRIES)))


def test_attention_is_kernel_regression_where_keys_are_equally_long():
    angles = torch.linspace(0, 6, 9, dtype=torch.float64)
    key, query, value = on_circle(angles), on_circle(angles[:5] + 0.1), angles[:, None].sin()
    for sharpness in (0.0, 1.0, 50.0):
        assert gap(attend(query, key, value, sharpness), kernel_regression(query, key, value, sharpness)) < 1e-12
    stretched = key * torch.linspace(1, 2, 9, dtype=torch.float64)[:, None]  # the control
    assert gap(attend(query, stretched, value, 1.0), kernel_regression(query, stretched, value, 1.0)) > 1e-2


def test_search_scores_depend_only_on_the_product_of_both_matrices():
    one, other = retrieval.Search(1), retrieval.Search(1)
    nn.init.normal_(one.query)
    nn.init.normal_(one.key)
    other.query.data = one.query.data @ one.key.data.T
    torch.testing.assert_close(one.scores(), other.scores(), rtol=1e-4, atol=1e-4)


def test_search_without_learning_is_worse_than_with():
    places = retrieval.ranks_by_learning(seed=1, steps=60)
    assert places[retrieval.QUERY] < 0.5 * places[retrieval.UNTRAINED]
    assert min(places.values()) >= 1
    assert max(places.values()) <= retrieval.POSTS


# One matrix or three.


@pytest.mark.parametrize("way", SHARED)
def test_shared_projections_are_one_matrix_also_while_learning(way: str):
    torch.manual_seed(0)
    model = Transformer(shared_projections.CONFIG, shared_projections.VOCABULARY)
    before = sum(parameter.numel() for parameter in model.parameters())
    share_projections(model, SHARED[way])
    layers = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    assert len(layers) == 3
    for layer in layers:
        assert (layer.key is layer.query) == (way in (PAIR, ONE))
        assert (layer.value is layer.query) == (way == ONE)
    saved = before - sum(parameter.numel() for parameter in model.parameters())
    assert saved == len(SHARED[way]) * len(layers) * shared_projections.CONFIG.d_model**2
    ids = torch.tensor([[5, 6, 7]])
    model(ids, ids).square().sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    for layer in layers:
        assert torch.equal(layer.key.weight, layer.query.weight) == (way in (PAIR, ONE))


@pytest.mark.slow
def test_shared_query_key_matrix_confuses_the_word_before_with_the_word_after():
    """Scores are then symmetric; the task is learned with two matrices and not even begun with one."""
    task = TASKS[1]
    assert task.config.decoder_layers == 0
    learned = {way: shared_projections.train_sharing(task, SHARED[way], 1, steps=250)[1] for way in (SEPARATE, PAIR)}
    chance = math.log(shared_projections.VOCABULARY - len(SPECIAL))
    assert shared_projections.last_loss(learned[SEPARATE]) < 0.5 * chance
    assert shared_projections.last_loss(learned[PAIR]) > 0.95 * chance
    assert learned[SEPARATE].accuracy > 0.8
    assert learned[PAIR].accuracy < 0.2
