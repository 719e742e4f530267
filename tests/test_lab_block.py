"""The lab on words, positions, residuals and norms: the notes' numbers, and verdicts that follow from numbers."""

import itertools
import math

import pytest
import torch
from conftest import gap
from torch import nn

from dragoman.inspection.figure import pyplot
from dragoman.lab import (
    embedding,
    learned_positions,
    norms,
    position_schemes,
    pre_post_norm,
    residuals,
    sinusoids,
    sum_or_concat,
)
from dragoman.lab.drawing import losses_figure
from dragoman.lab.tasks import Learned, accuracy, copying, summary
from dragoman.model.transformer import Transformer

# One-hot vectors or a look-up.


def test_the_one_hot_vector_of_the_puppy_is_9999_zeros_and_a_single_1():
    vector = embedding.one_hot(torch.tensor(7_000), 10_000)
    assert int((vector == 0).sum()) == 9_999
    assert vector.nonzero().tolist() == [[7_000]]
    assert vector[7_000] == 1


def test_the_numbers_of_all_words():
    assert embedding.stored(10_000, 512) == (100_000_000, 5_120_000)


@pytest.mark.parametrize("words", [5, 64, 300])
def test_a_product_with_one_hot_vectors_is_a_look_up_for_any_number_of_words(words: int):
    results, gradients = embedding.differences(words, 64, seed=1)
    assert results == 0
    assert gradients < 1e-5
    matrix = torch.randn(words, 4)
    ids = torch.tensor([0, 3, 3])
    assert torch.equal(embedding.one_hot(ids, words) @ matrix, matrix[ids])
    assert not torch.equal(embedding.one_hot(ids + 1, words) @ matrix, matrix[ids])


def test_embeddings_are_multiplied_by_the_root_of_d_model_and_positions_are_not():
    found = embedding.scaling(512, seed=1)
    assert found.factor == pytest.approx(22.627, abs=5e-4)
    assert found.word / found.row == pytest.approx(22.627, abs=0.01)
    assert found.position == pytest.approx(16.0, abs=1e-3)


# Sinusoids.


def test_the_tables_of_sinusoids():
    expected = [
        [0, 1, 0, 1],
        [0.8415, 0.5403, 0.0100, 1.0],
        [0.9093, -0.4161, 0.0200, 0.9998],
        [0.1411, -0.9900, 0.0300, 0.9996],
    ]
    assert gap(sinusoids.encoding(4, 4), torch.tensor(expected, dtype=torch.float64)) <= 5.1e-5
    assert sinusoids.encoding(50, 256)[1, :6].tolist() == pytest.approx(
        [0.8415, 0.5403, 0.8020, 0.5974, 0.7617, 0.6479], abs=5.1e-5
    )


def test_rows_norms_distances_and_products():
    small, table = sinusoids.encoding(50, 256), sinusoids.encoding(512, 512)
    assert sinusoids.closest(small) == pytest.approx(2.6712, abs=5.1e-5)
    assert sinusoids.closest(table) == pytest.approx(3.7143, abs=5.1e-5)
    assert table.norm(dim=-1).tolist() == pytest.approx([16.0] * 512, abs=1e-5)
    for apart, distance in ((1, 3.7143), (5, 11.5242)):
        assert sinusoids.distances(table, apart).tolist() == pytest.approx([distance] * (512 - apart), abs=5.1e-5)
    found = sinusoids.products(table)
    assert [low for low, _ in found[:4]] == pytest.approx([256, 249.10, 231.73, 211.75], abs=5.1e-3)
    assert max(high - low for low, high in found) < 1e-4
    sines = sinusoids.products(table[:, ::2])  # the control: without cosines the place matters
    assert sines[1][1] - sines[1][0] > 1


@pytest.mark.parametrize("steps", sinusoids.SHIFTS)
def test_a_shift_is_a_rotation(steps: int):
    table, turn = sinusoids.encoding(200, 64), sinusoids.rotation(steps, 64)
    assert sinusoids.shift_error(table, steps) < 1e-6
    assert gap(turn @ turn.T, torch.eye(64, dtype=torch.float64)) < 1e-12  # a rotation changes no length
    assert gap(turn @ turn, sinusoids.rotation(2 * steps, 64)) < 1e-12
    assert float((table[:-steps] @ sinusoids.rotation(steps + 1, 64).T - table[steps:]).abs().max()) > 0.1


def test_wavelengths_grow_by_one_factor_from_2_pi():
    waves = sinusoids.wavelengths(sinusoids.encoding(2, 512))
    expected = 2 * math.pi * 10000 ** (torch.arange(256, dtype=torch.float64) * 2 / 512)
    torch.testing.assert_close(waves, expected, rtol=1e-6, atol=0)
    assert float(waves[0]) == pytest.approx(2 * math.pi)
    assert float(waves[-1]) * 10000 ** (2 / 512) == pytest.approx(20000 * math.pi, rel=1e-6)


# Ways to number places.


def test_seven_places_as_binary_numbers():
    assert position_schemes.binary(7, 3).int().tolist() == [
        [0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0], [1, 0, 1], [1, 1, 0],
    ]  # fmt: skip


def test_gaps_of_two_bits_and_of_the_line():
    counting, gray = position_schemes.binary(4, 2), position_schemes.gray(4, 2)
    assert position_schemes.gaps(counting) == pytest.approx([1, 1.4142, 1], abs=5.1e-5)
    assert gray.int().tolist() == [[0, 0], [0, 1], [1, 1], [1, 0]]  # the order of the note's figure
    assert position_schemes.gaps(gray) == [1, 1, 1]
    assert position_schemes.gaps(gray, 3) == [1]
    assert position_schemes.line(4).flatten().tolist() == pytest.approx([0, 0.33, 0.66, 0.99])
    assert position_schemes.gaps(position_schemes.line(4)) == pytest.approx([0.33] * 3)


def test_gray_code_has_every_binary_number_and_changes_one_bit_at_a_time():
    code = position_schemes.gray(256, 8)
    assert set(position_schemes.gaps(code)) == {1.0}
    assert len(code.unique(dim=0)) == 256


def test_only_sinusoids_meet_all_conditions():
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


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned"])
def test_what_is_added_at_a_place_is_the_same_for_all_sequences(scheme: str):
    between, places = learned_positions.between_sequences(scheme, 512, 16, seed=1)
    assert between < 1e-12
    assert places > 0.01  # the control: two places of a sequence get something else


def test_only_places_in_use_learn_and_the_table_ends():
    assert learned_positions.rows_that_learn(3, 8) == [0, 1, 2]
    assert "9 tokens" in learned_positions.refusal("learned", 9, 8)
    assert not learned_positions.refusal("learned", 8, 8)
    assert not learned_positions.refusal("sinusoidal", 9, 8)


# Sum or concatenation.


def test_concatenating_is_adding_with_two_matrices():
    identity, equal = sum_or_concat.identity_gaps(32, seed=1)
    assert max(identity, equal) < 1e-12


def test_a_model_concatenates_its_positions():
    torch.manual_seed(0)
    positions, x = sum_or_concat.Concatenated(8, 2, 4, 16), torch.randn(2, 5, 8)
    for_words, for_places = positions.matrix.weight.T.split(8)
    places = sinusoids.encoding(7, 8).float()[2:]
    assert gap(positions.embed(x, 2), x @ for_words + places @ for_places) < 1e-5
    assert gap(positions.embed(x, 2), (x + places) @ for_words) > 1e-2
    summed, beside = (sum_or_concat.make(kind, 1) for kind in (sum_or_concat.SUM, sum_or_concat.CONCATENATED))
    d_model = sum_or_concat.CONFIG.d_model
    assert sum_or_concat.parameters(beside) - sum_or_concat.parameters(summed) == 2 * (2 * d_model) * d_model


def test_concatenation_doubles_the_parameters_of_the_first_layer():
    assert sum_or_concat.first_projections(512, 512) == 3 * 512 * 512
    assert sum_or_concat.first_projections(1024, 512) == 2 * sum_or_concat.first_projections(512, 512)


@pytest.mark.parametrize(("size", "seen"), [(2, 0.7071), (16, 0.2507), (64, 0.1252), (512, 0.0438)])
def test_the_cosine_of_random_pairs_spreads_by_the_root_of_their_size(size: int, seen: float):
    """`seen` is one sample of the same, of unknown size: two samples agree within two percent."""
    spread = float(sum_or_concat.cosines(size, 20_000, seed=1).std())
    assert spread == pytest.approx(size**-0.5, rel=0.02)
    assert spread == pytest.approx(seen, rel=0.02)


# Residuals.


def test_layers_that_compute_nothing_put_out_what_they_take_in():
    assert residuals.change_when_silent(residuals.WITH) == 0
    assert residuals.change_when_silent(residuals.WITHOUT) > 0.1


def test_from_10_to_10_4_a_residual_learns_0_4():
    assert residuals.learned_difference(10.0, 10.4)[0] == pytest.approx(0.4, abs=2e-3)
    assert residuals.learned_difference(0.0, 10.4)[0] == pytest.approx(10.4, abs=2e-3)


def test_a_deep_stack_without_residuals_forgets_its_words_and_loses_its_gradients():
    pairs = residuals.TASK.pairs(16, 1)
    stacks = {kind: residuals.make(kind, residuals.DEEP, 1) for kind in residuals.KINDS}
    alike = {kind: residuals.through_layers(model, list(range(3, 13)))[0][-1] for kind, model in stacks.items()}
    assert alike[residuals.WITHOUT] > alike[residuals.WITH] + 0.2
    lowest = {
        kind: residuals.gradients(model, pairs, residuals.networks(model.encoder))[0] for kind, model in stacks.items()
    }
    assert lowest[residuals.BARE_WITHOUT] < 0.01 * lowest[residuals.WITH]
    assert lowest[residuals.BARE_WITH] > lowest[residuals.WITH]
    highest = {
        kind: residuals.gradients(model, pairs, residuals.queries(model.encoder))[-1] for kind, model in stacks.items()
    }
    assert highest[residuals.WITHOUT] < 0.01 * highest[residuals.WITH]


def test_tokens_that_are_the_same_are_fully_alike():
    model = residuals.make(residuals.WITH, 1, 1)
    model.encoder_positions = nn.Module()
    model.encoder_positions.embed = lambda x, start: x * 0 + 1
    model.encoder_positions.bias = lambda *sizes: None
    model.encoder_positions.rotate = lambda x, start: x
    assert residuals.through_layers(model, [3, 4, 5])[0] == pytest.approx([1.0], abs=1e-5)


def test_both_kinds_of_block_begin_with_the_same_weights():
    with_residuals, without = (residuals.make(kind, 2, 1).state_dict() for kind in (residuals.WITH, residuals.WITHOUT))
    assert with_residuals.keys() == without.keys()
    assert all(torch.equal(with_residuals[name], without[name]) for name in without)


# Norms.


def test_layer_norm_has_a_mean_per_token():
    found = norms.statistics(norms.vectors(4, 7, seed=1))
    assert {name: count for name, (count, _) in found.items()} == {"token": 28, "sentence": 4}
    assert found["token"][1] < 1e-5
    assert found["sentence"][1] > 0.01
    rows, _ = norms.normalised(norms.vectors(4, 7, seed=1).double(), (2,))
    assert float(rows.mean(-1).abs().max()) < 1e-6
    assert rows.std(-1, correction=0).flatten().tolist() == pytest.approx([1.0] * 28, abs=1e-4)


def test_padding_and_batches_change_a_batch_norm_and_no_bit_of_a_layer_norm():
    tokens = norms.vectors(4, 7, seed=1).flatten(0, 1)
    assert norms.change_by_padding(norms.LAYER, tokens, 10) == 0
    assert norms.change_by_padding(norms.BATCH, tokens, 0) == 0
    assert norms.change_by_padding(norms.BATCH, tokens, 10) > 0.5
    assert norms.change_by_batch(norms.LAYER, norms.vectors(8, 7, seed=1)) == 0
    assert norms.change_by_batch(norms.BATCH, norms.vectors(8, 7, seed=1)) > 0.5


def test_a_model_is_given_batch_norms_in_the_place_of_all_layer_norms():
    for config in (norms.CONFIG, pre_post_norm.TRAINED):
        for norm_first in (False, True):
            model = Transformer(type(config)(**{**vars(config), "norm_first": norm_first}), 20)
            before = sum(isinstance(module, nn.LayerNorm) for module in model.modules())
            kinds = [type(module) for module in norms.with_batch_norm(model).modules()]
            assert kinds.count(nn.BatchNorm1d) == before > 0
            assert nn.LayerNorm not in kinds
            assert accuracy(model, copying(20).pairs(8, 1)) <= 1


def test_the_loss_of_a_batch_norm_depends_on_the_company_of_a_sentence():
    pairs = norms.TASK.pairs(8, 1)
    layer, batch = (norms.losses(norms.make(kind, 1), pairs) for kind in (norms.LAYER, norms.BATCH))
    assert max(layer) - min(layer) < 1e-5
    assert min(abs(a - b) for a, b in itertools.combinations(batch, 2)) > 1e-3


# Norm before or after.


def test_gradients_of_a_post_norm_stack_rise_toward_the_output_and_those_of_a_pre_norm_stack_fall():
    """In the decoder, whose top is the output."""
    _, post = pre_post_norm.at_start(pre_post_norm.POST, seed=1)
    _, pre = pre_post_norm.at_start(pre_post_norm.PRE, seed=1)
    assert len(post) == len(pre) == 12
    assert post[-1] > post[0]
    assert pre[-1] < pre[0]


def test_only_pre_norm_has_a_norm_at_its_end():
    post, pre = (pre_post_norm.at_the_end(kind, seed=1) for kind in (pre_post_norm.POST, pre_post_norm.PRE))
    assert post[0] < 1e-3
    assert pre[0] > 0.01
    assert (post[1], pre[1]) == (False, True)


def test_the_warm_up_rises_to_the_peak_and_none_begins_there():
    warm, cold = pre_post_norm.rising(10), pre_post_norm.rising(1)
    assert warm(1) == pytest.approx(pre_post_norm.PEAK / 10)
    assert warm(10) == warm(500) == cold(1) == pre_post_norm.PEAK


# What the experiments share.


def test_a_summary_is_the_mean_and_the_range():
    assert summary([1.0, 2.0, 6.0]) == (3.0, 1.0, 6.0)


def test_curves_of_losses_show_the_mean_of_the_seeds():
    figure = pyplot().figure()
    losses_figure({"one": [Learned([1.0] * 20 + [2.0] * 20, 0), Learned([3.0] * 20 + [6.0] * 20, 0)]}).draw(figure)
    line = figure.axes[0].lines[0]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([10, 30], [2, 4])
    pyplot().close(figure)
