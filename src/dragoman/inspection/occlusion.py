"""Leave source words out, one at a time: a second opinion, since attention is not explanation.

Shapes: U source words, W target words with EOS.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.decoding.forced import Likelihood, score
from dragoman.inspection.inspection import Inspection
from dragoman.model import Model


@dataclass(frozen=True)
class Occlusion:
    """The probability of each target word, with the whole source and without each source word."""

    source: list[str]  # U, without EOS
    target: list[str]  # W
    probability: Tensor  # (W,) of each target word, given the whole source and the target words before it
    without: Tensor  # (U, W): the same without one source word

    @property
    def drop(self) -> Tensor:
        """Return (U, W), from -1 to 1: how much less probable a target word is without a source word."""
        return self.probability - self.without

    @property
    def share(self) -> Tensor:
        """Return (U, W), from -1 to 1: the drop as a share of the larger of both probabilities, 0 where both are 0.

        An improbable word has little to lose, but may lose all of it.
        """
        return self.drop / torch.maximum(self.probability, self.without).clamp(min=1e-30)


AT_ONCE = 16  # sources that are scored between two checks


def occlusion(
    model: Model, inspection: Inspection, *, subwords: bool = False, check: Callable[[], None] = lambda: None
) -> Occlusion:
    """Return the probabilities of the inspected target without each source word, or each subword, in turn.

    model: the one that was inspected; it is run once for each word, and must be in eval mode. check: called every few
    words; what it raises ends the work.
    """
    source, target = inspection.source, inspection.target
    left_out = (source.tokens if subwords else source.words)[:-1]
    words = target.tokens if subwords else target.words
    sources = [source.ids, *(source.ids[: word.tokens.start] + source.ids[word.tokens.stop :] for word in left_out)]
    likelihoods: list[Likelihood] = []
    for start in range(0, len(sources), AT_ONCE):
        check()
        some = sources[start : start + AT_ONCE]
        scores = score(model, some, [[*inspection.target_tag, *target.ids]] * len(some))
        likelihoods += [scored.after(len(inspection.target_tag)) for scored in scores]
    table = torch.tensor(
        [
            [math.exp(math.fsum(likelihood.log_p[position] for position in word.tokens)) for word in words]
            for likelihood in likelihoods
        ]
    )
    return Occlusion([word.label for word in left_out], [word.label for word in words], table[0], table[1:])
