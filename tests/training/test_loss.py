"""The output matrix and the loss with smoothed labels, in one. N tokens, M numbers each, V words."""

import pytest
import torch
import torch.nn.functional as F
from conftest import gap
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.training import loss as module
from dragoman.training.loss import output_loss

SMOOTHINGS = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
BIASES = pytest.mark.parametrize("with_bias", [False, True])

pytestmark = pytest.mark.usefixtures("seeded_double_precision")

Given = tuple[Tensor, Tensor, Tensor | None, Tensor]


def some(tokens: int = 6, size: int = 3, words: int = 5, with_bias: bool = True) -> Given:
    """vectors (N, M), weight (V, M), bias (V,) and labels (N,)."""
    bias = torch.randn(words, requires_grad=True) if with_bias else None
    vectors, weight = (torch.randn(rows, size, requires_grad=True) for rows in (tokens, words))
    return vectors, weight, bias, torch.randint(words, (tokens,))


def reference(given: Given, smoothing: float) -> Tensor:
    vectors, weight, bias, labels = given
    logits = F.linear(vectors, weight, bias)
    return F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")


def gradients(loss: Tensor, given: Given) -> list[Tensor]:
    return list(torch.autograd.grad(loss, [tensor for tensor in given[:3] if tensor is not None]))


# Against PyTorch, in double precision.


@settings(max_examples=40)
@given(st.integers(1, 8), st.integers(1, 6), st.integers(2, 9), st.booleans(), st.floats(0, 0.9), st.integers(0, 99))
def test_loss_equals_that_of_pytorch(tokens, size, words, with_bias, smoothing, seed):
    torch.manual_seed(seed)
    given = some(tokens, size, words, with_bias)
    assert gap(output_loss(*given, smoothing), reference(given, smoothing)) <= 1e-12
    assert gap(output_loss(*given, smoothing), reference(given, 0.95)) > 1e-6


@BIASES
@SMOOTHINGS
def test_loss_gradients_equal_those_of_pytorch(smoothing, with_bias):
    given = some(with_bias=with_bias)
    ours, theirs, others = (
        gradients(3 * loss, given)
        for loss in (output_loss(*given, smoothing), reference(given, smoothing), reference(given, smoothing + 0.1))
    )
    assert len(ours) == 2 + with_bias
    assert all(gap(one, other) <= 1e-12 for one, other in zip(ours, theirs, strict=True))
    assert all(gap(one, other) > 1e-3 for one, other in zip(ours, others, strict=True))


@pytest.mark.parametrize(("rows", "rows_of_piece"), [(1, 1), (2, 1), (4, 3), (7, 2), (100, 100)])
@BIASES
def test_loss_does_not_depend_on_the_size_of_blocks_and_pieces(monkeypatch, rows, rows_of_piece, with_bias):
    given = some(tokens=7, with_bias=with_bias)
    whole, other = output_loss(*given, 0.1), some(tokens=7)[0]
    monkeypatch.setitem(module.BLOCK, "cpu", 5 * rows)
    monkeypatch.setattr(module, "PIECE", 5 * rows_of_piece // torch.get_num_threads())
    pieces = output_loss(*given, 0.1)
    assert gap(pieces, whole) <= 1e-12
    together = zip(gradients(pieces, given), gradients(whole, given), strict=True)
    assert all(gap(one, all_) <= 1e-12 for one, all_ in together)
    assert gap(output_loss(other, *given[1:], 0.1), whole) > 1e-3


def test_loss_keeps_no_more_logits_than_allowed(monkeypatch):
    made = []
    inner = module.softmax_loss
    monkeypatch.setattr(module, "softmax_loss", lambda x, *rest: made.append(x.numel()) or inner(x, *rest))
    given = some(tokens=64)
    output_loss(*given, 0.1)
    monkeypatch.setitem(module.BLOCK, "cpu", 50)
    output_loss(*given, 0.1)
    assert made[0] == 64 * 5
    assert made[1:] == [50] * 6 + [20]


@SMOOTHINGS
def test_loss_without_gradients_is_the_same(smoothing):
    """As in validation."""
    given = some()
    with torch.inference_mode():
        found = output_loss(*given, smoothing)
    assert not found.requires_grad
    assert float(found) == float(output_loss(*given, smoothing).detach())


def test_loss_has_gradients_only_for_what_learns():
    vectors, weight, bias, labels = some()
    (alone,) = torch.autograd.grad(output_loss(vectors, weight.detach(), bias.detach(), labels, 0.1), vectors)
    together = gradients(output_loss(vectors, weight, bias, labels, 0.1), (vectors, weight, bias, labels))
    assert torch.equal(alone, together[0])


@SMOOTHINGS
def test_loss_and_gradient_of_huge_logits_are_finite(smoothing):
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]], dtype=torch.float32, requires_grad=True)
    loss = output_loss(logits, torch.eye(3, dtype=torch.float32), None, torch.tensor([0, 0]), smoothing)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()
    assert logits.detach().exp().isinf().any()


def test_loss_of_no_tokens_is_zero():
    vectors, weight, bias, labels = some(tokens=0)
    loss = output_loss(vectors, weight, bias, labels, 0.1)
    loss.backward()
    assert float(loss.detach()) == 0
    assert vectors.grad.shape == (0, 3)
    assert not weight.grad.any()


# In half the bits.


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@BIASES
def test_loss_under_autocast_is_close_and_gradients_have_their_tensors_types(dtype, with_bias):
    given = some(tokens=40, size=8, words=30, with_bias=with_bias)
    exact = gradients(reference(given, 0.1), given)
    tensors = tuple(None if t is None else t.detach().float().requires_grad_() for t in given[:3])
    with torch.autocast("cpu", dtype):
        loss = output_loss(tensors[0].to(dtype), *tensors[1:], given[3], 0.1)
    assert loss.dtype == torch.float32
    loss.backward()
    assert float(loss.detach()) == pytest.approx(float(reference(given, 0.1).detach()), rel=0.01)
    found = [tensor.grad for tensor in tensors if tensor is not None]
    assert {gradient.dtype for gradient in found} == {torch.float32}
    for ours, theirs in zip(found, exact, strict=True):
        assert gap(ours.double(), theirs) < 0.05 * float(theirs.abs().max())
    # The controls: the products were rounded, and another label is further away.
    assert float(loss.detach()) != pytest.approx(float(reference(given, 0.1).detach()), rel=1e-6)
    others = gradients(reference((*given[:3], (given[3] + 1) % 30), 0.1), given)
    for ours, theirs in zip(found[:2], others[:2], strict=True):
        assert gap(ours.double(), theirs) > 0.5 * float(theirs.abs().max())
