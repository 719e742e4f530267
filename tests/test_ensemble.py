"""Several models as one."""

import itertools
from pathlib import Path

import pytest
import torch
from test_search import SENTENCES, WIDE, WORDS, all_outputs, beam, greedy, make, same, sources

from dragoman.config import SearchConfig
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import Tokenizer
from dragoman.decoding.ensemble import Ensemble
from dragoman.errors import DragomanError
from dragoman.files import new_folder
from dragoman.model_folder import read_model, write_model
from dragoman.translation.safeguards import NO_SAFEGUARDS
from dragoman.translation.translator import Translator


class Mean:
    """The same without a cache, one token after the other: the oracle's model."""

    def __init__(self, models: list):
        self.models = models

    def __call__(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.stack([model(source, target).softmax(-1) for model in self.models]).mean(0).log()


def wide(model: object) -> dict[tuple[int, ...], float]:
    (found,) = beam(model, sources([SENTENCES[0]]), WIDE, [4])
    return {tuple(hypothesis.tokens): hypothesis.score for hypothesis in found}


@pytest.mark.parametrize("names", [("sinusoidal", "rotary"), ("lstm", "sinusoidal", "relative")])
def test_an_ensemble_finds_what_the_mean_of_the_probabilities_says(names: tuple[str, ...]):
    models = [make(name, seed) for seed, name in enumerate(names)]
    expected = all_outputs(Mean(models), SENTENCES[0], 4, 0.6)  # type: ignore[arg-type]
    assert wide(Ensemble(models)) == pytest.approx(expected, abs=1e-5)
    assert wide(models[0]) != pytest.approx(expected, abs=1e-2)  # the control


def test_a_model_beside_itself_is_that_model():
    model = make("sinusoidal")
    one, two = (greedy(each, sources(), [9] * len(SENTENCES)) for each in (model, Ensemble([model, model])))
    assert same(one, two)
    assert len(set(itertools.chain(*(h.tokens for h in one)))) < WORDS


def test_an_ensemble_translates_and_another_tokenizer_is_refused(trained: Path, pairs: list[Pair], tmp_path: Path):
    sources = [source for source, _ in pairs[:10]]
    alone, twice = (
        Translator.load(trained, SearchConfig(beam=2), NO_SAFEGUARDS, others).translate(sources)
        for others in ((), (trained,))
    )
    assert [found.text for found in twice] == [found.text for found in alone]
    model, _ = read_model(trained)
    other = Tokenizer.train([text for pair in pairs for text in pair][:50], suggested=len(read_model(trained)[1]) - 40)
    with new_folder(tmp_path / "other") as draft:
        write_model(draft, type(model)(model.config, len(other), pad=model.pad), other, "")
    with pytest.raises(DragomanError, match="other: its tokenizer is not that of"):
        Translator.load(trained, SearchConfig(beam=2), NO_SAFEGUARDS, [tmp_path / "other"])
