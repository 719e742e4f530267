"""The library survives whatever it is called with: shapes, tokens and rows by chance, many of them impossible."""

from random import Random

import pytest
import torch
from inference.test_incremental import WORDS, multiplies
from inference.test_native import native

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.data.tokenizer import PAD
from dragoman.inference.incremental import IncrementalTransformer
from dragoman.inference.native import Library, NativeTransformer
from dragoman.model import build
from dragoman.model.positions import POSITIONS

CALLS = 1_000_000


def any_config(random: Random) -> TransformerConfig:
    heads, positions = random.randint(1, 5), random.choice(list(POSITIONS))
    d_k = 2 * random.randint(1, 20)
    return TransformerConfig(
        d_model=2 * random.randint(1, 60),
        encoder_layers=random.randint(0, 3),
        decoder_layers=random.randint(0, 3),
        attention=AttentionConfig(heads=heads, d_k=d_k, d_v=2 * random.randint(1, 20), bias=random.random() < 0.5),
        feed_forward=FeedForwardConfig(
            d_ff=random.randint(1, 150), activation=random.choice(["relu", "gelu", "silu"]), dropout=0.0
        ),
        positions=positions,
        norm_first=random.random() < 0.5,
        max_length=200,
    )


def any_source(random: Random) -> torch.Tensor:
    rows, length = random.randint(1, 9), random.randint(1, 70)
    source = torch.tensor([[random.randrange(3, WORDS) for _ in range(length)] for _ in range(rows)])
    for row in source:
        row[random.randint(1, length) :] = PAD
    return source


@native
@pytest.mark.parametrize("seed", range(15))
@torch.inference_mode()
def test_shapes_by_chance_have_the_logits_of_pytorch(seed: int, library: Library):
    random = Random(seed)
    torch.manual_seed(seed)
    model = build(any_config(random), WORDS, pad=PAD).eval()
    source = any_source(random)
    ways = [IncrementalTransformer(model, "float32"), NativeTransformer(model, "float32", library)]
    states, rows = [way.start(source) for way in ways], len(source)
    for _ in range(random.randint(1, 150)):
        tokens = torch.randint(3, WORDS, (rows, 1))
        expected, got = (way.step(tokens, state) for way, state in zip(ways, states, strict=True))
        assert torch.allclose(expected, got, atol=1e-4)
        assert not torch.allclose(expected.flip(-1), got, atol=1e-4)  # the control
        chosen = torch.tensor(sorted(random.randrange(rows) for _ in range(random.randint(1, 12))))
        for state in states:
            state.select(chosen)
        rows = len(chosen)


@pytest.mark.slow
@native
@torch.inference_mode()
def test_a_million_calls_by_chance_are_answered_or_refused(library: Library):
    random, refused, calls = Random(1), 0, 0
    while calls < CALLS:
        torch.manual_seed(calls)
        kind = random.choice(["float32", "int8"] if multiplies(library.level, "int8") else ["float32"])
        stepped = NativeTransformer(build(any_config(random), WORDS, pad=PAD).eval(), kind, library)
        for _ in range(20):
            state = stepped.start(any_source(random))
            for _ in range(random.randint(1, 150)):
                calls += 2
                low, high = random.choice([(3, WORDS), (3, WORDS), (-2, WORDS + 2)])
                tokens = torch.randint(low, high, (state.rows, 1))
                rows = torch.randint(
                    -(random.random() < 0.1), state.rows + (random.random() < 0.1), (random.randint(1, 12),)
                )
                try:
                    values, words = stepped.likeliest(tokens, state, random.randint(1, 2 * WORDS))
                    assert values.isfinite().all()
                    assert words.min() >= 0
                    assert words.max() < WORDS
                    state.select(rows)
                except ValueError:
                    refused += 1
    assert 0 < refused < calls / 4
