"""Update the weights once: forward pass, backward pass, Adam.

A batch is cut into micro-batches, which the processes share. Which process computes which one changes no result:
dropout depends on the number of the micro-batch, and gradients are summed after the backward pass.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dragoman.config import TrainingConfig
from dragoman.data.batches import Batch
from dragoman.errors import UsageError, is_out_of_memory
from dragoman.model import Model, build_empty
from dragoman.model.recurrent import Recurrent
from dragoman.runtime.device import wide_products
from dragoman.training.batch_loader import MicroBatches
from dragoman.training.distributed import ProcessGroup
from dragoman.training.loss import Objective
from dragoman.training.memory import checkpoint_activations, free_cache
from dragoman.training.optimizer import adam
from dragoman.training.parallel import DataParallel, GradientSync, LocalStats, SingleProcess, WholeTensors
from dragoman.training.precision import DTYPES, LossScale
from dragoman.training.signals import GracefulStop


@dataclass
class StepResult:
    """Report what an update measured. `skipped` is the reason why the weights did not change; '' where they did."""

    loss: float  # summed over target tokens, in nats
    tokens: int  # of the target
    norm: float  # of the gradient of the mean loss
    correction: float = 1.0  # factor that turns the computed gradient into that of the mean loss
    skipped: str = ""
    out_of_memory: bool = False
    stop: bool = False  # a process was asked to stop
    seconds: float = 0.0  # since `began`, by the clock of the first process


class Learner:
    """A model in training, with its optimizer, the moving average of its weights, and the loss scale."""

    def __init__(self, model: Model, settings: TrainingConfig, group: ProcessGroup):
        self.settings, self.group = settings, group
        if settings.precision == "float16" and group.device.type == "cpu" and isinstance(model, Recurrent):
            raise UsageError("PyTorch has no float16 recurrent layers for CPUs: choose training.precision bfloat16")
        model.to(group.device)
        self.objective = Objective(model, settings.label_smoothing)
        if settings.checkpoint_activations:
            checkpoint_activations(model)
        self.sync: GradientSync
        if settings.shard and group.size > 1:
            from dragoman.training.sharding import FullyShardedParallel

            self.sync = FullyShardedParallel(self.objective, group)
        elif group.size == 1 and not settings.deterministic:
            self.sync = SingleProcess(model)
        else:
            self.sync = DataParallel(model, group, settings.deterministic)
        self.model = model
        self.optimizer = adam(model, settings.beta2, settings.weight_decay)
        for parameter in model.parameters():  # allocated now, so that memory cannot run out at the first step
            self.optimizer.state[parameter] = {
                "step": torch.zeros((), device=group.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.average = [parameter.detach().clone() for parameter in model.parameters()] if settings.ema else []
        self.steps = 0  # that Adam has taken
        self.dtype = DTYPES[settings.precision]
        self.loss_scale = LossScale(active=self.dtype == torch.float16)

    def update(
        self,
        micro_batches: MicroBatches,
        tokens: int,
        rate: float,
        seeds: tuple[int, ...],
        stop: GracefulStop | None = None,
        began: float = 0.0,
    ) -> StepResult:
        """Take one step of Adam with learning rate `rate`; return what was measured.

        The other arguments are those of `compute_gradient`. The weights stay as they are, and the result says why in
        `skipped`, where loss or gradient is not finite, or memory runs out, on any process.
        """
        result = self.compute_gradient(micro_batches, tokens, seeds, stop, began)
        if not result.skipped:
            self.apply_gradient(result, rate)
        elif not result.out_of_memory:
            self.loss_scale.after_overflow()
        self.sync.clear()
        return result

    @wide_products()
    def compute_gradient(
        self,
        micro_batches: MicroBatches,
        tokens: int,
        seeds: tuple[int, ...],
        stop: GracefulStop | None = None,
        began: float = 0.0,
    ) -> StepResult:
        """Compute the gradient of a batch's mean loss on all processes; return the loss and what else was measured.

        The gradient, not yet scaled and clipped, is left in the parameters for `apply_gradient`. tokens: the batch's
        target tokens. A process works through the micro-batches whose number modulo the number of processes is its
        rank. `seeds` and that number decide dropout. stop: whether this process was asked to stop, which it may be
        until its last backward pass is done; began: when, on the monotonic clock of this process, the training would
        have begun without any pause.
        """
        self.objective.train()
        scale = self.loss_scale.value / tokens
        losses: list[Tensor] = []  # read after the last backward pass, for which a GPU has to be waited for
        count, failed = 0, False
        for number, batch, counts in self.local_micro_batches(micro_batches):
            try:
                seed_dropout(*seeds, number)
                losses.append(self.backward(batch.to(self.group.device), scale * counts) * counts)
                count += batch.tokens * counts
                self.sync.end_micro_batch()
            except (RuntimeError, MemoryError) as error:
                if self.sync.lockstep or not is_out_of_memory(error):
                    raise
                failed = True
            if failed:  # after `except`, because inside it the error still holds the memory
                free_cache(self.group.device)
                break
        values = [float(loss) for loss in losses]
        seconds = time.monotonic() - began if self.group.first else 0.0
        total = self.sync.reduce(LocalStats(values, count, failed, bool(stop), seconds), len(micro_batches))
        # BPE-dropout makes more tokens than were counted before.
        correction = tokens / max(total.tokens, 1)
        norm = total.norm / self.loss_scale.value * tokens / max(total.tokens, 1)
        skipped = ""
        if total.failed:
            skipped = "not enough memory"
        elif not math.isfinite(total.loss):
            skipped = f"the loss is {total.loss}"
        elif not math.isfinite(total.norm):
            skipped = f"the gradient is {total.norm}"
        return StepResult(total.loss, total.tokens, norm, correction, skipped, total.failed, total.stop, total.seconds)

    def local_micro_batches(self, micro_batches: MicroBatches) -> Iterator[tuple[int, Batch, bool]]:
        """Yield the number of each micro-batch of this process, the micro-batch, and whether its gradient counts.

        Where all processes must take part in each backward pass, one without a micro-batch of its own gets another's,
        which does not count.
        """
        size = self.group.size
        rounds = math.ceil(len(micro_batches) / size)
        for number in range(self.group.rank, rounds * size, size):
            batch = micro_batches[number] if number < len(micro_batches) else None
            if batch is not None:
                yield number, batch, True
            elif self.sync.lockstep:
                yield number, next(batch for batch in micro_batches if batch is not None), False

    def backward(self, batch: Batch, scale: float) -> Tensor:
        """Add the gradient of a batch's loss times `scale` to those of the parameters; return the loss, detached.

        Where it fails, what it computed until then is free again.
        """
        loss = self.loss(batch)
        (loss * scale).backward()
        return loss.detach()

    def loss(self, batch: Batch) -> Tensor:
        """Return the label-smoothed loss of a batch in nats, summed over its target tokens: a scalar with gradients.

        The batch must be on this process's device. Matmuls are in the dtype of `precision`.
        """
        with torch.autocast(self.group.device.type, self.dtype, enabled=self.dtype is not None):
            return self.objective(batch)

    def apply_gradient(self, result: StepResult, rate: float) -> None:
        """Clip the gradient of `result`, take a step of Adam, update the moving average of the weights."""
        clip, factor = self.settings.clip, result.correction / self.loss_scale.value
        if clip and result.norm > clip:
            factor *= clip / result.norm
        if factor != 1:
            self.sync.scale(factor)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.steps += 1
        if self.average:
            # The first weights are random: they count for little.
            kept = min(self.settings.ema, self.steps / (10 + self.steps))
            with torch.no_grad():
                torch._foreach_lerp_(self.average, list(self.model.parameters()), 1 - kept)
        self.loss_scale.after_step()

    @torch.no_grad()
    def full_model(self) -> Model:
        """Return the model to validate and to save: the moving average of the weights if there is one.

        All processes must call this; each gets the whole model. It is `self.model`, which further updates change, if
        there is no average and nothing is sharded; else a copy.
        """
        if not self.average and isinstance(self.sync, WholeTensors):
            return self.model
        source, target = self.model.source_embedding.num_embeddings, self.model.target_embedding.num_embeddings
        model = build_empty(self.model.config, source, target, self.model.pad)
        model.to(self.group.device)
        values = self.average or list(self.model.parameters())
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(self.sync.gather(value))
        return model

    def state(self) -> dict[str, Tensor]:
        """Return what the next update depends on besides `full_model`. All processes must call this.

        That is Adam's moments, the loss scale, and the weights where `full_model` is their moving average.
        """
        state: dict[str, Tensor] = {}
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state[parameter].items():
                state[f"{name}.{key}"] = self.sync.gather(value).cpu()
            if self.average:
                state[f"{name}.weights"] = self.sync.gather(parameter.detach()).cpu()
        state["loss_scale"] = torch.tensor([self.loss_scale.value, self.loss_scale.steps])
        return state

    @torch.no_grad()
    def load(self, saved: Model, state: dict[str, Tensor]) -> None:
        """Restore the model and the state that `full_model` and `state` returned. All processes must call this.

        Raise KeyError or RuntimeError where they belong to another model.
        """
        values = dict(saved.named_parameters())
        averages = iter(self.average)
        for name, parameter in self.model.named_parameters():
            if self.average:
                self.sync.copy(next(averages), values[name])
                self.sync.copy(parameter, state[f"{name}.weights"])
            else:
                self.sync.copy(parameter, values[name])
            for key, value in self.optimizer.state[parameter].items():
                self.sync.copy(value, state[f"{name}.{key}"])
            self.steps = int(state[f"{name}.step"])
        scale, steps = state["loss_scale"].tolist()
        self.loss_scale.resume(scale, int(steps))


def seed_dropout(*numbers: int) -> None:
    """Seed PyTorch with these numbers: dropout depends on them alone, and no random state has to be saved or shared."""
    torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1)))
