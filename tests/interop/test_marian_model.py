"""A model that Marian has trained: imported, it says what Marian says.

In tests/marian are the files of a model that Marian 1.12.42 (the package pymarian) trained on 12,000 verses of two
Bibles, English to Spanish: post-norm, one layer on each side, 700 pieces of SentencePiece for both. From the vocabulary
the table of normalisation was taken out, which changes nothing in these sentences. expected.json has sentences with
Marian's words and log-probabilities, greedily and with 4 beams; what its limit of length cut off is not among them.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dragoman.config import SearchConfig
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError
from dragoman.export.run import forbid
from dragoman.interop import importing
from dragoman.interop.importing import import_model
from dragoman.interop.weights import Original, build_model, columns_in_pairs
from dragoman.model import Model
from dragoman.model_folder import read_model

MARIAN = Path(__file__).parents[1] / "marian"
EVERY = json.loads((MARIAN / "expected.json").read_text(encoding="utf-8"))
EXPECTED = EVERY[:60]  # the others are slow


def words_and_scores(folder: Path, beam: int, rows: list[dict] = EXPECTED) -> list[tuple[str, float]]:
    """Return what an imported model says, and with which log-probability."""
    model, (source, target) = read_model(folder)
    ids = source.encode_all([row["source"] for row in rows])
    config = SearchConfig(beam=beam, length_penalty=0, extra_length=100)
    found = TorchEngine(model, suppressed=target.suppressed).search(ids, config)
    return [(target.decode(best.tokens), best.score) for best, *_ in found]


@pytest.mark.parametrize(("beam", "search"), [(1, "greedy"), (4, "beam 4")])
def test_imported_model_says_what_marian_says(beam: int, search: str, tmp_path: Path):
    found = words_and_scores(import_model(MARIAN, tmp_path / "model"), beam)
    assert len(found) > 50
    assert [text for text, _ in found] == [row[search][0] for row in EXPECTED]
    assert [score for _, score in found] == pytest.approx([row[search][1] for row in EXPECTED], abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("beam", "search"), [(1, "greedy"), (4, "beam 4")])
def test_marian_model_says_what_marian_says_500_times(beam: int, search: str, tmp_path: Path):
    found = words_and_scores(import_model(MARIAN, tmp_path / "model"), beam, EVERY)
    assert len(found) == 500
    assert [text for text, _ in found] == [row[search][0] for row in EVERY]
    assert [score for _, score in found] == pytest.approx([row[search][1] for row in EVERY], abs=1e-3)


def test_unknown_word_has_a_share_of_the_probability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The control: Marian never says it, but counts it."""

    def build(original: Original) -> Model:
        model = build_model(original)
        forbid(model, [3])  # behind padding, start and end
        return model

    monkeypatch.setattr(importing, "build_model", build)
    found = words_and_scores(import_model(MARIAN, tmp_path / "model"), 1)
    assert max(abs(score - row["greedy"][1]) for (_, score), row in zip(found, EXPECTED, strict=True)) > 5e-3


def test_marian_model_with_other_positions_differs_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The control: the positions that transformers computes for such models."""

    def build(original: Original) -> Model:
        columns = columns_in_pairs(original.config.d_model)
        return build_model(replace(original, config=replace(original.config, positions="sinusoidal"), columns=columns))

    monkeypatch.setattr(importing, "build_model", build)
    found = words_and_scores(import_model(MARIAN, tmp_path / "model"), 1)
    same = sum(text == row["greedy"][0] for (text, _), row in zip(found, EXPECTED, strict=True))
    assert same < 0.7 * len(EXPECTED)


def test_without_its_vocabulary_it_is_refused(tmp_path: Path):
    broken = shutil.copytree(MARIAN, tmp_path / "broken")
    (broken / "joint.spm").unlink()
    with pytest.raises(DragomanError, match=r"joint\.spm"):
        import_model(broken, tmp_path / "model")
    assert not (tmp_path / "model").exists()
