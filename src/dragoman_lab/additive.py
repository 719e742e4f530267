"""Additive against dot-product attention (section 3.2.1): time, memory, and learning by d_k."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Literal

import torch
from torch import Tensor, nn

from dragoman.config import AttentionConfig
from dragoman.model.attention import Additive, Kernel, explicit_attention, fused_attention
from dragoman.model.transformer import Transformer
from dragoman_lab.drawing import LOSS, Panel, lines, mean_and_range
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.reversal_setup import CLEARLY, MAX_WORDS, PAIRS, RATE, TASK, WARMUP, last, rate, transformer
from dragoman_lab.tasks import learn

BATCH, HEADS, LENGTH, SIZE = 2, 4, 64, 64  # of the kernels that are measured, where they do not vary
LENGTHS, WIDTHS = (16, 32, 64, 128), (16, 64, 256)
BYTES = 4  # in a number

DOT, FUSED, ADDITIVE = "dot product", "dot product, fused", "additive"

# What each keeps for the backward pass, beside queries, keys and values: the weights, and the hidden layer.
KEPT: dict[str, Callable[[int, int], int]] = {
    DOT: lambda length, d_k: BYTES * BATCH * HEADS * length * length,
    ADDITIVE: lambda length, d_k: BYTES * BATCH * HEADS * length * length * (d_k + 1),
}

SMALL, LARGE = 8, 256  # d_k of the models that learn
SIZES = (SMALL, 64, LARGE)
SCALED, UNSCALED = "dot product, scaled", "dot product, unscaled"


def make_learner(d_k: int, seed: int, score: Literal["dot", "unscaled", "additive"]) -> Transformer:
    """Return a fresh Transformer with one head of d_k and values of size 64, to be trained on reversing; `seed` draws
    its weights.
    """
    return transformer(AttentionConfig(heads=1, d_k=d_k, d_v=64, score=score), seed)


SCORES: dict[str, Callable[[int, int], Transformer]] = {
    SCALED: partial(make_learner, score="dot"),
    UNSCALED: partial(make_learner, score="unscaled"),
    ADDITIVE: partial(make_learner, score="additive"),
}


def make_kernels(d_k: int) -> dict[str, Kernel]:
    """Return the attention kernels that are compared, by name. The weights of the additive one are drawn with seed 0,
    which sets the global seed of PyTorch.
    """
    torch.manual_seed(0)
    return {DOT: explicit_attention, FUSED: fused_attention, ADDITIVE: Additive(HEADS, d_k)}


def random_inputs(length: int, d_k: int) -> list[Tensor]:
    """Return random query, key and value (seed 0), (BATCH, HEADS, length, d_k) each, that require gradients."""
    random = torch.Generator().manual_seed(0)
    return [torch.randn(BATCH, HEADS, length, d_k, generator=random).requires_grad_() for _ in range(3)]


def cpu_seconds(kernel: Kernel, length: int, d_k: int, repeats: int) -> float:
    """Return the CPU seconds of a forward and a backward pass on random input: the fastest of `repeats`, after a first
    one that is not counted.
    """
    query, key, value = random_inputs(length, d_k)
    times = []
    for _ in range(1 + repeats):
        began = time.process_time()
        kernel(query, key, value, None, 0.0).sum().backward()
        times.append(time.process_time() - began)
    return min(times[1:])


def kept_bytes(kernel: Kernel, length: int, d_k: int) -> int:
    """Return the bytes that autograd keeps for the backward pass on random input, without the input, the kernel's own
    weights and the output.
    """
    query, key, value = random_inputs(length, d_k)
    known = [query, key, value, *(kernel.parameters() if isinstance(kernel, nn.Module) else ())]
    inputs_at = {tensor.untyped_storage().data_ptr() for tensor in known}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in inputs_at:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = kernel(query, key, value, None, 0.0)
    kept.pop(output.untyped_storage().data_ptr(), None)  # every kernel has an output
    return sum(kept.values())


@dataclass(frozen=True)
class Cost:
    """Describe what one forward and backward pass of a kernel costs, at one length and d_k."""

    kernel: str
    length: int
    d_k: int
    seconds: float
    kept: int  # bytes


def measure_costs(repeats: int) -> list[Cost]:
    """Measure each kernel at every length of LENGTHS with d_k = SIZE, and at every other d_k of WIDTHS with LENGTH
    words: CPU seconds (the fastest of `repeats`) and bytes kept for the backward pass.
    """
    shapes = [(length, SIZE) for length in LENGTHS] + [(LENGTH, d_k) for d_k in WIDTHS if d_k != SIZE]
    return [
        Cost(name, length, d_k, cpu_seconds(kernel, length, d_k, repeats), kept_bytes(kernel, length, d_k))
        for length, d_k in shapes
        for name, kernel in make_kernels(d_k).items()
    ]


@dataclass(frozen=True)
class Trial:
    """Describe how a model with one kind of score and one d_k learned with one seed."""

    score: str
    d_k: int
    seed: int
    loss: float  # nats per token, at the end
    accuracy: float


def run_trial(score: str, d_k: int, seed: int, steps: int) -> Trial:
    """Train a model with a kind of score (a key of SCORES) on reversing; return its last loss and its accuracy."""
    learned = learn(SCORES[score](d_k, seed), TASK, steps=steps, seed=seed, rate=rate, batch=PAIRS)
    return Trial(score, d_k, seed, last(learned.losses), learned.accuracy)


def claims(dot: Cost, additive: Cost, loss: dict[str, dict[int, float]]) -> Claims:
    """Return each claim and whether it holds. dot, additive: costs at the same length and d_k; loss: at the end, by
    score and d_k.
    """
    ms = {cost.kernel: 1000 * cost.seconds for cost in (dot, additive)}
    ratio = additive.seconds / dot.seconds
    kept = {cost.kernel: cost.kept / 2**20 for cost in (dot, additive)}
    return {
        f"Additive attention [is slower|is not clearly slower]: {ms[ADDITIVE]:.3g} ms against {ms[DOT]:.3g} ms of CPU "
        f"time for 128 words at d_k = 64, both written as plain formulas ({ratio:.1f} times).": ratio > 1.5,
        f"It [stores|does not store] more for the backward pass: {kept[ADDITIVE]:.1f} MiB against {kept[DOT]:.1f} MiB. "
        "For each pair of words it has a hidden layer of d_k numbers in addition to the "
        "weight.": kept[ADDITIVE] > 1.5 * kept[DOT],
        "At d_k = 256 additive attention [learns|does not learn] clearly better than the unscaled dot product: "
        f"{loss[ADDITIVE][256]:.3f} against {loss[UNSCALED][256]:.3f} nats per token (at d_k = 8: "
        f"{loss[ADDITIVE][8]:.3f} against "
        f"{loss[UNSCALED][8]:.3f}).": loss[ADDITIVE][LARGE] < loss[UNSCALED][LARGE] - CLEARLY,
        "Compared with the scaled dot product, additive attention [has no clear|still has an] advantage at d_k = 256 "
        f"after these steps: {loss[ADDITIVE][256]:.3f} against {loss[SCALED][256]:.3f} nats per "
        "token.": loss[SCALED][LARGE] < loss[ADDITIVE][LARGE] + CLEARLY,
    }


@experiment(
    "Additive against dot-product attention",
    "section 3.2.1",
    "A dot product is faster and takes less memory than additive attention, whose score is a small network; as "
    "d_k grows, additive attention is better than the dot product without scaling.",
)
def run(effort: Effort) -> Findings:
    """Measure time and memory of both kinds of attention, and train models with each at several d_k."""
    repeats, steps = effort.scale(20), effort.scale(640)
    measured = measure_costs(repeats)
    trials = [run_trial(score, d_k, seed, steps) for d_k in SIZES for score in SCORES for seed in effort.seeds]
    losses = {s: {d: [t.loss for t in trials if (t.score, t.d_k) == (s, d)] for d in SIZES} for s in SCORES}
    largest = {cost.kernel: cost for cost in measured if (cost.length, cost.d_k) == (LENGTHS[-1], SIZE)}
    formulas = [KEPT[c.kernel](c.length, c.d_k) if c.kernel in KEPT else "" for c in measured]
    timed = Table(
        "kernel | words | d_k | CPU time (ms) | kept by the formula (bytes) | kept, measured (bytes)",
        [
            (c.kernel, c.length, c.d_k, 1000 * c.seconds, formula, c.kept)
            for c, formula in zip(measured, formulas, strict=True)
        ],
    )
    by_words = replace(timed, rows=[row for row in timed.rows if row[2] == SIZE])
    by_size = replace(timed, rows=sorted((row for row in timed.rows if row[1] == LENGTH), key=lambda row: row[2]))
    panels = [
        Panel(table.curves("kernel", x, y), x, y, log="xy", ticks=sorted(set(table.column(x))))
        for y in ("CPU time (ms)", "kept, measured (bytes)")
        for table, x in ((by_words, "words"), (by_size, "d_k"))
    ]
    learned = {s: mean_and_range(SIZES, list(zip(*by_size.values(), strict=True))) for s, by_size in losses.items()}
    return Findings(
        f"Kernels alone: {BATCH} sentences, {HEADS} heads, forward and backward, on {torch.get_num_threads()} "
        f"thread(s), CPU time of the fastest of {repeats}; memory is what is stored for the backward pass, not "
        f"counting queries, keys and values. Learning: {TASK.name} 2 to {MAX_WORDS} words, one layer and one head on "
        "each side, d_model 64, values of size 64, queries and keys that start with variance 1, the same batches and "
        f"learning rate for all ({RATE:g} after {WARMUP} steps of warm-up); {steps} steps of {PAIRS} pairs, {effort}.",
        claims(
            largest[DOT],
            largest[ADDITIVE],
            {s: {d: fmean(by_size[d]) for d in by_size} for s, by_size in losses.items()},
        ),
        {
            "Time and memory of one layer's kernel": timed,
            "Learning by d_k: the loss of the last tenth of the steps, and accuracy on unseen pairs": Table(
                "score | d_k | seed | loss (nats per token) | accuracy", [tuple(vars(t).values()) for t in trials]
            ),
        },
        {
            "cost-of-additive-attention": Figure(
                f"CPU time and memory, forward and backward, by the number of words (d_k = {SIZE}) and by d_k "
                f"({LENGTH} words).",
                lines(*panels, rows=2, sharey="row"),
                (9.0, 6.0),
            ),
            "additive-learning-by-size": Figure(
                "Training loss at the end by the size of queries and keys: mean over seeds; bars from lowest to "
                "highest.",
                lines(Panel(learned, "d_k", f"{LOSS} at the end", log="x", ticks=SIZES, ylim=(0, None))),
            ),
        },
    )
