"""Greedy and beam search (section 6.1) over any model with start, step and select.

Shapes: B sentences, K beams, V vocabulary, L tokens so far.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.model import Seq2Seq


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its ids without start and end, and its score."""

    tokens: list[int]
    score: float  # log-probability in nats, end included, divided by the length penalty
    finished: bool = True  # False: cut off at the greatest length


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6) ^ alpha, of the tokens of a hypothesis with its end (Wu et al. 2016, equation 14)."""
    return ((5 + length) / 6) ** alpha


@torch.inference_mode()
def greedy_search(
    model: Seq2Seq, source: Tensor, *, bos: int, eos: int, max_lengths: Tensor, alpha: float = 0.0
) -> list[Hypothesis]:
    """The most probable token, one after the other.

    source (B, S); max_lengths (B,): tokens that each output may have, end included. One hypothesis per sentence.
    """
    state = model.start(source)
    row = torch.arange(source.size(0), device=source.device)  # which sentence each live row is
    tokens = source.new_full((source.size(0), 1), bos)
    score = torch.zeros(source.size(0), device=source.device)
    found: list[Hypothesis | None] = [None] * source.size(0)
    length = 0
    while len(row):
        length += 1
        log_p, token = model.step(tokens[:, -1:], state)[:, -1].log_softmax(-1).max(-1)
        score = score + log_p
        tokens = torch.cat([tokens, token[:, None]], 1)
        ended = token == eos
        done = ended | (length >= max_lengths[row])
        if done.any():
            for i in done.nonzero()[:, 0].tolist():
                ids = tokens[i, 1 : length if ended[i] else length + 1].tolist()
                total = score[i].item() / length_penalty(length, alpha)
                found[int(row[i])] = Hypothesis(ids, total, bool(ended[i]))
            alive = (~done).nonzero()[:, 0]
            row, tokens, score, state = row[alive], tokens[alive], score[alive], state.select(alive)
    return [hypothesis for hypothesis in found if hypothesis]


@torch.inference_mode()
def beam_search(
    model: Seq2Seq,
    source: Tensor,
    *,
    beams: int,
    alpha: float,
    bos: int,
    eos: int,
    max_lengths: Tensor,
    n_best: int | None = None,
) -> list[list[Hypothesis]]:
    """The best `n_best` hypotheses of every sentence (default: as many as beams), best first.

    Other arguments as for `greedy_search`. A sentence is over when no open hypothesis can still overtake the worst of
    its `n_best` finished ones; those cut off at the greatest length compete with the others.
    """
    wanted = n_best or beams
    sentences, device = source.size(0), source.device
    state = model.start(source).select(torch.arange(sentences, device=device).repeat_interleave(beams))
    sentence = torch.arange(sentences, device=device)  # which sentence each live group of K rows is
    tokens = source.new_full((sentences * beams, 1), bos)
    score = torch.full((sentences, beams), -math.inf, device=device)
    score[:, 0] = 0  # all beams start equal: keep one
    finished: list[list[Hypothesis]] = [[] for _ in range(sentences)]
    limits = max_lengths.tolist()
    length = 0
    while len(sentence):
        length += 1
        groups = len(sentence)
        log_p = model.step(tokens[:, -1:], state)[:, -1].log_softmax(-1)
        total = (score.view(-1, 1) + log_p).view(groups, -1)  # B K*V
        # Twice as many as needed: K of them may end here, and K must go on.
        best, index = total.topk(min(2 * beams, total.size(1)))
        beam, token = index // log_p.size(1), index % log_p.size(1)
        ended = token == eos
        for g, k in (ended[:, :beams] & (best[:, :beams] > -math.inf)).nonzero().tolist():
            ids = tokens[g * beams + int(beam[g, k]), 1:].tolist()
            finished[int(sentence[g])].append(Hypothesis(ids, best[g, k].item() / length_penalty(length, alpha)))
        score, keep = best.masked_fill(ended, -math.inf).topk(beams)
        rows = beam.gather(1, keep) + torch.arange(groups, device=device)[:, None] * beams  # B K
        tokens = torch.cat([tokens[rows.view(-1)], token.gather(1, keep).view(-1, 1)], 1)
        going = []
        for g, (s, top) in enumerate(zip(sentence.tolist(), score[:, 0].tolist(), strict=True)):
            if length >= limits[s]:
                for k in range(beams):  # whatever is still open at the end competes too
                    if score[g, k] > -math.inf:
                        ids, open_score = tokens[g * beams + k, 1:].tolist(), score[g, k].item()
                        finished[s].append(Hypothesis(ids, open_score / length_penalty(length, alpha), False))
            elif not over(finished[s], top, wanted, alpha, limits[s]):
                going.append(g)
        if len(going) < groups:
            group = torch.tensor(going, dtype=torch.long, device=device)
            sentence, score, rows = sentence[group], score[group], rows[group]
            tokens = tokens.view(groups, beams, -1)[group].flatten(0, 1)
        if going:
            state = state.select(rows.view(-1))
    return [sorted(hypotheses, key=lambda h: -h.score)[:wanted] for hypotheses in finished]


def over(finished: list[Hypothesis], best_open: float, wanted: int, alpha: float, longest: int) -> bool:
    """Whether no open hypothesis can still beat the worst of the best finished ones that are wanted.

    A log-probability only falls, and the penalty that divides it is greatest at the greatest length, or now, if
    alpha is negative.
    """
    if len(finished) < wanted:
        return False
    worst = sorted(hypothesis.score for hypothesis in finished)[-wanted]
    most = max(length_penalty(longest, alpha), 1.0)
    return worst >= best_open / most
