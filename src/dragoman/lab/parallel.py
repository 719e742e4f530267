"""All words at once, or one after the other: steps in a row and time by length, forward and backward.

Shapes: B sentences, S words, M size of a vector.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from dragoman.config import RecurrentConfig
from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.long_range import SelfAttention
from dragoman.model.recurrent import Recurrence

SIZE, HEADS, SENTENCES = 256, 4, 8
LENGTHS = (8, 16, 32, 64, 128, 256)
PRODUCTS = ("AddmmBackward0", "MmBackward0", "BmmBackward0", "ScaledDotProduct")  # names of steps that multiply

ATTENTION, PLAIN, LSTM = "self-attention", "plain RNN", "LSTM"


class Reader(nn.Module):
    """A recurrent layer over whole sentences (B, S, M) -> (B, S, M)."""

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.layer = Recurrence(config, directions=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, None, self.layer.zero(x))[0]


LAYERS: dict[str, Callable[[], nn.Module]] = {
    ATTENTION: lambda: SelfAttention(SIZE, HEADS),
    PLAIN: lambda: Reader(RecurrentConfig(cell="rnn", d_model=SIZE, dropout=0.0)),
    LSTM: lambda: Reader(RecurrentConfig(cell="lstm", d_model=SIZE, dropout=0.0)),
}


def products_in_a_row(output: Tensor) -> int:
    """The longest chain of matrix products, each of which needs the one before it, on the way to `output`.

    Counted in the graph that autograd keeps. A fused kernel of attention counts as the two products that it makes.
    """
    longest: dict[Any, int] = {}
    waiting = [output.grad_fn]
    while waiting:  # no recursion: the graph of an RNN is as deep as its sentence is long
        node = waiting[-1]
        before = [other for other, _ in node.next_functions if other is not None]  # type: ignore[union-attr]
        missing = [other for other in before if other not in longest]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        name = node.name()  # type: ignore[union-attr]
        own = 2 if name.startswith(PRODUCTS[-1]) else int(name in PRODUCTS)
        longest[node] = own + max((longest[other] for other in before), default=0)
    return longest[output.grad_fn]


def seconds(layer: nn.Module, x: Tensor, patience: float) -> float:
    """Of one forward and backward pass: the shortest of those that take `patience` seconds together."""
    timer = Timer("layer(x).sum().backward()", globals={"layer": layer, "x": x}, num_threads=torch.get_num_threads())
    return min(timer.blocked_autorange(min_run_time=patience).times)


def growth(times: dict[int, float]) -> float:
    """The power of the length that the time grows with, from the shortest to the longest."""
    shortest, longest = min(times), max(times)
    return math.log(times[longest] / times[shortest]) / math.log(longest / shortest)


def judge(steps: dict[str, dict[int, int]], times: dict[str, dict[int, float]]) -> tuple[Verdict, ...]:
    """steps and times: by layer and length."""
    shortest, longest = min(times[PLAIN]), max(times[PLAIN])
    flat = steps[ATTENTION][shortest] == steps[ATTENTION][longest]
    linear = steps[PLAIN][longest] - steps[PLAIN][shortest] == longest - shortest
    ratios = {name: {n: times[name][n] / times[ATTENTION][n] for n in times[name]} for name in (PLAIN, LSTM)}
    faster = min(ratios[PLAIN].values()) > 1
    widens = ratios[PLAIN][longest] > ratios[PLAIN][shortest]
    return (
        Verdict(
            flat and linear,
            f"From {shortest} to {longest} words, the matrix products in a row go from {steps[ATTENTION][shortest]} to "
            f"{steps[ATTENTION][longest]} in self-attention and from {steps[PLAIN][shortest]} to "
            f"{steps[PLAIN][longest]} in a plain RNN: "
            + ("as many as ever, and one more for each word." if flat and linear else "not what the claim says."),
        ),
        Verdict(
            faster,
            f"The plain RNN takes {min(ratios[PLAIN].values()):.2g} to {max(ratios[PLAIN].values()):.2g} times as long "
            f"as self-attention of the same width, the LSTM {min(ratios[LSTM].values()):.2g} to "
            f"{max(ratios[LSTM].values()):.2g} times: "
            + ("self-attention is faster at every length." if faster else "self-attention is not faster everywhere."),
        ),
        Verdict(
            widens,
            f"That ratio goes from {ratios[PLAIN][shortest]:.2g} at {shortest} words to {ratios[PLAIN][longest]:.2g} "
            f"at {longest}: "
            + ("it grows with the length." if widens else "it does not grow with the length here.")
            + f" Time grows with the length to the power of {growth(times[PLAIN]):.2f} (plain RNN), "
            f"{growth(times[LSTM]):.2f} (LSTM) and {growth(times[ATTENTION]):.2f} (self-attention), which compares "
            "every word with every other one.",
        ),
    )


def run(effort: Effort) -> Findings:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(effort.seeds[0])
    layers = {name: make().to(device) for name, make in LAYERS.items()}
    inputs = {length: torch.randn(SENTENCES, length, SIZE, device=device) for length in LENGTHS}
    times = {name: {n: seconds(layer, x, effort.part) for n, x in inputs.items()} for name, layer in layers.items()}
    steps = {name: {n: products_in_a_row(layers[name](x)) for n, x in inputs.items()} for name in (ATTENTION, PLAIN)}
    place = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} thread(s)"
    return Findings(
        f"One layer of each kind, vectors of {SIZE} numbers, {SENTENCES} sentences at once, forward and backward on "
        f"this machine ({place}): the shortest pass of {effort.part:g} s of passes. Products in a row are counted in "
        "the graph of the computation; the LSTM runs in PyTorch's own kernel, which hides them.",
        judge(steps, times),
        (
            Table(
                "Time by length",
                ("layer", "length (words)", "time (ms)", "times self-attention"),
                tuple(
                    (name, n, 1000 * found, found / times[ATTENTION][n])
                    for name, of in times.items()
                    for n, found in of.items()
                ),
            ),
            Table(
                "Matrix products in a row",
                ("layer", *(f"{n} words" for n in LENGTHS)),
                tuple((name, *of.values()) for name, of in steps.items()),
            ),
        ),
        (
            Figure(
                "time-by-length",
                "Left: time of one layer, forward and backward. Right: how many matrix products have to wait for one "
                "another. Logarithmic axes.",
                partial(draw, times=times, steps=steps),
                (10.0, 4.0),
            ),
        ),
    )


def draw(figure: Any, times: dict[str, dict[int, float]], steps: dict[str, dict[int, int]]) -> None:
    left, right = figure.subplots(1, 2)
    for index, name in enumerate(times):
        left.plot(LENGTHS, [1000 * times[name][n] for n in LENGTHS], label=name, **style(index))
        if name in steps:
            right.plot(LENGTHS, [steps[name][n] for n in LENGTHS], label=name, **style(index))
    for axes, label in ((left, "time, forward and backward (ms)"), (right, "matrix products in a row")):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xticks(LENGTHS, [str(n) for n in LENGTHS])
        axes.set_xlabel("length (words)")
        axes.set_ylabel(label)
        axes.grid(color="0.9", linewidth=0.6)
        axes.legend(fontsize=8)


EXPERIMENT = Experiment(
    title="One step for all words, or one a word",
    source="notes 000 and 002; the paper, section 4 and Table 1",
    claim="In matrix form attention answers all queries at once, while an RNN has to wait for each word: on parallel "
    "hardware it is much faster, the more so the longer the sentence is.",
    run=run,
)
