"""One head or many of equal total size (section 3.2.2, Table 3 A): what they cost, how they learn, how they differ.

Shapes: B sentences, H heads, T queries, S keys.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from dragoman.config import AttentionConfig
from dragoman.config.presets import BASE
from dragoman.data.batches import Batch
from dragoman.inspection.heads import diversity
from dragoman.inspection.plots.training import COLOURS, style
from dragoman.lab.drawing import draw_learning
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.reversal_setup import CLEARLY, LONGEST, PAIRS, RATE, TASK, WARMUP, last, rate, transformer
from dragoman.lab.tasks import Learned, learn, reversing
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.capture import AttentionCapture
from dragoman.model.transformer import Transformer

HEADS = (1, 4, 8, 16, 32)
LAYERS = 2
INSIDE = 8  # heads of the model that is looked into
VIEWED = reversing(vocabulary=20, shortest=LONGEST, longest=LONGEST)  # all of one length, so that there is no padding
PLACES = LONGEST + 1  # of them, with the end of the sentence

# Table 3, rows A and base: perplexity per word piece and BLEU on newstest2013, 65 million parameters each.
PAPER = {1: (5.29, 24.9), 4: (5.00, 25.5), 8: (4.92, 25.8), 16: (4.91, 25.8), 32: (5.01, 25.4)}


def parameters_of_layer(d_model: int, config: AttentionConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in MultiHeadAttention(d_model, config).parameters())


def parameters_of_base(heads: int) -> int:
    """Of the paper's base model with so many heads, 37,000 shared words."""
    config = replace(BASE.model, attention=replace(BASE.model.attention, heads=heads))
    with torch.device("meta"):
        return sum(p.numel() for p in Transformer(config, BASE.vocabulary).parameters())


# Statistics of weights (..., T, S), whose rows sum to 1.


def entropy(weights: Tensor) -> Tensor:
    """Of each query's weights, mean over queries, in nats: 0 for one key, ln S where all are equal."""
    return torch.special.entr(weights).sum(-1).mean(-1)


def distance(weights: Tensor) -> Tensor:
    """sum_j a_ij |i - j|, mean over queries, in tokens; square weights."""
    places = torch.arange(weights.size(-1))
    return (weights * (places[:, None] - places).abs()).sum(-1).mean(-1)


@dataclass(frozen=True)
class Layer:
    """The self-attention of one layer: each value is a mean over queries and sentences."""

    name: str
    entropy: list[float]  # by head, nats
    distance: list[float]  # by head, tokens
    diversity: float  # 0: all heads look alike; 1: no two of them at the same key


def layers_of(model: Transformer) -> list[Layer]:
    """Of the encoder, from the bottom to the top."""
    pairs = VIEWED.pairs(PAIRS, 0)
    batch = Batch.of(*map(list, zip(*pairs, strict=True)))
    capture = AttentionCapture(model.eval())
    with torch.inference_mode():
        capture.model.start(batch.source)
    return [
        Layer(
            f"encoder.{index}.attention",
            entropy(w).mean(0).tolist(),
            distance(w).mean(0).tolist(),
            float(diversity(w).mean()),
        )
        for index, w in enumerate(capture.weights["encoder"])
    ]


@dataclass(frozen=True)
class Trial:
    heads: int
    seed: int
    learned: Learned
    before: list[Layer]  # of the encoder, before and after training; empty but for INSIDE heads
    after: list[Layer]


def trial(heads: int, seed: int, steps: int) -> Trial:
    model = transformer(AttentionConfig(heads=heads), seed, layers=LAYERS)
    before = layers_of(model) if heads == INSIDE else []
    learned = learn(model, TASK, steps=steps, seed=seed, rate=rate, batch=PAIRS)
    return Trial(heads, seed, learned, before, layers_of(model) if heads == INSIDE else [])


def run(effort: Effort) -> Findings:
    steps = effort.of(640)
    trials = [trial(heads, seed, steps) for heads in HEADS for seed in effort.seeds]
    inside = [t for t in trials if t.heads == INSIDE]
    losses = {heads: fmean(last(t.learned.losses) for t in trials if t.heads == heads) for heads in HEADS}
    return Findings(
        f"Task: {TASK.name} 2 to {LONGEST} words, where one source word decides each target word; {LAYERS} layers on "
        f"each side, d_model 64, heads of size 64 / heads; the same batches of {PAIRS} pairs and learning rate "
        f"({RATE:g} after {WARMUP} steps of warm-up); {steps} steps, seeds {effort.seeds}. Looked into: the encoder of "
        f"the model with {INSIDE} heads, on {PAIRS} sentences of {LONGEST} words and the end.",
        (
            judge_sizes({heads: parameters_of_layer(512, AttentionConfig(heads=heads)) for heads in HEADS}),
            judge_heads(losses),
            judge_diversity(mean_diversity(t.before for t in inside), mean_diversity(t.after for t in inside)),
            judge_depth([fmean(fmean(t.after[n].distance) for t in inside) for n in range(LAYERS)]),
        ),
        (sizes_table(), trials_table(trials), inside_table(inside)),
        (
            Figure(
                "learning-by-heads",
                "Training loss by step, mean over 20 steps and over seeds, for models that differ in the number of "
                "heads alone.",
                partial(draw_trials, trials=trials),
                (7.0, 4.0),
            ),
            Figure(
                "heads-inside",
                f"Each head of the encoder as a mark: how far it looks and how widely, before and after training. The "
                f"cross is where equal weights for all {PLACES} places would be.",
                partial(draw_inside, trials=inside),
                (9.0, 4.0),
            ),
        ),
    )


def mean_diversity(trials: Iterable[Sequence[Layer]]) -> float:
    return fmean(layer.diversity for layers in trials for layer in layers)


# What follows from the numbers.


def judge_sizes(parameters: Mapping[int, int]) -> Verdict:
    seen = len(set(parameters.values())) == 1
    return Verdict(
        seen,
        f"A layer of {' to '.join(str(h) for h in (min(parameters), max(parameters)))} heads at d_model 512 has "
        + (f"always {min(parameters.values()):,} parameters" if seen else "not always as many parameters")
        + ": heads are a split, not an addition.",
    )


def judge_heads(losses: Mapping[int, float]) -> Verdict:
    """Losses at the end by number of heads."""
    best = min((heads for heads in losses if heads > 1), key=lambda heads: losses[heads])
    seen = losses[best] < losses[1] - CLEARLY
    return Verdict(
        seen,
        f"Several heads {'learn' if seen else 'do not learn'} this task clearly better than one: {losses[best]:.3f} "
        f"nats per token with {best} heads, {losses[1]:.3f} with one, {losses[max(losses)]:.3f} with {max(losses)}.",
    )


def judge_diversity(before: float, after: float) -> Verdict:
    seen = after > 0.25
    change = after - before
    learned = "as much as" if abs(change) < 0.05 else "more than" if change > 0 else "less than"
    return Verdict(
        seen,
        f"Heads {'look' if seen else 'hardly look'} at different places: two of a layer put {after:.0%} of their "
        f"weight on different keys after training, {learned} before, when matrices are random ({before:.0%}).",
    )


def judge_depth(distances: Sequence[float]) -> Verdict:
    """Mean attention distance by layer, from the bottom. Note 001: global at the bottom, local at the top."""
    seen = distances[0] > distances[-1] + 0.1
    return Verdict(
        seen,
        "From the first layer to the last the mean distance of attention "
        f"{'falls' if seen else 'does not clearly fall'}: {' to '.join(f'{d:.2f}' for d in distances)} tokens. This is "
        "one small model on one task; it proves nothing about others.",
    )


# Tables and figures.


def sizes_table() -> Table:
    rows = [
        (
            heads,
            512 // heads,
            parameters_of_layer(512, AttentionConfig(heads=heads)),
            parameters_of_layer(512, AttentionConfig(heads=heads, bias=True)),
            parameters_of_base(heads),
            *PAPER[heads],
        )
        for heads in HEADS
    ]
    columns = ("heads", "d_k = d_v", "parameters of a layer", "with biases", "parameters of the base model")
    return Table(
        "Equal sizes at d_model 512; beside them Table 3 A of the paper (65 million parameters in all rows)",
        (*columns, "perplexity in the paper", "BLEU in the paper"),
        tuple(rows),
    )


def trials_table(trials: Sequence[Trial]) -> Table:
    return Table(
        "Learning by the number of heads: the loss of the last tenth of the steps, and accuracy on unseen pairs",
        ("heads", "seed", "loss (nats per token)", "accuracy"),
        tuple((t.heads, t.seed, last(t.learned.losses), t.learned.accuracy) for t in trials),
    )


def inside_table(trials: Sequence[Trial]) -> Table:
    return Table(
        f"The heads of the encoder of the model with {INSIDE} heads",
        ("seed", "when", "layer", "head", "entropy (nats)", "distance (tokens)", "diversity of the layer"),
        tuple(
            (t.seed, when, number, head, *values, layer.diversity)
            for t in trials
            for when, layers in (("before", t.before), ("after", t.after))
            for number, layer in enumerate(layers, start=1)
            for head, values in enumerate(zip(layer.entropy, layer.distance, strict=True), start=1)
        ),
    )


def draw_trials(figure: Any, trials: Sequence[Trial]) -> None:
    axes = figure.subplots()
    draw_learning(axes, {f"{h} head{'s' * (h > 1)}": [t.learned.losses for t in trials if t.heads == h] for h in HEADS})
    axes.legend(frameon=False)


def draw_inside(figure: Any, trials: Sequence[Trial]) -> None:
    grid = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, when in zip(grid, ("before", "after"), strict=True):
        for number in range(LAYERS):
            layers = [getattr(t, when)[number] for t in trials]
            xs, ys = ([x for layer in layers for x in getattr(layer, f)] for f in ("distance", "entropy"))
            look = {**style(number), "linestyle": "none"}
            axes.plot(xs, ys, label=f"layer {number + 1}", **look)
        axes.plot([(PLACES**2 - 1) / (3 * PLACES)], [math.log(PLACES)], "x", color=COLOURS[3], markersize=9,
                  linestyle="none", label="equal weights")  # fmt: skip
        axes.set(title=f"{when} training", xlabel="mean distance (tokens)", ylabel="entropy (nats)")
        axes.grid(color="0.9", linewidth=0.6)
    grid[0].legend(frameon=False)


EXPERIMENT = Experiment(
    title="One head or many",
    source="notes 001, 004; section 3.2.2, Table 3 A",
    claim="Several heads of smaller size cost as much as one large head and look at different places at once, as an "
    "ensemble or many filters do; note 001 reads a figure as: lower layers look far, upper layers near.",
    run=run,
)
