"""One update: its parts, its precision, what it skips, and what it needs to be resumed."""

import copy
import math
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import TINY, TINY_RECURRENT, gap
from torch import Tensor, nn

from dragoman.config import ModelConfig, TrainingConfig
from dragoman.data.batches import Batch, split_batch
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import Tokenizer
from dragoman.errors import DragomanError, UsageError, is_out_of_memory
from dragoman.model import build
from dragoman.training.distributed import ProcessGroup
from dragoman.training.learner import Learner, StepResult
from dragoman.training.parallel import DataParallel, SingleProcess
from dragoman.training.precision import LossScale

CPU = torch.device("cpu")
PLAIN = TrainingConfig(precision="float32", micro_batches=1)
STILL = replace(TINY, dropout=0.0)
RATE, WORDS = 1e-2, 400
Ids = list[tuple[list[int], list[int]]]


@pytest.fixture(scope="module")
def ids(pairs: list[Pair]) -> Ids:
    """Of 24 pairs, the longest first, as in the batches of a plan."""
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), WORDS)
    found = [(tokenizer.encode(source), tokenizer.encode(target)) for source, target in pairs[:24]]
    return sorted(found, key=lambda pair: -len(pair[1]))


def learner(model: ModelConfig = TINY, dtype: torch.dtype = torch.float32, **settings: Any) -> Learner:
    torch.manual_seed(0)
    return Learner(build(model, WORDS).to(dtype), replace(PLAIN, **settings), ProcessGroup(CPU))


def parts_of(ids: Ids, count: int = 1) -> tuple[list[Batch | None], int]:
    """A batch in so many parts, and its target tokens."""
    rows = [[ids[i] for i in part] for part in split_batch(np.arange(len(ids)), count)]
    parts = [Batch.from_pairs(*zip(*part, strict=True)) if part else None for part in rows]
    return parts, sum(part.tokens for part in parts if part)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def gradient(learner: Learner, ids: Ids, count: int = 1, seed: int = 1) -> tuple[Tensor, StepResult]:
    outcome = learner.compute_gradient(*parts_of(ids, count), (seed,))
    found = torch.cat([p.grad.flatten().clone() for p in learner.model.parameters()])  # type: ignore[union-attr]
    learner.sync.clear()
    return found, outcome


def steps(learner: Learner, ids: Ids, numbers: range, count: int = 1) -> list[StepResult]:
    return [learner.update(*parts_of(ids, count), RATE, (1, number)) for number in numbers]


def everything(learner: Learner) -> dict[str, Tensor]:
    weights = {name: parameter.detach() for name, parameter in learner.model.named_parameters()}
    saved = {f"saved {name}": parameter.detach() for name, parameter in learner.full_model().named_parameters()}
    return {name: tensor.clone() for name, tensor in (weights | saved | learner.state()).items()}


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


# The gradient.


@pytest.mark.parametrize("model", [STILL, replace(TINY_RECURRENT, dropout=0.0)], ids=["transformer", "recurrent"])
def test_gradient_is_that_of_the_mean_loss_over_target_tokens(ids: Ids, model: ModelConfig):
    found, outcome = gradient(one := learner(model, torch.float64, label_smoothing=0.1), ids)
    (batch,), tokens = parts_of(ids)
    logits = one.model(batch.source, batch.target)[batch.real]
    loss = F.cross_entropy(logits, batch.labels[batch.real], label_smoothing=0.1, reduction="sum")
    theirs = torch.cat([g.flatten() for g in torch.autograd.grad(loss / tokens, list(one.model.parameters()))])
    assert outcome.loss == pytest.approx(float(loss.detach()), rel=1e-12)
    assert outcome.norm == pytest.approx(float(theirs.norm()), rel=1e-12)
    assert gap(found, theirs) < 1e-12
    assert gap(found * tokens / len(ids), theirs) > 1e-3


@pytest.mark.parametrize("model", [STILL, replace(TINY_RECURRENT, dropout=0.0)], ids=["transformer", "recurrent"])
@pytest.mark.parametrize(("count", "deterministic"), [(2, True), (3, False), (5, True), (40, False), (40, True)])
def test_micro_batches_are_the_batch(ids: Ids, model: ModelConfig, count: int, deterministic: bool):
    """Also where there are more parts than pairs."""
    one, many = (learner(model, torch.float64, deterministic=ordered) for ordered in (False, deterministic))
    whole, outcome = gradient(one, ids)
    found, totals = gradient(many, ids, count)
    assert gap(found, whole) < 1e-12
    assert totals.loss == pytest.approx(outcome.loss, rel=1e-12)
    assert totals.norm == pytest.approx(outcome.norm, rel=1e-12)


@pytest.mark.parametrize("model", [TINY, TINY_RECURRENT], ids=["transformer", "recurrent"])
@pytest.mark.parametrize("count", [1, 3])
def test_gradients_that_are_handed_over_are_those_that_are_added_to_zeros(ids: Ids, model: ModelConfig, count: int):
    """Several processes add to one vector. The control: a gradient that is still there is added to, too."""
    alone, added = learner(model), learner(model)
    added.sync = DataParallel(added.model, added.group)
    assert isinstance(alone.sync, SingleProcess)
    found, outcome = gradient(alone, ids, count)
    theirs, other = gradient(added, ids, count)
    assert torch.equal(found, theirs)
    assert (outcome.loss, outcome.norm) == pytest.approx((other.loss, other.norm), rel=1e-6)
    assert outcome == replace(other, loss=outcome.loss, norm=outcome.norm, seconds=outcome.seconds)
    alone.compute_gradient(*parts_of(ids, count), (1,))
    assert not torch.equal(gradient(alone, ids, count)[0], found)
    assert torch.equal(gradient(alone, ids, count)[0], found)


def test_gradient_is_not_that_of_the_mean_of_means_control(ids: Ids):
    """The control for the test above."""
    one, count = learner(STILL, torch.float64), 3
    whole, _ = gradient(one, ids)
    means = sum(gradient(one, [ids[i] for i in part])[0] for part in split_batch(np.arange(len(ids)), count)) / count
    assert gap(means, whole) > 1e-5


def test_dropout_depends_on_seed_and_part_alone(ids: Ids):
    one = learner()
    first, _ = gradient(one, ids, 3)
    torch.manual_seed(99)
    torch.randn(7)
    assert torch.equal(gradient(one, ids, 3)[0], first)
    assert not torch.equal(gradient(one, ids, 3, seed=2)[0], first)
    assert not torch.allclose(gradient(one, ids, 2)[0], first, rtol=1e-3)
    parts, tokens = parts_of(ids[:8])  # twice the same part: other positions are dropped
    losses = [one.compute_gradient([None] * number + parts, tokens, (1,)).loss for number in (0, 1)]
    assert losses[0] != losses[1]


@pytest.mark.parametrize("norm_first", [False, True])
def test_checkpointed_activations_give_the_same_gradient(ids: Ids, norm_first: bool):
    """Bit for bit, dropout included."""
    model = replace(TINY, encoder_layers=2, decoder_layers=2, norm_first=norm_first)
    plain, twice = (learner(model, checkpoint_activations=again) for again in (False, True))
    kept, (ours, theirs) = [], (gradient(plain, ids, 2)[0], gradient(twice, ids, 2)[0])
    assert torch.equal(ours, theirs)
    for one in (plain, twice):  # the control: less was kept for the backward pass
        sizes: dict[int, int] = {}
        note = lambda t, sizes=sizes: sizes.setdefault(t.data_ptr(), t.numel()) and t  # noqa: E731
        with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
            one.loss(parts_of(ids)[0][0])
        kept.append(sum(sizes.values()))
    assert kept[1] < 0.7 * kept[0]

    (batch,), _ = parts_of(ids)
    with torch.inference_mode():  # and outside of training they are computed once
        ours, theirs = (one.model.eval()(batch.source, batch.target) for one in (twice, plain))
        assert torch.equal(ours, theirs)
    with pytest.raises(DragomanError, match="checkpoint_activations works with Transformers only"):
        learner(TINY_RECURRENT, checkpoint_activations=True)


# The step.


def test_step_changes_every_parameter(ids: Ids):
    one = learner(replace(TINY, share="none", output_bias=True))
    before = {name: parameter.detach().clone() for name, parameter in one.model.named_parameters()}
    steps(one, ids, range(1))
    assert [name for name, parameter in one.model.named_parameters() if torch.equal(parameter, before[name])] == []


def moved_by(one: Learner, ids: Ids, count: int = 1) -> tuple[Tensor, float]:
    """Return the gradient with which the weights would be changed, and the norm that is reported."""
    one.optimizer = torch.optim.SGD(one.model.parameters(), lr=0.0)  # type: ignore[assignment]
    before = flat(one.model)
    norm = one.update(*parts_of(ids, count), 1.0, (1,)).norm
    return flat(one.model) - before, norm


@pytest.mark.parametrize("count", [1, 3])
def test_gradient_is_clipped_to_the_limit_however_the_batch_is_cut(ids: Ids, count: int):
    """A limit on each part would take away more."""
    (clipped, norm), (whole, same_norm) = (moved_by(learner(STILL, clip=clip), ids, count) for clip in (0.01, 0.0))
    assert norm == same_norm == gradient(learner(STILL), ids, count)[1].norm > 0.01
    assert float(whole.norm()) == pytest.approx(norm, rel=1e-3)
    torch.testing.assert_close(clipped, whole * 0.01 / norm, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("clip", [0.01, 0.0])
def test_gradient_is_clipped_to_the_limit_under_dropout_too(ids: Ids, clip: float):
    """BPE-dropout makes more tokens than were counted before."""
    moved, norms = [], []
    (part,), tokens = parts_of(ids)
    for counted in (tokens, tokens // 2):
        clipping = learner(STILL, clip=clip)
        clipping.optimizer = torch.optim.SGD(clipping.model.parameters(), lr=0.0)  # type: ignore[assignment]
        before = flat(clipping.model)
        norms.append(clipping.update([part], counted, 1.0, (1,)).norm)
        moved.append(flat(clipping.model) - before)
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    torch.testing.assert_close(moved[0], moved[1], rtol=1e-3, atol=1e-7)
    assert float(moved[0].norm()) == pytest.approx(clip or norms[0], rel=1e-3)


@pytest.mark.parametrize("share", ["all", "none"])
def test_weights_decay_and_vectors_do_not(share: str):
    one = learner(replace(TINY, share=share, output_bias=True), weight_decay=0.5)
    before = {name: parameter.detach().clone() for name, parameter in one.model.named_parameters()}
    for parameter in one.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    one.apply_gradient(StepResult(loss=0.0, tokens=1, norm=0.0), rate=0.1)  # what changes has decayed
    for name, parameter in one.model.named_parameters():
        expected = before[name] * (1 - 0.1 * 0.5) if parameter.dim() > 1 else before[name]
        assert gap(parameter, expected) < 1e-7, name
    assert any(parameter.dim() == 1 and parameter.any() for parameter in one.model.parameters())


def test_average_is_that_of_the_weights_after_each_step(ids: Ids):
    """Of t steps the average keeps t / (10 + t), until that is what was asked for: 0.2 from the third step on."""
    one = learner(ema=0.2)
    expected = flat(one.model)
    for number, kept in enumerate((1 / 11, 2 / 12, 0.2, 0.2)):
        steps(one, ids, range(number, number + 1))
        expected = kept * expected + (1 - kept) * flat(one.model)
    assert gap(flat(one.full_model()), expected) < 1e-6
    assert gap(flat(one.model), expected) > 1e-3
    plain = learner()
    steps(plain, ids, range(4))
    assert torch.equal(flat(one.model), flat(plain.model))
    assert plain.full_model() is plain.model


# Numbers of half the bits.


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_learns_about_the_same(ids: Ids, precision: str):
    model = replace(TINY, dropout=0.0)  # which draws for rows that are no tokens, too
    exact, rounded = learner(model), learner(model, precision=precision)
    one, other = (gradient(each, ids) for each in (exact, rounded))
    assert float(F.cosine_similarity(one[0], other[0], dim=0)) > 0.99
    assert one[1].loss == pytest.approx(other[1].loss, rel=0.01)
    assert one[1].loss != other[1].loss
    assert {parameter.dtype for parameter in rounded.model.parameters()} == {torch.float32}
    losses = [[outcome.loss for outcome in steps(each, ids, range(12))] for each in (exact, rounded)]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


def test_loss_scale_does_not_change_the_step(ids: Ids):
    """float16 alone scales; here its scale meets numbers that need none, and a power of two changes no bits."""
    moved, norms = [], []
    for scale, scaled_back in ((1.0, True), (2.0**10, True), (2.0**10, False)):
        one = learner(clip=0.0)
        one.loss_scale.value = scale
        if not scaled_back:
            one.sync.scale = lambda factor: None  # type: ignore[method-assign]
        change, norm = moved_by(one, ids)
        moved.append(change)
        norms.append(norm)
    assert len(set(norms)) == 1
    assert torch.equal(moved[0], moved[1])
    assert not torch.allclose(moved[0], moved[2], rtol=0.1)
    assert learner(precision="bfloat16").loss_scale.value == learner().loss_scale.value == 1.0


def test_loss_scale_too_large_is_halved_and_the_step_skipped(ids: Ids):
    one = learner(precision="float16")
    assert one.loss_scale.value == 2.0**14
    steps(one, ids, range(1))
    before = everything(one)
    one.loss_scale.value = 2.0**40
    (outcome,) = steps(one, ids, range(1, 2))
    assert outcome.skipped.startswith("the gradient is")
    assert math.isfinite(outcome.loss)
    assert one.loss_scale.value == 2.0**39
    one.loss_scale.value, one.loss_scale.steps = 2.0**14, 1
    assert same(everything(one), before)


def test_loss_scale_right_for_long_is_doubled_up_to_a_limit(ids: Ids):
    one, scales = learner(precision="float16"), []
    one.loss_scale = LossScale(active=True, largest=2.0**15, double_after=2)
    for number in range(6):
        steps(one, ids, range(number, number + 1))
        scales.append(one.loss_scale.value)
    assert scales == [2.0**14, 2.0**15, 2.0**15, 2.0**15, 2.0**15, 2.0**15]


# What is skipped.


def spoiled(one: Learner, with_: Callable[[Tensor], Tensor]) -> None:
    """The next loss of `one` is not what it should be; those after it are."""
    right = one.loss

    def loss(batch: Batch) -> Tensor:
        one.loss = right  # type: ignore[method-assign]
        return with_(right(batch))

    one.loss = loss  # type: ignore[method-assign]


def no_memory(loss: Tensor) -> Tensor:
    raise torch.OutOfMemoryError("out of memory")


def no_memory_on_a_cpu(loss: Tensor) -> Tensor:
    return torch.empty(2**50)


class Inside(torch.autograd.Function):
    """The backward pass fails or gives no number, where the forward pass went well."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, fails: bool) -> Tensor:
        ctx.fails = fails
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        if ctx.fails:
            raise torch.OutOfMemoryError("out of memory")
        return grad * math.nan, None


FAULTS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "loss nan": (lambda loss: loss * math.nan, "the loss is nan"),
    "loss infinite": (lambda loss: loss * math.inf, "the loss is inf"),
    "gradient nan": (lambda loss: Inside.apply(loss, False), "the gradient is nan"),
    "memory": (no_memory, "not enough memory"),
    "memory on a CPU": (no_memory_on_a_cpu, "not enough memory"),
    "memory in the backward pass": (lambda loss: Inside.apply(loss, True), "not enough memory"),
}


def test_lack_of_memory_frees_results_before_the_next_step(ids: Ids, monkeypatch: pytest.MonkeyPatch):
    """The control: before the error it is held."""
    one, held, alive = learner(), [], []

    def failing(loss: Tensor) -> Tensor:
        held.append(weakref.ref(loss.grad_fn))
        alive.append(held[0]() is not None)
        return Inside.apply(loss, True)

    spoiled(one, failing)
    monkeypatch.setattr("dragoman.training.learner.free_cache", lambda _: alive.append(held[0]() is not None))
    steps(one, ids, range(1))
    assert alive == [True, False]


SETTINGS: dict[str, dict[str, Any]] = {"plain": {}, "ordered": {"deterministic": True}, "ema": {"ema": 0.9}}


@pytest.mark.parametrize(
    ("name", "kind"),
    [  # a fault of the loss and one of memory with each of the settings; the others are slow
        pytest.param(name, kind, marks=() if (row - column) % 3 == 0 else pytest.mark.slow)
        for row, name in enumerate(FAULTS)
        for column, kind in enumerate(SETTINGS)
    ],
)
def test_infinite_loss_or_lack_of_memory_changes_nothing(ids: Ids, name: str, kind: str):
    with_, why = FAULTS[name]
    one, other = learner(**SETTINGS[kind]), learner(**SETTINGS[kind])
    for each in (one, other):
        steps(each, ids, range(2), count=3)
    spoiled(one, with_)
    before = everything(one)
    (outcome,) = steps(one, ids, range(2, 3), count=3)
    assert outcome.skipped == why
    assert outcome.out_of_memory == (why == "not enough memory")
    assert same(everything(one), before)
    for each in (one, other):  # and nothing of it is left for the next step
        assert not steps(each, ids, range(3, 4), count=3)[0].skipped
    assert same(everything(one), everything(other))
    assert not same(everything(one), before)


def test_error_that_is_not_of_memory_is_not_hidden(ids: Ids):
    def fails(loss: Tensor) -> Tensor:
        raise RuntimeError("shapes do not fit")

    one = learner()
    spoiled(one, fails)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        steps(one, ids, range(1))


def test_out_of_memory_errors_of_pytorch_are_understood():
    with pytest.raises(RuntimeError) as error:
        torch.empty(2**50)
    assert is_out_of_memory(error.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


# Going on.


@pytest.mark.parametrize(
    "settings",
    [{}, {"ema": 0.9}, {"precision": "float16"}, {"precision": "bfloat16", "weight_decay": 0.1}],
    ids=["plain", "ema", "float16", "bfloat16"],
)
@pytest.mark.parametrize("model", [TINY, TINY_RECURRENT], ids=["transformer", "recurrent"])
def test_learner_loaded_is_the_learner_that_went_on(ids: Ids, model: ModelConfig, settings: dict[str, Any]):
    if (model, settings.get("precision")) == (TINY_RECURRENT, "float16"):
        with pytest.raises(UsageError, match="float16 recurrent layers for CPUs"):
            learner(model, **settings)
        return
    one, other = learner(model, **settings), learner(model, **settings)
    steps(one, ids, range(3))
    other.load(*copy.deepcopy((one.full_model(), one.state())))
    assert same(everything(one), everything(other))
    assert one.loss_scale.value == other.loss_scale.value
    assert one.loss_scale.steps == other.loss_scale.steps == 3
    for each in (one, other):
        steps(each, ids, range(3, 6))
    assert same(everything(one), everything(other))


@pytest.mark.parametrize(
    ("before", "after", "scale"),
    [
        ("float32", "float16", 2.0**14),
        ("bfloat16", "float16", 2.0**14),
        ("float16", "float32", 1.0),
        ("float16", "float16", 2.0**10),  # the control
    ],
)
def test_loss_scale_goes_on_where_both_sessions_have_one(before: str, after: str, scale: float):
    saved, resumed = learner(precision=before), learner(precision=after)
    if before == "float16":
        saved.loss_scale.value, saved.loss_scale.steps = 2.0**10, 7
    resumed.load(saved.model, saved.state())
    assert resumed.loss_scale.value == scale
    assert resumed.loss_scale.steps == (7 if before == after else 0)


@pytest.mark.parametrize("key", ["step", "exp_avg", "exp_avg_sq", "weights"])
def test_learner_loaded_without_all_of_its_state_is_another(ids: Ids, key: str):
    """The control for the test above."""
    one, other = (learner(ema=0.9) for _ in range(2))
    steps(one, ids, range(3))
    state = {
        name: torch.zeros_like(tensor) if name.rsplit(".", 1)[-1] == key else tensor
        for name, tensor in copy.deepcopy(one.state()).items()
    }
    other.load(one.full_model(), state)
    for each in (one, other):
        steps(each, ids, range(3, 6))
    assert not same(everything(one), everything(other))


def test_learner_refuses_the_state_of_another_model():
    state = learner().state()
    with pytest.raises(RuntimeError, match="size"):
        learner().load(build(replace(TINY, d_model=18), WORDS), state)
    with pytest.raises(KeyError):
        learner().load(build(TINY_RECURRENT, WORDS), state)
