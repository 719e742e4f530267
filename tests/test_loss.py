"""The loss with smoothed labels, the learning rate, and the optimizer. N tokens, V words."""

import math

import pytest
import torch
import torch.nn.functional as F
from conftest import gap
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError

from dragoman.training.loss import smoothed_cross_entropy
from dragoman.training.optimizer import adam, paper_rate

SMOOTHINGS = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])


pytestmark = pytest.mark.usefixtures("seeded_double_precision")


def some(tokens: int = 6, words: int = 5) -> tuple[Tensor, Tensor]:
    return torch.randn(tokens, words, requires_grad=True), torch.randint(words, (tokens,))


def smoothed(labels: Tensor, words: int, smoothing: float) -> Tensor:
    return (1 - smoothing) * F.one_hot(labels, words).double() + smoothing / words


# Cross-entropy.


@settings(max_examples=40)
@given(st.integers(1, 8), st.integers(2, 9), st.floats(0, 0.9), st.integers(0, 99))
def test_the_loss_equals_that_of_pytorch(tokens, words, smoothing, seed):
    torch.manual_seed(seed)
    logits, labels = some(tokens, words)
    ours = smoothed_cross_entropy(logits, labels, smoothing)
    assert gap(ours, F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")) <= 1e-12


@SMOOTHINGS
def test_the_gradient_equals_that_of_pytorch(smoothing):
    logits, labels = some()
    ours, theirs, other = (
        torch.autograd.grad(3 * loss, logits)[0]
        for loss in (
            smoothed_cross_entropy(logits, labels, smoothing),
            F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum"),
            F.cross_entropy(logits, labels, label_smoothing=smoothing + 0.1, reduction="sum"),
        )
    )
    assert gap(ours, theirs) <= 1e-12
    assert gap(ours, other) > 1e-3


def test_another_smoothing_is_another_loss():
    logits, labels = some()
    theirs = F.cross_entropy(logits, labels, label_smoothing=0.1, reduction="sum")
    assert gap(smoothed_cross_entropy(logits, labels, 0.2), theirs) > 1e-3


@SMOOTHINGS
def test_the_gradient_is_the_derivative_of_the_loss(smoothing):
    logits, labels = some()
    assert torch.autograd.gradcheck(lambda x: smoothed_cross_entropy(x, labels, smoothing), logits)
    with pytest.raises(GradcheckError):
        torch.autograd.gradcheck(lambda x: smoothed_cross_entropy(x, labels, smoothing) + x.detach().sum(), logits)


@SMOOTHINGS
def test_the_gradient_is_what_was_predicted_minus_what_was_right(smoothing):
    logits, labels = some()
    smoothed_cross_entropy(logits, labels, smoothing).backward()
    assert gap(logits.grad, logits.softmax(-1) - smoothed(labels, 5, smoothing)) <= 1e-12
    assert gap(logits.grad, logits.softmax(-1) - smoothed(labels, 5, smoothing + 0.1)) > 1e-3


def test_without_smoothing_it_is_minus_the_log_probability_of_the_labels():
    logits, labels = some()
    log_p = logits.log_softmax(-1)
    by_hand = -sum(log_p[token, label] for token, label in enumerate(labels))
    assert gap(smoothed_cross_entropy(logits, labels, 0.0), by_hand) <= 1e-12
    assert gap(smoothed_cross_entropy(logits, labels, 0.1), by_hand) > 1e-3


def test_of_five_words_the_right_one_gets_92_percent_and_the_others_2():
    label = torch.tensor([3])
    assert smoothed(label, 5, 0.1).tolist() == [pytest.approx([0.02, 0.02, 0.02, 0.92, 0.02])]
    optimum = torch.tensor([[0.02, 0.02, 0.02, 0.92, 0.02]]).log().requires_grad_()
    smoothed_cross_entropy(optimum, label, 0.1).backward()
    assert gap(optimum.grad, torch.zeros(1, 5)) <= 1e-12
    over_the_wrong_words_alone = torch.tensor([[0.025, 0.025, 0.025, 0.9, 0.025]]).log().requires_grad_()
    smoothed_cross_entropy(over_the_wrong_words_alone, label, 0.1).backward()
    assert gap(over_the_wrong_words_alone.grad, torch.zeros(1, 5)) > 1e-3


@given(st.lists(st.floats(-5, 5), min_size=5, max_size=5))
def test_no_prediction_is_better_than_the_entropy_of_the_smoothed_label(scores):
    label, target = torch.tensor([3]), smoothed(torch.tensor([3]), 5, 0.1)
    floor = -float((target * target.log()).sum())
    loss = float(smoothed_cross_entropy(torch.tensor([scores], dtype=torch.float64), label, 0.1))
    divergence = float((target * (target.log() - torch.tensor([scores], dtype=torch.float64).log_softmax(-1))).sum())
    assert loss >= floor - 1e-12
    assert loss == pytest.approx(floor + divergence, abs=1e-10)
    assert float(smoothed_cross_entropy(target.log(), label, 0.1)) == pytest.approx(floor, abs=1e-12)
    assert float(smoothed_cross_entropy(target.log(), label, 0.0)) < floor


def test_the_loss_is_a_sum_over_tokens():
    logits, labels = some()
    parts = smoothed_cross_entropy(logits[:2], labels[:2], 0.1) + smoothed_cross_entropy(logits[2:], labels[2:], 0.1)
    assert gap(parts, smoothed_cross_entropy(logits, labels, 0.1)) <= 1e-12
    assert gap(parts, smoothed_cross_entropy(logits, labels, 0.1) / 6) > 1e-3


@SMOOTHINGS
def test_huge_logits_give_a_finite_loss_and_gradient(smoothing):
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]], dtype=torch.float32, requires_grad=True)
    loss = smoothed_cross_entropy(logits, torch.tensor([0, 0]), smoothing)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()
    assert logits.detach().exp().isinf().any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_gradient_has_the_type_of_the_logits(dtype):
    logits, labels = some()
    half = logits.detach().to(dtype).requires_grad_()
    smoothed_cross_entropy(half, labels, 0.1).backward()
    assert half.grad.dtype == dtype
    assert gap(half.grad.double(), logits.softmax(-1) - smoothed(labels, 5, 0.1)) < 0.02


def test_no_tokens_have_no_loss():
    logits = torch.zeros(0, 5, requires_grad=True)
    loss = smoothed_cross_entropy(logits, torch.zeros(0, dtype=torch.long), 0.1)
    loss.backward()
    assert float(loss.detach()) == 0
    assert logits.grad.shape == (0, 5)


# The learning rate.


@pytest.mark.parametrize(("step", "rate"), [(1, 1.7469e-7), (4000, 6.9877e-4), (16000, 3.4939e-4)])
def test_the_rate_of_the_base_model(step, rate):
    assert paper_rate(step, d_model=512, warmup=4000) == pytest.approx(rate, rel=1e-4)
    assert paper_rate(step, d_model=256, warmup=4000) != pytest.approx(rate, rel=1e-4)


@given(st.integers(1, 10_000), st.integers(1, 2000), st.integers(1, 2048))
def test_the_rate_rises_for_the_warmup_and_then_falls(step, warmup, d_model):
    now, then = (paper_rate(number, d_model, warmup) for number in (step, step + 1))
    assert (then > now) == (step < warmup)
    assert paper_rate(warmup, d_model, warmup) >= now


@given(st.integers(1, 2000), st.integers(1, 1000))
def test_the_rate_rises_in_a_straight_line_and_falls_with_the_root(warmup, times):
    peak = paper_rate(warmup, 512, warmup)
    assert paper_rate(1, 512, warmup) * warmup == pytest.approx(peak)
    assert paper_rate(warmup * times, 512, warmup) * math.sqrt(times) == pytest.approx(peak)


# The optimizer.


def two_steps(optimizer_of, rate: float) -> Tensor:
    torch.manual_seed(0)
    model = nn.Linear(3, 2, bias=False)
    optimizer = optimizer_of(model)
    for gradient in (torch.ones(2, 3), torch.randn(2, 3)):
        optimizer.param_groups[0]["lr"] = rate
        model.weight.grad = gradient
        optimizer.step()
    return model.weight.detach()


def adam_by_hand(rate: float, betas: tuple[float, float]) -> Tensor:
    torch.manual_seed(0)
    weight, mean, square = nn.Linear(3, 2, bias=False).weight.detach(), 0.0, 0.0
    for step, gradient in enumerate((torch.ones(2, 3), torch.randn(2, 3)), start=1):
        mean = betas[0] * mean + (1 - betas[0]) * gradient
        square = betas[1] * square + (1 - betas[1]) * gradient**2
        corrected, scale = mean / (1 - betas[0] ** step), square / (1 - betas[1] ** step)
        weight = weight - rate * corrected / (scale.sqrt() + 1e-9)
    return weight


def test_adam_takes_the_steps_of_the_paper():
    taken = two_steps(adam, 0.1)
    assert gap(taken, adam_by_hand(0.1, (0.9, 0.98))) <= 1e-12
    assert gap(taken, adam_by_hand(0.1, (0.9, 0.999))) > 1e-4


def test_adam_has_no_rate_of_its_own():
    assert gap(two_steps(adam, 0.0), adam_by_hand(0.0, (0.9, 0.98))) == 0
    assert [group["lr"] for group in adam(nn.Linear(3, 2)).param_groups] == [0]


def test_the_constants_of_adam_are_those_of_the_paper():
    (group,) = adam(nn.Linear(3, 2)).param_groups
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.98), 1e-9, 0)
