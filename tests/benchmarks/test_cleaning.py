"""Planted faults: their number and places, and what the measurements of noise and of wishes count."""

import random
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import cleaning, noise, wishes
from benchmarks.cleaning import COPIES, GOOD, KINDS, SLIPS, Texts, make_mess, read_texts, run, write_pairs
from dragoman.data.corpus import Pair
from dragoman.errors import DragomanError

WORDS = "the old dog sees a small red house near that river and 12 trees of Grün, Gärten, Öfen über alle Maße".split()


def sentences(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(9, 12))) + f" {number}" for number in range(count)]


PAIRS = list(zip(sentences(4_000, 1), sentences(4_000, 2), strict=True))


def mess() -> tuple[list[Pair], list[str]]:
    return make_mess(Texts(random.Random(3), sentences(300, 4), sentences(300, 5), PAIRS), 1_500)


def test_faults_are_as_many_as_wanted_of_each_kind():
    pairs, kinds = mess()
    counts = Counter(kinds)
    slipped = {name: length * times for name, (length, times) in SLIPS.items()}
    assert {name: counts[name] for name in SLIPS} == slipped
    assert len(pairs) - counts[GOOD] == 1_500
    each = [counts[name] for name in KINDS]
    assert max(each) - min(each) <= 1
    for pair, kind, before in zip(pairs, kinds, PAIRS, strict=True):
        assert (pair == before) == (kind == GOOD)
    good = {pair for pair, kind in zip(pairs, kinds, strict=True) if kind == GOOD}
    copies = [pair for pair, kind in zip(pairs, kinds, strict=True) if kind == COPIES[0]]
    assert copies
    assert sum(pair in good for pair in copies) > len(copies) / 2  # of a good pair, if nothing was planted there later
    assert mess() == (pairs, kinds)


def corpora(folder: Path) -> None:
    for name, texts in (("en-de-mpl", PAIRS), ("en-es-bible", PAIRS[:300]), ("en-ko-mpl", PAIRS[300:600])):
        for part in ("train", "dev", "test"):
            write_pairs(folder / f"{name}.{part}.tsv", texts if part == "train" else texts[:10])


def test_noise_counts_what_each_cleaner_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    corpora(tmp_path)
    trained: list[tuple[str, int, list[str]]] = []

    def score(folder: Path, cleaner: str, seed: int, steps: int, scored: list[Pair]) -> float:
        assert (steps, len(scored)) == (7, 20)
        trained.append((cleaner, seed, (folder / f"{cleaner}.tsv").read_text("utf-8").splitlines()))
        return 10.0 * seed + len(cleaner)

    def check(words: list[str]) -> None:  # a cleaner that drops the last hundred pairs
        out, lines = Path(words[words.index("--write-clean") + 1]), Path(words[1]).read_text("utf-8").split("\n")
        out.write_text("\n".join([*lines[:-101], ""]), "utf-8")

    monkeypatch.setattr(noise, "side_by_side", lambda function, jobs, threads: [score(*job) for job in jobs])
    monkeypatch.setattr(noise, "run", check)
    text = noise.benchmark(str(tmp_path), "en-de-mpl", 0.25, ("dirty", "rules", "oracle"), (1, 2), 7, 1.0)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[4:]]
    assert [row[0] for row in rows] == ["dirty", "rules", "oracle"]
    assert [row[1] for row in rows] == ["4,000", "3,900", "3,000"]
    faults = [int(row[2].replace(",", "")) for row in rows]
    assert 900 < faults[1] < faults[0] <= 1_000
    assert faults[2] == 0
    assert [row[3:] for row in rows] == [["20.0", "15.0, 25.0"], ["20.0", "15.0, 25.0"], ["21.0", "16.0, 26.0"]]
    assert [(cleaner, seed) for cleaner, seed, _ in trained[:3]] == [("dirty", 1), ("dirty", 2), ("rules", 1)]


def test_wishes_differ_in_the_added_pairs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    corpora(tmp_path)
    trained: dict[str, list[Pair]] = {}

    def score(folder: Path, name: str, seed: int, steps: int, scored: list[Pair]) -> float:
        assert (steps, len(scored)) == (7, 20)
        lines = (folder / f"{name}.tsv").read_text("utf-8").split("\n")[:-1]
        trained[name] = [(source, target) for source, target in (line.split("\t") for line in lines)]
        return 10.0 * seed

    monkeypatch.setattr(wishes, "side_by_side", lambda function, jobs, threads: [score(*job) for job in jobs])
    text = wishes.benchmark(str(tmp_path), "en-de-mpl", 3_000, 100, (1, 2), 7)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[4:]]
    assert [row[:2] for row in rows] == [["wished", "100"], ["by chance", "100"]]
    assert all(row[3:] == ["15.0", "10.0, 20.0"] for row in rows)
    assert all(pairs[:3_000] == PAIRS[:3_000] for pairs in trained.values())
    added = {name: pairs[3_000:] for name, pairs in trained.items()}
    assert added["wished 1"] == added["wished 2"]
    assert added["by chance 1"] != added["by chance 2"]
    for name in ("wished 1", "by chance 1", "by chance 2"):
        assert len(set(added[name])) == 100
        assert set(added[name]) <= set(PAIRS[3_000:])
    words = [sum(len(source.split()) for source, _ in added[f"wished {seed}"]) for seed in (1, 2)]
    assert rows[0][2] == f"{words[0]:,}"


def test_command_that_fails_is_an_error(tmp_path: Path):
    with pytest.raises(DragomanError, match=r"dragoman info none.*none"):
        run(["info", "none"])
    with pytest.raises(DragomanError, match=r"en-es-bible\.train\.tsv.*not there"):
        read_texts(str(tmp_path), "en-de-mpl", 1)


def test_tables_have_a_column_for_rules_and_one_for_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    corpora(tmp_path)

    def learn(words: list[str]) -> None:
        assert words[2:4] == ["--learn", "--minutes=3"]
        rejected = Path(words[-1].partition("=")[2])
        rejected.write_text("head\n" + "".join(f"s\tt\tf\t{n + 1}\tmismatch\t\n" for n in range(len(PAIRS))), "utf-8")

    monkeypatch.setattr(cleaning, "run", learn)
    text = cleaning.benchmark(str(tmp_path), ("en-de-mpl",), 1_500, 1, 3)
    assert "| dropped | en-de-mpl | en-de-mpl, with models |" in text
    row = next(line for line in text.splitlines() if line.startswith("| copy of 3 words"))
    assert "0.0 %" not in row
    assert row.endswith("100 % |")
    good = next(line for line in text.splitlines() if line.startswith(f"| {GOOD}"))
    assert good.endswith("2500 of 2,500, 100 % |")
