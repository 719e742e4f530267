"""Self-attention within a radius: each word looks at those near it, and far words are reached through layers.

Shapes: B sentences, H heads, n places, K d_k, V d_v, M d_model.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.data.tokenizer import SPECIAL
from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.model.attention import Kernel, fused, masked_softmax, unrotated
from dragoman.model.packing import Packing
from dragoman.model.transformer import EncoderLayer, Transformer
from dragoman.training.optimizer import adam

PLACES, WORDS, BATCH = 16, 20, 32  # of a sentence of the toy; of its vocabulary, special ones included; sentences
RADII = (1, 2, 4, PLACES)
DISTANCES = (1, 4)  # the near task and the far one
RATE = 6e-3
CONFIG = TransformerConfig(
    d_model=32,
    encoder_layers=2,
    decoder_layers=0,
    attention=AttentionConfig(heads=2),
    feed_forward=FeedForwardConfig(d_ff=64),
    dropout=0.0,
    positions="relative",
    norm_first=True,
)
CHAIN = 17  # places of the sentence whose ends are to meet
CHANCE = 1 / (WORDS - len(SPECIAL))


def band(places: int, radius: int) -> Tensor:
    """(n, n), True where a query may look: at keys no further than `radius` from its own place."""
    place = torch.arange(places)
    return (place[:, None] - place).abs() <= radius


def within(radius: int, kernel: Kernel = fused) -> Kernel:
    """`kernel` over the keys within `radius` of each query. Queries and keys are the same places."""

    def near(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        allowed = band(query.size(-2), radius)
        if mask is not None:
            allowed = mask & allowed if mask.dtype == torch.bool else torch.where(allowed, mask, -math.inf)
        return kernel(query, key, value, allowed, dropout)

    return near


def restrict(model: Transformer, radius: int) -> Transformer:
    """Let the encoder of `model` look no further than `radius`, in place."""
    for layer in model.modules():
        if isinstance(layer, EncoderLayer):
            layer.attention.kernel = within(radius, layer.attention.kernel)
    return model


def neighbours(query: Tensor, key: Tensor, value: Tensor, radius: int) -> Tensor:
    """What `within(radius)` gives, without computing any score that it would not use: (2 radius + 1) n of them.

    query and key (B, n, K), value (B, n, V) -> (B, n, V).
    """
    places, width = query.size(-2), 2 * radius + 1
    keys, values = (F.pad(x, (0, 0, radius, radius)).unfold(-2, width, 1) for x in (key, value))  # B n K width
    scores = (query.unsqueeze(-2) @ keys).squeeze(-2) / math.sqrt(query.size(-1))  # B n width
    place = torch.arange(places)[:, None] + torch.arange(-radius, radius + 1)
    weights = masked_softmax(scores, (place >= 0) & (place < places))
    return (values @ weights.unsqueeze(-1)).squeeze(-1)


def layers_for(places: int, radius: int) -> int:
    """How many layers until the last place can depend on the first."""
    return max(1, math.ceil((places - 1) / radius))


def layers_needed(places: int, radius: int, most: int = 2 * CHAIN) -> int:
    """The same, tried: layers are added until the last output has a gradient on the first input."""
    torch.manual_seed(0)
    layer, packing = EncoderLayer(CONFIG), Packing.full(torch.zeros(1, places))
    layer.attention.kernel = within(radius)
    x = start = torch.randn(places, CONFIG.d_model, requires_grad=True)
    for count in range(1, most + 1):
        x = layer(x, packing, None, unrotated)
        (gradient,) = torch.autograd.grad((x[-1] * torch.randn(x.size(1))).sum(), start, retain_graph=True)
        if bool(gradient[0].abs().sum() > 0):
            return count
    raise ValueError(f"{most} layers do not reach over {places} places")


def learned(radius: int, distance: int, steps: int, seed: int) -> float:
    """How often an encoder is right that was trained to name, at each place, the word `distance` places before it."""
    torch.manual_seed(seed)
    model = restrict(Transformer(CONFIG, WORDS), radius)
    optimizer, random = adam(model), np.random.default_rng(seed)
    for group in optimizer.param_groups:
        group["lr"] = RATE
    for step in range(steps + 1):
        ids = torch.from_numpy(random.integers(len(SPECIAL), WORDS, (BATCH, PLACES)))
        logits = model.output(model.start(ids).memory).unflatten(0, ids.shape)[:, distance:]
        labels = ids[:, :-distance]
        if step == steps:  # the last sentences are for judging
            return float((logits.argmax(-1) == labels).double().mean())
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    raise AssertionError


@dataclass(frozen=True)
class Trial:
    radius: int
    distance: int
    accuracies: tuple[float, ...]  # by seed

    @property
    def reach(self) -> int:
        """How far word from word can be so that one may depend on the other."""
        return CONFIG.encoder_layers * self.radius

    @property
    def mean(self) -> float:
        return float(np.mean(self.accuracies))


def judge(trials: list[Trial]) -> Verdict:
    """Most answers within reach are right, those out of reach are guessed."""
    inside = min(trial.mean for trial in trials if trial.reach >= trial.distance)
    outside = max(trial.mean for trial in trials if trial.reach < trial.distance)
    seen = inside > 0.5 and outside < 2 * CHANCE
    return Verdict(
        seen,
        f"Where {CONFIG.encoder_layers} layers reach the word, at least {inside:.1%} of the answers are right; where "
        f"they do not, at most {outside:.1%} ({CHANCE:.1%} is guessing): a small radius is "
        + ("enough for what is near, and blind for what is far." if seen else "not what decides here."),
    )


def run(effort: Effort) -> Findings:
    steps = effort.of(800)
    trials = [
        Trial(radius, distance, tuple(learned(radius, distance, steps, seed) for seed in effort.seeds))
        for distance in DISTANCES
        for radius in RADII
    ]
    torch.manual_seed(effort.seeds[0])
    query, key, value = torch.randn(3, 4, CHAIN, 16).unbind(0)
    full = fused(query, key, value)
    gaps = {radius: float((within(radius)(query, key, value, None, 0.0) - full).abs().max()) for radius in range(1, 21)}
    equal = max(gap for radius, gap in gaps.items() if radius >= CHAIN - 1)
    smallest = min(gap for radius, gap in gaps.items() if radius < CHAIN - 1)
    paths = [(radius, layers_for(CHAIN, radius), layers_needed(CHAIN, radius)) for radius in (1, 2, 3, 4, 8, 16, 20)]
    agree = all(expected == needed for _, expected, needed in paths)
    return Findings(
        setting=f"An encoder of {CONFIG.encoder_layers} layers, d_model {CONFIG.d_model}, with learned scores of "
        f"distances, names at each of {PLACES} places the word 1 or {DISTANCES[1]} places before; {steps} steps of "
        f"{BATCH} fresh sentences, Adam at {RATE}, seeds {', '.join(map(str, effort.seeds))}. The radius comes from "
        "outside: the kernel of each layer is replaced by one with a band as its mask.",
        verdicts=(
            Verdict(
                equal < 1e-6 < smallest,
                f"A radius that covers the sentence changes the output by at most {equal:.1g}, "
                f"every smaller one by at least {smallest:.1g}.",
            ),
            Verdict(
                agree,
                f"Over {CHAIN} places the ends meet after (n - 1) / r layers, rounded up: "
                + ", ".join(f"{needed} at r = {radius}" for radius, _, needed in paths)
                + ("." if agree else "; that is not what the formula says."),
            ),
            judge(trials),
        ),
        tables=(
            Table(
                "Accuracy by radius",
                ("distance", "radius", "reach of the layers", "accuracy", "standard deviation", "scores per sentence"),
                tuple(
                    (
                        t.distance,
                        t.radius,
                        t.reach,
                        t.mean,
                        float(np.std(t.accuracies)),
                        int(band(PLACES, t.radius).sum()),
                    )
                    for t in trials
                ),
            ),
            Table(f"Layers until the ends of {CHAIN} places meet", ("radius", "(n - 1) / r", "tried"), tuple(paths)),
            Table("Difference from full attention", ("radius", "largest difference"), tuple(gaps.items())),
        ),
        figures=(
            Figure(
                "bands", "Which key (across) a query (down) may look at, by radius; dark: yes.", draw_bands, (8, 2.6)
            ),
            Figure(
                "accuracy",
                "Right answers by radius, for a word that is near and one that is far; the mean of all seeds, bars "
                "from the lowest to the highest. The dotted line is guessing.",
                lambda figure: draw_accuracy(figure, trials),
            ),
        ),
    )


def draw_bands(figure: Any) -> None:
    for axes, radius in zip(figure.subplots(1, len(RADII)), RADII, strict=True):
        axes.imshow(band(PLACES, radius).numpy(), cmap="Blues", vmin=0, vmax=1)
        axes.set_title(f"r = {radius}" + (" (full)" if radius >= PLACES - 1 else ""), fontsize=10)
        axes.set_xlabel("key", fontsize=9)
        axes.tick_params(labelsize=8)
    figure.axes[0].set_ylabel("query", fontsize=9)


def draw_accuracy(figure: Any, trials: list[Trial]) -> None:
    axes = figure.subplots()
    for index, distance in enumerate(DISTANCES):
        mine = [trial for trial in trials if trial.distance == distance]
        means = [trial.mean for trial in mine]
        spread = [
            [mean - min(trial.accuracies) for mean, trial in zip(means, mine, strict=True)],
            [max(trial.accuracies) - mean for mean, trial in zip(means, mine, strict=True)],
        ]
        label = f"{distance} place{'s' if distance > 1 else ''} before"
        axes.errorbar(range(len(mine)), means, spread, label=label, capsize=3, **style(index))
    axes.axhline(CHANCE, color="0.4", linestyle=":", linewidth=1)
    axes.set_xticks(range(len(RADII)), [f"{radius}" if radius < PLACES - 1 else "full" for radius in RADII])
    axes.set_xlabel("radius (places)")
    axes.set_ylabel("right answers (share)")
    axes.set_ylim(0, 1.05)
    axes.legend(frameon=False)


EXPERIMENT = Experiment(
    title="Self-attention within r neighbours",
    source="the paper, section 4 and Table 1, last row",
    claim="Self-attention may be restricted to a neighbourhood of size r around each place: a layer then costs "
    "O(r n d) instead of O(n^2 d), and the longest path between two words grows from O(1) to O(n / r).",
    run=run,
)
