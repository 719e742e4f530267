"""Describe any model of ours as the boxes of Figure 1: names, sizes, counts, norms, positions, shared parameters.

A model on the device `meta` will do: nothing is computed. `plots/architecture.py` draws the boxes. `seen` maps the id
of each parameter that has a box already to the name of the module in that box.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from torch import nn

from dragoman.model import Model
from dragoman.model.attention import (
    Additive,
    MultiHeadAttention,
    explicit_attention,
    fused_attention,
    unscaled_attention,
)
from dragoman.model.positions import POSITIONS, Positions
from dragoman.model.recurrent import PlainRNN, Recurrence, Recurrent
from dragoman.model.transformer import FeedForward, Residual, Transformer

BoxKind = Literal["embedding", "attention", "norm", "feed forward", "linear", "plain"]


@dataclass(frozen=True)
class Box:
    """A module, or an operation without weights."""

    title: str
    module: str  # its name within the layer or model; '' for an operation
    details: tuple[str, ...]
    parameters: int  # without those that a box before it has
    kind: BoxKind
    from_encoder: str = ""  # its input from the encoder

    @property
    def lines(self) -> list[str]:
        """Return the lines of text in the box."""
        name = [self.module] if self.module else []
        return [self.title, *name, *self.details, *parameter_line(self.parameters)]


def parameter_line(parameters: int) -> list[str]:
    """Return the line of a box that says how many parameters it has, ['1,234 parameters'], or [] where it has none."""
    return [f"{parameters:,} parameters"] if parameters else []


@dataclass(frozen=True)
class Sublayer:
    """Boxes one above the other."""

    boxes: tuple[Box, ...]
    residual: bool = False  # the input of the first box is added to the output in the last one


@dataclass(frozen=True)
class LayerGroup:
    """Layers that are all alike, one above the other."""

    module: str  # 'encoder'
    first: int
    times: int
    sublayers: tuple[Sublayer, ...]

    @property
    def parameters(self) -> int:
        """The number of parameters of one layer."""
        return sum(box.parameters for box in self.boxes)

    @property
    def boxes(self) -> list[Box]:
        """Return the boxes of one layer."""
        return [box for sublayer in self.sublayers for box in sublayer.boxes]


@dataclass(frozen=True)
class Stack:
    """Encoder or decoder, from the bottom to the top."""

    tokens: str  # its input
    embedding: Box
    positions: Box | None
    added: bool  # positions are added to the embeddings, not used in the self-attention
    groups: tuple[LayerGroup, ...]
    top: tuple[Box, ...]
    norm: Box | None = None  # of the embeddings, after the positions

    @property
    def parameters(self) -> int:
        """The number of parameters in all boxes; one that is shared counts in the first box that has it alone."""
        single = [self.embedding, *filter(None, (self.positions, self.norm)), *self.top]
        return sum(box.parameters for box in single) + sum(group.times * group.parameters for group in self.groups)


def stacks(model: Model) -> tuple[Stack, Stack]:
    """Describe encoder and decoder. A parameter that several modules share counts for the first of them."""
    seen: dict[int, str] = {}
    embeddings = (
        matrix_box(model, "source_embedding", "Input embedding", seen),
        matrix_box(model, "target_embedding", "Output embedding", seen),
    )
    output = matrix_box(model, "output", "Linear", seen)
    softmax = Box("Softmax", "", (), 0, "plain")
    if isinstance(model, Recurrent):
        return recurrent_stacks(model, embeddings, (output, softmax), seen)
    return transformer_stacks(model, embeddings, (output, softmax), seen)


def transformer_stacks(
    model: Transformer, embeddings: tuple[Box, Box], top: tuple[Box, ...], seen: dict[int, str]
) -> tuple[Stack, Stack]:
    """Return what `stacks` does for a Transformer; layers that are alike become one group."""
    both = []
    for name, inputs, embedding, end in (
        ("encoder", "source", embeddings[0], ()),
        ("decoder", "target", embeddings[1], top),
    ):
        positions: Positions = getattr(model, f"{name}_positions")
        scheme = position_box(f"{name}_positions", positions, seen)
        added = type(positions).embed is not Positions.embed
        between = (
            norm_box("Norm", "dropout.0", model.dropout[0], seen) if isinstance(model.dropout, nn.Sequential) else None
        )
        groups = []
        first = 0
        for alike, group in groupby(tuple(sublayers(layer, seen)) for layer in getattr(model, name)):
            times = len(list(group))
            groups.append(LayerGroup(name, first, times, alike))
            first += times
        norm = getattr(model, f"{name}_norm")
        last: tuple[Box, ...] = () if isinstance(norm, nn.Identity) else (norm_box("Norm", f"{name}_norm", norm, seen),)
        if name == "encoder":  # a variant may have modules, with titles, between the layers and their norm
            for part, module in model.named_children():
                if title := getattr(module, "title", ""):
                    last = (Box(title, part, (), count_new(module, part, seen), "linear"), *last)
        tokens = f"{inputs} tokens" + (", shifted right" if name == "decoder" else "")
        both.append(Stack(tokens, embedding, scheme, added, tuple(groups), (*last, *end), between))
    return both[0], both[1]


def sublayers(layer: nn.Module, seen: dict[int, str]) -> Iterator[Sublayer]:
    """Yield the sublayers of a layer in the order they act, each a module and its norm. seen: see `count_new`."""
    for name, around in layer.named_children():
        if not isinstance(around, Residual):
            continue
        inner = getattr(layer, name.removeprefix("around_"))
        box = attention_box if isinstance(inner, MultiHeadAttention) else feed_forward_box
        module = box(name.removeprefix("around_"), inner, hasattr(layer, "cross_attention"), seen)
        norm = f"{name}.norm"
        if around.norm_first:
            yield Sublayer((norm_box("Norm", norm, around.norm, seen), module, Box("Add", "", (), 0, "norm")), True)
        else:
            yield Sublayer((module, norm_box("Add & norm", norm, around.norm, seen)), True)


def recurrent_stacks(
    model: Recurrent, embeddings: tuple[Box, Box], top: tuple[Box, ...], seen: dict[int, str]
) -> tuple[Stack, Stack]:
    """Return what `stacks` does for a recurrent model."""
    middle = []
    if (attention := model.attention) is not None:
        title = "Additive attention" if score_name(attention.kernel) == "additive" else "Dot-product attention"
        states = "all states of the encoder"
        middle.append(Box(title, "attention", (), count_new(attention, "attention", seen), "attention", states))
    size = f"{model.combine.in_features:,} → {model.combine.out_features:,}, tanh"
    middle.append(Box("Linear", "combine", (size,), count_new(model.combine, "combine", seen), "linear"))
    encoder = Stack(
        "source tokens", embeddings[0], None, False, (recurrent_group("encoder", model.encoder, "", seen),), ()
    )
    groups = (recurrent_group("decoder", model.decoder, "last state of the encoder", seen),)
    decoder = Stack("target tokens, shifted right", embeddings[1], None, False, groups, (*middle, *top))
    return encoder, decoder


def recurrent_group(name: str, module: Recurrence, from_encoder: str, seen: dict[int, str]) -> LayerGroup:
    """Return the group of the recurrent layers of one side, which all have the same size.

    name: 'encoder' or 'decoder'; from_encoder: what it gets from the encoder, in words; seen: see `count_new`.
    """
    count, size = module.shape
    times = count // module.directions
    cells: Any = module.cells
    if isinstance(cells, nn.ModuleList):
        cell: PlainRNN = cells[0]  # type: ignore[assignment]
        title = f"RNN, {cell.activation.__name__}"
    else:
        title = type(cells).__name__
    units = f"{module.directions} directions, {size:,} units each" if module.directions > 1 else f"{size:,} units"
    box = Box(title, f"{name}.cells", (units,), count_new(module, name, seen) // times, "attention", from_encoder)
    return LayerGroup(name, 0, times, (Sublayer((box,)),))


def count_new(module: nn.Module, name: str, seen: dict[int, str]) -> int:
    """Return the number of parameters of the module `name` that are not in `seen`, and add them to it.

    seen: the name of the module for which a parameter, by its id, was counted.
    """
    count = 0
    for parameter in module.parameters():
        count += parameter.numel() if id(parameter) not in seen else 0
        seen.setdefault(id(parameter), name)
    return count


def matrix_box(model: Model, name: str, title: str, seen: dict[int, str]) -> Box:
    """Return the box of an embedding or the output, the module `name`: its size, and whether it is shared."""
    module = getattr(model, name)
    rows, size = module.weight.shape
    details = [f"{rows:,} subwords of {size:,}"]
    if isinstance(module, nn.Embedding) and getattr(model.config, "scale_embedding", True):
        details.append(f"times √{size}")
    if (first := seen.get(id(module.weight), name)) != name:
        details.append(f"the matrix of {first}")
    if getattr(module, "bias", None) is not None:
        details.append("with bias")
    return Box(
        title, name, tuple(details), count_new(module, name, seen), "embedding" if title != "Linear" else "linear"
    )


def position_box(name: str, positions: Positions, seen: dict[int, str]) -> Box | None:
    """Return the box of a position scheme, which says what it changes; None for a model without positions."""
    scheme = next(scheme for scheme, kind in POSITIONS.items() if type(positions) is kind)
    hooks = {
        "embed": "added to the embeddings",
        "rotate": "rotates queries and keys",
        "rotate_across": "over the source, too",
        "bias": "added to the scores, per head",
    }
    effects = [hooks[hook] for hook in hooks if getattr(type(positions), hook) is not getattr(Positions, hook)]
    if not effects:
        return None
    return Box(f"{scheme.capitalize()} positions", name, tuple(effects), count_new(positions, name, seen), "plain")


def attention_box(name: str, attention: MultiHeadAttention, decoder: bool, seen: dict[int, str]) -> Box:
    """Return the box of an attention layer. decoder: whether it is in a decoder layer."""
    heads = attention.heads
    d_k, d_v = attention.query.out_features // heads, attention.value.out_features // heads
    cross = name == "cross_attention"
    title = "Masked multi-head attention" if decoder and not cross else "Multi-head attention"
    details = [f"{heads} head{'s' if heads > 1 else ''}, d_k {d_k}, d_v {d_v}", score_name(attention.kernel)]
    if attention.query.bias is not None:
        details.append("with biases")
    from_encoder = "keys and values of the source" if cross else ""
    return Box(title, name, tuple(details), count_new(attention, name, seen), "attention", from_encoder)


def score_name(kernel: Callable[..., Any]) -> str:
    """Return how a kernel compares queries with keys, as a figure says it; the name of a kernel that is not ours."""
    if kernel in (fused_attention, explicit_attention):
        return "scaled dot product"
    if kernel is unscaled_attention:
        return "unscaled"
    if isinstance(getattr(kernel, "__self__", None), Additive):
        return "additive"
    return getattr(kernel, "__name__", type(kernel).__name__)


def feed_forward_box(name: str, network: FeedForward, decoder: bool, seen: dict[int, str]) -> Box:
    """Return the box of a feed-forward network called `name`; `decoder` has no effect. seen: see `count_new`."""
    d_model, d_ff = network.hidden.in_features, network.hidden.out_features
    sizes = f"{d_model:,} → {d_ff:,} → {network.out.out_features:,}, {network.activation.__name__}"
    return Box("Feed forward", name, (sizes,), count_new(network, name, seen), "feed forward")


def norm_box(title: str, name: str, norm: nn.Module, seen: dict[int, str]) -> Box:
    """Return the box, with this title, of the layer normalisation called `name`. seen: see `count_new`."""
    return Box(title, name, (type(norm).__name__,), count_new(norm, name, seen), "norm")
