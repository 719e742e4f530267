"""What the activation of a plain RNN does to its state and to its gradient, by the gain of the recurrent weights."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.model.recurrent import ACTIVATIONS, PlainRNN
from dragoman_lab.drawing import Panel, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.long_range import draw_weights

STEPS, SIZE, SENTENCES = 50, 64, 8
GAINS = (0.5, 1.0, math.sqrt(2), 2.0, 3.0)
INPUTS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 5.0)
BLURRED = 2.5  # from here on, it is often said, all inputs come out as about 1
DIVERGES = 1e4  # size of a state
GROWING = ("relu", "gelu")


def slope(activation: str, x: Tensor) -> Tensor:
    """Return the derivative of an activation ("tanh", "relu" or "gelu") at each number of x, in the shape of x."""
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(ACTIVATIONS[activation](x).sum(), x)
    return gradient


@dataclass(frozen=True)
class Course:
    """Describe what an activation with a gain does: `states` and `gradients` are norms (S,), medians of all draws."""

    states: Tensor
    gradients: Tensor  # of the last state, summed up, by the input of each step
    largest: float  # absolute value of any number of any state

    @property
    def kept(self) -> float:
        """Return the gradient of the first input as a share of that of the last one."""
        return float(self.gradients[0] / self.gradients[-1])


def measure_course(activation: str, gain: float, seeds: list[int]) -> Course:
    """Run a plain RNN on random input with one activation and one gain of its recurrent weights, once per seed; return
    medians over all seeds and sentences.
    """
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


def claims(courses: dict[tuple[str, float], Course], blurred: float) -> Claims:
    """Return each claim and whether it holds. courses: by activation and gain; blurred: the input whose tanh is said to
    be about 1.
    """
    edge = torch.tensor(blurred, dtype=torch.float64)
    ends = {gain: {name: float(courses[name, gain].states[-1]) for name in GROWING} for gain in GAINS}
    kept = {name: {gain: courses[name, gain].kept for gain in GAINS} for name in ACTIVATIONS}
    shares = {name: ", ".join(f"{kept[name][gain]:.2g} (gain {gain:.3g})" for gain in GAINS) for name in kept}
    calm = [f"{gain:.3g}" for gain in GAINS if max(ends[gain].values()) < DIVERGES]
    lost, steepness = 1 - float(edge.tanh()), float(slope("tanh", edge))
    bound = max(course.largest for (name, _), course in courses.items() if name == "tanh")
    return {
        f"tanh({blurred}) is {float(edge.tanh()):.4f}, with a slope of {steepness:.4f}: all larger inputs [fall into "
        f"the last {lost:.4f} below 1|can still be told apart].": lost < 0.02 and steepness < 0.03,
        f"The largest number in any tanh state is {bound:.4f}: [never above 1, at any gain tried|above 1].": bound <= 1,
        f"With a recurrent gain of 2 the state has grown to {ends[2.0]['relu']:.1e} (ReLU) and {ends[2.0]['gelu']:.1e} "
        "(GELU) at the last step[: it diverges|, which is not divergence].": min(ends[2.0].values()) > DIVERGES,
        f"ReLU and GELU diverge at {len(GAINS) - len(calm)} of 5 gains[.|, but not at gain {', '.join(calm)}: it "
        "depends on the gain.]": not calm,
        f"With ReLU, the gradient of the first input, as a share of that of the last, is {shares['relu']}: [it no "
        "longer vanishes|whether it vanishes depends on the gain, not on the activation "
        "alone].": min(share for name in GROWING for share in kept[name].values()) > 1e-2,
        f"With tanh that gradient is {shares['tanh']}: [it vanishes at every gain tried|it does not vanish at every "
        "gain, and explodes at large ones].": max(kept["tanh"].values()) < 1e-2,
    }


@experiment(
    "tanh, ReLU and GELU in a recurrent state",
    "common teaching",
    "tanh maps all inputs from 2.5 on to about 1, so that they can no longer be told apart, and its slope makes "
    "gradients vanish. With ReLU or GELU gradients do not vanish, but the state diverges.",
)
def run(effort: Effort) -> Findings:
    """Measure states and gradients of an untrained plain RNN for each activation and gain."""
    seeds = [1000 * seed + draw for seed in effort.seeds for draw in range(effort.scale(16))]
    courses = {(name, gain): measure_course(name, gain, seeds) for name in ACTIVATIONS for gain in GAINS}
    points = torch.tensor(INPUTS, dtype=torch.float64)
    values = points.tanh()
    labels = {"states": "norm of the state", "gradients": "gradient of the last state"}
    panels = [course_panel(courses, name, *norms) for norms in labels.items() for name in ACTIVATIONS]
    return Findings(
        f"An untrained plain RNN, states of {SIZE} numbers, {STEPS} steps of random input; recurrent weights with a "
        f"spread of gain / sqrt({SIZE}). Medians of {len(seeds)} draws of weights with {SENTENCES} sentences each.",
        claims(courses, BLURRED),
        {
            "tanh": Table(
                "input | tanh | slope | distance from 1",
                [*zip(INPUTS, values.tolist(), slope("tanh", points).tolist(), (1 - values).tolist(), strict=True)],
            ),
            f"The state and the gradient over {STEPS} steps": Table(
                "activation | gain | state, first | state, last | gradient, first | gradient, last | kept",
                [
                    (*key, *(float(norms[i]) for norms in (c.states, c.gradients) for i in (0, -1)), c.kept)
                    for key, c in courses.items()
                ],
            ),
        },
        {
            "activations": Figure(
                f"Three activations and their slopes. Grey: inputs from {BLURRED:g} on, where tanh is flat.",
                lines(function_panel("value"), function_panel("slope"), sharey=True),
            ),
            "gain-sweep": Figure(
                "Above: the norm of the state after each step. Below: the gradient of the last state with respect to "
                "each input.",
                lines(*panels, rows=2, sharex=True, sharey="row", legend="above"),
                (10.0, 6.0),
            ),
        },
    )


def function_panel(title: str) -> Panel:
    """Return the panel of each activation (title "value") or of its derivative (title "slope") for inputs
    from -5 to 5.
    """
    x = torch.linspace(-5, 5, 201)
    curves = {name: (x, function(x) if title == "value" else slope(name, x)) for name, function in ACTIVATIONS.items()}
    return Panel(curves, "input", title, ylim=(-1.5, 3), grey=(BLURRED, 5))


def course_panel(courses: dict[tuple[str, float], Course], name: str, norms: str, label: str) -> Panel:
    """Return the panel of an activation: `norms` ("states" or "gradients" of Course) by step, a curve for each gain.
    name: of the activation; label: of the y axis.
    """
    curves = {f"gain {gain:.3g}": (range(1, STEPS + 1), getattr(courses[name, gain], norms)) for gain in GAINS}
    return Panel(curves, "step", label, name, log="y")
