"""Search for many sources in parts, so that somebody is told how far the search is, and may end it."""

from collections.abc import Callable, Sequence

import torch

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids, batches_by_length
from dragoman.decoding.engine import Constraints, Engine
from dragoman.decoding.search import Hypothesis
from dragoman.decoding.torch_engine import TorchEngine, max_batch_tokens


class EngineInParts:
    """An engine that searches for some sources at a time, the shortest first, and tells how much is done before each.

    A part has at most `tokens` tokens, padding included, or a single source; None: as many as a batch of the native
    engine, which then loses no time. `before` gets the share of all tokens that is done, from 0 to below 1, and the
    number of sources; what it raises ends the search.
    """

    def __init__(self, engine: Engine, before: Callable[[float, int], None], tokens: int | None = None):
        self.engine, self.before, self.tokens = engine, before, tokens
        self.device = engine.device if isinstance(engine, TorchEngine) else torch.device("cpu")
        self.max_positions = engine.max_positions

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        total, done = max(sum(map(len, sources)), 1), 0
        hypotheses: dict[int, list[Hypothesis]] = {}
        tokens = self.tokens or max_batch_tokens(config, self.device)
        for part in batches_by_length(range(len(sources)), sources, tokens):
            self.before(done / total, len(sources))
            ids, part_constraints = (
                [sources[index] for index in part],
                constraints and [constraints[index] for index in part],
            )
            hypotheses |= zip(part, self.engine.search(ids, config, part_constraints), strict=True)
            done += sum(map(len, ids))
        return [hypotheses[index] for index in range(len(sources))]
