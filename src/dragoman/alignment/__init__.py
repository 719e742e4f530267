"""Word alignments: which source words the model looked at for each word of a translation.

One head of cross-attention aligns better than the others, and which one it is differs from model to model: `measure`
finds it without any alignments made by people.

Shapes: L layers, H heads, T target tokens, S source tokens, W target words, U source words. With their ends, the two
sides have T+1 and S+1 tokens.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count, groupby
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.data.batches import Batch, Ids
from dragoman.data.tokenizer import RESERVED, SPECIAL, Tokenizer
from dragoman.decoding.forced import forced_batches
from dragoman.errors import DragomanError, UsageError
from dragoman.model import Model
from dragoman.model.attention import Kernel
from dragoman.model.capture import attention_weights, share_weights
from dragoman.model_folder import find_model

# What `measure` looks at: pairs of so many tokens at most, until the table of all their token pairs is so large.
LONGEST_MEASURED, CELLS = 100, 2_000_000
ITERATIONS = 5
ENOUGH = 5_000  # links to judge heads by

Span = tuple[int, int]  # start and end, as for a slice


@dataclass(frozen=True)
class Alignment:
    """Where a model's alignments are taken from, and how well they fit what the words themselves say."""

    RECORD: ClassVar = "alignment.json"  # in a model folder

    layer: int  # from 1
    head: int | None = None  # from 1; None: the mean of all
    agreement: float | None = (
        None  # share of the links between tokens that the layer and head find too; None: not measured
    )
    links: int = 0  # how many there were

    def __str__(self) -> str:
        where = f"layer {self.layer}, {f'head {self.head}' if self.head else 'mean of all heads'}"
        if self.agreement is None:
            return f"{where}, not measured"
        return f"{where}, agrees with {100 * self.agreement:.1f} % of {self.links:,} links of a word model"

    def as_json(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    def save(self, folder: Path) -> None:
        """Write the record into a model folder that is being made: the manifest is written after it."""
        (folder / self.RECORD).write_text(self.as_json(), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "Alignment | None":
        """What was measured for the model in a model folder or run folder, None where nothing was.

        Raises DragomanError where the record is not one of ours.
        """
        file = find_model(folder) / cls.RECORD
        if not file.is_file():
            return None
        try:
            found = cls(**json.loads(file.read_text(encoding="utf-8")))
            numbers = [found.layer, 1 if found.head is None else found.head, found.links + 1]
            if any(type(number) is not int or number < 1 for number in numbers):
                raise ValueError
            if found.agreement is not None and not 0 <= found.agreement <= 1:
                raise ValueError
            return found
        except (ValueError, TypeError, RecursionError):
            raise DragomanError(f"{file}: not an alignment record") from None


# Attention.


class Watched(nn.Module):
    """A kernel, and the weights that it gave to its values when it was last asked."""

    def __init__(self, kernel: Kernel):
        super().__init__()
        self.kernel = kernel
        self.weights = torch.empty(0)  # B H T S

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        self.weights = attention_weights(self.kernel, query, key, value, mask)
        return self.kernel(query, key, value, mask, dropout)


def watched(model: Model) -> tuple[Model, list[Watched]]:
    """A twin of the model, whose cross-attention is watched, layer by layer.

    Raises DragomanError where it has no attention over the source.
    """
    other = share_weights(model)
    names = [name for name, _ in other.named_modules() if name == "attention" or name.endswith(".cross_attention")]
    layers = [other.get_submodule(name) for name in names]
    if not layers:
        raise DragomanError("this model has no attention over the source, so it cannot align words")
    for layer in layers:
        layer.kernel = Watched(layer.kernel)  # type: ignore[arg-type]
    return other, [layer.kernel for layer in layers]  # type: ignore[misc]


@torch.inference_mode()
def look(model: Model, batch: Batch) -> None:
    """A forced pass, for what the watched kernels see."""
    state: Any = model.start(batch.source)
    model.vectors(batch.target, state, batch.real)


def attention(model: Model, sources: Sequence[Ids], targets: Sequence[Ids], which: Alignment) -> list[Tensor]:
    """For each pair (T+1, S+1): how much each target token, as it was predicted, looked at each source token.

    The last row and the last column are the ends; each row sums to 1. What is found for a pair does not depend on the
    others. Raises UsageError for a layer or head that the model does not have.
    """
    other, kernels = watched(model)
    if not 1 <= which.layer <= len(kernels):
        raise UsageError(f"layer {which.layer}: the model has layers 1 to {len(kernels)}")
    found: dict[int, Tensor] = {}
    for rows, batch in forced_batches(other, sources, targets):
        look(other, batch)
        weights = kernels[which.layer - 1].weights
        if which.head is not None and not 1 <= which.head <= weights.size(1):
            raise UsageError(f"head {which.head}: the model has heads 1 to {weights.size(1)}")
        weights = (weights.mean(1) if which.head is None else weights[:, which.head - 1]).float().cpu()
        for row, table in zip(rows, weights, strict=True):
            found[row] = table[: len(targets[row]) + 1, : len(sources[row]) + 1].clone()
    return [found[row] for row in range(len(sources))]


# From tokens to words.


@dataclass(frozen=True)
class Words:
    """The words of a text, and which token belongs to which."""

    labels: list[str]
    spans: list[Span]  # characters of each word in the text of the ids
    numbers: list[int]  # of each token: its word, or -1 for a tag and for white space

    def __len__(self) -> int:
        return len(self.labels)


def words(tokenizer: Tokenizer, ids: Ids) -> Words:
    """The words between white space, as `str.split` finds them. A token that reaches over several is the first's."""
    text = tokenizer.decode(ids)
    found = [word.span() for word in re.finditer(r"\S+", text)]
    starts = [start for start, _ in found]
    numbers = []
    for start, end in spans(tokenizer, ids):
        blank = len(text[start:end]) - len(text[start:end].lstrip())
        numbers.append(bisect_right(starts, start + blank) - 1 if start + blank < min(end, len(text)) else -1)
    return Words([text[start:end] for start, end in found], found, numbers)


def subwords(tokenizer: Tokenizer, ids: Ids) -> Words:
    """Each token as a word of its own, for languages that are written without spaces; a space is shown as ␣."""
    spoken = [
        (id, span) for id, span in zip(ids, spans(tokenizer, ids), strict=True) if id not in tokenizer.special_ids
    ]
    numbers = count()
    return Words(
        [tokenizer.pieces[id].replace(" ", "␣") for id, _ in spoken],
        [span for _, span in spoken],
        [-1 if id in tokenizer.special_ids else next(numbers) for id in ids],
    )


def spans(tokenizer: Tokenizer, ids: Ids) -> list[Span]:
    """Which characters of `tokenizer.decode(ids)` each token stands for.

    The bytes of one character all stand for it; a tag stands for none.
    """
    found: list[Span] = [(0, 0)] * len(ids)
    spoken = [place for place, id in enumerate(ids) if id not in tokenizer.special_ids]
    end = 0
    for bytewise, group in groupby(spoken, lambda place: ids[place] < len(RESERVED)):
        run = list(group)
        if bytewise:
            last = end + np.cumsum(first_bytes(bytes(ids[place] - len(SPECIAL) for place in run)))
            first = last - 1
        else:
            last = end + np.cumsum([len(tokenizer.pieces[ids[place]]) for place in run])
            first = np.concatenate([[end], last[:-1]])
        for place, start, stop in zip(run, first.tolist(), last.tolist(), strict=True):
            found[place] = (start, stop)
        end = int(last[-1])
    space = end - len(tokenizer.decode(ids))  # the one that the tokenizer puts in front, and takes away again
    return [(max(start - space, 0), max(stop - space, 0)) for start, stop in found]


def first_bytes(data: bytes) -> list[bool]:
    """Which bytes begin a character: all of them, as U+FFFD, where they are no UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return [True] * len(data)
    return [byte & 0xC0 != 0x80 for byte in data]


def by_word(weights: np.ndarray, target: Words, source: Words) -> np.ndarray:
    """(T+1, S+1) of tokens -> (W, U) of words: the sum over a word's source tokens, the mean over its target tokens.

    The ends, tags and white space are left out, so a row sums to 1 at most.
    """
    rows, columns = (np.array(side.numbers)[:, None] == np.arange(len(side)) for side in (target, source))
    summed = rows.T.astype(float) @ weights[: len(rows), : len(columns)] @ columns
    return summed / np.maximum(rows.sum(0), 1)[:, None]


# From weights to links.

Link = tuple[int, int]  # source word, target word; both count from 0


def strongest(weights: np.ndarray) -> list[Link]:
    """For each target word the source word that it looked at most; weights (W, U)."""
    if not weights.size:
        return []
    best = weights.argmax(1)
    return sorted((int(u), w) for w, u in enumerate(best) if weights[w, u] > 0)


def above(weights: np.ndarray, threshold: float) -> list[Link]:
    """All pairs of words with at least that weight."""
    return sorted((int(u), int(w)) for w, u in np.argwhere((weights >= threshold) & (weights > 0)))


def character_links(weights: np.ndarray, target: Words, source: Words) -> list[tuple[Span, Span]]:
    """For each source word its characters, and those of the target word that looked at it most; weights (W, U).

    In the order of the source: where something stands before, behind or around a source word, there it belongs in the
    target. A source word that no target word looked at is missing.
    """
    links = strongest(weights.T)  # (target word, source word)
    return sorted((source.spans[u], target.spans[w]) for w, u in links)


# Which layer and head.


def measure(model: Model, sources: Sequence[Ids], targets: Sequence[Ids]) -> Alignment:
    """The layer and head, or the mean of a layer's heads, whose alignments agree best with a word model.

    Word models know nothing of order and context, but which words go together; where two of them, learned from these
    pairs in both directions, choose each other, they are rarely wrong. Where there are no such links, the mean of
    the last layer, not measured. Raises DragomanError for a model without attention over the source.
    """
    other, kernels = watched(model)
    sources, targets = usual(sources, targets)
    wanted = mutual_links(sources, targets)
    so_far = np.cumsum([(ids >= 0).sum() for ids in wanted])  # links
    asked = int(np.searchsorted(so_far, ENOUGH)) + 1  # pairs
    sources, targets, wanted = sources[:asked], targets[:asked], wanted[:asked]
    links = int(so_far[:asked].max(initial=0))
    if not links:
        return unmeasured(model)
    hits: np.ndarray = np.zeros(())  # L H+1
    for rows, batch in forced_batches(other, sources, targets):
        look(other, batch)
        maps = torch.stack([kernel.weights for kernel in kernels], 1)  # B L H T S
        maps = torch.cat([maps, maps.mean(2, keepdim=True)], 2).cpu()
        for row, each in zip(rows, maps, strict=True):
            looked = each[..., : len(targets[row]), : len(sources[row])].argmax(-1).numpy()  # L H+1 T
            # The same word may stand twice in a source: to look at either is right.
            right = (np.array(sources[row])[looked] == wanted[row]).sum(-1)
            hits = hits + right
    layer, head = np.unravel_index(hits.argmax(), hits.shape)
    mean = head == hits.shape[1] - 1
    return Alignment(int(layer) + 1, None if mean else int(head) + 1, float(hits.max() / links), links)


def unmeasured(model: Model) -> Alignment:
    """The mean of the last layer's heads. Raises DragomanError for a model without attention over the source."""
    return Alignment(layer=len(watched(model)[1]))


def usual(sources: Sequence[Ids], targets: Sequence[Ids]) -> tuple[list[Ids], list[Ids]]:
    """The first pairs of usual length, as many as a word model in memory takes."""
    kept: tuple[list[Ids], list[Ids]] = ([], [])
    cells = 0
    for source, target in zip(sources, targets, strict=True):
        if 0 < len(source) <= LONGEST_MEASURED and 0 < len(target) <= LONGEST_MEASURED:
            cells += (len(source) + 1) * (len(target) + 1)
            if cells > CELLS:
                break
            kept[0].append(source)
            kept[1].append(target)
    return kept


def mutual_links(sources: Sequence[Ids], targets: Sequence[Ids]) -> list[np.ndarray]:
    """For each pair (T,): the id of the source token that each target token goes with, -1 for none.

    Two tokens go together where each is the most probable translation of the other in this pair.
    """
    found = []
    there, back = explained(sources, targets), explained(targets, sources)
    for source, target, origins, copies in zip(sources, targets, there, back, strict=True):
        returned = dict(zip(source, copies.tolist(), strict=True))
        mutual = [returned.get(origin) == token for token, origin in zip(target, origins.tolist(), strict=True)]
        found.append(np.where(mutual, origins, NOTHING))
    return found


NOTHING = -1  # what a target token comes from that no source token explains


def explained(sources: Sequence[Ids], targets: Sequence[Ids]) -> list[np.ndarray]:
    """For each pair (T,): the id of the source token that explains each target token best, or NOTHING.

    IBM model 1 (Brown et al. 1993): p(target token | source token), learned from the pairs by expectation maximisation.
    A cell is a target token with one of the source tokens of its pair.
    """
    if not sources:
        return []
    pairs = list(zip(sources, targets, strict=True))
    source = np.concatenate([np.tile([NOTHING, *s], len(t)) for s, t in pairs])
    target = np.concatenate([np.repeat(t, len(s) + 1) for s, t in pairs])
    widths = np.concatenate([np.full(len(t), len(s) + 1) for s, t in pairs])  # cells of each target token
    starts = np.cumsum(widths) - widths
    most = int(target.max()) + 1
    entries, entry = np.unique((source + 1) * most + target, return_inverse=True)  # of the table p, and of each cell
    origin = entries // most
    p = np.ones(len(entries))
    for _ in range(ITERATIONS):
        share = p[entry]
        share /= np.repeat(np.add.reduceat(share, starts), widths)
        expected = np.bincount(entry, share)
        p = expected / np.bincount(origin, expected)[origin]
    chance = p[entry]
    best = np.flatnonzero(chance == np.repeat(np.maximum.reduceat(chance, starts), widths))
    _, first = np.unique(np.searchsorted(starts, best, side="right"), return_index=True)
    return np.split(source[best[first]], np.cumsum([len(t) for t in targets])[:-1])
