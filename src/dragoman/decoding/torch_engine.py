"""The search with our own models: sources of similar length go together, in the way that the settings ask for."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids, source_batch
from dragoman.data.tokenizer import BOS, EOS
from dragoman.decoding.engine import UNCONSTRAINED, Constraints, batches
from dragoman.decoding.ensemble import Ensemble
from dragoman.decoding.onednn import pack_weights
from dragoman.decoding.processors import Forbidden, MinimumLength, NoRepeat, Prefix, Processor
from dragoman.decoding.search import Hypothesis, Sampling, beam_search, greedy_search, sample
from dragoman.decoding.terms import constrained_search
from dragoman.errors import UsageError
from dragoman.model import Model, Seq2Seq

# Rows of a batch times its longest source: bounds memory, not results.
SEARCH_TOKENS = 16_384
LEAST_BEAMS = 5  # of a search that has to bring in terms


class TorchEngine:
    """See `Engine`."""

    def __init__(self, *models: Model, edges: Sequence[tuple[int, int]] = ()):
        """One model, or an ensemble. edges: what each token begins and ends with, as `constrained_search` asks."""
        fast = [pack_weights(model) for model in models]
        self.model: Seq2Seq = fast[0] if len(fast) == 1 else Ensemble(fast)
        self.edges, self.device = edges, next(models[0].parameters()).device
        self.max_positions = min(
            (model.config.max_positions for model in models if model.config.max_positions), default=None
        )

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        constraints = constraints or [UNCONSTRAINED] * len(sources)
        found: dict[int, list[Hypothesis]] = {}
        places = SEARCH_TOKENS // (config.beam if config.temperature is None else config.n_best)
        for with_terms in (False, True):
            rows = [row for row, demand in enumerate(constraints) if bool(demand.terms) == with_terms]
            for batch in batches(rows, sources, places):
                ids, wishes = [sources[row] for row in batch], [constraints[row] for row in batch]
                found |= zip(batch, self.search_batch(ids, config, wishes), strict=True)
        return [found[row] for row in range(len(sources))]

    def search_batch(
        self, sources: list[Ids], config: SearchConfig, constraints: list[Constraints]
    ) -> list[list[Hypothesis]]:
        """All of them with terms, or none."""
        device = self.device
        source, limits = source_batch(sources).to(device), self.limits(sources, config).to(device)
        rules, alpha = self.rules(config, constraints, device), config.length_penalty
        if constraints[0].terms:
            if config.temperature is not None or config.beam_groups > 1:
                raise UsageError("terms of a glossary need a plain beam search: no temperature, no groups")
            return constrained_search(
                self.model,
                source,
                [demand.terms for demand in constraints],
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
            groups=config.beam_groups,
            diversity=config.diversity_penalty,
            rules=rules,
        )

    def limits(self, sources: list[Ids], config: SearchConfig) -> Tensor:
        """Tokens that each output may have, end included."""
        most = self.max_positions
        lengths = [len(ids) + config.extra_length for ids in sources]
        return torch.tensor([min(length, most or length) for length in lengths])

    @staticmethod
    def rules(config: SearchConfig, constraints: list[Constraints], device: torch.device) -> list[Processor]:
        rules: list[Processor] = []
        if config.min_length:
            rules.append(MinimumLength(config.min_length, EOS))
        if config.no_repeat_ngram:
            rules.append(NoRepeat(config.no_repeat_ngram))
        if any(demand.forbidden for demand in constraints):
            rules.append(Forbidden([demand.forbidden for demand in constraints], device))
        if any(demand.prefix for demand in constraints):
            return [Prefix([demand.prefix for demand in constraints], device, behind=rules)]
        return rules


def draws(sources: Sequence[Ids], seed: int, number: int, longest: int) -> Tensor:
    """(B, longest) numbers from 0 to 1: the text, the seed and which sample it is decide, and nothing else."""
    rows = [np.random.default_rng([seed, number, *ids]).random(longest) for ids in sources]
    return torch.from_numpy(np.stack(rows)).to(torch.get_default_dtype())
