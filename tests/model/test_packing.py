"""Packing moves the real tokens of a batch, and nothing else, into one row and back."""

import pytest
import torch
from conftest import REAL, TINY, TINY_RECURRENT
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

import dragoman.model.packing
import dragoman.training.loss
from dragoman.config import ModelConfig
from dragoman.data.batches import Batch
from dragoman.model import build
from dragoman.model.packing import MULTIPLE, Packing
from dragoman.training.loss import Objective

pytestmark = pytest.mark.usefixtures("seeded_double_precision")


@st.composite
def masks(draw) -> Tensor:
    size = draw(st.tuples(st.integers(1, 4), st.integers(1, 5)))
    cells = draw(st.lists(st.booleans(), min_size=size[0] * size[1], max_size=size[0] * size[1]))
    return torch.tensor(cells).view(size)


@given(masks())
def test_packing_is_indexing_and_unpacking_its_inverse_with_zeros_elsewhere(real: Tensor):
    x, packing = torch.randn(*real.shape, 3, requires_grad=True), Packing(real)
    packed = packing.pack(x)
    unpacked = packing.unpack(packed)
    assert torch.equal(packed, x[real])
    assert torch.equal(unpacked, x * real[..., None])
    assert torch.equal(packing.pack(unpacked), packed)
    for ours, plain in ((packed, x[real]), (unpacked, x * real[..., None])):
        toward = torch.randn_like(ours)
        assert torch.equal(*(torch.autograd.grad(y, x, toward, retain_graph=True)[0] for y in (ours, plain)))


def test_packing_the_wrong_positions_is_seen():
    x = torch.randn(*REAL.shape, 3)
    shifted = Packing(REAL.roll(1, 1))
    assert not torch.equal(shifted.pack(x), x[REAL])
    assert not torch.equal(shifted.unpack(shifted.pack(x)), x * REAL[..., None])


@pytest.mark.parametrize("move", ["pack", "unpack"])
def test_packing_and_unpacking_have_right_gradients_twice_over(move: str):
    packing = Packing(REAL)
    x = torch.randn((*REAL.shape, 2) if move == "pack" else (int(REAL.sum()), 2), requires_grad=True)
    assert torch.autograd.gradcheck(getattr(packing, move), x)
    assert torch.autograd.gradgradcheck(getattr(packing, move), x)


def test_wrong_packing_gradient_is_found_control():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[REAL]

        @staticmethod
        def backward(ctx, grad):
            return Packing(REAL.flip(0)).unpack(grad).detach()

    with pytest.raises(GradcheckError):
        torch.autograd.gradcheck(Wrong.apply, torch.randn(*REAL.shape, 2, requires_grad=True))


def test_full_batch_is_packed_by_a_change_of_view():
    x = torch.randn(2, 3, 4)
    for packing in (Packing.full(x[..., 0]), Packing(torch.ones(2, 3, dtype=torch.bool))):
        assert packing.pack(x).data_ptr() == x.data_ptr()
        assert packing.pack(x).shape == (6, 4)
        assert packing.unpack(packing.pack(x)).data_ptr() == x.data_ptr()
        assert packing.mask is None
    assert Packing(REAL).pack(torch.randn(*REAL.shape, 4)).shape == (8, 4)


def test_packing_mask_is_true_where_a_token_is():
    assert torch.equal(Packing(REAL).mask, REAL[:, None, None, :])


def test_selected_sentences_are_packed_as_they_are():
    x, rows = torch.randn(*REAL.shape, 3), torch.tensor([2, 0, 0])
    assert torch.equal(Packing(REAL).select(rows).pack(x[rows]), x[rows][REAL[rows]])
    assert Packing(REAL).pack(x[rows]).shape != x[rows][REAL[rows]].shape


def in_bfloat16(real: Tensor) -> Packing:
    with torch.autocast("cpu", torch.bfloat16):
        return Packing(real)


@pytest.mark.parametrize("real", [REAL, torch.ones(2, 3, dtype=torch.bool), torch.arange(MULTIPLE).view(1, -1) > 0])
def test_packed_rows_have_few_numbers_where_matmuls_are_planned_for_each(real: Tensor):
    x, packing, exact = torch.randn(*real.shape, 3, requires_grad=True), in_bfloat16(real), Packing(real)
    packed, tokens = packing.pack(x), int(real.sum())
    assert len(packed) == MULTIPLE == packing.rows
    assert torch.equal(packed[:tokens], exact.pack(x))
    assert not packed[tokens:].any()
    assert torch.equal(packing.unpack(packed), x * real[..., None])
    assert (packing.mask is None) == bool(real.all())
    # What stands in the rows that are no tokens matters to nothing.
    noise = torch.randn_like(packed)
    noise[:tokens] = 0
    assert torch.equal(packing.unpack(packed + noise), packing.unpack(packed))
    for both in ("pack", "unpack"):
        y = x if both == "pack" else packed.detach().requires_grad_()
        assert torch.autograd.gradcheck(getattr(packing, both), y)
        assert torch.autograd.gradgradcheck(getattr(packing, both), y)


@pytest.mark.parametrize("config", [TINY, TINY_RECURRENT])
def test_packed_rows_without_tokens_change_no_loss_and_no_gradient(
    config: ModelConfig, monkeypatch: pytest.MonkeyPatch
):
    """In float64, so that the order of sums does not matter."""
    torch.manual_seed(2)
    model = build(config, 11).double().eval()
    objective, batch = Objective(model, 0.1), Batch.from_pairs([[5, 6, 7], [8]], [[4, 5], [6, 7, 8, 9]])
    found = []
    for multiple in (1, 7, MULTIPLE):
        for module in (dragoman.model.packing, dragoman.training.loss):
            monkeypatch.setattr(module, "packed_rows", lambda tokens, _, m=multiple: -(-tokens // m) * m)
        model.zero_grad()
        loss = objective(batch)
        loss.backward()
        found.append((loss, [parameter.grad for parameter in model.parameters()]))
    for loss, gradients in found[1:]:
        torch.testing.assert_close(loss, found[0][0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(gradients, found[0][1], rtol=1e-10, atol=1e-12)
