"""The learning rate of equation 3, and learning with and without its warm-up."""

from dataclasses import dataclass

import numpy as np

from dragoman.training.optimizer import paper_rate
from dragoman_lab.drawing import LOSS, Panel, lines, mean_and_range
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.tasks import Rate, copying, learn_with_seeds, small

CURVES = ((512, 4000), (512, 8000), (256, 4000), (1024, 4000))  # d_model and steps of warm-up
PAPER = (512, 4000)
STEPS = (1, 100, 1000, 4000, 8000, 16000, 100_000)
TASK = copying(longest=6)
CONFIG = small(64, layers=3)
WARMUP, FACTOR = 100, 0.4  # of the task: so small a model and so short a warm-up need less than equation 3 gives
LAST = 20  # steps whose mean loss is that of the end


def rate_without_warmup(step: int, d_model: int, warmup: int) -> float:
    """Return the learning rate of equation 3 without its rise: the highest rate up to step `warmup`, then falling as
    there.
    """
    return paper_rate(max(step, warmup), d_model, warmup)


def peak_step(d_model: int, warmup: int) -> int:
    """Return the step with the highest rate of equation 3, searched up to twice the warm-up."""
    return max(range(1, 2 * warmup + 1), key=lambda step: paper_rate(step, d_model, warmup))


@dataclass(frozen=True)
class Trial:
    """Describe how models with one learning rate learned, once for each seed."""

    name: str
    losses: np.ndarray  # (seeds, steps), nats per token
    accuracies: tuple[float, ...]  # by seed

    @property
    def ends(self) -> np.ndarray:
        """Return the mean loss of the last LAST steps, by seed: (seeds,)."""
        return self.losses[:, -LAST:].mean(1)

    @property
    def right(self) -> float:
        """Return the mean accuracy over seeds."""
        return float(np.mean(self.accuracies))


def train_with_rate(name: str, rate: Rate, steps: int, seeds: tuple[int, ...]) -> Trial:
    """Train a fresh model on copying with each seed, at this learning rate, on batches of 32 pairs, without clipping
    gradients. name: of the rate in tables.
    """
    runs = learn_with_seeds(CONFIG, TASK, steps=steps, seeds=seeds, rate=rate, batch=32, clip=0.0)
    return Trial(name, np.array([run.losses for run in runs]), tuple(run.accuracy for run in runs))


def claims(warm: Trial, cold: Trial, peaks: dict[tuple[int, int], int]) -> Claims:
    """Return each claim and whether it holds. warm, cold: with warm-up and without; peaks: the step with the highest
    rate, by d_model and warm-up.
    """
    first, highest, later = (paper_rate(step, *PAPER) for step in (1, 4000, 16000))
    at_warmup = all(step == warmup for (_, warmup), step in peaks.items())
    peak_steps = ", ".join(f"{step:,} (warm-up {warmup:,}, d_model {d})" for (d, warmup), step in peaks.items())
    halves = [paper_rate(4 * warmup, d, warmup) / paper_rate(warmup, d, warmup) for d, warmup in CURVES]
    learned = float(warm.ends.max()) < 0.8 * float(cold.ends.min())  # the worst seed against the best one
    return {
        "The rate [is|is not] highest at the end of the warm-up and half as high after four times as many steps: at "
        f"d_model 512 it is {first:.4e} at step 1, {highest:.4e} at 4,000 and {later:.4e} at 16,000; the highest rate "
        f"comes at step {peak_steps}.": at_warmup and np.allclose(halves, 0.5),
        f"At the end the loss is {warm.ends.mean():.3g} with warm-up and {cold.ends.mean():.3g} without, and "
        f"{warm.right:.0%} and {cold.right:.0%} of the words are right: [at this rate less is learned without the "
        "warm-up|the warm-up makes no clear difference here].": learned,
    }


@experiment(
    "The learning rate of equation 3",
    "section 5.3",
    "The rate rises linearly over the warm-up and then falls with the inverse square root of the step, d_model^-0.5 "
    "min(step^-0.5, step warmup^-1.5); the post-norm Transformer needs this warm-up to learn.",
)
def run(effort: Effort) -> Findings:
    """Compute the rates of equation 3, and train models with and without warm-up."""
    steps = max(effort.scale(800), LAST)
    rates: dict[str, Rate] = {
        "with warm-up": lambda step: FACTOR * paper_rate(step, CONFIG.d_model, WARMUP),
        "without": lambda step: FACTOR * rate_without_warmup(step, CONFIG.d_model, WARMUP),
    }
    trials = [train_with_rate(name, rate, steps, effort.seeds) for name, rate in rates.items()]
    drawn = np.unique(np.concatenate([np.arange(1, 30_001, 100), [warmup for _, warmup in CURVES]]))
    names = {pair: f"d_model {pair[0]}, warm-up {pair[1]}" for pair in CURVES}
    curves = {name: (drawn, [paper_rate(int(step), *pair) for step in drawn]) for pair, name in names.items()}
    losses = {trial.name: mean_and_range(range(1, 1 + steps), trial.losses) for trial in trials}
    return Findings(
        f"Equation 3 for several d_model and warm-ups. Then copying up to 6 words, post-norm, {CONFIG.encoder_layers} "
        f"+ {CONFIG.decoder_layers} layers, d_model {CONFIG.d_model}, {steps} steps of 32 sentences, no clipping, "
        f"{effort}: once with {FACTOR:g} times equation 3 and {WARMUP} steps of warm-up, once with the highest of "
        f"these rates, {rates['without'](1):.3g}, from the first step on.",
        claims(trials[0], trials[1], {pair: peak_step(*pair) for pair in CURVES}),
        {
            "Learning rates of equation 3": Table(
                " | ".join(["step", *names.values()]),
                [(step, *(paper_rate(step, *pair) for pair in CURVES)) for step in STEPS],
            ),
            "Learning with and without warm-up": Table(
                "rate | loss at the end (nats) | standard deviation | accuracy | lowest accuracy of a seed",
                [
                    (t.name, float(t.losses[:, -LAST:].mean()), float(t.ends.std()), t.right, min(t.accuracies))
                    for t in trials
                ],
            ),
        },
        {
            "rates": Figure(
                "The learning rate by step, for several d_model and warm-ups.",
                lines(Panel(curves, "step", "learning rate")),
            ),
            "losses": Figure(
                "Loss with and without warm-up: mean of all seeds, shaded from the lowest to the highest.",
                lines(Panel(losses, "step", LOSS, ylim=(0, None), band=True)),
            ),
        },
    )
