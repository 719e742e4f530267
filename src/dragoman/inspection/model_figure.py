"""Lay out the paper's Figure 1 for a page, from the modules of a model: boxes to click, and the lines between them.

One unit is a pixel on a phone. Encoder left, decoder right, both from the bottom to the top.
"""

from dataclasses import dataclass, field
from typing import Literal

from dragoman.inspection.architecture import Box, LayerGroup, Stack, stacks
from dragoman.inspection.roles import Role
from dragoman.model import Model

Sort = Literal[
    "embedding", "positions", "self", "masked", "cross", "feed-forward", "add-norm", "norm", "add", "linear", "softmax"
]
SORTS: dict[tuple[str, str], Sort] = {  # by the module of a box in a layer, and its side
    ("attention", "encoder"): "self",
    ("attention", "decoder"): "masked",
    ("cross_attention", "decoder"): "cross",
}
TITLES: dict[str, Sort] = {
    "Feed forward": "feed-forward",
    "Add & norm": "add-norm",
    "Norm": "norm",
    "Add": "add",
    "Linear": "linear",
    "Softmax": "softmax",
}
PORTS: dict[Sort, dict[Role, float]] = {  # where arrows enter attention, in parts of its width
    "self": {"query": 0.2, "key": 0.5, "value": 0.8},
    "masked": {"query": 0.2, "key": 0.5, "value": 0.8},
    "cross": {"value": 0.14, "key": 0.36, "query": 0.75},  # two of them come from the left, from the encoder
}
ACROSS: dict[Role, tuple[float, float, float]] = {  # above the encoder, right of the middle, below the box
    "key": (14, -3, 13),
    "value": (21, 4, 6),
}
WIDTH, HEIGHT, TALL = 148, 30, 46  # of boxes; of attention, whose inputs have letters
GAP, BELOW_SUBLAYER, SPLIT, OUTSIDE, FRAME = 12, 26, 7, 12, (18, 7)
LEFT, MIDDLE, TOTAL = 28, 380 / 2, 380
SMALL = 13  # the height of a line of small text


@dataclass(frozen=True)
class DrawnBox:
    """A box, and what the page shows of it."""

    sort: Sort
    key: str  # of what comes out of it, with {layer} for the number of its layer
    layers: range  # empty for what is in no layer
    x: float
    y: float
    height: float

    @property
    def inputs(self) -> list[tuple[float, Role]]:
        """The x of each arrow into attention, and its role."""
        return [(self.x + part * WIDTH, role) for role, part in PORTS.get(self.sort, {}).items()]


@dataclass
class Drawing:
    """Figure 1, with y growing upwards until `height` is known."""

    boxes: list[DrawnBox] = field(default_factory=list)
    lines: list[tuple[str, list[tuple[float, float]]]] = field(default_factory=list)  # a class, and the corners
    texts: list[tuple[str, float, float]] = field(default_factory=list)  # a key of the texts or '2 ×', x and y
    frames: list[tuple[float, float, float]] = field(default_factory=list)  # x, y of the top, height
    height: float = 0.0

    def flip(self) -> "Drawing":
        """Return the drawing with y growing downwards, as SVG has it."""
        top = self.height
        return Drawing(
            [DrawnBox(b.sort, b.key, b.layers, b.x, top - b.y - b.height, b.height) for b in self.boxes],
            [(name, [(x, top - y) for x, y in corners]) for name, corners in self.lines],
            [(text, x, top - y) for text, x, y in self.texts],
            [(x, top - y - height, height) for x, y, height in self.frames],
            top,
        )


def draw_figure(model: Model) -> Drawing:
    """Return Figure 1 of a Transformer whose positions are added to its embeddings, or which has none there."""
    drawing = Drawing()
    encoder, decoder = stacks(model)
    memory = draw_stack(drawing, "encoder", encoder, LEFT)
    draw_stack(drawing, "decoder", decoder, TOTAL - LEFT - WIDTH)
    centre = LEFT + WIDTH / 2
    for box in drawing.boxes:
        for x, role in box.inputs if box.sort == "cross" else ():
            if role in ACROSS:
                above, right, below = memory + ACROSS[role][0], MIDDLE + ACROSS[role][1], box.y - ACROSS[role][2]
                corners = [(centre, memory), (centre, above), (right, above), (right, below), (x, below), (x, box.y)]
                drawing.lines.append((f"{role} arrow", corners))
    drawing.height += 8
    return drawing.flip()


def draw_stack(drawing: Drawing, side: str, stack: Stack, x: float) -> float:
    """Draw encoder or decoder from x; return the y of its top."""
    centre = x + WIDTH / 2
    edge, outward = (x, -1) if side == "encoder" else (x + WIDTH, 1)
    drawing.texts.append((f"{side}.tokens", centre, 4))
    y = 4.0 + SMALL

    def put(sort: Sort, key: str, layers: range = range(0), below: float = GAP) -> DrawnBox:
        nonlocal y
        bottom = y + below
        box = DrawnBox(sort, key, layers, x, bottom, TALL if sort in PORTS else HEIGHT)
        drawing.boxes.append(box)
        split = bottom - SPLIT if box.inputs else bottom
        drawing.lines.append(("" if box.inputs else "arrow", [(centre, y), (centre, split)]))
        for place, role in box.inputs:
            if sort != "cross" or role not in ACROSS:
                drawing.lines.append((f"{role} arrow", [(centre, split), (place, split), (place, bottom)]))
        y = bottom + box.height
        return box

    put("embedding", stack.embedding.module)
    if stack.positions and stack.added:
        put("positions", stack.positions.module)
    for group in stack.groups:
        bottom, layers = y + GAP, range(group.first, group.first + group.times)
        for sublayer in group.sublayers:
            fork, below = y + BELOW_SUBLAYER / 2 + 2, float(BELOW_SUBLAYER)
            for box in sublayer.boxes:
                last = put(sort_of(box, side), key_of(box, sublayer.boxes, group), layers, below)
                below = GAP
            join, outer = last.y + last.height / 2, edge + outward * OUTSIDE
            drawing.lines.append(("residual arrow", [(centre, fork), (outer, fork), (outer, join), (edge, join)]))
        drawing.frames.append((x - FRAME[side == "decoder"], bottom, y + GAP - 2 - bottom))
        drawing.texts.append((f"{group.times} ×", edge + outward * (OUTSIDE + 4), y + GAP + 4))
        y += GAP
        drawing.lines.append(("", [(centre, y - GAP), (centre, y)]))
    for box in stack.top:
        put(TITLES[box.title], box.module or "softmax")
    if side == "decoder":
        drawing.lines.append(("arrow", [(centre, y), (centre, y + GAP)]))
        drawing.texts.append(("probabilities", centre, y + GAP + 4))
        y += GAP + SMALL
    drawing.height = max(drawing.height, y)
    return y


def sort_of(box: Box, side: str) -> Sort:
    """Return what the page shows of a box."""
    return SORTS.get((box.module, side)) or TITLES[box.title]


def key_of(box: Box, boxes: tuple[Box, ...], group: LayerGroup) -> str:
    """Return the name of what comes out of a box; `boxes`: those of its sublayer, whose norm names the addition."""
    norm = next(other.module for other in boxes if other.module.endswith(".norm"))
    return f"{group.module}.{{layer}}.{box.module or norm.removesuffix('norm') + 'add'}"
