"""A search as a tree: each hypothesis is a node, its parent is the hypothesis without the last token.

Shapes: K beams, V vocabulary.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import BOS, EOS, Tokenizer
from dragoman.decoding.engine import UNCONSTRAINED, Constraints, Engine
from dragoman.decoding.processors import Processor, apply_processors
from dragoman.decoding.search import BeamStep, Hypothesis, length_penalty, top
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.inspection.attention import piece

Fate = Literal["kept", "finished", "pruned"]


@dataclass(frozen=True)
class Node:
    """A hypothesis that the search weighed up: its parent and one more token."""

    parent: int | None  # its number among the nodes; None for the root, which is the start
    step: int  # how many tokens it has; 0 for the root
    token: int
    piece: str
    log_p: float  # of the token, in nats
    score: float  # of the hypothesis: the sum of log_p from the start
    normalised: float  # the same divided by the length penalty: what finished hypotheses are compared by
    fate: Fate  # kept: the search goes on with it; finished: it has ended; pruned: others were better


@dataclass(frozen=True)
class BeamTree:
    """All hypotheses that were among the best at some step: kept, finished and pruned ones.

    At each step the 2K best continuations of the K kept hypotheses are weighed up: K are kept, those of the first K
    that end are finished, the others are pruned. Shared beginnings are one node. Greedy search (K = 1) keeps the best
    and ends with it. A kept node without children is one of which all continuations were worse than the 2K best, or one
    that was open when the search stopped.
    """

    beams: int
    alpha: float  # of the length penalty
    nodes: tuple[Node, ...]  # by step, and within a step the best first; the root is number 0
    winner: int  # number of the node where the chosen hypothesis ends

    @property
    def path(self) -> list[int]:
        """The nodes from the root to the winner."""
        found = [self.winner]
        while (parent := self.nodes[found[-1]].parent) is not None:
            found.append(parent)
        return found[::-1]

    @property
    def steps(self) -> int:
        return self.nodes[-1].step


class Recording:
    """A search engine, recorded from outside for one source: what it finds is the same to the bit.

    `constraints` are those of the source. What an engine does that is not ours, or that draws at random, searches in
    groups or brings in terms, is not recorded.
    """

    def __init__(self, engine: Engine, tokenizer: Tokenizer, constraints: Constraints = UNCONSTRAINED):
        self.engine, self.tokenizer, self.constraints = engine, tokenizer, constraints
        self.max_positions = engine.max_positions
        self.watch: Watch | None = None

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        """As the engine does it, for one source."""
        engine, own = self.engine, list(constraints or [self.constraints])
        if (
            isinstance(engine, TorchEngine)
            and config.temperature is None
            and config.beam_groups == 1
            and not own[0].terms
        ):
            watch = Watch(engine.rules(config, own, engine.device), config, self.tokenizer)
            engine, self.watch = copy.copy(engine), watch
            engine.rules = lambda *_: [watch]  # type: ignore[method-assign]
        return engine.search(sources, config, own)

    def tree(self, chosen: Hypothesis) -> BeamTree | None:
        """What the search did until it found `chosen`, one of its hypotheses; None where it was not recorded."""
        if self.watch is None:
            return None
        nodes = self.watch.nodes
        numbers = {(node.parent, node.token): number for number, node in enumerate(nodes)}
        winner = 0
        for token in [*chosen.tokens, *[EOS] * chosen.finished]:
            winner = numbers[winner, token]
        return BeamTree(self.watch.beams, self.watch.alpha, tuple(nodes), winner)


NOWHERE = -1


class Watch:
    """The last rule of a search: it applies the others, changes nothing, and sees every step.

    What the search then makes of it is worked out once more, with the search's own functions.
    """

    def __init__(self, rules: Sequence[Processor], config: SearchConfig, tokenizer: Tokenizer):
        self.rules, self.tokenizer, self.alpha = rules, tokenizer, config.length_penalty
        self.nodes = [Node(None, 0, BOS, piece(tokenizer, BOS), 0.0, 0.0, 0.0, "kept")]
        self.beams = config.beam
        self.rows = [0] * self.beams  # the node of each hypothesis
        self.score = torch.full((self.beams,), -math.inf)  # all start equal: one of them counts
        self.score[0] = 0

    def __call__(self, log_p: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        log_p = apply_processors(self.rules, log_p, tokens, sentence, EOS)
        self.weigh(log_p, tokens.size(1))
        return log_p

    def weigh(self, log_p: Tensor, step: int) -> None:
        """log_p (K, V) of the next tokens, the last of which are number `step` of their hypotheses."""
        beams, words = log_p.shape
        so_far = self.score.to(log_p.device)
        total = (so_far[:, None] + log_p).flatten()
        if beams == 1:
            (best,) = top(log_p, 1)[1][0].tolist()
            kept, finished = ([], [best]) if best == EOS else ([best], [])
            self.score = total[kept]
        else:
            going = BeamStep.of(so_far[None], log_p[None], EOS)
            self.score = going.score[0]  # -inf: one that is there only to fill up the beam
            places = going.beam[0] * words + going.token[0]
            kept = places.masked_fill(self.score == -math.inf, NOWHERE).tolist()
            finished = (going.end_beam[going.end_score > -math.inf] * words + EOS).tolist()
        others = total.topk(min(2 * beams, len(total))).indices.tolist()
        weighed = [n for n in dict.fromkeys([*kept, *finished, *others]) if n != NOWHERE and total[n] > -math.inf]
        weighed = sorted(weighed[: 2 * beams], key=lambda n: -float(total[n]))
        normalised = total / length_penalty(step, self.alpha)
        numbers = {NOWHERE: NOWHERE}
        for n in weighed:
            fate: Fate = "kept" if n in kept else "finished" if n in finished else "pruned"
            (row, token), numbers[n] = divmod(n, words), len(self.nodes)
            scores = float(log_p[row, token]), float(total[n]), float(normalised[n])
            self.nodes.append(Node(self.rows[row], step, token, piece(self.tokenizer, token), *scores, fate))
        self.rows = [numbers[n] for n in kept]
