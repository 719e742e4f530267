"""Products of float32 by oneDNN, where MKL would use narrower instructions: as exact, and the same training."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TINY

from dragoman.alignment.heads import alignment_weights, default_head
from dragoman.commands.pairs import compute_by_pair
from dragoman.config import TrainingConfig
from dragoman.data.batches import Batch
from dragoman.data.spec import parse_corpora
from dragoman.data.tokenizer import PAD
from dragoman.decoding.forced import score
from dragoman.model import build
from dragoman.model.attention import FEW_KEYS, explicit_attention, fused_attention
from dragoman.model.packing import MULTIPLE, is_wide, packed_rows
from dragoman.model_folder import read_model
from dragoman.runtime import device
from dragoman.runtime.device import instructions, wide_products
from dragoman.runtime.threads import CACHES, SHAPES
from dragoman.training.distributed import ProcessGroup
from dragoman.training.learner import Learner
from dragoman.training.memory import FEW_SHAPES, remember_few_shapes
from dragoman.training.signals import GracefulStop
from dragoman.training.validation import LOSS_TOKENS, mean_loss

CPU, WORDS = torch.device("cpu"), 300
AMD = {"avx512_f": True, "cpu_name": "AMD EPYC"}
# Whether oneDNN is there, and would not round.
CAN_BE_WIDE = torch.backends.mkldnn.is_available() and not instructions().get("amx_bf16")


def be(monkeypatch: pytest.MonkeyPatch, processor: dict[str, Any], mkl: bool = True) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor, raising=False)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)


def test_products_are_wide_inside_a_block_and_as_exact(monkeypatch: pytest.MonkeyPatch):
    be(monkeypatch, AMD)
    x, y = torch.randn(65, 70), torch.randn(70, 75)
    expected = x.double() @ y.double()
    with wide_products():
        assert is_wide() == CAN_BE_WIDE
        assert torch.allclose((x @ y).double(), expected, atol=1e-4)
        assert not torch.allclose((x.bfloat16() @ y.bfloat16()).double(), expected, atol=1e-4)  # the control
    assert not is_wide()
    with pytest.raises(RuntimeError):
        wide_products()(torch.mm)(x, x)  # sizes do not fit
    assert not is_wide()
    torch.get_float32_matmul_precision()  # raises an error where settings contradict each other


def test_products_stay_narrow_where_wide_ones_round(monkeypatch: pytest.MonkeyPatch):
    be(monkeypatch, AMD)
    monkeypatch.setattr(device, "rounds", lambda: True)
    with wide_products():
        assert not is_wide()


def test_overlapping_blocks_are_all_wide_and_leave_no_setting_behind(monkeypatch: pytest.MonkeyPatch):
    """As those of two threads are."""
    be(monkeypatch, AMD)
    monkeypatch.setattr(device, "rounds", lambda: False)
    before = device.MATMUL.fp32_precision
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(wide_products())
        wide = device.MATMUL.fp32_precision
        second.enter_context(wide_products())
        first.close()
        assert device.MATMUL.fp32_precision == wide != before
    assert device.MATMUL.fp32_precision == before


@pytest.mark.parametrize(
    ("processor", "mkl"), [(AMD, False), ({"avx512_f": True, "cpu_name": "Intel"}, True), ({"cpu_name": "AMD"}, True)]
)
def test_products_are_left_to_pytorch_elsewhere(monkeypatch: pytest.MonkeyPatch, processor: dict[str, Any], mkl: bool):
    be(monkeypatch, processor, mkl)
    with wide_products():
        assert not is_wide()


@pytest.mark.skipif(not CAN_BE_WIDE, reason="there is no oneDNN here, or it would round")
def test_packed_form_has_few_numbers_of_rows_where_products_are_planned(monkeypatch: pytest.MonkeyPatch):
    be(monkeypatch, AMD)
    assert packed_rows(65, CPU) == 65
    with wide_products():
        assert packed_rows(65, CPU) == 2 * MULTIPLE
        assert packed_rows(65, torch.device("cuda")) == 65


def test_wide_products_train_as_narrow_ones_do(monkeypatch: pytest.MonkeyPatch):
    found, wide = [], []
    batch = Batch.from_pairs([[5, 6, 7, 8] * 9, [9, 5]], [[6, 7] * 8, [8]])
    for processor in (AMD, {}):
        be(monkeypatch, processor)
        torch.manual_seed(3)
        learner = Learner(
            build(replace(TINY, dropout=0.0), WORDS, pad=PAD), TrainingConfig(precision="float32"), ProcessGroup(CPU)
        )
        vectors = learner.model.vectors
        monkeypatch.setattr(learner.model, "vectors", lambda *a, f=vectors: wide.append(is_wide()) or f(*a))
        result = learner.compute_gradient([batch], batch.tokens, (1, 2))
        found.append((result, [parameter.grad for parameter in learner.model.parameters()]))
    assert wide == [CAN_BE_WIDE, False]
    (one, gradients), (other, expected) = found
    assert one.loss == pytest.approx(other.loss, rel=1e-5)
    assert one.norm == pytest.approx(other.norm, rel=1e-5)
    for mine, its in zip(gradients, expected, strict=True):
        assert torch.allclose(mine, its, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(gradients[0], expected[0].roll(1, 0), rtol=1e-4, atol=1e-6)  # the control


@pytest.mark.parametrize("keys", [FEW_KEYS, FEW_KEYS + 1, 3 * FEW_KEYS])
def test_attention_is_as_exact_whichever_way_it_is_computed(monkeypatch: pytest.MonkeyPatch, keys: int):
    query, key, value = (torch.randn(2, 3, size, 32) for size in (100, keys, keys))
    mask = torch.ones(2, 1, 1, keys, dtype=torch.bool)
    mask[1, ..., 70:] = False
    expected = explicit_attention(query.double(), key.double(), value.double(), mask)
    fused = torch.nn.functional.scaled_dot_product_attention
    calls = []
    monkeypatch.setattr(
        "torch.nn.functional.scaled_dot_product_attention", lambda *a, **k: calls.append(1) or fused(*a, **k)
    )
    be(monkeypatch, AMD)
    with wide_products():
        assert torch.allclose(fused_attention(query, key, value, mask).double(), expected, atol=1e-5)
        assert not torch.allclose(fused_attention(query, key, value).double(), expected, atol=1e-5)  # the control
    assert bool(calls) == (keys > FEW_KEYS or not CAN_BE_WIDE)


@torch.inference_mode()
def test_loss_of_a_validation_is_that_of_narrow_products(monkeypatch: pytest.MonkeyPatch):
    longest = 2 * LOSS_TOKENS["cpu"]
    sources, targets = [[5, 6, 7] * 9, [9, 5], [8]], [[6, 7] * 8, [8], [5] * longest]
    pairs = SimpleNamespace(
        lengths=np.array([[len(s) + 1, len(t) + 1] for s, t in zip(sources, targets, strict=True)]),
        batch=lambda rows: Batch.from_pairs([sources[row] for row in rows], [targets[row] for row in rows]),
    )
    torch.manual_seed(3)
    model = build(TINY, WORDS, pad=PAD).eval()
    vectors, wide, losses = model.vectors, [], []
    monkeypatch.setattr(model, "vectors", lambda *a: wide.append(is_wide()) or vectors(*a))
    for processor in (AMD, {}):
        be(monkeypatch, processor)
        losses.append(mean_loss(model, pairs, ProcessGroup(CPU), GracefulStop()))
    assert wide == 2 * [CAN_BE_WIDE] + 2 * [False]  # two batches: the longest sentence has one of its own
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    targets[1] = [9]  # the control
    assert mean_loss(model, pairs, ProcessGroup(CPU), GracefulStop()) != pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("command", ["score", "align"])
def test_score_and_align_find_what_narrow_products_do(
    monkeypatch: pytest.MonkeyPatch, trained: Path, corpus: tuple[str, str], command: str
):
    (model, tokenizers), found, wide = read_model(trained / "best"), [], []
    weights = partial(alignment_weights, model, head=default_head(model))
    compute = partial(score, model) if command == "score" else weights
    start = model.start
    monkeypatch.setattr(model, "start", lambda *a: wide.append(is_wide()) or start(*a))
    for processor in (AMD, {}):
        be(monkeypatch, processor)
        results = compute_by_pair(parse_corpora([corpus[1]]), trained / "best", model, tokenizers, compute, "nothing")
        found.append([torch.tensor(one.log_p) if command == "score" else one for _, one in results if one is not None])
    assert set(wide[: len(wide) // 2]) == {CAN_BE_WIDE}
    assert set(wide[len(wide) // 2 :]) == {False}
    assert all(torch.allclose(one, its, rtol=1e-4, atol=1e-5) for one, its in zip(*found, strict=True))
    assert not torch.allclose(found[0][0], found[1][0].flip(0), rtol=1e-4, atol=1e-5)  # the control


@pytest.mark.parametrize("own", [{}, {CACHES[0]: "7"}])
def test_fewer_shapes_are_remembered_where_each_takes_more_memory(monkeypatch: pytest.MonkeyPatch, own: dict[str, str]):
    for processor, shapes in (({}, SHAPES), (AMD, FEW_SHAPES)):
        be(monkeypatch, processor)
        environment = dict.fromkeys(CACHES, SHAPES) | own
        remember_few_shapes(environment)
        assert environment == dict.fromkeys(CACHES, shapes) | own
