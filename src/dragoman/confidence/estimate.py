"""Turn the features of a translation into a confidence, as the record in a model folder says."""

import json
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from dragoman.confidence.features import SIGNS, Features
from dragoman.errors import plural
from dragoman.storage.records import read_record
from dragoman.text.word_forms import WordForms

BAR = 20  # characters
LEAST_LOG_P = -10.0  # nats; a word may have less, which says no more of it


class Bin(NamedTuple):
    """A bar of the reliability diagram: translations of about the same confidence."""

    confidence: float  # their mean
    share: float  # of them that reached the threshold
    translations: int


@dataclass(frozen=True)
class Reliability:
    """What cross-validation says of a fit: each translation was judged by a fit that had not seen it."""

    pairs: int
    auc: float
    "how often, of a translation in the worst quarter and another one, the fit is less sure of the former"
    auc_error: float
    "half the width of its 95 % interval"
    calibration_error: float
    "mean distance between confidence and share, as in `bins`"
    bins: tuple[Bin, ...]

    def __str__(self) -> str:
        return (
            f"AUC {self.auc:.2f} ± {self.auc_error:.2f}, calibration error {self.calibration_error:.2f} "
            f"({plural(self.pairs, 'pair')})"
        )


class Estimate(NamedTuple):
    """What to expect of a translation: its chrF, and the probability that it reaches the threshold."""

    chrf: float
    confidence: float


@dataclass(frozen=True)
class Confidence:
    """Say how sure a translation is: the probability that its chrF against a reference would reach the threshold."""

    RECORD: ClassVar = "confidence.json"  # in a model folder

    threshold: float
    "chrF, from 0 to 100"
    offset: float
    weights: Features
    "of the features, for the expected chrF"
    limits: Features
    "no feature counts for better than this"
    expected: tuple[float, ...]
    "rising values of the expected chrF ..."
    confidence: tuple[float, ...]
    "... and the confidence at each; between them, it rises evenly"
    lowest: float
    "expected chrF that 99 of 100 translations of held-out sentences exceed"
    reliability: Reliability
    word: tuple[float, float, float] = (0.0, 0.0, 0.0)
    "logistic regression for a word: offset, weight of its log-probability, weight of the confidence in the text"
    words: str = ""
    "those of the training targets, see `text.word_forms`"

    @cached_property
    def forms(self) -> WordForms | None:
        """The words of the training targets, with what can be formed of them; None where nobody knows."""
        return WordForms.unpack(self.words) if self.words else None

    def expect(self, features: Features) -> float:
        """Return the chrF to expect of a translation."""
        clipped = (
            sign * min(sign * value, sign * limit)
            for value, limit, sign in zip(features, self.limits, SIGNS, strict=True)
        )
        return self.offset + sum(weight * value for weight, value in zip(self.weights, clipped, strict=True))

    def judge(self, expected: float) -> float:
        """Return the confidence, from 0 to 1, in a translation with this expected chrF."""
        after = bisect_right(self.expected, expected)
        if after in (0, len(self.expected)):
            return self.confidence[min(after, len(self.expected) - 1)]
        (low, high), (least, most) = (pair[after - 1 : after + 1] for pair in (self.expected, self.confidence))
        return least + (most - least) * (expected - low) / (high - low)

    def judge_word(self, log_p: float, confidence: float | None) -> float:
        """Return the probability that a word stands in a good place; confidence: in its text, None for a copy."""
        offset, of_word, of_text = self.word
        logit = offset + of_word * max(log_p, LEAST_LOG_P) + of_text * (1.0 if confidence is None else confidence)
        return 1 / (1 + math.exp(-logit))

    def __str__(self) -> str:
        rows = [
            f"that chrF is at least {self.threshold:g}: {self.reliability}",
            f"{'':<22} {'confidence':>11}  in fact",
        ]
        for each in self.reliability.bins:
            bar = "█" * round(BAR * each.share)
            rows.append(f"{'':<22} {each.confidence:>11.2f}  {each.share:.2f} {bar}")
        return "\n".join(rows)

    def as_dict(self) -> dict[str, Any]:
        """Return what `dragoman info` says of it, as an object of JSON."""
        return {"threshold": self.threshold, **asdict(self.reliability)}

    def as_json(self) -> str:
        """Return the record as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def load(cls, folder: Path) -> "Confidence | None":
        """Read the record of a folder, None without one. Raise DragomanError where the file is no such record."""

        def make(record: Any) -> Confidence:
            try:
                return parse(record)
            except (LookupError, OverflowError):
                raise ValueError from None

        return read_record(folder / cls.RECORD, "a record of confidence", make)


def parse(record: Any) -> Confidence:
    """Return what a record in JSON says. Raise ValueError, TypeError or KeyError where it is none."""
    report = record["reliability"]
    auc, auc_error, error = finite([report[name] for name in ("auc", "auc_error", "calibration_error")])
    bins = tuple(Bin(float(mean), float(share), int(count)) for mean, share, count in map(finite, report["bins"]))
    threshold, offset, lowest = finite([record[name] for name in ("threshold", "offset", "lowest")])
    weights, limits = (Features(*finite(record[name])) for name in ("weights", "limits"))
    expected, confidence = (tuple(finite(record[name])) for name in ("expected", "confidence"))
    words = record["words"]
    rising = list(expected) == sorted(set(expected)) and list(confidence) == sorted(confidence)
    if not (expected and rising and len(expected) == len(confidence)):
        raise ValueError
    if not (confidence[0] >= 0 and confidence[-1] <= 1 and isinstance(words, str)):
        raise ValueError
    reliability = Reliability(int(report["pairs"]), auc, auc_error, error, bins)
    offset_of_word, of_word, of_text = finite(record["word"])
    word = offset_of_word, min(max(of_word, -50.0), 50.0), of_text
    parsed = Confidence(threshold, offset, weights, limits, expected, confidence, lowest, reliability, word, words)
    parsed.forms  # noqa: B018  # raises where the words are none
    return parsed


def finite(values: Sequence[Any]) -> list[float]:
    """Return numbers of JSON as floats. Raise ValueError or TypeError where one is none, or infinite."""
    if not isinstance(values, list) or not all(
        type(value) in (int, float) and math.isfinite(value) for value in values
    ):
        raise ValueError
    return [float(value) for value in values]
