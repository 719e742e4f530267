"""The lab's experiments on words, positions, residuals and norms: what their numbers are made from."""

import itertools

import pytest
import torch
from conftest import gap
from torch import nn

from dragoman.config import TransformerConfig
from dragoman.inspection.figure import pyplot
from dragoman.model.positions import Positions
from dragoman.model.transformer import Transformer
from dragoman_lab import (
    learned_positions,
    norms,
    position_schemes,
    pre_post_norm,
    residuals,
    sinusoids,
    sum_or_concat,
)
from dragoman_lab.drawing import losses_figure
from dragoman_lab.tasks import Learned, accuracy, copying, mean_and_extremes, warm_up

# Sinusoids.


def test_tables_of_sinusoids():
    expected = [
        [0, 1, 0, 1],
        [0.8415, 0.5403, 0.0100, 1.0],
        [0.9093, -0.4161, 0.0200, 0.9998],
        [0.1411, -0.9900, 0.0300, 0.9996],
    ]
    assert gap(sinusoids.sinusoid_table(4, 4), torch.tensor(expected, dtype=torch.float64)) <= 5.1e-5
    assert sinusoids.sinusoid_table(50, 256)[1, :6].tolist() == pytest.approx(
        [0.8415, 0.5403, 0.8020, 0.5974, 0.7617, 0.6479], abs=5.1e-5
    )


def test_rows_norms_distances_and_products():
    small, table = sinusoids.sinusoid_table(50, 256), sinusoids.sinusoid_table(512, 512)
    assert sinusoids.smallest_distance(small) == pytest.approx(2.6712, abs=5.1e-5)
    assert sinusoids.smallest_distance(table) == pytest.approx(3.7143, abs=5.1e-5)
    assert table.norm(dim=-1).tolist() == pytest.approx([16.0] * 512, abs=1e-5)
    for apart, distance in ((1, 3.7143), (5, 11.5242)):
        assert sinusoids.distances(table, apart).tolist() == pytest.approx([distance] * (512 - apart), abs=5.1e-5)
    found = sinusoids.products(table)
    assert [low for low, _ in found[:4]] == pytest.approx([256, 249.10, 231.73, 211.75], abs=5.1e-3)
    assert max(high - low for low, high in found) < 1e-4
    sines = sinusoids.products(table[:, ::2])  # the control: without cosines the place matters
    assert sines[1][1] - sines[1][0] > 1


# Ways to number places.


def test_gaps_of_two_bits_and_of_the_line():
    counting, gray = position_schemes.binary(4, 2), position_schemes.gray(4, 2)
    assert position_schemes.gaps(counting) == pytest.approx([1, 1.4142, 1], abs=5.1e-5)
    assert gray.int().tolist() == [[0, 0], [0, 1], [1, 1], [1, 0]]
    assert position_schemes.gaps(gray) == [1, 1, 1]
    assert position_schemes.gaps(gray, 3) == [1]
    assert position_schemes.line(4).flatten().tolist() == pytest.approx([0, 0.33, 0.66, 0.99])
    assert position_schemes.gaps(position_schemes.line(4)) == pytest.approx([0.33] * 3)


def test_sinusoids_alone_meet_all_conditions():
    met = position_schemes.conditions_met()
    names = list(position_schemes.CONDITIONS)
    missed = {name: {n for n, cell in zip(names, cells, strict=True) if not cell} for name, cells in met.items()}
    unique, same, any_length, deterministic, bounded = names
    assert missed == {
        "integers": {bounded},
        "fractions of the length": {same},
        "line with steps of 0.33": {bounded},
        "binary code": {same},
        "Gray code": {same},
        "one sine and cosine": {unique, any_length},
        "random vectors": {same, deterministic},
        "learned table, as drawn": {same, any_length},
        "sinusoids": set(),
    }


# Learned positions.


def test_learned_positions_train_only_where_used_and_end_with_the_table():
    assert learned_positions.rows_that_learn(3, 8) == [0, 1, 2]
    assert "9 tokens" in learned_positions.refusal_message("learned", 9, 8)
    assert not learned_positions.refusal_message("learned", 8, 8)
    assert not learned_positions.refusal_message("sinusoidal", 9, 8)


# Sum or concatenation.


def test_model_concatenates_its_positions():
    torch.manual_seed(0)
    positions, x = sum_or_concat.Concatenated(TransformerConfig(8)), torch.randn(2, 5, 8)
    for_words, for_places = positions.matrix.weight.T.split(8)
    places = sinusoids.sinusoid_table(7, 8).float()[2:]
    assert gap(positions.embed(x, 2), x @ for_words + places @ for_places) < 1e-5
    assert gap(positions.embed(x, 2), (x + places) @ for_words) > 1e-2
    summed, beside = (sum_or_concat.make_model(kind, 1) for kind in (sum_or_concat.SUM, sum_or_concat.CONCATENATED))
    d_model = sum_or_concat.CONFIG.d_model
    assert (
        sum_or_concat.count_parameters(beside) - sum_or_concat.count_parameters(summed) == 2 * (2 * d_model) * d_model
    )


# Residuals.


def test_tokens_that_are_the_same_are_fully_alike():
    model = residuals.make_model(residuals.WITH, 1, 1)
    model.encoder_positions = Positions(TransformerConfig())
    model.encoder_positions.embed = lambda x, start: x * 0 + 1
    assert residuals.cosines_and_changes(model, [3, 4, 5])[0] == pytest.approx([1.0], abs=1e-5)


def test_blocks_with_and_without_residuals_begin_with_the_same_weights():
    with_residuals, without = (
        residuals.make_model(kind, 2, 1).state_dict() for kind in (residuals.WITH, residuals.WITHOUT)
    )
    assert with_residuals.keys() == without.keys()
    assert all(torch.equal(with_residuals[name], without[name]) for name in without)


# Norms.


def test_difference_is_learned_in_place_of_the_whole():
    (difference, fewer), (whole, steps) = (
        residuals.learned_difference(10.0, 10.4),
        residuals.learned_difference(0, 10.4),
    )
    assert difference == pytest.approx(0.4, abs=0.01)
    assert whole == pytest.approx(10.4, abs=0.01)
    assert fewer < steps


def test_layer_norm_has_a_mean_per_token():
    found = norms.compare_normalisations(norms.random_vectors(4, 7, seed=1))
    assert {name: count for name, (count, _) in found.items()} == {"token": 28, "sentence": 4}
    assert found["token"][1] < 1e-5
    assert found["sentence"][1] > 0.01
    rows, _ = norms.normalise(norms.random_vectors(4, 7, seed=1).double(), (2,))
    assert float(rows.mean(-1).abs().max()) < 1e-6
    assert rows.std(-1, correction=0).flatten().tolist() == pytest.approx([1.0] * 28, abs=1e-4)


def test_batch_norms_replace_all_layer_norms():
    for config in (norms.CONFIG, pre_post_norm.TRAINED):
        for norm_first in (False, True):
            model = Transformer(type(config)(**{**vars(config), "norm_first": norm_first}), 20)
            before = sum(isinstance(module, nn.LayerNorm) for module in model.modules())
            kinds = [type(module) for module in norms.with_batch_norm(model).modules()]
            assert kinds.count(nn.BatchNorm1d) == before > 0
            assert nn.LayerNorm not in kinds
            assert accuracy(model, copying(20).pairs(8, 1)) <= 1


def test_batch_norm_loss_depends_on_the_other_sentences():
    pairs = norms.TASK.pairs(8, 1)
    layer, batch = (norms.measure_losses(norms.make_model(kind, 1), pairs) for kind in (norms.LAYER, norms.BATCH))
    assert max(layer) - min(layer) < 1e-5
    assert min(abs(a - b) for a, b in itertools.combinations(batch, 2)) > 1e-3


# Norm before or after.


def test_warm_up_rises_to_the_peak_and_none_begins_there():
    warm, cold = warm_up(pre_post_norm.PEAK, 10), warm_up(pre_post_norm.PEAK, 1)
    assert warm(1) == pytest.approx(pre_post_norm.PEAK / 10)
    assert warm(10) == warm(500) == cold(1) == pre_post_norm.PEAK


# What the experiments share.


def test_summary_is_the_mean_and_the_range():
    assert mean_and_extremes([1.0, 2.0, 6.0]) == (3.0, 1.0, 6.0)


def test_curves_of_losses_show_the_mean_of_the_seeds():
    figure = pyplot().figure()
    losses_figure({"one": [Learned([1.0] * 20 + [2.0] * 20, 0), Learned([3.0] * 20 + [6.0] * 20, 0)]}).draw(figure)
    line = figure.axes[0].lines[0]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([10, 30], [2, 4])
    pyplot().close(figure)
