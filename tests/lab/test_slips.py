"""The slips of docs/course/slips.md, one test each and in the page's order.

Most of them wire a module of ours the wrong way, as a slip would have it, and show what that does; the right wiring is
the control.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from conftest import gap, tiny_transformer
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.config.presets import BASE
from dragoman.errors import UsageError
from dragoman.model.attention import (
    Additive,
    MultiHeadAttention,
    causal_mask,
    decoder_mask,
    explicit_attention,
    fused_attention,
    padding_mask,
    unscaled_attention,
)
from dragoman.model.capture import AttentionCapture, AttentionKind, attention_weights
from dragoman.model.packing import Packing
from dragoman.model.positions import Learned, sinusoids
from dragoman.model.transformer import FeedForward, Residual, Transformer
from dragoman_lab.position_schemes import gaps, gray
from dragoman_lab.worked_examples import DOG_PRINTED, DOG_VALUES, dog_example

pytestmark = pytest.mark.usefixtures("seeded_double_precision")

SOURCE, TARGET = torch.tensor([[5, 6, 7, 8, 2]]), torch.tensor([[1, 3, 4]])
PADDED = torch.tensor([[1, 2, 3, 4, 0, 0, 0, 0]])


def tiny(pad: int = 0, **changes) -> Transformer:
    return Transformer(tiny_transformer(**changes), vocabulary=11, pad=pad).eval()


def attention(d_model: int = 16, **changes) -> MultiHeadAttention:
    return MultiHeadAttention(d_model, AttentionConfig(**{"heads": 2, **changes}))


def attend(layer: MultiHeadAttention, x: Tensor, memory: Tensor | None = None) -> Tensor:
    """x (B, T, M) asks memory (B, S, M), or itself -> (B, T, M)."""
    memory = x if memory is None else memory
    queries, keys = Packing.full(x[..., 0]), Packing.full(memory[..., 0])
    return queries.unpack(layer(queries.pack(x), queries, layer.project(keys.pack(memory), keys), None))


def weights_of(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """The weights that our kernel gives to scores (T, S)."""
    keys = scores.size(-1)
    return explicit_attention(scores * math.sqrt(keys), torch.eye(keys), torch.eye(keys), mask)


def maps(model: Transformer, source: Tensor, target: Tensor) -> dict[AttentionKind, list[Tensor]]:
    """The weights (H, T, S) of every attention layer, by kind."""
    capture = AttentionCapture(model)
    with torch.no_grad():
        capture.run(source, target)
    return {kind: [weights[0] for weights in layers] for kind, layers in capture.weights.items()}


def calls_of(*linears: nn.Module) -> list[int]:
    """How many tokens each product with one of these matrices is given, from now on."""
    calls: list[int] = []
    for linear in linears:
        linear.register_forward_hook(lambda module, given, result: calls.append(len(given[0])))
    return calls


def plain_softmax(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float = 0.0) -> Tensor:
    """A kernel that forgets that a query may have no key at all."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    return (scores if mask is None else scores.masked_fill(~mask, -math.inf)).softmax(-1) @ value


# Scores and their scale.


@pytest.mark.parametrize("kernel", [fused_attention, explicit_attention])
def test_scores_are_divided_by_the_root_of_d_k(kernel: Callable[..., Tensor]):
    for d_k in (9, 64):
        query, key, value = torch.randn(3, d_k), torch.randn(5, d_k), torch.randn(5, 2)
        by_root, by_size, by_8 = ((query @ key.T / by).softmax(-1) @ value for by in (math.sqrt(d_k), d_k, 8))
        assert gap(kernel(query, key, value), by_root) <= 1e-12
        assert gap(kernel(query, key, value), by_size) > 1e-2
        assert (gap(kernel(query, key, value), by_8) > 1e-2) == (d_k != 64)


def test_formula_without_a_scale_is_only_a_step_on_the_way():
    query, key, value = torch.randn(3, 64), torch.randn(5, 64), torch.randn(5, 2)
    assert gap(unscaled_attention(query, key, value), (query @ key.T).softmax(-1) @ value) <= 1e-12
    assert gap(unscaled_attention(query, key, value), fused_attention(query, key, value)) > 1e-2
    assert [attention(score=score).kernel for score in ("dot", "unscaled")] == [fused_attention, unscaled_attention]


def test_dividing_by_10_brings_the_variance_of_dimension_100_to_1():
    vectors = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 10)  # all there are: no estimate
    products = vectors @ vectors.T
    assert (float(products.mean()), float(products.square().mean())) == (0, 10)
    scores = (torch.randn(20_000, 100) * torch.randn(20_000, 100)).sum(1)
    assert float(scores.var()) == pytest.approx(100, rel=0.05)
    assert float((scores / 10).var()) == pytest.approx(1, rel=0.05)


def test_triple_called_even_is_more_peaked_than_random_triples():
    called_peaked, called_even = weights_of(torch.tensor([[8.0, -11, 7], [1.1, -0.8, -1.7]]))
    assert called_even.max() > called_peaked.max()
    of_100, of_2 = (weights_of(torch.randn(20_000, 3) * math.sqrt(d)).max(-1).values.mean() for d in (100, 2))
    assert of_100 > of_2 + 0.2


def test_additive_scores_stay_as_calm_as_scaled_ones():
    largest = {}
    for d_k in (8, 512):
        query, key = torch.randn(1, 1, 200, d_k), torch.randn(1, 1, 3, d_k)
        for kernel in (Additive(1, d_k).forward, fused_attention, unscaled_attention):
            weights = attention_weights(kernel, query, key, key, None)
            largest[kernel.__name__, d_k] = float(weights.detach().max(-1).values.mean())
    assert largest["unscaled_attention", 512] > 0.9
    for name in ("forward", "fused_attention"):
        assert largest[name, 512] < 0.7
        assert largest[name, 512] == pytest.approx(largest[name, 8], abs=0.1)


# Queries, keys, values.


def test_queries_and_keys_may_differ_in_number_and_not_in_size():
    assert explicit_attention(torch.randn(3, 8), torch.randn(4, 8), torch.randn(4, 5)).shape == (3, 5)
    with pytest.raises(ValueError, match=r"differ in size: \(5, 3\) and \(5, 4\)"):
        explicit_attention(torch.randn(5, 3), torch.randn(5, 4), torch.randn(5, 2))


def test_keys_and_values_alone_must_be_equally_many():
    seen = maps(tiny(), SOURCE, TARGET)
    assert seen["cross"][0].shape == (2, 3, 5)
    assert seen["decoder"][0].shape == (2, 3, 3)
    with pytest.raises(ValueError, match="each key needs one value"):
        explicit_attention(torch.randn(3, 8), torch.randn(5, 8), torch.randn(3, 8))


def test_attention_of_columns_is_the_transpose():
    query, key, value = torch.randn(3, 3), torch.randn(3, 3), torch.randn(3, 3)
    of_columns = value @ (key.T @ query / math.sqrt(3)).softmax(0)
    assert gap(explicit_attention(query.T, key.T, value.T), of_columns.T) <= 1e-12
    assert gap(explicit_attention(query, key, value), of_columns) > 1e-2  # the formula of rows, given columns


def test_query_matrix_is_the_same_at_every_position():
    layer, x, asked = attention(), torch.randn(1, 5, 16), []
    layer.kernel = lambda query, *rest: asked.append(query) or fused_attention(query, *rest)
    attend(layer, x)
    queries = asked[0][0].transpose(0, 1).flatten(1)  # H T K -> T H*K
    assert gap(queries, torch.stack([layer.query.weight @ word for word in x[0]])) <= 1e-12
    assert gap(queries, torch.stack([torch.randn(16, 16) @ word for word in x[0]])) > 1e-2


@pytest.mark.parametrize(("matrix", "decides"), [("query", True), ("key", True), ("value", False)])
def test_queries_and_keys_decide_the_ratio_and_values_do_not(matrix: str, decides: bool):
    model = tiny()
    before = maps(model, SOURCE, TARGET)["encoder"][0]
    nn.init.normal_(getattr(model.encoder[0].attention, matrix).weight)
    assert (gap(maps(model, SOURCE, TARGET)["encoder"][0], before) > 1e-3) == decides


def test_printed_score_does_not_follow_from_the_products_and_gives_vectors():
    assert gap(dog_example(masked=False).trace.weights, DOG_PRINTED) > 0.1
    output = weights_of(DOG_PRINTED.log()) @ DOG_VALUES
    assert output[0].tolist() == pytest.approx([66.515, 85.03, 86.0], abs=1e-3)
    assert float(output[0].sum()) == pytest.approx(237.545, abs=1e-3)  # where V is summed up, too


def test_head_puts_out_64_numbers_and_all_of_them_512():
    layer, x, outputs = attention(512, heads=8), torch.randn(1, 4, 512), []
    layer.kernel = lambda *inputs: outputs.append(fused_attention(*inputs)) or outputs[-1]
    result = attend(layer, x)
    assert outputs[0].shape == (1, 8, 4, 64)
    side_by_side = outputs[0].transpose(1, 2).flatten(2)
    assert side_by_side.shape == result.shape == (1, 4, 512)
    assert gap(result, side_by_side @ layer.out.weight.T) <= 1e-12
    assert gap(result, side_by_side) > 1e-2  # W^O left out


@pytest.mark.parametrize("bias", [False, True])
def test_one_object_for_all_heads_needs_fewer_products_for_the_same_result(bias: bool):
    together, x, memory = attention(bias=bias), torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    alone = [attention(heads=1, d_k=8, d_v=8, bias=bias) for _ in range(2)]
    with torch.no_grad():
        for head, layer in enumerate(alone):
            rows = slice(8 * head, 8 * head + 8)
            for one, all_heads in zip(list(layer.parameters())[: -1 - bias], together.parameters(), strict=False):
                one.copy_(all_heads[rows])
            layer.out.weight.copy_(together.out.weight[:, rows])
            if bias:
                layer.out.bias.copy_(together.out.bias / 2)
    of_one, of_many = (calls_of(*[m for layer in layers for m in layer.children()]) for layers in ([together], alone))
    expected = attend(together, x, memory)
    assert gap(sum(attend(layer, x, memory) for layer in alone), expected) <= 1e-12
    assert (len(of_one), len(of_many)) == (4, 8)
    assert gap(2 * attend(alone[0], x, memory), expected) > 1e-2  # one head twice


def test_cross_attention_takes_its_keys_from_the_source():
    model = tiny()
    one, other = (maps(model, source, TARGET) for source in (SOURCE, SOURCE.flip(1)))
    assert torch.equal(one["decoder"][0], other["decoder"][0])
    assert gap(one["cross"][0], other["cross"][0]) > 1e-3


@pytest.mark.parametrize("near", [0, 1])
def test_layer_that_looks_far_may_be_the_first_or_second(near: int):
    model, ids = tiny(encoder_layers=2), torch.randint(3, 11, (1, 12))
    layer = model.encoder[near].attention
    beside = torch.ones(12, 12, dtype=torch.bool).tril(1).triu(-1)
    layer.kernel = lambda query, key, value, mask, dropout: fused_attention(query, key, value, beside)
    apart = (torch.arange(12) - torch.arange(12)[:, None]).abs()
    seen = maps(model, ids, ids)
    distance = [float((seen["encoder"][i] * apart).sum(-1).mean()) for i in range(2)]
    assert distance[near] < 1 < 3 < distance[1 - near]


# Masks.


@pytest.mark.parametrize(("scores", "leaks"), [([2.0, 1, 5], 0.0900), ([-2.0, -1, 5], 0.6652)])
def test_score_times_1e_9_still_gets_weight(scores: list[float], leaks: float):
    real = torch.tensor([True, True, False])
    times_1e_9 = weights_of(torch.where(real, torch.tensor([scores]), torch.tensor([scores]) * 1e-9))
    assert float(times_1e_9[0, 2]) == pytest.approx(leaks, abs=5e-5)
    assert float(weights_of(torch.tensor([scores]), real)[0, 2]) == 0


def test_masks_combine_as_the_intersection_of_visible_positions():
    padding, causal = padding_mask(PADDED, 0)[0, 0], causal_mask(8)
    assert torch.equal(decoder_mask(PADDED, 0)[0, 0], padding & causal)
    assert torch.equal(~decoder_mask(PADDED, 0)[0, 0], ~padding | ~causal)  # a union is what is hidden
    weights = weights_of(torch.randn(8, 8), padding | causal)
    assert weights[0, 3] > 0  # a later word
    assert weights[7, 6] > 0  # padding


def test_cross_attention_needs_the_padding_of_the_source_and_no_other_mask():
    source, target = torch.tensor([[5, 6, 7, 0]]), torch.tensor([[1, 2, 3, 0]])
    seen = maps(tiny(), source, target)["cross"][0] > 0
    assert torch.equal(seen, padding_mask(source, 0)[0].expand(2, 4, 4))
    three_masks = causal_mask(4) & padding_mask(target, 0) & padding_mask(source, 0)
    assert not torch.equal(seen, three_masks[0].expand(2, 4, 4))


def test_zero_vector_is_still_attended_and_a_masked_score_is_not():
    x = torch.randn(4, 16)
    without_the_last = x * torch.tensor([1.0, 1, 1, 0])[:, None]
    by_vectors = explicit_attention(without_the_last, without_the_last, torch.eye(4))
    by_scores = explicit_attention(x, x, torch.eye(4), causal_mask(4))
    assert (by_vectors[:3, 3] > 0).all()
    assert (by_scores[:3, 3] == 0).all()
    assert by_scores[3, 3] > 0  # the last word may see itself, which no zero vector could say


def test_masks_need_not_be_integers():
    scores, keep = torch.randn(8, 8), decoder_mask(PADDED, 0)[0, 0]
    assert torch.equal(weights_of(scores, keep), weights_of(scores, keep.int()))
    assert gap(weights_of(scores, keep), weights_of(scores, ~keep)) > 1e-2


def test_true_means_may_attend_here_and_the_opposite_in_multiheadattention():
    x, keep = torch.randn(1, 4, 16), torch.tensor([True, True, False, False])
    theirs = nn.MultiheadAttention(16, 2, batch_first=True, bias=False)
    shown = theirs(x, x, x, key_padding_mask=keep[None])[1][0]
    assert (shown[:, keep] == 0).all()
    assert (weights_of(torch.randn(4, 4), keep)[:, ~keep] == 0).all()
    query, key = torch.randn(4, 8), torch.randn(4, 8)
    pytorch = F.scaled_dot_product_attention(query, key, torch.eye(4), attn_mask=keep[None])
    assert gap(explicit_attention(query, key, torch.eye(4), keep), pytorch) <= 1e-12


def test_padding_is_an_id_and_neither_a_value_nor_the_mask():
    alone, padded = torch.tensor([[5, 6]]), torch.tensor([[5, 6, 3, 3]])
    model = tiny(pad=3)
    nn.init.normal_(model.source_embedding.weight[3])  # a vector of padding that is not zero changes nothing
    expected = model(alone, TARGET)
    assert gap(model(padded, TARGET), expected) <= 1e-12
    model.pad = 0
    assert gap(model(padded, TARGET), expected) > 1e-3


def test_mask_saves_no_work_and_packing_does():
    def work(ids: Tensor) -> dict[str, int]:
        model = tiny()
        model.encoder[0].attention.kernel = explicit_attention
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model.start(ids)
        flops = counter.get_flop_counts()["Global"]
        matrices = sum(count for name, count in flops.items() if "mm" in str(name) and "bmm" not in str(name))
        return {"scores": flops[torch.ops.aten.bmm], "matrices": matrices}

    full, padded = torch.full((2, 8), 5), torch.tensor([[5] * 8, [5] * 2 + [0] * 6])
    assert work(padded)["scores"] == work(full)["scores"]  # masked, and computed all the same
    assert work(padded)["matrices"] * 16 == work(full)["matrices"] * 10  # 10 tokens of 16 are real


# Words and positions.


@pytest.mark.parametrize("words", [4, 11, 10_000])
def test_linear_layer_equals_an_embedding_for_any_number_of_words(words: int):
    table, ids = nn.Embedding(words, 16), torch.tensor([3, 0, 3])
    linear = nn.Linear(words, 16, bias=False)
    linear.weight = nn.Parameter(table.weight.T)
    one_hot = F.one_hot(ids, words).to(table.weight)
    assert torch.equal(linear(one_hot), table(ids))
    assert not torch.equal(linear(one_hot.roll(1, dims=1)), table(ids))


def test_512_positions_are_a_setting_and_sinusoids_have_no_end():
    ids = torch.arange(9)[None] + 1
    assert TransformerConfig().max_length == 1024
    assert tiny(positions="sinusoidal", max_length=8)(ids, ids).isfinite().all()
    assert tiny(positions="learned", max_length=9)(ids, ids).isfinite().all()
    with pytest.raises(IndexError, match="out of range"):
        nn.Embedding(8, 16)(ids)
    with pytest.raises(ValueError, match=r"9 tokens.*8.*max_length"):
        tiny(positions="learned", max_length=8)(ids, ids)


@pytest.mark.parametrize("scheme", ["learned", "sinusoidal"])
def test_learned_table_adds_the_same_to_every_sentence(scheme: str):
    positions, one, other = tiny(positions=scheme).encoder_positions, torch.randn(1, 9, 16), torch.randn(1, 9, 16)
    added = positions.embed(one, 0) - one
    assert gap(positions.embed(other, 0) - other, added) <= 1e-12
    assert gap(added[:, 1:], added[:, :-1]) > 1e-2
    assert len(list(positions.parameters())) == (scheme == "learned")


def test_wavelengths_grow_with_the_dimension_and_not_with_the_position():
    negative = (sinusoids(4096, 64) < 0).int()
    crossings = [(half[1:] != half[:-1]).sum(0) for half in negative.chunk(2)]
    assert gap(crossings[0], crossings[1]) <= 1
    assert (crossings[0][::2].diff() <= 0).all()
    assert crossings[0][0] > 100 * crossings[0][48]


def test_gray_code_has_equal_gaps_and_ends_that_meet():
    code, table = gray(4, 2), sinusoids(4, 512)
    assert gaps(code) == 3 * gaps(code, apart=3)
    assert gaps(table) == pytest.approx(3 * gaps(table)[:1])
    assert gaps(table, apart=3)[0] > 2 * gaps(table)[0]


# The block.


def test_model_of_the_note_is_the_paper_with_other_settings():
    def parameters(config: TransformerConfig) -> int:
        with torch.device("meta"):
            return sum(p.numel() for p in Transformer(config, 37_000).parameters())

    paper = BASE.model
    assert (paper.norm_first, paper.positions, paper.share, paper.output_bias) == (False, "sinusoidal", "all", False)
    assert (paper.attention.bias, paper.attention.dropout, paper.dropout) == (False, 0, 0.1)
    assert (paper.feed_forward.activation, paper.feed_forward.dropout) == ("relu", 0)
    note = replace(
        paper,
        norm_first=True,
        positions="learned",
        max_length=512,
        share="none",
        output_bias=True,
        attention=AttentionConfig(bias=True),
        feed_forward=FeedForwardConfig(activation="gelu", dropout=0.1),
    )
    biases, last_norms, positions, words = 18 * 4 * 512 + 37_000, 2 * 2 * 512, 2 * 512 * 512, 2 * 37_000 * 512
    assert parameters(note) - parameters(paper) == biases + last_norms + positions + words


def test_last_norm_matters_with_pre_norm_and_not_with_post_norm():
    for norm_first in (False, True):
        model = tiny(norm_first=norm_first)
        ours = model.start(SOURCE).memory
        assert gap(ours.std(-1, correction=0), torch.ones(5)) < 1e-4
        model.encoder_norm = nn.Identity() if norm_first else nn.LayerNorm(16)  # the other way round
        assert (gap(model.start(SOURCE).memory, ours) > 0.1) == norm_first


@pytest.mark.parametrize("norm_first", [False, True])
def test_residual_dropout_acts_on_the_feed_forward_network_too(norm_first: bool):
    def changes(**rates: float) -> bool:
        config = tiny_transformer(norm_first=norm_first, dropout=rates.get("residual", 0))
        network, x = FeedForward(16, FeedForwardConfig(d_ff=32, dropout=rates.get("inner", 0))), torch.randn(4, 16)
        return not torch.equal(*(Residual(config)(x, network) for _ in range(2)))

    assert (changes(residual=0.5), changes(inner=0.5), changes()) == (True, True, False)


def test_layer_norm_has_a_mean_for_each_token():
    x = torch.randn(4, 7, 16) + torch.arange(7)[None, :, None]
    ours, by_sentence = Residual(tiny_transformer()).norm(x), F.layer_norm(x, x.shape[1:])
    assert ours.mean(-1).numel() == 28
    assert gap(ours.mean(-1), torch.zeros(4, 7)) < 1e-12
    assert gap(by_sentence.mean((1, 2)), torch.zeros(4)) < 1e-12
    assert gap(by_sentence, ours) > 1e-2


def test_wrong_second_residual_loses_the_masked_attention():
    model = tiny(norm_first=True)
    layer = model.decoder[0]

    class FromTheInput(Residual):
        """Adds what went into the layer, in place of what the masked attention made of it."""

        def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
            return inputs[-1] + sublayer(self.norm(x))

    inputs: list[Tensor] = []
    layer.around_attention.register_forward_pre_hook(lambda module, given: inputs.append(given[0]))
    nn.init.zeros_(layer.cross_attention.out.weight)
    for around, reaches in ((layer.around_cross_attention, True), (FromTheInput(model.config), False)):
        layer.around_cross_attention = around
        before = model(SOURCE, TARGET)
        nn.init.normal_(layer.attention.out.weight)
        change = gap(model(SOURCE, TARGET), before)
        assert change > 1e-3 if reaches else change == 0


# Recurrence.


@pytest.mark.parametrize(("gain", "grows"), [(1.0, False), (2.0, True)])
def test_recurrent_relu_diverges_only_with_a_large_gain(gain: float, grows: bool):
    cell = nn.RNN(64, 64, nonlinearity="relu", batch_first=True)
    nn.init.normal_(cell.weight_hh_l0, std=gain / 8)
    x = torch.randn(1, 50, 64, requires_grad=True)
    states = cell(x)[0][0]
    states[-1].sum().backward()
    first, last = (float(x.grad[0, i].norm()) for i in (0, -1))
    assert (float(states[-1].detach().norm()) > 1e4, first > last) == (grows, grows)
    assert grows or first < 1e-3 * last


# Conclusions that do not follow.


def test_dividing_makes_even_scores_more_even():
    scores = (torch.randn(20_000, 1, 2) * torch.randn(20_000, 3, 2)).sum(-1)
    raw, divided = scores.softmax(-1), (scores / math.sqrt(2)).softmax(-1)
    assert (torch.special.entr(divided).sum(-1) >= torch.special.entr(raw).sum(-1)).all()
    assert float(raw.amax(-1).mean()) == pytest.approx(0.620, abs=0.01)
    assert float(divided.amax(-1).mean()) == pytest.approx(0.558, abs=0.01)


def test_word_gives_most_weight_to_itself_only_without_matrices():
    def share(query: Tensor, key: Tensor) -> float:
        return float(((query @ key.mT).argmax(-1) == torch.arange(3)).double().mean())

    x, w_q, w_k = torch.randn(400, 3, 64), torch.randn(400, 64, 64), torch.randn(400, 64, 64)
    assert share(x, x) == 1
    assert share(x @ w_q, x @ w_k) == pytest.approx(1 / 3, abs=0.05)


@pytest.mark.parametrize(("positions", "equivariant"), [("none", True), ("sinusoidal", False)])
def test_attention_is_equivariant_until_positions_are_added(positions: str, equivariant: bool):
    model, order = tiny(positions=positions), torch.tensor([3, 0, 4, 1, 2])
    before, after = model.start(SOURCE).memory, model.start(SOURCE[:, order]).memory
    assert (gap(after, before[order]) < 1e-12) == equivariant


def test_matrices_decide_which_similarity_matters():
    x = torch.randn(1, 20, 512)
    similar = F.cosine_similarity(x, x[:, :1], dim=-1)
    assert similar[0, 1:].abs().max() < 0.25  # rare in many dimensions
    for sign, chosen in ((1, similar.argmax()), (-1, similar.argmin())):
        assert explicit_attention(x[:, :1], sign * x, torch.eye(20)[None]).argmax() == chosen


def test_number_of_an_output_comes_from_a_column_of_the_values():
    query, key, value = torch.randn(2, 8), torch.randn(4, 8), torch.randn(4, 3)
    weights = weights_of(query @ key.mT / math.sqrt(8))
    assert gap(explicit_attention(query, key, value)[:, 1], weights @ value[:, 1]) < 1e-12
    with pytest.raises(RuntimeError, match="size mismatch"):
        weights @ value[1]


def test_norm_may_stand_before_a_sublayer_and_the_sum_never_does():
    x = torch.randn(4, 16)
    for norm_first in (True, False):
        residual, seen = Residual(tiny_transformer(norm_first=norm_first, dropout=0)), []
        y = residual(x, lambda given: seen.append(given) or torch.zeros_like(given))  # noqa: B023
        expected = (residual.norm(x), x) if norm_first else (x, residual.norm(x))
        assert torch.equal(seen[0], expected[0])
        assert torch.equal(y, expected[1])


def test_scale_of_the_input_matters_to_tanh_and_not_to_relu():
    def slope(function: Callable[[Tensor], Tensor], scale: float) -> float:
        x = (scale * drawn).requires_grad_()
        return float(torch.autograd.grad(function(x).sum(), x)[0].mean())

    drawn = torch.randn(5000)
    assert slope(torch.tanh, 0.1) > 0.98
    assert slope(torch.tanh, 10) < 0.1
    assert slope(F.relu, 0.1) == slope(F.relu, 1) == slope(F.relu, 10)


@pytest.mark.parametrize("d_k", [16, 256])
def test_norm_of_words_leaves_the_variance_of_scores(d_k: int):
    words, (w_q, w_k) = torch.randn(512, 256), torch.randn(2, 256, d_k) / 16
    for x in (words, F.layer_norm(words, (256,))):
        assert float(((x @ w_q) @ (x @ w_k).mT).var()) == pytest.approx(d_k, rel=0.2)


def test_scale_is_the_root_of_the_dimension_and_not_the_norm():
    query, key = torch.randn(300, 100), torch.randn(300, 100)
    scores, norms = query @ key.mT, query.norm(dim=1)[:, None] * key.norm(dim=1)
    assert float((scores / 10).std()) == pytest.approx(1, abs=0.05)
    assert float((scores / norms).std()) == pytest.approx(0.1, abs=0.01)
    assert weights_of(torch.tensor([[1.0, *[-1.0] * 9]])).max() < 0.5  # the sharpest of ten cosines


def test_heads_are_no_members_that_could_change_places():
    layer, x = attention(), torch.randn(1, 5, 16)
    y, parts = attend(layer, x), layer.out.weight.detach().chunk(2, dim=1)
    alone = []
    for part in range(2):
        kept = [parts[n] if n == part else torch.zeros_like(parts[n]) for n in range(2)]
        layer.out.weight.data = torch.cat(kept, dim=1)
        alone.append(attend(layer, x))
    assert gap(sum(alone), y) < 1e-12
    layer.out.weight.data = torch.cat(parts[::-1], dim=1)
    assert gap(attend(layer, x), y) > 1e-3


# The code of note 001.


def test_tensor_of_size_512_is_not_the_number_512():
    model, ids = tiny(d_model=512, encoder_layers=0, positions="none"), torch.tensor([[3, 4]])
    assert gap(model.start(ids).memory, model.source_embedding.weight[ids[0]] * 22.627) < 1e-4
    assert torch.Tensor(512).shape == (512,)  # numbers that nobody wrote
    assert torch.tensor(512).shape == ()


@pytest.mark.parametrize("positions", [torch.arange(5.0), torch.arange(5).repeat(3), torch.arange(8)])
def test_positions_are_integers_one_row_and_as_many_as_tokens(positions: Tensor):
    learned, x = Learned(TransformerConfig(16, max_length=8)), torch.randn(3, 5, 16)
    with pytest.raises(RuntimeError, match=r"Long, Int|must match"):
        x + learned.table(positions)
    assert torch.equal(learned.embed(x, 0), x + learned.table(torch.arange(5)))


def test_dropout_that_never_reaches_the_kernel_changes_nothing():
    layer, x = attention(dropout=0.9).train(), torch.randn(1, 6, 16)
    assert gap(attend(layer, x), attend(layer, x)) > 1e-3
    layer.kernel = lambda query, key, value, mask, dropout: fused_attention(query, key, value, mask)
    assert torch.equal(attend(layer, x), attend(layer, x))


def test_keys_of_cross_attention_are_computed_once():
    layer, x, memory = attention(), torch.randn(1, 3, 16), torch.randn(1, 5, 16)
    calls = calls_of(layer.key, layer.value)
    attend(layer, x, memory)
    assert calls == [5, 5]
    layer.project(x[0], Packing.full(x[..., 0]))  # those of the queries' own words, for nothing
    assert calls == [5, 5, 3, 3]


def test_plain_tensor_stays_behind_when_a_model_moves():
    def plain_tensors(model: nn.Module) -> list[Tensor]:
        return [value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor)]

    for positions in ("sinusoidal", "learned", "rotary", "relative"):
        assert plain_tensors(tiny(positions=positions)) == []
    layer = attention()
    layer.scale = torch.tensor(8.0)
    assert [tensor.device.type for tensor in plain_tensors(layer.to("meta"))] == ["cpu"]
    assert layer.query.weight.device.type == "meta"


@pytest.mark.parametrize(("d_model", "heads", "d_k"), [(512, 8, 32), (10, 4, 2)])
def test_heads_of_any_size_fit_the_last_matrix(d_model: int, heads: int, d_k: int):
    layer, x = attention(d_model, heads=heads, d_k=d_k, d_v=d_k), torch.randn(1, 3, d_model)
    assert attend(layer, x).shape == x.shape
    layer.out = nn.Linear(d_model, d_model)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        attend(layer, x)
    with pytest.raises(UsageError, match="10 is not divisible by 4 heads"):
        TransformerConfig(d_model=10, attention=AttentionConfig(heads=4))


@pytest.mark.parametrize("kernel", [fused_attention, explicit_attention, Additive(2, 4).forward])
def test_query_without_any_key_gets_zeros(kernel: Callable[..., Tensor]):
    left = torch.tensor([[0, 0, 3, 4]])
    query, key, value, mask = *(torch.randn(1, 2, 4, 4) for _ in range(3)), decoder_mask(left, 0)
    assert plain_softmax(query, key, value, mask)[:, :, :2].isnan().all()
    assert (kernel(query, key, value, mask)[:, :, :2] == 0).all()
    assert kernel(query, key, value, mask).isfinite().all()
    assert tiny()(left, left).isfinite().all()


def test_mask_is_made_once_for_all_queries():
    elsewhere = PADDED.to("meta")
    with pytest.raises(RuntimeError, match="device"):
        padding_mask(elsewhere, 0) & causal_mask(8)
    mask = decoder_mask(elsewhere, 0)
    assert (mask.device.type, mask.dtype) == ("meta", torch.bool)
    assert padding_mask(PADDED, 0).shape == (1, 1, 1, 8)


def test_annotation_is_no_default():
    def encode(max_seq: 512):
        return max_seq

    with pytest.raises(TypeError, match="max_seq"):
        encode()
    assert Learned(TransformerConfig(16)).table.num_embeddings == TransformerConfig().max_length


def test_minus_1e9_does_not_fit_16_bits_and_minus_infinity_does():
    scores, keep = torch.randn(2, 3, dtype=torch.float16), torch.tensor([True, True, False])
    with pytest.raises(RuntimeError, match="overflow"):
        scores.masked_fill(~keep, -1e9)
    key = torch.randn(1, 3, 4, dtype=torch.float16)
    output = explicit_attention(key, key, key, keep)
    assert output.isfinite().all()
    assert torch.equal(output, explicit_attention(key, key, key.masked_fill(~keep[:, None], 9), keep))
