"""How a Transformer knows word order. Shapes as in dragoman.model.positions."""

import math
from typing import Any

import pytest
import torch
from conftest import gap, step_by_step, tiny_transformer
from torch import Tensor, nn
from transformers import M2M100Config
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

from dragoman.config import AttentionConfig, TransformerConfig
from dragoman.errors import UsageError
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.capture import AttentionCapture
from dragoman.model.packing import Packing
from dragoman.model.positions import (
    FIRST_LENGTH,
    POSITIONS,
    Relative,
    Table,
    build_positions,
    sinusoids,
    sinusoids_in_halves,
)
from dragoman.model.transformer import Transformer

HEADS, D_K, D_MODEL, PLACES = 2, 6, 12, 10


pytestmark = pytest.mark.usefixtures("seeded_double_precision")


def config_of(
    positions: Any, d_model: int = D_MODEL, d_k: int = D_K, max_length: int = PLACES, heads: int = HEADS
) -> TransformerConfig:
    attention = AttentionConfig(heads, d_k, d_k)
    return TransformerConfig(d_model, attention=attention, positions=positions, max_length=max_length)


def scheme(name: str, d_model: int = D_MODEL, d_k: int = D_K, max_length: int = PLACES):
    positions = build_positions(config_of(name, d_model, d_k, max_length))
    for table in positions.parameters():
        nn.init.normal_(table)
    return positions


def model_with(positions: str, first_position: int = 0, **changes) -> Transformer:
    config = tiny_transformer(
        d_model=D_MODEL,
        attention=AttentionConfig(heads=HEADS, **changes),
        d_ff=8,
        positions=positions,
        first_position=first_position,
        max_length=PLACES,
    )
    return Transformer(config, vocabulary=9).eval()


# The sinusoids of the paper.


def of_the_paper(place: int, column: int, size: int) -> float:
    angle = place / 10000 ** (2 * (column // 2) / size)
    return math.cos(angle) if column % 2 else math.sin(angle)


def of_marian(place: int, column: int, size: int) -> float:
    half = (size + 1) // 2
    angle = place * 10000 ** (-(column % half) / max(half - 1, 1))
    return math.sin(angle) if column < half else math.cos(angle)


def table_of(formula, length: int, size: int) -> Tensor:
    return torch.tensor([[formula(place, column, size) for column in range(size)] for place in range(length)])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7, 12])
def test_sinusoids_are_the_formulas_of_the_paper_and_of_marian(size):
    paper, marian = sinusoids(20, size), sinusoids_in_halves(20, size)
    assert gap(paper, table_of(of_the_paper, 20, size)) <= 1e-12
    assert gap(marian, table_of(of_marian, 20, size)) <= 1e-12
    assert size < 3 or gap(paper, marian) > 0.1


# The schemes in use.


@pytest.mark.parametrize("name", ["sinusoidal", "sinusoidal-halves"])
@pytest.mark.parametrize("places", [3 * PLACES, FIRST_LENGTH + 1])
def test_table_of_sinusoids_is_there_when_it_is_needed(name, places):
    positions, x = scheme(name), torch.randn(1, places, D_MODEL)
    formula = {"sinusoidal": of_the_paper, "sinusoidal-halves": of_marian}[name]
    assert positions.table.size(0) == 0
    positions.embed(x[:, :3], 0)
    assert positions.table.size(0) == FIRST_LENGTH
    added = positions.embed(x, 0) - x
    assert gap(added[0], table_of(formula, places, D_MODEL)) <= 1e-12
    assert gap(added[0, 1:], table_of(formula, places, D_MODEL)[:-1]) > 0.1


@pytest.mark.parametrize("name", [name for name, kind in POSITIONS.items() if issubclass(kind, Table)])
def test_grown_table_keeps_the_type_of_the_old_one(name):
    positions = scheme(name).float()
    positions.embed(torch.randn(1, 2 * FIRST_LENGTH, D_MODEL), 0)
    positions.rotate(torch.randn(1, HEADS, 2 * FIRST_LENGTH, D_K), 0)
    assert positions.table.size(0) > FIRST_LENGTH
    assert positions.table.dtype == torch.float32


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_save_only_what_learns(name):
    """Tables are computed again."""
    assert set(scheme(name).state_dict()) == {parameter for parameter, _ in scheme(name).named_parameters()}


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_of_the_end_of_a_sentence_are_those_in_the_whole(name):
    positions, x = scheme(name), torch.randn(2, 8, D_MODEL)
    heads = torch.randn(2, HEADS, 8, D_K)
    bias = positions.bias(0, 8, 8)
    assert gap(positions.embed(x[:, 5:], 5), positions.embed(x, 0)[:, 5:]) <= 1e-12
    assert gap(positions.rotate(heads[:, :, 5:], 5), positions.rotate(heads, 0)[:, :, 5:]) <= 1e-12
    if bias is not None:
        torch.testing.assert_close(positions.bias(5, 3, 8), bias[:, 5:], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", [name for name in POSITIONS if name != "none"])
def test_positions_of_another_place_differ_control(name):
    positions, x = scheme(name), torch.randn(2, 3, D_MODEL)
    heads = torch.randn(2, HEADS, 3, D_K)
    bias = positions.bias(0, 3, 8)
    assert (
        gap(positions.embed(x, 5), positions.embed(x, 0)) > 1e-3
        or gap(positions.rotate(heads, 5), positions.rotate(heads, 0)) > 1e-3
        or gap(positions.bias(5, 3, 8), bias) > 1e-3
    )


def test_position_schemes_without_a_line_are_refused_with_known_names(monkeypatch):
    config = config_of("relative")
    assert isinstance(build_positions(config), Relative)
    monkeypatch.delitem(POSITIONS, "relative")
    with pytest.raises(UsageError, match=r"^no position scheme .relative.*choose from none, sinusoidal, "):
        build_positions(config)


# Learned places.


def test_learned_positions_are_added_and_only_those_in_use_learn():
    positions, x = scheme("learned"), torch.randn(2, 3, D_MODEL)
    embedded = positions.embed(x, 4)
    assert torch.equal(embedded, x + positions.table.weight[4:7])
    embedded.square().sum().backward()
    used = positions.table.weight.grad.abs().sum(-1) > 0
    assert used.tolist() == [4 <= place < 7 for place in range(PLACES)]


def test_learned_positions_of_encoder_and_decoder_are_separate():
    model = model_with("learned")
    assert model.encoder_positions.table.weight is not model.decoder_positions.table.weight


def test_learned_table_begins_as_small_as_embeddings():
    table = build_positions(config_of("learned", 400, 100, 1000, heads=4)).table.weight
    assert table.std().item() == pytest.approx(400**-0.5, rel=0.02)


@pytest.mark.parametrize(("start", "tokens"), [(0, PLACES + 1), (PLACES - 1, 2), (5, 6)])
def test_learned_places_end_at_max_length(start, tokens):
    positions = scheme("learned")
    with pytest.raises(ValueError, match=rf"{start + tokens} tokens.*{PLACES}.*max_length"):
        positions.embed(torch.randn(1, tokens, D_MODEL), start)
    assert positions.embed(torch.randn(1, tokens - 1, D_MODEL), start).shape == (1, tokens - 1, D_MODEL)


# Turned queries and keys.


def turn_by(steps: int, size: int) -> Tensor:
    """Return the matrix that rotates each pair of numbers by its own angle."""
    blocks = []
    for pair in range(size // 2):
        angle = steps / 10000 ** (2 * pair / size)
        blocks.append(torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]))
    return torch.block_diag(*blocks)


@pytest.mark.parametrize("start", [0, 70, FIRST_LENGTH])
def test_rotary_positions_turn_by_the_angles_of_the_paper(start):
    x = torch.randn(1, HEADS, 8, D_K)
    rotated = scheme("rotary").rotate(x, start)[0]
    assert gap(rotated, torch.stack([x[0, :, t] @ turn_by(start + t, D_K) for t in range(8)], 1)) <= 1e-11
    backwards = torch.stack([x[0, :, t] @ turn_by(-start - t, D_K) for t in range(8)], 1)
    assert gap(rotated, backwards) > 1e-3


def test_rotary_positions_refuse_what_has_no_pairs():
    with pytest.raises(UsageError, match=r"even.*5"):
        scheme("rotary", d_k=5)
    with pytest.raises(UsageError, match=r"even.*5"):
        model_with("rotary", d_k=5, d_v=6)
    assert model_with("rotary", d_k=6, d_v=5) is not None


# Learned distances.


@pytest.mark.parametrize("reach", [3, Relative.reach])
def test_relative_scores_depend_on_head_and_distance_within_reach(monkeypatch, reach):
    monkeypatch.setattr(Relative, "reach", reach)
    positions = scheme("relative")
    table, start, queries, keys = positions.scores.weight, reach + 2, 5, 3 * reach
    distances = [[key - query for key in range(keys)] for query in range(start, start + queries)]
    rows = torch.tensor([[min(max(distance, -reach), reach) + reach for distance in row] for row in distances])
    assert torch.equal(
        positions.bias(start, queries, keys), torch.stack([table[:, head][rows] for head in range(HEADS)])
    )
    assert set(rows.flatten().tolist()) == set(range(2 * reach + 1))


def test_relative_scores_begin_as_if_there_were_none():
    fresh = build_positions(config_of("relative"))
    assert (fresh.bias(0, 8, 8) == 0).all()
    assert (scheme("relative").bias(0, 8, 8) != 0).all()


# Whole models.


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize(("source", "target"), [(PLACES + 1, 3), (3, PLACES + 1)])
def test_positions_limit_source_and_target_only_where_the_config_limits_them(positions, source, target):
    model, fitting = model_with(positions), torch.full((1, PLACES), 3)
    sentences = torch.full((1, source), 3), torch.full((1, target), 3)
    assert model(fitting, fitting).isfinite().all()
    limit = model.config.max_positions
    assert positions != "learned" or limit == PLACES
    if limit is None:
        assert model(*sentences).isfinite().all()
        return
    for sizes in ([target], [1] * target):
        with pytest.raises(ValueError, match="max_length"):
            step_by_step(model, *sentences, sizes)


@pytest.mark.parametrize("positions", POSITIONS)
def test_encoder_knows_order_unless_it_has_no_positions(positions):
    model = model_with(positions)
    for table in model.encoder_positions.parameters():
        nn.init.normal_(table)
    source, order = torch.tensor([[3, 4, 5, 6, 7, 8]]), torch.tensor([3, 0, 5, 1, 4, 2])
    differs = gap(model.start(source[:, order]).memory, model.start(source).memory[order])
    assert differs <= 1e-12 if positions == "none" else differs > 1e-3


def test_rotary_layer_turns_its_queries_and_its_keys():
    layer, rotary = MultiHeadAttention(D_MODEL, AttentionConfig(heads=HEADS)), scheme("rotary")
    x, packing = torch.randn(5, D_MODEL), Packing.full(torch.zeros(1, 5))

    def attend(queries_from: int, keys_from: int) -> Tensor:
        seen = layer.project(x, packing, lambda y: rotary.rotate(y, keys_from))
        return layer(x, packing, seen, None, lambda y: rotary.rotate(y, queries_from))

    assert gap(attend(3, 3), attend(0, 0)) <= 1e-12  # only distances count
    assert gap(attend(3, 0), attend(0, 0)) > 1e-4  # and both sides have places
    assert gap(attend(0, 3), attend(0, 0)) > 1e-4


def across(positions: str, source: Tensor, target: Tensor) -> Tensor:
    """What attention over the source sees of a model whose words are all the same: (H, T, S)."""
    model = model_with(positions)
    model.encoder = torch.nn.ModuleList()  # what the source's words look like is the same at all its places
    capture = AttentionCapture(model)
    capture.run(source, target)
    return capture.weights["cross"][0][0]


def test_attention_over_the_source_knows_distances_where_it_is_turned():
    source, target = torch.full((1, 9), 3), torch.full((1, 6), 3)
    weights = across("rotary-across", source, target).log()
    scores = weights - weights[:, :, :1]  # of each query, up to a constant
    by_distance = scores[:, 1:, 1:] - scores[:, 1:, 1:2]
    moved = scores[:, :-1, :-1] - scores[:, :-1, :1]
    assert gap(by_distance, moved) <= 1e-9  # one token further in both is the same
    assert by_distance.abs().max() > 1e-3
    for other in ("rotary", "none"):  # the control: all source tokens are the same to them
        assert gap(across(other, source, target), torch.full((HEADS, 6, 9), 1 / 9)) <= 1e-9


# The position of the first token, which fairseq counts from 2.


@pytest.mark.parametrize("sizes", [[7], [1] * 7, [1, 3, 2, 1]])
@pytest.mark.parametrize(
    ("positions", "formula"), [("sinusoidal", sinusoids), ("sinusoidal-halves", sinusoids_in_halves)]
)
def test_sentence_may_begin_at_a_later_position_with_caches_and_without(positions, formula, sizes):
    source, target = torch.randint(3, 9, (2, 5)), torch.randint(3, 9, (2, 7))
    found = step_by_step(model := model_with(positions, first_position=2), source, target, sizes)
    other = model_with(positions)
    other.load_state_dict(model.state_dict())
    assert gap(other(source, target), found) > 1e-3  # the control
    for table in (other.encoder_positions, other.decoder_positions):
        table.formula = lambda length, size: formula(length + 2, size)[2:]
        table.table = table.table[:0]
    assert gap(other(source, target), found) <= 1e-12


def test_m2m100_begins_at_position_2():
    """Its table is computed in 32 bits, and is exact only for short sentences."""
    padding = M2M100Config().pad_token_id
    theirs = M2M100SinusoidalPositionalEmbedding(20, D_MODEL, padding)(torch.full((1, 9), padding + 1))[0]
    assert gap(sinusoids_in_halves(11, D_MODEL)[2:], theirs) <= 1e-6
    assert gap(sinusoids_in_halves(9, D_MODEL), theirs) > 1e-3


@pytest.mark.parametrize("positions", sorted({*POSITIONS} - {"sinusoidal", "sinusoidal-halves"}))
def test_first_position_without_effect_is_refused(positions):
    with pytest.raises(UsageError, match=f"first_position is for sinusoidal positions; positions = '{positions}'"):
        model_with(positions, first_position=2)
