"""What a search may not say, or must say: rules that change the log-probabilities of the next token.

Shapes: R hypotheses, V vocabulary, L tokens so far with the start, B sentences.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class Processor(Protocol):
    def __call__(self, log_p: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        """log_p (R, V) of the next token after tokens (R, L) -> the same, -inf where it may not come.

        sentence (R,): which sentence of the batch each row translates.
        """
        ...


def apply_processors(rules: Sequence[Processor], log_p: Tensor, tokens: Tensor, sentence: Tensor, eos: int) -> Tensor:
    """All rules, one after the other. Where they leave nothing to say, the hypothesis may end."""
    if not rules:
        return log_p
    end = log_p[:, eos].clone()
    for rule in rules:
        log_p = rule(log_p, tokens, sentence)
    stuck = log_p.amax(-1) == -math.inf
    log_p[:, eos] = torch.where(stuck, end, log_p[:, eos])
    return log_p


class MinimumLength:
    """No end before so many tokens."""

    def __init__(self, length: int, eos: int):
        self.length, self.eos = length, eos

    def __call__(self, log_p: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        if tokens.size(1) <= self.length:  # the start is among the tokens
            log_p[:, self.eos] = -math.inf
        return log_p


class NoRepeat:
    """No sequence of `size` tokens twice."""

    def __init__(self, size: int):
        self.size = size

    def __call__(self, log_p: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        said = tokens[:, 1:]
        if said.size(1) < self.size:
            return log_p
        windows = said.unfold(1, self.size, 1)  # R, L - size, size
        again = (windows[..., :-1] == said[:, None, said.size(1) - self.size + 1 :]).all(-1)
        cost = torch.zeros_like(again, dtype=log_p.dtype).masked_fill_(again, -math.inf)
        return log_p.scatter_add(1, windows[..., -1], cost)


class Forbidden:
    """None of the sequences of tokens that are given for its sentence."""

    def __init__(self, forbidden: Sequence[Sequence[Sequence[int]]], device: torch.device):
        sequences = dict.fromkeys(tuple(sequence) for own in forbidden for sequence in own)
        owns = [{tuple(sequence) for sequence in own} for own in forbidden]
        self.sequences = [
            (sequence, torch.tensor([sequence in own for own in owns], device=device)) for sequence in sequences
        ]

    def __call__(self, log_p: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        for (*before, last), forbidden in self.sequences:
            if len(before) < tokens.size(1):
                said = tokens[:, tokens.size(1) - len(before) :]
                begun = (said == tokens.new_tensor(before)).all(-1) & forbidden[sentence]
                log_p[:, last] = log_p[:, last].masked_fill(begun, -math.inf)
        return log_p


class Prefix:
    """Each output begins with the tokens given for its sentence; their own probabilities count as always.

    The rules of `behind` hold only behind it: whoever gives a prefix means it, whatever else is forbidden.
    """

    def __init__(self, prefixes: Sequence[Sequence[int]], device: torch.device, behind: Sequence[Processor] = ()):
        longest = max(map(len, prefixes))
        rows = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
        self.prefixes = torch.tensor(rows, device=device).view(len(prefixes), longest)  # -1: free
        self.behind = behind

    def __call__(self, log_p: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        place = tokens.size(1) - 1
        inside = place < self.prefixes.size(1)
        if inside:  # before the others, which may write into log_p
            must = self.prefixes[sentence, place][:, None]
            forced = log_p.masked_fill(torch.arange(log_p.size(1), device=log_p.device) != must, -math.inf)
        for rule in self.behind:
            log_p = rule(log_p, tokens, sentence)
        return torch.where(must >= 0, forced, log_p) if inside else log_p
