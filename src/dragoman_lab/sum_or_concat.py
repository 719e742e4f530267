"""Adding positions to words, or concatenating the two."""

import math
import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from dragoman.config import TransformerConfig
from dragoman.inspection.plots.training import COLOURS
from dragoman.model.positions import Positions, Sinusoidal
from dragoman.model.transformer import Transformer
from dragoman_lab.drawing import losses_figure
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.tasks import Learned, copying, learn, mean_and_extremes, small

SIZES = (2, 16, 64, 512)
PAIRS = 20_000
STEPS = 800
SUM, CONCATENATED = "sum", "concatenated"
TASK = copying(vocabulary=20, shortest=1, longest=8)
CONFIG = replace(small(64, layers=2), norm_first=True)


class Concatenated(Positions):
    """Join each word and its sinusoid into a vector of size 2 M, and map it back to size M with a matrix."""

    def __init__(self, config: TransformerConfig):
        super().__init__(config)
        self.sinusoids = Sinusoidal(config)
        self.matrix = nn.Linear(2 * config.d_model, config.d_model, bias=False)

    def embed(self, x: Tensor, start: int) -> Tensor:
        """Return the vectors (B, T, M) of words x (B, T, M) at positions from `start` on."""
        return self.matrix(torch.cat([x, self.sinusoids.embed(torch.zeros_like(x), start)], -1))


def make_model(kind: str, seed: int) -> Transformer:
    """Return a fresh model that adds positions to words (SUM) or concatenates them (CONCATENATED), alike in all else;
    the same seed draws the same weights for the rest.
    """
    torch.manual_seed(seed)
    model = Transformer(CONFIG, TASK.vocabulary)
    if kind == CONCATENATED:
        model.encoder_positions, model.decoder_positions = Concatenated(CONFIG), Concatenated(CONFIG)
    return model


def identity_gaps(d_model: int, seed: int) -> tuple[float, float]:
    """Return the largest absolute differences of [x; p] [W1; W2] from x W1 + p W2, and of [x; p] [W; W] from (x + p) W,
    for random matrices (d_model, d_model).
    """
    random = torch.Generator().manual_seed(seed)
    x, p, first, second = (torch.randn(d_model, d_model, generator=random, dtype=torch.float64) for _ in range(4))
    beside = torch.cat([x, p], 1)
    return (
        float((beside @ torch.cat([first, second]) - (x @ first + p @ second)).abs().max()),
        float((beside @ torch.cat([first, first]) - (x + p) @ first).abs().max()),
    )


def random_cosines(size: int, pairs: int, seed: int) -> Tensor:
    """Return the cosines (pairs,) of so many pairs of random vectors of `size` numbers."""
    random = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(pairs, size, generator=random) for _ in range(2))
    return torch.cosine_similarity(x, y, dim=1)


def count_parameters(*modules: nn.Module) -> int:
    """Return the number of parameters of some modules together."""
    return sum(weight.numel() for module in modules for weight in module.parameters())


def count_first_projections(d_in: int, d_model: int) -> int:
    """Return the number of parameters of a first layer's query, key and value matrices, (d_in, d_model) each."""
    return count_parameters(*(nn.Linear(d_in, d_model, bias=False) for _ in range(3)))


def claims(
    gaps: tuple[float, float], spread: dict[int, float], reached: dict[str, float], more: int, single: int, double: int
) -> Claims:
    """Return each claim and whether it holds. gaps: of `identity_gaps`; spread: standard deviation of the cosines of
    random pairs, by size; reached: accuracy; more: further parameters of concatenation; single, double: parameters of
    the first matrices on d_model and on 2 d_model numbers.
    """
    off = max(abs(deviation * math.sqrt(size) - 1) for size, deviation in spread.items())
    deviations = ", ".join(f"{s:.4f} at {size} ({1 / math.sqrt(size):.4f})" for size, s in spread.items())
    return {
        f"[x; p] [W1; W2] [is|is not] x W1 + p W2 (they differ by at most {gaps[0]:.1g}); with W1 = W2 it is the sum "
        f"times one matrix ({gaps[1]:.1g}): adding is concatenating with a shared matrix.": max(gaps) < 1e-9,
        "The cosine of two random vectors [has|does not have] a standard deviation of 1/sqrt(size) (in brackets) to "
        f"within 5%: {deviations}.": off < 0.05,
        f"A first layer that takes words and positions side by side has {double:,} parameters in its query, key and "
        f"value matrices instead of {single:,}: the layer has [twice|not twice] as many ({double / single:.3g} "
        "times).": double == 2 * single,
        f"With added positions {reached[SUM]:.1%} of the tokens are right, with concatenated ones "
        f"{reached[CONCATENATED]:.1%}: {more:,} more parameters bring [no gain|a gain] of more than 2 "
        "points.": reached[CONCATENATED] - reached[SUM] <= 0.02,
    }


@experiment(
    "Adding positions or concatenating them",
    "common teaching; section 3.5",
    "Random vectors of high dimension are almost orthogonal, so words and positions hardly disturb each other in a "
    "sum. Concatenation would only make the vectors larger and the model more expensive.",
)
def run(effort: Effort) -> Findings:
    """Compare sums with products of matrices, measure cosines of random vectors, and train a model of each kind."""
    first = effort.seeds[0]
    by_size = {size: random_cosines(size, max(1_000, effort.scale(4 * PAIRS)), first) for size in SIZES}
    spread = {size: float(cosines.std()) for size, cosines in by_size.items()}
    runs: dict[str, list[Learned]] = {}
    seconds: dict[str, float] = {}
    for kind in (SUM, CONCATENATED):
        began = time.perf_counter()
        runs[kind] = [
            learn(make_model(kind, seed), TASK, steps=effort.scale(STEPS), seed=seed) for seed in effort.seeds
        ]
        seconds[kind] = (time.perf_counter() - began) / len(effort.seeds) / effort.scale(STEPS)
    rows = {kind: mean_and_extremes([learned.accuracy for learned in each]) for kind, each in runs.items()}
    sizes = {kind: count_parameters(make_model(kind, first)) for kind in runs}
    reached = {kind: row[0] for kind, row in rows.items()}
    single, double = count_first_projections(512, 512), count_first_projections(1024, 512)
    return Findings(
        f"{len(by_size[SIZES[0]]):,} pairs of random vectors of each size; and copying 1 to 8 words with "
        f"{CONFIG.encoder_layers} + {CONFIG.decoder_layers} layers of d_model {CONFIG.d_model}, pre-norm, "
        f"{effort.scale(STEPS)} steps of 64 pairs, {effort}. After concatenation, a separate matrix in encoder and "
        "decoder brings the vectors back to d_model.",
        claims(identity_gaps(64, first), spread, reached, sizes[CONCATENATED] - sizes[SUM], single, double),
        {
            "Cosines of random pairs": Table(
                "size | standard deviation | 1 / sqrt(size) | mean",
                [(size, spread[size], size**-0.5, float(cosines.mean())) for size, cosines in by_size.items()],
            ),
            "Parameters of the first query, key and value matrices at d_model 512": Table(
                "positions | size of a vector | parameters", [(SUM, 512, single), (CONCATENATED, 1024, double)]
            ),
            "Learning to copy": Table(
                "positions | parameters | accuracy | lowest seed | highest seed | seconds per step",
                [(kind, sizes[kind], *row, seconds[kind]) for kind, row in rows.items()],
            ),
        },
        {
            "cosines": Figure(
                "Cosines of random pairs, by the size of the vectors: the larger, the more nearly orthogonal.",
                lambda figure: draw_cosines(figure, by_size),
            ),
            "losses": losses_figure(runs),
        },
    )


def draw_cosines(figure: Any, by_size: dict[int, Tensor]) -> None:
    """Draw a histogram of cosines for each size of vectors on a matplotlib figure."""
    axes = figure.subplots()
    for index, (size, values) in enumerate(by_size.items()):
        look = {"color": COLOURS[index], "linestyle": ("-", "--", "-.", ":")[index % 4], "linewidth": 1.5}
        axes.hist(values.numpy(), 100, (-1, 1), density=True, histtype="step", label=f"size {size}", **look)
    axes.set(xlabel="cosine of two random vectors", ylabel="density")
    axes.legend(frameon=False)
