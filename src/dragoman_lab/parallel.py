"""All words at once, or one after the other: steps in a row and time by length, forward and backward."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from dragoman_lab.drawing import Panel, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.long_range import Reader, SelfAttention

SIZE, HEADS, SENTENCES = 256, 4, 8
LENGTHS = (8, 16, 32, 64, 128, 256)
MATMULS = ("AddmmBackward0", "MmBackward0", "BmmBackward0", "ScaledDotProduct")  # names of steps that multiply

ATTENTION, PLAIN, LSTM = "self-attention", "plain RNN", "LSTM"


LAYERS: dict[str, Callable[[], nn.Module]] = {
    ATTENTION: lambda: SelfAttention(SIZE, HEADS),
    PLAIN: lambda: Reader("rnn", SIZE),
    LSTM: lambda: Reader("lstm", SIZE),
}


def matmuls_in_a_row(output: Tensor) -> int:
    """Return the length of the longest chain of matrix products, each of which needs the one before it, up to `output`.

    A fused attention kernel counts as the two products that it does.
    """
    return longest_chain(output, lambda node: 2 if node.name().startswith(MATMULS[-1]) else int(node.name() in MATMULS))


def longest_chain(output: Tensor, steps: Callable[[Any], int]) -> int:
    """Return the most steps that wait for one another up to `output`, in the graph that autograd keeps.

    steps: how many a node of the graph counts as.
    """
    longest: dict[Any, int] = {}
    waiting: list[Any] = [output.grad_fn]
    while waiting:  # no recursion: the graph of an RNN is as deep as its sentence is long
        node = waiting[-1]
        before = [other for other, _ in node.next_functions if other is not None]
        missing = [other for other in before if other not in longest]
        waiting += missing
        if not missing:
            longest[waiting.pop()] = steps(node) + max((longest[other] for other in before), default=0)
    return longest[output.grad_fn]


def fastest_seconds(layer: nn.Module, x: Tensor, patience: float) -> float:
    """Return the seconds of a forward and a backward pass: the fastest of those that were measured for about `patience`
    seconds.
    """
    timer = Timer("layer(x).sum().backward()", globals={"layer": layer, "x": x}, num_threads=torch.get_num_threads())
    return min(timer.blocked_autorange(min_run_time=patience).times)


def growth_exponent(times: dict[int, float]) -> float:
    """Return the exponent p if time grows as length^p, from the shortest to the longest length. times: seconds by
    length.
    """
    shortest, longest = min(times), max(times)
    return math.log(times[longest] / times[shortest]) / math.log(longest / shortest)


def claims(steps: dict[str, dict[int, int]], times: dict[str, dict[int, float]]) -> Claims:
    """Return each claim and whether it holds. steps, times: matrix products in a row and seconds, by layer
    and length.
    """
    first, last = min(times[PLAIN]), max(times[PLAIN])
    ratios = {name: {n: times[name][n] / times[ATTENTION][n] for n in times[name]} for name in (PLAIN, LSTM)}
    start = {name: by_length[first] for name, by_length in steps.items()}
    end = {name: by_length[last] for name, by_length in steps.items()}
    least = {name: min(by_length.values()) for name, by_length in ratios.items()}
    most = {name: max(by_length.values()) for name, by_length in ratios.items()}
    short = ratios[PLAIN][first]
    long = ratios[PLAIN][last]
    power = {name: growth_exponent(by_length) for name, by_length in times.items()}
    return {
        f"From {first} to {last} words, the matrix products in a row go from {start[ATTENTION]} to {end[ATTENTION]} in "
        f"self-attention and from {start[PLAIN]} to {end[PLAIN]} in a plain RNN: [constant in the first, one more for "
        "each word in the second|not as "
        "claimed].": start[ATTENTION] == end[ATTENTION] and end[PLAIN] - start[PLAIN] == last - first,
        "Self-attention is [faster at every length|not faster everywhere] than a recurrent layer of the same width: "
        f"the plain RNN takes {least[PLAIN]:.2g} to {most[PLAIN]:.2g} times as long, the LSTM {least[LSTM]:.2g} to "
        f"{most[LSTM]:.2g} times.": least[PLAIN] > 1,
        f"For the plain RNN that ratio [grows|does not grow here] with the length: it goes from {short:.2g} at {first} "
        f"words to {long:.2g} at {last}. Time grows with the length to the power of {power[PLAIN]:.2f} (plain RNN), "
        f"{power[LSTM]:.2f} (LSTM) and {power[ATTENTION]:.2f} (self-attention), which compares every word with every "
        "other one.": long > short,
    }


@experiment(
    "One step for all words, or one per word",
    "section 4 and Table 1",
    "In matrix form attention answers all queries at once, while an RNN has to wait for each word. On parallel "
    "hardware attention is therefore much faster, and the longer the sentence, the larger its lead.",
)
def run(effort: Effort) -> Findings:
    """Count matrix products in a row, and time self-attention and recurrent layers, by length."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(effort.seeds[0])
    layers = {name: make().to(device) for name, make in LAYERS.items()}
    inputs = {length: torch.randn(SENTENCES, length, SIZE, device=device) for length in LENGTHS}
    times = {
        name: {n: fastest_seconds(layer, x, effort.part) for n, x in inputs.items()} for name, layer in layers.items()
    }
    steps = {name: {n: matmuls_in_a_row(layers[name](x)) for n, x in inputs.items()} for name in (ATTENTION, PLAIN)}
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} thread(s)"
    timed = Table(
        "layer | length (words) | time (ms) | times self-attention",
        [
            (name, n, 1000 * s, s / times[ATTENTION][n])
            for name, by_length in times.items()
            for n, s in by_length.items()
        ],
    )
    counted = {name: (LENGTHS, list(by_length.values())) for name, by_length in steps.items()}
    return Findings(
        f"One layer of each kind, vectors of {SIZE} numbers, {SENTENCES} sentences at once, forward and backward on "
        f"this machine ({where}): the fastest pass within {effort.part:g} s. Products in a row are counted in the "
        "computation graph; the LSTM runs in PyTorch's own kernel, which hides them.",
        claims(steps, times),
        {
            "Time by length": timed,
            "Matrix products in a row": Table(
                " | ".join(["layer", *(f"{n} words" for n in LENGTHS)]),
                [(name, *by_length.values()) for name, by_length in steps.items()],
            ),
        },
        {
            "time-by-length": Figure(
                "Left: time of one layer, forward and backward. Right: matrix products that wait for one another.",
                lines(
                    length_panel(
                        timed.curves("layer", "length (words)", "time (ms)"), "time, forward and backward (ms)"
                    ),
                    length_panel(counted, "matrix products in a row"),
                ),
            )
        },
    )


def length_panel(curves: Any, label: str) -> Panel:
    """Return a panel of curves by the length of the sentence, both axes logarithmic. label: of the y axis."""
    return Panel(curves, "length (words)", label, log="xy", ticks=LENGTHS)
