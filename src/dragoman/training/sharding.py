"""Divide the weights, gradients and moments of a model among the processes that train it.

Only sharded training imports this file, because importing PyTorch's sharding takes the better part of a second.
"""

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from dragoman.model.transformer import Transformer
from dragoman.training.distributed import ProcessGroup
from dragoman.training.loss import Objective
from dragoman.training.parallel import GlobalStats, LocalStats


class FullyShardedParallel:
    """Every process holds a shard of each matrix, gradient and moment (FSDP2) and gathers the rest layer by layer."""

    lockstep = True

    def __init__(self, objective: Objective, group: ProcessGroup):
        self.model, self.group = objective.model, group
        if isinstance(self.model, Transformer):
            for layer in (*self.model.encoder, *self.model.decoder):
                fully_shard(layer)
        fully_shard(objective)
        for module in objective.modules():
            if isinstance(module, FSDPModule):  # sum over processes, not the mean
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)

    def end_micro_batch(self) -> None:
        """Do nothing: the backward pass has summed the gradients already."""

    def reduce(self, local: LocalStats, micro_batches: int) -> GlobalStats:
        """Sum the statistics over all processes and return them; the backward pass has summed the gradients already."""
        stats = torch.tensor([sum(local.losses), *map(float, local[1:])], dtype=torch.float64, device=self.group.device)
        self.group.sum(stats)
        total, count, failed, stop, seconds = stats.tolist()
        norm = nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        return GlobalStats(total, int(count), float(self.gather(norm)), failed > 0, stop > 0, seconds)

    def scale(self, factor: float) -> None:
        """Multiply this process's shards of the gradient by `factor`, in place."""
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(factor)

    def clear(self) -> None:
        """Drop this process's shards of the gradient."""
        for parameter in self.model.parameters():
            parameter.grad = None

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the whole tensor, gathered from its shards if it has any; all processes must then call this."""
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def copy(self, held: Tensor, value: Tensor) -> None:
        """Copy the whole tensor `value` into `held`, in place: the same tensor, or this process's shard of it.

        If it is a shard, all processes must call this.
        """
        if isinstance(held, DTensor):
            value = distribute_tensor(value.to(held.device), held.device_mesh, held.placements)
        held.copy_(value)
