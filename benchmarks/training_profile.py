"""Measure what a training step consists of: its matmuls, the rate of matmuls alone, and where the time goes.

`python -m benchmarks.training_profile FOLDER` prints it of our own batches of the task in FOLDER, as JSON.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.dragoman_trainer import our_step, planned_batches
from benchmarks.peers.task import TrainingTask
from dragoman.data.batches import Batch
from dragoman.data.tokenizer import PAD
from dragoman.inspection.cost import cost
from dragoman.model.transformer import Transformer
from dragoman.runtime.device import wide_products

TRIAL = 3e10  # operations per measurement of a matmul, which is repeated 3 to 50 times
COUNTED, TIMED = 50, 3  # batches whose operations are counted; batches whose time is shared out


def operations_per_update(model: Transformer, batch: Batch) -> float:
    """Return the multiplications and additions in the matmuls of one update on `batch`, padding not counted.

    A multiplication and the addition after it count as two. The backward pass has twice as many as the forward pass. Of
    attention, only the pairs of a query and a key that it may attend to are counted.
    """
    sources, targets = (batch.source != PAD).sum(1).double(), batch.real.sum(1).double()
    per_token, width = cost(model), 4 * model.config.d_model  # scores and weighted values: 2 matmuls of d_model each
    linear = per_token.source_flops * sources.sum() + per_token.target_flops * targets.sum()
    encoder = model.config.encoder_layers * width * (sources * sources).sum()
    causal = width * (targets * (targets + 1) / 2).sum()
    across = width * (targets * sources).sum()
    return 3 * float(linear + encoder + model.config.decoder_layers * (causal + across))


@wide_products()
def matmul_rate(model: nn.Module, tokens: int, dtype: torch.dtype) -> float:
    """Return the operations per second of a model's matmuls alone, forward and backward, on its device.

    The model only gives the shapes; its inputs are random matrices of `tokens` rows in `dtype`. Each shape of matrix is
    timed several times, and its fastest time counts as often as the model has the shape.
    """
    device = next(model.parameters()).device
    timed = time_on_gpu if device.type == "cuda" else time_on_cpu
    shapes = Counter(tuple(m.weight.shape) for m in model.modules() if isinstance(m, nn.Linear))
    done = seconds = 0.0
    for (wide, deep), count in shapes.items():
        sizes = ((tokens, deep), (wide, deep), (tokens, wide))
        x, weight, gradient = (torch.randn(size, device=device, dtype=dtype) for size in sizes)
        for left, right in ((x, weight.T), (gradient, weight), (gradient.T, x)):
            work = 2 * tokens * wide * deep
            trials = min(max(3, int(TRIAL / work)), 50)
            done += count * work
            seconds += count * min(timed(torch.mm, left, right) for _ in range(trials))
    return done / seconds


def time_on_cpu(work: Callable[..., Tensor], *arguments: Tensor) -> float:
    """Call `work` once, and return the wall-clock seconds that it took. Does not wait for a GPU."""
    began = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - began


def time_on_gpu(work: Callable[..., Tensor], *arguments: Tensor) -> float:
    """Call `work` once, and return the seconds that the GPU took."""
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    work(*arguments)
    ended.record()
    ended.synchronize()
    return began.elapsed_time(ended) / 1000


# PyTorch's operations by purpose. An operation counts for the first part that has a word of its name.
PARTS = {
    "optimizer": ("_fused_adam", "linalg_vector_norm", "_foreach", "aten::zero_"),
    "attention, softmax": ("scaled_dot_product", "aten::bmm", "aten::_softmax", "aten::masked_fill"),
    "rest of the loss": ("log_softmax", "aten::exp", "aten::gather", "aten::scatter", "aten::sum"),
    "matmuls": ("aten::mm", "aten::addmm", "linear"),
    "dropout": ("aten::random_", "aten::ge", "aten::mul"),
    "norms": ("layer_norm",),
    "copies": ("copy", "aten::fill_", "aten::index_select", "_Place", "_Pick"),
}
OTHER = "other"


def time_shares(step: Callable[[], object]) -> dict[str, float]:
    """Return which share of a step's processor time each of PARTS takes, and OTHER for the rest; they add up to 1.

    On a GPU, it is the time of the GPU, without pauses. Calls `step` twice: once to warm up, once with PyTorch's
    profiler.
    """
    step()
    on_gpu = torch.cuda.is_initialized()
    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * on_gpu]) as recorded:
        step()
    seconds = dict.fromkeys([*PARTS, OTHER], 0.0)
    for event in recorded.key_averages():
        part = next((part for part, words in PARTS.items() if any(word in event.key for word in words)), OTHER)
        seconds[part] += event.self_device_time_total if on_gpu else event.self_cpu_time_total
    total = sum(seconds.values())
    return {part: time / total for part, time in seconds.items()}


def profile_task(task: TrainingTask) -> dict[str, object]:
    """Return what our training on `task` consists of, as JSON can hold it.

    `operations`: multiplications and additions of matmuls per target token; `rate`: the most of them per second that
    matmuls alone reach; `parts`: what `time_shares` returns. All are in the precision of the task.
    """
    model, step = our_step(task)
    batches = list(islice(planned_batches(task), COUNTED))
    tokens = sum(batch.tokens for batch in batches)
    return {
        "operations": sum(operations_per_update(model, batch) for batch in batches) / tokens,
        "rate": matmul_rate(model, tokens // len(batches), getattr(torch, task.precision)),
        "parts": time_shares(lambda: [step(batch) for batch in batches[:TIMED]]),
    }


if __name__ == "__main__":
    print(json.dumps(profile_task(TrainingTask.read(Path(sys.argv[1])))))
