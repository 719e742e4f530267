"""What a model consists of, and what it costs to train and to run."""

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Cost:
    """Parameters are numbers; memory is bytes in 32-bit floating point."""

    parts: dict[str, int]  # parameters by part of the model; a shared matrix counts once, where it is first
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


def cost(model: nn.Module) -> Cost:
    """Count the parameters of `model` by part, and its multiplications and additions per token."""
    parts: dict[str, int] = {}
    seen: set[int] = set()
    for name, parameter in model.named_parameters():
        part = name.split(".")[0]
        if id(parameter) not in seen:
            parts[part] = parts.get(part, 0) + parameter.numel()
            seen.add(id(parameter))
    total = sum(parts.values())
    # Two operations per weight of every matrix that a token meets. Keys and values of the memory are computed once per
    # source token, everything else of the decoder once per target token; look-ups are free.
    source = target = 0
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            work = 2 * module.weight.numel()
        elif isinstance(module, nn.RNNBase):
            work = 2 * sum(p.numel() for n, p in module.named_parameters() if n.startswith("weight"))
        else:
            continue
        of_source = name.startswith("encoder") or name.endswith(("cross_attention.key", "cross_attention.value"))
        source, target = (source + work, target) if of_source or name == "attention.key" else (source, target + work)
    return Cost(parts, total, source, target, 4 * total, 16 * total)
