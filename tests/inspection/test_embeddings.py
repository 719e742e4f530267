"""The space of the embeddings: neighbours are those with the greatest cosines, and two axes keep most of the spread."""

from typing import Any

import pytest
import torch
from conftest import tiny_transformer
from imported import tokenizer_of, trained_model
from torch import Tensor

from dragoman.data.tokenizer import RESERVED, Tokenizer
from dragoman.data.tokenizers import SideTokenizer
from dragoman.inspection.embeddings import Neighbourhood, neighbourhoods, principal_components
from dragoman.inspection.figure import pyplot
from dragoman.inspection.inspect import inspect
from dragoman.inspection.plots import embeddings
from dragoman.inspection.plots.embeddings import embedding_figure
from dragoman.model import build
from dragoman.translation.translator import Translator


def make(tokenizer: SideTokenizer) -> Translator:
    torch.manual_seed(0)
    return Translator(build(tiny_transformer(), len(tokenizer)).eval(), tokenizer)


def test_nearest_neighbour_is_the_vector_put_beside_a_word(tokenizer: Tokenizer):
    translator = make(tokenizer)
    inspection = inspect(translator, "The dog dog", "개가")
    ids = [inspection.source.ids[position] for position in inspection.source.words[1].tokens]
    stranger = max(set(range(len(RESERVED), len(tokenizer))) - set(ids))
    source, _ = neighbourhoods(translator.model, translator.tokenizers, inspection)
    row = source.words.index("dog")
    assert source.neighbours[row][0] != stranger  # the control
    weight = translator.model.source_embedding.weight
    with torch.no_grad():
        weight[stranger] = 3 * source.vectors[row]  # as long as it likes: a cosine does not see it
    source, target = neighbourhoods(translator.model, translator.tokenizers, inspection)
    assert source.words == ["The", "dog"]
    assert (source.neighbours[row][0], round(source.cosines[row][0], 5)) == (stranger, 1.0)
    for side in (source, target):
        for near, cosines in zip(side.neighbours, side.cosines, strict=True):
            assert cosines == sorted(cosines, reverse=True)
            assert min(near) >= len(RESERVED)
    assert not set(ids) & set(source.neighbours[row])


def test_neighbours_in_an_imported_model_are_subwords_with_text():
    tokenizer = tokenizer_of(trained_model(), ("de", "ko"))
    others = {*tokenizer.special_ids, tokenizer.unknown}
    text = next(id for id in range(len(tokenizer)) if id not in others)
    assert text < len(RESERVED)  # where our own tokenizers have bytes
    translator = make(tokenizer)
    inspection = inspect(translator, "The dog", "The dog")
    weight = translator.model.source_embedding.weight
    word = next(word for word in inspection.source.words if word.label == "dog")
    with torch.no_grad():
        vector = weight[[inspection.source.ids[position] for position in word.tokens]].mean(0)
        weight[[text, *others]] = 3 * vector
    source, _ = neighbourhoods(translator.model, translator.tokenizers, inspection)
    near = source.neighbours[source.words.index("dog")]
    assert near[0] == text
    assert not others & set(near)


def spread(points: Tensor) -> float:
    return float((points - points.mean(0)).square().sum())


def test_principal_components_keep_all_of_a_plane_and_part_of_noise():
    torch.manual_seed(1)
    plane = torch.randn(30, 2) @ torch.linalg.qr(torch.randn(16, 2)).Q.T + torch.randn(16)
    noise = torch.randn(30, 16)
    torch.testing.assert_close(spread(principal_components(plane)), spread(plane), rtol=1e-4, atol=0.0)
    assert spread(principal_components(noise)) < 0.5 * spread(noise)  # the control


def covered(figure: Any) -> int:
    """Return how many labels cover an earlier one."""
    boxes = [label.get_window_extent() for label in figure.axes[0].texts]
    return sum(any(box.overlaps(other) for other in boxes[:number]) for number, box in enumerate(boxes))


def test_labels_of_near_points_do_not_cover_each_other(monkeypatch: pytest.MonkeyPatch):
    """The control: with one place for each label, many do."""
    torch.manual_seed(1)
    words = [f"word {number}" for number in range(8)]
    side = Neighbourhood(
        words,
        torch.randn(8, 2),
        [[2 * number, 2 * number + 1] for number in range(8)],
        [[f"near {number}", f"next {number}"] for number in range(8)],
        [[0.5, 0.4] for _ in range(8)],
        torch.randn(16, 2) / 2,
    )

    def drawn() -> Any:
        figure = pyplot().figure(figsize=(13, 9), layout="constrained")
        embedding_figure([("a", side), ("b", side)], "").draw(figure)
        pyplot().close(figure)
        return figure

    apart = covered(drawn())
    monkeypatch.setattr(embeddings, "PLACES", embeddings.PLACES[:1])
    assert apart == 0 < covered(drawn())
