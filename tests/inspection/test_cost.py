"""What a model consists of and costs: counted once more by formula."""

import dataclasses
from pathlib import Path

import pytest
import torch
from conftest import TINY, TINY_RECURRENT, tiny_transformer

from dragoman.config import AttentionConfig, RecurrentConfig, TransformerConfig
from dragoman.config.presets import BASE, BIG
from dragoman.inspection.cost import cost
from dragoman.model import build
from dragoman_lab.ablation import AblationConfig

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize("change", ["query-key", "query-key-value"])
def test_shared_projection_costs_as_much_as_several_of_its_size(change: str):
    plain = cost(build(TINY, 50))
    shared = cost(build(AblationConfig(**vars(TINY), change=change), 50))
    assert (shared.source_flops, shared.target_flops) == (plain.source_flops, plain.target_flops)
    assert shared.parameters < plain.parameters  # the control


@pytest.mark.parametrize(
    ("preset", "updates", "by_formula", "of_the_estimate"),
    [(BASE, 100_000, "9.4e17", 29), (BIG, 300_000, "9.6e18", 42)],
    ids=["base", "big"],
)
def test_trainings_of_the_paper_take_the_operations_that_the_docs_say(preset, updates, by_formula, of_the_estimate):
    """Three times the forward pass, for 25,000 tokens of each side; the paper's estimates are 3.3e18 and 2.3e19."""
    with torch.device("meta"):
        costs = cost(build(preset.model, 37_000))
    total = updates * 3 * 25_000 * (costs.source_flops + costs.target_flops)
    name, estimate = ("base", 3.3e18) if preset is BASE else ("big", 2.3e19)
    assert f"{total:.1e}".replace("+", "") == by_formula
    assert round(100 * total / estimate) == of_the_estimate
    page = (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8")
    million = f"{costs.source_flops / 1e6:.1f}, {costs.target_flops / 1e6:.1f}"
    row = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
    assert f"| {million} |" in row
    assert f"| {updates:,} | {by_formula} | {of_the_estimate} % |" in row
