"""What the activation of a plain RNN does to its state and to its gradient, by the gain of the recurrent weights.

Shapes: B sentences, S steps, M size of a state, D draws of weights.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.lab.drawing import Panel, lines
from dragoman.lab.experiment import Claim, Effort, Experiment, Figure, Findings, Results, Table
from dragoman.lab.long_range import draw_weights
from dragoman.model.recurrent import ACTIVATIONS, PlainRNN

STEPS, SIZE, SENTENCES = 50, 64, 8
GAINS = (0.5, 1.0, math.sqrt(2), 2.0, 3.0)
INPUTS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 5.0)
BLURRED = 2.5  # from here on, it is often said, all inputs come out as about 1
DIVERGES = 1e4  # size of a state
GROWING = ("relu", "gelu")


def slope(activation: str, x: Tensor) -> Tensor:
    """Return the derivative of an activation at each number of x."""
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(ACTIVATIONS[activation](x).sum(), x)
    return gradient


@dataclass(frozen=True)
class Course:
    """What one activation with one gain does, as medians of all draws. `states` and `gradients` are norms, (S,)."""

    states: Tensor
    gradients: Tensor  # of the last state, summed up, by the input of each step
    largest: float  # absolute value of any number of any state

    @property
    def kept(self) -> float:
        """Return the gradient of the first input as a share of that of the last one."""
        return float(self.gradients[0] / self.gradients[-1])


def course(activation: str, gain: float, seeds: list[int]) -> Course:
    """Measure one activation with one gain, over all seeds."""
    states, gradients, largest = [], [], 0.0
    for seed in seeds:
        random = torch.manual_seed(seed)
        cell = PlainRNN(SIZE, SIZE, activation).double()
        draw_weights(cell, gain)
        x = torch.randn(SENTENCES, STEPS, SIZE, dtype=torch.float64, generator=random).requires_grad_()
        real = torch.ones(SENTENCES, STEPS, dtype=torch.bool)
        outputs, last = cell(x, real, x.new_zeros(SENTENCES, SIZE))
        (gradient,) = torch.autograd.grad(last.sum(), x)
        states.append(outputs.detach().norm(dim=-1))
        gradients.append(gradient.norm(dim=-1))
        largest = max(largest, float(outputs.detach().abs().max()))
    return Course(torch.cat(states).median(0).values, torch.cat(gradients).median(0).values, largest)


def results(courses: dict[tuple[str, float], Course]) -> Results:
    """Return the numbers that the claims are about."""
    edge = torch.tensor(BLURRED, dtype=torch.float64)
    ends = {gain: {name: float(courses[name, gain].states[-1]) for name in GROWING} for gain in GAINS}
    kept = {name: {gain: courses[name, gain].kept for gain in GAINS} for name in ACTIVATIONS}
    told = {name: ", ".join(f"{kept[name][gain]:.2g} (gain {gain:.3g})" for gain in GAINS) for name in kept}
    calm = [f"{gain:.3g}" for gain in GAINS if max(ends[gain].values()) < DIVERGES]
    return Results(
        value=float(edge.tanh()),
        lost=1 - float(edge.tanh()),
        slope=float(slope("tanh", edge)),
        bound=max(course.largest for (name, _), course in courses.items() if name == "tanh"),
        doubled=ends[2.0],
        calm=calm,
        calm_gains=", ".join(calm),
        diverging=len(GAINS) - len(calm),
        kept=kept,
        told=told,
    )


CLAIMS = (
    Claim(
        "tanh(2.5) is {value:.4f}, with a slope of {slope:.4f}: all larger inputs [share the last {lost:.4f} below "
        "1|can still be told apart].",
        holds=lambda r: r.lost < 0.02 and r.slope < 0.03,
    ),
    Claim(
        "The largest number in any state of tanh is {bound:.4f}, [never beyond 1, with any gain tried|beyond 1].",
        holds=lambda r: r.bound <= 1,
    ),
    Claim(
        "With a recurrent gain of 2 the state has grown to {doubled[relu]:.1e} (ReLU) and {doubled[gelu]:.1e} (GELU) "
        "at the last step[: it diverges|, which is no divergence].",
        holds=lambda r: min(r.doubled.values()) > DIVERGES,
    ),
    Claim(
        "ReLU and GELU diverge at {diverging} of 5 gains[.|, and do not at gain {calm_gains}: it depends on the gain.]",
        holds=lambda r: not r.calm,
    ),
    Claim(
        "Of the last input's gradient the first one keeps {told[relu]} with ReLU: [the vanishing is removed|it is the "
        "gain, not the activation alone, that removes the vanishing].",
        holds=lambda r: min(share for name in GROWING for share in r.kept[name].values()) > 1e-2,
    ),
    Claim(
        "With tanh it keeps {told[tanh]}: [it vanishes with every gain tried|the gradient does not vanish with every "
        "gain, and with large ones it explodes].",
        holds=lambda r: max(r.kept["tanh"].values()) < 1e-2,
    ),
)


def run(effort: Effort) -> Findings:
    seeds = [1000 * seed + draw for seed in effort.seeds for draw in range(effort.of(16))]
    courses = {(name, gain): course(name, gain, seeds) for name in ACTIVATIONS for gain in GAINS}
    points = torch.tensor(INPUTS, dtype=torch.float64)
    values = points.tanh()
    return Findings(
        f"A plain RNN before any training, states of {SIZE} numbers, {STEPS} steps of random input; recurrent weights "
        f"with a spread of gain / sqrt({SIZE}). Medians of {len(seeds)} draws of weights with {SENTENCES} sentences "
        "each.",
        results(courses),
        [
            Table(
                "tanh",
                "input | tanh | slope | distance from 1",
                [*zip(INPUTS, values.tolist(), slope("tanh", points).tolist(), (1 - values).tolist(), strict=True)],
            ),
            Table(
                f"The state and the gradient over {STEPS} steps",
                "activation | gain | state, first | state, last | gradient, first | gradient, last | kept",
                [
                    (*key, *(float(norms[i]) for norms in (c.states, c.gradients) for i in (0, -1)), c.kept)
                    for key, c in courses.items()
                ],
            ),
        ],
        [
            Figure(
                "activations",
                f"Three activations and their slopes. Grey: inputs from {BLURRED:g} on, where tanh is flat.",
                lines(function_panel("value"), function_panel("slope"), sharey=True),
            ),
            Figure(
                "gain-sweep",
                "Above: the norm of the state after each step. Below: how much the last state changes with the input "
                "of each step. Logarithmic axes.",
                lines(
                    *(course_panel(courses, name, "states", "norm of the state") for name in ACTIVATIONS),
                    *(course_panel(courses, name, "gradients", "gradient of the last state") for name in ACTIVATIONS),
                    rows=2,
                    sharex=True,
                    sharey="row",
                    legend="above",
                ),
                (10.0, 6.0),
            ),
        ],
    )


def function_panel(title: str) -> Panel:
    x = torch.linspace(-5, 5, 201)
    curves = {name: (x, function(x) if title == "value" else slope(name, x)) for name, function in ACTIVATIONS.items()}
    return Panel(
        curves, "input", title, ylim=(-1.5, 3), also=lambda axes: axes.axvspan(BLURRED, 5, color="0.9", zorder=0)
    )


def course_panel(courses: dict[tuple[str, float], Course], name: str, norms: str, label: str) -> Panel:
    curves = {f"gain {gain:.3g}": (range(1, STEPS + 1), getattr(courses[name, gain], norms)) for gain in GAINS}
    return Panel(curves, "step", label, name, log="y")


EXPERIMENT = Experiment(
    title="tanh, ReLU and GELU in a recurrent state",
    source="common teaching",
    thesis="tanh squeezes inputs of 2.5 and more into about 1, so that they blur, and its slope makes gradients "
    "vanish. ReLU or GELU remove the vanishing, but then the state diverges.",
    claims=CLAIMS,
    run=run,
)
