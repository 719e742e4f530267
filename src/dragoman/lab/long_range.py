"""How much a far word still counts: the gradient of one output by each input.

Shapes: B sentences, D draws of weights, S words, M size of a vector and of a state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dragoman.config import AttentionConfig, RecurrentConfig
from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.packing import Packing
from dragoman.model.recurrent import PlainRNN, Recurrence

LENGTH, SIZE, SENTENCES = 50, 64, 16
MIDDLE, LAST = LENGTH // 2, LENGTH - 1
SHOWN = (0, 9, 24, LAST)  # words between an input and the output

Layer = Callable[[Tensor], Tensor]  # (B, S, M) -> (B, S, M)


def even_start(cell: PlainRNN, gain: float) -> None:
    """Weights that keep the size of what they are given; the recurrent ones multiply it by `gain`."""
    nn.init.normal_(cell.input.weight, std=cell.input.in_features**-0.5)
    nn.init.zeros_(cell.input.bias)
    nn.init.normal_(cell.recurrent.weight, std=gain * cell.recurrent.in_features**-0.5)


def reader(cell: Literal["rnn", "lstm", "gru"], directions: int = 1, forget: float | None = None) -> Layer:
    """A recurrent layer of ours; two directions have half of the numbers each. forget: the LSTM's bias of that gate."""
    layer = Recurrence(RecurrentConfig(cell=cell, d_model=SIZE, dropout=0.0), directions)
    for module in layer.modules():
        if isinstance(module, PlainRNN):
            even_start(module, gain=1.0)
        elif isinstance(module, nn.LSTM) and forget is not None:
            biases = dict(module.named_parameters())
            for name, value in (("bias_ih_l0", forget), ("bias_hh_l0", 0.0)):
                nn.init.constant_(biases[name].detach()[SIZE : 2 * SIZE], value)
    return lambda x: layer(x, None, layer.zero(x))[0]


class SelfAttention(nn.Module):
    """Multi-head attention of a sentence to itself, with nothing around it: no residual, no norm."""

    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, AttentionConfig(heads=heads))
        for weight in self.attention.parameters():
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, S, M) -> (B, S, M)."""
        packing = Packing.full(x[..., 0])
        words = packing.pack(x)
        return packing.unpack(self.attention(words, packing, self.attention.project(words, packing), None))


PLAIN, LSTM, OPEN, GRU = "plain RNN", "LSTM", "LSTM, forget bias 1", "GRU"
BOTH, ATTENTION = "plain RNN, both directions", "self-attention"
LAYERS: dict[str, Callable[[], Layer]] = {
    PLAIN: lambda: reader("rnn"),
    LSTM: lambda: reader("lstm"),
    OPEN: lambda: reader("lstm", forget=1.0),
    GRU: lambda: reader("gru"),
    BOTH: lambda: reader("rnn", directions=2),
    ATTENTION: lambda: SelfAttention(SIZE, heads=4),
}


def gradients(layer: Layer, x: Tensor, place: int) -> Tensor:
    """The norm of the gradient of the output at `place`, summed up, by each word of x (B, S, M): (B, S)."""
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[:, place].sum(), x)
    return gradient.norm(dim=-1)


def drawn(make: Callable[[], Layer], place: int, effort: Effort) -> Tensor:
    """The gradients at `place` by each word, the median of a few sentences, for several draws of weights: (D, S)."""
    found = []
    for seed in effort.seeds:
        for draw in range(effort.of(16)):
            torch.manual_seed(1000 * seed + draw)
            layer = make()
            found.append(gradients(layer, torch.randn(SENTENCES, LENGTH, SIZE), place).median(0).values)
    return torch.stack(found)


@dataclass(frozen=True)
class Sides:
    """The gradients of the output in the middle, as shares of that of its own word."""

    left: float  # of the first word
    right: float  # of the last word


def judge(kept: dict[str, float], middle: dict[str, Sides]) -> tuple[Verdict, ...]:
    """kept: what is left of the gradient over the whole sentence, as a share of the last word's own, by layer."""
    faded, lasting = kept[PLAIN] < 1e-6, kept[ATTENTION] > 1e-2
    best = max((LSTM, OPEN, GRU), key=kept.__getitem__)
    relieved = kept[PLAIN] < kept[best] < kept[ATTENTION]
    blind, both = middle[PLAIN].right == 0, middle[BOTH]
    fades = 0 < both.left < 1e-2 and 0 < both.right < 1e-2
    return (
        Verdict(
            faded,
            f"Over {LAST} words {kept[PLAIN]:.1e} of the gradient is left in a plain RNN: "
            + ("the first word has practically no say." if faded else "the first word can still be learned from."),
        ),
        Verdict(
            lasting,
            f"In self-attention {kept[ATTENTION]:.2g} of it is left: "
            + ("any two words are one step apart, however far." if lasting else "it, too, loses the far word."),
        ),
        Verdict(
            relieved,
            f"Of the gated cells, {best} keeps the most, {kept[best]:.1e}: "
            + ("more than the plain RNN and less than self-attention. " if relieved else "not between the two. ")
            + f"As PyTorch starts it, an LSTM forgets about half of its cell at each word and keeps {kept[LSTM]:.1e}.",
        ),
        Verdict(
            blind and fades,
            "Read in one direction, the word in the middle is "
            + ("blind to all words after it. " if blind else "not blind to the words after it. ")
            + f"Read in both, {both.left:.1e} of the gradient is left at the first word and {both.right:.1e} at the "
            + ("last: it sees both sides, and still fades." if fades else "last."),
        ),
    )


def run(effort: Effort) -> Findings:
    last = {name: drawn(make, LAST, effort).flip(1) for name, make in LAYERS.items()}  # by distance
    middle = {name: drawn(make, MIDDLE, effort) for name, make in LAYERS.items()}  # by place
    curves = {name: found.median(0).values for name, found in last.items()}
    sides = {name: found.median(0).values for name, found in middle.items()}
    kept = {name: float(curve[LAST] / curve[0]) for name, curve in curves.items()}
    shares = {
        name: Sides(float(curve[0] / curve[MIDDLE]), float(curve[LAST] / curve[MIDDLE]))
        for name, curve in sides.items()
    }
    draws = len(next(iter(last.values())))
    return Findings(
        f"Layers as they are before any training, vectors and states of {SIZE} numbers, sentences of {LENGTH} random "
        f"words. Measured: how much the output at one place, summed up, changes with each input; medians of {draws} "
        f"draws of weights with {SENTENCES} sentences each. Plain RNNs start with recurrent weights that keep the size "
        "of a state (gain 1), LSTM and GRU as PyTorch starts them.",
        judge(kept, shares),
        (
            Table(
                "Gradient of the last output by distance",
                ("layer", *(f"{distance} words away" for distance in SHOWN), "left of it at the first word"),
                tuple(
                    (name, *(float(curve[distance]) for distance in SHOWN), kept[name])
                    for name, curve in curves.items()
                ),
            ),
            Table(
                f"Gradient of the output at place {MIDDLE}",
                ("layer", "first word", "own word", "last word"),
                tuple((name, *(float(curve[at]) for at in (0, MIDDLE, LAST))) for name, curve in sides.items()),
            ),
        ),
        (
            Figure(
                "gradient-by-distance",
                "How much the last output changes with each word before it, on a logarithmic axis. Lines are medians, "
                "bands hold 80 % of the draws of weights.",
                partial(draw_distances, last=last),
            ),
            Figure(
                "gradient-from-the-middle",
                f"How much the output at place {MIDDLE} changes with each word. A line ends where the gradient is "
                "exactly zero: what reads in one direction never sees the words after it.",
                partial(draw_middle, sides=sides),
            ),
        ),
    )


def draw_distances(figure: Any, last: dict[str, Tensor]) -> None:
    axes = figure.add_subplot()
    for index, (name, found) in enumerate(last.items()):
        look, (low, middle, high) = style(index), found.quantile(torch.tensor([0.1, 0.5, 0.9]), dim=0)
        axes.plot(range(LENGTH), middle, label=name, markevery=(index, 8), **look)
        axes.fill_between(range(LENGTH), low, high, color=look["color"], alpha=0.15, linewidth=0)
    finish(axes, "distance from the last word (words)")


def draw_middle(figure: Any, sides: dict[str, Tensor]) -> None:
    axes = figure.add_subplot()
    for index, name in enumerate((PLAIN, BOTH, ATTENTION)):
        seen = sides[name] > 0
        axes.plot(torch.arange(LENGTH)[seen], sides[name][seen], label=name, markevery=(index, 8), **style(index))
    axes.axvline(MIDDLE, color="0.5", linewidth=0.8)
    axes.set_xlim(0, LAST)
    finish(axes, f"place of the word (the output is at place {MIDDLE})")


def finish(axes: Any, label: str) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(label)
    axes.set_ylabel("norm of the gradient")
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(fontsize=8)


EXPERIMENT = Experiment(
    title="A far word's gradient",
    source="notes 000, 001, 002 and 004; the paper, section 4",
    claim="In an RNN a word reaches another one only through as many steps as lie between them, and its gradient "
    "shrinks with each; LSTM and GRU relieve this, reading in both directions does not cure it. Self-attention joins "
    "any two words in one step.",
    run=run,
)
