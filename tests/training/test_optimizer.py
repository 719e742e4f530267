"""Adam, the learning rate of equation 3, and the schedules that came after it."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import get_args, get_type_hints

import pytest
import torch
from conftest import gap
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dragoman.config import TrainingConfig
from dragoman.config.training import ENDING_SCHEDULES
from dragoman.errors import UsageError
from dragoman.training.optimizer import adam, learning_rate, paper_rate

HIGHEST, WARMUP, STEPS = 0.002, 100, 1000
SCHEDULES = [name for name in get_args(get_type_hints(TrainingConfig)["schedule"]) if name != "paper"]


def rate(schedule: str, step: int, max_steps: int = STEPS) -> float:
    settings = TrainingConfig(schedule=schedule, learning_rate=HIGHEST, warmup=WARMUP, max_steps=max_steps)  # type: ignore[arg-type]
    return learning_rate(step, 512, settings)


# The paper's.


@pytest.mark.parametrize(("step", "expected"), [(1, 1.7469e-7), (4000, 6.9877e-4), (16000, 3.4939e-4)])
def test_learning_rate_of_the_base_model(step: int, expected: float):
    assert paper_rate(step, d_model=512, warmup=4000) == pytest.approx(expected, rel=1e-4)
    assert paper_rate(step, d_model=256, warmup=4000) != pytest.approx(expected, rel=1e-4)


@given(st.integers(1, 10_000), st.integers(1, 2000), st.integers(1, 2048))
def test_learning_rate_rises_in_a_line_and_falls_with_the_root(step: int, warmup: int, d_model: int):
    shape = step / warmup**1.5 if step <= warmup else 1 / math.sqrt(step)
    now, then = (paper_rate(number, d_model, warmup) for number in (step, step + 1))
    assert now == pytest.approx(shape / math.sqrt(d_model), rel=1e-12)
    assert (then > now) == (step < warmup)


@pytest.mark.parametrize("step", [1, 4000, 9000])
def test_learning_rate_setting_is_a_factor_in_the_schedule_of_the_paper(step: int):
    settings = TrainingConfig(learning_rate=1.5)
    assert settings.schedule == "paper"
    assert learning_rate(step, 512, settings) == pytest.approx(1.5 * paper_rate(step, 512, 4000), rel=1e-12)
    assert learning_rate(step, 512, TrainingConfig()) == paper_rate(step, 512, 4000)


# The others.


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("step", [1, 37, 100])
def test_schedules_rise_in_a_straight_line_to_the_rate_that_was_set(schedule: str, step: int):
    assert rate(schedule, step) == pytest.approx(HIGHEST * step / WARMUP, rel=1e-12)


# By hand: half-way between the end of the warm-up and the last step is step 550, a quarter is step 325.
@pytest.mark.parametrize(
    ("schedule", "shares"),
    [
        ("inverse-sqrt", {400: 1 / 2, 900: 1 / 3}),
        ("cosine", {325: (1 + math.sqrt(0.5)) / 2, 550: 1 / 2, 775: (1 - math.sqrt(0.5)) / 2, STEPS: 0.0}),
        ("linear", {325: 3 / 4, 550: 1 / 2, 775: 1 / 4, STEPS: 0.0}),
        ("constant", {101: 1.0, 550: 1.0, STEPS: 1.0}),
    ],
)
def test_schedules_differ_after_the_warmup(schedule: str, shares: dict[int, float]):
    for step, share in shares.items():
        assert rate(schedule, step) == pytest.approx(HIGHEST * share, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_learning_rate_stays_between_zero_and_the_set_rate(schedule: str):
    """Nor where a finished run is given more steps."""
    assert all(0 <= rate(schedule, step) <= HIGHEST for step in range(1, 3 * STEPS))


@pytest.mark.parametrize("schedule", ["inverse-sqrt", "cosine", "linear"])
def test_schedules_that_decay_fall_with_each_step_after_the_warmup(schedule: str):
    rates = [rate(schedule, step) for step in range(WARMUP, 3 * STEPS)]
    fell = [then < now for now, then in pairwise(rates)]
    assert fell == [step < STEPS or schedule == "inverse-sqrt" for step in range(WARMUP, 3 * STEPS - 1)]


def test_schedules_that_end_are_those_whose_rate_depends_on_the_end():
    def ends(schedule: str) -> bool:
        return any(rate(schedule, step) != rate(schedule, step, 2 * STEPS) for step in range(WARMUP, STEPS))

    assert {name for name in SCHEDULES if ends(name)} == {*ENDING_SCHEDULES}


@pytest.mark.parametrize("schedule", ENDING_SCHEDULES)
def test_schedule_that_ends_needs_an_end(schedule: str):
    with pytest.raises(UsageError, match=r"ends at training\.max_steps"):
        TrainingConfig(schedule=schedule, learning_rate=HIGHEST)  # type: ignore[arg-type]


def test_schedule_without_a_branch_is_refused():
    """It must not train as if it were another one."""
    settings = TrainingConfig(schedule="constant", learning_rate=HIGHEST, warmup=WARMUP, max_steps=STEPS)
    object.__setattr__(settings, "schedule", "new")  # as if it were among the choices
    with pytest.raises(ValueError, match="no branch for schedule = 'new'"):
        learning_rate(WARMUP + 1, 512, settings)


def test_learning_rate_refuses_the_factor_of_the_paper():
    with pytest.raises(UsageError, match=r"learning_rate 1 is too high.*0\.001"):
        TrainingConfig(schedule="constant")


# Adam.


def two_steps(optimizer_of: Callable[[nn.Module], torch.optim.Optimizer], rate: float) -> Tensor:
    torch.manual_seed(0)
    model = nn.Linear(3, 2, bias=False).double()
    optimizer = optimizer_of(model)
    for gradient in (torch.ones(2, 3), torch.randn(2, 3)):
        for group in optimizer.param_groups:
            group["lr"] = rate
        model.weight.grad = gradient.double()
        optimizer.step()
    return model.weight.detach()


def adam_by_hand(rate: float, betas: tuple[float, float], decay: float = 0.0) -> Tensor:
    torch.manual_seed(0)
    weight = nn.Linear(3, 2, bias=False).double().weight.detach()
    mean = square = torch.zeros(2, 3).double()
    for step, gradient in enumerate((torch.ones(2, 3), torch.randn(2, 3)), start=1):
        mean = betas[0] * mean + (1 - betas[0]) * gradient
        square = betas[1] * square + (1 - betas[1]) * gradient**2
        corrected, scale = mean / (1 - betas[0] ** step), square / (1 - betas[1] ** step)
        weight = weight * (1 - rate * decay) - rate * corrected / (scale.sqrt() + 1e-9)
    return weight


@pytest.mark.parametrize(("beta2", "decay"), [(0.98, 0.0), (0.999, 0.0), (0.98, 0.3), (0.9, 0.01)])
def test_adam_takes_the_steps_of_the_paper_with_run_settings(beta2: float, decay: float):
    taken = two_steps(lambda model: adam(model, beta2, decay), 0.1)
    assert gap(taken, adam_by_hand(0.1, (0.9, beta2), decay)) < 1e-7
    assert gap(taken, adam_by_hand(0.1, (0.9, 0.97), decay)) > 1e-4


def test_adam_has_the_constants_of_the_paper_and_no_default_rate():
    for group in adam(nn.Linear(3, 2)).param_groups:
        assert (group["betas"], group["eps"], group["weight_decay"], group["lr"]) == ((0.9, 0.98), 1e-9, 0, 0)
