"""Attention: the kernels, the masks, and many heads as one. Shapes as in dragoman.model.attention."""

import copy
import itertools
import math
import re

import pytest
import torch
import torch.nn.functional as F
from conftest import gap
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.errors import UsageError
from dragoman.model.attention import (
    Additive,
    KeyValues,
    MultiHeadAttention,
    causal_mask,
    decoder_mask,
    explicit_attention,
    fused_attention,
    masked_softmax,
    padding_mask,
    unscaled_attention,
)
from dragoman.model.packing import Packing
from dragoman.model.positions import POSITIONS
from dragoman.model.transformer import Transformer

KERNELS = ["fused", "explicit", "unscaled", "additive"]


pytestmark = pytest.mark.usefixtures("seeded_double_precision")


def kernel_of(name: str, heads: int = 2, d_k: int = 4):
    return {"fused": fused_attention, "explicit": explicit_attention, "unscaled": unscaled_attention}.get(
        name
    ) or Additive(heads, d_k)


def random_inputs(queries: int = 3, keys: int = 5, d_k: int = 4, d_v: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    shapes = (2, 2, queries, d_k), (2, 2, keys, d_k), (2, 2, keys, d_v)
    query, key, value = (torch.randn(shape, requires_grad=True) for shape in shapes)
    return query, key, value


def weights_of(kernel, query: Tensor, key: Tensor, mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """A kernel is linear in its values: asked with the identity it answers with its weights."""
    return kernel(query, key, torch.eye(key.size(-2)).expand(*key.shape[:-2], -1, -1), mask, dropout)


def attending_to(weights: list[float]) -> tuple[Tensor, Tensor]:
    """A query (1, K) and keys (K, K) whose scaled dot products have this softmax."""
    size = len(weights)
    return torch.tensor([weights]).log() * math.sqrt(size), torch.eye(size)


# The layer, as the packed model calls it, and the same written head by head.


def attend(layer: MultiHeadAttention, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """x (B, T, M) asks memory (B, S, M), or itself -> (B, T, M)."""
    memory = x if memory is None else memory
    asking, asked = Packing.full(x[..., 0]), Packing.full(memory[..., 0])
    return asking.unpack(layer(asking.pack(x), asking, layer.project(asked.pack(memory), asked), mask))


class AttentionHead(nn.Module):
    """One head with its own three matrices, as note 001 draws it."""

    def __init__(self, d_model: int, d_k: int, d_v: int, bias: bool):
        super().__init__()
        self.query, self.key = nn.Linear(d_model, d_k, bias), nn.Linear(d_model, d_k, bias)
        self.value = nn.Linear(d_model, d_v, bias)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        query, key, value = self.query(x), self.key(memory), self.value(memory)
        scores = query @ key.mT / math.sqrt(key.size(-1))
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        return scores.softmax(-1) @ value


class HeadByHead(nn.Module):
    """The same as MultiHeadAttention, one object per head."""

    def __init__(self, d_model: int, config: AttentionConfig):
        super().__init__()
        d_k, d_v = config.head_sizes(d_model)
        self.heads = nn.ModuleList(AttentionHead(d_model, d_k, d_v, config.bias) for _ in range(config.heads))
        self.out = nn.Linear(config.heads * d_v, d_model, config.bias)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        return self.out(torch.cat([head(x, memory, mask) for head in self.heads], -1))


def split_into_heads(tensors: dict[str, Tensor], heads: int) -> dict[str, Tensor]:
    """Weights or gradients of the fused layer -> of the heads."""
    found = {name: tensor for name, tensor in tensors.items() if name.startswith("out")}
    for name, tensor in tensors.items():
        if not name.startswith("out"):
            found |= {f"heads.{head}.{name}": part for head, part in enumerate(tensor.chunk(heads))}
    return found


def join_heads(tensors: dict[str, Tensor], heads: int) -> dict[str, Tensor]:
    """And back."""
    found = {name: tensor for name, tensor in tensors.items() if name.startswith("out")}
    for name in (name.removeprefix("heads.0.") for name in tensors if name.startswith("heads.0.")):
        found[name] = torch.cat([tensors[f"heads.{head}.{name}"] for head in range(heads)])
    return found


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in module.named_parameters()}


FREE_SIZES = AttentionConfig(heads=3, d_k=5, d_v=2, bias=True)  # 3 * 5 and 3 * 2, where d_model is 8
EQUAL_SIZES = AttentionConfig(heads=4)


def layer_and_heads(config: AttentionConfig) -> tuple[MultiHeadAttention, HeadByHead]:
    layer, heads = MultiHeadAttention(8, config), HeadByHead(8, config)
    heads.load_state_dict(split_into_heads(layer.state_dict(), config.heads))
    return layer, heads


# Three ways to write one kernel.


@settings(max_examples=30)
@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(1, 5),
    st.floats(0, 1),
    st.integers(0, 99),
)
def test_fused_equals_explicit_for_any_shape_and_mask(batch, queries, keys, d_k, d_v, share_masked, seed):
    torch.manual_seed(seed)
    query, key, value = (torch.randn(batch, 2, *size) for size in [(queries, d_k), (keys, d_k), (keys, d_v)])
    mask = torch.rand(batch, 1, queries, keys) >= share_masked
    assert gap(fused_attention(query, key, value, mask), explicit_attention(query, key, value, mask)) <= 1e-12


def test_fused_and_explicit_have_the_same_gradients():
    inputs = random_inputs()
    mask = causal_mask(3, 5)
    toward = torch.randn(2, 2, 3, 6)
    ours = torch.autograd.grad(fused_attention(*inputs, mask), inputs, toward)
    plain = torch.autograd.grad(explicit_attention(*inputs, mask), inputs, toward)
    unmasked = torch.autograd.grad(explicit_attention(*inputs), inputs, toward)
    assert all(gap(a, b) <= 1e-12 for a, b in zip(ours, plain, strict=True))
    assert all(gap(a, b) > 1e-3 for a, b in zip(ours, unmasked, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["none", "bool", "float"])
def test_fused_in_half_the_bits_is_close(dtype, kind):
    """On a CPU these take a way of their own."""
    inputs = random_inputs(queries=9, keys=9)
    masks = {"none": None, "bool": causal_mask(9), "float": torch.randn(9, 9).masked_fill(~causal_mask(9), -math.inf)}
    mask, toward = masks[kind], torch.randn(2, 2, 9, 6)
    exact = fused_attention(*inputs, mask)
    halves = [x.detach().to(dtype).requires_grad_() for x in inputs]
    rounded = fused_attention(*halves, mask if kind != "float" else mask.to(dtype))
    assert rounded.dtype == dtype
    assert gap(rounded.double(), exact) < 0.05
    assert gap(rounded.double(), exact) > 1e-6
    assert gap(rounded.double(), fused_attention(*inputs, causal_mask(9).mT)) > 0.5
    ours, theirs = (
        torch.autograd.grad(out, given, toward.to(out.dtype)) for out, given in ((rounded, halves), (exact, inputs))
    )
    assert all(gap(a.double(), b) < 0.05 * float(b.abs().max()) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_query_that_may_attend_nowhere_gets_zeros_in_half_the_bits(dtype):
    mask = causal_mask(9).clone()
    mask[4] = False
    out = fused_attention(*(x.to(dtype) for x in random_inputs(queries=9, keys=9)), mask)
    assert not out[:, :, 4].any()
    assert out[:, :, 3].any()
    assert out.isfinite().all()


@pytest.mark.parametrize("kernel", [fused_attention, explicit_attention])
def test_dot_product_equals_equation_1_written_by_hand(kernel):
    query, key, value = random_inputs()
    by_hand = (query @ key.mT / math.sqrt(4)).exp()
    by_hand = by_hand / by_hand.sum(-1, keepdim=True) @ value
    unscaled = (query @ key.mT).softmax(-1) @ value
    assert gap(kernel(query, key, value), by_hand) <= 1e-12
    assert gap(kernel(query, key, value), unscaled) > 1e-3


@pytest.mark.parametrize("kernel", [fused_attention, explicit_attention])
def test_dot_product_equals_the_one_of_pytorch(kernel):
    query, key, value = random_inputs()
    mask = torch.rand(2, 1, 3, 5) > 0.4
    theirs = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert gap(kernel(query, key, value, mask), theirs) <= 1e-12
    assert gap(kernel(query, key, value, ~mask), theirs) > 1e-3


def additive_by_definition(query: Tensor, key: Tensor, value: Tensor, w: Tensor, activation=math.tanh) -> Tensor:
    out = torch.zeros(*query.shape[:-1], value.size(-1))
    for b, h, t in itertools.product(*map(range, query.shape[:-1])):
        scores = [
            sum(float(w[h, 0, 0, i]) * activation(float(query[b, h, t, i] + key[b, h, s, i])) for i in range(4))
            for s in range(key.size(-2))
        ]
        total = sum(math.exp(score) for score in scores)
        for s, score in enumerate(scores):
            out[b, h, t] += math.exp(score) / total * value[b, h, s]
    return out


def test_unscaled_is_equation_1_without_its_root():
    query, key, value = (torch.randn(2, 5, 16) for _ in range(3))
    for allowed in (None, causal_mask(5)):
        expected = masked_softmax(query @ key.mT, allowed) @ value
        assert gap(unscaled_attention(query, key, value, allowed), expected) < 1e-12
        assert gap(fused_attention(query, key, value, allowed), expected) > 0.01  # the control


def test_a_score_is_chosen_by_its_name():
    kernels = [MultiHeadAttention(8, AttentionConfig(heads=2, score=score)).kernel for score in ("dot", "unscaled")]
    assert kernels == [fused_attention, unscaled_attention]


def test_a_kernel_is_a_plain_callable_that_belongs_to_its_layer():
    layer = MultiHeadAttention(8, AttentionConfig(heads=2, score="additive"))
    again = copy.deepcopy(layer)
    assert not isinstance(layer.kernel, torch.nn.Module)
    inputs = [torch.randn(1, 2, 3, 4) for _ in range(3)]
    with torch.no_grad():
        again.score.weight.zero_()
    assert not torch.equal(layer.kernel(*inputs), again.kernel(*inputs))
    assert torch.equal(layer.kernel(*inputs), layer.score(*inputs))


def test_additive_equals_a_triple_loop():
    query, key, value = (x.detach() for x in random_inputs())
    kernel = Additive(2, 4).requires_grad_(False)
    assert gap(kernel(query, key, value), additive_by_definition(query, key, value, kernel.weight)) <= 1e-12
    linear = additive_by_definition(query, key, value, kernel.weight, activation=lambda x: x)
    assert gap(kernel(query, key, value), linear) > 1e-3


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_is_linear_in_its_values(name):
    kernel = kernel_of(name)
    query, key, value = random_inputs()
    other = torch.randn_like(value)
    both = kernel(query, key, 2 * value + other)
    assert gap(both, 2 * kernel(query, key, value) + kernel(query, key, other)) <= 1e-12
    assert gap(both, 2 * kernel(query, 2 * key, value) + kernel(query, key, other)) > 1e-3


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_has_the_derivative_of_what_it_computes(name):
    kernel = kernel_of(name)
    mask = torch.tensor([[True, True, False], [True, False, True]])
    inputs = tuple(torch.randn(shape, requires_grad=True) for shape in [(1, 2, 2, 4), (1, 2, 3, 4), (1, 2, 3, 2)])
    assert torch.autograd.gradcheck(lambda *qkv: kernel(*qkv, mask), inputs)
    with pytest.raises(GradcheckError):
        torch.autograd.gradcheck(lambda q, k, v: kernel(q, k.detach(), v, mask), inputs)


@pytest.mark.parametrize("kernel", [fused_attention, explicit_attention])
def test_leading_dimensions_broadcast(kernel):
    query, key, value = torch.randn(1, 3, 4), torch.randn(5, 6, 4), torch.randn(5, 6, 2)
    together = kernel(query, key, value)
    assert gap(together[4], kernel(query[0], key[4], value[4])) <= 1e-12
    assert gap(together[3], together[4]) > 1e-3


# Masks.


@pytest.mark.parametrize("name", KERNELS)
def test_weights_sum_to_1(name):
    query, key, _ = random_inputs()
    mask = torch.tensor([[True, False, True, True, False]])
    weights = weights_of(kernel_of(name), query, key, mask)
    assert gap(weights.sum(-1), torch.ones(2, 2, 3)) <= 1e-12
    masked_too_late = weights_of(kernel_of(name), query, key) * mask
    assert gap(masked_too_late.sum(-1), torch.ones(2, 2, 3)) > 1e-3


@pytest.mark.parametrize("name", KERNELS)
def test_weights_are_zero_exactly_where_the_mask_is_false(name):
    query, key, _ = random_inputs()
    mask = (torch.rand(2, 1, 3, 5) > 0.5) | torch.eye(3, 5, dtype=torch.bool)
    weights = weights_of(kernel_of(name), query, key, mask)
    assert torch.equal(weights != 0, mask.expand_as(weights))
    assert (weights_of(kernel_of(name), query, key) != 0).all()


@pytest.mark.parametrize("name", KERNELS)
def test_values_under_the_mask_do_not_matter(name):
    kernel = kernel_of(name)
    query, key, value = random_inputs()
    mask = torch.tensor([[True, True, True, False, True]])
    poisoned = value.clone()
    poisoned[..., 3, :] = 1e6
    assert torch.equal(kernel(query, key, value, mask), kernel(query, key, poisoned, mask))
    assert not torch.equal(kernel(query, key, value, None), kernel(query, key, poisoned, None))


@pytest.mark.parametrize("name", KERNELS)
def test_true_means_may_attend_and_minus_infinity_means_may_not(name):
    kernel = kernel_of(name)
    inputs = random_inputs()
    may_attend = causal_mask(3, 5)
    added = torch.zeros(3, 5).masked_fill(~may_attend, -math.inf)
    assert gap(kernel(*inputs, may_attend), kernel(*inputs, added)) <= 1e-12
    assert gap(kernel(*inputs, ~may_attend), kernel(*inputs, added)) > 1e-3


@pytest.mark.parametrize("name", KERNELS)
def test_a_float_mask_is_added_to_the_scores(name):
    kernel = kernel_of(name)
    query, key, _ = random_inputs()
    bias = torch.randn(2, 3, 5)
    plain = weights_of(kernel, query, key)
    expected = plain * bias.exp() / (plain * bias.exp()).sum(-1, keepdim=True)
    assert gap(weights_of(kernel, query, key, bias), expected) <= 1e-12
    assert gap(plain, expected) > 1e-3


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_query_that_may_attend_nowhere_gets_zeros(name, kind, dtype):
    kernel = kernel_of(name).to(dtype) if name == "additive" else kernel_of(name)
    inputs = [x.detach().to(dtype).requires_grad_() for x in random_inputs()]
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    given = mask if kind == "bool" else torch.zeros(3, 5, dtype=dtype).masked_fill(~mask, -math.inf)
    out = kernel(*inputs, given)
    out.square().sum().backward()
    assert (out[:, :, 1] == 0).all()
    assert (out[:, :, [0, 2]] != 0).all()
    assert all(x.grad.isfinite().all() for x in inputs)
    assert (inputs[0].grad[:, :, 1] == 0).all()


def test_a_plain_softmax_over_nothing_is_not_a_number():
    scores = torch.zeros(1, 3, requires_grad=True)
    weights = (scores - math.inf).softmax(-1)
    weights.sum().backward()
    assert weights.isnan().all()
    assert scores.grad.isnan().all()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 1), (3, 5), (2, 3, 5), (2, 1, 1, 5)])
def test_a_mask_broadcasts_to_the_scores(name, shape):
    query, key, _ = random_inputs()
    kernel, mask = kernel_of(name), torch.rand(shape) > 0.3
    whole = mask.expand(2, 2, 3, 5).clone()
    assert gap(weights_of(kernel, query, key, mask), weights_of(kernel, query, key, whole)) <= 1e-12
    assert gap(weights_of(kernel, query, key, ~mask), weights_of(kernel, query, key, whole)) > 1e-3


def test_decoder_mask_is_padding_and_future_together():
    mask = decoder_mask(torch.tensor([[1, 2, 3, 4, 0, 0, 0, 0]]), pad=0)
    rows = ["".join(str(int(cell)) for cell in row) for row in mask[0, 0]]
    assert mask.shape == (1, 1, 8, 8)
    assert rows == ["10000000", "11000000", "11100000"] + 5 * ["11110000"]
    assert not torch.equal(mask[0, 0], causal_mask(8))


def test_causal_mask_hides_what_comes_later():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_with_more_keys_than_queries_the_queries_are_the_last_ones():
    assert causal_mask(2, 5).int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    aligned_at_the_first = torch.ones(2, 5, dtype=torch.bool).tril()
    assert not torch.equal(causal_mask(2, 5), aligned_at_the_first)


@given(st.integers(0, 6), st.integers(1, 6))
def test_causal_mask_of_a_later_step_is_the_end_of_the_whole(before, new):
    whole = causal_mask(before + new)
    assert torch.equal(causal_mask(new, before + new), whole[before:])
    if before:
        assert not torch.equal(causal_mask(new, before + new), whole[:new])


def test_padding_mask_serves_any_number_of_queries():
    mask = padding_mask(torch.tensor([[5, 6, 0], [7, 0, 0]]), pad=0)
    weights = weights_of(explicit_attention, torch.randn(2, 4, 7, 3), torch.randn(2, 4, 3, 3), mask)
    assert mask.shape == (2, 1, 1, 3)
    assert weights.shape == (2, 4, 7, 3)
    assert (weights[0, ..., 2] == 0).all()
    assert (weights[1, ..., 1:] == 0).all()
    assert (weights[0, ..., :2] > 0).all()


def test_padding_is_whatever_id_the_caller_names():
    ids = torch.tensor([[0, 9, 3]])
    assert padding_mask(ids, pad=9).flatten().tolist() == [True, False, True]
    assert padding_mask(ids, pad=0).flatten().tolist() == [False, True, True]


def test_masking_keys_alone_is_enough_when_the_loss_leaves_padding_out():
    query, key, value = random_inputs(4, 4)
    real = torch.tensor([True, True, True, False])
    columns, rows_and_columns = real[None, :], real[None, :] & real[:, None]
    outputs = [explicit_attention(query, key, value, mask) for mask in (columns, rows_and_columns)]
    gradient = [
        torch.autograd.grad(out[..., real, :].square().sum(), (query, key, value), retain_graph=True) for out in outputs
    ]
    assert torch.equal(outputs[0][..., real, :], outputs[1][..., real, :])
    assert all(gap(a, b) <= 1e-12 for a, b in zip(*gradient, strict=True))
    careless = torch.autograd.grad(outputs[0].square().sum(), (query, key, value))
    assert all(gap(a, b) > 1e-3 for a, b in zip(careless, gradient[0], strict=True))


# What is refused, and how it is said.


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    ("query", "key", "value", "mask", "named"),
    [
        ((2, 2, 3, 4), (2, 2, 5, 6), (2, 2, 5, 4), None, [(2, 2, 3, 4), (2, 2, 5, 6)]),
        ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 6, 4), None, [(2, 2, 5, 4), (2, 2, 6, 4)]),
        ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), (3, 4), [(3, 4), (2, 2, 3, 5)]),
        ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), (1, 2, 2, 3, 5), [(1, 2, 2, 3, 5), (2, 2, 3, 5)]),
        ((2, 2, 3, 4), (3, 2, 5, 4), (3, 2, 5, 4), None, [(2, 2, 3, 4), (3, 2, 5, 4)]),
        ((2, 2, 3, 4), (2, 2, 5, 4), (3, 2, 5, 4), None, [(2, 2, 5, 4), (3, 2, 5, 4)]),
    ],
    ids=["d_k", "number of values", "mask", "dimensions of mask", "batch of keys", "batch of values"],
)
def test_shapes_that_do_not_fit_are_both_named(name, query, key, value, mask, named):
    given = torch.ones(mask, dtype=torch.bool) if mask else None
    both = "".join(f"(?=.*{re.escape(str(shape))})" for shape in named)
    with pytest.raises(ValueError, match=both):
        kernel_of(name)(torch.randn(query), torch.randn(key), torch.randn(value), given)


@pytest.mark.parametrize("name", KERNELS)
def test_shapes_that_fit_are_not_refused(name):
    mask = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    out = kernel_of(name)(torch.randn(2, 2, 3, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 7), mask)
    assert out.shape == (2, 2, 3, 7)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_a_mask_of_integers_means_what_the_mask_of_truths_means(name, dtype):
    kernel, inputs = kernel_of(name), random_inputs()
    allowed = torch.ones(3, 5, dtype=torch.bool).tril(1)
    assert torch.equal(kernel(*inputs, allowed.to(dtype)), kernel(*inputs, allowed))
    assert gap(kernel(*inputs, 1 - allowed.to(dtype)), kernel(*inputs, allowed)) > 1e-3


# Numbers worked out in the notes.


@pytest.mark.parametrize("kernel", [fused_attention, explicit_attention])
@pytest.mark.parametrize("weights", [[0.2, 0.8], [0.2, 0.1, 0.7], [0.2, 0.1, 0.4, 0.3], [0.1, 0.9]])
def test_the_output_is_the_sum_of_the_values_by_weight(kernel, weights):
    query, key = attending_to(weights)
    value = torch.randn(len(weights), 5)
    expected = sum(weight * row for weight, row in zip(weights, value, strict=True))
    assert gap(kernel(query, key, value)[0], expected) <= 1e-12
    assert gap(kernel(query, key, value)[0], sum(w * row for w, row in zip(weights[::-1], value, strict=True))) > 1e-3


@pytest.mark.parametrize("name", KERNELS)
def test_one_query_gets_its_row_of_the_matrix_form(name):
    kernel = kernel_of(name)
    query, key, value = random_inputs()
    together = kernel(query, key, value)
    assert gap(kernel(query[..., 1:2, :], key, value), together[..., 1:2, :]) <= 1e-12
    assert gap(kernel(query[..., 1:2, :], key, value), together[..., 2:3, :]) > 1e-3


# The softmax, and why its scores are scaled.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softmax_is_stable_for_huge_scores(dtype):
    scores = torch.tensor([[1e4, 0.0, -1e4], [1e4, 1e4, -1e4]], dtype=dtype)
    assert masked_softmax(scores, None).tolist() == [[1, 0, 0], [0.5, 0.5, 0]]
    assert (scores.exp() / scores.exp().sum(-1, keepdim=True)).isnan().any()


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_is_stable_for_huge_inputs(name):
    query, key, value = random_inputs()
    out = kernel_of(name)(100 * query, 100 * key, value)
    out.sum().backward()
    assert out.isfinite().all()
    assert all(x.grad.isfinite().all() for x in (query, key, value))


@given(st.floats(-1e3, 1e3))
def test_adding_a_constant_to_all_scores_changes_nothing(constant):
    torch.manual_seed(0)
    scores, mask = torch.randn(3, 5), causal_mask(3, 5)
    assert gap(masked_softmax(scores + constant, mask), masked_softmax(scores, mask)) <= 1e-12
    uneven = torch.arange(5.0)
    assert gap(masked_softmax(scores + uneven, mask), masked_softmax(scores, mask)) > 1e-3


def peak_and_slope(scale: float) -> tuple[float, float]:
    """Of random queries with d_k = 100 and 3 keys: how many look at one key only; the mean size of the Jacobian."""
    query, key = torch.randn(4000, 1, 100), torch.randn(4000, 3, 100)
    weights = weights_of(explicit_attention, scale * query, key)[:, 0]
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    return float((weights.amax(-1) > 0.99).double().mean()), float(jacobian.square().sum((1, 2)).sqrt().mean())


def test_unscaled_scores_saturate_and_scaled_ones_do_not():
    raw_peak, raw_slope = peak_and_slope(scale=10)
    peak, slope = peak_and_slope(scale=1)
    assert raw_peak > 0.5
    assert raw_slope < 0.15
    assert peak < 0.01
    assert slope > 0.35


def test_the_slope_of_the_softmax_is_diag_p_minus_p_p():
    scores = torch.randn(4)
    p = masked_softmax(scores, None)
    jacobian = torch.autograd.functional.jacobian(lambda z: masked_softmax(z, None), scores)
    by_differences = torch.stack(
        [
            (masked_softmax(scores + 1e-6 * e, None) - masked_softmax(scores - 1e-6 * e, None)) / 2e-6
            for e in torch.eye(4)
        ]
    )
    assert gap(jacobian, torch.diag(p) - torch.outer(p, p)) <= 1e-12
    assert gap(jacobian, by_differences) <= 1e-8
    assert gap(jacobian, torch.diag(p)) > 1e-3


# Dropout on the weights.


@pytest.mark.parametrize("name", KERNELS)
def test_dropout_removes_weights_and_doubles_the_rest(name):
    query, key, _ = random_inputs(30, 30)
    kernel = kernel_of(name)
    whole, thinned = weights_of(kernel, query, key), weights_of(kernel, query, key, dropout=0.5)
    kept = thinned != 0
    assert 0.4 < kept.double().mean() < 0.6
    assert gap(thinned[kept], 2 * whole[kept]) <= 1e-12


def layer_with_dropout(rate: float, score: str) -> MultiHeadAttention:
    return MultiHeadAttention(8, AttentionConfig(heads=2, dropout=rate, score=score))


@pytest.mark.parametrize("score", ["dot", "additive"])
def test_attention_dropout_acts_in_training_alone(score):
    x, layer, without = torch.randn(2, 6, 8), layer_with_dropout(0.5, score), layer_with_dropout(0.0, score)
    assert gap(attend(layer.train(), x), attend(layer, x)) > 1e-3
    assert torch.equal(attend(layer.eval(), x), attend(layer, x))
    assert torch.equal(attend(without.train(), x), attend(without.eval(), x))


# Many heads.


@pytest.mark.parametrize("config", [FREE_SIZES, EQUAL_SIZES], ids=["free sizes", "equal sizes"])
@pytest.mark.parametrize("kernel", [fused_attention, explicit_attention])
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
def test_fused_heads_equal_a_loop_over_heads(config, kernel, cross):
    layer, by_head = layer_and_heads(config)
    layer.kernel = kernel
    x, memory = torch.randn(2, 5, 8, requires_grad=True), torch.randn(2, 7, 8, requires_grad=True)
    asked = memory if cross else x
    mask = torch.rand(2, 5, asked.size(1)) > 0.3
    mask[..., 0] = True
    ours, plain = attend(layer, x, asked, mask[:, None]), by_head(x, asked, mask)
    toward = torch.randn_like(ours)
    of_inputs = [torch.autograd.grad(y, {x, asked}, toward, retain_graph=True) for y in (ours, plain)]
    ours.backward(toward)
    plain.backward(toward)
    ours_by_head, plain_by_head = split_into_heads(gradients(layer), config.heads), gradients(by_head)
    assert gap(ours, plain) <= 1e-12
    assert all(gap(a, b) <= 1e-12 for a, b in zip(*of_inputs, strict=True))
    assert ours_by_head.keys() == plain_by_head.keys()
    assert all(gap(ours_by_head[name], plain_by_head[name]) <= 1e-12 for name in ours_by_head)


def test_heads_split_in_the_wrong_order_give_another_result():
    layer, by_head = layer_and_heads(FREE_SIZES)
    x = torch.randn(2, 5, 8)
    interleaved = {
        f"heads.{head}.{name}": tensor[head::3]
        for name, tensor in layer.state_dict().items()
        if not name.startswith("out")
        for head in range(3)
    }
    by_head.load_state_dict(interleaved, strict=False)
    assert gap(attend(layer, x), by_head(x, x, None)) > 1e-3


def test_heads_come_back_from_the_converter_unchanged():
    layer, by_head = layer_and_heads(FREE_SIZES)
    again = MultiHeadAttention(8, FREE_SIZES)
    x = torch.randn(2, 5, 8)
    assert gap(attend(again, x), attend(layer, x)) > 1e-3
    again.load_state_dict(join_heads(by_head.state_dict(), 3))
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), layer.parameters(), strict=True))
    assert torch.equal(attend(again, x), attend(layer, x))


def test_the_paper_has_a_million_weights_per_attention():
    assert sum(p.numel() for p in MultiHeadAttention(512, AttentionConfig()).parameters()) == 1_048_576
    assert sum(p.numel() for p in MultiHeadAttention(512, AttentionConfig(bias=True)).parameters()) == 1_050_624


def test_eight_heads_share_512_as_64_each():
    layer = MultiHeadAttention(512, AttentionConfig(heads=8))
    assert AttentionConfig(heads=8).head_sizes(512) == (64, 64)
    assert layer.query.weight.chunk(8)[0].T.shape == (512, 64)


def test_eight_heads_of_32_run_at_d_model_512():
    layer = MultiHeadAttention(512, AttentionConfig(heads=8, d_k=32, d_v=32))
    assert attend(layer, torch.randn(1, 3, 512)).shape == (1, 3, 512)
    assert layer.out.weight.shape == (512, 256)


def test_heads_that_do_not_divide_d_model_are_refused():
    with pytest.raises(UsageError, match=r"10.*4 heads"):
        MultiHeadAttention(10, AttentionConfig(heads=4))
    with pytest.raises(UsageError, match=r"10.*4 heads"):
        TransformerConfig(d_model=10, attention=AttentionConfig(heads=4, d_k=3))


def test_heads_that_do_not_divide_d_model_are_welcome_when_their_sizes_are_given():
    layer = MultiHeadAttention(10, AttentionConfig(heads=4, d_k=3, d_v=2))
    assert attend(layer, torch.randn(1, 3, 10)).shape == (1, 3, 10)


def test_keys_and_values_of_two_steps_equal_those_of_one():
    layer = MultiHeadAttention(8, EQUAL_SIZES)
    x = torch.randn(2, 5, 8)

    def projected(part: Tensor) -> KeyValues:
        return layer.project(part.flatten(0, 1), Packing.full(part[..., 0]))

    whole, joined, wrong = projected(x), projected(x[:, :2]), projected(x[:, 2:])
    joined.extend(projected(x[:, 2:]))
    wrong.extend(projected(x[:, :2]))
    assert gap(joined.key, whole.key) <= 1e-12
    assert gap(joined.value, whole.value) <= 1e-12
    assert gap(wrong.key, whole.key) > 1e-3


def pieces(key: Tensor, value: Tensor, sizes: list[int]) -> list[KeyValues]:
    return [KeyValues(*pair) for pair in zip(key.split(sizes, 2), value.split(sizes, 2), strict=True)]


@given(st.lists(st.integers(1, 3), min_size=1, max_size=30), st.booleans())
def test_keys_and_values_of_many_steps_stand_in_their_order(sizes: list[int], learning: bool):
    key, value = torch.randn(2, 1, sum(sizes), 3), torch.randn(2, 1, sum(sizes), 4)
    kept, *others = pieces(key.requires_grad_(learning), value, sizes)
    for new in others:
        kept.extend(new)
    assert torch.equal(kept.key, key)
    assert torch.equal(kept.value, value)
    assert not torch.equal(kept.key.flip(2), key) or sum(sizes) == 1


choices = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=40)


@given(choices, st.booleans())
def test_hypotheses_that_are_chosen_and_go_on_keep_their_own_keys(turns: list[list[int]], learning: bool):
    """Any rows, more or fewer of them, some several times, one token after each choice."""
    kept = KeyValues(torch.randn(3, 2, 2, 4).requires_grad_(learning), torch.randn(3, 2, 2, 5))
    key, value = kept.key.clone(), kept.value.clone()
    for numbers in turns:
        rows = torch.tensor(numbers) % len(key)
        kept.select(rows)
        new = torch.randn(len(rows), 2, 1, 4), torch.randn(len(rows), 2, 1, 5)
        kept.extend(KeyValues(*new))
        key, value = (torch.cat(pair, 2) for pair in ((key[rows], new[0]), (value[rows], new[1])))
    assert torch.equal(kept.key, key)
    assert torch.equal(kept.value, value)


def test_rows_in_another_order_are_other_keys():
    """The control for the test above."""
    key = torch.randn(3, 2, 4, 5)
    kept = KeyValues(key, key)
    kept.select(torch.tensor([2, 0, 1]))
    assert not torch.equal(kept.key, key)


def test_rows_that_share_keys_get_what_they_would_get_from_copies():
    layer = MultiHeadAttention(8, EQUAL_SIZES)
    memory, x, mask = torch.randn(2, 5, 8), torch.randn(6, 3, 8), torch.rand(2, 1, 1, 5) > 0.3
    asked, asking, rows = Packing.full(memory[..., 0]), Packing.full(x[..., 0]), torch.arange(2).repeat_interleave(3)
    shared = layer.project(asked.pack(memory), asked)
    copies = KeyValues(shared.key[rows], shared.value[rows])
    found, expected = (
        layer(asking.pack(x), asking, kept, allowed) for kept, allowed in ((shared, mask), (copies, mask[rows]))
    )
    assert gap(found, expected) <= 1e-12
    others = layer(asking.pack(x), asking, KeyValues(shared.key[rows.flip(0)], shared.value[rows.flip(0)]), mask[rows])
    assert gap(found, others) > 1e-3


# Order.


@pytest.mark.parametrize("score", ["dot", "additive"])
def test_attention_without_positions_does_not_know_order(score):
    layer = MultiHeadAttention(8, AttentionConfig(heads=2, score=score))
    x, order = torch.randn(2, 6, 8), torch.tensor([3, 0, 5, 1, 4, 2])
    assert gap(attend(layer, x[:, order]), attend(layer, x)[:, order]) <= 1e-12
    assert gap(attend(layer, x[:, order]), attend(layer, x)) > 1e-3


def shuffled_and_not(positions: str) -> float:
    """How much the encoder's output depends on order, beyond being shuffled itself."""
    config = TransformerConfig(
        d_model=8,
        encoder_layers=2,
        decoder_layers=0,
        attention=AttentionConfig(heads=2),
        feed_forward=FeedForwardConfig(d_ff=16),
        positions=positions,
        max_length=16,
    )
    model = Transformer(config, vocabulary=9).eval()
    for table in model.encoder_positions.parameters():
        nn.init.normal_(table)
    source, order = torch.tensor([[3, 4, 5, 6, 7, 8]]), torch.tensor([3, 0, 5, 1, 4, 2])
    return gap(model.start(source[:, order]).memory, model.start(source).memory[order])


def test_an_encoder_without_positions_does_not_know_order():
    assert shuffled_and_not("none") <= 1e-12


@pytest.mark.parametrize("positions", [name for name in POSITIONS if name != "none"])
def test_an_encoder_with_positions_knows_order(positions):
    assert shuffled_and_not(positions) > 1e-3
