"""Watching attention changes nothing, and what is recorded is what the layers weighed their values with."""

import dataclasses
import gc
import weakref

import pytest
import torch
from conftest import REAL, SOURCE, TARGET, TINY_RECURRENT, WORDS, tiny_transformer
from torch import Tensor

from dragoman.config import AttentionConfig, RecurrentConfig, TransformerConfig
from dragoman.model import Model, build
from dragoman.model.attention import explicit_attention
from dragoman.model.capture import AttentionCapture, attention_layers

DEEP = tiny_transformer(heads=4, encoder_layers=2, decoder_layers=3)
MODELS: dict[str, TransformerConfig | RecurrentConfig] = {
    "sinusoidal": DEEP,
    "rotary, pre-norm": dataclasses.replace(DEEP, positions="rotary", norm_first=True),
    "relative": dataclasses.replace(DEEP, positions="relative"),
    "additive": dataclasses.replace(DEEP, attention=AttentionConfig(heads=2, score="additive")),
    "lstm, dot": RecurrentConfig(d_model=16, attention="dot"),
    "gru, additive": dataclasses.replace(TINY_RECURRENT, attention="additive"),
}


def make(name: str) -> Model:
    torch.manual_seed(0)
    return build(MODELS[name], WORDS).eval()


def capture_of(model: Model, real: Tensor | None = None) -> AttentionCapture:
    capture = AttentionCapture(model)
    capture.run(SOURCE, TARGET, real)
    return capture


@pytest.mark.parametrize("name", MODELS)
def test_capture_that_is_over_holds_no_memory(name: str):
    """At once, not when Python happens to look for cycles."""
    gc.disable()
    try:
        capture = capture_of(make(name))
        copy = weakref.ref(capture.model)
        assert copy()
        del capture
        assert copy() is None
    finally:
        gc.enable()


def kernels(model: Model) -> list:
    return [layer.kernel for layers in attention_layers(model).values() for layer in layers]


@pytest.mark.parametrize("name", MODELS)
def test_captured_weights_of_every_layer_respect_padding_and_the_future(name: str):
    captured, config = capture_of(make(name)).weights, MODELS[name]
    if isinstance(config, RecurrentConfig):
        layers, heads = {"encoder": 0, "decoder": 0, "cross": 1}, 1
    else:
        layers, heads = {"encoder": 2, "decoder": 3, "cross": 3}, config.attention.heads
    assert {kind: len(weights) for kind, weights in captured.items()} == layers
    sizes = {"encoder": (5, 5), "decoder": (4, 4), "cross": (4, 5)}
    for kind, weights in ((kind, weights) for kind, of_layers in captured.items() for weights in of_layers):
        assert weights.shape == (3, heads, *sizes[kind])
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        if kind == "decoder":
            assert not weights.triu(1).any()
            assert weights[0].tril().count_nonzero() == heads * 10
        else:
            assert not weights[1, ..., 3:].any()
            assert weights[0, ..., 3:].all()  # the control: what is no padding is looked at
        if kind == "encoder":
            assert weights[0].triu(1).any()  # the control: the encoder looks both ways


@pytest.mark.parametrize("name", MODELS)
def test_captured_weights_times_values_are_the_output_of_the_kernel(name: str):
    """Recomputed from outside: kernels that keep what they were given."""
    model, calls = make(name), []
    expected = [weights for layers in capture_of(model).weights.values() for weights in layers]
    for layers in attention_layers(model).values():
        for layer in layers:

            def keep(q, k, v, mask, dropout, index=len(calls), kernel=layer.kernel):
                calls[index] = v, kernel(q, k, v, mask, dropout)
                return calls[index][1]

            calls.append(None)
            layer.kernel = keep
    model(SOURCE, TARGET)
    for (values, output), weights in zip(calls, expected, strict=True):
        torch.testing.assert_close(weights @ values, output, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_capture_changes_no_output_and_no_gradient(name: str, training: bool):
    """To the bit, dropout included; gradients reach the weights of the given model."""

    def outcome(record: bool) -> tuple[Tensor, list[Tensor | None]]:
        model = make(name).train(training)
        torch.manual_seed(3)
        logits = (AttentionCapture(model).model if record else model)(SOURCE, TARGET, REAL)
        logits.square().sum().backward()
        return logits, [p.grad for p in model.parameters()]

    plain, recorded = outcome(False), outcome(True)
    assert torch.equal(plain[0], recorded[0])
    for one, two in zip(plain[1], recorded[1], strict=True):
        assert (one is None and two is None) or torch.equal(one, two)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MODELS)
def test_capture_leaves_the_model_alone_and_copies_no_weight(name: str):
    """So other threads may use it meanwhile, and a large model takes no more memory."""
    model = make(name)
    before, names = kernels(model), list(model.state_dict())
    capture = capture_of(model, REAL)
    assert kernels(model) == before
    assert list(model.state_dict()) == names
    assert not set(map(id, kernels(capture.model))) & set(map(id, before))  # the control: those of the copy are watched
    assert {p.data_ptr() for p in capture.model.parameters()} == {p.data_ptr() for p in model.parameters()}
    logits = capture.model.output(capture.run(SOURCE, TARGET, REAL))
    assert torch.equal(logits, model(SOURCE, TARGET, REAL))


def test_capture_watches_a_kernel_that_was_replaced():
    model = make("sinusoidal")
    expected = capture_of(model).weights
    for layers in attention_layers(model).values():
        for layer in layers:
            layer.kernel = explicit_attention
    for kind, layers in capture_of(model).weights.items():
        torch.testing.assert_close(layers, expected[kind])


def test_captured_step_of_decoding_is_a_row_of_the_whole():
    model = make("sinusoidal")
    capture, whole = AttentionCapture(model), capture_of(model).weights
    with torch.inference_mode():
        state = capture.model.start(SOURCE)
        for position, token in enumerate(TARGET.split(1, dim=1)):
            capture.model.step(token, state)
            weights = capture.weights["decoder"][0]
            torch.testing.assert_close(weights[0, :, 0], whole["decoder"][0][0, :, position, : position + 1])
            torch.testing.assert_close(capture.weights["cross"][2][:, :, 0], whole["cross"][2][:, :, position])
