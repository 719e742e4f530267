"""What a model consists of and costs: counted once more by formula."""

import dataclasses

import pytest
from conftest import TINY, TINY_RECURRENT, tiny_transformer

from dragoman.config import AttentionConfig, RecurrentConfig, TransformerConfig
from dragoman.inspection.cost import cost
from dragoman.model import build

MODELS: dict[str, TransformerConfig | RecurrentConfig] = {
    "relative": tiny_transformer(positions="relative"),
    "additive": tiny_transformer(attention=AttentionConfig(heads=2, score="additive")),
    "lstm": RecurrentConfig(d_model=16),
    "gru, additive": dataclasses.replace(TINY_RECURRENT, attention="additive"),
}


@pytest.mark.parametrize("share", ["all", "embeddings", "output", "none"])
@pytest.mark.parametrize("name", MODELS)
def test_parts_add_up_to_the_parameters_each_counted_once(name: str, share: str):
    model = build(dataclasses.replace(MODELS[name], share=share), 50)
    costs = cost(model)
    assert costs.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert sum(costs.parts.values()) == costs.parameters
    assert (costs.weights, costs.training) == (4 * costs.parameters, 16 * costs.parameters)


def test_operations_are_two_per_weight_that_a_token_meets():
    d, d_ff, vocabulary = 16, 32, 50
    costs = cost(build(TINY, vocabulary))
    encoder = 4 * d * d + 2 * d * d_ff
    memory = 2 * d * d  # keys and values of the memory, once per source token
    decoder = 4 * d * d + 2 * d * d + 2 * d * d_ff + vocabulary * d
    assert costs.source_flops == 2 * (encoder + memory)
    assert costs.target_flops == 2 * decoder
    # One LSTM layer: two directions of 8 units in the encoder, 16 units in the decoder; no projection of the memory.
    costs = cost(build(MODELS["lstm"], vocabulary))
    assert costs.source_flops == 2 * 2 * 4 * (8 * d + 8 * 8)
    assert costs.target_flops == 2 * (4 * (d * d + d * d) + 2 * d * d + vocabulary * d)
    # Additive attention projects the memory once per source token.
    gru = cost(build(MODELS["gru, additive"], vocabulary))
    assert gru.source_flops == 2 * (2 * 3 * (8 * d + 8 * 8) + d * d)
