"""Record a search as a tree: each hypothesis is a node, its parent is the hypothesis without the last token.

Shapes: R live sentences, here one, K beams, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from dragoman.alignment.words import token_label
from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import BOS, EOS
from dragoman.data.tokenizers import SideTokenizer
from dragoman.decoding.engine import UNCONSTRAINED, Constraints, Engine, SteppedEngine, require_numbers
from dragoman.decoding.search import BeamStep, Hypothesis, finish, length_penalty

Fate = Literal["kept", "finished", "pruned"]


@dataclass(frozen=True)
class Node:
    """A hypothesis that the search compared with others: its parent and one more token."""

    parent: int | None  # its index among the nodes; None for the root, which is BOS
    step: int  # how many tokens it has; 0 for the root
    token_id: int
    token: str
    log_p: float  # of the token, in nats
    score: float  # of the hypothesis: the sum of log_p from the root
    normalised: float  # the same divided by the length penalty: what finished hypotheses are compared by
    fate: Fate  # kept: the search continues it; finished: it has ended; pruned: others were better


@dataclass(frozen=True)
class BeamTree:
    """All hypotheses that were among the best at some step: kept, finished and pruned ones.

    At each step the 2K best continuations of the K kept hypotheses are compared: K are kept, those of the first K that
    end are finished, the others are pruned. Shared beginnings are one node. Greedy search (K = 1) keeps the best and
    ends with it. A kept node without children is one of which all continuations were worse than the 2K best, or one
    that was open when the search stopped.
    """

    beams: int
    alpha: float  # of the length penalty
    nodes: tuple[Node, ...]  # by step, and within a step the best first; the root is the first
    winner: int  # index of the node where the chosen hypothesis ends

    @property
    def path(self) -> list[int]:
        """Return the indices of the nodes from the root to the winner."""
        nodes = [self.winner]
        while (parent := self.nodes[nodes[-1]].parent) is not None:
            nodes.append(parent)
        return nodes[::-1]

    @property
    def steps(self) -> int:
        """Return how many steps the search took."""
        return self.nodes[-1].step


class Recording:
    """An engine that records the search for one source, and finds what the engine inside it finds.

    `constraints` are those of the source. Only greedy and beam search of our own engine are recorded: without sampling
    and groups.
    """

    def __init__(self, engine: Engine, tokenizer: SideTokenizer, constraints: Constraints = UNCONSTRAINED):
        self.engine, self.tokenizer, self.constraints = engine, tokenizer, constraints
        self.max_positions = engine.max_positions
        self.recorder: TreeRecorder | None = None

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        """Search as the engine inside does, for one source.

        Record the search if it is of a kind that can be recorded, without the steps that say the tag. Constraints that
        the constructor was given come before those given here.
        """
        constraints = constraints if constraints and self.constraints == UNCONSTRAINED else [self.constraints]
        plain = config.temperature is None and config.beam_groups == 1
        if not isinstance(self.engine, SteppedEngine) or not plain:
            return self.engine.search(sources, config, constraints)
        self.recorder = TreeRecorder(config, self.tokenizer, len(constraints[0].tag))
        return finish(self.engine.search_batch(sources, config, constraints, observe=self.recorder))

    def tree(self, chosen: Hypothesis) -> BeamTree | None:
        """Return the search up to `chosen`, one of its hypotheses; None where it was not recorded."""
        if self.recorder is None:
            return None
        nodes = self.recorder.nodes
        index = {(node.parent, node.token_id): i for i, node in enumerate(nodes)}
        winner = 0
        for token in [*chosen.tokens[self.recorder.tag :], *[EOS] * chosen.finished]:
            winner = index[winner, token]
        return BeamTree(self.recorder.beams, self.recorder.alpha, tuple(nodes), winner)


NONE = -1  # index for hypotheses that only fill up the beam and have no node


class TreeRecorder:
    """The observer of a search that turns each step into nodes."""

    def __init__(self, config: SearchConfig, tokenizer: SideTokenizer, tag: int = 0):
        self.tag = self.left_out = tag  # how many steps say the tag, and how many of them are still to come
        self.tokenizer, self.beams, self.alpha = tokenizer, config.beam, config.length_penalty
        self.nodes = [Node(None, 0, BOS, token_label(tokenizer, BOS), 0.0, 0.0, 0.0, "kept")]
        self.open = [0] * self.beams  # the node of each open hypothesis

    def __call__(self, so_far: Tensor, log_p: Tensor, step: BeamStep) -> None:
        """Add the nodes of one step of a search for one source; see `Observer`.

        Raise DragomanError where the model's probabilities are not numbers.
        """
        require_numbers(log_p)
        if self.left_out:
            self.left_out -= 1
            return
        length, words = self.nodes[-1].step + 1, log_p.size(-1)
        total = (so_far.unsqueeze(-1) + log_p).flatten()
        kept = np.where(step.score > -math.inf, step.beam * words + step.token, NONE).flatten().tolist()
        finished = (step.end_beam[step.end_score > -math.inf] * words + EOS).tolist()
        best = total.topk(min(2 * self.beams, len(total))).indices.tolist()
        compared = [n for n in dict.fromkeys([*kept, *finished, *best]) if n != NONE and total[n] > -math.inf]
        normalised = total / length_penalty(length, self.alpha)
        node_of = {NONE: NONE}
        for n in sorted(compared[: 2 * self.beams], key=lambda n: -float(total[n])):
            fate: Fate = "kept" if n in kept else "finished" if n in finished else "pruned"
            (beam, token), node_of[n] = divmod(n, words), len(self.nodes)
            scores = float(log_p[0, beam, token]), float(total[n]), float(normalised[n])
            self.nodes.append(Node(self.open[beam], length, token, token_label(self.tokenizer, token), *scores, fate))
        self.open = [node_of[n] for n in kept]
