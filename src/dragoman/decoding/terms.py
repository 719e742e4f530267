"""Beam search for outputs that have to contain terms: dynamic beam allocation (Post & Vilar 2018; Hu et al. 2019).

The hypotheses of a sentence are put in banks by how many tokens of their terms they have, and each bank has its share
of the beams, so that what was forced and what the model would rather say do not crowd each other out.

A term has to occur as often as it is asked for, and does not overlap with itself; different terms may share tokens. It
counts once the next token, or the end, shows that its last word is over.

Nothing in a step is done for one hypothesis after the other. Shapes: B sentences, K beams, M candidates, V vocabulary,
T terms, N sequences (the alternatives of all terms), L tokens of a sequence.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from dragoman.decoding.engine import Term
from dragoman.decoding.processors import Processor, apply_processors
from dragoman.decoding.search import FinishedPool, Hypothesis, length_penalty
from dragoman.model import Seq2Seq

# What a token begins or ends with: a mark or a character that stands for itself; a letter or digit of a word; a letter
# of a word that a term may end inside of, because endings follow without a space.
OPEN, WORD, STEM = 0, 1, 2

# Beginnings of terms, and as many tokens that go on with terms, that are tried for each hypothesis, the most probable
# ones: bounds memory where a text has hundreds of terms.
CHOICES = 16


@torch.inference_mode()
def constrained_search(
    model: Seq2Seq,
    source: Tensor,
    terms: Sequence[tuple[Term, ...]],
    *,
    beams: int,
    alpha: float,
    bos: int,
    eos: int,
    max_lengths: Tensor,
    n_best: int | None = None,
    rules: Sequence[Processor] = (),
    edges: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """As `beam_search`, and the output for each sentence has all of its terms.

    A hypothesis ends only when it has them, or when the rules leave it nothing else to say. However narrow the beam,
    they are met where the greatest length allows all their longest sequences one after the other, and an end, each
    term has a sequence that begins OPEN, and no rule forbids them. Where no hypothesis has them by then, the unfinished
    ones with the most of them are returned.

    `edges` (V, 2): what each token begins and ends with. A sequence that begins or ends with a WORD does not count
    right after or before another one, nor one that begins with a STEM after a STEM. Default: all tokens are OPEN.
    Other arguments as for `beam_search`.
    """
    sentences, device = source.size(0), source.device
    state = model.start(source)
    state.select(torch.arange(sentences, device=device).repeat_interleave(beams))
    sentence = torch.arange(sentences, device=device)  # which sentence each live group of K rows is
    tokens = source.new_full((sentences * beams, 1), bos)
    score = torch.full((sentences, beams), -math.inf, device=device)
    score[:, 0] = 0  # all beams start equal: keep one
    best = FinishedPool(sentences, n_best or beams, int(max_lengths.max()), source)
    demand = TermTable.of(terms, device)
    progress = demand.beginning(beams)
    while len(sentence):
        live, length = len(sentence), tokens.size(1)
        log_p = model.step(tokens[:, -1:], state)[:, -1].log_softmax(-1)
        log_p = apply_processors(rules, log_p, tokens, sentence.repeat_interleave(beams), eos)
        total = score.unsqueeze(-1) + log_p.view(live, beams, -1)  # B K V
        found = Candidates.of(total, tokens[:, -1].view(live, beams), demand, progress, eos, edges)
        first = torch.arange(live, device=device)[:, None] * beams
        end_score, end_beam = found.ends(beams)
        if (end_score > -math.inf).any():
            rows = tokens[(first + end_beam).flatten(), 1:].view(live, beams, -1)
            best.add(sentence, end_score / length_penalty(length, alpha), rows, True)
        score, chosen = found.going(beams)
        rows, token = first + pick(found.beam, chosen), pick(found.token, chosen)
        progress = found.progress.select(chosen)
        tokens = torch.cat([tokens[rows.flatten()], token.view(-1, 1)], 1)
        cut = length >= max_lengths[sentence]
        if cut.any():  # whatever is still open at the end competes too, if it has the terms or nothing else has them
            said = demand.said(demand.after(progress, token, torch.full_like(token, eos), edges))
            said = said.masked_fill(score == -math.inf, -1)
            alone = best.score[sentence, :1] == -math.inf
            competes = (said == said.amax(1, keepdim=True)) & (alone | (said == demand.all[:, None]))
            open_score = score.masked_fill(~competes, -math.inf) / length_penalty(length, alpha)
            best.add(sentence[cut], open_score[cut], tokens[:, 1:].view(live, beams, -1)[cut], False)
        top = score.amax(-1)
        # A log-probability only falls; what divides it is greatest at the end or, if alpha is negative, by now.
        most = (((5 + max_lengths[sentence]) / 6) ** alpha).clamp(min=1)
        going = ~cut & (top > -math.inf) & (best.score[sentence, -1] < top / most)
        if not going.all():
            sentence, score, rows = sentence[going], score[going], rows[going]
            tokens = tokens.view(live, beams, -1)[going].flatten(0, 1)
            demand, progress = demand.select(going), progress.select_sentences(going)
        if len(sentence):
            state.select(rows.flatten())
    return best.hypotheses()


@dataclass(frozen=True)
class TermProgress:
    """How far k hypotheses of each sentence are with their terms."""

    begun: Tensor  # (B, k, N, L): whether the last l + 1 tokens are the first l + 1 of a sequence
    left: Tensor  # (B, k, T): how often each term has still to come

    def select(self, places: Tensor) -> "TermProgress":
        return TermProgress(pick(self.begun, places), pick(self.left, places))

    def select_sentences(self, rows: Tensor) -> "TermProgress":
        return TermProgress(self.begun[rows], self.left[rows])


@dataclass(frozen=True)
class TermTable:
    """The terms of each sentence."""

    sequence: Tensor  # (B, N, L): the alternatives of all terms, -1 after their ends
    length: Tensor  # (B, N): of each
    term: Tensor  # (B, N): which term each is for
    wanted: Tensor  # (B, T): how often each term has to come
    worth: Tensor  # (B, T): tokens that each counts for: as many as its longest alternative has

    @classmethod
    def of(cls, terms: Sequence[tuple[Term, ...]], device: torch.device) -> "TermTable":
        sequences, places, wanted, worth = [], [], [], []
        for demanded in terms:
            counts = Counter(tuple(sorted(set(term))) for term in demanded)
            # One row more, which nothing equals: also where there is no term there is something to compute with.
            alternatives = [alternative for term in counts for alternative in term] + [(-1,)]
            sequences.append([torch.tensor(alternative) for alternative in alternatives])
            places.append(torch.tensor([place for place, term in enumerate(counts) for _ in term] + [0]))
            wanted.append(torch.tensor([*counts.values(), 0]))
            worth.append(torch.tensor([*(max(map(len, term)) for term in counts), 0]))
        most = max(map(len, sequences))
        flat = [row for rows in sequences for row in rows + [torch.tensor([-1])] * (most - len(rows))]
        sequence = padded(flat, -1).view(len(sequences), most, -1)
        columns = (sequence, (sequence >= 0).sum(-1), *(padded(column, 0) for column in (places, wanted, worth)))
        return cls(*(column.to(device) for column in columns))

    def select(self, rows: Tensor) -> "TermTable":
        return TermTable(self.sequence[rows], self.length[rows], self.term[rows], self.wanted[rows], self.worth[rows])

    @property
    def all(self) -> Tensor:
        """(B,): what `said` gives for a hypothesis that has all its terms."""
        return (self.wanted * self.worth).sum(-1)

    def beginning(self, beams: int) -> TermProgress:
        begun = torch.zeros_like(self.sequence, dtype=torch.bool)
        return TermProgress(begun[:, None].repeat(1, beams, 1, 1), self.wanted[:, None].repeat(1, beams, 1))

    def open(self, progress: TermProgress) -> Tensor:
        """(B, k, N): whether the term of each sequence has still to come."""
        return progress.left.gather(2, self.term[:, None].expand(progress.begun.shape[:3])) > 0

    def whole(self, progress: TermProgress) -> Tensor:
        """(B, k, N): whether the last tokens are the sequence; it counts if the next token leaves it a word."""
        places = torch.arange(1, self.sequence.size(2) + 1, device=self.length.device)
        return (progress.begun & (places == self.length[..., None])[:, None]).any(-1)

    def matched_length(self, progress: TermProgress) -> Tensor:
        """(B, k, N): of how many tokens the longest beginning of each sequence is that has just been said."""
        places = torch.arange(1, self.sequence.size(2) + 1, device=self.length.device, dtype=torch.int32)
        return (progress.begun * places).amax(-1)

    def nearly(self, progress: TermProgress) -> Tensor:
        """(B, k, N): what the beginning of each sequence counts for: the nearer to its end, the more."""
        longest, worth = self.matched_length(progress), self.worth.gather(1, self.term)
        return ((worth - self.length)[:, None] + longest).masked_fill(~self.open(progress) | (longest == 0), 0)

    def said(self, progress: TermProgress) -> Tensor:
        """(B, k): tokens of the terms that hypotheses have: of those met, and of the one that is most nearly met.

        Only one of those begun counts, for they may share tokens of which not all can be kept.
        """
        met = ((self.wanted[:, None] - progress.left) * self.worth[:, None]).sum(-1)
        return met + self.nearly(progress).amax(-1)

    def after(self, progress: TermProgress, before: Tensor, token: Tensor, edges: Tensor | None) -> TermProgress:
        """Of hypotheses whose last token was `before` and which go on with `token`, both (B, k)."""
        split, over = boundaries(before, token, edges)
        term = self.term[:, None].expand(progress.begun.shape[:3])
        counted = (self.whole(progress) & over[..., None]).long()
        met = torch.zeros_like(progress.left).scatter_add_(2, term, counted).clamp(max=1) * (progress.left > 0)
        kept = progress.begun & (met.gather(2, term) == 0)[..., None]  # the next occurrence begins after this one
        before_each = torch.cat([split[..., None, None].expand(*kept.shape[:3], 1), kept[..., :-1]], -1)
        said = self.sequence[:, None] == token[..., None, None]
        return TermProgress(before_each & said, progress.left - met)

    def next(self, progress: TermProgress, before: Tensor, edges: Tensor | None) -> tuple[Tensor, Tensor]:
        """(B, k, N) twice, for hypotheses whose last token was `before`: the token that may begin each sequence, and
        the one that goes on with it; -1: none, or its term need not come any more.
        """
        open_, longest = self.open(progress), self.matched_length(progress).long()
        begin = self.sequence[:, None, :, 0].expand(open_.shape)
        split, _ = boundaries(before[..., None].expand(open_.shape), begin.clamp(min=0), edges)
        place = longest.clamp(max=self.sequence.size(2) - 1)[..., None]
        onward = self.sequence[:, None].expand(progress.begun.shape).gather(3, place)[..., 0]
        ready = open_ & (longest > 0) & (longest < self.length[:, None])
        return begin.masked_fill(~open_ | ~split, -1), onward.masked_fill(~ready, -1)


@dataclass(frozen=True)
class Candidates:
    """Ways to go on for the hypotheses of each sentence, all (B, M), the most probable first; -inf: none."""

    score: Tensor
    beam: Tensor  # which of the K each comes from
    token: Tensor
    ended: Tensor
    bank: Tensor  # tokens of the terms that it has
    turn: Tensor  # how many of the same bank are more probable
    progress: TermProgress

    @classmethod
    def of(
        cls, total: Tensor, last: Tensor, demand: TermTable, progress: TermProgress, eos: int, edges: Tensor | None
    ) -> "Candidates":
        """total (B, K, V): the score after each token; last (B, K): the token before it."""
        beams, words = total.shape[1:]
        each = torch.arange(beams, device=total.device)[:, None] * words
        going = total.clone()
        going[..., eos] = -math.inf
        begin, onward = demand.next(progress, last, edges)
        nearest = demand.nearly(progress).masked_fill(onward < 0, -1).argmax(-1, keepdim=True)
        tried = torch.cat([likely(total, begin), likely(total, onward), onward.gather(2, nearest)], -1)
        proposed = [
            # Twice as many as beams: K of them may end here, and K must go on.
            total.flatten(1).topk(min(2 * beams, beams * words)).indices,
            (each + leaving(going, last, demand.whole(progress), edges).argmax(-1, keepdim=True)).flatten(1),
            (each + torch.where(tried >= 0, tried, eos)).flatten(1),
            (each[:, 0] + eos).expand(len(total), -1),
        ]
        index = torch.cat(proposed, 1).sort(1).values
        twice = torch.nn.functional.pad(index[:, 1:] == index[:, :-1], (1, 0))
        score = total.flatten(1).gather(1, index).masked_fill(twice, -math.inf)
        beam, token = index // words, index % words
        after = demand.after(progress.select(beam), last.gather(1, beam), token, edges)
        bank, ended = demand.said(after), token == eos
        stuck = (going.amax(-1) == -math.inf).gather(1, beam)
        score = score.masked_fill(ended & (bank < demand.all[:, None]) & ~stuck, -math.inf)
        score, order = score.sort(dim=1, descending=True, stable=True)
        bank = pick(bank, order)
        beam, token, ended = pick(beam, order), pick(token, order), pick(ended, order)
        return cls(score, beam, token, ended, bank, ranks(bank), after.select(order))

    def ends(self, beams: int) -> tuple[Tensor, Tensor]:
        """(B, K) scores and beams of those that end and are among the first K of their bank; -inf where fewer do."""
        ending = self.score.masked_fill(~self.ended | (self.turn >= beams), -math.inf)
        score, place = ending.topk(beams)
        return score, pick(self.beam, place)

    def going(self, beams: int) -> tuple[Tensor, Tensor]:
        """(B, K) scores and places of those that go on: the first of each bank, the second of each, and so on.

        Where there are more banks than beams, the bank nearest to the end comes first, then the more probable ones.
        """
        score = self.score.masked_fill(self.ended, -math.inf)
        gone = score == -math.inf
        bank = self.bank.masked_fill(gone, -1)
        turn = (2 * ranks(bank) + (bank < bank.amax(1, keepdim=True))).masked_fill(gone, 2 * bank.size(1))
        chosen = turn.argsort(dim=1, stable=True)[:, :beams]
        return pick(score, chosen), chosen


def boundaries(before: Tensor, token: Tensor, edges: Tensor | None) -> tuple[Tensor, Tensor]:
    """Whether a sequence may begin with `token`, and end with `before`, where the one follows the other."""
    if edges is None:
        free = torch.ones_like(token, dtype=torch.bool)
        return free, free
    end, begin = edges[before, 1], edges[token, 0]
    return (end != begin) | (begin == OPEN), (end != WORD) | (begin != WORD)


def leaving(total: Tensor, last: Tensor, whole: Tensor, edges: Tensor | None) -> Tensor:
    """total (B, K, V) without the tokens that would make another word of a term just said; last (B, K)."""
    if edges is None:
        return total
    inside = whole.any(-1) & (edges[last, 1] == WORD)
    return total.masked_fill(inside[..., None] & (edges[:, 0] == WORD), -math.inf)


def likely(total: Tensor, tokens: Tensor) -> Tensor:
    """Those of tokens (B, K, N) that are the most probable by total (B, K, V); -1: none."""
    score = total.gather(2, tokens.clamp(min=0)).masked_fill(tokens < 0, -math.inf)
    return tokens.gather(2, score.topk(min(CHOICES, tokens.size(2))).indices)


def ranks(bank: Tensor) -> Tensor:
    """(B, M) -> how many of the same bank are before each."""
    grouped, place = bank.sort(dim=1, stable=True)
    rank = torch.arange(bank.size(1), device=bank.device) - torch.searchsorted(grouped, grouped)
    return torch.zeros_like(bank).scatter(1, place, rank)


def pick(values: Tensor, places: Tensor) -> Tensor:
    """values (B, m, ...) at places (B, n) -> (B, n, ...)"""
    return values[torch.arange(len(values), device=values.device)[:, None], places]


def padded(rows: Sequence[Tensor], value: int) -> Tensor:
    return pad_sequence(list(rows), batch_first=True, padding_value=value)
