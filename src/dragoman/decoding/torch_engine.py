"""Search with our own models: pack their weights for the CPU, group sources of similar length, and turn settings and
constraints into a search.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids, batches_by_length, source_batch
from dragoman.data.tokenizer import BOS, EOS
from dragoman.decoding.engine import UNCONSTRAINED, Constraints
from dragoman.decoding.ensemble import Ensemble
from dragoman.decoding.processors import Dropped, Forbidden, MinimumLength, NoRepeat, Prefix, Processor
from dragoman.decoding.search import (
    BeamAllocation,
    BeamSearch,
    Hypothesis,
    Observer,
    OutputSpec,
    Sampling,
    Steps,
    finish,
    greedy_search,
    sample,
)
from dragoman.decoding.terms import constrained_search
from dragoman.errors import UsageError
from dragoman.model import Model, Seq2Seq

SEARCH_TOKENS = 16_384  # rows of a batch times its longest source: bounds memory, not results
MIN_BEAMS_WITH_TERMS = 5
PACKED_ROWS = 32  # oneDNN's layout is chosen for so many rows; it serves any number


class TorchEngine:
    """The engine that searches in PyTorch, with one model or an ensemble. See `Engine`."""

    forces_terms = True

    def __init__(self, *models: Model, boundaries: Sequence[tuple[int, int]] = ()):
        """Take models with one vocabulary, on one device; on a CPU, pack copies of their weights.

        The probabilities of several are averaged. boundaries (V, 2): what each token begins and ends with, OPEN, STEM
        or WORD, as `token_boundaries` returns it; () where no terms are searched for.
        """
        fast = [pack_weights(model) for model in models]
        self.model: Seq2Seq = fast[0] if len(fast) == 1 else Ensemble(fast)
        self.boundaries, self.device = boundaries, next(models[0].parameters()).device
        self.max_positions = min(
            (model.config.max_positions for model in models if model.config.max_positions), default=None
        )

    def __repr__(self) -> str:
        return f"native engine on {self.device}"

    def search(
        self,
        sources: Sequence[Ids],
        config: SearchConfig,
        constraints: Sequence[Constraints] | None = None,
        observe: Observer | None = None,
    ) -> list[list[Hypothesis]]:
        """Search as `Engine.search` says; raise UsageError for a glossary together with sampling or groups of beams.

        `observe` is called at each step of a greedy or beam search without terms.
        """
        constraints = constraints or [UNCONSTRAINED] * len(sources)
        hypotheses: dict[int, list[Hypothesis]] = {}
        for with_terms in (False, True):
            rows = [row for row, own in enumerate(constraints) if bool(own.terms) == with_terms]
            for batch in batches_by_length(rows, sources, max_batch_tokens(config)):
                ids, own = [sources[row] for row in batch], [constraints[row] for row in batch]
                hypotheses |= zip(batch, finish(self.search_batch(ids, config, own, observe)), strict=True)
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

        All of them must have terms, or none. dropped: sentences that end when it names them, with results that mean
        nothing. Raise UsageError for terms together with sampling or groups of beams. For `observe`, see `search`.
        """
        source, max_lengths = source_batch(sources).to(self.device), self.max_lengths(sources, config)
        processors = self.processors(config, constraints)
        output = OutputSpec(BOS, EOS, max_lengths.to(self.device), config.length_penalty, processors, dropped)
        if constraints[0].terms:
            if config.temperature is not None or config.beam_groups > 1:
                raise UsageError("terms of a glossary need a plain beam search: no temperature, no groups")
            terms = [own.terms for own in constraints]
            beams = max(config.beam, MIN_BEAMS_WITH_TERMS)
            boundaries = torch.tensor(self.boundaries, device=self.device) if self.boundaries else None
            return (
                yield from constrained_search(
                    self.model, source, terms, output, beams=beams, n_best=config.n_best, boundaries=boundaries
                )
            )
        if config.temperature is not None:
            sampling = Sampling(config.temperature, config.top_k, config.top_p)
            numbers = (random_draws(sources, config.seed, n, int(max_lengths.max())) for n in range(config.n_best))
            samples: list[list[list[Hypothesis]]] = []
            for drawn in numbers:
                samples.append((yield from sample(self.model, source, output, sampling, drawn.to(self.device))))
            return [sorted((h for (h,) in own), key=lambda h: -h.score) for own in zip(*samples, strict=True)]
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

    def max_lengths(self, sources: Sequence[Ids], config: SearchConfig) -> Tensor:
        """Return (B,): how many tokens each output may have, EOS included."""
        lengths = [len(ids) + config.extra_length for ids in sources]
        return torch.tensor([min(length, self.max_positions or length) for length in lengths])

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
        if any(own.forbidden for own in constraints):
            processors.append(Forbidden([own.forbidden for own in constraints], self.device))
        if any(own.prefix for own in constraints):
            return [Prefix([own.prefix for own in constraints], self.device, afterwards=processors)]
        return processors


def max_batch_tokens(config: SearchConfig) -> int:
    """Return how many source tokens a batch may have, padding included."""
    return SEARCH_TOKENS // (config.beam if config.temperature is None else config.n_best)


def random_draws(sources: Sequence[Ids], seed: int, number: int, length: int) -> Tensor:
    """Return random numbers (B, length) from 0 to 1 that depend on source, seed and `number` of the sample alone."""
    rows = [np.random.default_rng([seed, number, *ids]).random(length) for ids in sources]
    return torch.from_numpy(np.stack(rows)).to(torch.get_default_dtype())


class PackedLinear(nn.Module):
    """An nn.Linear with two more copies of its matrix, in oneDNN's own order and transposed. For inference alone."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        with torch.no_grad():
            self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), PACKED_ROWS)
            self.transposed = linear.weight.detach().T.contiguous()

    def forward(self, x: Tensor) -> Tensor:
        """Return x (..., inputs) times the matrix plus the bias: (..., outputs)."""
        if x.dim() == 2 and len(x) == 1:  # one row is bound by memory, and reads this order fastest
            return x @ self.transposed if self.bias is None else torch.addmm(self.bias, x, self.transposed)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def pack_weights(model: Model) -> Model:
    """Return a model with the same weights and packed matrices; the same model where it cannot be packed.

    The packed matrices are copies of the weights as they are now: pack again after changing them.
    """
    if not isinstance(model, nn.Module) or not can_pack(model):
        return model
    shared: dict[int, Any] = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    packed = copy.deepcopy(model, shared)
    for module in list(packed.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, PackedLinear(child))
    return packed


def can_pack(model: nn.Module) -> bool:
    """Return whether this PyTorch has oneDNN's operations, and all weights of the model are float32 on the CPU."""
    ops = all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    fitting = all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in model.parameters())
    return ops and fitting and torch.backends.mkldnn.is_available()
