"""Find the words that may come next in a translation, where its beginning is given.

A word may be several pieces. So the likely next pieces are found first; a search finishes the translation behind each
of them; and what it finds is joined again by the word that came next. The search itself is not done here.

Shapes: T target tokens, V vocabulary.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, inf
from typing import Any, NamedTuple

import regex
import torch
from torch import Tensor

from dragoman.alignment.words import Word, character_spans, words
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import EOS
from dragoman.data.tokenizers import SideTokenizer
from dragoman.decoding.forced import forced_batches, max_positions
from dragoman.errors import UsageError
from dragoman.model import Model

LEAST = 1e-3  # how probable a piece is at least, compared with the likeliest one, for a search to follow it
CUT_ANEW = 4  # pieces at the end of a prefix, of one word, in whose place others may stand
GOES_ON = regex.compile(r"[\p{L}\p{M}\p{N}'’‑_-]")
MARKS_BEHIND = regex.compile(r"(?<=[^\p{P}\p{S}])[\p{P}\p{S}]+\Z")


class Start(NamedTuple):
    """Tokens that a translation may begin with, and their log-probability in nats."""

    tokens: Ids
    log_p: float


@dataclass(frozen=True)
class NextWord:
    """A word that may come next."""

    word: str  # without the marks after it, such as a full stop
    probability: float  # that the model writes it after the words before: of its pieces, and that it then ends
    output: int  # which of the outputs has it, and is the best of those that do


@dataclass(frozen=True)
class Prefix:
    """The beginning of a translation: whole words, and the beginning of a word that it may end within."""

    words: str
    stem: str  # '' where the next word is free: behind white space, and where nothing is given

    @classmethod
    def parse(cls, text: str) -> "Prefix":
        stem = "" if not text or text[-1].isspace() else text.split()[-1]
        return cls(text[: len(text) - len(stem)].rstrip(), stem)


def likely_starts(
    model: Model, tokenizer: SideTokenizer, source: Ids, prefix: str, count: int, target_tag: Sequence[int] = ()
) -> list[Start]:
    """Return the likeliest tokens that a translation may begin with so that its text begins with `prefix`, best first.

    There are from one to `count`. A word that the prefix ends within may be cut otherwise than its beginning alone:
    behind "re", " rey" is one piece. source: ids without EOS; model: in eval mode; target_tag: ids that stand before
    the translation. Raise UsageError for a prefix of more tokens than the model takes.
    """
    given = Prefix.parse(prefix)
    before = [*target_tag, *(tokenizer.encode(given.words) if given.words else [])]
    stem = tokenizer.encode(given.stem) if given.stem else []
    before, stem = before + stem[:-CUT_ANEW], stem[-CUT_ANEW:]
    if len(before + stem) >= (longest := max_positions(model)):
        raise UsageError(
            f"the translation may begin with at most {longest - 1} subwords, not with {len(before + stem)}"
        )
    (log_p,) = next_log_p(model, source, [before + stem], [len(before)])
    starts, so_far = [Start(before + stem, float(log_p[range(len(stem)), stem].sum()))] if stem else [], 0.0
    for position, row in enumerate(log_p):
        beginning = spelled(tokenizer, stem[position:]) if stem else " "
        for id in likely_pieces(tokenizer, row, beginning, count):
            starts.append(Start([*before, *stem[:position], id], so_far + float(row[id])))
        so_far += float(row[stem[position]]) if position < len(stem) else 0.0
    starts = [Start(start.tokens[len(target_tag) :], start.log_p) for start in starts]
    starts.sort(key=lambda start: -start.log_p)
    return [start for start in starts[:count] if exp(start.log_p - starts[0].log_p) >= LEAST]


def next_word_start(
    model: Model,
    tokenizer: SideTokenizer,
    source: Ids,
    before: Ids,
    target_tag: Sequence[int] = (),
    forbidden: Collection[int] = (),
) -> Ids:
    """Return the likeliest token that begins a word behind the tokens `before`; none where EOS is the likeliest token.

    None, too, where there is no room for one. source: ids without EOS; model: in eval mode; target_tag: as above;
    forbidden: tokens that it may not be.
    """
    given = [*target_tag, *before]
    if len(given) >= max_positions(model):
        return []
    (log_p,) = next_log_p(model, source, [given], [len(given)])
    if int(log_p[0].argmax()) == EOS:
        return []
    likely = likely_pieces(tokenizer, log_p[0], " ", len(forbidden) + 1)
    return [id for id in likely if id not in forbidden][:1]


@torch.inference_mode()
def next_log_p(model: Model, source: Ids, targets: Sequence[Ids], firsts: Sequence[int]) -> list[Tensor]:
    """Return for each target log-probabilities (T+1-first, V) in nats: of each token from the first on, and behind it.

    source, targets: ids without BOS and EOS; firsts: for each target how many tokens to leave out.
    """
    by_row: dict[int, Tensor] = {}
    for rows, batch in forced_batches(model, [source] * len(targets), targets):
        state: Any = model.start(batch.source)
        vectors = model.vectors(batch.target, state, batch.real)
        of_targets = vectors.split([len(targets[row]) + 1 for row in rows])
        wanted = [of_target[firsts[row] :] for row, of_target in zip(rows, of_targets, strict=True)]
        log_p = model.output(torch.cat(wanted)).log_softmax(-1)
        by_row |= zip(rows, log_p.split([len(of_target) for of_target in wanted]), strict=True)
    return [by_row[row] for row in range(len(targets))]


@lru_cache(8)
def ends_word(tokenizer: SideTokenizer) -> Tensor:
    """Return (V,), bool: before which tokens a word is over: white space, marks and what has no text, such as EOS."""
    return torch.tensor(
        [
            id in tokenizer.special_ids or (id not in tokenizer.byte_values and not GOES_ON.match(piece))
            for id, piece in enumerate(tokenizer.pieces)
        ]
    )


@lru_cache(8)
def begins_word(tokenizer: SideTokenizer) -> Tensor:
    """Return (V,), bool: which tokens begin with white space, so that they begin a word."""
    return torch.tensor([piece[0].isspace() for piece in tokenizer.pieces])


def spelled(tokenizer: SideTokenizer, ids: Ids) -> str | None:
    """Return the text of tokens, with the space that it begins with; None where some of them are bytes."""
    return None if any(id in tokenizer.byte_values for id in ids) else "".join(tokenizer.pieces[id] for id in ids)


def likely_pieces(tokenizer: SideTokenizer, log_p: Tensor, beginning: str | None, count: int) -> list[int]:
    """Return the likeliest pieces that begin with `beginning`, at most `count`; none where it is None.

    Where it is '', they go on with the word. log_p: (V,) of each.
    """
    likely: list[int] = []
    for id in log_p.argsort(descending=True).tolist() if beginning is not None else ():
        piece = tokenizer.pieces[id]
        fits = piece.startswith(beginning) and id not in tokenizer.byte_values if beginning else not piece[0].isspace()
        if fits and id not in tokenizer.special_ids and id not in tokenizer.suppressed:
            likely.append(id)
            if len(likely) == count:
                break
    return likely


def find_words(
    model: Model, tokenizer: SideTokenizer, source: Ids, prefix: str, outputs: Sequence[Ids], count: int
) -> list[NextWord]:
    """Return the words that come next in outputs that begin with `prefix`, each once, the most probable first.

    outputs: ids without EOS, the best first of those with one word. At most `count` words are returned, and none that
    ends at the model's last position, which leaves none to ask what follows. source, model: as for `likely_starts`.
    """
    place, longest = len(Prefix.parse(prefix).words.split()), max_positions(model)
    next_words = [
        (index, words_of_output[place])
        for index, ids in enumerate(outputs)
        if len(words_of_output := bare_words(tokenizer, ids)) > place and words_of_output[place].tokens.stop < longest
    ]
    beginnings = {tuple(outputs[index][: word.tokens.stop]): word.tokens.start for index, word in next_words}
    rows = next_log_p(model, source, [*map(list, beginnings)], [beginnings[ids] for ids in beginnings])
    probability = {}
    for (ids, start), log_p in zip(beginnings.items(), rows, strict=True):
        pieces = log_p[range(len(ids) - start), ids[start:]].sum()
        probability[ids] = float(pieces.exp() * log_p[-1].exp()[ends_word(tokenizer).to(log_p.device)].sum())
    by_word: dict[str, NextWord] = {}
    for index, word in next_words:
        so_far = by_word.get(word.label, NextWord(word.label, 0.0, index))
        here = probability[tuple(outputs[index][: word.tokens.stop])]
        by_word[word.label] = replace(so_far, probability=max(so_far.probability, here))
    return sorted(by_word.values(), key=lambda word: -word.probability)[:count]


@torch.inference_mode()
def most_for_others(model: Model, tokenizer: SideTokenizer, source: Ids, target: Ids) -> list[float]:
    """Return for each word of a target the most that another word in its place may have as its probability.

    It is that of the likeliest piece with which the model would leave the word: at its beginning one that begins a
    word, later any, behind it one that makes it longer, times those of the word's pieces before it. source, target: ids
    without EOS; model: in eval mode.
    """
    (log_p,) = next_log_p(model, source, [target], [0])
    right = log_p[range(len(target)), target]
    log_p[range(len(target)), target] = -inf
    log_p[:, sorted(tokenizer.special_ids.union(tokenizer.suppressed))] = -inf
    inside, ends = ~begins_word(tokenizer).to(log_p.device), ends_word(tokenizer).to(log_p.device)
    most = []
    for word in bare_words(tokenizer, target):
        pieces = slice(word.tokens.start, word.tokens.stop)
        log_p[word.tokens.start, inside] = -inf
        others = right[pieces].cumsum(0) - right[pieces] + log_p[pieces].amax(1)
        longer = right[pieces].sum() + log_p[word.tokens.stop].masked_fill(ends, -inf).amax()
        most.append(float(torch.cat([others, longer[None]]).exp().amax()) if word.tokens else 0.0)
    return most


def bare_words(tokenizer: SideTokenizer, ids: Ids) -> list[Word]:
    """Return the words of a text without the marks behind them; their tokens are those with the space in front.

    ids: the tokens of the text.
    """
    spans, bare = character_spans(tokenizer, ids), list[Word]()
    before = next((position for position, id in enumerate(ids) if id not in tokenizer.special_ids), len(ids))
    for word in words(tokenizer, ids):
        label = MARKS_BEHIND.sub("", word.label)
        end = word.span[0] + len(label)
        last = max((position for position in word.tokens if spans[position][0] < end), default=before - 1)
        bare.append(Word(label, range(before, last + 1), (word.span[0], end)))
        before = word.tokens.stop or before
    return bare
