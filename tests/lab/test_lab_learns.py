"""What the lab says of learning, by training for real: each with a control that must turn out otherwise."""

import pytest

from dragoman_lab import (
    additive,
    feed_forward,
    heads,
    label_smoothing,
    learned_positions,
    norms,
    pre_post_norm,
    recall,
    residuals,
    sum_or_concat,
    unscaled_training,
)
from dragoman_lab.experiment import Effort
from dragoman_lab.reversal_setup import CLEARLY, last
from dragoman_lab.tasks import Learned, learn, small, warm_up

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [1, 2])
def test_transformer_recalls_a_distant_word_and_a_plain_rnn_does_not(seed: int):
    """Attention is what the RNN lacks, and distance its problem: over 2 words it learns the task."""

    def recalled(name: str, distance: int) -> float:
        return recall.train_and_recall(recall.KINDS[name], distance, seed, Effort((seed,), 0.25))

    assert recalled(recall.TRANSFORMER, 30) >= 0.95
    assert recalled(recall.attending_name(recall.PLAIN), 30) >= 0.8
    assert recalled(recall.PLAIN, 30) <= 0.2
    assert recalled(recall.PLAIN, 2) >= 0.5


@pytest.mark.parametrize("seed", [1, 2])
def test_large_d_k_learns_clearly_worse_without_the_division(seed: int):
    """At d_k = 1 the division is by 1: not even the last digit of a loss differs."""

    def losses(d_k: int, steps: int) -> list[list[float]]:
        return [unscaled_training.run_trial(d_k, s, seed, steps).learned.losses for s in unscaled_training.SCORES]

    scaled, unscaled = map(last, losses(unscaled_training.LARGE, 300))
    assert scaled < 0.6 * unscaled
    scaled, unscaled = losses(1, 20)
    assert scaled == unscaled


@pytest.mark.parametrize("seed", [1, 2])
def test_large_d_k_harms_the_unscaled_product_and_not_additive_attention(seed: int):
    """It learns about as well as the scaled product. At d_k = 1 neither product is behind it by much."""

    def behind_additive(d_k: int) -> tuple[float, float]:
        scores = (additive.SCALED, additive.UNSCALED, additive.ADDITIVE)
        scaled, unscaled, best = (additive.run_trial(score, d_k, seed, 160).loss for score in scores)
        return scaled - best, unscaled - best

    scaled, unscaled = behind_additive(additive.LARGE)
    assert abs(scaled) < 0.4
    assert unscaled > 1
    assert max(map(abs, behind_additive(1))) < 0.4


@pytest.mark.parametrize("seed", [1, 2])
def test_heads_learn_in_any_number_and_less_with_one_dimension_each(seed: int):
    """After one step none has learned, and they are alike."""

    def learned(steps: int) -> dict[int, Learned]:
        return {count: heads.run_trial(count, seed, steps).learned for count in (1, 8, 64)}

    first, after = learned(1), learned(160)
    assert min(one.accuracy for one in after.values()) > 0.7
    assert max(one.accuracy for one in first.values()) < 0.3
    assert max(last(after[count].losses) for count in (1, 8)) < last(after[64].losses) - CLEARLY
    assert max(abs(first[count].losses[0] - first[64].losses[0]) for count in (1, 8)) < CLEARLY


def test_sinusoids_and_a_learned_table_learn_alike():
    """At the lengths of training; at twice these lengths neither holds up. Without positions there is no order."""
    trained = {s: learned_positions.train_to_copy(s, Effort((1,), 0.5), 1) for s in ("sinusoidal", "learned", "none")}
    right = {scheme: learned.accuracy for scheme, (learned, _) in trained.items()}
    assert right["sinusoidal"] == pytest.approx(right["learned"], abs=0.03)
    assert right["none"] < min(right["sinusoidal"], right["learned"]) - 0.2
    for scheme in ("sinusoidal", "learned"):
        by_length = dict(zip(learned_positions.LENGTHS, trained[scheme][1], strict=True))
        assert by_length[16] < 0.7 * by_length[8]


@pytest.mark.parametrize("seed", [1, 2])
def test_deep_post_norm_alone_loses_without_warm_up(seed: int):
    """Eight layers, at a high rate and without clipping, which would hide some of it: loss with and without."""
    config = small(32, layers=4)

    def loss(kind: str, warmup: int) -> float:
        model, rate = pre_post_norm.make_model(kind, config, seed), warm_up(5e-3, warmup)
        return last(learn(model, pre_post_norm.TASK, steps=120, seed=seed, rate=rate, batch=32, clip=0.0).losses)

    assert loss(pre_post_norm.POST, 1) > loss(pre_post_norm.POST, 30) + 2 * CLEARLY
    assert loss(pre_post_norm.PRE, 1) < loss(pre_post_norm.PRE, 30) + CLEARLY


def test_added_and_concatenated_positions_both_learn():
    def right(kind: str, steps: int) -> float:
        return learn(sum_or_concat.make_model(kind, 1), sum_or_concat.TASK, steps=steps, seed=1).accuracy

    for kind in (sum_or_concat.SUM, sum_or_concat.CONCATENATED):
        assert right(kind, 150) >= 0.8
        assert right(kind, 1) <= 0.3


def test_relu_and_gelu_both_learn():
    for activation in feed_forward.ACTIVATIONS:
        (learned,), (new,) = (
            feed_forward.train_with_activation(activation, 1.0, steps, (1,)).accuracies for steps in (150, 1)
        )
        assert learned >= 0.7
        assert new <= 0.3


def test_deep_stack_learns_with_residuals_alone():
    """A stack of one layer learns without them, too."""

    def right(kind: str, layers: int) -> float:
        model = residuals.make_model(kind, layers, 1)
        return learn(model, residuals.TASK, steps=160, seed=1, batch=residuals.PAIRS).accuracy

    assert right(residuals.WITH, residuals.DEEP) >= 0.6
    assert right(residuals.WITHOUT, residuals.DEEP) <= 0.3
    assert right(residuals.WITHOUT, 1) >= 0.6


@pytest.mark.parametrize("seed", [1, 2])
def test_batch_norm_learns_from_large_batches_and_less_from_single_pairs(seed: int):
    """And what it has learned depends on the company of a sentence."""

    def learned(kind: str, size: int) -> tuple[float, float, float]:
        model, rate = norms.make_model(kind, seed), warm_up(norms.PEAK, norms.WARMUP)
        right = learn(model, norms.TASK, steps=200, seed=seed, rate=rate, batch=size).accuracy
        in_use, _, one_by_one = norms.measure_losses(model, norms.TASK.pairs(64, seed + 1))
        return right, in_use, one_by_one

    right, in_use, one_by_one = learned(norms.BATCH, 64)
    assert right > 0.9
    assert one_by_one > 5 * in_use
    right, in_use, one_by_one = learned(norms.LAYER, 64)
    assert right > 0.9
    assert one_by_one == pytest.approx(in_use, rel=1e-4)
    assert learned(norms.BATCH, 1)[0] < learned(norms.LAYER, 1)[0] - 0.05


@pytest.mark.parametrize("seed", [1, 2])
def test_smoothing_makes_a_model_less_sure_and_robust_to_wrong_labels(seed: int):
    """Perplexity does not suffer. After 20 steps, before wrong labels are known by heart, accuracy is the same."""

    def tested(smoothing: float, steps: int) -> label_smoothing.Trial:
        model = label_smoothing.train_on_noise(smoothing, steps, seed)
        return label_smoothing.Trial.from_tests(smoothing, [label_smoothing.test_model(model, seed)])

    plain, smooth = tested(0.0, 200), tested(0.1, 200)
    assert smooth.highest < plain.highest - 0.05
    assert smooth.accuracy > plain.accuracy + 0.02
    assert smooth.perplexity < plain.perplexity
    assert tested(0.1, 20).accuracy == pytest.approx(tested(0.0, 20).accuracy, abs=0.01)
