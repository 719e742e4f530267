"""Change the log-probabilities of the next token, so that an output contains what it must and nothing forbidden.

Shapes: R hypotheses, V vocabulary, L tokens so far with BOS, B sentences.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class Processor(Protocol):
    """A rule that forbids tokens, or makes them more or less probable, at each step of a search."""

    def __call__(self, log_p: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        """Return log_p (R, V) of the next token after tokens (R, L), with -inf for each token that may not follow.

        sentence (R,): which sentence of the batch each row translates. May write into log_p. Hypotheses that have
        ended may be among the rows; what is returned for them is ignored.
        """
        ...


def apply_processors(
    processors: Sequence[Processor], log_p: Tensor, tokens: Tensor, sentence: Tensor, eos: int
) -> Tensor:
    """Return log_p (R, V) after all processors, applied in turn; log_p may be changed in place.

    tokens (R, L): the hypotheses so far; sentence (R,): which sentence each translates. A hypothesis to which the
    processors leave no token may end: `eos` keeps the log-probability that it had before them.
    """
    end = log_p[:, eos].clone()
    for processor in processors:
        log_p = processor(log_p, tokens, sentence)
    stuck = log_p.amax(-1) == -math.inf
    log_p[:, eos] = torch.where(stuck, end, log_p[:, eos])
    return log_p


class Dropped:
    """End sentences that nobody waits for any more, so that they leave the batch.

    It is applied after all other processors, because whatever they demand, nothing may follow.
    """

    def __init__(self, eos: int):
        self.eos = eos
        self.sentences: set[int] = set()  # numbers in the batch; more of them may come between two steps

    def __call__(self, log_p: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        """Return log_p (R, V), changed in place: only EOS may follow in hypotheses of a dropped sentence.

        sentence (R,): which sentence each translates.
        """
        if self.sentences:
            gone = torch.isin(sentence, sentence.new_tensor(sorted(self.sentences)))
            log_p[gone] = -math.inf
            log_p[gone, self.eos] = 0.0
        return log_p


class MinimumLength:
    """Forbid EOS before `length` tokens."""

    def __init__(self, length: int, eos: int):
        self.length, self.eos = length, eos

    def __call__(self, log_p: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        """Return log_p (R, V), changed in place: -inf for EOS while tokens (R, L) are too few; BOS does not count."""
        if tokens.size(1) <= self.length:  # BOS is one of the tokens
            log_p[:, self.eos] = -math.inf
        return log_p


class NoRepeat:
    """Forbid a sequence of `size` tokens to come twice."""

    def __init__(self, size: int):
        self.size = size

    def __call__(self, log_p: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        """Return log_p (R, V) with -inf for each token that would repeat a sequence of `size` tokens.

        tokens (R, L): the hypotheses so far, BOS first, which does not count.
        """
        output = tokens[:, 1:]
        if output.size(1) < self.size:
            return log_p
        windows = output.unfold(1, self.size, 1)  # R, L - size, size
        again = (windows[..., :-1] == output[:, None, output.size(1) - self.size + 1 :]).all(-1)
        cost = torch.zeros_like(again, dtype=log_p.dtype).masked_fill_(again, -math.inf)
        return log_p.scatter_add(1, windows[..., -1], cost)


class Suppressed:
    """Forbid single tokens, the same for all sentences, such as the unknown word."""

    def __init__(self, tokens: Sequence[int], device: torch.device):
        self.tokens = torch.tensor(list(tokens), dtype=torch.long, device=device)

    def __call__(self, log_p: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        """Return log_p (R, V), changed in place: -inf for these tokens."""
        return log_p.index_fill_(1, self.tokens, -math.inf)


class Forbidden:
    """Forbid sequences of tokens, other ones for each sentence."""

    def __init__(self, forbidden: Sequence[Sequence[Sequence[int]]], device: torch.device):
        banned = [{tuple(sequence) for sequence in sequences} for sequences in forbidden]  # of each sentence
        self.sequences = [
            (sequence, torch.tensor([sequence in sequences for sequences in banned], device=device))
            for sequence in dict.fromkeys(tuple(sequence) for sequences in forbidden for sequence in sequences)
        ]

    def __call__(self, log_p: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        """Return log_p (R, V), changed in place: -inf for each token that would complete a forbidden sequence.

        tokens (R, L): the hypotheses so far; sentence (R,): which sentence each translates.
        """
        for (*before, last), forbidden in self.sequences:
            if len(before) < tokens.size(1):
                latest = tokens[:, tokens.size(1) - len(before) :]
                begun = (latest == tokens.new_tensor(before)).all(-1) & forbidden[sentence]
                log_p[:, last] = log_p[:, last].masked_fill(begun, -math.inf)
        return log_p


class Prefix:
    """Begin each output with the tokens given for its sentence, which keep the probabilities of the model.

    The processors `afterwards` act only after the prefix, so that a prefix may have what they forbid. Before it come
    the `tags`, those of each sentence, whose tokens are certain: their log-probability is 0.
    """

    def __init__(
        self,
        prefixes: Sequence[Sequence[int]],
        device: torch.device,
        afterwards: Sequence[Processor] = (),
        tags: Sequence[Sequence[int]] = (),
    ):
        given = [len(tag) for tag in tags] or [0] * len(prefixes)
        forced = [[*tag, *prefix] for tag, prefix in zip(tags or [()] * len(prefixes), prefixes, strict=True)]
        longest = max(map(len, forced))
        rows = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in forced]
        self.prefixes = torch.tensor(rows, device=device).view(len(rows), longest)  # -1: free
        self.given, self.longest_tag = torch.tensor(given, device=device), max(given)
        self.afterwards = afterwards

    def __call__(self, log_p: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        """Return log_p (R, V) with -inf for all but the next token of the prefix.

        After it, that of the other processors. tokens (R, L): the hypotheses so far; sentence (R,): which sentence each
        translates. May write into log_p.
        """
        position = tokens.size(1) - 1
        inside = position < self.prefixes.size(1)
        if inside:  # before the others, which may write into log_p
            forced_token = self.prefixes[sentence, position][:, None]
            forced = log_p.masked_fill(torch.arange(log_p.size(1), device=log_p.device) != forced_token, -math.inf)
            if position < self.longest_tag:
                certain = (position < self.given[sentence])[:, None]
                forced = torch.where(certain & (forced > -math.inf), 0.0, forced)
        for processor in self.afterwards:
            log_p = processor(log_p, tokens, sentence)
        return torch.where(forced_token >= 0, forced, log_p) if inside else log_p
