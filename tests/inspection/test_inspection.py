"""What `inspect` shows is what the model did: every number is computed once more, in a plainer way."""

import dataclasses
import itertools
import json
import math
from functools import cache, reduce
from typing import Any, get_args

import pytest
import torch
from conftest import TINY_RECURRENT, tiny_transformer, toy_pairs
from torch import Tensor

from dragoman.alignment.heads import AlignmentHead
from dragoman.alignment.words import Word
from dragoman.config import AttentionConfig, RecurrentConfig, SearchConfig, TransformerConfig
from dragoman.data.tokenizer import BOS, EOS, Tokenizer
from dragoman.errors import UsageError
from dragoman.inspection import aggregates
from dragoman.inspection.inspect import inspect
from dragoman.inspection.inspection import KINDS, Aggregate, Inspection, is_punctuation
from dragoman.inspection.occlusion import occlusion
from dragoman.model import build
from dragoman.model.capture import AttentionCapture, AttentionKind
from dragoman.translation.translator import Translator
from dragoman.version import __version__

DEEP = tiny_transformer(heads=4, encoder_layers=2, decoder_layers=3)
MODELS: dict[str, TransformerConfig | RecurrentConfig] = {
    "sinusoidal": DEEP,
    "relative, pre-norm": dataclasses.replace(DEEP, positions="relative", norm_first=True),
    "additive": dataclasses.replace(DEEP, attention=AttentionConfig(heads=2, score="additive")),
    "lstm, dot": RecurrentConfig(d_model=16, attention="dot"),
    "gru, additive": dataclasses.replace(TINY_RECURRENT, attention="additive"),
    "gru without attention": dataclasses.replace(TINY_RECURRENT, attention="none"),
}
TRANSFORMERS = [name for name, config in MODELS.items() if isinstance(config, TransformerConfig)]
ATTENTIVE = [name for name in MODELS if name != "gru without attention"]
KINDS_OF = [(name, kind) for name in ATTENTIVE for kind in (KINDS if name in TRANSFORMERS else ["cross"])]

TEXT, TRANSLATION = "The rabbit. sees 3 black horses.", "토끼가 검은 말 3마리를 봐요."


@cache
def small_tokenizer() -> Tokenizer:
    return Tokenizer.train((text for pair in toy_pairs() for text in pair), suggested=400, tags=["ko"])


def make(name: str = "sinusoidal", **search: Any) -> Translator:
    """A translator with opinions: fresh models find everything about equally likely."""
    torch.manual_seed(0)
    tokenizer = small_tokenizer()
    model = build(MODELS[name], len(tokenizer)).eval()
    with torch.no_grad():
        model.output.weight.mul_(3)
    return Translator(model, tokenizer, SearchConfig(**{"beam": 3, "extra_length": 4, **search}))


@cache
def inspected(name: str = "sinusoidal") -> Inspection:
    return inspect(make(name), TEXT, TRANSLATION)


def model_input(inspection: Inspection) -> tuple[Tensor, Tensor]:
    return torch.tensor([[*inspection.source.ids, EOS]]), torch.tensor([[BOS, *inspection.target.ids]])


# Weights.


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_those_of_one_pass_with_the_target_given(name: str):
    inspection, capture = inspected(name), AttentionCapture(make(name).model)
    with torch.no_grad():
        capture.run(*model_input(inspection))
    for kind, layers in capture.weights.items():
        assert torch.equal(inspection.maps(kind), torch.cat(layers)) if layers else not len(inspection.maps(kind))
    s, t = len(inspection.source.tokens), len(inspection.target.tokens)
    sizes = [tuple(inspection.maps(kind).shape[-2:]) for kind in KINDS]
    assert sizes == [(s, s), (t, t), (t, s)]  # also of attention that there is none of
    assert [len(inspection.maps(kind)) > 0 for kind in KINDS] == [
        *(name in TRANSFORMERS, name in TRANSFORMERS, name in ATTENTIVE)
    ]


@pytest.mark.parametrize(("name", "kind"), KINDS_OF)
def test_labels_are_as_many_as_rows_and_columns(name: str, kind: AttentionKind):
    aggregates_of = get_args(Aggregate) if name in TRANSFORMERS else ("mean", "max")
    hidden = ((), ("special",), ("special", "punctuation"))
    for aggregate, by_subwords, hide in itertools.product(aggregates_of, (False, True), hidden):
        shown = inspected(name).map(kind, aggregate=aggregate, subwords=by_subwords, hide=hide)
        assert shown.weights.shape == (len(shown.rows), len(shown.columns))
        if aggregate != "max":
            torch.testing.assert_close(shown.weights.sum(-1), torch.ones(len(shown.rows)))


def test_decoder_labels_are_what_it_reads_and_cross_labels_what_it_predicts():
    inspection = inspected()
    words = TRANSLATION.split()
    assert inspection.map("decoder").rows == inspection.map("decoder").columns == ["<s>", *words]
    assert inspection.map("cross").rows == [*words, "</s>"]
    assert inspection.map("cross").columns == inspection.map("encoder").rows == [*TEXT.split(), "</s>"]
    assert not inspection.map("decoder").weights.triu(1).any()  # words that are read look at no later word


@pytest.mark.parametrize("kind", KINDS)
def test_map_of_words_is_the_sum_over_columns_and_mean_over_rows(kind: AttentionKind):
    inspection = inspected()
    for layer, head in [(1, 1), (2, 4), (2, None), (None, None)]:
        weights = inspection.weights(kind, layer, head)
        queries, keys = inspection.queries_and_keys(kind)
        expected = [
            [
                sum(float(weights[i, j]) for i in row.tokens for j in column.tokens) / len(row.tokens)
                for column in keys.words
            ]
            for row in queries.words
        ]
        torch.testing.assert_close(inspection.map(kind, layer, head).weights, torch.tensor(expected))
        assert torch.equal(inspection.map(kind, layer, head, subwords=True).weights, weights)
    assert any(len(word.tokens) > 1 for word in inspection.target.words)  # the control: words are not subwords here


def test_map_leaves_out_what_is_hidden_and_keeps_proportions():
    inspection = inspected()
    whole, shown = (
        inspection.map("cross", 2, 1, subwords=True, hide=hide) for hide in ((), ("special", "punctuation"))
    )
    rows, columns = (
        [i for i, token in enumerate(side.tokens) if token.label not in {"</s>", ".", "␣"}]
        for side in (inspection.target, inspection.source)
    )
    assert len(columns) < len(inspection.source.tokens) - 2
    kept = whole.weights[rows][:, columns]
    torch.testing.assert_close(shown.weights, kept / kept.sum(-1, keepdim=True))
    assert "</s>" not in shown.rows + shown.columns
    assert "without start, end and tags and punctuation, each row scaled" in shown.caption
    assert "without" not in whole.caption
    # The largest value keeps its sum, too.
    whole, shown = (inspection.map("cross", aggregate="max", hide=hide) for hide in ((), ("special",)))
    torch.testing.assert_close(shown.weights.sum(-1), whole.weights[:-1].sum(-1))
    assert (whole.weights.sum(-1) > 1).all()


def test_hidden_subwords_do_not_count_in_their_words():
    inspection = inspected()
    subwords, words = (inspection.map("cross", 1, 1, subwords=by, hide=["punctuation"]) for by in (True, False))
    assert words.columns == [*TEXT.split(), "</s>"]  # no word here is nothing but punctuation
    word, hidden = inspection.source.words[1], inspection.source.positions_of(["punctuation"])
    kept = [i - len([j for j in hidden if j < i]) for i in word.tokens if i not in hidden]
    assert (word.label, len(word.tokens) - len(kept)) == ("rabbit.", 1)
    end = subwords.weights[-1]  # EOS is a row of words and of subwords
    torch.testing.assert_close(words.weights[-1, 1], end[kept].sum())


@pytest.mark.parametrize(
    ("label", "expected"), [(".", True), ("␣...", True), ("␣", True), ("a.", False), ("</s>", False), ("+", True)]
)
def test_punctuation_is_told_from_words(label: str, expected: bool):
    assert is_punctuation(label) == expected


def test_tag_is_a_token_a_word_and_special():
    inspection = inspect(make(), TEXT, TRANSLATION, tag="ko")
    assert inspection.source.tokens[0].label == inspection.source.words[0].label == "<tag:ko>"
    assert inspection.source.positions_of(["special"]) == {0, len(inspection.source.ids)}
    assert inspection.source.text == TEXT


# Aggregates.


def random_maps(*sizes: int, causal: bool = False) -> Tensor:
    scores = torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)), dtype=torch.float64)
    return (scores.masked_fill(~torch.ones(sizes[-2:]).tril().bool(), -math.inf) if causal else scores).softmax(-1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("layer", "head"), [(None, None), (2, None), (None, 3), (1, 2)])
def test_aggregates_are_what_a_loop_finds(kind: AttentionKind, layer: int | None, head: int | None):
    inspection, maps = inspected(), inspected().maps(kind)
    chosen = [
        maps[i, j]
        for i in range(len(maps))
        for j in range(maps.size(1))
        if layer in (None, i + 1) and head in (None, j + 1)
    ]
    torch.testing.assert_close(inspection.weights(kind, layer, head), sum(chosen) / len(chosen))
    assert torch.equal(inspection.weights(kind, layer, head, "max"), reduce(torch.maximum, chosen))


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("layer", [1, 2, None])
def test_rollout_is_the_product_of_the_layers(kind: AttentionKind, layer: int | None):
    maps = inspected().maps(kind).double()
    expected = torch.eye(maps.size(-1), dtype=torch.float64)
    for weights in maps[:layer]:
        expected = (0.5 * weights.mean(0) + 0.5 * torch.eye(len(expected))) @ expected
    torch.testing.assert_close(inspected().weights(kind, layer, aggregate="rollout").double(), expected)


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_cross_rollout_is_a_product_of_matrices_over_both_sentences(layers: int):
    """All tokens of both sentences as one row: a decoder layer is two matrices over it, the encoder one more."""
    s, t = 4, 3
    encoder, decoder = random_maps(2, 3, s, s), random_maps(layers, 3, t, t, causal=True)
    cross = random_maps(layers, 3, t, s)
    product = torch.eye(s + t, dtype=torch.float64)
    product[:s, :s] = aggregates.rollout(encoder)
    for own, across in zip(decoder.mean(1), cross.mean(1), strict=True):
        for mixing in (torch.cat([torch.zeros(t, s), own], 1), torch.cat([across, torch.zeros(t, t)], 1)):
            step = torch.eye(s + t, dtype=torch.float64)
            step[s:] = (step[s:] + mixing) / 2
            product = step @ product
    source, target = product[s:, :s], product[s:, s:]
    torch.testing.assert_close(target.sum(-1), torch.full((t,), 2.0**-layers, dtype=torch.float64))
    rollout = aggregates.cross_rollout(encoder, decoder, cross)
    torch.testing.assert_close(rollout, source / source.sum(-1, keepdim=True))


def test_cross_rollout_goes_up_to_the_layer_that_is_asked_for():
    inspection = inspected()
    expected = aggregates.cross_rollout(inspection.encoder, inspection.decoder[:2], inspection.cross[:2])
    assert torch.equal(inspection.weights("cross", 2, aggregate="rollout"), expected)
    assert not torch.allclose(inspection.weights("cross", aggregate="rollout"), expected)


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("sinusoidal", {"kind": "encoder", "layer": 3}, "layer 3: the model has layers 1 to 2"),
        ("sinusoidal", {"kind": "cross", "layer": 0}, "layer 0"),
        ("sinusoidal", {"kind": "cross", "layer": -1}, "layer -1"),
        ("sinusoidal", {"kind": "cross", "head": 5}, "head 5: the model has heads 1 to 4"),
        ("sinusoidal", {"kind": "cross", "head": 1, "aggregate": "rollout"}, "choose no head"),
        ("lstm, dot", {"kind": "encoder"}, "no encoder self-attention"),
        ("lstm, dot", {"kind": "cross", "aggregate": "rollout"}, "which this model does not have"),
        ("gru without attention", {"kind": "cross"}, "no cross-attention"),
    ],
)
def test_map_of_what_the_model_does_not_have_is_refused(name: str, asked: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        inspected(name).weights(**asked)


def test_map_that_hides_everything_is_refused():
    with pytest.raises(UsageError, match="nothing is left"):
        inspect(make(), "...", TRANSLATION).map("cross", hide=["special", "punctuation"])


# Positions.


@pytest.mark.parametrize("name", MODELS)
def test_positions_are_a_plain_softmax(name: str):
    inspection, model = inspected(name), make(name).model
    with torch.no_grad():
        log_p = model(*model_input(inspection))[0].double().log_softmax(-1)
    assert [position.token_id for position in inspection.positions] == [*inspection.target.ids, EOS]
    assert [position.token for position in inspection.positions] == [word.label for word in inspection.target.tokens]
    for position, row in zip(inspection.positions, log_p.tolist(), strict=True):
        assert position.probability == pytest.approx(math.exp(row[position.token_id]), rel=1e-4)
        assert position.rank == sorted(row, reverse=True).index(row[position.token_id]) + 1
        assert position.entropy == pytest.approx(-sum(math.exp(x) * x for x in row), rel=1e-4)
        best = sorted(range(len(row)), key=lambda token: -row[token])[:5]
        assert [other.token_id for other in position.alternatives] == best
        for other in position.alternatives:
            assert other.probability == pytest.approx(math.exp(row[other.token_id]), rel=1e-4)
            assert other.token == small_tokenizer().pieces[other.token_id].replace(" ", "␣")


def test_greedy_search_chooses_the_most_probable_token_everywhere():
    inspection = inspect(make(beam=1), TEXT, alternatives=2)
    finished = inspection.tree.nodes[inspection.tree.winner].fate == "finished"
    for position in inspection.positions if finished else inspection.positions[:-1]:
        assert (position.rank, position.alternatives[0].token_id) == (1, position.token_id)
        assert len(position.alternatives) == 2


# What is inspected.


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("beam", [1, 3])
def test_target_is_what_the_search_finds(name: str, beam: int):
    translator = make(name, beam=beam)
    inspection = inspect(translator, TEXT, name="toy")
    hypothesis = translator.search_ids([small_tokenizer().encode(TEXT)])[0]
    assert inspection.target.ids == hypothesis.tokens
    assert (inspection.model, inspection.version) == ("toy", __version__)
    assert inspection.alignment == translator.alignment
    assert (inspection.alignment is None) == (name not in ATTENTIVE)


@pytest.mark.parametrize("name", ["sinusoidal", "gru, additive"])
def test_coverage_penalty_chooses_the_target_and_the_winner(name: str):
    translator = make(name, beam=4, coverage_penalty=5.0)
    inspection, (chosen,) = inspect(translator, TEXT), translator.search_ids([small_tokenizer().encode(TEXT)])
    assert inspection.tree is not None
    winner = [inspection.tree.nodes[number].token_id for number in inspection.tree.path[1:]]
    assert winner == [*chosen.tokens, *[EOS] * chosen.finished]
    assert inspection.target.ids == chosen.tokens


def test_alignment_is_the_one_that_was_measured():
    measured, bare = AlignmentHead(2, 3, 0.5, 10), make()
    translator = Translator(bare.model, bare.tokenizers, alignment=measured)
    assert inspect(translator, TEXT, TRANSLATION).alignment == measured


@pytest.mark.parametrize("translation", ["Ω 말 ¼ 마리를 봐요.", None], ids=["given", "found by the search"])
def test_word_is_linked_with_the_largest_weight_of_its_row(translation: str | None):
    text, translator = "The Ω sees ¼ horses.", make()
    found = inspect(translator, text, translation)
    spelled = translator.tokenizers.target.encode(found.target.text)
    assert (found.target.ids == spelled) == bool(translation)  # the search spells in another way
    assert sum(found.source.tokens[word.tokens.start].label == "␣" for word in found.source.words) > 1
    for layer, head in itertools.product((1, 2, 3), (None, 1, 2, 3, 4)):
        annotator = dataclasses.replace(translator.annotator, alignment=AlignmentHead(layer, head))
        weights = found.map("cross", layer, head).weights[:-1, :-1]  # without EOS
        best = sorted((int(row.argmax()), number) for number, row in enumerate(weights))
        assert annotator.links([[(text, found.target.text)]], None, [[found.target.ids]]) == [best]


def test_given_translation_is_the_target_and_has_no_tree():
    inspection = inspected()
    assert (inspection.source.text, inspection.target.text) == (TEXT, TRANSLATION)
    assert inspection.tree is None
    assert len(inspect(make(), TEXT, "").positions) == 1


def test_inspected_search_can_begin_with_a_prefix():
    inspection, prefix = inspect(make(), TEXT, prefix="말 3"), small_tokenizer().encode("말 3")
    assert inspection.target.ids[: len(prefix)] == prefix
    assert [inspection.tree.nodes[number].token_id for number in inspection.tree.path][1 : len(prefix) + 1] == prefix
    assert inspect(make(), TEXT).target.ids[: len(prefix)] != prefix  # the control


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("  ", {}, "no text to inspect"),
        ("The dog " * 600, {}, "tokens; an inspection takes at most"),
        ("The dog", {"translation": "개 " * 2000}, "an inspection takes fewer than"),
        ("The dog", {"translation": "개", "prefix": "개"}, "not both"),
    ],
)
def test_inspect_refuses_what_cannot_be_inspected(text: str, options: dict[str, str], message: str):
    with pytest.raises(UsageError, match=message):
        inspect(make(), text, **options)


def test_inspect_refuses_a_search_that_fills_learned_positions():
    """Its last token would have no position to be read at."""
    tokenizer = small_tokenizer()
    model = build(dataclasses.replace(DEEP, positions="learned", max_length=16), len(tokenizer)).eval()
    full, short = SearchConfig(beam=1, extra_length=50, min_length=15), SearchConfig(beam=1, extra_length=2)
    with pytest.raises(UsageError, match="an inspection takes fewer than 16"):
        inspect(Translator(model, tokenizer, full), "a")
    assert len(inspect(Translator(model, tokenizer, short), "a").target.ids) <= 5  # the control


@pytest.mark.parametrize("name", MODELS)
def test_inspect_changes_no_translation(name: str):
    translator = make(name)
    ids = model_input(inspected(name))
    with torch.no_grad():
        before, translated = translator.model(*ids), translator.translate([TEXT])
        inspect(translator, TEXT)
        assert torch.equal(translator.model(*ids), before)
    assert translator.translate([TEXT]) == translated


# Leaving words out.


@pytest.mark.parametrize("by_subwords", [False, True])
@pytest.mark.parametrize("name", ["sinusoidal", "gru without attention"])
def test_occlusion_drop_is_what_scoring_by_hand_finds(name: str, by_subwords: bool):
    inspection, model = inspected(name), make(name).model
    table = occlusion(model, inspection, subwords=by_subwords)
    source, target = ((s.tokens if by_subwords else s.words) for s in (inspection.source, inspection.target))
    assert table.source == [word.label for word in source[:-1]]
    assert table.target == [word.label for word in target]
    assert table.drop.shape == (len(source) - 1, len(target))

    def by_hand(left_out: Word | None) -> list[float]:
        kept = [id for i, id in enumerate(inspection.source.ids) if left_out is None or i not in left_out.tokens]
        with torch.no_grad():
            log_p = model(torch.tensor([[*kept, EOS]]), model_input(inspection)[1])[0].log_softmax(-1)
        tokens = [*inspection.target.ids, EOS]
        return [math.prod(math.exp(log_p[i, tokens[i]]) for i in word.tokens) for word in target]

    assert table.probability.tolist() == pytest.approx(by_hand(None), rel=1e-3)
    for row, drop, word in zip(table.without.tolist(), table.drop, source, strict=False):
        assert row == pytest.approx(by_hand(word), rel=1e-3)
        assert torch.equal(drop, table.probability - torch.tensor(row))
    kept = 1 - table.share  # of the larger probability
    smaller, larger = (pick(table.probability, table.without) for pick in (torch.minimum, torch.maximum))
    torch.testing.assert_close(torch.where(table.share < 0, 1 + table.share, kept), smaller / larger)
    assert (table.drop.abs() / table.probability).max() > 0.05  # the control: something depends on the source


# The layout of others.


@pytest.mark.parametrize("name", ["sinusoidal", "lstm, dot"])
def test_attentions_have_the_layout_of_hugging_face(name: str):
    inspection = inspected(name)
    s, t, heads = len(inspection.source.ids) + 1, len(inspection.target.ids) + 1, inspection.cross.size(1)
    shapes = [
        [tuple(w.shape) for w in layers]
        for layers in (inspection.encoder_attentions, inspection.decoder_attentions, inspection.cross_attentions)
    ]
    layers = (2, 3, 3) if name in TRANSFORMERS else (0, 0, 1)
    assert shapes == [n * [(1, heads, *size)] for n, size in zip(layers, ((s, s), (t, t), (t, s)), strict=True)]
    assert torch.equal(torch.cat(inspection.cross_attentions), inspection.cross)
    assert (len(inspection.encoder_tokens), len(inspection.decoder_tokens)) == (s, t)
    assert (inspection.encoder_tokens[-1], inspection.decoder_tokens[0]) == ("</s>", "<s>")


@pytest.mark.parametrize("view", ["head_view", "model_view"])
def test_bertviz_shows_the_same_numbers(view: str):
    bertviz = pytest.importorskip("bertviz", reason="BertViz is not installed: pip install bertviz==1.4.1 ipython")
    even = dataclasses.replace(DEEP, encoder_layers=3)  # BertViz shows as many layers of all kinds as the encoder has
    model = Translator(build(even, len(small_tokenizer())).eval(), small_tokenizer())
    inspection = inspect(model, TEXT, TRANSLATION)
    page = getattr(bertviz, view)(
        encoder_attention=inspection.encoder_attentions,
        decoder_attention=inspection.decoder_attentions,
        cross_attention=inspection.cross_attentions,
        encoder_tokens=inspection.encoder_tokens,
        decoder_tokens=inspection.decoder_tokens,
        html_action="return",
    ).data
    shown = json.JSONDecoder().raw_decode(page, page.index('{"attention"'))[0]["attention"]
    source, target = inspection.encoder_tokens, inspection.decoder_tokens
    assert [(table["name"], table["left_text"], table["right_text"]) for table in shown] == [
        *(("Encoder", source, source), ("Decoder", target, target), ("Cross", target, source))
    ]
    for table, kind in zip(shown, KINDS, strict=True):
        assert torch.equal(torch.tensor(table["attn"]), inspection.maps(kind))
