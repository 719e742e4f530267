"""Say what twice the pairs would bring: small models learn from parts of the pairs, and their curve is continued.

The parts are an eighth, a quarter, a half and all, each within the next, and all models learn for as many updates, so
that only the pairs differ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from pathlib import Path
from random import Random
from statistics import mean

from dragoman.config import SearchConfig, TrainingConfig
from dragoman.data.corpus import Pair
from dragoman.errors import UsageError
from dragoman.evaluation.metrics import bleu_metric, choose_tokenization, normalise_texts
from dragoman.inspection.plots.training import read_metrics
from dragoman.runtime.threads import granted_cores
from dragoman.synthesis.side_by_side import side_by_side
from dragoman.synthesis.small_model import FEWEST, train_small
from dragoman.translation.translator import Translator

PARTS = (8, 4, 2, 1)  # the whole by these
GROUPS = 20  # of dev pairs, each of which is left out once, to see how far chance moves a score
DEVIATIONS = 1.64  # standard errors on each side: nine of ten
MOST_LOST = 1.0  # BLEU, by more pairs, each of which is then seen less often
VALIDATIONS = 8  # of a training; the best one counts, since small parts are learned by heart
Scores = list[float]  # BLEU of each part


@dataclass(frozen=True)
class Forecast:
    """The BLEU of models that learned from more and more pairs, and what twice as many would give."""

    pairs: list[int]
    scores: Scores
    low: float
    high: float
    late: float
    "BLEU that the model of all pairs gained in the last eighth of its steps"

    @property
    def doubled(self) -> int:
        """Return the number of pairs that the range is for."""
        return 2 * self.pairs[-1]


def parts_of(pairs: Sequence[Pair], seed: int = 1) -> list[list[Pair]]:
    """Return the parts by which the curve is drawn, the smallest first, each with all pairs of those before it."""
    shuffled = Random(seed).sample(pairs, len(pairs))
    return [shuffled[: len(pairs) // part] for part in PARTS]


def next_gain(scores: Scores) -> tuple[float, float]:
    """Return the least and the most that the next doubling gains.

    The most is what the last one gained. The least is less by as much as that was less than the one before, but loses
    MOST_LOST at most.
    """
    before, last = [after - before for before, after in pairwise(scores)][-2:]
    least = last - max(before - last, 0.0)
    return max(least, min(last, 0.0) - MOST_LOST), last


def forecast_scores(systems: Sequence[Sequence[str]], references: Sequence[str]) -> tuple[Scores, float, float]:
    """Return the BLEU of each system, and the lowest and highest that the next one is expected to have.

    systems: translations of the dev pairs, by models of more and more pairs. The range is that of `next_gain`, widened
    by how far a gain moves with the dev pairs (jackknife, a twentieth of them left out at a time).
    """
    normal = [normalise_texts(translations, references) for translations in systems]
    metric = bleu_metric(choose_tokenization(references))

    def scores(rows: Sequence[int]) -> Scores:
        return [
            metric.corpus_score([texts[row] for row in rows], [[references[row] for row in rows]]).score
            for texts, references in normal
        ]

    rows = range(len(references))
    without = [next_gain(scores([row for row in rows if row % GROUPS != group])) for group in range(GROUPS)]
    errors = [
        sqrt(sum((gain - mean(gains)) ** 2 for gain in gains) * (GROUPS - 1) / GROUPS)
        for gains in zip(*without, strict=True)
    ]
    whole = scores(rows)
    least, most = next_gain(whole)
    low, high = whole[-1] + least - DEVIATIONS * errors[0], whole[-1] + most + DEVIATIONS * errors[1]
    return whole, max(low, 0.0), min(high, 100.0)


def forecast(
    pairs: Sequence[Pair],
    dev: Sequence[Pair],
    place: Path,
    settings: TrainingConfig,
    announce: Callable[[str], None] = lambda text: None,
) -> Forecast:
    """Train a small model on each part of the pairs, in the folder `place`, and continue their curve.

    settings: of each training. Raise UsageError where the smallest part has fewer than FEWEST pairs, or dev fewer than
    GROUPS.
    """
    for count, fewest, kind in ((len(pairs), FEWEST * PARTS[0], "pairs"), (len(dev), GROUPS, "dev pairs")):
        if count < fewest:
            raise UsageError(f"{count:,} {kind} are too few for a forecast; {fewest:,} are the fewest")
    parts = parts_of(pairs, settings.seed)
    jobs = [(part, dev, place / str(number), settings) for number, part in enumerate(parts)]

    def begin(number: int) -> None:
        announce(f"model {number + 1} of {len(parts)} learns {len(parts[number]):,} pairs")

    threads = min(settings.threads or granted_cores(), granted_cores())
    translations = side_by_side(learn_and_translate, jobs, threads, begin)
    scores, low, high = forecast_scores(translations, [target for _, target in dev])
    return Forecast([len(part) for part in parts], scores, low, high, late_gain(place / str(len(parts) - 1)))


def late_gain(run: Path) -> float:
    """Return the BLEU that a run gained between its last two validations; 0 for a run of only one."""
    scores = [bleu for _, bleu in read_metrics(run).points("validation", "step", "bleu")]
    return scores[-1] - scores[-2] if len(scores) > 1 else 0.0


def learn_and_translate(pairs: Sequence[Pair], dev: Sequence[Pair], run: Path, settings: TrainingConfig) -> list[str]:
    """Return the translations of dev pairs by a small model that learns from pairs, in a folder of its own."""
    translator = Translator.load(train_small(pairs, dev, run, settings), SearchConfig(beam=1))
    return [each.text for each in translator.translate([source for source, _ in dev])]
