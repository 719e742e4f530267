"""Self-attention within a radius: each word looks at those near it, and far words are reached through layers."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.data.tokenizer import SPECIAL
from dragoman.model.attention import Kernel, fused_attention, masked_softmax
from dragoman.model.packing import Packing
from dragoman.model.transformer import EncoderLayer, TokenContext, Transformer
from dragoman_lab.drawing import HeatMap, Panel, heat_maps, lines, mean_and_range
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.tasks import learn_word_before, small

LENGTH, VOCABULARY, BATCH = 16, 20, 32  # words of a sentence; special words included; sentences
RADII = (1, 2, 4, LENGTH)
DISTANCES = (1, 4)  # the near task and the far one
RATE = 6e-3
CONFIG = replace(small(32, layers=2, decoder_layers=0, heads=2), positions="relative", norm_first=True)
CHAIN = 17  # words of the sentence whose ends are to meet
CHANCE = 1 / (VOCABULARY - len(SPECIAL))


def band_mask(length: int, radius: int) -> Tensor:
    """Return a mask (length, length), True where a query may attend: to keys no further than `radius` from itself."""
    position = torch.arange(length)
    return (position[:, None] - position).abs() <= radius


def restricted_kernel(radius: int, kernel: Kernel = fused_attention) -> Kernel:
    """Return `kernel`, confined to the keys within `radius` of each query, beside any mask it is given. Queries and
    keys must be the same positions.
    """

    def near(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        allowed = band_mask(query.size(-2), radius)
        if mask is not None:
            allowed = mask & allowed if mask.dtype == torch.bool else torch.where(allowed, mask, -math.inf)
        return kernel(query, key, value, allowed, dropout)

    return near


def restrict(model: Transformer, radius: int) -> Transformer:
    """Let the encoder of `model` attend no further than `radius`, in place; return the model."""
    for layer in model.modules():
        if isinstance(layer, EncoderLayer):
            layer.attention.kernel = restricted_kernel(radius, layer.attention.kernel)
    return model


def attend_to_neighbours(query: Tensor, key: Tensor, value: Tensor, radius: int) -> Tensor:
    """Return what `restricted_kernel(radius)` gives, computing only the scores that it uses: (2 radius + 1) n of them.

    query and key (B, n, K), value (B, n, V) -> (B, n, V).
    """
    length, width = query.size(-2), 2 * radius + 1
    keys, values = (F.pad(x, (0, 0, radius, radius)).unfold(-2, width, 1) for x in (key, value))  # B n K width
    scores = (query.unsqueeze(-2) @ keys).squeeze(-2) / math.sqrt(query.size(-1))  # B n width
    position = torch.arange(length)[:, None] + torch.arange(-radius, radius + 1)
    weights = masked_softmax(scores, (position >= 0) & (position < length))
    return (values @ weights.unsqueeze(-1)).squeeze(-1)


def layers_by_formula(length: int, radius: int) -> int:
    """Return how many layers it takes, by the formula, until the last of `length` positions can depend on the first; at
    least 1.
    """
    return max(1, math.ceil((length - 1) / radius))


def layers_by_trial(length: int, radius: int, most: int = 2 * CHAIN) -> int:
    """Return how many layers it takes, by trial: they are added until the last of `length` outputs has a gradient by
    the first input. ValueError if `most` layers do not suffice.
    """
    torch.manual_seed(0)
    layer, packing = EncoderLayer(CONFIG), Packing.full(torch.zeros(1, length))
    layer.attention.kernel = restricted_kernel(radius)
    x = start = torch.randn(length, CONFIG.d_model, requires_grad=True)
    for count in range(1, most + 1):
        x = layer(x, TokenContext(packing))
        (gradient,) = torch.autograd.grad((x[-1] * torch.randn(x.size(1))).sum(), start, retain_graph=True)
        if bool(gradient[0].abs().sum() > 0):
            return count
    raise ValueError(f"{most} layers do not reach over {length} positions")


def measure_recall(radius: int, distance: int, steps: int, seed: int) -> float:
    """Train a fresh encoder that looks no further than `radius` to name at each position the word `distance` before it;
    return the share of words, 0 to 1, that it names right.
    """
    torch.manual_seed(seed)
    model = restrict(Transformer(CONFIG, VOCABULARY), radius)
    learned = learn_word_before(model, distance, LENGTH, VOCABULARY, steps=steps, seed=seed, rate=RATE, tested=BATCH)
    return learned.accuracy


@dataclass(frozen=True)
class Trial:
    """Describe how encoders with one radius learned to name the word `distance` before."""

    radius: int
    distance: int
    accuracies: tuple[float, ...]  # by seed

    @property
    def reach(self) -> int:
        """Return how far apart two words can be so that one may depend on the other, through all layers."""
        return CONFIG.encoder_layers * self.radius

    @property
    def scores(self) -> int:
        """Return how many scores one layer needs for a sentence, without those beyond the radius."""
        return int(band_mask(LENGTH, self.radius).sum())

    @property
    def mean(self) -> float:
        """Return the mean accuracy over seeds."""
        return float(np.mean(self.accuracies))


def claims(trials: list[Trial], gaps: dict[int, float], paths: list[tuple[int, int, int]]) -> Claims:
    """Return each claim and whether it holds. gaps: largest differences from full attention, by radius; paths: radius,
    layers by the formula, layers needed.
    """
    equal = max(gap for radius, gap in gaps.items() if radius >= CHAIN - 1)
    smallest = min(gap for radius, gap in gaps.items() if radius < CHAIN - 1)
    agree = all(expected == needed for _, expected, needed in paths)
    needed = ", ".join(f"{needed} at r = {radius}" for radius, _, needed in paths)
    inside = min(trial.mean for trial in trials if trial.reach >= trial.distance)
    outside = max(trial.mean for trial in trials if trial.reach < trial.distance)
    return {
        "A radius that covers the sentence [changes nothing|changes the output]: the difference is at most "
        f"{equal:.1g}; with every smaller radius it is at least {smallest:.1g}.": equal < 1e-6 < smallest,
        "The two ends of a sentence of 17 words [meet|do not meet] after (n - 1) / r layers, rounded up: "
        f"{needed}.": agree,
        f"Where the layers reach the word, at least {inside:.1%} of the answers are right; where they do not, at most "
        f"{outside:.1%} (guessing: {CHANCE:.1%}): a small radius [is enough for near words and blind to distant "
        "ones|is not what decides here].": inside > 0.5 and outside < 2 * CHANCE,
    }


@experiment(
    "Self-attention within r neighbours",
    "section 4 and Table 1, last row",
    "Self-attention may be restricted to a neighbourhood of size r around each position: a layer then costs "
    "O(r n d) instead of O(n^2 d), and the longest path between two words grows from O(1) to O(n / r).",
)
def run(effort: Effort) -> Findings:
    """Compare restricted attention with full attention, and train models with several radii on a near and a
    far task.
    """
    steps = effort.scale(800)
    trials = [
        Trial(radius, distance, tuple(measure_recall(radius, distance, steps, seed) for seed in effort.seeds))
        for distance in DISTANCES
        for radius in RADII
    ]
    torch.manual_seed(effort.seeds[0])
    query, key, value = torch.randn(3, 4, CHAIN, 16).unbind(0)
    full = fused_attention(query, key, value)
    gaps = {
        radius: float((restricted_kernel(radius)(query, key, value, None, 0.0) - full).abs().max())
        for radius in range(1, 21)
    }
    paths = [
        (radius, layers_by_formula(CHAIN, radius), layers_by_trial(CHAIN, radius)) for radius in (1, 2, 3, 4, 8, 16, 20)
    ]
    ticks = {i: str(radius) if radius < LENGTH - 1 else "full" for i, radius in enumerate(RADII)}
    bands = [HeatMap(band_mask(LENGTH, r).int(), f"r = {ticks[i]}", x="key", y="query") for i, r in enumerate(RADII)]
    # By distance: (seeds, radii).
    accuracies = {d: np.transpose([t.accuracies for t in trials if t.distance == d]) for d in DISTANCES}
    accuracy = {f"{d} word{'s' * (d > 1)} before": mean_and_range(list(ticks), each) for d, each in accuracies.items()}
    return Findings(
        f"An encoder of {CONFIG.encoder_layers} layers, d_model {CONFIG.d_model}, with learned scores of distances, "
        f"has to name, at each of {LENGTH} positions, the word 1 or {DISTANCES[1]} positions before; {steps} steps of "
        f"{BATCH} fresh sentences, Adam at {RATE}, {effort}. The radius is imposed from outside: the kernel of each "
        "layer is replaced by one whose mask is a band.",
        claims(trials, gaps, paths),
        {
            "Accuracy by radius": Table(
                "distance | radius | reach of the layers | accuracy | standard deviation | scores per sentence",
                [(t.distance, t.radius, t.reach, t.mean, float(np.std(t.accuracies)), t.scores) for t in trials],
            ),
            f"Layers until the ends of {CHAIN} places meet": Table("radius | (n - 1) / r | tried", paths),
            "Difference from full attention": Table("radius | largest difference", [*gaps.items()]),
        },
        {
            "bands": Figure(
                "Which keys (columns) a query (row) may attend to, by radius; dark: yes.", heat_maps(*bands), (8, 2.6)
            ),
            "accuracy": Figure(
                "Right answers by radius: mean of all seeds, bars from the lowest to the highest. Dotted: guessing.",
                lines(Panel(accuracy, "radius", "right answers (share)", ticks=ticks, ylim=(0, 1.05), level=CHANCE)),
            ),
        },
    )
