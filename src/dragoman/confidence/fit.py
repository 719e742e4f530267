"""Fit a confidence to translations whose chrF is known, and say by cross-validation how good the fit is.

Shapes: N translations, F features.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dragoman.confidence.estimate import LEAST_LOG_P, Bin, Confidence, Reliability
from dragoman.confidence.features import SIGNS, Features

Floats = NDArray[np.float64]

FOLDS, BINS = 10, 10
RIDGE = 10.0  # as if so many translations had the mean chrF whatever their features
DISTORTED = 0.1  # how much translations of distorted sources count, of what those of plain ones do
LEAST_SHARE = 0.01  # of held-out translations are below `lowest`
NEWTON_STEPS = 20
WORST = 0.25  # of the translations, which AUC tells from the others


def fit_confidence(
    features: Sequence[Features], chrf: Sequence[float], pair: Sequence[int], threshold: float, words: str = ""
) -> Confidence:
    """Return a confidence that fits translations of held-out pairs.

    features, chrf: of each of N translations; pair: the number of its pair, and -1 - that number where its source was
    distorted, so that there is something to be unsure of; words: see `Confidence`.
    """
    x, y, number = np.array(features, float), np.array(chrf, float), np.array(pair)
    plain = number >= 0
    counts = np.where(plain, 1.0, DISTORTED * plain.sum() / max(1, (~plain).sum()))
    weights, offset, limits = fit_weights(x, y, counts)
    crossed = np.zeros(len(y))
    fold = np.where(plain, number, -1 - number) % FOLDS
    for each in np.unique(fold):
        learned, held = fold != each, fold == each
        crossed[held] = predict(x[held], *fit_weights(x[learned], y[learned], counts[learned]))
    reached = (y >= threshold).astype(float)
    judged = np.zeros(len(y))
    for each in np.unique(fold):
        learned, held = fold != each, fold == each
        judged[held] = np.interp(crossed[held], *rising_curve(crossed[learned], reached[learned], counts[learned]))
    expected, confidence = rising_curve(crossed, reached, counts)
    return Confidence(
        threshold,
        round(offset, 6),
        Features(*np.round(weights, 6).tolist()),
        Features(*np.round(limits, 6).tolist()),
        tuple(expected.tolist()),
        tuple(confidence.tolist()),
        round(float(np.quantile(crossed[plain], LEAST_SHARE)), 4),
        measure_reliability(judged[plain], crossed[plain], y[plain], threshold),
        words=words,
    )


def fit_words(log_p: Sequence[float], confidence: Sequence[float], good: Sequence[bool]) -> tuple[float, float, float]:
    """Return the offset and the two weights of a logistic regression of whether W words stand in a good place.

    log_p: of each word, in nats; confidence: in its text. Newton's method, with a little ridge.
    """
    x = np.column_stack([np.ones(len(good)), np.maximum(log_p, LEAST_LOG_P), confidence])
    weights = np.zeros(3)
    for _ in range(NEWTON_STEPS):
        p = 1 / (1 + np.exp(-x @ weights))
        curvature = (x.T * (p * (1 - p))) @ x + np.eye(3)
        weights += np.linalg.solve(curvature, x.T @ (np.array(good, float) - p) - weights)
    offset, of_word, of_text = weights.round(4).tolist()
    return offset, of_word, of_text


def unfitted(words: str = "") -> Confidence:
    """Return a confidence that knows nothing, with which the features of translations are measured."""
    zero = Features(*(0.0 for _ in SIGNS))
    return Confidence(0.0, 0.0, zero, zero, (0.0,), (0.0,), -math.inf, Reliability(0, 0.5, 0.0, 0.0, ()), words=words)


def fit_weights(x: Floats, y: Floats, counts: Floats) -> tuple[Floats, float, Floats]:
    """Return the weights (F,), the offset and the limits (F,) that predict y (N,) from x (N, F), by ridge regression.

    counts (N,): how much each translation counts. No weight has another sign than SIGNS says: features that would get
    one are left out, the worst first, so that a translation with more unknown words is never thought to be better for
    them.
    """
    signs = np.array(SIGNS, float)
    limits = signs * np.quantile(signs * x, 0.99, axis=0)
    x = limited(x, limits)
    mean, middle = np.average(x, 0, counts), np.average(y, weights=counts)
    deviation = np.sqrt(np.average((x - mean) ** 2, 0, counts))
    scaled = (x - mean) / np.where(deviation > 0, deviation, 1)
    chosen, weights = deviation > 0, np.zeros(x.shape[1])
    while chosen.any():
        columns = scaled[:, chosen]
        counted = columns.T * counts
        solved = np.linalg.solve(counted @ columns + RIDGE * np.eye(chosen.sum()), counted @ (y - middle))
        weights = np.zeros(x.shape[1])
        weights[chosen] = solved
        if (weights * signs).min() >= 0:
            break
        chosen[(weights * signs).argmin()] = False
        weights = np.zeros(x.shape[1])
    weights = weights / np.where(deviation > 0, deviation, 1)
    return weights, float(middle - weights @ mean), limits


def predict(x: Floats, weights: Floats, offset: float, limits: Floats) -> Floats:
    """Return the expected chrF (N,) of translations with the features x (N, F), as `Confidence.expect` does."""
    return limited(x, limits) @ weights + offset


def limited(x: Floats, limits: Floats) -> Floats:
    """Return the features x (N, F), none of them better than the limits (F,)."""
    signs = np.array(SIGNS, float)
    return signs * np.minimum(signs * x, signs * limits)


def rising_curve(x: Floats, reached: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Return the knots of the rising curve through `reached` (N,), 0 or 1 each, over x (N,): isotonic regression.

    Neighbours in x are joined to blocks until the mean rises from each block to the next (pool adjacent violators).
    counts (N,): how much each counts.
    """
    order = x.argsort(kind="stable")
    blocks: list[list[float]] = []  # how much counts, its sum of `reached` and of x
    for index in order:
        blocks.append([counts[index], counts[index] * reached[index], counts[index] * x[index]])
        while len(blocks) > 1 and blocks[-2][1] * blocks[-1][0] >= blocks[-1][1] * blocks[-2][0]:
            last = blocks.pop()
            blocks[-1] = [mine + other for mine, other in zip(blocks[-1], last, strict=True)]
    total, sums, places = np.array(blocks).T
    centre = np.round(places / total, 4)
    height = (sums + 0.5) / (total + 1)  # nothing is certain
    height = np.round(np.maximum.accumulate(height), 4)
    kept = np.append(np.diff(centre) > 0, True)
    return centre[kept], height[kept]


def measure_reliability(confidence: Floats, expected: Floats, chrf: Floats, threshold: float) -> Reliability:
    """Return what the confidence (N,) in translations says of their chrF (N,); expected (N,): chrF."""
    reached = chrf >= threshold
    bins = [
        Bin(round(float(confidence[part].mean()), 4), round(float(reached[part].mean()), 4), len(part))
        for part in np.array_split(confidence.argsort(kind="stable"), BINS)
        if len(part)
    ]
    error = sum(each.translations * abs(each.confidence - each.share) for each in bins) / max(1, len(chrf))
    best = chrf.max(initial=0.0)
    worst = np.quantile(chrf, WORST)
    good = chrf > worst if worst < best else chrf == best  # of good models, most translations are perfect
    auc = area_under_curve(expected, good)
    half_width = min(0.5, 1.96 * auc_deviation(auc, good))
    return Reliability(len(chrf), round(auc, 4), round(half_width, 4), round(error, 4), tuple(bins))


def area_under_curve(score: Floats, good: NDArray[np.bool_]) -> float:
    """Return how often a good one of N has a higher score than another one, ties half; 0.5 without both."""
    worse, better = np.sort(score[~good]), score[good]
    if not len(worse) or not len(better):
        return 0.5
    below, not_above = (np.searchsorted(worse, better, side) for side in ("left", "right"))
    return float((below + not_above).mean() / 2 / len(worse))


def auc_deviation(auc: float, good: NDArray[np.bool_]) -> float:
    """Return the standard deviation of an area under the curve (Hanley and McNeil 1982)."""
    better, worse = int(good.sum()), int((~good).sum())
    first, second = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = auc * (1 - auc) + (better - 1) * (first - auc**2) + (worse - 1) * (second - auc**2)
    return math.sqrt(max(0.0, variance) / max(1, better * worse))
