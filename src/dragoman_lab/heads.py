"""One head or many of equal total size (section 3.2.2, Table 3 A): what they cost, how they learn, how they differ."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from dragoman.config import AttentionConfig
from dragoman.config.presets import BASE
from dragoman.inspection.heads import diversity
from dragoman.inspection.plots.training import COLOURS, style
from dragoman.model import parameter_count
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.capture import AttentionCapture
from dragoman.model.transformer import Transformer
from dragoman_lab.drawing import learning_panel, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.reversal_setup import CLEARLY, MAX_WORDS, PAIRS, RATE, TASK, WARMUP, last, rate, transformer
from dragoman_lab.tasks import Learned, learn, make_batch, reversing

HEADS = (1, 4, 8, 16, 32)
LAYERS = 2
INSIDE = 8  # heads of the model that is looked into
VIEWED = reversing(vocabulary=20, shortest=MAX_WORDS, longest=MAX_WORDS)  # all of one length: no padding
LENGTH = MAX_WORDS + 1  # of them, EOS included

# Table 3, rows A and base: perplexity per word piece and BLEU on newstest2013, 65 million parameters each.
PAPER = {1: (5.29, 24.9), 4: (5.00, 25.5), 8: (4.92, 25.8), 16: (4.91, 25.8), 32: (5.01, 25.4)}


def count_layer_parameters(d_model: int, config: AttentionConfig) -> int:
    """Return the number of parameters of one attention layer. No memory is allocated for them."""
    with torch.device("meta"):
        return parameter_count(MultiHeadAttention(d_model, config))


def count_base_parameters(heads: int) -> int:
    """Return the number of parameters of the paper's base model with so many heads and 37,000 shared words. No memory
    is allocated for them.
    """
    config = replace(BASE.model, attention=replace(BASE.model.attention, heads=heads))
    with torch.device("meta"):
        return parameter_count(Transformer(config, BASE.vocabulary))


def mean_entropy(weights: Tensor) -> Tensor:
    """Return the entropy in nats of attention weights (..., T, S), mean over queries, (...): from 0 for one key to ln S
    for equal weights.
    """
    return torch.special.entr(weights).sum(-1).mean(-1)


def mean_distance(weights: Tensor) -> Tensor:
    """Return the mean distance in tokens from a query to what it attends to, sum_j a_ij |i - j|, mean over queries, of
    attention weights (..., T, T): (...).
    """
    position = torch.arange(weights.size(-1))
    return (weights * (position[:, None] - position).abs()).sum(-1).mean(-1)


@dataclass(frozen=True)
class Layer:
    """Describe how the heads of one layer of self-attention look around: each value is a mean over queries and
    sentences.
    """

    entropy: list[float]  # by head, nats
    distance: list[float]  # by head, tokens
    diversity: float  # 0: all heads look alike; 1: no two of them at the same key


def inspect_layers(model: Transformer) -> list[Layer]:
    """Run the encoder on PAIRS sentences; return how the heads of each layer look around, from the bottom to the top.
    Leaves the model in eval mode.
    """
    batch = make_batch(VIEWED.pairs(PAIRS, 0))
    capture = AttentionCapture(model.eval())
    with torch.inference_mode():
        capture.model.start(batch.source)
    return [
        Layer(mean_entropy(w).mean(0).tolist(), mean_distance(w).mean(0).tolist(), float(diversity(w).mean()))
        for w in capture.weights["encoder"]
    ]


@dataclass(frozen=True)
class Trial:
    """Describe how a model with so many heads learned with one seed."""

    heads: int
    seed: int
    learned: Learned
    before: list[Layer]  # of the encoder, before and after training; empty but for INSIDE heads
    after: list[Layer]


def run_trial(heads: int, seed: int, steps: int) -> Trial:
    """Train a model with so many heads on reversing; look into its encoder before and after if it has INSIDE heads."""
    model = transformer(AttentionConfig(heads=heads), seed, layers=LAYERS)
    before = inspect_layers(model) if heads == INSIDE else []
    learned = learn(model, TASK, steps=steps, seed=seed, rate=rate, batch=PAIRS)
    return Trial(heads, seed, learned, before, inspect_layers(model) if heads == INSIDE else [])


def claims(
    parameters: dict[int, int], losses: dict[int, float], before: float, after: float, distances: Sequence[float]
) -> Claims:
    """Return each claim and whether it holds. parameters, losses: by number of heads; before, after: mean diversity of
    the heads before and after training; distances: mean distance of attention by layer.
    """
    several = {heads: loss for heads, loss in losses.items() if heads > 1}
    sizes, ends = (min(parameters.values()), max(parameters.values())), (distances[0], distances[-1])
    return {
        f"Attention of 1 to 32 heads at d_model 512 [always has|does not always have] {sizes[0]:,} parameters: heads "
        "divide it up and add nothing to it.": sizes[0] == sizes[1],
        f"Several heads [learn|do not learn] this task clearly better than one: {fmean(several.values()):.3f} nats per "
        f"token on average over {min(several)} to {max(several)} heads, {losses[1]:.3f} with "
        "one.": fmean(several.values()) < losses[1] - CLEARLY,
        "Heads [learn|do not learn] to look at different positions: after training, two heads of a layer put "
        f"{after:.0%} of their weight on different keys; before, when the matrices were random, they put "
        f"{before:.0%}.": after > before + 0.05,
        "From the first layer to the last, the mean distance of attention [falls|does not clearly fall]: it goes from "
        f"{ends[0]:.2f} to {ends[1]:.2f} tokens. This is one small model on one task; it proves nothing about "
        "others.": ends[0] > ends[1] + 0.1,
    }


@experiment(
    "One head or many",
    "section 3.2.2, Table 3 A",
    "Several small heads cost as much as one large head and look at different places at once, like an ensemble or like "
    "many filters. Lower layers are sometimes said to look far, upper layers near.",
)
def run(effort: Effort) -> Findings:
    """Count parameters, train models with 1 to 32 heads, and look into the encoder of one of them."""
    steps = effort.scale(640)
    trials = [run_trial(heads, seed, steps) for heads in HEADS for seed in effort.seeds]
    inside = [t for t in trials if t.heads == INSIDE]
    learned = {heads: [t.learned for t in trials if t.heads == heads] for heads in HEADS}
    return Findings(
        f"Task: {TASK.name} 2 to {MAX_WORDS} words, where one source word decides each target word; {LAYERS} layers on "
        f"each side, d_model 64, heads of size 64 / heads; the same batches of {PAIRS} pairs and learning rate "
        f"({RATE:g} after {WARMUP} steps of warm-up); {steps} steps, {effort}. Inspected: the encoder of the model "
        f"with {INSIDE} heads, on {PAIRS} sentences of {MAX_WORDS} words and EOS.",
        claims(
            {heads: count_layer_parameters(512, AttentionConfig(heads=heads)) for heads in HEADS},
            {heads: fmean(last(run.losses) for run in same) for heads, same in learned.items()},
            mean_diversity(t.before for t in inside),
            mean_diversity(t.after for t in inside),
            [fmean(fmean(t.after[n].distance) for t in inside) for n in range(LAYERS)],
        ),
        {
            "Equal sizes at d_model 512; beside them Table 3 A of the paper (65 million parameters in all "
            "rows)": sizes_table(),
            "Learning by the number of heads: the loss of the last tenth of the steps, and accuracy on unseen "
            "pairs": Table(
                "heads | seed | loss (nats per token) | accuracy",
                [(t.heads, t.seed, last(t.learned.losses), t.learned.accuracy) for t in trials],
            ),
            f"The heads of the encoder of the model with {INSIDE} heads": inside_table(inside),
        },
        {
            "learning-by-heads": Figure(
                "Training loss by step, means over 20 steps and all seeds, of models with different numbers of heads.",
                lines(learning_panel({f"{h} head{'s' * (h > 1)}": same for h, same in learned.items()})),
            ),
            "heads-inside": Figure(
                f"How far each head looks, and how widely it spreads its weight. Cross: equal weights for all {LENGTH} "
                "positions.",
                lambda figure: draw_inside(figure, inside),
            ),
        },
    )


def mean_diversity(trials: Iterable[Sequence[Layer]]) -> float:
    """Return the mean diversity over all layers of all trials."""
    return fmean(layer.diversity for layers in trials for layer in layers)


def sizes_table() -> Table:
    """Return the table of the sizes of an attention layer and of the base model by number of heads, beside Table 3 A of
    the paper.
    """
    layer = count_layer_parameters
    return Table(
        "heads | d_k = d_v | parameters of an attention | with biases | parameters of the base model | "
        "perplexity in the paper | BLEU in the paper",
        [
            (h, 512 // h, *(layer(512, AttentionConfig(heads=h, bias=bias)) for bias in (False, True)),
             count_base_parameters(h), *PAPER[h])
            for h in HEADS
        ],
    )  # fmt: skip


def inside_table(trials: Sequence[Trial]) -> Table:
    """Return a table of what each head does: for each seed, layer and head a row before training and one after it."""
    return Table(
        "seed | when | layer | head | entropy (nats) | distance (tokens) | diversity of the layer",
        [
            (t.seed, when, number, head, *values, layer.diversity)
            for t in trials
            for when, layers in (("before", t.before), ("after", t.after))
            for number, layer in enumerate(layers, start=1)
            for head, values in enumerate(zip(layer.entropy, layer.distance, strict=True), start=1)
        ],
    )


def draw_inside(figure: Any, trials: Sequence[Trial]) -> None:
    """Draw the entropy of each head by its mean distance, before and after training, on a matplotlib figure; a cross
    marks equal weights.
    """
    grid = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, when in zip(grid, ("before", "after"), strict=True):
        for number in range(LAYERS):
            layers = [getattr(t, when)[number] for t in trials]
            xs, ys = ([x for layer in layers for x in getattr(layer, f)] for f in ("distance", "entropy"))
            axes.plot(xs, ys, label=f"layer {number + 1}", **{**style(number), "linestyle": "none"})
        even = (LENGTH**2 - 1) / (3 * LENGTH), math.log(LENGTH)
        axes.plot(*even, "x", color=COLOURS[3], markersize=9, label="equal weights")
        axes.set(title=f"{when} training", xlabel="mean distance (tokens)", ylabel="entropy (nats)")
        axes.grid(color="0.9", linewidth=0.6)
    grid[0].legend(frameon=False)
