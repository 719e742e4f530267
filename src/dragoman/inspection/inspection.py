"""Everything that can be seen of a model while it reads a sentence and writes its translation.

The decoder reads BOS and then the target without EOS; at each position it predicts the token that comes next. So its T
positions have two names: the tokens predicted there, EOS included (the rows of cross-attention, `Inspection.target`),
and the tokens read there, BOS included (both sides of the decoder's self-attention, `Inspection.decoder_input`).

Shapes: L layers, H heads, T target tokens and S source tokens, both with EOS, V vocabulary.
"""

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from dragoman.alignment.heads import AlignmentHead
from dragoman.alignment.words import Word, merge_tokens
from dragoman.config.fields import check_argument, check_choice, check_texts
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import BOS, SPECIAL, TAG
from dragoman.errors import UsageError
from dragoman.inspection import aggregates
from dragoman.inspection.figure import Figure, map_figure
from dragoman.inspection.tree import BeamTree
from dragoman.model.capture import AttentionKind

KINDS: dict[AttentionKind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
TITLES: dict[AttentionKind, str] = {
    "encoder": "What each word of the source attended to",
    "decoder": "What each word of the decoder's input attended to",
    "cross": "What each word of the translation attended to",
}
Aggregate = Literal["mean", "max", "rollout"]
AGGREGATES = {"mean": aggregates.mean, "max": aggregates.largest, "rollout": aggregates.mean}
Hidden = Literal["special", "punctuation"]
HIDDEN: dict[Hidden, str] = {"special": "start, end and tags", "punctuation": "punctuation"}


@dataclass(frozen=True)
class Sentence:
    """A sentence as the model sees it."""

    text: str
    ids: Ids  # without BOS and EOS, and without the tag that a target begins with
    tokens: list[Word]  # one entry for each token, EOS last; a space is shown as ␣
    words: list[Word]  # split at white space; what belongs to no word is an entry of its own, EOS is the last

    def positions_of(self, kinds: Collection[Hidden]) -> set[int]:
        """Return the positions of tokens that `is_special` or `is_punctuation`, as `kinds` says."""
        tests = {"special": is_special, "punctuation": is_punctuation}
        return {position for name in kinds for position, token in enumerate(self.tokens) if tests[name](token.label)}


def is_special(label: str) -> bool:
    """Return whether a label is that of BOS, EOS, padding or a tag."""
    return label in SPECIAL or TAG.fullmatch(label) is not None


def is_punctuation(label: str) -> bool:
    """Return whether a label has nothing but punctuation, signs and ␣."""
    return all(unicodedata.category(character)[0] in "PS" for character in label)  # ␣ is one of the signs


@dataclass(frozen=True)
class Alternative:
    """A token that the model could have chosen."""

    token_id: int
    token: str
    probability: float


@dataclass(frozen=True)
class Position:
    """The probability of a target token and of its alternatives, given the tokens before it."""

    token_id: int
    token: str
    probability: float
    rank: int  # from 1: the most probable
    entropy: float  # of the next token, in nats
    alternatives: tuple[Alternative, ...]  # the most probable tokens, best first; the token itself may be one of them


@dataclass(frozen=True)
class AttentionMap:
    """A table of weights with its labels, which a notebook shows as a picture.

    weights: (rows, columns), from 0 to 1.
    rows, columns: the label of each.
    title: above the picture.
    caption: below it, such as which layer and head, how several became one, what a word's weight is, what was left out.
    """

    weights: Tensor
    rows: list[str]
    columns: list[str]
    title: str = ""
    caption: str = ""

    def __repr__(self) -> str:
        rows, columns = self.weights.shape
        return (
            f"<AttentionMap: {'; '.join(part for part in (f'{rows} x {columns}', self.title, self.caption) if part)}>"
        )

    @property
    def figure(self) -> Figure:
        """Return the figure of the map."""
        return map_figure(self.weights, self.rows, self.columns, self.title, self.caption)

    def _repr_png_(self) -> tuple[bytes, dict[str, str]]:
        """Return the picture that a notebook shows, and it in words: title, largest weight of each row, caption."""
        picture, _ = self.figure._repr_png_()
        largest = [
            f"{row}: {self.columns[int(column)]} {weight:.2f}"
            for row, weight, column in zip(self.rows, *self.weights.max(dim=1), strict=True)
        ]
        return picture, {"alt": "; ".join(filter(None, [self.title, *largest, self.caption]))}


@dataclass(frozen=True)
class Inspection:
    """A sentence, its translation, and what the model did. Tensors are float32 and on the CPU.

    model: its name; version: of dragoman.
    source, target: the sentence and its translation.
    encoder: (L, H, S, S), how much each source token attended to each; L = 0 for a recurrent model.
    decoder: (L, H, T, T), how much each token that was read attended to those up to itself; L = 0 as above.
    cross: (L, H, T, S), how much each target token, as it was predicted, attended to each source token.
    positions: (T), the probability of each target token, EOS included.
    tree: of the search that found the target; None where that was given, or the search was of another kind.
    alignment: the head that words are aligned by; None: no attention over the source.
    """

    model: str
    version: str
    source: Sentence
    target: Sentence
    encoder: Tensor
    decoder: Tensor
    cross: Tensor
    positions: tuple[Position, ...]
    tree: BeamTree | None
    alignment: AlignmentHead | None
    target_tag: Ids = field(default_factory=list)
    """ids that the model has read before the target, such as its language; no figure shows them"""

    def __repr__(self) -> str:
        layers, heads, *_ = self.cross.shape
        return f"<Inspection: {self.source.text!r} to {self.target.text!r} by {self.model}, {layers} x {heads} heads>"

    def _repr_png_(self) -> tuple[bytes, dict[str, str]] | None:
        """Return the picture that a notebook shows: the last cross-attention, mean of its heads; None without any."""
        return self.map("cross", len(self.cross))._repr_png_() if len(self.cross) else None

    @property
    def decoder_input(self) -> Sentence:
        """Return the input of the decoder: BOS, which is its first token and word, and the target without EOS."""
        tokens, words = (
            [
                Word(SPECIAL[BOS], range(1)),
                *(Word(word.label, range(word.tokens.start + 1, word.tokens.stop + 1)) for word in entries[:-1]),
            ]
            for entries in (self.target.tokens, self.target.words)
        )
        return Sentence(self.target.text, self.target.ids, tokens, words)

    def maps(self, kind: AttentionKind) -> Tensor:
        """Return the weights (L, H, queries, keys) of a kind; L may be 0. Raise UsageError for an unknown kind."""
        check_choice("kind", kind, KINDS)
        return {"encoder": self.encoder, "decoder": self.decoder, "cross": self.cross}[kind]

    def queries_and_keys(self, kind: AttentionKind) -> tuple[Sentence, Sentence]:
        """Return the sentences that the rows and the columns of the weights of a kind stand for."""
        check_choice("kind", kind, KINDS)
        if kind == "cross":
            return self.target, self.source
        sentence = self.source if kind == "encoder" else self.decoder_input
        return sentence, sentence

    def select(self, kind: AttentionKind, layer: int | None, head: int | None, aggregate: Aggregate) -> Tensor:
        """Return the weights (L, H, queries, keys) of a layer and head, or of all of them; of a rollout (1, 1, ...).

        layer and head count from 1, None for all. Raise UsageError for those that the model does not have, for
        attention of a kind that it does not have, and for a rollout of one head.
        """
        check_choice("aggregate", aggregate, AGGREGATES)
        maps = self.maps(kind)
        if not len(maps):
            raise UsageError(f"this model has no {KINDS[kind]}")
        for name, number, count in (("layer", layer, maps.size(0)), ("head", head, maps.size(1))):
            check_argument(name, number, int | None)
            if number is not None and not 1 <= number <= count:
                raise UsageError(f"{name} {number}: the model has {name}s 1 to {count}")
        if aggregate != "rollout":
            return maps[tuple(slice(number and number - 1, number) for number in (layer, head))]
        if head is not None:
            raise UsageError("a rollout follows all heads together: choose no head, or another aggregate")
        if len(self.decoder) != len(self.cross):
            raise UsageError("a rollout follows self-attention, which this model does not have")
        if kind == "cross":
            return aggregates.cross_rollout(self.encoder, self.decoder[:layer], self.cross[:layer])[None, None]
        return aggregates.rollout(maps[:layer])[None, None]

    def weights(
        self, kind: AttentionKind, layer: int | None = None, head: int | None = None, aggregate: Aggregate = "mean"
    ) -> Tensor:
        """Return the weights (queries, keys) of tokens: (T, S) for cross-attention, else (S, S) or (T, T).

        layer and head count from 1; without them, the mean or the largest value of all, or their rollout (see
        `aggregates`), which goes from the first layer up to `layer`. Raise UsageError for what `select` refuses.
        """
        maps = self.select(kind, layer, head, aggregate)
        return AGGREGATES[aggregate](maps)

    def map(
        self,
        kind: AttentionKind,
        layer: int | None = None,
        head: int | None = None,
        aggregate: Aggregate = "mean",
        *,
        subwords: bool = False,
        hide: Collection[Hidden] = (),
    ) -> AttentionMap:
        """Return the weights of words, or of subwords, with labels; "max" is the largest value among words.

        kind, layer, head, aggregate: as for `weights`; hide: kinds of tokens that are left out of rows and columns.
        Each row is then scaled to the sum it had: the caption says so. Raise UsageError as `weights` does, and where
        nothing is left.
        """
        maps = self.select(kind, layer, head, aggregate)
        over = AGGREGATES[aggregate]
        check_texts("hide", hide)
        for name in hide:
            check_choice("hide", name, HIDDEN)
        queries, keys = self.queries_and_keys(kind)
        hidden_queries, hidden_keys = queries.positions_of(hide), keys.positions_of(hide)
        all_rows, all_columns = (side.tokens if subwords else side.words for side in (queries, keys))
        rows, columns = drop_tokens(all_rows, hidden_queries), drop_tokens(all_columns, hidden_keys)
        if not rows or not columns:
            raise UsageError("nothing is left to show: hide less")
        maps = drop_positions(maps, hidden_queries, -2)
        weights = over(merge_tokens(drop_positions(maps, hidden_keys, -1), rows, columns))
        if hidden_keys:
            before, after = (
                over(merge_tokens(maps, rows, all_columns)).sum(-1, keepdim=True),
                weights.sum(-1, keepdim=True),
            )
            weights = torch.where(after > 0, weights * before / after, 0.0)
        notes = [f"{KINDS[kind]}, {self.describe(kind, layer, head, aggregate)}"]
        if not subwords:
            notes.append("a word's row is the mean of its subwords' rows, its column the sum of their columns")
        if hide:
            notes.append(f"without {' and '.join(HIDDEN[name] for name in hide)}, each row scaled to the sum it had")
        if aggregate != "max":
            notes.append("each row sums to 1")
        labels = [word.label for word in rows], [word.label for word in columns]
        return AttentionMap(weights, *labels, map_title(kind, subwords), "; ".join(notes))

    def describe(self, kind: AttentionKind, layer: int | None, head: int | None, aggregate: Aggregate) -> str:
        """Return 'layer 2 of 6, mean of 8 heads' for a caption; 'layer 2 of 6' where there is one head."""
        layers, heads = self.maps(kind).shape[:2]
        name = "largest" if aggregate == "max" else "mean"
        if aggregate == "rollout":
            which = f"rollout of layers 1 to {layer or layers}"
        elif layer is None and layers > 1:
            which = f"{name} of {layers} layers"
        else:
            which = f"layer {layer or 1} of {layers}"
        return describe_heads(which, head, heads, name)

    # The layout of Hugging Face, which BertViz reads, too: a list with one (1, H, queries, keys) for each layer.

    @property
    def encoder_attentions(self) -> list[Tensor]:
        """Return the self-attention of the encoder: (1, H, S, S) for each layer."""
        return list(self.encoder[:, None])

    @property
    def decoder_attentions(self) -> list[Tensor]:
        """Return the self-attention of the decoder: (1, H, T, T) for each layer."""
        return list(self.decoder[:, None])

    @property
    def cross_attentions(self) -> list[Tensor]:
        """Return the cross-attention: (1, H, T, S) for each layer."""
        return list(self.cross[:, None])

    @property
    def encoder_tokens(self) -> list[str]:
        """Return the labels of the source tokens, EOS included."""
        return [token.label for token in self.source.tokens]

    @property
    def decoder_tokens(self) -> list[str]:
        """Return the labels of the decoder's input, BOS first and without EOS."""
        return [token.label for token in self.decoder_input.tokens]


def map_title(kind: AttentionKind, subwords: bool) -> str:
    """Return the title of a map of words or subwords."""
    return TITLES[kind].replace("word", "subword") if subwords else TITLES[kind]


def drop_tokens(words: list[Word], dropped: set[int]) -> list[Word]:
    """Return the words, renumbered, without the tokens at `dropped`, and without words that have no others."""
    kept, start = [], 0
    for word in words:
        stop = start + sum(position not in dropped for position in word.tokens)
        if stop > start:
            kept.append(Word(word.label, range(start, stop)))
        start = stop
    return kept


def drop_positions(maps: Tensor, dropped: set[int], dim: int) -> Tensor:
    """Return a copy of the maps without the positions `dropped` of dimension `dim`."""
    kept = [position for position in range(maps.size(dim)) if position not in dropped]
    return maps.index_select(dim, torch.tensor(kept, dtype=torch.long))


def describe_heads(layers: str, head: int | None, heads: int, how: str = "mean") -> str:
    """Return 'layer 2 of 6, head 3 of 8' for the layers 'layer 2 of 6', or what is shown of all their heads.

    heads: how many there are; with one, only the layers are named. how: all heads are shown, such as 'mean'.
    """
    if head is not None:
        return f"{layers}, head {head} of {heads}"
    return f"{layers}, {how} of {heads} heads" if heads > 1 else layers
