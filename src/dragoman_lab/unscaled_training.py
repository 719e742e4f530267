"""Learning with and without the division by sqrt(d_k), everything else equal."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import torch

from dragoman.config import AttentionConfig
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.capture import AttentionCapture
from dragoman.model.transformer import Transformer
from dragoman_lab.drawing import learning_panel, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.reversal_setup import CLEARLY, MAX_WORDS, PAIRS, RATE, TASK, WARMUP, last, rate, transformer
from dragoman_lab.tasks import Learned, learn, loss_and_hits, make_batch

SMALL, LARGE = 8, 512  # d_k
SCORES: dict[str, Literal["dot", "unscaled"]] = {"scaled": "dot", "unscaled": "unscaled"}


@dataclass(frozen=True)
class Start:
    """Describe what was measured on a fresh model with one batch."""

    largest: float  # weight of a query, mean over queries and layers
    gradient: float  # norm of the gradient of all query and key matrices


def measure_start(model: Transformer) -> Start:
    """Measure an untrained model on one batch: the largest attention weight of a query, mean over queries, and the norm
    of the gradient of all query and key matrices. Sets the gradients to None afterwards.
    """
    pairs = TASK.pairs(PAIRS, 0)
    capture = AttentionCapture(model)
    loss_and_hits(capture.model, pairs)[0].backward()
    batch = make_batch(pairs)
    real = {"encoder": batch.source != model.pad, "decoder": batch.real, "cross": batch.real}  # no padding
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
    """Describe how a model with one d_k and one kind of scores learned with one seed."""

    d_k: int
    scores: str
    seed: int
    start: Start
    learned: Learned

    @property
    def last(self) -> float:
        """Return the mean of the last tenth of the losses."""
        return last(self.learned.losses)


def run_trial(d_k: int, scores: str, seed: int, steps: int) -> Trial:
    """Measure a fresh model with one head, and train it on reversing. scores: a key of SCORES."""
    model = transformer(AttentionConfig(heads=1, d_k=d_k, d_v=64, score=SCORES[scores]), seed)
    return Trial(
        d_k, scores, seed, measure_start(model), learn(model, TASK, steps=steps, seed=seed, rate=rate, batch=PAIRS)
    )


def trials_of(trials: Sequence[Trial], d_k: int, scores: str) -> list[Trial]:
    """Return the trials with this d_k and these scores."""
    return [trial for trial in trials if (trial.d_k, trial.scores) == (d_k, scores)]


def claims(trials: Sequence[Trial]) -> Claims:
    """Return each claim and whether it holds, by means over the trials with the large d_k."""
    large = {scores: trials_of(trials, LARGE, scores) for scores in SCORES}
    first = fmean(t.learned.losses[0] for t in large["unscaled"])
    last = {scores: fmean(t.last for t in same) for scores, same in large.items()}
    favourite = {scores: fmean(t.start.largest for t in same) for scores, same in large.items()}
    slope = {scores: fmean(t.start.gradient for t in same) for scores, same in large.items()}
    return {
        "At d_k = 512 the model with the division [reaches|does not reach] a clearly lower loss after the same steps: "
        f"{last['scaled']:.3f} nats per token against {last['unscaled']:.3f} "
        "without.": last["scaled"] < last["unscaled"] - CLEARLY,
        "Without the division, training at d_k = 512 [makes hardly any|still makes] progress: its loss goes from "
        f"{first:.2f} to {last['unscaled']:.2f} nats per token.": last["unscaled"] > 0.9 * first,
        f"Before the first step, a query of size 512 gives its favourite key {favourite['scaled']:.2f} with the "
        f"division and {favourite['unscaled']:.2f} without: [the softmax is saturated only without it|the two do not "
        f"differ as claimed]. The gradient of the query and key matrices has norm {slope['scaled']:.2g} and "
        f"{slope['unscaled']:.2g}.": favourite["unscaled"] > 0.9 > favourite["scaled"],
    }


@experiment(
    "Learning without the division",
    "section 3.2.1",
    "With a large d_k and no scaling, training often gets nowhere, because the gradient of the saturated softmax "
    "vanishes.",
)
def run(effort: Effort) -> Findings:
    """Measure and train models with and without the division by sqrt(d_k), at a small and a large d_k."""
    steps = effort.scale(1200)
    trials = [
        run_trial(d_k, scores, seed, steps) for d_k in (SMALL, LARGE) for scores in SCORES for seed in effort.seeds
    ]
    panels = [
        learning_panel(
            {scores: [t.learned for t in trials_of(trials, d_k, scores)] for scores in SCORES}, f"d_k = {d_k}"
        )
        for d_k in (SMALL, LARGE)
    ]
    return Findings(
        f"Task: {TASK.name} 2 to {MAX_WORDS} words. Transformers of one layer and one head on each side, d_model 64, "
        f"queries and keys of size {SMALL} or {LARGE} that start with variance 1. With and without the division they "
        f"start from the same weights and see the same batches of {PAIRS} pairs at the same learning rate ({RATE:g} "
        f"after {WARMUP} steps of warm-up); {steps} steps, {effort}.",
        claims(trials),
        {
            "Each run: losses in nats per token, the last one over the last tenth of the steps": Table(
                "d_k | scores | seed | largest weight at start | gradient of W^Q, W^K at start | first loss | last "
                "loss | accuracy",
                [
                    (t.d_k, t.scores, t.seed, *vars(t.start).values(), t.learned.losses[0], t.last, t.learned.accuracy)
                    for t in trials
                ],
            )
        },
        {
            "loss-with-and-without-scaling": Figure(
                "Training loss, means over 20 steps and all seeds; small queries on the left, large on the right.",
                lines(*panels, sharey=True),
            )
        },
    )
