"""The decoder that is written out for searches computes what the model computes, whatever a search does with it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from conftest import TINY, TINY_RECURRENT
from torch import Tensor

from dragoman.config import AttentionConfig, FeedForwardConfig, SearchConfig, TransformerConfig
from dragoman.data.tokenizer import PAD
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import UsageError
from dragoman.inference import incremental, products
from dragoman.inference.choice import prepare
from dragoman.inference.incremental import IncrementalTransformer, TargetKeyValues, can_step
from dragoman.inference.native import FOLDER, Library, NativeTransformer, levels
from dragoman.inference.products import supported_types
from dragoman.model import Seq2Seq, build
from dragoman.model.positions import POSITIONS, Positions, Rotary, RotaryAcross
from dragoman.model.transformer import Transformer

WORDS, STEPS = 90, 40  # more steps than there is room for at first
BASE = TransformerConfig(
    d_model=12,
    encoder_layers=1,
    decoder_layers=2,
    attention=AttentionConfig(heads=2),
    feed_forward=FeedForwardConfig(d_ff=20, dropout=0.0),
    dropout=0.0,
    max_length=64,
)
CONFIGS = {
    **{scheme: replace(BASE, positions=scheme) for scheme in POSITIONS},
    "pre-norm": replace(BASE, positions="rotary", norm_first=True, scale_embedding=False, output_bias=True),
    "biases": replace(BASE, attention=AttentionConfig(heads=3, d_k=6, d_v=2, bias=True), positions="rotary-across"),
    "values wider than keys": replace(BASE, attention=AttentionConfig(heads=2, d_k=2, d_v=8), share="none"),
    "gelu": replace(BASE, feed_forward=FeedForwardConfig(d_ff=20, dropout=0.0, activation="gelu"), norm_epsilon=0.1),
    "no layers": replace(BASE, decoder_layers=0),
    "third position": replace(BASE, positions="sinusoidal-halves", first_position=2),
}


# What a search can step: tensor operations, and the library of each level of instructions that this processor has.
LIBRARIES = [Library(path) for level in levels() if (path := FOLDER / f"transformer-{level}.so").exists()]
WAYS: dict[str, Callable[[Transformer, str], Any]] = {
    "PyTorch": IncrementalTransformer,
    **{library.level: partial(NativeTransformer, library=library) for library in LIBRARIES},
}
each_way = pytest.mark.parametrize("way", WAYS)


def model_of(config: TransformerConfig) -> Transformer:
    torch.manual_seed(3)
    model = build(config, WORDS, pad=PAD).eval()
    assert isinstance(model, Transformer)
    for parameter in model.parameters():  # also what starts as zeros or ones: biases, norms, scores of distances
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def multiplies(way: str, compute_type: str) -> bool:
    int8 = {library.level: bool(library.multiplies_int8()) for library in LIBRARIES}
    return compute_type == "float32" or (compute_type == "int8" and int8[way])


def sources(rows: int) -> Tensor:
    source = torch.randint(3, WORDS, (rows, 9))
    source[: rows // 2, 6:] = PAD
    return source


@torch.inference_mode()
def decode(model: Seq2Seq, source: Tensor, moves: Sequence[Tensor | None], tokens: Tensor) -> list[Tensor]:
    """Return the logits of each step; before a step, the rows of its move are selected, where it has one."""
    state: Any = model.start(source)
    logits = []
    for step, rows in enumerate(moves):
        if rows is not None:
            state.select(rows)
        count = logits[-1].size(0) if rows is None and logits else len(source) if rows is None else len(rows)
        logits.append(model.step(tokens[:count, step : step + 1], state))
    return logits


def farthest(found: list[Tensor], expected: list[Tensor]) -> float:
    """Return the largest difference, as a share of the largest logit."""
    assert [own.shape for own in found] == [own.shape for own in expected]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, expected, strict=True))


def greedy(rows: int) -> list[Tensor | None]:
    """No source leaves, then all but the second and the last, then one."""
    moves: list[Tensor | None] = [None] * STEPS
    moves[5], moves[33] = torch.tensor([0, 2, 3]), torch.tensor([1])
    return moves


def beams(rows: int) -> list[Tensor | None]:
    """Three hypotheses each, reordered at every step; sources leave, and one keeps fewer hypotheses than the others."""
    moves: list[Tensor | None] = [torch.arange(rows).repeat_interleave(3)]
    live = rows
    for step in range(1, STEPS):
        order = torch.stack([3 * source + torch.randint(0, 3, (3,)) for source in range(live)])
        if step in (7, 30):
            live -= 1
            order = order[1:]
        moves.append(order.flatten())
    last = moves[-1]
    assert last is not None
    moves[-1] = last[1:]  # the sources' shares differ from now on
    return moves


FAST_GREEDY = ("sinusoidal", "relative", "rotary-across", "biases")  # every scheme meets the moves of beams


@pytest.mark.parametrize(
    ("name", "moves"),
    [
        *((name, beams) for name in CONFIGS),
        *(pytest.param(name, greedy, marks=() if name in FAST_GREEDY else pytest.mark.slow) for name in CONFIGS),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
@each_way
def test_incremental_step_has_the_logits_of_the_model(way: str, name: str, moves: Callable[[int], list[Tensor | None]]):
    model, source = model_of(CONFIGS[name]), sources(5)
    made, tokens = moves(5), torch.randint(3, WORDS, (15, STEPS))
    stepped = WAYS[way](model, "float32")
    expected = decode(model, source, made, tokens)
    assert farthest(decode(stepped, source, made, tokens), expected) < 1e-5
    assert farthest(decode(stepped, source, made, tokens.flip(0)), expected) > 1e-3  # the control


@pytest.mark.parametrize("scheme", ["rotary-across", "relative"])
@pytest.mark.parametrize("name", supported_types())
@each_way
def test_incremental_step_has_nearly_the_logits_of_the_model_in_each_type(way: str, name: str, scheme: str):
    if way != "PyTorch" and not multiplies(way, name):
        pytest.skip(f"no {name} in that library")
    model, source, stepped = model_of(CONFIGS[scheme]), sources(5), WAYS[way](model_of(CONFIGS[scheme]), name)
    made, tokens = beams(5), torch.randint(3, WORDS, (15, STEPS))
    expected, limit = decode(model, source, made, tokens), {"float32": 1e-5, "bfloat16": 0.1, "int8": 0.4}[name]
    assert farthest(decode(stepped, source, made, tokens), expected) < limit
    assert farthest(decode(stepped, source, made, tokens.flip(0)), expected) > 2 * limit  # the control


@each_way
def test_rows_that_are_reordered_wrongly_are_seen(way: str):
    """The control for the moves: another order of the hypotheses of one source, in one step."""
    model, source, tokens = model_of(CONFIGS["rotary-across"]), sources(5), torch.randint(3, WORDS, (15, STEPS))
    right = beams(5)
    wrong = [rows if step != 20 or rows is None else rows.flip(0) for step, rows in enumerate(right)]
    assert (
        farthest(decode(WAYS[way](model, "float32"), source, wrong, tokens), decode(model, source, right, tokens))
        > 1e-3
    )


@pytest.mark.parametrize("wrong", [False, True], ids=["as it is", "control: one token stays behind"])
def test_copying_the_tokens_that_differ_gives_the_bits_of_copying_all(wrong: bool, monkeypatch: pytest.MonkeyPatch):
    stepped, source = IncrementalTransformer(model_of(CONFIGS["rotary-across"]), "float32"), sources(5)
    made, tokens = beams(5), torch.randint(3, WORDS, (15, STEPS))
    copied, move = [], TargetKeyValues.move

    def count(target: TargetKeyValues, origin: Tensor, place: Tensor) -> None:
        copied.append(len(place))
        move(target, *(numbers[: len(place) - wrong] for numbers in (origin, place)))

    monkeypatch.setattr(TargetKeyValues, "move", count)
    monkeypatch.setattr(incremental, "COPY_SOME", math.inf)
    expected = decode(stepped, source, made, tokens)
    assert not copied
    monkeypatch.setattr(incremental, "COPY_SOME", 0)
    found = decode(stepped, source, made, tokens)
    assert all(map(torch.equal, found, expected)) != wrong
    layers, of_all = BASE.decoder_layers, sum(step * len(rows) for step, rows in enumerate(made) if rows is not None)
    assert 0 < sum(copied) < layers * of_all / 4  # three hypotheses have most of their tokens in common


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("scheme", ["rotary-across", pytest.param("relative", marks=pytest.mark.slow), "sinusoidal"])
@each_way
def test_search_with_the_decoder_equals_search_with_the_model(way: str, scheme: str, beam: int):
    model = model_of(CONFIGS[scheme])
    engine, plain = TorchEngine(model), TorchEngine(model)
    engine.model, plain.model = WAYS[way](model, "float32"), model
    texts = [[*range(3, 4 + length), 2] for length in range(1, 30, 3)]
    config = SearchConfig(beam=beam, n_best=beam, extra_length=40)
    found, expected = engine.search(texts, config), plain.search(texts, config)
    assert [[h.tokens for h in own] for own in found] == [[h.tokens for h in own] for own in expected]
    assert [h.score for own in found for h in own] == pytest.approx(
        [h.score for own in expected for h in own], abs=1e-4
    )


class Mirrored(Rotary):
    """Rotates in another way than the schemes that are written out."""

    def rotate(self, x: Tensor, start: int) -> Tensor:
        return super().rotate(x, start).flip(-1)


class Across(RotaryAcross):
    """Rotates queries of attention over the source in another way."""

    def rotate_across(self, x: Tensor, start: int) -> Tensor:
        return super().rotate_across(x, start).flip(-1)


@pytest.mark.parametrize("scheme", [Mirrored, Across])
def test_scheme_that_rotates_in_another_way_is_left_to_the_model(scheme: type[Positions], monkeypatch):
    monkeypatch.setitem(POSITIONS, "rotary", scheme)
    assert not can_step(model_of(CONFIGS["rotary"]))
    monkeypatch.undo()
    assert can_step(model_of(CONFIGS["rotary"]))


@pytest.mark.parametrize("score", ["additive", "unscaled"])
def test_kernel_of_another_kind_is_left_to_the_model(score: Any):
    model = model_of(replace(BASE, attention=AttentionConfig(heads=2, score=score)))
    assert not can_step(model)
    assert not isinstance(prepare(model, "float32"), (IncrementalTransformer, NativeTransformer))
    assert TorchEngine(model).search([[3, 4, 2]], SearchConfig(extra_length=3))


def test_recurrent_model_and_other_dtypes_are_left_to_the_model():
    assert not can_step(build(TINY_RECURRENT, WORDS, pad=PAD))
    assert isinstance(prepare(model_of(BASE).double(), "float32"), Transformer)


@pytest.mark.parametrize("scheme", ["sinusoidal", "rotary-across"])
def test_incremental_decoder_without_onednn_multiplies_plainly(scheme: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(products, "has_onednn", lambda: False)
    stepped, model = IncrementalTransformer(model_of(CONFIGS[scheme]), "float32"), model_of(CONFIGS[scheme])
    source, moves, tokens = sources(4), beams(4), torch.randint(3, WORDS, (12, STEPS))
    assert farthest(decode(stepped, source, moves, tokens), decode(model, source, moves, tokens)) < 1e-5
    assert supported_types() == ["float32"]
    with pytest.raises(UsageError, match="no instructions for it"):
        TorchEngine(model, compute_type="bfloat16")


@each_way
def test_incremental_decoder_draws_no_random_numbers_and_changes_no_model(way: str):
    model: Any = build(TINY, WORDS, pad=PAD).eval()
    before, modules = torch.get_rng_state(), [type(module) for module in model.modules()]
    WAYS[way](model, "float32")
    assert torch.equal(torch.get_rng_state(), before)
    assert [type(module) for module in model.modules()] == modules


@each_way
def test_incremental_decoder_takes_one_token_at_a_time(way: str):
    stepped = WAYS[way](model_of(BASE), "float32")
    with pytest.raises(ValueError, match="takes one token for each"):
        stepped.step(torch.ones(3, 2, dtype=torch.long), stepped.start(sources(3)))
