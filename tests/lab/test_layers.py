"""The outputs of all layers."""

from dataclasses import replace

import pytest
import torch
from conftest import LITTLE, PAD, SOURCE, TARGET, WORDS

from dragoman.model.packing import Packing
from dragoman.model.transformer import Transformer
from dragoman_lab.layers import layer_outputs


def test_layer_outputs_are_one_per_layer_and_padded_with_zeros():
    model = Transformer(replace(LITTLE, encoder_layers=3), WORDS, pad=PAD).eval()
    before = model(SOURCE, TARGET)
    with layer_outputs(model) as outputs:
        assert torch.equal(model(SOURCE, TARGET), before)
    assert outputs.encoder.shape == (3, 3, 5, 8)
    assert outputs.decoder.shape == (2, 3, 4, 8)
    assert torch.equal(outputs.encoder.abs().sum(-1) > 0, (SOURCE != PAD).expand(3, -1, -1))
    assert torch.equal(Packing(SOURCE != PAD).pack(outputs.encoder[-1]), model.start(SOURCE).memory)
    outputs.encoder[0].square().sum().backward()
    slopes = [layer.attention.query.weight.grad for layer in model.encoder]
    assert slopes[0].any()
    assert not slopes[1].any()


def test_layer_outputs_are_no_longer_collected_afterwards_nor_after_an_error():
    model = Transformer(LITTLE, WORDS, pad=PAD).eval()
    with layer_outputs(model) as ended:
        model(SOURCE, TARGET)
    with pytest.raises(RuntimeError), layer_outputs(model) as broken:
        raise RuntimeError
    model(SOURCE, TARGET)
    assert (len(ended.encoder_layers), len(broken.encoder_layers)) == (2, 0)
