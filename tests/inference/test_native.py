"""The steps in C++ give every search what PyTorch gives it, with the same bits alone and in a batch."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from inference.test_incremental import BASE, CONFIGS, LIBRARIES, WORDS, model_of, multiplies, sources

from dragoman.config import SearchConfig
from dragoman.decoding.engine import Constraints
from dragoman.decoding.search import Hypothesis
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError
from dragoman.inference.choice import prepare
from dragoman.inference.incremental import IncrementalTransformer
from dragoman.inference.native import FOLDER, SOURCES, Library, NativeTransformer, find_obstacle
from dragoman.model.positions import POSITIONS, Sinusoidal
from dragoman.model.transformer import Transformer

SEARCHES: dict[str, tuple[SearchConfig, dict[str, Any]]] = {
    "greedy": (SearchConfig(beam=1), {}),
    "beams": (SearchConfig(beam=4), {}),
    "n best": (SearchConfig(beam=4, n_best=4), {}),
    "patience": (SearchConfig(beam=3, patience=2.0, length_penalty=1.5), {}),
    "groups": (SearchConfig(beam=4, beam_groups=2), {}),
    "samples": (SearchConfig(temperature=1.0, n_best=2), {}),
    "some of the samples": (SearchConfig(temperature=1.2, top_k=9, top_p=0.8), {}),
    "no repetition": (SearchConfig(beam=2, no_repeat_ngram=2, min_length=4), {}),
    "a prefix": (SearchConfig(beam=3), {"prefix": (7, 9)}),
    "words forbidden": (SearchConfig(beam=3), {"forbidden": ((7,), (8, 9))}),
}
native = pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.level)


def engine(model: Transformer, library: Library | None, compute_type: str = "float32") -> TorchEngine:
    """Return an engine that steps in C++, or, without a library, in PyTorch."""
    made = TorchEngine(model)
    make = IncrementalTransformer if library is None else partial(NativeTransformer, library=library)
    made.model = make(model, compute_type)
    return made


def texts(count: int = 12) -> list[list[int]]:
    random = Random(5)
    return [[random.randrange(3, WORDS) for _ in range(random.randrange(1, 14))] for _ in range(count)]


def search(made: TorchEngine, name: str, ids: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
    config, given = SEARCHES[name]
    return made.search([*map(list, ids)], config, [Constraints(**given)] * len(ids))


def words(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in found]


@native
@pytest.mark.parametrize("name", SEARCHES)
def test_searches_in_cpp_find_what_searches_in_pytorch_find(name: str, library: Library):
    model = model_of(CONFIGS["rotary-across"])
    found, expected = (search(engine(model, way), name, texts()) for way in (library, None))
    assert words(found) == words(expected)
    scores = [[h.score for hypotheses in each for h in hypotheses] for each in (found, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    other = search(engine(model_of(CONFIGS["sinusoidal"]), library), name, texts())
    assert words(other) != words(expected)  # the control


@native
@pytest.mark.parametrize("compute_type", ["float32", "int8"])
@pytest.mark.parametrize("name", SEARCHES)
def test_bits_are_the_same_alone_and_in_a_batch_and_in_threads(name: str, compute_type: str, library: Library):
    if not multiplies(library.level, compute_type):
        pytest.skip(f"no {compute_type} in that library")
    made = engine(model_of(CONFIGS["biases"]), library, compute_type)
    together = search(made, name, texts())
    assert [search(made, name, [ids])[0] for ids in texts()] == together
    made.searches = 3
    assert search(made, name, texts()) == together


@native
def test_an_error_of_one_thread_is_raised(library: Library):
    made = engine(model_of(BASE), library)
    made.searches = 2
    with pytest.raises(ValueError, match="not in the vocabulary"):
        search(made, "greedy", [*texts(), [WORDS + 1]])


@native
def test_tokens_and_rows_that_do_not_exist_are_refused(library: Library):
    stepped = NativeTransformer(model_of(BASE), "float32", library)
    state = stepped.start(sources(3))
    for wrong in (-1, WORDS):
        with pytest.raises(ValueError, match="not in the vocabulary"):
            stepped.step(torch.full((3, 1), wrong), state)
        with pytest.raises(ValueError, match="not in the vocabulary"):
            stepped.start(torch.full((3, 2), wrong))
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match="a hypothesis that is not there"):
            state.select(torch.tensor([0, wrong]))
    with pytest.raises(ValueError, match="padding between tokens"):
        stepped.start(torch.tensor([[5, 0, 6]]))
    assert stepped.step(torch.full((3, 1), 5), state).isfinite().all()  # the control


@native
@pytest.mark.parametrize("compute_type", ["float32", "int8"])
@pytest.mark.parametrize(
    "where", ["encoder.0.feed_forward.hidden", "decoder.0.cross_attention.value", "decoder.1.feed_forward.out"]
)
def test_weights_that_are_no_numbers_are_not_hidden(where: str, compute_type: str, library: Library):
    if not multiplies(library.level, compute_type):
        pytest.skip(f"no {compute_type} in that library")
    model = model_of(BASE)
    model.get_submodule(where).weight.data.fill_(float("nan"))
    with pytest.raises(DragomanError, match="not numbers"):
        search(engine(model, library, compute_type), "beams", texts(2))


@native
def test_log_probabilities_are_those_of_the_logits(library: Library):
    model = model_of(CONFIGS["relative"])
    stepped, source, tokens = NativeTransformer(model, "float32", library), sources(3), torch.tensor([[5], [6], [7]])
    with torch.inference_mode():
        logits = stepped.step(tokens, stepped.start(source))[:, 0]
        log_p = stepped.log_p(tokens, stepped.start(source))
        for k in (1, 8, WORDS, 2 * WORDS):
            values, index = stepped.likeliest(tokens, stepped.start(source), k)
            assert torch.equal(values, log_p.topk(min(k, WORDS)).values)
            assert torch.equal(values, log_p.gather(1, index))
    assert torch.allclose(log_p, logits.log_softmax(-1), atol=1e-6)


class Shifted(Sinusoidal):
    def embed(self, x: torch.Tensor, start: int) -> torch.Tensor:
        return super().embed(x, start) * 2


def test_positions_of_another_kind_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(POSITIONS, "sinusoidal", Shifted)
    model = model_of(BASE)
    assert all(find_obstacle(model, "float32", library) for library in LIBRARIES)
    assert isinstance(prepare(model, "float32"), IncrementalTransformer)
    monkeypatch.undo()
    assert not any(find_obstacle(model_of(BASE), "float32", library) for library in LIBRARIES)


def test_library_is_there_where_there_is_a_compiler():
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler")
    assert isinstance(prepare(model_of(BASE), "float32"), NativeTransformer)


@pytest.mark.skipif(not LIBRARIES, reason="no library")
def test_library_of_other_sources_is_refused(tmp_path: Path):
    level = LIBRARIES[0].level
    for name in (*SOURCES, f"transformer-{level}.so"):
        shutil.copy(FOLDER / name, tmp_path)
    assert Library(tmp_path / f"transformer-{level}.so").level == level
    with (tmp_path / SOURCES[0]).open("a", encoding="utf-8") as file:
        file.write("// changed\n")
    with pytest.raises(OSError, match="compiled from other sources"):
        Library(tmp_path / f"transformer-{level}.so")


def test_switch_leaves_searches_to_pytorch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DRAGOMAN_NATIVE", "0")
    code = "from dragoman.inference.native import find_library; print(find_library())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "DRAGOMAN_NATIVE=0 is set\n"
