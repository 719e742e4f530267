"""Follow a model through its training: what each checkpoint of a run does, one after the other.

Shapes: L layers with attention over the source, H heads, W target words, U source words, both with EOS.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dragoman.alignment.heads import AlignmentHead
from dragoman.alignment.words import Word, fill_gaps, merge_tokens, subwords, words
from dragoman.data.batches import Batch, Ids, plan_batches
from dragoman.data.tokenizers import SideTokenizer, Tokenizers
from dragoman.decoding.forced import max_positions
from dragoman.errors import DragomanError, UsageError
from dragoman.inspection.gradients import LayerNumbers, loss_and_gradient_norms, relative_updates
from dragoman.inspection.heads import normalised_entropies
from dragoman.inspection.inspect import run_forced
from dragoman.inspection.inspection import describe_heads
from dragoman.model import Model
from dragoman.model.capture import AttentionKind
from dragoman.model_folder import read_model

SAMPLE = 100  # pairs that gradients and entropies are taken from
BATCH_TOKENS = 1024  # in a batch of them, and in a sentence
MAX_LENGTH = 60  # tokens of a side of the sentence that is followed

Pair = tuple[Ids, Ids]


@dataclass(frozen=True)
class Snapshot:
    """Record what was measured of one checkpoint."""

    step: int
    loss: float  # nats per target token of the sample, with label smoothing, without dropout
    gradients: LayerNumbers  # norm of the gradient of that loss
    # Norm of the change since the snapshot before, over the norm of the weights; nothing for the first one.
    updates: LayerNumbers
    # Normalised entropy of each head, by kind and layer: 0, it looks at one token; 1, at all alike.
    entropies: dict[AttentionKind, list[list[float]]]
    cross_attention: Tensor  # (L, H, W, U): how much each target word attended to each source word


@dataclass(frozen=True)
class History:
    """The snapshots of a run, in the order of their steps."""

    run: str
    pairs: int  # in the sample
    target: list[str]  # the words of the sentence that is followed, EOS included
    source: list[str]
    head: AlignmentHead  # the head whose map is shown first
    snapshots: list[Snapshot]

    @property
    def head_name(self) -> str:
        """Return 'layer 2 of 6, head 3 of 8' for `head`."""
        layers, heads = self.snapshots[0].cross_attention.shape[:2]
        return describe_heads(f"layer {self.head.layer} of {layers}", self.head.head, heads)

    def map(self, snapshot: Snapshot) -> Tensor:
        """Return the cross-attention (W, U) of `head` in one of the snapshots."""
        maps = snapshot.cross_attention[self.head.layer - 1]
        return maps[self.head.head - 1] if self.head.head else maps.mean(0)

    def entropies(self, kind: AttentionKind) -> dict[str, list[float]]:
        """Return the normalised entropy at each snapshot of each head, 'layer.head' from 1."""
        return {
            f"{layer + 1}.{head + 1}": [snapshot.entropies[kind][layer][head] for snapshot in self.snapshots]
            for layer, heads in enumerate(self.snapshots[0].entropies[kind])
            for head in range(len(heads))
        }

    @property
    def gradients(self) -> dict[str, list[float]]:
        """Return the gradient norm of each layer at each snapshot."""
        return group_by_layer([snapshot.gradients for snapshot in self.snapshots])

    @property
    def updates(self) -> dict[str, list[float]]:
        """Return the relative update of each layer at each snapshot but the first."""
        return group_by_layer([snapshot.updates for snapshot in self.snapshots[1:]])


@dataclass(frozen=True)
class Film:
    """The cross-attention of one sentence pair at each checkpoint of a run, in the order of their steps."""

    steps: list[int]
    target: list[str]  # the words of the pair, EOS included
    source: list[str]
    head: AlignmentHead  # the head whose map is shown first
    cross_attention: Tensor  # (steps, L, H, W, U)


def group_by_layer(numbers: Sequence[LayerNumbers]) -> dict[str, list[float]]:
    """Return the numbers of each layer, by its name: one for each snapshot."""
    return {name: [each[name] for each in numbers] for name in numbers[0]}


def read_history(
    run: str,
    checkpoints: Mapping[int, Path],
    pairs: Sequence[tuple[str, str]],
    tags: Sequence[str],
    sentence: int = 1,
    smoothing: float = 0.1,
    by_subwords: bool = False,
    target_tags: Sequence[str] = (),
) -> History:
    """Return the history of a run: what its checkpoints, given by step, do with the first usable pairs.

    tags: of each source, '' for none; sentence: number of the pair, from 1, whose cross-attention is kept, with its own
    target; smoothing: of the labels, as in the training; by_subwords: keep it by subwords, not by words; target_tags:
    of each target, () for none. Raise UsageError where there is no such pair or it is too long, DragomanError for a
    damaged checkpoint and for a model without attention over the source.
    """
    if not 1 <= sentence <= len(pairs):
        raise UsageError(f"sentence {sentence}: there are {len(pairs):,} pairs, counted from 1")
    model, tokenizers = read_model(next(iter(checkpoints.values())))
    both = list(zip(tags, target_tags or [""] * len(tags), strict=True))
    encoded = [
        encode_pair(tokenizers, pair, *pair_tags) for pair, pair_tags in zip(pairs[: 10 * SAMPLE], both, strict=False)
    ]
    followed = follow(tokenizers, pairs[sentence - 1], both[sentence - 1], subwords if by_subwords else words)
    check_length(followed.pair, sentence, model)
    fitting = [pair for pair in encoded if max(map(len, pair)) < min(BATCH_TOKENS, max_positions(model))]
    sample = fitting[:SAMPLE] or [followed.pair]
    batches = make_batches(sample)
    snapshots: list[Snapshot] = []
    before: Model | None = None
    for step, folder in sorted(checkpoints.items()):
        model, _ = read_model(folder)
        maps = cross_attention(model, followed, folder)
        loss, gradients = loss_and_gradient_norms(model, batches, smoothing)
        updates = relative_updates(before, model) if before else {}
        snapshots.append(Snapshot(step, loss, gradients, updates, normalised_entropies(model, batches), maps))
        before = model
    source, target = followed.labels()
    return History(run, len(sample), target, source, first_head(folder, maps), snapshots)


def read_film(
    checkpoints: Mapping[int, Path],
    pair: tuple[str, str],
    tags: tuple[str, str] = ("", ""),
    sentence: int = 1,
    check: Callable[[], None] = lambda: None,
) -> Film:
    """Return the cross-attention of a pair of texts, given its target, at checkpoints, which are given by step.

    tags: of source and target, '' for none; sentence: its number, for the message; check: is called before each
    checkpoint, and may raise. Raise UsageError for a pair that is too long, DragomanError as `read_history` does.
    """
    model, tokenizers = read_model(next(iter(checkpoints.values())))
    followed = follow(tokenizers, pair, tags, words)
    check_length(followed.pair, sentence, model)
    maps: list[Tensor] = []
    for _, folder in sorted(checkpoints.items()):
        check()
        model, _ = read_model(folder)
        maps.append(cross_attention(model, followed, folder))
    source, target = followed.labels()
    return Film(sorted(checkpoints), target, source, first_head(folder, maps[-1]), torch.stack(maps))


class Followed(NamedTuple):
    """A pair whose cross-attention is looked at."""

    pair: Pair  # with its tags
    tag: int  # tokens of the target's tag, which is not shown
    source: list[Word]  # with EOS and the other tokens that belong to no word
    target: list[Word]  # as `source`

    def labels(self) -> tuple[list[str], list[str]]:
        """Return what source and target are shown as."""
        return [word.label for word in self.source], [word.label for word in self.target]


def follow(
    tokenizers: Tokenizers,
    texts: tuple[str, str],
    tags: tuple[str, str],
    split: Callable[[SideTokenizer, Ids], list[Word]],
) -> Followed:
    """Return a pair of texts with their tags, '' for none, cut into words by `split`: `words` or `subwords`."""
    pair, tag = encode_pair(tokenizers, texts, *tags), len(tokenizers.target.tag_ids(tags[1]))
    shown = pair[0], pair[1][tag:]
    source, target = (fill_gaps(split(side, ids), side, ids) for side, ids in zip(tokenizers, shown, strict=True))
    return Followed(pair, tag, source, target)


def check_length(pair: Pair, sentence: int, model: Model) -> None:
    """Raise UsageError where a side of the pair with this number is too long to be followed."""
    length, limit = max(map(len, pair)), min(MAX_LENGTH, max_positions(model) - 1)
    if length > limit:
        raise UsageError(f"sentence {sentence} has {length} tokens, and the limit is {limit}: choose another one")


def first_head(folder: Path, maps: Tensor) -> AlignmentHead:
    """Return the head that a checkpoint aligns best with, else the last layer. maps: (L, H, W, U), what it attends to.

    Raise DragomanError where there is no such head.
    """
    head = AlignmentHead.load(folder) or AlignmentHead(layer=len(maps))
    if head.layer > len(maps) or (head.head or 0) > maps.size(1):
        raise DragomanError(f"{folder}: {AlignmentHead.RECORD} belongs to another model: {head}")
    return head


def encode_pair(tokenizers: Tokenizers, pair: tuple[str, str], tag: str, target_tag: str = "") -> Pair:
    """Return source and target, each with its tag in front, as ids without EOS."""
    source, target = pair
    return tokenizers.source.encode(source, tag), tokenizers.target.encode(target, target_tag)


def make_batches(pairs: Sequence[Pair]) -> list[Batch]:
    """Return the pairs in batches of similar length and at most BATCH_TOKENS tokens a side."""
    lengths = np.array([[len(source) + 1, len(target) + 1] for source, target in pairs])
    batches = plan_batches(lengths, BATCH_TOKENS, 0, 0)
    return [
        Batch.from_pairs(*map(list, zip(*(pairs[i] for i in batches[number]), strict=True)))
        for number in range(len(batches))
    ]


def cross_attention(model: Model, followed: Followed, folder: Path) -> Tensor:
    """Return the cross-attention (L, H, W, U) of a model between the words of a pair, given the target.

    folder: the model's, for the message. Raise DragomanError for a model without attention over the source.
    """
    weights = run_forced(model, *followed.pair)[0]["cross"]
    if not len(weights):
        raise DragomanError(f"{folder}: this model has no attention over the source: there is nothing to show")
    return merge_tokens(weights[:, :, followed.tag :], followed.target, followed.source)
