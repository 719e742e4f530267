"""What the activation of a plain RNN does to its state and to its gradient, by the gain of the recurrent weights.

Shapes: B sentences, S steps, M size of a state, D draws of weights.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.long_range import even_start
from dragoman.model.recurrent import ACTIVATIONS, PlainRNN

STEPS, SIZE, SENTENCES = 50, 64, 8
GAINS = (0.5, 1.0, math.sqrt(2), 2.0, 3.0)
INPUTS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 5.0)
BLURRED = 2.5  # from here on, the note says, all inputs come out as about 1


def slope(activation: str, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(ACTIVATIONS[activation](x).sum(), x)
    return found


@dataclass(frozen=True)
class Course:
    """What one activation with one gain does, the median of all draws. `states` and `gradients` are norms, (S,)."""

    states: Tensor
    gradients: Tensor  # of the last state, summed up, by the input of each step
    largest: float  # absolute value of any number of any state

    @property
    def kept(self) -> float:
        """The gradient of the first input, as a share of that of the last one."""
        return float(self.gradients[0] / self.gradients[-1])


def course(activation: str, gain: float, seeds: list[int]) -> Course:
    states, gradients, largest = [], [], 0.0
    for seed in seeds:
        random = torch.manual_seed(seed)
        cell = PlainRNN(SIZE, SIZE, activation).double()
        even_start(cell, gain)
        x = torch.randn(SENTENCES, STEPS, SIZE, dtype=torch.float64, generator=random).requires_grad_()
        real = torch.ones(SENTENCES, STEPS, dtype=torch.bool)
        found, last = cell(x, real, x.new_zeros(SENTENCES, SIZE))
        (gradient,) = torch.autograd.grad(last.sum(), x)
        states.append(found.detach().norm(dim=-1))
        gradients.append(gradient.norm(dim=-1))
        largest = max(largest, float(found.detach().abs().max()))
    return Course(torch.cat(states).median(0).values, torch.cat(gradients).median(0).values, largest)


def by_gain(courses: dict[tuple[str, float], Course], name: str) -> str:
    return ", ".join(f"{courses[name, gain].kept:.2g} (gain {gain:.3g})" for gain in GAINS)


def judge(courses: dict[tuple[str, float], Course]) -> tuple[Verdict, ...]:
    edge = torch.tensor(BLURRED, dtype=torch.float64)
    lost = 1 - float(edge.tanh())
    blurred = lost < 0.02 and float(slope("tanh", edge)) < 0.03
    bound = max(found.largest for (name, _), found in courses.items() if name == "tanh")
    ends = {name: float(courses[name, 2.0].states[-1]) for name in ("relu", "gelu")}
    grows = min(ends.values()) > 1e4
    calm = [gain for gain in GAINS if max(float(courses[name, gain].states[-1]) for name in ends) < 1e4]
    always = not calm
    lasting = min(courses[name, gain].kept for name in ends for gain in GAINS) > 1e-2
    fading = max(courses["tanh", gain].kept for gain in GAINS) < 1e-2
    return (
        Verdict(
            blurred,
            f"tanh({BLURRED:g}) is {1 - lost:.4f}, with a slope of {float(slope('tanh', edge)):.4f}: all larger inputs "
            + (f"share the last {lost:.4f} below 1." if blurred else "can still be told apart."),
        ),
        Verdict(
            bound <= 1,
            f"The largest number in any state of tanh is {bound:.4f}, "
            + ("never beyond 1, with any gain tried." if bound <= 1 else "beyond 1."),
        ),
        Verdict(
            grows,
            f"With a recurrent gain of 2 the state has grown to {ends['relu']:.1e} (ReLU) and {ends['gelu']:.1e} "
            f"(GELU) after {STEPS} steps" + (": it diverges." if grows else ", which is no divergence."),
        ),
        Verdict(
            always,
            f"ReLU and GELU diverge at {len(GAINS) - len(calm)} of {len(GAINS)} gains"
            + (
                "."
                if always
                else f", and do not at gain {', '.join(f'{gain:.3g}' for gain in calm)}: it depends on the gain."
            ),
        ),
        Verdict(
            lasting,
            f"Of the last input's gradient the first one keeps {by_gain(courses, 'relu')} with ReLU: "
            + (
                "the vanishing is removed."
                if lasting
                else "it is the gain, not the activation alone, that removes the vanishing."
            ),
        ),
        Verdict(
            fading,
            f"With tanh it keeps {by_gain(courses, 'tanh')}: "
            + (
                "it vanishes with every gain tried."
                if fading
                else "the gradient does not vanish with every gain; with large ones it explodes."
            ),
        ),
    )


def run(effort: Effort) -> Findings:
    seeds = [1000 * seed + draw for seed in effort.seeds for draw in range(effort.of(16))]
    courses = {(name, gain): course(name, gain, seeds) for name in ACTIVATIONS for gain in GAINS}
    points = torch.tensor(INPUTS, dtype=torch.float64)
    return Findings(
        f"A plain RNN before any training, states of {SIZE} numbers, {STEPS} steps of random input; recurrent weights "
        f"with a spread of gain / sqrt({SIZE}). Medians of {len(seeds)} draws of weights with {SENTENCES} sentences "
        "each.",
        judge(courses),
        (
            Table(
                "tanh",
                ("input", "tanh", "slope", "distance from 1"),
                tuple(
                    zip(
                        INPUTS,
                        points.tanh().tolist(),
                        slope("tanh", points).tolist(),
                        (1 - points.tanh()).tolist(),
                        strict=True,
                    )
                ),
            ),
            Table(
                f"The state and the gradient over {STEPS} steps",
                ("activation", "gain", "state, first", "state, last", "gradient, first", "gradient, last", "kept"),
                tuple(
                    (
                        name,
                        gain,
                        *(float(norms[at]) for norms in (found.states, found.gradients) for at in (0, -1)),
                        found.kept,
                    )
                    for (name, gain), found in courses.items()
                ),
            ),
        ),
        (
            Figure(
                "activations",
                f"Three activations and their slopes. Grey: inputs from {BLURRED:g} on, where tanh is flat.",
                draw_functions,
            ),
            Figure(
                "gain-sweep",
                "Above: the norm of the state after each step. Below: how much the last state changes with the input "
                "of each step. Logarithmic axes.",
                partial(draw_courses, courses=courses),
                (10.0, 6.0),
            ),
        ),
    )


def draw_functions(figure: Any) -> None:
    x = torch.linspace(-5, 5, 201)
    for axes, title in zip(figure.subplots(1, 2), ("value", "slope"), strict=True):
        for index, (name, function) in enumerate(ACTIVATIONS.items()):
            y = function(x) if title == "value" else slope(name, x)
            axes.plot(x, y, label=name, markevery=(10 + 5 * index, 30), **style(index))
        axes.axvspan(BLURRED, 5, color="0.9")
        axes.set_ylim(-1.5, 3)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("input (no unit)")
        axes.set_ylabel(f"{title} (no unit)")
    axes.legend(fontsize=8)


def draw_courses(figure: Any, courses: dict[tuple[str, float], Course]) -> None:
    grid = figure.subplots(2, len(ACTIVATIONS), sharex=True, sharey="row")
    for column, name in enumerate(ACTIVATIONS):
        for index, gain in enumerate(GAINS):
            found, marks = courses[name, gain], (2 * index, 12)
            grid[0, column].plot(range(1, STEPS + 1), found.states, markevery=marks, **style(index))
            grid[1, column].plot(
                range(1, STEPS + 1), found.gradients, label=f"gain {gain:.3g}", markevery=marks, **style(index)
            )
        grid[0, column].set_title(name, loc="left", fontsize=10)
        grid[1, column].set_xlabel("step")
    for row, label in zip(grid, ("norm of the state", "norm of the gradient\nof the last state"), strict=True):
        row[0].set_ylabel(label)
        for axes in row:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.grid(color="0.9", linewidth=0.6)
    grid[1, 0].legend(fontsize=8)


EXPERIMENT = Experiment(
    title="tanh, ReLU and GELU in a recurrent state",
    source="note 001, limits of recurrent models",
    claim="tanh squeezes inputs of 2.5 and more into about 1, so that they blur, and its slope makes gradients vanish. "
    "ReLU or GELU remove the vanishing, but then the state diverges.",
    run=run,
)
