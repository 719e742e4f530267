"""Looking inside changes nothing, and what is seen adds up."""

import dataclasses
from pathlib import Path

import pytest
import torch
from conftest import TINY, TINY_RECURRENT
from dragoman.inspection.attention import Word, attention_maps, by_word, cross_attention, subwords, words
from torch import Tensor

from dragoman.config import AttentionConfig, RecurrentConfig, SearchConfig, TransformerConfig
from dragoman.config.presets import PRESETS
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import Tokenizer
from dragoman.errors import DragomanError, UsageError
from dragoman.inspection.cost import cost
from dragoman.inspection.figure import check_format, heat_map
from dragoman.inspection.layers import WeightedLayerPool, layer_outputs
from dragoman.inspection.views import draw_cross_attention
from dragoman.model import Model, build
from dragoman.model.attention import explicit
from dragoman.translation.translator import Translator

ADDITIVE = AttentionConfig(heads=2, score="additive")
DEEP = dataclasses.replace(TINY, encoder_layers=2, decoder_layers=3, attention=AttentionConfig(heads=4))
MODELS: dict[str, TransformerConfig | RecurrentConfig] = {
    "sinusoidal": DEEP,
    "rotary, pre-norm": dataclasses.replace(DEEP, positions="rotary", norm_first=True),
    "relative": dataclasses.replace(DEEP, positions="relative"),
    "additive": dataclasses.replace(DEEP, attention=ADDITIVE),
    "lstm, dot": RecurrentConfig(d_model=16, attention="dot"),
    "gru, additive": RecurrentConfig(cell="gru", d_model=16, attention="additive"),
}
TRANSFORMERS = [name for name, config in MODELS.items() if isinstance(config, TransformerConfig)]

SOURCE = torch.tensor([[5, 6, 7, 8, 2], [9, 5, 2, 0, 0]])
TARGET = torch.tensor([[1, 5, 6, 7], [1, 8, 0, 0]])
REAL = TARGET != 0


def make(name: str) -> Model:
    torch.manual_seed(0)
    return build(MODELS[name], 12).eval()


def maps_of(model: Model) -> dict[str, Tensor]:
    with attention_maps(model) as maps:
        model(SOURCE, TARGET)
    return {name: calls[0] for name, calls in maps.items()}


# Maps.


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_with_attention_has_its_map(name: str):
    found = {layer: tuple(weights.shape) for layer, weights in maps_of(make(name)).items()}
    config = MODELS[name]
    if isinstance(config, RecurrentConfig):
        assert found == {"attention": (2, 1, 4, 5)}
    else:
        heads = config.attention.heads
        expected = {f"encoder.{layer}.attention": (2, heads, 5, 5) for layer in range(2)}
        expected |= {f"decoder.{layer}.attention": (2, heads, 4, 4) for layer in range(3)}
        expected |= {f"decoder.{layer}.cross_attention": (2, heads, 4, 5) for layer in range(3)}
        assert found == expected


@pytest.mark.parametrize("name", MODELS)
def test_the_weights_of_a_query_sum_to_one(name: str):
    for weights in maps_of(make(name)).values():
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


@pytest.mark.parametrize("name", MODELS)
def test_nothing_looks_at_padding(name: str):
    for layer, weights in maps_of(make(name)).items():
        if layer.startswith("encoder") or layer.endswith("cross_attention") or layer == "attention":
            assert not weights[1, ..., 3:].any()
            assert weights[0, ..., 3:].all()  # the control: where it is no padding, it is looked at


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_nothing_looks_into_the_future(name: str):
    for layer, weights in maps_of(make(name)).items():
        if layer.startswith("decoder") and not layer.endswith("cross_attention"):
            assert not weights.triu(1).any()
            assert weights[0].tril().count_nonzero() == weights[0].size(0) * 10
        elif layer.startswith("encoder"):  # the control: the encoder looks both ways
            assert weights[0].triu(1).any()


@pytest.mark.parametrize("name", MODELS)
def test_the_map_is_what_the_layer_weighs_its_values_with(name: str):
    """Recomputed from outside: a kernel that keeps what it is asked."""
    model, asked = make(name), {}
    layers = {layer: module for layer, module in model.named_modules() if hasattr(module, "kernel")}
    found = maps_of(model)
    for layer, module in layers.items():
        kernel = module.kernel

        def keep(q, k, v, mask, dropout, layer=layer, kernel=kernel):
            asked[layer] = (v, kernel(q, k, v, mask, dropout))
            return asked[layer][1]

        module.kernel = keep
    model(SOURCE, TARGET)
    for layer, (values, output) in asked.items():
        torch.testing.assert_close(found[layer] @ values, output, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", [False, True])
def test_recording_changes_no_output_and_no_gradient(name: str, training: bool):
    """To the bit, dropout included."""

    def outcome(record: bool) -> tuple[Tensor, list[Tensor | None]]:
        model = make(name).train(training)
        torch.manual_seed(3)
        if record:
            with attention_maps(model):
                logits = model(SOURCE, TARGET, REAL)
        else:
            logits = model(SOURCE, TARGET, REAL)
        logits.square().sum().backward()
        return logits, [p.grad for p in model.parameters()]

    plain, recorded = outcome(False), outcome(True)
    assert torch.equal(plain[0], recorded[0])
    for one, two in zip(plain[1], recorded[1], strict=True):
        assert (one is None and two is None) or torch.equal(one, two)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fails", [False, True])
def test_every_kernel_is_given_back(name: str, fails: bool):
    model = make(name)
    layers = [module for module in model.modules() if hasattr(module, "kernel")]
    kernels, names = [layer.kernel for layer in layers], list(model.state_dict())
    before = model(SOURCE, TARGET)
    try:
        with attention_maps(model):
            assert [layer.kernel for layer in layers] != kernels  # the control: they were borrowed
            if fails:
                raise RuntimeError
    except RuntimeError:
        assert fails
    assert [layer.kernel for layer in layers] == kernels
    assert list(model.state_dict()) == names
    assert torch.equal(model(SOURCE, TARGET), before)


def test_a_kernel_that_was_replaced_is_watched_too():
    model = make("sinusoidal")
    for module in model.modules():
        if hasattr(module, "kernel"):
            module.kernel = explicit
    for layer, weights in maps_of(make("sinusoidal")).items():
        torch.testing.assert_close(maps_of(model)[layer], weights)


def test_every_call_is_recorded_while_decoding_step_by_step():
    model = make("sinusoidal")
    with attention_maps(model) as maps, torch.inference_mode():
        state = model.start(SOURCE)
        for token in TARGET.split(1, dim=1):
            model.step(token, state)
    whole = maps_of(model)["decoder.0.attention"]
    steps = maps["decoder.0.attention"]
    assert [weights.shape[-1] for weights in steps] == [1, 2, 3, 4]
    for place, weights in enumerate(steps):
        torch.testing.assert_close(weights[0, :, 0], whole[0, :, place, : place + 1])


@pytest.mark.parametrize("name", MODELS)
def test_cross_attention_has_a_row_and_a_column_for_the_end(name: str):
    weights = cross_attention(make(name), [5, 6, 7], [8, 9])
    layers, heads = (3, 4) if name in TRANSFORMERS else (1, 1)
    if name == "additive":
        heads = 2
    assert weights.shape == (layers, heads, 3, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(layers, heads, 3))


@pytest.mark.parametrize(
    "config", [dataclasses.replace(TINY, decoder_layers=0), RecurrentConfig(d_model=16, attention="none")]
)
def test_a_model_without_attention_over_the_source_says_so(config: TransformerConfig | RecurrentConfig):
    with pytest.raises(ValueError, match="no attention over the source"):
        cross_attention(build(config, 12).eval(), [5], [6])


# Words.


def test_words_are_split_at_spaces_and_the_end_is_one(tokenizer: Tokenizer):
    ids = tokenizer.encode("The dog sees 12 cats.")
    found = words(tokenizer, ids)
    assert [word.label for word in found[:-2]] == ["The", "dog", "sees", "12"]
    assert found[-2].label == "cats."
    assert found[-1] == Word("</s>", range(len(ids), len(ids) + 1))


@pytest.mark.parametrize("text", ["", "a", "  a  b ", "가 나", "\0", "x" * 50, "\u2028", "😀 e\u0301"])
@pytest.mark.parametrize("label", [words, subwords])
def test_every_token_belongs_to_one_label(tokenizer: Tokenizer, text: str, label):
    ids = tokenizer.encode(text)
    found = label(tokenizer, ids)
    assert [place for word in found for place in word.tokens] == list(range(len(ids) + 1))
    assert all(word.label for word in found)


def test_rows_of_words_still_sum_to_one(tokenizer: Tokenizer):
    source, target = tokenizer.encode("The dog sees 12 cats."), tokenizer.encode("개가 고양이를 봐요.")
    torch.manual_seed(0)
    weights = torch.rand(3, 2, len(target) + 1, len(source) + 1).softmax(-1)
    found = by_word(weights, words(tokenizer, target), words(tokenizer, source))
    assert found.shape == (3, 2, len(words(tokenizer, target)), len(words(tokenizer, source)))
    torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:-1]))
    # The control: with the mean over source tokens, as over target tokens, they do not.
    swapped = by_word(weights.mT, words(tokenizer, source), words(tokenizer, target)).mT
    assert not torch.allclose(swapped.sum(-1), torch.ones(swapped.shape[:-1]))


def test_words_take_the_sum_of_their_columns_and_the_mean_of_their_rows():
    weights = torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.4, 0.3]])
    one, two = Word("", range(2)), Word("", range(2, 3))
    torch.testing.assert_close(by_word(weights, [Word("", range(2))], [one, two]), torch.tensor([[0.5, 0.5]]))


# Figures.


@pytest.mark.parametrize("rows", [1, 3])
def test_labels_that_do_not_fit_the_weights_are_refused(tmp_path: Path, rows: int):
    with pytest.raises(ValueError, match="weights are"):
        heat_map(tmp_path / "map.svg", torch.eye(2), ["a"] * rows, ["a", "b"], "")
    assert not (tmp_path / "map.svg").exists()


@pytest.mark.parametrize(("size", "format"), [(1, "svg"), (1, "png"), (5, "pdf"), (50, "svg")])
def test_a_figure_of_any_size_can_be_drawn(tmp_path: Path, size: int, format: str):
    labels = ["a long label that has to be shortened " * 3] * size
    heat_map(tmp_path / f"map.{format}", torch.eye(size), labels, labels, "title", "caption")
    assert (tmp_path / f"map.{format}").stat().st_size > 1000


@pytest.mark.parametrize("name", ["map", "map.jpg", "map.svg.txt", ".svg"])
def test_a_figure_in_an_unknown_format_is_refused(name: str):
    with pytest.raises(UsageError, match="a figure's name ends in one of"):
        check_format(Path(name))
    check_format(Path("map.SVG"))


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained, SearchConfig(beam=1))


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ({"layer": 2}, "layer 2: the model has layers 1 to 1"),
        ({"layer": 0}, "layer 0"),
        ({"layer": -1}, "layer -1"),
        ({"head": 3}, "head 3: the model has heads 1 to 2"),
        ({"head": 0}, "head 0"),
    ],
)
def test_a_layer_or_head_that_is_not_there_is_refused(translator: Translator, tmp_path: Path, which: dict, says: str):
    with pytest.raises(UsageError, match=says):
        draw_cross_attention(translator, "The dog", tmp_path / "map.svg", **which)
    assert not (tmp_path / "map.svg").exists()


def test_a_sentence_too_long_for_a_picture_is_refused(translator: Translator, tmp_path: Path):
    with pytest.raises(UsageError, match="tokens; an inspection takes at most"):
        draw_cross_attention(translator, "The dog " * 600, tmp_path / "map.svg")


def test_a_model_without_attention_has_no_picture(tmp_path: Path, tokenizer: Tokenizer):
    model = build(dataclasses.replace(TINY_RECURRENT, attention="none"), len(tokenizer)).eval()
    with pytest.raises(DragomanError, match="no cross-attention"):
        draw_cross_attention(Translator(model, tokenizer), "The dog", tmp_path / "map.svg", translation="개")


@pytest.mark.parametrize("translation", [None, "개가 고양이를 봐요.", ""])
def test_a_picture_is_of_the_translation_that_is_returned(
    translator: Translator, tmp_path: Path, pairs: list[Pair], translation: str | None
):
    own = translator.translate([pairs[0][0]])[0].text
    found = draw_cross_attention(translator, pairs[0][0], tmp_path / "map.svg", translation=translation, pieces=True)
    assert found == (own if translation is None else translation)
    assert (tmp_path / "map.svg").is_file()


# Layers.


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_the_output_of_every_layer_is_seen_and_nothing_changes(name: str):
    model = make(name)
    before = model(SOURCE, TARGET, REAL)
    with layer_outputs(model) as seen:
        assert torch.equal(model(SOURCE, TARGET, REAL), before)
    assert seen.encoder.shape == (2, 2, 5, 16)
    assert seen.decoder.shape == (3, 2, 4, 16)
    assert not seen.encoder[:, 1, 3:].any()
    assert not seen.decoder[:, 1, 2:].any()
    # The last one is what the model goes on with.
    torch.testing.assert_close(model.output(model.decoder_norm(seen.decoder[-1]))[REAL], before)


def test_layers_are_not_watched_any_more_after_an_error():
    model = make("sinusoidal")
    with pytest.raises(RuntimeError), layer_outputs(model) as seen:
        raise RuntimeError
    model(SOURCE, TARGET)
    assert seen.encoder_layers == []


def test_a_pool_of_layers_begins_as_their_mean_and_learns():
    model, pool = make("sinusoidal"), WeightedLayerPool(2)
    with layer_outputs(model) as seen:
        model(SOURCE, TARGET)
    torch.testing.assert_close(pool(seen.encoder), seen.encoder.mean(0))
    pool(seen.encoder).square().sum().backward()
    assert pool.weights.grad is not None
    assert pool.weights.grad.any()
    assert model.source_embedding.weight.grad is not None


# Cost.


@pytest.mark.parametrize("share", ["all", "embeddings", "output", "none"])
@pytest.mark.parametrize("kind", ["sinusoidal", "relative", "additive", "lstm, dot", "gru, additive"])
def test_parts_add_up_to_the_parameters_each_counted_once(kind: str, share: str):
    model = build(dataclasses.replace(MODELS[kind], share=share), 50)
    found = cost(model)
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert sum(found.parts.values()) == found.parameters
    assert (found.weights, found.training) == (4 * found.parameters, 16 * found.parameters)


def test_the_parameters_of_a_preset_are_those_of_the_formula():
    """Sections 3.2 to 3.4: one shared embedding, attention without and feed-forward with biases, layer norms."""
    for name in ("base", "big"):
        model = PRESETS[name].model
        assert isinstance(model, TransformerConfig)
        d, d_ff, n, words_ = model.d_model, model.feed_forward.d_ff, model.encoder_layers, 37_000
        attention, feed_forward, norm = 4 * d * d, 2 * d * d_ff + d_ff + d, 2 * d
        layers = n * (attention + feed_forward + 2 * norm) + n * (2 * attention + feed_forward + 3 * norm)
        with torch.device("meta"):
            assert cost(build(model, words_)).parameters == words_ * d + layers


def test_operations_are_two_per_weight_that_a_token_meets():
    d, d_ff, vocabulary = 16, 32, 50
    found = cost(build(TINY, vocabulary))
    encoder = 4 * d * d + 2 * d * d_ff
    memory = 2 * d * d  # keys and values of the memory, once per source token
    decoder = 4 * d * d + 2 * d * d + 2 * d * d_ff + vocabulary * d
    assert found.source_flops == 2 * (encoder + memory)
    assert found.target_flops == 2 * decoder
