"""Stacks of layers with and without x + f(x): what is left of words and gradients, and what is learned."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.data.batches import source_batch
from dragoman.model import Model
from dragoman.model.packing import Packing
from dragoman.model.transformer import EncoderLayer, Residual, TokenContext, Transformer
from dragoman_lab.drawing import layer_panel, lines, losses_figure
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.layers import layer_outputs
from dragoman_lab.tasks import Learned, Pair, copying, learn, loss_and_hits, mean_and_extremes, small

WITH, WITHOUT = "x + f(x)", "f(x)"
BARE_WITH, BARE_WITHOUT = "x + f(x), no norm", "f(x), no norm"
DEEP = 12
DEPTHS = (1, DEEP)
STEPS, PAIRS = 640, 48
CONFIG = replace(small(32, layers=DEEP, decoder_layers=1), norm_first=True)
TASK = copying(vocabulary=20, shortest=1, longest=8)


class NoResidual(Residual):
    """Wrap a sublayer as `Residual` does, with norm and dropout, but without the `x +`."""

    def forward(self, x: Tensor, sublayer: Any) -> Tensor:
        """Return the sublayer's output for x, with the norm before or after it."""
        if self.norm_first:
            return self.dropout(sublayer(self.norm(x)))
        return self.norm(self.dropout(sublayer(x)))


def without_residuals(model: Transformer) -> Transformer:
    """Replace x + f(x) by f(x) in the layers of the encoder, in place; return the model."""
    for layer in model.encoder:
        assert isinstance(layer, EncoderLayer)
        layer.around_attention, layer.around_feed_forward = NoResidual(model.config), NoResidual(model.config)
    return model


def without_norms(model: Transformer) -> Transformer:
    """Take the layer norms out of the encoder, in place; return the model."""
    model.encoder_norm = nn.Identity()
    for module in model.encoder.modules():
        if isinstance(module, Residual):
            module.add_module("norm", nn.Identity())
    return model


KINDS: dict[str, Callable[[Transformer], Transformer]] = {
    WITH: lambda model: model,
    WITHOUT: without_residuals,
    BARE_WITH: without_norms,
    BARE_WITHOUT: lambda model: without_norms(without_residuals(model)),
}


def make_model(kind: str, depth: int, seed: int) -> Transformer:
    """Return a model with `depth` encoder layers, with or without residuals and norms (a key of KINDS); all kinds begin
    with the same weights.
    """
    torch.manual_seed(seed)
    return KINDS[kind](Transformer(replace(CONFIG, encoder_layers=depth), TASK.vocabulary))


def learned_difference(base: float, wanted: float, rate: float = 0.1, close: float = 1e-3) -> tuple[float, int]:
    """Learn a number f by gradient descent from 0, until base + f is within `close` of `wanted`; return f and the
    number of steps. rate: the learning rate.
    """
    f, steps = 0.0, 0
    while abs(base + f - wanted) > close:
        f -= rate * (base + f - wanted)  # the slope of half the squared error
        steps += 1
    return f, steps


def gradient_norms(model: Model, pairs: Sequence[Pair], matrices: Sequence[Tensor]) -> list[float]:
    """Return the norms of the gradients of `matrices`, weights of `model`, for one batch of pairs."""
    return [float(slope.norm()) for slope in torch.autograd.grad(loss_and_hits(model, pairs)[0], matrices)]


def feed_forward_matrices(layers: Iterable[Any]) -> list[Tensor]:
    """Return the second matrix of the feed-forward network of each layer."""
    return [layer.feed_forward.out.weight for layer in layers]


def query_matrices(layers: Iterable[Any]) -> list[Tensor]:
    """Return the query matrix of the self-attention of each layer."""
    return [layer.attention.query.weight for layer in layers]


@torch.no_grad()
def cosines_and_changes(model: Transformer, words: list[int]) -> tuple[list[float], list[float]]:
    """Encode one sentence of `words`, all different; return the mean cosine of two tokens after each encoder layer, and
    by which share of its norm each layer but the first changes its input.
    """
    with layer_outputs(model) as outputs:
        model.start(source_batch([words]))
    rows = outputs.encoder[:, 0]
    cosines = F.cosine_similarity(rows[:, :, None], rows[:, None], dim=-1)
    off = ~torch.eye(rows.size(1), dtype=torch.bool)
    changed = (rows[1:] - rows[:-1]).norm(dim=(1, 2)) / rows[:-1].norm(dim=(1, 2))
    return [float(layer[off].mean()) for layer in cosines], changed.tolist()


def change_when_silent(kind: str) -> float:
    """Return the largest absolute change of a random vector by two encoder layers of a kind (a key of KINDS) whose last
    matrices are all 0.
    """
    torch.manual_seed(1)
    model, x, packing = make_model(kind, 2, seed=1), torch.randn(4, CONFIG.d_model), Packing.full(torch.zeros(1, 4))
    y = x
    for layer in model.encoder:
        assert isinstance(layer, EncoderLayer)
        for matrix in (layer.attention.out, layer.feed_forward.out):
            nn.init.zeros_(matrix.weight)
        y = layer(y, TokenContext(packing))
    return float((y - x).abs().max().detach())


def claims(
    silent: dict[str, float],  # change by layers whose f is 0
    bare: dict[str, list[float]],  # gradients of feed-forward networks by layer, at the start, for all KINDS
    queries: dict[str, list[float]],  # and of query matrices, WITH and WITHOUT
    cosine: dict[str, float],  # of two words after the last layer
    reached: dict[tuple[str, int], float],  # accuracy by kind and depth
    changes: list[float],  # |f| / |x| by layer, after training
) -> Claims:
    """Return each claim and whether it holds."""
    half = len(changes) // 2
    lower_change, upper_change = mean(changes[:half]), mean(changes[half:])
    lowest = {kind: norms[0] for kind, norms in bare.items()}
    upper = {kind: mean(norms[DEEP // 2 :]) for kind, norms in queries.items()}
    deep = {kind: reached[kind, DEEP] for kind in (WITH, WITHOUT)}
    shallow = {kind: reached[kind, 1] for kind in (WITH, WITHOUT)}
    return {
        f"Layers whose f is 0 [return their input|change their input by {silent[WITH]:.2g}]: without the residual they "
        f"change it by {silent[WITHOUT]:.2g}.": silent[WITH] == 0 < silent[WITHOUT],
        "Without layer norms, the feed-forward network in the lowest of 12 layers starts with a gradient of "
        f"{lowest[BARE_WITH]:.2g} with residuals and {lowest[BARE_WITHOUT]:.2g} without them: without norms and "
        "residuals the gradient is [lost|not lost] on the way.": lowest[BARE_WITHOUT] < 0.1 * lowest[BARE_WITH],
        f"With layer norms, that network starts with a gradient of {lowest[WITH]:.2g} with residuals and "
        f"{lowest[WITHOUT]:.2g} without them: with norms and without residuals the gradient is [lost|not lost] on the "
        "way.": lowest[WITHOUT] < 0.1 * lowest[WITH],
        f"With layer norms, the query matrices of the upper 6 layers start with a mean gradient of {upper[WITH]:.2g} "
        f"with residuals and {upper[WITHOUT]:.2g} without them: without residuals, attention [cannot|can still] learn "
        "what to attend to.": upper[WITHOUT] < 0.1 * upper[WITH],
        f"After 12 layers two different words have a cosine of {cosine[WITH]:.3f} with residuals and "
        f"{cosine[WITHOUT]:.3f} without: [what told them apart is gone|they can be told apart equally "
        "well].": cosine[WITHOUT] > cosine[WITH] + 0.2,
        f"12 layers learn to copy with residuals ({deep[WITH]:.1%} right) [but not|and just as well] without them "
        f"({deep[WITHOUT]:.1%}); a single layer reaches {shallow[WITH]:.1%} with and {shallow[WITHOUT]:.1%} "
        "without.": deep[WITH] > deep[WITHOUT] + 0.1,
        f"After training, the lower layers change their input by {lower_change:.2f} of its size, the upper ones by "
        f"{upper_change:.2f}: deeper layers [change|do not change] less.": upper_change < lower_change,
    }


@experiment(
    "With and without residuals",
    "section 3.1",
    "With x + f(x), a layer only learns the difference: 0.4 instead of 10.4 if 10.0 should become 10.4. Deeper layers "
    "change little, information flows through them, and deep stacks can be trained.",
)
def run(effort: Effort) -> Findings:
    """Measure gradients and words in deep stacks with and without residuals, and train them."""
    first, different = effort.seeds[0], list(range(3, 13))
    pairs = TASK.pairs(64, first)
    kinds = (WITH, WITHOUT)
    stacks = {kind: make_model(kind, DEEP, first) for kind in KINDS}
    of_networks = {
        kind: gradient_norms(model, pairs, feed_forward_matrices(model.encoder)) for kind, model in stacks.items()
    }
    of_queries = {kind: gradient_norms(stacks[kind], pairs, query_matrices(stacks[kind].encoder)) for kind in kinds}
    alike = {kind: cosines_and_changes(stacks[kind], different)[0] for kind in kinds}
    runs: dict[tuple[str, int], list[Learned]] = {(kind, depth): [] for depth in DEPTHS for kind in kinds}
    changes: list[list[float]] = []
    for (kind, depth), each in runs.items():
        for seed in effort.seeds:
            model = make_model(kind, depth, seed)
            each.append(learn(model, TASK, steps=effort.scale(STEPS), seed=seed, batch=PAIRS))
            if (kind, depth) == (WITH, DEEP):
                changes.append(cosines_and_changes(model, different)[1])
    rows = {key: mean_and_extremes([learned.accuracy for learned in each]) for key, each in runs.items()}
    changed = [mean(values) for values in zip(*changes, strict=True)]
    (with_residual, quick_steps), (without, steps) = learned_difference(10.0, 10.4), learned_difference(0.0, 10.4)
    return Findings(
        f"The encoder of a Transformer (d_model {CONFIG.d_model}, pre-norm, {DEEP} layers or {DEPTHS[0]}, one decoder "
        f"layer that keeps its residuals) learns to copy 1 to 8 words in {effort.scale(STEPS)} steps of {PAIRS} pairs, "
        f"{effort}; models with and without residuals start with the same weights.",
        claims(
            {kind: change_when_silent(kind) for kind in kinds},
            of_networks,
            of_queries,
            {kind: cosines[-1] for kind, cosines in alike.items()},
            {key: row[0] for key, row in rows.items()},
            changed,
        ),
        {
            "From 10.0 to 10.4 by gradient descent": Table(
                "layer | learned f | steps until the error is 0.001",
                [(WITH, with_residual, quick_steps), (WITHOUT, without, steps)],
            ),
            f"{DEEP} layers as drawn at the start: norms of gradients of networks": Table(
                " | ".join(["layer", *of_networks]),
                [(i, *row) for i, row in enumerate(zip(*of_networks.values(), strict=True), start=1)],
            ),
            f"{DEEP} layers as drawn at the start: gradients of query matrices, and cosines of two words": Table(
                " | ".join(["layer", *(f"gradient, {kind}" for kind in kinds), *(f"cosine, {kind}" for kind in kinds)]),
                [(i, *row) for i, row in enumerate(zip(*of_queries.values(), *alike.values(), strict=True), start=1)],
            ),
            "Learning to copy": Table(
                "layer | layers | accuracy | lowest seed | highest seed", [(*key, *row) for key, row in rows.items()]
            ),
            f"After training with {WITH}: change by each layer": Table(
                "layer | |f| / |x|", [*enumerate(changed, start=2)]
            ),
        },
        {
            "gradients": Figure(
                f"{DEEP} layers at the start: gradients of the second feed-forward matrix and of the queries.",
                lines(
                    layer_panel("gradient, networks", of_networks), layer_panel("queries", of_queries), legend="above"
                ),
            ),
            "words": Figure(
                "How alike two different words are after each layer, at the start. At 1, nothing tells them apart.",
                lines(layer_panel("mean cosine of two words", alike, log=""), legend="above"),
            ),
            "losses": losses_figure(
                {f"{kind}, {depth} layer{'s' * (depth > 1)}": each for (kind, depth), each in runs.items()}
            ),
        },
    )
