"""Search for outputs with terms, held against all outputs that have them."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_search import (
    BOS,
    EOS,
    LIMITS,
    SENTENCES,
    SMALL,
    WIDE,
    A,
    B,
    C,
    Chain,
    all_outputs,
    beam,
    make,
    output,
    rescored,
    same,
    sources,
)
from torch import Tensor

from dragoman.decoding.engine import Term
from dragoman.decoding.processors import Forbidden, MinimumLength, NoRepeat, Prefix, Processor
from dragoman.decoding.search import BeamSearch, Hypothesis, finish
from dragoman.decoding.terms import OPEN, STEM, WORD, Candidates, TermTable, constrained_search, rank_in_group
from dragoman.model import build

MODEL, SENTENCE = make("sinusoidal"), SENTENCES[0]
CPU = torch.device("cpu")
Terms = tuple[Term, ...]

CASES: dict[str, Terms] = {
    "one token": (((3,),),),
    "one that a model never says": (((0,),),),
    "two tokens": (((3, 4),),),
    "two terms": (((3,),), ((4,),)),
    "either": (((3, 4), (4, 3, 1)),),
    "one inside the other": (((3,), (3, 4)),),
    "overlapping": (((3, 4),), ((4, 1),)),
    "the same prefix": (((3, 4),), ((3, 1),)),
    "a term and its beginning": (((3, 4),), ((3,),)),
    "twice": (((3,),), ((3,),)),
    "two tokens twice": (((3, 4),), ((3, 4),)),
    "a pair twice, and itself doubled": (((3, 3),), ((3, 3),)),
    "either, twice": (((3,), (4, 4)), ((4, 4), (3,))),
    "a false start": (((3, 3, 4),),),
    "three": (((3,),), ((4,),), ((1,),)),
    "more than there is room for": (((3, 4, 1),), ((0, 0),)),
}
TERM: Terms = (((3, 4),),)
# What the words of the vocabulary begin and end with.
WORDS_ONLY = torch.tensor([(OPEN, OPEN), (OPEN, OPEN), (OPEN, OPEN), (OPEN, WORD), (WORD, WORD)])
STEMS = torch.tensor([(OPEN, OPEN), (OPEN, STEM), (OPEN, OPEN), (STEM, STEM), (STEM, OPEN)])


def search(
    terms: list[Terms],
    beams: int,
    limits: list[int],
    sentences: list[list[int]] | None = None,
    alpha: float = 0.6,
    model=MODEL,
    processors: Sequence[Processor] = (),
    **others: Any,
) -> list[list[Hypothesis]]:
    source, spec = sources(sentences or [SENTENCE] * len(terms)), output(limits, alpha, processors)
    return finish(constrained_search(model, source, terms, spec, beams=beams, **others))


def most(places: list[tuple[int, int]], start: int = 0) -> int:
    """How many of the spans are beside each other, at most: tried in all ways."""
    return max((1 + most(places, b) for a, b in places if a >= start), default=0)


def occurrences(term: Term, tokens: tuple[int, ...], boundaries: Tensor | None) -> int:
    said = (BOS, *tokens, EOS)
    spans = [
        (start, start + len(sequence))
        for sequence in term
        for start in range(1, len(said))
        if said[start : start + len(sequence)] == sequence
    ]
    return most([span for span in spans if boundaries is None or fits(said, *span, boundaries.tolist())])


def fits(said: tuple[int, ...], start: int, end: int, boundaries: list[list[int]]) -> bool:
    outside, inside = boundaries[said[start - 1]][1], boundaries[said[start]][0]
    goes_on = boundaries[said[end - 1]][1] == boundaries[said[end]][0] == WORD
    return not goes_on and (outside != inside or inside == OPEN)


def has(terms: Terms, tokens: list[int] | tuple[int, ...], boundaries: Tensor | None = None) -> bool:
    counts = Counter(tuple(sorted(set(term))) for term in terms)
    return all(occurrences(term, tuple(tokens), boundaries) >= count for term, count in counts.items())


def longest(terms: Terms) -> int:
    """Of outputs that have the longest sequence of each term, one after the other, end included."""
    return sum(max(map(len, term)) for term in terms) + 1


@cache
def everything(alpha: float) -> dict[tuple[int, ...], float]:
    """All outputs of at most 4 tokens, the end included, with their scores."""
    return all_outputs(MODEL, SENTENCE, 4, alpha)


def expected(terms: Terms, alpha: float = 0.6, boundaries: Tensor | None = None) -> dict[tuple[int, ...], float]:
    return {tokens: score for tokens, score in everything(alpha).items() if has(terms, tokens, boundaries)}


sequences = st.lists(st.sampled_from([0, 1, 3, 4]), min_size=1, max_size=3).map(tuple)
some_terms = st.lists(st.lists(sequences, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple)


def assert_all_are_found(terms: Terms, alpha: float = 0.6, boundaries: Tensor | None = None) -> None:
    found = search([terms], WIDE, [4], alpha=alpha, boundaries=boundaries)[0]
    if right := expected(terms, alpha, boundaries):
        assert {tuple(h.tokens): h.score for h in found} == pytest.approx(right, abs=1e-5)
        assert tuple(found[0].tokens) == max(right, key=right.__getitem__)
    else:
        assert found
        assert not any(h.finished for h in found)


@pytest.mark.parametrize(("name", "alpha"), zip(CASES, itertools.cycle([0.0, 0.6])))
def test_exhaustive_beam_finds_all_outputs_with_the_terms(name: str, alpha: float):
    assert_all_are_found(CASES[name], alpha)


@settings(max_examples=20)
@given(some_terms, st.sampled_from([None, WORDS_ONLY, STEMS]))
def test_wide_beam_finds_all_outputs_with_the_terms(terms: Terms, boundaries: Tensor | None):
    assert_all_are_found(terms, boundaries=boundaries)


def test_oracle_tells_outputs_with_the_terms_from_others():
    """The control for the tests above."""
    sizes = {name: len(expected(terms)) for name, terms in CASES.items()}
    assert all(0 < size < len(everything(0.6)) for name, size in sizes.items() if not name.startswith("more"))
    assert sizes["more than there is room for"] == 0
    doubled = CASES["a pair twice, and itself doubled"]
    with_terms = [(CASES["overlapping"], [3, 4, 1], None), (doubled, [3, 3, 3, 3], None)]
    with_terms += [(TERM, [3, 4], WORDS_ONLY), ((((1,),),), [1, 3], STEMS)]
    without = [(doubled, [3, 3, 3], None), ((((3,),),), [1, 3], STEMS)]
    without += [((((word,),),), [3, 4], WORDS_ONLY) for word in (3, 4)]
    assert all(has(*case) for case in with_terms)
    assert not any(has(*case) for case in without)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("beams", "spare"),
    [
        (1, 5),
        (3, 0),
        *(pytest.param(*other, marks=pytest.mark.slow) for other in [(1, 0), (2, 0), (2, 5), (3, 5), (5, 0), (5, 5)]),
    ],
)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_narrow_beam_meets_the_terms_where_the_length_allows(name: str, beams: int, spare: int, seed: int):
    limits = [longest(CASES[name]) + spare] * len(SENTENCES)
    found = search([CASES[name]] * len(SENTENCES), beams, limits, SENTENCES, model=make("sinusoidal", seed))
    assert all(hypotheses and all(has(CASES[name], h.tokens) for h in hypotheses) for hypotheses in found)


@settings(max_examples=30)
@given(some_terms, st.integers(1, 4), st.integers(0, 6), st.integers(0, 3))
def test_narrow_beam_meets_the_terms(terms: Terms, beams: int, spare: int, seed: int):
    found = search([terms], beams, [longest(terms) + spare], model=make("sinusoidal", seed))[0]
    assert found
    assert all(has(terms, h.tokens) for h in found)


@settings(max_examples=25)
@given(some_terms, st.integers(1, 4), st.sampled_from([WORDS_ONLY, STEMS]))
def test_whole_words_are_met_as_well(terms: Terms, beams: int, boundaries: Tensor):
    """Where each term has a sequence that may begin anywhere, as those of a glossary have."""
    anywhere = tuple((*term, (1, *term[0])) for term in terms)
    found = search([anywhere], beams, [longest(anywhere)], boundaries=boundaries)[0]
    assert found
    assert all(has(anywhere, h.tokens, boundaries) for h in found)


def test_beam_that_knows_no_terms_misses_them():
    """The control for the tests above."""
    free = beam(MODEL, sources(), 5, [10] * 4)
    assert not all(has(terms, hypotheses[0].tokens) for terms in CASES.values() for hypotheses in free)


def test_search_that_knows_no_words_breaks_them():
    """The control: here the model would rather go on with the word."""
    chain = Chain({BOS: {A: 1.0}, A: {B: 0.9, EOS: 0.1}, B: {EOS: 1.0}})
    boundaries = torch.tensor([(OPEN, OPEN)] * 3 + [(OPEN, WORD), (WORD, WORD), (WORD, WORD)])
    terms: list[Terms] = [(((A,),),)]
    assert search(terms, 4, [5], model=chain)[0][0].tokens == [A, B]
    assert search(terms, 4, [5], model=chain, boundaries=boundaries)[0][0].tokens == [A]


@pytest.mark.parametrize("name", ["sinusoidal", "rotary", "gru without attention"])
@pytest.mark.parametrize(
    ("beams", "n_best"),
    [(1, None), (40, 1), *(pytest.param(*other, marks=pytest.mark.slow) for other in [(40, None), (3, 1), (3, None)])],
)
def test_without_terms_it_is_beam_search(name: str, beams: int, n_best: int | None):
    model = make(name)
    for some in ((), (NoRepeat(2), MinimumLength(2, EOS)), (Prefix([[3], [4, 4], [], [3]], CPU),)):
        one = BeamSearch(model, sources(), output(LIMITS, 0.6, some), beams=beams, n_best=n_best).run()
        assert search([()] * 4, beams, LIMITS, SENTENCES, model=model, n_best=n_best, processors=some) == one


def test_sentence_alone_is_translated_as_in_a_batch():
    """Beside others with more, longer and fewer terms, or none."""
    cases = [*CASES.values(), ()]
    sentences = [sentence for _, sentence in zip(cases, itertools.cycle(SENTENCES), strict=False)]
    limits = [3 + place % 7 for place in range(len(cases))]
    together = search(cases, 3, limits, sentences)
    assert len(together) == len(cases)
    for place, found in enumerate(together):
        assert same(search([cases[place]], 3, [limits[place]], [sentences[place]])[0], found)


def test_neither_the_order_of_the_terms_nor_that_of_their_sequences_matters():
    terms: Terms = (((3, 4), (4, 3, 1)), ((1,),), ((0,), (3, 3)))
    turned = tuple(term[::-1] for term in terms[::-1])
    assert [h.tokens for h in search([terms], 3, [12])[0]] == [h.tokens for h in search([turned], 3, [12])[0]]


@pytest.mark.parametrize(
    ("name", "limit"), [(name, limit) for place, name in enumerate(CASES) for limit in range(1 + place % 2, 9, 2)]
)
def test_outputs_keep_the_limit_have_the_terms_and_model_scores(name: str, limit: int):
    found = search([CASES[name]], 3, [limit])[0]
    assert found
    for hypothesis in found:
        assert len(hypothesis.tokens) + hypothesis.finished <= limit
        assert has(CASES[name], hypothesis.tokens) or not hypothesis.finished
        assert rescored(MODEL, SENTENCE, hypothesis, 0.6) == pytest.approx(hypothesis.score, abs=1e-5)


def test_output_with_the_most_terms_is_returned_without_room():
    one, other = (3, 4, 1, 4), (0, 0, 0, 0)
    found = search([((one,), (other,))], 5, [4])[0]
    assert found
    assert {tuple(h.tokens) for h in found} <= {one, other}
    assert not any(h.finished for h in found)


def test_output_with_the_terms_comes_before_one_without_whatever_they_score():
    """The chain wants to say A and A and A; the term is what it never says."""
    chain = Chain({BOS: {A: 1.0}, A: {A: 1.0}, B: {A: 1.0}})
    for beams in (1, 4):
        found = search([(((B,),),)], beams, [6], model=chain)[0]
        assert found
        assert all(B in h.tokens for h in found)


def test_forbidden_words_are_not_said_for_a_term():
    """A term that is forbidden leaves the output unfinished."""
    found = search([(((3, 4), (1, 1)),)], 3, [8], processors=(Forbidden([[(3,)]], CPU),))[0]
    assert found
    assert all(3 not in h.tokens and has((((1, 1),),), h.tokens) for h in found)
    for beams, limit in [(3, 8), (40, 2)]:
        found = search([TERM], beams, [limit], processors=(Forbidden([[(3, 4)]], CPU),))[0]
        assert found
        assert not any(h.finished or has(TERM, h.tokens) for h in found)


def test_prefix_may_have_begin_or_complete_the_terms():
    for beginning in ([3], [3, 4], [4, 3]):
        found = search([TERM], 3, [8], processors=(Prefix([beginning], CPU),))[0]
        assert all(h.tokens[: len(beginning)] == beginning and has(TERM, h.tokens) for h in found)
    processors = (Prefix([[3, 3]], CPU), Forbidden([[(3, 3)]], CPU))
    assert [h.tokens for h in search([(((4,),),)], 3, [8], processors=processors)[0]] == [[3]]


def test_wider_beam_finds_better_outputs():
    """Six seeds and two terms: what is forced finds its place the better, the more there is to choose from."""
    terms: Terms = (((3, 4),), ((4, 1),))
    scores = [
        sum(search([terms], beams, [10], model=make("sinusoidal", seed))[0][0].score for seed in range(6))
        for beams in (1, 4, 16)
    ]
    assert scores == sorted(scores)
    assert scores[0] < scores[-1] - 0.1


def test_hypothesis_with_the_terms_ends_however_improbable_it_is():
    """The word is improbable; what the model would rather say fills all the first places at each step."""
    chain = Chain({BOS: {A: 1.0}, A: {A: 0.4, C: 0.3, EOS: 0.2, 1: 0.1}, C: {A: 1.0}, B: {EOS: 0.9, A: 0.1}})
    found = search([(((B,),),)], 2, [6], model=chain, alpha=0.0)[0]
    assert (found[0].tokens, found[0].finished) == ([B], True)


def test_sentence_goes_on_after_a_term_with_another_word():
    """The model would rather make a longer word of it, in three ways."""
    chain = Chain({BOS: {A: 1.0}, A: {B: 0.5, 1: 0.3, 0: 0.15, C: 0.05}, C: {EOS: 1.0}})
    inside, other = (WORD, WORD), (OPEN, WORD)
    boundaries = torch.tensor([inside, inside, (OPEN, OPEN), other, inside, other])
    assert search([(((A,),),)], 1, [5], model=chain, boundaries=boundaries)[0][0].tokens == [A, C]


@pytest.fixture
def random_chain() -> Chain:
    torch.manual_seed(0)
    chain = Chain({})
    chain.log_p = torch.randn(50, 50)
    return chain


def test_forbidden_starts_do_not_hide_an_allowed_word(random_chain: Chain):
    random_chain.log_p[:, C] = -20
    boundaries = torch.tensor([(OPEN, OPEN)] * 3 + [(WORD, WORD)] * 47)
    boundaries[C] = torch.tensor([OPEN, WORD])
    terms = (tuple((word,) for word in (C, *range(6, 50))),) * 3
    assert has(terms, search([terms], 1, [4], model=random_chain, boundaries=boundaries)[0][0].tokens, boundaries)


def test_begun_terms_do_not_hide_a_nearly_met_term(random_chain: Chain):
    random_chain.log_p[BOS, 6], random_chain.log_p[:, 10] = 20, -20
    terms = (((6, 7, 8, 9, 10),), tuple((9, word, 11, 11, 11) for word in range(20, 45)))
    assert has(terms, search([terms], 1, [longest(terms)], model=random_chain)[0][0].tokens)


def test_banks_have_their_share_of_the_beams():
    """The first of each, that of the fullest first, and then the second of each; those that end have no share."""
    score = torch.tensor([[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0, -math.inf]])
    bank = torch.tensor([[0, 0, 0, 1, 1, 2, 3, 3, 4]])
    ended = torch.tensor([[False] * 6 + [True] + [False] * 2])
    nothing = TermTable.from_terms([()], CPU, None).start(9)
    found = Candidates(score, bank, bank, ended, bank, rank_in_group(bank), nothing)
    chosen = {beams: found.select_open(beams)[1].tolist()[0] for beams in (1, 2, 4, 6)}
    assert chosen == {1: [7], 2: [7, 0], 4: [7, 0, 3, 5], 6: [7, 0, 3, 5, 1, 4]}


def test_hundreds_of_terms_fit_into_memory_and_are_met():
    """Random words of a larger vocabulary, some of them several times."""
    torch.manual_seed(0)
    model = build(SMALL, 50).eval()
    terms = tuple(((word, 3 + word % 5), (word, word)) for word in torch.randint(3, 50, (150,)).tolist())
    found = search([terms], 4, [longest(terms)], model=model)[0]
    assert found
    assert all(has(terms, h.tokens) for h in found)
