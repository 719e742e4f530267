"""The recurrent baselines: the cells against their formulas, and the same promises as the Transformer's."""

import math
from dataclasses import replace

import pytest
import torch
from conftest import gap
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dragoman.config import RecurrentConfig
from dragoman.errors import UsageError
from dragoman.model.capture import AttentionCapture
from dragoman.model.recurrent import ACTIVATIONS, PlainRNN, Recurrence, Recurrent

PAD, WORDS = 0, 11
SOURCE = torch.tensor([[3, 4, 5, 6, 2], [5, 3, 2, 0, 0], [7, 2, 0, 0, 0]])
TARGET = torch.tensor([[1, 8, 9, 3], [1, 4, 7, 10], [1, 5, 5, 0]])
LITTLE = RecurrentConfig(d_model=8, layers=2, dropout=0)
CELLS, ATTENTIONS = ["rnn", "lstm", "gru"], ["none", "dot", "additive"]


pytestmark = pytest.mark.usefixtures("seeded_double_precision")


def little(**changes) -> Recurrent:
    return Recurrent(replace(LITTLE, **changes), WORDS, pad=PAD).eval()


def every_kind():
    """All cells, all kinds of attention, one and two directions."""
    return pytest.mark.parametrize(
        "config",
        [
            pytest.param(
                replace(LITTLE, cell=cell, attention=attention, bidirectional=bidirectional),
                id=f"{cell}-{attention}-{'both' if bidirectional else 'forward'}",
            )
            for cell in CELLS
            for attention in ATTENTIONS
            for bidirectional in (False, True)
        ],
    )


def gradients(module: nn.Module, out: Tensor, toward: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(out, tuple(module.parameters()), toward))


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
def test_the_plain_cell_is_its_formula(activation, formula):
    cell, x, h = PlainRNN(5, 4, activation), torch.randn(2, 6, 5), torch.randn(2, 4)
    states, last = cell(x, torch.ones(2, 6, dtype=torch.bool), h)
    assert gap(states, by_hand(cell, x, h, formula)) <= 1e-12
    assert torch.equal(last, states[:, -1])
    assert gap(states, by_hand(cell, x, h, torch.sigmoid)) > 1e-3


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_plain_cell_equals_the_one_of_pytorch(activation):
    cell, theirs = PlainRNN(5, 4, activation), nn.RNN(5, 4, nonlinearity=activation, batch_first=True)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(cell.input.weight)
        theirs.weight_hh_l0.copy_(cell.recurrent.weight)
        theirs.bias_ih_l0.copy_(cell.input.bias)
        theirs.bias_hh_l0.zero_()
    x, h, toward = torch.randn(2, 6, 5), torch.randn(2, 4), torch.randn(2, 6, 4)
    ours, last = cell(x, torch.ones(2, 6, dtype=torch.bool), h)
    yours, yours_last = theirs(x, h[None])
    assert gap(ours, yours) <= 1e-12
    assert gap(last, yours_last[0]) <= 1e-12
    of_input, of_bias, of_recurrent = gradients(cell, ours, toward)
    expected = gradients(theirs, yours, toward)
    assert gap(of_input, expected[0]) <= 1e-12
    assert gap(of_recurrent, expected[1]) <= 1e-12
    assert gap(of_bias, expected[2]) <= 1e-12
    shifted = gradients(theirs, theirs(x, h[None] + 1)[0], toward)
    assert gap(of_recurrent, shifted[1]) > 1e-3


def test_tanh_keeps_states_between_minus_1_and_1():
    x, real = 100 * torch.randn(2, 50, 5), torch.ones(2, 50, dtype=torch.bool)
    states = {name: PlainRNN(5, 4, name)(x, real, torch.zeros(2, 4))[0].abs().max() for name in ACTIVATIONS}
    assert states["tanh"] <= 1
    assert states["relu"] > 1
    assert states["gelu"] > 1


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


def test_a_backward_cell_reads_from_the_end():
    cell, x = PlainRNN(5, 4, "tanh", backward=True), torch.randn(2, 6, 5)
    real, h = torch.ones(2, 6, dtype=torch.bool), torch.zeros(2, 4)
    states, last = cell(x, real, h)
    assert gap(states, by_hand(cell, x.flip(1), h, torch.tanh).flip(1)) <= 1e-12
    assert torch.equal(last, states[:, 0])
    assert gap(states, by_hand(cell, x, h, torch.tanh)) > 1e-3


# The gated cells.


def lstm_by_hand(x: Tensor, h: Tensor, c: Tensor, cell: nn.LSTM, order: str = "ifgo") -> tuple[Tensor, Tensor]:
    sums = x @ cell.weight_ih_l0.T + cell.bias_ih_l0 + h @ cell.weight_hh_l0.T + cell.bias_hh_l0
    gates = dict(zip(order, sums.chunk(4, -1), strict=True))
    c = gates["f"].sigmoid() * c + gates["i"].sigmoid() * gates["g"].tanh()
    return gates["o"].sigmoid() * c.tanh(), c


def gru_by_hand(x: Tensor, h: Tensor, cell: nn.GRU, order: str = "rzn") -> Tensor:
    of_input = dict(zip(order, (x @ cell.weight_ih_l0.T + cell.bias_ih_l0).chunk(3, -1), strict=True))
    of_state = dict(zip(order, (h @ cell.weight_hh_l0.T + cell.bias_hh_l0).chunk(3, -1), strict=True))
    reset, update = ((of_input[gate] + of_state[gate]).sigmoid() for gate in "rz")
    new = (of_input["n"] + reset * of_state["n"]).tanh()
    return (1 - update) * new + update * h


def one_layer(cell: str) -> Recurrence:
    return Recurrence(replace(LITTLE, cell=cell, layers=1), directions=1)


def test_one_step_of_the_lstm_is_its_formula():
    recurrence, x = one_layer("lstm"), torch.randn(2, 1, 8)
    h, c = torch.randn(1, 2, 8), torch.randn(1, 2, 8)
    states, (h_after, c_after) = recurrence(x, None, (h, c))
    expected_h, expected_c = lstm_by_hand(x[:, 0], h[0], c[0], recurrence.cells)
    assert gap(states[:, 0], expected_h) <= 1e-12
    assert gap(h_after[0], expected_h) <= 1e-12
    assert gap(c_after[0], expected_c) <= 1e-12
    assert gap(states[:, 0], lstm_by_hand(x[:, 0], h[0], c[0], recurrence.cells, order="figo")[0]) > 1e-3


def test_one_step_of_the_gru_is_its_formula():
    recurrence, x, h = one_layer("gru"), torch.randn(2, 1, 8), torch.randn(1, 2, 8)
    states, (after,) = recurrence(x, None, (h,))
    expected = gru_by_hand(x[:, 0], h[0], recurrence.cells)
    assert gap(states[:, 0], expected) <= 1e-12
    assert gap(after[0], expected) <= 1e-12
    assert gap(states[:, 0], gru_by_hand(x[:, 0], h[0], recurrence.cells, order="zrn")) > 1e-3


@pytest.mark.parametrize(("cell", "kind"), [("rnn", nn.RNN), ("lstm", nn.LSTM), ("gru", nn.GRU)])
@pytest.mark.parametrize("directions", [1, 2])
def test_a_stack_of_cells_equals_the_one_of_pytorch(cell, kind, directions):
    ours = Recurrence(replace(LITTLE, cell=cell), directions)
    theirs = kind(8, 8 // directions, 2, batch_first=True, bidirectional=directions == 2)
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
    x = torch.randn(2, 5, 8)
    states, hidden = ours(x, torch.ones(2, 5, dtype=torch.bool), ours.zero_state(x))
    expected, last = theirs(x)
    assert gap(states, expected) <= 1e-12
    assert gap(hidden[0], last[0] if cell == "lstm" else last) <= 1e-12
    assert gap(states, theirs(x.flip(1))[0]) > 1e-3


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
def test_the_forward_half_ignores_the_future_and_the_backward_half_the_past(cell):
    recurrence = Recurrence(replace(LITTLE, cell=cell, layers=1), directions=2)
    all_pairs = torch.ones(5, 5, dtype=torch.bool)
    assert torch.equal(slopes(recurrence, slice(0, 4)), all_pairs.tril())
    assert torch.equal(slopes(recurrence, slice(4, 8)), all_pairs.triu())
    assert torch.equal(slopes(recurrence, slice(0, 8)), all_pairs)


@pytest.mark.parametrize("cell", CELLS)
def test_one_direction_ignores_the_future(cell):
    recurrence = Recurrence(replace(LITTLE, cell=cell), directions=1)
    assert torch.equal(slopes(recurrence, slice(0, 8)), torch.ones(5, 5, dtype=torch.bool).tril())


@pytest.mark.parametrize("cell", CELLS)
def test_both_directions_together_are_as_wide_as_one(cell):
    for bidirectional in (False, True):
        assert little(cell=cell, bidirectional=bidirectional).start(SOURCE).memory.shape == (3, 5, 8)


@pytest.mark.parametrize("cell", CELLS)
def test_each_direction_has_its_own_parameters(cell):
    one, two = (Recurrence(replace(LITTLE, cell=cell, layers=1), directions) for directions in (1, 2))
    assert len(list(two.parameters())) == 2 * len(list(one.parameters()))
    matrices = [p for p in two.parameters() if p.dim() == 2 and p.size(1) == 8]
    assert len(matrices) == 2
    assert gap(*matrices) > 1e-3


def test_an_odd_width_has_no_two_halves():
    with pytest.raises(UsageError, match=r"7.*two directions"):
        RecurrentConfig(d_model=7)
    assert Recurrent(RecurrentConfig(d_model=7, bidirectional=False), WORDS).eval()(SOURCE, TARGET).isfinite().all()


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
def test_the_decoder_begins_where_both_directions_ended(cell, layers):
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
def test_a_fixed_context_is_the_last_state_of_the_encoder_and_nothing_else(cell):
    model = little(cell=cell, attention="none")
    before, state = model(SOURCE, TARGET), model.start(SOURCE)
    others = {"memory": torch.randn(3, 5, 8), "keys": torch.randn(3, 5, 8), "mask": ~state.mask}
    assert torch.equal(logits_with(model, **others), before)
    hidden = tuple(torch.randn_like(part) for part in state.hidden)
    assert gap(logits_with(model, hidden=hidden), before) > 1e-3


@pytest.mark.parametrize("attention", ["dot", "additive"])
@pytest.mark.parametrize("changed", ["memory", "keys"])
def test_attention_sees_all_states_of_the_encoder(attention, changed):
    model = little(attention=attention)
    before = model(SOURCE, TARGET)
    assert gap(logits_with(model, **{changed: torch.randn(3, 5, 8)}), before) > 1e-3


def context_and_weights(model: Recurrent) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The decoder's states, its context, the encoder's states, and the weights."""
    asked: list[Tensor] = []
    model.attention.register_forward_hook(lambda module, given, context: asked.extend([given[0], context]))
    capture = AttentionCapture(model)
    capture.run(SOURCE, TARGET)
    return asked[0], asked[1], model.start(SOURCE).memory, capture.weights["cross"][0][:, 0]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("attention", ["dot", "additive"])
def test_the_context_is_the_weighted_mean_of_the_encoder_states(cell, attention):
    _, context, memory, weights = context_and_weights(little(cell=cell, attention=attention))
    assert weights.shape == (3, 4, 5)
    assert gap(weights.sum(-1), torch.ones(3, 4)) <= 1e-12
    assert torch.equal(weights > 0, (SOURCE != PAD)[:, None].expand(3, 4, 5))
    assert gap(context, weights @ memory) <= 1e-12
    assert gap(context, weights.flip(0) @ memory) > 1e-3


def test_dot_attention_is_the_plain_product_of_states():
    states, _, memory, weights = context_and_weights(little(attention="dot"))
    scores = (states @ memory.mT).masked_fill((SOURCE == PAD)[:, None], -math.inf)
    assert gap(weights, scores.softmax(-1)) <= 1e-12
    assert gap(weights, (scores / math.sqrt(8)).softmax(-1)) > 1e-3


def test_additive_attention_is_one_hidden_layer():
    model = little(attention="additive")
    with torch.no_grad():
        model.attention.query.weight *= 10
    states, _, memory, weights = context_and_weights(model)
    attention = model.attention
    hidden = (states @ attention.query.weight.T)[:, :, None] + (memory @ attention.key.weight.T)[:, None]
    scores = (hidden.tanh() @ attention.score.weight.flatten()).masked_fill((SOURCE == PAD)[:, None], -math.inf)
    assert gap(weights, scores.softmax(-1)) <= 1e-12
    linear = (hidden @ attention.score.weight.flatten()).masked_fill((SOURCE == PAD)[:, None], -math.inf)
    assert gap(weights, linear.softmax(-1)) > 1e-3


# The promises of every model.


def step_by_step(model: Recurrent, target: Tensor, sizes: list[int]) -> Tensor:
    state = model.start(SOURCE)
    return torch.cat([model.step(tokens, state) for tokens in target.split(sizes, 1)], 1)


@every_kind()
def test_steps_equal_one_pass(config):
    model = Recurrent(config, WORDS, pad=PAD).eval()
    in_one_pass = model(SOURCE, TARGET)
    assert gap(step_by_step(model, TARGET, [1, 1, 1, 1]), in_one_pass) <= 1e-12
    forgetful = torch.cat([model.step(tokens, model.start(SOURCE)) for tokens in TARGET.split(1, 1)], 1)
    assert gap(forgetful, in_one_pass) > 1e-3


@settings(max_examples=20)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.sampled_from(CELLS))
def test_steps_of_any_size_equal_one_pass(sizes, cell):
    model, target = little(cell=cell), torch.randint(1, WORDS, (3, sum(sizes)))
    assert gap(step_by_step(model, target, sizes), model(SOURCE, target)) <= 1e-12


@every_kind()
def test_the_future_changes_no_bit(config):
    model, other = Recurrent(config, WORDS, pad=PAD).eval(), TARGET.clone()
    other[:, 2:] = 6
    ours, theirs = model(SOURCE, TARGET), model(SOURCE, other)
    assert torch.equal(ours[:, :2], theirs[:, :2])
    assert not torch.equal(ours[:, 2:], theirs[:, 2:])


@every_kind()
def test_a_sentence_in_a_batch_is_as_if_alone(config):
    model = Recurrent(config, WORDS, pad=PAD).eval()
    together = model(SOURCE, TARGET)
    for row, length in enumerate((5, 3, 2)):
        alone = model(SOURCE[row : row + 1, :length], TARGET[row : row + 1])[0]
        assert gap(together[row], alone) <= 1e-12
    one_word_short = model(SOURCE[:1, :4], TARGET[:1])[0]
    assert gap(together[0], one_word_short) > 1e-3


@every_kind()
def test_longer_padding_changes_nothing(config):
    model = Recurrent(config, WORDS, pad=PAD).eval()
    longer = nn.functional.pad(SOURCE, (0, 4), value=PAD)
    assert gap(model(longer, TARGET), model(SOURCE, TARGET)) <= 1e-12
    assert gap(model(longer.where(longer != PAD, 9), TARGET), model(SOURCE, TARGET)) > 1e-3


@every_kind()
@pytest.mark.parametrize("taken", [0, 2])
def test_selected_hypotheses_go_on_as_themselves(config, taken):
    model, rows = Recurrent(config, WORDS, pad=PAD).eval(), torch.tensor([2, 0, 0, 2])
    state, untouched = model.start(SOURCE), model.start(SOURCE)
    for kept in (state, untouched):
        if taken:
            model.step(TARGET[:, :taken], kept)
    state.select(rows)
    chosen = model.step(TARGET[rows, taken:], state)
    assert gap(chosen, model(SOURCE[rows], TARGET[rows])[:, taken:]) <= 1e-12
    as_they_were = model.step(TARGET[:, taken:], untouched)
    assert gap(chosen, as_they_were[[0, 1, 2, 2]]) > 1e-3


@pytest.mark.parametrize("cell", CELLS)
def test_dropout_acts_in_training_only(cell):
    model = little(cell=cell, dropout=0.5)
    assert torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))
    model.train()
    assert gap(model(SOURCE, TARGET), model(SOURCE, TARGET)) > 1e-3


@pytest.mark.parametrize("cell", CELLS)
def test_dropout_follows_both_embeddings_and_stands_before_the_output(cell):
    model, widths = little(cell=cell, layers=1, dropout=0.5).train(), []
    model.dropout.register_forward_hook(lambda module, given, out: widths.append(tuple(given[0].shape)))
    model(SOURCE, TARGET)
    assert widths == [(3, 5, 8), (3, 4, 8), (12, 8)]


@every_kind()
def test_the_vectors_before_the_output_matrix_are_those_of_the_logits(config):
    model, real = Recurrent(config, WORDS, pad=PAD).eval(), TARGET != PAD
    vectors = model.vectors(TARGET, model.start(SOURCE), real)
    assert vectors.shape == (11, 8)
    assert gap(model.output(vectors), model(SOURCE, TARGET)[real]) <= 1e-12
    assert gap(model.output(vectors), model(SOURCE, TARGET).flatten(0, 1)[1:]) > 1e-3


@every_kind()
def test_every_parameter_learns(config):
    model = Recurrent(config, WORDS, pad=PAD)
    model(SOURCE, TARGET, TARGET != PAD).square().sum().backward()
    assert all(p.grad.isfinite().all() and (p.grad != 0).any() for p in model.parameters())


@pytest.mark.parametrize(("share", "matrices"), [("all", 1), ("embeddings", 2), ("output", 2), ("none", 3)])
def test_shared_matrices_are_one_storage(share, matrices):
    model = little(share=share)
    weights = model.source_embedding.weight, model.target_embedding.weight, model.output.weight
    source, target, output = (weight.data_ptr() for weight in weights)
    assert (source == target) == (share in ("all", "embeddings"))
    assert (target == output) == (share in ("all", "output"))
    extra = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in little(share="all").parameters())
    assert extra == (matrices - 1) * WORDS * 8


@pytest.mark.parametrize("share", ["all", "embeddings"])
def test_different_vocabularies_cannot_share_embeddings(share):
    with pytest.raises(UsageError, match=rf"share = '{share}'.*11 source and 14 target"):
        Recurrent(replace(LITTLE, share=share), 11, 14)
    assert Recurrent(replace(LITTLE, share="output"), 11, 14)(SOURCE, TARGET).shape == (3, 4, 14)


@pytest.mark.parametrize("share", ["all", "embeddings", "output", "none"])
def test_a_call_with_other_parameters_leaves_the_model_as_it_was(share):
    model = little(share=share)
    before = model(SOURCE, TARGET)
    others = {name: torch.randn_like(parameter) for name, parameter in model.named_parameters()}
    assert gap(torch.func.functional_call(model, others, (SOURCE, TARGET)), before) > 1e-3
    assert torch.equal(model(SOURCE, TARGET), before)
