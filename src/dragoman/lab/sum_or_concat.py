"""Adding positions to words, or setting them beside each other.

Shapes: B sentences, T tokens, M d_model.
"""

import math
import time
from typing import Any

import torch
from torch import Tensor, nn

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.inspection.plots.training import COLOURS
from dragoman.lab.drawing import losses_figure
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.tasks import Learned, copying, learn, summary
from dragoman.model.positions import Positions, Sinusoidal
from dragoman.model.transformer import Transformer

SIZES = (2, 16, 64, 512)
PAIRS = 20_000
STEPS = 800
SUM, CONCATENATED = "sum", "concatenated"
TASK = copying(vocabulary=20, shortest=1, longest=8)
CONFIG = TransformerConfig(
    d_model=64,
    encoder_layers=2,
    decoder_layers=2,
    attention=AttentionConfig(heads=4),
    feed_forward=FeedForwardConfig(d_ff=128),
    dropout=0.0,
    norm_first=True,
)


class Concatenated(Positions):
    """Word and sinusoid side by side, and a matrix (2 M, M) that makes one vector of them again."""

    def __init__(self, d_model: int, heads: int, d_k: int, max_length: int):
        super().__init__(d_model, heads, d_k, max_length)
        self.places = Sinusoidal(d_model, heads, d_k, max_length)
        self.matrix = nn.Linear(2 * d_model, d_model, bias=False)

    def embed(self, x: Tensor, start: int) -> Tensor:
        return self.matrix(torch.cat([x, self.places.embed(torch.zeros_like(x), start)], -1))


def make(kind: str, seed: int) -> Transformer:
    """A model that adds its positions, or one that concatenates them, alike in all else."""
    torch.manual_seed(seed)
    model = Transformer(CONFIG, TASK.vocabulary)
    if kind == CONCATENATED:
        size = CONFIG.d_model, CONFIG.attention.heads, CONFIG.d_model // CONFIG.attention.heads, CONFIG.max_length
        model.encoder_positions, model.decoder_positions = Concatenated(*size), Concatenated(*size)
    return model


def identity_gaps(d_model: int, seed: int) -> tuple[float, float]:
    """The largest differences of [x; p] [W1; W2] from x W1 + p W2, and of [x; p] [W; W] from (x + p) W."""
    random = torch.Generator().manual_seed(seed)
    x, p, first, second = (torch.randn(d_model, d_model, generator=random, dtype=torch.float64) for _ in range(4))
    beside = torch.cat([x, p], 1)
    return (
        float((beside @ torch.cat([first, second]) - (x @ first + p @ second)).abs().max()),
        float((beside @ torch.cat([first, first]) - (x + p) @ first).abs().max()),
    )


def cosines(size: int, pairs: int, seed: int) -> Tensor:
    """The cosines of so many pairs of random vectors."""
    random = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(pairs, size, generator=random) for _ in range(2))
    return torch.cosine_similarity(x, y, dim=1)


def parameters(*modules: nn.Module) -> int:
    return sum(weight.numel() for module in modules for weight in module.parameters())


def first_projections(d_in: int, d_model: int) -> int:
    """Parameters of the query, key and value matrices of a first layer that takes vectors of size d_in."""
    return parameters(*(nn.Linear(d_in, d_model, bias=False) for _ in range(3)))


def judge_identity(gap: float, equal: float) -> Verdict:
    seen = max(gap, equal) < 1e-9
    return Verdict(
        seen,
        f"[x; p] [W1; W2] {'is' if seen else 'is not'} x W1 + p W2 (they differ by at most {gap:.1g}); with W1 = W2 "
        f"it is the sum times one matrix ({equal:.1g}): adding is concatenating with a matrix that is shared.",
    )


def judge_cosines(spread: dict[int, float]) -> Verdict:
    """spread: the standard deviation of the cosines of random pairs, by size."""
    seen = all(abs(found * math.sqrt(size) - 1) < 0.05 for size, found in spread.items())
    told = ", ".join(f"{found:.4f} at {size} ({1 / math.sqrt(size):.4f})" for size, found in spread.items())
    return Verdict(
        seen,
        f"The cosine of two random vectors has {'a' if seen else 'no'} standard deviation of 1/sqrt(size) (in "
        f"brackets) to within 5%: {told}. {'The larger, the nearer to a right angle.' if seen else ''}".strip(),
    )


def judge_learning(reached: dict[str, float], sizes: dict[str, int]) -> Verdict:
    """reached: accuracy; sizes: parameters of the models."""
    gain, more = reached[CONCATENATED] - reached[SUM], sizes[CONCATENATED] - sizes[SUM]
    return Verdict(
        gain <= 0.02,
        f"With sums {reached[SUM]:.1%} of the tokens are right, with concatenated positions "
        f"{reached[CONCATENATED]:.1%}: for {more:,} more parameters, {'no gain' if gain <= 0.02 else 'a gain'} of "
        "more than 2 points.",
    )


def judge_size(single: int, double: int) -> Verdict:
    seen = double == 2 * single
    return Verdict(
        seen,
        f"A first layer that takes words and places beside each other has {double:,} parameters in its query, key and "
        f"value matrices instead of {single:,}: {double / single:.3g} times as many.",
    )


def draw_cosines(figure: Any, by_size: dict[int, Tensor]) -> None:
    axes = figure.subplots()
    for index, (size, found) in enumerate(by_size.items()):
        axes.hist(found.numpy(), bins=100, range=(-1, 1), density=True, histtype="step", linewidth=1.5,
                  color=COLOURS[index], linestyle=("-", "--", "-.", ":")[index % 4], label=f"size {size}")  # fmt: skip
    axes.set_xlabel("cosine of two random vectors")
    axes.set_ylabel("density")
    axes.legend(frameon=False)


def run(effort: Effort) -> Findings:
    first = effort.seeds[0]
    gap, equal = identity_gaps(64, first)
    by_size = {size: cosines(size, max(1_000, effort.of(4 * PAIRS)), first) for size in SIZES}
    spread = {size: float(found.std()) for size, found in by_size.items()}
    runs: dict[str, list[Learned]] = {SUM: [], CONCATENATED: []}
    seconds = dict.fromkeys(runs, 0.0)
    for kind, each in runs.items():
        began = time.perf_counter()
        each += [learn(make(kind, seed), TASK, steps=effort.of(STEPS), seed=seed) for seed in effort.seeds]
        seconds[kind] = (time.perf_counter() - began) / len(effort.seeds) / effort.of(STEPS)
    rows = {kind: summary([learned.accuracy for learned in each]) for kind, each in runs.items()}
    sizes = {kind: parameters(make(kind, first)) for kind in runs}
    single, double = first_projections(512, 512), first_projections(1024, 512)
    return Findings(
        setting=f"{len(by_size[SIZES[0]]):,} pairs of random vectors of each size; and copying 1 to 8 words with "
        f"{CONFIG.encoder_layers} and {CONFIG.decoder_layers} layers of d_model {CONFIG.d_model}, pre-norm, "
        f"{effort.of(STEPS)} steps of 64 pairs, seeds {', '.join(map(str, effort.seeds))}. Concatenated positions are "
        "brought back to d_model by a matrix of their own, in encoder and decoder.",
        verdicts=(
            judge_identity(gap, equal),
            judge_cosines(spread),
            judge_size(single, double),
            judge_learning({kind: row[0] for kind, row in rows.items()}, sizes),
        ),
        tables=(
            Table(
                "Cosines of random pairs",
                ("size", "standard deviation", "1 / sqrt(size)", "mean"),
                tuple((size, spread[size], size**-0.5, float(found.mean())) for size, found in by_size.items()),
            ),
            Table(
                "Parameters of the first query, key and value matrices at d_model 512",
                ("positions", "size of a vector", "parameters"),
                ((SUM, 512, single), (CONCATENATED, 1024, double)),
            ),
            Table(
                "Learning to copy",
                ("positions", "parameters", "accuracy", "lowest seed", "highest seed", "seconds per step"),
                tuple((kind, sizes[kind], *row, seconds[kind]) for kind, row in rows.items()),
            ),
        ),
        figures=(
            Figure(
                "cosines",
                "How the cosines of random pairs are spread, by the size of the vectors: the larger, the more of them "
                "are nearly orthogonal.",
                lambda figure: draw_cosines(figure, by_size),
                (7.0, 4.0),
            ),
            losses_figure(runs),
        ),
    )


EXPERIMENT = Experiment(
    title="Adding positions or concatenating them",
    source="note 001 (why sum instead of concatenate)",
    claim="Random vectors of high dimension are almost orthogonal, so that words and places hardly disturb each "
    "other in a sum; concatenation would only make the vectors larger and the model more expensive.",
    run=run,
)
