"""Beam search for outputs that have to contain terms: dynamic beam allocation (Post & Vilar 2018; Hu et al. 2019).

The hypotheses of a sentence are put in banks by how many tokens of their terms they have, and each bank has its share
of the beams, so that hypotheses with forced tokens and those that the model prefers do not crowd each other out.

A term has to occur as often as it is asked for, and does not overlap with itself; different terms may share tokens. It
counts once the next token, or EOS, shows that its last word is over.

Every operation of a step treats all hypotheses at once. Shapes: R live sentences, K beams, M candidates, V vocabulary,
T terms, N sequences (the alternatives of all terms), L tokens of a sequence.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from dragoman.decoding.engine import Term
from dragoman.decoding.search import BeamAllocation, BeamStep, Hypothesis, OutputSpec, beam_search
from dragoman.model import Seq2Seq

# What a token begins or ends with: a mark or a character that stands for itself; a letter or digit of a word; a letter
# of a word that a term may end inside of, because endings follow without a space.
OPEN, WORD, STEM = 0, 1, 2

# How many first tokens of terms, and how many next tokens of those begun, are tried for each hypothesis, the most
# probable ones: bounds memory where a text has hundreds of terms.
CHOICES = 16


def constrained_search(
    model: Seq2Seq,
    source: Tensor,
    terms: Sequence[tuple[Term, ...]],
    output: OutputSpec,
    *,
    beams: int,
    n_best: int | None = None,
    boundaries: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """Search as `beam_search` does for outputs that have all `terms` of their sentences.

    A hypothesis ends only when it has them, or when the processors leave it no other token. However narrow the beam,
    they are met where the maximum length allows all their longest sequences one after the other, and EOS, each term has
    a sequence that begins OPEN, and no processor forbids them. Where no hypothesis has them by then, the unfinished
    ones with the most of them are returned.

    `boundaries` (V, 2): what each token begins and ends with. A sequence that begins or ends with a WORD does not count
    right after or before another one, nor one that begins with a STEM after a STEM. Default: all tokens are OPEN.
    """
    allocation = TermAllocation(TermTable.of(terms, source.device, boundaries), beams)
    return beam_search(model, source, output, beams=beams, n_best=n_best, allocation=allocation)


class TermAllocation(BeamAllocation):
    """Give the beams of a sentence to its banks in turn."""

    def __init__(self, table: "TermTable", beams: int):
        super().__init__()
        self.table, self.progress = table, table.start(beams)

    def expand(self, so_far: Tensor, log_p: Tensor, last: Tensor, eos: int) -> BeamStep:
        beams = so_far.size(1)
        candidates = Candidates.of(so_far.unsqueeze(-1) + log_p, last, self.table, self.progress, eos)
        end_score, end_beam = candidates.ended(beams)
        score, chosen = candidates.open(beams)
        self.progress = candidates.progress.select(chosen)
        return BeamStep(score, pick(candidates.beam, chosen), pick(candidates.token, chosen), end_score, end_beam)

    def compete(self, score: Tensor, token: Tensor, unfinished: Tensor, eos: int) -> Tensor:
        """Return the scores of those hypotheses alone that have the most tokens of their terms; -inf for the others.

        Even they compete only if they have all their terms, or if no hypothesis of the sentence is finished.
        """
        progress = self.table.advance(self.progress, token, torch.full_like(token, eos))
        matched = self.table.tokens_matched(progress).masked_fill(score == -math.inf, -1)
        competes = matched == matched.amax(1, keepdim=True)
        competes &= unfinished[:, None] | (matched == self.table.total_length[:, None])
        return score.masked_fill(~competes, -math.inf)

    def select(self, live: Tensor) -> None:
        self.table, self.progress = self.table.select(live), self.progress.select_sentences(live)


@dataclass(frozen=True)
class TermProgress:
    """Hold how much of their terms the k hypotheses of each sentence have."""

    begun: Tensor  # (R, k, N, L): whether the last l + 1 tokens are the first l + 1 of a sequence
    left: Tensor  # (R, k, T): how often each term has still to come

    def select(self, index: Tensor) -> "TermProgress":
        """Return the progress of the hypotheses index (R, n) of each sentence."""
        return TermProgress(pick(self.begun, index), pick(self.left, index))

    def select_sentences(self, rows: Tensor) -> "TermProgress":
        return TermProgress(self.begun[rows], self.left[rows])


@dataclass(frozen=True)
class TermTable:
    """Hold the terms of each sentence as tensors."""

    sequence: Tensor  # (R, N, L): the alternatives of all terms, padded with -1
    length: Tensor  # (R, N): of each
    term: Tensor  # (R, N): which term each is for
    wanted: Tensor  # (R, T): how often each term has to come
    term_length: Tensor  # (R, T): tokens that each counts for: as many as its longest alternative has
    boundaries: Tensor | None = None  # (V, 2): see `constrained_search`

    @classmethod
    def of(
        cls, terms: Sequence[tuple[Term, ...]], device: torch.device, boundaries: Tensor | None = None
    ) -> "TermTable":
        """Count the terms of each sentence; a term that is asked for twice has to come twice."""
        sequences, owners, wanted, term_lengths = [], [], [], []
        for asked in terms:
            counts = Counter(tuple(sorted(set(term))) for term in asked)
            # One row more, which nothing equals: also where there is no term there is something to compute with.
            alternatives = [alternative for term in counts for alternative in term] + [(-1,)]
            sequences.append([torch.tensor(alternative) for alternative in alternatives])
            owners.append(torch.tensor([index for index, term in enumerate(counts) for _ in term] + [0]))
            wanted.append(torch.tensor([*counts.values(), 0]))
            term_lengths.append(torch.tensor([*(max(map(len, term)) for term in counts), 0]))
        most = max(map(len, sequences))
        flat = [row for rows in sequences for row in rows + [torch.tensor([-1])] * (most - len(rows))]
        sequence = pad_sequence(flat, batch_first=True, padding_value=-1).view(len(sequences), most, -1)
        sequence, term, count, term_length = (
            tensor.to(device)
            for tensor in (sequence, *(pad_sequence(rows, batch_first=True) for rows in (owners, wanted, term_lengths)))
        )
        return cls(sequence, (sequence >= 0).sum(-1), term, count, term_length, boundaries)

    def select(self, rows: Tensor) -> "TermTable":
        """Return the table of the hypotheses `rows`, in that order."""
        return replace(
            self,
            sequence=self.sequence[rows],
            length=self.length[rows],
            term=self.term[rows],
            wanted=self.wanted[rows],
            term_length=self.term_length[rows],
        )

    @property
    def total_length(self) -> Tensor:
        """Return (R,): the `tokens_matched` of a hypothesis that has all its terms."""
        return (self.wanted * self.term_length).sum(-1)

    def start(self, beams: int) -> TermProgress:
        """Return the progress of hypotheses without any token."""
        begun = torch.zeros_like(self.sequence, dtype=torch.bool)
        return TermProgress(begun[:, None].repeat(1, beams, 1, 1), self.wanted[:, None].repeat(1, beams, 1))

    def pending(self, progress: TermProgress) -> Tensor:
        """Return (R, k, N): whether the term of each sequence has still to come."""
        return progress.left.gather(2, self.term[:, None].expand(progress.begun.shape[:3])) > 0

    def completed(self, progress: TermProgress) -> Tensor:
        """Return (R, k, N): whether the last tokens are the sequence; it counts if the next token leaves it a word."""
        lengths = torch.arange(1, self.sequence.size(2) + 1, device=self.length.device)
        return (progress.begun & (lengths == self.length[..., None])[:, None]).any(-1)

    def begun_length(self, progress: TermProgress) -> Tensor:
        """Return (R, k, N): the length of the longest beginning of each sequence that the last tokens are."""
        lengths = torch.arange(1, self.sequence.size(2) + 1, device=self.length.device, dtype=torch.int32)
        return (progress.begun * lengths).amax(-1)

    def partial_match(self, progress: TermProgress) -> Tensor:
        """Return (R, k, N): how many tokens the beginning of each sequence counts for, more the fewer are missing."""
        begun, term_length = self.begun_length(progress), self.term_length.gather(1, self.term)
        return ((term_length - self.length)[:, None] + begun).masked_fill(~self.pending(progress) | (begun == 0), 0)

    def tokens_matched(self, progress: TermProgress) -> Tensor:
        """Return (R, k): how many tokens of the terms hypotheses have: of those met, and of the one most nearly met.

        Only one of those begun counts, for they may share tokens of which not all can be kept.
        """
        met = ((self.wanted[:, None] - progress.left) * self.term_length[:, None]).sum(-1)
        return met + self.partial_match(progress).amax(-1)

    def advance(self, progress: TermProgress, last: Tensor, token: Tensor) -> TermProgress:
        """Return the progress of hypotheses with one more token; last, the one before it, and token (R, k)."""
        may_begin, may_end = self.words_split(last, token)
        term = self.term[:, None].expand(progress.begun.shape[:3])
        counted = (self.completed(progress) & may_end[..., None]).long()
        met = torch.zeros_like(progress.left).scatter_add_(2, term, counted).clamp(max=1) * (progress.left > 0)
        kept = progress.begun & (met.gather(2, term) == 0)[..., None]  # the next occurrence begins after this one
        before_each = torch.cat([may_begin[..., None, None].expand(*kept.shape[:3], 1), kept[..., :-1]], -1)
        fits = self.sequence[:, None] == token[..., None, None]
        return TermProgress(before_each & fits, progress.left - met)

    def next_tokens(self, progress: TermProgress, last: Tensor) -> tuple[Tensor, Tensor]:
        """Return (R, k, N) twice: the token that may begin each sequence, and the one that continues it, after last (R,
        k).

        -1 stands for no token: also where a term need not come any more.
        """
        pending, begun = self.pending(progress), self.begun_length(progress).long()
        first = self.sequence[:, None, :, 0].expand(pending.shape)
        may_begin, _ = self.words_split(last[..., None].expand(pending.shape), first.clamp(min=0))
        index = begun.clamp(max=self.sequence.size(2) - 1)[..., None]
        following = self.sequence[:, None].expand(progress.begun.shape).gather(3, index)[..., 0]
        ready = pending & (begun > 0) & (begun < self.length[:, None])
        return first.masked_fill(~pending | ~may_begin, -1), following.masked_fill(~ready, -1)

    def words_split(self, last: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        """Return whether a sequence may begin with `token`, and end with `last`, where `token` follows `last`."""
        if self.boundaries is None:
            free = torch.ones_like(token, dtype=torch.bool)
            return free, free
        end, begin = self.boundaries[last, 1], self.boundaries[token, 0]
        return (end != begin) | (begin == OPEN), (end != WORD) | (begin != WORD)

    def without_longer_words(self, total: Tensor, last: Tensor, progress: TermProgress) -> Tensor:
        """Mask in total (R, K, V) the tokens that would make another word of a term just completed; last (R, K)."""
        if self.boundaries is None:
            return total
        inside = self.completed(progress).any(-1) & (self.boundaries[last, 1] == WORD)
        return total.masked_fill(inside[..., None] & (self.boundaries[:, 0] == WORD), -math.inf)


@dataclass(frozen=True)
class Candidates:
    """Hold continuations of the hypotheses of each sentence, all (R, M), the most probable first; score -inf: none."""

    score: Tensor
    beam: Tensor  # which of the K each continues
    token: Tensor
    is_end: Tensor
    bank: Tensor  # tokens of the terms that it has
    rank_in_bank: Tensor  # how many of the same bank are more probable
    progress: TermProgress

    @classmethod
    def of(cls, total: Tensor, last: Tensor, table: TermTable, progress: TermProgress, eos: int) -> "Candidates":
        """Collect the continuations worth comparing.

        total (R, K, V): the score with each token; last (R, K): the token before.
        """
        beams, words = total.shape[1:]
        first = torch.arange(beams, device=total.device)[:, None] * words
        open_total = total.clone()
        open_total[..., eos] = -math.inf
        begin, following = table.next_tokens(progress, last)
        nearest = table.partial_match(progress).masked_fill(following < 0, -1).argmax(-1, keepdim=True)
        tried = torch.cat([likeliest(total, begin), likeliest(total, following), following.gather(2, nearest)], -1)
        proposed = [
            # Twice as many as beams: K of them may end here, and K must stay open.
            total.flatten(1).topk(min(2 * beams, beams * words)).indices,
            (first + table.without_longer_words(open_total, last, progress).argmax(-1, keepdim=True)).flatten(1),
            (first + torch.where(tried >= 0, tried, eos)).flatten(1),
            (first[:, 0] + eos).expand(len(total), -1),
        ]
        index = torch.cat(proposed, 1).sort(1).values
        repeated = torch.nn.functional.pad(index[:, 1:] == index[:, :-1], (1, 0))
        score = total.flatten(1).gather(1, index).masked_fill(repeated, -math.inf)
        beam, token = index // words, index % words
        after = table.advance(progress.select(beam), last.gather(1, beam), token)
        bank, is_end = table.tokens_matched(after), token == eos
        stuck = (open_total.amax(-1) == -math.inf).gather(1, beam)
        score = score.masked_fill(is_end & (bank < table.total_length[:, None]) & ~stuck, -math.inf)
        score, order = score.sort(dim=1, descending=True, stable=True)
        beam, token, is_end, bank = (pick(column, order) for column in (beam, token, is_end, bank))
        return cls(score, beam, token, is_end, bank, ranks(bank), after.select(order))

    def ended(self, beams: int) -> tuple[Tensor, Tensor]:
        """Return (R, K) scores and beams of those that end and are among the first K of their bank; -inf where fewer
        do.
        """
        score, index = self.score.masked_fill(~self.is_end | (self.rank_in_bank >= beams), -math.inf).topk(beams)
        return score, pick(self.beam, index)

    def open(self, beams: int) -> tuple[Tensor, Tensor]:
        """Return (R, K) scores and indices of those that stay open: the first of each bank, the second of each, and so
        on.

        Where there are more banks than beams, the bank with the most tokens comes first, then the more probable ones.
        """
        score = self.score.masked_fill(self.is_end, -math.inf)
        gone = score == -math.inf
        bank = self.bank.masked_fill(gone, -1)
        turn = (2 * ranks(bank) + (bank < bank.amax(1, keepdim=True))).masked_fill(gone, 2 * bank.size(1))
        chosen = turn.argsort(dim=1, stable=True)[:, :beams]
        return pick(score, chosen), chosen


def likeliest(total: Tensor, tokens: Tensor) -> Tensor:
    """Return the CHOICES most probable of tokens (R, K, N) by total (R, K, V); -1: none."""
    score = total.gather(2, tokens.clamp(min=0)).masked_fill(tokens < 0, -math.inf)
    return tokens.gather(2, score.topk(min(CHOICES, tokens.size(2))).indices)


def ranks(bank: Tensor) -> Tensor:
    """Return (R, M): how many of the same bank come before each."""
    grouped, index = bank.sort(dim=1, stable=True)
    rank = torch.arange(bank.size(1), device=bank.device) - torch.searchsorted(grouped, grouped)
    return torch.zeros_like(bank).scatter(1, index, rank)


def pick(values: Tensor, index: Tensor) -> Tensor:
    """Return values (R, m, ...) at index (R, n) as (R, n, ...)."""
    return values[torch.arange(len(values), device=values.device)[:, None], index]
