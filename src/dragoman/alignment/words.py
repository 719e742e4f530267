"""Find the words of tokenised text, and turn weights of tokens into those of words.

Shapes: T target tokens, S source tokens, W target words, U source words.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from dragoman.data.batches import Ids
from dragoman.data.tokenizer import EOS, SPECIAL
from dragoman.data.tokenizers import SideTokenizer

Span = tuple[int, int]  # start and end, as for a slice


@dataclass(frozen=True)
class Word:
    """A word or another unit of a text: its label, its tokens, and its characters."""

    label: str
    tokens: range
    span: Span = (0, 0)


def words(tokenizer: SideTokenizer, ids: Ids) -> list[Word]:
    """Return the words of a text as `str.split` finds them, with their tokens and characters.

    ids: the tokens of the text. Tags and white space belong to no word, but a single space that is a token of its own,
    as before a word that is spelled in bytes, is part of the word behind it. A token that covers several words belongs
    to the first of them.
    """
    text = tokenizer.decode(ids)
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    starts = [start for start, _ in spans]
    tokens: list[range] = [range(0)] * len(spans)
    for position, (start, end) in enumerate(character_spans(tokenizer, ids, text)):
        visible = text[start:end].lstrip()
        if visible:
            word = bisect_right(starts, min(end, len(text)) - len(visible)) - 1
            first = tokens[word].start if tokens[word] else with_space(tokenizer, ids, position)
            tokens[word] = range(first, position + 1)
    return [Word(text[start:end], mine, (start, end)) for mine, (start, end) in zip(tokens, spans, strict=True)]


def with_space(tokenizer: SideTokenizer, ids: Ids, first: int) -> int:
    """Return the position at which a word begins whose first token that can be seen is at `first`: maybe a space."""
    piece, before = tokenizer.pieces[ids[first]], tokenizer.pieces[ids[first - 1]] if first else ""
    return first - (before == " " and not piece.startswith(" "))


def subwords(tokenizer: SideTokenizer, ids: Ids) -> list[Word]:
    """Return each token of `ids` but the tags as a word, for languages that are written without spaces."""
    spans = character_spans(tokenizer, ids)
    return [
        Word(token_label(tokenizer, id), range(position, position + 1), spans[position])
        for position, id in enumerate(ids)
        if id not in tokenizer.special_ids
    ]


def fill_gaps(words: Sequence[Word], tokenizer: SideTokenizer, ids: Ids) -> list[Word]:
    """Return `words` with an entry for each token that is in none of them: tags, white space and, last, EOS.

    ids: the tokens of the text, without EOS.
    """
    entries: list[Word] = []
    position = 0
    for word in [*words, Word(SPECIAL[EOS], range(len(ids), len(ids) + 1))]:
        gap = range(position, word.tokens.start)
        entries += [Word(token_label(tokenizer, ids[index]), range(index, index + 1)) for index in gap]
        entries.append(word)
        position = max(position, word.tokens.stop)
    return entries


def token_label(tokenizer: SideTokenizer, id: int) -> str:
    """Return the piece of a token as figures show it, with ␣ for a space."""
    return tokenizer.pieces[id].replace(" ", "␣")


def character_spans(tokenizer: SideTokenizer, ids: Ids, text: str | None = None) -> list[Span]:
    """Return the span of characters that each token stands for in `text`, by default the text that the ids decode to.

    text: that of these very tokens, with or without the space in front that the first piece may begin with. Each byte
    of a character has the span of the character. The span of a special token or tag is empty.
    """
    spans: list[Span] = [(0, 0)] * len(ids)
    visible = [position for position, id in enumerate(ids) if id not in tokenizer.special_ids]
    end = 0
    for bytewise, group in groupby(visible, lambda position: ids[position] in tokenizer.byte_values):
        run = list(group)
        if bytewise:
            stops = end + np.cumsum(first_bytes(bytes(tokenizer.byte_values[ids[position]] for position in run)))
            starts = stops - 1
        else:
            stops = end + np.cumsum([len(tokenizer.pieces[ids[position]]) for position in run])
            starts = np.concatenate([[end], stops[:-1]])
        for position, start, stop in zip(run, starts.tolist(), stops.tolist(), strict=True):
            spans[position] = (start, stop)
        end = int(stops[-1])
    text = tokenizer.decode(ids) if text is None else text
    space = end - len(text)  # 1 if the pieces begin with the space that decoding removes
    return [(max(start - space, 0), max(stop - space, 0)) for start, stop in spans]


def first_bytes(data: bytes) -> list[bool]:
    """Return which bytes begin a character; all of them if they are not UTF-8, because each then becomes U+FFFD."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return [True] * len(data)
    return [byte & 0xC0 != 0x80 for byte in data]


def merge_tokens(weights: Tensor, rows: Sequence[Word], columns: Sequence[Word]) -> Tensor:
    """Return the weights (..., W, U) of words, from the weights (..., T, S) of their tokens.

    They are summed over the tokens of a column, and averaged over those of a row, so rows that sum to 1 still do if
    every token belongs to a word.
    """
    mean = membership_table(rows, weights.size(-2), mean=True)
    return (mean @ weights.double() @ membership_table(columns, weights.size(-1)).T).to(weights.dtype)


def membership_table(words: Sequence[Word], tokens: int, mean: bool = False) -> Tensor:
    """Return a table (words, tokens), float64: 1 where a token belongs to a word, else 0.

    With `mean`, each word's row is divided by the number of its tokens.
    """
    table = np.zeros((len(words), tokens))
    for row, word in enumerate(words):
        table[row, word.tokens.start : word.tokens.stop] = 1 / max(len(word.tokens), 1) if mean else 1
    return torch.from_numpy(table)
