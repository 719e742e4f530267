"""Pairs that models find implausible: the threshold, wrong pairs, models that learn from halves, the command."""

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from dragoman.check.plausibility import HARM, Plausibility, least_believed, least_kept, shares_right, wrong_pairs_below
from dragoman.cli import main
from dragoman.config import TrainingConfig
from dragoman.data.corpus import Pair
from dragoman.errors import UsageError
from dragoman.synthesis import plausibility
from dragoman.synthesis.plausibility import cross_entropy, fold_of, learn, wrong_pairs

WAYS = np.linspace(0, 1, 101)
WORDS = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"]


def numbered(count: int) -> list[Pair]:
    """Return pairs of numbers in digits and in words."""
    chance = random.Random(1)
    rows = [[chance.randrange(len(WORDS)) for _ in range(chance.randint(4, 9))] for _ in range(count)]
    return [(" ".join(f"a{n}b{n}" for n in row), " ".join(WORDS[n] for n in row)) for row in rows]


def nats_by_words(folder: Path, pairs: Sequence[Pair], tags: tuple[str, str] = ("", "")) -> np.ndarray:
    """Stand in for a model that knows the numbers: about 0.2 nats for what is right, 4 to 6 for what is wrong."""
    values = []
    for pair in pairs:
        digits, words = (side.split() for side in (pair if pair[0][1:2].isdigit() else pair[::-1]))
        right = [word == WORDS[int(digit[1:].split("b")[0])] for digit, word in zip(digits, words, strict=False)]
        wrong = 4 + 2 * crc32("".join(pair).encode()) / 2**32
        values.append(wrong - (wrong - 0.2) * sum(right) / max(len(digits), len(words)))
    return np.array(values)


def write(path: Path, pairs: list[Pair]) -> Path:
    path.write_text("".join(f"{s}\t{t}\n" for s, t in pairs), encoding="utf-8")
    return path


def with_wrong(pairs: list[Pair], every: int) -> list[Pair]:
    """Give each such pair the target of the one before it."""
    return [(s, pairs[n - 1][1] if n % every == every - 1 else t) for n, (s, t) in enumerate(pairs)]


@pytest.mark.parametrize("share", [0.02, 0.1, 0.4])
def test_threshold_parts_good_pairs_from_wrong_ones(share: float):
    chance = np.random.default_rng(1)
    good, bad, wrong = (
        np.exp(-chance.gamma(shape, 0.3, count))
        for shape, count in ((4, 10_000), (20, int(10_000 * share)), (20, 5_000))
    )
    scores = np.concatenate([good, bad])
    least = least_believed(scores, wrong)
    assert (bad < least).mean() > 0.95
    assert (good < least).mean() < 0.01
    gains = [(bad < edge).sum() - (good < edge).sum() / HARM for edge in (least, *np.quantile(wrong, WAYS))]
    assert gains[0] > 0.95 * max(gains)  # so it is about as good as it can be
    assert wrong_pairs_below(scores, wrong)[2][-1] == pytest.approx(len(bad), rel=0.3)
    assert least_believed(good, wrong) == 0.0


@pytest.mark.parametrize("shape", [4, 5, 6, 8])
def test_models_that_know_little_drop_little(shape: int):
    """To them wrong pairs are hardly less plausible than good ones, of which a tenth are wrong."""
    chance = np.random.default_rng(1)
    good, bad, wrong = (np.exp(-chance.gamma(k, 0.3, n)) for k, n in ((4, 50_000), (shape, 5_000), (shape, 5_000)))
    assert (good < least_believed(np.concatenate([good, bad]), wrong)).mean() < 0.03


def test_keep_says_how_many_stay():
    scores = np.random.default_rng(1).uniform(size=1_000)
    for keep in (0.5, 0.95, 1.0):
        assert (scores >= least_kept(scores, keep)).mean() == pytest.approx(keep, abs=2e-3)


def test_weight_is_the_share_of_pairs_that_are_right():
    chance = np.random.default_rng(1)
    good, bad, wrong = (np.exp(-chance.gamma(k, 0.3, n)) for k, n in ((4, 10_000), (20, 2_000), (20, 5_000)))
    scores = np.concatenate([good, bad])
    edges, shares = shares_right(scores, wrong)
    assert (np.diff(shares) >= 0).all()
    assert shares[0] == 0.01 < shares[-1] == 1
    believed = Plausibility(dict(zip([("a", n) for n in range(12_000)], scores, strict=True)), 0.0, (edges, shares))
    weights = np.array([believed.weight_of(("a", n)) for n in range(12_000)])
    assert weights[:10_000].mean() > 0.98
    assert weights[10_000:].mean() < 0.15
    # Of the pairs with about one weight, about so many are right.
    for low, high in ((0.0, 0.2), (0.2, 0.8), (0.8, 1.01)):
        some = (weights >= low) & (weights < high)
        assert abs((np.flatnonzero(some) < 10_000).mean() - weights[some].mean()) < 0.25
    assert believed.weight_of(("b", 1)) == 1.0
    assert (shares_right(bad, wrong)[1] == 1).all()  # nothing is told apart


def test_rows_that_were_not_judged_are_no_hits():
    believed = Plausibility({("a.tsv", 1): 0.1, ("a.tsv", 3): 0.9}, 0.5)
    hits = believed.hits(believed.scores_of(("a.tsv", n) for n in (1, 2, 3)))
    assert hits.rows.tolist() == [True, False, False]
    assert np.isnan(hits.scores[1])


def test_wrong_pair_has_another_target_of_about_the_length():
    pairs = numbered(2_000)
    right, wrong = dict(pairs), wrong_pairs(pairs, 500)
    assert len(wrong) > 450
    for source, target in wrong:
        assert target != right[source]
        assert abs(len(target) - len(right[source])) < 15
    assert wrong == wrong_pairs(pairs, 500)
    assert wrong_pairs([("a", "b")]) == wrong_pairs([]) == []


def test_model_never_judges_what_it_has_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pairs = with_wrong(numbered(1_500), 10)
    learned: list[tuple[bool, set[str]]] = []

    def remember(some: list[Pair], dev: list[Pair], run: Path, settings: TrainingConfig) -> Path:
        assert settings.minutes == 0.5
        some = [*dev, *some]
        turned = not some[0][0][1:2].isdigit()
        learned.append((turned, {pair[turned] for pair in some}))
        return Path(str(len(learned) - 1))

    def judged(folder: Path, some: Sequence[Pair], tags: tuple[str, str] = ("", "")) -> np.ndarray:
        turned, sources = learned[int(str(folder))]
        assert turned == (not some[0][0][1:2].isdigit())
        assert not sources & {pair[turned] for pair in some}
        return nats_by_words(folder, some)

    monkeypatch.setattr(plausibility, "train_small", remember)
    monkeypatch.setattr(plausibility, "cross_entropy", judged)
    scores, wrong = learn(pairs, tmp_path, 2.0)
    assert [turned for turned, _ in learned] == [False, True] * 2
    assert len(learned[0][1] | learned[2][1]) == len({source for source, _ in pairs})
    planted = np.arange(1_500) % 10 == 9
    assert scores[~planted].min() > 0.7 > scores[planted].mean()
    assert wrong.mean() < 0.5
    assert {fold_of(source) for source, _ in pairs} == {0, 1}
    with pytest.raises(UsageError, match="too few"):
        learn(pairs[:999], tmp_path, 2.0)


def test_nats_are_those_of_forced_decoding(trained: Path, pairs: list[Pair]):
    from dragoman.decoding.forced import score
    from dragoman.model_folder import read_model

    folder, long = (trained / "best").resolve(), ("a " * 3_000, "b")
    nats = cross_entropy(folder, [*pairs[:5], long])
    model, tokenizers = read_model(folder)
    expected = score(model, *tokenizers.encode_sides(*zip(*pairs[:5], strict=True)))
    assert nats[:5].tolist() == [-each.mean for each in expected]
    assert np.isnan(nats[5])


def test_implausible_pairs_are_dropped_and_told(tmp_path: Path, trained: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plausibility, "cross_entropy", nats_by_words)
    pairs = with_wrong(numbered(1_000), 20)
    given, clean, rejected = write(tmp_path / "a.tsv", pairs), tmp_path / "clean.tsv", tmp_path / "rejected.tsv"
    words = ["check", str(given), "--model", str(trained), "--write-clean", str(clean), "--rejected", str(rejected)]
    assert main([*words, "--json", "--report", str(tmp_path / "check.html")]) == 1
    (finding,) = (each for each in json.loads(capsys.readouterr().out)["findings"] if each["id"] == "implausible")
    rows = [line.split("\t") for line in rejected.read_text("utf-8").splitlines()[1:]]
    implausible = [row for row in rows if "implausible" in row[4]]
    assert finding["count"] == len(implausible) > 20
    assert all(int(row[3]) % 20 == 0 for row in implausible)  # counted from 1
    assert all("implausible=0." in row[5] for row in implausible)
    kept = [tuple(line.split("\t")) for line in clean.read_text("utf-8").splitlines()]
    assert sorted([*kept, *((row[0], row[1]) for row in rows)]) == sorted(pairs)
    page = (tmp_path / "check.html").read_text("utf-8")
    assert "models find the pair as implausible" in page
    assert "how plausible models find the pair" in page
    least, most = page.split("<h2>least plausible pairs</h2>")[1].split("<h2>most plausible pairs</h2>")
    lines = [
        [int(line) for line in re.findall(rf"{given}:(\d+) ", part.split("</table>")[0])] for part in (least, most)
    ]
    assert [len(some) for some in lines] == [20, 20]
    assert all(line % 20 == 0 for line in lines[0])
    assert not any(line % 20 == 0 for line in lines[1])
    assert "<h2>가장 그럴듯하지 않은 쌍</h2>" in page
    assert main([*words, "--keep", "0.5"]) == 1
    assert len(clean.read_text("utf-8").splitlines()) == pytest.approx(500, abs=50)


def test_weights_stand_beside_the_pairs_and_reach_training(tmp_path: Path, trained: Path, capsys, monkeypatch):
    monkeypatch.setattr(plausibility, "cross_entropy", nats_by_words)
    pairs = with_wrong(list(dict.fromkeys(numbered(2_000))), 5)
    given, clean = write(tmp_path / "a.tsv", pairs), tmp_path / "clean.tsv"
    assert main(["check", str(given), "--model", str(trained), "--write-clean", str(clean), "--weights"]) == 0
    rows = [line.split("\t") for line in clean.read_text("utf-8").splitlines()]
    assert [tuple(row[:2]) for row in rows] == pairs
    weights = np.array([float(row[2]) for row in rows])
    planted = np.arange(len(pairs)) % 5 == 4
    assert weights[~planted].min() == 1
    assert weights[planted].mean() < 0.3
    run = f"--preset tiny --training.max-steps 2 --out {tmp_path / 'run'} --dev {given}"
    assert main(["train", *run.split(), "--train", str(clean), "weight-column=3"]) == 0
    assert main(["check", str(clean), "weight-column=3", "--write-clean", str(tmp_path / "again.tsv")]) == 2
    assert "would lose the weights" in capsys.readouterr().err


def test_model_of_other_texts_drops_nothing_and_is_told(tmp_path: Path, trained: Path, capsys, monkeypatch):
    monkeypatch.setattr(plausibility, "cross_entropy", lambda folder, pairs, tags: np.linspace(1, 9, len(pairs)) % 2)
    given = write(tmp_path / "a.tsv", list(dict.fromkeys(numbered(800))))
    assert main(["check", str(given), "--model", str(trained)]) == 0
    assert "cannot tell these pairs from wrong ones" in capsys.readouterr().err


def test_corpus_without_wrong_pairs_has_nothing_to_gain(tmp_path: Path, trained: Path, capsys, monkeypatch):
    monkeypatch.setattr(plausibility, "cross_entropy", nats_by_words)
    given = write(tmp_path / "a.tsv", list(dict.fromkeys(numbered(800))))
    assert main(["check", str(given), "--model", str(trained)]) == 0
    assert "nothing to gain here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--model m --learn", "two ways"),
        ("--weights --learn", "--weights needs --write-clean"),
        ("--keep 0.9", "needs --model or --learn"),
        ("--learn --keep 0", "share above 0"),
        ("--learn", "too few"),
    ],
)
def test_mistakes_with_models_are_told(tmp_path: Path, capsys, monkeypatch, words: str, message: str):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.tsv", numbered(30))
    assert main(["check", "a.tsv", *words.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_small_models_find_wrong_pairs_by_themselves(tmp_path: Path):
    pairs = with_wrong(numbered(6_000), 10)
    scores, _ = learn(pairs, tmp_path, 2.0, threads=2)
    planted = np.arange(len(pairs)) % 10 == 9
    assert (scores[planted][:, None] < scores[~planted][None]).mean() > 0.9
