"""Figure 1 of the paper for any model of ours, drawn from its modules: names, sizes, counts, norms, positions, sharing.

Needs the extra `plot`. A model on the device `meta` will do: nothing is computed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torch import nn

from dragoman.inspection.figure import Picture
from dragoman.model import Model
from dragoman.model.attention import Additive, MultiHeadAttention, explicit, fused
from dragoman.model.positions import POSITIONS, Positions
from dragoman.model.recurrent import PlainRNN, Recurrence, Recurrent
from dragoman.model.transformer import FeedForward, Residual, Transformer

# The paper's colours, but light; nothing is told by them alone.
WORDS, ATTENTION, NORM, FEED_FORWARD, LINEAR, PLAIN = "#fbe3e4", "#ffe8cc", "#f4f7c5", "#d3ecf8", "#dfe0f2", "#ffffff"


@dataclass(frozen=True)
class Box:
    """A module, or an operation without weights."""

    title: str
    module: str  # its name, seen from the layer or the model that holds it; '' for an operation
    details: tuple[str, ...]
    parameters: int  # those that no box before it has
    fill: str
    takes: str = ""  # what it gets from the encoder

    @property
    def lines(self) -> list[str]:
        """What is written in it."""
        name = [self.module] if self.module else []
        return [self.title, *name, *self.details, *counted(self.parameters)]


def counted(parameters: int) -> list[str]:
    return [f"{parameters:,} parameters"] if parameters else []


@dataclass(frozen=True)
class Sublayer:
    """Boxes one above the other."""

    boxes: tuple[Box, ...]
    residual: bool = False  # what goes into the first box is added in the last one


@dataclass(frozen=True)
class Layers:
    """Layers that are all alike, one above the other."""

    module: str  # 'encoder'
    first: int
    times: int
    sublayers: tuple[Sublayer, ...]

    @property
    def parameters(self) -> int:
        """Of one layer."""
        return sum(box.parameters for box in self.boxes)

    @property
    def boxes(self) -> list[Box]:
        """Of one layer."""
        return [box for sublayer in self.sublayers for box in sublayer.boxes]


@dataclass(frozen=True)
class Side:
    """Encoder or decoder, from the bottom to the top."""

    tokens: str  # what goes in
    words: Box
    positions: Box | None
    added: bool  # positions are added to the embeddings, not used in the self-attention
    layers: tuple[Layers, ...]
    top: tuple[Box, ...]

    @property
    def parameters(self) -> int:
        once = [self.words, *([self.positions] if self.positions else []), *self.top]
        return sum(box.parameters for box in once) + sum(layers.times * layers.parameters for layers in self.layers)


def sides(model: Model) -> tuple[Side, Side]:
    """What there is to draw of the encoder and of the decoder; each parameter is counted once, where it is first."""
    seen: dict[int, str] = {}
    embeddings = (
        word_box(model, "source_embedding", "Input embedding", seen),
        word_box(model, "target_embedding", "Output embedding", seen),
    )
    output = word_box(model, "output", "Linear", seen)
    softmax = Box("Softmax", "", (), 0, PLAIN)
    if isinstance(model, Recurrent):
        return recurrent_sides(model, embeddings, (output, softmax), seen)
    return transformer_sides(model, embeddings, (output, softmax), seen)


def transformer_sides(
    model: Transformer, words: tuple[Box, Box], top: tuple[Box, ...], seen: dict[int, str]
) -> tuple[Side, Side]:
    found = []
    for name, inputs, embedding, end in (("encoder", "source", words[0], ()), ("decoder", "target", words[1], top)):
        positions: Positions = getattr(model, f"{name}_positions")
        scheme = position_box(f"{name}_positions", positions, seen)
        added = type(positions).embed is not Positions.embed
        layers = []
        first = 0
        for alike, group in groupby(tuple(sublayers(layer, seen)) for layer in getattr(model, name)):
            times = len(list(group))
            layers.append(Layers(name, first, times, alike))
            first += times
        norm = getattr(model, f"{name}_norm")
        last = () if isinstance(norm, nn.Identity) else (norm_box("Norm", f"{name}_norm", norm, seen),)
        tokens = f"{inputs} tokens" + (", shifted right" if name == "decoder" else "")
        found.append(Side(tokens, embedding, scheme, added, tuple(layers), (*last, *end)))
    return found[0], found[1]


def sublayers(layer: nn.Module, seen: dict[int, str]) -> Iterator[Sublayer]:
    """Each module that has a Residual of its name around it, in the order in which they act."""
    for name, around in layer.named_children():
        if not isinstance(around, Residual):
            continue
        inner = getattr(layer, name.removeprefix("around_"))
        box = attention_box if isinstance(inner, MultiHeadAttention) else feed_forward_box
        act = box(name.removeprefix("around_"), inner, hasattr(layer, "cross_attention"), seen)
        norm = f"{name}.norm"
        if around.norm_first:
            yield Sublayer((norm_box("Norm", norm, around.norm, seen), act, Box("Add", "", (), 0, NORM)), True)
        else:
            yield Sublayer((act, norm_box("Add & norm", norm, around.norm, seen)), True)


def recurrent_sides(
    model: Recurrent, words: tuple[Box, Box], top: tuple[Box, ...], seen: dict[int, str]
) -> tuple[Side, Side]:
    middle = []
    if (attention := model.attention) is not None:
        title = "Additive attention" if scored(attention.kernel) == "additive" else "Dot-product attention"
        takes = "all states of the encoder"
        middle.append(Box(title, "attention", (), own(attention, "attention", seen), ATTENTION, takes))
    size = f"{model.combine.in_features:,} → {model.combine.out_features:,}, tanh"
    middle.append(Box("Linear", "combine", (size,), own(model.combine, "combine", seen), LINEAR))
    encoder = Side("source tokens", words[0], None, False, (recurrence("encoder", model.encoder, "", seen),), ())
    layers = (recurrence("decoder", model.decoder, "last state of the encoder", seen),)
    return encoder, Side("target tokens, shifted right", words[1], None, False, layers, (*middle, *top))


def recurrence(name: str, module: Recurrence, takes: str, seen: dict[int, str]) -> Layers:
    """Its layers have equal sizes, so each has an equal share of the parameters."""
    both, size = module.shape
    times = both // module.directions
    cells: Any = module.cells
    if isinstance(cells, nn.ModuleList):
        cell: PlainRNN = cells[0]  # type: ignore[assignment]
        title = f"RNN, {cell.activation.__name__}"
    else:
        title = type(cells).__name__
    units = f"{module.directions} directions, {size:,} units each" if module.directions > 1 else f"{size:,} units"
    box = Box(title, f"{name}.cells", (units,), own(module, name, seen) // times, ATTENTION, takes)
    return Layers(name, 0, times, (Sublayer((box,)),))


def own(module: nn.Module, name: str, seen: dict[int, str]) -> int:
    """The parameters of `module` that were not seen before."""
    found = 0
    for parameter in module.parameters():
        found += parameter.numel() if id(parameter) not in seen else 0
        seen.setdefault(id(parameter), name)
    return found


def word_box(model: Model, name: str, title: str, seen: dict[int, str]) -> Box:
    module = getattr(model, name)
    words, size = module.weight.shape
    details = [f"{words:,} words of {size:,}"]
    if isinstance(module, nn.Embedding) and getattr(model.config, "scale_embedding", True):
        details.append(f"times √{size}")
    if (first := seen.get(id(module.weight), name)) != name:
        details.append(f"the matrix of {first}")
    if getattr(module, "bias", None) is not None:
        details.append("with bias")
    return Box(title, name, tuple(details), own(module, name, seen), WORDS if title != "Linear" else LINEAR)


def position_box(name: str, positions: Positions, seen: dict[int, str]) -> Box | None:
    scheme = next(scheme for scheme, kind in POSITIONS.items() if type(positions) is kind)
    acts = {
        "embed": "added to the embeddings",
        "rotate": "turns queries and keys",
        "rotate_across": "over the source, too",
        "bias": "added to the scores, per head",
    }
    does = [acts[hook] for hook in acts if getattr(type(positions), hook) is not getattr(Positions, hook)]
    if not does:
        return None
    return Box(f"{scheme.capitalize()} positions", name, tuple(does), own(positions, name, seen), PLAIN)


def attention_box(name: str, attention: MultiHeadAttention, decoder: bool, seen: dict[int, str]) -> Box:
    heads = attention.heads
    d_k, d_v = attention.query.out_features // heads, attention.value.out_features // heads
    cross = name == "cross_attention"
    title = "Masked multi-head attention" if decoder and not cross else "Multi-head attention"
    details = [f"{heads} head{'s' if heads > 1 else ''}, d_k {d_k}, d_v {d_v}", scored(attention.kernel)]
    if attention.query.bias is not None:
        details.append("with biases")
    takes = "keys and values of the source" if cross else ""
    return Box(title, name, tuple(details), own(attention, name, seen), ATTENTION, takes)


def scored(kernel: Callable[..., Any]) -> str:
    """How a kernel compares queries with keys; the name of one that is not ours."""
    if kernel in (fused, explicit):
        return "scaled dot product"
    if isinstance(getattr(kernel, "__self__", None), Additive):
        return "additive"
    return getattr(kernel, "__name__", type(kernel).__name__)


def feed_forward_box(name: str, network: FeedForward, decoder: bool, seen: dict[int, str]) -> Box:
    d_model, d_ff = network.hidden.in_features, network.hidden.out_features
    sizes = f"{d_model:,} → {d_ff:,} → {network.out.out_features:,}, {network.activation.__name__}"
    return Box("Feed forward", name, (sizes,), own(network, name, seen), FEED_FORWARD)


def norm_box(title: str, name: str, norm: nn.Module, seen: dict[int, str]) -> Box:
    return Box(title, name, (type(norm).__name__,), own(norm, name, seen), NORM)


# The picture. One unit is an inch.

WIDTH, BESIDE = 2.5, 2.1  # of boxes, and of those that stand beside the columns
GAP, EDGE, LINE = 0.26, 0.1, 0.145  # between boxes, above and below their text, of a line of it
AROUND, FRAME, OUTSIDE, BETWEEN = 0.22, 0.42, 3.0, 2.9  # outside a column: residuals, frame, all; between the two
SMALL, LARGE = 7.5, 13.0  # points


def architecture(model: Model, name: str) -> Picture:
    """The picture of `model`, called `name`."""
    encoder, decoder = sides(model)
    left, right = OUTSIDE, OUTSIDE + WIDTH + BETWEEN
    width, tall = right + WIDTH + OUTSIDE, max(height_of(encoder), height_of(decoder)) + 1.5
    facts = f"{encoder.parameters + decoder.parameters:,} parameters, d_model {model.target_embedding.embedding_dim:,}"
    if model.dropout.rate:
        facts += f", dropout {model.dropout.rate:g}"

    def draw(figure: Any) -> None:
        figure.set_layout_engine("none")  # every inch is spoken for
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, tall))
        axes.axis("off")
        memory, _ = draw_side(axes, encoder, left, -1)
        top, wanted = draw_side(axes, decoder, right, 1)
        for number, (y, takes) in enumerate(wanted):  # from the top of the encoder to whoever asks for it
            centre, up = left + WIDTH / 2, memory + 0.15 + 0.12 * number
            bend = left + WIDTH + FRAME + 0.15 + 0.15 * number
            axes.plot([centre, centre, bend, bend, right - 0.1], [memory, up, up, y, y], color="black", linewidth=0.9)
            arrow(axes, (right - 0.15, y), (right, y))
            axes.text(right - FRAME - 0.08, y + 0.05, takes, ha="right", fontsize=SMALL)
        arrow(axes, (right + WIDTH / 2, top), (right + WIDTH / 2, top + GAP))
        axes.text(right + WIDTH / 2, top + GAP + 0.06, "probabilities of the next token", ha="center", fontsize=SMALL)
        axes.text(width / 2, tall - 0.35, f"{name}: {type(model).__name__}", ha="center", fontsize=LARGE)
        axes.text(width / 2, tall - 0.55, facts, ha="center", fontsize=9)

    return Picture("", draw, (width, tall))


def draw_side(axes: Any, side: Side, x: float, outward: int) -> tuple[float, list[tuple[float, str]]]:
    """Draw a column whose boxes begin at x; outward is -1 where its outer side is the left one, else 1.

    Returns where it ends, and where something is wanted from the encoder.
    """
    centre = x + WIDTH / 2
    outer = centre + outward * WIDTH / 2
    top = 0.25
    wanted: list[tuple[float, str]] = []
    looking: list[float] = []  # where attention is

    def put(box: Box, gap: float) -> float:
        """Put a box on top of what is there; returns the middle of its height."""
        nonlocal top
        arrow(axes, (centre, top), (centre, top + gap))
        middle = top + gap + height(box) / 2
        draw_box(axes, box, x, top + gap, WIDTH)
        top += gap + height(box)
        if box.takes:
            wanted.append((middle, box.takes))
        if box.fill == ATTENTION:
            looking.append(middle)
        return middle

    axes.text(centre, 0.12, side.tokens, ha="center", fontsize=SMALL)
    put(side.words, GAP)
    meeting = top + GAP + 0.12  # of embeddings and positions
    if side.added:
        arrow(axes, (centre, top), (centre, top + GAP))
        axes.plot([centre], [meeting], "o", markersize=17, markerfacecolor="white", markeredgecolor="black")
        axes.text(centre, meeting, "+", ha="center", va="center_baseline", fontsize=LARGE)
        top = meeting + 0.12
    for layers in side.layers:
        bottom = top + 0.12
        for number, sublayer in enumerate(layers.sublayers):
            entry = top + (0.2 if number == 0 else 0.08)
            middles = [put(box, GAP if index or number else GAP + 0.12) for index, box in enumerate(sublayer.boxes)]
            if sublayer.residual:
                away = outer + outward * AROUND
                axes.plot([centre, away, away], [entry, entry, middles[-1]], color="black", linewidth=0.9)
                arrow(axes, (away, middles[-1]), (outer, middles[-1]))
        draw_frame(axes, layers, x, bottom, top + 0.12, outward)
        top += 0.12
    if side.positions and (side.added or looking):  # without attention, there is nothing that they act on
        at = meeting if side.added else looking[0]
        near = outer + outward * (FRAME + 0.3)
        draw_box(axes, side.positions, min(near, near + outward * BESIDE), at - height(side.positions) / 2, BESIDE)
        arrow(axes, (near, at), (centre + outward * 0.12 if side.added else outer, at))
    for box in side.top:
        put(box, GAP)
    return top, wanted


def height_of(side: Side) -> float:
    """Where `draw_side` ends."""
    boxes = [side.words, *side.top, *(box for layers in side.layers for box in layers.boxes)]
    return (
        0.25
        + sum(GAP + height(box) for box in boxes)
        + (GAP + 0.24 if side.added else 0)
        + sum(0.24 for _ in side.layers)
    )


def draw_frame(axes: Any, layers: Layers, x: float, bottom: float, top: float, outward: int) -> None:
    """Around layers: how many there are, which ones, and how many parameters each has."""
    rectangle(axes, x - FRAME, bottom, WIDTH + 2 * FRAME, top - bottom, facecolor="none", linestyle="--")
    edge = x - FRAME - 0.1 if outward < 0 else x + WIDTH + FRAME + 0.1
    side = "right" if outward < 0 else "left"
    last = layers.first + layers.times - 1
    which = f"layer {layers.first + 1}" if layers.times == 1 else f"layers {layers.first + 1} to {last + 1}"
    axes.text(edge, top - 0.25, f"{layers.times} ×", ha=side, fontsize=LARGE)
    axes.text(edge, top - 0.42, f"{layers.module}: {which}", ha=side, fontsize=SMALL)
    axes.text(edge, top - 0.42 - LINE, f"{layers.parameters:,} parameters each", ha=side, fontsize=SMALL)


def height(box: Box) -> float:
    return 2 * EDGE + LINE * len(box.lines)


def draw_box(axes: Any, box: Box, x: float, y: float, width: float) -> None:
    rectangle(axes, x, y, width, height(box), facecolor=box.fill)
    for number, line in enumerate(box.lines):
        place = (x + width / 2, y + height(box) - EDGE - LINE * (number + 0.5))
        axes.text(*place, line, ha="center", va="center", fontsize=SMALL if number else 9)


def rectangle(axes: Any, x: float, y: float, width: float, height: float, **look: str) -> None:
    corners = [x, x + width, x + width, x], [y, y, y + height, y + height]
    axes.fill(*corners, edgecolor="black", linewidth=0.9, zorder=2, **look)


def arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    look = {"arrowstyle": "-|>", "linewidth": 0.9, "color": "black", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 9}
    axes.annotate("", end, start, arrowprops=look)
