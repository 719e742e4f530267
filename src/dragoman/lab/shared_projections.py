"""One matrix for query, key and value, or one for each.

Shapes: N words, M size of a vector.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.data.tokenizer import SPECIAL
from dragoman.inspection.cost import cost
from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.tasks import Learned, learn, reversing
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.packing import Packing
from dragoman.model.transformer import Transformer
from dragoman.training.optimizer import adam

WORDS, PLACES = 30, 12  # of the vocabulary, special ones included; of a sentence whose words name the one before
STEPS, BATCH, RATE, WINDOW = 1600, 32, 3e-3, 20
CONFIG = TransformerConfig(
    d_model=32,
    encoder_layers=1,
    decoder_layers=1,
    attention=AttentionConfig(heads=1),
    feed_forward=FeedForwardConfig(d_ff=64),
    dropout=0.0,
    norm_first=True,
)

# Which projections are the query's own matrix.
SEPARATE, PAIR, ONE = "three matrices", "W^Q = W^K", "one matrix"
SHARED: dict[str, tuple[str, ...]] = {SEPARATE: (), PAIR: ("key",), ONE: ("key", "value")}


def share(model: nn.Module, names: tuple[str, ...]) -> None:
    """Let the projections of these names be the query's, in every attention layer: the same matrix, not a copy."""
    for layer in model.modules():
        if isinstance(layer, MultiHeadAttention):
            for name in names:
                setattr(layer, name, layer.query)


def learn_reversing(model: Transformer, steps: int, seed: int) -> Learned:
    """Sentences of up to 10 words, from their end to their beginning."""
    return learn(model, reversing(WORDS), steps=steps, seed=seed, rate=lambda step: RATE, batch=BATCH)


def learn_before(model: Transformer, steps: int, seed: int) -> Learned:
    """The encoder names at each place, from the second on, the word before it."""
    optimizer, random, losses = adam(model), np.random.default_rng(seed), []
    for group in optimizer.param_groups:
        group["lr"] = RATE

    def judged(sentences: int) -> tuple[Tensor, Tensor]:
        ids = torch.from_numpy(random.integers(len(SPECIAL), WORDS, (sentences, PLACES)))
        logits = model.output(model.start(ids).memory).unflatten(0, ids.shape)[:, 1:].flatten(0, 1)
        labels = ids[:, :-1].flatten()
        return F.cross_entropy(logits, labels), logits.argmax(-1) == labels

    for _ in range(steps):
        loss, _ = judged(BATCH)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return Learned(losses, float(judged(256)[1].double().mean()))


@dataclass(frozen=True)
class Toy:
    name: str
    config: TransformerConfig
    learn: Callable[[Transformer, int, int], Learned]  # model, steps, seed


TOYS = (
    Toy("reverse", CONFIG, learn_reversing),
    Toy("the word before", replace(CONFIG, decoder_layers=0), learn_before),
)


@dataclass(frozen=True)
class Check:
    """What holds of the three projections of one layer."""

    moved: float  # permuted rows of x against permuted rows of Q, K and V: the largest difference
    gradients: dict[str, float]  # norms, by projection


def check(seed: int) -> Check:
    torch.manual_seed(seed)
    layer = MultiHeadAttention(CONFIG.d_model, CONFIG.attention)
    x, order = torch.randn(PLACES, CONFIG.d_model), torch.randperm(PLACES)
    projections = {"W^Q": layer.query, "W^K": layer.key, "W^V": layer.value}
    moved = max((one(x[order]) - one(x)[order]).abs().max().item() for one in projections.values())
    packing = Packing.full(x[None, :, 0])
    layer(x, packing, layer.project(x, packing), None).square().sum().backward()
    norms = {name: float(one.weight.grad.norm()) for name, one in projections.items() if one.weight.grad is not None}
    return Check(moved, norms)


def measure(toy: Toy, names: tuple[str, ...], seed: int, steps: int) -> tuple[int, Learned]:
    """The parameters of a model that shares projections, and how it learns."""
    torch.manual_seed(seed)
    model = Transformer(toy.config, WORDS)
    share(model, names)
    return cost(model).parameters, toy.learn(model, steps, seed)


def last(learned: Learned) -> float:
    """The mean loss of the last steps; no batch comes twice, so these sentences were unseen."""
    return mean(learned.losses[-WINDOW:])


def judge(losses: dict[tuple[str, str], list[float]], found: Check) -> tuple[Verdict, ...]:
    """losses: of the last steps, by toy and sharing, one per seed."""
    verdicts = []
    for toy in TOYS:
        three, pair, one = (losses[toy.name, way] for way in SHARED)
        better = max(three) < 0.9 * min(one)
        verdicts.append(
            Verdict(
                better,
                f"Task '{toy.name}': with three matrices the loss ends at {mean(three):.3f} nats per token, with "
                f"W^Q = W^K at {mean(pair):.3f}, with one for all three at {mean(one):.3f}: "
                + ("three learn clearly better than one" if better else "three do not learn clearly better than one")
                + (f" in each of {len(three)} seeds." if len(three) > 1 else " here."),
            )
        )
    reached = len(found.gradients) == 3 and min(found.gradients.values()) > 0
    still = found.moved < 1e-5
    return (
        *verdicts,
        Verdict(
            reached,
            "Gradients "
            + ("reach all three matrices" if reached else "do not reach all three matrices")
            + f" ({', '.join(f'{name} {norm:.2g}' for name, norm in found.gradients.items())}).",
        ),
        Verdict(
            still,
            "The matrices are the same at every place: words in another order have their queries, keys and values in "
            + ("that order" if still else "no such order")
            + f" (largest difference {found.moved:.0e}).",
        ),
    )


def run(effort: Effort) -> Findings:
    steps = effort.of(STEPS)
    found = {
        (toy.name, way): [measure(toy, names, seed, steps) for seed in effort.seeds]
        for toy in TOYS
        for way, names in SHARED.items()
    }
    losses = {key: [last(learned) for _, learned in runs] for key, runs in found.items()}
    return Findings(
        f"Two tasks: a Transformer with one layer on each side reverses sentences of up to 10 words; an encoder of one "
        f"layer names at each of {PLACES} places the word before it. One head, d_model {CONFIG.d_model}; {steps} steps "
        f"of {BATCH} fresh sentences, Adam at {RATE:g}, the same for all; all attention layers share alike; seeds: "
        f"{', '.join(map(str, effort.seeds))}. Where matrices are shared a model has fewer parameters. With W^Q = W^K "
        "a word gives another one the same score as it gets from it.",
        judge(losses, check(effort.seeds[0])),
        (
            Table(
                "Learning with shared projections",
                ("task", "projections", "parameters", "last loss (nats per token)", "lowest seed", "highest seed",
                 "accuracy"),
                tuple(
                    (*key, runs[0][0], mean(losses[key]), min(losses[key]), max(losses[key]),
                     mean(learned.accuracy for _, learned in runs))
                    for key, runs in found.items()
                ),
            ),
        ),
        (
            Figure(
                "shared-projections",
                f"The loss while learning, means of {min(WINDOW, steps)} steps; bands reach from the lowest to the "
                "highest seed.",
                partial(draw, found=found),
                (10.0, 4.0),
            ),
        ),
    )  # fmt: skip


def draw(figure: Any, found: dict[tuple[str, str], list[tuple[int, Learned]]]) -> None:
    steps = len(next(iter(found.values()))[0][1].losses)
    for axes, toy in zip(figure.subplots(1, len(TOYS), sharey=True, squeeze=False)[0], TOYS, strict=True):
        for index, way in enumerate(SHARED):
            runs = torch.tensor([learned.losses for _, learned in found[toy.name, way]])
            smooth = runs.unfold(1, min(WINDOW, steps), 1).mean(-1)
            places, look = range(min(WINDOW, steps), steps + 1), style(index)
            axes.plot(places, smooth.mean(0), label=way, markevery=max(1, len(places) // 8), **look)
            axes.fill_between(places, smooth.amin(0), smooth.amax(0), color=look["color"], alpha=0.15, linewidth=0)
        axes.set_title(toy.name, loc="left", fontsize=10)
        axes.set_xlabel("step")
        axes.grid(color="0.9", linewidth=0.6)
    figure.axes[0].set_ylabel("loss (nats per token)")
    figure.axes[0].legend(fontsize=8)


EXPERIMENT = Experiment(
    title="One matrix or three",
    source="notes 000, 001, 002 and 004",
    claim="The inner product has nothing to learn, the matrices before it have; and since query, key and value have "
    "three roles, they need three matrices rather than one. Each is the same for all places.",
    run=run,
)
