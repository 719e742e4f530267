"""All that can be seen of a model while it reads a sentence and writes its translation.

The decoder reads the start and then the target without its end; at each place it predicts the token that comes next.
So there are T places, and two ways to name them: after the tokens that are predicted there, the end included (the rows
of cross-attention, `Inspection.target`), or after those that are read there, the start included (both sides of the
decoder's self-attention, `Inspection.read`).

Shapes: L layers, H heads, T target tokens and S source tokens, both with the end.
"""

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from re import fullmatch
from typing import Literal

import torch
from torch import Tensor

from dragoman import __version__
from dragoman.alignment import Alignment
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import BOS, EOS, SPECIAL, TAG, Tokenizer
from dragoman.decoding.engine import Constraints
from dragoman.decoding.forced import max_positions
from dragoman.errors import UsageError
from dragoman.inspection import aggregates
from dragoman.inspection.attention import Word, attention_maps, by_word, piece, subwords, words
from dragoman.inspection.tree import BeamTree, Recording
from dragoman.model import Model
from dragoman.model.capture import share_weights
from dragoman.translation.translator import Translator

Kind = Literal["encoder", "decoder", "cross"]
KINDS: dict[Kind, str] = {
    "encoder": "self-attention of the encoder",
    "decoder": "self-attention of the decoder",
    "cross": "cross-attention",
}
Aggregate = Literal["mean", "max", "rollout"]
Hidden = Literal["ends", "punctuation"]
OVER_ALL = {"mean": aggregates.mean, "max": aggregates.largest, "rollout": aggregates.mean}
HIDDEN: dict[Hidden, str] = {"ends": "start, end and tags", "punctuation": "punctuation"}


@dataclass(frozen=True)
class Sentence:
    """A sentence as the model sees it."""

    text: str
    ids: Ids  # without start and end
    pieces: list[Word]  # one for each token and for the end, which is the last one; a space is shown as ␣
    words: list[Word]  # split at spaces; the last one is the end

    def hidden(self, what: Collection[Hidden]) -> set[int]:
        """The places of start, end and tags ("ends"), and of tokens of nothing but punctuation, signs and space."""
        tests = {"ends": is_end, "punctuation": is_punctuation}
        return {place for name in what for place, token in enumerate(self.pieces) if tests[name](token.label)}


def is_end(label: str) -> bool:
    return label in SPECIAL or TAG.fullmatch(label) is not None


def is_punctuation(label: str) -> bool:
    return all(unicodedata.category(character)[0] in "PS" for character in label)  # ␣ is one of the signs


@dataclass(frozen=True)
class Alternative:
    """A token that could have stood at a place."""

    token: int
    piece: str
    probability: float


@dataclass(frozen=True)
class Position:
    """What the model thought of a target token when it had read the tokens before it."""

    token: int
    piece: str
    probability: float
    rank: int  # from 1: the most probable
    entropy: float  # of the next token, in nats
    alternatives: tuple[Alternative, ...]  # the most probable tokens, this one among them or not, the best first


@dataclass(frozen=True)
class Map:
    """A table of weights with its labels, ready to be drawn."""

    weights: Tensor  # rows, columns
    rows: list[str]
    columns: list[str]
    caption: str  # which layer and head, how several became one, what a word's weight is, what was left out


@dataclass(frozen=True)
class Inspection:
    """One sentence, its translation, and what the model did. Numbers are float32 and on the CPU."""

    model: str  # its name
    version: str  # of dragoman
    source: Sentence
    target: Sentence
    encoder: Tensor  # L H S S: how much each source token looked at each; L = 0 for a recurrent model
    decoder: Tensor  # L H T T: how much each token that was read looked at those up to itself; L = 0 as above
    cross: Tensor  # L H T S: how much each target token, as it was predicted, looked at each source token
    places: tuple[Position, ...]  # T, the end included
    tree: BeamTree | None  # of the search that found the target; None where that was given, or a search of another kind
    alignment: Alignment | None  # the layer and head for word alignments, and how they were chosen; None: no attention

    @property
    def read(self) -> Sentence:
        """What the decoder reads: the start, which is the first piece and word, then the target without its end."""
        pieces, words = (
            [Word(SPECIAL[BOS], range(1)), *(Word(w.label, range(w.tokens.start + 1, w.tokens.stop + 1)) for w in side)]
            for side in (self.target.pieces[:-1], self.target.words[:-1])
        )
        return Sentence(self.target.text, self.target.ids, pieces, words)

    def maps(self, kind: Kind) -> Tensor:
        """All weights of a kind, by layer and head."""
        return {"encoder": self.encoder, "decoder": self.decoder, "cross": self.cross}[kind]

    def sides(self, kind: Kind) -> tuple[Sentence, Sentence]:
        """What the rows and the columns of the weights of a kind stand for."""
        if kind == "cross":
            return self.target, self.source
        side = self.source if kind == "encoder" else self.read
        return side, side

    def chosen(self, kind: Kind, layer: int | None, head: int | None, aggregate: Aggregate) -> Tensor:
        """(L, H, queries, keys): of the layer and head that are asked for; a rollout as one head of one layer."""
        maps = self.maps(kind)
        if not len(maps):
            raise UsageError(f"this model has no {KINDS[kind]}")
        for name, number, most in (("layer", layer, maps.size(0)), ("head", head, maps.size(1))):
            if number is not None and not 1 <= number <= most:
                raise UsageError(f"{name} {number}: the model has {name}s 1 to {most}")
        if aggregate != "rollout":
            return maps[one(layer), one(head)]
        if head is not None:
            raise UsageError("a rollout follows all heads together: choose no head, or another aggregate")
        if len(self.decoder) != len(self.cross):
            raise UsageError("a rollout follows self-attention, which this model does not have")
        if kind == "cross":
            return aggregates.cross_rollout(self.encoder, self.decoder[:layer], self.cross[:layer])[None, None]
        return aggregates.rollout(maps[:layer])[None, None]

    def weights(
        self, kind: Kind, layer: int | None = None, head: int | None = None, aggregate: Aggregate = "mean"
    ) -> Tensor:
        """(queries, keys) of tokens: (T, S) across, (S, S) in the encoder, (T, T) in the decoder.

        layer and head count from 1; without them, the mean or the largest value of all, or their rollout (see
        `aggregates`), which goes from the first layer up to `layer`. Raises UsageError for a layer or head that the
        model does not have.
        """
        return OVER_ALL[aggregate](self.chosen(kind, layer, head, aggregate))

    def map(
        self,
        kind: Kind,
        layer: int | None = None,
        head: int | None = None,
        aggregate: Aggregate = "mean",
        *,
        pieces: bool = False,
        hide: Collection[Hidden] = (),
    ) -> Map:
        """The same of words, or of pieces, with labels; the largest value is that of words.

        What is hidden is left out of rows and columns, and each row is scaled to the sum it had: the caption says so.
        Raises UsageError where nothing is left.
        """
        maps, over = self.chosen(kind, layer, head, aggregate), OVER_ALL[aggregate]
        asking, asked = self.sides(kind)
        gone, unseen = asking.hidden(hide), asked.hidden(hide)
        rows, every = (side.pieces if pieces else side.words for side in (asking, asked))
        rows, columns = without(rows, gone), without(every, unseen)
        if not rows or not columns:
            raise UsageError("nothing is left to show: hide less")
        maps = left(maps, gone, -2)
        weights = over(by_word(left(maps, unseen, -1), rows, columns))
        if unseen:
            before, after = over(by_word(maps, rows, every)).sum(-1, keepdim=True), weights.sum(-1, keepdim=True)
            weights = torch.where(after > 0, weights * before / after, 0.0)
        said = [f"{KINDS[kind]}, {self.which(kind, layer, head, aggregate)}"]
        if not pieces:
            said.append("a word looks as its pieces do on average, and is looked at as much as they are together")
        if hide:
            said.append(f"without {' and '.join(HIDDEN[name] for name in hide)}, each row scaled to the sum it had")
        if aggregate != "max":
            said.append("each row sums to 1")
        return Map(weights, [word.label for word in rows], [word.label for word in columns], "; ".join(said))

    def which(self, kind: Kind, layer: int | None, head: int | None, aggregate: Aggregate) -> str:
        """In words: 'layer 2 of 6, mean of 8 heads'."""
        layers, heads = self.maps(kind).shape[:2]
        if aggregate == "rollout":
            return f"rollout of layers 1 to {layer or layers}, mean of {heads} heads"
        name = "largest" if aggregate == "max" else "mean"
        first = f"{name} of {layers} layers" if layer is None else f"layer {layer} of {layers}"
        return f"{first}, {name} of {heads} heads" if head is None else f"{first}, head {head} of {heads}"

    # The layout of Hugging Face, which BertViz reads, too: a list with one (1, H, queries, keys) for each layer.

    @property
    def encoder_attentions(self) -> list[Tensor]:
        return list(self.encoder[:, None])

    @property
    def decoder_attentions(self) -> list[Tensor]:
        return list(self.decoder[:, None])

    @property
    def cross_attentions(self) -> list[Tensor]:
        return list(self.cross[:, None])

    @property
    def encoder_tokens(self) -> list[str]:
        return [token.label for token in self.source.pieces]

    @property
    def decoder_tokens(self) -> list[str]:
        """Those that were read: the start is the first, and the end is not among them."""
        return [token.label for token in self.read.pieces]


def one(number: int | None) -> slice:
    """The place of a layer or head that counts from 1; all for None."""
    return slice(None) if number is None else slice(number - 1, number)


def without(words: list[Word], gone: set[int]) -> list[Word]:
    """The words without the tokens that are gone, which count no more; a word without tokens is gone, too."""
    found, start = [], 0
    for word in words:
        stop = start + sum(place not in gone for place in word.tokens)
        if stop > start:
            found.append(Word(word.label, range(start, stop)))
        start = stop
    return found


def left(maps: Tensor, gone: set[int], dim: int) -> Tensor:
    """`maps` without the places that are gone."""
    kept = [place for place in range(maps.size(dim)) if place not in gone]
    return maps.index_select(dim, torch.tensor(kept, dtype=torch.long))


def inspect(
    translator: Translator,
    text: str,
    translation: str | None = None,
    *,
    prefix: str = "",
    tag: str = "",
    alternatives: int = 5,
    name: str = "",
) -> Inspection:
    """Look at the model while it translates `text`: into `translation`, by default into what its own search finds.

    prefix: how the search's translation begins; tag: as for `Translator.translate`; alternatives: how many for each
    place; name: of the model, as captions show it. Of an ensemble, the first model is looked at. The model is not
    touched, so others may use it meanwhile. Raises UsageError for a text that is blank or longer than the model takes.
    """
    model, tokenizer = translator.model, translator.tokenizer
    if not text.strip():
        raise UsageError("there is no text to look at")
    if prefix and translation is not None:
        raise UsageError("a prefix is for a search: give it, or a translation, not both")
    source = tokenizer.encode(text, tag)
    if len(source) > translator.max_source_tokens:
        raise UsageError(
            f"the text has {len(source)} tokens; an inspection takes at most {translator.max_source_tokens}"
        )
    tree = None
    if translation is None:
        target, tree = searched(translator, source, tokenizer.encode(prefix) if prefix else [])
    else:
        target = tokenizer.encode(translation)
    if len(target) >= max_positions(model):
        raise UsageError(
            f"the translation has {len(target)} tokens; an inspection takes fewer than {max_positions(model)}"
        )
    maps, log_p = forced(model, source, target)
    sizes = len(target) + 1, len(source) + 1

    def of(names: str, queries: int, keys: int) -> Tensor:
        found = [weights for layer, weights in maps.items() if fullmatch(names, layer)]
        return torch.stack(found) if found else torch.empty(0, 0, queries, keys)

    return Inspection(
        model=name or type(model).__name__,
        version=__version__,
        source=side(tokenizer, source),
        target=side(tokenizer, target),
        encoder=of(r"encoder\.\d+\.attention", sizes[1], sizes[1]),
        decoder=of(r"decoder\.\d+\.attention", sizes[0], sizes[0]),
        cross=of(r"decoder\.\d+\.cross_attention|attention", *sizes),
        places=places(tokenizer, [*target, EOS], log_p, alternatives),
        tree=tree,
        alignment=translator.alignment,
    )


def searched(translator: Translator, source: Ids, prefix: Ids) -> tuple[Ids, BeamTree | None]:
    """What the translator's search finds, and the search."""
    recording = Recording(translator.engine, translator.tokenizer, Constraints(tuple(prefix)))
    (found,) = translator.replace(engine=recording).search_ids([source])
    return found.tokens, recording.tree(found)


@torch.no_grad()
def forced(model: Model, source: Ids, target: Ids) -> tuple[dict[str, Tensor], Tensor]:
    """One pass with the target given: the weights (H, queries, keys) of each layer by its name, and log-probabilities
    (T, V).
    """
    other = share_weights(model)
    device = next(model.parameters()).device
    with attention_maps(other) as maps:
        logits = other(*(torch.tensor([ids], device=device) for ids in ([*source, EOS], [BOS, *target])))
    return {name: calls[0][0].float().cpu() for name, calls in maps.items()}, logits[0].float().log_softmax(-1).cpu()


def side(tokenizer: Tokenizer, ids: Ids) -> Sentence:
    return Sentence(tokenizer.decode(ids), ids, subwords(tokenizer, ids), words(tokenizer, ids))


def places(tokenizer: Tokenizer, target: Ids, log_p: Tensor, alternatives: int) -> tuple[Position, ...]:
    """target with its end; log_p (T, V)."""
    p, of_target = log_p.exp(), log_p.gather(1, torch.tensor(target)[:, None])
    entropy, rank = torch.special.entr(p).sum(-1), 1 + (log_p > of_target).sum(-1)
    best = log_p.topk(min(alternatives, log_p.size(1))).indices.tolist()
    found = []
    for place, token in enumerate(target):
        others = tuple(Alternative(other, piece(tokenizer, other), float(p[place, other])) for other in best[place])
        shown, chance = piece(tokenizer, token), float(p[place, token])
        found.append(Position(token, shown, chance, int(rank[place]), float(entropy[place]), others))
    return tuple(found)
