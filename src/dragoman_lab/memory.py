"""What a memory of approved pairs can do without any training, and what it cannot: new words, and a new order.

Shapes: N states of the memory, R of the sentences that are tested, M d_model, k neighbours, V words.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from dragoman.data.tokenizer import EOS, SPECIAL
from dragoman.memory.states import Vectors, read_pairs
from dragoman.memory.weighting import NEIGHBOURS, Weighting, token_shares
from dragoman.model import Model
from dragoman.model.transformer import Transformer
from dragoman_lab.drawing import Panel, lines, mean_and_range
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.tasks import Pair, Task, copying, learn, small

TASK = copying(vocabulary=40, shortest=3, longest=8)
CONFIG = small(64)
CHANGED = range(len(SPECIAL), len(SPECIAL) + 8)  # words that are translated by others from now on
SIZES = (10, 30, 100, 300, 1000)  # pairs of a memory
TESTED, BATCH = 200, 32
# How the memory is weighed: it counts from far away, for nothing else is asked.
UNIT, SHARPNESS, MOST = 5, 100.0, 0.95  # a unit of distance, in variances of the states
TRAINED = "trained on the pairs"


def with_new_words(pair: Pair) -> Pair:
    """Return a pair in whose target each of the CHANGED words is the next of them."""
    source, target = pair
    return source, [CHANGED[(word + 1) % len(CHANGED)] if word in CHANGED else word for word in target]


def in_new_order(pair: Pair) -> Pair:
    """Return a pair whose target is reversed."""
    source, target = pair
    return source, target[::-1]


def read(model: Model, pairs: Sequence[Pair]) -> Vectors:
    """Return what the decoder says before each target token of some pairs."""
    sources, targets = ([list(ids) for ids in side] for side in zip(*pairs, strict=True))
    columns = zip(*read_pairs(model, sources, targets), strict=True)
    return Vectors(*(np.concatenate(column) for column in columns))


@torch.no_grad()
def hits(model: Model, tested: Vectors, remembered: Vectors | None) -> Tensor:
    """Return whether the most probable word is the right one (R,), with a memory if there is one.

    The nearest states of the memory vote for their words, the nearer the louder; where they are near, they count for
    more than the model.
    """
    p = model.output(torch.from_numpy(tested.vectors)).softmax(-1).double()
    if remembered is not None:
        far = torch.cdist(torch.from_numpy(tested.vectors), torch.from_numpy(remembered.vectors)).square()
        distances, near = far.topk(min(NEIGHBOURS, far.size(1)), largest=False)
        tokens = torch.from_numpy(remembered.tokens)[near]
        weighting = Weighting(scale=UNIT * float(remembered.vectors.var(0).sum()), sharpness=SHARPNESS, most=MOST)
        shares = weighting.neighbours(distances.numpy(), np.zeros(distances.shape, np.float32))
        agreement, known = token_shares(tokens.numpy(), shares).max(1), np.ones(len(distances))
        weight = torch.from_numpy(weighting.memory(distances[:, 0].numpy(), agreement, known))[:, None]
        p = ((1 - weight) * p).scatter_add(1, tokens, weight * torch.from_numpy(shares))
    return p.argmax(-1) == torch.from_numpy(tested.tokens)


@dataclass(frozen=True)
class Right:
    """Shares of words that are right."""

    changed: float  # of those that have another translation
    others: float  # of those that have the old one
    reversed: float  # of those of reversed sentences


def measure(model: Transformer, words: Sequence[Pair], order: Sequence[Pair], seed: int, *, recall: bool) -> Right:
    """Return what is right of new sentences, with a memory of pairs with new words and one of pairs in the new order.

    recall: whether the memories are used.
    """
    tested = TASK.pairs(TESTED, seed + 1_000_000)
    in_words, in_order = (read(model, list(map(change, tested))) for change in (with_new_words, in_new_order))
    right_words = hits(model, in_words, read(model, words) if recall else None)
    right_order = hits(model, in_order, read(model, order) if recall else None)
    changed = torch.from_numpy(np.isin(in_words.tokens, CHANGED))
    reordered = torch.from_numpy(in_order.tokens != EOS)
    parts = right_words[changed], right_words[~changed], right_order[reordered]
    return Right(*(float(part.double().mean()) for part in parts))


def train_on(model: Transformer, pairs: Sequence[Pair], steps: int, seed: int) -> Transformer:
    """Return a copy of a model after so many more steps on some pairs."""
    task = Task("pairs", TASK.vocabulary, lambda random: pairs[int(random.integers(len(pairs)))])
    copy = deepcopy(model)
    learn(copy, task, steps=steps, seed=seed, rate=lambda step: 1e-3, batch=BATCH)
    return copy


Results = dict[str, list[Right]]


def results(steps: int, seeds: Sequence[int]) -> Results:
    """Return by the number of pairs in the memory, '0' for none, and after training, what is right with each seed."""
    rows: Results = {}
    for seed in seeds:
        torch.manual_seed(seed)
        model = Transformer(CONFIG, TASK.vocabulary)
        learn(model, TASK, steps=steps, seed=seed, batch=BATCH)
        pairs = TASK.pairs(max(SIZES), seed + 2_000_000)
        words, order = (list(map(change, pairs)) for change in (with_new_words, in_new_order))
        rows.setdefault("0", []).append(measure(model, words, order, seed, recall=False))
        for size in SIZES:
            rows.setdefault(str(size), []).append(measure(model, words[:size], order[:size], seed, recall=True))
        by_words, by_order = (train_on(model, some, steps, seed) for some in (words, order))
        of_words, of_order = (measure(each, words, order, seed, recall=False) for each in (by_words, by_order))
        rows.setdefault(TRAINED, []).append(replace(of_words, reversed=of_order.reversed))
    return rows


def average(rights: Sequence[Right]) -> Right:
    """Return the means over seeds."""
    return Right(*(fmean(column) for column in zip(*(vars(right).values() for right in rights), strict=True)))


def claims(means: dict[str, Right]) -> Claims:
    """Return each claim and whether it holds. means: by the number of pairs, and TRAINED."""
    none, most, trained = means["0"], means[str(max(SIZES))], means[TRAINED]
    return {
        f"With a memory of {max(SIZES):,} pairs, and no training, {most.changed:.0%} of the words that have a new "
        f"translation are right; without it {none.changed:.0%} are: a memory [teaches|does not teach] new words at "
        "once.": most.changed > 0.9 > none.changed,
        f"Of the other words {most.others:.1%} are right with it and {none.others:.1%} without: the memory [leaves "
        "them alone|harms them].": most.others > none.others - 0.01,
        f"Of reversed sentences a memory of {max(SIZES):,} reversed pairs gets {most.reversed:.0%} of the words right, "
        f"and training on the same pairs {trained.reversed:.0%}: a new order [takes training|needs no "
        "training].": most.reversed < trained.reversed - 0.1,
    }


@experiment(
    "What a memory can and cannot do",
    "common teaching; Khandelwal et al. 2021",
    "Looking up the nearest of the decoder's states over approved pairs adapts a model without any training.",
)
def run(effort: Effort) -> Findings:
    """Let a model that copies remember pairs with new words, and pairs in a new order; then train on them."""
    steps = effort.scale(1200)
    rows = results(steps, effort.seeds)
    means = {name: average(rights) for name, rights in rows.items()}
    curves = {
        name: mean_and_range(
            SIZES, [[vars(rows[str(size)][seed])[field] for size in SIZES] for seed in range(len(effort.seeds))]
        )
        for name, field in (
            ("words with a new translation", "changed"),
            ("other words", "others"),
            ("words of reversed sentences", "reversed"),
        )
    }
    return Findings(
        f"Copying 3 to 8 of {TASK.vocabulary - len(SPECIAL)} words, one layer on each side, d_model {CONFIG.d_model}, "
        f"{steps} steps of {BATCH} sentences, {effort}. Then {len(CHANGED)} of the words have another translation, or "
        f"sentences are reversed. A memory has the decoder's states over such pairs; its {NEIGHBOURS} nearest states "
        "are mixed into the probabilities. Training takes as many steps again.",
        claims(means),
        {
            "Words that are right, by the pairs of the memory": Table(
                "pairs | words with a new translation | other words | words of reversed sentences",
                [(name, *vars(mean).values()) for name, mean in means.items()],
            )
        },
        {
            "memory": Figure(
                "Share of words that are right by the number of pairs in the memory: mean of all seeds, with the "
                "lowest and the highest.",
                lines(
                    Panel(curves, "pairs in the memory", "share that is right", log="x", ticks=SIZES, ylim=(0, 1.05))
                ),
            )
        },
    )
