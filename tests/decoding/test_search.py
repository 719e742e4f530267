"""Greedy search, beam search, sampling and processors, held against searches that are too slow to be wrong."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import tiny_transformer
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dragoman.config import AttentionConfig, RecurrentConfig, SearchConfig
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.engine import Constraints, require_probabilities
from dragoman.decoding.ensemble import Ensemble
from dragoman.decoding.processors import Forbidden, MinimumLength, NoRepeat, Prefix, Processor
from dragoman.decoding.sampling import Sampling, drawn_from, sample
from dragoman.decoding.search import (
    BeamAllocation,
    BeamSearch,
    FinishedPool,
    Hypothesis,
    OutputSpec,
    Steps,
    finish,
    greedy_search,
    length_penalty,
)
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError
from dragoman.model import Model, build
from dragoman.model_folder import read_model, write_model
from dragoman.storage.writing import new_folder
from dragoman.translation.safeguards import NO_SAFEGUARDS
from dragoman.translation.translator import Translator

PAD, BOS, EOS, WORDS = 0, 1, 2, 5  # a vocabulary so small that every output can be tried
A, B, C = 3, 4, 5  # some words; C only in the chains below
CPU = torch.device("cpu")

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
SENTENCE = SENTENCES[0]
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
    return [hypothesis for (hypothesis,) in finish(greedy_search(model, source, output(limits, alpha)))]


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
        with torch.inference_mode():
            targets = torch.tensor([[BOS, *tokens] for _, tokens in open_])
            log_p = model(torch.tensor([sentence] * len(open_)), targets)[:, -1].log_softmax(-1).tolist()
        candidates = [
            (total + p, [*tokens, word])
            for (total, tokens), row in zip(open_, log_p, strict=True)
            for word, p in enumerate(row)
        ]
        candidates.sort(key=lambda candidate: -candidate[0])
        finished += [(s / length_penalty(length, alpha), t[:-1]) for s, t in candidates[:beams] if t[-1] == EOS]
        open_ = [candidate for candidate in candidates if candidate[1][-1] != EOS][:beams]
    finished += [(s / length_penalty(limit, alpha), t) for s, t in open_]
    return sorted(finished, key=lambda hypothesis: -hypothesis[0])[:beams]


def same(one: list[Hypothesis], other: list[Hypothesis]) -> bool:
    """Whether they have the same tokens in the same order, and nearly the same scores."""
    words = [[(h.tokens, h.finished) for h in hypotheses] for hypotheses in (one, other)]
    return words[0] == words[1] and [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_beam_of_one_is_greedy_search(name: str):
    model = make(name)
    one = [hypotheses[0] for hypotheses in beam(model, sources(), 1, LIMITS, alpha=0.0)]
    assert same(one, greedy(model, sources(), LIMITS))


@pytest.mark.parametrize(("name", "alpha"), zip(MODELS, itertools.cycle([0.0, 0.6])))
def test_beam_as_wide_as_the_space_finds_everything_in_order(name: str, alpha: float):
    model = make(name)
    expected = all_outputs(model, SENTENCE, 4, alpha)
    found = beam(model, sources([SENTENCE]), WIDE, [4], alpha)[0]
    assert len(found) == len(expected) == WIDE
    assert {tuple(h.tokens): h.score for h in found} == pytest.approx(expected, abs=1e-5)
    assert tuple(found[0].tokens) == max(expected, key=expected.__getitem__)


def test_finding_the_best_takes_width_and_the_penalty_changes_it():
    """The control for the test above."""
    misses = changes = 0
    for seed in range(8):
        model = make("sinusoidal", seed)
        plain, penalised = (all_outputs(model, SENTENCE, 4, alpha) for alpha in (0.0, 1.0))
        best = max(penalised, key=penalised.__getitem__)
        misses += beam(model, sources([SENTENCE]), 1, [4], alpha=1.0)[0][0].score < penalised[best] - 1e-4
        changes += best != max(plain, key=plain.__getitem__)
    assert misses
    assert changes


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("name", "alpha"),
    [*(("sinusoidal", alpha) for alpha in (-0.5, 0.0, 0.6, 2.0)), ("relative", 0.6), ("lstm", 0.6)],
)
def test_ending_early_changes_nothing(name: str, alpha: float, seed: int):
    model = make(name, seed)
    for beams in (1, 3):
        for sentence, found in zip(SENTENCES, beam(model, sources(), beams, [10] * 4, alpha), strict=True):
            expected = plain_beam_search(model, sentence, beams, 10, alpha)
            assert [h.tokens for h in found] == [tokens for _, tokens in expected]
            assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_sentence_alone_is_translated_as_in_a_batch(name: str):
    model = make(name)
    together, greedily = beam(model, sources(), 3, LIMITS), greedy(model, sources(), LIMITS)
    for row, (sentence, limit) in enumerate(zip(SENTENCES, LIMITS, strict=True)):
        assert same(beam(model, sources([sentence]), 3, [limit])[0], together[row])
        assert same(greedy(model, sources([sentence]), [limit]), [greedily[row]])
    backwards = beam(model, sources(SENTENCES[::-1]), 3, LIMITS[::-1])
    assert all(map(same, backwards[::-1], together))


def test_model_that_looks_at_padding_translates_differently_in_a_batch():
    """The control for the test above."""
    model = make("sinusoidal")
    model.pad = -1
    together = beam(model, sources(), 3, LIMITS)
    alone = [beam(model, sources([s]), 3, [limit])[0] for s, limit in zip(SENTENCES, LIMITS, strict=True)]
    assert not all(map(same, together, alone))


def test_searches_that_take_their_steps_in_turn_find_what_each_finds_alone():
    model, seen = make("sinusoidal"), []
    alone = [beam(model, sources([sentence]), 3, [9]) for sentence in SENTENCES]
    searches = [
        BeamSearch(model, sources([sentence]), output([9], 0.6), 3, observe=lambda *step: seen.append(step))
        for sentence in SENTENCES
    ]
    steps = 0
    while unfinished := [search for search in searches if not search.done]:
        for search in unfinished:
            search.step()
            steps += 1
    assert [search.finished.hypotheses for search in searches] == alone
    assert len(seen) == steps
    for so_far, log_p, step in seen:  # what an observer is shown belongs together
        total = (so_far[..., None] + log_p).flatten(1).numpy()
        kept = step.score > -math.inf
        chosen = np.take_along_axis(total, step.beam * WORDS + step.token, 1)
        assert np.array_equal(chosen[kept], step.score[kept])


@pytest.mark.parametrize(("name", "alpha"), zip(MODELS, itertools.cycle([0.6, 0.0])))
def test_scores_are_those_of_one_pass_over_the_result(name: str, alpha: float):
    model = make(name)
    greedily = [[hypothesis] for hypothesis in greedy(model, sources(), LIMITS, alpha)]
    for found in (beam(model, sources(), 3, LIMITS, alpha), greedily):
        for sentence, hypotheses in zip(SENTENCES, found, strict=True):
            expected = [rescored(model, sentence, h, alpha) for h in hypotheses]
            assert [h.score for h in hypotheses] == pytest.approx(expected, abs=1e-5)
        others = [rescored(model, SENTENCES[1], h, alpha) for h in found[0]]
        assert [h.score for h in found[0]] != pytest.approx(others, abs=1e-5)  # the control: of another sentence


@pytest.mark.parametrize("other", [SearchConfig(beam=1), SearchConfig(temperature=1.0, n_best=2), SearchConfig(beam=3)])
def test_search_steps_may_interleave_and_leave_no_mode_behind(other: SearchConfig):
    engine, prefixed = TorchEngine(make("sinusoidal")), [Constraints(prefix=(B, A))]
    beam_of_3, other = (dataclasses.replace(config, extra_length=8) for config in (SearchConfig(beam=3), other))

    def searches() -> list[Steps]:
        return [
            engine.search_batch([[A, B, A, A]], beam_of_3, prefixed),
            engine.search_batch([[A, B]], other, [Constraints()]),
            engine.search_batch([[B, A, B]], other, [Constraints()]),
        ]

    alone, waiting, found = [finish(steps) for steps in searches()], dict(enumerate(searches())), {}
    while waiting:
        for number, steps in list(waiting.items()):
            try:
                next(steps)
            except StopIteration as end:
                found[number] = end.value
                del waiting[number]
            assert not torch.is_inference_mode_enabled()
    assert [found[number] for number in range(3)] == alone
    for steps in searches():  # one that is left half-way
        next(steps)
        steps.close()
        assert not torch.is_inference_mode_enabled()


def test_mode_entered_inside_of_a_search_would_be_left_behind():
    """The control for the test above: why the searches are decorated instead."""

    def steps() -> Steps:
        with torch.inference_mode():
            yield
        return []

    waiting = steps()
    next(waiting)
    assert torch.is_inference_mode_enabled()
    assert finish(waiting) == []
    assert not torch.is_inference_mode_enabled()


def test_beams_stay_open_where_most_of_the_best_end():
    """Three of the four best continuations end here; as many as there are beams go on all the same."""
    log_p = torch.linspace(-9.0, -5.0, 18).view(1, 3, 6)
    log_p[..., EOS] = torch.tensor([-0.1, -0.2, -0.3])
    step = BeamAllocation().expand(np.zeros((1, 3), np.float32), log_p, EOS)
    going = log_p.clone()
    going[..., EOS] = -math.inf
    best, index = going.flatten(1).topk(3)
    assert np.array_equal(step.score, best.numpy())
    assert np.array_equal(6 * step.beam + step.token, index.numpy())
    assert np.array_equal(step.end_score, log_p[..., EOS].numpy())


@pytest.mark.parametrize(
    "config",
    [
        SearchConfig(1),
        SearchConfig(4, n_best=2),
        SearchConfig(4, beam_groups=2),
        SearchConfig(temperature=1.0, n_best=2),
        SearchConfig(temperature=1.0, top_k=3, top_p=0.9),
    ],
    ids=str,
)
def test_search_says_that_probabilities_are_not_numbers(config: SearchConfig):
    """The weights are finite, but what is computed with them is not. The control is the model as it was."""
    model = make("sinusoidal")
    assert all(TorchEngine(model).search([[3, 4], [4]], config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1e37)
    with pytest.raises(DragomanError, match="not numbers: its weights are damaged"):
        TorchEngine(model).search([[3, 4], [4]], config)


def test_results_of_dropped_sentences_need_no_probabilities():
    damaged = [[Hypothesis([3], -1.0)], [], [Hypothesis([3], math.nan)]]
    require_probabilities(damaged, dropped={1, 2})
    for missing in (1, 2):
        with pytest.raises(DragomanError, match="its weights are damaged"):
            require_probabilities(damaged, dropped={missing})


@pytest.mark.parametrize("config", [SearchConfig(1, extra_length=2), SearchConfig(3, extra_length=2)], ids=str)
def test_given_beginning_does_not_count_for_the_maximum_length(config: SearchConfig):
    """The control is the same search without it."""
    engine, source, tag, prefix = TorchEngine(make("learned, pre-norm")), [3, 4], (3,), (4, 3) * 5
    forever = dataclasses.replace(config, min_length=100)
    for beginning, least in ((Constraints(), 0), (Constraints(tag=tag, prefix=prefix), 11)):
        (best, *_) = engine.search([source], forever, [beginning])[0]
        assert best.tokens[:least] == [*beginning.tag, *beginning.prefix]
        assert len(best.tokens) == least + len(source) + 2
        assert not best.finished
    longest = engine.max_positions
    assert longest
    (best, *_) = engine.search([source], forever, [Constraints(prefix=(4, 3) * (longest // 2 - 1))])[0]
    assert len(best.tokens) == longest


def test_length_penalty_is_that_of_the_formula():
    """Wu et al. 2016, equation 14, at alpha 0.6."""
    assert [length_penalty(n, 0.6) for n in (1, 5, 10, 20)] == pytest.approx([1, 1.3587, 1.7329, 2.3544], abs=5e-5)
    assert length_penalty(5, 0.0) == 1


@pytest.mark.parametrize(
    ("name", "beams"),
    [(name, beams) for place, name in enumerate(MODELS) for beams in ((0, 1, 2, 5, 40) * 2)[place % 5 :][:2]],
)
def test_hypotheses_are_distinct_ordered_limited_and_complete(name: str, beams: int):
    """Zero stands for greedy search; 40 are more than the vocabulary, and than the outputs within a limit of 1."""
    if beams:
        found = beam(make(name), sources(), beams, LIMITS)
    else:
        found = [[hypothesis] for hypothesis in greedy(make(name), sources(), LIMITS)]
    outputs = {9: 10**9, 3: 1 + 4 + 16 + 64, 12: 10**9, 1: 1 + 4}
    for limit, hypotheses in zip(LIMITS, found, strict=True):
        assert len(hypotheses) == min(beams or 1, outputs[limit])
        assert len({(tuple(h.tokens), h.finished) for h in hypotheses}) == len(hypotheses)
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for hypothesis in hypotheses:
            assert len(hypothesis.tokens) + hypothesis.finished <= limit
            assert hypothesis.finished or len(hypothesis.tokens) == limit
            assert EOS not in hypothesis.tokens


# A model of ten lines, whose best path is known.

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


def test_greedy_search_falls_into_the_trap_and_two_beams_do_not():
    found = greedy(Chain(TRAP), sources(), [5] * 4)
    assert [h.tokens for h in found] in ([[A]] * 4, [[A, C]] * 4)
    assert [h.score for h in found] == pytest.approx([math.log(0.3)] * 4, abs=1e-5)
    best = [hypotheses[0] for hypotheses in beam(Chain(TRAP), sources(), 2, [5] * 4, alpha=0.0)]
    assert [h.tokens for h in best] == [[B]] * 4
    assert [h.score for h in best] == pytest.approx([math.log(0.36)] * 4, abs=1e-5)


@pytest.mark.parametrize(
    ("chances", "expected"),
    [
        ({BOS: {A: 1.0}, A: {A: 1.0}}, [([A] * limit, False) for limit in LIMITS]),
        ({BOS: {EOS: 1.0}}, [([], True)] * 4),
    ],
)
def test_endless_model_is_cut_off_and_a_silent_one_says_nothing(chances: dict, expected: list):
    found = beam(Chain(chances), sources(), 1, LIMITS)
    assert [(h.tokens, h.finished) for hypotheses in found for h in hypotheses] == expected


def test_longer_output_wins_with_a_length_penalty():
    """Ending at once has 0.5, going on for three words 0.45 in all."""
    chain = Chain({BOS: {EOS: 0.5, A: 0.45, B: 0.05}, A: {B: 1.0}, B: {C: 1.0}, C: {EOS: 1.0}})
    assert beam(chain, sources(), 3, [9] * 4, alpha=0.0)[0][0].tokens == []
    assert beam(chain, sources(), 3, [9] * 4, alpha=1.0)[0][0].tokens == [A, B, C]


# Processors.


def repeats(tokens: tuple[int, ...], size: int) -> bool:
    windows = [tokens[start : start + size] for start in range(len(tokens) - size + 1)]
    return len(set(windows)) < len(windows)


def has(tokens: Sequence[int], sequence: Sequence[int]) -> bool:
    size = len(sequence)
    return any(list(tokens[start : start + size]) == list(sequence) for start in range(len(tokens) - size + 1))


CASES: dict[str, tuple[Processor, Callable[[tuple[int, ...]], bool]]] = {
    "minimum length": (MinimumLength(2, EOS), lambda tokens: len(tokens) >= 2),
    "no token twice": (NoRepeat(1), lambda tokens: not repeats(tokens, 1)),
    "no pair twice": (NoRepeat(2), lambda tokens: not repeats(tokens, 2)),
    "no word": (Forbidden([[[A]]], CPU), lambda tokens: A not in tokens),
    "no sequence": (Forbidden([[[A, B], [B, B, A]]], CPU), lambda t: not has(t, (A, B)) and not has(t, (B, B, A))),
    "prefix": (Prefix([[B, A]], CPU), lambda tokens: tokens[:2] == (B, A)),
}


@pytest.mark.parametrize(("case", "name"), zip(CASES, itertools.cycle(["sinusoidal", "lstm"])))
def test_wide_beam_finds_all_that_is_allowed_and_nothing_else(case: str, name: str):
    (processor, allowed), model = CASES[case], make(name)
    everything = all_outputs(model, SENTENCE, 4, 0.6)
    expected = {tokens: score for tokens, score in everything.items() if allowed(tokens)}
    (found,) = BeamSearch(model, sources([SENTENCE]), output([4], 0.6, [processor]), beams=WIDE).run()
    assert {tuple(h.tokens): h.score for h in found} == pytest.approx(expected, abs=1e-5)
    assert 0 < len(expected) < len(everything)  # the control: the processor forbids something


@given(st.lists(st.lists(st.integers(A, 5), max_size=5), min_size=1, max_size=3), st.integers(1, 3))
def test_token_is_ruled_out_exactly_where_it_would_repeat(rows: list[list[int]], size: int):
    length = max(map(len, rows))
    padded = torch.tensor([[BOS, *[0] * (length - len(row)), *row] for row in rows])
    log_p = NoRepeat(size)(torch.zeros(len(rows), 6), padded, torch.arange(len(rows)))
    for row, scores in zip(padded[:, 1:].tolist(), log_p.tolist(), strict=True):
        for word, score in enumerate(scores):
            again = len(row) >= size - 1 and has(row, [*row[len(row) - size + 1 :], word])
            assert (score == -math.inf) == again


KEYS = torch.randint(2**62, (len(SENTENCES), max(LIMITS)), generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=["greedy", "sample", "beam"])
def search(request: pytest.FixtureRequest) -> Callable[..., list[Hypothesis]]:
    """A search that obeys processors: one hypothesis for each sentence."""

    def find(*processors: Processor) -> list[Hypothesis]:
        task = make("sinusoidal"), sources(), output([6] * len(SENTENCES), 0.6, processors)
        if request.param == "beam":
            steps = BeamSearch(*task, beams=3).steps()
        else:
            steps = greedy_search(*task) if request.param == "greedy" else sample(*task, Sampling(), KEYS)
        return [hypotheses[0] for hypotheses in finish(steps)]

    return find


def test_prefix_and_forbidden_words_belong_to_their_sentence(search):
    prefixes, forbidden = [[A, B], [], [B], [B]], [[], [[A]], [[B, B]], []]
    found, free = search(Prefix(prefixes, CPU), Forbidden(forbidden, CPU)), search()
    for hypothesis, prefix, sequences in zip(found, prefixes, forbidden, strict=True):
        assert hypothesis.tokens[: len(prefix)] == prefix
        assert not any(has(hypothesis.tokens, sequence) for sequence in sequences)
    assert found[3].tokens != free[3].tokens or free[3].tokens[:1] == [B]
    assert [h.tokens for h in found] != [h.tokens for h in free]


def test_output_ends_where_no_token_is_allowed(search):
    found = search(Forbidden([[[word] for word in range(WORDS)]] * len(SENTENCES), CPU))
    assert [(h.tokens, h.finished) for h in found] == [([], True)] * len(SENTENCES)
    assert all(math.isfinite(h.score) for h in found)


@pytest.mark.parametrize("name", ["repetitions", "words", "ends"])
def test_forbidden_words_may_stand_in_a_prefix_and_not_behind_it(search, name: str):
    prefixes = [[A, A, A, A], [], [B, A, B, A], []]
    processors = {"repetitions": NoRepeat(1), "words": Forbidden([[[A]]] * 4, CPU), "ends": MinimumLength(5, EOS)}
    found = search(Prefix(prefixes, CPU, afterwards=[processors[name]]))
    for tokens, prefix in zip([h.tokens for h in found], prefixes, strict=True):
        rest = tokens[len(prefix) :]
        assert tokens[: len(prefix)] == prefix
        if name == "repetitions":
            assert len(set(rest)) == len(rest)
            assert not set(rest) & set(prefix)
        else:
            assert A not in rest if name == "words" else len(tokens) >= 5
    if name != "ends":  # The control: of equal rank, they end the output where the prefix goes against the other.
        assert search(processors[name], Prefix(prefixes, CPU))[0].tokens == [A][: name == "repetitions"]


# Sampling.


def drawn(sampling: Sampling, number: int, longest: int = 3) -> list[Hypothesis]:
    """Many outputs of one sentence."""
    keys = torch.randint(2**62, (number, longest), generator=torch.Generator().manual_seed(1))
    task = make("sinusoidal"), sources([SENTENCE] * number), output([longest] * number), sampling, keys
    return [hypothesis for (hypothesis,) in finish(sample(*task))]


def test_outputs_come_as_often_as_the_model_says():
    number, expected = 4000, all_outputs(make("sinusoidal"), SENTENCE, 3, 0.0)
    found, flat = (Counter(tuple(h.tokens) for h in drawn(Sampling(heat), number)) for heat in (1.0, 100.0))
    for tokens, score in expected.items():
        chance = math.exp(score)
        assert abs(found[tokens] / number - chance) < 5 * math.sqrt(chance * (1 - chance) / number) + 1e-3
    likeliest = max(expected, key=expected.__getitem__)
    assert found[likeliest] > 2 * flat[likeliest]  # the control: at a high temperature all are alike


def test_scores_of_samples_are_those_of_the_model_at_any_temperature():
    model = make("sinusoidal")
    for hypothesis in drawn(Sampling(temperature=3.0), 50):
        assert hypothesis.score == pytest.approx(rescored(model, SENTENCE, hypothesis, 0.0), abs=1e-5)


@pytest.mark.parametrize("sampling", [Sampling(top_k=1), Sampling(top_p=1e-6), Sampling(temperature=1e-3)])
def test_drawing_from_one_token_is_greedy_search(sampling: Sampling):
    (best,) = greedy(make("sinusoidal"), sources([SENTENCE]), [3])
    assert {tuple(h.tokens) for h in drawn(sampling, 50)} == {tuple(best.tokens)}
    assert len({tuple(h.tokens) for h in drawn(Sampling(), 50)}) > 5  # the control


@pytest.mark.parametrize(("sampling", "words"), [(Sampling(top_k=2), 2), (Sampling(top_p=0.6), None)])
def test_token_is_drawn_from_the_most_probable_ones_only(sampling: Sampling, words: int | None):
    with torch.inference_mode():
        chances = make("sinusoidal")(torch.tensor([SENTENCE]), torch.tensor([[BOS]]))[0, -1].softmax(-1)
    likely, order = chances.sort(descending=True)
    words = words or int((likely.cumsum(0) < 0.6).sum()) + 1
    found = {(h.tokens or [EOS])[0] for h in drawn(sampling, 200, 1)}
    assert found == set(order[:words].tolist())
    assert words < WORDS


@pytest.mark.parametrize(
    "sampling", [Sampling(1, 700), Sampling(1, 9), Sampling(top_p=0.5), Sampling(top_p=0.97), Sampling(1, 50, 0.5)]
)
def test_those_drawn_from_are_the_most_probable_ones(sampling: Sampling):
    """As many as all of them, sorted, say: few in peaked rows, more than are sorted first in flat ones."""
    spreads = torch.tensor([[6.0], [3.0], [1.0], [0.3], [0.1], [0.0]])
    log_p = (torch.randn(6, 2000, generator=torch.Generator().manual_seed(0)) * spreads).log_softmax(-1)
    kept_scores, tokens = drawn_from(log_p, sampling)
    for row, kept, token in zip(log_p, kept_scores, tokens, strict=True):
        likely = row.sort(descending=True).values
        before = likely.exp().cumsum(0) - likely.exp()
        number = int((before < sampling.top_p).sum()) if sampling.top_p < 1 else len(row)
        number = min(number, sampling.top_k or number)
        assert abs(int((kept > -math.inf).sum()) - number) <= 1  # the last digits of a sum
        assert torch.equal(kept[: number - 1], likely[: number - 1])
        assert torch.equal(row[token], likely[: len(token)])
    assert len(tokens[0]) in (2000, sampling.top_k)


def test_sample_does_not_depend_on_the_sentences_beside_it():
    together = finish(sample(make("sinusoidal"), sources(), output(LIMITS), Sampling(), KEYS))
    for sentence, limit, own, (expected,) in zip(SENTENCES, LIMITS, KEYS, together, strict=True):
        ((alone,),) = finish(sample(make("sinusoidal"), sources([sentence]), output([limit]), Sampling(), own[None]))
        assert alone.tokens == expected.tokens


@pytest.mark.parametrize(("words", "spread"), [(WORDS, 0.0), (4000, 2.0)])
def test_last_digits_of_probabilities_decide_nothing(monkeypatch: pytest.MonkeyPatch, words: int, spread: float):
    """They depend on the batch. The control: with top_p they decide which of equal tokens are kept."""
    noise = torch.Generator().manual_seed(1)
    logits = torch.randn(words, generator=noise) * spread

    def noisy(model: Model, state: object, tokens: Tensor, row: Tensor, output: OutputSpec) -> Tensor:
        return (logits + torch.randn(len(row), words, generator=noise) * 1e-5).log_softmax(-1)

    monkeypatch.setattr("dragoman.decoding.search.next_log_p", noisy)
    for sampling, same in ((Sampling(), True), *([(Sampling(top_p=0.5), False)] * (spread == 0))):
        first, second = ([h.tokens for h in drawn(sampling, 1000)] for _ in range(2))
        assert (first == second) == same


# Groups and patience.


def diverse(groups: int, diversity: float, beams: int = 4) -> list[list[Hypothesis]]:
    allocation = BeamAllocation(groups, diversity)
    return BeamSearch(make("sinusoidal"), sources(), output([6] * 4, 0.6), beams=beams, allocation=allocation).run()


def test_beam_groups_of_one_are_plain_beam_search():
    assert diverse(1, 5.0) == diverse(1, 0.0)


def test_groups_that_cost_nothing_find_the_same():
    """Two groups of two beams each, and nothing to keep them apart: two times a beam of two."""
    for both, one in zip(diverse(2, 0.0), diverse(1, 0.0, beams=2), strict=True):
        assert {tuple(h.tokens) for h in both} == {tuple(h.tokens) for h in one}


def test_groups_keep_away_from_each_other():
    def firsts(found: list[list[Hypothesis]]) -> int:
        return sum(len({tuple(h.tokens[:1]) for h in hypotheses}) for hypotheses in found)

    assert firsts(diverse(4, 10.0)) > firsts(diverse(1, 0.0))


def test_scores_of_diverse_hypotheses_are_without_the_cost():
    for sentence, hypotheses in zip(SENTENCES, diverse(2, 2.0), strict=True):
        expected = [rescored(make("sinusoidal"), sentence, h, 0.6) for h in hypotheses]
        assert [h.score for h in hypotheses] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("diversity", [0.0, 0.1, 10.0])
def test_groups_never_give_the_same_twice(diversity: float):
    for hypotheses in diverse(2, diversity):
        assert len({(tuple(h.tokens), h.finished) for h in hypotheses}) == len(hypotheses) > 1


@pytest.mark.parametrize("ended", [True, False])
def test_beam_groups_count_a_hypothesis_that_two_find_once(ended: bool):
    """Unless it ended one time and was cut off the other; and a pool without groups keeps it each time."""
    for distinct, again, expected in ((True, ended, 2), (True, not ended, 4), (False, ended, 4)):
        pool = FinishedPool(1, 6, distinct)
        for finished in (ended, again):
            pool.add(0, Hypothesis([A, B], -1.0, finished))
            pool.add(0, Hypothesis([A, C], -2.0, finished))
        assert len(pool.hypotheses[0]) == pool.count.item() == expected


def test_patience_ends_the_search_when_so_many_are_finished():
    """The exact end finds the best at least as well, and sometimes better."""
    gains: list[float] = []
    for seed in range(5):
        task = make("sinusoidal", seed), sources(), output([12] * 4, 2.0)
        soon, exact, patient = (
            [best.score for (best,) in BeamSearch(*task, beams=2, n_best=1, patience=patience).run()]
            for patience in (0.5, None, 100.0)
        )
        assert patient == pytest.approx(exact)
        gains += [later - sooner for sooner, later in zip(soon, exact, strict=True)]
    assert min(gains) >= -1e-6
    assert max(gains) > 1e-3


# Several models as one.


class Mean:
    """The same without a cache, one token after the other: the oracle's model."""

    def __init__(self, models: list):
        self.models = models

    def __call__(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.stack([model(source, target).softmax(-1) for model in self.models]).mean(0).log()


def wide(model: object) -> dict[tuple[int, ...], float]:
    (found,) = beam(model, sources([SENTENCE]), WIDE, [4])
    return {tuple(hypothesis.tokens): hypothesis.score for hypothesis in found}


@pytest.mark.parametrize("names", [("sinusoidal", "rotary"), ("lstm", "sinusoidal", "relative")])
def test_ensemble_finds_what_the_mean_of_the_probabilities_says(names: tuple[str, ...]):
    models = [make(name, seed) for seed, name in enumerate(names)]
    expected = all_outputs(Mean(models), SENTENCE, 4, 0.6)  # type: ignore[arg-type]
    assert wide(Ensemble(models)) == pytest.approx(expected, abs=1e-5)
    assert wide(models[0]) != pytest.approx(expected, abs=1e-2)  # the control


def test_model_beside_itself_is_that_model():
    model = make("sinusoidal")
    one, two = (greedy(each, sources(), [9] * len(SENTENCES)) for each in (model, Ensemble([model, model])))
    assert same(one, two)
    assert len(set(itertools.chain(*(h.tokens for h in one)))) < WORDS


def test_ensemble_translates_and_another_tokenizer_is_refused(trained: Path, pairs: list[Pair], tmp_path: Path):
    sources = [source for source, _ in pairs[:10]]
    alone, twice = (
        Translator.load(trained, SearchConfig(beam=2), NO_SAFEGUARDS, others).translate(sources)
        for others in ((), (trained,))
    )
    assert [found.text for found in twice] == [found.text for found in alone]
    model, (own, _) = read_model(trained)
    other = Tokenizer.train([text for pair in pairs for text in pair][:50], suggested=len(own) - 40)
    with new_folder(tmp_path / "other") as draft:
        write_model(draft, type(model)(model.config, len(other), pad=model.pad), Tokenizers.from_tokenizer(other), "")
    with pytest.raises(DragomanError, match="other: its tokenizer is not that of"):
        Translator.load(trained, SearchConfig(beam=2), NO_SAFEGUARDS, [tmp_path / "other"])
