"""The coverage penalty."""

import math

import pytest
import torch
from test_search import SENTENCES, make

from dragoman.alignment.heads import alignment_weights, default_head
from dragoman.config import SearchConfig
from dragoman.data.tokenizer import RESERVED, Tokenizer
from dragoman.decoding.search import Hypothesis
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import UsageError
from dragoman.translation.coverage import MIN_ATTENTION, coverage_penalty, rerank_by_coverage
from dragoman.translation.safeguards import NO_SAFEGUARDS
from dragoman.translation.translator import Translator


def test_coverage_penalty_is_equation_14_of_wu_et_al():
    # Three target tokens and the end look at two source tokens and the end.
    weights = torch.tensor([[0.5, 0.1, 0.4], [0.25, 0.1, 0.65], [0.5, 0.0, 0.5], [0.1, 0.2, 0.7]])
    expected = 0.2 * (math.log(1.0) + math.log(0.1 + 0.1 + 0.0 + 0.2))
    assert coverage_penalty(weights, 0.2) == pytest.approx(expected)
    unfinished = 0.2 * (math.log(1.0) + math.log(0.1 + 0.1 + 0.0))
    assert coverage_penalty(weights, 0.2, finished=False) == pytest.approx(unfinished)
    assert coverage_penalty(weights, 0.0) == 0
    # What nothing looked at costs much, and not everything.
    assert coverage_penalty(torch.tensor([[1.0, 0.0, 0.0]]), 0.2) == pytest.approx(0.2 * math.log(MIN_ATTENTION))


def test_hypotheses_are_ranked_by_score_and_coverage():
    model, source = make("sinusoidal"), SENTENCES[0]
    found = [Hypothesis([3, 4], -1.0), Hypothesis([3], -1.1), Hypothesis([3, 4, 3, 4, 4], -1.2, finished=False)]
    which = default_head(model)
    (best,) = rerank_by_coverage(model, [source], [found], 3.0, which)
    maps = alignment_weights(model, [source] * 3, [h.tokens for h in found], which)
    penalties = [coverage_penalty(weights, 3.0, h.finished) for h, weights in zip(found, maps, strict=True)]
    expected = {tuple(h.tokens): h.score + penalty for h, penalty in zip(found, penalties, strict=True)}
    assert {tuple(h.tokens): h.score for h in best} == pytest.approx(expected, abs=1e-6)
    assert [h.score for h in best] == sorted(expected.values(), reverse=True)
    assert [h.tokens for h in best] != [h.tokens for h in found]  # or the test would not see the order
    (same,) = rerank_by_coverage(model, [source], [found], 0.0, which)
    assert same == found


def test_translator_chooses_among_all_beams(trained):
    text = ["The dog sees 2 cats.", "The black dog and the small bird see the man."]
    search = SearchConfig(beam=4, n_best=2, coverage_penalty=5.0)
    translator = Translator.load(trained, search, NO_SAFEGUARDS)
    ids = translator.tokenizers.source.encode_all(text)
    found = TorchEngine(translator.model).search(ids, SearchConfig(beam=4, n_best=4))
    assert translator.alignment is not None
    expected = rerank_by_coverage(translator.model, ids, found, 5.0, translator.alignment)
    outputs = translator.translate(text)
    for output, best in zip(outputs, expected, strict=True):
        told = [output.text, *(other.text for other in output.alternatives)]
        assert told == [translator.tokenizers.source.decode(h.tokens) for h in best[:2]]
        assert output.score == pytest.approx(best[0].score, abs=1e-5)
    plain = Translator.load(trained, SearchConfig(beam=4, n_best=2), NO_SAFEGUARDS).translate(text)
    assert [output.score for output in plain] != pytest.approx([output.score for output in outputs])  # the control


def test_coverage_penalty_needs_several_beams():
    for wrong in ({"beam": 1}, {"temperature": 1.0}):
        with pytest.raises(UsageError, match="several beams"):
            SearchConfig(coverage_penalty=0.2, **wrong)
    with pytest.raises(UsageError, match="coverage_penalty"):
        SearchConfig(coverage_penalty=-1)


def test_model_without_attention_is_searched_without_it():
    model = make("gru without attention")
    tokenizer = Tokenizer({piece: id for id, piece in enumerate(RESERVED)}, [])
    covered, plain = (
        Translator(model, tokenizer, SearchConfig(beam=2, coverage_penalty=beta), NO_SAFEGUARDS).search_ids(SENTENCES)
        for beta in (1.0, 0.0)
    )
    assert covered == plain
