"""Attention: the kernels, the masks, and many heads as one. Shapes as in dragoman.model.attention."""

import copy
import itertools
import math
import re

import pytest
import torch
from conftest import gap
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from dragoman.config import AttentionConfig, TransformerConfig
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
from dragoman_lab.head_by_head import alternating_rows, put_together, take_apart

EITHER = pytest.mark.parametrize("kernel", [fused_attention, explicit_attention])

pytestmark = pytest.mark.usefixtures("seeded_double_precision")


@pytest.fixture(params=[fused_attention, explicit_attention, unscaled_attention, "additive"])
def kernel(request: pytest.FixtureRequest, seeded_double_precision: None):
    return {"fused": fused_attention, "explicit": explicit_attention, "unscaled": unscaled_attention}.get(
        request.param
    ) or Additive(2, 4)


def random_inputs(queries: int = 3, keys: int = 5, d_k: int = 4, d_v: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    shapes = (2, 2, queries, d_k), (2, 2, keys, d_k), (2, 2, keys, d_v)
    query, key, value = (torch.randn(shape, requires_grad=True) for shape in shapes)
    return query, key, value


def weights_of(kernel, query: Tensor, key: Tensor, mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """Return the weights: what a kernel, linear in its values, returns for the identity."""
    return kernel(query, key, torch.eye(key.size(-2)).expand(*key.shape[:-2], -1, -1), mask, dropout)


def added(mask: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return a mask of truths as one to be added to the scores."""
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -math.inf)


# What a kernel computes.


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
def test_fused_attention_equals_explicit_for_any_shape_and_mask(batch, queries, keys, d_k, d_v, share_masked, seed):
    torch.manual_seed(seed)
    query, key, value = (torch.randn(batch, 2, *size) for size in [(queries, d_k), (keys, d_k), (keys, d_v)])
    mask = torch.rand(batch, 1, queries, keys) >= share_masked
    assert gap(fused_attention(query, key, value, mask), explicit_attention(query, key, value, mask)) <= 1e-12


@pytest.mark.parametrize(
    ("kernel", "divisor"), [(fused_attention, 2), (explicit_attention, 2), (unscaled_attention, 1)]
)
@pytest.mark.parametrize("mask", [None, causal_mask(3, 5)], ids=["all", "causal"])
def test_dot_products_are_equation_1_with_its_root_or_without(kernel, divisor, mask):
    query, key, value = random_inputs()

    def by_hand(divisor: int) -> Tensor:
        weights = (query @ key.mT / divisor).exp() * (1 if mask is None else mask)
        return weights / weights.sum(-1, keepdim=True) @ value

    assert gap(kernel(query, key, value, mask), by_hand(divisor)) <= 1e-12
    assert gap(kernel(query, key, value, mask), by_hand(3 - divisor)) > 1e-3


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


def test_additive_attention_equals_a_triple_loop():
    query, key, value = (x.detach() for x in random_inputs())
    kernel = Additive(2, 4).requires_grad_(False)
    assert gap(kernel(query, key, value), additive_by_definition(query, key, value, kernel.weight)) <= 1e-12
    linear = additive_by_definition(query, key, value, kernel.weight, activation=lambda x: x)
    assert gap(kernel(query, key, value), linear) > 1e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["none", "bool", "float"])
def test_fused_attention_in_half_precision_is_close(dtype, kind):
    """On a CPU these take a way of their own."""
    inputs = random_inputs(queries=9, keys=9)
    mask = {"none": None, "bool": causal_mask(9), "float": torch.randn(9, 9) + added(causal_mask(9))}[kind]
    exact, toward = fused_attention(*inputs, mask), torch.randn(2, 2, 9, 6)
    halves = [x.detach().to(dtype).requires_grad_() for x in inputs]
    rounded = fused_attention(*halves, mask.to(dtype) if kind == "float" else mask)
    assert rounded.dtype == dtype
    assert 1e-6 < gap(rounded.double(), exact) < 0.05
    assert gap(rounded.double(), fused_attention(*inputs, causal_mask(9).mT)) > 0.5
    ours, theirs = (
        torch.autograd.grad(out, given, toward.to(out.dtype)) for out, given in ((rounded, halves), (exact, inputs))
    )
    assert all(gap(a.double(), b) < 0.05 * float(b.abs().max()) for a, b in zip(ours, theirs, strict=True))


def test_kernels_are_linear_in_their_values(kernel):
    query, key, value = random_inputs()
    other = torch.randn_like(value)
    both = kernel(query, key, 2 * value + other)
    assert gap(both, 2 * kernel(query, key, value) + kernel(query, key, other)) <= 1e-12
    assert gap(both, 2 * kernel(query, 2 * key, value) + kernel(query, key, other)) > 1e-3


def test_kernels_have_the_derivatives_of_what_they_compute(kernel):
    mask = torch.tensor([[True, True, False], [True, False, True]])
    inputs = tuple(torch.randn(shape, requires_grad=True) for shape in [(1, 2, 2, 4), (1, 2, 3, 4), (1, 2, 3, 2)])
    assert torch.autograd.gradcheck(lambda *qkv: kernel(*qkv, mask), inputs)
    with pytest.raises(GradcheckError):
        torch.autograd.gradcheck(lambda q, k, v: kernel(q, k.detach(), v, mask), inputs)


@EITHER
def test_attention_broadcasts_leading_dimensions(kernel):
    query, key, value = torch.randn(1, 3, 4), torch.randn(5, 6, 4), torch.randn(5, 6, 2)
    together = kernel(query, key, value)
    assert gap(together[4], kernel(query[0], key[4], value[4])) <= 1e-12
    assert gap(together[3], together[4]) > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softmax_is_stable_for_huge_scores(dtype):
    scores = torch.tensor([[1e4, 0.0, -1e4], [1e4, 1e4, -1e4]], dtype=dtype)
    assert masked_softmax(scores, None).tolist() == [[1, 0, 0], [0.5, 0.5, 0]]
    assert (scores.exp() / scores.exp().sum(-1, keepdim=True)).isnan().any()


def test_biases_count_beside_a_row_without_keys():
    scores, bias = torch.randn(3, 4), torch.randn(3, 4)
    without = bias.index_fill(0, torch.tensor([1]), -math.inf)
    expected = (scores + bias).softmax(-1).index_fill(0, torch.tensor([1]), 0.0)
    assert gap(masked_softmax(scores, without), expected) < 1e-12
    assert gap(masked_softmax(scores, without > -math.inf), expected) > 0.01  # the control


def test_kernels_are_stable_for_huge_inputs(kernel):
    query, key, value = random_inputs()
    out = kernel(100 * query, 100 * key, value)
    out.sum().backward()
    assert out.isfinite().all()
    assert all(x.grad.isfinite().all() for x in (query, key, value))


def test_attention_dropout_removes_weights_and_doubles_the_others(kernel):
    query, key, _ = random_inputs(30, 30)
    whole, thinned = weights_of(kernel, query, key), weights_of(kernel, query, key, dropout=0.5)
    kept = thinned != 0
    assert 0.4 < kept.double().mean() < 0.6
    assert gap(thinned[kept], 2 * whole[kept]) <= 1e-12


# Masks.


def test_attention_weights_sum_to_1_and_are_zero_where_masked(kernel):
    query, key, _ = random_inputs()
    mask = (torch.rand(2, 1, 3, 5) > 0.5) | torch.eye(3, 5, dtype=torch.bool)
    weights, unmasked = weights_of(kernel, query, key, mask), weights_of(kernel, query, key)
    assert torch.equal(weights != 0, mask.expand_as(weights))
    assert (unmasked != 0).all()
    assert gap(weights.sum(-1), torch.ones(2, 2, 3)) <= 1e-12
    assert gap((unmasked * mask).sum(-1), torch.ones(2, 2, 3)) > 1e-3  # masked too late


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.float64])
def test_mask_of_any_type_means_what_the_mask_of_truths_means(kernel, dtype):
    """All but 0 may be attended to, or all but minus infinity."""
    inputs, allowed = random_inputs(), causal_mask(3, 5)
    given, opposite = (added(m) if dtype.is_floating_point else 2 * m.to(dtype) for m in (allowed, ~allowed))
    assert gap(kernel(*inputs, given), kernel(*inputs, allowed)) <= 1e-12
    assert gap(kernel(*inputs, opposite), kernel(*inputs, allowed)) > 1e-3


def test_float_mask_is_added_to_the_scores(kernel):
    query, key, _ = random_inputs()
    bias = torch.randn(2, 3, 5)
    plain = weights_of(kernel, query, key)
    expected = plain * bias.exp() / (plain * bias.exp()).sum(-1, keepdim=True)
    assert gap(weights_of(kernel, query, key, bias), expected) <= 1e-12
    assert gap(plain, expected) > 1e-3


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_query_that_may_attend_nowhere_gets_zeros(kernel, kind, dtype):
    inputs = [x.detach().to(dtype).requires_grad_() for x in random_inputs()]
    if isinstance(kernel, Additive):
        kernel = kernel.to(dtype)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    out = kernel(*inputs, mask if kind == "bool" else added(mask, dtype))
    out.square().sum().backward()
    assert (out[:, :, 1] == 0).all()
    assert (out[:, :, [0, 2]] != 0).all()
    assert all(x.grad.isfinite().all() for x in inputs)
    assert (inputs[0].grad[:, :, 1] == 0).all()
    assert added(mask)[1].softmax(-1).isnan().all()  # the control: a plain softmax over nothing


@pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 1), (3, 5), (2, 3, 5), (2, 1, 1, 5)])
def test_mask_broadcasts_to_the_scores(kernel, shape):
    query, key, _ = random_inputs()
    mask = torch.rand(shape) > 0.3
    whole = mask.expand(2, 2, 3, 5).clone()
    assert gap(weights_of(kernel, query, key, mask), weights_of(kernel, query, key, whole)) <= 1e-12
    assert gap(weights_of(kernel, query, key, ~mask), weights_of(kernel, query, key, whole)) > 1e-3


def test_decoder_mask_is_padding_and_future_together():
    mask = decoder_mask(torch.tensor([[1, 2, 3, 4, 0, 0, 0, 0]]), pad=0)
    rows = ["".join(str(int(cell)) for cell in row) for row in mask[0, 0]]
    assert mask.shape == (1, 1, 8, 8)
    assert rows == ["10000000", "11000000", "11100000"] + 5 * ["11110000"]
    assert not torch.equal(mask[0, 0], causal_mask(8))


@given(st.integers(0, 6), st.integers(1, 6))
def test_causal_mask_hides_what_comes_later_from_queries_that_are_the_last(before, new):
    whole = causal_mask(before + new)
    assert whole.tolist() == [[key <= query for key in range(before + new)] for query in range(before + new)]
    assert torch.equal(causal_mask(new, before + new), whole[before:])
    if before:
        assert not torch.equal(causal_mask(new, before + new), whole[:new])


def test_padding_mask_hides_the_id_that_the_caller_names():
    ids = torch.tensor([[5, 9, 0], [0, 0, 9]])
    assert padding_mask(ids, pad=0).tolist() == [[[[True, True, False]]], [[[False, False, True]]]]
    assert padding_mask(ids, pad=9).tolist() == [[[[True, False, True]]], [[[True, True, False]]]]


@pytest.mark.parametrize(
    ("query", "key", "value", "mask", "named"),
    [
        ((2, 2, 3, 4), (2, 2, 5, 6), (2, 2, 5, 4), None, [(2, 2, 3, 4), (2, 2, 5, 6)]),
        ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 6, 4), None, [(2, 2, 5, 4), (2, 2, 6, 4)]),
        ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), (3, 4), [(3, 4), (2, 2, 3, 5)]),
        ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), (1, 2, 2, 3, 5), [(1, 2, 2, 3, 5), (2, 2, 3, 5)]),
        ((2, 2, 3, 4), (3, 2, 5, 4), (3, 2, 5, 4), None, [(2, 2, 3, 4), (3, 2, 5, 4)]),
        ((2, 2, 3, 4), (2, 2, 5, 4), (3, 2, 5, 4), None, [(2, 2, 5, 4), (3, 2, 5, 4)]),
        ((3, 3, 4, 8), (3, 4, 5, 8), (3, 4, 5, 8), None, [(3, 3, 4, 8), (3, 4, 5, 8)]),
        ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 7), (2, 1, 1, 5), []),
    ],
    ids=[
        "d_k",
        "number of values",
        "mask",
        "dimensions of mask",
        "batch of keys",
        "batch of values",
        "heads",
        "all fit",
    ],
)
def test_attention_names_both_shapes_that_do_not_fit(kernel, query, key, value, mask, named):
    given = torch.ones(mask, dtype=torch.bool) if mask else None
    inputs = torch.randn(query), torch.randn(key), torch.randn(value), given
    if not named:
        assert kernel(*inputs).shape == (2, 2, 3, 7)
        return
    with pytest.raises(ValueError, match="".join(f"(?=.*{re.escape(str(shape))})" for shape in named)):
        kernel(*inputs)


# Many heads.

FREE_SIZES = AttentionConfig(heads=3, d_k=5, d_v=2, bias=True)  # 3 * 5 and 3 * 2, where d_model is 8
EQUAL_SIZES = AttentionConfig(heads=4)


def attend(layer: MultiHeadAttention, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """Let x (B, T, M) attend to memory (B, S, M), or to itself -> (B, T, M)."""
    memory = x if memory is None else memory
    queries, keys = Packing.full(x[..., 0]), Packing.full(memory[..., 0])
    return queries.unpack(layer(queries.pack(x), queries, layer.project(keys.pack(memory), keys), mask))


@pytest.mark.parametrize("config", [FREE_SIZES, EQUAL_SIZES], ids=["free sizes", "equal sizes"])
@EITHER
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
def test_heads_in_one_product_equal_a_loop_over_heads(config, kernel, cross):
    layer = MultiHeadAttention(8, config)
    layer.kernel = kernel
    x, memory = torch.randn(2, 5, 8, requires_grad=True), torch.randn(2, 7, 8, requires_grad=True)
    seen = memory if cross else x
    mask = torch.rand(2, 5, seen.size(1)) > 0.3
    mask[..., 0] = True
    apart = take_apart(layer)
    ours, plain = attend(layer, x, seen, mask[:, None]), apart(x, seen, mask)
    toward = torch.randn_like(ours)
    assert gap(ours, plain) <= 1e-12
    inputs = [x, seen] if cross else [x]
    of_ours, of_plain = (
        torch.autograd.grad(y, [*inputs, *own.parameters()], toward) for y, own in ((ours, layer), (plain, apart))
    )
    with torch.no_grad():
        for parameter, gradient in zip(apart.parameters(), of_plain[len(inputs) :], strict=True):
            parameter.copy_(gradient)
    of_plain = [*of_plain[: len(inputs)], *put_together(apart).parameters()]
    assert all(gap(a, b) <= 1e-12 for a, b in zip(of_ours, of_plain, strict=True))
    assert gap(ours, take_apart(layer, alternating_rows)(x, seen, mask)) > 1e-3


@pytest.mark.parametrize("config", [FREE_SIZES, EQUAL_SIZES], ids=["free sizes", "equal sizes"])
def test_attention_layer_taken_apart_and_put_together_is_the_same(config):
    layer = MultiHeadAttention(8, config)
    again, wrong = put_together(take_apart(layer)), put_together(take_apart(layer, alternating_rows))
    weights, found, other = (one.state_dict() for one in (layer, again, wrong))
    assert list(found) == list(weights)
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    assert not torch.equal(other["query.weight"], weights["query.weight"])


@pytest.mark.parametrize("score", ["dot", "additive"])
def test_attention_dropout_acts_in_training_alone(score):
    layer, without = (MultiHeadAttention(8, AttentionConfig(heads=2, dropout=rate, score=score)) for rate in (0.5, 0.0))
    x = torch.randn(2, 6, 8)
    assert gap(attend(layer.train(), x), attend(layer, x)) > 1e-3
    assert torch.equal(attend(layer.eval(), x), attend(layer, x))
    assert torch.equal(attend(without.train(), x), attend(without.eval(), x))


def test_attention_score_is_chosen_by_its_name():
    kernels = [MultiHeadAttention(8, AttentionConfig(heads=2, score=score)).kernel for score in ("dot", "unscaled")]
    assert kernels == [fused_attention, unscaled_attention]


def test_kernel_is_a_plain_callable_that_belongs_to_its_layer():
    layer = MultiHeadAttention(8, AttentionConfig(heads=2, score="additive"))
    again = copy.deepcopy(layer)
    assert not isinstance(layer.kernel, torch.nn.Module)
    inputs = [torch.randn(1, 2, 3, 4) for _ in range(3)]
    with torch.no_grad():
        again.score.weight.zero_()
    assert not torch.equal(layer.kernel(*inputs), again.kernel(*inputs))
    assert torch.equal(layer.kernel(*inputs), layer.score(*inputs))


@pytest.mark.parametrize(
    ("d_model", "config", "sizes"),
    [
        (512, AttentionConfig(heads=8), (64, 64)),
        (512, AttentionConfig(heads=8, bias=True), (64, 64)),
        (512, AttentionConfig(heads=8, d_k=32, d_v=32), (32, 32)),
        (10, AttentionConfig(heads=4, d_k=3, d_v=2), (3, 2)),
    ],
)
def test_heads_have_the_sizes_that_are_given_or_divide_d_model(d_model, config, sizes):
    layer, (d_k, d_v) = MultiHeadAttention(d_model, config), config.head_sizes(d_model)
    assert (d_k, d_v) == sizes
    assert attend(layer, torch.randn(1, 3, d_model)).shape == (1, 3, d_model)
    weights = {name: tuple(p.shape) for name, p in layer.named_parameters() if p.dim() > 1}
    to_keys, to_values = (config.heads * d_k, d_model), (config.heads * d_v, d_model)
    assert list(weights.values()) == [to_keys, to_keys, to_values, to_values[::-1]]
    assert [p.dim() for p in layer.parameters()].count(1) == 4 * config.bias


def test_heads_that_do_not_divide_d_model_are_refused():
    with pytest.raises(UsageError, match=r"10.*4 heads"):
        MultiHeadAttention(10, AttentionConfig(heads=4))
    with pytest.raises(UsageError, match=r"10.*4 heads"):
        TransformerConfig(d_model=10, attention=AttentionConfig(heads=4, d_k=3))


@pytest.mark.parametrize("score", ["dot", "additive"])
def test_attention_without_positions_does_not_know_order(score):
    layer = MultiHeadAttention(8, AttentionConfig(heads=2, score=score))
    x, order = torch.randn(2, 6, 8), torch.tensor([3, 0, 5, 1, 4, 2])
    assert gap(attend(layer, x[:, order]), attend(layer, x)[:, order]) <= 1e-12
    assert gap(attend(layer, x[:, order]), attend(layer, x)) > 1e-3


# Keys and values that are kept.

choices = st.none() | st.lists(st.integers(0, 9), min_size=1, max_size=4)


@given(st.lists(st.tuples(choices, st.integers(1, 3)), min_size=1, max_size=40))
def test_cache_of_chosen_hypotheses_keeps_their_keys(turns: list[tuple[list[int] | None, int]]):
    """Any rows, more or fewer of them, some several times, and some tokens after each choice."""
    kept = KeyValues(torch.randn(3, 2, 2, 4), torch.randn(3, 2, 2, 5))
    key, value = kept.key, kept.value
    for numbers, tokens in turns:
        rows = torch.arange(len(key)) if numbers is None else torch.tensor(numbers) % len(key)
        if numbers is not None:
            kept = kept.select(rows)
        new = torch.randn(len(rows), 2, tokens, 4), torch.randn(len(rows), 2, tokens, 5)
        kept = kept.extend(KeyValues(*new))
        key, value = (torch.cat(pair, 2) for pair in ((key[rows], new[0]), (value[rows], new[1])))
    assert torch.equal(kept.key, key)
    assert torch.equal(kept.value, value)
    assert torch.equal(kept.select(torch.arange(len(key)).roll(1)).key, key) == (len(key) == 1)  # the control
