"""Greedy search, sampling and beam search (section 6.1) over any model with start, step and select.

Every operation of a step treats all hypotheses at once, and sentences that are over leave the batch. Log-probabilities
are tensors on the model's device; what is kept of them, a few numbers for each hypothesis, is in arrays of NumPy, which
take less time for so few. A search stops between two steps, so that one thread can take the steps of several in turn;
`finish` runs one to its end.

Shapes: B sentences, R of them live, K beams, G groups of k = K/G beams, V vocabulary, L tokens so far with BOS.
"""

import bisect
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeGuard, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragoman.decoding.processors import Dropped, Processor, apply_processors
from dragoman.model import Chooser, Seq2Seq

BLOCK = 64  # words of a block of `topk` and `argmax`
PLAIN_ROWS = 4  # up to so many, looking for the block first does not pay

Length = TypeVar("Length", float, NDArray[np.float64])
Floats = NDArray[np.float64]  # scores are summed in double precision, whatever the model computes in
Ints = NDArray[np.int64]


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

    length: its tokens with EOS; an array of several lengths gives an array.
    """
    return ((5 + length) / 6) ** alpha


def chooses(model: Seq2Seq) -> TypeGuard[Chooser]:
    """Return whether a model finds the likeliest words itself."""
    return hasattr(model, "likeliest")


def next_log_p(model: Seq2Seq, state: object, tokens: Tensor, sentence: Tensor, output: OutputSpec) -> Tensor:
    """Return log-probabilities (rows, V) of the token after tokens (rows, L), -inf where a processor forbids it.

    state: of the model, after all tokens but the last, which is added to it; sentence (rows,): which sentence of the
    batch each row translates.
    """
    last = tokens[:, -1:]
    log_p = model.log_p(last, state) if chooses(model) else model.step(last, state)[:, -1].log_softmax(-1)
    if output.processors:
        log_p = apply_processors(output.processors, log_p, tokens, sentence, output.eos)
    return output.dropped(log_p, tokens, sentence) if output.dropped else log_p


def array(tensor: Tensor) -> NDArray:
    """Return the numbers of a tensor; on a GPU this waits for them."""
    return tensor.cpu().numpy()


@dataclass(frozen=True)
class BeamStep:
    """The continuations of each sentence's hypotheses in one step, all (R, K), the most probable first."""

    score: Floats  # of those that stay open; -inf where there are fewer
    beam: Ints  # which of the K each of them continues
    token: Ints
    end_score: Floats  # of those that end here; -inf where there are fewer
    end_beam: Ints

    @classmethod
    def best(cls, so_far: Floats, likely: Floats, word: Ints, eos: int, worth: Floats | None = None) -> "BeamStep":
        """Return the k best open continuations of each sentence's k hypotheses, and up to k that end.

        They are chosen from the 2k best of all: k of them may end here, and k must stay open. so_far (R, k): the scores
        of the hypotheses; likely (R, k, n): the log-probabilities of their n likeliest words, n = 2k if there are so
        many; word (R, k, n): which words; worth (R, k, n): what continuations are compared by instead of `likely`.
        """
        sentences, beams, words = likely.shape
        total = (so_far[:, :, None] + likely).reshape(sentences, -1)
        compared = total if worth is None else (so_far[:, :, None] + worth).reshape(sentences, -1)
        each = np.arange(sentences)[:, None]
        index = (-compared).argsort(1, kind="stable")[:, : 2 * beams]
        best, beam, token = total[each, index], index // words, word.reshape(sentences, -1)[each, index]
        ended = token == eos
        still_open = ended.argsort(1, kind="stable")[:, :beams]  # in the same order, those that end last
        score = np.where(ended, -np.inf, best)[each, still_open]
        end_score = np.where(ended, best, -np.inf)[:, :beams]
        return cls(score, beam[each, still_open], token[each, still_open], end_score, beam[:, :beams])

    @classmethod
    def single(cls, score: Floats, token: Ints, ended: NDArray[np.bool_]) -> "BeamStep":
        """Return the step of a search with one hypothesis for each sentence, which continues it with one token.

        All (R, 1): score of the hypothesis with the token; token; ended: whether the token is EOS.
        """
        none, beam = np.full_like(score, -np.inf), np.zeros_like(token)
        return cls(np.where(ended, none, score), beam, token, np.where(ended, score, none), beam)


Observer = Callable[[Tensor, Tensor, BeamStep], None]
"""Called at each step with the scores so far (R, K), log_p (R, K, V) of each next token, and what the search kept."""


# One token after the other.

Choose = Callable[[Tensor, Tensor, int], Tensor]
"""From log_p (R, V), the number of each row's sentence (R,) and the number of the step to tokens (R,)."""


def greedy_search(model: Seq2Seq, source: Tensor, output: OutputSpec, observe: Observer | None = None) -> Steps:
    """Find one hypothesis for each sentence of source (B, S), of the most probable token at each step.

    `observe` is called at each step. For the end and the score of a hypothesis, see `generate`.
    """
    return generate(model, source, output, observe=observe)


@torch.inference_mode()  # of a generator: while it takes a step, and not while it waits for the next one
def generate(
    model: Seq2Seq, source: Tensor, output: OutputSpec, choose: Choose | None = None, observe: Observer | None = None
) -> Steps:
    """Find one hypothesis for each sentence of source (B, S), made of the tokens that `choose` picks, up to EOS.

    Without `choose`, these are the most probable ones. A hypothesis ends at its maximum length, unfinished, where EOS
    has not come by then. Its score is the sum of the tokens' log-probabilities after the processors, over the length
    penalty. `observe` sees every step.
    """
    sentences, device = source.size(0), source.device
    state = model.start(source)
    hypotheses: dict[int, Hypothesis] = {}
    # Of the live rows: which sentence each is, its tokens so far with room for the others, and its score.
    row, max_lengths = np.arange(sentences), array(output.max_lengths)
    tokens = np.full((sentences, int(max_lengths.max()) + 1), output.bos)
    score = np.zeros((sentences, 1))
    for step in range(1, tokens.shape[1]):
        before = score
        if choose is None and chooses(model) and is_plain(output, observe):
            value, word = model.likeliest(torch.from_numpy(tokens[:, step - 1 : step]), state, 1)
        else:
            of_row = torch.from_numpy(row).to(device)
            log_p = next_log_p(model, state, torch.from_numpy(tokens[:, :step]).to(device), of_row, output)
            word = (argmax(log_p) if choose is None else choose(log_p, of_row, step))[:, None]
            value = log_p.gather(1, word)
        token = array(word)
        tokens[:, step], score = token[:, 0], before + array(value)
        over = token == output.eos
        if observe:
            observe(torch.from_numpy(before).to(device), log_p[:, None], BeamStep.single(score, token, over))
        last = over[:, 0] | (max_lengths <= step)
        if last.any():
            penalty = length_penalty(step, output.alpha)
            columns = (column[last].tolist() for column in (row, tokens[:, 1 : step + 1], score[:, 0], over[:, 0]))
            for sentence, ids, total, end in zip(*columns, strict=True):
                hypotheses[sentence] = Hypothesis(ids[: step - end], total / penalty, end)
            alive = (~last).nonzero()[0]
            if not len(alive):
                break
            row, tokens, score, max_lengths = (column[alive] for column in (row, tokens, score, max_lengths))
            state.select(torch.from_numpy(alive).to(device))
        yield
    return [[hypotheses[sentence]] for sentence in range(sentences)]


def is_plain(output: OutputSpec, observe: Observer | None) -> bool:
    """Return whether nobody looks at the words that are not likely: no processor, and no observer."""
    return not (output.processors or observe or (output.dropped and output.dropped.sentences))


# Beam search.


class BeamAllocation:
    """Give the beams of a sentence to the most probable continuations.

    With several `groups`, each has its share of the beams, and a token costs `diversity` for each hypothesis of an
    earlier group that is continued with it in the same step (Vijayakumar et al. 2016); scores stay without it.
    """

    def __init__(self, groups: int = 1, diversity: float = 0.0):
        self.groups, self.diversity = groups, diversity

    def expand(self, so_far: Floats, log_p: Tensor, eos: int) -> BeamStep:
        """Return the continuations to keep of hypotheses with the scores so_far (R, K), and those that end.

        log_p (R, K, V): of each next token.
        """
        size = so_far.shape[1] // self.groups
        likeliest = min(2 * size, log_p.size(-1))
        if self.groups == 1:
            likely, word = topk(log_p, likeliest)
            return BeamStep.best(so_far, array(likely), array(word), eos)
        cost = log_p.new_zeros(len(log_p), 1, log_p.size(-1))
        columns: list[tuple[NDArray, ...]] = []
        for first in range(0, so_far.shape[1], size):
            of_group = log_p[:, first : first + size]
            worth, word = topk(of_group - cost, likeliest)
            likely = of_group.gather(-1, word)
            step = BeamStep.best(so_far[:, first : first + size], array(likely), array(word), eos, array(worth))
            token = torch.from_numpy(step.token).to(cost.device).unsqueeze(1)
            cost.scatter_add_(2, token, cost.new_full((), self.diversity).expand(token.shape))
            columns.append((step.score, first + step.beam, step.token, step.end_score, first + step.end_beam))
        return BeamStep(*(np.concatenate(column, 1) for column in zip(*columns, strict=True)))


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
        self.allocation, self.device = allocation or BeamAllocation(), source.device
        sentences, groups = source.size(0), self.allocation.groups
        self.state = model.start(source)
        self.state.select(torch.arange(sentences, device=self.device).repeat_interleave(beams))
        max_length = array(output.max_lengths)
        self.live, self.max_length = np.arange(sentences), max_length  # (R,): the live sentences and their limits
        # (R,): what a score is divided by at most. A log-probability only falls; what divides it is greatest at the end
        # or, if alpha is negative, by now.
        self.largest_penalty = np.maximum(length_penalty(max_length.astype(float), output.alpha), 1)
        self.tokens = np.full((sentences * beams, int(max_length.max()) + 1), output.bos)  # R*K, L and room for more
        self.length = 1  # of the tokens so far
        self.score = np.full((sentences, beams), -np.inf)  # R K
        self.score[:, :: beams // groups] = 0  # all beams of a group start equal: keep one
        self.finished = FinishedPool(sentences, n_best or beams, distinct=groups > 1)

    @property
    def done(self) -> bool:
        return not len(self.live)

    def run(self) -> list[list[Hypothesis]]:
        """Search to the end. Return the best `n_best` hypotheses for each sentence, best first."""
        return finish(self.steps())

    def steps(self) -> Steps:
        """Search step by step. Return what `run` does."""
        while not self.done:
            self.step()
            if not self.done:
                yield
        return self.finished.hypotheses

    @torch.inference_mode()
    def step(self) -> None:
        """Continue every open hypothesis by one token; sentences that are then over leave the batch."""
        length, first_row = self.length, np.arange(len(self.live))[:, None] * self.beams
        step = self.expand()
        ended = step.end_score > -np.inf
        if ended.any():
            self.add_finished(ended, step.end_score, self.tokens[first_row + step.end_beam, 1:length], True)
        rows = (first_row + step.beam).flatten()
        self.tokens = self.tokens[rows]
        self.tokens[:, length] = step.token.flatten()
        self.score, self.length = step.score, length + 1
        cut = length >= self.max_length
        if cut.any():
            tokens = self.tokens[first_row + np.arange(self.beams), 1 : length + 1]
            self.add_finished(cut[:, None] & (self.score > -np.inf), self.score, tokens, False)
        going = self.can_improve() & ~cut
        if not going.all():
            self.live, self.score = self.live[going], self.score[going]
            self.max_length, self.largest_penalty = self.max_length[going], self.largest_penalty[going]
            of_row = going.repeat(self.beams)
            self.tokens, rows = self.tokens[of_row], rows[of_row]
        if not self.done:
            self.state.select(torch.from_numpy(rows).to(self.device))

    def expand(self) -> BeamStep:
        """Return the continuations of all hypotheses; the token that each has last is then part of the state."""
        shape, eos, model = self.score.shape, self.output.eos, self.model
        if self.allocation.groups == 1 and chooses(model) and is_plain(self.output, self.observe):
            last = torch.from_numpy(self.tokens[:, self.length - 1 : self.length])
            likely, word = (array(each).reshape(*shape, -1) for each in model.likeliest(last, self.state, 2 * shape[1]))
            return BeamStep.best(self.score, likely, word, eos)
        arrays = self.tokens[:, : self.length], self.live.repeat(self.beams)
        tokens, of_row = (torch.from_numpy(each).to(self.device) for each in arrays)
        log_p = next_log_p(model, self.state, tokens, of_row, self.output).view(*shape, -1)
        step = self.allocation.expand(self.score, log_p, eos)
        if self.observe:
            self.observe(torch.from_numpy(self.score).to(self.device), log_p, step)
        return step

    def add_finished(self, which: NDArray[np.bool_], score: Floats, tokens: Ints, ended: bool) -> None:
        """Add the hypotheses of `which` (R, K) to the finished ones.

        score (R, K): their log-probabilities; tokens (R, K, L); ended: whether they end with EOS.
        """
        penalty = length_penalty(tokens.shape[2] + ended, self.output.alpha)
        columns = (self.live[which.nonzero()[0]], (score / penalty)[which], tokens[which])
        for sentence, value, ids in zip(*(column.tolist() for column in columns), strict=True):
            self.finished.add(sentence, Hypothesis(ids, value, ended))

    def can_improve(self) -> NDArray[np.bool_]:
        """Return (R,): whether further steps may change the finished hypotheses of each live sentence."""
        best_open = self.score.max(1)
        if self.patience:
            return (best_open > -np.inf) & (self.finished.count[self.live] < self.patience * self.beams)
        # Where no hypothesis is open, the best is -inf, and nothing is below it.
        return self.finished.worst[self.live] < best_open / self.largest_penalty


class FinishedPool:
    """The best finished hypotheses of each sentence so far, the best first."""

    def __init__(self, sentences: int, wanted: int, distinct: bool = False):
        """Make an empty pool for so many sentences, with room for `wanted` hypotheses for each.

        distinct: keep a hypothesis once that several groups of beams find.
        """
        self.wanted, self.distinct = wanted, distinct
        self.hypotheses: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self.worst = np.full(sentences, -np.inf)  # the score to beat: -inf while there is room
        self.count = np.zeros(sentences, int)  # how many there were, with those that were not good enough

    def add(self, sentence: int, hypothesis: Hypothesis) -> None:
        """Add a hypothesis to a sentence, of whose hypotheses the best `wanted` are kept."""
        kept = self.hypotheses[sentence]
        if self.distinct and any(
            (other.tokens, other.finished) == (hypothesis.tokens, hypothesis.finished) for other in kept
        ):
            return
        self.count[sentence] += 1
        bisect.insort(kept, hypothesis, key=lambda other: -other.score)
        del kept[self.wanted :]
        if len(kept) == self.wanted:
            self.worst[sentence] = kept[-1].score


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
