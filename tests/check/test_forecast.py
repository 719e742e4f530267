"""`dragoman forecast`: parts of the pairs, the curve, its continuation."""

import json
import random
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from dragoman.cli import main
from dragoman.config import TrainingConfig
from dragoman.data.corpus import Pair
from dragoman.errors import UsageError
from dragoman.synthesis import forecast as module
from dragoman.synthesis.forecast import Forecast, forecast, forecast_scores, next_gain, parts_of

REFERENCES = [f"the {a} {b} sees the {c} of this {d} {n}" for n, (a, b, c, d) in enumerate(
    random.Random(1).choices(["red", "old", "green", "small", "tall", "round"], k=4) for _ in range(300)
)]  # fmt: skip


def damaged(share: float) -> list[str]:
    """Return the references with a share of their words exchanged, the same ones as with a smaller share."""
    chance = random.Random(2)
    return [" ".join("x" if chance.random() < share else word for word in text.split()) for text in REFERENCES]


def test_parts_are_nested_and_halves_of_each_other():
    pairs = [(f"s{n}", f"t{n}") for n in range(8_001)]
    parts = parts_of(pairs)
    assert [len(part) for part in parts] == [1_000, 2_000, 4_000, 8_001]
    for smaller, larger in pairwise(parts):
        assert larger[: len(smaller)] == smaller
    assert set(parts[-1]) == set(pairs)
    assert parts[-1] != pairs  # a part is of the whole corpus, not of its beginning
    assert parts == parts_of(pairs) != parts_of(pairs, seed=2)


@pytest.mark.parametrize(
    ("scores", "least", "most"),
    [
        ([10, 12, 14, 16], 2, 2),  # steady
        ([10, 14, 17, 19], 1, 2),  # shrinking by one each time
        ([10, 10, 10, 10], 0, 0),
        ([10, 11, 13, 16], 3, 3),  # growing gains do not go on growing
        ([10, 20, 30, 31], -1, 1),  # more pairs cost little at most
        ([10, 20, 21, 20], -2, -1),
    ],
)
def test_next_gain_shrinks_or_stays(scores: list[float], least: float, most: float):
    assert next_gain(scores) == (pytest.approx(least), pytest.approx(most))


def test_range_holds_a_curve_that_goes_on():
    shares = [0.5, 0.32, 0.22, 0.16, 0.11]
    scores, low, high = forecast_scores([damaged(share) for share in shares[:4]], REFERENCES)
    assert scores == sorted(scores)
    last = forecast_scores([damaged(share) for share in shares[1:]], REFERENCES)[0][-1]
    assert scores[-1] - 3 < low < last < high <= 100
    assert low < scores[-1] + (scores[-1] - scores[-2]) < high
    few, fewer_low, fewer_high = forecast_scores([damaged(share)[:40] for share in shares[:4]], REFERENCES[:40])
    assert len(few) == 4
    assert fewer_high - fewer_low > high - low  # fewer dev pairs know less
    # The control: without any gain, the range is around what there is already.
    _, low, high = forecast_scores([damaged(0.3)] * 4, REFERENCES)
    assert low == pytest.approx(high) == pytest.approx(forecast_scores([damaged(0.3)] * 4, REFERENCES)[0][-1])


def test_range_is_widened_by_a_jackknife_of_twentieths():
    systems = [damaged(share) for share in (0.5, 0.32, 0.22, 0.16)]
    gains = []
    for group in range(20):
        rows = [row for row in range(len(REFERENCES)) if row % 20 != group]
        without = [[texts[row] for row in rows] for texts in (REFERENCES, *systems)]
        gains.append(next_gain([BLEU().corpus_score(texts, [without[0]]).score for texts in without[1:]]))
    errors = np.sqrt(np.var(gains, axis=0) * 19)
    scores, low, high = forecast_scores(systems, REFERENCES)
    least, most = next_gain(scores)
    assert low == pytest.approx(scores[-1] + least - 1.64 * errors[0])
    assert high == pytest.approx(scores[-1] + most + 1.64 * errors[1])


def test_models_differ_in_their_pairs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    learned: list[tuple[Sequence[Pair], Sequence[Pair], TrainingConfig]] = []

    def remember(pairs: Sequence[Pair], dev: Sequence[Pair], run: Path, settings: TrainingConfig) -> Path:
        learned.append((pairs, dev, settings))
        run.mkdir()
        rows = [{"event": "validation", "step": step, "bleu": bleu} for step, bleu in enumerate((4.0, 7.0, 8.5))]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return Path(str(len(learned) - 1))

    class Translations:
        def __init__(self, number: int):
            self.share = [0.5, 0.35, 0.23, 0.15][number]

        @classmethod
        def load(cls, folder: Path, *settings: object, **more: object) -> "Translations":
            return cls(int(str(folder)))

        def translate(self, sources: list[str]) -> list[object]:
            return [type("Text", (), {"text": text}) for text in damaged(self.share)]

    monkeypatch.setattr(module, "train_small", remember)
    monkeypatch.setattr(module, "Translator", Translations)
    pairs, dev = [(f"s{n}", f"t{n}") for n in range(8_000)], [("s", text) for text in REFERENCES]
    settings, said = TrainingConfig(max_steps=7, threads=1), []
    curve = forecast(pairs, dev, tmp_path, settings, said.append)
    assert curve.pairs == [1_000, 2_000, 4_000, 8_000]
    assert curve.doubled == 16_000
    assert curve.late == 1.5
    assert [len(part) for part, _, _ in learned] == curve.pairs
    assert all(its_dev is dev and its_settings is settings for _, its_dev, its_settings in learned)
    assert said[0] == "model 1 of 4 learns 1,000 pairs"
    assert (curve.scores, curve.low, curve.high) == forecast_scores(
        [damaged(share) for share in (0.5, 0.35, 0.23, 0.15)], REFERENCES
    )
    with pytest.raises(UsageError, match="7,999 pairs are too few"):
        forecast(pairs[1:], dev, tmp_path, settings)
    with pytest.raises(UsageError, match="19 dev pairs are too few"):
        forecast(pairs, dev[:19], tmp_path, settings)
    assert len(learned) == 4


def test_command_says_what_it_expects(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    given: list[TrainingConfig] = []

    def stand_in(train: list[Pair], dev: list[Pair], place: Path, settings: TrainingConfig, announce) -> Forecast:
        given.append(settings)
        announce(f"{len(train)} and {len(dev)}")
        best, late = settings.max_steps / 150 if settings.max_steps else 0.0, 0.9 if settings.seed == 4 else 0.2
        return Forecast([1, 2, 4, 8], [best * share for share in (0.25, 0.5, 0.75, 1.0)], 22.0, 25.0, late)

    monkeypatch.setattr(module, "forecast", stand_in)
    for name, count in (("train", 9), ("dev", 3)):
        (tmp_path / f"{name}.tsv").write_text("".join(f"s{n}\tt{n}\n" for n in range(count)), "utf-8")
    words = ["forecast", "--train", str(tmp_path / "train.tsv"), "--dev", str(tmp_path / "dev.tsv")]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == "forecast: 9 and 3\n"
    lines = out.splitlines()
    assert re.fullmatch(r" +16 pairs ░{35}▒{5} BLEU 22.0 to 25.0, expected", lines[-1])
    assert [line.count("█") for line in lines] == [8, 16, 24, 32, 0]
    assert main([*words, "--json", "--steps", "80", "--seed", "3", "--threads", "1"]) == 0
    out, err = capsys.readouterr()
    assert "hardly learned" in err
    record = json.loads(out)
    assert record["forecast"] == {"pairs": 16, "low": 22.0, "high": 25.0}
    assert record["curve"][1] == {"pairs": 2, "bleu": pytest.approx(80 / 300)}
    assert (given[1].max_steps, given[1].validate_every, given[1].seed, given[1].threads) == (80, 10, 3, 1)
    assert main([*words, "--seed", "4"]) == 0
    assert "still learning (BLEU +0.9 in its last eighth)" in capsys.readouterr().err
    assert "counts once" not in err
    assert main([*words[:3], "weight=2", *words[3:]]) == 0
    assert "each pair counts once here" in capsys.readouterr().err
    assert main([*words, "--steps", "0"]) == 2
    assert main([*words[:3], "tag=news", *words[3:]]) == 2
    assert "forecast learns without tags" in capsys.readouterr().err
