"""Draw an architecture. One unit is an inch."""

from typing import Any

from dragoman.inspection.architecture import Box, BoxKind, LayerGroup, Stack, stacks
from dragoman.inspection.figure import Figure
from dragoman.model import Model

# The paper's colours, lighter. What they tell is also in the text of the boxes.
FILLS: dict[BoxKind, str] = {
    "embedding": "#fbe3e4",
    "attention": "#ffe8cc",
    "norm": "#f4f7c5",
    "feed forward": "#d3ecf8",
    "linear": "#dfe0f2",
    "plain": "#ffffff",
}
WIDTH, BESIDE = 2.5, 2.1  # of boxes, and of those beside the columns
GAP, EDGE, LINE = 0.26, 0.1, 0.145  # between boxes, above and below their text, of a line of it
AROUND, FRAME, OUTSIDE, BETWEEN = 0.22, 0.42, 3.0, 2.9  # outside a column: residuals, frame, all; between the two
SMALL, LARGE = 7.5, 13.0  # points


def architecture_figure(model: Model, name: str) -> Figure:
    """Return the drawing of `model`, called `name`."""
    encoder, decoder = stacks(model)
    left, right = OUTSIDE, OUTSIDE + WIDTH + BETWEEN
    width, height = right + WIDTH + OUTSIDE, max(stack_height(encoder), stack_height(decoder)) + 1.5
    facts = f"{encoder.parameters + decoder.parameters:,} parameters, d_model {model.target_embedding.embedding_dim:,}"
    if model.config.dropout:
        facts += f", dropout {model.config.dropout:g}"

    def draw(figure: Any) -> None:
        figure.set_layout_engine("none")  # every position below is in inches
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
        axes.axis("off")
        memory, _ = draw_stack(axes, encoder, left, -1)
        top, inputs = draw_stack(axes, decoder, right, 1)
        for number, (y, label) in enumerate(inputs):  # from the top of the encoder
            centre, up = left + WIDTH / 2, memory + 0.15 + 0.12 * number
            bend = left + WIDTH + FRAME + 0.15 + 0.15 * number
            axes.plot([centre, centre, bend, bend, right - 0.1], [memory, up, up, y, y], color="black", linewidth=0.9)
            arrow(axes, (right - 0.15, y), (right, y))
            axes.text(right - FRAME - 0.08, y + 0.05, label, ha="right", fontsize=SMALL)
        arrow(axes, (right + WIDTH / 2, top), (right + WIDTH / 2, top + GAP))
        axes.text(right + WIDTH / 2, top + GAP + 0.06, "probabilities of the next token", ha="center", fontsize=SMALL)
        axes.text(width / 2, height - 0.35, f"{name}: {type(model).__name__}", ha="center", fontsize=LARGE)
        axes.text(width / 2, height - 0.55, facts, ha="center", fontsize=9)

    return Figure("", draw, (width, height))


def draw_stack(axes: Any, stack: Stack, x: float, outward: int) -> tuple[float, list[tuple[float, str]]]:
    """Draw a column whose boxes begin at x; outward is -1 where its outer side is the left one, else 1.

    Return the y of its top, and y and label of each input from the encoder.
    """
    centre = x + WIDTH / 2
    outer = centre + outward * WIDTH / 2
    top = 0.25
    inputs: list[tuple[float, str]] = []
    attention: list[float] = []  # the y of each such box

    def put(box: Box, gap: float) -> float:
        """Draw a box on top of the column; return the y of its middle."""
        nonlocal top
        arrow(axes, (centre, top), (centre, top + gap))
        middle = top + gap + box_height(box) / 2
        draw_box(axes, box, x, top + gap, WIDTH)
        top += gap + box_height(box)
        if box.from_encoder:
            inputs.append((middle, box.from_encoder))
        if box.kind == "attention":
            attention.append(middle)
        return middle

    axes.text(centre, 0.12, stack.tokens, ha="center", fontsize=SMALL)
    put(stack.embedding, GAP)
    sum_y = top + GAP + 0.12  # where embeddings and positions are added
    if stack.added:
        arrow(axes, (centre, top), (centre, top + GAP))
        axes.plot([centre], [sum_y], "o", markersize=17, markerfacecolor="white", markeredgecolor="black")
        axes.text(centre, sum_y, "+", ha="center", va="center_baseline", fontsize=LARGE)
        top = sum_y + 0.12
    if stack.norm:
        put(stack.norm, GAP)
    for group in stack.groups:
        bottom = top + 0.12
        for number, sublayer in enumerate(group.sublayers):
            entry = top + (0.2 if number == 0 else 0.08)
            middles = [put(box, GAP if index or number else GAP + 0.12) for index, box in enumerate(sublayer.boxes)]
            if sublayer.residual:
                away = outer + outward * AROUND
                axes.plot([centre, away, away], [entry, entry, middles[-1]], color="black", linewidth=0.9)
                arrow(axes, (away, middles[-1]), (outer, middles[-1]))
        draw_frame(axes, group, x, bottom, top + 0.12, outward)
        top += 0.12
    if stack.positions and (stack.added or attention):  # without attention there is nothing that positions act on
        y = sum_y if stack.added else attention[0]
        near = outer + outward * (FRAME + 0.3)
        draw_box(axes, stack.positions, min(near, near + outward * BESIDE), y - box_height(stack.positions) / 2, BESIDE)
        arrow(axes, (near, y), (centre + outward * 0.12 if stack.added else outer, y))
    for box in stack.top:
        put(box, GAP)
    return top, inputs


def stack_height(stack: Stack) -> float:
    """Return the y, in inches, at which `draw_stack` ends."""
    boxes = [
        stack.embedding,
        *filter(None, [stack.norm]),
        *stack.top,
        *(box for group in stack.groups for box in group.boxes),
    ]
    frames = 0.24 * len(stack.groups)
    return 0.25 + sum(GAP + box_height(box) for box in boxes) + (GAP + 0.24 if stack.added else 0) + frames


def draw_frame(axes: Any, group: LayerGroup, x: float, bottom: float, top: float, outward: int) -> None:
    """Frame a group of layers between the heights `bottom` and `top`: how many they are, which, and their parameters.

    x: where the boxes begin; outward: as for `draw_stack`.
    """
    rectangle(axes, x - FRAME, bottom, WIDTH + 2 * FRAME, top - bottom, facecolor="none", linestyle="--")
    edge = x - FRAME - 0.1 if outward < 0 else x + WIDTH + FRAME + 0.1
    side = "right" if outward < 0 else "left"
    last = group.first + group.times - 1
    which = f"layer {group.first + 1}" if group.times == 1 else f"layers {group.first + 1} to {last + 1}"
    axes.text(edge, top - 0.25, f"{group.times} ×", ha=side, fontsize=LARGE)
    axes.text(edge, top - 0.42, f"{group.module}: {which}", ha=side, fontsize=SMALL)
    axes.text(edge, top - 0.42 - LINE, f"{group.parameters:,} parameters each", ha=side, fontsize=SMALL)


def box_height(box: Box) -> float:
    """Return the height of a box in inches, which depends on its lines."""
    return 2 * EDGE + LINE * len(box.lines)


def draw_box(axes: Any, box: Box, x: float, y: float, width: float) -> None:
    """Draw a box with its text; x and y are its lower left corner."""
    rectangle(axes, x, y, width, box_height(box), facecolor=FILLS[box.kind])
    for number, line in enumerate(box.lines):
        position = (x + width / 2, y + box_height(box) - EDGE - LINE * (number + 0.5))
        axes.text(*position, line, ha="center", va="center", fontsize=SMALL if number else 9)


def rectangle(axes: Any, x: float, y: float, width: float, height: float, **style: str) -> None:
    """Draw a rectangle on `axes`; x and y are its lower left corner, `style` is for matplotlib."""
    corners = [x, x + width, x + width, x], [y, y, y + height, y + height]
    axes.fill(*corners, edgecolor="black", linewidth=0.9, zorder=2, **style)


def arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw an arrow on `axes` from `start` to `end`."""
    style = {"arrowstyle": "-|>", "linewidth": 0.9, "color": "black", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 9}
    axes.annotate("", end, start, arrowprops=style)
