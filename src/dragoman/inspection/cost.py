"""Count what a model consists of, and what it costs to train and to run."""

import re
from dataclasses import dataclass

from torch import nn

from dragoman.model import Model

ONCE_PER_SOURCE_TOKEN = re.compile(r"encoder\.|(decoder\.\d+\.cross_)?attention\.(key|value)$")  # names of modules


@dataclass(frozen=True)
class Cost:
    """Numbers of parameters and operations, and memory in bytes of 32-bit floating point."""

    parts: dict[str, int]  # parameters by part of the model; a shared matrix counts once, in the first of its parts
    parameters: int
    source_flops: int  # per source token, forward
    target_flops: int  # per target token, forward
    weights: int  # bytes
    training: int  # bytes of weights, gradients and Adam's two moments, without activations

    def __str__(self) -> str:
        rows = [f"{name:<22} {count:>14,}" for name, count in self.parts.items()]
        rows.append(f"{'total':<22} {self.parameters:>14,}   parameters")
        source, target = f"{self.source_flops / 1e6:,.1f}", f"{self.target_flops / 1e6:,.1f}"
        return "\n".join(
            [
                *rows,
                "",
                f"operations per token   {source} M source, {target} M target (forward, without attention scores; "
                "training: three times as many)",
                f"memory                 {self.weights / 2**20:,.1f} MiB weights; {self.training / 2**20:,.1f} MiB "
                "with gradients and Adam's moments, before activations",
            ]
        )


def cost(model: Model) -> Cost:
    """Return the parameters of `model` by part, its operations per token, and the memory that it needs."""
    parts: dict[str, int] = {}
    seen: set[int] = set()
    for name, parameter in model.named_parameters():
        part = name.split(".")[0]
        if id(parameter) not in seen:
            parts[part] = parts.get(part, 0) + parameter.numel()
            seen.add(id(parameter))
    total = sum(parts.values())
    # Keys and values of the memory are computed once per source token, everything else of the decoder once per target
    # token; lookups are free. A matrix that is shared is applied under each of its names.
    source = target = 0
    for name, module in model.named_modules(remove_duplicate=False):
        if ONCE_PER_SOURCE_TOKEN.match(name):
            source += operations_per_token(module)
        else:
            target += operations_per_token(module)
    return Cost(parts, total, source, target, 4 * total, 16 * total)


def operations_per_token(module: nn.Module) -> int:
    """Return the operations per token of one module without those in it: two per weight of every matrix."""
    if isinstance(module, nn.Linear):
        return 2 * module.weight.numel()
    if isinstance(module, nn.RNNBase):
        return 2 * sum(p.numel() for name, p in module.named_parameters() if name.startswith("weight"))
    return 0
