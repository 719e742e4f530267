"""Leaving padding out of the work changes no result. B sentences, T places, N real tokens."""

import pytest
import torch
from conftest import gap
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError

from dragoman.config import AttentionConfig, FeedForwardConfig, RecurrentConfig, TransformerConfig
from dragoman.model import build
from dragoman.model.packing import Packing
from dragoman.model.positions import POSITIONS, Relative

PAD, WORDS = 0, 11
TRANSFORMERS = [*POSITIONS, "pre-norm", "additive", "free sizes", "unshared"]
MODELS = [*TRANSFORMERS, "rnn", "lstm", "gru"]
SOURCE = torch.tensor([[3, 4, 5, 6, 2], [5, 3, 2, 0, 0], [7, 2, 0, 0, 0]])
TARGET = torch.tensor([[1, 8, 9, 0], [1, 4, 7, 10], [1, 0, 0, 0]])
REAL = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=torch.bool)


pytestmark = pytest.mark.usefixtures("seeded_double_precision")


def model_called(name: str) -> nn.Module:
    if name in ("rnn", "lstm", "gru"):
        return build(RecurrentConfig(name, d_model=8, layers=2, dropout=0), WORDS).eval()
    attention = {
        "additive": AttentionConfig(heads=2, score="additive"),
        "free sizes": AttentionConfig(heads=3, d_k=2, d_v=5, bias=True),
    }.get(name, AttentionConfig(heads=2))
    config = TransformerConfig(
        d_model=8,
        encoder_layers=2,
        decoder_layers=2,
        attention=attention,
        feed_forward=FeedForwardConfig(d_ff=12),
        dropout=0,
        positions=name if name in POSITIONS else "sinusoidal",
        norm_first=name == "pre-norm",
        share="none" if name == "unshared" else "all",
        max_length=16,
    )
    model = build(config, WORDS).eval()
    for module in model.modules():
        if isinstance(module, Relative):
            nn.init.normal_(module.scores.weight)
    return model


def gradients(model: nn.Module, logits: Tensor, toward: Tensor) -> Tensor:
    found = torch.autograd.grad(logits, tuple(model.parameters()), toward, allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in found])


# The two moves.


@st.composite
def places(draw) -> Tensor:
    size = draw(st.tuples(st.integers(1, 4), st.integers(1, 5)))
    cells = draw(st.lists(st.booleans(), min_size=size[0] * size[1], max_size=size[0] * size[1]))
    return torch.tensor(cells).view(size)


@given(places())
def test_unpacking_undoes_packing_and_puts_zeros_elsewhere(real):
    x, packing = torch.randn(*real.shape, 3), Packing(real)
    assert torch.equal(packing.unpack(packing.pack(x)), x * real[..., None])


@given(places())
def test_packing_undoes_unpacking(real):
    packing, x = Packing(real), torch.randn(int(real.sum()), 3)
    assert torch.equal(packing.pack(packing.unpack(x)), x)


@given(places())
def test_packing_is_plain_indexing(real):
    x = torch.randn(*real.shape, 3)
    assert torch.equal(Packing(real).pack(x), x[real])


def test_packing_the_wrong_places_is_seen():
    x = torch.randn(*REAL.shape, 3)
    shifted = Packing(REAL.roll(1, 1))
    assert not torch.equal(shifted.pack(x), x[REAL])
    assert not torch.equal(shifted.unpack(shifted.pack(x)), x * REAL[..., None])


@given(places())
def test_packing_has_the_gradient_of_plain_indexing(real):
    x, toward = torch.randn(*real.shape, 3, requires_grad=True), torch.randn(int(real.sum()), 3)
    (ours,) = torch.autograd.grad(Packing(real).pack(x), x, toward)
    (plain,) = torch.autograd.grad(x[real], x, toward)
    assert torch.equal(ours, plain)


@given(places())
def test_unpacking_has_the_gradient_of_plain_indexing(real):
    x, toward = torch.randn(int(real.sum()), 3, requires_grad=True), torch.randn(*real.shape, 3)
    (ours,) = torch.autograd.grad(Packing(real).unpack(x), x, toward)
    (plain,) = torch.autograd.grad(torch.zeros(*real.shape, 3).index_put((real,), x), x, toward)
    assert torch.equal(ours, plain)


@pytest.mark.parametrize("move", ["pack", "unpack"])
def test_the_gradients_of_both_moves_are_right_twice_over(move):
    packing = Packing(REAL)
    x = torch.randn((*REAL.shape, 2) if move == "pack" else (int(REAL.sum()), 2), requires_grad=True)
    assert torch.autograd.gradcheck(getattr(packing, move), x)
    assert torch.autograd.gradgradcheck(getattr(packing, move), x)


def test_a_wrong_gradient_would_be_found():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[REAL]

        @staticmethod
        def backward(ctx, grad):
            return Packing(REAL.flip(0)).unpack(grad).detach()

    with pytest.raises(GradcheckError):
        torch.autograd.gradcheck(Wrong.apply, torch.randn(*REAL.shape, 2, requires_grad=True))


def test_a_full_batch_is_packed_by_a_change_of_view():
    x = torch.randn(2, 3, 4)
    for packing in (Packing.full(x[..., 0]), Packing(torch.ones(2, 3, dtype=torch.bool))):
        assert packing.pack(x).data_ptr() == x.data_ptr()
        assert packing.pack(x).shape == (6, 4)
        assert packing.unpack(packing.pack(x)).data_ptr() == x.data_ptr()
        assert packing.mask is None
    assert Packing(REAL).pack(torch.randn(*REAL.shape, 4)).shape == (8, 4)


def test_the_mask_is_true_where_a_token_is():
    assert torch.equal(Packing(REAL).mask, REAL[:, None, None, :])


def test_selected_sentences_are_packed_as_they_are():
    x, rows = torch.randn(*REAL.shape, 3), torch.tensor([2, 0, 0])
    assert torch.equal(Packing(REAL).select(rows).pack(x[rows]), x[rows][REAL[rows]])
    assert Packing(REAL).pack(x[rows]).shape != x[rows][REAL[rows]].shape


# The packed model is the padded model.


@pytest.mark.parametrize("name", MODELS)
def test_packed_logits_equal_padded_ones(name):
    model = model_called(name)
    packed, padded = model(SOURCE, TARGET, REAL), model(SOURCE, TARGET)
    assert gap(packed, padded[REAL]) <= 1e-12
    assert gap(packed, padded[REAL.roll(1, 0)]) > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_packed_gradients_of_all_parameters_equal_padded_ones(name):
    model, toward = model_called(name), torch.randn(3, 4, WORDS)
    packed = gradients(model, model(SOURCE, TARGET, REAL), toward[REAL])
    padded = gradients(model, model(SOURCE, TARGET)[REAL], toward[REAL])
    with_padding_in_the_loss = gradients(model, model(SOURCE, TARGET), toward)
    assert gap(packed, padded) <= 1e-12
    assert gap(packed, with_padding_in_the_loss) > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_what_stands_in_target_padding_changes_no_bit(name):
    model, other = model_called(name), TARGET.clone()
    other[~REAL] = 9
    wrong = TARGET.clone()
    wrong[:, 0] = 9
    assert torch.equal(model(SOURCE, other, REAL), model(SOURCE, TARGET, REAL))
    assert torch.equal(model(SOURCE, other)[REAL], model(SOURCE, TARGET)[REAL])
    assert not torch.equal(model(SOURCE, wrong, REAL), model(SOURCE, TARGET, REAL))


@pytest.mark.parametrize("name", MODELS)
def test_the_vector_of_padding_changes_no_bit(name):
    model = model_called(name)
    model.output.weight = nn.Parameter(model.output.weight.clone())
    before = model(SOURCE, TARGET, REAL)
    with torch.no_grad():
        model.source_embedding.weight[PAD] = 100
        model.target_embedding.weight[PAD] = -100
    assert torch.equal(model(SOURCE, TARGET, REAL), before)
    with torch.no_grad():
        model.source_embedding.weight[3] += 1
    assert not torch.equal(model(SOURCE, TARGET, REAL), before)


@pytest.mark.parametrize("name", MODELS)
def test_padding_gets_no_gradient(name):
    model = model_called(name)
    model.output.weight = nn.Parameter(model.output.weight.clone())
    model(SOURCE, TARGET, REAL).square().sum().backward()
    assert (model.source_embedding.weight.grad[PAD] == 0).all()
    assert (model.source_embedding.weight.grad[3] != 0).any()


@pytest.mark.parametrize("name", MODELS)
def test_longer_padding_changes_nothing(name):
    model = model_called(name).float()
    longer = [nn.functional.pad(ids, (0, 6), value=PAD) for ids in (SOURCE, TARGET)]
    packed = model(*longer, nn.functional.pad(REAL, (0, 6)))
    assert gap(packed, model(SOURCE, TARGET, REAL)) <= 1e-5
    more_words = nn.functional.pad(SOURCE, (0, 6), value=9)
    assert gap(model(more_words, TARGET, REAL), model(SOURCE, TARGET, REAL)) > 1e-3


@settings(max_examples=20)
@given(
    st.sampled_from(MODELS),
    st.lists(st.tuples(st.integers(1, 7), st.integers(1, 6)), min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_a_sentence_in_a_batch_is_as_if_alone(name, lengths, seed):
    torch.manual_seed(seed)
    model = model_called(name)
    pairs = [tuple(torch.randint(3, WORDS, (length,)) for length in pair) for pair in lengths]
    source, target = (nn.utils.rnn.pad_sequence(side, batch_first=True) for side in zip(*pairs, strict=True))
    together = model(source, target, target != PAD).split([len(target) for _, target in pairs])
    for logits, (source, target) in zip(together, pairs, strict=True):
        assert gap(logits, model(source[None], target[None])[0]) <= 1e-12


def test_a_sentence_that_sees_the_padding_is_not_as_if_alone():
    model = model_called("sinusoidal")
    other_pad = model_called("sinusoidal")
    other_pad.load_state_dict(model.state_dict())
    other_pad.pad = 10
    assert gap(other_pad(SOURCE, TARGET)[1, :1], model(SOURCE[1:2, :3], TARGET[1:2, :1])[0]) > 1e-3


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_padding_on_the_left_of_the_target_is_not_attended_to(name):
    model = model_called(name)
    target, real = torch.tensor([[0, 0, 1, 8]]), torch.tensor([[False, False, True, True]])
    other = torch.tensor([[5, 6, 1, 8]])
    assert torch.equal(model(SOURCE[:1], target, real), model(SOURCE[:1], other, real))
    assert gap(model(SOURCE[:1], target)[real], model(SOURCE[:1], other)[real]) > 1e-3


def test_only_a_whole_target_may_be_packed():
    model = model_called("sinusoidal")
    state = model.start(SOURCE)
    assert model.step(TARGET, state, REAL).shape == (8, WORDS)
    with pytest.raises(ValueError, match=r"whole target.*4 tokens"):
        model.step(TARGET, state, REAL)


def moved_to_the_right(name: str) -> float:
    """How much a sentence and its translation change when both begin three places later."""
    model, source, target = model_called(name), SOURCE[:1], TARGET[1:2]
    later = [nn.functional.pad(ids, (3, 0), value=PAD) for ids in (source, target)]
    return gap(model(*later, later[1] != PAD), model(source, target)[0])


@pytest.mark.parametrize("name", ["none", "rotary", "relative"])
def test_models_that_know_distances_do_not_mind_where_a_sentence_begins(name):
    assert moved_to_the_right(name) <= 1e-12


@pytest.mark.parametrize("name", ["sinusoidal", "sinusoidal-halves", "learned"])
def test_models_that_know_places_do_mind_where_a_sentence_begins(name):
    assert moved_to_the_right(name) > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_sources_of_nothing_and_padding_on_the_left_give_numbers(name):
    model = model_called(name)
    source = torch.tensor([[0, 0, 0, 0], [0, 0, 3, 2], [4, 5, 3, 2]])
    logits = model(source, TARGET, REAL)
    assert logits.isfinite().all()
    assert gradients(model, logits, torch.ones_like(logits)).isfinite().all()
