"""The recorded beam search is what a plain search weighs up, and recording changes nothing."""

import dataclasses
from functools import cache
from typing import Any, get_args

import pytest
import torch
from conftest import tiny_transformer, toy_pairs

from dragoman.config import RecurrentConfig, SearchConfig, TransformerConfig
from dragoman.data.tokenizer import BOS, EOS, Tokenizer
from dragoman.decoding.engine import Constraints
from dragoman.decoding.search import length_penalty
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError
from dragoman.inspection.tree import BeamTree, Fate, Recording
from dragoman.model import Model, build


@cache
def pieces() -> Tokenizer:
    return Tokenizer.train((text for pair in toy_pairs() for text in pair), suggested=400, tags=["ko"])


def make(name: str, seed: int = 0) -> Model:
    """A model with opinions: fresh ones find everything about equally likely."""
    torch.manual_seed(seed)
    model = build(SMALLS[name], WORDS).eval()
    with torch.no_grad():
        model.output.weight.mul_(3)
    return model


SMALL = tiny_transformer(share="none")
SMALLS: dict[str, TransformerConfig | RecurrentConfig] = {
    "transformer": SMALL,
    "relative": dataclasses.replace(SMALL, positions="relative"),
    "lstm": RecurrentConfig(d_model=16, share="none"),
}
WORDS = 5  # a vocabulary so small that every output can be tried
SOURCE = [3, 4, 4, 3]


def recorded(
    engine: TorchEngine, config: SearchConfig, constraints: Constraints = Constraints()
) -> tuple[BeamTree, Any]:
    recording = Recording(engine, pieces(), constraints)
    ((best, *others),) = recording.search([SOURCE], config)
    tree = recording.tree(best)
    assert tree is not None
    return tree, [best, *others]


def prefix_of(tree: BeamTree, number: int) -> tuple[int, ...]:
    """Its tokens, from parent to parent."""
    node = tree.nodes[number]
    return () if node.parent is None else (*prefix_of(tree, node.parent), node.token_id)


def next_log_p(model: Model, tokens: tuple[int, ...]) -> list[float]:
    with torch.no_grad():
        logits = model(torch.tensor([[*SOURCE, EOS]]), torch.tensor([[BOS, *tokens]]))
    return logits[0, -1].double().log_softmax(-1).tolist()


def plain_steps(model: Model, beams: int, steps: int) -> list[dict[tuple[int, ...], tuple[str, float, float]]]:
    """Beam search without anything clever: all continuations of a step, sorted; fate, score, log_p of the best."""
    kept: dict[tuple[int, ...], float] = {(): 0.0}
    found = []
    for _ in range(steps):
        weighed = [
            (total + log_p, log_p, (*tokens, word))
            for tokens, total in kept.items()
            for word, log_p in enumerate(next_log_p(model, tokens))
        ]
        weighed = sorted(weighed, reverse=True)[: 2 * beams]
        kept = {}
        now = {}
        for place, (total, log_p, tokens) in enumerate(weighed):
            if tokens[-1] == EOS:
                fate = "finished" if place < beams else "pruned"
            elif len(kept) < beams:
                fate, kept[tokens] = "kept", total
            else:
                fate = "pruned"
            now[tokens] = (fate, total, log_p)
        found.append(now)
    return found


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
@pytest.mark.parametrize("beams", [2, 3, 5, 40])
@pytest.mark.parametrize("name", SMALLS)
def test_beam_tree_is_what_a_plain_search_weighs_up(name: str, beams: int, seed: int):
    model = make(name, seed)
    config = SearchConfig(beam=beams, extra_length=1)
    tree, _ = recorded(TorchEngine(model), config)
    steps = plain_steps(model, beams, tree.steps)
    assert len(tree.nodes) == 1 + sum(map(len, steps))
    for number, node in enumerate(tree.nodes[1:], start=1):
        tokens = prefix_of(tree, number)
        fate, total, log_p = steps[node.step - 1][tokens]
        assert (node.fate, node.step) == (fate, len(tokens))
        assert node.score == pytest.approx(total, abs=1e-4)
        assert node.log_p == pytest.approx(log_p, abs=1e-4)
        assert node.normalised == pytest.approx(total / length_penalty(node.step, config.length_penalty), abs=1e-4)
        assert tree.nodes[node.parent].fate == "kept"  # type: ignore[index]
    assert tree.nodes[0] == dataclasses.replace(
        tree.nodes[0], parent=None, step=0, token_id=BOS, score=0.0, fate="kept"
    )


def test_beam_tree_has_hypotheses_of_every_fate():
    """The control for the test above."""
    trees = [recorded(TorchEngine(make("transformer", seed)), SearchConfig(beam=3))[0] for seed in range(4)]
    assert {node.fate for tree in trees for node in tree.nodes} == set(get_args(Fate))


def short(**settings: Any) -> SearchConfig:
    """A search of few steps: models without training hardly ever end a sentence."""
    return SearchConfig(**{"extra_length": 12, **settings})


CONFIGS = {
    "plain": short(beam=4),
    "greedy": short(beam=1),
    "all of them": short(beam=4, n_best=4, length_penalty=1.0),
    "patient": short(beam=3, patience=2.0, length_penalty=-0.5),
    "shortest": short(beam=3, extra_length=1, min_length=3),
    "no repeats": short(beam=3, no_repeat_ngram=2, length_penalty=2.0),
    "diverse": short(beam=4, beam_groups=2, n_best=2),
    "sampled": short(temperature=1.0, n_best=2),
}


CONSTRAINTS = [Constraints(), Constraints(prefix=(4, 3)), Constraints(forbidden=((3, 3), (4,)))]


@pytest.mark.parametrize(
    ("name", "config", "constraints"),
    [  # each two of them meet; the other combinations of three are slow
        pytest.param(name, config, given, marks=() if (row + column + place) % 3 == 0 else pytest.mark.slow)
        for row, name in enumerate([*SMALLS, "ensemble"])
        for column, config in enumerate(CONFIGS)
        for place, given in enumerate(CONSTRAINTS)
    ],
)
def test_recorded_search_finds_the_same_to_the_bit(name: str, config: str, constraints: Constraints):
    models = [make("transformer" if name == "ensemble" else name, seed) for seed in (1, 2)]
    engine = TorchEngine(*models[: 2 if name == "ensemble" else 1])
    before, recording = dict(vars(engine)), Recording(engine, pieces(), constraints)
    found = recording.search([SOURCE], CONFIGS[config])
    assert found == engine.search([SOURCE], CONFIGS[config], [constraints])  # tokens, and scores as they are
    assert vars(engine) == before
    tree = recording.tree(found[0][0])
    if config in ("diverse", "sampled"):
        assert tree is None
        return
    assert tree is not None
    best = found[0][0]
    assert list(prefix_of(tree, tree.winner)) == [*best.tokens, *[EOS] * best.finished]
    assert [node.token_id for node in map(tree.nodes.__getitem__, tree.path)] == [BOS, *prefix_of(tree, tree.winner)]
    winner = tree.nodes[tree.winner]
    assert winner.fate == ("finished" if best.finished else "kept")
    assert winner.normalised == (pytest.approx(best.score) if config == "greedy" else best.score)
    if constraints.prefix:
        assert prefix_of(tree, tree.winner)[:2] == constraints.prefix


def test_beam_tree_has_nodes_in_order_with_the_hypotheses_among_them():
    tree, found = recorded(TorchEngine(make("transformer", 1)), SearchConfig(beam=4, n_best=4))
    order = [(node.step, -node.score) for node in tree.nodes]
    assert order == sorted(order)
    normalised = {prefix_of(tree, number): node.normalised for number, node in enumerate(tree.nodes)}
    for hypothesis in found:
        assert normalised[*hypothesis.tokens, *[EOS] * hypothesis.finished] == hypothesis.score


def test_beam_tree_of_a_greedy_search_is_a_chain():
    model = make("transformer", 2)
    tree, _ = recorded(TorchEngine(model), SearchConfig(beam=1))
    for step in range(1, tree.steps + 1):
        first, second = [node for node in tree.nodes if node.step == step]
        row = next_log_p(model, prefix_of(tree, tree.path[step - 1]))
        best, next_best = sorted(range(WORDS), key=lambda token: -row[token])[:2]
        assert (first.token_id, second.token_id) == (best, next_best)
        assert (first.fate, second.fate) == ("finished" if best == EOS else "kept", "pruned")


def test_beam_tree_of_a_damaged_model_is_refused_in_words():
    """The control is the same model before."""
    model = make("transformer")
    recording = Recording(TorchEngine(model), pieces())
    assert recording.search([SOURCE], short(beam=2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1e37)
    for beam in (1, 2):
        with pytest.raises(DragomanError, match="its weights are damaged"):
            Recording(TorchEngine(model), pieces()).search([SOURCE], short(beam=beam))
