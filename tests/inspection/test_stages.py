"""The stages of a head: each follows from the one before, and the last is what the model itself computed."""

import dataclasses
from typing import Any, get_args

import pytest
import torch
from conftest import tiny_transformer
from torch import Tensor

from dragoman.config import RecurrentConfig
from dragoman.data.tokenizer import BOS, EOS, Tokenizer
from dragoman.errors import UsageError
from dragoman.inspection.figure import pyplot
from dragoman.inspection.inspection import inspect
from dragoman.inspection.plots.stages import stage_figure
from dragoman.inspection.stages import head_stages
from dragoman.inspection.views import attention_lines
from dragoman.model import build
from dragoman.model.capture import AttentionKind, attention_layers
from dragoman.translation.translator import Translator

SENTENCE, TRANSLATION = "The dog sees 12 cats.", "개가 고양이 12마리를 봐요."
KINDS: tuple[AttentionKind, ...] = get_args(AttentionKind)


def make(tokenizer: Tokenizer, **config: Any) -> Translator:
    torch.manual_seed(0)
    settings = dataclasses.replace(tiny_transformer(encoder_layers=2, decoder_layers=2), **config)
    model = build(settings, len(tokenizer)).eval()
    for parameter in model.parameters():  # relative positions begin as zeros
        torch.nn.init.normal_(parameter, std=0.3)
    return Translator(model, tokenizer)


def own_outputs(translator: Translator, source: list[int], target: list[int], kind: AttentionKind) -> list[Tensor]:
    """Return what goes into the output matrix of each layer: (heads, tokens, d_v)."""
    seen, hooks = [], []
    for layer in attention_layers(translator.model)[kind]:
        hooks.append(layer.out.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0])))
    with torch.no_grad():
        state = translator.model.start(torch.tensor([[*source, EOS]]))
        translator.model.vectors(torch.tensor([[BOS, *target]]), state)
    for hook in hooks:
        hook.remove()
    return [y.unflatten(-1, (2, -1)).transpose(0, 1) for y in seen]


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "rotary-across", "relative", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_last_stage_is_the_output_of_the_head_in_the_model(tokenizer: Tokenizer, kind: Any, positions: str):
    translator = make(tokenizer, positions=positions)
    inspection = inspect(translator, SENTENCE, TRANSLATION)
    outputs = own_outputs(translator, inspection.source.ids, inspection.target.ids, kind)
    for layer in (1, 2):
        for head in (1, 2):
            stages = head_stages(translator, inspection, kind, layer, head)
            torch.testing.assert_close(stages.output, outputs[layer - 1][head - 1])
            torch.testing.assert_close(stages.weights, inspection.maps(kind)[layer - 1, head - 1])
            assert not torch.allclose(stages.output, outputs[layer - 1][2 - head], atol=1e-3)  # the control
            assert stages.weights.shape == (len(stages.rows), len(stages.columns))


def test_each_stage_follows_from_the_one_before(tokenizer: Tokenizer):
    translator = make(tokenizer)
    inspection = inspect(translator, SENTENCE, TRANSLATION)
    stages = head_stages(translator, inspection, "decoder")
    assert stages.divisor == pytest.approx((translator.model.config.d_model / 2) ** 0.5)
    torch.testing.assert_close(stages.scaled * stages.divisor, stages.product)
    later = torch.ones_like(stages.product).triu(1).bool()
    assert torch.equal(stages.masked == -torch.inf, later)
    assert torch.equal(stages.masked[~later], stages.scaled[~later])
    torch.testing.assert_close(stages.masked.softmax(-1), stages.weights)
    assert not torch.allclose(stages.product.masked_fill(later, -torch.inf).softmax(-1), stages.weights)  # the control
    assert torch.equal(stages.product, head_stages(translator, inspection, "decoder", 2, 1).product)


def test_a_model_that_does_not_scale_has_a_divisor_of_one(tokenizer: Tokenizer):
    attention = dataclasses.replace(tiny_transformer().attention, score="unscaled")
    translator = make(tokenizer, attention=attention)
    inspection = inspect(translator, SENTENCE, TRANSLATION)
    stages = head_stages(translator, inspection, "cross", 1, 2)
    assert torch.equal(stages.product, stages.scaled)
    torch.testing.assert_close(stages.weights, inspection.cross[0, 1], atol=1e-5, rtol=1e-4)


def test_stages_begin_where_the_target_begins_after_a_tag(tokenizer: Tokenizer):
    translator = make(tokenizer)
    plain = inspect(translator, SENTENCE, TRANSLATION)
    tagged = dataclasses.replace(plain, target_tag=[5, 6])
    stages = head_stages(translator, tagged, "decoder")
    assert stages.rows == [token.label for token in tagged.decoder_input.tokens]
    assert len(stages.columns) == len(stages.rows) + 2
    outputs = own_outputs(translator, plain.source.ids, [5, 6, *plain.target.ids], "decoder")
    torch.testing.assert_close(stages.output, outputs[1][0][2:])
    assert not torch.allclose(stages.output, head_stages(translator, plain, "decoder").output)  # the control


def test_every_number_of_the_stages_is_written(tokenizer: Tokenizer):
    translator = make(tokenizer)
    stages = head_stages(translator, inspect(translator, SENTENCE, TRANSLATION), "decoder")
    figure = pyplot().figure()
    stage_figure(stages, "").draw(figure)
    tables = [stages.product, stages.scaled, stages.masked, stages.weights, stages.output]
    for axes, table in zip(figure.axes, tables, strict=True):
        texts = [text.get_text().replace("−", "-").replace("∞", "inf") for text in axes.texts]
        torch.testing.assert_close(
            torch.tensor([float(text) for text in texts]), table.flatten(), atol=0.00501, rtol=0.0
        )
    pyplot().close(figure)


@pytest.mark.parametrize(("layer", "head", "says"), [(3, 1, "layer 3: the model has"), (1, 0, "head 0: the model has")])
def test_a_head_that_is_not_there_is_refused(tokenizer: Tokenizer, layer: int, head: int, says: str):
    translator = make(tokenizer)
    inspection = inspect(translator, SENTENCE, TRANSLATION)
    with pytest.raises(UsageError, match=says):
        head_stages(translator, inspection, "cross", layer, head)


def test_attention_without_products_has_no_stages(tokenizer: Tokenizer):
    additive = make(tokenizer, attention=dataclasses.replace(tiny_transformer().attention, score="additive"))
    recurrent = Translator(build(RecurrentConfig(d_model=16), len(tokenizer)).eval(), tokenizer)
    for translator in (additive, recurrent):
        inspection = inspect(translator, SENTENCE, TRANSLATION)
        with pytest.raises(UsageError, match="product of queries and keys"):
            head_stages(translator, inspection, "cross")
    with pytest.raises(UsageError, match="no encoder self-attention"):
        head_stages(recurrent, inspection, "encoder")


# Lines.


@pytest.mark.parametrize("head", [None, 2])
def test_each_weight_that_counts_is_a_line_from_its_query_to_its_key(tokenizer: Tokenizer, head: int | None):
    inspection = inspect(make(tokenizer), SENTENCE, TRANSLATION)
    shown = attention_lines(inspection, "cross", 1, head, subwords=True)
    figure = pyplot().figure()
    shown.draw(figure)
    (axes,) = figure.axes
    heads = [head] if head else [1, 2]
    names, colours = [], {}
    for line, text in zip(axes.get_legend().get_lines(), axes.get_legend().get_texts(), strict=True):
        names.append(text.get_text())
        colours[line.get_color()] = int(text.get_text().split()[-1])
    assert names == [f"head {number}" for number in heads]
    rows, columns = inspection.cross.shape[2:]
    found = torch.zeros(2, rows, columns)
    for line in axes.lines:
        if len(line.get_xdata()) == 2:
            start, end = (int(-y * count) for y, count in zip(line.get_ydata(), (rows, columns), strict=True))
            found[colours[line.get_color()] - 1, start, end] = line.get_alpha()
    wanted = inspection.cross[0] * (inspection.cross[0] >= 0.05)
    for number in (1, 2):
        if number in heads:
            torch.testing.assert_close(found[number - 1], wanted[number - 1])
        else:
            assert not found[number - 1].any()  # the control: a head that was not asked for
    pyplot().close(figure)
