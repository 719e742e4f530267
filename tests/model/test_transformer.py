"""The Transformer as a whole: its size, its equality with PyTorch's, and what each part of it must and must not do."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from conftest import LITTLE, PAD, REAL, SOURCE, TARGET, WORDS, gap, step_by_step
from torch import Tensor, nn

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.config.presets import PRESETS
from dragoman.model import outline, parameter_count
from dragoman.model.attention import explicit_attention, fused_attention
from dragoman.model.positions import sinusoids
from dragoman.model.transformer import ACTIVATIONS, DecoderLayer, Dropout, FeedForward, Residual, Transformer

pytestmark = pytest.mark.usefixtures("seeded_double_precision")


def little(**changes) -> Transformer:
    return Transformer(replace(LITTLE, **changes), WORDS, pad=PAD).eval()


NORMS = pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])


# Sizes, against the paper.


def heads(count: int, d_k: int | None = None) -> dict[str, AttentionConfig]:
    return {"attention": AttentionConfig(heads=count, d_k=d_k)}


BASE_SIZE = 63_045_632


@pytest.mark.parametrize(
    ("row", "changes", "parameters"),
    [
        ("base", {}, BASE_SIZE),
        ("A, 1 head", heads(1), BASE_SIZE),
        ("A, 4 heads", heads(4), BASE_SIZE),
        ("A, 16 heads", heads(16), BASE_SIZE),
        ("A, 32 heads", heads(32), BASE_SIZE),
        ("B, d_k 16", heads(8, 16), 55_967_744),
        ("B, d_k 32", heads(8, 32), 58_327_040),
        ("C, 2 layers", {"encoder_layers": 2, "decoder_layers": 2}, 33_644_544),
        ("C, 4 layers", {"encoder_layers": 4, "decoder_layers": 4}, 48_345_088),
        ("C, 8 layers", {"encoder_layers": 8, "decoder_layers": 8}, 77_746_176),
        ("C, d_model 256", {"d_model": 256}, 26_816_512),
        ("C, d_model 1024", {"d_model": 1024}, 163_815_424),
        ("C, d_ff 1024", {"feed_forward": FeedForwardConfig(d_ff=1024)}, 50_450_432),
        ("C, d_ff 4096", {"feed_forward": FeedForwardConfig(d_ff=4096)}, 88_236_032),
        ("big", {"d_model": 1024, "feed_forward": FeedForwardConfig(d_ff=4096), **heads(16)}, 214_171_648),
        ("untied", {"share": "none"}, BASE_SIZE + 2 * 37_000 * 512),
        ("pre-norm", {"norm_first": True}, BASE_SIZE + 4 * 512),
        ("bias of the output", {"output_bias": True}, BASE_SIZE + 37_000),
    ],
)
def test_models_of_table_3_and_others_have_these_parameters(row, changes, parameters):
    config = replace(TransformerConfig(), **changes)
    assert parameter_count(outline(config, 37_000)) == parameters
    if row in ("base", "big"):
        assert PRESETS[row].model == replace(config, dropout={"base": 0.1, "big": 0.3}[row])


# Equality with torch.nn.Transformer.


class Theirs(nn.Module):
    """PyTorch's Transformer between our embeddings and our output."""

    def __init__(self, ours: Transformer, norm_first: bool, activation: str = "relu"):
        super().__init__()
        config = ours.config
        sizes = config.d_model, config.attention.heads, config.feed_forward.d_ff
        settings = {"dropout": 0, "activation": activation, "batch_first": True, "norm_first": norm_first}
        encoder_layer = nn.TransformerEncoderLayer(*sizes, **settings)
        decoder_layer = nn.TransformerDecoderLayer(*sizes, **settings)
        norms = [nn.LayerNorm(config.d_model) if norm_first else None for _ in range(2)]
        self.encoder = nn.TransformerEncoder(encoder_layer, config.encoder_layers, norms[0], enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder_layer, config.decoder_layers, norms[1])
        self.table = nn.Parameter(ours.source_embedding.weight.detach().clone())

    def embed(self, ids: Tensor) -> Tensor:
        d_model = self.table.size(1)
        return F.embedding(ids, self.table, padding_idx=PAD) * math.sqrt(d_model) + sinusoids(ids.size(1), d_model)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.encoder(self.embed(source), src_key_padding_mask=source == PAD)
        future = torch.ones(target.size(1), target.size(1), dtype=torch.bool).triu(1)
        padding = {"tgt_key_padding_mask": target == PAD, "memory_key_padding_mask": source == PAD}
        return self.decoder(self.embed(target), memory, tgt_mask=future, **padding) @ self.table.T


def matching(ours: Transformer, theirs: Theirs) -> list[tuple[list[Tensor], Tensor]]:
    """Return our parameters beside the ones of PyTorch that hold the same, one below the other."""
    found: list[tuple[list[Tensor], Tensor]] = [([ours.source_embedding.weight], theirs.table)]

    def match(a: nn.Module, b: nn.Module) -> None:
        if isinstance(b, nn.MultiheadAttention):
            found.append(([a.query.weight, a.key.weight, a.value.weight], b.in_proj_weight))
            found.append(([a.query.bias, a.key.bias, a.value.bias], b.in_proj_bias))
            a, b = a.out, b.out_proj
        found.extend(([p], q) for p, q in zip(a.parameters(), b.parameters(), strict=True))

    for a, b in zip([*ours.encoder, *ours.decoder], [*theirs.encoder.layers, *theirs.decoder.layers], strict=True):
        match(a.attention, b.self_attn)
        match(a.feed_forward.hidden, b.linear1)
        match(a.feed_forward.out, b.linear2)
        match(a.around_attention.norm, b.norm1)
        if isinstance(a, DecoderLayer):
            match(a.cross_attention, b.multihead_attn)
            match(a.around_cross_attention.norm, b.norm2)
        match(a.around_feed_forward.norm, b.norm3 if isinstance(a, DecoderLayer) else b.norm2)
    for a, b in ((ours.encoder_norm, theirs.encoder.norm), (ours.decoder_norm, theirs.decoder.norm)):
        if b is not None:
            match(a, b)
    return found


def side_by_side(norm_first: bool, activation: str = "relu") -> tuple[Transformer, Theirs]:
    feed_forward = FeedForwardConfig(d_ff=12, activation=activation)
    ours = little(norm_first=norm_first, attention=AttentionConfig(heads=2, bias=True), feed_forward=feed_forward)
    theirs = Theirs(ours, norm_first, activation)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
        for mine, yours in matching(ours, theirs):
            yours.copy_(torch.cat(mine))
    return ours, theirs


@NORMS
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_outputs_and_gradients_equal_those_of_pytorch(norm_first, activation):
    ours, theirs = side_by_side(norm_first, activation)
    logits, expected = (model(SOURCE, TARGET)[REAL] for model in (ours, theirs))
    assert gap(logits, expected) <= 1e-12
    toward = torch.randn_like(logits)
    logits.backward(toward)
    expected.backward(toward)
    pairs = matching(ours, theirs)
    assert sum(yours.numel() for _, yours in pairs) == parameter_count(ours) == parameter_count(theirs)
    assert all(gap(torch.cat([p.grad for p in mine]), yours.grad) <= 1e-12 for mine, yours in pairs)
    assert all(gap(torch.cat([p.grad for p in mine]).flip(0), yours.grad) > 1e-3 for mine, yours in pairs)


@NORMS
def test_norm_order_makes_another_model(norm_first):
    ours, theirs = side_by_side(norm_first)
    other = Theirs(ours, not norm_first)
    other.load_state_dict(theirs.state_dict(), strict=False)
    assert gap(ours(SOURCE, TARGET)[0], other(SOURCE, TARGET)[0]) > 1e-3


# One step after another.


@pytest.mark.parametrize("sizes", [[1, 2, 1], [1, 1, 1, 1]])
def test_steps_have_the_gradients_of_one_pass(sizes):
    model, toward = little(), torch.randn(*TARGET.shape, WORDS)
    of_steps, of_pass, of_other = (
        torch.autograd.grad(logits, tuple(model.parameters()), toward)
        for logits in (
            step_by_step(model, SOURCE, TARGET, sizes),
            model(SOURCE, TARGET),
            model(SOURCE, TARGET.flip(0)),
        )
    )
    assert all(gap(a, b) <= 1e-12 for a, b in zip(of_steps, of_pass, strict=True))
    assert max(gap(a, b) for a, b in zip(of_other, of_pass, strict=True)) > 1e-3


def test_decoder_without_its_mask_sees_the_future_control():
    model = little()
    for layer in model.decoder:
        layer.attention.kernel = lambda query, key, value, mask, dropout: fused_attention(
            query, key, value, None, dropout
        )
    other = TARGET.clone()
    other[:, 2:] = 6
    assert gap(model(SOURCE, TARGET)[:, :2], model(SOURCE, other)[:, :2]) > 1e-3


def test_outputs_have_no_slope_toward_later_inputs():
    model = little()
    vectors = torch.randn(1, 4, 8)

    def logits(x: Tensor) -> Tensor:
        model.decoder_positions.embed = lambda embedded, start: x
        return model(SOURCE[:1], TARGET[:1])[0]

    slopes = torch.autograd.functional.jacobian(logits, vectors)[:, :, 0].abs().amax((1, 3))
    assert torch.equal(slopes > 0, torch.ones(4, 4, dtype=torch.bool).tril())


@pytest.mark.parametrize("turns", [[[0, 0, 1, 1, 2, 2]], [[0, 0, 2, 2], [3, 2, 1, 1], [2, 3]], [[0, 1, 1], [2, 0, 1]]])
def test_hypotheses_that_are_chosen_go_on_as_themselves(turns: list[list[int]]):
    model, state, target, owner = little(), None, TARGET, torch.arange(len(SOURCE))
    state = model.start(SOURCE)
    for step, numbers in enumerate([*turns, None]):
        expected = model(SOURCE[owner], target)[:, step]
        assert gap(model.step(target[:, step : step + 1], state)[:, 0], expected) <= 1e-12
        if numbers:
            rows = torch.tensor(numbers)
            state.select(rows)
            target, owner = target[rows], owner[rows]
            target[:, step + 1] = torch.arange(len(rows)) + 4  # each goes on with another word


def test_memory_is_projected_once_for_all_steps():
    model, calls = little(), []
    model.decoder[0].cross_attention.key.register_forward_hook(lambda *_: calls.append(1))
    step_by_step(model, SOURCE, TARGET, [1, 1, 1, 1])
    assert len(calls) == 1


# The derivative of the whole.


def error_of_gradients(model: Transformer) -> float:
    """Return how far the slope of a loss is from finite differences, at most, along one direction of each parameter."""

    def loss() -> Tensor:
        return F.cross_entropy(model(SOURCE, TARGET, REAL), TARGET[REAL], reduction="sum", label_smoothing=0.1)

    errors, parameters = [], list(model.parameters())
    gradients = torch.autograd.grad(loss(), parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            step = 1e-6 * torch.randn_like(parameter)
            parameter += step
            ahead = loss()
            parameter -= 2 * step
            difference = (ahead - loss()) / 2
            parameter += step
            errors.append(gap(difference, (gradient * step).sum()) / 1e-6)
    return max(errors)


@pytest.mark.parametrize(
    ("score", "norm_first"),
    [
        ("dot", False),
        ("additive", True),
        pytest.param("dot", True, marks=pytest.mark.slow),
        pytest.param("additive", False, marks=pytest.mark.slow),
    ],
)
def test_gradients_are_the_derivatives_of_the_loss(norm_first, score):
    model = little(
        attention=AttentionConfig(heads=2, score=score),
        feed_forward=FeedForwardConfig(d_ff=12, activation="gelu"),
        positions="relative" if score == "additive" else "sinusoidal",
        norm_first=norm_first,
        share="output",
    )
    assert error_of_gradients(model) <= 1e-6
    kernel = model.encoder[0].attention.kernel
    model.encoder[0].attention.kernel = lambda query, key, *rest: kernel(query, (key + key.detach()) / 2, *rest)
    assert error_of_gradients(model) > 1e-3


# Embeddings and output.


def test_embeddings_are_multiplied_by_the_root_of_d_model_or_left_alone():
    for scale, factor in ((True, math.sqrt(8)), (False, 1)):
        model = little(positions="none", scale_embedding=scale, encoder_layers=0)
        assert gap(model.start(SOURCE).memory, factor * model.source_embedding(SOURCE[SOURCE != PAD])) <= 1e-12


def test_shared_matrix_stays_shared_when_loaded():
    model, other = little(share="all"), little(share="all")
    before = other(SOURCE, TARGET)
    other.load_state_dict(model.state_dict())
    assert other.output.weight.data_ptr() == other.source_embedding.weight.data_ptr()
    assert torch.equal(other(SOURCE, TARGET), model(SOURCE, TARGET))
    assert not torch.equal(before, model(SOURCE, TARGET))


@pytest.mark.parametrize("pad", [0, 7])
def test_vector_of_padding_begins_as_zeros(pad):
    model = Transformer(replace(LITTLE, share="none"), WORDS, pad=pad)
    for table in (model.source_embedding, model.target_embedding):
        assert torch.equal(table.weight.abs().sum(-1) == 0, torch.arange(WORDS) == pad)


def test_matrices_begin_as_xavier_drew_them_and_biases_as_zeros():
    model = Transformer(replace(TransformerConfig(), encoder_layers=1, decoder_layers=1, output_bias=True), 1000)
    layer = model.decoder[0]
    for matrix in (layer.attention.query.weight, layer.feed_forward.hidden.weight, layer.feed_forward.out.weight):
        bound = math.sqrt(6 / sum(matrix.shape))
        assert 0.99 * bound < matrix.abs().max() <= bound
        assert (matrix.std() / bound * math.sqrt(3) - 1).abs() < 0.02
    assert (model.output.weight.std() * math.sqrt(512) - 1).abs() < 0.02
    assert not torch.cat([layer.feed_forward.hidden.bias, layer.feed_forward.out.bias, model.output.bias]).any()


# Residual connections and norms.


@NORMS
def test_norm_stands_where_the_setting_says(norm_first):
    around, x, linear = Residual(replace(LITTLE, norm_first=norm_first)), torch.randn(5, 8), nn.Linear(8, 8)
    before, after = x + linear(around.norm(x)), around.norm(x + linear(x))
    right, wrong = (before, after) if norm_first else (after, before)
    assert gap(around(x, linear), right) <= 1e-12
    assert gap(around(x, linear), wrong) > 1e-3


@NORMS
def test_norms_add_the_epsilon_of_the_settings(norm_first):
    model = Transformer(replace(LITTLE, norm_first=norm_first, norm_epsilon=1e-3), WORDS)
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert [norm.eps for norm in norms] == [1e-3] * (10 + 2 * norm_first)
    as_usual = Transformer(replace(LITTLE, norm_first=norm_first), WORDS)
    as_usual.load_state_dict(model.state_dict())
    assert {norm.eps for norm in as_usual.modules() if isinstance(norm, nn.LayerNorm)} == {1e-5}
    assert gap(as_usual.eval()(SOURCE, TARGET), model.eval()(SOURCE, TARGET)) > 1e-6


def test_layer_norm_looks_at_one_token_at_a_time():
    norm, x = Residual(LITTLE).norm, 3 * torch.randn(4, 7, 8) + 1
    by_token = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
    by_sentence = (x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), correction=0, keepdim=True)
    assert gap(norm(x), by_token) <= 1e-12
    assert gap(norm(x), by_sentence) > 1e-3


# The position-wise network.


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_feed_forward_network_is_two_convolutions_of_width_1(activation):
    network, x = FeedForward(8, FeedForwardConfig(d_ff=12, activation=activation)), torch.randn(2, 5, 8)
    hidden = F.conv1d(x.mT, network.hidden.weight[:, :, None], network.hidden.bias)
    out = F.conv1d(ACTIVATIONS[activation](hidden), network.out.weight[:, :, None], network.out.bias).mT
    without_activation = F.conv1d(hidden, network.out.weight[:, :, None], network.out.bias).mT
    assert gap(network(x), out) <= 1e-12
    assert gap(network(x), without_activation) > 1e-3


def test_activations_have_their_names_values():
    at = torch.tensor([-1.0, 0.0, 1.0])
    assert ACTIVATIONS["relu"](at).tolist() == [0, 0, 1]
    assert float(ACTIVATIONS["gelu"](at)[2]) == pytest.approx(0.8413, abs=5.1e-5)
    assert gap(ACTIVATIONS["gelu"](at), at * torch.special.ndtr(at)) <= 1e-12
    assert gap(ACTIVATIONS["silu"](at), at * at.sigmoid()) <= 1e-12


# Dropout.


@pytest.mark.parametrize(("rate", "hidden", "times"), [(0, 0, 0), (0.1, 0, 2 + 2 * 2 + 3 * 3), (0.1, 0.1, 15 + 5)])
def test_dropout_follows_both_embeddings_every_sublayer_and_where_set_the_hidden_layers(rate, hidden, times):
    feed_forward = FeedForwardConfig(d_ff=12, dropout=hidden)
    model, calls = little(decoder_layers=3, dropout=rate, feed_forward=feed_forward).train(), []
    for module in model.modules():
        if isinstance(module, Dropout) and module.rate > 0:
            module.register_forward_hook(lambda *_: calls.append(1))
    model(SOURCE, TARGET)
    assert len(calls) == times


@NORMS
def test_dropout_acts_on_the_sublayer_output_before_the_sum(norm_first):
    around, x = Residual(replace(LITTLE, norm_first=norm_first, dropout=0.5)).train(), torch.randn(500, 8)
    around.norm = nn.Identity()
    out = around(x, torch.ones_like)
    added = out - x
    assert set(added.round(decimals=9).unique().tolist()) == {0, 2}
    assert gap(around.dropout(x + 1), out) > 1e-3


@pytest.mark.parametrize("rate", [0.5, 0.99999, 1 - 1e-9])
def test_dropout_of_nearly_everything_still_leaves_numbers(rate):
    kept = Dropout(rate).train()(torch.ones(1000))
    assert kept.isfinite().all()
    assert kept.count_nonzero() < 1000


# Variants from outside, without a change in the model.


def share_projections(model: Transformer) -> None:
    for layer in [*model.encoder, *model.decoder]:
        layer.attention.key = layer.attention.value = layer.attention.query


class NoResidual(Residual):
    def forward(self, x, sublayer):
        return self.norm(sublayer(x))


def without_residuals(model: Transformer) -> None:
    for layer in [*model.encoder, *model.decoder]:
        for name in [name for name, module in layer.named_children() if isinstance(module, Residual)]:
            setattr(layer, name, NoResidual(model.config))


def with_batch_norm(model: Transformer) -> None:
    for module in model.modules():
        if isinstance(module, Residual):
            module.norm = nn.BatchNorm1d(8)


def restricted(model: Transformer, radius: int = 1) -> None:
    """Let every token attend to its neighbours only."""

    def kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        index = torch.arange(key.size(-2))
        near = (index[:, None] - index).abs()[-query.size(-2) :] <= radius
        return fused_attention(query, key, value, near if mask is None else mask & near, dropout)

    for layer in [*model.encoder, *model.decoder]:
        layer.attention.kernel = kernel


@pytest.mark.parametrize("change", [share_projections, without_residuals, with_batch_norm, restricted])
def test_model_part_may_be_replaced_from_outside(change):
    """The changed model computes, learns, and is another one than before."""
    model = little()
    size, before = parameter_count(model), model(SOURCE, TARGET)
    change(model)
    assert parameter_count(model) == size - (4 * 2 * 8 * 8 if change is share_projections else 0)
    model.train()(SOURCE, TARGET, REAL).square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert all((parameter.grad != 0).any() for name, parameter in model.named_parameters() if "weight" in name)
    model.eval()
    assert gap(model(SOURCE, TARGET), before) > 1e-3
    assert gap(step_by_step(model, SOURCE, TARGET, [1, 3]), model(SOURCE, TARGET)) <= 1e-12


def explicitly(model: Transformer) -> None:
    for module in model.modules():
        if hasattr(module, "kernel"):
            module.kernel = explicit_attention


@pytest.mark.parametrize("change", [explicitly, partial(restricted, radius=5)], ids=["explicit", "as wide as it is"])
def test_model_part_that_does_the_same_changes_nothing(change):
    """The control: another kernel of the same function, and a radius as wide as the sentence."""
    model = little()
    before = model(SOURCE, TARGET)
    change(model)
    assert gap(model(SOURCE, TARGET), before) <= 1e-12
