"""Fitting a confidence to translations whose chrF is known."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from dragoman.confidence.estimate import Confidence, parse
from dragoman.confidence.features import SIGNS, Features, measure
from dragoman.confidence.fit import (
    area_under_curve,
    fit_confidence,
    fit_weights,
    fit_words,
    measure_reliability,
    predict,
    rising_curve,
)
from dragoman.errors import DragomanError
from dragoman.model_folder import add_record
from dragoman.storage.writing import MANIFEST
from dragoman.text.known_words import KnownWords
from dragoman.text.word_forms import WordForms

TRUTH = np.array([30.0, 10.0, 8.0, -20.0, -15.0, 0.0, -5.0, -4.0])


def drawn(count: int, seed: int = 1, noise: float = 10.0) -> tuple[np.ndarray, np.ndarray]:
    """Features of translations, and their chrF: a weighted sum of them, and chance."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, len(SIGNS))) * 0.3
    return x, (50 + x @ TRUTH + random.normal(size=count) * noise).clip(0, 100)


def fitted(count: int = 600, seed: int = 1, threshold: float = 50.0) -> Confidence:
    x, y = drawn(count, seed)
    return fit_confidence([Features(*row) for row in x.tolist()], y.tolist(), range(count), threshold)


def test_confidence_is_the_share_that_reaches_the_threshold():
    x, y = drawn(4000, seed=2)
    for threshold in (40.0, 60.0):
        confidence = fitted(threshold=threshold)
        sure = np.array([confidence.judge(confidence.expect(Features(*row))) for row in x.tolist()])
        for part in np.array_split(sure.argsort(), 5):
            assert sure[part].mean() == pytest.approx((y[part] >= threshold).mean(), abs=0.08)


def test_confidence_in_chance_is_the_same_for_all():
    """The control: where features say nothing, neither does the fit."""
    x, y = drawn(600)
    shuffled = np.random.default_rng(3).permutation(y)
    confidence = fit_confidence([Features(*row) for row in x.tolist()], shuffled.tolist(), range(600), 50.0)
    assert abs(confidence.reliability.auc - 0.5) < confidence.reliability.auc_error + 0.05
    assert fitted().reliability.auc > 0.8
    assert confidence.reliability.bins[-1].confidence < 0.7  # it is sure of none


def test_expectation_of_a_record_is_that_of_the_fit():
    x, y = drawn(300)
    weights, offset, limits = fit_weights(x, y, np.ones(300))
    confidence = replace(fitted(), weights=Features(*weights), offset=offset, limits=Features(*limits))
    expected = [confidence.expect(Features(*row)) for row in x.tolist()]
    assert np.allclose(expected, predict(x, weights, offset, limits))


def test_weights_have_the_signs_that_are_known():
    x, y = drawn(600)
    weights, _, _ = fit_weights(x, y, np.ones(600))
    assert np.allclose(weights, TRUTH, atol=5)
    for feature, sign in enumerate(SIGNS):
        wrong = y - 2 * TRUTH[feature] * x[:, feature] - 30 * sign * x[:, feature]  # now it counts against its sign
        refused, _, _ = fit_weights(x, wrong, np.ones(600))
        assert refused[feature] == 0
        assert (refused * np.array(SIGNS) >= 0).all()


def test_weights_count_what_counts():
    x, y = drawn(400)
    twice = fit_weights(np.vstack([x, x[:100]]), np.append(y, y[:100]), np.ones(500))
    counted = fit_weights(x, y, np.where(np.arange(400) < 100, 2.0, 1.0))
    assert np.allclose(twice[0], counted[0], rtol=0.02, atol=0.3)
    assert not np.allclose(twice[0], fit_weights(x, y, np.ones(400))[0], rtol=0.001)


def test_feature_beyond_all_others_counts_for_no_better():
    confidence = fitted()
    usual = Features(*(0.0 for _ in SIGNS))
    for name, sign in zip(Features._fields, SIGNS, strict=True):
        far, further = (confidence.expect(usual._replace(**{name: sign * value})) for value in (100, 1000))
        assert far == further
        assert confidence.expect(usual._replace(**{name: -sign * 100})) <= confidence.expect(usual)


def test_curve_rises_and_is_the_nearest_that_does():
    random = np.random.default_rng(4)
    x, counts = random.normal(size=60), random.uniform(0.5, 2, size=60)
    reached = (random.uniform(size=60) < 1 / (1 + np.exp(-3 * x))).astype(float)
    knots, heights = rising_curve(x, reached, counts)
    assert (np.diff(knots) > 0).all()
    assert (np.diff(heights) >= 0).all()
    assert heights[0] > 0
    assert heights[-1] < 1  # nothing is certain
    falling = rising_curve(np.arange(10.0), np.append(np.ones(5), np.zeros(5)), np.ones(10))
    assert len(falling[0]) == 1  # one block, of their mean
    assert falling[1] == pytest.approx((5 + 0.5) / 11, abs=1e-4)
    rising = rising_curve(np.arange(10.0), np.append(np.zeros(5), np.ones(5)), np.ones(10))
    assert len(rising[0]) > 1


def test_auc_is_the_share_of_pairs_in_order():
    random = np.random.default_rng(5)
    score, good = random.integers(0, 8, 50).astype(float), random.uniform(size=50) < 0.6
    ordered = [(a > b) + (a == b) / 2 for a in score[good] for b in score[~good]]
    assert area_under_curve(score, good) == pytest.approx(np.mean(ordered))
    assert area_under_curve(score, np.ones(50, bool)) == 0.5


def test_few_pairs_say_how_little_they_tell():
    assert fitted(60).reliability.auc_error > 2 * fitted(1000).reliability.auc_error


def test_word_of_high_probability_is_likely_good():
    random = np.random.default_rng(6)
    log_p, sure = -random.exponential(size=2000), random.uniform(size=2000)
    good = random.uniform(size=2000) < 1 / (1 + np.exp(-(1 + 2 * log_p + sure)))
    offset, of_word, of_text = fit_words(log_p, sure, good)
    assert (offset, of_word, of_text) == pytest.approx((1, 2, 1), abs=0.4)
    confidence = replace(fitted(), word=(offset, of_word, of_text))
    assert confidence.judge_word(-0.1, 0.9) > confidence.judge_word(-3.0, 0.9) > confidence.judge_word(-3.0, 0.1)
    assert 0 < confidence.judge_word(-math.inf, 0.0) < confidence.judge_word(-9.0, None) < 1


# The record.


def test_record_comes_back_as_it_was(tmp_path):
    (tmp_path / MANIFEST).write_text("{}")
    assert Confidence.load(tmp_path) is None
    confidence = replace(fitted(), words=WordForms(["word"]).packed())
    add_record(tmp_path, Confidence.RECORD, confidence.as_json())
    assert Confidence.load(tmp_path) == confidence
    (tmp_path / MANIFEST).write_text("{}")
    assert Confidence.load(tmp_path) is None  # nobody vouches for it


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", "50"),
        ("offset", math.nan),
        ("offset", math.inf),
        ("offset", True),
        ("weights", [1.0]),
        ("limits", None),
        ("expected", [2.0, 1.0]),
        ("expected", []),
        ("confidence", [0.5]),
        ("confidence", [-1.0, 2.0]),
        ("confidence", {"a": 1}),
        ("reliability", {}),
        ("reliability", []),
        ("word", [1.0]),
        ("words", 1),
        ("words", "words"),
    ],
)
def test_damaged_record_is_refused(tmp_path, name: str, value: object):
    confidence = fitted()
    record = json.loads(confidence.as_json())
    assert parse(record) == confidence
    (tmp_path / MANIFEST).write_text("{}")
    add_record(tmp_path, Confidence.RECORD, json.dumps({**record, name: value}))
    with pytest.raises(DragomanError, match="not a record of confidence"):
        Confidence.load(tmp_path)


# Features.


def test_features_say_what_is_worse():
    known = KnownWords(["the", "house", "is", "red", "seldom"])
    good = measure("the house is red", 4, "das Haus ist rot", 4, -2.0, 0, known, None)
    worse = {
        "log_p_per_character": measure("the house is red", 4, "das Haus ist rot", 4, -9.0, 0, known, None),
        "length": measure("the house is red", 4, "das", 4, -2.0, 0, known, None),
        "tokens_per_character": measure("the house is red", 9, "das Haus ist rot", 4, -2.0, 0, known, None),
        "unknown": measure("the hovel is red", 4, "das Haus ist rot", 4, -2.0, 0, known, None),
        "rarity": measure("seldom house is red", 4, "das Haus ist rot", 4, -2.0, 0, known, None),
        "faults": measure("the house is red", 4, "das Haus ist rot", 4, -2.0, 1, known, None),
    }
    for name, features in worse.items():
        sign = getattr(SIGNS, name)
        assert sign * getattr(features, name) < sign * getattr(good, name)
    blank = measure("", 0, "", 0, 0.0, 0, known, None)
    assert all(map(math.isfinite, blank))
    assert measure("the", 1, "das", 1, -1.0, 0, None, None).unknown == 0.0


def test_worst_are_those_that_are_not_perfect_where_a_quarter_is_less():
    """Of a good model, nearly all translations may have chrF 100; before, AUC was then 0.50 ± 9.82."""
    expected, chrf = np.linspace(0, 100, 100), np.full(100, 100.0)
    chrf[:5] = 30
    good = measure_reliability(expected / 100, expected, chrf, 50)
    assert (good.auc, good.auc_error) == (1.0, 0.0)
    chrf[:5] = 100
    none = measure_reliability(expected / 100, expected, chrf, 50)
    assert (none.auc, none.auc_error) == (0.5, 0.5)
    spread = measure_reliability(expected / 100, expected, expected, 50)
    assert spread.auc == 1.0
    assert spread.auc_error < 0.01
