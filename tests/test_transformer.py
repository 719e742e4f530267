"""The Transformer as a whole: its size, its equality with PyTorch's, and what each part of it must and must not do."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from conftest import gap
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.config.presets import BASE, BIG
from dragoman.errors import UsageError
from dragoman.inspection.layers import WeightedLayerPool, layer_outputs
from dragoman.model.attention import explicit_attention, fused_attention
from dragoman.model.capture import AttentionCapture
from dragoman.model.packing import Packing
from dragoman.model.positions import POSITIONS, Relative, sinusoids
from dragoman.model.transformer import (
    ACTIVATIONS,
    DecoderLayer,
    Dropout,
    EncoderLayer,
    FeedForward,
    Residual,
    Transformer,
)

PAD, WORDS = 0, 11
SOURCE = torch.tensor([[3, 4, 5, 6, 2], [5, 3, 2, 0, 0], [7, 2, 0, 0, 0]])
TARGET = torch.tensor([[1, 8, 9, 3], [1, 4, 7, 10], [1, 5, 5, 0]])
LITTLE = TransformerConfig(
    d_model=8,
    encoder_layers=2,
    decoder_layers=2,
    attention=AttentionConfig(heads=2),
    feed_forward=FeedForwardConfig(d_ff=12),
    dropout=0,
    max_length=16,
)


pytestmark = pytest.mark.usefixtures("seeded_double_precision")


def little(words: int = WORDS, target_words: int | None = None, **changes) -> Transformer:
    return built(replace(LITTLE, **changes), words, target_words)


def built(config: TransformerConfig, words: int = WORDS, target_words: int | None = None) -> Transformer:
    model = Transformer(config, words, target_words, PAD).eval()
    for module in model.modules():
        if isinstance(module, Relative):
            nn.init.normal_(module.scores.weight)
    return model


def every_scheme():
    """All positions, both norms, both scores."""
    return pytest.mark.parametrize(
        "config",
        [
            pytest.param(
                replace(
                    LITTLE, positions=positions, norm_first=norm_first, attention=AttentionConfig(heads=2, score=score)
                ),
                id=f"{positions}-{'pre' if norm_first else 'post'}-{score}",
            )
            for positions in POSITIONS
            for norm_first in (False, True)
            for score in ("dot", "additive")
        ],
    )


def both_norms():
    return pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def weightless(config: TransformerConfig) -> Transformer:
    with torch.device("meta"):
        return Transformer(config, vocabulary=37_000)


# Sizes, against the paper.


def heads(count: int, d_k: int | None = None) -> dict[str, AttentionConfig]:
    return {"attention": AttentionConfig(heads=count, d_k=d_k)}


@pytest.mark.parametrize(
    ("row", "changes", "parameters"),
    [
        ("base", {}, 63_045_632),
        ("A, 1 head", heads(1), 63_045_632),
        ("A, 4 heads", heads(4), 63_045_632),
        ("A, 16 heads", heads(16), 63_045_632),
        ("A, 32 heads", heads(32), 63_045_632),
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
    ],
)
def test_table_3_has_these_parameters(row, changes, parameters):
    assert size(weightless(replace(BASE.model, **changes))) == parameters


def test_the_presets_base_and_big_are_those_of_table_3():
    assert size(weightless(BASE.model)) == 63_045_632
    assert size(weightless(BIG.model)) == 214_171_648
    assert BASE.model == TransformerConfig()


def test_layers_of_the_base_model_have_these_parameters():
    with torch.device("meta"):
        assert size(EncoderLayer(TransformerConfig())) == 3_150_336
        assert size(DecoderLayer(TransformerConfig())) == 4_199_936


def test_untied_matrices_and_pre_norm_cost_extra():
    base = size(weightless(BASE.model))
    assert size(weightless(replace(BASE.model, share="none"))) == base + 2 * 37_000 * 512
    assert size(weightless(replace(BASE.model, norm_first=True))) == base + 4 * 512
    assert size(weightless(replace(BASE.model, output_bias=True))) == base + 37_000


# Equality with torch.nn.Transformer.


class Theirs(nn.Module):
    """PyTorch's Transformer between our embeddings and our output."""

    def __init__(self, ours: Transformer, norm_first: bool, activation: str = "relu"):
        super().__init__()
        config = ours.config
        kinds = nn.TransformerEncoderLayer, nn.TransformerDecoderLayer
        encoder_layer, decoder_layer = (
            kind(
                config.d_model,
                config.attention.heads,
                config.feed_forward.d_ff,
                dropout=0,
                activation=activation,
                batch_first=True,
                norm_first=norm_first,
            )
            for kind in kinds
        )
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
        out = self.decoder(
            self.embed(target),
            memory,
            tgt_mask=future,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
        )
        return out @ self.table.T


def matching(ours: Transformer, theirs: Theirs) -> list[tuple[list[Tensor], Tensor]]:
    """Our parameters beside the ones of PyTorch that hold the same, one below the other."""
    found: list[tuple[list[Tensor], Tensor]] = [([ours.source_embedding.weight], theirs.table)]

    def same(a: nn.Module, b: nn.Module) -> None:
        found.extend(([p], q) for p, q in zip(a.parameters(), b.parameters(), strict=True))

    def same_attention(a, b: nn.MultiheadAttention) -> None:
        found.append(([a.query.weight, a.key.weight, a.value.weight], b.in_proj_weight))
        found.append(([a.query.bias, a.key.bias, a.value.bias], b.in_proj_bias))
        same(a.out, b.out_proj)

    for a, b in zip([*ours.encoder, *ours.decoder], [*theirs.encoder.layers, *theirs.decoder.layers], strict=True):
        same_attention(a.attention, b.self_attn)
        same(a.feed_forward.hidden, b.linear1)
        same(a.feed_forward.out, b.linear2)
        norms = [a.around_attention.norm, a.around_feed_forward.norm]
        if isinstance(a, DecoderLayer):
            same_attention(a.cross_attention, b.multihead_attn)
            norms.insert(1, a.around_cross_attention.norm)
        for norm, name in zip(norms, ["norm1", "norm2", "norm3"], strict=False):
            same(norm, getattr(b, name))
    for a, b in ((ours.encoder_norm, theirs.encoder.norm), (ours.decoder_norm, theirs.decoder.norm)):
        if b is not None:
            same(a, b)
    return found


def side_by_side(norm_first: bool, activation: str = "relu") -> tuple[Transformer, Theirs]:
    config = replace(
        LITTLE,
        norm_first=norm_first,
        attention=AttentionConfig(heads=2, bias=True),
        feed_forward=FeedForwardConfig(d_ff=12, activation=activation),
    )
    ours = Transformer(config, WORDS, pad=PAD)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    theirs = Theirs(ours, norm_first, activation)
    with torch.no_grad():
        for mine, yours in matching(ours, theirs):
            yours.copy_(torch.cat(mine))
    return ours, theirs


@both_norms()
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_outputs_equal_those_of_pytorch(norm_first, activation):
    ours, theirs = side_by_side(norm_first, activation)
    real = TARGET != PAD
    assert gap(ours(SOURCE, TARGET)[real], theirs(SOURCE, TARGET)[real]) <= 1e-12


@both_norms()
def test_gradients_equal_those_of_pytorch(norm_first):
    ours, theirs = side_by_side(norm_first)
    real, toward = TARGET != PAD, torch.randn(*TARGET.shape, WORDS)
    ours(SOURCE, TARGET)[real].backward(toward[real])
    theirs(SOURCE, TARGET)[real].backward(toward[real])
    pairs = matching(ours, theirs)
    assert sum(yours.numel() for _, yours in pairs) == size(ours) == size(theirs)
    assert all(gap(torch.cat([p.grad for p in mine]), yours.grad) <= 1e-12 for mine, yours in pairs)
    assert all(gap(torch.cat([p.grad for p in mine]).flip(0), yours.grad) > 1e-3 for mine, yours in pairs)


@both_norms()
def test_the_other_norm_order_is_another_model(norm_first):
    ours, theirs = side_by_side(norm_first)
    other = Theirs(ours, not norm_first)
    other.load_state_dict(theirs.state_dict(), strict=False)
    assert gap(ours(SOURCE, TARGET)[0], other(SOURCE, TARGET)[0]) > 1e-3


# One step after another.


def step_by_step(model: Transformer, source: Tensor, target: Tensor, sizes: list[int]) -> Tensor:
    state = model.start(source)
    return torch.cat([model.step(tokens, state) for tokens in target.split(sizes, 1)], 1)


@every_scheme()
def test_steps_equal_one_pass(config):
    model = built(config)
    in_one_pass = model(SOURCE, TARGET)
    assert gap(step_by_step(model, SOURCE, TARGET, [1, 1, 1, 1]), in_one_pass) <= 1e-12
    forgetful = torch.cat([model.step(tokens, model.start(SOURCE)) for tokens in TARGET.split(1, 1)], 1)
    assert gap(forgetful, in_one_pass) > 1e-3


@settings(max_examples=20)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.sampled_from(sorted(POSITIONS)))
def test_steps_of_any_size_equal_one_pass(sizes, positions):
    model = little(positions=positions, max_length=20)
    target = torch.randint(1, WORDS, (3, sum(sizes)))
    assert gap(step_by_step(model, SOURCE, target, sizes), model(SOURCE, target)) <= 1e-12


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


@every_scheme()
def test_the_future_changes_no_bit(config):
    model = built(config)
    other = TARGET.clone()
    other[:, 2:] = 6
    ours, theirs = model(SOURCE, TARGET), model(SOURCE, other)
    assert torch.equal(ours[:, :2], theirs[:, :2])
    assert not torch.equal(ours[:, 2:], theirs[:, 2:])


def test_without_its_mask_the_decoder_would_see_the_future():
    model = little()
    for layer in model.decoder:
        layer.attention.kernel = lambda query, key, value, mask, dropout: fused_attention(
            query, key, value, None, dropout
        )
    other = TARGET.clone()
    other[:, 2:] = 6
    assert gap(model(SOURCE, TARGET)[:, :2], model(SOURCE, other)[:, :2]) > 1e-3


def test_no_output_has_a_slope_toward_a_later_input():
    model = little()
    vectors = torch.randn(1, 4, 8)

    def logits(x: Tensor) -> Tensor:
        model.decoder_positions.embed = lambda embedded, start: x
        return model(SOURCE[:1], TARGET[:1])[0]

    slopes = torch.autograd.functional.jacobian(logits, vectors)[:, :, 0].abs().amax((1, 3))
    assert torch.equal(slopes > 0, torch.ones(4, 4, dtype=torch.bool).tril())


@pytest.mark.parametrize("positions", sorted(POSITIONS))
@pytest.mark.parametrize("taken", [0, 2])
def test_selected_hypotheses_go_on_as_themselves(positions, taken):
    model, rows = little(positions=positions), torch.tensor([2, 0, 0, 2])
    state, untouched = model.start(SOURCE), model.start(SOURCE)
    for kept in (state, untouched):
        if taken:
            model.step(TARGET[:, :taken], kept)
    state.select(rows)
    chosen = model.step(TARGET[rows, taken:], state)
    assert gap(chosen, model(SOURCE[rows], TARGET[rows])[:, taken:]) <= 1e-12
    as_they_were = model.step(TARGET[:, taken:], untouched)
    assert gap(chosen, as_they_were[[0, 1, 2, 2]]) > 1e-3


@pytest.mark.parametrize("turns", [[[0, 0, 1, 1, 2, 2]], [[0, 0, 2, 2], [3, 2, 1, 1], [2, 3]], [[0, 1, 1], [2, 0, 1]]])
def test_hypotheses_of_one_source_share_its_memory_and_go_on_as_themselves(turns: list[list[int]]):
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


def test_beams_of_one_source_hold_its_memory_once():
    model = little()
    state = model.start(SOURCE)
    model.step(TARGET[:, :1], state)
    state.select(torch.arange(len(SOURCE)).repeat_interleave(3))
    assert state.caches[0].target.key.size(0) == 3 * len(SOURCE)
    assert state.caches[0].memory.key.size(0) == len(SOURCE)
    state.select(torch.tensor([0, 1, 4]))  # two of the first, one of the second: nothing to share evenly
    assert state.caches[0].memory.key.size(0) == 3


def test_memory_is_projected_once_for_all_steps():
    model, calls = little(), []
    model.decoder[0].cross_attention.key.register_forward_hook(lambda *_: calls.append(1))
    step_by_step(model, SOURCE, TARGET, [1, 1, 1, 1])
    assert len(calls) == 1


# The derivative of the whole.


def loss_of(model: Transformer, names: list[str], *parameters: Tensor) -> Tensor:
    source, target = torch.tensor([[3, 4, 2], [4, 2, 0]]), torch.tensor([[1, 3, 4], [1, 4, 0]])
    real = torch.tensor([[True, True, True], [True, True, False]])
    logits = torch.func.functional_call(model, dict(zip(names, parameters, strict=True)), (source, target, real))
    return F.cross_entropy(logits, torch.tensor([3, 4, 2, 4, 2]), reduction="sum", label_smoothing=0.1)


def tiny_for_gradcheck(norm_first: bool, score: str) -> tuple[Transformer, list[str], list[Tensor]]:
    config = TransformerConfig(
        d_model=4,
        encoder_layers=1,
        decoder_layers=1,
        attention=AttentionConfig(heads=2, score=score),
        feed_forward=FeedForwardConfig(d_ff=3, activation="gelu"),
        dropout=0,
        positions="relative" if score == "additive" else "sinusoidal",
        norm_first=norm_first,
        share="output",
        max_length=4,
    )
    model = Transformer(config, vocabulary=5, pad=PAD)
    named = dict(model.named_parameters())
    return model, list(named), [parameter.detach().clone().requires_grad_() for parameter in named.values()]


@both_norms()
@pytest.mark.parametrize("score", ["dot", "additive"])
def test_all_gradients_are_the_derivatives_of_the_loss(norm_first, score):
    model, names, parameters = tiny_for_gradcheck(norm_first, score)
    assert torch.autograd.gradcheck(lambda *values: loss_of(model, names, *values), parameters)


def test_a_wrong_gradient_anywhere_would_be_found():
    model, names, parameters = tiny_for_gradcheck(norm_first=True, score="dot")
    model.encoder[0].attention.kernel = lambda query, key, *rest: fused_attention(query, key.detach(), *rest)
    with pytest.raises(GradcheckError):
        torch.autograd.gradcheck(lambda *values: loss_of(model, names, *values), parameters)


@pytest.mark.parametrize("share", ["all", "embeddings", "output", "none"])
def test_a_call_with_other_parameters_leaves_the_model_as_it_was(share):
    model = little(share=share)
    before = model(SOURCE, TARGET)
    others = {name: torch.randn_like(parameter) for name, parameter in model.named_parameters()}
    assert gap(torch.func.functional_call(model, others, (SOURCE, TARGET)), before) > 1e-3
    assert torch.equal(model(SOURCE, TARGET), before)


# Embeddings and output.


@pytest.mark.parametrize(
    ("share", "matrices"),
    [("all", 1), ("embeddings", 2), ("output", 2), ("none", 3)],
)
def test_shared_matrices_are_one_storage(share, matrices):
    model = little(share=share)
    source, target, output = (
        weight.data_ptr()
        for weight in (model.source_embedding.weight, model.target_embedding.weight, model.output.weight)
    )
    assert (source == target) == (share in ("all", "embeddings"))
    assert (target == output) == (share in ("all", "output"))
    assert size(model) == size(little(share="all")) + (matrices - 1) * WORDS * 8


@pytest.mark.parametrize("share", ["output", "none"])
def test_languages_may_have_vocabularies_of_their_own(share):
    model = little(words=11, target_words=14, share=share)
    assert model(SOURCE, TARGET).shape == (3, 4, 14)
    assert model(SOURCE, torch.full((3, 1), 13)).isfinite().all()


@pytest.mark.parametrize("share", ["all", "embeddings"])
def test_different_vocabularies_cannot_share_embeddings(share):
    with pytest.raises(UsageError, match=rf"share = '{share}'.*11 source and 14 target"):
        little(words=11, target_words=14, share=share)
    assert little(words=11, target_words=11, share=share)(SOURCE, TARGET).shape == (3, 4, 11)


def test_a_shared_matrix_stays_shared_when_loaded():
    model, other = little(share="all"), little(share="all")
    before = other(SOURCE, TARGET)
    other.load_state_dict(model.state_dict())
    assert other.output.weight.data_ptr() == other.source_embedding.weight.data_ptr()
    assert torch.equal(other(SOURCE, TARGET), model(SOURCE, TARGET))
    assert not torch.equal(before, model(SOURCE, TARGET))


def embedded(**changes) -> tuple[Tensor, Tensor]:
    """The vectors that enter the encoder, and the rows of the matrix they came from."""
    config = TransformerConfig(**({"encoder_layers": 0, "decoder_layers": 0} | changes))
    model, ids = Transformer(config, WORDS).eval(), torch.tensor([[3, 4, 5]])
    return model.start(ids).memory, model.source_embedding.weight[ids[0]]


def test_embeddings_are_multiplied_by_the_root_of_d_model():
    vectors, rows = embedded(positions="none")
    assert gap(vectors, rows * math.sqrt(512)) <= 1e-12
    assert gap(vectors, rows * 22.627) <= 1e-4
    assert gap(vectors, rows) > 1e-3


def test_embeddings_are_left_alone_when_told_so():
    vectors, rows = embedded(positions="none", scale_embedding=False)
    assert gap(vectors, rows) == 0


def test_positions_are_not_multiplied():
    vectors, rows = embedded(positions="sinusoidal")
    assert gap(vectors, rows * math.sqrt(512) + sinusoids(3, 512)) <= 1e-12
    assert gap(vectors, (rows + sinusoids(3, 512)) * math.sqrt(512)) > 1e-3


def test_looking_up_a_word_is_multiplying_with_its_one_hot_vector():
    model = little()
    one_hot = F.one_hot(SOURCE, WORDS).to(torch.float64)
    assert gap(model.source_embedding(SOURCE), one_hot @ model.source_embedding.weight) <= 1e-12
    assert gap(model.source_embedding(SOURCE), one_hot.roll(1, -1) @ model.source_embedding.weight) > 1e-3


@pytest.mark.parametrize("pad", [0, 7])
def test_the_vector_of_padding_begins_as_zeros(pad):
    model = Transformer(replace(LITTLE, share="none"), WORDS, pad=pad)
    for table in (model.source_embedding, model.target_embedding):
        assert torch.equal(table.weight.abs().sum(-1) == 0, torch.arange(WORDS) == pad)


def test_logits_give_probabilities_that_sum_to_1():
    logits = little()(SOURCE, TARGET)
    assert gap(logits.log_softmax(-1).exp().sum(-1), torch.ones(3, 4)) <= 1e-12
    assert gap(logits.exp().sum(-1), torch.ones(3, 4)) > 1e-3


def test_a_bias_of_the_output_is_added_to_the_logits():
    model = little(output_bias=True)
    before = model(SOURCE, TARGET)
    with torch.no_grad():
        model.output.bias[5] += 3
    assert gap(model(SOURCE, TARGET) - before, 3 * (torch.arange(WORDS) == 5).double().expand(3, 4, -1)) <= 1e-12


def test_matrices_begin_as_xavier_drew_them():
    layer = Transformer(TransformerConfig(encoder_layers=1, decoder_layers=0), WORDS).encoder[0]
    for matrix in (layer.attention.query.weight, layer.feed_forward.hidden.weight, layer.feed_forward.out.weight):
        bound = math.sqrt(6 / sum(matrix.shape))
        assert 0.99 * bound < matrix.abs().max() <= bound
        assert (matrix.std() / bound * math.sqrt(3) - 1).abs() < 0.02
    assert (layer.feed_forward.hidden.bias == 0).all()


# Residual connections and norms.


def test_a_decoder_layer_that_computes_nothing_returns_its_input():
    model = little(norm_first=True)
    for layer in [*model.encoder, *model.decoder]:
        for part in ("attention", "cross_attention", "feed_forward"):
            if hasattr(layer, part):
                nn.init.zeros_(getattr(layer, part).out.weight)
    with layer_outputs(model) as outputs:
        model(SOURCE, TARGET)
    entering = model.source_embedding(SOURCE) * math.sqrt(8) + sinusoids(5, 8)
    assert gap(outputs.encoder[-1], entering * (SOURCE != PAD)[..., None]) <= 1e-12
    assert gap(outputs.decoder[0], outputs.decoder[1]) == 0


def test_post_norm_is_the_norm_of_the_sum():
    around, x, double = Residual(LITTLE), torch.randn(5, 8), nn.Linear(8, 8)
    assert gap(around(x, double), around.norm(x + double(x))) <= 1e-12
    assert gap(around(x, double), x + double(around.norm(x))) > 1e-3


def test_pre_norm_is_the_sum_with_a_normed_input():
    around, x, double = Residual(replace(LITTLE, norm_first=True)), torch.randn(5, 8), nn.Linear(8, 8)
    assert gap(around(x, double), x + double(around.norm(x))) <= 1e-12
    assert gap(around(x, double), around.norm(x + double(x))) > 1e-3


def rows_are_normed(x: Tensor) -> bool:
    return bool((x.mean(-1).abs() < 1e-6).all() and ((x.std(-1, correction=0) - 1).abs() < 1e-2).all())


def test_every_layer_of_a_post_norm_model_puts_out_normed_rows():
    model, pre = little(), little(norm_first=True)
    full = torch.randint(1, WORDS, (2, 6))
    with layer_outputs(model) as ours, layer_outputs(pre) as others:
        model(full, full)
        pre(full, full)
    assert rows_are_normed(ours.encoder)
    assert rows_are_normed(ours.decoder)
    assert not rows_are_normed(others.encoder)
    assert not rows_are_normed(others.decoder)


def test_only_a_pre_norm_model_has_a_norm_at_its_end():
    post, pre = little(), little(norm_first=True)
    assert [type(model.encoder_norm) for model in (post, pre)] == [nn.Identity, nn.LayerNorm]
    assert [type(model.decoder_norm) for model in (post, pre)] == [nn.Identity, nn.LayerNorm]
    assert rows_are_normed(pre.start(SOURCE).memory)


def test_layer_norm_looks_at_one_token_at_a_time():
    norm, x = Residual(LITTLE).norm, 3 * torch.randn(4, 7, 8) + 1
    by_token = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
    by_sentence = (x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), correction=0, keepdim=True)
    assert gap(norm(x), by_token) <= 1e-12
    assert gap(norm(x), by_sentence) > 1e-3


def test_padding_changes_a_batch_norm_but_no_layer_norm():
    tokens = torch.randn(6, 8)
    with_padding = torch.cat([tokens, torch.zeros(10, 8)])
    layer_norm, batch_norm = Residual(LITTLE).norm, nn.BatchNorm1d(8)
    assert torch.equal(layer_norm(with_padding)[:6], layer_norm(tokens))
    assert gap(batch_norm(with_padding)[:6], batch_norm(tokens)) > 1e-3


def test_layer_norm_does_not_depend_on_the_size_of_the_batch():
    x, norm = torch.randn(8, 5, 8), Residual(LITTLE).norm
    assert torch.equal(norm(x)[:1], norm(x[:1]))
    batch_norm = nn.BatchNorm1d(5)
    assert gap(batch_norm(x)[:1], batch_norm(x[:1])) > 1e-3


# The position-wise network.


def test_the_network_of_the_paper_has_two_million_weights():
    assert size(FeedForward(512, FeedForwardConfig(d_ff=2048))) == 2_099_712


def test_the_network_treats_every_place_alone():
    network, x = FeedForward(8, FeedForwardConfig(d_ff=12)), torch.randn(2, 5, 8)
    other = x.clone()
    other[:, 3] += 1
    elsewhere = [0, 1, 2, 4]
    assert torch.equal(network(x)[:, elsewhere], network(other)[:, elsewhere])
    assert gap(network(x)[:, 3], network(other)[:, 3]) > 1e-3
    wide = nn.Conv1d(8, 8, kernel_size=3, padding=1)
    assert gap(wide(x.mT).mT[:, elsewhere], wide(other.mT).mT[:, elsewhere]) > 1e-3


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_network_is_two_convolutions_of_width_1(activation):
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


@pytest.mark.parametrize(
    "changes",
    [
        {"dropout": 0.5},
        {"feed_forward": FeedForwardConfig(d_ff=12, dropout=0.5)},
        {"attention": AttentionConfig(heads=2, dropout=0.5)},
    ],
    ids=["residual", "hidden layer", "attention weights"],
)
def test_dropout_acts_in_training_only(changes):
    model = little(**changes)
    assert torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))
    model.train()
    assert gap(model(SOURCE, TARGET), model(SOURCE, TARGET)) > 1e-3


@pytest.mark.parametrize("output_bias", [False, True])
@both_norms()
def test_the_vectors_before_the_output_matrix_are_those_of_the_logits(norm_first, output_bias):
    model, real = little(norm_first=norm_first, output_bias=output_bias), TARGET != PAD
    if output_bias:
        nn.init.normal_(model.output.bias)
    vectors = model.vectors(TARGET, model.start(SOURCE), real)
    assert vectors.shape == (11, 8)
    assert gap(F.linear(vectors, model.output.weight, model.output.bias), model(SOURCE, TARGET, real)) == 0
    assert gap(model(SOURCE, TARGET, real), model(SOURCE, TARGET)[real]) <= 1e-12
    assert gap(model(SOURCE, TARGET, real), model(SOURCE, TARGET).flatten(0, 1)[1:]) > 1e-3


def test_no_dropout_changes_nothing_in_training():
    model = little()
    assert torch.equal(model.train()(SOURCE, TARGET), model.eval()(SOURCE, TARGET))


def applications_of_dropout(**changes) -> int:
    model, calls = little(encoder_layers=2, decoder_layers=3, **changes).train(), []
    for module in model.modules():
        if isinstance(module, Dropout) and module.rate > 0:
            module.register_forward_hook(lambda *_: calls.append(1))
    model(SOURCE, TARGET)
    return len(calls)


def test_dropout_follows_both_embeddings_and_every_sublayer():
    assert applications_of_dropout(dropout=0.1) == 2 + 2 * 2 + 3 * 3
    assert applications_of_dropout(dropout=0) == 0


def test_dropout_in_the_network_comes_on_top():
    network = FeedForwardConfig(d_ff=12, dropout=0.1)
    assert applications_of_dropout(dropout=0.1, feed_forward=network) == (2 + 2 * 2 + 3 * 3) + (2 + 3)


@both_norms()
def test_dropout_acts_on_the_output_of_a_sublayer_and_not_on_the_sum(norm_first):
    around, x = Residual(replace(LITTLE, norm_first=norm_first, dropout=0.5)).train(), torch.randn(500, 8)
    around.norm = nn.Identity()
    out = around(x, torch.ones_like)
    added = out - x
    assert set(added.round(decimals=9).unique().tolist()) == {0, 2}
    assert gap(around.dropout(x + 1), out) > 1e-3


# Any length, any batch, any type.


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 20), st.integers(1, 20), st.sampled_from(sorted(POSITIONS)))
def test_any_batch_and_any_lengths_will_do(batch, sources, targets, positions):
    model = little(positions=positions, max_length=20)
    logits = model(torch.randint(1, WORDS, (batch, sources)), torch.randint(1, WORDS, (batch, targets)))
    assert logits.shape == (batch, targets, WORDS)
    assert logits.isfinite().all()


def test_learned_positions_end_at_max_length():
    model, ids = little(positions="learned", max_length=5), torch.ones(1, 6, dtype=torch.long)
    with pytest.raises(ValueError, match="max_length"):
        model(ids, ids[:, :3])
    with pytest.raises(ValueError, match="max_length"):
        step_by_step(model, ids[:, :5], ids, [1] * 6)
    assert step_by_step(model, ids[:, :5], ids[:, :5], [1] * 5).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("positions", sorted(POSITIONS))
@pytest.mark.parametrize("score", ["dot", "additive"])
def test_half_precision_stays_finite(dtype, positions, score):
    model = little(positions=positions, attention=AttentionConfig(heads=2, score=score)).to(dtype)
    logits = model(SOURCE, TARGET, TARGET != PAD)
    assert logits.dtype == dtype
    assert logits.isfinite().all()
    logits.square().mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_half_precision_is_near_full_precision():
    model = little().float()
    full = model(SOURCE, TARGET)
    assert gap(model.bfloat16()(SOURCE, TARGET).float(), full) < 0.1 * gap(full, torch.zeros_like(full))


@pytest.mark.parametrize("positions", sorted(POSITIONS))
def test_nothing_in_the_model_insists_on_a_device(positions):
    model = little(positions=positions)
    before = model(SOURCE, TARGET, TARGET != PAD)
    with torch.device("meta"):
        assert torch.equal(model(SOURCE, TARGET, TARGET != PAD), before)
        with pytest.raises(RuntimeError, match="meta"):
            model(SOURCE, TARGET) + torch.zeros(WORDS)


# What every layer puts out.


def test_layer_outputs_are_one_per_layer_and_padded_with_zeros():
    model = little(encoder_layers=3)
    with layer_outputs(model) as outputs:
        model(SOURCE, TARGET)
    assert outputs.encoder.shape == (3, 3, 5, 8)
    assert outputs.decoder.shape == (2, 3, 4, 8)
    assert torch.equal(outputs.encoder.abs().sum(-1) > 0, (SOURCE != PAD).expand(3, -1, -1))
    assert torch.equal(Packing(SOURCE != PAD).pack(outputs.encoder[-1]), model.start(SOURCE).memory)


def test_watching_layers_changes_nothing_and_ends():
    model = little()
    before = model(SOURCE, TARGET)
    with layer_outputs(model) as outputs:
        watched = model(SOURCE, TARGET)
    model(SOURCE, TARGET)
    assert torch.equal(before, watched)
    assert len(outputs.encoder_layers) == 2


def test_gradients_flow_through_layer_outputs():
    model = little()
    with layer_outputs(model) as outputs:
        model(SOURCE, TARGET)
    outputs.encoder[0].square().sum().backward()
    assert (model.encoder[0].attention.query.weight.grad != 0).any()
    assert (model.encoder[1].attention.query.weight.grad == 0).all()


def test_a_pool_with_all_weight_on_one_layer_is_that_layer():
    outputs, pool = torch.randn(4, 2, 5, 8), WeightedLayerPool(4)
    with torch.no_grad():
        pool.weights[2] = 1000
    assert gap(pool(outputs), outputs[2]) <= 1e-12
    assert gap(pool(outputs), outputs[1]) > 1e-3


def test_a_pool_begins_as_the_mean_of_the_layers():
    outputs, pool = torch.randn(4, 2, 5, 8), WeightedLayerPool(4)
    assert gap(pool(outputs), outputs.mean(0)) <= 1e-12
    assert gap(pool(outputs), outputs.sum(0)) > 1e-3


def test_the_weights_of_a_pool_sum_to_1_and_learn():
    pool = WeightedLayerPool(4)
    nn.init.normal_(pool.weights)
    assert gap(pool(torch.ones(4, 3)), torch.ones(3)) <= 1e-12
    pool(torch.randn(4, 3)).square().sum().backward()
    assert (pool.weights.grad != 0).all()


def test_cross_attention_looks_at_the_source_without_its_padding():
    model = little()
    capture = AttentionCapture(model)
    capture.run(SOURCE, TARGET)
    weights = capture.weights["cross"][1]
    real = (SOURCE != PAD)[:, None, None, :].expand(3, 2, 4, 5)
    assert weights.shape == (3, 2, 4, 5)
    assert torch.equal(weights > 0, real)
    assert gap(weights.sum(-1), torch.ones(3, 2, 4)) <= 1e-12


# Variants from outside, without a change in the model.


def runs_and_differs(change, **changes) -> Transformer:
    """The changed model computes, learns, and is another one than before."""
    model = little(**changes)
    before = model(SOURCE, TARGET)
    change(model)
    logits = model.train()(SOURCE, TARGET, TARGET != PAD)
    assert logits.isfinite().all()
    assert gap(model(SOURCE, TARGET), before) > 1e-3
    logits.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert all((parameter.grad != 0).any() for name, parameter in model.named_parameters() if "weight" in name)
    return model


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
def test_a_part_may_be_replaced_from_outside(change):
    model = runs_and_differs(change).eval()
    assert size(model) == size(little()) - (4 * 2 * 8 * 8 if change is share_projections else 0)
    assert gap(step_by_step(model, SOURCE, TARGET, [1, 3]), model(SOURCE, TARGET)) <= 1e-12


def test_a_part_that_does_the_same_changes_nothing():
    """The control: another kernel of the same function, and a radius as wide as the sentence."""

    def explicitly(model: Transformer) -> None:
        for module in model.modules():
            if hasattr(module, "kernel"):
                module.kernel = explicit_attention

    for change in (explicitly, lambda model: restricted(model, 5)):
        model = little()
        before = model(SOURCE, TARGET)
        change(model)
        assert gap(model(SOURCE, TARGET), before) <= 1e-12


def test_without_residuals_a_deep_stack_forgets_its_words():
    def spread(change) -> Tensor:
        """How much the outputs for different words still differ, after 12 layers."""
        model = little(encoder_layers=12, decoder_layers=0)
        change(model)
        return torch.pdist(model.start(torch.arange(1, 9)[None]).memory).mean()

    assert spread(without_residuals) < 0.1 * spread(lambda model: None)
