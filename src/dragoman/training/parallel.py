"""Sum the gradients of the processes that train one model.

Gradients are reduced after the backward pass. PyTorch's DistributedDataParallel reduces them during it; there, a
process that runs out of memory half-way leaves the others waiting for ever.
"""

import itertools
import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from dragoman.model import Model
from dragoman.training.distributed import ProcessGroup


class LocalStats(NamedTuple):
    """Report what one process measured on its micro-batches of a batch."""

    losses: list[float]  # of each micro-batch, summed over target tokens
    tokens: int
    failed: bool  # it ran out of memory
    stop: bool  # it was asked to stop
    seconds: float  # of training so far, by the clock of the first process; 0 from the others


class GlobalStats(NamedTuple):
    """Report what all processes together measured on a batch."""

    loss: float
    tokens: int
    norm: float  # of the gradient
    failed: bool
    stop: bool
    seconds: float  # by the clock of the first process


class GradientSync(Protocol):
    """Sum the gradients and statistics of the processes that train together."""

    lockstep: bool  # all processes must work through the same number of micro-batches

    def end_micro_batch(self) -> None:
        """Do what has to follow the backward pass of each micro-batch: `Learner` calls this after it."""

    def reduce(self, local: LocalStats, micro_batches: int) -> GlobalStats:
        """Sum gradients, in place, and statistics, which are returned; all processes must call this."""

    def scale(self, factor: float) -> None:
        """Multiply the gradient."""

    def clear(self) -> None:
        """Set the gradient to zero."""

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the whole tensor of which this process holds a part, or all; all processes must call this."""

    def copy(self, held: Tensor, value: Tensor) -> None:
        """Copy the whole tensor `value` into what this process holds of it, in place; all processes must call this."""


class WholeTensors:
    """Gather and copy nothing: each process has whole tensors, and trains at its own pace."""

    lockstep = False

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the tensor: it is whole."""
        return tensor

    def copy(self, held: Tensor, value: Tensor) -> None:
        """Copy `value` into `held`, in place."""
        held.copy_(value)


class SingleProcess(WholeTensors):
    """One process trains alone. The backward pass hands over the gradient of each parameter, and nothing is copied."""

    def __init__(self, model: Model):
        self.parameters = list(model.parameters())

    @property
    def gradients(self) -> list[Tensor]:
        """Return the gradients that the backward passes since `clear` have left."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def end_micro_batch(self) -> None:
        """Do nothing: the next backward pass adds to the gradients."""

    def reduce(self, local: LocalStats, micro_batches: int) -> GlobalStats:
        """Return the statistics of this process, with the norm of the gradient."""
        norm = float(nn.utils.get_total_norm(self.gradients))
        return GlobalStats(sum(local.losses), local.tokens, norm, local.failed, local.stop, local.seconds)

    def scale(self, factor: float) -> None:
        """Multiply the gradient by `factor`, in place."""
        torch._foreach_mul_(self.gradients, factor)

    def clear(self) -> None:
        """Drop the gradient."""
        for parameter in self.parameters:
            parameter.grad = None


class DataParallel(WholeTensors):
    """Every process holds the whole model. The gradient is one long vector, each `parameter.grad` a view of it.

    With `ordered`, the gradient of each micro-batch is kept apart and all are added in the order of micro-batches, so
    that the sum has the same bits on any number of processes.
    """

    def __init__(self, model: Model, group: ProcessGroup, ordered: bool = False):
        self.group, self.ordered = group, ordered
        parameters = list(model.parameters())
        sizes = [parameter.numel() for parameter in parameters]
        stats = len(LocalStats._fields)  # at the end, to be summed with the gradient in one call
        self.buffer = torch.zeros(sum(sizes) + stats, dtype=parameters[0].dtype, device=parameters[0].device)
        self.gradient, self.stats = self.buffer[:-stats], self.buffer[-stats:]
        for parameter, piece in zip(parameters, self.gradient.split(sizes), strict=True):
            parameter.grad = piece.view_as(parameter)
        self.kept: list[Tensor] = []  # if ordered: the gradients of this process's micro-batches

    def end_micro_batch(self) -> None:
        """If ordered, put the gradient of the micro-batch aside and set it to zero."""
        if self.ordered:
            self.kept.append(self.gradient.clone())
            self.gradient.zero_()

    def reduce(self, local: LocalStats, micro_batches: int) -> GlobalStats:
        """Sum gradients and statistics over all processes; return the statistics, with the norm of the summed gradient.

        All processes must call this. `micro_batches` counts those of all of them; it matters only if ordered.
        """
        if self.ordered:
            self.add_in_order(micro_batches)
            losses, tokens, failures, stops, seconds = zip(*self.group.gather(tuple(local)), strict=True)
            loss = math.fsum(itertools.chain(*losses))  # exact, so that the order does not matter
            norm = float(self.gradient.norm())
            return GlobalStats(loss, sum(tokens), norm, any(failures), any(stops), sum(seconds))
        self.stats.copy_(torch.tensor([sum(local.losses), *local[1:]], dtype=self.stats.dtype))
        self.group.sum(self.buffer)
        total, count, failed, stop, seconds, norm = torch.cat([self.stats, self.gradient.norm()[None]]).tolist()
        return GlobalStats(total, int(count), norm, failed > 0, stop > 0, seconds)

    def add_in_order(self, micro_batches: int) -> None:
        """Set the gradient, which must be zero, to the sum of those of all processes' micro-batches, in their order.

        All processes must call this. `micro_batches` counts those of all; those put aside are forgotten.
        """
        size, kept = self.group.size, self.kept
        self.kept = []
        for start in range(0, micro_batches, size):
            local = kept.pop(0) if kept else torch.zeros_like(self.gradient)
            for gradient in self.group.gather_tensors(local)[: micro_batches - start]:
                self.gradient += gradient

    def scale(self, factor: float) -> None:
        """Multiply the summed gradient by `factor`, in place."""
        self.gradient *= factor

    def clear(self) -> None:
        """Set the gradient to zero, and forget those put aside."""
        self.buffer.zero_()
        self.kept.clear()
