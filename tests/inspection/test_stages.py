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
from dragoman.inspection.inspect import inspect
from dragoman.inspection.stages import head_stages
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
def test_last_stage_is_the_output_of_the_head_in_the_model(tokenizer: Tokenizer, kind: Any, positions: str):
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


def test_stages_follow_each_from_the_one_before(tokenizer: Tokenizer):
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


def test_divisor_is_one_in_a_model_that_does_not_scale(tokenizer: Tokenizer):
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


@pytest.mark.parametrize(("layer", "head", "says"), [(3, 1, "layer 3: the model has"), (1, 0, "head 0: the model has")])
def test_stages_of_a_head_that_is_not_there_are_refused(tokenizer: Tokenizer, layer: int, head: int, says: str):
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
