"""Learning with and without the division by sqrt(d_k), everything else equal."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, Literal

import torch

from dragoman.config import AttentionConfig
from dragoman.data.batches import Batch
from dragoman.lab.drawing import draw_learning
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.reversal_setup import CLEARLY, LONGEST, PAIRS, RATE, TASK, WARMUP, last, rate, transformer
from dragoman.lab.tasks import Learned, judged, learn
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.capture import AttentionCapture
from dragoman.model.transformer import Transformer

SMALL, LARGE = 8, 512  # d_k
SCORES: dict[str, Literal["dot", "unscaled"]] = {"scaled": "dot", "unscaled": "unscaled"}


@dataclass(frozen=True)
class Start:
    """A fresh model on one batch."""

    largest: float  # weight of a query, mean over queries and layers
    gradient: float  # norm of the gradient of all query and key matrices


def at_start(model: Transformer) -> Start:
    pairs = TASK.pairs(PAIRS, 0)
    capture = AttentionCapture(model)
    judged(capture.model, pairs)[0].backward()
    batch = Batch.of(*map(list, zip(*pairs, strict=True)))
    real = {"encoder": batch.source != model.pad, "decoder": batch.real, "cross": batch.real}
    largest = torch.cat([w.amax(-1)[:, 0][real[kind]] for kind, layers in capture.weights.items() for w in layers])
    gradients = [
        matrix.weight.grad.norm()
        for layer in model.modules()
        if isinstance(layer, MultiHeadAttention)
        for matrix in (layer.query, layer.key)
        if matrix.weight.grad is not None
    ]
    model.zero_grad()
    return Start(float(largest.mean()), float(torch.stack(gradients).norm()))


@dataclass(frozen=True)
class Trial:
    d_k: int
    scores: str
    seed: int
    start: Start
    learned: Learned

    @property
    def last(self) -> float:
        return last(self.learned.losses)


def trial(d_k: int, scores: str, seed: int, steps: int) -> Trial:
    model = transformer(AttentionConfig(heads=1, d_k=d_k, d_v=64, score=SCORES[scores]), seed)
    return Trial(d_k, scores, seed, at_start(model), learn(model, TASK, steps=steps, seed=seed, rate=rate, batch=PAIRS))


def run(effort: Effort) -> Findings:
    steps = effort.of(1200)
    trials = [trial(d_k, scores, seed, steps) for d_k in (SMALL, LARGE) for scores in SCORES for seed in effort.seeds]
    ends = {scores: fmean(t.last for t in of(trials, LARGE, scores)) for scores in SCORES}
    first = fmean(t.learned.losses[0] for t in of(trials, LARGE, "unscaled"))
    return Findings(
        f"Task: {TASK.name} 2 to {LONGEST} words. Transformers of one layer and one head on each side, d_model 64, "
        f"queries and keys of size {SMALL} or {LARGE} that begin with variance 1. With and without the division they "
        f"start from the same weights and see the same batches of {PAIRS} pairs at the same learning rate ({RATE:g} "
        f"after {WARMUP} steps of warm-up); {steps} steps, seeds {effort.seeds}.",
        (
            judge_loss(ends["scaled"], ends["unscaled"], LARGE),
            judge_standstill(first, ends["unscaled"], LARGE),
            judge_start(of(trials, LARGE, "scaled"), of(trials, LARGE, "unscaled"), LARGE),
        ),
        (trials_table(trials),),
        (
            Figure(
                "loss-with-and-without-scaling",
                "Training loss by step, mean over 20 steps and over seeds, with and without the division by sqrt(d_k); "
                "on the left small queries and keys, on the right large ones.",
                partial(draw_losses, trials=trials),
                (9.0, 3.6),
            ),
        ),
    )


def of(trials: Sequence[Trial], d_k: int, scores: str) -> list[Trial]:
    return [trial for trial in trials if (trial.d_k, trial.scores) == (d_k, scores)]


# What follows from the numbers.


def judge_loss(scaled: float, unscaled: float, d_k: int) -> Verdict:
    """Losses at the end."""
    seen = scaled < unscaled - CLEARLY
    return Verdict(
        seen,
        f"At d_k = {d_k} the model with the division {'reaches' if seen else 'does not reach'} a clearly lower loss "
        f"after the same steps: {scaled:.3f} nats per token against {unscaled:.3f} without.",
    )


def judge_standstill(first: float, end: float, d_k: int) -> Verdict:
    seen = end > 0.9 * first
    return Verdict(
        seen,
        f"Without the division training at d_k = {d_k} {'makes hardly any' if seen else 'still makes'} progress: its "
        f"loss goes from {first:.2f} to {end:.2f} nats per token.",
    )


def judge_start(scaled: Sequence[Trial], unscaled: Sequence[Trial], d_k: int) -> Verdict:
    one, other = (fmean(t.start.largest for t in trials) for trials in (scaled, unscaled))
    slope, steep = (fmean(t.start.gradient for t in trials) for trials in (scaled, unscaled))
    seen = other > 0.9 > one
    return Verdict(
        seen,
        f"Before the first step a query of size {d_k} gives its favourite key {one:.2f} with the division and "
        f"{other:.2f} without: the softmax {'is' if seen else 'is not'} saturated only without it. The gradient of the "
        f"query and key matrices has norm {slope:.2g} and {steep:.2g}.",
    )


# Table and figure.


def trials_table(trials: Sequence[Trial]) -> Table:
    columns = "largest weight at start", "gradient of W^Q, W^K at start", "first loss", "last loss", "accuracy"
    return Table(
        "Each run: losses in nats per token, the last one over the last tenth of the steps",
        ("d_k", "scores", "seed", *columns),
        tuple(
            (t.d_k, t.scores, t.seed, t.start.largest, t.start.gradient, t.learned.losses[0], t.last,
             t.learned.accuracy)
            for t in trials
        ),
    )  # fmt: skip


def draw_losses(figure: Any, trials: Sequence[Trial]) -> None:
    grid = figure.subplots(1, 2, sharey=True)
    for axes, d_k in zip(grid, (SMALL, LARGE), strict=True):
        draw_learning(axes, {name: [t.learned.losses for t in of(trials, d_k, name)] for name in SCORES})
        axes.set_title(f"d_k = {d_k}", fontsize=10)
    grid[0].legend(frameon=False)


EXPERIMENT = Experiment(
    title="Learning without the division",
    source="note 000; section 3.2.1",
    claim="With a large d_k and no scaling, training often does not get anywhere, because the gradient of the "
    "saturated softmax vanishes.",
    run=run,
)
