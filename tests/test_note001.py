"""The code of study note 001 as it was printed, what is wrong with it, and that ours is right.

Every class here whose name begins with Note is the note's, with its slips.
"""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from conftest import gap
from torch import Tensor, nn

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.errors import UsageError
from dragoman.inspection.attention import attention_maps
from dragoman.model.attention import (
    Additive,
    MultiHeadAttention,
    causal_mask,
    decoder_mask,
    explicit,
    fused,
    padding_mask,
)
from dragoman.model.packing import Packing
from dragoman.model.transformer import Residual, Transformer

IDS = torch.tensor([[1, 2, 3, 4, 0, 0, 0, 0]])
LEFT_PADDED = torch.tensor([[0, 0, 3, 4]])
LITTLE = TransformerConfig(
    d_model=8,
    encoder_layers=1,
    decoder_layers=1,
    attention=AttentionConfig(heads=2),
    feed_forward=FeedForwardConfig(d_ff=12),
    dropout=0,
)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def little(**changes) -> Transformer:
    return Transformer(replace(LITTLE, **changes), vocabulary=11).eval()


def attend(layer: MultiHeadAttention, x: Tensor, memory: Tensor | None = None) -> Tensor:
    memory = x if memory is None else memory
    asking, asked = Packing.full(x[..., 0]), Packing.full(memory[..., 0])
    return asking.unpack(layer(asking.pack(x), asking, layer.project(asked.pack(memory), asked), None))


# Scaled dot-product attention (001-9).


def note_attention(q: Tensor, k: Tensor, v: Tensor, dot_scale, mask: Tensor | None = None) -> Tensor:
    score = torch.matmul(q, k.transpose(-2, -1)) / dot_scale
    if mask is not None:
        score = score.masked_fill(mask == 0, float("-inf"))
    return torch.matmul(F.softmax(score, dim=-1), v)


@pytest.mark.parametrize("kernel", [fused, explicit, Additive(2, 4)], ids=["fused", "explicit", "additive"])
def test_a_row_without_any_key_is_not_a_number_in_the_note_and_zeros_here(kernel):
    query, key, value = (torch.randn(1, 2, 3, 4) for _ in range(3))
    mask = torch.tensor([[True, True, True], [False, False, False], [True, False, False]])
    assert note_attention(query, key, value, 2, mask)[:, :, 1].isnan().all()
    assert (kernel(query, key, value, mask)[:, :, 1] == 0).all()


def test_the_note_gives_no_weights_and_ours_can_be_watched():
    x, model = torch.randn(1, 3, 4), little()
    out = note_attention(x, x, x, 2)
    assert isinstance(out, Tensor)
    assert out.shape == x.shape
    with attention_maps(model) as maps:
        model(IDS, IDS)
    assert maps["encoder.0.attention"][0].shape == (1, 2, 8, 8)
    assert torch.allclose(maps["encoder.0.attention"][0].sum(-1), torch.tensor([[1.0, 1, 1, 1, 1, 1, 1, 1]]))


def test_the_note_scales_as_it_is_told_and_ours_by_the_size_of_a_key():
    query, key, value = torch.randn(3, 16), torch.randn(5, 16), torch.randn(5, 2)
    assert gap(note_attention(query, key, value, math.sqrt(64)), note_attention(query, key, value, 4)) > 1e-3
    assert gap(explicit(query, key, value), note_attention(query, key, value, 4)) < 1e-6
    assert gap(fused(query, key, value), note_attention(query, key, value, 4)) < 1e-6


def test_a_large_negative_number_does_not_fit_half_precision_and_infinity_does():
    score, mask = torch.randn(2, 3, dtype=torch.float16), torch.tensor([True, True, False])
    with pytest.raises(RuntimeError, match="overflow"):
        score.masked_fill(mask == 0, -1e9)
    key = torch.randn(1, 3, 4, dtype=torch.float16)
    out = explicit(key, key, key, mask)
    assert out.isfinite().all()
    assert torch.equal(out, explicit(key, key, key.masked_fill(~mask[:, None], 9), mask))


SCORE = torch.tensor([[0.90, 0.07, 0.03], [0.025, 0.95, 0.025], [0.21, 0.03, 0.76]])
VALUE = torch.tensor([[67.85, 90, 91], [62, 40, 50], [37, 41, 20]])


def test_the_output_of_a_word_is_a_vector_and_not_the_sum_of_its_numbers():
    as_printed = sum(SCORE[0, j] * VALUE[j].sum() for j in range(3))
    ours = explicit(SCORE.log() * math.sqrt(3), torch.eye(3), VALUE)
    assert as_printed.dim() == 0
    assert float(as_printed) == pytest.approx(237.545, abs=1e-3)
    assert ours[0].tolist() == pytest.approx([66.515, 85.03, 86.0], abs=1e-3)
    assert float(ours[0].sum()) == pytest.approx(float(as_printed), abs=1e-3)


def test_the_printed_weights_do_not_follow_from_the_printed_products():
    products = torch.tensor([[56.8, 12.1, 43.5], [30.4, 100.8, 24.2], [11.11, 7.34, 20.23]])
    weights = explicit(torch.cat([products, torch.zeros(3, 61)], -1), torch.eye(3, 64), torch.eye(3))
    assert gap(weights, SCORE) > 0.05


# Heads (001-10).


class NoteAttentionHead(nn.Module):
    def __init__(self, dim_model=512, dim_head=64, dropout=0.1):
        super().__init__()
        self.dim_model = dim_model
        self.dim_head = dim_head
        self.dropout = dropout
        self.dot_scale = torch.sqrt(torch.tensor(self.dim_head))
        self.fc_q = nn.Linear(self.dim_model, self.dim_head)
        self.fc_k = nn.Linear(self.dim_model, self.dim_head)
        self.fc_v = nn.Linear(self.dim_model, self.dim_head)

    def forward(self, x, mask, enc_output=None):
        q, k, v = self.fc_q(x), self.fc_k(x), self.fc_v(x)
        if enc_output is not None:
            k, v = self.fc_k(enc_output), self.fc_v(enc_output)
        return note_attention(q, k, v, self.dot_scale, mask)


class NoteMultiHeadAttention(nn.Module):
    def __init__(self, dim_model=512, num_heads=8, dim_head=64, dropout=0.1):
        super().__init__()
        self.attention_heads = nn.ModuleList(
            [NoteAttentionHead(dim_model, dim_head, dropout) for _ in range(num_heads)]
        )
        self.fc_concat = nn.Linear(dim_model, dim_model)

    def forward(self, x, mask, enc_output=None):
        assert x.ndim == 3
        return self.fc_concat(torch.cat([head(x, mask, enc_output) for head in self.attention_heads], dim=-1))


def test_the_dropout_of_the_note_is_never_used_and_ours_is():
    x = torch.randn(1, 6, 8)
    theirs = NoteAttentionHead(8, 4, dropout=0.9).train()
    ours = MultiHeadAttention(8, AttentionConfig(heads=2, dropout=0.9)).train()
    assert torch.equal(theirs(x, None), theirs(x, None))
    assert gap(attend(ours, x), attend(ours, x)) > 1e-3


def count_calls(linear: nn.Linear) -> list[int]:
    calls: list[int] = []
    linear.register_forward_hook(lambda module, given, out: calls.append(given[0].numel()))
    return calls


def test_the_note_projects_keys_twice_in_cross_attention_and_ours_once():
    x, memory = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    theirs, ours = NoteAttentionHead(8, 4), MultiHeadAttention(8, AttentionConfig(heads=2))
    of_theirs, of_ours = count_calls(theirs.fc_k), count_calls(ours.key)
    theirs(x, None, memory)
    attend(ours, x, memory)
    assert of_theirs == [3 * 8, 5 * 8]
    assert of_ours == [5 * 8]


def tensors_of(model: nn.Module) -> list[Tensor]:
    return [value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor)]


def test_a_tensor_of_the_note_stays_behind_when_the_model_moves_and_ours_has_none():
    assert [tensor.device.type for tensor in tensors_of(NoteAttentionHead().to("meta"))] == ["cpu"]
    for positions in ("sinusoidal", "learned", "rotary", "relative"):
        assert tensors_of(little(positions=positions)) == []


def test_the_note_adds_biases_that_the_paper_does_not_have():
    sizes = [
        sum(p.numel() for p in module.parameters())
        for module in (NoteMultiHeadAttention(), MultiHeadAttention(512, AttentionConfig()))
    ]
    assert sizes == [1_050_624, 1_048_576]


def test_eight_heads_of_32_crash_in_the_note_and_run_here():
    x = torch.randn(1, 3, 512)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        NoteMultiHeadAttention(512, 8, 32)(x, None)
    assert attend(MultiHeadAttention(512, AttentionConfig(heads=8, d_k=32, d_v=32)), x).shape == x.shape


def test_heads_that_do_not_divide_crash_late_in_the_note_and_are_refused_here():
    theirs = NoteMultiHeadAttention(10, 4, int(10 / 4))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        theirs(torch.randn(1, 3, 10), None)
    with pytest.raises(UsageError, match="10 does not split into 4 heads"):
        TransformerConfig(d_model=10, attention=AttentionConfig(heads=4))


def test_with_the_slips_mended_the_heads_of_the_note_are_ours():
    theirs = NoteMultiHeadAttention(8, 2, 4)
    ours = MultiHeadAttention(8, AttentionConfig(heads=2, bias=True))
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    assert gap(attend(ours, x, memory), theirs(x, None, memory)) > 1e-3
    with torch.no_grad():
        for mine, name in ((ours.query, "fc_q"), (ours.key, "fc_k"), (ours.value, "fc_v")):
            mine.weight.copy_(torch.cat([getattr(head, name).weight for head in theirs.attention_heads]))
            mine.bias.copy_(torch.cat([getattr(head, name).bias for head in theirs.attention_heads]))
    ours.out.load_state_dict(theirs.fc_concat.state_dict())
    assert gap(attend(ours, x, memory), theirs(x, None, memory)) < 1e-6


# Norm (001-12).


def test_layer_norm_has_a_mean_per_token_and_not_per_sentence():
    x = torch.randn(4, 7, 8) + torch.arange(7)[None, :, None]
    as_the_text_says = F.layer_norm(x, x.shape[1:])
    ours = Residual(LITTLE).norm(x)
    assert gap(ours.mean(-1), torch.zeros(4, 7)) < 1e-6
    assert ours.mean(-1).numel() == 28
    assert gap(as_the_text_says.mean((1, 2)), torch.zeros(4)) < 1e-6
    assert gap(as_the_text_says, ours) > 1e-3


# The encoder (001-14).


class NoteEncoder(nn.Module):
    def __init__(self, max_seq: 512, dim_model=512, cast=True):
        super().__init__()
        self.max_seq = max_seq
        self.cast = cast  # not the note's: False leaves the next slip to be seen
        self.scale = torch.sqrt(torch.Tensor(dim_model))
        self.positional_embedding = nn.Embedding(max_seq, dim_model)

    def forward(self, inputs):
        batch = inputs.shape[0]
        pos_x = torch.arange(self.max_seq).repeat(batch)
        if self.cast:
            pos_x = pos_x.to(inputs)
        return (self.scale * inputs) + self.positional_embedding(pos_x)


@pytest.fixture
def new_memory_is_filled_with_nan():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_the_scale_of_the_note_is_memory_nobody_wrote_and_ours_is_a_number(new_memory_is_filled_with_nan):
    scale = torch.sqrt(torch.Tensor(512))
    assert scale.shape == (512,)
    assert scale.isnan().all()
    model = Transformer(replace(LITTLE, d_model=512, encoder_layers=0, positions="none"), vocabulary=11).eval()
    words = torch.tensor([[3, 4]])
    assert gap(model.start(words).memory, model.source_embedding.weight[[3, 4]] * 22.627) < 1e-4


def test_places_as_fractions_are_refused_by_the_table():
    with pytest.raises(RuntimeError, match="Long, Int"):
        NoteEncoder(max_seq=5, dim_model=8)(torch.randn(1, 5, 8))


def test_places_in_one_row_do_not_fit_a_batch():
    encoder = NoteEncoder(max_seq=5, dim_model=8, cast=False)
    assert encoder(torch.randn(1, 5, 8)).shape == (1, 5, 8)
    with pytest.raises(RuntimeError, match="must match"):
        encoder(torch.randn(3, 5, 8))


def test_places_up_to_the_longest_sentence_do_not_fit_a_shorter_one():
    encoder = NoteEncoder(max_seq=5, dim_model=8, cast=False)
    with pytest.raises(RuntimeError, match="must match"):
        encoder(torch.randn(1, 3, 8))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("length", [5, 8])
def test_ours_takes_any_batch_and_any_length_up_to_the_longest(batch, length):
    model = little(positions="learned", max_length=8)
    ids = torch.randint(1, 11, (batch, length))
    assert model(ids, ids).shape == (batch, length, 11)


def test_the_longest_sentence_is_an_annotation_in_the_note_and_a_default_here():
    with pytest.raises(TypeError, match="max_seq"):
        NoteEncoder()
    assert TransformerConfig().max_length == 1024


def test_a_sentence_too_long_is_an_index_error_in_the_note_and_a_sentence_here():
    with pytest.raises(IndexError, match="out of range"):
        nn.Embedding(4, 8)(torch.arange(5))
    ids = torch.ones(1, 5, dtype=torch.long)
    with pytest.raises(ValueError, match=r"5 tokens.*4.*max_length"):
        little(positions="learned", max_length=4)(ids, ids)
    assert little(positions="sinusoidal", max_length=4)(ids, ids).isfinite().all()


def test_the_last_norm_that_the_note_places_in_the_paper_is_there_only_with_pre_norm():
    assert isinstance(little(norm_first=False).encoder_norm, nn.Identity)
    assert isinstance(little(norm_first=True).encoder_norm, nn.LayerNorm)


# The decoder (001-15).


class NoteDecoderLayer(nn.Module):
    def __init__(self, dim_model, num_heads):
        super().__init__()
        dim_head = dim_model // num_heads
        self.masked_attention = NoteMultiHeadAttention(dim_model, num_heads, dim_head)
        self.enc_dec_attention = NoteMultiHeadAttention(dim_model, num_heads, dim_head)
        self.layer_norm1, self.layer_norm2, self.layer_norm3 = (nn.LayerNorm(dim_model) for _ in range(3))
        self.ffn = nn.Sequential(nn.Linear(dim_model, 4 * dim_model), nn.GELU(), nn.Linear(4 * dim_model, dim_model))

    def forward(self, x, dec_mask, enc_dec_mask, enc_output):
        residual_x = x + self.masked_attention(self.layer_norm1(x), dec_mask)
        ln_x2 = self.layer_norm2(residual_x)
        residual_x = x + self.enc_dec_attention(ln_x2, enc_dec_mask, enc_output)  # the slip: x, not residual_x
        return residual_x + self.ffn(self.layer_norm3(residual_x))


def test_masked_attention_gets_lost_in_the_note_when_cross_attention_is_silent():
    layer, x, memory = NoteDecoderLayer(8, 2), torch.randn(1, 4, 8), torch.randn(1, 5, 8)
    nn.init.zeros_(layer.enc_dec_attention.fc_concat.weight)
    nn.init.zeros_(layer.enc_dec_attention.fc_concat.bias)
    before = layer(x, causal_mask(4), None, memory)
    nn.init.normal_(layer.masked_attention.fc_concat.weight)
    assert gap(layer(x, causal_mask(4), None, memory), before) == 0


@pytest.mark.parametrize("norm_first", [False, True])
def test_masked_attention_reaches_the_output_here(norm_first):
    model, target = little(norm_first=norm_first), torch.tensor([[1, 2, 3, 4]])
    nn.init.zeros_(model.decoder[0].cross_attention.out.weight)
    before = model(IDS, target)
    nn.init.normal_(model.decoder[0].attention.out.weight)
    assert gap(model(IDS, target), before) > 1e-3


def test_the_text_hides_source_words_from_cross_attention_and_ours_hides_padding_only():
    source, target, model = torch.tensor([[5, 6, 7, 0]]), torch.tensor([[1, 2, 3, 4]]), little()
    three_masks = causal_mask(4) & padding_mask(target, 0) & padding_mask(source, 0)
    with attention_maps(model) as maps:
        model(source, target)
    seen = maps["decoder.0.cross_attention"][0] > 0
    assert torch.equal(seen, padding_mask(source, 0).expand(1, 2, 4, 4))
    assert not torch.equal(seen, three_masks.expand(1, 2, 4, 4))


# Masks and the whole (001-16).


def note_enc_masking(x: Tensor, pad: int) -> Tensor:
    return (x != pad).int().repeat(1, x.shape[-1]).view(x.shape[0], x.shape[1], x.shape[-1])


def note_dec_masking(x: Tensor, pad: int) -> Tensor:
    pad_mask = note_enc_masking(x, pad)
    lm_mask = torch.tril(torch.ones(x.shape[0], x.shape[-1], x.shape[-1]))
    return pad_mask * lm_mask


def test_the_decoder_mask_of_the_note_is_made_of_fractions_and_ours_of_true_and_false():
    theirs, ours = note_dec_masking(IDS, 0), decoder_mask(IDS, 0)
    assert theirs.dtype == torch.float32
    assert ours.dtype == torch.bool
    assert torch.equal(theirs.bool(), ours[:, 0])


def test_the_decoder_mask_of_the_note_is_bound_to_the_cpu_and_ours_goes_where_the_words_are():
    elsewhere = IDS.to("meta")
    with pytest.raises(RuntimeError, match="device"):
        note_dec_masking(elsewhere, 0)
    assert decoder_mask(elsewhere, 0).device.type == "meta"


def test_the_note_copies_one_mask_per_query_and_ours_is_shared_by_all():
    assert note_enc_masking(IDS, 0).numel() == 8 * 8
    assert padding_mask(IDS, 0).numel() == 8
    assert torch.equal(note_enc_masking(IDS, 0).bool(), padding_mask(IDS, 0)[:, 0].expand(1, 8, 8))


def test_padding_on_the_left_is_not_a_number_in_the_note_and_finite_here():
    x = torch.randn(1, 4, 8)
    theirs = NoteMultiHeadAttention(8, 2, 4)(x, note_dec_masking(LEFT_PADDED, 0))
    assert theirs[:, :2].isnan().all()
    assert theirs[:, 2:].isfinite().all()
    assert explicit(x, x, x, decoder_mask(LEFT_PADDED, 0)[:, 0]).isfinite().all()
    model = little()
    assert model(LEFT_PADDED, LEFT_PADDED).isfinite().all()
    assert model(LEFT_PADDED, LEFT_PADDED, LEFT_PADDED != 0).isfinite().all()


def test_masks_of_true_and_false_need_no_integers():
    score, keep = torch.randn(1, 8, 8), note_enc_masking(IDS, 0)
    with_integers = score.masked_fill(keep == 0, -math.inf)
    assert torch.equal(with_integers, score.masked_fill(~keep.bool(), -math.inf))
    assert torch.equal(explicit(score, score, score, keep.bool()), note_attention(score, score, score, 8**0.5, keep))


def test_filling_where_the_mask_keeps_turns_it_around():
    score, keep = torch.randn(1, 8, 8), padding_mask(IDS, 0)[:, 0]
    turned = score.masked_fill(keep, -math.inf).softmax(-1)
    assert (turned[..., :4] == 0).all()
    assert (turned[..., 4:] > 0).all()
    assert score.masked_fill(torch.ones_like(keep), -math.inf).softmax(-1).isnan().all()
    ours = explicit(score, score, torch.eye(8), keep)
    assert (ours[..., :4] > 0).all()
    assert (ours[..., 4:] == 0).all()


def test_the_model_of_the_note_does_not_run_and_ours_does():
    words, encoder = nn.Embedding(11, 8), NoteEncoder(max_seq=8, dim_model=8)
    with pytest.raises(RuntimeError):
        encoder(words(IDS))
    assert little()(IDS, IDS).isfinite().all()
