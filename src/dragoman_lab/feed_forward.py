"""The feed-forward network: the same two matrices at each position, and what stands between them."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.config import FeedForwardConfig
from dragoman.model.transformer import FeedForward
from dragoman.training.optimizer import paper_rate
from dragoman_lab.drawing import LOSS, Panel, lines, mean_and_range
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.tasks import learn_with_seeds, reversing, small

D_MODEL, D_FF = 512, 2048  # of the paper
Activation = Literal["relu", "gelu"]
ACTIVATIONS: tuple[Activation, ...] = ("relu", "gelu")
FACTORS = (1.0, 2.0)  # times the rate of equation 3
TASK = reversing(longest=6)
CONFIG = small(64)
WARMUP = 100
SHOWN = (-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0)  # inputs in the table


def count_parameters(d_model: int, d_ff: int) -> int:
    """Return the number of parameters of equation 2: two matrices and two vectors."""
    return 2 * d_model * d_ff + d_ff + d_model


def gelu(x: float) -> float:
    """Return x times the probability that a standard normal number is below x."""
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def apply_as_convolutions(layer: FeedForward, x: Tensor) -> Tensor:
    """Return the layer's output for x (B, n, M), computed as two convolutions of width one over positions, with the
    layer's own weights.
    """
    hidden = F.conv1d(x.transpose(1, 2), layer.hidden.weight.unsqueeze(-1), layer.hidden.bias)
    return F.conv1d(layer.activation(hidden), layer.out.weight.unsqueeze(-1), layer.out.bias).transpose(1, 2)


@torch.no_grad()
def output_change(layer: FeedForward, x: Tensor, position: int) -> tuple[float, float]:
    """Add 1 to all numbers of x (B, n, M) at a position; return the largest absolute change of the layer's output at
    that position, and at any other one.
    """
    other = x.clone()
    other[:, position] += 1
    difference = (layer(other) - layer(x)).abs().amax((0, 2))
    elsewhere = torch.cat([difference[:position], difference[position + 1 :]])
    return float(difference[position]), float(elsewhere.max())


def roughness(losses: np.ndarray) -> float:
    """Return the mean change of the loss from one step to the next, as a share of the loss, over the second half of the
    steps. losses: (seeds, steps).
    """
    late = losses[:, losses.shape[1] // 2 :]
    return float(np.mean(np.abs(np.diff(late, axis=1)) / late[:, 1:]))


@dataclass(frozen=True)
class Trial:
    """Describe how models with one activation and one learning rate learned, once for each seed."""

    activation: Activation
    factor: float
    losses: np.ndarray  # (seeds, steps), nats per token
    accuracies: tuple[float, ...]  # by seed

    @property
    def mean(self) -> float:
        """Return the mean accuracy over seeds."""
        return float(np.mean(self.accuracies))


def train_with_activation(activation: Activation, factor: float, steps: int, seeds: tuple[int, ...]) -> Trial:
    """Train a fresh model on reversing with each seed, with an activation and the paper's learning rate
    times `factor`.
    """
    config = replace(CONFIG, feed_forward=replace(CONFIG.feed_forward, activation=activation))
    runs = learn_with_seeds(
        config, TASK, steps=steps, seeds=seeds, rate=lambda step: factor * paper_rate(step, CONFIG.d_model, WARMUP)
    )
    return Trial(activation, factor, np.array([run.losses for run in runs]), tuple(run.accuracy for run in runs))


def claims(trials: list[Trial], count: int, change: tuple[float, float], gap: float, gelu_gap: float) -> Claims:
    """Return each claim and whether it holds. count: parameters of a network; change: of the output at the changed
    position and elsewhere; gap: from two convolutions; gelu_gap: between PyTorch's GELU and the formula.
    """
    low, high = ({t.activation: t.mean for t in trials if t.factor == factor} for factor in FACTORS)
    rough = {a: [roughness(t.losses) for t in trials if t.activation == a] for a in ACTIVATIONS}
    expected = count_parameters(D_MODEL, D_FF)
    smoother = all(gelu < 0.95 * relu for gelu, relu in zip(rough["gelu"], rough["relu"], strict=True))
    return {
        f"The network has {count:,} parameters (2 × 512 × 2048 + 2048 + 512 = {expected:,}); changing the input at one "
        f"position changes [the output at that position only|other outputs, too]: by {change[0]:.2g} there, by "
        f"{change[1]:g} elsewhere.": count == expected and change[0] > 0 == change[1],
        f"Written as two convolutions of width one, it [gives|does not give] the same output, to within {gap:.1g}.": gap
        < 1e-4,
        f"GELU(1) is {gelu(1):.4f}, ReLU(1) is 1; GELU [is|is not] x times the normal distribution function, to within "
        f"{gelu_gap:.1g}.": gelu_gap < 1e-6,
        f"At the paper's rate {low['relu']:.1%} of unseen words are right with ReLU, {low['gelu']:.1%} with GELU: "
        "[both learn the task|at least one does not learn the task in these steps].": min(low.values()) > 0.9,
        f"At twice the rate {high['relu']:.1%} are right with ReLU and {high['gelu']:.1%} with GELU: the higher rate "
        "[costs GELU less|does not cost GELU less].": low["gelu"] - high["gelu"] < low["relu"] - high["relu"] - 0.02,
        f"From one step to the next, the loss changes by {rough['gelu'][0]:.1%} with GELU and {rough['relu'][0]:.1%} "
        f"with ReLU at the paper's rate, and by {rough['gelu'][1]:.1%} and {rough['relu'][1]:.1%} at twice that rate: "
        "with GELU it [jumps less|does not clearly jump less].": smoother,
    }


@experiment(
    "The feed-forward network, ReLU and GELU",
    "section 3.3",
    "Each position goes through the same two matrices, 512 to 2048 and back, on its own; this is the same as two "
    "convolutions of width one. GELU instead of ReLU makes training more stable.",
)
def run(effort: Effort) -> Findings:
    """Compare a network with convolutions, and train models with ReLU and with GELU at two learning rates."""
    steps = max(effort.scale(1000), 4)
    trials = [train_with_activation(a, factor, steps, effort.seeds) for factor in FACTORS for a in ACTIVATIONS]
    torch.manual_seed(effort.seeds[0])
    layer, x = FeedForward(D_MODEL, FeedForwardConfig(d_ff=D_FF)), torch.randn(2, 7, D_MODEL)
    with torch.no_grad():
        gap = float((apply_as_convolutions(layer, x) - layer(x)).abs().max())
        changed = output_change(layer, x, 3)
        gelu_gap = max(abs(float(F.gelu(torch.tensor(value))) - gelu(value)) for value in SHOWN)
    inputs = np.linspace(-4, 4, 161)
    curves = {"ReLU": (inputs, [max(v, 0.0) for v in inputs]), "GELU": (inputs, [gelu(v) for v in inputs])}
    return Findings(
        f"One network of d_model {D_MODEL} and d_ff {D_FF} with random weights. Then reversing up to 6 words, d_model "
        f"{CONFIG.d_model}, one layer on each side, {steps} steps of 64 sentences, warm-up {WARMUP}, {effort}, at 1 "
        f"and {FACTORS[1]:g} times the rate of equation 3.",
        claims(trials, sum(p.numel() for p in layer.parameters()), changed, gap, gelu_gap),
        {
            "Activations": Table("x | ReLU | GELU", [(value, max(value, 0.0), gelu(value)) for value in SHOWN]),
            "Learning to reverse": Table(
                "activation | factor on the rate | accuracy | standard deviation | step-to-step change of the loss",
                [(t.activation, t.factor, t.mean, float(np.std(t.accuracies)), roughness(t.losses)) for t in trials],
            ),
        },
        {
            "activations": Figure(
                "ReLU and GELU: both let large inputs through; GELU bends smoothly.",
                lines(Panel(curves, "x", "activation")),
            ),
            "losses": Figure(
                "Loss at one and two times the paper's rate: mean of all seeds, shaded from lowest to highest.",
                lines(*(losses_panel(trials, factor) for factor in FACTORS), sharey=True, legend="each"),
            ),
        },
    )


def losses_panel(trials: list[Trial], factor: float) -> Panel:
    """Return the panel of the losses at this factor of the learning rate, a curve and a band over seeds for each
    activation.
    """
    curves = {
        str(t.activation): mean_and_range(range(1, 1 + t.losses.shape[1]), t.losses)
        for t in trials
        if t.factor == factor
    }
    return Panel(curves, "step", LOSS, f"{factor:g} × the rate of equation 3", band=True)
