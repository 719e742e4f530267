"""The search with our own models: sources of similar length go together, in the way that the settings ask for."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dragoman.batches import Ids, source_batch
from dragoman.config import SearchConfig
from dragoman.decoding.constrained import constrained_search
from dragoman.decoding.engine import FREE, Demands, batches
from dragoman.decoding.ensemble import Ensemble
from dragoman.decoding.packed import packed
from dragoman.decoding.rules import Forbidden, MinimumLength, NoRepeat, Prefix, Rule
from dragoman.decoding.search import Hypothesis, Sampling, beam_search, greedy_search, sample
from dragoman.errors import UsageError
from dragoman.model import Model, Seq2Seq
from dragoman.tokenizer import BOS, EOS

# Rows of a batch times its longest source: bounds memory, not results.
SEARCH_TOKENS = 16_384
LEAST_BEAMS = 5  # of a search that has to bring in terms


class Native:
    """See `Engine`."""

    def __init__(self, *models: Model, edges: Sequence[tuple[int, int]] = ()):
        """One model, or an ensemble. edges: what each token begins and ends with, as `constrained_search` asks."""
        fast = [packed(model) for model in models]
        self.model: Seq2Seq = fast[0] if len(fast) == 1 else Ensemble(fast)
        self.edges, self.device = edges, next(models[0].parameters()).device
        self.longest = min((model.config.longest for model in models if model.config.longest), default=None)

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, demands: Sequence[Demands] | None = None
    ) -> list[list[Hypothesis]]:
        demands = demands or [FREE] * len(sources)
        found: dict[int, list[Hypothesis]] = {}
        places = SEARCH_TOKENS // (config.beam if config.temperature is None else config.n_best)
        for with_terms in (False, True):
            rows = [row for row, demand in enumerate(demands) if bool(demand.terms) == with_terms]
            for batch in batches(rows, sources, places):
                ids, wishes = [sources[row] for row in batch], [demands[row] for row in batch]
                found |= zip(batch, self.search_batch(ids, config, wishes), strict=True)
        return [found[row] for row in range(len(sources))]

    def search_batch(self, sources: list[Ids], config: SearchConfig, demands: list[Demands]) -> list[list[Hypothesis]]:
        """All of them with terms, or none."""
        device = self.device
        source, limits = source_batch(sources).to(device), self.limits(sources, config).to(device)
        rules, alpha = self.rules(config, demands, device), config.length_penalty
        if demands[0].terms:
            if config.temperature is not None or config.groups > 1:
                raise UsageError("terms of a glossary need a plain beam search: no temperature, no groups")
            return constrained_search(
                self.model,
                source,
                [demand.terms for demand in demands],
                beams=max(config.beam, LEAST_BEAMS),
                n_best=config.n_best,
                alpha=alpha,
                bos=BOS,
                eos=EOS,
                max_lengths=limits,
                rules=rules,
                edges=torch.tensor(self.edges, device=device) if self.edges else None,
            )
        if config.temperature is not None:
            samples = [
                sample(
                    self.model,
                    source,
                    Sampling(config.temperature, config.top_k, config.top_p),
                    draws(sources, config.seed, number, int(limits.max())).to(device),
                    bos=BOS,
                    eos=EOS,
                    max_lengths=limits,
                    alpha=alpha,
                    rules=rules,
                )
                for number in range(config.n_best)
            ]
            return [sorted(found, key=lambda h: -h.score) for found in zip(*samples, strict=True)]
        if config.beam == 1:
            found = greedy_search(self.model, source, bos=BOS, eos=EOS, max_lengths=limits, alpha=alpha, rules=rules)
            return [[hypothesis] for hypothesis in found]
        return beam_search(
            self.model,
            source,
            beams=config.beam,
            alpha=alpha,
            bos=BOS,
            eos=EOS,
            max_lengths=limits,
            n_best=config.n_best,
            patience=config.patience,
            groups=config.groups,
            diversity=config.diversity,
            rules=rules,
        )

    def limits(self, sources: list[Ids], config: SearchConfig) -> Tensor:
        """Tokens that each output may have, end included."""
        most = self.longest
        lengths = [len(ids) + config.extra_length for ids in sources]
        return torch.tensor([min(length, most or length) for length in lengths])

    @staticmethod
    def rules(config: SearchConfig, demands: list[Demands], device: torch.device) -> list[Rule]:
        rules: list[Rule] = []
        if config.min_length:
            rules.append(MinimumLength(config.min_length, EOS))
        if config.no_repeat:
            rules.append(NoRepeat(config.no_repeat))
        if any(demand.forbidden for demand in demands):
            rules.append(Forbidden([demand.forbidden for demand in demands], device))
        if any(demand.prefix for demand in demands):
            return [Prefix([demand.prefix for demand in demands], device, behind=rules)]
        return rules


def draws(sources: Sequence[Ids], seed: int, number: int, longest: int) -> Tensor:
    """(B, longest) numbers from 0 to 1: the text, the seed and which sample it is decide, and nothing else."""
    rows = [np.random.default_rng([seed, number, *ids]).random(longest) for ids in sources]
    return torch.from_numpy(np.stack(rows)).to(torch.get_default_dtype())
