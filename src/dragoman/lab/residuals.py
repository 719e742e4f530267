"""Stacks of layers with and without x + f(x): what is left of words and gradients, and what is learned.

Shapes: L layers, B sentences, S source tokens, M d_model.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.data.batches import source_batch
from dragoman.inspection.layers import layer_outputs
from dragoman.lab.drawing import draw_layers, losses_figure
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.tasks import Learned, Pair, copying, judged, learn, summary
from dragoman.model import Model
from dragoman.model.attention import unrotated
from dragoman.model.packing import Packing
from dragoman.model.transformer import EncoderLayer, Residual, Transformer

WITH, WITHOUT = "x + f(x)", "f(x)"
BARE_WITH, BARE_WITHOUT = "x + f(x), no norm", "f(x), no norm"
DEEP = 12
DEPTHS = (1, DEEP)
STEPS, PAIRS = 640, 48
CONFIG = TransformerConfig(
    d_model=32,
    encoder_layers=DEEP,
    decoder_layers=1,
    attention=AttentionConfig(heads=4),
    feed_forward=FeedForwardConfig(d_ff=64),
    dropout=0.0,
    norm_first=True,
)
TASK = copying(vocabulary=20, shortest=1, longest=8)


class NoResidual(Residual):
    """What stands around a sub-layer, without the `x +`."""

    def forward(self, x: Tensor, sublayer: Any) -> Tensor:
        if self.norm_first:
            return self.dropout(sublayer(self.norm(x)))
        return self.norm(self.dropout(sublayer(x)))


def without_residuals(model: Transformer) -> Transformer:
    """The same model, but its encoder's layers are f(x); the decoder is left as it is."""
    for layer in model.encoder:
        assert isinstance(layer, EncoderLayer)
        layer.around_attention, layer.around_feed_forward = NoResidual(model.config), NoResidual(model.config)
    return model


def without_norms(model: Transformer) -> Transformer:
    """The same model, without the layer norms of its encoder."""
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


def make(kind: str, depth: int, seed: int) -> Transformer:
    """A model with so many encoder layers; all kinds begin with the same weights."""
    torch.manual_seed(seed)
    return KINDS[kind](Transformer(replace(CONFIG, encoder_layers=depth), TASK.vocabulary))


def learned_difference(base: float, wanted: float, rate: float = 0.1, close: float = 1e-3) -> tuple[float, int]:
    """What f has learned, by gradient descent from 0, so that base + f is `wanted`; and in how many steps."""
    f, steps = 0.0, 0
    while abs(base + f - wanted) > close:
        f -= rate * (base + f - wanted)  # the slope of half the squared error
        steps += 1
    return f, steps


def gradients(model: Model, pairs: Sequence[Pair], matrices: Sequence[Tensor]) -> list[float]:
    """The norms of the gradients of some matrices of `model`, for one batch."""
    return [float(slope.norm()) for slope in torch.autograd.grad(judged(model, pairs)[0], matrices)]


def networks(layers: Iterable[Any]) -> list[Tensor]:
    """The second matrix of the feed-forward network of each layer."""
    return [layer.feed_forward.out.weight for layer in layers]


def queries(layers: Iterable[Any]) -> list[Tensor]:
    """The query matrix of each layer."""
    return [layer.attention.query.weight for layer in layers]


@torch.no_grad()
def through_layers(model: Transformer, words: list[int]) -> tuple[list[float], list[float]]:
    """After each encoder layer: how alike its tokens are (mean cosine of two), and how much it changed them, |f| / |x|.

    words: all different.
    """
    with layer_outputs(model) as outputs:
        model.start(source_batch([words]))
    rows = outputs.encoder[:, 0]
    cosines = F.cosine_similarity(rows[:, :, None], rows[:, None], dim=-1)
    off = ~torch.eye(rows.size(1), dtype=torch.bool)
    changed = (rows[1:] - rows[:-1]).norm(dim=(1, 2)) / rows[:-1].norm(dim=(1, 2))
    return [float(layer[off].mean()) for layer in cosines], changed.tolist()


def judge_identity(kept: float, silent: float) -> Verdict:
    """kept, silent: the largest change by layers whose f is 0, with and without a residual."""
    seen = kept == 0 < silent
    return Verdict(
        seen,
        f"Layers whose f is 0 {'put out what they take in' if kept == 0 else f'change their input by {kept:.2g}'}; "
        f"without the residual they change it by {silent:.2g}.",
    )


def judge_difference(with_residual: float, without: float) -> Verdict:
    seen = abs(with_residual - 0.4) < 0.01 and abs(without - 10.4) < 0.01
    return Verdict(
        seen,
        f"To make 10.4 of 10.0, the layer learns {with_residual:.1f} beside a residual and {without:.1f} without one.",
    )


def judge_gradients(norms: str, with_residual: list[float], without: list[float]) -> Verdict:
    """Gradients of networks from the bottom, as drawn at the start. norms: "With" or "Without"."""
    lost = without[0] < 0.1 * with_residual[0]
    return Verdict(
        lost,
        f"{norms} layer norms, the network of the lowest of {len(without)} layers begins with a gradient of "
        f"{with_residual[0]:.2g} where there are residuals and of {without[0]:.2g} where there are none: it is "
        f"{'lost' if lost else 'not lost'} on the way.",
    )


def judge_queries(with_residual: list[float], without: list[float]) -> Verdict:
    """Gradients of query matrices from the bottom, as drawn at the start, with layer norms."""
    half = len(without) // 2
    kept, left = mean(with_residual[half:]), mean(without[half:])
    seen = left < 0.1 * kept
    return Verdict(
        seen,
        f"With layer norms, the query matrices of the upper {len(without) - half} layers begin with a mean gradient of "
        f"{kept:.2g} with residuals and of {left:.2g} without them: attention {'cannot' if seen else 'can still'} "
        "learn whom to look at.",
    )


def judge_words(with_residual: float, without: float) -> Verdict:
    """The mean cosine of two different words after the last layer, as drawn at the start."""
    seen = without > with_residual + 0.2
    return Verdict(
        seen,
        f"After {DEEP} layers two different words have a cosine of {with_residual:.3f} with residuals and of "
        f"{without:.3f} without them: {'what tells them apart is gone' if seen else 'they are told apart as well'}.",
    )


def judge_learning(reached: Mapping[tuple[str, int], float]) -> Verdict:
    """reached: accuracy by kind and depth."""
    deep, plain, shallow = reached[WITH, DEEP], reached[WITHOUT, DEEP], reached[WITHOUT, DEPTHS[0]]
    seen = deep > plain + 0.1
    return Verdict(
        seen,
        f"{DEEP} layers learn to copy with residuals ({deep:.1%} right) {'and not so' if seen else 'and as well'} "
        f"without them ({plain:.1%}); a single layer reaches {reached[WITH, DEPTHS[0]]:.1%} with and {shallow:.1%} "
        "without.",
    )


def judge_little(changes: list[float]) -> Verdict:
    """changes: |f| / |x| of the second layer and of those after it, after training."""
    lower, upper = mean(changes[: len(changes) // 2]), mean(changes[len(changes) // 2 :])
    seen = upper < lower
    return Verdict(
        seen,
        f"After training, the lower layers change their input by {lower:.2f} of its size, the upper ones by "
        f"{upper:.2f}: {'deeper layers change less' if seen else 'deeper layers do not change less'}.",
    )


def change_when_silent(kind: str) -> float:
    """The largest change of a vector by two layers all of whose last matrices are 0."""
    torch.manual_seed(1)
    model, x, packing = make(kind, 2, seed=1), torch.randn(4, CONFIG.d_model), Packing.full(torch.zeros(1, 4))
    y = x
    for layer in model.encoder:
        assert isinstance(layer, EncoderLayer)
        for matrix in (layer.attention.out, layer.feed_forward.out):
            nn.init.zeros_(matrix.weight)
        y = layer(y, packing, None, unrotated)
    return float((y - x).abs().max().detach())


def run(effort: Effort) -> Findings:
    first, different = effort.seeds[0], list(range(3, 13))
    pairs = TASK.pairs(64, first)
    kinds = (WITH, WITHOUT)
    stacks = {kind: make(kind, DEEP, first) for kind in KINDS}
    by_layer = {kind: gradients(model, pairs, networks(model.encoder)) for kind, model in stacks.items()}
    of_queries = {kind: gradients(stacks[kind], pairs, queries(stacks[kind].encoder)) for kind in kinds}
    alike = {kind: through_layers(stacks[kind], different)[0] for kind in kinds}
    runs: dict[tuple[str, int], list[Learned]] = {(kind, depth): [] for depth in DEPTHS for kind in kinds}
    changes: list[list[float]] = []
    for (kind, depth), each in runs.items():
        for seed in effort.seeds:
            model = make(kind, depth, seed)
            each.append(learn(model, TASK, steps=effort.of(STEPS), seed=seed, batch=PAIRS))
            if (kind, depth) == (WITH, DEEP):
                changes.append(through_layers(model, different)[1])
    rows = {key: summary([learned.accuracy for learned in each]) for key, each in runs.items()}
    changed = [mean(values) for values in zip(*changes, strict=True)]
    (with_residual, quick_steps), (without, steps) = learned_difference(10.0, 10.4), learned_difference(0.0, 10.4)
    return Findings(
        setting=f"The encoder of a Transformer (d_model {CONFIG.d_model}, pre-norm, {DEEP} layers or {DEPTHS[0]}, one "
        f"decoder layer that keeps its residuals) learns to copy 1 to 8 words in {effort.of(STEPS)} steps of {PAIRS} "
        f"pairs, seeds {', '.join(map(str, effort.seeds))}; both kinds begin with the same weights.",
        verdicts=(
            judge_identity(change_when_silent(WITH), change_when_silent(WITHOUT)),
            judge_difference(with_residual, without),
            judge_gradients("Without", by_layer[BARE_WITH], by_layer[BARE_WITHOUT]),
            judge_gradients("With", by_layer[WITH], by_layer[WITHOUT]),
            judge_queries(of_queries[WITH], of_queries[WITHOUT]),
            judge_words(alike[WITH][-1], alike[WITHOUT][-1]),
            judge_learning({key: row[0] for key, row in rows.items()}),
            judge_little(changed),
        ),
        tables=(
            Table(
                "From 10.0 to 10.4 by gradient descent",
                ("layer", "learned f", "steps until the error is 0.001"),
                ((WITH, with_residual, quick_steps), (WITHOUT, without, steps)),
            ),
            Table(
                f"{DEEP} layers as drawn at the start: norms of gradients of networks",
                ("layer", *by_layer),
                tuple((i, *row) for i, row in enumerate(zip(*by_layer.values(), strict=True), start=1)),
            ),
            Table(
                f"{DEEP} layers as drawn at the start: gradients of query matrices, and cosines of two words",
                ("layer", *(f"gradient, {kind}" for kind in of_queries), *(f"cosine, {kind}" for kind in alike)),
                tuple(
                    (i, *row) for i, row in enumerate(zip(*of_queries.values(), *alike.values(), strict=True), start=1)
                ),
            ),
            Table(
                "Learning to copy",
                ("layer", "layers", "accuracy", "lowest seed", "highest seed"),
                tuple((kind, depth, *row) for (kind, depth), row in rows.items()),
            ),
            Table(
                f"After training with {WITH}: change by each layer",
                ("layer", "|f| / |x|"),
                tuple(enumerate(changed, start=2)),
            ),
        ),
        figures=(
            Figure(
                "gradients",
                f"{DEEP} layers as drawn at the start: norm of the gradient of the second feed-forward matrix (left, "
                "four kinds of stack) and of the query matrix (right, the two with layer norms), by layer.",
                lambda figure: draw_layers(
                    figure, {"gradient of the network": by_layer, "gradient of the queries": of_queries}, True
                ),
                (9.0, 4.2),
            ),
            Figure(
                "words",
                "How alike two different words have become after each layer, as drawn at the start. At 1 nothing tells "
                "them apart.",
                lambda figure: draw_layers(figure, {"mean cosine of two words": alike}),
                (7.0, 4.0),
            ),
            losses_figure({f"{kind}, {depth} layer{'s' * (depth > 1)}": each for (kind, depth), each in runs.items()}),
        ),
    )


EXPERIMENT = Experiment(
    title="With and without residuals",
    source="notes 001 (Add & Norm) and 004 (Add & Norm); section 3.1",
    claim="With x + f(x) a layer learns the difference only: 0.4 instead of 10.4 where 10.0 should become 10.4. Deeper "
    "layers change little, information flows on, and deep stacks can be trained.",
    run=run,
)
