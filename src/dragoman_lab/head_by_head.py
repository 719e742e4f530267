"""Heads one after another, or all in one product (section 3.2.2): same results, parameters and work; the time."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from dragoman.config import AttentionConfig
from dragoman.model.attention import MultiHeadAttention, explicit_attention
from dragoman.model.packing import Packing
from dragoman_lab.drawing import Panel, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.parallel import fastest_seconds

D_MODEL, BASE_HEADS = 512, 8  # of the paper's base model
SENTENCES, LENGTH = 8, 32
HEADS = (1, 2, 4, 8, 16, 32)
PRODUCTS = (Tensor.matmul, Tensor.__matmul__, F.linear, F.scaled_dot_product_attention)
LOOP, ONE, FUSED = "a loop over heads", "one product", "one product, fused kernel"


class Head(nn.Module):
    """One head with matrices of its own, as the paper writes it: Attention(Q W_i^Q, K W_i^K, V W_i^V)."""

    def __init__(self, d_model: int, d_k: int, d_v: int, bias: bool):
        super().__init__()
        self.query = nn.Linear(d_model, d_k, bias)
        self.key = nn.Linear(d_model, d_k, bias)
        self.value = nn.Linear(d_model, d_v, bias)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, T, V) for x (B, T, M), memory (B, S, M) and a mask (T, S) or (B, T, S)."""
        return explicit_attention(self.query(x), self.key(memory), self.value(memory), mask)


class HeadByHead(nn.Module):
    """Multi-head attention as the paper writes it: Concat(head_1, ..., head_h) W^O, one head after another."""

    def __init__(self, d_model: int, config: AttentionConfig):
        super().__init__()
        d_k, d_v = config.head_sizes(d_model)
        self.heads = nn.ModuleList(Head(d_model, d_k, d_v, config.bias) for _ in range(config.heads))
        self.out = nn.Linear(config.heads * d_v, d_model, config.bias)

    def forward(self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Let x (B, T, M) attend to memory (B, S, M), or to itself -> (B, T, M). mask: (T, S) or (B, T, S)."""
        memory = x if memory is None else memory
        return self.out(torch.cat([head(x, memory, mask) for head in self.heads], -1))


class InOneProduct(nn.Module):
    """The model's own layer, of which each head is a block of rows, with the arguments of `HeadByHead`."""

    def __init__(self, layer: MultiHeadAttention):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Let x (B, T, M) attend to memory (B, S, M), or to itself -> (B, T, M). mask: (T, S) or (B, T, S)."""
        memory = x if memory is None else memory
        queries, keys = Packing.full(x[..., 0]), Packing.full(memory[..., 0])
        mask = mask[:, None] if mask is not None and mask.dim() == 3 else mask  # the same for all heads
        seen = self.layer.project(keys.pack(memory), keys)
        return queries.unpack(self.layer(queries.pack(x), queries, seen, mask))


def rows_of(linear: nn.Linear, head: int, heads: int) -> list[Tensor]:
    """Return the weight and, if there is one, the bias of one head: its block of the rows of all heads."""
    return [p.chunk(heads)[head] for p in linear.parameters()]


def take_apart(layer: MultiHeadAttention, rows: Callable[[nn.Linear, int, int], list[Tensor]] = rows_of) -> HeadByHead:
    """Return the same layer with matrices for each head. rows: which rows of a projection belong to a head."""
    d_k, d_v = layer.key.out_features // layer.heads, layer.value.out_features // layer.heads
    config = AttentionConfig(heads=layer.heads, d_k=d_k, d_v=d_v, bias=layer.out.bias is not None)
    apart = HeadByHead(layer.query.in_features, config).to(layer.out.weight)
    with torch.no_grad():
        for number, head in enumerate(apart.heads):
            for name, linear in head.named_children():
                for separate, theirs in zip(
                    linear.parameters(), rows(getattr(layer, name), number, layer.heads), strict=True
                ):
                    separate.copy_(theirs)
    apart.out.load_state_dict(layer.out.state_dict())
    return apart


def put_together(apart: HeadByHead) -> MultiHeadAttention:
    """Return the same layer with one matrix for all heads: what `take_apart` undoes."""
    d_k, d_v = (getattr(apart.heads[0], name).out_features for name in ("key", "value"))
    config = AttentionConfig(heads=len(apart.heads), d_k=d_k, d_v=d_v, bias=apart.out.bias is not None)
    layer = MultiHeadAttention(apart.out.out_features, config).to(apart.out.weight)
    with torch.no_grad():
        for name in ("query", "key", "value"):
            parts = zip(*(getattr(head, name).parameters() for head in apart.heads), strict=True)
            for whole, blocks in zip(getattr(layer, name).parameters(), parts, strict=True):
                whole.copy_(torch.cat(blocks))
    layer.out.load_state_dict(apart.out.state_dict())
    return layer


def gradients(layer: HeadByHead | InOneProduct, x: Tensor, toward: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the gradients of the sum of output times `toward`, both (B, T, M): by x, and by the parameters of a
    `HeadByHead`, put together for comparison.
    """
    x = x.detach().requires_grad_()
    by_x, *by_weights = torch.autograd.grad(layer(x), [x, *layer.parameters()], toward)
    if isinstance(layer, InOneProduct):
        return by_x, by_weights
    as_weights = deepcopy(layer)
    with torch.no_grad():
        for parameter, gradient in zip(as_weights.parameters(), by_weights, strict=True):
            parameter.copy_(gradient)
    return by_x, [gradient.detach() for gradient in put_together(as_weights).parameters()]


def gap(result: Tensor, expected: Tensor) -> float:
    """Return the largest difference, as a part of the largest number."""
    return float((result - expected).abs().max() / expected.abs().max())


def alternating_rows(linear: nn.Linear, head: int, heads: int) -> list[Tensor]:
    """Return rows that belong to several heads, every `heads`-th one: a slip of those who convert a model."""
    return [p[head::heads] for p in linear.parameters()]


class CountCalls(TorchFunctionMode):
    """Count the matrix products that are called within the block; the fused kernel counts as one."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += func in PRODUCTS
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Cost:
    """Describe what a form of the layer costs, forward and, for operations and time, backward."""

    form: str
    heads: int
    parameters: int
    products: int  # calls, forward
    operations: int  # of these products, forward and backward
    seconds: float


def measure(form: str, layer: nn.Module, heads: int, x: Tensor, patience: float) -> Cost:
    """Count parameters, products and operations of a form of the layer, and time it on x (B, T, M)."""
    with CountCalls() as products:
        layer(x)
    with FlopCounterMode(display=False) as operations:
        layer(x).sum().backward()
    seconds = fastest_seconds(layer, x, patience)
    count = sum(p.numel() for p in layer.parameters())
    return Cost(form, heads, count, products.calls, operations.get_total_flops(), seconds)


def forms(layer: MultiHeadAttention) -> dict[str, nn.Module]:
    """Return the same layer in the three forms."""
    plain = put_together(take_apart(layer))
    plain.kernel = explicit_attention
    return {LOOP: take_apart(layer), ONE: InOneProduct(plain), FUSED: InOneProduct(layer)}


def claims(output: float, gradient: float, wrong: float, base: dict[str, Cost], many: dict[str, Cost]) -> Claims:
    """Return each claim and whether it holds. output, gradient: differences between the forms; wrong: of outputs, with
    rows given to the wrong heads; base, many: costs by form, with BASE_HEADS and with the most heads.
    """
    loop, joint, fused = (base[form] for form in (LOOP, ONE, FUSED))
    slower = many[LOOP].seconds / many[ONE].seconds
    return {
        "Heads one after another and all in one product give [the same results|different results]: outputs differ "
        f"by {output:.1g} of the largest number, gradients by {gradient:.1g}. With rows of the matrices given to "
        f"the wrong heads, outputs differ by {wrong:.2g}.": max(output, gradient) < 1e-5 < 1e-2 < wrong,
        f"Both forms have [the same number|different numbers] of parameters ({loop.parameters:,} and "
        f"{joint.parameters:,}) and do {loop.operations / 1e9:.2f} and {joint.operations / 1e9:.2f} billion "
        "operations.": (loop.parameters == joint.parameters and loop.operations == joint.operations),
        f"A loop over {BASE_HEADS} heads [takes longer|does not take longer here]: {1000 * loop.seconds:.3g} ms "
        f"against {1000 * joint.seconds:.3g} ms, as it calls {loop.products} products instead of {joint.products}; "
        f"with the fused kernel it is {1000 * fused.seconds:.3g} ms.": loop.seconds > joint.seconds,
        f"With {max(HEADS)} heads, whose matrices are small, the loop takes {slower:.1f} times as long as one product: "
        f"[it loses more|it does not lose more] than with {BASE_HEADS}.": slower > loop.seconds / joint.seconds,
    }


@experiment(
    "Heads one by one, or all in one product",
    "section 3.2.2 and common teaching",
    "Each head has three matrices of its own, and heads are computed one after another and concatenated. In programs "
    "they are rows of one matrix, because a loop is inefficient; the result is the same.",
)
def run(effort: Effort) -> Findings:
    """Take a layer apart into heads, compare outputs and gradients, and measure both forms by the number of heads."""
    torch.manual_seed(effort.seeds[0])
    x, toward = torch.randn(2, SENTENCES, LENGTH, D_MODEL)
    together = InOneProduct(MultiHeadAttention(D_MODEL, AttentionConfig(heads=BASE_HEADS)))
    apart = take_apart(together.layer)
    with torch.no_grad():
        output = gap(apart(x), together(x))
        wrong = gap(take_apart(together.layer, alternating_rows)(x), together(x))
    (by_x, by_weights), (their_x, theirs) = gradients(apart, x, toward), gradients(together, x, toward)
    gradient = max(gap(a, b) for a, b in zip([by_x, *by_weights], [their_x, *theirs], strict=True))
    costs = [
        measure(form, module, heads, x, effort.part)
        for heads in HEADS
        for form, module in forms(MultiHeadAttention(D_MODEL, AttentionConfig(heads=heads))).items()
    ]
    base, many = ({c.form: c for c in costs if c.heads == heads} for heads in (BASE_HEADS, max(HEADS)))
    table = Table(
        "form | heads | parameters | calls of products, forward | operations, forward and backward | time (ms)",
        [
            # PyTorch does not count the operations of its fused kernel.
            (c.form, c.heads, c.parameters, c.products, c.operations if c.form != FUSED else "", 1000 * c.seconds)
            for c in costs
        ],
    )
    panel = partial(Panel, x="heads", log="x", ticks=HEADS)
    return Findings(
        f"One layer of self-attention with d_model {D_MODEL}, heads of equal total size, {SENTENCES} sentences of "
        f"{LENGTH} words, forward and backward, on {torch.get_num_threads()} thread(s): the fastest pass within "
        f"{effort.part:g} s. The weights of all forms are the same (seed {effort.seeds[0]}).",
        claims(output, gradient, wrong, base, many),
        {"The same layer in three forms": table},
        {
            "head-by-head": Figure(
                "Time of a layer, forward and backward, and the products that it calls, by the number of heads.",
                lines(
                    panel(
                        table.curves("form", "heads", "time (ms)"), y="time, forward and backward (ms)", ylim=(0, None)
                    ),
                    panel(table.curves("form", "heads", "calls of products, forward"), y="calls of products, forward"),
                ),
            )
        },
    )
