"""How much a far word still counts: the gradient of one output by each input."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from dragoman.config import AttentionConfig, RecurrentConfig
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.packing import Packing
from dragoman.model.recurrent import PlainRNN, Recurrence
from dragoman_lab.drawing import Panel, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment

LENGTH, SIZE, SENTENCES = 50, 64, 16
MIDDLE, LAST = LENGTH // 2, LENGTH - 1
SHOWN = (0, 9, 24, LAST)  # words between an input and the output

Layer = Callable[[Tensor], Tensor]  # (B, S, M) -> (B, S, M)


def draw_weights(cell: PlainRNN, gain: float) -> None:
    """Draw new weights for a plain RNN, in place: the input matrix keeps the size of its vectors, the recurrent matrix
    multiplies that of states by `gain`; biases are 0.
    """
    nn.init.normal_(cell.input.weight, std=cell.input.in_features**-0.5)
    nn.init.zeros_(cell.input.bias)
    nn.init.normal_(cell.recurrent.weight, std=gain * cell.recurrent.in_features**-0.5)


class Reader(nn.Module):
    """Read whole sentences without padding with one recurrent layer. Of two directions each has half the numbers of the
    output.
    """

    def __init__(self, cell: Literal["rnn", "lstm", "gru"], size: int, directions: int = 1):
        super().__init__()
        self.layer = Recurrence(RecurrentConfig(cell=cell, d_model=size, dropout=0.0), directions)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, S, M) for x (B, S, M)."""
        return self.layer(x, None, self.layer.zero_state(x))[0]


def make_reader(cell: Literal["rnn", "lstm", "gru"], directions: int = 1, forget: float | None = None) -> Layer:
    """Return a recurrent layer with weights as they are studied: a plain RNN's with gain 1, others as PyTorch draws
    them. forget: the bias of an LSTM's forget gate; None leaves PyTorch's.
    """
    layer = Reader(cell, SIZE, directions)
    for module in layer.modules():
        if isinstance(module, PlainRNN):
            draw_weights(module, gain=1.0)
        elif isinstance(module, nn.LSTM) and forget is not None:
            biases = dict(module.named_parameters())
            for name, value in (("bias_ih_l0", forget), ("bias_hh_l0", 0.0)):
                nn.init.constant_(biases[name].detach()[SIZE : 2 * SIZE], value)
    return layer


class SelfAttention(nn.Module):
    """Attend from each word of a sentence to all of it with several heads, and nothing around: no residual, no norm, no
    padding.
    """

    def __init__(self, d_model: int, heads: int):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, AttentionConfig(heads=heads))
        for weight in self.attention.parameters():
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, S, M) for x (B, S, M)."""
        packing = Packing.full(x[..., 0])
        words = packing.pack(x)
        return packing.unpack(self.attention(words, packing, self.attention.project(words, packing), None))


PLAIN, LSTM, OPEN, GRU = "plain RNN", "LSTM", "LSTM, forget bias 1", "GRU"
BOTH, ATTENTION = "plain RNN, both directions", "self-attention"
LAYERS: dict[str, Callable[[], Layer]] = {
    PLAIN: lambda: make_reader("rnn"),
    LSTM: lambda: make_reader("lstm"),
    OPEN: lambda: make_reader("lstm", forget=1.0),
    GRU: lambda: make_reader("gru"),
    BOTH: lambda: make_reader("rnn", directions=2),
    ATTENTION: lambda: SelfAttention(SIZE, heads=4),
}


def gradient_norms(layer: Layer, x: Tensor, position: int) -> Tensor:
    """Return the norms (B, S) of the gradient of the output at a position, summed over its numbers, by each word of x
    (B, S, M).
    """
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[:, position].sum(), x)
    return gradient.norm(dim=-1)


def draw_gradients(make: Callable[[], Layer], position: int, effort: Effort) -> Tensor:
    """Return (D, S): for each draw of weights of `make`, the norm of the gradient of the output at a position by each
    word, as a median over SENTENCES random sentences. 16 draws per seed at full effort.
    """
    draws = []
    for seed in effort.seeds:
        for draw in range(effort.scale(16)):
            torch.manual_seed(1000 * seed + draw)
            layer = make()
            draws.append(gradient_norms(layer, torch.randn(SENTENCES, LENGTH, SIZE), position).median(0).values)
    return torch.stack(draws)


@dataclass(frozen=True)
class Sides:
    """Give the gradients of the output in the middle by the outermost words, as shares of that by its own word."""

    left: float  # of the first word
    right: float  # of the last word


def claims(kept: dict[str, float], middle: dict[str, Sides]) -> Claims:
    """Return each claim and whether it holds. kept: by layer, the gradient of the last output by the first word, as a
    share of that by the last word; middle: by layer.
    """
    best = max((LSTM, OPEN, GRU), key=kept.__getitem__)
    return {
        f"Over 49 words a plain RNN keeps {kept[PLAIN]:.1e} of the gradient: the first word [has practically no "
        "influence|can still be learned from].": kept[PLAIN] < 1e-6,
        f"Self-attention keeps {kept[ATTENTION]:.2g} of it: [any two words are one step apart, however distant|it "
        "loses the distant word, too].": kept[ATTENTION] > 1e-2,
        f"The best of the gated cells ({best}) keeps {kept[best]:.1e}: [more than the plain RNN and less than "
        "self-attention|not between the plain RNN and self-attention]. As PyTorch initialises it, an LSTM forgets "
        f"about half of its cell at each word and keeps {kept[LSTM]:.1e}.": kept[PLAIN] < kept[best] < kept[ATTENTION],
        "[With one direction, the middle word does not see the words after it; with both, it sees both sides, but the "
        f"ends still fade|One direction and both do not differ as claimed]: with both, {middle[BOTH].left:.1e} of the "
        f"gradient is left at the first word and {middle[BOTH].right:.1e} "
        "at the last.": (middle[PLAIN].right == 0) and 0 < middle[BOTH].left < 1e-2 and 0 < middle[BOTH].right < 1e-2,
    }


@experiment(
    "The gradient of a distant word",
    "section 4",
    "In an RNN a word influences another one only through all the steps between them, and its gradient shrinks at each "
    "step. LSTM and GRU reduce the problem; reading in both directions does not cure it. Self-attention connects any "
    "two words in one step.",
)
def run(effort: Effort) -> Findings:
    """Measure the gradient of one output by each word, for each kind of untrained layer."""
    last = {name: draw_gradients(make, LAST, effort).flip(1) for name, make in LAYERS.items()}  # by distance
    middle = {name: draw_gradients(make, MIDDLE, effort) for name, make in LAYERS.items()}  # by position
    curves = {name: draws.median(0).values for name, draws in last.items()}
    sides = {name: draws.median(0).values for name, draws in middle.items()}
    kept = {name: float(curve[LAST] / curve[0]) for name, curve in curves.items()}
    shares = {name: Sides(*(float(curve[i] / curve[MIDDLE]) for i in (0, LAST))) for name, curve in sides.items()}
    tenths = torch.tensor([0.5, 0.1, 0.9])
    bands = {name: (range(LENGTH), *draws.quantile(tenths, dim=0)) for name, draws in last.items()}
    seen = {name: (sides[name] > 0, sides[name]) for name in (PLAIN, BOTH, ATTENTION)}
    reach = {name: (torch.arange(LENGTH)[where], curve[where]) for name, (where, curve) in seen.items()}
    return Findings(
        f"Untrained layers, vectors and states of {SIZE} numbers, sentences of {LENGTH} random words. The experiment "
        "measures how much the sum of the output at one position changes with each input: medians of "
        f"{len(last[PLAIN])} draws of weights with {SENTENCES} sentences each. Plain RNNs start with recurrent weights "
        "that preserve the size of a state (gain 1), LSTM and GRU as PyTorch initialises them.",
        claims(kept, shares),
        {
            "Gradient of the last output by distance": Table(
                " | ".join(["layer", *(f"{d} words away" for d in SHOWN), "left of it at the first word"]),
                [(name, *(float(curve[d]) for d in SHOWN), kept[name]) for name, curve in curves.items()],
            ),
            f"Gradient of the output at place {MIDDLE}": Table(
                "layer | first word | own word | last word",
                [(name, *(float(curve[i]) for i in (0, MIDDLE, LAST))) for name, curve in sides.items()],
            ),
        },
        {
            "gradient-by-distance": Figure(
                "How much the last output changes with each word before it: medians, and bands that hold 80 % of the "
                "draws.",
                lines(Panel(bands, "distance from the last word (words)", "norm of the gradient", log="y", band=True)),
            ),
            "gradient-from-the-middle": Figure(
                f"How much output {MIDDLE} changes with each word. A line ends where the gradient is exactly zero.",
                lines(
                    Panel(reach, f"position of the word (output: {MIDDLE})", "norm of the gradient", log="y", at=MIDDLE)
                ),
            ),
        },
    )
