"""When a run ends, validates and saves: functions of how far it is, of its settings, and of the last checkpoint."""

import math
from dataclasses import replace
from typing import Any

import pytest

from dragoman.config import TrainingConfig
from dragoman.training.checkpoint import TrainingProgress
from dragoman.training.limits import (
    Saved,
    reason_to_end,
    save_interval,
    save_is_due,
    save_is_planned,
    share_done,
    total_steps,
    validation_interval,
    validation_is_due,
    validation_time,
)


@pytest.mark.parametrize(
    ("ended", "took", "due"),
    [
        (0, 0, 60),  # a tenth of ten minutes
        (100, 2, 160),
        (100, 10, 300),  # 10 s of validating in 200 s are 5 %
        (480, 3, 540),
        (485, 3, math.inf),  # the last validation comes as soon
        (100, 30, math.inf),
    ],
)
def test_validation_time_costs_little_and_is_not_close_to_the_end(ended: float, took: float, due: float):
    progress = TrainingProgress(validated_seconds=ended, validation_seconds=took)
    assert validation_time(progress, TrainingConfig(minutes=10)) == due
    assert validation_time(progress, TrainingConfig()) == math.inf
    assert validation_time(progress, TrainingConfig(minutes=10, validate_every=100)) == math.inf


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 300),
        ({"minutes": 1.0}, 30),
        ({"minutes": 5.0}, 30),
        ({"minutes": 30.0}, 180),
        ({"minutes": 120.0}, 300),
        ({"minutes": 5.0, "save_minutes": 4.0}, 240),
        ({"save_minutes": 0.0}, math.inf),
    ],
)
def test_save_interval_depends_on_the_minutes_of_the_run(settings: dict[str, Any], seconds: float):
    assert save_interval(TrainingConfig(**settings)) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("limits", "steps", "share"),
    [
        ({"max_steps": 70}, 70, 0.5),
        ({"max_steps": None, "epochs": 2}, 20, 1.0),  # 35 steps are more than two epochs of ten batches
        ({"max_steps": 9000, "epochs": 5}, 50, 0.7),
        ({"max_steps": 70, "minutes": 5.0}, None, 0.6),  # nobody knows how many steps five minutes are
    ],
)
def test_total_steps_and_share_done_are_those_of_the_first_limit(
    limits: dict[str, Any], steps: int | None, share: float
):
    settings = TrainingConfig(**{"epochs": 50, **limits})
    progress = TrainingProgress(step=35, epoch=3, batch=5, seconds=180.0)
    assert total_steps(settings, batches=10) == steps
    assert share_done(progress, settings, batches=10) == pytest.approx(share)


@pytest.mark.parametrize(
    ("limit", "why"), [(36, ""), (35, "all 35 steps done"), (30, "the limit of 30 steps is exceeded")]
)
def test_reason_to_end_says_that_a_limit_was_lowered(limit: int, why: str):
    assert reason_to_end(TrainingProgress(step=35), TrainingConfig(max_steps=limit)) == why


@pytest.mark.parametrize(
    ("tokens", "wanted", "interval"),
    [(1_000, None, 100), (400_000, None, 400), (9_000_000, None, 1000), (9_000_000, 7, 7)],
)
def test_validation_interval_is_about_an_epoch_within_bounds(tokens: int, wanted: int | None, interval: int):
    assert validation_interval(TrainingConfig(batch_tokens=1000, validate_every=wanted), tokens) == interval


@pytest.mark.parametrize(
    ("changes", "due"),
    [
        ({}, True),  # step 40 of every 20
        ({"step": 41}, False),
        ({"validated": 40}, False),  # no model twice
        ({"step": 41, "finished": "done"}, True),
        ({"step": 41, "finished": "done", "validated": 41}, False),
        ({"step": 41, "seconds": 60.0}, True),  # a tenth of ten minutes
        ({"step": 41, "seconds": 59.0}, False),
        ({"step": 0, "seconds": 60.0, "validated": -1}, False),  # nothing is learned yet
    ],
)
def test_validation_is_due_by_interval_by_clock_and_at_the_end(changes: dict[str, Any], due: bool):
    progress = replace(TrainingProgress(step=40, validated=20), **changes)
    assert validation_is_due(progress, TrainingConfig(minutes=10), 20, fine_tuning=False) == due


@pytest.mark.parametrize(("validated", "fine_tuning", "due"), [(-1, True, True), (-1, False, False), (0, True, False)])
def test_validation_is_due_before_the_first_step_of_fine_tuning(validated: int, fine_tuning: bool, due: bool):
    progress = TrainingProgress(validated=validated)
    assert validation_is_due(progress, TrainingConfig(), 20, fine_tuning) == due


@pytest.mark.parametrize(
    ("changes", "saved", "planned"),
    [
        ({}, Saved(30, 20), True),  # step 40 of every 10
        ({}, Saved(40, 20), False),  # it is saved
        ({"step": 41}, Saved(30, 20), False),
        ({"step": 41, "validated": 41}, Saved(30, 20), True),
        ({"step": 41, "validated": 41}, Saved(41, 20), True),  # saved before it was validated
        ({"step": 0, "validated": -1}, Saved(), False),
        ({"step": 0, "validated": 0}, Saved(), True),  # as fine-tuning begins
    ],
)
def test_save_is_planned_after_each_validation_and_each_interval(changes: dict[str, Any], saved: Saved, planned: bool):
    progress = replace(TrainingProgress(step=40, validated=20, seconds=1e9), **changes)
    assert save_is_planned(progress, TrainingConfig(save_every=10), saved) == planned
    if planned:
        assert save_is_due(progress, TrainingConfig(save_every=10, save_minutes=0.0), saved, stopping=False)


@pytest.mark.parametrize(
    ("step", "seconds", "stopping", "due"),
    [
        (41, 160.0, False, True),  # a minute after the last
        (41, 159.0, False, False),
        (41, 159.0, True, True),
        (40, 160.0, True, False),  # this step is saved
    ],
)
def test_save_is_due_by_the_clock_and_before_stopping(step: int, seconds: float, stopping: bool, due: bool):
    progress = TrainingProgress(step=step, validated=20, seconds=seconds)
    settings, saved = TrainingConfig(save_minutes=1.0), Saved(40, 20, 100.0)
    assert save_is_due(progress, settings, saved, stopping) == due
    assert not save_is_planned(progress, settings, saved)


def test_save_is_not_due_by_the_clock_before_the_first_step():
    progress, settings = TrainingProgress(seconds=1e9), TrainingConfig(save_minutes=1.0)
    assert not save_is_due(progress, settings, Saved(), stopping=False)
    assert save_is_due(replace(progress, step=1), settings, Saved(), stopping=False)  # the control
