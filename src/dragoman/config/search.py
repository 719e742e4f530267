"""Settings of the search for translations."""

from dataclasses import dataclass
from typing import Annotated, Literal

from dragoman.config.fields import MAX_BEAMS, MAX_SIZE, above, at_least, at_most, check_fields, short_repr
from dragoman.errors import UsageError

Split = Literal["sentences", "long", "none"]
EngineName = Literal["native", "ctranslate2"]
ComputeType = Literal["auto", "float32", "bfloat16", "int8"]  # what an engine multiplies in
MAX_PENALTY = 10.0  # the paper has 0.6
MAX_COST = 1000  # nats: it rules a token out


@dataclass(frozen=True)
class SearchConfig:
    """Describe how translations are searched for, section 6.1.

    Each field is a flag of `dragoman translate`; `dragoman translate --help` explains them all.
    """

    beam: Annotated[int, at_least(1), at_most(MAX_BEAMS)] = 4
    "beam size; 1 is greedy search"
    length_penalty: Annotated[float, at_least(-MAX_PENALTY), at_most(MAX_PENALTY)] = 0.6
    "alpha: divide log-probabilities by ((5 + length) / 6) ^ alpha; 0 favours short output"
    coverage_penalty: Annotated[float, at_least(0), at_most(MAX_COST)] = 0.0
    "beta: prefer finished hypotheses that attended to every source token; try 0.2"
    extra_length: Annotated[int, at_least(1), at_most(MAX_SIZE)] = 50
    "maximum length of the output: this many tokens more than the source; a given beginning does not count"
    min_length: Annotated[int, at_least(0), at_most(MAX_SIZE)] = 0
    "minimum length of the output, in tokens"
    n_best: Annotated[int, at_least(1), at_most(MAX_BEAMS)] = 1
    "number of translations per text, at most as many as beams"
    patience: Annotated[float, at_least(0.001), at_most(MAX_BEAMS)] | None = None
    "stop after patience * beam hypotheses are finished; default: when no unfinished one can overtake the best"
    no_repeat_ngram: Annotated[int, at_least(0), at_most(MAX_SIZE)] = 0
    "do not repeat any sequence of this many tokens; 0: no limit"
    beam_groups: Annotated[int, at_least(1)] = 1
    "diverse beam search: split the beams into groups that avoid each other's tokens"
    diversity_penalty: Annotated[float, at_least(0), at_most(MAX_COST)] = 0.5
    "with groups of beams: penalty in nats for each hypothesis of an earlier group that chose the same token"
    temperature: Annotated[float, at_least(0.001), at_most(100.0)] | None = None
    "sample tokens instead of searching, with probabilities raised to the power 1 / temperature"
    top_k: Annotated[int, at_least(1)] | None = None
    "with a temperature: sample from this many of the most probable tokens"
    top_p: Annotated[float, above(0), at_most(1)] = 1.0
    "with a temperature: sample from the fewest tokens that together have this probability"
    seed: Annotated[int, at_least(0)] = 1
    "with a temperature: seed for sampling; the same seed gives the same translation of the same text"

    split: Split = "sentences"
    "sentences: segments of as many sentences as training sources had; long: split only longer texts; none: never split"

    __repr__ = short_repr

    def __post_init__(self) -> None:
        check_fields(self)
        if self.coverage_penalty and (self.beam == 1 or self.temperature is not None):
            raise UsageError("coverage_penalty needs a search with several beams")
        if self.temperature is None:
            if self.n_best > self.beam:
                raise UsageError(f"n_best {self.n_best} needs a beam of at least {self.n_best}, not {self.beam}")
            if self.top_k is not None or self.top_p != 1:
                raise UsageError("top_k and top_p are for sampling: choose a temperature, such as 1")
        if self.beam_groups == 1 and self.diversity_penalty != SearchConfig.diversity_penalty:
            raise UsageError("diversity_penalty is for groups of hypotheses: choose beam_groups, such as 2")
        if self.beam % self.beam_groups:
            raise UsageError(f"beam {self.beam} cannot be divided evenly into beam_groups {self.beam_groups}")
