"""Terms in sources: mined from the training pairs, written into them, read by the model trained with them."""

import dataclasses
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import TINY, Notebook, Ran, run_config, run_training, state, write_tsv

from dragoman.config import RunConfig, SearchConfig, TrainingConfig
from dragoman.data.batches import Ids
from dragoman.data.corpus import Pair
from dragoman.data.dataset import SOURCE, TARGET, Pairs, tokenise
from dragoman.data.spec import CorpusSpec
from dragoman.data.tokenizer import TERM_MARKS, Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.engine import Constraints
from dragoman.decoding.search import Hypothesis
from dragoman.errors import DragomanError
from dragoman.model import build
from dragoman.model_folder import find_model
from dragoman.text.extent import SourceExtent
from dragoman.text.glossary import Entry, Glossary
from dragoman.training.loop import Loop
from dragoman.training.terms import FILE, SourceTerms, find_terms, mine_terms
from dragoman.translation import placement
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.terms import insert_terms
from dragoman.translation.translator import Translator

# Words of a language and of another one, which has two for each.
NOUNS = [
    f"{first}{second}" for first in ("ba", "de", "fi", "go", "ku") for second in ("lar", "men", "nis", "pot", "rus")
]
FORMS = {noun: (noun[::-1] + "o", noun[::-1] + "i") for noun in NOUNS}


def sentence(a: str, b: str, chance: random.Random) -> Pair:
    return f"the {a} sees the {b}.", f"el {chance.choice(FORMS[a])} ve al {chance.choice(FORMS[b])}."


@pytest.fixture(scope="module")
def noun_pairs() -> list[Pair]:
    chance = random.Random(1)
    return [sentence(*chance.sample(NOUNS, 2), chance) for _ in range(400)]


@pytest.fixture(scope="module")
def noun_corpus(tmp_path_factory: pytest.TempPathFactory, noun_pairs: list[Pair]) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("nouns")
    return write_tsv(folder / "train.tsv", noun_pairs[:380]), write_tsv(folder / "dev.tsv", noun_pairs[380:])


@pytest.fixture(scope="module")
def marked(noun_pairs: list[Pair]) -> Tokenizer:
    return Tokenizer.train((text for pair in noun_pairs for text in pair), tags=("news",), terms=True)


@pytest.fixture(scope="module")
def stored(noun_corpus: tuple[str, str], marked: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    folder = tmp_path_factory.mktemp("stored")
    pairs, _ = tokenise(
        (CorpusSpec((noun_corpus[0],), tag="news"),), Tokenizers.of(marked), None, folder / "train.arrow"
    )
    mine_terms(pairs, Tokenizers.of(marked), folder)
    return pairs


@pytest.fixture(scope="module")
def found(stored: Pairs, marked: Tokenizer) -> Glossary:
    return Glossary(
        [Entry(source, tuple(targets), "any") for source, targets in find_terms(stored, Tokenizers.of(marked))]
    )


def test_the_words_of_two_languages_that_go_together_are_terms_and_function_words_are_not(found: Glossary):
    terms = {entry.source: set(entry.targets) for entry in found.entries}
    assert not {"the", "sees"} & {word for term in terms for word in term.split()}
    right = [noun for noun in NOUNS if terms.get(noun, set()) <= set(FORMS[noun]) and noun in terms]
    assert len(right) > 0.8 * len(NOUNS)


def test_terms_may_have_several_words_and_words_without_spaces(tmp_path: Path):
    first, second = {"ulan": "乌", "mexico": "墨", "new": "新"}, {"bator": "兰", "city": "城", "port": "港"}
    places = [(f"we are in {a} {b} now", f"我在{first[a]}{second[b]}里") for a in first for b in second] * 3
    corpus = write_tsv(tmp_path / "x.tsv", places + [(f"the {noun}", "的") for noun in NOUNS] * 3)
    tokenizer = Tokenizer.train((text for pair in places for text in pair), terms=True)
    pairs, _ = tokenise((CorpusSpec((corpus,)),), Tokenizers.of(tokenizer), None, tmp_path / "x.arrow")
    terms = dict(find_terms(pairs, Tokenizers.of(tokenizer)))
    assert (terms["ulan bator"], terms["port"]) == (["乌兰"], ["港"])


def split_terms(ids: Sequence[int], tokenizer: Tokenizer) -> tuple[Ids, list[str]]:
    """The source without its terms, and the terms."""
    begin, end = tokenizer.term_marks
    plain: Ids = []
    terms: list[Ids] = []
    inside = False
    for id in ids:
        if id == begin:
            terms.append([])
        elif inside and id != end:
            terms[-1].append(id)
        elif id != end:
            plain.append(id)
        inside = id == begin or (inside and id != end)
    return plain, [tokenizer.decode(term) for term in terms]


def test_a_term_stands_behind_its_source_between_marks(marked: Tokenizer):
    text = "the balar sees the demen."
    ids = insert_terms(marked.encode(text, "news"), [(9, "ralabo"), (24, "nemedi")], marked)
    begin, end = marked.term_marks
    pieces = ["the balar", [begin], "ralabo", [end], "sees the demen", [begin], "nemedi", [end]]
    expected = [id for piece in pieces for id in (marked.encode(piece) if isinstance(piece, str) else piece)]
    assert ids == [*marked.tag_ids("news"), *expected, ids[-1]]
    assert marked.decode(ids[-1:]).strip() == "."
    assert split_terms(ids, marked) == (marked.encode(text, "news"), ["ralabo", "nemedi"])


def test_a_share_of_the_sources_has_terms_of_their_targets_and_nothing_else_changes(
    stored: Pairs, marked: Tokenizer, found: Glossary
):
    indices = np.arange(len(stored))
    sources, targets = (stored.rows(indices, side) for side in (SOURCE, TARGET))
    terms = SourceTerms(found, Tokenizers.of(marked), 0.3)
    seen = [terms.annotate((1, 0, 5), *row) for row in zip(indices, sources, targets, strict=True)]
    parts = [split_terms(list(map(int, ids)), marked) for ids in seen]
    assert all(plain == source.tolist() for (plain, _), source in zip(parts, sources, strict=True))
    assert all(
        f" {term}" in marked.decode(ids.tolist()) for (_, own), ids in zip(parts, targets, strict=True) for term in own
    )
    assert 0.2 < sum(bool(own) for _, own in parts) / len(parts) < 0.4
    again = [terms.annotate((1, 0, 5), *row) for row in zip(indices, sources, targets, strict=True)]
    other = [terms.annotate((1, 1, 5), *row) for row in zip(indices, sources, targets, strict=True)]
    assert [list(ids) for ids in again] == [list(ids) for ids in seen] != [list(ids) for ids in other]


def test_terms_and_dropout_go_together_and_nothing_becomes_too_long(
    noun_corpus: tuple[str, str], marked: Tokenizer, found: Glossary, tmp_path: Path
):
    widest = []
    for longest in (16, None):
        pairs, _ = tokenise((CorpusSpec((noun_corpus[0],)),), Tokenizers.of(marked), longest, tmp_path / "x.arrow")
        terms, indices = SourceTerms(found, Tokenizers.of(marked), 1.0), np.arange(len(pairs))
        batch = pairs.batch(indices, ((marked, marked), 0.3, (1,)), partial(terms.annotate, (1,)))
        dropped = pairs.batch(indices, ((marked, marked), 0.3, (1,)))
        plain = [split_terms(row, marked)[0] for row in batch.source.tolist()]
        cut = [[id for id in row if id] for row in plain]
        assert cut == [[id for id in row if id] for row in dropped.source.tolist()]
        assert batch.labels.equal(dropped.labels)
        widest.append(batch.source.shape[1])
    assert widest[0] <= 16 < widest[1]


def test_two_processes_see_the_terms_that_one_sees(stored: Pairs, marked: Tokenizer, found: Glossary):
    def sources(size: int, rank: int) -> list[list[Ids] | None]:
        loop, terms = Loop.__new__(Loop), SourceTerms(found, Tokenizers.of(marked), 0.5)
        alone = SimpleNamespace(sync=SimpleNamespace(lockstep=False))
        group = SimpleNamespace(size=size, rank=rank)
        loop.run = SimpleNamespace(pairs=stored, tokenizer=marked, terms=terms, group=group, learner=alone)  # type: ignore[assignment]
        loop.settings = TrainingConfig(micro_batches=4)
        return [batch and batch.source.tolist() for batch in loop.micro_batches(np.arange(20), (1, 0, 3))]

    one, first, second = sources(1, 0), sources(2, 0), sources(2, 1)
    assert [first[0], second[1], first[2], second[3]] == one
    assert first[1] is second[0] is None
    assert any(mark in row for part in one if part for row in part for mark in marked.term_marks)


# Training.


def with_terms(corpus: tuple[str, str], out: Path, **training: Any) -> RunConfig:
    return run_config(corpus, out, **{"max_steps": 4, "validate_every": 4, "terms": 0.5, **training})


@pytest.fixture(scope="module")
def whole(noun_corpus: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Notebook:
    return run_training(with_terms(noun_corpus, tmp_path_factory.mktemp("runs") / "whole"))


def test_a_resumed_run_sees_the_same_terms_and_its_folder_says_that_it_had_them(
    noun_corpus: tuple[str, str], whole: Notebook, tmp_path: Path, dragoman: Callable[..., Ran]
):
    losses = []
    for steps in (2, 4):
        losses += run_training(with_terms(noun_corpus, tmp_path / "parts", max_steps=steps)).losses
        for file in (tmp_path / "parts" / "data").glob("terms.*"):
            file.unlink()  # they are mined anew
    assert losses == whole.losses
    assert state(tmp_path / "parts") == state(whole.run)
    other = run_training(with_terms(noun_corpus, tmp_path / "other", terms=0.0))
    assert not set(other.losses) & set(whole.losses)  # the control
    assert [(out / "data" / FILE).exists() for out in (whole.run, tmp_path / "other")] == [True, False]
    for name, had in (("parts", True), ("other", False)):
        extent = SourceExtent.load(find_model(tmp_path / name))
        assert extent
        assert extent.terms == had
        assert ("terms" in dragoman("info", tmp_path / name).out) == had
        assert bool(Tokenizer.load(find_model(tmp_path / name) / "tokenizer.json").term_marks) == had


def test_the_other_engine_reads_the_terms_too(whole: Notebook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """It cannot be made to say them: a term without a place is flagged."""
    pytest.importorskip("ctranslate2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    glossary = Glossary([Entry(noun, (FORMS[noun][0],)) for noun in NOUNS[:5]])
    texts = [f"the {a} sees the {b}." for a, b in zip(NOUNS[:10], NOUNS[5:15], strict=True)]
    native, other = (
        Translator.load(whole.run, SearchConfig(beam=1), Safeguards(glossary=glossary), engine=engine)
        for engine in ("native", "ctranslate2")
    )
    sources = [
        insert_terms(native.tokenizers.source.encode(text), [(9, "ralabo")], native.tokenizers.source) for text in texts
    ]
    assert [one.tokens for one in native.search_ids(sources)] == [one.tokens for one in other.search_ids(sources)]
    for text, translation in zip(texts, other.translate(texts), strict=True):
        missed = len(glossary.find(text)) - len(translation.terms_met)
        assert missed == sum(flag.startswith("no ") for flag in translation.flags)


def test_a_run_that_starts_from_a_model_without_the_marks_gets_them(noun_corpus: tuple[str, str], tmp_path: Path):
    run_training(with_terms(noun_corpus, tmp_path / "old", terms=0.0, max_steps=1))
    config = dataclasses.replace(
        with_terms(noun_corpus, tmp_path / "new", max_steps=1), vocabulary=None, init_from=str(tmp_path / "old")
    )
    run_training(config)
    old, new = (Tokenizer.load(tmp_path / name / "data" / "tokenizer.json") for name in ("old", "new"))
    assert new.pieces == [*old.pieces, *TERM_MARKS]


def test_a_corpus_without_terms_is_refused(corpus: tuple[str, str], tmp_path: Path):
    """Each of its words is in too many of its pairs."""
    with pytest.raises(DragomanError, match=r"training\.terms: the training pairs have no terms"):
        run_training(with_terms(corpus, tmp_path / "run"))


# Translation.


class ObedientEngine:
    """Copies the terms of a source, or knows none; remembers the sources."""

    max_positions: int | None = None
    forces_terms = True

    def __init__(self, tokenizer: Tokenizer, obeys: bool):
        self.tokenizer, self.obeys, self.sources = tokenizer, obeys, list[Ids]()

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        self.sources += sources
        terms = [split_terms(ids, self.tokenizer)[1] for ids in sources]
        said = [own[0] if own and self.obeys else "ralabo" for own in terms]
        return [[Hypothesis(self.tokenizer.encode(f"el {word} ve."), -1.0)] for word in said]


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("obeys", [True, False])
def test_a_model_gets_the_terms_it_can_read_and_those_it_misses_are_put_in_place(
    marked: Tokenizer, monkeypatch: pytest.MonkeyPatch, trained: bool, obeys: bool
):
    calls = []

    def place(self: Any, segments: Any, hypotheses: Any, alpha: float) -> list[Hypothesis]:
        calls.append(len(segments))
        return [Hypothesis(marked.encode("el nemedi ve."), -2.0)] * len(segments)

    monkeypatch.setattr(placement.TermPlacer, "place", place)
    safeguards = Safeguards(faults=False, glossary=Glossary([Entry("balar", ("nemedi",))]))
    engine, extent = ObedientEngine(marked, obeys), SourceExtent(1, 50, terms=trained)
    translator = Translator(build(TINY, len(marked)), marked, SearchConfig(beam=1), safeguards, engine, extent=extent)
    translation = translator.translate("the balar sees.", "news")
    assert (translation.text, translation.terms_met) == ("el nemedi ve.", ("balar",))
    assert split_terms(engine.sources[0], marked) == (marked.encode("the balar sees.", "news"), ["nemedi"] * trained)
    assert calls == [1] * (not (trained and obeys))
