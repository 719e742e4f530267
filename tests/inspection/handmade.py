"""What a model would have done, in numbers made by hand: drawings of it are the same on every machine."""

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from dragoman.alignment.heads import AlignmentHead
from dragoman.alignment.words import Word
from dragoman.inspection.embeddings import Neighbourhood
from dragoman.inspection.history import History, Snapshot
from dragoman.inspection.inspection import Alternative, Inspection, Position, Sentence
from dragoman.inspection.occlusion import Occlusion
from dragoman.inspection.stages import Stages
from dragoman.inspection.tree import BeamTree, Fate, Node
from dragoman.model.capture import AttentionKind


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Return whole numbers from 1 to 16 in no order that is easy to see, none like its neighbours."""
    count = math.prod(shape)
    return (torch.arange(seed, seed + count).pow(3).add(5).remainder(17).clamp(min=1)).reshape(shape).float()


def shares(*shape: int, seed: int = 0) -> Tensor:
    """Return weights of which each row sums to 1."""
    table = numbers(*shape, seed=seed)
    return table / table.sum(-1, keepdim=True)


def sentence(text: str, tokens: list[str], words: dict[str, range]) -> Sentence:
    labels = [Word(label, range(index, index + 1)) for index, label in enumerate(tokens)]
    return Sentence(
        text, [300 + index for index in range(len(tokens) - 1)], labels, [Word(*word) for word in words.items()]
    )


SOURCE = sentence(
    "A $dog$ sees.",
    ["A", "␣$", "dog$", "␣sees", ".", "</s>"],
    {"A": range(1), "$dog$": range(1, 3), "sees.": range(3, 5), "</s>": range(5, 6)},
)
TARGET = sentence(
    "개가 봐요",
    ["개", "가", "␣봐요", "</s>"],
    {"개가": range(2), "봐요": range(2, 3), "</s>": range(3, 4)},
)  # fmt: skip


def alternative(token: str, probability: float) -> Alternative:
    return Alternative(len(token), token, probability)


POSITIONS = tuple(
    Position(len(token), token, probability, rank, entropy, tuple(alternative(*other) for other in others))
    for token, probability, rank, entropy, others in [
        ("개", 0.7, 1, 0.81, [("개", 0.7), ("말", 0.2)]),
        ("가", 0.3, 2, 1.3, [("는", 0.6), ("가", 0.3)]),
        ("␣봐요", 0.04, 9, 2.4, [("␣그려요", 0.3), ("␣좋아해요", 0.28)]),
        ("</s>", 1.0, 1, 0.0, [("</s>", 1.0), (".", 0.0)]),
    ]
)


def beam_tree(*rows: tuple[int | None, int, str, float, float, Fate], winner: int) -> BeamTree:
    """Return a search of nodes (parent, step, token, log_p, score, fate)."""
    nodes = [Node(parent, step, 9, token, log_p, score, score / max(step, 1) ** 0.6, fate)
             for parent, step, token, log_p, score, fate in rows]  # fmt: skip
    return BeamTree(2, 0.6, tuple(nodes), winner)


TREE = beam_tree(
    (None, 0, "<s>", 0.0, 0.0, "kept"),
    (0, 1, "개", -0.4, -0.4, "kept"),
    (0, 1, "말", -1.6, -1.6, "kept"),
    (0, 1, "고양이와 새와 곰과 말", -3.0, -3.0, "pruned"),
    (1, 2, "가", -0.3, -0.7, "kept"),
    (2, 2, "이", -0.2, -1.8, "kept"),
    (4, 3, "</s>", -0.001, -0.701, "finished"),
    (5, 3, "␣봐요", -2.0, -3.8, "kept"),
    winner=6,
)


def long_tree(steps: int, end: int, wide: int = 1) -> BeamTree:
    """Return a search that goes on for so many steps, whose best hypothesis ended at step `end`, in its last row."""
    rows: list[tuple[int | None, int, str, float, float, Fate]] = [(None, 0, "<s>", 0.0, 0.0, "kept")]
    parent, winner = 0, 0
    for step in range(1, steps + 1):
        before, parent = parent, len(rows)
        rows += [(before, step, f"{step}.{rank}", -1.0, -float(step), "kept") for rank in range(wide)]
        if step == end:
            winner = len(rows)
            rows.append((before, step, "</s>", -0.1, -0.5 * step, "finished"))
    return beam_tree(*rows, winner=winner)


INSPECTION = Inspection(
    "toy",
    "1.0",
    SOURCE,
    TARGET,
    shares(2, 2, 6, 6),
    shares(2, 2, 4, 4, seed=5).tril() / shares(2, 2, 4, 4, seed=5).tril().sum(-1, keepdim=True),
    shares(2, 2, 4, 6, seed=11),
    POSITIONS,
    TREE,
    AlignmentHead(2, 1),
)
OCCLUSION = Occlusion(
    ["A", "$dog$", "sees."],
    ["개가", "Bundesverfassungsgerichtsentscheidung", "</s>"],
    torch.tensor([0.75, 0.5, 0.0]),
    torch.tensor([[0.7, 1.0, 0.0], [0.03, 0.25, 0.5], [0.75, 0.0, 0.0]]),
)


def stages(
    kind: AttentionKind = "decoder", layer: int = 2, head: int = 1, added: float = 0.0, divisor: float = 2.0
) -> Stages:
    """Return the stages of one head; those of the decoder are masked. added: to what is not masked."""
    queries, keys = INSPECTION.queries_and_keys(kind)
    rows, columns = ([token.label for token in side.tokens] for side in (queries, keys))
    product = numbers(len(rows), len(columns), seed=10 * layer + head) - 8
    scaled = product / divisor
    later = torch.full_like(scaled, -math.inf).triu(1) if kind == "decoder" else torch.zeros(())
    weights = INSPECTION.maps(kind)[layer - 1, head - 1]
    which = f"{kind}, {INSPECTION.describe(kind, layer, head, 'mean')}"
    return Stages(which, rows, columns, product, divisor, scaled, scaled + later + added, weights,
                  numbers(len(rows), 3, seed=layer + head) / 4 - 2)  # fmt: skip


def neighbourhood(words: list[str], moved: float = 0.0) -> Neighbourhood:
    """Return words with two neighbours each, in a plane; a neighbour of one is also that of the next."""
    neighbours = [[300 + index, 301 + index] for index in range(len(words))]
    table = torch.zeros(310, 2)
    table[300:] = numbers(10, 2, seed=3) + moved
    return Neighbourhood(
        words,
        numbers(len(words), 2) + moved,
        neighbours,
        [[f"near {index}" for index in row] for row in neighbours],
        [[0.9 - 0.1 * index, -0.001 - moved] for index in range(len(words))],
        table,
    )


SIDES = neighbourhood(["A", "$dog$", "sees."]), neighbourhood(["개가", "봐요"])


def history(snapshots: int = 2, words: int = 3) -> History:
    """Return the history of a run with layers, heads and a sentence of a few words."""
    layers = {"source embedding = output": 0.5, "encoder 1": 2.0, "decoder 1": 0.0}
    entropies: dict[AttentionKind, list[list[float]]] = {"encoder": [[0.5, 0.25]], "decoder": [], "cross": [[0.9, 0.1]]}
    return History(
        "toy $run$",
        1234,
        ["개가", "봐요", "</s>"][-words:],
        ["step", "dog", "sees", "</s>"],
        AlignmentHead(1, 2),
        [
            Snapshot(
                1000 * step,
                5.125 - step,
                {name: value * step for name, value in layers.items()},
                {name: value / 64 / step for name, value in layers.items()} if step > 1 else {},
                {kind: [[share / step for share in heads] for heads in rows] for kind, rows in entropies.items()},
                shares(1, 2, words, 4, seed=step),
            )
            for step in range(1, snapshots + 1)
        ],
    )


def translator(model: Any = None) -> Any:
    """Return what a view takes from a translator: its model, and the size of its vocabulary."""
    return SimpleNamespace(model=model, tokenizers=SimpleNamespace(source=range(50), target=range(50)))
