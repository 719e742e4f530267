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
from dragoman.decoding.search import BeamAllocation, BeamSearch, BeamStep, OutputSpec, Steps
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
) -> Steps:
    """Find, as `BeamSearch.steps` does, the best hypotheses for each sentence that have all `terms` of the sentence.

    A hypothesis ends only when it has them, or when the processors leave it no other token. However narrow the beam,
    they are met where the maximum length allows all their longest sequences one after the other, and EOS, each term has
    a sequence that begins OPEN, and no processor forbids them. Where no hypothesis has them by then, the unfinished
    ones with the most of them are returned.

    `boundaries` (V, 2): what each token begins and ends with. A sequence that begins or ends with a WORD does not count
    right after or before another one, nor one that begins with a STEM after a STEM. Default: all tokens are OPEN.
    """
    allocation = TermAllocation(TermTable.from_terms(terms, source.device, boundaries), beams)
    return BeamSearch(model, source, output, beams, n_best, allocation=allocation).steps()


class TermAllocation(BeamAllocation):
    """Give the beams of a sentence in turn to its banks: hypotheses with equally many tokens of their terms."""

    def __init__(self, table: "TermTable", beams: int):
        super().__init__()
        self.table, self.progress = table, table.start(beams)

    def expand(self, so_far: Tensor, log_p: Tensor, last: Tensor, eos: int) -> BeamStep:
        """Return the continuations to keep, from each bank in turn, and those that end.

        Keep their progress with terms. Arguments and shapes are those of `BeamAllocation.expand`.
        """
        beams = so_far.size(1)
        candidates = Candidates.select(so_far.unsqueeze(-1) + log_p, last, self.table, self.progress, eos)
        end_score, end_beam = candidates.select_ended(beams)
        score, chosen = candidates.select_open(beams)
        self.progress = candidates.progress.select(chosen)
        return BeamStep(score, pick(candidates.beam, chosen), pick(candidates.token, chosen), end_score, end_beam)

    def cut_off_scores(self, score: Tensor, token: Tensor, unfinished: Tensor, eos: int) -> Tensor:
        """Return the scores (R, K) with -inf for hypotheses that are dropped when the maximum length cuts them off.

        Those with the most tokens of their terms are kept if they have all terms or if the sentence has no finished
        hypothesis.
        """
        progress = self.table.advance(self.progress, token, torch.full_like(token, eos))
        matched = self.table.tokens_matched(progress).masked_fill(score == -math.inf, -1)
        competes = matched == matched.amax(1, keepdim=True)
        competes &= unfinished[:, None] | (matched == self.table.total_length[:, None])
        return score.masked_fill(~competes, -math.inf)

    def keep(self, live: Tensor) -> None:
        """Keep the terms and the progress of the sentences with True in `live` (R,), in place."""
        self.table, self.progress = self.table.select(live), self.progress.select_sentences(live)


@dataclass(frozen=True)
class TermProgress:
    """Count how much of their terms the k hypotheses of each sentence have; shapes as in `TermTable`."""

    begun: Tensor  # (R, k, N, L): whether the last l + 1 tokens are the first l + 1 of a sequence
    left: Tensor  # (R, k, T): how often each term has still to come

    def select(self, index: Tensor) -> "TermProgress":
        """Return the progress of the hypotheses at `index` (R, n) of each sentence."""
        return TermProgress(pick(self.begun, index), pick(self.left, index))

    def select_sentences(self, rows: Tensor) -> "TermProgress":
        """Return the progress of the sentences `rows`: indices in the wanted order, or (R,), bool, True to keep."""
        return TermProgress(self.begun[rows], self.left[rows])


@dataclass(frozen=True)
class TermTable:
    """The terms of R sentences as tensors: T terms, N sequences of tokens that stand for them, of L tokens at most."""

    sequence: Tensor  # (R, N, L): the alternatives of all terms, padded with -1
    length: Tensor  # (R, N): of each
    term: Tensor  # (R, N): which term each is for
    wanted: Tensor  # (R, T): how often each term has to come
    term_length: Tensor  # (R, T): tokens that each counts for: as many as its longest alternative has
    boundaries: Tensor | None = None  # (V, 2): see `constrained_search`

    @classmethod
    def from_terms(
        cls, terms: Sequence[tuple[Term, ...]], device: torch.device, boundaries: Tensor | None = None
    ) -> "TermTable":
        """Return the table of the terms of each sentence; a term that is given twice has to come twice.

        terms: those of each sentence, each as its alternative token sequences; boundaries (V, 2): see
        `constrained_search`.
        """
        sequences, owners, wanted, term_lengths = [], [], [], []
        for asked in terms:
            counts = Counter(tuple(sorted(set(term))) for term in asked)
            # One more row, which no token equals, so that the tensors are not empty where a sentence has no term.
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
        """Return the table of the sentences `rows`: indices in the wanted order, or (R,), bool, True to keep."""
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
        """The `tokens_matched` of a hypothesis with all terms of its sentence, (R,)."""
        return (self.wanted * self.term_length).sum(-1)

    def start(self, beams: int) -> TermProgress:
        """Return the progress of `beams` hypotheses for each sentence before their first token."""
        begun = torch.zeros_like(self.sequence, dtype=torch.bool)
        return TermProgress(begun[:, None].repeat(1, beams, 1, 1), self.wanted[:, None].repeat(1, beams, 1))

    def pending(self, progress: TermProgress) -> Tensor:
        """Return (R, k, N), bool: whether each hypothesis still needs the term that each sequence stands for."""
        return progress.left.gather(2, self.term[:, None].expand(progress.begun.shape[:3])) > 0

    def completed(self, progress: TermProgress) -> Tensor:
        """Return (R, k, N), bool: whether each hypothesis ends with the whole of each sequence.

        Its term is not met yet: the next token may lengthen the last word, see `advance`.
        """
        lengths = torch.arange(1, self.sequence.size(2) + 1, device=self.length.device)
        return (progress.begun & (lengths == self.length[..., None])[:, None]).any(-1)

    def begun_length(self, progress: TermProgress) -> Tensor:
        """Return (R, k, N): how many first tokens of each sequence each hypothesis ends with.

        It is the largest such number: 0 where a sequence is not begun, its length where it is complete.
        """
        lengths = torch.arange(1, self.sequence.size(2) + 1, device=self.length.device, dtype=torch.int32)
        return (progress.begun * lengths).amax(-1)

    def partial_match(self, progress: TermProgress) -> Tensor:
        """Return (R, k, N): how many tokens each begun sequence adds to the `tokens_matched` of a hypothesis.

        They are the tokens that its term counts for, less those that the sequence still lacks; 0 where the hypothesis
        has not begun the sequence or does not need its term any more.
        """
        begun, term_length = self.begun_length(progress), self.term_length.gather(1, self.term)
        return ((term_length - self.length)[:, None] + begun).masked_fill(~self.pending(progress) | (begun == 0), 0)

    def tokens_matched(self, progress: TermProgress) -> Tensor:
        """Return (R, k): how many tokens of its terms each hypothesis has, of terms met and of the one most nearly met.

        Of the terms begun only one counts, because they may overlap so that not all of them can be met.
        """
        met = ((self.wanted[:, None] - progress.left) * self.term_length[:, None]).sum(-1)
        return met + self.partial_match(progress).amax(-1)

    def advance(self, progress: TermProgress, last: Tensor, token: Tensor) -> TermProgress:
        """Return the progress after one more token: token (R, k), which follows last (R, k).

        `progress` stays as it is.
        """
        may_begin, may_end = self.may_begin_and_end(last, token)
        term = self.term[:, None].expand(progress.begun.shape[:3])
        counted = (self.completed(progress) & may_end[..., None]).long()
        met = torch.zeros_like(progress.left).scatter_add_(2, term, counted).clamp(max=1) * (progress.left > 0)
        kept = progress.begun & (met.gather(2, term) == 0)[..., None]  # occurrences of a term must not overlap
        before_each = torch.cat([may_begin[..., None, None].expand(*kept.shape[:3], 1), kept[..., :-1]], -1)
        fits = self.sequence[:, None] == token[..., None, None]
        return TermProgress(before_each & fits, progress.left - met)

    def next_tokens(self, progress: TermProgress, last: Tensor) -> tuple[Tensor, Tensor]:
        """Return (R, k, N) twice: the first token of each sequence, and the one that continues it where it is begun.

        -1 stands for no token. The first ones are -1 where the sequence may not begin after last (R, k), as inside a
        word, the others where it is not begun, or is complete, and both where its term need not come any more.
        """
        pending, begun = self.pending(progress), self.begun_length(progress).long()
        first = self.sequence[:, None, :, 0].expand(pending.shape)
        may_begin, _ = self.may_begin_and_end(last[..., None].expand(pending.shape), first.clamp(min=0))
        index = begun.clamp(max=self.sequence.size(2) - 1)[..., None]
        following = self.sequence[:, None].expand(progress.begun.shape).gather(3, index)[..., 0]
        ready = pending & (begun > 0) & (begun < self.length[:, None])
        return first.masked_fill(~pending | ~may_begin, -1), following.masked_fill(~ready, -1)

    def may_begin_and_end(self, last: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        """Return whether a sequence may begin with `token`, and whether one may end just before it, both in its shape.

        last: the token before each `token`.
        """
        if self.boundaries is None:
            free = torch.ones_like(token, dtype=torch.bool)
            return free, free
        end, begin = self.boundaries[last, 1], self.boundaries[token, 0]
        return (end != begin) | (begin == OPEN), (end != WORD) | (begin != WORD)

    def without_longer_words(self, total: Tensor, last: Tensor, progress: TermProgress) -> Tensor:
        """Return total (R, K, V) with -inf for tokens that would lengthen the word that a term just ended.

        total: the score with each next token; last (R, K): the token before.
        """
        if self.boundaries is None:
            return total
        inside = self.completed(progress).any(-1) & (self.boundaries[last, 1] == WORD)
        return total.masked_fill(inside[..., None] & (self.boundaries[:, 0] == WORD), -math.inf)


@dataclass(frozen=True)
class Candidates:
    """Continuations of the hypotheses of each sentence, all (R, M), the most probable first; score -inf: none."""

    score: Tensor
    beam: Tensor  # which of the K each continues
    token: Tensor
    is_end: Tensor
    bank: Tensor  # tokens of the terms that it has
    rank_in_bank: Tensor  # how many of the same bank are more probable
    progress: TermProgress

    @classmethod
    def select(cls, total: Tensor, last: Tensor, table: TermTable, progress: TermProgress, eos: int) -> "Candidates":
        """Return the continuations worth comparing: the most probable ones, and those that make progress with terms.

        total (R, K, V): the score with each token; last (R, K): the token before.
        """
        beams, words = total.shape[1:]
        first = torch.arange(beams, device=total.device)[:, None] * words
        open_total = total.clone()
        open_total[..., eos] = -math.inf
        begin, following = table.next_tokens(progress, last)
        nearest = table.partial_match(progress).masked_fill(following < 0, -1).argmax(-1, keepdim=True)
        tried = torch.cat(
            [most_probable(total, begin), most_probable(total, following), following.gather(2, nearest)], -1
        )
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
        return cls(score, beam, token, is_end, bank, rank_in_group(bank), after.select(order))

    def select_ended(self, beams: int) -> tuple[Tensor, Tensor]:
        """Return scores and beams (R, K) of the candidates that end among the first K of their bank.

        Where there are fewer, the other scores are -inf.
        """
        score, index = self.score.masked_fill(~self.is_end | (self.rank_in_bank >= beams), -math.inf).topk(beams)
        return score, pick(self.beam, index)

    def select_open(self, beams: int) -> tuple[Tensor, Tensor]:
        """Return scores and indices (R, K) of open candidates: the first of each bank, the second of each, and so on.

        Where there are more banks than beams, the bank with the most tokens comes first, then the more probable ones.
        """
        score = self.score.masked_fill(self.is_end, -math.inf)
        gone = score == -math.inf
        bank = self.bank.masked_fill(gone, -1)
        turn = (2 * rank_in_group(bank) + (bank < bank.amax(1, keepdim=True))).masked_fill(gone, 2 * bank.size(1))
        chosen = turn.argsort(dim=1, stable=True)[:, :beams]
        return pick(score, chosen), chosen


def most_probable(total: Tensor, tokens: Tensor) -> Tensor:
    """Return (R, K, n): the n <= CHOICES most probable of tokens (R, K, N), by total (R, K, V); -1 is no token."""
    score = total.gather(2, tokens.clamp(min=0)).masked_fill(tokens < 0, -math.inf)
    return tokens.gather(2, score.topk(min(CHOICES, tokens.size(2))).indices)


def rank_in_group(values: Tensor) -> Tensor:
    """Return (R, M): how many elements before each one in its row have the same value."""
    grouped, index = values.sort(dim=1, stable=True)
    rank = torch.arange(values.size(1), device=values.device) - torch.searchsorted(grouped, grouped)
    return torch.zeros_like(values).scatter(1, index, rank)


def pick(values: Tensor, index: Tensor) -> Tensor:
    """Return values[r, index[r]] for each row r: (R, n, ...) for values (R, m, ...) and index (R, n)."""
    return values[torch.arange(len(values), device=values.device)[:, None], index]
