"""Processors, sampling, groups and patience, held against all outputs of a toy vocabulary."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_search import (
    BOS,
    EOS,
    LIMITS,
    SENTENCES,
    WIDE,
    WORDS,
    all_outputs,
    greedy,
    log_probability,
    make,
    output,
    sources,
)

from dragoman.decoding.processors import Forbidden, MinimumLength, NoRepeat, Prefix, Processor
from dragoman.decoding.search import BeamAllocation, BeamSearch, Hypothesis, Sampling, greedy_search, sample

CPU = torch.device("cpu")
A, B = 3, 4

Allowed = Callable[[tuple[int, ...]], bool]


def repeats(tokens: tuple[int, ...], size: int) -> bool:
    windows = [tokens[start : start + size] for start in range(len(tokens) - size + 1)]
    return len(set(windows)) < len(windows)


def has(tokens: tuple[int, ...], sequence: tuple[int, ...]) -> bool:
    size = len(sequence)
    return any(tokens[start : start + size] == sequence for start in range(len(tokens) - size + 1))


CASES: dict[str, tuple[Processor, Allowed]] = {
    "minimum length": (MinimumLength(2, EOS), lambda tokens: len(tokens) >= 2),
    "no token twice": (NoRepeat(1), lambda tokens: not repeats(tokens, 1)),
    "no pair twice": (NoRepeat(2), lambda tokens: not repeats(tokens, 2)),
    "no word": (Forbidden([[[A]]], CPU), lambda tokens: A not in tokens),
    "no sequence": (Forbidden([[[A, B], [B, B, A]]], CPU), lambda t: not has(t, (A, B)) and not has(t, (B, B, A))),
    "prefix": (Prefix([[B, A]], CPU), lambda tokens: tokens[:2] == (B, A)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["sinusoidal", "lstm"])
def test_a_wide_beam_finds_all_that_is_allowed_and_nothing_else(case: str, name: str):
    processor, allowed = CASES[case]
    model, sentence = make(name), SENTENCES[0]
    everything = all_outputs(model, sentence, 4, 0.6)
    expected = {tokens: score for tokens, score in everything.items() if allowed(tokens)}
    (found,) = BeamSearch(model, sources([sentence]), output([4], 0.6, [processor]), beams=WIDE).run()
    assert {tuple(h.tokens): h.score for h in found} == pytest.approx(expected, abs=1e-5)
    assert 0 < len(expected) < len(everything)  # the control: the processor forbids something


@given(st.lists(st.lists(st.integers(A, 5), max_size=5), min_size=1, max_size=3), st.integers(1, 3))
def test_a_token_is_ruled_out_exactly_where_it_would_repeat(rows: list[list[int]], size: int):
    length = max(map(len, rows))
    padded = torch.tensor([[BOS, *[0] * (length - len(row)), *row] for row in rows])
    log_p = NoRepeat(size)(torch.zeros(len(rows), 6), padded, torch.arange(len(rows)))
    for row, scores in zip(padded[:, 1:].tolist(), log_p.tolist(), strict=True):
        for word, score in enumerate(scores):
            again = (*row[len(row) - size + 1 :], word) if len(row) >= size - 1 else None
            assert (score == -math.inf) == (again is not None and has(tuple(row), again))


def searches() -> dict[str, Callable[..., list[Hypothesis]]]:
    draws = torch.rand(len(SENTENCES), max(LIMITS), generator=torch.Generator().manual_seed(0))
    return {
        "greedy": greedy_search,
        "sample": lambda *arguments: sample(*arguments, Sampling(), draws),
        "beam": lambda *arguments: [hypotheses[0] for hypotheses in BeamSearch(*arguments, beams=3).run()],
    }


@pytest.mark.parametrize("search", ["greedy", "sample", "beam"])
def test_each_sentence_has_its_own_prefix_and_its_own_forbidden_words(search: str):
    prefixes, forbidden = [[A, B], [], [B], [B]], [[], [[A]], [[B, B]], []]
    processors = [Prefix(prefixes, CPU), Forbidden(forbidden, CPU)]
    found = searches()[search](make("sinusoidal"), sources(), output([6] * 4, 0.6, processors))
    free = searches()[search](make("sinusoidal"), sources(), output([6] * 4, 0.6))
    for hypothesis, prefix, sequences in zip(found, prefixes, forbidden, strict=True):
        assert hypothesis.tokens[: len(prefix)] == prefix
        assert not any(has(tuple(hypothesis.tokens), tuple(sequence)) for sequence in sequences)
    assert found[3].tokens != free[3].tokens or free[3].tokens[:1] == [B]
    assert [h.tokens for h in found] != [h.tokens for h in free]


@pytest.mark.parametrize("search", ["greedy", "sample", "beam"])
def test_where_nothing_may_be_said_the_output_ends(search: str):
    processors = [Forbidden([[[word] for word in range(WORDS)]] * len(SENTENCES), CPU)]
    found = searches()[search](make("sinusoidal"), sources(), output(LIMITS, 0.6, processors))
    assert [(h.tokens, h.finished) for h in found] == [([], True)] * len(SENTENCES)
    assert all(math.isfinite(h.score) for h in found)


def drawn(sampling: Sampling, number: int, sentence: list[int], longest: int = 3) -> list[Hypothesis]:
    """Many outputs of one sentence."""
    draws = torch.rand(number, longest, generator=torch.Generator().manual_seed(1))
    source = torch.tensor([sentence] * number)
    return sample(make("sinusoidal"), source, output([longest] * number), sampling, draws)


def test_outputs_come_as_often_as_the_model_says():
    sentence, number = SENTENCES[0], 4000
    expected = all_outputs(make("sinusoidal"), sentence, 3, 0.0)
    found = [tuple(hypothesis.tokens) for hypothesis in drawn(Sampling(), number, sentence)]
    for tokens, score in expected.items():
        chance = math.exp(score)
        assert abs(found.count(tokens) / number - chance) < 5 * math.sqrt(chance * (1 - chance) / number) + 1e-3
    flat = [tuple(hypothesis.tokens) for hypothesis in drawn(Sampling(temperature=100.0), number, sentence)]
    likeliest = max(expected, key=expected.__getitem__)
    assert found.count(likeliest) > 2 * flat.count(likeliest)  # the control: at a high temperature all are alike


def test_scores_of_samples_are_those_of_the_model_at_any_temperature():
    sentence = SENTENCES[0]
    for hypothesis in drawn(Sampling(temperature=3.0), 50, sentence):
        tokens = [*hypothesis.tokens, EOS] if hypothesis.finished else hypothesis.tokens
        assert hypothesis.score == pytest.approx(log_probability(make("sinusoidal"), sentence, tokens), abs=1e-5)


@pytest.mark.parametrize("sampling", [Sampling(top_k=1), Sampling(top_p=1e-6), Sampling(temperature=1e-3)])
def test_drawing_from_one_token_is_greedy_search(sampling: Sampling):
    sentence = SENTENCES[0]
    (best,) = greedy(make("sinusoidal"), sources([sentence]), [3])
    assert {tuple(h.tokens) for h in drawn(sampling, 50, sentence)} == {tuple(best.tokens)}
    assert len({tuple(h.tokens) for h in drawn(Sampling(), 50, sentence)}) > 5  # the control


@pytest.mark.parametrize(("sampling", "words"), [(Sampling(top_k=2), 2), (Sampling(top_p=0.6), None)])
def test_a_token_is_drawn_from_the_most_probable_ones_only(sampling: Sampling, words: int | None):
    sentence = SENTENCES[0]
    with torch.inference_mode():
        chances = make("sinusoidal")(torch.tensor([sentence]), torch.tensor([[BOS]]))[0, -1].softmax(-1)
    likely, order = chances.sort(descending=True)
    words = words or int((likely.cumsum(0) < 0.6).sum()) + 1
    found = {(h.tokens or [EOS])[0] for h in drawn(sampling, 500, sentence, 1)}
    assert found == set(order[:words].tolist())
    assert words < WORDS


def test_a_sample_does_not_depend_on_the_sentences_beside_it():
    draws = torch.rand(len(SENTENCES), max(LIMITS), generator=torch.Generator().manual_seed(0))
    together = sample(make("sinusoidal"), sources(), output(LIMITS), Sampling(), draws)
    for sentence, limit, own, expected in zip(SENTENCES, LIMITS, draws, together, strict=True):
        (alone,) = sample(make("sinusoidal"), sources([sentence]), output([limit]), Sampling(), own[None])
        assert alone.tokens == expected.tokens


def diverse(groups: int, diversity: float, beams: int = 4) -> list[list[Hypothesis]]:
    allocation = BeamAllocation(groups, diversity)
    return BeamSearch(make("sinusoidal"), sources(), output([6] * 4, 0.6), beams=beams, allocation=allocation).run()


def test_one_group_is_plain_beam_search():
    assert diverse(1, 5.0) == diverse(1, 0.0)


def test_groups_that_cost_nothing_find_the_same():
    """Two groups of two beams each, and nothing to keep them apart: two times a beam of two."""
    for both, one in zip(diverse(2, 0.0), diverse(1, 0.0, beams=2), strict=True):
        assert {tuple(h.tokens) for h in both} == {tuple(h.tokens) for h in one}


def test_groups_keep_away_from_each_other():
    def firsts(found: list[list[Hypothesis]]) -> int:
        return sum(len({tuple(h.tokens[:1]) for h in hypotheses}) for hypotheses in found)

    assert firsts(diverse(4, 10.0)) > firsts(diverse(1, 0.0))


def test_the_scores_of_diverse_hypotheses_are_without_the_cost():
    for sentence, hypotheses in zip(SENTENCES, diverse(2, 2.0), strict=True):
        for hypothesis in hypotheses:
            tokens = [*hypothesis.tokens, EOS] if hypothesis.finished else hypothesis.tokens
            expected = log_probability(make("sinusoidal"), sentence, tokens) / ((5 + len(tokens)) / 6) ** 0.6
            assert hypothesis.score == pytest.approx(expected, abs=1e-5)


def test_with_patience_the_search_ends_when_so_many_are_finished():
    """The exact end finds the best at least as well, and sometimes better."""

    def best(patience: float | None, seed: int) -> list[float]:
        model = make("sinusoidal", seed)
        found = BeamSearch(model, sources(), output([12] * 4, 2.0), beams=2, n_best=1, patience=patience).run()
        return [hypotheses[0].score for hypotheses in found]

    pairs = list(
        itertools.chain(*(zip(best(0.5, seed), best(None, seed), best(100.0, seed), strict=True) for seed in range(10)))
    )
    assert all(soon <= exact + 1e-6 and patient == pytest.approx(exact) for soon, exact, patient in pairs)
    assert any(soon < exact - 1e-3 for soon, exact, _ in pairs)


@pytest.mark.parametrize("search", ["greedy", "sample", "beam"])
@pytest.mark.parametrize("name", ["repetitions", "words", "ends"])
def test_what_is_forbidden_may_stand_in_a_prefix_and_not_behind_it(search: str, name: str):
    """The control: as processors of equal rank, they end the output where the prefix goes against the other."""
    prefixes = [[A, A, A, A], [], [B, A, B, A], []]
    others: dict[str, Processor] = {
        "repetitions": NoRepeat(1),
        "words": Forbidden([[[A]]] * 4, CPU),
        "ends": MinimumLength(5, EOS),
    }
    processors = [Prefix(prefixes, CPU, afterwards=[others[name]])]
    found = searches()[search](make("sinusoidal"), sources(), output([6] * 4, 0.6, processors))
    for hypothesis, prefix in zip(found, prefixes, strict=True):
        assert hypothesis.tokens[: len(prefix)] == prefix
        rest = hypothesis.tokens[len(prefix) :]
        if name == "repetitions":
            assert len(set(rest)) == len(rest)
            assert not set(rest) & set(prefix)
        elif name == "words":
            assert A not in rest
        else:
            assert len(hypothesis.tokens) >= 5
    control = [others[name], Prefix(prefixes, CPU)]
    found = searches()[search](make("sinusoidal"), sources(), output([6] * 4, 0.6, control))
    if name != "ends":  # no prefix goes against that
        assert found[0].tokens == {"repetitions": [A], "words": []}[name]


@pytest.mark.parametrize("diversity", [0.0, 0.1, 10.0])
def test_groups_never_give_the_same_twice(diversity: float):
    for hypotheses in diverse(2, diversity):
        found = [(tuple(h.tokens), h.finished) for h in hypotheses]
        assert len(set(found)) == len(found) > 1
