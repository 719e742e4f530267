"""Trace a word of a translation to the training pairs that taught it.

The pairs are those of a memory over the training corpus, whose states are nearest to the model's own before it wrote
the word. Gradients are a second opinion: a pair taught the word if a small step that makes the word more probable makes
the same word more probable in the pair, too (Pruthi et al. 2020). Alone they rank worse than the states
(docs/notes/memory.md): pairs that the model knows badly have the largest gradients, whatever they are about.

Shapes: T tokens of the word, M numbers of the decoder's output.
"""

import math
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dragoman.alignment.words import Word
from dragoman.data.batches import Ids
from dragoman.decoding.forced import forced_batches, score
from dragoman.errors import DragomanError, UsageError, listed
from dragoman.inspection.inspection import Inspection
from dragoman.memory import ApprovedPair, Memory
from dragoman.memory.index import FAR
from dragoman.memory.states import read_pairs
from dragoman.model import Model

GATHERED = 4_000  # states that are looked at for each token, of each part of the memory
COMPARED = 100  # pairs whose gradients are compared
STEP = 1e-4  # of the weights, as long as this


@dataclass(frozen=True)
class TracedPair:
    """A training pair that may have taught a word."""

    number: int  # in the memory
    pair: ApprovedPair
    distance: float  # squared, of its nearest states to those before the word: the mean over the tokens of the word
    agreement: float | None  # see `agreements`; None where gradients were not compared


class Near(NamedTuple):
    """A pair with states near those of a word."""

    number: int
    distance: float
    tokens: frozenset[int]  # those of the word that it has near


def find_word(inspection: Inspection, wanted: str) -> Word:
    """Return the first word of a translation that is `wanted`, if need be without punctuation, or in other capitals.

    Raise UsageError where there is none.
    """
    words = inspection.target.words[:-1]
    for same in (str, bare, lambda text: bare(text).casefold()):
        for word in words:
            if same(word.label) == same(wanted):
                return word
    raise UsageError(
        f"'{wanted}' is no word of the translation, whose words are: {listed([word.label for word in words])}"
    )


def has_word(text: str, wanted: str) -> bool:
    """Return whether a text has a word, whatever its capitals and the punctuation around it."""
    return bare(wanted).casefold() in (bare(word).casefold() for word in text.split())


def bare(text: str) -> str:
    """Return a text without the punctuation around it."""
    inner = [place for place, letter in enumerate(text) if not unicodedata.category(letter).startswith("P")]
    return text[inner[0] : inner[-1] + 1] if inner else text


def trace(memory: Memory, inspection: Inspection, word: Word, count: int = 10) -> list[TracedPair]:
    """Return the pairs of a memory that taught a word of an inspected translation, the nearest first.

    The gradients of the first COMPARED are compared. Raise DragomanError where no pair has the word.
    """
    source, target = inspection.source.ids, [*inspection.target_tag, *inspection.target.ids]
    places = [place + len(inspection.target_tag) for place in word.tokens]
    near = nearest_pairs(memory, source, target, places)[:count]
    if not near:
        raise DragomanError(f"no pair of {memory.folder} has '{word.label}' near here: is it of the training corpus?")
    scores: list[float | None] = [*agreements(memory, source, target, places, near[:COMPARED])]
    scores += [None] * (len(near) - len(scores))
    return [
        TracedPair(each.number, pair, each.distance, score)
        for each, score in zip(near, scores, strict=True)
        if (pair := memory.pairs[each.number])
    ]


def nearest_pairs(memory: Memory, source: Ids, target: Ids, places: Sequence[int]) -> list[Near]:
    """Return the pairs that have some of the tokens at these places of a target, the nearest first.

    A token that a pair does not have near counts as far away as the farthest state that was looked at.
    """
    (read,) = read_pairs(memory.model, [source], [target])
    tokens, recollection = read.tokens[[*places]].tolist(), memory.recollection()
    keys = recollection.reduction(read.vectors[[*places]])
    by_pair: defaultdict[int, dict[int, float]] = defaultdict(dict)
    farthest = [0.0] * len(tokens)
    for part in recollection.parts:
        states = part.nearest(keys, min(GATHERED, len(part.tokens)))
        for place, (distances, words, pairs) in enumerate(zip(*states, strict=True)):
            there = distances < FAR
            same = there & (words == tokens[place]) & ~recollection.forgotten[pairs]
            farthest[place] = max(farthest[place], float(distances[there].max(initial=0.0)))
            for number, distance in zip(pairs[same].tolist(), distances[same].tolist(), strict=True):
                of_pair = by_pair[number]
                of_pair[place] = min(distance, of_pair.get(place, distance))
    near = [
        Near(
            number,
            float(np.mean([of_pair.get(place, far) for place, far in enumerate(farthest)])),
            frozenset(tokens[place] for place in of_pair),
        )
        for number, of_pair in by_pair.items()
    ]
    return sorted(near, key=lambda each: (each.distance, each.number))


def agreements(memory: Memory, source: Ids, target: Ids, places: Sequence[int], near: Sequence[Near]) -> list[float]:
    """Return how much a step that makes some tokens of a target likelier does so with the same tokens of each pair.

    It is the product of the gradients of the two log-probabilities by all weights, the first of length 1: the change
    of the pair's log-probability, in nats, for each unit of the step. Instead of a gradient of each pair, two steps
    are taken, forwards and back, in float64.
    """
    model = deepcopy(memory.model).double()
    gradients = word_gradients(model, source, target, places)
    weights = list(model.parameters())
    length = torch.stack([gradient.norm() for gradient in gradients]).norm().clamp(min=1e-300)
    sides = [pair_ids(memory, each.number) for each in near]
    changed: list[list[float]] = []
    with torch.no_grad():
        for step in (STEP, -2 * STEP):
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.add_(gradient, alpha=float(step / length))
            changed.append(log_p_of_tokens(model, sides, [each.tokens for each in near]))
    return [(forth - back) / (2 * STEP) for forth, back in zip(*changed, strict=True)]


def pair_ids(memory: Memory, number: int) -> tuple[Ids, Ids]:
    """Return both sides of a pair as ids, tags in front."""
    pair, (source, target) = memory.pairs[number], memory.tokenizers
    assert pair is not None
    return (
        [*source.tag_ids(pair.tag), *source.encode_sources([pair.source])[0]],
        [*target.tag_ids(pair.target_tag), *target.encode(pair.target)],
    )


def word_gradients(model: Model, source: Ids, target: Ids, places: Sequence[int]) -> tuple[Tensor, ...]:
    """Return the gradients, by each weight, of the log-probability of the tokens at these places of a target."""
    model.requires_grad_(True)
    ((_, batch),) = forced_batches(model, [source], [target])
    state: Any = model.start(batch.source)
    log_p = model.output(model.vectors(batch.target, state, batch.real)).log_softmax(-1)
    word = log_p[[*places], batch.labels[0, [*places]]].sum()
    return torch.autograd.grad(word, list(model.parameters()), allow_unused=True, materialize_grads=True)


def log_p_of_tokens(model: Model, sides: Sequence[tuple[Ids, Ids]], tokens: Sequence[frozenset[int]]) -> list[float]:
    """Return for each pair of ids the log-probability, in nats, of those of its target tokens that are named."""
    sources, targets = zip(*sides, strict=True)
    return [
        math.fsum(log_p for token, log_p in zip(scored.tokens, scored.log_p, strict=True) if token in named)
        for scored, named in zip(score(model, sources, targets), tokens, strict=True)
    ]
