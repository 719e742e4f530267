"""Greedy and beam search, held against searches that are too slow to be wrong."""

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from conftest import tiny_transformer
from torch import Tensor

from dragoman.config import AttentionConfig, RecurrentConfig
from dragoman.decoding.processors import Processor
from dragoman.decoding.search import BeamSearch, Hypothesis, OutputSpec, greedy_search, length_penalty
from dragoman.model import Model, build

PAD, BOS, EOS, WORDS = 0, 1, 2, 5  # a vocabulary so small that every output can be tried

SMALL = tiny_transformer(decoder_layers=2, share="none", max_length=32)
MODELS = {
    "sinusoidal": SMALL,
    "learned, pre-norm": dataclasses.replace(SMALL, positions="learned", norm_first=True),
    "rotary": dataclasses.replace(SMALL, positions="rotary"),
    "relative": dataclasses.replace(SMALL, positions="relative"),
    "additive": dataclasses.replace(SMALL, attention=AttentionConfig(heads=2, score="additive")),
    "lstm": RecurrentConfig(d_model=16, layers=2, share="none"),
    "gru without attention": RecurrentConfig(cell="gru", d_model=16, attention="none", share="none"),
}
# Sentences of several lengths, so that batches are padded.
SENTENCES = [[3, 4, 3, 3, 4, 2], [4, 2], [3, 3, 4, 2], [4, 4, 4, 3, 2]]
LIMITS = [9, 3, 12, 1]
WIDE = 341  # all outputs of at most 4 tokens: 1 + 4 + 16 + 64 that end, 256 that are cut off


def make(name: str, seed: int = 0) -> Model:
    """A model with opinions: fresh ones find everything about equally likely."""
    torch.manual_seed(seed)
    model = build(MODELS[name], WORDS).eval()
    with torch.no_grad():
        model.output.weight.mul_(2)
    return model


def sources(sentences: list[list[int]] = SENTENCES) -> Tensor:
    longest = max(map(len, sentences))
    return torch.tensor([[*sentence, *[PAD] * (longest - len(sentence))] for sentence in sentences])


def output(limits: list[int], alpha: float = 0.0, processors: Sequence[Processor] = ()) -> OutputSpec:
    return OutputSpec(BOS, EOS, torch.tensor(limits), alpha, processors)


def beam(model: Any, source: Tensor, beams: int, limits: list[int], alpha: float = 0.6) -> list[list[Hypothesis]]:
    return BeamSearch(model, source, output(limits, alpha), beams=beams).run()


def greedy(model: Any, source: Tensor, limits: list[int], alpha: float = 0.0) -> list[Hypothesis]:
    return greedy_search(model, source, output(limits, alpha))


def log_probability(model: Model, sentence: list[int], tokens: list[int]) -> float:
    """Of the tokens after the start, in one pass."""
    with torch.inference_mode():
        log_p = model(torch.tensor([sentence]), torch.tensor([[BOS, *tokens[:-1]]])).log_softmax(-1)[0]
    return float(log_p.gather(1, torch.tensor(tokens)[:, None]).sum())


def rescored(model: Model, sentence: list[int], found: Hypothesis, alpha: float) -> float:
    tokens = [*found.tokens, EOS] if found.finished else found.tokens
    return log_probability(model, sentence, tokens) / length_penalty(len(tokens), alpha)


def all_outputs(model: Model, sentence: list[int], longest: int, alpha: float) -> dict[tuple[int, ...], float]:
    """Every output of at most `longest` tokens, end included, and its score: the oracle."""
    found: dict[tuple[int, ...], float] = {}
    words = [word for word in range(WORDS) if word != EOS]
    for length in range(longest + 1):
        outputs = list(itertools.product(words, repeat=length))
        ended = torch.tensor([[BOS, *tokens, EOS][: longest + 1] for tokens in outputs])
        with torch.inference_mode():
            log_p = model(torch.tensor([sentence] * len(outputs)), ended[:, :-1]).log_softmax(-1)
        scores = log_p.gather(2, ended[:, 1:, None]).sum((1, 2)) / length_penalty(ended.size(1) - 1, alpha)
        found |= dict(zip(outputs, scores.tolist(), strict=True))
    return found


def plain_beam_search(model: Model, sentence: list[int], beams: int, limit: int, alpha: float) -> list[tuple]:
    """Beam search as in a textbook: one sentence, no cache, no early end."""
    open_: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    for length in range(1, limit + 1):
        candidates = []
        for total, tokens in open_:
            with torch.inference_mode():
                log_p = model(torch.tensor([sentence]), torch.tensor([[BOS, *tokens]])).log_softmax(-1)[0, -1]
            candidates += [(total + float(p), [*tokens, word]) for word, p in enumerate(log_p)]
        candidates.sort(key=lambda candidate: -candidate[0])
        finished += [(s / length_penalty(length, alpha), t[:-1]) for s, t in candidates[:beams] if t[-1] == EOS]
        open_ = [candidate for candidate in candidates if candidate[1][-1] != EOS][:beams]
    finished += [(s / length_penalty(limit, alpha), t) for s, t in open_]
    return sorted(finished, key=lambda hypothesis: -hypothesis[0])[:beams]


def ids(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in found]


@pytest.mark.parametrize("name", MODELS)
def test_a_beam_of_one_is_greedy_search(name: str):
    model = make(name)
    one = [hypotheses[0] for hypotheses in beam(model, sources(), 1, LIMITS, alpha=0.0)]
    two = greedy(model, sources(), LIMITS)
    assert same(one, two)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_beam_as_wide_as_the_space_finds_everything_in_order(name: str, alpha: float):
    model, sentence = make(name), SENTENCES[0]
    expected = all_outputs(model, sentence, 4, alpha)
    found = beam(model, sources([sentence]), WIDE, [4], alpha)[0]
    assert len(found) == len(expected) == WIDE
    assert {tuple(h.tokens): h.score for h in found} == pytest.approx(expected, abs=1e-5)
    assert tuple(found[0].tokens) == max(expected, key=expected.__getitem__)


def test_a_narrow_beam_does_not_find_the_best_everywhere():
    """The control for the test above: finding the best takes width."""
    misses = 0
    for seed in range(20):
        model, sentence = make("sinusoidal", seed), SENTENCES[0]
        best = max(all_outputs(model, sentence, 4, 0.6).values())
        misses += beam(model, sources([sentence]), 1, [4])[0][0].score < best - 1e-4
    assert misses


def test_the_oracle_minds_the_length_penalty():
    """The control: scored without the penalty, another output is best somewhere."""
    best = []
    for alpha in (0.0, 1.0):
        for seed in range(20):
            scores = all_outputs(make("sinusoidal", seed), SENTENCES[0], 4, alpha)
            best.append(max(scores, key=scores.__getitem__))
    assert best[:20] != best[20:]


@pytest.mark.parametrize("name", ["sinusoidal", "relative", "lstm"])
@pytest.mark.parametrize("alpha", [-0.5, 0.0, 0.6, 2.0])
def test_ending_early_changes_nothing(name: str, alpha: float):
    model = make(name)
    found = beam(model, sources(), 3, [10] * 4, alpha)
    for sentence, hypotheses in zip(SENTENCES, found, strict=True):
        expected = plain_beam_search(model, sentence, 3, 10, alpha)
        assert [h.tokens for h in hypotheses] == [tokens for _, tokens in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in expected], abs=1e-5)


def same(one: list[Hypothesis], other: list[Hypothesis]) -> bool:
    """Whether they have the same tokens in the same order, and nearly the same scores."""
    words = [[(h.tokens, h.finished) for h in hypotheses] for hypotheses in (one, other)]
    return words[0] == words[1] and [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_sentence_alone_is_translated_as_in_a_batch(name: str):
    model = make(name)
    together, greedily = beam(model, sources(), 3, LIMITS), greedy(model, sources(), LIMITS)
    for row, (sentence, limit) in enumerate(zip(SENTENCES, LIMITS, strict=True)):
        assert same(beam(model, sources([sentence]), 3, [limit])[0], together[row])
        assert same(greedy(model, sources([sentence]), [limit]), [greedily[row]])


def test_searches_that_take_their_steps_in_turn_find_what_each_finds_alone():
    model, seen = make("sinusoidal"), []
    alone = [beam(model, sources([sentence]), 3, [9]) for sentence in SENTENCES]
    searches = [
        BeamSearch(model, sources([sentence]), output([9], 0.6), 3, observe=lambda *step: seen.append(step))
        for sentence in SENTENCES
    ]
    steps = 0
    while any(not search.done for search in searches):
        for search in searches:
            if not search.done:
                search.step()
                steps += 1
    assert [search.finished.hypotheses() for search in searches] == alone
    assert len(seen) == steps
    for so_far, log_p, step in seen:  # what an observer is shown belongs together
        total = (so_far[..., None] + log_p).flatten(1)
        kept = step.score > -torch.inf
        assert torch.equal(total.gather(1, step.beam * WORDS + step.token)[kept], step.score[kept])


def test_the_order_of_a_batch_changes_nothing():
    model = make("sinusoidal")
    forwards = ids(beam(model, sources(), 3, LIMITS))
    assert ids(beam(model, sources(SENTENCES[::-1]), 3, LIMITS[::-1])) == forwards[::-1]


def test_a_model_that_looks_at_padding_translates_differently_in_a_batch():
    """The control for the tests above."""
    model = make("sinusoidal")
    model.pad = -1
    together = beam(model, sources(), 3, LIMITS)
    alone = [beam(model, sources([s]), 3, [limit])[0] for s, limit in zip(SENTENCES, LIMITS, strict=True)]
    scores = [[h.score for hypotheses in found for h in hypotheses] for found in (together, alone)]
    assert scores[0] != pytest.approx(scores[1], abs=1e-5)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_scores_are_those_of_one_pass_over_the_result(name: str, alpha: float):
    model = make(name)
    greedily = [[hypothesis] for hypothesis in greedy(model, sources(), LIMITS, alpha)]
    for found in (beam(model, sources(), 3, LIMITS, alpha), greedily):
        for sentence, hypotheses in zip(SENTENCES, found, strict=True):
            expected = [rescored(model, sentence, h, alpha) for h in hypotheses]
            assert [h.score for h in hypotheses] == pytest.approx(expected, abs=1e-5)


def test_scores_of_another_sentence_are_others():
    """The control for the test above."""
    model = make("sinusoidal")
    found = beam(model, sources(), 3, LIMITS)[0]
    expected = [rescored(model, SENTENCES[1], h, 0.6) for h in found]
    assert [h.score for h in found] != pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("length", "penalty"), [(1, 1.0), (5, 1.3587), (10, 1.7329), (20, 2.3544)])
def test_the_length_penalty_is_that_of_the_formula(length: int, penalty: float):
    """Wu et al. 2016, equation 14, at alpha 0.6."""
    assert length_penalty(length, 0.6) == pytest.approx(penalty, abs=5e-5)
    assert length_penalty(length, 0.0) == 1


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("beams", [1, 3])
def test_no_output_is_longer_than_its_limit(name: str, beams: int):
    found = beam(make(name), sources(), beams, LIMITS)
    found += [[hypothesis] for hypothesis in greedy(make(name), sources(), LIMITS)]
    for limit, hypotheses in zip(LIMITS * 2, found, strict=True):
        for hypothesis in hypotheses:
            assert len(hypothesis.tokens) + hypothesis.finished <= limit
            assert EOS not in hypothesis.tokens


def test_an_output_is_unfinished_only_where_it_was_cut_off():
    found = [h for seed in range(5) for h in beam(make("sinusoidal", seed), sources(), 3, [4] * 4)]
    hypotheses = list(itertools.chain.from_iterable(found))
    assert {h.finished for h in hypotheses} == {True, False}
    assert all(h.finished or len(h.tokens) == 4 for h in hypotheses)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("beams", [2, 5, 40])
def test_the_best_hypotheses_are_in_order_and_all_different(name: str, beams: int):
    """Also with a beam wider than the vocabulary, and wider than there are outputs (a limit of 1)."""
    for hypotheses in beam(make(name), sources(), beams, LIMITS):
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({(tuple(h.tokens), h.finished) for h in hypotheses}) == len(hypotheses)


@pytest.mark.parametrize("beams", [1, 2, 5, 40])
def test_there_are_as_many_hypotheses_as_were_asked_for_or_as_there_are(beams: int):
    outputs = {9: 10**9, 3: 1 + 4 + 16 + 64, 12: 10**9, 1: 1 + 4}
    found = beam(make("sinusoidal"), sources(), beams, LIMITS)
    assert [len(hypotheses) for hypotheses in found] == [min(beams, outputs[limit]) for limit in LIMITS]


def test_one_token_is_the_most_likely_one_where_the_limit_is_one():
    model = make("sinusoidal")
    found = greedy(model, sources([SENTENCES[0]]), [1])[0]
    with torch.inference_mode():
        best = int(model(torch.tensor([SENTENCES[0]]), torch.tensor([[BOS]]))[0, -1].argmax())
    assert (found.tokens, found.finished) == (([], True) if best == EOS else ([best], False))


# A model of ten lines, whose best path is known.

A, B, C = 3, 4, 5
TRAP = {BOS: {A: 0.6, B: 0.4}, A: {C: 0.5, EOS: 0.5}, B: {EOS: 0.9, C: 0.1}, C: {EOS: 1.0}}


@dataclass
class Nothing:
    rows: int

    def select(self, rows: Tensor) -> None:
        self.rows = len(rows)


class Chain:
    """The next word depends on the last one alone."""

    def __init__(self, chances: dict[int, dict[int, float]]):
        self.log_p = torch.full((6, 6), 1e-9)
        for word, following in chances.items():
            for after, chance in following.items():
                self.log_p[word, after] = chance
        self.log_p.log_()

    def start(self, source: Tensor) -> Nothing:
        return Nothing(len(source))

    def step(self, tokens: Tensor, state: Nothing) -> Tensor:
        assert len(tokens) == state.rows
        return self.log_p[tokens]


def test_greedy_search_walks_into_the_trap():
    found = greedy(Chain(TRAP), sources(), [5] * 4)
    assert [h.tokens for h in found] in ([[A]] * 4, [[A, C]] * 4)
    assert [h.score for h in found] == pytest.approx([torch.tensor(0.3).log().item()] * 4, abs=1e-5)


def test_a_beam_of_two_does_not_walk_into_the_trap():
    found = beam(Chain(TRAP), sources(), 2, [5] * 4, alpha=0.0)
    assert [hypotheses[0].tokens for hypotheses in found] == [[B]] * 4
    assert found[0][0].score == pytest.approx(torch.tensor(0.36).log().item(), abs=1e-5)


def test_a_model_that_never_ends_is_cut_off():
    found = beam(Chain({BOS: {A: 1.0}, A: {A: 1.0}}), sources(), 1, LIMITS)
    assert [(h.tokens, h.finished) for hypotheses in found for h in hypotheses] == [([A] * n, False) for n in LIMITS]


def test_a_model_that_ends_at_once_says_nothing():
    found = beam(Chain({BOS: {EOS: 1.0}}), sources(), 1, LIMITS)
    assert [(h.tokens, h.finished) for hypotheses in found for h in hypotheses] == [([], True)] * 4


def test_a_longer_output_wins_with_a_length_penalty():
    """Ending at once has 0.5, going on for eight words 0.45 in all."""
    chain = Chain({BOS: {EOS: 0.5, A: 0.45, B: 0.05}, A: {B: 1.0}, B: {C: 1.0}, C: {EOS: 1.0}})
    assert beam(chain, sources(), 3, [9] * 4, alpha=0.0)[0][0].tokens == []
    assert beam(chain, sources(), 3, [9] * 4, alpha=1.0)[0][0].tokens == [A, B, C]
