"""The norm before or after each layer: gradients at the start, and learning with and without warm-up."""

from dataclasses import replace
from statistics import mean

import torch
from torch import nn

from dragoman.config import FeedForwardConfig, TransformerConfig
from dragoman.data.batches import source_batch
from dragoman.model.transformer import Transformer
from dragoman_lab.drawing import layer_panel, lines, losses_figure
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.layers import layer_outputs
from dragoman_lab.residuals import feed_forward_matrices, gradient_norms
from dragoman_lab.tasks import copying, learn, mean_and_extremes, small, warm_up

PRE, POST = "pre-norm", "post-norm"
LAYERS = 12
STEPS, PAIRS = 400, 32
PEAK = 3e-3  # the learning rate that both reach
WARMUP = 0.25  # of the steps
CLEARLY = 1.25  # times: a smaller rise or fall from the bottom to the top is none
TASK = copying(vocabulary=20, shortest=1, longest=8)
CONFIG = replace(small(64, LAYERS), feed_forward=FeedForwardConfig(d_ff=256))
TRAINED = small(32, layers=6)  # fewer and smaller, to be trained in seconds


def make_model(kind: str, config: TransformerConfig, seed: int) -> Transformer:
    """Return a fresh Transformer with this norm (PRE or POST), else of `config`; the same seed draws the
    same weights.
    """
    torch.manual_seed(seed)
    return Transformer(replace(config, norm_first=kind == PRE), TASK.vocabulary)


def gradients_at_start(kind: str, seed: int) -> tuple[list[float], list[float]]:
    """Return, for a fresh model and one batch, the norms of the gradients of the second feed-forward matrices: by layer
    of the encoder, by layer of the decoder.
    """
    model, pairs = make_model(kind, CONFIG, seed), TASK.pairs(64, seed)
    both = gradient_norms(model, pairs, feed_forward_matrices([*model.encoder, *model.decoder]))
    return both[:LAYERS], both[LAYERS:]


def deviation_at_end(kind: str, seed: int) -> tuple[float, bool]:
    """Encode one sentence with a fresh model; return how far at most the standard deviation of a word's vector after
    the last encoder layer is from 1, and whether a norm follows.
    """
    model = make_model(kind, TRAINED, seed)
    with layer_outputs(model) as outputs, torch.no_grad():
        model.start(source_batch([source for source, _ in TASK.pairs(1, seed)]))
    deviations = outputs.encoder[-1].std(-1, correction=0)
    return float((deviations - 1).abs().max()), isinstance(model.encoder_norm, nn.LayerNorm)


def claims(
    encoder: dict[str, list[float]],  # gradients by layer
    decoder: dict[str, list[float]],
    ends: dict[str, tuple[float, bool]],  # of `deviation_at_end`
    reached: dict[tuple[str, bool], float],  # accuracy, with and without warm-up
) -> Claims:
    """Return each claim and whether it holds."""
    follows = {kind: "a" if norm else "no" for kind, (_, norm) in ends.items()}
    worst = {kind: min(reached[kind, warm] for warm in (True, False)) for kind in (PRE, POST)}
    gradients = {
        f"At the start, over the layers of the {side}, gradients go from {by[POST][0]:.3f} at the bottom to "
        f"{by[POST][-1]:.3f} at the top with post-norm, and from {by[PRE][0]:.3f} to {by[PRE][-1]:.3f} with pre-norm: "
        "[they clearly rise with post-norm and fall with pre-norm|they do not clearly rise with post-norm and fall "
        "with pre-norm].": by[POST][-1] > CLEARLY * by[POST][0] and CLEARLY * by[PRE][-1] < by[PRE][0]
        for side, by in (("encoder", encoder), ("decoder", decoder))
    }
    (post_misses, post_has_norm), (pre_misses, pre_has_norm) = ends[POST], ends[PRE]
    return gradients | {
        "[Only pre-norm needs|Not only pre-norm needs] a norm at the end: after the last layer, the standard deviation "
        f"of a row differs from 1 by up to {post_misses:.1g} with post-norm, and {follows[POST]} norm follows; with "
        f"pre-norm it differs by up to {pre_misses:.1g}, and {follows[PRE]} norm "
        "follows.": post_misses < 0.01 < pre_misses and pre_has_norm and not post_has_norm,
        f"Without warm-up, pre-norm [learns|does not learn] as well as with it: {reached[PRE, False]:.1%} against "
        f"{reached[PRE, True]:.1%} right.": reached[PRE, False] >= reached[PRE, True] - 0.05,
        f"Post-norm [learns less|does not learn less] without warm-up: {reached[POST, False]:.1%} right without it, "
        f"{reached[POST, True]:.1%} with it.": reached[POST, False] < reached[POST, True] - 0.05,
        f"Pre-norm is [more stable|not more stable] than post-norm: in its worst run it gets {worst[PRE]:.1%} right, "
        f"post-norm {worst[POST]:.1%}.": worst[PRE] > worst[POST] + 0.05,
    }


@experiment(
    "The norm before or after the layer",
    "section 3.1; Xiong et al. 2020",
    "With the norm before each layer (pre-norm), training is more stable and needs no warm-up; with the norm after it, "
    "as in the paper, gradients are large near the output. Only with pre-norm does a stack need a norm at its end.",
)
def run(effort: Effort) -> Findings:
    """Measure gradients at the start, and train models with each norm, with and without warm-up."""
    each_start = {kind: [gradients_at_start(kind, seed) for seed in effort.seeds] for kind in (POST, PRE)}
    encoder, decoder = (
        {
            kind: [mean(v) for v in zip(*(start[side] for start in starts), strict=True)]
            for kind, starts in each_start.items()
        }
        for side in (0, 1)
    )
    ends = {kind: deviation_at_end(kind, effort.seeds[0]) for kind in (POST, PRE)}
    steps = effort.scale(STEPS)
    warmup = max(1, round(WARMUP * steps))
    runs = {
        (kind, warm): [
            learn(
                make_model(kind, TRAINED, s),
                TASK,
                steps=steps,
                seed=s,
                batch=PAIRS,
                rate=warm_up(PEAK, warmup if warm else 1),
            )
            for s in effort.seeds
        ]
        for kind in (POST, PRE)
        for warm in (True, False)
    }
    rows = {key: mean_and_extremes([learned.accuracy for learned in each]) for key, each in runs.items()}
    return Findings(
        f"Gradients: {LAYERS} + {LAYERS} untrained layers of d_model {CONFIG.d_model}, one batch of 64 pairs. "
        f"Learning: copying 1 to 8 words with {TRAINED.encoder_layers} + {TRAINED.decoder_layers} layers of d_model "
        f"{TRAINED.d_model}, {steps} steps of {PAIRS} pairs at a rate of {PEAK}, reached at once or after a warm-up of "
        f"{warmup} steps; {effort}.",
        claims(encoder, decoder, ends, {key: row[0] for key, row in rows.items()}),
        {
            "Norm of the gradient of the second feed-forward matrix at the start": Table(
                " | ".join(["layer", *(f"{side}, {kind}" for side in ("encoder", "decoder") for kind in (POST, PRE))]),
                [(i, *row) for i, row in enumerate(zip(*encoder.values(), *decoder.values(), strict=True), start=1)],
            ),
            "After the last encoder layer, at the start": Table(
                "norm | standard deviations miss 1 by up to | a norm follows",
                [(kind, *end) for kind, end in ends.items()],
            ),
            "Learning to copy": Table(
                "norm | warm-up | accuracy | lowest seed | highest seed", [(*key, *row) for key, row in rows.items()]
            ),
        },
        {
            "gradients": Figure(
                "Gradients of the second feed-forward matrices at the start, by layer, in encoder and decoder.",
                lines(
                    layer_panel("gradient, encoder", encoder),
                    layer_panel("gradient, decoder", decoder),
                    sharey=True,
                    legend="above",
                ),
            ),
            "losses": losses_figure(
                {f"{kind}, warm-up {'on' if warm else 'off'}": each for (kind, warm), each in runs.items()}
            ),
        },
    )
