"""The fast paths of a device: the same answers as the plain operations, and settings that have them."""

import ctypes
import os
import resource
import subprocess
import sys

import pytest
import torch
from conftest import TINY, TINY_RECURRENT
from torch import nn

from dragoman.config import ModelConfig, SearchConfig
from dragoman.data.tokenizer import PAD
from dragoman.decoding.search import BLOCK, topk
from dragoman.decoding.torch_engine import PackedLinear, TorchEngine, can_pack, pack_weights
from dragoman.device import device_of
from dragoman.model import Model, build

WORDS = 300
KINDS = {"transformer": TINY, "recurrent": TINY_RECURRENT}


def fresh(kind: str) -> Model:
    torch.manual_seed(1)
    config: ModelConfig = KINDS[kind]  # type: ignore[assignment]
    return build(config, WORDS, pad=PAD).eval()


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_a_packed_model_answers_as_the_model_does_which_stays_as_it_is(kind: str):
    model = fresh(kind)
    assert can_pack(model)
    packed = pack_weights(model)
    assert not any(isinstance(module, PackedLinear) for module in model.modules())
    assert any(isinstance(module, PackedLinear) for module in packed.modules())
    assert {p.data_ptr() for p in packed.parameters()} == {p.data_ptr() for p in model.parameters()}
    for rows in (1, 2, 31, 64):
        source, target = torch.randint(3, WORDS, (rows, 9)), torch.randint(3, WORDS, (rows, 5))
        expected, found = model(source, target), packed(source, target)
        assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
        assert (found - model(source.flip(1), target)).abs().max() > 1e-3  # the control


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


@pytest.mark.parametrize("size", [1, 5, BLOCK, 3 * BLOCK - 1, 3 * BLOCK, 8 * BLOCK + 1, 1000, 8000])
@pytest.mark.parametrize("k", [1, 2, 8])
def test_the_largest_are_found_block_by_block(size, k):
    k = min(k, size)
    x = torch.randn(3, 4, size, generator=torch.Generator().manual_seed(size + k))
    x[0, 0, : size // 2] = -torch.inf  # as processors leave them
    x[1, 1] = x[1, 1].sort()[0]  # all of the largest in one block, the last
    largest, index = topk(x, k)
    assert torch.equal(largest, x.topk(k)[0])
    assert torch.equal(x.gather(-1, index), largest)
    assert all(len(set(row)) == k for row in index.flatten(0, -2).tolist())


TOUCH = """
import resource
import torch
from dragoman.training.memory import keep_freed_memory

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.ones(1 << 24)  # 64 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(new_pages())
keep_freed_memory()
print(new_pages())
"""


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="glibc alone has it")
def test_freed_memory_is_used_again_without_asking_the_system_unless_the_user_says_otherwise():
    def new_pages(**environment: str) -> list[int]:
        command = [sys.executable, "-c", TOUCH]
        said = subprocess.run(command, env=os.environ | environment, check=True, capture_output=True).stdout
        return [int(pages) for pages in said.split()]

    once = (1 << 26) // resource.getpagesize()
    before, after = new_pages()
    assert after <= 2 * once < 4 * once < before
    assert min(new_pages(MALLOC_MMAP_THRESHOLD_="1000000")) > 4 * once


def test_a_gpu_does_not_use_attention_by_cudnn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        device_of("cpu")
        assert torch.backends.cuda.cudnn_sdp_enabled()  # the control
        assert device_of("auto").type == "cuda"
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
