"""The lab's experiments on costs, sizes, schedule, labels and search: what their numbers are made from."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import gap
from lab_findings import findings

from dragoman.model import build
from dragoman.model.attention import explicit_attention, fused_attention
from dragoman.model.recurrent import PlainRNN
from dragoman.model.transformer import Transformer
from dragoman.training.optimizer import paper_rate
from dragoman_lab import calibration, complexity, feed_forward, label_smoothing, restricted, schedule, table_3
from dragoman_lab import length_penalty as beams

# The feed-forward network.


def test_straight_loss_is_less_rough_than_one_that_jumps():
    straight = np.linspace(2, 1, 40)[None]
    jumping = straight + 0.2 * (-1) ** np.arange(40)
    assert feed_forward.roughness(np.ones((1, 40))) == 0
    assert feed_forward.roughness(straight) < feed_forward.roughness(jumping)


# Table 1.


@pytest.mark.parametrize("kind", complexity.KINDS, ids=lambda kind: kind.name)
def test_counted_operations_are_a_multiple_of_the_formula(kind):
    ratios = {complexity.count_operations(kind, n, d) / kind.operations(n, d) for n in (8, 24, 33) for d in (16, 48)}
    assert len(ratios) == 1
    others = {complexity.count_operations(kind, n, d) / (n * d) ** 2 for n, d in ((8, 16), (24, 48))}
    assert len(others) == 2  # the control: not any formula will do


def test_attention_and_recurrence_cross_where_length_is_size():
    for size in (1, 2, 64, 512):
        assert complexity.crossing_length(size) == size
    d = 64
    counts = [
        complexity.count_operations(kind, n, d)
        for n in (d - 1, d, d + 1)
        for kind in (complexity.SELF, complexity.RECURRENT)
    ]
    assert counts[0] < counts[1]
    assert counts[2] == counts[3]
    assert counts[4] > counts[5]


def test_chain_is_the_longest_way():
    """Of a sum of two products, one of three factors and one of two; with the leaf: 1 + 2 + 1."""

    class Fake:
        @staticmethod
        def build(size: int):
            return lambda x: x * x * x + x * x

    assert complexity.count_steps_in_a_row(Fake, 4) == 4  # type: ignore[arg-type]


def test_layers_of_table_1_are_the_layers_of_the_model():
    x = torch.randn(1, 6, 8)
    torch.manual_seed(3)
    run = complexity.make_recurrence(8)
    torch.manual_seed(3)
    layer = PlainRNN(8, 8, "tanh")
    assert torch.equal(run(x), layer(x, torch.ones(1, 6, dtype=torch.bool), torch.zeros(1, 8))[0])
    whole = complexity.make_attention_with_matrices(8)
    attention = whole.attention
    query, key, value = (matrix(x) for matrix in (attention.query, attention.key, attention.value))
    assert gap(whole(x), attention.out(explicit_attention(query, key, value))) < 1e-6


@pytest.mark.parametrize("places", [2, 3, 4, 9, 10, 27, 28])
def test_dilated_convolutions_reach_as_far_as_the_formula_says(places: int):
    """Tried: the first input has a gradient on the last output with that many layers, and with one less it has none."""

    def reaches(layers: int) -> bool:
        start = torch.randn(1, 1, places, requires_grad=True)
        x = start
        for layer in range(layers):
            gaps = complexity.WIDTH**layer
            x = F.conv1d(F.pad(x, (2 * gaps, 0)), torch.ones(1, 1, 3), dilation=gaps)
        return bool(torch.autograd.grad(x[0, 0, -1], start)[0][0, 0, 0] != 0) if layers else places == 1

    layers = complexity.count_dilated_convolutions(places)
    assert layers == max(1, math.ceil(round(math.log(places, complexity.WIDTH), 9)))
    assert reaches(layers)
    assert not reaches(layers - 1)


# Restricted self-attention.


def test_band_is_where_places_are_near():
    for n, r in ((5, 0), (5, 1), (6, 2), (4, 9)):
        expected = [[abs(i - j) <= r for j in range(n)] for i in range(n)]
        assert restricted.band_mask(n, r).tolist() == expected


@pytest.mark.parametrize("kernel", [fused_attention, explicit_attention])
def test_radius_that_covers_the_sentence_changes_nothing(kernel):
    query, key, value = torch.randn(3, 2, 7, 4).unbind(0)
    full = kernel(query, key, value)
    for radius in (6, 7, 100):
        assert gap(restricted.restricted_kernel(radius, kernel)(query, key, value, None, 0.0), full) < 1e-6
    assert gap(restricted.restricted_kernel(5, kernel)(query, key, value, None, 0.0), full) > 1e-4


@pytest.mark.parametrize("radius", [0, 1, 3, 8])
def test_computing_only_the_neighbours_gives_the_same(radius: int):
    query, key, value = torch.randn(3, 2, 7, 4).unbind(0)
    expected = restricted.restricted_kernel(radius)(query, key, value, None, 0.0)
    assert gap(restricted.attend_to_neighbours(query, key, value, radius), expected) < 1e-6
    assert gap(restricted.attend_to_neighbours(query, key, value, radius + 1), expected) > 1e-4 or radius == 8


def test_padding_and_biases_still_count():
    query, key, value = torch.randn(3, 2, 7, 4).unbind(0)
    band, real = restricted.band_mask(7, 2), torch.arange(7) < 5
    near = restricted.restricted_kernel(2)
    assert gap(near(query, key, value, real, 0.0), explicit_attention(query, key, value, band & real)) < 1e-6
    bias = torch.randn(7, 7)
    biased = explicit_attention(query, key, value, bias.masked_fill(~band, -math.inf))
    assert gap(near(query, key, value, bias, 0.0), biased) < 1e-6


def test_swap_is_from_outside_and_of_the_encoder_alone():
    torch.manual_seed(0)
    model = build(replace(restricted.CONFIG, decoder_layers=1), restricted.VOCABULARY)
    assert isinstance(model, Transformer)
    ids = torch.randint(3, restricted.VOCABULARY, (2, 9))
    before = model.start(ids).memory
    restricted.restrict(model, 9)
    same = model.start(ids).memory
    restricted.restrict(model, 1)
    other = model.start(ids).memory
    assert before is not None
    assert same is not None
    assert other is not None
    assert gap(before, same) < 1e-5
    assert gap(before, other) > 1e-3
    assert model.decoder[0].attention.kernel is fused_attention  # type: ignore[union-attr]


@pytest.mark.slow
def test_word_out_of_reach_cannot_be_learned():
    """Two layers of radius 1 reach 2 places: an answer 4 places away is a guess. A larger radius is the control."""
    assert restricted.measure_recall(1, 4, 60, seed=1) < 2 * restricted.CHANCE
    assert restricted.measure_recall(4, 4, 60, seed=1) > 4 * restricted.CHANCE


# Table 3.

COUNTS = {
    ("base", ""): 63_045_632,
    ("A", "1 head, d_k 512"): 63_045_632,
    ("A", "4 heads, d_k 128"): 63_045_632,
    ("A", "16 heads, d_k 32"): 63_045_632,
    ("A", "32 heads, d_k 16"): 63_045_632,
    ("B", "d_k 16"): 55_967_744,
    ("B", "d_k 32"): 58_327_040,
    ("C", "2 layers"): 33_644_544,
    ("C", "4 layers"): 48_345_088,
    ("C", "8 layers"): 77_746_176,
    ("C", "d_model 256, d_k 32"): 26_816_512,
    ("C", "d_model 1024, d_k 128"): 163_815_424,
    ("C", "d_ff 1024"): 50_450_432,
    ("C", "d_ff 4096"): 88_236_032,
    ("D", "dropout 0"): 63_045_632,
    ("D", "dropout 0.2"): 63_045_632,
    ("D", "label smoothing 0"): 63_045_632,
    ("D", "label smoothing 0.2"): 63_045_632,
    ("E", "learned positions"): 63_045_632 + 2 * 1024 * 512,
    ("big", "d_model 1024, d_ff 4096, 16 heads"): 214_171_648,
}


@pytest.fixture(scope="module")
def counts() -> dict[table_3.Row, int]:
    return {row: table_3.count_parameters(row) for row in table_3.ROWS}


def test_rows_of_table_3_have_their_exact_sizes(counts):
    assert {(row.group, row.change): count for row, count in counts.items()} == COUNTS


def test_variation_rows_are_what_their_names_say():
    for row in table_3.ROWS:
        model, words = row.model, row.change.replace(",", "").split()
        sizes = dict(zip(("d_k", "d_v"), model.attention.head_sizes(model.d_model), strict=True))
        sizes |= {"d_model": model.d_model, "d_ff": model.feed_forward.d_ff, "dropout": model.dropout}
        sizes |= {"smoothing": row.label_smoothing}
        for name, value in itertools.pairwise(words):
            if name in sizes and value[0].isdigit():
                assert sizes[name] == float(value), row.change
            if value.startswith("head"):
                assert model.attention.heads == int(name)
            if value == "layers":
                assert (model.encoder_layers, model.decoder_layers) == (int(name), int(name))


def test_sizes_are_counted_without_memory_for_them(counts):
    with torch.device("meta"):
        model = build(table_3.ROWS[-1].model, table_3.VOCABULARY)
    assert all(p.is_meta for p in model.parameters())
    assert sum(p.numel() for p in model.parameters()) == max(counts.values())


def test_paper_is_quoted_as_it_stands():
    """Perplexities and BLEU of the rows, in the paper's order."""
    quoted = """4.92 25.8  5.29 24.9  5.00 25.5  4.91 25.8  5.01 25.4  5.16 25.1  5.01 25.4  6.11 23.7  5.19 25.3
    4.88 25.5  5.75 24.5  4.66 26.0  5.12 25.4  4.75 26.2  5.77 24.6  4.95 25.5  4.67 25.3  5.47 25.7  4.92 25.7
    4.33 26.4"""
    numbers = [float(number) for number in quoted.split()]
    assert [value for row in table_3.ROWS for value in (row.perplexity, row.bleu)] == numbers
    millions = [row.millions for row in table_3.ROWS if row.millions]
    assert millions == [65, 58, 60, 36, 50, 80, 28, 168, 53, 90, 213]


# The schedule.


def test_rates_are_those_of_equation_3():
    found = [paper_rate(step, *schedule.PAPER) for step in (1, 4000, 16000)]
    assert [f"{rate:.4e}" for rate in found] == ["1.7469e-07", "6.9877e-04", "3.4939e-04"]
    table = findings("schedule").tables["Learning rates of equation 3"]
    by_step = {row[0]: row[1] for row in table.rows}
    assert [by_step[step] for step in (1, 4000, 16000)] == found


@pytest.mark.parametrize(("d_model", "warmup"), schedule.CURVES)
def test_rate_is_highest_at_the_end_of_the_warmup(d_model: int, warmup: int):
    assert schedule.peak_step(d_model, warmup) == warmup
    highest = paper_rate(warmup, d_model, warmup)
    assert highest == pytest.approx((d_model * warmup) ** -0.5)
    assert paper_rate(warmup // 4, d_model, warmup) == pytest.approx(highest / 4)  # straight up
    assert paper_rate(4 * warmup, d_model, warmup) == pytest.approx(highest / 2)  # down with the root


def test_rates_without_warmup_lack_only_the_rise():
    for step in (1, 50, 100):
        assert schedule.rate_without_warmup(step, 64, 100) == paper_rate(100, 64, 100)
    for step in (101, 1000):
        assert schedule.rate_without_warmup(step, 64, 100) == paper_rate(step, 64, 100)


# Label smoothing.


@pytest.mark.parametrize(("count", "smoothing"), [(5, 0.1), (5, 0.2), (30, 0.1)])
def test_smoothed_loss_is_never_below_the_floor(count: int, smoothing: float):
    least, (right, other) = (
        label_smoothing.lowest_loss(count, smoothing),
        label_smoothing.smoothed_probabilities(count, smoothing),
    )
    labels = torch.tensor([right, *[other] * (count - 1)], dtype=torch.float64)
    assert least == pytest.approx(float(torch.distributions.Categorical(labels).entropy()))
    assert label_smoothing.loss_at(right, count, smoothing) == pytest.approx(least)
    for p in (0.5, right - 0.01, right + 0.01, 0.999):  # the Kullback-Leibler divergence is what lies above it
        predicted = torch.tensor([p, *[(1 - p) / (count - 1)] * (count - 1)], dtype=torch.float64)
        divergence = float(F.kl_div(predicted.log(), labels, reduction="sum"))
        assert label_smoothing.loss_at(p, count, smoothing) == pytest.approx(least + divergence)
        assert divergence > 0


def test_noise_replaces_some_words_of_the_targets():
    pairs = label_smoothing.TASK.pairs(500, 1)
    noisy = label_smoothing.with_noise(pairs, 1)
    assert [source for source, _ in noisy] == [source for source, _ in pairs]
    wrong = [a != b for (_, one), (_, other) in zip(pairs, noisy, strict=True) for a, b in zip(one, other, strict=True)]
    assert np.mean(wrong) == pytest.approx(label_smoothing.NOISE, abs=0.02)


# Beam search.


def test_beam_outputs_are_each_scored_once():
    """And those that end have probabilities that sum to 1 with those that are cut off."""
    torch.manual_seed(0)
    model = build(replace(beams.CONFIG, d_model=16, share="none"), beams.TRIED).eval()
    scores = beams.score_every_output(model, [3, 4], 0.0)
    assert len(scores) == beams.OUTPUTS == 341
    assert sum(map(math.exp, scores.values())) == pytest.approx(1, abs=1e-5)


def test_targets_have_fillers_as_often_as_said():
    task = beams.copying_with_fillers()
    pairs = task.pairs(500, 1)
    for source, target in pairs:
        assert [word for word in target if word not in beams.FILLERS] == source
        assert all(not {a, b} <= set(beams.FILLERS) for a, b in itertools.pairwise(target))
    fillers = sum(len(target) - len(source) for source, target in pairs)
    assert fillers / sum(len(source) for source, _ in pairs) == pytest.approx(beams.OFTEN, abs=0.05)
    assert max(max(target) for _, target in pairs) < task.vocabulary


# Calibration.


@pytest.mark.parametrize(
    ("p", "right", "excess", "error"),
    [
        ([0.75] * 4, [1, 1, 1, 0], 0, 0),
        ([1.0] * 4, [1, 1, 0, 0], 0.5, 0.5),
        ([0.25, 0.75], [1, 0], 0, 0.75),  # wrong in both bins, and right on average
        ([0.72, 0.78], [1, 0], 0.25, 0.25),  # of one bin
    ],
)
def test_calibration_error_is_the_mean_gap_within_bins(p: list[float], right: list[int], excess: float, error: float):
    judged = calibration.Judged(np.array(p), np.array(right, dtype=float))
    assert (judged.excess, judged.error) == (pytest.approx(excess), pytest.approx(error))
    assert sum(share for share, _, _ in judged.bins()) == 1


def test_area_is_the_share_of_pairs_in_order():
    score, wrong = np.array([3.0, 1, 2, 0, 1]), np.array([True, True, False, False, False])
    pairs = [(a > b) + (a == b) / 2 for a in score[wrong] for b in score[~wrong]]
    assert calibration.area(score, wrong) == pytest.approx(sum(pairs) / 6)
    assert calibration.area(-score, wrong) == pytest.approx(1 - sum(pairs) / 6)
    assert calibration.area(score, wrong | True) == 0.5


def test_outputs_are_right_where_every_token_is_that_of_the_reference():
    """The references are what the same search gave before, all but the first of them."""
    pairs, width = calibration.REVERSING.pairs(50, 1), calibration.SEARCHES[calibration.BEAM]
    model = label_smoothing.train_on(pairs, 0.0, 20, 1)
    sources = [source for source, _ in pairs]
    before = [h for h in beams.best_hypotheses(model, sources, width, 0.0, 40) if h.finished]
    assert len(before) == 50
    references = [[3, *before[0].tokens], *(h.tokens for h in before[1:])]
    outputs = calibration.search_outputs(model, list(zip(sources, references, strict=True)), calibration.BEAM)
    assert outputs.right.tolist() == [0.0, *[1.0] * 49]
    assert outputs.log_p.tolist() == pytest.approx([h.score for h in before])
    assert outputs.tokens.tolist() == [len(h.tokens) + 1 for h in before]
    assert outputs.long.tolist() == [len(reference) > 7.5 for reference in references]


def test_sampled_outputs_are_less_probable_than_searched_ones():
    model = label_smoothing.train_on(calibration.REVERSING.pairs(50, 1), 0.0, 20, 1)
    outputs = {
        search: calibration.search_outputs(model, calibration.REVERSING.pairs(50, 2), search)
        for search in calibration.SEARCHES
    }
    sampled, greedy, beam = (float(each.log_p.sum()) for each in outputs.values())
    assert sampled < greedy < beam
