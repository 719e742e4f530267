"""The norm before or after each layer: gradients at the start, and learning with and without warm-up."""

from collections.abc import Callable
from dataclasses import replace
from statistics import mean

import torch
from torch import nn

from dragoman.config import FeedForwardConfig, TransformerConfig
from dragoman.data.batches import source_batch
from dragoman.inspection.layers import layer_outputs
from dragoman.lab.drawing import by_layer, lines, losses_figure
from dragoman.lab.experiment import Claim, Effort, Experiment, Figure, Findings, Results, Table
from dragoman.lab.residuals import gradients, networks
from dragoman.lab.tasks import copying, learn, small, summary
from dragoman.model.transformer import Transformer

PRE, POST = "pre-norm", "post-norm"
LAYERS = 12
STEPS, PAIRS = 400, 32
PEAK = 3e-3  # the learning rate that both reach
WARMUP = 0.25  # of the steps
TASK = copying(vocabulary=20, shortest=1, longest=8)
CONFIG = replace(small(64, LAYERS), feed_forward=FeedForwardConfig(d_ff=256))
TRAINED = small(32, layers=6)  # fewer and smaller, to be trained in seconds


def make(kind: str, config: TransformerConfig, seed: int) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(replace(config, norm_first=kind == PRE), TASK.vocabulary)


def at_start(kind: str, seed: int) -> tuple[list[float], list[float]]:
    """Return the norms of the gradients of the second feed-forward matrices, by layer of encoder and decoder."""
    model, pairs = make(kind, CONFIG, seed), TASK.pairs(64, seed)
    both = gradients(model, pairs, networks([*model.encoder, *model.decoder]))
    return both[:LAYERS], both[LAYERS:]


def at_the_end(kind: str, seed: int) -> tuple[float, bool]:
    """Return how far the deviations of rows of the last encoder layer are from 1, and whether a norm follows."""
    model = make(kind, TRAINED, seed)
    with layer_outputs(model) as outputs, torch.no_grad():
        model.start(source_batch([source for source, _ in TASK.pairs(1, seed)]))
    deviations = outputs.encoder[-1].std(-1, correction=0)
    return float((deviations - 1).abs().max()), isinstance(model.encoder_norm, nn.LayerNorm)


def warm_up(steps: int) -> Callable[[int], float]:
    """Return the rate by step, which rises to its peak and stays there."""
    return lambda step: PEAK * min(1.0, step / steps)


def results(
    encoder: dict[str, list[float]],
    decoder: dict[str, list[float]],
    ends: dict[str, tuple[float, bool]],
    reached: dict[tuple[str, bool], float],
) -> Results:
    """Return the numbers that the claims are about.

    encoder, decoder: gradients by layer; ends: of `at_the_end`; reached: accuracy, with and without warm-up.
    """
    return Results(
        bottom={"encoder": {k: v[0] for k, v in encoder.items()}, "decoder": {k: v[0] for k, v in decoder.items()}},
        top={"encoder": {k: v[-1] for k, v in encoder.items()}, "decoder": {k: v[-1] for k, v in decoder.items()}},
        ends=ends,
        follows={kind: "a" if norm else "no" for kind, (_, norm) in ends.items()},
        warm={kind: reached[kind, True] for kind in (PRE, POST)},
        cold={kind: reached[kind, False] for kind in (PRE, POST)},
        worst={kind: min(reached[kind, warm] for warm in (True, False)) for kind in (PRE, POST)},
    )


def gradients_claim(side: str) -> Claim:
    """Return the claim about the gradients of one side, 'encoder' or 'decoder'."""
    return Claim(
        "At the start, over the layers of the SIDE, gradients go from {bottom[SIDE][post-norm]:.3f} at the bottom to "
        "{top[SIDE][post-norm]:.3f} at the top with post-norm, and from {bottom[SIDE][pre-norm]:.3f} to "
        "{top[SIDE][pre-norm]:.3f} with pre-norm: [they rise in the one and fall in the other|not a rise in the one "
        "and "
        "a fall in the other].".replace("SIDE", side),
        holds=lambda r: r.top[side][POST] > r.bottom[side][POST] and r.top[side][PRE] < r.bottom[side][PRE],
    )


CLAIMS = (
    gradients_claim("encoder"),
    gradients_claim("decoder"),
    Claim(
        "A norm at the end [belongs|does not belong] to pre-norm alone: the standard deviation of a row after the last "
        "layer misses 1 by up to {ends[post-norm][0]:.1g} with post-norm, and {follows[post-norm]} norm follows; by up "
        "to {ends[pre-norm][0]:.1g} with pre-norm, and {follows[pre-norm]} norm follows.",
        holds=lambda r: r.ends[POST][0] < 0.01 < r.ends[PRE][0] and r.ends[PRE][1] and not r.ends[POST][1],
    ),
    Claim(
        "Without warm-up, pre-norm [learns|does not learn] as well as with it: {cold[pre-norm]:.1%} against "
        "{warm[pre-norm]:.1%} right.",
        holds=lambda r: r.cold[PRE] >= r.warm[PRE] - 0.05,
    ),
    Claim(
        "Post-norm [needs|does not need] the warm-up here: {cold[post-norm]:.1%} right without it, "
        "{warm[post-norm]:.1%} with it.",
        holds=lambda r: r.cold[POST] < r.warm[POST] - 0.05,
    ),
    Claim(
        "Pre-norm is [the more stable one|not the more stable one]: at its worst it gets {worst[pre-norm]:.1%} right, "
        "post-norm {worst[post-norm]:.1%}.",
        holds=lambda r: r.worst[PRE] > r.worst[POST] + 0.05,
    ),
)


def run(effort: Effort) -> Findings:
    each_start = {kind: [at_start(kind, seed) for seed in effort.seeds] for kind in (POST, PRE)}
    encoder, decoder = (
        {
            kind: [mean(v) for v in zip(*(start[side] for start in starts), strict=True)]
            for kind, starts in each_start.items()
        }
        for side in (0, 1)
    )
    ends = {kind: at_the_end(kind, effort.seeds[0]) for kind in (POST, PRE)}
    steps = effort.of(STEPS)
    warmup = max(1, round(WARMUP * steps))
    runs = {
        (kind, warm): [
            learn(make(kind, TRAINED, s), TASK, steps=steps, seed=s, batch=PAIRS, rate=warm_up(warmup if warm else 1))
            for s in effort.seeds
        ]
        for kind in (POST, PRE)
        for warm in (True, False)
    }
    rows = {key: summary([learned.accuracy for learned in each]) for key, each in runs.items()}
    return Findings(
        f"Gradients: {LAYERS} and {LAYERS} layers of d_model {CONFIG.d_model} as drawn, one batch of 64 pairs. "
        f"Learning: copying 1 to 8 words with {TRAINED.encoder_layers} and {TRAINED.decoder_layers} layers of d_model "
        f"{TRAINED.d_model}, {steps} steps of {PAIRS} pairs at a rate of {PEAK}, reached at once or after a warm-up of "
        f"{warmup} steps; {effort}.",
        results(encoder, decoder, ends, {key: row[0] for key, row in rows.items()}),
        [
            Table(
                "Norm of the gradient of the second feed-forward matrix at the start",
                " | ".join(["layer", *(f"{side}, {kind}" for side in ("encoder", "decoder") for kind in (POST, PRE))]),
                [(i, *row) for i, row in enumerate(zip(*encoder.values(), *decoder.values(), strict=True), start=1)],
            ),
            Table(
                "After the last encoder layer, at the start",
                "norm | standard deviations miss 1 by up to | a norm follows",
                [(kind, *end) for kind, end in ends.items()],
            ),
            Table(
                "Learning to copy",
                "norm | warm-up | accuracy | lowest seed | highest seed",
                [(*key, *row) for key, row in rows.items()],
            ),
        ],
        [
            Figure(
                "gradients",
                f"{LAYERS} layers as drawn at the start: norm of the gradient of the second feed-forward matrix, by "
                "layer; encoder on the left, decoder on the right.",
                lines(
                    by_layer("gradient, encoder", encoder, log="y"),
                    by_layer("gradient, decoder", decoder, log="y"),
                    legend="above",
                ),
                (9.0, 4.0),
            ),
            losses_figure({f"{kind}, warm-up {'on' if warm else 'off'}": each for (kind, warm), each in runs.items()}),
        ],
    )


EXPERIMENT = Experiment(
    title="Norm before or after the layer",
    source="section 3.1; Xiong et al. 2020",
    thesis="With the norm before each layer (pre-norm) training is more stable and needs no warm-up; with the norm "
    "after it, as in the paper, gradients are large near the output. A norm at the end of a stack belongs to pre-norm.",
    claims=CLAIMS,
    run=run,
)
