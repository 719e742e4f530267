"""The feed-forward network: the same two matrices at each place, and what stands between them.

Shapes: B sentences, n places, M d_model.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.tasks import learn, reversing
from dragoman.model import build
from dragoman.model.transformer import FeedForward
from dragoman.training.optimizer import paper_rate

D_MODEL, D_FF = 512, 2048  # of the paper
Activation = Literal["relu", "gelu"]
ACTIVATIONS: tuple[Activation, ...] = ("relu", "gelu")
FACTORS = (1.0, 2.0)  # times the rate of equation 3
TASK = reversing(longest=6)
CONFIG = TransformerConfig(
    d_model=64,
    encoder_layers=1,
    decoder_layers=1,
    attention=AttentionConfig(heads=4),
    feed_forward=FeedForwardConfig(d_ff=128),
    dropout=0.0,
)
WARMUP = 100
SHOWN = (-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0)  # inputs in the table


def parameters(d_model: int, d_ff: int) -> int:
    """Equation 2: two matrices and two vectors."""
    return 2 * d_model * d_ff + d_ff + d_model


def gelu(x: float) -> float:
    """x times the probability that a standard normal number is below x."""
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def as_convolutions(layer: FeedForward, x: Tensor) -> Tensor:
    """The same weights as two convolutions of width one over the places of x (B, n, M)."""
    hidden = F.conv1d(x.transpose(1, 2), layer.hidden.weight.unsqueeze(-1), layer.hidden.bias)
    return F.conv1d(layer.activation(hidden), layer.out.weight.unsqueeze(-1), layer.out.bias).transpose(1, 2)


@torch.no_grad()
def change(layer: FeedForward, x: Tensor, place: int) -> tuple[float, float]:
    """How much the output at `place`, and any other output, changes when there is another input at `place`."""
    other = x.clone()
    other[:, place] += 1
    difference = (layer(other) - layer(x)).abs().amax((0, 2))
    elsewhere = torch.cat([difference[:place], difference[place + 1 :]])
    return float(difference[place]), float(elsewhere.max())


def roughness(losses: np.ndarray) -> float:
    """How much the loss (seeds, steps) jumps from step to step in the second half of training, as a share of it."""
    late = losses[:, losses.shape[1] // 2 :]
    return float(np.mean(np.abs(np.diff(late, axis=1)) / late[:, 1:]))


@dataclass(frozen=True)
class Trial:
    activation: Activation
    factor: float
    losses: np.ndarray  # (seeds, steps), nats per token
    accuracies: tuple[float, ...]  # by seed

    @property
    def mean(self) -> float:
        return float(np.mean(self.accuracies))


def trained(activation: Activation, factor: float, steps: int, seeds: tuple[int, ...]) -> Trial:
    config = replace(CONFIG, feed_forward=replace(CONFIG.feed_forward, activation=activation))
    runs = []
    for seed in seeds:
        torch.manual_seed(seed)
        model = build(config, TASK.vocabulary)
        runs.append(
            learn(
                model, TASK, steps=steps, seed=seed, rate=lambda step: factor * paper_rate(step, CONFIG.d_model, WARMUP)
            )
        )
    return Trial(activation, factor, np.array([run.losses for run in runs]), tuple(run.accuracy for run in runs))


def judge_robustness(trials: list[Trial]) -> Verdict:
    """GELU is more stable if a rate that is too high costs it less accuracy, by two percent at least."""
    by = {(trial.activation, trial.factor): trial.mean for trial in trials}
    low, high = FACTORS
    cost = {activation: by[activation, low] - by[activation, high] for activation in ACTIVATIONS}
    seen = cost["gelu"] < cost["relu"] - 0.02
    return Verdict(
        seen,
        f"At {high:g} times the rate {by['relu', high]:.1%} are right with ReLU and {by['gelu', high]:.1%} with GELU: "
        + ("the higher rate costs GELU less." if seen else "the higher rate does not cost GELU less."),
    )


def judge_smoothness(trials: list[Trial]) -> Verdict:
    """GELU is more stable if its loss jumps less, by a twentieth at least, at each rate."""
    by = {(trial.activation, trial.factor): roughness(trial.losses) for trial in trials}
    seen = all(by["gelu", factor] < 0.95 * by["relu", factor] for factor in FACTORS)
    return Verdict(
        seen,
        "From step to step the loss changes by "
        + ", ".join(
            f"{by['gelu', factor]:.1%} of itself with GELU and {by['relu', factor]:.1%} with ReLU at {factor:g} times "
            "the rate"
            for factor in FACTORS
        )
        + (": with GELU it jumps less." if seen else ": with GELU it does not clearly jump less."),
    )


def judge_learning(trials: list[Trial]) -> Verdict:
    """At the paper's rate both activations learn, and about equally well."""
    by = {trial.activation: trial.mean for trial in trials if trial.factor == 1}
    seen = min(by.values()) > 0.9
    return Verdict(
        seen,
        f"At the paper's rate {by['relu']:.1%} of unseen words are right with ReLU, {by['gelu']:.1%} with GELU: "
        + ("both learn the task." if seen else "not both learn the task in these steps."),
    )


def run(effort: Effort) -> Findings:
    steps = max(effort.of(1000), 4)
    trials = [trained(a, factor, steps, effort.seeds) for factor in FACTORS for a in ACTIVATIONS]
    torch.manual_seed(effort.seeds[0])
    layer, x = FeedForward(D_MODEL, FeedForwardConfig(d_ff=D_FF)), torch.randn(2, 7, D_MODEL)
    with torch.no_grad():
        gap = float((as_convolutions(layer, x) - layer(x)).abs().max())
        here, elsewhere = change(layer, x, 3)
        gelu_gap = max(abs(float(F.gelu(torch.tensor(value))) - gelu(value)) for value in SHOWN)
    counted = sum(p.numel() for p in layer.parameters())
    return Findings(
        setting=f"One network of d_model {D_MODEL} and d_ff {D_FF} with random weights. Then reversing up to 6 words, "
        f"d_model {CONFIG.d_model}, one layer on each side, {steps} steps of 64 sentences, warm-up {WARMUP}, seeds "
        f"{', '.join(map(str, effort.seeds))}, at 1 and {FACTORS[1]:g} times the rate of equation 3.",
        verdicts=(
            Verdict(
                counted == parameters(D_MODEL, D_FF) and here > 0 == elsewhere,
                f"The network has {counted:,} parameters (2 × {D_MODEL} × {D_FF} + {D_FF} + {D_MODEL} = "
                f"{parameters(D_MODEL, D_FF):,}); another input at one place changes the output there by {here:.2g} "
                f"and at the others by {elsewhere:g}.",
            ),
            Verdict(gap < 1e-4, f"As two convolutions of width one it gives the same, to within {gap:.1g}."),
            Verdict(
                gelu_gap < 1e-6,
                f"GELU(1) is {gelu(1):.4f}, ReLU(1) is 1; GELU is x times the normal distribution function, to within "
                f"{gelu_gap:.1g}.",
            ),
            judge_learning(trials),
            judge_robustness(trials),
            judge_smoothness(trials),
        ),
        tables=(
            Table(
                "Activations", ("x", "ReLU", "GELU"), tuple((value, max(value, 0.0), gelu(value)) for value in SHOWN)
            ),
            Table(
                "Learning to reverse",
                (
                    "activation",
                    "factor on the rate",
                    "accuracy",
                    "standard deviation",
                    "step-to-step change of the loss",
                ),
                tuple(
                    (t.activation, t.factor, t.mean, float(np.std(t.accuracies)), roughness(t.losses)) for t in trials
                ),
            ),
        ),
        figures=(
            Figure(
                "activations", "ReLU and GELU: both let large inputs through; GELU bends smoothly.", draw_activations
            ),
            Figure(
                "losses",
                "The loss while learning to reverse, with ReLU and GELU, at one and at two times the paper's rate; "
                "mean of all seeds, shaded from the lowest to the highest.",
                lambda figure: draw_losses(figure, trials),
            ),
        ),
    )


def draw_activations(figure: Any) -> None:
    axes = figure.subplots()
    places = np.linspace(-4, 4, 161)
    for index, (name, curve) in enumerate(
        {"ReLU": [max(x, 0.0) for x in places], "GELU": [gelu(x) for x in places]}.items()
    ):
        axes.plot(places, curve, label=name, markevery=(5 * index, 20), **style(index))
    axes.set_xlabel("x")
    axes.set_ylabel("activation")
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(frameon=False)


def draw_losses(figure: Any, trials: list[Trial]) -> None:
    for axes, factor in zip(figure.subplots(1, len(FACTORS), sharey=True), FACTORS, strict=True):
        for index, trial in enumerate(trial for trial in trials if trial.factor == factor):
            steps = np.arange(1, trial.losses.shape[1] + 1)
            every = len(steps) // 8 + 1
            axes.plot(steps, trial.losses.mean(0), label=trial.activation, markevery=every, **style(index))
            axes.fill_between(steps, trial.losses.min(0), trial.losses.max(0), color=style(index)["color"], alpha=0.2)
        axes.set_title(f"{factor:g} × the rate of equation 3", fontsize=10)
        axes.set_xlabel("step")
        axes.grid(color="0.9", linewidth=0.6)
        axes.legend(frameon=False)
    figure.axes[0].set_ylabel("loss (nats per token)")


EXPERIMENT = Experiment(
    title="The feed-forward network, ReLU and GELU",
    source="notes 001 and 004; the paper, section 3.3",
    claim="Each place goes through the same two matrices, 512 to 2048 and back, on its own; this is the same as two "
    "convolutions of width one. GELU in place of ReLU makes training more stable.",
    run=run,
)
