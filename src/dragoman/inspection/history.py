"""How a model learned, seen from outside: its checkpoints, one after the other.

Shapes: L layers with attention over the source, H heads, T target tokens, S source tokens, W target words, U source
words.
"""

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman import __version__
from dragoman.alignment import Alignment
from dragoman.data.batches import Batch, Ids, plan
from dragoman.data.tokenizer import Tokenizer
from dragoman.decoding.forced import max_positions
from dragoman.errors import DragomanError, UsageError
from dragoman.inspection.attention import Word, attention_maps, by_word, cross_attention, subwords, words
from dragoman.inspection.figure import LARGEST, NUMBERS_UP_TO, WEIGHTS, Picture, shortened, show, write_whole
from dragoman.model import Model
from dragoman.model.recurrent import Recurrence
from dragoman.model_folder import read_model, weights

SAMPLE = 100  # pairs that gradients and entropies are taken from
TOKENS = 1024  # in a batch of them, and in a sentence
LONGEST = 60  # tokens of a side of the sentence that is filmed
FRAMES = 10  # in a figure; the page has them all
FINEST = 2**16 - 1  # the page holds weights as whole numbers of 16 bits: this one is 1

Pair = tuple[Ids, Ids]
Layers = dict[str, float]  # a number for each layer, by its name


@dataclass(frozen=True)
class Frame:
    """What one checkpoint shows."""

    step: int
    loss: float  # nats per target token of the sample, with label smoothing, without dropout
    gradients: Layers  # norm of the gradient of that loss
    updates: (
        Layers  # norm of the change since the frame before, over the norm of the weights; of the first one: nothing
    )
    spread: dict[
        str, list[float]
    ]  # entropy of each attention layer, by head: 0, it looks at one token; 1, at all alike
    film: Tensor  # (L, H, W, U): how much each target word looked at each source word


@dataclass(frozen=True)
class Insight:
    """The frames of a run, the first step first."""

    run: str
    pairs: int  # in the sample
    target: list[str]  # the words of the sentence that is filmed, the end included
    source: list[str]
    focus: Alignment  # the layer and head to look at first
    frames: list[Frame]

    @property
    def where(self) -> str:
        """The layer and head of `focus`, in words."""
        layers, heads = self.frames[0].film.shape[:2]
        head = f"head {self.focus.head} of {heads}" if self.focus.head else f"mean of {heads} heads"
        return f"layer {self.focus.layer} of {layers}, {head}"

    def shown(self, frame: Frame) -> Tensor:
        """(W, U): the film at the layer and head of `focus`."""
        maps = frame.film[self.focus.layer - 1]
        return maps[self.focus.head - 1] if self.focus.head else maps.mean(0)


def look_back(
    run: str,
    checkpoints: Mapping[int, Path],
    pairs: Sequence[tuple[str, str]],
    tags: Sequence[str],
    sentence: int = 1,
    smoothing: float = 0.1,
    pieces: bool = False,
) -> Insight:
    """Go through the checkpoints of a run, given by step, with the first usable pairs and pair number `sentence`.

    The film is of that pair, from 1, with its own target given. Raises UsageError where there is no such pair or it is
    too long, DragomanError for a damaged checkpoint and for a model without attention over the source.
    """
    if not 1 <= sentence <= len(pairs):
        raise UsageError(f"sentence {sentence}: there are {len(pairs):,} pairs, counted from 1")
    model, tokenizer = read_model(next(iter(checkpoints.values())))
    tokens = [encoded(tokenizer, pair, tag) for pair, tag in zip(pairs[: 10 * SAMPLE], tags, strict=False)]
    filmed = encoded(tokenizer, pairs[sentence - 1], tags[sentence - 1])
    found, most = max(map(len, filmed)), min(LONGEST, max_positions(model) - 1)
    if found > most:
        raise UsageError(f"sentence {sentence} has {found} tokens; a film takes at most {most}: choose another one")
    sample = [pair for pair in tokens if max(map(len, pair)) < min(TOKENS, max_positions(model))][:SAMPLE] or [filmed]
    batches = batched(sample)
    label = subwords if pieces else words
    columns, rows = (label(tokenizer, ids) for ids in filmed)
    frames: list[Frame] = []
    before: Model | None = None
    for step, folder in sorted(checkpoints.items()):
        model, _ = read_model(folder)
        film = filmed_attention(model, filmed, rows, columns, folder)
        loss, gradients = loss_and_gradients(model, batches, smoothing)
        updates = changes(before, model) if before else {}
        frames.append(Frame(step, loss, gradients, updates, spreads(model, batches), film))
        before = model
    focus = Alignment.load(folder) or Alignment(layer=len(film))
    if focus.layer > len(film) or (focus.head or 0) > film.size(1):
        raise DragomanError(f"{folder}: {Alignment.RECORD} is of another model: {focus}")
    source, target = ([word.label for word in side] for side in (columns, rows))
    return Insight(run, len(sample), target, source, focus, frames)


def encoded(tokenizer: Tokenizer, pair: tuple[str, str], tag: str) -> Pair:
    source, target = pair
    return tokenizer.encode(source, tag), tokenizer.encode(target)


def batched(pairs: Sequence[Pair]) -> list[Batch]:
    lengths = np.array([[len(source) + 1, len(target) + 1] for source, target in pairs])
    batches = plan(lengths, TOKENS, 0, 0)
    return [
        Batch.of(*map(list, zip(*(pairs[i] for i in batches[number]), strict=True))) for number in range(len(batches))
    ]


def filmed_attention(model: Model, pair: Pair, rows: list[Word], columns: list[Word], folder: Path) -> Tensor:
    try:
        return by_word(cross_attention(model, *pair), rows, columns).clone()
    except ValueError as error:
        raise DragomanError(f"{folder}: {error}: there is nothing to film") from None


# Layers, as people count them.


def layer_of(model: Model, parameter: str) -> str:
    """The layer that a parameter of `model` belongs to: 'encoder 1', 'decoder 2', 'decoder norm', ..."""
    part, *inside = parameter.split(".")
    stack = getattr(model, part)
    if isinstance(stack, nn.ModuleList):
        return f"{part} {int(inside[0]) + 1}"
    if isinstance(stack, Recurrence):
        if isinstance(stack.cells, nn.ModuleList):  # cells.3.input.weight
            return f"{part} {int(inside[1]) // stack.directions + 1}"
        return f"{part} {int(inside[1].split('_')[2][1:]) + 1}"  # cells.weight_ih_l0_reverse
    return part.replace("_", " ")


def layers(model: Model) -> dict[str, list[nn.Parameter]]:
    """The parameters of each layer. A matrix that several share is a layer with all their names."""
    found: dict[str, list[nn.Parameter]] = {}
    for names, tensor in weights(model):
        if isinstance(tensor, nn.Parameter):
            found.setdefault(" = ".join(layer_of(model, name) for name in names), []).append(tensor)
    return found


def norm(tensors: Iterable[Tensor]) -> float:
    """Of all of them as one long vector."""
    return math.sqrt(sum(float(tensor.detach().double().square().sum()) for tensor in tensors))


def loss_and_gradients(model: Model, batches: Sequence[Batch], smoothing: float) -> tuple[float, Layers]:
    """The loss of training on `batches`, in nats per target token without dropout, and the norm of its gradient in each
    layer.
    """
    model.eval().zero_grad()
    tokens, total = sum(batch.tokens for batch in batches), 0.0
    for batch in batches:
        logits = model(batch.source, batch.target, batch.real)
        labels = batch.labels[batch.real]
        loss = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing) / tokens
        loss.backward()
        total += float(loss.detach())
    found = {
        name: norm(parameter.grad for parameter in parameters if parameter.grad is not None)
        for name, parameters in layers(model).items()
    }
    model.zero_grad()
    return total, found


def changes(before: Model, after: Model) -> Layers:
    """How far the weights of each layer have moved, as a share of the length that they have now."""
    found = {}
    for (name, old), new in zip(layers(before).items(), layers(after).values(), strict=True):
        change = norm(b.detach() - a.detach() for a, b in zip(old, new, strict=True))
        found[name] = change / norm(new) if change else 0.0
    return found


@torch.no_grad()
def spreads(model: Model, batches: Sequence[Batch]) -> dict[str, list[float]]:
    """For each attention layer, by head: how evenly a token looks at the n > 1 tokens that it may look at.

    The entropy of its weights over ln n, the mean over all real tokens: 0, at one of them; 1, at all of them alike.
    """
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    for batch in batches:
        with attention_maps(model.eval()) as maps:
            model(batch.source, batch.target, batch.real)
        real = batch.source.ne(model.pad)
        for name, (looked,) in maps.items():
            asking = real if name.startswith("encoder") else batch.real
            keys = real.sum(1, keepdim=True).expand_as(asking)
            if name.startswith("decoder") and not name.endswith("cross_attention"):
                keys = torch.arange(1, asking.size(1) + 1).expand_as(asking)
            asking = asking & (keys > 1)
            even = torch.special.entr(looked.double()).sum(-1) / keys.log().clamp(min=1e-9)[:, None]  # B H T
            sums[name] = sums.get(name, torch.zeros(())) + (even * asking[:, None]).sum((0, 2))
            counts[name] = counts.get(name, 0) + int(asking.sum())
    return {name: (total / max(counts[name], 1)).tolist() for name, total in sums.items()}


# The figure.

KINDS = {
    "encoder": "self-attention of the encoder",
    "decoder": "self-attention of the decoder",
    "cross": "cross-attention",
}


def kind_of(layer: str) -> str:
    """Which of KINDS an attention layer is."""
    if layer.startswith("encoder"):
        return "encoder"
    return "decoder" if layer.startswith("decoder") and not layer.endswith("cross_attention") else "cross"


def heads_of(frames: Sequence[Frame]) -> dict[str, dict[str, list[float]]]:
    """For each kind and each of its heads, 'layer.head' from 1: the spread at each frame."""
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in KINDS}
    for name, first in frames[0].spread.items():
        heads = found[kind_of(name)]
        layer = len({head.split(".")[0] for head in heads}) + 1
        for head in range(len(first)):
            heads[f"{layer}.{head + 1}"] = [frame.spread[name][head] for frame in frames]
    return {kind: heads for kind, heads in found.items() if heads}


def by_layer(numbers: Sequence[Layers]) -> dict[str, list[float]]:
    return {name: [each[name] for each in numbers] for name in numbers[0]}


def spaced(frames: Sequence[Frame]) -> list[Frame]:
    """As many as a figure shows, the first and the last among them."""
    places = np.linspace(0, len(frames) - 1, min(len(frames), FRAMES)).round().astype(int)
    return [frames[place] for place in places]


def picture(insight: Insight) -> Picture:
    """Gradients, updates, entropies and the film in one figure."""
    frames, film = insight.frames, spaced(insight.frames)
    steps = [f"{frame.step:,}" for frame in frames]
    gradients, updates = by_layer([f.gradients for f in frames]), by_layer([f.updates for f in frames[1:]])
    heads = heads_of(frames)
    across = min(len(film), 5)
    rows, columns = math.ceil(len(film) / across), len(insight.source)
    heights = (
        1.2 + 0.24 * len(gradients),
        1.2 + 0.17 * max(map(len, heads.values())),
        0.9 + rows * (0.7 + 0.2 * len(insight.target)),
    )
    width = max(12.0, 1.5 + across * (0.4 + 0.2 * columns))

    def draw(figure: Any) -> None:
        layers, attention, sentence = figure.subfigures(3, 1, height_ratios=heights)
        one, two = layers.subplots(1, 2)
        table(one, gradients, shades(gradients), steps, "Norm of the gradient")
        table(
            two,
            updates,
            shades(updates),
            steps[1:],
            "Change of the weights since the checkpoint before, over their norm",
        )
        for axes, (kind, spread) in zip(np.ravel(attention.subplots(1, len(heads))), heads.items(), strict=True):
            table(axes, spread, spread, steps, f"Entropy over ln n, {KINDS[kind]}")
            axes.set_ylabel("layer.head", fontsize=8)
        panels = sentence.subplots(rows, across, sharex=True, sharey=True, squeeze=False)
        for axes in panels.flat[len(film) :]:
            axes.set_visible(False)
        for axes, frame in zip(panels.flat, film, strict=False):
            show(axes, insight.shown(frame), WEIGHTS)
            axes.set_title(f"step {frame.step:,}", fontsize=9)
            axes.set_xticks(range(columns), map(shortened, insight.source), rotation=90, fontsize=7)
            axes.set_yticks(range(len(insight.target)), map(shortened, insight.target), fontsize=7)
            axes.tick_params(length=0)

    caption = (
        f"{insight.run}: gradients and entropies over {insight.pairs:,} pairs. Norms: the shades are logarithmic. "
        "Entropy: 0, a head looks at one token; 1, at all alike. Below: cross-attention, "
        f"{insight.where}, from white, 0, to dark, 1; each row, a word of the target, sums to 1"
    )
    return Picture(caption, draw, (min(width, LARGEST), min(sum(heights) + 0.5, LARGEST)))


def shades(rows: dict[str, list[float]]) -> dict[str, list[float]]:
    """Where each number is between the lowest of all, 0, and the highest, 1, by their logarithms; 0 for what is 0."""
    logarithms = [math.log(value) for row in rows.values() for value in row if value > 0]
    low, high = min(logarithms, default=0.0), max(logarithms, default=0.0)
    width = (high - low) or 1.0
    return {
        name: [(math.log(value) - low) / width if value > 0 else 0.0 for value in row] for name, row in rows.items()
    }


def table(axes: Any, rows: dict[str, list[float]], shade: dict[str, list[float]], steps: list[str], title: str) -> None:
    """A map with a row for each layer or head and a column for each checkpoint; with its numbers where they fit."""
    show(axes, torch.tensor(list(shade.values())), WEIGHTS)
    every = math.ceil(len(steps) / FRAMES)
    axes.set_xticks(range(0, len(steps), every), steps[::every], fontsize=8)
    axes.set_yticks(range(len(rows)), [name.replace(" = ", " =\n") for name in rows], fontsize=7)
    axes.tick_params(length=0)
    axes.set_xlabel("step", fontsize=8)
    axes.set_title(title, fontsize=9)
    if len(steps) <= NUMBERS_UP_TO:
        for y, name in enumerate(rows):
            for x, (value, dark) in enumerate(zip(rows[name], shade[name], strict=True)):
                colour = "white" if dark > 0.55 else "black"
                axes.text(x, y, f"{value:.2g}", ha="center", va="center", fontsize=6.5, color=colour)


# The page.


@dataclass(frozen=True)
class Cell:
    """A number of the page, and how dark it stands there, from 0 to 1."""

    text: str
    shade: float


def cells(rows: dict[str, list[float]], shade: dict[str, list[float]], digits: str) -> dict[str, list[Cell]]:
    return {
        name: [Cell(format(v, digits), s) for v, s in zip(row, shade[name], strict=True)] for name, row in rows.items()
    }


def write_page(insight: Insight, path: Path) -> None:
    """One HTML file with everything in it: the film with a slider, and all numbers."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dragoman", "inspection"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    frames = insight.frames
    gradients, updates = by_layer([f.gradients for f in frames]), by_layer([f.updates for f in frames[1:]])
    film = torch.stack([frame.film for frame in frames])  # F L H W U
    numbers = (film.double() * FINEST).round().numpy().astype("<u2")
    page = environment.get_template("insight.html").render(
        insight=insight,
        version=__version__,
        gradients=cells(gradients, shades(gradients), ".3g"),
        updates=cells(updates, shades(updates), ".3g"),
        heads={kind: cells(spread, spread, ".2f") for kind, spread in heads_of(frames).items()},
        data={
            "steps": [frame.step for frame in frames],
            "losses": [round(frame.loss, 3) for frame in frames],
            "shape": list(film.shape),
            "finest": FINEST,
            "weights": base64.b64encode(numbers.tobytes()).decode(),
            "layer": insight.focus.layer,
            "head": insight.focus.head or 0,
        },
    )
    write_whole(path, page)
