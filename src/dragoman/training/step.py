"""One update: the way forward, the way back, and Adam.

A batch is worked off in parts, which the processes share. Which part is whose changes no result: dropout depends on the
number of the part, and gradients are added up after the way back. PyTorch's DistributedDataParallel adds them up during
the way back; there a process that runs out of memory in between leaves the others waiting for ever.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils.checkpoint import checkpoint

from dragoman.config import TrainingConfig
from dragoman.data.batches import Batch
from dragoman.errors import DragomanError, UsageError
from dragoman.model import Model, build
from dragoman.model.recurrent import Recurrent
from dragoman.model.transformer import Cache, Transformer
from dragoman.training.distributed import ProcessGroup
from dragoman.training.loss import output_loss
from dragoman.training.optimizer import adam

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
FIRST_SCALE, LARGEST_SCALE, SCALE_UP_AFTER = 2.0**14, 2.0**20, 1000  # float16: keeps small gradients above zero


def best_precision(device: torch.device) -> str:
    """bfloat16 where the processor multiplies it faster than float32."""
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    can: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return "bfloat16" if can.get("avx512_bf16") or can.get("amx_bf16") else "float32"


class Objective(nn.Module):
    """What training makes small: the loss of a model on a batch, summed over its target tokens."""

    def __init__(self, model: Model, smoothing: float):
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: Batch) -> Tensor:
        state: Any = self.model.start(batch.source)
        vectors = self.model.vectors(batch.target, state, batch.real)
        output = self.model.output
        return output_loss(vectors, output.weight, output.bias, batch.labels[batch.real], self.smoothing)


class LocalStats(NamedTuple):
    """What one process found on its parts of a batch."""

    losses: list[float]  # summed over target tokens, one for each part
    tokens: int
    failed: bool  # it ran out of memory
    stop: bool  # it was asked to stop


@dataclass
class GlobalStats:
    """What all processes found on one batch, before the weights change."""

    loss: float
    tokens: int
    norm: float  # of the gradient
    failed: bool
    stop: bool


class GradientSync(Protocol):
    """How weights and gradients lie on the processes."""

    every_part: bool  # all processes must go through the same number of parts

    def done(self) -> None:
        """A part has been worked off."""

    def totals(self, own: LocalStats, parts: int) -> GlobalStats:
        """Add up gradients and figures of all processes, for a batch of `parts` parts."""

    def scale(self, factor: float) -> None:
        """Multiply the gradient."""

    def clear(self) -> None:
        """Forget the gradient."""


class DataParallel:
    """Every process holds the whole model; the gradient is one long vector, of which each parameter sees its piece.

    With `ordered`, the gradient of each part is kept apart and all are added in the order of the parts, so that the sum
    has the same bits on any number of processes.
    """

    every_part = False

    def __init__(self, model: Model, ranks: ProcessGroup, ordered: bool = False):
        self.ranks, self.ordered = ranks, ordered
        parameters = list(model.parameters())
        sizes = [parameter.numel() for parameter in parameters]
        # At the end: loss, tokens, failures, requests to stop.
        self.all = torch.zeros(sum(sizes) + 4, dtype=parameters[0].dtype, device=parameters[0].device)
        self.gradient, self.figures = self.all[:-4], self.all[-4:]
        for parameter, piece in zip(parameters, self.gradient.split(sizes), strict=True):
            parameter.grad = piece.view_as(parameter)
        self.parts: list[Tensor] = []

    def done(self) -> None:
        if self.ordered:
            self.parts.append(self.gradient.clone())
            self.gradient.zero_()

    def totals(self, own: LocalStats, parts: int) -> GlobalStats:
        if self.ordered:
            return self.ordered_totals(own, parts)
        for place, value in enumerate((sum(own.losses), *own[1:])):
            self.figures[place] = value
        self.ranks.sum(self.all)
        loss, tokens, failures, stops = self.figures.tolist()
        return GlobalStats(loss, int(tokens), float(self.gradient.norm()), failures > 0, stops > 0)

    def ordered_totals(self, own: LocalStats, parts: int) -> GlobalStats:
        self.add_in_order(parts)
        losses, tokens, failures, stops = zip(*self.ranks.gather(tuple(own)), strict=True)
        loss = math.fsum(itertools.chain(*losses))  # exact, so that the order is of no matter
        return GlobalStats(loss, sum(tokens), float(self.gradient.norm()), any(failures), any(stops))

    def add_in_order(self, parts: int) -> None:
        size, own = self.ranks.size, self.parts
        self.parts = []
        for round_ in range(0, parts, size):
            mine = own.pop(0) if own else torch.zeros_like(self.gradient)
            for gradient in self.ranks.each(mine)[: parts - round_]:
                self.gradient += gradient

    def scale(self, factor: float) -> None:
        self.gradient *= factor

    def clear(self) -> None:
        self.all.zero_()
        self.parts.clear()


class FullyShardedParallel:
    """Every process holds a piece of each matrix, gradient and moment (FSDP2) and borrows the rest, layer by layer."""

    every_part = True

    def __init__(self, objective: Objective, ranks: ProcessGroup):
        self.model, self.ranks = objective.model, ranks
        if isinstance(self.model, Transformer):
            for layer in (*self.model.encoder, *self.model.decoder):
                fully_shard(layer)
        fully_shard(objective)
        for module in objective.modules():
            if isinstance(module, FSDPModule):  # a sum over processes, not a mean
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)

    def done(self) -> None: ...

    def totals(self, own: LocalStats, parts: int) -> GlobalStats:
        figures = torch.tensor([sum(own.losses), *map(float, own[1:])], dtype=torch.float64, device=self.ranks.device)
        self.ranks.sum(figures)
        total, tokens, failures, stops = figures.tolist()
        norm = nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        return GlobalStats(total, int(tokens), float(full(norm)), failures > 0, stops > 0)

    def scale(self, factor: float) -> None:
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(factor)

    def clear(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = None


@dataclass
class StepResult:
    """What came of one update. `skipped` says in words why the weights did not change; empty: they did."""

    loss: float  # summed over target tokens, in nats
    tokens: int  # of the target
    norm: float  # of the gradient of the mean loss
    correction: float = 1.0  # what the gradient that was found has to be multiplied by
    skipped: str = ""
    out_of_memory: bool = False
    stop: bool = False


class Learner:
    """A model, its optimizer, and everything about them that a checkpoint holds."""

    def __init__(self, model: Model, settings: TrainingConfig, ranks: ProcessGroup):
        self.settings, self.ranks = settings, ranks
        if settings.precision == "float16" and ranks.device.type == "cpu" and isinstance(model, Recurrent):
            raise UsageError("PyTorch has no float16 recurrent layers for CPUs: choose training.precision bfloat16")
        model.to(ranks.device)
        self.objective = Objective(model, settings.label_smoothing)
        if settings.checkpoint_activations:
            compute_twice(model)
        self.layout: GradientSync
        if settings.shard and ranks.size > 1:
            self.layout = FullyShardedParallel(self.objective, ranks)
        else:
            self.layout = DataParallel(model, ranks, settings.deterministic)
        self.model = model
        self.optimizer = adam(model, settings.beta2, settings.weight_decay)
        for parameter in model.parameters():  # now and not at the first step, so that what fits now fits later
            self.optimizer.state[parameter] = {
                "step": torch.zeros((), device=ranks.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.average = [parameter.detach().clone() for parameter in model.parameters()] if settings.ema else []
        self.dtype = PRECISIONS[settings.precision]
        # float16 alone: the loss is multiplied by this, so that small gradients do not become zero.
        self.loss_scale = FIRST_SCALE if self.dtype == torch.float16 else 1.0
        self.since_scaled = 0

    def loss(self, batch: Batch) -> Tensor:
        with torch.autocast(self.ranks.device.type, self.dtype, enabled=self.dtype is not None):
            return self.objective(batch)

    def update(
        self, parts: Sequence[Batch | None], tokens: int, rate: float, seeds: tuple[int, ...], stop: bool = False
    ) -> StepResult:
        """One step of Adam with learning rate `rate` on a batch; the other arguments are those of `gradients`.

        The weights stay as they are where loss or gradient are not finite, or where memory runs out, on any process.
        """
        outcome = self.gradients(parts, tokens, seeds, stop)
        if not outcome.skipped:
            self.step(outcome, rate)
        elif not outcome.out_of_memory and self.dtype == torch.float16:
            self.loss_scale, self.since_scaled = self.loss_scale / 2, 0
        self.layout.clear()
        return outcome

    def gradients(
        self, parts: Sequence[Batch | None], tokens: int, seeds: tuple[int, ...], stop: bool = False
    ) -> StepResult:
        """The gradient of the mean loss of a batch of `tokens` target tokens, cut into `parts`, on all processes.

        A process works off the parts whose number modulo the processes is its own; the others may be None. `seeds`,
        with the number of a part, decide its dropout. `stop`: this process was asked to stop.
        """
        self.objective.train()
        size, scale = self.ranks.size, self.loss_scale / tokens
        losses: list[float] = []
        count, failed = 0, False
        rounds = math.ceil(len(parts) / size)
        for number in range(self.ranks.rank, rounds * size, size):
            batch, weight = parts[number] if number < len(parts) else None, scale
            if batch is None:
                if not self.layout.every_part:
                    continue
                batch, weight = next(part for part in parts if part is not None), 0.0
            try:
                seed_dropout(*seeds, number)
                loss = self.loss(batch.to(self.ranks.device))
                (loss * weight).backward()
                losses.append(float(loss.detach()) * (weight > 0))
                count += batch.tokens * (weight > 0)
                self.layout.done()
            except (RuntimeError, MemoryError) as error:
                if self.layout.every_part or not out_of_memory(error):
                    raise
                failed = True
            if failed:  # outside of `except`, which holds on to what is to be given up
                release(self.ranks.device)
                break
        totals = self.layout.totals(LocalStats(losses, count, failed, stop), len(parts))
        # BPE-dropout makes more tokens than were counted before.
        norm = totals.norm / self.loss_scale * tokens / max(totals.tokens, 1)
        outcome = StepResult(
            totals.loss, totals.tokens, norm, tokens / max(totals.tokens, 1), "", totals.failed, totals.stop
        )
        if totals.failed:
            outcome.skipped = "not enough memory"
        elif not math.isfinite(totals.loss):
            outcome.skipped = f"the loss is {totals.loss}"
        elif not math.isfinite(totals.norm):
            outcome.skipped = f"the gradient is {totals.norm}"
        return outcome

    def step(self, outcome: StepResult, rate: float) -> None:
        clip, factor = self.settings.clip, outcome.correction / self.loss_scale
        if clip and outcome.norm > clip:
            factor *= clip / outcome.norm
        if factor != 1:
            self.layout.scale(factor)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        if self.average:
            steps = float(next(iter(self.optimizer.state.values()))["step"])
            kept = min(self.settings.ema, steps / (10 + steps))  # the first weights are random: they count for little
            with torch.no_grad():
                torch._foreach_lerp_(self.average, list(self.model.parameters()), 1 - kept)
        self.since_scaled += 1
        if self.dtype == torch.float16 and self.since_scaled >= SCALE_UP_AFTER:
            self.loss_scale, self.since_scaled = min(2 * self.loss_scale, LARGEST_SCALE), 0

    @torch.no_grad()
    def whole(self) -> Model:
        """The model to validate and to save, on every process: the moving average where there is one."""
        if not self.average and isinstance(self.layout, DataParallel):
            return self.model
        model = build(self.model.config, self.model.source_embedding.num_embeddings, pad=self.model.pad)
        model.to(self.ranks.device)
        values = self.average or list(self.model.parameters())
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(full(value))
        return model

    def state(self) -> dict[str, Tensor]:
        """Beside the saved model, all that the next update depends on: moments, and the weights under an average."""
        found: dict[str, Tensor] = {}
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state[parameter].items():
                found[f"{name}.{key}"] = full(value).cpu()
            if self.average:
                found[f"{name}.weights"] = full(parameter.detach()).cpu()
        found["loss_scale"] = torch.tensor([self.loss_scale, self.since_scaled])
        return found

    @torch.no_grad()
    def load(self, saved: Model, state: dict[str, Tensor]) -> None:
        """Go on from a saved model and its `state`. Raises KeyError or RuntimeError where they are of another model."""
        values = dict(saved.named_parameters())
        averages = iter(self.average)
        for name, parameter in self.model.named_parameters():
            if self.average:
                put(next(averages), values[name])
                put(parameter, state[f"{name}.weights"])
            else:
                put(parameter, values[name])
            for key, value in self.optimizer.state[parameter].items():
                put(value, state[f"{name}.{key}"])
        scale, since = state["loss_scale"].tolist()
        self.loss_scale, self.since_scaled = scale, int(since)


def full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def put(there: Tensor, value: Tensor) -> Tensor:
    """Copy a whole tensor to where this process holds it, or its piece of it."""
    if isinstance(there, DTensor):
        value = distribute_tensor(value.to(there.device), there.device_mesh, there.placements)
    return there.copy_(value)


def seed_dropout(*numbers: int) -> None:
    """Dropout is a pure function of these numbers: a run needs no random state to be resumed or shared out."""
    torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1)))


def out_of_memory(error: BaseException) -> bool:
    """PyTorch reports it on a CPU as a RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)


def release(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()


def compute_twice(model: Model) -> None:
    """Let each layer forget what happened inside it and compute it again on the way back.

    Applied from outside; the cache, which a layer fills as it goes, is a fresh one each time.
    """
    if not isinstance(model, Transformer):
        raise DragomanError("training.checkpoint_activations is for the layers of a Transformer")

    def again(forward: Callable[..., Tensor], *arguments: Any) -> Tensor:
        if not torch.is_grad_enabled():
            return forward(*arguments)

        def fresh(*given: Any) -> Tensor:
            return forward(*(Cache() if isinstance(value, Cache) else value for value in given))

        return checkpoint(fresh, *arguments, use_reentrant=False)

    for layer in (*model.encoder, *model.decoder):
        layer.forward = partial(again, layer.forward)
