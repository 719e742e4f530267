"""Greedy search, sampling and beam search (section 6.1) over any model with start, step and select.

Nothing in a step is done for one hypothesis after the other, and sentences that are done leave the batch.

Shapes: B sentences, K beams, G groups of k = K/G beams, V vocabulary, R live rows, L tokens so far with the start.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.decoding.processors import Processor, apply_processors
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


Choose = Callable[[Tensor, Tensor, int], Tensor]  # of log_p (R, V), the sentences (R,), the step -> tokens (R,)


def greedy_search(
    model: Seq2Seq,
    source: Tensor,
    *,
    bos: int,
    eos: int,
    max_lengths: Tensor,
    alpha: float = 0.0,
    rules: Sequence[Processor] = (),
) -> list[Hypothesis]:
    """The most probable token, one after the other.

    source (B, S); max_lengths (B,): tokens that each output may have, end included. One hypothesis per sentence.
    """
    return generate(model, source, lambda log_p, *_: top(log_p, 1)[1][:, 0], bos, eos, max_lengths, alpha, rules)


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn: from the `top_k` most probable ones, or from as many as together have probability `top_p`,
    each by its probability to the power of 1 / temperature.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0


def sample(
    model: Seq2Seq,
    source: Tensor,
    sampling: Sampling,
    draws: Tensor,
    *,
    bos: int,
    eos: int,
    max_lengths: Tensor,
    alpha: float = 0.0,
    rules: Sequence[Processor] = (),
) -> list[Hypothesis]:
    """A token drawn at random, one after the other; scores are the model's, whatever the temperature.

    draws (B, longest of max_lengths): numbers from 0 to 1 that decide; each sentence has its own, so that its words
    do not depend on the sentences beside it. Other arguments as for `greedy_search`.
    """

    def choose(log_p: Tensor, row: Tensor, step: int) -> Tensor:
        likely, token = (log_p / sampling.temperature).sort(dim=-1, descending=True, stable=True)
        chance = likely.softmax(-1)
        before = chance.cumsum(-1) - chance  # of all that are more probable
        kept = before < sampling.top_p
        if sampling.top_k:
            kept[:, sampling.top_k :] = False
        bounds = chance.where(kept, 0.0).cumsum(-1)
        drawn = torch.searchsorted(bounds, draws[row, step - 1 : step] * bounds[:, -1:], right=True)
        return token.gather(1, drawn.minimum(kept.sum(-1, keepdim=True) - 1))[:, 0]

    return generate(model, source, choose, bos, eos, max_lengths, alpha, rules)


@torch.inference_mode()
def generate(
    model: Seq2Seq,
    source: Tensor,
    choose: Choose,
    bos: int,
    eos: int,
    max_lengths: Tensor,
    alpha: float,
    rules: Sequence[Processor],
) -> list[Hypothesis]:
    sentences, longest, device = source.size(0), int(max_lengths.max()), source.device
    state = model.start(source)
    row = torch.arange(sentences, device=device)  # which sentence each live row is
    tokens = source.new_full((sentences, longest + 1), bos)
    score = torch.zeros(sentences, device=device)
    lengths, ended = max_lengths.clone(), torch.zeros_like(max_lengths, dtype=torch.bool)
    for step in range(1, longest + 1):
        log_p = model.step(tokens[row, step - 1 : step], state)[:, -1].log_softmax(-1)
        log_p = apply_processors(rules, log_p, tokens[row, :step], row, eos)
        token = choose(log_p, row, step)
        tokens[row, step] = token
        score[row] += log_p.gather(1, token[:, None])[:, 0]
        over = token == eos
        lengths[row[over]], ended[row[over]] = step, True
        alive = (~over & (step < max_lengths[row])).nonzero()[:, 0]
        if not len(alive):
            break
        if len(alive) < len(row):
            row = row[alive]
            state.select(alive)
    return [
        Hypothesis(ids[1 : length + (not end)], total / length_penalty(length, alpha), end)
        for ids, length, total, end in zip(
            tokens.tolist(), lengths.tolist(), score.tolist(), ended.tolist(), strict=True
        )
    ]


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
    patience: float | None = None,
    groups: int = 1,
    diversity: float = 0.0,
    rules: Sequence[Processor] = (),
) -> list[list[Hypothesis]]:
    """The best `n_best` hypotheses of every sentence (default: as many as beams), best first.

    A sentence is over when no open hypothesis can still overtake the worst of its `n_best` finished ones, or, with
    `patience`, when that many times `beams` are finished; those cut off at the greatest length compete with the
    others. With several `groups`, each has its share of the beams, and a token costs `diversity` for each hypothesis
    of an earlier group that goes on with it at the same step (Vijayakumar et al. 2016); scores stay without it. Other
    arguments as for `greedy_search`.
    """
    sentences, device, each = source.size(0), source.device, beams // groups
    state = model.start(source)
    state.select(torch.arange(sentences, device=device).repeat_interleave(beams))
    sentence = torch.arange(sentences, device=device)  # which sentence each live group of K rows is
    tokens = source.new_full((sentences * beams, 1), bos)
    score = torch.full((sentences, groups, each), -math.inf, device=device)
    score[:, :, 0] = 0  # all beams start equal: keep one
    best = FinishedPool(sentences, n_best or beams, int(max_lengths.max()), source, distinct=groups > 1)
    while len(sentence):
        live, length = len(sentence), tokens.size(1)
        log_p = model.step(tokens[:, -1:], state)[:, -1].log_softmax(-1)
        log_p = apply_processors(rules, log_p, tokens, sentence.repeat_interleave(beams), eos)
        log_p = log_p.view(live, groups, each, -1)
        found = [BeamStep.of(score[:, 0], log_p[:, 0], eos)]
        for group in range(1, groups):
            taken = log_p.new_zeros(live, log_p.size(-1))
            for earlier in found:
                taken.scatter_add_(1, earlier.token, taken.new_full((), diversity).expand(earlier.token.shape))
            found.append(BeamStep.of(score[:, group], log_p[:, group], eos, taken))
        first = torch.arange(live, device=device)[:, None] * beams
        places = [first + group * each for group in range(groups)]
        for place, expansion in zip(places, found, strict=True):
            if expansion.ends():
                rows = tokens[(place + expansion.end_beam).flatten(), 1:].view(live, each, -1)
                best.add(sentence, expansion.end_score / length_penalty(length, alpha), rows, True)
        rows = torch.cat([place + expansion.beam for place, expansion in zip(places, found, strict=True)], 1)
        token = torch.cat([expansion.token for expansion in found], 1)
        score = torch.stack([expansion.score for expansion in found], 1)
        tokens = torch.cat([tokens[rows.flatten()], token.view(-1, 1)], 1)
        cut = length >= max_lengths[sentence]
        if cut.any():  # whatever is still open at the end competes too
            open_ = tokens[:, 1:].view(live, beams, -1)[cut]
            best.add(sentence[cut], score.flatten(1)[cut] / length_penalty(length, alpha), open_, False)
        top = score.flatten(1).amax(-1)
        going = ~cut & (top > -math.inf)
        if patience:
            going &= best.count[sentence] < patience * beams
        else:
            # A log-probability only falls; what divides it is greatest at the end or, if alpha is negative, by now.
            most = (((5 + max_lengths[sentence]) / 6) ** alpha).clamp(min=1)
            going &= best.score[sentence, -1] < top / most
        if not going.all():
            sentence, score, rows = sentence[going], score[going], rows[going]
            tokens = tokens.view(live, beams, -1)[going].flatten(0, 1)
        if len(sentence):
            state.select(rows.flatten())
    return best.hypotheses()


BLOCK = 64


def top(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of the last dimension and their places, as `topk`, several times as fast on a CPU where k is small.

    They are among the k blocks with the largest maxima, and what is left over at the end.
    """
    size = x.size(-1)
    whole = size // BLOCK * BLOCK
    if whole <= k * BLOCK:
        return x.topk(k)
    blocks = x[..., :whole].unflatten(-1, (-1, BLOCK))
    chosen = blocks.amax(-1).topk(k)[1]
    places = (chosen.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=x.device)).flatten(-2)
    rest = torch.arange(whole, size, device=x.device).expand(*x.shape[:-1], -1)
    places = torch.cat([places, rest], -1)
    largest, index = x.gather(-1, places).topk(k)
    return largest, places.gather(-1, index)


@dataclass(frozen=True)
class BeamStep:
    """How k hypotheses of each sentence go on, all (B, k), the most probable first."""

    score: Tensor  # of those that go on
    beam: Tensor  # which of the k each of them comes from
    token: Tensor
    end_score: Tensor  # of those that end, -inf where there are fewer
    end_beam: Tensor

    @classmethod
    def of(cls, so_far: Tensor, log_p: Tensor, eos: int, cost: Tensor | None = None) -> "BeamStep":
        """so_far (B, k), log_p (B, k, V) of each next token; cost (B, V): what a token costs when they are compared."""
        beams, words = log_p.shape[1:]
        # Twice as many as needed: k of them may end here, and k must go on. No hypothesis has more of them than that.
        likely, word = top(log_p if cost is None else log_p - cost.unsqueeze(1), min(2 * beams, words))
        best, index = (so_far.unsqueeze(-1) + likely).flatten(1).topk(min(2 * beams, beams * likely.size(-1)))
        beam, token = index // likely.size(-1), word.flatten(1).gather(1, index)
        if cost is not None:
            best = so_far.gather(1, beam) + log_p.flatten(1).gather(1, beam * words + token)
        ended = token == eos
        going = best.masked_fill(ended, -math.inf)
        if cost is None:
            score, keep = going.topk(beams)
        else:  # in the order in which they were compared: the ends last
            keep = ended.to(torch.uint8).argsort(dim=1, stable=True)[:, :beams]
            score = going.gather(1, keep)
        end_score = best.masked_fill(~ended, -math.inf)[:, :beams]
        return cls(score, beam.gather(1, keep), token.gather(1, keep), end_score, beam[:, :beams])

    def ends(self) -> bool:
        return bool((self.end_score > -math.inf).any())


class FinishedPool:
    """The best finished hypotheses of each sentence so far, the best first."""

    def __init__(self, sentences: int, wanted: int, longest: int, like: Tensor, distinct: bool = False):
        """distinct: what comes twice counts once; one group of beams never finds a hypothesis twice."""
        self.distinct = distinct
        self.score = torch.full((sentences, wanted), -math.inf, device=like.device)
        self.tokens = like.new_zeros(sentences, wanted, longest)
        self.length = like.new_zeros(sentences, wanted)
        self.ended = torch.zeros(sentences, wanted, dtype=torch.bool, device=like.device)
        self.count = like.new_zeros(sentences)  # how many there were, with those that were not good enough

    def add(self, sentence: Tensor, score: Tensor, tokens: Tensor, ended: bool) -> None:
        """score (n, c) and tokens (n, c, L) of hypotheses of n sentences; a score of -inf is none."""
        length, wanted = tokens.size(2), self.score.size(1)
        if self.distinct:
            score = self.unseen(sentence, score, tokens, ended)
        self.count[sentence] += (score > -math.inf).sum(1)
        kept, index = torch.cat([self.score[sentence], score], 1).sort(dim=1, descending=True, stable=True)
        index = index[:, :wanted]
        longer = torch.nn.functional.pad(tokens, (0, self.tokens.size(2) - length))
        for old, new in (
            (self.tokens, longer),
            (self.length, torch.full_like(score, length, dtype=self.length.dtype)),
            (self.ended, torch.full_like(score, ended, dtype=torch.bool)),
        ):
            both = torch.cat([old[sentence], new], 1)
            old[sentence] = both.gather(1, index.view(*index.shape, *[1] * (old.dim() - 2)).expand_as(old[sentence]))
        self.score[sentence] = kept[:, :wanted]

    def unseen(self, sentence: Tensor, score: Tensor, tokens: Tensor, ended: bool) -> Tensor:
        """The scores (n, c) of what `add` is given; -inf for what is there already, or among them."""
        length = tokens.size(2)
        known = (self.score[sentence] > -math.inf) & (self.length[sentence] == length) & (self.ended[sentence] == ended)
        there = (tokens[:, :, None] == self.tokens[sentence][:, None, :, :length]).all(-1) & known[:, None]
        earlier = (tokens[:, :, None] == tokens[:, None]).all(-1).tril(-1) & (score > -math.inf)[:, None]
        return score.masked_fill(there.any(-1) | earlier.any(-1), -math.inf)

    def hypotheses(self) -> list[list[Hypothesis]]:
        table = (self.tokens, self.length, self.score, self.ended)
        return [
            [
                Hypothesis(ids[:length], score, ended)
                for ids, length, score, ended in zip(*row, strict=True)
                if score > -math.inf
            ]
            for row in zip(*(column.tolist() for column in table), strict=True)
        ]
