"""The demonstration, with almost no training: every stage does its part; and, slowly, that it learns."""

import dataclasses
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from babel import Locale
from korean import english
from torch.nn.functional import normalize

from dragoman.data.corpus import read_corpus
from dragoman.data.tokenizers import SideTokenizer
from dragoman.demo import CATALOGUE, grammar
from dragoman.demo.phrasebook import Phrasebook, phrasebook
from dragoman.demo.run import FULL, PER_TEMPLATE, QUICK, SEED, Show, slow_machine, write_pairs
from dragoman.demo.tasks import TASKS, draw_pairs
from dragoman.demo.toy import TOY, find_head
from dragoman.demo.values import COUNTRIES
from dragoman.model import Model
from dragoman.model_folder import read_model
from dragoman.text.speech import speaker
from dragoman.training.checkpoint import lock_folder
from dragoman.training.weights import untrained_model


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four sentences to validate and to test on."""
    whole = phrasebook

    def short(*arguments: Any, **changes: Any) -> Phrasebook:
        book = whole(*arguments, **changes)
        return dataclasses.replace(book, dev=book.dev[:4], test=book.test[:4])

    monkeypatch.setattr("dragoman.demo.run.phrasebook", short)


@pytest.mark.usefixtures("few")
def test_demo_scores_translates_and_draws(dragoman, monkeypatch: pytest.MonkeyPatch):
    """Train for real, but on a small phrasebook."""
    monkeypatch.setattr("dragoman.demo.run.PER_TEMPLATE", 4)
    ran = dragoman("demo", "--to", "es", "--minutes", "0.01", "--out", "demo")
    assert ran.code == 0, ran.err
    assert re.search(r"^BLEU \d+\.\d .*version:", ran.out, re.MULTILINE)
    assert re.search(r"^exact match \d+\.\d % of \d+ sentences$", ran.out, re.MULTILINE)
    assert untold(ran.out) == []
    for name, start in (("demo/attention.svg", b"<?xml"), ("demo/attention.png", b"\x89PNG")):
        assert name in ran.out
        assert Path(name).read_bytes().startswith(start)


@pytest.mark.usefixtures("few")
def test_quick_demo_needs_no_extra_and_names_the_one_that_draws(dragoman, monkeypatch: pytest.MonkeyPatch):
    for module in ("babel", "matplotlib", "dragoman.demo.values"):  # the last is what imports Babel
        monkeypatch.setitem(sys.modules, module, None)
    ran = dragoman("demo", "--quick", "--minutes", "0.01")
    assert ran.code == 0, ran.err
    assert re.search(r"^exact match \d+\.\d % of 4 sentences$", ran.out, re.MULTILINE)
    assert untold(ran.out) == []
    assert "pip install 'dragoman[plot]'" in ran.out
    assert {path.name for path in Path("runs/quick-en-ko").glob("attention*")} == set()
    ran = dragoman("demo")  # the control
    assert (ran.code, "pip install 'dragoman[demo]'" in ran.err, "--quick" in ran.err) == (1, True, True)


@pytest.mark.parametrize("show", [pytest.param(FULL, marks=pytest.mark.slow), QUICK], ids=["full", "quick"])
def test_sentences_that_the_demo_tries_are_not_in_its_corpus(show: Show):
    book = phrasebook("en", "ko", per_template=PER_TEMPLATE, seed=SEED, slots=show.slots)
    sources = {source for pairs in (book.train, book.dev, book.test) for source, _ in pairs}
    patterns = {re.sub(r"\d+", "N", source) for source in sources}
    assert sources.isdisjoint({*show.typed, show.drawn})
    assert show is FULL or {re.sub(r"\d+", "N", typed) for typed in show.typed} <= patterns


def test_corpus_of_the_demo_is_one_that_train_reads(tmp_path: Path):
    book = phrasebook("en", "ko", per_template=2, seed=1)
    write_pairs(tmp_path / "pairs.tsv", book.train)
    assert read_corpus([str(tmp_path / "pairs.tsv")]).pairs == book.train


@pytest.mark.slow
@pytest.mark.parametrize("to", ["ko", "de", "es"])
def test_demo_translates_nine_of_ten_held_out_sentences_exactly(dragoman, to: str):
    ran = dragoman("demo", "--to", to, "--out", "demo")
    exact = re.search(r"^exact match (\d+\.\d) % of \d+ sentences$", ran.out, re.MULTILINE)
    assert exact is not None
    assert float(exact[1]) >= 90
    model, tokenizers = read_model(Path("demo"))
    untrained = untrained_model(Path("demo"), tokenizers)
    assert untrained
    before, after = (closeness(one, tokenizers.source) for one in (untrained, model))
    assert max(before.values()) < 0.05
    assert min(after.values()) > 0.08


def closeness(model: Model, tokenizer: SideTokenizer) -> dict[str, float]:
    """Return for each kind of words how much greater their mean cosine is among themselves than with the other kinds.

    Only words that are one subword count: others are alike because they share some.
    """
    english = Locale("en")
    kinds = {
        "weekdays": english.days["format"]["wide"].values(),
        "countries": [english.territories[country] for country in COUNTRIES],
        "numbers": map(str, range(2, 100)),
    }
    embedding = normalize(model.source_embedding.weight.detach(), dim=-1)
    vectors = {
        kind: embedding[[ids[0] for word in words if len(ids := tokenizer.encode(word)) == 1]]
        for kind, words in kinds.items()
    }
    found = {}
    for kind, own in vectors.items():
        others = torch.cat([other for name, other in vectors.items() if name != kind])
        among = (own @ own.T).sum() - len(own)  # without each word's cosine with itself
        found[kind] = float(among / (len(own) * (len(own) - 1)) - (own @ others.T).mean())
    return found


def test_second_demo_leaves_the_corpora_of_the_one_that_is_running(dragoman, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dragoman.demo.run.PER_TEMPLATE", 1)
    train = Path("demo/corpus/train.tsv")
    with lock_folder(Path("demo")):
        train.parent.mkdir()
        train.write_text("one\teins\n")
        ran = dragoman("demo", "--to", "de", "--minutes", "0.01", "--out", "demo")
    assert ran.code == 1
    assert "another process is using this folder" in ran.err
    assert train.read_text() == "one\teins\n"


def test_slow_machine_is_told_that_more_time_helps():
    advice = slow_machine(0.6, 310, 2.0, QUICK.command)
    assert advice == (
        "Only 310 steps in 2 minutes. More time gives better translations, such as dragoman demo --quick --minutes 4"
    )
    assert speaker("ko", CATALOGUE)(advice).endswith(": dragoman demo --quick --minutes 4")
    assert slow_machine(0.96, 310, 2.0, QUICK.command) == ""


# Tasks.


def recalled(words: list[str]) -> list[str]:
    colon = words.index(":")
    numbers = dict(zip(words[:colon:2], words[1:colon:2], strict=True))
    return [word for letter in words[colon + 1 :] for word in (letter, numbers[letter])]


def is_tree(words: list[str]) -> bool:
    """Whether brackets match, and each preposition stands where its kind belongs."""
    inside: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if before == "(":
            inside.append(word)
        elif word == ")":
            if not inside:
                return False
            inside.pop()
        elif before == "PP" and (inside[-2] == "NP") != (word in grammar.OF_NOUNS):
            return False
    return not inside and words[:2] == ["(", "S"]


RULES = {"copy": list, "reverse": lambda words: words[::-1], "sort": sorted, "recall": recalled}


@pytest.mark.parametrize("name", TASKS)
def test_pairs_of_a_task_follow_its_rule(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dragoman.demo.tasks.TRAIN", 500)
    pairs = draw_pairs(TASKS[name], 1)
    assert pairs == draw_pairs(TASKS[name], 1) != draw_pairs(TASKS[name], 2)
    assert [len(part) for part in (pairs.train, pairs.dev, pairs.test)] == [500, 200, 200]
    every = [*pairs.train, *pairs.dev, *pairs.test]
    assert len({source for source, _ in every}) == 900
    if name == "parse":
        assert all(is_tree(target.split()) for _, target in every)
        assert not any(is_tree(target.replace(" of ", " with ").split()) for _, target in every if " of " in target)
        assert all(grammar.words_of(target.split()) == source.split() for source, target in every)
        return
    assert all(target.split() == RULES[name](source.split()) for source, target in every)
    if name != "recall":  # the control: another rule
        assert not all(
            target.split() == RULES["sort" if name != "sort" else "copy"](source.split()) for source, target in every
        )


def test_brackets_stand_at_the_words_beside_them():
    tree = "( S ( NP the dog ) ( VP sees ( NP a house ) ) )".split()
    assert grammar.places_in(tree) == [0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4]
    assert grammar.words_of(tree) == "the dog sees a house".split()


def test_head_is_found_by_what_it_attends_to():
    weights = torch.full((2, 2, 3, 4), 0.1)
    weights[1, 0, [0, 1, 2], [2, 1, 0]] = 0.7
    weights[0, 1, [0, 1, 2], [0, 1, 2]] = 0.6
    inspection: Any = SimpleNamespace(
        cross=weights, map=lambda kind, layer, head: SimpleNamespace(weights=weights[layer - 1, head - 1])
    )
    assert find_head(inspection, [2, 1, 0]) == (2, 1, pytest.approx(0.7))
    assert find_head(inspection, [0, 1, 2]) == (1, 2, pytest.approx(0.6))


@pytest.mark.slow
def test_demo_of_a_task_scores_draws_and_films(dragoman, monkeypatch: pytest.MonkeyPatch):
    """Train for real, but for six steps, with checkpoints close to each other."""
    monkeypatch.setattr("dragoman.demo.tasks.TRAIN", 500)
    short = dataclasses.replace(TOY.training, save_every=2, validate_every=1000, max_steps=6)
    monkeypatch.setattr("dragoman.demo.toy.TOY", dataclasses.replace(TOY, training=short))
    ran = dragoman("demo", "--task", "reverse", "--minutes", "1")
    assert ran.code == 0, ran.err
    assert re.search(r"^3\. 200 sentences .* % exactly right\.$", ran.out, re.MULTILINE)
    found = re.search(r"head (\d) of layer (\d), gives the right words (\d+)%", ran.out)
    assert found is not None
    for name, start in (("attention.svg", b"<?xml"), ("attention.png", b"\x89PNG"), ("film.html", b"<!doctype html>")):
        assert f"runs/demo-reverse/{name}" in ran.out
        assert Path("runs/demo-reverse", name).read_bytes().startswith(start)
    assert f"head {found[1]}" in Path("runs/demo-reverse/attention.svg").read_text()
    assert untold(ran.out) == []


# In Korean.


TELLING = re.compile(r"\d\. |exact match|Only |The best|How it|No picture|It knows|A minute|Now yours|Your own")


def untold(printed: str) -> list[str]:
    """Return the lines in which a demonstration tells something, and that have no Korean when they are said in it."""
    say, lines = speaker("ko", CATALOGUE), [line.strip() for line in printed.splitlines()]
    telling = [line for line in lines if TELLING.match(line)]
    assert len(telling) >= 7
    return [line for line in telling if not re.search("[가-힣]", say(line))]


@pytest.mark.parametrize("name", TASKS)
def test_rules_and_tricks_of_all_tasks_are_in_korean(name: str):
    say, task = speaker("ko", CATALOGUE), TASKS[name]
    said = say(f"1. The task: {task.rule}, such as 'a b' → 'b a'; 9 pairs to learn from.")
    said += say(f"4. The trick: a head that has found it {task.trick}.")
    assert english([said]) == []
    assert english([task.rule, task.trick]) == [task.rule, task.trick]  # the control


@pytest.mark.parametrize(
    ("flags", "function"), [(["--task", "copy"], "dragoman.demo.toy.run_task"), ([], "dragoman.demo.run.run_demo")]
)
def test_demo_is_asked_to_speak_korean(dragoman, monkeypatch: pytest.MonkeyPatch, flags: list[str], function: str):
    asked: list[Any] = []
    monkeypatch.setattr(function, lambda *arguments: asked.append(arguments[-1]))
    assert [dragoman("demo", *flags, *more).code for more in ([], ["--language", "ko"])] == [0, 0]
    assert asked == ["en", "ko"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_minute_is_enough_for_each_task(dragoman, name: str):
    ran = dragoman("demo", "--task", name)
    exact = re.search(r": (\d+\.\d) % exactly right", ran.out)
    share = re.search(r"gives the right words (\d+)%", ran.out)
    assert exact is not None
    assert share is not None
    assert float(exact[1]) >= 90
    assert int(share[1]) >= (15 if name == "parse" else 50)  # there several heads share the work
