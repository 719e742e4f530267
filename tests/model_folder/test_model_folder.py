"""The model folder: what was written is read back; what was changed since is refused by name, and quickly."""

import contextlib
import json
import math
import os
import random
import resource
import shutil
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY, TINY_RECURRENT, signed_again, tiny_transformer
from safetensors.torch import load_file, save_file

from dragoman.config import AttentionConfig, ModelConfig, RecurrentConfig, TransformerConfig
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError
from dragoman.model import Model, build, outline
from dragoman.model_folder import read_model, verify_files, write_model
from dragoman.model_folder.weights import Description, expected_shapes, read_tensors
from dragoman.storage.writing import MANIFEST, fingerprint, new_folder, replace_file
from dragoman.training.card import read_card

FILES = ("config.json", "model.safetensors", "tokenizer.json")
SECONDS = 20.0  # to refuse a folder, at most
DEEP = 100_000


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A model folder of one's own."""
    return shutil.copytree((trained / "best").resolve(), tmp_path / "model")


def refused(folder: Path) -> str:
    """The message with which reading is refused. Anything but a DragomanError comes through."""
    began = time.monotonic()
    with pytest.raises(DragomanError) as error:
        read_model(folder)
    assert time.monotonic() - began < SECONDS
    assert "\n" not in str(error.value)
    return str(error.value)


def write(folder: Path, model: Model, tokenizer: Tokenizer) -> Path:
    with new_folder(folder) as draft:
        write_model(draft, model, Tokenizers.from_tokenizer(tokenizer), "# card\n")
    return folder


def assert_same_weights(one: Model, other: Model) -> None:
    assert list(one.state_dict()) == list(other.state_dict())
    assert all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))


# There and back.


@pytest.mark.parametrize("share", ["all", "embeddings", "output", "none"])
@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_model_comes_back_to_the_bit(tmp_path: Path, tokenizer: Tokenizer, share: str, kind: str):
    config = {"transformer": TINY, "recurrent": TINY_RECURRENT}[kind]
    torch.manual_seed(5)
    model = build(type(config)(**{**vars(config), "share": share}), len(tokenizer)).eval()
    found, (subwords, same) = read_model(write(tmp_path / "model", model, tokenizer))
    assert found.config == model.config
    assert subwords is same
    assert subwords.pieces == tokenizer.pieces
    assert not found.training
    assert_same_weights(model, found)
    source, target = torch.tensor([[300, 301, 2]]), torch.tensor([[1, 302]])
    assert torch.equal(model(source, target), found(source, target))
    # The control: a fresh model of the same kind is another.
    assert not torch.equal(model(source, target), build(model.config, len(tokenizer)).eval()(source, target))


def test_reading_a_model_draws_no_random_weights_first(trained: Path):
    before = torch.get_rng_state()
    model, _ = read_model(trained)
    assert torch.equal(torch.get_rng_state(), before)
    build(model.config, 300)
    assert not torch.equal(torch.get_rng_state(), before)  # the control: this is where they would come from


def test_run_folder_is_read_as_its_best_model_with_shared_matrices(trained: Path):
    model, _ = read_model(trained)
    assert_same_weights(model, read_model(trained / "best")[0])
    assert model.output.weight is model.source_embedding.weight is model.target_embedding.weight


def test_same_model_is_written_as_the_same_bytes(tmp_path: Path, tokenizer: Tokenizer):
    model = build(TINY, len(tokenizer))
    folders = [write(tmp_path / str(number), model, tokenizer) for number in range(8)]
    assert len({(folder / MANIFEST).read_bytes() for folder in folders}) == 1


# Damage.


CUT = [(name, share) for name in (*FILES, "state.json", MANIFEST) for share in (None, 0.0, 0.5, 0.99)]


@pytest.mark.parametrize(("name", "share"), [each for each in CUT if each != ("state.json", None)])  # see test_verify
def test_file_that_is_missing_or_cut_off_is_named(folder: Path, name: str, share: float | None):
    data = (folder / name).read_bytes()
    (folder / name).unlink()
    if share is not None:
        (folder / name).write_bytes(data[: int(share * len(data))])
    assert name in refused(folder)


@pytest.mark.parametrize("name", [*FILES, "state.json", "state.safetensors", MANIFEST])
def test_bit_changed_anywhere_is_noticed(folder: Path, name: str):
    verify_files(folder)
    file, chance = folder / name, random.Random(0)
    data = file.read_bytes()
    offsets = {0, len(data) - 1, *(chance.randrange(len(data)) for _ in range(50))}
    for offset in offsets:
        file.write_bytes(data[:offset] + bytes([data[offset] ^ 1 << chance.randrange(8)]) + data[offset + 1 :])
        with pytest.raises(DragomanError) as error:
            verify_files(folder)
        assert f"{name}: damaged: expected" in str(error.value) or name == MANIFEST
    if name == "model.safetensors":  # the control: the format of the weights alone does not notice
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert load_file(file)
    file.write_bytes(data)
    verify_files(folder)


def test_file_added_or_of_another_model_is_noticed(folder: Path, tmp_path: Path, tokenizer: Tokenizer):
    with (folder / "state.json").open("ab") as file:
        file.write(b"\n")
    assert "state.json" in refused(folder)
    (folder / "state.json").write_bytes((folder / "state.json").read_bytes()[:-1])
    verify_files(folder)
    other = write(tmp_path / "other", build(TINY, len(tokenizer)), tokenizer)
    shutil.copy(other / "model.safetensors", folder)
    assert "model.safetensors" in refused(folder)


@pytest.mark.parametrize("name", ["missing", "empty", "a file"])
def test_folder_that_is_no_model_folder_is_refused_by_name(tmp_path: Path, name: str):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a file").write_text("")
    assert str(tmp_path / name) in refused(tmp_path / name)


MANIFESTS: dict[str, bytes] = {
    "empty": b"",
    "no json": b"{",
    "a list": b"[]",
    "no files": b"{}",
    "deep": b"[" * DEEP,
    "not utf-8": b"\xff\xfe",
    "entries that are no tables": json.dumps(dict.fromkeys(FILES, "x")).encode(),
    "entries without a sum": json.dumps({name: {"bytes": 1} for name in FILES}).encode(),
    "entries of the wrong types": json.dumps({name: {"bytes": [], "sha256": {}} for name in FILES}).encode(),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifest_that_is_none_is_refused_by_name(folder: Path, name: str):
    (folder / MANIFEST).write_bytes(MANIFESTS[name])
    message = refused(folder)
    assert str(folder) in message
    assert MANIFEST in message or "damaged" in message


ELSEWHERE = ["../model/card.md", "/etc/passwd", "sub/card.md", "..", ".", "", "x" * 300, "a\0b", "\ud800"]


@pytest.mark.parametrize("name", ELSEWHERE, ids=range(len(ELSEWHERE)))
def test_manifest_leads_nowhere_else(folder: Path, name: str):
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, name: manifest["config.json"]}))
    assert str(folder) in refused(folder)


def test_card_of_any_size_is_shown_from_its_beginning(folder: Path):
    card = folder / "card.md"
    card.write_text("# short\n")
    assert read_card(folder) == "# short\n"
    with card.open("a") as opened:
        opened.truncate(40 << 30)  # a file with a hole, of 40 GB
    shown = read_card(folder)
    assert shown.startswith("# short\n")
    assert len(shown) < 2 << 20
    assert shown.endswith(f"({card} goes on.)\n")


def test_card_may_be_edited_even_if_an_older_manifest_lists_it(folder: Path):
    card = folder / "card.md"
    manifest = json.loads((folder / MANIFEST).read_text())
    assert card.exists()
    assert card.name not in manifest
    for listed in ({}, {card.name: fingerprint(card)}):
        (folder / MANIFEST).write_text(json.dumps({**manifest, **listed}))
        card.write_text("# Mine\n")
        verify_files(folder)
    card.unlink()
    verify_files(folder)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_files_have_the_mode_that_the_umask_gives(tmp_path: Path, tokenizer: Tokenizer, umask: int, mode: int):
    before = os.umask(umask)
    try:
        folder = write(tmp_path / "model", build(TINY, len(tokenizer)), tokenizer)
        replace_file(tmp_path / "file", "text")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(file.stat().st_mode) for file in [*folder.iterdir(), tmp_path / "file"]} == {mode}


HUGE = 40 << 30  # bytes; hashing them takes minutes


@pytest.mark.parametrize("name", [*FILES, "state.json", "state.safetensors", "extent.json", "new.bin", MANIFEST])
def test_file_that_is_larger_than_its_model_needs_is_refused_unread(folder: Path, name: str):
    manifest = json.loads((folder / MANIFEST).read_text())
    with (folder / name).open("ab") as file:
        file.truncate(HUGE)  # it takes no room
    if name != MANIFEST:
        (folder / MANIFEST).write_text(json.dumps({**manifest, name: {"bytes": HUGE, "sha256": "0" * 64}}))
    assert name in refused(folder)


# Descriptions from strangers, correctly signed. Wrong types and values out of range: see also test_config.py.

HOSTILE = {
    "kind": ["recurrent", "gpt", ["transformer"]],
    "auto_map": [{"AutoModel": "evil.Model"}],
    "vocabulary": [2**31, 0, math.nan, "many", None],
    "pad": [300, 10**6, math.inf],
    "d_model": [32, 2**40, 10**30, -16, "16", 16.0],
    "encoder_layers": [10**6],
    "decoder_layers": [0],
    "attention": [5, {"attention": {"attention": {}}}, {"heads": 3}],
    "feed_forward": [{"d_ff": 10**15}],
    "dropout": [math.nan],
    "max_length": [10**30],
    "share": ["none"],
}
DESCRIPTIONS: list[dict[str, Any]] = [
    *({key: value} for key, values in HOSTILE.items() for value in values),
    {"encoder_layers": 1000, "decoder_layers": 1000},
    {"attention": {"heads": 2**40, "d_k": 1, "d_v": 1}},
    {"attention": {"heads": 2**62, "d_k": 2**62, "d_v": 2**62}},
    {"positions": "learned", "max_length": 10**15},
    {"positions": "rotary", "d_model": 18, "attention": {"heads": 2}},
]


def describe(folder: Path, **changes: Any) -> None:
    """Change the description of a model."""
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    signed_again(folder)


@pytest.mark.parametrize("changes", DESCRIPTIONS, ids=str)
def test_hostile_description_is_refused_by_name(folder: Path, changes: dict[str, Any]):
    describe(folder, **changes)
    message = refused(folder)
    assert "config.json" in message or "model.safetensors" in message


@pytest.mark.parametrize("key", ["vocabulary", "pad", "kind"])
def test_description_without_a_key_is_refused_by_name(folder: Path, key: str):
    file = folder / "config.json"
    file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != key}))
    signed_again(folder)
    assert "config.json" in refused(folder)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff", b"[" * DEEP, b'{"a":' * DEEP, b"1" * 5000, b" " * 2_000_000 + b"{}", b"[{}]", b'"a"', b"null"],
    ids=range(10),
)
def test_description_that_is_none_is_refused_by_name(folder: Path, data: bytes):
    (folder / "config.json").write_bytes(data)
    signed_again(folder)
    assert "config.json" in refused(folder)


def test_manifest_of_a_stranger_is_accepted_where_all_is_in_order(folder: Path):
    """The control for the tests above: it is the contents that are refused, not the signature."""
    describe(folder, dropout=0.25)
    assert read_model(folder)[0].config.dropout == 0.25


def test_tokenizer_with_other_ids_than_the_model_is_refused(folder: Path, tokenizer: Tokenizer):
    tokenizer.save(folder / "tokenizer.json")
    signed_again(folder)
    assert "config.json: 400 words, but tokenizer.json has 417" in refused(folder)


# Weights from strangers.


def with_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    weights = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    change(weights)
    save_file(weights, folder / "model.safetensors")
    signed_again(folder)


LAYER_NORM = "decoder.0.around_attention.norm.weight"
WEIGHTS: dict[str, Callable[[dict[str, torch.Tensor]], Any]] = {
    "one missing": lambda w: w.pop(LAYER_NORM),
    "all missing": lambda w: w.clear(),
    "one too many": lambda w: w.update(evil=torch.zeros(1)),
    "one too long": lambda w: w.update({LAYER_NORM: torch.zeros(17)}),
    "one of another rank": lambda w: w.update({LAYER_NORM: torch.zeros(1, 16)}),
    "one empty": lambda w: w.update({LAYER_NORM: torch.zeros(0)}),
    "one renamed": lambda w: w.update({"norm": w.pop(LAYER_NORM)}),
    "one of whole numbers": lambda w: w.update({LAYER_NORM: w[LAYER_NORM].long()}),
    "one of 8 bits": lambda w: w.update({LAYER_NORM: w[LAYER_NORM].to(torch.float8_e4m3fn)}),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_do_not_fit_the_description_are_refused_by_name(folder: Path, name: str):
    with_weights(folder, WEIGHTS[name])
    assert "model.safetensors" in refused(folder)


@pytest.mark.parametrize(
    "config",
    [
        tiny_transformer(attention=AttentionConfig(heads=2, score="additive")),
        RecurrentConfig(cell="gru", d_model=16, attention="additive"),
    ],
    ids=["transformer", "recurrent"],
)
def test_additive_attention_is_read_under_its_name_of_version_0_1(
    tmp_path: Path, tokenizer: Tokenizer, config: ModelConfig
):
    model = build(config, len(tokenizer)).eval()
    write(tmp_path / "model", model, tokenizer)
    old_names = {name: name.replace(".score.", ".kernel.") for name in model.state_dict() if ".score." in name}
    assert len(old_names) == (3 if isinstance(config, TransformerConfig) else 1)
    with_weights(tmp_path / "model", lambda w: w.update({old: w.pop(name) for name, old in old_names.items()}))
    assert_same_weights(model, read_model(tmp_path / "model")[0])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_numbers_are_refused_by_name(folder: Path, value: float):
    """Such a model translates nothing: no hypothesis has a score."""
    with_weights(folder, lambda w: w.update({LAYER_NORM: w[LAYER_NORM].index_fill(0, torch.tensor([3]), value)}))
    assert f"{LAYER_NORM} has values that are infinite or not numbers" in refused(folder)


def test_weights_beyond_float32_are_refused_by_name(folder: Path):
    """They are finite in the file. The control is one that fits."""
    for value in (1e30, 1e300):
        wide = torch.full((16,), value, dtype=torch.float64)
        with_weights(folder, lambda w, wide=wide: w.update({LAYER_NORM: wide}))
        if value == 1e30:
            read_model(folder)
    assert f"{LAYER_NORM} has values that are infinite or not numbers" in refused(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_in_other_floats_are_read_as_float32(folder: Path, dtype: torch.dtype):
    with_weights(folder, lambda w: w.update({name: tensor.to(dtype) for name, tensor in w.items()}))
    assert {tensor.dtype for tensor in read_model(folder)[0].state_dict().values()} == {torch.float32}


def test_weights_that_are_not_there_are_missed_before_they_get_memory(folder: Path):
    """The description asks for much, and the file does not contradict it: it has nothing of that size."""
    describe(folder, feed_forward={"d_ff": 10**6})
    with_weights(folder, lambda w: [w.pop(name) for name in list(w) if "feed_forward" in name])
    assert "model.safetensors" in refused(folder)


TERABYTE = b'{"a":{"dtype":"F32","shape":[274877906944],"data_offsets":[0,1099511627776]}}'
SIX_BITS = b'{"a":{"dtype":"F6_E2M3","shape":[8],"data_offsets":[0,6]}}'
NO_TYPE = SIX_BITS.replace(b"F6_E2M3", b"F6")
SAFETENSORS: dict[str, bytes] = {
    "empty": b"",
    "short": b"\0\0\0",
    "a header longer than the file": struct.pack("<Q", 2**62) + b"{}",
    "a header that is none": struct.pack("<Q", 4) + b"evil",
    "a pickle": b"\x80\x04\x95\x0b\x00\x00\x00",
    "a shape without data": struct.pack("<Q", len(TERABYTE)) + TERABYTE,
    "a type that PyTorch lacks": struct.pack("<Q", len(SIX_BITS)) + SIX_BITS + bytes(6),
    "a type that nobody has": struct.pack("<Q", len(NO_TYPE)) + NO_TYPE + bytes(6),
    "a header of 17 MB": struct.pack("<Q", 17 << 20) + b"{}".ljust(17 << 20),
}


@pytest.mark.parametrize("name", SAFETENSORS)
def test_weights_in_another_format_are_refused_by_name(folder: Path, name: str):
    (folder / "model.safetensors").write_bytes(SAFETENSORS[name])
    signed_again(folder)
    assert "model.safetensors" in refused(folder)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_random_bytes_signed_again_are_refused_or_read(folder: Path, file: str):
    chance, data = random.Random(1), (folder / file).read_bytes()
    reach = min(len(data), 3000)  # for the weights: their header
    for _ in range(40):
        changed = bytearray(data)
        changed[chance.randrange(reach)] = chance.randrange(256)
        (folder / file).write_bytes(changed)
        signed_again(folder)
        with contextlib.suppress(DragomanError):
            read_model(folder)


def test_model_of_another_shape_is_refused_with_both_shapes(folder: Path):
    other = build(tiny_transformer(d_ff=48), 400)
    weights = {name: tensor.clone() for name, tensor in other.state_dict().items() if "embedding" not in name}
    save_file(weights, folder / "model.safetensors")
    signed_again(folder)
    message = refused(folder)
    assert "48" in message
    assert "32" in message


@pytest.mark.slow
def test_model_is_read_without_loading_a_compiler(trained: Path):
    """PyTorch's takes longer to load than all the rest of a start. The control: numbers are drawn for a model."""
    loaded = "print('torch._dynamo' in sys.modules)"
    code = f"""
import sys, torch
from pathlib import Path
from dragoman.config.presets import TINY
from dragoman.model import build
from dragoman.model_folder import read_model
read_model(Path(sys.argv[1])); {loaded}
with torch.device("meta"): build(TINY.model, 9)
{loaded}
"""
    command = [sys.executable, "-c", code, str(trained)]
    answers = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert answers.split() == ["False", "True"]


def test_outline_has_the_shapes_of_the_model_and_no_numbers():
    for config in (TINY, TINY_RECURRENT):
        expected, found = build(config, 30), outline(config, 30)
        shapes = [{name: tensor.shape for name, tensor in one.state_dict().items()} for one in (expected, found)]
        assert shapes[0] == shapes[1]
        assert all(tensor.is_meta for tensor in found.state_dict().values())
        assert not any(tensor.is_meta for tensor in expected.state_dict().values())


@pytest.mark.parametrize("layers", [0, 1, 3])
@pytest.mark.parametrize("changes", [{}, {"share": "none", "positions": "learned"}, {"positions": "relative"}], ids=str)
def test_expected_shapes_are_those_of_the_whole_model(layers: int, changes: dict[str, Any]):
    for config in (
        tiny_transformer(encoder_layers=layers, decoder_layers=max(1, layers), **changes),
        RecurrentConfig(d_model=16, layers=max(1, layers)),
    ):
        whole = {name: tuple(tensor.shape) for name, tensor in build(config, 30).state_dict().items()}
        found = {name: shape for names, shape in expected_shapes(Description(config, 30, None)) for name in names}
        assert found == whole


def empty_tensors(count: int) -> bytes:
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"encoder.{number}.attention.query.weight": entry for number in range(count)}).encode()
    return struct.pack("<Q", len(header)) + header


HUGE = 100_000_000
EXPENSIVE: dict[str, Callable[[Path], Any]] = {
    "a header of 100 MB": lambda folder: (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", HUGE) + b" " * HUGE
    ),
    "config.json of 100 MB": lambda folder: (folder / "config.json").write_bytes(b"[" + b"1," * (HUGE // 2) + b"1]"),
    "manifest.json of 100 MB": lambda folder: (folder / MANIFEST).write_bytes(b"[" + b"1," * (HUGE // 2) + b"1]"),
    "tokenizer.json of 100 MB": lambda folder: (folder / "tokenizer.json").write_bytes(
        b"[" + b"1," * (HUGE // 2) + b"1]"
    ),
    **{
        f"tokenizer.json of {count:,} x {value.decode()}": lambda folder, value=value, count=count: (
            folder / "tokenizer.json"
        ).write_bytes(b'{"model": {"vocab": {}, "merges": [' + b",".join([value] * count) + b"]}}")
        for value, count in ((b"[]", 5_000_000), (b'["a", "a"]', 1_000_000))
    },
    "2 x 1000 layers of empty tensors": lambda folder: (
        describe(folder, encoder_layers=1000, decoder_layers=1000),
        (folder / "model.safetensors").write_bytes(empty_tensors(20_000)),
    ),
}
COST = """
import sys, time
from pathlib import Path
from dragoman.errors import DragomanError
from dragoman.model_folder import read_model


def peak():
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


read_model(Path(sys.argv[1]))  # what an intact model needs is there
for folder in sys.argv[2:]:
    before, began = peak(), time.process_time()
    try:
        read_model(Path(folder))
    except DragomanError:
        print(peak() - before, time.process_time() - began)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured on Linux")
def test_hostile_folder_is_refused_for_little_time_and_memory(folder: Path, tmp_path: Path):
    """MiB and seconds of the processor; each costs a hundred times as much if it is read."""
    hostile = [shutil.copytree(folder, tmp_path / str(number)) for number in range(len(EXPENSIVE))]
    for copy, spoil in zip(hostile, EXPENSIVE.values(), strict=True):
        spoil(copy)
        if (copy / MANIFEST).stat().st_size < HUGE:
            signed_again(copy)
    command = [sys.executable, "-c", COST, *map(str, [folder, *hostile])]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    costs = {name: tuple(map(float, line.split())) for name, line in zip(EXPENSIVE, lines, strict=True)}
    assert all(memory < 50 and seconds < 3 for memory, seconds in costs.values()), costs


@contextlib.contextmanager
def room_for_files(room: int) -> Iterator[None]:
    """Let the system open so many more files in the block."""
    os.close(lowest := os.dup(0))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("room", [0, 1])  # the library opens the file first, then PyTorch
def test_weights_that_the_system_cannot_read_are_not_called_damaged(folder: Path, room: int):
    file = folder / "model.safetensors"
    with room_for_files(room), pytest.raises(OSError, match="Too many open files") as error:
        read_tensors(file)
    assert error.value.filename == str(file)
    assert read_tensors(file)  # the control


@pytest.mark.parametrize("reason", ["unable to mmap 8 bytes from file <{}>: Cannot allocate memory (12)", "a defect"])
def test_errors_of_memory_and_defects_are_not_blamed_on_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, reason: str
):
    file = folder / "model.safetensors"

    def fail(_: Path) -> None:
        raise RuntimeError(reason.format(file))

    monkeypatch.setattr("dragoman.model_folder.weights.load_file", fail)
    with pytest.raises(RuntimeError, match=r"memory|defect"):
        read_tensors(file)
