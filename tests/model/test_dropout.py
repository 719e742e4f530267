"""Dropout: so many places become zero, the others grow, and the mean stays."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.model.transformer import DROPOUT_STEPS, Dropout

PLACES = 1_000_000
DEVIATIONS = 5  # of a count; a right one is further off once in two million times


def dropped(rate: float, x: Tensor, seed: int = 1) -> Tensor:
    torch.manual_seed(seed)
    return Dropout(rate).train()(x)


def near(count: int, rate: float) -> bool:
    return abs(count - PLACES * rate) <= DEVIATIONS * (PLACES * rate * (1 - rate)) ** 0.5


@pytest.mark.parametrize("rate", [0.003, 0.1, 0.3, 0.5, 0.9])
def test_dropout_zeroes_the_share_of_its_rate_and_keeps_the_mean(rate: float):
    out = dropped(rate, torch.full((PLACES,), 3.0))
    zeros, kept = int((out == 0).sum()), out[out != 0].unique()
    assert near(zeros, rate)
    assert not near(zeros, 0.8 * rate)
    assert kept.tolist() == pytest.approx([3 / (1 - rate)], rel=1e-4)


def test_dropout_scales_kept_elements_by_exactly_the_rate_in_use():
    """Rates are multiples of 1 / 65,536; the factor is of that multiple, not of the rate asked for."""
    used = round(0.1 * DROPOUT_STEPS) / DROPOUT_STEPS
    assert used != 0.1
    kept = dropped(0.1, torch.ones(1000, dtype=torch.float64)).max()
    assert float(kept) == pytest.approx(1 / (1 - used), rel=1e-12)


def test_dropout_drops_places_independently():
    """Also the four that come from one number, and neighbouring rows of 1,000."""
    x = (dropped(0.5, torch.ones(PLACES)) == 0).double() - 0.5
    most = DEVIATIONS * 0.25 * PLACES**0.5
    for shift in (1, 2, 3, 4, 1000):
        assert abs(float(x[:-shift] @ x[shift:])) < most
    assert float(x @ x) > most


@pytest.mark.parametrize("shape", [(), (1,), (3,), (4,), (5,), (2, 3, 7), (0,), (4, 0)])
def test_dropout_takes_any_shape(shape: tuple[int, ...]):
    x = torch.randn(shape)
    out = dropped(0.5, x)
    assert out.shape == x.shape
    assert ((out == 0) | (out == 2 * x)).all()


def test_dropout_treats_a_view_like_its_copy():
    x = torch.randn(6, 5).T
    assert torch.equal(dropped(0.5, x), dropped(0.5, x.contiguous()))


def test_dropout_gradient_goes_through_what_was_kept_alone():
    x = torch.randn(1000, dtype=torch.float64, requires_grad=True)
    out = dropped(0.3, x)
    out.backward(torch.full_like(x, 2.0))
    factor = float((out / x).max().detach())
    torch.testing.assert_close(x.grad, torch.where(out == 0, 0.0, x.new_tensor(2 * factor)))
    assert 0 < int((x.grad == 0).sum()) < 1000


def test_dropout_without_training_or_rate_draws_nothing():
    x = torch.randn(1000)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    before = torch.get_rng_state()
    assert torch.equal(Dropout(0.0).train()(x), x)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(Dropout(0.5).train()(x), x)
    assert not torch.equal(torch.get_rng_state(), before)


def test_dropout_depends_on_the_seed():
    x = torch.randn(1000)
    assert torch.equal(dropped(0.5, x), dropped(0.5, x))
    assert not torch.equal(dropped(0.5, x), dropped(0.5, x, seed=2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dropout_keeps_the_type(dtype: torch.dtype):
    x = torch.randn(1000, dtype=dtype)
    out = dropped(0.1, x)
    assert out.dtype == dtype
    assert torch.equal(out == 0, dropped(0.1, x.double()) == 0)


def test_dropout_elsewhere_than_on_a_cpu_is_that_of_pytorch():
    """Only a GPU could run it; a device without numbers shows at least which way is taken."""
    x = torch.empty(8, device="meta")
    assert dropped(0.5, x).device == F.dropout(x, 0.5).device == x.device
