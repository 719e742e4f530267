"""Prove that a copy of a model in another format translates as the model itself does: the one check of all copies."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.lines import read_lines
from dragoman.data.tokenizer import EOS
from dragoman.data.tokenizers import SideTokenizer
from dragoman.decoding.engine import UNCONSTRAINED, Constraints, Engine
from dragoman.decoding.forced import leave_room_for_eos, score
from dragoman.decoding.search import BeamStep
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError, plural
from dragoman.model import Model

TOLERANCE = 1e-3  # nats: less than this is rounding
SOURCES = 200  # that are translated
CUT = 512  # tokens of a source from a file
LONGEST, DEALT = 16, 64  # tokens of a made-up source: of one that is translated, of one that is scored

GREEDY = SearchConfig(beam=1, extra_length=LONGEST, length_penalty=0)
BEAM_4 = SearchConfig(beam=4, extra_length=LONGEST, length_penalty=0)


class Copy(Engine, Protocol):
    """An engine with a model in another format, which also tells what it finds probable."""

    patience: float | None
    "after how many finished hypotheses its beam search stops, as in `SearchConfig`; None: when none can become better"

    def log_p(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        """Return the log-probability of each token of each target, and of EOS after it, in nats; ids without either."""
        ...


@dataclass(frozen=True)
class Agreement:
    """How far a copy and its model agree."""

    tokens: int  # whose probabilities were compared
    gap: float  # the largest difference between two log-probabilities, in nats
    sources: int  # that were translated
    others: dict[str, int] = field(default_factory=dict)  # how many got other words, by search: all of them ties

    def __str__(self) -> str:
        lines = [
            f"log-probabilities of {plural(self.tokens, 'token')}: they differ by at most {self.gap:.1e} nats "
            f"(allowed: {TOLERANCE:g})"
        ]
        for search, others in self.others.items():
            line = f"{search}: the same words for {self.sources - others:,} of {plural(self.sources, 'source')}"
            if others:
                line += f"; for {others:,}, the model itself finds two continuations within {TOLERANCE:g} nats"
            lines.append(line)
        return "\n".join(lines)


class Mismatch(DragomanError):
    """A copy does not translate as its model does."""


def read_sample(file: str | Path, tokenizer: SideTokenizer, longest: int | None = None) -> list[Ids]:
    """Return the ids of the first SOURCES lines with text in a file, long ones cut.

    longest: of a source, EOS included, where there is a limit. Raise DragomanError where the file cannot be read, or
    has no text.
    """
    lines = (line for line in read_lines(str(file)) if line and line.strip())
    encoded = tokenizer.encode_sources(list(islice(lines, SOURCES)))
    sources: list[Ids] = [ids[: min(CUT, (longest or CUT + 1) - 1)] for ids in encoded]
    if not sources:
        raise DragomanError(f"{file}: no line with text")
    return sources


def made_up(vocabulary: int, count: int, longest: int | None = None, seed: int = 0) -> list[Ids]:
    """Return `count` made-up sources of up to LONGEST tokens: of all ids from EOS + 1 to `vocabulary` - 1.

    longest: of a source, EOS included, where there is a limit.
    """
    chance = random.Random(seed)
    length = max(min(LONGEST, (longest or math.inf) - 1), 1)
    return [
        [chance.randrange(EOS + 1, vocabulary) for _ in range(chance.randint(1, int(length)))] for _ in range(count)
    ]


def dealt(vocabulary: int, longest: int | None = None, seed: int = 0) -> list[Ids]:
    """Return as many made-up texts as all ids from EOS + 1 to `vocabulary` - 1 fill, in random order, each id once."""
    ids = list(range(EOS + 1, vocabulary))
    random.Random(seed).shuffle(ids)
    length = min(DEALT, (longest or DEALT + 1) - 1)
    return [ids[start : start + length] for start in range(0, len(ids), length)]


def verify(
    model: Model, copy: Copy, sources: Sequence[Ids], pairs: tuple[Sequence[Ids], Sequence[Ids]] = ([], [])
) -> Agreement:
    """Return how far a copy agrees with its model. Raise Mismatch where it does not translate as the model does.

    sources: to translate, greedily and with 4 beams; their greedy words are scored by both, and so are the `pairs`, as
    many sources as targets. Log-probabilities may differ by TOLERANCE. Words may differ where the search of the model
    itself had to choose between continuations that are no further apart.
    """
    sources, native = [list(ids) for ids in sources if ids], TorchEngine(model)
    beam_4 = replace(BEAM_4, patience=copy.patience)
    translations = {config.beam: native.search(sources, config) for config in (GREEDY, beam_4)}
    forced_sources = [*sources, *pairs[0]]
    targets = [*leave_room_for_eos(model, [hypothesis.tokens for (hypothesis,) in translations[1]]), *pairs[1]]
    ours = [likelihood.log_p for likelihood in score(model, forced_sources, targets)]
    theirs, gap = copy.log_p(forced_sources, targets), 0.0
    for source, our_scores, their_scores in zip(forced_sources, ours, theirs, strict=True):
        apart = float((torch.tensor(our_scores) - torch.tensor(their_scores)).abs().max())
        if not apart <= TOLERANCE:  # NaN is not, either
            raise Mismatch(f"its log-probabilities differ by {apart:.2g} nats (for the source ids {source})")
        gap = max(gap, apart)
    others: dict[str, int] = {}
    for config, name in ((GREEDY, "greedy search"), (beam_4, "search with 4 beams")):
        others[name] = 0
        for source, (best, *_), (copy_best, *_) in zip(
            sources, translations[config.beam], copy.search(sources, config), strict=True
        ):
            if best.tokens != copy_best.tokens:
                if narrowest_choice(model, source, config) > TOLERANCE:
                    raise Mismatch(f"{name} finds other words (for the source ids {source})")
                others[name] += 1
    return Agreement(sum(map(len, ours)), gap, len(sources), others)


def narrowest_choice(model: Model, source: Ids, config: SearchConfig, given: Constraints = UNCONSTRAINED) -> float:
    """Return the smallest difference in score, in nats, that decided what a search of the model kept.

    Between such hypotheses, rounding may choose others. given: what the output begins with.
    """
    gaps: list[float] = []

    def observe(so_far: Tensor, log_p: Tensor, step: BeamStep) -> None:
        scores = so_far[..., None] + log_p  # 1 K V
        most = min(2 * config.beam, scores.numel() - 1)
        best = scores.flatten().topk(most + 1)[0]
        if config.beam == 1:
            gaps.append(float(best[0] - best[1]))
            return
        gaps.append(float(best[-2] - best[-1]))
        scores[..., EOS] = -math.inf
        still_open = scores.flatten().topk(config.beam + 1)[0]
        gaps.append(float(still_open[-2] - still_open[-1]))

    two = replace(config, n_best=min(2, config.beam))
    (hypotheses,) = TorchEngine(model).search([source], two, [given], observe=observe)
    gaps += [better.score - worse.score for better, worse in pairwise(hypotheses)]
    return min(gap for gap in gaps if not math.isnan(gap))  # it is NaN between two that are impossible
