"""Additive against dot-product attention (section 3.2.1): time, memory, and learning by d_k.

Shapes: B batch, H heads, T queries, S keys, K = d_k.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dragoman.config import AttentionConfig
from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.reversal_setup import CLEARLY, LONGEST, PAIRS, RATE, TASK, WARMUP, last, rate, transformer
from dragoman.lab.tasks import learn
from dragoman.model.attention import Additive, Kernel, explicit, fused
from dragoman.model.transformer import Transformer

BATCH, HEADS, LENGTH, SIZE = 2, 4, 64, 64  # of the kernels that are measured, where they do not vary
LENGTHS, WIDTHS = (16, 32, 64, 128), (16, 64, 256)
BYTES = 4  # of a number

DOT, FUSED, ADDITIVE = "dot product", "dot product, fused", "additive"

# What each keeps for the way back, beside queries, keys and values: the weights, and the hidden layer.
KEPT: dict[str, Callable[[int, int], int]] = {
    DOT: lambda length, d_k: BYTES * BATCH * HEADS * length * length,
    ADDITIVE: lambda length, d_k: BYTES * BATCH * HEADS * length * length * (d_k + 1),
}

SMALL, LARGE = 8, 256  # d_k of the models that learn
SIZES = (SMALL, 64, LARGE)
SCALED, UNSCALED = "dot product, scaled", "dot product, unscaled"


def learner(d_k: int, seed: int, score: Literal["dot", "unscaled", "additive"]) -> Transformer:
    return transformer(AttentionConfig(heads=1, d_k=d_k, d_v=64, score=score), seed)


SCORES: dict[str, Callable[[int, int], Transformer]] = {
    SCALED: partial(learner, score="dot"),
    UNSCALED: partial(learner, score="unscaled"),
    ADDITIVE: partial(learner, score="additive"),
}


def kernels(d_k: int) -> dict[str, Kernel]:
    torch.manual_seed(0)
    return {DOT: explicit, FUSED: fused, ADDITIVE: Additive(HEADS, d_k)}


def inputs(length: int, d_k: int) -> list[Tensor]:
    """Query, key and value, (B, H, T, K) each, which need gradients."""
    random = torch.Generator().manual_seed(0)
    return [torch.randn(BATCH, HEADS, length, d_k, generator=random).requires_grad_() for _ in range(3)]


def seconds(kernel: Kernel, length: int, d_k: int, repeats: int) -> float:
    """CPU time of one way forward and back, the fastest of some repetitions after a first one."""
    query, key, value = inputs(length, d_k)
    found = []
    for _ in range(1 + repeats):
        began = time.process_time()
        kernel(query, key, value, None, 0.0).sum().backward()
        found.append(time.process_time() - began)
    return min(found[1:])


def kept_bytes(kernel: Kernel, length: int, d_k: int) -> int:
    """Measured: what autograd keeps for the way back, without what it was given."""
    query, key, value = inputs(length, d_k)
    known = [query, key, value, *(kernel.parameters() if isinstance(kernel, nn.Module) else ())]
    known_places = {tensor.untyped_storage().data_ptr() for tensor in known}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known_places:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = kernel(query, key, value, None, 0.0)
    kept.pop(output.untyped_storage().data_ptr(), None)  # every kernel has an output
    return sum(kept.values())


@dataclass(frozen=True)
class Cost:
    kernel: str
    length: int
    d_k: int
    seconds: float
    kept: int  # bytes


def costs(repeats: int) -> list[Cost]:
    """By length at one d_k, and by d_k at one length."""
    places = [(length, SIZE) for length in LENGTHS] + [(LENGTH, d_k) for d_k in WIDTHS if d_k != SIZE]
    return [
        Cost(name, length, d_k, seconds(kernel, length, d_k, repeats), kept_bytes(kernel, length, d_k))
        for length, d_k in places
        for name, kernel in kernels(d_k).items()
    ]


@dataclass(frozen=True)
class Trial:
    score: str
    d_k: int
    seed: int
    loss: float  # nats per token, at the end
    accuracy: float


def trial(score: str, d_k: int, seed: int, steps: int) -> Trial:
    learned = learn(SCORES[score](d_k, seed), TASK, steps=steps, seed=seed, rate=rate, batch=PAIRS)
    return Trial(score, d_k, seed, last(learned.losses), learned.accuracy)


def run(effort: Effort) -> Findings:
    repeats, steps = effort.of(20), effort.of(640)
    found = costs(repeats)
    trials = [trial(score, d_k, seed, steps) for d_k in SIZES for score in SCORES for seed in effort.seeds]
    loss = {(s, d): fmean(t.loss for t in trials if (t.score, t.d_k) == (s, d)) for s in SCORES for d in SIZES}
    at = {cost.kernel: cost for cost in found if (cost.length, cost.d_k) == (LENGTHS[-1], SIZE)}
    return Findings(
        f"Kernels alone: {BATCH} sentences, {HEADS} heads, forward and back, on {torch.get_num_threads()} thread(s), "
        f"CPU time of the fastest of {repeats}; memory is what is kept for the way back, beside queries, keys and "
        f"values. Learning: {TASK.name} 2 to {LONGEST} words, one layer and one head on each side, d_model 64, values "
        "of size 64, queries and keys that begin with variance 1, the same batches and learning rate for all "
        f"({RATE:g} after {WARMUP} steps of warm-up); {steps} steps of {PAIRS} pairs, seeds {effort.seeds}.",
        (
            judge_time(at[DOT].seconds, at[ADDITIVE].seconds, LENGTHS[-1]),
            judge_memory(at[DOT].kept, at[ADDITIVE].kept, LENGTHS[-1]),
            judge_unscaled(loss),
            judge_scaled(loss),
        ),
        (costs_table(found), trials_table(trials)),
        (
            Figure(
                "cost-of-additive-attention",
                "CPU time of one way forward and back, and memory kept for the way back, both on logarithmic axes: by "
                f"the number of words (d_k = {SIZE}) and by d_k ({LENGTH} words).",
                partial(draw_costs, found=found),
                (9.0, 6.0),
            ),
            Figure(
                "additive-learning-by-size",
                "Training loss at the end by the size of queries and keys: mean over seeds, from the lowest to the "
                "highest.",
                partial(draw_trials, trials=trials),
                (6.0, 3.6),
            ),
        ),
    )


# What follows from the numbers.


def judge_time(dot: float, additive: float, length: int) -> Verdict:
    seen = additive > 1.5 * dot
    return Verdict(
        seen,
        f"Additive attention {'is slower' if seen else 'is not clearly slower'}: {1000 * additive:.3g} ms against "
        f"{1000 * dot:.3g} ms of CPU time for {length} words at d_k = {SIZE}, both as plain formulas "
        f"({additive / dot:.1f} times).",
    )


def judge_memory(dot: int, additive: int, length: int) -> Verdict:
    seen = additive > 1.5 * dot
    return Verdict(
        seen,
        f"It {'keeps' if seen else 'does not keep'} more for the way back: {additive / 2**20:.1f} MiB against "
        f"{dot / 2**20:.1f} MiB, a hidden layer of d_k numbers for each pair of words beside the one weight.",
    )


def judge_unscaled(loss: Mapping[tuple[str, int], float]) -> Verdict:
    """Losses by score and d_k."""
    seen = loss[ADDITIVE, LARGE] < loss[UNSCALED, LARGE] - CLEARLY
    return Verdict(
        seen,
        f"At d_k = {LARGE} additive attention {'learns' if seen else 'does not learn'} clearly better than the "
        f"unscaled dot product: {loss[ADDITIVE, LARGE]:.3f} against {loss[UNSCALED, LARGE]:.3f} nats per token (at "
        f"d_k = {SMALL}: {loss[ADDITIVE, SMALL]:.3f} against {loss[UNSCALED, SMALL]:.3f}).",
    )


def judge_scaled(loss: Mapping[tuple[str, int], float]) -> Verdict:
    """The paper's answer: with the division nothing is left of the advantage."""
    seen = loss[SCALED, LARGE] < loss[ADDITIVE, LARGE] + CLEARLY
    return Verdict(
        seen,
        f"Against the scaled dot product additive attention has {'no clear' if seen else 'still an'} advantage at d_k "
        f"= {LARGE}, after these steps: {loss[ADDITIVE, LARGE]:.3f} against {loss[SCALED, LARGE]:.3f} nats per token.",
    )


# Tables and figures.


def costs_table(found: list[Cost]) -> Table:
    rows = [
        (c.kernel, c.length, c.d_k, 1000 * c.seconds, KEPT[c.kernel](c.length, c.d_k) if c.kernel in KEPT else "",
         c.kept)
        for c in found
    ]  # fmt: skip
    columns = ("kernel", "words", "d_k", "CPU time (ms)", "kept by the formula (bytes)", "kept, measured (bytes)")
    return Table("Time and memory of one layer's kernel", columns, tuple(rows))


def trials_table(trials: list[Trial]) -> Table:
    return Table(
        "Learning by d_k: the loss of the last tenth of the steps, and accuracy on unseen pairs",
        ("score", "d_k", "seed", "loss (nats per token)", "accuracy"),
        tuple((t.score, t.d_k, t.seed, t.loss, t.accuracy) for t in trials),
    )


def draw_costs(figure: Any, found: list[Cost]) -> None:
    grid = figure.subplots(2, 2, sharey="row")
    for column, (field, fixed, label) in enumerate(
        (("length", ("d_k", SIZE), "words"), ("d_k", ("length", LENGTH), "d_k"))
    ):
        for row, (what, unit, factor) in enumerate((("seconds", "CPU time (ms)", 1e3), ("kept", "kept (MiB)", 2**-20))):
            axes = grid[row, column]
            for number, name in enumerate((DOT, FUSED, ADDITIVE)):
                rows = [c for c in found if c.kernel == name and getattr(c, fixed[0]) == fixed[1]]
                rows.sort(key=lambda cost: getattr(cost, field))
                axes.plot([getattr(c, field) for c in rows], [factor * getattr(c, what) for c in rows], label=name,
                          **style(number))  # fmt: skip
            values = sorted({getattr(c, field) for c in found})
            axes.set(xscale="log", yscale="log", xlabel=label, ylabel=unit)
            axes.set_xticks(values, map(str, values))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.minorticks_off()
            axes.grid(color="0.9", linewidth=0.6)
    grid[0, 0].legend(frameon=False, fontsize=8)


def draw_trials(figure: Any, trials: list[Trial]) -> None:
    axes = figure.subplots()
    for number, score in enumerate(SCORES):
        runs = [[t.loss for t in trials if (t.score, t.d_k) == (score, d_k)] for d_k in SIZES]
        means = [fmean(losses) for losses in runs]
        ends = [[m - min(r) for m, r in zip(means, runs, strict=True)],
                [max(r) - m for m, r in zip(means, runs, strict=True)]]  # fmt: skip
        axes.errorbar(SIZES, means, ends, capsize=2, label=score, **style(number))
    axes.set(xscale="log", xlabel="d_k", ylabel="loss at the end (nats per token)", ylim=(0, None))
    axes.set_xticks(SIZES, map(str, SIZES))
    axes.minorticks_off()
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(frameon=False)


EXPERIMENT = Experiment(
    title="Additive against dot-product attention",
    source="note 003; section 3.2.1",
    claim="A dot product is faster and takes less memory than additive attention, whose score is a small network; as "
    "d_k grows, additive attention is better than the dot product without scaling.",
    run=run,
)
