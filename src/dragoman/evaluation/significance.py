"""Estimate how far chance moves a score, and whether two systems really differ: paired bootstrap resampling."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, cast

from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from dragoman.errors import plural
from dragoman.evaluation.metrics import bleu_metric, choose_tokenization, normalise_texts, without_noise

RESAMPLES = 1000  # resampled test sets
MAX_RESAMPLED = 10_000  # sentences; the library holds RESAMPLES times as many rows in memory
LONGEST_FOR_TER = 300  # words; the time of the library grows with the square of them, or faster
FEW = 30  # with fewer sentences, nothing is said about other texts
CHANCE = 0.05  # a difference that comes by chance less often than this is significant


@dataclass(frozen=True)
class Estimate:
    """A score of one system, its confidence interval, and how it compares with the first system."""

    name: str
    value: float
    low: float  # 95 % of the test sets drawn from this one, with repetition, score from here
    high: float  # and up to here
    p: float | None  # how often chance alone makes such a difference to the first system; None: no difference
    signature: str

    def __str__(self) -> str:
        return f"{self.value:.1f} ({self.low:.1f} to {self.high:.1f})"


def estimate_scores(
    systems: Sequence[Sequence[str]], references: Sequence[str], tokenize: str | None = None
) -> list[list[Estimate]]:
    """Return BLEU, chrF and TER of each system with confidence intervals, compared with the first system.

    Paired bootstrap resampling (Koehn 2004) as sacreBLEU does it, but no interval goes beyond what a score can be: the
    library gives it as a mean and a width to both sides, which near 100 or 0 is too wide on one of them. TER is missing
    where `reason_against_ter` gives a reason. tokenize, and what is raised: as for `evaluate`.
    """
    pairs = [normalise_texts(translations, references) for translations in systems]
    systems, references = [translations for translations, _ in pairs], pairs[0][1]
    tokenize = tokenize or choose_tokenization(references)
    metrics: dict[str, Any] = {"BLEU": bleu_metric(tokenize), "chrF2": CHRF()}
    if not reason_against_ter(systems, references):
        metrics["TER"] = TER()
    named: list[tuple[str, Sequence[str]]] = [("", translations) for translations in systems]
    signatures, results = PairedTest(named, metrics, [references], test_type="bs", n_samples=RESAMPLES)()
    estimates: list[list[Estimate]] = [[] for _ in systems]
    for name in metrics:
        of_systems = cast(list[Any], results[name])
        for of_system, result in zip(estimates, of_systems, strict=True):
            # For two systems of the same score the library gives a p-value; they do not differ.
            p = None if result.score == of_systems[0].score else result.p_value
            low = max(0.0, without_noise(result.mean - result.ci))
            high = min(inf if name == "TER" else 100.0, without_noise(result.mean + result.ci))
            of_system.append(Estimate(name, without_noise(result.score), low, high, p, str(signatures[name])))
    return estimates


def reason_against_ter(systems: Sequence[Sequence[str]], references: Sequence[str]) -> str:
    """Return in words why TER is not computed; '' where it is."""
    if any(len(text.split()) > LONGEST_FOR_TER for texts in (references, *systems) for text in texts):
        return f"a sentence has more than {LONGEST_FOR_TER} words"
    if choose_tokenization(references) != "13a":
        return "it counts words, and the references have no spaces between them"
    return ""


def describe_difference(first: Estimate, second: Estimate, sentences: int) -> str:
    """Return one line that says how much better or worse the first system is than the second, and if significantly.

    Significance is judged by `second.p`; where that is None, the line says that there is no difference. Of TER, lower
    is better. With fewer than FEW sentences nothing is said of significance.
    """
    gain = (second.value - first.value) if first.name == "TER" else (first.value - second.value)
    if second.p is None:
        return f"{first.name} {first} against {second}: no difference"
    difference = f"{first.name} {first} against {second}: {abs(gain):.1f} {'better' if gain > 0 else 'worse'}"
    if sentences < FEW:
        few = f"{plural(sentences, 'sentence')} {'is' if sentences == 1 else 'are'} too few"
        return f"{difference}; {few} for a significance test"
    verdict = "significant" if second.p < CHANCE else "not significant"
    return f"{difference}, {verdict} (p = {second.p:.3f})"
