"""`dragoman wish`: which sentences would teach most."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.data.wish import Wish, phrases_of

WORDS = [f"{a}{b}" for a in ("ka", "lo", "mi", "tu", "re") for b in ("bin", "dor", "fel", "gast", "hup", "jom")]


def sentences(count: int, words: list[str], seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(4, 9))) for _ in range(count)]


def test_phrases_are_runs_of_up_to_three_words():
    assert phrases_of(["a", "b", "c", "d"]) == {
        *[("a",), ("b",), ("c",), ("d",)],
        *[("a", "b"), ("b", "c"), ("c", "d"), ("a", "b", "c"), ("b", "c", "d")],
    }
    assert phrases_of([]) == set()


def test_first_are_sentences_with_words_that_training_lacks():
    known, new = WORDS[:15], WORDS[15:]
    texts = sentences(80, known) + sentences(20, new, seed=2)
    chosen = Wish(texts, sentences(200, known, seed=3)).choose(15)
    assert all(row >= 80 for row in chosen)
    # The control: without a training, none is new.
    assert any(row < 80 for row in Wish(texts, []).choose(15))


def test_sentence_that_repeats_another_one_waits():
    texts = ["the red house", "the red house!", "a blue car drives", "The RED house"]
    wish = Wish(texts, [])
    assert wish.rows == [0, 2]
    assert sorted(wish.choose(9)) == [0, 2]
    assert Wish(texts, ["The red house."]).rows == [2]


def test_phrase_of_a_chosen_sentence_counts_half():
    """Two sentences share their frequent words: behind the first of them comes the third, which has others."""
    frequent = ["p q"] * 3 + ["t u"] * 2  # these make the words frequent, and are chosen as one each
    wish = Wish(["p q r", "p q s", "t u v", *frequent], ["p q", "t u"])
    assert wish.rows == [0, 1, 2]
    assert wish.choose(3) == [0, 2, 1]
    assert wish.frequent["p",] > wish.frequent["t",]


def test_lazy_choice_is_that_of_the_whole_search():
    texts = sentences(60, WORDS, seed=5)
    wish = Wish(texts, sentences(10, WORDS, seed=6))
    seen, left, expected = wish.known.copy(), [*wish.rows], []

    def value(row: int) -> float:
        from math import log2

        words = wish.words[row]
        return sum(log2(1 + wish.frequent[each]) * 0.5 ** seen[each] for each in phrases_of(words)) / len(words)

    while left:
        best = max(left, key=lambda row: (value(row), -row))
        left.remove(best)
        expected.append(best)
        seen.update(phrases_of(wish.words[best]))
    assert wish.choose(60) == expected


def test_wish_covers_more_than_chance():
    texts = sentences(300, WORDS, seed=7) + sentences(30, [f"{word}x" for word in WORDS], seed=8)
    wish = Wish(texts, sentences(50, WORDS, seed=9))
    chosen, chance = wish.coverage(wish.choose(20)), wish.coverage(random.Random(1).sample(wish.rows, 20))
    assert chosen.words > 2 * chance.words
    assert chosen.lacking == chance.lacking


def test_command_writes_the_best_first_and_says_what_they_teach(dragoman: Callable, tmp_path: Path):
    (tmp_path / "mono.txt").write_text("\n".join(["", *sentences(100, WORDS), "word " * 50]) + "\n")
    (tmp_path / "train.tsv").write_text("".join(f"{text}\tx\n" for text in sentences(40, WORDS[:10], seed=3)))
    ran = dragoman("wish", tmp_path / "mono.txt", "--train", tmp_path / "train.tsv", "--count", "10")
    lines = ran.out.splitlines()
    assert ran.code == 0
    assert len(set(lines)) == 10
    assert set(lines) < set((tmp_path / "mono.txt").read_text().splitlines())
    assert "10 sentences of 100," in ran.err
    assert "of the words and" in ran.err
    dragoman("wish", tmp_path / "mono.txt", "--train", tmp_path / "train.tsv", "--count", "10", "--out", "chosen.txt")
    assert Path("chosen.txt").read_text().splitlines() == lines


@pytest.mark.parametrize(("flags", "says"), [(["--count", "0"], "at least 1"), (["--max-words", "2"], "no sentence")])
def test_wish_without_an_answer_is_refused(dragoman: Callable, tmp_path: Path, flags: list[str], says: str):
    (tmp_path / "mono.txt").write_text("one two three\n")
    (tmp_path / "train.tsv").write_text("four\tvier\n")
    ran = dragoman("wish", tmp_path / "mono.txt", "--train", tmp_path / "train.tsv", *flags)
    assert ran.code == 2
    assert says in ran.err


@pytest.mark.parametrize(("text", "out"), [("mono.txt", "mono.txt"), ("mono.txt", "train.tsv"), ("train.tsv", "x.txt")])
def test_wish_reads_plain_text_and_leaves_it_alone(dragoman: Callable, tmp_path: Path, text: str, out: str):
    (tmp_path / "mono.txt").write_text("one two three\n")
    (tmp_path / "train.tsv").write_text("four\tvier\n")
    ran = dragoman("wish", tmp_path / text, "--train", tmp_path / "train.tsv", "--out", tmp_path / out)
    assert ran.code == 2
    assert "write to another file" in ran.err or "TEXT is plain text" in ran.err
    assert (tmp_path / "mono.txt").read_text() == "one two three\n"
