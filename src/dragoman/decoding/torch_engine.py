"""Search with our own models: pack their weights for the CPU, group sources of similar length, and turn settings and
constraints into a search.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from dragoman.config import ComputeType, SearchConfig
from dragoman.data.batches import Ids, batches_by_length, source_batch
from dragoman.data.tokenizer import BOS, EOS, PAD
from dragoman.decoding.engine import UNCONSTRAINED, Constraints, most_tokens, require_probabilities
from dragoman.decoding.ensemble import Ensemble
from dragoman.decoding.mixture import Mixture, Rememberer
from dragoman.decoding.processors import Dropped, Forbidden, MinimumLength, NoRepeat, Prefix, Processor, Suppressed
from dragoman.decoding.sampling import Sampling, sample
from dragoman.decoding.search import (
    BeamAllocation,
    BeamSearch,
    Hypothesis,
    Observer,
    OutputSpec,
    Steps,
    finish,
    greedy_search,
)
from dragoman.errors import UsageError
from dragoman.inference.choice import library_level, prepare
from dragoman.inference.linears import FEWEST_KEYS
from dragoman.inference.products import is_steady, resolve_type
from dragoman.model import Model, Seq2Seq
from dragoman.runtime.device import TIMES_AT_ONCE

SEARCH_TOKENS = 16_384  # hypotheses of a batch times its longest source: bounds memory, not results; on a GPU more


class TorchEngine:
    """The engine that searches in PyTorch, with one model or an ensemble. See `Engine`."""

    fewest_keys = 0  # of a source, padding included
    level: str | None = None  # of the library that takes the steps; None: PyTorch does
    searches = 1  # how many take less time side by side, each in a thread of its own, than one after the other

    def __init__(
        self,
        *models: Model,
        suppressed: Sequence[int] = (),
        compute_type: ComputeType = "float32",
        memory: Rememberer | None = None,
    ):
        """Take models with one vocabulary, on one device; on a CPU, pack copies of their weights.

        The probabilities of several are averaged. suppressed: tokens that no output has, except in its prefix.
        compute_type: what the models multiply in. memory: of the one model, whose probabilities it changes. Raise
        UsageError where the device cannot multiply so, and for an ensemble with a memory.
        """
        if memory is not None and len(models) > 1:
            raise UsageError("a memory is that of one model, so an ensemble has none")
        self.suppressed, self.device = list(suppressed), next(models[0].parameters()).device
        self.compute_type = resolve_type(compute_type, self.device)
        fast = [prepare(model, self.compute_type) for model in models]
        self.model: Seq2Seq = fast[0] if len(fast) == 1 else Ensemble(fast)
        # A step in C++ is one thread's, so searches share the cores; tensor operations share them by themselves.
        self.level = library_level(self.model)
        if self.level:
            self.searches = torch.get_num_threads()
        if memory is not None:
            self.model = Mixture(self.model, memory)
        self.max_positions = min(
            (model.config.max_positions for model in models if model.config.max_positions), default=None
        )
        if not self.level and is_steady(models[0], self.compute_type):  # C++ needs no padding for it
            self.fewest_keys = min(FEWEST_KEYS, self.max_positions or FEWEST_KEYS)

    def __repr__(self) -> str:
        compiled = f" (C++ for {self.level})" if self.level else ""
        return (
            f"native engine on {self.device}{f' in {self.compute_type}' * (self.compute_type != 'float32')}{compiled}"
        )

    def search(
        self,
        sources: Sequence[Ids],
        config: SearchConfig,
        constraints: Sequence[Constraints] | None = None,
        observe: Observer | None = None,
    ) -> list[list[Hypothesis]]:
        """Search as `Engine.search` says; `observe` is called at each step of a greedy or beam search.

        Raise DragomanError where the model's probabilities are not numbers.
        """
        constraints = constraints or [UNCONSTRAINED] * len(sources)
        batches = batches_by_length(range(len(sources)), sources, max_batch_tokens(config, self.device))

        def search(batch: Sequence[int]) -> list[list[Hypothesis]]:
            ids, batch_constraints = [sources[row] for row in batch], [constraints[row] for row in batch]
            return finish(self.search_batch(ids, config, batch_constraints, observe))

        if observe is None and self.searches > 1:
            shares = [share for batch in batches for n in range(self.searches) if (share := batch[n :: self.searches])]
            results = in_threads(search, shares, self.searches)
        else:
            shares = list(batches)
            results = [search(share) for share in shares]
        hypotheses: dict[int, list[Hypothesis]] = {}
        for share, of_share in zip(shares, results, strict=True):
            hypotheses |= zip(share, of_share, strict=True)
        return [hypotheses[row] for row in range(len(sources))]

    def search_batch(
        self,
        sources: Sequence[Ids],
        config: SearchConfig,
        constraints: Sequence[Constraints],
        observe: Observer | None = None,
        dropped: Dropped | None = None,
    ) -> Steps:
        """Find the best hypotheses for each source, in one batch, step by step.

        dropped: sentences that end when it names them, with results that mean
        nothing. For `observe` and what is raised, see `search`.
        """
        hypotheses = yield from self._search_batch(sources, config, constraints, observe, dropped)
        require_probabilities(hypotheses, dropped.sentences if dropped else ())
        return hypotheses

    def _search_batch(
        self,
        sources: Sequence[Ids],
        config: SearchConfig,
        constraints: Sequence[Constraints],
        observe: Observer | None,
        dropped: Dropped | None,
    ) -> Steps:
        source = source_batch(sources).to(self.device)
        limits = zip(sources, constraints, strict=True)
        max_lengths = torch.tensor([most_tokens(ids, config, given, self.max_positions) for ids, given in limits])
        if source.size(1) < self.fewest_keys:
            source = pad(source, (0, self.fewest_keys - source.size(1)), value=PAD)
        processors = self.processors(config, constraints)
        output = OutputSpec(BOS, EOS, max_lengths.to(self.device), config.length_penalty, processors, dropped)
        if config.temperature is not None:
            sampling = Sampling(config.temperature, config.top_k, config.top_p)
            samples: list[list[list[Hypothesis]]] = []
            for number in range(config.n_best):
                keys = random_keys(sources, config.seed, number, int(max_lengths.max())).to(self.device)
                samples.append((yield from sample(self.model, source, output, sampling, keys)))
            return [
                sorted((h for (h,) in constraint), key=lambda h: -h.score) for constraint in zip(*samples, strict=True)
            ]
        if config.beam == 1:
            return (yield from greedy_search(self.model, source, output, observe))
        search = BeamSearch(
            self.model,
            source,
            output,
            beams=config.beam,
            n_best=config.n_best,
            patience=config.patience,
            allocation=BeamAllocation(config.beam_groups, config.diversity_penalty),
            observe=observe,
        )
        return (yield from search.steps())

    def processors(self, config: SearchConfig, constraints: Sequence[Constraints]) -> list[Processor]:
        """Return the processors that the settings and constraints ask for, to be applied in this order; [] if none.

        constraints: those of each source. Where one has a prefix, it is a single `Prefix`, which applies the others
        after it.
        """
        processors: list[Processor] = []
        if config.min_length:
            processors.append(MinimumLength(config.min_length, EOS))
        if config.no_repeat_ngram:
            processors.append(NoRepeat(config.no_repeat_ngram))
        if self.suppressed:
            processors.append(Suppressed(self.suppressed, self.device))
        if any(constraint.forbidden for constraint in constraints):
            processors.append(Forbidden([constraint.forbidden for constraint in constraints], self.device))
        if any(constraint.tag or constraint.prefix for constraint in constraints):
            tags, prefixes = (
                [constraint.tag for constraint in constraints],
                [constraint.prefix for constraint in constraints],
            )
            return [Prefix(prefixes, self.device, afterwards=processors, tags=tags)]
        return processors


def in_threads(
    search: Callable[[Sequence[int]], list[list[Hypothesis]]], shares: Sequence[Sequence[int]], threads: int
) -> list[list[list[Hypothesis]]]:
    """Return what `search` returns for each share, searched in so many threads; raise what it raises first."""
    if len(shares) == 1:
        return [search(shares[0])]
    pool = ThreadPoolExecutor(threads, thread_name_prefix="search")
    try:
        return list(pool.map(search, shares))
    finally:
        pool.shutdown(cancel_futures=True)


def max_batch_tokens(config: SearchConfig, device: torch.device = torch.device("cpu")) -> int:
    """Return how many source tokens a batch may have on a device, padding included."""
    hypotheses = config.beam if config.temperature is None else 1  # samples: one after the other
    return SEARCH_TOKENS * TIMES_AT_ONCE.get(device.type, 1) // hypotheses


def random_keys(sources: Sequence[Ids], seed: int, number: int, length: int) -> Tensor:
    """Return random numbers (B, length), int64, that depend on source, seed and `number` of the sample alone."""
    bounds = torch.iinfo(torch.int64)
    generators = [np.random.default_rng([seed, number, *ids]) for ids in sources]
    return torch.from_numpy(np.stack([generator.integers(bounds.min, bounds.max, length) for generator in generators]))
