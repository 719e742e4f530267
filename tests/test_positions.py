"""How a Transformer knows word order. Shapes as in dragoman.model.positions."""

import math

import pytest
import torch
from conftest import gap, tiny_transformer
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dragoman.config import AttentionConfig
from dragoman.errors import UsageError
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.capture import AttentionCapture
from dragoman.model.packing import Packing
from dragoman.model.positions import (
    FIRST_LENGTH,
    POSITIONS,
    Relative,
    build_positions,
    sinusoids,
    sinusoids_in_halves,
)
from dragoman.model.transformer import Transformer

HEADS, D_K, D_MODEL, PLACES = 2, 6, 12, 10


pytestmark = pytest.mark.usefixtures("seeded_double_precision")


def scheme(name: str, d_model: int = D_MODEL, d_k: int = D_K, max_length: int = PLACES):
    positions = POSITIONS[name](d_model, HEADS, d_k, max_length)
    for table in positions.parameters():
        nn.init.normal_(table)
    return positions


def model_with(positions: str, **changes) -> Transformer:
    attention = AttentionConfig(heads=HEADS, **changes)
    config = tiny_transformer(d_model=D_MODEL, attention=attention, d_ff=8, positions=positions, max_length=PLACES)
    return Transformer(config, vocabulary=9).eval()


def test_an_unknown_scheme_is_refused_with_the_names_that_there_are():
    with pytest.raises(UsageError, match=r"^no position scheme .slope.*there are none, sinus.*relative$"):
        build_positions("slope", D_MODEL, HEADS, D_K, PLACES)


def by_distance(table: Tensor) -> bool:
    """Whether the entries (T, S) of a table depend on s - t only."""
    return gap(table[:-1, :-1], table[1:, 1:]) <= 1e-10


# The sinusoids of the paper.


def test_the_first_four_places_of_four_numbers():
    expected = [
        [0, 1, 0, 1],
        [0.8415, 0.5403, 0.0100, 1.0],
        [0.9093, -0.4161, 0.0200, 0.9998],
        [0.1411, -0.9900, 0.0300, 0.9996],
    ]
    assert gap(sinusoids(4, 4), torch.tensor(expected)) <= 5.1e-5
    assert gap(sinusoids_in_halves(4, 4), torch.tensor(expected)) > 0.1


def test_place_1_of_256_numbers():
    assert sinusoids(50, 256)[1, :6].tolist() == pytest.approx(
        [0.8415, 0.5403, 0.8020, 0.5974, 0.7617, 0.6479], abs=5.1e-5
    )


def of_the_paper(place: int, column: int, size: int) -> float:
    angle = place / 10000 ** (2 * (column // 2) / size)
    return math.cos(angle) if column % 2 else math.sin(angle)


def of_marian(place: int, column: int, size: int) -> float:
    half = size // 2
    angle = place * 10000 ** (-(column % half) / (half - 1))
    return math.sin(angle) if column < half else math.cos(angle)


def table_of(formula, length: int, size: int) -> Tensor:
    return torch.tensor([[formula(place, column, size) for column in range(size)] for place in range(length)])


@pytest.mark.parametrize("size", [1, 2, 7, 12])
def test_sinusoids_are_the_formula_of_the_paper_also_for_odd_sizes(size):
    assert gap(sinusoids(20, size), table_of(of_the_paper, 20, size)) <= 1e-12


def test_an_odd_size_ends_with_a_sine():
    last = sinusoids(20, 7)[:, -1]
    angle = torch.arange(20.0) / 10000 ** (6 / 7)
    assert gap(last, angle.sin()) <= 1e-12
    assert gap(last, angle.cos()) > 0.1


@pytest.mark.parametrize("size", [4, 6, 12])
def test_halves_are_the_formula_of_marian(size):
    assert gap(sinusoids_in_halves(20, size), table_of(of_marian, 20, size)) <= 1e-12
    assert gap(sinusoids_in_halves(20, size), table_of(of_the_paper, 20, size)) > 0.1


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_halves_of_any_size_are_finite_and_as_wide_as_asked(size):
    table = sinusoids_in_halves(5, size)
    assert table.shape == (5, size)
    assert table.isfinite().all()


def test_every_place_has_a_row_of_its_own():
    rows = sinusoids(50, 256)
    distance = torch.cdist(rows, rows).fill_diagonal_(math.inf)
    assert float(distance.min()) == pytest.approx(2.6712, abs=5.1e-5)
    one_wave_of_four = (torch.arange(50)[:, None] * math.pi / 2).sin()
    assert float(torch.cdist(one_wave_of_four, one_wave_of_four).fill_diagonal_(math.inf).min()) < 1e-10


def test_all_numbers_lie_between_minus_1_and_1():
    assert float(sinusoids(2000, 64).abs().max()) <= 1


def test_every_row_is_equally_long():
    norms = sinusoids(512, 512).norm(dim=-1)
    assert gap(norms, torch.full((512,), 16.0)) <= 1e-10
    sines_alone = sinusoids(512, 512)[:, ::2].norm(dim=-1)
    assert float(sines_alone.std()) > 0.1


@pytest.mark.parametrize(("apart", "distance"), [(1, 3.7143), (5, 11.5242)])
def test_places_equally_far_apart_are_at_the_same_distance(apart, distance):
    table = sinusoids(512, 512)
    gaps = (table[apart:] - table[:-apart]).norm(dim=-1)
    assert gap(gaps, torch.full_like(gaps, distance)) <= 5.1e-5
    integers = torch.arange(512.0)[:, None].square()
    assert float((integers[apart:] - integers[:-apart]).norm(dim=-1).std()) > 1


def test_the_product_of_two_places_depends_on_their_distance_only():
    table = sinusoids(64, 512)
    products = table @ table.mT
    assert by_distance(products)
    assert products[0, :4].tolist() == pytest.approx([256, 249.10, 231.73, 211.75], abs=5.1e-3)
    assert not by_distance(table[:, ::2] @ table[:, ::2].mT)


def turn_by(steps: int, size: int) -> Tensor:
    """The matrix R with PE(t + steps) = R PE(t): each pair (sin, cos) turned by its own angle."""
    blocks = []
    for pair in range(size // 2):
        angle = steps / 10000 ** (2 * pair / size)
        blocks.append(torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]))
    return torch.block_diag(*blocks)


@given(st.integers(0, 200))
def test_moving_on_is_one_linear_map_for_all_places(steps):
    table = sinusoids(300, 12)
    assert gap(table[:100] @ turn_by(steps, 12).mT, table[steps : steps + 100]) <= 1e-11
    assert gap(table[:100] @ turn_by(steps + 1, 12).mT, table[steps : steps + 100]) > 1e-3


def test_wavelengths_grow_geometrically_from_2_pi_to_10000_times_as_much():
    size = 512
    sin, cos = sinusoids(2, size)[1].unflatten(-1, (-1, 2)).unbind(-1)
    wavelengths = 2 * math.pi / torch.atan2(sin, cos)
    ratio = wavelengths[1:] / wavelengths[:-1]
    assert float(wavelengths[0]) == pytest.approx(2 * math.pi)
    assert gap(ratio, torch.full_like(ratio, 10000 ** (2 / size))) <= 1e-9
    assert float(wavelengths[-1] * ratio[-1]) == pytest.approx(10000 * 2 * math.pi)


# The schemes in use.


@pytest.mark.parametrize("name", ["sinusoidal", "sinusoidal-halves"])
@pytest.mark.parametrize("places", [3 * PLACES, FIRST_LENGTH + 1])
def test_the_table_of_sinusoids_is_there_when_it_is_needed(name, places):
    positions, x = scheme(name), torch.randn(1, places, D_MODEL)
    formula = {"sinusoidal": of_the_paper, "sinusoidal-halves": of_marian}[name]
    assert positions.table.size(0) == 0
    positions.embed(x[:, :3], 0)
    assert positions.table.size(0) == FIRST_LENGTH
    added = positions.embed(x, 0) - x
    assert gap(added[0], table_of(formula, places, D_MODEL)) <= 1e-12
    assert gap(added[0, 1:], table_of(formula, places, D_MODEL)[:-1]) > 0.1


@pytest.mark.parametrize("name", ["sinusoidal", "sinusoidal-halves", "rotary"])
def test_a_grown_table_keeps_the_type_of_the_old_one(name):
    positions = scheme(name).float()
    positions.embed(torch.randn(1, 2 * FIRST_LENGTH, D_MODEL), 0)
    positions.rotate(torch.randn(1, HEADS, 2 * FIRST_LENGTH, D_K), 0)
    assert positions.table.size(0) > FIRST_LENGTH
    assert positions.table.dtype == torch.float32


@pytest.mark.parametrize("name", ["none", "sinusoidal", "sinusoidal-halves", "rotary"])
def test_a_formula_has_nothing_to_learn_and_nothing_to_save(name):
    assert not list(scheme(name).parameters())
    assert not scheme(name).state_dict()


@pytest.mark.parametrize("name", ["learned", "relative"])
def test_a_table_is_learned_and_saved(name):
    assert len(list(scheme(name).parameters())) == len(scheme(name).state_dict()) == 1


@pytest.mark.parametrize("name", POSITIONS)
def test_the_end_of_a_sentence_gets_what_it_gets_in_the_whole(name):
    positions, x = scheme(name), torch.randn(2, 8, D_MODEL)
    heads = torch.randn(2, HEADS, 8, D_K)
    bias = positions.bias(0, 8, 8)
    assert gap(positions.embed(x[:, 5:], 5), positions.embed(x, 0)[:, 5:]) <= 1e-12
    assert gap(positions.rotate(heads[:, :, 5:], 5), positions.rotate(heads, 0)[:, :, 5:]) <= 1e-12
    assert bias is None or gap(positions.bias(5, 3, 8), bias[:, 5:]) <= 1e-12


@pytest.mark.parametrize("name", [name for name in POSITIONS if name != "none"])
def test_another_place_gets_something_else(name):
    positions, x = scheme(name), torch.randn(2, 3, D_MODEL)
    heads = torch.randn(2, HEADS, 3, D_K)
    bias = positions.bias(0, 3, 8)
    assert (
        gap(positions.embed(x, 5), positions.embed(x, 0)) > 1e-3
        or gap(positions.rotate(heads, 5), positions.rotate(heads, 0)) > 1e-3
        or gap(positions.bias(5, 3, 8), bias) > 1e-3
    )


def test_no_positions_change_nothing():
    positions, x = scheme("none"), torch.randn(2, 3, D_MODEL)
    assert positions.embed(x, 5) is x
    assert positions.rotate(x, 5) is x
    assert positions.bias(0, 3, 3) is None


# Learned places.


def test_only_places_in_use_learn():
    positions = scheme("learned")
    positions.embed(torch.randn(2, 3, D_MODEL), 4).square().sum().backward()
    used = positions.table.weight.grad.abs().sum(-1) > 0
    assert used.tolist() == [4 <= place < 7 for place in range(PLACES)]


def test_learned_places_are_added_to_the_embeddings():
    positions, x = scheme("learned"), torch.randn(2, 3, D_MODEL)
    assert torch.equal(positions.embed(x, 4), x + positions.table.weight[4:7])
    assert not torch.equal(positions.embed(x, 4), x + positions.table.weight[:3])


@pytest.mark.parametrize(("start", "tokens"), [(0, PLACES + 1), (PLACES - 1, 2), (5, 6)])
def test_learned_places_end_at_max_length(start, tokens):
    positions = scheme("learned")
    with pytest.raises(ValueError, match=rf"{start + tokens} tokens.*{PLACES}.*max_length"):
        positions.embed(torch.randn(1, tokens, D_MODEL), start)
    assert positions.embed(torch.randn(1, tokens - 1, D_MODEL), start).shape == (1, tokens - 1, D_MODEL)


def test_encoder_and_decoder_learn_places_of_their_own():
    model = model_with("learned")
    assert model.encoder_positions.table.weight is not model.decoder_positions.table.weight
    model.start(torch.tensor([[3, 4, 5]])).memory.square().sum().backward()
    assert model.encoder_positions.table.weight.grad is not None
    assert model.decoder_positions.table.weight.grad is None


# Turned queries and keys.


def scores_of_equal_tokens(positions) -> Tensor:
    """(T, S): the same query at every place against the same key at every place."""
    query, key = (torch.randn(1, HEADS, 1, D_K).expand(-1, -1, 8, -1) for _ in range(2))
    return (positions.rotate(query, 0) @ positions.rotate(key, 0).mT)[0, 0]


def test_rotary_scores_depend_on_the_distance_only():
    positions = scheme("rotary")
    scores = scores_of_equal_tokens(positions)
    query, key = torch.randn(1, HEADS, 8, D_K), torch.randn(1, HEADS, 1, D_K).expand(-1, -1, 8, -1)
    assert by_distance(scores)
    assert float(scores[0].std()) > 1e-3
    assert not by_distance((positions.rotate(query, 0) @ key.mT)[0, 0])


@given(st.integers(0, 100))
def test_moving_a_whole_sentence_leaves_rotary_scores_alone(start):
    torch.manual_seed(0)
    positions, query, key = scheme("rotary"), torch.randn(1, HEADS, 8, D_K), torch.randn(1, HEADS, 8, D_K)
    here = positions.rotate(query, 0) @ positions.rotate(key, 0).mT
    there = positions.rotate(query, start) @ positions.rotate(key, start).mT
    moved_apart = positions.rotate(query, start + 1) @ positions.rotate(key, start).mT
    assert gap(here, there) <= 1e-11
    assert gap(here, moved_apart) > 1e-3


def test_rotary_positions_turn_pairs_and_change_no_length():
    positions, x = scheme("rotary"), torch.randn(2, HEADS, 8, D_K)
    turned = positions.rotate(x, 3)
    assert gap(turned.unflatten(-1, (-1, 2)).norm(dim=-1), x.unflatten(-1, (-1, 2)).norm(dim=-1)) <= 1e-12
    assert gap(turned, x) > 1e-3


def test_rotary_positions_turn_by_the_angles_of_the_paper():
    x = torch.randn(1, HEADS, 8, D_K)
    turned = torch.stack([x[0, :, t] @ turn_by(t, D_K) for t in range(8)], 1)
    assert gap(scheme("rotary").rotate(x, 0)[0], turned) <= 1e-12
    backwards = torch.stack([x[0, :, t] @ turn_by(-t, D_K) for t in range(8)], 1)
    assert gap(scheme("rotary").rotate(x, 0)[0], backwards) > 1e-3


def test_rotary_positions_need_no_max_length():
    x = torch.randn(1, HEADS, 3, D_K)
    assert gap(scheme("rotary").rotate(x, 70), scheme("rotary", max_length=100).rotate(x, 70)) <= 1e-12


def test_rotary_positions_refuse_what_has_no_pairs():
    with pytest.raises(ValueError, match=r"even.*5"):
        scheme("rotary", d_k=5)
    with pytest.raises(UsageError, match=r"even.*5"):
        model_with("rotary", d_k=5, d_v=6)
    assert model_with("rotary", d_k=6, d_v=5) is not None


# Learned distances.


@pytest.fixture
def short_reach(monkeypatch):
    monkeypatch.setattr(Relative, "reach", 3)


def test_relative_scores_depend_on_the_distance_only():
    bias = scheme("relative").bias(0, 8, 8)
    assert bias.shape == (HEADS, 8, 8)
    assert by_distance(bias[0])
    assert by_distance(bias[1])
    assert not by_distance(bias[0] + torch.arange(8.0))


def test_relative_scores_differ_by_head_by_distance_and_by_direction():
    bias = scheme("relative").bias(0, 8, 8)
    assert gap(bias[0], bias[1]) > 1e-3
    assert len(bias[0, 0].unique()) == 8
    assert gap(bias[0], bias[0].mT) > 1e-3


def test_beyond_its_reach_every_distance_counts_as_one():
    positions = scheme("relative")
    reach = positions.reach
    to_the_right = positions.bias(0, 1, 2 * reach)[0, 0]
    to_the_left = positions.bias(2 * reach, 1, 2 * reach + 1)[0, 0].flip(0)
    for scores in (to_the_right, to_the_left):
        assert len(scores[: reach + 1].unique()) == reach + 1
        assert len(scores[reach:].unique()) == 1


def test_relative_scores_reach_as_far_as_the_class_says(short_reach):
    bias = scheme("relative").bias(0, 1, 10)[0, 0]
    assert len(bias.unique()) == 4


def test_relative_scores_begin_as_if_there_were_none():
    fresh = POSITIONS["relative"](D_MODEL, HEADS, D_K, PLACES)
    assert (fresh.bias(0, 8, 8) == 0).all()
    assert (scheme("relative").bias(0, 8, 8) != 0).all()


def test_only_distances_in_use_learn():
    positions = scheme("relative")
    positions.bias(0, 3, 3).square().sum().backward()
    used = (positions.scores.weight.grad.abs().sum(-1) > 0).nonzero().flatten() - positions.reach
    assert used.tolist() == [-2, -1, 0, 1, 2]


# Whole models.


@pytest.mark.parametrize("positions", [name for name in POSITIONS if name != "learned"])
def test_only_learned_places_limit_the_length_of_a_sentence(positions):
    source, target = (torch.randint(3, 9, (2, length)) for length in (2 * PLACES, 2 * PLACES + 3))
    assert model_with(positions)(source, target).isfinite().all()


@pytest.mark.parametrize(("source", "target"), [(PLACES + 1, 3), (3, PLACES + 1)])
def test_learned_places_limit_source_and_target(source, target):
    with pytest.raises(ValueError, match="max_length"):
        model_with("learned")(torch.full((1, source), 3), torch.full((1, target), 3))
    assert model_with("learned")(torch.full((1, PLACES), 3), torch.full((1, PLACES), 3)).isfinite().all()


def test_a_layer_turns_its_queries_and_its_keys():
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


def test_the_memory_is_turned_once_and_not_with_the_token_that_asks():
    model = model_with("rotary-across").eval()
    source, target = torch.randint(3, 9, (2, 7)), torch.randint(3, 9, (2, 5))
    state = model.start(source)
    steps = torch.cat([model.step(token, state) for token in target.split(1, 1)], 1)
    assert gap(steps, model(source, target)) <= 1e-12
