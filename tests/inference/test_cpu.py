"""The fast paths of a device: the same answers as the plain operations, and settings that have them."""

import copy
import ctypes
import itertools
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from conftest import TINY, TINY_RECURRENT, toy_pairs, write_tsv
from torch import Tensor, nn
from torch.nn.functional import pad

from dragoman.config import FeedForwardConfig, ModelConfig, SearchConfig
from dragoman.data.tokenizer import PAD
from dragoman.decoding.search import BLOCK, PLAIN_ROWS, argmax, topk
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import UsageError
from dragoman.inference import linears, products
from dragoman.inference.linears import (
    BLOCK_OUTPUTS,
    FEW_ROWS,
    FEWEST_KEYS,
    INPUTS,
    Int8Linear,
    Int8WeightLinear,
    PackedLinear,
    steady_attention,
)
from dragoman.inference.products import (
    GPU_PRODUCTS,
    PRODUCTS,
    can_pack,
    pack_hidden,
    pack_linear,
    pack_weights,
    resolve_type,
    supported_types,
)
from dragoman.model import Model, build
from dragoman.model.attention import fused_attention
from dragoman.model.transformer import FeedForward
from dragoman.runtime.device import device_of
from dragoman_lab.ablation import AblationConfig

WORDS = 300
KINDS = {"transformer": TINY, "recurrent": TINY_RECURRENT}
CPU = torch.device("cpu")


def fresh(kind: str) -> Model:
    torch.manual_seed(1)
    config: ModelConfig = KINDS[kind]  # type: ignore[assignment]
    return build(config, WORDS, pad=PAD).eval()


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_packed_model_answers_as_the_unchanged_model(kind: str):
    model = fresh(kind)
    assert can_pack(model)
    packed = pack_weights(model)
    assert not any(isinstance(module, PackedLinear) for module in model.modules())
    assert any(isinstance(module, PackedLinear) for module in packed.modules())
    assert {p.data_ptr() for p in packed.parameters()} < {p.data_ptr() for p in model.parameters()}
    for rows in (1, 2, 31, 64):
        source, target = torch.randint(3, WORDS, (rows, 9)), torch.randint(3, WORDS, (rows, 5))
        expected, found = model(source, target), packed(source, target)
        assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
        assert (found - model(source.flip(1), target)).abs().max() > 1e-3  # the control


@pytest.mark.parametrize("change", ["query-key", "query-key-value"])
@torch.inference_mode()
def test_matrix_with_several_names_is_packed_once_and_under_each(change: Any):
    model = build(AblationConfig(**vars(TINY), change=change), WORDS, pad=PAD).eval()
    packed = pack_weights(model)
    assert not any(type(module) is nn.Linear for module in packed.modules())
    layers = [each.encoder[0].attention for each in (model, packed)]
    assert [layer.key is layer.query for layer in layers] == [True, True]
    assert [layer.value is layer.query for layer in layers] == [change == "query-key-value"] * 2
    source, target = torch.randint(3, WORDS, (3, 9)), torch.randint(3, WORDS, (3, 5))
    assert torch.allclose(packed(source, target), model(source, target), atol=1e-4)


def test_model_that_cannot_be_packed_is_left_as_it_is():
    model = fresh("transformer").double()
    assert pack_weights(model) is model
    thing = object()
    assert pack_weights(thing) is thing


@torch.inference_mode()
def test_search_finds_with_packed_matrices_what_it_finds_without():
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


def test_linear_map_of_another_kind_is_not_touched():
    class Special(nn.Linear):
        pass

    twin = pack_weights(nn.Sequential(Special(3, 3), nn.Linear(3, 3)))
    assert [type(module) for module in twin] == [Special, PackedLinear]


# bfloat16 and int8.

ERRORS = {"float32": 1e-5, "bfloat16": 2e-2, "int8": 5e-2}  # the most of a logit, in largest ones


@pytest.mark.parametrize("kind", [*KINDS, "relative", "rotary-across"])
@pytest.mark.parametrize("name", supported_types())
@torch.inference_mode()
def test_types_answer_nearly_as_float32_in_steps_and_at_once(kind: str, name: str):
    torch.manual_seed(1)
    config = KINDS.get(kind) or replace(TINY, positions=kind)
    model = build(config, WORDS, pad=PAD).eval()
    packed = pack_weights(model, name)
    source, target = torch.randint(3, WORDS, (8, 9)), torch.randint(3, WORDS, (8, 5))
    source[:4, 6:] = PAD
    expected, found = model(source, target), packed(source, target)
    state = packed.start(source)
    steps = torch.cat([packed.step(token, state) for token in target.split(1, 1)], 1)
    for answer in (found, steps):
        assert (answer - expected).abs().max() <= ERRORS[name] * expected.abs().max()
    assert (found - model(source.flip(0), target)).abs().max() > 2 * ERRORS[name] * expected.abs().max()  # the control


@pytest.mark.parametrize("name", supported_types())
@torch.inference_mode()
def test_row_is_multiplied_in_a_crowd_as_alone(name: str):
    torch.manual_seed(1)
    linear, x = nn.Linear(96, 130), torch.randn(40, 96) * torch.logspace(-3, 3, 40)[:, None]
    product = PRODUCTS[name](linear)
    together = product(x)
    for rows in (1, 2, 3, FEW_ROWS, FEW_ROWS + 1, 31):
        alone = product(x[:rows])
        assert torch.allclose(alone, together[:rows], rtol=1e-5, atol=1e-6)
        if rows > (FEW_ROWS if name == "float32" else 1):  # fewer are multiplied in another way, and rounded otherwise
            assert torch.equal(alone, together[:rows])
    relative = (together - linear(x)).norm(dim=1) / linear(x).norm(dim=1)
    assert relative.max() < ERRORS[name]
    coarse = (x / (x.abs().max() / 127)).round() * (x.abs().max() / 127)  # the control: one scale for all rows
    assert ((linear(coarse) - linear(x)).norm(dim=1) / linear(x).norm(dim=1)).max() > ERRORS["int8"]


@pytest.mark.parametrize("processor", [{"avx2": True}, {"avx2": True, "avx512_f": True}, {}])
@pytest.mark.parametrize(
    ("outputs", "bias"), [(4 * BLOCK_OUTPUTS, True), (4 * BLOCK_OUTPUTS, False), (4 * BLOCK_OUTPUTS + 2, True)]
)
@torch.inference_mode()
def test_products_of_few_rows_are_in_blocks_with_avx2_alone(
    monkeypatch: pytest.MonkeyPatch, outputs: int, bias: bool, processor: dict[str, bool]
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor, raising=False)
    linear, x = nn.Linear(96, outputs, bias), torch.randn(FEW_ROWS + 1, 96)
    for activation, expected in (("none", linear(x)), ("relu", linear(x).relu())):
        product = PackedLinear(linear, activation)
        assert (product.blocks is not None) == (outputs % BLOCK_OUTPUTS == 0 and list(processor) == ["avx2"])
        for rows in range(1, FEW_ROWS + 2):
            found = product(x[:rows])
            assert torch.allclose(found, expected[:rows], atol=1e-5)
            assert found.is_contiguous()
            other_order = found.roll(BLOCK_OUTPUTS, 1)  # the control
            assert not torch.allclose(other_order, expected[:rows], atol=1e-5)


@pytest.mark.parametrize(
    ("processor", "mkl", "rows"),
    [
        ({"avx512_f": True, "cpu_name": "AMD EPYC"}, True, (FEW_ROWS, 1, 0)),
        ({"avx512_f": True, "cpu_name": "AMD EPYC"}, False, (FEW_ROWS, FEW_ROWS, 1)),
        ({"avx512_f": True, "cpu_name": "Intel(R) Xeon(R)"}, True, (FEW_ROWS, FEW_ROWS, 1)),
        ({"cpu_name": "AMD EPYC"}, True, (FEW_ROWS, FEW_ROWS, 1)),
        ({}, True, (FEW_ROWS, FEW_ROWS, 1)),
    ],
)
@torch.inference_mode()
def test_products_are_plain_where_onednn_takes_longer(
    monkeypatch: pytest.MonkeyPatch, processor: dict[str, Any], mkl: bool, rows: tuple[int, ...]
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor, raising=False)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    for (inputs, outputs), plain in zip([(256, 256), (256, 258), (512, 1026)], rows, strict=True):
        linear, x = nn.Linear(inputs, outputs), torch.randn(FEW_ROWS + 1, inputs)
        product, expected = PackedLinear(linear), linear(x)
        for few in range(1, FEW_ROWS + 2):
            assert torch.allclose(product(x[:few]), expected[:few], atol=1e-5)
        assert (product.plain is None) == (plain == 0)  # no memory for a copy that is not read
        product.packed = PackedLinear(nn.Linear(inputs, outputs)).packed  # the control: other weights
        for few in range(1, FEW_ROWS + 2):
            assert torch.allclose(product(x[:few]), expected[:few], atol=1e-5) == (few <= plain)


@pytest.mark.parametrize("name", [name for name in supported_types() if name != "int8"])
@torch.inference_mode()
def test_fused_relu_gives_the_bits_of_relu_after_the_product(name: str):
    linear, x = nn.Linear(96, 128), torch.randn(40, 96)
    for rows in (1, 2, 40):
        product, expected = PRODUCTS[name](linear)(x[:rows]), PRODUCTS[name](linear, "relu")(x[:rows])
        assert torch.equal(product.relu(), expected.float())
        assert not torch.equal(product, expected.float())  # the control


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("name", supported_types())
@torch.inference_mode()
def test_packed_feed_forward_network_computes_what_it_did(name: str, activation: Literal["relu", "gelu"]):
    network = FeedForward(96, FeedForwardConfig(d_ff=130, activation=activation)).eval()
    packed, x = copy.deepcopy(network), torch.randn(40, 96)
    packed.hidden, packed.activation = pack_hidden(network, name)
    packed.out = pack_linear(network.out, name)
    expected, found = network(x), packed(x)
    assert found.dtype == torch.float32
    assert (found - expected).abs().max() <= ERRORS[name] * expected.abs().max()
    packed.activation = nn.Tanh()
    assert (packed(x) - expected).abs().max() > ERRORS[name] * expected.abs().max()  # the control


@pytest.mark.skipif("int8" not in supported_types(), reason="this processor has no int8")
@pytest.mark.parametrize("kind", [Int8Linear, Int8WeightLinear])
@torch.inference_mode()
def test_rows_of_zeros_and_numbers_that_are_none_go_through_int8(kind: type[nn.Module]):
    linear = nn.Linear(4, 3)
    linear.weight[1] = 0
    x = torch.tensor([[0.0] * 4, [1.0, -2.0, 3.0, torch.nan], [1.0, 2.0, 3.0, 4.0]])
    y = kind(linear)(x)
    assert torch.equal(y[0], linear.bias)
    assert y[1].isnan().all()
    assert torch.allclose(y[2], linear(x)[2], atol=0.1)
    assert torch.equal(y[2, 1], linear.bias[1])


@pytest.mark.skipif("int8" not in supported_types(), reason="this processor has no int8")
@pytest.mark.parametrize("inputs", [12, INPUTS, INPUTS + 1, 256])
@pytest.mark.parametrize("rows", [1, 3, 5, 40])
@torch.inference_mode()
def test_weights_in_int8_are_multiplied_in_bfloat16_and_added_in_float32(rows: int, inputs: int):
    torch.manual_seed(1)
    linear, x = nn.Linear(inputs, 33), torch.randn(rows, inputs)
    product = Int8WeightLinear(linear)
    assert product.quantised.dtype == torch.int8
    weight = (product.quantised.double() * product.scale.double()[:, None])[:, :inputs]
    assert ((weight - linear.weight).abs() <= 0.51 * product.scale.double()[:, None]).all()
    exact = x.bfloat16().double() @ weight.T
    for own in (product(x), product(x[:, None])[:, 0]):
        assert own.dtype == torch.float32
        assert torch.allclose(own.double() - linear.bias, exact, rtol=2**-7, atol=1e-4)
    assert not torch.allclose(x.double() @ weight.T, exact, rtol=2**-14, atol=1e-6)  # the control: inputs are rounded


@pytest.mark.parametrize(
    "kind",
    [
        "transformer",
        "rotary-across",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("recurrent", "relative")),
    ],
)
@pytest.mark.parametrize("name", supported_types())
def test_output_is_the_same_alone_or_in_a_batch_in_each_type(kind: str, name: str):
    """In bfloat16 and int8, where rounding would make much of little, to the last bit."""
    torch.manual_seed(1)
    config = KINDS.get(kind) or replace(TINY, positions=kind)
    model = build(config, WORDS, pad=PAD).eval()
    with torch.no_grad():
        model.output.weight.mul_(3)
    engine = TorchEngine(model, compute_type=name)
    sources = [torch.randint(4, WORDS, (length,)).tolist() for length in [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 40, 70]]
    for beam in (1, 2, 4):
        search = SearchConfig(beam=beam, extra_length=5, n_best=beam)
        together = engine.search(sources, search)
        alone = [engine.search([ids], search)[0] for ids in sources]
        assert [found[0].tokens for found in alone] == [found[0].tokens for found in together]
        if name != "float32" and kind != "recurrent":
            assert alone == together
        others = [[id - 1 for id in ids] for ids in sources]
        assert [engine.search([ids], search)[0] for ids in others[:4]] != together[:4]  # the control


@pytest.mark.parametrize("name", supported_types())
def test_model_with_few_positions_searches_in_each_type(name: str):
    torch.manual_seed(1)
    model = build(replace(TINY, positions="learned", max_length=10), WORDS, pad=PAD).eval()
    engine, search = TorchEngine(model, compute_type=name), SearchConfig(beam=2, extra_length=5)
    sources = [torch.randint(4, WORDS, (length,)).tolist() for length in (1, 2, 5, 8, 9)]
    together, alone = engine.search(sources, search), [engine.search([ids], search)[0] for ids in sources]
    assert [found[0].tokens for found in alone] == [found[0].tokens for found in together]
    assert name == "float32" or alone == together


@torch.inference_mode()
def test_attention_is_steady_whatever_padding_and_rows_there_are():
    torch.manual_seed(1)
    differ = 0
    for queries, keys in itertools.product((1, 2, 3, 4, 20), (1, 7, 16, 17, 40)):
        query, key, value = torch.randn(1, 2, queries, 16), torch.randn(1, 2, keys, 16), torch.randn(1, 2, keys, 16)
        found = []
        for rows, padded in itertools.product((1, 3, 20), (max(keys, FEWEST_KEYS), 41, 64)):
            x, *seen = (pad(part, (0, 0, 0, padded - keys)) for part in (query, key, value))
            mask = (torch.arange(padded) < keys)[None, None, None].expand(rows, 1, 1, -1)
            x, *seen = (part.repeat(rows, 1, 1, 1) for part in (query, *seen))
            found.append([kernel(x, *seen, mask)[-1] for kernel in (steady_attention, fused_attention)])
        assert all(torch.equal(found[0][0], steady) for steady, _ in found)
        differ += not all(torch.equal(found[0][1], fused) for _, fused in found)
        assert torch.allclose(found[0][0], fused_attention(query, key, value)[0], atol=1e-6)
    assert differ  # the control


@torch.inference_mode()
def test_attention_over_many_rows_is_computed_in_parts(monkeypatch: pytest.MonkeyPatch):
    query, key, value = (torch.randn(5, 2, 20, 8) for _ in range(3))
    for mask in (None, torch.rand(5, 1, 1, 20) > 0.3, torch.randn(2, 20, 20), torch.randn(1, 2, 20, 20)):
        monkeypatch.setattr(linears, "SCORES", 2**22)
        whole = steady_attention(query, key, value, mask)
        monkeypatch.setattr(linears, "SCORES", 2 * 2 * 20 * 20)  # two rows
        assert torch.equal(steady_attention(query, key, value, mask), whole)
        assert not torch.equal(steady_attention(query.flip(0), key, value, mask), whole)  # the control


@pytest.mark.parametrize("name", supported_types())
def test_int8_takes_a_quarter_of_the_memory_of_its_matrices(name: str):
    """And bfloat16 half of it; float32, the control, has the matrix twice, and for few rows a third time."""
    linear = nn.Linear(512, 512)
    size = sum(t.nbytes for t in vars(PRODUCTS[name](linear)).values() if isinstance(t, Tensor))
    copies = 2 if PackedLinear(linear).blocks is None else 3
    least, most = {"int8": (0, 0.26), "bfloat16": (0, 0.51), "float32": (copies, copies + 0.1)}[name]
    assert least * linear.weight.nbytes <= size < most * linear.weight.nbytes


def test_type_that_the_processor_has_no_instructions_for_is_refused(monkeypatch: pytest.MonkeyPatch):
    assert resolve_type("auto", CPU) in supported_types()
    for capabilities, fastest, refused in (
        ({}, "float32", "bfloat16"),
        ({}, "float32", "int8"),
        ({"avx2": True}, "float32", "bfloat16"),
        ({"avx512_bf16": True}, "bfloat16", "int8"),
        ({"avx512_vnni": True}, "int8", "bfloat16"),
        ({"avx512_bf16": True, "avx512_vnni": True}, "int8", None),
        ({"amx_bf16": True, "amx_int8": True, "avx512_bf16": True, "avx512_vnni": True}, "bfloat16", None),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda has=capabilities: has, raising=False)
        monkeypatch.setattr(products, "multiplies_int8", lambda: False)
        assert resolve_type("auto", CPU) == fastest
        monkeypatch.setattr(products, "multiplies_int8", lambda: True)  # as in C++, where it is faster in batches, too
        with_library = "int8" if "avx2" in capabilities else fastest
        assert resolve_type("auto", CPU) == with_library
        if refused is None:
            assert supported_types() == ["float32", "bfloat16", "int8"]
            continue
        with pytest.raises(UsageError, match=f"'{refused}': this processor has no instructions for it, only for float"):
            resolve_type(refused, CPU)
    assert resolve_type("auto", torch.device("cuda")) == "float32"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    with pytest.raises(UsageError, match="'bfloat16': this GPU has no instructions for it, only for float32"):
        resolve_type("bfloat16", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    assert resolve_type("bfloat16", torch.device("cuda")) == "bfloat16"
    with pytest.raises(UsageError, match="'int8' is for CPUs"):
        resolve_type("int8", torch.device("cuda"))
    with pytest.raises(UsageError, match="needs a model with weights in float32"):
        pack_weights(fresh("transformer").double(), "int8")


@pytest.mark.parametrize(
    ("capabilities", "kind"),
    [
        ({"avx2": True}, Int8WeightLinear),
        ({"avx2": True, "avx512_vnni": True}, Int8Linear),
        ({"avx2": True, "amx_int8": True}, Int8Linear),
    ],
)
def test_int8_is_for_weights_alone_where_the_processor_cannot_add_it(
    capabilities: dict[str, bool], kind: type[nn.Module], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert supported_types() == ["float32", "int8"]
    assert type(pack_linear(nn.Linear(32, 4), "int8")) is kind


@torch.inference_mode()
def test_products_of_a_gpu_are_those_of_an_ordinary_layer():
    for linear in (nn.Linear(40, 30), nn.Linear(40, 30, bias=False)):
        x = torch.randn(7, 40)
        assert GPU_PRODUCTS["float32"](linear) is linear
        rounded = GPU_PRODUCTS["bfloat16"](linear)(x)
        assert rounded.dtype == torch.float32
        assert torch.equal(rounded, linear.bfloat16()(x.bfloat16()).float())
        assert not torch.equal(rounded, linear.float()(x))  # the control


@pytest.mark.parametrize("size", [1, 5, BLOCK, 3 * BLOCK - 1, 3 * BLOCK, 8 * BLOCK + 1, 1000, 8000])
@pytest.mark.parametrize("k", [1, 2, 8])
def test_largest_are_found_block_by_block(size, k):
    k = min(k, size)
    x = torch.randn(3, 4, size, generator=torch.Generator().manual_seed(size + k))
    x[0, 0, : size // 2] = -torch.inf  # as processors leave them
    x[1, 1] = x[1, 1].sort()[0]  # all of the largest in one block, the last
    largest, index = topk(x, k)
    assert torch.equal(largest, x.topk(k)[0])
    assert torch.equal(x.gather(-1, index), largest)
    assert all(len(set(row)) == k for row in index.flatten(0, -2).tolist())


@pytest.mark.parametrize("size", [1, 5, BLOCK, 3 * BLOCK - 1, 3 * BLOCK, 8 * BLOCK + 1, 1000, 8000])
def test_first_of_the_largest_is_found_whatever_the_number_of_rows(size):
    """Batches must not decide between equally probable words."""
    x = torch.randint(0, 9, (2 * PLAIN_ROWS + 1, size), generator=torch.Generator().manual_seed(size)).float()
    x[0, : size // 2] = x[1] = -torch.inf  # as processors leave them
    x[2], x[3, -1] = x[2].sort()[0], 9
    expected = torch.tensor([row.index(max(row)) for row in x.tolist()])
    for rows in (1, PLAIN_ROWS, PLAIN_ROWS + 1, len(x)):
        assert torch.equal(argmax(x[:rows]), expected[:rows])
        assert torch.equal(argmax(x[-rows:]), expected[-rows:])


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
new_pages()  # until there is a block that fits, some more come from the system
print(new_pages())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="glibc alone has it")
def test_freed_memory_is_reused_unless_the_user_says_otherwise():
    def new_pages(**environment: str) -> list[int]:
        command = [sys.executable, "-c", TOUCH]
        said = subprocess.run(command, env=os.environ | environment, check=True, capture_output=True).stdout
        return [int(pages) for pages in said.split()]

    once = (1 << 26) // resource.getpagesize()
    before, after = new_pages()
    assert after <= 2 * once < 4 * once < before
    assert min(new_pages(MALLOC_MMAP_THRESHOLD_="1000000")) > 4 * once


HOLE = """
import sys
from pathlib import Path
import numpy as np
import torch
from dragoman.data.batches import Batch
from dragoman.data.corpus import read_corpus
from dragoman.model_folder import read_model
from dragoman.training import validation
from dragoman.training.distributed import ProcessGroup
from dragoman.training.memory import keep_freed_memory, return_freed_memory
from dragoman.training.signals import GracefulStop

class Pairs:
    lengths = np.array([[2, 2]])
    def batch(self, rows):
        return Batch.from_pairs([[5]], [[5]])

def validate():
    cpu = torch.device("cpu")
    validation.validate(model, tokenizers, Pairs(), corpus, ProcessGroup(cpu), GracefulStop(), lambda share: None)

def held():
    return int(Path("/proc/self/statm").read_text().split()[1])  # pages

def make_hole():
    global before
    block, _, other = (torch.ones(1 << 24) for _ in range(3))  # 64 MB each
    kept.extend([block, other])
    before = held()  # with the one between them, which is freed now

def around(name, first, last):
    function = getattr(validation, name)
    def with_both(*arguments):
        first()
        result = function(*arguments)
        last()
        return result
    setattr(validation, name, with_both)

def report():
    print(before - held())

corpus = read_corpus([sys.argv[1]])
model, tokenizers = read_model(Path(sys.argv[2]))
kept = []
validate()  # whatever is needed once
keep_freed_memory()
if sys.argv[3] == "nothing":
    make_hole()
    report()
elif sys.argv[3] == "return_freed_memory":
    make_hole()
    return_freed_memory()
    report()
elif sys.argv[3] == "the beginning of a validation":
    around("mean_loss", report, lambda: None)
    make_hole()
    validate()
elif sys.argv[3] == "the end of a validation":
    around("translate_all", lambda: None, make_hole)
    validate()
    report()
assert all(block.sum() == 1 << 24 for block in kept)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="glibc alone has it"
)
@pytest.mark.parametrize(
    ("by", "blocks"),
    [
        ("nothing", 0),
        ("return_freed_memory", 1),
        ("the beginning of a validation", 1),
        ("the end of a validation", 1),
    ],
)
@pytest.mark.slow
def test_freed_memory_is_returned_to_the_system(trained: Path, tmp_path: Path, by: str, blocks: int):
    dev = write_tsv(tmp_path / "dev.tsv", toy_pairs(3))
    command = [sys.executable, "-c", HOLE, dev, str(trained / "best"), by]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    said = subprocess.run(command, env=environment, check=True, capture_output=True).stdout
    assert int(said) * resource.getpagesize() / 2**26 == pytest.approx(blocks, abs=0.25)


def test_gpu_does_not_use_attention_by_cudnn(monkeypatch: pytest.MonkeyPatch):
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
