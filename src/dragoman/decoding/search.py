"""Greedy search, sampling and beam search (section 6.1) over any model with start, step and select.

Every operation of a step treats all hypotheses at once, and sentences that are over leave the batch. A search stops
between two steps, so that one thread can take the steps of several in turn; `finish` runs one to its end.

Shapes: B sentences, R of them live, K beams, G groups of k = K/G beams, V vocabulary, L tokens so far with BOS.
"""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from dragoman.decoding.processors import Dropped, Processor, apply_processors
from dragoman.model import Seq2Seq

BLOCK = 64  # words of a block of `topk` and `argmax`
PLAIN_ROWS = 4  # up to so many, looking for the block first does not pay

Length = TypeVar("Length", float, Tensor)


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its ids without BOS and EOS, and its score."""

    tokens: list[int]
    score: float  # log-probability in nats, EOS included, divided by the length penalty
    finished: bool = True  # False: cut off at its maximum length


Steps = Generator[None, None, list[list[Hypothesis]]]
"""A search in progress, which stops between two steps. It returns the hypotheses of each sentence, the best first."""


def finish(steps: Steps) -> list[list[Hypothesis]]:
    """Take all steps of a search, and return what it finds."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@dataclass(frozen=True)
class OutputSpec:
    """Describe the outputs of a batch to any search."""

    bos: int
    eos: int
    max_lengths: Tensor  # (B,): tokens that each output may have, EOS included
    alpha: float = 0.0  # exponent of the length penalty
    processors: Sequence[Processor] = ()
    dropped: Dropped | None = None


def length_penalty(length: Length, alpha: float) -> Length:
    """Return the divisor ((5 + length) / 6) ^ alpha of the score of a hypothesis (Wu et al. 2016, equation 14).

    length: its tokens with EOS; a tensor of several lengths gives a tensor.
    """
    return ((5 + length) / 6) ** alpha


def next_log_p(model: Seq2Seq, state: object, tokens: Tensor, sentence: Tensor, output: OutputSpec) -> Tensor:
    """Return log-probabilities (rows, V) of the token after tokens (rows, L), -inf where a processor forbids it.

    state: of the model, after all tokens but the last, which is added to it; sentence (rows,): which sentence of the
    batch each row translates.
    """
    log_p = model.step(tokens[:, -1:], state)[:, -1].log_softmax(-1)
    if output.processors:
        log_p = apply_processors(output.processors, log_p, tokens, sentence, output.eos)
    return output.dropped(log_p, tokens, sentence) if output.dropped else log_p


@dataclass(frozen=True)
class BeamStep:
    """The continuations of each sentence's hypotheses in one step, all (R, K), the most probable first."""

    score: Tensor  # of those that stay open; -inf where there are fewer
    beam: Tensor  # which of the K each of them continues
    token: Tensor
    end_score: Tensor  # of those that end here; -inf where there are fewer
    end_beam: Tensor

    @classmethod
    def best(cls, so_far: Tensor, log_p: Tensor, eos: int, cost: Tensor | None = None) -> "BeamStep":
        """Return the k best open continuations of each sentence's k hypotheses, and up to k that end.

        They are chosen from the 2k best of all. so_far (R, k): the scores of the hypotheses; log_p (R, k, V) of each
        next token; cost (R, V): what a token costs when continuations are compared, which their scores do not contain.
        """
        beams, words = log_p.shape[1:]
        # Twice as many as needed: k of them may end here, and k must stay open. No hypothesis has more than that.
        likely, word = topk(log_p if cost is None else log_p - cost.unsqueeze(1), min(2 * beams, words))
        best, index = (so_far.unsqueeze(-1) + likely).flatten(1).topk(min(2 * beams, beams * likely.size(-1)))
        beam, token = index // likely.size(-1), word.flatten(1).gather(1, index)
        if cost is not None:
            best = so_far.gather(1, beam) + log_p.flatten(1).gather(1, beam * words + token)
        ended = token == eos
        open_score = best.masked_fill(ended, -math.inf)
        if cost is None:
            score, keep = open_score.topk(beams)
        else:  # in the order of the comparison, those that end last
            keep = ended.to(torch.uint8).argsort(dim=1, stable=True)[:, :beams]
            score = open_score.gather(1, keep)
        end_score = best.masked_fill(~ended, -math.inf)[:, :beams]
        return cls(score, beam.gather(1, keep), token.gather(1, keep), end_score, beam[:, :beams])

    @classmethod
    def single(cls, score: Tensor, token: Tensor, ended: Tensor) -> "BeamStep":
        """Return the step of a search with one hypothesis for each sentence, which continues it with one token.

        All (R, 1): score of the hypothesis with the token; token; ended: whether the token is EOS.
        """
        beam = torch.zeros_like(token)
        return cls(score.masked_fill(ended, -math.inf), beam, token, score.masked_fill(~ended, -math.inf), beam)


Observer = Callable[[Tensor, Tensor, BeamStep], None]
"""Called at each step with the scores so far (R, K), log_p (R, K, V) of each next token, and what the search kept."""


# One token after the other.

Choose = Callable[[Tensor, Tensor, int], Tensor]
"""From log_p (R, V), the number of each row's sentence (R,) and the number of the step to tokens (R,)."""


def greedy_search(model: Seq2Seq, source: Tensor, output: OutputSpec, observe: Observer | None = None) -> Steps:
    """Find one hypothesis for each sentence of source (B, S), of the most probable token at each step.

    `observe` is called at each step. For the end and the score of a hypothesis, see `generate`.
    """
    return generate(model, source, output, lambda log_p, *_: argmax(log_p), observe)


@torch.inference_mode()  # of a generator: while it takes a step, and not while it waits for the next one
def generate(
    model: Seq2Seq, source: Tensor, output: OutputSpec, choose: Choose, observe: Observer | None = None
) -> Steps:
    """Find one hypothesis for each sentence of source (B, S), made of the tokens that `choose` picks, up to EOS.

    A hypothesis ends at its maximum length, unfinished, where EOS has not come by then. Its score is the sum of the
    tokens' log-probabilities after the processors, over the length penalty. `observe` sees every step.
    """
    sentences, max_lengths, device = source.size(0), output.max_lengths, source.device
    state = model.start(source)
    hypotheses: dict[int, Hypothesis] = {}
    # Of the live rows: which sentence each is, its tokens so far with room for the others, and its score.
    row = torch.arange(sentences, device=device)
    tokens = source.new_full((sentences, int(max_lengths.max()) + 1), output.bos)
    score = torch.zeros(sentences, 1, device=device)
    for step in range(1, tokens.size(1)):
        log_p = next_log_p(model, state, tokens[:, :step], row, output)
        tokens[:, step] = token = choose(log_p, row, step)
        token, before = token[:, None], score
        score = before + log_p.gather(1, token)
        over = token == output.eos
        if observe:
            observe(before, log_p[:, None], BeamStep.single(score, token, over))
        last = over[:, 0] | (max_lengths <= step)
        if last.any():
            penalty = length_penalty(step, output.alpha)
            columns = (column[last].tolist() for column in (row, tokens[:, 1 : step + 1], score[:, 0], over[:, 0]))
            for sentence, ids, total, end in zip(*columns, strict=True):
                hypotheses[sentence] = Hypothesis(ids[: step - end], total / penalty, end)
            alive = last.logical_not().nonzero()[:, 0]
            if not len(alive):
                break
            row, tokens, score, max_lengths = (column[alive] for column in (row, tokens, score, max_lengths))
            state.select(alive)
        yield
    return [[hypotheses[sentence]] for sentence in range(sentences)]


# Beam search.


class BeamAllocation:
    """Give the beams of a sentence to the most probable continuations.

    With several `groups`, each has its share of the beams, and a token costs `diversity` for each hypothesis of an
    earlier group that is continued with it in the same step (Vijayakumar et al. 2016); scores stay without it.
    """

    def __init__(self, groups: int = 1, diversity: float = 0.0):
        self.groups, self.diversity = groups, diversity

    def expand(self, so_far: Tensor, log_p: Tensor, eos: int) -> BeamStep:
        """Return the continuations to keep of hypotheses with the scores so_far (R, K), and those that end.

        log_p (R, K, V): of each next token.
        """
        if self.groups == 1:
            return BeamStep.best(so_far, log_p, eos)
        size = so_far.size(1) // self.groups
        cost = log_p.new_zeros(len(log_p), log_p.size(-1))
        columns: list[tuple[Tensor, ...]] = []
        for group, (score, of_group) in enumerate(zip(so_far.split(size, 1), log_p.split(size, 1), strict=True)):
            step, first = BeamStep.best(score, of_group, eos, cost if group else None), group * size
            cost.scatter_add_(1, step.token, cost.new_full((), self.diversity).expand(step.token.shape))
            columns.append((step.score, first + step.beam, step.token, step.end_score, first + step.end_beam))
        return BeamStep(*(torch.cat(column, 1) for column in zip(*columns, strict=True)))


@dataclass(frozen=True)
class Live:
    """The R sentences of a search that are not over, and what each step asks of them, as long as none leaves."""

    sentence: Tensor  # (R,): their numbers in the batch
    of_row: Tensor  # (R*K,): the sentence of each hypothesis
    first_row: Tensor  # (R, 1): the first hypothesis of each
    max_length: Tensor  # (R,)
    shortest: int  # of the maximum lengths; 0 where there is no sentence
    largest_penalty: Tensor  # (R,): what a score is divided by at most

    @classmethod
    def from_sentences(cls, sentence: Tensor, output: OutputSpec, beams: int) -> "Live":
        """Return what is to be known of the sentences (R,) of a batch, with so many beams each."""
        max_length = output.max_lengths[sentence]
        first_row = torch.arange(len(sentence), device=sentence.device)[:, None] * beams
        # A log-probability only falls; what divides it is greatest at the end or, if alpha is negative, by now.
        largest_penalty = length_penalty(max_length, output.alpha).clamp(min=1)
        of_row = sentence.repeat_interleave(beams)
        shortest = min(max_length.tolist(), default=0)
        return cls(sentence, of_row, first_row, max_length, shortest, largest_penalty)


class BeamSearch:
    """A beam search in progress: K open hypotheses for each live sentence, and the best finished ones of all sentences.

    Call `run`, or take its `steps`. A sentence is over when no open hypothesis can still overtake the worst of its
    `n_best` finished ones (default: as many as beams), or, with `patience`, when that many times `beams` are finished.
    Hypotheses that are cut off at their maximum length compete with the finished ones.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Seq2Seq,
        source: Tensor,
        output: OutputSpec,
        beams: int,
        n_best: int | None = None,
        patience: float | None = None,
        allocation: BeamAllocation | None = None,
        observe: Observer | None = None,
    ):
        self.model, self.output, self.beams, self.patience, self.observe = model, output, beams, patience, observe
        self.allocation = allocation or BeamAllocation()
        sentences, device, groups = source.size(0), source.device, self.allocation.groups
        self.group_size = beams // groups
        self.state = model.start(source)
        self.state.select(torch.arange(sentences, device=device).repeat_interleave(beams))
        self.live = Live.from_sentences(torch.arange(sentences, device=device), output, beams)
        self.tokens = source.new_full((sentences * beams, 1), output.bos)  # R*K L
        self.score = torch.full((sentences, beams), -math.inf, device=device)  # R K
        self.score[:, :: self.group_size] = 0  # all beams of a group start equal: keep one
        max_length = int(output.max_lengths.max())
        self.finished = FinishedPool(sentences, n_best or beams, max_length, source, distinct=groups > 1)

    @property
    def done(self) -> bool:
        return not len(self.live.sentence)

    def run(self) -> list[list[Hypothesis]]:
        """Search to the end. Return the best `n_best` hypotheses for each sentence, best first."""
        return finish(self.steps())

    def steps(self) -> Steps:
        """Search step by step. Return what `run` does."""
        while not self.done:
            self.step()
            if not self.done:
                yield
        return self.finished.hypotheses()

    @torch.inference_mode()
    def step(self) -> None:
        """Continue every open hypothesis by one token; sentences that are then over leave the batch."""
        live, length, eos = self.live, self.tokens.size(1), self.output.eos
        shape = len(live.sentence), self.beams
        log_p = next_log_p(self.model, self.state, self.tokens, live.of_row, self.output).view(*shape, -1)
        step = self.allocation.expand(self.score, log_p, eos)
        if self.observe:
            self.observe(self.score, log_p, step)
        penalty = length_penalty(length, self.output.alpha)
        if (step.end_score > -math.inf).any():
            ends = (column.split(self.group_size, 1) for column in (step.end_score, live.first_row + step.end_beam))
            for score, rows in zip(*ends, strict=True):  # by group: what two groups find counts once
                tokens = self.tokens[rows.flatten(), 1:].view(*rows.shape, -1)
                self.finished.add(live.sentence, score / penalty, tokens, True)
        rows = live.first_row + step.beam
        self.tokens = torch.cat([self.tokens[rows.flatten()], step.token.view(-1, 1)], 1)
        self.score = step.score
        if length >= live.shortest:
            cut = length >= live.max_length
            tokens = self.tokens[:, 1:].view(*shape, -1)
            self.finished.add(live.sentence[cut], self.score[cut] / penalty, tokens[cut], False)
        going = self.can_improve() & (length < live.max_length)
        if not going.all():
            self.live = Live.from_sentences(live.sentence[going], self.output, self.beams)
            self.score, rows = self.score[going], rows[going]
            self.tokens = self.tokens.view(*shape, -1)[going].flatten(0, 1)
        if not self.done:
            self.state.select(rows.flatten())

    def can_improve(self) -> Tensor:
        """Return (R,), bool: whether further steps may change the finished hypotheses of each live sentence."""
        best_open, live = self.score.amax(-1), self.live
        if self.patience:
            return (best_open > -math.inf) & (self.finished.count[live.sentence] < self.patience * self.beams)
        # Where no hypothesis is open, the best is -inf, and nothing is below it.
        return self.finished.score[live.sentence, -1] < best_open / live.largest_penalty


class FinishedPool:
    """The best finished hypotheses of each sentence so far, the best first."""

    def __init__(self, sentences: int, wanted: int, max_length: int, like: Tensor, distinct: bool = False):
        """Make an empty pool for so many sentences, with room for `wanted` hypotheses of `max_length` tokens for each.

        like: a tensor of ids on the device to use; distinct: keep a hypothesis once that several groups of beams find.
        """
        self.distinct = distinct
        self.score = torch.full((sentences, wanted), -math.inf, device=like.device)
        self.tokens = like.new_zeros(sentences, wanted, max_length)
        self.length = like.new_zeros(sentences, wanted)
        self.ended = torch.zeros(sentences, wanted, dtype=torch.bool, device=like.device)
        self.count = like.new_zeros(sentences)  # how many there were, with those that were not good enough

    def add(self, sentence: Tensor, score: Tensor, tokens: Tensor, ended: bool) -> None:
        """Add c hypotheses to each of n sentences, of which the best `wanted` are kept.

        sentence (n,): their indices; score (n, c): log-probabilities over the length penalty, -inf for none; tokens (n,
        c, L); ended: whether they end with EOS.
        """
        length, wanted = tokens.size(2), self.score.size(1)
        if self.distinct:
            score = self.mask_duplicates(sentence, score, tokens, ended)
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

    def mask_duplicates(self, sentence: Tensor, score: Tensor, tokens: Tensor, ended: bool) -> Tensor:
        """Return the scores (n, c) with -inf for hypotheses that are in the pool already or come twice.

        Arguments and shapes are those of `add`.
        """
        length = tokens.size(2)
        known = (self.score[sentence] > -math.inf) & (self.length[sentence] == length) & (self.ended[sentence] == ended)
        there = (tokens[:, :, None] == self.tokens[sentence][:, None, :, :length]).all(-1) & known[:, None]
        earlier = (tokens[:, :, None] == tokens[:, None]).all(-1).tril(-1) & (score > -math.inf)[:, None]
        return score.masked_fill(there.any(-1) | earlier.any(-1), -math.inf)

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Return the kept hypotheses of each sentence, the best first; fewer than `wanted` where there were fewer."""
        table = (self.tokens, self.length, self.score, self.ended)
        return [
            [
                Hypothesis(ids[:length], score, ended)
                for ids, length, score, ended in zip(*row, strict=True)
                if score > -math.inf
            ]
            for row in zip(*(column.tolist() for column in table), strict=True)
        ]


# The largest numbers of long rows.


def topk(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values of the last dimension and their indices, as `Tensor.topk` does.

    Several times as fast on a CPU where k is small: the k largest are among the k blocks with the largest maxima, and
    what is left over at the end.
    """
    size = x.size(-1)
    whole = size // BLOCK * BLOCK
    if whole <= k * BLOCK:
        return x.topk(k)
    blocks = x[..., :whole].unflatten(-1, (-1, BLOCK))
    chosen = blocks.amax(-1).topk(k)[1]
    candidates = (chosen.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=x.device)).flatten(-2)
    remainder = torch.arange(whole, size, device=x.device).expand(*x.shape[:-1], -1)
    candidates = torch.cat([candidates, remainder], -1)
    largest, index = x.gather(-1, candidates).topk(k)
    return largest, candidates.gather(-1, index)


def argmax(x: Tensor) -> Tensor:
    """Return the index (R,) of the largest value of each row of x (R, V), the first one where several are equal.

    Several times as fast on a CPU as `Tensor.argmax` where there are many rows: the maxima of blocks are found first.
    """
    whole = x.size(1) // BLOCK * BLOCK
    if len(x) <= PLAIN_ROWS or not whole:
        return x.argmax(-1)
    blocks = x[:, :whole].unflatten(1, (-1, BLOCK))
    largest, block = blocks.amax(-1).max(-1, keepdim=True)
    chosen = blocks.gather(1, block.unsqueeze(-1).expand(-1, 1, BLOCK))[:, 0]
    index = block * BLOCK + chosen.argmax(-1, keepdim=True)
    if whole < x.size(1):
        value, other = x[:, whole:].max(-1, keepdim=True)
        index = torch.where(value > largest, whole + other, index)
    return index[:, 0]
