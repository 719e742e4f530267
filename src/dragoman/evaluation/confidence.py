"""Measure how well the confidence in translations agrees with their chrF against references."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from dragoman.confidence.estimate import Confidence, Reliability
from dragoman.confidence.fit import measure_reliability
from dragoman.translation.translation import Translation

KEPT = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3)  # shares of the translations


@dataclass(frozen=True)
class Kept:
    """What is left when the least sure translations are dropped. chrF2 is the mean of those of the sentences."""

    share: float
    "of the translations that are kept, the surest"
    confidence: float
    "in the least sure of them"
    chrf: float
    oracle: float
    "where the worst ones are dropped, as references tell"


@dataclass(frozen=True)
class Judgement:
    """What references say of the confidence in translations."""

    threshold: float
    reliability: Reliability
    curve: tuple[Kept, ...]

    def __str__(self) -> str:
        rows = [str(self.reliability), "", "confidence in fact  translations"]
        rows += [
            f"{each.confidence:>10.2f} {each.share:>7.2f} {each.translations:>13,}" for each in self.reliability.bins
        ]
        rows += ["", "kept    confidence   chrF2  (dropping the worst)"]
        for each in self.curve:
            rows.append(
                f"{100 * each.share:>3.0f} %   {each.confidence:>10.2f}   {each.chrf:>5.1f}  ({each.oracle:.1f})"
            )
        return "\n".join([f"confidence that chrF2 is at least {self.threshold:g}: {rows[0]}", *rows[1:]])


def judge_confidence(
    translations: Sequence[Translation], references: Sequence[str], confidence: Confidence
) -> Judgement:
    """Return what references say of translations; those that nothing was searched for are left out."""
    judged = [
        (each.confidence, CHRF().sentence_score(each.text, [reference]).score)
        for each, reference in zip(translations, references, strict=True)
        if each.confidence is not None
    ]
    sure, chrf = np.array(judged, float).reshape(-1, 2).T
    surest, best = chrf[(-sure).argsort(kind="stable")], -np.sort(-chrf)
    order, curve = -np.sort(-sure), []
    for share in KEPT:
        count = max(1, round(share * len(chrf)))
        means = (float(values[:count].mean()) for values in (surest, best))
        curve.append(Kept(share, float(order[count - 1]), *means))
    reliability = measure_reliability(sure, sure, chrf, confidence.threshold)
    return Judgement(confidence.threshold, reliability, tuple(curve))
