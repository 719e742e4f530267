"""The learning rate of equation 3, and learning with and without its warm-up."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.tasks import Rate, copying, learn
from dragoman.model import build
from dragoman.training.optimizer import paper_rate

CURVES = ((512, 4000), (512, 8000), (256, 4000), (1024, 4000))  # d_model and steps of warm-up
PAPER = (512, 4000)
STEPS = (1, 100, 1000, 4000, 8000, 16000, 100_000)
TASK = copying(longest=6)
CONFIG = TransformerConfig(
    d_model=64,
    encoder_layers=3,
    decoder_layers=3,
    attention=AttentionConfig(heads=4),
    feed_forward=FeedForwardConfig(d_ff=128),
    dropout=0.0,
)
WARMUP, FACTOR = 100, 0.4  # of the toy: so small a model and so short a warm-up want less than equation 3 gives
LAST = 20  # steps whose mean loss is that of the end


def without_warmup(step: int, d_model: int, warmup: int) -> float:
    """Equation 3 at its highest from the first step on, falling from where it falls."""
    return paper_rate(max(step, warmup), d_model, warmup)


def peak(d_model: int, warmup: int) -> int:
    """The step with the highest rate, found by looking at all steps up to twice the warm-up."""
    return max(range(1, 2 * warmup + 1), key=lambda step: paper_rate(step, d_model, warmup))


@dataclass(frozen=True)
class Trial:
    name: str
    losses: np.ndarray  # (seeds, steps), nats per token
    accuracies: tuple[float, ...]  # by seed

    @property
    def end(self) -> float:
        return float(self.losses[:, -LAST:].mean())


def trained(name: str, rate: Rate, steps: int, seeds: tuple[int, ...]) -> Trial:
    runs = []
    for seed in seeds:
        torch.manual_seed(seed)
        runs.append(learn(build(CONFIG, TASK.vocabulary), TASK, steps=steps, seed=seed, rate=rate, batch=32, clip=0.0))
    return Trial(name, np.array([run.losses for run in runs]), tuple(run.accuracy for run in runs))


def judge(warm: Trial, cold: Trial) -> Verdict:
    """With warm-up the loss is clearly lower at the end, whatever the seed."""
    worst, best = warm.losses[:, -LAST:].mean(1).max(), cold.losses[:, -LAST:].mean(1).min()
    seen = bool(worst < 0.8 * best)
    return Verdict(
        seen,
        f"At the end the loss is {warm.end:.3g} with warm-up and {cold.end:.3g} without, "
        f"{np.mean(warm.accuracies):.0%} and {np.mean(cold.accuracies):.0%} of the words are right: "
        + ("learning needs it at this rate." if seen else "it makes no clear difference here."),
    )


def run(effort: Effort) -> Findings:
    steps = max(effort.of(800), LAST)
    rates: dict[str, Rate] = {
        "with warm-up": lambda step: FACTOR * paper_rate(step, CONFIG.d_model, WARMUP),
        "without": lambda step: FACTOR * without_warmup(step, CONFIG.d_model, WARMUP),
    }
    warm, cold = (trained(name, rate, steps, effort.seeds) for name, rate in rates.items())
    peaks = {pair: peak(*pair) for pair in CURVES}
    at_warmup = all(found == warmup for (_, warmup), found in peaks.items())
    halves = [paper_rate(4 * warmup, d, warmup) / paper_rate(warmup, d, warmup) for d, warmup in CURVES]
    first, highest, later = (paper_rate(step, *PAPER) for step in (1, 4000, 16000))
    highest_here = rates["without"](1)
    return Findings(
        setting=f"Equation 3 for several d_model and warm-ups. Then copying up to 6 words, post-norm, "
        f"{CONFIG.encoder_layers} + {CONFIG.decoder_layers} layers, d_model {CONFIG.d_model}, {steps} steps of 32 "
        f"sentences, no clipping, seeds {', '.join(map(str, effort.seeds))}: once with {FACTOR:g} "
        f"times equation 3 and {WARMUP} steps of warm-up, once at the highest rate of that, {highest_here:.3g}, from "
        "the first step on.",
        verdicts=(
            Verdict(
                at_warmup and np.allclose(halves, 0.5),
                f"At d_model 512 the rate is {first:.4e} at step 1, {highest:.4e} at 4,000 and {later:.4e} at 16,000. "
                + "The highest rate comes at step "
                + ", ".join(f"{found:,} (warm-up {warmup:,}, d_model {d})" for (d, warmup), found in peaks.items())
                + f"; at four times that step it is {np.mean(halves):.3g} of it.",
            ),
            judge(warm, cold),
        ),
        tables=(
            Table(
                "Learning rates of equation 3",
                ("step", *(f"d_model {d}, warm-up {warmup}" for d, warmup in CURVES)),
                tuple((step, *(paper_rate(step, *pair) for pair in CURVES)) for step in STEPS),
            ),
            Table(
                "Learning with and without warm-up",
                ("rate", "loss at the end (nats)", "standard deviation", "accuracy", "lowest accuracy of a seed"),
                tuple(
                    (
                        t.name,
                        t.end,
                        float(t.losses[:, -LAST:].mean(1).std()),
                        float(np.mean(t.accuracies)),
                        min(t.accuracies),
                    )
                    for t in (warm, cold)
                ),
            ),
        ),
        figures=(
            Figure("rates", "The learning rate by step, for several d_model and warm-ups.", draw_rates),
            Figure(
                "losses",
                "The loss while learning to copy, with warm-up and without; mean of all seeds, shaded from the lowest "
                "to the highest.",
                lambda figure: draw_losses(figure, (warm, cold)),
            ),
        ),
    )


def draw_rates(figure: Any) -> None:
    axes = figure.subplots()
    steps = np.unique(np.concatenate([np.arange(1, 30_001, 100), [warmup for _, warmup in CURVES]]))
    for index, (d_model, warmup) in enumerate(CURVES):
        rates = [paper_rate(int(step), d_model, warmup) for step in steps]
        label = f"d_model {d_model}, warm-up {warmup:,}"
        axes.plot(steps, rates, label=label, markevery=(10 * index, 50), **style(index))
    axes.set_xlabel("step")
    axes.set_ylabel("learning rate")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(frameon=False)


def draw_losses(figure: Any, trials: tuple[Trial, ...]) -> None:
    axes = figure.subplots()
    for index, trial in enumerate(trials):
        steps = np.arange(1, trial.losses.shape[1] + 1)
        every = len(steps) // 8 + 1
        axes.plot(steps, trial.losses.mean(0), label=trial.name, markevery=every, **style(index))
        axes.fill_between(steps, trial.losses.min(0), trial.losses.max(0), color=style(index)["color"], alpha=0.2)
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per token)")
    axes.set_ylim(bottom=0)
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(frameon=False)


EXPERIMENT = Experiment(
    title="The learning rate of equation 3",
    source="the paper, section 5.3; note 001 (warm-up and the place of the norm)",
    claim="The rate rises linearly over the warm-up and then falls with the square root of the step, "
    "d_model^-0.5 min(step^-0.5, step warmup^-1.5); the post-norm Transformer needs this warm-up to learn.",
    run=run,
)
