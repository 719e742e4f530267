"""The CTranslate2 engine, held against the model itself: the same numbers, the same words, or a clear no."""

import dataclasses
import os
import random
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import TINY, TINY_RECURRENT, tiny_transformer

from dragoman.commands import parse, train
from dragoman.config import (
    AttentionConfig,
    FeedForwardConfig,
    ModelConfig,
    RunConfig,
    SearchConfig,
    SharedMatrices,
    TransformerConfig,
    presets,
)
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import BOS, EOS, Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.engine import UNCONSTRAINED, Constraints
from dragoman.decoding.search import Hypothesis
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError, UsageError
from dragoman.interop.ctranslate2.cache import MAX_AGE, cache_folder, check, open_ctranslate2
from dragoman.interop.ctranslate2.conversion import (
    LARGEST,
    convert,
    describe_engines,
    largest_weight,
    requantise,
    specification,
    unknown_settings,
)
from dragoman.interop.ctranslate2.engine import CTranslate2Engine
from dragoman.model import Model, build
from dragoman.model_folder import fetch_model, read_model, write_model
from dragoman.storage.writing import new_folder
from dragoman.translation.engines import open_engine

pytest.importorskip("ctranslate2", reason="the CTranslate2 engine needs the extra `fast`")

Both = tuple[Model, CTranslate2Engine]
MODELS = {
    "preset tiny, rotary": dataclasses.replace(presets.TINY.model, positions="rotary"),
    "as base": tiny_transformer(encoder_layers=2),
    "learned": tiny_transformer(positions="learned", max_length=40, norm_first=True, output_bias=True),
    "halves, gelu": tiny_transformer(
        positions="sinusoidal-halves", feed_forward=FeedForwardConfig(48, "gelu"), share="none", output_bias=True
    ),
    "no positions, silu": tiny_transformer(
        positions="none", feed_forward=FeedForwardConfig(48, "silu"), scale_embedding=False
    ),
    "biased, free heads": tiny_transformer(
        attention=AttentionConfig(heads=3, d_k=6, d_v=6, bias=True),
        positions="rotary",
        decoder_layers=2,
        share="output",
        output_bias=True,
    ),
    "unlike layers": tiny_transformer(encoder_layers=3, share="embeddings", norm_first=True),
    "as M2M100": tiny_transformer(positions="sinusoidal-halves", first_position=2, norm_first=True, norm_epsilon=1e-2),
}
GREEDY = SearchConfig(beam=1, extra_length=6)


def make(config: TransformerConfig, words: int) -> Model:
    """A model with opinions, of which some are that a sentence ends."""
    torch.manual_seed(0)
    model = build(config, words).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:  # norms and biases: all alike at first, so that a model repeats what it just said
                weight.normal_()
        if model.output.bias is not None:
            model.output.bias[EOS] += 3
    return model


def sentences(words: int, count: int, seed: int = 0) -> list[Ids]:
    chance = random.Random(seed)
    return [chance.choices(range(3, words), k=chance.randint(1, 12)) for _ in range(count)]


def pair(config: TransformerConfig, tokenizer: Tokenizer, folder: Path) -> Both:
    """Return a model, and its copy in CTranslate2."""
    model = make(config, len(tokenizer))
    convert(model, (tokenizer.pieces, tokenizer.pieces), folder)
    return model, CTranslate2Engine(folder)


@pytest.fixture(scope="module", params=MODELS)
def both(request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory):
    return pair(MODELS[request.param], tokenizer, tmp_path_factory.mktemp("converted"))


def log_probabilities(model: Model, source: Ids, target: Ids) -> list[float]:
    """Of each target token and the end."""
    with torch.inference_mode():
        log_p = model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]]))[0].log_softmax(-1)
    return log_p.gather(1, torch.tensor([*target, EOS])[:, None])[:, 0].tolist()


def words(found: list[list[Hypothesis]]) -> list[list[tuple[list[int], bool]]]:
    return [[(h.tokens, h.finished) for h in hypotheses] for hypotheses in found]


def assert_same(ours: list[list[Hypothesis]], theirs: list[list[Hypothesis]]) -> None:
    assert words(theirs) == words(ours)
    scores = [[h.score for hypotheses in found for h in hypotheses] for found in (ours, theirs)]
    assert scores[1] == pytest.approx(scores[0], abs=1e-4)


def farthest(model: Model, engine: CTranslate2Engine, count: int = 30) -> float:
    """The largest difference between their log-probabilities of tokens, over random pairs."""
    sources, targets = (sentences(len(engine.pieces), count, seed=seed) for seed in (1, 2))
    results = engine.translator.score_batch(
        [engine.spell([*ids, EOS]) for ids in sources], [engine.spell(ids) for ids in targets]
    )
    gaps = [
        abs(one - other)
        for source, target, result in zip(sources, targets, results, strict=True)
        for one, other in zip(log_probabilities(model, source, target), result.log_probs, strict=True)
    ]
    return max(gaps)


def test_ctranslate2_has_our_probabilities_and_finds_our_words(both: Both):
    assert farthest(*both, 15) < 1e-4
    model, engine = both
    some = sentences(len(engine.pieces), 30)
    assert_same(TorchEngine(model).search(some, GREEDY), engine.search(some, GREEDY))
    for alpha in (0.0, 0.6, 1.0):
        config = SearchConfig(beam=3, n_best=2, extra_length=5, patience=1.5, length_penalty=alpha)
        assert_same(TorchEngine(model).search(some[:12], config), engine.search(some[:12], config))


CONTROLS = {
    "rotation": ("biased, free heads", {"positions": "none"}),
    "table of positions": ("as base", {"positions": "sinusoidal-halves"}),
    "scale of the embeddings": ("as base", {"scale_embedding": False}),
    "order of the norms": ("unlike layers", {"norm_first": False}),
    "first position": ("as M2M100", {"first_position": 0}),
    "epsilon of the norms": ("as M2M100", {"norm_epsilon": 1e-5}),
    "activation": ("as base", {"feed_forward": FeedForwardConfig(32, "gelu")}),
}


@pytest.fixture
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new copy has to translate 4 made-up sources as the model does, not 16."""
    monkeypatch.setattr("dragoman.interop.ctranslate2.cache.SAMPLES", 4)


@pytest.mark.usefixtures("few_samples")
@pytest.mark.parametrize("control", CONTROLS)
def test_wrong_copy_is_seen_and_refused(control: str, tokenizer: Tokenizer, tmp_path: Path):
    """The control for the tests above, and for the comparison that every new copy has to pass."""
    name, change = CONTROLS[control]
    model, right = pair(MODELS[name], tokenizer, tmp_path / "right")
    check(model, right, tmp_path)
    other = build(dataclasses.replace(MODELS[name], **change), len(tokenizer)).eval()
    other.load_state_dict(model.state_dict(), strict=False)
    convert(other, (tokenizer.pieces, tokenizer.pieces), tmp_path / "wrong")
    wrong = CTranslate2Engine(tmp_path / "wrong")
    assert farthest(model, wrong) > 1e-2
    with pytest.raises(DragomanError, match="does not translate as the model itself"):
        check(model, wrong, tmp_path)


@pytest.mark.usefixtures("few_samples")
def test_words_that_the_model_finds_equally_likely_may_differ(tokenizer: Tokenizer, tmp_path: Path):
    """A model that finds all words equally likely: the first or the last of them is a matter of rounding."""
    model = make(tiny_transformer(output_bias=True, share="none"), len(tokenizer))
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.zero_()
        model.output.bias[7] = 1e-5
    convert(model, (tokenizer.pieces, tokenizer.pieces), tmp_path)
    engine = CTranslate2Engine(tmp_path)
    with torch.no_grad():
        model.output.bias[7], model.output.bias[8] = 0.0, 1e-5
    assert words(engine.search([[5]], GREEDY)) != words(TorchEngine(model).search([[5]], GREEDY))
    check(model, engine, tmp_path)
    with torch.no_grad():
        model.output.bias[8] = 1.0
    with pytest.raises(DragomanError, match="does not translate as"):
        check(model, engine, tmp_path)


# A model that has learned something


@pytest.fixture(scope="module")
def learned(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with nothing beside it. Not to be changed: copy it."""
    return Path(shutil.copytree(fetch_model(trained).resolve(), tmp_path_factory.mktemp("learned") / "toy"))


@pytest.fixture(scope="module")
def opened(learned: Path) -> Both:
    return read_model(learned)[0], open_ctranslate2(learned)


@pytest.fixture(scope="module")
def sources(pairs, learned: Path) -> list[Ids]:
    return read_model(learned)[1].source.encode_all([source for source, _ in pairs])


def test_without_patience_it_finds_what_native_search_finds(opened: Both, sources: list[Ids]):
    """Native search continues until nothing can overtake the best, CTranslate2 until it has seen enough."""
    (model, engine), sources = opened, sources[:100]
    ours, theirs = TorchEngine(model).search(sources, SearchConfig()), engine.search(sources, SearchConfig())
    equal = sum(one == other for one, other in zip(words(ours), words(theirs), strict=True))
    assert equal >= 0.99 * len(sources)
    assert all(one[0].score >= other[0].score - 1e-4 for one, other in zip(ours, theirs, strict=True))
    hasty = SearchConfig(length_penalty=5, patience=0.25)  # the first that ends, though longer ones are worth more
    assert words(engine.search(sources, hasty)) != words(
        TorchEngine(model).search(sources, SearchConfig(length_penalty=5))
    )


@pytest.mark.parametrize("beam", [1, 4])
def test_output_is_the_same_alone_or_in_a_crowd(opened: Both, sources: list[Ids], beam: int):
    """Also where the limits of others let them run on for longer."""
    (_, engine), config, sources = opened, SearchConfig(beam=beam, extra_length=2), sources[:60]
    kinds = [UNCONSTRAINED, Constraints(prefix=(260,)), Constraints(forbidden=((261,), (5, 6)))]
    own = [kinds[row % 3] for row in range(len(sources))]
    together = engine.search(sources, config, own)
    assert_same([engine.search([ids], config, [one])[0] for ids, one in zip(sources, own, strict=True)], together)
    limits = [len(ids) + 2 + len(rules.prefix) for ids, rules in zip(sources, own, strict=True)]
    room = [limit - len(h.tokens) - h.finished for limit, (h,) in zip(limits, together, strict=True)]
    assert min(room) == 0
    order = random.Random(0).sample(range(len(sources)), len(sources))
    shuffled = engine.search([sources[row] for row in order], config, [own[row] for row in order])
    assert_same([together[row] for row in order], shuffled)


@pytest.mark.parametrize("beam", [1, 4])
def test_threads_that_share_a_search_find_what_one_finds(opened: Both, sources: list[Ids], beam: int):
    (_, engine), config = opened, SearchConfig(beam=beam, n_best=beam, extra_length=2)
    shared = CTranslate2Engine(engine.folder, threads=3)
    assert shared.translator.num_translators == 3
    own = [Constraints(prefix=(260,)) if row % 5 == 0 else UNCONSTRAINED for row in range(len(sources))]
    assert_same(engine.search(sources, config, own), shared.search(sources, config, own))
    assert shared.search([], config) == []


RULES = {
    "min_length": ({"min_length": 12}, UNCONSTRAINED),
    "no_repeat_ngram": ({"no_repeat_ngram": 1}, UNCONSTRAINED),
    "a min_length beyond the limit": ({"min_length": 500, "extra_length": 4}, UNCONSTRAINED),
    "prefix": ({}, Constraints(prefix=(260, 270))),
    "a prefix beyond the limit": ({"extra_length": 1}, Constraints(prefix=(260, 270) * 20)),
    "forbidden": ({}, None),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("beam", [1, 4])
def test_rules_hold_and_scores_are_those_of_the_model(opened: Both, sources: list[Ids], rule: str, beam: int):
    model, engine = opened
    changes, own = RULES[rule]
    config, some = SearchConfig(beam=beam, length_penalty=0, **{"extra_length": 10} | changes), sources[:15]
    free = engine.search(some, SearchConfig(beam=beam, length_penalty=0, extra_length=10))
    constraints = [
        own or Constraints(forbidden=(tuple(hypotheses[0].tokens[:2]), tuple(hypotheses[0].tokens[3:4])))
        for hypotheses in free
    ]
    found = engine.search(some, config, constraints)
    assert words(found) != words(free)
    if beam == 1:
        assert_same(TorchEngine(model).search(some, config, constraints), found)
    for source, (h,), wish in zip(some, found, constraints, strict=True):
        assert tuple(h.tokens[: len(wish.prefix)]) == wish.prefix
        for sequence in wish.forbidden:
            assert not any(tuple(h.tokens[i : i + len(sequence)]) == sequence for i in range(len(h.tokens)))
        assert not config.no_repeat_ngram or len(set(h.tokens)) == len(h.tokens)
        assert len(h.tokens) >= min(config.min_length, len(source) + config.extra_length)
        likely = log_probabilities(model, source, h.tokens)
        assert h.score == pytest.approx(sum(likely[: len(h.tokens) + h.finished]), abs=1e-3)


def test_search_of_no_sources_returns_nothing(opened: Both):
    _, engine = opened
    assert engine.search([], SearchConfig()) == []
    assert engine.search([[]], SearchConfig()) == [[Hypothesis([], 0.0)]]
    assert engine.search([[], [5]], SearchConfig())[1] == engine.search([[5]], SearchConfig())[0]


@pytest.mark.parametrize(
    ("config", "constraint", "name"),
    [
        (SearchConfig(temperature=1.0), UNCONSTRAINED, "temperature"),
        (SearchConfig(beam_groups=2), UNCONSTRAINED, "beam_groups"),
    ],
)
def test_settings_that_ctranslate2_lacks_are_refused_by_name(
    opened: Both, config: SearchConfig, constraint: Constraints, name: str
):
    with pytest.raises(UsageError, match=name):
        opened[1].search([[5], [6]], config, [UNCONSTRAINED, constraint])


def test_source_longer_than_its_places_is_refused(tokenizer: Tokenizer, tmp_path: Path):
    model, engine = pair(MODELS["learned"], tokenizer, tmp_path)
    assert engine.max_positions == model.config.max_positions == 40
    long = [5] * 39
    assert_same(TorchEngine(model).search([long], SearchConfig()), engine.search([long], SearchConfig()))
    with pytest.raises(UsageError, match=r"41 tokens, EOS included.*at most 40"):
        engine.search([[5], [5] * 40], SearchConfig())


@pytest.mark.parametrize(("name", "longest"), [("biased, free heads", None), ("as base", 4096)])
def test_positions_that_are_turned_have_no_end(name: str, longest: int | None, tokenizer: Tokenizer, tmp_path: Path):
    model, engine = pair(MODELS[name], tokenizer, tmp_path)
    assert engine.max_positions == longest
    source = (sentences(len(tokenizer), 1)[0] * 2500)[:2500]  # more than the library prepares for
    target = source[:20]
    (result,) = engine.translator.score_batch(
        [engine.spell([*source, EOS])], [engine.spell(target)], max_input_length=0
    )
    assert result.log_probs == pytest.approx(log_probabilities(model, source, target), abs=1e-3)


@pytest.mark.parametrize(
    ("config", "name", "flags"),
    [
        (TINY_RECURRENT, "recurrent layers", "--preset small --model.positions rotary"),
        (tiny_transformer(positions="rotary-across"), "positions = 'rotary-across'", "--model.positions rotary"),
        (
            tiny_transformer(attention=AttentionConfig(2, score="additive")),
            "attention.score = 'additive'",
            "--model.attention.score dot",
        ),
        (
            tiny_transformer(attention=AttentionConfig(2, d_k=8, d_v=4)),
            "attention.d_v = 4 with d_k = 8",
            "--model.attention.d-v 8",
        ),
        (tiny_transformer(encoder_layers=0), "encoder_layers = 0", "--model.encoder-layers 1"),
        (
            tiny_transformer(decoder_layers=0, positions="relative"),
            "positions = 'relative' and decoder_layers = 0",
            "--model.positions rotary --model.decoder-layers 1",
        ),
    ],
)
def test_unsupported_model_is_refused_with_what_to_do(
    config: ModelConfig, name: str, flags: str, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    advice = f"use the native engine, or train or distill with {flags}"
    with pytest.raises(DragomanError, match=re.escape(f"does not support models with {name}: {advice}") + "$"):
        convert(build(config, len(tokenizer)), (tokenizer.pieces, tokenizer.pieces), tmp_path)
    assert not list(tmp_path.iterdir())
    assert describe_engines(config) == f"native; ctranslate2 lacks {name}: train or distill with {flags} for it"
    start = train.defaults(flags.split())
    start = start if "--preset" in flags else dataclasses.replace(start, run=RunConfig(model=config))
    other = parse(train.Options, "train", flags.split(), start).run.model
    assert unknown_settings(config)
    assert not unknown_settings(other)  # the flags help
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(DragomanError, match="does not support models"):  # not: install the package
        open_engine("ctranslate2", tmp_path, [build(config, len(tokenizer))], tokenizer)
    with pytest.raises(DragomanError, match="needs a package"):  # the control
        open_engine("ctranslate2", tmp_path, [build(TINY, len(tokenizer))], tokenizer)


# Other numbers than float32


def test_int8_finds_about_the_same_and_leaves_the_model_alone(tokenizer: Tokenizer, learned: Path, tmp_path: Path):
    model, (tokenizer, _) = read_model(learned)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    convert(model, (tokenizer.pieces, tokenizer.pieces), tmp_path, "int8")
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    engine, sources = CTranslate2Engine(tmp_path, "int8"), sentences(len(tokenizer), 50)
    assert 1e-4 < farthest(model, engine) < 0.5
    assert len(engine.search(sources, SearchConfig())) == 50


def test_int8_sums_never_overflow(tokenizer: Tokenizer, tmp_path: Path):
    """Not even where all weights are as large as those of int8 can be, so that only inputs are rounded."""
    model = make(MODELS["as base"], len(tokenizer))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.copy_(weight.sign() * weight.abs().mean())

    def error(largest: int) -> float:
        folder = tmp_path / f"{largest}"
        convert(model, (tokenizer.pieces, tokenizer.pieces), folder, "int8", largest=largest)
        return farthest(model, CTranslate2Engine(folder, "int8"))

    assert error(largest_weight()) < 0.5
    if largest_weight() < LARGEST:
        assert error(LARGEST) > 1


@pytest.mark.parametrize("share", ["all", "none"])
def test_weights_are_rounded_to_int8_as_ctranslate2_does(share: SharedMatrices, tokenizer: Tokenizer):
    """With its own largest number, and to smaller ones with another, each row by its own scale."""
    spec = specification(make(tiny_transformer(share=share), len(tokenizer)))
    spec.register_source_vocabulary(tokenizer.pieces)
    spec.register_target_vocabulary(tokenizer.pieces)
    spec.validate()
    weights = {name: value.numpy().copy() for name, value in spec.variables().items()}

    def rounded() -> dict[str, np.ndarray]:
        return {name: value.numpy().copy() for name, value in spec.variables().items() if not isinstance(value, str)}

    spec.optimize("int8")
    theirs = rounded()
    requantise(spec, weights, LARGEST)
    assert theirs.keys() == rounded().keys()
    assert all(np.array_equal(theirs[name], ours) for name, ours in rounded().items())
    requantise(spec, weights, 63)
    whole = {name: value for name, value in rounded().items() if value.dtype == np.int8 and value.ndim == 2}
    assert ("decoder/projection/weight" in whole) == (share == "none")
    for name, value in whole.items():
        assert (np.abs(value).max(1) == 63 * weights[name].any(1)).all()
        error = value / rounded()[f"{name}_scale"][:, None] - weights[name]
        assert (np.abs(error).max(1) <= 0.501 / 63 * np.abs(weights[name]).max(1)).all()


def test_int8_is_the_fastest(learned: Path, few_samples: None):
    assert open_ctranslate2(learned, "auto").translator.compute_type == "int8_float32"


def test_compute_type_that_there_is_not_is_refused(learned: Path):
    with pytest.raises(UsageError, match=r"'int3'.*float32"):
        open_ctranslate2(learned, "int3")


# The cache


@pytest.fixture
def folder(learned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_samples: None) -> Path:
    """A model folder of one's own, and a user's cache of one's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    return Path(shutil.copytree(learned, tmp_path / "models" / "toy"))


def copies(folder: Path) -> dict[Path, int]:
    """The converted models of the user to whom a model folder belongs, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in folder.parent.parent.rglob("model.bin")}


def test_model_is_converted_once_for_each_compute_type(folder: Path):
    open_ctranslate2(folder)
    first = copies(folder)
    assert [path.parent.parent for path in first] == [cache_folder()]
    open_ctranslate2(folder)
    assert copies(folder) == first
    open_ctranslate2(folder, "int8")
    both = copies(folder)
    assert len(both) == 2
    assert first.items() < both.items()
    small, large = sorted(path.stat().st_size for path in both)
    assert small < large


@pytest.mark.parametrize(
    ("name", "damage"),
    [("model.bin", "cut"), ("shared_vocabulary.json", "gone"), ("config.json", "cut"), ("manifest.json", "gone")],
)
def test_damaged_copy_is_made_anew(folder: Path, name: str, damage: str):
    open_ctranslate2(folder)
    (path,) = copies(folder)
    file = path.with_name(name)
    whole = file.read_bytes()
    file.unlink() if damage == "gone" else file.write_bytes(whole[: len(whole) // 2])
    open_ctranslate2(folder)
    assert file.read_bytes() == whole


def test_another_model_in_the_same_place_has_a_copy_of_its_own(folder: Path, tokenizer: Tokenizer):
    open_ctranslate2(folder)
    (before,) = copies(folder)
    shutil.rmtree(folder)
    with new_folder(folder) as draft:
        write_model(draft, model := make(MODELS["as base"], len(tokenizer)), Tokenizers.from_tokenizer(tokenizer), "")
    engine = open_ctranslate2(folder)
    assert set(copies(folder)) > {before}
    some = sentences(len(tokenizer), 10)
    assert_same(TorchEngine(model).search(some, GREEDY), engine.search(some, GREEDY))


def test_copies_that_nobody_used_for_long_are_deleted(folder: Path):
    open_ctranslate2(folder)
    (old,) = copies(folder)
    open_ctranslate2(folder, "int8")
    (used,) = set(copies(folder)) - {old}
    for path in (old, used):
        os.utime(path.parent, (0, time.time() - MAX_AGE - 60))
    open_ctranslate2(folder, "int8")
    open_ctranslate2(folder, "int8_float32")
    assert used in copies(folder)
    assert old not in copies(folder)
    assert len(copies(folder)) == 2


def test_copy_that_came_with_the_model_is_not_used(folder: Path):
    """Whoever made the folder can make a copy that translates otherwise. The control: here it would be used."""
    open_ctranslate2(folder)
    (own,) = copies(folder)
    shutil.rmtree(own.parent)
    model, (tokenizer, _) = read_model(folder)
    other = make(MODELS["as base"], len(tokenizer))
    for home in (folder.parent / ".ctranslate2" / "toy", folder.parent, folder, cache_folder()):
        for name in (own.parent.name, f"float32-{own.parent.name}"):
            shutil.rmtree(home / name, ignore_errors=True)
            with new_folder(home / name) as draft:
                convert(other, (tokenizer.pieces, tokenizer.pieces), draft)
    some = sentences(len(tokenizer), 10)
    assert_same(TorchEngine(other).search(some, GREEDY), open_ctranslate2(folder).search(some, GREEDY))
    shutil.rmtree(cache_folder())
    assert_same(TorchEngine(model).search(some, GREEDY), open_ctranslate2(folder).search(some, GREEDY))


def test_copy_that_cannot_be_written_is_an_error(folder: Path, tmp_path: Path):
    (tmp_path / "user").write_text("in the way")
    with pytest.raises(DragomanError, match="could not be converted for CTranslate2: Not a directory"):
        open_ctranslate2(folder)


def test_damaged_model_is_not_converted(folder: Path):
    (folder / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(DragomanError, match=r"model\.safetensors: damaged"):
        open_ctranslate2(folder)
    assert not copies(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(DragomanError, match=r"has no manifest\.json"):
        open_ctranslate2(folder)


def test_copy_that_translates_otherwise_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """The fault: a conversion that forgets the positions."""
    monkeypatch.setattr(
        "dragoman.interop.ctranslate2.conversion.position_table", lambda *_: torch.zeros(4096, TINY.d_model)
    )
    with pytest.raises(DragomanError, match="does not translate as"):
        open_ctranslate2(folder)
    assert not copies(folder)


def test_copy_is_made_once_for_several_that_open_it_at_once(folder: Path):
    with ThreadPoolExecutor(3) as pool:
        assert len(list(pool.map(open_ctranslate2, [folder] * 3))) == 3
    assert len(copies(folder)) == 1


def test_run_folder_stands_for_its_best_model(trained: Path, tmp_path: Path, sources: list[Ids]):
    run = Path(shutil.copytree(trained, tmp_path / "run", symlinks=True))
    engine, native = open_ctranslate2(run), TorchEngine(read_model(run)[0])
    assert_same(native.search(sources[:5], GREEDY), engine.search(sources[:5], GREEDY))


@pytest.mark.slow
def test_library_is_imported_when_it_is_used():
    loaded = "print('ctranslate2' in sys.modules)"
    code = f"import sys, dragoman.interop.ctranslate2.cache as cache; {loaded}; cache.import_ctranslate2(); {loaded}"
    answers = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert answers.split() == ["False", "True"]


def test_without_the_library_it_names_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(DragomanError, match=r"dragoman\[fast\]"):
        open_ctranslate2(folder)
