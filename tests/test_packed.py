"""PackedLinear matrices: the same answers, from weights that are shared with the model."""

import pytest
import torch
from conftest import TINY, TINY_RECURRENT
from torch import nn

from dragoman.config import ModelConfig, SearchConfig
from dragoman.data.tokenizer import PAD
from dragoman.decoding.onednn import PackedLinear, can_pack, pack_weights
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.model import Model, build

WORDS = 300
KINDS = {"transformer": TINY, "recurrent": TINY_RECURRENT}


def fresh(kind: str) -> Model:
    torch.manual_seed(1)
    config: ModelConfig = KINDS[kind]  # type: ignore[assignment]
    return build(config, WORDS, pad=PAD).eval()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 2, 31, 64])
@torch.inference_mode()
def test_a_packed_model_answers_as_the_model_does(kind: str, rows: int):
    model = fresh(kind)
    assert can_pack(model)
    source, target = torch.randint(3, WORDS, (rows, 9)), torch.randint(3, WORDS, (rows, 5))
    expected, found = model(source, target), pack_weights(model)(source, target)
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert (found - model(source.flip(1), target)).abs().max() > 1e-3  # the control


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_itself_stays_as_it_is_and_its_weights_are_shared(kind: str):
    model = fresh(kind)
    twin = pack_weights(model)
    assert not any(isinstance(module, PackedLinear) for module in model.modules())
    assert any(isinstance(module, PackedLinear) for module in twin.modules())
    assert {p.data_ptr() for p in twin.parameters()} == {p.data_ptr() for p in model.parameters()}


def test_what_cannot_be_packed_is_left_as_it_is():
    model = fresh("transformer").double()
    assert pack_weights(model) is model
    thing = object()
    assert pack_weights(thing) is thing


@torch.inference_mode()
def test_a_search_finds_with_packed_matrices_what_it_finds_without():
    model = fresh("transformer")
    model.output.weight.mul_(3)  # a model with opinions
    plain = TorchEngine(model)
    plain.model = model  # as it is
    sources = torch.randint(3, WORDS, (20, 7)).tolist()
    for beam in (1, 4):
        config = SearchConfig(beam=beam, extra_length=5)
        one, other = plain.search(sources, config), TorchEngine(model).search(sources, config)
        assert [found[0].tokens for found in one] == [found[0].tokens for found in other]
        assert [found[0].score for found in one] == pytest.approx([found[0].score for found in other], abs=1e-4)


def test_a_linear_map_of_another_kind_is_not_touched():
    class Special(nn.Linear):
        pass

    twin = pack_weights(nn.Sequential(Special(3, 3), nn.Linear(3, 3)))
    assert [type(module) for module in twin] == [Special, PackedLinear]
