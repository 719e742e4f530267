"""The norm before or after each layer: gradients at the start, and learning with and without warm-up."""

from collections.abc import Callable
from dataclasses import replace
from statistics import mean

import torch
from torch import nn

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.data.batches import source_batch
from dragoman.inspection.layers import layer_outputs
from dragoman.lab.drawing import draw_layers, losses_figure
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.residuals import gradients, networks
from dragoman.lab.tasks import Learned, copying, learn, summary
from dragoman.model.transformer import Transformer

PRE, POST = "pre-norm", "post-norm"
LAYERS = 12
STEPS, PAIRS = 400, 32
PEAK = 3e-3  # the learning rate that both reach
WARMUP = 0.25  # of the steps
TASK = copying(vocabulary=20, shortest=1, longest=8)
CONFIG = TransformerConfig(
    d_model=64,
    encoder_layers=LAYERS,
    decoder_layers=LAYERS,
    attention=AttentionConfig(heads=4),
    feed_forward=FeedForwardConfig(d_ff=256),
    dropout=0.0,
)
TRAINED = replace(
    CONFIG, d_model=32, encoder_layers=6, decoder_layers=6, feed_forward=FeedForwardConfig(d_ff=64)
)  # fewer and smaller, to be trained in seconds


def make(kind: str, config: TransformerConfig, seed: int) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(replace(config, norm_first=kind == PRE), TASK.vocabulary)


def at_start(kind: str, seed: int) -> tuple[list[float], list[float]]:
    """The norm of the gradient of the second feed-forward matrix of each layer: of the encoder, and of the decoder."""
    model, pairs = make(kind, CONFIG, seed), TASK.pairs(64, seed)
    both = gradients(model, pairs, networks([*model.encoder, *model.decoder]))
    return both[:LAYERS], both[LAYERS:]


def at_the_end(kind: str, seed: int) -> tuple[float, bool]:
    """How far the standard deviation of a row of the last encoder layer is from 1, and whether a norm comes after "
    "it."""
    model = make(kind, TRAINED, seed)
    with layer_outputs(model) as outputs, torch.no_grad():
        model.start(source_batch([source for source, _ in TASK.pairs(1, seed)]))
    deviations = outputs.encoder[-1].std(-1, correction=0)
    return float((deviations - 1).abs().max()), isinstance(model.encoder_norm, nn.LayerNorm)


def rising(steps: int) -> Callable[[int], float]:
    """The rate of a step: rises to its peak and stays there."""
    return lambda step: PEAK * min(1.0, step / steps)


def judge_gradients(pre: list[float], post: list[float], where: str) -> Verdict:
    """Norms by layer, from the bottom to the top."""
    seen = post[-1] > post[0] and pre[-1] < pre[0]
    return Verdict(
        seen,
        f"At the start, over {len(pre)} layers of the {where}, gradients go from {post[0]:.3f} at the bottom to "
        f"{post[-1]:.3f} at the top with post-norm, and from {pre[0]:.3f} to {pre[-1]:.3f} with pre-norm: "
        f"{'they rise in the one and fall in the other' if seen else 'not a rise in the one and a fall in the other'}.",
    )


def judge_end(pre: tuple[float, bool], post: tuple[float, bool]) -> Verdict:
    """Of what `at_the_end` found."""
    seen = post[0] < 0.01 < pre[0] and pre[1] and not post[1]

    def told(end: tuple[float, bool]) -> str:
        return f"{end[0]:.1g} and {'a' if end[1] else 'no'} norm follows"

    return Verdict(
        seen,
        "The standard deviation of a row after the last layer misses 1, with post-norm, by up to "
        f"{told(post)}; with pre-norm by up to {told(pre)}: the norm at the end "
        f"{'belongs to pre-norm alone' if seen else 'does not belong to pre-norm alone'}.",
    )


def judge_warmup(reached: dict[tuple[str, bool], float]) -> tuple[Verdict, Verdict]:
    """reached: accuracy by kind, with and without warm-up."""
    pre = reached[PRE, False] >= reached[PRE, True] - 0.05
    post = reached[POST, False] < reached[POST, True] - 0.05
    return (
        Verdict(
            pre,
            f"Without warm-up, pre-norm {'learns as well as' if pre else 'does not learn as well as'} with it: "
            f"{reached[PRE, False]:.1%} against {reached[PRE, True]:.1%} right.",
        ),
        Verdict(
            post,
            f"Post-norm {'needs' if post else 'does not need'} the warm-up here: {reached[POST, False]:.1%} right "
            f"without it, {reached[POST, True]:.1%} with it.",
        ),
    )


def judge_stable(reached: dict[tuple[str, bool], float]) -> Verdict:
    worst = {kind: min(reached[kind, warm] for warm in (True, False)) for kind in (PRE, POST)}
    seen = worst[PRE] > worst[POST] + 0.05
    return Verdict(
        seen,
        f"Pre-norm is {'' if seen else 'not '}the more stable one: at its worst it gets {worst[PRE]:.1%} right, "
        f"post-norm {worst[POST]:.1%}.",
    )


def run(effort: Effort) -> Findings:
    start = {
        kind: [[mean(v) for v in zip(*side, strict=True)] for side in zip(*each, strict=True)]
        for kind in (POST, PRE)
        for each in [[at_start(kind, seed) for seed in effort.seeds]]
    }
    encoder, decoder = ({kind: sides[i] for kind, sides in start.items()} for i in range(2))
    ends = {kind: at_the_end(kind, effort.seeds[0]) for kind in (POST, PRE)}
    steps = effort.of(STEPS)
    warmup = max(1, round(WARMUP * steps))
    runs: dict[tuple[str, bool], list[Learned]] = {(kind, warm): [] for kind in (POST, PRE) for warm in (True, False)}
    for (kind, warm), each in runs.items():
        for seed in effort.seeds:
            model = make(kind, TRAINED, seed)
            each.append(learn(model, TASK, steps=steps, seed=seed, batch=PAIRS, rate=rising(warmup if warm else 1)))
    rows = {key: summary([learned.accuracy for learned in each]) for key, each in runs.items()}
    reached = {key: row[0] for key, row in rows.items()}
    return Findings(
        setting=f"Gradients: {LAYERS} and {LAYERS} layers of d_model {CONFIG.d_model} as drawn, one batch of 64 pairs. "
        f"Learning: copying 1 to 8 words with {TRAINED.encoder_layers} and {TRAINED.decoder_layers} layers of d_model "
        f"{TRAINED.d_model}, {steps} steps of {PAIRS} pairs at a rate of {PEAK}, reached at once or after a warm-up of "
        f"{warmup} steps. Seeds {', '.join(map(str, effort.seeds))}.",
        verdicts=(
            judge_gradients(encoder[PRE], encoder[POST], "encoder"),
            judge_gradients(decoder[PRE], decoder[POST], "decoder"),
            judge_end(ends[PRE], ends[POST]),
            *judge_warmup(reached),
            judge_stable(reached),
        ),
        tables=(
            Table(
                "Norm of the gradient of the second feed-forward matrix at the start",
                ("layer", *(f"{side}, {kind}" for side in ("encoder", "decoder") for kind in (POST, PRE))),
                tuple(
                    (i, *row) for i, row in enumerate(zip(*encoder.values(), *decoder.values(), strict=True), start=1)
                ),
            ),
            Table(
                "After the last encoder layer, at the start",
                ("norm", "standard deviations miss 1 by up to", "a norm follows"),
                tuple((kind, *end) for kind, end in ends.items()),
            ),
            Table(
                "Learning to copy",
                ("norm", "warm-up", "accuracy", "lowest seed", "highest seed"),
                tuple((kind, warm, *row) for (kind, warm), row in rows.items()),
            ),
        ),
        figures=(
            Figure(
                "gradients",
                f"{LAYERS} layers as drawn at the start: norm of the gradient of the second feed-forward matrix, by "
                "layer; encoder on the left, decoder on the right.",
                lambda figure: draw_layers(figure, {"gradient, encoder": encoder, "gradient, decoder": decoder}, True),
                (9.0, 4.0),
            ),
            losses_figure({f"{kind}, warm-up {'on' if warm else 'off'}": each for (kind, warm), each in runs.items()}),
        ),
    )


EXPERIMENT = Experiment(
    title="Norm before or after the layer",
    source="note 001 (EncoderLayer, pre- and post-LN; Encoder); section 3.1",
    claim="With the norm before each layer (pre-norm) training is more stable and needs no warm-up; with the norm "
    "after it, as in the paper, gradients are large near the output. (Note 001 takes the norm at the end of a stack "
    "once for the paper's, once not.)",
    run=run,
)
