"""What `inspect` tells is what the model did: every number is computed once more, in a plainer way."""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable
from functools import cache, reduce
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from conftest import TINY, toy_pairs
from dragoman.inspection.attention import Word, attention_maps
from torch import Tensor

import dragoman
from dragoman.alignment import Alignment
from dragoman.config import AttentionConfig, RecurrentConfig, SearchConfig, TransformerConfig
from dragoman.data.tokenizer import BOS, EOS, Tokenizer
from dragoman.decoding.engine import Constraints
from dragoman.decoding.forced import score
from dragoman.decoding.search import length_penalty
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import UsageError
from dragoman.inspection import aggregates
from dragoman.inspection.heads import head_statistics
from dragoman.inspection.inspection import KINDS, Aggregate, Inspection, Kind, inspect, is_punctuation
from dragoman.inspection.occlusion import occlusion
from dragoman.inspection.tree import BeamTree, Fate, Recording
from dragoman.model import Model, build
from dragoman.translation.translator import Translator

DEEP = dataclasses.replace(TINY, encoder_layers=2, decoder_layers=3, attention=AttentionConfig(heads=4))
MODELS: dict[str, TransformerConfig | RecurrentConfig] = {
    "sinusoidal": DEEP,
    "rotary, pre-norm": dataclasses.replace(DEEP, positions="rotary", norm_first=True),
    "relative": dataclasses.replace(DEEP, positions="relative"),
    "additive": dataclasses.replace(DEEP, attention=AttentionConfig(heads=2, score="additive")),
    "lstm, dot": RecurrentConfig(d_model=16, attention="dot"),
    "gru, additive": RecurrentConfig(cell="gru", d_model=16, attention="additive"),
    "gru without attention": RecurrentConfig(cell="gru", d_model=16, attention="none"),
}
TRANSFORMERS = [name for name, config in MODELS.items() if isinstance(config, TransformerConfig)]
ATTENTIVE = [name for name in MODELS if name != "gru without attention"]
KINDS_OF = [(name, kind) for name in ATTENTIVE for kind in (get_args(Kind) if name in TRANSFORMERS else ["cross"])]

TEXT, TRANSLATION = "The rabbit. sees 3 black horses.", "토끼가 검은 말 3마리를 봐요."


@cache
def pieces() -> Tokenizer:
    return Tokenizer.train((text for pair in toy_pairs() for text in pair), suggested=400, tags=["ko"])


def make(config: TransformerConfig | RecurrentConfig, vocabulary: int, seed: int = 0) -> Model:
    """A model with opinions: fresh ones find everything about equally likely."""
    torch.manual_seed(seed)
    model = build(config, vocabulary).eval()
    with torch.no_grad():
        model.output.weight.mul_(3)
    return model


def translator(name: str = "sinusoidal", **search: Any) -> Translator:
    tokenizer = pieces()
    settings = SearchConfig(**{"beam": 3, "extra_length": 4, **search})
    return Translator(make(MODELS[name], len(tokenizer)), tokenizer, settings)


@cache
def seen(name: str = "sinusoidal") -> Inspection:
    return inspect(translator(name), TEXT, TRANSLATION)


def ids(inspection: Inspection) -> tuple[Tensor, Tensor]:
    return torch.tensor([[*inspection.source.ids, EOS]]), torch.tensor([[BOS, *inspection.target.ids]])


# Weights.


@pytest.mark.parametrize("name", MODELS)
def test_the_weights_are_those_of_one_pass_with_the_target_given(name: str):
    found, model = seen(name), translator(name).model
    with attention_maps(model) as maps, torch.no_grad():
        model(*ids(found))
    expected = {layer: calls[0][0] for layer, calls in maps.items()}
    if name not in TRANSFORMERS:
        assert found.encoder.shape[:2] == found.decoder.shape[:2] == (0, 0)
        assert list(found.cross) == [] if name not in ATTENTIVE else torch.equal(found.cross[0], expected["attention"])
        return
    for layer in range(2):
        assert torch.equal(found.encoder[layer], expected[f"encoder.{layer}.attention"])
    for layer in range(3):
        assert torch.equal(found.decoder[layer], expected[f"decoder.{layer}.attention"])
        assert torch.equal(found.cross[layer], expected[f"decoder.{layer}.cross_attention"])
    assert (len(found.encoder), len(found.decoder), len(found.cross)) == (2, 3, 3)


@pytest.mark.parametrize(("name", "kind"), KINDS_OF)
def test_the_weights_of_a_query_sum_to_one(name: str, kind: Kind):
    weights = seen(name).maps(kind)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_what_the_decoder_has_not_read_has_weight_zero(name: str):
    found = seen(name)
    assert not found.decoder.triu(1).any()
    assert (found.decoder.tril() > 0).sum() == found.decoder[..., 0].numel() * (found.decoder.size(-1) + 1) / 2
    assert found.encoder.triu(1).any()  # the control


@pytest.mark.parametrize(("name", "kind"), KINDS_OF)
def test_there_are_as_many_labels_as_rows_and_columns(name: str, kind: Kind):
    aggregates_of = get_args(Aggregate) if name in TRANSFORMERS else ("mean", "max")
    hidden = ((), ("ends",), ("ends", "punctuation"))
    for aggregate, by_pieces, hide in itertools.product(aggregates_of, (False, True), hidden):
        shown = seen(name).map(kind, aggregate=aggregate, pieces=by_pieces, hide=hide)
        assert shown.weights.shape == (len(shown.rows), len(shown.columns))
        if aggregate != "max":
            torch.testing.assert_close(shown.weights.sum(-1), torch.ones(len(shown.rows)))


def test_the_decoder_is_named_by_what_it_reads_and_across_by_what_it_predicts():
    found = seen()
    words = TRANSLATION.split()
    assert found.map("decoder").rows == found.map("decoder").columns == ["<s>", *words]
    assert found.map("cross").rows == [*words, "</s>"]
    assert found.map("cross").columns == found.map("encoder").rows == [*TEXT.split(), "</s>"]
    assert not found.map("decoder").weights.triu(1).any()  # words that are read look at no later word


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_map_of_words_is_the_sum_over_columns_and_the_mean_over_rows(kind: Kind):
    found = seen()
    for layer, head in [(1, 1), (2, 4), (2, None), (None, None)]:
        weights = found.weights(kind, layer, head)
        asking, asked = found.sides(kind)
        expected = [
            [
                sum(float(weights[i, j]) for i in row.tokens for j in column.tokens) / len(row.tokens)
                for column in asked.words
            ]
            for row in asking.words
        ]
        shown = found.map(kind, layer, head)
        torch.testing.assert_close(shown.weights, torch.tensor(expected))
        assert torch.equal(found.map(kind, layer, head, pieces=True).weights, weights)
    assert any(len(word.tokens) > 1 for word in found.target.words)  # the control: words are not pieces here


def test_what_is_hidden_is_left_out_and_the_rest_keeps_its_proportions():
    found = seen()
    whole, shown = (found.map("cross", 2, 1, pieces=True, hide=hide) for hide in ((), ("ends", "punctuation")))
    rows, columns = (
        [i for i, piece in enumerate(side.pieces) if piece.label not in {"</s>", ".", "␣"}]
        for side in (found.target, found.source)
    )
    assert len(columns) < len(found.source.pieces) - 2
    kept = whole.weights[rows][:, columns]
    torch.testing.assert_close(shown.weights, kept / kept.sum(-1, keepdim=True))
    assert "</s>" not in shown.rows + shown.columns
    assert "without start, end and tags and punctuation, each row scaled" in shown.caption
    assert "without" not in whole.caption
    assert "without" not in found.map("cross", hide=()).caption


def test_hidden_pieces_do_not_count_in_their_words():
    found = seen()
    (pieces, words), labels = (
        (found.map("cross", 1, 1, pieces=p, hide=["punctuation"]) for p in (True, False)),
        TEXT.split(),
    )
    assert words.columns == [*labels, "</s>"]  # no word here is nothing but punctuation
    word = found.source.words[1]
    gone = found.source.hidden(["punctuation"])
    kept = [i - len([j for j in gone if j < i]) for i in word.tokens if i not in gone]
    assert (word.label, len(word.tokens) - len(kept)) == ("rabbit.", 1)
    end = pieces.weights[-1]  # the end is a row of words and of pieces
    torch.testing.assert_close(words.weights[-1, 1], end[kept].sum())


def test_the_largest_value_keeps_its_sum_when_something_is_hidden():
    found = seen()
    whole, shown = (found.map("cross", aggregate="max", hide=hide) for hide in ((), ("ends",)))
    torch.testing.assert_close(shown.weights.sum(-1), whole.weights[:-1].sum(-1))
    assert (whole.weights.sum(-1) > 1).all()
    assert "sums to 1" not in whole.caption


@pytest.mark.parametrize(
    ("label", "expected"), [(".", True), ("␣...", True), ("␣", True), ("a.", False), ("</s>", False), ("+", True)]
)
def test_punctuation_is_told_from_words(label: str, expected: bool):
    assert is_punctuation(label) == expected


def test_a_tag_is_a_piece_a_word_and_an_end():
    found = inspect(translator(), TEXT, TRANSLATION, tag="ko")
    assert found.source.pieces[0].label == found.source.words[0].label == "<tag:ko>"
    assert found.source.hidden(["ends"]) == {0, len(found.source.ids)}
    assert found.source.text == TEXT


# Aggregates.


def random_maps(*sizes: int, causal: bool = False) -> Tensor:
    scores = torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)), dtype=torch.float64)
    return (scores.masked_fill(~torch.ones(sizes[-2:]).tril().bool(), -math.inf) if causal else scores).softmax(-1)


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize(("layer", "head"), [(None, None), (2, None), (None, 3), (1, 2)])
def test_aggregates_are_what_a_loop_finds(kind: Kind, layer: int | None, head: int | None):
    found, maps = seen(), seen().maps(kind)
    chosen = [
        maps[one, other]
        for one in range(len(maps))
        for other in range(maps.size(1))
        if layer in (None, one + 1) and head in (None, other + 1)
    ]
    torch.testing.assert_close(found.weights(kind, layer, head), sum(chosen) / len(chosen))
    assert torch.equal(found.weights(kind, layer, head, "max"), reduce(torch.maximum, chosen))


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("layer", [1, 2, None])
def test_a_rollout_is_the_product_of_the_layers(kind: Kind, layer: int | None):
    maps = seen().maps(kind).double()
    expected = torch.eye(maps.size(-1), dtype=torch.float64)
    for one in maps[:layer]:
        expected = (0.5 * one.mean(0) + 0.5 * torch.eye(len(expected))) @ expected
    torch.testing.assert_close(seen().weights(kind, layer, aggregate="rollout").double(), expected)


def test_a_rollout_of_heads_that_look_at_themselves_stays_there():
    eye = torch.eye(5).expand(3, 2, 5, 5)
    assert torch.equal(aggregates.rollout(eye), torch.eye(5))
    uniform = torch.full((1, 2, 4, 4), 0.25)
    torch.testing.assert_close(aggregates.rollout(uniform), (torch.eye(4) + 0.25) / 2)


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_a_rollout_across_is_a_product_of_matrices_over_both_sentences(layers: int):
    """All tokens of both sentences as one row: a decoder layer is two matrices over it, the encoder one more."""
    s, t = 4, 3
    encoder, decoder = random_maps(2, 3, s, s), random_maps(layers, 3, t, t, causal=True)
    cross = random_maps(layers, 3, t, s)
    product = torch.eye(s + t, dtype=torch.float64)
    product[:s, :s] = aggregates.rollout(encoder)
    for around, across in zip(decoder.mean(1), cross.mean(1), strict=True):
        for mixing in (torch.cat([torch.zeros(t, s), around], 1), torch.cat([across, torch.zeros(t, t)], 1)):
            step = torch.eye(s + t, dtype=torch.float64)
            step[s:] = (step[s:] + mixing) / 2
            product = step @ product
    source, target = product[s:, :s], product[s:, s:]
    torch.testing.assert_close(target.sum(-1), torch.full((t,), 2.0**-layers, dtype=torch.float64))
    found = aggregates.cross_rollout(encoder, decoder, cross)
    torch.testing.assert_close(found, source / source.sum(-1, keepdim=True))
    torch.testing.assert_close(found.sum(-1), torch.ones(t, dtype=torch.float64))


def test_a_rollout_across_goes_up_to_the_layer_that_is_asked_for():
    found = seen()
    expected = aggregates.cross_rollout(found.encoder, found.decoder[:2], found.cross[:2])
    assert torch.equal(found.weights("cross", 2, aggregate="rollout"), expected)
    assert not torch.allclose(found.weights("cross", aggregate="rollout"), expected)


@pytest.mark.parametrize(
    ("name", "asked", "says"),
    [
        ("sinusoidal", {"kind": "encoder", "layer": 3}, "layer 3: the model has layers 1 to 2"),
        ("sinusoidal", {"kind": "cross", "layer": 0}, "layer 0"),
        ("sinusoidal", {"kind": "cross", "head": 5}, "head 5: the model has heads 1 to 4"),
        ("sinusoidal", {"kind": "cross", "head": 1, "aggregate": "rollout"}, "choose no head"),
        ("lstm, dot", {"kind": "encoder"}, "no self-attention of the encoder"),
        ("lstm, dot", {"kind": "cross", "aggregate": "rollout"}, "which this model does not have"),
        ("gru without attention", {"kind": "cross"}, "no cross-attention"),
    ],
)
def test_what_the_model_does_not_have_is_refused(name: str, asked: dict[str, Any], says: str):
    with pytest.raises(UsageError, match=says):
        seen(name).weights(**asked)


def test_to_hide_everything_is_refused():
    found = inspect(translator(), "...", TRANSLATION)
    with pytest.raises(UsageError, match="nothing is left"):
        found.map("cross", hide=["ends", "punctuation"])


def test_a_caption_says_what_is_shown():
    found = seen()
    assert found.map("cross", 2, 3, pieces=True).caption == (
        "cross-attention, layer 2 of 3, head 3 of 4; each row sums to 1"
    )
    assert "layer 1 of 2, mean of 4 heads; a word looks as its pieces" in found.map("encoder", 1).caption
    assert "largest of 3 layers, largest of 4 heads" in found.map("decoder", aggregate="max").caption
    assert "rollout of layers 1 to 2, mean of 4 heads" in found.map("cross", 2, aggregate="rollout").caption


# Heads.


def with_maps(**maps: Tensor) -> Inspection:
    return dataclasses.replace(seen(), **maps)


def statistics_of(head: Tensor) -> Any:
    """Of a hand-made head of the encoder (S, S)."""
    return head_statistics(
        [with_maps(encoder=head[None, None], decoder=torch.empty(0, 0, 0, 0), cross=torch.empty(0, 0, 0, 0))]
    )[0]


def test_statistics_of_a_head_that_looks_at_its_own_place():
    n = seen().encoder.size(-1)
    found = statistics_of(torch.eye(n))
    assert (found.distance, found.shift, found.entropy, found.spread, found.peak) == (0, 0, 0, 0, 1)
    assert (found.same, found.previous, found.next) == (1, 0, 0)
    assert found.habit == "same"


def test_statistics_of_a_head_that_looks_everywhere_alike():
    n = seen().encoder.size(-1)
    found = statistics_of(torch.full((n, n), 1 / n))
    assert found.distance == pytest.approx((n**2 - 1) / (3 * n), rel=1e-6)
    assert found.shift == pytest.approx(0, abs=1e-6)
    assert found.entropy == pytest.approx(math.log(n), rel=1e-6)
    assert found.spread == pytest.approx(1, rel=1e-6)
    assert [found.peak, found.same, found.previous, found.next, found.ends] == pytest.approx([1 / n] * 5, rel=1e-6)
    signs = sum(label in {".", "␣"} for label in seen().encoder_tokens)
    assert found.punctuation == pytest.approx(signs / n, rel=1e-6)
    assert 2 <= signs < n
    assert found.diversity is None
    assert found.habit == ""


def test_what_the_decoder_may_not_see_counts_as_absent():
    n = seen().decoder.size(-1)
    uniform = torch.ones(n, n).tril()
    uniform /= uniform.sum(-1, keepdim=True)
    found = head_statistics(
        [with_maps(encoder=torch.empty(0, 0, 0, 0), decoder=uniform[None, None], cross=torch.empty(0, 0, 0, 0))]
    )[0]
    assert found.entropy == pytest.approx(math.log(math.factorial(n)) / n, rel=1e-6)  # ln 1, ln 2, ... ln n
    assert found.spread == pytest.approx(1, rel=1e-6)  # of those that have a choice
    assert found.next is None
    assert found.shift == pytest.approx(-found.distance)
    assert found.distance == pytest.approx((n - 1) / 4, rel=1e-6)  # query i has i keys before it: i/2 on average
    harmonic = sum(1 / i for i in range(1, n + 1)) / n
    assert (found.ends, found.same) == pytest.approx((harmonic, harmonic), rel=1e-6)
    assert found.previous == pytest.approx((harmonic * n - 1) / (n - 1), rel=1e-6)  # the first has none before it


def test_across_distances_are_in_sentence_lengths():
    t, s = seen().cross.shape[-2:]
    first = torch.zeros(t, s)
    first[:, 0] = 1
    found = head_statistics(
        [with_maps(encoder=torch.empty(0, 0, 0, 0), decoder=torch.empty(0, 0, 0, 0), cross=first[None, None])]
    )[0]
    assert found.distance == -found.shift == pytest.approx((t - 1) / (2 * t), rel=1e-6)


def test_the_diversity_of_heads_is_how_far_apart_they_are():
    n = seen().encoder.size(-1)
    eye, first = torch.eye(n), torch.zeros(n, n)
    first[:, 0] = 1

    def diversity(*heads: Tensor) -> list[float | None]:
        maps = torch.stack(heads)[None]
        inspection = with_maps(encoder=maps, decoder=torch.empty(0, 0, 0, 0), cross=torch.empty(0, 0, 0, 0))
        return [found.diversity for found in head_statistics([inspection])]

    assert diversity(eye, eye, eye) == [0, 0, 0]
    apart = (n - 1) / n  # only the first query agrees
    assert diversity(eye, first) == pytest.approx([apart, apart])
    assert diversity(eye, eye, first) == pytest.approx([apart / 2, apart / 2, apart])


def fixed(pattern: Callable[[int], int]) -> Callable[[int], Tensor]:
    """Weights (n, n) of a head whose query i looks at key pattern(i) where there is such a place, else at its own."""

    def weights(n: int) -> Tensor:
        found = torch.zeros(n, n)
        for i in range(n):
            found[i, pattern(i) if 0 <= pattern(i) < n else i] = 1
        return found

    return weights


def test_places_of_two_languages_make_no_habit():
    """In cross-attention, the token of the same number is hardly ever the same word."""
    n = min(seen().cross.shape[-2:])
    diagonal = torch.eye(*seen().cross.shape[-2:])
    diagonal[n:, 0] = 1
    nothing = torch.empty(0, 0, 0, 0)
    (found,) = head_statistics([with_maps(encoder=nothing, decoder=nothing, cross=diagonal[None, None])])
    assert found.same
    assert found.same > 0.5
    assert found.habit == ""
    assert statistics_of(torch.eye(seen().encoder.size(-1))).habit == "same"  # the control


HABITS = {"previous": lambda i: i - 1, "next": lambda i: i + 1, "same": lambda i: i, "ends": lambda i: 10**6}


def test_hand_made_heads_are_told_by_their_habits():
    watched = translator()
    patterns = [fixed(pattern) for pattern in HABITS.values()]
    patterns[3] = lambda n: torch.eye(n)[[n - 1]].expand(n, n)  # the end

    def kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        return torch.stack([pattern(key.size(-2)) for pattern in patterns]) @ value

    watched.model.encoder[1].attention.kernel = kernel
    found = inspect(watched, TEXT, TRANSLATION)
    told = {(one.kind, one.layer, one.head): one for one in head_statistics([found])}
    assert [told["encoder", 2, head].habit for head in range(1, 5)] == list(HABITS)
    assert [told["encoder", 1, head].habit for head in range(1, 5)] == [""] * 4  # the control: heads as they came
    assert told["encoder", 2, 1].previous == told["encoder", 2, 2].next == told["encoder", 2, 4].ends == 1
    assert told["encoder", 2, 1].shift < 0 < told["encoder", 2, 2].shift
    # The labels say the same: the piece before, the piece after, the piece itself, the end.
    n = len(found.source.pieces)
    for head, pattern in enumerate([*list(HABITS.values())[:3], lambda i: n - 1], start=1):
        shown = found.map("encoder", 2, head, pieces=True)
        for i in range(1, n - 1):
            assert shown.rows[i] == found.source.pieces[i].label
            assert shown.columns[int(shown.weights[i].argmax())] == found.source.pieces[pattern(i)].label


def test_statistics_of_a_sample_are_means_over_all_its_queries():
    model = translator()
    pairs = [(TEXT, TRANSLATION), ("The dog", "개"), ("The bear likes 2 red cats.", "곰이")]
    each = [inspect(model, source, target) for source, target in pairs]
    together = head_statistics(inspect(model, source, target) for source, target in pairs)
    alone = [head_statistics([one]) for one in each]
    assert {one.sentences for one in together} == {3}
    for place, found in enumerate(together):
        parts = [one[place] for one in alone]
        assert (found.kind, found.layer, found.head) == (parts[0].kind, parts[0].layer, parts[0].head)
        assert found.queries == sum(one.queries for one in parts)
        for name in ("entropy", "distance", "shift", "peak", "same", "ends", "punctuation", "diversity"):
            mean = sum(getattr(one, name) * one.queries for one in parts) / found.queries
            assert getattr(found, name) == pytest.approx(mean, abs=1e-9)
    assert len(together) == sum(seen().maps(kind).shape[0] * 4 for kind in KINDS)


# Places.


@pytest.mark.parametrize("name", MODELS)
def test_places_are_a_plain_softmax(name: str):
    found, model = seen(name), translator(name).model
    with torch.no_grad():
        log_p = model(*ids(found))[0].double().log_softmax(-1)
    assert [place.token for place in found.places] == [*found.target.ids, EOS]
    assert [place.piece for place in found.places] == [piece.label for piece in found.target.pieces]
    for place, row in zip(found.places, log_p.tolist(), strict=True):
        assert place.probability == pytest.approx(math.exp(row[place.token]), rel=1e-4)
        assert place.rank == sorted(row, reverse=True).index(row[place.token]) + 1
        assert place.entropy == pytest.approx(-sum(math.exp(x) * x for x in row), rel=1e-4)
        best = sorted(range(len(row)), key=lambda token: -row[token])[:5]
        assert [other.token for other in place.alternatives] == best
        for other in place.alternatives:
            assert other.probability == pytest.approx(math.exp(row[other.token]), rel=1e-4)
            assert other.piece == pieces().pieces[other.token].replace(" ", "␣")


def test_the_best_alternative_is_the_place_itself_where_its_rank_is_one():
    found = inspect(translator(beam=1), TEXT, alternatives=2)
    searched = found.places if found.tree.nodes[found.tree.winner].fate == "finished" else found.places[:-1]
    for place in searched:  # greedy search takes the best everywhere
        assert place.rank == 1
        assert place.alternatives[0].token == place.token
        assert len(place.alternatives) == 2


# What is inspected.


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("beam", [1, 3])
def test_the_target_is_what_the_search_finds(name: str, beam: int):
    model = translator(name, beam=beam)
    found = inspect(model, TEXT, name="toy")
    hypothesis = model.search_ids([pieces().encode(TEXT)])[0]
    assert found.target.ids == hypothesis.tokens
    assert (found.model, found.version) == ("toy", dragoman.__version__)
    assert found.alignment == model.alignment
    assert (found.alignment is None) == (name not in ATTENTIVE)


@pytest.mark.parametrize("name", MODELS)
def test_a_coverage_penalty_chooses_the_target_and_the_winner(name: str):
    model = translator(name, beam=4, coverage_penalty=5.0)
    found, (chosen,) = inspect(model, TEXT), model.search_ids([pieces().encode(TEXT)])
    assert found.tree is not None
    winner = [found.tree.nodes[number].token for number in found.tree.path[1:]]
    assert winner == [*chosen.tokens, *[EOS] * chosen.finished]
    assert found.target.ids == chosen.tokens


def test_the_alignment_is_the_one_that_was_measured():
    measured = Alignment(2, 3, 0.5, 10)
    bare = translator()
    model = Translator(bare.model, bare.tokenizer, alignment=measured)
    assert inspect(model, TEXT, TRANSLATION).alignment == measured


def test_a_given_translation_is_the_target_and_has_no_tree():
    found = seen()
    assert (found.source.text, found.target.text) == (TEXT, TRANSLATION)
    assert found.tree is None
    assert len(inspect(translator(), TEXT, "").places) == 1


def test_a_search_can_begin_with_a_prefix():
    found = inspect(translator(), TEXT, prefix="말 3")
    prefix = pieces().encode("말 3")
    assert found.target.ids[: len(prefix)] == prefix
    assert [found.tree.nodes[number].token for number in found.tree.path][1 : len(prefix) + 1] == prefix
    assert inspect(translator(), TEXT).target.ids[: len(prefix)] != prefix  # the control


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("  ", {}, "no text to look at"),
        ("The dog " * 600, {}, "tokens; an inspection takes at most"),
        ("The dog", {"translation": "개 " * 2000}, "an inspection takes fewer than"),
        ("The dog", {"translation": "개", "prefix": "개"}, "not both"),
    ],
)
def test_what_cannot_be_inspected_is_refused(text: str, options: dict[str, str], says: str):
    with pytest.raises(UsageError, match=says):
        inspect(translator(), text, **options)


def test_the_model_is_not_touched_while_it_is_looked_at():
    model = translator()
    layers = [module for module in model.model.modules() if hasattr(module, "kernel")]
    kernels, borrowed = [layer.kernel for layer in layers], []

    def kernel(*arguments: Any) -> Tensor:
        borrowed.append([layer.kernel for layer in layers] != [kernel, *kernels[1:]])
        return kernels[0](*arguments)

    layers[0].kernel = kernel
    inspect(model, TEXT, TRANSLATION)
    assert borrowed
    assert not any(borrowed)
    with attention_maps(model.model), torch.no_grad():  # the control
        model.model(*ids(seen()))
    assert any(borrowed)


@pytest.mark.parametrize("name", MODELS)
def test_looking_changes_no_translation(name: str):
    model = translator(name)
    source, target = ids(seen(name))
    with torch.no_grad():
        before, translated = model.model(source, target), model.translate([TEXT])
        inspect(model, TEXT)
        assert torch.equal(model.model(source, target), before)
    assert model.translate([TEXT]) == translated


# The tree.

SMALL = TransformerConfig(
    d_model=16,
    encoder_layers=1,
    decoder_layers=1,
    attention=AttentionConfig(heads=2),
    share="none",
)
SMALLS: dict[str, TransformerConfig | RecurrentConfig] = {
    "transformer": SMALL,
    "relative": dataclasses.replace(SMALL, positions="relative"),
    "lstm": RecurrentConfig(d_model=16, share="none"),
}
WORDS = 5  # a vocabulary so small that every output can be tried
SOURCE = [3, 4, 4, 3]


def recorded(
    engine: TorchEngine, config: SearchConfig, constraints: Constraints = Constraints()
) -> tuple[BeamTree, Any]:
    recording = Recording(engine, pieces(), constraints)
    ((best, *others),) = recording.search([SOURCE], config)
    tree = recording.tree(best)
    assert tree is not None
    return tree, [best, *others]


def prefix_of(tree: BeamTree, number: int) -> tuple[int, ...]:
    """Its tokens, from parent to parent."""
    node = tree.nodes[number]
    return () if node.parent is None else (*prefix_of(tree, node.parent), node.token)


def next_log_p(model: Model, tokens: tuple[int, ...]) -> list[float]:
    with torch.no_grad():
        logits = model(torch.tensor([[*SOURCE, EOS]]), torch.tensor([[BOS, *tokens]]))
    return logits[0, -1].double().log_softmax(-1).tolist()


def plain_steps(model: Model, beams: int, steps: int) -> list[dict[tuple[int, ...], tuple[str, float, float]]]:
    """Beam search without anything clever: all continuations of a step, sorted; fate, score, log_p of the best."""
    kept: dict[tuple[int, ...], float] = {(): 0.0}
    found = []
    for _ in range(steps):
        weighed = [
            (total + log_p, log_p, (*tokens, word))
            for tokens, total in kept.items()
            for word, log_p in enumerate(next_log_p(model, tokens))
        ]
        weighed = sorted(weighed, reverse=True)[: 2 * beams]
        kept = {}
        now = {}
        for place, (total, log_p, tokens) in enumerate(weighed):
            if tokens[-1] == EOS:
                fate = "finished" if place < beams else "pruned"
            elif len(kept) < beams:
                fate, kept[tokens] = "kept", total
            else:
                fate = "pruned"
            now[tokens] = (fate, total, log_p)
        found.append(now)
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("beams", [2, 3, 5, 40])
@pytest.mark.parametrize("name", SMALLS)
def test_the_tree_is_what_a_plain_search_weighs_up(name: str, beams: int, seed: int):
    model = make(SMALLS[name], WORDS, seed)
    config = SearchConfig(beam=beams, extra_length=1)
    tree, _ = recorded(TorchEngine(model), config)
    steps = plain_steps(model, beams, tree.steps)
    assert len(tree.nodes) == 1 + sum(map(len, steps))
    for number, node in enumerate(tree.nodes[1:], start=1):
        tokens = prefix_of(tree, number)
        fate, total, log_p = steps[node.step - 1][tokens]
        assert (node.fate, node.step) == (fate, len(tokens))
        assert node.score == pytest.approx(total, abs=1e-4)
        assert node.log_p == pytest.approx(log_p, abs=1e-4)
        assert node.normalised == pytest.approx(total / length_penalty(node.step, config.length_penalty), abs=1e-4)
        assert tree.nodes[node.parent].fate == "kept"  # type: ignore[index]
    assert tree.nodes[0] == dataclasses.replace(tree.nodes[0], parent=None, step=0, token=BOS, score=0.0, fate="kept")


def test_there_are_hypotheses_of_every_fate():
    """The control for the test above."""
    trees = [recorded(TorchEngine(make(SMALL, WORDS, seed)), SearchConfig(beam=3))[0] for seed in range(4)]
    assert {node.fate for tree in trees for node in tree.nodes} == set(get_args(Fate))


def test_a_wide_tree_has_every_output():
    """No hypothesis is pruned where there is room for all: 1 + 4 + 16 + 64 that end after 0 to 3 words."""
    tree, _ = recorded(TorchEngine(make(SMALL, WORDS)), SearchConfig(beam=341, extra_length=1, patience=5))
    words = [word for word in range(WORDS) if word != EOS]
    finished = {prefix_of(tree, number) for number, node in enumerate(tree.nodes) if node.fate == "finished"}
    every = {(*some, EOS) for n in range(4) for some in itertools.product(words, repeat=n)}
    assert every <= finished
    assert len([node for node in tree.nodes if node.step == 3 and node.fate == "kept"]) == 64


@pytest.mark.parametrize("name", SMALLS)
def test_scores_of_the_tree_are_those_of_forced_scoring(name: str):
    model = make(SMALLS[name], WORDS)
    tree, _ = recorded(TorchEngine(model), SearchConfig(beam=4, extra_length=3))
    finished = [number for number, node in enumerate(tree.nodes) if node.fate == "finished"]
    outputs = [list(prefix_of(tree, number)[:-1]) for number in finished]
    for number, likelihood in zip(finished, score(model, [SOURCE] * len(outputs), outputs), strict=True):
        assert tree.nodes[number].score == pytest.approx(likelihood.total, abs=1e-4)


CONFIGS = {
    "plain": SearchConfig(beam=4),
    "greedy": SearchConfig(beam=1),
    "all of them": SearchConfig(beam=4, n_best=4, length_penalty=1.0),
    "patient": SearchConfig(beam=3, patience=2.0, length_penalty=-0.5),
    "short": SearchConfig(beam=3, extra_length=1, min_length=3),
    "no repeats": SearchConfig(beam=3, no_repeat_ngram=2, length_penalty=2.0),
    "diverse": SearchConfig(beam=4, beam_groups=2, n_best=2),
    "sampled": SearchConfig(temperature=1.0, n_best=2),
}


@pytest.mark.parametrize(
    "constraints", [Constraints(), Constraints(prefix=(4, 3)), Constraints(forbidden=((3, 3), (4,)))]
)
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", [*SMALLS, "ensemble"])
def test_a_recorded_search_finds_the_same_to_the_bit(name: str, config: str, constraints: Constraints):
    models = [make(SMALLS["transformer" if name == "ensemble" else name], WORDS, seed) for seed in (1, 2)]
    engine = TorchEngine(*models[: 2 if name == "ensemble" else 1])
    recording = Recording(engine, pieces(), constraints)
    expected = engine.search([SOURCE], CONFIGS[config], [constraints])
    found = recording.search([SOURCE], CONFIGS[config])
    assert found == expected  # tokens, and scores as they are
    tree = recording.tree(found[0][0])
    if config in ("diverse", "sampled"):
        assert tree is None
        return
    assert tree is not None
    best = found[0][0]
    assert list(prefix_of(tree, tree.winner)) == [*best.tokens, *[EOS] * best.finished]
    assert [node.token for node in map(tree.nodes.__getitem__, tree.path)] == [BOS, *prefix_of(tree, tree.winner)]
    winner = tree.nodes[tree.winner]
    assert winner.fate == ("finished" if best.finished else "kept")
    assert winner.normalised == (pytest.approx(best.score) if config == "greedy" else best.score)
    if constraints.prefix:
        assert prefix_of(tree, tree.winner)[:2] == constraints.prefix


def test_a_recording_leaves_the_engine_as_it_was():
    engine = TorchEngine(make(SMALL, WORDS))
    before = dict(vars(engine))
    recorded(engine, SearchConfig(beam=2))
    assert vars(engine) == before


def test_the_nodes_of_a_step_are_in_order_and_go_on_from_the_step_before():
    tree, found = recorded(TorchEngine(make(SMALL, WORDS, 1)), SearchConfig(beam=4, n_best=4))
    for before, after in itertools.pairwise(tree.nodes):
        assert before.step <= after.step
        if before.step == after.step:
            assert before.score >= after.score
    for node in tree.nodes[1:]:
        parent = tree.nodes[node.parent]  # type: ignore[index]
        assert parent.step == node.step - 1
        assert node.score == pytest.approx(parent.score + node.log_p, abs=1e-5)
    # The hypotheses that the search returns are nodes.
    normalised = {prefix_of(tree, number): node.normalised for number, node in enumerate(tree.nodes)}
    for hypothesis in found:
        assert normalised[*hypothesis.tokens, *[EOS] * hypothesis.finished] == hypothesis.score


def test_the_tree_of_a_greedy_search_is_a_chain_with_the_next_best_beside_it():
    model = make(SMALL, WORDS, 2)
    tree, _ = recorded(TorchEngine(model), SearchConfig(beam=1))
    for step in range(1, tree.steps + 1):
        first, second = [node for node in tree.nodes if node.step == step]
        row = next_log_p(model, prefix_of(tree, tree.path[step - 1]))
        best, next_best = sorted(range(WORDS), key=lambda token: -row[token])[:2]
        assert (first.token, second.token) == (best, next_best)
        assert (first.fate, second.fate) == ("finished" if best == EOS else "kept", "pruned")


# Leaving words out.


@pytest.mark.parametrize("by_pieces", [False, True])
@pytest.mark.parametrize("name", ["sinusoidal", "gru without attention"])
def test_a_drop_is_what_scoring_by_hand_finds(name: str, by_pieces: bool):
    found, model = seen(name), translator(name).model
    table = occlusion(model, found, pieces=by_pieces)
    source, target = ((s.pieces if by_pieces else s.words) for s in (found.source, found.target))
    assert table.source == [word.label for word in source[:-1]]
    assert table.target == [word.label for word in target]
    assert table.drop.shape == (len(source) - 1, len(target))

    def by_hand(left_out: Word | None) -> list[float]:
        kept = [i for place, i in enumerate(found.source.ids) if left_out is None or place not in left_out.tokens]
        with torch.no_grad():
            log_p = model(torch.tensor([[*kept, EOS]]), ids(found)[1])[0].log_softmax(-1)
        tokens = [*found.target.ids, EOS]
        return [math.prod(math.exp(log_p[place, tokens[place]]) for place in word.tokens) for word in target]

    whole = by_hand(None)
    assert table.probability.tolist() == pytest.approx(whole, rel=1e-3)
    for row, drop, word in zip(table.without.tolist(), table.drop, source, strict=False):
        assert row == pytest.approx(by_hand(word), rel=1e-3)
        assert torch.equal(drop, table.probability - torch.tensor(row))
    assert (table.drop.abs() / table.probability).max() > 0.05  # the control: something depends on the source


# The layout of others.


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_the_layout_is_that_of_hugging_face(name: str):
    found = seen(name)
    s, t, heads = len(found.source.ids) + 1, len(found.target.ids) + 1, found.cross.size(1)
    assert [tuple(w.shape) for w in found.encoder_attentions] == [(1, heads, s, s)] * 2
    assert [tuple(w.shape) for w in found.decoder_attentions] == [(1, heads, t, t)] * 3
    assert [tuple(w.shape) for w in found.cross_attentions] == [(1, heads, t, s)] * 3
    assert torch.equal(torch.cat(found.cross_attentions), found.cross)
    assert (len(found.encoder_tokens), len(found.decoder_tokens)) == (s, t)
    assert (found.encoder_tokens[-1], found.decoder_tokens[0]) == ("</s>", "<s>")
    assert seen("lstm, dot").encoder_attentions == seen("lstm, dot").decoder_attentions == []
    assert [tuple(w.shape) for w in seen("lstm, dot").cross_attentions] == [(1, 1, t, s)]


@pytest.mark.parametrize("view", ["head_view", "model_view"])
def test_bertviz_shows_the_same_numbers(view: str):
    bertviz = pytest.importorskip("bertviz", reason="BertViz is not installed: pip install bertviz==1.4.1 ipython")
    even = dataclasses.replace(DEEP, encoder_layers=3)  # BertViz shows as many layers of all kinds as the encoder has
    model = Translator(make(even, len(pieces())), pieces())
    found = inspect(model, TEXT, TRANSLATION)
    page = getattr(bertviz, view)(
        encoder_attention=found.encoder_attentions,
        decoder_attention=found.decoder_attentions,
        cross_attention=found.cross_attentions,
        encoder_tokens=found.encoder_tokens,
        decoder_tokens=found.decoder_tokens,
        html_action="return",
    ).data
    start = page.index('{"attention"')
    shown = json.JSONDecoder().raw_decode(page, start)[0]["attention"]
    assert [table["name"] for table in shown] == ["Encoder", "Decoder", "Cross"]
    for table, kind in zip(shown, get_args(Kind), strict=True):
        assert torch.equal(torch.tensor(table["attn"]), found.maps(kind))
    for table, left, right in zip(
        shown,
        (found.encoder_tokens, found.decoder_tokens, found.decoder_tokens),
        (found.encoder_tokens, found.decoder_tokens, found.encoder_tokens),
        strict=True,
    ):
        assert (table["left_text"], table["right_text"]) == (left, right)


def test_a_trained_model_is_inspected_from_its_folder(trained: Path):
    model = dragoman.Translator.load(trained, SearchConfig(beam=2))
    found = dragoman.inspect(model, TEXT)
    assert isinstance(found, dragoman.Inspection)
    assert found.target.ids == model.search_ids([found.source.ids])[0].tokens
    assert found.tree is not None


def test_a_search_that_fills_learned_positions_is_told():
    """Its last token would have no place to be read at."""
    tokenizer = pieces()
    model = build(dataclasses.replace(DEEP, positions="learned", max_length=16), len(tokenizer)).eval()
    full, short = SearchConfig(beam=1, extra_length=50, min_length=15), SearchConfig(beam=1, extra_length=2)
    with pytest.raises(UsageError, match="an inspection takes fewer than 16"):
        inspect(Translator(model, tokenizer, full), "a")
    assert len(inspect(Translator(model, tokenizer, short), "a").target.ids) <= 5  # the control
