"""The recurrent baselines: the cells and the attention against their formulas."""

import math
from dataclasses import replace

import pytest
import torch
from conftest import PAD, SOURCE, TARGET, WORDS, gap
from torch import Tensor, nn

from dragoman.config import RecurrentConfig
from dragoman.errors import UsageError
from dragoman.model.capture import AttentionCapture
from dragoman.model.recurrent import PlainRNN, Recurrence, Recurrent

LITTLE = RecurrentConfig(d_model=8, layers=2, dropout=0)
CELLS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}

pytestmark = pytest.mark.usefixtures("seeded_double_precision")


def little(**changes) -> Recurrent:
    return Recurrent(replace(LITTLE, **changes), WORDS, pad=PAD).eval()


# The plain cell.


def by_hand(cell: PlainRNN, x: Tensor, h: Tensor, activation) -> Tensor:
    """h_t = activation(x_t W_x + h_(t-1) W_h + b), every sum written out."""
    states = []
    for t in range(x.size(1)):
        h = activation(x[:, t] @ cell.input.weight.T + h @ cell.recurrent.weight.T + cell.input.bias)
        states.append(h)
    return torch.stack(states, 1)


def exact_gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


@pytest.mark.parametrize(
    ("activation", "formula"),
    [("tanh", torch.tanh), ("relu", lambda x: x.clamp(min=0)), ("gelu", exact_gelu)],
)
def test_plain_cell_is_its_formula(activation, formula):
    cell, x, h = PlainRNN(5, 4, activation), torch.randn(2, 6, 5), torch.randn(2, 4)
    states, last = cell(x, torch.ones(2, 6, dtype=torch.bool), h)
    assert gap(states, by_hand(cell, x, h, formula)) <= 1e-12
    assert torch.equal(last, states[:, -1])
    assert gap(states, by_hand(cell, x, h, torch.sigmoid)) > 1e-3


def test_padding_leaves_the_plain_state_as_it_is():
    cell, x = PlainRNN(5, 4, "tanh"), torch.randn(1, 6, 5)
    real = torch.tensor([[True, True, True, False, False, False]])
    states, last = cell(x, real, torch.zeros(1, 4))
    alone, alone_last = cell(x[:, :3], real[:, :3], torch.zeros(1, 4))
    _, read_on = cell(x, torch.ones_like(real), torch.zeros(1, 4))
    assert gap(last, alone_last) <= 1e-12
    assert gap(states[:, :3], alone) <= 1e-12
    assert (states[:, 3:] == 0).all()
    assert gap(read_on, alone_last) > 1e-3


def test_backward_cell_reads_from_the_end():
    cell, x = PlainRNN(5, 4, "tanh", backward=True), torch.randn(2, 6, 5)
    real, h = torch.ones(2, 6, dtype=torch.bool), torch.zeros(2, 4)
    states, last = cell(x, real, h)
    assert gap(states, by_hand(cell, x.flip(1), h, torch.tanh).flip(1)) <= 1e-12
    assert torch.equal(last, states[:, 0])
    assert gap(states, by_hand(cell, x, h, torch.tanh)) > 1e-3


# Stacks of cells.


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("directions", [1, 2])
def test_stack_of_cells_equals_the_one_of_pytorch(cell, directions):
    ours = Recurrence(replace(LITTLE, cell=cell), directions)
    theirs = CELLS[cell](8, 8 // directions, 2, batch_first=True, bidirectional=directions == 2)
    with torch.no_grad():
        if cell == "rnn":
            names = [f"l{layer}{way}" for layer in range(2) for way in ["", "_reverse"][:directions]]
            for part, name in zip(ours.cells, names, strict=True):
                getattr(theirs, f"weight_ih_{name}").copy_(part.input.weight)
                getattr(theirs, f"weight_hh_{name}").copy_(part.recurrent.weight)
                getattr(theirs, f"bias_ih_{name}").copy_(part.input.bias)
                getattr(theirs, f"bias_hh_{name}").zero_()
        else:
            theirs.load_state_dict(ours.cells.state_dict())
    x, toward = torch.randn(2, 5, 8, requires_grad=True), torch.randn(2, 5, 8)
    states, hidden = ours(x, torch.ones(2, 5, dtype=torch.bool), ours.zero_state(x))
    expected, last = theirs(x)
    assert gap(states, expected) <= 1e-12
    assert gap(hidden[0], last[0] if cell == "lstm" else last) <= 1e-12
    assert gap(states, theirs(x.flip(1))[0]) > 1e-3
    slopes = [torch.autograd.grad(y, x, toward, retain_graph=True)[0] for y in (states, expected, states.flip(0))]
    assert gap(slopes[0], slopes[1]) <= 1e-12
    assert gap(slopes[0], slopes[2]) > 1e-3


# Two directions.


def slopes(recurrence: Recurrence, half: slice) -> Tensor:
    """(T, S): whether the `half` of state t depends on input s."""
    x = torch.randn(1, 5, 8)
    real = torch.ones(1, 5, dtype=torch.bool)
    jacobian = torch.autograd.functional.jacobian(
        lambda x: recurrence(x, real, recurrence.zero_state(x))[0][..., half], x
    )
    return jacobian[0, :, :, 0].abs().amax((1, 3)) > 0


@pytest.mark.parametrize("cell", CELLS)
def test_forward_half_ignores_the_future_and_the_backward_half_the_past(cell):
    one, two = (Recurrence(replace(LITTLE, cell=cell, layers=1), directions) for directions in (1, 2))
    all_pairs = torch.ones(5, 5, dtype=torch.bool)
    assert torch.equal(slopes(one, slice(0, 8)), all_pairs.tril())
    assert torch.equal(slopes(two, slice(0, 4)), all_pairs.tril())
    assert torch.equal(slopes(two, slice(4, 8)), all_pairs.triu())


def test_odd_width_has_no_two_halves():
    with pytest.raises(UsageError, match=r"7.*two directions"):
        RecurrentConfig(d_model=7)
    assert Recurrent(RecurrentConfig(d_model=7, bidirectional=False), WORDS).eval()(SOURCE, TARGET).isfinite().all()


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
def test_decoder_begins_where_both_directions_ended(cell, layers):
    model = little(cell=cell, layers=layers)
    state = model.start(SOURCE)
    ends = torch.stack([memory[length - 1, :4] for memory, length in zip(state.memory, (5, 3, 2), strict=True)])
    begins = state.memory[:, 0, 4:]
    assert gap(state.hidden[0][-1], torch.cat([ends, begins], -1)) <= 1e-12
    assert gap(state.hidden[0][-1], state.memory[:, -1]) > 1e-3


# How the decoder looks at the source.


def logits_with(model: Recurrent, **changed) -> Tensor:
    return model.step(TARGET, replace(model.start(SOURCE), **changed))


@pytest.mark.parametrize("cell", CELLS)
def test_fixed_context_is_the_last_state_of_the_encoder(cell):
    model = little(cell=cell, attention="none")
    before, state = model(SOURCE, TARGET), model.start(SOURCE)
    others = {"memory": torch.randn(3, 5, 8), "keys": torch.randn(3, 5, 8), "mask": ~state.mask}
    assert torch.equal(logits_with(model, **others), before)
    hidden = tuple(torch.randn_like(part) for part in state.hidden)
    assert gap(logits_with(model, hidden=hidden), before) > 1e-3


def context_and_weights(model: Recurrent) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The decoder's states, its context, the encoder's states, and the weights."""
    asked: list[Tensor] = []
    model.attention.register_forward_hook(lambda module, given, context: asked.extend([given[0], context]))
    capture = AttentionCapture(model)
    capture.run(SOURCE, TARGET)
    return asked[0], asked[1], model.start(SOURCE).memory, capture.weights["cross"][0][:, 0]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("attention", ["dot", "additive"])
def test_context_is_the_weighted_mean_of_the_encoder_states(cell, attention):
    model = little(cell=cell, attention=attention)
    states, context, memory, weights = context_and_weights(model)
    vectors = model.combine(torch.cat([states, context], -1)).tanh().flatten(0, 1)
    assert gap(model.vectors(TARGET, model.start(SOURCE)), vectors) <= 1e-12
    assert weights.shape == (3, 4, 5)
    assert gap(weights.sum(-1), torch.ones(3, 4)) <= 1e-12
    assert torch.equal(weights > 0, (SOURCE != PAD)[:, None].expand(3, 4, 5))
    assert gap(context, weights @ memory) <= 1e-12
    assert gap(context, weights.flip(0) @ memory) > 1e-3


@pytest.mark.parametrize("attention", ["dot", "additive"])
def test_recurrent_weights_are_the_softmax_of_products_or_a_hidden_layer(attention):
    model = little(attention=attention)
    layer = model.attention
    if attention == "additive":
        with torch.no_grad():
            layer.query.weight *= 10
    states, _, memory, weights = context_and_weights(model)
    if attention == "dot":
        scores = states @ memory.mT
        other = scores / math.sqrt(8)
    else:
        hidden = layer.query(states)[:, :, None] + layer.key(memory)[:, None]
        scores, other = (h @ layer.score.weight.flatten() for h in (hidden.tanh(), hidden))
    padding = (SOURCE == PAD)[:, None]
    assert gap(weights, scores.masked_fill(padding, -math.inf).softmax(-1)) <= 1e-12
    assert gap(weights, other.masked_fill(padding, -math.inf).softmax(-1)) > 1e-3


# Dropout.


@pytest.mark.parametrize("cell", CELLS)
def test_dropout_follows_both_embeddings_and_stands_before_the_output(cell):
    model, widths = little(cell=cell, layers=1, dropout=0.5).train(), []
    model.dropout.register_forward_hook(lambda module, given, out: widths.append(tuple(given[0].shape)))
    model(SOURCE, TARGET)
    assert widths == [(3, 5, 8), (3, 4, 8), (12, 8)]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
def test_dropout_acts_between_layers(cell, layers):
    x, config = torch.randn(2, 5, 8), replace(LITTLE, cell=cell, layers=layers, dropout=0.5)
    recurrence = Recurrence(config, directions=1).train()
    one, two = (recurrence(x, None, recurrence.zero_state(x))[0] for _ in range(2))
    assert torch.equal(one, two) == (layers == 1)
