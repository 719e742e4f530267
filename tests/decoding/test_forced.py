"""Forced scoring: the probabilities are the model's own, whatever stands beside a pair."""

import dataclasses
import itertools
import json
import math
import random
from pathlib import Path

import pytest
import torch
from conftest import TINY, TINY_RECURRENT, write_tsv
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import RecurrentConfig, TransformerConfig
from dragoman.data.batches import Ids, source_batch
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import BOS, EOS
from dragoman.decoding import forced
from dragoman.decoding.forced import max_positions, perplexity, score
from dragoman.decoding.search import BeamSearch, OutputSpec, finish, greedy_search
from dragoman.errors import DragomanError
from dragoman.model import Model, build
from dragoman.model_folder import read_model

WORDS = 7
MODELS: dict[str, TransformerConfig | RecurrentConfig] = {
    "sinusoidal": TINY,
    "rotary, pre-norm": dataclasses.replace(TINY, positions="rotary", norm_first=True),
    "relative, no bias": dataclasses.replace(TINY, positions="relative", output_bias=True),
    "gru": TINY_RECURRENT,
}
DOUBLE = pytest.mark.usefixtures("seeded_double_precision")

ids = st.lists(st.integers(3, WORDS - 1), max_size=6)
anything = st.lists(st.integers(0, WORDS - 1), max_size=6)  # a model can say every id, padding too


def make(name: str = "sinusoidal", words: int = WORDS) -> Model:
    torch.manual_seed(0)
    return build(MODELS[name], words).eval()


def step_by_step(model: Model, source: Ids, target: Ids) -> list[float]:
    """The slow way: one token after the other, each with what was remembered."""
    with torch.inference_mode():
        state, found = model.start(source_batch([source])), []
        for before, token in itertools.pairwise([BOS, *target, EOS]):
            found.append(float(model.step(torch.tensor([[before]]), state)[0, -1].log_softmax(-1)[token]))  # type: ignore[arg-type]
    return found


@DOUBLE
@settings(max_examples=25)
@given(source=ids, target=anything)
@pytest.mark.parametrize("name", MODELS)
def test_score_is_the_probability_of_each_token_after_those_before_it(name: str, source: Ids, target: Ids):
    model = make(name)
    (found,) = score(model, [source], [target])
    assert found.tokens == [*target, EOS]
    assert found.log_p == pytest.approx(step_by_step(model, source, target), abs=1e-10)
    assert found.total == pytest.approx(sum(found.log_p))
    assert found.mean == pytest.approx(found.total / len(found.tokens))


@DOUBLE
@pytest.mark.parametrize("name", MODELS)
def test_probabilities_of_all_translations_sum_to_one(name: str):
    """All that end within two tokens, and all beginnings of two tokens that do not end there."""
    model, words = make(name), [id for id in range(WORDS) if id != EOS]
    targets = [list(target) for length in range(3) for target in itertools.product(words, repeat=length)]
    found = score(model, [[3, 4]] * len(targets), targets)
    ended = sum(math.exp(one.total) for one in found if len(one.tokens) < 3)
    open_ = sum(math.exp(sum(one.log_p[:-1])) for one in found if len(one.tokens) == 3)
    assert ended + open_ == pytest.approx(1, abs=1e-10)
    assert ended < 0.99  # the control: without the beginnings something is missing


@DOUBLE
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("beams", [None, 4])
def test_rescored_hypothesis_has_the_score_of_the_search(name: str, beams: int | None):
    model, sources = make(name), [[3, 4, 5], [6], [4, 4, 3, 5, 6, 3], []]
    output = OutputSpec(BOS, EOS, torch.full((4,), 6))
    batch = source_batch(sources)
    found = finish(BeamSearch(model, batch, output, beams).steps() if beams else greedy_search(model, batch, output))
    pairs = [(source, hypothesis) for source, several in zip(sources, found, strict=True) for hypothesis in several]
    again = score(model, [source for source, _ in pairs], [hypothesis.tokens for _, hypothesis in pairs])
    for (_, hypothesis), likelihood in zip(pairs, again, strict=True):
        same = likelihood.log_p if hypothesis.finished else likelihood.log_p[:-1]
        assert sum(same) == pytest.approx(hypothesis.score, abs=1e-9)
        # The control: with the end where the search did not come to it, or without, it is another number.
        other = likelihood.log_p[:-1] if hypothesis.finished else likelihood.log_p
        assert abs(sum(other) - hypothesis.score) > 1e-3


def test_trained_model_rescores_its_own_translations_in_single_precision(trained: Path, pairs: list[Pair]):
    model, (tokenizer, _) = read_model(trained)
    sources = tokenizer.encode_all([source for source, _ in pairs[:20]])
    found = BeamSearch(model, source_batch(sources), OutputSpec(BOS, EOS, torch.full((20,), 60)), beams=2).run()
    best = [hypotheses[0] for hypotheses in found]
    for hypothesis, likelihood in zip(best, score(model, sources, [h.tokens for h in best]), strict=True):
        assert hypothesis.finished
        assert likelihood.total == pytest.approx(hypothesis.score, abs=1e-5)


def crowd(seed: int, size: int) -> list[tuple[Ids, Ids]]:
    chance = random.Random(seed)
    return [
        tuple(chance.choices(range(3, WORDS), k=chance.choice([0, 1, 5, 30])) for _ in range(2)) for _ in range(size)
    ]  # type: ignore[misc]


@pytest.mark.parametrize("name", MODELS)
def test_pair_has_the_same_numbers_in_a_crowd_as_alone(name: str):
    model, probe = make(name), ([3, 4, 5, 6], [6, 5, 4])
    (alone,) = score(model, *zip(probe, strict=True))
    for trial in range(20):
        many, place = crowd(trial, 15), trial % 15
        many.insert(place, probe)
        found = score(model, *zip(*many, strict=True))
        assert [len(likelihood.tokens) for likelihood in found] == [len(target) + 1 for _, target in many]
        assert found[place].tokens == alone.tokens
        assert found[place].log_p == pytest.approx(alone.log_p, abs=1e-5)
    if name == "sinusoidal":  # the control: a model that looks at padding finds other numbers
        model.pad = -1
        (alone,) = score(model, *zip(probe, strict=True))
        together, _ = score(model, [probe[0], [3] * 30], [probe[1], [4] * 30])
        assert together.total != pytest.approx(alone.total, abs=1e-3)


def test_score_returns_many_pairs_in_their_order():
    model, many = make(), crowd(0, 400)
    found = score(model, *zip(*many, strict=True))
    assert [likelihood.tokens for likelihood in found] == [[*target, EOS] for _, target in many]
    assert score(model, [], []) == []


def test_logits_that_are_made_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch):
    model, many = make(), crowd(1, 20)
    whole = score(model, *zip(*many, strict=True))
    monkeypatch.setattr(forced, "LOGITS", 3 * WORDS)
    for one, two in zip(whole, score(model, *zip(*many, strict=True)), strict=True):
        assert one.log_p == pytest.approx(two.log_p, abs=1e-6)


def test_sides_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="zip"):
        score(make(), [[3], [4]], [[5]])


def test_perplexity_of_words_drawn_evenly_is_their_number():
    assert perplexity(math.log(50)) == pytest.approx(50)
    assert perplexity(1e9) == math.inf


def test_max_positions_is_what_the_positions_of_a_model_reach():
    assert max_positions(make()) == forced.MAX_TOKENS
    learned = build(dataclasses.replace(TINY, positions="learned", max_length=9), WORDS).eval()
    assert max_positions(learned) == 9
    assert len(score(learned, [[3] * 8], [[4] * 8])[0].log_p) == 9
    with pytest.raises(ValueError, match="positions end at 9"):
        score(learned, [[3] * 9], [[4]])


def test_command_prints_one_line_for_each_pair(dragoman, trained: Path, pairs: list[Pair]):
    many = [*pairs[:5], ("", ""), ("The dog", ""), ("", "개"), ("\u2028", "\x85 \0"), *pairs[5:8]]
    write_tsv(Path("pairs.tsv"), [*many, ("x" * 5000, "y")])
    code, out, err = dragoman("score", "-m", trained, "pairs.tsv")
    assert code == 0
    *lines, too_long = out.removesuffix("\n").split("\n")
    assert too_long == "nan\tnan"
    model, (tokenizer, _) = read_model(trained)
    expected = score(model, *(tokenizer.encode_all(list(side)) for side in zip(*many, strict=True)))
    for line, likelihood in zip(lines, expected, strict=True):
        assert list(map(float, line.split("\t"))) == pytest.approx([likelihood.total, likelihood.mean], abs=2e-4)
    with_text = [one for one, pair in zip(expected, many, strict=True) if all(side.strip() for side in pair)]
    tokens = sum(len(one.tokens) for one in with_text)
    wanted = perplexity(-sum(one.total for one in with_text) / tokens)
    assert err.splitlines() == [
        f"pairs.tsv:{len(many) + 1}: a side has more than 1,023 tokens: no score",
        f"perplexity {wanted:.2f} per token: {len(with_text)} pairs with text, {tokens:,} tokens",
    ]


def test_command_prints_json_with_the_tokens(dragoman, trained: Path, pairs: list[Pair]):
    write_tsv(Path("pairs.tsv"), [*pairs[:3], ("x" * 5000, "y")])
    *lines, too_long = map(json.loads, dragoman("score", "-m", trained, "pairs.tsv", "--json").out.splitlines())
    for (source, target), line in zip(pairs[:3], lines, strict=True):
        assert (line["source"], line["target"]) == (source, target)
        assert sum(log_p for _, log_p in line["tokens"]) == pytest.approx(line["log_p"], abs=1e-4)
        assert "".join(piece for piece, _ in line["tokens"]) == f" {target}</s>"
    assert too_long["log_p"] is None


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "give sentence pairs"),
        (["missing.tsv"], 1, "missing.tsv: no such file"),
        (["bad.tsv"], 1, "bad.tsv:2: no tab"),
        (["bad.tsv", "tag=med"], 1, "unknown tag 'med'"),
    ],
)
def test_plot_answers_a_wrong_request_in_one_clear_line(
    dragoman, trained: Path, words: list[str], code: int, says: str
):
    Path("bad.tsv").write_text("a\tb\nc\n", encoding="utf-8")
    found, out, err = dragoman("score", "-m", trained, *words)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert says in err


def test_score_says_that_probabilities_are_not_numbers():
    model = make()
    assert math.isfinite(score(model, [[3]], [[4]])[0].total)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1e37)
    with pytest.raises(DragomanError, match="its weights are damaged"):
        score(model, [[3]], [[4]])
