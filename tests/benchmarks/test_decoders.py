"""Every decoder of the benchmark does the same work with the same weights: it finds the words that our search finds."""

import contextlib
import copy
import itertools
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from conftest import write_tsv

from benchmarks import decoding, pipeline
from benchmarks.decoding import MODEL, our_decoder, pass_over, prevent_eos
from benchmarks.peers import decoders, trainers
from benchmarks.peers.decoders import layer_weights
from benchmarks.peers.pytorch import padded_step
from dragoman.config import EngineName, FeedForwardConfig
from dragoman.data.batches import Batch, Ids
from dragoman.data.tokenizer import PAD
from dragoman.errors import DragomanError
from dragoman.inference.products import supported_types
from dragoman.model.transformer import Transformer
from dragoman.model_folder import fetch_model

VOCABULARY, LENGTH = 60, 9  # words; tokens of each source, its end included
OTHERS = ["HF generate", "CTranslate2", "Marian", "JoeyNMT"]


@pytest.fixture(scope="module")
def model() -> Transformer:
    """It has learned a little, so that its words differ from place to place and no weight is as it was drawn."""
    torch.manual_seed(1)
    layers = {"encoder_layers": 2, "decoder_layers": 3, "feed_forward": FeedForwardConfig(d_ff=48)}
    config = replace(MODEL, d_model=32, dropout=0.0, **layers)
    model = Transformer(config, VOCABULARY, pad=PAD)
    model.output.bias.requires_grad_(False)  # JoeyNMT has none
    step = padded_step(model, rate=lambda: 0.01)
    batch = Batch.from_pairs(texts(8, seed=1), texts(8, seed=2))
    for _ in range(80):
        step(batch)
    return prevent_eos(model.eval())


def texts(count: int, seed: int) -> list[Ids]:
    random = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (count, LENGTH - 1), generator=random).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "threads"), [*((name, 1) for name in OTHERS), ("CTranslate2", 2)])
def test_decoders_find_the_words_that_our_search_finds(name: str, threads: int, model: Transformer):
    sources = texts(5, seed=1)
    ours = {beam: our_decoder(model)(sources, beam) for beam in (1, 4)}
    assert ours[1] != ours[4]
    assert len({word for output in ours[1] for word in output}) > 8
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        found = [decode for toolkit, decode in decoding.open_decoders(model, threads, stack, notes) if toolkit == name]
        if not found:
            pytest.skip(next(note for note in notes if "left out" in note))
        assert len(found) == threads
        for (beam, expected), decode in itertools.product(ours.items(), found):
            assert decode(sources, beam) == expected
            assert decode(sources[:1], beam) == expected[:1]


def test_words_depend_on_every_matrix_and_norm(model: Transformer):
    """So no weight can be missing or in another's place where the words are the same."""
    sources = texts(4, seed=1)
    ours = our_decoder(model)(sources, 1)
    for part, side in itertools.product({part for _, _, part, _, _ in layer_weights(model)}, ("encoder", "decoder")):
        other = copy.deepcopy(model)
        for where, _, name, _, value in layer_weights(other):
            if (where, name) == (side, part):
                value.zero_()
        same = our_decoder(other)(sources, 1) == ours
        assert same == (side == "encoder" and "cross" in part), (side, part)


def test_work_that_is_not_the_same_is_not_counted():
    groups = [texts(2, seed=1), texts(1, seed=2)]
    assert pass_over(lambda sources, beam: [[5] * LENGTH for _ in sources], groups, 1)() == 3 * LENGTH
    for lengths in ((LENGTH - 1, LENGTH + 1), (LENGTH, LENGTH, LENGTH), ()):
        with pytest.raises(DragomanError, match="not the same work"):
            pass_over(lambda sources, beam, lengths=lengths: [[5] * n for n in lengths], groups[:1], 1)()  # type: ignore[misc]


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for Marian's interpreter, to be written."""
    monkeypatch.setattr(trainers, "PEERS", tmp_path / "peers")
    file = tmp_path / "peers" / "marian" / "bin" / "python"
    file.parent.mkdir(parents=True)
    file.touch(0o755)
    return file


STARTS = "import json, sys\nfor line in sys.stdin:\n    print(json.dumps(['w5 w5']), flush=True)\n    "
ENDS = "raise SystemExit('first\\nError: no such flag\\nlast')"


@pytest.mark.parametrize("script", [ENDS, STARTS + ENDS])
def test_decoder_that_ends_is_an_error_with_its_reason(script: str, model: Transformer, python: Path, tmp_path: Path):
    python.write_text(f"#!{sys.executable}\n{script}\n")

    def work() -> None:
        with decoders.open_decoder("marian", model, 1, tmp_path) as decode:
            assert script != ENDS
            decode(texts(2, seed=1), 1)

    with pytest.raises(DragomanError, match=r"^marian ended: Error: no such flag$"):
        work()


@pytest.mark.slow
def test_missing_decoder_is_left_out_and_said_so(model: Transformer, python: Path):
    python.unlink()
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        found = [name for name, _ in decoding.open_decoders(model, 1, stack, notes)]
    assert "Marian" not in found
    assert notes[-2:] == [f"{name} is left out: `make peers` installs it." for name in ("Marian", "JoeyNMT")]


def table(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def number(cell: str) -> float:
    return float(cell.split()[0].replace(",", ""))


def is_ratio(shown: float, cell: str, other: str, *, unit: float) -> bool:
    """Return whether a number is the ratio of two rates in whole numbers; unit: of the number's last digit."""
    low, high = ((number(cell) + half) / (number(other) - half) for half in (-0.5, 0.5))
    return low - 0.51 * unit < shown < high + 0.51 * unit


def test_ratio_is_checked_as_closely_as_its_rates_are_known():
    assert is_ratio(2.77, "160 ± 3 %", "58 ± 1 %", unit=0.01)  # 160.4 / 57.9
    assert not is_ratio(2.70, "160", "58", unit=0.01)
    assert not is_ratio(58 / 160, "160", "58", unit=0.01)


@pytest.mark.slow
def test_benchmark_gives_rates_and_ratios(monkeypatch: pytest.MonkeyPatch, python: Path):
    pytest.importorskip("ctranslate2")
    python.unlink()
    monkeypatch.setattr(decoding, "MODEL", replace(MODEL, d_model=16, encoder_layers=1, decoder_layers=1))
    monkeypatch.setattr(decoding, "VOCABULARY", VOCABULARY)
    monkeypatch.setattr(decoding, "LENGTH", LENGTH)
    columns, _, *rows = table(decoding.benchmark(threads=1, rounds=1, sentences=4))
    assert [row[0] for row in rows] == [f"beam {beam}, batch {batch}" for beam in (1, 4) for batch in (1, 32)]
    measured = columns[1 : columns.index("ours / CTranslate2") - 1]
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        assert all(number(cells[name]) > 0 for name in measured)
        for short, name in decoding.RATIOS.items():
            assert (f"ours / {short}" in cells) == (name in measured)
            if name in measured:
                shown = float(cells[f"ours / {short}"])
                assert is_ratio(shown, cells[decoding.OURS], cells[name], unit=0.01)


@pytest.mark.parametrize("engine", get_args(EngineName))
def test_pipeline_is_measured_against_search_alone(engine: EngineName, trained: Path, tmp_path: Path, pairs):
    kinds, searches, base = supported_types(), pipeline.SEARCHES, pipeline.IDS
    if engine == "ctranslate2":
        supported = pytest.importorskip("ctranslate2").get_supported_compute_types("cpu")
        kinds = [kind for kind in ("float32", "bfloat16", "int8") if kind in supported]
        searches, base = pipeline.SEARCHES | pipeline.AS_SHORT, pipeline.RAW
    model = shutil.copytree(fetch_model(trained).resolve(), tmp_path / "toy")
    test = write_tsv(tmp_path / "test.tsv", pairs[190:])
    columns, _, *rows = table(pipeline.benchmark(str(model), test, engine, threads=1, rounds=1))
    assert [row[0] for row in rows] == [f"{kind}, {name}" for kind in kinds for name in searches]
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        assert (pipeline.RAW in cells) == ("same" in cells) == (engine == "ctranslate2")
        for name in {pipeline.OURS, pipeline.UNGUARDED, pipeline.IDS} - {base}:
            assert is_ratio(number(cells[f"{name} / {base}"]) / 100, cells[name], cells[base], unit=0.01)
    if engine == "ctranslate2":
        assert number(rows[0][-1]) == 10  # greedy search knows no other way
