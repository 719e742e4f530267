"""`dragoman split`: train, dev and test without near duplicates between them, whatever the order of the pairs."""

import contextlib
import itertools
import json
import random
from pathlib import Path

import pytest
from conftest import write_tsv
from growth import grows_too_fast, processor_seconds
from hypothesis import given
from hypothesis import strategies as st

from dragoman.commands.split import default_size, write_sets
from dragoman.data.corpus import Pair, read_corpus
from dragoman.data.split import CandidateIndex, runs_of, split_by_document, split_by_pair, words_of
from dragoman.errors import DragomanError

WORDS = [f"{a}{b}" for a in ("ka", "lo", "mi", "tu", "re") for b in ("bin", "dor", "fel", "gast", "hup", "jom")]


def sentences(count: int, seed: int = 1) -> list[Pair]:
    """Pairs of twelve random words each: no two of them are near duplicates."""
    draw = random.Random(seed)
    return [(" ".join(draw.choices(WORDS, k=12)), " ".join(draw.choices(WORDS, k=12))) for _ in range(count)]


def near(pair: Pair) -> list[Pair]:
    """Near duplicates of a pair, each on one side."""
    source, target = pair
    changed = source.split()
    changed[5] = "other"
    return [(f"{source.upper()}!", "a b c"), (" ".join(changed), "d e f"), ("g h i", f"And so: {target}, he said.")]


def read(folder: Path) -> dict[str, list[Pair]]:
    return {name: read_corpus([str(folder / f"{name}.tsv")]).pairs for name in ("train", "dev", "test")}


def near_duplicates(pairs: list[Pair]) -> set[tuple[int, int]]:
    """Which pairs nearly repeat which other ones on either side, by the definition."""
    near = set()
    for side in (0, 1):
        words = [words_of(pair[side]) for pair in pairs]
        runs, letters = list(map(runs_of, words)), ["".join(each).replace("0", "") for each in words]
        for row, candidate in itertools.permutations(range(len(pairs)), 2):
            shared = runs[row] & runs[candidate]
            if 2 * len(shared) > len(runs[candidate]) or letters[row] == letters[candidate]:
                near.add((row, candidate))
    return near


@pytest.mark.parametrize(
    ("text", "other", "expected"),
    [
        ("Chapter 1, verse 12.", "chapter 9, Verse 3", True),
        ("Chapter", "Chapter 3", True),
        ("a b c d e f g h i j", "a b c d e X g h i j", True),
        ("a b c d e f g h", "a b c X e f g h", False),
        ("We met him in May.", "In May we met him there.", False),
        ("私は昨日東京へ行った。", "私は昨日大阪へ行った。", False),
        ("私は昨日東京の友達の家へ行った。", "私は昨日東京の友達の店へ行った。", True),
        ("...", "!!!", False),
        ("?!", " ?!", True),
    ],
)
def test_near_duplicates_on_each_side(text: str, other: str, expected: bool):
    assert bool([*CandidateIndex([text, other], [0]).near(1)]) is expected
    for pairs in ([(text, "a"), (other, "b")], [("a", text), ("b", other)]):
        assert set(split_by_document(pairs, [0, 1], 0, 1)) == ({"test", ""} if expected else {"test", "train"})


few_words = st.lists(st.sampled_from("abc"), min_size=1, max_size=9).map(" ".join)


@given(st.lists(st.tuples(few_words, few_words), min_size=2, max_size=12))
def test_index_finds_the_near_duplicates_of_the_definition(pairs: list[Pair]):
    indices = [CandidateIndex([pair[side] for pair in pairs], range(len(pairs))) for side in (0, 1)]
    assert near_duplicates(pairs) == {
        (row, candidate) for index in indices for row in range(len(pairs)) for candidate in index.near(row)
    }
    for index in indices:
        for removed in range(0, len(pairs), 2):
            index.remove(removed)
        assert all(candidate % 2 for row in range(len(pairs)) for candidate in index.near(row))


@given(st.lists(st.tuples(few_words, few_words), min_size=4, max_size=20))
def test_sets_have_no_near_duplicates_of_others(pairs: list[Pair]):
    near = near_duplicates(pairs)
    sets = split_by_document(pairs, range(len(pairs)), 1, 1)
    ranks = [["", "train", "dev", "test"].index(name) for name in sets]
    assert not any(0 < ranks[row] < ranks[candidate] for row, candidate in near)
    with contextlib.suppress(DragomanError):
        sets = split_by_pair(pairs, 1, 1)
        assert not any(sets[candidate] != "train" for _, candidate in near)


@pytest.mark.parametrize(
    "pattern", ["Click the button to open the file {} now", "{} and {} went to the market with {} and {}", "Line {}"]
)
@pytest.mark.parametrize("by", ["pair", "document"])
def test_time_for_pairs_of_a_pattern_grows_with_their_number(pattern: str, by: str):
    def seconds(count: int) -> float:
        draw = random.Random(1)
        texts = [pattern.format(*(draw.choice(WORDS) + draw.choice(WORDS) for _ in range(4))) for _ in range(count)]
        pairs = list(zip(texts, texts, strict=True))
        return processor_seconds(lambda: split(pairs, count // 8))

    def split(pairs: list[Pair], size: int) -> None:
        with contextlib.suppress(DragomanError):  # too many are near duplicates
            split_by_pair(pairs, size, size) if by == "pair" else split_by_document(
                pairs, range(len(pairs)), size, size
            )

    assert not grows_too_fast(seconds, 600)


def test_near_duplicates_stay_in_train_and_nothing_is_lost(dragoman, tmp_path: Path):
    plain = sentences(300)
    repeated = [pair for base in sentences(60, seed=2) for pair in (base, *near(base))]
    everything = [*plain, *repeated, plain[0]]
    assert len({row for row, _ in near_duplicates(everything)}) >= len(repeated)
    orders = [everything, random.Random(3).sample(everything, len(everything))]
    for number, pairs in enumerate(orders):
        ran = dragoman(
            "split", write_tsv(tmp_path / f"{number}.tsv", pairs), "--out", f"s{number}", "--dev", 40, "--test", 50
        )
        assert ran.out == f"s{number}/train.tsv: 451 pairs\ns{number}/dev.tsv: 40 pairs\ns{number}/test.tsv: 50 pairs\n"
    first, second = (read(tmp_path / f"s{number}") for number in range(2))
    assert {name: sorted(pairs) for name, pairs in first.items()} == {
        name: sorted(pairs) for name, pairs in second.items()
    }
    assert sorted(pair for pairs in first.values() for pair in pairs) == sorted(everything)
    assert not set(first["dev"] + first["test"]) & {*repeated, plain[0]}
    check = ("check", "s0/train.tsv", "--dev", "s0/dev.tsv", "--test", "s0/test.tsv", "--json")
    assert "overlap" not in {finding["id"] for finding in json.loads(dragoman(*check).out)["findings"]}


def test_documents_stay_whole(dragoman, tmp_path: Path):
    chapters = [sentences(10, seed) for seed in range(20)]
    files = [write_tsv(tmp_path / f"book{n}.tsv", []) for n in range(2)]
    for file, some in zip(files, (chapters[:10], chapters[10:]), strict=True):
        Path(file).write_text("\n".join("".join(f"{s}\t{t}\n" for s, t in chapter) for chapter in some))
    size = ("--dev", 25, "--test", 30, "--out")
    assert dragoman("split", *files, "--by", "document", *size, "plain").err == ""
    found = read(tmp_path / "plain")
    assert {name: len(pairs) for name, pairs in found.items()} == {"train": 150, "dev": 20, "test": 30}
    held_out = [chapter for chapter in chapters if chapter[0] in found["test"] + found["dev"]]
    assert all({*chapter} <= {*found["test"]} or {*chapter} <= {*found["dev"]} for chapter in held_out)
    # A chapter that repeats one of test: it is chosen itself, or what it repeats is left out of its set.
    (tested, *_) = (chapter for chapter in chapters if chapter[0] in found["test"])
    files.append(write_tsv(tmp_path / "again.tsv", [pair for base in tested for pair in near(base)]))
    assert (
        "near duplicates of a pair in another set" in dragoman("split", *files, "--by", "document", *size, "again").err
    )
    parts = read(tmp_path / "again")
    rows = [(pair, name) for name, pairs in parts.items() for pair in pairs]
    everything = [pair for pair, _ in rows]
    assert all(rows[a][1] == rows[b][1] for a, b in near_duplicates(everything))


def test_pairs_with_an_empty_side_are_counted_as_in_check_and_train(dragoman, tmp_path: Path):
    """A row that is blank on both sides ends a document; it is no pair."""
    file = write_tsv(tmp_path / "a.tsv", [*sentences(50), ("", ""), ("", "x"), (" ", "\u3000")])
    found = json.loads(dragoman("check", file, "--json").out)["findings"]
    assert {one["id"]: one["count"] for one in found} == {"empty": 1, "blank": 2}
    note = f"{file}: skipped pairs with an empty side: 1 (line 52)"
    assert read_corpus([file]).notes() == [note]
    for by in ("pair", "document"):
        assert note in dragoman("split", file, "--dev", 5, "--test", 5, "--by", by, "--out", by).err
    plain = write_tsv(tmp_path / "b.tsv", [*sentences(50), ("", "")])
    assert "skipped" not in dragoman("split", plain, "--dev", 5, "--test", 5, "--out", "none").err


@pytest.mark.parametrize(("count", "flags", "dev", "test"), [(59, "", 5, 5), (4, "", 1, 1), (59, "--dev 20", 20, 5)])
def test_without_numbers_a_tenth_is_held_out(dragoman, tmp_path: Path, count: int, flags: str, dev: int, test: int):
    ran = dragoman("split", write_tsv(tmp_path / "a.tsv", sentences(count)), *flags.split(), "--out", "new")
    sizes = {name: len(pairs) for name, pairs in read(tmp_path / "new").items()}
    assert (ran.code, sizes) == (0, {"train": count - dev - test, "dev": dev, "test": test})
    assert f"a tenth of {count} pairs" in ran.err


def test_write_sets_overwrites_no_file_of_another_split(tmp_path: Path):
    """It was made while this one read its corpora. The control is the one that came first."""
    files = {name: tmp_path / f"{name}.tsv" for name in ("train", "dev", "test")}
    write_sets([("a", "b"), ("c", "d"), ("e", "f")], ["train", "dev", "test"], files)
    with pytest.raises(FileExistsError, match=r"test\.tsv"):
        write_sets([("g", "h"), ("i", "j"), ("k", "l")], ["train", "dev", "test"], files)
    assert [file.read_text() for file in files.values()] == ["a\tb\n", "c\td\n", "e\tf\n"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dev.tsv", "test.tsv", "train.tsv"]


def test_weights_go_with_the_training_pairs(dragoman, tmp_path: Path):
    pairs = {pair: f"{n / 100:g}" for n, pair in enumerate(sentences(60), start=1)}
    rows = ["\t".join((*pair, weight)) for pair, weight in pairs.items()]
    (tmp_path / "all.tsv").write_text("\n".join(rows) + "\n")
    ran = dragoman("split", "all.tsv", "weight-column=3", "--out", "sets", "--dev", "6", "--test", "6")
    assert "train.tsv: 48 pairs, with their weights (train with weight-column=3)" in ran.out
    assert set((tmp_path / "sets" / "train.tsv").read_text().splitlines()) < set(rows)
    held_out = [
        line for name in ("dev", "test") for line in (tmp_path / "sets" / f"{name}.tsv").read_text().splitlines()
    ]
    assert {tuple(line.split("\t")) for line in held_out} < pairs.keys()


def test_interrupted_split_says_so(dragoman, tmp_path: Path):
    """The control is a split of which nothing is missing."""
    write_tsv(tmp_path / "all.tsv", sentences(60))
    assert dragoman("split", "all.tsv", "--out", "sets").code == 0
    assert "exists already; choose another --out" in dragoman("split", "all.tsv", "--out", "sets").err
    (tmp_path / "sets" / "train.tsv").unlink()
    said = "exists already without sets/train.tsv, as after a split that was interrupted: delete it, or choose another"
    assert said in dragoman("split", "all.tsv", "--out", "sets").err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "few.tsv: no sentence pairs"),
        ("a\tb\nc\td\n", "2 pairs: too few to split"),
        ("a\tb\n" * 4, ""),
        (
            "a\tb\n" * 20,
            "no near duplicate in the corpus, and 4 are needed: choose --by document",
        ),
    ],
)
def test_corpus_too_small_to_split_is_said_to_be_so(dragoman, tmp_path: Path, text: str, message: str):
    (tmp_path / "few.tsv").write_text(text)
    ran = dragoman("split", tmp_path / "few.tsv", "--out", "new")
    assert message in ran.err
    assert "more than half" not in ran.err


def test_large_corpora_hold_out_a_thousand_pairs():
    assert [default_size(count) for count in (1, 99, 2987, 10_000, 10**8)] == [1, 9, 298, 1000, 1000]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("", "only 20 of 120 pairs have no near duplicate"),
        ("--dev 50 --test 11", "--dev 50 and --test 11 are more than half of the 120 pairs: choose smaller numbers"),
        ("--dev 0 --test 121", "--dev 0 and --test 121 are more than the 120 pairs: choose smaller numbers"),
        ("--dev 50000", "--dev 50,000 and --test 12 are more than the 120 pairs"),
        ("--dev 0 --test 0", "one of them above 0"),
        ("--dev -1", "--dev must be a number of pairs, 0 or more, not -1"),
        ("--dev 0 --test=-20", "--test must be a number of pairs, 0 or more, not -20"),
        ("--test 0.5.", "--test must be a whole number, not '0.5.'"),
        ("--dev 40 --test 20", "60 are needed: choose smaller sets, such as --dev 14 --test 6"),
        ("--by document --dev 10 --test 10", "no document that remains has at most 10 pairs"),
        ("weight=2 --dev 1", "weight=, share=, tag= and target-tag= are for dragoman train"),
        ("--dev 5 --test 0 --out there", "there/dev.tsv: exists already"),
    ],
)
def test_split_refuses_what_cannot_be_split(dragoman, tmp_path: Path, flags: str, message: str):
    pairs = write_tsv(tmp_path / "pairs.tsv", [*sentences(20), *sentences(50, 2), *sentences(50, 2)])
    (tmp_path / "there").mkdir()
    write_tsv(tmp_path / "there" / "dev.tsv", [])
    ran = dragoman("split", pairs, *flags.split(), *([] if "--out" in flags else ["--out", "new"]))
    assert ran.code in (1, 2)
    assert message in " ".join(ran.err.split())
    assert not (tmp_path / "new").exists()


def test_sizes_that_the_refusal_names_can_be_split(dragoman, tmp_path: Path):
    pairs = write_tsv(tmp_path / "pairs.tsv", [*sentences(20), *sentences(50, 2), *sentences(50, 2)])
    refused = dragoman("split", pairs, "--dev", "40", "--test", "20", "--out", "new")
    sizes = " ".join(refused.err.split()).split("such as ")[1].split()
    assert dragoman("split", pairs, *sizes, "--out", "new").code == 0
